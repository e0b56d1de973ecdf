/* SPDX-License-Identifier: Apache-2.0
 *
 * The contract of io.h, checked once for every backend: what a caller must not
 * do aborts here, and the in-flight marks are set and cleared only here.
 */
#include "net/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/io_internal.h"

void
yb_io_init(struct yb_io *io, const struct yb_io_ops *ops, const struct yb_clock *clock)
{
    YB_ASSERT(ops != NULL && clock != NULL);
    io->magic = YB_IO_MAGIC;
    io->ops = ops;
    io->clock = clock;
}

enum yb_status
yb_io_create(const char *backend, const struct yb_clock *clock, struct yb_io **io_out)
{
    YB_ASSERT(backend != NULL && io_out != NULL);
    /* "auto" is epoll: it was measured to answer small requests sooner, and large batches no
     * later (docs/design-notes.md). */
    if (strcmp(backend, "epoll") == 0 || strcmp(backend, "auto") == 0) {
        return yb_io_epoll_create(clock, io_out);
    }
    if (strcmp(backend, "io_uring") == 0) {
        return yb_io_uring_create(clock, io_out);
    }
    return YB_INVALID;
}

void
yb_io_destroy(struct yb_io **io_ref)
{
    struct yb_io *io = *io_ref;

    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    *io_ref = NULL;
    io->ops->destroy(io);
}

uint32_t
yb_io_poll(struct yb_io *io, uint64_t timeout_ns)
{
    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    return io->ops->poll(io, timeout_ns);
}

void
yb_io_wake(struct yb_io *io)
{
    io->ops->wake(io);
}

int
yb_io_wake_fd(const struct yb_io *io)
{
    return io->ops->wake_fd == NULL ? -1 : io->ops->wake_fd(io);
}

enum yb_status
yb_io_listen(struct yb_io *io, const struct yb_address *address,
             const struct yb_stream_options *options, yb_accept_fn *on_accept, void *owner,
             struct yb_listener **listener_out)
{
    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    YB_ASSERT(on_accept != NULL && listener_out != NULL);
    return io->ops->listen(io, address, options, on_accept, owner, listener_out);
}

void
yb_io_listener_address(const struct yb_io *io, const struct yb_listener *listener,
                       struct yb_address *address_out)
{
    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    io->ops->listener_address(listener, address_out);
}

void
yb_io_listener_close(struct yb_io *io, struct yb_listener **listener_ref)
{
    struct yb_listener *listener = *listener_ref;

    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    *listener_ref = NULL;
    io->ops->listener_close(listener);
}

/* Allocate the backend's stream with its head filled in. NULL: no memory. */
static struct yb_stream *
stream_new(struct yb_io *io, const struct yb_stream_events *events, void *owner)
{
    struct yb_stream *stream = calloc(1, io->ops->stream_bytes);

    YB_ASSERT(events != NULL && events->on_bytes != NULL && events->on_written != NULL &&
              events->on_closed != NULL);
    if (stream != NULL) {
        stream->magic = YB_STREAM_MAGIC;
        stream->io = io;
        stream->events = events;
        stream->owner = owner;
    }
    return stream;
}

enum yb_status
yb_io_connect(struct yb_io *io, const struct yb_address *address,
              const struct yb_stream_options *options, const struct yb_stream_events *events,
              void *owner, struct yb_stream **stream_out)
{
    struct yb_stream *stream;
    enum yb_status status;

    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    YB_ASSERT(events->on_connected != NULL && stream_out != NULL);
    if (address->port == 0 || yb_address_is_wildcard(address)) {
        return YB_INVALID;
    }
    stream = stream_new(io, events, owner);
    if (stream == NULL) {
        return YB_NO_MEMORY;
    }
    stream->connecting = true;
    status = io->ops->connect(io, address, options, stream);
    if (status != YB_OK) {
        stream->magic = 0;
        free(stream);
        return status;
    }
    *stream_out = stream;
    return YB_OK;
}

enum yb_status
yb_io_adopt(struct yb_io *io, const struct yb_accepted *accepted,
            const struct yb_stream_options *options, const struct yb_stream_events *events,
            void *owner, struct yb_stream **stream_out)
{
    struct yb_stream *stream;
    enum yb_status status;

    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    YB_ASSERT(stream_out != NULL);
    stream = stream_new(io, events, owner);
    if (stream == NULL) {
        return YB_NO_MEMORY;
    }
    status = io->ops->adopt(io, accepted, options, stream);
    if (status != YB_OK) {
        stream->magic = 0;
        free(stream);
        return status;
    }
    *stream_out = stream;
    return YB_OK;
}

