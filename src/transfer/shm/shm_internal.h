/* SPDX-License-Identifier: Apache-2.0
 *
 * shm_internal.h -- the parts of a host and its sessions, for host.c, session.c and their test.
 */
#ifndef YB_TRANSFER_SHM_SHM_INTERNAL_H
#define YB_TRANSFER_SHM_SHM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/lock.h"
#include "memory/region.h"
#include "memory/shared.h"
#include "memory/writable.h"
#include "transfer/shm/session.h"
#include "transfer/wire/transfer_wire.h"

#define YB_SHM_HOST_MAGIC    0x73686d68u
#define YB_SHM_SESSION_MAGIC 0x73686d73u
#define YB_SHM_PAGE_MAGIC    0x3147505342594bull

#define YB_SHM_SESSIONS_MAX  1024u /* Of each kind. */
#define YB_SHM_STRANGERS_MAX 64u
#define YB_SHM_LOANS_MAX     256u
#define YB_SHM_LINGER_NS     (50 * YB_NS_PER_MS)
#define YB_SHM_ENDING_NS     (10 * YB_NS_PER_S) /* The same, of a process that is seen to end. */

/* The identity page: what peers read back. Shared memory, so that it can be mapped as well. */
struct yb_shm_page {
    uint64_t magic;
    struct yb_id nonce;
    uint8_t reserved[40];
    _Atomic(uint64_t) tickets[YB_SHM_TICKETS];
};
_Static_assert(offsetof(struct yb_shm_page, tickets) == 64, "the page is read by other processes");

/* What an event of the host's thread is about. */
enum yb_shm_source_kind {
    YB_SHM_SOURCE_LISTENER,
    YB_SHM_SOURCE_KICK,
    YB_SHM_SOURCE_STRANGER,
    YB_SHM_SOURCE_SOCKET,
    YB_SHM_SOURCE_PROCESS,
};

struct yb_shm_source {
    enum yb_shm_source_kind kind;
    int fd; /* -1: closed. */
    void *owner;
};

/* Somebody who connected and has not said who he is. */
struct yb_shm_stranger {
    struct yb_shm_source source;
    uint64_t deadline_ns;
};

/* A region of the peer, and its mapping here. */
struct yb_shm_view {
    uint64_t region; /* 0: free. */
    enum yb_shm_loan loan;
    bool unsent; /* The host's thread has still to ask. */
    bool dead;   /* To be unmapped with the last unpin. */
    uint32_t pins;
    struct yb_shared_view view;
    struct yb_shm_mapped mapped;
};

/* A region of ours that the peer has, or is to get. */
struct yb_shm_lent {
    uint64_t region; /* 0: free. */
    enum yb_shm_loan loan;
    bool unsent;
};

struct yb_shm_session {
    uint32_t magic;
    struct yb_shm_host *host;
    bool initiator;
    struct yb_shm_intro mine; /* Immutable, as the seven below. */
    struct yb_shm_intro theirs;
    struct yb_id identity; /* Target. */
    struct yb_loop *loop;  /* Initiator. */
    uint64_t tag;
    void (*news)(void *owner, bool gone);
    void *owner;
    uint64_t deadline_ns; /* Of the proof. */

    /* ---- the host's thread; written before UP, then read by others ---- */
    struct yb_shm_source socket;
    struct yb_shm_source process;
    bool connected; /* Initiator. */
    pid_t pid;
    bool attach;
    struct yb_shared_view page; /* Of the peer. */
    uint64_t lost_ns;           /* The thread's: the socket is closed; DOWN by then. 0: no. */

    /* ---- under the host's lock ---- */
    struct yb_shm_session *next;
    struct yb_shm_session *work_next;
    bool working; /* In the list of work. */
    bool closing;
    bool linked;
    uint32_t references;
    bool mail_out;
    struct yb_mail mail;
    struct yb_shm_session_info info;
    struct yb_shm_view views[YB_SHM_LOANS_MAX];
    struct yb_shm_lent lents[YB_SHM_LOANS_MAX];

    _Atomic(bool) up;
};

/* A process that somebody wants to hear of when its sessions are no more. */
struct yb_shm_witness {
    struct yb_id identity;
    int pidfd;
    uint32_t references; /* 0: free. */
};
#define YB_SHM_WITNESSES_MAX 1024u

