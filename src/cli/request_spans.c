/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/request_spans.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/ask.h"
#include "directory/wire/directory_wire.h"
#include "net/wire/wire.h"
#include "node/wire/node_wire.h"
#include "observe/span_json.h"
#include "transfer/wire/transfer_wire.h"

#define QUERY_BYTES 256u

/* ---- whom to ask ----------------------------------------------------------------------------- */

static bool
is_known(const struct yb_request_spans *all, const char *address)
{
    for (uint32_t i = 0; i < all->process_count; i++) {
        if (strcmp(all->processes[i].address, address) == 0) {
            return true;
        }
    }
    return false;
}

static void
add_address(struct yb_request_spans *all, const char *address, size_t length)
{
    struct yb_request_spans_process process = {.answered = false};

    if (length == 0 || length >= sizeof(process.address) ||
        all->process_count == YB_JOIN_PROCESSES_MAX) {
        return;
    }
    memcpy(process.address, address, length);
    if (!is_known(all, process.address)) {
        all->processes[all->process_count++] = process;
    }
}

/* Of a conductor: the engines that it knows. */
static void
add_engines(struct yb_request_spans *all, const char *conductor)
{
    char error[YB_CURL_ERROR_BYTES];
    json_t *told = NULL;
    const json_t *row;
    size_t index;
    long code = 0;

    if (yb_ask(conductor, "/v1/instances", &code, &told, error) != YB_OK || code != 200) {
        json_decref(told);
        return;
    }
    json_array_foreach(json_object_get(told, "instances"), index, row)
    {
        const char *address = json_string_value(json_object_get(row, "address"));

        if (address != NULL) {
            add_address(all, address, strlen(address));
        }
    }
    json_decref(told);
}

bool
yb_request_spans_begin(struct yb_cli *cli, const char *addresses,
                       struct yb_request_spans *spans_out)
{
    uint32_t given;

    *spans_out = (struct yb_request_spans){.count = 0};
    for (const char *at = addresses; *at != '\0';) {
        size_t length = strcspn(at, ",");

        add_address(spans_out, at, length);
        at += length + (at[length] == ',');
    }
    given = spans_out->process_count;
    if (given == 0) {
        fprintf(cli->err, "yuebing %s: --at: HOST:PORT, or several with commas between\n",
                cli->command->name);
        return false;
    }
    for (uint32_t i = 0; i < given; i++) {
        add_engines(spans_out, spans_out->processes[i].address);
    }
    return true;
}

/* ---- what they have -------------------------------------------------------------------------- */

static void
take_process(const json_t *answer, struct yb_request_spans_process *process)
{
    const json_t *said = json_object_get(answer, "process");
    const char *kind = json_string_value(json_object_get(said, "kind"));
    const char *name = json_string_value(json_object_get(said, "name"));

    (void)snprintf(process->kind, sizeof(process->kind), "%s", kind != NULL ? kind : "");
    (void)snprintf(process->name, sizeof(process->name), "%s", name != NULL ? name : "");
    process->answered = true;
}

static bool
is_there(const struct yb_request_spans *all, uint32_t count, const struct yb_span *span)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct yb_span *other = &all->spans[i].span;

        if (other->span == span->span && yb_id_equal(other->trace, span->trace)) {
            return true;
        }
    }
    return false;
}

/* Two addresses may lead to the same process: what others have brought is not added. */
static bool
take_spans(struct yb_request_spans *all, const json_t *list, uint32_t process)
{
    const uint32_t before = all->count;
    struct yb_joined *spans =
        realloc(all->spans, sizeof(*spans) * (all->count + json_array_size(list) + 1));
    const json_t *row;
    size_t index;

    if (spans == NULL) {
        return false;
    }
    all->spans = spans;
    json_array_foreach(list, index, row)
    {
        struct yb_span span;

        if (all->count < YB_REQUEST_SPANS_SPANS_MAX && yb_span_from_json(row, &span) == YB_OK &&
            !is_there(all, before, &span)) {
            spans[all->count++] = (struct yb_joined){.span = span, .process = process};
        }
    }
    return true;
}

bool
yb_request_spans_add(struct yb_cli *cli, struct yb_request_spans *all, const char *query)
{
    char path[QUERY_BYTES];
    uint32_t answered = 0;
    bool room = true;

    (void)snprintf(path, sizeof(path), "/v1/spans?%s", query);
    for (uint32_t i = 0; i < all->process_count && room; i++) {
        struct yb_request_spans_process *process = &all->processes[i];
        char error[YB_CURL_ERROR_BYTES] = "";
        json_t *answer = NULL;
        long code = 0;
        enum yb_status status = yb_ask(process->address, path, &code, &answer, error);

        if (status == YB_OK && code == 200 && answer != NULL) {
            take_process(answer, process);
            answered++;
            room = take_spans(all, json_object_get(answer, "spans"), i);
        } else {
            fprintf(cli->err, "yuebing %s: http://%s%s: %s (HTTP status %ld)\n", cli->command->name,
                    process->address, path, status == YB_OK ? "no spans" : error, code);
        }
        json_decref(answer);
    }
    if (!room) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, yb_status_text(YB_NO_MEMORY));
    }
    return room && answered > 0;
}

void
yb_request_spans_clear(struct yb_request_spans *all)
{
    all->count = 0;
}

bool
yb_request_spans_join(struct yb_cli *cli, struct yb_request_spans *all)
{
    struct yb_join_clock clocks[YB_JOIN_PROCESSES_MAX];
    enum yb_status status = yb_join(all->spans, all->count, all->process_count, clocks);

    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, yb_status_text(status));
        return false;
    }
    for (uint32_t i = 0; i < all->process_count; i++) {
        all->processes[i].clock = clocks[i];
    }
    return true;
}

