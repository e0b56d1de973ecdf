/* SPDX-License-Identifier: Apache-2.0
 *
 * One request: what is known of it, the decision, and its being carried out.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "sched/sched_internal.h"

#define INPUT_TOKENS_MAX (1u << 27)

/* ---- the view -------------------------------------------------------------------------------- */

/* What the running prefills of a prompt's blocks are, and when they end. */
static void
fill_coming(const struct yb_sched *sched, const struct yb_sched_index_match *match, uint64_t now_ns,
            struct yb_sched_view *view)
{
    for (uint32_t i = 0; i < match->coming_count; i++) {
        const struct yb_sched_coming *coming = &match->coming[i];
        const struct yb_sched_pending *pending = &sched->pending[coming->producer];
        uint32_t place = pending->place[YB_SCHED_AT_PREFILL];

        if (pending->number == 0 || pending->prefilled_ns != 0 || !sched->loads[place].alive) {
            continue;
        }
        view->coming[view->coming_count++] = (struct yb_sched_view_coming){
            .place = place,
            .first = coming->first,
            .end = coming->end,
            .finish_ns = pending->finish_ns > now_ns ? pending->finish_ns : now_ns,
        };
    }
}

/* An engine that uses the dram and ssd of another place's node has what is there. */
static void
share_nodes(const struct yb_sched *sched, struct yb_sched_hit *hits)
{
    for (uint32_t place = 0; place < sched->places_used; place++) {
        const struct yb_sched_hit *there = &hits[sched->places[place].instance.node];
        struct yb_sched_hit *hit = &hits[place];

        if (sched->loads[place].alive && there != hit) {
            for (uint32_t tier = YB_SCHED_TIER_DRAM; tier < YB_SCHED_LOCAL_TIERS; tier++) {
                hit->run[tier] =
                    there->run[tier] > hit->run[tier] ? there->run[tier] : hit->run[tier];
            }
        }
    }
}

/* Complete the hits: what is gone has none, what is being computed comes on top. Returns the
 * longest run; *best_out is the place. */
static uint32_t
complete_hits(const struct yb_sched *sched, const struct yb_sched_view *view,
              struct yb_sched_hit *hits, uint32_t *best_out)
{
    uint32_t best_blocks = 0;

    if (sched->shared_nodes > 0) {
        share_nodes(sched, hits);
    }
    *best_out = YB_SCHED_NONE;
    for (uint32_t place = 0; place < sched->places_used; place++) {
        struct yb_sched_hit *hit = &hits[place];

        if (!sched->loads[place].alive) {
            *hit = (struct yb_sched_hit){0};
            continue;
        }
        hit->soon = hit->run[YB_SCHED_TIER_SSD];
        if (hit->soon > best_blocks) {
            best_blocks = hit->soon;
            *best_out = place;
        }
    }
    for (uint32_t i = 0; i < view->coming_count; i++) {
        struct yb_sched_hit *hit = &hits[view->coming[i].place];

        /* Who computes a block has all before it by then. */
        hit->soon = view->coming[i].end > hit->soon ? view->coming[i].end : hit->soon;
    }
    return best_blocks;
}

static uint64_t
chance_of(const struct yb_sched *sched, const struct yb_sched_request *request)
{
    uint64_t x = sched->options.seed + request->id * 0x9e3779b97f4a7c15ull +
                 (sched->options.conductor + 1ull) * 0xd1b54a32d192ed03ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* The list of places without one. */
static const uint32_t *
without(const uint32_t *list, uint32_t *count, uint32_t place, uint32_t *copy)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < *count; i++) {
        if (list[i] != place) {
            copy[kept++] = list[i];
        }
    }
    *count = kept;
    return copy;
}

bool
yb_sched_view_fill(const struct yb_sched *sched, struct yb_sched_scratch *scratch,
                   const struct yb_sched_request *request, uint64_t now_ns,
                   struct yb_sched_view *view_out)
{
    struct yb_sched_index_prompt prompt = {request->blocks, request->block_count,
                                           sched->options.exact};
    struct yb_sched_index_match match;
    struct yb_sched_view *view = view_out;

