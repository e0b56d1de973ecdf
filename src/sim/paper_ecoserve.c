/* SPDX-License-Identifier: Apache-2.0
 *
 * EcoServe (OSDI'26): places that take turns between prefill and decode against places for each.
 * What is compared is goodput: the highest rate of requests (Poisson) at which 90 % of all get
 * their first token and their others in time.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim/paper.h"
#include "sim/random.h"
#include "sim/trace_internal.h"

#define PAPER   "EcoServe"
#define NUMBERS "numbers-ecoserve"
#define SHARE   0.01

/* Of an engine, and of its port: so that KV is nothing, or much. */
#define FAST_NET "100T"
#define SLOW_NET "1G"
#define NO_LIMIT "0"

/* What is known of a row that is not ok: that of the largest model. */
#define LARGE_MODEL \
    "KV does not decide: a prompt's 113 MB pass the network faster than it is computed"

enum serving { SLICED, APART };

struct load {
    double requests; /* At least so many, ... */
    double seconds;  /* ... for at least so long. */
    double warm_s;   /* Who comes so early or so late does not count. */
    double input;
    double output;
    double sigma;
    double seed;
    double attained;
    double ttft_s;
    double tpot_ms;
};

/* What is compared: models on a cluster. */
struct cell {
    const char *section;
    const char *model;
    const char *net;  /* NULL: the section's. */
    const char *room; /* Likewise. */
    const char *figure;
    const char *what;
    bool apart_wins;
};

static enum yb_status
read_load(struct yb_papers *papers, struct load *load)
{
    return yb_paper_numbers(papers, NUMBERS,
                            (const struct yb_paper_number[]){{"requests", &load->requests},
                                                             {"seconds", &load->seconds},
                                                             {"warm-s", &load->warm_s},
                                                             {"input-tokens", &load->input},
                                                             {"output-tokens", &load->output},
                                                             {"sigma", &load->sigma},
                                                             {"seed", &load->seed},
                                                             {"attained", &load->attained},
                                                             {"ttft-s", &load->ttft_s},
                                                             {"tpot-ms", &load->tpot_ms},
                                                             {NULL, NULL}});
}

/* Lengths of a log-normal distribution with such a mean. */
static uint32_t
length(struct yb_sim_random *random, double mean, double sigma)
{
    return (uint32_t)fmax(1, mean * exp(sigma * yb_sim_random_normal(random) - sigma * sigma / 2));
}

/* Requests that share nothing. The same seed gives the same requests at every rate. */
static enum yb_status
make_trace(const struct load *load, double rate, struct yb_trace **trace_out)
{
    struct yb_sim_random random = {(uint64_t)load->seed};
    struct yb_trace_builder builder;
    uint32_t count = (uint32_t)fmax(load->requests, load->seconds * rate);
    double at_s = 0;
    uint64_t name = 0;
    enum yb_status status = yb_trace_builder_init(&builder);

    if (status != YB_OK) {
        return status;
    }
    builder.trace->block_tokens = 512;
    for (uint32_t i = 0; i < count && status == YB_OK; i++) {
        struct yb_trace_request request = {.arrival_ns = (uint64_t)(at_s * 1e9)};

        request.input_tokens = length(&random, load->input, load->sigma);
        request.output_tokens = 1 + length(&random, load->output, load->sigma);
        at_s += yb_sim_random_exponential(&random, 1 / rate);
        status = yb_trace_builder_request(&builder, &request);
        for (uint32_t at = 0; at < request.input_tokens && status == YB_OK; at += 512) {
            status = yb_trace_builder_block(&builder, ++name);
        }
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&builder);
    }
    yb_trace_builder_fini(&builder);
    return status;
}

/* Whether a request got its tokens in time. What lies between its prefill and its first step of
 * decode (the rest of a window of prefills, or of its KV's way) counts as the paper has it: to the
 * first token, "TTFT includes phase-switch wait". */
static bool
is_in_time(const struct load *load, const struct yb_result *result, uint32_t index, uint32_t output)
{
    double turn_ns = (double)result->turn_ns[index];
    double steps = fmax(1, output - 1.0);

    return result->ttft_ns[index] > 0 &&
           (double)result->ttft_ns[index] + turn_ns <= load->ttft_s * 1e9 &&
           (double)result->tpot_ns[index] - turn_ns / steps <= load->tpot_ms * 1e6;
}

