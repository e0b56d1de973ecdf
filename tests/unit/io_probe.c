/* SPDX-License-Identifier: Apache-2.0 */
#include "io_probe.h"

#include <string.h>

void
io_pattern(uint8_t *bytes, size_t length, uint64_t key)
{
    uint64_t random = key * 2 + 1;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(unit_random(&random) >> 32);
    }
}

static void
remember(struct io_probe *probe, const uint8_t *bytes, size_t length)
{
    if (probe->received_length + length > probe->received_room) {
        probe->received_room = (probe->received_length + length) * 2;
        probe->received = realloc(probe->received, probe->received_room);
        assert_non_null(probe->received);
    }
    if (length > 0) { /* An empty vector has no address. */
        memcpy(probe->received + probe->received_length, bytes, length);
    }
    probe->received_length += length;
}

/* What every callback has in common. */
static struct io_probe *
told(void *owner)
{
    struct io_probe *probe = owner;

    assert_false(probe->submitting);
    assert_int_equal(probe->closed_count, 0);
    return probe;
}

static void
on_connected(void *owner, enum yb_status status)
{
    struct io_probe *probe = told(owner);

    probe->connected_count++;
    probe->connect_status = status;
}

/* Count how a read ended, and read or close as the test wants it. */
static void
after_read(struct io_probe *probe, enum yb_status status)
{
    probe->read_count++;
    if (status == YB_CANCELLED) {
        probe->cancelled_count++;
    } else if (status == YB_PEER_LOST) {
        probe->lost_count++;
        if (probe->close_when_lost && probe->stream != NULL) {
            io_probe_close(probe, YB_CLOSE_GRACEFUL);
        }
    } else if (probe->close_in_bytes) {
        io_probe_close(probe, YB_CLOSE_GRACEFUL);
    } else if (probe->keep_reading && probe->stream != NULL) {
        io_probe_read(probe);
    }
}

static void
on_bytes(void *owner, enum yb_status status, const uint8_t *bytes, size_t length)
{
    struct io_probe *probe = told(owner);

    if (status == YB_OK) {
        assert_true(length > 0 && length <= probe->read_limit);
        remember(probe, bytes, length);
    } else {
        assert_true(status == YB_PEER_LOST || status == YB_CANCELLED);
        assert_null(bytes);
        assert_int_equal(length, 0);
    }
    after_read(probe, status);
}

static void
on_filled(void *owner, enum yb_status status, size_t length)
{
    struct io_probe *probe = told(owner);
    size_t left = length;

    assert_true(status == YB_OK ? length > 0 : length == 0);
    for (uint32_t i = 0; i < 3 && left > 0; i++) {
        size_t part = left < probe->read_iov[i].iov_len ? left : probe->read_iov[i].iov_len;

        remember(probe, probe->read_iov[i].iov_base, part);
        left -= part;
    }
    assert_int_equal(left, 0);
    after_read(probe, status);
}

static void
write_next(struct io_probe *probe)
{
    size_t left = probe->sending_length - probe->sent;
    size_t length = left < probe->write_bytes_max ? left : probe->write_bytes_max;
    uint8_t *bytes = (uint8_t *)(uintptr_t)(probe->sending + probe->sent);

    /* Unequal vectors with an empty one between them. */
    probe->write_iov[0] = (struct iovec){.iov_base = bytes, .iov_len = length / 3};
    probe->write_iov[1] = (struct iovec){.iov_base = NULL, .iov_len = 0};
    probe->write_iov[2] =
        (struct iovec){.iov_base = bytes + length / 3, .iov_len = length - length / 3};
    probe->submitting = true;
    assert_int_equal(yb_stream_write(probe->stream, probe->write_iov, 3), YB_OK);
    probe->submitting = false;
}

static void
on_written(void *owner, enum yb_status status, size_t length)
{
    struct io_probe *probe = told(owner);
    size_t asked = probe->write_iov[0].iov_len + probe->write_iov[2].iov_len;

    probe->write_status = status;
    assert_true(length <= asked);
    if (status == YB_CANCELLED) {
        probe->cancelled_count++;
    } else if (status != YB_OK) {
        assert_int_equal(status, YB_PEER_LOST);
        probe->lost_count++;
    } else {
        assert_int_equal(length, asked);
        probe->written_count++;
        probe->sent += length;
        if (probe->sent < probe->sending_length && probe->stream != NULL) {
            write_next(probe);
        }
    }
}

