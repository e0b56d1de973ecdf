/* SPDX-License-Identifier: Apache-2.0 */
#include "client/hints.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define MAGIC      0x59424849u /* "YBHI" */
#define WAYS       4u
#define HINTS_MAX  (1u << 28)
#define LINE_BYTES 64u

struct entry {
    struct yb_id hash;
    struct yb_hint hint; /* A grant of 0: empty. */
    uint32_t used;       /* The clock at its last use. */
    uint32_t padding;
};
_Static_assert(sizeof(struct entry) == 48, "as the header says");

struct yb_hints {
    uint32_t magic;
    uint32_t bucket_mask;
    uint32_t clock;
    uint32_t count;
    struct entry *entries; /* NULL: nothing is remembered. */
};

enum yb_status
yb_hints_create(uint32_t hints_max, struct yb_hints **hints_out)
{
    struct yb_hints *hints;

    if (hints_max > 1 &&
        (hints_max < WAYS || hints_max > HINTS_MAX || (hints_max & (hints_max - 1)) != 0)) {
        return YB_INVALID;
    }
    hints = calloc(1, sizeof(*hints));
    if (hints == NULL) {
        return YB_NO_MEMORY;
    }
    hints->magic = MAGIC;
    if (hints_max > 1) {
        hints->bucket_mask = hints_max / WAYS - 1;
        hints->entries = calloc(hints_max, sizeof(*hints->entries));
        if (hints->entries == NULL) {
            free(hints);
            return YB_NO_MEMORY;
        }
    }
    *hints_out = hints;
    return YB_OK;
}

void
yb_hints_destroy(struct yb_hints **hints)
{
    if (*hints == NULL) {
        return;
    }
    YB_ASSERT((*hints)->magic == MAGIC);
    (*hints)->magic = 0;
    free((*hints)->entries);
    free(*hints);
    *hints = NULL;
}

/* The hash is one already: its first bytes choose the bucket. */
static struct entry *
bucket_of(struct yb_hints *hints, struct yb_id hash)
{
    uint32_t word;

    memcpy(&word, hash.bytes, sizeof(word));
    return &hints->entries[(size_t)(word & hints->bucket_mask) * WAYS];
}

static struct entry *
find(struct yb_hints *hints, struct yb_id hash)
{
    struct entry *bucket;

    if (hints->entries == NULL) {
        return NULL;
    }
    bucket = bucket_of(hints, hash);
    for (uint32_t i = 0; i < WAYS; i++) {
        if (bucket[i].hint.grant != 0 && yb_id_equal(bucket[i].hash, hash)) {
            return &bucket[i];
        }
    }
    return NULL;
}

void
yb_hints_prefetch(struct yb_hints *hints, struct yb_id hash)
{
    if (hints->entries != NULL) {
        const uint8_t *bucket = (const uint8_t *)bucket_of(hints, hash);

        for (size_t at = 0; at < WAYS * sizeof(struct entry); at += LINE_BYTES) {
            __builtin_prefetch(bucket + at);
        }
    }
}

bool
yb_hints_find(struct yb_hints *hints, struct yb_id hash, struct yb_hint *hint_out)
{
    struct entry *entry = find(hints, hash);

    if (entry == NULL) {
        return false;
    }
    entry->used = ++hints->clock;
    *hint_out = entry->hint;
    return true;
}

void
yb_hints_set(struct yb_hints *hints, struct yb_id hash, const struct yb_hint *hint)
{
    struct entry *entry = find(hints, hash);
    struct entry *bucket;

    YB_ASSERT(hint->grant != 0);
    if (hints->entries == NULL) {
        return;
    }
    if (entry == NULL) {
        bucket = bucket_of(hints, hash);
        entry = bucket;
        for (uint32_t i = 0; i < WAYS && entry->hint.grant != 0; i++) {
            if (bucket[i].hint.grant == 0 ||
                hints->clock - bucket[i].used > hints->clock - entry->used) {
                entry = &bucket[i];
            }
        }
        hints->count += entry->hint.grant == 0;
    }
    entry->hash = hash;
    entry->hint = *hint;
    entry->used = ++hints->clock;
}

bool
yb_hints_drop(struct yb_hints *hints, struct yb_id hash, uint64_t grant)
{
    struct entry *entry = find(hints, hash);

    if (entry == NULL || (grant != 0 && entry->hint.grant != grant)) {
        return false;
    }
    entry->hint.grant = 0;
    hints->count--;
    return true;
}

void
yb_hints_clear(struct yb_hints *hints)
{
    if (hints->entries != NULL) {
        memset(hints->entries, 0,
               (size_t)(hints->bucket_mask + 1) * WAYS * sizeof(*hints->entries));
    }
    hints->count = 0;
}

uint32_t
yb_hints_count(const struct yb_hints *hints)
{
    return hints->count;
}
