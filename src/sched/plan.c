/* SPDX-License-Identifier: Apache-2.0
 *
 * What a place would have to load for a prompt, when that would be there, and how much of it to
 * use.
 */
#include <math.h>

#include "base/check.h"
#include "sched/flow.h"
#include "sched/route.h"
#include "sched/sched_internal.h"
#include "sched/sets.h"

uint32_t
yb_sched_links_between(const struct yb_sched_place *places,
                       const struct yb_sched_link (*racks)[YB_SCHED_UPLINKS], uint32_t from,
                       uint32_t to, const struct yb_sched_link *links_out[4])
{
    const struct yb_sched_instance *target = &places[places[to].instance.node].instance;
    const struct yb_sched_instance *source;
    uint32_t count = 0;

    if (from == YB_SCHED_SHARED) {
        links_out[count++] = &target->links[YB_SCHED_LINK_OBJECT];
        return count;
    }
    source = &places[places[from].instance.node].instance;
    if (source == target) {
        return 0;
    }
    links_out[count++] = &source->links[YB_SCHED_LINK_OUT];
    if (source->rack != target->rack) {
        if (racks[source->rack][YB_SCHED_UPLINK_UP].rate > 0) {
            links_out[count++] = &racks[source->rack][YB_SCHED_UPLINK_UP];
        }
        if (racks[target->rack][YB_SCHED_UPLINK_DOWN].rate > 0) {
            links_out[count++] = &racks[target->rack][YB_SCHED_UPLINK_DOWN];
        }
    }
    links_out[count++] = &target->links[YB_SCHED_LINK_IN];
    return count;
}

/* A way over several links, piece by piece: the fullest decides when the first byte comes, the
 * slowest how fast the others follow. */
struct way {
    double base_ns;
    double rate;
};

static struct way
way_of(const struct yb_sched_link *const *links, uint32_t count, uint64_t now_ns)
{
    struct way way = {0, INFINITY};
    double backlog_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        way.rate = yb_sched_smaller(way.rate, links[i]->rate);
        backlog_ns = yb_sched_larger(backlog_ns, yb_sched_flow_backlog_ns(links[i], now_ns));
        way.base_ns += (double)links[i]->latency_ns;
    }
    way.base_ns += backlog_ns;
    return way;
}

/* From a tier of a place, or from the object store: what lies on a disk passes that, too. */
static struct way
way_from(const struct yb_sched_view *view, uint32_t from, uint32_t tier, uint32_t to)
{
    const struct yb_sched_link *links[5];
    uint32_t count = yb_sched_links_between(view->places, view->racks, from, to, links);
    struct way way;

    if (from != YB_SCHED_SHARED && tier == YB_SCHED_TIER_SSD) {
        const uint32_t node = view->places[from].instance.node;
        const struct yb_sched_link *ssd = &view->places[node].instance.links[YB_SCHED_LINK_SSD];

        if (ssd->rate > 0) {
            links[count++] = ssd;
        }
    }
    way = way_of(links, count, view->now_ns);
    if (from != YB_SCHED_SHARED && view->loads[from].rack != view->loads[to].rack) {
        way.base_ns += (double)view->options->rack_cost_ns;
    }
    return way;
}

static struct way
way_between(const struct yb_sched_view *view, uint32_t from, uint32_t to)
{
    return way_from(view, from, YB_SCHED_TIER_DRAM, to);
}

