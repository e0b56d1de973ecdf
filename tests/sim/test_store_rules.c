/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the interleavings that the rules of the protocol close stay closed, one test for each.
 * Method: few roles, and a network that is cut where the rule hurts. What store_judge.h checks is
 *   checked all the time, too.
 */
#include "../unit/unit.h"

#include "store_judge.h"
#include "store_world.h"

#define LEASE_MS 400u

static struct store_world *
begin(uint32_t nodes, uint32_t clients)
{
    struct store_options options = {
        .seed = unit_seed("store_rules"), .nodes = nodes, .clients = clients, .lease_ms = LEASE_MS};
    struct store_world *world = store_world_create(&options);

    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    assert_true(store_ready(world));
    return world;
}

static void
end(struct store_world *world)
{
    store_judge_loss(world->judge);
    assert_int_equal(store_judge_histories(world->judge), 0);
    store_world_destroy(&world);
}

/* Let nothing pass between the directory and a node. */
static void
part(struct store_world *world, uint32_t node, bool parted)
{
    yb_sim_block(world->sim, store_directory(world)->host, store_node(world, node)->host, parted);
    yb_sim_block(world->sim, store_node(world, node)->host, store_directory(world)->host, parted);
}

/* Begin an operation of one key and leave it to itself. */
static struct store_op *
launch(struct store_world *world, uint32_t client, uint8_t kind, uint32_t key, uint32_t deadline_ms)
{
    struct store_op *op = store_op(world, client, kind, &key, 1, deadline_ms);

    store_submit(op);
    return op;
}

static struct store_op *
launch_put(struct store_world *world, uint32_t key, uint64_t value, bool replace, uint32_t node)
{
    static const char *const names[][2] = {{"node-0", NULL}, {"node-1", NULL}, {"node-2", NULL}};
    struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

    op->batch.put.preferred = names[node];

    store_value(op, 0, value, 500);
    op->batch.put.replace = replace;
    store_submit(op);
    return op;
}

static enum yb_status
flush(struct store_world *world, uint32_t client, uint32_t deadline_ms)
{
    struct store_op *op = store_op(world, client, YB_CLIENT_REMOVE_ALL, NULL, 0, deadline_ms);

    op->batch.force = true;
    store_submit(op);
    assert_true(store_settle(world, deadline_ms + 10000));
    return op->batch.status;
}

/* Run until an operation is done; what `reader` reads of the key meanwhile must be `value` or a
 * miss. Returns how often it was read. */
static uint32_t
read_until_done(struct store_world *world, const struct store_op *op, uint32_t reader, uint32_t key,
                uint64_t value)
{
    uint32_t reads = 0;

    for (uint32_t i = 0; i < 1000 && op->done == 0; i++) {
        struct store_op *read = launch(world, reader, YB_CLIENT_GET, key, 10);

        store_run_ms(world, 15);
        assert_true(read->done);
        if (read->items[0].status == YB_OK) {
            assert_int_equal(read->values[0], value);
            reads++;
        }
    }
    assert_true(op->done);
    return reads;
}

/* Which node holds the only block there is. */
static uint32_t
holder(struct store_world *world)
{
    uint32_t found = UINT32_MAX;

    for (uint32_t i = 0; i < world->options.nodes; i++) {
        struct yb_node_info info;

        yb_node_info(store_node(world, i)->life->node, &info);
        if (info.blocks > 0) {
            assert_int_equal(found, UINT32_MAX);
            found = i;
        }
    }
    assert_int_not_equal(found, UINT32_MAX);
    return found;
}

/* ---- A5 ------------------------------------------------------------------------------------- */

static void
test_a5__a_removal_waits_for_a_node_that_cannot_hear_of_it(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *removal;
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK); /* It has a hint now. */
    part(world, holder(world), true);
    removal = launch(world, 0, YB_CLIENT_REMOVE, 1, 5000);
    assert_true(read_until_done(world, removal, 1, 1, 77) > 5);
    assert_int_equal(removal->items[0].status, YB_OK);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_not_equal(store_get(world, 1, 1, &value), YB_OK);
    }
    yb_sim_heal(world->sim);
    store_run_ms(world, 2000);
    assert_int_equal(store_get(world, 1, 1, &value), YB_NOT_FOUND);
    end(world);
}

