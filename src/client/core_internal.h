/* SPDX-License-Identifier: Apache-2.0
 *
 * core_internal.h -- the parts of the client's state machine.
 *
 * Which file: core.c life, batches, messages; core_members.c who is there; core_get.c lookups,
 * gets, exists; core_fetch.c fetches; core_put.c puts; core_remove.c removals; core_look.c single
 * questions; core_leave.c what is not wanted any more;
 * core_watch.c news of what is gone; core_near.c the engine's way: gets by pins;
 * core_pull.c puts that are fetched; core_borrow.c loans.
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
#include "client/gate.h"
#include "client/hints.h"
#include "directory/wire/directory_wire.h"
#include "net/call.h"
#include "net/loop.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"
#include "transfer/near.h"

#define YB_CORE_MAGIC         0x5942434fu /* "YBCO" */
#define YB_CORE_MEMBERS_MAX   2048u
#define YB_CORE_MEMBERS_REPLY (YB_WIRE_MEMBERS_BYTES + YB_CORE_MEMBERS_MAX * YB_WIRE_MEMBER_BYTES)
#define YB_CORE_LOOKUP_KEYS   4096u
#define YB_CORE_MOVE_ITEMS    128u         /* In one put or get. */
#define YB_CORE_MOVE_BYTES    (8ull << 20) /* ... unless a single item is larger. */
#define YB_CORE_PIECES_MAX    1024u
#define YB_CORE_BODY_BYTES    (YB_CORE_MOVE_ITEMS * 1088u + YB_CORE_PIECES_MAX * 16u + 4096u)
#define YB_CORE_REPLY_BYTES   (YB_CORE_LOOKUP_KEYS * 32u + 64u)
#define YB_CORE_ATTEMPTS_MAX  6u
#define YB_CORE_WORKS_MAX     1024u /* Batches under way at a time. */
#define YB_CORE_NONE          UINT32_MAX

enum yb_core_phase {
    YB_CORE_ENDED,
    YB_CORE_WANT_LOOKUP,
    YB_CORE_WANT_INTENT,
    YB_CORE_READY,
    YB_CORE_RESTING,
    YB_CORE_SENT,
};

/* How the bytes of an item go to or come from a node. */
enum yb_core_route {
    YB_CORE_FRAMES,
    YB_CORE_NEAR,    /* By the transfer engine. */
    YB_CORE_NOWHERE, /* It is device memory, and there is no engine here or there. */
};

#define YB_CORE_GATE_ROUTES 2u /* FRAMES, NEAR */

enum yb_core_device { YB_CORE_DEVICE_UNKNOWN, YB_CORE_DEVICE_NO, YB_CORE_DEVICE_YES };

