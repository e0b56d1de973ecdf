/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a trim is remembered until it is confirmed and heard, whichever comes first, and no longer.
 * Method: by hand; then a random walk beside a table that is looked through from end to end.
 */
#include "unit.h"

#include "directory/trims.h"

#define TRIMS_MAX 64u

static void
test_trims__one_is_remembered_until_it_is_confirmed_and_heard(void **state)
{
    struct yb_trims *trims;

    (void)state;
    assert_int_equal(yb_trims_create(TRIMS_MAX, &trims), YB_OK);
    assert_false(yb_trims_has(trims, 1, 7));
    assert_int_equal(yb_trims_note(trims, 1, 7), YB_OK);
    assert_int_equal(yb_trims_note(trims, 2, 7), YB_OK);
    assert_false(yb_trims_has(trims, 1, 8));
    yb_trims_confirm(trims, 1, 7);
    yb_trims_confirm(trims, 1, 7);
    yb_trims_hear(trims, 2, 7);
    assert_true(yb_trims_has(trims, 1, 7) && yb_trims_has(trims, 2, 7));
    yb_trims_hear(trims, 1, 7);
    yb_trims_confirm(trims, 2, 7);
    assert_false(yb_trims_has(trims, 1, 7) || yb_trims_has(trims, 2, 7));
    yb_trims_hear(trims, 1, 7); /* Of a trim that is over. */
    assert_int_equal(yb_trims_count(trims), 0);
    yb_trims_destroy(&trims);
    assert_null(trims);
}

static void
test_trims__those_beyond_the_bound_are_refused(void **state)
{
    struct yb_trims *trims;

    (void)state;
    assert_int_equal(yb_trims_create(TRIMS_MAX, &trims), YB_OK);
    for (uint32_t i = 0; i < TRIMS_MAX; i++) {
        assert_int_equal(yb_trims_note(trims, 1, i + 1), YB_OK);
    }
    assert_int_equal(yb_trims_note(trims, 2, 1), YB_NO_SPACE);
    assert_int_equal(yb_trims_note(trims, 1, 1), YB_OK); /* It is there. */
    yb_trims_forget(trims, 1);
    assert_int_equal(yb_trims_count(trims), 0);
    assert_int_equal(yb_trims_note(trims, 2, 1), YB_OK);
    yb_trims_destroy(&trims);
}

#define SLOTS  8u
#define GRANTS 64u

static void
test_trims__what_it_remembers_is_what_it_was_told(void **state)
{
    static uint8_t awaits[SLOTS][GRANTS]; /* 1: its confirmation; 2: that it is heard. */
    uint64_t random = unit_seed("trims");
    uint32_t count = 0, refused = 0;
    struct yb_trims *trims;

    (void)state;
    assert_int_equal(yb_trims_create(TRIMS_MAX, &trims), YB_OK);
    for (uint32_t step = 0; step < 300000; step++) {
        uint16_t slot = (uint16_t)(unit_random(&random) % SLOTS);
        uint64_t grant = unit_random(&random) % GRANTS;
        uint64_t what = unit_random(&random) % 100;
        uint8_t *known = &awaits[slot][grant];

        count -= *known != 0;
        if (what < 50) {
            bool fits = *known != 0 || count < TRIMS_MAX;

            assert_int_equal(yb_trims_note(trims, slot, grant + 1), fits ? YB_OK : YB_NO_SPACE);
            *known = fits ? 3 : 0;
            refused += !fits;
        } else if (what < 75) {
            yb_trims_confirm(trims, slot, grant + 1);
            *known &= 2;
        } else {
            yb_trims_hear(trims, slot, grant + 1);
            *known &= 1;
        }
        count += *known != 0;
        if (step % 1000 == 0) {
            yb_trims_forget(trims, slot);
            for (uint32_t i = 0; i < GRANTS; i++) {
                count -= awaits[slot][i] != 0;
                awaits[slot][i] = 0;
            }
        }
        for (uint16_t other = 0; other < SLOTS; other++) {
            assert_int_equal(yb_trims_has(trims, other, grant + 1), awaits[other][grant] != 0);
        }
        assert_int_equal(yb_trims_count(trims), count);
    }
    assert_true(refused > 0);
    yb_trims_destroy(&trims);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trims__one_is_remembered_until_it_is_confirmed_and_heard),
        cmocka_unit_test(test_trims__those_beyond_the_bound_are_refused),
        cmocka_unit_test(test_trims__what_it_remembers_is_what_it_was_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