struct yb_shm_host {
    uint32_t magic;
    struct yb_region_table *regions;
    struct yb_writable writable; /* Of this process's memory: copy.c asks. */
    struct yb_shared *page_memory;
    struct yb_shm_page *page;
    struct yb_id boot;
    char name[YB_SHM_NAME_BYTES];
    char why[YB_SHM_WHY_BYTES]; /* Why there is no socket. */
    int epoll;
    struct yb_shm_source listener;
    struct yb_shm_source kick;
    pthread_t thread;
    struct yb_shm_stranger strangers[YB_SHM_STRANGERS_MAX]; /* The thread's. */
    uint64_t swept_ns;
    uint64_t awake_ns; /* Look at all sessions often until then. */
    pid_t allowed;     /* Whom yama lets in; the thread's, as the next two. */
    bool blocked;      /* A socket was full. */
    bool deaf;         /* Out of descriptors: the listener is not watched. */
    _Atomic(uint64_t) next_ticket;
    _Atomic(bool) forbid_attach; /* Behave as if the kernel did: for tests of what follows. */

    struct yb_lock lock;
    bool stopping;
    struct yb_shm_session *sessions;
    uint32_t initiators;
    uint32_t targets;
    struct yb_shm_session *work;
    uint64_t ticket_map[YB_SHM_TICKETS / YB_SHM_TICKETS_PER / 64];
    struct yb_shm_witness witnesses[YB_SHM_WITNESSES_MAX];
};

/* ---- session.c: one session, on the host's thread -------------------------------------------- */

/* Connect, send what is unsent, or close: whatever is to be done. */
void yb_shm_session_attend(struct yb_shm_session *session);
/* A packet can be read. */
void yb_shm_session_readable(struct yb_shm_session *session);
void yb_shm_session_cut(struct yb_shm_session *session, bool process_ended, const char *why);
/* The stranger showed a note; takes the socket if it is a proof for an expected session. */
void yb_shm_session_admit(struct yb_shm_host *host, struct yb_shm_stranger *stranger);
/* Find out which lent regions are no more. */
void yb_shm_session_sweep(struct yb_shm_session *session, uint64_t now_ns);

/* ---- loan.c: regions that are lent, on the host's thread ------------------------------------- */

void yb_shm_loan_send(struct yb_shm_session *session);
void yb_shm_loan_wanted(struct yb_shm_session *session, uint64_t region);
/* Consumes the descriptor (-1: none came). */
void yb_shm_loan_came(struct yb_shm_session *session, const struct yb_wire_shm_note *note, int fd);
void yb_shm_loan_taken(struct yb_shm_session *session, const struct yb_wire_shm_note *note);
void yb_shm_loan_sweep(struct yb_shm_session *session);
/* Unmap everything; nothing is pinned. */
void yb_shm_loan_drop_all(struct yb_shm_session *session);

/* ---- note.c: packets of the unix socket ------------------------------------------------------ */

/* Send a note, with a descriptor unless `fd` is -1. AGAIN: the socket is full. PEER_LOST. */
YB_CHECKED enum yb_status yb_shm_note_send(int socket, const struct yb_wire_shm_note *note, int fd);
/* Take the next note; *fd_out is -1 or the caller's. AGAIN: none is there. PEER_LOST: closed.
 * PROTOCOL: not a note. */
YB_CHECKED enum yb_status yb_shm_note_receive(int socket, struct yb_wire_shm_note *note_out,
                                              int *fd_out);

/* ---- host.c ---------------------------------------------------------------------------------- */

/* Put the session on the list of work, and wake the thread. */
void yb_shm_host_work_locked(struct yb_shm_session *session);
void yb_shm_host_wake(struct yb_shm_host *host);
/* Watch or leave a source; on the host's thread. */
YB_CHECKED enum yb_status yb_shm_host_watch(struct yb_shm_host *host, struct yb_shm_source *source);
void yb_shm_host_unwatch(struct yb_shm_host *host, struct yb_shm_source *source);
/* Stop watching, and hand the descriptor over. */
int yb_shm_host_release(struct yb_shm_host *host, struct yb_shm_source *source);
/* Tell the session's loop, if it has one; `gone`: for the last time. */
void yb_shm_host_tell(struct yb_shm_session *session, bool gone);
void yb_shm_host_unref_locked(struct yb_shm_session *session, bool *last_out);
void yb_shm_host_unlink(struct yb_shm_session *session);

#endif /* YB_TRANSFER_SHM_SHM_INTERNAL_H */
