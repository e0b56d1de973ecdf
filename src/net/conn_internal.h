/* SPDX-License-Identifier: Apache-2.0
 *
 * conn_internal.h -- the parts of a connection, shared by the files that make it up.
 *
 *     net.c        what connections share: chunks, request records, counters
 *     conn.c       life: connect, accept, handshake, timers, close
 *     conn_in.c    received bytes -> frames -> calls and requests
 *     conn_out.c   frames -> one write per turn, straight from the callers' memory
 *     call.c       the asking half: slots, credit, deadlines, replies
 *     request.c    the answering half: methods, replies, remembered results
 */
#ifndef YB_NET_CONN_INTERNAL_H
#define YB_NET_CONN_INTERNAL_H

#include "net/conn.h"
#include "net/foreign.h"
#include "net/frame.h"
#include "net/links.h"
#include "net/net.h"
#include "net/request.h"
#include "net/tls.h"

#define YB_CONN_MAGIC    0x636f6e6eu
#define YB_NET_MAGIC     0x6e657430u
#define YB_REQUEST_MAGIC 0x72657175u

#define YB_CHUNK_BYTES      (32u * 1024u)
#define YB_CONN_IOV_MAX     32u
#define YB_CONN_WRITE_MAX   (1024u * 1024u)
#define YB_CONN_BEHIND_MAX  256u
#define YB_CONN_TEXT_MAX    520u
#define YB_CONN_CHUNKS_KEPT 256u /* Free chunks a net keeps: 8 MiB. */

/* Progress that a peer owes in each frame timeout while its data arrives. */
#define YB_CONN_PROGRESS_BYTES (64u * 1024u)

/* A piece of outgoing headers and bodies. */
struct yb_chunk {
    struct yb_chunk *next;
    uint32_t begin; /* First byte not yet taken by the kernel. */
    uint32_t end;
    bool handed;              /* Some of it was handed to the kernel, or encrypted. */
    uint32_t credit_requests; /* Returned by the replies that begin in it, until then. */
    uint64_t credit_bytes;
    uint8_t bytes[YB_CHUNK_BYTES];
};

enum yb_conn_state {
    YB_CONN_CONNECTING,
    YB_CONN_TLS,
    YB_CONN_HELLO,
    YB_CONN_OPEN,
    YB_CONN_DRAINING,
    YB_CONN_LINGER,
    YB_CONN_CLOSING,
};

enum yb_conn_in_state {
    YB_IN_HEADER,
    YB_IN_BODY,
    YB_IN_DATA,    /* Into `sink`. */
    YB_IN_DISCARD, /* To nowhere. */
};

/* A slot of the table of unanswered calls. */
struct yb_call_slot {
    struct yb_call *call; /* NULL: free. */
    uint64_t request_id;
    uint32_t next_free;
};

/* What is being received. */
struct yb_conn_in {
    enum yb_conn_in_state state;
    uint32_t header_have; /* Of a header that came in pieces ... */
    uint32_t body_have;   /* ... and of its body. */
    uint8_t header_bytes[YB_WIRE_FRAME_HEADER_BYTES];
    struct yb_wire_frame_header header;
    bool keep_body;       /* Somebody will look at the body; otherwise it is dropped as it comes. */
    uint8_t *body_buffer; /* Holds a body that came in pieces or has to outlast the read. */
    uint32_t body_room;
    uint64_t data_left;
    const struct iovec *sink;
    uint32_t sink_count;
    uint32_t sink_index;
    size_t sink_skip;
    uint64_t progress_mark;     /* data_left at which the frame timer is renewed. */
    struct yb_call *call;       /* Whose reply it is, or ... */
    struct yb_request *request; /* ... whose data. */
    uint32_t head_bytes;        /* Header and body of the last frame, if it had much ... */
    size_t asked_bytes;         /* ... data; 0: it had not. Of the last read. */
    bool read_full;             /* The last read got all that it asked for: there is more. */
    struct iovec window[YB_CONN_IOV_MAX]; /* Lent to a read_into in flight ... */
    uint8_t behind[YB_CONN_BEHIND_MAX];   /* ... with room for what comes behind the data. */
};

/* What is being sent. Headers and bodies form one stream of bytes in chunks; frames with data
 * or with somebody who waits for them are marked in it by a struct yb_out. */
struct yb_conn_out {
    struct yb_chunk *head;
    struct yb_chunk *tail;
    uint64_t queued; /* Offsets in the stream of headers and bodies. */
    uint64_t sent;
    struct yb_out *frames;
    struct yb_out **frames_tail;
    uint64_t data_queued; /* Bytes of data that the kernel has not taken. */
    bool room_wanted;
    uint32_t postponed;                /* Flushes put off since the last one. */
    struct iovec iov[YB_CONN_IOV_MAX]; /* Lent to a write in flight. */
};