/* Whether enough of the requests got their tokens in time, of those that came when the places were
 * as full as they get: an answer takes some 20 s, and a cluster that fills up serves any rate. */
static bool
is_served(const struct load *load, const struct yb_trace *trace, const struct yb_result *result)
{
    double end_s = (double)trace->requests[trace->request_count - 1].arrival_ns / 1e9;
    uint32_t counted = 0;
    uint32_t in_time = 0;

    for (uint32_t i = 0; i < result->requests; i++) {
        double at_s = (double)trace->requests[i].arrival_ns / 1e9;

        if (at_s >= load->warm_s && at_s <= end_s - load->warm_s) {
            counted++;
            in_time += is_in_time(load, result, i, trace->requests[i].output_tokens);
        }
    }
    return in_time >= load->attained * counted;
}

/* One way to serve, as changes of the section. `split` engines of all prefill (APART). */
static enum yb_status
serve_at(struct yb_papers *papers, const struct cell *cell, enum serving serving, uint32_t split,
         double rate, bool *served_out)
{
    struct load load;
    char prefill[16];
    char decode[16];
    struct yb_paper_change changes[YB_PAPER_CHANGES_MAX] = {{"model", cell->model}};
    uint32_t count = 1;
    struct yb_trace *trace;
    struct yb_result result;
    double all = yb_paper_number(papers, cell->section, "instances", 1);
    enum yb_status status = read_load(papers, &load);

    if (serving == APART) {
        snprintf(prefill, sizeof(prefill), "%u", split);
        snprintf(decode, sizeof(decode), "%u", (uint32_t)all - split);
        changes[count++] = (struct yb_paper_change){"mode", "disaggregated"};
        changes[count++] = (struct yb_paper_change){"instances", prefill};
        changes[count++] = (struct yb_paper_change){"decode", decode};
    } else {
        changes[count++] = (struct yb_paper_change){"mode", "time-sliced"};
        changes[count++] = (struct yb_paper_change){"policy", "rolling"};
    }
    if (cell->net != NULL) {
        changes[count++] = (struct yb_paper_change){"net", cell->net};
    }
    if (cell->room != NULL) {
        changes[count++] = (struct yb_paper_change){"device-room", cell->room};
    }
    changes[count] = (struct yb_paper_change){NULL, NULL};
    if (status == YB_OK) {
        status = make_trace(&load, rate, &trace);
    }
    if (status == YB_OK) {
        status = yb_paper_run(papers, cell->section, changes, trace, &result);
        if (status == YB_OK) {
            *served_out = is_served(&load, trace, &result);
            yb_result_fini(&result);
        }
        yb_trace_destroy(&trace);
    }
    return status;
}

