/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_ceilings.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/copy.h"
#include "base/histogram.h"
#include "cli/measure.h"

#define LAST_WORD     0x6c617374ull
#define THREADS_MAX   64u
#define FRAGMENTS_MAX 512u

static bool
complain(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    return false;
}

void
yb_bench_socket_options(int fd, const char *congestion)
{
    int one = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (congestion != NULL) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, congestion,
                         (socklen_t)strlen(congestion));
    }
}

static uint64_t
common_factor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    return a;
}

uint32_t
yb_bench_scatter(uint32_t index, uint32_t count)
{
    uint64_t step = 7;

    while (common_factor(step, count) != 1) {
        step++;
    }
    return (uint32_t)(index * step % count);
}

/* ---- sockets ----------------------------------------------------------------------------- */

/* One connection's place in its messages. */
struct stream {
    int fd;
    uint8_t *message; /* NULL: the next one has not begun. */
    uint64_t done;
    bool last; /* The current message is the last one. */
    bool ended;
};

struct side {
    const struct yb_bench_raw *raw;
    uint64_t next; /* Number of the next message: its place in the buffer. */
    uint64_t bytes;
    uint32_t running;
    struct stream streams[YB_BENCH_SOCKETS_MAX];
};

static void
side_init(struct side *side, const struct yb_bench_raw *raw)
{
    memset(side, 0, sizeof(*side));
    YB_ASSERT(raw->streams <= raw->sockets->count && raw->size <= YB_BENCH_BUFFER_BYTES);
    side->raw = raw;
    side->running = raw->streams;
    for (uint32_t i = 0; i < raw->streams; i++) {
        side->streams[i].fd = raw->sockets->fds[i];
    }
}

static uint8_t *
next_message(struct side *side)
{
    uint64_t places = YB_BENCH_BUFFER_BYTES / side->raw->size;

    return side->raw->buffer + side->next++ % places * side->raw->size;
}

/* With one connection a blocking call is the least there is; with several nobody may block. */
static int
flags_of(const struct side *side)
{
    return side->raw->streams == 1 ? 0 : MSG_DONTWAIT;
}

/* Wait until any connection that is not at its end can go on. */
static bool
wait_any(const struct side *side, short events)
{
    struct pollfd fds[YB_BENCH_SOCKETS_MAX];
    nfds_t count = 0;

    for (uint32_t i = 0; i < side->raw->streams; i++) {
        if (!side->streams[i].ended) {
            fds[count++] = (struct pollfd){.fd = side->streams[i].fd, .events = events};
        }
    }
    return poll(fds, count, 10000) > 0 ? true : complain("bare sockets stand still");
}

/* Move one connection on. Returns what the kernel took or gave, 0 if it was not ready, -1 if the
 * connection is lost. */
static ssize_t
move(struct side *side, struct stream *stream, bool sends)
{
    uint8_t *from = stream->message + stream->done;
    size_t left = side->raw->size - stream->done;
    ssize_t moved = sends ? send(stream->fd, from, left, flags_of(side) | MSG_NOSIGNAL)
                          : recv(stream->fd, from, left, flags_of(side));

    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
        return 0;
    }
    if (moved <= 0) {
        (void)complain(sends ? "bare send" : "bare receive");
        return -1;
    }
    stream->done += (uint64_t)moved;
    side->bytes += (uint64_t)moved;
    return moved;
}

static void
begin_message(struct side *side, struct stream *stream, bool sends, uint64_t until_ns)
{
    stream->message = next_message(side);
    stream->done = 0;
    if (sends) {
        uint64_t word = yb_measure_now_ns() >= until_ns ? LAST_WORD : 0;

        stream->last = word == LAST_WORD;
        memcpy(stream->message, &word, sizeof(word));
    }
}

static void
end_message(struct side *side, struct stream *stream, bool sends)
{
    uint64_t word = 0;

    if (!sends) {
        memcpy(&word, stream->message, sizeof(word));
        stream->last = word == LAST_WORD;
    }
    stream->message = NULL;
    stream->ended = stream->last;
    side->running -= stream->ended;
}

