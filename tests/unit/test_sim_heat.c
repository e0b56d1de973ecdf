/* SPDX-License-Identifier: Apache-2.0
 *
 * What forecasts of blocks are scored with, and moves ahead of time, on traces worked by hand.
 */
#include "unit.h"

#include <math.h>

#include "sim/heat_replay.h"
#include "sim/trace_gen.h"

#define S 1000000000ull

/* Requests of one block each, `blocks` of them `every_ns` apart. */
static struct yb_trace *
trace_of(const uint32_t *blocks, uint32_t count, uint64_t every_ns)
{
    char text[4096];
    struct yb_trace_options options = {.format = YB_TRACE_MOONCAKE};
    struct yb_trace *trace = NULL;
    char message[YB_TRACE_MESSAGE_MAX];
    size_t used = 0;
    FILE *file;

    for (uint32_t i = 0; i < count; i++) {
        used += (size_t)snprintf(
            text + used, sizeof(text) - used,
            "{\"timestamp\": %llu, \"input_length\": 512, \"output_length\": 1, \"hash_ids\": "
            "[%u]}\n",
            (unsigned long long)(i * every_ns / 1000000), blocks[i]);
        assert_true(used < sizeof(text));
    }
    file = fmemopen(text, used, "r");
    assert_non_null(file);
    assert_int_equal(yb_trace_read(file, "by hand", &options, &trace, message), YB_OK);
    fclose(file);
    return trace;
}

/* Spans of 4 s: {0 1 2 0} {0 1 3 0} {0 1 4 5}. Wanted: {0 1} of the second, {0 1} of the third.
 * Persistence with a budget of 2 names the latest new ones of each: {1 2}, then {1 3}. The hottest
 * are 0 and, of those that came once, the later one: {0 2}; then {0 1}. */
static void
test_sim_heat__forecasts_are_scored_against_what_came(void **state)
{
    static const uint32_t blocks[] = {0, 1, 2, 0, 0, 1, 3, 0, 0, 1, 4, 5};
    struct yb_trace *trace = trace_of(blocks, 12, S);
    struct yb_heat_score scores[YB_HEAT_FORECASTERS];

    (void)state;
    assert_int_equal(yb_heat_forecast(trace, 4 * S, 2, scores), YB_OK);
    for (uint32_t i = 0; i < YB_HEAT_FORECASTERS; i++) {
        assert_int_equal(scores[i].wanted, 4);
    }
    assert_int_equal(scores[YB_HEAT_ALWAYS_COLD].named, 0);
    assert_true(yb_heat_precision(&scores[YB_HEAT_ALWAYS_COLD]) == 0);
    assert_int_equal(scores[YB_HEAT_PERSISTENCE].named, 4);
    assert_int_equal(scores[YB_HEAT_PERSISTENCE].right, 2); /* 1 and 1. */
    assert_int_equal(scores[YB_HEAT_HEAT].named, 4);
    assert_int_equal(scores[YB_HEAT_HEAT].right, 3); /* 0, then 0 and 1. */
    assert_int_equal(scores[YB_HEAT_ORACLE].named, 4);
    assert_int_equal(scores[YB_HEAT_ORACLE].right, 4);
    assert_true(fabs(yb_heat_recall(&scores[YB_HEAT_HEAT]) - 0.75) < 1e-9);
    yb_trace_destroy(&trace);
}

/* DRAM of two blocks. 0 is hot; 1 .. 4 push it out; it comes back ahead of its next use. */
static void
test_sim_heat__a_hot_block_comes_back_before_it_is_asked_for(void **state)
{
    static const uint32_t blocks[] = {0, 0, 0, 0, 1, 2, 3, 4, 0};
    struct yb_trace *trace = trace_of(blocks, 9, 20 * S);
    struct yb_heat_case one = {
        .horizon_ns = 200 * S, .dram_blocks = 2, .block_bytes = 1e6, .bytes_per_s = 1e9};
    struct yb_heat_result result;

    (void)state;
    assert_int_equal(yb_heat_replay(trace, &one, &result), YB_OK);
    assert_int_equal(result.dram_blocks, 3);
    assert_int_equal(result.object_blocks, 1);
    assert_int_equal(result.waited, 1);
    assert_true(fabs(result.wait_mean_ns * 9 - 1e6) < 2); /* 1 MB at 1 GB/s. */
    one.moves = true;
    assert_int_equal(yb_heat_replay(trace, &one, &result), YB_OK);
    assert_int_equal(result.dram_blocks, 4);
    assert_int_equal(result.object_blocks, 0);
    assert_true(result.moved >= 1);
    assert_true(result.moved_used >= 1);
    assert_true(result.wait_mean_ns == 0);
    yb_trace_destroy(&trace);
}

static void
test_sim_heat__each_block_is_found_once_and_runs_repeat(void **state)
{
    struct yb_trace *trace = NULL;
    struct yb_heat_case one = {.horizon_ns = 60 * S,
                               .dram_blocks = 500,
                               .block_bytes = 1e8,
                               .bytes_per_s = 1e10,
                               .moves = true};
    struct yb_heat_result result;
    struct yb_heat_result again;
    uint64_t found;

    (void)state;
    assert_int_equal(yb_trace_gen("conversation", 400, 1, &trace), YB_OK);
    assert_int_equal(yb_heat_replay(trace, &one, &result), YB_OK);
    assert_int_equal(yb_heat_replay(trace, &one, &again), YB_OK);
    assert_memory_equal(&result, &again, sizeof(result));
    found = trace->reference_count - trace->block_count; /* All but the first of each. */
    assert_int_equal(result.dram_blocks + result.object_blocks, found);
    assert_true(result.moved_used <= result.moved);
    yb_trace_destroy(&trace);
}

static void
test_sim_heat__what_cannot_be_run_is_refused(void **state)
{
    static const uint32_t blocks[] = {0};
    struct yb_trace *trace = trace_of(blocks, 1, S);
    struct yb_heat_score scores[YB_HEAT_FORECASTERS];
    struct yb_heat_case one = {.horizon_ns = S, .block_bytes = 1, .bytes_per_s = 1};
    struct yb_heat_result result;

    (void)state;
    assert_int_equal(yb_heat_forecast(trace, 0, 1, scores), YB_INVALID);
    assert_int_equal(yb_heat_forecast(trace, S, 0, scores), YB_INVALID);
    assert_int_equal(yb_heat_forecast(trace, S, YB_HEAT_BUDGET_MAX + 1, scores), YB_INVALID);
    assert_int_equal(yb_heat_replay(trace, &one, &result), YB_INVALID);
    yb_trace_destroy(&trace);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_heat__forecasts_are_scored_against_what_came),
        cmocka_unit_test(test_sim_heat__a_hot_block_comes_back_before_it_is_asked_for),
        cmocka_unit_test(test_sim_heat__each_block_is_found_once_and_runs_repeat),
        cmocka_unit_test(test_sim_heat__what_cannot_be_run_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
