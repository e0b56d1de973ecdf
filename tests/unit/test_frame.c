/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a frame header is believed only when every bit of it is right.
 * Method: random valid headers there and back; every bit flipped; every rule broken
 * once with a right checksum.
 */
#include "unit.h"

#include <string.h>

#include "base/crc32c.h"
#include "net/frame.h"

static const struct yb_frame_limits limits = {
    .version = 1, .body_bytes_max = 4096, .data_bytes_max = 1u << 20};

static struct yb_wire_frame_header
request(void)
{
    return (struct yb_wire_frame_header){
        .class = YB_CLASS_THROUGHPUT,
        .type = YB_WIRE_TYPE_ECHO,
        .body_bytes = 4096,
        .data_bytes = 1u << 20,
        .request_id = 42,
        .deadline_us = 1,
    };
}

static enum yb_frame_verdict
parse(const uint8_t *bytes, size_t length, struct yb_wire_frame_header *out)
{
    const char *why = NULL;
    enum yb_frame_verdict verdict = yb_frame_parse(bytes, length, &limits, out, &why);

    assert_true((verdict == YB_FRAME_BROKEN) == (why != NULL));
    return verdict;
}

static void
test_frame__every_header_comes_back_as_it_was(void **state)
{
    uint64_t random = unit_seed("frame headers");

    (void)state;
    for (unsigned round = 0; round < 10000; round++) {
        bool reply = unit_random(&random) % 2 == 0;
        struct yb_wire_frame_header header = {
            .class = (uint8_t)(unit_random(&random) % YB_CLASS_COUNT),
            .type = (uint16_t)(16 + unit_random(&random) % 60000),
            .flags = reply ? YB_WIRE_FRAME_FLAG_REPLY : 0,
            .status = reply ? -(int32_t)(unit_random(&random) % 100) : 0,
            .body_bytes = (uint32_t)(unit_random(&random) % 4097),
            .credit_requests = (uint32_t)unit_random(&random),
            .data_bytes = unit_random(&random) % ((1u << 20) + 1),
            .request_id = unit_random(&random),
            .deadline_us = reply ? 0 : unit_random(&random) | 1,
            .parent_span = unit_random(&random),
            .operation = unit_random(&random),
            .credit_bytes = unit_random(&random),
        };
        struct yb_wire_frame_header back;
        uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];

        for (unsigned i = 0; i < 16; i++) {
            header.trace_id.bytes[i] = (uint8_t)unit_random(&random);
        }
        assert_int_equal(yb_frame_build(&header, &limits, bytes), YB_OK);
        assert_int_equal(parse(bytes, sizeof(bytes), &back), YB_FRAME_OK);
        assert_int_equal(back.version, 1);
        assert_int_equal(back.class, header.class);
        assert_int_equal(back.type, header.type);
        assert_int_equal(back.flags, header.flags);
        assert_int_equal(back.status, header.status);
        assert_int_equal(back.body_bytes, header.body_bytes);
        assert_int_equal(back.credit_requests, header.credit_requests);
        assert_true(back.data_bytes == header.data_bytes);
        assert_true(back.request_id == header.request_id);
        assert_true(back.deadline_us == header.deadline_us);
        assert_memory_equal(&back.trace_id, &header.trace_id, 16);
        assert_true(back.parent_span == header.parent_span);
        assert_true(back.operation == header.operation);
        assert_true(back.credit_bytes == header.credit_bytes);
    }
}

static void
test_frame__any_flipped_bit_is_found(void **state)
{
    struct yb_wire_frame_header header = request(), out;
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];

    (void)state;
    assert_int_equal(yb_frame_build(&header, &limits, bytes), YB_OK);
    for (unsigned bit = 0; bit < 8 * sizeof(bytes); bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_equal(parse(bytes, sizeof(bytes), &out), YB_FRAME_BROKEN);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

static void
test_frame__a_part_is_waited_for_and_a_wrong_start_is_not(void **state)
{
    struct yb_wire_frame_header header = request(), out;
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];

    (void)state;
    assert_int_equal(yb_frame_build(&header, &limits, bytes), YB_OK);
    for (size_t length = 0; length < sizeof(bytes); length++) {
        uint8_t *exact = malloc(length + 1);

        assert_non_null(exact);
        memcpy(exact, bytes, length);
        assert_int_equal(parse(exact, length, &out), YB_FRAME_NEED_MORE);
        if (length > 0 && length <= 4) {
            exact[length - 1] ^= 1;
            assert_int_equal(parse(exact, length, &out), YB_FRAME_BROKEN);
        }
        free(exact);
    }
}

/* Break one rule, with a right checksum: neither side may let it pass. */
static void
broken(struct yb_wire_frame_header header, enum yb_status expected)
{
    struct yb_wire_frame_header out;
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];

    assert_int_equal(yb_frame_build(&header, &limits, bytes), expected);
    header.version = 1;
    yb_wire_frame_header_store(&header, bytes);
    yb_wire_put_u32(bytes + 92, yb_crc32c(bytes, 92));
    assert_int_equal(parse(bytes, sizeof(bytes), &out), YB_FRAME_BROKEN);
}

static void
test_frame__each_rule_holds_on_both_sides(void **state)
{
    struct yb_wire_frame_header header;

    (void)state;
#define BROKEN(change, status)  \
    do {                        \
        header = request();     \
        change;                 \
        broken(header, status); \
    } while (0)
    BROKEN(header.body_bytes++, YB_TOO_LARGE);
    BROKEN(header.data_bytes++, YB_TOO_LARGE);
    BROKEN(header.data_bytes = UINT64_MAX, YB_TOO_LARGE);
    BROKEN(header.deadline_us = 0, YB_INVALID);
    BROKEN(header.status = YB_AGAIN, YB_INVALID);
    BROKEN(header.class = YB_CLASS_COUNT, YB_INVALID);
    BROKEN(header.flags = 2, YB_INVALID);
    BROKEN(header.flags = YB_WIRE_FRAME_FLAG_REPLY, YB_INVALID);
    BROKEN((header.flags = YB_WIRE_FRAME_FLAG_REPLY, header.deadline_us = 0, header.status = 1),
           YB_INVALID);
    BROKEN(header.type = YB_WIRE_TYPE_CREDIT, YB_INVALID);
    BROKEN((header.type = YB_WIRE_TYPE_CREDIT, header.body_bytes = 0), YB_INVALID);
#undef BROKEN
}

static void
test_frame__another_version_or_a_reserved_byte_breaks_it(void **state)
{
    struct yb_wire_frame_header header = request(), out;
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
    static const unsigned places[] = {4, 10, 11, 88, 91};

    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        assert_int_equal(yb_frame_build(&header, &limits, bytes), YB_OK);
        bytes[places[i]]++;
        yb_wire_put_u32(bytes + 92, yb_crc32c(bytes, 92));
        assert_int_equal(parse(bytes, sizeof(bytes), &out), YB_FRAME_BROKEN);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame__every_header_comes_back_as_it_was),
        cmocka_unit_test(test_frame__any_flipped_bit_is_found),
        cmocka_unit_test(test_frame__a_part_is_waited_for_and_a_wrong_start_is_not),
        cmocka_unit_test(test_frame__each_rule_holds_on_both_sides),
        cmocka_unit_test(test_frame__another_version_or_a_reserved_byte_breaks_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
