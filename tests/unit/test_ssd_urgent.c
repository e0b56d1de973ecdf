/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: an urgent load does not wait long for others that are being read. Method: a medium that
 * holds back what is asked of it, so that it can be counted.
 */
#include "ssd_stage.h"

#define LOADS 30u
#define SIZE  200000u
#define MOST  ((4u << 20) / SIZE + 1) /* Of 4 MiB, and one that goes beyond. */

struct reading {
    struct yb_tier_load load; /* First. */
    struct iovec iov;
    uint32_t ends;
    uint8_t bytes[SIZE];
};

static void
on_done(struct yb_tier_op *op, enum yb_status status)
{
    ((struct reading *)op)->ends++;
    assert_int_equal(status, YB_OK);
}

static void
read_one(struct stage *stage, struct reading *reading, enum yb_class traffic_class)
{
    reading->ends = 0;
    reading->iov = (struct iovec){reading->bytes, SIZE};
    reading->load = (struct yb_tier_load){
        .op = {.done = on_done, .deadline_ns = YB_NEVER, .traffic_class = traffic_class},
        .hash = stage_hash(1),
        .length = SIZE,
        .iov = &reading->iov,
        .iov_count = 1};
    assert_int_equal(yb_tier_load(stage->tier, &reading->load), YB_OK);
}

/* How many of all loads the medium has at a time. */
static uint32_t
at_a_time(struct stage *stage, struct reading *readings)
{
    uint32_t count;

    stage->device->holds = true;
    for (uint32_t i = 0; i < LOADS; i++) {
        read_one(stage, &readings[i], YB_CLASS_THROUGHPUT);
    }
    stage_turns(stage, 2);
    count = stage->device->held_count;
    stage->device->holds = false;
    stage_release(stage, true);
    stage_turns(stage, 20);
    for (uint32_t i = 0; i < LOADS; i++) {
        assert_int_equal(readings[i].ends, 1);
        assert_memory_equal(readings[i].bytes, readings[0].bytes, SIZE);
    }
    return count;
}

static void
test_ssd_urgent__where_there_are_urgent_loads_little_is_read_at_a_time(void **state)
{
    struct reading *readings = calloc(LOADS, sizeof(*readings));
    struct stage stage;

    (void)state;
    assert_non_null(readings);
    stage_init(&stage);
    stage.options.read_buffers = LOADS;
    stage.options.segment_bytes = 1u << 20;
    stage.options.capacity = 6u << 20;
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, SIZE), YB_OK);
    assert_int_equal(at_a_time(&stage, readings), LOADS);
    read_one(&stage, &readings[0], YB_CLASS_FIRST_TOKEN);
    stage_turns(&stage, 5);
    assert_int_equal(readings[0].ends, 1);
    assert_int_equal(at_a_time(&stage, readings), MOST);
    stage_turns(&stage, 1100); /* A second later there are none any more. */
    assert_int_equal(at_a_time(&stage, readings), LOADS);
    stage_close(&stage);
    stage_fini(&stage);
    free(readings);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd_urgent__where_there_are_urgent_loads_little_is_read_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
