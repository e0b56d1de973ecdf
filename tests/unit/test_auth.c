/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the secret file, the keys that come from it, and proofs.
 * Method: the vectors of RFC 5869; real files with every wrong mode; keys of every
 * role and tenant against each other.
 */
#include "unit.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "net/auth.h"

#define SECRET_A "secret 0123456789abcdef0123456789abcdef"
#define SECRET_B "secret fedcba9876543210fedcba9876543210"

static struct yb_auth *
parse(const char *text)
{
    struct yb_auth *auth = NULL;
    char message[300] = "";
    enum yb_status status =
        yb_auth_parse("test", text, strlen(text), &auth, message, sizeof(message));

    if (status != YB_OK) {
        print_error("%s\n", message);
    }
    assert_int_equal(status, YB_OK);
    return auth;
}

/* Check that the text is refused, and that the message holds `part` and not the text. */
static void
refused(const char *text, size_t length, const char *part)
{
    struct yb_auth *auth = NULL;
    char message[300] = "";

    assert_int_equal(yb_auth_parse("name", text, length, &auth, message, sizeof(message)),
                     YB_INVALID);
    assert_null(auth);
    assert_non_null(strstr(message, "name"));
    if (strstr(message, part) == NULL) {
        fail_msg("'%s' is not in '%s'", part, message);
    }
    assert_null(strstr(message, "89abcdef"));
}

static struct yb_auth_bytes
hex(const char *text, uint8_t *out)
{
    size_t length = strlen(text) / 2;

    for (size_t i = 0; i < length; i++) {
        unsigned byte;

        assert_int_equal(sscanf(text + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return (struct yb_auth_bytes){out, length};
}

static void
test_auth__hkdf_gives_the_bytes_of_rfc_5869(void **state)
{
    static const struct {
        const char *key, *salt, *info, *out;
    } vectors[] = {
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c",
         "f0f1f2f3f4f5f6f7f8f9",
         "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"},
        {"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b"
         "2c2d2e2f303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f",
         "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b"
         "8c8d8e8f909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
         "b0b1b2b3b4b5b6b7b8b9babbbcbdbebfc0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadb"
         "dcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeeff0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
         "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
         "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"},
        {"0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
         "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        uint8_t key[80], salt[80], info[80], expected[82], out[82];
        struct yb_auth_bytes want = hex(vectors[i].out, expected);

        assert_int_equal(yb_auth_hkdf(hex(vectors[i].key, key), hex(vectors[i].salt, salt),
                                      hex(vectors[i].info, info), out, want.length),
                         YB_OK);
        assert_memory_equal(out, expected, want.length);
    }
    assert_int_equal(yb_auth_hkdf((struct yb_auth_bytes){"", 0}, (struct yb_auth_bytes){"", 0},
                                  (struct yb_auth_bytes){"", 0}, (uint8_t[1]){0}, 1),
                     YB_INVALID);
}

static void
test_auth__keys_are_what_the_protocol_document_says(void **state)
{
    struct yb_auth *auth = parse(SECRET_A "\n");
    struct yb_auth_bytes secret = {"0123456789abcdef0123456789abcdef", 32};
    struct yb_auth_bytes salt = {"yuebing", 7};
    struct yb_auth_key key;
    uint8_t expected[32], id[8];

    (void)state;
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_CLIENT, "team-a", &key), YB_OK);
    assert_int_equal(yb_auth_hkdf(secret, salt,
                                  (struct yb_auth_bytes){"yuebing v1 client team-a", 24}, expected,
                                  32),
                     YB_OK);
    assert_memory_equal(key.key, expected, 32);
    assert_int_equal(yb_auth_hkdf((struct yb_auth_bytes){key.key, 32}, salt,
                                  (struct yb_auth_bytes){"yuebing v1 key id", 17}, id, 8),
                     YB_OK);
    assert_memory_equal(key.id, id, 8);
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_NODE, "", &key), YB_OK);
    assert_int_equal(
        yb_auth_hkdf(secret, salt, (struct yb_auth_bytes){"yuebing v1 node -", 17}, expected, 32),
        YB_OK);
    assert_memory_equal(key.key, expected, 32);
    yb_auth_destroy(&auth);
    assert_null(auth);
}

static void
test_auth__only_clients_have_tenants_and_their_names_are_checked(void **state)
{
    static const char *const bad[] = {"",         "-",  "a b", "a/b", "a\n",
                                      "\xc3\xa4", "a%", "a;b", "a\t", "@"};
    struct yb_auth *auth = parse(SECRET_A);
    struct yb_auth_key key;
    char name[66];

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(yb_auth_tenant_valid(bad[i], strlen(bad[i])));
        assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_CLIENT, bad[i], &key), YB_INVALID);
    }
    memset(name, 'x', 65);
    name[65] = '\0';
    assert_false(yb_auth_tenant_valid(name, 65));
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_CLIENT, name, &key), YB_INVALID);
    name[64] = '\0';
    assert_true(yb_auth_tenant_valid(name, 64));
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_CLIENT, name, &key), YB_OK);
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_NODE, "team-a", &key), YB_INVALID);
    assert_int_equal(yb_auth_key_for(auth, 0, "", &key), YB_INVALID);
    assert_int_equal(yb_auth_key_for(auth, 5, "", &key), YB_INVALID);
    yb_auth_destroy(&auth);
}

