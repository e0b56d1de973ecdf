/* SPDX-License-Identifier: Apache-2.0
 *
 * node.h -- the process that holds the bytes of blocks, and the truth about them.
 *
 * One state machine on one net, over one pool of memory. It serves the frames of
 * docs/protocol-node.md, registers with a directory, and publishes what it holds.
 * docs/store.md tells the protocol; RULES that it keeps: A1, A3, A5-A8, A12, B4-B6, C1, C4, C8, E4.
 *
 *     a block:   IN_FLIGHT --bytes, checksum--> COMMITTED --grant--> GRANTED
 *                    |                              |                 |
 *                    |  given up                    |  EXISTS, STALE  |  drop, eviction, flush
 *                    v                              v                 v
 *                  freed <---------------------- freed            DOOMED --last pin--> freed
 *
 * Invariants
 *   N1  Bytes are served only of a GRANTED block, by its grant, inside the serving lease, of
 *       the tenant's current flush epoch.
 *   N2  Memory of a block is reused only when no reader's reply, pin or borrow of it is left.
 *   N3  A put is answered OK only after its grant has arrived from the directory with which the
 *       node is registered.
 *   N4  used = live + in flight + ungranted + quarantined, from the allocator.
 *   N5  What was published leaves only through a withdrawal on the same stream.
 *
 * Threads   The thread of its net's loop; the heartbeat runs on the heart's (which may be another
 *           thread and is one in a real process), and shares only atomics and mail with it.
 * Memory    The node owns its pool and tables.
 * Time      The loop's clock.
 */
#ifndef YB_NODE_NODE_H
#define YB_NODE_NODE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"
#include "net/net.h"
#include "tier/tier.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_loop;
struct yb_node;
struct yb_transfer;

#define YB_NODE_TIERS_MAX 2u

/* What a tier is opened with. */
struct yb_node_tier_ground {
    struct yb_loop *loop; /* The node's. */
    const struct yb_tier_events *events;
    void *owner;
    char *why_out; /* Not OK: a sentence with the remedy. */
    size_t why_bytes;
};

/* For whom a node claims a medium that may be another cluster's. */
struct yb_node_tier_claim {
    struct yb_loop *loop;
    struct yb_id cluster;
    uint8_t seed[16];
    uint64_t epoch;
    /* Runs once, later, on the loop. `why`: not OK: a sentence with the remedy, borrowed. */
    void (*done)(void *owner, enum yb_status status, const char *why);
    void *owner;
    char *why_out; /* As of a ground, if the claim cannot begin. */
    size_t why_bytes;
};

/* How to open one of the tiers below DRAM, when the node starts. If it fails the node lives on
 * without it. */
struct yb_node_tier {
    enum yb_wire_tier kind; /* YB_WIRE_TIER_SSD or OBJECT: one of each. */
    enum yb_status (*open)(void *context, const struct yb_node_tier_ground *ground,
                           struct yb_tier **tier_out);
    void *context;
    /* The medium is claimed first, when the node has joined a cluster, and again as that one's
     * directory starts anew; `claim_over` follows `done`, with or without a cancel in between.
     * NULL: it is nobody else's. */
    enum yb_status (*claim)(void *context, const struct yb_node_tier_claim *claim);
    void (*claim_cancel)(void *context);
    void (*claim_over)(void *context);
};

struct yb_node_options {
    const char *name;                 /* What people call it; at most 63 characters. */
    struct yb_address_list directory; /* Where the directory serves. */
    const char *address; /* Where its net's server listens; NULL: see yb_node_set_address(). */
    const char *rack;    /* NULL or "": not known. */
    const char *zone;
    struct yb_id host;      /* Boot id of the machine; none: not known. */
    uint64_t pool_bytes;    /* Memory for blocks. */
    void *pool_memory;      /* Use this (the simulation's); NULL: shared memory of its own. */
    const char *pool_label; /* Of shared memory: see memory/survivors.h; NULL: none. */
    bool huge_pages;
    uint32_t numa_node;          /* YB_SHARED_NUMA_ANY: none. */
    bool verify;                 /* Sum each 64 KiB of a value, and compare before it is read. */
    const char *policy;          /* Eviction: see policy/policy.h; NULL: s3fifo. */
    uint32_t blocks_max;         /* 0: one for each 4 KiB of the pool, at most 16 Mi. */
    uint32_t high_permille;      /* Evict above this use ... 0: 950 ... */
    uint32_t low_permille;       /* ... down to this. 0: 900. */
    uint32_t ungranted_permille; /* 0: 250. */
    uint32_t pinned_permille;    /* Of the pool, for all pins of one client; 0: 250. */
    uint32_t pin_max_ms;         /* Longest pin; 0: 5000. */
    const struct yb_node_tier *tiers; /* Below DRAM, the fastest first; borrowed for its life. */
    uint32_t tier_count;
    uint32_t below_max;       /* Blocks below DRAM; 0: 16 Mi. */
    const char *write_policy; /* "through", "selective" or "back" (move.h); NULL: through. */
    uint32_t write_accesses;  /* When selective: with so many accesses; 0: 2. */
    /* The engine through which puts are pulled and pins are read; the node registers the pool with
     * it, for reading. It has the identity of the node's net, outlives the node, and ends before
     * the loop does. NULL: bytes come and go in frames only. */
    struct yb_transfer *engine;
    const char *engine_address; /* Where it listens. */
    /* A process begins to borrow (`begin`), or has given everything back: returns whether its end
     * will be known. `gone` is asked in between: whether that process is proved to have ended; then
     * what it borrowed is free again (RULES A12). NULL: borrowing is UNSUPPORTED. */
    bool (*watch)(void *context, struct yb_id identity, bool begin);
    bool (*gone)(void *context, struct yb_id identity);
    void *gone_context;
    struct yb_stats *stats; /* As for a net; may be NULL. */
    struct yb_log *log;
    yb_span_random_fn *random;
    void *random_context;
};

