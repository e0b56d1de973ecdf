/* SPDX-License-Identifier: Apache-2.0
 *
 * The host: its socket, its identity page and its thread.
 *
 * The thread sleeps in epoll. It wakes for packets, for processes that end, when somebody
 * has put a session on the list of work, and once a second while there are sessions.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "net/net.h"
#include "transfer/shm/attach.h"
#include "transfer/shm/shm_internal.h"

#define EVENTS_MAX      64
#define BACKLOG         64
#define SWEEP_NS        YB_NS_PER_S
#define SETTLE_MS       50 /* While somebody is proving himself, or a socket was full. */
#define STRANGER_NS     (5 * YB_NS_PER_S)
#define PROOF_NS        (10 * YB_NS_PER_S)
#define BOOT_ID_FILE    "/proc/sys/kernel/random/boot_id"
#define TICKET_START(r) ((r) >> 1 | 1)

static uint64_t
now_ns(void)
{
    return yb_clock_now(yb_clock_system());
}

/* ---- sources --------------------------------------------------------------------------------- */

enum yb_status
yb_shm_host_watch(struct yb_shm_host *host, struct yb_shm_source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};

    return epoll_ctl(host->epoll, EPOLL_CTL_ADD, source->fd, &event) == 0 ? YB_OK : YB_NO_MEMORY;
}

/* The source must be taken out by hand: a child of a fork may keep its file open. */
void
yb_shm_host_unwatch(struct yb_shm_host *host, struct yb_shm_source *source)
{
    if (source->fd >= 0) {
        (void)epoll_ctl(host->epoll, EPOLL_CTL_DEL, source->fd, NULL);
        (void)close(source->fd);
        source->fd = -1;
    }
}

int
yb_shm_host_release(struct yb_shm_host *host, struct yb_shm_source *source)
{
    int fd = source->fd;

    (void)epoll_ctl(host->epoll, EPOLL_CTL_DEL, fd, NULL);
    source->fd = -1;
    return fd;
}

void
yb_shm_host_wake(struct yb_shm_host *host)
{
    const uint64_t one = 1;

    (void)!write(host->kick.fd, &one, sizeof(one));
}

/* ---- sessions -------------------------------------------------------------------------------- */

void
yb_shm_host_work_locked(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;

    yb_lock_assert_held(&host->lock);
    if (session->working) {
        return;
    }
    session->working = true;
    session->references++;
    session->work_next = host->work;
    host->work = session;
}

void
yb_shm_host_unref_locked(struct yb_shm_session *session, bool *last_out)
{
    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    yb_lock_assert_held(&session->host->lock);
    YB_ASSERT(session->references > 0);
    *last_out = --session->references == 0;
}

static void
free_session(struct yb_shm_session *session)
{
    YB_ASSERT(session->socket.fd < 0 && session->process.fd < 0);
    yb_shm_loan_drop_all(session);
    if (session->page.base != NULL) {
        yb_shared_detach(&session->page);
    }
    session->magic = 0;
    free(session);
}

void
yb_shm_session_unref(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;
    bool last;

    yb_lock_acquire(&host->lock);
    yb_shm_host_unref_locked(session, &last);
    yb_lock_release(&host->lock);
    if (last) {
        free_session(session);
    }
}

static struct yb_shm_session *
make_session(struct yb_shm_host *host, bool initiator, const struct yb_shm_intro *mine,
             const struct yb_shm_intro *theirs)
{
    struct yb_shm_session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return NULL;
    }
    session->magic = YB_SHM_SESSION_MAGIC;
    session->host = host;
    session->initiator = initiator;
    session->mine = *mine;
    session->theirs = *theirs;
    session->socket = (struct yb_shm_source){YB_SHM_SOURCE_SOCKET, -1, session};
    session->process = (struct yb_shm_source){YB_SHM_SOURCE_PROCESS, -1, session};
    session->deadline_ns = now_ns() + PROOF_NS;
    session->references = 1; /* The host's. */
    return session;
}

