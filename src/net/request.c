/* SPDX-License-Identifier: Apache-2.0
 *
 * The answering half of a connection.
 *
 * Invariants
 *   Q1  Every request that was counted in gets exactly one reply, which gives its
 *       credit back once it is handed over (O3), unless the connection ends first.
 *   Q2  A method that mutates is shown a request (`place` or `handle`) only after
 *       replay.h said NEW, and its answer is remembered even if nobody is left to
 *       hear it.
 *   Q3  A request keeps its connection's struct alive until it is given back.
 */
#include <string.h>

#include "base/check.h"
#include "net/conn_internal.h"

static struct yb_request *
request_of_out(struct yb_out *out)
{
    return (struct yb_request *)((uint8_t *)out - offsetof(struct yb_request, out));
}

/* ---- replies --------------------------------------------------------------------------- */

/* Give the record back; the last thing that happens to a request. */
static void
give_back(struct yb_request *request)
{
    struct yb_conn *conn = request->conn;
    struct yb_net *net = conn->net;

    bool landing = request->landing;

    if (request->released != NULL) {
        request->released(request);
    }
    yb_net_request_give(net, request);
    if (landing && --conn->landing == 0 && conn->closed_told) {
        conn->events->on_landed(conn->owner);
    }
    yb_conn_unref(conn);
}

static void
on_reply_sent(struct yb_out *out, enum yb_status status)
{
    request_of_out(out)->faulted = status == YB_FAULT;
    give_back(request_of_out(out));
}

/* Queue the reply to a frame with the given header. Returns the status of queueing. */
static enum yb_status
send_reply(struct yb_conn *conn, const struct yb_wire_frame_header *reply, const void *body,
           struct yb_out *out)
{
    enum yb_status status = yb_conn_out_frame(conn, reply, body, out);

    if (status != YB_OK) {
        yb_conn_fail(conn, status, "no room for a reply");
        return status;
    }
    return YB_OK;
}

/* Answer a request that has no record: what net itself decides. */
static void
reply_at_once(struct yb_conn *conn, const struct yb_wire_frame_header *header, uint64_t cost,
              enum yb_status status, const void *body, uint32_t body_bytes)
{
    struct yb_wire_frame_header reply = {
        .class = header->class,
        .type = header->type,
        .flags = YB_WIRE_FRAME_FLAG_REPLY,
        .status = (int32_t)status,
        .body_bytes = body_bytes,
        .credit_requests = 1,
        .credit_bytes = cost,
        .request_id = header->request_id,
        .trace_id = header->trace_id,
    };

    yb_net_observe_class(conn->net, YB_NET_STAT_SERVE_TIME, YB_NET_STAT_SERVED,
                         (enum yb_class)header->class, status, 0);
    (void)send_reply(conn, &reply, body, NULL);
}

static struct yb_replay_key
replay_key(const struct yb_request *request)
{
    struct yb_replay_key key = {
        .identity = request->peer->identity,
        .incarnation = request->peer->incarnation,
        .line = (uint64_t)(request->peer->generation >> 48) << 32 |
                (uint64_t)request->peer->stripe << 24 | (uint64_t)request->peer->role << 16 |
                (uint64_t)request->peer->lane << 8 | request->peer->lane_class,
        .slot = request->operation_slot,
    };

    return key;
}

/* Remember the answer of a mutation, or forget that it was asked (Q2). */
static void
remember(struct yb_request *request, enum yb_status status, const void *body, uint32_t body_bytes)
{
    struct yb_replay *replay = request->conn->net->options.replay;
    struct yb_replay_key key = replay_key(request);
    const struct yb_replay_answer answer = {
        .status = status,
        .body_bytes = body_bytes,
        .body = body,
    };

    if (!request->remembered) {
        return;
    }
    request->remembered = false;
    if (status == YB_AGAIN) {
        yb_replay_forget(replay, &key, request->operation);
        return;
    }
    YB_ASSERT(body_bytes <= YB_REPLY_REMEMBERED_MAX);
    yb_replay_finish(replay, &key, request->operation, yb_conn_now(request->conn), &answer);
}

static void
trace_request(struct yb_request *request, enum yb_status status, uint64_t now_ns, uint64_t bytes)
{
    const struct yb_clock *clock = yb_loop_clock(request->conn->net->options.loop);
    struct yb_span span = {
        .trace = request->trace_id,
        .peer = request->peer->identity,
        .span = request->span_id,
        .parent = request->parent_span,
        .start_ns = request->began_ns,
        .end_ns = now_ns,
        .wall_ns = yb_clock_wall(clock) - (now_ns - request->began_ns),
        .bytes = bytes,
        .number = request->method->type,
        .outcome = (int32_t)status,
        .kind = YB_SPAN_KIND_SERVE,
        .path = YB_SPAN_PATH_TCP,
        .work_class = (uint8_t)request->class,
    };

    yb_net_span(request->conn->net, &span);
}

