/* SPDX-License-Identifier: Apache-2.0
 *
 * What a connection receives.
 *
 *     HEADER --96 bytes, believed--> BODY --all of it--> HEADER           no data
 *                                          |
 *                                          +--> DATA / DISCARD --> HEADER
 *
 * Small frames are taken where they lie in the read buffer; a body is copied
 * only when it came in pieces or when data follows it. Data goes to its sink:
 * what came along with the body by one copy, the rest straight from the socket.
 * Where frames with much data follow each other, header and body are expected to be as
 * long as the last ones: they are read by the read that fetches the data before them, and
 * no data is copied twice. A wrong guess costs a read or a short copy, nothing else.
 *
 * Invariants
 *   I1  Between frames the frame timer is off; inside one it is on, and only
 *       progress renews it, so that a byte a second does not keep a frame alive.
 *   I2  After each step the connection may be closing: nothing is read then.
 *   I3  A frame is judged by its header before a byte of its body is kept: a request is
 *       charged against the credit, and what will be refused or has no taker is dropped
 *       as it comes.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn_internal.h"
#include "net/foreign.h"

/* What is asked for when a frame's header is next and nothing is known of its length: on a bulk
 * lane little, so that the data behind it need not be copied. */
#define READ_CONTROL_BYTES (64u * 1024u)
#define READ_BULK_BYTES    (5u * 1024u) /* A block of 4 KiB with what is before it. */

/* Data shorter than this is not worth a read of its own. */
#define DIRECT_BYTES_MIN (8u * 1024u)

#define BODY_ROOM_MIN 4096u
/* What a connection keeps between frames, until it has rested (N4). */
#define BODY_ROOM_KEPT (16u * 1024u)

static struct yb_loop *
loop_of(struct yb_conn *conn)
{
    return conn->net->options.loop;
}

static void
renew_frame_timer(struct yb_conn *conn)
{
    yb_loop_arm(loop_of(conn), &conn->timer,
                yb_deadline_after(yb_conn_now(conn), conn->net->options.limits.frame_timeout_ns));
}

/* Header and body together have one timeout: a piece of either does not renew it. */
static void
start_frame_timer(struct yb_conn *conn)
{
    if (!yb_timer_is_armed(&conn->timer)) {
        renew_frame_timer(conn);
    }
}

static void
body_buffer_free(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    conn->net->bodies_bytes -= in->body_room;
    free(in->body_buffer);
    in->body_buffer = NULL;
    in->body_room = 0;
}

/* Make room for a body that cannot stay in the read buffer; all of a worker's connections share
 * what there is of it. */
static bool
body_buffer_reserve(struct yb_conn *conn, uint32_t length)
{
    struct yb_conn_in *in = &conn->in;
    struct yb_net *net = conn->net;
    uint32_t room = length < BODY_ROOM_MIN ? BODY_ROOM_MIN : length;
    uint8_t *buffer;

    if (in->body_room >= length && in->body_buffer != NULL) {
        return true;
    }
    if (net->bodies_bytes - in->body_room + room > net->options.limits.bodies_bytes_max) {
        return false;
    }
    buffer = realloc(in->body_buffer, room);
    if (buffer == NULL) {
        return false;
    }
    net->bodies_bytes += room - in->body_room;
    in->body_buffer = buffer;
    in->body_room = room;
    return true;
}

/* Let go of a buffer that is more than a connection may keep. */
static void
body_buffer_trim(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    if (in->state == YB_IN_HEADER && in->body_room > BODY_ROOM_KEPT) {
        body_buffer_free(conn);
    }
}

/* ---- the end of a frame ---------------------------------------------------------------- */

static void
frame_done(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    in->state = YB_IN_HEADER;
    in->header_have = 0;
    in->body_have = 0;
    in->call = NULL;
    in->request = NULL;
    yb_loop_disarm(loop_of(conn), &conn->timer); /* I1 */
}

static void
data_done(struct yb_conn *conn)
{
    struct yb_call *call = conn->in.call;
    struct yb_request *request = conn->in.request;

    frame_done(conn);
    if (call != NULL) {
        yb_call_on_reply_data(conn, call);
    } else if (request != NULL) {
        yb_request_on_data(conn, request);
    }
    body_buffer_trim(conn);
}

/* ---- header and body ------------------------------------------------------------------- */

static void
dispatch(struct yb_conn *conn, const uint8_t *body)
{
    struct yb_conn_in *in = &conn->in;

    yb_net_count(conn->net, YB_NET_STAT_FRAMES_IN, 1);
    in->data_left = in->header.data_bytes;
    in->sink = NULL;
    in->sink_count = 0;
    in->sink_index = 0;
    in->sink_skip = 0;
    in->progress_mark =
        in->data_left > YB_CONN_PROGRESS_BYTES ? in->data_left - YB_CONN_PROGRESS_BYTES : 0;
    in->head_bytes = in->data_left >= DIRECT_BYTES_MIN
                         ? (uint32_t)YB_FRAME_HEADER_BYTES + in->header.body_bytes
                         : 0;
    in->state = YB_IN_DISCARD;
    if ((in->header.flags & YB_WIRE_FRAME_FLAG_REPLY) != 0) {
        yb_call_on_reply(conn, &in->header, body);
    } else {
        yb_request_on_frame(conn, &in->header, body);
    }
    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    if (in->sink != NULL) {
        in->state = YB_IN_DATA;
    }
    if (in->data_left == 0) {
        if (in->state == YB_IN_DATA || in->request != NULL || in->call != NULL) {
            data_done(conn);
        } else {
            frame_done(conn);
        }
        return;
    }
    renew_frame_timer(conn);
}

