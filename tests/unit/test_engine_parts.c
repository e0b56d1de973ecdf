/* SPDX-License-Identifier: Apache-2.0
 *
 * What the engine stand-in is made of: bytes that name their tokens, the pool of blocks, what a
 * step computes, and how a conductor's orders ended.
 */
#include <string.h>

#include "engine/kv.h"
#include "engine/kv_pool.h"
#include "engine/orders.h"
#include "engine/plan.h"
#include "unit.h"
#include "yuebing/client.h"

#define BYTES 4099u

/* ---- bytes ----------------------------------------------------------------------------------- */

static void
name(uint32_t number, uint8_t key_out[YB_KV_KEY_BYTES])
{
    assert_int_equal(yb_key_chain(&number, 1, 1, "test", (uint8_t(*)[16])key_out, 1), 1);
}

static void
test_engine_parts__the_bytes_of_a_part_are_its_own(void **state)
{
    uint8_t keys[2][YB_KV_KEY_BYTES];
    uint8_t bytes[BYTES], others[BYTES];
    size_t wrong = 1;

    (void)state;
    name(1, keys[0]);
    name(2, keys[1]);
    for (size_t length = 0; length < 40; length++) {
        memset(bytes, 0xa5, sizeof(bytes));
        yb_kv_fill(keys[0], 3, bytes, length);
        assert_true(yb_kv_check(keys[0], 3, bytes, length, &wrong));
        assert_int_equal(wrong, 0);
        assert_int_equal(bytes[length], 0xa5); /* Nothing behind it. */
    }
    yb_kv_fill(keys[0], 3, bytes, BYTES);
    assert_false(yb_kv_check(keys[1], 3, bytes, BYTES, &wrong)); /* Another block's. */
    assert_in_range(wrong, BYTES * 9 / 10, BYTES);
    assert_false(yb_kv_check(keys[0], 2, bytes, BYTES, &wrong)); /* Another part's. */
    assert_in_range(wrong, BYTES * 9 / 10, BYTES);
    memcpy(others, bytes + 8, BYTES - 8);
    assert_false(yb_kv_check(keys[0], 3, others, BYTES - 8, &wrong)); /* Shifted. */
    for (size_t at = 0; at < BYTES; at += 97) {
        bytes[at] ^= 1;
        assert_false(yb_kv_check(keys[0], 3, bytes, BYTES, &wrong));
        assert_int_equal(wrong, 1);
        bytes[at] ^= 1;
    }
}

/* Engines on different machines and of different versions must agree. */
static void
test_engine_parts__the_bytes_are_the_same_everywhere(void **state)
{
    static const uint8_t key[YB_KV_KEY_BYTES] = "0123456789abcdef";
    static const uint8_t golden[12] = {0x4e, 0x49, 0xb5, 0x8e, 0x6c, 0x11,
                                       0xbf, 0x51, 0x42, 0x93, 0xa7, 0xe3};
    uint8_t bytes[12];
    uint8_t tail[YB_KV_KEY_BYTES], other[YB_KV_KEY_BYTES];
    const uint32_t tokens[3] = {1, 2, 3};

    (void)state;
    yb_kv_fill(key, 5, bytes, sizeof(bytes));
    assert_memory_equal(bytes, golden, sizeof(golden));
    assert_int_equal(yb_kv_token(key, 7, 32000), 11556);
    yb_kv_tail_key(tokens, 3, "model", tail);
    assert_int_equal(yb_key_chain(tokens, 3, 3, "model", (uint8_t(*)[16])other, 1), 1);
    assert_memory_not_equal(tail, other, sizeof(tail)); /* A last block that is full is another. */
}

/* ---- the pool -------------------------------------------------------------------------------- */

#define SLOTS 16u
#define NAMES 64u

struct model {
    struct yb_kv_pool_block *found[NAMES]; /* Published, as the pool has told. */
    uint32_t users[NAMES];                 /* That the walk has of each. */
    bool there[NAMES];
    bool attached[NAMES]; /* To the name before. */
    uint8_t keys[NAMES][YB_KV_KEY_BYTES];
};

