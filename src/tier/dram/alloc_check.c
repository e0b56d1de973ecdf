/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that the allocator keeps up to date step by step, computed anew.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/check.h"
#include "tier/dram/alloc_internal.h"

struct walk {
    const struct yb_dram_allocator *allocator;
    char *why;
    uint32_t why_bytes;
    uint64_t used_bytes;
    uint64_t extent_count;
    uint64_t region_count;
    uint64_t slab_count;
    uint64_t large_free_bytes;
    uint64_t large_free_count;
    uint64_t small_free_bytes;
    uint64_t small_free_count;
    uint32_t class_slab_count[YB_DRAM_CLASSES_MAX];
};

__attribute__((format(printf, 2, 3))) static bool
wrong(const struct walk *walk, const char *format, ...)
{
    va_list args;

    if (walk->why != NULL) {
        va_start(args, format);
        (void)vsnprintf(walk->why, walk->why_bytes, format, args);
        va_end(args);
    }
    return false;
}

/* Walk the pieces of one region; the space's own extents are counted by the caller. */
static bool
walk_region(struct walk *walk, const struct yb_dram_piece *region)
{
    uint64_t offset = region->offset;
    uint32_t before = YB_DRAM_NONE;
    bool before_free = false;
    bool used = false;

    for (uint32_t handle = region->home; handle != YB_DRAM_NONE;) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(walk->allocator, handle);
        bool piece_free = piece->kind == YB_DRAM_FREE;

        if (piece->offset != offset || piece->before != before || !piece->small ||
            (!piece_free && piece->kind != YB_DRAM_EXTENT) || (before_free && piece_free)) {
            return wrong(walk, "region at %llu: wrong piece at %llu",
                         (unsigned long long)region->offset, (unsigned long long)offset);
        }
        walk->small_free_bytes += piece_free ? piece->length : 0;
        walk->small_free_count += piece_free;
        walk->used_bytes += piece_free ? 0 : piece->length;
        walk->extent_count += !piece_free;
        used = used || !piece_free;
        offset += piece->length;
        before_free = piece_free;
        before = handle;
        handle = piece->after;
    }
    if (offset != region->offset + region->length || !used) {
        return wrong(walk, "region at %llu: it does not end, or holds nothing",
                     (unsigned long long)region->offset);
    }
    walk->region_count++;
    return true;
}

static bool
walk_slab(struct walk *walk, const struct yb_dram_piece *slab)
{
    const struct yb_dram_class *class = &walk->allocator->classes[slab->class_index];
    uint32_t free_count = (uint32_t)__builtin_popcountll(slab->free_cells);

    if (class->cell_bytes * slab->cell > slab->length || free_count >= slab->cell) {
        return wrong(walk, "slab at %llu: its cells do not fit, or none is taken",
                     (unsigned long long)slab->offset);
    }
    walk->class_slab_count[slab->class_index]++;
    walk->slab_count++;
    walk->used_bytes += (slab->cell - free_count) * class->cell_bytes;
    walk->extent_count += slab->cell - free_count;
    return true;
}

/* Walk the whole space in order of addresses: A1, A2. */
static bool
walk_space(struct walk *walk)
{
    const struct yb_dram_allocator *allocator = walk->allocator;
    uint32_t before = YB_DRAM_NONE;
    uint64_t offset = 0;
    bool before_free = false;
    bool fine = true;

    for (uint32_t handle = allocator->first; handle != YB_DRAM_NONE && fine;) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);
        bool piece_free = piece->kind == YB_DRAM_FREE;

        if (piece->offset != offset || piece->before != before || piece->small ||
            piece->length % YB_DRAM_PAGE_BYTES != 0 || (before_free && piece_free)) {
            return wrong(walk, "wrong piece at %llu", (unsigned long long)offset);
        }
        if (piece->kind == YB_DRAM_REGION) {
            fine = walk_region(walk, piece);
        } else if (piece->kind == YB_DRAM_SLAB) {
            fine = walk_slab(walk, piece);
        } else if (piece->kind == YB_DRAM_EXTENT) {
            walk->used_bytes += piece->length;
            walk->extent_count++;
        } else if (piece_free) {
            walk->large_free_bytes += piece->length;
            walk->large_free_count++;
        } else {
            return wrong(walk, "no such kind of piece at %llu", (unsigned long long)offset);
        }
        offset += piece->length;
        before_free = piece_free;
        before = handle;
        handle = piece->after;
    }
    if (fine && offset != allocator->capacity) {
        return wrong(walk, "the pieces end at %llu", (unsigned long long)offset);
    }
    return fine;
}

