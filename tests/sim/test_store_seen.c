/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whoever is told that a key is there does not read what was removed before, although that
 *   removal has not been answered and a node still serves what it has not heard of (RULES H4); and
 *   whoever reads a key between two versions is not told that it is not there (A11).
 * Method: tables of steps (store_steps.h): a node that holds the block is cut off from the
 *   directory and serves it to a client with a hint until its lease is over; the key is put again
 *   elsewhere.
 */
#include "../unit/unit.h"

#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

#define PLAY(nodes, clients, ...)                \
    ((void)state, store_play((nodes), (clients), \
                             (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}}))

#define READS  200u
#define WORLDS 6u

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

/* Value 77 of key 1 is removed, and client 1 still reads it from node 1. */
#define REMOVED_AND_READ                                                                          \
    {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_GET, .client = 1, .key = 1, .value = 77}, \
        {STEP_PART, .node = 1}, {STEP_REMOVE, .key = 1, .as = 1}, {STEP_WAIT, .ms = 50},          \
    {                                                                                             \
        STEP_EXIST, .client = 2, .key = 1, .wanted = YB_NOT_FOUND                                 \
    }

static void
test_seen__what_is_put_after_a_removal_is_there_when_nobody_serves_what_was_removed(void **state)
{
    PLAY(2, 3, REMOVED_AND_READ, {STEP_PUT, .key = 1, .value = 78, .node = 2, .as = 2},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 2, .key = 1, .wanted = YB_IN_PROGRESS},
         {STEP_GET, .client = 2, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_OPEN, .as = 1}, {STEP_OPEN, .as = 2},
         {STEP_ENDED, .as = 1}, {STEP_ENDED, .as = 2}, {STEP_EXIST, .client = 2, .key = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 78},
         {STEP_GET, .client = 2, .key = 1, .value = 78});
}

static void
test_seen__so_is_what_replaces_and_who_puts_it_again_waits(void **state)
{
    PLAY(2, 3, REMOVED_AND_READ, {STEP_REPLACE, .key = 1, .value = 78, .node = 2, .as = 2},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 2, .key = 1, .wanted = YB_IN_PROGRESS},
         {STEP_PUT, .client = 2, .key = 1, .value = 79, .node = 2, .as = 3}, {STEP_WAIT, .ms = 50},
         {STEP_OPEN, .as = 3}, {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_OPEN, .as = 2},
         {STEP_ENDED, .as = 3, .wanted = YB_EXISTS}, {STEP_ENDED, .as = 2}, {STEP_ENDED, .as = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 78});
}

/* Between versions there is no gap, and what is acknowledged does not go away again. */
static void
test_seen__what_takes_its_place_does_not_hide_what_was_acknowledged(void **state)
{
    PLAY(3, 3, REMOVED_AND_READ, {STEP_PUT, .key = 1, .value = 78, .node = 2, .as = 2},
         {STEP_WAIT, .ms = 150}, {STEP_PART, .node = 2},
         {STEP_REPLACE, .client = 2, .key = 1, .value = 79, .node = 3, .as = 3},
         {STEP_WAIT, .ms = 20}, {STEP_EXIST, .client = 2, .key = 1, .wanted = YB_IN_PROGRESS},
         {STEP_ENDED, .as = 1}, {STEP_EXIST, .client = 2, .key = 1}, {STEP_OPEN, .as = 3},
         {STEP_ENDED, .as = 3}, {STEP_EXIST, .client = 2, .key = 1},
         {STEP_GET, .client = 1, .key = 1, .value = 79});
}

/* A block that was removed before anybody was told of it has no say in what comes after it. */
static void
test_seen__what_was_removed_unseen_does_not_show_what_is_put_next(void **state)
{
    PLAY(3, 3, REMOVED_AND_READ, {STEP_PUT, .key = 1, .value = 78, .node = 2, .as = 2},
         {STEP_WAIT, .ms = 150}, {STEP_PART, .node = 2},
         {STEP_REMOVE, .client = 2, .key = 1, .as = 3}, {STEP_WAIT, .ms = 20},
         {STEP_PUT, .client = 2, .key = 1, .value = 79, .node = 3, .as = 4}, {STEP_ENDED, .as = 1},
         {STEP_EXIST, .client = 2, .key = 1, .wanted = YB_IN_PROGRESS}, {STEP_OPEN, .as = 3},
         {STEP_OPEN, .as = 4}, {STEP_ENDED, .as = 3}, {STEP_ENDED, .as = 4},
         {STEP_EXIST, .client = 2, .key = 1}, {STEP_GET, .client = 1, .key = 1, .value = 79});
}

