/* SPDX-License-Identifier: Apache-2.0
 *
 * One session: the proof, what is said afterwards, and its end; and what the workers ask of it.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "transfer/shm/attach.h"
#include "transfer/shm/shm_internal.h"

/* Bytes of the page before its tickets. */
#define PAGE_HEAD offsetof(struct yb_shm_page, tickets)

#define CLOSED_SOCKET "the peer closed the unix socket"

struct page_head {
    uint64_t magic;
    struct yb_id nonce;
};

/* ---- reading the peer ------------------------------------------------------------------------ */

bool
yb_shm_session_up(const struct yb_shm_session *session)
{
    return atomic_load_explicit(&session->up, memory_order_acquire);
}

static enum yb_status
attach_read(struct yb_shm_session *session, const struct iovec *local, const struct iovec *remote,
            uint32_t count, uint64_t *moved_out)
{
    *moved_out = 0;
    if (atomic_load_explicit(&session->host->forbid_attach, memory_order_relaxed)) {
        return YB_DENIED;
    }
    return yb_shm_attach_read(session->pid, local, remote, count, moved_out);
}

enum yb_status
yb_shm_session_read(struct yb_shm_session *session, const struct iovec *local,
                    const struct iovec *remote, uint32_t count, uint64_t *moved_out)
{
    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    if (!session->attach) {
        *moved_out = 0;
        return YB_DENIED;
    }
    return attach_read(session, local, remote, count, moved_out);
}

/* An address that came from the peer is only ever a number here. */
static struct iovec
remote_vector(uint64_t address, uint64_t length)
{
    struct iovec vector = {.iov_len = length};

    memcpy(&vector.iov_base, &address, sizeof(vector.iov_base));
    return vector;
}

static enum yb_status
read_words(struct yb_shm_session *session, const uint64_t *addresses, uint32_t count,
           uint64_t *words_out)
{
    struct page_head head = {0};
    struct iovec local[YB_SHM_WORDS_MAX + 1];
    struct iovec remote[YB_SHM_WORDS_MAX + 1];
    enum yb_status status;
    uint64_t moved;

    YB_ASSERT(count <= YB_SHM_WORDS_MAX);
    local[0] = (struct iovec){.iov_base = &head, .iov_len = sizeof(head)};
    remote[0] = remote_vector(session->theirs.page, sizeof(head));
    for (uint32_t i = 0; i < count; i++) {
        local[i + 1] = (struct iovec){.iov_base = &words_out[i], .iov_len = sizeof(uint64_t)};
        remote[i + 1] = remote_vector(addresses[i], sizeof(uint64_t));
    }
    status = attach_read(session, local, remote, count + 1, &moved);
    if (status != YB_OK && status != YB_FAULT) {
        return status;
    }
    if (moved < sizeof(head) || head.magic != YB_SHM_PAGE_MAGIC ||
        !yb_id_equal(head.nonce, session->theirs.nonce)) {
        return YB_STALE;
    }
    return status;
}

enum yb_status
yb_shm_session_words(struct yb_shm_session *session, const uint64_t *addresses, uint32_t count,
                     uint64_t *words_out)
{
    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    return session->attach ? read_words(session, addresses, count, words_out) : YB_DENIED;
}

enum yb_status
yb_shm_session_ticket(struct yb_shm_session *session, uint32_t slot, uint64_t ticket, bool attach)
{
    uint64_t word = 0;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    YB_ASSERT(!attach || session->attach);
    if (slot >= session->theirs.tickets || slot >= YB_SHM_TICKETS) {
        return YB_STALE;
    }
    if (attach) {
        const uint64_t address = session->theirs.page + PAGE_HEAD + slot * sizeof(uint64_t);
        enum yb_status status = read_words(session, &address, 1, &word);

        if (status != YB_OK) {
            return status == YB_FAULT ? YB_STALE : status;
        }
    } else {
        struct yb_shm_page *page = session->page.base;

        atomic_thread_fence(memory_order_seq_cst); /* The data was read before. */
        word = atomic_load(&page->tickets[slot]);
        atomic_thread_fence(memory_order_seq_cst); /* Or is read afterwards. */
    }
    return word == ticket ? YB_OK : YB_STALE;
}

