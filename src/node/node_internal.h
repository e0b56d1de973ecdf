/* SPDX-License-Identifier: Apache-2.0
 *
 * node_internal.h -- the parts of a node, for its own folder and its tests.
 *
 * Which file: node.c life and membership; node_block.c tenants, and the states of blocks;
 * node_put.c and node_pull.c bytes in; node_get.c bytes out; node_pin.c loans; node_order.c what a
 * directory orders; node_copy.c copies from other nodes; node_evict.c what goes; node_watch.c who
 * is told that a block is gone; node_look.c listings and numbers for others; node_show.c the same
 * for this process. The tiers below DRAM: node_below.h.
 */
#ifndef YB_NODE_NODE_INTERNAL_H
#define YB_NODE_NODE_INTERNAL_H

#include <sys/uio.h>

#include "base/clock.h"
#include "base/pool.h"
#include "directory/wire/directory_wire.h"
#include "net/loop.h"
#include "net/net.h"
#include "net/request.h"
#include "node/block.h"
#include "node/member.h"
#include "node/node.h"
#include "node/publisher.h"
#include "node/wire/node_wire.h"
#include "policy/marks.h"
#include "policy/policy.h"
#include "tier/dram/pool.h"

#define YB_NODE_MAGIC      0x59424e4fu /* "YBNO" */
#define YB_NODE_PUTS       256u        /* Put requests under way at a time. */
#define YB_NODE_READS      256u        /* Get requests whose reply is under way. */
#define YB_NODE_PUT_IOV    1024u /* Vectors of one put, with those for bytes that nobody wants. */
#define YB_NODE_SINK_BYTES (256u * 1024u)
#define YB_NODE_GHOSTS     (1u << 16)
#define YB_NODE_EVICT_STEP 4096u /* Victims looked at for one allocation. */
#define YB_NODE_SPARED     4096u /* Parts of one value that do not go for another part of it. */
#define YB_NODE_LIMITED    64u   /* Tenants with an order of eviction of their own. */

/* By enum yb_wire_tier; 0 is the word "miss". */
extern const struct yb_stats_label yb_node_label_tier;
extern const struct yb_stats_label yb_node_label_instructed;