/* Put it into the host's list. Returns false: there are too many. */
static bool
link_session(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;
    uint32_t *count = session->initiator ? &host->initiators : &host->targets;
    bool room;

    yb_lock_acquire(&host->lock);
    room = *count < YB_SHM_SESSIONS_MAX && !host->stopping;
    if (room) {
        (*count)++;
        session->linked = true;
        session->next = host->sessions;
        host->sessions = session;
        if (session->initiator) {
            session->references++; /* Its owner's. */
        }
        yb_shm_host_work_locked(session);
    }
    yb_lock_release(&host->lock);
    if (room) {
        yb_shm_host_wake(host);
    } else {
        free_session(session);
    }
    return room;
}

void
yb_shm_host_unlink(struct yb_shm_session *session)
{
    struct yb_shm_host *host = session->host;
    struct yb_shm_session **link = &host->sessions;
    bool last = false;

    yb_lock_acquire(&host->lock);
    if (session->linked) {
        while (*link != session) {
            link = &(*link)->next;
        }
        *link = session->next;
        session->linked = false;
        *(session->initiator ? &host->initiators : &host->targets) -= 1;
        yb_shm_host_unref_locked(session, &last);
    }
    yb_lock_release(&host->lock);
    YB_ASSERT(!last); /* Whoever calls this holds one. */
}

enum yb_status
yb_shm_host_introduce(struct yb_shm_host *host, struct yb_shm_intro *mine_out,
                      char why_out[YB_SHM_WHY_BYTES])
{
    YB_ASSERT_OBJ(host, YB_SHM_HOST_MAGIC);
    if (host->why[0] != '\0') {
        (void)snprintf(why_out, YB_SHM_WHY_BYTES, "%s", host->why);
        return YB_UNSUPPORTED;
    }
    *mine_out = (struct yb_shm_intro){
        .nonce = host->page->nonce,
        .page = (uintptr_t)host->page,
        .tickets = YB_SHM_TICKETS,
    };
    yb_net_random_system(NULL, &mine_out->token, sizeof(mine_out->token));
    (void)snprintf(mine_out->name, sizeof(mine_out->name), "%s", host->name);
    return YB_OK;
}

enum yb_status
yb_shm_session_expect(struct yb_shm_host *host, struct yb_id identity,
                      const struct yb_shm_intro *theirs, struct yb_shm_intro *mine_out,
                      char why_out[YB_SHM_WHY_BYTES])
{
    struct yb_shm_session *session;
    struct yb_shm_intro mine;
    enum yb_status status = yb_shm_host_introduce(host, &mine, why_out);

    if (status != YB_OK) {
        return status;
    }
    session = make_session(host, false, &mine, theirs);
    if (session == NULL) {
        return YB_NO_MEMORY;
    }
    session->identity = identity;
    if (!link_session(session)) {
        (void)snprintf(why_out, YB_SHM_WHY_BYTES,
                       "the peer serves %u processes of its host already", YB_SHM_SESSIONS_MAX);
        return YB_AGAIN;
    }
    *mine_out = mine;
    return YB_OK;
}

/* ---- mail to a session's loop ---------------------------------------------------------------- */

static void
run_mail(struct yb_mail *mail)
{
    struct yb_shm_session *session =
        (struct yb_shm_session *)((uint8_t *)mail - offsetof(struct yb_shm_session, mail));

    bool gone;

    YB_ASSERT_OBJ(session, YB_SHM_SESSION_MAGIC);
    yb_lock_acquire(&session->host->lock);
    session->mail_out = false;
    gone = session->info.state == YB_SHM_GONE;
    yb_lock_release(&session->host->lock);
    session->news(session->owner, gone);
    yb_shm_session_unref(session);
}

/* Posting under the lock, which the mail takes first, keeps the loop alive until the post is over:
 * whoever hears `gone` may end it. */
