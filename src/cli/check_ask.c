/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt to an OpenAI-compatible server, and when the first text of its answer came.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/check.h"
#include "cli/measure.h"
#include "net/curl.h"

#define CONNECT_NS (5 * YB_NS_PER_S)
#define LINE_MAX_  (1u << 20) /* One event. */
#define TEXT_MAX   (4u << 20) /* A whole answer. */
#define URL_BYTES  2048u

/* What comes in: kept whole, or read event by event. */
struct reading {
    struct yb_check_answer *answer; /* NULL: kept whole. */
    uint64_t begun_ns;
    char *line; /* The line, or everything. */
    size_t length;
    bool too_long;
};

/* ---- what comes in -------------------------------------------------------------------------- */

static void
add_text(struct reading *reading, const char *text)
{
    struct yb_check_answer *answer = reading->answer;
    size_t length = strlen(text);
    char *grown;

    if (length > 0 && answer->ttft_ns == 0) {
        answer->ttft_ns = yb_measure_now_ns() - reading->begun_ns;
    }
    if (length > TEXT_MAX - answer->text_bytes) {
        reading->too_long = true;
        return;
    }
    grown = realloc(answer->text, answer->text_bytes + length + 1);
    if (grown != NULL) {
        memcpy(grown + answer->text_bytes, text, length + 1);
        answer->text = grown;
        answer->text_bytes += length;
    }
}

/* One event: {"choices": [{"text": ...}], "usage": ...}, or what went wrong. */
static void
take_event(struct reading *reading, const char *bytes, size_t length)
{
    struct yb_check_answer *answer = reading->answer;
    json_t *event = json_loadb(bytes, length, JSON_DISABLE_EOF_CHECK, NULL);
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *usage = json_object_get(event, "usage");
    const json_t *details = json_object_get(usage, "prompt_tokens_details");
    const json_t *error = json_object_get(event, "error");
    const char *text = json_string_value(json_object_get(choice, "text"));

    if (text != NULL) {
        add_text(reading, text);
    }
    if (json_is_integer(json_object_get(usage, "prompt_tokens"))) {
        answer->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
    }
    if (json_is_integer(json_object_get(details, "cached_tokens"))) {
        answer->cached_tokens = json_integer_value(json_object_get(details, "cached_tokens"));
    }
    if (error != NULL && answer->error[0] == '\0') {
        const char *message =
            json_string_value(json_is_object(error) ? json_object_get(error, "message") : error);

        snprintf(answer->error, sizeof(answer->error), "%.400s",
                 message == NULL ? "an error without a message" : message);
    }
    json_decref(event);
}

static void
take_line(struct reading *reading)
{
    static const char mark[] = "data:";
    const char *line = reading->line;
    size_t length = reading->length;

    if (length >= sizeof(mark) - 1 && memcmp(line, mark, sizeof(mark) - 1) == 0) {
        take_event(reading, line + sizeof(mark) - 1, length - (sizeof(mark) - 1));
    } else if (length > 0 && line[0] == '{') { /* A refusal is no stream. */
        take_event(reading, line, length);
    }
}

static bool
take(void *context, const void *bytes, size_t length)
{
    struct reading *reading = context;

    for (size_t i = 0; i < length; i++) {
        char byte = ((const char *)bytes)[i];

        if (reading->answer != NULL && byte == '\n') {
            take_line(reading);
            reading->length = 0;
        } else if (reading->length == LINE_MAX_) {
            reading->too_long = true;
        } else {
            reading->line[reading->length++] = byte;
        }
    }
    return !reading->too_long;
}

/* ---- one request ---------------------------------------------------------------------------- */

