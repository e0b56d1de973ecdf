/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection's life, from the first packet to the last callback.
 *
 * Invariants
 *   L1  conn->timer bounds every state but OPEN and DRAINING, and there the frame
 *       in progress; idle_timer bounds silence; write_timer bounds a write.
 *   L2  yb_conn_fail() may be called at any point, any number of times; the first
 *       reason counts. It closes the stream; the rest happens in on_closed.
 *   L3  Calls and requests hear of the end only in on_closed, when the kernel has
 *       let go of their memory.
 */
#include "net/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn_internal.h"

/* How long a refused peer's bytes are read, so that the refusal is not lost to a reset. */
#define LINGER_NS (250 * YB_NS_PER_MS)

/* The accepting side drops a peer after this many intervals without a byte. */
#define SILENT_INTERVALS 3

#define TLS_READ_BYTES (16u * 1024u)

static const struct yb_stream_events stream_events;

static struct yb_loop *
loop_of(const struct yb_conn *conn)
{
    return conn->net->options.loop;
}

uint64_t
yb_conn_now(const struct yb_conn *conn)
{
    return yb_loop_now(loop_of(conn));
}

static uint64_t
wall_now(const struct yb_conn *conn)
{
    return yb_clock_wall(yb_loop_clock(loop_of(conn)));
}

static void
arm(struct yb_conn *conn, struct yb_timer *timer, uint64_t after_ns)
{
    yb_loop_arm(loop_of(conn), timer, yb_deadline_after(yb_conn_now(conn), after_ns));
}

/* ---- the end ----------------------------------------------------------------------------- */

void
yb_conn_unref(struct yb_conn *conn)
{
    YB_ASSERT(conn->references > 0);
    if (--conn->references > 0) {
        yb_conn_check_drained(conn);
        return;
    }
    YB_ASSERT(conn->state == YB_CONN_CLOSING && conn->stream == NULL);
    conn->magic = 0;
    free(conn);
}

void
yb_conn_fail(struct yb_conn *conn, enum yb_status status, const char *text)
{
    YB_ASSERT_OBJ(conn, YB_CONN_MAGIC);
    if (conn->state == YB_CONN_CLOSING) {
        return; /* L2 */
    }
    if (conn->state != YB_CONN_LINGER) { /* There the reason is known already. */
        conn->end_status = status;
        (void)snprintf(conn->end_text, sizeof(conn->end_text), "%s", text);
    }
    conn->state = YB_CONN_CLOSING;
    yb_loop_disarm(loop_of(conn), &conn->timer);
    yb_loop_disarm(loop_of(conn), &conn->idle_timer);
    yb_loop_disarm(loop_of(conn), &conn->write_timer);
    yb_loop_disarm(loop_of(conn), &conn->drain_timer);
    yb_stream_close(conn->stream, status == YB_OK ? YB_CLOSE_GRACEFUL : YB_CLOSE_ABORT);
}

void
yb_conn_close(struct yb_conn *conn, enum yb_status status, const char *text)
{
    yb_conn_fail(conn, status, text);
}

static void
unlink_conn(struct yb_conn *conn)
{
    struct yb_net *net = conn->net;

    if (conn->previous != NULL) {
        conn->previous->next = conn->next;
    } else {
        net->conns = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->previous = conn->previous;
    }
    net->conn_count--;
}

static void
count_end(struct yb_conn *conn)
{
    struct yb_net *net = conn->net;

    yb_conn_note_work(conn);
    if (conn->opened) {
        yb_net_gauge(net, YB_NET_STAT_OPEN, -1);
        yb_net_count_status(net, YB_NET_STAT_CLOSED, conn->end_status);
    } else if (conn->end_reason != YB_HELLO_REASON_NONE) {
        yb_net_count_reason(net, conn->end_reason);
    } else if (conn->initiator) {
        yb_net_count_status(net, YB_NET_STAT_CONNECT_FAILED, conn->end_status);
    }
}

