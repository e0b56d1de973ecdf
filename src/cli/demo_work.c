/* SPDX-License-Identifier: Apache-2.0
 *
 * What engines of the demo cost, and which requests of a trace a small cluster is asked. A trace
 * was asked of a large one, so that only some of its sessions fit. A session is what begins with a
 * block that few requests have: the system's prompt, which all have, is left out of that.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/demo_run.h"

#define GPU          "a800"
#define GPUS         8u
#define SESSION_MAX  64u /* Requests of one; a block that more have is nobody's own. */
#define ANSWER_LEAST 2u  /* Tokens: the first is computed elsewhere than the others. */
#define PARTS        10000u

static uint32_t
draw(uint32_t session)
{
    return (uint32_t)((session * 0x9e3779b97f4a7c15ull) >> 32) % PARTS;
}

static uint32_t
session_of(const struct yb_trace *trace, const struct yb_trace_request *request,
           const uint32_t *uses)
{
    uint32_t count = (request->input_tokens + trace->block_tokens - 1) / trace->block_tokens;
    uint32_t at = 0;

    while (at + 1 < count && uses[trace->blocks[request->first + at]] > SESSION_MAX) {
        at++;
    }
    return trace->blocks[request->first + at];
}

/* Keep what fits, of so many of all sessions, with answers that are not too long. */
static void
keep(struct yb_trace *trace, const uint32_t *uses, uint32_t parts,
     const struct yb_demo_limits *limits)
{
    uint64_t references = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        struct yb_trace_request request = trace->requests[i];
        uint32_t blocks = yb_trace_blocks_of(trace, i);

        if (request.input_tokens > limits->prompt_max ||
            draw(session_of(trace, &request, uses)) >= parts) {
            continue;
        }
        memmove(&trace->blocks[references], &trace->blocks[request.first],
                blocks * sizeof(*trace->blocks));
        request.first = references;
        request.output_tokens = request.output_tokens < ANSWER_LEAST         ? ANSWER_LEAST
                                : request.output_tokens < limits->answer_max ? request.output_tokens
                                                                             : limits->answer_max;
        references += blocks;
        trace->requests[kept++] = request;
    }
    trace->request_count = kept;
    trace->reference_count = references;
}

enum yb_status
yb_demo_cost(struct yb_sched_cost *cost_out)
{
    struct yb_sched_catalog *catalog = NULL;
    enum yb_status status = yb_sched_catalog_create(&catalog);

    if (status == YB_OK) {
        status = yb_sched_catalog_cost(catalog, YB_DEMO_MODEL, GPU, GPUS, cost_out);
        yb_sched_catalog_destroy(&catalog);
    }
    return status;
}

double
yb_demo_choose(struct yb_trace *trace, const struct yb_sched_cost *cost, double speed,
               double engines_busy, const struct yb_demo_limits *limits)
{
    uint32_t *uses = calloc(trace->block_count, sizeof(*uses));
    double compute_ns = 0;
    double span_ns, share;

    YB_ASSERT(speed > 0 && engines_busy > 0);
    if (uses == NULL || trace->request_count == 0) {
        free(uses);
        return 0;
    }
    span_ns = (double)trace->requests[trace->request_count - 1].arrival_ns / speed + 1;
    for (uint64_t i = 0; i < trace->reference_count; i++) {
        uses[trace->blocks[i]]++;
    }
    for (uint32_t i = 0; i < trace->request_count; i++) {
        if (trace->requests[i].input_tokens <= limits->prompt_max) {
            compute_ns += yb_sched_prefill_ns(cost, trace->requests[i].input_tokens, 0);
        }
    }
    share = compute_ns > 0 ? engines_busy * span_ns / compute_ns : 1;
    share = share < 1 ? share : 1;
    keep(trace, uses, (uint32_t)(share * PARTS) + 1, limits);
    free(uses);
    return trace->request_count < 2 ? 0 : share;
}

uint32_t
yb_demo_count_within(const struct yb_trace *trace, double speed, double seconds)
{
    uint32_t count = 0;

    while (count < trace->request_count &&
           (double)trace->requests[count].arrival_ns / speed < seconds * 1e9) {
        count++;
    }
    return count < 2 ? 2 : count;
}

enum yb_status
yb_demo_keep_trace(const struct yb_trace *trace, uint32_t count, const char *path)
{
    struct yb_trace head = *trace;
    FILE *file = fopen(path, "we");
    enum yb_status status = YB_IO;

    YB_ASSERT(count <= trace->request_count);
    if (file == NULL) {
        return status;
    }
    if (count < trace->request_count) {
        head.request_count = count;
        head.reference_count = trace->requests[count].first;
    }
    status = yb_trace_write(&head, file);
    return fclose(file) == 0 ? status : YB_IO;
}
