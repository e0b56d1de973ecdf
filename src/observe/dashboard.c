/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/dashboard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/embed.h"
#include "observe/chart_js.h"

#define DASHBOARD_MAGIC 0x64617368u
#define BEAT_NS         (4 * YB_NS_PER_S) /* Below the port's idle time. */
#define SAMPLE_NS       (3 * YB_NS_PER_S)
#define JSON_TYPE       "application/json"

YB_EMBED(yb_dashboard_html, YB_DASHBOARD_DIR "/dashboard.html");
YB_EMBED(yb_dashboard_css, YB_DASHBOARD_DIR "/dashboard.css");
YB_EMBED(yb_dashboard_js, YB_DASHBOARD_DIR "/dashboard.js");

struct yb_dashboard {
    uint32_t magic;
    struct yb_log *log;
    char why[YB_GATHER_WHY_BYTES];      /* Why nothing is gathered. */
    _Atomic(struct yb_gather *) gather; /* NULL until begin. */
    _Atomic uint32_t listeners;
};

static bool
tell(struct yb_http_told *told, unsigned code, const char *type, const char *text, size_t length)
{
    told->code = code;
    told->type = type;
    told->text = malloc(length + 1);
    if (told->text != NULL) {
        memcpy(told->text, text, length);
        told->text[length] = '\0';
        told->length = length;
    }
    return true;
}

static bool
tell_json(struct yb_http_told *told, unsigned code, json_t *value)
{
    told->code = code;
    told->type = JSON_TYPE;
    told->text = json_dumps(value, JSON_COMPACT);
    told->length = told->text != NULL ? strlen(told->text) : 0;
    json_decref(value);
    return true;
}

static bool
say(struct yb_http_told *told, unsigned code, const char *status, const char *text)
{
    return tell_json(told, code, json_pack("{s:s, s:s}", "status", status, "text", text));
}

/* ---- samples -------------------------------------------------------------------------------- */

struct stream {
    struct yb_dashboard *dashboard;
    uint64_t number; /* Of the last sample that was begun. */
    const struct yb_gather_sample *sample;
    size_t at; /* Of the sample, with what frames it. */
};

static const char frame_head[] = "data: ";
static const char frame_end[] = "\n\n";

/* Copy from the framed sample what has not been sent. A sample is one line of JSON. */
static size_t
send_sample(struct stream *stream, char *out, size_t room)
{
    const size_t head = sizeof(frame_head) - 1;
    const struct {
        const char *bytes;
        size_t begin;
        size_t end;
    } parts[] = {
        {frame_head, 0, head},
        {stream->sample->text, head, head + stream->sample->length},
        {frame_end, head + stream->sample->length, head + stream->sample->length + 2},
    };
    size_t sent = 0;

    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        size_t left = parts[i].end > stream->at ? parts[i].end - stream->at : 0;
        size_t count = left < room - sent ? left : room - sent;

        if (count > 0) {
            memcpy(out + sent, parts[i].bytes + (stream->at - parts[i].begin), count);
            stream->at += count;
            sent += count;
        }
    }
    if (stream->at == parts[2].end) {
        yb_gather_release(stream->dashboard->gather, &stream->sample);
    }
    return sent;
}

static long
read_stream(void *owner, char *out, size_t room)
{
    static const char beat[] = ":\n\n"; /* A comment: the listener is still there, or is not. */
    struct stream *stream = owner;
    struct yb_gather *gather = stream->dashboard->gather;

    if (stream->sample == NULL) {
        stream->sample = yb_gather_next(gather, stream->number, BEAT_NS);
        stream->at = 0;
        if (stream->sample == NULL) {
            if (yb_gather_stopping(gather)) {
                return -1;
            }
            YB_ASSERT(room >= sizeof(beat) - 1);
            memcpy(out, beat, sizeof(beat) - 1);
            return (long)sizeof(beat) - 1;
        }
        stream->number = stream->sample->number;
    }
    return (long)send_sample(stream, out, room);
}

static void
close_stream(void *owner)
{
    struct stream *stream = owner;

    if (stream->sample != NULL) {
        yb_gather_release(stream->dashboard->gather, &stream->sample);
    }
    (void)atomic_fetch_sub(&stream->dashboard->listeners, 1);
    free(stream);
}

static bool
begin_stream(struct yb_dashboard *dashboard, const struct yb_http_asked *asked,
             struct yb_http_told *told)
{
    struct stream *stream;

    if (dashboard->gather == NULL) {
        return say(told, 503, "UNSUPPORTED", dashboard->why);
    }
    if (atomic_fetch_add(&dashboard->listeners, 1) >= YB_DASHBOARD_LISTENERS_MAX) { /* D1 */
        (void)atomic_fetch_sub(&dashboard->listeners, 1);
        told->retry_after_s = 10;
        return say(told, 503, "BUSY", "too many look at this port already");
    }
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        (void)atomic_fetch_sub(&dashboard->listeners, 1);
        return true; /* Without a text: no memory. */
    }
    stream->dashboard = dashboard;
    if (yb_http_argument(asked, "after") != NULL) {
        stream->number = strtoull(yb_http_argument(asked, "after"), NULL, 10);
    }
    told->type = "text/event-stream";
    told->read = read_stream;
    told->close = close_stream;
    told->stream = stream;
    return true;
}

