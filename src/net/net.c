/* SPDX-License-Identifier: Apache-2.0 */
#include "net/net.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "net/conn_internal.h"

static const char *const reason_words[] = {
#define X(name, value, status, word) word,
    YB_HELLO_REASON_MAP(X)
#undef X
};

const struct yb_stats_label yb_net_label_reason = {
    .name = "reason",
    .words = reason_words,
    .count = sizeof(reason_words) / sizeof(reason_words[0]),
};

static const struct yb_stats_metric net_metrics[] = {YB_NET_STATS(YB_STATS_ROW)};

void
yb_net_limits_default(struct yb_net_limits *limits_out)
{
    *limits_out = (struct yb_net_limits){
        .handshake_timeout_ns = 3 * YB_NS_PER_S,
        .connect_timeout_ns = 2 * YB_NS_PER_S,
        .frame_timeout_ns = 10 * YB_NS_PER_S,
        .idle_ping_ns = 15 * YB_NS_PER_S,
        .requests_max = 65536,
        .bodies_bytes_max = 256ull << 20,
        .committed_bytes_max = 256 * 1024,
        .calls_waiting_max = 4096,
    };
}

void
yb_net_random_system(void *context, void *out, size_t bytes)
{
    uint8_t *to = out;

    (void)context;
    while (bytes > 0) {
        ssize_t got = getrandom(to, bytes, 0);

        YB_ASSERT(got > 0 || errno == EINTR);
        if (got > 0) {
            to += got;
            bytes -= (size_t)got;
        }
    }
}

/* Enter the methods of a service. Returns false if one breaks the contract of request.h. */
static bool
add_service(struct yb_net *net, const struct yb_service *service)
{
    for (uint32_t i = 0; i < service->method_count; i++) {
        const struct yb_method *method = &service->methods[i];

        if (method->type >= YB_METHOD_TYPES || net->methods[method->type] != NULL ||
            method->handle == NULL || method->name == NULL) {
            return false;
        }
        net->methods[method->type] = method;
        net->method_owners[method->type] = service->owner;
    }
    return true;
}

static enum yb_status
take_shard(struct yb_net *net, struct yb_stats *stats)
{
    enum yb_status status;

    status = yb_stats_register(stats, "net", net_metrics, YB_NET_STAT_COUNT, &net->stats_first);
    if (status != YB_OK) {
        return status == YB_NO_MEMORY ? YB_NO_MEMORY : YB_TOO_LARGE;
    }
    status = yb_stats_shard_take(stats, &net->shard);
    return status == YB_OK ? yb_links_init(&net->links, stats, net->shard) : status;
}

enum yb_status
yb_net_create(const struct yb_net_options *options, struct yb_net **net_out)
{
    struct yb_net *net = calloc(1, sizeof(*net));
    enum yb_status status = YB_INVALID;

    YB_ASSERT(options->loop != NULL && options->self != NULL && options->random != NULL);
    if (net == NULL) {
        return YB_NO_MEMORY;
    }
    net->options = *options;
    yb_foreign_init(&net->foreign);
    if (!add_service(net, &yb_net_service) ||
        (options->service != NULL && !add_service(net, options->service))) {
        goto err_free;
    }
    if (options->stats != NULL) {
        status = take_shard(net, options->stats);
        if (status != YB_OK) {
            goto err_shard;
        }
    }
    net->magic = YB_NET_MAGIC;
    *net_out = net;
    return YB_OK;

err_shard:
    if (net->shard != NULL) {
        yb_stats_shard_release(&net->shard);
    }
err_free:
    free(net);
    return status;
}

void
yb_net_destroy(struct yb_net **net_ref)
{
    struct yb_net *net = *net_ref;

    YB_ASSERT_OBJ(net, YB_NET_MAGIC);
    YB_ASSERT(yb_net_idle(net));
    *net_ref = NULL;
    while (net->chunks != NULL) {
        struct yb_chunk *chunk = net->chunks;

        net->chunks = chunk->next;
        free(chunk);
    }
    while (net->requests != NULL) {
        struct yb_request *request = net->requests;

        net->requests = request->next;
        free(request);
    }
    if (net->shard != NULL) {
        yb_stats_shard_release(&net->shard);
    }
    yb_foreign_fini(&net->foreign);
    net->magic = 0;
    free(net);
}

void
yb_net_hand_over(struct yb_net *net)
{
    yb_stats_shard_hand_over(net->shard);
}

void
yb_net_shut(struct yb_net *net)
{
    struct yb_conn *next;

    for (struct yb_conn *conn = net->conns; conn != NULL; conn = next) {
        next = conn->next;
        yb_conn_close(conn, YB_CLOSED, "this side is stopping");
    }
}

uint64_t
yb_net_conns_ever(const struct yb_net *net)
{
    return net->conns_ever;
}

