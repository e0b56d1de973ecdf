/* SPDX-License-Identifier: Apache-2.0
 *
 * Costs, ready times and splits, against numbers worked out by hand and published ones.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "sched/flow.h"
#include "yuebing/sched.h"

#define MS 1e6
#define S  1e9

static void
expect_near(double value, double expected, double share)
{
    if (!(fabs(value - expected) <= share * fabs(expected))) {
        print_error("%.6g is not within %.3g of %.6g\n", value, share, expected);
        fail();
    }
}

static struct yb_sched_catalog *
catalog_with(const char *text)
{
    struct yb_sched_catalog *catalog = NULL;
    char message[256] = "";

    assert_int_equal(yb_sched_catalog_create(&catalog), YB_OK);
    if (yb_sched_catalog_read(catalog, "test.ini", text, message, sizeof(message)) != YB_OK) {
        print_error("%s\n", message);
        fail();
    }
    return catalog;
}

static struct yb_sched_cost
cost_of(const struct yb_sched_catalog *catalog, const char *model, const char *gpu, uint32_t gpus)
{
    struct yb_sched_cost cost;

    assert_int_equal(yb_sched_catalog_cost(catalog, model, gpu, gpus, &cost), YB_OK);
    return cost;
}

/* ---- published figures ----------------------------------------------------------------------- */

/* Mooncake's equation 2: B / G > 2 d s / (gqa (a p d + b d^2)), with l = 80, d = 8192, a = 4, b =
 * 22, gqa = 8, s = 2 and the peak rates: 5.86 GB/s on 8 A800, 18.57 on 8 H800, for 8192 tokens. */
static void
test_sched_cost__break_even_is_that_of_mooncakes_equation_2(void **state)
{
    struct yb_sched_catalog *catalog =
        catalog_with("[model equation-2]\nlayers = 80\nkv_bytes = 327680\n"
                     "token_gflops = 118.11160064\npair_flops = 2621440\n"
                     "[gpu peak-a800]\ntflops = 312\nmemory_tb_s = 2\n"
                     "token_efficiency = 1\npair_efficiency = 1\n"
                     "[gpu peak-h800]\ntflops = 989\nmemory_tb_s = 3.35\n"
                     "token_efficiency = 1\npair_efficiency = 1\n");
    struct yb_sched_cost cost = cost_of(catalog, "equation-2", "peak-a800", 8);

    (void)state;
    expect_near(yb_sched_break_even(&cost, 8192) / S, 5.86, 0.001);
    cost = cost_of(catalog, "Equation-2", "PEAK-H800", 8);
    expect_near(yb_sched_break_even(&cost, 8192) / S, 18.57, 0.001);
    yb_sched_catalog_destroy(&catalog);
    assert_null(catalog);
}

/* Mooncake's Fig. 14: prefill of 8k .. 128k, and 128 tokens at 8k and 128k. */
static void
test_sched_cost__llama_3_70b_on_8_a800_is_as_measured(void **state)
{
    static const struct {
        uint32_t tokens;
        double modelled_s;
        double published_s;
    } rows[] = {
        {8192, 0.94, 0.90},  {16384, 1.98, 1.96},  {32768, 4.37, 4.48},
        {65536, 10.4, 10.4}, {131072, 27.4, 27.4},
    };
    struct yb_sched_catalog *catalog = catalog_with("");
    struct yb_sched_cost cost = cost_of(catalog, "llama-3-70b", "a800", 8);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        double s = yb_sched_prefill_ns(&cost, rows[i].tokens, 0) / S;

        expect_near(s, rows[i].modelled_s, 0.005);
        expect_near(s, rows[i].published_s, 0.05);
    }
    expect_near(128 * yb_sched_step_ns(&cost, 1, 8192) / S, 3.45, 0.02);
    expect_near(128 * yb_sched_step_ns(&cost, 1, 131072) / S, 3.95, 0.02);
    assert_int_equal(cost.kv_bytes, 320 * 1024);
    expect_near((double)cost.kv_tokens_max, 1.37e6, 0.01);
    /* What is reused need not be computed, and nothing is free twice. */
    expect_near(yb_sched_prefill_ns(&cost, 8192, 4096),
                yb_sched_prefill_ns(&cost, 8192, 0) - yb_sched_prefill_ns(&cost, 4096, 0), 1e-9);
    assert_true(yb_sched_prefill_ns(&cost, 8192, 8192) == 0);
    yb_sched_catalog_destroy(&catalog);
}

