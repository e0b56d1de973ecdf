/* SPDX-License-Identifier: Apache-2.0
 *
 * The asking half of a connection.
 *
 * Unanswered calls sit in a table of slots; a request id is a slot's number
 * and a count that never repeats, so that a reply finds its call at once and a
 * late one finds that its call has gone.
 *
 * Invariants
 *   K1  A call in the table is in SENDING, SENT, REPLYING or ANSWERED, and leaves it
 *       exactly once, by finish().
 *   K2  A call is finished early only when neither the kernel (SENDING, begun, with
 *       data; ANSWERED) nor the receiver (REPLYING) may touch its memory; otherwise the
 *       connection is aborted and the call finished when it is gone (C2 of call.h).
 *   K3  Credit comes back only by replies, also by those whose call has gone.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn_internal.h"

#define SLOT_NONE   UINT32_MAX
#define SLOT_BITS   16
#define SLOTS_FIRST 8u
#define SLOTS_MAX   (1u << SLOT_BITS)

_Static_assert(SLOTS_MAX == 65536, "the largest credit that the configuration allows");

static struct yb_call *
call_of_out(struct yb_out *out)
{
    return (struct yb_call *)((uint8_t *)out - offsetof(struct yb_call, out));
}

static struct yb_call *
call_of_timer(struct yb_timer *timer)
{
    return (struct yb_call *)((uint8_t *)timer - offsetof(struct yb_call, timer));
}

/* ---- the table ------------------------------------------------------------------------- */

static bool
grow_slots(struct yb_conn *conn)
{
    uint32_t count = conn->slot_count == 0 ? SLOTS_FIRST : conn->slot_count * 2;
    struct yb_call_slot *slots;

    if (conn->slot_count >= SLOTS_MAX) {
        return false;
    }
    slots = realloc(conn->slots, count * sizeof(*slots));
    if (slots == NULL) {
        return false;
    }
    for (uint32_t i = conn->slot_count; i < count; i++) {
        slots[i].call = NULL;
        slots[i].request_id = 0;
        slots[i].next_free = i + 1 < count ? i + 1 : SLOT_NONE;
    }
    conn->slot_free = conn->slot_count;
    conn->slots = slots;
    conn->slot_count = count;
    return true;
}

static bool
take_slot(struct yb_conn *conn, struct yb_call *call)
{
    struct yb_call_slot *slot;

    if ((conn->slot_count == 0 || conn->slot_free == SLOT_NONE) && !grow_slots(conn)) {
        return false;
    }
    call->slot = conn->slot_free;
    slot = &conn->slots[call->slot];
    YB_ASSERT(slot->call == NULL);
    conn->slot_free = slot->next_free;
    slot->call = call;
    slot->request_id = (++conn->next_request << SLOT_BITS) | call->slot;
    conn->calls_live++;
    yb_conn_note_work(conn);
    return true;
}

static void
give_slot(struct yb_conn *conn, struct yb_call *call)
{
    struct yb_call_slot *slot = &conn->slots[call->slot];

    YB_ASSERT(slot->call == call);
    slot->call = NULL;
    slot->next_free = conn->slot_free;
    conn->slot_free = call->slot;
    conn->calls_live--;
    yb_conn_note_work(conn);
}

/* ---- the end of a call ----------------------------------------------------------------- */

static void
trace_call(struct yb_conn *conn, const struct yb_call *call, uint64_t now_ns)
{
    const struct yb_clock *clock = yb_loop_clock(conn->net->options.loop);
    struct yb_span span = {
        .trace = call->trace_id,
        .peer = conn->peer.identity,
        .span = call->span_id,
        .parent = call->parent_span,
        .start_ns = call->began_ns,
        .end_ns = now_ns,
        .wall_ns = yb_clock_wall(clock) - call->took_ns,
        .bytes = call->body_bytes + yb_iov_bytes(call->data, call->data_count) +
                 call->reply_body_bytes + call->reply_data_bytes,
        .number = call->type,
        .outcome = (int32_t)call->status,
        .kind = YB_SPAN_KIND_CALL,
        .path = YB_SPAN_PATH_TCP,
        .work_class = (uint8_t)call->class,
    };

    yb_net_span(conn->net, &span);
}