void
yb_io_discard(struct yb_io *io, const struct yb_accepted *accepted)
{
    YB_ASSERT_OBJ(io, YB_IO_MAGIC);
    io->ops->discard(io, accepted);
}

/* Abort on a submit that breaks the contract; `busy` is the mark that must be clear. */
static void
check_submit(const struct yb_stream *stream, bool busy)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(!stream->closing && !stream->connecting);
    YB_ASSERT(!busy);
}

enum yb_status
yb_stream_read(struct yb_stream *stream, size_t limit)
{
    enum yb_status status;

    check_submit(stream, stream->reading);
    YB_ASSERT(limit > 0 && limit <= YB_IO_READ_BYTES_MAX);
    status = stream->io->ops->read(stream, limit);
    stream->reading = status == YB_OK;
    return status;
}

enum yb_status
yb_stream_read_into(struct yb_stream *stream, const struct iovec *iov, uint32_t count)
{
    enum yb_status status;

    check_submit(stream, stream->reading);
    YB_ASSERT(stream->events->on_filled != NULL);
    YB_ASSERT(count > 0 && count <= YB_IO_IOV_COUNT_MAX);
    status = stream->io->ops->read_into(stream, iov, count);
    stream->reading = status == YB_OK;
    return status;
}

enum yb_status
yb_stream_write(struct yb_stream *stream, const struct iovec *iov, uint32_t count)
{
    enum yb_status status;

    check_submit(stream, stream->writing);
    YB_ASSERT(count > 0 && count <= YB_IO_IOV_COUNT_MAX);
    status = stream->io->ops->write(stream, iov, count);
    stream->writing = status == YB_OK;
    return status;
}

void
yb_stream_set_patient(struct yb_stream *stream)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    stream->patient = true;
}

void
yb_stream_close(struct yb_stream *stream, enum yb_close_how how)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(!stream->closing);
    stream->closing = true;
    stream->io->ops->close(stream, how);
}

void
yb_stream_deliver_connected(struct yb_stream *stream, enum yb_status status)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(stream->connecting);
    stream->connecting = false;
    stream->events->on_connected(stream->owner, status);
}

void
yb_stream_deliver_bytes(struct yb_stream *stream, enum yb_status status, const uint8_t *bytes,
                        size_t length)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(stream->reading);
    stream->reading = false;
    stream->events->on_bytes(stream->owner, status, bytes, length);
}

void
yb_stream_deliver_filled(struct yb_stream *stream, enum yb_status status, size_t length)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(stream->reading);
    stream->reading = false;
    stream->events->on_filled(stream->owner, status, length);
}

void
yb_stream_deliver_written(struct yb_stream *stream, enum yb_status status, size_t length)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(stream->writing);
    stream->writing = false;
    stream->events->on_written(stream->owner, status, length);
}

void
yb_stream_finish_closed(struct yb_stream *stream)
{
    YB_ASSERT_OBJ(stream, YB_STREAM_MAGIC);
    YB_ASSERT(stream->closing && !stream->reading && !stream->writing && !stream->connecting);
    stream->events->on_closed(stream->owner);
    stream->magic = 0;
    free(stream);
}

bool
yb_io_is_exhausted(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

enum yb_status
yb_io_status_of_errno(int error)
{
    switch (error) {
    case 0: return YB_OK;
    case ECONNREFUSED: return YB_REFUSED;
    case ETIMEDOUT: return YB_TIMED_OUT;
    case EADDRINUSE: return YB_ADDRESS_IN_USE;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENETDOWN:
    case EAFNOSUPPORT: return YB_UNREACHABLE;
    case EACCES:
    case EPERM: return YB_DENIED;
    case EADDRNOTAVAIL:
    case EINVAL: return YB_INVALID;
    case ENOMEM:
    case ENOBUFS:
    case EMFILE:
    case ENFILE: return YB_NO_MEMORY;
    case EFAULT: return YB_FAULT;
    case ECANCELED: return YB_CANCELLED;
    default: return YB_PEER_LOST;
    }
}
