/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/http.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

#define HTTP_MAGIC    0x68747470u
#define IDLE_S        10u
#define BODY_NS       (10 * YB_NS_PER_S) /* From the header's end to the body's. */
#define KEY_BYTES_MAX 1024u
#define MEMORY_BYTES  32768u  /* Of one connection: its header lines. */
#define MEMORY_LARGE  262144u /* Where long bodies come: fewer, longer pieces. */
#define STREAM_BYTES  16384u  /* Of a stream, at a time. */
#define BACKLOG       64
#define BEARER        "Bearer "
#define BLOCKS_PATH   "/v1/blocks/"
#define NODES_PATH    "/v1/nodes/"
#define DRAIN_END     "/drain"
#define TEXT_TYPE     "text/plain; charset=utf-8"
#define JSON_TYPE     "application/json"
#define HTML_TYPE     "text/html"
#define HTML_POLICY                                                                         \
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src " \
    "data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
#define PROMETHEUS_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct yb_http {
    uint32_t magic;
    const struct yb_http_source *source;
    size_t body_max;
    struct MHD_Daemon *daemon;
    struct yb_address address;
};

struct answer {
    unsigned code;
    const char *type;
    char *body; /* From malloc; given to the library. */
    size_t length;
    uint32_t retry_after_s;
    long (*read)(void *stream, char *out, size_t room); /* Instead of a body. */
    void (*close)(void *stream);
    void *stream;
};

/* ---- answers -------------------------------------------------------------------------------- */

static unsigned
code_of(enum yb_status status)
{
    switch (status) {
    case YB_OK: return MHD_HTTP_OK;
    case YB_INVALID: return MHD_HTTP_BAD_REQUEST;
    case YB_DENIED: return MHD_HTTP_FORBIDDEN;
    case YB_NOT_FOUND: return MHD_HTTP_NOT_FOUND;
    case YB_LEASED: return MHD_HTTP_CONFLICT;
    case YB_TIMED_OUT: return MHD_HTTP_GATEWAY_TIMEOUT;
    default: return MHD_HTTP_SERVICE_UNAVAILABLE;
    }
}

static struct answer
json_answer(unsigned code, json_t *value)
{
    struct answer answer = {.code = code, .type = JSON_TYPE};
    char *text = value == NULL ? NULL : json_dumps(value, JSON_INDENT(2));
    int length = text == NULL ? -1 : asprintf(&answer.body, "%s\n", text);

    answer.body = length < 0 ? NULL : answer.body;
    answer.length = length < 0 ? 0 : (size_t)length;
    free(text);
    json_decref(value);
    return answer;
}

static struct answer
say(unsigned code, const char *status, const char *text)
{
    return json_answer(code, json_pack("{s:s, s:s}", "status", status, "text", text));
}

static struct answer
status_answer(enum yb_status status, json_t *value)
{
    return status == YB_OK && value != NULL
               ? json_answer(MHD_HTTP_OK, value)
               : say(code_of(status), yb_status_name(status), yb_status_text(status));
}

/* ---- who may -------------------------------------------------------------------------------- */

static bool
from_loopback(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct sockaddr_storage storage = {0};
    struct yb_address address;

    if (info == NULL || info->client_addr == NULL) {
        return false;
    }
    memcpy(&storage, info->client_addr,
           info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                    : sizeof(struct sockaddr_in));
    return yb_address_from_sockaddr(&storage, &address) == YB_OK &&
           yb_address_is_loopback(&address);
}

/* H1. True: it may go on; otherwise *answer_out says why not. */
static bool
may_change(const struct yb_http *http, struct MHD_Connection *connection, struct answer *answer_out)
{
    const char *given =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
    const char *origin =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ORIGIN);
    size_t skip = sizeof(BEARER) - 1;

    if (origin != NULL) {
        *answer_out = say(MHD_HTTP_FORBIDDEN, "DENIED", "a page in a browser may not do this");
        return false;
    }
    if (!http->source->secret) {
        if (from_loopback(connection)) {
            return true;
        }
        *answer_out = say(MHD_HTTP_FORBIDDEN, "DENIED",
                          "without a secret only loopback may do this: give --secret-file");
        return false;
    }
    if (given != NULL && strncmp(given, BEARER, skip) == 0 &&
        http->source->allowed(http->source->context, given + skip, strlen(given + skip))) {
        return true;
    }
    *answer_out =
        say(MHD_HTTP_UNAUTHORIZED, "DENIED", "this needs the secret: Authorization: Bearer SECRET");
    return false;
}

