/* SPDX-License-Identifier: Apache-2.0
 *
 * attach.h -- cross-memory attach: read the memory of another process of this machine.
 *
 * It only reads. A late write cannot be taken back and lands in whatever the memory
 * has become by then, whereas a late read is found out afterwards and thrown away
 * (RULES A4). That a pid is the process it is taken for is the business of session.h.
 *
 * Threads   Any; no state.
 */
#ifndef YB_TRANSFER_SHM_ATTACH_H
#define YB_TRANSFER_SHM_ATTACH_H

#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "yuebing/status.h"

#define YB_SHM_VECTORS_MAX 256u

/* Copy `remote` of process `pid` to `local`: as many vectors, of the same lengths.
 *
 * `moved_out` gets how many bytes came, also when it fails: FAULT (the next byte cannot be read),
 * DENIED (the kernel forbids it), PEER_LOST (no such process), UNSUPPORTED (no such call here),
 * NO_MEMORY, or INVALID. */
YB_CHECKED enum yb_status yb_shm_attach_read(pid_t pid, const struct iovec *local,
                                             const struct iovec *remote, uint32_t count,
                                             uint64_t *moved_out);

/* Write a sentence about why attach failed with `status`, and the remedy. */
void yb_shm_attach_why(enum yb_status status, pid_t pid, char *why_out, uint32_t why_bytes);

/* Return a descriptor that becomes readable when the process has ended, or -1. */
int yb_shm_attach_pidfd(pid_t pid);

/* Whether the process is on its way out or has ended, and was not collected yet. */
bool yb_shm_attach_ending(pid_t pid);

/* Let process `pid`, which has proved itself, read this process where the kernel's yama module
 * asks for that. Only one process can be let in at a time, so that this is done for the first. */
void yb_shm_attach_allow(pid_t pid);
/* Take that back. */
void yb_shm_attach_forbid(void);

#endif /* YB_TRANSFER_SHM_ATTACH_H */
