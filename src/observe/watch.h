/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h -- what a process shows of itself to programs: its numbers and its spans.
 *
 *     GET /v1/stats                    every number there is
 *     GET /v1/spans                    the newest spans
 *         ?trace=ID                    those of one trace
 *         ?number=N                    those of the traces in which a decision has that number
 *         ?slowest=N                   the longest requests, the longest first
 *     GET /v1/stream?interval_ms=1000  server-sent events, for as long as somebody listens:
 *                                      `stats` at once and then every interval, `spans` with those
 *                                      that ended since
 *
 * Each answer, and each event, says who speaks and what its clocks show:
 *
 *     {"process": {"kind", "name", "identity", "pid"}, "wall_ns", "now_ns", "stats": [...]}
 *
 * The dashboard, `yuebing top` and `yuebing trace` are made of these.
 *
 * Invariants
 *   W1  At most `streams_max` streams; more are told to come again. Who does not take what it is
 *       sent is cut off by the port.
 *   W2  After stop no stream goes on.
 *
 * Threads   Those of the port. stop and destroy: one.
 * Memory    Rings, and what `stats` reads, are borrowed for its life.
 * Time      The clock's.
 */
#ifndef YB_OBSERVE_WATCH_H
#define YB_OBSERVE_WATCH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/span.h"
#include "observe/http.h"

#define YB_WATCH_RINGS_MAX  4u
#define YB_WATCH_NAME_BYTES 64u

struct yb_watch;

struct yb_watch_options {
    const char *kind; /* "serve", "engine", ...: static. */
    char name[YB_WATCH_NAME_BYTES];
    struct yb_id identity;                          /* As peers know it; none: nobody does. */
    struct yb_span_ring *rings[YB_WATCH_RINGS_MAX]; /* Those that are not NULL. */
    json_t *(*stats)(void *context);                /* An array, as of yb_stats_json(). */
    void *context;
    uint32_t streams_max; /* 0: YB_EVENTS_LISTENERS_MAX. */
    const struct yb_clock *clock;
};

/* On OK the caller owns *watch_out. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_watch_create(const struct yb_watch_options *options,
                                          struct yb_watch **watch_out);

/* End the streams: before the port is closed, which waits for them. */
void yb_watch_stop(struct yb_watch *watch);

/* Set *watch to NULL. The port is closed. */
void yb_watch_destroy(struct yb_watch **watch);

/* Answer a question: as `other` of struct yb_http_source. */
bool yb_watch_answer(void *watch, const struct yb_http_asked *asked, struct yb_http_told *told_out);

#endif /* YB_OBSERVE_WATCH_H */
