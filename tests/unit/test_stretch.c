/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: directory/stretch.h: an array grows in place, new memory is zero, little is taken too much,
 * and a helper that takes steps ahead disturbs nothing that the owner writes.
 * Method: one page in each step is written while the array grows, alone and beside a helper that
 * never stops; all is read back at the end.
 */
#include "unit.h"

#include <pthread.h>
#include <stdatomic.h>

#include "directory/stretch.h"

#define MIB ((size_t)1 << 20)

static void
test_stretch__what_it_grows_by_is_zero_and_small(void **state)
{
    struct yb_stretch stretch;
    uint8_t *base;

    (void)state;
    assert_int_equal(yb_stretch_init(&stretch, 3 * MIB), YB_OK);
    base = stretch.base;
    for (size_t bytes = 1; bytes <= 3 * MIB; bytes += 5000) {
        size_t taken;

        assert_int_equal(yb_stretch_reach(&stretch, bytes), YB_OK);
        taken = atomic_load(&stretch.taken_bytes);
        assert_true(taken >= bytes && taken < bytes + 65536);
        assert_int_equal(base[bytes - 1], 0);
        base[bytes - 1] = 7;
        assert_false(yb_stretch_ahead_due(&stretch)); /* Not before it is large. */
    }
    assert_ptr_equal(base, stretch.base);
    for (size_t bytes = 1; bytes <= 3 * MIB; bytes += 5000) {
        assert_int_equal(base[bytes - 1], 7);
    }
    yb_stretch_fini(&stretch);
}

static void
test_stretch__a_step_is_due_before_the_owner_needs_it(void **state)
{
    struct yb_stretch stretch;
    size_t taken;

    (void)state;
    assert_int_equal(yb_stretch_init(&stretch, 70 * MIB), YB_OK);
    assert_int_equal(yb_stretch_reach(&stretch, 65 * MIB), YB_OK);
    assert_true(yb_stretch_ahead_due(&stretch));
    taken = atomic_load(&stretch.taken_bytes);
    assert_int_equal(taken, 66 * MIB);
    yb_stretch_ahead(&stretch);
    assert_int_equal(atomic_load(&stretch.taken_bytes), 68 * MIB);
    assert_false(yb_stretch_ahead_due(&stretch));
    yb_stretch_ahead(&stretch); /* Nothing is due. */
    assert_int_equal(atomic_load(&stretch.taken_bytes), 68 * MIB);
    assert_int_equal(yb_stretch_reach(&stretch, 66 * MIB + 1), YB_OK);
    assert_int_equal(atomic_load(&stretch.taken_bytes), 68 * MIB);
    /* At the end of what is reserved there is nothing more to take. */
    assert_int_equal(yb_stretch_reach(&stretch, 70 * MIB), YB_OK);
    yb_stretch_ahead(&stretch);
    assert_int_equal(atomic_load(&stretch.taken_bytes), 70 * MIB);
    yb_stretch_fini(&stretch);
}

struct helper {
    struct yb_stretch *stretch;
    atomic_bool stop;
};

static void *
help(void *argument)
{
    struct helper *helper = argument;

    while (!atomic_load(&helper->stop)) {
        yb_stretch_ahead(helper->stretch);
    }
    return NULL;
}

static void
test_stretch__a_helper_that_grows_it_ahead_changes_nothing(void **state)
{
    enum { STEP = 1008 }; /* 21 records. */
    struct yb_stretch stretch;
    struct helper helper = {.stretch = &stretch};
    pthread_t thread;

    (void)state;
    assert_int_equal(yb_stretch_init(&stretch, 90 * MIB), YB_OK);
    assert_int_equal(yb_stretch_reach(&stretch, 63 * MIB), YB_OK);
    assert_int_equal(pthread_create(&thread, NULL, help, &helper), 0);
    for (size_t at = 63 * MIB; at + STEP <= 90 * MIB; at += STEP) {
        uint64_t *place = (uint64_t *)(void *)(stretch.base + at);

        assert_int_equal(yb_stretch_reach(&stretch, at + STEP), YB_OK);
        if (*place != 0) {
            fail();
        }
        *place = at;
    }
    atomic_store(&helper.stop, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (size_t at = 63 * MIB; at + STEP <= 90 * MIB; at += STEP) {
        if (*(uint64_t *)(void *)(stretch.base + at) != at) {
            fail();
        }
    }
    yb_stretch_fini(&stretch);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stretch__what_it_grows_by_is_zero_and_small),
        cmocka_unit_test(test_stretch__a_step_is_due_before_the_owner_needs_it),
        cmocka_unit_test(test_stretch__a_helper_that_grows_it_ahead_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
