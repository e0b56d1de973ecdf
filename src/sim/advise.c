/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/advise.h"

#include <math.h>

#include "base/check.h"

#define TOKENS_MAX 1e15 /* A threshold beyond it says no more. */

uint64_t
yb_advise_threshold(const struct yb_sched_cost *cost, double bytes_per_s, double latency_ns)
{
    /* Computing less loading, as a polynomial in the tokens: pair p^2 + slope p - lead. */
    double pair = cost->prefill_pair_ns;
    double load_ns = bytes_per_s > 0 ? (double)cost->kv_bytes / bytes_per_s * 1e9 : INFINITY;
    double slope = cost->prefill_token_ns - load_ns;
    double lead = latency_ns - cost->prefill_base_ns;
    double tokens;

    if (!(load_ns < INFINITY) || (pair <= 0 && slope <= 0)) {
        return UINT64_MAX;
    }
    if (pair <= 0) {
        tokens = lead / slope;
    } else if (slope * slope + 4 * pair * lead < 0) {
        tokens = 0; /* Loading is shorter everywhere. */
    } else {
        tokens = (sqrt(slope * slope + 4 * pair * lead) - slope) / (2 * pair);
    }
    tokens = fmax(0, fmin(tokens, TOKENS_MAX));
    return (uint64_t)tokens + 1;
}

/* ---- pools ----------------------------------------------------------------------------------- */

static double
block_bytes(const struct yb_advise_case *one)
{
    return (double)one->cost.kv_bytes * one->trace->block_tokens;
}

/* `blocks`: 0 for a pool without bounds. */
static enum yb_status
find_hits(const struct yb_advise_case *one, uint64_t blocks, struct yb_advise_pool *pool_out)
{
    struct yb_hit_case hit_case = {
        .policy = one->eviction, .blocks = blocks, .tags = yb_hit_tags_usual(one->eviction)};
    struct yb_hit_result result;
    enum yb_status status = yb_hit_run(one->trace, &hit_case, &result);

    if (status == YB_OK) {
        *pool_out =
            (struct yb_advise_pool){blocks, (double)blocks * block_bytes(one), result.prefix_hit};
    }
    return status;
}

enum yb_status
yb_advise_ideal(const struct yb_advise_case *one, struct yb_advise_pool *ideal_out)
{
    enum yb_status status = find_hits(one, 0, ideal_out);

    if (status == YB_OK) {
        ideal_out->blocks = one->trace->block_count;
        ideal_out->bytes = one->trace->block_count * block_bytes(one);
    }
    return status;
}

/* Halve the ratio between a pool that is too small and one that is not. A larger pool of some
 * policies finds a little less now and then; that moves the answer by as little. */
enum yb_status
yb_advise_pool(const struct yb_advise_case *one, const struct yb_advise_pool *ideal, double share,
               struct yb_advise_pool *pool_out)
{
    struct yb_advise_pool enough = *ideal;
    uint64_t small = 0;

    if (!(share > 0 && share <= 1)) {
        return YB_INVALID;
    }
    while (enough.blocks - small > 1 && (double)enough.blocks > YB_ADVISE_EXACT * (double)small) {
        uint64_t middle = small == 0 ? (enough.blocks + 15) / 16
                                     : (uint64_t)sqrt((double)small * (double)enough.blocks);
        struct yb_advise_pool tried;
        enum yb_status status;

        middle = middle > small ? middle : small + 1;
        status = find_hits(one, middle, &tried);
        if (status != YB_OK) {
            return status;
        }
        if (tried.hit >= share * ideal->hit) {
            enough = tried;
        } else {
            small = middle;
        }
    }
    *pool_out = enough;
    return YB_OK;
}

/* ---- what is served -------------------------------------------------------------------------- */

static struct yb_sched_demand
demand_of(const struct yb_advise_case *one, double hit)
{
    struct yb_sched_demand demand = {.ttft_slo_ns = one->ttft_slo_ns,
                                     .tpot_slo_ns = one->tpot_slo_ns};
    uint32_t count = one->trace->request_count;

    for (uint32_t i = 0; i < count; i++) {
        demand.input_tokens += (double)one->trace->requests[i].input_tokens / count;
        demand.output_tokens += (double)one->trace->requests[i].output_tokens / count;
    }
    demand.input_tokens = fmax(1, demand.input_tokens);
    demand.output_tokens = fmax(1, demand.output_tokens);
    demand.reused_tokens = hit * demand.input_tokens;
    return demand;
}

uint64_t
yb_advise_more_blocks(const struct yb_advise_case *one)
{
    return (uint64_t)(YB_ADVISE_MORE_BYTES / block_bytes(one));
}

enum yb_status
yb_advise_serving(const struct yb_advise_case *one, uint64_t pool_blocks,
                  struct yb_advise_serving *serving_out)
{
    struct yb_advise_serving serving = {0};
    enum yb_status status = YB_OK;

    YB_ASSERT(one->instances >= 1);
    if (pool_blocks > 0) { /* To find_hits() 0 would be one without bounds. */
        status = find_hits(one, pool_blocks, &serving.pool);
    }
    if (status != YB_OK) {
        return status;
    }
    serving.demand = demand_of(one, serving.pool.hit);
    for (uint32_t i = 0; i < YB_ADVISE_MODES; i++) {
        serving.modes[i] = yb_sched_mode_serves(&one->cost, &serving.demand, (enum yb_sched_mode)i,
                                                one->instances, one->net_bytes_per_s);
    }
    serving.mode =
        yb_sched_mode_choose(&one->cost, &serving.demand, one->instances, one->net_bytes_per_s);
    serving.crossover_bytes_per_s =
        yb_sched_mode_crossover(&one->cost, &serving.demand, one->instances);
    *serving_out = serving;
    return YB_OK;
}

static double
prefill_ns(const struct yb_advise_case *one, const struct yb_sched_demand *demand)
{
    return yb_sched_prefill_ns(&one->cost, (uint64_t)demand->input_tokens,
                               (uint64_t)demand->reused_tokens);
}

struct yb_advise_more
yb_advise_compare(const struct yb_advise_case *one, const struct yb_advise_serving *with,
                  const struct yb_advise_serving *without)
{
    const struct yb_trace *trace = one->trace;
    double span_ns = (double)(trace->requests[trace->request_count - 1].arrival_ns -
                              trace->requests[0].arrival_ns);
    double saved_ns = prefill_ns(one, &without->demand) - prefill_ns(one, &with->demand);

    return (struct yb_advise_more){
        .hit = with->pool.hit - without->pool.hit,
        .requests_per_s =
            with->modes[with->mode].requests_per_s - without->modes[without->mode].requests_per_s,
        .instances = span_ns > 0 ? saved_ns * trace->request_count / span_ns : 0,
    };
}
