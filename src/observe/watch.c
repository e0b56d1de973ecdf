/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/watch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/lock.h"
#include "observe/events.h"
#include "observe/span_json.h"

#define WATCH_MAGIC       0x77617463u
#define SPANS_MAX         16384u /* Of one answer. */
#define SPANS_NEWEST      1024u  /* Where nothing particular is asked for. */
#define SPANS_A_TIME      256u   /* Of one event. */
#define SLOWEST_MAX       100u
#define NUMBERED_MAX      16u /* Traces in which the same number is looked for. */
#define INTERVAL_MS       1000u
#define INTERVAL_LEAST_MS 100u
#define INTERVAL_MOST_MS  60000u

struct yb_watch {
    uint32_t magic;
    struct yb_watch_options options;

    struct yb_events events; /* W1 */

    struct yb_lock lock; /* WATCH; all below. */
    pthread_cond_t over; /* It stops. */
    bool stops;
};

/* ---- parts of answers ------------------------------------------------------------------------ */

/* Who speaks, and when, with one member more, which is consumed. */
static json_t *
envelope(const struct yb_watch *watch, const char *name, json_t *value)
{
    const struct yb_watch_options *options = &watch->options;
    char identity[33];

    yb_id_format(options->identity, identity);
    return json_pack("{s:{s:s, s:s, s:s, s:I}, s:I, s:I, s:o}", "process", "kind", options->kind,
                     "name", options->name, "identity", identity, "pid", (json_int_t)getpid(),
                     "wall_ns", (json_int_t)yb_clock_wall(options->clock), "now_ns",
                     (json_int_t)yb_clock_now(options->clock), name, value);
}

static json_t *
stats_json(const struct yb_watch *watch)
{
    return envelope(watch, "stats", watch->options.stats(watch->options.context));
}

static json_t *
spans_json(const struct yb_watch *watch, const struct yb_span *spans, uint32_t count)
{
    json_t *list = json_array();

    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(list, yb_span_json(&spans[i]));
    }
    return envelope(watch, "spans", list);
}

/* ---- spans ----------------------------------------------------------------------------------- */

/* Copy the newest of all rings; *count_out is how many. The caller frees them. NULL: no memory. */
static struct yb_span *
copy_spans(const struct yb_watch *watch, uint32_t *count_out)
{
    struct yb_span *spans = malloc(sizeof(*spans) * SPANS_MAX * YB_WATCH_RINGS_MAX);
    uint32_t count = 0;

    for (uint32_t i = 0; spans != NULL && i < YB_WATCH_RINGS_MAX; i++) {
        if (watch->options.rings[i] != NULL) {
            count += yb_span_snapshot(watch->options.rings[i], spans + count, SPANS_MAX);
        }
    }
    *count_out = count;
    return spans;
}

/* Keep those of the trace; returns how many. */
static uint32_t
keep_trace(struct yb_span *spans, uint32_t count, struct yb_id trace)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (yb_id_equal(spans[i].trace, trace)) {
            spans[kept++] = spans[i];
        }
    }
    return kept;
}

/* Whether others know the whole by this span: `number` is then a decision's. */
static bool
names_a_request(const struct yb_span *span)
{
    return span->kind == YB_SPAN_KIND_REQUEST || span->kind == YB_SPAN_KIND_DECIDE;
}

static uint32_t
keep_number(struct yb_span *spans, uint32_t count, uint64_t number)
{
    struct yb_id traces[NUMBERED_MAX];
    uint32_t trace_count = 0;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count && trace_count < NUMBERED_MAX; i++) {
        if (names_a_request(&spans[i]) && spans[i].number == number) {
            traces[trace_count++] = spans[i].trace;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        bool wanted = false;

        for (uint32_t j = 0; j < trace_count && !wanted; j++) {
            wanted = yb_id_equal(spans[i].trace, traces[j]);
        }
        if (wanted) {
            spans[kept++] = spans[i];
        }
    }
    return kept;
}