static void
test_a5__a_second_removal_finds_nothing_only_when_there_is_nothing(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *first;
    struct store_op *second;
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    part(world, holder(world), true);
    first = launch(world, 0, YB_CLIENT_REMOVE, 1, 20);
    store_run_ms(world, 50);
    assert_int_equal(first->items[0].status, YB_IN_DOUBT);
    second = launch(world, 0, YB_CLIENT_REMOVE, 1, 5000);
    assert_true(read_until_done(world, second, 1, 1, 77) > 5);
    assert_int_equal(second->items[0].status, YB_NOT_FOUND);
    assert_int_not_equal(store_get(world, 1, 1, &value), YB_OK);
    end(world);
}

static void
test_a5__dead_is_dead(void **state)
{
    struct store_world *world = begin(2, 1);
    struct yb_node_info info;
    uint64_t value = 0;
    uint32_t node;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    node = holder(world);
    part(world, node, true);
    store_run_ms(world, 4 * LEASE_MS);
    assert_int_equal(store_exist(world, 0, 1), YB_NOT_FOUND);
    assert_int_equal(store_remove(world, 0, 1), YB_NOT_FOUND);
    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < 100000 && !store_ready(world); i++) {
        (void)yb_sim_step(world->sim);
    }
    for (uint32_t i = 0; i < 300; i++) { /* Not even until its inventory is answered. */
        store_check(world);
        (void)yb_sim_step(world->sim);
    }
    store_run_ms(world, 1000);
    assert_true(store_ready(world));
    yb_node_info(store_node(world, node)->life->node, &info);
    assert_int_equal(info.blocks, 0);
    assert_int_equal(store_get(world, 0, 1, &value), YB_NOT_FOUND);
    assert_int_equal(store_put(world, 0, 1, 78, false), YB_OK);
    end(world);
}

static void
test_a5__a_flush_outlives_the_directory(void **state)
{
    struct store_world *world = begin(1, 1);
    struct store_op *op;
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    part(world, 0, true);
    op = store_op(world, 0, YB_CLIENT_REMOVE_ALL, NULL, 0, 5000);
    op->batch.force = true;
    store_submit(op);
    store_run_ms(world, 30);
    assert_false(op->done); /* The node has not heard of it. */
    store_crash(store_directory(world), YB_SIM_DEATH_SILENT);
    store_start(store_directory(world));
    yb_sim_heal(world->sim);
    assert_true(store_settle(world, 10000));
    for (uint32_t i = 0; i < 300 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    assert_int_equal(store_get(world, 0, 1, &value), YB_NOT_FOUND);
    assert_int_equal(store_exist(world, 0, 1), YB_NOT_FOUND);
    assert_int_equal(store_put(world, 0, 1, 78, false), YB_OK);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 78);
    end(world);
}

static void
test_a5__a_flush_is_a_miss_everywhere_at_once(void **state)
{
    struct store_world *world = begin(3, 2);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 12; key++) {
        assert_int_equal(store_put(world, 0, key, key + 1, false), YB_OK);
        assert_int_equal(store_get(world, 1, key, &value), YB_OK);
    }
    assert_int_equal(flush(world, 0, 3000), YB_OK);
    for (uint32_t key = 0; key < 12; key++) {
        assert_int_equal(store_get(world, 1, key, &value), YB_NOT_FOUND);
    }
    end(world);
}

/* ---- A7, A8 --------------------------------------------------------------------------------- */

static void
test_a7__replicas_of_one_key_are_of_one_put(void **state)
{
    struct store_world *world = begin(3, 3);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 30; key++) {
        struct store_op *ops[3];
        uint32_t good = 0;

        for (uint32_t i = 0; i < 3; i++) {
            ops[i] = store_op(world, i, YB_CLIENT_PUT, &key, 1, 3000);
            store_value(ops[i], 0, key * 3 + i + 1, 700);
            ops[i]->batch.put.replicas = 2;
            ops[i]->batch.put.replace = key % 2 == 0;
            store_submit(ops[i]);
        }
        assert_true(store_settle(world, 10000));
        for (uint32_t i = 0; i < 3; i++) {
            good += ops[i]->items[0].status == YB_OK;
        }
        assert_true(key % 2 == 0 ? good == 3 : good == 1);
        for (uint32_t i = 0; i < 3; i++) {
            uint64_t other = 0;

            assert_int_equal(store_get(world, i, key, i == 0 ? &value : &other), YB_OK);
            assert_true(i == 0 || value == other);
        }
    }
    assert_int_equal(store_judge_histories(world->judge), 0);
    end(world);
}

