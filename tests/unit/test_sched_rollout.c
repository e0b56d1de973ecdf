/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollouts: which answer goes on and where, and engines that do as they are told.
 */
#include "unit.h"

#include <math.h>

#include "sim/rollout.h"
#include "yuebing/sched.h"

/* ---- which ----------------------------------------------------------------------------------- */

static void
test_sched_rollout__probes_go_first_and_then_the_longest_groups(void **state)
{
    const struct yb_sched_rollout_group groups[] = {
        {.longest = 500, .served = 900}, {.longest = 4000, .served = 900}, {.longest = 800}};
    struct yb_sched_rollout_waiter waiters[] = {
        {.group = 0, .generated = 10},
        {.group = 1, .generated = 200},
        {.group = 2, .generated = 300, .probe = true},
        {.group = 1, .generated = 100, .probe = true},
        {.group = 1, .generated = 50},
    };

    (void)state;
    assert_int_equal(yb_sched_rollout_next(waiters, 5, groups, 0), 3); /* 100 < 300 tokens. */
    waiters[3].probe = false;
    assert_int_equal(yb_sched_rollout_next(waiters, 5, groups, 0), 2);
    waiters[2].probe = false;
    assert_int_equal(yb_sched_rollout_next(waiters, 5, groups, 0), 1); /* The first of group 1. */
    assert_int_equal(yb_sched_rollout_next(waiters, 1, groups, 0), 0);
}

static void
test_sched_rollout__now_and_then_who_has_got_least_goes_on(void **state)
{
    const struct yb_sched_rollout_group groups[] = {{.longest = 9, .served = 70},
                                                    {.longest = 5, .served = 20}};
    const struct yb_sched_rollout_waiter waiters[] = {{.group = 0}, {.group = 1}};
    uint32_t served = 0;

    (void)state;
    for (uint64_t picks = 0; picks < 3 * YB_SCHED_ROLLOUT_SERVE; picks++) {
        served += yb_sched_rollout_next(waiters, 2, groups, picks);
    }
    assert_int_equal(served, 3);
}

/* ---- where ----------------------------------------------------------------------------------- */

static void
test_sched_rollout__kv_draws_unless_requests_are_spread_too_far(void **state)
{
    struct yb_sched_rollout_place places[] = {
        {.in_flight = 40, .held_tokens = 5000, .free_tokens = 9000},
        {.in_flight = 8, .free_tokens = 9000},
        {.in_flight = 9, .free_tokens = 9000},
    };
    bool pull = true;

    (void)state;
    assert_int_equal(yb_sched_rollout_where(places, 3, 6000, 5000, &pull), 0); /* 40 - 8 = 32. */
    assert_false(pull);
    places[0].in_flight = 41;
    assert_int_equal(yb_sched_rollout_where(places, 3, 6000, 5000, &pull), 1);
    assert_true(pull);
    assert_int_equal(yb_sched_rollout_where(places, 3, 6000, 512, &pull), 1);
    assert_false(pull); /* 512 tokens are not more than 512. */
}

static void
test_sched_rollout__nobody_goes_where_there_is_no_room(void **state)
{
    struct yb_sched_rollout_place places[] = {
        {.in_flight = 3, .held_tokens = 5000, .free_tokens = 5999},
        {.in_flight = 4, .free_tokens = 6000},
    };
    bool pull = false;

    (void)state;
    assert_int_equal(yb_sched_rollout_where(places, 2, 6000, 5000, &pull), 1);
    assert_true(pull);
    places[1].free_tokens = 5999;
    assert_int_equal(yb_sched_rollout_where(places, 2, 6000, 5000, &pull), YB_SCHED_NONE);
    assert_false(pull);
}

/* ---- engines that do it ---------------------------------------------------------------------- */

/* A step of 1 ms whatever is in it; room for two chunks of 10 at a time behind a prompt of one. */
static const struct yb_sched_cost even = {
    .step_base_ns = 1e6, .kv_bytes = 1000, .kv_tokens_max = 64, .layers = 1};

static struct yb_rollout_options
two_engines(const uint32_t *lengths, enum yb_rollout_policy policy)
{
    return (struct yb_rollout_options){
        .cost = &even,
        .places = 2,
        .batch = 1,
        .groups = 2,
        .group_size = 2,
        .prompt_tokens = 1,
        .limit_tokens = 41,
        .chunk_tokens = 21,
        .bytes_per_s = 1e15,
        .policy = policy,
        .lengths = lengths,
    };
}

