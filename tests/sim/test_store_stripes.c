/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a value that lies in parts is one value: whoever reads it while it is replaced gets one of
 *   the two, a flush takes all of it or nothing, and nobody waits past his deadline for parts that
 *   nobody names any more, which go all the same (RULES A16).
 * Method: values of some thousand bytes are cut into parts of 500. What comes between is tried at
 *   every tenth of a millisecond of an operation, each time in a world of its own.
 */
#include "../unit/unit.h"

#include "client/stripe.h"
#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

#define KEY       1u
#define FIRST     3900u /* Values: they have 64 bytes more than that, which is eight parts each. */
#define SECOND    3901u
#define MOMENTS   40u
#define MOMENT_NS (100 * YB_NS_PER_US)
#define SWEPT_MS  6000u /* Longer than parts are being removed. */

static struct store_world *
begin(uint64_t seed)
{
    return store_steps_begin(
        &(struct store_options){.seed = seed, .nodes = 2, .clients = 2, .part_bytes = 500});
}

/* Let so many moments pass. */
static void
pass(struct store_world *world, uint32_t moments)
{
    uint64_t until_ns = yb_sim_now_ns(world->sim) + moments * MOMENT_NS;

    (void)yb_sim_run_until(world->sim, NULL, NULL, until_ns, 1000000);
    store_check(world);
}

static uint64_t
blocks(struct store_world *world)
{
    struct yb_node_info info;
    uint64_t count = 0;

    for (uint32_t i = 0; i < world->options.nodes; i++) {
        yb_node_info(store_node(world, i)->life->node, &info);
        count += info.blocks;
    }
    return count;
}

static struct store_op *
submit(struct store_world *world, uint32_t client, uint8_t kind, uint64_t value)
{
    const uint32_t key = KEY;
    struct store_op *op =
        store_op(world, client, kind, &key, kind == YB_CLIENT_REMOVE_ALL ? 0 : 1, 300);

    if (kind == YB_CLIENT_PUT) {
        store_value(op, 0, value, 64 + value);
    }
    op->batch.force = kind == YB_CLIENT_REMOVE_ALL;
    store_submit(op);
    return op;
}

/* The directory is not reached any more, from the client, in the middle of its operation. Returns
 * what became of it; store_judge.h sees to it that it ends by its deadline. */
static enum yb_status
cut_off(struct store_world *world, uint8_t kind, uint32_t moments, uint64_t *left_out)
{
    struct store_op *op = submit(world, 0, kind, FIRST);
    enum yb_status status;

    pass(world, moments);
    DO(world, {.kind = STEP_LONE});
    assert_true(store_settle(world, 400));
    *left_out = blocks(world);
    status = op->items[0].status;
    DO(world, {.kind = STEP_HEAL}, {STEP_WAIT, .ms = SWEPT_MS});
    return status;
}

static void
test_stripes__a_put_ends_by_its_deadline_and_leaves_no_parts(void **state)
{
    uint64_t seed = unit_seed("store_stripes");
    uint32_t left_some = 0;

    (void)state;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        struct store_world *world = begin(seed + i);
        uint64_t left;
        enum yb_status status = cut_off(world, YB_CLIENT_PUT, i, &left);

        if (status != YB_OK && status != YB_IN_DOUBT) {
            assert_int_equal(blocks(world), 0);
            left_some += left > 0;
        }
        store_steps_end(world);
    }
    assert_true(left_some > 0); /* Some were cut off when parts were there. */
}

static void
test_stripes__a_removal_ends_by_its_deadline_and_leaves_no_parts(void **state)
{
    uint64_t seed = unit_seed("store_stripes");
    uint32_t left_some = 0;

    (void)state;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        struct store_world *world = begin(seed + i);
        uint64_t left;
        enum yb_status status;

        DO(world, {STEP_PUT, .key = KEY, .value = FIRST});
        status = cut_off(world, YB_CLIENT_REMOVE, i, &left);
        if (status == YB_OK) {
            assert_int_equal(blocks(world), 0);
            left_some += left > 0;
        }
        store_steps_end(world);
    }
    assert_true(left_some > 0); /* Some were cut off when the key was gone and parts were there. */
}

