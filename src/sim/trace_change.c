/* SPDX-License-Identifier: Apache-2.0
 *
 * Changes of a whole trace: ticks spread, delay hits made.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/random.h"
#include "sim/trace.h"

#define TICK_MAX_NS      3000000000ull
#define REQUESTS_OF_TICK 4u /* On the average, or it is no tick. */

/* ---- spread --------------------------------------------------------------------------------- */

static bool
has_ticks(const struct yb_trace *trace)
{
    uint32_t distinct = 1;

    for (uint32_t i = 1; i < trace->request_count; i++) {
        distinct += trace->requests[i].arrival_ns != trace->requests[i - 1].arrival_ns;
    }
    return distinct > 1 && distinct <= trace->request_count / REQUESTS_OF_TICK;
}

void
yb_trace_spread(struct yb_trace *trace, uint64_t seed)
{
    struct yb_sim_random random = {seed};
    uint64_t gap_ns = TICK_MAX_NS;
    uint32_t end;

    if (!has_ticks(trace)) {
        return;
    }
    for (uint32_t begin = 0; begin < trace->request_count; begin = end) {
        uint64_t tick_ns = trace->requests[begin].arrival_ns;
        uint64_t count = 0;

        for (end = begin; end < trace->request_count && trace->requests[end].arrival_ns == tick_ns;
             end++) {
        }
        if (end < trace->request_count) { /* The last tick is as long as the one before it. */
            gap_ns = trace->requests[end].arrival_ns - tick_ns;
            gap_ns = gap_ns < TICK_MAX_NS ? gap_ns : TICK_MAX_NS;
        }
        /* Sorted uniform times, without a place to sort them: each is the least of those left. */
        for (uint32_t i = begin; i < end; i++) {
            double left = (double)(end - i);
            double step = 1.0 - pow(1.0 - yb_sim_random_unit(&random), 1.0 / left);

            count += (uint64_t)(step * (double)(gap_ns - count));
            trace->requests[i].arrival_ns = tick_ns + count;
        }
    }
}

/* ---- delay hits ----------------------------------------------------------------------------- */

struct mover {
    struct yb_trace *trace;
    uint32_t *before; /* Of each request: the last one that shares enough; YB_TRACE_NONE. */
    uint64_t *order;  /* First a number for each block, last the order of the moved requests. */
    uint64_t candidate_count;
};

/* Return how many blocks at the beginning most requests have in common. */
static uint32_t
common_blocks(const struct yb_trace *trace, uint64_t *uses)
{
    uint32_t deepest = 0;

    memset(uses, 0, trace->block_count * sizeof *uses);
    for (uint64_t i = 0; i < trace->reference_count; i++) {
        uses[trace->blocks[i]]++;
    }
    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint32_t count = yb_trace_blocks_of(trace, i);
        uint32_t depth = 0;

        while (depth < count &&
               uses[trace->blocks[trace->requests[i].first + depth]] > trace->request_count / 2) {
            depth++;
        }
        deepest = depth > deepest ? depth : deepest;
    }
    return deepest;
}

/* Find for each request the last one before it that shares enough. */
static void
pair(struct mover *mover)
{
    const struct yb_trace *trace = mover->trace;
    uint64_t *last = mover->order;
    uint32_t need = common_blocks(trace, last) +
                    (YB_TRACE_DELAY_HIT_TOKENS + trace->block_tokens - 1) / trace->block_tokens;

    memset(last, 0xff, trace->block_count * sizeof *last);
    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint32_t block;

        mover->before[i] = YB_TRACE_NONE;
        if (yb_trace_blocks_of(trace, i) < need) {
            continue;
        }
        block = trace->blocks[trace->requests[i].first + need - 1];
        mover->before[i] = (uint32_t)last[block];
        mover->candidate_count += mover->before[i] != YB_TRACE_NONE;
        last[block] = i;
    }
}

