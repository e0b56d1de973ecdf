/* SPDX-License-Identifier: Apache-2.0
 *
 * Deletion moves later entries of the probe run back instead of leaving tombstones, so that the
 * index never has to be built anew.
 */
#include "policy/ghost.h"

#include <stdlib.h>

#include "base/check.h"

/* Fibonacci hashing: hashes of a caller may count up. */
static uint32_t
home_of(const struct yb_policy_ghost *ghost, uint32_t hash)
{
    return hash * 2654435769u >> ghost->index_shift;
}

/* 0 marks a hole. */
static uint32_t
never_zero(uint32_t hash)
{
    return hash == 0 ? 1 : hash;
}

enum yb_status
yb_policy_ghost_init(struct yb_policy_ghost *ghost, uint32_t capacity)
{
    uint32_t bits = 1;

    while ((1ull << bits) < 2 * (uint64_t)capacity) {
        bits++;
    }
    YB_ASSERT(bits < 32);
    *ghost = (struct yb_policy_ghost){
        .capacity = capacity,
        .index_mask = (1u << bits) - 1,
        .index_shift = 32 - bits,
    };
    if (capacity == 0) {
        return YB_OK;
    }
    ghost->ring = calloc(capacity, sizeof *ghost->ring);
    ghost->index = calloc((size_t)ghost->index_mask + 1, sizeof *ghost->index);
    if (ghost->ring == NULL || ghost->index == NULL) {
        yb_policy_ghost_fini(ghost);
        return YB_NO_MEMORY;
    }
    return YB_OK;
}

void
yb_policy_ghost_fini(struct yb_policy_ghost *ghost)
{
    free(ghost->ring);
    free(ghost->index);
    *ghost = (struct yb_policy_ghost){0};
}

/* Return the index slot of a hash, or the free one where it would go. */
static uint32_t
find(const struct yb_policy_ghost *ghost, uint32_t hash)
{
    uint32_t slot = home_of(ghost, hash);

    while (ghost->index[slot] != 0 && ghost->ring[ghost->index[slot] - 1] != hash) {
        slot = (slot + 1) & ghost->index_mask;
    }
    return slot;
}

/* Free an index slot; its ring position is still filled. */
static void
forget(struct yb_policy_ghost *ghost, uint32_t slot)
{
    uint32_t position = ghost->index[slot] - 1;
    uint32_t next = slot;

    for (;;) {
        uint32_t home;

        next = (next + 1) & ghost->index_mask;
        if (ghost->index[next] == 0) {
            break;
        }
        home = home_of(ghost, ghost->ring[ghost->index[next] - 1]);
        /* It may move back only to where a search that starts at its home still meets it. */
        if (((next - home) & ghost->index_mask) >= ((next - slot) & ghost->index_mask)) {
            ghost->index[slot] = ghost->index[next];
            slot = next;
        }
    }
    ghost->index[slot] = 0;
    ghost->ring[position] = 0;
    ghost->count--;
}

bool
yb_policy_ghost_take(struct yb_policy_ghost *ghost, uint32_t hash)
{
    uint32_t slot;

    if (ghost->capacity == 0) {
        return false;
    }
    slot = find(ghost, never_zero(hash));
    if (ghost->index[slot] == 0) {
        return false;
    }
    forget(ghost, slot);
    return true;
}

void
yb_policy_ghost_add(struct yb_policy_ghost *ghost, uint32_t hash)
{
    if (ghost->capacity == 0) {
        return;
    }
    hash = never_zero(hash);
    (void)yb_policy_ghost_take(ghost, hash);
    if (ghost->ring[ghost->next] != 0) {
        (void)yb_policy_ghost_take(ghost, ghost->ring[ghost->next]);
    }
    ghost->ring[ghost->next] = hash;
    /* The slot is searched after the oldest left: its run may have moved. */
    ghost->index[find(ghost, hash)] = ghost->next + 1;
    ghost->next = (ghost->next + 1) % ghost->capacity;
    ghost->count++;
    YB_ASSERT(ghost->count <= ghost->capacity); /* P3 */
}
