/* SPDX-License-Identifier: Apache-2.0
 *
 * region.h -- the table of memory that peers may reach.
 *
 * A region is a range of this process's addresses with an access mask, a kind
 * of memory and a count of registrations. Transfers pin regions while they use
 * them; a region that is pinned cannot go away.
 *
 *     register                 pin / unpin (transfers)
 *     NONE ------> LIVE x n  <--------------------->  LIVE, pinned
 *                   |   ^ unregister, the last one
 *                   v   | time is up: BUSY, with the same id
 *                 CLOSING (no new pins) -- last unpin, its id is void --> NONE
 *
 * Invariants
 *   R1  Two regions never overlap, CLOSING ones included; the same range again only
 *       counts.
 *   R2  What a pin returned lies inside one region that allows it, and stays so until
 *       unpin. A range across two touching regions is refused.
 *   R3  The id of a region is void before its unregister returns, and is never given
 *       to another region (slot and generation). The first generation is random, so
 *       that an id of a process that was here before is, in all likelihood, STALE.
 *   R4  Numbers from peers (offset, length, address) are checked without overflow.
 *   R5  The live word of a region holds its id exactly while it is LIVE: 0 from CLOSING
 *       on. Who copies memory of this process without a pin (cross-memory attach) reads
 *       the word by a second call after the data, and discards them if it differs.
 *
 * Threads   Any thread, any function. One lock, rank REGION, held for a few steps per
 *           range; pins of one batch of ranges take it once. A register or an unregister
 *           moves 12 bytes for each region above its own, with the lock held. Only
 *           unregister waits, on a condition variable.
 * Memory    The table owns its records, all allocated by create; the memory itself is the
 *           caller's, and so is the descriptor of a backing, borrowed until the last
 *           unregister has returned OK.
 */
#ifndef YB_MEMORY_REGION_H
#define YB_MEMORY_REGION_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory_type.h"
#include "yuebing/status.h"

struct yb_region_table;
struct yb_region;

#define YB_REGION_READ  1u /* The peer may read. */
#define YB_REGION_WRITE 2u

#define YB_REGIONS_MAX (1u << 20)

/* Memory that has a descriptor of its own, so that another process can map it. */
struct yb_region_backing {
    int fd;          /* -1: none; ordinary memory. */
    uint64_t offset; /* Of the region's first byte in the descriptor. */
};

struct yb_region_info {
    uint64_t id; /* Never 0, never YB_REGION_BY_ADDRESS. */
    void *base;
    uint64_t length;
    uint32_t access;
    struct yb_memory_place place; /* Kind of memory and which device or node. */
    struct yb_region_backing backing;
    uint32_t registrations;
    uint32_t pins;
};

/* A range that a transfer wants to touch. */
struct yb_region_range {
    uint64_t region; /* An id, or YB_REGION_BY_ADDRESS. */
    uint64_t offset; /* Into the region, or a virtual address. */
    uint64_t length;
    /* ---- results ---- */
    void *bytes;              /* Where it lies: a device pointer if the place says so. */
    struct yb_region *pinned; /* For unpin; NULL for an empty range and for a refused one. */
    enum yb_status status;    /* OK (an empty range always is); NOT_FOUND (no such region), STALE
                               * (it was unregistered), BUSY (it is just being unregistered),
                               * INVALID (leaves the region), DENIED (access), AGAIN (2^32 pins). */
};
#define YB_REGION_BY_ADDRESS UINT64_MAX

/* Fails with INVALID (regions_max is 0 or above YB_REGIONS_MAX) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_region_table_create(uint32_t regions_max,
                                                 struct yb_region_table **table_out);
/* Draw the first generation (R3) from `random` instead of the system's, so that a simulation
 * repeats itself. Before the first register. */
void yb_region_table_seed(struct yb_region_table *table, uint64_t random);
/* Consume the table and set it to NULL; nothing may be pinned. */
void yb_region_table_destroy(struct yb_region_table **table);

/* Register the base, length, access, place and backing of `wanted`; its other fields are not read.
 *
 * Fails with INVALID (empty; past the end of the addresses; an unknown access bit), EXISTS
 * (overlaps another; or the same range with another access, place or backing), BUSY (overlaps one
 * that is just being unregistered) or TOO_LARGE (regions_max are there, or 2^32 registrations).
 * `id_out` may be NULL. */
YB_CHECKED enum yb_status yb_region_register(struct yb_region_table *table,
                                             const struct yb_region_info *wanted, uint64_t *id_out);

/* Undo one registration of the region that starts at `base`; the last one waits for pins at most
 * `timeout_ns`, and after BUSY the region is live again, with the same id. NOT_FOUND: nothing
 * starts there. BUSY at once: another thread's unregister waits for the last registration. */
YB_CHECKED enum yb_status yb_region_unregister(struct yb_region_table *table, void *base,
                                               uint64_t timeout_ns);

/* Pin all ranges for `access` (0: this process's own use, which no mask forbids); each has its own
 * status. Returns how many failed. */
uint32_t yb_region_pin(struct yb_region_table *table, struct yb_region_range *ranges,
                       uint32_t count, uint32_t access);

/* Give the pins back and set each `pinned` to NULL; ranges without one are skipped. */
void yb_region_unpin(struct yb_region_table *table, struct yb_region_range *ranges, uint32_t count);

/* What a pinned range's memory is: valid until its unpin. */
struct yb_memory_place yb_region_place(const struct yb_region *pinned);

/* Find the live region that holds all of [address, address + length), length > 0. NOT_FOUND:
 * none. */
YB_CHECKED enum yb_status yb_region_find(struct yb_region_table *table, const void *address,
                                         uint64_t length, struct yb_region_info *info_out);

/* Describe the live region `id`. Fails with NOT_FOUND, STALE or BUSY, as a pin. */
YB_CHECKED enum yb_status yb_region_get(struct yb_region_table *table, uint64_t id,
                                        struct yb_region_info *info_out);

/* Copy the live regions, at most `room`, in order of address; returns how many there are. */
uint32_t yb_region_list(struct yb_region_table *table, struct yb_region_info *infos_out,
                        uint32_t room);

/* Describe the live region that was registered first. NOT_FOUND: there is none. */
YB_CHECKED enum yb_status yb_region_first(struct yb_region_table *table,
                                          struct yb_region_info *info_out);

/* A number that changes with every register and unregister: for copies held elsewhere. */
uint64_t yb_region_table_generation(struct yb_region_table *table);

/* Return where the live word (R5) of `id` lies: an address that stays valid as long as the table.
 * NULL: no table gave such an id. */
const _Atomic uint64_t *yb_region_live_word(const struct yb_region_table *table, uint64_t id);

#endif /* YB_MEMORY_REGION_H */
