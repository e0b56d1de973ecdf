/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenSSL talks to one end of a BIO pair, two rings of fixed size in memory; the
 * owner of the socket moves bytes at the other end. A full ring is what bounds
 * both directions (T2).
 */
#include "net/tls.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "base/check.h"

#define CONTEXT_MAGIC 0x746c7363u
#define TLS_MAGIC     0x746c7373u

/* A self-made certificate says nothing that anybody relies on; the proofs of the handshake are
 * what counts. It must only look valid to both ends, also when their clocks differ. */
#define CERTIFICATE_DAYS 3650

/* A record holds up to 16 KiB; around it are 22 bytes, and perhaps an answer to a key update in
 * front. A record of less than a page, when more is waiting, is not worth its overhead. */
#define RECORD_BYTES_MAX   16384u
#define RECORD_BYTES_WORTH 4096u
#define RECORD_OVERHEAD    128u

static const char binding_label[] = "EXPORTER-Channel-Binding";

struct yb_tls_context {
    uint32_t magic;
    bool server;
    char peer_name[256];
    SSL_CTX *ssl;
};

struct yb_tls {
    uint32_t magic;
    bool ready;           /* The TLS handshake is complete. */
    enum yb_status ended; /* YB_OK while it lives; CLOSED, PROTOCOL or DENIED after. */
    SSL *ssl;
    BIO *wire; /* Our end of the pair; the other one belongs to `ssl`. */
    char error[256];
};

/* Where messages of context creation go. */
struct complaint {
    char *out;
    size_t room;
};

static void complain(const struct complaint *complaint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Write a sentence, and behind it what OpenSSL said first. */
static void
complain(const struct complaint *complaint, const char *format, ...)
{
    unsigned long code = ERR_get_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf(complaint->out, complaint->room, format, arguments);
    va_end(arguments);
    if (reason != NULL && length >= 0 && (size_t)length < complaint->room) {
        snprintf(complaint->out + length, complaint->room - (size_t)length, " (%s)", reason);
    }
    ERR_clear_error();
}

/* ---------------------------------------------------------------------------------------------
 * Contexts */

/* Fill a certificate for `key`, signed by itself. */
static bool
fill_certificate(X509 *certificate, EVP_PKEY *key, uint64_t wall_ns)
{
    time_t now = (time_t)(wall_ns / 1000000000u);
    X509_NAME *name = X509_get_subject_name(certificate);
    uint64_t serial;

    return RAND_bytes((unsigned char *)&serial, sizeof(serial)) == 1 &&
           X509_set_version(certificate, X509_VERSION_3) == 1 &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1) == 1 &&
           X509_time_adj_ex(X509_getm_notBefore(certificate), -1, 0, &now) != NULL &&
           X509_time_adj_ex(X509_getm_notAfter(certificate), CERTIFICATE_DAYS, 0, &now) != NULL &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"yuebing",
                                      -1, -1, 0) == 1 &&
           X509_set_issuer_name(certificate, name) == 1 && X509_set_pubkey(certificate, key) == 1 &&
           X509_sign(certificate, key, EVP_sha256()) > 0;
}

static bool
use_own_certificate(SSL_CTX *ssl, uint64_t wall_ns)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *certificate = X509_new();
    bool done = key != NULL && certificate != NULL && fill_certificate(certificate, key, wall_ns) &&
                SSL_CTX_use_certificate(ssl, certificate) == 1 &&
                SSL_CTX_use_PrivateKey(ssl, key) == 1;

    X509_free(certificate);
    EVP_PKEY_free(key);
    return done;
}

/* Return why a file that OpenSSL would not take cannot be used. */
static enum yb_status
judge_file(const char *path, const char *what, const struct complaint *complaint)
{
    if (access(path, R_OK) == 0) {
        complain(complaint, "%s %s cannot be used: not PEM, or not for this purpose", what, path);
        return YB_INVALID;
    }
    ERR_clear_error();
    complain(complaint, "%s %s cannot be read: %m", what, path);
    return errno == ENOENT ? YB_NOT_FOUND : errno == EACCES ? YB_DENIED : YB_IO;
}