static void
on_closed(void *owner)
{
    struct yb_conn *conn = owner;
    struct yb_conn_end end;

    YB_ASSERT_OBJ(conn, YB_CONN_MAGIC);
    YB_ASSERT(conn->state == YB_CONN_CLOSING);
    conn->stream = NULL;
    end = (struct yb_conn_end){
        .status = conn->end_status,
        .reason = conn->end_reason,
        .was_open = conn->opened,
        .by_peer = conn->end_by_peer,
        .text = conn->end_text,
    };
    conn->references++; /* Requests that are given back below must not free it. */
    yb_loop_undefer(loop_of(conn), &conn->flush_task);
    yb_loop_undefer(loop_of(conn), &conn->drain_task);
    yb_conn_in_fini(conn);
    yb_conn_out_fini(conn);
    yb_call_fail_all(conn);
    yb_call_fini(conn);
    if (conn->hello != NULL) {
        yb_hello_destroy(&conn->hello);
    }
    if (conn->tls != NULL) {
        yb_tls_destroy(&conn->tls);
    }
    count_end(conn);
    unlink_conn(conn);
    conn->closed_told = true;
    conn->events->on_closed(conn->owner, conn, &end);
    conn->references--;
    yb_conn_unref(conn);
}

/* ---- draining ------------------------------------------------------------------------------ */

uint32_t
yb_conn_landing(const struct yb_conn *conn)
{
    return conn->landing;
}

uint32_t
yb_conn_outstanding(const struct yb_conn *conn)
{
    return conn->calls_live + conn->requests_in;
}

void
yb_conn_note_work(struct yb_conn *conn)
{
    const bool works = conn->lane == YB_WIRE_LANE_BULK && conn->opened &&
                       conn->state != YB_CONN_CLOSING && yb_conn_outstanding(conn) > 0;
    struct yb_links *links = &conn->net->links;

    if (works && !conn->working) {
        yb_links_begin(links, conn->link, YB_LINKS_TCP, yb_conn_now(conn));
    } else if (works) {
        yb_links_look(links, conn->link, YB_LINKS_TCP, yb_conn_now(conn));
    } else if (conn->working) {
        yb_links_end(links, conn->link, YB_LINKS_TCP, yb_conn_now(conn));
    }
    conn->working = works;
}

static void
run_drain(struct yb_task *task)
{
    struct yb_conn *conn =
        (struct yb_conn *)((uint8_t *)task - offsetof(struct yb_conn, drain_task));

    /* With TLS bytes are out of the queue before they are written. Until the peer has said GOAWAY
     * too, requests of it may be under way. */
    if (conn->state == YB_CONN_DRAINING && conn->goaway_heard && yb_conn_outstanding(conn) == 0 &&
        yb_conn_out_pending(conn) == 0 && !conn->stream->writing && conn->references == 1) {
        yb_conn_fail(conn, YB_OK, "drained");
    }
}

void
yb_conn_check_drained(struct yb_conn *conn)
{
    if (conn->state == YB_CONN_DRAINING) {
        yb_loop_defer(loop_of(conn), &conn->drain_task);
    }
}

/* A peer that runs answers a GOAWAY at once. One that has not by now is stopped, or gone: it may
 * not hold up for longer whoever has nothing else to do. */
#define GOAWAY_NS (500 * YB_NS_PER_MS)

static void
on_drain_timer(struct yb_timer *timer)
{
    struct yb_conn *conn =
        (struct yb_conn *)((uint8_t *)timer - offsetof(struct yb_conn, drain_timer));

    conn->goaway_heard = true;
    yb_conn_check_drained(conn);
}

void
yb_conn_drain(struct yb_conn *conn)
{
    static const char text[] = "this side is stopping";
    struct yb_wire_goaway goaway = {
        .status = YB_CLOSED,
        .text = {.bytes = text, .length = sizeof(text) - 1},
    };
    uint8_t body[YB_WIRE_GOAWAY_BYTES_MAX];
    struct yb_wire_frame_header header = {
        .class = (uint8_t)conn->lane_class,
        .type = YB_WIRE_TYPE_GOAWAY,
        .deadline_us = YB_WIRE_DEADLINE_NEVER,
    };
    size_t length = 0;

    if (conn->state == YB_CONN_CLOSING || conn->state == YB_CONN_DRAINING) {
        return;
    }
    if (conn->state != YB_CONN_OPEN) {
        yb_conn_fail(conn, YB_CLOSED, "this side is stopping");
        return;
    }
    conn->state = YB_CONN_DRAINING;
    YB_ASSERT(yb_wire_goaway_encode(&goaway, body, sizeof(body), &length) == YB_OK);
    header.body_bytes = (uint32_t)length;
    if (yb_conn_out_frame(conn, &header, body, NULL) != YB_OK) {
        yb_conn_fail(conn, YB_NO_MEMORY, "no memory to say goodbye");
        return;
    }
    arm(conn, &conn->drain_timer, GOAWAY_NS);
    yb_conn_check_drained(conn);
}

