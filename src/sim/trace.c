/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading: a line at a time, each checked before anything of it is kept.
 */
#include "sim/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sim/trace_internal.h"

#define MOONCAKE_BLOCK_TOKENS 512u
#define BAILIAN_BLOCK_TOKENS  16u
#define ARRIVAL_MAX_S         1e9

struct reader {
    const char *name;
    const struct yb_trace_options *options;
    struct yb_trace_builder builder;
    uint64_t line;
    uint64_t last_arrival_ns;
    char *message;
};

static enum yb_status refuse(const struct reader *reader, enum yb_status status, const char *format,
                             ...) __attribute__((format(printf, 3, 4)));

static enum yb_status
refuse(const struct reader *reader, enum yb_status status, const char *format, ...)
{
    va_list arguments;
    int length = snprintf(reader->message, YB_TRACE_MESSAGE_MAX, "%.100s, line %" PRIu64 ": ",
                          reader->name, reader->line);

    va_start(arguments, format);
    vsnprintf(reader->message + length, YB_TRACE_MESSAGE_MAX - (size_t)length, format, arguments);
    va_end(arguments);
    return status;
}

void
yb_trace_destroy(struct yb_trace **trace)
{
    if (*trace != NULL) {
        free((*trace)->requests);
        free((*trace)->blocks);
        free((*trace)->parents);
        free(*trace);
        *trace = NULL;
    }
}

/* ---- one line ------------------------------------------------------------------------------- */

static enum yb_trace_format
format_of(const json_t *object)
{
    const json_t *stamp = json_object_get(object, "timestamp");

    if (json_object_get(object, "chat_id") != NULL ||
        json_object_get(object, "parent_chat_id") != NULL) {
        return YB_TRACE_BAILIAN;
    }
    return json_is_real(stamp) && json_real_value(stamp) != floor(json_real_value(stamp))
               ? YB_TRACE_BAILIAN
               : YB_TRACE_MOONCAKE;
}

/* The first line decides what is left open. */
static void
settle_format(struct reader *reader, const json_t *object)
{
    struct yb_trace *trace = reader->builder.trace;

    trace->format = reader->options->format;
    if (trace->format == YB_TRACE_AUTO) {
        trace->format = format_of(object);
    }
    trace->block_tokens = reader->options->block_tokens;
    if (trace->block_tokens == 0) {
        trace->block_tokens =
            trace->format == YB_TRACE_BAILIAN ? BAILIAN_BLOCK_TOKENS : MOONCAKE_BLOCK_TOKENS;
    }
}

static enum yb_status
read_arrival(struct reader *reader, const json_t *object, uint64_t *arrival_ns_out)
{
    const json_t *stamp = json_object_get(object, "timestamp");
    bool bailian = reader->builder.trace->format == YB_TRACE_BAILIAN;
    double value = json_number_value(stamp);
    double seconds = bailian ? value : value / 1e3;
    uint64_t arrival_ns;

    if (!json_is_number(stamp) || !(seconds >= 0.0) || seconds > ARRIVAL_MAX_S) {
        return refuse(reader, YB_INVALID, "\"timestamp\" must be a number of %s, 0 to %.0e",
                      bailian ? "seconds" : "milliseconds",
                      bailian ? ARRIVAL_MAX_S : ARRIVAL_MAX_S * 1e3);
    }
    arrival_ns = (uint64_t)llround(seconds * 1e9);
    if (arrival_ns < reader->last_arrival_ns) { /* T1 */
        return refuse(reader, YB_INVALID,
                      "\"timestamp\" is before that of the line above; sort the file by it");
    }
    reader->last_arrival_ns = arrival_ns;
    *arrival_ns_out = arrival_ns;
    return YB_OK;
}

static enum yb_status
read_tokens(struct reader *reader, const json_t *object, const char *field, json_int_t low,
            uint32_t *tokens_out)
{
    const json_t *value = json_object_get(object, field);

    if (!json_is_integer(value) || json_integer_value(value) < low ||
        json_integer_value(value) > YB_TRACE_TOKENS_MAX) {
        return refuse(reader, YB_INVALID, "\"%s\" must be a whole number, %" PRId64 " to %u", field,
                      (int64_t)low, YB_TRACE_TOKENS_MAX);
    }
    *tokens_out = (uint32_t)json_integer_value(value);
    return YB_OK;
}

static uint64_t
mix(uint64_t chain, uint64_t id)
{
    uint64_t mixed = (chain ^ (id + 0x9e3779b97f4a7c15ull)) * 0xff51afd7ed558ccdull;

    mixed = (mixed ^ mixed >> 33) * 0xc4ceb9fe1a85ec53ull;
    return mixed ^ mixed >> 29;
}