/* Take the call out of the table and give it back to whoever submitted it (K1). */
static void
finish(struct yb_call *call)
{
    struct yb_conn *conn = call->conn;
    uint64_t now_ns = yb_conn_now(conn);

    yb_loop_disarm(conn->net->options.loop, &call->timer);
    give_slot(conn, call);
    call->state = YB_CALL_IDLE;
    call->conn = NULL;
    call->took_ns = now_ns - call->began_ns;
    if (!yb_id_is_none(call->trace_id)) {
        trace_call(conn, call, now_ns);
    }
    if (call->peer == NULL) {
        yb_net_observe_class(conn->net, YB_NET_STAT_CALL_TIME, YB_NET_STAT_CALLS, call->class,
                             call->status, call->took_ns);
    }
    call->finished(call);
    yb_conn_check_drained(conn);
}

/* The end of a call that was submitted to the connection itself. */
static void
finish_direct(struct yb_call *call)
{
    call->done(call);
}

static void
finish_unanswered(struct yb_call *call, enum yb_status why)
{
    call->answered = false;
    call->status = call->sent && call->operation != 0 ? YB_IN_DOUBT : why;
    finish(call);
}

/* End a call for a reason of this side: its deadline, or its caller. */
static void
give_up(struct yb_call *call, enum yb_status why)
{
    struct yb_conn *conn = call->conn;

    switch (call->state) {
    case YB_CALL_SENDING:
        if (yb_conn_out_withdraw(conn, &call->out)) {
            call->outgoing = false;
            /* Never on the wire, so no reply will bring its credit back. */
            conn->calls_out--;
            conn->bytes_out -= call->cost;
            finish_unanswered(call, why);
            return;
        }
        if (call->data_count == 0) {
            yb_conn_out_forget(conn, &call->out); /* Its bytes are copies. */
            call->outgoing = false;
            call->sent = true;
            finish_unanswered(call, why);
            return;
        }
        break;
    case YB_CALL_SENT: finish_unanswered(call, why); return;
    case YB_CALL_REPLYING:
    case YB_CALL_ANSWERED: break;
    default: YB_ASSERT(false);
    }
    call->give_up = why; /* K2 */
    yb_conn_fail(conn, why, "a call's deadline passed in the middle of its data");
}

static void
on_timer(struct yb_timer *timer)
{
    struct yb_call *call = call_of_timer(timer);

    give_up(call, call->give_up == YB_CANCELLED ? YB_CANCELLED : YB_TIMED_OUT);
}

/* The whole answer is there: that is the end, unless the kernel may still read the data (K2). */
static void
finish_answered(struct yb_call *call)
{
    if (call->outgoing && call->data_count > 0) {
        call->state = YB_CALL_ANSWERED;
        return;
    }
    if (call->outgoing) {
        yb_conn_out_forget(call->conn, &call->out);
        call->outgoing = false;
    }
    finish(call);
}

/* The kernel has all of a call's frame, or the connection is gone. */
static void
on_frame_sent(struct yb_out *out, enum yb_status status)
{
    struct yb_call *call = call_of_out(out);

    YB_ASSERT(call->outgoing);
    call->outgoing = false;
    if (status != YB_OK) {
        call->sent = out->started;
        if (status == YB_FAULT && call->give_up == YB_OK) {
            call->give_up = YB_FAULT; /* It would meet the same memory again. */
        }
        return; /* yb_call_fail_all() ends it. */
    }
    call->sent = true;
    if (call->state == YB_CALL_ANSWERED) {
        finish(call);
    } else if (call->state == YB_CALL_SENDING) {
        call->state = YB_CALL_SENT;
    }
}

/* ---- submitting ------------------------------------------------------------------------ */

static uint64_t
remaining_us(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == YB_NEVER) {
        return YB_WIRE_DEADLINE_NEVER;
    }
    /* Rounded up: 0 would mean that there is no deadline in a reply. */
    return (deadline_ns - now_ns + YB_NS_PER_US - 1) / YB_NS_PER_US;
}

/* What a request costs of the peer's byte credit. One that is larger than the whole credit
 * takes all of it: it goes alone, but it goes. */
static uint64_t
cost_of(const struct yb_conn *conn, const struct yb_call *call, uint64_t data_bytes)
{
    uint64_t cost = YB_WIRE_FRAME_HEADER_BYTES + call->body_bytes + data_bytes;

    return cost < conn->cost_max ? cost : conn->cost_max;
}