/* ---- pings --------------------------------------------------------------------------------- */

static void
on_pong(struct yb_call *call)
{
    struct yb_conn *conn = call->owner;

    conn->ping_waits = false;
    /* One that waits behind our own bytes says nothing of the peer: the write timer does. Nor is
     * a peer silent that sends something large before its answer. */
    if (conn->state != YB_CONN_CLOSING && !call->answered && call->sent &&
        call->status == YB_TIMED_OUT && conn->heard_ns <= call->began_ns) {
        yb_conn_fail(conn, YB_TIMED_OUT, "the peer did not answer a ping");
    }
}

static void
send_ping(struct yb_conn *conn)
{
    struct yb_wire_ping ping = {.wall_sent_ns = wall_now(conn)};
    size_t length = 0;

    if (conn->ping_waits) {
        return;
    }
    YB_ASSERT(yb_wire_ping_encode(&ping, conn->ping_body, sizeof(conn->ping_body), &length) ==
              YB_OK);
    conn->ping = (struct yb_call){
        .type = YB_WIRE_TYPE_PING,
        .class = conn->lane_class,
        .deadline_ns =
            yb_deadline_after(yb_conn_now(conn), conn->net->options.limits.frame_timeout_ns),
        .body = conn->ping_body,
        .body_bytes = (uint32_t)length,
        .reply_body = conn->ping_reply,
        .reply_body_room = sizeof(conn->ping_reply),
        .done = on_pong,
        .owner = conn,
    };
    conn->ping_waits = yb_conn_call(conn, &conn->ping) == YB_OK;
}

/* How long a silence may be before it is noticed. The accepting side waits for the pings of
 * which it has told the interval. */
static uint64_t
ping_interval(const struct yb_conn *conn)
{
    uint64_t own_ns = conn->net->options.limits.idle_ping_ns;
    uint64_t told_ns = conn->peer.ping_interval_ms * YB_NS_PER_MS;

    return conn->initiator && told_ns > 0 && told_ns < own_ns ? told_ns : own_ns;
}

/* The connecting side asks after a silence, its own too: while it only takes, the other side hears
 * nothing. The accepting side waits for that and gives up after a longer one. */
static void
on_idle_timer(struct yb_timer *timer)
{
    struct yb_conn *conn =
        (struct yb_conn *)((uint8_t *)timer - offsetof(struct yb_conn, idle_timer));
    uint64_t interval_ns = ping_interval(conn);
    bool mute = conn->initiator && conn->said_ns < conn->heard_ns;
    uint64_t silent_ns = yb_conn_now(conn) - (mute ? conn->said_ns : conn->heard_ns);
    uint64_t limit_ns = conn->initiator ? interval_ns : SILENT_INTERVALS * interval_ns;

    yb_conn_in_rest(conn);
    if (silent_ns + YB_TIMER_TICK_NS < limit_ns) {
        arm(conn, timer, limit_ns - silent_ns);
        return;
    }
    if (!conn->initiator) {
        yb_conn_fail(conn, YB_TIMED_OUT, "the peer was silent for three ping intervals");
        return;
    }
    send_ping(conn);
    arm(conn, timer, interval_ns);
}

static void
on_write_timer(struct yb_timer *timer)
{
    struct yb_conn *conn =
        (struct yb_conn *)((uint8_t *)timer - offsetof(struct yb_conn, write_timer));

    yb_conn_fail(conn, YB_TIMED_OUT, "the peer takes no bytes");
}

/* ---- handshake ------------------------------------------------------------------------------ */

static void
trace_handshake(struct yb_conn *conn, enum yb_status status)
{
    uint64_t now_ns = yb_conn_now(conn);
    struct yb_span span = {
        .trace = yb_trace_new_id(conn->net->options.random, conn->net->options.random_context),
        .peer = conn->peer.identity,
        .span = yb_net_new_span(conn->net),
        .start_ns = conn->began_ns,
        .end_ns = now_ns,
        .wall_ns = wall_now(conn) - (now_ns - conn->began_ns),
        .outcome = (int32_t)status,
        .kind = conn->initiator ? YB_SPAN_KIND_CONNECT : YB_SPAN_KIND_HANDSHAKE,
        .path = YB_SPAN_PATH_TCP,
        .work_class = (uint8_t)conn->lane_class,
    };

    yb_net_observe(conn->net, YB_NET_STAT_HANDSHAKE, now_ns - conn->began_ns);
    yb_net_span(conn->net, &span);
}