static void
test_a8__what_is_not_granted_is_not_acknowledged(void **state)
{
    struct store_world *world = begin(1, 2);
    struct store_op *put;
    struct store_op *read;
    uint64_t value = 0;

    (void)state;
    part(world, 0, true);
    put = launch_put(world, 1, 77, false, 0);
    store_run_ms(world, LEASE_MS / 2);
    assert_false(put->done);
    read = launch(world, 1, YB_CLIENT_GET, 1, 100);
    store_run_ms(world, 120);
    assert_int_not_equal(read->items[0].status, YB_OK);
    yb_sim_heal(world->sim);
    assert_true(store_settle(world, 10000));
    if (put->items[0].status == YB_OK) {
        assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    }
    end(world);
}

/* ---- A9 ------------------------------------------------------------------------------------- */

static void
test_a9__nothing_is_absent_before_everybody_was_heard(void **state)
{
    struct store_world *world = begin(2, 1);
    struct store_op *put;
    struct store_op *removal;
    struct store_op *question;
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_put(world, 0, 2, 88, false), YB_OK);
    store_crash(store_directory(world), YB_SIM_DEATH_RESET);
    store_run_ms(world, 1); /* They hear that it is gone, and not that it is back. */
    part(world, 0, true);
    part(world, 1, true);
    store_start(store_directory(world));
    put = launch_put(world, 1, 78, false, 0);
    removal = launch(world, 0, YB_CLIENT_REMOVE, 2, 5000);
    store_run_ms(world, 60);
    assert_false(put->done);
    question = launch(world, 0, YB_CLIENT_EXIST, 1, 100);
    store_run_ms(world, 20);
    assert_int_equal(question->items[0].status, YB_REBUILDING);
    yb_sim_heal(world->sim);
    assert_true(store_settle(world, 10000));
    for (uint32_t i = 0; i < 300 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    assert_int_equal(put->items[0].status, YB_EXISTS);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 77);
    assert_true(removal->items[0].status == YB_REBUILDING || removal->items[0].status == YB_OK);
    assert_int_equal(store_exist(world, 0, 2),
                     removal->items[0].status == YB_OK ? YB_NOT_FOUND : YB_OK);
    end(world);
}

static void
test_a9__another_cluster_begins_empty(void **state)
{
    struct store_world *world = begin(3, 3);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_put(world, key % 3, key, key + 1, false), YB_OK);
    }
    assert_int_equal(flush(world, 0, 3000), YB_OK);
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_put(world, key % 3, key, key + 11, false), YB_OK);
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
    }
    store_crash(store_directory(world), YB_SIM_DEATH_RESET);
    store_start(store_directory(world)); /* The next epoch, so that the new cluster's is lower. */
    store_run_ms(world, 500);
    store_crash(store_directory(world), YB_SIM_DEATH_RESET);
    store_run_ms(world, 2 * LEASE_MS);
    world->file_bytes = 0;
    store_start(store_directory(world));
    store_run_ms(world, 1500);
    assert_true(store_ready(world));
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_get(world, 0, key, &value), YB_NOT_FOUND);
        assert_int_equal(store_put(world, key % 3, key, key + 21, false), YB_OK);
        assert_int_equal(store_get(world, (key + 1) % 3, key, &value), YB_OK);
        assert_int_equal(value, key + 21);
        assert_int_equal(store_remove(world, (key + 2) % 3, key), YB_OK);
    }
    end(world);
}

/* ---- A11 ------------------------------------------------------------------------------------ */

