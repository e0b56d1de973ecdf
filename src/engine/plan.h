/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h -- what an engine computes in its next step.
 *
 * Continuous batching with chunked prefill: a step gives each running request one token and takes a
 * piece of one prompt, the oldest that can be computed, with it. A prompt whose load is under way
 * does not hold up those behind it. Nor those that are decoded: a piece is not begun while steps
 * without it fit into what computing would wait for the load (yb_sched_batch_bubble()).
 *
 *     coupled        a piece of a prompt and one token each, in one step
 *     disaggregated  as coupled; an instance then has only prompts, or only running requests
 *     time-sliced    either prompts or tokens. Prompts, as long as each running request is ahead of
 *                    the pace that was promised by more than the piece takes; tokens otherwise, so
 *                    that no answer stutters because another one begins (EcoServe)
 *
 * Threads   Any; pure.
 */
#ifndef YB_ENGINE_PLAN_H
#define YB_ENGINE_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/sched.h"

#define YB_ENGINE_PLAN_NONE UINT32_MAX

struct yb_engine_plan_prompt {
    uint32_t done_tokens; /* Reused or computed. */
    uint32_t tokens;
    bool waits;     /* For its load: none of it is there. */
    double load_ns; /* How long the rest of its load is expected to take; 0: it is there. */
};

struct yb_engine_plan_state {
    const struct yb_sched_cost *cost;
    uint32_t mode;                               /* enum yb_sched_mode */
    uint32_t chunk_tokens;                       /* At most so many of a prompt in a step. */
    const struct yb_engine_plan_prompt *prompts; /* The oldest first. */
    uint32_t prompt_count;
    uint32_t running;
    uint64_t context_tokens; /* Of the running ones. */
    double slack_ns; /* How far the running request that is least ahead of its pace is ahead of it;
                        time-sliced alone looks at it. */
};

struct yb_engine_plan {
    uint32_t prompt; /* Which is computed; YB_ENGINE_PLAN_NONE: none. */
    uint32_t tokens; /* How much of it. */
    bool decode;     /* Each running request gets a token. */
    double ns;       /* How long the step takes; 0: there is nothing to compute. */
};

struct yb_engine_plan yb_engine_plan_next(const struct yb_engine_plan_state *state);

/* Return when a step begins that a thread gets to at `now_ns`, the device having been at the one
 * before until `free_ns` (0: it has had none since); what it computes has been there since
 * `since_ns`. An engine hands the device its next step while that is at the last one: what the
 * thread is late by, for it was woken late, is not computing's. Who is later than
 * YB_ENGINE_PLAN_LATE_NS has let the device run dry. */
#define YB_ENGINE_PLAN_LATE_NS 1000000u
uint64_t yb_engine_plan_begin_ns(uint64_t free_ns, uint64_t since_ns, uint64_t now_ns);

#endif /* YB_ENGINE_PLAN_H */