/* One item of a batch. */
struct yb_core_item {
    struct yb_id hash;
    uint64_t grant;                 /* That is expected; 0: any. */
    uint64_t room;                  /* Bytes of its pieces. */
    uint64_t held;                  /* The node's pin that it is read by; 0: none. */
    uint64_t epoch;                 /* Of a put: of the directory that it was announced to. */
    uint64_t deadline_ns;           /* Of a fetch: its own. */
    uint64_t looked_ns;             /* Of a fetch: when `ready_ns` was said. */
    struct yb_core_io *io;          /* Of a fetch that is SENT: the message that it is in. */
    uint32_t next;                  /* In its list. */
    uint32_t previous;              /* In its list. */
    uint32_t head;                  /* Of a put: 1 + an item whose hash leads to here; 0: none. */
    uint32_t twin;                  /* Of a put: 1 + the item that goes for it; 0: none. */
    uint16_t slots[4];              /* Where it is, by hint or lookup. */
    uint16_t placed[YB_CHOOSE_MAX]; /* Slots that a put was sent to, or that refused it. */
    uint8_t placed_count;
    uint8_t places; /* How many it is sent to now. */
    uint8_t phase;  /* enum yb_core_phase */
    uint8_t slot_count;
    uint8_t tried; /* Bits of `slots`. */
    uint8_t lookups;
    uint8_t attempts;
    uint8_t outstanding; /* Messages of a put. */
    uint8_t made;        /* Replicas. */
    bool hinted;
    bool probed; /* Its last message went to a node that had failed lately. */
    bool versioned;
    bool doubted;   /* Some attempt of a put may have been applied. */
    bool announced; /* The directory tells others that this put is under way. */
    bool frames;    /* The engine's way has failed it. */
    bool looked;    /* Of a fetch: the directory has said what it knows of it. */
    bool below;     /* It lies below memory: whoever asks for it waits. */
    bool here;      /* It lies in memory of this host. */
    bool cancelled; /* Nobody wants it any more. */
    uint8_t device; /* enum yb_core_device: whether it is asked of is found out once. */
    int32_t last;   /* Why the last attempt failed. */
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
    uint32_t left;   /* Items that have not ended. */
    uint32_t ios;    /* Messages under way. */
    uint32_t joined; /* Items that have begun, and whose keys are hashed: the first ones. */
    uint64_t write;
    bool cancelled;
    bool over; /* Its time has passed: nothing new is sent. */
    struct yb_core_list lookup;
    struct yb_core_list intent;
    struct yb_core_list ready;
    struct yb_core_list resting;
    struct yb_timer deadline;
    struct yb_timer rest;
    uint32_t rests; /* Since the last item ended. */
    struct yb_task pump;
    /* Of a fetch. */
    struct yb_core_list below; /* Like `ready`, of blocks that lie below memory. */
    struct yb_timer due;       /* The next item's own deadline. */
    uint32_t unlooked;         /* Items. */
    uint32_t flying;           /* Items that nodes are asked for. */
    bool told;                 /* `looked` has run. */
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
    uint64_t life; /* Of the directory under whose seed its keys are hashed. */
    uint32_t clusters;
    uint64_t bytes;
    uint32_t count;
    uint32_t iov_count;
    uint32_t key_bytes;
    uint64_t leave_ticket;               /* Of a get or a pin: by which its node knows it. */
    uint32_t items[YB_CORE_LOOKUP_KEYS]; /* Which items, in the order of the message. */
    struct iovec iov[YB_CORE_PIECES_MAX];

    /* ---- the engine's way ---- */
    bool moving; /* The engine has it, and not the net. */
    yb_transfer_batch batch;
    struct yb_mail mail;
    uint64_t sent_ns;
    uint64_t moved;                        /* Bytes that the engine has brought. */
    uint32_t ticket;                       /* Place + 1 among the core's; 0: none. */
    uint32_t held_count;                   /* Memory that was registered for this message. */
    uint32_t pieces[YB_CORE_MOVE_ITEMS];   /* Reads of each item. */
    uint64_t pins[YB_CORE_MOVE_ITEMS];     /* 0: none. */
    uint64_t until_ns[YB_CORE_MOVE_ITEMS]; /* What has come by then is good. */
    void *held[YB_CORE_PIECES_MAX];

    uint8_t body[YB_CORE_BODY_BYTES];
    uint8_t reply[YB_CORE_REPLY_BYTES];
};

struct yb_core_member {
    struct yb_wire_member wire;
    struct yb_peer *peer; /* NULL: its address cannot be used. */
    uint64_t failed_until_ns;
    uint64_t failed_ns;           /* When the last one was counted. */
    uint32_t failures;            /* In a row: of calls that began after the one before. */
    uint32_t unreported;          /* For the directory. */
    bool seen;                    /* In the newest list. */
    bool watched;                 /* A call waits there for news: core_watch.c. */
    uint64_t watch_until_ns;      /* It is of interest until then. */
    uint64_t watch_after_ns;      /* No new call before. */
    struct yb_core_io *open;      /* Being filled by pump ... */
    struct yb_core_io *open_near; /* ... for the engine's way. */
    /* What a fetch was told of before wants so many bytes of its SSD, and of its object store. */
    const struct yb_core_work *ahead_of;
    uint64_t ahead_bytes[2];
    struct yb_core_leave *leave; /* Being filled by a cancel; NULL: none. */
    yb_transfer_peer near;       /* Its engine, for ours; 0: not opened. */
    uint64_t near_since_ns;
    uint64_t nearness_ns;              /* When it was looked up ... */
    uint32_t nearness;                 /* ... and what it was: YB_TRANSFER_NEAR_ bits. */
    struct yb_core_borrowed *borrowed; /* Its pool, as it is mapped here; core_borrow.c. */
    struct yb_gate_path paths[YB_CORE_GATE_ROUTES]; /* What gets from it have been like. */
    uint64_t gate_bytes; /* Before the next block of the run that is looked at. */
};

