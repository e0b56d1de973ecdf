/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches of prefill: by numbers that can be worked out by hand, beside a trivial model, and in an
 * engine that runs them.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "sim/batching.h"
#include "sim/trace_internal.h"
#include "yuebing/sched.h"

#define BLOCK 100u

static struct yb_sched_batch_options
usual(void)
{
    return (struct yb_sched_batch_options){
        .block_tokens = BLOCK, .room_blocks = 1000, .load_ratio = 2};
}

/* ---- delay hits ------------------------------------------------------------------------------ */

static void
test_sched_batch__what_one_before_computes_is_not_computed_again(void **state)
{
    const uint64_t a[] = {1, 2, 3};
    const uint64_t b[] = {1, 2, 9};
    const uint64_t c[] = {1, 8};
    const struct yb_sched_waiter queue[] = {
        {.blocks = a, .block_count = 3, .input_tokens = 300},
        {.blocks = b, .block_count = 3, .input_tokens = 300}, /* 200 tokens of a. */
        {.blocks = c, .block_count = 2, .input_tokens = 200}, /* 100, which is not above 100. */
    };
    struct yb_sched_batch_options options = usual();
    enum yb_sched_turn turns[3];
    struct yb_sched_batch batch = yb_sched_batch_form(&options, NULL, 0, queue, 3, turns);

    (void)state;
    assert_int_equal(batch.taken, 2);
    assert_int_equal(batch.deferred, 1);
    assert_int_equal(batch.new_tokens, 500);
    assert_int_equal(turns[0], YB_SCHED_TURN_TAKEN);
    assert_int_equal(turns[1], YB_SCHED_TURN_DEFERRED);
    assert_int_equal(turns[2], YB_SCHED_TURN_TAKEN);
    options.shared_tokens = UINT32_MAX;
    batch = yb_sched_batch_form(&options, NULL, 0, queue, 3, turns);
    assert_int_equal(batch.taken, 3);
    assert_int_equal(batch.new_tokens, 800);
}

static void
test_sched_batch__what_runs_is_waited_for_but_not_what_is_there(void **state)
{
    const uint64_t a[] = {1, 2, 3};
    const uint64_t b[] = {1, 2, 9};
    struct yb_sched_waiter running = {.blocks = a, .block_count = 3, .input_tokens = 300};
    struct yb_sched_waiter waiter = {.blocks = b, .block_count = 3, .input_tokens = 300};
    struct yb_sched_batch_options options = usual();
    enum yb_sched_turn turn;

    (void)state;
    assert_int_equal(yb_sched_batch_form(&options, &running, 1, &waiter, 1, &turn).taken, 0);
    assert_int_equal(turn, YB_SCHED_TURN_DEFERRED);
    waiter.held_blocks = 2; /* And what it shares is there now. */
    assert_int_equal(yb_sched_batch_form(&options, &running, 1, &waiter, 1, &turn).taken, 1);
    assert_int_equal(turn, YB_SCHED_TURN_TAKEN);
}

/* ---- balance --------------------------------------------------------------------------------- */

static void
test_sched_batch__loads_go_with_computing_and_a_bundle_loads_once(void **state)
{
    uint64_t one[10];
    uint64_t other[10];
    struct yb_sched_waiter queue[4] = {
        {.blocks = one, .block_count = 10, .held_blocks = 10, .input_tokens = 1100},
        {.blocks = other, .block_count = 10, .held_blocks = 10, .input_tokens = 1100},
        {.blocks = one, .block_count = 10, .held_blocks = 10, .input_tokens = 1050},
        {.block_count = 0, .input_tokens = 600},
    };
    struct yb_sched_batch_options options = usual();
    enum yb_sched_turn turns[4];
    struct yb_sched_batch batch;

    (void)state;
    for (uint32_t i = 0; i < 10; i++) {
        one[i] = 1 + i;
        other[i] = 101 + i;
    }
    options.requests_max = 3;
    batch = yb_sched_batch_form(&options, NULL, 0, queue, 4, turns);
    /* The second would make it 2000 to load for 200: it is passed over. The third loads nothing
     * more, the fourth computes. 1000 for 100 + 50 + 600. */
    assert_int_equal(turns[0], YB_SCHED_TURN_TAKEN);
    assert_int_equal(turns[1], YB_SCHED_TURN_LEFT);
    assert_int_equal(turns[2], YB_SCHED_TURN_TAKEN);
    assert_int_equal(turns[3], YB_SCHED_TURN_TAKEN);
    assert_int_equal(batch.load_tokens, 1000);
    assert_int_equal(batch.new_tokens, 750);
    assert_false(batch.load_bound);
    options.requests_max = 4; /* With room for it, it fills what is left. */
    batch = yb_sched_batch_form(&options, NULL, 0, queue, 4, turns);
    assert_int_equal(batch.taken, 4);
    assert_int_equal(batch.load_tokens, 2000);
    assert_int_equal(batch.new_tokens, 850);
    assert_true(batch.load_bound);
    options.requests_max = 3;
    options.load_ratio = -1; /* In the order of their coming. */
    batch = yb_sched_batch_form(&options, NULL, 0, queue, 4, turns);
    assert_int_equal(turns[1], YB_SCHED_TURN_TAKEN);
    assert_int_equal(turns[3], YB_SCHED_TURN_LEFT);
}

