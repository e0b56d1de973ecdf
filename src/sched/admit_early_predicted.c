/* SPDX-License-Identifier: Apache-2.0
 *
 * early-predicted: as `early`, but with the decode load that is expected when the request's own
 * prefill will have ended (Mooncake, arXiv 2407.00079 v3, section 7): those are in it that will
 * have been prefilled by then, and of those that are decoded now as many as usually last so long.
 */
#include "sched/decoding.h"
#include "sched/route.h"

static enum yb_sched_reason
judge(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
      const struct yb_sched_decision *decision)
{
    uint64_t slo_ns = yb_sched_view_tpot_slo_ns(view);
    struct yb_sched_decoding_load load;
    double step_ns = 0;
    double requests;
    double tokens;

    if (yb_sched_view_late(view, decision)) {
        return YB_SCHED_REASON_TTFT;
    }
    if (slo_ns == 0 || view->decode_count == 0) {
        return YB_SCHED_REASON_NONE;
    }
    load = yb_sched_decoding_at(view->decoding, view->now_ns,
                                view->now_ns + (uint64_t)plan->finish_ns);
    requests = view->others_factor * load.requests / view->decode_count;
    tokens = view->others_factor * load.context_tokens / view->decode_count;
    for (uint32_t i = 0; i < view->decode_count; i++) {
        const struct yb_sched_cost *cost = yb_sched_view_cost(view, view->decodes[i]);

        step_ns +=
            cost->step_base_ns + cost->step_sequence_ns * requests + cost->step_token_ns * tokens;
    }
    return step_ns >= (double)slo_ns * view->decode_count ? YB_SCHED_REASON_LOAD
                                                          : YB_SCHED_REASON_NONE;
}

const struct yb_sched_admission yb_sched_admit_early_predicted = {
    .name = "early-predicted",
    .text = "let in while the pools will not be full when the prompt has been prefilled",
    .judge = judge,
};
