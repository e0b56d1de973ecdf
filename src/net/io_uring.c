/* SPDX-License-Identifier: Apache-2.0
 *
 * The io_uring backend of io.h.
 *
 * Every operation is one submission; all of an iteration go to the kernel in
 * the one system call that also waits. Reads take their buffer from a ring
 * shared by all streams at the moment the bytes are there, so that an idle
 * stream costs none.
 *
 * A completion names its stream and the kind of operation in the low bits of
 * the stream's address. A closing stream cancels what is in flight and is freed
 * when the last completion came back: until then the kernel may still touch the
 * caller's memory.
 *
 * Invariants
 *   U1  `inflight` counts the submissions whose completion has not been seen,
 *       cancellations included; a stream is freed only at zero.
 *   U2  A buffer goes back to the ring before poll() returns.
 */
#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "net/io_internal.h"

#define LISTENER_MAGIC  0x6c697375u
#define RING_ENTRIES    512
#define COMPLETIONS_MAX 4096
#define BUFFER_COUNT    32u /* A power of two. */
#define BUFFER_BYTES    (64u * 1024u)
#define BUFFER_GROUP    0

/* The low bits of a completion's user data. */
enum tag { TAG_READ, TAG_READ_INTO, TAG_WRITE, TAG_CONNECT, TAG_CANCEL, TAG_ACCEPT, TAG_WAKE };
#define TAG_MASK 7ull

struct uring_stream {
    struct yb_stream base;
    struct uring_stream *next; /* The list of streams to finish. */
    int fd;
    uint32_t inflight; /* U1 */
    uint8_t read_kind; /* TAG_READ or TAG_READ_INTO. */
    uint8_t close_how;
    bool finishing;
    size_t read_limit;
    const struct iovec *read_iov;
    uint32_t read_count;
    const struct iovec *write_iov;
    uint32_t write_count;
    uint32_t write_index;
    size_t write_skip;
    size_t written;
    struct msghdr message; /* Read by the kernel until the write completes ... */
    struct iovec first[1]; /* ... as is the rest of a vector that was partly written. */
    struct sockaddr_storage target;
};

struct yb_listener {
    uint32_t magic;
    int fd;
    bool closed;
    bool armed;
    uint64_t resume_ns; /* Not 0: there were no descriptors; not armed until then. */
    struct uring_io *io;
    struct yb_listener *next;
    yb_accept_fn *on_accept;
    void *owner;
    struct yb_address address;
};

struct uring_io {
    struct yb_io base;
    struct io_uring ring;
    struct io_uring_buf_ring *buffer_ring;
    uint8_t *buffers;
    int wake_fd;
    uint64_t wake_value;
    struct uring_stream *finish_head;
    struct yb_listener *listeners;
};

static const struct yb_io_ops uring_ops;

static struct uring_io *
uring_of(struct yb_io *io)
{
    return (struct uring_io *)io;
}

static struct uring_stream *
stream_of(struct yb_stream *stream)
{
    return (struct uring_stream *)stream;
}

/* Return a free submission; pushes the full queue to the kernel first if it must. */
static struct io_uring_sqe *
next_sqe(struct uring_io *io)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&io->ring);

    if (sqe == NULL) {
        (void)io_uring_submit(&io->ring);
        sqe = io_uring_get_sqe(&io->ring);
    }
    YB_ASSERT(sqe != NULL); /* The kernel consumes every entry it is shown. */
    return sqe;
}

static void
set_tag(struct io_uring_sqe *sqe, void *object, enum tag tag)
{
    YB_ASSERT(((uintptr_t)object & TAG_MASK) == 0);
    io_uring_sqe_set_data64(sqe, (uint64_t)(uintptr_t)object | (uint64_t)tag);
}

/* ---- operations ---------------------------------------------------------------------- */

static void
submit_read(struct uring_stream *stream)
{
    struct io_uring_sqe *sqe = next_sqe(uring_of(stream->base.io));

    if (stream->read_kind == TAG_READ) {
        io_uring_prep_recv(sqe, stream->fd, NULL, stream->read_limit, 0);
        sqe->flags |= IOSQE_BUFFER_SELECT;
        sqe->buf_group = BUFFER_GROUP;
    } else {
        io_uring_prep_readv(sqe, stream->fd, stream->read_iov, stream->read_count, 0);
    }
    set_tag(sqe, stream, (enum tag)stream->read_kind);
    stream->inflight++;
}

