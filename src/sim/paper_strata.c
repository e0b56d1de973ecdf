/* SPDX-License-Identifier: Apache-2.0
 *
 * Strata (OSDI'26): batches of prefill that know what they load. Documents are asked about, each
 * several times: one question after the other (min distance), in any order (shuffle), or each
 * document once before the first comes again (max distance). Figure 11 adds one thing after the
 * other: large I/O, deferral of delay hits, balanced batches, decode in bubbles; figure 12 has
 * delay hits by how many requests come while a prompt is computed.
 */
#include <math.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim/batching.h"
#include "sim/paper.h"
#include "sim/random.h"
#include "sim/trace_internal.h"

#define PAPER        "Strata"
#define SECTION      "strata"
#define NUMBERS      "numbers-strata"
#define BLOCK_TOKENS 64u
#define SHARE        0.01

enum distance { MIN, SHUFFLE, MAX };

struct load {
    double documents;
    double queries;
    double document;
    double sigma;
    double query;
    double output;
    double rate;
    double batch_tokens;
    double batch_requests;
    double paged_share; /* Of the bus. */
    double seed;
};

/* What is switched on, one after the other. */
enum step { PAGED, LARGE_IO, DEFERRED, BALANCED, ALL, STEPS };

static enum yb_status
read_load(struct yb_papers *papers, struct load *load)
{
    return yb_paper_numbers(
        papers, NUMBERS,
        (const struct yb_paper_number[]){{"documents", &load->documents},
                                         {"queries", &load->queries},
                                         {"document-tokens", &load->document},
                                         {"sigma", &load->sigma},
                                         {"query-tokens", &load->query},
                                         {"output-tokens", &load->output},
                                         {"rate", &load->rate},
                                         {"batch-tokens", &load->batch_tokens},
                                         {"batch-requests", &load->batch_requests},
                                         {"paged-share", &load->paged_share},
                                         {"seed", &load->seed},
                                         {NULL, NULL}});
}

/* ---- the requests ---------------------------------------------------------------------------- */

/* Which document the requests ask about, in their order. */
static uint32_t *
order_of(const struct load *load, enum distance distance, struct yb_sim_random *random)
{
    uint32_t documents = (uint32_t)load->documents;
    uint32_t queries = (uint32_t)load->queries;
    uint32_t count = documents * queries;
    uint32_t *order = calloc(count, sizeof(*order));

    for (uint32_t i = 0; order != NULL && i < count; i++) {
        order[i] = distance == MAX ? i % documents : i / queries;
    }
    for (uint32_t i = count; order != NULL && distance == SHUFFLE && i > 1; i--) {
        uint32_t other = (uint32_t)yb_sim_random_below(random, i);
        uint32_t kept = order[i - 1];

        order[i - 1] = order[other];
        order[other] = kept;
    }
    return order;
}

