/* SPDX-License-Identifier: Apache-2.0
 *
 * The epoll backend of io.h.
 *
 * Sockets are registered once, edge-triggered, for both directions. A stream
 * remembers whether its socket may be readable or writable (`can_read`,
 * `can_write`); a submitted operation goes to the ready list if its direction
 * may progress, and an edge puts waiting operations there. poll() first works
 * off the ready list and only sleeps when that delivered nothing, so that a
 * request costs the same system calls as bare sockets: wait, receive, send.
 *
 * Invariants
 *   E1  A stream with an operation in flight is on the ready list, or its
 *       direction's `can_` flag is false and an edge will set it.
 *   E2  Streams are freed only by the ready list, never while the array of
 *       events of epoll_wait may still name them. They leave the epoll set by name:
 *       where the process has forked, closing the descriptor alone does not do it.
 *   E4  Patient streams (io.h) have a ready list of their own. Where others are about (E5), a
 *       poll moves YB_IO_PATIENT_BYTES of it, rounded up to an operation, and the kernel is asked
 *       after as much. Others go first, up to PROMPT_BYTES_MAX in a row.
 *   E5  They are about (`contended`) from their first operation until CALM_BYTES have gone
 *       without one. Looking often costs a tenth of the throughput of patient streams.
 *   E3  A short read clears `can_read` unless the peer has hung up: more bytes
 *       make another edge, but the end of the stream does not.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/io_internal.h"

#define LISTENER_MAGIC 0x6c69736eu
#define EVENTS_MAX     256
/* Polls that may work off the ready list before the kernel is asked for new events. */
#define READY_POLLS_MAX  8
#define ACCEPTS_PER_POLL 64
/* What may go before patient streams that are ready: these keep a third, which is more than the
 * lower classes are granted together. */
#define PROMPT_BYTES_MAX (2u * YB_IO_PATIENT_BYTES)
#define PROMPT_COST_MIN  (16ull * 1024u)
/* So much goes without others until none are expected: some ten milliseconds. */
#define CALM_BYTES (64u << 20)

enum read_kind { READ_NONE, READ_BYTES, READ_INTO };

struct epoll_stream {
    struct yb_stream base;
    struct epoll_stream *next; /* Ready list. */
    int fd;
    bool queued; /* On the ready list. */
    bool can_read;
    bool can_write;
    bool hung_up;
    uint8_t read_kind;
    uint8_t close_how;
    size_t read_limit;
    const struct iovec *read_iov;
    const struct iovec *write_iov;
    uint32_t read_count;
    uint32_t write_count;
    uint32_t write_index; /* First vector not yet wholly written ... */
    size_t write_skip;    /* ... and how much of it is. */
    size_t written;
};

struct yb_listener {
    uint32_t magic;
    int fd;
    bool ready;
    bool closed;
    uint64_t resume_ns; /* Not 0: there were no descriptors; not watched until then. */
    struct epoll_io *io;
    struct yb_listener *next;
    yb_accept_fn *on_accept;
    void *owner;
    struct yb_address address;
};

/* Streams that may progress. */
struct ready {
    struct epoll_stream *head;
    struct epoll_stream **tail;
};

struct epoll_io {
    struct yb_io base;
    int epoll_fd;
    int wake_fd;
    uint32_t ready_polls;
    uint64_t moved;        /* Bytes since the kernel was asked. */
    uint64_t prompt_bytes; /* Bytes of others since patient streams had their turn. */
    uint64_t calm_bytes;   /* Bytes of patient streams since others did anything. */
    struct ready prompt;
    struct ready patient;
    struct yb_listener *listeners;
    struct epoll_event events[EVENTS_MAX];
    uint8_t buffer[YB_IO_READ_BYTES_MAX];
};

static const struct yb_io_ops epoll_ops;

static struct epoll_io *
epoll_of(struct yb_io *io)
{
    return (struct epoll_io *)io;
}

