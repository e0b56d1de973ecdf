/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's tiers, against a model that is a table of who has what.
 */
#include "unit.h"

#include <string.h>

#include "sim/stock.h"

#define BLOCKS  200u
#define SHELVES 5u

struct model {
    bool has[SHELVES][BLOCKS];
    uint32_t evicted[SHELVES];
    uint32_t pinned[SHELVES][BLOCKS];
};

static void
gone(void *context, uint32_t shelf, uint32_t block)
{
    struct model *model = context;

    assert_true(model->has[shelf][block]);
    assert_int_equal(model->pinned[shelf][block], 0);
    model->has[shelf][block] = false;
    model->evicted[shelf]++;
}

static struct yb_stock *
stock_with(struct model *model, const char *policy, const uint64_t rooms[SHELVES])
{
    struct yb_stock *stock;

    assert_int_equal(yb_stock_create(BLOCKS, gone, model, &stock), YB_OK);
    for (uint32_t i = 0; i < SHELVES; i++) {
        uint32_t shelf;

        assert_int_equal(yb_stock_add_shelf(stock, policy, rooms[i], &shelf), YB_OK);
        assert_int_equal(shelf, i);
    }
    return stock;
}

static const struct yb_stock_use alone = {.parent = YB_STOCK_NO_BLOCK};

static void
test_sim_stock__the_least_recently_used_goes_and_a_prefix_stays_before_its_suffix(void **state)
{
    struct model model = {.has = {{false}}};
    struct yb_stock *stock = stock_with(&model, "lru", (uint64_t[SHELVES]){3, 0, 0, 0, 0});
    struct yb_stock_use use = {.parent = 0};

    (void)state;
    assert_int_equal(yb_stock_put(stock, 0, 0, &alone), YB_OK);
    assert_int_equal(yb_stock_put(stock, 0, 1, &use), YB_OK);
    assert_int_equal(yb_stock_put(stock, 0, 2, &alone), YB_OK);
    model.has[0][0] = model.has[0][1] = model.has[0][2] = true;
    /* Block 0 is the oldest, but block 1 stands on it. */
    assert_int_equal(yb_stock_put(stock, 0, 3, &alone), YB_OK);
    assert_non_null(yb_stock_find(stock, 0, 0));
    assert_null(yb_stock_find(stock, 0, 1));
    assert_int_equal(model.evicted[0], 1);
    yb_stock_destroy(&stock);
    assert_null(stock);
}

static void
test_sim_stock__without_room_nothing_is_taken(void **state)
{
    struct model model = {.has = {{false}}};
    struct yb_stock *stock = stock_with(&model, "lru", (uint64_t[SHELVES]){0, 1, 0, 0, 0});
    struct yb_stock_copy *copy;

    (void)state;
    assert_int_equal(yb_stock_put(stock, 0, 7, &alone), YB_NO_SPACE);
    assert_int_equal(yb_stock_put(stock, 1, 7, &alone), YB_OK);
    model.has[1][7] = true;
    copy = yb_stock_find(stock, 1, 7);
    assert_int_equal(yb_stock_pin(stock, copy), YB_OK);
    assert_int_equal(yb_stock_put(stock, 1, 8, &alone), YB_NO_SPACE);
    yb_stock_unpin(stock, copy);
    assert_int_equal(yb_stock_put(stock, 1, 8, &alone), YB_OK);
    assert_int_equal(yb_stock_counts(stock, 1).refused, 1);
    yb_stock_destroy(&stock);
}

