/* SPDX-License-Identifier: Apache-2.0
 *
 * node_below.h -- a node's tiers below DRAM, for the files that make them up.
 *
 *     node_tier.c    tiers come and go; what they find after a restart; what the directory names
 *     node_demote.c  stores: from DRAM down
 *     node_descend.c what a tier is about to lose: from there to the next one
 *     node_load.c    loads: from below into DRAM, joined; requests that wait for them
 *     node_kill.c    what may never come back: kills, flushes, and the answers that wait for them
 *
 * A block below is served only while it is *claimed*: while the directory names it on our slot. So
 * every removal is ordered to us, and every order touches each tier (RULES A5). What a tier found
 * after a restart is claimed when its inventory item was answered OK, what was stored when the
 * publication of the second place was.
 *
 * Invariants
 *   L1  A store is published after the tier's `done`, never before (RULES H6).
 *   L2  A drop, a flush and a removal are answered after the kills that they caused are done in
 *       every tier (RULES A14).
 *   L3  A block's DRAM is not given away while a store reads it, and no more than a part of the
 *       pool is kept for that (RULES C2).
 *   L4  At most one load of a block is under way; whoever wants it joins (RULES C5).
 *   L5  What a tier loses while the block is on its way to another is withdrawn after the other has
 *       been named: the directory never sees the block nowhere.
 *   L6  A block that may lie in a tier that failed as it was stored has a record, in doubt, until
 *       the tier has told: so what ends the block kills it there, too.
 */
#ifndef YB_NODE_NODE_BELOW_H
#define YB_NODE_NODE_BELOW_H

#include "base/fair.h"
#include "node/move.h"
#include "node/node_internal.h"
#include "node/shelf.h"
#include "tier/tier.h"

#define YB_NODE_STORES      256u
#define YB_NODE_LOADS       2048u
#define YB_NODE_KILLS       64u
#define YB_NODE_WAIT_PLACES 4096u /* A power of two: lists of waits that share one are short. */
#define YB_NODE_FALLS       64u
#define YB_NODE_FLUSHES     64u
#define YB_NODE_HOLDS       32768u /* That are remembered; a power of two. */
#define YB_NODE_QUEUE       65536u /* Blocks that wait to be stored; a power of two. */

/* One tier. */
struct yb_node_level {
    struct yb_node *node;
    struct yb_tier *tier; /* NULL: it could not be opened. */
    uint8_t number;
    enum yb_wire_tier kind;
    bool recovered;        /* All that it has was found. */
    bool complete;         /* That was so once: what it did not name then was not there. */
    bool again;            /* All of it is found anew: what is not has been lost. */
    uint32_t recheck_left; /* Records to look at for that. */
    uint32_t recheck_at;
    enum yb_status aside;        /* OK: it works. */
    char why[YB_NODE_WHY_BYTES]; /* If not. */

    /* ---- of a medium that has to be claimed (node_claim.c) ---- */
    bool claiming;          /* A claim is under way, ... */
    uint32_t claim_cluster; /* ... for this cluster of the node's count. */
    enum yb_status claimed; /* What the last one said. */
    bool opens;             /* It is to be opened now. */
    bool foreign;           /* It was opened for a cluster that the node has left. */
    uint64_t claim_ns;      /* When it is claimed next. */
    struct yb_task claim_task;
};

/* A block on its way down. */
struct yb_node_storing {
    struct yb_tier_store store; /* First. */
    struct yb_node *node;
    struct yb_block *block; /* Pinned. */
    uint8_t level;
    uint8_t tried; /* Levels that it was given to, with this one. */
    struct iovec iov;
    struct yb_node_storing *next; /* Of those under way. */
    struct yb_node_storing *previous;
};

/* Who waits for a block to come up. */
struct yb_node_join {
    struct yb_fair_item wish;        /* First. Its class and deadline are the caller's. */
    struct yb_node_loading *loading; /* NULL: it waits for nothing any more. */
    uint8_t tier;                    /* Where the block came from, when it is done. */
    /* OK: `block` is GRANTED, and pinned for this join. The join is over, and may be freed. */
    void (*done)(struct yb_node_join *join, enum yb_status status, struct yb_block *block);
};

