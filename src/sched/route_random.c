/* SPDX-License-Identifier: Apache-2.0
 *
 * random: any place. What it has of the prompt is reused, and nothing is fetched.
 */
#include "sched/route.h"

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    yb_sched_plan_local(view, view->prefills[view->chance % view->prefill_count], plan_out);
}

const struct yb_sched_routing yb_sched_route_random = {
    .name = "random",
    .text = "any place",
    .choose = choose,
};
