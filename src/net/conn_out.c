/* SPDX-License-Identifier: Apache-2.0
 *
 * What a connection sends.
 *
 * Headers and bodies are copied into chunks, which form one stream of bytes
 * with an offset; the data of a frame stays where it is. A struct yb_out marks
 * where in that stream its frame lies, so that a write can be put together
 * from chunks and callers' memory. A frame that was not begun can be withdrawn:
 * its header is rewritten to a VOID frame around the same body, without data,
 * and its caller's memory is free at once:
 *
 *     stream   |hdr body|hdr body|hdr body|hdr body|      -> chunks
 *     frames            ^start   ^end + data              -> struct yb_out
 *
 * Invariants
 *   O1  Frames leave in the order in which they were queued, whole: once a byte of
 *       one is handed over, the rest follows or the connection ends.
 *   O2  Memory lent to a write in flight is not touched until it completes; a
 *       frame's `sent` runs only after its last byte was taken, or at the end.
 *   O3  What a reply returns counts as unused from the moment at which a byte of its
 *       chunk is handed over, not before: a peer that sends on without reading exceeds
 *       its credit, and so bounds what waits for it here.
 */
#include <string.h>

#include "base/check.h"
#include "net/conn_internal.h"
#include "net/foreign.h"

/* Data is encrypted in pieces of this size. */
#define TLS_PIECE_BYTES YB_FOREIGN_TAKE_BYTES_MAX

/* A write of a lower class ends early, so that others are looked after (E4 in io_epoll.c). */
#define PATIENT_WRITE_MAX (YB_IO_PATIENT_BYTES + 4096u)

/* Turns for which a flush waits for the next read. */
#define POSTPONED_MAX 3u

static void
run_flush(struct yb_task *task)
{
    struct yb_conn *conn =
        (struct yb_conn *)((uint8_t *)task - offsetof(struct yb_conn, flush_task));

    /* While bytes of a lower class pour in, what they cause to be sent goes out together: a write
     * of its own for each reply would take its time from the reading. */
    if (conn->stream->patient && conn->in.read_full && conn->out.postponed < POSTPONED_MAX &&
        conn->state != YB_CONN_CLOSING) {
        conn->in.read_full = false;
        conn->out.postponed++;
        yb_loop_defer(conn->net->options.loop, &conn->flush_task);
        return;
    }
    conn->out.postponed = 0;
    yb_conn_out_flush(conn);
}

void
yb_conn_out_init(struct yb_conn *conn)
{
    conn->out.frames_tail = &conn->out.frames;
    conn->flush_task.run = run_flush;
}

uint64_t
yb_conn_out_pending(const struct yb_conn *conn)
{
    return conn->out.queued - conn->out.sent + conn->out.data_queued;
}

/* Make room for `length` more bytes, before anything is copied, so that a frame is queued whole
 * or not at all. */
static enum yb_status
reserve(struct yb_conn *conn, size_t length)
{
    struct yb_conn_out *out = &conn->out;
    size_t room = out->tail != NULL ? YB_CHUNK_BYTES - out->tail->end : 0;
    struct yb_chunk *last = out->tail;

    while (last != NULL && last->next != NULL) {
        last = last->next; /* Left by a reservation that failed half way. */
        room += YB_CHUNK_BYTES;
    }
    while (room < length) {
        struct yb_chunk *chunk = yb_net_chunk_take(conn->net);

        if (chunk == NULL) {
            return YB_NO_MEMORY; /* What was taken stays behind the tail, empty, for the next. */
        }
        if (last != NULL) {
            last->next = chunk;
        } else {
            out->head = chunk;
            out->tail = chunk;
        }
        last = chunk;
        room += YB_CHUNK_BYTES;
    }
    return YB_OK;
}

/* Copy into reserved room. */
static void
append(struct yb_conn *conn, const void *bytes, size_t length)
{
    struct yb_conn_out *out = &conn->out;
    const uint8_t *from = bytes;

    out->queued += length;
    while (length > 0) {
        size_t room = YB_CHUNK_BYTES - out->tail->end;
        size_t take = length < room ? length : room;

        if (room == 0) {
            YB_ASSERT(out->tail->next != NULL);
            out->tail = out->tail->next;
            continue;
        }
        memcpy(out->tail->bytes + out->tail->end, from, take);
        out->tail->end += (uint32_t)take;
        from += take;
        length -= take;
    }
}

