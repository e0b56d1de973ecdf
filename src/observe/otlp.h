/* SPDX-License-Identifier: Apache-2.0
 *
 * otlp.h -- spans to a collector, by OTLP/HTTP in its JSON form (OpenTelemetry protocol 1.x).
 *
 *     rings --drain, every second--> batch --POST URL--> 2xx: exported
 *                                      ^  |
 *                                      |  +--> 429, 502, 503, 504, nobody there: later, again
 *                                      +---------------+
 *                                         |
 *                                         +--> any other answer: the batch is dropped
 *
 * While a batch waits, spans stay in their rings, which lose the oldest: a collector that is slow
 * or gone costs spans, which are counted, and nobody anything else.
 *
 * Invariants
 *   E1  written = exported + dropped + lost in rings + those still there, of spans that have a
 *       trace.
 *   E2  At most one batch of YB_OTLP_BATCH spans is in memory; each request has a deadline, and
 *       failures are further apart each time.
 *
 * Threads   One of its own, which asks. create and destroy: one thread. It is the one that drains
 *           the rings.
 * Memory    Rings are borrowed until destroy.
 */
#ifndef YB_OBSERVE_OTLP_H
#define YB_OBSERVE_OTLP_H

#include <jansson.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/span.h"
#include "base/stats.h"
#include "net/curl.h"

#define YB_OTLP_BATCH     512u
#define YB_OTLP_RINGS_MAX 4u

struct yb_otlp;

/* Who sends: attributes of the resource. Texts are copied. */
struct yb_otlp_resource {
    const char *kind; /* "serve", "engine", ... */
    const char *name;
    struct yb_id identity;
};

struct yb_otlp_options {
    const char *url;     /* Of the collector, whole: http://host:4318/v1/traces. Copied. */
    uint64_t timeout_ns; /* Of one request; 0: 5 s. */
    struct yb_otlp_resource resource;
    struct yb_span_ring *rings[YB_OTLP_RINGS_MAX]; /* Those that are not NULL. */
    const struct yb_clock *clock;
    struct yb_stats *stats; /* May be NULL. Borrowed. */
    struct yb_log *log;     /* May be NULL. Borrowed. */
};

/* Begin to send. Fails with INVALID (the URL), UNSUPPORTED (no libcurl here) or NO_MEMORY; why_out
 * has a sentence. */
YB_CHECKED enum yb_status yb_otlp_create(const struct yb_otlp_options *options,
                                         struct yb_otlp **otlp_out,
                                         char why_out[YB_CURL_ERROR_BYTES]);

/* Send what is left, once, for at most the timeout of a request, and set *otlp to NULL. */
void yb_otlp_destroy(struct yb_otlp **otlp);

/* What is sent for spans that have a trace; the caller's. NULL: no memory. */
json_t *yb_otlp_json(const struct yb_otlp_resource *resource, const struct yb_span *spans,
                     uint32_t count);

#endif /* YB_OBSERVE_OTLP_H */
