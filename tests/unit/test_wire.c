/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the hand-written half of the codec: texts, errors, limits of real messages.
 * Method: tables of good and bad texts; hellos with one field at and beyond its limit.
 * The exact bytes are tests/wire/test_golden.c's.
 */
#include "unit.h"

#include <string.h>

#include "net/wire/wire.h"

static void
test_wire__texts_are_printable_utf_8(void **state)
{
    static const char *const good[] = {"",
                                       "plain ~",
                                       "\xc2\xa0",
                                       "\xe6\x9c\x88\xe9\xa5\xbc",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x9f\xa5\xae",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\n",
                                      "a\x1b[31m",
                                      "\x7f",
                                      "\xc2\x80",
                                      "\xc2\x9f",
                                      "\x80",
                                      "\xc3",
                                      "\xc0\x80",
                                      "\xc1\xbf",
                                      "\xe0\x9f\xbf",
                                      "\xed\xa0\x80",
                                      "\xe6\x9c",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf8\x88\x80\x80\x80",
                                      "\xff",
                                      "\xe6\x9c\x41"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(yb_wire_text_valid(good[i], strlen(good[i])));
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_false(yb_wire_text_valid(bad[i], strlen(bad[i])));
    }
    assert_false(yb_wire_text_valid("\0", 1));
    assert_true(yb_wire_text_valid(NULL, 0));
}

static void
test_wire__text_views_compare_and_are_cut(void **state)
{
    static char large[70000];

    (void)state;
    assert_true(yb_wire_text_equal(yb_wire_text_of("abc"), "abc"));
    assert_false(yb_wire_text_equal(yb_wire_text_of("abc"), "abd"));
    assert_false(yb_wire_text_equal(yb_wire_text_of("abc"), "ab"));
    assert_true(yb_wire_text_equal((struct yb_wire_text){NULL, 0}, ""));
    memset(large, 'x', sizeof(large) - 1);
    assert_int_equal(yb_wire_text_of(large).length, UINT16_MAX);
}

static struct yb_wire_hello
hello(void)
{
    return (struct yb_wire_hello){
        .role = YB_WIRE_ROLE_CLIENT,
        .tenant = yb_wire_text_of("t"),
        .software = yb_wire_text_of("s"),
    };
}

static enum yb_status
encode(const struct yb_wire_hello *value)
{
    uint8_t bytes[YB_WIRE_HELLO_BYTES_MAX];
    size_t length = 0;

    return yb_wire_hello_encode(value, bytes, sizeof(bytes), &length);
}

static void
test_wire__an_encoder_refuses_what_its_decoder_would(void **state)
{
    char text[66];
    struct yb_wire_hello value = hello();

    (void)state;
    assert_int_equal(encode(&value), YB_OK);
    value.role = 0;
    assert_int_equal(encode(&value), YB_INVALID);
    value.role = YB_WIRE_ROLE_ADMIN + 1;
    assert_int_equal(encode(&value), YB_INVALID);
    value = hello();
    value.lane_class = YB_CLASS_COUNT;
    assert_int_equal(encode(&value), YB_INVALID);
    value = hello();
    value.data_bytes_max = YB_WIRE_DATA_BYTES_MAX;
    assert_int_equal(encode(&value), YB_OK);
    value.data_bytes_max++;
    assert_int_equal(encode(&value), YB_INVALID);
    memset(text, 'x', sizeof(text));
    value = hello();
    value.tenant = (struct yb_wire_text){text, 64};
    assert_int_equal(encode(&value), YB_OK);
    value.tenant.length = 65;
    assert_int_equal(encode(&value), YB_INVALID);
    value = hello();
    value.software = yb_wire_text_of("a\nb");
    assert_int_equal(encode(&value), YB_INVALID);
}

static void
test_wire__an_error_is_a_sentence_with_message_field_and_number(void **state)
{
    struct yb_wire_hello value = hello();
    uint8_t bytes[YB_WIRE_HELLO_BYTES_MAX];
    struct yb_wire_error error;
    char text[80], small[8];
    size_t length = 0;

    (void)state;
    assert_int_equal(yb_wire_hello_encode(&value, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(length, yb_wire_hello_size(&value));
    bytes[YB_WIRE_HELLO_AT_ROLE] = 9;
    assert_int_equal(yb_wire_hello_decode(bytes, length, &value, &error), YB_PROTOCOL);
    yb_wire_error_format(&error, text, sizeof(text));
    assert_string_equal(text, "hello.role: not a value of its table (9)");
    yb_wire_error_format(&error, small, sizeof(small));
    assert_string_equal(small, "hello.r");
}

static void
test_wire__tables_have_words(void **state)
{
    (void)state;
    assert_string_equal(yb_wire_role_name(YB_WIRE_ROLE_DIRECTORY), "directory");
    assert_string_equal(yb_wire_type_name(YB_WIRE_TYPE_GOAWAY), "goaway");
    assert_string_equal(yb_wire_lane_name(YB_WIRE_LANE_BULK), "bulk");
    assert_string_equal(yb_wire_handshake_name(77), "unknown");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wire__texts_are_printable_utf_8),
        cmocka_unit_test(test_wire__text_views_compare_and_are_cut),
        cmocka_unit_test(test_wire__an_encoder_refuses_what_its_decoder_would),
        cmocka_unit_test(test_wire__an_error_is_a_sentence_with_message_field_and_number),
        cmocka_unit_test(test_wire__tables_have_words),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
