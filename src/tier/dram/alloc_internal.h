/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc_internal.h -- pieces, bins and classes of the allocator.
 *
 * alloc_piece.c   pieces: storage, lists by size (bins), splitting and joining
 * alloc_class.c   counting sizes, classes, slabs and cells
 * alloc.c         the contract, regions
 * alloc_check.c   recomputing everything
 */
#ifndef YB_TIER_DRAM_ALLOC_INTERNAL_H
#define YB_TIER_DRAM_ALLOC_INTERNAL_H

#include "tier/dram/alloc.h"

#define YB_DRAM_NONE            UINT32_MAX
#define YB_DRAM_CHUNK_PIECES    4096u
#define YB_DRAM_PIECES_PER_TAKE 6u /* A region and its rest, its first piece and its rest, ... */

#define YB_DRAM_SECOND_BITS  5u /* 32 classes of sizes for each power of two: 3 % wide. */
#define YB_DRAM_SECOND_COUNT (1u << YB_DRAM_SECOND_BITS)
#define YB_DRAM_FIRST_COUNT  31u /* 2^46 bytes in pages. */
#define YB_DRAM_LOOK         64u

#define YB_DRAM_CELLS_MAX      64u
#define YB_DRAM_CLASSES_MAX    16u
#define YB_DRAM_COUNTERS       32u
#define YB_DRAM_REVIEW_TAKES   4096u
#define YB_DRAM_LEARN_PART     16u /* One request in so many makes a class, */
#define YB_DRAM_UNLEARN_PART   64u /* and fewer than one in so many ends it. */
#define YB_DRAM_CELLS_MIN      8u
#define YB_DRAM_FULLNESS_COUNT 4u
#define YB_DRAM_SLAB_BYTES_MAX (8ull << 20)
#define YB_DRAM_REGION_BYTES   (1ull << 20)

enum yb_dram_kind {
    YB_DRAM_UNUSED, /* A piece's record that describes nothing. */
    YB_DRAM_FREE,
    YB_DRAM_EXTENT,
    YB_DRAM_REGION,
    YB_DRAM_SLAB,
    YB_DRAM_CELL, /* An extent inside a slab. */
};

/* One piece of the space or of a region, or a taken cell of a slab. */
struct yb_dram_piece {
    uint64_t offset;
    uint64_t length;
    uint64_t free_cells; /* SLAB: bit i: cell i is free. */
    uint32_t before;     /* Neighbours in the space, or in the region. */
    uint32_t after;
    uint32_t next; /* FREE: in its bin. SLAB: in its class. UNUSED: the next unused. */
    uint32_t previous;
    uint32_t home; /* Piece of a region: the region. CELL: the slab. REGION: its first piece. */
    uint32_t word;
    uint8_t kind;
    uint8_t class_index; /* SLAB. */
    uint8_t cell;        /* SLAB: how many cells. CELL: which one. */
    bool small;          /* It lies in a region. */
};
_Static_assert(sizeof(struct yb_dram_piece) == 56, "A4");

/* The free pieces of the space, or of all regions together. */
struct yb_dram_bins {
    uint32_t unit_bytes;
    uint32_t first_bits; /* Bit f: second_bits[f] is not 0. */
    uint32_t second_bits[YB_DRAM_FIRST_COUNT];
    uint32_t heads[YB_DRAM_FIRST_COUNT][YB_DRAM_SECOND_COUNT];
    uint64_t free_bytes;
};

struct yb_dram_class {
    uint64_t cell_bytes; /* 0: no class. */
    bool learned;        /* It may take new slabs. */
    uint8_t cell_count;  /* Of a new slab. */
    uint32_t slab_count;
    uint32_t slabs[YB_DRAM_FULLNESS_COUNT]; /* Those with a free cell, by how many they have. */
};

struct yb_dram_counter {
    uint64_t length;
    uint64_t count;
};

struct yb_dram_allocator {
    uint32_t magic;
    uint64_t capacity;
    uint64_t extent_bytes_min;
    uint64_t region_bytes;
    uint64_t slab_bytes_max;
    struct yb_dram_piece **chunks;
    uint32_t chunk_count;
    uint32_t chunk_count_max;
    uint32_t unused; /* The first unused record. */
    uint32_t unused_count;
    uint32_t first; /* The piece at offset 0. */
    struct yb_dram_bins large;
    struct yb_dram_bins small;
    struct yb_dram_class classes[YB_DRAM_CLASSES_MAX];
    struct yb_dram_counter counters[YB_DRAM_COUNTERS];
    uint32_t takes_since_review;
    uint64_t used_bytes;
    uint64_t extent_count;
    uint64_t region_count;
    uint64_t slab_count;
};

static inline struct yb_dram_piece *
yb_dram_piece_at(const struct yb_dram_allocator *allocator, uint32_t handle)
{
    return &allocator->chunks[handle / YB_DRAM_CHUNK_PIECES][handle % YB_DRAM_CHUNK_PIECES];
}

/* Make sure of enough unused records for one take. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_dram_piece_reserve(struct yb_dram_allocator *allocator);

/* Take an unused record, with [offset, offset + length) in it and nothing else; reserve came
 * before. */
uint32_t yb_dram_piece_new(struct yb_dram_allocator *allocator, uint64_t offset, uint64_t length);
void yb_dram_piece_drop(struct yb_dram_allocator *allocator, uint32_t handle);

void yb_dram_bins_init(struct yb_dram_bins *bins, uint32_t unit_bytes);

/* Make a piece FREE, without joining it. */
void yb_dram_bins_put(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins,
                      uint32_t handle);
void yb_dram_bins_take(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins,
                       uint32_t handle);

/* Cut `length` (whole units) from a free piece and return it, as an EXTENT; NONE: nothing fits. */
uint32_t yb_dram_bins_cut(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins,
                          uint64_t length);

/* Make a piece FREE, join it with its free neighbours, and return what came out. */
uint32_t yb_dram_bins_give(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins,
                           uint32_t handle);

/* Return the largest of the first pieces in the bin of the largest. */
uint64_t yb_dram_bins_bytes_max(const struct yb_dram_allocator *allocator,
                                const struct yb_dram_bins *bins);

/* Count one request, and learn from time to time. */
void yb_dram_class_count(struct yb_dram_allocator *allocator, uint64_t length);

/* Take a cell of exactly `length`; NONE: there is no such class, or no room for a slab. */
uint32_t yb_dram_class_take(struct yb_dram_allocator *allocator, uint64_t length);
void yb_dram_class_give(struct yb_dram_allocator *allocator, uint32_t handle);

/* Return in which of a class's lists a slab belongs; it has a free cell. */
uint32_t yb_dram_class_fullness(const struct yb_dram_piece *slab);

#endif /* YB_TIER_DRAM_ALLOC_INTERNAL_H */
