/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a put ends IN_DOUBT when nobody can say any more what became of it, and not before: what
 *   was refused, or can be asked of the one who knows, goes on until the deadline; what was granted
 *   and has ended is not put again (RULES A7, B5).
 * Method: tables of steps (store_steps.h) in which a connection breaks under a put, its node dies,
 *   its node has not heard of a flush, its block is removed before its writer is answered, and the
 *   directory has forgotten it.
 */
#include "../unit/unit.h"

#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

/* As long as a directory remembers a write, if it has room. */
#define KEPT_MS (120u * 1000u)

#define PLAY(nodes, clients, ...)                \
    ((void)state, store_play((nodes), (clients), \
                             (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}}))

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

/* A put by client 0 to node 1, which it is connected to, waits for a grant that cannot come. */
#define PUT_WAITS                                                                    \
    {STEP_PUT, .key = 9, .value = 5, .node = 1}, {STEP_PART, .node = 1},             \
        {STEP_PUT, .key = 1, .value = 77, .node = 1, .as = 1, .deadline_ms = 20000}, \
    {                                                                                \
        STEP_WAIT, .ms = 50                                                          \
    }

static void
test_doubt__a_put_whose_connection_breaks_asks_its_node_what_became_of_it(void **state)
{
    PLAY(2, 2, PUT_WAITS, {STEP_SNAP, .node = 1}, {STEP_WAIT, .ms = 50}, {STEP_OPEN, .as = 1},
         {.kind = STEP_HEAL}, {STEP_ENDED, .as = 1}, {STEP_GET, .client = 1, .key = 1, .value = 77},
         {STEP_HOLDS, .node = 1, .value = 2}, {STEP_HOLDS, .node = 2, .value = 0});
}

/* Who would know is gone: it does not wait for its deadline, and goes to nobody else. */
static void
test_doubt__a_put_whose_node_dies_is_in_doubt_at_once(void **state)
{
    PLAY(2, 2, PUT_WAITS, {STEP_CRASH, .node = 1},
         {STEP_ENDED, .as = 1, .ms = 50, .wanted = YB_IN_DOUBT}, {STEP_HOLDS, .node = 2});
}

/* The directory refuses what is older than a flush, and its order to flush does not come through:
 * the node hears of it with a heartbeat, and the put goes on. */
static void
test_doubt__a_put_to_a_node_that_has_not_heard_of_a_flush_waits_for_that(void **state)
{
    for (uint32_t i = 0; i < 5; i++) {
        PLAY(1, 2, {STEP_PUT, .key = 9, .value = 5}, {STEP_GET, .client = 1, .key = 9, .value = 5},
             {STEP_SHUT, .node = 1, .value = 1}, {STEP_CUT, .node = 1},
             {STEP_WAIT, .ms = 60 + 17 * i}, {STEP_FLUSH, .client = 1, .as = 1},
             {STEP_WAIT, .ms = 4}, {STEP_PUT, .key = 1, .value = 78, .as = 2},
             {STEP_WAIT, .ms = 300}, {STEP_OPEN, .as = 1}, {STEP_OPEN, .as = 2},
             {STEP_SHUT, .node = 1}, {STEP_ENDED, .as = 1}, {STEP_ENDED, .as = 2},
             {STEP_GET, .key = 1, .value = 78});
    }
}

/* It is told that its block was there, and cannot announce it again before there is another
 * directory: that would grant it once more. */
static void
test_doubt__a_put_that_was_granted_and_removed_is_not_put_again(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 9, .value = 5, .node = 1}, {STEP_MUTE, .node = 1},
         {STEP_PUT, .key = 1, .value = 77, .node = 1, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1},
         {STEP_REMOVE, .client = 1, .key = 1, .as = 2}, {STEP_WAIT, .ms = 20}, {STEP_OPEN, .as = 1},
         {.kind = STEP_LONE}, {STEP_CUT, .node = 1}, {STEP_HEAR, .node = 1}, {STEP_ENDED, .as = 2},
         {STEP_WAIT, .ms = 100}, {.kind = STEP_CRASH}, {.kind = STEP_START}, {.kind = STEP_HEAL},
         {.kind = STEP_READY}, {STEP_ENDED, .as = 1, .wanted = YB_IN_DOUBT}, {STEP_WAIT, .ms = 500},
         {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND});
}

/* ---- a directory that remembers few writes --------------------------------------------------- */

static void
remember_two(struct yb_directory_options *options)
{
    options->writes_max = 2;
}

static struct store_world *
forgetful_begin(void)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_doubt"),
        .nodes = 2,
        .clients = 2,
        .tune_directory = remember_two,
    });

    /* Everybody is connected to everybody, and what was granted is forgotten. */
    DO(world, {STEP_PUT, .key = 20, .value = 5, .node = 1},
       {STEP_PUT, .key = 21, .value = 6, .node = 2},
       {STEP_PUT, .client = 1, .key = 22, .value = 7, .node = 1},
       {STEP_PUT, .client = 1, .key = 23, .value = 8, .node = 2});
    return world;
}

