/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefetch window, against worlds with a best size, and heat, against counts.
 */
#include "sched_ground.h"

#include <math.h>

/* ---- the window ------------------------------------------------------------------------------ */

/* A world: too small a window waits for what comes late, too large a one for what it did not
 * need. */
struct world {
    uint64_t random;
    double best;
    double latency_ns;
    double step_ns;
};

static double
noise(struct world *world)
{
    return (double)(unit_random(&world->random) % 10001) / 10000;
}

static double
ttft_of(struct world *world, uint32_t size)
{
    double off = (double)size / world->best;
    double cost = off < 1 ? 4 * (1 - off) : 0.25 * (off - 1);

    return 100e6 * (1 + cost) * (0.9 + 0.2 * noise(world));
}

static struct yb_sched_window
run(struct world *world, struct yb_sched_window window, uint32_t requests)
{
    for (uint32_t i = 0; i < requests; i++) {
        window = yb_sched_window_next(&window, ttft_of(world, window.size), world->latency_ns,
                                      world->step_ns);
    }
    return window;
}

static void
test_sched_heat__the_window_starts_at_one_and_a_half_latencies(void **state)
{
    struct yb_sched_window_limits limits = {0};

    (void)state;
    /* 20 ms / 5 ms = 4 steps, and half as many again. */
    assert_int_equal(yb_sched_window_start(limits, 20e6, 5e6).size, 6);
    assert_int_equal(yb_sched_window_start(limits, 21e6, 5e6).size, 8);
    assert_int_equal(yb_sched_window_start(limits, 1, 5e6).size, 2);
    limits.most = 5;
    assert_int_equal(yb_sched_window_start(limits, 20e6, 5e6).size, 5);
    limits.least = 5;
    assert_int_equal(yb_sched_window_start(limits, 1, 5e6).size, 5);
}

static void
test_sched_heat__the_window_finds_the_best_size_from_either_side(void **state)
{
    static const double bests[] = {3, 12, 24, 40, 60};
    uint64_t seed = unit_seed("sched_heat window");

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct yb_sched_window_limits limits = {0};
        struct world world = {.random = seed + i,
                              .best = bests[i],
                              .latency_ns = 80e6,
                              .step_ns = 5e6}; /* It starts at 24. */
        struct yb_sched_window window =
            run(&world, yb_sched_window_start(limits, world.latency_ns, world.step_ns), 6000);
        double sum = 0;
        double best_sum = 0;

        for (uint32_t k = 0; k < 2000; k++) {
            window = yb_sched_window_next(&window, ttft_of(&world, window.size), 80e6, 5e6);
            sum += ttft_of(&world, window.size);
            best_sum += ttft_of(&world, (uint32_t)world.best);
        }
        if (sum >= best_sum * 1.10) {
            print_error("best %.0f: size %u, %.3f times the best\n", world.best, window.size,
                        sum / best_sum);
            fail();
        }
    }
}

static void
test_sched_heat__the_window_follows_a_latency_within_two_hundred_requests(void **state)
{
    struct yb_sched_window_limits limits = {0};
    struct world world = {.best = 6, .latency_ns = 20e6, .step_ns = 5e6};
    struct yb_sched_window window;

    (void)state;
    world.random = unit_seed("sched_heat latency");
    window = run(&world, yb_sched_window_start(limits, 20e6, 5e6), 2000);
    world.latency_ns = 80e6;
    world.best = 24;
    window = run(&world, window, 200);
    assert_in_range(window.size, 16, 36);
    world.latency_ns = 20e6;
    world.best = 6;
    window = run(&world, window, 200);
    assert_in_range(window.size, 4, 10);
}

/* Times become twice as long while it holds still: it grows in proportion, and the whole next round
 * is at that size, as nothing is known yet of any in the new world. */
static void
test_sched_heat__what_got_worse_is_met_with_more_for_a_whole_round(void **state)
{
    struct yb_sched_window_limits limits = {0};
    struct yb_sched_window window = yb_sched_window_start(limits, 80e6, 5e6);
    uint32_t held;

    (void)state;
    while (window.holding == 0) {
        window = yb_sched_window_next(&window, 100e6, 80e6, 5e6);
    }
    held = window.size;
    while (window.size == held) {
        window = yb_sched_window_next(&window, 200e6, 80e6, 5e6);
    }
    for (uint32_t i = 0; i < YB_SCHED_WINDOW_SAMPLES; i++) {
        assert_int_equal(window.size, 2 * held);
        window = yb_sched_window_next(&window, 150e6, 80e6, 5e6);
    }
    assert_true(window.size > 2 * held);
}

