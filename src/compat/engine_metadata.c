/* SPDX-License-Identifier: Apache-2.0
 *
 * Names that a metadata server of the known system resolves: one JSON value for each engine, kept
 * under `<server>?key=mooncake/[<cluster>/]rpc_meta/<name>`. Whoever uses P2PHANDSHAKE, or
 * names with a port, asks nobody.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"
#include "net/curl.h"

#define ANSWER_MAX (64u * 1024u)
#define CONNECT_NS (2 * YB_NS_PER_S)
#define TOTAL_NS   (5 * YB_NS_PER_S)
#define URL_BYTES  2048u

struct answer {
    char text[ANSWER_MAX + 1];
    size_t length;
    long code;
};

/* ---- one request ----------------------------------------------------------------------------- */

static bool
take(void *context, const void *bytes, size_t length)
{
    struct answer *answer = context;

    if (length > ANSWER_MAX - answer->length) {
        return false;
    }
    memcpy(answer->text + answer->length, bytes, length);
    answer->length += length;
    answer->text[answer->length] = '\0';
    return true;
}

static bool
make_url(const struct yb_compat_engine *engine, const char *name, char url_out[URL_BYTES])
{
    char key[1024];
    int length;

    (void)snprintf(key, sizeof(key), "mooncake/%s%srpc_meta/%s", engine->cluster,
                   engine->cluster[0] != '\0' ? "/" : "", name);
    length = snprintf(url_out, URL_BYTES, "%s?key=", engine->server);
    return length > 0 && (size_t)length < URL_BYTES &&
           yb_curl_escape(key, false, url_out + length, URL_BYTES - (size_t)length) == YB_OK;
}

/* Ask the server about `name`. True: it answered; `answer` says what. */
static bool
ask(struct yb_compat_engine *engine, const char *name, const char *method, const char *body,
    struct answer *answer)
{
    static const char *const headers[] = {"Content-Type: application/json"};
    char url[URL_BYTES];
    char error[YB_CURL_ERROR_BYTES] = "its URL is too long";
    struct yb_curl_request request = {
        .method = method,
        .url = url,
        .headers = headers,
        .header_count = 1,
        .body = body,
        .body_bytes = body != NULL ? strlen(body) : 0,
        .connect_ns = CONNECT_NS,
        .timeout_ns = TOTAL_NS,
        .take = take,
        .context = answer,
    };
    struct yb_curl *curl = NULL;
    bool answered;

    answer->length = 0;
    answer->text[0] = '\0';
    answered = make_url(engine, name, url) && yb_curl_create(&curl, error) == YB_OK &&
               yb_curl_ask(curl, &request, &answer->code, error) == YB_OK;
    yb_curl_destroy(&curl);
    if (!answered) {
        yb_log_warn(engine->log, "engine", "the metadata server does not answer",
                    yb_log_str("server", engine->server), yb_log_str("method", method),
                    yb_log_str("name", name), yb_log_str("error", error));
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
        yb_compat_engine_address(host, (uint16_t)port, address_out);
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
    yb_compat_engine_address(host, engine->port, own);
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
