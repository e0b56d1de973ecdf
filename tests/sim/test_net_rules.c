/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the simplest run of each rule that keeps callers from a wrong belief.
 * Method: one client and one server (or two of both) on the simulated network, one fault at a
 *   chosen moment. The world checks its own rules besides.
 */
#include "../unit/unit.h"

#include "net_world.h"

#define CLIENT 1u
#define SERVER 0u

static struct world *
pair(void)
{
    struct world_options options = world_options_default(1);

    return world_create(&options);
}

static struct yb_sim_host *
host(struct world *world, uint32_t node)
{
    return world->nodes[node].host;
}

/* Let every lane that the tests use be connected. */
static void
connect_lanes(struct world *world)
{
    struct world_ask ask = {.kind = WORLD_GET, .deadline_ms = 1000};

    for (uint32_t i = 0; i < 2; i++) {
        ask.lane = (enum yb_wire_lane)i;
        assert_int_equal(world_call_and_wait(world, CLIENT, &ask)->call.status, YB_OK);
    }
}

static void
assert_ok(const struct world_call *call)
{
    assert_true(world_is_done(call));
    assert_true(call->call.answered);
    assert_int_equal(call->call.status, YB_OK);
}

static void
test_net__a_lost_answer_is_given_again_and_nothing_is_applied_twice(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 5000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    yb_sim_block(world->sim, host(world, SERVER), host(world, CLIENT), true);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 20);
    assert_int_equal(world_applied(call), 1);
    assert_false(world_is_done(call));
    (void)yb_sim_cut(world->sim, NULL, NULL); /* The answer is lost on its way. */
    yb_sim_heal(world->sim);
    assert_true(world_run_until_done(world, 5000));
    assert_ok(call);
    assert_int_equal(world_applied(call), 1);
    world_destroy(&world);
}

static void
test_net__a_duplicate_of_a_running_mutation_waits_for_its_answer(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 5000, .delay_us = 300000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 50);
    (void)yb_sim_cut(world->sim, NULL, NULL);
    world_run_ms(world, 200);
    assert_false(world_is_done(call)); /* Not "nothing happened". */
    assert_true(world_run_until_done(world, 5000));
    assert_ok(call);
    assert_int_equal(world_applied(call), 1);
    world_destroy(&world);
}

static void
test_net__an_operation_that_still_runs_when_time_is_up_is_in_doubt(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 500, .delay_us = 1000000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 50);
    (void)yb_sim_cut(world->sim, NULL, NULL); /* It asks again, and hears that it still runs. */
    assert_true(world_run_until_done(world, 5000));
    assert_int_equal(call->call.status, YB_IN_DOUBT);
    assert_int_equal(world_applied(call), 1);
    world_destroy(&world);
}

/* A copy that comes late: while its answer is remembered, and when it was dropped because the
 * caller had gone on. The second time nothing is remembered but that. */
static void
test_net__a_late_copy_of_an_acknowledged_mutation_is_refused_and_not_run(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 5000};
    struct world_ask again = ask;
    struct world_call *first;
    struct world_call *copy;

    (void)state;
    connect_lanes(world);
    first = world_call_and_wait(world, CLIENT, &ask);
    assert_ok(first);
    again.same_as = first;
    assert_ok(world_call_and_wait(world, CLIENT, &again));
    assert_ok(world_call_and_wait(world, CLIENT, &ask)); /* It acknowledges the first. */
    for (uint32_t i = 0; i < 3; i++) {
        copy = world_call_and_wait(world, CLIENT, &again);
        assert_int_equal(copy->call.status, YB_STALE);
        assert_true(copy->call.undecided);
        world_run_ms(world, 10000); /* Inside the window of its answer, had it been kept. */
    }
    assert_int_equal(world_applied(first), 1);
    world_destroy(&world);
}

/* Each lane has slots of its own: what one of them acknowledges is not another's. */
static void
test_net__what_one_lane_acknowledges_is_its_own(void **state)
{
    struct world *world = pair();
    struct world_ask slow = {
        .kind = WORLD_ADD, .lane = YB_WIRE_LANE_BULK, .deadline_ms = 5000, .delay_us = 1000000};
    struct world_ask fast = {.kind = WORLD_ADD, .deadline_ms = 5000};
    struct world_call *held;

    (void)state;
    connect_lanes(world);
    held = world_call(world, CLIENT, &slow);
    world_run_ms(world, 50);
    (void)yb_sim_cut(world->sim, NULL, NULL); /* It asks again. */
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(world_call_and_wait(world, CLIENT, &fast));
    }
    assert_false(world_is_done(held));
    assert_true(world_run_until_done(world, 5000));
    assert_ok(held);
    assert_int_equal(world_applied(held), 1);
    world_destroy(&world);
}

