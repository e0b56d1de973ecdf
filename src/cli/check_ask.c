/* SPDX-License-Identifier: Apache-2.0
 *
 * One prompt to an OpenAI-compatible server, and when the first text of its answer came. libcurl is
 * loaded when a server is asked for the first time: nothing else of the program needs it.
 */
#include <dlfcn.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/check.h"

#define CURL_LIBRARY "libcurl.so.4"
#define CONNECT_MS   5000L
#define LINE_MAX_    (1u << 20) /* One event. */
#define TEXT_MAX     (4u << 20) /* A whole answer. */
#define URL_BYTES    2048u

/* Numbers of libcurl's stable interface, whose headers are not needed to build us. */
#define OPTION_WRITE_DATA  10001
#define OPTION_URL         10002
#define OPTION_POST_FIELDS 10015
#define OPTION_HEADERS     10023
#define OPTION_NO_PROXY    10177
#define OPTION_POST_SIZE   60
#define OPTION_NO_SIGNAL   99
#define OPTION_TIMEOUT_MS  155
#define OPTION_CONNECT_MS  156
#define OPTION_WRITE       20011
#define INFO_RESPONSE      0x200002

struct curl {
    void *library;
    void *(*init)(void);
    int (*setopt)(void *handle, int option, ...);
    int (*perform)(void *handle);
    int (*getinfo)(void *handle, int info, ...);
    void (*cleanup)(void *handle);
    const char *(*strerror)(int code);
    void *(*append)(void *list, const char *line);
    void (*free_list)(void *list);
};

/* What comes in: kept whole, or read event by event. */
struct reading {
    struct yb_check_answer *answer; /* NULL: kept whole. */
    uint64_t begun_ns;
    char *line; /* The line, or everything. */
    size_t length;
    bool too_long;
};

/* ---- the library ---------------------------------------------------------------------------- */

static bool
load(struct curl *curl, char error_out[YB_CHECK_ERROR_BYTES])
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_easy_init", &curl->init},       {"curl_easy_setopt", &curl->setopt},
        {"curl_easy_perform", &curl->perform}, {"curl_easy_getinfo", &curl->getinfo},
        {"curl_easy_cleanup", &curl->cleanup}, {"curl_easy_strerror", &curl->strerror},
        {"curl_slist_append", &curl->append},  {"curl_slist_free_all", &curl->free_list},
    };

    curl->library = dlopen(CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; curl->library != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(curl->library, symbols[i].name);

        if (symbol == NULL) {
            (void)dlclose(curl->library);
            curl->library = NULL;
        } else {
            memcpy(symbols[i].to, &symbol, sizeof(symbol));
        }
    }
    if (curl->library == NULL) {
        snprintf(error_out, YB_CHECK_ERROR_BYTES,
                 "servers are asked with libcurl, and " CURL_LIBRARY
                 " is not here; install it (Debian: libcurl4)");
    }
    return curl->library != NULL;
}

/* ---- what comes in -------------------------------------------------------------------------- */

static void
add_text(struct reading *reading, const char *text)
{
    struct yb_check_answer *answer = reading->answer;
    size_t length = strlen(text);
    char *grown;

    if (length > 0 && answer->ttft_ns == 0) {
        answer->ttft_ns = yb_clock_now(yb_clock_system()) - reading->begun_ns;
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

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct reading *reading = context;
    size_t length = size * count;

    for (size_t i = 0; i < length; i++) {
        if (reading->answer != NULL && bytes[i] == '\n') {
            take_line(reading);
            reading->length = 0;
        } else if (reading->length == LINE_MAX_) {
            reading->too_long = true;
        } else {
            reading->line[reading->length++] = bytes[i];
        }
    }
    return reading->too_long ? 0 : length; /* 0 ends it. */
}

/* ---- one request ---------------------------------------------------------------------------- */

static int
prepare(const struct curl *curl, void *handle, const struct yb_check_server *server, void *headers,
        const char *body)
{
    int result = curl->setopt(handle, OPTION_NO_SIGNAL, 1L);

    result |= curl->setopt(handle, OPTION_CONNECT_MS, CONNECT_MS);
    result |= curl->setopt(handle, OPTION_TIMEOUT_MS, (long)(server->timeout_ns / YB_NS_PER_MS));
    result |= curl->setopt(handle, OPTION_NO_PROXY, "*");
    result |= curl->setopt(handle, OPTION_HEADERS, headers);
    result |= curl->setopt(handle, OPTION_WRITE, on_bytes);
    if (body != NULL) {
        result |= curl->setopt(handle, OPTION_POST_SIZE, (long)strlen(body));
        result |= curl->setopt(handle, OPTION_POST_FIELDS, body);
    }
    return result;
}

/* `url` is what is asked for beneath the server's own. */
static bool
perform(const struct curl *curl, const struct yb_check_server *server, const char *path,
        const char *body, struct reading *reading, char error_out[YB_CHECK_ERROR_BYTES])
{
    size_t length = strlen(server->url);
    char url[URL_BYTES], authorization[URL_BYTES];
    void *headers = curl->append(NULL, "Content-Type: application/json");
    void *handle = curl->init();
    long code = 0;
    int result = 2; /* It could not be prepared. */

    while (length > 0 && server->url[length - 1] == '/') {
        length--;
    }
    if (length >= 3 && memcmp(server->url + length - 3, "/v1", 3) == 0) {
        length -= 3;
    }
    snprintf(url, sizeof(url), "%.*s%s", (int)length, server->url, path);
    if (server->api_key != NULL) {
        snprintf(authorization, sizeof(authorization), "Authorization: Bearer %s", server->api_key);
        headers = curl->append(headers, authorization);
    }
    if (handle != NULL) {
        result = prepare(curl, handle, server, headers, body);
        result |= curl->setopt(handle, OPTION_URL, url);
        result |= curl->setopt(handle, OPTION_WRITE_DATA, reading);
        reading->begun_ns = yb_clock_now(yb_clock_system());
        result = result == 0 ? curl->perform(handle) : result;
        (void)curl->getinfo(handle, INFO_RESPONSE, &code);
        if (reading->answer != NULL && reading->length > 0) {
            take_line(reading); /* The last line of a refusal has no end. */
        }
        curl->cleanup(handle);
    }
    curl->free_list(headers);
    if (result != 0 || (code != 200 && error_out[0] == '\0')) {
        snprintf(error_out, YB_CHECK_ERROR_BYTES, "%.300s: %s (HTTP status %ld)", url,
                 reading->too_long ? "the answer is too long"
                 : result != 0     ? curl->strerror(result)
                                   : "it refused",
                 code);
    }
    return error_out[0] == '\0';
}

/* Load what is needed, ask, and let go of it again. */
static bool
request(const struct yb_check_server *server, const char *path, const char *body,
        struct reading *reading, char error_out[YB_CHECK_ERROR_BYTES])
{
    struct curl curl = {0};
    bool done;

    reading->line = malloc(LINE_MAX_ + 1);
    if (reading->line == NULL) {
        snprintf(error_out, YB_CHECK_ERROR_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
        return false;
    }
    if (!load(&curl, error_out)) {
        return false;
    }
    done = perform(&curl, server, path, body, reading, error_out);
    (void)dlclose(curl.library);
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
    answer_out->total_ns = yb_clock_now(yb_clock_system()) - reading.begun_ns;
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