void
yb_request_spans_fini(struct yb_request_spans *all)
{
    free(all->spans);
    all->spans = NULL;
    all->count = 0;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* What a call asks for: of any layer. */
static const char *
call_word(uint64_t type)
{
    const char *(*const names[])(uint32_t) = {yb_wire_type_name, yb_wire_directory_type_name,
                                              yb_wire_node_type_name, yb_wire_transfer_type_name};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && type <= UINT32_MAX; i++) {
        const char *word = names[i]((uint32_t)type);

        if (word != NULL && strcmp(word, "unknown") != 0) {
            return word;
        }
    }
    return "";
}

void
yb_request_spans_what(const struct yb_span *span, char *text_out, size_t room)
{
    const bool call = span->kind == YB_SPAN_KIND_CALL || span->kind == YB_SPAN_KIND_SERVE;
    const char *word = call ? call_word(span->number) : "";

    (void)snprintf(text_out, room, "%s%s%s", yb_span_kind_name(span->kind),
                   word[0] != '\0' ? " " : "", word);
}

void
yb_request_spans_where(const struct yb_request_spans *all, const struct yb_joined *joined,
                       char *text_out, size_t room)
{
    const struct yb_request_spans_process *process = &all->processes[joined->process];

    (void)snprintf(text_out, room, "%s%s%s", process->kind, process->name[0] != '\0' ? " " : "",
                   process->name);
}

/* ---- Perfetto -------------------------------------------------------------------------------- */

/* Spans that lie inside each other share a lane; others of the same time get their own. */
#define LANES_MAX 256u

struct lane {
    int64_t ends[64]; /* Of those that are open, the innermost last. */
    uint32_t open;
};

static uint32_t
lane_of(struct lane *lanes, uint32_t *lane_count, int64_t start_ns, int64_t end_ns)
{
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        struct lane *lane = &lanes[i];

        *lane_count = *lane_count > i ? *lane_count : i + 1;
        while (lane->open > 0 && lane->ends[lane->open - 1] <= start_ns) {
            lane->open--;
        }
        if ((lane->open == 0 || lane->ends[lane->open - 1] >= end_ns) && lane->open < 64) {
            lane->ends[lane->open++] = end_ns;
            return i;
        }
    }
    return LANES_MAX;
}

static int
compare_starts(const void *a, const void *b)
{
    const struct yb_joined *one = *(const struct yb_joined *const *)a;
    const struct yb_joined *other = *(const struct yb_joined *const *)b;
    const int64_t one_end = yb_joined_end(one);
    const int64_t other_end = yb_joined_end(other);

    return one->start_ns != other->start_ns
               ? (one->start_ns > other->start_ns) - (one->start_ns < other->start_ns)
               : (one_end < other_end) - (one_end > other_end);
}

static json_t *
event_json(const struct yb_joined *joined, uint32_t lane)
{
    char what[64];
    json_t *about = yb_span_json(&joined->span);

    yb_request_spans_what(&joined->span, what, sizeof(what));
    return json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o*}", "name", what, "cat",
                     yb_span_kind_name(joined->span.kind), "ph", "X", "ts",
                     (double)joined->start_ns / 1e3, "dur",
                     (double)(yb_joined_end(joined) - joined->start_ns) / 1e3, "pid",
                     (int)joined->process + 1, "tid", (int)lane + 1, "args", about);
}

/* All events of one process, its name first. */
static void
add_process(const struct yb_request_spans *all, uint32_t process, const struct yb_joined **sorted,
            json_t *events)
{
    struct lane *lanes = calloc(LANES_MAX, sizeof(*lanes));
    const struct yb_joined any = {.process = process};
    char name[128];
    uint32_t lane_count = 0;

    yb_request_spans_where(all, &any, name, sizeof(name));
    (void)json_array_append_new(events,
                                json_pack("{s:s, s:s, s:i, s:{s:s}}", "name", "process_name", "ph",
                                          "M", "pid", (int)process + 1, "args", "name", name));
    for (uint32_t i = 0; i < all->count && lanes != NULL; i++) {
        if (sorted[i]->process == process) {
            uint32_t lane =
                lane_of(lanes, &lane_count, sorted[i]->start_ns, yb_joined_end(sorted[i]));

            (void)json_array_append_new(events, event_json(sorted[i], lane));
        }
    }
    free(lanes);
}

bool
yb_request_spans_perfetto(struct yb_cli *cli, const struct yb_request_spans *all, const char *path)
{
    const struct yb_joined **sorted = calloc(all->count + 1, sizeof(*sorted));
    json_t *events = json_array();
    json_t *whole;
    bool written = false;

    for (uint32_t i = 0; i < all->count && sorted != NULL; i++) {
        sorted[i] = &all->spans[i];
    }
    if (sorted != NULL) {
        qsort(sorted, all->count, sizeof(*sorted), compare_starts);
        for (uint32_t i = 0; i < all->process_count; i++) {
            add_process(all, i, sorted, events);
        }
        whole = json_pack("{s:s, s:o}", "displayTimeUnit", "ms", "traceEvents", events);
        written = whole != NULL && json_dump_file(whole, path, JSON_COMPACT) == 0;
        json_decref(whole);
    } else {
        json_decref(events);
    }
    free(sorted);
    if (!written) {
        fprintf(cli->err, "yuebing %s: %s: cannot be written\n", cli->command->name, path);
    }
    return written;
}
