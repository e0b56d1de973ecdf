/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: C1 and C2 of base/crc32c.h.
 * Method: the vectors of RFC 3720; then random bytes, splits and alignments against a sum that
 * is computed bit by bit from the definition.
 */
#include "unit.h"

#include <string.h>

#include "base/crc32c.h"

/* Straight from the definition: one bit at a time. */
static uint32_t
sum_by_bits(const uint8_t *bytes, size_t length)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++) {
            crc = (crc >> 1) ^ ((crc & 1u) != 0 ? 0x82f63b78u : 0);
        }
    }
    return ~crc;
}

static void
fill(uint64_t *seed, uint8_t *bytes, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(unit_random(seed) >> 32);
    }
}

static void
test_crc32c__the_vectors_of_rfc_3720_hold(void **state)
{
    uint8_t bytes[32];
    static const uint8_t read_command[48] = {
        0x01, 0xc0, 0, 0, 0, 0, 0,    0, 0,    0, 0, 0,    0, 0, 0, 0,
        0x14, 0,    0, 0, 0, 0, 0x04, 0, 0,    0, 0, 0x14, 0, 0, 0, 0x18,
        0x28, 0,    0, 0, 0, 0, 0,    0, 0x02, 0, 0, 0,    0, 0, 0, 0};

    (void)state;
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(yb_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(yb_crc32c(bytes, 32), 0x62a8ab43);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = i;
    }
    assert_int_equal(yb_crc32c(bytes, 32), 0x46dd794e);
    for (uint8_t i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(yb_crc32c(bytes, 32), 0x113fdb5c);
    assert_int_equal(yb_crc32c(read_command, 48), 0xd9963a56);
    assert_int_equal(yb_crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(yb_crc32c(NULL, 0), 0);
    printf("crc32c: %s\n", yb_crc32c_backend());
}

static void
test_crc32c__both_forms_agree_with_the_definition_at_any_length_and_alignment(void **state)
{
    uint64_t seed = unit_seed("crc32c");
    uint8_t bytes[700];

    (void)state;
    fill(&seed, bytes, sizeof(bytes));
    for (size_t length = 0; length < 600; length++) {
        size_t offset = unit_random(&seed) % 65;
        uint32_t want = sum_by_bits(bytes + offset, length);

        assert_int_equal(yb_crc32c(bytes + offset, length), want);
        assert_int_equal(yb_crc32c_update_portable(0, bytes + offset, length), want);
    }
}

static void
test_crc32c__parts_add_up_however_they_are_cut(void **state)
{
    uint64_t seed = unit_seed("crc32c");
    static uint8_t bytes[100000];

    (void)state;
    fill(&seed, bytes, sizeof(bytes));
    for (uint32_t round = 0; round < 500; round++) {
        size_t length = unit_random(&seed) % sizeof(bytes);
        size_t cut = length == 0 ? 0 : unit_random(&seed) % (length + 1);
        uint32_t whole = yb_crc32c(bytes, length);
        uint32_t a = yb_crc32c(bytes, cut);
        uint32_t b = yb_crc32c(bytes + cut, length - cut);

        assert_int_equal(yb_crc32c_update(a, bytes + cut, length - cut), whole);
        assert_int_equal(yb_crc32c_update_portable(a, bytes + cut, length - cut), whole);
        assert_int_equal(yb_crc32c_combine(a, b, length - cut), whole);
    }
}

static void
test_crc32c__combining_works_far_beyond_memory(void **state)
{
    static uint8_t zeroes[1 << 16];
    uint32_t a = yb_crc32c("a", 1);
    uint32_t zero_sum = yb_crc32c(zeroes, sizeof(zeroes));
    uint64_t length = sizeof(zeroes);

    (void)state;
    assert_int_equal(yb_crc32c_combine(a, 0, 0), a);
    /* The sum of 2^k zeroes by doubling, up to 2^63 bytes, and a in front of them in two ways. */
    for (uint32_t k = 16; k < 63; k++) {
        uint32_t once = yb_crc32c_combine(a, zero_sum, length);
        uint32_t twice = yb_crc32c_combine(once, zero_sum, length);

        zero_sum = yb_crc32c_combine(zero_sum, zero_sum, length);
        length *= 2;
        assert_int_equal(yb_crc32c_combine(a, zero_sum, length), twice);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crc32c__the_vectors_of_rfc_3720_hold),
        cmocka_unit_test(
            test_crc32c__both_forms_agree_with_the_definition_at_any_length_and_alignment),
        cmocka_unit_test(test_crc32c__parts_add_up_however_they_are_cut),
        cmocka_unit_test(test_crc32c__combining_works_far_beyond_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
