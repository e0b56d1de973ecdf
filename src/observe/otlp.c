/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/otlp.h"

#include <inttypes.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cpus.h"
#include "observe/span_json.h"
#include "yuebing/version.h"

#define OTLP_MAGIC  0x6f746c70u
#define INTERVAL_NS YB_NS_PER_S
#define AGAIN_NS    YB_NS_PER_S /* After a failure, doubled each time ... */
#define AGAIN_MAX   (30 * YB_NS_PER_S)
#define CONNECT_NS  (2 * YB_NS_PER_S)
#define TIMEOUT_NS  (5 * YB_NS_PER_S)
#define TEXT_BYTES  64u
#define URL_BYTES   256u

/* Of the protocol: SpanKind and StatusCode. */
enum { KIND_INTERNAL = 1, KIND_SERVER = 2, KIND_CLIENT = 3 };
enum { STATUS_OK = 1, STATUS_ERROR = 2 };

/* clang-format off */
#define OTLP_STATS(X)                                                              \
    X(EXPORTED, COUNTER, COUNT, "exported", NULL, NULL,                            \
      "spans that the collector took")                                             \
    X(DROPPED,  COUNTER, COUNT, "dropped", NULL, NULL,                             \
      "spans that it refused, or that were left at the end")                       \
    X(LOST,     COUNTER, COUNT, "lost", NULL, NULL,                                \
      "spans that were overwritten before it could have them")                     \
    X(FAILURES, COUNTER, COUNT, "failures", NULL, NULL,                            \
      "requests that were not answered, or refused")
/* clang-format on */

enum {
#define X(id, ...) STAT_##id,
    OTLP_STATS(X)
#undef X
        STAT_COUNT
};
static const struct yb_stats_metric metrics[] = {OTLP_STATS(YB_STATS_ROW)};

struct yb_otlp {
    uint32_t magic;
    struct yb_otlp_options options;
    char url[URL_BYTES];
    char kind[TEXT_BYTES];
    char name[TEXT_BYTES];
    struct yb_curl *curl;
    pthread_t thread;
    sem_t stop; /* Posted once. */
    _Atomic(bool) stopping;

    /* Of its thread. */
    uint32_t stats_first;
    struct yb_stats_shard *shard;
    uint64_t lost;
    struct yb_span spans[YB_OTLP_BATCH];
    uint32_t count;
    uint64_t again_ns; /* 0: the last request was answered. */
};

/* ---- the form -------------------------------------------------------------------------------- */

static json_t *
text_attribute(const char *key, const char *text)
{
    return json_pack("{s:s, s:{s:s}}", "key", key, "value", "stringValue", text);
}

/* 64-bit numbers are texts in JSON. */
static json_t *
number_attribute(const char *key, uint64_t number)
{
    char text[24];

    (void)snprintf(text, sizeof(text), "%" PRIu64, number);
    return json_pack("{s:s, s:{s:s}}", "key", key, "value", "intValue", text);
}

static json_t *
attributes_json(const struct yb_span *span)
{
    json_t *list = json_array();
    char peer[33];

    (void)json_array_append_new(
        list, text_attribute("yuebing.class", yb_class_name((enum yb_class)span->work_class)));
    if (span->number != 0) {
        (void)json_array_append_new(list, number_attribute("yuebing.number", span->number));
    }
    if (span->bytes != 0) {
        (void)json_array_append_new(list, number_attribute("yuebing.bytes", span->bytes));
    }
    if (span->began_ns > span->start_ns) {
        (void)json_array_append_new(
            list, number_attribute("yuebing.waited_ns", span->began_ns - span->start_ns));
    }
    if (span->tier != YB_SPAN_TIER_NONE) {
        (void)json_array_append_new(list,
                                    text_attribute("yuebing.tier", yb_span_tier_name(span->tier)));
    }
    if (span->path != YB_SPAN_PATH_NONE) {
        (void)json_array_append_new(list,
                                    text_attribute("yuebing.path", yb_span_path_name(span->path)));
    }
    if (!yb_id_is_none(span->peer)) {
        yb_id_format(span->peer, peer);
        (void)json_array_append_new(list, text_attribute("yuebing.peer", peer));
    }
    return list;
}

static int
kind_of(const struct yb_span *span)
{
    switch (span->kind) {
    case YB_SPAN_KIND_CALL:
    case YB_SPAN_KIND_CONNECT: return KIND_CLIENT;
    case YB_SPAN_KIND_SERVE:
    case YB_SPAN_KIND_HANDSHAKE:
    case YB_SPAN_KIND_REQUEST:
    case YB_SPAN_KIND_DECIDE:
    case YB_SPAN_KIND_DONE: return KIND_SERVER;
    default: return KIND_INTERNAL;
    }
}

