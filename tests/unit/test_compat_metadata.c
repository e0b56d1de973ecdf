/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "compat/metadata.h"
#include "unit.h"

static void
test_compat_metadata__addresses_are_kept_and_bounds_hold(void **state)
{
    struct yb_metadata *metadata = yb_metadata_create();
    char key[YB_METADATA_KEY_MAX + 2];
    char *big = calloc(1, 1u << 20);
    char *value = NULL;
    size_t bytes = 0;
    uint64_t kept = 0;

    (void)state;
    assert_int_equal(yb_metadata_put(metadata, "ram/a", "one", 3), YB_OK);
    assert_int_equal(yb_metadata_put(metadata, "ram/a", "other", 5), YB_OK);
    assert_int_equal(yb_metadata_get(metadata, "ram/a", &value, &bytes), YB_OK);
    assert_int_equal(bytes, 5);
    assert_string_equal(value, "other");
    free(value);
    assert_int_equal(yb_metadata_put(metadata, "rpc_meta/a", "one", 3), YB_OK);
    assert_int_equal(yb_metadata_put(metadata, "rpc_meta/a", "one", 3), YB_OK);
    assert_int_equal(yb_metadata_put(metadata, "rpc_meta/a", "two", 3), YB_EXISTS);
    assert_int_equal(yb_metadata_delete(metadata, "rpc_meta/a"), YB_OK);
    assert_int_equal(yb_metadata_delete(metadata, "rpc_meta/a"), YB_NOT_FOUND);
    assert_int_equal(yb_metadata_put(metadata, "rpc_meta/a", "two", 3), YB_OK);
    memset(key, 'k', sizeof(key));
    key[YB_METADATA_KEY_MAX + 1] = '\0';
    assert_int_equal(yb_metadata_put(metadata, key, "x", 1), YB_INVALID);
    assert_int_equal(yb_metadata_put(metadata, "", "x", 1), YB_INVALID);
    for (;;) {
        enum yb_status status;

        (void)snprintf(key, sizeof(key), "big/%llu", (unsigned long long)kept);
        status = yb_metadata_put(metadata, key, big, 1u << 20);
        if (status != YB_OK) {
            assert_int_equal(status, YB_NO_SPACE);
            break;
        }
        kept++;
    }
    assert_int_equal(kept, (YB_METADATA_BYTES_MAX >> 20) - 1);
    assert_int_equal(yb_metadata_put(metadata, "big/0", big, 1u << 20), YB_OK); /* In its place. */
    free(big);
    yb_metadata_destroy(&metadata);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_metadata__addresses_are_kept_and_bounds_hold),
    };

    return cmocka_run_group_tests_name("compat_metadata", tests, NULL, NULL);
}