/* A mutation that its caller gave up runs on; the next one in its slot does not wait for it. */
static void
test_net__a_mutation_that_was_given_up_ends_behind_the_next_one_in_its_slot(void **state)
{
    struct world *world = pair();
    struct world_ask slow = {.kind = WORLD_ADD, .deadline_ms = 200, .delay_us = 1000000};
    struct world_ask fast = {.kind = WORLD_ADD, .deadline_ms = 5000};
    struct world_ask again = fast;
    struct world_call *given_up;
    struct world_call *next;

    (void)state;
    connect_lanes(world);
    given_up = world_call_and_wait(world, CLIENT, &slow);
    assert_int_equal(given_up->call.status, YB_IN_DOUBT);
    next = world_call_and_wait(world, CLIENT, &fast);
    assert_ok(next);
    assert_int_equal(next->call.operation_slot, given_up->call.operation_slot);
    world_run_ms(world, 2000); /* The answer of the first comes to nobody. */
    again.same_as = next;
    assert_ok(world_call_and_wait(world, CLIENT, &again));
    again.same_as = given_up;
    assert_int_equal(world_call_and_wait(world, CLIENT, &again)->call.status, YB_STALE);
    assert_int_equal(world_applied(given_up), 1);
    assert_int_equal(world_applied(next), 1);
    world_destroy(&world);
}

/* Mutations follow each other without end in a memory that is far smaller than their number. */
static void
test_net__a_small_memory_of_answers_is_enough_for_a_caller_that_goes_on(void **state)
{
    struct world_options options = world_options_default(2);
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 20000};
    struct world *world;

    (void)state;
    options.replay_records = 8;
    world = world_create(&options);
    connect_lanes(world);
    for (uint32_t i = 0; i < 300; i++) {
        if (i % 7 == 0) {
            (void)yb_sim_cut(world->sim, NULL, NULL);
        }
        assert_ok(world_call_and_wait(world, CLIENT, &ask));
    }
    assert_true(yb_replay_count(world->nodes[SERVER].life->replay).records <= 2);
    world_destroy(&world);
}

static void
test_net__a_restarted_server_leaves_a_mutation_in_doubt(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 5000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    yb_sim_block(world->sim, host(world, SERVER), host(world, CLIENT), true);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 20);
    world_crash(world, SERVER, YB_SIM_DEATH_RESET);
    world_start(world, SERVER);
    yb_sim_heal(world->sim);
    assert_true(world_run_until_done(world, 5000));
    assert_int_equal(call->call.status, YB_IN_DOUBT);
    assert_int_equal(world_applied(call), 1); /* By the life that is over. */
    world_destroy(&world);
}

/* The lane of the call finds out last: by then the peer's other lane knows the new life. */
static void
test_net__doubt_is_about_the_life_that_was_asked_not_the_one_seen_last(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 20000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    yb_sim_block(world->sim, host(world, SERVER), host(world, CLIENT), true);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 20);
    (void)yb_sim_black_hole(world->sim, NULL, NULL);
    yb_sim_heal(world->sim);
    world_crash(world, SERVER, YB_SIM_DEATH_RESET);
    world_start(world, SERVER);
    ask.class = YB_CLASS_BACKGROUND;
    assert_ok(world_call_and_wait(world, CLIENT, &ask));
    assert_true(world_run_until_done(world, 20000));
    assert_int_equal(call->call.status, YB_IN_DOUBT);
    assert_int_equal(world_applied(call), 1);
    world_destroy(&world);
}

static void
test_net__a_half_open_connection_is_found_by_a_ping(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_GET};

    (void)state;
    connect_lanes(world);
    (void)yb_sim_black_hole(world->sim, NULL, NULL);
    assert_ok(world_call_and_wait(world, CLIENT, &ask)); /* It has no deadline of its own. */
    world_destroy(&world);
}

static void
test_net__a_half_open_connection_is_found_while_its_credit_is_used_up(void **state)
{
    struct world_options options = world_options_default(2);
    struct world_ask ask = {.kind = WORLD_GET, .deadline_ms = 100};
    struct world *world;

    (void)state;
    options.credit_requests = 1;
    world = world_create(&options);
    connect_lanes(world);
    (void)yb_sim_black_hole(world->sim, NULL, NULL);
    assert_int_equal(world_call_and_wait(world, CLIENT, &ask)->call.status, YB_TIMED_OUT);
    ask.deadline_ms = 0; /* The credit of the first is still out, and nobody will return it. */
    assert_ok(world_call_and_wait(world, CLIENT, &ask));
    world_destroy(&world);
}