static void
on_closed(void *owner)
{
    struct io_probe *probe = told(owner);

    assert_null(probe->stream);
    probe->closed_count++;
}

static const struct yb_stream_events events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_filled = on_filled,
    .on_written = on_written,
    .on_closed = on_closed,
};

void
io_probe_init(struct io_probe *probe, struct yb_io *io)
{
    memset(probe, 0, sizeof(*probe));
    probe->io = io;
    probe->read_limit = YB_IO_READ_BYTES_MAX;
    probe->write_bytes_max = SIZE_MAX;
    probe->read_iov[0] = (struct iovec){.iov_base = probe->into[0], .iov_len = 7};
    probe->read_iov[1] = (struct iovec){.iov_base = NULL, .iov_len = 0};
    probe->read_iov[2] = (struct iovec){.iov_base = probe->into[1], .iov_len = IO_PROBE_INTO_BYTES};
}

void
io_probe_fini(struct io_probe *probe)
{
    assert_null(probe->stream);
    free(probe->received);
    probe->received = NULL;
}

enum yb_status
io_probe_connect(struct io_probe *probe, const struct yb_address *address,
                 const struct yb_stream_options *options)
{
    enum yb_status status;

    probe->submitting = true;
    status = yb_io_connect(probe->io, address, options, &events, probe, &probe->stream);
    probe->submitting = false;
    return status;
}

void
io_probe_adopt(struct io_probe *probe, const struct yb_accepted *accepted,
               const struct yb_stream_options *options)
{
    probe->submitting = true;
    assert_int_equal(yb_io_adopt(probe->io, accepted, options, &events, probe, &probe->stream),
                     YB_OK);
    probe->submitting = false;
}

void
io_probe_read(struct io_probe *probe)
{
    probe->submitting = true;
    if (probe->use_into) {
        assert_int_equal(yb_stream_read_into(probe->stream, probe->read_iov, 3), YB_OK);
    } else {
        assert_int_equal(yb_stream_read(probe->stream, probe->read_limit), YB_OK);
    }
    probe->submitting = false;
}

void
io_probe_send(struct io_probe *probe, const uint8_t *bytes, size_t length)
{
    assert_true(probe->sent == probe->sending_length);
    probe->sending = bytes;
    probe->sending_length = length;
    probe->sent = 0;
    write_next(probe);
}

void
io_probe_close(struct io_probe *probe, enum yb_close_how how)
{
    struct yb_stream *stream = probe->stream;

    assert_non_null(stream);
    probe->stream = NULL;
    probe->submitting = true;
    yb_stream_close(stream, how);
    probe->submitting = false;
}

static void
on_accept(void *owner, const struct yb_accepted *accepted)
{
    struct io_acceptor *acceptor = owner;
    struct io_probe *probe;

    assert_non_null(acceptor->listener);
    acceptor->accepted = *accepted;
    if (!acceptor->keep) {
        assert_true(acceptor->accepted_count < acceptor->probe_count);
        probe = &acceptor->probes[acceptor->accepted_count];
        io_probe_adopt(probe, accepted, NULL);
        if (acceptor->start_read) {
            io_probe_read(probe);
        }
    }
    acceptor->accepted_count++;
}

void
io_acceptor_init(struct io_acceptor *acceptor, struct yb_io *io, struct io_probe *probes,
                 uint32_t probe_count)
{
    memset(acceptor, 0, sizeof(*acceptor));
    acceptor->io = io;
    acceptor->probes = probes;
    acceptor->probe_count = probe_count;
    for (uint32_t i = 0; i < probe_count; i++) {
        io_probe_init(&probes[i], io);
    }
}

enum yb_status
io_acceptor_listen(struct io_acceptor *acceptor, const struct yb_address *address)
{
    enum yb_status status = yb_io_listen(acceptor->io, address, &acceptor->options, on_accept,
                                         acceptor, &acceptor->listener);

    if (status == YB_OK) {
        yb_io_listener_address(acceptor->io, acceptor->listener, &acceptor->address);
    }
    return status;
}

void
io_acceptor_close(struct io_acceptor *acceptor)
{
    yb_io_listener_close(acceptor->io, &acceptor->listener);
    assert_null(acceptor->listener);
}