void
yb_request_reply(struct yb_request *request, enum yb_status status, const void *body,
                 uint32_t body_bytes, const struct iovec *data, uint32_t data_count)
{
    struct yb_conn *conn = request->conn;
    uint64_t now_ns = yb_conn_now(conn);
    uint64_t data_bytes = yb_iov_bytes(data, data_count);
    struct yb_wire_frame_header reply = {
        .class = (uint8_t)request->class,
        .type = request->method->type,
        .flags = request->undecided
                     ? (uint16_t)(YB_WIRE_FRAME_FLAG_REPLY | YB_WIRE_FRAME_FLAG_UNDECIDED)
                     : YB_WIRE_FRAME_FLAG_REPLY,
        .status = (int32_t)status,
        .body_bytes = body_bytes,
        .data_bytes = data_bytes,
        .credit_requests = 1,
        .credit_bytes = request->cost,
        .request_id = request->request_id,
        .trace_id = request->trace_id,
    };

    YB_ASSERT(request->handled && !request->replied);
    request->replied = true;
    remember(request, status, body, body_bytes);
    yb_net_observe_class(conn->net, YB_NET_STAT_SERVE_TIME, YB_NET_STAT_SERVED, request->class,
                         status, now_ns - request->began_ns);
    if (!yb_id_is_none(request->trace_id)) {
        trace_request(request, status, now_ns,
                      request->body_bytes + request->data_bytes + body_bytes + data_bytes);
    }
    if (conn->state != YB_CONN_OPEN && conn->state != YB_CONN_DRAINING) {
        give_back(request);
        return;
    }
    if (body_bytes > conn->limits_out.body_bytes_max ||
        data_bytes > conn->limits_out.data_bytes_max) {
        reply.status = YB_TOO_LARGE; /* The peer takes no such reply: it hears so, and lives on. */
        reply.flags = YB_WIRE_FRAME_FLAG_REPLY;
        reply.body_bytes = 0;
        reply.data_bytes = 0;
        data_bytes = 0;
    }
    if (data_bytes == 0) {
        (void)send_reply(conn, &reply, body, NULL);
        give_back(request);
        return;
    }
    request->out.data = data;
    request->out.data_count = data_count;
    request->out.sent = on_reply_sent;
    if (send_reply(conn, &reply, body, &request->out) != YB_OK) {
        give_back(request);
    }
}

/* ---- requests -------------------------------------------------------------------------- */

/* What a request costs of the byte credit that we granted; see cost_of() in call.c. */
static uint64_t
cost_of(const struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    uint64_t cost = YB_WIRE_FRAME_HEADER_BYTES + header->body_bytes + header->data_bytes;
    uint64_t credit = conn->net->options.self->credit_bytes;

    return cost < credit ? cost : credit;
}

/* Count the request in. Returns false if the peer exceeds what it was granted (N1). */
static bool
charge(struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    const struct yb_hello_self *self = conn->net->options.self;
    uint64_t cost = cost_of(conn, header);
    bool is_ping = header->type == YB_WIRE_TYPE_PING;

    /* A ping may go beyond the credit, or silence could not be told from a lost connection. */
    if (conn->requests_in >= self->credit_requests + (is_ping ? 1 : 0) ||
        conn->bytes_in + cost > self->credit_bytes + (is_ping ? cost : 0)) {
        yb_conn_fail(conn, YB_PROTOCOL, "the peer sent more than its credit");
        return false;
    }
    conn->requests_in++;
    conn->bytes_in += cost;
    yb_conn_note_work(conn);
    return true;
}

void
yb_request_credit(struct yb_conn *conn, uint32_t requests, uint64_t bytes)
{
    YB_ASSERT(requests <= conn->requests_in && bytes <= conn->bytes_in);
    conn->requests_in -= requests;
    conn->bytes_in -= bytes;
    yb_conn_note_work(conn);
}

