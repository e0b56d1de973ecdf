/* SPDX-License-Identifier: Apache-2.0
 *
 * Modes: what each could serve, by numbers that can be worked out by hand; turns; and how many
 * decodes are expected.
 */
#include "sched_ground.h"

#include <math.h>

#include "sched/decoding.h"

/* ---- turns ----------------------------------------------------------------------------------- */

static void
test_sched_modes__a_window_keeps_both_objectives_and_the_room(void **state)
{
    struct yb_sched_slice slice = {
        .window_ns = 1e9, .waiting_ns = 0.5e9, .saved_ns = 2e9, .decoding = 3, .room_tokens = 100};

    (void)state;
    /* 1 s done, 0.5 s waiting, 0.5 s of its own: 2 s. */
    assert_int_equal(yb_sched_slice_check(&slice, 0.5e9, 100, 2e9), YB_SCHED_REASON_NONE);
    assert_int_equal(yb_sched_slice_check(&slice, 0.5e9, 100, 1.99e9), YB_SCHED_REASON_TTFT);
    assert_int_equal(yb_sched_slice_check(&slice, 0.5e9, 101, 2e9), YB_SCHED_REASON_NO_DECODE);
    slice.saved_ns = 1.9e9;
    assert_int_equal(yb_sched_slice_check(&slice, 0.5e9, 100, 2e9), YB_SCHED_REASON_TPOT);
    slice.decoding = 0; /* Nobody waits. */
    assert_int_equal(yb_sched_slice_check(&slice, 0.5e9, 100, 2e9), YB_SCHED_REASON_NONE);
}

/* Decide on prompts of 8192 tokens, 0.94 s each, and carry it out; returns who prefills. */
static uint32_t
ask(struct ground *ground)
{
    struct yb_sched_request request = ground_request(ground, 16);
    struct yb_sched_decision decision;

    for (uint32_t i = 0; i < 16; i++) {
        ground->blocks[i] = 100 * ground->requests + i; /* Its own. */
    }
    decision = ground_decide(ground, &request);
    assert_true(decision.accepted);
    assert_int_equal(yb_sched_commit(ground->sched, &request, &decision, ground->now_ns), YB_OK);
    yb_sched_prefilled(ground->sched, decision.number, ground->now_ns); /* And it was quick. */
    return decision.prefill;
}

static void
test_sched_modes__rolling_fills_one_window_after_the_other(void **state)
{
    struct yb_sched_options options = ground_options("rolling");
    struct ground ground;

    (void)state;
    options.mode = YB_SCHED_MODE_TIME_SLICED;
    options.ttft_slo_ns = 3 * GROUND_S; /* Three of them. */
    ground_open(&ground, &options, 3);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(ask(&ground), i / 3);
    }
    ground_close(&ground);
}

static void
test_sched_modes__rolling_passes_who_is_not_ahead_with_its_answers(void **state)
{
    struct yb_sched_options options = ground_options("rolling");
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report), .sequence = 1, .running = 4, .saved_ns = 0.5e9};
    struct ground ground;

    (void)state;
    options.mode = YB_SCHED_MODE_TIME_SLICED;
    options.ttft_slo_ns = 3 * GROUND_S;
    ground_open(&ground, &options, 2);
    report.at_ns = ground.now_ns;
    assert_int_equal(yb_sched_report(ground.sched, 0, &report), YB_OK);
    assert_int_equal(ask(&ground), 1);
    ground_close(&ground);
    /* Who does not say so looks after its answers itself. */
    report.saved_ns = 0;
    ground_open(&ground, &options, 2);
    assert_int_equal(yb_sched_report(ground.sched, 0, &report), YB_OK);
    assert_int_equal(ask(&ground), 0);
    ground_close(&ground);
}

/* ---- what a mode serves ---------------------------------------------------------------------- */

/* A prompt of 1000 tokens takes 100 ms, a step 10 ms whatever is in it; ten requests have room; KV
 * of a prompt is 1 MB. */
static const struct yb_sched_cost even_cost = {
    .prefill_token_ns = 1e5,
    .step_base_ns = 10e6,
    .kv_bytes = 1000,
    .kv_tokens_max = 11010,
    .layers = 1,
};

/* 100 steps after the first token; half of the time can be used for prefills. */
static const struct yb_sched_demand even_demand = {
    .input_tokens = 1000,
    .output_tokens = 101,
    .ttft_slo_ns = 460.5170185988092e6,
    .tpot_slo_ns = 20e6,
};

static double
serves(enum yb_sched_mode mode, double tpot_slo_ns, double link_rate)
{
    struct yb_sched_demand demand = even_demand;

    demand.tpot_slo_ns = tpot_slo_ns;
    return yb_sched_mode_serves(&even_cost, &demand, mode, 3, link_rate).requests_per_s;
}

