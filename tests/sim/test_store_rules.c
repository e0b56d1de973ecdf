/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the interleavings that the rules of the protocol close stay closed, one test for each.
 * Method: few roles, and a network that is cut where the rule hurts: as a table of steps where that
 *   is enough (store_steps.h), and with somebody who speaks by hand where our own processes are too
 *   polite (store_caller.h). What store_judge.h checks is checked all the time, too. Which rule has
 *   which test, and which mutants show that it bites: docs/rules.md.
 */
#include "../unit/unit.h"

#include "directory/grant.h"
#include "store_caller.h"
#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

#define LEASE_MS STORE_STEPS_LEASE_MS
#define PLAY(nodes, clients, ...)                \
    ((void)state, store_play((nodes), (clients), \
                             (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}}))

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

static struct store_world *
begin(uint32_t nodes, uint32_t clients)
{
    return store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_rules"), .nodes = nodes, .clients = clients});
}

static void
end(struct store_world *world)
{
    store_steps_end(world);
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

static struct yb_node_info
node_info(struct store_world *world, uint32_t node)
{
    struct yb_node_info info;

    yb_node_info(store_node(world, node)->life->node, &info);
    return info;
}

static void
see_block(void *context, const struct yb_node_block_view *block)
{
    struct store_order *order = context;

    if (yb_id_equal(block->hash, order->hash)) {
        order->grant = block->grant;
    }
}

/* What the directory would say now of this key to this node. */
static struct store_order
order_now(struct store_world *world, uint32_t node, uint32_t key)
{
    struct yb_node_info info = node_info(world, node);
    struct store_order order = {
        .epoch = info.epoch, .incarnation = info.incarnation, .hash = store_hash(world, key)};

    yb_node_visit(store_node(world, node)->life->node, see_block, &order);
    return order;
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

/* Nodes that lend their pools. */
static struct store_world *
begin_lending(uint32_t nodes, uint32_t clients)
{
    return store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_rules"), .nodes = nodes, .clients = clients, .engines = true});
}

/* ---- A3 ------------------------------------------------------------------------------------- */

static void
test_a3__memory_of_a_get_that_is_over_is_written_by_nobody(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 8; round++) { /* Either node may be asked first. */
        struct store_world *world = begin(2, 2);
        struct yb_sim_link slow = yb_sim_link_default();
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &round, 1, 3000);

        store_value(op, 0, 77, 8000);
        op->batch.put.replicas = 2;
        store_submit(op);
        assert_true(store_settle(world, 5000));
        assert_int_equal(op->items[0].replicas, 2);
        slow.bytes_per_s = 20000; /* A value takes 0.4 s, and is cut off in the middle. */
        slow.piece_bytes_max = 200;
        yb_sim_set_link(world->sim, store_node(world, 0)->host, store_client(world, 1)->host,
                        &slow);
        op = launch(world, 1, YB_CLIENT_GET, round, 500);
        store_run_ms(world, 2000);
        assert_true(op->done);
        assert_int_equal(op->items[0].status, YB_OK);
        end(world); /* The world has used the memory for something else since. */
    }
}

/* ---- A5 ------------------------------------------------------------------------------------- */

static void
test_a5__a_removal_waits_for_a_node_that_cannot_hear_of_it(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 1, .value = 77, .node = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 77}, /* It has a hint now. */
         {STEP_PART, .node = 1}, {STEP_REMOVE, .key = 1, .as = 1},
         {STEP_READ, .as = 1, .client = 1, .key = 1, .value = 77},
         {STEP_GONE, .client = 1, .key = 1}, {STEP_GONE, .client = 1, .key = 1},
         {.kind = STEP_HEAL}, {STEP_WAIT, .ms = 2000},
         {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND});
}

