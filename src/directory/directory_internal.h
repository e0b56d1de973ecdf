/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_internal.h -- the parts of a directory, shared by the files that make it up.
 *
 *     directory.c          create, start, stop; the table of methods; join, members, numbers
 *     directory_member.c   register, heartbeat, report, set_state; deaths; the tick
 *     directory_publish.c  the streams of nodes
 *     directory_lookup.c   lookup, exist, explain
 *     directory_write.c    intent, remove, remove_all
 *     directory_order.c    what nodes are told to do, and who waits for it
 *     directory_repair.c   the sweep, copies for repair and drain
 *     directory_event.c    events and snapshots
 */
#ifndef YB_DIRECTORY_DIRECTORY_INTERNAL_H
#define YB_DIRECTORY_DIRECTORY_INTERNAL_H

#include "base/check.h"
#include "directory/cluster_file.h"
#include "directory/directory.h"
#include "directory/events.h"
#include "directory/ghosts.h"
#include "directory/grant.h"
#include "directory/hidden.h"
#include "directory/index.h"
#include "directory/kills.h"
#include "directory/members.h"
#include "directory/tenants.h"
#include "directory/told.h"
#include "directory/trims.h"
#include "directory/wire/directory_wire.h"
#include "directory/writes.h"
#include "net/helper.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"

#define YB_DIRECTORY_MAGIC       0x64697265u
#define YB_DIRECTORY_TYPE_FIRST  YB_WIRE_DIRECTORY_TYPE_JOIN
#define YB_DIRECTORY_TYPE_COUNT  17u
#define YB_DIRECTORY_CHUNK       64u    /* Operations that are applied together. */
#define YB_DIRECTORY_ORDERS_MAX  65536u /* Unconfirmed ones of a slot; then it is fenced. */
#define YB_DIRECTORY_SETTLES_MAX 4096u  /* Answers that wait for nodes. */
#define YB_DIRECTORY_POLLS_MAX   256u   /* Subscribers that wait for an event. */
#define YB_DIRECTORY_HOLDS_MAX   4096u  /* Holds that wait to be passed on to a node. */
#define YB_DIRECTORY_REPAIRS_MAX 65536u /* Blocks that wait for a copy. */
#define YB_DIRECTORY_COPY_ITEMS  16u    /* Blocks in one order to copy. */
#define YB_DIRECTORY_GHOSTS      65536u
#define YB_DIRECTORY_TOLD        32768u /* As many holds as a node remembers. */
#define YB_DIRECTORY_TRIMS       16384u /* That nodes have not answered; a power of two. */
#define YB_DIRECTORY_DECLINED    16384u /* Blocks that reuse gates declined. */

/* How long a granted write is remembered: longer than any put takes. */
#define YB_DIRECTORY_WRITE_KEPT_NS (120 * YB_NS_PER_S)

struct yb_directory_settle;

/* ---- what a node is told to do --------------------------------------------------------------- */

/* The first four are reasons of a drop, as on the wire. */
enum yb_directory_order_kind {
    YB_DIRECTORY_DROP_REMOVED = YB_WIRE_DROP_REASON_REMOVED,
    YB_DIRECTORY_DROP_REPLACED = YB_WIRE_DROP_REASON_REPLACED,
    YB_DIRECTORY_DROP_LOST = YB_WIRE_DROP_REASON_LOST,
    YB_DIRECTORY_DROP_TRIMMED = YB_WIRE_DROP_REASON_TRIMMED,
    YB_DIRECTORY_FLUSH = 4,
};

struct yb_directory_order {
    struct yb_id hash;
    uint64_t number;                    /* The grant; of a flush its epoch. */
    struct yb_directory_settle *settle; /* Of a flush: who counts. It waits for this order. */
    uint16_t tenant;
    uint8_t kind; /* enum yb_directory_order_kind */
};

/* One slot, as somebody to talk to. Kept for the next life when one has ended. */
struct yb_directory_port {
    struct yb_directory *directory;
    uint16_t slot;
    bool open;
    uint8_t mirrored; /* The state that the index was told. */
    uint32_t life;    /* Counts opens. */
    struct yb_peer *peer;
    char address[64];
    struct yb_id identity;