static json_t *
span_json(const struct yb_span *span)
{
    const enum yb_status status = (enum yb_status)span->outcome;
    char trace[33];
    char id[YB_SPAN_ID_DIGITS + 1];
    char parent[YB_SPAN_ID_DIGITS + 1];
    char start[24];
    char end[24];

    yb_id_format(span->trace, trace);
    yb_span_id_format(span->span, id);
    yb_span_id_format(span->parent, parent);
    (void)snprintf(start, sizeof(start), "%" PRIu64, span->wall_ns);
    (void)snprintf(end, sizeof(end), "%" PRIu64, span->wall_ns + (span->end_ns - span->start_ns));
    return json_pack("{s:s, s:s, s:s*, s:s, s:i, s:s, s:s, s:o, s:{s:i, s:s*}}", "traceId", trace,
                     "spanId", id, "parentSpanId", span->parent != 0 ? parent : NULL, "name",
                     yb_span_kind_name(span->kind), "kind", kind_of(span), "startTimeUnixNano",
                     start, "endTimeUnixNano", end, "attributes", attributes_json(span), "status",
                     "code", status == YB_OK ? STATUS_OK : STATUS_ERROR, "message",
                     status == YB_OK ? NULL : yb_status_name(status));
}

json_t *
yb_otlp_json(const struct yb_otlp_resource *resource, const struct yb_span *spans, uint32_t count)
{
    json_t *attributes = json_array();
    json_t *list = json_array();
    char identity[33];

    yb_id_format(resource->identity, identity);
    (void)json_array_append_new(attributes, text_attribute("service.name", "yuebing"));
    (void)json_array_append_new(attributes, text_attribute("service.version", YB_VERSION_STRING));
    (void)json_array_append_new(attributes, text_attribute("service.instance.id", identity));
    (void)json_array_append_new(attributes, text_attribute("yuebing.kind", resource->kind));
    (void)json_array_append_new(attributes, text_attribute("yuebing.name", resource->name));
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, span_json(&spans[i]));
    }
    return json_pack("{s:[{s:{s:o}, s:[{s:{s:s, s:s}, s:o}]}]}", "resourceSpans", "resource",
                     "attributes", attributes, "scopeSpans", "scope", "name", "yuebing", "version",
                     YB_VERSION_STRING, "spans", list);
}

/* ---- sending --------------------------------------------------------------------------------- */

static void
add_to(struct yb_otlp *otlp, uint32_t stat, uint64_t more)
{
    if (otlp->shard != NULL) {
        yb_stats_add(otlp->shard, otlp->stats_first + stat, more);
    }
}

/* Keep spans that have a trace; returns how many. */
static uint32_t
keep_traced(struct yb_span *spans, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (!yb_id_is_none(spans[i].trace) && spans[i].span != 0) {
            spans[kept++] = spans[i];
        }
    }
    return kept;
}

/* Fill the batch from the rings, and learn what they have lost. */
static void
fill(struct yb_otlp *otlp)
{
    uint64_t lost = 0;

    for (uint32_t i = 0; i < YB_OTLP_RINGS_MAX; i++) {
        struct yb_span_counts counts;

        if (otlp->options.rings[i] == NULL) {
            continue;
        }
        otlp->count += keep_traced(otlp->spans + otlp->count,
                                   yb_span_drain(otlp->options.rings[i], otlp->spans + otlp->count,
                                                 YB_OTLP_BATCH - otlp->count));
        yb_span_counts(otlp->options.rings[i], &counts);
        lost += counts.lost;
    }
    add_to(otlp, STAT_LOST, lost - otlp->lost);
    otlp->lost = lost;
}

/* Whether it makes sense to send the same again. */
static bool
may_be_again(long code)
{
    return code == 429 || code == 502 || code == 503 || code == 504;
}

static void
put_off(struct yb_otlp *otlp, long code, const char *why)
{
    if (otlp->again_ns == 0) {
        yb_log_warn(otlp->options.log, "otlp",
                    "the collector does not take spans; they are kept as long as there is room",
                    yb_log_str("url", otlp->url), yb_log_str("why", why),
                    yb_log_u64("code", (uint64_t)code));
        otlp->again_ns = AGAIN_NS;
    } else {
        otlp->again_ns = otlp->again_ns * 2 < AGAIN_MAX ? otlp->again_ns * 2 : AGAIN_MAX;
    }
    add_to(otlp, STAT_FAILURES, 1);
}

/* Send the batch. False: it stays, for later. */
static bool
send_batch(struct yb_otlp *otlp)
{
    static const char *const headers[] = {"Content-Type: application/json"};
    const struct yb_otlp_resource *resource = &otlp->options.resource;
    json_t *value = yb_otlp_json(resource, otlp->spans, otlp->count);
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    const struct yb_curl_request request = {
        .method = "POST",
        .url = otlp->url,
        .headers = headers,
        .header_count = 1,
        .body = text,
        .body_bytes = text != NULL ? strlen(text) : 0,
        .connect_ns = CONNECT_NS,
        .timeout_ns = otlp->options.timeout_ns,
    };
    char why[YB_CURL_ERROR_BYTES] = "";
    long code = 0;
    enum yb_status status =
        text != NULL ? yb_curl_ask(otlp->curl, &request, &code, why) : YB_NO_MEMORY;

    json_decref(value);
    free(text);
    if (status != YB_OK || may_be_again(code)) {
        put_off(otlp, code, status != YB_OK ? why : "it is busy");
        return false;
    }
    if (code / 100 == 2) {
        add_to(otlp, STAT_EXPORTED, otlp->count);
    } else {
        yb_log_warn(otlp->options.log, "otlp", "the collector refuses spans; they are dropped",
                    yb_log_str("url", otlp->url), yb_log_u64("code", (uint64_t)code));
        add_to(otlp, STAT_FAILURES, 1);
        add_to(otlp, STAT_DROPPED, otlp->count);
    }
    otlp->count = 0;
    otlp->again_ns = 0;
    return true;
}

