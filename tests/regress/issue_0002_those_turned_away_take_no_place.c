/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection that was told that there is no room counted as one more without a handshake until it
 * was gone; so a crowd that tried again and again kept everybody out, also when room was free.
 */
#include "net_duo.h"

static void
test_regress__a_free_place_is_given_while_others_are_told_that_there_was_none(void **state)
{
    struct caller caller;
    struct raw silent;
    struct raw told;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.unauthenticated_max = 1;
    duo_start(&duo);
    raw_open(&silent, &duo, true);
    raw_open(&told, &duo, true);
    duo_pass_ms(&duo, 2);
    assert_int_equal(duo.nets[SERVER]->conn_count, 2);
    raw_close(&silent);
    duo_pass_ms(&duo, 2);
    assert_int_equal(duo.nets[SERVER]->conn_count, 1); /* Which is still being told. */
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    caller.call.fail_fast = true;
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    raw_close(&told);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_regress__a_free_place_is_given_while_others_are_told_that_there_was_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
