/* SPDX-License-Identifier: Apache-2.0
 *
 * The algorithms are OpenSSL's; here is only what they are applied to. Messages
 * name files, lines and remedies and never what stands in a line, because a line
 * that cannot be read may be a secret with a typing error in front.
 */
#include "net/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "base/check.h"

#define AUTH_MAGIC       0x61757468u
#define FILE_BYTES_MAX   4096u
#define SECRET_BYTES_MIN 32u
#define SECRET_BYTES_MAX 256u
#define WORDS_MAX        5u

static const char salt_text[] = "yuebing";
static const char key_id_info[] = "yuebing v1 key id";

struct secret {
    char text[SECRET_BYTES_MAX];
    size_t length;
};

struct yb_auth {
    uint32_t magic;
    unsigned secret_count;
    unsigned key_count;
    struct secret secrets[YB_AUTH_SECRETS];
    struct yb_auth_key keys[YB_AUTH_SECRETS];
    EVP_KDF *kdf; /* Fetched once: a fetch costs more than the derivation. */
    EVP_MAC *mac;
};

/* Where messages go, and what they begin with. */
struct complaint {
    const char *name;
    unsigned line; /* 0: about the file as a whole. */
    char *out;
    size_t room;
};

struct word {
    const char *bytes;
    size_t length;
};

static void complain(const struct complaint *complaint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void
complain(const struct complaint *complaint, const char *format, ...)
{
    va_list arguments;
    int length;

    if (complaint->line > 0) {
        length = snprintf(complaint->out, complaint->room,
                          "secret file %s, line %u: ", complaint->name, complaint->line);
    } else {
        length = snprintf(complaint->out, complaint->room, "secret file %s: ", complaint->name);
    }
    if (length < 0 || (size_t)length >= complaint->room) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(complaint->out + length, complaint->room - (size_t)length, format, arguments);
    va_end(arguments);
}

/* ---------------------------------------------------------------------------------------------
 * Derivation */

static enum yb_status
hkdf(EVP_KDF *kdf, struct yb_auth_bytes key, struct yb_auth_bytes salt, struct yb_auth_bytes info,
     struct word out)
{
    char digest[] = "SHA256"; /* OpenSSL wants it writable. */
    EVP_KDF_CTX *context = EVP_KDF_CTX_new(kdf);
    OSSL_PARAM params[5];
    unsigned count = 0;
    int done;

    if (context == NULL) {
        return YB_NO_MEMORY;
    }
    params[count++] = OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0);
    params[count++] = OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY,
                                                        (void *)(uintptr_t)key.bytes, key.length);
    if (salt.length > 0) {
        params[count++] = OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt.bytes, salt.length);
    }
    if (info.length > 0) {
        params[count++] = OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info.bytes, info.length);
    }
    params[count] = OSSL_PARAM_construct_end();
    done = EVP_KDF_derive(context, (unsigned char *)(uintptr_t)out.bytes, out.length, params);
    EVP_KDF_CTX_free(context);
    return done == 1 ? YB_OK : YB_NO_MEMORY;
}

enum yb_status
yb_auth_hkdf(struct yb_auth_bytes key, struct yb_auth_bytes salt, struct yb_auth_bytes info,
             uint8_t *out, size_t length)
{
    struct word target = {(const char *)out, length};
    enum yb_status status;
    EVP_KDF *kdf;

    /* RFC 5869: at most 255 blocks of the hash. */
    if (key.length == 0 || length == 0 || length > (size_t)255 * 32) {
        return YB_INVALID;
    }
    kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    if (kdf == NULL) {
        return YB_NO_MEMORY;
    }
    status = hkdf(kdf, key, salt, info, target);
    EVP_KDF_free(kdf);
    return status;
}

static enum yb_status
derive_key_id(const struct yb_auth *auth, const uint8_t key[32], uint8_t id_out[8])
{
    return hkdf(auth->kdf, (struct yb_auth_bytes){key, 32},
                (struct yb_auth_bytes){salt_text, sizeof(salt_text) - 1},
                (struct yb_auth_bytes){key_id_info, sizeof(key_id_info) - 1},
                (struct word){(const char *)id_out, 8});
}

static const char *
tenant_word(const char *tenant)
{
    return tenant[0] == '\0' ? "-" : tenant;
}

