/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc.h -- who has which part of one long piece of memory: offsets and lengths, never bytes.
 *
 * It serves memory that this process cannot touch (a device's) as well as a DRAM pool; all it
 * knows of the memory lies beside it.
 *
 *     the space                 pieces of whole pages (4 KiB), each FREE, an extent, a region or a
 *       |                       slab; two-level segregated fit; free neighbours are joined at once
 *       +-- region (<= 1 MiB)   the same once more in units of 64 bytes, for extents below 64 KiB,
 *       |                       so that small ones gather, and do not break up the large holes
 *       +-- slab (<= 8 MiB)     up to 64 cells of one size; a bitmap
 *
 * Sizes. An extent is rounded up to 64 bytes below 64 KiB and to 4 KiB from there on, so that what
 * is large can go to a device or a disk as it lies; and at least to extent_bytes_min. Its offset
 * is aligned the same way.
 * Fit. The best of the first 64 pieces in the request's own class of sizes (3 % wide), or any
 * piece of the next larger class that has one.
 * Classes are learned. 32 counters follow the commonest sizes of requests (Metwally, Agrawal and El
 * Abbadi's Space-Saving, 2005). Every 4096 requests, a size that makes up a sixteenth of them gets
 * a class, and a class that has become rarer than one in 64 loses it; the past counts half each
 * time. A class takes whole slabs and puts new extents into its fullest ones; a slab whose last
 * cell is given back is a free piece again at once, so that nothing is kept for traffic that is
 * over. Sizes above an eighth of a slab get no class: they are pieces of their own.
 *
 * Invariants
 *   A1  Extents do not overlap and lie inside the space.
 *   A2  Two free pieces are never neighbours; with no extent left, there is one piece: all.
 *   A3  take and give are O(1): a bounded number of steps, whatever the number of extents.
 *   A4  What lies beside the memory is bounded by 56 bytes * (5 * capacity / extent_bytes_min +
 *       16), and grows in steps of 224 KiB as extents come; it is reused, and released by destroy.
 *
 * Threads   One owner; no lock.
 * Memory    The allocator owns what it knows. Extents are values; a handle is good from take
 *           until give, and using it later is a bug, which aborts where it can be seen.
 */
#ifndef YB_TIER_DRAM_ALLOC_H
#define YB_TIER_DRAM_ALLOC_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_DRAM_PAGE_BYTES         4096u
#define YB_DRAM_GRANULE_BYTES      64u
#define YB_DRAM_LARGE_BYTES        65536u /* From here on in whole pages. */
#define YB_DRAM_CAPACITY_BYTES_MAX (1ull << 46)
#define YB_DRAM_EXTENT_COUNT_MAX   (1ull << 29) /* capacity / extent_bytes_min */

struct yb_dram_allocator;

struct yb_dram_extent {
    uint64_t offset;
    uint64_t length; /* As rounded up: all of it is the holder's. */
    uint32_t handle;
};

/* Create an allocator for [0, capacity), all of it free. `extent_bytes_min` bounds what it may come
 * to know (A4); 0: 256 bytes, or more for more than 128 GiB.
 *
 * On OK *allocator_out is the caller's. Fails with INVALID (capacity is 0, no multiple of the page
 * or above its bound; extent_bytes_min is no multiple of 64, or too small for the capacity) or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_dram_allocator_create(uint64_t capacity, uint64_t extent_bytes_min,
                                                   struct yb_dram_allocator **allocator_out);

/* Consume the allocator and set *allocator to NULL, whatever is still taken. */
void yb_dram_allocator_destroy(struct yb_dram_allocator **allocator);

/* Return the length that an extent for `bytes` (1 to the capacity) has. */
uint64_t yb_dram_allocator_round(const struct yb_dram_allocator *allocator, uint64_t bytes);

/* Take an extent of at least `bytes`, all or nothing.
 *
 * Fails with INVALID (0 bytes), TOO_LARGE (more than the capacity), NO_SPACE (no piece fits: give
 * something back) or NO_MEMORY (what lies beside cannot grow). */
YB_CHECKED enum yb_status yb_dram_allocator_take(struct yb_dram_allocator *allocator,
                                                 uint64_t bytes, struct yb_dram_extent *extent_out);

/* Give an extent back. */
void yb_dram_allocator_give(struct yb_dram_allocator *allocator,
                            const struct yb_dram_extent *extent);

/* Return the extent's word for the caller's own use; 0 after take; borrowed until give. */
uint32_t *yb_dram_allocator_word(struct yb_dram_allocator *allocator,
                                 const struct yb_dram_extent *extent);

struct yb_dram_allocator_info {
    uint64_t capacity;
    uint64_t used_bytes; /* The lengths of all extents. */

    /* In free pieces of the space; the rest of the capacity is free inside regions and slabs. */
    uint64_t free_bytes;

    /* The largest free piece; if more than 64 are about as large, up to 3 % less. */
    uint64_t piece_bytes_max;
    uint64_t extent_count;
    uint64_t region_count;
    uint64_t slab_count;
    uint32_t class_count;  /* Sizes that get slabs now. */
    uint64_t beside_bytes; /* What it knows, in memory of the process. */
};

/* O(1): every tick may ask. */
struct yb_dram_allocator_info yb_dram_allocator_info(const struct yb_dram_allocator *allocator);

/* Call `visit` for each extent, in no particular order; it changes nothing. */
void yb_dram_allocator_each(struct yb_dram_allocator *allocator,
                            void (*visit)(void *context, const struct yb_dram_extent *extent,
                                          uint32_t word),
                            void *context);

/* Recompute everything, O(extents): A1, A2, the lists, the bitmaps, the sums. Returns whether all
 * is well; otherwise `why_out` (may be NULL) gets a sentence. */
bool yb_dram_allocator_check(const struct yb_dram_allocator *allocator, char *why_out,
                             uint32_t why_bytes);

#endif /* YB_TIER_DRAM_ALLOC_H */
