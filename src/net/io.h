/* SPDX-License-Identifier: Apache-2.0
 *
 * io.h -- the one door between net and the machine: byte streams and waiting.
 *
 * Everything above this header speaks to a struct yb_io and never to a socket.
 * Three backends stand behind it: epoll (net/io_epoll.c), io_uring
 * (net/io_uring.c) and the deterministic simulation (net/sim.h). The first two
 * are chosen at start; the third is what protocol tests run on.
 *
 * The interface is completion-based. An operation is submitted, and its result
 * is delivered later, from poll():
 *
 *     read(limit)      -> on_bytes   bytes in a buffer of the backend's; an idle
 *                                    stream therefore owns no buffer
 *     read_into(iov)   -> on_filled  some bytes, straight into the caller's memory
 *     write(iov)       -> on_written all bytes, or an error
 *     connect          -> on_connected
 *     close            -> on_closed
 *
 * Completion  If a submit returns OK, its callback runs exactly once, later,
 *             inside poll(), never inside the submit. If it returns anything
 *             else nothing was started and the callback never runs.
 * Order       A stream has at most one read (of either kind) and one write in
 *             flight; submitting a second is a bug and aborts.
 * Close       close() may be called at any time, also from a callback of the
 *             same stream. Operations in flight complete with CANCELLED, then
 *             on_closed runs, exactly once; from that moment on neither the
 *             kernel nor the backend touches any memory lent to the stream.
 *             Only then is the stream gone. ABORT discards unsent bytes and
 *             tells the peer by a reset (RULES A2).
 * Memory      iovec arrays and the bytes they name are borrowed until the
 *             callback. Bytes handed to on_bytes are borrowed until it returns.
 * Threads     A struct yb_io and its streams belong to the thread that polls
 *             it. Only wake() may be called from elsewhere.
 * Limits      IOV_COUNT_MAX vectors an operation; READ_BYTES_MAX bytes a read.
 */
#ifndef YB_NET_IO_H
#define YB_NET_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "net/address.h"
#include "yuebing/status.h"

#define YB_IO_IOV_COUNT_MAX  64u
#define YB_IO_READ_BYTES_MAX (256u * 1024u)
#define YB_IO_PATIENT_BYTES  (256u * 1024u)

struct yb_io;
struct yb_stream;
struct yb_listener;

/* How a stream's socket is set up. Zeroes mean: leave it as the system has it. */
struct yb_stream_options {
    const char *congestion;    /* Congestion control, such as "cubic"; borrowed for the call. */
    uint32_t unsent_bytes_max; /* TCP_NOTSENT_LOWAT: unsent bytes the kernel may hold (E5). */
    uint32_t user_timeout_ms;  /* TCP_USER_TIMEOUT: unacknowledged bytes may be this old. */
};

/* What a stream tells its owner. Every callback gets the `owner` given at connect or adopt. */
struct yb_stream_events {
    /* Only for connect(). After anything but OK close the stream: it is of no use. */
    void (*on_connected)(void *owner, enum yb_status status);

    /* OK with length > 0, or PEER_LOST: the peer closed (length 0, `bytes` NULL) or reset. */
    void (*on_bytes)(void *owner, enum yb_status status, const uint8_t *bytes, size_t length);

    /* As on_bytes; the bytes are in the caller's vectors, from their start, without gaps. */
    void (*on_filled)(void *owner, enum yb_status status, size_t length);

    /* OK: all bytes were taken by the kernel. Otherwise `length` were, perhaps. */
    void (*on_written)(void *owner, enum yb_status status, size_t length);

    void (*on_closed)(void *owner);
};

/* A connection that was accepted but has no stream yet. It is a plain value, so that the
 * accepting worker can hand it to another one. It must be adopted or discarded once. */
struct yb_accepted {
    int64_t handle; /* A descriptor, or the simulation's number. */
    struct yb_address peer;
};

enum yb_close_how {
    YB_CLOSE_GRACEFUL, /* Bytes already written are still delivered. */
    YB_CLOSE_ABORT,    /* Reset: the peer learns that what it has not read is void. */
};

typedef void yb_accept_fn(void *owner, const struct yb_accepted *accepted);

/* The backend's half. Callers use the functions below, which check the contract. */
struct yb_io_ops {
    const char *name; /* "epoll", "io_uring", "sim": the word in configuration and logs. */

    void (*destroy)(struct yb_io *io);
    uint32_t (*poll)(struct yb_io *io, uint64_t timeout_ns);
    void (*wake)(struct yb_io *io);
    int (*wake_fd)(const struct yb_io *io); /* NULL: it sleeps in no kernel. */

    enum yb_status (*listen)(struct yb_io *io, const struct yb_address *address,
                             const struct yb_stream_options *options, yb_accept_fn *on_accept,
                             void *owner, struct yb_listener **listener_out);
    void (*listener_address)(const struct yb_listener *listener, struct yb_address *address_out);
    void (*listener_close)(struct yb_listener *listener);

    enum yb_status (*connect)(struct yb_io *io, const struct yb_address *address,
                              const struct yb_stream_options *options, struct yb_stream *stream);
    enum yb_status (*adopt)(struct yb_io *io, const struct yb_accepted *accepted,
                            const struct yb_stream_options *options, struct yb_stream *stream);
    void (*discard)(struct yb_io *io, const struct yb_accepted *accepted);

