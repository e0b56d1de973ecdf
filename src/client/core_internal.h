/* SPDX-License-Identifier: Apache-2.0
 *
 * core_internal.h -- the parts of the client's state machine.
 *
 * Which file: core.c life, members, batches, messages; core_get.c lookups, gets, exists; core_put.c
 * puts; core_remove.c removals; core_look.c single questions; core_watch.c news of what is gone.
 *
 * A batch under way is a `work`. Each of its items is in one of its lists, or in a message, or
 * ended:
 *
 *     WANT_LOOKUP --lookup--> READY --get--> ended
 *          ^                    |
 *          +--- wrong hint -----+------ another replica: READY again
 *
 *     WANT_INTENT --intent--> READY --put, to all replicas--> ended
 *          ^                    |
 *          +--- RESTING <-------+------ somebody else is at it, no room: later, elsewhere
 */
#ifndef YB_CLIENT_CORE_INTERNAL_H
#define YB_CLIENT_CORE_INTERNAL_H

#include "base/clock.h"
#include "base/pool.h"
#include "client/choose.h"
#include "client/core.h"
#include "client/hints.h"
#include "directory/wire/directory_wire.h"
#include "net/call.h"
#include "net/loop.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"

#define YB_CORE_MAGIC        0x5942434fu /* "YBCO" */
#define YB_CORE_MEMBERS_MAX  2048u
#define YB_CORE_LOOKUP_KEYS  4096u
#define YB_CORE_MOVE_ITEMS   128u         /* In one put or get. */
#define YB_CORE_MOVE_BYTES   (8ull << 20) /* ... unless a single item is larger. */
#define YB_CORE_PIECES_MAX   1024u
#define YB_CORE_BODY_BYTES   (YB_CORE_MOVE_ITEMS * (64u + 1024u) + 4096u)
#define YB_CORE_REPLY_BYTES  (YB_CORE_LOOKUP_KEYS * 32u + 64u)
#define YB_CORE_ATTEMPTS_MAX 6u
#define YB_CORE_WORKS_MAX    1024u /* Batches under way at a time. */
#define YB_CORE_NONE         UINT32_MAX

enum yb_core_phase {
    YB_CORE_ENDED,
    YB_CORE_WANT_LOOKUP,
    YB_CORE_WANT_INTENT,
    YB_CORE_READY,
    YB_CORE_RESTING,
    YB_CORE_SENT,
};

/* One item of a batch. */
struct yb_core_item {
    struct yb_id hash;
    uint64_t grant;                 /* That is expected; 0: any. */
    uint64_t room;                  /* Bytes of its pieces. */
    uint32_t next;                  /* In its list. */
    uint16_t slots[4];              /* Where it is, by hint or lookup. */
    uint16_t placed[YB_CHOOSE_MAX]; /* Slots that a put was sent to, or that refused it. */
    uint8_t placed_count;
    uint8_t phase; /* enum yb_core_phase */
    uint8_t slot_count;
    uint8_t tried; /* Bits of `slots`. */
    uint8_t lookups;
    uint8_t attempts;
    uint8_t outstanding; /* Messages of a put. */
    uint8_t made;        /* Replicas. */
    bool hinted;
    bool versioned;
    bool doubted; /* Some attempt of a put may have been applied. */
    int32_t last; /* Why the last attempt failed. */
};

struct yb_core_list {
    uint32_t head;
    uint32_t tail;
};

struct yb_core_work {
    struct yb_client_core *core;
    struct yb_client_batch *batch;
    struct yb_core_work *next;
    struct yb_core_work *previous;
    struct yb_core_item *items; /* Grows with the largest batch, and is kept. */
    uint32_t room;
    uint32_t left; /* Items that have not ended. */
    uint32_t ios;  /* Messages under way. */
    uint64_t write;
    bool joined; /* Keys are hashed. */
    bool cancelled;
    bool over; /* Its time has passed: nothing new is sent. */
    struct yb_core_list lookup;
    struct yb_core_list intent;
    struct yb_core_list ready;
    struct yb_core_list resting;
    struct yb_timer deadline;
    struct yb_timer rest;
    struct yb_task pump;
    /* remove_all, node by node. */
    uint32_t walk_row;
    uint64_t walk_cursor;
};

/* A message under way. */
struct yb_core_io {
    struct yb_call call;
    struct yb_client_core *core;
    struct yb_core_work *work;
    struct yb_core_io *next;
    struct yb_core_io *previous;
    uint16_t type;
    uint16_t slot; /* Of the node; 0: the directory. */
    uint64_t incarnation;
    uint64_t bytes;
    uint32_t count;
    uint32_t iov_count;
    uint32_t key_bytes;
    uint32_t items[YB_CORE_LOOKUP_KEYS]; /* Which items, in the order of the message. */
    struct iovec iov[YB_CORE_PIECES_MAX];
    uint8_t body[YB_CORE_BODY_BYTES];
    uint8_t reply[YB_CORE_REPLY_BYTES];
};