/* A pin that is to be given back. */
struct yb_core_pin {
    uint64_t incarnation;
    uint64_t pin;
    uint16_t slot;
};
#define YB_CORE_PINS_MAX  2048u /* Beyond them pins lapse. */
#define YB_CORE_GIVE_PINS 512u  /* In one message. */
#define YB_CORE_GIVES_MAX 8u    /* Messages under way. */

/* Pins on their way back. */
struct yb_core_give {
    struct yb_call call;
    struct yb_client_core *core;
    bool busy;
    uint8_t body[YB_WIRE_RELEASES_BYTES + YB_CORE_GIVE_PINS * YB_WIRE_PIN_ID_BYTES];
    uint8_t reply[YB_WIRE_RELEASE_ANSWERS_BYTES + YB_CORE_GIVE_PINS * YB_WIRE_RELEASE_ANSWER_BYTES];
};

#define YB_CORE_HELD_MAX 4096u

/* What there is only with an engine. */
struct yb_core_near {
    _Atomic uint64_t *tickets; /* Shared memory: one word for each message (C6). */
    uint32_t *free_tickets;
    uint32_t free_count;
    uint32_t pin_count;
    uint32_t gives_out;
    struct yb_timer give_timer;
    struct yb_core_give gives[YB_CORE_GIVES_MAX];
    struct yb_core_pin pins[YB_CORE_PINS_MAX];
    uint32_t held_count; /* Memory that somebody still read when its message ended. */
    void *held[YB_CORE_HELD_MAX];
    struct yb_transfer_item items[YB_CORE_PIECES_MAX];
    struct yb_transfer_item_status statuses[YB_CORE_PIECES_MAX];
    struct yb_wire_put_item put_items[YB_CORE_MOVE_ITEMS];
    struct yb_wire_pull_source sources[YB_CORE_PIECES_MAX];
    uint8_t keys[YB_CORE_MOVE_ITEMS * YB_CLIENT_KEY_BYTES_MAX];
};

struct yb_core_loans;
struct yb_stripe_job;

#define YB_CORE_RANDOM 64u

/* Below this a frame there and back costs less than a pin and a read. */
#define YB_CORE_NEAR_BYTES_MIN 16384u

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
    uint32_t ios_max;
    uint32_t fetches; /* Under way; they share what messages they may use. */
    bool stopping;
    bool joined; /* Seed and members are known. */
    bool asking; /* The call below is under way. */
    uint8_t seed[16];
    struct yb_id cluster;
    uint32_t clusters; /* Counts those that were joined. */
    uint64_t epoch;    /* The highest that was seen (RULES A10). */
    uint64_t life;     /* Incarnation of the directory that told cluster and seed; 0: none has. */
    uint64_t members_version;
    uint64_t members_ns; /* When they were told last. */
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
    struct yb_core_withdrawals *withdrawals; /* core_put.c */
    struct yb_core_declines *declines;       /* core_gate.c; NULL: no gate. */
    uint8_t report_body[8 + 256 * 16];
    uint32_t looks;       /* Under way: core_look.c. */
    uint32_t watches;     /* Under way: core_watch.c. */
    uint32_t watch_count; /* Allocated. */
    uint32_t leaves;      /* Under way: core_leave.c. */
    uint32_t leave_count; /* Allocated. */
    struct yb_core_leave *free_leaves;
    struct yb_stripe_job *jobs; /* Under way: stripe.c. */
    struct yb_core_watch *free_watches;
    struct yb_core_near *near;                         /* NULL: no engine. */
    struct yb_core_loans *loans;                       /* core_borrow.c */
    struct yb_gate_path paths[2][YB_CORE_GATE_ROUTES]; /* Of other hosts, and of this one. */
    struct yb_client_counters counters;

    /* Drawn together: a batch of puts wants two for each of its keys. */
    uint64_t random[YB_CORE_RANDOM];
    uint32_t random_left;
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
/* Take an item out of the list that it is in. */
void yb_core_take_out(struct yb_core_work *work, struct yb_core_list *list, uint32_t index);

