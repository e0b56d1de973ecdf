/* SPDX-License-Identifier: Apache-2.0
 *
 * io_internal.h -- how a backend of io.h hands results to a stream's owner.
 *
 * Each function clears the in-flight mark first and runs the owner's callback
 * last, because the callback may submit the next operation or close the stream.
 * A backend therefore reads whatever it still needs before it delivers.
 */
#ifndef YB_NET_IO_INTERNAL_H
#define YB_NET_IO_INTERNAL_H

#include "net/io.h"

void yb_stream_deliver_connected(struct yb_stream *stream, enum yb_status status);
void yb_stream_deliver_bytes(struct yb_stream *stream, enum yb_status status, const uint8_t *bytes,
                             size_t length);
void yb_stream_deliver_filled(struct yb_stream *stream, enum yb_status status, size_t length);
void yb_stream_deliver_written(struct yb_stream *stream, enum yb_status status, size_t length);

/* Run on_closed and free the stream: the last thing a backend does with it. */
void yb_stream_finish_closed(struct yb_stream *stream);

/* Fill in the head of a backend's io. */
void yb_io_init(struct yb_io *io, const struct yb_io_ops *ops, const struct yb_clock *clock);

/* Turn an errno of a socket call into the status of io.h's contract. */
enum yb_status yb_io_status_of_errno(int error);

/* How long a listener rests when a connection cannot be accepted for want of descriptors or memory:
 * it stays in the kernel's queue meanwhile, and would be reported without end. */
#define YB_IO_ACCEPT_PAUSE_NS (50 * YB_NS_PER_MS)
bool yb_io_is_exhausted(int error);

/* Make a non-blocking, close-on-exec TCP socket and set the options that every stream gets. */
YB_CHECKED enum yb_status yb_socket_open(const struct yb_address *address, int *fd_out);
void yb_socket_set_options(int fd, const struct yb_stream_options *options);
YB_CHECKED enum yb_status yb_socket_listen(const struct yb_address *address,
                                           const struct yb_stream_options *options, int *fd_out,
                                           struct yb_address *bound_out);
/* Close, also where a child of fork() still holds the same socket: the peer hears of it at once. */
void yb_socket_close(int fd, enum yb_close_how how);

/* The constructors behind yb_io_create(). */
YB_CHECKED enum yb_status yb_io_epoll_create(const struct yb_clock *clock, struct yb_io **io_out);
YB_CHECKED enum yb_status yb_io_uring_create(const struct yb_clock *clock, struct yb_io **io_out);

#endif /* YB_NET_IO_INTERNAL_H */