/* Who is told that a key is not there has not asked for it to be kept. */
static void
test_seen__what_is_said_to_be_absent_is_not_held(void **state)
{
    PLAY(2, 3, {STEP_PUT, .key = 2, .value = 7, .node = 2}, REMOVED_AND_READ,
         {STEP_PUT, .key = 1, .value = 78, .node = 2, .as = 2}, {STEP_WAIT, .ms = 50},
         {STEP_EXIST, .client = 2, .key = 1, .hold_ms = 60000, .wanted = YB_IN_PROGRESS},
         {STEP_EXIST, .client = 2, .key = 2, .hold_ms = 60000}, {STEP_ENDED, .as = 1},
         {STEP_ENDED, .as = 2}, {STEP_REMOVE, .key = 1},
         {STEP_REMOVE, .key = 2, .wanted = YB_LEASED}, {STEP_PUT, .key = 1, .value = 79, .node = 2},
         {STEP_EXIST, .key = 1, .hold_ms = 60000}, {STEP_REMOVE, .key = 1, .wanted = YB_LEASED});
}

static bool
serves(struct store_world *world, uint32_t node)
{
    struct store_role *role = store_node(world, node);
    struct yb_node_info info;

    yb_node_info(role->life->node, &info);
    return info.lease_until_ns > yb_clock_now(yb_sim_host_clock(role->host));
}

/* Its node cannot be read for a while, and then it is replaced on another one; a client reads all
 * the time. */
static void
read_while_it_moves(uint64_t seed)
{
    struct store_world *world =
        store_steps_begin(&(struct store_options){.seed = seed, .nodes = 2, .clients = 2});
    struct yb_sim_link slow = yb_sim_link_default();
    struct store_op *reads[READS];
    uint32_t count = 0;
    uint32_t key = 1;

    DO(world, {STEP_REPLACE, .key = 1, .value = 77, .node = 1},
       {STEP_GET, .client = 1, .key = 1, .value = 77}, {STEP_MUTE, .node = 1},
       {STEP_WAIT, .ms = STORE_STEPS_LEASE_MS + 50});
    slow.delay_ns = 2 * YB_NS_PER_MS;
    yb_sim_set_link(world->sim, store_client(world, 1)->host, store_node(world, 0)->host, &slow);
    while (!serves(world, 0) && count < READS) { /* Each asks it six times. */
        if (count == 25) {
            yb_sim_heal(world->sim);
        }
        reads[count] = store_op(world, 1, YB_CLIENT_GET, &key, 1, 2000);
        store_submit(reads[count++]);
        store_run_ms(world, 3);
    }
    assert_true(count > 25 && count < READS);
    DO(world, {STEP_REPLACE, .key = 1, .value = 78, .node = 2});
    assert_true(store_settle(world, 3000));
    for (uint32_t i = 0; i < count; i++) {
        assert_int_not_equal(reads[i]->items[0].status, YB_NOT_FOUND);
    }
    store_steps_end(world);
}

/* RULES A11: between what the last lookup said and the node's answer it was moved, and never
 * absent. Not every world has a read that is asked in between. */
static void
test_seen__what_is_replaced_as_soon_as_its_node_can_be_read_is_not_absent(void **state)
{
    uint64_t seed = unit_seed("store_seen");

    (void)state;
    for (uint32_t i = 0; i < WORLDS; i++) {
        read_while_it_moves(seed + i);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_seen__what_is_put_after_a_removal_is_there_when_nobody_serves_what_was_removed),
        cmocka_unit_test(test_seen__so_is_what_replaces_and_who_puts_it_again_waits),
        cmocka_unit_test(test_seen__what_takes_its_place_does_not_hide_what_was_acknowledged),
        cmocka_unit_test(test_seen__what_was_removed_unseen_does_not_show_what_is_put_next),
        cmocka_unit_test(test_seen__what_is_said_to_be_absent_is_not_held),
        cmocka_unit_test(test_seen__what_is_replaced_as_soon_as_its_node_can_be_read_is_not_absent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