/* Loading against recomputing, with half of the peak (0.52) reached in both parts. */
static void
test_sched_cost__break_even_of_models_and_devices_is_that_of_the_table(void **state)
{
    static const struct {
        const char *model;
        const char *gpu;
        uint32_t gpus;
        double gb_s[4]; /* 1k, 8k, 32k, 128k */
    } rows[] = {
        {"llama-3-8b", "half-a800", 1, {1.49, 1.32, 0.94, 0.44}},
        {"llama-3-70b", "half-a800", 8, {3.08, 2.88, 2.36, 1.38}},
        {"qwen2.5-7b", "half-a800", 1, {0.70, 0.63, 0.47, 0.24}},
        {"llama-30b", "half-a800", 8, {31.9, 29.3, 22.9, 12.3}},
        {"deepseek-v3", "half-h800", 8, {3.82, 3.09, 1.86, 0.72}},
        {"kimi-k2", "half-h800", 8, {4.43, 3.89, 2.76, 1.27}},
        {"llama-3-70b", "half-h800", 8, {9.75, 9.13, 7.50, 4.37}},
    };
    static const uint32_t tokens[4] = {1024, 8192, 32768, 131072};
    struct yb_sched_catalog *catalog =
        catalog_with("[gpu half-a800]\ntflops = 312\nmemory_tb_s = 2\npair_efficiency = 0.52\n"
                     "[gpu half-h800]\ntflops = 989\nmemory_tb_s = 3.35\npair_efficiency = .52\n");

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yb_sched_cost cost = cost_of(catalog, rows[i].model, rows[i].gpu, rows[i].gpus);

        for (uint32_t k = 0; k < 4; k++) {
            /* The table has two or three digits. */
            expect_near(yb_sched_break_even(&cost, tokens[k]) / S, rows[i].gb_s[k], 0.022);
        }
    }
    yb_sched_catalog_destroy(&catalog);
}

/* EcoServe: 1.52 MB a token of Llama-30B; 8 A800 prefill so fast that 400 Gb/s hardly suffice.
 * K2 on 8 H800, 8k tokens: 0.148 s to compute; 25 GbE and 10 GbE are slower, an ssd and 100 G
 * not. */
static void
test_sched_cost__examples_of_loading_or_recomputing_come_out_as_written(void **state)
{
    static const struct {
        double gb_s;
        bool loads;
    } ways[] = {{1.1, false}, {2.8, false}, {7, true}, {11.5, true}};
    struct yb_sched_catalog *catalog =
        catalog_with("[gpu half-h800]\ntflops = 989\nmemory_tb_s = 3.35\npair_efficiency = 0.52\n");
    struct yb_sched_cost cost = cost_of(catalog, "kimi-k2", "half-h800", 8);

    (void)state;
    expect_near(yb_sched_prefill_ns(&cost, 8192, 0) / S, 0.148, 0.01);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        assert_int_equal(ways[i].gb_s * S > yb_sched_break_even(&cost, 8192), ways[i].loads);
    }
    cost = cost_of(catalog, "llama-30b", "a800", 8);
    expect_near((double)cost.kv_bytes / (1 << 20), 1.52, 0.01);
    expect_near((double)cost.kv_bytes / cost.prefill_token_ns, 39, 0.25); /* GB/s */
    yb_sched_catalog_destroy(&catalog);
}

/* ---- fitting --------------------------------------------------------------------------------- */

