/* SPDX-License-Identifier: Apache-2.0
 *
 * LMetric (OSDI'26): a product instead of a weighted sum, and where the product goes wrong: more
 * want a prefix than those who have it can serve.
 */
#include <math.h>
#include <stdio.h>

#include "base/check.h"
#include "sim/paper.h"
#include "sim/random.h"
#include "sim/trace_internal.h"

#define PAPER    "LMetric"
#define NO_TRACE "the trace is not there"

/* ---- against fixed weights ------------------------------------------------------------------- */

static const char *const weights[] = {"0.1", "0.3", "0.5", "0.7", "0.9"};
#define WEIGHTS (sizeof(weights) / sizeof(weights[0]))

struct means {
    double ttft_s;
    double tpot_ms;
    double tpot_p99_ms;
    double avoided;
};

static enum yb_status
run(struct yb_papers *papers, const char *section, const struct yb_paper_change *changes,
    const struct yb_trace *trace, struct means *means_out)
{
    struct yb_result result;
    enum yb_status status = yb_paper_run(papers, section, changes, trace, &result);

    if (status == YB_OK) {
        *means_out = (struct means){.ttft_s = result.ttft.mean_ns / 1e9,
                                    .tpot_ms = result.tpot.mean_ns / 1e6,
                                    .tpot_p99_ms = (double)result.tpot.p99_ns / 1e6,
                                    .avoided = result.avoided};
        yb_result_fini(&result);
    }
    return status;
}

/* The least of all weights, in each figure by itself: more than one weight could give. */
static enum yb_status
best_of_weights(struct yb_papers *papers, const struct yb_trace *trace, struct means *best_out)
{
    struct means best = {.ttft_s = INFINITY, .tpot_ms = INFINITY};
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < WEIGHTS && status == YB_OK; i++) {
        struct yb_paper_change changes[] = {
            {"policy", "linear"}, {"weight", weights[i]}, {NULL, NULL}};
        struct means means;

        status = run(papers, "lmetric-weights", changes, trace, &means);
        if (status == YB_OK) {
            best.ttft_s = fmin(best.ttft_s, means.ttft_s);
            best.tpot_ms = fmin(best.tpot_ms, means.tpot_ms);
        }
    }
    *best_out = best;
    return status;
}

static enum yb_status
add_weights(struct yb_papers *papers, const char *trace_name, bool surrogate)
{
    static const char *const whats[] = {"mean TTFT, s: any weight of a sum, and the product",
                                        "mean TPOT, ms: any weight of a sum, and the product"};
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "fixed weights", .what = whats[0], .surrogate = surrogate};
    const struct yb_paper_change product[] = {{"policy", "lmetric"}, {NULL, NULL}};
    const struct yb_paper_change without[] = {{"policy", "linear"}, {NULL, NULL}};
    const struct yb_trace *trace;
    struct means best;
    struct means ours;
    struct means sum;
    enum yb_status status = yb_paper_trace(papers, trace_name, 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = best_of_weights(papers, trace, &best);
    }
    if (status == YB_OK) {
        status = run(papers, "lmetric-weights", product, trace, &ours);
    }
    if (status == YB_OK) {
        status = run(papers, "lmetric-weights", without, trace, &sum);
    }
    for (unsigned i = 0; i < 2 && status == YB_OK; i++) {
        struct yb_paper_order order = {
            .names = {"best sum", "product"},
            .with = {i == 0 ? best.ttft_s : best.tpot_ms, i == 0 ? ours.ttft_s : ours.tpot_ms},
            .without = {i == 0 ? best.ttft_s : best.tpot_ms, i == 0 ? sum.ttft_s : sum.tpot_ms},
            .count = 2,
            .share = 0.005};

        row.what = whats[i];
        yb_paper_add_order(papers, row, &order);
    }
    return status;
}

/* ---- the counter-example --------------------------------------------------------------------- */

struct burst {
    double requests;
    double rate;
    double share;
    double start_s;
    double prefix_blocks;
    double other_blocks;
    double output_tokens;
    double seed;
};

