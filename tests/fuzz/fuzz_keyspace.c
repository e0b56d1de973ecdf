/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a key: each part lies within it, parts do not overlap, and two keys that differ in
 * the hash alone are of one family. Then the input as a list of keys, counted and judged.
 */
#include <string.h>

#include "base/check.h"
#include "compat/keyspace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_part(struct yb_keyspace_part part, size_t size)
{
    YB_ASSERT(part.at <= size);
    YB_ASSERT(part.bytes <= size - part.at);
}

static bool
apart(struct yb_keyspace_part one, struct yb_keyspace_part other)
{
    return one.bytes == 0 || other.bytes == 0 || one.at + one.bytes <= other.at ||
           other.at + other.bytes <= one.at;
}

static void
check_key(const uint8_t *data, size_t size)
{
    struct yb_keyspace_key key;

    yb_keyspace_parse(data, size, &key);
    YB_ASSERT((unsigned)key.engine < YB_KEYSPACE_ENGINES);
    check_part(key.model, size);
    check_part(key.rank, size);
    check_part(key.hash, size);
    YB_ASSERT(key.kin_bytes <= size);
    YB_ASSERT(apart(key.model, key.rank));
    YB_ASSERT(apart(key.model, key.hash));
    YB_ASSERT(apart(key.rank, key.hash));
    if (key.engine == YB_KEYSPACE_OTHER) {
        YB_ASSERT(key.model.bytes == 0 && key.rank.bytes == 0 && key.hash.bytes == 0);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yb_keyspace *keyspace = NULL;
    struct yb_keyspace_warning warnings[4];
    uint32_t count;

    check_key(data, size);
    YB_ASSERT(yb_keyspace_create(&keyspace) == YB_OK);
    while (size > 0) { /* One key a line. */
        const uint8_t *end = memchr(data, '\n', size);
        size_t length = end == NULL ? size : (size_t)(end - data);

        YB_ASSERT(yb_keyspace_add(keyspace, data, length, length) == YB_OK);
        length += length < size;
        data += length;
        size -= length;
    }
    count = yb_keyspace_judge(keyspace);
    for (uint32_t i = 0; i < count; i++) {
        const struct yb_keyspace_family *family = yb_keyspace_family(keyspace, i);

        YB_ASSERT(strlen(family->text) <= family->text_bytes);
        check_part(family->model, family->text_bytes);
        check_part(family->rank, family->text_bytes);
        YB_ASSERT(family->shared <= family->shared_judged);
        YB_ASSERT(family->peer < count && family->kin <= i);
    }
    (void)yb_keyspace_warnings(keyspace, warnings, 4);
    yb_keyspace_destroy(&keyspace);
    return 0;
}
