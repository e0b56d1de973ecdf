/* SPDX-License-Identifier: Apache-2.0
 *
 * Mooncake (FAST'25): Eq. 2, Fig. 5, Fig. 8, Fig. 13.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "sim/paper.h"

#define PAPER        "Mooncake"
#define CONVERSATION "conversation_trace"
#define SYNTHETIC    "synthetic_trace"
#define SURROGATE    "toolagent_surrogate"
#define NO_TRACE     "the trace is not there"
#define ORDER_SHARE  0.03
#define FIGURE_5     0.25
#define FIGURE_8     0.10
#define FIGURE_13    0.25

/* ---- Eq. 2 ----------------------------------------------------------------------------------- */

/* Reuse of p tokens saves time if loads reach B > G 2 d s / (gqa (a p d + b d^2)): its constants
 * for LLaMA3-70B, G of 8 devices. */
static double
equation_2(double flops, double p)
{
    const double d = 8192;
    const double gqa = 8;
    const double s = 2;
    const double a = 4;
    const double b = 22;

    return flops * 2 * d * s / (gqa * (a * p * d + b * d * d));
}

static enum yb_status
add_equation_2(struct yb_papers *papers)
{
    static const struct {
        const char *gpu;
        const char *what;
        double published;
    } rows[] = {{"a800", "GB/s for 8192 tokens, 8xA800", 6},
                {"h800", "GB/s for 8192 tokens, 8xH800", 19}};
    struct yb_sched_catalog *catalog;
    enum yb_status status = yb_sched_catalog_create(&catalog);

    if (status != YB_OK) {
        return status;
    }
    for (unsigned i = 0; i < 2; i++) {
        const struct yb_sched_gpu *gpu = yb_sched_catalog_find_gpu(catalog, rows[i].gpu);
        struct yb_paper_row row = {.paper = PAPER,
                                   .figure = "Eq. 2",
                                   .what = rows[i].what,
                                   .published = rows[i].published};

        YB_ASSERT(gpu != NULL);
        row.ours = equation_2(8 * gpu->flops, 8192) / 1e9;
        /* It is published in whole GB/s. */
        yb_paper_add_within(papers, row, -0.5, 0.5);
    }
    yb_sched_catalog_destroy(&catalog);
    return YB_OK;
}

/* ---- Fig. 5 ---------------------------------------------------------------------------------- */

#define FIGURE_5_POLICIES 4u

static enum yb_status
mean_ttft(struct yb_papers *papers, const char *section, const struct yb_paper_change *changes,
          const struct yb_trace *trace, double *mean_s_out)
{
    struct yb_result result;
    enum yb_status status = yb_paper_run(papers, section, changes, trace, &result);

    if (status == YB_OK) {
        *mean_s_out = result.ttft.mean_ns / 1e9;
        yb_result_fini(&result);
    }
    return status;
}

/* Mean times to the first token of the four policies, with a pool or with nothing kept. */
static enum yb_status
figure_5_means(struct yb_papers *papers, const struct yb_trace *trace, const char *pool,
               double means_out[FIGURE_5_POLICIES])
{
    static const char *const policies[] = {"random", "least-load", "cache-local", "mooncake"};
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < FIGURE_5_POLICIES && status == YB_OK; i++) {
        struct yb_paper_change changes[] = {
            {"policy", policies[i]}, {pool == NULL ? NULL : "pool", pool}, {NULL, NULL}};

        status = mean_ttft(papers, "mooncake-figure-5", changes, trace, &means_out[i]);
    }
    return status;
}

static enum yb_status
add_figure_5(struct yb_papers *papers)
{
    static const double published[] = {19.65, 5.27, 3.58, 3.07};
    static const char *const whats[] = {"mean TTFT, random / global",
                                        "mean TTFT, load balance / global",
                                        "mean TTFT, local cache-aware / global"};
    struct yb_paper_row row = {
        .paper = PAPER, .figure = "Fig. 5", .what = "mean TTFT by policy, conversation"};
    struct yb_paper_order order = {
        .names = {"random", "load", "local", "global"}, .count = 4, .share = ORDER_SHARE};
    const struct yb_trace *trace;
    enum yb_status status = yb_paper_trace(papers, CONVERSATION, 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = figure_5_means(papers, trace, NULL, order.with);
    }
    if (status == YB_OK) {
        status = figure_5_means(papers, trace, "0", order.without);
    }
    if (status != YB_OK) {
        return status;
    }
    yb_paper_add_order(papers, row, &order);
    for (unsigned i = 0; i < 3; i++) {
        row.what = whats[i];
        row.published = published[i] / published[3];
        row.ours = order.with[i] / order.with[3];
        yb_paper_add_ratio(papers, row, FIGURE_5);
    }
    return YB_OK;
}

/* ---- Fig. 8 ---------------------------------------------------------------------------------- */