/* Judge a request by its header. OK: *method_out may run. */
static enum yb_status
admit(struct yb_conn *conn, const struct yb_wire_frame_header *header,
      const struct yb_method **method_out)
{
    const struct yb_method *method =
        header->type < YB_METHOD_TYPES ? conn->net->methods[header->type] : NULL;

    if (method == NULL) {
        return YB_UNSUPPORTED;
    }
    if ((method->roles & YB_ROLE_BIT(conn->peer.role)) == 0) {
        return YB_DENIED;
    }
    if (header->body_bytes > method->body_bytes_max) {
        return YB_TOO_LARGE;
    }
    if (header->data_bytes > 0 && method->place == NULL) {
        return YB_INVALID;
    }
    if (method->mutates != (header->operation != 0)) {
        return YB_INVALID;
    }
    if (method->mutates && conn->net->options.replay == NULL) {
        return YB_UNSUPPORTED;
    }
    *method_out = method;
    return YB_OK;
}

/* Make the record of an admitted request. NULL: too many are in service. */
static struct yb_request *
open_request(struct yb_conn *conn, const struct yb_wire_frame_header *header, uint64_t cost,
             const struct yb_method *method)
{
    struct yb_request *request = yb_net_request_take(conn->net);
    uint64_t now_ns = yb_conn_now(conn);

    if (request == NULL) {
        return NULL;
    }
    memset(request, 0, sizeof(*request));
    request->method = method;
    request->peer = &conn->peer;
    request->class = (enum yb_class)header->class;
    request->trace_id = header->trace_id;
    request->parent_span = header->parent_span;
    request->span_id = yb_id_is_none(header->trace_id) ? 0 : yb_net_new_span(conn->net);
    request->operation = header->operation;
    request->operation_slot = header->slot;
    request->deadline_ns = header->deadline_us > (YB_NEVER - now_ns) / YB_NS_PER_US
                               ? YB_NEVER
                               : now_ns + header->deadline_us * YB_NS_PER_US;
    request->body_bytes = header->body_bytes;
    request->data_bytes = header->data_bytes;
    request->request_id = header->request_id;
    request->cost = cost;
    request->began_ns = now_ns;
    request->conn = conn;
    conn->references++; /* Q3 */
    return request;
}

/* Return whether a mutation is to be run now; otherwise it was answered. */
static bool
first_time(struct yb_request *request)
{
    struct yb_net *net = request->conn->net;
    struct yb_replay_key key = replay_key(request);
    struct yb_replay_result result;
    uint64_t now_ns = yb_conn_now(request->conn);
    enum yb_replay_verdict verdict;

    request->handled = true; /* It may be answered here. */
    verdict =
        yb_replay_begin(net->options.replay, &key, request->operation, now_ns,
                        yb_deadline_after(request->deadline_ns, YB_REPLAY_MARGIN_NS), &result);
    if (verdict == YB_REPLAY_NEW) {
        request->remembered = true;
        return true;
    }
    if (verdict == YB_REPLAY_REMEMBERED) {
        yb_net_count(net, YB_NET_STAT_DUPLICATES, 1);
        yb_request_reply(request, result.status, result.body, result.body_bytes, NULL, 0);
        return false;
    }
    /* RUNNING: the first attempt's answer is still to come. FULL: nothing was started. Either
     * way the caller asks again, but only FULL lets it conclude that nothing happened.
     * SUPERSEDED: its caller has gone on, so this is a late duplicate that nobody waits for. */
    request->undecided = verdict != YB_REPLAY_FULL;
    yb_request_reply(request, verdict == YB_REPLAY_SUPERSEDED ? YB_STALE : YB_AGAIN, NULL, 0, NULL,
                     0);
    return false;
}

/* Everything of the request is here: run its method. */
static void
run(struct yb_conn *conn, struct yb_request *request, const uint8_t *body)
{
    request->body = body;
    request->handled = true;
    request->landing = request->method->lands;
    conn->landing += request->landing;
    request->method->handle(conn->net->method_owners[request->method->type], request);
}

/* A frame of the connection's own that wants no answer. Returns false if it is none. */
static bool
take_notice(struct yb_conn *conn, const struct yb_wire_frame_header *header, const uint8_t *body)
{
    struct yb_wire_goaway goaway;

    switch (header->type) {
    case YB_WIRE_TYPE_VOID: return true;
    case YB_WIRE_TYPE_CREDIT:
        if (header->credit_requests > UINT32_MAX - conn->peer.credit_requests ||
            header->credit_bytes > UINT64_MAX - conn->peer.credit_bytes) {
            yb_conn_fail(conn, YB_PROTOCOL, "the peer grants more credit than there is");
            return true;
        }
        conn->peer.credit_requests += header->credit_requests;
        conn->peer.credit_bytes += header->credit_bytes;
        yb_call_tell_room(conn);
        return true;
    case YB_WIRE_TYPE_GOAWAY:
        if (header->data_bytes != 0 || body == NULL ||
            yb_wire_goaway_decode(body, header->body_bytes, &goaway, NULL) != YB_OK) {
            yb_conn_fail(conn, YB_PROTOCOL, "a goaway frame that breaks its table");
            return true;
        }
        conn->goaway_heard = true;
        if (conn->events->on_goaway != NULL) {
            conn->events->on_goaway(conn->owner, conn);
        }
        yb_conn_drain(conn);
        yb_conn_check_drained(conn);
        return true;
    default: return false;
    }
}

