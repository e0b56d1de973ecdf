/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what is held stays in its node's memory as long as it is read, and no longer (RULES D3).
 * Method: a whole store in virtual time, whose one node is short of memory.
 */
#include "../unit/unit.h"

#include "store_world.h"

#define VALUE   4000u /* A pool of 1 MiB has room for about 260. */
#define HOLD_MS 10000u
#define HELD    10u

static struct store_world *
begin_with(const struct store_options *options)
{
    struct store_world *world = store_world_create(options);

    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    for (uint32_t key = 1; key <= HELD; key++) {
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

        store_value(op, 0, key, VALUE);
        store_submit(op);
    }
    assert_true(store_settle(world, 120000));
    return world;
}

static struct store_world *
begin(uint32_t tiers)
{
    return begin_with(&(struct store_options){.seed = unit_seed("store_holds"),
                                              .nodes = 1,
                                              .clients = 2,
                                              .tiers = tiers,
                                              .policy = "lru",
                                              .tier_bytes = 8u << 20});
}

static enum yb_status
run(struct store_op *op)
{
    store_submit(op);
    assert_true(store_settle(op->world, 120000));
    return op->batch.status != YB_OK ? op->batch.status : op->items[0].status;
}

/* Put blocks that nobody wants. */
static void
press(struct store_world *world, uint32_t first)
{
    for (uint32_t i = 0; i < 300; i++) {
        uint32_t key = first + i;
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

        store_value(op, 0, key, VALUE);
        assert_int_equal(run(op), YB_OK);
    }
}

static enum yb_status
hold(struct store_world *world, uint32_t key, uint64_t *pin_out)
{
    struct store_op *op = store_op(world, 1, YB_CLIENT_HOLD, &key, 1, 5000);
    enum yb_status status;

    op->batch.hold_ms = HOLD_MS;
    status = run(op);
    *pin_out = op->items[0].pin;
    return status;
}

static enum yb_status
read_held(struct store_world *world, uint32_t key, uint64_t pin)
{
    struct store_op *op = store_op(world, 1, YB_CLIENT_GET, &key, 1, 5000);
    enum yb_status status;

    op->batch.hold_ms = HOLD_MS;
    op->items[0].held = pin;
    status = run(op);
    if (status == YB_OK) {
        assert_int_equal(op->values[0], key);
    }
    return status;
}

static enum yb_status
give_back(struct store_world *world, uint32_t key, uint64_t pin)
{
    struct store_op *op = store_op(world, 1, YB_CLIENT_RELEASE, &key, 1, 5000);

    op->items[0].pin = pin;
    return run(op);
}

static void
test_holds__what_is_read_now_and_then_stays_and_what_is_not_goes(void **state)
{
    struct store_world *world = begin(0);
    uint64_t pins[HELD + 1];

    (void)state;
    for (uint32_t key = 1; key <= HELD; key++) {
        assert_int_equal(hold(world, key, &pins[key]), YB_OK);
    }
    for (uint32_t round = 0; round < 10; round++) { /* Far beyond the first hold's end. */
        press(world, 1000 + round * 300);
        store_run_ms(world, HOLD_MS / 2);
        for (uint32_t key = 1; key <= HELD / 2; key++) {
            assert_int_equal(read_held(world, key, pins[key]), YB_OK);
        }
    }
    for (uint32_t key = HELD / 2 + 1; key <= HELD; key++) {
        uint64_t value;

        assert_int_equal(store_get(world, 1, key, &value), YB_NOT_FOUND); /* It was evicted ... */
        assert_true(read_held(world, key, pins[key]) != YB_OK);
    }
    for (uint32_t key = 1; key <= HELD / 2; key++) {
        assert_int_equal(give_back(world, key, pins[key]), YB_OK);
        assert_int_equal(read_held(world, key, pins[key]), YB_STALE);
        assert_int_equal(give_back(world, key, pins[key]), YB_CLOSED);
    }
    press(world, 500);
    for (uint32_t key = 1; key <= HELD / 2; key++) {
        uint64_t value;

        assert_int_equal(store_get(world, 1, key, &value), YB_NOT_FOUND);
    }
    store_world_destroy(&world);
}

static void
test_holds__one_that_was_not_renewed_in_time_is_over_though_the_block_is_there(void **state)
{
    struct store_world *world = begin(0);
    uint64_t pin = 0;
    uint64_t value;

    (void)state;
    assert_int_equal(hold(world, 1, &pin), YB_OK);
    store_run_ms(world, HOLD_MS + 10);
    assert_int_equal(read_held(world, 1, pin), YB_STALE);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    store_world_destroy(&world);
}

static void
test_holds__what_was_removed_or_replaced_is_not_read_by_one(void **state)
{
    struct store_world *world = begin(0);
    struct store_op *op;
    uint64_t pins[4];
    uint32_t key = 1;

    (void)state;
    for (uint32_t i = 1; i <= 3; i++) {
        assert_int_equal(hold(world, i, &pins[i]), YB_OK);
    }
    op = store_op(world, 0, YB_CLIENT_REMOVE, &key, 1, 5000);
    op->batch.force = true;
    assert_int_equal(run(op), YB_OK);
    assert_int_equal(read_held(world, 1, pins[1]), YB_NOT_FOUND);
    assert_int_equal(store_put(world, 0, 2, 77, true), YB_OK);
    assert_int_equal(read_held(world, 2, pins[2]), YB_STALE);
    store_crash(store_node(world, 0), YB_SIM_DEATH_RESET);
    store_start(store_node(world, 0));
    store_run_ms(world, 3000);
    assert_true(read_held(world, 3, pins[3]) != YB_OK);
    store_world_destroy(&world);
}

