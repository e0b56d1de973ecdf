/* SPDX-License-Identifier: Apache-2.0
 *
 * struct yb_io_ops over the simulated network.
 *
 * A submit never completes anything. It puts the stream on its io's ready list if something is
 * to be done; so does the network when something arrived. poll() takes the list as it stands and
 * looks at each stream once, so that callbacks which submit again wait for the next poll.
 *
 * Invariants
 *   P1  A stream that could make progress is on the ready list, and its process is due to run.
 *   P2  Streams are freed only by poll(), when it looks at them after they were closed.
 *   P3  A stream without a connection behaves like one that was reset.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/sim_internal.h"

static struct sim_io *
io_of(struct yb_io *io)
{
    return (struct sim_io *)io;
}

static struct sim_stream *
stream_of(struct yb_stream *stream)
{
    return (struct sim_stream *)stream;
}

static struct yb_sim *
sim_of(const struct sim_io *io)
{
    return io->process->host->sim;
}

/* ---- progress ------------------------------------------------------------------------ */

static const struct sim_end *
end_of(const struct sim_stream *stream)
{
    return stream->connection != NULL ? &stream->connection->ends[stream->end] : NULL;
}

static bool
is_lost(const struct sim_stream *stream)
{
    const struct sim_end *end = end_of(stream);

    return end == NULL || end->broken; /* P3 */
}

static bool
can_finish_read(const struct sim_stream *stream)
{
    if (stream->connection != NULL && yb_sim_readable(stream->connection, stream->end)) {
        return true;
    }
    return is_lost(stream) || end_of(stream)->ended;
}

static bool
has_work(const struct sim_stream *stream)
{
    return stream->closed || stream->writing || (stream->base.connecting && stream->connected) ||
           (stream->read_kind != SIM_READ_NONE && can_finish_read(stream));
}

void
yb_sim_stream_ready(struct sim_stream *stream)
{
    struct sim_io *io = io_of(stream->base.io);

    YB_ASSERT_OBJ(&stream->base, YB_STREAM_MAGIC);
    if (!has_work(stream)) {
        return;
    }
    if (!stream->queued) {
        stream->queued = true;
        stream->next_ready = NULL;
        *io->ready_tail = stream;
        io->ready_tail = &stream->next_ready;
    }
    yb_sim_process_wake_at(io->process, sim_of(io)->now_ns);
}

/* Copy the next bytes of the write into `piece`. */
static void
fill_piece(struct sim_stream *stream, struct sim_piece *piece)
{
    uint32_t filled = 0;

    while (filled < piece->length) {
        const struct iovec *iov = &stream->write_iov[stream->write_index];
        size_t length = iov->iov_len - stream->write_skip;

        YB_ASSERT(stream->write_index < stream->write_count);
        if (length > piece->length - filled) {
            length = piece->length - filled;
        }
        if (length > 0) {
            memcpy(piece->bytes + filled, (const uint8_t *)iov->iov_base + stream->write_skip,
                   length);
        }
        filled += (uint32_t)length;
        stream->write_skip += length;
        if (stream->write_skip == iov->iov_len) {
            stream->write_skip = 0;
            stream->write_index++;
        }
    }
    stream->written += filled;
    stream->write_left -= filled;
}

/* Let the kernel take what it has room for. */
static void
take_written(struct sim_stream *stream)
{
    while (!is_lost(stream) && stream->write_left > 0) {
        struct sim_piece *piece;
        uint32_t length = yb_sim_piece_bytes(stream->connection, stream->end, stream->write_left);

        if (length == 0) {
            return;
        }
        piece = yb_sim_piece_create(stream->connection->sim, length);
        fill_piece(stream, piece);
        yb_sim_send(stream->connection, stream->end, piece);
    }
}

static void
complete_read(struct sim_stream *stream, enum yb_status status, const uint8_t *bytes, size_t length)
{
    bool into = stream->read_kind == SIM_READ_INTO;

    stream->read_kind = SIM_READ_NONE;
    stream->read_iov = NULL;
    if (into) {
        yb_stream_deliver_filled(&stream->base, status, length);
    } else {
        yb_stream_deliver_bytes(&stream->base, status, length > 0 ? bytes : NULL, length);
    }
}

