/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whoever is told that a key is there does not read what was removed before, although that
 *   removal has not been answered and a node still serves what it has not heard of (RULES H4).
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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_seen__what_is_put_after_a_removal_is_there_when_nobody_serves_what_was_removed),
        cmocka_unit_test(test_seen__so_is_what_replaces_and_who_puts_it_again_waits),
        cmocka_unit_test(test_seen__what_takes_its_place_does_not_hide_what_was_acknowledged),
        cmocka_unit_test(test_seen__what_was_removed_unseen_does_not_show_what_is_put_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
