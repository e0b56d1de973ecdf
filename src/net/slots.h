/* SPDX-License-Identifier: Apache-2.0
 *
 * slots.h -- the places of the mutations that a caller has outstanding.
 *
 * A mutation takes a slot before it is sent for the first time and gives it back when its
 * caller will never ask for it again: it was answered, given up, or is in doubt for good.
 * The next one in the slot has a higher operation, and so tells the peer that the answer
 * of the one before may be forgotten (replay.h).
 *
 * Invariants
 *   T1  A slot is taken by at most one mutation at a time.
 *   T2  The slot that was given back last is taken first, and a new one only when none is
 *       free: a peer remembers no more slots than were ever taken at the same time.
 *   T3  Giving back allocates nothing.
 *
 * Threads   The loop's.
 * Memory    Embedded in its owner; all zero is a set of which nothing was ever taken.
 */
#ifndef YB_NET_SLOTS_H
#define YB_NET_SLOTS_H

#include <stdint.h>

#include "yuebing/status.h"

/* Most mutations that one lane has outstanding. */
#define YB_SLOTS_MAX (1u << 20)

struct yb_slots {
    uint32_t *free; /* The last one on top. */
    uint32_t free_count;
    uint32_t made; /* Slots 0 .. made - 1 exist, taken or free. */
    uint32_t room; /* Of `free`; never below `made`. */
};

/* Take a slot. Fails with NO_MEMORY, or AGAIN when YB_SLOTS_MAX are taken. */
YB_CHECKED enum yb_status yb_slots_take(struct yb_slots *slots, uint32_t *slot_out);

/* Give back a slot that is taken. */
void yb_slots_give(struct yb_slots *slots, uint32_t slot);

/* Return how many are taken. */
uint32_t yb_slots_taken(const struct yb_slots *slots);

/* Free what it has; all slots must have been given back. */
void yb_slots_fini(struct yb_slots *slots);

#endif /* YB_NET_SLOTS_H */
