/* SPDX-License-Identifier: Apache-2.0
 *
 * index.h -- one shard of the directory's index: which slots hold a block.
 *
 * A record of 48 bytes says what is known of a block: its grant, its size, who may see it, and the
 * replicas: pairs of a slot (one life of a node) and a tier. Records lie dense in one array and
 * never move; a hash table of 64-byte buckets finds them. Both grow a few kilobytes at a time, the
 * table by linear hashing: one bucket is split for every seven records that are added. So nothing
 * is ever rebuilt, and the cost of a block is the same at every size (tests: at most 64 bytes).
 *
 * Records name slots, never nodes. That a slot is dead, that a tenant was flushed, that an
 * inventory did not name a replica: each is one word that every lookup and every operation tests.
 * So it counts at once, for all records; the sweep that follows only gives memory back. A record
 * whose replicas are all gone in this sense, or whose flush epoch is past, is *invisible*: for
 * everything in this file, the counts excepted, it does not exist.
 *
 *     slot   FREE --open--> SERVING <--> SUSPECT <--> DRAINING      (set: any of the three to any)
 *             ^                 |            |            |
 *             |                 +-----------set-----------+--> DEAD
 *             +-- the sweep after its death has ended ------------+
 *
 * Invariants
 *   I1  A key is (tenant, hash): whoever asks for another tenant's hash is told that it is absent.
 *   I2  Grants of a visible record only grow; all its replicas are of its one grant. An operation
 *       that names another grant changes nothing.
 *   I3  Only CREATE, REPLACE and INVENTORY make a record; ADD joins one or is refused.
 *   I4  CREATE fails with EXISTS if and only if a replica is on a slot that is SERVING or DRAINING.
 *   I5  A slot number is FREE again only when no record names it any more.
 *   I6  A block of an older flush epoch is invisible, however many flushes ago it was stored.
 *   I7  Nothing takes longer than its own arguments ask for: a batch, a number of records to visit.
 *
 * Threads   One owner, but for yb_index_grow_ahead(). No locks, no callbacks, no I/O.
 * Memory    The index owns everything. It grows to what `records_max` needs and stays as large as
 *           it once was; what is freed is used again. All arguments and answers are copied.
 * Time      `now_ms` is passed in: monotonic, milliseconds, never going back.
 * Failure   Operations come from peers: whatever they say is answered by a status for that item.
 */
#ifndef YB_DIRECTORY_INDEX_H
#define YB_DIRECTORY_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_INDEX_RECORDS_MAX  (UINT32_C(1) << 31)
#define YB_INDEX_SLOTS_MAX    65535u
#define YB_INDEX_TENANTS_MAX  65536u
#define YB_INDEX_REPLICAS_MAX 8u
#define YB_INDEX_TIERS        16u
#define YB_INDEX_HOLD_MS_MAX  86400000u /* One day. */
#define YB_INDEX_SLOT_NONE    0u        /* Slots are counted from 1. */

/* A block's size takes 2 bytes: 5 bits of exponent, 11 of mantissa. What is decoded is never less
 * than what was encoded, and at most 1/2048 more; up to 4095 it is exact. Sizes above
 * YB_INDEX_SIZE_MAX become that: the node knows better. */
#define YB_INDEX_SIZE_MAX (UINT64_C(4095) << 30)
uint16_t yb_index_size_encode(uint64_t bytes);
uint64_t yb_index_size_decode(uint16_t code);

/* What a block is. The low bits are those of the wire's block_flag. */
#define YB_INDEX_SOFT_PIN     0x0001u
#define YB_INDEX_HARD_PIN     0x0002u
#define YB_INDEX_GROUP        0x0004u
#define YB_INDEX_VERSIONED    0x0008u /* Written by REPLACE. */
#define YB_INDEX_WANTED_SHIFT 4u      /* 3 bits: on how many slots it wants to be, less 1. */
#define YB_INDEX_STRIPED      0x0080u
#define YB_INDEX_PART         0x0100u
#define YB_INDEX_FLAGS_ALL    0x01ffu

static inline uint32_t
yb_index_wanted(uint16_t flags)
{
    return ((uint32_t)flags >> YB_INDEX_WANTED_SHIFT & 7u) + 1;
}

/* Return `flags` with the wish for `slots` (1 to 8). */
static inline uint16_t
yb_index_with_wanted(uint16_t flags, uint32_t slots)
{
    return (uint16_t)((flags & ~(7u << YB_INDEX_WANTED_SHIFT)) | ((slots - 1) & 7u)
                                                                     << YB_INDEX_WANTED_SHIFT);
}