/* Counted since the node was created. */
/* clang-format off */
#define YB_NODE_STATS(X)                                                                           \
    X(PUTS,         COUNTER, COUNT, "puts", &yb_stats_label_status, NULL,                           \
      "blocks that somebody wanted to put, by outcome")                                            \
    X(PUT_BYTES,    COUNTER, BYTES, "put", NULL, NULL, "bytes of granted blocks")                   \
    X(GETS,         COUNTER, COUNT, "gets", &yb_stats_label_status, NULL,                           \
      "blocks that somebody wanted to read, by outcome")                                           \
    X(GET_BYTES,    COUNTER, BYTES, "get", NULL, NULL, "bytes read")                                \
    X(EVICTED,      COUNTER, COUNT, "evicted", NULL, NULL, "blocks that made room")                 \
    X(EVICTED_BYTES, COUNTER, BYTES, "evicted", NULL, NULL, "bytes of blocks that made room")       \
    X(EXPIRED,      COUNTER, COUNT, "expired", NULL, NULL, "blocks whose time was over")            \
    X(DROPPED,      COUNTER, COUNT, "dropped", NULL, NULL, "blocks that the directory ordered away")\
    X(FLUSHED,      COUNTER, COUNT, "flushed", NULL, NULL, "blocks of flushed tenants")             \
    X(COPIED,       COUNTER, COUNT, "copied", NULL, NULL, "blocks copied from other nodes")         \
    X(COPIED_BYTES, COUNTER, BYTES, "copied", NULL, NULL, "bytes copied from other nodes")          \
    X(EVICT_VAIN,   COUNTER, COUNT, "evict_vain", NULL, NULL,                                       \
      "allocations for which nothing could be evicted")                                            \
    X(PINS_LAPSED,  COUNTER, COUNT, "pins_lapsed", NULL, NULL, "pins that ran out unreleased")      \
    X(SOFT_LAPSED,  COUNTER, COUNT, "soft_lapsed", NULL, NULL,                                      \
      "soft pins that ended, for nobody had used their blocks for as long as they last")            \
    X(TOLD,         COUNTER, COUNT, "told", NULL, NULL, "dropped blocks that readers were told of") \
    X(STORED,       COUNTER, COUNT, "stored", NULL, NULL, "blocks that a tier below has taken")     \
    X(STORED_BYTES, COUNTER, BYTES, "stored", NULL, NULL, "bytes of such blocks")                   \
    X(STORES_FAILED, COUNTER, COUNT, "stores_failed", &yb_stats_label_status, NULL,                 \
      "blocks that it has not taken, by why; NO_SPACE and QUOTA are no failures of the medium")     \
    X(STORES_SKIPPED, COUNTER, COUNT, "stores_skipped", NULL, NULL,                                 \
      "blocks that were to be stored at once and had to wait for their eviction")                   \
    X(EVICTED_CLEAN, COUNTER, COUNT, "evicted_clean", NULL, NULL,                                   \
      "blocks that made room and lie in a tier below")                                              \
    X(DEMOTE_DROPPED, COUNTER, COUNT, "demote_dropped", NULL, NULL,                                 \
      "blocks that made room and were lost, for no tier below could take them in time")             \
    X(DESCENDED,    COUNTER, COUNT, "descended", NULL, NULL,                                        \
      "blocks that a tier was about to lose and the next one below has taken")                      \
    X(DESCENDED_BYTES, COUNTER, BYTES, "descended", NULL, NULL, "bytes of such blocks")             \
    X(LOADED,       COUNTER, COUNT, "loaded", NULL, NULL, "blocks that came up from below")         \
    X(LOADED_BYTES, COUNTER, BYTES, "loaded", NULL, NULL, "bytes of such blocks")                   \
    X(LOADS_FAILED, COUNTER, COUNT, "loads_failed", &yb_stats_label_status, NULL,                   \
      "loads that a tier could not do, by why")                                                     \
    X(JOINED,       COUNTER, COUNT, "joined", NULL, NULL, "readers that joined a load under way")   \
    X(LOAD_TIME,    HISTOGRAM, NANOSECONDS, "load", &yb_node_label_tier, NULL,                      \
      "how long loads took, by the tier that a block came from")                                    \
    X(LOAD_TOOK,    COUNTER, NANOSECONDS, "load_took", &yb_node_label_tier, NULL,                   \
      "the sum of that ...")                                                                        \
    X(LOAD_SAID,    COUNTER, NANOSECONDS, "load_forecast", &yb_node_label_tier, NULL,               \
      "... and of what the tier forecast when they began")                                          \
    X(LEFT,         COUNTER, COUNT, "left", NULL, NULL,                                             \
      "readers that left a load before its end: cancelled, late, or gone")                          \
    X(LOADS_CANCELLED, COUNTER, COUNT, "loads_cancelled", NULL, NULL,                               \
      "loads that ended early, because the last of their readers had left")                         \
    X(KILLS_FAILED, COUNTER, COUNT, "kills_failed", &yb_stats_label_status, NULL,                   \
      "kills and flushes that a tier could not do, to be tried again, by why")                      \
    X(BELOW_LOST,   COUNTER, COUNT, "below_lost", NULL, NULL,                                       \
      "blocks that a tier below has not any more: reclaimed, or spoilt")                            \
    X(FOUND,        COUNTER, COUNT, "found", &yb_node_label_tier, NULL,                             \
      "blocks that somebody wanted to read, by where they lay; miss: nowhere here")                 \
    X(HIT_RATIO,    GAUGE,   COUNT, "hit_ratio_ppm", &yb_node_label_tier, NULL,                     \
      "of a million blocks that were to be read since the start; all tiers and miss are a million") \
    X(TIER_WORKS,   GAUGE,   COUNT, "tier_works", &yb_node_label_tier, NULL,                        \
      "1: the tier takes and gives blocks; 0: it has stepped aside")                                \
    X(TIER_BLOCKS,  GAUGE,   COUNT, "tier_blocks", &yb_node_label_tier, NULL, "blocks in a tier")   \
    X(TIER_LIVE,    GAUGE,   BYTES, "tier_live", &yb_node_label_tier, NULL, "bytes of their values")\
    X(TIER_USED,    GAUGE,   BYTES, "tier_used", &yb_node_label_tier, NULL,                         \
      "bytes of its medium, with what is dead and not reclaimed")                                   \
    X(TIER_STORED,  GAUGE,   BYTES, "tier_stored", &yb_node_label_tier, NULL,                       \
      "bytes of values that it has taken since the start")                                          \
    X(TIER_WRITTEN, GAUGE,   BYTES, "tier_written", &yb_node_label_tier, NULL,                      \
      "bytes that it has written for them: by tier_stored, the write amplification")                \
    X(TIER_READ,    GAUGE,   BYTES, "tier_read", &yb_node_label_tier, NULL, "bytes read from it")   \
    X(TIER_RECLAIMS, GAUGE,  COUNT, "tier_reclaims", &yb_node_label_tier, NULL,                     \
      "parts of its medium that were cleared for new blocks since the start")                       \
    X(TIER_CORRUPT, GAUGE,   COUNT, "tier_corrupt", &yb_node_label_tier, NULL,                      \
      "blocks that were found spoilt in it since the start")                                        \
    X(INSTRUCTED,   COUNTER, COUNT, "instructed", &yb_node_label_instructed, NULL,                  \
      "blocks that conductors wanted here, by what became of them")                                 \
    X(REGISTERED,   COUNTER, COUNT, "registered", NULL, NULL, "lives that a directory issued")      \
    X(LIVE,         GAUGE,   BYTES, "live", NULL, NULL, "bytes of granted blocks")                  \
    X(IN_FLIGHT,    GAUGE,   BYTES, "in_flight", NULL, NULL, "bytes being written")                 \
    X(UNGRANTED,    GAUGE,   BYTES, "ungranted", NULL, NULL, "bytes that wait for a grant")         \
    X(QUARANTINED,  GAUGE,   BYTES, "quarantined", NULL, NULL, "bytes that may still be read")      \
    X(CAPACITY,     GAUGE,   BYTES, "capacity", NULL, NULL, "bytes of the pool")                    \
    X(HUGE,         GAUGE,   BYTES, "huge", NULL, NULL,                                             \
      "bytes of the pool in huge pages when it was made; 0 also where the kernel does not say")     \
    X(BLOCKS,       GAUGE,   COUNT, "blocks", NULL, NULL, "granted blocks")                         \
    X(BELOW,        GAUGE,   COUNT, "below", NULL, NULL, "blocks that lie in tiers below memory")