static enum yb_status
read_blocks(struct reader *reader, const json_t *object, uint32_t input_tokens)
{
    const json_t *ids = json_object_get(object, "hash_ids");
    const struct yb_trace *trace = reader->builder.trace;
    uint32_t wanted = (input_tokens + trace->block_tokens - 1) / trace->block_tokens;
    uint64_t chain = 0;

    if (!json_is_array(ids) || json_array_size(ids) != wanted) { /* T2 */
        return refuse(reader, YB_INVALID,
                      "\"hash_ids\" must be a list of %u, one for every %u tokens of "
                      "\"input_length\", not %zu; is the block of another size?",
                      wanted, trace->block_tokens, json_is_array(ids) ? json_array_size(ids) : 0);
    }
    for (uint32_t i = 0; i < wanted; i++) {
        const json_t *id = json_array_get(ids, i);
        uint64_t name = (uint64_t)json_integer_value(id);
        enum yb_status status;

        if (!json_is_integer(id)) {
            return refuse(reader, YB_INVALID, "hash_ids[%u] must be a whole number", i);
        }
        chain = mix(chain, name);
        status = yb_trace_builder_block(&reader->builder,
                                        trace->format == YB_TRACE_BAILIAN ? chain : name);
        if (status == YB_EXISTS) {
            return refuse(reader, YB_INVALID,
                          "hash_ids[%u], %" PRId64 ", follows another block than before; an id "
                          "stands for its block and all before it",
                          i, (int64_t)name);
        }
        if (status != YB_OK) {
            return refuse(reader, status, "%s; at most %u blocks in all", yb_status_text(status),
                          YB_TRACE_REFERENCES_MAX);
        }
    }
    return YB_OK;
}

static enum yb_status
read_request(struct reader *reader, const json_t *object)
{
    struct yb_trace_request request = {.arrival_ns = 0};
    enum yb_status status;

    if (!json_is_object(object)) {
        return refuse(reader, YB_INVALID, "a request must be a JSON object");
    }
    if (reader->builder.trace->request_count == 0) {
        settle_format(reader, object);
    }
    status = read_arrival(reader, object, &request.arrival_ns);
    if (status == YB_OK) {
        status = read_tokens(reader, object, "input_length", 1, &request.input_tokens);
    }
    if (status == YB_OK) {
        status = read_tokens(reader, object, "output_length", 0, &request.output_tokens);
    }
    if (status != YB_OK) {
        return status;
    }
    status = yb_trace_builder_request(&reader->builder, &request);
    if (status != YB_OK) {
        return refuse(reader, status, "%s; at most %u requests", yb_status_text(status),
                      YB_TRACE_REQUESTS_MAX);
    }
    return read_blocks(reader, object, request.input_tokens);
}

static enum yb_status
read_line(struct reader *reader, const char *text, size_t length)
{
    json_error_t error;
    json_t *object = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    enum yb_status status;

    if (object == NULL) {
        for (char *c = error.text; *c != '\0'; c++) { /* It quotes the line. */
            *c = *c < ' ' || *c > '~' ? '?' : *c;
        }
        return refuse(reader, YB_INVALID, "no JSON object: %.100s, at byte %d", error.text,
                      error.position);
    }
    status = read_request(reader, object);
    json_decref(object);
    return status;
}

/* ---- the file ------------------------------------------------------------------------------- */

static bool
is_blank(const char *text, size_t length)
{
    while (length > 0 && strchr(" \t\r\n", text[length - 1]) != NULL && text[length - 1] != '\0') {
        length--;
    }
    return length == 0;
}

static enum yb_status
read_lines(struct reader *reader, FILE *file)
{
    size_t room = 65536;
    char *text = malloc(room);
    size_t length = 0;
    enum yb_status status = text == NULL ? YB_NO_MEMORY : YB_OK;
    bool ended = false;

    while (status == YB_OK && !ended) {
        int c = getc_unlocked(file);

        if (length + 1 > room) {
            char *more = room < YB_TRACE_LINE_MAX ? realloc(text, room * 2) : NULL;

            if (more == NULL) {
                status = room < YB_TRACE_LINE_MAX ? YB_NO_MEMORY : YB_TOO_LARGE;
                reader->line++;
                refuse(reader, status, "%s; a line may have %u bytes", yb_status_text(status),
                       YB_TRACE_LINE_MAX);
                break;
            }
            text = more;
            room *= 2;
        }
        ended = c == EOF;
        if (!ended && c != '\n') {
            text[length++] = (char)c;
            continue;
        }
        reader->line++;
        if (!is_blank(text, length)) {
            status = read_line(reader, text, length);
        }
        length = 0;
    }
    free(text);
    if (status == YB_OK && ferror(file)) {
        return refuse(reader, YB_IO, "cannot read on: %s", strerror(errno));
    }
    return status;
}