static void
on_changed(void *owner, const uint8_t key[YB_KV_KEY_BYTES], bool there)
{
    struct model *model = owner;

    for (uint32_t i = 0; i < NAMES; i++) {
        if (memcmp(model->keys[i], key, YB_KV_KEY_BYTES) == 0) {
            assert_int_equal(model->there[i], !there);
            assert_true(there || model->users[i] == 0);                      /* E1 */
            assert_true(there || i + 1 == NAMES || !model->attached[i + 1]); /* Suffixes first. */
            model->there[i] = there;
            model->attached[i] = false;
            return;
        }
    }
    fail();
}

static uint32_t
used_by(const struct model *model)
{
    uint32_t used = 0;

    for (uint32_t i = 0; i < NAMES; i++) {
        used += model->users[i] > 0;
    }
    return used;
}

/* Slots that cannot be had: of blocks in use, and of those before them. */
static uint32_t
bound_by(const struct model *model)
{
    uint32_t bound = 0;
    bool behind = false;

    for (uint32_t i = NAMES; i > 0; i--) {
        bool follows = behind && i < NAMES && model->attached[i];

        behind = model->there[i - 1] && (model->users[i - 1] > 0 || follows);
        bound += behind;
    }
    return bound;
}

/* Use a block, or bring it. */
static void
bring(struct yb_kv_pool *pool, struct model *model, uint32_t i)
{
    struct yb_kv_pool_block *block = yb_kv_pool_find(pool, model->keys[i], i);

    assert_int_equal(block != NULL, model->there[i]);
    if (block == NULL) {
        uint32_t bound = bound_by(model);
        struct yb_kv_pool_block *parent;

        block = yb_kv_pool_take(pool);
        assert_int_equal(block == NULL, bound == SLOTS);
        if (block == NULL) {
            return;
        }
        parent = i % 8 > 0 && model->there[i - 1] ? model->found[i - 1] : NULL;
        assert_ptr_equal(yb_kv_pool_publish(pool, block, model->keys[i], parent, i), block);
        model->attached[i] = parent != NULL;
        model->found[i] = block;
    }
    assert_ptr_equal(block, model->found[i]);
    model->users[i]++;
}

static void
test_engine_parts__a_block_that_is_used_stays_where_it_is(void **state)
{
    struct model model = {.users = {0}};
    const struct yb_kv_pool_options options = {
        .slots = SLOTS,
        .changed = on_changed,
        .owner = &model,
    };
    uint64_t random = unit_seed("pool");
    struct yb_kv_pool *pool = NULL;

    (void)state;
    for (uint32_t i = 0; i < NAMES; i++) {
        name(i, model.keys[i]);
    }
    assert_int_equal(yb_kv_pool_create(&options, &pool), YB_OK);
    for (uint32_t turn = 0; turn < (unit_long() ? 1000000 : 100000); turn++) {
        uint32_t i = (uint32_t)(unit_random(&random) % NAMES);

        if (unit_random(&random) % 2 == 0 && model.users[i] > 0) {
            model.users[i]--;
            yb_kv_pool_put_back(pool, model.found[i]);
        } else if (model.users[i] < 3) {
            bring(pool, &model, i);
        }
        assert_int_equal(yb_kv_pool_info(pool).used, used_by(&model));
        assert_int_equal(yb_kv_pool_has(pool, model.keys[i]), model.there[i]);
    }
    assert_true(yb_kv_pool_info(pool).evicted > 0);
    yb_kv_pool_destroy(&pool);
}

static void
test_engine_parts__of_two_that_bring_a_block_the_second_goes_on_with_the_firsts(void **state)
{
    const struct yb_kv_pool_options options = {.slots = 4};
    uint8_t key[YB_KV_KEY_BYTES];
    struct yb_kv_pool_block *first, *second, *third;
    struct yb_kv_pool *pool = NULL;

    (void)state;
    name(1, key);
    assert_int_equal(yb_kv_pool_create(&options, &pool), YB_OK);
    first = yb_kv_pool_take(pool);
    second = yb_kv_pool_take(pool);
    assert_ptr_equal(yb_kv_pool_publish(pool, first, key, NULL, 1), first);
    assert_ptr_equal(yb_kv_pool_publish(pool, second, key, NULL, 2), first);
    assert_int_equal(yb_kv_pool_info(pool).used, 1); /* The second one's slot is free. */
    yb_kv_pool_put_back(pool, first);
    assert_int_equal(yb_kv_pool_info(pool).used, 1); /* It has two users. */
    yb_kv_pool_put_back(pool, first);
    assert_int_equal(yb_kv_pool_info(pool).used, 0);
    third = yb_kv_pool_take(pool);
    yb_kv_pool_put_back(pool, third); /* Never published: gone at once (E3). */
    assert_int_equal(yb_kv_pool_info(pool).published, 1);
    yb_kv_pool_destroy(&pool);
}