/* Make the key of a role and a (valid) tenant from one secret. */
static enum yb_status
derive_key(const struct yb_auth *auth, const struct secret *secret, uint8_t role,
           const char *tenant, struct yb_auth_key *key_out)
{
    struct yb_auth_key key = {.role = role};
    char info[128];
    int length = snprintf(info, sizeof(info), "yuebing v1 %s %s", yb_wire_role_name(role),
                          tenant_word(tenant));
    enum yb_status status;

    YB_ASSERT(length > 0 && (size_t)length < sizeof(info));
    memcpy(key.tenant, tenant, strlen(tenant) + 1);
    status = hkdf(auth->kdf, (struct yb_auth_bytes){secret->text, secret->length},
                  (struct yb_auth_bytes){salt_text, sizeof(salt_text) - 1},
                  (struct yb_auth_bytes){info, (size_t)length},
                  (struct word){(const char *)key.key, sizeof(key.key)});
    if (status == YB_OK) {
        status = derive_key_id(auth, key.key, key.id);
    }
    if (status == YB_OK) {
        *key_out = key;
    }
    yb_auth_key_wipe(&key);
    return status;
}

bool
yb_auth_tenant_valid(const char *tenant, size_t length)
{
    if (length == 0 || length > YB_AUTH_TENANT_MAX || (length == 1 && tenant[0] == '-')) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        char c = tenant[i];

        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
              c == '.' || c == '_' || c == '-')) {
            return false;
        }
    }
    return true;
}

/* A client has a tenant; the other roles act for the cluster and have none. */
static bool
tenant_fits(uint8_t role, const char *tenant)
{
    size_t length = strnlen(tenant, YB_AUTH_TENANT_MAX + 1);

    if (role < YB_WIRE_ROLE_CLIENT || role > YB_WIRE_ROLE_ADMIN) {
        return false;
    }
    return role == YB_WIRE_ROLE_CLIENT ? yb_auth_tenant_valid(tenant, length) : length == 0;
}

enum yb_status
yb_auth_key_for(const struct yb_auth *auth, uint8_t role, const char *tenant,
                struct yb_auth_key *key_out)
{
    YB_ASSERT_OBJ(auth, AUTH_MAGIC);
    if (!tenant_fits(role, tenant)) {
        return YB_INVALID;
    }
    if (auth->secret_count > 0) {
        return derive_key(auth, &auth->secrets[0], role, tenant, key_out);
    }
    for (unsigned i = 0; i < auth->key_count; i++) {
        if (auth->keys[i].role == role && strcmp(auth->keys[i].tenant, tenant) == 0) {
            *key_out = auth->keys[i];
            return YB_OK;
        }
    }
    return YB_DENIED;
}

enum yb_status
yb_auth_key_find(const struct yb_auth *auth, uint8_t role, const char *tenant, const uint8_t id[8],
                 struct yb_auth_key *key_out)
{
    struct yb_auth_key key = {0};
    enum yb_status status = YB_NOT_FOUND;

    YB_ASSERT_OBJ(auth, AUTH_MAGIC);
    if (!tenant_fits(role, tenant)) {
        return YB_INVALID;
    }
    for (unsigned i = 0; i < auth->secret_count && status == YB_NOT_FOUND; i++) {
        status = derive_key(auth, &auth->secrets[i], role, tenant, &key);
        if (status == YB_OK && memcmp(key.id, id, sizeof(key.id)) != 0) {
            status = YB_NOT_FOUND;
        }
    }
    for (unsigned i = 0; i < auth->key_count && status == YB_NOT_FOUND; i++) {
        key = auth->keys[i];
        if (key.role == role && strcmp(key.tenant, tenant) == 0 &&
            memcmp(key.id, id, sizeof(key.id)) == 0) {
            status = YB_OK;
        }
    }
    if (status == YB_OK) {
        *key_out = key;
    }
    yb_auth_key_wipe(&key);
    return status;
}

void
yb_auth_key_wipe(struct yb_auth_key *key)
{
    OPENSSL_cleanse(key, sizeof(*key));
}

/* ---------------------------------------------------------------------------------------------
 * Proofs */

enum yb_status
yb_auth_prove(const struct yb_auth *auth, const struct yb_auth_key *key,
              const struct yb_auth_proof_input *input, uint8_t proof_out[32])
{
    char digest[] = "SHA256"; /* OpenSSL wants it writable. */
    const char *label = input->server ? "yuebing proof server" : "yuebing proof client";
    OSSL_PARAM params[2] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                            OSSL_PARAM_construct_end()};
    EVP_MAC_CTX *context;
    size_t length = 0;
    bool done;

    YB_ASSERT_OBJ(auth, AUTH_MAGIC);
    context = EVP_MAC_CTX_new(auth->mac);
    if (context == NULL) {
        return YB_NO_MEMORY;
    }
    done = EVP_MAC_init(context, key->key, sizeof(key->key), params) == 1 &&
           EVP_MAC_update(context, (const uint8_t *)label, strlen(label)) == 1 &&
           EVP_MAC_update(context, input->transcript, sizeof(input->transcript)) == 1 &&
           EVP_MAC_update(context, input->binding, sizeof(input->binding)) == 1 &&
           EVP_MAC_final(context, proof_out, &length, 32) == 1 && length == 32;
    EVP_MAC_CTX_free(context);
    return done ? YB_OK : YB_NO_MEMORY;
}

