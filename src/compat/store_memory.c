/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory: ranges that callers have registered, and memory that processes of a host can share.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "compat/store_internal.h"
#include "memory/memory_type.h"
#include "memory/shared.h"

#define REGIONS_STEP  64u
#define REGIONS_MAX   65536u
#define UNREGISTER_NS (5 * YB_NS_PER_S)
#define HOST_MAGIC    0x74736f682d62790aull /* "\nyb-host" */

/* ---- registered ranges --------------------------------------------------------------------- */

/* Return the index of the first region that ends behind `address`. */
static uint32_t
find_locked(const struct yb_compat_store *store, uintptr_t address)
{
    uint32_t low = 0;
    uint32_t high = store->region_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct yb_compat_region *region = &store->regions[middle];

        if (address - region->base < region->bytes || address < region->base) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int32_t
add_locked(struct yb_compat_store *store, uintptr_t base, uint64_t bytes)
{
    uint32_t at = find_locked(store, base);

    if (at < store->region_count &&
        (store->regions[at].base <= base || store->regions[at].base - base < bytes)) {
        return YB_COMPAT_ADDRESS_OVERLAPPED;
    }
    if (store->region_count == REGIONS_MAX) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    if (store->region_count == store->region_room) {
        struct yb_compat_region *grown =
            realloc(store->regions, (store->region_room + REGIONS_STEP) * sizeof(*grown));

        if (grown == NULL) {
            return YB_COMPAT_INTERNAL_ERROR;
        }
        store->regions = grown;
        store->region_room += REGIONS_STEP;
    }
    memmove(&store->regions[at + 1], &store->regions[at],
            (store->region_count - at) * sizeof(store->regions[0]));
    store->regions[at] = (struct yb_compat_region){.base = base, .bytes = bytes};
    store->region_count++;
    return YB_COMPAT_OK;
}

/* Returns whether a region began there. */
static bool
take_locked(struct yb_compat_store *store, uintptr_t base)
{
    uint32_t at = find_locked(store, base);

    if (at == store->region_count || store->regions[at].base != base) {
        return false;
    }
    store->region_count--;
    memmove(&store->regions[at], &store->regions[at + 1],
            (store->region_count - at) * sizeof(store->regions[0]));
    return true;
}

int32_t
yb_compat_store_register(struct yb_compat_store *store, void *base, uint64_t bytes)
{
    struct yb_client *client;
    enum yb_status status;
    int32_t code;

    if (base == NULL || bytes == 0 || bytes > UINTPTR_MAX - (uintptr_t)base ||
        (client = yb_compat_store_enter(store)) == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    yb_lock_acquire(&store->lock);
    code = add_locked(store, (uintptr_t)base, bytes);
    yb_lock_release(&store->lock);
    if (code == YB_COMPAT_OK) {
        status = yb_client_register(client, base, bytes);
        code = yb_compat_code(status, YB_COMPAT_CALL_SETUP);
        if (status != YB_OK) {
            yb_lock_acquire(&store->lock);
            (void)take_locked(store, (uintptr_t)base);
            yb_lock_release(&store->lock);
            yb_log_warn(store->log, "store", "a buffer cannot be registered",
                        yb_log_u64("bytes", bytes), yb_log_status("status", status));
        }
    }
    yb_compat_store_leave(store);
    return code;
}

int32_t
yb_compat_store_unregister(struct yb_compat_store *store, void *base)
{
    struct yb_client *client = yb_compat_store_enter(store);
    enum yb_status status = YB_INVALID;
    bool known;

    if (client == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    yb_lock_acquire(&store->lock);
    known = take_locked(store, (uintptr_t)base);
    yb_lock_release(&store->lock);
    if (known) {
        status = yb_client_unregister(client, base, UNREGISTER_NS);
    }
    yb_compat_store_leave(store);
    return yb_compat_code(status, YB_COMPAT_CALL_SETUP);
}

uint64_t
yb_compat_store_registered(struct yb_compat_store *store, const void *address)
{
    uint64_t left = 0;

    if (yb_compat_store_enter(store) == NULL) {
        return 0;
    }
    yb_lock_acquire(&store->lock);
    for (uint32_t at = find_locked(store, (uintptr_t)address); at < store->region_count;) {
        const struct yb_compat_region *region = &store->regions[at];

        left = (uintptr_t)address >= region->base
                   ? region->bytes - ((uintptr_t)address - region->base)
                   : 0;
        break;
    }
    yb_lock_release(&store->lock);
    yb_compat_store_leave(store);
    return left;
}

/* ---- copies ------------------------------------------------------------------------------- */

static void
note_end(struct yb_memory_copy *copy, enum yb_status status)
{
    *(enum yb_status *)copy->owner = status;
}

enum yb_status
yb_compat_copy(struct yb_compat_store *store, void *to, const void *from, uint64_t bytes)
{
    enum yb_status ended = YB_IO;
    struct yb_memory_copy copy = {
        .to = to, .from = from, .length = bytes, .done = note_end, .owner = &ended};
    struct yb_memory_queue *queue;
    enum yb_status status;

    if (bytes == 0) {
        return YB_OK;
    }
    copy.to_place = yb_memory_probe(store->memory, to);
    copy.from_place = yb_memory_probe(store->memory, from);
    if (copy.to_place.kind == YB_MEMORY_HOST && copy.from_place.kind == YB_MEMORY_HOST) {
        memcpy(to, from, bytes);
        return YB_OK;
    }
    status = yb_memory_queue_create(store->memory, &queue);
    if (status != YB_OK) {
        return status;
    }
    status = yb_memory_copy_start(queue, &copy);
    yb_memory_queue_destroy(&queue); /* Waits for the end. */
    return status != YB_OK ? status : ended;
}

/* ---- memory that processes share ------------------------------------------------------------ */

/* In the page before what callers get: there is no table, which would have to be the process's. */
struct host_page {
    uint64_t magic;
    void *base; /* What the caller got. */
    struct yb_shared *shared;
};

void *
yb_compat_host_alloc(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    struct yb_shared_options options = {.numa_node = YB_SHARED_NUMA_ANY};
    struct yb_shared_info info;
    struct host_page *header;
    struct yb_shared *shared;
    char why[256];

    if (bytes == 0 || bytes > YB_SHARED_BYTES_MAX - page) {
        return NULL;
    }
    options.length = bytes + page;
    if (yb_shared_create(&options, &shared, why, sizeof(why)) != YB_OK) {
        return NULL;
    }
    info = yb_shared_info(shared);
    header = info.base;
    *header = (struct host_page){
        .magic = HOST_MAGIC, .base = (uint8_t *)info.base + page, .shared = shared};
    return header->base;
}

/* Look at memory that may not be there. */
static bool
peek(const void *address, void *out, size_t bytes)
{
    const struct iovec to = {.iov_base = out, .iov_len = bytes};
    const struct iovec from = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};

    return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == (ssize_t)bytes;
}

int32_t
yb_compat_host_free(void *base)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t address = (uintptr_t)base;
    struct host_page header;

    if (address < 2 * page || address % page != 0 ||
        !peek((const void *)(address - page), &header, sizeof(header)) ||
        header.magic != HOST_MAGIC || header.base != base) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    yb_shared_destroy(&header.shared);
    return YB_COMPAT_OK;
}
