/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_internal.h -- what the four files of the simulation share.
 *
 *     sim.c         the world: events, time, chance, the trace
 *     sim_host.c    hosts, processes, clocks and what can happen to them
 *     sim_net.c     connections: what travels, what is lost, what ends
 *     sim_stream.c  struct yb_io_ops: what a process may ask of its io
 *
 * A connection has two ends, 0 (who connected) and 1 (who listened), and two ways: way i
 * carries bytes from end i to the other. An end's life:
 *
 *     end 0:  OPENING ----answered----> OPEN --+
 *     end 1:  NONE -> QUEUED -> ACCEPTED -> OPEN +--closed, crashed--> GONE
 *
 * `broken` says that an end was reset; it stays until its process closes it. A connection
 * whose ends are both GONE is freed with the last event that names it.
 */
#ifndef YB_NET_SIM_INTERNAL_H
#define YB_NET_SIM_INTERNAL_H

#include "net/io_internal.h"
#include "net/sim.h"

#define YB_SIM_MAGIC            0x73696d77u
#define YB_SIM_HOST_MAGIC       0x73696d68u
#define YB_SIM_PROCESS_MAGIC    0x73696d70u
#define YB_SIM_CONNECTION_MAGIC 0x73696d63u
#define YB_SIM_LISTENER_MAGIC   0x73696d6cu

#define YB_SIM_EVENT_COUNT_MAX (1u << 22)
#define YB_SIM_NAME_BYTES      32u
#define YB_SIM_BACKLOG         1024u
#define YB_SIM_POLL_COUNT_MAX  1000000u

/* clang-format off */
#define YB_SIM_EVENT_MAP(X)                                                              \
    X(RUN,     "run")     /* a process polls its io */                                    \
    X(CALL,    "call")    /* something the test asked for */                              \
    X(CONNECT, "connect") /* the first packet of a connection, at the listening host */   \
    X(ANSWER,  "answer")  /* the listening kernel's yes, at the connecting host */         \
    X(REFUSE,  "refuse")  /* its no */                                                    \
    X(BYTES,   "bytes")   /* a piece of bytes */                                          \
    X(END,     "end")     /* the sender closed; comes after all its bytes */              \
    X(RESET,   "reset")   /* the sender's kernel knows no such connection (any more) */    \
    X(ACK,     "ack")     /* what arrived and what was read, at the writer's host */      \
    X(RELEASE, "release") /* a way that was blocked may carry again */                    \
    X(RETRY,   "retry")   /* a connect that was not answered is tried again */            \
    X(GIVE_UP, "give up") /* bytes have been unacknowledged for too long */
/* clang-format on */

enum sim_event_kind {
#define X(name, text) SIM_##name,
    YB_SIM_EVENT_MAP(X)
#undef X
};

struct sim_connection;
struct sim_stream;

struct sim_piece {
    struct sim_piece *next;
    uint32_t length; /* 0: the end of the stream. */
    uint32_t offset; /* Bytes already read. */
    uint8_t bytes[];
};

struct sim_piece_list {
    struct sim_piece *head;
    struct sim_piece **tail;
};

struct sim_event {
    uint64_t when_ns;
    uint64_t sequence; /* Breaks ties: N1. */
    uint8_t kind;
    uint8_t way; /* The way on which it travels; for timers, the way of their end. */
    struct sim_connection *connection;
    struct sim_piece *piece; /* BYTES, END: owned. */
    uint64_t arrived;        /* ACK. */
    uint64_t consumed;       /* ACK. */
    yb_sim_call_fn *call;    /* CALL. */
    void *arg;               /* CALL. */
};

/* What is hashed and remembered of an event. */
struct sim_record {
    uint64_t when_ns;
    uint64_t subject; /* Connection, or process for RUN. */
    uint64_t length;
    uint64_t content; /* Hash of the bytes. */
    uint32_t kind;
    uint32_t way;
};

_Static_assert(sizeof(struct sim_record) == 40, "no padding may enter the fingerprint");

struct sim_way {
    uint64_t extra_delay_ns;
    uint64_t last_arrival_ns; /* N2: nothing later arrives before it. */
    uint64_t wire_free_ns;
    uint64_t sent;
    uint64_t arrived;
    uint64_t consumed;
    uint64_t acked;  /* `arrived` as the sender knows it. */
    uint64_t credit; /* `consumed` as the sender knows it. */
    uint64_t unacked_since_ns;
    bool ack_travelling;
    bool ack_wanted;
    bool give_up_armed;
    bool release_armed;
    bool abandoned;              /* The sender is gone: what is held or lost stays lost ... */
    bool gap;                    /* ... and something was: nothing behind it arrives (N2). */
    struct sim_piece_list held;  /* Came while the way was blocked. */
    struct sim_piece_list ready; /* In the receiver's kernel, not read yet. */
};

