/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator's time and its ways: agenda, pipe, fabric, tally.
 */
#include "unit.h"

#include <string.h>

#include "sim/agenda.h"
#include "sim/fabric.h"
#include "sim/pipe.h"
#include "sim/tally.h"

#define GB 1e9 /* A byte per nanosecond. */

static void
enter(struct yb_agenda *agenda, uint64_t at_ns, uint32_t who)
{
    assert_int_equal(yb_agenda_enter(agenda, &(struct yb_agenda_event){.at_ns = at_ns, .who = who}),
                     YB_OK);
}

static void
test_sim_pipes__events_of_one_time_come_in_the_order_of_entry(void **state)
{
    struct yb_agenda *agenda;
    struct yb_agenda_event event;

    (void)state;
    assert_int_equal(yb_agenda_create(&agenda), YB_OK);
    enter(agenda, 20, 0);
    for (uint32_t i = 1; i <= 50; i++) {
        enter(agenda, 10, i);
    }
    for (uint32_t i = 1; i <= 50; i++) {
        assert_true(yb_agenda_next(agenda, &event));
        assert_int_equal(event.who, i);
    }
    assert_int_equal(yb_agenda_now(agenda), 10);
    assert_true(yb_agenda_next(agenda, &event));
    assert_int_equal(event.at_ns, 20);
    assert_false(yb_agenda_next(agenda, &event));
    assert_int_equal(yb_agenda_count(agenda), 51);
    yb_agenda_destroy(&agenda);
    assert_null(agenda);
}

static void
test_sim_pipes__an_agenda_gives_back_all_in_order(void **state)
{
    uint64_t seed = unit_seed("sim_pipes");
    struct yb_agenda *agenda;
    struct yb_agenda_event event;
    uint64_t last_ns = 0;
    uint64_t sum = 0;
    uint32_t inside = 0;

    (void)state;
    assert_int_equal(yb_agenda_create(&agenda), YB_OK);
    for (uint32_t i = 0; i < 20000; i++) {
        if (inside > 0 && unit_random(&seed) % 5 < 2) {
            assert_true(yb_agenda_next(agenda, &event));
            assert_true(event.at_ns >= last_ns);
            last_ns = event.at_ns;
            sum -= event.who;
            inside--;
        } else {
            enter(agenda, last_ns + unit_random(&seed) % 100, i);
            sum += i;
            inside++;
        }
    }
    while (yb_agenda_next(agenda, &event)) {
        assert_true(event.at_ns >= last_ns);
        last_ns = event.at_ns;
        sum -= event.who;
    }
    assert_int_equal(sum, 0);
    yb_agenda_destroy(&agenda);
}

static void
test_sim_pipes__one_class_is_served_in_order_at_the_whole_rate(void **state)
{
    struct yb_pipe pipe;
    double first;
    double second;

    (void)state;
    yb_pipe_init(&pipe, GB);
    first = yb_pipe_enter(&pipe, YB_PIPE_FIRST_TOKEN, 1000, 0);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, first, 0), 1000);
    second = yb_pipe_enter(&pipe, YB_PIPE_FIRST_TOKEN, 500, 400);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, first, 400), 1000);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, second, 400), 1500);
    assert_int_equal(yb_pipe_backlog(&pipe, YB_PIPE_FIRST_TOKEN, 900), 600);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, second, 1500), 1500);
    yb_pipe_advance(&pipe, 5000);
    assert_int_equal(pipe.busy_ns, 1500);
}

static void
test_sim_pipes__a_preferred_class_leaves_others_their_share_and_no_more(void **state)
{
    struct yb_pipe pipe;
    double first;
    double second;

    (void)state;
    yb_pipe_init(&pipe, GB);
    /* 1000 of each: 0.9 of the rate until 1111.1, then all of it for the other's 888.9. */
    first = yb_pipe_enter(&pipe, YB_PIPE_FIRST_TOKEN, 1000, 0);
    second = yb_pipe_enter(&pipe, YB_PIPE_THROUGHPUT, 1000, 0);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, first, 0), 1112);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_THROUGHPUT, second, 0), 2000);
}

