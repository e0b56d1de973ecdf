/* SPDX-License-Identifier: Apache-2.0
 *
 * The moves that a decision needs, and what they do to the links.
 */
#include <math.h>

#include "base/check.h"
#include "base/clock.h"
#include "sched/flow.h"
#include "sched/sched_internal.h"

static struct yb_sched_instruction *
next(struct yb_sched_decision *decision)
{
    YB_ASSERT(decision->instruction_count < YB_SCHED_INSTRUCTIONS_MAX);
    return &decision->instructions[decision->instruction_count++];
}

static uint64_t
bytes_of(const struct yb_sched_view *view, uint32_t place, uint32_t count)
{
    return (uint64_t)count * view->options->block_tokens *
           yb_sched_view_cost(view, place)->kv_bytes;
}

/* When the last of what `source` still computes of the blocks that are fetched will be there. */
static uint64_t
not_before_ns(const struct yb_sched_view *view, uint32_t source, uint32_t reuse_blocks)
{
    uint64_t latest_ns = 0;

    for (uint32_t i = 0; i < view->coming_count; i++) {
        const struct yb_sched_view_coming *coming = &view->coming[i];

        if (coming->place == source && coming->first < reuse_blocks &&
            coming->end > yb_sched_view_run(view, source, false)) {
            latest_ns = coming->finish_ns > latest_ns ? coming->finish_ns : latest_ns;
        }
    }
    return latest_ns;
}

/* What lies on the place's ssd goes to its dram. */
static void
instruct_ssd(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
             struct yb_sched_decision *decision)
{
    const struct yb_sched_hit *hit = &view->hits[plan->place];
    uint32_t first = hit->run[YB_SCHED_TIER_DRAM];
    uint32_t end = hit->run[YB_SCHED_TIER_SSD];
    uint32_t node = view->places[plan->place].instance.node;
    struct yb_sched_instruction *instruction;

    end = end < plan->reuse_blocks ? end : plan->reuse_blocks;
    if (first >= end) {
        return;
    }
    instruction = next(decision);
    *instruction = (struct yb_sched_instruction){
        .kind = YB_SCHED_KIND_FETCH,
        .first = first,
        .count = end - first,
        .from = node,
        .from_tier = YB_SCHED_TIER_SSD,
        .to = node,
        .to_tier = YB_SCHED_TIER_DRAM,
        .work_class = view->request->work_class,
        .bytes = bytes_of(view, plan->place, end - first),
        .deadline_ns =
            decision->start_ns > decision->ready_ns ? decision->start_ns : decision->ready_ns,
        .ready_ns = decision->ready_ns,
    };
}

static void
instruct_fetch(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
               struct yb_sched_decision *decision)
{
    uint32_t node = view->places[plan->place].instance.node;
    uint32_t count = plan->reuse_blocks - plan->local_blocks;

    if (plan->source == YB_SCHED_NONE) {
        return;
    }
    *next(decision) = (struct yb_sched_instruction){
        .kind = YB_SCHED_KIND_FETCH,
        .first = plan->local_blocks,
        .count = count,
        .from = decision->source,
        .from_tier = decision->source_tier,
        .to = node,
        .to_tier = YB_SCHED_TIER_DRAM,
        .work_class = view->request->work_class,
        .bytes = bytes_of(view, plan->place, count),
        .not_before_ns = decision->source == YB_SCHED_SHARED
                             ? 0
                             : not_before_ns(view, plan->source, plan->reuse_blocks),
        .deadline_ns =
            decision->start_ns > decision->ready_ns ? decision->start_ns : decision->ready_ns,
        .ready_ns = decision->ready_ns,
    };
}

/* How long bytes take from place to place: behind what waits there, on the slowest link. */
static uint64_t
way_ns(const struct yb_sched_view *view, uint32_t from, uint32_t to, uint64_t bytes)
{
    const struct yb_sched_link *links[4];
    uint32_t count = yb_sched_links_between(view->places, view->racks, from, to, links);
    double base_ns = 0;
    double bytes_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        double waits_ns =
            (double)links[i]->latency_ns + yb_sched_flow_backlog_ns(links[i], view->now_ns);
        double takes_ns = links[i]->rate > 0 ? (double)bytes * 1e9 / links[i]->rate : 0;

        base_ns = yb_sched_larger(base_ns, waits_ns);
        bytes_ns = yb_sched_larger(bytes_ns, takes_ns);
    }
    return (uint64_t)(base_ns + bytes_ns);
}

/* When the request wants its prompt's blocks where the answer goes on: for the step that brings the
 * second token. The first one may come as late as its target, the second by its own behind it;
 * where they cannot be met, the blocks are wanted when they are expected. Without targets there is
 * nothing that could be missed: 0. */
