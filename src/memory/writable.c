/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/writable.h"

#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PAGE_BYTES_MIN 4096u
#define MAPS_PATH      "/proc/self/maps"

/* A question about the mapping at an address, and its answer: struct procmap_query of
 * <linux/fs.h>, which older headers lack. */
struct mapping {
    uint64_t struct_bytes;
    uint64_t asked; /* Nothing but the address: it must lie in the mapping. */
    uint64_t address;
    uint64_t first;
    uint64_t last;
    uint64_t flags;
    uint64_t page_bytes;
    uint64_t file_offset;
    uint64_t inode;
    uint32_t device_major;
    uint32_t device_minor;
    uint32_t name_bytes;
    uint32_t build_bytes;
    uint64_t name;
    uint64_t build;
};
_Static_assert(sizeof(struct mapping) == 104, "the kernel's layout");

#define ASK_MAPPING      _IOWR('f', 17, struct mapping)
#define MAPPING_WRITABLE 0x2u
#define MAPPING_SHARED   0x8u

void
yb_writable_init(struct yb_writable *writable)
{
    writable->maps = open(MAPS_PATH, O_RDONLY | O_CLOEXEC);
}

void
yb_writable_fini(struct yb_writable *writable)
{
    if (writable->maps >= 0) {
        (void)close(writable->maps);
    }
    writable->maps = -1;
}

bool
yb_writable_populate(uintptr_t first, uintptr_t last)
{
    return first >= last || madvise((void *)first, last - first, MADV_POPULATE_WRITE) == 0;
}

/* Return where the mapping at `first` ends, if it is private, of no file and writable; else 0. */
static uintptr_t
end_of_mapping(const struct yb_writable *writable, uintptr_t first)
{
    struct mapping mapping = {.struct_bytes = sizeof(mapping), .address = first};

    if (writable->maps < 0 || ioctl(writable->maps, ASK_MAPPING, &mapping) != 0 ||
        (mapping.flags & (MAPPING_WRITABLE | MAPPING_SHARED)) != MAPPING_WRITABLE ||
        mapping.inode != 0 || mapping.device_major != 0 || mapping.device_minor != 0) {
        return 0;
    }
    return (uintptr_t)mapping.last;
}

uintptr_t
yb_writable_until(const struct yb_writable *writable, uintptr_t first, uintptr_t last)
{
    unsigned char there[YB_WRITABLE_BYTES_MAX / PAGE_BYTES_MIN];
    uintptr_t page = (uintptr_t)getpagesize();
    uintptr_t end = end_of_mapping(writable, first);
    uintptr_t until = first;

    YB_ASSERT(page >= PAGE_BYTES_MIN && first % page == 0 && last % page == 0);
    last = last < end ? last : end;
    if (last <= first) {
        return first;
    }
    last = last - first < YB_WRITABLE_BYTES_MAX ? last : first + YB_WRITABLE_BYTES_MAX;
    if (!yb_writable_populate(first, first + page) ||
        mincore((void *)first, last - first, there) != 0) {
        return first;
    }
    while (until < last && (there[(until - first) / page] & 1) != 0) {
        until += page;
    }
    return until;
}