static void
become_open(struct yb_conn *conn)
{
    const struct yb_hello_self *self = conn->net->options.self;

    conn->peer = *yb_hello_result(conn->hello);
    yb_hello_destroy(&conn->hello);
    conn->lane = (enum yb_wire_lane)conn->peer.lane;
    conn->lane_class = (enum yb_class)conn->peer.lane_class;
    conn->cost_max = conn->peer.credit_bytes;
    conn->limits_in = (struct yb_frame_limits){
        .version = (uint8_t)conn->peer.version,
        .body_bytes_max = self->body_bytes_max,
        .data_bytes_max = self->data_bytes_max,
    };
    conn->limits_out = (struct yb_frame_limits){
        .version = (uint8_t)conn->peer.version,
        .body_bytes_max = conn->peer.body_bytes_max,
        .data_bytes_max = conn->peer.data_bytes_max,
    };
    conn->state = YB_CONN_OPEN;
    conn->opened = true;
    conn->link = yb_links_peer(&conn->net->links, &conn->address,
                               conn->initiator ? NULL : yb_wire_role_name(conn->peer.role));
    if (conn->lane == YB_WIRE_LANE_BULK && conn->lane_class != YB_CLASS_FIRST_TOKEN) {
        yb_stream_set_patient(conn->stream);
    }
    yb_loop_disarm(loop_of(conn), &conn->timer);
    yb_net_gauge(conn->net, YB_NET_STAT_OPEN, 1);
    trace_handshake(conn, YB_OK);
    arm(conn, &conn->idle_timer, ping_interval(conn));
    conn->events->on_open(conn->owner, conn);
}

static void
log_refusal(struct yb_conn *conn)
{
    char address[YB_ADDRESS_TEXT_BYTES];

    yb_address_format(&conn->address, address);
    if (conn->initiator) {
        yb_log_warn(conn->net->options.log, "net", "connection refused",
                    yb_log_str("peer", address),
                    yb_log_str("reason", yb_hello_reason_name((unsigned)conn->end_reason)),
                    yb_log_str("text", conn->end_text));
    } else {
        yb_log_warn(conn->net->options.log, "net", "peer refused", yb_log_str("peer", address),
                    yb_log_str("reason", yb_hello_reason_name((unsigned)conn->end_reason)),
                    yb_log_str("text", conn->end_text));
    }
}

/* The handshake has failed: remember why, and let the refusal reach the peer. */
static void
become_refused(struct yb_conn *conn)
{
    const struct yb_hello_failure *failure = yb_hello_failure(conn->hello);

    conn->end_status = failure->status;
    conn->end_reason = failure->reason;
    conn->end_by_peer = failure->by_peer;
    (void)snprintf(conn->end_text, sizeof(conn->end_text), "%s", failure->text);
    trace_handshake(conn, failure->status);
    log_refusal(conn);
    conn->state = YB_CONN_LINGER;
    if (failure->by_peer) {
        yb_conn_fail(conn, YB_OK, ""); /* It waits for that, and for nothing else from here. */
        return;
    }
    arm(conn, &conn->timer, LINGER_NS);
}

/* Ask the owner whether a peer that has proved itself is welcome. Returns whether it is, now. */
static bool
admit(struct yb_conn *conn)
{
    enum yb_status status = YB_OK;

    if (conn->initiator || conn->admitted || conn->events->on_admit == NULL) {
        return true;
    }
    if (conn->held) {
        return false;
    }
    status = conn->events->on_admit(conn->owner, conn, yb_hello_result(conn->hello));
    if (status == YB_OK) {
        conn->admitted = true;
        return true;
    }
    if (status == YB_AGAIN) {
        conn->held = true;
    } else {
        yb_conn_fail(conn, status, "the peer is not welcome");
    }
    return false;
}

