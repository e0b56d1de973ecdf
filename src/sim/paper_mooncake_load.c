/* SPDX-License-Identifier: Apache-2.0
 *
 * Mooncake under load: the split of nodes between prefill and decode (FAST'25, Fig. 15) and early
 * rejection (arXiv 2407.00079 v3, Table 3 and Fig. 9).
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "sim/paper.h"

#define PAPER     "Mooncake"
#define NO_TRACE  "the trace is not there"
#define SURROGATE "toolagent_surrogate"

/* ---- Fig. 15 --------------------------------------------------------------------------------- */

#define SPLITS          7u
#define FIGURE_15       10.0 /* Points. */
#define FIGURE_15_SHARE 0.005

static double
attained_percent(const struct yb_result *result, double ttft_s, double tpot_ms)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < result->requests; i++) {
        count += result->ttft_ns[i] > 0 && (double)result->ttft_ns[i] <= ttft_s * 1e9 &&
                 (double)result->tpot_ns[i] <= tpot_ms * 1e6;
    }
    return 100.0 * count / result->requests;
}

static enum yb_status
figure_15_run(struct yb_papers *papers, const struct yb_trace *trace, unsigned prefill,
              double *percent_out)
{
    const char *section = "mooncake-figure-15";
    struct yb_result result;
    char instances[16];
    char decode[16];
    struct yb_paper_change changes[] = {{"instances", instances}, {"decode", decode}, {NULL, NULL}};
    double ttft_s;
    double tpot_ms;
    enum yb_status status = yb_paper_numbers(
        papers, "numbers-mooncake-figure-15",
        (const struct yb_paper_number[]){{"ttft-s", &ttft_s}, {"tpot-ms", &tpot_ms}, {NULL, NULL}});

    snprintf(instances, sizeof(instances), "%u", prefill);
    snprintf(decode, sizeof(decode), "%u", 16 - prefill);
    if (status == YB_OK) {
        status = yb_paper_run(papers, section, changes, trace, &result);
    }
    if (status == YB_OK) {
        *percent_out = attained_percent(&result, ttft_s, tpot_ms);
        yb_result_fini(&result);
    }
    return status;
}

static enum yb_status
add_figure_15(struct yb_papers *papers)
{
    static const double published[SPLITS] = {78, 97, 99, 99, 99, 98, 86};
    static const char *const whats[SPLITS] = {
        "% in time, 5P11D, synthetic", "% in time, 6P10D, synthetic", "% in time, 7P9D, synthetic",
        "% in time, 8P8D, synthetic",  "% in time, 9P7D, synthetic",  "% in time, 10P6D, synthetic",
        "% in time, 11P5D, synthetic"};
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "Fig. 15", .what = "% in time by nodes, synthetic"};
    const struct yb_trace *trace;
    enum yb_status status = yb_paper_trace(papers, "synthetic_trace", 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    for (unsigned i = 0; i < SPLITS && status == YB_OK; i++) {
        status = figure_15_run(papers, trace, 5 + i, &row.ours);
        if (status == YB_OK) {
            row.what = whats[i];
            row.published = published[i];
            yb_paper_add_within(papers, row, -FIGURE_15, FIGURE_15);
        }
    }
    return status;
}

/* ---- early rejection ------------------------------------------------------------------------- */

enum figure { REJECTED, IN_VAIN, SWING, FIGURES };
#define ADMISSIONS 3u

/* What the count of Table 3 cannot show here. */
#define ALL_PASS \
    "here what is refused costs its prefill alone: letting in more never starves decode"

/* Return how unevenly requests are let in: the deviation of the share that is, from one part of the
 * trace to the next. */
static double
swing_of(const struct yb_trace *trace, const struct yb_result *result, double part_s)
{
    double previous = -1;
    double sum = 0;
    uint32_t parts = 0;
    uint32_t i = 0;

    while (i < trace->request_count) {
        uint64_t part = (uint64_t)((double)trace->requests[i].arrival_ns / (part_s * 1e9));
        uint32_t all = 0;
        uint32_t in = 0;

        for (; i < trace->request_count &&
               (uint64_t)((double)trace->requests[i].arrival_ns / (part_s * 1e9)) == part;
             i++) {
            all++;
            in += result->ttft_ns[i] > 0;
        }
        if (previous >= 0) {
            sum += fabs((double)in / all - previous);
            parts++;
        }
        previous = (double)in / all;
    }
    return parts == 0 ? 0 : sum / parts;
}

static enum yb_status
early_run(struct yb_papers *papers, const struct yb_trace *trace, const char *admission,
          double figures_out[FIGURES])
{
    struct yb_paper_change changes[] = {{"admission", admission}, {NULL, NULL}};
    struct yb_result result;
    double part_s = yb_paper_number(papers, "numbers-mooncake-early", "part-s", 10);
    enum yb_status status = yb_paper_run(papers, "mooncake-early", changes, trace, &result);

    if (status == YB_OK) {
        figures_out[REJECTED] = result.rejected;
        figures_out[IN_VAIN] = (double)result.wasted_tokens / 1e6;
        figures_out[SWING] = swing_of(trace, &result, part_s);
        yb_result_fini(&result);
    }
    return status;
}

static void
add_early_row(struct yb_papers *papers, struct yb_paper_row row, enum figure figure,
              double figures[ADMISSIONS][FIGURES])
{
    struct yb_paper_order order = {
        .names = {"late", "early", "predicted"}, .count = ADMISSIONS, .share = 0.01};

    for (unsigned i = 0; i < ADMISSIONS; i++) {
        order.with[i] = figures[i][figure];
        order.without[i] = figures[0][figure];
    }
    if (figure == SWING) { /* Only the two that look at decode can swing by it. */
        order.names[0] = order.names[1];
        order.names[1] = order.names[2];
        order.with[0] = order.with[1];
        order.with[1] = order.with[2];
        order.without[0] = order.without[1] = order.with[0];
        order.count = 2;
    }
    yb_paper_add_order(papers, row, &order);
    if (figure == REJECTED) {
        yb_paper_explain(papers, ALL_PASS);
    }
}

static enum yb_status
add_early(struct yb_papers *papers)
{
    static const char *const names[ADMISSIONS] = {"late", "early", "early-predicted"};
    static const char *const whats[FIGURES] = {"requests rejected", "M tokens prefilled in vain",
                                               "share let in, change from part to part"};
    static const char *const figures_of[FIGURES] = {"Table 3", "Table 3", "Fig. 9 of v3"};
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "Table 3", .what = whats[0], .surrogate = true};
    double speed = yb_paper_number(papers, "mooncake-early", "speed", 1);
    double figures[ADMISSIONS][FIGURES];
    const struct yb_trace *trace;
    enum yb_status status = yb_paper_trace(papers, SURROGATE, speed, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    for (unsigned i = 0; i < ADMISSIONS && status == YB_OK; i++) {
        status = early_run(papers, trace, names[i], figures[i]);
    }
    for (unsigned i = 0; i < FIGURES && status == YB_OK; i++) {
        row.what = whats[i];
        row.figure = figures_of[i];
        add_early_row(papers, row, (enum figure)i, figures);
    }
    return status;
}

enum yb_status
yb_paper_mooncake_load(struct yb_papers *papers)
{
    enum yb_status status = add_figure_15(papers);

    return status == YB_OK ? add_early(papers) : status;
}
