/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a medium that may be another cluster's is used only while it is known to be ours
 *   (node/node_claim.c), and nothing that was to go there, or to be ended there, is forgotten.
 * Method: a node whose object store answers a claim as the test says; virtual time.
 */
#include "../unit/unit.h"

#include "node/node_below.h"
#include "store_steps.h"
#include "store_world.h"

#define STORE      1u     /* The level. */
#define CLAIMED_MS 31000u /* After it what was ours is claimed again. */
#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

/* What claims are told, and the one that is under way. */
static struct {
    enum yb_status status;
    uint32_t left; /* Claims that are told so yet, before they are told OK; 0: all. */
    struct yb_node_tier_claim asked;
    struct yb_task task;
    uint32_t under_way;
    uint32_t count;
} answer;

static void
run_answer(struct yb_task *task)
{
    (void)task;
    if (answer.left > 0 && --answer.left == 0) {
        answer.status = YB_OK;
    }
    answer.asked.done(answer.asked.owner, answer.status, "because the test says so");
}

static enum yb_status
claim(void *context, const struct yb_node_tier_claim *asked)
{
    (void)context;
    assert_int_equal(answer.under_way++, 0);
    answer.count++;
    answer.asked = *asked;
    answer.task = (struct yb_task){.run = run_answer};
    yb_loop_defer(asked->loop, &answer.task);
    return YB_OK;
}

static void
claim_cancel(void *context)
{
    (void)context; /* It ends at once anyway. */
}

static void
claim_over(void *context)
{
    (void)context;
    assert_int_equal(--answer.under_way, 0);
}

/* One node with a disk, and an object store that has to be claimed. */
static struct store_world *
begin(enum yb_status status)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_claim"), .nodes = 1, .clients = 2, .tiers = 2});
    struct yb_node_tier *tier = &store_node(world, 0)->tiers[STORE];

    memset(&answer, 0, sizeof(answer));
    answer.status = status;
    tier->claim = claim;
    tier->claim_cancel = claim_cancel;
    tier->claim_over = claim_over;
    DO(world, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1}, {.kind = STEP_READY},
       {STEP_WAIT, .ms = 3000});
    assert_true(answer.count > 0);
    return world;
}

static struct yb_node_level *
level_of(struct store_world *world)
{
    return &store_node(world, 0)->life->node->below->levels[STORE];
}

static void
on_block(void *context, const struct yb_tier_record *record, const void *bytes)
{
    (void)record;
    (void)bytes;
    (*(uint32_t *)context)++;
}

/* Return how many blocks lie in the object store. */
static uint32_t
count_in_store(struct store_world *world)
{
    uint32_t count = 0;

    yb_memory_medium_visit(store_node(world, 0)->media[STORE], on_block, &count);
    return count;
}

static void
test_claim__until_it_is_ours_it_is_not_opened_and_then_catches_up(void **state)
{
    struct store_world *world = begin(YB_UNREACHABLE);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 300},
       {STEP_GET, .client = 1, .key = 1, .value = 77});
    assert_null(level_of(world)->tier);
    assert_int_equal(level_of(world)->aside, YB_UNREACHABLE);
    assert_non_null(strstr(level_of(world)->why, "because the test says so"));
    answer.status = YB_OK;
    DO(world, {STEP_WAIT, .ms = 3000});
    assert_int_equal(level_of(world)->aside, YB_OK);
    assert_int_equal(count_in_store(world), 1); /* It had missed it. */
    store_steps_end(world);
}

static void
test_claim__what_is_flushed_meanwhile_is_acknowledged_when_it_is_flushed_there(void **state)
{
    struct store_world *world = begin(YB_UNREACHABLE);

    (void)state;
    answer.left = 4;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_FLUSH, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 500}, {STEP_OPEN, .as = 1}, {STEP_ENDED, .as = 1},
       {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND});
    assert_int_equal(answer.left, 0);
    store_steps_end(world);
}

static void
test_claim__of_anothers_nothing_is_read_written_or_waited_for(void **state)
{
    struct store_world *world = begin(YB_REFUSED);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 300},
       {STEP_REMOVE, .client = 1, .key = 1}, {.kind = STEP_FLUSH});
    assert_null(level_of(world)->tier);
    assert_int_equal(count_in_store(world), 0);
    store_steps_end(world);
}

/* A later directory has the store: nothing more is written or ended there, until we follow it. */
static void
test_claim__while_it_is_a_later_directorys_it_is_left_alone(void **state)
{
    struct store_world *world = begin(YB_OK);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 300});
    assert_int_equal(count_in_store(world), 1);
    answer.status = YB_STALE;
    DO(world, {STEP_WAIT, .ms = CLAIMED_MS}, {STEP_PUT, .key = 2, .value = 78},
       {STEP_WAIT, .ms = 300});
    assert_int_equal(level_of(world)->aside, YB_STALE);
    assert_int_equal(count_in_store(world), 1);
    answer.left = 4;
    DO(world, {STEP_REMOVE, .client = 1, .key = 1, .as = 1, .deadline_ms = 20000},
       {STEP_WAIT, .ms = 500}, {STEP_OPEN, .as = 1}, {STEP_ENDED, .as = 1}, {STEP_WAIT, .ms = 3000},
       {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_GET, .key = 2, .value = 78});
    assert_int_equal(level_of(world)->aside, YB_OK);
    assert_int_equal(count_in_store(world), 1); /* The other one. */
    store_steps_end(world);
}

/* The node joins another cluster: what it had opened stays with the first one. */
static void
test_claim__a_cluster_that_is_left_keeps_its_store(void **state)
{
    struct store_world *world = begin(YB_OK);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 300}, {.kind = STEP_CRASH},
       {.kind = STEP_FORGET}, {.kind = STEP_START}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 3000},
       {STEP_PUT, .key = 2, .value = 78}, {STEP_WAIT, .ms = 300},
       {STEP_GET, .client = 1, .key = 2, .value = 78}, {.kind = STEP_FLUSH},
       {STEP_WAIT, .ms = CLAIMED_MS});
    assert_true(level_of(world)->foreign);
    assert_int_equal(level_of(world)->aside, YB_REFUSED);
    assert_int_equal(count_in_store(world), 1);
    store_steps_end(world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_claim__until_it_is_ours_it_is_not_opened_and_then_catches_up),
        cmocka_unit_test(
            test_claim__what_is_flushed_meanwhile_is_acknowledged_when_it_is_flushed_there),
        cmocka_unit_test(test_claim__of_anothers_nothing_is_read_written_or_waited_for),
        cmocka_unit_test(test_claim__while_it_is_a_later_directorys_it_is_left_alone),
        cmocka_unit_test(test_claim__a_cluster_that_is_left_keeps_its_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