static enum yb_status
add_figure_8_row(struct yb_papers *papers, const char *trace_name, const char *section,
                 const char *what, double published)
{
    struct yb_paper_row row = {.paper = PAPER,
                               .figure = "Fig. 8",
                               .what = what,
                               .published = published,
                               .surrogate = strcmp(trace_name, SURROGATE) == 0};
    const struct yb_trace *trace;
    struct yb_result result;
    enum yb_status status = yb_paper_trace(papers, trace_name, 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = yb_paper_run(papers, section, NULL, trace, &result);
    }
    if (status == YB_OK) {
        row.ours = result.prefill_ns / 1e9 / result.done;
        yb_result_fini(&result);
        yb_paper_add_ratio(papers, row, FIGURE_8);
    }
    return status;
}

static enum yb_status
add_figure_8(struct yb_papers *papers)
{
    static const struct {
        const char *trace;
        const char *section;
        const char *what;
        double published;
    } rows[] = {
        {CONVERSATION, "mooncake-figure-8", "GPU s, conversation, Mooncake", 1.06},
        {CONVERSATION, "mooncake-figure-8-prefix", "GPU s, conversation, prefix caching", 1.52},
        {CONVERSATION, "mooncake-figure-8-none", "GPU s, conversation, no cache", 1.66},
        {SYNTHETIC, "mooncake-figure-8", "GPU s, synthetic, Mooncake", 0.73},
        {SYNTHETIC, "mooncake-figure-8-prefix", "GPU s, synthetic, prefix caching", 1.90},
        {SYNTHETIC, "mooncake-figure-8-none", "GPU s, synthetic, no cache", 2.02},
        {SURROGATE, "mooncake-figure-8", "GPU s, tool & agent, Mooncake", 0.53},
        {SURROGATE, "mooncake-figure-8-prefix", "GPU s, tool & agent, prefix caching", 0.74},
        {SURROGATE, "mooncake-figure-8-none", "GPU s, tool & agent, no cache", 1.12},
    };
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]) && status == YB_OK; i++) {
        status = add_figure_8_row(papers, rows[i].trace, rows[i].section, rows[i].what,
                                  rows[i].published);
    }
    return status;
}

/* ---- Fig. 13 --------------------------------------------------------------------------------- */

static const double gbits[] = {24, 36, 48, 100, 200, 400};
#define GBITS (sizeof(gbits) / sizeof(gbits[0]))

static enum yb_status
figure_13_means(struct yb_papers *papers, const char *section, const struct yb_trace *trace,
                double means_out[GBITS])
{
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < GBITS && status == YB_OK; i++) {
        char net[32];
        struct yb_paper_change changes[] = {{"net", net}, {NULL, NULL}};

        snprintf(net, sizeof(net), "%gG", gbits[i]);
        status = mean_ttft(papers, section, changes, trace, &means_out[i]);
    }
    return status;
}

/* Return where the curve falls through a level, between points in a straight line; 0: nowhere. */
static double
crossing(const double means[GBITS], double level)
{
    for (unsigned i = 1; i < GBITS; i++) {
        if (means[i - 1] >= level && means[i] < level) {
            double share = (means[i - 1] - level) / (means[i - 1] - means[i]);

            return gbits[i - 1] + share * (gbits[i] - gbits[i - 1]);
        }
    }
    return 0;
}

static enum yb_status
add_figure_13(struct yb_papers *papers)
{
    struct yb_paper_row row = {.paper = PAPER,
                               .figure = "Fig. 13",
                               .what = "Gbit/s from which reuse beats computing, synthetic",
                               .published = 45};
    struct yb_paper_order order = {
        .names = {"24G", "compute", "100G", "400G"}, .count = 4, .share = ORDER_SHARE};
    const struct yb_trace *trace;
    double with[GBITS];
    double without[GBITS];
    double compute_s;
    enum yb_status status = yb_paper_trace(papers, SYNTHETIC, 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = mean_ttft(papers, "mooncake-figure-13-recompute", NULL, trace, &compute_s);
    }
    if (status == YB_OK) {
        status = figure_13_means(papers, "mooncake-figure-13", trace, with);
    }
    if (status == YB_OK) {
        status = figure_13_means(papers, "mooncake-figure-13-recompute", trace, without);
    }
    if (status != YB_OK) {
        return status;
    }
    row.ours = crossing(with, compute_s);
    yb_paper_add_ratio(papers, row, FIGURE_13);
    for (unsigned i = 0; i < 2; i++) {
        const double *means = i == 0 ? with : without;
        double *values = i == 0 ? order.with : order.without;

        values[0] = means[0];
        values[1] = compute_s;
        values[2] = means[3];
        values[3] = means[5];
    }
    row.what = "mean TTFT by bandwidth, synthetic";
    yb_paper_add_order(papers, row, &order);
    return YB_OK;
}

enum yb_status
yb_paper_mooncake(struct yb_papers *papers)
{
    enum yb_status status = add_equation_2(papers);

    if (status == YB_OK) {
        status = add_figure_5(papers);
    }
    if (status == YB_OK) {
        status = add_figure_8(papers);
    }
    if (status == YB_OK) {
        status = add_figure_13(papers);
    }
    return status;
}