static void
test_sched_cost__coefficients_are_found_again_from_samples(void **state)
{
    struct yb_sched_cost truth = {.prefill_base_ns = 30 * MS,
                                  .prefill_token_ns = 1.083e5,
                                  .prefill_pair_ns = 0.768,
                                  .step_base_ns = 26.8 * MS,
                                  .step_sequence_ns = 150e3,
                                  .step_token_ns = 33};
    struct yb_sched_cost found = {.kv_bytes = 7, .layers = 3};
    struct yb_sched_prefill_sample prefills[60];
    struct yb_sched_step_sample steps[60];
    uint64_t random = unit_seed("sched_cost fit");

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t tokens = 512 + unit_random(&random) % 100000;
        double noise = 1 + ((double)(unit_random(&random) % 1001) - 500) * 4e-5;

        prefills[i].tokens = tokens;
        prefills[i].reused = i % 3 == 0 ? 0 : unit_random(&random) % tokens;
        prefills[i].ns = noise * yb_sched_prefill_ns(&truth, tokens, prefills[i].reused);
        steps[i].sequences = 1 + (uint32_t)(unit_random(&random) % 64);
        steps[i].context_tokens = unit_random(&random) % 1000000;
        steps[i].ns = noise * yb_sched_step_ns(&truth, steps[i].sequences, steps[i].context_tokens);
    }
    assert_int_equal(yb_sched_fit_prefill(&found, prefills, 60), YB_OK);
    assert_int_equal(yb_sched_fit_steps(&found, steps, 60), YB_OK);
    expect_near(found.prefill_token_ns, truth.prefill_token_ns, 0.04);
    expect_near(found.prefill_pair_ns, truth.prefill_pair_ns, 0.04);
    expect_near(found.step_base_ns, truth.step_base_ns, 0.04);
    expect_near(found.step_token_ns, truth.step_token_ns, 0.04);
    for (uint32_t i = 0; i < 60; i++) {
        expect_near(yb_sched_prefill_ns(&found, prefills[i].tokens, prefills[i].reused),
                    prefills[i].ns, 0.05);
    }
    assert_int_equal(found.kv_bytes, 7);
}

static void
test_sched_cost__no_coefficient_is_fitted_below_0(void **state)
{
    /* A line through these would begin below 0. */
    struct yb_sched_prefill_sample samples[] = {
        {1000, 0, 1 * MS}, {2000, 0, 3 * MS}, {4000, 0, 7 * MS}, {8000, 0, 15 * MS}};
    struct yb_sched_cost cost = {0};

    (void)state;
    assert_int_equal(yb_sched_fit_prefill(&cost, samples, 4), YB_OK);
    assert_true(cost.prefill_base_ns >= 0);
    assert_true(cost.prefill_token_ns >= 0);
    assert_true(cost.prefill_pair_ns >= 0);
    for (uint32_t i = 0; i < 4; i++) {
        expect_near(yb_sched_prefill_ns(&cost, samples[i].tokens, 0), samples[i].ns, 0.25);
    }
}

static void
test_sched_cost__samples_that_say_nothing_are_refused(void **state)
{
    struct yb_sched_prefill_sample alike[] = {{9, 1, 5}, {9, 1, 5}, {9, 1, 5}};
    struct yb_sched_prefill_sample none[] = {{9, 1, 5}, {8, 1, 0}, {7, 1, 5}};
    struct yb_sched_prefill_sample over[] = {{9, 1, 5}, {8, 9, 4}, {7, 1, 5}};
    struct yb_sched_prefill_sample no_number[] = {{9, 1, 5}, {8, 1, NAN}, {7, 1, 5}};
    struct yb_sched_step_sample steps[] = {{1, 10, 5}, {2, 20, 6}};
    struct yb_sched_cost cost = {.prefill_token_ns = 17};

    (void)state;
    assert_int_equal(yb_sched_fit_prefill(&cost, alike, 3), YB_INVALID);
    assert_int_equal(yb_sched_fit_prefill(&cost, none, 3), YB_INVALID);
    assert_int_equal(yb_sched_fit_prefill(&cost, over, 3), YB_INVALID);
    assert_int_equal(yb_sched_fit_prefill(&cost, no_number, 3), YB_INVALID);
    assert_int_equal(yb_sched_fit_steps(&cost, steps, 2), YB_INVALID);
    assert_true(cost.prefill_token_ns == 17);
}

/* ---- the catalog ----------------------------------------------------------------------------- */

