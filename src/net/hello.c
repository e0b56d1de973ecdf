/* SPDX-License-Identifier: Apache-2.0
 *
 * One object holds the message that is arriving, the bytes to send and the raw
 * bytes of all messages so far, which both proofs cover. A message is judged in
 * three steps, each as early as possible: its first bytes (a stranger?), its
 * preface (which version, how long?), its body.
 */
#include "net/hello_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "base/check.h"

_Static_assert((size_t)YB_WIRE_HELLO_BYTES_MAX <= YB_HELLO_BODY_MAX &&
                   (size_t)YB_WIRE_CHALLENGE_BYTES_MAX <= YB_HELLO_BODY_MAX,
               "the refusal is the longest message");
_Static_assert((size_t)YB_WIRE_HELLO_BYTES_MAX + (size_t)YB_WIRE_PROOF_BYTES_MAX +
                       YB_HELLO_BODY_MAX + (size_t)3 * YB_WIRE_PREFACE_BYTES <=
                   YB_HELLO_OUT_MAX,
               "all that a side can ever have to send");

/* ---------------------------------------------------------------------------------------------
 * Tables */

static enum yb_status
status_of(enum yb_hello_reason reason)
{
    switch (reason) {
#define X(name, value, status, word) \
    case value: return YB_##status;
        YB_HELLO_REASON_MAP(X)
#undef X
    }
    return YB_PROTOCOL;
}

/* ---------------------------------------------------------------------------------------------
 * Sending */

void
yb_hello_append_out(struct yb_hello *hello, const void *bytes, size_t length)
{
    YB_ASSERT(length <= YB_HELLO_OUT_MAX - hello->out_length);
    memcpy(hello->out + hello->out_length, bytes, length);
    hello->out_length += length;
}

void
yb_hello_append_transcript(struct yb_hello *hello, const uint8_t *bytes, size_t length)
{
    YB_ASSERT(length <= YB_HELLO_TRANSCRIPT_MAX - hello->transcript_length);
    memcpy(hello->transcript + hello->transcript_length, bytes, length);
    hello->transcript_length += length;
}

size_t
yb_hello_finish_message(const struct yb_hello *hello, uint16_t type, uint8_t *message,
                        size_t body_length)
{
    struct yb_wire_preface preface = {type, hello->self->version_min, hello->self->version_max,
                                      (uint16_t)body_length};
    size_t length = 0;
    enum yb_status status =
        yb_wire_preface_encode(&preface, message, YB_WIRE_PREFACE_BYTES, &length);

    YB_ASSERT(status == YB_OK && length == YB_WIRE_PREFACE_BYTES);
    return length + body_length;
}

static void
send_refusal(struct yb_hello *hello)
{
    uint8_t message[YB_WIRE_PREFACE_BYTES + YB_WIRE_REFUSAL_BYTES_MAX];
    struct yb_wire_refusal refusal = {
        .status = hello->failure.status,
        .version_min = hello->self->version_min,
        .version_max = hello->self->version_max,
        .reason = (uint16_t)hello->failure.reason,
        .text = yb_wire_text_of(hello->failure.text),
    };
    size_t length = 0;
    enum yb_status status = yb_wire_refusal_encode(&refusal, message + YB_WIRE_PREFACE_BYTES,
                                                   YB_WIRE_REFUSAL_BYTES_MAX, &length);

    YB_ASSERT(status == YB_OK);
    length = yb_hello_finish_message(hello, YB_WIRE_HANDSHAKE_REFUSAL, message, length);
    yb_hello_append_out(hello, message, length);
}

/* Copy a text to the failure, cut without leaving half a character, and swap what may not be
 * sent. */
static void
set_text(struct yb_hello *hello, const char *text)
{
    char *out = hello->failure.text;
    size_t length = strnlen(text, YB_WIRE_REFUSAL_TEXT_MAX);

    while (length > 0 && ((uint8_t)text[length] & 0xc0) == 0x80) {
        length--;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    if (!yb_wire_text_valid(out, length)) {
        for (size_t i = 0; i < length; i++) {
            out[i] = out[i] < ' ' || out[i] > '~' ? '?' : out[i];
        }
    }
}

/* Enter FAILED without a word to the peer. */
static void
fail_silently(struct yb_hello *hello, enum yb_hello_reason reason, const char *text)
{
    YB_ASSERT(hello->state != YB_HELLO_DONE && hello->state != YB_HELLO_FAILED);
    hello->state = YB_HELLO_FAILED;
    hello->failure.reason = reason;
    hello->failure.status = status_of(reason);
    set_text(hello, text);
    yb_auth_key_wipe(&hello->key);
    hello->have_key = false;
}

void
yb_hello_fail(struct yb_hello *hello, enum yb_hello_reason reason, const char *format, ...)
{
    char text[YB_WIRE_REFUSAL_TEXT_MAX + 8];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fail_silently(hello, reason, text);
    if (hello->spoke || hello->in_length == 0) {
        send_refusal(hello);
    }
}

void
yb_hello_fail_decode(struct yb_hello *hello, const struct yb_wire_error *error)
{
    char text[160];

    yb_wire_error_format(error, text, sizeof(text));
    yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "broken handshake message: %s", text);
}