/* clang-format on */

enum yb_node_stat {
#define X(id, ...) YB_NODE_STAT_##id,
    YB_NODE_STATS(X)
#undef X
        YB_NODE_STAT_COUNT
};

/* A block of a put that is under way. */
struct yb_node_put_item {
    struct yb_node_put *put;
    struct yb_block *block; /* NULL: none any more; `status` counts. */
    enum yb_status status;
    uint64_t grant;
    uint64_t size;
};

/* What a put that fetches its bytes waits for. */
enum yb_node_pull_phase {
    YB_NODE_PULL_NONE, /* It does not, or not any more. */
    YB_NODE_PULL_BYTES,
    YB_NODE_PULL_TICKET,
};

/* A put request. */
struct yb_node_put {
    struct yb_node *node;
    struct yb_request *request;
    void (*on_end)(struct yb_node_put *put); /* Not a request's: called instead of a reply. */
    struct yb_node_put *next;
    struct yb_node_put *previous;
    uint64_t deadline_ns;
    uint64_t flush;   /* 1 + the flush epoch of what it brings; 0: the one that its tenant is in. */
    uint32_t cluster; /* The node's count when the keys' hashes were compared. */
    uint32_t use;     /* Its number, as yb_node_use() gave it. */
    uint32_t count;
    uint32_t waiting; /* Items without an outcome. */
    uint32_t iov_count;
    enum yb_node_pull_phase pull;
    bool only_way;       /* Its sender cannot send what is not fetched. */
    uint32_t pull_peer;  /* In the table of node_pull.c. */
    uint64_t pull_batch; /* The engine's. */
    uint64_t ticket;
    uint64_t ticket_at;
    uint64_t ticket_seen; /* What was found there. */
    struct yb_mail pull_mail;
    uint32_t pull_pieces[YB_WIRE_PUT_ITEMS_MAX]; /* Of each item; 0: nothing is fetched for it. */
    struct yb_node_put_item items[YB_WIRE_PUT_ITEMS_MAX];
    struct iovec iov[YB_NODE_PUT_IOV];
};

/* A get whose reply is under way. */
struct yb_node_wait;
struct yb_node_read {
    struct yb_node *node;
    uint64_t bytes; /* That are lent to the reply. */
    uint32_t count;
    uint32_t use;   /* Its number, as yb_node_use() gave it, ... */
    uint32_t index; /* ... and of the item that is looked at. */
    uint32_t tenant;
    const struct yb_node_wait *wait; /* What it waited for; NULL: nothing. */
    struct yb_block *blocks[YB_WIRE_GET_ITEMS_MAX];
    struct iovec iov[YB_WIRE_GET_ITEMS_MAX];
};

/* What became of a block that is not here. */
struct yb_node_ghost {
    struct yb_id hash;
    uint64_t when_ns;
    uint8_t fate; /* enum yb_wire_fate */
};

/* Where a group's newest block is; of groups that share a place the last one counts. */
struct yb_node_group {
    uint64_t group;
    uint32_t block;
};
#define YB_NODE_GROUPS 4096u

/* Blocks were removed, and the answer waits until the directory names none of them any more. */
struct yb_node_removal {
    struct yb_request *request; /* NULL: the place is free. */
    struct yb_wire_remove_unheld_answer answer;
    uint64_t left;    /* Withdrawals that it has not taken. */
    uint64_t through; /* Kills below DRAM up to this one have to be done. */
};
#define YB_NODE_REMOVALS 16u

/* What leaves by the link: how much is on its way, and the fastest that went lately, for a reader
 * that is slow says nothing of the link. */