uint32_t
yb_net_close_peer(struct yb_net *net, struct yb_id identity, uint64_t ever)
{
    uint32_t count = 0;
    struct yb_conn *next;

    for (struct yb_conn *conn = net->conns; conn != NULL; conn = next) {
        next = conn->next;
        if (conn->opened && conn->number < ever && yb_id_equal(conn->peer.identity, identity)) {
            count++;
            yb_conn_close(conn, YB_FENCED, "this side has fenced the peer");
        }
    }
    return count;
}

void
yb_net_drain(struct yb_net *net)
{
    struct yb_conn *next;

    for (struct yb_conn *conn = net->conns; conn != NULL; conn = next) {
        next = conn->next;
        yb_conn_drain(conn);
    }
}

bool
yb_net_idle(const struct yb_net *net)
{
    return net->conn_count == 0 && net->requests_live == 0;
}

uint32_t
yb_net_request_count(const struct yb_net *net)
{
    return net->requests_live;
}

uint32_t
yb_net_conn_count(const struct yb_net *net)
{
    return net->conn_count;
}

struct yb_loop *
yb_net_loop(struct yb_net *net)
{
    return net->options.loop;
}

struct yb_links *
yb_net_links(struct yb_net *net)
{
    return &net->links;
}

const struct yb_stream_options *
yb_net_stream_options(const struct yb_net *net)
{
    return &net->options.stream;
}

const struct yb_hello_self *
yb_net_self(const struct yb_net *net)
{
    return net->options.self;
}

/* ---- counters ---------------------------------------------------------------------------- */

void
yb_net_count(struct yb_net *net, enum yb_net_stat stat, uint64_t delta)
{
    if (net->shard != NULL) {
        yb_stats_add(net->shard, net->stats_first + stat, delta);
    }
}

void
yb_net_count_status(struct yb_net *net, enum yb_net_stat stat, enum yb_status status)
{
    if (net->shard != NULL) {
        yb_stats_add_at(net->shard, net->stats_first + stat, yb_stats_status_index(status), 0, 1);
    }
}

void
yb_net_count_reason(struct yb_net *net, enum yb_hello_reason reason)
{
    if (net->shard != NULL) {
        yb_stats_add_at(net->shard, net->stats_first + YB_NET_STAT_REFUSED, (uint32_t)reason, 0, 1);
    }
}

void
yb_net_gauge(struct yb_net *net, enum yb_net_stat stat, int64_t delta)
{
    if (net->shard != NULL) {
        yb_stats_adjust(net->shard, net->stats_first + stat, delta);
    }
}

void
yb_net_observe(struct yb_net *net, enum yb_net_stat stat, uint64_t value)
{
    if (net->shard != NULL) {
        yb_stats_observe(net->shard, net->stats_first + stat, value);
    }
}

void
yb_net_observe_class(struct yb_net *net, enum yb_net_stat time, enum yb_net_stat count,
                     enum yb_class class, enum yb_status status, uint64_t took_ns)
{
    if (net->shard != NULL) {
        yb_stats_observe_at(net->shard, net->stats_first + time, (uint32_t) class, 0, took_ns);
        yb_stats_add_at(net->shard, net->stats_first + count, (uint32_t) class,
                        yb_stats_status_index(status), 1);
    }
}

uint64_t
yb_net_new_span(struct yb_net *net)
{
    return yb_span_new_id(net->options.random, net->options.random_context);
}

void
yb_net_span(struct yb_net *net, const struct yb_span *span)
{
    yb_span_write(net->options.spans, span);
}

/* ---- pools ------------------------------------------------------------------------------- */

struct yb_chunk *
yb_net_chunk_take(struct yb_net *net)
{
    struct yb_chunk *chunk = net->chunks;

    if (chunk != NULL) {
        net->chunks = chunk->next;
        net->chunk_count--;
    } else {
        chunk = malloc(sizeof(*chunk));
        if (chunk == NULL) {
            return NULL;
        }
    }
    chunk->next = NULL;
    chunk->begin = 0;
    chunk->end = 0;
    chunk->handed = false;
    chunk->credit_requests = 0;
    chunk->credit_bytes = 0;
    return chunk;
}

void
yb_net_chunk_give(struct yb_net *net, struct yb_chunk *chunk)
{
    if (net->chunk_count >= YB_CONN_CHUNKS_KEPT) {
        free(chunk);
        return;
    }
    chunk->next = net->chunks;
    net->chunks = chunk;
    net->chunk_count++;
}

struct yb_request *
yb_net_request_take(struct yb_net *net)
{
    struct yb_request *request = net->requests;

    if (net->requests_live >= net->options.limits.requests_max) {
        return NULL;
    }
    if (request != NULL) {
        net->requests = request->next;
    } else {
        request = malloc(sizeof(*request));
        if (request == NULL) {
            return NULL;
        }
        net->requests_made++;
    }
    net->requests_live++;
    return request;
}

void
yb_net_request_give(struct yb_net *net, struct yb_request *request)
{
    request->conn = NULL;
    request->next = net->requests;
    net->requests = request;
    net->requests_live--;
}
