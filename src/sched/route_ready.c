/* SPDX-License-Identifier: Apache-2.0
 *
 * ready: the earliest first token, with everything counted that it has to wait for: the queue of
 * the place, the links' backlogs, the racks between, and what others are still computing. At each
 * place the prompt is split where loading and computing, layer by layer, end together.
 *
 * For each place there are several sources of what it does not have: the place with the longest
 * run, the one that is worth most with what waits for it, that of its own rack, the object store,
 * and running prefills. Each would have to be split.
 * So a bound is worked out first, which costs a few multiplications: the time that the place would
 * need if the longest run of all came to it over its own links, empty. Where that is not earlier
 * than what has been found, the place is passed by.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sched/flow.h"
#include "sched/route.h"
#include "sched/sets.h"

/* Of more places than that, those with the least bounds are looked at closely. */
#define CLOSELY 32u

struct search {
    const struct yb_sched_view *view;
    double best_ns;      /* The earliest finish so far. */
    double reach_tokens; /* Of the longest run of all. */
    uint32_t far;        /* The source that is worth most. */
    uint32_t considered;
    uint32_t count; /* Of the places below, a heap: the one to give up first is at its root. */
    uint32_t places[CLOSELY];
    double bounds[CLOSELY];
    double finishes[CLOSELY];
};

/* Return what waits for the network at a place, to choose between places with the same run. */
static double
out_backlog_ns(const struct yb_sched_view *view, uint32_t place)
{
    const struct yb_sched_instance *instance = &view->places[place].instance;
    const struct yb_sched_link *link =
        &view->places[instance->node].instance.links[YB_SCHED_LINK_OUT];
    double drained = view->now_ns > link->at_ns ? (double)(view->now_ns - link->at_ns) : 0;

    return link->rate > 0
               ? yb_sched_larger(0, (double)link->backlog_bytes / link->rate * 1e9 - drained)
               : INFINITY;
}

/* Return what a source is worth: the computing that its run saves, less what waits for its
 * network. */
static double
worth_ns(const struct yb_sched_view *view, uint32_t place)
{
    const struct yb_sched_cost *cost = yb_sched_view_cost(view, view->prefills[0]);
    uint32_t tokens = yb_sched_view_tokens(view, yb_sched_view_run(view, place, false));

    return yb_sched_prefill_ns(cost, tokens, 0) - out_backlog_ns(view, place);
}

/* Return the run that every place for prefill has: from others it wants only what is beyond. */
static uint32_t
common_run(const struct yb_sched_view *view)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t run = yb_sched_view_run(view, view->prefills[i], false);

        least = run < least ? run : least;
    }
    return least;
}

static void
find_sources(struct search *search)
{
    const struct yb_sched_view *view = search->view;
    uint32_t common = common_run(view);

    double most = -INFINITY;

    search->far = YB_SCHED_NONE;
    for (uint32_t i = 0; i < view->rack_count; i++) {
        view->rack_best[i] = YB_SCHED_NONE;
    }
    for (uint32_t place = 0; place < view->places_max; place++) {
        uint32_t *in_rack = &view->rack_best[view->loads[place].rack];
        double worth;

        if (yb_sched_view_run(view, place, false) <= common) {
            continue;
        }
        worth = worth_ns(view, place);
        if (worth > most) {
            most = worth;
            search->far = place;
        }
        if (*in_rack == YB_SCHED_NONE || worth > worth_ns(view, *in_rack)) {
            *in_rack = place;
        }
    }
}

/* ---- one place ------------------------------------------------------------------------------- */

static void
try(struct search *search, uint32_t place, uint32_t source, uint32_t blocks,
    struct yb_sched_plan *plan)
{
    const struct yb_sched_view *view = search->view;
    struct yb_sched_plan other = {0};

    if (view->options->no_split) {
        yb_sched_plan_fetch(view, place, source, blocks, &other);
    } else {
        yb_sched_plan_split(view, place, source, blocks, &other);
    }
    if (other.finish_ns < plan->finish_ns) {
        *plan = other;
    }
}

