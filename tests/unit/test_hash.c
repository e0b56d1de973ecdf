/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: H1 and H2 of base/hash.h.
 * Method: published vectors of SipHash-2-4-128 and XXH3; random keys against OpenSSL's SipHash
 * over bytes laid out here by hand; pairs that a careless encoding would confuse.
 */
#include "unit.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <string.h>

#include "base/hash.h"

static void
openssl_siphash_128(const uint8_t seed[16], const void *data, size_t length, uint8_t out[16])
{
    size_t size = 16;
    OSSL_PARAM params[2] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size),
                            OSSL_PARAM_construct_end()};
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "SIPHASH", NULL);
    EVP_MAC_CTX *context = EVP_MAC_CTX_new(mac);
    size_t written = 0;

    assert_int_equal(EVP_MAC_init(context, seed, 16, params), 1);
    assert_int_equal(EVP_MAC_update(context, data, length), 1);
    assert_int_equal(EVP_MAC_final(context, out, &written, 16), 1);
    assert_int_equal(written, 16);
    EVP_MAC_CTX_free(context);
    EVP_MAC_free(mac);
}

static void
seed_of_the_paper(uint8_t seed[16])
{
    for (uint8_t i = 0; i < 16; i++) {
        seed[i] = i;
    }
}

/* The reference code's vectors_sip128 hashes 00, 00 01, 00 01 02 and so on. Ours start with the
 * tenant's length, so the empty tenant and keys of small numbers give inputs 00 00 .. only; these
 * vectors are therefore checked on the library that yb_hash_key is then compared with. */
static void
test_hash__the_judge_agrees_with_the_published_siphash_vectors(void **state)
{
    static const struct {
        uint8_t length;
        const char *hex;
    } rows[] = {
        {0, "a3817f04ba25a8e66df67214c7550293"},  {1, "da87c1d86b99af44347659119b22fc45"},
        {2, "8177228da4a45dc7fca38bdef60affe4"},  {3, "9c70b60c5267a94e5f33b6b02985ed51"},
        {15, "5493e99933b0a8117e08ec0f97cfc3d9"},
    };
    uint8_t seed[16];
    uint8_t input[16];

    (void)state;
    seed_of_the_paper(seed);
    seed_of_the_paper(input);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yb_id got;
        char text[33];

        openssl_siphash_128(seed, input, rows[i].length, got.bytes);
        yb_id_format(got, text);
        assert_string_equal(text, rows[i].hex);
    }
}

static void
test_hash__a_key_hashes_like_siphash_over_length_tenant_and_key(void **state)
{
    uint64_t random = unit_seed("hash");

    (void)state;
    for (uint32_t round = 0; round < 3000; round++) {
        uint8_t seed[16];
        uint8_t input[2 + YB_HASH_TENANT_BYTES_MAX + YB_HASH_KEY_BYTES_MAX];
        size_t tenant_bytes = unit_random(&random) % (YB_HASH_TENANT_BYTES_MAX + 1);
        size_t key_bytes = 1 + unit_random(&random) % YB_HASH_KEY_BYTES_MAX;
        struct yb_hash_bytes tenant = {input + 2, tenant_bytes};
        struct yb_hash_bytes key = {input + 2 + tenant_bytes, key_bytes};
        struct yb_id want;
        struct yb_id got;

        for (size_t i = 0; i < sizeof(seed); i++) {
            seed[i] = (uint8_t)unit_random(&random);
        }
        for (size_t i = 0; i < sizeof(input); i++) {
            input[i] = (uint8_t)unit_random(&random);
        }
        input[0] = (uint8_t)tenant_bytes;
        input[1] = (uint8_t)(tenant_bytes / 256);
        openssl_siphash_128(seed, input, 2 + tenant_bytes + key_bytes, want.bytes);
        got = yb_hash_key(seed, tenant, key);
        assert_memory_equal(got.bytes, want.bytes, 16); /* H1 */
    }
}

