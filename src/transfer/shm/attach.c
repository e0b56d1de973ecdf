/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/shm/attach.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"

#define EXITING 0x4ul /* PF_EXITING of the kernel: set before a process closes its files. */

static enum yb_status
status_of(int error)
{
    switch (error) {
    case EFAULT: return YB_FAULT;
    case EPERM:
    case EACCES: return YB_DENIED;
    case ESRCH: return YB_PEER_LOST;
    case ENOSYS: return YB_UNSUPPORTED;
    case ENOMEM: return YB_NO_MEMORY;
    default: return YB_INVALID;
    }
}

enum yb_status
yb_shm_attach_read(pid_t pid, const struct iovec *local, const struct iovec *remote, uint32_t count,
                   uint64_t *moved_out)
{
    uint64_t wanted = 0;
    ssize_t moved;

    YB_ASSERT(pid > 0);
    YB_ASSERT(count > 0 && count <= YB_SHM_VECTORS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(local[i].iov_len == remote[i].iov_len);
        wanted += local[i].iov_len;
    }
    *moved_out = 0;
    moved = process_vm_readv(pid, local, count, remote, count, 0);
    if (moved < 0) {
        return status_of(errno);
    }
    *moved_out = (uint64_t)moved;
    return *moved_out == wanted ? YB_OK : YB_FAULT; /* It stops short of what it cannot read. */
}

void
yb_shm_attach_why(enum yb_status status, pid_t pid, char *why_out, uint32_t why_bytes)
{
    const char *text = yb_status_text(status);

    switch (status) {
    case YB_DENIED:
        text = "forbidden; see kernel.yama.ptrace_scope, seccomp profile, CAP_SYS_PTRACE";
        break;
    case YB_UNSUPPORTED: text = "no such call; see the container's seccomp profile"; break;
    case YB_PEER_LOST: text = "no such process in this pid namespace"; break;
    case YB_FAULT:
    case YB_STALE: text = "its identity page is not there: another process"; break;
    default: break;
    }
    (void)snprintf(why_out, why_bytes, "reading memory of process %d: %s", (int)pid, text);
}

int
yb_shm_attach_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0); /* Close-on-exec by itself. */
}

bool
yb_shm_attach_ending(pid_t pid)
{
    char text[512]; /* Of proc(5): "pid (name) state ppid pgrp session tty tpgid flags ...". */
    unsigned long flags = 0;
    const char *after;
    FILE *file;
    size_t count;

    (void)snprintf(text, sizeof(text), "/proc/%d/stat", (int)pid);
    file = fopen(text, "re");
    if (file == NULL) {
        return false;
    }
    count = fread(text, 1, sizeof(text) - 1, file);
    (void)fclose(file);
    text[count] = '\0';
    after = strrchr(text, ')'); /* A name may have anything in it. */
    return after != NULL && sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %lu", &flags) == 1 &&
           (flags & EXITING) != 0;
}

void
yb_shm_attach_allow(pid_t pid)
{
    (void)prctl(PR_SET_PTRACER, (unsigned long)pid, 0, 0, 0); /* Fails where no yama is. */
}

void
yb_shm_attach_forbid(void)
{
    (void)prctl(PR_SET_PTRACER, 0, 0, 0, 0);
}