    *view = (struct yb_sched_view){
        .options = &sched->options,
        .request = request,
        .now_ns = now_ns,
        .chance = chance_of(sched, request),
        .state = sched->state,
        .places_max = sched->places_used,
        .loads = sched->loads,
        .places = sched->places,
        .hits = scratch->hits,
        .costs = sched->costs,
        .racks = (const struct yb_sched_link(*)[YB_SCHED_UPLINKS])sched->racks,
        .rack_count = sched->rack_count,
        .prefills = sched->prefills,
        .prefill_count = sched->prefill_count,
        .decodes = sched->decodes,
        .decode_count = sched->decode_count,
        .decoding = &sched->decoding,
        .others_factor = yb_sched_others_factor(sched),
        .chosen = scratch->chosen,
        .figures = scratch->figures,
        .rack_best = scratch->rack_best,
    };
    view->conductors = yb_sched_conductors(sched, &view->rank);
    yb_sched_index_match(sched->index, &prompt, scratch->active, scratch->hits, &match);
    fill_coming(sched, &match, now_ns, view);
    view->best_blocks = complete_hits(sched, view, scratch->hits, &view->best);
    view->object_blocks = match.object_run;
    view->reach_blocks =
        view->best_blocks > match.object_run ? view->best_blocks : match.object_run;
    view->index = sched->index;
    view->stretch_count = match.stretch_count;
    memcpy(view->stretches, match.stretches, match.stretch_count * sizeof(match.stretches[0]));
    view->pool_blocks = view->reach_blocks;
    if (sched->options.gather && match.stretch_count > 0) {
        view->pool_blocks = match.stretches[match.stretch_count - 1].end;
        view->reach_blocks =
            view->pool_blocks > view->reach_blocks ? view->pool_blocks : view->reach_blocks;
    }
    for (uint32_t i = 0; i < view->coming_count && !sched->options.no_soon; i++) {
        view->reach_blocks =
            view->coming[i].end > view->reach_blocks ? view->coming[i].end : view->reach_blocks;
    }
    if (request->not_at != 0) {
        view->prefills =
            without(view->prefills, &view->prefill_count, request->not_at - 1, scratch->prefills);
    }
    return view->prefill_count > 0;
}

uint32_t
yb_sched_match(const struct yb_sched *sched, struct yb_sched_scratch *scratch,
               const uint64_t *blocks, uint32_t count, uint64_t now_ns,
               struct yb_sched_hit *hits_out)
{
    struct yb_sched_index_prompt prompt = {blocks, count, sched->options.exact};
    struct yb_sched_index_match match;
    struct yb_sched_view view = {0};
    uint32_t best;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    YB_ASSERT_OBJ(scratch, YB_SCHED_SCRATCH_MAGIC);
    YB_ASSERT(scratch->sched == sched);
    yb_sched_index_match(sched->index, &prompt, scratch->active, hits_out, &match);
    fill_coming(sched, &match, now_ns, &view);
    return complete_hits(sched, &view, hits_out, &best);
}

/* ---- the decision ---------------------------------------------------------------------------- */

static uint64_t
whole_ns(double ns)
{
    return ns < 0 ? 0 : ns < 9e18 ? (uint64_t)ns : UINT64_MAX / 2;
}

/* Choose where the request is decoded; YB_SCHED_NONE: nowhere. */
static uint32_t
choose_decode(const struct yb_sched *sched, const struct yb_sched_view *view,
              const struct yb_sched_plan *plan)
{
    uint32_t given = view->request->decode_at;

    if (sched->options.mode != YB_SCHED_MODE_DISAGGREGATED) {
        return plan->place;
    }
    if (given != 0) {
        bool able =
            given - 1 < view->places_max && (view->loads[given - 1].roles & YB_SCHED_DECODE) != 0;

        return able ? given - 1 : YB_SCHED_NONE;
    }
    if (sched->routing->choose_decode != NULL) {
        return sched->routing->choose_decode(view, plan);
    }
    return yb_sched_decode_least(view, plan);
}

/* What is gathered from one place alone comes from there, like anything else. */
static void
write_sources(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
              struct yb_sched_decision *decision)
{
    struct yb_sched_gathered gathered;

    yb_sched_view_gather(view, plan->place, plan->local_blocks, plan->reuse_blocks, &gathered);
    decision->source_tier = YB_SCHED_TIER_DEVICE;
    for (uint32_t i = 0; i < gathered.count; i++) {
        decision->sources[i] = gathered.sources[i].at;
        decision->source_tier = gathered.sources[i].at.tier > decision->source_tier
                                    ? gathered.sources[i].at.tier
                                    : decision->source_tier;
    }
    decision->source_count = gathered.count;
    if (gathered.count == 1) {
        decision->source = gathered.sources[0].at.from;
    }
}