static void
progress_read(struct sim_stream *stream)
{
    struct sim_io *io = io_of(stream->base.io);
    struct iovec own = {.iov_base = io->buffer, .iov_len = stream->read_limit};
    size_t length = 0;

    if (stream->connection != NULL && stream->read_kind == SIM_READ_INTO) {
        length = yb_sim_receive(stream->connection, stream->end, stream->read_iov,
                                stream->read_count, stream->read_limit);
    } else if (stream->connection != NULL) {
        length = yb_sim_receive(stream->connection, stream->end, &own, 1, stream->read_limit);
    }
    complete_read(stream, length > 0 ? YB_OK : YB_PEER_LOST, io->buffer, length);
}

static void
complete_write(struct sim_stream *stream, enum yb_status status)
{
    size_t written = stream->written;

    stream->writing = false;
    stream->write_iov = NULL;
    yb_stream_deliver_written(&stream->base, status, written);
}

/* Cancel what is in flight and free the stream (P2). Returns how much was delivered. */
static uint32_t
finish_close(struct sim_stream *stream)
{
    struct sim_io *io = io_of(stream->base.io);
    uint32_t delivered = 1;

    YB_ASSERT(stream->connection == NULL);
    if (stream->base.connecting) {
        yb_stream_deliver_connected(&stream->base, YB_CANCELLED);
        delivered++;
    }
    if (stream->read_kind != SIM_READ_NONE) {
        complete_read(stream, YB_CANCELLED, NULL, 0);
        delivered++;
    }
    if (stream->writing) {
        complete_write(stream, YB_CANCELLED);
        delivered++;
    }
    YB_ASSERT(!stream->queued);
    if (stream->previous != NULL) {
        stream->previous->next = stream->next;
    } else {
        io->streams = stream->next;
    }
    if (stream->next != NULL) {
        stream->next->previous = stream->previous;
    }
    yb_stream_finish_closed(&stream->base);
    return delivered;
}

/* Deliver what a stream has, once of each kind. A callback may close it: then the ready list
 * has it again, and this look at it is over. */
static uint32_t
look_at(struct sim_stream *stream)
{
    uint32_t delivered = 0;

    if (stream->closed) {
        return finish_close(stream);
    }
    if (stream->base.connecting && stream->connected) {
        yb_stream_deliver_connected(&stream->base, stream->connect_status);
        delivered++;
    }
    if (!stream->closed && stream->writing) {
        take_written(stream);
        if (stream->write_left == 0 || is_lost(stream)) {
            complete_write(stream, stream->write_left == 0 ? YB_OK : YB_PEER_LOST);
            delivered++;
        }
    }
    if (!stream->closed && stream->read_kind != SIM_READ_NONE && can_finish_read(stream)) {
        progress_read(stream);
        delivered++;
    }
    return delivered;
}

/* ---- accepting ----------------------------------------------------------------------- */

static struct sim_connection *
queue_pop(struct yb_listener *listener)
{
    struct sim_connection *connection = listener->queue_head;

    YB_ASSERT(connection != NULL && connection->listener == listener);
    listener->queue_head = connection->next_queued;
    if (listener->queue_head == NULL) {
        listener->queue_tail = &listener->queue_head;
    }
    listener->queue_count--;
    connection->listener = NULL;
    return connection;
}

static uint32_t
accept_all(struct sim_io *io)
{
    uint32_t delivered = 0;
    struct yb_listener *listener = io->listeners;

    while (listener != NULL) {
        struct sim_connection *connection;
        struct yb_accepted accepted;

        if (listener->queue_count == 0) {
            listener = listener->next;
            continue;
        }
        connection = queue_pop(listener);
        YB_ASSERT(connection->ends[1].state == END_QUEUED);
        connection->ends[1].state = END_ACCEPTED;
        accepted = (struct yb_accepted){.handle = (int64_t)connection->id,
                                        .peer = connection->ends[0].address};
        listener->on_accept(listener->owner, &accepted);
        delivered++;
        listener = io->listeners; /* The callback may have closed any of them. */
    }
    return delivered;
}

