/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the TLS filter moves bytes both ways, bounds what waits, and names what broke.
 * Method: two filters against each other in memory, in random pieces; flipped bytes;
 * certificates made here.
 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/clock.h"
#include "net/tls.h"

/* Certificates are judged by the machine's clock, so this one comes from there. */
static uint64_t
wall(void)
{
    return yb_clock_wall(yb_clock_system());
}

static struct yb_tls_context *
context_of(const struct yb_tls_options *options)
{
    struct yb_tls_context *context = NULL;
    char message[400] = "";
    enum yb_status status = yb_tls_context_create(options, &context, message, sizeof(message));

    if (status != YB_OK) {
        print_error("%s\n", message);
    }
    assert_int_equal(status, YB_OK);
    return context;
}

struct ends {
    struct yb_tls *client;
    struct yb_tls *server;
    struct yb_tls_context *client_context;
    struct yb_tls_context *server_context;
    uint64_t random;
};

static void
ends_open(struct ends *ends, const struct yb_tls_options *client,
          const struct yb_tls_options *server)
{
    *ends = (struct ends){.random = 5};
    ends->client_context = context_of(client);
    ends->server_context = context_of(server);
    assert_int_equal(yb_tls_create(ends->client_context, &ends->client), YB_OK);
    assert_int_equal(yb_tls_create(ends->server_context, &ends->server), YB_OK);
}

static void
ends_open_plain(struct ends *ends)
{
    struct yb_tls_options client = {.server = false};
    struct yb_tls_options server = {.server = true, .wall_ns = wall()};

    ends_open(ends, &client, &server);
}

static void
ends_close(struct ends *ends)
{
    yb_tls_destroy(&ends->client);
    yb_tls_destroy(&ends->server);
    yb_tls_context_destroy(&ends->client_context);
    yb_tls_context_destroy(&ends->server_context);
    assert_null(ends->client);
}

/* Carry a random piece; returns how many bytes moved. */
static size_t
carry(struct ends *ends, bool from_client)
{
    struct yb_tls *from = from_client ? ends->client : ends->server;
    struct yb_tls *to = from_client ? ends->server : ends->client;
    size_t length = 0;
    const uint8_t *bytes = yb_tls_pending_out(from, &length);

    assert_true(length <= YB_TLS_BUFFER_BYTES);
    if (bytes == NULL) {
        return 0;
    }
    length = yb_tls_feed(to, bytes, 1 + unit_random(&ends->random) % length);
    yb_tls_sent(from, length);
    return length;
}

static void
run(struct ends *ends)
{
    while (carry(ends, true) + carry(ends, false) > 0) {
    }
}

/* A byte that depends on its place, so that a lost or doubled piece shows. */
static uint8_t
pattern(size_t at)
{
    return (uint8_t)(at * 131 ^ at >> 7);
}

/* Put as much as goes in; returns the new number of bytes written. */
static size_t
fill(struct ends *ends, size_t written, size_t total)
{
    uint8_t piece[9000];
    size_t length = 1 + unit_random(&ends->random) % sizeof(piece), taken = 0;
    enum yb_status status;

    length = length < total - written ? length : total - written;
    if (length == 0) {
        return written;
    }
    for (size_t i = 0; i < length; i++) {
        piece[i] = pattern(written + i);
    }
    status = yb_tls_write(ends->client, piece, length, &taken);
    assert_true(status == YB_OK || (status == YB_AGAIN && taken == 0));
    return written + taken;
}

static void
test_tls__a_megabyte_arrives_in_order_through_small_buffers(void **state)
{
    struct ends ends;
    size_t written = 0, read = 0, idle = 0;
    const size_t total = 1u << 20;

    (void)state;
    ends_open_plain(&ends);
    ends.random = unit_seed("tls pieces");
    run(&ends);
    assert_int_equal(yb_tls_state(ends.client), YB_OK);
    assert_int_equal(yb_tls_state(ends.server), YB_OK);
    while (read < total && idle < 1000) {
        uint8_t piece[5000];
        size_t length = 0, room = 1 + unit_random(&ends.random) % sizeof(piece);
        size_t before = written + read;

        written = fill(&ends, written, total);
        carry(&ends, true);
        if (yb_tls_read(ends.server, piece, room, &length) == YB_OK) {
            for (size_t i = 0; i < length; i++) {
                assert_int_equal(piece[i], pattern(read + i));
            }
            read += length;
        }
        idle = written + read == before ? idle + 1 : 0;
    }
    assert_true(read == total);
    ends_close(&ends);
}