static enum yb_status
use_files(SSL_CTX *ssl, const struct yb_tls_options *options, const struct complaint *complaint)
{
    if (options->certificate_file != NULL) {
        if (SSL_CTX_use_certificate_chain_file(ssl, options->certificate_file) != 1) {
            return judge_file(options->certificate_file, "certificate file", complaint);
        }
        if (SSL_CTX_use_PrivateKey_file(ssl, options->key_file, SSL_FILETYPE_PEM) != 1) {
            return judge_file(options->key_file, "key file", complaint);
        }
        if (SSL_CTX_check_private_key(ssl) != 1) {
            complain(complaint, "key file %s does not belong to certificate file %s",
                     options->key_file, options->certificate_file);
            return YB_INVALID;
        }
    } else if (options->server && !use_own_certificate(ssl, options->wall_ns)) {
        complain(complaint, "no certificate could be made");
        return YB_NO_MEMORY;
    }
    if (options->authority_file != NULL &&
        SSL_CTX_load_verify_locations(ssl, options->authority_file, NULL) != 1) {
        return judge_file(options->authority_file, "authority file", complaint);
    }
    return YB_OK;
}

/* Nobody to verify against: the peer is judged by its proof over the channel binding. */
static int
accept_any_certificate(int verified, X509_STORE_CTX *store)
{
    (void)verified;
    (void)store;
    return 1;
}

