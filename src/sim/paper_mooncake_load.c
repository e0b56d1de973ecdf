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

#define SPLITS    7u
#define FIGURE_15 10.0 /* Points. */

double
yb_paper_tbt_ns(double tpot_ns, double turn_ns, uint32_t output_tokens)
{
    double gaps = output_tokens < 2 ? 0 : output_tokens - 1;

    return gaps < 1 ? 0 : tpot_ns - turn_ns / gaps + turn_ns / ceil(gaps / 10);
}

/* What came of a split. */
struct split {
    double attained_percent;
    double ttft_s; /* Means. */
    double tbt_ms;
};

static struct split
split_of(const struct yb_result *result, const struct yb_trace *trace, double ttft_s, double tbt_ms)
{
    struct split split = {.ttft_s = result->ttft.mean_ns / 1e9};
    uint32_t count = 0;

    for (uint32_t i = 0; i < result->requests; i++) {
        double ns = yb_paper_tbt_ns((double)result->tpot_ns[i], (double)result->turn_ns[i],
                                    trace->requests[i].output_tokens);

        split.tbt_ms += ns / 1e6 / result->requests;
        count += result->ttft_ns[i] > 0 && (double)result->ttft_ns[i] <= ttft_s * 1e9 &&
                 ns <= tbt_ms * 1e6;
    }
    split.attained_percent = 100.0 * count / result->requests;
    return split;
}

static enum yb_status
figure_15_run(struct yb_papers *papers, const struct yb_trace *trace, unsigned prefill,
              struct split *split_out)
{
    const char *section = "mooncake-figure-15";
    struct yb_result result;
    char instances[16];
    char decode[16];
    struct yb_paper_change changes[] = {{"instances", instances}, {"decode", decode}, {NULL, NULL}};
    double ttft_s;
    double tbt_ms;
    enum yb_status status = yb_paper_numbers(
        papers, "numbers-mooncake-figure-15",
        (const struct yb_paper_number[]){{"ttft-s", &ttft_s}, {"tbt-ms", &tbt_ms}, {NULL, NULL}});

    snprintf(instances, sizeof(instances), "%u", prefill);
    snprintf(decode, sizeof(decode), "%u", 16 - prefill);
    if (status == YB_OK) {
        status = yb_paper_run(papers, section, changes, trace, &result);
    }
    if (status == YB_OK) {
        *split_out = split_of(&result, trace, ttft_s, tbt_ms);
        yb_result_fini(&result);
    }
    return status;
}

/* Say of the split with the fewest to decode where it differs: its published means are 1.1 s and
 * 58 ms. With the most to decode they are 5.8 s and 31 ms, and ours as much. */
static void
explain_figure_15(struct yb_papers *papers, const struct split *split)
{
    char reason[YB_PAPER_TEXT_MAX];

    snprintf(reason, sizeof(reason),
             "TTFT %.2f s (paper: 1.1), TBT %.0f ms (58): it decodes slower than its Fig. 14",
             fmin(split->ttft_s, 1e4), fmin(split->tbt_ms, 1e4));
    yb_paper_explain(papers, reason);
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
    struct split split;
    const struct yb_trace *trace;
    enum yb_status status = yb_paper_trace(papers, "synthetic_trace", 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    for (unsigned i = 0; i < SPLITS && status == YB_OK; i++) {
        status = figure_15_run(papers, trace, 5 + i, &split);
        if (status == YB_OK) {
            row.ours = split.attained_percent;
            row.what = whats[i];
            row.published = published[i];
            yb_paper_add_within(papers, row, -FIGURE_15, FIGURE_15);
        }
    }
    if (status == YB_OK) {
        explain_figure_15(papers, &split);
    }
    return status;
}

/* ---- early rejection ------------------------------------------------------------------------- */

enum figure { REJECTED, IN_VAIN, SWING, FIGURES, ANSWERED = FIGURES };
#define ADMISSIONS 3u

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
          double figures_out[FIGURES + 1])
{
    struct yb_paper_change changes[] = {{"admission", admission}, {NULL, NULL}};
    struct yb_result result;
    double part_s = yb_paper_number(papers, "numbers-mooncake-early", "part-s", 10);
    enum yb_status status = yb_paper_run(papers, "mooncake-early", changes, trace, &result);

    if (status == YB_OK) {
        figures_out[REJECTED] = result.rejected;
        figures_out[IN_VAIN] = (double)result.wasted_tokens / 1e6;
        figures_out[ANSWERED] = (double)result.output_tokens / 1e6;
        figures_out[SWING] = swing_of(trace, &result, part_s);
        yb_result_fini(&result);
    }
    return status;
}

static void
add_early_row(struct yb_papers *papers, struct yb_paper_row row, enum figure figure,
              double figures[ADMISSIONS][FIGURES + 1])
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
        char reason[YB_PAPER_TEXT_MAX];

        snprintf(
            reason, sizeof(reason),
            "decode is short, and `late` keeps it fullest: %.2f, %.2f, %.2f M tokens of answers",
            figures[0][ANSWERED], figures[1][ANSWERED], figures[2][ANSWERED]);
        yb_paper_explain(papers, reason);
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
    double figures[ADMISSIONS][FIGURES + 1];
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
