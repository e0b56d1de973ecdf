/* SPDX-License-Identifier: Apache-2.0
 *
 * rolling: for places that take turns (EcoServe, OSDI 2026). Requests go to one place after the
 * other: each gets as many as its prefill window holds, so that at any time one or a few prefill
 * and the others decode undisturbed. Whether one more fits is yb_sched_slice_check(). Where none
 * has room it is the place that will have prefilled first. Of a place that does not say how far its
 * answers are ahead of their pace (0) that is not asked: it looks after them itself.
 */
#include <math.h>

#include "sched/route.h"

#define WINDOW_NS 1e9 /* If there is no objective for the first token. */

struct state {
    uint32_t last;   /* The place that got the last request. */
    double total_ns; /* The prefills that it has got in a row. */
};

static bool
fits(const struct yb_sched_view *view, uint32_t place)
{
    const struct state *state = view->state;
    const struct yb_sched_report *report = &view->places[place].report;
    const struct yb_sched_load *load = &view->loads[place];
    const struct yb_sched_cost *cost = yb_sched_view_cost(view, place);
    uint64_t slo_ns = yb_sched_view_ttft_slo_ns(view);
    uint32_t input = view->request->input_tokens;
    uint64_t room =
        cost->kv_tokens_max > load->kv_tokens_used ? cost->kv_tokens_max - load->kv_tokens_used : 0;
    double waiting_ns = yb_sched_view_start_ns(view, place);
    struct yb_sched_slice slice = {
        .window_ns = place == state->last ? fmax(0, state->total_ns - waiting_ns) : 0,
        .waiting_ns = waiting_ns,
        .saved_ns = report->saved_ns,
        .decoding = report->saved_ns > 0 || report->saved_ns < 0 ? report->running : 0,
        .room_tokens = cost->kv_tokens_max == 0 ? UINT64_MAX : room,
    };
    uint32_t computed = yb_sched_view_new_tokens(view, place);

    return yb_sched_slice_check(&slice, yb_sched_prefill_ns(cost, input, input - computed),
                                (uint64_t)input + view->request->output_tokens,
                                slo_ns > 0 ? (double)slo_ns : WINDOW_NS) == YB_SCHED_REASON_NONE;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    const struct state *state = view->state;
    uint32_t first = 0;

    while (first < view->prefill_count && view->prefills[first] < state->last) {
        first++;
    }
    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[(first + i) % view->prefill_count];

        if (fits(view, place)) {
            yb_sched_plan_local(view, place, plan_out);
            return;
        }
    }
    yb_sched_plan_local(view, yb_sched_view_least(view, yb_sched_view_start_ns), plan_out);
}

static void
commit(void *state_in, const struct yb_sched_options *options,
       const struct yb_sched_request *request, const struct yb_sched_decision *decision,
       uint64_t now_ns)
{
    struct state *state = state_in;

    (void)options;
    (void)request;
    (void)now_ns;
    if (decision->accepted) {
        state->total_ns =
            (decision->prefill == state->last ? state->total_ns : 0) + (double)decision->prefill_ns;
        state->last = decision->prefill;
    }
}

const struct yb_sched_routing yb_sched_route_rolling = {
    .name = "rolling",
    .text = "time-sliced: as many in a row to one place as its prefill window holds, then the next",
    .state_bytes = sizeof(struct state),
    .choose = choose,
    .commit = commit,
};
