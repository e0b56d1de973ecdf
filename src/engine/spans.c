/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of requests, as spans: the request, and inside it its loads, pulls, stores and its
 * prompt's computing.
 */
#include "engine/engine_internal.h"
#include "net/net.h"

uint64_t
yb_engine_new_span(void)
{
    return yb_span_new_id(yb_net_random_system, NULL);
}

/* The deepest tier that something came from: the one that took the time. */
static uint8_t
tier_of(const struct yb_engine_outcome *outcome)
{
    uint8_t tier = YB_CLIENT_TIER_OBJECT;

    while (tier > 0 && outcome->tier_bytes[tier] == 0) {
        tier--;
    }
    return tier;
}

static uint64_t
loaded_bytes(const struct yb_engine_outcome *outcome)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i <= YB_CLIENT_TIER_OBJECT; i++) {
        bytes += outcome->tier_bytes[i];
    }
    return bytes;
}

void
yb_engine_trace(const struct yb_engine *engine, struct yb_span span)
{
    if (engine->options.spans == NULL || span.start_ns == 0 || span.end_ns < span.start_ns) {
        return; /* It was not begun. */
    }
    span.wall_ns = yb_clock_wall(engine->clock) - (yb_engine_now(engine) - span.start_ns);
    yb_span_write(engine->options.spans, &span);
}

static struct yb_span
span_of(const struct yb_engine_request *request, enum yb_span_kind kind)
{
    return (struct yb_span){
        .kind = (uint8_t)kind,
        .trace = request->trace_id,
        .parent = request->span,
        .number = request->number,
        .work_class = (uint8_t)request->work_class,
    };
}

void
yb_engine_trace_request(const struct yb_engine_request *request)
{
    const struct yb_engine_outcome *outcome = &request->outcome;
    struct yb_span prefill = span_of(request, YB_SPAN_KIND_PREFILL);
    struct yb_span whole = span_of(request, YB_SPAN_KIND_REQUEST);

    prefill.span = yb_engine_new_span();
    prefill.start_ns = outcome->begun_ns;
    prefill.end_ns = outcome->first_ns;
    yb_engine_trace(request->engine, prefill);
    whole.span = request->span;
    whole.parent = request->parent_span;
    whole.start_ns = outcome->arrival_ns;
    whole.began_ns = outcome->begun_ns;
    whole.end_ns = outcome->last_ns;
    whole.bytes = loaded_bytes(outcome) + outcome->pulled_bytes;
    whole.tier = tier_of(outcome);
    whole.outcome = outcome->status;
    yb_engine_trace(request->engine, whole);
}

void
yb_engine_trace_load(const struct yb_engine_request *request, enum yb_span_kind kind,
                     enum yb_status status)
{
    const struct yb_engine_outcome *outcome = &request->outcome;
    const bool pull = kind == YB_SPAN_KIND_PULL;
    struct yb_span span = span_of(request, kind);

    span.span = request->load_span;
    span.start_ns = request->load_begun_ns;
    span.began_ns = request->load_run_ns;
    span.end_ns = yb_engine_now(request->engine);
    span.bytes = pull ? outcome->pulled_bytes : loaded_bytes(outcome);
    span.tier = pull ? (uint8_t)YB_SPAN_TIER_DEVICE : tier_of(outcome);
    span.outcome = status;
    yb_engine_trace(request->engine, span);
}

void
yb_engine_trace_verdicts(const struct yb_engine_request *request, uint64_t decided_ns,
                         const struct yb_engine_verdicts *verdicts)
{
    const struct yb_engine_outcome *outcome = &request->outcome;

    for (uint32_t i = 0; i < verdicts->count; i++) {
        const struct yb_engine_verdict *verdict = &verdicts->verdicts[i];
        struct yb_span span = span_of(request, YB_SPAN_KIND_INSTRUCTION);

        span.span = yb_engine_new_span();
        span.parent = request->parent_span != 0 ? request->parent_span : request->span;
        span.number = verdict->id;
        span.start_ns = decided_ns;
        span.began_ns = request->load_run_ns;
        span.end_ns = outcome->arrived_ns != 0 ? outcome->arrived_ns : outcome->begun_ns;
        span.tier = outcome->pulled_bytes > 0 ? (uint8_t)YB_SPAN_TIER_DEVICE : tier_of(outcome);
        span.bytes = loaded_bytes(outcome) + outcome->pulled_bytes;
        span.outcome = verdict->status;
        yb_engine_trace(request->engine, span);
    }
}