static void
test_a11__a_replacement_waits_until_the_old_version_is_served_nowhere(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *put;
    uint64_t value = 0;
    uint32_t node;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK); /* A hint: it was put if absent. */
    node = holder(world);
    part(world, node, true);
    put = launch_put(world, 1, 78, true, 1 - node);
    for (uint32_t i = 0; i < 1000 && put->done == 0; i++) {
        struct store_op *read = launch(world, 1, YB_CLIENT_GET, 1, 10);

        store_run_ms(world, 15);
        /* Never a miss: the one version is there until the other is. */
        assert_int_not_equal(read->items[0].status, YB_NOT_FOUND);
        assert_true(read->items[0].status != YB_OK || read->values[0] == 77 || put->done);
    }
    assert_int_equal(put->items[0].status, YB_OK);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
        assert_int_equal(value, 78);
    }
    end(world);
}

static void
test_a11__the_answer_for_an_older_version_may_come_last(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *removal;
    struct store_op *first;
    struct store_op *second;
    uint64_t value = 0;
    uint32_t node;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    node = holder(world);
    part(world, node, true);
    /* Both puts are granted at once and answered when the lease of the first holder has run out. */
    removal = launch(world, 0, YB_CLIENT_REMOVE, 1, 20);
    store_run_ms(world, 40);
    assert_int_equal(removal->items[0].status, YB_IN_DOUBT);
    first = launch_put(world, 1, 78, false, 1 - node);
    store_run_ms(world, 20);
    second = launch_put(world, 1, 79, true, 1 - node);
    store_run_ms(world, 20);
    assert_false(first->done || second->done);
    assert_true(store_settle(world, 10000));
    assert_int_equal(second->items[0].status, YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    assert_int_equal(value, 79);
    assert_int_equal(store_exist(world, 1, 1), YB_OK);
    end(world);
}

/* ---- B2, B4 --------------------------------------------------------------------------------- */

static void
test_b2__the_dead_hold_nothing(void **state)
{
    struct store_world *world = begin(2, 1);
    uint64_t value = 0;
    uint32_t node;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    node = holder(world);
    store_crash(store_node(world, node), YB_SIM_DEATH_RESET);
    store_start(store_node(world, node)); /* At once: the old life is not over. */
    store_run_ms(world, 3 * LEASE_MS);
    assert_int_equal(store_put(world, 0, 1, 78, false), YB_OK);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 78);
    end(world);
}

static void
test_b4__a_drop_that_comes_again_drops_nothing_else(void **state)
{
    struct store_world *world = begin(1, 1);
    uint64_t value = 0;

    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct store_op *removal;

        assert_int_equal(store_put(world, 0, 1, round * 2 + 1, false), YB_OK);
        removal = launch(world, 0, YB_CLIENT_REMOVE, 1, 3000);
        /* The drop arrives, its answer does not: it is sent again on another connection. */
        for (uint32_t i = 0; i < 200 + 40 * round; i++) {
            (void)yb_sim_step(world->sim);
        }
        (void)yb_sim_cut(world->sim, store_directory(world)->host, store_node(world, 0)->host);
        (void)launch_put(world, 1, round * 2 + 2, false, 0);
        assert_true(store_settle(world, 20000));
        store_run_ms(world, 500);
        assert_int_equal(store_exist(world, 0, 1), store_get(world, 0, 1, &value));
        assert_true(removal->items[0].status == YB_OK || removal->items[0].status == YB_NOT_FOUND);
        assert_int_equal(store_remove(world, 0, 1),
                         store_exist(world, 0, 1) == YB_OK ? YB_OK : YB_NOT_FOUND);
    }
    end(world);
}

/* ---- C7, C9, F7 ----------------------------------------------------------------------------- */

static void
test_c7__a_drain_loses_nothing(void **state)
{
    struct store_world *world = begin(3, 2);
    struct yb_node_info info;
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 20; key++) {
        assert_int_equal(store_put(world, 0, key, key + 1, key % 2 == 0), YB_OK);
    }
    store_drain(world, 1, true);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(store_get(world, i % 2, i % 20, &value), YB_OK);
        assert_int_equal(value, i % 20 + 1);
        store_run_ms(world, 20);
    }
    yb_node_info(store_node(world, 1)->life->node, &info);
    assert_int_equal(info.blocks, 0);
    assert_int_equal(store_judge_histories(world->judge), 0);
    end(world);
}

