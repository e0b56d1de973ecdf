/* SPDX-License-Identifier: Apache-2.0
 *
 * An open table with steps of one; what is taken out closes up.
 */
#include "directory/hidden.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/hash.h"

#define ROOM_FIRST 64u

struct entry {
    struct yb_id hash;
    uint64_t first; /* 0: the place is free. */
    uint64_t last;
    uint16_t tenant;
};
_Static_assert(sizeof(struct entry) == 40, "as the header promises");

struct yb_hidden {
    uint64_t seed;
    struct entry *entries;
    uint32_t room; /* A power of two, more than twice the count. */
    uint32_t count;
};

enum yb_status
yb_hidden_create(uint64_t seed, struct yb_hidden **hidden_out)
{
    struct yb_hidden *hidden = calloc(1, sizeof(*hidden));

    if (hidden == NULL) {
        return YB_NO_MEMORY;
    }
    hidden->entries = calloc(ROOM_FIRST, sizeof(*hidden->entries));
    if (hidden->entries == NULL) {
        free(hidden);
        return YB_NO_MEMORY;
    }
    hidden->seed = seed;
    hidden->room = ROOM_FIRST;
    *hidden_out = hidden;
    return YB_OK;
}

void
yb_hidden_destroy(struct yb_hidden **hidden)
{
    free((*hidden)->entries);
    free(*hidden);
    *hidden = NULL;
}

static uint32_t
home_of(const struct yb_hidden *hidden, struct yb_id hash)
{
    return (uint32_t)yb_hash_table_id(hidden->seed, hash) & (hidden->room - 1);
}

/* Return the key's entry, or the free one where it would be. */
static struct entry *
place_of(const struct yb_hidden *hidden, uint16_t tenant, struct yb_id hash)
{
    uint32_t at = home_of(hidden, hash);

    while (hidden->entries[at].first != 0 &&
           !(hidden->entries[at].tenant == tenant && yb_id_equal(hidden->entries[at].hash, hash))) {
        at = (at + 1) & (hidden->room - 1);
    }
    return &hidden->entries[at];
}

static enum yb_status
grow(struct yb_hidden *hidden)
{
    struct entry *old = hidden->entries;
    uint32_t room = hidden->room;
    struct entry *entries = calloc((size_t)room * 2, sizeof(*entries));

    if (entries == NULL) {
        return YB_NO_MEMORY;
    }
    hidden->entries = entries;
    hidden->room = room * 2;
    for (uint32_t i = 0; i < room; i++) {
        if (old[i].first != 0) {
            *place_of(hidden, old[i].tenant, old[i].hash) = old[i];
        }
    }
    free(old);
    return YB_OK;
}

enum yb_status
yb_hidden_hide(struct yb_hidden *hidden, const struct yb_hidden_name *name)
{
    struct entry *entry;

    YB_ASSERT(name->grant != 0);
    if ((hidden->count + 1) * 2 >= hidden->room && grow(hidden) != YB_OK) {
        return YB_NO_MEMORY;
    }
    entry = place_of(hidden, name->tenant, name->hash);
    hidden->count += entry->first == 0;
    *entry = (struct entry){
        .hash = name->hash,
        .first = name->grant,
        .last = name->grant,
        .tenant = name->tenant,
    };
    return YB_OK;
}

void
yb_hidden_follow(struct yb_hidden *hidden, const struct yb_hidden_name *name, uint64_t before)
{
    struct entry *entry = place_of(hidden, name->tenant, name->hash);

    if (entry->first != 0 && entry->last == before) {
        entry->last = name->grant;
    }
}

void
yb_hidden_show(struct yb_hidden *hidden, const struct yb_hidden_name *name)
{
    struct entry *entry = place_of(hidden, name->tenant, name->hash);
    uint32_t hole = (uint32_t)(entry - hidden->entries);
    uint32_t mask = hidden->room - 1;

    if (entry->first == 0 || name->grant < entry->first || name->grant > entry->last) {
        return;
    }
    hidden->count--;
    for (uint32_t at = (hole + 1) & mask; hidden->entries[at].first != 0; at = (at + 1) & mask) {
        uint32_t home = home_of(hidden, hidden->entries[at].hash);

        if (((at - home) & mask) >= ((at - hole) & mask)) { /* It may lie where the hole is. */
            hidden->entries[hole] = hidden->entries[at];
            hole = at;
        }
    }
    hidden->entries[hole].first = 0;
}

bool
yb_hidden_is(const struct yb_hidden *hidden, const struct yb_hidden_name *name)
{
    const struct entry *entry = place_of(hidden, name->tenant, name->hash);

    return entry->first != 0 && entry->last == name->grant;
}

uint32_t
yb_hidden_count(const struct yb_hidden *hidden)
{
    return hidden->count;
}
