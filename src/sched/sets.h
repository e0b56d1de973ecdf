/* SPDX-License-Identifier: Apache-2.0
 *
 * sets.h -- sets of holders, each stored once.
 *
 * A member is a place and the tiers in which it has the block, in one number: place << 3 | tiers.
 * Sets are numbers; 0 is the empty set, which needs no room. Each other set has a count of who uses
 * it and goes when that is 0. "Set with member X instead of Y" is looked for by a hash that is the
 * sum of a hash of each member, so that it costs no walk over the members to know it.
 *
 * Room comes from one arena, in pieces of 4, 8, 16, ... members. A larger free piece is cut when no
 * smaller one is left; pieces are not joined again.
 *
 * Invariants: I1, I2 of index.h.
 *
 * Threads   As the index, whose part it is.
 * Memory    Two arrays and the arena, reserved at create.
 */
#ifndef YB_SCHED_SETS_H
#define YB_SCHED_SETS_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_SCHED_SETS_TIER_BITS 3u
#define YB_SCHED_SETS_TIER_MASK 7u
#define YB_SCHED_SETS_CLASSES   16u

struct yb_sched_set {
    uint64_t hash;  /* Sum of those of the members. */
    uint32_t first; /* In the arena. */
    uint32_t count;
    uint32_t users;
    uint32_t next; /* Of the same bucket, or free. */
};

struct yb_sched_sets {
    struct yb_sched_set *sets;
    uint32_t set_max;
    uint32_t set_used; /* Sets 1 .. set_used have been taken at least once. */
    uint32_t set_free;
    uint32_t set_count;
    uint32_t *buckets;
    uint32_t bucket_mask;
    uint32_t *arena;
    uint32_t arena_max;
    uint32_t arena_used;
    uint32_t arena_free[YB_SCHED_SETS_CLASSES]; /* First free piece + 1, which holds the next's. */
    uint64_t member_count;
};

/* Reserve `bytes`, sets and members together. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_sched_sets_init(struct yb_sched_sets *sets, uint64_t bytes);
void yb_sched_sets_fini(struct yb_sched_sets *sets);

/* Return the members of a set, sorted. */
const uint32_t *yb_sched_sets_members(const struct yb_sched_sets *sets, uint32_t set,
                                      uint32_t *count_out);

/* Return the tiers of a place in a set; 0: it is no member. */
uint32_t yb_sched_sets_tiers(const struct yb_sched_sets *sets, uint32_t set, uint32_t place);

/* Make *set the set in which `place` has `tiers` (0: it is no member) and all else is as before;
 * the user gives the old one back and has the new one. Fails with NO_SPACE, having changed
 * nothing. */
YB_CHECKED enum yb_status yb_sched_sets_change(struct yb_sched_sets *sets, uint32_t *set,
                                               uint32_t place, uint32_t tiers);

/* One user less. */
void yb_sched_sets_release(struct yb_sched_sets *sets, uint32_t set);

#endif /* YB_SCHED_SETS_H */
