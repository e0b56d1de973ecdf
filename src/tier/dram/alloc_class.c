/* SPDX-License-Identifier: Apache-2.0
 *
 * Which sizes are common, and slabs for them.
 */
#include "base/check.h"
#include "tier/dram/alloc_internal.h"

static uint64_t
counted(const struct yb_dram_allocator *allocator, uint64_t length)
{
    for (uint32_t i = 0; i < YB_DRAM_COUNTERS; i++) {
        if (allocator->counters[i].length == length) {
            return allocator->counters[i].count;
        }
    }
    return 0;
}

static struct yb_dram_class *
class_find(struct yb_dram_allocator *allocator, uint64_t cell_bytes)
{
    for (uint32_t i = 0; i < YB_DRAM_CLASSES_MAX; i++) {
        if (allocator->classes[i].cell_bytes == cell_bytes) {
            return &allocator->classes[i];
        }
    }
    return NULL;
}

static void
learn(struct yb_dram_allocator *allocator, uint64_t length)
{
    struct yb_dram_class *class = class_find(allocator, length);
    uint64_t cell_count = allocator->slab_bytes_max / length;

    if (cell_count < YB_DRAM_CELLS_MIN) {
        return;
    }
    if (class == NULL) {
        class = class_find(allocator, 0);
        if (class == NULL) {
            return; /* All are in use; one that is no longer common ends some day. */
        }
        *class = (struct yb_dram_class){
            .cell_bytes = length,
            .cell_count =
                (uint8_t)(cell_count < YB_DRAM_CELLS_MAX ? cell_count : YB_DRAM_CELLS_MAX),
        };
        for (uint32_t i = 0; i < YB_DRAM_FULLNESS_COUNT; i++) {
            class->slabs[i] = YB_DRAM_NONE;
        }
    }
    class->learned = true;
}

/* A class that is over lives on until its last slab is empty. */
static void
end_if_over(struct yb_dram_class *class)
{
    if (!class->learned && class->slab_count == 0) {
        *class = (struct yb_dram_class){0};
    }
}

static void
review(struct yb_dram_allocator *allocator)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < YB_DRAM_COUNTERS; i++) {
        total += allocator->counters[i].count;
    }
    for (uint32_t i = 0; i < YB_DRAM_CLASSES_MAX; i++) {
        struct yb_dram_class *class = &allocator->classes[i];

        if (class->cell_bytes != 0 &&
            counted(allocator, class->cell_bytes) < total / YB_DRAM_UNLEARN_PART) {
            class->learned = false;
            end_if_over(class);
        }
    }
    for (uint32_t i = 0; i < YB_DRAM_COUNTERS; i++) {
        struct yb_dram_counter *counter = &allocator->counters[i];

        if (counter->length != 0 && counter->count >= total / YB_DRAM_LEARN_PART) {
            learn(allocator, counter->length);
        }
        counter->count /= 2;
    }
}

void
yb_dram_class_count(struct yb_dram_allocator *allocator, uint64_t length)
{
    struct yb_dram_counter *counter = &allocator->counters[0];

    for (uint32_t i = 0; i < YB_DRAM_COUNTERS; i++) {
        if (allocator->counters[i].length == length) {
            counter = &allocator->counters[i];
            break;
        }
        if (allocator->counters[i].count < counter->count) {
            counter = &allocator->counters[i];
        }
    }
    counter->length = length; /* Who takes over a counter goes on from where it stood. */
    counter->count++;
    allocator->takes_since_review++;
    if (allocator->takes_since_review >= YB_DRAM_REVIEW_TAKES) {
        allocator->takes_since_review = 0;
        review(allocator);
    }
}

uint32_t
yb_dram_class_fullness(const struct yb_dram_piece *slab)
{
    uint32_t free_count = (uint32_t)__builtin_popcountll(slab->free_cells);

    YB_ASSERT(free_count > 0);
    return (free_count - 1) * YB_DRAM_FULLNESS_COUNT / slab->cell;
}

static void
list_put(struct yb_dram_allocator *allocator, uint32_t handle)
{
    struct yb_dram_piece *slab = yb_dram_piece_at(allocator, handle);
    uint32_t *head = &allocator->classes[slab->class_index].slabs[yb_dram_class_fullness(slab)];

    slab->previous = YB_DRAM_NONE;
    slab->next = *head;
    if (*head != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, *head)->previous = handle;
    }
    *head = handle;
}