struct yb_node_link {
    uint64_t backlog_bytes;
    uint64_t rate;        /* 0: not known. */
    uint64_t moved_bytes; /* Since the last look, while it was full, ... */
    uint64_t full_ns;     /* ... which was so long. */
    uint64_t since_ns;    /* Up to then it is counted. */
};

struct yb_node_below;
struct yb_node_lift;
struct yb_node_wait;
struct yb_node_watch;
struct yb_node_loans;
struct yb_node_copies;
struct yb_node_pulls;

struct yb_node {
    uint32_t magic;
    struct yb_node_options options; /* Its strings are owned copies. */
    char *strings[7];
    char address[YB_ADDRESS_TEXT_BYTES];
    char name[64]; /* Of yb_node_set_name(); "": the options'. */
    struct yb_net *net;
    struct yb_service service;
    struct yb_member *member;
    struct yb_publisher *publisher;
    struct yb_block_table *blocks;
    struct yb_dram_pool *pool;
    struct yb_policy *policy;
    struct yb_policy_marks marks; /* When the tick evicts, and how much. */
    struct yb_stats_shard *shard;
    uint32_t stats_first;

    /* ---- membership ---- */
    bool registered;
    bool stopping;
    bool leaving; /* Nobody waits for news any more. */
    bool has_seed;
    uint8_t seed[16];
    uint32_t cluster; /* Counts the clusters that it has joined. */
    struct yb_id cluster_id;
    uint8_t slot_state;
    uint16_t slot;
    bool want_keys;
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t grant_max;
    uint64_t flush_version;
    struct yb_tenant *tenants;
    uint32_t tenant_count;
    uint32_t tenant_last; /* Where the last search ended. */
    uint32_t limited_count;
    uint16_t limited[YB_NODE_LIMITED]; /* Tenants that have a policy. */

    /* ---- work under way ---- */
    struct yb_timer tick;
    struct yb_pool *puts;
    struct yb_pool *reads;
    struct yb_node_put *put_list;
    uint32_t requests; /* Accepted and not replied, of all kinds that wait. */
    struct yb_node_removal removals[YB_NODE_REMOVALS];
    uint16_t removing;   /* Whose withdrawals are being made: index + 1; 0: nobody's. */
    uint32_t sweep_at;   /* Next block of the sweep for flushed and expired ones. */
    uint32_t sweep_left; /* Blocks to look at until the last flush is swept. */
    uint8_t *sink;       /* YB_NODE_SINK_BYTES for bytes that nobody wants. */
    uint8_t *scratch;    /* For replies' bodies. */
    uint8_t *keys;       /* For keys on their way into one. */
    uint64_t region;     /* Of the pool, in the engine; 0: none. */
    const uint8_t *region_base;
    uint64_t pinned_bytes;
    uint64_t held_bytes;
    struct yb_node_link link;
    uint32_t hold_oldest; /* Index + 1. */
    uint32_t hold_newest;
    struct yb_node_ghost *ghosts;
    struct yb_node_group *groups;
    struct yb_block *spared[YB_NODE_SPARED]; /* Pinned for the allocation that is under way. */
    uint32_t spared_count;
    uint32_t uses;         /* Numbers of requests that were given. */
    uint32_t pinning;      /* That of the request for pins that is being answered, ... */
    uint32_t pinning_item; /* ... and the item of it. */
    uint64_t spared_group; /* Of which it is: none of it is a victim. 0: none is spared. */
    uint16_t spared_tenant;
    struct yb_node_watch *watch;
    struct yb_node_loans *loans;
    struct yb_node_copies *copies;
    struct yb_node_instructions *instructions;
    struct yb_node_pulls *pulls; /* NULL: there is no engine. */
    struct yb_node_below *below; /* NULL: there is nothing below DRAM. */

    /* ---- numbers for node_numbers ---- */
    uint64_t granted_count; /* GRANTED blocks now. */
    uint64_t puts_ever;
    uint64_t gets_ever;
    uint64_t hits_ever;
    uint64_t evicted_ever;
    uint64_t evicted_bytes_ever;
    uint64_t refused_space_ever;
    uint64_t told_ever;
    uint64_t found_ever[YB_WIRE_TIER_OBJECT + 1]; /* By tier; 0: nowhere here. */
};

#define YB_NODE_SCRATCH_BYTES (1024u * 1024u)
#define YB_NODE_KEYS_BYTES    (512u * 1024u)

static inline uint64_t
yb_node_now(const struct yb_node *node)
{
    return yb_loop_now(yb_net_loop(node->net));
}

void yb_node_count(struct yb_node *node, enum yb_node_stat stat, uint64_t delta);
void yb_node_count_status(struct yb_node *node, enum yb_node_stat stat, enum yb_status status);

/* ---- node_block.c: tenants and blocks -------------------------------------------------------- */

/* Find the tenant, or begin to know it; UINT32_MAX: too many. */
uint32_t yb_node_tenant(struct yb_node *node, const char *name);

