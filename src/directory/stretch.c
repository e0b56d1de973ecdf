/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/stretch.h"

#include <sys/mman.h>

#include "base/check.h"

#define PAGE_BYTES       ((size_t)4 << 10)
#define SMALL_STEP_BYTES ((size_t)64 << 10)
#define HUGE_STEP_BYTES  ((size_t)2 << 20)
#define AHEAD_BYTES      (HUGE_STEP_BYTES / 4 * 3) /* Left when the next step is due. */
#define HUGE_FROM_BYTES  ((size_t)64 << 20)

static size_t
round_up(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

enum yb_status
yb_stretch_init(struct yb_stretch *stretch, size_t bytes_max)
{
    size_t reserved = round_up(bytes_max, HUGE_STEP_BYTES);
    size_t mapping_bytes = reserved + HUGE_STEP_BYTES;
    void *mapping;

    YB_ASSERT(bytes_max >= 1 && bytes_max <= (size_t)1 << 46);
    mapping =
        mmap(NULL, mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        return YB_NO_MEMORY;
    }
    *stretch = (struct yb_stretch){
        .base = (uint8_t *)round_up((size_t)mapping, HUGE_STEP_BYTES),
        .reserved_bytes = reserved,
        .mapping = mapping,
        .mapping_bytes = mapping_bytes,
    };
    return YB_OK;
}

void
yb_stretch_fini(struct yb_stretch *stretch)
{
    YB_ASSERT(stretch->base != NULL);
    YB_ASSERT(munmap(stretch->mapping, stretch->mapping_bytes) == 0);
    *stretch = (struct yb_stretch){0};
}

/* Make [from, to) usable. Harmless where it is already. */
static bool
take(struct yb_stretch *stretch, size_t from, size_t to)
{
    if (mprotect(stretch->base + from, to - from, PROT_READ | PROT_WRITE) != 0) {
        return false;
    }
    if (to > HUGE_FROM_BYTES) {
        /* The beginning too, now that all of it is in use. Only advice: a kernel that has no huge
         * pages changes nothing. */
        (void)madvise(stretch->base, to, MADV_HUGEPAGE);
    }
    return true;
}

/* Say that everything below `to` is usable, unless more is. */
static void
raise_taken(struct yb_stretch *stretch, size_t to)
{
    size_t taken = atomic_load_explicit(&stretch->taken_bytes, memory_order_relaxed);

    while (taken < to &&
           !atomic_compare_exchange_weak_explicit(&stretch->taken_bytes, &taken, to,
                                                  memory_order_release, memory_order_relaxed)) {
    }
}

enum yb_status
yb_stretch_reach(struct yb_stretch *stretch, size_t bytes)
{
    size_t taken = atomic_load_explicit(&stretch->taken_bytes, memory_order_acquire);

    YB_ASSERT(stretch->base != NULL);
    YB_ASSERT(bytes <= stretch->reserved_bytes);
    if (bytes > taken) {
        size_t to = round_up(bytes, bytes > HUGE_FROM_BYTES ? HUGE_STEP_BYTES : SMALL_STEP_BYTES);

        if (!take(stretch, taken, to)) {
            return YB_NO_MEMORY;
        }
        raise_taken(stretch, to);
        taken = to;
    }
    if (taken >= HUGE_FROM_BYTES && taken - bytes < AHEAD_BYTES &&
        taken < stretch->reserved_bytes && !yb_stretch_ahead_due(stretch)) {
        atomic_store_explicit(&stretch->ahead_due, true, memory_order_relaxed);
    }
    return YB_OK;
}

bool
yb_stretch_ahead_due(const struct yb_stretch *stretch)
{
    return atomic_load_explicit(&stretch->ahead_due, memory_order_relaxed);
}

void
yb_stretch_ahead(struct yb_stretch *stretch)
{
    size_t from;
    size_t to;

    if (!atomic_exchange_explicit(&stretch->ahead_due, false, memory_order_relaxed)) {
        return;
    }
    from = atomic_load_explicit(&stretch->taken_bytes, memory_order_acquire);
    to = from + HUGE_STEP_BYTES;
    YB_ASSERT(from >= HUGE_FROM_BYTES);
    if (to > stretch->reserved_bytes || !take(stretch, from, to)) {
        return;
    }
    /* Touch it, page by page where there are no huge ones, changing nothing: the owner may have
     * overtaken, and use it. A fault holds up nobody else's; asking for the whole range would. */
    for (size_t at = from; at < to; at += PAGE_BYTES) {
        __atomic_fetch_or(stretch->base + at, 0, __ATOMIC_RELAXED);
    }
    raise_taken(stretch, to);
}