/* A block on its way up. */
struct yb_node_loading {
    struct yb_tier_load load; /* First. */
    struct yb_node *node;
    struct yb_block *block; /* IN_FLIGHT: where it comes to. */
    uint64_t began_ns;
    uint64_t asked_ns;    /* When the present tier was asked, ... */
    uint64_t said_ns;     /* ... and how long it was to take. */
    struct yb_fair joins; /* Their wishes: what the load is asked for is that of all of them. */
    uint32_t record;      /* Index on the shelf. */
    uint16_t number;      /* From 1. */
    uint8_t level;
    uint8_t tried; /* Levels, with the present one. */
    bool over;     /* The block was ended meanwhile, or nobody waits. */
    struct iovec iov;
    struct yb_node_loading *next; /* Of those under way. */
    struct yb_node_loading *previous;
};

/* A block that is being killed in its tiers. */
struct yb_node_killing {
    struct yb_node_kill {
        struct yb_tier_kill kill; /* First. */
        struct yb_node_killing *killing;
    } kills[YB_NODE_TIERS_MAX];
    struct yb_node *node;
    uint64_t sequence; /* 0: free. */
    uint32_t record;
    uint8_t left;      /* Operations under way. */
    uint8_t failed;    /* Levels that have to be asked again ... */
    uint64_t retry_ns; /* ... then. */
};

/* An order whose answer waits (L2). */
struct yb_node_fall {
    struct yb_request *request; /* NULL: free. */
    uint64_t through;           /* The last kill that it waits for. */
    uint32_t flushes;           /* Flushes that it waits for. */
    bool flush;
    enum yb_status status;
    uint64_t count;
};

struct yb_node_flushing {
    struct yb_tier_flush flush; /* First. */
    struct yb_node *node;
    struct yb_node_fall *fall; /* NULL: nobody waits. */
    bool busy;
};

/* A hold that the directory told of, wherever the block lies. */
struct yb_node_hold {
    struct yb_id hash;
    uint64_t grant;
    uint64_t until_ns; /* 0: the place is free. */
};

struct yb_node_below {
    struct yb_shelf *shelf;
    struct yb_node_hold holds[YB_NODE_HOLDS];
    struct yb_node_level levels[YB_NODE_TIERS_MAX];
    uint32_t level_count;
    enum yb_move_policy policy;

    struct yb_pool *stores;
    struct yb_node_storing *storing;
    uint64_t storing_bytes;
    struct {
        uint32_t block;
        uint64_t grant;
    } queue[YB_NODE_QUEUE];
    uint32_t queue_head;
    uint32_t queue_tail;
    uint32_t behind_at; /* Blocks to look at that a tier may have missed. */
    uint32_t behind_left;
    uint32_t settle_at; /* Of yb_node_settle(): blocks before this one have gone, or cannot. */

    struct yb_pool *loads;
    struct yb_node_loading *loading;
    uint64_t loading_bytes;
    uint16_t load_free[YB_NODE_LOADS]; /* Numbers. */
    uint32_t load_free_count;
    struct yb_node_loading *load_of[YB_NODE_LOADS + 1]; /* By number. */
    struct yb_node_wait *waits;
    struct yb_node_wait *wait_of[YB_NODE_WAIT_PLACES]; /* By ticket. */

    struct yb_node_killing killing[YB_NODE_KILLS];
    uint32_t dead_first; /* Records that wait to be killed; index + 1. */
    uint32_t dead_last;
    uint64_t dead_sequence; /* Of the last one that was ended ... */
    uint64_t kill_sequence; /* ... and of the last one whose kill has begun. */
    struct yb_node_fall falls[YB_NODE_FALLS];
    struct yb_node_flushing flushing[YB_NODE_FLUSHES];

    struct yb_node_descents *descents; /* NULL: there is one tier. */

    bool inventoried;        /* The inventory of this life named what was on the shelf. */
    bool listed;             /* The directory knows that nothing more is found. */
    uint32_t unclaimed_left; /* Records to look at for what has to be named still. */
    uint32_t unclaimed_at;
    uint32_t sweep_at;
};

static inline void
yb_node_doubt(struct yb_shelf_record *record, uint32_t level, bool doubt)
{
    uint32_t bit = 1u << level;

    record->doubt = (doubt ? record->doubt | bit : record->doubt & ~bit) & 15u;
}

