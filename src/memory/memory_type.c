/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/memory_type.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "memory/memory_internal.h"
#include "memory/process.h"

#define MEMORY_MAGIC 0x6d656d74u
#define QUEUE_MAGIC  0x6d656d71u

#define QUEUES_MAX      1024u
#define SLICES_MAX      4096u
#define SLICE_BYTES_MAX (1u << 30)
#define SLICE_UNIT      4096u

static const struct yb_memory_ops host_ops = {.name = "host"};

/* One row per kind of memory, in the order of enum yb_memory_kind. */
const struct yb_memory_ops *const yb_memory_kinds[YB_MEMORY_KINDS] = {
    [YB_MEMORY_HOST] = &host_ops,
    [YB_MEMORY_CUDA] = &yb_memory_cuda,
};

struct yb_memory {
    uint32_t magic;
    struct yb_memory_staging staging;  /* Immutable. */
    struct yb_memory_process *process; /* Counted. */
    struct yb_memory_range arena;      /* Immutable, but for the list it is in. */
    _Atomic bool *shares;              /* Taken by a queue's create, given by its destroy. */

    /* Counters: relaxed, nothing is ordered by them. */
    _Atomic uint64_t copies;
    _Atomic uint64_t copied_bytes;
    _Atomic uint64_t failures;
};

struct yb_memory_queue {
    uint32_t magic;
    uint32_t share; /* Immutable: which part of the arena. */
    struct yb_memory *memory;
    struct yb_memory_lane *lanes[YB_MEMORY_KINDS];
    uint8_t *slices; /* Immutable: the first; NULL: none. */
    uint32_t *free;  /* Numbers of slices, a stack. */
    bool *taken;     /* Per slice: to catch one that is given twice. */
    uint32_t free_count;
    uint32_t pending;
    bool closing;
};

static void
count(_Atomic uint64_t *counter, uint64_t by)
{
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

static bool
staging_is_valid(const struct yb_memory_staging *staging)
{
    return staging->queues > 0 && staging->queues <= QUEUES_MAX && staging->slices <= SLICES_MAX &&
           (staging->slices == 0 ||
            (staging->slice_bytes > 0 && staging->slice_bytes <= SLICE_BYTES_MAX &&
             staging->slice_bytes % SLICE_UNIT == 0));
}

/* Reserve the staging memory of all queues in one range. */
static enum yb_status
make_arena(struct yb_memory *memory)
{
    const struct yb_memory_staging *staging = &memory->staging;
    uint64_t bytes = (uint64_t)staging->queues * staging->slices * staging->slice_bytes;

    if (bytes == 0 || yb_memory_device_count(memory) == 0) {
        return YB_OK;
    }
    return yb_memory_range_take(memory->process, bytes, &memory->arena);
}

enum yb_status
yb_memory_create(const struct yb_memory_staging *staging, struct yb_memory **memory_out,
                 char *why_out, uint32_t why_bytes)
{
    struct yb_memory *memory;
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(staging != NULL && memory_out != NULL);
    if (!staging_is_valid(staging)) {
        return YB_INVALID;
    }
    memory = calloc(1, sizeof(*memory));
    if (memory == NULL) {
        goto err;
    }
    memory->magic = MEMORY_MAGIC;
    memory->staging = *staging;
    memory->shares = calloc(staging->queues, sizeof(*memory->shares));
    if (memory->shares == NULL) {
        goto err_free_memory;
    }
    status = yb_memory_process_ref(&memory->process);
    if (status != YB_OK) {
        goto err_free_shares;
    }
    status = make_arena(memory);
    if (status != YB_OK) {
        goto err_unref_process;
    }
    if (why_out != NULL && why_bytes > 0) {
        snprintf(why_out, why_bytes, "%s", memory->process->why);
    }
    *memory_out = memory;
    return YB_OK;

err_unref_process:
    yb_memory_process_unref(&memory->process);
err_free_shares:
    free((void *)(uintptr_t)memory->shares);
err_free_memory:
    memory->magic = 0;
    free(memory);
err:
    return status;
}

void
yb_memory_destroy(struct yb_memory **memory_ref)
{
    struct yb_memory *memory = *memory_ref;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    *memory_ref = NULL;
    for (uint32_t i = 0; i < memory->staging.queues; i++) {
        YB_ASSERT(!atomic_load(&memory->shares[i]));
    }
    if (memory->arena.bytes != NULL) {
        yb_memory_range_give(&memory->arena);
    }
    yb_memory_process_unref(&memory->process);
    memory->magic = 0;
    free((void *)(uintptr_t)memory->shares);
    free(memory);
}

struct yb_memory_place
yb_memory_probe(struct yb_memory *memory, const void *address)
{
    struct yb_memory_place place = {YB_MEMORY_HOST, 0};

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        uint32_t device;

        if (memory->process->drivers[kind] != NULL &&
            yb_memory_kinds[kind]->probe(memory->process->drivers[kind], address, &device)) {
            place = (struct yb_memory_place){kind, device};
            break;
        }
    }
    return place;
}