static void
test_a5__a_second_removal_finds_nothing_only_when_there_is_nothing(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 1, .value = 77, .node = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_PART, .node = 1},
         {STEP_REMOVE, .key = 1, .deadline_ms = 20, .wanted = YB_IN_DOUBT},
         {STEP_REMOVE, .key = 1, .as = 1},
         {STEP_READ, .as = 1, .client = 1, .key = 1, .value = 77, .wanted = YB_NOT_FOUND},
         {STEP_GONE, .client = 1, .key = 1});
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
test_a5__a_lease_is_counted_from_the_question_not_from_the_answer(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_sim_link slow = yb_sim_link_default();
    struct yb_sim_host *node = store_node(world, 0)->host;
    struct yb_sim_host *directory = store_directory(world)->host;

    (void)state;
    slow.delay_ns = 60 * YB_NS_PER_MS;
    yb_sim_set_link(world->sim, node, directory, &slow);
    yb_sim_set_link(world->sim, directory, node, &slow);
    for (uint32_t round = 0; round < 16; round++) {
        uint64_t last_ns;

        store_run_ms(world, 1000 + 13 * round);
        assert_int_not_equal(node_info(world, 0).lease_until_ns, 0);
        last_ns = yb_clock_now(yb_sim_host_clock(node)); /* No question is heard after this. */
        yb_sim_block(world->sim, node, directory, true);
        store_run_ms(world, 150); /* All answers have come. */
        assert_true(node_info(world, 0).lease_until_ns <= last_ns + LEASE_MS * YB_NS_PER_MS);
        yb_sim_heal(world->sim);
    }
    end(world);
}

static void
test_a5__who_slept_through_its_lease_serves_nothing(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 1, .value = 77, .node = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_STALL, .node = 1},
         {STEP_WAIT, .ms = 4 * LEASE_MS}, {STEP_REMOVE, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_GET, .client = 1, .key = 1, .as = 1, .deadline_ms = 2000}, /* It waits there. */
         {STEP_WAIT, .ms = 50}, {STEP_OPEN, .as = 1}, {STEP_RESUME, .node = 1},
         {STEP_ENDED, .as = 1, .wanted = YB_NOT_FOUND});
}

static void
test_a5__a_flush_outlives_the_directory(void **state)
{
    PLAY(1, 1, {STEP_PUT, .key = 1, .value = 77}, {STEP_PART, .node = 1}, {STEP_FLUSH, .as = 1},
         {STEP_WAIT, .ms = 30}, {STEP_OPEN, .as = 1}, /* The node has not heard of it. */
         {STEP_CRASH, .silent = true}, {.kind = STEP_START}, {.kind = STEP_HEAL},
         {STEP_WAIT, .ms = 5000}, {.kind = STEP_READY},
         {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_EXIST, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_PUT, .key = 1, .value = 78},
         {STEP_GET, .key = 1, .value = 78});
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
    PLAY(1, 2, {STEP_PART, .node = 1}, {STEP_PUT, .key = 1, .value = 77, .as = 1},
         {STEP_WAIT, .ms = LEASE_MS / 2}, {STEP_OPEN, .as = 1}, {STEP_GONE, .client = 1, .key = 1},
         {.kind = STEP_HEAL}, {STEP_WAIT, .ms = 6000}, {.kind = STEP_READY},
         {STEP_PUT, .key = 2, .value = 5}, {STEP_GET, .client = 1, .key = 2, .value = 5});
}

static void
test_a8__what_is_not_granted_is_not_read_from_who_has_it(void **state)
{
    struct store_world *world = begin_lending(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_CLIENT);
    struct store_lent lent;

    (void)state;
    assert_int_equal(store_caller_pin(caller, store_node(world, 0), 1, 10, &lent), YB_NOT_FOUND);
    part(world, 0, true);
    (void)launch_put(world, 1, 77, false, 0);
    store_run_ms(world, 100);
    assert_int_equal(store_caller_pin(caller, store_node(world, 0), 1, 10, &lent), YB_NOT_READY);
    yb_sim_heal(world->sim);
    assert_true(store_settle(world, 10000));
    store_caller_destroy(&caller);
    end(world);
}