/* Count the pieces in bins; they are free, and linked both ways. */
static bool
walk_bins(struct walk *walk, const struct yb_dram_bins *bins, uint64_t count)
{
    for (uint32_t f = 0; f < YB_DRAM_FIRST_COUNT; f++) {
        for (uint32_t s = 0; s < YB_DRAM_SECOND_COUNT; s++) {
            uint32_t before = YB_DRAM_NONE;
            uint32_t handle = bins->heads[f][s];

            if ((handle != YB_DRAM_NONE) != ((bins->second_bits[f] >> s & 1) != 0)) {
                return wrong(walk, "bin %u/%u: its bit is wrong", f, s);
            }
            while (handle != YB_DRAM_NONE) {
                const struct yb_dram_piece *piece = yb_dram_piece_at(walk->allocator, handle);

                if (piece->kind != YB_DRAM_FREE || piece->previous != before || count == 0) {
                    return wrong(walk, "bin %u/%u: wrong piece %u", f, s, handle);
                }
                count--;
                before = handle;
                handle = piece->next;
            }
        }
        if ((bins->second_bits[f] != 0) != ((bins->first_bits >> f & 1) != 0)) {
            return wrong(walk, "bins %u: the bit is wrong", f);
        }
    }
    return count == 0 || wrong(walk, "%llu free pieces are in no bin", (unsigned long long)count);
}

/* Each slab with a free cell is in its list, and in no other. */
static bool
walk_classes(struct walk *walk)
{
    const struct yb_dram_allocator *allocator = walk->allocator;
    uint64_t listed_count = 0, open_count = 0;

    for (uint32_t c = 0; c < YB_DRAM_CLASSES_MAX; c++) {
        const struct yb_dram_class *class = &allocator->classes[c];

        if (class->slab_count != walk->class_slab_count[c]) {
            return wrong(walk, "class %u: its slabs are miscounted", c);
        }
        for (uint32_t i = 0; i < YB_DRAM_FULLNESS_COUNT && class->cell_bytes != 0; i++) {
            for (uint32_t handle = class->slabs[i]; handle != YB_DRAM_NONE;
                 handle = yb_dram_piece_at(allocator, handle)->next) {
                const struct yb_dram_piece *slab = yb_dram_piece_at(allocator, handle);

                if (slab->kind != YB_DRAM_SLAB || slab->class_index != c || slab->free_cells == 0 ||
                    yb_dram_class_fullness(slab) != i || listed_count > allocator->slab_count) {
                    return wrong(walk, "class %u: slab %u is in the wrong list", c, handle);
                }
                listed_count++;
            }
        }
    }
    for (uint32_t h = 0; h < allocator->chunk_count * YB_DRAM_CHUNK_PIECES; h++) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, h);

        open_count += piece->kind == YB_DRAM_SLAB && piece->free_cells != 0;
    }
    return listed_count == open_count || wrong(walk, "slabs with free cells are in no list");
}

/* Cells are the only extents that the walk by address does not meet one by one. */
static bool
walk_cells(struct walk *walk)
{
    const struct yb_dram_allocator *allocator = walk->allocator;
    uint64_t unused_count = 0;

    for (uint32_t h = 0; h < allocator->chunk_count * YB_DRAM_CHUNK_PIECES; h++) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, h);
        const struct yb_dram_piece *slab;

        unused_count += piece->kind == YB_DRAM_UNUSED;
        if (piece->kind != YB_DRAM_CELL) {
            continue;
        }
        slab = yb_dram_piece_at(allocator, piece->home);
        if (slab->kind != YB_DRAM_SLAB || (slab->free_cells >> piece->cell & 1) != 0 ||
            piece->offset != slab->offset + piece->cell * piece->length ||
            piece->length != allocator->classes[slab->class_index].cell_bytes) {
            return wrong(walk, "cell %u is not one of its slab's", h);
        }
    }
    return unused_count == allocator->unused_count || wrong(walk, "records are miscounted");
}

bool
yb_dram_allocator_check(const struct yb_dram_allocator *allocator, char *why_out,
                        uint32_t why_bytes)
{
    struct walk walk = {.allocator = allocator, .why = why_out, .why_bytes = why_bytes};

    YB_ASSERT(allocator != NULL);
    if (!walk_space(&walk) || !walk_bins(&walk, &allocator->large, walk.large_free_count) ||
        !walk_bins(&walk, &allocator->small, walk.small_free_count) || !walk_classes(&walk) ||
        !walk_cells(&walk)) {
        return false;
    }
    if (walk.used_bytes != allocator->used_bytes || walk.extent_count != allocator->extent_count ||
        walk.region_count != allocator->region_count || walk.slab_count != allocator->slab_count ||
        walk.large_free_bytes != allocator->large.free_bytes ||
        walk.small_free_bytes != allocator->small.free_bytes) {
        return wrong(&walk, "the sums differ: used %llu, counted %llu",
                     (unsigned long long)allocator->used_bytes,
                     (unsigned long long)walk.used_bytes);
    }
    return true;
}
