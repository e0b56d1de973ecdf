/* SPDX-License-Identifier: Apache-2.0
 *
 * stretch.h -- an array that grows in place, in small steps.
 *
 * Addresses for the largest size are reserved at once, memory is taken as the array grows: nothing
 * ever moves, growing never copies, and what is not reached costs nothing. A step is 64 KiB; from
 * 64 MiB on it is 2 MiB, and huge pages are asked for, which random lookups in a large array want.
 * So at most 64 KiB, or a few MiB of many, are memory that nobody uses yet.
 *
 * The first touch of a huge page can take the kernel milliseconds, which the owner may not have. So
 * another thread may take the next step ahead of it: the owner's reach() says when one is due
 * (`ahead_due`), ahead() takes it. Both may try at once: taking a step twice is taking it once.
 *
 * Threads   One owner; ahead() in one other thread at a time, not after fini has begun. No locks.
 * Memory    New memory is zero. Nothing is given back before fini.
 */
#ifndef YB_DIRECTORY_STRETCH_H
#define YB_DIRECTORY_STRETCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_stretch {
    uint8_t *base;             /* Aligned to 2 MiB. Of the owner: cast it to the array. */
    atomic_size_t taken_bytes; /* Usable from `base` on: what counts as resident. Grows; whoever
                                    raises it releases, whoever relies on it acquires. */
    atomic_bool ahead_due;     /* Set by the owner, cleared by ahead(); nothing hangs on order. */
    size_t reserved_bytes;     /* How far it can grow. */
    void *mapping;             /* What munmap wants. */
    size_t mapping_bytes;
};

/* Reserve addresses for `bytes_max` (1 to 2^46). On OK pass it to fini. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_stretch_init(struct yb_stretch *stretch, size_t bytes_max);

void yb_stretch_fini(struct yb_stretch *stretch);

/* Make at least `bytes` (at most bytes_max) usable. Fails with NO_MEMORY; what was usable stays. */
YB_CHECKED enum yb_status yb_stretch_reach(struct yb_stretch *stretch, size_t bytes);

/* Whether ahead() has something to do. Any thread. */
bool yb_stretch_ahead_due(const struct yb_stretch *stretch);

/* Take the next step, and touch it, if one is due. Returns after milliseconds. Without memory it
 * does nothing: the owner will see. */
void yb_stretch_ahead(struct yb_stretch *stretch);

#endif /* YB_DIRECTORY_STRETCH_H */
