/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: an urgent load does not wait long for others that are being read, and nothing is lost of
 * what the medium could do meanwhile. Method: a medium that does one read a millisecond, in order.
 */
#include "ssd_stage.h"

#define LOADS 30u
#define SIZE  200000u

struct reading {
    struct yb_tier_load load; /* First. */
    struct iovec iov;
    bool under_way;
    uint32_t ends;
    uint64_t begun_ns;
    uint64_t took_ns; /* The last. */
    struct stage *stage;
    uint8_t bytes[SIZE];
};

struct ground {
    struct stage stage;
    struct reading others[LOADS];
    struct reading urgent;
};

static void
on_done(struct yb_tier_op *op, enum yb_status status)
{
    struct reading *reading = (struct reading *)op;

    assert_int_equal(status, YB_OK);
    reading->ends++;
    reading->under_way = false;
    reading->took_ns = reading->stage->now_ns - reading->begun_ns;
}

static void
read_one(struct reading *reading, enum yb_class traffic_class)
{
    struct stage *stage = reading->stage;

    if (reading->under_way) {
        return;
    }
    reading->under_way = true;
    reading->begun_ns = stage->now_ns;
    reading->iov = (struct iovec){reading->bytes, SIZE};
    reading->load = (struct yb_tier_load){
        .op = {.done = on_done, .deadline_ns = YB_NEVER, .traffic_class = traffic_class},
        .hash = stage_hash(1),
        .length = SIZE,
        .iov = &reading->iov,
        .iov_count = 1};
    assert_int_equal(yb_tier_load(stage->tier, &reading->load), YB_OK);
}

static struct ground *
ground_create(void)
{
    struct ground *ground = calloc(1, sizeof(*ground));

    assert_non_null(ground);
    stage_init(&ground->stage);
    ground->stage.options.read_buffers = LOADS + 1;
    ground->stage.options.segment_bytes = 1u << 20;
    ground->stage.options.capacity = 6u << 20;
    stage_open(&ground->stage, false);
    assert_int_equal(stage_put(&ground->stage, 1, 10, SIZE), YB_OK);
    ground->stage.device->holds = true;
    ground->urgent.stage = &ground->stage;
    for (uint32_t i = 0; i < LOADS; i++) {
        ground->others[i].stage = &ground->stage;
    }
    return ground;
}

static void
ground_destroy(struct ground *ground)
{
    ground->stage.device->holds = false;
    stage_release(&ground->stage, true);
    stage_turns(&ground->stage, 100);
    for (uint32_t i = 0; i < LOADS; i++) {
        assert_false(ground->others[i].under_way);
        assert_memory_equal(ground->others[i].bytes, ground->urgent.bytes, SIZE);
    }
    stage_close(&ground->stage);
    stage_fini(&ground->stage);
    free(ground);
}

struct span {
    uint32_t served;     /* By the medium. */
    uint32_t held_most;  /* At a time. */
    uint64_t urgent_max; /* The longest of the urgent. */
};

/* Let time pass, with as many of the others as there can be, and an urgent one now and then. */
static struct span
pass(struct ground *ground, uint32_t turns, bool urgent)
{
    struct span span = {0};
    uint32_t ends = ground->urgent.ends;

    for (uint32_t turn = 0; turn < turns; turn++) {
        for (uint32_t i = 0; i < LOADS; i++) {
            read_one(&ground->others[i], YB_CLASS_THROUGHPUT);
        }
        if (urgent && turn % 20 == 0) {
            read_one(&ground->urgent, YB_CLASS_FIRST_TOKEN);
        }
        stage_turn(&ground->stage);
        if (ground->stage.device->held_count > span.held_most) {
            span.held_most = ground->stage.device->held_count;
        }
        span.served += ground->stage.device->held_count > 0;
        stage_release_first(&ground->stage);
        if (ground->urgent.ends > ends && ground->urgent.took_ns > span.urgent_max) {
            span.urgent_max = ground->urgent.took_ns;
        }
    }
    return span;
}

static void
test_ssd_urgent__others_have_no_more_under_way_than_fills_the_medium(void **state)
{
    struct ground *ground = ground_create();
    struct span span;

    (void)state;
    span = pass(ground, 500, false);
    assert_int_equal(span.held_most, LOADS);
    (void)pass(ground, 200, true); /* It is tried how long one takes alone. */
    span = pass(ground, 2000, true);
    print_message("%u served, %u at a time, %llu ms\n", span.served, span.held_most,
                  (unsigned long long)(span.urgent_max / YB_NS_PER_MS));
    assert_true(span.held_most <= 10);                 /* What comes while one is alone, twice. */
    assert_true(span.urgent_max <= 11 * YB_NS_PER_MS); /* Alone it is 5. */
    assert_true(span.served >= 1900);                  /* And nothing is lost by that. */
    (void)pass(ground, 1100, false);                   /* A second later there are none any more. */
    assert_int_equal(pass(ground, 100, false).held_most, LOADS);
    ground_destroy(ground);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd_urgent__others_have_no_more_under_way_than_fills_the_medium),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
