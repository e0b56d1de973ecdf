/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/process.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lock.h"

#define PROCESS_MAGIC 0x6d656d70u

/* The record of this process (O1), under the lock above it. Engines share nothing that could hold
 * it, and page-locked memory and the contexts of devices are the process's by their nature: */
/* lint: allow, page-locked memory is counted once per process, see above */
static struct yb_lock lock = YB_LOCK_INIT(YB_LOCK_MEMORY);
/* lint: allow, what the lock protects: page-locked memory is counted once per process */
static struct yb_memory_process *current;

/* ---- drivers -------------------------------------------------------------------------------- */

static void
lose_drivers(struct yb_memory_process *process)
{
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        if (process->drivers[kind] != NULL) {
            yb_memory_kinds[kind]->lose(&process->drivers[kind]);
        }
    }
}

/* Find the drivers, and add up their sentences. Fails with NO_MEMORY only. */
static enum yb_status
find_drivers(struct yb_memory_process *process)
{
    size_t used = 0;

    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        char why[YB_MEMORY_WHY_BYTES] = "";
        enum yb_status status;

        if (yb_memory_kinds[kind]->find == NULL) {
            continue;
        }
        status = yb_memory_kinds[kind]->find(&process->drivers[kind], why, sizeof(why));
        if (status == YB_NO_MEMORY) {
            return status;
        }
        if (used < sizeof(process->why)) {
            used += (size_t)snprintf(process->why + used, sizeof(process->why) - used, "%s%s",
                                     used == 0 ? "" : "; ", why);
        }
    }
    return YB_OK;
}

/* ---- the record ----------------------------------------------------------------------------- */

/* End all that the last reference leaves behind. */
static void
destroy(struct yb_memory_process *process)
{
    YB_ASSERT_OBJ(process, PROCESS_MAGIC);
    YB_ASSERT(process->references == 0);
    while (process->blocks != NULL) {
        struct yb_memory_block *block = process->blocks;

        YB_ASSERT(block->ranges == NULL);
        if (atomic_load(&block->lock_state) == YB_MEMORY_LOCK_DONE) {
            struct yb_memory_place place = block->lock_place;

            yb_memory_kinds[place.kind]->page_unlock(process->drivers[place.kind], place.index,
                                                     block->bytes);
        }
        YB_ASSERT(munmap(block->bytes, block->length) == 0);
        process->blocks = block->next;
        free(block);
    }
    lose_drivers(process);
    process->magic = 0;
    free(process);
}

/* Make a record that nobody has found yet. NULL: no memory. */
static struct yb_memory_process *
create(void)
{
    struct yb_memory_process *process = calloc(1, sizeof(*process));

    if (process == NULL) {
        return NULL;
    }
    process->magic = PROCESS_MAGIC;
    process->pid = getpid();
    if (find_drivers(process) != YB_OK) {
        destroy(process);
        return NULL;
    }
    return process;
}

/* Count one more user of the record of this process; NULL: there is none. */
static struct yb_memory_process *
find_locked(void)
{
    yb_lock_assert_held(&lock);
    if (current == NULL || current->pid != getpid()) {
        return NULL;
    }
    current->references++;
    return current;
}

enum yb_status
yb_memory_process_ref(struct yb_memory_process **process_out)
{
    struct yb_memory_process *process;
    struct yb_memory_process *made = NULL;

    yb_lock_acquire(&lock);
    process = find_locked();
    yb_lock_release(&lock);
    if (process == NULL) {
        made = create(); /* Not under the lock: drivers take their time. */
        if (made == NULL) {
            return YB_NO_MEMORY;
        }
        yb_lock_acquire(&lock);
        process = find_locked(); /* Another thread may have been faster. */
        if (process == NULL) {
            process = made;
            process->references = 1;
            current = process;
            made = NULL;
        }
        yb_lock_release(&lock);
    }
    if (made != NULL) {
        destroy(made);
    }
    *process_out = process;
    return YB_OK;
}

void
yb_memory_process_unref(struct yb_memory_process **process_ref)
{
    struct yb_memory_process *process = *process_ref;
    bool last;

    YB_ASSERT_OBJ(process, PROCESS_MAGIC);
    *process_ref = NULL;
    yb_lock_acquire(&lock);
    YB_ASSERT(process->references > 0);
    last = --process->references == 0;
    if (last && current == process) {
        current = NULL;
    }
    yb_lock_release(&lock);
    if (last) {
        destroy(process);
    }
}

/* ---- neighbours ----------------------------------------------------------------------------- */

void
yb_memory_process_publish(struct yb_memory_process *process, struct yb_memory_neighbour *neighbour)
{
    yb_lock_acquire(&lock);
    neighbour->next = process->neighbours;
    process->neighbours = neighbour;
    yb_lock_release(&lock);
}