/* ---------------------------------------------------------------------------------------------
 * Strangers */

static void
answer_http(struct yb_hello *hello)
{
    const char *port = hello->self->port_name;
    const char *remedy = hello->self->port_remedy;
    char body[300], answer[500];
    int length;

    length = snprintf(body, sizeof(body), "This is %.120s. It does not speak HTTP.%s%.120s\n",
                      port != NULL ? port : "a binary port of Yuebing", remedy != NULL ? " " : "",
                      remedy != NULL ? remedy : "");
    YB_ASSERT(length > 0 && (size_t)length < sizeof(body));
    length = snprintf(answer, sizeof(answer),
                      "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
                      "Connection: close\r\nContent-Length: %d\r\n\r\n%s",
                      length, body);
    YB_ASSERT(length > 0 && (size_t)length < sizeof(answer));
    yb_hello_append_out(hello, answer, (size_t)length);
}

/* Deal with a first message that is not ours. */
static void
meet_stranger(struct yb_hello *hello, enum yb_hello_stranger stranger)
{
    /* Record type 21, version 3.3, 2 bytes: fatal (2), handshake_failure (40). */
    static const uint8_t alert[] = {21, 3, 3, 0, 2, 2, 40};

    if (stranger == YB_HELLO_STRANGER_TLS && hello->server) {
        fail_silently(hello, YB_HELLO_REASON_TLS,
                      "a TLS client on a port where TLS is switched off");
        yb_hello_append_out(hello, alert, sizeof(alert));
    } else if (stranger == YB_HELLO_STRANGER_TLS) {
        fail_silently(hello, YB_HELLO_REASON_TLS,
                      "the peer speaks TLS: switch TLS on for this connection");
    } else if (stranger == YB_HELLO_STRANGER_CORO_RPC) {
        fail_silently(hello, YB_HELLO_REASON_MAGIC,
                      "a client of the original mooncake package (coro_rpc), which speaks another "
                      "protocol: pip uninstall it there and pip install yuebing");
    } else if (stranger == YB_HELLO_STRANGER_HTTP && hello->server) {
        fail_silently(hello, YB_HELLO_REASON_HTTP, "an HTTP client on a binary port");
        answer_http(hello);
    } else if (stranger == YB_HELLO_STRANGER_HTTP) {
        fail_silently(hello, YB_HELLO_REASON_HTTP,
                      "the peer speaks HTTP: not a binary port of Yuebing; check the port number");
    } else {
        fail_silently(hello, YB_HELLO_REASON_MAGIC,
                      "the peer does not speak Yuebing's protocol; check address and port");
    }
}

/* ---------------------------------------------------------------------------------------------
 * Proofs, versions, clusters, clocks */

enum yb_status
yb_hello_make_proof(struct yb_hello *hello, bool server, const uint8_t *message, size_t length,
                    uint8_t proof_out[32])
{
    struct yb_auth_proof_input input = {.server = server};

    yb_hello_append_transcript(hello, message, length);
    SHA256(hello->transcript, hello->transcript_length, input.transcript);
    memcpy(input.binding, hello->params.binding, sizeof(input.binding));
    return yb_auth_prove(hello->self->auth, &hello->key, &input, proof_out);
}

bool
yb_hello_check_proof(struct yb_hello *hello, const uint8_t proof[32], size_t at)
{
    struct yb_auth_proof_input input = {.server = !hello->server};
    uint8_t *message = hello->transcript + hello->transcript_length;
    enum yb_status status;

    yb_hello_append_transcript(hello, hello->in, hello->in_length);
    memset(message + YB_WIRE_PREFACE_BYTES + at, 0, 32);
    SHA256(hello->transcript, hello->transcript_length, input.transcript);
    memcpy(message + YB_WIRE_PREFACE_BYTES + at, proof, 32);
    memcpy(input.binding, hello->params.binding, sizeof(input.binding));
    if (!hello->auth) {
        if (!yb_wire_zero(proof, 32)) {
            yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "a proof on an open connection");
            return false;
        }
        return true;
    }
    status = yb_auth_check(hello->self->auth, &hello->key, &input, proof);
    if (status != YB_OK) {
        yb_hello_fail(
            hello, status == YB_DENIED ? YB_HELLO_REASON_BAD_CREDENTIAL : YB_HELLO_REASON_INTERNAL,
            "the %s side's proof of its credential is wrong: compare the secret files of both "
            "sides, or somebody interferes",
            hello->server ? "connecting" : "accepting");
        return false;
    }
    return true;
}

