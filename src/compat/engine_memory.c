/* SPDX-License-Identifier: Apache-2.0
 *
 * What is registered. The engine below counts a range that is registered again; the known one
 * refuses it with -7, and its callers rely on that, so the ranges are kept here, too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"

#define UNREGISTER_NS (30 * YB_NS_PER_S)
#define ROOM_MIN      64u

/* Index of the first range that ends behind `address`. */
static uint32_t
lower_bound_locked(const struct yb_compat_engine *engine, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = engine->range_count;

    yb_lock_assert_held(&engine->lock);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct yb_compat_engine_range *range = &engine->ranges[middle];

        if (range->base + range->length <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Return the range that begins at `address`; NULL: none does. */
static struct yb_compat_engine_range *
find_locked(struct yb_compat_engine *engine, uint64_t address)
{
    uint32_t at = lower_bound_locked(engine, address);

    return at < engine->range_count && engine->ranges[at].base == address ? &engine->ranges[at]
                                                                          : NULL;
}

/* Take the place of a range. 0, -7, or -1: no memory. */
static int32_t
insert(struct yb_compat_engine *engine, struct yb_compat_engine_range range)
{
    int32_t code = 0;
    uint32_t at;

    yb_lock_acquire(&engine->lock);
    at = lower_bound_locked(engine, range.base);
    if (at < engine->range_count && engine->ranges[at].base - range.base < range.length) {
        code = YB_COMPAT_ENGINE_OVERLAPS;
    } else if (at < engine->range_count && engine->ranges[at].base < range.base) {
        code = YB_COMPAT_ENGINE_OVERLAPS;
    } else if (engine->range_count == engine->range_room) {
        uint32_t room = engine->range_room == 0 ? ROOM_MIN : engine->range_room * 2;
        void *ranges = realloc(engine->ranges, room * sizeof(*engine->ranges));

        code = ranges != NULL ? 0 : YB_COMPAT_ENGINE_FAILED;
        engine->ranges = ranges != NULL ? ranges : engine->ranges;
        engine->range_room = ranges != NULL ? room : engine->range_room;
    }
    if (code == 0) {
        memmove(&engine->ranges[at + 1], &engine->ranges[at],
                (engine->range_count - at) * sizeof(*engine->ranges));
        engine->ranges[at] = range;
        engine->range_count++;
    }
    yb_lock_release(&engine->lock);
    return code;
}

static void
erase(struct yb_compat_engine *engine, uint64_t base)
{
    struct yb_compat_engine_range *range;

    yb_lock_acquire(&engine->lock);
    range = find_locked(engine, base);
    if (range != NULL) {
        uint32_t at = (uint32_t)(range - engine->ranges);

        memmove(range, range + 1, (engine->range_count - at - 1) * sizeof(*range));
        engine->range_count--;
    }
    yb_lock_release(&engine->lock);
}

static void
settle(struct yb_compat_engine *engine, uint64_t base)
{
    struct yb_compat_engine_range *range;

    yb_lock_acquire(&engine->lock);
    range = find_locked(engine, base);
    if (range != NULL) {
        range->busy = false;
    }
    yb_lock_release(&engine->lock);
}

/* ---- register -------------------------------------------------------------------------------- */

/* "cpu:1" is a hint. Whose a device's memory is, its driver knows better than the caller. */
static struct yb_transfer_memory
memory_at(const char *location)
{
    struct yb_transfer_memory memory = {.struct_bytes = sizeof(memory)};

    if (location != NULL && strncmp(location, "cpu:", 4) == 0) {
        char *end = NULL;
        unsigned long node = strtoul(location + 4, &end, 10);

        if (end != location + 4 && *end == '\0' && node < 1024) {
            memory.location_kind = YB_TRANSFER_LOCATION_NUMA;
            memory.location_index = (uint32_t)node;
        }
    }
    return memory;
}

static int32_t
register_one(struct yb_compat_engine *engine, uint64_t address, uint64_t length,
             const struct yb_transfer_memory *memory)
{
    enum yb_status status;
    int32_t code;

    if (address == 0 || length == 0 || length > UINT64_MAX - address) {
        yb_log_warn(engine->log, "engine", "a range to register is empty, or no range",
                    yb_log_u64("address", address), yb_log_u64("bytes", length));
        return YB_COMPAT_ENGINE_FAILED;
    }
    code = insert(engine,
                  (struct yb_compat_engine_range){.base = address, .length = length, .busy = true});
    if (code != 0) {
        yb_log_warn(engine->log, "engine", "a range overlaps a registered one",
                    yb_log_u64("address", address), yb_log_u64("bytes", length));
        return code;
    }
    status =
        yb_transfer_register(engine->transfer, (void *)(uintptr_t)address, length, memory, NULL);
    if (status == YB_OK) {
        settle(engine, address);
        return 0;
    }
    erase(engine, address);
    yb_log_warn(engine->log, "engine", "a range cannot be registered",
                yb_log_u64("address", address), yb_log_u64("bytes", length),
                yb_log_status("status", status));
    return status == YB_EXISTS ? YB_COMPAT_ENGINE_OVERLAPS : YB_COMPAT_ENGINE_FAILED;
}

int32_t
yb_compat_engine_register(struct yb_compat_engine *engine, const uint64_t *addresses,
                          const uint64_t *lengths, uint32_t count, const char *location)
{
    const struct yb_transfer_memory memory = memory_at(location);

    if (!yb_compat_engine_ready(engine)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    for (uint32_t i = 0; i < count; i++) {
        int32_t code = register_one(engine, addresses[i], lengths[i], &memory);

        if (code != 0) {
            if (i > 0) {
                (void)yb_compat_engine_unregister(engine, addresses, i);
            }
            return code;
        }
    }
    return 0;
}

/* ---- unregister ------------------------------------------------------------------------------ */

/* Mark all of them as going, or none: nobody else may unregister or free them meanwhile. */
static bool
claim(struct yb_compat_engine *engine, const uint64_t *addresses, uint32_t count, bool managed)
{
    uint32_t i = 0;

    yb_lock_acquire(&engine->lock);
    for (; i < count; i++) {
        struct yb_compat_engine_range *range = find_locked(engine, addresses[i]);

        if (range == NULL || range->busy || range->managed != managed) {
            break;
        }
        range->busy = true;
    }
    for (uint32_t undo = i < count ? i : 0; undo > 0; undo--) {
        find_locked(engine, addresses[undo - 1])->busy = false;
    }
    yb_lock_release(&engine->lock);
    return i == count;
}

int32_t
yb_compat_engine_unregister(struct yb_compat_engine *engine, const uint64_t *addresses,
                            uint32_t count)
{
    int32_t code = 0;

    if (!yb_compat_engine_ready(engine)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    if (!claim(engine, addresses, count, false)) {
        return YB_COMPAT_ENGINE_NOT_REGISTERED;
    }
    for (uint32_t i = 0; i < count; i++) {
        enum yb_status status = yb_transfer_unregister(
            engine->transfer, (void *)(uintptr_t)addresses[i], UNREGISTER_NS);

        if (status == YB_OK) {
            erase(engine, addresses[i]);
            continue;
        }
        settle(engine, addresses[i]);
        yb_log_warn(engine->log, "engine", "a range cannot be unregistered",
                    yb_log_u64("address", addresses[i]), yb_log_status("status", status));
        code = YB_COMPAT_ENGINE_FAILED;
    }
    return code;
}

/* ---- managed buffers ------------------------------------------------------------------------- */

uint64_t
yb_compat_engine_buffer_alloc(struct yb_compat_engine *engine, uint64_t bytes)
{
    void *base = NULL;
    enum yb_status status;

    if (!yb_compat_engine_ready(engine) || bytes == 0) {
        return 0;
    }
    status = yb_transfer_alloc(engine->transfer, bytes, NULL, &base);
    if (status == YB_OK &&
        insert(engine, (struct yb_compat_engine_range){.base = (uint64_t)(uintptr_t)base,
                                                       .length = bytes,
                                                       .managed = true}) != 0) {
        status = yb_transfer_free(engine->transfer, &base, 0);
        status = status == YB_OK ? YB_NO_MEMORY : status;
    }
    if (status != YB_OK) {
        yb_log_warn(engine->log, "engine", "no memory for a managed buffer",
                    yb_log_u64("bytes", bytes), yb_log_status("status", status));
        return 0;
    }
    return (uint64_t)(uintptr_t)base;
}

int32_t
yb_compat_engine_buffer_free(struct yb_compat_engine *engine, uint64_t address)
{
    void *base = (void *)(uintptr_t)address;

    if (!yb_compat_engine_ready(engine) || !claim(engine, &address, 1, true)) {
        return YB_COMPAT_ENGINE_FAILED;
    }
    if (yb_transfer_free(engine->transfer, &base, UNREGISTER_NS) != YB_OK) {
        settle(engine, address);
        return YB_COMPAT_ENGINE_FAILED;
    }
    erase(engine, address);
    return 0;
}

void
yb_compat_engine_memory_fini(struct yb_compat_engine *engine)
{
    free(engine->ranges); /* The memory itself went with the engine below. */
    engine->ranges = NULL;
}
