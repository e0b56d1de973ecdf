/* SPDX-License-Identifier: Apache-2.0
 *
 * The TCP path: slices as calls of net, straight between user memory and socket.
 *
 * A path has a few net peers, its streams. Each has one bulk connection per class, so
 * slices of one class are spread over that many connections and never stand behind
 * those of another. A slice goes to the stream that has the least in flight.
 *
 * Lost connections are net's business: it connects again and sends a read or a write
 * again, which is safe because the target closes the older connection before it
 * welcomes the newer one (net/fence.h). So a slice that comes back unanswered has run
 * out of time, or the target refuses us.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/wire/transfer_wire.h"

/* Slices in flight: enough to keep the sockets busy, not more, since whatever is under way stands
 * before a slice of a higher class (E5). First-token slices have a window of their own and so wait
 * for no other; throughput and background share one. */
#define WINDOW_SLICES 8u

#define STREAMS_MAX 16u

struct tcp_path {
    struct yb_path base;
    uint32_t stream_count;
    struct yb_peer *streams[STREAMS_MAX];
    uint32_t flying[STREAMS_MAX][YB_CLASS_COUNT];
    uint32_t window[2]; /* In flight: first_token; throughput and background together. */
};

/* A drain that asks every stream and class. */
struct tcp_drain {
    struct tcp_path *path;
    void (*done)(void *owner, enum yb_status status);
    void *owner;
    uint32_t left;
    enum yb_status status;
    struct yb_call calls[STREAMS_MAX * YB_CLASS_COUNT];
};

static struct tcp_path *
tcp_of(struct yb_path *path)
{
    return (struct tcp_path *)path;
}

static enum yb_status
tcp_open(struct yb_remote *remote, struct yb_path **path_out)
{
    struct tcp_path *path = calloc(1, sizeof(*path));
    uint32_t wanted = remote->engine->options.streams;
    enum yb_status status;

    if (path == NULL) {
        return YB_NO_MEMORY;
    }
    YB_ASSERT(wanted > 0 && wanted <= STREAMS_MAX);
    path->base.ops = &yb_path_tcp;
    path->base.remote = remote;
    path->base.state = YB_PATH_UP; /* net connects when a slice needs it. */
    for (uint32_t i = 0; i < wanted; i++) {
        status = yb_peer_create(remote->worker->net, &remote->addresses, remote->expected,
                                &path->streams[i]);
        if (status != YB_OK) {
            goto err_peers;
        }
        yb_peer_set_stripe(path->streams[i], yb_remote_stripe(remote, i + 1));
        path->stream_count++;
    }
    *path_out = &path->base;
    return YB_OK;

err_peers:
    while (path->stream_count > 0) {
        yb_peer_destroy(&path->streams[--path->stream_count]);
    }
    free(path);
    return status;
}

/* The path is free when the last slice has come back. */
static void
free_if_quiet(struct tcp_path *path)
{
    if (path->base.state == YB_PATH_DOWN && path->base.flying == 0) {
        yb_remote_path_closed(&path->base);
        free(path);
    }
}

static void
tcp_close(struct yb_path *base)
{
    struct tcp_path *path = tcp_of(base);

    path->base.flying++; /* Slices that end below must not free it. */
    path->base.state = YB_PATH_DOWN;
    for (uint32_t i = 0; i < path->stream_count; i++) {
        yb_peer_destroy(&path->streams[i]);
    }
    path->base.flying--;
    free_if_quiet(path);
}

static bool
tcp_serves(const struct yb_path *path, const struct yb_slice *slice)
{
    (void)path;
    (void)slice;
    return true;
}

static uint32_t *
window_of(struct tcp_path *path, enum yb_class class)
{
    return &path->window[class == YB_CLASS_FIRST_TOKEN ? 0 : 1];
}

/* ---- slices ------------------------------------------------------------------------------- */

/* Its number, for the stream itself may have been given up before its calls end. */
static uint32_t
stream_of(const struct tcp_path *path, const struct yb_slice *slice)
{
    uint32_t stream = (uint32_t)(uintptr_t)slice->call.context;

    YB_ASSERT(stream < path->stream_count);
    return stream;
}

