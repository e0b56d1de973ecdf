/* SPDX-License-Identifier: Apache-2.0
 *
 * core.h -- the client as a state machine: batches of keys in, calls to directory and nodes out.
 *
 * A batch is one operation over many keys. It is planned (which keys go to which node, in which
 * calls), sent, and planned again for the keys whose first try gave a reason to: a stale hint, a
 * node that is gone, a put that another writer won. It ends once, when every key has its outcome or
 * its deadline has passed and everything is quiet. include/yuebing/client.h is the same for
 * programs with threads, and says what each outcome means; docs/store.md tells the protocol.
 *
 *     submit --> [lookup or intent] --> calls to nodes --> done
 *                     ^                      |
 *                     +---- keys to retry ---+
 *
 * Invariants
 *   C1  `done` of a batch runs exactly once, on the loop's thread, never inside submit, at its
 *       deadline and the moment that a reset takes at the latest.
 *   C2  When `done` runs nothing reads or writes the batch's memory any more.
 *   C3  At most one attempt may be able to write a get's destination at any time (RULES A3).
 *   C4  Hints choose which replica is tried first and never an answer (RULES B1, H5); exist, put,
 *       remove and reads of versioned blocks ask the directory.
 *   C5  A put that may have been applied is retried only under its write id, and ends IN_DOUBT if
 *       its outcome cannot be learned in time (RULES B5).
 *   C6  A node that fetches the values of a put commits them only if a word of our memory held the
 *       message's ticket after the last byte had come; it is cleared before the values' owner may
 *       change them.
 *   C7  What was read by a pin counts if it had come inside the pin's time, counted here from
 * before
 *       the request was sent; otherwise only if the node says that the pin held (RULES A12).
 *
 * Threads   The thread of its net's loop.
 * Memory    Batches and items are the caller's, borrowed from submit to `done`. Calls come from a
 *           pool that was sized at create; a batch that finds it empty waits inside.
 * Time      The loop's clock.
 */
#ifndef YB_CLIENT_CORE_H
#define YB_CLIENT_CORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/address.h"
#include "net/call.h"
#include "net/net.h"
#include "yuebing/client.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_client_core;
struct yb_transfer;

struct yb_client_core_options {
    struct yb_address_list directory;
    const char *tenant; /* Ours: "default" unless the credential says otherwise. */
    struct yb_id host;  /* Boot id of this machine; none: no node is local. */
    const char *rack;   /* NULL or "": not known. */
    const char *zone;
    uint32_t hints_max;            /* Blocks remembered, a power of two; 0: 65536; 1: none. */
    uint32_t calls_max;            /* Calls under way; 0: 64. */
    uint32_t members_ms;           /* How often members and their numbers are asked; 0: 1000. */
    uint32_t reuse_gate;           /* enum yb_client_gate */
    uint64_t prefill_ns_per_block; /* As in struct yb_client_options, both. */
    uint64_t bytes_per_block;
    uint64_t part_bytes; /* Longer values are cut, into parts of so many; 0: as stripe.h says. */
    /* For nodes of this host and device memory; NULL: frames only. It has the identity of the net,
     * outlives the core, and ends before the loop does. */
    struct yb_transfer *engine;
    const char *engine_address; /* Where it listens. */
    uint32_t near_bytes_min;    /* Less goes in frames, also where it is near; 0: 16384. */
    struct yb_stats *stats;
    struct yb_log *log;
    yb_span_random_fn *random;
    void *random_context;
    /* The directory was asked who is there: OK, or why there was no answer. NULL: nobody cares. */
    void (*news)(void *owner, enum yb_status status);
    void *news_owner;
};

enum yb_client_batch_kind {
    YB_CLIENT_PUT,
    YB_CLIENT_GET,
    YB_CLIENT_EXIST,
    YB_CLIENT_REMOVE,
    YB_CLIENT_REMOVE_ALL, /* No items; its count is in `total`. */
    YB_CLIENT_PIN,        /* Borrow; the bytes of an item are at `data`. */
    YB_CLIENT_HOLD,       /* Keep it where it lies, for reads by `held`. */
    YB_CLIENT_RELEASE,    /* Give back, by `pin`. */
    YB_CLIENT_FETCH,      /* A get whose items are looked up first, and end one by one. */
};

