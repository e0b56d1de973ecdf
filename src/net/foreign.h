/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.h -- callers' memory, which may not be there.
 *
 * Data goes straight between sockets and memory that others own. They may have
 * unmapped it, taken its rights away or truncated the file behind it. The kernel
 * answers EFAULT to a call that meets such memory; an instruction of ours would end
 * the process. So what we touch ourselves we touch through the kernel.
 *
 * Threads   Any. What is checked may change a moment later: a check explains a fault, it
 *           does not prevent one.
 */
#ifndef YB_NET_FOREIGN_H
#define YB_NET_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

/* Copy into callers' memory. FAULT: it cannot be written; some of it may have been. */
YB_CHECKED enum yb_status yb_foreign_put(void *to, const void *from, size_t length);

/* Say whether a few pages can be read now: FAULT if not. At most 64 KiB. */
YB_CHECKED enum yb_status yb_foreign_peek(const void *from, size_t length);

/* Find out whether all of a range can be read, or with `writes` written, without changing it. Slow:
 * for when something has gone wrong. FAULT if not. */
YB_CHECKED enum yb_status yb_foreign_check(const void *address, uint64_t length, bool writes);

#endif /* YB_NET_FOREIGN_H */
