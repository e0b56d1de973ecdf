/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what was flushed is room at once, before a tick has collected it, and before anything that
 *   is still wanted has to go.
 * Method: a store of one node whose pool is full of blocks that cannot be evicted; they are
 *   flushed, and room is asked of the node itself while no tick has passed, which is looked at,
 *   too.
 */
#include "../unit/unit.h"

#include "node/node_internal.h"
#include "store_world.h"

#define VALUE 4000u /* Bytes of most values here: a pool of 1 MiB has room for about 260. */

static enum yb_status
run(struct store_op *op)
{
    store_submit(op);
    for (uint32_t i = 0; i < 100000 && op->done == 0; i++) { /* Not longer: ticks come by. */
        (void)yb_sim_step(op->world->sim);
    }
    assert_int_equal(op->done, 1);
    return op->batch.status != YB_OK || op->batch.count == 0 ? op->batch.status
                                                             : op->items[0].status;
}

static enum yb_status
put(struct store_world *world, uint32_t key, bool pinned)
{
    struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

    store_value(op, 0, key, VALUE);
    op->batch.put.hard_pin = pinned;
    return run(op);
}

/* Put pinned blocks, of keys from 1000 on, until there is no room. */
static void
pin_all(struct store_world *world)
{
    uint32_t key = 1000;

    while (put(world, key, true) == YB_OK) {
        key++;
    }
    assert_true(key > 1200);
}

static void
test_room__what_was_flushed_goes_before_what_is_wanted(void **state)
{
    struct store_world *world = store_world_create(
        &(struct store_options){.seed = unit_seed("store_room"), .nodes = 1, .clients = 1});
    uint32_t seen = 0;

    (void)state;
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    for (uint32_t tries = 0; seen == 0 && tries < 100; tries++) {
        struct store_op *flush = store_op(world, 0, YB_CLIENT_REMOVE_ALL, NULL, 0, 5000);
        struct yb_node *node = store_node(world, 0)->life->node;
        struct yb_node_intake intake = {.size = 2u * VALUE};
        struct yb_dram_extent extent;
        uint64_t value = 0;

        pin_all(world);
        store_run_ms(world, 1 + tries % 10); /* Any time between two ticks. */
        assert_int_equal(store_remove(world, 0, 1000), YB_OK);
        flush->batch.force = true;
        assert_int_equal(run(flush), YB_OK);
        assert_int_equal(put(world, 1, false), YB_OK); /* In the place of that one. */
        if (node->sweep_left > 0) {
            assert_int_equal(yb_node_room(node, intake.size, &intake, &extent), YB_OK);
            yb_dram_free(node->pool, &extent);
            assert_int_equal(store_get(world, 0, 1, &value), YB_OK);
            seen++;
        }
        assert_int_equal(store_remove(world, 0, 1), YB_OK);
    }
    assert_int_equal(seen, 1);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room__what_was_flushed_goes_before_what_is_wanted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