static void
test_engine_parts__a_copy_that_is_still_read_takes_no_second_slot(void **state)
{
    const struct yb_kv_pool_options options = {.slots = 3};
    const uint8_t key[YB_KV_KEY_BYTES] = {9};
    struct yb_kv_pool_block *known;
    struct yb_kv_pool_block *copy;
    struct yb_kv_pool *pool = NULL;

    (void)state;
    assert_int_equal(yb_kv_pool_create(&options, &pool), YB_OK);
    known = yb_kv_pool_take(pool);
    assert_ptr_equal(yb_kv_pool_publish(pool, known, key, NULL, 1), known);
    yb_kv_pool_put_back(pool, known); /* Nobody uses it: it may go. */
    copy = yb_kv_pool_take(pool);
    yb_kv_pool_share(pool, copy); /* A store reads it. */
    assert_ptr_equal(yb_kv_pool_publish(pool, copy, key, NULL, 2), copy);
    assert_int_equal(yb_kv_pool_info(pool).used, 1);
    assert_ptr_equal(yb_kv_pool_find(pool, key, 3), known);
    yb_kv_pool_put_back(pool, known);
    /* Whoever was promised the other two gets them. */
    assert_non_null(yb_kv_pool_take(pool));
    assert_non_null(yb_kv_pool_take(pool));
    assert_null(yb_kv_pool_take(pool));
    yb_kv_pool_put_back(pool, copy);
    assert_null(yb_kv_pool_take(pool));
    yb_kv_pool_put_back(pool, copy); /* Never published: gone at once (E3). */
    assert_non_null(yb_kv_pool_take(pool));
    yb_kv_pool_destroy(&pool);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* A prompt of n tokens takes 1000 n ns and a step 500 ns and 10 for each sequence. */
static const struct yb_sched_cost cost = {
    .prefill_token_ns = 1000,
    .step_base_ns = 500,
    .step_sequence_ns = 10,
    .kv_bytes = 1,
    .layers = 1,
};

static void
test_engine_parts__the_oldest_prompt_that_can_be_computed_is(void **state)
{
    struct yb_engine_plan_prompt prompts[3] = {
        {.done_tokens = 0, .tokens = 100, .waits = true},
        {.done_tokens = 90, .tokens = 300},
        {.done_tokens = 0, .tokens = 10},
    };
    struct yb_engine_plan_state plan = {
        .cost = &cost,
        .chunk_tokens = 128,
        .prompts = prompts,
        .prompt_count = 3,
        .running = 4,
    };
    struct yb_engine_plan next = yb_engine_plan_next(&plan);

    (void)state;
    assert_int_equal(next.prompt, 1); /* The first waits for its load. */
    assert_int_equal(next.tokens, 128);
    assert_true(next.decode);
    assert_true(next.ns == 128 * 1000.0 + 540);
    prompts[1].done_tokens = 290;
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.tokens, 10);
    prompts[1].waits = prompts[2].waits = true;
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.prompt, YB_ENGINE_PLAN_NONE);
    assert_true(next.decode && next.ns == 540.0);
    plan.running = 0;
    next = yb_engine_plan_next(&plan);
    assert_false(next.decode);
    assert_true(next.ns == 0.0);
}

/* With one layer a piece is computed when all of its load has come: in 13 us there are 24 steps of
 * 540 ns. What lies behind it is computed; where nobody is decoded the piece is begun. */