void
yb_shm_host_tell(struct yb_shm_session *session, bool gone)
{
    if (!session->initiator) {
        return;
    }
    yb_lock_acquire(&session->host->lock);
    if (session->info.state != YB_SHM_GONE) {
        session->info.state = gone ? YB_SHM_GONE : session->info.state;
        if (!session->mail_out) {
            session->mail_out = true;
            session->references++;
            yb_mailbox_post_reply(yb_loop_mailbox(session->loop), &session->mail);
        }
    }
    yb_lock_release(&session->host->lock);
}

enum yb_status
yb_shm_session_connect(struct yb_shm_host *host, const struct yb_shm_session_options *options,
                       struct yb_shm_session **session_out)
{
    struct yb_shm_session *session = make_session(host, true, options->mine, options->theirs);

    if (session == NULL) {
        return YB_NO_MEMORY;
    }
    session->loop = options->loop;
    session->tag = options->tag;
    session->news = options->news;
    session->owner = options->owner;
    yb_mail_init(&session->mail, run_mail);
    *session_out = session;
    return link_session(session) ? YB_OK : YB_AGAIN;
}

struct yb_shm_session *
yb_shm_session_find(struct yb_shm_host *host, struct yb_id token, struct yb_id identity)
{
    struct yb_shm_session *session;

    yb_lock_acquire(&host->lock);
    for (session = host->sessions; session != NULL; session = session->next) {
        if (!session->initiator && yb_id_equal(session->mine.token, token) &&
            yb_id_equal(session->identity, identity) && session->info.state == YB_SHM_UP) {
            session->references++;
            break;
        }
    }
    yb_lock_release(&host->lock);
    return session;
}

/* ---- tickets --------------------------------------------------------------------------------- */

enum yb_status
yb_shm_host_take_tickets(struct yb_shm_host *host, uint32_t *first_out)
{
    enum yb_status status = YB_AGAIN;

    yb_lock_acquire(&host->lock);
    for (uint32_t i = 0; i < sizeof(host->ticket_map) / sizeof(host->ticket_map[0]); i++) {
        if (host->ticket_map[i] != UINT64_MAX) {
            uint32_t bit = (uint32_t)__builtin_ctzll(~host->ticket_map[i]);

            host->ticket_map[i] |= UINT64_C(1) << bit;
            *first_out = (i * 64 + bit) * YB_SHM_TICKETS_PER;
            status = YB_OK;
            break;
        }
    }
    yb_lock_release(&host->lock);
    return status;
}

void
yb_shm_host_give_tickets(struct yb_shm_host *host, uint32_t first)
{
    uint32_t index = first / YB_SHM_TICKETS_PER;

    YB_ASSERT(first % YB_SHM_TICKETS_PER == 0 && first < YB_SHM_TICKETS);
    for (uint32_t i = 0; i < YB_SHM_TICKETS_PER; i++) {
        YB_ASSERT(atomic_load(&host->page->tickets[first + i]) == 0);
    }
    yb_lock_acquire(&host->lock);
    YB_ASSERT((host->ticket_map[index / 64] & UINT64_C(1) << index % 64) != 0);
    host->ticket_map[index / 64] &= ~(UINT64_C(1) << index % 64);
    yb_lock_release(&host->lock);
}

uint64_t
yb_shm_host_issue(struct yb_shm_host *host, uint32_t slot)
{
    uint64_t ticket = atomic_fetch_add(&host->next_ticket, 1);

    YB_ASSERT(slot < YB_SHM_TICKETS);
    atomic_store(&host->page->tickets[slot], ticket);
    return ticket;
}

void
yb_shm_host_revoke(struct yb_shm_host *host, uint32_t slot)
{
    YB_ASSERT(slot < YB_SHM_TICKETS);
    atomic_store(&host->page->tickets[slot], 0);
}

/* ---- strangers ------------------------------------------------------------------------------- */

