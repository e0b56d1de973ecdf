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
#include "observe/events.h"

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
    struct yb_events events;            /* D1 */
};

/* ---- samples -------------------------------------------------------------------------------- */

struct stream {
    struct yb_dashboard *dashboard;
    uint64_t number; /* Of the last sample that was begun. */
    const struct yb_gather_sample *sample;
    bool framed; /* Its head was said. */
};

/* A sample is one line of JSON; what frames it are pieces of their own. */
static bool
next_piece(void *owner, const char **text_out, size_t *length_out)
{
    static const char beat[] = ":\n\n"; /* A comment: the listener is still there, or is not. */
    static const char head[] = "data: ";
    static const char end[] = "\n\n";
    struct stream *stream = owner;
    struct yb_gather *gather = stream->dashboard->gather;

    if (stream->sample != NULL && !stream->framed) {
        stream->framed = true;
        *text_out = stream->sample->text;
        *length_out = stream->sample->length;
        return true;
    }
    if (stream->sample != NULL) {
        yb_gather_release(gather, &stream->sample);
        *text_out = end;
        *length_out = sizeof(end) - 1;
        return true;
    }
    stream->sample = yb_gather_next(gather, stream->number, BEAT_NS);
    stream->framed = false;
    if (stream->sample != NULL) {
        stream->number = stream->sample->number;
        *text_out = head;
        *length_out = sizeof(head) - 1;
        return true;
    }
    *text_out = beat;
    *length_out = sizeof(beat) - 1;
    return !yb_gather_stopping(gather);
}

static void
close_stream(void *owner)
{
    struct stream *stream = owner;

    if (stream->sample != NULL) {
        yb_gather_release(stream->dashboard->gather, &stream->sample);
    }
    free(stream);
}

static struct yb_http_told
begin_stream(struct yb_dashboard *dashboard, const struct yb_http_asked *asked)
{
    struct stream *stream;
    struct yb_http_told told;
    uint64_t after = 0;

    if (dashboard->gather == NULL) {
        return yb_http_refusal(503, YB_UNSUPPORTED, dashboard->why);
    }
    if (!yb_http_number(asked, "after", UINT64_MAX, &after)) {
        return yb_http_refusal(400, YB_INVALID, "after: the number of a sample");
    }
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return yb_http_refusal(503, YB_NO_MEMORY, yb_status_text(YB_NO_MEMORY));
    }
    stream->dashboard = dashboard;
    stream->number = after;
    yb_events_listen(&dashboard->events,
                     &(struct yb_events_source){next_piece, close_stream, stream}, &told);
    return told;
}

static struct yb_http_told
tell_bytes(const char *type, const char *text, size_t length)
{
    struct yb_http_told told = {.code = 200, .type = type, .text = malloc(length + 1)};

    if (told.text != NULL) {
        memcpy(told.text, text, length);
        told.text[length] = '\0';
        told.length = length;
    }
    return told;
}

static struct yb_http_told
tell_sample(struct yb_dashboard *dashboard)
{
    const struct yb_gather_sample *sample;
    struct yb_http_told told;

    if (dashboard->gather == NULL) {
        return yb_http_refusal(503, YB_UNSUPPORTED, dashboard->why);
    }
    sample = yb_gather_latest(dashboard->gather, SAMPLE_NS);
    if (sample == NULL) {
        return yb_http_refusal(503, YB_AGAIN, "there is no sample yet");
    }
    told = tell_bytes(JSON_TYPE, sample->text, sample->length);
    yb_gather_release(dashboard->gather, &sample);
    return told;
}

/* ---- events --------------------------------------------------------------------------------- */

static struct yb_http_told
tell_events(struct yb_dashboard *dashboard, const struct yb_http_asked *asked)
{
    struct yb_log_kept kept[YB_LOG_KEPT_MAX];
    json_t *rows;
    uint64_t after = 0;
    uint32_t count;

    if (!yb_http_number(asked, "after", UINT64_MAX, &after)) {
        return yb_http_refusal(400, YB_INVALID, "after: the number of an event");
    }
    count = yb_log_recent(dashboard->log, after, kept, YB_LOG_KEPT_MAX);
    rows = json_array();
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
    return yb_http_json(200, json_pack("{s:I, s:o}", "last", (json_int_t)after, "events", rows));
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
            *told = tell_bytes(files[i].type, files[i].text, files[i].length);
            return true;
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
        *told_out = begin_stream(dashboard, asked);
    } else if (strcmp(asked->path, "/v1/cluster") == 0) {
        *told_out = tell_sample(dashboard);
    } else if (strcmp(asked->path, "/v1/events") == 0) {
        *told_out = tell_events(dashboard, asked);
    } else {
        return tell_file(asked->path, told_out);
    }
    return true;
}

/* ---- life ----------------------------------------------------------------------------------- */

struct yb_dashboard *
yb_dashboard_create(struct yb_log *log)
{
    struct yb_dashboard *dashboard = calloc(1, sizeof(*dashboard));

    if (dashboard != NULL) {
        dashboard->magic = DASHBOARD_MAGIC;
        dashboard->log = log;
        dashboard->events.listeners_max = YB_EVENTS_LISTENERS_MAX;
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
    YB_ASSERT(atomic_load(&dashboard->events.listeners) == 0);
    *dashboard_ref = NULL;
    if (gather != NULL) {
        yb_gather_destroy(&gather);
    }
    dashboard->magic = 0;
    free(dashboard);
}
