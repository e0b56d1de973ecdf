/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a put that waits for its grant while the directory is replaced by one that knows nothing of
 *   it has its effect once, or is in doubt: it never comes back after what ended it (RULES A7, B5).
 * Method: tables of steps (store_steps.h). In each, the first directory has granted the put, others
 *   have seen it and ended it, and one node has heard of nothing when the second directory comes.
 */
#include "../unit/unit.h"

#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

#define PLAY(nodes, clients, ...)                \
    ((void)state, store_play((nodes), (clients), \
                             (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}}))
#define LEASE_MS STORE_STEPS_LEASE_MS
#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

/* Another replica was granted, acknowledged to be replaced, and is gone. */
static void
test_restart__a_replica_that_missed_its_grant_does_not_come_after_what_replaced_it(void **state)
{
    PLAY(2, 3, {STEP_PART, .node = 2},
         {STEP_REPLACE, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_GET, .client = 1, .key = 1, .value = 77},
         {STEP_REPLACE, .client = 1, .key = 1, .value = 78, .node = 1},
         {STEP_CRASH, .silent = true}, {.kind = STEP_START}, {.kind = STEP_HEAL},
         {.kind = STEP_READY}, {STEP_ENDED, .as = 1}, {STEP_WAIT, .ms = 500},
         {STEP_GET, .client = 1, .key = 1, .value = 78},
         {STEP_GET, .client = 2, .key = 1, .value = 78});
}

/* The same, and its bytes come when the first directory is gone already. */
static void
test_restart__a_replica_whose_bytes_come_late_is_not_a_put_of_its_own(void **state)
{
    struct store_world *world = store_steps_begin(
        &(struct store_options){.seed = unit_seed("store_restart"), .nodes = 2, .clients = 2});

    (void)state;
    DO(world, {STEP_PUT, .key = 2, .value = 5, .node = 2}); /* They are connected. */
    yb_sim_block(world->sim, store_client(world, 0)->host, store_node(world, 1)->host, true);
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 50}, {STEP_GET, .client = 1, .key = 1, .value = 77},
       {STEP_REMOVE, .client = 1, .key = 1}, {.kind = STEP_CRASH}, {.kind = STEP_START},
       {.kind = STEP_READY}, {STEP_OPEN, .as = 1}, {.kind = STEP_HEAL}, {STEP_ENDED, .as = 1},
       {STEP_WAIT, .ms = 500}, {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND});
    store_steps_end(world);
}

/* Its drop has overtaken its grant, which is held up by an older block on a node that is silent. */
static void
test_restart__what_was_dropped_before_its_grant_came_is_not_granted_again(void **state)
{
    PLAY(2, 3, {STEP_PUT, .key = 1, .value = 76, .node = 2}, {STEP_PART, .node = 2},
         {STEP_REMOVE, .key = 1, .as = 1}, {STEP_WAIT, .ms = 20},
         {STEP_PUT, .client = 1, .key = 1, .value = 77, .node = 1, .as = 2, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 20}, {STEP_EXIST, .client = 2, .key = 1, .wanted = YB_IN_PROGRESS},
         {STEP_REMOVE, .client = 2, .key = 1, .as = 3}, {STEP_WAIT, .ms = LEASE_MS},
         {STEP_OPEN, .as = 2}, {STEP_OPEN, .as = 3}, {STEP_MUTE, .node = 1}, {STEP_ENDED, .as = 3},
         {STEP_ENDED, .as = 1}, {STEP_OPEN, .as = 2}, {STEP_CRASH, .silent = true},
         {.kind = STEP_START}, {.kind = STEP_HEAL}, {.kind = STEP_READY},
         {STEP_ENDED, .as = 2, .wanted = YB_IN_DOUBT}, {STEP_WAIT, .ms = 500},
         {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_EXIST, .key = 1, .wanted = YB_NOT_FOUND});
}