/* ---- paths ---------------------------------------------------------------------------------- */

/* 200 in any case: to start it again would mend nothing. */
static struct answer
healthy(const struct yb_http_source *source)
{
    json_t *why = source->ailments != NULL ? source->ailments(source->context) : json_array();
    const char *status = json_array_size(why) > 0 ? "DEGRADED" : "OK";

    return json_answer(MHD_HTTP_OK, json_pack("{s:s, s:s, s:o}", "status", status, "auth",
                                              source->secret ? "secret" : "open", "why", why));
}

static struct answer
ready(const struct yb_http *http)
{
    char reason[YB_HTTP_REASON_BYTES] = "";

    return http->source->ready(http->source->context, reason)
               ? say(MHD_HTTP_OK, "OK", reason[0] == '\0' ? "ready" : reason)
               : say(MHD_HTTP_SERVICE_UNAVAILABLE, "NOT_READY", reason);
}

static struct answer
metrics(const struct yb_http *http)
{
    struct answer answer = {.code = MHD_HTTP_OK, .type = PROMETHEUS_TYPE};
    enum yb_status status =
        http->source->metrics(http->source->context, &answer.body, &answer.length);

    return status == YB_OK ? answer : status_answer(status, NULL);
}

static struct answer
look(const struct yb_http *http, enum yb_status (*ask)(void *context, json_t **out))
{
    json_t *value = NULL;
    enum yb_status status = ask(http->source->context, &value);

    return status_answer(status, value);
}

static bool
is_set(struct MHD_Connection *connection, const char *name)
{
    const char *value = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, name);

    return value != NULL && strcmp(value, "1") == 0;
}

static struct answer
block(const struct yb_http *http, struct MHD_Connection *connection, const char *method,
      const char *key)
{
    const struct yb_http_source *source = http->source;
    const char *tenant = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "tenant");
    struct answer answer;
    json_t *value = NULL;
    enum yb_status status;

    if (key[0] == '\0' || strlen(key) > KEY_BYTES_MAX) {
        return say(MHD_HTTP_BAD_REQUEST, "INVALID", "a key has 1 to 1024 bytes");
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) == 0) {
        status = source->block(source->context, tenant, key, &value);
        return status_answer(status, value);
    }
    if (strcmp(method, MHD_HTTP_METHOD_DELETE) != 0) {
        return say(MHD_HTTP_METHOD_NOT_ALLOWED, "INVALID", "a block takes GET and DELETE");
    }
    if (!may_change(http, connection, &answer)) {
        return answer;
    }
    status = source->remove(source->context, tenant, key, is_set(connection, "force"));
    return say(code_of(status), yb_status_name(status), yb_status_text(status));
}

static struct answer
drain(const struct yb_http *http, struct MHD_Connection *connection, const char *method,
      const char *rest)
{
    const struct yb_http_source *source = http->source;
    size_t length = strlen(rest);
    size_t end = sizeof(DRAIN_END) - 1;
    struct answer answer;
    char name[64];
    enum yb_status status;

    if (length <= end || length - end >= sizeof(name) ||
        strcmp(rest + length - end, DRAIN_END) != 0) {
        return say(MHD_HTTP_NOT_FOUND, "NOT_FOUND", "there is no such path");
    }
    if (strcmp(method, MHD_HTTP_METHOD_POST) != 0) {
        return say(MHD_HTTP_METHOD_NOT_ALLOWED, "INVALID", "draining takes POST");
    }
    if (!may_change(http, connection, &answer)) {
        return answer;
    }
    memcpy(name, rest, length - end);
    name[length - end] = '\0';
    status = source->drain(source->context, name, !is_set(connection, "undo"),
                           is_set(connection, "force"));
    return say(code_of(status), yb_status_name(status), yb_status_text(status));
}

const char *
yb_http_argument(const struct yb_http_asked *asked, const char *name)
{
    return MHD_lookup_connection_value(asked->connection, MHD_GET_ARGUMENT_KIND, name);
}

const char *
yb_http_header(const struct yb_http_asked *asked, const char *name)
{
    return MHD_lookup_connection_value(asked->connection, MHD_HEADER_KIND, name);
}

