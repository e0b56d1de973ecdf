/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's state, for its two files.
 *
 *     service.c        life, log, metrics, what the directory tells
 *     service_calls.c  the calls
 *     service_moves.c  instructions that nodes carry out
 */
#ifndef YB_CONDUCTOR_SERVICE_INTERNAL_H
#define YB_CONDUCTOR_SERVICE_INTERNAL_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/lock.h"
#include "base/span.h"
#include "conductor/service.h"

#define YB_CONDUCTOR_SERVICE_MAGIC 0x63737663u
#define YB_CONDUCTOR_SHOWN         1024u /* Instructions that ended, the last ones. */

/* Codes of answers to calls that could not be. */
#define YB_CONDUCTOR_REFUSALS(X) \
    X(400)                       \
    X(403)                       \
    X(404)                       \
    X(405)                       \
    X(409)                       \
    X(413)                       \
    X(503)                       \
    X(507)

enum {
#define X(code) YB_CONDUCTOR_REFUSAL_##code,
    YB_CONDUCTOR_REFUSALS(X)
#undef X
        YB_CONDUCTOR_REFUSAL_OTHER,
    YB_CONDUCTOR_REFUSAL_COUNT
};

struct yb_conductor_service {
    uint32_t magic;
    struct yb_conductor_service_options options;
    char routing[32];
    char admission[32];
    uint32_t stats_first;
    struct yb_stats_shard *shard; /* Of the pulse. */
    FILE *file;                   /* The log; of the pulse. */
    uint64_t written;             /* Of the pulse. */
    uint8_t *flushing;            /* What it writes; of the pulse. */
    struct yb_conductor_info before;
    _Atomic(bool) began; /* Set once, after `conductor`; read before its first use. */
    _Atomic(uint64_t) calls;
    _Atomic(uint64_t) refused[YB_CONDUCTOR_REFUSAL_COUNT];

    struct yb_lock lock; /* CONDUCTOR; all below. */
    struct yb_conductor *conductor;
    uint8_t *waiting; /* Of the log, not written yet. */
    size_t waiting_bytes;
    uint64_t log_bytes; /* In all. */
    bool log_full;
    uint64_t heard_ns; /* When the directory last told; 0: never. */
    uint64_t events;   /* Changes that it told. */
    struct yb_conductor_moved shown[YB_CONDUCTOR_SHOWN];
    uint64_t shown_ever;
    struct yb_conductor_orders orders; /* As whoever carries them out told last. */
    uint64_t measured;                 /* Of these. */
};

/* The conductor with the lock held; NULL: it has not begun, and nothing is held. */
struct yb_conductor *yb_conductor_service_enter(struct yb_conductor_service *service,
                                                uint64_t *now_ns_out);
void yb_conductor_service_leave(struct yb_conductor_service *service);

/* ---- service_moves.c ------------------------------------------------------------------------- */

/* Hand on what nodes carry out of a decision, which is the span of `caused`. */
void yb_conductor_service_order(struct yb_conductor_service *service,
                                const struct yb_wire_conductor_schedule *asked,
                                const struct yb_conductor_prompt *prompt,
                                const struct yb_conductor_answer *answer,
                                const struct yb_trace_context *caused, uint64_t now_ns);

/* Hand on a move by hand. */
void yb_conductor_service_order_move(struct yb_conductor_service *service,
                                     const struct yb_wire_conductor_move *asked, uint64_t id,
                                     uint64_t now_ns);

/* The conductor's `order`: heat. With the lock held. */
bool yb_conductor_service_on_order(void *service, struct yb_conductor_order *order);

/* Copy the instructions that ended after number `after` (0: all that are remembered; more than
 * there were: another process's), the oldest first, at most YB_CONDUCTOR_SHOWN. Returns how many;
 * the last one's number is *last_out. */
uint32_t yb_conductor_service_ended(struct yb_conductor_service *service, uint64_t after,
                                    struct yb_conductor_moved *moved_out, uint64_t *last_out);

#endif /* YB_CONDUCTOR_SERVICE_INTERNAL_H */