static void
test_net__a_frame_that_is_cut_in_the_middle_goes_again_whole(void **state)
{
    struct world *world = pair();
    struct yb_sim_link link = yb_sim_link_default();
    struct world_ask ask = {
        .kind = WORLD_WRITE,
        .lane = YB_WIRE_LANE_BULK,
        .data_bytes = 200 * 1024,
        .deadline_ms = 5000,
    };
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    link.cut_after_bytes = 100 * 1024;
    yb_sim_set_link(world->sim, NULL, NULL, &link);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 8);
    assert_false(world_is_done(call));
    assert_int_equal(world_applied(call), 0);
    link.cut_after_bytes = 0;
    yb_sim_set_link(world->sim, NULL, NULL, &link);
    assert_true(world_run_until_done(world, 5000));
    assert_ok(call);
    assert_int_equal(world_applied(call), 1);
    world_destroy(&world);
}

static void
test_net__a_slow_reader_gets_everything_and_holds_up_nobody_else(void **state)
{
    struct world_options options = world_options_default(3);
    struct yb_sim_link link = yb_sim_link_default();
    struct world_ask ask = {.kind = WORLD_READ, .data_bytes = 100 * 1024, .deadline_ms = 20000};
    struct world_call *calls[12];
    struct world *world;

    (void)state;
    options.node_count = 3;
    world = world_create(&options);
    connect_lanes(world);
    link.window_bytes = 4096;
    yb_sim_set_link(world->sim, host(world, SERVER), host(world, CLIENT), &link);
    for (uint32_t i = 0; i < 12; i++) {
        calls[i] = world_call(world, CLIENT, &ask);
    }
    world_run_ms(world, 5);
    world_stall(world, CLIENT, true);
    assert_ok(world_call_and_wait(world, 2, &ask)); /* The third node is served meanwhile. */
    world_run_ms(world, 300);
    world_stall(world, CLIENT, false);
    assert_true(world_run_until_done(world, 20000));
    for (uint32_t i = 0; i < 12; i++) {
        assert_ok(calls[i]);
    }
    world_destroy(&world);
}

static void
test_net__two_sides_with_all_credit_used_never_wait_for_each_other(void **state)
{
    struct world_options options = world_options_default(4);
    struct yb_sim_link link = yb_sim_link_default();
    struct world_call *calls[40];
    struct world *world;

    (void)state;
    options.server_count = 2;
    options.credit_requests = 2;
    options.credit_bytes = 400; /* Less than one request: each goes alone. */
    options.limits.committed_bytes_max = 1;
    world = world_create(&options);
    link.window_bytes = 2048;
    yb_sim_set_link(world->sim, NULL, NULL, &link);
    for (uint32_t i = 0; i < 40; i++) {
        struct world_ask ask = {
            .kind = i % 4 < 2 ? WORLD_WRITE : WORLD_READ,
            .to = i % 2,
            .data_bytes = 20000,
            .deadline_ms = 60000,
        };

        calls[i] = world_call(world, 1 - i % 2, &ask);
    }
    assert_true(world_run_until_done(world, 60000));
    for (uint32_t i = 0; i < 40; i++) {
        assert_ok(calls[i]);
    }
    world_check_quiet(world);
    world_destroy(&world);
}

static void
test_net__clocks_that_differ_leave_a_deadline_as_long_as_it_is(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 2000};

    (void)state;
    yb_sim_host_set_wall(host(world, SERVER), -(int64_t)(86400 * YB_NS_PER_S));
    yb_sim_host_skip(host(world, SERVER), 5000 * YB_NS_PER_S);
    yb_sim_host_skip(host(world, CLIENT), 90 * YB_NS_PER_S);
    connect_lanes(world);
    world->remaining_count = 0;
    assert_ok(world_call_and_wait(world, CLIENT, &ask));
    assert_int_equal(world->remaining_count, 1);
    assert_in_range(world->remaining_us[0], 1990000, 2000001);
    yb_sim_host_set_drift(host(world, CLIENT), -100000);
    ask.delay_us = 1500000; /* 1350 ms of the caller's clock. */
    assert_ok(world_call_and_wait(world, CLIENT, &ask));
    world_destroy(&world);
}