struct yb_client_batch {
    /* ---- the caller's ---- */
    uint8_t kind; /* enum yb_client_batch_kind */
    enum yb_class work_class;
    uint64_t deadline_ns;
    struct yb_id trace_id;
    uint64_t parent_span;
    struct yb_client_item *items;
    uint32_t count;
    struct yb_client_put_options put;
    uint32_t hold_ms; /* EXIST, HOLD, GET by `held`. */
    bool force;       /* REMOVE, REMOVE_ALL. */
    bool brief;       /* EXIST: nothing is wanted but each item's status. */
    /* Of stripe.h, which alone sets them. */
    bool raw;             /* GET: a manifest is read as what it is. */
    uint16_t block_flags; /* PUT: beside those of `put`. */
    uint64_t flush;       /* PUT: 1 + the flush epoch that it must be in, or it is STALE; 0: any. */
    uint64_t grant;       /* REMOVE: what has another one stays; 0: whatever is there. */
    /* FETCH: at most so many items are asked of nodes at a time; 0: no bound. */
    uint32_t window;
    /* FETCH: every item has been looked up, or has ended. Runs once, before `done`. */
    void (*looked)(struct yb_client_batch *batch);
    /* FETCH: an item has its outcome, and its memory is quiet; none for what is striped: that ends
     * with the batch. It must not submit or cancel. */
    void (*ended)(struct yb_client_batch *batch, uint32_t index);
    void (*done)(struct yb_client_batch *batch);
    void *owner;

    /* ---- results ---- */
    enum yb_status status; /* OK: every item has an outcome of its own; otherwise the batch's. */
    uint64_t total;
    /* Items that are manifests: unless it is raw, a GET leaves them IN_PROGRESS. In an EXIST their
     * size is YB_CORE_STRIPED_SIZE. */
    uint32_t striped;
    uint64_t flush_seen; /* EXIST: the tenant's flush epoch when it was asked first. */

    uint32_t here; /* FETCH: items that lie in memory of this host, and are on their way. */

    /* ---- the core's ---- */
    void *work;
    struct yb_client_batch *next;

    /* ---- those of stripe.c ---- */
    struct yb_client_core *core;
    void *job;
    void (*then)(struct yb_client_batch *batch); /* `done`, while it has taken its place. */
};

#define YB_CORE_STRIPED_SIZE UINT64_MAX

YB_CHECKED enum yb_status yb_client_core_create(const struct yb_client_core_options *options,
                                                struct yb_net *net,
                                                struct yb_client_core **core_out);

/* Another thread has the core's loop from here on. */
void yb_client_core_move(struct yb_client_core *core);

/* Whether nobody waits for anything that is under way. */
bool yb_client_core_calm(const struct yb_client_core *core);

/* End every batch (CANCELLED or IN_DOUBT); later yb_client_core_idle() is true. */
void yb_client_core_stop(struct yb_client_core *core);

/* Before that: send back what is lent to us. Returns whether all of it has been said. */
bool yb_client_core_settle(struct yb_client_core *core);
bool yb_client_core_idle(const struct yb_client_core *core);
void yb_client_core_destroy(struct yb_client_core **core);

/* Whether every number of a batch (the caller's part) is within its bounds. Any thread. */
bool yb_client_core_fits(const struct yb_client_batch *batch);

/* Begin a batch. On OK `done` will run once, later. Fails with INVALID (it does not fit: nothing
 * was started), AGAIN (too many batches wait) or CLOSED. */
YB_CHECKED enum yb_status yb_client_core_submit(struct yb_client_core *core,
                                                struct yb_client_batch *batch);

/* End a batch early; `done` runs when all of it is quiet. */
void yb_client_core_cancel(struct yb_client_core *core, struct yb_client_batch *batch);

/* End one item of a FETCH early. */
void yb_client_core_cancel_item(struct yb_client_core *core, struct yb_client_batch *batch,
                                uint32_t index);

/* Whether the directory has told us who is there; batches wait for that by themselves. */
bool yb_client_core_ready(const struct yb_client_core *core);

/* Return why the directory could not be reached lately: a sentence, "" if it could. Borrowed until
 * a turn of the loop. */
const char *yb_client_core_trouble(const struct yb_client_core *core);

/* Ask who is there now, and not only when it is time. */
void yb_client_core_look_again(struct yb_client_core *core);

/* ---- looking around (core_look.c) ------------------------------------------------------------ */

/* Copy the members, at most `room`, in order of slot; returns how many there are. */
uint32_t yb_client_core_nodes(struct yb_client_core *core, struct yb_client_node *nodes_out,
                              uint32_t room);

/* One question to the directory or to a node, outside of batches. */
struct yb_client_look {
    /* ---- the caller's ---- */
    uint16_t type; /* Of the frame. */
    uint16_t slot; /* 0: the directory. */
    uint64_t incarnation;
    bool mutates;
    enum yb_class work_class;
    uint64_t deadline_ns;
    const void *body;
    uint32_t body_bytes;
    void *reply;
    uint32_t reply_room;
    void (*done)(struct yb_client_look *look);
    void *owner;

    /* ---- results ---- */
    enum yb_status status;
    uint32_t reply_bytes;

    /* ---- the core's ---- */
    struct yb_client_core *core;
    struct yb_call call;
};

/* Ask. On OK `done` will run once, later. Fails with CLOSED, PEER_LOST (no such member any more) or
 * as yb_peer_call(). */
YB_CHECKED enum yb_status yb_client_core_look(struct yb_client_core *core,
                                              struct yb_client_look *look);

void yb_client_core_counters(const struct yb_client_core *core,
                             struct yb_client_counters *counters_out);

#endif /* YB_CLIENT_CORE_H */
