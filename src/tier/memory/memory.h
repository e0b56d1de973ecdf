/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h -- a tier whose medium is memory that outlives its node: for tests and simulations.
 *
 * It keeps the contract of tier.h to the letter, in virtual time, and breaks in every way that a
 * device can: it stalls, fails, fills up, and at a crash loses what it has not acknowledged, or
 * keeps it, as chance has it.
 *
 *     medium create --> tier create --> (crash: tier destroy, medium crash) --> tier create ...
 *
 * A store takes `store_ns` to be written and `sync_ns` more to be safe; only then is it RESIDENT. A
 * crash in between leaves it, or does not. Kills and flushes take `sync_ns`. Above three quarters
 * of its capacity it tells of the oldest blocks that they will be lost, which happens when it is
 * full.
 *
 * Threads   One: the loop's. A medium has one tier at a time.
 * Memory    The medium owns copies of what it keeps.
 * Time      The loop's clock.
 */
#ifndef YB_TIER_MEMORY_MEMORY_H
#define YB_TIER_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include "tier/tier.h"
#include "yuebing/status.h"

struct yb_loop;
struct yb_memory_medium;

YB_CHECKED enum yb_status yb_memory_medium_create(uint64_t capacity, uint64_t seed,
                                                  struct yb_memory_medium **medium_out);
void yb_memory_medium_destroy(struct yb_memory_medium **medium);

/* How it behaves from now on. */
struct yb_memory_faults {
    bool stalled;        /* Nothing ends until this is over. */
    uint32_t store_full; /* So many of the next stores end NO_SPACE. */
    uint32_t store_fail; /* So many of the next stores, loads, kills and flushes end IO. */
    uint32_t load_fail;
    uint32_t load_corrupt; /* So many of the next loads find other bytes than were stored. */
    uint32_t kill_fail;
};
struct yb_memory_faults *yb_memory_medium_faults(struct yb_memory_medium *medium);

/* Let it fail until it is mended: stores and kills end, and whether they have happened nobody
 * knows; what was RESIDENT is read. Then the tier is back, and finds everything anew. */
void yb_memory_medium_break(struct yb_memory_medium *medium, bool broken);

/* While it is broken: somebody has put an empty one in its place. */
void yb_memory_medium_empty(struct yb_memory_medium *medium);

/* The tier that used it was destroyed by a crash: what was under way has happened, or not. */
void yb_memory_medium_crash(struct yb_memory_medium *medium);

/* Visit what the next recovery would find. */
void yb_memory_medium_visit(const struct yb_memory_medium *medium,
                            void (*visit)(void *context, const struct yb_tier_record *record,
                                          const void *bytes),
                            void *context);

struct yb_memory_tier_options {
    struct yb_loop *loop;
    struct yb_memory_medium *medium; /* Outlives the tier. */
    enum yb_wire_tier tier;          /* What it says to be. */
    uint64_t store_ns;
    uint64_t sync_ns;
    uint64_t load_ns;
    uint64_t recover_ns; /* For each block that is found. */
    const struct yb_tier_events *events;
    void *owner;
};

YB_CHECKED enum yb_status yb_memory_tier_create(const struct yb_memory_tier_options *options,
                                                struct yb_tier **tier_out);

#endif /* YB_TIER_MEMORY_MEMORY_H */