/* An item has its outcome. */
void yb_core_end(struct yb_core_work *work, uint32_t index, enum yb_status status);
/* It is over before it had one, as `status` says. Of what ran out of time, what it waited for last
 * is told. */
void yb_core_end_unfinished(struct yb_core_work *work, uint32_t index, enum yb_status status);

/* Try an item again a little later, from WANT_LOOKUP or WANT_INTENT. */
void yb_core_rest(struct yb_core_work *work, uint32_t index);

/* Somebody has come who may take what rests: it is tried at once. */
void yb_core_wake(struct yb_client_core *core);

/* Let the work go on, in this turn of the loop. */
void yb_core_pump_soon(struct yb_core_work *work);

/* Take an empty message; NULL: all are under way, the work goes on when one comes back. */
struct yb_core_io *yb_core_io_take(struct yb_core_work *work, uint16_t type, uint16_t slot);
void yb_core_io_give(struct yb_core_io *io);

/* Let a message end early; its `done` still runs, later. Its node hears of it with the next
 * yb_core_leave_send(). */
void yb_core_io_cancel(struct yb_core_io *io);

/* Send a message whose call has body, data and reply set; `done` runs in any case, later or
 * (nothing was sent) at once. */
void yb_core_send(struct yb_core_io *io, void (*done)(struct yb_call *call));

/* The member of a slot; NULL: not known (any more). */
struct yb_core_member *yb_core_member(struct yb_client_core *core, uint16_t slot);
uint32_t yb_core_row(const struct yb_client_core *core, uint16_t slot);

/* Forget a member: its life is over, or it is another's. */
void yb_core_member_drop(struct yb_client_core *core, uint32_t row);

/* The refresh timer: ask the directory who is there. */
void yb_core_on_refresh(struct yb_timer *timer);

/* A message to a node has ended: remember whether the node answers. Returns whether it does, as a
 * member. */
bool yb_core_member_heard(const struct yb_core_io *io);

/* Ask for the members now: a slot is not known, or one that is gone was named. */
void yb_core_refresh(struct yb_client_core *core);
/* What members last said of how busy they are is made use of: ask for it if that is old. */
void yb_core_freshen(struct yb_client_core *core);

/* Whether an answer of this epoch counts (RULES A10). */
bool yb_core_epoch(struct yb_client_core *core, uint64_t epoch);

/* An answer names the version of the membership: ask who is there if that is another one. */
void yb_core_versions(struct yb_client_core *core, uint64_t members_version);

/* Whether a message's keys are hashed as its receiver hashes them. If another directory has come,
 * its cluster and seed are asked before anything else: it may know of nothing that was before. */
bool yb_core_current(const struct yb_core_io *io);

/* A node does not hash as we do: ask for the seed. */
void yb_core_rejoin(struct yb_client_core *core);

uint64_t yb_core_random(struct yb_client_core *core);

/* Append an item's pieces, from `offset` on `bytes` of them, to the message's vectors. */
bool yb_core_pieces(struct yb_core_io *io, const struct yb_client_item *item, uint64_t bytes);

/* Parts of gets that come the other way too: fill in an item, close the body up, say whether there
 * is no room for one more, try another replica, and how long one may take. */
/* A block that is read is a manifest. Whether the item has ended with that (stripe.h goes on). */
bool yb_core_get_striped(struct yb_core_work *work, uint32_t index, uint16_t flags);

/* Ask nodes for what a list holds, with at most `items_max` in a message, as long as more than
 * `spare` messages are left. */