/* Whose request it is: its tenant's number; UINT32_MAX: nobody's, or there are too many tenants. */
uint32_t yb_node_tenant_of(struct yb_node *node, const struct yb_request *request);

/* Whether blocks may be served at all now (N1). */
bool yb_node_serving(const struct yb_node *node);

/* What a reader calls a block. */
struct yb_node_name {
    struct yb_id hash;
    const uint8_t *key;
    uint32_t key_bytes;
    uint64_t grant; /* YB_WIRE_NO_GRANT: any. */
};

/* Return the block that may be read under this name by this tenant now; otherwise NULL, and
 * *status_out says why: FENCED, NOT_FOUND or STALE. */
struct yb_block *yb_node_find(struct yb_node *node, uint32_t tenant,
                              const struct yb_node_name *name, enum yb_status *status_out);

const uint8_t *yb_node_bytes(const struct yb_node *node, const struct yb_block *block);
const uint8_t *yb_node_key(const struct yb_node *node, const struct yb_block *block);

/* Keep a block's memory, and its place, until as many unpins. */
void yb_node_pin(struct yb_node *node, struct yb_block *block);
void yb_node_unpin(struct yb_node *node, struct yb_block *block);

/* A GRANTED block is gone, for the reason `fate` (enum yb_wire_fate); its memory goes when nobody
 * reads it. `withdraw`: tell the directory. */
void yb_node_doom(struct yb_node *node, struct yb_block *block, uint8_t fate, bool withdraw);

/* Free a block that was never granted. */
void yb_node_discard(struct yb_node *node, struct yb_block *block);

/* Make a block readable under its grant; an older one of its key goes. */
void yb_node_grant(struct yb_node *node, struct yb_block *block, uint64_t grant, bool sole);

/* Take what is told of tenants, by an order or with a heartbeat, whichever comes first. Returns how
 * many blocks are gone by the epoch. */
uint64_t yb_node_flush(struct yb_node *node, uint32_t tenant, uint64_t flush);

/* Collect flushed and expired blocks, some at a time. */
void yb_node_sweep(struct yb_node *node);

/* Free every block that is left; nobody reads any more. */
void yb_node_free_blocks(struct yb_node *node);

/* Let heartbeats and metrics know how the node stands (node_show.c). */
void yb_node_show_vitals(struct yb_node *node);

/* Reply, and count the request as done. */
void yb_node_reply(struct yb_node *node, struct yb_request *request, enum yb_status status,
                   const void *body, size_t body_bytes);

/* Keep a block from eviction until then, unless it alone is too much; older holds yield. Or no
 * more. */
void yb_node_hold(struct yb_node *node, struct yb_block *block, uint64_t until_ns);
void yb_node_hold_end(struct yb_node *node, struct yb_block *block);

/* Where there are tiers below memory: remember a hold, wherever its block lies; and whether one
 * lasts. The soonest to end is forgotten where there are too many. */
void yb_node_hold_told(struct yb_node *node, struct yb_id hash, uint64_t grant, uint64_t until_ns);
bool yb_node_is_held(const struct yb_node *node, struct yb_id hash, uint64_t grant);

/* ---- node_evict.c --------------------------------------------------------------------------- */

/* The policy that a block is in, or comes into. */
struct yb_policy *yb_node_policy(const struct yb_node *node, const struct yb_block *block);

/* Take a granted block into its policy; `sole`: there is no other copy. Let it go from there:
 * `evicted`, as its victim. */
void yb_node_order(struct yb_node *node, struct yb_block *block, bool sole);
void yb_node_unorder(struct yb_node *node, struct yb_block *block, bool evicted);

/* End the soft pin of a granted block, if it is one that ends, and nobody has used the block for as
 * long as it lasts. */
void yb_node_lapse_soft_pin(struct yb_node *node, struct yb_block *block);

/* A tenant has a limit now: its own blocks make room for it. */
void yb_node_limit(struct yb_node *node, uint32_t tenant);

/* Allocate an extent for what comes in, with room made by evicting: of the tenant's own blocks, if
 * it is at its limit. A part of a long value evicts no other part of it, and stays below the high
 * mark. Fails as yb_dram_alloc() does. */
struct yb_node_intake;
YB_CHECKED enum yb_status yb_node_room(struct yb_node *node, uint64_t bytes,
                                       const struct yb_node_intake *intake,
                                       struct yb_dram_extent *extent_out);

/* Take a record for a block, if need be one that is evicted for it. Fails with NO_SPACE. */
YB_CHECKED enum yb_status yb_node_record(struct yb_node *node, struct yb_id hash,
                                         struct yb_block **block_out);

/* Return a number for a request that puts or reads, by which the policy knows what belongs
 * together. Never 0. */
uint32_t yb_node_use(struct yb_node *node);

