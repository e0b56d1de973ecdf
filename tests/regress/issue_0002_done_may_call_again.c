/* SPDX-License-Identifier: Apache-2.0
 *
 * A call that waited on an open connection ended when that was lost, and its `done` made the next
 * call: the lane still counted as open, without a connection.
 */
#include "net_duo.h"

static struct caller again;

static void
call_again(struct caller *caller)
{
    (void)caller;
    assert_int_equal(caller_submit(&again), YB_OK);
}

static void
test_regress__done_may_call_when_the_connection_was_lost(void **state)
{
    struct caller flying;
    struct caller waiting;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.selfs[SERVER].credit_requests = 1;
    duo_start(&duo);
    caller_init(&flying, &duo, DUO_HOLD);
    flying.call.fail_fast = true;
    caller_init(&waiting, &duo, YB_WIRE_TYPE_ECHO);
    waiting.call.fail_fast = true;
    waiting.then = call_again;
    caller_init(&again, &duo, YB_WIRE_TYPE_ECHO);
    assert_int_equal(caller_submit(&flying), YB_OK);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    assert_int_equal(caller_submit(&waiting), YB_OK);
    yb_net_shut(duo.nets[SERVER]);
    DUO_AWAIT(&duo, waiting.done == 1);
    caller_expect_none(&waiting, YB_PEER_LOST, false);
    DUO_AWAIT(&duo, again.done == 1);
    caller_expect(&again, YB_OK);
    service_reply(&duo.service, YB_OK, NULL, 0);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__done_may_call_when_the_connection_was_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
