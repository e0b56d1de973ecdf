/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/service.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/span.h"
#include "engine/engine_internal.h"
#include "engine/show.h"
#include "observe/watch.h"

#define SERVICE_MAGIC   0x65737663u
#define REQUEST_NS      (600 * YB_NS_PER_S)
#define LOOK_NS         (200 * YB_NS_PER_MS)
#define ALIVE_NS        (2 * YB_NS_PER_S) /* A stream says something that often. */
#define ANSWER_TOKENS   16u
#define TOKENS_A_TIME   64u
#define DECIDED_US_MAX  3600000000u /* An hour. */
#define TEXT_BYTES      16u         /* Of a token: " t4294967295". */
#define EVENTS_TYPE     "text/event-stream"
#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"
#define WORD_BYTES      sizeof(uint32_t)

struct yb_engine_service {
    uint32_t magic;
    struct yb_engine_service_options options;
    struct yb_http_source source;
    struct yb_http *http;
    struct yb_watch *watch;
    _Atomic(uint64_t) count; /* Of completions, for their names. */
    struct {
        _Atomic(uint64_t) newest;
        _Atomic(uint32_t) in_flight;
    } seen[YB_SCHED_CONDUCTORS_MAX];
};

/* A completion that is being asked for. */
struct completion {
    struct yb_engine_service *service;
    struct yb_engine_request *request;
    uint64_t number;
    uint64_t decision; /* Of the conductor that sent it; 0: none. */
    uint64_t conductor;
    uint64_t deadline_ns;
    struct yb_engine_orders orders;
    bool keep;
    bool handed;   /* Its prompt was computed elsewhere. */
    uint32_t told; /* Tokens that the asker has. */
    bool over;     /* Streams: the last event was made. */
    char *left;    /* Of an event that did not fit. */
    size_t left_at;
    size_t left_bytes;
};

/* ---- answers --------------------------------------------------------------------------------- */

/* In OpenAI's form, so that its clients show it. */
static struct yb_http_told
refuse(unsigned code, const char *type, const char *why)
{
    return yb_http_json(code, json_pack("{s:{s:s, s:s, s:i}}", "error", "message", why, "type",
                                        type, "code", (int)code));
}

