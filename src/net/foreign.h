/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.h -- callers' memory, which may not be there.
 *
 * Data goes straight between sockets and memory that others own. They may have
 * unmapped it, taken its rights away or truncated the file behind it. The kernel
 * answers EFAULT to a call that meets such memory; an instruction of ours would end
 * the process. So what we touch ourselves we touch through the kernel.
 *
 * For a few KiB the cheapest way is a file in memory that is mapped here, the window: bytes are
 * put into it by hand and read from it into callers' memory, or the other way round. Calls that
 * reach into the memory of a process, which is what they are made for, take three times as long.
 *
 * Threads   A window: one thread at a time. The check: any; what it looks at may change a moment
 *           later, so that it explains a fault, and does not prevent one.
 * Memory    A window is its owner's, in place; it takes a descriptor and a mapping when it is first
 *           used. Where there is none to be had, it does without.
 */
#ifndef YB_NET_FOREIGN_H
#define YB_NET_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_FOREIGN_TAKE_BYTES_MAX (16u * 1024u)

struct yb_foreign {
    int fd; /* -1: none. */
    bool opened;
    uint8_t *window; /* YB_FOREIGN_TAKE_BYTES_MAX, never NULL once opened. */
};

void yb_foreign_init(struct yb_foreign *foreign);
void yb_foreign_fini(struct yb_foreign *foreign);

/* Copy into callers' memory. FAULT: it cannot be written; some of it may have been. */
YB_CHECKED enum yb_status yb_foreign_put(struct yb_foreign *foreign, void *to, const void *from,
                                         size_t length);

/* Copy callers' memory, at most YB_FOREIGN_TAKE_BYTES_MAX; *copy_out is good until the next call.
 * FAULT: it cannot be read. NO_MEMORY: there is nowhere to copy it to. */
YB_CHECKED enum yb_status yb_foreign_take(struct yb_foreign *foreign, const void *from,
                                          size_t length, const uint8_t **copy_out);

/* Find out whether all of a range can be read, or with `writes` written, without changing it. Slow:
 * for when something has gone wrong. FAULT if not. */
YB_CHECKED enum yb_status yb_foreign_check(const void *address, uint64_t length, bool writes);

#endif /* YB_NET_FOREIGN_H */