struct yb_conn {
    uint32_t magic;
    uint32_t landing;    /* Requests whose method `lands`, not yet replied to. */
    bool closed_told;    /* on_closed has run. */
    uint32_t references; /* Requests in service; the connection itself counts as one. */
    enum yb_conn_state state;
    bool initiator;
    bool goaway_heard; /* The peer makes no new requests either. */
    bool opened;       /* Was OPEN once. */
    bool ping_waits;
    bool tls_begun; /* Bytes of TLS came in. */
    bool admitted;  /* on_admit was asked and has welcomed the peer. */
    bool held;      /* on_admit was asked and has not. */
    bool working;   /* Data is under way, as its link counts. */
    uint32_t link;  /* The peer's number; once it is opened. */
    uint32_t stripe;
    uint64_t number; /* How many there were before it. */
    struct yb_net *net;
    struct yb_conn *next; /* All connections of the net. */
    struct yb_conn *previous;
    struct yb_stream *stream;
    const struct yb_conn_events *events;
    void *owner;
    struct yb_address address;
    enum yb_wire_lane lane;
    enum yb_class lane_class;
    struct yb_hello *hello; /* Until OPEN. */
    struct yb_tls *tls;
    struct yb_hello_result peer;
    struct yb_frame_limits limits_in;  /* What we announced. */
    struct yb_frame_limits limits_out; /* What the peer announced. */
    uint64_t began_ns;
    uint64_t heard_ns;          /* When bytes came last. */
    uint64_t said_ns;           /* When bytes were last taken from us. */
    struct yb_timer timer;      /* Handshake, then the frame in progress, then LINGER. */
    struct yb_timer idle_timer; /* OPEN: pings and silence. */
    struct yb_timer write_timer;
    struct yb_timer drain_timer; /* DRAINING: waiting for the peer's GOAWAY. */
    struct yb_task flush_task;
    struct yb_task drain_task;

    struct yb_conn_in in;
    struct yb_conn_out out;

    /* Asking. */
    struct yb_call_slot *slots;
    uint32_t slot_count;
    uint32_t slot_free;  /* Head of the free list. */
    uint32_t calls_out;  /* Credit used: requests ... */
    uint64_t bytes_out;  /* ... and bytes, given back by replies. */
    uint64_t cost_max;   /* The byte credit of the handshake: no request costs more. */
    uint32_t calls_live; /* Calls in the table. */
    uint64_t next_request;
    struct yb_call ping;
    uint8_t ping_body[YB_WIRE_PING_BYTES];
    uint8_t ping_reply[YB_WIRE_PING_BYTES];

    /* Answering. */
    uint32_t requests_in;
    uint64_t bytes_in;

    enum yb_status end_status;
    enum yb_hello_reason end_reason;
    bool end_by_peer;
    char end_text[YB_CONN_TEXT_MAX];
};

struct yb_net {
    uint32_t magic;
    struct yb_net_options options;
    struct yb_stats_shard *shard;
    uint32_t stats_first;
    struct yb_conn *conns;
    uint32_t conn_count;
    uint64_t conns_ever;
    uint64_t bodies_bytes; /* Of all body buffers; limits.bodies_bytes_max bounds it. */
    uint64_t generation;   /* Of the last connection that was made from here. */
    uint64_t operation;    /* Of the last mutation that was numbered here. */
    uint32_t lane_count;   /* Of the connections, those that are lanes of peers. */
    uint64_t lane_turn_ns; /* No unused lane closes before that; peer.c. */
    struct yb_foreign foreign;
    struct yb_links links;
    struct yb_chunk *chunks;
    uint32_t chunk_count;
    struct yb_request *requests; /* Free records. */
    uint32_t requests_made;
    uint32_t requests_live;
    const struct yb_method *methods[YB_METHOD_TYPES];
    void *method_owners[YB_METHOD_TYPES];
};

/* ---- net.c ---- */

void yb_net_count(struct yb_net *net, enum yb_net_stat stat, uint64_t delta);
void yb_net_count_status(struct yb_net *net, enum yb_net_stat stat, enum yb_status status);
void yb_net_count_reason(struct yb_net *net, enum yb_hello_reason reason);
void yb_net_gauge(struct yb_net *net, enum yb_net_stat stat, int64_t delta);
void yb_net_observe(struct yb_net *net, enum yb_net_stat stat, uint64_t value);
void yb_net_observe_class(struct yb_net *net, enum yb_net_stat time, enum yb_net_stat count,
                          enum yb_class class, enum yb_status status, uint64_t took_ns);
uint64_t yb_net_new_span(struct yb_net *net);
void yb_net_span(struct yb_net *net, const struct yb_span *span);

