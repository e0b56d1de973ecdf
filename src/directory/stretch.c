/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/stretch.h"

#include <sys/mman.h>

#include "base/check.h"

#define SMALL_STEP_BYTES ((size_t)64 << 10)
#define HUGE_STEP_BYTES  ((size_t)2 << 20)
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

enum yb_status
yb_stretch_reach(struct yb_stretch *stretch, size_t bytes)
{
    size_t target;

    YB_ASSERT(stretch->base != NULL);
    YB_ASSERT(bytes <= stretch->reserved_bytes);
    if (bytes <= stretch->taken_bytes) {
        return YB_OK;
    }
    target = round_up(bytes, bytes > HUGE_FROM_BYTES ? HUGE_STEP_BYTES : SMALL_STEP_BYTES);
    if (mprotect(stretch->base + stretch->taken_bytes, target - stretch->taken_bytes,
                 PROT_READ | PROT_WRITE) != 0) {
        return YB_NO_MEMORY;
    }
    if (target > HUGE_FROM_BYTES) {
        /* The beginning too, now that all of it is in use. Only advice: a kernel that has no huge
         * pages changes nothing. */
        (void)madvise(stretch->base, target, MADV_HUGEPAGE);
    }
    stretch->taken_bytes = target;
    return YB_OK;
}