static bool
run_side(struct side *side, bool sends)
{
    uint64_t until_ns = yb_deadline_after(yb_measure_now_ns(), side->raw->run_ns);

    while (side->running > 0) {
        bool moved_any = false;

        for (uint32_t i = 0; i < side->raw->streams; i++) {
            struct stream *stream = &side->streams[i];
            ssize_t moved;

            if (stream->ended) {
                continue;
            }
            if (stream->message == NULL) {
                begin_message(side, stream, sends, until_ns);
            }
            moved = move(side, stream, sends);
            if (moved < 0) {
                return false;
            }
            moved_any = moved_any || moved > 0;
            if (stream->done == side->raw->size) {
                end_message(side, stream, sends);
            }
        }
        if (!moved_any && side->running > 0 && !wait_any(side, sends ? POLLOUT : POLLIN)) {
            return false;
        }
    }
    return true;
}

bool
yb_bench_raw_send(const struct yb_bench_raw *raw, uint64_t *bytes_out)
{
    struct side side;
    bool ok;

    side_init(&side, raw);
    ok = run_side(&side, true);
    *bytes_out = side.bytes;
    return ok;
}

bool
yb_bench_raw_receive(const struct yb_bench_raw *raw, uint64_t *bytes_out)
{
    struct side side;
    bool ok;

    side_init(&side, raw);
    ok = run_side(&side, false);
    *bytes_out = side.bytes;
    return ok;
}

bool
yb_bench_ceiling_sockets(const struct yb_bench_target *target, const struct yb_bench_raw *raw,
                         bool read, double *gbps_out)
{
    const struct yb_bench_order order = {
        .kind = read ? YB_BENCH_ORDER_SEND : YB_BENCH_ORDER_RECEIVE,
        .streams = raw->streams,
        .length = raw->size,
        .run_ns = raw->run_ns,
    };
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t bytes = 0;
    uint64_t theirs = 0;
    bool ok = yb_bench_target_order(target, &order);

    ok = ok && (read ? yb_bench_raw_receive(raw, &bytes) : yb_bench_raw_send(raw, &bytes));
    ok = ok && yb_bench_target_answer(target, &theirs) && theirs == bytes;
    *gbps_out = (double)bytes / (double)(yb_measure_now_ns() - began_ns);
    return ok;
}

/* ---- ping-pong --------------------------------------------------------------------------- */

/* Receive one message: ask without waiting for spin_ns, then sleep in epoll. */
static bool
receive_message(const struct yb_bench_raw *raw, int epoll_fd, uint8_t *message)
{
    int fd = raw->sockets->fds[0];
    uint64_t until_ns = raw->spin_ns > 0 ? yb_measure_now_ns() + raw->spin_ns : 0;
    uint64_t have = 0;

    while (have < raw->size) {
        struct epoll_event event;
        int count = epoll_wait(epoll_fd, &event, 1, 0);
        ssize_t got;

        if (count == 0 && yb_measure_now_ns() < until_ns) {
            (void)sched_yield(); /* The other end may need this core. */
        } else if (count == 0) {
            count = epoll_wait(epoll_fd, &event, 1, 10000);
            if (count <= 0) {
                return complain("ping-pong stands still");
            }
        }
        if (count <= 0) {
            continue;
        }
        got = recv(fd, message + have, raw->size - have, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return complain("ping-pong");
        }
        have += got > 0 ? (uint64_t)got : 0;
    }
    return true;
}

static bool
send_message(const struct yb_bench_raw *raw, const uint8_t *message)
{
    return send(raw->sockets->fds[0], message, raw->size, MSG_NOSIGNAL) == (ssize_t)raw->size
               ? true
               : complain("ping-pong");
}

static int
watch_first(const struct yb_bench_raw *raw)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};

    if (epoll_fd >= 0 && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, raw->sockets->fds[0], &event) != 0) {
        (void)close(epoll_fd);
        epoll_fd = -1;
    }
    if (epoll_fd < 0) {
        (void)complain("epoll");
    }
    return epoll_fd;
}

bool
yb_bench_raw_echo(const struct yb_bench_raw *raw)
{
    int epoll_fd = watch_first(raw);
    uint64_t word = 0;
    bool ok = epoll_fd >= 0;

    while (ok && word != LAST_WORD) {
        ok = receive_message(raw, epoll_fd, raw->buffer);
        memcpy(&word, raw->buffer, sizeof(word));
        ok = ok && send_message(raw, raw->buffer);
    }
    if (epoll_fd >= 0) {
        (void)close(epoll_fd);
    }
    return ok;
}

