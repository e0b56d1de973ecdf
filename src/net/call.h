/* SPDX-License-Identifier: Apache-2.0
 *
 * call.h -- one request, as the side that makes it sees it.
 *
 * The caller fills in the upper part, submits it to a peer (peer.h) or to a
 * connection (conn.h), and gets it back in `done` with the lower part filled in.
 *
 *     caller --submit--> WAITING --> SENDING --> SENT --> REPLYING --> done
 *                           |           |          |          |
 *                           +-----------+----------+----------+--> done, unanswered
 *
 *     A peer may answer before it has read everything, so that REPLYING may follow SENDING;
 *     ANSWERED then waits until the data was taken.
 *
 * Outcomes. `answered` tells whose word `status` is:
 *
 *     answered, any status          the peer's own answer; OK or its reason
 *     unanswered, sent == false     TIMED_OUT, CANCELLED, PEER_LOST, CLOSED ...:
 *                                   no byte of it reached the peer; nothing was applied
 *     unanswered, sent == true      IN_DOUBT if it mutates: it may have been applied,
 *                                   and nobody can be asked any more.
 *                                   Otherwise TIMED_OUT or PEER_LOST: reading is harmless
 *
 * Invariants
 *   C1  `done` runs exactly once, on the loop's thread, never inside a submit.
 *   C2  When `done` runs the call is quiet on this side: neither the kernel nor
 *       Yuebing touches its body, data or reply buffers any more.
 *   C3  The reply buffers are written only if the whole reply fits; otherwise the
 *       status is TOO_SMALL and they are untouched.
 *
 * Memory    The caller owns the call, its body, data, vectors and reply buffers and
 *           keeps them alive and unchanged from an accepted submit until `done`.
 * Threads   The loop's.
 * Time      One absolute deadline on the loop's clock covers waiting, connecting,
 *           sending, the peer's work and the reply. On the wire it is what remains.
 */
#ifndef YB_NET_CALL_H
#define YB_NET_CALL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "net/timer.h"
#include "net/wire/wire.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_conn;
struct yb_peer;

/* A frame's place in a connection's outgoing bytes; private to net/conn_out.c. */
struct yb_out {
    struct yb_out *next;
    uint64_t start; /* Offset of its header in the stream of headers and bodies ... */
    uint64_t end;   /* ... and of the byte behind its body. */
    const struct iovec *data;
    uint32_t data_count;
    uint32_t data_index; /* First vector that is not wholly gathered ... */
    size_t data_skip;    /* ... and how much of it is. */
    uint64_t data_left;  /* Bytes of data not yet taken by the kernel. */
    bool started;        /* Some of it was handed to the kernel. */
    void (*sent)(struct yb_out *out, enum yb_status status);
};

enum yb_call_state {
    YB_CALL_IDLE,
    YB_CALL_WAITING,  /* In a peer's queue: no connection, or no credit. */
    YB_CALL_SENDING,  /* In a connection's outgoing bytes. */
    YB_CALL_SENT,     /* The kernel has all of it; waiting for the reply. */
    YB_CALL_REPLYING, /* The reply's data is arriving in the caller's buffers. */
    YB_CALL_ANSWERED, /* Wholly answered before the kernel has let go of its data. */
};

struct yb_call {
    /* ---- the caller's: filled in before submit, the rest zero ---- */
    uint16_t type;          /* A frame type of the schema or of a service. */
    enum yb_class class;    /* Which connection carries it, and its rank there. */
    enum yb_wire_lane lane; /* CONTROL for small things, BULK for data. */
    bool fail_fast; /* Give up when the peer cannot be reached, before the deadline: peer.h. */
    uint64_t deadline_ns;  /* YB_NEVER: none. */
    bool mutates;          /* Changes something: is applied once, however often it is sent. */
    struct yb_id trace_id; /* None: not traced. */
    uint64_t parent_span;
    const void *body;
    uint32_t body_bytes;
    uint32_t data_count;
    const struct iovec *data; /* Sent behind the body, straight from here. */
    void *reply_body;
    uint32_t reply_body_room;
    uint32_t reply_data_count;
    const struct iovec *reply_data; /* Where the reply's data goes, straight from the socket. */
    /* Runs when a reply with data was answered and its body is in `reply_body`, before the first
     * byte of data: may set reply_data, now that `reply_data_bytes` and the body tell what comes.
     * Anything but OK discards the data and becomes the call's status. NULL: reply_data is set
     * already. It must not submit, cancel or close. */
    enum yb_status (*place)(struct yb_call *call);
    void (*done)(struct yb_call *call);
    void *owner;   /* For `done` ... */
    void *context; /* ... and for whoever submits on its behalf. */

    /* ---- results, valid in `done` ---- */
    enum yb_status status;
    bool answered;
    bool sent;
    bool undecided; /* Answered by one that cannot tell what became of it; see frame_flag. */
    uint32_t reply_body_bytes;
    uint64_t reply_data_bytes;
    uint64_t took_ns; /* From submit to done. */

    /* ---- net's ---- */
    /* On the wire. Submitted to a peer, a call that mutates gets both there; submitted to a
     * connection, it brings them along. 0: changes nothing. */
    uint64_t operation;
    uint32_t operation_slot;
    bool slotted; /* `operation_slot` is taken in its lane. */
    enum yb_call_state state;
    enum yb_status give_up;      /* Why its connection is being aborted on its account. */
    bool doubted;                /* An earlier attempt of the same call may have been applied ... */
    struct yb_id doubt_identity; /* ... by this process, which was the one asked ... */
    uint64_t doubt_incarnation;  /* ... in this life. */
    bool sent_before;            /* An earlier attempt was sent. */
    bool outgoing;               /* Its frame is in the connection's outgoing bytes. */
    uint64_t retry_ns;           /* Delay before it asks again ... */
    bool resting;                /* ... which is passing now. */
    uint32_t slot;
    uint64_t cost;
    uint64_t began_ns;
    uint64_t span_id;
    struct yb_conn *conn;
    struct yb_peer *peer;
    struct yb_call *next;
    struct yb_call *previous;
    struct yb_out out;
    struct yb_timer timer;
    void (*finished)(struct yb_call *call); /* The layer between the connection and `done`. */
};

#endif /* YB_NET_CALL_H */