    uint64_t expected; /* Sequence of the next publication. */
    bool inventory;    /* One has begun and not ended. */

    /* Orders, oldest first, in a ring that grows; all with numbers up to `confirmed` are done. */
    struct yb_directory_order *orders;
    uint32_t order_room; /* A power of two. */
    uint32_t order_first;
    uint32_t order_count;
    uint64_t issued;
    uint64_t confirmed;
    bool overflowed;
    struct yb_directory_settle *settles; /* Those that wait for this slot next. */
    struct yb_call call;
    bool busy;
    uint32_t call_life;
    uint32_t call_orders;
    uint8_t *call_body; /* Allocated when first needed, as is the next one. */
    uint8_t call_reply[YB_WIRE_FLUSH_ANSWER_BYTES_MAX];
    struct yb_timer retry;
    uint64_t retry_ns;

    uint8_t *holds; /* As on the wire. */
    uint32_t hold_count;
    struct yb_call hold_call;
    uint8_t *hold_body;
    bool hold_busy;
    uint64_t hold_after_ns; /* No new one before. */
    uint32_t hold_life;     /* Another number when it may not know what it was told to hold (T1). */

    bool dirty; /* Has something to send. */
    struct yb_directory_port *dirty_next;

    /* Draining: where the walk over its blocks stands. */
    uint32_t drain_cursor;
    bool drain_walking;
    uint64_t drain_next_ns;
    uint32_t drain_stuck; /* Blocks of this walk that fit nowhere. */
    uint32_t drain_left;  /* The same, of the last walk that has ended. */
};

/* ---- answers that wait ----------------------------------------------------------------------- */

struct yb_directory_wait {
    uint16_t slot;
    uint32_t life;
    uint64_t
        number; /* Until the slot has confirmed so many orders; UINT64_MAX: until it is dead. */
};

struct yb_directory_settle {
    struct yb_directory_settle
        *next; /* In the list of a port, or of those waiting for the rebuild. */
    struct yb_request *request;
    enum yb_status status;
    bool flush; /* The answer is `flushed`, of these. */
    bool after_rebuild;
    uint64_t flush_epoch;
    uint64_t flush_count;
    uint8_t *body;
    uint32_t body_bytes;
    struct yb_directory_wait *waits;
    uint32_t wait_count;
    uint32_t wait_room;
    uint32_t wait_at;             /* The first that is not known to be over. */
    struct yb_hidden_name *shows; /* What is shown when it is answered. */
    uint32_t show_count;
    uint32_t show_room;
};

/* ---- repair ---------------------------------------------------------------------------------- */

struct yb_directory_repair {
    struct yb_id hash;
    uint64_t grant;
    uint16_t tenant;
    uint16_t leaving; /* The slot that it is to leave; 0: only to have more copies. */
};

struct yb_directory_copy {
    struct yb_directory *directory;
    struct yb_directory_copy *next;
    struct yb_call call;
    bool busy;
    uint16_t target;
    uint32_t target_life;
    uint32_t count;
    struct yb_directory_repair items[YB_DIRECTORY_COPY_ITEMS];
    uint64_t sizes[YB_DIRECTORY_COPY_ITEMS];
    uint8_t body[YB_WIRE_COPIES_BYTES_MAX];
    uint8_t reply[YB_WIRE_COPY_ANSWERS_BYTES_MAX];
};

struct yb_directory_poll {
    struct yb_request *request;
    uint64_t from;
    uint64_t until_ns;
    uint32_t events_max;
};

struct yb_directory_handler {
    uint16_t type;
    void (*handle)(struct yb_directory *directory, struct yb_request *request);
};

/* How much repair has copied in each second. */
struct yb_directory_rate {
    uint64_t since_ns;      /* The second that is being counted began then. */
    uint64_t blocks_before; /* What had been copied by then. */
    uint64_t bytes_before;
    uint64_t blocks; /* Per second, in the one before. */
    uint64_t bytes;
};

