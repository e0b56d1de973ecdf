/* SPDX-License-Identifier: Apache-2.0
 *
 * The bare half of `yuebing bench net`: what the machine's sockets can do.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench.h"
#include "cli/measure.h"

#define BUFFER_BYTES (256u * 1024u)
#define EVENTS_MAX   64

static bool
complain(const char *what)
{
    fprintf(stderr, "bench: bare sockets: %s: %s\n", what, strerror(errno));
    return false;
}

static void
set_options(const struct yb_config *config, int fd)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (strcmp(config->net_congestion, "system") != 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, config->net_congestion,
                         (socklen_t)strlen(config->net_congestion));
    }
}

/* Wait for events: ask without waiting for as long as the configuration allows, then sleep. */
static int
wait_events(const struct yb_config *config, int epoll_fd, struct epoll_event *events)
{
    uint64_t until = yb_measure_now_ns() + config->net_spin_us * YB_NS_PER_US;
    int count;

    do {
        count = epoll_wait(epoll_fd, events, EVENTS_MAX, 0);
        if (count != 0 || config->net_spin_us == 0) {
            break;
        }
        (void)sched_yield(); /* As our loop does; the other end may need this core. */
    } while (yb_measure_now_ns() < until);
    return count != 0 ? count : epoll_wait(epoll_fd, events, EVENTS_MAX, 1000);
}

/* ---- server ------------------------------------------------------------------------------ */

/* Return what was received to its sender. Returns false at the end of the connection. */
static bool
echo(int fd, uint8_t *buffer)
{
    ssize_t got = recv(fd, buffer, BUFFER_BYTES, MSG_DONTWAIT);
    ssize_t sent = 0;

    if (got <= 0) {
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    }
    while (sent < got) {
        ssize_t part = send(fd, buffer + sent, (size_t)(got - sent), MSG_NOSIGNAL);

        if (part < 0) {
            return false;
        }
        sent += part;
    }
    return true;
}

static void
serve(const struct yb_config *config, int listen_fd)
{
    struct epoll_event events[EVENTS_MAX];
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listen_fd};
    uint8_t *buffer = malloc(BUFFER_BYTES);
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);

    if (buffer == NULL || epoll_fd < 0 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listen_fd, &event) != 0) {
        _exit(1);
    }
    for (;;) {
        int count = wait_events(config, epoll_fd, events);

        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;

            if (fd != listen_fd) {
                if (!echo(fd, buffer)) {
                    (void)close(fd);
                }
                continue;
            }
            fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
            if (fd >= 0) {
                set_options(config, fd);
                event.data.fd = fd;
                (void)epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
            }
        }
    }
}

bool
yb_bench_bare_start(const struct yb_config *config, struct yb_bench_server *server_out)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t pid;

    if (fd >= 0) {
        set_options(config, fd); /* Accepted sockets inherit them. */
    }
    if (fd < 0 || bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 1024) != 0 || getsockname(fd, (struct sockaddr *)&bound, &length) != 0 ||
        yb_address_from_sockaddr(&bound, &server_out->address) != YB_OK) {
        return complain("listening");
    }
    pid = fork();
    if (pid < 0) {
        return complain("fork");
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(config, fd);
    }
    (void)close(fd);
    server_out->pid = pid;
    return true;
}

