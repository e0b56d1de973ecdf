/* SPDX-License-Identifier: Apache-2.0
 *
 * The allocator's contract, and regions: a piece of the space that is cut up in small units, and
 * is a piece of the space again as soon as all in it is free.
 */
#include "tier/dram/alloc.h"

#include <stdlib.h>

#include "base/check.h"
#include "tier/dram/alloc_internal.h"

#define ALLOCATOR_MAGIC 0x6472616du
#define EXTENT_BYTES    256u /* extent_bytes_min, when it is ours to choose. */

_Static_assert(5 * YB_DRAM_EXTENT_COUNT_MAX + 16 + YB_DRAM_CHUNK_PIECES < YB_DRAM_NONE,
               "handles fit 32 bits");
_Static_assert(YB_DRAM_REGION_BYTES >= YB_DRAM_LARGE_BYTES, "whatever is small fits a region");

static uint64_t
round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

enum yb_status
yb_dram_allocator_create(uint64_t capacity, uint64_t extent_bytes_min,
                         struct yb_dram_allocator **allocator_out)
{
    struct yb_dram_allocator *allocator;
    uint64_t piece_count_max;

    YB_ASSERT(allocator_out != NULL);
    if (capacity == 0 || capacity % YB_DRAM_PAGE_BYTES != 0 ||
        capacity > YB_DRAM_CAPACITY_BYTES_MAX) {
        return YB_INVALID;
    }
    if (extent_bytes_min == 0) {
        extent_bytes_min = EXTENT_BYTES;
        while (capacity / extent_bytes_min > YB_DRAM_EXTENT_COUNT_MAX) {
            extent_bytes_min *= 2;
        }
    }
    if (extent_bytes_min % YB_DRAM_GRANULE_BYTES != 0 || extent_bytes_min > capacity ||
        capacity / extent_bytes_min > YB_DRAM_EXTENT_COUNT_MAX) {
        return YB_INVALID;
    }
    piece_count_max = 5 * (capacity / extent_bytes_min) + 16 + YB_DRAM_PIECES_PER_TAKE;
    allocator = calloc(1, sizeof *allocator);
    if (allocator == NULL) {
        return YB_NO_MEMORY;
    }
    allocator->magic = ALLOCATOR_MAGIC;
    allocator->capacity = capacity;
    allocator->extent_bytes_min = extent_bytes_min;
    allocator->region_bytes =
        capacity / 64 / YB_DRAM_PAGE_BYTES * YB_DRAM_PAGE_BYTES; /* 1 MiB from 64 MiB on. */
    if (allocator->region_bytes > YB_DRAM_REGION_BYTES) {
        allocator->region_bytes = YB_DRAM_REGION_BYTES;
    }
    allocator->slab_bytes_max =
        capacity / 256 < YB_DRAM_SLAB_BYTES_MAX ? capacity / 256 : YB_DRAM_SLAB_BYTES_MAX;
    allocator->unused = YB_DRAM_NONE;
    allocator->chunk_count_max =
        (uint32_t)((piece_count_max + YB_DRAM_CHUNK_PIECES - 1) / YB_DRAM_CHUNK_PIECES);
    allocator->chunks = calloc(allocator->chunk_count_max, sizeof(struct yb_dram_piece *));
    if (allocator->chunks == NULL || yb_dram_piece_reserve(allocator) != YB_OK) {
        yb_dram_allocator_destroy(&allocator);
        return YB_NO_MEMORY;
    }
    yb_dram_bins_init(&allocator->large, YB_DRAM_PAGE_BYTES);
    yb_dram_bins_init(&allocator->small, YB_DRAM_GRANULE_BYTES);
    allocator->first = yb_dram_piece_new(allocator, 0, capacity);
    yb_dram_bins_put(allocator, &allocator->large, allocator->first);
    *allocator_out = allocator;
    return YB_OK;
}