struct yb_directory {
    uint32_t magic;
    struct yb_directory_options options; /* Pointers into it are not used after create. */
    bool started;
    bool stopping;
    struct yb_net *net;
    struct yb_loop *loop;
    struct yb_service service;
    struct yb_method methods[YB_DIRECTORY_TYPE_COUNT];

    struct yb_cluster_file *file;
    struct yb_id cluster;
    uint8_t seed[YB_CLUSTER_SEED_BYTES];
    uint64_t epoch;
    uint64_t last_grant;
    uint32_t turn; /* Of the replicas that lookups name. */
    bool rebuilding;
    bool all_named; /* What the members of before hold is known. */
    uint32_t rebuilt_permille;
    uint64_t lease_ns;

    struct yb_index *index;
    struct yb_helper_job growth; /* Takes memory for it. */
    bool growing;                /* That is under way. */
    struct yb_members *members;
    struct yb_tenants *tenants;
    struct yb_writes *writes;
    struct yb_events *events;
    struct yb_ghosts *ghosts;
    struct yb_kills *kills;
    struct yb_ghosts *declined;
    struct yb_hidden *hidden;
    struct yb_told *told;
    struct yb_trims *trims;
    uint32_t hold_lives; /* Numbers given to ports. */
    struct yb_directory_port *ports[YB_MEMBERS_SLOTS_MAX + 1];

    struct yb_timer tick;
    struct yb_timer sweep;
    struct yb_timer poll_timer;
    struct yb_task send_task;
    struct yb_task poll_task;
    struct yb_directory_port *dirty;

    /* Unconfirmed orders: drops by two bytes of their hash, flushes, and slots with more orders
     * than can be remembered. What is nowhere here need not be looked for. */
    uint32_t drops_pending[65536];
    uint32_t flushes_pending;
    uint32_t ports_overflowed;
    uint32_t orders_pending;
    uint32_t settle_count;
    struct yb_directory_settle *after_rebuild;
    struct yb_directory_poll polls[YB_DIRECTORY_POLLS_MAX];
    uint32_t poll_count;

    struct yb_directory_repair *repairs; /* A ring, allocated when first needed. */
    uint32_t repair_first;
    uint32_t repair_count;
    uint64_t repair_sweep_ns; /* Look for blocks that want repair then; YB_NEVER: no need. */
    struct yb_directory_copy *copies; /* Free ones. */
    uint32_t copies_busy;
    uint32_t copying; /* Blocks under way. */
    struct yb_directory_copy *copies_under_way[256];

    uint32_t calls; /* Under way, of any kind. */
    uint64_t lookups;
    uint64_t hits;
    uint64_t published;
    uint64_t removed;
    uint64_t repaired;
    uint64_t repaired_bytes;
    struct yb_directory_rate repair_rate;

    struct yb_stats_shard *shard;
    uint32_t stats_first;

    /* For the request that is being answered. */
    struct yb_index_op ops[YB_DIRECTORY_CHUNK];
    struct yb_index_result results[YB_DIRECTORY_CHUNK];
    struct yb_index_answer answers[YB_DIRECTORY_CHUNK];
    uint8_t *list; /* Items of an answer, as on the wire ... */
    uint8_t *body; /* ... and the whole of it. */
};

#define YB_DIRECTORY_BODY_BYTES (2u << 20)

/* ---- directory.c ----------------------------------------------------------------------------- */

uint64_t yb_directory_now(const struct yb_directory *directory);
static inline uint64_t
yb_directory_now_ms(const struct yb_directory *directory)
{
    return yb_directory_now(directory) / YB_NS_PER_MS;
}

/* Count in the statistics, if there are any. */
void yb_directory_count(struct yb_directory *directory, enum yb_directory_stat stat,
                        uint64_t delta);

/* Of a metric with a cell for each status: one more there. */
void yb_directory_count_status(struct yb_directory *directory, enum yb_directory_stat stat,
                               enum yb_status status);

