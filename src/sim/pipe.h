/* SPDX-License-Identifier: Apache-2.0
 *
 * pipe.h -- one contended way for bytes: a network port, a rack's uplink, a bus, a disk.
 *
 * A pipe serves three classes. Inside a class, who comes first is served first, at the whole rate
 * of the class. Between classes the earlier one is preferred, but one that has work always gets its
 * guaranteed share: what the transfer engine promises (base/fair.h), as a fluid. What comes in
 * later in a preferred class therefore delays what is under way in others.
 *
 * Bytes that pass several pipes are through when they are through each of them: pipes work side by
 * side on one transfer, as slices do, and not one after the other.
 *
 * Invariants
 *   P1  served[c] <= entered[c], and both only grow.
 *   P2  A pipe with work is never idle.
 *   P3  Without more entries, what was entered with `mark` is served at yb_pipe_finish_ns(mark),
 *       to a nanosecond.
 *
 * Threads   One owner.
 * Memory    A plain struct without pointers.
 * Time      Passed in, never back.
 */
#ifndef YB_SIM_PIPE_H
#define YB_SIM_PIPE_H

#include <stdbool.h>
#include <stdint.h>

/* In the order of preference; the same as the transfer engine's. */
enum yb_pipe_class {
    YB_PIPE_FIRST_TOKEN,
    YB_PIPE_THROUGHPUT,
    YB_PIPE_BACKGROUND,
};
#define YB_PIPE_CLASSES 3u

struct yb_pipe {
    double bytes_per_ns;
    uint64_t now_ns;
    double entered[YB_PIPE_CLASSES]; /* Bytes. */
    double served[YB_PIPE_CLASSES];
    double busy_ns;
};

/* `bytes_per_s` is above 0. */
void yb_pipe_init(struct yb_pipe *pipe, double bytes_per_s);

/* Add `bytes` to a class. Returns the mark with which to ask for their end. */
double yb_pipe_enter(struct yb_pipe *pipe, enum yb_pipe_class class, double bytes, uint64_t now_ns);

/* Return when the bytes of a mark will be through if nothing else comes; now or earlier: they
 * are. */
uint64_t yb_pipe_finish_ns(struct yb_pipe *pipe, enum yb_pipe_class class, double mark,
                           uint64_t now_ns);

/* Return the bytes that one more entry of this class would wait for: of its class and of preferred
 * ones. */
double yb_pipe_backlog(struct yb_pipe *pipe, enum yb_pipe_class class, uint64_t now_ns);

/* Let time pass; the counters are then those of `now_ns`. */
void yb_pipe_advance(struct yb_pipe *pipe, uint64_t now_ns);

#endif /* YB_SIM_PIPE_H */