/* Tell the policy that a granted block was read now, by the request `use`, as its item `index`. */
void yb_node_used(struct yb_node *node, struct yb_block *block, uint32_t use, uint32_t index);

/* Evict down to the low mark if use is above the high one: some steps at a time. */
void yb_node_evict_tick(struct yb_node *node);

/* ---- node_put.c ----------------------------------------------------------------------------- */

enum yb_status yb_node_put_place(void *service, struct yb_request *request,
                                 const struct iovec **iov_out, uint32_t *count_out);
void yb_node_put_handle(void *service, struct yb_request *request);
void yb_node_put_abort(void *service, struct yb_request *request);

/* Begin a put: AGAIN, there are YB_NODE_PUTS already. It ends by commit, or by undo, which gives
 * back what its items have and replies nothing. */
YB_CHECKED enum yb_status yb_node_put_begin(struct yb_node *node, struct yb_request *request,
                                            struct yb_node_put **put_out);
void yb_node_put_undo(struct yb_node_put *put);

/* Append an item: find a place for it, or write down why there is none. */
void yb_node_put_item_place(struct yb_node_put *put, const struct yb_wire_put_item *wire,
                            const uint8_t *key, uint32_t tenant, uint64_t write);

/* The bytes of an item that has a block have not come. */
void yb_node_put_refuse(struct yb_node_put_item *item, enum yb_status status);

/* The bytes of all items that have a block are there: commit and publish them, and reply when every
 * item has its outcome. */
void yb_node_put_commit(struct yb_node_put *put);

/* Take a record for a block that is to be written: extent, key, tenant's accounts. */
struct yb_node_intake {
    struct yb_id hash;
    uint64_t write;
    uint64_t size;
    uint64_t flush;
    uint64_t ttl_ms;
    uint64_t soft_pin_ms;
    uint64_t group;
    uint64_t parent;
    const uint8_t *key;
    uint32_t key_bytes;
    uint32_t tenant;
    uint32_t checksum;
    uint32_t epoch; /* Of the directory that the put was announced to. */
    uint16_t flags;
    uint8_t mode;
    uint8_t replicas;
    uint8_t places;
    bool checked;
};
YB_CHECKED enum yb_status yb_node_take_in(struct yb_node *node, const struct yb_node_intake *intake,
                                          struct yb_block **block_out);

/* The bytes are there: compare and sum them. CORRUPT: not what the writer sent. */
YB_CHECKED enum yb_status yb_node_commit(struct yb_node *node, struct yb_block *block);

/* Queue the publication of a COMMITTED block. AGAIN: the queue is full. */
YB_CHECKED enum yb_status yb_node_publish(struct yb_node *node, struct yb_block *block);

/* Let a chain of blocks be known to the policy: a suffix goes before its prefix, whichever was
 * granted first. */
void yb_node_join_chain(struct yb_node *node, struct yb_block *block);

/* Put a block that was granted beside those of its group and its chain. */
void yb_node_join_others(struct yb_node *node, struct yb_block *block);

/* Tell the directory that a block which lies below is in memory, too. */
void yb_node_publish_loaded(struct yb_node *node, struct yb_block *block);

/* The directory's word on a block's publication. */
void yb_node_put_answered(struct yb_node *node, struct yb_block *block, enum yb_status status,
                          uint64_t grant, bool sole);

/* An item of a put has its outcome. */
void yb_node_put_end(struct yb_node_put_item *item, enum yb_status status, uint64_t grant);

/* End puts whose time is over; with `all`, every one (CLOSED). */
void yb_node_put_tick(struct yb_node *node, bool all);

/* ---- node_pull.c ---------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_node_pulls_create(struct yb_node *node);
void yb_node_pulls_destroy(struct yb_node *node);
void yb_node_put_pull_handle(void *service, struct yb_request *request);
void yb_node_pull_tick(struct yb_node *node);

/* End the fetching of a put soon. */
void yb_node_pull_stop(struct yb_node_put *put);

/* ---- node_get.c ----------------------------------------------------------------------------- */

/* Bring what the items of a get or a pin will touch near the processor. */
void yb_node_prefetch(const struct yb_node *node, const struct yb_wire_get *body);

void yb_node_get_handle(void *service, struct yb_request *request);
/* Let heartbeats know how the link is. */
void yb_node_link_show(struct yb_node *node);
void yb_node_fetch_block_handle(void *service, struct yb_request *request);

/* Compare the chunks of a range with their sums, where there are any. */
bool yb_node_verify(const struct yb_node *node, const struct yb_block *block, uint64_t offset,
                    uint64_t bytes);

/* ---- node_pin.c ----------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_node_loans_create(struct yb_node *node);
void yb_node_loans_destroy(struct yb_node *node);
void yb_node_pin_handle(void *service, struct yb_request *request);
/* Let the hold that a reader names last for `duration_ms` from now. Returns false: it names one
 * that is over, somebody else's, or of another block; true also if it names none. */
