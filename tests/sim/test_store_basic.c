/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a whole store, in one thread and virtual time, does what it promises when nothing fails.
 */
#include "../unit/unit.h"

#include "store_world.h"

static struct store_world *
begin_with(struct store_options options)
{
    struct store_world *world;

    options.seed = unit_seed("store_basic");
    world = store_world_create(&options);

    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    assert_true(store_ready(world));
    return world;
}

static struct store_world *
begin(uint32_t nodes, uint32_t clients)
{
    return begin_with((struct store_options){.nodes = nodes, .clients = clients});
}

static void
test_store__finds_what_was_put_from_everywhere_until_it_is_removed(void **state)
{
    struct store_world *world = begin(3, 2);
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_get(world, 0, 1, &value), YB_NOT_FOUND);
    assert_int_equal(store_exist(world, 0, 1), YB_NOT_FOUND);
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    assert_int_equal(value, 77);
    assert_int_equal(store_exist(world, 1, 1), YB_OK);
    assert_int_equal(store_put(world, 1, 1, 78, false), YB_EXISTS);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 77);
    assert_int_equal(store_remove(world, 1, 1), YB_OK);
    assert_int_equal(store_get(world, 0, 1, &value), YB_NOT_FOUND); /* By a hint, too. */
    assert_int_equal(store_remove(world, 1, 1), YB_NOT_FOUND);
    assert_int_equal(store_put(world, 1, 1, 79, false), YB_OK);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 79);
    store_world_destroy(&world);
}

static void
test_store__has_forgotten_each_key_when_all_is_removed_without_force(void **state)
{
    struct store_world *world = begin(1, 2);
    struct yb_sim_link slow = yb_sim_link_default();
    struct store_op *op;

    (void)state;
    slow.delay_ns = 50 * YB_NS_PER_MS; /* The node tells the directory late. */
    for (uint32_t key = 0; key < 30; key++) {
        assert_int_equal(store_put(world, 0, key, key, false), YB_OK);
    }
    store_run_ms(world, 1000); /* Nobody reads them any more. */
    yb_sim_set_link(world->sim, store_node(world, 0)->host, store_directory(world)->host, &slow);
    op = store_op(world, 1, YB_CLIENT_REMOVE_ALL, NULL, 0, 3000);
    store_submit(op);
    store_run_ms(world, 20);
    assert_int_equal(op->done, 0); /* The directory could still name them to others. */
    assert_true(store_settle(world, 3000));
    assert_int_equal(op->batch.status, YB_OK);
    assert_int_equal(op->batch.total, 30);
    for (uint32_t key = 0; key < 30; key++) {
        assert_int_equal(store_exist(world, 0, key), YB_NOT_FOUND);
        assert_int_equal(store_put(world, 0, key, key, false), YB_OK);
    }
    store_world_destroy(&world);
}

static void
test_store__replaces_and_shows_only_the_newest_version(void **state)
{
    struct store_world *world = begin(3, 2);
    uint64_t value = 0;

    (void)state;
    for (uint64_t i = 1; i <= 20; i++) {
        assert_int_equal(store_put(world, (uint32_t)(i % 2), 5, i, true), YB_OK);
        assert_int_equal(store_get(world, 0, 5, &value), YB_OK);
        assert_int_equal(value, i);
        assert_int_equal(store_get(world, 1, 5, &value), YB_OK);
        assert_int_equal(value, i);
    }
    store_world_destroy(&world);
}

static void
test_store__a_node_that_is_not_reached_is_not_said_to_be_full(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    store_stall(store_node(world, 0), true);
    for (uint32_t key = 0; key < 10; key++) { /* It fails, is suspected, is dead. */
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 500 + 1000 * key);

        store_value(op, 0, 77, 100);
        store_submit(op);
        assert_true(store_settle(world, 20000));
        assert_int_not_equal(op->items[0].status, YB_OK);
        assert_int_not_equal(op->items[0].status, YB_NO_SPACE);
    }
    store_world_destroy(&world);
}

/* On a link of 30 ms it takes 240 to connect anew and be answered. Who is the only one to have a
 * block, and failed, has that time; and no more than a multiple of it if it is silent (S22). */
