/* SPDX-License-Identifier: Apache-2.0
 *
 * survivors.h -- processes that still map shared memory whose owner has ended.
 *
 * Pages of a memfd live as long as somebody maps them. An owner that is killed and started again
 * therefore needs its memory twice until its readers have let go (RULES C3). Who labels its shared
 * memory (shared.h) finds them by that label, before it allocates anew.
 *
 * Threads   Any; nothing is kept.
 * Time      One pass over /proc: for an owner that starts, not for one that serves.
 */
#ifndef YB_MEMORY_SURVIVORS_H
#define YB_MEMORY_SURVIVORS_H

#include <stdint.h>

#define YB_SURVIVORS_NAMED_MAX 8u

struct yb_survivors {
    uint32_t count; /* Processes. */
    uint64_t bytes; /* What the one that maps most of it maps: they mostly map the same. */
    int32_t pids[YB_SURVIVORS_NAMED_MAX]; /* The first of them. */
};

/* Return how much memory with that label a line of /proc/PID/maps maps; 0: none. Pure. */
uint64_t yb_survivors_line(const char *line, const char *label);

/* Look through all processes whose mappings this one may read; the others count as none. */
void yb_survivors_find(const char *label, struct yb_survivors *survivors_out);

#endif /* YB_MEMORY_SURVIVORS_H */