void
yb_dram_allocator_destroy(struct yb_dram_allocator **allocator)
{
    if (*allocator == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*allocator, ALLOCATOR_MAGIC);
    for (uint32_t i = 0; i < (*allocator)->chunk_count; i++) {
        free((*allocator)->chunks[i]);
    }
    free((*allocator)->chunks);
    (*allocator)->magic = 0;
    free(*allocator);
    *allocator = NULL;
}

uint64_t
yb_dram_allocator_round(const struct yb_dram_allocator *allocator, uint64_t bytes)
{
    uint64_t length = bytes > allocator->extent_bytes_min ? bytes : allocator->extent_bytes_min;

    return round_up(length,
                    length < YB_DRAM_LARGE_BYTES ? YB_DRAM_GRANULE_BYTES : YB_DRAM_PAGE_BYTES);
}

/* Make a region with room for `length`. */
static bool
region_new(struct yb_dram_allocator *allocator, uint64_t length)
{
    uint64_t least = round_up(length, YB_DRAM_PAGE_BYTES);
    uint32_t handle = YB_DRAM_NONE;
    struct yb_dram_piece *region, *inside;

    if (allocator->region_bytes > least) {
        handle = yb_dram_bins_cut(allocator, &allocator->large, allocator->region_bytes);
    }
    if (handle == YB_DRAM_NONE) {
        handle = yb_dram_bins_cut(allocator, &allocator->large, least);
    }
    if (handle == YB_DRAM_NONE) {
        return false;
    }
    region = yb_dram_piece_at(allocator, handle);
    region->kind = YB_DRAM_REGION;
    region->home = yb_dram_piece_new(allocator, region->offset, region->length);
    inside = yb_dram_piece_at(allocator, region->home);
    inside->home = handle;
    inside->small = true;
    yb_dram_bins_put(allocator, &allocator->small, region->home);
    allocator->region_count++;
    return true;
}

static uint32_t
small_take(struct yb_dram_allocator *allocator, uint64_t length)
{
    uint32_t handle = yb_dram_bins_cut(allocator, &allocator->small, length);

    if (handle == YB_DRAM_NONE && region_new(allocator, length)) {
        handle = yb_dram_bins_cut(allocator, &allocator->small, length);
    }
    return handle;
}

static void
small_give(struct yb_dram_allocator *allocator, uint32_t handle)
{
    const struct yb_dram_piece *piece;
    uint32_t region;

    handle = yb_dram_bins_give(allocator, &allocator->small, handle);
    piece = yb_dram_piece_at(allocator, handle);
    if (piece->before != YB_DRAM_NONE || piece->after != YB_DRAM_NONE) {
        return;
    }
    region = piece->home; /* All of it is free. */
    YB_ASSERT(piece->length == yb_dram_piece_at(allocator, region)->length);
    yb_dram_bins_take(allocator, &allocator->small, handle);
    yb_dram_piece_drop(allocator, handle);
    yb_dram_piece_at(allocator, region)->home = YB_DRAM_NONE;
    (void)yb_dram_bins_give(allocator, &allocator->large, region);
    allocator->region_count--;
}

enum yb_status
yb_dram_allocator_take(struct yb_dram_allocator *allocator, uint64_t bytes,
                       struct yb_dram_extent *extent_out)
{
    const struct yb_dram_piece *piece;
    uint64_t length;
    uint32_t handle;

    YB_ASSERT_OBJ(allocator, ALLOCATOR_MAGIC);
    if (bytes == 0) {
        return YB_INVALID;
    }
    if (bytes > allocator->capacity) {
        return YB_TOO_LARGE;
    }
    if (yb_dram_piece_reserve(allocator) != YB_OK) {
        return YB_NO_MEMORY;
    }
    length = yb_dram_allocator_round(allocator, bytes);
    yb_dram_class_count(allocator, length);
    handle = yb_dram_class_take(allocator, length);
    if (handle == YB_DRAM_NONE) {
        handle = length < YB_DRAM_LARGE_BYTES
                     ? small_take(allocator, length)
                     : yb_dram_bins_cut(allocator, &allocator->large, length);
    }
    if (handle == YB_DRAM_NONE) {
        return YB_NO_SPACE;
    }
    piece = yb_dram_piece_at(allocator, handle);
    YB_ASSERT(piece->length == length);
    YB_ASSERT(piece->offset + length <= allocator->capacity); /* A1 */
    allocator->used_bytes += length;
    allocator->extent_count++;
    *extent_out = (struct yb_dram_extent){piece->offset, length, handle};
    return YB_OK;
}

