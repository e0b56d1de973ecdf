/* SPDX-License-Identifier: Apache-2.0
 *
 * What outlives a session: that a process has ended.
 *
 * A session knows it by its pidfd, but a session may be cut while the process lives on. Whoever
 * lends memory to a process keeps a pidfd of his own, taken from a session that was proved.
 */
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/check.h"
#include "transfer/shm/shm_internal.h"

struct yb_shm_session *
yb_shm_session_of(struct yb_shm_host *host, uint64_t tag)
{
    struct yb_shm_session *session;

    YB_ASSERT_OBJ(host, YB_SHM_HOST_MAGIC);
    yb_lock_acquire(&host->lock);
    for (session = host->sessions; session != NULL; session = session->next) {
        if (session->initiator && session->tag == tag && session->info.state == YB_SHM_UP) {
            session->references++;
            break;
        }
    }
    yb_lock_release(&host->lock);
    return session;
}

static struct yb_shm_witness *
witness_of_locked(struct yb_shm_host *host, struct yb_id identity)
{
    yb_lock_assert_held(&host->lock);
    for (uint32_t i = 0; i < YB_SHM_WITNESSES_MAX; i++) {
        struct yb_shm_witness *witness = &host->witnesses[i];

        if (witness->references > 0 && yb_id_equal(witness->identity, identity)) {
            return witness;
        }
    }
    return NULL;
}

/* Return a pidfd of our own of the process that has proved to be `identity`; -1: nobody has. */
static int
take_pidfd_locked(struct yb_shm_host *host, struct yb_id identity)
{
    yb_lock_assert_held(&host->lock);
    for (struct yb_shm_session *s = host->sessions; s != NULL; s = s->next) {
        if (!s->initiator && s->info.state == YB_SHM_UP && s->process.fd >= 0 &&
            yb_id_equal(s->identity, identity)) {
            return fcntl(s->process.fd, F_DUPFD_CLOEXEC, 0);
        }
    }
    return -1;
}

enum yb_status
yb_shm_host_witness(struct yb_shm_host *host, struct yb_id identity)
{
    struct yb_shm_witness *witness;
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(host, YB_SHM_HOST_MAGIC);
    yb_lock_acquire(&host->lock);
    witness = witness_of_locked(host, identity);
    for (uint32_t i = 0; witness == NULL && i < YB_SHM_WITNESSES_MAX; i++) {
        if (host->witnesses[i].references == 0) {
            witness = &host->witnesses[i];
            witness->identity = identity;
            witness->pidfd = take_pidfd_locked(host, identity);
        }
    }
    if (witness == NULL) {
        status = YB_AGAIN;
    } else if (witness->pidfd < 0) {
        status = YB_UNSUPPORTED;
    } else {
        witness->references++;
    }
    yb_lock_release(&host->lock);
    return status;
}

void
yb_shm_host_unwitness(struct yb_shm_host *host, struct yb_id identity)
{
    struct yb_shm_witness *witness;
    int pidfd = -1;

    yb_lock_acquire(&host->lock);
    witness = witness_of_locked(host, identity);
    YB_ASSERT(witness != NULL);
    if (--witness->references == 0) {
        pidfd = witness->pidfd;
    }
    yb_lock_release(&host->lock);
    if (pidfd >= 0) {
        (void)close(pidfd);
    }
}

bool
yb_shm_host_gone(struct yb_shm_host *host, struct yb_id identity)
{
    struct yb_shm_witness *witness;
    struct pollfd process = {.fd = -1, .events = POLLIN};

    yb_lock_acquire(&host->lock);
    witness = witness_of_locked(host, identity);
    process.fd = witness != NULL ? witness->pidfd : -1;
    yb_lock_release(&host->lock);
    /* Whoever asks holds a reference of it, so that it stays open. */
    return process.fd >= 0 && poll(&process, 1, 0) == 1 && (process.revents & POLLIN) != 0;
}