static void
test_auth__a_derived_key_is_good_for_its_role_and_tenant_only(void **state)
{
    struct yb_auth *secret = parse("# all of us\n\n" SECRET_A "\r\n");
    struct yb_auth *derived;
    struct yb_auth_key own, other;
    char line[YB_AUTH_LINE_MAX];

    (void)state;
    assert_int_equal(yb_auth_derive_line(secret, YB_WIRE_ROLE_CLIENT, "team-a", line, 10),
                     YB_TOO_SMALL);
    assert_int_equal(yb_auth_derive_line(secret, YB_WIRE_ROLE_CLIENT, "team-a", line, sizeof(line)),
                     YB_OK);
    derived = parse(line);
    assert_int_equal(yb_auth_key_for(derived, YB_WIRE_ROLE_CLIENT, "team-a", &own), YB_OK);
    assert_int_equal(yb_auth_key_find(secret, YB_WIRE_ROLE_CLIENT, "team-a", own.id, &other),
                     YB_OK);
    assert_memory_equal(own.key, other.key, 32);
    assert_int_equal(yb_auth_key_for(derived, YB_WIRE_ROLE_CLIENT, "team-b", &other), YB_DENIED);
    assert_int_equal(yb_auth_key_for(derived, YB_WIRE_ROLE_NODE, "", &other), YB_DENIED);
    /* Naming another tenant or role with this key's id finds nothing. */
    assert_int_equal(yb_auth_key_find(secret, YB_WIRE_ROLE_CLIENT, "team-b", own.id, &other),
                     YB_NOT_FOUND);
    for (uint8_t role = YB_WIRE_ROLE_NODE; role <= YB_WIRE_ROLE_ADMIN; role++) {
        assert_int_equal(yb_auth_key_find(secret, role, "", own.id, &other), YB_NOT_FOUND);
    }
    assert_int_equal(yb_auth_key_find(derived, YB_WIRE_ROLE_CLIENT, "team-b", own.id, &other),
                     YB_NOT_FOUND);
    yb_auth_destroy(&derived);
    assert_int_equal(yb_auth_derive_line(secret, YB_WIRE_ROLE_NODE, "", line, sizeof(line)), YB_OK);
    assert_int_equal(strncmp(line, "key node - ", 11), 0);
    derived = parse(line);
    assert_int_equal(yb_auth_key_for(derived, YB_WIRE_ROLE_NODE, "", &own), YB_OK);
    yb_auth_destroy(&derived);
    yb_auth_destroy(&secret);
}

static void
test_auth__two_secrets_are_accepted_and_the_first_one_is_used(void **state)
{
    struct yb_auth *old = parse(SECRET_A), *both = parse(SECRET_B "\n" SECRET_A "\n");
    struct yb_auth *new = parse(SECRET_B);
    struct yb_auth_key key, found;

    (void)state;
    assert_int_equal(yb_auth_key_for(old, YB_WIRE_ROLE_NODE, "", &key), YB_OK);
    assert_int_equal(yb_auth_key_find(both, YB_WIRE_ROLE_NODE, "", key.id, &found), YB_OK);
    assert_memory_equal(&key, &found, sizeof(key));
    assert_int_equal(yb_auth_key_find(new, YB_WIRE_ROLE_NODE, "", key.id, &found), YB_NOT_FOUND);
    assert_int_equal(yb_auth_key_for(both, YB_WIRE_ROLE_NODE, "", &key), YB_OK);
    assert_int_equal(yb_auth_key_find(new, YB_WIRE_ROLE_NODE, "", key.id, &found), YB_OK);
    yb_auth_destroy(&old);
    yb_auth_destroy(&both);
    yb_auth_destroy(&new);
}

static void
test_auth__a_proof_is_good_for_its_side_transcript_binding_and_key_only(void **state)
{
    struct yb_auth *auth = parse(SECRET_A);
    struct yb_auth_proof_input input = {.server = false}, other;
    struct yb_auth_key key, another;
    uint8_t proof[32];

    (void)state;
    memset(input.transcript, 7, 32);
    memset(input.binding, 9, 32);
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_NODE, "", &key), YB_OK);
    assert_int_equal(yb_auth_key_for(auth, YB_WIRE_ROLE_ADMIN, "", &another), YB_OK);
    assert_int_equal(yb_auth_prove(auth, &key, &input, proof), YB_OK);
    assert_int_equal(yb_auth_check(auth, &key, &input, proof), YB_OK);
    assert_int_equal(yb_auth_check(auth, &another, &input, proof), YB_DENIED);
    other = input;
    other.server = true;
    assert_int_equal(yb_auth_check(auth, &key, &other, proof), YB_DENIED);
    other = input;
    other.transcript[31] ^= 1;
    assert_int_equal(yb_auth_check(auth, &key, &other, proof), YB_DENIED);
    other = input;
    other.binding[0] ^= 1;
    assert_int_equal(yb_auth_check(auth, &key, &other, proof), YB_DENIED);
    for (unsigned i = 0; i < 32; i++) {
        proof[i] ^= 0x80;
        assert_int_equal(yb_auth_check(auth, &key, &input, proof), YB_DENIED);
        proof[i] ^= 0x80;
    }
    yb_auth_destroy(&auth);
}

