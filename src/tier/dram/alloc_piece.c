/* SPDX-License-Identifier: Apache-2.0
 *
 * Two-level segregated fit (Masmano, Ripoll, Crespo and Real, 2004), with the boundaries beside the
 * memory: a piece knows its neighbours by handle.
 *
 * Unlike the original, a request first looks through a few pieces of its own class of sizes. The
 * original would go straight to the next class, where every piece fits, and so would pass by the
 * hole that a block of the same size left.
 */
#include <stdlib.h>

#include "base/check.h"
#include "tier/dram/alloc_internal.h"

enum yb_status
yb_dram_piece_reserve(struct yb_dram_allocator *allocator)
{
    struct yb_dram_piece *chunk;

    if (allocator->unused_count >= YB_DRAM_PIECES_PER_TAKE) {
        return YB_OK;
    }
    if (allocator->chunk_count == allocator->chunk_count_max) { /* A4 */
        return YB_NO_MEMORY;
    }
    chunk = calloc(YB_DRAM_CHUNK_PIECES, sizeof *chunk);
    if (chunk == NULL) {
        return YB_NO_MEMORY;
    }
    allocator->chunks[allocator->chunk_count] = chunk;
    for (uint32_t i = YB_DRAM_CHUNK_PIECES; i > 0; i--) {
        chunk[i - 1].next = allocator->unused;
        allocator->unused = allocator->chunk_count * YB_DRAM_CHUNK_PIECES + i - 1;
    }
    allocator->chunk_count++;
    allocator->unused_count += YB_DRAM_CHUNK_PIECES;
    return YB_OK;
}

uint32_t
yb_dram_piece_new(struct yb_dram_allocator *allocator, uint64_t offset, uint64_t length)
{
    uint32_t handle = allocator->unused;
    struct yb_dram_piece *piece;

    YB_ASSERT(allocator->unused_count > 0);
    piece = yb_dram_piece_at(allocator, handle);
    YB_ASSERT(piece->kind == YB_DRAM_UNUSED);
    allocator->unused = piece->next;
    allocator->unused_count--;
    *piece = (struct yb_dram_piece){
        .offset = offset,
        .length = length,
        .before = YB_DRAM_NONE,
        .after = YB_DRAM_NONE,
        .next = YB_DRAM_NONE,
        .previous = YB_DRAM_NONE,
        .home = YB_DRAM_NONE,
    };
    return handle;
}

void
yb_dram_piece_drop(struct yb_dram_allocator *allocator, uint32_t handle)
{
    struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);

    YB_ASSERT(piece->kind != YB_DRAM_UNUSED);
    *piece = (struct yb_dram_piece){.kind = YB_DRAM_UNUSED, .next = allocator->unused};
    allocator->unused = handle;
    allocator->unused_count++;
}

void
yb_dram_bins_init(struct yb_dram_bins *bins, uint32_t unit_bytes)
{
    *bins = (struct yb_dram_bins){.unit_bytes = unit_bytes};
    for (uint32_t f = 0; f < YB_DRAM_FIRST_COUNT; f++) {
        for (uint32_t s = 0; s < YB_DRAM_SECOND_COUNT; s++) {
            bins->heads[f][s] = YB_DRAM_NONE;
        }
    }
}

struct bin {
    uint32_t first;
    uint32_t second;
};

static struct bin
bin_of(const struct yb_dram_bins *bins, uint64_t length)
{
    uint64_t units = length / bins->unit_bytes;
    uint32_t log;

    YB_ASSERT(units > 0);
    if (units < YB_DRAM_SECOND_COUNT) {
        return (struct bin){0, (uint32_t)units};
    }
    log = 63 - (uint32_t)__builtin_clzll(units);
    return (struct bin){
        log - YB_DRAM_SECOND_BITS + 1,
        (uint32_t)(units >> (log - YB_DRAM_SECOND_BITS)) - YB_DRAM_SECOND_COUNT,
    };
}

void
yb_dram_bins_put(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins, uint32_t handle)
{
    struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);
    struct bin bin = bin_of(bins, piece->length);
    uint32_t *head = &bins->heads[bin.first][bin.second];

    piece->kind = YB_DRAM_FREE;
    piece->word = 0;
    piece->previous = YB_DRAM_NONE;
    piece->next = *head;
    if (*head != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, *head)->previous = handle;
    }
    *head = handle;
    bins->second_bits[bin.first] |= 1u << bin.second;
    bins->first_bits |= 1u << bin.first;
    bins->free_bytes += piece->length;
}

void
yb_dram_bins_take(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins, uint32_t handle)
{
    struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);
    struct bin bin = bin_of(bins, piece->length);

    YB_ASSERT(piece->kind == YB_DRAM_FREE);
    if (piece->next != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, piece->next)->previous = piece->previous;
    }
    if (piece->previous != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, piece->previous)->next = piece->next;
    } else {
        YB_ASSERT(bins->heads[bin.first][bin.second] == handle);
        bins->heads[bin.first][bin.second] = piece->next;
        if (piece->next == YB_DRAM_NONE) {
            bins->second_bits[bin.first] &= ~(1u << bin.second);
            if (bins->second_bits[bin.first] == 0) {
                bins->first_bits &= ~(1u << bin.first);
            }
        }
    }
    piece->next = YB_DRAM_NONE;
    piece->previous = YB_DRAM_NONE;
    bins->free_bytes -= piece->length;
}

