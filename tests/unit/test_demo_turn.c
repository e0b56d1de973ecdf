/* SPDX-License-Identifier: Apache-2.0
 *
 * Who was refused asks again before whoever came later.
 */
#include <pthread.h>

#include "base/clock.h"
#include "cli/demo_turn.h"
#include "unit.h"

#define COUNT   16u
#define STEPS   4000u
#define WAIT_NS (60 * YB_NS_PER_S)

static void
start(struct yb_demo_turns *turns)
{
    assert_int_equal(yb_demo_turns_init(turns, COUNT), YB_OK);
}

static bool
may_ask(struct yb_demo_turns *turns, uint32_t number)
{
    return yb_demo_turn_await(turns, number, 0);
}

static void
test_demo_turn__all_may_ask_while_nobody_was_refused(void **state)
{
    struct yb_demo_turns turns;

    (void)state;
    start(&turns);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(may_ask(&turns, i));
        yb_demo_turn_end(&turns, i);
    }
    yb_demo_turns_fini(&turns);
}

/* Requests of one piece of room come as long as there is any; one that needs all of it came first.
 */
static void
test_demo_turn__one_that_needs_much_room_is_not_starved_by_those_that_need_little(void **state)
{
    const uint32_t room = 4;
    struct yb_demo_turns turns;
    uint32_t used = room; /* By those that came before. */
    uint32_t begun = 0;

    (void)state;
    start(&turns);
    yb_demo_turn_refused(&turns, 0);
    for (uint32_t left = room; left > 0; left--) { /* One of them ends ... */
        used--;
        for (uint32_t i = 1; i < COUNT; i++) { /* ... and all others want its room. */
            if (used < room && may_ask(&turns, i)) {
                used++;
                begun++;
            }
        }
    }
    assert_true(may_ask(&turns, 0));
    assert_int_equal(used, 0); /* All of it is there for the one that came first. */
    assert_int_equal(begun, 0);
    yb_demo_turn_end(&turns, 0);
    assert_true(may_ask(&turns, 1));
    yb_demo_turns_fini(&turns);
}

static void
test_demo_turn__of_those_that_were_refused_the_oldest_is_next(void **state)
{
    uint64_t random = unit_seed("demo_turn");
    struct yb_demo_turns turns;
    bool waits[COUNT] = {false};

    (void)state;
    start(&turns);
    for (uint32_t step = 0; step < STEPS; step++) {
        const uint32_t number = (uint32_t)(unit_random(&random) % COUNT);
        uint32_t oldest = 0;

        waits[number] = unit_random(&random) % 2 == 0;
        if (waits[number]) {
            yb_demo_turn_refused(&turns, number);
        } else {
            yb_demo_turn_end(&turns, number);
        }
        while (oldest < COUNT && !waits[oldest]) {
            oldest++;
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(may_ask(&turns, i), i <= oldest);
        }
    }
    yb_demo_turns_fini(&turns);
}

static void *
wait_for_turn(void *context)
{
    struct yb_demo_turns *turns = context;

    return yb_demo_turn_await(turns, COUNT - 1, WAIT_NS) ? turns : NULL;
}

static void
test_demo_turn__whoever_waits_is_woken_by_the_last_before_it(void **state)
{
    struct yb_demo_turns turns;
    pthread_t thread;
    void *came = NULL;

    (void)state;
    start(&turns);
    yb_demo_turn_refused(&turns, 3);
    yb_demo_turn_refused(&turns, 5);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_turn, &turns), 0);
    yb_demo_turn_end(&turns, 5);
    yb_demo_turn_end(&turns, 3);
    assert_int_equal(pthread_join(thread, &came), 0);
    assert_ptr_equal(came, &turns);
    yb_demo_turns_fini(&turns);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_demo_turn__all_may_ask_while_nobody_was_refused),
        cmocka_unit_test(
            test_demo_turn__one_that_needs_much_room_is_not_starved_by_those_that_need_little),
        cmocka_unit_test(test_demo_turn__of_those_that_were_refused_the_oldest_is_next),
        cmocka_unit_test(test_demo_turn__whoever_waits_is_woken_by_the_last_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