struct yb_core_member {
    struct yb_wire_member wire;
    struct yb_peer *peer; /* NULL: its address cannot be used. */
    uint64_t failed_until_ns;
    uint32_t failures;       /* In a row. */
    uint32_t unreported;     /* For the directory. */
    bool seen;               /* In the newest list. */
    bool watched;            /* A call waits there for news: core_watch.c. */
    uint64_t watch_until_ns; /* It is of interest until then. */
    uint64_t watch_after_ns; /* No new call before. */
    struct yb_core_io *open; /* Being filled by pump. */
};

struct yb_client_core {
    uint32_t magic;
    struct yb_client_core_options options; /* Strings are borrowed. */
    struct yb_net *net;
    struct yb_peer *directory;
    struct yb_hints *hints;
    struct yb_pool *ios;
    struct yb_core_io *io_list;
    struct yb_core_work *works;
    struct yb_core_work *free_works;
    uint32_t work_count;
    uint32_t spare_ios;
    bool stopping;
    bool joined; /* Seed and members are known. */
    bool asking; /* The call below is under way. */
    uint8_t seed[16];
    struct yb_id cluster;
    uint64_t epoch; /* The highest that was seen (RULES A10). */
    uint64_t members_version;
    uint64_t operation;
    struct yb_core_member *members;
    struct yb_choice *choices; /* One row for each member, in the same order. */
    uint32_t member_count;
    uint16_t *row_of_slot; /* Row + 1; 0: not a member. */
    struct yb_timer refresh;
    struct yb_call ask;
    uint8_t ask_body[64];
    uint8_t *ask_reply;
    struct yb_call report;
    bool reporting;
    uint8_t report_body[8 + 256 * 16];
    uint32_t looks;       /* Under way: core_look.c. */
    uint32_t watches;     /* Under way: core_watch.c. */
    uint32_t watch_count; /* Allocated. */
    struct yb_core_watch *free_watches;
    struct yb_client_counters counters;
};

static inline uint64_t
yb_core_now(const struct yb_client_core *core)
{
    return yb_loop_now(yb_net_loop(core->net));
}

/* ---- core.c: items and messages ------------------------------------------------------------- */

/* Put an item at the end of a list, in that list's phase. */
void yb_core_push(struct yb_core_work *work, struct yb_core_list *list, uint32_t index,
                  enum yb_core_phase phase);
/* Take the first item of a list; YB_CORE_NONE: it is empty. */
uint32_t yb_core_pop(struct yb_core_work *work, struct yb_core_list *list);

/* An item has its outcome. */
void yb_core_end(struct yb_core_work *work, uint32_t index, enum yb_status status);

/* Try an item again a little later, from WANT_LOOKUP or WANT_INTENT. */
void yb_core_rest(struct yb_core_work *work, uint32_t index);

/* Let the work go on, in this turn of the loop. */
void yb_core_pump_soon(struct yb_core_work *work);

/* Take an empty message; NULL: all are under way, the work goes on when one comes back. */
struct yb_core_io *yb_core_io_take(struct yb_core_work *work, uint16_t type, uint16_t slot);
void yb_core_io_give(struct yb_core_io *io);

/* Send a message whose call has body, data and reply set; `done` runs in any case, later or
 * (nothing was sent) at once. */
void yb_core_send(struct yb_core_io *io, void (*done)(struct yb_call *call));

/* The member of a slot; NULL: not known (any more). */
struct yb_core_member *yb_core_member(struct yb_client_core *core, uint16_t slot);
uint32_t yb_core_row(const struct yb_client_core *core, uint16_t slot);

/* A message to a node has failed, or was answered. */
void yb_core_member_failed(struct yb_client_core *core, const struct yb_core_io *io);
void yb_core_member_lives(struct yb_client_core *core, const struct yb_core_io *io);

/* Ask for the members now: a slot is not known, or one that is gone was named. */
void yb_core_refresh(struct yb_client_core *core);

/* Whether an answer of this epoch counts (RULES A10). */
bool yb_core_epoch(struct yb_client_core *core, uint64_t epoch);

uint64_t yb_core_random(struct yb_client_core *core);

/* Append an item's pieces, from `offset` on `bytes` of them, to the message's vectors. */
bool yb_core_pieces(struct yb_core_io *io, const struct yb_client_item *item, uint64_t bytes);

/* ---- core_watch.c --------------------------------------------------------------------------- */

/* Immutable blocks were read by this message: hear when they go. */
void yb_core_watch(struct yb_client_core *core, const struct yb_core_io *io);
void yb_core_watches_fini(struct yb_client_core *core);

/* ---- core_get.c, core_put.c, core_remove.c -------------------------------------------------- */

void yb_core_lookup_pump(struct yb_core_work *work);
void yb_core_get_begin(struct yb_core_work *work, uint32_t index);
void yb_core_get_pump(struct yb_core_work *work);
void yb_core_intent_pump(struct yb_core_work *work);
void yb_core_put_pump(struct yb_core_work *work);
void yb_core_remove_pump(struct yb_core_work *work);
void yb_core_remove_all_pump(struct yb_core_work *work);

#endif /* YB_CLIENT_CORE_INTERNAL_H */