static void
test_net__a_deadline_on_the_wire_is_what_remains(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_ADD, .deadline_ms = 2000};
    struct world_call *call;

    (void)state;
    yb_sim_partition(world->sim, &world->nodes[SERVER].host, 1);
    call = world_call(world, CLIENT, &ask);
    world_run_ms(world, 900); /* Waiting and connecting count. */
    yb_sim_heal(world->sim);
    assert_true(world_run_until_done(world, 2000));
    assert_ok(call);
    assert_in_range(world->remaining_us[0], 1, 1100000);
    world_destroy(&world);
}

static void
test_net__going_away_under_load_loses_nothing(void **state)
{
    struct world *world = pair();
    struct yb_sim_link link = yb_sim_link_default();
    struct world_call *calls[200];

    (void)state;
    connect_lanes(world);
    link.reset_drops_unread = link.close_unread_resets = true;
    yb_sim_set_link(world->sim, NULL, NULL, &link);
    for (uint32_t i = 0; i < 200; i++) {
        struct world_ask ask = {
            .kind = i % 2 == 0 ? WORLD_ADD : WORLD_WRITE,
            .lane = (enum yb_wire_lane)(i / 2 % 2),
            .data_bytes = 3000,
            .deadline_ms = 10000,
            .delay_us = i % 3 * 700,
        };

        calls[i] = world_call(world, CLIENT, &ask);
        if (i % 2 == 0) {
            world_run_ms(world, 1);
        }
        if (i == 100) {
            world_drain(world, SERVER);
        }
        if (i == 160) {
            assert_int_equal(yb_net_conn_count(world->nodes[SERVER].life->net), 0);
            world_stop(world, SERVER);
            world_start(world, SERVER);
        }
    }
    assert_true(world_run_until_done(world, 10000));
    for (uint32_t i = 0; i < 200; i++) {
        assert_ok(calls[i]);
        assert_int_equal(world_applied(calls[i]), 1);
    }
    world_destroy(&world);
}

/* The old connection dies unheard, when the lane has long been open again. */
static void
test_net__a_call_lost_on_an_old_connection_goes_on_the_new_one(void **state)
{
    struct world *world = pair();
    struct world_ask ask = {.kind = WORLD_GET, .delay_us = 300000};
    struct world_call *call;

    (void)state;
    connect_lanes(world);
    call = world_call(world, CLIENT, &ask); /* It has no deadline of its own. */
    world_run_ms(world, 20);
    world_goaway(world, SERVER);
    world_run_ms(world, 20);
    (void)yb_sim_black_hole(world->sim, NULL, NULL);
    ask.delay_us = 0;
    assert_ok(world_call_and_wait(world, CLIENT, &ask));
    assert_false(world_is_done(call));
    assert_true(world_run_until_done(world, 10000));
    assert_ok(call);
    world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net__a_lost_answer_is_given_again_and_nothing_is_applied_twice),
        cmocka_unit_test(test_net__a_duplicate_of_a_running_mutation_waits_for_its_answer),
        cmocka_unit_test(test_net__an_operation_that_still_runs_when_time_is_up_is_in_doubt),
        cmocka_unit_test(test_net__a_late_copy_of_an_acknowledged_mutation_is_refused_and_not_run),
        cmocka_unit_test(test_net__what_one_lane_acknowledges_is_its_own),
        cmocka_unit_test(
            test_net__a_mutation_that_was_given_up_ends_behind_the_next_one_in_its_slot),
        cmocka_unit_test(test_net__a_small_memory_of_answers_is_enough_for_a_caller_that_goes_on),
        cmocka_unit_test(test_net__a_restarted_server_leaves_a_mutation_in_doubt),
        cmocka_unit_test(test_net__doubt_is_about_the_life_that_was_asked_not_the_one_seen_last),
        cmocka_unit_test(test_net__a_half_open_connection_is_found_by_a_ping),
        cmocka_unit_test(test_net__a_half_open_connection_is_found_while_its_credit_is_used_up),
        cmocka_unit_test(test_net__a_frame_that_is_cut_in_the_middle_goes_again_whole),
        cmocka_unit_test(test_net__a_slow_reader_gets_everything_and_holds_up_nobody_else),
        cmocka_unit_test(test_net__two_sides_with_all_credit_used_never_wait_for_each_other),
        cmocka_unit_test(test_net__clocks_that_differ_leave_a_deadline_as_long_as_it_is),
        cmocka_unit_test(test_net__a_deadline_on_the_wire_is_what_remains),
        cmocka_unit_test(test_net__going_away_under_load_loses_nothing),
        cmocka_unit_test(test_net__a_call_lost_on_an_old_connection_goes_on_the_new_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
