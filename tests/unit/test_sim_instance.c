/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulated engine, step by step, with times that were worked out by hand.
 */
#include "unit.h"

#include <string.h>

#include "sim/instance.h"

/* A prompt's token takes 1 us. A step of one job with 101 tokens takes 100 + 10 + 101 ns. */
static const struct yb_sched_cost cost = {
    .prefill_token_ns = 1000,
    .step_base_ns = 100,
    .step_sequence_ns = 10,
    .step_token_ns = 1,
    .kv_bytes = 1,
    .layers = 10,
};

struct bench {
    struct yb_instance instance;
    struct yb_tally gaps;
    uint64_t now_ns;
    uint32_t done[16]; /* Requests in the order of their ends. */
    uint32_t done_count;
    uint64_t done_ns[16];
    uint64_t first_ns[16];
};

static void
bench_init(struct bench *bench, struct yb_instance_options options)
{
    memset(bench, 0, sizeof(*bench));
    options.cost = &cost;
    options.gaps = &bench->gaps;
    assert_int_equal(yb_instance_init(&bench->instance, &options), YB_OK);
}

static struct yb_instance_job
job_of(uint32_t request, uint32_t input, uint32_t output)
{
    return (struct yb_instance_job){.request = request,
                                    .input_tokens = input,
                                    .output_tokens = output,
                                    .stays = output > 1,
                                    .ready = true};
}

static bool
settle(struct bench *bench)
{
    bool event;

    assert_int_equal(yb_instance_settle(&bench->instance, bench->now_ns, &event), YB_OK);
    return event;
}

/* Let steps end until `until_ns`, or until there is nothing to do. */
static void
run(struct bench *bench, uint64_t until_ns)
{
    struct yb_instance_outcome outcome;

    (void)settle(bench);
    while (bench->instance.state != YB_INSTANCE_IDLE &&
           bench->instance.state != YB_INSTANCE_STALL && bench->instance.end_ns <= until_ns) {
        bench->now_ns = bench->instance.end_ns;
        yb_instance_end(&bench->instance, bench->now_ns, &outcome);
        if (outcome.prefilled != NULL) {
            bench->first_ns[outcome.prefilled->request] = bench->now_ns;
        }
        for (struct yb_instance_job *job = outcome.done; job != NULL; job = job->next) {
            bench->done[bench->done_count] = job->request;
            bench->done_ns[bench->done_count++] = bench->now_ns;
        }
        (void)settle(bench);
    }
    if (until_ns != UINT64_MAX) {
        bench->now_ns = until_ns;
    }
}

static void
test_sim_instance__a_request_takes_its_prefill_and_its_steps(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(1, 100, 3);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){0});
    yb_instance_add(&bench.instance, &job);
    assert_int_equal(yb_instance_prefill_done_ns(&bench.instance, 0), 100000);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.first_ns[1], 100000);
    assert_int_equal(bench.done_ns[0], 100000 + 211 + 212);
    assert_int_equal(bench.gaps.count, 2);
    assert_int_equal(bench.instance.kv_used, 0);
    assert_int_equal(bench.instance.context_tokens, 0);
    assert_int_equal(bench.instance.computed_tokens, 100);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__what_is_reused_is_not_computed(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(1, 100, 1);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){0});
    job.reused_tokens = 70;
    yb_instance_add(&bench.instance, &job);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.first_ns[1], 30000);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__decode_goes_on_beside_pieces_and_waits_for_whole_prompts(void **state)
{
    static struct bench bench;
    struct yb_instance_job first = job_of(1, 100, 1000);
    struct yb_instance_job second = job_of(2, 100, 1);

    (void)state;
    for (uint32_t chunk = 0; chunk <= 50; chunk += 50) {
        bench_init(&bench, (struct yb_instance_options){.chunk_tokens = chunk});
        first = job_of(1, 100, 1000);
        second = job_of(2, 100, 1);
        yb_instance_add(&bench.instance, &first);
        run(&bench, 100000);
        assert_int_equal(bench.first_ns[1], 100000);
        yb_instance_add(&bench.instance, &second);
        run(&bench, UINT64_MAX);
        assert_int_equal(bench.gaps.count, 999);
        if (chunk == 0) {
            /* The run is cut after its first step; the prompt then takes 100 us, and the next
             * token comes after that and its own step. */
            assert_int_equal(bench.first_ns[2], 100000 + 211 + 100000);
            assert_int_equal(bench.gaps.max, 100000 + 212);
        } else {
            /* Two pieces of 50 us, each with a token of the other: 10 + context. */
            assert_int_equal(bench.first_ns[2], 100000 + 211 + 50000 + 112 + 50000 + 113);
            assert_int_equal(bench.gaps.max, 50000 + 113);
        }
        yb_instance_fini(&bench.instance);
    }
}