enum yb_status
yb_memory_check(const void *address, uint64_t length)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)address;
    uintptr_t start = first - first % page;
    enum yb_status status = YB_OK;
    int ends[2];

    if (length == 0) {
        return YB_OK;
    }
    /* The first call looks at mappings only and writes nothing back; the kernel reads the ends. */
    if (first == 0 || length > UINTPTR_MAX - first ||
        msync((void *)start, first - start + length, MS_ASYNC) != 0) {
        return YB_FAULT;
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        return YB_NO_MEMORY;
    }
    if (write(ends[1], address, 1) != 1 ||
        write(ends[1], (const uint8_t *)address + length - 1, 1) != 1) {
        status = YB_FAULT;
    }
    close(ends[0]);
    close(ends[1]);
    return status;
}

bool
yb_memory_has(const struct yb_memory *memory, enum yb_memory_kind kind)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    return kind == YB_MEMORY_HOST ||
           ((uint32_t)kind < YB_MEMORY_KINDS && memory->process->drivers[kind] != NULL);
}

uint32_t
yb_memory_device_count(const struct yb_memory *memory)
{
    uint32_t devices = 0;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        if (memory->process->drivers[kind] != NULL) {
            devices += yb_memory_kinds[kind]->devices(memory->process->drivers[kind]);
        }
    }
    return devices;
}

const char *
yb_memory_kind_name(uint32_t kind)
{
    return kind < YB_MEMORY_KINDS ? yb_memory_kinds[kind]->name : "?";
}

struct yb_memory_counts
yb_memory_counts(const struct yb_memory *memory)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    return (struct yb_memory_counts){
        .page_locks = atomic_load_explicit(&memory->process->page_locks, memory_order_relaxed),
        .page_locks_failed =
            atomic_load_explicit(&memory->process->page_locks_failed, memory_order_relaxed),
        .copies = atomic_load_explicit(&memory->copies, memory_order_relaxed),
        .copied_bytes = atomic_load_explicit(&memory->copied_bytes, memory_order_relaxed),
        .failures = atomic_load_explicit(&memory->failures, memory_order_relaxed),
    };
}