/* Bytes of the chunk are on their way: what its replies return may be used by the peer. */
static void
hand_over(struct yb_conn *conn, struct yb_chunk *chunk)
{
    chunk->handed = true;
    if (chunk->credit_requests > 0 || chunk->credit_bytes > 0) {
        yb_request_credit(conn, chunk->credit_requests, chunk->credit_bytes);
        chunk->credit_requests = 0;
        chunk->credit_bytes = 0;
    }
}

/* Note what a reply returns, whose header was just appended (O3). */
static void
note_credit(struct yb_conn *conn, const struct yb_wire_frame_header *header)
{
    struct yb_chunk *chunk = conn->out.tail;

    if ((header->flags & YB_WIRE_FRAME_FLAG_REPLY) == 0) {
        return;
    }
    chunk->credit_requests += header->credit_requests;
    chunk->credit_bytes += header->credit_bytes;
    if (chunk->handed) {
        hand_over(conn, chunk);
    }
}

enum yb_status
yb_conn_out_raw(struct yb_conn *conn, const uint8_t *bytes, size_t length)
{
    enum yb_status status = reserve(conn, length);

    if (status != YB_OK) {
        return status;
    }
    append(conn, bytes, length);
    yb_loop_defer(conn->net->options.loop, &conn->flush_task);
    return YB_OK;
}

enum yb_status
yb_conn_out_frame(struct yb_conn *conn, const struct yb_wire_frame_header *header, const void *body,
                  struct yb_out *out)
{
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
    enum yb_status status;

    status = yb_frame_build(header, &conn->limits_out, bytes);
    if (status != YB_OK) {
        return status;
    }
    status = reserve(conn, sizeof(bytes) + header->body_bytes);
    if (status != YB_OK) {
        return status;
    }
    if (out != NULL) {
        out->next = NULL;
        out->start = conn->out.queued;
        out->data_index = 0;
        out->data_skip = 0;
        out->data_left = header->data_bytes;
        out->started = false;
        conn->out.data_queued += header->data_bytes;
        *conn->out.frames_tail = out;
        conn->out.frames_tail = &out->next;
    }
    append(conn, bytes, sizeof(bytes));
    note_credit(conn, header);
    append(conn, body, header->body_bytes);
    if (out != NULL) {
        out->end = conn->out.queued;
    }
    yb_net_count(conn->net, YB_NET_STAT_FRAMES_OUT, 1);
    yb_loop_defer(conn->net->options.loop, &conn->flush_task);
    return YB_OK;
}

/* Overwrite stream bytes that are still in the chunks. */
static void
rewrite(struct yb_conn *conn, uint64_t offset, const uint8_t *bytes, size_t length)
{
    struct yb_chunk *chunk = conn->out.head;
    uint64_t position = conn->out.sent;
    uint32_t begin = chunk->begin;

    YB_ASSERT(offset >= conn->out.sent && offset + length <= conn->out.queued);
    while (length > 0) {
        uint64_t have = chunk->end - begin;

        if (offset < position + have) {
            uint32_t at = begin + (uint32_t)(offset - position);
            size_t room = chunk->end - at;
            size_t take = length < room ? length : room;

            memcpy(chunk->bytes + at, bytes, take);
            bytes += take;
            offset += take;
            length -= take;
        }
        position += have;
        chunk = chunk->next;
        begin = length > 0 ? chunk->begin : 0;
    }
}

void
yb_conn_out_forget(struct yb_conn *conn, struct yb_out *frame)
{
    struct yb_out **link = &conn->out.frames;

    while (*link != frame) {
        YB_ASSERT(*link != NULL);
        link = &(*link)->next;
    }
    *link = frame->next;
    if (*link == NULL) {
        conn->out.frames_tail = link;
    }
    conn->out.data_queued -= frame->data_left;
    frame->data_left = 0;
}

