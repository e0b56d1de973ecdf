/* SPDX-License-Identifier: Apache-2.0
 *
 * cache-local: the earliest first token with what each place has itself (Mooncake, FAST 2025, Fig.
 * 5 "local cache aware"). Nothing is fetched.
 */
#include <math.h>

#include "sched/route.h"

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t best = YB_SCHED_NONE;
    double best_ns = INFINITY;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[i];
        uint32_t tokens = yb_sched_view_tokens(view, yb_sched_view_run(view, place, true));
        double ns = yb_sched_view_start_ns(view, place) +
                    yb_sched_prefill_ns(yb_sched_view_cost(view, place),
                                        view->request->input_tokens, tokens);

        if (ns < best_ns ||
            (ns == best_ns && yb_sched_view_draw(view, place) > yb_sched_view_draw(view, best))) {
            best = place;
            best_ns = ns;
        }
    }
    yb_sched_plan_local(view, best, plan_out);
}

const struct yb_sched_routing yb_sched_route_cache_local = {
    .name = "cache-local",
    .text = "the earliest first token with what each place has itself",
    .choose = choose,
};