static void
drain_queue(struct yb_listener *listener, enum yb_sim_death how)
{
    while (listener->queue_count > 0) {
        yb_sim_end_close(queue_pop(listener), 1, how);
    }
}

/* ---- the io -------------------------------------------------------------------------- */

struct sim_io *
yb_sim_io_create(struct yb_sim_process *process)
{
    struct sim_io *io = yb_sim_allocate(sizeof(*io));

    yb_io_init(&io->base, &yb_sim_io_ops, &process->host->clock);
    io->process = process;
    io->ready_tail = &io->ready_head;
    return io;
}

void
yb_sim_io_free(struct sim_io *io)
{
    while (io->streams != NULL) {
        struct sim_stream *stream = io->streams;

        YB_ASSERT(stream->connection == NULL);
        io->streams = stream->next;
        stream->base.magic = 0;
        free(stream);
    }
    while (io->listeners != NULL) {
        struct yb_listener *listener = io->listeners;

        YB_ASSERT(listener->queue_count == 0);
        io->listeners = listener->next;
        listener->magic = 0;
        free(listener);
    }
    io->process->io = NULL;
    io->base.magic = 0;
    free(io);
}

/* Close what was accepted and never adopted. */
static void
drop_accepted(struct sim_io *io, enum yb_sim_death how)
{
    struct sim_connection *next;

    for (struct sim_connection *connection = sim_of(io)->connections; connection != NULL;
         connection = next) {
        next = connection->next;
        if (connection->ends[1].process == io->process) {
            YB_ASSERT(connection->ends[1].state == END_ACCEPTED);
            yb_sim_end_close(connection, 1, how);
        }
    }
}

void
yb_sim_io_crash(struct sim_io *io, enum yb_sim_death how)
{
    for (struct yb_listener *listener = io->listeners; listener != NULL;
         listener = listener->next) {
        drain_queue(listener, how);
    }
    for (struct sim_stream *stream = io->streams; stream != NULL; stream = stream->next) {
        if (stream->connection != NULL) {
            yb_sim_end_close(stream->connection, stream->end, how);
            stream->connection = NULL;
        }
        stream->connected = true;
        stream->connect_status = YB_UNREACHABLE;
        yb_sim_stream_ready(stream);
    }
    drop_accepted(io, how);
}

static void
sim_destroy(struct yb_io *base)
{
    struct sim_io *io = io_of(base);

    YB_ASSERT(io->streams == NULL && io->listeners == NULL);
    YB_ASSERT(!io->polling);
    drop_accepted(io, YB_SIM_DEATH_RESET);
    yb_sim_io_free(io);
}

static uint32_t
look_at_ready(struct sim_io *io)
{
    struct sim_stream *stream = io->ready_head;
    uint32_t delivered = 0;

    io->ready_head = NULL;
    io->ready_tail = &io->ready_head;
    while (stream != NULL) {
        struct sim_stream *next = stream->next_ready;

        stream->queued = false;
        delivered += look_at(stream);
        stream = next;
    }
    return delivered;
}

static uint32_t
sim_poll(struct yb_io *base, uint64_t timeout_ns)
{
    struct sim_io *io = io_of(base);
    struct yb_sim_process *process = io->process;
    uint64_t now_ns = sim_of(io)->now_ns;
    uint32_t delivered = 0;

    YB_ASSERT(!io->polling);
    YB_ASSERT(!process->running || process->poll_count++ < YB_SIM_POLL_COUNT_MAX); /* N4 */
    if (process->crashed || !process->host->stalled) {
        io->polling = true;
        delivered = accept_all(io);
        delivered += look_at_ready(io);
        io->polling = false;
    }
    if (delivered > 0 || io->ready_head != NULL) {
        yb_sim_process_wake_at(process, now_ns); /* A real poll would have returned at once. */
    } else if (timeout_ns != YB_NEVER) {
        yb_sim_process_wake_at(
            process, yb_deadline_after(now_ns, yb_sim_host_to_world(process->host, timeout_ns)));
    }
    return delivered;
}