bool
yb_conn_out_withdraw(struct yb_conn *conn, struct yb_out *frame)
{
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
    struct yb_wire_frame_header header = {
        .type = YB_WIRE_TYPE_VOID,
        .body_bytes = (uint32_t)(frame->end - frame->start) - YB_WIRE_FRAME_HEADER_BYTES,
        .deadline_us = YB_WIRE_DEADLINE_NEVER,
    };

    if (frame->started) {
        return false;
    }
    YB_ASSERT(yb_frame_build(&header, &conn->limits_out, bytes) == YB_OK);
    rewrite(conn, frame->start, bytes, sizeof(bytes));
    yb_conn_out_forget(conn, frame);
    return true;
}

/* Take `length` bytes off the front of the chunks. */
static void
consume_chunks(struct yb_conn *conn, uint64_t length)
{
    struct yb_conn_out *out = &conn->out;

    out->sent += length;
    while (length > 0) {
        struct yb_chunk *chunk = out->head;
        uint64_t have = chunk->end - chunk->begin;
        uint64_t take = length < have ? length : have;

        chunk->begin += (uint32_t)take;
        length -= take;
        if (chunk->begin < chunk->end) {
            continue;
        }
        if (chunk == out->tail) {
            YB_ASSERT(length == 0);
            break;
        }
        out->head = chunk->next;
        yb_net_chunk_give(conn->net, chunk);
    }
}

/* Give the chunks back once all is sent: an idle connection holds none (N4). */
static void
release_chunks(struct yb_conn *conn)
{
    struct yb_conn_out *out = &conn->out;

    while (out->head != NULL) {
        struct yb_chunk *chunk = out->head;

        out->head = chunk->next;
        yb_net_chunk_give(conn->net, chunk);
    }
    out->tail = NULL;
}

/* Take the first frame off the list and tell who waits for it. */
static void
pop_frame(struct yb_conn *conn, enum yb_status status)
{
    struct yb_conn_out *out = &conn->out;
    struct yb_out *frame = out->frames;

    out->frames = frame->next;
    if (out->frames == NULL) {
        out->frames_tail = &out->frames;
    }
    out->data_queued -= frame->data_left;
    frame->data_left = 0;
    frame->sent(frame, status);
}

/* ---- putting a write together ---------------------------------------------------------- */

struct gather {
    struct iovec *iov;
    uint32_t count;
    uint32_t count_max;
    size_t bytes;
    size_t bytes_max;
    struct yb_chunk *chunk; /* Where the stream of bytes goes on. */
    uint32_t chunk_begin;
    uint64_t position;
};

static bool
gather_full(const struct gather *gather)
{
    return gather->count == gather->count_max || gather->bytes >= gather->bytes_max;
}

static void
gather_add(struct gather *gather, const void *bytes, size_t length)
{
    union {
        const void *in;
        void *out;
    } base = {.in = bytes};

    gather->iov[gather->count].iov_base = base.out; /* Only read from. */
    gather->iov[gather->count].iov_len = length;
    gather->count++;
    gather->bytes += length;
}

/* Add stream bytes up to offset `limit`. Returns true if all of them fit. */
static bool
gather_stream(struct gather *gather, uint64_t limit)
{
    while (gather->position < limit) {
        uint64_t have = gather->chunk->end - gather->chunk_begin;
        uint64_t take = limit - gather->position < have ? limit - gather->position : have;

        if (have == 0) {
            gather->chunk = gather->chunk->next;
            gather->chunk_begin = gather->chunk->begin;
            continue;
        }
        if (gather_full(gather)) {
            return false;
        }
        gather_add(gather, gather->chunk->bytes + gather->chunk_begin, take);
        gather->chunk_begin += (uint32_t)take;
        gather->position += take;
    }
    return true;
}

/* Add the data of a frame. Returns true if all of it fit. A long vector is cut, so that every
 * write ends soon enough to be watched by a timer. */