double
yb_sched_view_transfer_ns(const struct yb_sched_view *view, uint32_t from, uint32_t to,
                          uint32_t tokens)
{
    struct way way = way_between(view, from, to);
    double bytes = (double)tokens * (double)yb_sched_view_cost(view, to)->kv_bytes;

    return tokens == 0 ? 0 : way.base_ns + bytes / way.rate * 1e9;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* Of more holders of a stretch those with the lowest numbers are looked at. */
#define HOLDERS_LOOKED_AT 16u

static uint32_t
find_source(const struct yb_sched_gathered *gathered, struct yb_sched_source at)
{
    uint32_t i = 0;

    while (i < gathered->count &&
           (gathered->sources[i].at.from != at.from || gathered->sources[i].at.tier != at.tier)) {
        i++;
    }
    return i;
}

/* The best place to take a stretch from, so far. */
struct pick {
    struct yb_sched_source at;
    struct way way;
    double ns; /* Infinity: none. */
};

static void
consider_source(const struct yb_sched_view *view, const struct yb_sched_gathered *gathered,
                uint32_t place, struct yb_sched_source at, struct pick *pick)
{
    uint32_t known = find_source(gathered, at);
    struct way way;
    double ns;

    if (known == YB_SCHED_SOURCES_MAX) {
        return; /* There are as many as may be. */
    }
    way = way_from(view, at.from, at.tier, place);
    ns = way.base_ns + (double)at.blocks * view->options->block_tokens *
                           (double)yb_sched_view_cost(view, place)->kv_bytes / way.rate * 1e9;
    if (ns < pick->ns) {
        *pick = (struct pick){at, way, ns};
    }
}

/* Choose for the first `blocks` blocks of a stretch. */
static struct pick
pick_source(const struct yb_sched_view *view, const struct yb_sched_gathered *gathered,
            uint32_t place, const struct yb_sched_stretch *stretch, uint32_t blocks)
{
    struct pick pick = {.ns = INFINITY};
    uint32_t count;
    const uint32_t *holders = yb_sched_index_holders(view->index, stretch->set, &count);

    for (uint32_t i = 0; i < count && i < HOLDERS_LOOKED_AT; i++) {
        const uint32_t tiers = holders[i] & YB_SCHED_SETS_TIER_MASK;
        struct yb_sched_source at = {.from = holders[i] >> YB_SCHED_SETS_TIER_BITS,
                                     .tier = YB_SCHED_TIER_DRAM,
                                     .blocks = blocks};

        if ((tiers & 1u << YB_SCHED_TIER_DRAM) == 0) {
            at.tier = YB_SCHED_TIER_SSD;
        }
        if ((tiers & 1u << at.tier) != 0 && view->loads[at.from].alive) {
            consider_source(view, gathered, place, at, &pick);
        }
    }
    if (stretch->object) {
        consider_source(view, gathered, place,
                        (struct yb_sched_source){YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, blocks},
                        &pick);
    }
    return pick;
}

/* Those that come over the place's own network share it: none is there before its part of all. */
static void
share_network(const struct yb_sched_view *view, uint32_t place, struct yb_sched_gathered *gathered)
{
    const uint32_t node = view->places[place].instance.node;
    const double rate = view->places[node].instance.links[YB_SCHED_LINK_IN].rate;
    uint32_t blocks = 0;

    for (uint32_t i = 0; i < gathered->count; i++) {
        const uint32_t from = gathered->sources[i].at.from;

        if (from != YB_SCHED_SHARED && view->places[from].instance.node != node) {
            blocks += gathered->sources[i].at.blocks;
        }
    }
    for (uint32_t i = 0; i < gathered->count; i++) {
        const struct yb_sched_source *at = &gathered->sources[i].at;

        if (at->from != YB_SCHED_SHARED && view->places[at->from].instance.node != node) {
            gathered->sources[i].rate =
                yb_sched_smaller(gathered->sources[i].rate, rate * at->blocks / blocks);
        }
    }
}

void
yb_sched_view_gather(const struct yb_sched_view *view, uint32_t place, uint32_t first, uint32_t end,
                     struct yb_sched_gathered *gathered_out)
{
    struct yb_sched_gathered *gathered = gathered_out;

    *gathered = (struct yb_sched_gathered){.end = first};
    for (uint32_t i = 0; i < view->stretch_count && gathered->end < end; i++) {
        const struct yb_sched_stretch *stretch = &view->stretches[i];
        const uint32_t until = stretch->end < end ? stretch->end : end;
        struct pick pick;
        uint32_t at;

        if (until <= gathered->end) {
            continue;
        }
        pick = pick_source(view, gathered, place, stretch, until - gathered->end);
        if (!(pick.ns < INFINITY)) {
            break;
        }
        at = find_source(gathered, pick.at);
        if (at == gathered->count) {
            gathered->sources[at].at = (struct yb_sched_source){pick.at.from, pick.at.tier, 0};
            gathered->sources[at].first = gathered->end;
            gathered->sources[at].base_ns = pick.way.base_ns;
            gathered->sources[at].rate = pick.way.rate;
            gathered->count++;
        }
        gathered->sources[at].at.blocks += until - gathered->end;
        gathered->sources[at].end = until;
        gathered->end = until;
    }
    share_network(view, place, gathered);
}

/* ---- flows ----------------------------------------------------------------------------------- */

static void
add_flow(struct yb_sched_prompt *prompt, uint32_t first, uint32_t end, struct way way)
{
    if (first < end) {
        YB_ASSERT(prompt->flow_count < YB_SCHED_FLOWS_MAX);
        prompt->flows[prompt->flow_count++] = (struct yb_sched_flow){
            .first = first,
            .end = end,
            .base_ns = way.base_ns,
            .token_ns = (double)prompt->cost->kv_bytes / way.rate * 1e9,
        };
    }
}

/* Return the flow's way over a link of the place's; there is no limit if it has none. */
static struct way
own_way(const struct yb_sched_view *view, uint32_t place, enum yb_sched_link_index index)
{
    const struct yb_sched_instance *instance = &view->places[place].instance;
    const struct yb_sched_link *link = &instance->links[index];

    if (index == YB_SCHED_LINK_SSD) {
        link = &view->places[instance->node].instance.links[index];
    }
    if (!(link->rate > 0)) {
        return (struct way){0, INFINITY};
    }
    return way_of(&link, 1, view->now_ns);
}

/* What `source` does not have yet is there when it has computed it. */
static void
add_coming(const struct yb_sched_view *view, struct yb_sched_prompt *prompt, uint32_t source,
           uint32_t local, struct way way)
{
    uint32_t landed = yb_sched_view_tokens(view, yb_sched_view_run(view, source, false));
    uint64_t finish_ns = 0;

    for (uint32_t i = 0; i < view->coming_count; i++) {
        const struct yb_sched_view_coming *coming = &view->coming[i];

        if (coming->place == source) {
            finish_ns = coming->finish_ns > finish_ns ? coming->finish_ns : finish_ns;
        }
    }
    if (finish_ns > view->now_ns) {
        way.base_ns += (double)(finish_ns - view->now_ns);
        add_flow(prompt, landed > local ? landed : local, prompt->reach_tokens, way);
    }
}

/* A flow for each source: between its first and its last token those of others come, too. */
static void
add_gathered(const struct yb_sched_view *view, struct yb_sched_prompt *prompt,
             const struct yb_sched_gathered *gathered)
{
    for (uint32_t i = 0; i < gathered->count; i++) {
        const uint32_t span = gathered->sources[i].end - gathered->sources[i].first;
        const double share = (double)gathered->sources[i].at.blocks / span;

        add_flow(prompt, yb_sched_view_tokens(view, gathered->sources[i].first),
                 yb_sched_view_tokens(view, gathered->sources[i].end),
                 (struct way){gathered->sources[i].base_ns, gathered->sources[i].rate / share});
    }
}

static void
fill_prompt(const struct yb_sched_view *view, uint32_t place, uint32_t source, uint32_t blocks,
            struct yb_sched_prompt *prompt_out)
{
    const struct yb_sched_hit *hit = &view->hits[place];
    bool soon = !view->options->no_soon;
    uint32_t run = yb_sched_view_tokens(view, hit->run[YB_SCHED_TIER_SSD]);
    uint32_t local = yb_sched_view_tokens(view, yb_sched_view_run(view, place, soon));
    uint32_t device = yb_sched_view_tokens(view, hit->run[YB_SCHED_TIER_DEVICE]);
    bool gathers = source == YB_SCHED_SHARED && view->options->gather;
    struct yb_sched_gathered gathered = {0};
    struct yb_sched_prompt *prompt = prompt_out;
    struct way way;
    uint32_t reach;

    if (gathers) {
        yb_sched_view_gather(view, place, yb_sched_view_run(view, place, soon), blocks, &gathered);
        blocks = gathered.end;
    }
    reach = yb_sched_view_tokens(view, blocks);

    *prompt = (struct yb_sched_prompt){
        .cost = yb_sched_view_cost(view, place),
        .tokens = view->request->input_tokens,
        .local_tokens = run == local ? device : local,
        .reach_tokens = reach > local ? reach : local,
        .step_tokens = view->options->block_tokens,
        .start_ns = yb_sched_view_start_ns(view, place),
    };
    if (view->options->no_ready) {
        return;
    }
    /* All that is not on the device yet goes there; but what is being computed there will be. */
    add_flow(prompt, device, local > run ? run : prompt->reach_tokens,
             own_way(view, place, YB_SCHED_LINK_LOAD));
    add_flow(prompt, yb_sched_view_tokens(view, hit->run[YB_SCHED_TIER_DRAM]), run,
             own_way(view, place, YB_SCHED_LINK_SSD));
    if (gathers) {
        add_gathered(view, prompt, &gathered);
    } else if (source != YB_SCHED_NONE && reach > local) {
        way = way_between(view, source, place);
        if (local > run) {
            way.rate = yb_sched_smaller(way.rate, own_way(view, place, YB_SCHED_LINK_LOAD).rate);
        }
        add_flow(prompt, local, reach, way);
        if (source != YB_SCHED_SHARED) {
            add_coming(view, prompt, source, local, way);
        }
    }
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Return what those that are decoded at a place add to the prefill of so many tokens: each step
 * that computes a chunk gives them a token, too. */
static double
beside_ns(const struct yb_sched_view *view, uint32_t place, uint32_t tokens)
{
    const struct yb_sched_cost *cost = yb_sched_view_cost(view, place);
    const struct yb_sched_load *load = &view->loads[place];
    uint32_t chunk = cost->pass_tokens;

    if (chunk == 0 || view->options->mode == YB_SCHED_MODE_DISAGGREGATED) {
        return 0;
    }
    return ceil((double)tokens / chunk) *
           (yb_sched_step_ns(cost, load->running, load->context_tokens) - cost->step_base_ns);
}

/* Write the plan that reuses `tokens` tokens. */
static void
finish_plan(const struct yb_sched_view *view, const struct yb_sched_prompt *prompt, uint32_t place,
            uint32_t source, uint32_t tokens, struct yb_sched_plan *plan_out)
{
    uint32_t block_tokens = view->options->block_tokens;
    uint32_t run = yb_sched_view_run(view, place, !view->options->no_soon);
    uint32_t blocks = (tokens + block_tokens - 1) / block_tokens;
    double beside = beside_ns(view, place, prompt->tokens - tokens);

    /* A prompt that ends with a whole block has its last token computed all the same. */
    *plan_out = (struct yb_sched_plan){
        .place = place,
        .local_blocks = blocks < run ? blocks : run,
        .reuse_blocks = blocks,
        .source = blocks > run ? source : YB_SCHED_NONE,
        .reuse_tokens = tokens,
        .considered = plan_out->considered,
        .start_ns = prompt->start_ns,
        .load_ns = yb_sched_flow_load_ns(prompt, tokens),
        .prefill_ns = yb_sched_prefill_ns(prompt->cost, prompt->tokens, tokens) + beside,
        .finish_ns = yb_sched_flow_finish_ns(prompt, tokens) + beside,
    };
}

void
yb_sched_plan_local(const struct yb_sched_view *view, uint32_t place,
                    struct yb_sched_plan *plan_out)
{
    yb_sched_plan_fetch(view, place, YB_SCHED_NONE, 0, plan_out);
}

void
yb_sched_plan_fetch(const struct yb_sched_view *view, uint32_t place, uint32_t source,
                    uint32_t blocks, struct yb_sched_plan *plan_out)
{
    struct yb_sched_prompt prompt;

    fill_prompt(view, place, source, source == YB_SCHED_NONE ? 0 : blocks, &prompt);
    finish_plan(view, &prompt, place, source, prompt.reach_tokens, plan_out);
}

void
yb_sched_plan_split(const struct yb_sched_view *view, uint32_t place, uint32_t source,
                    uint32_t blocks, struct yb_sched_plan *plan_out)
{
    struct yb_sched_prompt prompt;

    fill_prompt(view, place, source, source == YB_SCHED_NONE ? 0 : blocks, &prompt);
    finish_plan(view, &prompt, place, source, yb_sched_flow_split(&prompt), plan_out);
}