/* Take bytes of a header. Returns how many. */
static size_t
take_header(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    struct yb_conn_in *in = &conn->in;
    const uint8_t *from = bytes;
    const char *why = NULL;
    size_t taken = 0;

    if (in->header_have > 0 || length < YB_FRAME_HEADER_BYTES) {
        size_t wanted = YB_FRAME_HEADER_BYTES - in->header_have;

        taken = length < wanted ? length : wanted;
        start_frame_timer(conn);
        memcpy(in->header_bytes + in->header_have, bytes, taken);
        in->header_have += (uint32_t)taken;
        from = in->header_bytes;
        length = in->header_have;
    } else {
        taken = YB_FRAME_HEADER_BYTES;
        length = YB_FRAME_HEADER_BYTES;
    }
    switch (yb_frame_parse(from, length, &conn->limits_in, &in->header, &why)) {
    case YB_FRAME_NEED_MORE: return taken;
    case YB_FRAME_BROKEN: yb_conn_fail(conn, YB_PROTOCOL, why); return taken;
    case YB_FRAME_OK: break;
    }
    in->state = YB_IN_BODY;
    in->body_have = 0;
    /* I3 */
    in->keep_body = (in->header.flags & YB_WIRE_FRAME_FLAG_REPLY) != 0
                        ? yb_call_on_header(conn, &in->header)
                        : yb_request_on_header(conn, &in->header);
    return taken;
}

/* Drop bytes of a body that nobody wants. */
static void
skip_body(struct yb_conn *conn, size_t length)
{
    struct yb_conn_in *in = &conn->in;

    in->body_have += (uint32_t)length;
    if (in->body_have == in->header.body_bytes) {
        dispatch(conn, NULL);
    } else {
        start_frame_timer(conn);
    }
}

/* Take bytes of a body; dispatches once it is whole. Returns how many. */
static size_t
take_body(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    struct yb_conn_in *in = &conn->in;
    uint32_t body_bytes = in->header.body_bytes;
    size_t wanted = body_bytes - in->body_have;
    size_t taken = length < wanted ? length : wanted;

    if (!in->keep_body) {
        skip_body(conn, taken);
        return taken;
    }
    if (in->body_have == 0 && taken == wanted && in->header.data_bytes == 0) {
        dispatch(conn, bytes);
        return taken;
    }
    if (!body_buffer_reserve(conn, body_bytes)) {
        yb_conn_fail(conn, YB_NO_MEMORY,
                     "no room for the body of a frame: see net.bodies_bytes_max");
        return taken;
    }
    start_frame_timer(conn);
    memcpy(in->body_buffer + in->body_have, bytes, taken);
    in->body_have += (uint32_t)taken;
    if (in->body_have == body_bytes) {
        dispatch(conn, in->body_buffer);
        body_buffer_trim(conn);
    }
    return taken;
}

/* ---- data ------------------------------------------------------------------------------ */

static void
note_progress(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    if (in->data_left <= in->progress_mark) {
        in->progress_mark =
            in->data_left > YB_CONN_PROGRESS_BYTES ? in->data_left - YB_CONN_PROGRESS_BYTES : 0;
        renew_frame_timer(conn);
    }
}

/* Move the sink's cursor on by `length` bytes. */
static void
sink_advance(struct yb_conn_in *in, size_t length)
{
    length += in->sink_skip;
    while (in->sink_index < in->sink_count && length >= in->sink[in->sink_index].iov_len) {
        length -= in->sink[in->sink_index].iov_len;
        in->sink_index++;
    }
    in->sink_skip = length;
}

/* The memory that data was meant for is not there: say whose fault it is. The connection ends,
 * since the rest of the data has no place. */
void
yb_conn_in_fault(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    if (in->call != NULL && in->call->give_up == YB_OK) {
        in->call->give_up = YB_FAULT;
    }
    if (in->request != NULL) {
        in->request->faulted = true;
    }
    yb_conn_fail(conn, YB_FAULT, "the memory for incoming data cannot be written");
}

/* Take bytes of data out of the read buffer. Returns how many. */
static size_t
take_data(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    struct yb_conn_in *in = &conn->in;
    size_t taken = length < in->data_left ? length : in->data_left;
    size_t left = taken;

    while (in->state == YB_IN_DATA && left > 0) {
        const struct iovec *vector = &in->sink[in->sink_index];
        size_t room = vector->iov_len - in->sink_skip;
        size_t take = left < room ? left : room;

        /* An empty vector may name no memory at all. */
        if (take > 0 &&
            yb_foreign_put(&conn->net->foreign, (uint8_t *)vector->iov_base + in->sink_skip, bytes,
                           take) != YB_OK) {
            yb_conn_in_fault(conn);
            return taken;
        }
        sink_advance(in, take);
        bytes += take;
        left -= take;
    }
    in->data_left -= taken;
    if (in->data_left == 0) {
        data_done(conn);
    } else {
        note_progress(conn);
    }
    return taken;
}