/* What is asked for is `path` beneath the server's own URL. */
static bool
perform(struct yb_curl *curl, const struct yb_check_server *server, const char *path,
        const char *body, struct reading *reading, char error_out[YB_CHECK_ERROR_BYTES])
{
    size_t length = strlen(server->url);
    char url[URL_BYTES], authorization[URL_BYTES], error[YB_CURL_ERROR_BYTES];
    const char *headers[] = {"Content-Type: application/json", authorization};
    struct yb_curl_request request = {
        .method = body != NULL ? "POST" : "GET",
        .url = url,
        .headers = headers,
        .header_count = server->api_key != NULL ? 2 : 1,
        .body = body,
        .body_bytes = body != NULL ? strlen(body) : 0,
        .connect_ns = CONNECT_NS,
        .timeout_ns = server->timeout_ns,
        .take = take,
        .context = reading,
    };
    enum yb_status status;
    long code;

    while (length > 0 && server->url[length - 1] == '/') {
        length--;
    }
    if (length >= 3 && memcmp(server->url + length - 3, "/v1", 3) == 0) {
        length -= 3;
    }
    snprintf(url, sizeof(url), "%.*s%s", (int)length, server->url, path);
    snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s",
             server->api_key != NULL ? server->api_key : "");
    reading->begun_ns = yb_measure_now_ns();
    status = yb_curl_ask(curl, &request, &code, error);
    if (reading->answer != NULL && reading->length > 0) {
        take_line(reading); /* The last line of a refusal has no end. */
    }
    if (status != YB_OK || (code != 200 && error_out[0] == '\0')) {
        snprintf(error_out, YB_CHECK_ERROR_BYTES, "%.300s: %.120s (HTTP status %ld)", url,
                 reading->too_long ? "the answer is too long"
                 : status != YB_OK ? error
                                   : "it refused",
                 code);
    }
    return error_out[0] == '\0';
}

static bool
request(const struct yb_check_server *server, const char *path, const char *body,
        struct reading *reading, char error_out[YB_CHECK_ERROR_BYTES])
{
    struct yb_curl *curl = NULL;
    bool done;

    reading->line = malloc(LINE_MAX_ + 1);
    if (reading->line == NULL) {
        snprintf(error_out, YB_CHECK_ERROR_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
        return false;
    }
    done = yb_curl_create(&curl, error_out) == YB_OK &&
           perform(curl, server, path, body, reading, error_out);
    yb_curl_destroy(&curl);
    return done;
}

bool
yb_check_model(const struct yb_check_server *server, char model_out[YB_CHECK_MODEL_BYTES],
               char error_out[YB_CHECK_ERROR_BYTES])
{
    struct reading reading = {0};
    const char *name = NULL;
    json_t *told = NULL;
    bool done;

    error_out[0] = '\0';
    done = request(server, "/v1/models", NULL, &reading, error_out);
    if (done) {
        told = json_loadb(reading.line, reading.length, 0, NULL);
        name = json_string_value(
            json_object_get(json_array_get(json_object_get(told, "data"), 0), "id"));
        done = name != NULL && strlen(name) < YB_CHECK_MODEL_BYTES;
        snprintf(done ? model_out : error_out, done ? YB_CHECK_MODEL_BYTES : YB_CHECK_ERROR_BYTES,
                 "%s", done ? name : "/v1/models names no model; --model does");
    }
    json_decref(told);
    free(reading.line);
    return done;
}

bool
yb_check_ask(const struct yb_check_server *server, const char *prompt, uint32_t tokens,
             struct yb_check_answer *answer_out)
{
    struct reading reading = {.answer = answer_out};
    json_t *asked = json_pack("{s:s, s:s, s:i, s:i, s:i, s:b, s:{s:b}}", "model", server->model,
                              "prompt", prompt, "max_tokens", (int)tokens, "temperature", 0, "seed",
                              1, "stream", 1, "stream_options", "include_usage", 1);
    char *body = asked == NULL ? NULL : json_dumps(asked, JSON_COMPACT);

    *answer_out = (struct yb_check_answer){.prompt_tokens = -1, .cached_tokens = -1};
    json_decref(asked);
    if (body == NULL) {
        snprintf(answer_out->error, sizeof(answer_out->error), "the request cannot be written");
        return false;
    }
    (void)request(server, "/v1/completions", body, &reading, answer_out->error);
    answer_out->total_ns = yb_measure_now_ns() - reading.begun_ns;
    if (answer_out->error[0] == '\0' && answer_out->ttft_ns == 0) {
        snprintf(answer_out->error, sizeof(answer_out->error), "%s: the answer has no text",
                 server->url);
    }
    free(reading.line);
    free(body);
    return answer_out->error[0] == '\0';
}

void
yb_check_answer_fini(struct yb_check_answer *answer)
{
    free(answer->text);
    answer->text = NULL;
}