static void
test_engine_parts__what_waits_for_its_load_is_passed_by_while_a_step_fits(void **state)
{
    struct yb_engine_plan_prompt prompts[2] = {
        {.tokens = 10, .load_ns = 13000},
        {.tokens = 10},
    };
    struct yb_engine_plan_state plan = {
        .cost = &cost,
        .chunk_tokens = 10,
        .prompts = prompts,
        .prompt_count = 1,
        .running = 4,
    };
    struct yb_engine_plan next = yb_engine_plan_next(&plan);
    uint32_t steps = 0;

    (void)state;
    for (; next.prompt == YB_ENGINE_PLAN_NONE; next = yb_engine_plan_next(&plan)) {
        assert_true(next.decode && next.ns == 540.0);
        prompts[0].load_ns -= next.ns;
        steps++;
    }
    assert_int_equal(steps, 24);
    assert_true(next.decode && next.ns == 10000.0 + 540.0);
    prompts[0].load_ns = 13000;
    plan.prompt_count = 2;
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.prompt, 1);
    plan.running = 0;
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.prompt, 0);
}

static void
test_engine_parts__time_sliced_takes_prompts_while_answers_are_ahead_of_their_pace(void **state)
{
    const struct yb_engine_plan_prompt prompt = {.tokens = 100};
    struct yb_engine_plan_state plan = {
        .cost = &cost,
        .mode = YB_SCHED_MODE_TIME_SLICED,
        .chunk_tokens = 100,
        .prompts = &prompt,
        .prompt_count = 1,
        .running = 2,
        .slack_ns = 100001,
    };
    struct yb_engine_plan next = yb_engine_plan_next(&plan);

    (void)state;
    assert_int_equal(next.prompt, 0);
    assert_false(next.decode);
    assert_true(next.ns == 100000.0);
    plan.slack_ns = 99999; /* The prompt would make an answer stutter. */
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.prompt, YB_ENGINE_PLAN_NONE);
    assert_true(next.decode && next.ns == 520.0);
    plan.running = 0; /* Nobody is there to stutter. */
    next = yb_engine_plan_next(&plan);
    assert_int_equal(next.prompt, 0);
}

/* ---- orders ---------------------------------------------------------------------------------- */

#define DECIDED_NS     5000000000ull
#define ORDERED_TOKENS 16u

static struct yb_engine_orders
read_orders(const char *text, bool good)
{
    struct yb_engine_orders orders;
    json_t *list = json_loads(text, 0, NULL);

    assert_non_null(list);
    assert_int_equal(yb_engine_orders_read(list, DECIDED_NS, &orders), good);
    json_decref(list);
    return orders;
}

static void
test_engine_parts__orders_that_are_none_are_refused(void **state)
{
    static const char *const wrong[] = {
        "{}",
        "[1]",
        "[{}]",
        "[{\"id\":1,\"kind\":\"carry\",\"first\":0,\"count\":1,\"deadline_us\":1}]",
        "[{\"id\":1,\"kind\":\"fetch\",\"first\":0,\"count\":1}]",
        "[{\"id\":-1,\"kind\":\"fetch\",\"first\":0,\"count\":1,\"deadline_us\":1}]",
        "[{\"id\":1,\"kind\":\"fetch\",\"first\":0,\"count\":4294967296,\"deadline_us\":1}]",
        "[0,0,0,0,0,0,0,0,0]",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        (void)read_orders(wrong[i], false);
    }
    assert_int_equal(read_orders("[]", true).count, 0);
}

static void
test_engine_parts__an_order_ends_as_its_blocks_came(void **state)
{
    const struct yb_engine_orders orders =
        read_orders("[{\"id\":7,\"kind\":\"fetch\",\"first\":2,\"count\":4,\"deadline_us\":1000},"
                    "{\"id\":8,\"kind\":\"stream\",\"first\":0,\"count\":7,\"deadline_us\":2000}]",
                    true);
    const uint64_t due_ns = DECIDED_NS + 1000000;
    const struct {
        uint32_t device, loaded, failures;
        uint64_t arrived_ns;
        const char *outcome;
    } rows[] = {
        {32, 64, 0, due_ns, "in_time"}, {32, 64, 0, due_ns + 1, "late"},
        {96, 0, 0, 0, "already_there"}, {32, 48, 0, due_ns, "source_gone"},
        {32, 48, 1, due_ns, "failed"},
    };
    struct yb_engine_verdicts verdicts;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct yb_engine_outcome outcome = {
            .prompt_tokens = 100,
            .device_tokens = rows[i].device,
            .loaded_tokens = rows[i].loaded,
            .load_failures = rows[i].failures,
            .arrived_ns = rows[i].arrived_ns,
            .tier_bytes[YB_CLIENT_TIER_SSD] = 1,
        };

        yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, false, &verdicts);
        assert_int_equal(verdicts.count, 1);
        assert_int_equal(verdicts.verdicts[0].id, 7);
        assert_string_equal(verdicts.verdicts[0].outcome, rows[i].outcome);
        assert_int_equal(verdicts.verdicts[0].tier, YB_SCHED_TIER_SSD);
    }
}