static void
try_place(struct search *search, uint32_t place, struct yb_sched_plan *plan)
{
    const struct yb_sched_view *view = search->view;
    const struct yb_sched_options *options = view->options;
    uint32_t run = yb_sched_view_run(view, place, !options->no_soon);
    const uint32_t shared = options->gather ? view->pool_blocks : view->object_blocks;
    const uint32_t sources[3] = {search->far, view->rack_best[view->loads[place].rack], view->best};

    *plan = (struct yb_sched_plan){.finish_ns = INFINITY};
    try(search, place, YB_SCHED_NONE, 0, plan);
    if (options->fetch_none) {
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        bool again = (i > 0 && sources[i] == sources[0]) || (i > 1 && sources[i] == sources[1]);
        uint32_t blocks;

        if (again || sources[i] == YB_SCHED_NONE || sources[i] == place) {
            continue;
        }
        blocks = yb_sched_view_run(view, sources[i], false);
        /* What is gathered comes from there, too, where it is the nearest. */
        if (blocks > run && !(options->gather && view->pool_blocks >= blocks)) {
            try(search, place, sources[i], blocks, plan);
        }
    }
    if (shared > run) {
        try(search, place, YB_SCHED_SHARED, shared, plan);
    }
    for (uint32_t i = 0; i < view->coming_count && !options->no_soon; i++) {
        const struct yb_sched_view_coming *coming = &view->coming[i];

        if (coming->place != place && coming->end > run) {
            try(search, place, coming->place, coming->end, plan);
        }
    }
}

/* Count by node what it has of the prompt, wherever in it, if that can be gathered. */
static void
count_held(const struct yb_sched_view *view)
{
    memset(view->chosen, 0, view->places_max * sizeof(*view->chosen));
    for (uint32_t i = 0; i < view->stretch_count && view->options->gather; i++) {
        const struct yb_sched_stretch *stretch = &view->stretches[i];
        uint32_t count;
        const uint32_t *holders = yb_sched_index_holders(view->index, stretch->set, &count);

        for (uint32_t j = 0; j < count; j++) {
            const uint32_t holder = holders[j] >> YB_SCHED_SETS_TIER_BITS;

            if (view->loads[holder].alive) {
                view->chosen[holder] += stretch->end - stretch->first;
            }
        }
    }
}

/* Return how many tokens the place's node has beyond its run: they need not pass the network. */
static double
own_tokens(const struct yb_sched_view *view, uint32_t place)
{
    const uint32_t node = view->places[place].instance.node;
    const uint32_t held = view->chosen[node];
    const uint32_t run = view->hits[node].run[YB_SCHED_TIER_SSD];

    return held > run ? (double)(held - run) * view->options->block_tokens : 0;
}

/* Return a time before which no plan for the place can finish. Prefill is a concave function of
 * what is reused, so it is nowhere below its chord; the bound is where that meets the line of
 * loading. */
static double
bound_ns(const struct search *search, uint32_t place)
{
    const struct yb_sched_view *view = search->view;
    const struct yb_sched_cost *cost = yb_sched_view_cost(view, place);
    double start_ns = yb_sched_view_start_ns(view, place);
    uint32_t tokens = view->request->input_tokens;
    double local = yb_sched_view_tokens(view, yb_sched_view_run(view, place, true));
    double reach = yb_sched_larger(local, search->reach_tokens);
    double rate = view->loads[place].fetch_rate;
    double least_ns;
    double slope;
    double token_ns;

    if (view->options->fetch_none || !(rate > 0)) {
        reach = local;
    }
    least_ns = start_ns + yb_sched_prefill_ns(cost, tokens, (uint64_t)reach);
    local += own_tokens(view, place);
    if (reach <= local || view->options->no_ready) {
        return least_ns;
    }
    token_ns = (double)cost->kv_bytes / rate * 1e9;
    if ((reach - local) * token_ns <= least_ns) {
        return least_ns;
    }
    slope = cost->prefill_token_ns + cost->prefill_pair_ns * (reach + local);
    return ((least_ns + slope * reach + token_ns * local) / (slope + token_ns) - local) * token_ns;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Return the requests that a place has. Of places that are as good, the one with fewer is better,
 * as steps are shorter there. */
static uint32_t
requests_of(const struct yb_sched_view *view, uint32_t place)
{
    return view->loads[place].queued + view->loads[place].running;
}

/* Whether this conductor prefers the place to others that are as good. Each has a part of the
 * places that way, so that those who decide from the same reports do not meet there. */
static bool
is_ours(const struct yb_sched_view *view, uint32_t place)
{
    return place % view->conductors == view->rank;
}

/* Whether `place` should be given up before `other`, being as good. Of places that are not ours
 * the fewest requests would attract all conductors: the draw decides. */
static bool
is_less(const struct yb_sched_view *view, uint32_t place, uint32_t other)
{
    bool ours = is_ours(view, place);
    uint32_t requests = ours ? requests_of(view, place) : 0;
    uint32_t others = ours ? requests_of(view, other) : 0;

    if (ours != is_ours(view, other)) {
        return !ours;
    }
    return requests != others ? requests > others
                              : yb_sched_view_draw(view, place) < yb_sched_view_draw(view, other);
}

/* Whether the place at `a` of the heap should be given up before that at `b`. */
static bool
is_worse(const struct search *search, uint32_t a, uint32_t b)
{
    if (search->bounds[a] != search->bounds[b]) {
        return search->bounds[a] > search->bounds[b];
    }
    return is_less(search->view, search->places[a], search->places[b]);
}

static void
swap(struct search *search, uint32_t a, uint32_t b)
{
    uint32_t place = search->places[a];
    double bound = search->bounds[a];

    search->places[a] = search->places[b];
    search->bounds[a] = search->bounds[b];
    search->places[b] = place;
    search->bounds[b] = bound;
}

static void
sink(struct search *search, uint32_t count)
{
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child >= count) {
            return;
        }
        if (child + 1 < count && is_worse(search, child + 1, child)) {
            child++;
        }
        if (!is_worse(search, child, at)) {
            return;
        }
        swap(search, child, at);
        at = child;
    }
}

