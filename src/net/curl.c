/* SPDX-License-Identifier: Apache-2.0 */
#include "net/curl.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

#define CURL_MAGIC 0x6375726cu /* "curl" */

/* Numbers of libcurl's stable interface, whose headers are not needed to build us. */
#define OPTION_WRITE_DATA  10001
#define OPTION_URL         10002
#define OPTION_POST_FIELDS 10015
#define OPTION_HEADERS     10023
#define OPTION_HEADER_DATA 10029
#define OPTION_METHOD      10036
#define OPTION_CA_FILE     10065
#define OPTION_NO_PROXY    10177
#define OPTION_NO_BODY     44
#define OPTION_NO_SIGNAL   99
#define OPTION_TIMEOUT_MS  155
#define OPTION_CONNECT_MS  156
#define OPTION_PROTOCOLS   181
#define OPTION_WRITE       20011
#define OPTION_HEADER      20079
#define OPTION_POST_SIZE   30120
#define INFO_RESPONSE      0x200002
#define PROTOCOLS          3L /* http and https. */

/* What perform says. */
#define RESULT_PROTOCOL  1
#define RESULT_URL       3
#define RESULT_NO_HOST   6
#define RESULT_NOBODY    7
#define RESULT_WRITE     23
#define RESULT_TIMED_OUT 28
#define RESULT_NOTHING   52
#define RESULT_SEND      55
#define RESULT_RECEIVE   56

struct yb_curl {
    uint32_t magic;
    void *handle;
    void *(*init)(void);
    void (*reset)(void *handle);
    int (*setopt)(void *handle, int option, ...);
    int (*perform)(void *handle);
    int (*getinfo)(void *handle, int info, ...);
    void (*cleanup)(void *handle);
    const char *(*strerror)(int code);
    void *(*append)(void *list, const char *line);
    void (*free_list)(void *list);
};

static void
tell(char error_out[YB_CURL_ERROR_BYTES], const char *text)
{
    if (error_out != NULL) {
        (void)snprintf(error_out, YB_CURL_ERROR_BYTES, "%s", text);
    }
}

/* ---- the library ----------------------------------------------------------------------------- */

/* It stays for the life of the process: what it has started there does not survive being unloaded,
 * and the next load finds it. */
static bool
load(struct yb_curl *curl)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_easy_init", &curl->init},           {"curl_easy_reset", &curl->reset},
        {"curl_easy_setopt", &curl->setopt},       {"curl_easy_perform", &curl->perform},
        {"curl_easy_getinfo", &curl->getinfo},     {"curl_easy_cleanup", &curl->cleanup},
        {"curl_easy_strerror", &curl->strerror},   {"curl_slist_append", &curl->append},
        {"curl_slist_free_all", &curl->free_list},
    };
    void *library = dlopen(YB_CURL_LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    bool loaded = library != NULL;

    for (size_t i = 0; loaded && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        void *symbol = dlsym(library, symbols[i].name);

        loaded = symbol != NULL;
        memcpy(symbols[i].to, &symbol, sizeof(symbol));
    }
    if (library != NULL) {
        (void)dlclose(library); /* Of the count alone. */
    }
    return loaded;
}

enum yb_status
yb_curl_create(struct yb_curl **curl_out, char error_out[YB_CURL_ERROR_BYTES])
{
    struct yb_curl *curl = calloc(1, sizeof(*curl));

    *curl_out = NULL;
    if (curl == NULL) {
        tell(error_out, yb_status_text(YB_NO_MEMORY));
        return YB_NO_MEMORY;
    }
    if (!load(curl)) {
        free(curl);
        tell(error_out, "HTTP servers are asked with libcurl, and " YB_CURL_LIBRARY
                        " is not here; install it (Debian: libcurl4)");
        return YB_UNSUPPORTED;
    }
    curl->handle = curl->init();
    if (curl->handle == NULL) {
        free(curl);
        tell(error_out, "libcurl cannot be set up");
        return YB_NO_MEMORY;
    }
    curl->magic = CURL_MAGIC;
    *curl_out = curl;
    return YB_OK;
}

void
yb_curl_destroy(struct yb_curl **curl)
{
    if (*curl == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*curl, CURL_MAGIC);
    (*curl)->cleanup((*curl)->handle);
    (*curl)->magic = 0;
    free(*curl);
    *curl = NULL;
}

/* ---- one request ----------------------------------------------------------------------------- */

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *context)
{
    const struct yb_curl_request *request = context;
    size_t length = size * count;

    if (request->take != NULL && !request->take(request->context, bytes, length)) {
        return length + 1; /* Which ends it, also where nothing came. */
    }
    return length;
}

static size_t
on_header(char *line, size_t size, size_t count, void *context)
{
    const struct yb_curl_request *request = context;
    size_t length = size * count;
    size_t bare = length;

    while (bare > 0 && (line[bare - 1] == '\r' || line[bare - 1] == '\n')) {
        bare--;
    }
    if (request->take_header != NULL && !request->take_header(request->context, line, bare)) {
        return length + 1;
    }
    return length;
}

