/* SPDX-License-Identifier: Apache-2.0
 *
 * stretch.h -- an array that grows in place, in small steps.
 *
 * Addresses for the largest size are reserved at once, memory is taken as the array grows: nothing
 * ever moves, growing never copies, and what is not reached costs nothing. A step is 64 KiB; from
 * 64 MiB on it is 2 MiB, and huge pages are asked for, which random lookups in a large array want.
 * So at most 64 KiB, or 1/32, are memory that nobody uses yet.
 *
 * Threads   One owner; no locks.
 * Memory    New memory is zero. Nothing is given back before fini.
 */
#ifndef YB_DIRECTORY_STRETCH_H
#define YB_DIRECTORY_STRETCH_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_stretch {
    uint8_t *base;         /* Aligned to 2 MiB. Of the owner: cast it to the array. */
    size_t taken_bytes;    /* Usable from `base` on: what counts as resident. */
    size_t reserved_bytes; /* How far it can grow. */
    void *mapping;         /* What munmap wants. */
    size_t mapping_bytes;
};

/* Reserve addresses for `bytes_max` (1 to 2^46). On OK pass it to fini. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_stretch_init(struct yb_stretch *stretch, size_t bytes_max);

void yb_stretch_fini(struct yb_stretch *stretch);

/* Make at least `bytes` (at most bytes_max) usable. Fails with NO_MEMORY; what was usable stays. */
YB_CHECKED enum yb_status yb_stretch_reach(struct yb_stretch *stretch, size_t bytes);

#endif /* YB_DIRECTORY_STRETCH_H */