static void
test_store__a_node_behind_a_slow_link_is_tried_as_long_as_that_takes(void **state)
{
    struct store_world *world = begin(1, 2);
    struct yb_sim_link slow = yb_sim_link_default();
    const uint32_t key = 1;
    uint64_t value = 0;
    struct store_op *op;

    (void)state;
    slow.delay_ns = 30 * YB_NS_PER_MS;
    yb_sim_set_link(world->sim, store_node(world, 0)->host, store_client(world, 0)->host, &slow);
    assert_int_equal(store_put(world, 1, key, 77, false), YB_OK);
    for (uint32_t round = 0; round < 5; round++) {
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
        op = store_op(world, 0, YB_CLIENT_GET, &key, 1, 10000);
        store_submit(op);
        store_run_ms(world, 20); /* It is on its way there. */
        assert_true(
            yb_sim_cut(world->sim, store_client(world, 0)->host, store_node(world, 0)->host) > 0);
        assert_true(store_settle(world, 20000));
        assert_int_equal(op->items[0].status, YB_OK);
    }
    store_stall(store_node(world, 0), true);
    for (uint32_t round = 0; round < 3; round++) {
        op = store_op(world, 0, YB_CLIENT_GET, &key, 1, round == 0 ? 500 : 10000);
        store_submit(op);
        assert_true(store_settle(world, round == 0 ? 1000 : 2500));
        assert_int_not_equal(op->items[0].status, YB_OK);
    }
    store_world_destroy(&world);
}

static void
test_store__one_cut_with_many_calls_under_way_is_one_failure(void **state)
{
    enum { UNDER_WAY = 6 };
    struct store_world *world = begin(1, 2);
    struct yb_sim_link slow = yb_sim_link_default();
    struct store_op *ops[UNDER_WAY + 1];

    (void)state;
    slow.delay_ns = 3 * YB_NS_PER_MS;
    for (uint32_t key = 0; key <= UNDER_WAY; key++) {
        assert_int_equal(store_put(world, 1, key, key, false), YB_OK);
    }
    yb_sim_set_link(world->sim, store_node(world, 0)->host, store_client(world, 0)->host, &slow);
    for (uint32_t key = 0; key <= UNDER_WAY; key++) {
        if (key == UNDER_WAY) { /* They are at the node, each in a message of its own. */
            store_run_ms(world, 8);
            assert_true(yb_sim_cut(world->sim, store_client(world, 0)->host,
                                   store_node(world, 0)->host) > 0);
            store_run_ms(world, 8);
        }
        ops[key] = store_op(world, 0, YB_CLIENT_GET, &key, 1, 3000);
        store_submit(ops[key]);
    }
    assert_true(store_settle(world, 10000));
    for (uint32_t key = 0; key <= UNDER_WAY; key++) {
        assert_int_equal(ops[key]->items[0].status, YB_OK);
    }
    store_world_destroy(&world);
}

/* Whatever is on its way when time is up. */
static void
test_store__where_no_node_is_a_put_says_so(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_sim_link link = yb_sim_link_default();
    struct store_op *ops[60];

    (void)state;
    store_crash(store_node(world, 0), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 5000);
    link.delay_ns = 5 * YB_NS_PER_MS;
    yb_sim_set_link(world->sim, store_client(world, 0)->host, store_directory(world)->host, &link);
    for (uint32_t key = 0; key < 60; key++) {
        ops[key] = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 200 + key);
        store_value(ops[key], 0, key, 100);
        store_submit(ops[key]);
    }
    store_run_ms(world, 1000);
    for (uint32_t key = 0; key < 60; key++) {
        assert_int_equal(ops[key]->done, 1);
        assert_int_equal(ops[key]->items[0].status, YB_UNREACHABLE);
    }
    store_world_destroy(&world);
}