enum yb_status
yb_auth_check(const struct yb_auth *auth, const struct yb_auth_key *key,
              const struct yb_auth_proof_input *input, const uint8_t proof[32])
{
    uint8_t expected[32];
    enum yb_status status = yb_auth_prove(auth, key, input, expected);

    if (status == YB_OK && CRYPTO_memcmp(expected, proof, sizeof(expected)) != 0) {
        status = YB_DENIED;
    }
    OPENSSL_cleanse(expected, sizeof(expected));
    return status;
}

/* ---------------------------------------------------------------------------------------------
 * The file */

static void
format_hex(const uint8_t *bytes, size_t count, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < count; i++) {
        out[2 * i] = digits[bytes[i] >> 4];
        out[2 * i + 1] = digits[bytes[i] & 15];
    }
    out[2 * count] = '\0';
}

static bool
parse_hex(struct word word, uint8_t *out, size_t count)
{
    if (word.length != 2 * count) {
        return false;
    }
    for (size_t i = 0; i < word.length; i++) {
        char c = word.bytes[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;

        if (digit < 0) {
            return false;
        }
        out[i / 2] = (uint8_t)(i % 2 == 0 ? digit << 4 : out[i / 2] | digit);
    }
    return true;
}

/* Compare without telling by time how much of it is right. */
static bool
same_text(const char *given, size_t given_length, const char *text, size_t length)
{
    uint8_t padded[2][SECRET_BYTES_MAX] = {{0}};
    bool same;

    if (given_length > SECRET_BYTES_MAX) {
        return false;
    }
    memcpy(padded[0], given, given_length);
    memcpy(padded[1], text, length);
    same = CRYPTO_memcmp(padded[0], padded[1], SECRET_BYTES_MAX) == 0 && given_length == length;
    OPENSSL_cleanse(padded, sizeof(padded));
    return same;
}

bool
yb_auth_is_admin_token(const struct yb_auth *auth, const char *token, size_t length)
{
    struct yb_auth_key key;
    char hex[65];
    bool same = false;

    YB_ASSERT_OBJ(auth, AUTH_MAGIC);
    for (unsigned i = 0; i < auth->secret_count; i++) {
        same |= same_text(token, length, auth->secrets[i].text, auth->secrets[i].length);
    }
    if (yb_auth_key_for(auth, YB_WIRE_ROLE_ADMIN, "", &key) == YB_OK) {
        format_hex(key.key, sizeof(key.key), hex);
        same |= same_text(token, length, hex, sizeof(hex) - 1);
        OPENSSL_cleanse(hex, sizeof(hex));
        yb_auth_key_wipe(&key);
    }
    return same;
}

enum yb_status
yb_auth_derive_line(const struct yb_auth *auth, uint8_t role, const char *tenant, char *line_out,
                    size_t room)
{
    struct yb_auth_key key;
    char id[17], hex[65];
    enum yb_status status;

    if (room < YB_AUTH_LINE_MAX) {
        return YB_TOO_SMALL;
    }
    status = yb_auth_key_for(auth, role, tenant, &key);
    if (status != YB_OK) {
        return status;
    }
    format_hex(key.id, sizeof(key.id), id);
    format_hex(key.key, sizeof(key.key), hex);
    snprintf(line_out, room, "key %s %s %s %s", yb_wire_role_name(role), tenant_word(tenant), id,
             hex);
    OPENSSL_cleanse(hex, sizeof(hex));
    yb_auth_key_wipe(&key);
    return YB_OK;
}

static bool
word_is(struct word word, const char *text)
{
    return word.length == strlen(text) && memcmp(word.bytes, text, word.length) == 0;
}

/* Split a line at blanks. Returns the number of words, WORDS_MAX + 1 when there are more. */
static unsigned
split(struct word line, struct word words[WORDS_MAX])
{
    unsigned count = 0;
    size_t at = 0;

    while (at < line.length) {
        size_t start = at;

        while (at < line.length && strchr(" \t\r", line.bytes[at]) == NULL) {
            at++;
        }
        if (at > start) {
            if (count == WORDS_MAX) {
                return WORDS_MAX + 1;
            }
            words[count++] = (struct word){line.bytes + start, at - start};
        } else {
            at++;
        }
    }
    return count;
}

static bool
take_secret(struct yb_auth *auth, struct word text, const struct complaint *complaint)
{
    struct secret *secret = &auth->secrets[auth->secret_count];

    if (auth->secret_count == YB_AUTH_SECRETS) {
        complain(complaint, "more than %u secrets; keep the current one and its predecessor",
                 YB_AUTH_SECRETS);
        return false;
    }
    if (text.length < SECRET_BYTES_MIN || text.length > SECRET_BYTES_MAX) {
        complain(complaint,
                 "the secret has %zu characters, it needs %u to %u; make one with: openssl rand "
                 "-hex 32",
                 text.length, SECRET_BYTES_MIN, SECRET_BYTES_MAX);
        return false;
    }
    for (size_t i = 0; i < text.length; i++) {
        if (text.bytes[i] <= ' ' || text.bytes[i] > '~') {
            complain(complaint, "the secret holds a character that is not printable ASCII");
            return false;
        }
    }
    memcpy(secret->text, text.bytes, text.length);
    secret->length = text.length;
    auth->secret_count++;
    return true;
}

static uint8_t
role_of(struct word word)
{
    for (uint8_t role = YB_WIRE_ROLE_CLIENT; role <= YB_WIRE_ROLE_ADMIN; role++) {
        if (word_is(word, yb_wire_role_name(role))) {
            return role;
        }
    }
    return 0;
}

static bool
take_key(struct yb_auth *auth, const struct word words[WORDS_MAX],
         const struct complaint *complaint)
{
    struct yb_auth_key *key = &auth->keys[auth->key_count];
    uint8_t id[8];

    if (auth->key_count == YB_AUTH_SECRETS) {
        complain(complaint, "more than %u keys; keep the current one and its predecessor",
                 YB_AUTH_SECRETS);
        return false;
    }
    key->role = role_of(words[1]);
    if (key->role == 0) {
        complain(complaint, "the role is none of client, node, directory, admin");
        return false;
    }
    if (words[2].length <= YB_AUTH_TENANT_MAX && !word_is(words[2], "-")) {
        memcpy(key->tenant, words[2].bytes, words[2].length);
        key->tenant[words[2].length] = '\0';
    }
    if (words[2].length > YB_AUTH_TENANT_MAX || !tenant_fits(key->role, key->tenant)) {
        complain(complaint, "a client's tenant is 1 to %u of [A-Za-z0-9._-]; other roles have '-'",
                 YB_AUTH_TENANT_MAX);
        return false;
    }
    if (!parse_hex(words[3], key->id, sizeof(key->id)) ||
        !parse_hex(words[4], key->key, sizeof(key->key)) ||
        derive_key_id(auth, key->key, id) != YB_OK || memcmp(id, key->id, sizeof(id)) != 0) {
        complain(complaint, "the key does not match its id: copy the whole line again");
        return false;
    }
    auth->key_count++;
    return true;
}

static bool
take_line(struct yb_auth *auth, struct word line, const struct complaint *complaint)
{
    struct word words[WORDS_MAX];
    unsigned count = split(line, words);

    if (count == 0 || words[0].bytes[0] == '#') {
        return true;
    }
    if (count == 2 && word_is(words[0], "secret")) {
        return take_secret(auth, words[1], complaint);
    }
    if (count == 5 && word_is(words[0], "key")) {
        return take_key(auth, words, complaint);
    }
    complain(complaint, "expected 'secret TEXT', 'key ROLE TENANT KEY_ID KEY' or a # comment");
    return false;
}

static enum yb_status
take_text(struct yb_auth *auth, const char *text, size_t length, struct complaint *complaint)
{
    size_t at = 0;

    while (at < length) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t line = end != NULL ? (size_t)(end - text) - at : length - at;

        complaint->line++;
        if (memchr(text + at, '\0', line) != NULL) {
            complain(complaint, "holds a zero byte; this is not a text file");
            return YB_INVALID;
        }
        if (!take_line(auth, (struct word){text + at, line}, complaint)) {
            return YB_INVALID;
        }
        at += line + 1;
    }
    complaint->line = 0;
    if (auth->secret_count + auth->key_count == 0) {
        complain(complaint, "holds no secret; make one with: echo \"secret $(openssl rand -hex "
                            "32)\" > FILE");
        return YB_INVALID;
    }
    if (auth->secret_count > 0 && auth->key_count > 0) {
        complain(complaint, "holds secrets and keys; who has the secret needs no keys");
        return YB_INVALID;
    }
    return YB_OK;
}

