/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- which block lies where, for thousands of places, and the runs of a prompt.
 *
 * Blocks that came together are held by the same places. So a block does not have a list of its
 * holders: it has the number of a set, and equal sets are one.
 *
 *     block  -->  { set, object store?, who is computing it }        16 bytes, open addressing
 *     set    -->  place and tiers, sorted by place                   shared, counted
 *
 * Along a prompt the number of the set changes only where some place's run ends. Such a change is
 * looked for by jumps of 1, 2, 4, ... blocks and then by halving; only there are sets compared, and
 * only with the places whose run has not ended. A prompt of a million tokens takes dozens of
 * probes.
 *
 * Invariants
 *   I1  A set number stands for exactly one set of (place, tiers); 0 is the empty one. Sets are
 *       sorted, no place twice, no place without a tier.
 *   I2  A set is kept as long as a block has it, and no longer.
 *   I3  A record without holders, object store and producer does not exist.
 *   I4  Runs by jumping are those by looking at each block, if each place that holds a block in
 *       some tier or a nearer one holds all before it so, too. `exact` looks at each.
 *   I5  add, drop and mark refuse rather than pass a bound; nothing has changed then.
 *
 * Producers A running prefill marks the blocks that it will compute. Marks name a slot and its
 *           generation; retiring a slot makes all its marks stale at once. Stale marks are wiped
 *           off when somebody comes by.
 *
 * Threads   match: any, while nobody changes the index. All else: one owner.
 * Memory    Reserved at create; touched as it fills. match allocates nothing.
 */
#ifndef YB_SCHED_INDEX_H
#define YB_SCHED_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/sched.h"
#include "yuebing/status.h"

#define YB_SCHED_INDEX_BLOCKS_MAX    (1u << 28)
#define YB_SCHED_INDEX_PRODUCERS_MAX ((1u << 20) - 1u)
#define YB_SCHED_COMING_MAX          8u
#define YB_SCHED_STRETCHES_MAX       32u

struct yb_sched_index;

/* What `active` of a match needs: one per place. */
struct yb_sched_index_active {
    uint32_t place;
    uint32_t alive; /* Tiers, cumulated, whose run has not ended. */
};

/* A stretch of a prompt that a running prefill is computing. */
struct yb_sched_coming {
    uint32_t producer; /* Its slot. */
    uint32_t first;
    uint32_t end;
};

/* A stretch of a prompt that lies at the same places. */
struct yb_sched_stretch {
    uint32_t first;
    uint32_t end;
    uint32_t set;
    bool object; /* And in the object store. */
};

/* What is looked up. */
struct yb_sched_index_prompt {
    const uint64_t *blocks;
    uint32_t count;
    bool exact; /* I4 */
};

/* What a match found beside the hits. */
struct yb_sched_index_match {
    uint32_t object_run; /* Blocks from the first that are in the object store. */
    uint32_t known;      /* Blocks from the first that are somewhere, or will be. */
    uint32_t probes;     /* Blocks that were looked at. */
    uint32_t coming_count;
    struct yb_sched_coming coming[YB_SCHED_COMING_MAX];
    uint32_t stretch_count; /* From the first block on, without a gap, as many as there is room. */
    struct yb_sched_stretch stretches[YB_SCHED_STRETCHES_MAX];
};

/* Create an empty index for places 0 .. places_max - 1 and producers 0 .. producers_max - 1. On OK
 * the caller owns *index_out. Fails with INVALID (a bound is 0 or beyond its own bound) or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_sched_index_create(uint32_t places_max, uint32_t blocks_max,
                                                uint64_t holders_bytes_max, uint32_t producers_max,
                                                struct yb_sched_index **index_out);
void yb_sched_index_destroy(struct yb_sched_index **index);

/* As yb_sched_add() and yb_sched_drop() say; place and tier are known to be right. */
YB_CHECKED enum yb_status yb_sched_index_add(struct yb_sched_index *index, uint64_t block,
                                             uint32_t place, uint32_t tier);
YB_CHECKED enum yb_status yb_sched_index_drop(struct yb_sched_index *index, uint64_t block,
                                              uint32_t place, uint32_t tier);

/* Return the tiers, 1 << tier each, in which `place` (or YB_SCHED_SHARED) has a block. */
uint32_t yb_sched_index_tiers(const struct yb_sched_index *index, uint64_t block, uint32_t place);

/* Return the lowest place that has a block in some tier; YB_SCHED_NONE: there is none. */
uint32_t yb_sched_index_holder(const struct yb_sched_index *index, uint64_t block);

/* Return the holders of a stretch, by number: place << YB_SCHED_SETS_TIER_BITS | tiers. */
const uint32_t *yb_sched_index_holders(const struct yb_sched_index *index, uint32_t set,
                                       uint32_t *count_out);

/* `producer` is going to compute a block. A producer that said so before keeps it. NO_SPACE: there
 * is no room for one block more. */
YB_CHECKED enum yb_status yb_sched_index_mark(struct yb_sched_index *index, uint64_t block,
                                              uint32_t producer);

/* Forget all marks of a producer; the slot may mark again. */
void yb_sched_index_retire(struct yb_sched_index *index, uint32_t producer);

/* A place is gone: what it holds is forgotten by sweeps. Until then it is in hits. */
void yb_sched_index_remove_place(struct yb_sched_index *index, uint32_t place);

/* Look at `steps` slots of the table. Returns whether a removed place may be left somewhere. */
bool yb_sched_index_sweep(struct yb_sched_index *index, uint32_t steps);

/* Whether a place that was removed is nowhere any more, and may be used again. */
bool yb_sched_index_is_swept(const struct yb_sched_index *index, uint32_t place);

/* Nothing is in the object store any more. Looks at all of the table at once. */
void yb_sched_index_drop_shared(struct yb_sched_index *index);

/* Find the runs of a prompt. hits_out[places_max] is zeroed and then filled in, but for `soon`.
 * `active` has room for places_max. */
void yb_sched_index_match(const struct yb_sched_index *index,
                          const struct yb_sched_index_prompt *prompt,
                          struct yb_sched_index_active *active, struct yb_sched_hit *hits_out,
                          struct yb_sched_index_match *match_out);

struct yb_sched_index_info {
    uint64_t blocks;
    uint64_t sets;
    uint64_t set_bytes;
    uint64_t refused;
};
struct yb_sched_index_info yb_sched_index_info(const struct yb_sched_index *index);

#endif /* YB_SCHED_INDEX_H */
