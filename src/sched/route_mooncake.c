/* SPDX-License-Identifier: Apache-2.0
 *
 * mooncake: Algorithm 1 of Mooncake (FAST 2025). For each place, either what it has itself, or,
 * where the best place has `fetch_threshold` times as much, a transfer of the difference; queue,
 * transfer and prefill added up; the least wins. What is fetched stays, so hot blocks get copies.
 *
 * As the paper does, a decision counts at once as what the place has, and a hit as ready.
 */
#include <math.h>

#include "sched/route.h"

/* Return the place with the longest prefix; YB_SCHED_NONE: nobody has anything. */
static uint32_t
find_best(const struct yb_sched_view *view, uint32_t *blocks_out)
{
    uint32_t best = YB_SCHED_NONE;

    *blocks_out = 0;
    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t run = yb_sched_view_run(view, view->prefills[i], true);

        if (run > *blocks_out) {
            best = view->prefills[i];
            *blocks_out = run;
        }
    }
    return best;
}

struct estimate {
    double finish_ns;
    double transfer_ns;
    bool fetches;
};

static struct estimate
estimate(const struct yb_sched_view *view, uint32_t place, uint32_t best, uint32_t best_blocks)
{
    uint32_t run = yb_sched_view_run(view, place, true);
    uint32_t blocks = run;
    struct estimate estimate = {0};

    /* Without a prefix the ratio is infinite. */
    if (best_blocks > run && (double)best_blocks > view->options->fetch_threshold * run &&
        !view->options->fetch_none) {
        blocks = best_blocks;
        estimate.fetches = true;
        estimate.transfer_ns = yb_sched_view_transfer_ns(view, best, place,
                                                         yb_sched_view_tokens(view, best_blocks) -
                                                             yb_sched_view_tokens(view, run));
    }
    estimate.finish_ns =
        estimate.transfer_ns + yb_sched_view_start_ns(view, place) +
        yb_sched_prefill_ns(yb_sched_view_cost(view, place), view->request->input_tokens,
                            yb_sched_view_tokens(view, blocks));
    return estimate;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    uint32_t best_blocks;
    uint32_t source = find_best(view, &best_blocks);
    uint32_t place = view->prefills[0];
    struct estimate least = {.finish_ns = INFINITY};

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        struct estimate one = estimate(view, view->prefills[i], source, best_blocks);

        /* Of equals not always the first. */
        if (one.finish_ns < least.finish_ns ||
            (one.finish_ns == least.finish_ns &&
             yb_sched_view_draw(view, view->prefills[i]) > yb_sched_view_draw(view, place))) {
            place = view->prefills[i];
            least = one;
        }
    }
    if (least.fetches) {
        yb_sched_plan_fetch(view, place, source, best_blocks, plan_out);
    } else {
        yb_sched_plan_local(view, place, plan_out);
    }
    plan_out->finish_ns = least.finish_ns;
    plan_out->load_ns = least.transfer_ns;
    plan_out->considered = view->prefill_count;
}

const struct yb_sched_routing yb_sched_route_mooncake = {
    .name = "mooncake",
    .text = "Mooncake's Algorithm 1: fetch from the best place where that has much more",
    .choose = choose,
};