static struct yb_http_told
refuse_status(enum yb_status status)
{
    switch (status) {
    case YB_TOO_LARGE:
        return refuse(400, "invalid_request_error",
                      "prompt and answer are larger than this engine's memory: see /v1/engine");
    case YB_AGAIN: {
        struct yb_http_told told =
            refuse(429, "rate_limit_error", "too many requests wait already: ask again later");

        told.retry_after_s = 1;
        return told;
    }
    case YB_INVALID:
        return refuse(400, "invalid_request_error",
                      "a prompt has at least one token, an answer too, both at most 2097152");
    default: return refuse(503, "server_error", yb_status_text(status));
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

/* What was asked, read and checked; the arrays are owned. */
struct question {
    struct yb_engine_ask ask;
    uint32_t *tokens;
    uint64_t *addresses;
    struct yb_engine_handover from;
    bool stream;
    uint64_t decision;
    uint64_t conductor;
    struct yb_engine_orders orders;
    const char *wrong; /* What cannot be, in words; NULL: nothing. */
};

static bool
read_number(const json_t *object, const char *name, uint64_t most, uint64_t *number_out)
{
    const json_t *value = json_object_get(object, name);

    if (value == NULL || json_is_null(value)) {
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(value);
    return true;
}

/* Four bytes of text are a token, the last ones filled up with zeroes. */
static void
read_text(struct question *question, const json_t *prompt)
{
    const char *text = json_string_value(prompt);
    size_t length = json_string_length(prompt);
    size_t count = (length + WORD_BYTES - 1) / WORD_BYTES;

    question->tokens = calloc(count + 1, sizeof(*question->tokens));
    if (question->tokens == NULL || count > YB_ENGINE_TOKENS_MAX) {
        question->wrong = "prompt: too long";
        return;
    }
    memcpy(question->tokens, text, length);
    question->ask.token_count = (uint32_t)count;
}

static void
read_tokens(struct question *question, const json_t *prompt)
{
    size_t count = json_array_size(prompt);

    question->tokens = calloc(count + 1, sizeof(*question->tokens));
    if (question->tokens == NULL || count > YB_ENGINE_TOKENS_MAX) {
        question->wrong = "prompt: too long";
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_array_get(prompt, i);

        if (!json_is_integer(token) || json_integer_value(token) < 0 ||
            json_integer_value(token) > UINT32_MAX) {
            question->wrong = "prompt: token ids are whole numbers from 0 to 4294967295";
            return;
        }
        question->tokens[i] = (uint32_t)json_integer_value(token);
    }
    question->ask.token_count = (uint32_t)count;
}

static void
read_handover(struct question *question, const json_t *given)
{
    const json_t *addresses = json_object_get(given, "addresses");
    const char *address = json_string_value(json_object_get(given, "address"));
    const char *ticket = json_string_value(json_object_get(given, "ticket"));
    const char *ticket_at = json_string_value(json_object_get(given, "ticket_at"));
    uint64_t first = 0;
    size_t count = json_array_size(addresses);

    if (json_is_true(json_object_get(given, "do_remote_decode"))) {
        question->ask.keep = true;
        return;
    }
    question->addresses = calloc(count + 1, sizeof(*question->addresses));
    if (address == NULL || strlen(address) >= sizeof(question->from.address) || ticket == NULL ||
        sscanf(ticket, "%" SCNx64, &question->from.ticket) != 1 || ticket_at == NULL ||
        sscanf(ticket_at, "%" SCNx64, &question->from.ticket_at) != 1 ||
        !read_number(given, "first_token", UINT32_MAX, &first) || count == 0 ||
        count > YB_ENGINE_TOKENS_MAX || question->addresses == NULL) {
        question->wrong = "kv_transfer_params: give do_remote_decode, or what an engine answered";
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const char *hex = json_string_value(json_array_get(addresses, i));

        if (hex == NULL || sscanf(hex, "%" SCNx64, &question->addresses[i]) != 1) {
            question->wrong = "kv_transfer_params: addresses are hexadecimal";
            return;
        }
    }
    (void)snprintf(question->from.address, sizeof(question->from.address), "%s", address);
    question->from.first_token = (uint32_t)first;
    question->from.block_count = (uint32_t)count;
    question->from.addresses = question->addresses;
    question->ask.from = &question->from;
}

/* What the conductor ordered with it; deadlines count from when it was asked. */
static void
read_orders(struct question *question, const json_t *body, uint64_t now_ns)
{
    const json_t *list = json_object_get(body, "instructions");
    uint64_t ago_us = 0;

    if (list == NULL) {
        return;
    }
    if (!read_number(body, "decided_us", DECIDED_US_MAX, &ago_us) ||
        !yb_engine_orders_read(list, now_ns - ago_us * YB_NS_PER_US, &question->orders)) {
        question->wrong = "instructions, decided_us: give those of the conductor's decision, at "
                          "most 8, and how many microseconds ago it was made";
    }
}

static void
read_fields(struct question *question, const json_t *body)
{
    const json_t *prompt = json_object_get(body, "prompt");
    const json_t *transfer = json_object_get(body, "kv_transfer_params");
    uint64_t answer = ANSWER_TOKENS, reuse = UINT32_MAX, work_class = YB_CLASS_FIRST_TOKEN;
    uint64_t choices = 1;
    const json_t *stream = json_object_get(body, "stream");

    if (json_is_string(prompt)) {
        read_text(question, prompt);
    } else if (json_is_array(prompt)) {
        read_tokens(question, prompt);
    } else {
        question->wrong = "prompt: give a text, or an array of token ids";
    }
    if (!read_number(body, "max_tokens", YB_ENGINE_TOKENS_MAX, &answer)) {
        question->wrong = "max_tokens: a whole number from 1 to 2097152";
    }
    if (!read_number(body, "n", 1, &choices) || choices != 1) {
        question->wrong = "n: one answer to a request; ask again for another";
    }
    if (!read_number(body, "reuse_tokens", UINT32_MAX, &reuse) ||
        !read_number(body, "class", YB_CLASS_COUNT - 1, &work_class) ||
        !read_number(body, "decision", INT64_MAX, &question->decision) ||
        !read_number(body, "conductor", YB_SCHED_CONDUCTORS_MAX - 1, &question->conductor)) {
        question->wrong = "reuse_tokens, class (0 to 2), decision and conductor (0 to 15) are "
                          "whole numbers";
    }
    if (stream != NULL && !json_is_boolean(stream) && !json_is_null(stream)) {
        question->wrong = "stream: true or false";
    }
    question->stream = json_is_true(stream);
    if (question->wrong == NULL && transfer != NULL && !json_is_null(transfer)) {
        read_handover(question, transfer);
    }
    question->ask.tokens = question->tokens;
    question->ask.answer_tokens = (uint32_t)answer;
    question->ask.reuse_tokens = (uint32_t)reuse;
    question->ask.work_class = (uint32_t)work_class;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

static uint64_t
now_of(const struct completion *completion)
{
    return yb_engine_now(completion->service->options.engine);
}

static void
end_completion(void *context)
{
    struct completion *completion = context;

    if (completion->decision != 0) {
        atomic_fetch_sub(&completion->service->seen[completion->conductor].in_flight, 1);
    }
    yb_engine_release(&completion->request);
    free(completion->left);
    free(completion);
}

static json_t *
outcome_json(const struct yb_engine_outcome *outcome)
{
    json_int_t first_us = outcome->first_ns > outcome->arrival_ns
                              ? (json_int_t)((outcome->first_ns - outcome->arrival_ns) / 1000)
                              : 0;

    return json_pack(
        "{s:i, s:i, s:i, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "device_tokens",
        (int)outcome->device_tokens, "loaded_tokens", (int)outcome->loaded_tokens, "pulled_tokens",
        (int)outcome->pulled_tokens, "tier_bytes", yb_engine_show_tiers(outcome->tier_bytes),
        "pulled_bytes", (json_int_t)outcome->pulled_bytes, "wrong_bytes",
        (json_int_t)outcome->wrong_bytes, "queue_us",
        (json_int_t)((outcome->begun_ns - outcome->arrival_ns) / 1000), "ttft_us", first_us,
        "predicted_us", (json_int_t)(outcome->predicted_ns / 1000), "load_us",
        (json_int_t)(outcome->load_ns / 1000), "stall_us", (json_int_t)(outcome->stall_ns / 1000),
        "compute_us", (json_int_t)(outcome->compute_ns / 1000));
}

static json_t *
handover_json(struct completion *completion)
{
    struct yb_engine_handover handover;
    json_t *addresses;
    char text[32], at[32];

    if (!completion->keep || yb_engine_handover(completion->request, &handover) != YB_OK) {
        return NULL;
    }
    addresses = json_array();
    for (uint32_t i = 0; i < handover.block_count; i++) {
        (void)snprintf(text, sizeof(text), "%" PRIx64, handover.addresses[i]);
        (void)json_array_append_new(addresses, json_string(text));
    }
    (void)snprintf(text, sizeof(text), "%" PRIx64, handover.ticket);
    (void)snprintf(at, sizeof(at), "%" PRIx64, handover.ticket_at);
    return json_pack("{s:s, s:s, s:s, s:I, s:o}", "address", handover.address, "ticket", text,
                     "ticket_at", at, "first_token", (json_int_t)handover.first_token, "addresses",
                     addresses);
}

/* How the conductor's orders ended that are ours to judge; of a request that failed nobody says. */
static struct yb_engine_verdicts
judge(const struct completion *completion, const struct yb_engine_outcome *outcome)
{
    struct yb_engine_verdicts verdicts = {.count = 0};

    if (outcome->status == YB_OK) {
        yb_engine_orders_judge(&completion->orders, outcome,
                               yb_engine_block_tokens(completion->service->options.engine),
                               completion->handed, &verdicts);
    }
    return verdicts;
}

/* An answer, or a piece of one: `count` tokens. With the last one, how it ended. */
static json_t *
piece_json(struct completion *completion, const uint32_t *tokens, uint32_t count,
           const struct yb_engine_outcome *ended)
{
    char *text = calloc(count + 1, TEXT_BYTES);
    json_t *ids = json_array();
    char id[48];
    size_t length = 0;
    json_t *piece;

    for (uint32_t i = 0; i < count && text != NULL; i++) {
        length += (size_t)snprintf(text + length, TEXT_BYTES, " t%" PRIu32, tokens[i]);
        (void)json_array_append_new(ids, json_integer(tokens[i]));
    }
    (void)snprintf(id, sizeof(id), "cmpl-%" PRIu64, completion->number);
    piece =
        json_pack("{s:s, s:s, s:s, s:[{s:i, s:s, s:o, s:s?}]}", "id", id, "object",
                  "text_completion", "model", completion->service->options.model, "choices",
                  "index", 0, "text", text != NULL ? text : "", "token_ids", ids, "finish_reason",
                  ended == NULL ? NULL : (ended->status == YB_OK ? "length" : "error"));
    free(text);
    if (piece != NULL && ended != NULL) {
        const struct yb_engine_verdicts verdicts = judge(completion, ended);
        json_t *outcome = outcome_json(ended);

        (void)json_object_set_new(piece, "usage",
                                  json_pack("{s:i, s:i, s:i}", "prompt_tokens",
                                            (int)ended->prompt_tokens, "completion_tokens",
                                            (int)ended->answer_tokens, "total_tokens",
                                            (int)(ended->prompt_tokens + ended->answer_tokens)));
        (void)json_object_set_new(outcome, "instructions", yb_engine_verdicts_json(&verdicts));
        (void)json_object_set_new(piece, "yuebing", outcome);
        if (completion->keep && ended->status == YB_OK) {
            (void)json_object_set_new(piece, "kv_transfer_params", handover_json(completion));
        }
        if (ended->status != YB_OK) {
            (void)json_object_set_new(piece, "error", json_string(ended->why));
        }
    }
    return piece;
}

static struct yb_engine_decided
decided_by(const struct completion *completion)
{
    return (struct yb_engine_decided){.conductor = (uint32_t)completion->conductor,
                                      .decision = completion->decision};
}

/* Its first token is out, and it goes on here. What was handed over had its first one elsewhere. */
static void
tell_first(struct completion *completion)
{
    const struct yb_engine_service_options *options = &completion->service->options;
    const struct yb_engine_verdicts none = {.count = 0}; /* They are judged at the end. */
    const struct yb_engine_decided decided = decided_by(completion);
    struct yb_engine_outcome outcome;

    if (options->ended != NULL && completion->decision != 0 && !completion->keep &&
        !completion->handed) {
        (void)yb_engine_outcome(completion->request, &outcome);
        options->ended(options->context, &decided, &outcome, true, &none);
    }
}

/* What was kept goes on elsewhere, unless it failed. */
static void
tell_ended(struct completion *completion, const struct yb_engine_outcome *outcome)
{
    const struct yb_engine_service_options *options = &completion->service->options;
    const struct yb_engine_verdicts verdicts = judge(completion, outcome);
    const struct yb_engine_decided decided = decided_by(completion);

    yb_engine_trace_verdicts(completion->request, completion->orders.decided_ns, &verdicts);
    if (options->ended != NULL && completion->decision != 0) {
        options->ended(options->context, &decided, outcome,
                       completion->keep && outcome->status == YB_OK, &verdicts);
    }
}

/* Read what there is of the answer, and give the request up when its time is over. TIMED_OUT: there
 * was nothing for `patience_ns`. */
static enum yb_status
read_some(struct completion *completion, uint64_t patience_ns, uint32_t *tokens_out, uint32_t room,
          uint32_t *count_out)
{
    uint64_t until_ns = yb_deadline_after(now_of(completion), patience_ns);
    enum yb_status status;

    do {
        status = yb_engine_read(completion->request, completion->told, LOOK_NS, tokens_out, room,
                                count_out);
        if (status == YB_TIMED_OUT && now_of(completion) >= completion->deadline_ns) {
            yb_engine_cancel(completion->request);
        }
    } while (status == YB_TIMED_OUT && now_of(completion) < until_ns);
    if (status == YB_OK && completion->told == 0) {
        tell_first(completion);
    }
    return status;
}

/* ---- streams --------------------------------------------------------------------------------- */

/* Take a text to be sent; false: there was no memory for it. */
static bool
keep_text(struct completion *completion, char *text)
{
    completion->left = text;
    completion->left_bytes = text != NULL ? strlen(text) : 0;
    completion->left_at = 0;
    return text != NULL;
}

/* Make the next event. False: there is none any more. */
static bool
next_event(struct completion *completion)
{
    struct yb_engine_outcome outcome;
    uint32_t tokens[TOKENS_A_TIME];
    uint32_t count = 0;
    json_t *piece;
    char *text;
    char *event = NULL;
    enum yb_status status;

    if (completion->over) {
        return false;
    }
    status = read_some(completion, ALIVE_NS, tokens, TOKENS_A_TIME, &count);
    if (status == YB_TIMED_OUT) {
        /* A comment: it finds out whether anybody still listens. */
        return keep_text(completion, strdup(": waiting\n\n"));
    }
    if (status == YB_OK) {
        piece = piece_json(completion, tokens, count, NULL);
        completion->told += count;
    } else {
        (void)yb_engine_outcome(completion->request, &outcome);
        piece = piece_json(completion, NULL, 0, &outcome);
        tell_ended(completion, &outcome);
        completion->over = true;
    }
    text = piece != NULL ? json_dumps(piece, JSON_COMPACT) : NULL;
    json_decref(piece);
    if (text == NULL ||
        asprintf(&event, "data: %s\n\n%s", text, completion->over ? "data: [DONE]\n\n" : "") < 0) {
        event = NULL;
    }
    free(text);
    return keep_text(completion, event);
}

static long
read_stream(void *context, char *out, size_t room)
{
    struct completion *completion = context;
    size_t some;

    if (completion->left == NULL && !next_event(completion)) {
        return -1;
    }
    some = completion->left_bytes - completion->left_at;
    some = some < room ? some : room;
    memcpy(out, completion->left + completion->left_at, some);
    completion->left_at += some;
    if (completion->left_at == completion->left_bytes) {
        free(completion->left);
        completion->left = NULL;
    }
    return (long)some;
}

/* ---- whole answers --------------------------------------------------------------------------- */

static struct yb_http_told
answer_whole(struct completion *completion, uint32_t answer_tokens)
{
    uint32_t *tokens = malloc(sizeof(*tokens) * answer_tokens);
    struct yb_engine_outcome outcome;
    struct yb_http_told told;
    uint32_t count;

    if (tokens == NULL) {
        return refuse_status(YB_NO_MEMORY);
    }
    while (read_some(completion, YB_NEVER, tokens + completion->told,
                     answer_tokens - completion->told, &count) == YB_OK) {
        completion->told += count;
    }
    (void)yb_engine_outcome(completion->request, &outcome);
    tell_ended(completion, &outcome);
    told = outcome.status == YB_OK
               ? yb_http_json(200, piece_json(completion, tokens, completion->told, &outcome))
               : refuse(503, "server_error", outcome.why);
    free(tokens);
    return told;
}

static void
note_decision(struct completion *completion)
{
    uint64_t newest = atomic_load(&completion->service->seen[completion->conductor].newest);

    if (completion->decision == 0) {
        return;
    }
    atomic_fetch_add(&completion->service->seen[completion->conductor].in_flight, 1);
    while (newest < completion->decision &&
           !atomic_compare_exchange_weak(&completion->service->seen[completion->conductor].newest,
                                         &newest, completion->decision)) {
    }
}

static struct yb_http_told
complete(struct yb_engine_service *service, const struct yb_http_asked *asked,
         struct question *question)
{
    const char *trace = yb_http_header(asked, "traceparent");
    struct completion *completion = calloc(1, sizeof(*completion));
    struct yb_trace_context context;
    struct yb_http_told told;
    enum yb_status status = completion != NULL ? YB_OK : YB_NO_MEMORY;

    if (trace != NULL && yb_traceparent_parse(trace, strlen(trace), &context) == YB_OK) {
        question->ask.trace_id = context.trace;
        question->ask.parent_span = context.parent;
    }
    question->ask.number = question->decision;
    if (question->ask.keep) {
        question->ask.answer_tokens = 1;
    }
    if (status == YB_OK) {
        status = yb_engine_submit(service->options.engine, &question->ask, &completion->request);
    }
    if (status != YB_OK) {
        free(completion);
        return refuse_status(status);
    }
    completion->service = service;
    completion->number = atomic_fetch_add(&service->count, 1) + 1;
    completion->decision = question->decision;
    completion->conductor = question->conductor;
    completion->orders = question->orders;
    note_decision(completion);
    completion->keep = question->ask.keep;
    completion->handed = question->ask.from != NULL;
    completion->deadline_ns =
        yb_deadline_after(now_of(completion), service->options.request_timeout_ns);
    if (service->options.taken != NULL) {
        const struct yb_engine_decided decided = decided_by(completion);

        service->options.taken(service->options.context, &decided);
    }
    if (question->stream) {
        return (struct yb_http_told){
            .code = 200,
            .type = EVENTS_TYPE,
            .read = read_stream,
            .close = end_completion,
            .stream = completion,
        };
    }
    told = answer_whole(completion, question->ask.answer_tokens);
    end_completion(completion);
    return told;
}

static struct yb_http_told
completions(struct yb_engine_service *service, const struct yb_http_asked *asked)
{
    struct question question = {.wrong = NULL};
    struct yb_http_told told;
    json_error_t error;
    json_t *body;

    if (strcmp(asked->method, "POST") != 0) {
        return refuse(405, "invalid_request_error", "completions take POST");
    }
    if (!asked->may_change) {
        return refuse(403, "authentication_error",
                      "this needs the secret: Authorization: Bearer SECRET; without one only "
                      "loopback may ask, and no page in a browser");
    }
    body = json_loadb(asked->body, asked->body_bytes, 0, &error);
    if (!json_is_object(body)) {
        char why[JSON_ERROR_TEXT_LENGTH + 64];

        (void)snprintf(why, sizeof(why), "the body is no JSON object: line %d: %s", error.line,
                       body != NULL ? "an object was expected" : error.text);
        json_decref(body);
        return refuse(400, "invalid_request_error", why);
    }
    read_fields(&question, body);
    read_orders(&question, body, yb_engine_now(service->options.engine));
    json_decref(body);
    told = question.wrong != NULL ? refuse(400, "invalid_request_error", question.wrong)
                                  : complete(service, asked, &question);
    free(question.tokens);
    free(question.addresses);
    return told;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static struct yb_http_told
numbers(const struct yb_engine_service *service)
{
    struct yb_engine_info info;

    yb_engine_info(service->options.engine, &info);
    return yb_http_json(200, yb_engine_show(&info, service->options.model));
}

/* All series, for the port's programs. */
static json_t *
series(void *context)
{
    const struct yb_engine_service *service = context;
    const struct yb_stats *stats = service->options.stats;
    struct yb_engine_info info;
    json_t *rows;

    yb_engine_info(service->options.engine, &info);
    rows = yb_engine_show_series(&info);
    if (stats != NULL) {
        json_t *more = yb_stats_json(stats);

        (void)json_array_extend(rows, more);
        json_decref(more);
    }
    return rows;
}

static struct yb_http_told
metrics(const struct yb_engine_service *service)
{
    struct yb_http_told told = {.code = 200, .type = PROMETHEUS_TYPE};
    struct yb_engine_info info;
    FILE *out = open_memstream(&told.text, &told.length);

    yb_engine_info(service->options.engine, &info);
    if (out != NULL) {
        yb_engine_show_text(&info, out);
        if (service->options.stats != NULL) {
            (void)!yb_stats_prometheus(service->options.stats, out);
        }
        fclose(out);
    }
    return told;
}

static enum yb_status
open_watch(struct yb_engine_service *service)
{
    struct yb_watch_options options = {
        .kind = "engine",
        .rings = {service->options.spans[0], service->options.spans[1], service->options.spans[2]},
        .stats = series,
        .context = service,
        .clock = yb_clock_system(),
    };

    (void)snprintf(options.name, sizeof(options.name), "%.63s", service->options.name);
    return yb_watch_create(&options, &service->watch);
}

static struct yb_http_told
models(const struct yb_engine_service *service)
{
    return yb_http_json(200, json_pack("{s:s, s:[{s:s, s:s, s:s}]}", "object", "list", "data", "id",
                                       service->options.model, "object", "model", "owned_by",
                                       "yuebing"));
}

/* What is only looked at. */
static bool
look(struct yb_engine_service *service, const struct yb_http_asked *asked,
     struct yb_http_told *told_out)
{
    bool models_wanted = strcmp(asked->path, "/v1/models") == 0;
    bool numbers_wanted = strcmp(asked->path, "/v1/engine") == 0;

    if (!models_wanted && !numbers_wanted && strcmp(asked->path, "/metrics") != 0) {
        return false;
    }
    if (strcmp(asked->method, "GET") != 0 && strcmp(asked->method, "HEAD") != 0) {
        *told_out = refuse(405, "invalid_request_error", "this path takes GET");
    } else {
        *told_out = models_wanted    ? models(service)
                    : numbers_wanted ? numbers(service)
                                     : metrics(service);
    }
    return true;
}

static bool
other(void *context, const struct yb_http_asked *asked, struct yb_http_told *told_out)
{
    struct yb_engine_service *service = context;

    YB_ASSERT_OBJ(service, SERVICE_MAGIC);
    if (yb_watch_answer(service->watch, asked, told_out)) {
        return true;
    }
    if (strcmp(asked->path, "/v1/completions") == 0) {
        *told_out = completions(service, asked);
        return true;
    }
    return look(service, asked, told_out);
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_engine_service_create(const struct yb_engine_service_options *options,
                         struct yb_engine_service **service_out, char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_engine_service *service = calloc(1, sizeof(*service));
    struct yb_http_options http;
    enum yb_status status;

    if (service == NULL) {
        (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
        return YB_NO_MEMORY;
    }
    service->magic = SERVICE_MAGIC;
    service->options = *options;
    if (service->options.request_timeout_ns == 0) {
        service->options.request_timeout_ns = REQUEST_NS;
    }
    service->source = (struct yb_http_source){
        .context = options->context,
        .secret = options->secret,
        .allowed = options->allowed,
        .other = other,
        .other_context = service,
    };
    http = (struct yb_http_options){
        .address = options->address,
        .insecure = options->insecure,
        .connections_max = options->connections_max,
        .body_max = YB_ENGINE_BODY_MAX,
        .source = &service->source,
    };
    status = open_watch(service);
    if (status == YB_OK) {
        status = yb_http_create(&http, &service->http, why_out);
    }
    if (status != YB_OK) {
        yb_engine_service_destroy(&service);
        return status;
    }
    *service_out = service;
    return YB_OK;
}

void
yb_engine_service_destroy(struct yb_engine_service **service_ref)
{
    struct yb_engine_service *service = *service_ref;

    YB_ASSERT_OBJ(service, SERVICE_MAGIC);
    *service_ref = NULL;
    if (service->watch != NULL) {
        yb_watch_stop(service->watch);
    }
    if (service->http != NULL) {
        yb_http_destroy(&service->http);
    }
    if (service->watch != NULL) {
        yb_watch_destroy(&service->watch);
    }
    service->magic = 0;
    free(service);
}

void
yb_engine_service_seen(struct yb_engine_service *service,
                       struct yb_engine_seen seen_out[YB_SCHED_CONDUCTORS_MAX])
{
    YB_ASSERT_OBJ(service, SERVICE_MAGIC);
    for (uint32_t i = 0; i < YB_SCHED_CONDUCTORS_MAX; i++) {
        seen_out[i].newest = atomic_load(&service->seen[i].newest);
        seen_out[i].in_flight = atomic_load(&service->seen[i].in_flight);
    }
}

struct yb_address
yb_engine_service_address(const struct yb_engine_service *service)
{
    return yb_http_address(service->http);
}