static bool
set_rules(SSL_CTX *ssl, const struct yb_tls_options *options)
{
    int verify = SSL_VERIFY_PEER | (options->server ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);

    if (options->authority_file != NULL) {
        SSL_CTX_set_verify(ssl, verify, NULL);
    } else if (options->server) {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_NONE, NULL);
    } else {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, accept_any_certificate);
    }
    SSL_CTX_set_mode(ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_session_cache_mode(ssl, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(ssl, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    return SSL_CTX_set_num_tickets(ssl, 0) == 1 && SSL_CTX_set_max_early_data(ssl, 0) == 1 &&
           SSL_CTX_set_min_proto_version(ssl, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(ssl, TLS1_3_VERSION) == 1; /* T1 */
}

static const char *
contradiction(const struct yb_tls_options *options)
{
    if ((options->certificate_file != NULL) != (options->key_file != NULL)) {
        return "a certificate file and its key file are given together or not at all";
    }
    if (options->peer_name != NULL && (options->server || options->authority_file == NULL)) {
        return "a peer name is checked by clients only, and only with an authority file";
    }
    if (options->peer_name != NULL && strlen(options->peer_name) > 255) {
        return "the peer name has more than 255 characters";
    }
    return NULL;
}

enum yb_status
yb_tls_context_create(const struct yb_tls_options *options, struct yb_tls_context **context_out,
                      char *message_out, size_t message_room)
{
    const struct complaint complaint = {message_out, message_room};
    struct yb_tls_context *context;
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(message_room > 0);
    ERR_clear_error();
    if (contradiction(options) != NULL) {
        complain(&complaint, "%s", contradiction(options));
        return YB_INVALID;
    }
    context = calloc(1, sizeof(*context));
    if (context == NULL) {
        complain(&complaint, "no memory for TLS");
        return YB_NO_MEMORY;
    }
    context->magic = CONTEXT_MAGIC;
    context->server = options->server;
    if (options->peer_name != NULL) {
        memcpy(context->peer_name, options->peer_name, strlen(options->peer_name) + 1);
    }
    context->ssl = SSL_CTX_new(options->server ? TLS_server_method() : TLS_client_method());
    if (context->ssl == NULL || !set_rules(context->ssl, options)) {
        complain(&complaint, "OpenSSL offers no TLS 1.3");
        goto err_destroy;
    }
    status = use_files(context->ssl, options, &complaint);
    if (status != YB_OK) {
        goto err_destroy;
    }
    *context_out = context;
    return YB_OK;

err_destroy:
    yb_tls_context_destroy(&context);
    return status;
}

void
yb_tls_context_destroy(struct yb_tls_context **context_ref)
{
    struct yb_tls_context *context = *context_ref;

    YB_ASSERT_OBJ(context, CONTEXT_MAGIC);
    *context_ref = NULL;
    context->magic = 0;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* ---------------------------------------------------------------------------------------------
 * Connections */

/* Remember the end and its reason; the first one stays. */
static enum yb_status
end(struct yb_tls *tls, enum yb_status status, const char *what)
{
    unsigned long code = ERR_get_error();
    long verdict = SSL_get_verify_result(tls->ssl);
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    int kind = ERR_GET_REASON(code);

    if (tls->ended != YB_OK) {
        ERR_clear_error();
        return tls->ended;
    }
    if (verdict != X509_V_OK && kind == SSL_R_CERTIFICATE_VERIFY_FAILED) {
        reason = X509_verify_cert_error_string(verdict);
    }
    /* Alert codes of a refused certificate are 42 to 49, of one that is missing 116. */
    if (kind == SSL_R_CERTIFICATE_VERIFY_FAILED ||
        kind == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE ||
        (kind > SSL_AD_REASON_OFFSET &&
         ((kind - SSL_AD_REASON_OFFSET >= 42 && kind - SSL_AD_REASON_OFFSET <= 49) ||
          kind - SSL_AD_REASON_OFFSET == 116))) {
        status = YB_DENIED;
    }
    tls->ended = status;
    snprintf(tls->error, sizeof(tls->error), "%s%s%s", what, reason != NULL ? ": " : "",
             reason != NULL ? reason : "");
    ERR_clear_error();
    return status;
}

/* Turn the outcome of an SSL call that moved nothing into a status. */
static enum yb_status
judge_call(struct yb_tls *tls, int returned)
{
    switch (SSL_get_error(tls->ssl, returned)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return YB_AGAIN;
    case SSL_ERROR_ZERO_RETURN: return end(tls, YB_CLOSED, "the peer ended the TLS connection");
    default: return end(tls, YB_PROTOCOL, "TLS failed");
    }
}

/* Go on with the TLS handshake as far as the bytes allow. */
static enum yb_status
advance(struct yb_tls *tls)
{
    int returned;

    if (tls->ended != YB_OK) {
        return tls->ended;
    }
    if (tls->ready) {
        return YB_OK;
    }
    ERR_clear_error();
    returned = SSL_do_handshake(tls->ssl);
    if (returned != 1) {
        return judge_call(tls, returned);
    }
    YB_ASSERT(SSL_version(tls->ssl) == TLS1_3_VERSION); /* T1 */
    tls->ready = true;
    return YB_OK;
}

enum yb_status
yb_tls_create(const struct yb_tls_context *context, struct yb_tls **tls_out)
{
    struct yb_tls *tls;
    BIO *inner = NULL;
    bool named;

    YB_ASSERT_OBJ(context, CONTEXT_MAGIC);
    tls = calloc(1, sizeof(*tls));
    if (tls == NULL) {
        return YB_NO_MEMORY;
    }
    tls->magic = TLS_MAGIC;
    tls->ssl = SSL_new(context->ssl);
    if (tls->ssl == NULL ||
        BIO_new_bio_pair(&inner, YB_TLS_BUFFER_BYTES, &tls->wire, YB_TLS_BUFFER_BYTES) != 1) {
        goto err_destroy;
    }
    SSL_set_bio(tls->ssl, inner, inner);
    named = context->peer_name[0] != '\0';
    if (named && (SSL_set1_host(tls->ssl, context->peer_name) != 1 ||
                  SSL_ctrl(tls->ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                           (void *)(uintptr_t)context->peer_name) != 1)) {
        goto err_destroy;
    }
    if (context->server) {
        SSL_set_accept_state(tls->ssl);
    } else {
        SSL_set_connect_state(tls->ssl);
    }
    if (advance(tls) != YB_AGAIN) {
        goto err_destroy;
    }
    *tls_out = tls;
    return YB_OK;

err_destroy:
    yb_tls_destroy(&tls);
    ERR_clear_error();
    return YB_NO_MEMORY;
}

void
yb_tls_destroy(struct yb_tls **tls_ref)
{
    struct yb_tls *tls = *tls_ref;

    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    *tls_ref = NULL;
    tls->magic = 0;
    SSL_free(tls->ssl);
    BIO_free(tls->wire);
    free(tls);
}

size_t
yb_tls_feed(struct yb_tls *tls, const uint8_t *bytes, size_t length)
{
    size_t used = 0;

    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    while (used < length && tls->ended == YB_OK) {
        size_t left = length - used;
        int taken = BIO_write(tls->wire, bytes + used,
                              left > YB_TLS_BUFFER_BYTES ? (int)YB_TLS_BUFFER_BYTES : (int)left);

        if (taken <= 0) {
            break; /* The ring is full of data that nobody has read yet. */
        }
        used += (size_t)taken;
        if (advance(tls) != YB_OK && tls->ended != YB_OK) {
            break;
        }
    }
    return tls->ended == YB_OK ? used : length;
}

enum yb_status
yb_tls_state(const struct yb_tls *tls)
{
    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    return tls->ended != YB_OK ? tls->ended : tls->ready ? YB_OK : YB_AGAIN;
}

enum yb_status
yb_tls_read(struct yb_tls *tls, uint8_t *out, size_t room, size_t *length_out)
{
    enum yb_status status;
    size_t got = 0;
    int returned;

    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    YB_ASSERT(room > 0);
    status = advance(tls);
    if (status != YB_OK) {
        return status;
    }
    ERR_clear_error();
    returned = SSL_read_ex(tls->ssl, out, room, &got);
    if (returned != 1) {
        return judge_call(tls, returned);
    }
    *length_out = got;
    return YB_OK;
}

/* Return how many bytes of plaintext may be written now so that their record fits whole. OpenSSL
 * would otherwise keep the rest of a record and insist on being called again with the same bytes,
 * which is no contract to hand on. */
static size_t
writable(const struct yb_tls *tls, size_t length)
{
    size_t room = BIO_ctrl_get_write_guarantee(SSL_get_wbio(tls->ssl));
    size_t usable = room > RECORD_OVERHEAD ? room - RECORD_OVERHEAD : 0;
    size_t wanted = length < RECORD_BYTES_MAX ? length : RECORD_BYTES_MAX;

    if (usable >= wanted) {
        return wanted;
    }
    return usable >= RECORD_BYTES_WORTH ? usable : 0;
}

enum yb_status
yb_tls_write(struct yb_tls *tls, const uint8_t *bytes, size_t length, size_t *taken_out)
{
    enum yb_status status;
    size_t taken = 0;
    int returned;

    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    YB_ASSERT(length > 0);
    status = advance(tls);
    if (status != YB_OK) {
        return status;
    }
    length = writable(tls, length);
    if (length == 0) {
        return YB_AGAIN;
    }
    ERR_clear_error();
    returned = SSL_write_ex(tls->ssl, bytes, length, &taken);
    if (returned != 1) {
        return judge_call(tls, returned);
    }
    *taken_out = taken;
    return YB_OK;
}

const uint8_t *
yb_tls_pending_out(struct yb_tls *tls, size_t *length_out)
{
    char *bytes = NULL;
    int length;

    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    length = BIO_nread0(tls->wire, &bytes);
    *length_out = length > 0 ? (size_t)length : 0;
    return length > 0 ? (const uint8_t *)bytes : NULL;
}

void
yb_tls_sent(struct yb_tls *tls, size_t length)
{
    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    while (length > 0) {
        char *bytes = NULL;
        int dropped = BIO_nread(tls->wire, &bytes, length > 16384 ? 16384 : (int)length);

        YB_ASSERT(dropped > 0);
        length -= (size_t)dropped;
    }
    /* A flight of the TLS handshake that did not fit may go on. */
    if (advance(tls) == YB_OK) {
        YB_ASSERT_SLOW(tls->ready);
    }
}

void
yb_tls_finish(struct yb_tls *tls)
{
    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    if (tls->ready && (tls->ended == YB_OK || tls->ended == YB_CLOSED)) {
        ERR_clear_error();
        SSL_shutdown(tls->ssl);
        ERR_clear_error();
    }
}

enum yb_status
yb_tls_binding(const struct yb_tls *tls, uint8_t binding_out[32])
{
    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    if (!tls->ready) {
        return tls->ended == YB_OK ? YB_AGAIN : tls->ended;
    }
    /* RFC 9266: no context value. */
    if (SSL_export_keying_material(tls->ssl, binding_out, 32, binding_label,
                                   sizeof(binding_label) - 1, NULL, 0, 0) != 1) {
        ERR_clear_error();
        return YB_NO_MEMORY;
    }
    return YB_OK;
}

const char *
yb_tls_error(const struct yb_tls *tls)
{
    YB_ASSERT_OBJ(tls, TLS_MAGIC);
    return tls->error;
}