/* Return the best of the first pieces in the request's own bin. */
static uint32_t
find_in_own(const struct yb_dram_allocator *allocator, const struct yb_dram_bins *bins,
            uint64_t length)
{
    struct bin bin = bin_of(bins, length);
    uint32_t handle = bins->heads[bin.first][bin.second];
    uint64_t best_length = UINT64_MAX;
    uint32_t best = YB_DRAM_NONE;

    for (uint32_t i = 0; i < YB_DRAM_LOOK && handle != YB_DRAM_NONE && best_length > length; i++) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);

        if (piece->length >= length && piece->length < best_length) {
            best = handle;
            best_length = piece->length;
        }
        handle = piece->next;
    }
    return best;
}

/* Return a piece of the next larger bin that has one. */
static uint32_t
find_above(const struct yb_dram_bins *bins, uint64_t length)
{
    struct bin bin = bin_of(bins, length);
    uint32_t second_bits = bin.second + 1 < YB_DRAM_SECOND_COUNT
                               ? bins->second_bits[bin.first] & ~0u << (bin.second + 1)
                               : 0;
    uint32_t first_bits = bins->first_bits & ~0u << (bin.first + 1);

    if (second_bits != 0) {
        return bins->heads[bin.first][__builtin_ctz(second_bits)];
    }
    if (first_bits == 0) {
        return YB_DRAM_NONE;
    }
    bin.first = (uint32_t)__builtin_ctz(first_bits);
    return bins->heads[bin.first][__builtin_ctz(bins->second_bits[bin.first])];
}

uint32_t
yb_dram_bins_cut(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins, uint64_t length)
{
    uint32_t handle = find_in_own(allocator, bins, length);
    struct yb_dram_piece *piece;

    YB_ASSERT(length % bins->unit_bytes == 0);
    if (handle == YB_DRAM_NONE) {
        handle = find_above(bins, length);
    }
    if (handle == YB_DRAM_NONE) {
        return YB_DRAM_NONE;
    }
    yb_dram_bins_take(allocator, bins, handle);
    piece = yb_dram_piece_at(allocator, handle);
    YB_ASSERT(piece->length >= length);
    if (piece->length > length) { /* The lower part keeps the handle. */
        uint32_t rest_handle =
            yb_dram_piece_new(allocator, piece->offset + length, piece->length - length);
        struct yb_dram_piece *rest = yb_dram_piece_at(allocator, rest_handle);

        rest->before = handle;
        rest->after = piece->after;
        rest->home = piece->home;
        rest->small = piece->small;
        if (piece->after != YB_DRAM_NONE) {
            yb_dram_piece_at(allocator, piece->after)->before = rest_handle;
        }
        piece->after = rest_handle;
        piece->length = length;
        yb_dram_bins_put(allocator, bins, rest_handle);
    }
    piece->kind = YB_DRAM_EXTENT;
    return handle;
}

/* Join a piece with its upper neighbour, whose record is dropped. Neither is in a bin. */
static void
join(struct yb_dram_allocator *allocator, uint32_t lower_handle, uint32_t upper_handle)
{
    struct yb_dram_piece *lower = yb_dram_piece_at(allocator, lower_handle);
    struct yb_dram_piece *upper = yb_dram_piece_at(allocator, upper_handle);

    YB_ASSERT(lower->offset + lower->length == upper->offset);
    lower->length += upper->length;
    lower->after = upper->after;
    if (upper->after != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, upper->after)->before = lower_handle;
    }
    yb_dram_piece_drop(allocator, upper_handle);
}

static bool
is_free(const struct yb_dram_allocator *allocator, uint32_t handle)
{
    return handle != YB_DRAM_NONE && yb_dram_piece_at(allocator, handle)->kind == YB_DRAM_FREE;
}

uint32_t
yb_dram_bins_give(struct yb_dram_allocator *allocator, struct yb_dram_bins *bins, uint32_t handle)
{
    struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);
    uint32_t before = piece->before;
    uint32_t after = piece->after;

    YB_ASSERT(piece->kind != YB_DRAM_FREE && piece->kind != YB_DRAM_UNUSED);
    if (is_free(allocator, after)) { /* A2 */
        yb_dram_bins_take(allocator, bins, after);
        join(allocator, handle, after);
    }
    if (is_free(allocator, before)) {
        yb_dram_bins_take(allocator, bins, before);
        join(allocator, before, handle);
        handle = before;
    }
    yb_dram_bins_put(allocator, bins, handle);
    return handle;
}

uint64_t
yb_dram_bins_bytes_max(const struct yb_dram_allocator *allocator, const struct yb_dram_bins *bins)
{
    uint64_t longest = 0;
    uint32_t first, second, handle;

    if (bins->first_bits == 0) {
        return 0;
    }
    first = 31 - (uint32_t)__builtin_clz(bins->first_bits);
    second = 31 - (uint32_t)__builtin_clz(bins->second_bits[first]);
    handle = bins->heads[first][second];
    for (uint32_t i = 0; i < YB_DRAM_LOOK && handle != YB_DRAM_NONE; i++) {
        const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);

        longest = piece->length > longest ? piece->length : longest;
        handle = piece->next;
    }
    return longest;
}