void yb_core_get_list(struct yb_core_work *work, struct yb_core_list *list, uint32_t items_max,
                      uint32_t spare);
/* Where an item is asked for next: its list. */
void yb_core_get_ready(struct yb_core_work *work, uint32_t index);

void yb_core_get_add(struct yb_core_io *io, uint32_t index);
void yb_core_get_close(struct yb_core_io *io);
bool yb_core_get_full(const struct yb_core_io *io, const struct yb_core_work *work, uint32_t index);
void yb_core_get_elsewhere(struct yb_core_work *work, uint32_t index, enum yb_status why);
void yb_core_get_failed(struct yb_core_io *io, enum yb_status why); /* The whole message. */
void yb_core_get_took(struct yb_core_work *work, uint32_t index, uint64_t bytes);

/* Parts of puts: what the node is told of an item, and what it answered. The message has ended:
 * each answer is taken; where there is none the item has the call's outcome. */
void yb_core_put_answered(struct yb_core_io *io,
                          void (*take)(struct yb_core_io *io, uint32_t index,
                                       const struct yb_wire_put_answer *answer));
void yb_core_put_describe(const struct yb_core_work *work, uint32_t index,
                          struct yb_wire_put_item *wire_out);
void yb_core_put_outcome(struct yb_core_work *work, uint32_t index, enum yb_status status,
                         uint64_t grant);

/* ---- core_leave.c --------------------------------------------------------------------------- */

/* Nobody wants the item at this place of a message any more (YB_WIRE_LEAVE_ALL: nothing of it): its
 * node hears of it with the next send. */
void yb_core_leave(struct yb_core_io *io, uint32_t place);
void yb_core_leave_send(struct yb_client_core *core);
void yb_core_leaves_fini(struct yb_client_core *core);

/* ---- core_near.c ---------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_core_near_create(struct yb_client_core *core, uint32_t messages);
void yb_core_near_stop(struct yb_client_core *core);
bool yb_core_near_idle(const struct yb_client_core *core);
void yb_core_near_fini(struct yb_client_core *core);

/* A member came to be known, or goes. */
void yb_core_near_open(struct yb_client_core *core, struct yb_core_member *member);
void yb_core_near_close(struct yb_client_core *core, struct yb_core_member *member);

/* What shared memory can do with a member, as of this turn of the loop: YB_TRANSFER_NEAR_ bits. */
uint32_t yb_core_nearness(struct yb_client_core *core, struct yb_core_member *member);

/* Whether any of an item's memory is a device's. */
bool yb_core_is_device(struct yb_core_work *work, uint32_t index);

enum yb_core_route yb_core_get_route(struct yb_core_work *work, uint32_t index,
                                     struct yb_core_member *member);
void yb_core_pin_send(struct yb_core_io *io);

/* Give a pin back, a little later, together with others. */
void yb_core_give(struct yb_core_io *io, uint64_t pin);
void yb_core_give_to(struct yb_client_core *core, uint16_t slot, uint64_t incarnation,
                     uint64_t pin);

/* The engine has ended what an io waits for: post its mail. `done` of a batch. */
void yb_core_engine_done(struct yb_transfer *engine, yb_transfer_batch batch, void *owner);

/* ---- core_pull.c ---------------------------------------------------------------------------- */

enum yb_core_route yb_core_put_route(struct yb_core_work *work, uint32_t index,
                                     struct yb_core_member *member);
void yb_core_pull_send(struct yb_core_io *io);

/* Memory that was still being read is looked at again. */
void yb_core_held_look(struct yb_client_core *core);

/* ---- core_borrow.c -------------------------------------------------------------------------- */

/* Begin an item that is read by a hold: at its node, and nowhere else. */
void yb_core_held_begin(struct yb_core_work *work, uint32_t index);

/* What became of an item that was pinned to be borrowed or held. */
void yb_core_borrow_take(struct yb_core_io *io, uint32_t at,
                         const struct yb_wire_pin_answer *answer);
