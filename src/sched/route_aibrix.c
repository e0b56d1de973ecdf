/* SPDX-License-Identifier: Apache-2.0
 *
 * aibrix: while requests are spread no further than `spread_max` (8), the longest prefix and of
 * these the fewest requests; or else the fewest requests. That is the filter of AIBrix.
 */
#include "sched/route.h"

#define SPREAD 8u

static double
requests(const struct yb_sched_view *view, uint32_t place)
{
    return yb_sched_view_requests(view, place);
}

/* The longest prefix is the fewest new tokens; requests are fewer than 2^32, and decide below. */
static double
prefix_then_requests(const struct yb_sched_view *view, uint32_t place)
{
    return (double)yb_sched_view_new_tokens(view, place) +
           yb_sched_view_requests(view, place) * 0x1p-24;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t most = view->options->spread_max != 0 ? view->options->spread_max : SPREAD;
    bool level = yb_sched_view_spread(view) <= most;

    yb_sched_plan_local(view, yb_sched_view_least(view, level ? prefix_then_requests : requests),
                        plan_out);
}

const struct yb_sched_routing yb_sched_route_aibrix = {
    .name = "aibrix",
    .text = "the longest prefix, unless requests are spread too far: then the fewest requests",
    .choose = choose,
};