static void
write_plan(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
           struct yb_sched_decision *decision)
{
    const struct yb_sched_hit *hit = &view->hits[plan->place];
    uint64_t waited =
        view->now_ns > view->request->arrival_ns ? view->now_ns - view->request->arrival_ns : 0;

    decision->prefill = plan->place;
    memcpy(decision->hit_blocks, hit->run, sizeof(hit->run));
    decision->hit_blocks[YB_SCHED_TIER_OBJECT] = view->object_blocks > hit->run[YB_SCHED_TIER_SSD]
                                                     ? view->object_blocks
                                                     : hit->run[YB_SCHED_TIER_SSD];
    decision->soon_blocks = hit->soon;
    decision->local_blocks = plan->local_blocks;
    decision->reuse_blocks = plan->reuse_blocks;
    decision->source = plan->source;
    decision->source_tier = YB_SCHED_TIER_DRAM;
    if (plan->source == YB_SCHED_SHARED && view->options->gather) {
        write_sources(view, plan, decision);
    } else if (plan->source == YB_SCHED_SHARED) {
        decision->source_tier = YB_SCHED_TIER_OBJECT;
    } else if (plan->source != YB_SCHED_NONE &&
               view->hits[plan->source].run[YB_SCHED_TIER_DRAM] < plan->reuse_blocks) {
        decision->source_tier = view->hits[plan->source].run[YB_SCHED_TIER_SSD] < plan->reuse_blocks
                                    ? YB_SCHED_TIER_DEVICE /* Just computed. */
                                    : YB_SCHED_TIER_SSD;
    }
    decision->reuse_tokens = plan->reuse_tokens;
    decision->best = view->best;
    decision->best_blocks = view->best_blocks;
    decision->start_ns = view->now_ns + whole_ns(plan->start_ns);
    decision->ready_ns = view->now_ns + whole_ns(plan->load_ns);
    decision->ttft_ns = waited + whole_ns(plan->finish_ns);
    decision->queue_ns = whole_ns(plan->start_ns);
    decision->load_ns = whole_ns(plan->load_ns);
    decision->prefill_ns = whole_ns(plan->prefill_ns);
    decision->report_sequence = view->loads[plan->place].sequence;
    decision->considered = plan->considered;
    decision->hotspot = plan->hotspot;
}

static bool
is_request(const struct yb_sched_request *request)
{
    return request->struct_bytes >= sizeof(*request) && request->id != 0 &&
           request->input_tokens > 0 && request->input_tokens <= INPUT_TOKENS_MAX &&
           request->block_count <= YB_SCHED_REQUEST_BLOCKS_MAX &&
           (request->block_count == 0 || request->blocks != NULL) &&
           request->work_class < YB_CLASS_COUNT;
}

enum yb_status
yb_sched_decide(const struct yb_sched *sched, struct yb_sched_scratch *scratch,
                const struct yb_sched_request *request, uint64_t now_ns,
                struct yb_sched_decision *decision_out)
{
    struct yb_sched_decision *decision = decision_out;
    struct yb_sched_plan plan = {0};
    struct yb_sched_view view;

    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    YB_ASSERT_OBJ(scratch, YB_SCHED_SCRATCH_MAGIC);
    YB_ASSERT(scratch->sched == sched);
    if (!is_request(request)) {
        return YB_INVALID;
    }
    memset(decision, 0, sizeof(*decision)); /* S1, to the last byte. */
    *decision = (struct yb_sched_decision){
        .mode = sched->options.mode,
        .reason = YB_SCHED_REASON_NO_PREFILL,
        .prefill = YB_SCHED_NONE,
        .decode = YB_SCHED_NONE,
        .source = YB_SCHED_NONE,
        .best = YB_SCHED_NONE,
    };
    if (!yb_sched_view_fill(sched, scratch, request, now_ns, &view)) {
        return YB_OK;
    }
    sched->routing->choose(&view, &plan);
    YB_ASSERT(plan.place < view.places_max); /* R2 */
    YB_ASSERT((view.loads[plan.place].roles & YB_SCHED_PREFILL) != 0);
    write_plan(&view, &plan, decision);
    decision->decode = choose_decode(sched, &view, &plan);
    if (decision->decode == YB_SCHED_NONE) {
        decision->reason = YB_SCHED_REASON_NO_DECODE;
        return YB_OK;
    }
    decision->decode_sequence = view.loads[decision->decode].sequence;
    decision->tpot_ns = whole_ns(yb_sched_view_step_ns(&view, decision->decode));
    decision->reason = sched->admission->judge(&view, &plan, decision);
    decision->accepted = decision->reason == YB_SCHED_REASON_NONE;
    if (decision->accepted) {
        yb_sched_instruct(&view, &plan, decision);
    }
    return YB_OK;
}