/* Send from the first vector that is not wholly written. A vector that was partly written goes
 * alone, from a copy; whole ones go together, straight from the caller's array. */
static void
submit_write(struct uring_stream *stream)
{
    struct io_uring_sqe *sqe = next_sqe(uring_of(stream->base.io));

    memset(&stream->message, 0, sizeof(stream->message));
    if (stream->write_skip > 0) {
        const struct iovec *partial = &stream->write_iov[stream->write_index];

        stream->first[0].iov_base = (uint8_t *)partial->iov_base + stream->write_skip;
        stream->first[0].iov_len = partial->iov_len - stream->write_skip;
        stream->message.msg_iov = stream->first;
        stream->message.msg_iovlen = 1;
    } else {
        union {
            const struct iovec *in;
            struct iovec *out;
        } vectors = {.in = stream->write_iov + stream->write_index};

        stream->message.msg_iov = vectors.out; /* The kernel only reads it. */
        stream->message.msg_iovlen = stream->write_count - stream->write_index;
    }
    io_uring_prep_sendmsg(sqe, stream->fd, &stream->message, MSG_NOSIGNAL);
    set_tag(sqe, stream, TAG_WRITE);
    stream->inflight++;
}

static enum yb_status
read_status(int result)
{
    if (result > 0) {
        return YB_OK;
    }
    return result == -EFAULT ? YB_FAULT : YB_PEER_LOST;
}

/* Give buffer `id` back to the ring (U2). */
static void
recycle(struct uring_io *io, uint16_t id)
{
    io_uring_buf_ring_add(io->buffer_ring, io->buffers + (size_t)id * BUFFER_BYTES, BUFFER_BYTES,
                          id, io_uring_buf_ring_mask(BUFFER_COUNT), 0);
    io_uring_buf_ring_advance(io->buffer_ring, 1);
}

static uint32_t
on_read(struct uring_stream *stream, int result, uint32_t flags)
{
    struct uring_io *io = uring_of(stream->base.io);
    const uint8_t *bytes = NULL;
    uint16_t id = 0;

    if ((flags & IORING_CQE_F_BUFFER) != 0) {
        id = (uint16_t)(flags >> IORING_CQE_BUFFER_SHIFT);
        bytes = io->buffers + (size_t)id * BUFFER_BYTES;
    }
    if (stream->base.closing) {
        yb_stream_deliver_bytes(&stream->base, YB_CANCELLED, NULL, 0);
    } else if (result == -ENOBUFS || result == -EINTR || result == -EAGAIN) {
        submit_read(stream); /* All buffers were out; they are back by the next poll. */
        return 0;
    } else {
        yb_stream_deliver_bytes(&stream->base, read_status(result), result > 0 ? bytes : NULL,
                                result > 0 ? (size_t)result : 0);
    }
    if (bytes != NULL) {
        recycle(io, id);
    }
    return 1;
}

static uint32_t
on_read_into(struct uring_stream *stream, int result)
{
    if (stream->base.closing) {
        yb_stream_deliver_filled(&stream->base, YB_CANCELLED, 0);
    } else if (result == -EINTR || result == -EAGAIN) {
        submit_read(stream);
        return 0;
    } else {
        yb_stream_deliver_filled(&stream->base, read_status(result),
                                 result > 0 ? (size_t)result : 0);
    }
    return 1;
}

static uint32_t
on_write(struct uring_stream *stream, int result)
{
    size_t sent = result > 0 ? (size_t)result : 0;

    stream->written += sent;
    if (stream->base.closing) {
        yb_stream_deliver_written(&stream->base, YB_CANCELLED, stream->written);
        return 1;
    }
    if (result < 0 && result != -EINTR && result != -EAGAIN) {
        yb_stream_deliver_written(&stream->base, result == -EFAULT ? YB_FAULT : YB_PEER_LOST,
                                  stream->written);
        return 1;
    }
    sent += stream->write_skip;
    while (stream->write_index < stream->write_count &&
           sent >= stream->write_iov[stream->write_index].iov_len) {
        sent -= stream->write_iov[stream->write_index].iov_len;
        stream->write_index++;
    }
    stream->write_skip = sent;
    if (stream->write_index < stream->write_count) {
        submit_write(stream);
        return 0;
    }
    yb_stream_deliver_written(&stream->base, YB_OK, stream->written);
    return 1;
}