enum sim_end_state { END_NONE, END_OPENING, END_QUEUED, END_ACCEPTED, END_OPEN, END_GONE };

struct sim_end {
    uint8_t state;
    bool broken;
    bool ended; /* The peer's END has come: after `ready` there is nothing. */
    struct yb_sim_host *host;
    struct yb_sim_process *process; /* NULL when NONE or GONE. */
    struct sim_stream *stream;      /* When OPENING or OPEN. */
    struct yb_address address;
    uint64_t give_up_ns; /* From the stream's options; 0: the link's. */
};

struct sim_connection {
    uint32_t magic;
    uint32_t event_count; /* Events in the heap that name it. */
    uint64_t id;
    struct yb_sim *sim;
    struct sim_connection *next; /* The world's list, while an end is not GONE. */
    struct sim_connection *previous;
    struct sim_connection *next_queued; /* The listener's queue. */
    struct yb_listener *listener;       /* While end 1 is QUEUED. */
    bool listed;
    bool black_hole;
    bool silent; /* Its connect is never answered. */
    bool cut;    /* cut_after_bytes was reached. */
    uint64_t retry_ns;
    uint64_t connect_deadline_ns;
    struct sim_end ends[2];
    struct sim_way ways[2];
};

struct sim_link_entry {
    struct yb_sim_host *a;
    struct yb_sim_host *b;
    struct yb_sim_link link;
};

struct yb_sim {
    uint32_t magic;
    bool stepping;
    uint64_t seed;
    uint64_t random;
    uint64_t now_ns;
    uint64_t sequence;
    uint64_t step_count;
    uint64_t fingerprint;
    uint64_t connection_id;
    uint64_t process_id;
    uint64_t held_bytes;
    uint32_t connection_count;
    uint32_t event_count;
    uint32_t event_room;
    uint32_t host_count;
    uint32_t link_count;
    struct sim_event *events; /* A binary heap. */
    struct sim_link_entry *links;
    struct sim_connection *connections;
    struct yb_sim_process *processes;
    struct yb_sim_host *hosts[YB_SIM_HOST_COUNT];
    bool blocked[YB_SIM_HOST_COUNT][YB_SIM_HOST_COUNT]; /* [from][to] */
    struct yb_sim_link link;                            /* Where `links` has no entry. */
    struct sim_record trace[YB_SIM_TRACE_COUNT];
};

struct yb_sim_host {
    uint32_t magic;
    uint32_t index;
    struct yb_sim *sim;
    struct yb_clock clock;
    struct yb_address address; /* Port 0. */
    char name[YB_SIM_NAME_BYTES];
    bool stalled;
    bool down;
    uint16_t next_port;
    uint32_t backlog;
    int32_t drift_ppm;
    uint64_t base_world_ns; /* The local clock stood at base_local_ns then. */
    uint64_t base_local_ns;
    int64_t wall_offset_ns;
};

struct yb_sim_process {
    uint32_t magic;
    bool crashed;
    bool running;
    uint32_t poll_count; /* In this run: N4. */
    uint64_t id;
    uint64_t wake_ns; /* YB_NEVER: nothing to do. */
    uint64_t wake_sequence;
    uint64_t busy_until_ns; /* N4 */
    struct yb_sim_host *host;
    struct sim_io *io;
    struct yb_sim_process *next;
    yb_sim_run_fn *run;
    void *arg;
    char name[YB_SIM_NAME_BYTES];
};

enum sim_read_kind { SIM_READ_NONE, SIM_READ_BYTES, SIM_READ_INTO };

struct sim_stream {
    struct yb_stream base;
    struct sim_stream *next; /* The io's list of all streams. */
    struct sim_stream *previous;
    struct sim_stream *next_ready;
    struct sim_connection *connection; /* NULL once closed, lost to a crash, or never there. */
    uint32_t end;
    bool queued; /* On the io's ready list. */
    bool closed;
    bool connected;                /* The answer to a connect is known ... */
    enum yb_status connect_status; /* ... and is this. */
    uint8_t read_kind;
    bool writing;
    uint32_t read_count;
    uint32_t write_count;
    uint32_t write_index; /* First vector not wholly taken ... */
    size_t write_skip;    /* ... and how much of it was. */
    size_t written;
    size_t write_left;
    size_t read_limit;
    const struct iovec *read_iov;
    const struct iovec *write_iov;
};

struct yb_listener {
    uint32_t magic;
    struct sim_io *io;
    struct yb_listener *next;
    struct yb_address address;
    yb_accept_fn *on_accept;
    void *owner;
    uint32_t queue_count;
    struct sim_connection *queue_head;
    struct sim_connection **queue_tail;
};