/* ---- room ------------------------------------------------------------------------------------ */

static void
test_sched_batch__nobody_overtakes_the_first_that_has_no_room(void **state)
{
    const uint64_t a[] = {1, 2, 3, 4};
    struct yb_sched_waiter queue[] = {
        {.blocks = a, .block_count = 4, .input_tokens = 350},
        {.block_count = 0, .input_tokens = 100},
    };
    struct yb_sched_batch_options options = usual();
    enum yb_sched_turn turns[2];

    (void)state;
    options.room_blocks = 3; /* 350 tokens are four blocks. */
    assert_int_equal(yb_sched_batch_form(&options, NULL, 0, queue, 2, turns).taken, 0);
    assert_int_equal(turns[1], YB_SCHED_TURN_LEFT);
    queue[0].held_blocks = queue[0].device_blocks = queue[0].used_blocks = 2;
    assert_int_equal(yb_sched_batch_form(&options, NULL, 0, queue, 2, turns).taken, 2);
    options.room_blocks = 2;
    assert_int_equal(yb_sched_batch_form(&options, NULL, 0, queue, 2, turns).taken, 1);
    options.room_blocks = 3;
    options.new_tokens = 249; /* 150 and 100. */
    assert_int_equal(yb_sched_batch_form(&options, NULL, 0, queue, 2, turns).taken, 1);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void
test_sched_batch__layers_overlap_and_steps_fill_what_is_left(void **state)
{
    const struct yb_sched_cost cost = {.layers = 10, .step_base_ns = 250};

    (void)state;
    assert_true(fabs(yb_sched_batch_ns(&cost, 1000, 100) - 1010) < 1e-9);
    assert_true(fabs(yb_sched_batch_ns(&cost, 100, 1000) - 1010) < 1e-9);
    assert_int_equal(yb_sched_batch_bubble(&cost, 1000, 100, 1, 0), 4); /* 910: 3.64 of them. */
    assert_int_equal(yb_sched_batch_bubble(&cost, 950, 100, 1, 0), 3);  /* 860: 3.44. */
    assert_int_equal(yb_sched_batch_bubble(&cost, 1000, 100, 0, 0), 0);
    assert_int_equal(yb_sched_batch_bubble(&cost, 0, 1000, 1, 0), 0);
}

/* ---- beside a model -------------------------------------------------------------------------- */

#define DOCUMENTS 6u
#define LENGTH    5u
#define WAITERS   24u

struct library {
    uint64_t blocks[DOCUMENTS][LENGTH];
    uint32_t held[DOCUMENTS];
    uint32_t device[DOCUMENTS];
    uint32_t used[DOCUMENTS];
};

/* What a batch loads, computes and takes of room: each document once, each question by itself. */
static void
expect_sums(const struct library *library, const uint32_t *documents,
            const struct yb_sched_waiter *queue, const enum yb_sched_turn *turns,
            const struct yb_sched_batch *batch, uint64_t room)
{
    bool taken[DOCUMENTS] = {false};
    bool computed[DOCUMENTS] = {false};
    uint64_t load_tokens = 0;
    uint64_t new_tokens = 0;
    uint64_t blocks = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < WAITERS; i++) {
        uint32_t d = documents[i];

        if (turns[i] != YB_SCHED_TURN_TAKEN) {
            continue;
        }
        count++;
        new_tokens += queue[i].input_tokens - library->held[d] * BLOCK;
        blocks += (queue[i].input_tokens + BLOCK - 1) / BLOCK - library->held[d];
        if (!taken[d]) {
            load_tokens += (library->held[d] - library->device[d]) * BLOCK;
            blocks += library->held[d] - library->used[d];
        }
        taken[d] = true;
        assert_false(computed[d]); /* What is missing of a document is computed once. */
        computed[d] = library->held[d] + 1 < LENGTH;
    }
    assert_int_equal(count, batch->taken);
    assert_int_equal(load_tokens, batch->load_tokens);
    assert_int_equal(new_tokens, batch->new_tokens);
    assert_true(blocks <= room);
}

