/* SPDX-License-Identifier: Apache-2.0
 *
 * events.h -- server-sent events: answers that go on for as long as somebody listens.
 *
 * What is said comes from the source's `next`, one piece of text after the other; this module
 * sends it, however little the listener takes at a time, and bounds how many listen.
 *
 * Invariants
 *   E1  At most `listeners_max` streams of one struct yb_events; more are told to come again.
 *
 * Threads   Those of the port.
 * Memory    struct yb_events outlives its streams. A piece is borrowed until the next one.
 */
#ifndef YB_OBSERVE_EVENTS_H
#define YB_OBSERVE_EVENTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/http.h"

#define YB_EVENTS_LISTENERS_MAX 16u

/* Streams of one kind; zeroed with a bound: nobody listens. */
struct yb_events {
    uint32_t listeners_max;
    _Atomic(uint32_t) listeners;
};

/* What one stream says. */
struct yb_events_source {
    /* The next piece: it may wait, shorter than the port's idle time. False: it is over. */
    bool (*next)(void *owner, const char **text_out, size_t *length_out);
    void (*close)(void *owner); /* Runs once. */
    void *owner;
};

/* Answer with a stream. Otherwise, for E1 or want of memory, *told_out says so, and the source was
 * closed. */
void yb_events_listen(struct yb_events *events, const struct yb_events_source *source,
                      struct yb_http_told *told_out);

#endif /* YB_OBSERVE_EVENTS_H */
