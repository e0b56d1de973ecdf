/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what a client has read from the memory of its machine counts only if it was lent for so
 *   long; if that is not sure its node says so, and otherwise it is read again (RULES A12).
 * Method: a client that stands still after the last byte has come and before it has looked at the
 *   clock, while the block is replaced (store_beside.h).
 */
#include "../unit/unit.h"

#include "store_world.h"

#define LEASE_MS 400u
#define KEY      1u
#define BYTES    1000u

/* Client 0 begins to read, and stands still as soon as all bytes are in its memory. */
static struct store_op *
read_and_stop(struct store_world *world, uint64_t value)
{
    const uint32_t key = KEY;
    struct store_op *op = store_op(world, 0, YB_CLIENT_GET, &key, 1, 20000);

    store_submit(op);
    while (!store_value_matches(op->memory, BYTES, KEY, value)) {
        assert_true(op->done == 0 && yb_sim_step(world->sim));
    }
    assert_int_equal(op->done, 0);
    store_stall(store_client(world, 0), true);
    return op;
}

/* Client 1 puts, while client 0 stands still. */
static void
replace(struct store_world *world, uint64_t value)
{
    const uint32_t key = KEY;
    struct store_op *op = store_op(world, 1, YB_CLIENT_PUT, &key, 1, 3000);

    store_value(op, 0, value, BYTES);
    op->batch.put.replace = true;
    store_submit(op);
    for (uint32_t i = 0; i < 1000 && op->done == 0; i++) {
        store_run_ms(world, 5);
    }
    assert_int_equal(op->done, 1);
    assert_int_equal(op->items[0].status, YB_OK);
}

static void
test_near__what_came_late_counts_only_if_its_node_says_that_it_held(void **state)
{
    struct store_world *world = store_world_create(&(struct store_options){
        .seed = unit_seed("store_near"),
        .nodes = 1,
        .clients = 2,
        .lease_ms = LEASE_MS,
        .near = true,
    });
    struct yb_client_counters counters;
    struct store_op *op;
    uint64_t value = 0;

    (void)state;
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    store_run_ms(world, 1000); /* The two of a machine have found each other. */
    replace(world, 77);
    op = read_and_stop(world, 77);
    replace(world, 78);
    store_run_ms(world, 2 * LEASE_MS); /* Longer than anything is lent. */
    store_stall(store_client(world, 0), false);
    assert_true(store_settle(world, 30000));
    assert_int_equal(op->items[0].status, YB_OK);
    assert_int_equal(op->values[0], 78);
    yb_client_core_counters(store_client(world, 0)->life->client, &counters);
    assert_true(counters.retries > 0);
    assert_int_equal(store_get(world, 0, KEY, &value), YB_OK);
    assert_int_equal(value, 78);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_near__what_came_late_counts_only_if_its_node_says_that_it_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