static void
test_engine_parts__a_stream_is_judged_where_the_answer_goes_on(void **state)
{
    struct yb_engine_orders orders = read_orders(
        "[{\"id\":8,\"kind\":\"stream\",\"first\":0,\"count\":7,\"deadline_us\":2000}]", true);
    struct yb_engine_outcome outcome = {
        .prompt_tokens = 100, .pulled_tokens = 100, .arrived_ns = DECIDED_NS + 2000000};
    struct yb_engine_verdicts verdicts;

    (void)state;
    yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, false, &verdicts);
    assert_int_equal(verdicts.count, 0);
    yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, true, &verdicts);
    assert_int_equal(verdicts.count, 1);
    assert_string_equal(verdicts.verdicts[0].outcome, "in_time");
    outcome.pulled_tokens = 0; /* The holder was gone: it was computed. */
    yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, true, &verdicts);
    assert_string_equal(verdicts.verdicts[0].outcome, "source_gone");
    /* Without targets it has no deadline, and is never late. */
    outcome.pulled_tokens = 100;
    outcome.arrived_ns = DECIDED_NS + 3600 * YB_NS_PER_S;
    yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, true, &verdicts);
    assert_string_equal(verdicts.verdicts[0].outcome, "late");
    orders = read_orders(
        "[{\"id\":8,\"kind\":\"stream\",\"first\":0,\"count\":7,\"deadline_us\":0}]", true);
    yb_engine_orders_judge(&orders, &outcome, ORDERED_TOKENS, true, &verdicts);
    assert_string_equal(verdicts.verdicts[0].outcome, "in_time");
}

/* What the thread is late by is not computing's; but what came later, or a device that has had
 * nothing to do, begins when the thread gets there. */
static void
test_engine_parts__a_step_follows_the_one_before(void **state)
{
    (void)state;
    assert_int_equal(yb_engine_plan_begin_ns(1000, 10, 1300), 1000);
    assert_int_equal(yb_engine_plan_begin_ns(1000, 1000, 1300), 1000);
    assert_int_equal(yb_engine_plan_begin_ns(1000, 1001, 1300), 1300);
    assert_int_equal(yb_engine_plan_begin_ns(0, 10, 1300), 1300);
    assert_int_equal(yb_engine_plan_begin_ns(1000, 10, 1000 + YB_ENGINE_PLAN_LATE_NS), 1000);
    assert_int_equal(yb_engine_plan_begin_ns(1000, 10, 1001 + YB_ENGINE_PLAN_LATE_NS),
                     1001 + YB_ENGINE_PLAN_LATE_NS);
    assert_int_equal(yb_engine_plan_begin_ns(1400, 10, 1300), 1300); /* The step was cut short. */
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine_parts__the_bytes_of_a_part_are_its_own),
        cmocka_unit_test(test_engine_parts__the_bytes_are_the_same_everywhere),
        cmocka_unit_test(test_engine_parts__a_block_that_is_used_stays_where_it_is),
        cmocka_unit_test(
            test_engine_parts__of_two_that_bring_a_block_the_second_goes_on_with_the_firsts),
        cmocka_unit_test(test_engine_parts__a_copy_that_is_still_read_takes_no_second_slot),
        cmocka_unit_test(test_engine_parts__the_oldest_prompt_that_can_be_computed_is),
        cmocka_unit_test(test_engine_parts__what_waits_for_its_load_is_passed_by_while_a_step_fits),
        cmocka_unit_test(
            test_engine_parts__time_sliced_takes_prompts_while_answers_are_ahead_of_their_pace),
        cmocka_unit_test(test_engine_parts__a_step_follows_the_one_before),
        cmocka_unit_test(test_engine_parts__orders_that_are_none_are_refused),
        cmocka_unit_test(test_engine_parts__an_order_ends_as_its_blocks_came),
        cmocka_unit_test(test_engine_parts__a_stream_is_judged_where_the_answer_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