static void
test_hash__keys_in_a_row_hash_as_each_does_alone(void **state)
{
    enum { KEYS = 40 };
    static uint8_t bytes[KEYS][YB_HASH_KEY_BYTES_MAX];
    static uint8_t owner[YB_HASH_TENANT_BYTES_MAX];
    uint64_t random = unit_seed("hash");
    struct yb_hash_bytes keys[KEYS];
    struct yb_id ids[KEYS];
    uint8_t seed[16];

    (void)state;
    for (uint32_t round = 0; round < 2000; round++) {
        struct yb_hash_bytes tenant = {owner, unit_random(&random) % (sizeof(owner) + 1)};
        size_t count = unit_random(&random) % (KEYS + 1);
        size_t length = 1 + unit_random(&random) % YB_HASH_KEY_BYTES_MAX;

        if (round < YB_HASH_KEY_BYTES_MAX) { /* Every length, and so every tail. */
            length = round + 1;
        }
        for (size_t i = 0; i < sizeof(seed); i++) {
            seed[i] = (uint8_t)unit_random(&random);
            owner[i] = (uint8_t)unit_random(&random);
        }
        for (size_t i = 0; i < count; i++) {
            if (unit_random(&random) % 8 == 0) {
                length = 1 + unit_random(&random) % YB_HASH_KEY_BYTES_MAX;
            }
            for (size_t j = 0; j < length; j++) {
                bytes[i][j] = (uint8_t)unit_random(&random);
            }
            keys[i] = (struct yb_hash_bytes){bytes[i], length};
        }
        yb_hash_keys(seed, tenant, keys, count, ids);
        for (size_t i = 0; i < count; i++) {
            struct yb_id want = yb_hash_key(seed, tenant, keys[i]);

            assert_memory_equal(ids[i].bytes, want.bytes, sizeof(want.bytes)); /* H1 */
        }
    }
}

static struct yb_id
name_of(const char *tenant, const char *key)
{
    uint8_t seed[16];

    seed_of_the_paper(seed);
    return yb_hash_key(seed, (struct yb_hash_bytes){tenant, strlen(tenant)},
                       (struct yb_hash_bytes){key, strlen(key)});
}

static void
test_hash__a_name_is_frozen(void **state)
{
    char text[33];

    (void)state;
    yb_id_format(name_of("acme", "block-0"), text);
    assert_string_equal(text, "70f9c7c71ff69c5a38365d3c25a9ba22");
    yb_id_format(name_of("", "k"), text);
    assert_string_equal(text, "a8bda608f50df42e9e34f1201517e86e");
}

static void
test_hash__tenants_cannot_meet_by_moving_the_border(void **state)
{
    (void)state;
    assert_false(yb_id_equal(name_of("ab", "c"), name_of("a", "bc")));
    assert_false(yb_id_equal(name_of("", "abc"), name_of("a", "bc")));
    assert_false(yb_id_equal(name_of("a", "k"), name_of("b", "k")));
    assert_false(yb_id_equal(name_of("a", "k1"), name_of("a", "k2")));
    assert_true(yb_id_equal(name_of("a", "k1"), name_of("a", "k1")));
}

static void
test_hash__table_hashes_are_xxh3_with_the_seed(void **state)
{
    struct yb_id id = name_of("a", "k");

    (void)state;
    /* xxHash's own sanity check: XXH3-64 of nothing with seed 0. */
    assert_true(yb_hash_table(0, NULL, 0) == 0x2d06800538d394c2ull);
    assert_true(yb_hash_table(1, "k", 1) != yb_hash_table(2, "k", 1));
    assert_true(yb_hash_table_id(7, id) == yb_hash_table(7, id.bytes, 16));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash__the_judge_agrees_with_the_published_siphash_vectors),
        cmocka_unit_test(test_hash__a_key_hashes_like_siphash_over_length_tenant_and_key),
        cmocka_unit_test(test_hash__keys_in_a_row_hash_as_each_does_alone),
        cmocka_unit_test(test_hash__a_name_is_frozen),
        cmocka_unit_test(test_hash__tenants_cannot_meet_by_moving_the_border),
        cmocka_unit_test(test_hash__table_hashes_are_xxh3_with_the_seed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
