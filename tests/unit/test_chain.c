/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "yuebing/client.h"

#define TOKENS 1000u

static void
hex_of(const uint8_t key[16], char text_out[33])
{
    for (uint32_t i = 0; i < 16; i++) {
        (void)snprintf(text_out + (size_t)2 * i, 3, "%02x", key[i]);
    }
}

/* These names are in stores: they never change. They were computed with Python's
 * hashlib.blake2b, as the head of client/chain.c says. */
static void
test_chain__gives_the_same_names_for_ever(void **state)
{
    static const struct {
        uint32_t count, block;
        const char *salt;
        const char *last;
    } rows[] = {
        {16, 16, NULL, "a2bf89030f4e2d89177ffeb0f60b4bfc"},
        {1000, 16, NULL, "92b96ab83ac013f1d8faf227ff924db7"},
        {1000, 16, "model-a", "cb4ba4e246eaaa387b3297238bef4d24"},
        {1000, 1, "model-a", "88d9dcb090ff93acbf7c0918fc59349f"},
        {1000, 700, "m", "95b27032e7fad53f10fcda7ec7938901"},
    };
    uint32_t tokens[TOKENS];
    uint8_t keys[TOKENS][16];
    char text[33];

    for (uint32_t i = 0; i < TOKENS; i++) {
        tokens[i] = i * 2654435761u;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint32_t made =
            yb_key_chain(tokens, rows[i].count, rows[i].block, rows[i].salt, keys, TOKENS);

        assert_int_equal(made, rows[i].count / rows[i].block);
        hex_of(keys[made - 1], text);
        assert_string_equal(text, rows[i].last);
    }
}

static void
test_chain__equal_prefixes_have_equal_names_and_others_have_not(void **state)
{
    uint64_t random = unit_seed("chain");

    for (uint32_t round = 0; round < 300; round++) {
        uint32_t one[128], two[128];
        uint8_t keys_one[128][16], keys_two[128][16];
        uint32_t block = 1 + (uint32_t)(unit_random(&random) % 20);
        uint32_t differs = (uint32_t)(unit_random(&random) % 128);

        for (uint32_t i = 0; i < 128; i++) {
            one[i] = two[i] = (uint32_t)unit_random(&random);
        }
        two[differs] ^= 1u << unit_random(&random) % 32;
        assert_int_equal(yb_key_chain(one, 128, block, "a", keys_one, 128), 128 / block);
        assert_int_equal(yb_key_chain(two, 128, block, "a", keys_two, 128), 128 / block);
        for (uint32_t i = 0; i < 128 / block; i++) {
            bool same = memcmp(keys_one[i], keys_two[i], 16) == 0;

            assert_int_equal(same, (i + 1) * block <= differs);
        }
        assert_int_equal(yb_key_chain(one, 128, block, "b", keys_two, 128), 128 / block);
        for (uint32_t i = 0; i < 128 / block; i++) {
            assert_memory_not_equal(keys_one[i], keys_two[i], 16);
        }
    }
}

static void
test_chain__writes_whole_blocks_and_no_more_than_there_is_room_for(void **state)
{
    const uint32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    uint8_t all[4][16], some[4][16] = {{0}};
    const uint8_t zero[16] = {0};

    assert_int_equal(yb_key_chain(tokens, 8, 2, NULL, all, 4), 4);
    assert_int_equal(yb_key_chain(tokens, 7, 2, NULL, some, 2), 2);
    assert_memory_equal(all, some, 2 * 16);
    assert_memory_equal(some[2], zero, 16);
    assert_int_equal(yb_key_chain(tokens, 7, 2, "", some, 4), 3);
    assert_memory_equal(all, some, 3 * 16); /* No salt and an empty one are the same. */
    assert_int_equal(yb_key_chain(tokens, 8, 9, NULL, some, 4), 0);
    assert_int_equal(yb_key_chain(tokens, 8, 0, NULL, some, 4), 0);
    assert_int_equal(yb_key_chain(NULL, 0, 4, NULL, some, 4), 0);
    assert_int_equal(yb_key_chain(tokens, 8, 2, NULL, some, 0), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain__gives_the_same_names_for_ever),
        cmocka_unit_test(test_chain__equal_prefixes_have_equal_names_and_others_have_not),
        cmocka_unit_test(test_chain__writes_whole_blocks_and_no_more_than_there_is_room_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
