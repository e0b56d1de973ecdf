/* SPDX-License-Identifier: Apache-2.0
 *
 * vllm: the least 4 x queued + running requests, as vLLM's balancer of data-parallel engines takes
 * it. It knows nothing of prefixes. (`weight`: the 4.)
 */
#include "sched/route.h"

static double
score(const struct yb_sched_view *view, uint32_t place)
{
    double weight = view->options->weight > 0 ? view->options->weight : 4;

    return weight * view->loads[place].queued + view->loads[place].running;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    yb_sched_plan_local(view, yb_sched_view_least(view, score), plan_out);
}

const struct yb_sched_routing yb_sched_route_vllm = {
    .name = "vllm",
    .text = "the least 4 x queued + running requests, prefixes unseen",
    .choose = choose,
};
