/* SPDX-License-Identifier: Apache-2.0
 *
 * seer: while requests in flight are spread no further than `spread_max` (32), the place with the
 * longest prefix; or else the one with the fewest. If the best place has more than 512 tokens more
 * than the chosen one, these are pulled from there instead of being computed again.
 */
#include "sched/route.h"

#define SPREAD      32u
#define PULL_TOKENS 512u

static double
requests(const struct yb_sched_view *view, uint32_t place)
{
    return yb_sched_view_requests(view, place);
}

static double
prefix(const struct yb_sched_view *view, uint32_t place)
{
    return (double)yb_sched_view_new_tokens(view, place);
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t most = view->options->spread_max != 0 ? view->options->spread_max : SPREAD;
    bool level = yb_sched_view_spread(view) <= most;
    uint32_t place = yb_sched_view_least(view, level ? prefix : requests);
    uint32_t run = yb_sched_view_run(view, place, true);
    uint32_t source = view->best;
    uint32_t blocks = view->best_blocks;

    if (view->object_blocks > blocks) {
        source = YB_SCHED_SHARED;
        blocks = view->object_blocks;
    }
    if (source != YB_SCHED_NONE && source != place && blocks > run && !view->options->fetch_none &&
        yb_sched_view_tokens(view, blocks) - yb_sched_view_tokens(view, run) > PULL_TOKENS) {
        yb_sched_plan_fetch(view, place, source, blocks, plan_out);
        return;
    }
    yb_sched_plan_local(view, place, plan_out);
}

const struct yb_sched_routing yb_sched_route_seer = {
    .name = "seer",
    .text = "the longest prefix, unless requests are spread too far; what is missing is pulled",
    .choose = choose,
};