static uint32_t
on_connect(struct uring_stream *stream, int result)
{
    enum yb_status status = stream->base.closing ? YB_CANCELLED : yb_io_status_of_errno(-result);

    yb_stream_deliver_connected(&stream->base, status);
    return 1;
}

/* ---- closing ------------------------------------------------------------------------- */

static void
finish_later(struct uring_stream *stream)
{
    struct uring_io *io = uring_of(stream->base.io);

    YB_ASSERT(stream->inflight == 0 && !stream->finishing);
    stream->finishing = true;
    stream->next = io->finish_head;
    io->finish_head = stream;
}

static uint32_t
run_finish(struct uring_io *io)
{
    uint32_t delivered = 0;

    while (io->finish_head != NULL) {
        struct uring_stream *stream = io->finish_head;

        io->finish_head = stream->next;
        yb_socket_close(stream->fd, (enum yb_close_how)stream->close_how);
        yb_stream_finish_closed(&stream->base);
        delivered++;
    }
    return delivered;
}

static void
cancel(struct uring_stream *stream, enum tag tag)
{
    struct io_uring_sqe *sqe = next_sqe(uring_of(stream->base.io));

    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)stream | (uint64_t)tag, 0);
    set_tag(sqe, stream, TAG_CANCEL);
    stream->inflight++;
}

static void
uring_close(struct yb_stream *base, enum yb_close_how how)
{
    struct uring_stream *stream = stream_of(base);

    stream->close_how = (uint8_t)how;
    if (stream->inflight == 0) {
        finish_later(stream);
        return;
    }
    if (base->connecting) {
        cancel(stream, TAG_CONNECT);
    }
    if (base->reading) {
        cancel(stream, (enum tag)stream->read_kind);
    }
    if (base->writing) {
        cancel(stream, TAG_WRITE);
    }
}

/* ---- listeners ----------------------------------------------------------------------- */

static void
arm_accept(struct yb_listener *listener)
{
    struct io_uring_sqe *sqe = next_sqe(listener->io);

    io_uring_prep_multishot_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    set_tag(sqe, listener, TAG_ACCEPT);
    listener->armed = true;
}

static void
free_listener(struct yb_listener *listener)
{
    struct yb_listener **link = &listener->io->listeners;

    while (*link != listener) {
        link = &(*link)->next;
    }
    *link = listener->next;
    (void)close(listener->fd);
    listener->magic = 0;
    free(listener);
}

static uint32_t
on_accepted(struct yb_listener *listener, int result, uint32_t flags)
{
    struct sockaddr_storage storage;
    socklen_t length = sizeof(storage);
    struct yb_accepted accepted = {.handle = result};
    uint32_t delivered = 0;

    listener->armed = (flags & IORING_CQE_F_MORE) != 0;
    if (result >= 0) {
        if (listener->closed || getpeername(result, (struct sockaddr *)&storage, &length) != 0 ||
            yb_address_from_sockaddr(&storage, &accepted.peer) != YB_OK) {
            (void)close(result);
        } else {
            listener->on_accept(listener->owner, &accepted);
            delivered = 1;
        }
    }
    if (!listener->armed) {
        if (listener->closed) {
            free_listener(listener);
        } else if (yb_io_is_exhausted(-result)) {
            /* Asking again at once would only burn the processor. */
            listener->resume_ns =
                yb_deadline_after(yb_clock_now(listener->io->base.clock), YB_IO_ACCEPT_PAUSE_NS);
        } else {
            arm_accept(listener);
        }
    }
    return delivered;
}