/* ---- A9, A10 -------------------------------------------------------------------------------- */

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
    uint64_t epoch;

    (void)state;
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_put(world, key % 3, key, key + 1, false), YB_OK);
    }
    assert_int_equal(flush(world, 0, 3000), YB_OK);
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_put(world, key % 3, key, key + 11, false), YB_OK);
        assert_int_equal(store_get(world, 0, key, &value), YB_OK);
    }
    do { /* Epochs begin anywhere: until the new cluster's is lower. */
        epoch = node_info(world, 0).epoch;
        DO(world, {.kind = STEP_CRASH}, {STEP_WAIT, .ms = 2 * LEASE_MS}, {.kind = STEP_FORGET},
           {.kind = STEP_START}, {STEP_WAIT, .ms = 1500}, {.kind = STEP_READY});
    } while (node_info(world, 0).epoch > epoch);
    for (uint32_t key = 0; key < 9; key++) {
        assert_int_equal(store_get(world, 0, key, &value), YB_NOT_FOUND);
        assert_int_equal(store_put(world, key % 3, key, key + 21, false), YB_OK);
        assert_int_equal(store_get(world, (key + 1) % 3, key, &value), YB_OK);
        assert_int_equal(value, key + 21);
        assert_int_equal(store_remove(world, (key + 2) % 3, key), YB_OK);
    }
    end(world);
}

static void
test_a10__an_order_of_another_cluster_or_life_touches_nothing(void **state)
{
    struct store_world *world = begin(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_DIRECTORY);
    struct store_role *node = store_node(world, 0);
    struct store_order order = order_now(world, 0, 1);
    struct store_order late;

    (void)state;
    DO(world, {.kind = STEP_CRASH}, {STEP_WAIT, .ms = 2 * LEASE_MS}, {.kind = STEP_FORGET},
       {.kind = STEP_START}, {STEP_WAIT, .ms = 1500}, {.kind = STEP_READY},
       {STEP_PUT, .key = 1, .value = 78});
    order.grant = 9; /* What the cluster before flushed, of a tenant that both have. */
    order.incarnation = yb_grant_epoch_start(yb_grant_epoch(order.incarnation));
    for (uint32_t life = 0; life < 8; life++, order.incarnation++) {
        assert_int_equal(store_caller_flush(caller, node, &order, NULL), YB_FENCED);
    }
    late = order_now(world, 0, 1); /* It would be heard, but for ... */
    late.epoch--;
    assert_int_equal(store_caller_drop(caller, node, &late), YB_FENCED);
    late = order_now(world, 0, 1);
    late.incarnation--;
    assert_int_equal(store_caller_drop(caller, node, &late), YB_FENCED);
    DO(world, {STEP_GET, .key = 1, .value = 78}, {STEP_PUT, .key = 2, .value = 79},
       {STEP_GET, .key = 2, .value = 79});
    late = order_now(world, 0, 1);
    assert_int_equal(store_caller_drop(caller, node, &late), YB_OK); /* As ours. */
    assert_int_equal(node_info(world, 0).blocks, 1);
    store_caller_destroy(&caller);
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
    /* Both puts are granted at once and answered when the lease of the first holder has run out. */
    PLAY(2, 2, {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_PART, .node = 1},
         {STEP_REMOVE, .key = 1, .deadline_ms = 20, .wanted = YB_IN_DOUBT},
         {STEP_PUT, .key = 1, .value = 78, .node = 2, .as = 1}, {STEP_WAIT, .ms = 20},
         {STEP_REPLACE, .key = 1, .value = 79, .node = 2, .as = 2}, {STEP_WAIT, .ms = 20},
         {STEP_OPEN, .as = 1}, {STEP_OPEN, .as = 2}, {STEP_ENDED, .as = 2}, {STEP_WAIT, .ms = 6000},
         {STEP_GET, .client = 1, .key = 1, .value = 79}, {STEP_EXIST, .client = 1, .key = 1});
}

/* Replace a key as fast as it goes, on one node and on another. */
static struct store_op *
replace_again(struct store_world *world, uint64_t value)
{
    return launch_put(world, 1, value, true, (uint32_t)(value % 3));
}

