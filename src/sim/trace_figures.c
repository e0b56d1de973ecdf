/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/trace_gen.h"

static int
compare_words(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a;
    uint64_t right = *(const uint64_t *)b;

    return (left > right) - (left < right);
}

static uint64_t
quantile(const uint64_t *sorted, uint64_t count, double share)
{
    uint64_t at = (uint64_t)(share * (double)count);

    return count == 0 ? 0 : sorted[at < count ? at : count - 1];
}

static void
lengths(const struct yb_trace *trace, uint64_t *words, struct yb_trace_figures *figures)
{
    static const double inputs[7] = {0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99};
    static const double outputs[4] = {0.1, 0.5, 0.9, 0.99};
    double input = 0.0;
    double output = 0.0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        words[i] = trace->requests[i].input_tokens;
        input += (double)words[i];
        output += trace->requests[i].output_tokens;
    }
    qsort(words, trace->request_count, sizeof *words, compare_words);
    for (uint32_t i = 0; i < 7; i++) {
        figures->input[i] = (uint32_t)quantile(words, trace->request_count, inputs[i]);
    }
    for (uint32_t i = 0; i < trace->request_count; i++) {
        words[i] = trace->requests[i].output_tokens;
    }
    qsort(words, trace->request_count, sizeof *words, compare_words);
    for (uint32_t i = 0; i < 4; i++) {
        figures->output[i] = (uint32_t)quantile(words, trace->request_count, outputs[i]);
    }
    figures->input_mean = input / trace->request_count;
    figures->output_mean = output / trace->request_count;
}

static void
popularity(const struct yb_trace *trace, uint64_t *words, struct yb_trace_figures *figures)
{
    uint64_t once = 0;
    uint64_t top = 0;

    memset(words, 0, trace->block_count * sizeof *words);
    for (uint64_t i = 0; i < trace->reference_count; i++) {
        words[trace->blocks[i]]++;
    }
    qsort(words, trace->block_count, sizeof *words, compare_words);
    for (uint32_t i = 0; i < trace->block_count; i++) {
        once += words[i] == 1;
        top += i >= trace->block_count - (trace->block_count + 99) / 100 ? words[i] : 0;
    }
    figures->used_once = (double)once / trace->block_count;
    figures->top_share = (double)top / (double)trace->reference_count;
    figures->ideal_hit = 1.0 - (double)trace->block_count / (double)trace->reference_count;
}

static void
reuse(const struct yb_trace *trace, uint64_t *last_ns, uint64_t *gaps,
      struct yb_trace_figures *figures)
{
    static const double shares[4] = {0.5, 0.8, 0.9, 0.99};
    uint64_t count = 0;

    memset(last_ns, 0xff, trace->block_count * sizeof *last_ns);
    for (uint32_t i = 0; i < trace->request_count; i++) {
        const struct yb_trace_request *request = &trace->requests[i];

        for (uint32_t j = 0; j < yb_trace_blocks_of(trace, i); j++) {
            uint32_t block = trace->blocks[request->first + j];

            if (last_ns[block] != UINT64_MAX && block != trace->blocks[0]) {
                gaps[count++] = request->arrival_ns - last_ns[block];
            }
            last_ns[block] = request->arrival_ns;
        }
    }
    qsort(gaps, count, sizeof *gaps, compare_words);
    for (uint32_t i = 0; i < 4; i++) {
        figures->reuse_s[i] = (double)quantile(gaps, count, shares[i]) * 1e-9;
    }
}

enum yb_status
yb_trace_figures(const struct yb_trace *trace, struct yb_trace_figures *figures_out)
{
    uint64_t room = trace->reference_count + trace->request_count;
    uint64_t *words = calloc(room, sizeof *words);
    uint64_t *last_ns = calloc(trace->block_count, sizeof *last_ns);
    struct yb_trace_figures figures = {.span_s = 0.0};
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(trace->request_count > 0);
    if (words != NULL && last_ns != NULL) {
        figures.span_s = (double)(trace->requests[trace->request_count - 1].arrival_ns -
                                  trace->requests[0].arrival_ns) *
                         1e-9;
        figures.rate = figures.span_s > 0.0 ? trace->request_count / figures.span_s : 0.0;
        figures.references = trace->reference_count;
        figures.distinct = trace->block_count;
        figures.blocks_mean = (double)trace->reference_count / trace->request_count;
        lengths(trace, words, &figures);
        popularity(trace, words, &figures);
        reuse(trace, last_ns, words, &figures);
        *figures_out = figures;
        status = YB_OK;
    }
    free(words);
    free(last_ns);
    return status;
}