/* Remember the peer's range and find the highest version of both. Returns 0 after failing. */
static uint16_t
choose_version(struct yb_hello *hello)
{
    const struct yb_hello_self *self = hello->self;
    const struct yb_wire_preface *peer = &hello->preface;
    uint16_t highest =
        peer->version_max < self->version_max ? peer->version_max : self->version_max;
    bool peer_is_older = peer->version_max < self->version_min;

    if (highest >= peer->version_min && highest >= self->version_min && highest > 0) {
        hello->version_min_of_peer = peer->version_min;
        hello->version_max_of_peer = peer->version_max;
        return highest;
    }
    yb_hello_fail(
        hello, YB_HELLO_REASON_VERSION,
        "no protocol version in common: the %s side (%.64s) speaks %u to %u, the %s side speaks "
        "%u to %u; upgrade the %s side",
        hello->server ? "accepting" : "connecting", self->software, self->version_min,
        self->version_max, hello->server ? "connecting" : "accepting", peer->version_min,
        peer->version_max, peer_is_older == hello->server ? "connecting" : "accepting");
    return 0;
}

bool
yb_hello_check_cluster(struct yb_hello *hello, struct yb_id cluster, uint64_t seed_check)
{
    const struct yb_hello_self *self = hello->self;
    char ours[33], theirs[33];

    yb_id_format(self->cluster, ours);
    yb_id_format(cluster, theirs);
    if (!yb_id_is_none(cluster) && !yb_id_is_none(self->cluster) &&
        !yb_id_equal(cluster, self->cluster)) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_CLUSTER,
            "the %s side belongs to cluster %s, the %s side to cluster %s: check the address, or "
            "the cluster id in the configuration",
            hello->server ? "accepting" : "connecting", ours,
            hello->server ? "connecting" : "accepting", theirs);
        return false;
    }
    if (seed_check != 0 && self->seed_check != 0 && seed_check != self->seed_check) {
        yb_hello_fail(
            hello, YB_HELLO_REASON_SEED,
            "both sides say cluster %s but hash with different seeds (check values %016llx here, "
            "%016llx there): one of them kept an old cluster file; restore or remove it",
            yb_id_is_none(self->cluster) ? theirs : ours, (unsigned long long)self->seed_check,
            (unsigned long long)seed_check);
        return false;
    }
    hello->result.cluster = yb_id_is_none(self->cluster) ? cluster : self->cluster;
    hello->result.seed_check = self->seed_check == 0 ? seed_check : self->seed_check;
    return true;
}

void
yb_hello_finish(struct yb_hello *hello)
{
    hello->result.authenticated = hello->auth; /* H2 */
    hello->state = YB_HELLO_DONE;
    yb_auth_key_wipe(&hello->key);
    hello->have_key = false;
}

void
yb_hello_copy_text(char *out, size_t room, struct yb_wire_text text)
{
    size_t length = text.length < room - 1 ? text.length : room - 1;

    memcpy(out, text.bytes, length);
    out[length] = '\0';
}

/* ---------------------------------------------------------------------------------------------
 * Receiving, both sides */

