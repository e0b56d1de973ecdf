/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h -- two engines of one machine that have proved it to each other.
 *
 * The question and the answer travel on an authenticated connection and carry what
 * cannot be guessed: a token for each side, the nonce of each side's identity page and
 * where that page is. What follows happens on a unix socket, on the thread of the host:
 *
 *     initiator                                   target
 *       connect to the name in the answer
 *       peer's uid and pid, pidfd
 *       prove: the target's token, page  ----->   uid, pid, pidfd; token; page
 *                                                 read nonce back by attach
 *       token; page; read nonce back     <-----   proved: the initiator's token, page, abilities
 *
 *     ASKED --> UP --socket cut, process ended, protocol broken--> DOWN --close--> GONE
 *
 * A session has two abilities, each with a reason if it is missing. Mapping: either side
 * lends read-only descriptors of shared regions. Attach: reading ordinary memory, in
 * each direction for itself. The pid is the one that the kernel puts on the socket, in the
 * reader's own namespace; that it is the process that authenticated itself is proved by
 * reading the nonce out of its memory. A boot id is never a proof.
 *
 * Invariants
 *   N1  No session is UP unless both uids are equal and both tokens were shown. Nothing is
 *       read by attach unless the nonce was read back from the same pid.
 *   N2  What attach has brought counts only if a later call still finds the nonce
 *       (yb_shm_session_words): a pid that was given to another process, or a process that
 *       has called exec, is found out.
 *   N3  A mapping stays while it is pinned. It goes when the owner says that the region
 *       is gone, at the latest with the session.
 *   N4  A descriptor that came is mapped only if its size is sealed and it is as long as the
 *       note says (memory/shared.h). What is lent never allows writing (RULES A17).
 *   N5  A ticket is a word of this side's page. The target carries out a write only while its
 *       ticket stands there.
 *
 * Threads   A host has one thread, which owns all sockets and never takes part in data. It
 *           tells the loop of an initiator's session by mail. All else is under the host's lock,
 *           rank SHM, which is never held while something is copied or mapped; mail is posted
 *           under it.
 * Memory    Sessions are counted; what is mapped goes with the last reference.
 * Limits    1024 sessions of each kind, 64 strangers, 256 regions lent in each direction.
 */
#ifndef YB_TRANSFER_SHM_SESSION_H
#define YB_TRANSFER_SHM_SESSION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/loop.h"
#include "transfer/shm/shm.h"
#include "yuebing/types.h"

#define YB_SHM_NAME_BYTES  65u
#define YB_SHM_WHY_BYTES   128u
#define YB_SHM_TICKETS     32768u
#define YB_SHM_TICKETS_PER 32u /* That are taken at once. */
#define YB_SHM_WORDS_MAX   64u

struct yb_shm_session;

/* How one side introduces itself on the authenticated connection. */
struct yb_shm_intro {
    struct yb_id token; /* To be shown to it on the socket. */
    struct yb_id nonce;
    uint64_t page;
    uint32_t tickets;
    char name[YB_SHM_NAME_BYTES]; /* Of its socket; "" in a question. */
};

enum yb_shm_state { YB_SHM_ASKED, YB_SHM_UP, YB_SHM_DOWN, YB_SHM_GONE };

struct yb_shm_session_info {
    enum yb_shm_state state;
    bool process_ended;         /* Proved by its pidfd: nothing of it can land any more. */
    bool attach;                /* We can read its ordinary memory ... */
    bool attach_theirs;         /* ... and it ours. */
    char why[YB_SHM_WHY_BYTES]; /* Why it is DOWN. */
    char why_no_attach[YB_SHM_WHY_BYTES];
};

/* Fill in everything but the token; a fresh one is made. Fails with UNSUPPORTED, with `why_out`, if
 * this host has no socket. */
YB_CHECKED enum yb_status yb_shm_host_introduce(struct yb_shm_host *host,
                                                struct yb_shm_intro *mine_out,
                                                char why_out[YB_SHM_WHY_BYTES]);

/* Boot id of this host's kernel; none: not known. A hint. */
struct yb_id yb_shm_host_boot(const struct yb_shm_host *host);

/* ---- target ---------------------------------------------------------------------------------- */

/* Await the process `identity`, which introduced itself as `theirs`, on the socket; ten seconds.
 * Fails with UNSUPPORTED or AGAIN (too many), with `why_out`, or NO_MEMORY. */
YB_CHECKED enum yb_status yb_shm_session_expect(struct yb_shm_host *host, struct yb_id identity,
                                                const struct yb_shm_intro *theirs,
                                                struct yb_shm_intro *mine_out,
                                                char why_out[YB_SHM_WHY_BYTES]);

/* Find the session that is UP with our `token` and this identity, and count a reference; NULL:
 * none. */
struct yb_shm_session *yb_shm_session_find(struct yb_shm_host *host, struct yb_id token,
                                           struct yb_id identity);
void yb_shm_session_unref(struct yb_shm_session *session);

/* ---- initiator ------------------------------------------------------------------------------- */