/* Nobody could tell it that it was dropped: it was dead, and its removal did not wait for it. */
static void
test_restart__who_died_before_its_grant_came_asks_for_no_other(void **state)
{
    PLAY(2, 2, {STEP_MUTE, .node = 1},
         {STEP_PUT, .key = 1, .value = 77, .node = 1, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {STEP_PART, .node = 1},
         {STEP_REMOVE, .client = 1, .key = 1}, {STEP_OPEN, .as = 1}, {STEP_CRASH, .silent = true},
         {.kind = STEP_START}, {.kind = STEP_HEAL}, {.kind = STEP_READY},
         {STEP_ENDED, .as = 1, .wanted = YB_IN_DOUBT}, {STEP_WAIT, .ms = 500},
         {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_EXIST, .key = 1, .wanted = YB_NOT_FOUND});
}

/* Others were told that it is there: the next directory does not say that it is not, though nobody
 * serves it yet. */
static void
test_restart__what_others_were_told_of_before_its_grant_was_heard_is_not_absent(void **state)
{
    PLAY(2, 3, {STEP_MUTE, .node = 1},
         {STEP_REPLACE, .key = 1, .value = 77, .node = 1, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {STEP_OPEN, .as = 1},
         {STEP_CRASH, .silent = true}, {.kind = STEP_START}, {.kind = STEP_HEAL},
         {.kind = STEP_READY}, {STEP_EXIST, .client = 1, .key = 1},
         {STEP_PUT, .client = 2, .key = 1, .value = 78, .node = 2, .wanted = YB_EXISTS},
         {STEP_ENDED, .as = 1, .wanted = YB_IN_DOUBT},
         {STEP_GET, .client = 2, .key = 1, .value = 77});
}

/* Nobody has heard of a grant, and whoever could have done waits for one: none has ended. */
static void
test_restart__of_several_replicas_what_waits_everywhere_is_not_absent(void **state)
{
    PLAY(2, 3, {STEP_MUTE, .node = 1}, {STEP_MUTE, .node = 2},
         {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {STEP_OPEN, .as = 1},
         {.kind = STEP_LONE}, {STEP_CRASH, .silent = true}, {.kind = STEP_START},
         {STEP_HEAR, .node = 1}, {STEP_HEAR, .node = 2}, {STEP_ENDED, .as = 1},
         {STEP_EXIST, .client = 1, .key = 1},
         {STEP_PUT, .client = 2, .key = 1, .value = 78, .node = 2, .wanted = YB_EXISTS},
         {.kind = STEP_HEAL}, {.kind = STEP_READY}, {STEP_GET, .client = 2, .key = 1, .value = 77},
         {STEP_HOLDS, .node = 1, .value = 1}, {STEP_HOLDS, .node = 2, .value = 1});
}

/* Three are wanted, and there are two nodes: its places are those that it was sent to. */
static void
test_restart__fewer_places_than_replicas_are_wanted_are_all_of_them(void **state)
{
    PLAY(2, 2, {STEP_MUTE, .node = 1}, {STEP_MUTE, .node = 2},
         {STEP_REPLACE, .key = 1, .value = 77, .replicas = 3, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {STEP_OPEN, .as = 1},
         {.kind = STEP_LONE}, {STEP_CRASH, .silent = true}, {.kind = STEP_START},
         {STEP_HEAR, .node = 1}, {STEP_HEAR, .node = 2}, {STEP_ENDED, .as = 1},
         {STEP_EXIST, .client = 1, .key = 1}, {STEP_GET, .client = 1, .key = 1, .value = 77},
         {.kind = STEP_HEAL}, {.kind = STEP_READY});
}

/* The bytes of the second replica come to its node when the first directory is gone. */
static void
test_restart__a_place_that_is_reached_late_is_waited_for(void **state)
{
    struct store_world *world = store_steps_begin(
        &(struct store_options){.seed = unit_seed("store_restart"), .nodes = 2, .clients = 2});

    (void)state;
    DO(world, {STEP_PUT, .key = 2, .value = 5, .node = 2}, {STEP_MUTE, .node = 1});
    yb_sim_block(world->sim, store_client(world, 0)->host, store_node(world, 1)->host, true);
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {.kind = STEP_LONE},
       {STEP_CRASH, .silent = true}, {.kind = STEP_START}, {STEP_HEAR, .node = 1},
       {STEP_WAIT, .ms = 100}, {STEP_OPEN, .as = 1});
    yb_sim_block(world->sim, store_client(world, 0)->host, store_node(world, 1)->host, false);
    DO(world, {STEP_WAIT, .ms = 300}, {STEP_EXIST, .client = 1, .key = 1},
       {STEP_GET, .client = 1, .key = 1, .value = 77}, {.kind = STEP_HEAL}, {.kind = STEP_READY},
       {STEP_EXIST, .client = 1, .key = 1});
    store_steps_end(world);
}

/* Another one was granted, seen, and acknowledged to be removed: what waits is not all there was,
 * and is in doubt when nobody else can come. */
static void
test_restart__of_several_replicas_one_that_waits_alone_is_never_back(void **state)
{
    PLAY(2, 2, {STEP_PART, .node = 2},
         {STEP_PUT, .key = 1, .value = 77, .replicas = 2, .as = 1, .deadline_ms = 20000},
         {STEP_WAIT, .ms = 50}, {STEP_GET, .client = 1, .key = 1, .value = 77},
         {STEP_REMOVE, .client = 1, .key = 1}, {STEP_CRASH, .silent = true}, {.kind = STEP_START},
         {.kind = STEP_HEAL}, {.kind = STEP_READY}, {STEP_ENDED, .as = 1}, {STEP_WAIT, .ms = 500},
         {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
         {STEP_EXIST, .client = 1, .key = 1, .wanted = YB_NOT_FOUND});
}

/* Its writer has given up: others were told that it is there, and nobody has removed it. */
static void
test_restart__what_its_writer_waits_for_no_more_is_not_absent(void **state)
{
    for (uint8_t replicas = 1; replicas <= 2; replicas++) {
        PLAY(2, 2, {STEP_MUTE, .node = 1}, {STEP_MUTE, .node = 2},
             {STEP_PUT, .key = 1, .value = 77, .replicas = replicas, .node = 1, .as = 1,
              .deadline_ms = 100},
             {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1},
             {STEP_ENDED, .as = 1, .wanted = YB_IN_DOUBT}, {STEP_CRASH, .silent = true},
             {.kind = STEP_START}, {.kind = STEP_HEAL}, {.kind = STEP_READY},
             {STEP_EXIST, .client = 1, .key = 1}, {STEP_GET, .client = 1, .key = 1, .value = 77});
    }
}

/* What a directory that waits for others says to it is lost with its connection, at any time. */
static void
test_restart__what_is_told_to_wait_and_does_not_hear_it_is_decided(void **state)
{
    for (uint32_t i = 0; i < 12; i++) {
        PLAY(3, 2, {STEP_MUTE, .node = 1}, {STEP_MUTE, .node = 2},
             {STEP_PUT, .key = 1, .value = 77, .replicas = 1 + i % 2, .node = 1, .as = 1,
              .deadline_ms = 20000},
             {STEP_WAIT, .ms = 50}, {STEP_EXIST, .client = 1, .key = 1}, {.kind = STEP_LONE},
             {STEP_CRASH, .silent = true}, {STEP_MUTE, .node = 3}, {.kind = STEP_START},
             {STEP_HEAR, .node = 1}, {STEP_HEAR, .node = 2}, {STEP_WAIT, .ms = 50 + 7 * i},
             {STEP_MUTE, .node = 1}, {STEP_WAIT, .ms = 30}, {STEP_CUT, .node = 1},
             {STEP_HEAR, .node = 1}, {STEP_WAIT, .ms = 20}, {STEP_HEAR, .node = 3},
             {STEP_ENDED, .as = 1}, {STEP_EXIST, .client = 1, .key = 1},
             {STEP_GET, .client = 1, .key = 1, .value = 77}, {.kind = STEP_HEAL},
             {.kind = STEP_READY});
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_restart__a_replica_that_missed_its_grant_does_not_come_after_what_replaced_it),
        cmocka_unit_test(test_restart__a_replica_whose_bytes_come_late_is_not_a_put_of_its_own),
        cmocka_unit_test(test_restart__what_was_dropped_before_its_grant_came_is_not_granted_again),
        cmocka_unit_test(test_restart__who_died_before_its_grant_came_asks_for_no_other),
        cmocka_unit_test(
            test_restart__what_others_were_told_of_before_its_grant_was_heard_is_not_absent),
        cmocka_unit_test(test_restart__of_several_replicas_what_waits_everywhere_is_not_absent),
        cmocka_unit_test(test_restart__fewer_places_than_replicas_are_wanted_are_all_of_them),
        cmocka_unit_test(test_restart__a_place_that_is_reached_late_is_waited_for),
        cmocka_unit_test(test_restart__of_several_replicas_one_that_waits_alone_is_never_back),
        cmocka_unit_test(test_restart__what_its_writer_waits_for_no_more_is_not_absent),
        cmocka_unit_test(test_restart__what_is_told_to_wait_and_does_not_hear_it_is_decided),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