static void
sim_wake(struct yb_io *base)
{
    struct sim_io *io = io_of(base);

    yb_sim_process_wake_at(io->process, sim_of(io)->now_ns);
}

/* ---- listeners ----------------------------------------------------------------------- */

static enum yb_status
sim_listen(struct yb_io *base, const struct yb_address *address,
           const struct yb_stream_options *options, yb_accept_fn *on_accept, void *owner,
           struct yb_listener **listener_out)
{
    struct sim_io *io = io_of(base);
    struct yb_sim_host *host = io->process->host;
    struct yb_address bound = *address;
    struct yb_listener *listener;

    (void)options; /* They are the kernel's business. */
    if (io->process->crashed ||
        !(yb_address_is_wildcard(address) || yb_address_is_loopback(address) ||
          yb_sim_same_ip(address, &host->address))) {
        return YB_INVALID;
    }
    if (bound.port == 0) {
        bound.port = yb_sim_host_free_port(host);
        if (bound.port == 0) {
            return YB_NO_MEMORY;
        }
    } else if (yb_sim_listener_find(host, &bound, true) != NULL) {
        return YB_ADDRESS_IN_USE;
    }
    listener = yb_sim_allocate(sizeof(*listener));
    listener->magic = YB_SIM_LISTENER_MAGIC;
    listener->io = io;
    listener->address = bound;
    listener->on_accept = on_accept;
    listener->owner = owner;
    listener->queue_tail = &listener->queue_head;
    listener->next = io->listeners;
    io->listeners = listener;
    *listener_out = listener;
    return YB_OK;
}

static void
sim_listener_address(const struct yb_listener *listener, struct yb_address *address_out)
{
    YB_ASSERT_OBJ(listener, YB_SIM_LISTENER_MAGIC);
    *address_out = listener->address;
}

static void
sim_listener_close(struct yb_listener *listener)
{
    struct yb_listener **link;

    YB_ASSERT_OBJ(listener, YB_SIM_LISTENER_MAGIC);
    drain_queue(listener, YB_SIM_DEATH_RESET);
    for (link = &listener->io->listeners; *link != listener; link = &(*link)->next) {
        YB_ASSERT(*link != NULL);
    }
    *link = listener->next;
    listener->magic = 0;
    free(listener);
}

/* ---- streams ------------------------------------------------------------------------- */

static void
stream_start(struct sim_io *io, struct sim_stream *stream)
{
    stream->next = io->streams;
    if (io->streams != NULL) {
        io->streams->previous = stream;
    }
    io->streams = stream;
}

static uint64_t
user_timeout_ns(const struct yb_stream_options *options)
{
    return options != NULL ? options->user_timeout_ms * YB_NS_PER_MS : 0;
}

static enum yb_status
sim_connect(struct yb_io *base, const struct yb_address *address,
            const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct sim_io *io = io_of(base);
    struct sim_stream *stream = stream_of(base_stream);
    struct yb_sim_host *host = yb_sim_host_find(io->process->host, address);
    struct sim_connection *connection = NULL;

    if (io->process->crashed) {
        return YB_UNREACHABLE;
    }
    if (host != NULL) {
        connection = yb_sim_connection_open(stream, host, address);
        if (connection == NULL) {
            return YB_NO_MEMORY;
        }
        connection->ends[0].give_up_ns = user_timeout_ns(options);
        yb_sim_connection_start(connection, connection->ends[0].give_up_ns);
    } else {
        stream->connected = true;
        stream->connect_status = YB_UNREACHABLE;
    }
    stream->connection = connection;
    stream->end = 0;
    stream_start(io, stream);
    yb_sim_stream_ready(stream);
    return YB_OK;
}