/* Nothing of client 0 reaches the nodes from number `from` on. */
static void
hold_up(struct store_world *world, uint32_t from)
{
    for (uint32_t i = from; i < 2; i++) {
        yb_sim_block(world->sim, store_client(world, 0)->host, store_node(world, i)->host, true);
    }
}

/* Its first replica was granted, seen, removed and forgotten when its second one comes. */
static void
test_doubt__a_second_replica_of_a_forgotten_write_does_not_bring_it_back(void **state)
{
    struct store_world *world = forgetful_begin();

    (void)state;
    hold_up(world, 1);
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 50}, {STEP_GET, .client = 1, .key = 1, .value = 77},
       {STEP_REMOVE, .client = 1, .key = 1},
       {STEP_PUT, .client = 1, .key = 2, .value = 5, .node = 1},
       {STEP_PUT, .client = 1, .key = 3, .value = 6, .node = 1}, {STEP_OPEN, .as = 1},
       {.kind = STEP_HEAL}, {STEP_ENDED, .as = 1}, {STEP_WAIT, .ms = 100},
       {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND});
    store_steps_end(world);
}

/* It takes longer than others would wait for it, and is known not to have been granted. */
static void
test_doubt__a_slow_put_of_several_replicas_is_remembered_beside_forgotten_ones(void **state)
{
    struct store_world *world = forgetful_begin();

    (void)state;
    hold_up(world, 0);
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 1000}, {STEP_OPEN, .as = 1}, {.kind = STEP_HEAL},
       {STEP_ENDED, .as = 1, .ms = 1000}, {STEP_GET, .client = 1, .key = 1, .value = 77},
       {STEP_HOLDS, .node = 1, .value = 3}, {STEP_HOLDS, .node = 2, .value = 3});
    store_steps_end(world);
}

/* Nobody knows any more that it was announced: it is, once more, and goes on. */
static void
test_doubt__a_put_of_several_replicas_that_is_forgotten_is_announced_again(void **state)
{
    struct store_world *world = forgetful_begin();

    (void)state;
    hold_up(world, 0);
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 50}, {STEP_PUT, .client = 1, .key = 2, .value = 5, .node = 1},
       {STEP_PUT, .client = 1, .key = 3, .value = 6, .node = 1}, {STEP_OPEN, .as = 1},
       {.kind = STEP_HEAL}, {STEP_ENDED, .as = 1}, {STEP_GET, .client = 1, .key = 1, .value = 77},
       {STEP_HOLDS, .node = 1, .value = 5}, {STEP_HOLDS, .node = 2, .value = 3});
    store_steps_end(world);
}

/* The same, after longer than any write is remembered, of a directory that has room for all. */
static void
test_doubt__a_second_replica_that_comes_very_late_does_not_bring_it_back(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 20, .value = 5, .node = 1},
         {STEP_PUT, .key = 21, .value = 6, .node = 2}, {STEP_PART, .node = 2},
         {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 300000},
         {STEP_WAIT, .ms = 50}, {STEP_GET, .client = 1, .key = 1, .value = 77},
         {STEP_REMOVE, .client = 1, .key = 1}, {STEP_WAIT, .ms = KEPT_MS + 5000},
         {.kind = STEP_HEAL}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 1000},
         {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_ENDED, .as = 1});
}

/* It was granted and removed, its answer did not come, and nobody remembers it. */
static void
test_doubt__a_put_that_hears_of_itself_very_late_is_not_put_again(void **state)
{
    PLAY(2, 2, {STEP_PUT, .key = 20, .value = 5, .node = 1}, {STEP_MUTE, .node = 1},
         {STEP_PUT, .key = 1, .value = 77, .node = 1, .as = 1, .deadline_ms = 300000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1},
         {STEP_REMOVE, .client = 1, .key = 1}, {STEP_WAIT, .ms = KEPT_MS + 5000},
         {.kind = STEP_HEAL}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 1000},
         {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_ENDED, .as = 1, .wanted = YB_IN_DOUBT});
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doubt__a_put_whose_connection_breaks_asks_its_node_what_became_of_it),
        cmocka_unit_test(test_doubt__a_put_whose_node_dies_is_in_doubt_at_once),
        cmocka_unit_test(test_doubt__a_put_to_a_node_that_has_not_heard_of_a_flush_waits_for_that),
        cmocka_unit_test(test_doubt__a_put_that_was_granted_and_removed_is_not_put_again),
        cmocka_unit_test(test_doubt__a_second_replica_of_a_forgotten_write_does_not_bring_it_back),
        cmocka_unit_test(
            test_doubt__a_slow_put_of_several_replicas_is_remembered_beside_forgotten_ones),
        cmocka_unit_test(
            test_doubt__a_put_of_several_replicas_that_is_forgotten_is_announced_again),
        cmocka_unit_test(test_doubt__a_second_replica_that_comes_very_late_does_not_bring_it_back),
        cmocka_unit_test(test_doubt__a_put_that_hears_of_itself_very_late_is_not_put_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