static void
test_a11__what_is_replaced_all_the_time_is_never_absent(void **state)
{
    struct store_world *world = begin(3, 2);
    struct yb_sim_link slow = yb_sim_link_default();
    struct store_op *put = replace_again(world, 100);
    struct store_op *read;
    uint64_t value = 100;

    (void)state;
    assert_true(store_settle(world, 1000));
    slow.delay_ns = 10 * YB_NS_PER_MS; /* What a lookup says is old when the node is asked. */
    for (uint32_t i = 0; i < 3; i++) {
        yb_sim_set_link(world->sim, store_client(world, 1)->host, store_node(world, i)->host,
                        &slow);
    }
    read = launch(world, 1, YB_CLIENT_GET, 1, 500);
    for (uint32_t i = 0; i < 1200; i++) {
        if (put->done) {
            assert_int_equal(put->items[0].status, YB_OK);
            put = replace_again(world, ++value);
        }
        if (read->done) {
            assert_int_not_equal(read->items[0].status, YB_NOT_FOUND);
            read = launch(world, 1, YB_CLIENT_GET, 1, 500);
        }
        store_run_ms(world, 1);
    }
    assert_true(value > 400);
    store_run_ms(world, 5000);
    assert_int_equal(store_get(world, 1, 1, &value), YB_OK); /* Now that it rests. */
    store_world_destroy(&world); /* A history of so many writes is too long to be judged. */
}

/* ---- A12 ------------------------------------------------------------------------------------ */

/* Other blocks want the memory: as many as the pool has room for. */
static void
press(struct store_world *world, uint32_t first)
{
    for (uint32_t key = first; key < first + 150; key++) {
        assert_int_equal(store_put(world, 0, key, 3900, false), YB_OK);
    }
}

static void
test_a12__lent_memory_stays_what_it_is_until_its_time_is_over(void **state)
{
    struct store_world *world = begin_lending(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_CLIENT);
    struct store_lent lent;
    bool reused = false, removed = false;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_caller_pin(caller, store_node(world, 0), 1, 2000, &lent), YB_OK);
    assert_true(lent.until_ns > store_caller_now(caller));
    assert_int_equal(store_remove(world, 0, 1), YB_OK); /* Which is not hindered by readers. */
    for (uint32_t i = 0; store_caller_now(caller) < lent.until_ns; i++) {
        press(world, 100 + 150 * (i % 4));
        if (store_caller_now(caller) < lent.until_ns) { /* As one-sided reads see it. */
            assert_true(store_value_matches(lent.bytes, lent.size, 1, 77));
        }
    }
    store_run_ms(world, 300);
    for (uint32_t i = 0; i < 8 && !reused; i++) {
        press(world, 1000 + 150 * i);
        reused = !store_value_matches(lent.bytes, lent.size, 1, 77);
    }
    assert_true(reused);
    assert_int_equal(store_caller_release(caller, store_node(world, 0), lent.pin, &removed),
                     YB_STALE); /* What came after its time is no value. */
    store_caller_destroy(&caller);
    end(world);
}

static void
test_a12__nothing_is_lent_beyond_the_lease(void **state)
{
    struct store_world *world = begin_lending(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_CLIENT);
    struct store_lent lent;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_caller_pin(caller, store_node(world, 0), 1, 5000, &lent), YB_OK);
    /* A node that is stopped bumps nothing: its memory can be read on from beside. */
    store_stall(store_node(world, 0), true);
    assert_true(store_remove(world, 0, 1) != YB_IN_DOUBT);
    assert_true(store_value_matches(lent.bytes, lent.size, 1, 77));
    assert_true(store_caller_now(caller) > lent.until_ns); /* Nobody counts it as read. */
    store_stall(store_node(world, 0), false);
    store_run_ms(world, 1000);
    store_caller_destroy(&caller);
    end(world);
}