static void
test_sched_cost__a_file_may_bring_and_change_rows(void **state)
{
    struct yb_sched_catalog *catalog =
        catalog_with("; ours\n[model mine]\nlayers = 10\nkv_bytes = 1000\ntoken_gflops = 2\n"
                     "pair_flops = 100\nweight_gb = 3\nstep_gb = 3\n"
                     "[gpu L20]\ntflops = 100\n"
                     "[cost mine on 2 l20]\nprefill_base_ms = 5\nprefill_token_us = 7\n");
    struct yb_sched_cost cost = cost_of(catalog, "mine", "l20", 1);
    uint32_t models = 0;

    (void)state;
    expect_near(cost.prefill_token_ns, 2e9 / (100e12 * 0.52) * S, 1e-9);
    assert_int_equal(cost.layers, 10);
    cost = cost_of(catalog, "mine", "l20", 2);
    expect_near(cost.prefill_token_ns, 7000, 1e-9);
    expect_near(cost.prefill_base_ns, 5 * MS, 1e-9);
    while (yb_sched_catalog_model(catalog, models) != NULL) {
        models++;
    }
    assert_int_equal(models, 11);
    assert_string_equal(yb_sched_catalog_gpu(catalog, 0)->name, "a800");
    assert_null(yb_sched_catalog_gpu(catalog, 7)); /* "L20" changed a row that was there. */
    cost = cost_of(catalog, "llama-3-70b", "l20", 1);
    assert_int_equal(cost.kv_tokens_max, 0); /* 141 GB of weights in 48 GB: no room. */
    assert_string_equal(yb_sched_catalog_find_gpu(catalog, "l20")->name, "l20");
    assert_null(yb_sched_catalog_find_model(catalog, "none"));
    assert_int_equal(yb_sched_catalog_cost(catalog, "none", "l20", 1, &cost), YB_NOT_FOUND);
    assert_int_equal(yb_sched_catalog_cost(catalog, "mine", "l20", 0, &cost), YB_INVALID);
    yb_sched_catalog_destroy(&catalog);
}

static void
test_sched_cost__a_bad_file_changes_nothing_and_says_where(void **state)
{
    static const struct {
        const char *text;
        const char *said;
    } rows[] = {
        {"[gpu x]\ntflops = 1\nspeed = 3\n", "test.ini:3: unknown name `speed`"},
        {"[gpu x]\ntflops = fast\n", "test.ini:2: no number"},
        {"[gpu x]\ntflops = -1\n", "test.ini:2: no number"},
        {"[gpu x]\ntflops = nan\n", "test.ini:2: no number"},
        {"[what x]\ntflops = 1\n", "test.ini:2: unknown section"},
        {"[cost x]\nprefill_base_ms = 1\n", "test.ini:2: unknown section"},
        {"[cost x on 0 y]\nprefill_base_ms = 1\n", "test.ini:2: unknown section"},
        {"[model ]\nlayers = 1\n", "test.ini:2: unknown section"},
        {"[model x]\nlayers = 0\n", "test.ini:2: no number of layers"},
        {"[model x]\nlayers\n", "test.ini:2: neither"},
    };
    struct yb_sched_catalog *catalog = catalog_with("");

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char message[256] = "";

        assert_int_equal(
            yb_sched_catalog_read(catalog, "test.ini", rows[i].text, message, sizeof(message)),
            YB_INVALID);
        if (strncmp(message, rows[i].said, strlen(rows[i].said)) != 0) {
            print_error("said `%s`, expected `%s`\n", message, rows[i].said);
            fail();
        }
        assert_null(yb_sched_catalog_find_gpu(catalog, "x"));
    }
    yb_sched_catalog_destroy(&catalog);
}

/* ---- ready times ----------------------------------------------------------------------------- */

static void
test_sched_cost__the_slowest_link_decides_when_bytes_are_there(void **state)
{
    /* 1 GB/s with 500 MB before us; 10 GB/s, empty. */
    struct yb_sched_link slow = {1e9, 1000, 500000000, 0};
    struct yb_sched_link fast = {10e9, 2000, 0, 0};
    struct yb_sched_link none = {0, 0, 0, 0};
    const struct yb_sched_link *links[3] = {&slow, &fast, &none};
    uint64_t second = 1000000000;

    (void)state;
    /* 5 + 3 us + 0.5 s + 0.1 s */
    assert_int_equal(yb_sched_ready_ns(links, 2, 5000, 100000000, 0), 5000 + 3000 + 600000000);
    /* 0.2 s later 200 MB have gone; after 0.5 s all have. */
    assert_int_equal(yb_sched_ready_ns(links, 2, 0, 100000000, second / 5), 3000 + 400000000);
    assert_int_equal(yb_sched_ready_ns(links, 2, 0, 100000000, second), 3000 + 100000000);
    assert_int_equal(yb_sched_ready_ns(links, 3, 0, 1, 0), UINT64_MAX);
    assert_int_equal(yb_sched_ready_ns(links, 0, 77, 1, 0), 77);
}