/* Allocate the pool and the tables. Otherwise `why_out` gets a sentence with the remedy. Fails with
 * INVALID (an option), NO_MEMORY or UNSUPPORTED. */
YB_CHECKED enum yb_status yb_node_create(const struct yb_node_options *options,
                                         struct yb_node **node_out, char *why_out,
                                         size_t why_bytes);

/* What to put into the options of its net. Borrowed for the node's life. */
const struct yb_service *yb_node_service(struct yb_node *node);

/* Say where its net's server listens, as others are told: before start, if the options did not. */
void yb_node_set_address(struct yb_node *node, const char *address);

/* Give it another name, of at most 63 characters, before start. */
void yb_node_set_name(struct yb_node *node, const char *name);

/* Begin: register, and again whenever that is lost. `heart` carries the heartbeats: the net of
 * another worker, or `net` itself. */
YB_CHECKED enum yb_status yb_node_start(struct yb_node *node, struct yb_net *net,
                                        struct yb_net *heart);

/* The process is about to stop: whoever waits for news is answered, and nobody waits any more. To
 * be called before its net is drained, which would wait for these. */
void yb_node_leave(struct yb_node *node);

/* Let all that lies nowhere below memory go down, before the process stops: to be called again and
 * again, on the loop's thread. Returns whether no more of it is under way. What the tiers could not
 * take, yb_node_unsettled() counts. Without tiers there is nothing to do and nothing to count. */
bool yb_node_settle(struct yb_node *node);
uint64_t yb_node_unsettled(const struct yb_node *node);

/* End timers and calls; requests that wait are answered CLOSED. Later yb_node_idle() is true. To
 * be called on the loop's thread; the heart's part ends by mail. */
void yb_node_stop(struct yb_node *node);
bool yb_node_idle(const struct yb_node *node);

/* Consume the stopped, idle node and set *node to NULL. */
void yb_node_destroy(struct yb_node **node);

/* How it stands, for metrics, `node check` and tests. */
struct yb_node_info {
    uint64_t incarnation; /* 0: not registered. */
    uint64_t epoch;
    uint64_t lease_until_ns; /* On the loop's clock; 0: none. */
    uint16_t slot;
    uint8_t state; /* enum yb_wire_slot_state, as the directory told. */
    uint64_t capacity;
    uint64_t live;
    uint64_t in_flight;
    uint64_t ungranted;
    uint64_t quarantined;
    uint64_t blocks; /* In memory. */
    uint64_t below;  /* In tiers below it. */
    uint64_t evicted;
    uint64_t gets;       /* Blocks that were asked for, ever. */
    uint64_t duplicates; /* Blocks of which other nodes are known to have copies. */
};
void yb_node_info(struct yb_node *node, struct yb_node_info *info_out);

/* How one of its tiers below memory stands. */
#define YB_NODE_WHY_BYTES 256u
struct yb_node_tier_info {
    enum yb_wire_tier kind;
    enum yb_status aside;        /* OK: it works. */
    char why[YB_NODE_WHY_BYTES]; /* If not: a sentence with the remedy. */
};

/* Tell of each, the fastest first. Returns how many there are. */
uint32_t yb_node_tier_infos(const struct yb_node *node,
                            struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX]);

/* Recompute every number from the blocks and compare; `why_out` says what differs. */
bool yb_node_check(struct yb_node *node, char *why_out, size_t why_bytes);

/* Visit every block that the node would serve now, for the checks of the simulation. */
struct yb_node_block_view {
    struct yb_id hash;
    uint64_t grant;
    uint64_t flush;
    const char *tenant;
    const void *bytes;
    uint64_t size;
    const uint8_t *key;
    uint32_t key_bytes;
};
void yb_node_visit(struct yb_node *node,
                   void (*visit)(void *context, const struct yb_node_block_view *block),
                   void *context);

/* The same for blocks below DRAM: what the node would serve from tier number `tier`. `bytes` and
 * `key` are not known here. */
void yb_node_visit_below(struct yb_node *node,
                         void (*visit)(void *context, uint32_t tier,
                                       const struct yb_node_block_view *block),
                         void *context);

#endif /* YB_NODE_NODE_H */