static void
test_sim_pipes__what_is_under_way_gives_way_to_what_is_preferred(void **state)
{
    struct yb_pipe pipe;
    double background;
    double first;

    (void)state;
    yb_pipe_init(&pipe, GB);
    background = yb_pipe_enter(&pipe, YB_PIPE_BACKGROUND, 1000, 0);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_BACKGROUND, background, 0), 1000);
    first = yb_pipe_enter(&pipe, YB_PIPE_FIRST_TOKEN, 950, 500);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_FIRST_TOKEN, first, 500), 1500);
    assert_int_equal(yb_pipe_finish_ns(&pipe, YB_PIPE_BACKGROUND, background, 500), 1950);
    assert_int_equal(yb_pipe_backlog(&pipe, YB_PIPE_FIRST_TOKEN, 1000), 475);
    assert_int_equal(yb_pipe_backlog(&pipe, YB_PIPE_BACKGROUND, 1000), 950);
}

static void
test_sim_pipes__bytes_that_enter_a_pipe_leave_it(void **state)
{
    uint64_t seed = unit_seed("sim_pipes");
    struct yb_pipe pipe;
    double entered = 0;
    uint64_t now_ns = 0;

    (void)state;
    yb_pipe_init(&pipe, 3 * GB);
    for (unsigned i = 0; i < 5000; i++) {
        double bytes = (double)(unit_random(&seed) % 100000);
        enum yb_pipe_class class = (enum yb_pipe_class)(unit_random(&seed) % YB_PIPE_CLASSES);
        double mark = yb_pipe_enter(&pipe, class, bytes, now_ns);
        uint64_t finish_ns = yb_pipe_finish_ns(&pipe, class, mark, now_ns);

        entered += bytes;
        assert_true(finish_ns >= now_ns + (uint64_t)(bytes / 3));
        now_ns += unit_random(&seed) % 30000;
        assert_true(pipe.busy_ns <= (double)now_ns + 1); /* Sums of real numbers. */
    }
    yb_pipe_advance(&pipe, now_ns + 1000000000000ull);
    assert_true(pipe.served[0] + pipe.served[1] + pipe.served[2] == entered);
    /* P2: a byte takes a third of a nanosecond, and nothing else takes any. */
    assert_true(pipe.busy_ns >= entered / 3 - 5000 && pipe.busy_ns <= entered / 3 + 5000);
}

static struct yb_fabric *
fabric_with(uint32_t nodes, uint32_t rack_nodes)
{
    struct yb_fabric_options options = {
        .nodes = nodes,
        .rack_nodes = rack_nodes,
        .bytes_per_s = {GB, GB, 8 * GB, 2 * GB, GB / 2, GB / 2, GB},
        .latency_ns = {[YB_FABRIC_PORT_OUT] = 100, [YB_FABRIC_OBJECT] = 5000},
    };
    struct yb_fabric *fabric;

    assert_int_equal(yb_fabric_create(&options, &fabric), YB_OK);
    return fabric;
}

static uint64_t
send(struct yb_fabric *fabric, enum yb_fabric_from from, uint32_t peer, uint32_t node, double bytes)
{
    struct yb_fabric_order order = {
        .from = from, .peer = peer, .node = node, .class = YB_PIPE_FIRST_TOKEN, .bytes = bytes};
    struct yb_fabric_flow flow;

    assert_int_equal(yb_fabric_begin(fabric, &order, 0, &flow), YB_OK);
    return yb_fabric_finish_ns(fabric, &flow, 0);
}

