/* SPDX-License-Identifier: Apache-2.0
 *
 * shelf.h -- what a node knows of its blocks below DRAM, by hash.
 *
 * A tier knows where a block lies on its medium. The shelf knows what the block is worth: which
 * tiers have it, whether the directory names it there, whether somebody is reading it up, and
 * whether it is on its way out. A block may be in DRAM, too: then it has a record in block.h beside
 * this one.
 *
 *              take                       resident in a tier           end
 *     free ----------> LIVE (storing) -------------------------> LIVE ------> DEAD --killed--> free
 *
 * Invariants
 *   S1  At most one LIVE record of a hash; DEAD ones beside it name other grants, or the same one
 *       that came again.
 *   S2  A DEAD record is found by nobody who reads.
 *   S3  Records are reserved by create; nothing allocates afterwards. What was never taken costs
 *       addresses, no memory.
 *
 * Threads   One owner: the node's worker.
 * Memory    The shelf owns the records; 64 bytes each and 8 for the chains.
 */
#ifndef YB_NODE_SHELF_H
#define YB_NODE_SHELF_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_shelf;

enum yb_shelf_state { YB_SHELF_FREE, YB_SHELF_LIVE, YB_SHELF_DEAD };

/* The sets have one bit for each tier of the node, in their order. */
struct yb_shelf_record {
    struct yb_id hash;
    uint64_t grant;
    uint64_t size;
    uint64_t flush;
    uint32_t expires_s; /* Seconds since 1970, rounded up; 0: never. */
    uint32_t next;      /* In its chain, or among the free; index + 1. */
    uint32_t dead_next; /* DEAD: the next one that waits to be killed; index + 1. */
    uint16_t tenant;
    uint16_t flags;   /* YB_WIRE_BLOCK_FLAG_ */
    uint16_t loading; /* Number of the load under way; 0: none. */
    uint8_t resident; /* The medium has acknowledged it. */
    uint8_t storing;
    uint8_t claimed;   /* The directory names it there. */
    uint8_t told;      /* The directory was told, and has not answered. */
    uint8_t state : 4; /* enum yb_shelf_state */
    uint8_t doubt : 4; /* Nobody knows whether it is there: the tier failed as it came. */
    uint8_t replicas;
};
_Static_assert(sizeof(struct yb_shelf_record) == 64, "one for each block below DRAM");

/* Create a shelf for `records_max` (1 to 2^30). Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_shelf_create(uint32_t records_max, uint64_t seed,
                                          struct yb_shelf **shelf_out);
void yb_shelf_destroy(struct yb_shelf **shelf);

/* Take a zeroed record, LIVE; there is no LIVE one of the hash. AGAIN: all are taken. */
YB_CHECKED enum yb_status yb_shelf_take(struct yb_shelf *shelf, struct yb_id hash, uint64_t grant,
                                        struct yb_shelf_record **record_out);
void yb_shelf_give(struct yb_shelf *shelf, struct yb_shelf_record *record);

/* Return the LIVE record of the hash; NULL: none. */
struct yb_shelf_record *yb_shelf_find(const struct yb_shelf *shelf, struct yb_id hash);

/* Return a record of exactly this grant, DEAD or LIVE; NULL: none. */
struct yb_shelf_record *yb_shelf_of(const struct yb_shelf *shelf, struct yb_id hash,
                                    uint64_t grant);

/* For walks in steps: records below the span, whatever their state. */
struct yb_shelf_record *yb_shelf_at(const struct yb_shelf *shelf, uint32_t index);
uint32_t yb_shelf_index(const struct yb_shelf *shelf, const struct yb_shelf_record *record);
uint32_t yb_shelf_span(const struct yb_shelf *shelf);
uint32_t yb_shelf_count(const struct yb_shelf *shelf);

#endif /* YB_NODE_SHELF_H */