void
yb_shm_session_info(struct yb_shm_session *session, struct yb_shm_session_info *info_out)
{
    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    yb_lock_acquire(&session->host->lock);
    *info_out = session->info;
    yb_lock_release(&session->host->lock);
}

void
yb_shm_session_theirs(const struct yb_shm_session *session, struct yb_shm_intro *theirs_out)
{
    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    *theirs_out = session->theirs;
}

void
yb_shm_session_close(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    YB_ASSERT(session->initiator);
    yb_lock_acquire(&host->lock);
    session->closing = true;
    yb_shm_host_work_locked(session);
    yb_lock_release(&host->lock);
    yb_shm_host_wake(host);
}

/* ---- state ----------------------------------------------------------------------------------- */

static enum yb_shm_state
state_of(struct yb_shm_session *session)
{
    enum yb_shm_state state;

    yb_lock_acquire(&session->host->lock);
    state = session->info.state;
    yb_lock_release(&session->host->lock);
    return state;
}

void
yb_shm_session_cut(struct yb_shm_session *session, bool process_ended, const char *why)
{
    struct yb_shm_host *host = session->host;
    struct yb_shm_source socket;
    struct yb_shm_source process;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    atomic_store(&session->up, false);
    yb_lock_acquire(&host->lock);
    socket = session->socket;
    process = session->process;
    session->socket.fd = -1;
    session->process.fd = -1;
    yb_lock_release(&host->lock);
    yb_shm_host_unwatch(host, &socket);
    yb_shm_host_unwatch(host, &process);
    if (host->allowed != 0 && host->allowed == session->pid) {
        yb_shm_attach_forbid();
        host->allowed = 0;
    }
    yb_lock_acquire(&host->lock);
    session->references++; /* Unlinking may give the last one away. */
    if (session->info.state < YB_SHM_DOWN) {
        session->info.state = YB_SHM_DOWN;
        session->info.process_ended = process_ended;
        (void)snprintf(session->info.why, sizeof(session->info.why), "%s", why);
    }
    yb_lock_release(&host->lock);
    if (session->initiator) {
        yb_shm_host_tell(session, false);
    } else {
        yb_shm_host_unlink(session);
    }
    yb_shm_session_unref(session);
}

/* The owner has no more use for it: this is the last that he hears. */
static void
finish(struct yb_shm_session *session)
{
    yb_shm_session_cut(session, false, "closed");
    yb_shm_host_unlink(session);
    yb_shm_host_tell(session, true);
}

static void
cut_errno(struct yb_shm_session *session, const char *what, int error)
{
    char why[YB_SHM_WHY_BYTES];

    (void)snprintf(why, sizeof(why), "%s: %s", what, strerrordesc_np(error));
    yb_shm_session_cut(session, false, why);
}

/* ---- proof ----------------------------------------------------------------------------------- */

/* Take pid and uid from the socket. Returns false, with the session cut, if it is a stranger. */
static bool
take_credentials(struct yb_shm_session *session)
{
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);
    char why[YB_SHM_WHY_BYTES];

    if (getsockopt(session->socket.fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
        cut_errno(session, "the peer's credentials cannot be read", errno);
        return false;
    }
    if (peer.uid != geteuid()) {
        (void)snprintf(why, sizeof(why),
                       "the peer runs as user %u, this process as user %u; run both as one",
                       (unsigned)peer.uid, (unsigned)geteuid());
        yb_shm_session_cut(session, false, why);
        return false;
    }
    session->pid = peer.pid;
    if (session->pid > 0) {
        session->process.fd = yb_shm_attach_pidfd(session->pid);
    }
    if (session->process.fd >= 0 && yb_shm_host_watch(session->host, &session->process) != YB_OK) {
        yb_shm_session_cut(session, false, "out of descriptors");
        return false;
    }
    return true;
}