/* Send what the handshake wants sent, and act on where it stands. */
static void
pump_hello(struct yb_conn *conn)
{
    enum yb_hello_state state = yb_hello_state(conn->hello);
    const uint8_t *bytes;
    size_t length = 0;

    if (state == YB_HELLO_DONE && !admit(conn)) {
        return; /* The welcome stays in the handshake's output. */
    }
    bytes = yb_hello_output(conn->hello, &length);
    if (length > 0) {
        if (yb_conn_out_raw(conn, bytes, length) != YB_OK) {
            yb_conn_fail(conn, YB_NO_MEMORY, "no memory for the handshake");
            return;
        }
        yb_hello_sent(conn->hello, length);
    }
    if (state == YB_HELLO_DONE) {
        become_open(conn);
    } else if (state == YB_HELLO_FAILED && conn->state != YB_CONN_LINGER) {
        become_refused(conn);
    }
}

void
yb_conn_admit(struct yb_conn *conn)
{
    if (conn->state == YB_CONN_HELLO && conn->held) {
        conn->held = false;
        conn->admitted = true;
        pump_hello(conn);
    }
}

/* Start the handshake proper, over TLS if there is one. */
static void
start_hello(struct yb_conn *conn)
{
    struct yb_hello_params params = {
        .lane = (uint8_t)conn->lane,
        .lane_class = (uint8_t)conn->lane_class,
        .stripe = (uint8_t)conn->stripe,
        .generation =
            conn->initiator ? yb_hello_generation(conn->stripe, ++conn->net->generation) : 0,
    };
    const struct yb_net_options *options = &conn->net->options;
    enum yb_status status = YB_OK;

    options->random(options->random_context, params.nonce, sizeof(params.nonce));
    if (conn->tls != NULL) {
        status = yb_tls_binding(conn->tls, params.binding);
    }
    if (status == YB_OK && conn->initiator) {
        status = yb_hello_client_create(options->self, &params, wall_now(conn), &conn->hello);
    } else if (status == YB_OK) {
        status = yb_hello_server_create(options->self, &params, &conn->hello);
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, status, "cannot begin the handshake");
        return;
    }
    conn->state = YB_CONN_HELLO;
    pump_hello(conn);
}

void
yb_conn_refuse(struct yb_conn *conn, enum yb_hello_reason reason, const char *text)
{
    if (conn->state == YB_CONN_HELLO) {
        yb_hello_refuse(conn->hello, reason, text);
        pump_hello(conn);
    } else if (conn->state == YB_CONN_TLS) {
        conn->end_reason = reason;
        yb_conn_fail(conn, YB_REFUSED, text);
    }
}

/* Plain bytes on a port that speaks TLS: say so in words that the peer understands. */
static void
refuse_plain(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    yb_tls_destroy(&conn->tls);
    start_hello(conn);
    if (conn->state != YB_CONN_HELLO) {
        return;
    }
    if (yb_hello_stranger(bytes, length) == YB_HELLO_STRANGER_NONE) {
        yb_hello_refuse(conn->hello, YB_HELLO_REASON_TLS_REQUIRED,
                        "this port speaks TLS only: connect with --tls on");
    } else {
        (void)yb_hello_feed(conn->hello, bytes, length, wall_now(conn));
    }
    pump_hello(conn);
}

/* Take bytes of the handshake or, behind it, of frames. */
static void
take_plain(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    if (conn->state == YB_CONN_HELLO) {
        size_t taken = yb_hello_feed(conn->hello, bytes, length, wall_now(conn));

        bytes += taken;
        length -= taken;
        pump_hello(conn);
        if (length > 0 && conn->state == YB_CONN_HELLO) { /* Held: N2, N3. */
            yb_conn_fail(conn, YB_PROTOCOL, "the peer sent frames before it was welcome");
            return;
        }
    }
    if (length > 0 && (conn->state == YB_CONN_OPEN || conn->state == YB_CONN_DRAINING)) {
        yb_conn_in_bytes(conn, bytes, length);
    }
}

/* Decrypt what there is and take it. */
static void
drain_tls(struct yb_conn *conn)
{
    uint8_t plain[TLS_READ_BYTES];

    if (conn->state == YB_CONN_TLS && yb_tls_state(conn->tls) == YB_OK) {
        start_hello(conn);
    }
    while (conn->state != YB_CONN_CLOSING && conn->state != YB_CONN_LINGER) {
        size_t length = 0;
        enum yb_status status = yb_tls_read(conn->tls, plain, sizeof(plain), &length);

        if (status == YB_AGAIN) {
            return;
        }
        if (status != YB_OK) {
            yb_conn_fail(conn, status == YB_CLOSED ? YB_PEER_LOST : status,
                         yb_tls_error(conn->tls));
            return;
        }
        take_plain(conn, plain, length);
    }
}