static void
test_a12__a_release_tells_whether_the_pin_held(void **state)
{
    struct store_world *world = begin_lending(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_CLIENT);
    struct store_role *node = store_node(world, 0);
    struct store_lent lent;
    bool removed = true;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    assert_int_equal(store_caller_pin(caller, node, 1, 200, &lent), YB_OK);
    assert_int_equal(store_caller_release(caller, node, lent.pin, &removed), YB_OK);
    assert_false(removed);
    assert_int_equal(store_caller_release(caller, node, lent.pin, &removed), YB_STALE);
    assert_int_equal(store_caller_pin(caller, node, 1, 200, &lent), YB_OK);
    assert_int_equal(store_remove(world, 0, 1), YB_OK);
    assert_int_equal(store_caller_release(caller, node, lent.pin, &removed), YB_OK);
    assert_true(removed);
    assert_int_equal(store_put(world, 0, 1, 78, false), YB_OK);
    assert_int_equal(store_caller_pin(caller, node, 1, 200, &lent), YB_OK);
    store_run_ms(world, 230); /* Its time is over, and a margin is not yet. */
    assert_int_equal(store_caller_release(caller, node, lent.pin, &removed), YB_STALE);
    store_caller_destroy(&caller);
    end(world);
}

/* ---- B -------------------------------------------------------------------------------------- */

static void
test_b1__a_hint_answers_no_question_but_where_to_read(void **state)
{
    /* Client 1 has a hint of what is not there any more, and does not hear that. */
    PLAY(2, 2, {STEP_PUT, .key = 1, .value = 77, .node = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_DEAF, .client = 1, .node = 1},
         {STEP_REMOVE, .key = 1}, {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_PUT, .client = 1, .key = 1, .value = 78, .node = 2},
         {STEP_GET, .key = 1, .value = 78}, {.kind = STEP_HEAL}, {STEP_WAIT, .ms = 500},
         {STEP_GET, .client = 1, .key = 1, .value = 78});
}

static void
test_b2__the_dead_hold_nothing(void **state)
{
    PLAY(2, 1, {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_CRASH, .node = 1},
         {STEP_START, .node = 1}, /* At once: the old life is not over. */
         {STEP_WAIT, .ms = 3 * LEASE_MS}, {STEP_PUT, .key = 1, .value = 78},
         {STEP_GET, .key = 1, .value = 78});
}

static void
test_b4__a_drop_that_comes_again_drops_nothing_else(void **state)
{
    struct store_world *world = begin(1, 1);
    uint64_t value = 0;

    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct store_op *removal;
        enum yb_status there;

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
        there = store_exist(world, 0, 1);
        assert_true(there == YB_OK || there == YB_NOT_FOUND);
        assert_int_equal(store_get(world, 0, 1, &value), there);
        assert_true(removal->items[0].status == YB_OK || removal->items[0].status == YB_NOT_FOUND);
        assert_int_equal(store_remove(world, 0, 1), there);
    }
    end(world);
}

static void
test_b4__a_drop_that_comes_late_drops_nothing_else(void **state)
{
    struct store_world *world = begin(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_DIRECTORY);
    struct store_order order;

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    order = order_now(world, 0, 1);
    assert_int_equal(store_remove(world, 0, 1), YB_OK);
    assert_int_equal(store_put(world, 0, 1, 78, false), YB_OK);
    assert_int_equal(store_caller_drop(caller, store_node(world, 0), &order), YB_OK);
    DO(world, {STEP_HOLDS, .node = 1, .value = 1}, {STEP_GET, .key = 1, .value = 78});
    store_caller_destroy(&caller);
    end(world);
}

static void
small_cap(uint32_t number, struct yb_node_options *options)
{
    (void)number;
    options->ungranted_permille = 60; /* Of 1 MiB: fifteen of these values. */
}

