/* SPDX-License-Identifier: Apache-2.0
 *
 * early: a request is let in while neither pool is full (Mooncake, arXiv 2407.00079 v3, section 7).
 * The load of prefill is the time to the first token that is expected, over what is allowed; that
 * of decode is the mean of what a step takes at its places now, over what is allowed. The decode
 * load is that of now, not of when the prompt will have been prefilled, so the two pools get
 * requests in turns under overload: `early-predicted` is for that.
 */
#include "sched/route.h"

static enum yb_sched_reason
judge(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
      const struct yb_sched_decision *decision)
{
    uint64_t slo_ns = yb_sched_view_tpot_slo_ns(view);
    double step_ns = 0;

    (void)plan;
    if (yb_sched_view_late(view, decision)) {
        return YB_SCHED_REASON_TTFT;
    }
    if (slo_ns == 0) {
        return YB_SCHED_REASON_NONE;
    }
    for (uint32_t i = 0; i < view->decode_count; i++) {
        const struct yb_sched_report *report = &view->places[view->decodes[i]].report;

        step_ns += yb_sched_step_ns(yb_sched_view_cost(view, view->decodes[i]), report->running,
                                    report->context_tokens);
    }
    return step_ns >= (double)slo_ns * view->decode_count ? YB_SCHED_REASON_LOAD
                                                          : YB_SCHED_REASON_NONE;
}

const struct yb_sched_admission yb_sched_admit_early = {
    .name = "early",
    .text = "let in while the pools of prefill and decode are not full now",
    .judge = judge,
};
