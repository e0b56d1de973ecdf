/* SPDX-License-Identifier: Apache-2.0
 *
 * reporter.h -- an engine tells a conductor what it is, what it does and what it has.
 *
 *     register --> report, every `report_ns` --> unregister
 *        ^            |
 *        +------------+ the conductor does not know the engine (it was restarted, or missed
 *                       reports), or changes were lost: everything is told again
 *
 * Of what others sent it here a conductor hears at once, at most a hundred times a second: until it
 * does it takes the engine for free.
 *
 * A conductor that does not answer costs the engine nothing: requests that know where to go are
 * served as before.
 *
 * Threads   One of its own; yb_engine_reporter_block() and _done() from any.
 * Memory    Changes that wait are at most four for each block of the engine, ends of requests at
 *           most YB_ENGINE_DONE_MAX: of what comes beyond that the conductor learns later, or by
 *           its own expiry.
 */
#ifndef YB_ENGINE_REPORTER_H
#define YB_ENGINE_REPORTER_H

#include "engine/engine.h"
#include "engine/orders.h"
#include "engine/service.h"

#define YB_ENGINE_DONE_MAX  4096u
#define YB_ENGINE_URL_BYTES 256u

struct yb_engine_reporter;

struct yb_engine_reporter_options {
    const char *url;     /* Of the conductor: "http://host:port". */
    const char *secret;  /* Bearer token; NULL: none. */
    const char *name;    /* Of the instance. */
    const char *address; /* Where its requests go, "host:port". */
    const char *node;    /* The store's node beside it; NULL: none. */
    const char *model;
    uint8_t roles;             /* YB_SCHED_PREFILL | YB_SCHED_DECODE */
    struct yb_sched_cost cost; /* As it is on this engine: times scaled, bytes too. */
    uint64_t net_rate;         /* Bytes per second; of its links, before any was measured. */
    uint64_t load_rate;
    uint64_t ssd_rate;
    uint64_t object_rate;
    uint32_t group;
    uint32_t rack;
    uint32_t parts;     /* Values in the store that a block has. */
    uint64_t report_ns; /* At least 10 ms; 0: 100 ms. */
};

/* Start telling. The engine is named later, by attach: it is made with a listener that tells this
 * reporter. Fails with INVALID (the URL), UNSUPPORTED (no libcurl here) or NO_MEMORY. */
YB_CHECKED enum yb_status
yb_engine_reporter_create(const struct yb_engine_reporter_options *options,
                          struct yb_engine_reporter **reporter_out,
                          char why_out[YB_ENGINE_WHY_BYTES]);

/* Engine and service are borrowed until destroy. */
YB_CHECKED enum yb_status yb_engine_reporter_attach(struct yb_engine_reporter *reporter,
                                                    struct yb_engine *engine,
                                                    struct yb_engine_service *service);

/* Tell no more, and unregister. Before engine and service go. */
void yb_engine_reporter_quiet(struct yb_engine_reporter *reporter);

/* Be quiet, and set *reporter to NULL. When nothing tells it anything any more. */
void yb_engine_reporter_destroy(struct yb_engine_reporter **reporter);

/* Of struct yb_engine_listener, with the reporter as owner. */
void yb_engine_reporter_block(void *reporter, const uint8_t key[YB_KV_KEY_BYTES], bool there);

/* A request came of which the conductor does not know: the next report does not wait. */
void yb_engine_reporter_taken(struct yb_engine_reporter *reporter);

/* A request of a decision has ended, or (`first`) has its first token. */
void yb_engine_reporter_done(struct yb_engine_reporter *reporter, uint64_t decision,
                             const struct yb_engine_outcome *outcome, bool first,
                             const struct yb_engine_verdicts *verdicts);

struct yb_engine_reporter_info {
    uint64_t registered;
    uint64_t reports;
    uint64_t failures; /* Calls that were not answered, or refused. */
    uint64_t lost;     /* Ends of requests for which there was no room. */
};
void yb_engine_reporter_info(struct yb_engine_reporter *reporter,
                             struct yb_engine_reporter_info *info_out);

#endif /* YB_ENGINE_REPORTER_H */
