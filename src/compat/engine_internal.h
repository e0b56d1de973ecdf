/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_internal.h -- the parts of an engine, shared by the files that make it up.
 *
 *     engine.c           life, names and ports
 *     engine_memory.c    what is registered
 *     engine_peer.c      peers by name
 *     engine_move.c      batches
 *     engine_notify.c    notifications of any length in messages of a bounded one
 *     engine_metadata.c  names that a server of the known system resolves
 *
 * Locks: one per engine, rank COMPAT_ENGINE; nothing that waits is called under it.
 */
#ifndef YB_COMPAT_ENGINE_INTERNAL_H
#define YB_COMPAT_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "compat/engine.h"
#include "yuebing/transfer.h"

#define YB_COMPAT_ENGINE_MAGIC 0x63656e67u

#define YB_COMPAT_NAME_BYTES   512u
#define YB_COMPAT_PEERS_MAX    512u
#define YB_COMPAT_JOBS_MAX     4096u
#define YB_COMPAT_SCRATCH_MAX  16u
#define YB_COMPAT_PARTIALS_MAX 64u

/* The numbers of the known engine that we return. */
#define YB_COMPAT_ENGINE_FAILED         (-1)
#define YB_COMPAT_ENGINE_NOT_REGISTERED (-3)
#define YB_COMPAT_ENGINE_OVERLAPS       (-7)

struct yb_compat_engine_peer;
struct yb_compat_engine_job;
struct yb_compat_engine_partial;

struct yb_compat_engine_range {
    uint64_t base;
    uint64_t length;
    bool managed; /* Allocated here. */
    bool busy;    /* Just being registered or unregistered. */
};

struct yb_compat_engine_scratch {
    struct yb_compat_engine_scratch *next;
    struct yb_transfer_item *items;
    uint32_t room;
};

struct yb_compat_engine {
    uint32_t magic;
    const struct yb_clock *clock;
    /* ---- set by initialize, before `ready` ---- */
    struct yb_log *log;
    struct yb_transfer *transfer;
    char name[YB_COMPAT_NAME_BYTES];
    char server[YB_COMPAT_NAME_BYTES]; /* Of names: "http://..."; "" for none. */
    char cluster[128];                 /* Of keys at that server. */
    bool published;                    /* The server knows our name. */
    uint16_t port;
    uint64_t timeout_ns;
    uint64_t probe_ns;
    _Atomic bool ready;

    struct yb_lock lock; /* Protects everything below. */
    bool initializing;
    struct yb_compat_engine_range *ranges; /* In order of address. */
    uint32_t range_count;
    uint32_t range_room;
    struct yb_compat_engine_peer *peers; /* The last one used first. */
    uint32_t peer_count;
    struct yb_compat_engine_job *jobs[YB_COMPAT_JOBS_MAX];
    uint32_t job_generations[YB_COMPAT_JOBS_MAX];
    uint32_t job_hint; /* Where to look for a free one. */
    struct yb_compat_engine_scratch *scratch;
    uint32_t scratch_count;
    struct yb_compat_engine_partial *partials; /* The newest first. */
    uint32_t partial_count;
    uint64_t message; /* Number of the last notification that was sent in parts. */
};

/* Whether it was initialized; every call begins with it. */
static inline bool
yb_compat_engine_ready(const struct yb_compat_engine *engine)
{
    return engine != NULL && atomic_load_explicit(&engine->ready, memory_order_acquire);
}

/* ---- engine.c ---- */

/* Write "host:port"; what is too long is cut off. */
void yb_compat_engine_address(const char *host, uint16_t port, char text_out[YB_COMPAT_NAME_BYTES]);

/* ---- engine_memory.c ---- */

void yb_compat_engine_memory_fini(struct yb_compat_engine *engine);

/* ---- engine_peer.c ---- */

/* Find or open the peer called `target`: to be given back. NULL: no such name, or no memory; the
 * reason is in the log. */
struct yb_compat_engine_peer *yb_compat_engine_peer_take(struct yb_compat_engine *engine,
                                                         const char *target);
/* `lost`: the next take connects anew (E3). */
void yb_compat_engine_peer_give(struct yb_compat_engine *engine, struct yb_compat_engine_peer *peer,
                                bool lost);
yb_transfer_peer yb_compat_engine_peer_handle(const struct yb_compat_engine_peer *peer);
const char *yb_compat_engine_peer_name(const struct yb_compat_engine_peer *peer);
void yb_compat_engine_peers_fini(struct yb_compat_engine *engine);

/* ---- engine_move.c ---- */

void yb_compat_engine_jobs_fini(struct yb_compat_engine *engine);

/* ---- engine_notify.c ---- */

/* A notification as one or several messages of at most 4096 bytes. */
struct yb_compat_engine_message {
    struct yb_compat_notify notify; /* Its texts are the message's own. */
    uint64_t number;
    uint32_t parts;
    char *texts;
};
/* Copy a notification. Fails with TOO_LARGE or NO_MEMORY. */
YB_CHECKED enum yb_status
yb_compat_engine_message_init(struct yb_compat_engine *engine,
                              const struct yb_compat_notify *notify,
                              struct yb_compat_engine_message *message_out);
void yb_compat_engine_message_fini(struct yb_compat_engine_message *message);
/* Write part `index`; returns its length. */
uint32_t yb_compat_engine_message_part(const struct yb_compat_engine_message *message,
                                       uint32_t index, uint8_t part_out[4096]);
void yb_compat_engine_notify_fini(struct yb_compat_engine *engine);

/* ---- engine_metadata.c ---- */

/* Tell the server of names where this engine listens; false: it could not be told, with the reason
 * in the log. */
bool yb_compat_metadata_publish(struct yb_compat_engine *engine, const char *host);
void yb_compat_metadata_withdraw(struct yb_compat_engine *engine);
/* Ask it for an address. */
bool yb_compat_metadata_resolve(struct yb_compat_engine *engine, const char *name,
                                char address_out[YB_COMPAT_NAME_BYTES]);

#endif /* YB_COMPAT_ENGINE_INTERNAL_H */
