/* SPDX-License-Identifier: Apache-2.0
 *
 * block.h -- what a node knows of its blocks, by hash.
 *
 * The table holds every block of the node in any state: at most one GRANTED block per hash, beside
 * it any number that are being written (RULES A7) and DOOMED ones whose memory somebody still
 * reads.
 *
 *              take                                           give
 *     free ----------> IN_FLIGHT --> COMMITTED --> GRANTED --> ... --> free
 *                          |             |            |
 *                          +-------------+------------+--> DOOMED --last pin--> free
 *
 * The full key and, where the node checks bytes, one CRC32C per 64 KiB of the value lie in the
 * block's own memory, behind the value: a block of 2 MiB costs its record here and nothing else.
 *
 * Invariants
 *   B1  yb_block_find() returns a GRANTED block whose tenant and full key are those asked for, or
 *       none: a collision of hashes is a miss.
 *   B2  A DOOMED block is found by nobody.
 *   B3  Records are allocated by create; nothing allocates afterwards.
 *
 * Threads   One owner: the node's worker.
 * Memory    The table owns the records; a record is the taker's until give.
 * Time      Passed in.
 */
#ifndef YB_NODE_BLOCK_H
#define YB_NODE_BLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "policy/policy.h"
#include "tier/dram/pool.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_BLOCK_READERS     4u
#define YB_BLOCK_CHUNK_BYTES (64u * 1024u)

struct yb_block_table;
struct yb_node_put_item;

/* Whose a block is. A node knows at most YB_TENANTS_MAX. */
struct yb_tenant {
    char name[65];
    uint64_t flush;   /* Blocks of an older epoch are misses. */
    uint64_t flushed; /* How many became so when this epoch was heard of. */
    uint64_t credit;  /* Bytes that it may use here; UINT64_MAX: no limit. */
    uint64_t live;    /* GRANTED blocks of the current flush epoch. */
    uint64_t
        storing_bytes; /* Of blocks that are on their way down, and stay in memory meanwhile. */
    struct yb_policy
        *policy; /* Of its blocks alone: it has a limit. NULL: the one of all others. */
};
#define YB_TENANTS_MAX 4096u

enum yb_block_state {
    YB_BLOCK_FREE,
    YB_BLOCK_IN_FLIGHT, /* Its bytes are arriving. */
    YB_BLOCK_COMMITTED, /* Whole, and read by nobody: its grant has not come. */
    YB_BLOCK_GRANTED,
    YB_BLOCK_DOOMED, /* Gone; its memory waits for readers. */
};

struct yb_block {
    struct yb_policy_linked policy; /* First: the policy hands entries back. In it while GRANTED. */
    struct yb_id hash;
    uint64_t grant;
    uint64_t write;
    uint64_t flush;
    uint64_t size;
    uint64_t group;      /* 0: none. */
    uint64_t parent;     /* First 8 bytes of the hash of the block before it; 0: none. */
    uint64_t dropped;    /* Highest grant that was dropped while its own was under way. */
    uint64_t expires_ns; /* YB_NEVER: not for that reason. */
    uint64_t hold_until_ns;
    uint64_t access_ns;
    uint64_t soft_ns; /* Its soft pin ends after so long without a use; 0: it does not. */
    struct yb_dram_extent extent;
    uint32_t use;        /* Number of the request that brought it. */
    uint32_t position;   /* In its chain, or else among what came with it; the first is 1. */
    uint32_t refetch_us; /* What it took to have it from below; 0: it was not there. */
    uint32_t checksum;   /* CRC32C of the value, if `checked`. */
    uint32_t epoch;      /* Of the directory that its put was announced to. */
    uint32_t pins;       /* Replies under way, pins and borrows. */
    uint32_t next;       /* In its chain, or among the free; index + 1. */
    uint32_t group_next; /* Ring of its group; index. */
    uint32_t group_previous;
    uint32_t hold_next; /* Among the held, the next newer one; index + 1. */
    uint32_t hold_previous;
    uint32_t wait_next; /* Among those that wait for a parent; index + 1. */
    uint32_t wait_previous;
    uint16_t tenant;
    uint16_t key_bytes;
    uint16_t readers[YB_BLOCK_READERS]; /* Recent ones, newest first; 0: none. */
    uint16_t flags;                     /* YB_WIRE_BLOCK_FLAG_ */
    uint8_t state;                      /* enum yb_block_state */
    uint8_t mode;                       /* enum yb_wire_mode of its put */
    uint8_t replicas;
    uint8_t places; /* Where its put went, this node among them. */
    uint8_t checked;
    uint8_t summed;    /* Chunk sums are behind the key. */
    uint8_t published; /* A publication of it is under way: it may not leave in silence. */
    uint8_t told;      /* Some directory was told of it once, and may have granted it. */
    uint8_t ordered;   /* Has an entry in the policy. */
    uint8_t waits;     /* For its parent. */
    uint8_t accesses;  /* Since it came here, up to 255. */
    uint8_t loaded;    /* It came up from a tier below. */
    uint8_t barred;    /* Levels below that were told to kill it: they never take it again. */
    uint8_t awaited;   /* The instruction that brought it and has not seen it read, + 1; 0: none. */
    struct yb_node_put_item *put; /* Waits for its grant; NULL: nobody does. */
};

