/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a soft pin with a life ends when nobody has used its block for so long, and not before.
 * Method: a store of one node in virtual time, and more blocks than its pool has room for.
 */
#include "../unit/unit.h"

#include "store_world.h"

#define VALUE 4000u /* Bytes of a value: a pool of 1 MiB has room for about 260. */
#define LIFE  60000u
#define READ  7u /* The key that is read again and again. */

static void
put(struct store_world *world, uint32_t key, bool soft)
{
    struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

    store_value(op, 0, key, VALUE);
    op->batch.put.soft_pin = soft;
    op->batch.put.soft_pin_ms = soft ? LIFE : 0;
    store_submit(op);
    assert_true(store_settle(world, 120000));
    assert_int_equal(op->items[0].status, YB_OK);
}

static enum yb_status
get(struct store_world *world, uint32_t key)
{
    uint64_t value = 0;

    return store_get(world, 0, key, &value);
}

/* Put many more blocks than there is room for. */
static void
press(struct store_world *world, uint32_t first)
{
    for (uint32_t i = 0; i < 600; i++) {
        put(world, first + i, false);
    }
}

static void
test_soft_pins__one_ends_when_nobody_reads_its_block(void **state)
{
    struct store_world *world = store_world_create(
        &(struct store_options){.seed = unit_seed("store_soft_pins"), .nodes = 1, .clients = 1});

    (void)state;
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    for (uint32_t key = 1; key <= 50; key++) {
        put(world, key, true);
    }
    press(world, 1000);
    for (uint32_t i = 0; i < 4; i++) { /* Longer than a life, and one is read meanwhile. */
        store_run_ms(world, LIFE / 3);
        assert_int_equal(get(world, READ), YB_OK);
    }
    press(world, 2000);
    for (uint32_t key = 1; key <= 50; key++) {
        assert_int_equal(get(world, key), key == READ ? YB_OK : YB_NOT_FOUND);
    }
    store_run_ms(world, LIFE + 10000);
    press(world, 3000);
    assert_int_equal(get(world, READ), YB_NOT_FOUND);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_soft_pins__one_ends_when_nobody_reads_its_block),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