static void
test_sim_stock__policies_are_told_the_position_and_the_request(void **state)
{
    struct model model = {.has = {{true, true, true}}};
    struct yb_stock *stock = stock_with(&model, "length-aware", (uint64_t[SHELVES]){3, 0, 0, 0, 0});
    struct yb_stock_use uses[] = {
        {.parent = YB_STOCK_NO_BLOCK, .position = 1, .request = 7},
        {.parent = YB_STOCK_NO_BLOCK, .position = 5, .request = 7},
        {.parent = YB_STOCK_NO_BLOCK, .position = 3, .request = 7},
    };
    struct yb_stock_copy *copy;
    uint32_t shelf;

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(yb_stock_put(stock, 0, i, &uses[i]), YB_OK);
    }
    assert_int_equal(yb_stock_put(stock, 0, 3, &alone), YB_OK);
    assert_null(yb_stock_find(stock, 0, 1)); /* The furthest back. */
    model.has[0][3] = true;
    uses[0].position = 9;
    yb_stock_touch(stock, yb_stock_find(stock, 0, 0), &uses[0]);
    yb_stock_touch(stock, yb_stock_find(stock, 0, 2), &uses[2]);
    yb_stock_touch(stock, yb_stock_find(stock, 0, 3), &alone);
    assert_int_equal(yb_stock_put(stock, 0, 4, &alone), YB_OK);
    assert_null(yb_stock_find(stock, 0, 0)); /* Another prompt has it further back. */

    assert_int_equal(yb_stock_add_shelf(stock, "trajectory", 3, &shelf), YB_OK);
    assert_int_equal(yb_stock_put(stock, shelf, 1, &uses[1]), YB_OK);
    copy = yb_stock_find(stock, shelf, 1);
    yb_stock_touch(stock, copy, &uses[1]);
    assert_int_equal(copy->policy.entry.uses, 1); /* Looked up and read by one request. */
    uses[1].request = 8;
    yb_stock_touch(stock, copy, &uses[1]);
    assert_int_equal(copy->policy.entry.uses, 2);
    yb_stock_destroy(&stock);
}

#define ANSWER_ROUNDS 1500u
#define ANSWER_AGAIN  43u

static void
gone_unheard(void *context, uint32_t shelf, uint32_t block)
{
    (void)context;
    (void)shelf;
    (void)block;
}

/* A prompt of 10 blocks each second. One in three has an answer of one token, and comes again when
 * 43 others have come; the rest have long answers, and do not. There is room for those alone. */
static void
test_sim_stock__policies_are_told_how_long_the_answer_is(void **state)
{
    struct yb_stock *stock;
    uint32_t found = 0;
    uint32_t shelf;

    (void)state;
    assert_int_equal(yb_stock_create(10 * ANSWER_ROUNDS, gone_unheard, NULL, &stock), YB_OK);
    assert_int_equal(yb_stock_add_shelf(stock, "trajectory", 220, &shelf), YB_OK);
    for (uint32_t round = 0; round < ANSWER_ROUNDS; round++) {
        bool again = round % 4 == 3 && round >= ANSWER_AGAIN;
        uint32_t first = 10 * (again ? round - ANSWER_AGAIN : round);

        for (uint32_t i = 0; i < 10; i++) {
            struct yb_stock_use use = {
                .parent = i == 0 ? YB_STOCK_NO_BLOCK : first + i - 1,
                .position = i + 1,
                .request = round + 1ull,
                .answer_tokens = !again && round % 4 == 0 ? 1 : 500,
                .now_ns = round * 1000000000ull,
            };

            found += round > ANSWER_ROUNDS / 2 && yb_stock_find(stock, shelf, first + i) != NULL;
            assert_int_equal(yb_stock_put(stock, shelf, first + i, &use), YB_OK);
        }
    }
    assert_true(found > 9 * (ANSWER_ROUNDS / 2) / 4);
    yb_stock_destroy(&stock);
}

