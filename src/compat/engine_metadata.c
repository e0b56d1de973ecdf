/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that a metadata server of the known system resolves: one JSON value for each engine, kept
 * under `<server>?key=mooncake/[<cluster>/]rpc_meta/<name>`. libcurl is loaded when such a server
 * is asked for the first time; whoever uses P2PHANDSHAKE, or names with a port, needs none.
 */
#include <dlfcn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"

#define ANSWER_MAX (64u * 1024u)
#define CONNECT_MS 2000L
#define TOTAL_MS   5000L

/* Numbers of libcurl's stable interface, whose headers are not needed to build us. */
#define CURL_LIBRARY       "libcurl.so.4"
#define OPTION_WRITE_DATA  10001
#define OPTION_URL         10002
#define OPTION_POST_FIELDS 10015
#define OPTION_HEADERS     10023
#define OPTION_METHOD      10036
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
    char *(*escape)(void *handle, const char *text, int length);
    void (*free)(void *text);
    void *(*append)(void *list, const char *line);
    void (*free_list)(void *list);
};

struct answer {
    char text[ANSWER_MAX + 1];
    size_t length;
    bool too_long;
    long code;
};

/* ---- the library ----------------------------------------------------------------------------- */

static bool
load(struct curl *curl)
{
    const struct {
        const char *name;
        void *to;
    } symbols[] = {
        {"curl_easy_init", &curl->init},
        {"curl_easy_setopt", &curl->setopt},
        {"curl_easy_perform", &curl->perform},
        {"curl_easy_getinfo", &curl->getinfo},
        {"curl_easy_cleanup", &curl->cleanup},
        {"curl_easy_escape", &curl->escape},
        {"curl_free", &curl->free},
        {"curl_slist_append", &curl->append},
        {"curl_slist_free_all", &curl->free_list},
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
    return curl->library != NULL;
}

static size_t
on_bytes(char *bytes, size_t size, size_t count, void *context)
{
    struct answer *answer = context;
    size_t length = size * count;

    if (length > ANSWER_MAX - answer->length) {
        answer->too_long = true;
        return 0; /* Which ends it. */
    }
    memcpy(answer->text + answer->length, bytes, length);
    answer->length += length;
    answer->text[answer->length] = '\0';
    return length;
}

/* ---- one request ----------------------------------------------------------------------------- */

static bool
make_url(const struct curl *curl, void *handle, const struct yb_compat_engine *engine,
         const char *name, char url_out[2048])
{
    char key[1024];
    char *escaped;
    int length;

    (void)snprintf(key, sizeof(key), "mooncake/%s%srpc_meta/%s", engine->cluster,
                   engine->cluster[0] != '\0' ? "/" : "", name);
    escaped = curl->escape(handle, key, 0);
    if (escaped == NULL) {
        return false;
    }
    length = snprintf(url_out, 2048, "%s?key=%s", engine->server, escaped);
    curl->free(escaped);
    return length > 0 && length < 2048;
}

static bool
perform(const struct curl *curl, void *handle, const char *method, const char *body,
        struct answer *answer)
{
    void *headers = curl->append(NULL, "Content-Type: application/json");
    int result = curl->setopt(handle, OPTION_NO_SIGNAL, 1L);

    result |= curl->setopt(handle, OPTION_CONNECT_MS, CONNECT_MS);
    result |= curl->setopt(handle, OPTION_TIMEOUT_MS, TOTAL_MS);
    result |= curl->setopt(handle, OPTION_NO_PROXY, "*");
    result |= curl->setopt(handle, OPTION_HEADERS, headers);
    result |= curl->setopt(handle, OPTION_METHOD, method);
    if (body != NULL) {
        result |= curl->setopt(handle, OPTION_POST_SIZE, (long)strlen(body));
        result |= curl->setopt(handle, OPTION_POST_FIELDS, body);
    }
    result |= curl->setopt(handle, OPTION_WRITE, on_bytes);
    result |= curl->setopt(handle, OPTION_WRITE_DATA, answer);
    result = result == 0 ? curl->perform(handle) : result;
    if (result == 0) {
        result = curl->getinfo(handle, INFO_RESPONSE, &answer->code);
    }
    curl->free_list(headers);
    return result == 0;
}

/* Ask the server about `name`. True: it answered; `answer` says what. */
static bool
ask(struct yb_compat_engine *engine, const char *name, const char *method, const char *body,
    struct answer *answer)
{
    struct curl curl = {0};
    char url[2048];
    void *handle;
    bool answered = false;

    answer->length = 0;
    answer->text[0] = '\0';
    answer->too_long = false;
    answer->code = 0;
    if (!load(&curl)) {
        yb_log_warn(engine->log, "engine",
                    "names of an http:// server need libcurl; install it, or give host:port",
                    yb_log_str("library", CURL_LIBRARY));
        return false;
    }
    handle = curl.init();
    if (handle != NULL) {
        answered = make_url(&curl, handle, engine, name, url) &&
                   curl.setopt(handle, OPTION_URL, url) == 0 &&
                   perform(&curl, handle, method, body, answer);
        curl.cleanup(handle);
    }
    (void)dlclose(curl.library);
    if (!answered) {
        yb_log_warn(engine->log, "engine", "the metadata server does not answer",
                    yb_log_str("server", engine->server), yb_log_str("method", method),
                    yb_log_str("name", name));
    }
    return answered;
}

/* ---- what engines ask ------------------------------------------------------------------------ */

/* Read {"ip_or_host_name": ..., "rpc_port": ...} into "host:port". */
static bool
read_address(const char *text, size_t length, char address_out[YB_COMPAT_NAME_BYTES])
{
    json_t *value = json_loadb(text, length, 0, NULL);
    const char *host = json_string_value(json_object_get(value, "ip_or_host_name"));
    json_int_t port = json_integer_value(json_object_get(value, "rpc_port"));
    bool fine = host != NULL && host[0] != '\0' && port > 0 && port <= UINT16_MAX &&
                strlen(host) < YB_COMPAT_NAME_BYTES - 16;

    if (fine) {
        bool bare = strchr(host, ':') != NULL && host[0] != '[';

        (void)snprintf(address_out, YB_COMPAT_NAME_BYTES, bare ? "[%s]:%d" : "%s:%d", host,
                       (int)port);
    }
    json_decref(value);
    return fine;
}

bool
yb_compat_metadata_resolve(struct yb_compat_engine *engine, const char *name,
                           char address_out[YB_COMPAT_NAME_BYTES])
{
    struct answer *answer = calloc(1, sizeof(*answer));
    bool found = answer != NULL && ask(engine, name, "GET", NULL, answer) && answer->code == 200 &&
                 read_address(answer->text, answer->length, address_out);

    free(answer);
    return found;
}

/* Somebody has the name already: it may go on if nobody answers there any more. */
static bool
is_taken(struct yb_compat_engine *engine, const char *address)
{
    struct yb_transfer_probe probe;
    yb_transfer_peer peer;
    bool lives;

    if (yb_transfer_open(engine->transfer, address, &peer) != YB_OK) {
        return false;
    }
    lives = yb_transfer_ask(engine->transfer, peer, engine->probe_ns, &probe) == YB_OK;
    (void)!yb_transfer_close(engine->transfer, peer);
    return lives;
}

static bool
publish(struct yb_compat_engine *engine, const char *host, const char *body, struct answer *answer)
{
    char own[YB_COMPAT_NAME_BYTES];
    char theirs[YB_COMPAT_NAME_BYTES];

    if (!ask(engine, engine->name, "PUT", body, answer)) {
        return false;
    }
    if (answer->code == 200) {
        return true;
    }
    /* An address that is kept already is not replaced by a PUT. */
    if (!ask(engine, engine->name, "GET", NULL, answer) || answer->code != 200 ||
        !read_address(answer->text, answer->length, theirs)) {
        return false;
    }
    (void)snprintf(own, sizeof(own), strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                   engine->port);
    if (strcmp(own, theirs) != 0 && is_taken(engine, theirs)) {
        yb_log_error(engine->log, "engine", "another engine has this name; take another one",
                     yb_log_str("name", engine->name), yb_log_str("address", theirs));
        return false;
    }
    return ask(engine, engine->name, "DELETE", NULL, answer) &&
           ask(engine, engine->name, "PUT", body, answer) && answer->code == 200;
}

bool
yb_compat_metadata_publish(struct yb_compat_engine *engine, const char *host)
{
    struct answer *answer = calloc(1, sizeof(*answer));
    json_t *value = json_pack("{s:s, s:i}", "ip_or_host_name", host, "rpc_port", (int)engine->port);
    char *body = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;

    engine->published = answer != NULL && body != NULL && publish(engine, host, body, answer);
    if (!engine->published) {
        yb_log_error(engine->log, "engine", "the metadata server does not take the name",
                     yb_log_str("server", engine->server), yb_log_str("name", engine->name),
                     yb_log_u64("http", answer != NULL ? (uint64_t)answer->code : 0));
    }
    free(body);
    json_decref(value);
    free(answer);
    return engine->published;
}

void
yb_compat_metadata_withdraw(struct yb_compat_engine *engine)
{
    struct answer *answer = engine->published ? calloc(1, sizeof(*answer)) : NULL;

    if (answer != NULL) {
        (void)ask(engine, engine->name, "DELETE", NULL, answer);
    }
    free(answer);
    engine->published = false;
}