/* A document and a question of its own behind it. */
static enum yb_status
add_question(struct yb_trace_builder *builder, const struct yb_trace_request *request,
             uint32_t document, uint32_t document_blocks, uint32_t question)
{
    uint32_t blocks = (request->input_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    enum yb_status status = yb_trace_builder_request(builder, request);

    for (uint32_t i = 0; i < blocks && status == YB_OK; i++) {
        bool own = i >= document_blocks;
        uint64_t what = own ? (1ull << 31) + question : document;

        status = yb_trace_builder_block(builder, 1 + (what << 32) + i);
    }
    return status;
}

/* Poisson arrivals. The same seed gives the same documents in each order. */
static enum yb_status
make_trace(const struct load *load, enum distance distance, struct yb_trace **trace_out)
{
    struct yb_sim_random random = {(uint64_t)load->seed};
    uint32_t count = (uint32_t)load->documents * (uint32_t)load->queries;
    uint32_t *order = order_of(load, distance, &random);
    struct yb_trace_builder builder;
    double at_s = 0;
    enum yb_status status;

    if (order == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_trace_builder_init(&builder);
    if (status != YB_OK) {
        free(order);
        return status;
    }
    builder.trace->block_tokens = BLOCK_TOKENS;
    for (uint32_t i = 0; i < count && status == YB_OK; i++) {
        struct yb_sim_random own = {((uint64_t)load->seed << 32) + order[i]};
        double length = load->document * exp(load->sigma * yb_sim_random_normal(&own) -
                                             load->sigma * load->sigma / 2);
        uint32_t blocks = 1 + (uint32_t)(length / BLOCK_TOKENS);
        struct yb_trace_request request = {.arrival_ns = (uint64_t)(at_s * 1e9),
                                           .input_tokens =
                                               blocks * BLOCK_TOKENS + (uint32_t)load->query,
                                           .output_tokens = (uint32_t)load->output};

        status = add_question(&builder, &request, order[i], blocks, i);
        at_s += yb_sim_random_exponential(&random, 1 / load->rate);
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&builder);
    }
    yb_trace_builder_fini(&builder);
    free(order);
    return status;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static enum yb_status
run(const struct yb_paper_engine *engine, const struct load *load, const struct yb_trace *trace,
    enum step step, struct yb_batching_result *result_out)
{
    struct yb_batching_options options = {
        .cost = &engine->cost,
        .load_bytes_per_s = engine->load_bytes_per_s * (step == PAGED ? load->paged_share : 1),
        .device_tokens = engine->cost.kv_tokens_max,
        .batch_tokens = (uint64_t)load->batch_tokens,
        .batch_requests = (uint32_t)load->batch_requests,
        .no_deferral = step < DEFERRED,
        .no_balance = step < BALANCED,
        .no_bubble = step < ALL,
    };

    return yb_batching_run(trace, &options, result_out);
}

/* ---- Fig. 11 --------------------------------------------------------------------------------- */

static enum yb_status
requests_per_s(const struct yb_paper_engine *engine, const struct load *load,
               enum distance distance, double rates_out[STEPS])
{
    struct yb_trace *trace = NULL;
    enum yb_status status = make_trace(load, distance, &trace);

    for (unsigned step = 0; step < STEPS && status == YB_OK; step++) {
        struct yb_batching_result result;

        status = run(engine, load, trace, (enum step)step, &result);
        if (status == YB_OK) {
            rates_out[step] = result.requests_per_s;
        }
    }
    yb_trace_destroy(&trace);
    return status;
}

static enum yb_status
add_figure_11(struct yb_papers *papers, const struct yb_paper_engine *engine,
              const struct load *load)
{
    static const char *const whats[] = {"requests/s, min distance: delay hits are deferred",
                                        "requests/s, shuffled: each step",
                                        "requests/s, max distance: each step"};
    struct yb_paper_row row = {.paper = PAPER, .figure = "Fig. 11"};
    double rates[MAX + 1][STEPS];
    enum yb_status status = YB_OK;

    for (unsigned i = MIN; i <= MAX && status == YB_OK; i++) {
        status = requests_per_s(engine, load, (enum distance)i, rates[i]);
    }
    for (unsigned i = MIN; i <= MAX && status == YB_OK; i++) {
        struct yb_paper_order order = {
            .names = {"all", "balanced", "large I/O", "paged"},
            .with = {rates[i][ALL], rates[i][BALANCED], rates[i][DEFERRED], rates[i][PAGED]},
            .without = {rates[i][DEFERRED], rates[i][DEFERRED], rates[i][DEFERRED],
                        rates[i][PAGED]},
            .count = 4,
            .share = SHARE};

        if (i == MIN) {
            order = (struct yb_paper_order){
                .names = {"deferred", "large I/O"},
                .with = {rates[i][DEFERRED], rates[i][LARGE_IO]},
                .without = {rates[i][LARGE_IO], rates[i][LARGE_IO]},
                .count = 2,
                .share = SHARE,
            };
        }
        row.what = whats[i];
        yb_paper_add_order(papers, row, &order);
    }
    return status;
}

/* ---- delay hits ------------------------------------------------------------------------------ */

/* How many requests compute nothing that another of their batch computes as well, as requests come
 * faster. */
static enum yb_status
add_delay_hits(struct yb_papers *papers, const struct yb_paper_engine *engine, struct load load)
{
    struct yb_paper_row row = {.paper = PAPER,
                               .figure = "Fig. 12",
                               .what = "% of requests without a delay hit missed, by their rate"};
    struct yb_paper_order order = {.names = {"1/16", "1/4", "1"}, .count = 3, .share = SHARE};
    double rate = load.rate;
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < order.count && status == YB_OK; i++) {
        struct yb_trace *trace = NULL;
        struct yb_batching_result result;

        load.rate = rate / (1 << 2 * (order.count - 1 - i));
        status = make_trace(&load, MIN, &trace);
        if (status == YB_OK) {
            status = run(engine, &load, trace, LARGE_IO, &result);
        }
        if (status == YB_OK) {
            order.with[i] = 100 * (1 - (double)result.missed / trace->request_count);
            status = run(engine, &load, trace, DEFERRED, &result);
        }
        if (status == YB_OK) {
            order.without[i] = 100 * (1 - (double)result.missed / trace->request_count);
        }
        yb_trace_destroy(&trace);
    }
    if (status == YB_OK) {
        yb_paper_add_order(papers, row, &order);
    }
    return status;
}

enum yb_status
yb_paper_strata(struct yb_papers *papers)
{
    struct yb_paper_engine engine;
    struct load load;
    enum yb_status status = read_load(papers, &load);

    if (status == YB_OK) {
        status = yb_paper_engine(papers, SECTION, &engine);
    }
    if (status == YB_OK) {
        status = add_figure_11(papers, &engine, &load);
    }
    return status == YB_OK ? add_delay_hits(papers, &engine, load) : status;
}