enum yb_status
yb_auth_parse(const char *name, const char *text, size_t length, struct yb_auth **auth_out,
              char *message_out, size_t message_room)
{
    struct complaint complaint = {name, 0, message_out, message_room};
    struct yb_auth *auth = calloc(1, sizeof(*auth));
    enum yb_status status = YB_NO_MEMORY;

    YB_ASSERT(name != NULL && message_room > 0);
    if (auth == NULL) {
        complain(&complaint, "no memory");
        return YB_NO_MEMORY;
    }
    auth->magic = AUTH_MAGIC;
    auth->kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    auth->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    if (auth->kdf == NULL || auth->mac == NULL) {
        complain(&complaint, "OpenSSL offers no HKDF or HMAC");
        goto err_destroy;
    }
    status = take_text(auth, text, length, &complaint);
    if (status != YB_OK) {
        goto err_destroy;
    }
    *auth_out = auth;
    return YB_OK;

err_destroy:
    yb_auth_destroy(&auth);
    return status;
}

void
yb_auth_destroy(struct yb_auth **auth_ref)
{
    struct yb_auth *auth = *auth_ref;

    YB_ASSERT_OBJ(auth, AUTH_MAGIC);
    *auth_ref = NULL;
    EVP_KDF_free(auth->kdf);
    EVP_MAC_free(auth->mac);
    OPENSSL_cleanse(auth, sizeof(*auth)); /* A1 */
    free(auth);
}