static bool
has_room(const struct yb_conn *conn, uint64_t cost)
{
    uint64_t pending = yb_conn_out_pending(conn);

    return conn->calls_out < conn->peer.credit_requests && conn->calls_live < SLOTS_MAX &&
           conn->bytes_out + cost <= conn->peer.credit_bytes &&
           pending < conn->net->options.limits.committed_bytes_max;
}

/* A ping may go beyond the credit (charge() in request.c): one, until it was answered, even if we
 * have given up waiting for it. */
static bool
has_room_for_ping(const struct yb_conn *conn)
{
    return conn->calls_out <= conn->peer.credit_requests &&
           conn->bytes_out <= conn->peer.credit_bytes;
}

static enum yb_status
send_call(struct yb_conn *conn, struct yb_call *call, uint64_t data_bytes, uint64_t now_ns)
{
    struct yb_wire_frame_header header = {
        .class = (uint8_t)call->class,
        .type = call->type,
        .body_bytes = call->body_bytes,
        .data_bytes = data_bytes,
        .request_id = conn->slots[call->slot].request_id,
        .deadline_us = remaining_us(call->deadline_ns, now_ns),
        .trace_id = call->trace_id,
        .parent_span = call->span_id,
        .operation = call->operation,
        .slot = call->operation_slot,
    };

    call->out.data = call->data;
    call->out.data_count = call->data_count;
    call->out.sent = on_frame_sent;
    return yb_conn_out_frame(conn, &header, call->body, &call->out);
}

enum yb_status
yb_conn_call(struct yb_conn *conn, struct yb_call *call)
{
    uint64_t now_ns = yb_conn_now(conn);
    uint64_t data_bytes = yb_iov_bytes(call->data, call->data_count);
    bool is_ping = call == &conn->ping;
    enum yb_status status;
    uint64_t cost;

    YB_ASSERT_OBJ(conn, YB_CONN_MAGIC);
    YB_ASSERT(call->done != NULL && call->state != YB_CALL_SENDING);
    if (conn->state != YB_CONN_OPEN && !(is_ping && conn->state == YB_CONN_DRAINING)) {
        return YB_CLOSED;
    }
    if (call->deadline_ns <= now_ns) {
        return YB_TIMED_OUT;
    }
    if (call->body_bytes > conn->peer.body_bytes_max || data_bytes > conn->peer.data_bytes_max) {
        return YB_TOO_LARGE;
    }
    cost = cost_of(conn, call, data_bytes);
    if (is_ping ? !has_room_for_ping(conn) : !has_room(conn, cost)) {
        conn->out.room_wanted = true;
        return YB_AGAIN;
    }
    if (!take_slot(conn, call)) {
        return YB_NO_MEMORY;
    }
    if (!yb_id_is_none(call->trace_id) && call->span_id == 0) {
        call->span_id = yb_net_new_span(conn->net);
    }
    status = send_call(conn, call, data_bytes, now_ns);
    if (status != YB_OK) {
        give_slot(conn, call);
        return status;
    }
    conn->calls_out++;
    conn->bytes_out += cost;
    call->cost = cost;
    call->conn = conn;
    call->state = YB_CALL_SENDING;
    call->outgoing = true;
    call->sent = false;
    call->answered = false;
    call->undecided = false;
    call->give_up = YB_OK;
    call->reply_body_bytes = 0;
    call->reply_data_bytes = 0;
    if (call->peer == NULL) {
        call->finished = finish_direct;
        call->began_ns = now_ns;
    }
    yb_timer_init(&call->timer, on_timer);
    yb_loop_arm(conn->net->options.loop, &call->timer, call->deadline_ns);
    return YB_OK;
}

void
yb_conn_cancel(struct yb_conn *conn, struct yb_call *call)
{
    YB_ASSERT(call->conn == conn && call->state != YB_CALL_IDLE);
    if (call->give_up == YB_OK) {
        call->give_up = YB_CANCELLED;
        yb_loop_arm(conn->net->options.loop, &call->timer, yb_conn_now(conn)); /* C1 */
    }
}

/* ---- replies --------------------------------------------------------------------------- */

/* Take back the credit that a reply returns. Returns false if it returns what was not lent. */
static bool
take_credit(struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    if (header->credit_requests > conn->calls_out || header->credit_bytes > conn->bytes_out) {
        yb_conn_fail(conn, YB_PROTOCOL, "the peer returned more credit than was used");
        return false;
    }
    conn->calls_out -= header->credit_requests;
    conn->bytes_out -= header->credit_bytes;
    return true;
}

