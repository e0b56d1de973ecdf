/* SPDX-License-Identifier: Apache-2.0 */
#include "conductor/mover.h"
#include "conductor/wire/conductor_wire.h"
#include "net_duo.h"

struct stage {
    struct duo duo;
    struct yb_span_ring *spans;
    struct yb_conductor_mover *mover;
    struct yb_conductor_moved moved;
    uint32_t moved_count;
};

static bool
nobody_wants(void *owner, uint64_t id)
{
    (void)owner;
    (void)id;
    return false;
}

static void
on_moved(void *owner, const struct yb_conductor_moved *moved)
{
    struct stage *stage = owner;

    stage->moved = *moved;
    stage->moved_count++;
}

static void
stage_open(struct stage *stage)
{
    struct yb_conductor_mover_options options = {
        .wanted = nobody_wants,
        .moved = on_moved,
        .owner = stage,
    };

    memset(stage, 0, sizeof(*stage));
    duo_init(&stage->duo, "sim");
    duo_start(&stage->duo);
    assert_int_equal(yb_span_ring_create(16, &stage->spans), YB_OK);
    options.net = stage->duo.nets[CLIENT];
    options.directory = stage->duo.address;
    options.spans = stage->spans;
    assert_int_equal(yb_conductor_mover_create(&options, &stage->mover), YB_OK);
}

static void
stage_close(struct stage *stage)
{
    yb_conductor_mover_stop(stage->mover);
    DUO_AWAIT(&stage->duo, yb_conductor_mover_idle(stage->mover));
    yb_conductor_mover_destroy(&stage->mover);
    yb_span_ring_destroy(&stage->spans);
    duo_fini(&stage->duo);
}

/* A loop reads the clock once in a turn; whoever decides, on another thread, may have read it
 * since. */
static void
test_mover__an_order_that_was_decided_after_the_turn_began_may_end_in_it(void **state)
{
    struct yb_conductor_order *order = yb_conductor_order_create(1);
    struct yb_span span;
    struct stage stage;

    (void)state;
    stage_open(&stage);
    assert_non_null(order);
    order->id = 7;
    order->decided_ns = duo_deadline(&stage.duo, 1);
    order->deadline_ns = order->decided_ns + YB_NS_PER_S;
    (void)snprintf(order->to, sizeof(order->to), "n0");
    assert_int_equal(yb_conductor_mover_take(stage.mover, order), YB_OK);
    assert_int_equal(stage.moved_count, 1);
    assert_int_equal(stage.moved.id, 7);
    assert_int_equal(stage.moved.outcome, YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED);
    assert_int_equal(stage.moved.finished_ns, stage.moved.decided_ns);
    assert_int_equal(yb_span_drain(stage.spans, &span, 1), 1);
    assert_int_equal(span.start_ns, stage.moved.decided_ns);
    assert_int_equal(span.end_ns, span.start_ns);
    stage_close(&stage);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mover__an_order_that_was_decided_after_the_turn_began_may_end_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