void yb_core_release_pump(struct yb_core_work *work);
/* Give everything back that is borrowed; for the end. */
void yb_core_loans_stop(struct yb_client_core *core);
void yb_core_loans_fini(struct yb_client_core *core);

/* ---- core_gate.c ---------------------------------------------------------------------------- */

/* A message has brought `bytes`, since its `sent_ns`. */
void yb_core_gate_measure(struct yb_core_io *io, enum yb_core_route route, uint64_t bytes,
                          uint64_t now_ns);

/* An EXIST has all its answers: say no more than what is worth loading. */
void yb_core_gate(struct yb_core_work *work);

/* Tell the directory, a little later, that a block was not named. `gate` has been through the run
 * up to it; NULL: it is behind the end of the run. */
void yb_core_declined(struct yb_client_core *core, struct yb_id hash, const struct yb_gate *gate);
YB_CHECKED enum yb_status yb_core_declines_create(struct yb_client_core *core);
void yb_core_declines_stop(struct yb_client_core *core);
bool yb_core_declines_idle(const struct yb_client_core *core);
void yb_core_declines_fini(struct yb_client_core *core);

/* ---- core_fetch.c --------------------------------------------------------------------------- */

/* Begin: all keys are hashed. What has least time comes first. */
void yb_core_fetch_begin(struct yb_core_work *work);
void yb_core_fetch_pump(struct yb_core_work *work);
void yb_core_fetch_on_due(struct yb_timer *timer);

/* The directory's word on an item, of which `there` says whether it can be read. Returns whether
 * it goes on as a get; otherwise it was dealt with. */
bool yb_core_fetch_looked(struct yb_core_work *work, uint32_t index,
                          const struct yb_wire_lookup_answer *answer, bool there);

/* An item was not read from where it was looked for. */
void yb_core_fetch_missed(struct yb_core_work *work, uint32_t index);

/* An item has ended. */
void yb_core_fetch_ended(struct yb_core_work *work, uint32_t index);

/* Whether a fetch's item has no time left, or is not wanted: OK if neither. */
enum yb_status yb_core_fetch_over(const struct yb_core_work *work, uint32_t index);

/* The earliest deadline of a message's items. */
uint64_t yb_core_fetch_deadline(const struct yb_core_io *io);

/* Whether a message ended because the time of its most hurried item was over, which says nothing of
 * its node; then each item ends, or is asked for again. */
bool yb_core_fetch_hurried(const struct yb_core_io *io);
void yb_core_fetch_again(struct yb_core_work *work, uint32_t index);

/* ---- stripe.c ------------------------------------------------------------------------------- */

/* The core stops: what waits for its next attempt ends. */
void yb_stripe_stop(struct yb_client_core *core);

/* ---- core_watch.c --------------------------------------------------------------------------- */

/* Immutable blocks were read by this message: hear when they go. */
void yb_core_watch(struct yb_client_core *core, const struct yb_core_io *io);
void yb_core_watches_fini(struct yb_client_core *core);

/* ---- core_get.c, core_put.c, core_remove.c -------------------------------------------------- */

void yb_core_lookup_pump(struct yb_core_work *work);
void yb_core_get_begin(struct yb_core_work *work, uint32_t index);
void yb_core_get_pump(struct yb_core_work *work);
void yb_core_put_begin(struct yb_core_work *work);
void yb_core_put_twins(struct yb_core_work *work);

/* Tell the directory of puts that were announced and have ended without a grant, so that nobody
 * waits for them. */
void yb_core_put_withdraw(struct yb_core_work *work, uint32_t index);
YB_CHECKED enum yb_status yb_core_withdrawals_create(struct yb_client_core *core);
bool yb_core_withdrawals_idle(const struct yb_client_core *core);
void yb_core_withdrawals_fini(struct yb_client_core *core);
void yb_core_intent_pump(struct yb_core_work *work);
void yb_core_put_pump(struct yb_core_work *work);
void yb_core_remove_pump(struct yb_core_work *work);
void yb_core_remove_all_pump(struct yb_core_work *work);

#endif /* YB_CLIENT_CORE_INTERNAL_H */
