/* SPDX-License-Identifier: Apache-2.0
 *
 * The numbers of the known system, row by row: engines compare some of them exactly.
 */
#include "unit.h"

#include <string.h>

#include "compat/codes.h"

#define ALL UINT32_MAX

/* RULES D2, with the statuses that it does not name. */
static const struct {
    enum yb_status status;
    uint32_t call; /* enum yb_compat_call; ALL: those that no other row names. */
    int32_t code;
} expected[] = {
    {YB_OK, ALL, 0},
    {YB_EXISTS, YB_COMPAT_CALL_PUT, 0},
    {YB_EXISTS, ALL, -705},
    {YB_IN_PROGRESS, YB_COMPAT_CALL_PUT, 0},
    {YB_IN_PROGRESS, YB_COMPAT_CALL_RESERVE, -705},
    {YB_IN_PROGRESS, ALL, -703},
    {YB_NOT_READY, ALL, -703},
    {YB_AGAIN, YB_COMPAT_CALL_PUT, -200},
    {YB_AGAIN, YB_COMPAT_CALL_UPSERT, -200},
    {YB_AGAIN, YB_COMPAT_CALL_RESERVE, -200},
    {YB_AGAIN, ALL, -900},
    {YB_NO_SPACE, ALL, -200},
    {YB_TOO_LARGE, YB_COMPAT_CALL_PUT, -200},
    {YB_TOO_LARGE, YB_COMPAT_CALL_UPSERT, -200},
    {YB_TOO_LARGE, YB_COMPAT_CALL_RESERVE, -200},
    {YB_TOO_LARGE, ALL, -600},
    {YB_TOO_SMALL, ALL, -600},
    {YB_INVALID, ALL, -600},
    {YB_ADDRESS_IN_USE, ALL, -600},
    {YB_CLOSED, ALL, -600},
    {YB_NOT_FOUND, ALL, -704},
    {YB_STALE, ALL, -712},
    {YB_LEASED, ALL, -706},
    {YB_HELD, ALL, -706},
    {YB_BUSY, ALL, -714},
    {YB_LAPSED, ALL, -707},
    {YB_CORRUPT, ALL, -801},
    {YB_REBUILDING, ALL, -1010},
    {YB_DENIED, ALL, -601},
    {YB_QUOTA, ALL, -1700},
    {YB_VERSION, ALL, -300},
    {YB_TIMED_OUT, ALL, -901},
    {YB_CANCELLED, ALL, -901},
    {YB_UNREACHABLE, ALL, -900},
    {YB_REFUSED, ALL, -900},
    {YB_PEER_LOST, YB_COMPAT_CALL_SETUP, -900},
    {YB_PEER_LOST, ALL, -800},
    {YB_FENCED, ALL, -800},
    {YB_IN_DOUBT, ALL, -800},
    {YB_FAULT, ALL, -800},
    {YB_IO, ALL, -800},
    {YB_UNSUPPORTED, ALL, -1012},
};

static const enum yb_compat_call calls[] = {
    YB_COMPAT_CALL_READ,    YB_COMPAT_CALL_PUT,    YB_COMPAT_CALL_UPSERT,
    YB_COMPAT_CALL_RESERVE, YB_COMPAT_CALL_REMOVE, YB_COMPAT_CALL_SETUP,
};

/* The code of the table above; -1, an internal error, for what it does not name. */
static int32_t
code_of(enum yb_status status, enum yb_compat_call call)
{
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        if (expected[i].status == status &&
            (expected[i].call == ALL || expected[i].call == (uint32_t)call)) {
            return expected[i].code;
        }
    }
    return -1;
}

static void
test_compat_codes__has_the_number_of_every_status_in_every_call(void **state)
{
    for (int32_t status = -64; status <= 64; status++) {
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            assert_int_equal(yb_compat_code((enum yb_status)status, calls[i]),
                             code_of((enum yb_status)status, calls[i]));
        }
    }
}

static void
test_compat_codes__has_a_sentence_for_each_number_and_each_number_once(void **state)
{
    static const int32_t numbers[] = {
#define X(name, value, text) (value),
        YB_COMPAT_CODE_MAP(X)
#undef X
    };
    size_t count = sizeof(numbers) / sizeof(numbers[0]);

    for (size_t i = 0; i < count; i++) {
        assert_string_not_equal(yb_compat_code_text(numbers[i]), "unknown");
        assert_true(numbers[i] <= 0);
        for (size_t k = i + 1; k < count; k++) {
            assert_int_not_equal(numbers[i], numbers[k]);
        }
    }
    assert_string_equal(yb_compat_code_text(1), "unknown");
    assert_string_equal(yb_compat_code_text(-2), "unknown");
    assert_string_equal(yb_compat_code_text(INT32_MIN), "unknown");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_codes__has_the_number_of_every_status_in_every_call),
        cmocka_unit_test(test_compat_codes__has_a_sentence_for_each_number_and_each_number_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