/* The longest requests; where nothing is a request, what nothing else caused. */
static uint32_t
keep_slowest(struct yb_span *spans, uint32_t count, uint32_t slowest_max)
{
    struct yb_span slowest[SLOWEST_MAX];
    uint32_t kept = 0;
    bool requests = false;

    for (uint32_t i = 0; i < count; i++) {
        requests = requests || spans[i].kind == YB_SPAN_KIND_REQUEST;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (requests ? spans[i].kind == YB_SPAN_KIND_REQUEST
                     : spans[i].parent == 0 && spans[i].kind != YB_SPAN_KIND_CONNECT &&
                           spans[i].kind != YB_SPAN_KIND_HANDSHAKE) {
            spans[kept++] = spans[i];
        }
    }
    kept = yb_span_slowest(spans, kept, slowest, slowest_max);
    memcpy(spans, slowest, sizeof(*spans) * kept);
    return kept;
}

/* Keep what is asked for; false: the question is none, and *told_out says why. */
static bool
keep_asked(const struct yb_http_asked *asked, struct yb_span *spans, uint32_t *count,
           struct yb_http_told *told_out)
{
    const char *trace_text = yb_http_argument(asked, "trace");
    struct yb_id trace;
    uint64_t number = 0;
    uint64_t slowest = 0;

    if (trace_text != NULL && !yb_id_parse(trace_text, &trace)) {
        *told_out = yb_http_refusal(400, YB_INVALID, "trace: 32 hexadecimal digits");
        return false;
    }
    if (!yb_http_number(asked, "number", INT64_MAX, &number) ||
        !yb_http_number(asked, "slowest", SLOWEST_MAX, &slowest)) {
        *told_out = yb_http_refusal(400, YB_INVALID, "number: a decision's; slowest: 1 to 100");
        return false;
    }
    if (trace_text != NULL) {
        *count = keep_trace(spans, *count, trace);
    } else if (number != 0) {
        *count = keep_number(spans, *count, number);
    } else if (slowest != 0) {
        *count = keep_slowest(spans, *count, (uint32_t)slowest);
    } else if (*count > SPANS_NEWEST) {
        memmove(spans, spans + *count - SPANS_NEWEST, sizeof(*spans) * SPANS_NEWEST);
        *count = SPANS_NEWEST;
    }
    return true;
}

static struct yb_http_told
spans_answer(const struct yb_watch *watch, const struct yb_http_asked *asked)
{
    uint32_t count;
    struct yb_span *spans = copy_spans(watch, &count);
    struct yb_http_told told = {.code = 200}; /* Without a text: no memory. */

    if (spans != NULL && keep_asked(asked, spans, &count, &told)) {
        told = yb_http_json(200, spans_json(watch, spans, count));
    }
    free(spans);
    return told;
}

/* ---- streams --------------------------------------------------------------------------------- */

struct stream {
    struct yb_watch *watch;
    uint64_t interval_ns;
    uint64_t next_ns; /* The next `stats`. */
    uint64_t cursors[YB_WATCH_RINGS_MAX];
    char *text; /* Of the last events. */
    size_t length;
};

/* Consume a value: it becomes an event, behind the others. */
static void
add_event(FILE *out, const char *name, json_t *value)
{
    (void)fprintf(out, "event: %s\ndata: ", name);
    (void)json_dumpf(value, out, JSON_COMPACT);
    (void)fputs("\n\n", out);
    json_decref(value);
}

/* Those that ended since the last time. */
static void
add_spans(struct stream *stream, FILE *out)
{
    struct yb_span spans[SPANS_A_TIME];

    for (uint32_t i = 0; i < YB_WATCH_RINGS_MAX; i++) {
        const struct yb_span_ring *ring = stream->watch->options.rings[i];
        uint32_t count =
            ring != NULL ? yb_span_follow(ring, &stream->cursors[i], spans, SPANS_A_TIME) : 0;

        if (count > 0) {
            add_event(out, "spans", spans_json(stream->watch, spans, count));
        }
    }
}

/* What has ended before is no news. */
static void
begin_cursors(struct stream *stream)
{
    struct yb_span none;

    for (uint32_t i = 0; i < YB_WATCH_RINGS_MAX; i++) {
        stream->cursors[i] = UINT64_MAX;
        if (stream->watch->options.rings[i] != NULL) {
            (void)yb_span_follow(stream->watch->options.rings[i], &stream->cursors[i], &none, 0);
        }
    }
}

/* Wait until it is time. False: it is over (W2). */
static bool
await_turn(struct stream *stream)
{
    struct yb_watch *watch = stream->watch;
    uint64_t now_ns = yb_clock_now(watch->options.clock);
    bool over;

    yb_lock_acquire(&watch->lock);
    while (!watch->stops && now_ns < stream->next_ns) {
        (void)yb_lock_wait(&watch->lock, &watch->over, stream->next_ns - now_ns);
        now_ns = yb_clock_now(watch->options.clock);
    }
    over = watch->stops;
    yb_lock_release(&watch->lock);
    stream->next_ns = now_ns + stream->interval_ns;
    return !over;
}