void
yb_conn_in_bytes(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    while (conn->state == YB_CONN_OPEN || conn->state == YB_CONN_DRAINING) {
        size_t taken;

        switch (conn->in.state) {
        case YB_IN_HEADER:
            if (length == 0) {
                return;
            }
            taken = take_header(conn, bytes, length);
            break;
        case YB_IN_BODY:
            /* A frame without a body is dispatched even if no byte is left. */
            if (length == 0 && conn->in.header.body_bytes > conn->in.body_have) {
                start_frame_timer(conn);
                return;
            }
            taken = take_body(conn, bytes, length);
            break;
        default:
            if (length == 0) {
                return;
            }
            taken = take_data(conn, bytes, length);
            break;
        }
        bytes += taken;
        length -= taken;
    }
}

void
yb_conn_in_filled(struct yb_conn *conn, size_t length)
{
    struct yb_conn_in *in = &conn->in;
    size_t behind = length > in->data_left ? length - in->data_left : 0;

    YB_ASSERT(in->state == YB_IN_DATA && behind <= sizeof(in->behind));
    in->read_full = length == in->asked_bytes;
    sink_advance(in, length - behind);
    in->data_left -= length - behind;
    if (in->data_left == 0) {
        data_done(conn);
        yb_conn_in_bytes(conn, in->behind, behind);
    } else {
        note_progress(conn);
    }
}

/* Put the next part of the sink into the window that a read may fill, and room for the head of
 * the next frame behind the end of the data. A caller may have given more room than the data
 * needs. */
static uint32_t
fill_window(struct yb_conn_in *in)
{
    uint64_t left = in->data_left < YB_IO_PATIENT_BYTES ? in->data_left : YB_IO_PATIENT_BYTES;
    bool whole = left == in->data_left;
    size_t skip = in->sink_skip;
    uint32_t count = 0;

    for (uint32_t i = in->sink_index; left > 0 && count < YB_CONN_IOV_MAX - 1; i++) {
        size_t length = in->sink[i].iov_len - skip;

        length = length < left ? length : left;
        if (length > 0) {
            in->window[count].iov_base = (uint8_t *)in->sink[i].iov_base + skip;
            in->window[count].iov_len = length;
            count++;
            left -= length;
        }
        skip = 0;
    }
    in->asked_bytes = yb_iov_bytes(in->window, count);
    if (left == 0 && whole) {
        size_t room = in->head_bytes < sizeof(in->behind) ? in->head_bytes : sizeof(in->behind);

        in->window[count].iov_base = in->behind;
        in->window[count].iov_len = room;
        count++;
        in->asked_bytes += room;
    }
    return count;
}

/* How much to ask for, but for data that goes straight to its place. */
static size_t
read_limit(const struct yb_conn *conn)
{
    const struct yb_conn_in *in = &conn->in;
    size_t left;

    if (conn->lane != YB_WIRE_LANE_BULK || conn->tls != NULL) {
        return READ_CONTROL_BYTES;
    }
    switch (in->state) {
    case YB_IN_HEADER:
        return in->head_bytes > 0 && in->head_bytes < READ_BULK_BYTES
                   ? in->head_bytes - in->header_have
                   : READ_BULK_BYTES;
    case YB_IN_BODY:
        left = in->header.body_bytes - in->body_have;
        return in->keep_body && in->header.data_bytes >= DIRECT_BYTES_MIN &&
                       left < READ_CONTROL_BYTES
                   ? left
                   : READ_CONTROL_BYTES;
    case YB_IN_DATA: return READ_BULK_BYTES;
    case YB_IN_DISCARD: break;
    }
    return READ_CONTROL_BYTES;
}

void
yb_conn_in_read(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;
    enum yb_status status;

    if (conn->state == YB_CONN_CLOSING || conn->stream->reading) {
        return;
    }
    if (conn->tls == NULL && in->state == YB_IN_DATA && in->data_left >= DIRECT_BYTES_MIN) {
        status = yb_stream_read_into(conn->stream, in->window, fill_window(in));
    } else {
        in->asked_bytes = read_limit(conn);
        status = yb_stream_read(conn->stream, in->asked_bytes);
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, status, "cannot read");
    }
}

void
yb_conn_in_fini(struct yb_conn *conn)
{
    struct yb_conn_in *in = &conn->in;

    if (in->request != NULL) {
        yb_request_on_lost(conn, in->request);
    }
    in->call = NULL;
    in->request = NULL;
    body_buffer_free(conn);
}

void
yb_conn_in_rest(struct yb_conn *conn)
{
    if (conn->in.state == YB_IN_HEADER) {
        body_buffer_free(conn);
    }
}