static void
test_sched_batch__sums_are_those_of_a_model(void **state)
{
    uint64_t random = unit_seed("batch");
    uint32_t rounds = unit_long() ? 20000 : 2000;

    (void)state;
    for (uint32_t round = 0; round < rounds; round++) {
        struct library library;
        struct yb_sched_waiter queue[WAITERS];
        uint32_t documents[WAITERS];
        enum yb_sched_turn turns[WAITERS];
        struct yb_sched_batch_options options = usual();
        struct yb_sched_batch batch;

        for (uint32_t d = 0; d < DOCUMENTS; d++) {
            for (uint32_t i = 0; i < LENGTH; i++) {
                library.blocks[d][i] = d * LENGTH + i + 1;
            }
            library.held[d] = (uint32_t)(unit_random(&random) % (LENGTH + 1));
            library.device[d] = (uint32_t)(unit_random(&random) % (library.held[d] + 1));
            library.used[d] = (uint32_t)(unit_random(&random) % (library.device[d] + 1));
        }
        for (uint32_t i = 0; i < WAITERS; i++) {
            uint32_t d = documents[i] = (uint32_t)(unit_random(&random) % DOCUMENTS);

            queue[i] = (struct yb_sched_waiter){
                .blocks = library.blocks[d],
                .block_count = LENGTH,
                .held_blocks = library.held[d],
                .device_blocks = library.device[d],
                .used_blocks = library.used[d],
                .input_tokens = LENGTH * BLOCK + 1 + (uint32_t)(unit_random(&random) % 300)};
        }
        options.room_blocks = unit_random(&random) % 60;
        options.load_ratio = round % 2 == 0 ? 1 : -1;
        batch = yb_sched_batch_form(&options, NULL, 0, queue, WAITERS, turns);
        expect_sums(&library, documents, queue, turns, &batch, options.room_blocks);
    }
}

/* ---- an engine ------------------------------------------------------------------------------- */

/* A millisecond to compute a token, and one to load it; steps of 100 ms. */
static const struct yb_sched_cost slow = {
    .prefill_token_ns = 1e6, .kv_bytes = 1000, .layers = 10, .step_base_ns = 1e8};

static struct yb_batching_options
engine(void)
{
    return (struct yb_batching_options){
        .cost = &slow, .load_bytes_per_s = 1e6, .device_tokens = 100000, .batch_requests = 8};
}

/* Questions of 100 tokens about documents of 1000, all at time 0. */
static struct yb_trace *
questions(const uint32_t *documents, const uint32_t *answers, uint32_t count)
{
    struct yb_trace_builder builder;
    struct yb_trace *trace;

    assert_int_equal(yb_trace_builder_init(&builder), YB_OK);
    builder.trace->block_tokens = BLOCK;
    for (uint32_t i = 0; i < count; i++) {
        struct yb_trace_request request = {.input_tokens = 1100, .output_tokens = answers[i]};

        assert_int_equal(yb_trace_builder_request(&builder, &request), YB_OK);
        for (uint32_t b = 0; b < 11; b++) {
            uint64_t name = b < 10 ? documents[i] * 100ull + b : 10000 + i;

            assert_int_equal(yb_trace_builder_block(&builder, name), YB_OK);
        }
    }
    trace = yb_trace_builder_end(&builder);
    yb_trace_builder_fini(&builder);
    return trace;
}