static uint64_t
name_of(uint32_t request, uint32_t block)
{
    struct yb_sim_random random = {((uint64_t)request << 32) + block};

    return yb_sim_random_next(&random);
}

/* Poisson arrivals. The first request has a long prefix, and from `start_s` on a share of all have
 * it, with one block of their own behind; the others share nothing. */
static enum yb_status
make_burst(const struct burst *burst, struct yb_trace **trace_out)
{
    struct yb_sim_random random = {(uint64_t)burst->seed};
    struct yb_trace_builder builder;
    double at_s = 0;
    enum yb_status status = yb_trace_builder_init(&builder);

    if (status != YB_OK) {
        return status;
    }
    builder.trace->block_tokens = 512;
    for (uint32_t i = 0; i < (uint32_t)burst->requests && status == YB_OK; i++) {
        bool drawn = yb_sim_random_unit(&random) < burst->share;
        bool hot = i == 0 || (drawn && at_s >= burst->start_s);
        uint32_t shared = hot ? (uint32_t)burst->prefix_blocks : 0;
        uint32_t blocks = hot ? shared + 1 : (uint32_t)burst->other_blocks;
        struct yb_trace_request request = {
            .arrival_ns = (uint64_t)(at_s * 1e9),
            .input_tokens = blocks * builder.trace->block_tokens,
            .output_tokens = (uint32_t)burst->output_tokens,
        };

        status = yb_trace_builder_request(&builder, &request);
        for (uint32_t j = 0; j < blocks && status == YB_OK; j++) {
            status = yb_trace_builder_block(&builder, name_of(j < shared ? 0 : i + 1, j));
        }
        at_s += yb_sim_random_exponential(&random, 1 / burst->rate);
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&builder);
    }
    yb_trace_builder_fini(&builder);
    return status;
}

static enum yb_status
read_burst(struct yb_papers *papers, struct burst *burst)
{
    return yb_paper_numbers(
        papers, "numbers-lmetric-burst",
        (const struct yb_paper_number[]){{"requests", &burst->requests},
                                         {"rate", &burst->rate},
                                         {"share", &burst->share},
                                         {"start-s", &burst->start_s},
                                         {"prefix-blocks", &burst->prefix_blocks},
                                         {"other-blocks", &burst->other_blocks},
                                         {"output-tokens", &burst->output_tokens},
                                         {"seed", &burst->seed},
                                         {NULL, NULL}});
}

static enum yb_status
add_burst(struct yb_papers *papers)
{
    const struct yb_paper_change off[] = {{"no-detector", "yes"}, {NULL, NULL}};
    struct yb_paper_row row = {.paper = PAPER, .figure = "counter-example"};
    struct yb_paper_order order = {
        .names = {"product alone", "with detector"}, .count = 2, .share = 0.05};
    struct yb_trace *trace = NULL;
    struct burst burst;
    struct means with;
    struct means without;
    enum yb_status status = read_burst(papers, &burst);

    if (status == YB_OK) {
        status = make_burst(&burst, &trace);
    }
    if (status == YB_OK) {
        status = run(papers, "lmetric-burst", NULL, trace, &with);
    }
    if (status == YB_OK) {
        status = run(papers, "lmetric-burst", off, trace, &without);
    }
    yb_trace_destroy(&trace);
    if (status != YB_OK) {
        return status;
    }
    row.what = "requests that go past one holder of a prefix, at least one";
    row.published = 1;
    row.ours = with.avoided;
    yb_paper_add_within(papers, row, 0, INFINITY);
    row.what = "P99 TPOT, ms: a prefix that more want than its holder can serve";
    order.with[0] = order.without[0] = order.without[1] = without.tpot_p99_ms;
    order.with[1] = with.tpot_p99_ms;
    yb_paper_add_order(papers, row, &order);
    return YB_OK;
}

enum yb_status
yb_paper_lmetric(struct yb_papers *papers)
{
    enum yb_status status = add_burst(papers);

    if (status == YB_OK) {
        status = add_weights(papers, "conversation_trace", false);
    }
    return status == YB_OK ? add_weights(papers, "toolagent_surrogate", true) : status;
}