static void
test_tls__what_waits_is_bounded_in_both_directions(void **state)
{
    struct ends ends;
    uint8_t piece[4096] = {0};
    size_t taken = 0, total = 0, length = 0, given = 0;

    (void)state;
    ends_open_plain(&ends);
    assert_int_equal(yb_tls_write(ends.client, piece, 1, &taken), YB_AGAIN);
    run(&ends);
    while (yb_tls_write(ends.client, piece, sizeof(piece), &taken) == YB_OK) {
        total += taken;
        assert_true(total <= YB_TLS_BUFFER_BYTES);
    }
    assert_true(total > YB_TLS_BUFFER_BYTES / 2);
    /* Nobody reads at the other end: it takes one buffer and no more. */
    for (unsigned round = 0; round < 20; round++) {
        const uint8_t *bytes = yb_tls_pending_out(ends.client, &length);

        if (bytes != NULL) {
            size_t moved = yb_tls_feed(ends.server, bytes, length);

            given += moved;
            yb_tls_sent(ends.client, moved);
        }
        if (yb_tls_write(ends.client, piece, sizeof(piece), &taken) == YB_OK) {
            total += taken;
        }
    }
    assert_true(given <= YB_TLS_BUFFER_BYTES + 20000);
    assert_true(total <= (size_t)3 * YB_TLS_BUFFER_BYTES);
    ends_close(&ends);
}

static void
test_tls__the_binding_is_equal_on_both_ends_and_new_on_each_connection(void **state)
{
    uint8_t bindings[2][2][32];

    (void)state;
    for (unsigned round = 0; round < 2; round++) {
        struct ends ends;

        ends_open_plain(&ends);
        assert_int_equal(yb_tls_binding(ends.client, bindings[round][0]), YB_AGAIN);
        run(&ends);
        assert_int_equal(yb_tls_binding(ends.client, bindings[round][0]), YB_OK);
        assert_int_equal(yb_tls_binding(ends.server, bindings[round][1]), YB_OK);
        assert_memory_equal(bindings[round][0], bindings[round][1], 32);
        ends_close(&ends);
    }
    assert_memory_not_equal(bindings[0][0], bindings[1][0], 32);
}

static void
test_tls__a_flipped_byte_ends_the_connection(void **state)
{
    uint8_t piece[100] = {1}, bytes[200];
    size_t taken = 0, length = 0;
    struct ends ends;
    const uint8_t *out;

    (void)state;
    ends_open_plain(&ends);
    run(&ends);
    assert_int_equal(yb_tls_write(ends.client, piece, sizeof(piece), &taken), YB_OK);
    out = yb_tls_pending_out(ends.client, &length);
    assert_true(length <= sizeof(bytes));
    memcpy(bytes, out, length);
    bytes[50] ^= 1;
    assert_int_equal(yb_tls_feed(ends.server, bytes, length), length);
    assert_int_equal(yb_tls_read(ends.server, piece, sizeof(piece), &taken), YB_PROTOCOL);
    assert_true(strlen(yb_tls_error(ends.server)) > 0);
    /* The other end is told by an alert. */
    yb_tls_sent(ends.client, length);
    run(&ends);
    assert_int_equal(yb_tls_read(ends.client, piece, sizeof(piece), &taken), YB_PROTOCOL);
    assert_int_equal(yb_tls_feed(ends.server, bytes, length), length);
    ends_close(&ends);
}

static void
test_tls__plain_bytes_and_older_versions_are_refused(void **state)
{
    struct yb_tls_options options = {.server = true, .wall_ns = wall()};
    struct yb_tls_context *context = context_of(&options);
    struct yb_tls *server = NULL;
    SSL_CTX *old = SSL_CTX_new(TLS_client_method());
    SSL *ssl;
    BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
    uint8_t bytes[2000];
    size_t length = 0;
    int got;

    (void)state;
    assert_int_equal(yb_tls_create(context, &server), YB_OK);
    assert_int_equal(yb_tls_feed(server, (const uint8_t *)"YUEBING\0\1\0\1\0", 12), 12);
    assert_int_equal(yb_tls_state(server), YB_PROTOCOL);
    yb_tls_destroy(&server);

    assert_non_null(old);
    SSL_CTX_set_max_proto_version(old, TLS1_2_VERSION);
    ssl = SSL_new(old);
    SSL_set_bio(ssl, in, out);
    SSL_set_connect_state(ssl);
    assert_int_equal(SSL_do_handshake(ssl), -1);
    got = BIO_read(out, bytes, sizeof(bytes));
    assert_true(got > 0);
    assert_int_equal(yb_tls_create(context, &server), YB_OK);
    assert_int_equal(yb_tls_feed(server, bytes, (size_t)got), got);
    assert_int_equal(yb_tls_state(server), YB_PROTOCOL);
    assert_non_null(yb_tls_pending_out(server, &length));
    yb_tls_destroy(&server);
    SSL_free(ssl);
    SSL_CTX_free(old);
    yb_tls_context_destroy(&context);
}

static void
test_tls__the_end_is_said_and_heard(void **state)
{
    uint8_t piece[10];
    size_t taken = 0;
    struct ends ends;

    (void)state;
    ends_open_plain(&ends);
    run(&ends);
    assert_int_equal(yb_tls_read(ends.server, piece, sizeof(piece), &taken), YB_AGAIN);
    yb_tls_finish(ends.client);
    run(&ends);
    assert_int_equal(yb_tls_read(ends.server, piece, sizeof(piece), &taken), YB_CLOSED);
    ends_close(&ends);
}