static struct epoll_stream *
stream_of(struct yb_stream *stream)
{
    return (struct epoll_stream *)stream;
}

static void
enqueue(struct epoll_stream *stream)
{
    struct epoll_io *io = epoll_of(stream->base.io);
    struct ready *ready = stream->base.patient ? &io->patient : &io->prompt;

    if (stream->queued) {
        return;
    }
    stream->queued = true;
    stream->next = NULL;
    *ready->tail = stream;
    ready->tail = &stream->next;
}

/* ---- operations ---------------------------------------------------------------------- */

static void
complete_write(struct epoll_stream *stream, enum yb_status status)
{
    size_t written = stream->written;

    stream->write_iov = NULL;
    yb_stream_deliver_written(&stream->base, status, written);
}

/* Send what the socket takes. Returns true if the operation completed. */
static bool
progress_write(struct epoll_stream *stream)
{
    struct iovec rest[YB_IO_IOV_COUNT_MAX];
    struct msghdr message = {0};
    ssize_t sent;

    for (;;) {
        uint32_t count = stream->write_count - stream->write_index;

        memcpy(rest, stream->write_iov + stream->write_index, count * sizeof(rest[0]));
        if (stream->write_skip > 0) {
            rest[0].iov_base = (uint8_t *)rest[0].iov_base + stream->write_skip;
            rest[0].iov_len -= stream->write_skip;
        }
        message.msg_iov = rest;
        message.msg_iovlen = count;
        sent = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
        if (sent < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno == EAGAIN) {
                stream->can_write = false; /* E1 */
                return false;
            }
            complete_write(stream, errno == EFAULT ? YB_FAULT : YB_PEER_LOST);
            return true;
        }
        stream->written += (size_t)sent;
        epoll_of(stream->base.io)->moved += (uint64_t)sent;
        sent += (ssize_t)stream->write_skip;
        while (stream->write_index < stream->write_count &&
               (size_t)sent >= stream->write_iov[stream->write_index].iov_len) {
            sent -= (ssize_t)stream->write_iov[stream->write_index].iov_len;
            stream->write_index++;
        }
        stream->write_skip = (size_t)sent;
        if (stream->write_index == stream->write_count) {
            complete_write(stream, YB_OK);
            return true;
        }
    }
}

static void
complete_read(struct epoll_stream *stream, enum yb_status status, const uint8_t *bytes,
              size_t length)
{
    bool into = stream->read_kind == READ_INTO;

    stream->read_kind = READ_NONE;
    if (into) {
        yb_stream_deliver_filled(&stream->base, status, length);
    } else {
        yb_stream_deliver_bytes(&stream->base, status, length > 0 ? bytes : NULL, length);
    }
}

static size_t
iov_bytes(const struct iovec *iov, uint32_t count)
{
    size_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        total += iov[i].iov_len;
    }
    return total;
}

/* Receive what is there. Returns true if the operation completed. */
static bool
progress_read(struct epoll_stream *stream)
{
    struct epoll_io *io = epoll_of(stream->base.io);
    ssize_t got;
    size_t wanted;

    do {
        if (stream->read_kind == READ_INTO) {
            wanted = iov_bytes(stream->read_iov, stream->read_count);
            got = readv(stream->fd, stream->read_iov, (int)stream->read_count);
        } else {
            wanted = stream->read_limit;
            got = recv(stream->fd, io->buffer, wanted, 0);
        }
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) {
        stream->can_read = false; /* E1 */
        return false;
    }
    if (got <= 0) {
        complete_read(stream, got < 0 && errno == EFAULT ? YB_FAULT : YB_PEER_LOST, NULL, 0);
        return true;
    }
    io->moved += (uint64_t)got;
    if ((size_t)got < wanted && !stream->hung_up) {
        stream->can_read = false; /* E3 */
    }
    complete_read(stream, YB_OK, io->buffer, (size_t)got);
    return true;
}