/* Bytes that a block's extent needs: the value, its key, and chunk sums if they are kept. */
uint64_t yb_block_extent_bytes(uint64_t size, uint32_t key_bytes, bool summed);

/* Create a table of `blocks_max` records (1 to 2^30). Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_block_table_create(uint32_t blocks_max, uint64_t table_seed,
                                                struct yb_block_table **table_out);
void yb_block_table_destroy(struct yb_block_table **table);

/* Take a zeroed record, in state IN_FLIGHT and in the chain of `hash`. AGAIN: all are taken. */
YB_CHECKED enum yb_status yb_block_take(struct yb_block_table *table, struct yb_id hash,
                                        struct yb_block **block_out);

/* Give a record back; it has no extent any more. */
void yb_block_give(struct yb_block_table *table, struct yb_block *block);

/* Take a block off its chain: nobody finds it any more. Harmless if it is off. */
void yb_block_unlink(struct yb_block_table *table, struct yb_block *block);

/* Return the GRANTED block of the hash, whatever its key; NULL: none. */
struct yb_block *yb_block_granted(struct yb_block_table *table, struct yb_id hash);

/* Return whether a block of the hash is whole and published, and has not heard of its grant. */
bool yb_block_awaits_grant(const struct yb_block_table *table, struct yb_id hash);

/* Return the block of the write id that is IN_FLIGHT, COMMITTED or GRANTED; NULL: none. */
struct yb_block *yb_block_of_write(struct yb_block_table *table, struct yb_id hash, uint64_t write);

/* Return the GRANTED block of the tenant whose hash begins with these 8 bytes; NULL: none. */
struct yb_block *yb_block_parent(struct yb_block_table *table, uint64_t parent, uint32_t tenant);

/* Let a block that names a parent be found by yb_block_waiting() until it is granted one, or is
 * unlinked. Harmless if it waits. */
void yb_block_wait(struct yb_block_table *table, struct yb_block *block);
void yb_block_wait_end(struct yb_block_table *table, struct yb_block *block);

/* Return a block of the tenant that waits for a parent of this hash; NULL: none. */
struct yb_block *yb_block_waiting(struct yb_block_table *table, struct yb_id hash, uint32_t tenant);

/* Remember, for every block of the hash whose grant is under way, that `grant` was dropped. */
void yb_block_note_drop(struct yb_block_table *table, struct yb_id hash, uint64_t grant);

/* Prefetch what a find will touch; for batches, in steps, each for all of a batch before the next
 * one: where the chain begins, and then its first block. The last returns that block if it is of
 * this hash, so that what hangs on it can be prefetched too; NULL: it is not. */
void yb_block_prefetch_chain(const struct yb_block_table *table, struct yb_id hash);
void yb_block_prefetch(const struct yb_block_table *table, struct yb_id hash);
const struct yb_block *yb_block_prefetched(const struct yb_block_table *table, struct yb_id hash);

/* Return the block at `index` (below yb_block_span()) whatever its state, for walks in steps. */
struct yb_block *yb_block_at(struct yb_block_table *table, uint32_t index);
uint32_t yb_block_index(const struct yb_block_table *table, const struct yb_block *block);

/* Return one past the highest index that was ever taken. */
uint32_t yb_block_span(const struct yb_block_table *table);

#endif /* YB_NODE_BLOCK_H */