/* It was announced. Who wants the key next need not wait for somebody who has given up. */
static void
test_store__a_put_that_found_no_node_keeps_nobody_waiting(void **state)
{
    struct store_world *world = begin(1, 2);
    const uint32_t key = 1;
    struct store_op *op;

    (void)state;
    store_crash(store_node(world, 0), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 5000);
    op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 300);
    store_value(op, 0, 77, 100);
    store_submit(op);
    store_run_ms(world, 150);
    assert_int_equal(store_exist(world, 1, key), YB_IN_PROGRESS);
    assert_true(store_settle(world, 1000));
    assert_int_equal(op->items[0].status, YB_UNREACHABLE);
    store_run_ms(world, 5); /* The word is on its way. */
    assert_int_equal(store_exist(world, 1, key), YB_NOT_FOUND);
    store_world_destroy(&world);
}

/* It hears of the members by nothing else than the answers that it waits for. */
static void
look_seldom(uint32_t number, struct yb_client_core_options *options)
{
    (void)number;
    options->members_ms = 60000;
}

static void
test_store__a_put_that_waits_for_a_node_asks_seldom_and_goes_on_when_one_comes(void **state)
{
    struct store_world *world =
        begin_with((struct store_options){.nodes = 1, .clients = 1, .tune_client = look_seldom});
    const struct yb_client_core *core;
    struct yb_client_counters before, after;
    uint64_t began_ns, value = 0;
    const uint32_t key = 1;
    struct store_op *op;

    (void)state;
    store_crash(store_node(world, 0), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 5000);
    core = store_client(world, 0)->life->client;
    yb_client_core_counters(core, &before);
    op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 20000);
    store_value(op, 0, 77, 100);
    store_submit(op);
    store_run_ms(world, 5000);
    yb_client_core_counters(core, &after);
    assert_in_range(after.calls - before.calls, 1, 150); /* Of 1700, if it asked every 3 ms. */
    store_start(store_node(world, 0));
    while (!store_ready(world)) {
        store_run_ms(world, 1);
    }
    began_ns = yb_sim_now_ns(world->sim);
    assert_true(store_settle(world, 10000));
    assert_int_equal(op->items[0].status, YB_OK);
    assert_in_range(op->ended_ns - began_ns, 0, 200 * YB_NS_PER_MS); /* It need not rest on. */
    assert_int_equal(store_get(world, 0, key, &value), YB_OK);
    store_world_destroy(&world);
}

/* A lookup names four. */
static void
test_store__reads_are_spread_over_more_replicas_than_a_lookup_names(void **state)
{
    struct store_world *world = begin(8, 2);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 80; key++) {
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 10000);

        store_value(op, 0, key, 100);
        op->batch.put.replicas = 8;
        store_submit(op);
        assert_true(store_settle(world, 20000));
        assert_int_equal(op->items[0].replicas, 8);
        assert_int_equal(store_get(world, 1, key, &value), YB_OK);
        assert_int_equal(value, key);
    }
    for (uint32_t i = 0; i < 8; i++) {
        struct yb_node_info info;

        yb_node_info(store_node(world, i)->life->node, &info);
        assert_in_range(info.gets, 2, 30);
    }
    store_world_destroy(&world);
}

static void
test_store__a_dead_node_takes_only_its_own_blocks(void **state)
{
    struct store_world *world = begin(3, 1);
    uint64_t value = 0;
    uint32_t found = 0;

    (void)state;
    for (uint32_t key = 0; key < 30; key++) {
        assert_int_equal(store_put(world, 0, key, key, false), YB_OK);
    }
    store_crash(store_node(world, 1), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 3000);
    for (uint32_t key = 0; key < 30; key++) {
        enum yb_status status = store_get(world, 0, key, &value);

        assert_true(status == YB_OK || status == YB_NOT_FOUND);
        found += status == YB_OK;
        assert_int_equal(store_exist(world, 0, key), status);
        assert_int_equal(store_put(world, 0, key, key + 100, false),
                         status == YB_OK ? YB_EXISTS : YB_OK);
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
    }
    assert_true(found > 0);
    store_world_destroy(&world);
}

static void
test_store__a_directory_that_starts_again_forgets_nothing_acknowledged(void **state)
{
    struct store_world *world = begin(2, 1);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 30; key++) {
        assert_int_equal(store_put(world, 0, key, key, false), YB_OK);
    }
    store_crash(store_directory(world), YB_SIM_DEATH_RESET);
    store_run_ms(world, 50);
    store_start(store_directory(world));
    for (uint32_t i = 0; i < 500 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    assert_true(store_ready(world));
    for (uint32_t key = 0; key < 30; key++) {
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
        assert_int_equal(value, key);
        assert_int_equal(store_put(world, 0, key, 1000, false), YB_EXISTS);
    }
    store_world_destroy(&world);
}