/* Check what fstat says about the open file. */
static enum yb_status
judge_file(int file, const struct complaint *complaint)
{
    struct stat about;

    if (fstat(file, &about) != 0) {
        complain(complaint, "cannot be examined: %m");
        return YB_IO;
    }
    if (!S_ISREG(about.st_mode)) {
        complain(complaint, "is not a regular file");
        return YB_INVALID;
    }
    if (about.st_uid != geteuid() && about.st_uid != 0) {
        complain(complaint, "belongs to uid %u, neither to root nor to us (uid %u); run: chown %u",
                 (unsigned)about.st_uid, (unsigned)geteuid(), (unsigned)geteuid());
        return YB_DENIED;
    }
    if ((about.st_mode & 077) != 0) { /* A2 */
        complain(complaint, "mode %04o gives rights to others; run: chmod 600 %s",
                 (unsigned)about.st_mode & 07777, complaint->name);
        return YB_DENIED;
    }
    if (about.st_size > (off_t)FILE_BYTES_MAX) {
        complain(complaint, "has %lld bytes, more than the %u that two secrets need",
                 (long long)about.st_size, FILE_BYTES_MAX);
        return YB_INVALID;
    }
    return YB_OK;
}

/* Read up to `room` bytes. Returns false with errno set. */
static bool
read_whole(int file, char *out, size_t room, size_t *length_out)
{
    size_t length = 0;

    while (length < room) {
        ssize_t got = read(file, out + length, room - length);

        if (got < 0 && errno != EINTR) {
            return false;
        }
        if (got == 0) {
            break;
        }
        length += got > 0 ? (size_t)got : 0;
    }
    *length_out = length;
    return true;
}

enum yb_status
yb_auth_load(const char *path, struct yb_auth **auth_out, char *message_out, size_t message_room)
{
    struct complaint complaint = {path, 0, message_out, message_room};
    char text[FILE_BYTES_MAX];
    size_t length = 0;
    enum yb_status status;
    int file;

    YB_ASSERT(path != NULL && message_room > 0);
    /* Non-blocking, so that a FIFO in its place cannot stop the start. */
    file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0) {
        status = errno == ENOENT ? YB_NOT_FOUND : errno == EACCES ? YB_DENIED : YB_IO;
        complain(&complaint, "cannot be opened: %m");
        return status;
    }
    status = judge_file(file, &complaint);
    if (status != YB_OK) {
        goto out_close;
    }
    if (!read_whole(file, text, sizeof(text), &length)) {
        complain(&complaint, "cannot be read: %m");
        status = YB_IO;
        goto out_wipe;
    }
    status = yb_auth_parse(path, text, length, auth_out, message_out, message_room);
out_wipe:
    OPENSSL_cleanse(text, sizeof(text)); /* A1 */
out_close:
    close(file);
    return status;
}