static long
milliseconds(uint64_t ns)
{
    uint64_t ms = ns / YB_NS_PER_MS;

    return ms == 0 ? 1 : ms > INT32_MAX ? INT32_MAX : (long)ms;
}

static int
prepare(const struct yb_curl *curl, const struct yb_curl_request *request, void *headers)
{
    void *handle = curl->handle;
    int result = curl->setopt(handle, OPTION_NO_SIGNAL, 1L);

    result |= curl->setopt(handle, OPTION_URL, request->url);
    result |= curl->setopt(handle, OPTION_PROTOCOLS, PROTOCOLS);
    result |= curl->setopt(handle, OPTION_CONNECT_MS, milliseconds(request->connect_ns));
    result |= curl->setopt(handle, OPTION_TIMEOUT_MS, milliseconds(request->timeout_ns));
    result |= curl->setopt(handle, OPTION_NO_PROXY, "*");
    result |= curl->setopt(handle, OPTION_HEADERS, headers);
    result |= curl->setopt(handle, OPTION_WRITE, on_bytes);
    result |= curl->setopt(handle, OPTION_WRITE_DATA, request);
    result |= curl->setopt(handle, OPTION_HEADER, on_header);
    result |= curl->setopt(handle, OPTION_HEADER_DATA, request);
    if (request->body != NULL) {
        result |= curl->setopt(handle, OPTION_POST_SIZE, (int64_t)request->body_bytes);
        result |= curl->setopt(handle, OPTION_POST_FIELDS, request->body);
    }
    if (strcmp(request->method, "HEAD") == 0) {
        result |= curl->setopt(handle, OPTION_NO_BODY, 1L);
    } else {
        result |= curl->setopt(handle, OPTION_METHOD, request->method);
    }
    if (request->ca_file != NULL) {
        result |= curl->setopt(handle, OPTION_CA_FILE, request->ca_file);
    }
    return result;
}

static enum yb_status
status_of(int result)
{
    switch (result) {
    case 0: return YB_OK;
    case RESULT_PROTOCOL:
    case RESULT_URL: return YB_INVALID;
    case RESULT_NO_HOST:
    case RESULT_NOBODY: return YB_UNREACHABLE;
    case RESULT_WRITE: return YB_CANCELLED;
    case RESULT_TIMED_OUT: return YB_TIMED_OUT;
    case RESULT_NOTHING:
    case RESULT_SEND:
    case RESULT_RECEIVE: return YB_PEER_LOST;
    default: return YB_IO;
    }
}

/* The list of the headers; false if it cannot be made. An empty "Expect:" keeps libcurl from
 * waiting for leave to send a large body. */
static bool
list_headers(const struct yb_curl *curl, const struct yb_curl_request *request, void **list_out)
{
    void *list = curl->append(NULL, "Expect:");
    bool made = list != NULL;

    for (size_t i = 0; made && i < request->header_count; i++) {
        void *longer = curl->append(list, request->headers[i]);

        made = longer != NULL;
        list = made ? longer : list;
    }
    *list_out = list;
    return made;
}

enum yb_status
yb_curl_ask(struct yb_curl *curl, const struct yb_curl_request *request, long *code_out,
            char error_out[YB_CURL_ERROR_BYTES])
{
    void *headers = NULL;
    enum yb_status status;
    int result;

    YB_ASSERT_OBJ(curl, CURL_MAGIC);
    *code_out = 0;
    if (request->header_count > YB_CURL_HEADERS_MAX) {
        tell(error_out, "a request has too many headers");
        return YB_INVALID;
    }
    curl->reset(curl->handle); /* The connections stay. */
    if (!list_headers(curl, request, &headers)) {
        curl->free_list(headers);
        tell(error_out, yb_status_text(YB_NO_MEMORY));
        return YB_NO_MEMORY;
    }
    result = prepare(curl, request, headers);
    if (result == 0) {
        result = curl->perform(curl->handle);
        (void)curl->getinfo(curl->handle, INFO_RESPONSE, code_out);
        status = status_of(result);
        tell(error_out, status == YB_OK ? "" : curl->strerror(result));
    } else {
        status = YB_INVALID;
        tell(error_out, "libcurl does not take the request");
    }
    curl->reset(curl->handle); /* Nothing of the caller's is remembered. */
    curl->free_list(headers);
    return status;
}

/* ---- URLs ------------------------------------------------------------------------------------ */

enum yb_status
yb_curl_escape(const char *text, bool keeps_slash, char *out, size_t size)
{
    static const char digits[] = "0123456789ABCDEF";
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    size_t used = 0;

    for (const char *at = text; *at != '\0'; at++) {
        bool as_it_is = strchr(plain, *at) != NULL || (*at == '/' && keeps_slash);

        if (used + (as_it_is ? 1 : 3) >= size) {
            return YB_TOO_LARGE;
        }
        if (as_it_is) {
            out[used++] = *at;
        } else {
            out[used++] = '%';
            out[used++] = digits[(uint8_t)*at >> 4];
            out[used++] = digits[(uint8_t)*at & 15];
        }
    }
    if (used >= size) {
        return YB_TOO_LARGE;
    }
    out[used] = '\0';
    return YB_OK;
}