void
yb_memory_describe(struct yb_memory *memory, char *text_out, uint32_t text_bytes)
{
    uint32_t lock_state = YB_MEMORY_LOCK_NOT_YET;
    unsigned long long bytes = 0;
    const char *why;
    struct rlimit limit;
    char allowed[32] = "unlimited";

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    why = memory->process->why;
    if (memory->arena.block != NULL) {
        bytes = memory->arena.block->length;
        lock_state = atomic_load(&memory->arena.block->lock_state);
    }
    if (lock_state == YB_MEMORY_LOCK_DONE) {
        snprintf(text_out, text_bytes, "%s; %llu bytes of staging memory are page-locked", why,
                 bytes);
        return;
    }
    if (lock_state != YB_MEMORY_LOCK_FAILED) {
        snprintf(text_out, text_bytes, "%s", why);
        return;
    }
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        snprintf(allowed, sizeof(allowed), "%llu bytes", (unsigned long long)limit.rlim_cur);
    }
    snprintf(text_out, text_bytes,
             "%s; %llu bytes of staging memory could not be page-locked, which makes copies "
             "slower: the limit of locked memory (ulimit -l) is %s; raise it, or ask for less",
             why, bytes, allowed);
}

/* Whether `place` is here: host memory, or a device of a driver that was found. */
static bool
is_here(const struct yb_memory *memory, struct yb_memory_place place)
{
    return place.kind == YB_MEMORY_HOST ||
           (place.kind < YB_MEMORY_KINDS && memory->process->drivers[place.kind] != NULL &&
            place.index <
                yb_memory_kinds[place.kind]->devices(memory->process->drivers[place.kind]));
}

enum yb_status
yb_memory_open(struct yb_memory *memory, struct yb_memory_place place)
{
    enum yb_status status;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    if (!is_here(memory, place)) {
        return YB_UNSUPPORTED;
    }
    if (place.kind == YB_MEMORY_HOST) {
        return YB_OK;
    }
    status = yb_memory_kinds[place.kind]->open(memory->process->drivers[place.kind], place.index);
    if (status == YB_OK) {
        yb_memory_range_lock(memory->process, &memory->arena, place);
    }
    return status;
}

bool
yb_memory_peers(struct yb_memory *memory, struct yb_memory_place a, struct yb_memory_place b)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    return a.kind != YB_MEMORY_HOST && a.kind == b.kind && is_here(memory, a) &&
           is_here(memory, b) &&
           yb_memory_kinds[a.kind]->peers(memory->process->drivers[a.kind], a.index, b.index);
}

void
yb_memory_publish(struct yb_memory *memory, struct yb_memory_neighbour *neighbour)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    yb_memory_process_publish(memory->process, neighbour);
}

void
yb_memory_withdraw(struct yb_memory *memory, struct yb_memory_neighbour *neighbour)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    yb_memory_process_withdraw(memory->process, neighbour);
}

struct yb_memory_neighbour *
yb_memory_find_neighbour(struct yb_memory *memory, struct yb_id identity)
{
    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    return yb_memory_process_find(memory->process, identity);
}

void
yb_memory_let_go(struct yb_memory_neighbour *neighbour)
{
    uint32_t holds = atomic_fetch_sub(&neighbour->holds, 1);

    YB_ASSERT(holds > 0);
}

enum yb_status
yb_memory_alloc(struct yb_memory *memory, struct yb_memory_place place, uint64_t length,
                void **base_out)
{
    enum yb_status status;
    void *base;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    YB_ASSERT(base_out != NULL);
    if (length == 0) {
        return YB_INVALID;
    }
    status = yb_memory_open(memory, place);
    if (status != YB_OK) {
        return status;
    }
    if (place.kind != YB_MEMORY_HOST) {
        return yb_memory_kinds[place.kind]->alloc(memory->process->drivers[place.kind], place.index,
                                                  length, base_out);
    }
    base = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return YB_NO_MEMORY;
    }
    *base_out = base;
    return YB_OK;
}

void
yb_memory_free(struct yb_memory *memory, struct yb_memory_place place, void **base_ref,
               uint64_t length)
{
    void *base = *base_ref;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    YB_ASSERT(base != NULL && is_here(memory, place));
    *base_ref = NULL;
    if (place.kind == YB_MEMORY_HOST) {
        YB_ASSERT(munmap(base, length) == 0);
    } else {
        yb_memory_kinds[place.kind]->free(memory->process->drivers[place.kind], place.index, base);
    }
}

