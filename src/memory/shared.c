/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

#define SHARED_MAGIC 0x73687264u

#define HUGE_BYTES (2ull << 20)

/* From linux/mempolicy.h and linux/memfd.h, which not every C library's headers offer together. */
#define MPOL_PREFERRED_MODE  1
#define MPOL_F_NODE_AND_ADDR 3ul
#define NODES_MAX            1024u
#define MFD_HUGE_2MIB        (21u << 26)
#define SEAL_FUTURE_WRITE    0x0010

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct yb_shared {
    uint32_t magic;
    struct yb_shared_info info; /* Immutable after create. */
    bool lend_writable;
};

__attribute__((format(printf, 3, 4))) static void
say(char *why_out, uint32_t why_bytes, const char *format, ...)
{
    size_t used = why_out == NULL || why_bytes == 0 ? 0 : strlen(why_out);
    va_list arguments;

    if (why_out == NULL || used >= why_bytes) {
        return;
    }
    if (used > 0 && used + 2 < why_bytes) {
        memcpy(why_out + used, "; ", 3);
        used += 2;
    }
    va_start(arguments, format);
    vsnprintf(why_out + used, why_bytes - used, format, arguments);
    va_end(arguments);
}

static uint64_t
round_up(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

/* Make a memfd of at least the length that is wanted; it has a size, but no pages yet. */
static int
open_memory(const struct yb_shared_options *options, bool huge, uint64_t *bytes_out)
{
    unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB | MFD_HUGE_2MIB : 0);
    uint64_t unit = huge ? HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
    char name[sizeof(YB_SHARED_NAME) + 1 + YB_SHARED_LABEL_MAX];
    int fd;

    (void)snprintf(name, sizeof(name), "%s%s%s", YB_SHARED_NAME, options->label != NULL ? "-" : "",
                   options->label != NULL ? options->label : "");
    fd = memfd_create(name, flags);
    if (fd < 0) {
        return -1;
    }
    *bytes_out = round_up(options->length, unit);
    /* The mode keeps the same user from opening it for writing through /proc (H2). */
    if (ftruncate(fd, (off_t)*bytes_out) != 0 || fchmod(fd, S_IRUSR) != 0) {
        int error = errno;

        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

/* Tell the kernel on which node to take the pages; before there are any. */
static bool
prefer_node(void *base, uint64_t bytes, uint32_t node)
{
    unsigned long mask[NODES_MAX / (8 * sizeof(unsigned long)) + 1] = {0};
    const unsigned bits = 8 * sizeof(unsigned long);

    mask[node / bits] |= 1ul << (node % bits);
    return syscall(SYS_mbind, base, bytes, MPOL_PREFERRED_MODE, mask, NODES_MAX + 1ul, 0u) == 0;
}

/* Ask where the first page lies. */
static uint32_t
node_of(void *base)
{
    int node = -1;

    if (syscall(SYS_get_mempolicy, &node, NULL, 0ul, base, MPOL_F_NODE_AND_ADDR) != 0 || node < 0) {
        return YB_SHARED_NUMA_ANY;
    }
    return (uint32_t)node;
}

bool
yb_shared_meminfo(const char *meminfo, const char *name, uint64_t *bytes_out)
{
    const char *line = strstr(meminfo, name);

    if (line == NULL) {
        return false;
    }
    *bytes_out = strtoull(line + strlen(name), NULL, 10) * 1024;
    return true;
}

uint64_t
yb_shared_spare(const char *meminfo)
{
    uint64_t available;
    uint64_t swap = 0;

    if (!yb_shared_meminfo(meminfo, "MemAvailable:", &available)) {
        return UINT64_MAX;
    }
    (void)yb_shared_meminfo(meminfo, "SwapFree:", &swap);
    return available + swap;
}

/* Whether the machine can give so much. The kernel would not refuse it: it would give page after
 * page, and then kill whatever process it likes. */
static bool
can_give(uint64_t bytes, char *why_out, uint32_t why_bytes)
{
    FILE *file = fopen("/proc/meminfo", "re");
    char meminfo[4096];
    uint64_t spare;

    if (file == NULL) {
        return true;
    }
    meminfo[fread(meminfo, 1, sizeof(meminfo) - 1, file)] = '\0';
    fclose(file);
    spare = yb_shared_spare(meminfo);
    if (bytes > spare) {
        say(why_out, why_bytes, "the machine has %llu bytes available", (unsigned long long)spare);
        errno = ENOMEM;
    }
    return bytes <= spare;
}

/* Give all of the memory pages, and the mapping its entries for them. */
static bool
fill(int fd, void *base, uint64_t bytes)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    int error;

    do {
        error = fallocate(fd, 0, 0, (off_t)bytes) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error != 0) {
        errno = error;
        return false;
    }
    if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0) {
        return true;
    }
    if (errno != EINVAL) {
        return false;
    }
    /* A kernel before 5.14: the pages are there, only their entries are not. */
    for (uint64_t at = 0; at < bytes; at += page) {
        ((volatile uint8_t *)base)[at] = 0;
    }
    return true;
}