/* Find an accepted connection. NULL: it died with the process that had accepted it. */
static struct sim_connection *
accepted_find(const struct sim_io *io, const struct yb_accepted *accepted)
{
    struct sim_connection *connection =
        yb_sim_connection_find(sim_of(io), (uint64_t)accepted->handle);

    if (connection == NULL || connection->ends[1].state == END_GONE) {
        return NULL;
    }
    YB_ASSERT(connection->ends[1].state == END_ACCEPTED); /* Once, as io.h says. */
    YB_ASSERT(connection->ends[1].host == io->process->host);
    return connection;
}

static enum yb_status
sim_adopt(struct yb_io *base, const struct yb_accepted *accepted,
          const struct yb_stream_options *options, struct yb_stream *base_stream)
{
    struct sim_io *io = io_of(base);
    struct sim_stream *stream = stream_of(base_stream);
    struct sim_connection *connection = accepted_find(io, accepted);

    if (connection != NULL && io->process->crashed) {
        yb_sim_end_close(connection, 1, YB_SIM_DEATH_RESET);
    } else if (connection != NULL) {
        connection->ends[1].state = END_OPEN;
        connection->ends[1].process = io->process;
        connection->ends[1].stream = stream;
        connection->ends[1].give_up_ns = user_timeout_ns(options);
        stream->connection = connection;
        stream->end = 1;
    }
    stream_start(io, stream);
    return YB_OK;
}

static void
sim_discard(struct yb_io *base, const struct yb_accepted *accepted)
{
    struct sim_connection *connection = accepted_find(io_of(base), accepted);

    if (connection != NULL) {
        yb_sim_end_close(connection, 1, YB_SIM_DEATH_FLUSH);
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

static enum yb_status
sim_read(struct yb_stream *base, size_t limit)
{
    struct sim_stream *stream = stream_of(base);

    YB_ASSERT(stream->read_kind == SIM_READ_NONE);
    stream->read_kind = SIM_READ_BYTES;
    stream->read_limit = limit;
    yb_sim_stream_ready(stream);
    return YB_OK;
}

static enum yb_status
sim_read_into(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct sim_stream *stream = stream_of(base);

    YB_ASSERT(stream->read_kind == SIM_READ_NONE);
    stream->read_kind = SIM_READ_INTO;
    stream->read_iov = iov;
    stream->read_count = count;
    stream->read_limit = iov_bytes(iov, count);
    YB_ASSERT(stream->read_limit > 0);
    yb_sim_stream_ready(stream);
    return YB_OK;
}

static enum yb_status
sim_write(struct yb_stream *base, const struct iovec *iov, uint32_t count)
{
    struct sim_stream *stream = stream_of(base);

    YB_ASSERT(!stream->writing);
    stream->writing = true;
    stream->write_iov = iov;
    stream->write_count = count;
    stream->write_index = 0;
    stream->write_skip = 0;
    stream->written = 0;
    stream->write_left = iov_bytes(iov, count);
    take_written(stream);
    yb_sim_stream_ready(stream);
    return YB_OK;
}

static void
sim_close(struct yb_stream *base, enum yb_close_how how)
{
    struct sim_stream *stream = stream_of(base);

    YB_ASSERT(!stream->closed);
    stream->closed = true;
    if (stream->connection != NULL) {
        yb_sim_end_close(stream->connection, stream->end,
                         how == YB_CLOSE_ABORT ? YB_SIM_DEATH_RESET : YB_SIM_DEATH_FLUSH);
        stream->connection = NULL;
    }
    yb_sim_stream_ready(stream);
}

const struct yb_io_ops yb_sim_io_ops = {
    .name = "sim",
    .destroy = sim_destroy,
    .poll = sim_poll,
    .wake = sim_wake,
    .listen = sim_listen,
    .listener_address = sim_listener_address,
    .listener_close = sim_listener_close,
    .connect = sim_connect,
    .adopt = sim_adopt,
    .discard = sim_discard,
    .read = sim_read,
    .read_into = sim_read_into,
    .write = sim_write,
    .close = sim_close,
    .stream_bytes = sizeof(struct sim_stream),
};