/* Take a share of the staging memory. UINT32_MAX: all are taken. */
static uint32_t
take_share(struct yb_memory *memory)
{
    for (uint32_t i = 0; i < memory->staging.queues; i++) {
        bool expected = false;

        if (atomic_compare_exchange_strong(&memory->shares[i], &expected, true)) {
            return i;
        }
    }
    return UINT32_MAX;
}

static enum yb_status
create_lanes(struct yb_memory_queue *queue)
{
    enum yb_status status = YB_OK;

    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS && status == YB_OK; kind++) {
        if (queue->memory->process->drivers[kind] != NULL) {
            status = yb_memory_kinds[kind]->lane_create(queue->memory->process->drivers[kind],
                                                        &queue->lanes[kind]);
        }
    }
    return status;
}

static void
destroy_lanes(struct yb_memory_queue *queue)
{
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        if (queue->lanes[kind] != NULL) {
            yb_memory_kinds[kind]->lane_destroy(&queue->lanes[kind]);
        }
    }
}

/* Lay out the queue's slices; false: no memory for their bookkeeping. */
static bool
create_slices(struct yb_memory_queue *queue)
{
    const struct yb_memory *memory = queue->memory;
    uint32_t slices = memory->staging.slices;

    if (memory->arena.bytes == NULL) {
        return true;
    }
    queue->free = calloc(slices, sizeof(*queue->free));
    queue->taken = calloc(slices, sizeof(*queue->taken));
    if (queue->free == NULL || queue->taken == NULL) {
        return false;
    }
    queue->slices =
        memory->arena.bytes + (uint64_t)queue->share * slices * memory->staging.slice_bytes;
    for (uint32_t i = 0; i < slices; i++) {
        queue->free[i] = slices - 1 - i;
    }
    queue->free_count = slices;
    return true;
}

enum yb_status
yb_memory_queue_create(struct yb_memory *memory, struct yb_memory_queue **queue_out)
{
    struct yb_memory_queue *queue;
    enum yb_status status = YB_NO_MEMORY;
    uint32_t share;

    YB_ASSERT_OBJ(memory, MEMORY_MAGIC);
    YB_ASSERT(queue_out != NULL);
    share = take_share(memory);
    if (share == UINT32_MAX) {
        return YB_AGAIN;
    }
    queue = calloc(1, sizeof(*queue));
    if (queue == NULL) {
        goto err_give_share;
    }
    queue->memory = memory;
    queue->share = share;
    if (!create_slices(queue)) {
        goto err_free_queue;
    }
    status = create_lanes(queue);
    if (status != YB_OK) {
        goto err_free_queue;
    }
    queue->magic = QUEUE_MAGIC;
    *queue_out = queue;
    return YB_OK;

err_free_queue:
    destroy_lanes(queue);
    free(queue->taken);
    free(queue->free);
    free(queue);
err_give_share:
    atomic_store(&memory->shares[share], false);
    return status;
}

void
yb_memory_queue_destroy(struct yb_memory_queue **queue_ref)
{
    struct yb_memory_queue *queue = *queue_ref;
    struct yb_memory *memory;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    memory = queue->memory;
    *queue_ref = NULL;
    queue->closing = true;
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        if (queue->lanes[kind] != NULL) {
            yb_memory_kinds[kind]->wait(queue->lanes[kind]);
        }
    }
    yb_memory_poll(queue);
    YB_ASSERT(queue->pending == 0);
    YB_ASSERT(queue->slices == NULL || queue->free_count == memory->staging.slices);
    destroy_lanes(queue);
    atomic_store(&memory->shares[queue->share], false);
    queue->magic = 0;
    free(queue->taken);
    free(queue->free);
    free(queue);
}