static bool
seal(int fd, bool lend_writable, bool *write_sealed_out)
{
    /* A call of its own: an older kernel refuses a call with a seal that it does not know. */
    *write_sealed_out = !lend_writable && fcntl(fd, F_ADD_SEALS, SEAL_FUTURE_WRITE) == 0;
    return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0;
}

/* Map a memfd of ordinary pages from where a huge one may begin: elsewhere there is none. */
static void *
map_aligned(int fd, uint64_t bytes)
{
    uint64_t room = bytes + HUGE_BYTES;
    uint8_t *area;
    uint8_t *base;

    area = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        return MAP_FAILED;
    }
    base = area + (HUGE_BYTES - (uintptr_t)area % HUGE_BYTES) % HUGE_BYTES;
    if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int error = errno;

        munmap(area, room);
        errno = error;
        return MAP_FAILED;
    }
    if (base > area) {
        munmap(area, (size_t)(base - area));
    }
    if (base + bytes < area + room) {
        munmap(base + bytes, (size_t)(area + room - (base + bytes)));
    }
    return base;
}

/* Map, place, fill and seal a memfd; on failure errno says why and nothing is mapped. */
static bool
settle(const struct yb_shared_options *options, struct yb_shared_info *info, char *why_out,
       uint32_t why_bytes)
{
    struct statfs system;
    bool reserved; /* Its pages are huge ones. */
    int error;

    if (fstatfs(info->fd, &system) != 0) {
        return false;
    }
    reserved = system.f_bsize >= (long)HUGE_BYTES;
    info->base = options->huge && !reserved
                     ? map_aligned(info->fd, info->bytes)
                     : mmap(NULL, info->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, info->fd, 0);
    if (info->base == MAP_FAILED) {
        return false;
    }
    if (options->numa_node != YB_SHARED_NUMA_ANY &&
        !prefer_node(info->base, info->bytes, options->numa_node)) {
        say(why_out, why_bytes, "node %u was asked for, but mbind failed (%s): the kernel chose",
            options->numa_node, strerror(errno));
    }
    if ((!reserved && !can_give(info->bytes, why_out, why_bytes)) ||
        !fill(info->fd, info->base, info->bytes) ||
        madvise(info->base, info->bytes, MADV_DONTFORK) != 0 ||
        !seal(info->fd, options->lend_writable, &info->write_sealed)) {
        goto err_unmap;
    }
    /* Now that the pages are there: what came of it can be asked. (A kernel before 6.1 makes some
     * of them huge later, if it is told to.) */
    if (options->huge) {
        (void)madvise(info->base, info->bytes, MADV_HUGEPAGE);
        (void)madvise(info->base, info->bytes / HUGE_BYTES * HUGE_BYTES, MADV_COLLAPSE);
    }
    info->page_bytes = (uint32_t)system.f_bsize;
    info->numa_node = node_of(info->base);
    return true;

err_unmap:
    error = errno;
    munmap(info->base, info->bytes);
    errno = error;
    return false;
}