static void
test_sim_instance__layers_are_computed_while_others_are_loaded(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(1, 100, 1);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){0});
    job.ready = false;
    job.ready_ns = 150000;
    yb_instance_add(&bench.instance, &job);
    /* It is begun when computing would end as the load does. */
    run(&bench, 149999);
    assert_int_equal(bench.instance.state, YB_INSTANCE_PIECE);
    assert_int_equal(bench.instance.start_ns, 50000);
    yb_instance_ready(&bench.instance, &job, 149999);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.first_ns[1], 150000);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__a_late_load_holds_the_engine_and_then_the_last_layer(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(1, 100, 1);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){0});
    job.ready = false;
    job.ready_ns = 150000;
    yb_instance_add(&bench.instance, &job);
    run(&bench, 160000);
    assert_int_equal(bench.instance.state, YB_INSTANCE_STALL);
    yb_instance_ready(&bench.instance, &job, 160000);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.first_ns[1], 170000);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__without_overlap_computing_begins_when_all_is_there(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(1, 100, 1);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){.no_overlap = true});
    job.ready = false;
    job.ready_ns = 150000;
    yb_instance_add(&bench.instance, &job);
    run(&bench, 149999);
    assert_int_equal(bench.instance.state, YB_INSTANCE_WAIT);
    bench.now_ns = 150000;
    yb_instance_ready(&bench.instance, &job, 150000);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.first_ns[1], 250000);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__who_is_ready_goes_first_unless_in_order(void **state)
{
    static struct bench bench;

    (void)state;
    for (int in_order = 0; in_order <= 1; in_order++) {
        struct yb_instance_job late = job_of(1, 100, 1);
        struct yb_instance_job ready = job_of(2, 100, 1);

        bench_init(&bench, (struct yb_instance_options){.in_order = in_order != 0});
        late.ready = false;
        late.ready_ns = 500000;
        yb_instance_add(&bench.instance, &late);
        yb_instance_add(&bench.instance, &ready);
        run(&bench, 500000 - 1);
        yb_instance_ready(&bench.instance, &late, 500000 - 1);
        run(&bench, UINT64_MAX);
        assert_int_equal(bench.first_ns[1], 500000);
        assert_int_equal(bench.first_ns[2], in_order != 0 ? 600000 : 100000);
        yb_instance_fini(&bench.instance);
    }
}

static void
test_sim_instance__a_job_waits_until_there_is_memory_for_its_whole_answer(void **state)
{
    static struct bench bench;
    struct yb_instance_job jobs[3] = {job_of(0, 100, 20), job_of(1, 100, 20), job_of(2, 100, 20)};

    (void)state;
    bench_init(&bench, (struct yb_instance_options){.kv_tokens = 250});
    for (unsigned i = 0; i < 3; i++) {
        yb_instance_add(&bench.instance, &jobs[i]);
    }
    run(&bench, 200000);
    assert_int_equal(bench.instance.kv_used, 240);
    assert_int_equal(bench.instance.waiting.count, 1);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.done_count, 3);
    assert_true(bench.first_ns[2] >= bench.done_ns[0] + 100000);
    assert_int_equal(bench.instance.kv_used, 0);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__a_job_that_never_fits_runs_alone(void **state)
{
    static struct bench bench;
    struct yb_instance_job job = job_of(0, 100, 20);

    (void)state;
    bench_init(&bench, (struct yb_instance_options){.kv_tokens = 50});
    yb_instance_add(&bench.instance, &job);
    run(&bench, UINT64_MAX);
    assert_int_equal(bench.done_count, 1);
    yb_instance_fini(&bench.instance);
}

static void
test_sim_instance__jobs_that_join_get_all_their_tokens_in_one_batch(void **state)
{
    static struct bench bench;
    struct yb_instance_job jobs[2] = {job_of(0, 100, 11), job_of(1, 200, 6)};

    (void)state;
    bench_init(&bench, (struct yb_instance_options){0});
    jobs[0].stays = jobs[1].stays = false;
    yb_instance_join(&bench.instance, &jobs[0]);
    run(&bench, 300);
    yb_instance_join(&bench.instance, &jobs[1]);
    run(&bench, UINT64_MAX);
    /* Two steps alone (211, 212); five together, of 100 + 20 + 304 and 2 more each; three alone. */
    assert_int_equal(bench.done_count, 2);
    assert_int_equal(bench.done[0], 1);
    assert_int_equal(bench.done_ns[0], 423 + 5 * 424 + 2 * (1 + 2 + 3 + 4));
    assert_int_equal(bench.done_ns[1] - bench.done_ns[0], 3 * 110 + 108 + 109 + 110);
    assert_int_equal(bench.gaps.count, 15);
    yb_instance_fini(&bench.instance);
}

/* Three prompts one after the other: the two that came first wait for the third, and begin their
 * steps with it. With pieces the first gets a token beside each of those of the others. */
static void
test_sim_instance__the_first_step_comes_when_no_whole_prompt_is_before_it(void **state)
{
    static struct bench bench;
    struct yb_instance_job jobs[3];

    (void)state;
    for (uint32_t chunk = 0; chunk <= 100; chunk += 100) {
        bench_init(&bench, (struct yb_instance_options){.chunk_tokens = chunk});
        for (uint32_t i = 0; i < 3; i++) {
            jobs[i] = job_of(i, 100, 50);
            yb_instance_add(&bench.instance, &jobs[i]);
        }
        run(&bench, UINT64_MAX);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(jobs[i].decode_ns, bench.first_ns[chunk == 0 ? 2 : i]);
        }
        yb_instance_fini(&bench.instance);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_instance__a_request_takes_its_prefill_and_its_steps),
        cmocka_unit_test(test_sim_instance__what_is_reused_is_not_computed),
        cmocka_unit_test(
            test_sim_instance__decode_goes_on_beside_pieces_and_waits_for_whole_prompts),
        cmocka_unit_test(test_sim_instance__layers_are_computed_while_others_are_loaded),
        cmocka_unit_test(test_sim_instance__a_late_load_holds_the_engine_and_then_the_last_layer),
        cmocka_unit_test(test_sim_instance__without_overlap_computing_begins_when_all_is_there),
        cmocka_unit_test(test_sim_instance__who_is_ready_goes_first_unless_in_order),
        cmocka_unit_test(test_sim_instance__a_job_waits_until_there_is_memory_for_its_whole_answer),
        cmocka_unit_test(test_sim_instance__a_job_that_never_fits_runs_alone),
        cmocka_unit_test(test_sim_instance__jobs_that_join_get_all_their_tokens_in_one_batch),
        cmocka_unit_test(test_sim_instance__the_first_step_comes_when_no_whole_prompt_is_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