/* Enter the target's outcomes into the fragments. Returns false if they are not what was asked. */
static bool
read_outcomes(struct yb_slice *slice)
{
    struct yb_wire_outcomes outcomes;

    if (slice->call.reply_body_bytes == 0) {
        return true;
    }
    if (yb_wire_outcomes_decode(slice->reply, slice->call.reply_body_bytes, &outcomes, NULL) !=
        YB_OK) {
        return false;
    }
    for (uint32_t i = 0; i < outcomes.outcomes.count; i++) {
        struct yb_wire_outcome outcome;

        yb_wire_outcome_at(&outcomes.outcomes, i, &outcome);
        if (outcome.index >= slice->count || outcome.status == YB_OK ||
            outcome.status == YB_IN_PROGRESS) {
            return false;
        }
        slice->fragments[outcome.index].status = (enum yb_status)outcome.status;
    }
    return true;
}

static struct yb_slice_end
end_of(struct yb_slice *slice)
{
    struct yb_call *call = &slice->call;
    struct yb_slice_end end = {.status = call->status};

    if (call->answered) {
        end.by = call->doubt_identity; /* Who was asked last. */
        if (call->status == YB_IN_PROGRESS) {
            end.status = YB_PROTOCOL; /* How it ended was asked. */
        }
        if (call->status == YB_OK && !read_outcomes(slice)) {
            end.status = YB_PROTOCOL;
        }
        if (call->status == YB_OK && slice->op == YB_TRANSFER_READ && call->reply_body_bytes == 0 &&
            call->reply_data_bytes != slice->bytes) {
            end.status = YB_PROTOCOL;
        }
        return end;
    }
    end.in_doubt = call->sent && slice->op == YB_TRANSFER_WRITE;
    end.local_fault = call->status == YB_FAULT;
    return end;
}

static void
on_done(struct yb_call *call)
{
    struct yb_slice *slice = call->owner;
    struct tcp_path *path = tcp_of(slice->path);
    uint32_t stream = stream_of(path, slice);
    struct yb_slice_end end = end_of(slice);

    path->flying[stream][call->class]--;
    (*window_of(path, call->class))--;
    path->base.flying--;
    path->base.counts.slices++;
    if (end.status != YB_OK) {
        path->base.counts.failures++;
    } else if (slice->op == YB_TRANSFER_READ) {
        path->base.counts.bytes_read += yb_slice_moved(slice);
    } else {
        path->base.counts.bytes_written += yb_slice_moved(slice);
    }
    path->base.flying++;
    yb_slice_done(slice, end);
    if (path->base.state == YB_PATH_UP) {
        yb_remote_room(&path->base);
    }
    path->base.flying--;
    free_if_quiet(path);
}

static uint32_t
encode_fragments(struct yb_slice *slice)
{
    struct yb_wire_fragment native[YB_SLICE_FRAGMENTS];
    struct yb_wire_fragments body = {
        .fragments = {.count = slice->count, .native = native},
    };
    size_t length = 0;

    for (uint32_t i = 0; i < slice->count; i++) {
        native[i].region = slice->fragments[i].region;
        native[i].offset = slice->fragments[i].remote_offset;
        native[i].length = slice->fragments[i].length;
    }
    YB_ASSERT(yb_wire_fragments_encode(&body, slice->body, sizeof(slice->body), &length) == YB_OK);
    return (uint32_t)length;
}

/* Return the stream with the least in flight in this class. */
static uint32_t
pick_stream(const struct tcp_path *path, enum yb_class class)
{
    uint32_t least = UINT32_MAX;
    uint32_t best = 0;

    for (uint32_t i = 0; i < path->stream_count; i++) {
        if (path->flying[i][class] < least) {
            least = path->flying[i][class];
            best = i;
        }
    }
    return best;
}

