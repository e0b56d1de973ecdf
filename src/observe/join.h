/* SPDX-License-Identifier: Apache-2.0
 *
 * join.h -- spans of several processes on one clock.
 *
 * Each process writes down its own wall clock, and clocks of hosts differ. What is known of two
 * clocks is in the spans themselves: a call was sent before it was served, and answered after it.
 *
 *     caller    start |-----------------------------| end
 *                      \                           /
 *     server            start |---------------| end          by another clock
 *
 * So the server's clock is ahead of the caller's by at most (server's start - caller's start) and
 * at least (server's end - caller's end). All calls between two processes narrow that; the middle
 * of what remains is the estimate, as of NTP, but for clocks that may well be the same, which are
 * left alone. What is caused without being waited for gives the upper bound only. From the first
 * process on the clocks are tied together along the pairs that are known best.
 *
 * Clocks also drift, and then no offset fits all calls: the shortest one counts, and a span that
 * would still begin before what caused it is moved to where that begins.
 *
 * Invariants
 *   J1  No length changes: a span takes, and waits, as long as its process says.
 *   J2  No span begins before what caused it.
 *   J3  Where one offset fits all that was seen of two clocks that are tied to each other, every
 *       call is served within its caller's span.
 *
 * Threads   Any; pure.
 * Memory    The caller's arrays.
 */
#ifndef YB_OBSERVE_JOIN_H
#define YB_OBSERVE_JOIN_H

#include <stdint.h>

#include "base/span.h"

#define YB_JOIN_PROCESSES_MAX 64u
#define YB_JOIN_NONE          UINT32_MAX

struct yb_joined {
    struct yb_span span;
    uint32_t process; /* Whose it is. */
    /* ---- results ---- */
    uint32_t parent;  /* Its place in the array; YB_JOIN_NONE: it is not here. */
    uint32_t depth;   /* 0: it has none. */
    int64_t start_ns; /* On the first process's wall clock. */
};

/* What was found out about a clock. */
struct yb_join_clock {
    int64_t ahead_ns;   /* Of the first process's. */
    uint64_t unsure_ns; /* Either way; UINT64_MAX: nothing is known, and 0 is taken. */
};

/* Join `count` spans, none of which is there twice, of `processes` processes (at most
 * YB_JOIN_PROCESSES_MAX); clocks_out has as many. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_join(struct yb_joined *spans, uint32_t count, uint32_t processes,
                                  struct yb_join_clock *clocks_out);

/* When it ended, and when it stopped waiting: its start, if it did not wait. */
static inline int64_t
yb_joined_end(const struct yb_joined *joined)
{
    return joined->start_ns + (int64_t)(joined->span.end_ns - joined->span.start_ns);
}

static inline int64_t
yb_joined_began(const struct yb_joined *joined)
{
    const struct yb_span *span = &joined->span;

    return span->began_ns < span->start_ns
               ? joined->start_ns
               : joined->start_ns + (int64_t)(span->began_ns - span->start_ns);
}

#endif /* YB_OBSERVE_JOIN_H */