/* Try with reserved huge pages, if asked for; then without. */
static bool
build(const struct yb_shared_options *options, struct yb_shared_info *info, char *why_out,
      uint32_t why_bytes)
{
    for (int huge = options->huge; huge >= 0; huge--) {
        int error;

        info->fd = open_memory(options, huge == 1, &info->bytes);
        if (info->fd >= 0 && settle(options, info, why_out, why_bytes)) {
            return true;
        }
        error = errno;
        if (info->fd >= 0) {
            close(info->fd);
        }
        errno = error;
        if (huge == 1) {
            say(why_out, why_bytes,
                "huge pages were asked for, but %llu of 2 MiB could not be had (%s): reserve them"
                " in vm.nr_hugepages; of ordinary pages the kernel makes as many huge as it can",
                (unsigned long long)(round_up(options->length, HUGE_BYTES) / HUGE_BYTES),
                strerror(error));
        }
    }
    return false;
}

enum yb_status
yb_shared_create(const struct yb_shared_options *options, struct yb_shared **shared_out,
                 char *why_out, uint32_t why_bytes)
{
    struct yb_shared *shared;

    YB_ASSERT(shared_out != NULL);
    if (why_out != NULL && why_bytes > 0) {
        why_out[0] = '\0';
    }
    if (options->length == 0 ||
        (options->numa_node != YB_SHARED_NUMA_ANY && options->numa_node >= NODES_MAX)) {
        say(why_out, why_bytes, "shared memory of %llu bytes on node %u: outside the contract",
            (unsigned long long)options->length, options->numa_node);
        return YB_INVALID;
    }
    if (options->length > YB_SHARED_BYTES_MAX) {
        say(why_out, why_bytes, "%llu bytes of shared memory are more than the limit of %llu",
            (unsigned long long)options->length, (unsigned long long)YB_SHARED_BYTES_MAX);
        return YB_TOO_LARGE;
    }
    shared = calloc(1, sizeof(*shared));
    if (shared == NULL) {
        return YB_NO_MEMORY;
    }
    if (!build(options, &shared->info, why_out, why_bytes)) {
        enum yb_status status = errno == ENOSYS ? YB_UNSUPPORTED : YB_NO_MEMORY;

        say(why_out, why_bytes,
            "%llu bytes of shared memory could not be had (%s): ask for less, or raise the limit of"
            " memory (cgroup), of descriptors or of address space (ulimit -n, -v)",
            (unsigned long long)options->length, strerror(errno));
        free(shared);
        return status;
    }
    shared->info.length = options->length;
    shared->lend_writable = options->lend_writable;
    shared->magic = SHARED_MAGIC;
    *shared_out = shared;
    return YB_OK;
}

void
yb_shared_destroy(struct yb_shared **shared_ref)
{
    struct yb_shared *shared = *shared_ref;

    YB_ASSERT_OBJ(shared, SHARED_MAGIC);
    *shared_ref = NULL;
    shared->magic = 0;
    YB_ASSERT(munmap(shared->info.base, shared->info.bytes) == 0);
    close(shared->info.fd);
    free(shared);
}

struct yb_shared_info
yb_shared_info(const struct yb_shared *shared)
{
    YB_ASSERT_OBJ(shared, SHARED_MAGIC);
    return shared->info;
}

void
yb_shared_smaps_line(struct yb_shared_smaps *smaps, const char *line)
{
    static const char *const rows[] = {"AnonHugePages:", "ShmemPmdMapped:", "FilePmdMapped:"};
    unsigned long first;
    unsigned long end;

    if (sscanf(line, "%lx-%lx ", &first, &end) == 2) {
        smaps->inside = first >= smaps->first && end <= smaps->end;
        smaps->found = smaps->found || smaps->inside;
        return;
    }
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]) && smaps->inside; i++) {
        uint64_t bytes;

        if (yb_shared_meminfo(line, rows[i], &bytes)) {
            smaps->huge_bytes += bytes;
        }
    }
}

