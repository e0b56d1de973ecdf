/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.h -- memory that other processes of this host can map.
 *
 * The owner allocates a memfd, fills it with pages before anybody sees it, and
 * seals its size for ever; it hands out descriptors that only read. A receiver
 * believes nothing of a descriptor: it asks the kernel for seals, size and
 * pages before it maps it.
 *
 *     owner     create -> [fallocate, map, seal] -> descriptor -> ... -> destroy
 *     receiver  attach(descriptor, length) -> view -> ... -> detach
 *
 * Invariants
 *   H1  Neither side can get SIGBUS from a view: the size is sealed (SHRINK, GROW, SEAL)
 *       and all pages were allocated before a descriptor left the owner. (Who may write
 *       can still punch holes, which read as zeros: see lend_writable.)
 *   H2  A reader's descriptor cannot be mapped, nor written, for writing; nor reopened so:
 *       its file has mode 0400, which stops the same user, and the seal FUTURE_WRITE,
 *       where the kernel has it (5.1), which stops everybody. The owner's own mapping,
 *       made before, still writes.
 *   H3  A fork inherits neither mapping: a child that touches one faults.
 *
 * Threads   create, attach and their opposites: any thread. A struct yb_shared and a view
 *           do not change afterwards.
 * Memory    A descriptor that was handed out is the receiver's to close; an attach only
 *           borrows it. Mapped bytes live until destroy, or detach, of each side.
 */
#ifndef YB_MEMORY_SHARED_H
#define YB_MEMORY_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_shared;

#define YB_SHARED_NUMA_ANY  UINT32_MAX
#define YB_SHARED_BYTES_MAX (1ull << 46)
#define YB_SHARED_NAME      "yuebing" /* /proc/PID/maps: memfd:yuebing, or memfd:yuebing-LABEL. */
#define YB_SHARED_LABEL_MAX 64u

struct yb_shared_options {
    uint64_t length;    /* Rounded up to whole pages; any odd size is fine. */
    bool huge;          /* Ask for huge pages; what came of it: yb_shared_huge_bytes(). */
    uint32_t numa_node; /* A hint; YB_SHARED_NUMA_ANY: none. */
    bool lend_writable; /* Some peers get descriptors that write: no FUTURE_WRITE seal (H2). */
    const char *label;  /* Who maps it can be found by this (survivors.h); NULL: by nothing. */
};

struct yb_shared_info {
    void *base;
    uint64_t length;     /* As asked for. */
    uint64_t bytes;      /* As allocated: whole pages. */
    int fd;              /* The owner's own, read and write; borrowed. */
    uint32_t page_bytes; /* Of the file system behind it: 2 MiB if the kernel gave huge pages. */
    uint32_t numa_node;  /* Where the first page really lies; YB_SHARED_NUMA_ANY: not known. */
    bool write_sealed;   /* Whether FUTURE_WRITE holds. */
};

/* Find "Name:  123 kB" in a text like /proc/meminfo; `name` ends with the colon. False: there is no
 * such line. Pure. */
bool yb_shared_meminfo(const char *meminfo, const char *name, uint64_t *bytes_out);

/* Return how much the machine can give, by a text like /proc/meminfo: what is available, and free
 * swap; UINT64_MAX: the text does not say. Pure. */
uint64_t yb_shared_spare(const char *meminfo);

/* Allocate, fill with zeroed pages, map and seal.
 *
 * On OK *shared_out is the caller's; `why_out` (may be NULL) gets "" or a sentence on what was
 * asked for and not had (huge pages, the node). Otherwise it gets a sentence with the remedy.
 * Fails with INVALID (length 0, node above 1023), TOO_LARGE, NO_MEMORY (more than the machine has
 * available, pages, descriptors, address space) or UNSUPPORTED (no memfd here). */
YB_CHECKED enum yb_status yb_shared_create(const struct yb_shared_options *options,
                                           struct yb_shared **shared_out, char *why_out,
                                           uint32_t why_bytes);

/* Unmap, close and set *shared to NULL. Views of others stay valid: they hold the pages. */
void yb_shared_destroy(struct yb_shared **shared);

struct yb_shared_info yb_shared_info(const struct yb_shared *shared);

/* Return how much of it the kernel maps by huge pages now, whether they were asked for or not;
 * UINT64_MAX: it does not say. The kernel walks the process's memory for the answer, which takes
 * milliseconds for each gigabyte: not for a worker. */
uint64_t yb_shared_huge_bytes(const struct yb_shared *shared);

/* What the lines of a text like /proc/self/smaps say of [first, end): set those two, zero the rest,
 * and give it each line. Pure. */
struct yb_shared_smaps {
    uintptr_t first;
    uintptr_t end;
    bool inside; /* The lines that come are about a mapping in there. */
    bool found;
    uint64_t huge_bytes;
};
void yb_shared_smaps_line(struct yb_shared_smaps *smaps, const char *line);

/* Make a descriptor to pass to another process; the caller's to close. `writable` only if the
 * options said lend_writable: INVALID otherwise. Fails with NO_MEMORY (descriptors) or DENIED
 * (/proc is not mounted, or forbids). */
YB_CHECKED enum yb_status yb_shared_descriptor(const struct yb_shared *shared, bool writable,
                                               int *fd_out);

/* A mapping of somebody else's shared memory. */
struct yb_shared_view {
    void *base; /* Read only, unless attached writable. */
    uint64_t bytes;
    uint32_t page_bytes;
    bool writable;
};

/* Check a received descriptor and map its first `length` bytes.
 *
 * Fails with DENIED (no memfd; its size is not sealed; its pages are not allocated; it does not
 * allow writing), TOO_SMALL (shorter than `length`), INVALID (length 0) or NO_MEMORY; then
 * `why_out` (may be NULL) says which. The descriptor may be closed afterwards. */
YB_CHECKED enum yb_status yb_shared_attach(int fd, uint64_t length, bool writable,
                                           struct yb_shared_view *view_out, char *why_out,
                                           uint32_t why_bytes);

/* Unmap and zero the view. */
void yb_shared_detach(struct yb_shared_view *view);

#endif /* YB_MEMORY_SHARED_H */
