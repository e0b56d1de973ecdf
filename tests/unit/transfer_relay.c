/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_relay.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINKS_MAX  512u
#define KEPT_MAX   (4u << 20)
#define CHUNK      (64u * 1024u)
#define TIGHT_ROOM 4096

/* One direction of a connection. */
struct flow {
    bool held;
    bool over; /* Its source has ended. */
    uint8_t *kept;
    size_t begin;
    size_t end;
};

struct link {
    int near;
    int far;
    struct flow up;
    struct flow down;
};

struct relay {
    pthread_t thread;
    pthread_mutex_t lock;
    struct sockaddr_in target;
    char address[64];
    int listener;
    int wake;
    bool tight;
    bool stop;
    uint64_t changes; /* Of the links, by others than the relay's thread. */
    bool refuse;
    bool hold_new_up;
    bool hold_new_down;
    uint32_t count;
    struct link *links[LINKS_MAX];
};

static void
need(bool condition, const char *what)
{
    if (!condition) {
        perror(what);
        abort();
    }
}

static void
reset_and_close(int *fd)
{
    const struct linger linger = {.l_onoff = 1};

    if (*fd >= 0) {
        (void)setsockopt(*fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
        close(*fd);
        *fd = -1;
    }
}

static void
tell(struct relay *relay)
{
    uint64_t one = 1;

    relay->changes++;
    need(write(relay->wake, &one, sizeof(one)) == sizeof(one), "wake");
}

static void
set_up_socket(const struct relay *relay, int fd)
{
    const int one = 1;
    const int room = TIGHT_ROOM;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (relay->tight) {
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    }
}

static void
free_link(struct relay *relay, uint32_t index)
{
    struct link *link = relay->links[index];

    reset_and_close(&link->near);
    reset_and_close(&link->far);
    free(link->up.kept);
    free(link->down.kept);
    free(link);
    relay->links[index] = relay->links[--relay->count];
}

static void
take_new(struct relay *relay)
{
    int near = accept4(relay->listener, NULL, NULL, SOCK_CLOEXEC);
    struct link *link;

    if (near < 0) {
        return;
    }
    if (relay->refuse || relay->count == LINKS_MAX) {
        reset_and_close(&near);
        return;
    }
    link = calloc(1, sizeof(*link));
    need(link != NULL, "link");
    link->near = near;
    link->far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(link->far >= 0, "socket");
    set_up_socket(relay, near);
    set_up_socket(relay, link->far);
    link->up.held = relay->hold_new_up;
    link->down.held = relay->hold_new_down;
    link->up.kept = malloc(KEPT_MAX);
    link->down.kept = malloc(KEPT_MAX);
    need(link->up.kept != NULL && link->down.kept != NULL, "kept");
    if (connect(link->far, (struct sockaddr *)&relay->target, sizeof(relay->target)) != 0) {
        reset_and_close(&link->near);
        reset_and_close(&link->far);
        free(link->up.kept);
        free(link->down.kept);
        free(link);
        return;
    }
    relay->links[relay->count++] = link;
}

/* Read what there is. Returns false if the source has ended. */
static bool
pull(struct flow *flow, int fd)
{
    size_t room = KEPT_MAX - flow->end;
    ssize_t got = recv(fd, flow->kept + flow->end, room < CHUNK ? room : CHUNK, MSG_DONTWAIT);

    if (got > 0) {
        flow->end += (size_t)got;
        return true;
    }
    return got < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Write what is kept. Returns false if the sink has ended. */
static bool
push(struct flow *flow, int fd)
{
    ssize_t put;

    if (flow->begin == flow->end) {
        return true;
    }
    put = send(fd, flow->kept + flow->begin, flow->end - flow->begin, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (put > 0) {
        flow->begin += (size_t)put;
        if (flow->begin == flow->end) {
            flow->begin = flow->end = 0;
        }
        return true;
    }
    return errno == EAGAIN || errno == EINTR;
}

static short
wanted(const struct relay *relay, const struct flow *in, const struct flow *out)
{
    bool reads = !in->over && in->end < KEPT_MAX && !(in->held && relay->tight);
    bool writes = !out->held && out->begin < out->end;

    return (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
}

/* Move what can move. Returns false if the link is at its end. */
static bool
serve_link(struct link *link, short near, short far)
{
    if (link->near >= 0 && (near & (POLLIN | POLLHUP | POLLERR)) != 0 && !link->up.over) {
        link->up.over = !pull(&link->up, link->near);
    }
    if (link->far >= 0 && (far & (POLLIN | POLLHUP | POLLERR)) != 0 && !link->down.over) {
        link->down.over = !pull(&link->down, link->far);
    }
    if (!link->up.held && link->far >= 0 && !push(&link->up, link->far)) {
        return false;
    }
    if (!link->down.held && link->near >= 0 && !push(&link->down, link->near)) {
        return false;
    }
    /* An end is passed on when all before it was, and never while its direction is held. */
    if (link->up.over && !link->up.held && link->up.begin == link->up.end) {
        return false;
    }
    return !(link->down.over && !link->down.held && link->down.begin == link->down.end);
}

static void *
relay_main(void *arg)
{
    struct relay *relay = arg;
    struct pollfd *fds = calloc(2 + 2 * LINKS_MAX, sizeof(*fds));

    need(fds != NULL, "fds");
    pthread_mutex_lock(&relay->lock);
    while (!relay->stop) {
        uint32_t count = relay->count;
        uint64_t changes = relay->changes;
        uint64_t counted;

        fds[0] = (struct pollfd){.fd = relay->listener, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = relay->wake, .events = POLLIN};
        for (uint32_t i = 0; i < count; i++) {
            struct link *link = relay->links[i];
            short near = wanted(relay, &link->up, &link->down);
            short far = wanted(relay, &link->down, &link->up);

            fds[2 + 2 * i] = (struct pollfd){.fd = near != 0 ? link->near : -1, .events = near};
            fds[3 + 2 * i] = (struct pollfd){.fd = far != 0 ? link->far : -1, .events = far};
        }
        pthread_mutex_unlock(&relay->lock);
        (void)poll(fds, 2 + 2 * count, -1);
        pthread_mutex_lock(&relay->lock);
        if (fds[1].revents != 0) {
            (void)!read(relay->wake, &counted, sizeof(counted));
        }
        if (relay->changes != changes) {
            continue;
        }
        for (uint32_t i = count; i-- > 0;) {
            if (!serve_link(relay->links[i], fds[2 + 2 * i].revents, fds[3 + 2 * i].revents)) {
                free_link(relay, i);
            }
        }
        if (fds[0].revents != 0) {
            take_new(relay);
        }
    }
    pthread_mutex_unlock(&relay->lock);
    free(fds);
    return NULL;
}

struct relay *
relay_create(const char *target, bool tight)
{
    struct relay *relay = calloc(1, sizeof(*relay));
    struct sockaddr_in own = {.sin_family = AF_INET};
    socklen_t length = sizeof(own);
    const char *colon = strrchr(target, ':');

    need(relay != NULL && colon != NULL, "relay");
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    relay->target = own;
    relay->target.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    relay->tight = tight;
    pthread_mutex_init(&relay->lock, NULL);
    relay->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    set_up_socket(relay, relay->listener);
    need(bind(relay->listener, (struct sockaddr *)&own, sizeof(own)) == 0, "bind");
    need(listen(relay->listener, 512) == 0, "listen");
    need(getsockname(relay->listener, (struct sockaddr *)&own, &length) == 0, "getsockname");
    (void)snprintf(relay->address, sizeof(relay->address), "127.0.0.1:%u", ntohs(own.sin_port));
    relay->wake = eventfd(0, EFD_CLOEXEC);
    need(relay->wake >= 0, "eventfd");
    need(pthread_create(&relay->thread, NULL, relay_main, relay) == 0, "thread");
    return relay;
}

void
relay_destroy(struct relay **relay_ref)
{
    struct relay *relay = *relay_ref;

    *relay_ref = NULL;
    pthread_mutex_lock(&relay->lock);
    relay->stop = true;
    tell(relay);
    pthread_mutex_unlock(&relay->lock);
    pthread_join(relay->thread, NULL);
    while (relay->count > 0) {
        free_link(relay, 0);
    }
    close(relay->listener);
    close(relay->wake);
    pthread_mutex_destroy(&relay->lock);
    free(relay);
}

const char *
relay_address(const struct relay *relay)
{
    return relay->address;
}

void
relay_hold(struct relay *relay, bool up, bool down)
{
    pthread_mutex_lock(&relay->lock);
    for (uint32_t i = 0; i < relay->count; i++) {
        relay->links[i]->up.held = up;
        relay->links[i]->down.held = down;
    }
    tell(relay);
    pthread_mutex_unlock(&relay->lock);
}

void
relay_hold_new(struct relay *relay, bool up, bool down)
{
    pthread_mutex_lock(&relay->lock);
    relay->hold_new_up = up;
    relay->hold_new_down = down;
    pthread_mutex_unlock(&relay->lock);
}

void
relay_release(struct relay *relay)
{
    relay_hold_new(relay, false, false);
    relay_hold(relay, false, false);
}

void
relay_pass(struct relay *relay, size_t bytes)
{
    pthread_mutex_lock(&relay->lock);
    for (uint32_t i = 0; i < relay->count; i++) {
        struct link *link = relay->links[i];
        struct flow *up = &link->up;

        if (up->end - up->begin > bytes) {
            ssize_t put = send(link->far, up->kept + up->begin, bytes, MSG_NOSIGNAL);

            need(put == (ssize_t)bytes, "pass");
            up->begin += bytes;
        }
    }
    tell(relay);
    pthread_mutex_unlock(&relay->lock);
}

void
relay_cut(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
    while (relay->count > 0) {
        free_link(relay, 0);
    }
    tell(relay);
    pthread_mutex_unlock(&relay->lock);
}

void
relay_cut_near(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
    for (uint32_t i = 0; i < relay->count; i++) {
        struct link *link = relay->links[i];

        reset_and_close(&link->near);
        link->down.held = false;
        link->up.over = true;
    }
    tell(relay);
    pthread_mutex_unlock(&relay->lock);
}

void
relay_refuse(struct relay *relay, bool refuse)
{
    pthread_mutex_lock(&relay->lock);
    relay->refuse = refuse;
    pthread_mutex_unlock(&relay->lock);
}

uint32_t
relay_connections(struct relay *relay)
{
    uint32_t count;

    pthread_mutex_lock(&relay->lock);
    count = relay->count;
    pthread_mutex_unlock(&relay->lock);
    return count;
}

uint64_t
relay_kept(struct relay *relay)
{
    uint64_t kept = 0;

    pthread_mutex_lock(&relay->lock);
    for (uint32_t i = 0; i < relay->count; i++) {
        kept += relay->links[i]->up.end - relay->links[i]->up.begin;
    }
    pthread_mutex_unlock(&relay->lock);
    return kept;
}

uint64_t
relay_left(struct relay *relay)
{
    uint64_t left = 0;

    pthread_mutex_lock(&relay->lock);
    for (uint32_t i = 0; i < relay->count; i++) {
        int bytes = 0;

        if (ioctl(relay->links[i]->far, FIONREAD, &bytes) == 0 && (uint64_t)bytes > left) {
            left = (uint64_t)bytes;
        }
    }
    pthread_mutex_unlock(&relay->lock);
    return left;
}
