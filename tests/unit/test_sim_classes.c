/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads beside bulk on one port, with classes and without.
 */
#include "unit.h"

#include <math.h>

#include "sim/classes.h"

/* A second for 1000 tokens, 10 layers, 1 MB a token; a port of 1 GB/s. */
static struct yb_classes_case
usual(void)
{
    return (struct yb_classes_case){
        .cost = {.prefill_token_ns = 1e6, .kv_bytes = 1000000, .layers = 10},
        .bytes_per_s = 1e9,
        .tokens = 1000,
        .gap_ns = 1e12, /* Nobody waits for another one. */
        .requests = 50,
        .seed = 1,
    };
}

static struct yb_classes_result
run(const struct yb_classes_case *one)
{
    struct yb_classes_result result;

    assert_int_equal(yb_classes_run(one, &result), YB_OK);
    return result;
}

static void
expect_ms(double value_ns, double expected_ms)
{
    if (fabs(value_ns / 1e6 - expected_ms) > 0.01) {
        print_error("%f ms instead of %f\n", value_ns / 1e6, expected_ms);
        fail();
    }
}

/* 70 %: 700 MB take 0.7 s, 300 tokens 0.3 s, the last of ten layers 0.03 s after the load. 30 %:
 * the other way round, computing is longer. */
static void
test_sim_classes__load_and_compute_overlap_but_for_a_layer(void **state)
{
    struct yb_classes_case one = usual();

    (void)state;
    one.hit = 0.7;
    expect_ms(run(&one).mean_ns, 730);
    expect_ms(run(&one).load_mean_ns, 700);
    one.hit = 0.3;
    expect_ms(run(&one).mean_ns, 700);
    one.hit = 0;
    expect_ms(run(&one).mean_ns, 1000);
}

/* Behind bulk a load gets what is left of 5 %: at most 700 / 0.95 ms. */
static void
test_sim_classes__with_classes_a_load_waits_for_its_guaranteed_share_alone(void **state)
{
    struct yb_classes_case one = usual();
    struct yb_classes_result with;
    struct yb_classes_result without;

    (void)state;
    one.requests = 2000;
    one.hit = 0.7;
    one.background = 0.6;
    one.classes = true;
    with = run(&one);
    assert_true(with.p99_ns <= (700 / 0.95 + 30) * 1e6 + 1e6);
    one.classes = false;
    without = run(&one);
    assert_true(without.load_mean_ns > 1.5 * with.load_mean_ns);
    assert_true(without.p99_ns > 2 * with.p99_ns);
}

static void
test_sim_classes__without_bulk_classes_change_nothing(void **state)
{
    struct yb_classes_case one = usual();
    struct yb_classes_result with;
    struct yb_classes_result without;

    (void)state;
    one.hit = 0.7;
    one.gap_ns = 1e9;
    without = run(&one);
    one.classes = true;
    with = run(&one);
    assert_memory_equal(&with, &without, sizeof(with));
}

static void
test_sim_classes__what_cannot_be_run_is_refused(void **state)
{
    struct yb_classes_case one = usual();
    struct yb_classes_result result;

    (void)state;
    one.hit = 1;
    assert_int_equal(yb_classes_run(&one, &result), YB_INVALID);
    one = usual();
    one.background = 1;
    assert_int_equal(yb_classes_run(&one, &result), YB_INVALID);
    one = usual();
    one.requests = 0;
    assert_int_equal(yb_classes_run(&one, &result), YB_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_classes__load_and_compute_overlap_but_for_a_layer),
        cmocka_unit_test(
            test_sim_classes__with_classes_a_load_waits_for_its_guaranteed_share_alone),
        cmocka_unit_test(test_sim_classes__without_bulk_classes_change_nothing),
        cmocka_unit_test(test_sim_classes__what_cannot_be_run_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
