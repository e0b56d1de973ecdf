/* SPDX-License-Identifier: Apache-2.0
 *
 * Ready times and splits.
 */
#include "sched/flow.h"

#include <math.h>

#include "base/check.h"

/* Two finishes that differ by less are the same: then less is loaded. */
#define SAME_NS 1.0

/* ---- links ----------------------------------------------------------------------------------- */

double
yb_sched_flow_backlog_ns(const struct yb_sched_link *link, uint64_t now_ns)
{
    double drained;

    if (!(link->rate > 0)) {
        return INFINITY;
    }
    drained = now_ns > link->at_ns ? (double)(now_ns - link->at_ns) : 0;
    return yb_sched_larger(0, (double)link->backlog_bytes / link->rate * 1e9 - drained);
}

uint64_t
yb_sched_ready_ns(const struct yb_sched_link *const *links, uint32_t count, uint64_t base_ns,
                  uint64_t bytes, uint64_t now_ns)
{
    double latency_ns = 0;
    double slowest_ns = 0;
    double sum_ns;

    for (uint32_t i = 0; i < count; i++) {
        if (!(links[i]->rate > 0)) {
            return UINT64_MAX;
        }
        latency_ns += (double)links[i]->latency_ns;
        slowest_ns = yb_sched_larger(slowest_ns, yb_sched_flow_backlog_ns(links[i], now_ns) +
                                                     (double)bytes / links[i]->rate * 1e9);
    }
    sum_ns = (double)base_ns + latency_ns + slowest_ns;
    return sum_ns < (double)(UINT64_MAX / 2) ? base_ns + (uint64_t)(latency_ns + slowest_ns)
                                             : UINT64_MAX;
}

/* ---- a prompt -------------------------------------------------------------------------------- */

double
yb_sched_flow_load_ns(const struct yb_sched_prompt *prompt, uint32_t reused)
{
    double load_ns = 0;

    for (uint32_t i = 0; i < prompt->flow_count; i++) {
        const struct yb_sched_flow *flow = &prompt->flows[i];

        if (reused > flow->first) {
            uint32_t end = reused < flow->end ? reused : flow->end;

            load_ns =
                yb_sched_larger(load_ns, flow->base_ns + (end - flow->first) * flow->token_ns);
        }
    }
    return load_ns;
}

/* Which of the two ways to be late comes first: the engine, or what it waits for. */
struct finish {
    double compute_ns; /* Computing decides, or the first layer that has to be there before it. */
    double load_ns;    /* The last layer has to come before it is computed. */
};

static struct finish
finish_of(const struct yb_sched_prompt *prompt, uint32_t reused)
{
    double load_ns = yb_sched_flow_load_ns(prompt, reused);
    double prefill_ns = yb_sched_prefill_ns(prompt->cost, prompt->tokens, reused);
    double layers = prompt->cost->layers;
    uint32_t pass = prompt->cost->pass_tokens;
    double first_ns = prefill_ns; /* The pass during which layers may still come. */

    if (pass > 0 && reused + pass < prompt->tokens) {
        first_ns = yb_sched_prefill_ns(prompt->cost, reused + pass, reused);
    }
    return (struct finish){
        .compute_ns = yb_sched_larger(prompt->start_ns, load_ns / layers) + prefill_ns,
        .load_ns = load_ns + prefill_ns - first_ns + first_ns / layers,
    };
}

double
yb_sched_flow_finish_ns(const struct yb_sched_prompt *prompt, uint32_t reused)
{
    struct finish finish = finish_of(prompt, reused);

    return yb_sched_larger(finish.compute_ns, finish.load_ns);
}

/* ---- the best split -------------------------------------------------------------------------- */

/* Steps run from 0, where local_tokens are reused, to step_count, where all that can be are. */
struct steps {
    const struct yb_sched_prompt *prompt;
    uint32_t first; /* Step k reuses (first + k - 1) whole steps of tokens, for 0 < k < count. */
    uint32_t count;
};

static uint32_t
tokens_at(const struct steps *steps, uint32_t step)
{
    if (step == 0) {
        return steps->prompt->local_tokens;
    }
    if (step >= steps->count) {
        return steps->prompt->reach_tokens;
    }
    return (steps->first + step - 1) * steps->prompt->step_tokens;
}