static void
test_store__a_put_under_way_outlives_a_directory_that_starts_again(void **state)
{
    struct store_options options = {
        .seed = unit_seed("store_basic"), .nodes = 1, .clients = 1, .lease_ms = 10000};
    struct store_world *world = store_world_create(&options);
    uint64_t value = 0;

    (void)state;
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    for (uint32_t key = 0; key < 10; key++) {
        assert_int_equal(store_put(world, 0, key, key, false), YB_OK);
    }
    for (uint32_t round = 0; round < 10; round++) {
        uint32_t key = 100 + round;
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 20000);

        store_value(op, 0, key, 100);
        store_submit(op);
        store_run_ms(world, round / 3); /* Somewhere between its announcement and its grant. */
        store_crash(store_directory(world), YB_SIM_DEATH_RESET);
        store_start(store_directory(world));
        assert_true(store_settle(world, 6000)); /* Before a lease has run out. */
        assert_int_equal(op->items[0].status, YB_OK);
        for (uint32_t i = 0; i < 600 && !store_ready(world); i++) {
            store_run_ms(world, 10);
        }
        assert_true(store_ready(world));
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
        assert_int_equal(value, key);
        assert_int_equal(store_get(world, 0, 5, &value), YB_OK);
    }
    store_world_destroy(&world);
}

static void
on_ended(struct yb_client_batch *batch)
{
    *(bool *)batch->owner = true;
}

static void
test_store__a_question_that_is_cancelled_before_it_was_asked_ends(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_client_core *client = store_client(world, 0)->life->client;
    bool ended = false;
    struct yb_client_item item = {.key = "key", .key_bytes = 3, .grant = 7, .size = 7};
    struct yb_client_batch batch = {
        .kind = YB_CLIENT_EXIST,
        .deadline_ns = YB_NEVER,
        .items = &item,
        .count = 1,
        .done = on_ended,
        .owner = &ended,
    };

    (void)state;
    assert_int_equal(store_exist(world, 0, 1), YB_NOT_FOUND);
    assert_int_equal(yb_client_core_submit(client, &batch), YB_OK);
    yb_client_core_cancel(client, &batch);
    store_run_ms(world, 100);
    assert_true(ended);
    assert_int_equal(item.status, YB_CANCELLED);
    assert_true(item.grant == 0 && item.size == 0); /* Nothing of an earlier answer. */
    assert_int_equal(store_exist(world, 0, 1), YB_NOT_FOUND);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store__finds_what_was_put_from_everywhere_until_it_is_removed),
        cmocka_unit_test(test_store__has_forgotten_each_key_when_all_is_removed_without_force),
        cmocka_unit_test(test_store__replaces_and_shows_only_the_newest_version),
        cmocka_unit_test(test_store__a_node_that_is_not_reached_is_not_said_to_be_full),
        cmocka_unit_test(test_store__where_no_node_is_a_put_says_so),
        cmocka_unit_test(test_store__a_put_that_found_no_node_keeps_nobody_waiting),
        cmocka_unit_test(
            test_store__a_put_that_waits_for_a_node_asks_seldom_and_goes_on_when_one_comes),
        cmocka_unit_test(test_store__a_node_behind_a_slow_link_is_tried_as_long_as_that_takes),
        cmocka_unit_test(test_store__one_cut_with_many_calls_under_way_is_one_failure),
        cmocka_unit_test(test_store__reads_are_spread_over_more_replicas_than_a_lookup_names),
        cmocka_unit_test(test_store__a_dead_node_takes_only_its_own_blocks),
        cmocka_unit_test(test_store__a_directory_that_starts_again_forgets_nothing_acknowledged),
        cmocka_unit_test(test_store__a_put_under_way_outlives_a_directory_that_starts_again),
        cmocka_unit_test(test_store__a_question_that_is_cancelled_before_it_was_asked_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