/* Accept again on listeners whose pause is over. Returns how long poll may wait for others. */
static uint64_t
resume_listeners(struct uring_io *io, uint64_t timeout_ns)
{
    for (struct yb_listener *listener = io->listeners; listener != NULL;
         listener = listener->next) {
        uint64_t now_ns;

        if (listener->resume_ns == 0) {
            continue;
        }
        now_ns = yb_clock_now(io->base.clock);
        if (now_ns >= listener->resume_ns) {
            listener->resume_ns = 0;
            arm_accept(listener);
        } else if (listener->resume_ns - now_ns < timeout_ns) {
            timeout_ns = listener->resume_ns - now_ns;
        }
    }
    return timeout_ns;
}

static enum yb_status
uring_listen(struct yb_io *base, const struct yb_address *address,
             const struct yb_stream_options *options, yb_accept_fn *on_accept, void *owner,
             struct yb_listener **listener_out)
{
    struct uring_io *io = uring_of(base);
    struct yb_listener *listener = calloc(1, sizeof(*listener));
    enum yb_status status;

    if (listener == NULL) {
        return YB_NO_MEMORY;
    }
    status = yb_socket_listen(address, options, &listener->fd, &listener->address);
    if (status != YB_OK) {
        free(listener);
        return status;
    }
    listener->magic = LISTENER_MAGIC;
    listener->io = io;
    listener->on_accept = on_accept;
    listener->owner = owner;
    listener->next = io->listeners;
    io->listeners = listener;
    arm_accept(listener);
    *listener_out = listener;
    return YB_OK;
}

static void
uring_listener_address(const struct yb_listener *listener, struct yb_address *address_out)
{
    YB_ASSERT_OBJ(listener, LISTENER_MAGIC);
    *address_out = listener->address;
}

/* The port must be free when this returns, so the socket stops listening at once; the
 * descriptor itself lives until the kernel has given up the accept. */
static void
uring_listener_close(struct yb_listener *listener)
{
    struct io_uring_sqe *sqe;

    YB_ASSERT_OBJ(listener, LISTENER_MAGIC);
    YB_ASSERT(!listener->closed);
    if (listener->resume_ns != 0) {
        free_listener(listener); /* The kernel holds nothing of it. */
        return;
    }
    listener->closed = true;
    (void)shutdown(listener->fd, SHUT_RDWR);
    sqe = next_sqe(listener->io);
    io_uring_prep_cancel64(sqe, (uint64_t)(uintptr_t)listener | TAG_ACCEPT, 0);
    set_tag(sqe, NULL, TAG_CANCEL);
}

/* ---- streams ------------------------------------------------------------------------- */

static enum yb_status
uring_connect(struct yb_io *base, const struct yb_address *address,
              const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct uring_stream *stream = stream_of(base_stream);
    struct io_uring_sqe *sqe;
    socklen_t length;
    enum yb_status status;

    status = yb_socket_open(address, &stream->fd);
    if (status != YB_OK) {
        return status;
    }
    yb_socket_set_options(stream->fd, options);
    yb_address_to_sockaddr(address, &stream->target, &length);
    sqe = next_sqe(uring_of(base));
    io_uring_prep_connect(sqe, stream->fd, (struct sockaddr *)&stream->target, length);
    set_tag(sqe, stream, TAG_CONNECT);
    stream->inflight++;
    return YB_OK;
}

static enum yb_status
uring_adopt(struct yb_io *io, const struct yb_accepted *accepted,
            const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct uring_stream *stream = stream_of(base_stream);

    (void)io;
    stream->fd = (int)accepted->handle;
    yb_socket_set_options(stream->fd, options);
    return YB_OK;
}

static void
uring_discard(struct yb_io *io, const struct yb_accepted *accepted)
{
    (void)io;
    (void)close((int)accepted->handle);
}

static enum yb_status
uring_read(struct yb_stream *base, size_t limit)
{
    struct uring_stream *stream = stream_of(base);

    stream->read_kind = TAG_READ;
    stream->read_limit = limit < BUFFER_BYTES ? limit : BUFFER_BYTES;
    submit_read(stream);
    return YB_OK;
}

static enum yb_status
uring_read_into(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct uring_stream *stream = stream_of(base);

    stream->read_kind = TAG_READ_INTO;
    stream->read_iov = iov;
    stream->read_count = count;
    submit_read(stream);
    return YB_OK;
}

