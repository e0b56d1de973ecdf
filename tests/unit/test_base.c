/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the small values of base: statuses, ids, deadlines.
 * Method: one short test per promise in the headers.
 */
#include "unit.h"

#include <string.h>

#include "base/clock.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

static void
test_status__every_row_has_a_name_a_text_and_is_known(void **state)
{
    (void)state;
#define X(name, value, scope, text)                                 \
    assert_string_equal(yb_status_name(YB_##name), #name);          \
    assert_string_equal(yb_status_text(YB_##name), text);           \
    assert_int_equal(yb_status_scope(YB_##name), YB_SCOPE_##scope); \
    assert_true(yb_status_known(value));
    YB_STATUS_MAP(X)
#undef X
    assert_false(yb_status_known(1));
    assert_false(yb_status_known(-9999));
    assert_string_equal(yb_status_name((enum yb_status)77), "UNKNOWN");
    assert_int_equal(yb_status_scope((enum yb_status)77), YB_SCOPE_PEER);
}

static void
test_id__round_trips_and_refuses_anything_but_32_hex_digits(void **state)
{
    const char *text = "00112233445566778899aabbccddeeff";
    struct yb_id id = {{0}};
    char back[33];

    (void)state;
    assert_true(yb_id_is_none(id));
    assert_true(yb_id_parse(text, &id));
    yb_id_format(id, back);
    assert_string_equal(back, text);
    assert_false(yb_id_is_none(id));
    assert_false(yb_id_parse("", &id));
    assert_false(yb_id_parse("00112233445566778899aabbccddeef", &id));
    assert_false(yb_id_parse("00112233445566778899aabbccddeeff0", &id));
    assert_false(yb_id_parse("00112233445566778899aabbccddeefg", &id));
    yb_id_format(id, back);
    assert_string_equal(back, text);
}

static void
test_clock__a_huge_timeout_means_never_and_not_the_past(void **state)
{
    (void)state;
    assert_true(yb_deadline_after(5, UINT64_MAX) == YB_NEVER);
    assert_true(yb_deadline_after(UINT64_MAX - 1, 2) == YB_NEVER);
    assert_true(yb_deadline_after(5, 7) == 12);
    assert_true(yb_clock_now(yb_clock_system()) > 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status__every_row_has_a_name_a_text_and_is_known),
        cmocka_unit_test(test_id__round_trips_and_refuses_anything_but_32_hex_digits),
        cmocka_unit_test(test_clock__a_huge_timeout_means_never_and_not_the_past),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