struct yb_shm_session_options {
    struct yb_loop *loop;
    uint64_t tag;                      /* For yb_shm_session_of(); 0: it is not to be found. */
    const struct yb_shm_intro *mine;   /* As in the question. */
    const struct yb_shm_intro *theirs; /* As in the answer. */
    /* Something has changed: look at the info, and at what was asked for. On the loop's thread.
     * `gone`: it is GONE; this was the last news. */
    void (*news)(void *owner, bool gone);
    void *owner;
};

/* Begin to prove. On OK the session is the caller's until `news` says `gone`, which comes of
 * yb_shm_session_close() and of nothing else; then unref it. Fails with NO_MEMORY or AGAIN. */
YB_CHECKED enum yb_status yb_shm_session_connect(struct yb_shm_host *host,
                                                 const struct yb_shm_session_options *options,
                                                 struct yb_shm_session **session_out);
void yb_shm_session_close(struct yb_shm_session *session);

/* Find the session that is UP and has the `tag`, and count a reference; NULL: none. Any thread. */
struct yb_shm_session *yb_shm_session_of(struct yb_shm_host *host, uint64_t tag);

/* ---- processes, beyond their sessions (witness.c; any thread) -------------------------------- */

/* Keep watching the process of a target's session that is UP with this identity. Counted; one
 * yb_shm_host_unwitness() each. Fails with UNSUPPORTED (none, or no pidfd) or AGAIN (too many). */
YB_CHECKED enum yb_status yb_shm_host_witness(struct yb_shm_host *host, struct yb_id identity);
void yb_shm_host_unwitness(struct yb_shm_host *host, struct yb_id identity);
/* Whether the process that is watched under `identity` has ended. */
bool yb_shm_host_gone(struct yb_shm_host *host, struct yb_id identity);

/* ---- both ------------------------------------------------------------------------------------ */

/* How the peer introduced itself. */
void yb_shm_session_theirs(const struct yb_shm_session *session, struct yb_shm_intro *theirs_out);

void yb_shm_session_info(struct yb_shm_session *session, struct yb_shm_session_info *info_out);

/* Whether it is UP: one atomic load. */
bool yb_shm_session_up(const struct yb_shm_session *session);

/* Read the peer's memory; see attach.h. DENIED if the session has no attach. */
YB_CHECKED enum yb_status yb_shm_session_read(struct yb_shm_session *session,
                                              const struct iovec *local, const struct iovec *remote,
                                              uint32_t count, uint64_t *moved_out);

/* Read the nonce (N2) and the words at `addresses` (at most YB_SHM_WORDS_MAX) in one call. STALE:
 * it is not that process any more. FAULT: a word cannot be read. */
YB_CHECKED enum yb_status yb_shm_session_words(struct yb_shm_session *session,
                                               const uint64_t *addresses, uint32_t count,
                                               uint64_t *words_out);

/* Whether `ticket` stands at `slot` of the peer's page (N5): OK or STALE. With `attach` the word
 * and the nonce are read out of the process, as must be done behind bytes that were read so (RULES
 * A4); otherwise the mapped page tells, for next to nothing. */
YB_CHECKED enum yb_status yb_shm_session_ticket(struct yb_shm_session *session, uint32_t slot,
                                                uint64_t ticket, bool attach);

enum yb_shm_loan {
    YB_SHM_LOAN_NONE,  /* Was not asked for. */
    YB_SHM_LOAN_ASKED, /* Not answered yet; `news` comes (initiator). */
    YB_SHM_LOAN_READY,
    YB_SHM_LOAN_REFUSED, /* For ever: it has no descriptor, or the session has no room for it. */
};

struct yb_shm_mapped {
    const uint8_t *bytes; /* What is at `base` in the peer's memory. */
    uint64_t base;
    uint64_t length;
};

/* Pin the peer's `region` where it is mapped here. READY: unpin it soon. With `ask`, one that was
 * never asked for is. */
enum yb_shm_loan yb_shm_session_pin(struct yb_shm_session *session, uint64_t region, bool ask,
                                    struct yb_shm_mapped *mapped_out);
void yb_shm_session_unpin(struct yb_shm_session *session, uint64_t region);
/* The region is no more: unmap it when nobody has it pinned. */
void yb_shm_session_forget(struct yb_shm_session *session, uint64_t region);

/* Lend our `region`, if it was not lent yet; READY: the peer has it mapped. */
enum yb_shm_loan yb_shm_session_lend(struct yb_shm_session *session, uint64_t region);

/* ---- tickets of this host's page ------------------------------------------------------------- */

/* Take YB_SHM_TICKETS_PER neighbouring slots. AGAIN: all are taken. */
YB_CHECKED enum yb_status yb_shm_host_take_tickets(struct yb_shm_host *host, uint32_t *first_out);
void yb_shm_host_give_tickets(struct yb_shm_host *host, uint32_t first);
/* Put a fresh ticket into a slot, and return it; take it back out. */
uint64_t yb_shm_host_issue(struct yb_shm_host *host, uint32_t slot);
void yb_shm_host_revoke(struct yb_shm_host *host, uint32_t slot);

#endif /* YB_TRANSFER_SHM_SESSION_H */
