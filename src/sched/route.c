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
};
#define ROUTING_COUNT (sizeof(routings) / sizeof(routings[0]))

static const struct yb_sched_admission *const admissions[] = {
    &yb_sched_admit_none,
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

double
yb_sched_view_step_ns(const struct yb_sched_view *view, uint32_t place)
{
    const struct yb_sched_load *load = &view->loads[place];

    return yb_sched_step_ns(yb_sched_view_cost(view, place), load->running + 1,
                            load->context_tokens + view->request->input_tokens);
}

uint32_t
yb_sched_decode_least(const struct yb_sched_view *view, const struct yb_sched_plan *plan)
{
    uint32_t best = YB_SCHED_NONE;
    double best_ns = INFINITY;

    (void)plan;
    for (uint32_t i = 0; i < view->decode_count; i++) {
        uint32_t place = view->decodes[i];
        const struct yb_sched_load *load = &view->loads[place];
        uint64_t room = yb_sched_view_cost(view, place)->kv_tokens_max;
        uint64_t wanted = (uint64_t)load->kv_tokens_used + view->request->input_tokens +
                          view->request->output_tokens;
        double step_ns = yb_sched_view_step_ns(view, place);

        if (room != 0 && wanted > room) {
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