/* Return an extent's piece, having compared it with what the allocator knows. */
static struct yb_dram_piece *
piece_of(const struct yb_dram_allocator *allocator, const struct yb_dram_extent *extent)
{
    struct yb_dram_piece *piece;

    YB_ASSERT_OBJ(allocator, ALLOCATOR_MAGIC);
    YB_ASSERT(extent->handle / YB_DRAM_CHUNK_PIECES < allocator->chunk_count);
    piece = yb_dram_piece_at(allocator, extent->handle);
    YB_ASSERT(piece->kind == YB_DRAM_EXTENT || piece->kind == YB_DRAM_CELL);
    YB_ASSERT(piece->offset == extent->offset && piece->length == extent->length);
    return piece;
}

void
yb_dram_allocator_give(struct yb_dram_allocator *allocator, const struct yb_dram_extent *extent)
{
    const struct yb_dram_piece *piece = piece_of(allocator, extent);

    YB_ASSERT(allocator->used_bytes >= piece->length);
    allocator->used_bytes -= piece->length;
    allocator->extent_count--;
    if (piece->kind == YB_DRAM_CELL) {
        yb_dram_class_give(allocator, extent->handle);
    } else if (piece->small) {
        small_give(allocator, extent->handle);
    } else {
        (void)yb_dram_bins_give(allocator, &allocator->large, extent->handle);
    }
}

uint32_t *
yb_dram_allocator_word(struct yb_dram_allocator *allocator, const struct yb_dram_extent *extent)
{
    return &piece_of(allocator, extent)->word;
}

struct yb_dram_allocator_info
yb_dram_allocator_info(const struct yb_dram_allocator *allocator)
{
    struct yb_dram_allocator_info info;

    YB_ASSERT_OBJ(allocator, ALLOCATOR_MAGIC);
    info = (struct yb_dram_allocator_info){
        .capacity = allocator->capacity,
        .used_bytes = allocator->used_bytes,
        .free_bytes = allocator->large.free_bytes,
        .piece_bytes_max = yb_dram_bins_bytes_max(allocator, &allocator->large),
        .extent_count = allocator->extent_count,
        .region_count = allocator->region_count,
        .slab_count = allocator->slab_count,
        .beside_bytes =
            sizeof *allocator + allocator->chunk_count_max * sizeof(struct yb_dram_piece *) +
            (uint64_t)allocator->chunk_count * YB_DRAM_CHUNK_PIECES * sizeof(struct yb_dram_piece),
    };
    for (uint32_t i = 0; i < YB_DRAM_CLASSES_MAX; i++) {
        info.class_count += allocator->classes[i].learned;
    }
    return info;
}

void
yb_dram_allocator_each(struct yb_dram_allocator *allocator,
                       void (*visit)(void *context, const struct yb_dram_extent *extent,
                                     uint32_t word),
                       void *context)
{
    YB_ASSERT_OBJ(allocator, ALLOCATOR_MAGIC);
    for (uint32_t handle = 0; handle < allocator->chunk_count * YB_DRAM_CHUNK_PIECES; handle++) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);

        if (piece->kind == YB_DRAM_EXTENT || piece->kind == YB_DRAM_CELL) {
            struct yb_dram_extent extent = {piece->offset, piece->length, handle};

            visit(context, &extent, piece->word);
        }
    }
}