/* A size with a better P95 and a worse P99 is not taken. */
static void
test_sched_heat__a_worse_p99_keeps_a_size_from_being_taken(void **state)
{
    struct yb_sched_window_limits limits = {0};
    struct yb_sched_window window = yb_sched_window_start(limits, 80e6, 5e6);
    uint32_t first = window.size;

    (void)state;
    for (uint32_t i = 0; i < 4000; i++) {
        /* Smaller windows: faster, but for two in a hundred. */
        double ttft_ns = window.size >= first ? 100e6 : i % 50 == 7 ? 400e6 : 80e6;

        ttft_ns = i % 100 == 3 ? 500e6 : ttft_ns; /* The longest is the same. */
        window = yb_sched_window_next(&window, ttft_ns, 80e6, 5e6);
        assert_true(window.best >= first);
    }
    assert_int_equal(window.best, first);
}

static void
test_sched_heat__the_window_stays_within_its_limits_whatever_comes(void **state)
{
    struct yb_sched_window_limits limits = {.least = 3, .most = 50};
    struct yb_sched_window window = yb_sched_window_start(limits, 80e6, 5e6);
    uint64_t random = unit_seed("sched_heat limits");

    (void)state;
    for (uint32_t i = 0; i < 50000; i++) {
        static const double odd[] = {0, -1, NAN, INFINITY, 1e300, 1};
        struct yb_sched_window before = window;
        double ttft_ns = exp((double)(unit_random(&random) % 4000) / 100);

        ttft_ns = i % 7 == 0 ? odd[unit_random(&random) % 6] : ttft_ns;
        window = yb_sched_window_next(&before, ttft_ns, i % 11 == 0 ? odd[i % 6] : 80e6, 5e6);
        assert_in_range(window.size, 3, 50);
        assert_true(window.count < YB_SCHED_WINDOW_SAMPLES);
        if (i % 100 == 0) { /* Pure: the same again. */
            struct yb_sched_window again =
                yb_sched_window_next(&before, ttft_ns, i % 11 == 0 ? odd[i % 6] : 80e6, 5e6);

            assert_int_equal(again.size, window.size);
            assert_int_equal(again.count, window.count);
        }
    }
}

/* ---- heat ------------------------------------------------------------------------------------ */

#define HALF_LIFE (60 * GROUND_S)

static struct yb_sched_heat *
heat_with(uint32_t blocks)
{
    struct yb_sched_heat *heat = NULL;

    assert_int_equal(yb_sched_heat_create(blocks, HALF_LIFE, &heat), YB_OK);
    return heat;
}

static void
expect_near(double value, double expected)
{
    assert_true(fabs(value - expected) <= 1e-3 * fabs(expected) + 1e-9);
}

static void
test_sched_heat__heat_is_the_count_and_halves_in_a_half_life(void **state)
{
    struct yb_sched_heat *heat = heat_with(100);
    uint64_t block = 77;

    (void)state;
    assert_true(yb_sched_heat_of(heat, block, 0) == 0);
    for (uint32_t i = 0; i < 8; i++) {
        yb_sched_heat_access(heat, &block, 1, GROUND_S);
    }
    expect_near(yb_sched_heat_of(heat, block, GROUND_S), 8 * log(2));
    expect_near(yb_sched_heat_of(heat, block, GROUND_S + HALF_LIFE), 4 * log(2));
    yb_sched_heat_access(heat, &block, 1, GROUND_S + HALF_LIFE);
    expect_near(yb_sched_heat_of(heat, block, GROUND_S + 2 * HALF_LIFE), 2.5 * log(2));
    yb_sched_heat_destroy(&heat);
    assert_null(heat);
}

/* A prefix that is hot makes what mostly follows it hot, also if that was not accessed lately. */
static void
test_sched_heat__heat_flows_to_what_follows(void **state)
{
    struct yb_sched_heat *heat = heat_with(1000);
    uint64_t often[3] = {1, 2, 3};
    uint64_t seldom[3] = {1, 2, 9};
    double warm;

    (void)state;
    for (uint32_t i = 0; i < 30; i++) {
        yb_sched_heat_access(heat, i % 10 == 0 ? seldom : often, 3, GROUND_S);
    }
    /* Later only the prefix is asked for, again and again. */
    for (uint32_t i = 0; i < 30; i++) {
        yb_sched_heat_access(heat, often, 2, GROUND_S + 4 * HALF_LIFE);
    }
    warm = yb_sched_heat_of(heat, 3, GROUND_S + 4 * HALF_LIFE);
    /* Itself it is down to 27 / 16. But nine of ten times when something came after the prefix it
     * was this, and a tenth of what flows is lost. */
    expect_near(warm, 0.9 * 0.9 * (30 + 30.0 / 16) * log(2));
    assert_true(warm > 5 * yb_sched_heat_of(heat, 9, GROUND_S + 4 * HALF_LIFE));
    yb_sched_heat_destroy(&heat);
}

