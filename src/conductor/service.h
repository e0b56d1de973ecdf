/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h -- the calls of a conductor, over the HTTP of the admin port (observe/http.h).
 *
 *     POST /v1/schedule      where a request should run; JSON, or application/x-yuebing-schedule
 *     POST /v1/query         what a prompt would find where
 *     POST /v1/done          how far a request has come, how instructions ended
 *     POST /v1/move          blocks are to be in a node's memory, whatever requests want
 *     POST /v1/register      an instance comes
 *     POST /v1/unregister    it goes
 *     POST /v1/report        what it says of itself
 *     GET  /v1/conductor     what is known, and how old it is
 *     GET  /v1/instances     the places
 *     GET  /v1/audit         instructions: issued, by outcome, open
 *     GET  /v1/instructions  the last ones that ended: when, how, from which tier
 *     GET  /v1/openapi.json  all of this, for programs
 *
 * What a POST may is what the admin port lets change something (H1 there).
 *
 * Invariants
 *   V1  Hashing, parsing and writing of answers happen outside the lock; deciding inside.
 *   V2  The log is what the conductor was told, in that order; what does not fit its bound is not
 *       written, from there on, and that is said.
 *   V3  Until it knows the store's seed of names, it says that it is not ready.
 *   V4  Each instruction that nodes carry out is handed to `order` once, or ends CANCELLED.
 *
 * Threads   Any, from begin to destroy; `pulse` one.
 * Memory    Options are copied, but for clock, stats, spans and log, which are borrowed.
 */
#ifndef YB_CONDUCTOR_SERVICE_H
#define YB_CONDUCTOR_SERVICE_H

#include "base/clock.h"
#include "base/log.h"
#include "base/span.h"
#include "base/stats.h"
#include "conductor/conductor.h"
#include "observe/http.h"

#define YB_CONDUCTOR_PULSE_NS (100 * YB_NS_PER_MS)
/* Longest body: the longest question, and room for what JSON adds to shorter ones. */
#define YB_CONDUCTOR_BODY_MAX (8u * 1024u * 1024u)
#define YB_CONDUCTOR_TYPE     "application/x-yuebing-schedule"

struct yb_conductor_service;

struct yb_conductor_service_options {
    /* `record`, `order` and `owner` are the service's own. */
    struct yb_conductor_options conductor;
    /* Has an order carried out; consumed if the answer is true. Called with the service's lock
     * held, or not: it must take none of a lower rank, and not wait. NULL: nobody does. */
    bool (*order)(void *owner, struct yb_conductor_order *order);
    void *order_owner;
    const char *log_file; /* NULL or "": no log of decisions. */
    uint64_t log_bytes;   /* Its bound. */
    const struct yb_clock *clock;
    struct yb_stats *stats;     /* May be NULL. */
    struct yb_span_ring *spans; /* One for each decision; may be NULL. */
    struct yb_log *log;         /* May be NULL. */
};

/* On OK the caller owns *service_out. Fails as yb_conductor_create() does, which tries the options,
 * or IO: the log cannot be written. */
YB_CHECKED enum yb_status
yb_conductor_service_create(const struct yb_conductor_service_options *options,
                            struct yb_conductor_service **service_out,
                            char why_out[YB_CONDUCTOR_WHY_BYTES]);
void yb_conductor_service_destroy(struct yb_conductor_service **service);

/* The store's seed is known (zeros: there is no store): calls are answered from here on. Fails as
 * yb_conductor_create() does. */
YB_CHECKED enum yb_status yb_conductor_service_begin(struct yb_conductor_service *service,
                                                     const uint8_t seed[YB_HASH_SEED_BYTES],
                                                     char why_out[YB_CONDUCTOR_WHY_BYTES]);

/* Whether it has begun. */
bool yb_conductor_service_ready(const struct yb_conductor_service *service);

/* Answer a call: the `other` of struct yb_http_source. */
bool yb_conductor_service_answer(void *service, const struct yb_http_asked *asked,
                                 struct yb_http_told *told_out);

/* Let time pass, write the log and the metrics: every YB_CONDUCTOR_PULSE_NS. */
void yb_conductor_service_pulse(struct yb_conductor_service *service);

/* Whether an order should still be begun; and how one has ended. Any thread. */
bool yb_conductor_service_wants(struct yb_conductor_service *service, uint64_t id);
void yb_conductor_service_moved(struct yb_conductor_service *service,
                                const struct yb_conductor_moved *moved);

/* What the orders that have not ended are at, now. Any thread. */
void yb_conductor_service_orders(struct yb_conductor_service *service,
                                 const struct yb_conductor_orders *orders);

/* Copy the seed of names; it has begun. */
void yb_conductor_service_seed(const struct yb_conductor_service *service,
                               uint8_t seed_out[YB_HASH_SEED_BYTES]);

/* ---- what the directory tells ---------------------------------------------------------------- */

/* As of conductor.h; after begin. `heard` says that what is known is as of now. */
YB_CHECKED enum yb_status yb_conductor_service_storage(struct yb_conductor_service *service,
                                                       const char *name, uint32_t *place_out);
void yb_conductor_service_ways(struct yb_conductor_service *service,
                               const struct yb_wire_conductor_ways *said);
void yb_conductor_service_gone(struct yb_conductor_service *service, const char *name);
void yb_conductor_service_reset(struct yb_conductor_service *service);
void yb_conductor_service_blocks(struct yb_conductor_service *service,
                                 const struct yb_wire_conductor_change *changes, uint32_t count);
void yb_conductor_service_heard(struct yb_conductor_service *service);

/* Return how many models there are: a new one has to be told of all blocks. */
uint32_t yb_conductor_service_models(struct yb_conductor_service *service);

#endif /* YB_CONDUCTOR_SERVICE_H */