static void
test_sched_modes__places_for_each_are_bound_by_the_slowest_of_three(void **state)
{
    struct yb_sched_serving serving =
        yb_sched_mode_serves(&even_cost, &even_demand, YB_SCHED_MODE_DISAGGREGATED, 3, 1e12);

    (void)state;
    /* A place prefills 5 a second, decodes 10 a second: two prefill, one decodes. */
    assert_true(fabs(serving.requests_per_s - 10) < 1e-6);
    assert_int_equal(serving.prefill_places, 2);
    assert_true(fabs(serving.batch - 10) < 1e-6);
    /* 4 MB a second are 4 prompts a second. */
    assert_true(fabs(serves(YB_SCHED_MODE_DISAGGREGATED, 20e6, 4e6) - 4) < 1e-6);
    /* Steps take 10 ms: never in 9. */
    assert_true(serves(YB_SCHED_MODE_DISAGGREGATED, 9e6, 1e12) <= 0);
}

static void
test_sched_modes__who_takes_turns_needs_no_link_but_steps_that_leave_time(void **state)
{
    (void)state;
    /* 5 a second each take half of the time; steps of 10 ms are then 20 ms apart. */
    assert_true(fabs(serves(YB_SCHED_MODE_TIME_SLICED, 20e6, 0) - 15) < 1e-6);
    /* 12 (1 - r / 10) = 10: r = 5 / 3. */
    assert_true(fabs(serves(YB_SCHED_MODE_TIME_SLICED, 12e6, 0) - 5) < 1e-6);
    /* A piece of 512 tokens takes 51.2 ms: no step with one is in time. */
    assert_true(serves(YB_SCHED_MODE_COUPLED, 20e6, 0) <= 0);
}

static void
test_sched_modes__the_crossover_is_where_the_link_carries_what_turns_serve(void **state)
{
    struct yb_sched_demand demand = even_demand;
    double rate;

    (void)state;
    assert_true(isinf(yb_sched_mode_crossover(&even_cost, &demand, 3))); /* 10 against 15. */
    demand.tpot_slo_ns = 12e6;                                           /* 10 against 5. */
    rate = yb_sched_mode_crossover(&even_cost, &demand, 3);
    assert_true(fabs(rate - 5e6) < 1);
    assert_int_equal(yb_sched_mode_choose(&even_cost, &demand, 3, 0.9 * rate),
                     YB_SCHED_MODE_TIME_SLICED);
    assert_int_equal(yb_sched_mode_choose(&even_cost, &demand, 3, 1.1 * rate),
                     YB_SCHED_MODE_DISAGGREGATED);
}

/* ---- decodes that are expected --------------------------------------------------------------- */

static void
test_sched_modes__decodes_last_as_long_as_those_that_ended_did(void **state)
{
    struct yb_sched_decoding decoding = {0};
    struct yb_sched_decoding_load load;

    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        yb_sched_decoding_add(&decoding, GROUND_S, 100);
    }
    load = yb_sched_decoding_at(&decoding, GROUND_S, 2 * GROUND_S);
    assert_true(fabs(load.requests - 10) < 1e-9);
    assert_true(fabs(load.context_tokens - 1000) < 1e-9);
    yb_sched_decoding_drop(&decoding, GROUND_S, 100);
    for (uint32_t i = 0; i < 4; i++) { /* Half last 1 s, half 100 s. */
        yb_sched_decoding_ended(&decoding, GROUND_S);
        yb_sched_decoding_ended(&decoding, 100 * GROUND_S);
    }
    load = yb_sched_decoding_at(&decoding, GROUND_S, 11 * GROUND_S);
    assert_true(fabs(load.requests - 4.5) < 1e-9);
    /* Ten seconds later none of the nine has ended: they are of the other half. */
    load = yb_sched_decoding_at(&decoding, 11 * GROUND_S, 12 * GROUND_S);
    assert_true(fabs(load.requests - 9) < 1e-9);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_modes__a_window_keeps_both_objectives_and_the_room),
        cmocka_unit_test(test_sched_modes__rolling_fills_one_window_after_the_other),
        cmocka_unit_test(test_sched_modes__rolling_passes_who_is_not_ahead_with_its_answers),
        cmocka_unit_test(test_sched_modes__places_for_each_are_bound_by_the_slowest_of_three),
        cmocka_unit_test(test_sched_modes__who_takes_turns_needs_no_link_but_steps_that_leave_time),
        cmocka_unit_test(
            test_sched_modes__the_crossover_is_where_the_link_carries_what_turns_serve),
        cmocka_unit_test(test_sched_modes__decodes_last_as_long_as_those_that_ended_did),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
