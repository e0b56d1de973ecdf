/* SPDX-License-Identifier: Apache-2.0
 *
 * io_probe.h -- owners of streams and listeners that remember what they were told.
 *
 * Every callback asserts what io.h promises about itself: never inside a submit, never after
 * on_closed, lengths that fit their status. Tests compare the rest.
 */
#ifndef YB_TESTS_IO_PROBE_H
#define YB_TESTS_IO_PROBE_H

#include "unit.h"

#include "net/io.h"

#define IO_PROBE_INTO_BYTES 4096u

/* A stream's owner. Zeroed by io_probe_init(); `keep_reading`, `read_limit`, `use_into`,
 * `write_bytes_max` and `close_when_*` may be set before it is used. */
struct io_probe {
    struct yb_io *io;
    struct yb_stream *stream; /* NULL before it was opened and after it was closed. */
    bool submitting;          /* A submit is on the stack: no callback may run. */

    bool keep_reading; /* Read again after every read. */
    bool use_into;     /* Read into vectors instead of borrowing bytes. */
    bool close_when_lost;
    bool close_in_bytes;    /* Close, gracefully, inside the first on_bytes. */
    size_t read_limit;      /* Of one read. */
    size_t write_bytes_max; /* Of one write. */

    uint8_t *received; /* Owned: all bytes so far. */
    size_t received_length;
    size_t received_room;
    const uint8_t *sending; /* Borrowed until all of it is written. */
    size_t sending_length;
    size_t sent;

    uint32_t connected_count;
    uint32_t read_count;
    uint32_t written_count; /* Completions with OK. */
    uint32_t lost_count;    /* Completions with PEER_LOST, of reads or writes. */
    uint32_t cancelled_count;
    uint32_t closed_count;
    enum yb_status connect_status;
    enum yb_status write_status;

    uint8_t into[2][IO_PROBE_INTO_BYTES];
    struct iovec read_iov[3];
    struct iovec write_iov[3];
};

/* A listener's owner: adopts what is accepted into its probes, one after the other, or keeps it. */
struct io_acceptor {
    struct yb_io *io;
    struct yb_listener *listener;
    struct yb_address address;
    struct yb_stream_options options; /* Of the listener; set before it listens. */
    bool keep;                        /* Do not adopt: the last one is in `accepted`. */
    bool start_read;                  /* Let adopted probes read at once. */
    struct yb_accepted accepted;
    struct io_probe *probes;
    uint32_t probe_count;
    uint32_t accepted_count;
};

void io_probe_init(struct io_probe *probe, struct yb_io *io);
/* Free what was received; the stream must be closed. */
void io_probe_fini(struct io_probe *probe);
enum yb_status io_probe_connect(struct io_probe *probe, const struct yb_address *address,
                                const struct yb_stream_options *options);
void io_probe_adopt(struct io_probe *probe, const struct yb_accepted *accepted,
                    const struct yb_stream_options *options);
void io_probe_read(struct io_probe *probe);
/* Write `bytes`, `write_bytes_max` at a time, each write in up to three vectors. */
void io_probe_send(struct io_probe *probe, const uint8_t *bytes, size_t length);
void io_probe_close(struct io_probe *probe, enum yb_close_how how);

void io_acceptor_init(struct io_acceptor *acceptor, struct yb_io *io, struct io_probe *probes,
                      uint32_t probe_count);
enum yb_status io_acceptor_listen(struct io_acceptor *acceptor, const struct yb_address *address);
void io_acceptor_close(struct io_acceptor *acceptor);

/* Fill `bytes` with a pattern that depends on `key` and the offset. */
void io_pattern(uint8_t *bytes, size_t length, uint64_t key);

#endif /* YB_TESTS_IO_PROBE_H */