bool
yb_bench_ceiling_ping(const struct yb_bench_target *target, const struct yb_bench_raw *raw,
                      struct yb_bench_times *times_out)
{
    const struct yb_bench_order order = {
        .kind = YB_BENCH_ORDER_ECHO,
        .streams = 1,
        .length = raw->size,
        .spin_ns = raw->spin_ns,
    };
    struct yb_histogram histogram;
    uint64_t until_ns = yb_measure_now_ns() + raw->run_ns;
    int epoll_fd = watch_first(raw);
    uint64_t word = 0;
    uint64_t unused;
    bool ok = epoll_fd >= 0 && yb_bench_target_order(target, &order);

    yb_histogram_reset(&histogram);
    while (ok && word != LAST_WORD) {
        uint64_t began_ns = yb_measure_now_ns();

        word = began_ns >= until_ns ? LAST_WORD : 0;
        memcpy(raw->buffer, &word, sizeof(word));
        ok = send_message(raw, raw->buffer) && receive_message(raw, epoll_fd, raw->buffer);
        yb_histogram_record(&histogram, yb_measure_now_ns() - began_ns);
    }
    if (epoll_fd >= 0) {
        (void)close(epoll_fd);
    }
    times_out->p50_us = (double)yb_histogram_quantile(&histogram, 0.50) / 1e3;
    times_out->p99_us = (double)yb_histogram_quantile(&histogram, 0.99) / 1e3;
    return ok && yb_bench_target_answer(target, &unused);
}

/* ---- process_vm_readv -------------------------------------------------------------------- */

bool
yb_bench_ceiling_process_vm(const struct yb_bench_target *target, uint8_t *buffer, uint64_t size,
                            uint32_t fragments, uint64_t run_ns, double *gbps_out)
{
    struct iovec local[FRAGMENTS_MAX];
    struct iovec remote[FRAGMENTS_MAX];
    uint64_t piece = size / fragments;
    uint64_t places = YB_BENCH_BUFFER_BYTES / size;
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t count = 0;

    YB_ASSERT(fragments > 0 && fragments <= FRAGMENTS_MAX);
    do {
        uint64_t at = count++ % places * size;
        ssize_t got;

        for (uint32_t i = 0; i < fragments; i++) {
            local[i].iov_base = buffer + at + yb_bench_scatter(i, fragments) * piece;
            local[i].iov_len = piece;
            remote[i].iov_base = (void *)(uintptr_t)(target->base + at + i * piece);
            remote[i].iov_len = piece;
        }
        got = process_vm_readv(target->pid, local, fragments, remote, fragments, 0);
        if (got != (ssize_t)size) {
            return complain("process_vm_readv");
        }
    } while (yb_measure_now_ns() - began_ns < run_ns);
    *gbps_out = (double)count * (double)size / (double)(yb_measure_now_ns() - began_ns);
    return true;
}

/* ---- memory copy ------------------------------------------------------------------------- */

struct copier {
    pthread_t thread;
    uint8_t *to;
    const uint8_t *from;
    uint64_t places;
    const struct yb_bench_copy *copy;
    uint64_t bytes;
    uint64_t took_ns;
};

static void *
copy_blocks(void *context)
{
    struct copier *copier = context;
    uint64_t size = copier->copy->size;
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t count = 0;

    do {
        uint64_t at = count++ % copier->places * size;

        if (copier->copy->streams) {
            yb_copy_stream(copier->to + at, copier->from + at, size);
        } else {
            memcpy(copier->to + at, copier->from + at, size);
        }
    } while (yb_measure_now_ns() - began_ns < copier->copy->run_ns);
    copier->bytes = count * size;
    copier->took_ns = yb_measure_now_ns() - began_ns;
    return NULL;
}

bool
yb_bench_ceiling_copy(uint8_t *to, const uint8_t *from, const struct yb_bench_copy *copy,
                      double *gbps_out)
{
    struct copier copiers[THREADS_MAX];
    uint32_t threads = copy->threads < THREADS_MAX ? copy->threads : THREADS_MAX;
    uint64_t share = YB_BENCH_BUFFER_BYTES / threads / copy->size * copy->size;
    uint32_t started = 0;
    double rate = 0;

    YB_ASSERT(share > 0);
    for (; started < threads; started++) {
        struct copier *copier = &copiers[started];

        *copier = (struct copier){
            .to = to + started * share,
            .from = from + started * share,
            .places = share / copy->size,
            .copy = copy,
        };
        if (pthread_create(&copier->thread, NULL, copy_blocks, copier) != 0) {
            break;
        }
    }
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(copiers[i].thread, NULL);
        rate += (double)copiers[i].bytes / (double)copiers[i].took_ns;
    }
    *gbps_out = rate;
    return started == threads ? true : complain("threads");
}