static enum yb_status
uring_write(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct uring_stream *stream = stream_of(base);

    stream->write_iov = iov;
    stream->write_count = count;
    stream->write_index = 0;
    stream->write_skip = 0;
    stream->written = 0;
    submit_write(stream);
    return YB_OK;
}

/* ---- the loop's side ------------------------------------------------------------------ */

static void
arm_wake(struct uring_io *io)
{
    struct io_uring_sqe *sqe = next_sqe(io);

    io_uring_prep_read(sqe, io->wake_fd, &io->wake_value, sizeof(io->wake_value), 0);
    set_tag(sqe, NULL, TAG_WAKE);
}

static uint32_t
dispatch(struct uring_io *io, uint64_t data, int result, uint32_t flags)
{
    enum tag tag = (enum tag)(data & TAG_MASK);
    void *object = (void *)(uintptr_t)(data & ~TAG_MASK);
    struct uring_stream *stream = object;
    uint32_t delivered = 0;

    if (tag == TAG_WAKE) {
        arm_wake(io);
        return 0;
    }
    if (tag == TAG_ACCEPT) {
        return on_accepted(object, result, flags);
    }
    if (object == NULL) {
        return 0; /* The answer to a listener's cancellation. */
    }
    YB_ASSERT_OBJ(&stream->base, YB_STREAM_MAGIC);
    YB_ASSERT(stream->inflight > 0);
    stream->inflight--;
    switch (tag) {
    case TAG_READ: delivered = on_read(stream, result, flags); break;
    case TAG_READ_INTO: delivered = on_read_into(stream, result); break;
    case TAG_WRITE: delivered = on_write(stream, result); break;
    case TAG_CONNECT: delivered = on_connect(stream, result); break;
    default: break;
    }
    if (stream->base.closing && stream->inflight == 0 && !stream->finishing) {
        finish_later(stream);
    }
    return delivered;
}

static uint32_t
reap(struct uring_io *io)
{
    struct io_uring_cqe *cqe;
    uint32_t delivered = 0;

    for (uint32_t seen = 0; seen < COMPLETIONS_MAX; seen++) {
        uint64_t data;
        uint32_t flags;
        int result;

        if (io_uring_peek_cqe(&io->ring, &cqe) != 0) {
            break;
        }
        data = io_uring_cqe_get_data64(cqe);
        result = cqe->res;
        flags = cqe->flags;
        io_uring_cqe_seen(&io->ring, cqe);
        delivered += dispatch(io, data, result, flags);
    }
    return delivered;
}

static uint32_t
uring_poll(struct yb_io *base, uint64_t timeout_ns)
{
    struct uring_io *io = uring_of(base);
    uint32_t delivered = run_finish(io);
    struct io_uring_cqe *cqe;
    struct __kernel_timespec wait;
    int error;

    timeout_ns = resume_listeners(io, timeout_ns);
    if (delivered > 0 || timeout_ns == 0) {
        error = io_uring_submit_and_get_events(&io->ring);
    } else if (timeout_ns == YB_NEVER) {
        error = io_uring_submit_and_wait(&io->ring, 1);
    } else {
        wait.tv_sec = (long long)(timeout_ns / YB_NS_PER_S);
        wait.tv_nsec = (long long)(timeout_ns % YB_NS_PER_S);
        error = io_uring_submit_and_wait_timeout(&io->ring, &cqe, 1, &wait, NULL);
    }
    YB_ASSERT(error >= 0 || error == -ETIME || error == -EINTR || error == -EBUSY ||
              error == -EAGAIN);
    delivered += reap(io);
    return delivered + run_finish(io);
}

static void
uring_wake(struct yb_io *base)
{
    uint64_t one = 1;

    (void)!write(uring_of(base)->wake_fd, &one, sizeof(one));
}

static int
uring_wake_fd(const struct yb_io *base)
{
    return ((const struct uring_io *)base)->wake_fd;
}