/* The reader stands still until what it was about to read has ended, and something else is there
 * under its key: at no time is there nothing. */
static void
test_stripes__a_reader_of_a_replaced_value_reads_the_other_one(void **state)
{
    uint64_t seed = unit_seed("store_stripes");
    uint32_t second = 0;

    (void)state;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        struct store_world *world = begin(seed + i);
        struct store_op *put = submit(world, 0, YB_CLIENT_PUT, FIRST);
        struct store_op *get;

        put->batch.put.ttl_ms = 100;
        assert_true(store_settle(world, 50));
        get = submit(world, 1, YB_CLIENT_GET, 0);
        pass(world, i);
        store_stall(store_client(world, 1), true);
        DO(world, {STEP_REPLACE, .key = KEY, .value = SECOND}, {STEP_WAIT, .ms = 150});
        store_stall(store_client(world, 1), false);
        assert_true(store_settle(world, 400));
        assert_int_equal(put->items[0].status, YB_OK);
        assert_int_equal(get->items[0].status, YB_OK);
        second += get->values[0] == SECOND;
        DO(world, {STEP_GET, .key = KEY, .value = SECOND});
        store_steps_end(world);
    }
    assert_true(second > 0);
}

/* While the writer goes on, or stands still until all is flushed. */
static void
test_stripes__a_flush_takes_all_of_a_value_or_nothing(void **state)
{
    uint64_t seed = unit_seed("store_stripes");
    uint32_t kept = 0, taken = 0;

    (void)state;
    for (uint32_t i = 0; i < 2 * MOMENTS; i++) {
        struct store_world *world = begin(seed + i);
        struct store_op *put = submit(world, 0, YB_CLIENT_PUT, FIRST);
        struct store_op *flush;
        uint64_t value;
        bool there;

        pass(world, i / 2);
        store_stall(store_client(world, 0), i % 2 == 1);
        flush = submit(world, 1, YB_CLIENT_REMOVE_ALL, 0);
        store_run_ms(world, 20);
        store_stall(store_client(world, 0), false);
        assert_true(store_settle(world, 400));
        assert_int_equal(flush->batch.status, YB_OK);
        assert_int_equal(put->items[0].status, YB_OK);
        there = store_exist(world, 1, KEY) == YB_OK;
        assert_int_equal(store_get(world, 1, KEY, &value), there ? YB_OK : YB_NOT_FOUND);
        kept += there;
        taken += !there;
        store_run_ms(world, SWEPT_MS);
        assert_int_equal(blocks(world), there ? 9 : 0); /* Eight parts, a manifest. */
        store_steps_end(world);
    }
    assert_true(kept > 0 && taken > 0);
}

/* After a flush its put rests before the next attempt, and there is none any more. */
static void
test_stripes__a_client_that_ends_waits_for_no_next_attempt(void **state)
{
    uint64_t seed = unit_seed("store_stripes");

    (void)state;
    for (uint32_t i = 0; i < MOMENTS; i++) {
        struct store_world *world = begin(seed + i);

        (void)submit(world, 0, YB_CLIENT_PUT, FIRST);
        pass(world, i);
        (void)submit(world, 1, YB_CLIENT_REMOVE_ALL, 0);
        pass(world, 30);
        store_crash(store_client(world, 0), YB_SIM_DEATH_FLUSH);
        assert_true(store_settle(world, 400));
        store_steps_end(world);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stripes__a_put_ends_by_its_deadline_and_leaves_no_parts),
        cmocka_unit_test(test_stripes__a_removal_ends_by_its_deadline_and_leaves_no_parts),
        cmocka_unit_test(test_stripes__a_reader_of_a_replaced_value_reads_the_other_one),
        cmocka_unit_test(test_stripes__a_flush_takes_all_of_a_value_or_nothing),
        cmocka_unit_test(test_stripes__a_client_that_ends_waits_for_no_next_attempt),
    };

    return cmocka_run_group_tests_name("store_stripes", tests, NULL, NULL);
}
