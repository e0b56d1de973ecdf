/* SPDX-License-Identifier: Apache-2.0
 *
 * rollout.h -- one rollout of reinforcement learning: many answers to each of many prompts, on
 * engines whose memory is short; it is over when the last answer is.
 *
 * An answer waits, gets a chunk of tokens at an engine, and waits again, until it has all of its
 * own. KV is kept in the pool between chunks and freed with the answer. How long an answer is going
 * to be nobody knows but ORACLE.
 *
 *   GROUPED   all answers to a prompt at one engine, prompts in turns; first come, first served
 *   DIVIDED   any chunk anywhere, first come, first served
 *   CONTEXT   and what has ended tells of what has not: probes first, then the longest groups
 *   ORACLE    and who will be the longest goes first
 *
 * GROUPED gets its memory in chunks as well, so that it never has to put a request out and compute
 * it again, which engines without a pool do.
 *
 * Invariants
 *   R1  Each answer gets exactly its tokens.
 *   R2  An engine holds no more KV than it has room for.
 *
 * Threads   One.
 * Time      Simulated; the same options and lengths give the same result.
 */
#ifndef YB_SIM_ROLLOUT_H
#define YB_SIM_ROLLOUT_H

#include <stdint.h>

#include "yuebing/sched.h"

enum yb_rollout_policy {
    YB_ROLLOUT_GROUPED,
    YB_ROLLOUT_DIVIDED,
    YB_ROLLOUT_CONTEXT,
    YB_ROLLOUT_ORACLE,
};
#define YB_ROLLOUT_POLICIES   4u
#define YB_ROLLOUT_PLACES_MAX 256u

struct yb_rollout_options {
    const struct yb_sched_cost *cost; /* Borrowed for the call; kv_tokens_max above 0. */
    uint32_t places;                  /* Engines, 1 .. YB_ROLLOUT_PLACES_MAX. */
    uint32_t batch;                   /* Answers in a step of one, at most. */
    uint32_t groups;
    uint32_t group_size;
    uint32_t prompt_tokens;
    uint32_t limit_tokens; /* No answer is longer. */
    uint32_t chunk_tokens;
    double bytes_per_s; /* From the pool to an engine. */
    enum yb_rollout_policy policy;
    const uint32_t *lengths; /* Of answer i of group g: [g * group_size + i], 1 .. limit. */
};

/* How long answers are: prompts have a mean of their own, from a distribution with a long tail, and
 * answers to one prompt lie near it. */
struct yb_rollout_lengths {
    uint32_t groups;
    uint32_t group_size;
    double mean_tokens;
    double limit_tokens;
    double sigma;       /* Of the logarithm of prompts' means ... */
    double group_sigma; /* ... and of what answers to one prompt differ by. */
    uint64_t seed;
};

/* Draw all lengths, and scale them so that their mean is the one that is wanted although none is
 * above the limit. The caller frees them; NULL: no memory. */
uint32_t *yb_rollout_draw(const struct yb_rollout_lengths *wanted);

struct yb_rollout_result {
    double total_s;
    double tail_s; /* For the last tenth of the answers. */
    double tokens_per_s;
    double moved_bytes; /* Pulled from the pool. */
    uint64_t chunks;
};

/* Run a rollout. Fails with INVALID (a bound; or an engine that has no room for one answer) or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_rollout_run(const struct yb_rollout_options *options,
                                         struct yb_rollout_result *result_out);

#endif /* YB_SIM_ROLLOUT_H */