void
yb_bench_stop(struct yb_bench_server *server)
{
    if (server->pid > 0) {
        (void)kill(server->pid, SIGKILL);
        (void)waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

/* ---- client ------------------------------------------------------------------------------ */

struct line {
    int fd;
    size_t missing; /* Bytes of the round that have not come back. */
    uint64_t sent_ns;
};

struct client {
    const struct yb_config *config;
    const struct yb_bench_load *load;
    int epoll_fd;
    uint8_t *buffer;
    struct yb_histogram histogram;
    uint64_t rounds;
    struct line lines[YB_BENCH_CONNS_MAX];
};

static int
dial(const struct yb_config *config, const struct yb_bench_server *server)
{
    struct sockaddr_storage storage;
    socklen_t length;
    int fd;

    yb_address_to_sockaddr(&server->address, &storage, &length);
    fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    set_options(config, fd);
    if (connect(fd, (const struct sockaddr *)&storage, length) != 0) {
        (void)close(fd);
        return -1;
    }
    return fd;
}

static bool
send_round(struct client *client, struct line *line)
{
    size_t left = (size_t)client->load->bytes * client->load->depth;

    line->missing = left;
    line->sent_ns = yb_measure_now_ns();
    while (left > 0) {
        ssize_t sent = send(line->fd, client->buffer, left, MSG_NOSIGNAL);

        if (sent < 0) {
            return complain("send");
        }
        left -= (size_t)sent;
    }
    return true;
}

static bool
receive(struct client *client, struct line *line)
{
    ssize_t got = recv(line->fd, client->buffer, BUFFER_BYTES, MSG_DONTWAIT);

    if (got <= 0) {
        return got < 0 && errno == EAGAIN ? true : complain("receive");
    }
    line->missing -= (size_t)got;
    if (line->missing > 0) {
        return true;
    }
    yb_histogram_record(&client->histogram, yb_measure_now_ns() - line->sent_ns);
    client->rounds++;
    return send_round(client, line);
}

static bool
run_lines(struct client *client, const struct yb_bench_server *server)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t until;

    for (uint32_t i = 0; i < client->load->conns; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};

        client->lines[i].fd = dial(client->config, server);
        if (client->lines[i].fd < 0 ||
            epoll_ctl(client->epoll_fd, EPOLL_CTL_ADD, client->lines[i].fd, &event) != 0) {
            return complain("connect");
        }
    }
    for (uint32_t i = 0; i < client->load->conns; i++) {
        if (!send_round(client, &client->lines[i])) {
            return false;
        }
    }
    until = yb_measure_now_ns() + client->load->run_ns;
    while (yb_measure_now_ns() < until) {
        int count = wait_events(client->config, client->epoll_fd, events);

        for (int i = 0; i < count; i++) {
            if (!receive(client, &client->lines[events[i].data.u32])) {
                return false;
            }
        }
    }
    return true;
}

bool
yb_bench_bare_run(const struct yb_config *config, const struct yb_bench_server *server,
                  const struct yb_bench_load *load, struct yb_bench_result *result_out)
{
    struct client *client = calloc(1, sizeof(*client));
    uint64_t began_ns;
    bool ok;

    if (client == NULL || (client->buffer = calloc(1, BUFFER_BYTES)) == NULL) {
        free(client);
        return complain("memory");
    }
    client->config = config;
    client->load = load;
    client->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    yb_histogram_reset(&client->histogram);
    began_ns = yb_measure_now_ns();
    ok = run_lines(client, server);
    result_out->per_second =
        (double)client->rounds * load->depth * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    result_out->p50_ns = yb_histogram_quantile(&client->histogram, 0.50);
    result_out->p99_ns = yb_histogram_quantile(&client->histogram, 0.99);
    for (uint32_t i = 0; i < load->conns; i++) {
        if (client->lines[i].fd > 0) {
            (void)close(client->lines[i].fd);
        }
    }
    (void)close(client->epoll_fd);
    free(client->buffer);
    free(client);
    return ok;
}

bool
yb_bench_bare_connects(const struct yb_config *config, const struct yb_bench_server *server,
                       uint64_t run_ns, struct yb_bench_result *result_out)
{
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t count = 0;
    uint8_t message[64] = {0};

    while (yb_measure_now_ns() - began_ns < run_ns) {
        struct linger reset = {.l_onoff = 1, .l_linger = 0};
        int fd = dial(config, server);

        if (fd < 0) {
            return complain("connect");
        }
        if (send(fd, message, sizeof(message), MSG_NOSIGNAL) != (ssize_t)sizeof(message) ||
            recv(fd, message, sizeof(message), MSG_WAITALL) != (ssize_t)sizeof(message)) {
            (void)close(fd);
            return complain("exchange");
        }
        /* By reset, as ours does: no port is left in TIME_WAIT. */
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        (void)close(fd);
        count++;
    }
    result_out->per_second = (double)count * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    return true;
}