static void
uring_destroy(struct yb_io *base)
{
    struct uring_io *io = uring_of(base);

    while (io->listeners != NULL) {
        YB_ASSERT(io->listeners->closed);
        (void)uring_poll(base, YB_NS_PER_MS);
    }
    YB_ASSERT(io->finish_head == NULL);
    (void)io_uring_unregister_buf_ring(&io->ring, BUFFER_GROUP);
    io_uring_queue_exit(&io->ring);
    (void)munmap(io->buffers, (size_t)BUFFER_COUNT * BUFFER_BYTES);
    (void)munmap(io->buffer_ring, BUFFER_COUNT * sizeof(struct io_uring_buf));
    (void)close(io->wake_fd);
    io->base.magic = 0;
    free(io);
}

static void *
map_pages(size_t bytes)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return pages == MAP_FAILED ? NULL : pages;
}

static enum yb_status
create_buffers(struct uring_io *io)
{
    struct io_uring_buf_reg registration = {.ring_entries = BUFFER_COUNT, .bgid = BUFFER_GROUP};

    io->buffer_ring = map_pages(BUFFER_COUNT * sizeof(struct io_uring_buf));
    io->buffers = map_pages((size_t)BUFFER_COUNT * BUFFER_BYTES);
    if (io->buffer_ring == NULL || io->buffers == NULL) {
        return YB_NO_MEMORY;
    }
    io_uring_buf_ring_init(io->buffer_ring);
    registration.ring_addr = (uint64_t)(uintptr_t)io->buffer_ring;
    if (io_uring_register_buf_ring(&io->ring, &registration, 0) != 0) {
        return YB_UNSUPPORTED; /* Before Linux 5.19. */
    }
    for (uint16_t id = 0; id < BUFFER_COUNT; id++) {
        recycle(io, id);
    }
    return YB_OK;
}

/* Newest flags first; an older kernel refuses the ones it does not know. */
static int
init_ring(struct io_uring *ring)
{
    static const unsigned flag_sets[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CLAMP,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_CLAMP,
        IORING_SETUP_CLAMP,
    };
    int error = -EINVAL;

    for (size_t i = 0; i < sizeof(flag_sets) / sizeof(flag_sets[0]); i++) {
        struct io_uring_params params = {
            .flags = flag_sets[i] | IORING_SETUP_CQSIZE,
            .cq_entries = COMPLETIONS_MAX,
        };

        error = io_uring_queue_init_params(RING_ENTRIES, ring, &params);
        if (error != -EINVAL) {
            break;
        }
    }
    return error;
}

enum yb_status
yb_io_uring_create(const struct yb_clock *clock, struct yb_io **io_out)
{
    struct uring_io *io = calloc(1, sizeof(*io));
    enum yb_status status = YB_UNSUPPORTED;

    if (io == NULL) {
        return YB_NO_MEMORY;
    }
    yb_io_init(&io->base, &uring_ops, clock);
    if (init_ring(&io->ring) != 0) {
        goto err_free;
    }
    status = create_buffers(io);
    if (status != YB_OK) {
        goto err_exit_ring;
    }
    io->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (io->wake_fd < 0) {
        status = YB_NO_MEMORY;
        goto err_exit_ring;
    }
    arm_wake(io);
    *io_out = &io->base;
    return YB_OK;

err_exit_ring:
    io_uring_queue_exit(&io->ring);
    if (io->buffers != NULL) {
        (void)munmap(io->buffers, (size_t)BUFFER_COUNT * BUFFER_BYTES);
    }
    if (io->buffer_ring != NULL) {
        (void)munmap(io->buffer_ring, BUFFER_COUNT * sizeof(struct io_uring_buf));
    }
err_free:
    free(io);
    return status;
}

static const struct yb_io_ops uring_ops = {
    .name = "io_uring",
    .destroy = uring_destroy,
    .poll = uring_poll,
    .wake = uring_wake,
    .wake_fd = uring_wake_fd,
    .listen = uring_listen,
    .listener_address = uring_listener_address,
    .listener_close = uring_listener_close,
    .connect = uring_connect,
    .adopt = uring_adopt,
    .discard = uring_discard,
    .read = uring_read,
    .read_into = uring_read_into,
    .write = uring_write,
    .close = uring_close,
    .stream_bytes = sizeof(struct uring_stream),
};