static void
accept_strangers(struct yb_shm_host *host)
{
    int fd;

    errno = 0;
    while ((fd = accept4(host->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        struct yb_shm_stranger *free_one = NULL;

        for (uint32_t i = 0; i < YB_SHM_STRANGERS_MAX && free_one == NULL; i++) {
            free_one = host->strangers[i].source.fd < 0 ? &host->strangers[i] : NULL;
        }
        if (free_one == NULL) {
            (void)close(fd);
            continue;
        }
        free_one->source = (struct yb_shm_source){YB_SHM_SOURCE_STRANGER, fd, free_one};
        free_one->deadline_ns = now_ns() + STRANGER_NS;
        if (yb_shm_host_watch(host, &free_one->source) != YB_OK) {
            (void)close(fd);
            free_one->source.fd = -1;
        }
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        host->deaf = true; /* It would wake the thread without end. */
        (void)epoll_ctl(host->epoll, EPOLL_CTL_DEL, host->listener.fd, NULL);
    }
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void
handle(struct yb_shm_host *host, struct yb_shm_source *source)
{
    uint64_t drop;

    if (source->fd < 0) {
        return; /* Closed by an event of the same batch. */
    }
    switch (source->kind) {
    case YB_SHM_SOURCE_LISTENER: accept_strangers(host); break;
    case YB_SHM_SOURCE_KICK: (void)!read(source->fd, &drop, sizeof(drop)); break;
    case YB_SHM_SOURCE_STRANGER: yb_shm_session_admit(host, source->owner); break;
    case YB_SHM_SOURCE_SOCKET: yb_shm_session_readable(source->owner); break;
    case YB_SHM_SOURCE_PROCESS:
        yb_shm_session_cut(source->owner, true, "the process has ended");
        break;
    }
}

static struct yb_shm_session *
session_of(const struct yb_shm_source *source)
{
    return source->kind == YB_SHM_SOURCE_SOCKET || source->kind == YB_SHM_SOURCE_PROCESS
               ? source->owner
               : NULL;
}

/* Deal with what epoll has brought. One event of a session may end it while another one of the same
 * batch still names it, so that all are kept until the last. */
static void
handle_all(struct yb_shm_host *host, struct epoll_event *events, int count)
{
    struct yb_shm_session *kept[EVENTS_MAX];

    yb_lock_acquire(&host->lock);
    for (int i = 0; i < count; i++) {
        kept[i] = session_of(events[i].data.ptr);
        if (kept[i] != NULL) {
            kept[i]->references++;
        }
    }
    yb_lock_release(&host->lock);
    for (int i = 0; i < count; i++) {
        handle(host, events[i].data.ptr);
    }
    for (int i = 0; i < count; i++) {
        if (kept[i] != NULL) {
            yb_shm_session_unref(kept[i]);
        }
    }
}

/* Take a session off the list of work; its reference goes to the caller. */
static struct yb_shm_session *
take_work(struct yb_shm_host *host)
{
    struct yb_shm_session *session;

    yb_lock_acquire(&host->lock);
    session = host->work;
    if (session != NULL) {
        host->work = session->work_next;
        session->working = false;
    }
    yb_lock_release(&host->lock);
    return session;
}

/* Put every session on the list of work; returns how many there are. */
static uint32_t
work_on_all(struct yb_shm_host *host)
{
    uint32_t count = 0;

    yb_lock_acquire(&host->lock);
    for (struct yb_shm_session *s = host->sessions; s != NULL; s = s->next, count++) {
        yb_shm_host_work_locked(s);
    }
    yb_lock_release(&host->lock);
    return count;
}

static void
sweep(struct yb_shm_host *host, bool regions)
{
    struct yb_shm_session *session;
    uint64_t now = now_ns();

    for (uint32_t i = 0; i < YB_SHM_STRANGERS_MAX; i++) {
        if (host->strangers[i].source.fd >= 0 && now >= host->strangers[i].deadline_ns) {
            yb_shm_host_unwatch(host, &host->strangers[i].source);
        }
    }
    if (host->deaf) {
        host->deaf = yb_shm_host_watch(host, &host->listener) != YB_OK;
    }
    (void)work_on_all(host);
    while ((session = take_work(host)) != NULL) {
        yb_shm_session_attend(session);
        if (regions) {
            yb_shm_session_sweep(session, now);
        }
        yb_shm_session_unref(session);
    }
}

/* Return how long the thread may sleep. */
static int
sleep_ms(struct yb_shm_host *host)
{
    bool busy = host->blocked || host->deaf || now_ns() < host->awake_ns;
    bool any;

    for (uint32_t i = 0; i < YB_SHM_STRANGERS_MAX; i++) {
        busy = busy || host->strangers[i].source.fd >= 0;
    }
    yb_lock_acquire(&host->lock);
    any = host->sessions != NULL;
    for (struct yb_shm_session *s = host->sessions; s != NULL && !busy; s = s->next) {
        busy = s->info.state == YB_SHM_ASKED;
    }
    yb_lock_release(&host->lock);
    if (busy) {
        return SETTLE_MS;
    }
    return any ? (int)(SWEEP_NS / YB_NS_PER_MS) : -1;
}

static bool
stopping(struct yb_shm_host *host)
{
    bool stop;

    yb_lock_acquire(&host->lock);
    stop = host->stopping;
    yb_lock_release(&host->lock);
    return stop;
}

static void *
host_main(void *arg)
{
    struct yb_shm_host *host = arg;
    struct epoll_event events[EVENTS_MAX];
    struct yb_shm_session *session;

    yb_cpus_as_process();
    while (!stopping(host)) {
        int count = epoll_wait(host->epoll, events, EVENTS_MAX, sleep_ms(host));

        host->blocked = false;
        handle_all(host, events, count);
        while ((session = take_work(host)) != NULL) {
            yb_shm_session_attend(session);
            yb_shm_session_unref(session);
        }
        if (count == 0 || now_ns() - host->swept_ns >= SWEEP_NS) {
            bool regions = now_ns() - host->swept_ns >= SWEEP_NS;

            host->swept_ns = regions ? now_ns() : host->swept_ns;
            sweep(host, regions);
        }
    }
    return NULL;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

static enum yb_status
make_page(struct yb_shm_host *host)
{
    const struct yb_shared_options options = {
        .length = sizeof(struct yb_shm_page),
        .numa_node = YB_SHARED_NUMA_ANY,
    };
    enum yb_status status =
        yb_shared_create(&options, &host->page_memory, host->why, sizeof(host->why));

    if (status != YB_OK) {
        return status == YB_UNSUPPORTED ? YB_OK : status;
    }
    host->why[0] = '\0';
    host->page = yb_shared_info(host->page_memory).base;
    host->page->magic = YB_SHM_PAGE_MAGIC;
    yb_net_random_system(NULL, &host->page->nonce, sizeof(host->page->nonce));
    return YB_OK;
}

/* Listen on a name that nobody can guess. Without it there is `why`. */
static void
open_listener(struct yb_shm_host *host)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct yb_id random;
    char hex[33];
    socklen_t length;

    yb_net_random_system(NULL, &random, sizeof(random));
    yb_id_format(random, hex);
    (void)snprintf(host->name, sizeof(host->name), "yuebing-%s", hex);
    memcpy(address.sun_path + 1, host->name, strlen(host->name));
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(host->name));
    host->listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (host->listener.fd < 0 ||
        bind(host->listener.fd, (struct sockaddr *)&address, length) != 0 ||
        listen(host->listener.fd, BACKLOG) != 0 ||
        yb_shm_host_watch(host, &host->listener) != YB_OK) {
        (void)snprintf(host->why, sizeof(host->why), "no unix socket can be opened: %s",
                       strerrordesc_np(errno));
    }
}

/* 32 hex digits with dashes between. */
static struct yb_id
read_boot_id(void)
{
    struct yb_id id = {{0}};
    char text[64] = "";
    char digits[33];
    size_t count = 0;
    int fd = open(BOOT_ID_FILE, O_RDONLY | O_CLOEXEC);

    if (fd < 0) {
        return id;
    }
    if (read(fd, text, sizeof(text) - 1) > 0) {
        for (const char *at = text; *at != '\0' && count < 32; at++) {
            if (*at != '-') {
                digits[count++] = *at;
            }
        }
        digits[count] = '\0';
        (void)yb_id_parse(digits, &id); /* Otherwise it stays none. */
    }
    (void)close(fd);
    return id;
}

struct yb_id
yb_shm_host_boot(const struct yb_shm_host *host)
{
    return host->boot;
}

static void
free_host(struct yb_shm_host *host)
{
    for (uint32_t i = 0; i < YB_SHM_STRANGERS_MAX; i++) {
        yb_shm_host_unwatch(host, &host->strangers[i].source);
    }
    yb_shm_host_unwatch(host, &host->listener);
    yb_shm_host_unwatch(host, &host->kick);
    if (host->epoll >= 0) {
        (void)close(host->epoll);
    }
    for (uint32_t i = 0; i < YB_SHM_WITNESSES_MAX; i++) {
        if (host->witnesses[i].references > 0) {
            (void)close(host->witnesses[i].pidfd);
        }
    }
    yb_shared_destroy(&host->page_memory);
    yb_writable_fini(&host->writable);
    yb_lock_fini(&host->lock);
    host->magic = 0;
    free(host);
}

enum yb_status
yb_shm_host_create(struct yb_region_table *regions, struct yb_shm_host **host_out)
{
    struct yb_shm_host *host = calloc(1, sizeof(*host));
    enum yb_status status = YB_NO_MEMORY;
    uint64_t random;

    if (host == NULL) {
        return YB_NO_MEMORY;
    }
    host->magic = YB_SHM_HOST_MAGIC;
    host->regions = regions;
    host->swept_ns = now_ns();
    host->boot = read_boot_id();
    host->listener = (struct yb_shm_source){YB_SHM_SOURCE_LISTENER, -1, host};
    host->kick = (struct yb_shm_source){YB_SHM_SOURCE_KICK, -1, host};
    for (uint32_t i = 0; i < YB_SHM_STRANGERS_MAX; i++) {
        host->strangers[i].source.fd = -1;
    }
    yb_lock_init(&host->lock, YB_LOCK_SHM);
    yb_writable_init(&host->writable);
    yb_net_random_system(NULL, &random, sizeof(random));
    atomic_init(&host->next_ticket, TICKET_START(random));
    host->epoll = epoll_create1(EPOLL_CLOEXEC);
    host->kick.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (host->epoll < 0 || host->kick.fd < 0 || yb_shm_host_watch(host, &host->kick) != YB_OK) {
        goto err_host;
    }
    status = make_page(host);
    if (status != YB_OK) {
        goto err_host;
    }
    if (host->why[0] == '\0') {
        open_listener(host);
    }
    if (pthread_create(&host->thread, NULL, host_main, host) != 0) {
        status = YB_NO_MEMORY;
        goto err_host;
    }
    (void)pthread_setname_np(host->thread, "yb-shm");
    *host_out = host;
    return YB_OK;

err_host:
    free_host(host);
    return status;
}

void
yb_shm_host_destroy(struct yb_shm_host **host_ref)
{
    struct yb_shm_host *host = *host_ref;
    struct yb_shm_session *session;

    if (host == NULL) {
        return;
    }
    YB_ASSERT_OBJ(host, YB_SHM_HOST_MAGIC);
    yb_lock_acquire(&host->lock);
    host->stopping = true;
    yb_lock_release(&host->lock);
    yb_shm_host_wake(host);
    YB_ASSERT(pthread_join(host->thread, NULL) == 0);
    (void)work_on_all(host);
    while ((session = take_work(host)) != NULL) {
        YB_ASSERT(!session->initiator); /* Its path would wait for news. */
        yb_shm_session_cut(session, false, "the engine has ended");
        yb_shm_session_unref(session);
    }
    YB_ASSERT(host->sessions == NULL);
    free_host(host);
    *host_ref = NULL;
}