static void
take_tls(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    /* 0x16: a TLS handshake record. Only the first byte of all tells. */
    if (!conn->tls_begun && !conn->initiator && bytes[0] != 0x16) {
        refuse_plain(conn, bytes, length);
        return;
    }
    conn->tls_begun = true;
    while (length > 0 && conn->state != YB_CONN_CLOSING && conn->state != YB_CONN_LINGER) {
        size_t taken = yb_tls_feed(conn->tls, bytes, length);

        bytes += taken;
        length -= taken;
        drain_tls(conn);
        if (taken == 0 && conn->state != YB_CONN_CLOSING) {
            yb_conn_fail(conn, YB_PROTOCOL, "TLS takes no more of what the peer sends");
        }
    }
    if (conn->state != YB_CONN_CLOSING) {
        yb_loop_defer(loop_of(conn), &conn->flush_task); /* Records that TLS itself wants sent. */
    }
}

static void
on_timer(struct yb_timer *timer)
{
    struct yb_conn *conn = (struct yb_conn *)((uint8_t *)timer - offsetof(struct yb_conn, timer));

    switch (conn->state) {
    case YB_CONN_CONNECTING:
        yb_conn_fail(conn, YB_TIMED_OUT, "the peer does not accept the connection");
        break;
    case YB_CONN_TLS:
        conn->end_reason = YB_HELLO_REASON_TOO_SLOW;
        yb_conn_fail(conn, YB_TIMED_OUT, "the TLS handshake took too long");
        break;
    case YB_CONN_HELLO:
        if (conn->held) {
            conn->end_reason = YB_HELLO_REASON_TOO_SLOW;
            yb_conn_fail(conn, YB_TIMED_OUT, "an older connection of the peer did not end in time");
            break;
        }
        yb_conn_refuse(conn, YB_HELLO_REASON_TOO_SLOW, "the handshake was not complete in time");
        break;
    case YB_CONN_LINGER: yb_conn_fail(conn, YB_OK, ""); break;
    default: yb_conn_fail(conn, YB_TIMED_OUT, "the peer began a frame and did not go on"); break;
    }
}

/* ---- events of the stream ---------------------------------------------------------------- */

static void
begin(struct yb_conn *conn)
{
    const struct yb_tls_context *context =
        conn->initiator ? conn->net->options.tls_client : conn->net->options.tls_server;

    if (context == NULL) {
        start_hello(conn);
    } else if (yb_tls_create(context, &conn->tls) == YB_OK) {
        conn->state = YB_CONN_TLS;
        yb_loop_defer(loop_of(conn), &conn->flush_task);
    } else {
        yb_conn_fail(conn, YB_NO_MEMORY, "no memory for TLS");
    }
    yb_conn_in_read(conn);
}

static void
on_connected(void *owner, enum yb_status status)
{
    struct yb_conn *conn = owner;

    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, status, yb_status_text(status));
        return;
    }
    yb_net_count(conn->net, YB_NET_STAT_CONNECTED, 1);
    arm(conn, &conn->timer, conn->net->options.limits.handshake_timeout_ns);
    begin(conn);
}

static void
count_received(struct yb_conn *conn, size_t length)
{
    yb_net_count(conn->net, YB_NET_STAT_BYTES_IN, length);
    if (conn->opened) {
        yb_links_received(&conn->net->links, conn->link, YB_LINKS_TCP, length);
    }
}

static void
on_bytes(void *owner, enum yb_status status, const uint8_t *bytes, size_t length)
{
    struct yb_conn *conn = owner;

    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, conn->state == YB_CONN_LINGER ? YB_OK : status,
                     "the peer closed the connection");
        return;
    }
    count_received(conn, length);
    conn->heard_ns = yb_conn_now(conn);
    conn->in.read_full = length == conn->in.asked_bytes;
    if (conn->state != YB_CONN_LINGER) {
        if (conn->tls != NULL) {
            take_tls(conn, bytes, length);
        } else {
            take_plain(conn, bytes, length);
        }
    }
    yb_conn_in_read(conn);
}