static bool
tell_sample(struct yb_dashboard *dashboard, struct yb_http_told *told)
{
    const struct yb_gather_sample *sample;

    if (dashboard->gather == NULL) {
        return say(told, 503, "UNSUPPORTED", dashboard->why);
    }
    sample = yb_gather_latest(dashboard->gather, SAMPLE_NS);
    if (sample == NULL) {
        return say(told, 503, "AGAIN", "there is no sample yet");
    }
    (void)tell(told, 200, JSON_TYPE, sample->text, sample->length);
    yb_gather_release(dashboard->gather, &sample);
    return true;
}

/* ---- events --------------------------------------------------------------------------------- */

static bool
tell_events(struct yb_dashboard *dashboard, const struct yb_http_asked *asked,
            struct yb_http_told *told)
{
    const char *given = yb_http_argument(asked, "after");
    uint64_t after = given != NULL ? strtoull(given, NULL, 10) : 0;
    struct yb_log_kept kept[YB_LOG_KEPT_MAX];
    uint32_t count = yb_log_recent(dashboard->log, after, kept, YB_LOG_KEPT_MAX);
    json_t *rows = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(
            rows, json_pack("{s:I, s:I, s:s, s:s}", "number", (json_int_t)kept[i].number, "at_ms",
                            (json_int_t)(kept[i].wall_ns / YB_NS_PER_MS), "level",
                            yb_log_level_name(kept[i].level), "text", kept[i].text));
    }
    if (count > 0) {
        after = kept[count - 1].number;
    } else if (yb_log_recent(dashboard->log, 0, kept, 1) == 0) {
        after = 0; /* The asker knew another process. */
    }
    return tell_json(told, 200, json_pack("{s:I, s:o}", "last", (json_int_t)after, "events", rows));
}

/* ---- paths ---------------------------------------------------------------------------------- */

static bool
tell_file(const char *path, struct yb_http_told *told)
{
    size_t chart_bytes;
    const char *chart = yb_chart_js(&chart_bytes);
    const struct {
        const char *path;
        const char *type;
        const char *text;
        size_t length;
    } files[] = {
        {"/", "text/html; charset=utf-8", yb_dashboard_html,
         (size_t)(yb_dashboard_html_end - yb_dashboard_html)},
        {"/dashboard.css", "text/css; charset=utf-8", yb_dashboard_css,
         (size_t)(yb_dashboard_css_end - yb_dashboard_css)},
        {"/dashboard.js", "text/javascript; charset=utf-8", yb_dashboard_js,
         (size_t)(yb_dashboard_js_end - yb_dashboard_js)},
        {"/chart.js", "text/javascript; charset=utf-8", chart, chart_bytes},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (strcmp(path, files[i].path) == 0) {
            return tell(told, 200, files[i].type, files[i].text, files[i].length);
        }
    }
    return false;
}

bool
yb_dashboard_answer(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    struct yb_dashboard *dashboard = context;

    YB_ASSERT_OBJ(dashboard, DASHBOARD_MAGIC);
    if (strcmp(asked->method, "GET") != 0) {
        return false;
    }
    if (strcmp(asked->path, "/v1/cluster/stream") == 0) {
        return begin_stream(dashboard, asked, told_out);
    }
    if (strcmp(asked->path, "/v1/cluster") == 0) {
        return tell_sample(dashboard, told_out);
    }
    if (strcmp(asked->path, "/v1/events") == 0) {
        return tell_events(dashboard, asked, told_out);
    }
    return tell_file(asked->path, told_out);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct yb_dashboard *
yb_dashboard_create(struct yb_log *log)
{
    struct yb_dashboard *dashboard = calloc(1, sizeof(*dashboard));

    if (dashboard != NULL) {
        dashboard->magic = DASHBOARD_MAGIC;
        dashboard->log = log;
        (void)snprintf(dashboard->why, sizeof(dashboard->why), "nothing is gathered here yet");
    }
    return dashboard;
}

enum yb_status
yb_dashboard_begin(struct yb_dashboard *dashboard, const struct yb_gather_options *options,
                   char why_out[YB_GATHER_WHY_BYTES])
{
    struct yb_gather *gather = NULL;
    enum yb_status status = yb_gather_create(options, &gather, why_out);

    YB_ASSERT_OBJ(dashboard, DASHBOARD_MAGIC);
    if (status == YB_UNSUPPORTED) {
        (void)snprintf(dashboard->why, sizeof(dashboard->why), "%s", why_out);
        return YB_OK;
    }
    dashboard->gather = gather;
    return status;
}

void
yb_dashboard_stop(struct yb_dashboard *dashboard)
{
    YB_ASSERT_OBJ(dashboard, DASHBOARD_MAGIC);
    if (dashboard->gather != NULL) {
        yb_gather_stop(dashboard->gather);
    }
}

void
yb_dashboard_destroy(struct yb_dashboard **dashboard_ref)
{
    struct yb_dashboard *dashboard = *dashboard_ref;
    struct yb_gather *gather = dashboard->gather;

    YB_ASSERT_OBJ(dashboard, DASHBOARD_MAGIC);
    YB_ASSERT(atomic_load(&dashboard->listeners) == 0);
    *dashboard_ref = NULL;
    if (gather != NULL) {
        yb_gather_destroy(&gather);
    }
    dashboard->magic = 0;
    free(dashboard);
}
