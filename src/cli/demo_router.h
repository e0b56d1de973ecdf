/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_router.h -- a rollout on live engines: many answers to each of many prompts, over when the
 * last one is.
 *
 *     an answer waits --> gets a chunk of tokens at an engine --> waits again ... until it is whole
 *
 * What an engine is sent is the prompt and all that was generated so far: what of that is in its
 * own memory it reuses, and what it should pull it loads from the store, where each engine puts
 * what it computes.
 *
 *     ATOMIC   all answers to a prompt at one engine, prompts in turns; first come, first served
 *     SEER     any chunk anywhere: yb_sched_rollout_next() says whose is next,
 *              yb_sched_rollout_where() where, and whether its KV is pulled there
 *
 * Both send chunks, so that neither needs room for an answer that may become long.
 *
 * Threads   run: the calling one and as many as chunks may be under way; it joins them.
 * Memory    Options are borrowed.
 */
#ifndef YB_CLI_DEMO_ROUTER_H
#define YB_CLI_DEMO_ROUTER_H

#include "cli/demo_cluster.h"
#include "yuebing/sched.h"

struct yb_demo_rollout {
    const struct yb_demo_cluster *cluster;
    uint32_t engines;
    uint32_t batch; /* Chunks at an engine at a time, at most. */
    uint32_t block_tokens;
    uint32_t pool_tokens; /* That an engine has room for. */
    uint32_t groups;
    uint32_t group_size;
    uint32_t prompt_tokens; /* All but the last are the same in a group. */
    uint32_t limit_tokens;  /* No answer is longer. */
    uint32_t chunk_tokens;
    bool atomic;
    const uint32_t *lengths; /* Of answer i of group g: [g * group_size + i]. */
};

struct yb_demo_rolled {
    uint64_t took_ns;
    uint64_t tail_ns; /* For the last tenth of the answers. */
    uint32_t whole;   /* Answers that got all of their tokens. */
    uint64_t tokens;
    uint64_t chunks;
    uint64_t migrated; /* Chunks at another engine than the one before. */
    uint64_t failed;   /* Chunks that an engine did not give; they were asked for again. */
    uint64_t device_tokens;
    uint64_t loaded_tokens; /* From the store ... */
    uint64_t load_us;       /* ... and how long that took. */
    uint64_t engine_tokens[YB_DEMO_ENGINES];
};

/* Run one. False: there is no memory for it, or no thread. */
bool yb_demo_rollout_run(const struct yb_demo_rollout *rollout, struct yb_demo_rolled *rolled_out);

#endif /* YB_CLI_DEMO_ROUTER_H */