static void
rest(struct yb_otlp *otlp, uint64_t length_ns)
{
    const uint64_t until_ns = yb_clock_now(otlp->options.clock) + length_ns;
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / YB_NS_PER_S),
        .tv_nsec = (long)(until_ns % YB_NS_PER_S),
    };

    (void)sem_clockwait(&otlp->stop, CLOCK_MONOTONIC, &until);
}

static void *
run(void *owner)
{
    struct yb_otlp *otlp = owner;

    yb_cpus_as_process();
    while (!atomic_load(&otlp->stopping)) {
        rest(otlp, otlp->again_ns != 0 ? otlp->again_ns : INTERVAL_NS);
        do {
            fill(otlp);
        } while (otlp->count > 0 && send_batch(otlp) && !atomic_load(&otlp->stopping));
    }
    fill(otlp); /* What has ended since. */
    if (otlp->count > 0 && otlp->again_ns == 0) {
        (void)send_batch(otlp);
    }
    add_to(otlp, STAT_DROPPED, otlp->count);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

static void
free_otlp(struct yb_otlp *otlp)
{
    if (otlp->shard != NULL) {
        yb_stats_shard_release(&otlp->shard);
    }
    if (otlp->curl != NULL) {
        yb_curl_destroy(&otlp->curl);
    }
    (void)sem_destroy(&otlp->stop);
    otlp->magic = 0;
    free(otlp);
}

static enum yb_status
prepare(struct yb_otlp *otlp, char why_out[YB_CURL_ERROR_BYTES])
{
    struct yb_stats *stats = otlp->options.stats;
    enum yb_status status = yb_curl_create(&otlp->curl, why_out);

    if (status == YB_OK && stats != NULL) {
        status = yb_stats_register(stats, "otlp", metrics, STAT_COUNT, &otlp->stats_first);
    }
    if (status == YB_OK && stats != NULL) {
        status = yb_stats_shard_take(stats, &otlp->shard);
    }
    return status;
}

enum yb_status
yb_otlp_create(const struct yb_otlp_options *options, struct yb_otlp **otlp_out,
               char why_out[YB_CURL_ERROR_BYTES])
{
    const char *url = options->url;
    struct yb_otlp *otlp;
    enum yb_status status;

    if ((strncmp(url, "http://", 7) != 0 && strncmp(url, "https://", 8) != 0) ||
        strlen(url) >= URL_BYTES) {
        (void)snprintf(why_out, YB_CURL_ERROR_BYTES,
                       "trace.otlp_url cannot be \"%.200s\"; write the collector's whole URL, such "
                       "as http://127.0.0.1:4318/v1/traces",
                       url);
        return YB_INVALID;
    }
    otlp = calloc(1, sizeof(*otlp));
    (void)snprintf(why_out, YB_CURL_ERROR_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (otlp == NULL) {
        return YB_NO_MEMORY;
    }
    otlp->magic = OTLP_MAGIC;
    otlp->options = *options;
    otlp->options.timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_NS;
    (void)snprintf(otlp->url, sizeof(otlp->url), "%s", url);
    (void)snprintf(otlp->kind, sizeof(otlp->kind), "%s", options->resource.kind);
    (void)snprintf(otlp->name, sizeof(otlp->name), "%s", options->resource.name);
    otlp->options.resource.kind = otlp->kind;
    otlp->options.resource.name = otlp->name;
    (void)sem_init(&otlp->stop, 0, 0);
    status = prepare(otlp, why_out);
    if (status == YB_OK && pthread_create(&otlp->thread, NULL, run, otlp) != 0) {
        status = YB_NO_MEMORY;
    }
    if (status != YB_OK) {
        free_otlp(otlp);
        return status;
    }
    *otlp_out = otlp;
    return YB_OK;
}

void
yb_otlp_destroy(struct yb_otlp **otlp_ref)
{
    struct yb_otlp *otlp = *otlp_ref;

    YB_ASSERT_OBJ(otlp, OTLP_MAGIC);
    *otlp_ref = NULL;
    atomic_store(&otlp->stopping, true);
    (void)sem_post(&otlp->stop);
    YB_ASSERT(pthread_join(otlp->thread, NULL) == 0);
    free_otlp(otlp);
}
