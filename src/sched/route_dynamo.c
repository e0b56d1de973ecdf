/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamo: the least weight x tokens to prefill + tokens being decoded, both with this request, as
 * the KV router of NVIDIA Dynamo adds them up. (`weight`: 1.)
 */
#include "sched/route.h"

static double
score(const struct yb_sched_view *view, uint32_t place)
{
    double weight = view->options->weight > 0 ? view->options->weight : 1;
    double fresh =
        (double)view->loads[place].prefill_tokens + (double)yb_sched_view_new_tokens(view, place);

    return weight * fresh + (double)view->loads[place].context_tokens +
           (double)view->request->input_tokens;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    yb_sched_plan_local(view, yb_sched_view_least(view, score), plan_out);
}

const struct yb_sched_routing yb_sched_route_dynamo = {
    .name = "dynamo",
    .text = "the least tokens to prefill + tokens being decoded",
    .choose = choose,
};