/* Return the last step that does not reuse more than `tokens`. */
static uint32_t
step_of(const struct steps *steps, uint32_t tokens)
{
    uint32_t whole = tokens / steps->prompt->step_tokens;

    if (tokens >= steps->prompt->reach_tokens) {
        return steps->count;
    }
    return whole < steps->first ? 0 : whole - steps->first + 1;
}

struct best {
    uint32_t tokens;
    double finish_ns;
};

static void
consider(const struct steps *steps, uint32_t step, struct best *best)
{
    uint32_t tokens = tokens_at(steps, step < steps->count ? step : steps->count);
    double finish_ns = yb_sched_flow_finish_ns(steps->prompt, tokens);

    if (finish_ns < best->finish_ns - SAME_NS ||
        (finish_ns < best->finish_ns + SAME_NS && tokens < best->tokens)) {
        *best = (struct best){tokens, finish_ns};
    }
}

/* Whether loading decides at that step (`layered`: when the engine can begin), and not computing.
 * Both are true from some step on. */
static bool
is_late(const struct steps *steps, uint32_t step, bool layered)
{
    uint32_t tokens = tokens_at(steps, step);
    struct finish finish;

    if (layered) {
        return yb_sched_flow_load_ns(steps->prompt, tokens) / steps->prompt->cost->layers >
               steps->prompt->start_ns;
    }
    finish = finish_of(steps->prompt, tokens);
    return finish.load_ns > finish.compute_ns;
}

/* Return the last step at which the engine need not wait for the first layer. */
static uint32_t
layered_step(const struct steps *steps)
{
    uint32_t low = 0;
    uint32_t high = steps->count;

    if (is_late(steps, low, true) || !is_late(steps, high, true)) {
        return low;
    }
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;

        if (is_late(steps, middle, true)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return low;
}

/* Look at the steps on both sides of where `is_late` begins. */
static void
consider_crossing(const struct steps *steps, bool layered, struct best *best)
{
    uint32_t low = 0;
    uint32_t high = steps->count;

    if (is_late(steps, low, layered) || !is_late(steps, high, layered)) {
        return; /* The ends are looked at anyway. */
    }
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;

        if (is_late(steps, middle, layered)) {
            high = middle;
        } else {
            low = middle;
        }
    }
    consider(steps, low, best);
    consider(steps, high, best);
}

/* Look where `is_late` changes, either way, between two steps. */
static void
consider_change(const struct steps *steps, uint32_t low, uint32_t high, struct best *best)
{
    bool late = is_late(steps, low, false);

    if (low >= high || late == is_late(steps, high, false)) {
        return;
    }
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;

        if (is_late(steps, middle, false) == late) {
            low = middle;
        } else {
            high = middle;
        }
    }
    consider(steps, low, best);
    consider(steps, high, best);
}

/* Return the last step before one flow becomes the later of the two, or 0. */
static uint32_t
overtaking_step(const struct steps *steps, const struct yb_sched_flow *a,
                const struct yb_sched_flow *b)
{
    double ahead_ns = (b->base_ns - b->first * b->token_ns) - (a->base_ns - a->first * a->token_ns);
    double tokens = ahead_ns / (a->token_ns - b->token_ns);

    return tokens >= 0 && tokens <= steps->prompt->reach_tokens ? step_of(steps, (uint32_t)tokens)
                                                                : 0;
}

/* Ends, the last pass, the first layer, both ends of each flow, and each pair of flows. */
#define MARKS_MAX (4 + 2 * YB_SCHED_FLOWS_MAX + YB_SCHED_FLOWS_MAX * (YB_SCHED_FLOWS_MAX - 1) / 2)

/* With several passes the first one takes the longer the more is reused, until the rest is one
 * pass: the two ways to be late may change more than once, though not between two steps where
 * something else changes. */