bool
yb_request_on_header(struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    const struct yb_method *method = NULL;

    switch (header->type) {
    case YB_WIRE_TYPE_VOID:
    case YB_WIRE_TYPE_CREDIT: return false;
    case YB_WIRE_TYPE_GOAWAY: return header->body_bytes <= YB_WIRE_GOAWAY_BYTES_MAX;
    default: return charge(conn, header) && admit(conn, header, &method) == YB_OK;
    }
}

void
yb_request_on_frame(struct yb_conn *conn, const struct yb_wire_frame_header *header,
                    const uint8_t *body)
{
    const struct yb_method *method = NULL;
    struct yb_request *request = NULL;
    const struct iovec *sink = NULL;
    uint32_t sink_count = 0;
    uint64_t cost = cost_of(conn, header);
    enum yb_status status;

    if (take_notice(conn, header, body)) {
        return;
    }
    status = admit(conn, header, &method);
    if (status == YB_OK) {
        request = open_request(conn, header, cost, method);
        status = request == NULL ? YB_AGAIN : YB_OK;
    }
    if (status != YB_OK) {
        reply_at_once(conn, header, cost, status, NULL, 0);
        return;
    }
    request->body = body; /* With data: in the connection's own buffer until that has come. */
    if (request->operation != 0 && !first_time(request)) {
        return; /* A duplicate's data must not land again, so this is before `place`. */
    }
    if (header->data_bytes == 0) {
        run(conn, request, body);
        return;
    }
    status = method->place(conn->net->method_owners[method->type], request, &sink, &sink_count);
    if (status != YB_OK) {
        request->handled = true;
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    YB_ASSERT(yb_iov_bytes(sink, sink_count) == header->data_bytes);
    conn->in.request = request;
    conn->in.sink = sink;
    conn->in.sink_count = sink_count;
}

void
yb_request_on_data(struct yb_conn *conn, struct yb_request *request)
{
    run(conn, request, request->body);
}

void
yb_request_on_lost(struct yb_conn *conn, struct yb_request *request)
{
    if (request->method->abort != NULL) {
        request->method->abort(conn->net->method_owners[request->method->type], request);
    }
    remember(request, YB_AGAIN, NULL, 0); /* Its method never ran. */
    give_back(request);
}

struct yb_net *
yb_request_net(const struct yb_request *request)
{
    return request->conn->net;
}

bool
yb_request_lost(const struct yb_request *request)
{
    return request->conn->state == YB_CONN_CLOSING;
}

/* ---- what every port answers ----------------------------------------------------------- */

static void
handle_ping(void *service, struct yb_request *request)
{
    struct yb_conn *conn = request->conn;
    const struct yb_clock *clock = yb_loop_clock(conn->net->options.loop);
    struct yb_wire_ping ping;
    uint8_t reply[YB_WIRE_PING_BYTES];
    size_t length = 0;

    (void)service;
    if (yb_wire_ping_decode(request->body, request->body_bytes, &ping, NULL) != YB_OK) {
        yb_request_reply(request, YB_INVALID, NULL, 0, NULL, 0);
        return;
    }
    ping.wall_received_ns = yb_clock_wall(clock);
    ping.wall_replied_ns = ping.wall_received_ns;
    YB_ASSERT(yb_wire_ping_encode(&ping, reply, sizeof(reply), &length) == YB_OK);
    yb_request_reply(request, YB_OK, reply, (uint32_t)length, NULL, 0);
}

static void
handle_echo(void *service, struct yb_request *request)
{
    (void)service;
    yb_request_reply(request, YB_OK, request->body, request->body_bytes, NULL, 0);
}

static const struct yb_method own_methods[] = {
    {
        .type = YB_WIRE_TYPE_PING,
        .name = "ping",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = YB_WIRE_PING_BYTES_MAX,
        .handle = handle_ping,
    },
    {
        .type = YB_WIRE_TYPE_ECHO,
        .name = "echo",
        .roles = YB_ROLE_ANY,
        .body_bytes_max = UINT32_MAX,
        .handle = handle_echo,
    },
};

const struct yb_service yb_net_service = {
    .methods = own_methods,
    .method_count = sizeof(own_methods) / sizeof(own_methods[0]),
};