struct yb_index;

struct yb_index_options {
    uint32_t records_max; /* 1 to YB_INDEX_RECORDS_MAX. */
    uint32_t slots_max;   /* Highest slot number, 1 to YB_INDEX_SLOTS_MAX. 24 bytes each. */
    uint32_t
        tenants_max; /* Tenants are 0 to this less 1; 1 to YB_INDEX_TENANTS_MAX. 16 bytes each. */
    uint64_t seed;   /* Secret and random: whoever knows it can fill one bucket. */
    bool parents;    /* Keep them, for subscribers: 8 bytes for each record. */
};

/* Create an empty index with every slot FREE. On OK, *index_out is owned by the caller. Fails with
 * INVALID (an option out of range) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_index_create(const struct yb_index_options *options,
                                          struct yb_index **index_out);

/* Consume the index and set *index to NULL. */
void yb_index_destroy(struct yb_index **index);

/* A large index grows by huge pages, and the kernel may take milliseconds to give one. Whoever has
 * no such time asks after operations whether the next one is due, and if so has another thread call
 * grow_ahead(), which takes that time; the owner goes on meanwhile. Only one thread at a time may
 * be in it, and none when the index is destroyed. Without it the owner takes the time. */
bool yb_index_growth_due(const struct yb_index *index);
void yb_index_grow_ahead(struct yb_index *index);

/* ---- slots ---------------------------------------------------------------------------------- */

enum yb_index_slot_state {
    YB_INDEX_SLOT_FREE = 0,
    YB_INDEX_SLOT_SERVING = 1,
    YB_INDEX_SLOT_SUSPECT = 2,  /* Its replicas are shown, but stand in no writer's way. */
    YB_INDEX_SLOT_DRAINING = 3, /* As SERVING: placing elsewhere is the caller's business. */
    YB_INDEX_SLOT_DEAD = 4,     /* Its replicas are gone, and wait for the sweep. */
};

/* Begin to use a slot. Fails with INVALID (no such number) or BUSY (it is not FREE: in use, or the
 * sweep after its death has not ended). */
YB_CHECKED enum yb_status yb_index_slot_open(struct yb_index *index, uint16_t slot);

/* Change the state of a slot that is in use to SERVING, SUSPECT, DRAINING or DEAD. Fails with
 * INVALID (a number, a state) or FENCED (it is FREE, or DEAD already and stays so). */
YB_CHECKED enum yb_status yb_index_slot_set(struct yb_index *index, uint16_t slot,
                                            enum yb_index_slot_state state);

struct yb_index_slot_counts {
    enum yb_index_slot_state state;
    uint32_t replicas; /* With those that wait for the sweep. */
    uint64_t bytes;    /* Their sizes. */
};

/* `slot`: 1 to slots_max. */
void yb_index_slot_counts(const struct yb_index *index, uint16_t slot,
                          struct yb_index_slot_counts *counts_out);

/* An inventory begins: the slot's node is going to name everything that it holds. Whatever the slot
 * is given from now on, by INVENTORY or otherwise, counts as named. Beginning again forgets what
 * was named before. Fails with FENCED (the slot is FREE or DEAD), INVALID (no such number), or
 * AGAIN when it began many times within one sweep: run the sweep, which is then wanted, to its
 * end. */
YB_CHECKED enum yb_status yb_index_inventory_begin(struct yb_index *index, uint16_t slot);

/* The inventory is complete: replicas on this slot that it did not name are gone, from now on.
 * Fails with FENCED, or INVALID (no such number, or none has begun). */
YB_CHECKED enum yb_status yb_index_inventory_end(struct yb_index *index, uint16_t slot);

/* ---- tenants -------------------------------------------------------------------------------- */

/* Raise the flush epoch of a tenant: its older blocks are invisible at once. An epoch that is not
 * higher changes nothing, and is OK. Fails with INVALID (no such tenant), or AGAIN when records of
 * 65535 epochs ago may still exist: run the sweep, which is then wanted, to its end. */
YB_CHECKED enum yb_status yb_index_flush(struct yb_index *index, uint32_t tenant,
                                         uint64_t flush_epoch);

/* Return the flush epoch of a tenant (below tenants_max); 0 at first. */
uint64_t yb_index_flush_epoch(const struct yb_index *index, uint32_t tenant);

