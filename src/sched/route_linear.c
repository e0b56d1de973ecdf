/* SPDX-License-Identifier: Apache-2.0
 *
 * linear: the least weight x (share of the prompt that is missing) + (1 - weight) x (requests, of
 * the most that a place has). It is what a fixed weight can do; which one is best depends on the
 * work: LMetric's authors found 0.7 for chats and 0.55 for calls by programs. (`weight`: 0.7.)
 */
#include "sched/route.h"

static double
score(const struct yb_sched_view *view, uint32_t place)
{
    double weight = view->options->weight > 0 ? view->options->weight : 0.7;
    double missing = (double)yb_sched_view_new_tokens(view, place) / view->request->input_tokens;
    double most = view->figures[0];

    return weight * missing + (1 - weight) * yb_sched_view_requests(view, place) / most;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    double most = 1;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        double requests = yb_sched_view_requests(view, view->prefills[i]);

        most = requests > most ? requests : most;
    }
    view->figures[0] = most;
    yb_sched_plan_local(view, yb_sched_view_least(view, score), plan_out);
}

const struct yb_sched_routing yb_sched_route_linear = {
    .name = "linear",
    .text = "a fixed weight between what is missing and how many requests there are",
    .choose = choose,
};