static void
test_c9__a_directory_that_was_stopped_kills_nobody(void **state)
{
    struct store_world *world = begin(3, 1);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 12; key++) {
        assert_int_equal(store_put(world, 0, key, key + 1, false), YB_OK);
    }
    for (uint32_t round = 0; round < 3; round++) {
        store_stall(store_directory(world), true);
        store_run_ms(world, 5 * LEASE_MS);
        store_stall(store_directory(world), false);
        store_run_ms(world, 2000);
        for (uint32_t key = 0; key < 12; key++) {
            assert_int_equal(store_get(world, 0, key, &value), YB_OK);
            assert_int_equal(value, key + 1);
        }
    }
    end(world);
}

static void
test_f7__who_cannot_be_reached_by_clients_is_not_dead(void **state)
{
    struct store_world *world = begin(2, 3);
    uint64_t value = 0;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        yb_sim_block(world->sim, store_client(world, 0)->host, store_node(world, i)->host, true);
        yb_sim_block(world->sim, store_client(world, 1)->host, store_node(world, i)->host, true);
    }
    for (uint32_t i = 0; i < 10; i++) {
        struct store_op *first = launch(world, 0, YB_CLIENT_GET, 1, 100);
        struct store_op *second = launch(world, 1, YB_CLIENT_GET, 1, 100);

        store_run_ms(world, 150);
        assert_true(first->done && second->done);
    }
    assert_int_equal(store_get(world, 2, 1, &value), YB_OK);
    assert_int_equal(value, 77);
    yb_sim_heal(world->sim);
    store_run_ms(world, 6000);
    assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
    assert_int_equal(value, 77);
    end(world);
}

/* ---- D4 ------------------------------------------------------------------------------------- */

static void
test_d4__a_replica_outlives_its_fellow(void **state)
{
    struct store_world *world = begin(3, 1);
    uint64_t value = 0;

    (void)state;
    for (uint32_t key = 0; key < 10; key++) {
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 3000);

        store_value(op, 0, key + 1, 300);
        op->batch.put.replicas = 2;
        store_submit(op);
        assert_true(store_settle(world, 5000));
        assert_int_equal(op->items[0].status, YB_OK);
        assert_int_equal(op->items[0].replicas, 2);
    }
    store_crash(store_node(world, 0), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 5000); /* Repaired meanwhile. */
    store_crash(store_node(world, 1), YB_SIM_DEATH_SILENT);
    store_run_ms(world, 2000);
    for (uint32_t key = 0; key < 10; key++) {
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
        assert_int_equal(value, key + 1);
    }
    end(world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a5__a_removal_waits_for_a_node_that_cannot_hear_of_it),
        cmocka_unit_test(test_a5__a_second_removal_finds_nothing_only_when_there_is_nothing),
        cmocka_unit_test(test_a5__dead_is_dead),
        cmocka_unit_test(test_a5__a_flush_outlives_the_directory),
        cmocka_unit_test(test_a5__a_flush_is_a_miss_everywhere_at_once),
        cmocka_unit_test(test_a7__replicas_of_one_key_are_of_one_put),
        cmocka_unit_test(test_a8__what_is_not_granted_is_not_acknowledged),
        cmocka_unit_test(test_a9__nothing_is_absent_before_everybody_was_heard),
        cmocka_unit_test(test_a9__another_cluster_begins_empty),
        cmocka_unit_test(test_a11__a_replacement_waits_until_the_old_version_is_served_nowhere),
        cmocka_unit_test(test_a11__the_answer_for_an_older_version_may_come_last),
        cmocka_unit_test(test_b2__the_dead_hold_nothing),
        cmocka_unit_test(test_b4__a_drop_that_comes_again_drops_nothing_else),
        cmocka_unit_test(test_c7__a_drain_loses_nothing),
        cmocka_unit_test(test_c9__a_directory_that_was_stopped_kills_nobody),
        cmocka_unit_test(test_f7__who_cannot_be_reached_by_clients_is_not_dead),
        cmocka_unit_test(test_d4__a_replica_outlives_its_fellow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
