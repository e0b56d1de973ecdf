/* SPDX-License-Identifier: Apache-2.0
 *
 * flow.h -- when bytes are there, and how much of what could be loaded should be.
 *
 * A prompt's blocks come over several links at once: some from the place's ssd, some from another
 * place, all of them at last onto the device. Each is a flow over a stretch of the prompt's tokens;
 * a token is there when all flows that it is part of have brought it.
 *
 * Threads, Memory, Time   Pure functions; times are spans from now, in nanoseconds.
 */
#ifndef YB_SCHED_FLOW_H
#define YB_SCHED_FLOW_H

#include <stdint.h>

#include "yuebing/sched.h"

#define YB_SCHED_FLOWS_MAX 7u

/* Tokens first .. end - 1 arrive one after the other, from base_ns on. */
struct yb_sched_flow {
    uint32_t first;
    uint32_t end;
    double base_ns;
    double token_ns;
};

/* What is to be split. */
struct yb_sched_prompt {
    const struct yb_sched_cost *cost;
    uint32_t tokens;
    uint32_t local_tokens; /* Those that need no loading. */
    uint32_t reach_tokens; /* Those that could be reused. At most `tokens`. */
    uint32_t step_tokens;  /* Multiples of it are reused, or local_tokens, or reach_tokens. */
    double start_ns;       /* When computing can begin. */
    uint32_t flow_count;
    struct yb_sched_flow flows[YB_SCHED_FLOWS_MAX];
};

/* Return when the first `reused` tokens are there; 0 if nothing has to come. */
double yb_sched_flow_load_ns(const struct yb_sched_prompt *prompt, uint32_t reused);

/* Return when the first token of the answer is there, if `reused` tokens are not computed; see
 * yb_sched_split(). */
double yb_sched_flow_finish_ns(const struct yb_sched_prompt *prompt, uint32_t reused);

/* Return the number of tokens to reuse. With one flow it is the best one; with several, one that is
 * not visibly worse. */
uint32_t yb_sched_flow_split(const struct yb_sched_prompt *prompt);

/* The larger, the smaller of two numbers. (Those of the C library are calls.) */
static inline double
yb_sched_larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double
yb_sched_smaller(double a, double b)
{
    return a < b ? a : b;
}

/* Return how long what waits on a link will take. */
double yb_sched_flow_backlog_ns(const struct yb_sched_link *link, uint64_t now_ns);

#endif /* YB_SCHED_FLOW_H */