static void
test_holds__what_lies_below_memory_is_not_fetched_up_for_one(void **state)
{
    struct store_world *world = begin(1);
    uint64_t pin = 0;
    uint64_t value;

    (void)state;
    press(world, 1000);
    assert_int_equal(hold(world, 1, &pin), YB_UNSUPPORTED);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    assert_int_equal(hold(world, 1, &pin), YB_OK);
    assert_int_equal(read_held(world, 1, pin), YB_OK);
    store_world_destroy(&world);
}

static enum yb_status
hold_by_looking(struct store_world *world, uint32_t key, bool brief)
{
    struct store_op *op = store_op(world, 1, YB_CLIENT_EXIST, &key, 1, 5000);

    op->batch.hold_ms = 60000;
    op->batch.brief = brief;
    return run(op);
}

/* D1, D6: a removal without force passes by what is held, in every tier; what it takes does not
 * come back from any of them. */
static void
test_holds__below_memory_too_what_is_held_is_passed_by_when_all_is_removed(void **state)
{
    struct store_world *world = begin(2);
    struct store_op *op;
    uint64_t value;

    (void)state;
    press(world, 1000); /* Now all of it lies below memory alone. */
    for (uint32_t key = 1; key <= HELD; key += 2) {
        assert_int_equal(hold_by_looking(world, key, key % 4 == 1), YB_OK);
    }
    store_run_ms(world, 50);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK); /* One is up again. */
    assert_int_equal(store_remove(world, 0, 3), YB_LEASED);
    op = store_op(world, 0, YB_CLIENT_REMOVE_ALL, NULL, 0, 30000);
    store_submit(op);
    assert_true(store_settle(world, 60000));
    assert_int_equal(op->batch.status, YB_OK);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t key = 1; key <= HELD; key++) {
            assert_int_equal(store_get(world, 1, key, &value), key % 2 == 1 ? YB_OK : YB_NOT_FOUND);
        }
        assert_int_equal(store_get(world, 1, 1100, &value), YB_NOT_FOUND);
        store_crash(store_node(world, 0), YB_SIM_DEATH_RESET);
        store_start(store_node(world, 0));
        store_run_ms(world, 4000);
    }
    store_world_destroy(&world);
}

/* One node without room, where values above VALUE are cut; and a value of two parts. */
static struct store_world *
begin_in_parts(uint32_t key)
{
    struct store_world *world = begin_with(&(struct store_options){.seed = unit_seed("store_holds"),
                                                                   .nodes = 1,
                                                                   .clients = 2,
                                                                   .policy = "lru",
                                                                   .part_bytes = VALUE});
    struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

    store_value(op, 0, key, 2 * VALUE);
    assert_int_equal(run(op), YB_OK);
    return world;
}

/* A16, D1: what holds a value holds all of it. */
static void
hold_in_parts(bool brief)
{
    struct store_world *world = begin_in_parts(500);
    struct store_op *op;
    uint64_t value;

    assert_int_equal(hold_by_looking(world, 500, brief), YB_OK);
    press(world, 1000);
    assert_int_equal(store_get(world, 0, 500, &value), YB_OK);
    op = store_op(world, 0, YB_CLIENT_REMOVE_ALL, NULL, 0, 30000);
    store_submit(op);
    assert_true(store_settle(world, 60000));
    assert_int_equal(store_get(world, 0, 1100, &value), YB_NOT_FOUND);
    assert_int_equal(store_get(world, 0, 500, &value), YB_OK);
    assert_int_equal(store_remove(world, 0, 500), YB_LEASED);
    assert_int_equal(store_get(world, 0, 500, &value), YB_OK);
    store_world_destroy(&world);
}

static void
test_holds__a_value_in_parts_is_held_with_all_of_them(void **state)
{
    (void)state;
    hold_in_parts(false);
    hold_in_parts(true);
}

struct part {
    uint8_t key[64];
    uint32_t key_bytes;
};

static void
find_part(void *context, const struct yb_node_block_view *block)
{
    struct part *part = context;

    if (block->key_bytes == 24 && memcmp(block->key, "\0ybp", 4) == 0) {
        memcpy(part->key, block->key, block->key_bytes);
        part->key_bytes = block->key_bytes;
    }
}

/* A16: what cannot be read is not held, and goes, whoever holds what is left of it. */
static void
test_holds__what_has_lost_a_part_is_not_held(void **state)
{
    struct store_world *world = begin_in_parts(500);
    struct part part = {.key_bytes = 0};
    uint32_t key = 501; /* As the world counts: it knows of no parts. */
    struct store_op *op;

    (void)state;
    yb_node_visit(store_node(world, 0)->life->node, find_part, &part);
    op = store_op(world, 0, YB_CLIENT_REMOVE, &key, 1, 5000);
    op->items[0].key = part.key;
    op->items[0].key_bytes = part.key_bytes;
    assert_int_equal(run(op), YB_OK);
    assert_int_equal(hold_by_looking(world, 500, true), YB_NOT_FOUND);
    assert_int_equal(store_exist(world, 0, 500), YB_NOT_FOUND);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_holds__what_is_read_now_and_then_stays_and_what_is_not_goes),
        cmocka_unit_test(
            test_holds__one_that_was_not_renewed_in_time_is_over_though_the_block_is_there),
        cmocka_unit_test(test_holds__what_was_removed_or_replaced_is_not_read_by_one),
        cmocka_unit_test(test_holds__what_lies_below_memory_is_not_fetched_up_for_one),
        cmocka_unit_test(
            test_holds__below_memory_too_what_is_held_is_passed_by_when_all_is_removed),
        cmocka_unit_test(test_holds__a_value_in_parts_is_held_with_all_of_them),
        cmocka_unit_test(test_holds__what_has_lost_a_part_is_not_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