static void
unwatch(struct epoll_io *io, int fd)
{
    (void)epoll_ctl(io->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

static uint32_t
finish_close(struct epoll_stream *stream)
{
    uint32_t delivered = 1;

    if (stream->base.connecting) {
        yb_stream_deliver_connected(&stream->base, YB_CANCELLED);
        delivered++;
    }
    if (stream->base.writing) {
        complete_write(stream, YB_CANCELLED);
        delivered++;
    }
    if (stream->base.reading) {
        complete_read(stream, YB_CANCELLED, NULL, 0);
        delivered++;
    }
    unwatch(epoll_of(stream->base.io), stream->fd);
    yb_socket_close(stream->fd, (enum yb_close_how)stream->close_how);
    yb_stream_finish_closed(&stream->base);
    return delivered;
}

static uint32_t
progress_connect(struct epoll_stream *stream)
{
    int error = 0;
    socklen_t length = sizeof(error);

    if (!stream->can_write && !stream->hung_up) {
        return 0;
    }
    YB_ASSERT(getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0);
    yb_stream_deliver_connected(&stream->base, yb_io_status_of_errno(error));
    return 1;
}

static uint32_t
progress(struct epoll_stream *stream)
{
    uint32_t delivered = 0;

    if (stream->base.closing) {
        return finish_close(stream);
    }
    if (stream->base.connecting) {
        return progress_connect(stream);
    }
    if (stream->write_iov != NULL && stream->can_write && progress_write(stream)) {
        delivered++;
    }
    if (!stream->base.closing && stream->read_kind != READ_NONE && stream->can_read &&
        progress_read(stream)) {
        delivered++;
    }
    return delivered;
}

/* Let ready streams progress until `bytes_max` were moved; those that are left stay in front. */
static uint32_t
run_list(struct epoll_io *io, struct ready *ready, uint64_t bytes_max)
{
    struct epoll_stream *stream = ready->head;
    struct epoll_stream **last = ready->tail;
    uint64_t until = bytes_max < YB_NEVER - io->moved ? io->moved + bytes_max : YB_NEVER;
    uint32_t delivered = 0;

    ready->head = NULL;
    ready->tail = &ready->head;
    while (stream != NULL && io->moved < until) {
        struct epoll_stream *next = stream->next;

        stream->queued = false;
        delivered += progress(stream);
        stream = next;
    }
    if (stream != NULL) {
        *last = ready->head;
        ready->tail = ready->head != NULL ? ready->tail : last;
        ready->head = stream;
    }
    return delivered;
}

/* Note what the prompt streams did (E5). */
static void
note_prompt(struct epoll_io *io, uint64_t bytes, uint32_t delivered)
{
    uint64_t least = delivered * PROMPT_COST_MIN;

    io->prompt_bytes += bytes > least ? bytes : least;
    if (delivered > 0) {
        io->base.contended = true;
        io->calm_bytes = 0;
    }
}

/* E4 */
static uint32_t
run_ready(struct epoll_io *io)
{
    uint64_t before = io->moved;
    uint32_t delivered = run_list(io, &io->prompt, YB_NEVER);

    note_prompt(io, io->moved - before, delivered);
    if (delivered > 0 && io->prompt_bytes < PROMPT_BYTES_MAX) {
        return delivered;
    }
    io->prompt_bytes = 0;
    before = io->moved;
    delivered += run_list(io, &io->patient, io->base.contended ? YB_IO_PATIENT_BYTES : YB_NEVER);
    io->calm_bytes += io->moved - before;
    if (io->calm_bytes >= CALM_BYTES) {
        io->base.contended = false; /* E5 */
    }
    return delivered;
}

/* ---- listeners ----------------------------------------------------------------------- */

static void
watch_listener(struct yb_listener *listener, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = listener};

    YB_ASSERT(epoll_ctl(listener->io->epoll_fd, EPOLL_CTL_MOD, listener->fd, &event) == 0);
}

/* Nothing can be accepted for now; asking again and again would only burn the processor. */
static void
pause_listener(struct yb_listener *listener)
{
    listener->resume_ns =
        yb_deadline_after(yb_clock_now(listener->io->base.clock), YB_IO_ACCEPT_PAUSE_NS);
    watch_listener(listener, 0);
}

/* Watch those listeners again whose pause is over. Returns how long poll may wait for others. */
static uint64_t
resume_listeners(struct epoll_io *io, uint64_t timeout_ns)
{
    for (struct yb_listener *listener = io->listeners; listener != NULL;
         listener = listener->next) {
        uint64_t now_ns;

        if (listener->resume_ns == 0 || listener->closed) {
            continue;
        }
        now_ns = yb_clock_now(io->base.clock);
        if (now_ns >= listener->resume_ns) {
            listener->resume_ns = 0;
            watch_listener(listener, EPOLLIN);
        } else if (listener->resume_ns - now_ns < timeout_ns) {
            timeout_ns = listener->resume_ns - now_ns;
        }
    }
    return timeout_ns;
}

static uint32_t
accept_some(struct yb_listener *listener)
{
    uint32_t accepted_count = 0;

    while (!listener->closed && accepted_count < ACCEPTS_PER_POLL) {
        struct sockaddr_storage storage;
        socklen_t length = sizeof(storage);
        struct yb_accepted accepted;
        int fd = accept4(listener->fd, (struct sockaddr *)&storage, &length,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0) {
            if (yb_io_is_exhausted(errno)) {
                pause_listener(listener);
            }
            break; /* Nothing left: level-triggered, so it comes again. */
        }
        accepted.handle = fd;
        if (yb_address_from_sockaddr(&storage, &accepted.peer) != YB_OK) {
            (void)close(fd);
            continue;
        }
        accepted_count++;
        listener->on_accept(listener->owner, &accepted);
    }
    return accepted_count;
}

/* Accept on listeners that have connections, and free the closed ones (E2). */
static uint32_t
run_listeners(struct epoll_io *io)
{
    struct yb_listener **link = &io->listeners;
    uint32_t delivered = 0;

    for (struct yb_listener *listener = io->listeners; listener != NULL;
         listener = listener->next) {
        if (listener->ready) {
            listener->ready = false;
            delivered += accept_some(listener);
        }
    }
    while (*link != NULL) {
        struct yb_listener *listener = *link;

        if (listener->closed) {
            *link = listener->next;
            listener->magic = 0;
            free(listener);
        } else {
            link = &listener->next;
        }
    }
    return delivered;
}

static enum yb_status
epoll_listen(struct yb_io *base, const struct yb_address *address,
             const struct yb_stream_options *options, yb_accept_fn *on_accept, void *owner,
             struct yb_listener **listener_out)
{
    struct epoll_io *io = epoll_of(base);
    struct epoll_event event = {.events = EPOLLIN};
    struct yb_listener *listener = calloc(1, sizeof(*listener));
    enum yb_status status;

    if (listener == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_socket_listen(address, options, &listener->fd, &listener->address);
    if (status != YB_OK) {
        goto err_free;
    }
    event.data.ptr = listener;
    if (epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, listener->fd, &event) != 0) {
        status = YB_NO_MEMORY;
        goto err_close;
    }
    listener->magic = LISTENER_MAGIC;
    listener->io = io;
    listener->on_accept = on_accept;
    listener->owner = owner;
    listener->next = io->listeners;
    io->listeners = listener;
    *listener_out = listener;
    return YB_OK;

err_close:
    (void)close(listener->fd);
err_free:
    free(listener);
    return status;
}

static void
epoll_listener_address(const struct yb_listener *listener, struct yb_address *address_out)
{
    YB_ASSERT_OBJ(listener, LISTENER_MAGIC);
    *address_out = listener->address;
}

static void
epoll_listener_close(struct yb_listener *listener)
{
    YB_ASSERT_OBJ(listener, LISTENER_MAGIC);
    YB_ASSERT(!listener->closed);
    listener->closed = true;
    unwatch(listener->io, listener->fd); /* E2 */
    (void)close(listener->fd);
}

/* ---- streams ------------------------------------------------------------------------- */

static enum yb_status
watch(struct epoll_io *io, struct epoll_stream *stream)
{
    struct epoll_event event = {
        .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
        .data.ptr = stream,
    };

    return epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, stream->fd, &event) == 0 ? YB_OK : YB_NO_MEMORY;
}

