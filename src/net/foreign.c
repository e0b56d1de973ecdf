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

enum yb_status
yb_foreign_put(void *to, const void *from, size_t length)
{
    const struct iovec local = {.iov_base = unconst(from), .iov_len = length};
    const struct iovec remote = {.iov_base = to, .iov_len = length};
    ssize_t done;

    if (length == 0) {
        return YB_OK;
    }
    done = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
    if (done == (ssize_t)length) {
        return YB_OK;
    }
    if (done >= 0 || errno == EFAULT) {
        return YB_FAULT;
    }
    memcpy(to, from, length); /* A sandbox forbids the call: trust the caller. */
    return YB_OK;
}

enum yb_status
yb_foreign_peek(const void *from, size_t length)
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

        if (yb_foreign_peek((void *)at, take) != YB_OK) {
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