static double
total_ms(const uint32_t *lengths, enum yb_rollout_policy policy)
{
    struct yb_rollout_options options = two_engines(lengths, policy);
    struct yb_rollout_result result;

    assert_int_equal(yb_rollout_run(&options, &result), YB_OK);
    return result.total_s * 1e3;
}

/* Of each chunk the first token comes from a prefill that takes no time (a nanosecond). */
static void
test_sched_rollout__a_group_that_is_long_holds_one_engine_alone(void **state)
{
    const uint32_t lengths[] = {21, 21, 11, 11};

    (void)state;
    assert_true(fabs(total_ms(lengths, YB_ROLLOUT_GROUPED) - 40) < 0.01); /* 20 and 20. */
    assert_true(fabs(total_ms(lengths, YB_ROLLOUT_DIVIDED) - 30) < 0.01); /* 20 and 10. */
}

/* In the order of their coming: 5, 5, 5 + 5, 5 + 20, 10 + 20, 25 + 20. With probes of 6 and 21
 * tokens the long group begins at 0, 5 and 20, and what is left of the short one fits beside it. */
static void
test_sched_rollout__what_has_ended_tells_what_should_begin(void **state)
{
    const uint32_t lengths[] = {6, 6, 6, 21, 21, 21};
    struct yb_rollout_options options = two_engines(lengths, YB_ROLLOUT_DIVIDED);
    struct yb_rollout_result result;

    (void)state;
    options.group_size = 3;
    assert_int_equal(yb_rollout_run(&options, &result), YB_OK);
    assert_true(fabs(result.total_s * 1e3 - 45) < 0.01);
    for (unsigned i = YB_ROLLOUT_CONTEXT; i <= YB_ROLLOUT_ORACLE; i++) {
        options.policy = (enum yb_rollout_policy)i;
        assert_int_equal(yb_rollout_run(&options, &result), YB_OK);
        assert_true(fabs(result.total_s * 1e3 - 40) < 0.01);
    }
}

static void
test_sched_rollout__every_answer_gets_its_tokens_under_any_policy(void **state)
{
    uint64_t random = unit_seed("rollout");
    uint32_t lengths[64];

    (void)state;
    for (uint32_t round = 0; round < (unit_long() ? 2000u : 100u); round++) {
        struct yb_rollout_options options = two_engines(lengths, YB_ROLLOUT_GROUPED);
        double least_ms = 0;

        options.groups = 1 + (uint32_t)(unit_random(&random) % 8);
        options.group_size = 1 + (uint32_t)(unit_random(&random) % 8);
        options.places = 1 + (uint32_t)(unit_random(&random) % 5);
        options.batch = 1 + (uint32_t)(unit_random(&random) % 3);
        options.bytes_per_s = 1e6;
        for (uint32_t i = 0; i < options.groups * options.group_size; i++) {
            lengths[i] = 1 + (uint32_t)(unit_random(&random) % 41);
            least_ms = fmax(least_ms, lengths[i] - 1.0 - (lengths[i] > 21 ? 1 : 0));
        }
        for (unsigned i = 0; i < YB_ROLLOUT_POLICIES; i++) {
            struct yb_rollout_result result;

            options.policy = (enum yb_rollout_policy)i;
            assert_int_equal(yb_rollout_run(&options, &result), YB_OK);
            assert_true(result.total_s * 1e3 >= least_ms);
            assert_true(result.tail_s <= result.total_s);
            assert_true(result.chunks >= options.groups * options.group_size);
        }
    }
}

static void
test_sched_rollout__an_answer_that_has_no_room_is_refused(void **state)
{
    const uint32_t lengths[] = {1, 1, 1, 1};
    struct yb_rollout_options options = two_engines(lengths, YB_ROLLOUT_CONTEXT);
    struct yb_rollout_result result;

    (void)state;
    options.limit_tokens = 43; /* And a chunk of 21, and the prompt: 65. */
    assert_int_equal(yb_rollout_run(&options, &result), YB_INVALID);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_rollout__probes_go_first_and_then_the_longest_groups),
        cmocka_unit_test(test_sched_rollout__now_and_then_who_has_got_least_goes_on),
        cmocka_unit_test(test_sched_rollout__kv_draws_unless_requests_are_spread_too_far),
        cmocka_unit_test(test_sched_rollout__nobody_goes_where_there_is_no_room),
        cmocka_unit_test(test_sched_rollout__a_group_that_is_long_holds_one_engine_alone),
        cmocka_unit_test(test_sched_rollout__what_has_ended_tells_what_should_begin),
        cmocka_unit_test(test_sched_rollout__every_answer_gets_its_tokens_under_any_policy),
        cmocka_unit_test(test_sched_rollout__an_answer_that_has_no_room_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