static void
push(struct search *search, uint32_t place, double bound)
{
    if (search->count < CLOSELY) {
        uint32_t at = search->count++;

        search->places[at] = place;
        search->bounds[at] = bound;
        while (at > 0 && is_worse(search, at, (at - 1) / 2)) {
            swap(search, at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        return;
    }
    if (bound > search->bounds[0] ||
        (bound == search->bounds[0] && is_less(search->view, place, search->places[0]))) {
        return;
    }
    search->places[0] = place;
    search->bounds[0] = bound;
    sink(search, CLOSELY);
}

/* Whether a first token at a place is as good as the best. Nearly as early is as good, but no step
 * later: to a long prompt two in a hundred are more than anyone else would gain. Where others
 * decide, too, no finish is known to a step. */
static bool
is_as_good(const struct yb_sched_view *view, uint32_t place, double ns, double best_ns)
{
    double step_ns = yb_sched_view_cost(view, place)->step_base_ns;
    double near_ns = best_ns * view->options->near_best;

    if (view->conductors > 1) {
        return ns <= best_ns + near_ns + step_ns;
    }
    return ns <= best_ns + yb_sched_smaller(near_ns, step_ns);
}

/* Keep the places with the least bounds, the least first; those that are as good as it count as
 * equal. */
static void
select_places(struct search *search)
{
    const struct yb_sched_view *view = search->view;
    double least = INFINITY;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        view->figures[i] = bound_ns(search, view->prefills[i]);
        least = yb_sched_smaller(least, view->figures[i]);
    }
    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[i];
        double bound = view->figures[i];

        push(search, place, is_as_good(view, place, bound, least) ? least : bound);
    }
    for (uint32_t left = search->count; left > 1; left--) {
        swap(search, 0, left - 1);
        sink(search, left - 1);
    }
}

/* Return the place to take, among those that are as good as the best: of ours the one with the
 * fewest requests; if there is none of ours, that of the two that the draw puts first. */
static uint32_t
take_one(const struct search *search)
{
    const struct yb_sched_view *view = search->view;
    uint32_t best = YB_SCHED_NONE;
    uint32_t second = YB_SCHED_NONE;

    for (uint32_t i = 0; i < search->considered; i++) {
        uint32_t place = search->places[i];

        if (!is_as_good(view, place, search->finishes[i], search->best_ns)) {
            continue;
        }
        if (best == YB_SCHED_NONE || is_less(view, best, place)) {
            second = best;
            best = place;
        } else if (second == YB_SCHED_NONE || is_less(view, second, place)) {
            second = place;
        }
    }
    if (!is_ours(view, best) && second != YB_SCHED_NONE &&
        requests_of(view, second) < requests_of(view, best)) {
        return second;
    }
    return best;
}

static void
choose(const struct yb_sched_view *view, struct yb_sched_plan *plan_out)
{
    struct search search = {
        .view = view,
        .best_ns = INFINITY,
        .reach_tokens = yb_sched_view_tokens(view, view->reach_blocks),
    };
    uint32_t place;

    find_sources(&search);
    count_held(view);
    select_places(&search);
    for (uint32_t i = 0; i < search.count; i++) {
        if (!is_as_good(view, search.places[i], search.bounds[i], search.best_ns)) {
            break;
        }
        try_place(&search, search.places[i], plan_out);
        search.finishes[i] = plan_out->finish_ns;
        search.best_ns = yb_sched_smaller(search.best_ns, plan_out->finish_ns);
        search.considered++;
    }
    place = take_one(&search);
    YB_ASSERT(place != YB_SCHED_NONE);
    try_place(&search, place, plan_out);
    plan_out->considered = search.considered;
}

const struct yb_sched_routing yb_sched_route_ready = {
    .name = "ready",
    .text = "the earliest first token, counting when everything it needs will be there",
    .choose = choose,
};