static bool
gather_data(struct gather *gather, const struct yb_out *frame)
{
    size_t skip = frame->data_skip;

    for (uint32_t i = frame->data_index; frame->data_left > 0 && i < frame->data_count; i++) {
        size_t length = frame->data[i].iov_len - skip;

        if (length > 0) {
            if (gather_full(gather)) {
                return false;
            }
            size_t room = gather->bytes_max - gather->bytes;
            size_t take = length < room ? length : room;

            gather_add(gather, (const uint8_t *)frame->data[i].iov_base + skip, take);
            if (take < length) {
                return false;
            }
        }
        skip = 0;
    }
    return true;
}

/* Collect what the next write sends. */
static void
gather_all(struct yb_conn *conn, struct gather *gather)
{
    struct yb_conn_out *out = &conn->out;
    struct yb_out *frame;

    gather->iov = out->iov;
    gather->chunk = out->head;
    gather->chunk_begin = out->head != NULL ? out->head->begin : 0;
    gather->position = out->sent;
    for (frame = out->frames; frame != NULL; frame = frame->next) {
        if (!gather_stream(gather, frame->start)) {
            return;
        }
        if (gather_full(gather)) {
            return;
        }
        frame->started = true;
        if (!gather_stream(gather, frame->end) || !gather_data(gather, frame)) {
            return;
        }
    }
    (void)gather_stream(gather, out->queued);
}

/* Account for `length` bytes that were taken, and tell whose frames are out. */
static void
advance_data(struct yb_conn *conn, struct yb_out *frame, uint64_t length)
{
    frame->data_left -= length;
    conn->out.data_queued -= length;
    length += frame->data_skip;
    while (frame->data_index < frame->data_count &&
           length >= frame->data[frame->data_index].iov_len) {
        length -= frame->data[frame->data_index].iov_len;
        frame->data_index++;
    }
    frame->data_skip = length;
}

static void
advance(struct yb_conn *conn, uint64_t length)
{
    struct yb_conn_out *out = &conn->out;

    for (;;) {
        struct yb_out *frame = out->frames;
        uint64_t until = frame != NULL ? frame->end : out->queued;
        uint64_t take = length < until - out->sent ? length : until - out->sent;

        consume_chunks(conn, take);
        length -= take;
        if (frame == NULL || out->sent < frame->end) {
            break;
        }
        take = length < frame->data_left ? length : frame->data_left;
        advance_data(conn, frame, take);
        length -= take;
        if (frame->data_left > 0 || !frame->started) {
            break;
        }
        pop_frame(conn, YB_OK);
    }
    YB_ASSERT(length == 0);
}

/* ---- sending --------------------------------------------------------------------------- */

static void
arm_write_timer(struct yb_conn *conn)
{
    yb_loop_arm(conn->net->options.loop, &conn->write_timer,
                yb_deadline_after(yb_conn_now(conn), conn->net->options.limits.frame_timeout_ns));
}

/* Note that what was gathered is going out (O3). */
static void
hand_over_gathered(struct yb_conn *conn, const struct gather *gather)
{
    for (struct yb_chunk *chunk = conn->out.head; chunk != NULL; chunk = chunk->next) {
        hand_over(conn, chunk);
        if (chunk == gather->chunk) {
            break;
        }
    }
}

/* Encrypt what was gathered; data of callers is copied first, which is how its absence shows. */
static enum yb_status
encrypt(struct yb_conn *conn, const struct gather *gather, size_t *taken_out)
{
    bool is_data = conn->out.frames != NULL && conn->out.sent == conn->out.frames->end;
    const uint8_t *bytes = gather->iov[0].iov_base;
    size_t length = gather->iov[0].iov_len;

    length = length < TLS_PIECE_BYTES ? length : TLS_PIECE_BYTES;
    if (is_data) {
        enum yb_status status = yb_foreign_take(&conn->net->foreign, bytes, length, &bytes);

        if (status != YB_OK) {
            pop_frame(conn, status);
            return status;
        }
    }
    return yb_tls_write(conn->tls, bytes, length, taken_out);
}