static void
take_refusal(struct yb_hello *hello, const uint8_t *body, size_t length)
{
    struct yb_wire_refusal refusal;
    struct yb_wire_error error;
    char text[YB_WIRE_REFUSAL_TEXT_MAX + 1];

    if (yb_wire_refusal_decode(body, length, &refusal, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    yb_hello_copy_text(text, sizeof(text), refusal.text);
    fail_silently(hello,
                  refusal.reason > 0 && refusal.reason < YB_HELLO_REASON_COUNT
                      ? (enum yb_hello_reason)refusal.reason
                      : YB_HELLO_REASON_MALFORMED,
                  text);
    hello->failure.by_peer = true;
    if (yb_status_known(refusal.status) && refusal.status != YB_OK) {
        hello->failure.status = (enum yb_status)refusal.status;
    }
}

static size_t
body_max(uint16_t type)
{
    switch (type) {
    case YB_WIRE_HANDSHAKE_HELLO: return YB_WIRE_HELLO_BYTES_MAX;
    case YB_WIRE_HANDSHAKE_CHALLENGE: return YB_WIRE_CHALLENGE_BYTES_MAX;
    case YB_WIRE_HANDSHAKE_PROOF: return YB_WIRE_PROOF_BYTES_MAX;
    case YB_WIRE_HANDSHAKE_WELCOME: return YB_WIRE_WELCOME_BYTES_MAX;
    default: return YB_WIRE_REFUSAL_BYTES_MAX;
    }
}

static uint16_t
expected_type(enum yb_hello_state state)
{
    switch (state) {
    case YB_HELLO_WAIT_HELLO: return YB_WIRE_HANDSHAKE_HELLO;
    case YB_HELLO_WAIT_CHALLENGE: return YB_WIRE_HANDSHAKE_CHALLENGE;
    case YB_HELLO_WAIT_PROOF: return YB_WIRE_HANDSHAKE_PROOF;
    default: return YB_WIRE_HANDSHAKE_WELCOME;
    }
}

/* Judge a complete preface, before any byte of the body: a newer version's body may be laid out
 * in a way that we do not know. */
static void
take_preface(struct yb_hello *hello)
{
    struct yb_wire_preface *preface = &hello->preface;
    struct yb_wire_error error;
    bool first = !hello->spoke;

    hello->spoke = true;
    if (yb_wire_preface_decode(hello->in, YB_WIRE_PREFACE_BYTES, preface, &error) != YB_OK) {
        yb_hello_fail_decode(hello, &error);
        return;
    }
    if (preface->version_min > preface->version_max) {
        yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "the version range %u to %u is upside down",
                      preface->version_min, preface->version_max);
        return;
    }
    if (preface->type != YB_WIRE_HANDSHAKE_REFUSAL) {
        if (preface->type != expected_type(hello->state)) {
            yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "a %s where a %s was expected",
                          yb_wire_handshake_name(preface->type),
                          yb_wire_handshake_name(expected_type(hello->state)));
            return;
        }
        if (first) {
            hello->result.version = choose_version(hello);
        } else if (preface->version_min != hello->version_min_of_peer ||
                   preface->version_max != hello->version_max_of_peer) {
            yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "the version range changed on the way");
        }
    }
    if (hello->state != YB_HELLO_FAILED && preface->length > body_max(preface->type)) {
        yb_hello_fail(hello, YB_HELLO_REASON_MALFORMED, "a %s of %u bytes; at most %zu are allowed",
                      yb_wire_handshake_name(preface->type), preface->length,
                      body_max(preface->type));
    }
}

static void
take_message(struct yb_hello *hello, uint64_t wall_ns)
{
    const uint8_t *body = hello->in + YB_WIRE_PREFACE_BYTES;
    size_t length = hello->preface.length;

    if (hello->preface.type == YB_WIRE_HANDSHAKE_REFUSAL) {
        take_refusal(hello, body, length);
        return;
    }
    switch (hello->state) {
    case YB_HELLO_WAIT_HELLO: yb_hello_take_hello(hello, body, length, wall_ns); break;
    case YB_HELLO_WAIT_CHALLENGE: yb_hello_take_challenge(hello, body, length, wall_ns); break;
    case YB_HELLO_WAIT_PROOF: yb_hello_take_proof(hello, body, length); break;
    case YB_HELLO_WAIT_WELCOME: yb_hello_take_welcome(hello, body, length); break;
    case YB_HELLO_DONE:
    case YB_HELLO_FAILED: YB_ASSERT(false);
    }
    hello->in_length = 0;
}

/* Judge what has arrived of the current message so far. */
static void
judge(struct yb_hello *hello, uint64_t wall_ns)
{
    if (!hello->spoke) {
        enum yb_hello_stranger stranger = yb_hello_stranger(hello->in, hello->in_length);

        if (stranger != YB_HELLO_STRANGER_NONE && stranger != YB_HELLO_STRANGER_UNDECIDED) {
            meet_stranger(hello, stranger);
            return;
        }
    }
    if (hello->in_length == YB_WIRE_PREFACE_BYTES) {
        take_preface(hello);
    }
    if (hello->state != YB_HELLO_FAILED && hello->in_length >= YB_WIRE_PREFACE_BYTES &&
        hello->in_length == (size_t)YB_WIRE_PREFACE_BYTES + hello->preface.length) {
        take_message(hello, wall_ns);
    }
}

