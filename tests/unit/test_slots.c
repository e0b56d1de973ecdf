/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants T1-T3 of net/slots.h.
 * Method: a random walk against an array of which slots are taken.
 */
#include "unit.h"

#include "net/slots.h"

#define WALK_SLOTS 500u
#define WALK_STEPS 50000u

static void
test_slots__the_last_one_given_back_is_taken_first(void **state)
{
    struct yb_slots slots = {0};
    uint32_t slot = 99;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(yb_slots_take(&slots, &slot), YB_OK);
        assert_int_equal(slot, i);
    }
    yb_slots_give(&slots, 7);
    yb_slots_give(&slots, 3);
    assert_int_equal(yb_slots_taken(&slots), 18);
    assert_int_equal(yb_slots_take(&slots, &slot), YB_OK);
    assert_int_equal(slot, 3);
    assert_int_equal(yb_slots_take(&slots, &slot), YB_OK);
    assert_int_equal(slot, 7);
    assert_int_equal(yb_slots_take(&slots, &slot), YB_OK);
    assert_int_equal(slot, 20);
    for (uint32_t i = 0; i <= 20; i++) {
        yb_slots_give(&slots, i);
    }
    yb_slots_fini(&slots);
}

static void
test_slots__a_random_walk_takes_no_slot_twice_and_no_more_than_it_needs(void **state)
{
    bool taken[WALK_SLOTS] = {false};
    struct yb_slots slots = {0};
    uint64_t random = unit_seed("slots");
    uint32_t most = 0, count = 0, slot = 0;

    (void)state;
    for (uint32_t step = 0; step < WALK_STEPS; step++) {
        uint32_t pick = (uint32_t)(unit_random(&random) % WALK_SLOTS);

        if (taken[pick]) {
            yb_slots_give(&slots, pick);
            taken[pick] = false;
            count--;
        } else if (count < WALK_SLOTS / 2) {
            assert_int_equal(yb_slots_take(&slots, &slot), YB_OK);
            count++;
            most = count > most ? count : most;
            assert_true(slot < most);  /* T2 */
            assert_false(taken[slot]); /* T1 */
            taken[slot] = true;
        }
        assert_int_equal(yb_slots_taken(&slots), count);
    }
    for (slot = 0; slot < WALK_SLOTS; slot++) {
        if (taken[slot]) {
            yb_slots_give(&slots, slot);
        }
    }
    yb_slots_fini(&slots);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots__the_last_one_given_back_is_taken_first),
        cmocka_unit_test(test_slots__a_random_walk_takes_no_slot_twice_and_no_more_than_it_needs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