/* The highest rate that is served: doubled until it is not, then halved to 2 %. */
static enum yb_status
goodput_of(struct yb_papers *papers, const struct cell *cell, enum serving serving, uint32_t split,
           double *rate_out)
{
    double low = 0;
    double high = 0.25;
    bool served = true;
    enum yb_status status = YB_OK;

    while (status == YB_OK && served && high < 1e4) {
        status = serve_at(papers, cell, serving, split, high, &served);
        if (served) {
            low = high;
            high *= 2;
        }
    }
    while (status == YB_OK && low > 0 && high - low > 0.02 * low) {
        double middle = (low + high) / 2;

        status = serve_at(papers, cell, serving, split, middle, &served);
        if (served) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *rate_out = low;
    return status;
}

/* For APART, of the best split. */
static enum yb_status
goodput(struct yb_papers *papers, const struct cell *cell, enum serving serving, double *rate_out)
{
    uint32_t all = (uint32_t)yb_paper_number(papers, cell->section, "instances", 1);
    enum yb_status status = YB_OK;

    if (serving != APART) {
        return goodput_of(papers, cell, serving, 0, rate_out);
    }
    *rate_out = 0;
    for (uint32_t split = 1; split < all && status == YB_OK; split++) {
        double rate;

        status = goodput_of(papers, cell, serving, split, &rate);
        *rate_out = fmax(*rate_out, rate);
    }
    return status;
}

/* Goodput of both ways; where KV costs something, and where it does not: any network, any room. */
static enum yb_status
add_cell(struct yb_papers *papers, const struct cell *cell)
{
    struct cell free_kv = *cell;
    struct yb_paper_row row = {.paper = PAPER, .figure = cell->figure, .what = cell->what};
    enum serving first = cell->apart_wins ? APART : SLICED;
    enum serving second = cell->apart_wins ? SLICED : APART;
    struct yb_paper_order order = {
        .names = {cell->apart_wins ? "apart" : "sliced", cell->apart_wins ? "sliced" : "apart"},
        .count = 2,
        .share = SHARE};
    enum yb_status status = goodput(papers, cell, first, &order.with[0]);

    /* What decides: a network that carries KV as if it were nothing, or one that does not. */
    free_kv.net = cell->apart_wins ? SLOW_NET : FAST_NET;
    free_kv.room = cell->apart_wins ? NULL : NO_LIMIT;
    if (status == YB_OK) {
        status = goodput(papers, cell, second, &order.with[1]);
    }
    if (status == YB_OK) {
        status = goodput(papers, &free_kv, first, &order.without[0]);
    }
    if (status == YB_OK) {
        status = goodput(papers, &free_kv, second, &order.without[1]);
    }
    if (status == YB_OK) {
        yb_paper_add_order(papers, row, &order);
        yb_paper_explain(papers, LARGE_MODEL);
    }
    return status;
}

/* ---- the crossover --------------------------------------------------------------------------- */

static const char *const nets[] = {"1G", "2G", "5G", "10G", "25G", "50G", "100G", "200G", "400G"};
#define NETS (sizeof(nets) / sizeof(nets[0]))

/* The first of the networks on which places for each serve more than places that take turns. */
static enum yb_status
crossover(struct yb_papers *papers, struct cell cell, double *gbits_out)
{
    double sliced;
    double apart = 0;
    enum yb_status status = goodput(papers, &cell, SLICED, &sliced);

    *gbits_out = INFINITY;
    for (unsigned i = 0; i < NETS && status == YB_OK; i++) {
        cell.net = nets[i];
        status = goodput(papers, &cell, APART, &apart);
        if (status == YB_OK && apart > sliced) {
            *gbits_out = strtod(nets[i], NULL);
            break;
        }
    }
    return status;
}

static enum yb_status
add_crossover(struct yb_papers *papers)
{
    static const struct cell mha = {.section = "ecoserve-l20-room", .model = "llama-30b"};
    static const struct cell gqa = {.section = "ecoserve-l20-room", .model = "codellama-34b"};
    struct yb_paper_row row = {
        .paper = PAPER,
        .figure = "crossover",
        .what = "Gbit/s of an engine from which places for each serve more: KV of 1560, 192 KiB"};
    struct yb_paper_order order = {.names = {"MHA", "GQA"}, .count = 2, .share = SHARE};
    enum yb_status status = crossover(papers, mha, &order.with[0]);

    if (status == YB_OK) {
        status = crossover(papers, gqa, &order.with[1]);
    }
    order.without[0] = order.without[1] = order.with[1]; /* The same KV for both. */
    if (status == YB_OK) {
        yb_paper_add_order(papers, row, &order);
    }
    return status;
}

enum yb_status
yb_paper_ecoserve(struct yb_papers *papers)
{
    static const struct cell cells[] = {
        {.section = "ecoserve-l20",
         .model = "llama-30b",
         .figure = "L20, 10 GbE",
         .what = "requests/s in time, Llama-30B"},
        {.section = "ecoserve-l20",
         .model = "codellama-34b",
         .figure = "L20, 10 GbE",
         .what = "requests/s in time, CodeLlama2-34B"},
        {.section = "ecoserve-l20-72b",
         .model = "qwen2.5-72b",
         .figure = "L20, 10 GbE",
         .what = "requests/s in time, Qwen2-72B"},
        {.section = "ecoserve-h100",
         .model = "llama-30b",
         .figure = "H100, IB",
         .what = "requests/s in time, Llama-30B"},
        {.section = "ecoserve-h100",
         .model = "codellama-34b",
         .figure = "H100, IB",
         .what = "requests/s in time, CodeLlama2-34B",
         .apart_wins = true},
        {.section = "ecoserve-h100-72b",
         .model = "qwen2.5-72b",
         .figure = "H100, IB",
         .what = "requests/s in time, Qwen2-72B"},
    };
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < sizeof(cells) / sizeof(cells[0]) && status == YB_OK; i++) {
        status = add_cell(papers, &cells[i]);
    }
    return status == YB_OK ? add_crossover(papers) : status;
}