static void
test_sched_heat__the_hottest_come_first_and_no_more_than_asked_for(void **state)
{
    struct yb_sched_heat *heat = heat_with(4096);
    struct yb_sched_hot hot[20];

    (void)state;
    for (uint64_t block = 1; block <= 200; block++) {
        for (uint64_t i = 0; i < block; i++) {
            yb_sched_heat_access(heat, &block, 1, GROUND_S);
        }
    }
    assert_int_equal(yb_sched_heat_hottest(heat, 0, GROUND_S, hot, 20), 20);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(hot[i].block, 200 - i);
        expect_near(hot[i].heat, (200 - i) * log(2));
    }
    assert_int_equal(yb_sched_heat_hottest(heat, 195.5 * log(2), GROUND_S, hot, 20), 5);
    assert_int_equal(yb_sched_heat_hottest(heat, 1000, GROUND_S, hot, 20), 0);
    assert_int_equal(yb_sched_heat_hottest(heat, 0, GROUND_S, hot, 0), 0);
    yb_sched_heat_destroy(&heat);
}

/* A stream of blocks that are seen once does not wash out those that are seen often. */
static void
test_sched_heat__hot_blocks_outlive_a_stream_of_cold_ones(void **state)
{
    struct yb_sched_heat *heat = heat_with(512);
    uint32_t found = 0;

    (void)state;
    for (uint64_t round = 0; round < 200; round++) {
        for (uint64_t block = 1; block <= 40; block++) {
            yb_sched_heat_access(heat, &block, 1, GROUND_S + round * GROUND_MS);
        }
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t once = 1000000 + round * 100 + i;

            yb_sched_heat_access(heat, &once, 1, GROUND_S + round * GROUND_MS);
        }
    }
    for (uint64_t block = 1; block <= 40; block++) {
        found += yb_sched_heat_of(heat, block, GROUND_S) > 0;
    }
    assert_true(found >= 39);
    yb_sched_heat_destroy(&heat);
}

static void
test_sched_heat__moves_are_of_hot_blocks_that_lie_in_the_object_store_alone(void **state)
{
    struct yb_sched_options options = ground_options(NULL);
    struct yb_sched_heat *heat = heat_with(512);
    struct yb_sched_move moves[10];
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 4);
    ground_add(&ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 20);
    ground_add(&ground, 2, YB_SCHED_TIER_DRAM, 10); /* And so the first ten are not cold. */
    for (uint32_t i = 0; i < 5; i++) {
        yb_sched_heat_access(heat, ground.blocks, 12, GROUND_S);
    }
    yb_sched_heat_access(heat, ground.blocks, 30, GROUND_S);
    assert_int_equal(yb_sched_heat_moves(heat, ground.sched, 4, GROUND_S, moves, 10), 2);
    assert_int_equal(moves[0].block, ground.blocks[10]);
    assert_int_equal(moves[0].to, 2); /* Where the block before it is. */
    assert_int_equal(moves[1].block, ground.blocks[11]);
    assert_int_equal(yb_sched_heat_moves(heat, ground.sched, 0.1, GROUND_S, moves, 10), 10);
    assert_int_equal(yb_sched_add(ground.sched, ground.blocks[10], 1, YB_SCHED_TIER_SSD), YB_OK);
    assert_int_equal(yb_sched_heat_moves(heat, ground.sched, 4, GROUND_S, moves, 10), 1);
    assert_int_equal(moves[0].to, 1);
    yb_sched_heat_destroy(&heat);
    ground_close(&ground);
}

static void
test_sched_heat__bounds_that_cannot_be_are_refused(void **state)
{
    struct yb_sched_heat *heat = NULL;

    (void)state;
    assert_int_equal(yb_sched_heat_create(0, 1, &heat), YB_INVALID);
    assert_int_equal(yb_sched_heat_create(1, 0, &heat), YB_INVALID);
    assert_int_equal(yb_sched_heat_create((16u << 20) + 1, 1, &heat), YB_INVALID);
    assert_null(heat);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_heat__the_window_starts_at_one_and_a_half_latencies),
        cmocka_unit_test(test_sched_heat__the_window_finds_the_best_size_from_either_side),
        cmocka_unit_test(test_sched_heat__the_window_follows_a_latency_within_two_hundred_requests),
        cmocka_unit_test(test_sched_heat__a_worse_p99_keeps_a_size_from_being_taken),
        cmocka_unit_test(test_sched_heat__what_got_worse_is_met_with_more_for_a_whole_round),
        cmocka_unit_test(test_sched_heat__the_window_stays_within_its_limits_whatever_comes),
        cmocka_unit_test(test_sched_heat__heat_is_the_count_and_halves_in_a_half_life),
        cmocka_unit_test(test_sched_heat__heat_flows_to_what_follows),
        cmocka_unit_test(test_sched_heat__the_hottest_come_first_and_no_more_than_asked_for),
        cmocka_unit_test(test_sched_heat__hot_blocks_outlive_a_stream_of_cold_ones),
        cmocka_unit_test(
            test_sched_heat__moves_are_of_hot_blocks_that_lie_in_the_object_store_alone),
        cmocka_unit_test(test_sched_heat__bounds_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
