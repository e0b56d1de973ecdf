/* SPDX-License-Identifier: Apache-2.0
 *
 * Mooncake: what a pool of so many tokens or blocks finds again. Fig. 9 of FAST'25, by tokens, one
 * request after the other; Table 1 of arXiv 2407.00079 v3, by blocks, on the surrogate.
 */
#include <math.h>

#include "sim/hit_table.h"
#include "sim/paper.h"

#define PAPER    "Mooncake"
#define NO_TRACE "the trace is not there"
#define ROUNDING 1e-9

/* ---- Fig. 9 ---------------------------------------------------------------------------------- */

struct curve {
    const char *trace;
    double below; /* The trace has whole blocks of 512 tokens, the paper counts finer. */
    double above;
    const char *whats[7];
    double published[7];
};

static const char *const capacities[7] = {"10Ktok", "100Ktok", "1Mtok",  "3Mtok",
                                          "10Mtok", "50Mtok",  "100Mtok"};

static const struct curve curves[] = {
    {"conversation_trace",
     -0.04,
     0.0,
     {"hit, conversation, 10 k tokens", "hit, conversation, 100 k tokens",
      "hit, conversation, 1 M tokens", "hit, conversation, 3 M tokens",
      "hit, conversation, 10 M tokens", "hit, conversation, 50 M tokens",
      "hit, conversation, 100 M tokens"},
     {0.045, 0.073, 0.087, 0.165, 0.327, 0.398, 0.400}},
    {"synthetic_trace",
     -0.015,
     0.015,
     {"hit, synthetic, 10 k tokens", "hit, synthetic, 100 k tokens", "hit, synthetic, 1 M tokens",
      "hit, synthetic, 3 M tokens", "hit, synthetic, 10 M tokens", "hit, synthetic, 50 M tokens",
      "hit, synthetic, 100 M tokens"},
     {0.000, 0.011, 0.146, 0.305, 0.590, 0.660, 0.660}},
};

static enum yb_status
add_point(struct yb_papers *papers, const struct curve *curve, unsigned point)
{
    struct yb_paper_row row = {.paper = PAPER,
                               .figure = "Fig. 9",
                               .what = curve->whats[point],
                               .published = curve->published[point]};
    struct yb_paper_change changes[] = {{"pool", capacities[point]}, {NULL, NULL}};
    const struct yb_trace *trace;
    struct yb_result result;
    double speed = yb_paper_number(papers, "mooncake-figure-9", "speed", 1);
    enum yb_status status = yb_paper_trace(papers, curve->trace, speed, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = yb_paper_run(papers, "mooncake-figure-9", changes, trace, &result);
    }
    if (status == YB_OK) {
        row.ours = yb_result_hit(&result);
        yb_result_fini(&result);
        yb_paper_add_within(papers, row, curve->below, curve->above);
    }
    return status;
}

/* ---- Table 1 --------------------------------------------------------------------------------- */

struct policy {
    const char *name;
    const char *whats[6];
    double published[6];
};

static const uint64_t blocks[6] = {0, 100000, 50000, 30000, 10000, 1000};

static const struct policy policies[] = {
    {"lru",
     {"hit, LRU, infinite", "hit, LRU, 100,000 blocks", "hit, LRU, 50,000 blocks",
      "hit, LRU, 30,000 blocks", "hit, LRU, 10,000 blocks", "hit, LRU, 1,000 blocks"},
     {0.51, 0.51, 0.50, 0.48, 0.40, 0.30}},
    {"lfu",
     {"hit, LFU, infinite", "hit, LFU, 100,000 blocks", "hit, LFU, 50,000 blocks",
      "hit, LFU, 30,000 blocks", "hit, LFU, 10,000 blocks", "hit, LFU, 1,000 blocks"},
     {0.51, 0.51, 0.49, 0.43, 0.35, 0.30}},
    {"length-aware",
     {"hit, LengthAware, infinite", "hit, LengthAware, 100,000 blocks",
      "hit, LengthAware, 50,000 blocks", "hit, LengthAware, 30,000 blocks",
      "hit, LengthAware, 10,000 blocks", "hit, LengthAware, 1,000 blocks"},
     {0.51, 0.50, 0.48, 0.42, 0.35, 0.30}},
};

static enum yb_status
add_cell(struct yb_papers *papers, const struct policy *policy, unsigned cell)
{
    struct yb_paper_row row = {.paper = PAPER,
                               .figure = "Table 1",
                               .what = policy->whats[cell],
                               .published = policy->published[cell],
                               .surrogate = true};
    struct yb_hit_case one = {
        .policy = policy->name, .blocks = blocks[cell], .tags = YB_HIT_TAGS_POSITION};
    const struct yb_trace *trace;
    struct yb_hit_result result;
    enum yb_status status = yb_paper_trace(papers, "toolagent_surrogate", 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = yb_hit_run(trace, &one, &result);
    }
    if (status == YB_INVALID) {
        yb_paper_add_missing(papers, row, "there is no such policy");
        return YB_OK;
    }
    if (status == YB_OK) {
        row.ours = round(result.prefix_hit * 100) / 100; /* As it is published: two digits. */
        yb_paper_add_within(papers, row, -0.05 - ROUNDING, 0.05 + ROUNDING);
    }
    return status;
}

enum yb_status
yb_paper_mooncake_cache(struct yb_papers *papers)
{
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < 2 * 7 && status == YB_OK; i++) {
        status = add_point(papers, &curves[i / 7], i % 7);
    }
    for (unsigned i = 0; i < 3 * 6 && status == YB_OK; i++) {
        status = add_cell(papers, &policies[i / 6], i % 6);
    }
    return status;
}