/* ---- looking up ----------------------------------------------------------------------------- */

enum yb_index_presence {
    YB_INDEX_ABSENT = 0,
    YB_INDEX_PRESENT = 1,      /* On a slot that is SERVING or DRAINING. */
    YB_INDEX_SUSPECT_ONLY = 3, /* Only on slots that are SUSPECT. */
};

struct yb_index_replica {
    uint16_t slot;
    uint8_t tier; /* 0 to 15. */
    uint8_t reserved;
};

struct yb_index_answer {
    uint64_t grant; /* 0: absent. */
    uint16_t size_code;
    uint16_t flags;
    uint8_t presence; /* enum yb_index_presence */
    uint8_t count;    /* Replicas, none of them gone. */
    uint8_t live;     /* So many of them, which come first, are not SUSPECT. */
    uint8_t held;     /* 1: a hold keeps it (with the one that this lookup asked for). */
    struct yb_index_replica replicas[YB_INDEX_REPLICAS_MAX]; /* The first `count` are set. */
};

struct yb_index_query {
    uint32_t tenant;  /* One beyond tenants_max has nothing. */
    uint32_t hold_ms; /* 0, or: hold what is found for so long, at most HOLD_MS_MAX. */
    uint64_t now_ms;
};

/* Answer `count` questions. Batches of 16 and more overlap their waiting for memory. */
void yb_index_lookup(struct yb_index *index, const struct yb_index_query *query,
                     const struct yb_id *hashes, uint32_t count,
                     struct yb_index_answer *answers_out);

/* Return for how long a block is held, in milliseconds; 0: it is not, or not there. */
uint32_t yb_index_hold_left(const struct yb_index *index, uint32_t tenant, struct yb_id hash,
                            uint64_t now_ms);

/* ---- changing ------------------------------------------------------------------------------- */

enum yb_index_op_kind {
    /* Make a block that is not there. EXISTS: a live replica stands in the way; its grant is told.
     * If all replicas are on suspect slots the new block takes their place, and they must drop. */
    YB_INDEX_CREATE,
    /* Make a block, or put it in the place of the one that is there, whose replicas must drop. */
    YB_INDEX_REPLACE,
    /* One more replica of `grant`. OK if it is there already. REFUSED: no such block, or of another
     * grant. TOO_LARGE: there are eight. */
    YB_INDEX_ADD,
    /* Take away exactly this replica of `grant`. NOT_FOUND: there is no such thing. */
    YB_INDEX_WITHDRAW,
    /* The slot holds `grant`, from before. Makes the block or joins it. Against another grant the
     * higher one wins: if that is this one, the others' replicas must drop theirs; else LOST. */
    YB_INDEX_INVENTORY,
    /* Take the block away, if it has this grant (GRANT_NONE: whichever it has); its replicas must
     * drop it. HELD: a hold keeps it; `force` ignores holds. */
    YB_INDEX_REMOVE,
    /* Keep it from being removed for `hold_ms`, if it has this grant (or GRANT_NONE). A hold is
     * never shortened. */
    YB_INDEX_HOLD,
};

struct yb_index_op {
    struct yb_id hash;
    uint64_t grant;       /* CREATE, REPLACE: the new one. */
    uint64_t flush_epoch; /* CREATE, REPLACE, INVENTORY: the tenant's, when the bytes were put. */
    uint64_t size;        /* CREATE, REPLACE, INVENTORY: bytes. */
    uint64_t parent;      /* CREATE, REPLACE, INVENTORY: 0, or what to keep with it. */
    uint32_t hold_ms;     /* HOLD: at most HOLD_MS_MAX. */
    uint16_t tenant;
    uint16_t flags; /* CREATE, REPLACE, INVENTORY: YB_INDEX_ flags. VERSIONED follows from the
                             kind, but for INVENTORY, which has to say. */
    uint8_t kind;   /* enum yb_index_op_kind */
    uint8_t force;  /* REMOVE: 1: although it is held. */
    uint8_t replica_count; /* CREATE, REPLACE: 1 to 8. ADD, WITHDRAW, INVENTORY: 1. */
    uint8_t reserved;
    struct yb_index_replica replicas[YB_INDEX_REPLICAS_MAX];
};