/* Write a key and a certificate for it, signed by `issuer_key` (NULL: by itself). */
static void
make_certificate(const char *name, EVP_PKEY *key, EVP_PKEY *issuer_key, const char *issuer,
                 const char *path, const char *key_path)
{
    X509 *certificate = X509_new();
    X509V3_CTX context;
    X509_EXTENSION *extension;
    FILE *file;
    char alt[80];

    assert_non_null(certificate);
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), issuer_key == NULL ? 1 : 2);
    X509_gmtime_adj(X509_getm_notBefore(certificate), -86400);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_NAME_add_entry_by_txt(X509_get_issuer_name(certificate), "CN", MBSTRING_ASC,
                               (const unsigned char *)issuer, -1, -1, 0);
    X509V3_set_ctx(&context, certificate, certificate, NULL, NULL, 0);
    snprintf(alt, sizeof(alt), "DNS:%s", name);
    extension = X509V3_EXT_conf_nid(
        NULL, &context, issuer_key == NULL ? NID_basic_constraints : NID_subject_alt_name,
        issuer_key == NULL ? "critical,CA:TRUE" : alt);
    assert_non_null(extension);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
    X509_set_pubkey(certificate, key);
    assert_true(X509_sign(certificate, issuer_key == NULL ? key : issuer_key, EVP_sha256()) > 0);
    file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_X509(file, certificate), 1);
    fclose(file);
    file = fopen(key_path, "w");
    assert_non_null(file);
    assert_int_equal(PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL), 1);
    fclose(file);
    X509_free(certificate);
}

static void
test_tls__an_authority_can_be_asked_for_in_addition(void **state)
{
    char directory[] = "/tmp/yuebing-tls-XXXXXX", paths[5][64], message[400];
    static const char *const names[5] = {"ca.pem", "ca.key", "node.pem", "node.key", "none.pem"};
    EVP_PKEY *ca = EVP_EC_gen("P-256"), *node = EVP_EC_gen("P-256");
    struct yb_tls_options client = {.server = false}, server = {.server = true};
    struct yb_tls_context *context = NULL;
    struct ends ends;

    (void)state;
    assert_non_null(mkdtemp(directory));
    for (unsigned i = 0; i < 5; i++) {
        snprintf(paths[i], sizeof(paths[i]), "%s/%s", directory, names[i]);
    }
    make_certificate("authority", ca, NULL, "authority", paths[0], paths[1]);
    make_certificate("node.test", node, ca, "authority", paths[2], paths[3]);
    client.authority_file = paths[0];
    client.peer_name = "node.test";
    server.certificate_file = paths[2];
    server.key_file = paths[3];
    server.wall_ns = wall();

    ends_open(&ends, &client, &server);
    run(&ends);
    assert_int_equal(yb_tls_state(ends.client), YB_OK);
    ends_close(&ends);

    client.peer_name = "other.test";
    ends_open(&ends, &client, &server);
    run(&ends);
    assert_int_equal(yb_tls_state(ends.client), YB_DENIED);
    assert_non_null(strstr(yb_tls_error(ends.client), "mismatch"));
    assert_int_equal(yb_tls_state(ends.server), YB_DENIED);
    ends_close(&ends);

    /* A self-made certificate is not what the authority signed. */
    client.peer_name = "node.test";
    server.certificate_file = server.key_file = NULL;
    ends_open(&ends, &client, &server);
    run(&ends);
    assert_int_equal(yb_tls_state(ends.client), YB_DENIED);
    ends_close(&ends);

    server.certificate_file = paths[2];
    assert_int_equal(yb_tls_context_create(&server, &context, message, sizeof(message)),
                     YB_INVALID);
    server.key_file = paths[1];
    assert_int_equal(yb_tls_context_create(&server, &context, message, sizeof(message)),
                     YB_INVALID);
    server.key_file = paths[4];
    assert_int_equal(yb_tls_context_create(&server, &context, message, sizeof(message)),
                     YB_NOT_FOUND);
    assert_non_null(strstr(message, "none.pem"));
    assert_null(context);
    EVP_PKEY_free(ca);
    EVP_PKEY_free(node);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(unlink(paths[i]), 0);
    }
    assert_int_equal(rmdir(directory), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls__a_megabyte_arrives_in_order_through_small_buffers),
        cmocka_unit_test(test_tls__what_waits_is_bounded_in_both_directions),
        cmocka_unit_test(test_tls__the_binding_is_equal_on_both_ends_and_new_on_each_connection),
        cmocka_unit_test(test_tls__a_flipped_byte_ends_the_connection),
        cmocka_unit_test(test_tls__plain_bytes_and_older_versions_are_refused),
        cmocka_unit_test(test_tls__the_end_is_said_and_heard),
        cmocka_unit_test(test_tls__an_authority_can_be_asked_for_in_addition),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