static bool
next_events(void *owner, const char **text_out, size_t *length_out)
{
    struct stream *stream = owner;
    FILE *out;

    free(stream->text);
    stream->text = NULL;
    if (!await_turn(stream)) {
        return false;
    }
    out = open_memstream(&stream->text, &stream->length);
    if (out == NULL) {
        stream->text = NULL;
        return false;
    }
    add_event(out, "stats", stats_json(stream->watch));
    add_spans(stream, out);
    if (fclose(out) != 0 || stream->length == 0) {
        return false;
    }
    *text_out = stream->text;
    *length_out = stream->length;
    return true;
}

static void
close_stream(void *owner)
{
    struct stream *stream = owner;

    free(stream->text);
    free(stream);
}

static struct yb_http_told
stream_answer(struct yb_watch *watch, const struct yb_http_asked *asked)
{
    uint64_t interval_ms = INTERVAL_MS;
    struct stream *stream;
    struct yb_http_told told;

    if (!yb_http_number(asked, "interval_ms", INTERVAL_MOST_MS, &interval_ms) ||
        interval_ms < INTERVAL_LEAST_MS) {
        return yb_http_refusal(400, YB_INVALID, "interval_ms: 100 to 60000");
    }
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return yb_http_refusal(503, YB_NO_MEMORY, yb_status_text(YB_NO_MEMORY));
    }
    stream->watch = watch;
    stream->interval_ns = interval_ms * YB_NS_PER_MS;
    begin_cursors(stream);
    yb_events_listen(&watch->events, &(struct yb_events_source){next_events, close_stream, stream},
                     &told);
    return told;
}

/* ---- questions ------------------------------------------------------------------------------- */

bool
yb_watch_answer(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    struct yb_watch *watch = context;
    const bool stats = strcmp(asked->path, "/v1/stats") == 0;
    const bool spans = strcmp(asked->path, "/v1/spans") == 0;
    const bool stream = strcmp(asked->path, "/v1/stream") == 0;

    YB_ASSERT_OBJ(watch, WATCH_MAGIC);
    if (!stats && !spans && !stream) {
        return false;
    }
    if (strcmp(asked->method, "GET") != 0 && (stream || strcmp(asked->method, "HEAD") != 0)) {
        *told_out = yb_http_refusal(405, YB_INVALID, "this path takes GET");
    } else if (stats) {
        *told_out = yb_http_json(200, stats_json(watch));
    } else if (spans) {
        *told_out = spans_answer(watch, asked);
    } else {
        *told_out = stream_answer(watch, asked);
    }
    return true;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_watch_create(const struct yb_watch_options *options, struct yb_watch **watch_out)
{
    struct yb_watch *watch = calloc(1, sizeof(*watch));

    YB_ASSERT(options->clock != NULL && options->stats != NULL && options->kind != NULL);
    if (watch == NULL) {
        return YB_NO_MEMORY;
    }
    watch->magic = WATCH_MAGIC;
    watch->options = *options;
    watch->events.listeners_max =
        options->streams_max != 0 ? options->streams_max : YB_EVENTS_LISTENERS_MAX;
    yb_lock_init(&watch->lock, YB_LOCK_WATCH);
    yb_lock_cond_init(&watch->over);
    *watch_out = watch;
    return YB_OK;
}

void
yb_watch_stop(struct yb_watch *watch)
{
    YB_ASSERT_OBJ(watch, WATCH_MAGIC);
    yb_lock_acquire(&watch->lock);
    watch->stops = true;
    (void)pthread_cond_broadcast(&watch->over);
    yb_lock_release(&watch->lock);
}

void
yb_watch_destroy(struct yb_watch **watch_ref)
{
    struct yb_watch *watch = *watch_ref;

    YB_ASSERT_OBJ(watch, WATCH_MAGIC);
    YB_ASSERT(atomic_load(&watch->events.listeners) == 0);
    *watch_ref = NULL;
    watch->magic = 0;
    (void)pthread_cond_destroy(&watch->over);
    yb_lock_fini(&watch->lock);
    free(watch);
}