static struct yb_batching_result
run(const uint32_t *documents, const uint32_t *answers, uint32_t count,
    const struct yb_batching_options *options)
{
    struct yb_trace *trace = questions(documents, answers, count);
    struct yb_batching_result result;

    assert_int_equal(yb_batching_run(trace, options, &result), YB_OK);
    yb_trace_destroy(&trace);
    return result;
}

static void
expect_s(const struct yb_batching_result *result, uint32_t count, double seconds)
{
    assert_true(fabs(count / result->requests_per_s - seconds) < 1e-6);
}

static void
test_sched_batch__an_engine_that_defers_computes_a_document_once(void **state)
{
    const uint32_t documents[] = {1, 1};
    const uint32_t answers[] = {1, 1};
    struct yb_batching_options options = engine();
    struct yb_batching_result result = run(documents, answers, 2, &options);

    (void)state;
    expect_s(&result, 2, 1.2); /* 1100 tokens, and 100 in the next round. */
    assert_int_equal(result.computed_tokens, 1200);
    assert_int_equal(result.twice_tokens, 0);
    assert_int_equal(result.deferrals, 1);
    options.no_deferral = true;
    result = run(documents, answers, 2, &options);
    expect_s(&result, 2, 2.2);
    assert_int_equal(result.twice_tokens, 1000);
    assert_int_equal(result.missed, 1);
}

static void
test_sched_batch__an_engine_loads_what_has_left_its_devices(void **state)
{
    const uint32_t documents[] = {1, 2, 1};
    const uint32_t answers[] = {1, 1, 1};
    struct yb_batching_options options = engine();
    struct yb_batching_result result;

    (void)state;
    options.no_deferral = true; /* Who waits for the first would come before the second. */
    options.device_tokens = 11 * BLOCK;
    result = run(documents, answers, 3, &options);
    /* 1.1 s, 1.1 s, and a load of 1 s beside 0.1 s of computing, of which a layer is left. */
    expect_s(&result, 3, 1.1 + 1.1 + 1.01);
    assert_int_equal(result.loaded_tokens, 1000);
    options.device_tokens = 10 * BLOCK;
    {
        struct yb_trace *trace = questions(documents, answers, 3);

        assert_int_equal(yb_batching_run(trace, &options, &result), YB_INVALID);
        yb_trace_destroy(&trace);
    }
}

static void
test_sched_batch__an_engine_decodes_while_it_loads(void **state)
{
    const uint32_t documents[] = {1, 2, 3, 1};
    const uint32_t answers[] = {1, 1, 14, 1};
    struct yb_batching_options options = engine();
    struct yb_batching_result with;
    struct yb_batching_result without;

    (void)state;
    options.no_deferral = true;
    options.device_tokens = 22 * BLOCK; /* Of which a running request keeps 11. */
    options.batch_tokens = 1100;        /* One document at a time. */
    with = run(documents, answers, 4, &options);
    options.no_bubble = true;
    without = run(documents, answers, 4, &options);
    /* Three are computed; while the first is loaded again there is room for nine steps of 100 ms.
     * Of the 13 that the third has to make four are left, or all. */
    assert_int_equal(with.bubble_steps, 9);
    expect_s(&with, 4, 3 * 1.1 + 1.01 + 0.4);
    expect_s(&without, 4, 3 * 1.1 + 1.01 + 1.3);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_batch__what_one_before_computes_is_not_computed_again),
        cmocka_unit_test(test_sched_batch__what_runs_is_waited_for_but_not_what_is_there),
        cmocka_unit_test(test_sched_batch__loads_go_with_computing_and_a_bundle_loads_once),
        cmocka_unit_test(test_sched_batch__nobody_overtakes_the_first_that_has_no_room),
        cmocka_unit_test(test_sched_batch__layers_overlap_and_steps_fill_what_is_left),
        cmocka_unit_test(test_sched_batch__sums_are_those_of_a_model),
        cmocka_unit_test(test_sched_batch__an_engine_that_defers_computes_a_document_once),
        cmocka_unit_test(test_sched_batch__an_engine_loads_what_has_left_its_devices),
        cmocka_unit_test(test_sched_batch__an_engine_decodes_while_it_loads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