void *
yb_memory_staging_take(struct yb_memory_queue *queue)
{
    uint32_t slice;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    if (queue->free_count == 0) {
        return NULL;
    }
    slice = queue->free[--queue->free_count];
    queue->taken[slice] = true;
    return queue->slices + (uint64_t)slice * queue->memory->staging.slice_bytes;
}

void
yb_memory_staging_give(struct yb_memory_queue *queue, void *bytes)
{
    uint64_t offset;
    uint32_t slice;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    YB_ASSERT(queue->slices != NULL);
    offset = (uint64_t)((uintptr_t)bytes - (uintptr_t)queue->slices);
    YB_ASSERT(offset % queue->memory->staging.slice_bytes == 0);
    YB_ASSERT(offset / queue->memory->staging.slice_bytes < queue->memory->staging.slices);
    slice = (uint32_t)(offset / queue->memory->staging.slice_bytes);
    YB_ASSERT(queue->taken[slice]);
    queue->taken[slice] = false;
    queue->free[queue->free_count++] = slice;
}

uint32_t
yb_memory_staging_bytes(const struct yb_memory_queue *queue)
{
    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    return queue->slices == NULL ? 0 : queue->memory->staging.slice_bytes;
}

/* Make both sides ready and hand the copy to the driver. */
static enum yb_status
start_on_driver(struct yb_memory_queue *queue, struct yb_memory_copy *copy)
{
    bool to_device = copy->to_place.kind != YB_MEMORY_HOST;
    uint32_t kind = to_device ? copy->to_place.kind : copy->from_place.kind;
    enum yb_status status;

    if (to_device && copy->from_place.kind != YB_MEMORY_HOST && copy->from_place.kind != kind) {
        return YB_UNSUPPORTED; /* Between two drivers there is no way but through the host. */
    }
    status = yb_memory_open(queue->memory, copy->to_place);
    if (status == YB_OK) {
        status = yb_memory_open(queue->memory, copy->from_place);
    }
    return status == YB_OK ? yb_memory_kinds[kind]->start(queue->lanes[kind], copy) : status;
}

enum yb_status
yb_memory_copy_start(struct yb_memory_queue *queue, struct yb_memory_copy *copy)
{
    enum yb_status status;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    YB_ASSERT(copy->done != NULL);
    if (queue->closing) {
        return YB_CLOSED;
    }
    if (copy->length == 0 ||
        (copy->to_place.kind == YB_MEMORY_HOST && copy->from_place.kind == YB_MEMORY_HOST)) {
        return YB_INVALID;
    }
    if (!is_here(queue->memory, copy->to_place) || !is_here(queue->memory, copy->from_place)) {
        return YB_UNSUPPORTED;
    }
    if (queue->pending >= YB_MEMORY_COPIES_MAX) {
        return YB_AGAIN;
    }
    status = start_on_driver(queue, copy);
    if (status == YB_OK) {
        queue->pending++;
        count(&queue->memory->copies, 1);
    } else {
        count(&queue->memory->failures, 1);
    }
    return status;
}

uint32_t
yb_memory_poll(struct yb_memory_queue *queue)
{
    uint32_t done = 0;
    uint32_t budget;

    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    budget = queue->pending; /* What a `done` starts anew waits for the next poll. */
    for (uint32_t kind = 0; kind < YB_MEMORY_KINDS; kind++) {
        struct yb_memory_copy *copy;
        enum yb_status status;

        while (queue->lanes[kind] != NULL && done < budget &&
               (copy = yb_memory_kinds[kind]->next_done(queue->lanes[kind], &status)) != NULL) {
            queue->pending--;
            done++;
            count(&queue->memory->copied_bytes, status == YB_OK ? copy->length : 0);
            count(&queue->memory->failures, status != YB_OK);
            copy->done(copy, status);
        }
    }
    return done;
}

uint32_t
yb_memory_pending(const struct yb_memory_queue *queue)
{
    YB_ASSERT_OBJ(queue, QUEUE_MAGIC);
    return queue->pending;
}