/* ---- splits ---------------------------------------------------------------------------------- */

static uint32_t
pick(uint64_t *random, uint32_t below)
{
    return (uint32_t)(unit_random(random) % below);
}

static struct yb_sched_prompt
random_prompt(uint64_t *random, const struct yb_sched_cost *cost, uint32_t flows)
{
    struct yb_sched_prompt prompt = {.cost = cost, .flow_count = flows};

    prompt.tokens = 1 + pick(random, 60000);
    prompt.step_tokens = 1 + pick(random, 2) * 511;
    prompt.reach_tokens = pick(random, prompt.tokens + 1);
    prompt.local_tokens = pick(random, 3) == 0 ? 0 : pick(random, prompt.reach_tokens + 1);
    prompt.start_ns = pick(random, 2) * (double)pick(random, 4000) * MS;
    for (uint32_t i = 0; i < flows; i++) {
        double rate = exp((double)pick(random, 1000) / 1000 * 6) * 0.3e9; /* .3 .. 120 GB/s */

        prompt.flows[i] = (struct yb_sched_flow){
            .first = prompt.local_tokens,
            .end = prompt.reach_tokens,
            .base_ns = pick(random, 2) * (double)pick(random, 1000) * MS,
            .token_ns = (double)cost->kv_bytes / rate * 1e9,
        };
        if (i > 0) {
            prompt.flows[i].first += pick(random, prompt.reach_tokens - prompt.local_tokens + 1);
        }
    }
    return prompt;
}

/* Try everything. */
static double
best_finish(const struct yb_sched_prompt *prompt)
{
    double best = yb_sched_flow_finish_ns(prompt, prompt->local_tokens);
    uint32_t step = prompt->step_tokens;

    best = fmin(best, yb_sched_flow_finish_ns(prompt, prompt->reach_tokens));
    for (uint32_t k = prompt->local_tokens / step + 1; k * step < prompt->reach_tokens; k++) {
        best = fmin(best, yb_sched_flow_finish_ns(prompt, k * step));
    }
    return best;
}

static void
test_sched_cost__no_split_is_better_than_the_one_that_is_found(void **state)
{
    struct yb_sched_catalog *catalog = catalog_with("");
    struct yb_sched_cost cost = cost_of(catalog, "llama-3-70b", "a800", 8);
    uint64_t random = unit_seed("sched_cost split");
    uint32_t rounds = unit_long() ? 20000 : 1000;

    (void)state;
    for (uint32_t i = 0; i < rounds; i++) {
        struct yb_sched_prompt prompt = random_prompt(&random, &cost, 1);
        uint32_t reused;

        cost.pass_tokens = pick(&random, 2) * (1 + pick(&random, 16384));
        reused = yb_sched_flow_split(&prompt);

        assert_true(reused >= prompt.local_tokens && reused <= prompt.reach_tokens);
        assert_true(yb_sched_flow_finish_ns(&prompt, reused) <= best_finish(&prompt) + 2);
        prompt = random_prompt(&random, &cost, 3);
        reused = yb_sched_flow_split(&prompt);
        assert_true(reused >= prompt.local_tokens && reused <= prompt.reach_tokens);
        assert_true(yb_sched_flow_finish_ns(&prompt, reused) <= best_finish(&prompt) * 1.01);
    }
    yb_sched_catalog_destroy(&catalog);
}

/* 1000 tokens of 1 us, of which 500 are loaded in 2 ms, 10 layers: layers come while all 500 are
 * computed, or while the first 100 of them are. */
static void
test_sched_cost__layers_come_only_while_the_first_pass_is_computed(void **state)
{
    struct yb_sched_cost cost = {.prefill_token_ns = 1000, .kv_bytes = 4000, .layers = 10};
    struct yb_sched_prompt prompt = {
        .cost = &cost,
        .tokens = 1000,
        .reach_tokens = 500,
        .step_tokens = 500,
        .flow_count = 1,
        .flows = {{.end = 500, .token_ns = 4000}},
    };

    (void)state;
    assert_true(fabs(yb_sched_flow_finish_ns(&prompt, 500) - (2 * MS + 0.05 * MS)) < 1);
    cost.pass_tokens = 100;
    assert_true(fabs(yb_sched_flow_finish_ns(&prompt, 500) - (2 * MS + 0.4 * MS + 0.01 * MS)) < 1);
    cost.pass_tokens = 500;
    assert_true(fabs(yb_sched_flow_finish_ns(&prompt, 500) - (2 * MS + 0.05 * MS)) < 1);
}