struct sim_io {
    struct yb_io base;
    struct yb_sim_process *process;
    struct sim_stream *streams;
    struct sim_stream *ready_head;
    struct sim_stream **ready_tail;
    struct yb_listener *listeners;
    bool polling;
    uint8_t buffer[YB_IO_READ_BYTES_MAX];
};

/* ---- sim.c --------------------------------------------------------------------------- */

/* calloc that aborts instead of failing: see Failure in sim.h. */
void *yb_sim_allocate(size_t bytes);
bool yb_sim_chance(struct yb_sim *sim, uint32_t ppm);
uint64_t yb_sim_next_sequence(struct yb_sim *sim);

/* Consume the event's piece; count it for its connection. */
void yb_sim_push(struct yb_sim *sim, struct sim_event event);
const struct yb_sim_link *yb_sim_link_of(const struct yb_sim *sim, const struct yb_sim_host *a,
                                         const struct yb_sim_host *b);

/* ---- sim_host.c ---------------------------------------------------------------------- */

/* Let the process run at `when_ns`, or before if that was arranged already. */
void yb_sim_process_wake_at(struct yb_sim_process *process, uint64_t when_ns);
void yb_sim_process_run(struct yb_sim_process *process);
bool yb_sim_process_runnable(const struct yb_sim_process *process);

/* Return the duration in world time of `local_ns` on the host's clock, rounded up. */
uint64_t yb_sim_host_to_world(const struct yb_sim_host *host, uint64_t local_ns);

/* Return the host that `address` leads to from `from`; NULL: none. */
struct yb_sim_host *yb_sim_host_find(struct yb_sim_host *from, const struct yb_address *address);
bool yb_sim_same_ip(const struct yb_address *a, const struct yb_address *b);

/* Find a port that nothing on the host uses. 0: there is none. */
uint16_t yb_sim_host_free_port(struct yb_sim_host *host);

/* Find who would get a connection to `address` on `host`, or who is in the way of listening
 * there if `binding`. NULL: nobody. */
struct yb_listener *yb_sim_listener_find(struct yb_sim_host *host, const struct yb_address *address,
                                         bool binding);
void yb_sim_host_free(struct yb_sim_host *host);

/* ---- sim_net.c ----------------------------------------------------------------------- */

/* Start a connection of `stream` to `host`; NULL: no port is free. */
struct sim_connection *yb_sim_connection_open(struct sim_stream *stream, struct yb_sim_host *host,
                                              const struct yb_address *address);

/* Begin to connect. `timeout_ns` 0: as the link says. */
void yb_sim_connection_start(struct sim_connection *connection, uint64_t timeout_ns);

/* Return how many bytes the end may write now, and into how big a piece they should go. */
uint32_t yb_sim_piece_bytes(struct sim_connection *connection, uint32_t end, size_t wanted);
struct sim_piece *yb_sim_piece_create(struct yb_sim *sim, uint32_t length);
void yb_sim_send(struct sim_connection *connection, uint32_t end, struct sim_piece *piece);

/* Copy at most `limit` received bytes to `iov`. Returns how many; 0: none are there. */
size_t yb_sim_receive(struct sim_connection *connection, uint32_t end, const struct iovec *iov,
                      uint32_t count, size_t limit);
bool yb_sim_readable(const struct sim_connection *connection, uint32_t end);

/* Let an end go, as its process closing it or `how` it died makes its kernel do. */
void yb_sim_end_close(struct sim_connection *connection, uint32_t end, enum yb_sim_death how);
struct sim_connection *yb_sim_connection_find(const struct yb_sim *sim, uint64_t id);

/* Let what is held arrive, where nothing blocks it any more. */
void yb_sim_release(struct yb_sim *sim);

/* Forget what the host's kernel would still have sent again. */
void yb_sim_abandon(struct yb_sim_host *host);

/* Return whether the event can no longer matter; it is then dropped without taking time. */
bool yb_sim_event_is_stale(struct sim_event *event);
void yb_sim_event_apply(struct yb_sim *sim, struct sim_event *event);

/* Undo yb_sim_push for an event that is not applied, or was. */
void yb_sim_event_done(struct yb_sim *sim, struct sim_event *event);

/* ---- sim_stream.c -------------------------------------------------------------------- */

extern const struct yb_io_ops yb_sim_io_ops;

struct sim_io *yb_sim_io_create(struct yb_sim_process *process);

/* Free the io with all its streams and listeners, without callbacks. */
void yb_sim_io_free(struct sim_io *io);

/* Take listeners and connections of a crashing process out of the world. */
void yb_sim_io_crash(struct sim_io *io, enum yb_sim_death how);

/* Let the next poll of the stream's io look at it. */
void yb_sim_stream_ready(struct sim_stream *stream);

#endif /* YB_NET_SIM_INTERNAL_H */