bool
yb_http_number(const struct yb_http_asked *asked, const char *name, uint64_t most, uint64_t *value)
{
    const char *text = yb_http_argument(asked, name);
    uint64_t number = 0;
    int end = 0;

    if (text == NULL) {
        return true;
    }
    if (text[0] < '0' || text[0] > '9' || sscanf(text, "%20" SCNu64 "%n", &number, &end) != 1 ||
        text[end] != '\0' || number > most) {
        return false;
    }
    *value = number;
    return true;
}

struct yb_http_told
yb_http_json(unsigned code, json_t *value)
{
    struct yb_http_told told = {.code = code, .type = JSON_TYPE};

    told.text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;
    told.length = told.text != NULL ? strlen(told.text) : 0;
    json_decref(value);
    return told;
}

struct yb_http_told
yb_http_refusal(unsigned code, enum yb_status status, const char *text)
{
    return yb_http_json(code,
                        json_pack("{s:s, s:s}", "status", yb_status_name(status), "text", text));
}

/* Whether the source answered itself. */
static bool
other(const struct yb_http *http, struct yb_http_asked *asked, struct answer *answer_out)
{
    struct yb_http_told told = {.code = MHD_HTTP_OK, .type = TEXT_TYPE};
    struct answer refusal = {.body = NULL};

    if (http->source->other == NULL) {
        return false;
    }
    asked->may_change = may_change(http, asked->connection, &refusal);
    free(refusal.body);
    if (!http->source->other(http->source->other_context, asked, &told)) {
        return false;
    }
    *answer_out = (struct answer){
        .code = told.code,
        .type = told.type,
        .body = told.text,
        .length = told.length,
        .retry_after_s = told.retry_after_s,
        .read = told.read,
        .close = told.close,
        .stream = told.stream,
    };
    return true;
}

static struct answer
route(const struct yb_http *http, struct yb_http_asked *asked)
{
    const struct yb_http_source *source = http->source;
    struct MHD_Connection *connection = asked->connection;
    const char *path = asked->path;
    const char *method = asked->method;
    struct answer answer;

    if (other(http, asked, &answer)) {
        return answer;
    }
    if (source->ready == NULL && strcmp(path, "/healthz") != 0) {
        return say(MHD_HTTP_NOT_FOUND, "NOT_FOUND", "there is no such path");
    }
    if (strncmp(path, BLOCKS_PATH, sizeof(BLOCKS_PATH) - 1) == 0) {
        return block(http, connection, method, path + sizeof(BLOCKS_PATH) - 1);
    }
    if (strncmp(path, NODES_PATH, sizeof(NODES_PATH) - 1) == 0) {
        return drain(http, connection, method, path + sizeof(NODES_PATH) - 1);
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return say(MHD_HTTP_METHOD_NOT_ALLOWED, "INVALID", "this path takes GET");
    }
    if (strcmp(path, "/healthz") == 0) {
        return healthy(source);
    }
    if (strcmp(path, "/readyz") == 0) {
        return ready(http);
    }
    if (strcmp(path, "/metrics") == 0) {
        return metrics(http);
    }
    if (strcmp(path, "/v1/nodes") == 0) {
        return look(http, source->nodes);
    }
    if (strcmp(path, "/v1/config") == 0) {
        return look(http, source->config);
    }
    return say(MHD_HTTP_NOT_FOUND, "NOT_FOUND", "there is no such path");
}

/* ---- the library's callback ----------------------------------------------------------------- */

/* A body, as far as it has come: only for sources that take bodies; others' are read past. */
struct body {
    uint64_t until_ns; /* H4 */
    bool too_long;
    size_t length;
    size_t room;
    char *bytes;
};

/* The header has come. */
static struct body *
begin_body(const struct yb_http *http, struct MHD_Connection *connection)
{
    struct body *body = calloc(1, sizeof(*body));
    const char *said =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    unsigned long long length = said != NULL ? strtoull(said, NULL, 10) : 0;

    if (body == NULL) {
        return NULL;
    }
    body->until_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), BODY_NS);
    if (http->source->other != NULL && length > 0 && length <= http->body_max) {
        body->bytes = malloc(length); /* Or it grows as it comes. */
        body->room = body->bytes != NULL ? length : 0;
    }
    return body;
}