static void
list_take(struct yb_dram_allocator *allocator, uint32_t handle)
{
    struct yb_dram_piece *slab = yb_dram_piece_at(allocator, handle);

    if (slab->next != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, slab->next)->previous = slab->previous;
    }
    if (slab->previous != YB_DRAM_NONE) {
        yb_dram_piece_at(allocator, slab->previous)->next = slab->next;
    } else {
        allocator->classes[slab->class_index].slabs[yb_dram_class_fullness(slab)] = slab->next;
    }
    slab->next = YB_DRAM_NONE;
    slab->previous = YB_DRAM_NONE;
}

/* Change which cells are free, and the list with it; a full slab is in none. */
static void
set_free_cells(struct yb_dram_allocator *allocator, uint32_t handle, uint64_t free_cells)
{
    struct yb_dram_piece *slab = yb_dram_piece_at(allocator, handle);

    if (slab->free_cells != 0) {
        list_take(allocator, handle);
    }
    slab->free_cells = free_cells;
    if (free_cells != 0) {
        list_put(allocator, handle);
    }
}

static uint64_t
all_cells(uint32_t cell_count)
{
    return cell_count == 64 ? UINT64_MAX : (1ull << cell_count) - 1;
}

static uint32_t
slab_new(struct yb_dram_allocator *allocator, struct yb_dram_class *class)
{
    uint64_t bytes = class->cell_bytes * class->cell_count;
    uint32_t handle = yb_dram_bins_cut(allocator, &allocator->large,
                                       (bytes + YB_DRAM_PAGE_BYTES - 1) / YB_DRAM_PAGE_BYTES *
                                           YB_DRAM_PAGE_BYTES);
    struct yb_dram_piece *slab;

    if (handle == YB_DRAM_NONE) {
        return YB_DRAM_NONE;
    }
    slab = yb_dram_piece_at(allocator, handle);
    slab->kind = YB_DRAM_SLAB;
    slab->class_index = (uint8_t)(class - allocator->classes);
    slab->cell = class->cell_count;
    slab->free_cells = 0;
    set_free_cells(allocator, handle, all_cells(slab->cell));
    class->slab_count++;
    allocator->slab_count++;
    return handle;
}

uint32_t
yb_dram_class_take(struct yb_dram_allocator *allocator, uint64_t length)
{
    struct yb_dram_class *class = class_find(allocator, length);
    uint32_t slab_handle = YB_DRAM_NONE;
    struct yb_dram_piece *slab, *piece;
    uint32_t handle, cell;

    if (class == NULL) {
        return YB_DRAM_NONE;
    }
    for (uint32_t i = 0; i < YB_DRAM_FULLNESS_COUNT && slab_handle == YB_DRAM_NONE; i++) {
        slab_handle = class->slabs[i]; /* The fullest first, so that others become empty. */
    }
    if (slab_handle == YB_DRAM_NONE && class->learned) {
        slab_handle = slab_new(allocator, class);
    }
    if (slab_handle == YB_DRAM_NONE) {
        return YB_DRAM_NONE;
    }
    slab = yb_dram_piece_at(allocator, slab_handle);
    cell = (uint32_t)__builtin_ctzll(slab->free_cells);
    set_free_cells(allocator, slab_handle, slab->free_cells & ~(1ull << cell));
    handle = yb_dram_piece_new(allocator, slab->offset + cell * class->cell_bytes, length);
    piece = yb_dram_piece_at(allocator, handle);
    piece->kind = YB_DRAM_CELL;
    piece->home = slab_handle;
    piece->cell = (uint8_t)cell;
    return handle;
}

void
yb_dram_class_give(struct yb_dram_allocator *allocator, uint32_t handle)
{
    const struct yb_dram_piece *piece = yb_dram_piece_at(allocator, handle);
    uint32_t slab_handle = piece->home;
    struct yb_dram_piece *slab = yb_dram_piece_at(allocator, slab_handle);
    struct yb_dram_class *class = &allocator->classes[slab->class_index];

    YB_ASSERT(slab->kind == YB_DRAM_SLAB);
    YB_ASSERT((slab->free_cells & 1ull << piece->cell) == 0);
    set_free_cells(allocator, slab_handle, slab->free_cells | 1ull << piece->cell);
    yb_dram_piece_drop(allocator, handle);
    if (slab->free_cells == all_cells(slab->cell)) {
        set_free_cells(allocator, slab_handle, 0);
        (void)yb_dram_bins_give(allocator, &allocator->large, slab_handle);
        allocator->slab_count--;
        class->slab_count--;
        end_if_over(class);
    }
}
