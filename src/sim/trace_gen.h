/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_gen.h -- traces that nobody had to publish: generated, with the statistics of those that
 * were.
 *
 *   conversation  people who talk with an assistant: one system prompt for all, the next question
 *                 after reading the answer, the whole talk so far in front of it
 *   toolagent     those, and beside them tools that send much the same long prompt again and again
 *   synthetic     documents, each asked about several times in a row, and short single prompts
 *
 * docs/eviction.md shows what comes out beside what was published.
 *
 * Threads   Any thread.
 * Memory    As trace.h.
 * Time      That of the trace: about 3 million requests a minute.
 */
#ifndef YB_SIM_TRACE_GEN_H
#define YB_SIM_TRACE_GEN_H

#include "sim/trace.h"

#define YB_TRACE_GEN_REQUESTS_MAX 1000000u

/* Return the name of the kind at `index`, NULL past the end. */
const char *yb_trace_gen_kind(uint32_t index);

/* Generate a trace of `request_count` requests, at most YB_TRACE_GEN_REQUESTS_MAX; 0: as many as
 * the published one of that kind has. What a request is like depends on how many were before it.
 *
 * On OK, *trace_out is owned by the caller, who passes it to yb_trace_destroy(). Fails with INVALID
 * (no such kind, or another count), TOO_LARGE or NO_MEMORY. */
YB_CHECKED enum yb_status yb_trace_gen(const char *kind, uint32_t request_count, uint64_t seed,
                                       struct yb_trace **trace_out);

/* What a trace is like, as the tables of published ones have it. */
struct yb_trace_figures {
    double span_s;
    double rate;
    double input_mean;
    double output_mean;
    uint32_t input[7];  /* p10 p25 p50 p75 p90 p95 p99 */
    uint32_t output[4]; /* p10 p50 p90 p99 */
    double blocks_mean;
    uint64_t references;
    uint32_t distinct;
    double used_once;  /* Share of distinct blocks. */
    double ideal_hit;  /* Of block references, with an infinite cache. */
    double top_share;  /* Of the references, that go to the 1 % of blocks that are used most. */
    double reuse_s[4]; /* p50 p80 p90 p99 between two uses of a block. */
};

/* Reckon the figures. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_trace_figures(const struct yb_trace *trace,
                                           struct yb_trace_figures *figures_out);

#endif /* YB_SIM_TRACE_GEN_H */
