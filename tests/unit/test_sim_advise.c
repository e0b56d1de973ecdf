/* SPDX-License-Identifier: Apache-2.0
 *
 * What a cluster is advised, against numbers worked by hand.
 */
#include "unit.h"

#include <math.h>
#include <string.h>

#include "sim/advise.h"

#define BLOCK_TOKENS 512u

/* One request of one block for each letter, one each second: 512 tokens, 101 of the answer. */
static struct yb_trace *
by_hand(const char *letters)
{
    struct yb_trace_options options = {.seed = 1};
    char message[YB_TRACE_MESSAGE_MAX];
    char text[4096] = "";
    struct yb_trace *trace = NULL;
    FILE *file;

    for (uint32_t i = 0; letters[i] != '\0'; i++) {
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "{\"timestamp\": %u, \"input_length\": 512, \"output_length\": 101, "
                 "\"hash_ids\": [%d]}\n",
                 i * 1000, letters[i]);
    }
    file = fmemopen(text, strlen(text), "r");
    assert_non_null(file);
    assert_int_equal(yb_trace_read(file, "hand", &options, &trace, message), YB_OK);
    fclose(file);
    return trace;
}

/* A millisecond and 1 MB a token; steps of 10 ms. */
static struct yb_advise_case
usual(const struct yb_trace *trace)
{
    return (struct yb_advise_case){
        .cost = {.prefill_token_ns = 1e6, .step_base_ns = 1e7, .kv_bytes = 1000000, .layers = 10},
        .net_bytes_per_s = 1e9,
        .instances = 2,
        .ttft_slo_ns = 1e10,
        .tpot_slo_ns = 1e8,
        .trace = trace,
        .eviction = "lru",
    };
}

static void
test_sim_advise__loading_pays_from_the_threshold_on(void **state)
{
    struct yb_sched_cost cost = {
        .prefill_token_ns = 1e5, .prefill_pair_ns = 1, .kv_bytes = 1000000, .layers = 10};

    (void)state;
    /* p^2 + 10^5 p > 2 * 10^5 p: above 10^5. */
    assert_int_equal(yb_advise_threshold(&cost, 5e9, 0), 100001);
    /* p^2 + 10^5 p > 10^7 + 5 * 10^4 p: above 199.2. */
    assert_int_equal(yb_advise_threshold(&cost, 20e9, 1e7), 200);
    assert_int_equal(yb_advise_threshold(&cost, 20e9, 0), 1);
    assert_int_equal(yb_advise_threshold(&cost, 0, 0), UINT64_MAX);
    cost.prefill_base_ns = 2e7; /* Computing one token takes longer than loading twenty. */
    assert_int_equal(yb_advise_threshold(&cost, 20e9, 1e7), 1);
    cost.prefill_base_ns = 0;
    cost.prefill_pair_ns = 0; /* 5 * 10^4 p > 1.001 * 10^7: above 200.2. */
    assert_int_equal(yb_advise_threshold(&cost, 20e9, 1.001e7), 201);
    assert_int_equal(yb_advise_threshold(&cost, 5e9, 0), UINT64_MAX);
}

/* On either side of it, by the two times themselves. */
static void
test_sim_advise__the_threshold_is_where_the_times_meet(void **state)
{
    const struct yb_sched_cost cost = {
        .prefill_token_ns = 1e5, .prefill_pair_ns = 0.7, .kv_bytes = 327680, .layers = 80};

    (void)state;
    for (double rate = 1e9; rate < 3.2e9; rate *= 1.1) {
        uint64_t tokens = yb_advise_threshold(&cost, rate, 2e7);
        double token_ns = (double)cost.kv_bytes / rate * 1e9;

        assert_true(tokens > 1 && tokens < 1000000);
        assert_true(yb_sched_prefill_ns(&cost, tokens, 0) > 2e7 + token_ns * (double)tokens);
        assert_true(yb_sched_prefill_ns(&cost, tokens - 1, 0) <=
                    2e7 + token_ns * (double)(tokens - 1));
    }
}

