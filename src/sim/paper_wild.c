/* SPDX-License-Identifier: Apache-2.0
 *
 * KVCacheInTheWild (ATC'25): evicting by the probability of reuse within a category's life. Its
 * traces are not to be had; the conversation trace has the turns that it tells categories by.
 */
#include <math.h>
#include <string.h>

#include "sim/hit_table.h"
#include "sim/paper.h"

#define PAPER    "KVCacheInTheWild"
#define NO_TRACE "the trace is not there"

/* The first is ours, the next three are what it is to be better than; the last knows the future. */
static const char *const policies[] = {"workload", "lru", "lfu", "fifo", "opt"};
#define POLICIES (sizeof(policies) / sizeof(policies[0]))
#define OURS     0u
#define LRU      1u
#define LFU      2u
#define OPT      4u

static const uint64_t blocks[] = {2000, 5000, 10000, 20000};
#define SIZES (sizeof(blocks) / sizeof(blocks[0]))

static enum yb_status
hits_of(const struct yb_trace *trace, double hits_out[SIZES][POLICIES])
{
    enum yb_status status = YB_OK;

    for (unsigned i = 0; i < SIZES * POLICIES && status == YB_OK; i++) {
        struct yb_hit_case one = {.policy = policies[i % POLICIES], .blocks = blocks[i / POLICIES]};
        struct yb_hit_result result;

        one.tags = yb_hit_tags_usual(one.policy);
        status = yb_hit_run(trace, &one, &result);
        if (status == YB_OK) {
            hits_out[i / POLICIES][i % POLICIES] = 100 * result.prefix_hit;
        }
    }
    return status;
}

static void
add_rows(struct yb_papers *papers, struct yb_paper_row row, double hits[SIZES][POLICIES])
{
    double gain = -INFINITY;
    struct yb_paper_order order = {
        .names = {"opt", "workload", "lru", "lfu"}, .count = 4, .share = 0.01};

    for (unsigned i = 0; i < SIZES; i++) {
        double others = fmax(fmax(hits[i][1], hits[i][2]), hits[i][3]);

        if (hits[i][OURS] - others > gain) {
            gain = hits[i][OURS] - others;
        }
    }
    row.what = "points over the best of LRU, LFU, FIFO; most of 2 k .. 20 k blocks";
    row.published = 3.9;
    row.ours = gain;
    yb_paper_add_within(papers, row, 1.5 - row.published, 1.0);
    row.what = "% hits at 5 k blocks";
    order.with[0] = order.without[0] = hits[1][OPT];
    order.with[1] = hits[1][OURS];
    order.with[2] = order.without[1] = order.without[2] = hits[1][LRU];
    order.with[3] = order.without[3] = hits[1][LFU];
    yb_paper_add_order(papers, row, &order);
}

enum yb_status
yb_paper_wild(struct yb_papers *papers)
{
    struct yb_paper_row row = {.paper = PAPER, .figure = "hit ratio", .what = "points over others"};
    double hits[SIZES][POLICIES];
    const struct yb_trace *trace;
    enum yb_status status = yb_paper_trace(papers, "conversation_trace", 1, &trace);

    if (status == YB_NOT_FOUND) {
        yb_paper_add_missing(papers, row, NO_TRACE);
        return YB_OK;
    }
    if (status == YB_OK) {
        status = hits_of(trace, hits);
    }
    if (status == YB_OK) {
        add_rows(papers, row, hits);
    }
    return status;
}