static void
consider_passes(const struct steps *steps, struct best *best)
{
    const struct yb_sched_prompt *prompt = steps->prompt;
    uint32_t marks[MARKS_MAX];
    uint32_t count = 0;

    marks[count++] = 0;
    marks[count++] = steps->count;
    marks[count++] = step_of(steps, prompt->tokens - prompt->cost->pass_tokens);
    marks[count++] = layered_step(steps);
    for (uint32_t i = 0; i < prompt->flow_count; i++) {
        marks[count++] = step_of(steps, prompt->flows[i].first);
        marks[count++] = step_of(steps, prompt->flows[i].end);
        for (uint32_t j = 0; j < i; j++) {
            marks[count++] = overtaking_step(steps, &prompt->flows[i], &prompt->flows[j]);
        }
    }
    for (uint32_t i = 1; i < count; i++) {
        for (uint32_t j = i; j > 0 && marks[j] < marks[j - 1]; j--) {
            uint32_t mark = marks[j];

            marks[j] = marks[j - 1];
            marks[j - 1] = mark;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        consider(steps, marks[i], best);
        consider(steps, marks[i] + 1, best);
        if (i + 1 < count && marks[i] + 1 < marks[i + 1]) {
            consider_change(steps, marks[i] + 1, marks[i + 1], best);
        }
    }
}

/* Between two of the steps that are looked at, the finish is a concave function of how much is
 * reused, as long as one flow decides: prefill is, and loading is linear. So the best step is one
 * of those where something changes. */
uint32_t
yb_sched_flow_split(const struct yb_sched_prompt *prompt)
{
    struct steps steps = {.prompt = prompt};
    struct best best = {0, INFINITY};

    YB_ASSERT(prompt->local_tokens <= prompt->reach_tokens);
    YB_ASSERT(prompt->reach_tokens <= prompt->tokens);
    YB_ASSERT(prompt->step_tokens > 0);
    if (prompt->local_tokens == prompt->reach_tokens) {
        return prompt->local_tokens;
    }
    /* Nothing can be earlier than the engine with the least to compute. */
    if (yb_sched_flow_finish_ns(prompt, prompt->reach_tokens) <=
        prompt->start_ns +
            yb_sched_prefill_ns(prompt->cost, prompt->tokens, prompt->reach_tokens)) {
        return prompt->reach_tokens;
    }
    steps.first = prompt->local_tokens / prompt->step_tokens + 1;
    steps.count = 1 + (prompt->reach_tokens - 1) / prompt->step_tokens -
                  prompt->local_tokens / prompt->step_tokens;
    best.tokens = prompt->local_tokens;
    consider(&steps, 0, &best);
    consider(&steps, steps.count, &best);
    for (uint32_t i = 0; i < prompt->flow_count; i++) {
        uint32_t first = step_of(&steps, prompt->flows[i].first);
        uint32_t end = step_of(&steps, prompt->flows[i].end);

        consider(&steps, first, &best);
        consider(&steps, first + 1, &best);
        consider(&steps, end, &best);
        consider(&steps, end + 1, &best);
    }
    if (prompt->cost->pass_tokens > 0 && prompt->cost->pass_tokens < prompt->tokens) {
        consider_passes(&steps, &best);
    }
    consider_crossing(&steps, false, &best);
    consider_crossing(&steps, true, &best);
    return best.tokens;
}

static uint64_t
whole_ns(double ns)
{
    return ns < 0 ? 0 : ns < 9e18 ? (uint64_t)ns : UINT64_MAX;
}

struct yb_sched_split
yb_sched_split(const struct yb_sched_cost *cost, const struct yb_sched_loadable *loadable)
{
    struct yb_sched_prompt prompt = {
        .cost = cost,
        .tokens = loadable->tokens,
        .local_tokens = loadable->local_tokens,
        .reach_tokens = loadable->reach_tokens,
        .step_tokens = loadable->step_tokens,
        .start_ns = (double)loadable->start_ns,
        .flow_count = 1,
    };
    struct yb_sched_split split;

    prompt.flows[0] = (struct yb_sched_flow){
        .first = loadable->local_tokens,
        .end = loadable->reach_tokens,
        .base_ns = (double)loadable->base_ns,
        .token_ns = (double)cost->kv_bytes / loadable->rate * 1e9,
    };
    split.reuse_tokens = yb_sched_flow_split(&prompt);
    split.load_ns = whole_ns(yb_sched_flow_load_ns(&prompt, split.reuse_tokens));
    split.prefill_ns = whole_ns(yb_sched_prefill_ns(cost, loadable->tokens, split.reuse_tokens));
    split.finish_ns = whole_ns(yb_sched_flow_finish_ns(&prompt, split.reuse_tokens));
    return split;
}