uint64_t
yb_shared_huge_bytes(const struct yb_shared *shared)
{
    const struct yb_shared_info *info = &shared->info;
    struct yb_shared_smaps smaps = {
        .first = (uintptr_t)info->base,
        .end = (uintptr_t)info->base + info->bytes,
    };
    char line[512];
    FILE *file;

    YB_ASSERT_OBJ(shared, SHARED_MAGIC);
    if (info->page_bytes >= HUGE_BYTES) { /* Reserved ones, which smaps counts otherwise. */
        return info->bytes;
    }
    file = fopen("/proc/self/smaps", "re");
    if (file == NULL) {
        return UINT64_MAX;
    }
    /* What comes behind it costs the kernel as much. */
    while ((smaps.inside || !smaps.found) && fgets(line, sizeof(line), file) != NULL) {
        yb_shared_smaps_line(&smaps, line);
    }
    fclose(file);
    return smaps.found ? smaps.huge_bytes : UINT64_MAX;
}

enum yb_status
yb_shared_descriptor(const struct yb_shared *shared, bool writable, int *fd_out)
{
    char path[48];
    int fd;

    YB_ASSERT_OBJ(shared, SHARED_MAGIC);
    if (writable && !shared->lend_writable) {
        return YB_INVALID;
    }
    if (writable) {
        fd = fcntl(shared->info.fd, F_DUPFD_CLOEXEC, 0);
    } else {
        /* A duplicate would share the right to write; a new opening has its own. */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", shared->info.fd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
    }
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? YB_NO_MEMORY : YB_DENIED;
    }
    *fd_out = fd;
    return YB_OK;
}

/* Ask the kernel what the descriptor is; nothing else about it can be believed. */
static enum yb_status
examine(int fd, uint64_t length, bool writable, char *why_out, uint32_t why_bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    int mode = fcntl(fd, F_GETFL);
    struct stat file;

    if (seals < 0 || mode < 0 || fstat(fd, &file) != 0) {
        say(why_out, why_bytes, "the peer's descriptor is no memfd (%s)", strerror(errno));
        return YB_DENIED;
    }
    if ((seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW)) {
        say(why_out, why_bytes,
            "the size of the peer's memory is not sealed (seals %#x): it could be cut under a copy",
            (unsigned)seals);
        return YB_DENIED;
    }
    if ((uint64_t)file.st_size < length) {
        say(why_out, why_bytes, "the peer's memory has %llu bytes instead of %llu",
            (unsigned long long)file.st_size, (unsigned long long)length);
        return YB_TOO_SMALL;
    }
    if ((uint64_t)file.st_blocks * 512 < (uint64_t)file.st_size) {
        say(why_out, why_bytes, "only %llu of the %llu bytes of the peer's memory have pages",
            (unsigned long long)file.st_blocks * 512, (unsigned long long)file.st_size);
        return YB_DENIED;
    }
    if (writable && (mode & O_ACCMODE) != O_RDWR) {
        say(why_out, why_bytes, "the peer's descriptor does not allow writing");
        return YB_DENIED;
    }
    return YB_OK;
}

enum yb_status
yb_shared_attach(int fd, uint64_t length, bool writable, struct yb_shared_view *view_out,
                 char *why_out, uint32_t why_bytes)
{
    struct statfs system;
    enum yb_status status;
    uint64_t bytes;
    void *base;

    YB_ASSERT(view_out != NULL);
    if (why_out != NULL && why_bytes > 0) {
        why_out[0] = '\0';
    }
    if (length == 0) {
        say(why_out, why_bytes, "a view of no bytes");
        return YB_INVALID;
    }
    status = examine(fd, length, writable, why_out, why_bytes);
    if (status != YB_OK) {
        return status;
    }
    if (fstatfs(fd, &system) != 0) {
        return YB_DENIED;
    }
    bytes = round_up(length, (uint64_t)system.f_bsize);
    base = mmap(NULL, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        status = errno == EPERM || errno == EACCES ? YB_DENIED : YB_NO_MEMORY;
        say(why_out, why_bytes, "the peer's memory could not be mapped (%s)", strerror(errno));
        return status;
    }
    YB_ASSERT(madvise(base, bytes, MADV_DONTFORK) == 0);
    *view_out = (struct yb_shared_view){
        .base = base, .bytes = bytes, .page_bytes = (uint32_t)system.f_bsize, .writable = writable};
    return YB_OK;
}

void
yb_shared_detach(struct yb_shared_view *view)
{
    YB_ASSERT(view->base != NULL);
    YB_ASSERT(munmap(view->base, view->bytes) == 0);
    memset(view, 0, sizeof(*view));
}