static enum yb_status
epoll_connect(struct yb_io *base, const struct yb_address *address,
              const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct epoll_stream *stream = stream_of(base_stream);
    struct sockaddr_storage storage;
    socklen_t length;
    enum yb_status status;

    status = yb_socket_open(address, &stream->fd);
    if (status != YB_OK) {
        return status;
    }
    yb_socket_set_options(stream->fd, options);
    yb_address_to_sockaddr(address, &storage, &length);
    if (connect(stream->fd, (const struct sockaddr *)&storage, length) != 0 &&
        errno != EINPROGRESS) {
        status = yb_io_status_of_errno(errno);
        goto err_close;
    }
    status = watch(epoll_of(base), stream);
    if (status != YB_OK) {
        goto err_close;
    }
    return YB_OK;

err_close:
    (void)close(stream->fd);
    return status;
}

static enum yb_status
epoll_adopt(struct yb_io *base, const struct yb_accepted *accepted,
            const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct epoll_stream *stream = stream_of(base_stream);

    stream->fd = (int)accepted->handle;
    stream->can_write = true;
    yb_socket_set_options(stream->fd, options);
    return watch(epoll_of(base), stream);
}

static void
epoll_discard(struct yb_io *io, const struct yb_accepted *accepted)
{
    (void)io;
    (void)close((int)accepted->handle);
}