bool yb_node_renew(struct yb_node *node, const struct yb_request *request,
                   const struct yb_wire_get *body, const struct yb_wire_get_item *item);
void yb_node_release_handle(void *service, struct yb_request *request);
void yb_node_pin_tick(struct yb_node *node, bool all);

/* ---- node_order.c --------------------------------------------------------------------------- */

void yb_node_drop_handle(void *service, struct yb_request *request);
void yb_node_flush_handle(void *service, struct yb_request *request);
void yb_node_hold_handle(void *service, struct yb_request *request);

/* ---- node_copy.c ---------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_node_copies_create(struct yb_node *node);
void yb_node_copies_stop(struct yb_node *node);
bool yb_node_copies_idle(const struct yb_node *node);
void yb_node_copies_destroy(struct yb_node *node);
void yb_node_copy_handle(void *service, struct yb_request *request);

/* Blocks that somebody here wants from another node. */
struct yb_node_copy_want {
    const char *address; /* Where it serves. */
    uint64_t source;     /* Its incarnation. */
    const struct yb_wire_copy_item *items;
    uint32_t count; /* 1 to YB_WIRE_COPY_ITEMS_MAX. */
    enum yb_class traffic_class;
    uint64_t deadline_ns;
    /* Runs once for each of them, perhaps before yb_node_copy() returns. EXISTS: it is here;
     * `joined`: another order has brought it. */
    void (*ended)(void *owner, uint32_t index, enum yb_status status, bool joined);
    void *owner;
};

/* Copy them; all is copied out of `want`. Fails with AGAIN (too many orders), FENCED (the node
 * stops) or INVALID (no address); `ended` never runs then. */
YB_CHECKED enum yb_status yb_node_copy(struct yb_node *node, const struct yb_node_copy_want *want);

/* ---- node_instruct.c ------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_node_instructions_create(struct yb_node *node);
/* Answer what is under way: before copies and tiers stop. */
void yb_node_instructions_stop(struct yb_node *node);
void yb_node_instructions_destroy(struct yb_node *node);
void yb_node_instruct_handle(void *service, struct yb_request *request);
void yb_node_instruct_watch_handle(void *service, struct yb_request *request);

/* A block that an instruction brought ahead of time was read (`read`), or made room unread. */
void yb_node_instruct_met(struct yb_node *node, struct yb_block *block, bool read);

/* ---- node_look.c ---------------------------------------------------------------------------- */

void yb_node_list_handle(void *service, struct yb_request *request);
void yb_node_remove_unheld_handle(void *service, struct yb_request *request);
/* The directory has taken a withdrawal that removal number `removal` made; 0: none did. */
void yb_node_removal_heard(struct yb_node *node, uint16_t removal);
/* Kills are done: removals that waited for them are answered. */
void yb_node_removals_killed(struct yb_node *node);
/* It takes no more: whoever waits for that is told AGAIN. */
void yb_node_removals_end(struct yb_node *node);
void yb_node_stat_handle(void *service, struct yb_request *request);
void yb_node_check_handle(void *service, struct yb_request *request);
void yb_node_tier_stat_handle(void *service, struct yb_request *request);
void yb_node_block_stat_handle(void *service, struct yb_request *request);

/* ---- node_watch.c --------------------------------------------------------------------------- */

YB_CHECKED enum yb_status yb_node_watch_create(struct yb_node *node);
void yb_node_watch_destroy(struct yb_node *node);
void yb_node_watch_handle(void *service, struct yb_request *request);

/* A block was read by whoever asked. */
void yb_node_watch_read(struct yb_node *node, struct yb_block *block,
                        const struct yb_request *request);

/* A granted block is gone: tell its recent readers. */
void yb_node_watch_gone(struct yb_node *node, const struct yb_block *block);
void yb_node_watch_tick(struct yb_node *node, bool all);

/* ---- node_tier.c and others: tiers below DRAM (node_below.h); none: they do nothing ------ */

YB_CHECKED enum yb_status yb_node_below_create(struct yb_node *node);
void yb_node_below_start(struct yb_node *node);
void yb_node_below_stop(struct yb_node *node);
bool yb_node_below_idle(const struct yb_node *node);
void yb_node_below_destroy(struct yb_node *node);
void yb_node_below_tick(struct yb_node *node);

/* A life begins: of the one before (`keep`), or another. */
void yb_node_below_registered(struct yb_node *node, bool keep);

/* The next item of the inventory; *cursor is 0 at the start. */
bool yb_node_below_inventory(struct yb_node *node, uint64_t *cursor,
                             struct yb_publisher_item *item_out);

/* Whether more is to be found before the inventory ends. */
bool yb_node_below_finding(struct yb_node *node);