static void
allow_peer(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;

    if (session->pid > 0 && session->pid != getpid() && host->allowed == 0) {
        yb_shm_attach_allow(session->pid);
        host->allowed = session->pid;
    }
}

/* Read the nonce out of the process on the socket. Returns false, with the session cut, if what is
 * there can be read and is not what it should be. */
static bool
try_attach(struct yb_shm_session *session)
{
    char why[YB_SHM_WHY_BYTES] = "";
    enum yb_status status = YB_UNSUPPORTED;

    if (session->pid == 0) {
        (void)snprintf(
            why, sizeof(why),
            "the peer lives in another pid namespace; share one (--pid of the container)");
    } else if (session->process.fd < 0) {
        (void)snprintf(why, sizeof(why), "no pidfd for process %d", (int)session->pid);
    } else {
        status = read_words(session, NULL, 0, NULL);
        if (status != YB_OK) {
            yb_shm_attach_why(status, session->pid, why, sizeof(why));
        }
    }
    if (status == YB_STALE) {
        yb_shm_session_cut(session, false, why);
        return false;
    }
    session->attach = status == YB_OK;
    yb_lock_acquire(&session->host->lock);
    session->info.attach = session->attach;
    memcpy(session->info.why_no_attach, why, sizeof(why));
    yb_lock_release(&session->host->lock);
    return true;
}

/* Map the peer's page. Consumes the descriptor. */
static bool
take_page(struct yb_shm_session *session, int fd)
{
    char text[YB_SHM_WHY_BYTES] = "no descriptor came with the proof";
    char why[YB_SHM_WHY_BYTES];
    enum yb_status status = YB_DENIED;
    const struct yb_shm_page *page;

    if (fd >= 0) {
        status = yb_shared_attach(fd, sizeof(struct yb_shm_page), false, &session->page, text,
                                  sizeof(text));
        (void)close(fd);
    }
    if (status != YB_OK) {
        (void)snprintf(why, sizeof(why), "the peer's identity page: %.90s", text);
        yb_shm_session_cut(session, false, why);
        return false;
    }
    page = session->page.base;
    if (page->magic != YB_SHM_PAGE_MAGIC || !yb_id_equal(page->nonce, session->theirs.nonce)) {
        yb_shm_session_cut(session, false, "the peer's identity page is another process's");
        return false;
    }
    return true;
}

static void
set_up(struct yb_shm_session *session, bool attach_theirs)
{
    yb_lock_acquire(&session->host->lock);
    session->info.state = YB_SHM_UP;
    session->info.attach_theirs = attach_theirs;
    yb_lock_release(&session->host->lock);
    atomic_store_explicit(&session->up, true, memory_order_release);
    yb_shm_host_tell(session, false);
}

/* Send `prove` or `proved`, with our page. */
static bool
show(struct yb_shm_session *session, uint16_t kind)
{
    struct yb_wire_shm_note note = {
        .kind = kind,
        .abilities = session->attach ? YB_WIRE_SHM_ABILITY_ATTACH : 0,
        .token = session->theirs.token,
    };
    enum yb_status status;
    int fd;

    status = yb_shared_descriptor(session->host->page_memory, false, &fd);
    if (status != YB_OK) {
        yb_shm_session_cut(session, false, "no descriptor of the identity page can be made");
        return false;
    }
    status = yb_shm_note_send(session->socket.fd, &note, fd);
    (void)close(fd);
    if (status != YB_OK) {
        yb_shm_session_cut(session, false, CLOSED_SOCKET);
    }
    return status == YB_OK;
}

