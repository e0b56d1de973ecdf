/* SPDX-License-Identifier: Apache-2.0
 *
 * gather.h -- what this process and others say of themselves, once a second, as one sample.
 *
 * A cluster is many processes, and each has a port that tells its numbers (http.h): `/metrics`, and
 * where there are, `/v1/nodes`, `/v1/events` and `/v1/instructions`. The gatherer asks all that it
 * was told of, its own process like any other, and the instances of a conductor, which
 * `/v1/instances` tells; it keeps the samples of the last minutes: for the
 * dashboard, and for whoever asks for the latest. A sample is one JSON document:
 *
 *     {"number": 7, "at_ms": 1777636800123,
 *      "processes": [{"where": "127.0.0.1:14780", "name": "", "up": true, "why": "",
 *                     "series": {"node_puts_total{status=\"OK\"}": 12, ...}}, ...],
 *      "nodes": [...],                as /v1/nodes has them
 *      "events": [{"at_ms":..., "level": "warn", "where": "...", "text": "..."}, ...],
 *      "instructions": [...]}
 *
 * Nodes are the first process's. Events are the last lines of everybody's log, instructions those
 * of conductors that have ended; both since the sample before.
 *
 * Series are those of /metrics without "yuebing_" and without zeros; of histograms the buckets of
 * times to the first token, and from decisions to arrivals, alone. The first process is this one.
 *
 *     somebody looks --> a sample each second     nobody since 30 s --> one each 10 s
 *
 * Invariants
 *   T1  What others answer is bounded (bytes, series, events) and read as text from strangers: what
 *       is no number of a series is left out.
 *   T2  One that does not answer costs a second at most, and is asked again only after 5 s.
 *   T3  What is kept has at most YB_GATHER_KEPT_BYTES.
 *
 * Threads   One of its own, which asks. yb_gather_next: any thread; it waits.
 * Memory    What the options name is copied. A sample is its holder's until it
 *           is released.
 */
#ifndef YB_OBSERVE_GATHER_H
#define YB_OBSERVE_GATHER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_GATHER_PORTS_MAX  64u
#define YB_GATHER_SERIES_MAX 4096u /* Of one process. */
#define YB_GATHER_KEPT_BYTES (8u << 20)
#define YB_GATHER_KEPT_MAX   600u
#define YB_GATHER_WHY_BYTES  512u

struct yb_gather;

struct yb_gather_options {
    const char *self;  /* This process's own port, "host:port"; the first of the processes. */
    const char *watch; /* Ports to ask, too: "host:port,host:port"; "": none. */
};

struct yb_gather_sample {
    uint64_t number; /* 1 for the first. */
    size_t length;
    const char *text; /* A NUL behind it. */
};

/* Begin to gather. Otherwise why_out is a sentence with the remedy: INVALID (`watch` is no
 * list of ports; too many), UNSUPPORTED (there is no libcurl here) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_gather_create(const struct yb_gather_options *options,
                                           struct yb_gather **gather_out,
                                           char why_out[YB_GATHER_WHY_BYTES]);

/* Wait for the questions that are under way (a second each, at most), and set
 * *gather to NULL. Nobody may wait in yb_gather_next. */
void yb_gather_destroy(struct yb_gather **gather);

/* Let everybody who waits return, from now on, at once. */
void yb_gather_stop(struct yb_gather *gather);

/* Whether somebody called yb_gather_stop. */
bool yb_gather_stopping(struct yb_gather *gather);

/* Return the oldest sample kept of those after number `after`, waiting at most `timeout_ns`;
 * NULL: there is none, or the gatherer stops. Looking makes samples come each second. */
const struct yb_gather_sample *yb_gather_next(struct yb_gather *gather, uint64_t after,
                                              uint64_t timeout_ns);

/* Return the latest sample, waiting for the first; otherwise the same. */
const struct yb_gather_sample *yb_gather_latest(struct yb_gather *gather, uint64_t timeout_ns);

/* Give a sample back and set *sample to NULL. */
void yb_gather_release(struct yb_gather *gather, const struct yb_gather_sample **sample);

/* Whether a text is "host:port", as far as its characters go. */
bool yb_gather_is_port(const char *where);

#endif /* YB_OBSERVE_GATHER_H */