/* 32k tokens, all of them elsewhere, 8 A800: all from fast memory, none from a slow net, a part
 * from one between. */
static void
test_sched_cost__how_much_is_loaded_grows_with_the_rate(void **state)
{
    struct yb_sched_catalog *catalog = catalog_with("");
    struct yb_sched_cost cost = cost_of(catalog, "llama-3-70b", "a800", 8);
    struct yb_sched_loadable loadable = {
        .tokens = 32768, .reach_tokens = 32256, .step_tokens = 512, .rate = 0.01e9};
    uint32_t before = 0;

    (void)state;
    for (double rate = 0.02e9; rate < 200e9; rate *= 2) {
        struct yb_sched_split split;
        double alone_ns = yb_sched_prefill_ns(&cost, 32768, 0);

        loadable.rate = rate;
        split = yb_sched_split(&cost, &loadable);
        assert_true(split.reuse_tokens >= before);
        assert_true((double)split.finish_ns <= alone_ns);
        before = split.reuse_tokens;
    }
    assert_int_equal(before, 32256);
    loadable.rate = 1e9; /* Half of it: both ends meet. */
    {
        struct yb_sched_split split = yb_sched_split(&cost, &loadable);

        assert_true(split.reuse_tokens > 8192 && split.reuse_tokens < 16384);
        expect_near((double)split.load_ns, (double)split.prefill_ns, 0.1);
    }
    loadable.base_ns = 60ull * 1000000000; /* It comes too late. */
    assert_int_equal(yb_sched_split(&cost, &loadable).reuse_tokens, 0);
    loadable.base_ns = 0;
    loadable.rate = 0; /* There is no way. */
    assert_int_equal(yb_sched_split(&cost, &loadable).reuse_tokens, 0);
    yb_sched_catalog_destroy(&catalog);
}

/* While the engine is busy, loading costs nothing. */
static void
test_sched_cost__what_comes_before_the_engine_is_free_is_all_loaded(void **state)
{
    struct yb_sched_catalog *catalog = catalog_with("");
    struct yb_sched_cost cost = cost_of(catalog, "llama-3-70b", "a800", 8);
    struct yb_sched_loadable loadable = {.tokens = 32768,
                                         .reach_tokens = 32256,
                                         .step_tokens = 512,
                                         .rate = 1e9,
                                         .start_ns = 20ull * 1000000000};
    struct yb_sched_split split = yb_sched_split(&cost, &loadable);

    (void)state;
    assert_int_equal(split.reuse_tokens, 32256);
    expect_near((double)split.finish_ns, 20 * S + (double)split.prefill_ns, 1e-6);
    yb_sched_catalog_destroy(&catalog);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_cost__break_even_is_that_of_mooncakes_equation_2),
        cmocka_unit_test(test_sched_cost__llama_3_70b_on_8_a800_is_as_measured),
        cmocka_unit_test(test_sched_cost__break_even_of_models_and_devices_is_that_of_the_table),
        cmocka_unit_test(test_sched_cost__examples_of_loading_or_recomputing_come_out_as_written),
        cmocka_unit_test(test_sched_cost__coefficients_are_found_again_from_samples),
        cmocka_unit_test(test_sched_cost__no_coefficient_is_fitted_below_0),
        cmocka_unit_test(test_sched_cost__samples_that_say_nothing_are_refused),
        cmocka_unit_test(test_sched_cost__a_file_may_bring_and_change_rows),
        cmocka_unit_test(test_sched_cost__a_bad_file_changes_nothing_and_says_where),
        cmocka_unit_test(test_sched_cost__the_slowest_link_decides_when_bytes_are_there),
        cmocka_unit_test(test_sched_cost__layers_come_only_while_the_first_pass_is_computed),
        cmocka_unit_test(test_sched_cost__no_split_is_better_than_the_one_that_is_found),
        cmocka_unit_test(test_sched_cost__how_much_is_loaded_grows_with_the_rate),
        cmocka_unit_test(test_sched_cost__what_comes_before_the_engine_is_free_is_all_loaded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