size_t
yb_hello_feed(struct yb_hello *hello, const uint8_t *bytes, size_t length, uint64_t wall_ns)
{
    size_t used = 0;

    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    while (used < length && hello->state != YB_HELLO_DONE && hello->state != YB_HELLO_FAILED) {
        size_t need = YB_WIRE_PREFACE_BYTES;
        size_t step;

        if (hello->in_length >= YB_WIRE_PREFACE_BYTES) {
            need += hello->preface.length;
        }
        step = need - hello->in_length < length - used ? need - hello->in_length : length - used;
        YB_ASSERT(step > 0 && step <= sizeof(hello->in) - hello->in_length);
        memcpy(hello->in + hello->in_length, bytes + used, step);
        hello->in_length += step;
        used += step;
        judge(hello, wall_ns);
    }
    return hello->state == YB_HELLO_FAILED ? length : used; /* H4, H5 */
}

/* ---------------------------------------------------------------------------------------------
 * Life */

static bool
self_valid(const struct yb_hello_self *self)
{
    return self->software != NULL && self->tenant != NULL &&
           strlen(self->software) <= YB_WIRE_HELLO_SOFTWARE_MAX &&
           yb_wire_text_valid(self->software, strlen(self->software)) &&
           self->version_min <= self->version_max && self->data_bytes_max <= YB_WIRE_DATA_BYTES_MAX;
}

static struct yb_hello *
create(const struct yb_hello_self *self, const struct yb_hello_params *params, bool server)
{
    struct yb_hello *hello = calloc(1, sizeof(*hello));

    if (hello != NULL) {
        hello->magic = YB_HELLO_MAGIC;
        hello->server = server;
        hello->state = server ? YB_HELLO_WAIT_HELLO : YB_HELLO_WAIT_CHALLENGE;
        hello->self = self;
        hello->params = *params;
    }
    return hello;
}

enum yb_status
yb_hello_client_create(const struct yb_hello_self *self, const struct yb_hello_params *params,
                       uint64_t wall_ns, struct yb_hello **hello_out)
{
    struct yb_hello *hello;
    enum yb_status status;
    bool is_client = self->role == YB_WIRE_ROLE_CLIENT;

    if (!self_valid(self) || (is_client ? !yb_auth_tenant_valid(self->tenant, strlen(self->tenant))
                                        : self->tenant[0] != '\0')) {
        return YB_INVALID;
    }
    hello = create(self, params, false);
    if (hello == NULL) {
        return YB_NO_MEMORY;
    }
    if (self->auth != NULL) {
        status = yb_auth_key_for(self->auth, self->role, self->tenant, &hello->key);
        if (status != YB_OK) {
            goto err_destroy;
        }
        hello->have_key = true;
    }
    status = yb_hello_send_hello(hello, wall_ns);
    if (status != YB_OK) {
        goto err_destroy;
    }
    *hello_out = hello;
    return YB_OK;

err_destroy:
    yb_hello_destroy(&hello);
    return status;
}

enum yb_status
yb_hello_server_create(const struct yb_hello_self *self, const struct yb_hello_params *params,
                       struct yb_hello **hello_out)
{
    struct yb_hello *hello;

    if (!self_valid(self)) {
        return YB_INVALID;
    }
    hello = create(self, params, true);
    if (hello == NULL) {
        return YB_NO_MEMORY;
    }
    *hello_out = hello;
    return YB_OK;
}

void
yb_hello_destroy(struct yb_hello **hello_ref)
{
    struct yb_hello *hello = *hello_ref;

    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    *hello_ref = NULL;
    OPENSSL_cleanse(hello, sizeof(*hello));
    free(hello);
}

enum yb_hello_state
yb_hello_state(const struct yb_hello *hello)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    return hello->state;
}

const uint8_t *
yb_hello_output(const struct yb_hello *hello, size_t *length_out)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    *length_out = hello->out_length;
    return hello->out;
}

void
yb_hello_sent(struct yb_hello *hello, size_t length)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    YB_ASSERT(length <= hello->out_length);
    hello->out_length -= length;
    memmove(hello->out, hello->out + length, hello->out_length);
}

void
yb_hello_refuse(struct yb_hello *hello, enum yb_hello_reason reason, const char *text)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    YB_ASSERT(reason != YB_HELLO_REASON_NONE);
    if (hello->state != YB_HELLO_DONE && hello->state != YB_HELLO_FAILED) {
        yb_hello_fail(hello, reason, "%s", text);
    }
}

const struct yb_hello_result *
yb_hello_result(const struct yb_hello *hello)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    YB_ASSERT(hello->state == YB_HELLO_DONE);
    return &hello->result;
}

const struct yb_hello_failure *
yb_hello_failure(const struct yb_hello *hello)
{
    YB_ASSERT_OBJ(hello, YB_HELLO_MAGIC);
    YB_ASSERT(hello->state == YB_HELLO_FAILED);
    return &hello->failure;
}
