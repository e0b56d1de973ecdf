/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plan.h"

static uint32_t
piece_of(const struct yb_engine_plan_state *state, const struct yb_engine_plan_prompt *prompt)
{
    uint32_t left = prompt->tokens - prompt->done_tokens;

    return left < state->chunk_tokens ? left : state->chunk_tokens;
}

static double
piece_ns(const struct yb_engine_plan_state *state, const struct yb_engine_plan_prompt *prompt)
{
    return yb_sched_prefill_ns(state->cost, prompt->done_tokens + piece_of(state, prompt),
                               prompt->done_tokens);
}

/* Whether those that are decoded get a step in the time for which its piece would wait. */
static bool
leaves_bubble(const struct yb_engine_plan_state *state, const struct yb_engine_plan_prompt *prompt)
{
    return prompt->load_ns > 0 &&
           yb_sched_batch_bubble(state->cost, prompt->load_ns, piece_ns(state, prompt),
                                 state->running, state->context_tokens) > 0;
}

static uint32_t
oldest_ready(const struct yb_engine_plan_state *state)
{
    for (uint32_t i = 0; i < state->prompt_count; i++) {
        if (!state->prompts[i].waits && !leaves_bubble(state, &state->prompts[i])) {
            return i;
        }
    }
    return YB_ENGINE_PLAN_NONE;
}

struct yb_engine_plan
yb_engine_plan_next(const struct yb_engine_plan_state *state)
{
    struct yb_engine_plan plan = {.prompt = oldest_ready(state), .decode = state->running > 0};
    double prefill_ns = 0;
    double step_ns = 0;

    if (plan.prompt != YB_ENGINE_PLAN_NONE) {
        plan.tokens = piece_of(state, &state->prompts[plan.prompt]);
        prefill_ns = piece_ns(state, &state->prompts[plan.prompt]);
    }
    if (plan.decode) {
        step_ns = yb_sched_step_ns(state->cost, state->running, state->context_tokens);
    }
    if (state->mode == YB_SCHED_MODE_TIME_SLICED && plan.decode &&
        plan.prompt != YB_ENGINE_PLAN_NONE) {
        if (state->slack_ns > prefill_ns) {
            plan.decode = false;
            step_ns = 0;
        } else {
            plan.prompt = YB_ENGINE_PLAN_NONE;
            plan.tokens = 0;
            prefill_ns = 0;
        }
    }
    plan.ns = prefill_ns + step_ns;
    return plan;
}

uint64_t
yb_engine_plan_begin_ns(uint64_t free_ns, uint64_t since_ns, uint64_t now_ns)
{
    bool at_once = free_ns >= since_ns && now_ns >= free_ns;

    return at_once && now_ns - free_ns <= YB_ENGINE_PLAN_LATE_NS ? free_ns : now_ns;
}
