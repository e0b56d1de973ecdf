/* SPDX-License-Identifier: Apache-2.0
 *
 * New weights on their way to engines, by numbers that can be worked out by hand.
 */
#include "unit.h"

#include <math.h>

#include "sim/weights.h"

/* 10 buckets of 1 s each over the slow link, 0.5 s over the fast one; 1 s onto the devices. */
static struct yb_weights_options
usual(void)
{
    return (struct yb_weights_options){
        .bytes = 10e9,
        .bucket_bytes = 1e9,
        .push_bytes_per_s = 1e9,
        .pull_bytes_per_s = 2e9,
        .load_bytes_per_s = 10e9,
        .busy_s = 10,
        .engines = 3,
        .overlap = true,
    };
}

static struct yb_weights_result
run(const struct yb_weights_options *options)
{
    struct yb_weights_result result;

    assert_int_equal(yb_weights_run(options, &result), YB_OK);
    return result;
}

static void
expect(double value, double expected)
{
    if (fabs(value - expected) > 1e-6) {
        print_error("%f instead of %f\n", value, expected);
        fail();
    }
}

static void
test_sim_weights__the_last_bucket_and_the_load_are_exposed(void **state)
{
    struct yb_weights_options options = usual();
    struct yb_weights_result result = run(&options);

    (void)state;
    expect(result.push_s, 10);
    expect(result.pull_s, 3 * 5);
    expect(result.exposed_s, 0.5 + 1);
    expect(result.done_s, 11.5);
    options.busy_s = 100;
    expect(run(&options).exposed_s, 1);
    expect(run(&options).done_s, 101);
}

static void
test_sim_weights__one_object_is_pulled_when_all_of_it_is_there(void **state)
{
    struct yb_weights_options options = usual();

    (void)state;
    options.bucket_bytes = 0;
    expect(run(&options).exposed_s, 5 + 1);
    options.overlap = false;
    expect(run(&options).exposed_s, 10 + 5 + 1);
}

static void
test_sim_weights__engines_share_the_way_out_of_the_store(void **state)
{
    struct yb_weights_options options = usual();

    (void)state;
    options.bucket_bytes = 0;
    options.out_bytes_per_s = 2e9; /* One after the other: 5, 10, 15 s. */
    expect(run(&options).exposed_s, 10 + 1);
    expect(run(&options).done_s, 10 + 15 + 1);
}

static void
test_sim_weights__what_is_not_above_nothing_is_refused(void **state)
{
    struct yb_weights_options options = usual();
    struct yb_weights_result result;

    (void)state;
    options.engines = 0;
    assert_int_equal(yb_weights_run(&options, &result), YB_INVALID);
    options = usual();
    options.push_bytes_per_s = 0;
    assert_int_equal(yb_weights_run(&options, &result), YB_INVALID);
    options = usual();
    options.bucket_bytes = 1;
    assert_int_equal(yb_weights_run(&options, &result), YB_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_weights__the_last_bucket_and_the_load_are_exposed),
        cmocka_unit_test(test_sim_weights__one_object_is_pulled_when_all_of_it_is_there),
        cmocka_unit_test(test_sim_weights__engines_share_the_way_out_of_the_store),
        cmocka_unit_test(test_sim_weights__what_is_not_above_nothing_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