void
yb_memory_process_withdraw(struct yb_memory_process *process, struct yb_memory_neighbour *neighbour)
{
    struct yb_memory_neighbour **link = &process->neighbours;

    yb_lock_acquire(&lock);
    while (*link != NULL && *link != neighbour) {
        link = &(*link)->next;
    }
    if (*link != NULL) {
        *link = neighbour->next;
    }
    yb_lock_release(&lock);
}

struct yb_memory_neighbour *
yb_memory_process_find(struct yb_memory_process *process, struct yb_id identity)
{
    struct yb_memory_neighbour *neighbour;

    yb_lock_acquire(&lock);
    neighbour = process->neighbours;
    while (neighbour != NULL && !yb_id_equal(neighbour->identity, identity)) {
        neighbour = neighbour->next;
    }
    if (neighbour != NULL) {
        /* Under the lock: after withdraw nobody gets hold of it any more. */
        atomic_fetch_add(&neighbour->holds, 1);
    }
    yb_lock_release(&lock);
    return neighbour;
}

/* ---- blocks and ranges ---------------------------------------------------------------------- */

/* Map a block. It gets pages when it is used, or page-locked. NULL: no memory. */
static struct yb_memory_block *
create_block(uint64_t length)
{
    struct yb_memory_block *block = calloc(1, sizeof(*block));
    void *bytes;

    if (block == NULL) {
        return NULL;
    }
    bytes = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                 -1, 0);
    if (bytes == MAP_FAILED) {
        free(block);
        return NULL;
    }
    /* A child's copy-on-write would move the pages away under the device. */
    YB_ASSERT(madvise(bytes, length, MADV_DONTFORK) == 0);
    block->bytes = bytes;
    block->length = length;
    return block;
}

/* Take the first gap of a block that is large enough. Returns false: there is none. */
static bool
take_gap_locked(struct yb_memory_block *block, uint64_t length, struct yb_memory_range *range)
{
    struct yb_memory_range **link = &block->ranges;
    uint8_t *gap = block->bytes;

    yb_lock_assert_held(&lock);
    while (*link != NULL && (uint64_t)((*link)->bytes - gap) < length) {
        gap = (*link)->bytes + (*link)->length;
        link = &(*link)->next;
    }
    if (*link == NULL && (uint64_t)(block->bytes + block->length - gap) < length) {
        return false;
    }
    *range = (struct yb_memory_range){*link, block, gap, length}; /* O3 */
    *link = range;
    return true;
}

enum yb_status
yb_memory_range_take(struct yb_memory_process *process, uint64_t length,
                     struct yb_memory_range *range)
{
    struct yb_memory_block *block;
    bool taken = false;

    YB_ASSERT_OBJ(process, PROCESS_MAGIC);
    YB_ASSERT(length > 0);
    yb_lock_acquire(&lock);
    for (block = process->blocks; block != NULL && !taken; block = block->next) {
        taken = take_gap_locked(block, length, range);
    }
    if (!taken) {
        block = create_block(length > YB_MEMORY_BLOCK_BYTES ? length : YB_MEMORY_BLOCK_BYTES);
        if (block != NULL) {
            block->next = process->blocks;
            process->blocks = block;
            taken = take_gap_locked(block, length, range);
        }
    }
    yb_lock_release(&lock);
    return taken ? YB_OK : YB_NO_MEMORY;
}

void
yb_memory_range_give(struct yb_memory_range *range)
{
    struct yb_memory_range **link = &range->block->ranges;

    yb_lock_acquire(&lock);
    while (*link != range) {
        link = &(*link)->next;
    }
    *link = range->next;
    yb_lock_release(&lock);
    *range = (struct yb_memory_range){0};
}

void
yb_memory_range_lock(struct yb_memory_process *process, const struct yb_memory_range *range,
                     struct yb_memory_place place)
{
    struct yb_memory_block *block = range->block;
    uint32_t expected = YB_MEMORY_LOCK_NOT_YET;
    enum yb_status status;

    YB_ASSERT_OBJ(process, PROCESS_MAGIC);
    if (block == NULL ||
        atomic_load_explicit(&block->lock_state, memory_order_relaxed) != YB_MEMORY_LOCK_NOT_YET ||
        !atomic_compare_exchange_strong(&block->lock_state, &expected, YB_MEMORY_LOCK_BEGUN)) {
        return; /* O2 */
    }
    status = yb_memory_kinds[place.kind]->page_lock(process->drivers[place.kind], place.index,
                                                    block->bytes, block->length);
    atomic_fetch_add_explicit(&process->page_locks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&process->page_locks_failed, status != YB_OK, memory_order_relaxed);
    block->lock_place = place;
    atomic_store(&block->lock_state, status == YB_OK ? YB_MEMORY_LOCK_DONE : YB_MEMORY_LOCK_FAILED);
}