void yb_directory_observe(struct yb_directory *directory, enum yb_directory_stat stat,
                          uint64_t value);

/* Have memory for the index taken ahead, if that is due. */
void yb_directory_grow(struct yb_directory *directory);

/* Answer with the first `length` bytes of directory->body. */
void yb_directory_reply(struct yb_directory *directory, struct yb_request *request,
                        enum yb_status status, size_t length);

/* Answer with a status alone. */
void yb_directory_refuse(struct yb_request *request, enum yb_status status);

/* Return the tenant of whoever asks; NONE: it is not known here yet, or with `make`: no room. */
uint32_t yb_directory_tenant_of(struct yb_directory *directory, const struct yb_request *request,
                                bool make);
uint32_t yb_directory_tenant_named(struct yb_directory *directory, const char *name,
                                   uint32_t length, bool make);

/* What is different from the present state in what is to be stored. */
struct yb_directory_change {
    const struct yb_members_slot *without; /* It is about to be dead. */
    bool without_awaited;                  /* Nobody is waited for any more. */
    const struct yb_members_plan *plan;    /* This registration is about to be admitted ... */
    const struct yb_members_facts *facts;
    uint64_t incarnation; /* ... of a node that says to have this incarnation. */
    uint64_t epoch;       /* 0: the present one. */
};

/* Make the cluster's state durable, with a change that is about to be made (NULL: none). */
YB_CHECKED enum yb_status yb_directory_store(struct yb_directory *directory,
                                             const struct yb_directory_change *change);

/* Look whether the rebuild has ended. */
void yb_directory_rebuild_check(struct yb_directory *directory);

/* ---- directory_away.c ------------------------------------------------------------------------ */

#define YB_DIRECTORY_KILLS_MAX 65536u

/* Something is about to be removed or replaced: make durable that those who keep blocks, and cannot
 * be told now, owe it. Fails as storing does. */
YB_CHECKED enum yb_status yb_directory_owe(struct yb_directory *directory);

/* Grants of a key up to this one are over. */
void yb_directory_ended(struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                        uint64_t grant);

/* A slot did not confirm some drops: nobody is to name what they were about. */
void yb_directory_unconfirmed(struct yb_directory *directory, uint16_t slot);
bool yb_directory_has_unconfirmed(const struct yb_directory *directory, uint16_t slot);

/* Whether what a slot says to have kept may be heard of again. FENCED: it is over; REFUSED: it may
 * be, and nobody knows any more. */
enum yb_status yb_directory_believes(struct yb_directory *directory,
                                     const struct yb_members_slot *slot, uint32_t tenant,
                                     const struct yb_wire_publish_item *item);

/* A slot has named all that it keeps. */
void yb_directory_listed(struct yb_directory *directory, struct yb_members_slot *slot);

/* ---- directory_member.c ---------------------------------------------------------------------- */