/* Every copy by both ways: from the shelf and block, and along the chain of the block. */
static void
compare(struct yb_stock *stock, const struct model *model)
{
    for (uint32_t block = 0; block < BLOCKS; block++) {
        uint32_t chained = 0;
        uint32_t here = 0;

        for (uint32_t shelf = 0; shelf < SHELVES; shelf++) {
            struct yb_stock_copy *copy = yb_stock_find(stock, shelf, block);

            assert_int_equal(copy != NULL, model->has[shelf][block]);
            here += copy != NULL;
        }
        for (struct yb_stock_copy *copy = yb_stock_first(stock, block); copy != NULL;
             copy = copy->next) {
            assert_int_equal(copy->block, block);
            chained++;
        }
        assert_int_equal(chained, here);
    }
}

static void
one_step(struct yb_stock *stock, struct model *model, uint64_t *seed)
{
    uint32_t shelf = (uint32_t)(unit_random(seed) % SHELVES);
    uint32_t block = (uint32_t)(unit_random(seed) % BLOCKS);
    struct yb_stock_copy *copy = yb_stock_find(stock, shelf, block);
    struct yb_stock_use use = {.parent = block == 0 ? YB_STOCK_NO_BLOCK : block - 1,
                               .position = block + 1};

    switch (unit_random(seed) % 8) {
    case 0:
        if (copy != NULL && model->pinned[shelf][block] == 0) {
            yb_stock_remove(stock, copy);
            model->has[shelf][block] = false;
        }
        break;
    case 1:
        if (copy != NULL && model->pinned[shelf][block] < 3) {
            assert_int_equal(yb_stock_pin(stock, copy), YB_OK);
            model->pinned[shelf][block]++;
        }
        break;
    case 2:
    case 3:
        if (copy != NULL && model->pinned[shelf][block] > 0) {
            yb_stock_unpin(stock, copy);
            model->pinned[shelf][block]--;
        }
        break;
    default:
        if (yb_stock_put(stock, shelf, block, &use) == YB_OK) {
            model->has[shelf][block] = true;
        }
        break;
    }
}

static void
test_sim_stock__it_has_what_a_plain_table_has_and_balances(void **state)
{
    static const char *const policies[] = {"lru", "lfu", "s3fifo", "trajectory"};
    uint64_t rooms[SHELVES] = {40, 10, 0, YB_STOCK_UNBOUNDED, 25};
    uint64_t seed = unit_seed("sim_stock");

    (void)state;
    for (unsigned policy = 0; policy < 4; policy++) {
        static struct model model;
        struct yb_stock *stock;

        memset(&model, 0, sizeof(model));
        stock = stock_with(&model, policies[policy], rooms);
        for (unsigned i = 0; i < 8000; i++) {
            one_step(stock, &model, &seed);
            if (i % 100 == 0) {
                compare(stock, &model);
            }
        }
        compare(stock, &model);
        for (uint32_t i = 0; i < SHELVES; i++) {
            struct yb_stock_counts counts = yb_stock_counts(stock, i);

            assert_int_equal(counts.put, counts.evicted + counts.removed + counts.present);
            assert_int_equal(counts.evicted, model.evicted[i]);
            assert_true(counts.present <= rooms[i]);
        }
        yb_stock_destroy(&stock);
    }
}

static void
test_sim_stock__an_unknown_policy_is_refused(void **state)
{
    struct yb_stock *stock;
    uint32_t shelf = 9;

    (void)state;
    assert_int_equal(yb_stock_create(1, gone, NULL, &stock), YB_OK);
    assert_int_equal(yb_stock_add_shelf(stock, "none such", 5, &shelf), YB_INVALID);
    assert_int_equal(shelf, 9);
    yb_stock_destroy(&stock);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_sim_stock__the_least_recently_used_goes_and_a_prefix_stays_before_its_suffix),
        cmocka_unit_test(test_sim_stock__without_room_nothing_is_taken),
        cmocka_unit_test(test_sim_stock__policies_are_told_the_position_and_the_request),
        cmocka_unit_test(test_sim_stock__policies_are_told_how_long_the_answer_is),
        cmocka_unit_test(test_sim_stock__it_has_what_a_plain_table_has_and_balances),
        cmocka_unit_test(test_sim_stock__an_unknown_policy_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
