/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: nobody is taken to be told who was not told of this grant, in this life, for that long.
 * Method: by hand; then a random walk beside a table that forgets nothing.
 */
#include "unit.h"

#include "directory/told.h"

static void
test_told__who_was_told_of_a_hold_as_long_is_not_told_again(void **state)
{
    struct yb_told *told;

    (void)state;
    assert_int_equal(yb_told_create(64, &told), YB_OK);
    assert_false(yb_told_lasts(told, 1, 7, 0));
    yb_told_note(told, 1, 7, 1000);
    assert_true(yb_told_lasts(told, 1, 7, 999));
    assert_true(yb_told_lasts(told, 1, 7, 1000));
    assert_false(yb_told_lasts(told, 1, 7, 1001)); /* A longer one. */
    assert_false(yb_told_lasts(told, 1, 8, 1000)); /* Another version. */
    assert_false(yb_told_lasts(told, 2, 7, 1000)); /* Another node, or what it was before. */
    yb_told_note(told, 2, 7, 1000);                /* A copy of the same. */
    assert_true(yb_told_lasts(told, 1, 7, 1000) && yb_told_lasts(told, 2, 7, 1000));
    yb_told_destroy(&told);
    assert_null(told);
}

#define LIVES  128u
#define GRANTS 16u

static void
test_told__what_it_says_was_told(void **state)
{
    static uint64_t until_ms[LIVES][GRANTS];
    uint64_t random = unit_seed("told");
    struct yb_told *told;
    uint32_t lasts = 0;

    (void)state;
    assert_int_equal(yb_told_create(64, &told), YB_OK); /* Many for each place. */
    for (uint32_t step = 0; step < 200000; step++) {
        uint32_t life = (uint32_t)(unit_random(&random) % LIVES);
        uint64_t grant = unit_random(&random) % GRANTS;
        uint64_t until = step + unit_random(&random) % 10000;

        if (yb_told_lasts(told, life + 1, grant, until)) {
            assert_true(until_ms[life][grant] >= until);
            lasts++;
        } else {
            yb_told_note(told, life + 1, grant, until);
            until_ms[life][grant] = until;
        }
    }
    assert_true(lasts > 0);
    yb_told_destroy(&told);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told__who_was_told_of_a_hold_as_long_is_not_told_again),
        cmocka_unit_test(test_told__what_it_says_was_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