void
yb_call_tell_room(struct yb_conn *conn)
{
    if (conn->out.room_wanted && conn->state == YB_CONN_OPEN && conn->events->on_room != NULL) {
        conn->out.room_wanted = false;
        conn->events->on_room(conn->owner, conn);
    }
}

static struct yb_call *
find_call(struct yb_conn *conn, uint64_t request_id)
{
    uint32_t index = (uint32_t)(request_id & (SLOTS_MAX - 1));

    if (index >= conn->slot_count || conn->slots[index].request_id != request_id) {
        return NULL;
    }
    return conn->slots[index].call;
}

bool
yb_call_on_header(struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    const struct yb_call *call = find_call(conn, header->request_id);

    return call != NULL && header->body_bytes <= call->reply_body_room;
}

/* Copy the body and find room for the data; anything but OK says why there is none (C3). */
static enum yb_status
take_reply(struct yb_call *call, const struct yb_wire_frame_header *header, const uint8_t *body)
{
    enum yb_status status = YB_OK;

    if (header->body_bytes > call->reply_body_room ||
        (call->place == NULL &&
         header->data_bytes > yb_iov_bytes(call->reply_data, call->reply_data_count))) {
        return YB_TOO_SMALL;
    }
    if (header->body_bytes > 0) {
        memcpy(call->reply_body, body, header->body_bytes);
    }
    if (call->place != NULL && header->data_bytes > 0) {
        status = call->place(call);
        if (status == YB_OK &&
            header->data_bytes > yb_iov_bytes(call->reply_data, call->reply_data_count)) {
            status = YB_TOO_SMALL;
        }
    }
    return status;
}

void
yb_call_on_reply(struct yb_conn *conn, const struct yb_wire_frame_header *header,
                 const uint8_t *body)
{
    struct yb_call *call = find_call(conn, header->request_id);
    enum yb_status refused;

    if (!take_credit(conn, header)) {
        return;
    }
    if (call == NULL || (body == NULL && header->body_bytes <= call->reply_body_room)) {
        /* Gone; or not yet there when the header came, so that this cannot be its reply. */
        yb_net_count(conn->net, YB_NET_STAT_LATE_REPLIES, 1);
        yb_call_tell_room(conn);
        return;
    }
    if (call->state != YB_CALL_SENT && !(call->state == YB_CALL_SENDING && call->out.started)) {
        yb_conn_fail(conn, YB_PROTOCOL, "a reply to a request that was not sent");
        return;
    }
    call->sent = true;
    call->answered = true;
    call->undecided = (header->flags & YB_WIRE_FRAME_FLAG_UNDECIDED) != 0;
    call->status = (enum yb_status)header->status;
    call->reply_body_bytes = header->body_bytes;
    call->reply_data_bytes = header->data_bytes;
    refused = take_reply(call, header, body);
    if (refused != YB_OK) {
        call->status = refused; /* The data is discarded. */
        finish_answered(call);
        yb_call_tell_room(conn);
        return;
    }
    if (header->data_bytes > 0) {
        call->state = YB_CALL_REPLYING;
        conn->in.call = call;
        conn->in.sink = call->reply_data;
        conn->in.sink_count = call->reply_data_count;
        return;
    }
    finish_answered(call);
    yb_call_tell_room(conn);
}

void
yb_call_on_reply_data(struct yb_conn *conn, struct yb_call *call)
{
    YB_ASSERT(call->conn == conn && call->state == YB_CALL_REPLYING);
    finish_answered(call);
    yb_call_tell_room(conn);
}

/* ---- the end of the connection ---------------------------------------------------------- */

void
yb_call_fail_all(struct yb_conn *conn)
{
    for (uint32_t i = 0; i < conn->slot_count; i++) {
        struct yb_call *call = conn->slots[i].call;

        if (call != NULL && call->state == YB_CALL_ANSWERED) {
            finish(call); /* Its answer is the peer's word, whatever became of the connection. */
        } else if (call != NULL) {
            enum yb_status why = call->give_up != YB_OK ? call->give_up : YB_PEER_LOST;

            finish_unanswered(call, why);
        }
    }
    YB_ASSERT(conn->calls_live == 0);
}

void
yb_call_fini(struct yb_conn *conn)
{
    YB_ASSERT(conn->calls_live == 0);
    free(conn->slots);
    conn->slots = NULL;
    conn->slot_count = 0;
}