static void
connect_to(struct yb_shm_session *session)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t name = strnlen(session->theirs.name, YB_SHM_NAME_BYTES - 1);
    socklen_t length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + name);

    memcpy(address.sun_path + 1, session->theirs.name, name);
    if (session->socket.fd < 0) {
        session->socket.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    if (session->socket.fd < 0) {
        cut_errno(session, "no unix socket can be opened", errno);
        return;
    }
    if (connect(session->socket.fd, (struct sockaddr *)&address, length) != 0) {
        if (errno != EAGAIN) {
            cut_errno(session,
                      "the peer's unix socket is not in this network namespace; share one "
                      "(--network of the container)",
                      errno);
        }
        return; /* Its queue is full: again at the next sweep. */
    }
    session->connected = true;
    if (yb_shm_host_watch(session->host, &session->socket) != YB_OK) {
        yb_shm_session_cut(session, false, "out of descriptors");
        return;
    }
    if (!take_credentials(session)) {
        return;
    }
    allow_peer(session); /* Only who was told the name by our peer listens there. */
    (void)show(session, YB_WIRE_SHM_NOTE_KIND_PROVE);
}

/* The stranger's token is one that was given to an authenticated peer. */
static void
prove_target(struct yb_shm_session *session, int fd)
{
    if (!take_credentials(session) || !take_page(session, fd)) {
        return;
    }
    allow_peer(session);
    if (try_attach(session)) {
        set_up(session, false); /* First: the initiator's next word may overtake ours. */
        (void)show(session, YB_WIRE_SHM_NOTE_KIND_PROVED);
    }
}

static void
on_proved(struct yb_shm_session *session, const struct yb_wire_shm_note *note, int fd)
{
    if (!yb_id_equal(note->token, session->mine.token)) {
        if (fd >= 0) {
            (void)close(fd);
        }
        yb_shm_session_cut(session, false, "the unix socket belongs to somebody else");
        return;
    }
    if (take_page(session, fd) && try_attach(session)) {
        set_up(session, (note->abilities & YB_WIRE_SHM_ABILITY_ATTACH) != 0);
    }
}

/* Find who awaits this token, once. */
static struct yb_shm_session *
find_expecting(struct yb_shm_host *host, struct yb_id token)
{
    struct yb_shm_session *session;

    yb_lock_acquire(&host->lock);
    for (session = host->sessions; session != NULL; session = session->next) {
        if (!session->initiator && session->info.state == YB_SHM_ASKED && session->socket.fd < 0 &&
            yb_id_equal(session->mine.token, token)) {
            session->references++;
            break;
        }
    }
    yb_lock_release(&host->lock);
    return session;
}

void
yb_shm_session_admit(struct yb_shm_host *host, struct yb_shm_stranger *stranger)
{
    struct yb_wire_shm_note note;
    struct yb_shm_session *session = NULL;
    int fd = -1;
    enum yb_status status = yb_shm_note_receive(stranger->source.fd, &note, &fd);

    if (status == YB_AGAIN) {
        return;
    }
    if (status == YB_OK && note.kind == YB_WIRE_SHM_NOTE_KIND_PROVE) {
        session = find_expecting(host, note.token);
    }
    if (session == NULL) {
        yb_shm_host_unwatch(host, &stranger->source);
        if (status == YB_OK && fd >= 0) {
            (void)close(fd);
        }
        return;
    }
    session->socket.fd = yb_shm_host_release(host, &stranger->source);
    if (yb_shm_host_watch(host, &session->socket) != YB_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        yb_shm_session_cut(session, false, "out of descriptors");
    } else {
        prove_target(session, fd);
    }
    yb_shm_session_unref(session);
}

/* ---- what is said afterwards ----------------------------------------------------------------- */