static struct answer
say_too_long(const struct yb_http *http)
{
    char text[64];

    (void)snprintf(text, sizeof(text), "a body has at most %zu bytes", http->body_max);
    return say(MHD_HTTP_CONTENT_TOO_LARGE, "TOO_LARGE", text);
}

static void
take_body(const struct yb_http *http, struct body *body, const char *upload, size_t length)
{
    if (http->source->other == NULL || body->too_long) {
        return;
    }
    if (length > http->body_max - body->length) {
        body->too_long = true;
        return;
    }
    if (body->length + length > body->room) {
        size_t room = 2 * (body->length + length);
        char *bytes = realloc(body->bytes, room);

        if (bytes == NULL) {
            body->too_long = true;
            return;
        }
        body->bytes = bytes;
        body->room = room;
    }
    memcpy(body->bytes + body->length, upload, length);
    body->length += length;
}

/* A request is over, or its connection. lint: size, the parameters are the HTTP library's */
static void
on_completed(void *owner, struct MHD_Connection *connection, void **state,
             enum MHD_RequestTerminationCode why)
{
    struct body *body = *state;

    (void)owner;
    (void)connection;
    (void)why;
    if (body != NULL) {
        free(body->bytes);
        free(body);
        *state = NULL;
    }
}

/* The library counts a connection idle from its last bytes. An answer that was long in coming must
 * not be cut off for that: it counts from now on. */
static void
count_anew(struct MHD_Connection *connection)
{
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, 0u);
    (void)MHD_set_connection_option(connection, MHD_CONNECTION_OPTION_TIMEOUT, IDLE_S);
}

struct stream {
    struct MHD_Connection *connection;
    long (*read)(void *stream, char *out, size_t room);
    void (*close)(void *stream);
    void *stream;
};

static ssize_t
on_read(void *owner, uint64_t at, char *out, size_t room)
{
    const struct stream *stream = owner;
    long count = stream->read(stream->stream, out, room);

    (void)at;
    count_anew(stream->connection);
    return count < 0 ? MHD_CONTENT_READER_END_OF_STREAM : (ssize_t)count;
}

static void
on_close(void *owner)
{
    struct stream *stream = owner;

    stream->close(stream->stream);
    free(stream);
}

/* Consume an answer. NULL: no memory; nothing of it is left then. */
static struct MHD_Response *
response_of(struct MHD_Connection *connection, const struct answer *answer)
{
    struct MHD_Response *response = NULL;
    struct stream *stream;

    if (answer->read == NULL) {
        if (answer->body != NULL) {
            response = MHD_create_response_from_buffer(answer->length, answer->body,
                                                       MHD_RESPMEM_MUST_FREE);
        }
        if (response == NULL) {
            free(answer->body);
        }
        return response;
    }
    stream = malloc(sizeof(*stream));
    if (stream != NULL) {
        *stream = (struct stream){connection, answer->read, answer->close, answer->stream};
        response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BYTES, on_read,
                                                     stream, on_close);
    }
    if (response == NULL) {
        answer->close(answer->stream);
        free(stream);
    }
    return response;
}

static void
add_headers(struct MHD_Response *response, const struct answer *answer)
{
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer->type);
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (strncmp(answer->type, HTML_TYPE, sizeof(HTML_TYPE) - 1) == 0) {
        (void)MHD_add_response_header(response, "Content-Security-Policy", HTML_POLICY);
    }
    if (answer->retry_after_s > 0) {
        char seconds[16];

        (void)snprintf(seconds, sizeof(seconds), "%u", answer->retry_after_s);
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    }
    if (answer->code == MHD_HTTP_UNAUTHORIZED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
}

/* It is called when the header has come, for each piece of a body, and at the end. lint: size, the
 * parameters are the HTTP library's */
static enum MHD_Result
on_request(void *owner, struct MHD_Connection *connection, const char *path, const char *method,
           const char *version, const char *upload, size_t *upload_bytes, void **state)
{
    struct yb_http *http = owner;
    struct body *body = *state;
    struct MHD_Response *response;
    struct yb_http_asked asked = {.method = method, .path = path, .connection = connection};
    struct answer answer;
    enum MHD_Result result;

    (void)version;
    YB_ASSERT_OBJ(http, HTTP_MAGIC);
    if (body == NULL) {
        body = begin_body(http, connection);
        *state = body;
        return body != NULL ? MHD_YES : MHD_NO;
    }
    if (*upload_bytes > 0) {
        take_body(http, body, upload, *upload_bytes);
        *upload_bytes = 0;
        return yb_clock_now(yb_clock_system()) < body->until_ns ? MHD_YES : MHD_NO;
    }
    asked.body = body->bytes;
    asked.body_bytes = body->length;
    answer = body->too_long ? say_too_long(http) : route(http, &asked);
    count_anew(connection);
    response = response_of(connection, &answer);
    if (response == NULL) {
        return MHD_NO; /* No memory: the connection ends. */
    }
    add_headers(response, &answer);
    result = MHD_queue_response(connection, answer.code, response);
    MHD_destroy_response(response);
    return result;
}