static void
test_sim_pipes__the_slowest_pipe_on_the_way_decides(void **state)
{
    struct yb_fabric *fabric = fabric_with(4, 2);

    (void)state;
    assert_int_equal(send(fabric, YB_FABRIC_FROM_DRAM, 0, 0, 8000), 1000);
    assert_int_equal(send(fabric, YB_FABRIC_FROM_PEER, 1, 0, 1000), 1000);
    /* To another rack: the uplink is half as fast. */
    assert_int_equal(send(fabric, YB_FABRIC_FROM_PEER, 1, 2, 1000), 2000);
    /* The same port out, and then the port in of node 0, which has 1000 already. */
    assert_int_equal(send(fabric, YB_FABRIC_FROM_PEER, 3, 0, 1000), 2000);
    assert_int_equal(send(fabric, YB_FABRIC_FROM_OBJECT, 0, 3, 100), 5000);
    assert_int_equal(send(fabric, YB_FABRIC_FROM_PEER_SSD, 3, 2, 10), 1010);
    assert_true(yb_fabric_use(fabric, YB_FABRIC_UPLINK, 4000).bytes == 2000);
    assert_true(yb_fabric_use(fabric, YB_FABRIC_UPLINK, 4000).busiest == 0.5);
    yb_fabric_destroy(&fabric);
    assert_null(fabric);
}

static void
test_sim_pipes__there_is_no_way_over_a_pipe_that_is_not_there(void **state)
{
    struct yb_fabric_options options = {.nodes = 2, .bytes_per_s = {[YB_FABRIC_PORT_OUT] = GB}};
    struct yb_fabric_order order = {.from = YB_FABRIC_FROM_PEER, .peer = 1, .bytes = 10};
    struct yb_fabric_flow flow;
    struct yb_fabric *fabric;

    (void)state;
    assert_int_equal(yb_fabric_create(&options, &fabric), YB_OK);
    assert_int_equal(yb_fabric_begin(fabric, &order, 0, &flow), YB_INVALID);
    assert_int_equal(yb_fabric_use(fabric, YB_FABRIC_PORT_OUT, 10).bytes, 0);
    assert_null(yb_fabric_pipe(fabric, YB_FABRIC_PORT_IN, 0));
    yb_fabric_destroy(&fabric);
    options.nodes = 0;
    assert_int_equal(yb_fabric_create(&options, &fabric), YB_INVALID);
}

static void
test_sim_pipes__a_tally_counts_many_equal_values_at_once(void **state)
{
    static struct yb_tally tally;

    (void)state;
    assert_int_equal(yb_tally_quantile(&tally, 0.5), 0);
    yb_tally_add(&tally, 10, 98);
    yb_tally_add(&tally, 20, 1);
    yb_tally_add(&tally, 1000, 1);
    yb_tally_add(&tally, 5000, 0);
    assert_int_equal(tally.count, 100);
    assert_int_equal(tally.max, 1000);
    assert_true(yb_tally_mean(&tally) == 20);
    assert_int_equal(yb_tally_quantile(&tally, 0.98), 10);
    assert_int_equal(yb_tally_quantile(&tally, 0.99), 20);
    assert_int_equal(yb_tally_quantile(&tally, 1), 1000);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim_pipes__events_of_one_time_come_in_the_order_of_entry),
        cmocka_unit_test(test_sim_pipes__an_agenda_gives_back_all_in_order),
        cmocka_unit_test(test_sim_pipes__one_class_is_served_in_order_at_the_whole_rate),
        cmocka_unit_test(test_sim_pipes__a_preferred_class_leaves_others_their_share_and_no_more),
        cmocka_unit_test(test_sim_pipes__what_is_under_way_gives_way_to_what_is_preferred),
        cmocka_unit_test(test_sim_pipes__bytes_that_enter_a_pipe_leave_it),
        cmocka_unit_test(test_sim_pipes__the_slowest_pipe_on_the_way_decides),
        cmocka_unit_test(test_sim_pipes__there_is_no_way_over_a_pipe_that_is_not_there),
        cmocka_unit_test(test_sim_pipes__a_tally_counts_many_equal_values_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