static enum yb_status
epoll_read(struct yb_stream *base, size_t limit)
{
    struct epoll_stream *stream = stream_of(base);

    stream->read_kind = READ_BYTES;
    stream->read_limit = limit;
    if (stream->can_read) {
        enqueue(stream);
    }
    return YB_OK;
}

static enum yb_status
epoll_read_into(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct epoll_stream *stream = stream_of(base);

    stream->read_kind = READ_INTO;
    stream->read_iov = iov;
    stream->read_count = count;
    if (stream->can_read) {
        enqueue(stream);
    }
    return YB_OK;
}

static enum yb_status
epoll_write(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct epoll_stream *stream = stream_of(base);

    stream->write_iov = iov;
    stream->write_count = count;
    stream->write_index = 0;
    stream->write_skip = 0;
    stream->written = 0;
    if (stream->can_write) {
        enqueue(stream);
    }
    return YB_OK;
}

static void
epoll_close(struct yb_stream *base, enum yb_close_how how)
{
    struct epoll_stream *stream = stream_of(base);

    stream->close_how = (uint8_t)how;
    enqueue(stream);
}

/* ---- the loop's side ------------------------------------------------------------------ */

static void
note_event(struct epoll_io *io, const struct epoll_event *event)
{
    struct epoll_stream *stream = event->data.ptr;
    struct yb_listener *listener = event->data.ptr;
    uint64_t count;

    if (event->data.ptr == NULL) {
        (void)!read(io->wake_fd, &count, sizeof(count));
        return;
    }
    if (listener->magic == LISTENER_MAGIC) {
        listener->ready = true;
        return;
    }
    if ((event->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        stream->can_read = true;
    }
    if ((event->events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) {
        stream->can_write = true;
    }
    if ((event->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
        stream->hung_up = true;
    }
    if (stream->base.connecting || stream->base.reading || stream->base.writing) {
        enqueue(stream);
    }
}

/* epoll counts milliseconds; rounding up keeps a timer from spinning on its last one. */
static int
timeout_ms(uint64_t timeout_ns)
{
    uint64_t ms;

    if (timeout_ns == YB_NEVER) {
        return -1;
    }
    ms = timeout_ns / YB_NS_PER_MS + (timeout_ns % YB_NS_PER_MS != 0);
    return ms > 60000 ? 60000 : (int)ms;
}

static uint32_t
epoll_poll(struct yb_io *base, uint64_t timeout_ns)
{
    struct epoll_io *io = epoll_of(base);
    uint32_t delivered = run_ready(io);
    int count;

    if (delivered > 0) {
        if (++io->ready_polls < READY_POLLS_MAX &&
            (!io->base.contended || io->moved < YB_IO_PATIENT_BYTES)) {
            return delivered;
        }
        timeout_ns = 0;
    }
    io->ready_polls = 0;
    io->moved = 0;
    timeout_ns = resume_listeners(io, timeout_ns);
    if (io->prompt.head != NULL || io->patient.head != NULL) {
        timeout_ns = 0;
    }
    count = epoll_wait(io->epoll_fd, io->events, EVENTS_MAX, timeout_ms(timeout_ns));
    YB_ASSERT(count >= 0 || errno == EINTR);
    for (int i = 0; i < count; i++) {
        note_event(io, &io->events[i]);
    }
    delivered += run_listeners(io);
    return delivered + run_ready(io);
}

static void
epoll_wake(struct yb_io *base)
{
    uint64_t one = 1;

    (void)!write(epoll_of(base)->wake_fd, &one, sizeof(one));
}

static int
epoll_wake_fd(const struct yb_io *base)
{
    return ((const struct epoll_io *)base)->wake_fd;
}

static void
epoll_destroy(struct yb_io *base)
{
    struct epoll_io *io = epoll_of(base);

    (void)run_list(io, &io->prompt, YB_NEVER);
    (void)run_list(io, &io->patient, YB_NEVER);
    (void)run_listeners(io);
    YB_ASSERT(io->prompt.head == NULL && io->patient.head == NULL && io->listeners == NULL);
    (void)close(io->wake_fd);
    (void)close(io->epoll_fd);
    io->base.magic = 0;
    free(io);
}

enum yb_status
yb_io_epoll_create(const struct yb_clock *clock, struct yb_io **io_out)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_io *io = malloc(sizeof(*io));

    if (io == NULL) {
        return YB_NO_MEMORY;
    }
    memset(io, 0, offsetof(struct epoll_io, events));
    yb_io_init(&io->base, &epoll_ops, clock);
    io->prompt.tail = &io->prompt.head;
    io->patient.tail = &io->patient.head;
    io->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (io->epoll_fd < 0) {
        goto err_free;
    }
    io->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (io->wake_fd < 0) {
        goto err_close_epoll;
    }
    if (epoll_ctl(io->epoll_fd, EPOLL_CTL_ADD, io->wake_fd, &event) != 0) {
        goto err_close_wake;
    }
    *io_out = &io->base;
    return YB_OK;

err_close_wake:
    (void)close(io->wake_fd);
err_close_epoll:
    (void)close(io->epoll_fd);
err_free:
    free(io);
    return YB_NO_MEMORY;
}

static const struct yb_io_ops epoll_ops = {
    .name = "epoll",
    .destroy = epoll_destroy,
    .poll = epoll_poll,
    .wake = epoll_wake,
    .wake_fd = epoll_wake_fd,
    .listen = epoll_listen,
    .listener_address = epoll_listener_address,
    .listener_close = epoll_listener_close,
    .connect = epoll_connect,
    .adopt = epoll_adopt,
    .discard = epoll_discard,
    .read = epoll_read,
    .read_into = epoll_read_into,
    .write = epoll_write,
    .close = epoll_close,
    .stream_bytes = sizeof(struct epoll_stream),
};