struct yb_index_result {
    /* OK, or what the kind says, or
     *   INVALID    a number out of range, a flag, one replica named twice, a newer flush epoch than
     *              the index was told of
     *   FENCED     a replica to be added is on a slot that is FREE or DEAD
     *   STALE      the flush epoch is past, or the grant is not higher than that of the block whose
     *              place it should take
     *   NO_SPACE   `records_max` blocks, or as many with more than three replicas as there can be
     *   NO_MEMORY  the operating system has none
     * and nothing has changed. */
    enum yb_status status;
    uint8_t replicas;      /* Of the block, as it is now ... */
    uint8_t slots;         /* ... on so many slots. 1: a sole copy. */
    uint8_t dropped_count; /* OK: these must drop `dropped_grant`. */
    uint8_t reserved;
    uint64_t grant;         /* Of the block, as it is now; 0: there is none. */
    uint64_t dropped_grant; /* 0 if dropped_count is 0. */
    struct yb_index_replica dropped[YB_INDEX_REPLICAS_MAX];
};

/* Apply `count` operations, one after the other, each with its result. */
void yb_index_apply(struct yb_index *index, const struct yb_index_op *ops, uint32_t count,
                    uint64_t now_ms, struct yb_index_result *results_out);

/* ---- sweeping ------------------------------------------------------------------------------- */

/* A block that is on fewer slots than it wants to be. Suspect slots count: they may come back. */
struct yb_index_repair {
    struct yb_id hash;
    uint64_t grant;
    uint16_t tenant;
    uint8_t slots; /* On so many. */
    uint8_t wanted;
    uint8_t reserved[4];
};

/* How many records one step may visit to stay below a millisecond even if it frees all of them. */
#define YB_INDEX_SWEEP_STEP 4096u

struct yb_index_swept {
    uint32_t visited;
    uint32_t records_freed;
    uint32_t replicas_removed;
    uint32_t repairs; /* How many of `repairs_out` are set. */
    bool done;        /* Nothing is left to be swept. */
};

/* Return whether something waits to be swept: a death, a flush, the end of an inventory, holds of a
 * day ago. To be asked now and then, and after those. */
bool yb_index_sweep_wanted(const struct yb_index *index, uint64_t now_ms);

/* Want a sweep, to be told of all blocks that want repair. */
void yb_index_sweep_request(struct yb_index *index);

/* Visit up to `records` records (at least 1) of the sweep that is under way, or begin one if one is
 * wanted. Every block that wants repair is reported once in each sweep, up to `room` at a time; the
 * step ends early when there is no room. With room 0 nothing is reported. */
void yb_index_sweep(struct yb_index *index, uint64_t now_ms, uint32_t records,
                    struct yb_index_repair *repairs_out, uint32_t room,
                    struct yb_index_swept *swept_out);

/* ---- reading it all ------------------------------------------------------------------------- */

struct yb_index_entry {
    struct yb_id hash;
    uint64_t flush_epoch;
    uint64_t parent; /* 0: not known. */
    uint16_t tenant;
    uint8_t reserved[6];
    struct yb_index_answer answer; /* As a lookup would have it. */
};

#define YB_INDEX_SCAN_END UINT32_MAX

/* Read on from *cursor (0 at first), which becomes SCAN_END at the end: visit up to `records`
 * records (at least 1), and return how many of them, at most `room` (at least 1), are in
 * `entries_out`. Only blocks with a replica on `slot` are read, unless that is SLOT_NONE. A block
 * that is there throughout is read exactly once; one that comes or goes meanwhile may be.
 * (Seven parameters: what, how far, and where to.) */
uint32_t yb_index_scan(const struct yb_index *index, uint64_t now_ms, uint16_t slot,
                       uint32_t records, uint32_t *cursor, struct yb_index_entry *entries_out,
                       uint32_t room);

/* ---- counting ------------------------------------------------------------------------------- */

struct yb_index_counts {
    uint32_t records; /* With those that wait for the sweep. */
    uint32_t records_max;
    uint64_t replicas; /* The same. */
    uint64_t bytes;    /* Sizes of the replicas. */
    uint32_t buckets;
    uint32_t buckets_further; /* Behind a full bucket. */
    uint32_t overflows;       /* Records with more than three replicas. */
    uint32_t sweeps;          /* Ended. */
};

void yb_index_counts(const struct yb_index *index, struct yb_index_counts *counts_out);

/* Return the records of a tenant (below tenants_max), with those that wait for the sweep. */
uint32_t yb_index_tenant_records(const struct yb_index *index, uint32_t tenant);

/* Return the memory that the index takes, all in. */
uint64_t yb_index_bytes(const struct yb_index *index);

#endif /* YB_DIRECTORY_INDEX_H */