/* Of 12 blocks 6 are found again, by lru two of them in a pool of one block, the rest in four. */
static void
test_sim_advise__a_pool_is_as_small_as_its_share_allows(void **state)
{
    static const struct {
        double share;
        uint64_t blocks;
    } rows[] = {{0.1, 1}, {0.33, 1}, {0.34, 4}, {1, 4}};
    struct yb_trace *trace = by_hand("aabbwxyzwxyz");
    struct yb_advise_case one = usual(trace);
    struct yb_advise_pool ideal;
    struct yb_advise_pool pool;

    (void)state;
    assert_int_equal(yb_advise_ideal(&one, &ideal), YB_OK);
    assert_int_equal(ideal.blocks, 6);
    assert_true(ideal.hit == 0.5);
    for (unsigned i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_int_equal(yb_advise_pool(&one, &ideal, rows[i].share, &pool), YB_OK);
        assert_int_equal(pool.blocks, rows[i].blocks);
        assert_true(pool.bytes == (double)rows[i].blocks * BLOCK_TOKENS * 1e6);
        assert_true(pool.hit >= rows[i].share * ideal.hit);
    }
    yb_trace_destroy(&trace);
}

/* Six of twelve prompts of 512 ms are found; twelve requests come in 11 s. */
static void
test_sim_advise__more_of_a_pool_saves_the_prefill_of_what_it_finds(void **state)
{
    struct yb_trace *trace = by_hand("aabbwxyzwxyz");
    struct yb_advise_case one = usual(trace);
    struct yb_advise_serving without;
    struct yb_advise_serving with;
    struct yb_advise_more more;

    (void)state;
    assert_int_equal(yb_advise_more_blocks(&one), 1953); /* Of 512 MB. */
    assert_int_equal(yb_advise_serving(&one, 0, &without), YB_OK);
    assert_int_equal(yb_advise_serving(&one, yb_advise_more_blocks(&one), &with), YB_OK);
    assert_true(without.pool.hit == 0 && without.demand.reused_tokens == 0);
    assert_true(fabs(with.demand.input_tokens - 512) < 1e-6);
    assert_true(fabs(with.demand.reused_tokens - 256) < 1e-6);
    assert_true(fabs(with.demand.output_tokens - 101) < 1e-6);
    more = yb_advise_compare(&one, &with, &without);
    assert_true(more.hit == 0.5);
    assert_true(fabs(more.instances - 0.256 * 12 / 11) < 0.002);
    assert_true(more.requests_per_s > 0);
    for (uint32_t i = 0; i < YB_ADVISE_MODES; i++) {
        assert_true(with.modes[i].requests_per_s <= with.modes[with.mode].requests_per_s);
    }
    yb_trace_destroy(&trace);
}

static void
test_sim_advise__what_cannot_be_reckoned_is_refused(void **state)
{
    struct yb_trace *trace = by_hand("aab");
    struct yb_advise_case one = usual(trace);
    struct yb_advise_serving serving;
    struct yb_advise_pool ideal;
    struct yb_advise_pool pool;

    (void)state;
    assert_int_equal(yb_advise_ideal(&one, &ideal), YB_OK);
    assert_int_equal(yb_advise_pool(&one, &ideal, 0, &pool), YB_INVALID);
    assert_int_equal(yb_advise_pool(&one, &ideal, 1.1, &pool), YB_INVALID);
    one.eviction = "no-such";
    assert_int_equal(yb_advise_ideal(&one, &ideal), YB_INVALID);
    assert_int_equal(yb_advise_serving(&one, 1, &serving), YB_INVALID);
    yb_trace_destroy(&trace);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_advise__loading_pays_from_the_threshold_on),
        cmocka_unit_test(test_sim_advise__the_threshold_is_where_the_times_meet),
        cmocka_unit_test(test_sim_advise__a_pool_is_as_small_as_its_share_allows),
        cmocka_unit_test(test_sim_advise__more_of_a_pool_saves_the_prefill_of_what_it_finds),
        cmocka_unit_test(test_sim_advise__what_cannot_be_reckoned_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
