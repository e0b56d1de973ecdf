/* SPDX-License-Identifier: Apache-2.0 */
#include "net/foreign.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"

#define PAGE_BYTES     4096u
#define PEEK_BYTES_MAX (64u * 1024u)
#define PEEK_PAGES     (PEEK_BYTES_MAX / PAGE_BYTES + 1)

/* Linux 5.14; headers of Debian 12 have them, others may not. */
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

static void *
unconst(const void *address)
{
    union {
        const void *in;
        void *out;
    } base = {.in = address};

    return base.out;
}

/* ---- the window ------------------------------------------------------------------------------ */

void
yb_foreign_init(struct yb_foreign *foreign)
{
    *foreign = (struct yb_foreign){.fd = -1};
}

void
yb_foreign_fini(struct yb_foreign *foreign)
{
    if (foreign->window != NULL) {
        (void)munmap(foreign->window, YB_FOREIGN_TAKE_BYTES_MAX);
    }
    if (foreign->fd >= 0) {
        (void)close(foreign->fd);
    }
    yb_foreign_init(foreign);
}

/* Without a file the window is memory like any other. Returns whether there is a window. */
static bool
open_window(struct yb_foreign *foreign)
{
    void *window = MAP_FAILED;

    foreign->opened = true;
    foreign->fd = memfd_create("yuebing-window", MFD_CLOEXEC);
    if (foreign->fd >= 0 && ftruncate(foreign->fd, YB_FOREIGN_TAKE_BYTES_MAX) == 0) {
        window = mmap(NULL, YB_FOREIGN_TAKE_BYTES_MAX, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_POPULATE, foreign->fd, 0);
    }
    if (window == MAP_FAILED) {
        if (foreign->fd >= 0) {
            (void)close(foreign->fd);
            foreign->fd = -1;
        }
        window = mmap(NULL, YB_FOREIGN_TAKE_BYTES_MAX, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    foreign->window = window == MAP_FAILED ? NULL : window;
    return foreign->window != NULL;
}

static bool
has_window(struct yb_foreign *foreign)
{
    return foreign->opened ? foreign->window != NULL : open_window(foreign);
}

/* Judge a copy: the kernel stops short of what it cannot touch. AGAIN: it does not do such. */
static enum yb_status
judge(ssize_t done, size_t length)
{
    if (done == (ssize_t)length) {
        return YB_OK;
    }
    return done >= 0 || errno == EFAULT ? YB_FAULT : YB_AGAIN;
}

/* Copy with a call that is about the memory of processes. */
static enum yb_status
copy_by_process(void *to, const void *from, size_t length)
{
    const struct iovec local = {.iov_base = unconst(from), .iov_len = length};
    const struct iovec remote = {.iov_base = to, .iov_len = length};
    enum yb_status status = judge(process_vm_writev(getpid(), &local, 1, &remote, 1, 0), length);

    if (status == YB_AGAIN) {
        memcpy(to, from, length); /* A sandbox forbids the call: trust the caller. */
        return YB_OK;
    }
    return status;
}

static enum yb_status
put_piece(struct yb_foreign *foreign, void *to, const uint8_t *from, size_t length)
{
    enum yb_status status = YB_AGAIN;

    if (has_window(foreign) && foreign->fd >= 0) {
        memcpy(foreign->window, from, length);
        status = judge(pread(foreign->fd, to, length, 0), length);
    }
    return status == YB_AGAIN ? copy_by_process(to, from, length) : status;
}

enum yb_status
yb_foreign_put(struct yb_foreign *foreign, void *to, const void *from, size_t length)
{
    enum yb_status status = YB_OK;

    for (size_t at = 0; at < length && status == YB_OK; at += YB_FOREIGN_TAKE_BYTES_MAX) {
        size_t left = length - at;
        size_t take = left < YB_FOREIGN_TAKE_BYTES_MAX ? left : YB_FOREIGN_TAKE_BYTES_MAX;

        status = put_piece(foreign, (uint8_t *)to + at, (const uint8_t *)from + at, take);
    }
    return status;
}

enum yb_status
yb_foreign_take(struct yb_foreign *foreign, const void *from, size_t length,
                const uint8_t **copy_out)
{
    enum yb_status status = YB_AGAIN;

    YB_ASSERT(length <= YB_FOREIGN_TAKE_BYTES_MAX);
    if (!has_window(foreign)) {
        return YB_NO_MEMORY;
    }
    if (foreign->fd >= 0) {
        status = judge(pwrite(foreign->fd, from, length, 0), length);
    }
    if (status == YB_AGAIN) {
        const struct iovec local = {.iov_base = foreign->window, .iov_len = length};
        const struct iovec remote = {.iov_base = unconst(from), .iov_len = length};

        status = judge(process_vm_readv(getpid(), &local, 1, &remote, 1, 0), length);
    }
    if (status == YB_AGAIN) {
        memcpy(foreign->window, from, length); /* As above. */
        status = YB_OK;
    }
    if (status == YB_OK) {
        *copy_out = foreign->window;
    }
    return status;
}

/* ---- the check ------------------------------------------------------------------------------- */

/* Say whether a few pages can be read now. */
static enum yb_status
peek(const void *from, size_t length)
{
    uint8_t seen[PEEK_PAGES];
    struct iovec local = {.iov_base = seen};
    struct iovec remote[PEEK_PAGES];
    uintptr_t at = (uintptr_t)from;
    const uintptr_t end = at + length;
    uint32_t count = 0;
    ssize_t done;

    YB_ASSERT(length <= PEEK_BYTES_MAX);
    while (at < end) {
        remote[count].iov_base = (void *)at; /* A byte of each page. */
        remote[count++].iov_len = 1;
        at += PAGE_BYTES - at % PAGE_BYTES;
    }
    if (count == 0) {
        return YB_OK;
    }
    local.iov_len = count;
    done = process_vm_readv(getpid(), &local, 1, remote, count, 0);
    return done == (ssize_t)count || (done < 0 && errno != EFAULT) ? YB_OK : YB_FAULT;
}

enum yb_status
yb_foreign_check(const void *address, uint64_t length, bool writes)
{
    uintptr_t at = (uintptr_t)address;
    const uintptr_t end = at + length;

    YB_ASSERT(length <= UINTPTR_MAX - at);
    while (at < end) {
        size_t left = end - at;
        size_t take = left < PEEK_BYTES_MAX - PAGE_BYTES ? left : PEEK_BYTES_MAX - PAGE_BYTES;
        uintptr_t first = at - at % PAGE_BYTES;

        if (peek((void *)at, take) != YB_OK) {
            return YB_FAULT;
        }
        /* That it can be written only the kernel finds out without writing. EINVAL: it may not
         * know the question, or the range forbids it; ask about memory that surely can. */
        if (writes && madvise((void *)first, at + take - first, MADV_POPULATE_WRITE) != 0) {
            uint8_t own;
            uintptr_t page = (uintptr_t)&own - (uintptr_t)&own % PAGE_BYTES;

            if (errno == EFAULT || errno == ENOMEM ||
                madvise((void *)page, PAGE_BYTES, MADV_POPULATE_WRITE) == 0) {
                return YB_FAULT;
            }
        }
        at += take;
    }
    return YB_OK;
}