static bool
is_hit(const struct mover *mover, uint32_t request)
{
    const struct yb_trace_request *requests = mover->trace->requests;
    uint32_t before = mover->before[request];

    return before != YB_TRACE_NONE &&
           requests[request].arrival_ns - requests[before].arrival_ns <= YB_TRACE_DELAY_HIT_NS;
}

/* Let `wanted` of the requests come soon after the one before: those that do already, and others by
 * chance. The rest is no candidate any more. */
static void
choose(struct mover *mover, uint64_t wanted, struct yb_sim_random *random)
{
    uint64_t hits = 0;
    uint64_t others;

    for (uint32_t i = 0; i < mover->trace->request_count; i++) {
        hits += is_hit(mover, i);
    }
    wanted = wanted > hits ? wanted - hits : 0;
    others = mover->candidate_count - hits;
    for (uint32_t i = 0; i < mover->trace->request_count; i++) {
        if (mover->before[i] != YB_TRACE_NONE && !is_hit(mover, i)) {
            bool chosen = yb_sim_random_below(random, others--) < wanted;

            wanted -= chosen;
            mover->before[i] = chosen ? mover->before[i] : YB_TRACE_NONE;
        }
    }
}

static int
compare_arrivals(const void *a, const void *b, void *context)
{
    const struct yb_trace_request *requests = context;
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    if (requests[left].arrival_ns != requests[right].arrival_ns) {
        return requests[left].arrival_ns < requests[right].arrival_ns ? -1 : 1;
    }
    return (left > right) - (left < right);
}

/* Bring the requests into the order of their arrival again (T1). */
static void
sort(struct mover *mover, struct yb_trace_request *requests, uint32_t *blocks)
{
    struct yb_trace *trace = mover->trace;
    uint64_t first = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        mover->order[i] = i;
    }
    qsort_r(mover->order, trace->request_count, sizeof *mover->order, compare_arrivals,
            trace->requests);
    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint32_t from = (uint32_t)mover->order[i];
        uint32_t count = yb_trace_blocks_of(trace, from);

        memcpy(&blocks[first], &trace->blocks[trace->requests[from].first], count * sizeof *blocks);
        requests[i] = trace->requests[from];
        requests[i].first = first;
        first += count;
    }
    free(trace->requests);
    free(trace->blocks);
    trace->requests = requests;
    trace->blocks = blocks;
}

enum yb_status
yb_trace_delay_hit(struct yb_trace *trace, double share, uint64_t seed, double *possible_out)
{
    struct yb_sim_random random = {seed};
    struct mover mover = {.trace = trace};
    uint64_t wanted = (uint64_t)ceil(share * trace->request_count - 1e-9);
    uint32_t room =
        trace->block_count > trace->request_count ? trace->block_count : trace->request_count;
    struct yb_trace_request *requests = calloc(trace->request_count, sizeof *requests);
    uint32_t *blocks = calloc(trace->reference_count, sizeof *blocks);
    enum yb_status status = YB_NO_MEMORY;

    mover.before = calloc(trace->request_count, sizeof *mover.before);
    mover.order = calloc(room, sizeof *mover.order);
    if (requests == NULL || blocks == NULL || mover.before == NULL || mover.order == NULL) {
        goto end;
    }
    pair(&mover);
    status = YB_OK;
    if (mover.candidate_count < wanted) {
        *possible_out = (double)mover.candidate_count / trace->request_count;
        status = YB_INVALID;
        goto end;
    }
    choose(&mover, wanted, &random);
    for (uint32_t i = 0; i < trace->request_count; i++) { /* The one before is in its place. */
        if (mover.before[i] != YB_TRACE_NONE && !is_hit(&mover, i)) {
            trace->requests[i].arrival_ns = trace->requests[mover.before[i]].arrival_ns +
                                            yb_sim_random_below(&random, YB_TRACE_DELAY_HIT_NS);
        }
    }
    sort(&mover, requests, blocks);
    requests = NULL;
    blocks = NULL;
end:
    free(requests);
    free(blocks);
    free(mover.before);
    free(mover.order);
    return status;
}