static enum yb_status
check_options(const struct yb_trace_options *options, char message[YB_TRACE_MESSAGE_MAX])
{
    const char *what = NULL;

    if (options->block_tokens > YB_TRACE_BLOCK_TOKENS_MAX) {
        what = "the tokens of a block must be 1 to 65536";
    } else if (!(options->speed >= 0.0) || options->speed > YB_TRACE_SPEED_MAX) {
        what = "the speed must be above 0, and 1000 at the most";
    } else if (!(options->delay_hit >= 0.0) || options->delay_hit > 1.0) {
        what = "the share of delay hits must be 0 to 1";
    }
    if (what == NULL) {
        return YB_OK;
    }
    snprintf(message, YB_TRACE_MESSAGE_MAX, "%s", what);
    return YB_INVALID;
}

static void
make_keys_of_requests(struct yb_trace *trace, uint32_t *parents)
{
    for (uint32_t i = 0; i < trace->request_count; i++) {
        uint64_t first = trace->requests[i].first;

        for (uint32_t j = 0; j < yb_trace_blocks_of(trace, i); j++) {
            trace->blocks[first + j] = (uint32_t)(first + j);
            parents[first + j] = j == 0 ? YB_TRACE_NONE : (uint32_t)(first + j - 1);
        }
    }
    trace->block_count = (uint32_t)trace->reference_count;
    free(trace->parents);
    trace->parents = parents;
}

/* What the options ask for of the trace as a whole. */
static enum yb_status
change(struct reader *reader, struct yb_trace *trace)
{
    const struct yb_trace_options *options = reader->options;

    if (options->spread) {
        yb_trace_spread(trace, options->seed);
    }
    if (options->delay_hit > 0.0) {
        double possible = 0.0;
        enum yb_status status =
            yb_trace_delay_hit(trace, options->delay_hit, options->seed, &possible);

        if (status != YB_OK) {
            snprintf(reader->message, YB_TRACE_MESSAGE_MAX,
                     "%.100s: delay hits: %s; of its requests %.3f share %u tokens with an "
                     "earlier one",
                     reader->name, yb_status_text(status), possible, YB_TRACE_DELAY_HIT_TOKENS);
            return status;
        }
    }
    if (options->request_keys) {
        uint32_t *parents = calloc(trace->reference_count, sizeof *parents);

        if (parents == NULL) {
            return refuse(reader, YB_NO_MEMORY, "%s", yb_status_text(YB_NO_MEMORY));
        }
        make_keys_of_requests(trace, parents);
    }
    if (options->speed > 0.0) {
        for (uint32_t i = 0; i < trace->request_count; i++) {
            trace->requests[i].arrival_ns =
                (uint64_t)((double)trace->requests[i].arrival_ns / options->speed);
        }
    }
    return YB_OK;
}

enum yb_status
yb_trace_read(FILE *file, const char *name, const struct yb_trace_options *options,
              struct yb_trace **trace_out, char message[YB_TRACE_MESSAGE_MAX])
{
    struct reader reader = {.name = name, .options = options, .message = message};
    enum yb_status status = check_options(options, message);

    if (status != YB_OK) {
        return status;
    }
    status = yb_trace_builder_init(&reader.builder);
    if (status != YB_OK) {
        return refuse(&reader, status, "%s", yb_status_text(status));
    }
    status = read_lines(&reader, file);
    if (status == YB_OK && reader.builder.trace->request_count == 0) {
        status = refuse(&reader, YB_INVALID, "there is no request");
    }
    if (status == YB_OK) {
        status = change(&reader, reader.builder.trace);
    }
    if (status == YB_OK) {
        *trace_out = yb_trace_builder_end(&reader.builder);
    }
    yb_trace_builder_fini(&reader.builder);
    return status;
}

enum yb_status
yb_trace_open(const char *path, const struct yb_trace_options *options, struct yb_trace **trace_out,
              char message[YB_TRACE_MESSAGE_MAX])
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    enum yb_status status;

    if (file == NULL) {
        snprintf(message, YB_TRACE_MESSAGE_MAX, "%.150s: cannot open: %s", path, strerror(errno));
        return errno == ENOENT ? YB_NOT_FOUND : YB_IO;
    }
    status = yb_trace_read(file, standard ? "standard input" : path, options, trace_out, message);
    if (!standard) {
        fclose(file);
    }
    return status;
}

enum yb_status
yb_trace_write(const struct yb_trace *trace, FILE *file)
{
    for (uint32_t i = 0; i < trace->request_count; i++) {
        const struct yb_trace_request *request = &trace->requests[i];
        uint32_t count = yb_trace_blocks_of(trace, i);

        fprintf(file,
                "{\"timestamp\": %" PRIu64
                ", \"input_length\": %u, \"output_length\": %u, \"hash_ids\": [",
                (request->arrival_ns + 500000) / 1000000, request->input_tokens,
                request->output_tokens);
        for (uint32_t j = 0; j < count; j++) {
            fprintf(file, j == 0 ? "%u" : ", %u", trace->blocks[request->first + j]);
        }
        fputs("]}\n", file);
    }
    return fflush(file) == 0 && !ferror(file) ? YB_OK : YB_IO;
}
