/* SPDX-License-Identifier: Apache-2.0
 *
 * service.h -- the engine stand-in, as engines are asked: completions over HTTP.
 *
 *     POST /v1/completions    as of OpenAI: prompt (text or token ids), max_tokens, stream
 *     GET  /v1/models         the one that it stands for
 *     GET  /v1/engine         what it has and does, as numbers
 *     GET  /metrics, /healthz, and what observe/watch.h answers
 *
 * Beyond OpenAI's fields
 *   kv_transfer_params  asked with {"do_remote_decode": true}: the answer is one token and has a
 *                       kv_transfer_params of its own, with which another engine goes on: prompt
 *                       and max_tokens as before. It has to come within the engine's `held_ns`.
 *   reuse_tokens        load no more than these from the store: what the conductor decided.
 *   decision, conductor the conductor's number of its decision, and its own
 *   instructions        those of the decision, as it has them; decided_us: how long ago it was made
 *   yuebing             in the answer: where the prompt's KV came from, times, bytes and how many
 *                       of them were wrong.
 *
 * Text. The stand-in knows no words: of a prompt that is text each four bytes are a token, and
 * answers are written " t" and the token's number.
 *
 * Threads   Those of the port; create and destroy: one thread.
 * Memory    The engine is borrowed.
 */
#ifndef YB_ENGINE_SERVICE_H
#define YB_ENGINE_SERVICE_H

#include "engine/engine.h"
#include "engine/orders.h"
#include "observe/http.h"

#define YB_ENGINE_BODY_MAX (32u * 1024u * 1024u) /* A prompt of 2 M tokens, as JSON. */

struct yb_engine_service;

/* Which conductor sent a request, and by which of its decisions. */
struct yb_engine_decided {
    uint32_t conductor;
    uint64_t decision;
};

struct yb_engine_service_options {
    struct yb_engine *engine;
    const char *model;
    const char *name;              /* Of the instance. */
    const struct yb_stats *stats;  /* Shown, with the engine's own sums; NULL: those alone. */
    struct yb_span_ring *spans[3]; /* Shown; those that are not NULL. */
    struct yb_address address;
    bool insecure;
    uint32_t connections_max;
    uint64_t request_timeout_ns; /* 0: 10 minutes. */
    bool secret;                 /* As of struct yb_http_source. */
    bool (*allowed)(void *context, const char *token, size_t length);
    void *context;
    /* A request was taken; `decision` 0: no conductor sent it. On a thread of the port. May be
     * NULL. */
    void (*taken)(void *context, const struct yb_engine_decided *decided);
    /* A request of a conductor's decision has ended, or (`first`) has its first token; how its
     * moves ended that are judged now. On a thread of the port. May be NULL. */
    void (*ended)(void *context, const struct yb_engine_decided *decided,
                  const struct yb_engine_outcome *outcome, bool first,
                  const struct yb_engine_verdicts *verdicts);
};

/* Fails as yb_http_create() does. */
YB_CHECKED enum yb_status yb_engine_service_create(const struct yb_engine_service_options *options,
                                                   struct yb_engine_service **service_out,
                                                   char why_out[YB_ADDRESS_WHY_BYTES]);

/* The engine must have been stopped: what is being asked ends with it. */
void yb_engine_service_destroy(struct yb_engine_service **service);

/* What the engine has seen of each conductor's decisions. */
struct yb_engine_seen {
    uint64_t newest;    /* Number of a decision. */
    uint32_t in_flight; /* Requests that have not ended. */
};
void yb_engine_service_seen(struct yb_engine_service *service,
                            struct yb_engine_seen seen_out[YB_SCHED_CONDUCTORS_MAX]);

struct yb_address yb_engine_service_address(const struct yb_engine_service *service);

#endif /* YB_ENGINE_SERVICE_H */
