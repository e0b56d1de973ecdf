/* SPDX-License-Identifier: Apache-2.0
 *
 * Admission: who is let in, by steps and prefills that can be worked out by hand.
 *
 * One place prefills, two decode. A step takes 26.8 ms, 0.15 ms for each answer and 33 ns for each
 * token before them; a prompt of 8193 tokens 0.94 s.
 */
#include "sched_ground.h"

#define PROMPT_BLOCKS 16u
#define PREFILLS      0u
#define FIRST_DECODE  1u
#define PLACES        3u

static void
open_pools(struct ground *ground, const char *admission, uint64_t tpot_slo_ns)
{
    struct yb_sched_options options = ground_options("least-load");

    options.admission = admission;
    options.mode = YB_SCHED_MODE_DISAGGREGATED;
    options.tpot_slo_ns = tpot_slo_ns;
    ground_open(ground, &options, PLACES);
    for (uint32_t i = 0; i < PLACES; i++) {
        struct yb_sched_instance instance = ground_instance(i);

        instance.roles = i == PREFILLS ? YB_SCHED_PREFILL : YB_SCHED_DECODE;
        assert_int_equal(yb_sched_set_instance(ground->sched, i, &instance), YB_OK);
    }
}

/* A place says that it decodes so many answers, of no length. */
static void
report_running(struct ground *ground, uint32_t place, uint32_t running)
{
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report),
        .sequence = ++ground->requests,
        .at_ns = ground->now_ns,
        .running = running,
    };

    assert_int_equal(yb_sched_report(ground->sched, place, &report), YB_OK);
}

/* Return why the next prompt is not let in. */
static enum yb_sched_reason
reason_of(struct ground *ground)
{
    struct yb_sched_request request = ground_request(ground, PROMPT_BLOCKS);
    struct yb_sched_decision decision = ground_decide(ground, &request);

    assert_int_equal(decision.accepted, decision.reason == YB_SCHED_REASON_NONE);
    assert_int_equal(decision.accepted ? 0 : decision.instruction_count, 0);
    return (enum yb_sched_reason)decision.reason;
}

/* Let a prompt of its own in, and return the number of its decision. */
static uint64_t
let_in(struct ground *ground)
{
    struct yb_sched_request request = ground_request(ground, PROMPT_BLOCKS);
    struct yb_sched_decision decision;

    for (uint32_t i = 0; i < PROMPT_BLOCKS; i++) {
        ground->blocks[i] = 1000 * ground->requests + i;
    }
    decision = ground_decide(ground, &request);
    assert_true(decision.accepted);
    assert_int_equal(yb_sched_commit(ground->sched, &request, &decision, ground->now_ns), YB_OK);
    return decision.number;
}

/* ---- the first token ------------------------------------------------------------------------- */

static void
test_sched_admit__a_first_token_that_comes_too_late_is_refused_by_all_but_none(void **state)
{
    static const char *const names[] = {"none", "late", "early", "early-predicted"};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        enum yb_sched_reason late = i == 0 ? YB_SCHED_REASON_NONE : YB_SCHED_REASON_TTFT;
        struct ground ground;
        struct yb_sched_request request;

        open_pools(&ground, names[i], 0);
        request = ground_request(&ground, PROMPT_BLOCKS);
        request.ttft_slo_ns = 1000 * GROUND_MS;
        assert_int_equal(ground_decide(&ground, &request).reason, YB_SCHED_REASON_NONE);
        ground_busy(&ground, PREFILLS, 100 * GROUND_MS); /* 0.1 + 0.94 s */
        assert_int_equal(ground_decide(&ground, &request).reason, late);
        request.arrival_ns = ground.now_ns - 500 * GROUND_MS; /* What was waited counts. */
        ground_busy(&ground, PREFILLS, 0);
        assert_int_equal(ground_decide(&ground, &request).reason, late);
        ground_close(&ground);
    }
}

/* ---- decode ---------------------------------------------------------------------------------- */

static void
test_sched_admit__late_lets_in_whatever_decode_is_loaded_with(void **state)
{
    struct ground ground;

    (void)state;
    open_pools(&ground, "late", 30 * GROUND_MS);
    report_running(&ground, FIRST_DECODE, 200);
    report_running(&ground, FIRST_DECODE + 1, 200);
    assert_int_equal(reason_of(&ground), YB_SCHED_REASON_NONE);
    ground_close(&ground);
}

/* 21 answers at each place make a step of 29.95 ms, 22 one of 30.1 ms; 43 at one of the two make a
 * mean of 30.025 ms. */
