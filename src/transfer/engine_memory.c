/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's memory: what is registered, and what was allocated to be shared.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "memory/shared.h"
#include "transfer/engine_internal.h"

/* Memory that the engine has allocated; a list, since there are few. */
struct yb_allocation {
    struct yb_allocation *next;
    void *base;
    struct yb_shared *shared;
};

static enum yb_status
read_memory(const struct yb_transfer_memory *given, struct yb_transfer_memory *memory_out)
{
    struct yb_transfer_memory memory = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            return YB_INVALID;
        }
        memcpy(&memory, given,
               given->struct_bytes < sizeof(memory) ? given->struct_bytes : sizeof(memory));
    }
    memory.access =
        memory.access != 0 ? memory.access : YB_TRANSFER_MAY_READ | YB_TRANSFER_MAY_WRITE;
    if ((memory.access & ~(YB_TRANSFER_MAY_READ | YB_TRANSFER_MAY_WRITE)) != 0 ||
        memory.location_kind > YB_TRANSFER_LOCATION_DEVICE) {
        return YB_INVALID;
    }
    *memory_out = memory;
    return YB_OK;
}

/* Return the descriptor behind memory that the engine has allocated, so that registering it again
 * is counted; -1: it is the caller's own memory. */
static int
backing_of(struct yb_transfer *engine, const void *base)
{
    int fd = -1;

    yb_lock_acquire(&engine->lock);
    for (struct yb_allocation *one = engine->allocations; one != NULL && fd < 0; one = one->next) {
        fd = one->base == base ? yb_shared_info(one->shared).fd : -1;
    }
    yb_lock_release(&engine->lock);
    return fd;
}

static bool
same_place(struct yb_memory_place a, struct yb_memory_place b)
{
    return a.kind == b.kind && a.index == b.index;
}

enum yb_status
yb_transfer_register(struct yb_transfer *engine, void *base, uint64_t length,
                     const struct yb_transfer_memory *given, yb_transfer_region *region_out)
{
    struct yb_transfer_memory memory = {0};
    struct yb_region_info info = {
        .base = base,
        .length = length,
        .backing = {.fd = -1},
    };
    enum yb_status status = read_memory(given, &memory);

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    if (status != YB_OK || length == 0 || base == NULL || length > UINTPTR_MAX - (uintptr_t)base) {
        return YB_INVALID;
    }
    info.access = memory.access; /* The same bits. */
    info.backing.fd = backing_of(engine, base);
    info.place = yb_memory_probe(engine->memory, base);
    if (memory.location_kind == YB_TRANSFER_LOCATION_DEVICE &&
        (info.place.kind == YB_MEMORY_HOST || info.place.index != memory.location_index)) {
        return YB_INVALID; /* It is not that device's. */
    }
    if (info.place.kind == YB_MEMORY_HOST) {
        info.place.index =
            memory.location_kind == YB_TRANSFER_LOCATION_NUMA ? memory.location_index : 0;
        status = yb_memory_check(base, length);
    } else if (!same_place(yb_memory_probe(engine->memory, (uint8_t *)base + length - 1),
                           info.place)) {
        status = YB_FAULT; /* It is longer than what was allocated. */
    } else {
        status = yb_memory_open(engine->memory, info.place);
    }
    if (status != YB_OK) {
        return status;
    }
    return yb_region_register(engine->regions, &info, region_out);
}

enum yb_status
yb_transfer_unregister(struct yb_transfer *engine, void *base, uint64_t timeout_ns)
{
    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    return yb_region_unregister(engine->regions, base, timeout_ns);
}

enum yb_status
yb_transfer_alloc(struct yb_transfer *engine, uint64_t length,
                  const struct yb_transfer_memory *given, void **base_out)
{
    struct yb_transfer_memory memory = {0};
    struct yb_shared_options options = {.length = length, .numa_node = YB_SHARED_NUMA_ANY};
    struct yb_allocation *allocation;
    struct yb_region_info info = {0};
    enum yb_status status = read_memory(given, &memory);

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    if (status != YB_OK || length == 0 || memory.location_kind == YB_TRANSFER_LOCATION_DEVICE) {
        return YB_INVALID;
    }
    allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL) {
        return YB_NO_MEMORY;
    }
    if (memory.location_kind == YB_TRANSFER_LOCATION_NUMA) {
        options.numa_node = memory.location_index;
    }
    status = yb_shared_create(&options, &allocation->shared, NULL, 0);
    if (status != YB_OK) {
        goto err_free;
    }
    info.base = yb_shared_info(allocation->shared).base;
    info.length = length;
    info.access = memory.access;
    info.backing.fd = yb_shared_info(allocation->shared).fd;
    status = yb_region_register(engine->regions, &info, NULL);
    if (status != YB_OK) {
        goto err_destroy;
    }
    allocation->base = info.base;
    yb_lock_acquire(&engine->lock);
    allocation->next = engine->allocations;
    engine->allocations = allocation;
    yb_lock_release(&engine->lock);
    *base_out = info.base;
    return YB_OK;

err_destroy:
    yb_shared_destroy(&allocation->shared);
err_free:
    free(allocation);
    return status;
}

/* Take the allocation at `base` off the list; NULL: there is none. */
static struct yb_allocation *
take_allocation(struct yb_transfer *engine, const void *base)
{
    struct yb_allocation **link = &engine->allocations;
    struct yb_allocation *allocation;

    yb_lock_acquire(&engine->lock);
    while (*link != NULL && (*link)->base != base) {
        link = &(*link)->next;
    }
    allocation = *link;
    if (allocation != NULL) {
        *link = allocation->next;
    }
    yb_lock_release(&engine->lock);
    return allocation;
}

enum yb_status
yb_transfer_free(struct yb_transfer *engine, void **base, uint64_t timeout_ns)
{
    struct yb_allocation *allocation;
    enum yb_status status;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    allocation = take_allocation(engine, *base);
    if (allocation == NULL) {
        return YB_NOT_FOUND;
    }
    status = yb_region_unregister(engine->regions, *base, timeout_ns);
    if (status != YB_OK) {
        yb_lock_acquire(&engine->lock);
        allocation->next = engine->allocations;
        engine->allocations = allocation;
        yb_lock_release(&engine->lock);
        return status;
    }
    yb_shared_destroy(&allocation->shared);
    free(allocation);
    *base = NULL;
    return YB_OK;
}

void
yb_transfer_memory_fini(struct yb_transfer *engine)
{
    while (engine->allocations != NULL) {
        struct yb_allocation *allocation = engine->allocations;

        engine->allocations = allocation->next;
        yb_shared_destroy(&allocation->shared);
        free(allocation);
    }
}