    enum yb_status (*read)(struct yb_stream *stream, size_t limit);
    enum yb_status (*read_into)(struct yb_stream *stream, const struct iovec *iov, uint32_t count);
    enum yb_status (*write)(struct yb_stream *stream, const struct iovec *iov, uint32_t count);
    void (*close)(struct yb_stream *stream, enum yb_close_how how);

    size_t stream_bytes; /* sizeof the backend's stream, which starts with struct yb_stream. */
};

/* The head of every backend's io. */
struct yb_io {
    uint32_t magic;
    const struct yb_io_ops *ops;
    const struct yb_clock *clock; /* borrowed for the io's life */
    bool contended;               /* Streams that are not patient were at work lately. */
};

/* The head of every backend's stream. The fields belong to io.c and the backends. */
struct yb_stream {
    uint32_t magic;
    bool reading; /* A read or read_into is in flight. */
    bool writing;
    bool connecting;
    bool closing;
    bool patient; /* See yb_stream_set_patient(). */
    struct yb_io *io;
    const struct yb_stream_events *events;
    void *owner;
};

#define YB_IO_MAGIC     0x696f6c70u
#define YB_STREAM_MAGIC 0x7374726du

/* Create the backend called "epoll" or "io_uring"; "auto" takes the one that was measured to be
 * faster for our traffic, which is epoll. Must be called on the thread that will poll.
 * Fails with UNSUPPORTED (the kernel or a sandbox forbids io_uring), INVALID (no such
 * backend) or NO_MEMORY. On OK the caller owns *io_out. */
YB_CHECKED enum yb_status yb_io_create(const char *backend, const struct yb_clock *clock,
                                       struct yb_io **io_out);

/* Consume the io and set *io to NULL. Every stream and listener must be closed already. */
void yb_io_destroy(struct yb_io **io);

/* Deliver completions. Waits at most `timeout_ns` for the first one (0: do not wait;
 * YB_NEVER: until one comes or wake() is called). Returns how many were delivered. */
uint32_t yb_io_poll(struct yb_io *io, uint64_t timeout_ns);

/* Make the running or the next poll() return at once. Any thread; async-signal-safe. */
void yb_io_wake(struct yb_io *io);

/* Return the eventfd that a write to does the same as wake(), for a kernel that is to write it;
 * -1: there is none (the simulation). It is the io's. */
int yb_io_wake_fd(const struct yb_io *io);

/* Listen on `address` (port 0: any free one). `on_accept` runs inside poll for every
 * connection. What `options` (NULL: nothing) ask for holds from a connection's first packet on: a
 * congestion control that paces, once begun, would go on pacing under another one. Fails with
 * ADDRESS_IN_USE, INVALID (the machine has no such address), DENIED (a privileged port) or
 * NO_MEMORY. On OK the caller owns *listener_out. */
YB_CHECKED enum yb_status yb_io_listen(struct yb_io *io, const struct yb_address *address,
                                       const struct yb_stream_options *options,
                                       yb_accept_fn *on_accept, void *owner,
                                       struct yb_listener **listener_out);

/* Read back what was really bound: the only address that may be published. */
void yb_io_listener_address(const struct yb_io *io, const struct yb_listener *listener,
                            struct yb_address *address_out);

/* Consume the listener and set it to NULL; no on_accept runs afterwards. */
void yb_io_listener_close(struct yb_io *io, struct yb_listener **listener);

/* Start connecting. `events` and `owner` are borrowed until on_closed. Fails with INVALID (a
 * wildcard or port 0), UNREACHABLE or NO_MEMORY. on_connected gets OK, REFUSED, TIMED_OUT,
 * UNREACHABLE or CANCELLED. */
YB_CHECKED enum yb_status yb_io_connect(struct yb_io *io, const struct yb_address *address,
                                        const struct yb_stream_options *options,
                                        const struct yb_stream_events *events, void *owner,
                                        struct yb_stream **stream_out);

/* Make a stream of an accepted connection; consumes it on OK only. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_io_adopt(struct yb_io *io, const struct yb_accepted *accepted,
                                      const struct yb_stream_options *options,
                                      const struct yb_stream_events *events, void *owner,
                                      struct yb_stream **stream_out);

/* Close an accepted connection that nobody will adopt. */
void yb_io_discard(struct yb_io *io, const struct yb_accepted *accepted);

/* Ask for the next bytes, at most `limit` (1 .. YB_IO_READ_BYTES_MAX). */
YB_CHECKED enum yb_status yb_stream_read(struct yb_stream *stream, size_t limit);

/* Ask for the next bytes, straight into `iov` (1 .. YB_IO_IOV_COUNT_MAX vectors, not all
 * empty). Completes as soon as any bytes are there. */
YB_CHECKED enum yb_status yb_stream_read_into(struct yb_stream *stream, const struct iovec *iov,
                                              uint32_t count);

YB_CHECKED enum yb_status yb_stream_write(struct yb_stream *stream, const struct iovec *iov,
                                          uint32_t count);

/* What this stream carries can wait: where the backend has a choice (epoll), it moves the bytes of
 * others first, though not for ever, and where there were such lately it looks for them after every
 * YB_IO_PATIENT_BYTES; meanwhile `contended` in the io asks for writes that are no longer. */
void yb_stream_set_patient(struct yb_stream *stream);

/* Begin closing; on_closed runs later. The stream must not be used by the owner any more. */
void yb_stream_close(struct yb_stream *stream, enum yb_close_how how);

#endif /* YB_NET_IO_H */
