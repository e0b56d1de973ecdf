/* SPDX-License-Identifier: Apache-2.0
 *
 * least-load: the place whose queue is worked off first; of equals the one with fewest requests.
 */
#include <math.h>

#include "sched/route.h"

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t best = YB_SCHED_NONE;
    double best_ns = INFINITY;
    uint32_t best_requests = 0;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[i];
        double start_ns = yb_sched_view_start_ns(view, place);
        uint32_t requests = view->loads[place].queued + view->loads[place].running;

        if (start_ns > best_ns || (start_ns == best_ns && requests > best_requests)) {
            continue;
        }
        if (start_ns < best_ns || requests < best_requests ||
            yb_sched_view_draw(view, place) > yb_sched_view_draw(view, best)) {
            best = place;
            best_ns = start_ns;
            best_requests = requests;
        }
    }
    yb_sched_plan_local(view, best, plan_out);
}

const struct yb_sched_routing yb_sched_route_least_load = {
    .name = "least-load",
    .text = "the place whose queue is worked off first",
    .choose = choose,
};
