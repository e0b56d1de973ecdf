/* SPDX-License-Identifier: Apache-2.0
 *
 * Which requests of a trace a small cluster is asked. A trace was asked of a large one, so that
 * only some of its sessions fit. A session is what begins with a block that few requests have: the
 * system's prompt, which all of them have, is left out of that.
 */
#include <stdlib.h>

#include "base/check.h"
#include "cli/demo_run.h"

#define SESSION_MAX 64u /* Requests of one; a block that more have is nobody's own. */
#define PARTS       10000u

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

/* Keep what fits, of so many of all sessions. */
static void
keep(struct yb_trace *trace, const uint32_t *uses, uint32_t parts, uint32_t tokens_max)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        const struct yb_trace_request *request = &trace->requests[i];

        if (request->input_tokens <= tokens_max && draw(session_of(trace, request, uses)) < parts) {
            trace->requests[kept++] = *request;
        }
    }
    trace->request_count = kept;
}

double
yb_demo_choose(struct yb_trace *trace, const struct yb_sched_cost *cost, double speed,
               double engines_busy, uint32_t tokens_max)
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
        if (trace->requests[i].input_tokens <= tokens_max) {
            compute_ns += yb_sched_prefill_ns(cost, trace->requests[i].input_tokens, 0);
        }
    }
    share = compute_ns > 0 ? engines_busy * span_ns / compute_ns : 1;
    share = share < 1 ? share : 1;
    keep(trace, uses, (uint32_t)(share * PARTS) + 1, tokens_max);
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