static uint64_t
wanted_ns(const struct yb_sched_view *view, const struct yb_sched_decision *decision,
          uint64_t there_ns)
{
    uint64_t first_ns = yb_sched_view_ttft_slo_ns(view);
    uint64_t pace_ns = yb_sched_view_tpot_slo_ns(view);
    uint64_t due_ns;

    if (first_ns == 0 && pace_ns == 0) {
        return 0;
    }
    first_ns = first_ns > decision->ttft_ns ? first_ns : decision->ttft_ns;
    due_ns = yb_deadline_after(view->request->arrival_ns, first_ns);
    if (pace_ns > decision->tpot_ns) {
        due_ns = yb_deadline_after(due_ns, pace_ns - decision->tpot_ns);
    }
    return due_ns > there_ns ? due_ns : there_ns;
}

/* The prompt's blocks go on to where the answer is decoded. An engine may send layers while it
 * computes others; they are expected as of one that sends all of them behind the first token. */
static void
instruct_stream(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
                struct yb_sched_decision *decision)
{
    uint64_t bytes =
        (uint64_t)view->request->input_tokens * yb_sched_view_cost(view, plan->place)->kv_bytes;
    uint64_t there_ns = view->request->arrival_ns + decision->ttft_ns;

    if (decision->decode == decision->prefill || view->request->block_count == 0) {
        return;
    }
    there_ns += way_ns(view, decision->prefill, decision->decode, bytes);
    *next(decision) = (struct yb_sched_instruction){
        .kind = YB_SCHED_KIND_STREAM,
        .count = view->request->block_count,
        .from = decision->prefill,
        .from_tier = YB_SCHED_TIER_DEVICE,
        .to = decision->decode,
        .to_tier = YB_SCHED_TIER_DRAM,
        .work_class = view->request->work_class,
        .bytes = bytes,
        .not_before_ns = decision->start_ns,
        .deadline_ns = wanted_ns(view, decision, there_ns),
        .ready_ns = there_ns,
    };
}

void
yb_sched_instruct(const struct yb_sched_view *view, const struct yb_sched_plan *plan,
                  struct yb_sched_decision *decision)
{
    instruct_ssd(view, plan, decision);
    instruct_fetch(view, plan, decision);
    instruct_stream(view, plan, decision);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* More bytes wait on a link, behind those that have not gone yet. */
static void
link_take(struct yb_sched_link *link, uint64_t bytes, uint64_t now_ns)
{
    double left;

    if (!(link->rate > 0)) {
        return;
    }
    left = yb_sched_flow_backlog_ns(link, now_ns) * link->rate / 1e9;
    link->backlog_bytes = (uint64_t)left + bytes;
    link->at_ns = now_ns > link->at_ns ? now_ns : link->at_ns;
}

static void
take_way(struct yb_sched *sched, struct yb_sched_source at, uint32_t to, uint64_t bytes,
         uint64_t now_ns)
{
    const struct yb_sched_link *links[4];
    uint32_t count;

    if (at.tier == YB_SCHED_TIER_SSD) {
        uint32_t node = sched->places[at.from].instance.node;

        link_take(&sched->places[node].instance.links[YB_SCHED_LINK_SSD], bytes, now_ns);
    }
    count = yb_sched_links_between(sched->places,
                                   (const struct yb_sched_link(*)[YB_SCHED_UPLINKS])sched->racks,
                                   at.from, to, links);
    for (uint32_t i = 0; i < count; i++) {
        /* All of them are this scheduler's, which may change them. */
        link_take((struct yb_sched_link *)(uintptr_t)links[i], bytes, now_ns);
    }
}

/* What comes from several sources takes the way of each. */
static void
take_instruction(struct yb_sched *sched, const struct yb_sched_decision *decision,
                 const struct yb_sched_instruction *instruction, uint64_t now_ns)
{
    if (instruction->from != YB_SCHED_SHARED || decision->source_count == 0) {
        take_way(
            sched,
            (struct yb_sched_source){instruction->from, instruction->from_tier, instruction->count},
            instruction->to, instruction->bytes, now_ns);
        return;
    }
    for (uint32_t i = 0; i < decision->source_count; i++) {
        const struct yb_sched_source *at = &decision->sources[i];

        take_way(sched, *at, instruction->to, instruction->bytes / instruction->count * at->blocks,
                 now_ns);
    }
}

void
yb_sched_links_take(struct yb_sched *sched, const struct yb_sched_decision *decision,
                    uint64_t now_ns)
{
    for (uint32_t i = 0; i < decision->instruction_count; i++) {
        take_instruction(sched, decision, &decision->instructions[i], now_ns);
    }
}