static void
test_auth__bad_lines_are_refused_by_number_and_never_quoted(void **state)
{
#define REFUSED(text, part) refused(text, sizeof(text) - 1, part)
    char line[YB_AUTH_LINE_MAX], two[3 * YB_AUTH_LINE_MAX];
    struct yb_auth *auth = parse(SECRET_A);

    (void)state;
    REFUSED("", "no secret");
    REFUSED("# nothing\n", "no secret");
    REFUSED("secret 0123456789abcdef0123456789abcde\n", "31 characters");
    REFUSED("\n" SECRET_A " x\n", "line 2");
    REFUSED("secretive 0123456789abcdef0123456789abcdef", "line 1");
    REFUSED("0123456789abcdef0123456789abcdef", "line 1");
    REFUSED("secret 0123456789abcdef0123456789abcde\xff\n", "printable");
    REFUSED("secret 0123456789abcdef\0"
            "0123456789abcdef\n",
            "zero byte");
    REFUSED(SECRET_A "\n" SECRET_B "\n" SECRET_A "\n", "line 3: more than 2");
    REFUSED("key client a 0011223344556677 00\n", "does not match");
    REFUSED("key king - 0011223344556677 00\n", "role");
    REFUSED("key node a 0011223344556677 00\n", "tenant");
    REFUSED("key client - 0011223344556677 00\n", "tenant");
    assert_int_equal(yb_auth_derive_line(auth, YB_WIRE_ROLE_CLIENT, "a", line, sizeof(line)),
                     YB_OK);
    snprintf(two, sizeof(two), "%s\n%s\n", SECRET_A, line);
    refused(two, strlen(two), "secrets and keys");
    line[strlen(line) - 1] ^= 1;
    refused(line, strlen(line), "does not match");
    line[strlen(line) - 1] = 'g';
    refused(line, strlen(line), "does not match");
    yb_auth_destroy(&auth);
#undef REFUSED
}

static void
write_file(const char *path, const char *text, mode_t mode)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(file, mode), 0);
    close(file);
}

static void
test_auth__a_file_that_others_may_touch_is_refused_with_the_remedy(void **state)
{
    char directory[] = "/tmp/yuebing-auth-XXXXXX", path[64], message[400], remedy[100];
    struct yb_auth *auth = NULL;

    (void)state;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/secret", directory);
    snprintf(remedy, sizeof(remedy), "chmod 600 %s", path);
    assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_NOT_FOUND);
    assert_non_null(strstr(message, path));
    for (mode_t bit = 1; bit <= 040; bit <<= 1) {
        write_file(path, SECRET_A, 0600 | bit);
        assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_DENIED);
        assert_non_null(strstr(message, remedy));
        assert_null(auth);
    }
    write_file(path, SECRET_A, 0600);
    assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_OK);
    yb_auth_destroy(&auth);
    write_file(path, SECRET_A, 0400);
    assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_OK);
    yb_auth_destroy(&auth);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_INVALID);
    assert_non_null(strstr(message, "regular"));
    assert_int_equal(yb_auth_load(directory, &auth, message, sizeof(message)), YB_INVALID);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
}

static void
test_auth__a_large_file_and_a_strangers_file_are_refused(void **state)
{
    char directory[] = "/tmp/yuebing-auth-XXXXXX", path[64], message[400];
    struct yb_auth *auth = NULL;
    char *large = malloc(4098);

    (void)state;
    assert_non_null(large);
    memset(large, '#', 4097);
    large[4097] = '\0';
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/secret", directory);
    write_file(path, large, 0600);
    assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_INVALID);
    assert_non_null(strstr(message, "4097 bytes"));
    if (geteuid() == 0) {
        write_file(path, SECRET_A, 0600);
        assert_int_equal(chown(path, 12345, 0), 0);
        assert_int_equal(yb_auth_load(path, &auth, message, sizeof(message)), YB_DENIED);
        assert_non_null(strstr(message, "12345"));
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
    free(large);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_auth__hkdf_gives_the_bytes_of_rfc_5869),
        cmocka_unit_test(test_auth__keys_are_what_the_protocol_document_says),
        cmocka_unit_test(test_auth__only_clients_have_tenants_and_their_names_are_checked),
        cmocka_unit_test(test_auth__a_derived_key_is_good_for_its_role_and_tenant_only),
        cmocka_unit_test(test_auth__two_secrets_are_accepted_and_the_first_one_is_used),
        cmocka_unit_test(test_auth__a_proof_is_good_for_its_side_transcript_binding_and_key_only),
        cmocka_unit_test(test_auth__bad_lines_are_refused_by_number_and_never_quoted),
        cmocka_unit_test(test_auth__a_file_that_others_may_touch_is_refused_with_the_remedy),
        cmocka_unit_test(test_auth__a_large_file_and_a_strangers_file_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