/* ---- carrying it out ------------------------------------------------------------------------- */

static bool
is_still_there(const struct yb_sched *sched, const struct yb_sched_decision *decision)
{
    uint32_t places[3 + YB_SCHED_SOURCES_MAX] = {decision->prefill, decision->decode,
                                                 decision->source};

    for (uint32_t i = 0; i < decision->source_count; i++) {
        places[3 + i] = decision->sources[i].from;
    }
    for (uint32_t i = 0; i < 3 + decision->source_count; i++) {
        if (places[i] == YB_SCHED_NONE || places[i] == YB_SCHED_SHARED) {
            continue;
        }
        if (places[i] >= sched->options.places_max || !sched->loads[places[i]].alive) {
            return false;
        }
    }
    return decision->prefill < sched->options.places_max &&
           decision->decode < sched->options.places_max;
}

/* Count the request at its places, and mark what it will compute. */
static void
take_pending(struct yb_sched *sched, const struct yb_sched_request *request,
             const struct yb_sched_decision *decision, uint64_t now_ns)
{
    uint32_t slot = (uint32_t)(decision->number % sched->options.pending_max);
    struct yb_sched_pending *pending = &sched->pending[slot];
    struct yb_sched_load *load = &sched->loads[decision->prefill];
    const struct yb_sched_cost *cost = &sched->costs[load->cost];
    uint64_t begin_ns = load->done_ns > now_ns ? load->done_ns : now_ns;
    double factor = yb_sched_others_factor(sched);
    uint32_t fetched = decision->reuse_blocks - decision->local_blocks;

    if (pending->number != 0) {
        sched->forgotten++;
        yb_sched_pending_forget(sched, slot);
    }
    *pending = (struct yb_sched_pending){
        .number = decision->number,
        .finish_ns = request->arrival_ns + decision->ttft_ns,
        .prefill_ns = (double)decision->prefill_ns,
        .fetch_bytes = (uint64_t)fetched * sched->options.block_tokens * cost->kv_bytes,
        .new_tokens = request->input_tokens - decision->reuse_tokens,
        .context_tokens = request->input_tokens,
        .place = {decision->prefill, decision->decode},
    };
    sched->pending_count++;
    yb_sched_decoding_add(&sched->decoding, pending->finish_ns, request->input_tokens);
    yb_sched_pending_list(sched, slot, YB_SCHED_AT_PREFILL);
    if (decision->decode != decision->prefill) {
        yb_sched_pending_list(sched, slot, YB_SCHED_AT_DECODE);
        yb_sched_load_refresh(sched, decision->decode);
    }
    yb_sched_load_refresh(sched, decision->prefill);
    load->done_ns = begin_ns + (uint64_t)(factor * (double)decision->prefill_ns);
    for (uint32_t i = decision->reuse_blocks; i < request->block_count; i++) {
        if (yb_sched_index_mark(sched->index, request->blocks[i], slot) != YB_OK) {
            break;
        }
    }
    /* Marks that are stale go as fast as new ones come. */
    (void)yb_sched_index_sweep(sched->index,
                               2 * (request->block_count - decision->reuse_blocks) + 2);
}

enum yb_status
yb_sched_commit(struct yb_sched *sched, const struct yb_sched_request *request,
                struct yb_sched_decision *decision, uint64_t now_ns)
{
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    YB_ASSERT(decision->reuse_blocks <= request->block_count || !decision->accepted);
    YB_ASSERT(decision->local_blocks <= decision->reuse_blocks);
    if (decision->accepted && !is_still_there(sched, decision)) {
        return YB_STALE;
    }
    decision->number = ++sched->number;
    for (uint32_t i = 0; i < decision->instruction_count; i++) {
        decision->instructions[i].id = decision->number * YB_SCHED_INSTRUCTIONS_MAX + i;
    }
    if (decision->accepted) {
        take_pending(sched, request, decision, now_ns);
        yb_sched_links_take(sched, decision, now_ns);
    } else {
        sched->rejected++;
    }
    if (sched->routing->commit != NULL) {
        sched->routing->commit(sched->state, &sched->options, request, decision, now_ns);
    }
    return YB_OK;
}
