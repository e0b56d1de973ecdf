/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define CONNECT_NS  (2 * YB_NS_PER_S)
#define TIMEOUT_NS  (10 * YB_NS_PER_S)
#define WORK_NS     (120 * YB_NS_PER_S) /* What has a body may be work. */
#define URL_BYTES   1024u
#define TRACE_BYTES 80u /* Of a header with a traceparent. */

struct answer {
    char *bytes;
    size_t length;
    size_t room;
};

static bool
take(void *context, const void *bytes, size_t length)
{
    struct answer *answer = context;

    if (length > YB_ASK_ANSWER_MAX - answer->length) {
        return false;
    }
    if (answer->length + length > answer->room) {
        size_t room = 2 * (answer->length + length);
        char *more = realloc(answer->bytes, room);

        if (more == NULL) {
            return false;
        }
        answer->bytes = more;
        answer->room = room;
    }
    memcpy(answer->bytes + answer->length, bytes, length);
    answer->length += length;
    return true;
}

/* What is asked of whom; no body: GET. */
struct question {
    const char *address;
    const char *path;
    const char *body;
    const char *traceparent; /* NULL: none. */
};

static enum yb_status
ask(struct yb_curl *curl, const struct question *question, long *code_out, json_t **json_out,
    char error_out[YB_CURL_ERROR_BYTES])
{
    char trace[TRACE_BYTES];
    const char *const headers[] = {"Content-Type: application/json", trace};
    const char *body = question->body;
    struct answer answer = {.bytes = NULL};
    char url[URL_BYTES];
    const struct yb_curl_request request = {
        .method = body != NULL ? "POST" : "GET",
        .url = url,
        .headers = headers,
        .header_count = body == NULL                    ? 0
                        : question->traceparent == NULL ? 1
                                                        : 2,
        .body = body,
        .body_bytes = body != NULL ? strlen(body) : 0,
        .connect_ns = CONNECT_NS,
        .timeout_ns = body != NULL ? WORK_NS : TIMEOUT_NS,
        .take = take,
        .context = &answer,
    };
    enum yb_status status;
    int length = snprintf(url, sizeof(url), "http://%s%s", question->address, question->path);

    if (length < 0 || (size_t)length >= sizeof(url)) {
        (void)snprintf(error_out, YB_CURL_ERROR_BYTES, "the address is too long");
        return YB_INVALID;
    }
    if (question->traceparent != NULL) {
        (void)snprintf(trace, sizeof(trace), "traceparent: %s", question->traceparent);
    }
    status = yb_curl_ask(curl, &request, code_out, error_out);
    if (status == YB_OK) {
        *json_out = answer.length > 0 ? json_loadb(answer.bytes, answer.length, 0, NULL) : NULL;
    }
    free(answer.bytes);
    return status;
}

enum yb_status
yb_ask(const char *address, const char *path, long *code_out, json_t **json_out,
       char error_out[YB_CURL_ERROR_BYTES])
{
    const struct question question = {.address = address, .path = path};
    struct yb_curl *curl = NULL;
    enum yb_status status = yb_curl_create(&curl, error_out);

    if (status == YB_OK) {
        status = ask(curl, &question, code_out, json_out, error_out);
        yb_curl_destroy(&curl);
    }
    return status;
}

static json_t *
value_of(struct yb_curl *curl, const struct question *question, long *code_out)
{
    char error[YB_CURL_ERROR_BYTES];
    json_t *value = NULL;
    long code = 0;

    if (ask(curl, question, &code, &value, error) != YB_OK) {
        code = 0;
    }
    if (code_out != NULL) {
        *code_out = code;
    }
    return value;
}

json_t *
yb_ask_by(struct yb_curl *curl, const char *address, const char *path, const char *body,
          long *code_out)
{
    const struct question question = {.address = address, .path = path, .body = body};

    return value_of(curl, &question, code_out);
}

json_t *
yb_ask_traced(struct yb_curl *curl, const char *address, const char *path, json_t *body,
              const char *traceparent, long *code_out)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    const struct question question = {
        .address = address, .path = path, .body = text, .traceparent = traceparent};
    json_t *value = text != NULL ? value_of(curl, &question, code_out) : NULL;

    json_decref(body);
    free(text);
    return value;
}

json_t *
yb_ask_json(struct yb_curl *curl, const char *address, const char *path, json_t *body,
            long *code_out)
{
    return yb_ask_traced(curl, address, path, body, NULL, code_out);
}

uint64_t
yb_ask_number(const json_t *answer, const char *name)
{
    json_int_t value = json_integer_value(json_object_get(answer, name));

    return value > 0 ? (uint64_t)value : 0;
}