static enum yb_status
tcp_submit(struct yb_path *base, struct yb_slice *slice)
{
    struct tcp_path *path = tcp_of(base);
    enum yb_class class = slice->queue.traffic_class;
    bool reads = slice->op == YB_TRANSFER_READ;
    uint32_t stream = pick_stream(path, class);
    enum yb_status status;

    if (base->state != YB_PATH_UP) {
        return YB_UNSUPPORTED;
    }
    if (*window_of(path, class) == WINDOW_SLICES) {
        return YB_AGAIN;
    }
    slice->call = (struct yb_call){
        .type = reads ? YB_WIRE_TRANSFER_TYPE_READ : YB_WIRE_TRANSFER_TYPE_WRITE,
        .class = class,
        .lane = YB_WIRE_LANE_BULK,
        .deadline_ns = slice->deadline_ns,
        .trace_id = slice->batch->options.trace_id,
        .parent_span = slice->batch->options.parent_span,
        .body = slice->body,
        .body_bytes = encode_fragments(slice),
        .data = reads ? NULL : slice->iov,
        .data_count = reads ? 0 : slice->iov_count,
        .reply_body = slice->reply,
        .reply_body_room = sizeof(slice->reply),
        .reply_data = reads ? slice->iov : NULL,
        .reply_data_count = reads ? slice->iov_count : 0,
        .done = on_done,
        .owner = slice,
        .context = (void *)(uintptr_t)stream,
    };
    status = yb_peer_call(path->streams[stream], &slice->call);
    if (status != YB_OK) {
        return status;
    }
    path->flying[stream][class]++;
    (*window_of(path, class))++;
    path->base.flying++;
    return YB_OK;
}

static void
tcp_cancel(struct yb_path *base, struct yb_slice *slice)
{
    struct tcp_path *path = tcp_of(base);
    struct yb_peer *stream = path->streams[stream_of(path, slice)];

    if (stream != NULL) { /* Otherwise it was given up, and ends all its calls. */
        yb_peer_cancel(stream, &slice->call);
    }
}

/* ---- quiesce ------------------------------------------------------------------------------ */

static void
on_drained(struct yb_call *call)
{
    struct tcp_drain *drain = call->owner;

    if (!call->answered || call->status != YB_OK) {
        drain->status = call->answered || call->status != YB_OK ? call->status : YB_TIMED_OUT;
    }
    if (--drain->left == 0) {
        struct tcp_path *path = drain->path;

        path->base.flying--;
        drain->done(drain->owner, drain->status);
        free(drain);
        free_if_quiet(path);
    }
}

/* Ask on every bulk lane: frames of a connection are applied in order, and a newer connection is
 * welcomed only after the older one is closed, so an answer speaks for everything before it. */
static void
tcp_quiesce(struct yb_path *base, uint64_t deadline_ns,
            void (*done)(void *owner, enum yb_status status), void *owner)
{
    struct tcp_path *path = tcp_of(base);
    struct tcp_drain *drain = calloc(1, sizeof(*drain));

    if (drain == NULL) {
        done(owner, YB_NO_MEMORY);
        return;
    }
    drain->path = path;
    drain->done = done;
    drain->owner = owner;
    drain->left = 1; /* Answers may come in while the rest is asked. */
    path->base.flying++;
    for (uint32_t i = 0; i < path->stream_count * YB_CLASS_COUNT; i++) {
        struct yb_call *call = &drain->calls[i];
        enum yb_status status;

        *call = (struct yb_call){
            .type = YB_WIRE_TRANSFER_TYPE_DRAIN,
            .class = (enum yb_class)(i % YB_CLASS_COUNT),
            .lane = YB_WIRE_LANE_BULK,
            .deadline_ns = deadline_ns,
            .done = on_drained,
            .owner = drain,
        };
        if (!yb_peer_lane_used(path->streams[i / YB_CLASS_COUNT], call->lane, call->class)) {
            continue; /* Nothing was ever sent there. */
        }
        drain->left++;
        status = yb_peer_call(path->streams[i / YB_CLASS_COUNT], call);
        if (status != YB_OK) {
            drain->left--;
            drain->status = status;
        }
    }
    if (--drain->left == 0) {
        path->base.flying--;
        done(owner, drain->status);
        free(drain);
    }
}

const struct yb_path_ops yb_path_tcp = {
    .name = "tcp",
    .bit = YB_TRANSFER_PATH_TCP,
    .rank = 100,
    .open = tcp_open,
    .close = tcp_close,
    .serves = tcp_serves,
    .submit = tcp_submit,
    .cancel = tcp_cancel,
    .quiesce = tcp_quiesce,
};