void yb_directory_handle_register(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_heartbeat(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_report(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_set_state(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_members(struct yb_directory *directory, struct yb_request *request);

/* Tell the index what a slot's state is now. */
void yb_directory_mirror(struct yb_directory *directory, struct yb_members_slot *slot);
void yb_directory_fence(struct yb_directory *directory, struct yb_members_slot *slot);
void yb_directory_tick(struct yb_directory *directory);

/* ---- directory_publish.c, directory_lookup.c, directory_write.c ------------------------------ */

void yb_directory_handle_publish(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_lookup(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_exist(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_explain(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_declined(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_intent(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_remove(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_remove_all(struct yb_directory *directory, struct yb_request *request);

/* ---- directory_order.c ----------------------------------------------------------------------- */

/* A slot begins a life, or goes on with one under a new incarnation. Fails with INVALID (nobody can
 * connect to its address) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_directory_port_open(struct yb_directory *directory,
                                                 const struct yb_members_slot *slot,
                                                 bool continues);

/* Its life is over: orders are void, who waits for it goes on. */
void yb_directory_port_close(struct yb_directory *directory, uint16_t slot);

/* End everything; `free` it when no call is under way any more. */
void yb_directory_ports_stop(struct yb_directory *directory);
void yb_directory_ports_free(struct yb_directory *directory);

/* Order something of a slot. Returns the number for a wait. */
uint64_t yb_directory_order(struct yb_directory *directory, uint16_t slot,
                            const struct yb_directory_order *order);

/* Order the drop of what an operation ended, and let `settle` (NULL: nobody) wait for it. */
void yb_directory_drop(struct yb_directory *directory, const struct yb_index_op *op,
                       const struct yb_index_result *result, enum yb_directory_order_kind reason,
                       struct yb_directory_settle *settle);

/* Pass a hold on, some time. */
void yb_directory_hold(struct yb_directory *directory, uint16_t slot, struct yb_id hash,
                       uint64_t grant, uint32_t hold_ms);

/* A replica of the block is gone: if one is left, let its node know, some time (C8). */
void yb_directory_sole(struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                       uint64_t grant);

/* Begin an answer that may have to wait; NULL: too many do. */
struct yb_directory_settle *yb_directory_settle_begin(struct yb_directory *directory);
void yb_directory_settle_wait(struct yb_directory *directory, struct yb_directory_settle *settle,
                              uint16_t slot, uint64_t number);

/* Wait for what was ordered of anybody until now about a block: drops of it, flushes of its tenant.
 * Whoever is told that a key is gone, or put anew, must not find an earlier block of it. Returns
 * whether there is something to wait for. */
bool yb_directory_settle_wait_for(struct yb_directory *directory,
                                  struct yb_directory_settle *settle, uint32_t tenant,
                                  struct yb_id hash);

/* Hide a block until the answer is given: neither lookups nor other writers are told of it. */
void yb_directory_settle_hide(struct yb_directory *directory, struct yb_directory_settle *settle,
                              const struct yb_hidden_name *name);

/* Return whether a block that the index has found is hidden. */
static inline bool
yb_directory_hides(const struct yb_directory *directory, uint32_t tenant, struct yb_id hash,
                   uint64_t grant)
{
    struct yb_hidden_name name = {.hash = hash, .grant = grant, .tenant = (uint16_t)tenant};

    return yb_hidden_count(directory->hidden) > 0 && yb_hidden_is(directory->hidden, &name);
}

/* Answer `request` when nothing is waited for any more, which may be at once. `body` is copied. */
void yb_directory_settle_go(struct yb_directory *directory, struct yb_directory_settle *settle,
                            struct yb_request *request, enum yb_status status, const uint8_t *body,
                            size_t body_bytes);
void yb_directory_settles_rebuilt(struct yb_directory *directory);

/* ---- directory_repair.c ---------------------------------------------------------------------- */

/* Something waits to be swept, or to be repaired at `when_ns`. */
void yb_directory_sweep_soon(struct yb_directory *directory);
void yb_directory_repair_after(struct yb_directory *directory, uint64_t when_ns);
void yb_directory_sweep_fired(struct yb_timer *timer);
void yb_directory_repair_tick(struct yb_directory *directory);
void yb_directory_repairs_free(struct yb_directory *directory);

/* ---- directory_event.c ----------------------------------------------------------------------- */

struct yb_directory_news {
    struct yb_id hash;
    uint64_t grant;
    uint64_t parent; /* Of what was stored; 0: not known. */
    uint64_t size;
    uint32_t tenant;
    uint16_t slot;
    uint8_t kind;
    uint8_t tier;
    uint16_t key_bytes;
    const uint8_t *key;
};

void yb_directory_event(struct yb_directory *directory, const struct yb_directory_news *news);
void yb_directory_handle_events(struct yb_directory *directory, struct yb_request *request);
void yb_directory_handle_snapshot(struct yb_directory *directory, struct yb_request *request);
void yb_directory_poll_fired(struct yb_timer *timer);
void yb_directory_poll_run(struct yb_task *task);

#endif /* YB_DIRECTORY_DIRECTORY_INTERNAL_H */