/* The directory's word on an item about a tier below. */
void yb_node_below_answered(struct yb_node *node, const struct yb_publisher_item *item,
                            enum yb_status status);

/* A block was granted, or read: it may be time that it goes down. */
void yb_node_below_granted(struct yb_node *node, struct yb_block *block);
void yb_node_below_accessed(struct yb_node *node, struct yb_block *block);

/* Whether a tier below has the block, so that memory may forget it. */
bool yb_node_lies_below(const struct yb_node *node, const struct yb_block *block);

/* A block goes from memory, for whatever reason. */
void yb_node_below_left_memory(struct yb_node *node, const struct yb_block *block);

/* Let a block that lies nowhere below go down. Returns whether it does, and stays until then. */
bool yb_node_demote(struct yb_node *node, struct yb_block *block);

/* Whether it could, if there were room for its store. */
bool yb_node_could_demote(const struct yb_node *node, const struct yb_block *block);

/* A directory has dropped it; or we remove it, and tell the directory. */
void yb_node_below_drop(struct yb_node *node, struct yb_id hash, uint64_t grant);
void yb_node_below_remove(struct yb_node *node, struct yb_id hash, uint64_t grant);

/* Return the number of the last kill that was asked for, and that up to which all are done. */
uint64_t yb_node_below_kills(const struct yb_node *node, uint64_t *done_out);

/* Answer an order when what it caused is durable (RULES A14). Returns false if nothing has to be
 * waited for: the caller replies. */
bool yb_node_below_reply_drop(struct yb_node *node, struct yb_request *request);
bool yb_node_below_reply_flush(struct yb_node *node, struct yb_request *request, uint32_t tenant,
                               uint64_t count);
void yb_node_below_flush(struct yb_node *node, uint32_t tenant);

/* How it stands with a block that is not in memory: NOT_FOUND, STALE, or NOT_READY (it lies below,
 * and has not come up). */
enum yb_status yb_node_below_status(struct yb_node *node, uint32_t tenant,
                                    const struct yb_node_name *name);

/* Return how many blocks lie below, and their bytes on all media. */
uint64_t yb_node_below_blocks(const struct yb_node *node);
uint64_t yb_node_below_bytes(const struct yb_node *node);

/* Say what is known of a block that lies below and not in memory. Returns whether there is one. */
bool yb_node_below_info(struct yb_node *node, uint32_t tenant, struct yb_id hash,
                        struct yb_wire_block_info *info_out);

/* Listings and removals go on behind the blocks in memory with cursors that have this bit. */
#define YB_NODE_CURSOR_BELOW (UINT64_C(1) << 63)

/* List blocks that lie below, and not in memory; the answer comes when their keys were read. */
YB_CHECKED enum yb_status yb_node_list_below(struct yb_node *node, struct yb_request *request,
                                             const struct yb_wire_list_question *question);

/* Answer with those items whose keys match (node_look.c). */
YB_CHECKED enum yb_status yb_node_list_reply(struct yb_node *node, struct yb_request *request,
                                             struct yb_wire_listing *listing,
                                             const struct yb_wire_list_question *question);

/* Remove blocks of a tenant that lie below, and that nobody holds, some at a time, and count them.
 * Returns the next cursor; 0: that was all. */
uint64_t yb_node_remove_below(struct yb_node *node, uint32_t tenant, uint64_t cursor,
                              struct yb_wire_remove_unheld_answer *counts);

/* Return how many blocks of a tenant lie below and not in memory. */
uint64_t yb_node_below_count(const struct yb_node *node, uint32_t tenant);

/* Let a request wait until what it asks for has come up from below; `resume` handles it then, with
 * the wait in its context. Returns false if it asks for nothing there. */
bool yb_node_await_below(struct yb_node *node, struct yb_request *request,
                         const struct yb_wire_get *body,
                         void (*resume)(void *service, struct yb_request *request));

/* Readers do not want what they wait for any more (RULES C5). */
void yb_node_leave_handle(void *service, struct yb_request *request);

/* Correct the status of an item that was not found by what became of its wait (NULL: none). */
int32_t yb_node_waited(const struct yb_node_wait *wait, uint32_t item, int32_t status);
void yb_node_wait_end(struct yb_node_wait *wait);

/* Count where an item that somebody wanted to read was found. */
void yb_node_count_found(struct yb_node *node, const struct yb_node_wait *wait, uint32_t item,
                         int32_t status);

/* Let metrics know how the tiers stand. */
void yb_node_below_show(struct yb_node *node);

/* The same for one block that is asked for by hash and grant alone. */
bool yb_node_await_lift(struct yb_node *node, struct yb_request *request, struct yb_id hash,
                        uint64_t grant, void (*resume)(void *service, struct yb_request *request));
void yb_node_lift_end(struct yb_node_lift *lift);

#endif /* YB_NODE_NODE_INTERNAL_H */
