/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of policies, and what policies share.
 */
#include "sched/route.h"

#include <math.h>
#include <string.h>

#include "base/check.h"

/* One line registers a policy. The first is the default. */
static const struct yb_sched_routing *const routings[] = {
    &yb_sched_route_ready,      &yb_sched_route_mooncake,    &yb_sched_route_cache_local,
    &yb_sched_route_least_load, &yb_sched_route_round_robin, &yb_sched_route_random,
    &yb_sched_route_seer,       &yb_sched_route_lmetric,     &yb_sched_route_vllm,
    &yb_sched_route_dynamo,     &yb_sched_route_preble,      &yb_sched_route_aibrix,
    &yb_sched_route_linear,     &yb_sched_route_rolling,
};
#define ROUTING_COUNT (sizeof(routings) / sizeof(routings[0]))

static const struct yb_sched_admission *const admissions[] = {
    &yb_sched_admit_none,
    &yb_sched_admit_late,
    &yb_sched_admit_early,
    &yb_sched_admit_early_predicted,
};
#define ADMISSION_COUNT (sizeof(admissions) / sizeof(admissions[0]))

const struct yb_sched_routing *
yb_sched_route_find(const char *name)
{
    for (size_t i = 0; i < ROUTING_COUNT; i++) {
        if (strcmp(routings[i]->name, name) == 0) {
            return routings[i];
        }
    }
    return NULL;
}

const struct yb_sched_admission *
yb_sched_admit_find(const char *name)
{
    for (size_t i = 0; i < ADMISSION_COUNT; i++) {
        if (strcmp(admissions[i]->name, name) == 0) {
            return admissions[i];
        }
    }
    return NULL;
}

const char *
yb_sched_routing_name(uint32_t index)
{
    return index < ROUTING_COUNT ? routings[index]->name : NULL;
}

const char *
yb_sched_routing_text(uint32_t index)
{
    return index < ROUTING_COUNT ? routings[index]->text : NULL;
}

const char *
yb_sched_admission_name(uint32_t index)
{
    return index < ADMISSION_COUNT ? admissions[index]->name : NULL;
}

const char *
yb_sched_admission_text(uint32_t index)
{
    return index < ADMISSION_COUNT ? admissions[index]->text : NULL;
}

/* ---- for policies ---------------------------------------------------------------------------- */

const struct yb_sched_cost *
yb_sched_view_cost(const struct yb_sched_view *view, uint32_t place)
{
    return &view->costs[view->loads[place].cost];
}

double
yb_sched_view_start_ns(const struct yb_sched_view *view, uint32_t place)
{
    uint64_t done_ns = view->loads[place].done_ns;

    return done_ns > view->now_ns ? (double)(done_ns - view->now_ns) : 0;
}

uint32_t
yb_sched_view_run(const struct yb_sched_view *view, uint32_t place, bool soon)
{
    const struct yb_sched_hit *hit = &view->hits[place];

    return soon ? hit->soon : hit->run[YB_SCHED_TIER_SSD];
}

uint32_t
yb_sched_view_tokens(const struct yb_sched_view *view, uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * view->options->block_tokens;
    uint32_t most = view->request->input_tokens - 1;

    return tokens < most ? (uint32_t)tokens : most;
}

uint64_t
yb_sched_view_draw(const struct yb_sched_view *view, uint32_t place)
{
    uint64_t x = view->chance + (place + 1ull) * 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

uint32_t
yb_sched_view_new_tokens(const struct yb_sched_view *view, uint32_t place)
{
    return view->request->input_tokens -
           yb_sched_view_tokens(view, yb_sched_view_run(view, place, true));
}

double
yb_sched_view_requests(const struct yb_sched_view *view, uint32_t place)
{
    return (double)view->loads[place].queued + view->loads[place].running;
}

double
yb_sched_view_spread(const struct yb_sched_view *view)
{
    double least = INFINITY;
    double most = 0;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        double requests = yb_sched_view_requests(view, view->prefills[i]);

        least = requests < least ? requests : least;
        most = requests > most ? requests : most;
    }
    return most - least;
}

uint32_t
yb_sched_view_least(const struct yb_sched_view *view,
                    double (*score)(const struct yb_sched_view *view, uint32_t place))
{
    uint32_t best = view->prefills[0];
    double least = score(view, best);

    for (uint32_t i = 1; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[i];
        double one = score(view, place);

        if (one < least ||
            (one == least && yb_sched_view_draw(view, place) > yb_sched_view_draw(view, best))) {
            best = place;
            least = one;
        }
    }
    return best;
}

uint64_t
yb_sched_view_tpot_slo_ns(const struct yb_sched_view *view)
{
    return view->request->tpot_slo_ns != 0 ? view->request->tpot_slo_ns
                                           : view->options->tpot_slo_ns;
}

uint64_t
yb_sched_view_ttft_slo_ns(const struct yb_sched_view *view)
{
    return view->request->ttft_slo_ns != 0 ? view->request->ttft_slo_ns
                                           : view->options->ttft_slo_ns;
}

bool
yb_sched_view_late(const struct yb_sched_view *view, const struct yb_sched_decision *decision)
{
    uint64_t slo_ns = yb_sched_view_ttft_slo_ns(view);

    return slo_ns != 0 && decision->ttft_ns >= slo_ns;
}

double
yb_sched_view_step_ns(const struct yb_sched_view *view, uint32_t place)
{
    const struct yb_sched_load *load = &view->loads[place];

    return yb_sched_step_ns(yb_sched_view_cost(view, place), load->running + 1,
                            load->context_tokens + view->request->input_tokens);
}

/* Whether the request's prompt and answer find room beside what is there. */
static bool
has_room(const struct yb_sched_view *view, uint32_t place)
{
    uint64_t room = yb_sched_view_cost(view, place)->kv_tokens_max;
    uint64_t wanted = view->loads[place].kv_tokens_used + view->request->input_tokens +
                      view->request->output_tokens;

    return room == 0 || wanted <= room;
}

uint32_t
yb_sched_decode_least(const struct yb_sched_view *view, const struct yb_sched_plan *plan)
{
    uint32_t best = YB_SCHED_NONE;
    double best_ns = INFINITY;

    (void)plan;
    for (uint32_t i = 0; i < view->decode_count; i++) {
        uint32_t place = view->decodes[i];
        double step_ns = yb_sched_view_step_ns(view, place);

        if (!has_room(view, place)) {
            continue;
        }
        if (step_ns < best_ns || (step_ns == best_ns && yb_sched_view_draw(view, place) >
                                                            yb_sched_view_draw(view, best))) {
            best = place;
            best_ns = step_ns;
        }
    }
    return best;
}

uint32_t
yb_sched_decode_fewest(const struct yb_sched_view *view)
{
    uint32_t best = YB_SCHED_NONE;

    for (uint32_t i = 0; i < view->decode_count; i++) {
        uint32_t place = view->decodes[i];
        const struct yb_sched_load *load = &view->loads[place];
        const struct yb_sched_load *least = best == YB_SCHED_NONE ? NULL : &view->loads[best];

        if (!has_room(view, place)) {
            continue;
        }
        if (least == NULL || load->running < least->running ||
            (load->running == least->running && load->context_tokens < least->context_tokens)) {
            best = place;
        }
    }
    return best;
}