/* Take a free chunk or make one; NULL: no memory. */
struct yb_chunk *yb_net_chunk_take(struct yb_net *net);
void yb_net_chunk_give(struct yb_net *net, struct yb_chunk *chunk);

/* Take a request record; NULL: limits.requests_max are in service. */
struct yb_request *yb_net_request_take(struct yb_net *net);
void yb_net_request_give(struct yb_net *net, struct yb_request *request);

/* ---- conn.c ---- */

void yb_conn_fail(struct yb_conn *conn, enum yb_status status, const char *text);
void yb_conn_unref(struct yb_conn *conn);
/* Close a draining connection once nothing is outstanding; runs as a task. */
void yb_conn_check_drained(struct yb_conn *conn);
uint64_t yb_conn_now(const struct yb_conn *conn);
/* What is outstanding has changed: count for how long data is under way. */
void yb_conn_note_work(struct yb_conn *conn);

/* ---- conn_in.c ---- */

/* Ask the stream for more. */
void yb_conn_in_read(struct yb_conn *conn);
/* The memory that data was going to is not there. */
void yb_conn_in_fault(struct yb_conn *conn);
/* Take bytes that came from the stream (decrypted). */
void yb_conn_in_bytes(struct yb_conn *conn, const uint8_t *bytes, size_t length);
/* `length` bytes arrived straight in the sink. */
void yb_conn_in_filled(struct yb_conn *conn, size_t length);
void yb_conn_in_fini(struct yb_conn *conn);
/* Between frames: let go of the body buffer (N4). */
void yb_conn_in_rest(struct yb_conn *conn);

/* ---- conn_out.c ---- */

void yb_conn_out_init(struct yb_conn *conn);

/* Queue a frame. `body` is copied; if `out` is given, its data follows and out->sent is called.
 * Fails with TOO_LARGE, INVALID or NO_MEMORY, and nothing is queued. */
YB_CHECKED enum yb_status yb_conn_out_frame(struct yb_conn *conn,
                                            const struct yb_wire_frame_header *header,
                                            const void *body, struct yb_out *out);

/* Queue bytes that are no frame: the handshake's. */
YB_CHECKED enum yb_status yb_conn_out_raw(struct yb_conn *conn, const uint8_t *bytes,
                                          size_t length);

/* Take a frame back that was not begun; `frame` is free at once and `sent` will not run. Returns
 * false, having done nothing, if it was begun. */
bool yb_conn_out_withdraw(struct yb_conn *conn, struct yb_out *frame);

/* Let a frame that has no data left go its way without telling: `frame` is free at once. */
void yb_conn_out_forget(struct yb_conn *conn, struct yb_out *frame);

/* Bytes that wait to be taken by the kernel. */
uint64_t yb_conn_out_pending(const struct yb_conn *conn);

void yb_conn_out_flush(struct yb_conn *conn);
void yb_conn_out_written(struct yb_conn *conn, enum yb_status status, size_t length);

/* Drop everything; each waiting frame hears PEER_LOST. */
void yb_conn_out_fini(struct yb_conn *conn);

/* ---- call.c ---- */

/* Return whether the body of a reply is wanted: its call is there and has room for it. */
bool yb_call_on_header(struct yb_conn *conn, const struct yb_wire_frame_header *header);
/* `body` is NULL if it was not wanted. */
void yb_call_on_reply(struct yb_conn *conn, const struct yb_wire_frame_header *header,
                      const uint8_t *body);
void yb_call_on_reply_data(struct yb_conn *conn, struct yb_call *call);
/* Credit came back or was added: tell who waits for it. */
void yb_call_tell_room(struct yb_conn *conn);
void yb_call_fail_all(struct yb_conn *conn);
void yb_call_fini(struct yb_conn *conn);

/* ---- request.c ---- */

extern const struct yb_service yb_net_service; /* What every port answers: ping, echo. */

/* Count a request in, before a byte of its body is kept (N1). Returns whether the body is wanted;
 * the connection may be closing. */
bool yb_request_on_header(struct yb_conn *conn, const struct yb_wire_frame_header *header);
/* `body` is NULL if it was not wanted. */
void yb_request_on_frame(struct yb_conn *conn, const struct yb_wire_frame_header *header,
                         const uint8_t *body);
/* Count what replies return: they may have reached the peer. */
void yb_request_credit(struct yb_conn *conn, uint32_t requests, uint64_t bytes);
void yb_request_on_data(struct yb_conn *conn, struct yb_request *request);
void yb_request_on_lost(struct yb_conn *conn, struct yb_request *request);

static inline size_t
yb_iov_bytes(const struct iovec *iov, uint32_t count)
{
    size_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        total += iov[i].iov_len;
    }
    return total;
}

#endif /* YB_NET_CONN_INTERNAL_H */