static void
test_b6__what_waits_for_the_directory_is_bounded_and_goes(void **state)
{
    struct store_options options = {
        .seed = unit_seed("store_rules"), .nodes = 1, .clients = 4, .tune_node = small_cap};
    struct store_world *world = store_steps_begin(&options);
    uint32_t waited = 0, good = 0;

    (void)state;
    part(world, 0, true); /* For less than a lease: puts go on. */
    for (uint32_t key = 0; key < 20; key++) {
        struct store_op *op = store_op(world, key % 4, YB_CLIENT_PUT, &key, 1, 150);

        store_value(op, 0, key + 1, 4000);
        store_submit(op);
    }
    for (uint32_t ms = 0; ms < 250; ms++) {
        struct yb_node_info info = node_info(world, 0);

        waited = info.ungranted > waited ? (uint32_t)info.ungranted : waited;
        assert_in_range(info.ungranted + info.in_flight, 0, (1u << 20) / 1000 * 60);
        store_run_ms(world, 1);
    }
    assert_true(waited > 30000);
    assert_int_equal(world->open, 0);
    for (const struct store_op *op = world->ops; op != NULL; op = op->next) {
        good += op->items[0].status == YB_OK;
    }
    assert_int_equal(good, 0); /* Their time was over before the directory heard of them. */
    yb_sim_heal(world->sim);
    store_run_ms(world, 3000);
    assert_int_equal(node_info(world, 0).ungranted, 0);
    part(world, 0, true); /* And now for longer: nobody waits any more when it comes back. */
    (void)launch(world, 0, YB_CLIENT_EXIST, 200, 100);
    for (uint32_t i = 0; i < 5; i++) {
        struct store_op *op = launch_put(world, 201 + i, 5, false, 0);

        op->batch.deadline_ns = 150 * YB_NS_PER_MS;
    }
    store_run_ms(world, 100);
    assert_true(node_info(world, 0).ungranted > 0);
    store_run_ms(world, 3 * LEASE_MS);
    yb_sim_heal(world->sim);
    store_run_ms(world, 3000);
    assert_int_equal(node_info(world, 0).ungranted, 0);
    assert_int_equal(store_put(world, 0, 100, 5, false), YB_OK);
    end(world);
}

/* ---- C -------------------------------------------------------------------------------------- */

static void
all_may_wait(uint32_t number, struct yb_node_options *options)
{
    (void)number;
    options->ungranted_permille = 1000;
}

static void
test_c4__nobody_waits_for_room_with_half_of_it_in_hand(void **state)
{
    struct store_options options = {.seed = unit_seed("store_rules"),
                                    .nodes = 1,
                                    .clients = 2,
                                    .pool_bytes = 128 * 1024,
                                    .tune_node = all_may_wait};
    struct store_world *world = store_steps_begin(&options);
    struct store_op *ops[2];
    uint32_t good = 0;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) { /* Each wants most of the pool, for good. */
        uint32_t keys[12];

        for (uint32_t k = 0; k < 12; k++) {
            keys[k] = i * 12 + k;
        }
        ops[i] = store_op(world, i, YB_CLIENT_PUT, keys, 12, 20000);
        for (uint32_t k = 0; k < 12; k++) {
            store_value(ops[i], k, keys[k] + 1, 8000);
        }
        ops[i]->batch.put.hard_pin = true;
        store_submit(ops[i]);
    }
    assert_true(store_settle(world, 2000)); /* Long before their deadlines. */
    for (uint32_t i = 0; i < 24; i++) {
        enum yb_status status = ops[i / 12]->items[i % 12].status;

        assert_true(status == YB_OK || status == YB_NO_SPACE);
        good += status == YB_OK;
    }
    assert_in_range(good, 12, 16);
    assert_int_equal(node_info(world, 0).blocks, good);
    assert_int_equal(node_info(world, 0).in_flight + node_info(world, 0).ungranted, 0);
    end(world);
}

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

/* ---- D, F ----------------------------------------------------------------------------------- */

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

/* An order whose answer is lost comes again, and a heartbeat may be there before it. */
static void
test_a5__a_node_that_has_flushed_says_how_many_went_also_when_it_is_told_again(void **state)
{
    struct store_world *world = begin(1, 1);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_DIRECTORY);
    struct store_order order = order_now(world, 0, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_PUT, .key = 2, .value = 78});
    order.grant = 9;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t count = 0;

        assert_int_equal(store_caller_flush(caller, store_node(world, 0), &order, &count), YB_OK);
        assert_int_equal(count, 2);
    }
    store_caller_destroy(&caller);
    end(world);
}