static void
on_filled(void *owner, enum yb_status status, size_t length)
{
    struct yb_conn *conn = owner;

    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    if (status == YB_FAULT) {
        yb_conn_in_fault(conn);
        return;
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, status, "the peer closed the connection");
        return;
    }
    count_received(conn, length);
    conn->heard_ns = yb_conn_now(conn);
    yb_conn_in_filled(conn, length);
    yb_conn_in_read(conn);
}

static void
on_written(void *owner, enum yb_status status, size_t length)
{
    struct yb_conn *conn = owner;

    conn->said_ns = yb_conn_now(conn);
    yb_conn_out_written(conn, status, length);
}

static const struct yb_stream_events stream_events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_filled = on_filled,
    .on_written = on_written,
    .on_closed = on_closed,
};

/* ---- the beginning ------------------------------------------------------------------------ */

static struct yb_conn *
conn_new(struct yb_net *net, const struct yb_conn_events *events, void *owner)
{
    struct yb_conn *conn = calloc(1, sizeof(*conn));

    YB_ASSERT_OBJ(net, YB_NET_MAGIC);
    YB_ASSERT(events->on_open != NULL && events->on_closed != NULL);
    if (conn == NULL) {
        return NULL;
    }
    conn->magic = YB_CONN_MAGIC;
    conn->references = 1;
    conn->net = net;
    conn->events = events;
    conn->owner = owner;
    conn->began_ns = yb_loop_now(net->options.loop);
    conn->heard_ns = conn->began_ns;
    conn->said_ns = conn->began_ns;
    yb_timer_init(&conn->timer, on_timer);
    yb_timer_init(&conn->idle_timer, on_idle_timer);
    yb_timer_init(&conn->write_timer, on_write_timer);
    yb_timer_init(&conn->drain_timer, on_drain_timer);
    conn->drain_task.run = run_drain;
    yb_conn_out_init(conn);
    return conn;
}

static void
link_conn(struct yb_conn *conn)
{
    struct yb_net *net = conn->net;

    conn->next = net->conns;
    if (net->conns != NULL) {
        net->conns->previous = conn;
    }
    net->conns = conn;
    net->conn_count++;
    conn->number = net->conns_ever++;
}

enum yb_status
yb_conn_connect(struct yb_net *net, const struct yb_conn_target *target,
                const struct yb_conn_events *events, void *owner, struct yb_conn **conn_out)
{
    struct yb_conn *conn = conn_new(net, events, owner);
    enum yb_status status;

    if (conn == NULL) {
        return YB_NO_MEMORY;
    }
    conn->initiator = true;
    conn->address = target->address;
    conn->lane = target->lane;
    conn->lane_class = target->lane_class;
    conn->stripe = target->stripe;
    conn->state = YB_CONN_CONNECTING;
    status = yb_io_connect(yb_loop_io(net->options.loop), &target->address, &net->options.stream,
                           &stream_events, conn, &conn->stream);
    if (status != YB_OK) {
        free(conn);
        return status;
    }
    link_conn(conn);
    arm(conn, &conn->timer, net->options.limits.connect_timeout_ns);
    *conn_out = conn;
    return YB_OK;
}

enum yb_status
yb_conn_accept(struct yb_net *net, const struct yb_accepted *accepted,
               const struct yb_conn_events *events, void *owner, struct yb_conn **conn_out)
{
    struct yb_conn *conn = conn_new(net, events, owner);
    enum yb_status status;

    if (conn == NULL) {
        return YB_NO_MEMORY;
    }
    conn->address = accepted->peer;
    conn->state = YB_CONN_HELLO;
    status = yb_io_adopt(yb_loop_io(net->options.loop), accepted, &net->options.stream,
                         &stream_events, conn, &conn->stream);
    if (status != YB_OK) {
        free(conn);
        return status;
    }
    link_conn(conn);
    yb_net_count(net, YB_NET_STAT_ACCEPTED, 1);
    arm(conn, &conn->timer, net->options.limits.handshake_timeout_ns);
    *conn_out = conn;
    begin(conn);
    return YB_OK;
}

bool
yb_conn_is_open(const struct yb_conn *conn)
{
    return conn->state == YB_CONN_OPEN;
}

const struct yb_hello_result *
yb_conn_peer(const struct yb_conn *conn)
{
    YB_ASSERT(conn->opened);
    return &conn->peer;
}

const struct yb_address *
yb_conn_address(const struct yb_conn *conn)
{
    return &conn->address;
}

bool
yb_conn_is_initiator(const struct yb_conn *conn)
{
    return conn->initiator;
}
