/* SPDX-License-Identifier: Apache-2.0
 *
 * round-robin: each place in turn. Several conductors begin at different ones.
 */
#include "sched/route.h"

struct turns {
    uint64_t count;
};

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    const struct turns *turns = view->state;
    uint64_t first =
        (uint64_t)view->options->conductor * view->prefill_count / YB_SCHED_CONDUCTORS_MAX;

    yb_sched_plan_local(view, view->prefills[(first + turns->count) % view->prefill_count],
                        plan_out);
}

static void
commit(void *state, const struct yb_sched_options *options, const struct yb_sched_request *request,
       const struct yb_sched_decision *decision, uint64_t now_ns)
{
    struct turns *turns = state;

    (void)options;
    (void)request;
    (void)now_ns;
    turns->count += decision->accepted;
}

const struct yb_sched_routing yb_sched_route_round_robin = {
    .name = "round-robin",
    .text = "each place in turn",
    .state_bytes = sizeof(struct turns),
    .choose = choose,
    .commit = commit,
};
