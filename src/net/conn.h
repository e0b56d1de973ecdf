/* SPDX-License-Identifier: Apache-2.0
 *
 * conn.h -- one connection: a handshake, then frames in both directions.
 *
 *     CONNECTING --> TLS --> HELLO --> OPEN --> DRAINING --> CLOSING --> gone
 *          |          |        |         |                      ^
 *          +----------+--------+---------+----- any failure ----+
 *                              |                                |
 *                              +--- refused: LINGER ------------+
 *
 *     accepted connections start in TLS or HELLO; LINGER sends the refusal and
 *     reads a short while, so that the peer sees it
 *
 * Flow control. Each side grants the other credit in the handshake: requests and
 * bytes that may be unanswered. A reply gives it back. Replies need no credit,
 * because the requester has reserved what it needs for them; so no side ever
 * stops reading, and two full sides cannot wait for each other (RULES C1).
 *
 * Invariants
 *   N1  A peer that exceeds its credit, sends a frame that breaks its table, or a
 *       byte a second, is dropped; what it made others wait for is bounded by
 *       the deadlines of net.h.
 *   N2  No frame is begun before the handshake is complete on both sides.
 *   N3  Bytes of one connection are applied in order, each once, by one thread.
 *   N4  A connection without requests holds no buffer beyond its own struct.
 *   N5  After on_closed nothing of the connection's past can reach a call or a service.
 *
 * Threads   The thread of its net's loop.
 * Memory    A connection is owned by net and gone after on_closed; `owner` and
 *           `events` are borrowed until then. Nobody may use it in on_closed or later.
 */
#ifndef YB_NET_CONN_H
#define YB_NET_CONN_H

#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"
#include "net/call.h"
#include "net/hello.h"
#include "net/net.h"

struct yb_conn;

/* Why a connection ended. `text` is borrowed until on_closed returns. */
struct yb_conn_end {
    enum yb_status status;
    enum yb_hello_reason reason; /* NONE unless the handshake failed. */
    bool was_open;
    bool by_peer; /* The peer refused: `text` is its word. */
    const char *text;
};

struct yb_conn_events {
    /* Accepting side: the peer has proved who it is but was not welcomed yet. OK welcomes it;
     * AGAIN holds it until yb_conn_admit(), within the handshake's time; anything else ends the
     * connection. NULL: everybody is welcome. */
    enum yb_status (*on_admit)(void *owner, struct yb_conn *conn,
                               const struct yb_hello_result *peer);
    /* The handshake is complete. */
    void (*on_open)(void *owner, struct yb_conn *conn);
    /* A call that was answered AGAIN by yb_conn_call() may be tried now. NULL: not wanted. */
    void (*on_room)(void *owner, struct yb_conn *conn);
    /* The peer sends GOAWAY: make no new calls here, the connection drains. NULL: not wanted. */
    void (*on_goaway)(void *owner, struct yb_conn *conn);
    void (*on_closed)(void *owner, struct yb_conn *conn, const struct yb_conn_end *end);
    /* After on_closed: what yb_conn_landing() counted is over. NULL: makes no such connections. */
    void (*on_landed)(void *owner);
};

/* Where a connection goes, and what it carries. */
struct yb_conn_target {
    struct yb_address address;
    enum yb_wire_lane lane;
    enum yb_class lane_class;
    uint32_t stripe; /* Which of several parallel connections of the lane: peer.h. */
};

/* Connect. On OK, on_closed will run once, whatever happens. Fails with INVALID, UNREACHABLE,
 * DENIED (no credential for our role) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_conn_connect(struct yb_net *net, const struct yb_conn_target *target,
                                          const struct yb_conn_events *events, void *owner,
                                          struct yb_conn **conn_out);

/* Serve an accepted connection; consumes `accepted` on OK only. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_conn_accept(struct yb_net *net, const struct yb_accepted *accepted,
                                         const struct yb_conn_events *events, void *owner,
                                         struct yb_conn **conn_out);

/* Refuse a connection whose handshake is not complete: the peer is told `text` if it can still
 * understand it. Harmless in every other state. */
void yb_conn_refuse(struct yb_conn *conn, enum yb_hello_reason reason, const char *text);

/* Welcome a peer that on_admit held. Harmless in every other state. */
void yb_conn_admit(struct yb_conn *conn);

/* Send a request. On OK call->done runs once, later. Otherwise it never runs: AGAIN (no credit, or
 * enough is committed: on_room tells when), TOO_LARGE (body or data above what the peer takes),
 * TIMED_OUT (the deadline has passed), CLOSED (not open). */
YB_CHECKED enum yb_status yb_conn_call(struct yb_conn *conn, struct yb_call *call);

/* End a call early: `done` runs soon, with CANCELLED or, if it was sent and names an operation,
 * IN_DOUBT. If the kernel is in the middle of its memory, the connection is aborted. */
void yb_conn_cancel(struct yb_conn *conn, struct yb_call *call);

/* Abort: the peer sees a reset, calls end, on_closed follows. Harmless if it is closing. `text` is
 * copied. */
void yb_conn_close(struct yb_conn *conn, enum yb_status status, const char *text);

/* Send GOAWAY and close once the peer has said it too (or a frame timeout has passed), every
 * request was answered and every call has ended. */
void yb_conn_drain(struct yb_conn *conn);

bool yb_conn_is_open(const struct yb_conn *conn);

/* Return what the handshake found; only after on_open. Borrowed until on_closed returns. */
const struct yb_hello_result *yb_conn_peer(const struct yb_conn *conn);

/* Return the peer's address, and whether we connected. */
const struct yb_address *yb_conn_address(const struct yb_conn *conn);
bool yb_conn_is_initiator(const struct yb_conn *conn);

/* Return how many of the peer's requests may still write memory that they name. */
uint32_t yb_conn_landing(const struct yb_conn *conn);

/* Return how many calls and requests are unanswered on it. */
uint32_t yb_conn_outstanding(const struct yb_conn *conn);

#endif /* YB_NET_CONN_H */