static void
test_f2__only_a_directory_gives_orders(void **state)
{
    static const uint8_t roles[] = {YB_WIRE_ROLE_CLIENT, YB_WIRE_ROLE_NODE};
    struct store_world *world = begin(1, 1);

    (void)state;
    assert_int_equal(store_put(world, 0, 1, 77, false), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        struct store_caller *caller = store_caller_create(world, roles[i]);
        struct store_order order = order_now(world, 0, 1);

        assert_int_not_equal(store_caller_drop(caller, store_node(world, 0), &order), YB_OK);
        assert_int_not_equal(store_caller_flush(caller, store_node(world, 0), &order, NULL), YB_OK);
        store_caller_destroy(&caller);
    }
    store_steps_do(
        world, (const struct store_step[]){{STEP_GET, .key = 1, .value = 77}, {.kind = STEP_STOP}});
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a3__memory_of_a_get_that_is_over_is_written_by_nobody),
        cmocka_unit_test(test_a5__a_removal_waits_for_a_node_that_cannot_hear_of_it),
        cmocka_unit_test(test_a5__a_second_removal_finds_nothing_only_when_there_is_nothing),
        cmocka_unit_test(test_a5__dead_is_dead),
        cmocka_unit_test(test_a5__a_lease_is_counted_from_the_question_not_from_the_answer),
        cmocka_unit_test(test_a5__who_slept_through_its_lease_serves_nothing),
        cmocka_unit_test(test_a5__a_flush_outlives_the_directory),
        cmocka_unit_test(test_a5__a_flush_is_a_miss_everywhere_at_once),
        cmocka_unit_test(test_a7__replicas_of_one_key_are_of_one_put),
        cmocka_unit_test(test_a8__what_is_not_granted_is_not_acknowledged),
        cmocka_unit_test(test_a8__what_is_not_granted_is_not_read_from_who_has_it),
        cmocka_unit_test(test_a9__nothing_is_absent_before_everybody_was_heard),
        cmocka_unit_test(test_a9__another_cluster_begins_empty),
        cmocka_unit_test(test_a10__an_order_of_another_cluster_or_life_touches_nothing),
        cmocka_unit_test(test_a11__a_replacement_waits_until_the_old_version_is_served_nowhere),
        cmocka_unit_test(test_a11__the_answer_for_an_older_version_may_come_last),
        cmocka_unit_test(test_a11__what_is_replaced_all_the_time_is_never_absent),
        cmocka_unit_test(test_a12__lent_memory_stays_what_it_is_until_its_time_is_over),
        cmocka_unit_test(test_a12__nothing_is_lent_beyond_the_lease),
        cmocka_unit_test(test_a12__a_release_tells_whether_the_pin_held),
        cmocka_unit_test(test_b1__a_hint_answers_no_question_but_where_to_read),
        cmocka_unit_test(test_b2__the_dead_hold_nothing),
        cmocka_unit_test(test_b4__a_drop_that_comes_again_drops_nothing_else),
        cmocka_unit_test(test_b4__a_drop_that_comes_late_drops_nothing_else),
        cmocka_unit_test(test_b6__what_waits_for_the_directory_is_bounded_and_goes),
        cmocka_unit_test(test_c4__nobody_waits_for_room_with_half_of_it_in_hand),
        cmocka_unit_test(test_c7__a_drain_loses_nothing),
        cmocka_unit_test(test_c9__a_directory_that_was_stopped_kills_nobody),
        cmocka_unit_test(test_d4__a_replica_outlives_its_fellow),
        cmocka_unit_test(
            test_a5__a_node_that_has_flushed_says_how_many_went_also_when_it_is_told_again),
        cmocka_unit_test(test_f2__only_a_directory_gives_orders),
        cmocka_unit_test(test_f7__who_cannot_be_reached_by_clients_is_not_dead),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