static void
on_note(struct yb_shm_session *session, const struct yb_wire_shm_note *note, int fd)
{
    enum yb_shm_state state = state_of(session);

    if (state == YB_SHM_ASKED && session->initiator && note->kind == YB_WIRE_SHM_NOTE_KIND_PROVED) {
        on_proved(session, note, fd);
        return;
    }
    if (state == YB_SHM_UP && note->kind == YB_WIRE_SHM_NOTE_KIND_LEND) {
        yb_shm_loan_came(session, note, fd);
        return;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (state == YB_SHM_UP && note->kind == YB_WIRE_SHM_NOTE_KIND_WANT) {
        yb_shm_loan_wanted(session, note->region);
    } else if (state == YB_SHM_UP && note->kind == YB_WIRE_SHM_NOTE_KIND_TAKEN) {
        yb_shm_loan_taken(session, note);
    } else if (state == YB_SHM_UP && note->kind == YB_WIRE_SHM_NOTE_KIND_GONE) {
        yb_shm_session_forget(session, note->region);
    } else {
        yb_shm_session_cut(session, false, "the peer broke the protocol of the unix socket");
    }
}

/* A process that ends closes its sockets before it can be seen to have ended: just before, or on a
 * busy machine long before. That it has ended makes all the difference for what it was asked: wait
 * for that a little, and longer if it is on its way out. */
static void
lose_socket(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;
    struct yb_shm_source socket;

    if (!session->initiator || session->process.fd < 0 || state_of(session) != YB_SHM_UP) {
        yb_shm_session_cut(session, false, CLOSED_SOCKET);
        return;
    }
    atomic_store(&session->up, false);
    yb_lock_acquire(&host->lock);
    socket = session->socket;
    session->socket.fd = -1;
    yb_lock_release(&host->lock);
    yb_shm_host_unwatch(host, &socket);
    session->lost_ns = yb_clock_now(yb_clock_system()) + YB_SHM_LINGER_NS;
    host->awake_ns = session->lost_ns + YB_SHM_LINGER_NS;
}

/* One note an event: what is left wakes the thread again, and others have their turn. */
void
yb_shm_session_readable(struct yb_shm_session *session)
{
    struct yb_wire_shm_note note;
    int fd = -1;
    enum yb_status status = yb_shm_note_receive(session->socket.fd, &note, &fd);

    if (status == YB_OK) {
        on_note(session, &note, fd);
    } else if (status == YB_PROTOCOL) {
        yb_shm_session_cut(session, false, "the peer broke the protocol of the unix socket");
    } else if (status != YB_AGAIN) {
        lose_socket(session);
    }
}

/* Whether the process is on its way out, or its pidfd tells already that it has ended. */
static bool
is_ending(const struct yb_shm_session *session)
{
    struct pollfd ended = {.fd = session->process.fd, .events = POLLIN};

    /* In this order: one that is not found any more was collected, and its pidfd tells. */
    return yb_shm_attach_ending(session->pid) || poll(&ended, 1, 0) == 1;
}

void
yb_shm_session_attend(struct yb_shm_session *session)
{
    bool closing;
    bool linked;
    enum yb_shm_state state = state_of(session);

    yb_lock_acquire(&session->host->lock);
    closing = session->closing;
    linked = session->linked;
    yb_lock_release(&session->host->lock);
    if (closing && state != YB_SHM_GONE) {
        finish(session);
    } else if (state == YB_SHM_ASKED && linked &&
               yb_clock_now(yb_clock_system()) >= session->deadline_ns) {
        yb_shm_session_cut(session, false, "nobody proved himself on the unix socket in time");
    } else if (state == YB_SHM_ASKED && session->initiator && !session->connected) {
        connect_to(session);
    } else if (state == YB_SHM_UP && session->lost_ns != 0) {
        uint64_t now_ns = yb_clock_now(yb_clock_system());

        if (now_ns >= session->lost_ns + YB_SHM_ENDING_NS ||
            (now_ns >= session->lost_ns && !is_ending(session))) {
            yb_shm_session_cut(session, false, CLOSED_SOCKET);
        } else {
            session->host->awake_ns = now_ns + 2 * YB_SHM_LINGER_NS;
        }
    } else if (state == YB_SHM_UP) {
        yb_shm_loan_send(session);
    }
}

void
yb_shm_session_sweep(struct yb_shm_session *session, uint64_t now_ns)
{
    (void)now_ns;
    if (state_of(session) == YB_SHM_UP && session->lost_ns == 0) {
        yb_shm_loan_sweep(session);
    }
}