/* Encrypt what is queued until the TLS buffer is full, and write what that made. */
static enum yb_status
flush_tls(struct yb_conn *conn)
{
    size_t length = 0;
    const uint8_t *bytes;

    for (;;) {
        /* One vector: what is gathered counts as begun, and only one is encrypted at a time. */
        struct gather gather = {.count_max = 1, .bytes_max = TLS_PIECE_BYTES};
        size_t taken = 0;
        enum yb_status status;

        gather_all(conn, &gather);
        if (gather.count == 0) {
            break;
        }
        status = encrypt(conn, &gather, &taken);
        if (status == YB_AGAIN) {
            break;
        }
        if (status != YB_OK) {
            return status;
        }
        hand_over_gathered(conn, &gather);
        advance(conn, taken);
        if (conn->state == YB_CONN_CLOSING) {
            return YB_OK; /* Closed by somebody whose frame is out. */
        }
    }
    bytes = yb_tls_pending_out(conn->tls, &length);
    if (bytes == NULL || length == 0) {
        return YB_OK;
    }
    {
        union {
            const uint8_t *in;
            void *out;
        } base = {.in = bytes};

        conn->out.iov[0].iov_base = base.out;
        conn->out.iov[0].iov_len = length;
    }
    arm_write_timer(conn);
    return yb_stream_write(conn->stream, conn->out.iov, 1);
}

static enum yb_status
flush_plain(struct yb_conn *conn)
{
    struct gather gather = {
        .count_max = YB_CONN_IOV_MAX,
        .bytes_max = conn->stream->patient && conn->stream->io->contended ? PATIENT_WRITE_MAX
                                                                          : YB_CONN_WRITE_MAX,
    };

    gather_all(conn, &gather);
    if (gather.count == 0) {
        return YB_OK;
    }
    hand_over_gathered(conn, &gather);
    arm_write_timer(conn);
    return yb_stream_write(conn->stream, conn->out.iov, gather.count);
}

void
yb_conn_out_flush(struct yb_conn *conn)
{
    enum yb_status status;

    YB_ASSERT_OBJ(conn, YB_CONN_MAGIC);
    if (conn->state == YB_CONN_CLOSING || conn->state == YB_CONN_CONNECTING ||
        conn->stream->writing) {
        return;
    }
    status = conn->tls != NULL ? flush_tls(conn) : flush_plain(conn);
    if (status != YB_OK) {
        yb_conn_fail(conn, status, "cannot send");
        return;
    }
    if (conn->out.queued == conn->out.sent && conn->out.frames == NULL && !conn->stream->writing) {
        release_chunks(conn);
    }
}

void
yb_conn_out_written(struct yb_conn *conn, enum yb_status status, size_t length)
{
    struct yb_conn_out *out = &conn->out;

    yb_loop_disarm(conn->net->options.loop, &conn->write_timer);
    yb_net_count(conn->net, YB_NET_STAT_BYTES_OUT, length);
    if (conn->opened) {
        yb_links_sent(&conn->net->links, conn->link, YB_LINKS_TCP, length);
    }
    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    if (status == YB_FAULT) {
        /* What could be read before it was taken, so the memory is that of the first frame. */
        pop_frame(conn, YB_FAULT);
        yb_conn_fail(conn, YB_FAULT, "the memory of outgoing data cannot be read");
        return;
    }
    if (status != YB_OK) {
        yb_conn_fail(conn, YB_PEER_LOST, "the peer reset the connection");
        return;
    }
    if (conn->tls != NULL) {
        yb_tls_sent(conn->tls, length);
    } else {
        advance(conn, length);
    }
    yb_conn_out_flush(conn);
    if (conn->state == YB_CONN_CLOSING) {
        return;
    }
    yb_conn_check_drained(conn);
    if (out->room_wanted &&
        yb_conn_out_pending(conn) < conn->net->options.limits.committed_bytes_max &&
        conn->state == YB_CONN_OPEN && conn->events->on_room != NULL) {
        out->room_wanted = false;
        conn->events->on_room(conn->owner, conn);
    }
}

void
yb_conn_out_fini(struct yb_conn *conn)
{
    while (conn->out.frames != NULL) {
        pop_frame(conn, YB_PEER_LOST);
    }
    conn->out.sent = conn->out.queued;
    release_chunks(conn);
}