/* ---- node_tier.c ---- */

/* Return the LIVE record under which a reader may have the block from below; NULL: none, and
 * *status_out is NOT_READY if it is there and not claimed yet. */
struct yb_shelf_record *yb_node_below_find(struct yb_node *node, uint32_t tenant, struct yb_id hash,
                                           uint64_t grant, enum yb_status *status_out);

/* Whether a level takes operations; and whether it has at least what it had, as far as it can. */
bool yb_node_level_works(const struct yb_node_level *level);
bool yb_node_level_reads(const struct yb_node_level *level);

/* A level works from now on, after a while in which it did not: what it has missed goes there. */
void yb_node_level_back(struct yb_node_level *level);

/* Open a level's medium. */
void yb_node_level_open(struct yb_node_level *level);

/* Bring its flush markers up to date. */
void yb_node_level_flush(struct yb_node_level *level);

/* ---- node_claim.c: media that may be another cluster's ---- */

/* Whether it is not known yet that a level is ours, or not known any more: what is to be ended
 * there has to wait. */
bool yb_node_claim_waits(const struct yb_node_level *level);
/* Whether the first claim has not been answered yet. */
bool yb_node_claim_begins(const struct yb_node *node);
void yb_node_claim_init(struct yb_node_level *level);
void yb_node_claim_registered(struct yb_node *node);
void yb_node_claim_tick(struct yb_node *node);
void yb_node_claim_stop(struct yb_node *node);
bool yb_node_claim_idle(const struct yb_node *node);

/* Tell the directory that a block is in a tier now, or not any more. */
void yb_node_below_publish(struct yb_node *node, struct yb_shelf_record *record, uint32_t level,
                           uint8_t mode);

/* Tell the directory of tiers that have lost the block, unless it is on its way to another one:
 * then it is told when it is there, so that the block is named somewhere all the time. */
void yb_node_below_withdraw_gone(struct yb_node *node, struct yb_shelf_record *record);

/* No tier has it and none is getting it: its record goes. Returns whether it went. */
bool yb_node_below_forget(struct yb_node *node, struct yb_shelf_record *record);

/* ---- node_kill.c ---- */

/* A block is ended: nobody reads it any more, and it is killed in every tier that has it, gets it,
 * or may find it. */
void yb_node_below_end(struct yb_node *node, struct yb_shelf_record *record);

void yb_node_kill_tick(struct yb_node *node);
void yb_node_kill_stop(struct yb_node *node);
bool yb_node_kill_idle(const struct yb_node *node);

/* ---- node_load.c ---- */

/* Join the load of a block, or begin it. `join`'s wish and `done` are set. NOT_READY: there is no
 * room for it now. */
YB_CHECKED enum yb_status yb_node_load(struct yb_node *node, struct yb_shelf_record *record,
                                       const struct yb_node_name *name, struct yb_node_join *join);

/* Leave it: `done` does not run. What it costs does not grow with those who stay. */
void yb_node_load_leave(struct yb_node *node, struct yb_node_join *join);

/* The record is ended: what is being read is nobody's. */
void yb_node_load_end(struct yb_node *node, struct yb_shelf_record *record);
void yb_node_load_tick(struct yb_node *node);
void yb_node_load_stop(struct yb_node *node);

/* ---- node_demote.c ---- */
void yb_node_demote_tick(struct yb_node *node);

/* The store of a record's block has ended: book and publish it. Returns false if the tier has
 * refused it, and it lies nowhere else: then the record is gone. */
bool yb_node_below_stored(struct yb_node *node, struct yb_shelf_record *record, uint32_t level,
                          enum yb_status status);

/* ---- node_descend.c ---- */
YB_CHECKED enum yb_status yb_node_descend_create(struct yb_node *node);
void yb_node_descend_destroy(struct yb_node *node);

/* A tier will lose the block before long. Returns whether it is to be moved before. */
bool yb_node_descend(struct yb_node *node, uint32_t level, struct yb_shelf_record *record);
void yb_node_descend_tick(struct yb_node *node);
bool yb_node_descend_idle(const struct yb_node *node);

#endif /* YB_NODE_NODE_BELOW_H */