/* ---- life ----------------------------------------------------------------------------------- */

static enum yb_status
why_not(int error, const struct yb_address *address, char why_out[YB_ADDRESS_WHY_BYTES])
{
    char text[YB_ADDRESS_TEXT_BYTES];
    enum yb_status status = YB_NO_MEMORY;

    yb_address_format(address, text);
    switch (error) {
    case EADDRINUSE: status = YB_ADDRESS_IN_USE; break;
    case EACCES:
    case EPERM: status = YB_DENIED; break;
    case EADDRNOTAVAIL: status = YB_INVALID; break;
    default: break;
    }
    (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES,
                   "http.listen: %s: %s; give another address or port, or \"\" for none", text,
                   status == YB_NO_MEMORY ? strerror(error) : yb_status_text(status));
    return status;
}

/* Bind ourselves: the library would not say why it cannot. */
static enum yb_status
bind_port(const struct yb_address *address, int *fd_out, struct yb_address *bound_out,
          char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct sockaddr_storage storage;
    socklen_t length;
    int fd;
    int one = 1;
    enum yb_status status;

    yb_address_to_sockaddr(address, &storage, &length);
    fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return why_not(errno, address, why_out);
    }
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(fd, (const struct sockaddr *)&storage, length) != 0 || listen(fd, BACKLOG) != 0) {
        status = why_not(errno, address, why_out);
        (void)close(fd);
        return status;
    }
    length = sizeof(storage);
    if (getsockname(fd, (struct sockaddr *)&storage, &length) != 0 ||
        yb_address_from_sockaddr(&storage, bound_out) != YB_OK) {
        status = why_not(errno, address, why_out);
        (void)close(fd);
        return status;
    }
    *fd_out = fd;
    return YB_OK;
}

enum yb_status
yb_http_create(const struct yb_http_options *options, struct yb_http **http_out,
               char why_out[YB_ADDRESS_WHY_BYTES])
{
    struct yb_http *http;
    enum yb_status status;
    int fd = -1;

    YB_ASSERT(options->source != NULL && options->connections_max > 0);
    if (!options->source->secret && !options->insecure &&
        !yb_address_is_loopback(&options->address)) { /* H2 */
        (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES,
                       "http.listen: beyond loopback a secret is needed: give --secret-file, or "
                       "--insecure if everybody who reaches the port may see everything");
        return YB_DENIED;
    }
    http = calloc(1, sizeof(*http));
    if (http == NULL) {
        (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
        return YB_NO_MEMORY;
    }
    http->magic = HTTP_MAGIC;
    http->source = options->source;
    http->body_max = options->body_max != 0 ? options->body_max : YB_HTTP_BODY_MAX;
    status = bind_port(&options->address, &fd, &http->address, why_out);
    if (status != YB_OK) {
        free(http);
        return status;
    }
    http->daemon = MHD_start_daemon(
        MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL,
        NULL, on_request, http, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        options->connections_max, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        http->body_max > YB_HTTP_BODY_MAX ? (size_t)MEMORY_LARGE : (size_t)MEMORY_BYTES,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL, MHD_OPTION_END);
    if (http->daemon == NULL) {
        status = why_not(ENOMEM, &options->address, why_out);
        (void)close(fd);
        free(http);
        return status;
    }
    *http_out = http;
    return YB_OK;
}

void
yb_http_destroy(struct yb_http **http_ref)
{
    struct yb_http *http = *http_ref;

    YB_ASSERT_OBJ(http, HTTP_MAGIC);
    *http_ref = NULL;
    MHD_stop_daemon(http->daemon); /* Closes the socket, joins the threads. */
    http->magic = 0;
    free(http);
}

struct yb_address
yb_http_address(const struct yb_http *http)
{
    return http->address;
}