static void
test_sched_admit__early_counts_the_mean_step_of_now(void **state)
{
    struct ground ground;

    (void)state;
    open_pools(&ground, "early", 30 * GROUND_MS);
    report_running(&ground, FIRST_DECODE, 21);
    report_running(&ground, FIRST_DECODE + 1, 21);
    assert_int_equal(reason_of(&ground), YB_SCHED_REASON_NONE);
    report_running(&ground, FIRST_DECODE + 1, 22);
    assert_int_equal(reason_of(&ground), YB_SCHED_REASON_LOAD);
    report_running(&ground, FIRST_DECODE, 0);
    report_running(&ground, FIRST_DECODE + 1, 42);
    assert_int_equal(reason_of(&ground), YB_SCHED_REASON_NONE);
    report_running(&ground, FIRST_DECODE + 1, 43);
    assert_int_equal(reason_of(&ground), YB_SCHED_REASON_LOAD);
    ground_close(&ground);
}

static void
test_sched_admit__without_an_objective_decode_is_never_full(void **state)
{
    static const char *const names[] = {"early", "early-predicted"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct ground ground;

        open_pools(&ground, names[i], 0);
        report_running(&ground, FIRST_DECODE, 100000);
        report_running(&ground, FIRST_DECODE + 1, 100000);
        assert_int_equal(reason_of(&ground), YB_SCHED_REASON_NONE);
        ground_close(&ground);
    }
}

/* Each of those that are in prefill makes a step of the two places 0.5 x (0.15 + 0.27) = 0.21 ms
 * longer when it is decoded: with five of them it takes 27.85 ms, with six 28.06 ms. `early` sees
 * nobody in decode. */
static void
test_sched_admit__early_predicted_counts_those_that_will_have_been_prefilled(void **state)
{
    static const char *const names[] = {"early", "early-predicted"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct ground ground;

        open_pools(&ground, names[i], 28 * GROUND_MS);
        for (uint32_t j = 0; j < 5; j++) {
            (void)let_in(&ground);
        }
        assert_int_equal(reason_of(&ground), YB_SCHED_REASON_NONE);
        (void)let_in(&ground);
        assert_int_equal(reason_of(&ground), i == 0 ? YB_SCHED_REASON_NONE : YB_SCHED_REASON_LOAD);
        ground_close(&ground);
    }
}

/* Let prompts in, and be done with their prefills a second later. */
static void
prefill_all(struct ground *ground, uint32_t count, uint64_t *numbers_out)
{
    for (uint32_t i = 0; i < count; i++) {
        numbers_out[i] = let_in(ground);
    }
    ground->now_ns += GROUND_S;
    for (uint32_t i = 0; i < count; i++) {
        yb_sched_prefilled(ground->sched, numbers_out[i], ground->now_ns);
    }
}

/* Decodes have lasted 1 s so far. So of those that are decoded now nobody will be left when a
 * prompt that waits for 20 s has been prefilled, whatever is reported of now. */
static void
test_sched_admit__early_predicted_counts_nobody_who_will_have_ended(void **state)
{
    static const char *const names[] = {"early", "early-predicted"};

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct ground ground;
        uint64_t numbers[6];

        open_pools(&ground, names[i], 28 * GROUND_MS);
        for (uint32_t j = 0; j < 6; j++) {
            prefill_all(&ground, 1, numbers);
            ground.now_ns += GROUND_S;
            yb_sched_ended(ground.sched, numbers[0], ground.now_ns);
        }
        prefill_all(&ground, 6, numbers);
        report_running(&ground, FIRST_DECODE, 10);
        report_running(&ground, FIRST_DECODE + 1, 10);
        ground_busy(&ground, PREFILLS, 20 * GROUND_S);
        assert_int_equal(reason_of(&ground), i == 0 ? YB_SCHED_REASON_LOAD : YB_SCHED_REASON_NONE);
        ground_close(&ground);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_sched_admit__a_first_token_that_comes_too_late_is_refused_by_all_but_none),
        cmocka_unit_test(test_sched_admit__late_lets_in_whatever_decode_is_loaded_with),
        cmocka_unit_test(test_sched_admit__early_counts_the_mean_step_of_now),
        cmocka_unit_test(test_sched_admit__without_an_objective_decode_is_never_full),
        cmocka_unit_test(
            test_sched_admit__early_predicted_counts_those_that_will_have_been_prefilled),
        cmocka_unit_test(test_sched_admit__early_predicted_counts_nobody_who_will_have_ended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
