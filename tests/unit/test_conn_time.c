/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: every wait of a connection has an end: handshakes, frames in pieces, silence, writes that
 * nobody takes; and nothing that makes progress is taken for one of those. N4 of net/conn.h.
 * Method: virtual time, in which the moments are exact.
 */
#include "net_duo.h"

#define MIB (1024u * 1024u)

enum { LANES = 6 }; /* Of the classes that a caller may use: control and bulk. */

static uint32_t
server_conns(const struct duo *duo)
{
    return yb_net_conn_count(duo->nets[SERVER]);
}

/* Pass time in which the connection must live, and then a little in which it must go. */
static void
expect_end(struct duo *duo, struct raw *raw, uint64_t lives_ms, uint64_t gone_ms)
{
    duo_pass_ms(duo, lives_ms);
    assert_false(raw_lost(raw));
    duo_pass_ms(duo, gone_ms - lives_ms);
    assert_true(raw_lost(raw));
    raw_close(raw);
    assert_int_equal(server_conns(duo), 0);
    duo_fini(duo);
}

static void
test_conn_time__a_handshake_that_does_not_go_on_is_refused(void **state)
{
    (void)state;
    for (int partial = 0; partial < 2; partial++) {
        struct raw raw;
        struct duo duo;

        duo_init(&duo, "sim");
        duo_start(&duo);
        raw_open(&raw, &duo, true);
        if (partial) {
            raw_send(&raw, "YUEBING", 7);
        }
        expect_end(&duo, &raw, 2900, 4000);
    }
}

static void
test_conn_time__a_frame_that_is_not_finished_ends_the_connection(void **state)
{
    static const struct {
        size_t header_bytes; /* How much of the header is sent ... */
        uint32_t body_bytes; /* ... and what it announces. */
        uint64_t data_bytes;
    } rows[] = {{1, 0, 0}, {95, 0, 0}, {96, 100, 0}, {96, 100, 5000}, {96, 0, 5000}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct yb_frame_limits limits = {
            .version = YB_WIRE_VERSION_MAX, .body_bytes_max = MIB, .data_bytes_max = MIB};
        struct yb_wire_frame_header header;
        uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
        struct raw raw;
        struct duo duo;

        duo_init(&duo, "sim");
        duo.limits[SERVER].idle_ping_ns = 1000 * YB_NS_PER_S; /* Silence is not what ends it. */
        duo_start(&duo);
        raw_open(&raw, &duo, false);
        raw_header(&raw, &header, DUO_STORE, 1);
        header.body_bytes = rows[i].body_bytes;
        header.data_bytes = rows[i].data_bytes;
        assert_int_equal(yb_frame_build(&header, &limits, bytes), YB_OK);
        raw_send(&raw, bytes, rows[i].header_bytes);
        expect_end(&duo, &raw, 9900, 10200);
    }
}

static void
test_conn_time__a_byte_a_second_does_not_keep_a_frame_alive(void **state)
{
    (void)state;
    for (int in_data = 0; in_data < 2; in_data++) {
        struct yb_wire_frame_header header;
        struct raw raw;
        struct duo duo;
        uint32_t seconds = 0;

        duo_init(&duo, "sim");
        duo_start(&duo);
        raw_open(&raw, &duo, false);
        raw_header(&raw, &header, DUO_STORE, 1);
        header.body_bytes = in_data ? 0 : 5000;
        header.data_bytes = in_data ? 5000 : 0;
        raw_frame(&raw, &header, NULL);
        while (!raw_lost(&raw)) {
            duo_pass_ms(&duo, 1000);
            raw_send(&raw, "x", 1);
            seconds++;
            assert_true(seconds < 13);
        }
        assert_true(seconds >= 9);
        assert_int_equal(duo.service.handled, 0);
        assert_int_equal(duo.service.aborted, in_data ? 1 : 0);
        raw_close(&raw);
        duo_fini(&duo);
    }
}

static void
test_conn_time__slow_progress_is_progress(void **state)
{
    uint8_t *data = malloc(16 * MIB);
    uint8_t *copy = malloc(16 * MIB);
    const struct iovec iov = {.iov_base = data, .iov_len = 16 * MIB};
    struct caller caller;
    struct duo duo;

    (void)state;
    io_pattern(data, 16 * MIB, 4);
    duo_init(&duo, "sim");
    duo.link.bytes_per_s = 200 * 1024; /* 80 seconds: many timeouts long, and pings are due. */
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_SWAP);
    caller.call.lane = YB_WIRE_LANE_BULK;
    caller.call.deadline_ns = YB_NEVER;
    caller.call.data = &iov;
    caller.call.data_count = 1;
    caller.call.reply_data = &iov;
    caller.call.reply_data_count = 1;
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_CONNECTED), 1);
    io_pattern(copy, 16 * MIB, 4);
    assert_memory_equal(data, copy, 16 * MIB);
    duo_fini(&duo);
    free(data);
    free(copy);
}

static void
test_conn_time__a_peer_that_takes_no_bytes_is_dropped(void **state)
{
    const struct duo_load load = {.bytes = MIB, .vectors = 1};
    struct yb_wire_frame_header header;
    struct raw raw;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.limits[SERVER].idle_ping_ns = 1000 * YB_NS_PER_S;
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    raw_header(&raw, &header, DUO_LOAD, 1);
    header.body_bytes = sizeof(load);
    raw.probe.keep_reading = false;
    raw_frame(&raw, &header, &load);
    duo_pass_ms(&duo, 9900);
    assert_int_equal(server_conns(&duo), 1);
    assert_int_equal(duo.service.released, 0); /* Its data may still be read. */
    duo_pass_ms(&duo, 300);
    assert_int_equal(server_conns(&duo), 0);
    assert_int_equal(duo.service.released, 1);
    raw_close(&raw);
    duo_fini(&duo);
}

static void
test_conn_time__a_silent_peer_is_dropped_after_three_ping_intervals(void **state)
{
    struct raw raw;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    expect_end(&duo, &raw, 44500, 45500);
}

static void
test_conn_time__a_peer_that_says_nothing_holds_up_a_drain_for_half_a_second(void **state)
{
    struct raw raw;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    raw_open(&raw, &duo, false);
    duo_kick(&duo);
    yb_net_drain(duo.nets[SERVER]);
    duo_pass_ms(&duo, 450);
    assert_int_equal(server_conns(&duo), 1); /* Requests of it may be on their way. */
    duo_pass_ms(&duo, 100);
    assert_int_equal(server_conns(&duo), 0);
    raw_close(&raw);
    duo_fini(&duo);
}

/* ---- a connection without a peer.h around it ------------------------------------------------ */

struct direct {
    struct yb_conn *conn;
    uint32_t opened;
    uint32_t closed;
    enum yb_status end;
};

static void
direct_open(void *owner, struct yb_conn *conn)
{
    (void)conn;
    ((struct direct *)owner)->opened++;
}

static void
direct_closed(void *owner, struct yb_conn *conn, const struct yb_conn_end *end)
{
    struct direct *direct = owner;

    (void)conn;
    direct->closed++;
    direct->end = end->status;
}

static const struct yb_conn_events direct_events = {.on_open = direct_open,
                                                    .on_closed = direct_closed};

static void
direct_connect(struct direct *direct, struct duo *duo)
{
    const struct yb_conn_target target = {.address = duo->address,
                                          .lane_class = YB_CLASS_FIRST_TOKEN};

    *direct = (struct direct){0};
    assert_int_equal(
        yb_conn_connect(duo->nets[CLIENT], &target, &direct_events, direct, &direct->conn), YB_OK);
}

static void
test_conn_time__pings_keep_an_idle_connection_for_as_long_as_it_is_wanted(void **state)
{
    static const uint32_t told_ms[] = {15000, 1000, 0};

    (void)state;
    for (size_t i = 0; i < sizeof(told_ms) / sizeof(told_ms[0]); i++) {
        struct direct direct;
        struct duo duo;

        duo_init(&duo, "sim");
        duo.selfs[SERVER].ping_interval_ms = told_ms[i];
        duo.limits[SERVER].idle_ping_ns =
            told_ms[i] > 0 ? told_ms[i] * YB_NS_PER_MS : 15 * YB_NS_PER_S;
        duo_start(&duo);
        direct_connect(&direct, &duo);
        duo_pass_ms(&duo, 600000);
        assert_int_equal(direct.opened, 1);
        assert_int_equal(direct.closed, 0);
        assert_true(yb_conn_is_open(direct.conn));
        assert_true(duo_stat(&duo, SERVER, YB_NET_STAT_FRAMES_IN) >= 35);
        duo_fini(&duo);
    }
}

static void
test_conn_time__both_sides_notice_that_the_other_has_vanished(void **state)
{
    struct direct direct;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    direct_connect(&direct, &duo);
    duo_pass_ms(&duo, 1000);
    assert_int_equal(direct.opened, 1);
    assert_int_equal(yb_sim_black_hole(duo.sim, NULL, NULL), 1);
    duo_pass_ms(&duo, 14000 + 13000);
    assert_int_equal(direct.closed, 1); /* A ping interval and a frame timeout. */
    assert_int_equal(direct.end, YB_TIMED_OUT);
    duo_pass_ms(&duo, 20000);
    assert_int_equal(server_conns(&duo), 0);
    duo_fini(&duo);
}

static void
test_conn_time__a_connect_that_nobody_answers_ends(void **state)
{
    struct direct direct;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.link.connect_silent_ppm = YB_SIM_PPM;
    duo_start(&duo);
    direct_connect(&direct, &duo);
    duo_pass_ms(&duo, 1900);
    assert_int_equal(direct.closed, 0);
    duo_pass_ms(&duo, 300);
    assert_int_equal(direct.closed, 1);
    assert_int_equal(direct.end, YB_TIMED_OUT);
    assert_int_equal(direct.opened, 0);
    duo_fini(&duo);
}

static bool
holds_no_buffer(const struct yb_conn *conn)
{
    return conn->out.head == NULL && conn->in.body_buffer == NULL && conn->hello == NULL;
}

static void
test_conn_time__an_idle_connection_holds_no_buffer(void **state)
{
    uint8_t *data = calloc(1, MIB);
    const struct iovec iov = {.iov_base = data, .iov_len = MIB};
    struct caller caller;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.link.piece_bytes_max = 1000; /* Bodies come in pieces and are put together. */
    duo_start(&duo);
    caller_init(&caller, &duo, DUO_SWAP);
    caller.call.body = data;
    caller.call.body_bytes = 100000;
    caller.call.data = caller.call.reply_data = &iov;
    caller.call.data_count = caller.call.reply_data_count = 1;
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    duo_pass_ms(&duo, 20000);
    assert_non_null(duo.nets[CLIENT]->conns);
    assert_true(holds_no_buffer(duo.nets[CLIENT]->conns));
    assert_true(holds_no_buffer(duo.nets[SERVER]->conns));
    assert_int_equal(duo.nets[SERVER]->requests_live, 0);
    duo_fini(&duo);
    free(data);
}

static void
test_conn_time__a_peer_has_one_connection_per_lane_and_closes_what_is_unused(void **state)
{
    struct caller callers[LANES * 3];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < LANES * 3; i++) {
            caller_init(&callers[i], &duo, YB_WIRE_TYPE_ECHO);
            callers[i].call.lane = (enum yb_wire_lane)(i % 2);
            callers[i].call.class = (enum yb_class)(i / 2 % 3);
            assert_int_equal(caller_submit(&callers[i]), YB_OK);
        }
        for (uint32_t i = 0; i < LANES * 3; i++) {
            DUO_AWAIT(&duo, callers[i].done == 1);
            caller_expect(&callers[i], YB_OK);
        }
        assert_int_equal(yb_peer_conn_count(duo.peer), LANES);
        assert_int_equal(server_conns(&duo), LANES);
        duo_pass_ms(&duo, 170000); /* Pings are no use. */
        assert_int_equal(yb_peer_conn_count(duo.peer), 0);
        assert_int_equal(server_conns(&duo), 0);
    }
    duo_fini(&duo);
}

/* Ask for something on every lane of `count` peers. */
static void
use_lanes(struct duo *duo, struct yb_peer **peers, uint32_t count)
{
    for (uint32_t i = 0; i < count * LANES; i++) {
        struct caller caller;

        duo->peer = peers[i / LANES];
        caller_init(&caller, duo, YB_WIRE_TYPE_ECHO);
        caller.call.lane = (enum yb_wire_lane)(i % 2);
        caller.call.class = (enum yb_class)(i / 2 % 3);
        caller.call.fail_fast = true;
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
    }
}

/* Let `seconds` pass in which nothing is asked for. Returns how many connections are left. */
static uint32_t
leave_unused(struct duo *duo, uint32_t all, uint32_t seconds)
{
    uint32_t open = server_conns(duo);

    assert_int_equal(open, all);
    for (uint32_t second = 0; second < seconds; second++) {
        uint32_t before = open;

        duo_pass_ms(duo, 1000);
        open = server_conns(duo);
        assert_true(open <= before);
        assert_true((before - open) * 10 <= all); /* S36 */
        assert_true(second >= 45 || open == all); /* They have just been used. */
    }
    return open;
}

/* Also when they are used again while some wait for their turn to close. */
static void
test_conn_time__unused_connections_close_one_after_the_other_and_are_made_again(void **state)
{
    enum { PEERS = 2, ALL = PEERS * LANES, ROUNDS = 20 };
    uint64_t random = unit_seed("unused");
    struct yb_peer *peers[PEERS];
    struct yb_peer *first;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    first = duo.peer;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct yb_address_list list = {.count = 1, .items = {duo.address}};

        assert_int_equal(yb_peer_create(duo.nets[CLIENT], &list, (struct yb_id){{0}}, &peers[i]),
                         YB_OK);
        yb_peer_set_stripe(peers[i], i + 1);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        use_lanes(&duo, peers, PEERS);
        if (round % 2 == 0) {
            assert_int_equal(leave_unused(&duo, ALL, 200), 0);
        } else {
            (void)leave_unused(&duo, ALL, 60 + (uint32_t)(unit_random(&random) % 20));
        }
    }
    assert_int_equal(duo_stat(&duo, CLIENT, YB_NET_STAT_RETRIES), 0);
    for (uint32_t i = 0; i < PEERS; i++) {
        yb_peer_destroy(&peers[i]);
    }
    duo.peer = first;
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conn_time__a_handshake_that_does_not_go_on_is_refused),
        cmocka_unit_test(test_conn_time__a_frame_that_is_not_finished_ends_the_connection),
        cmocka_unit_test(test_conn_time__a_byte_a_second_does_not_keep_a_frame_alive),
        cmocka_unit_test(test_conn_time__slow_progress_is_progress),
        cmocka_unit_test(test_conn_time__a_peer_that_takes_no_bytes_is_dropped),
        cmocka_unit_test(test_conn_time__a_silent_peer_is_dropped_after_three_ping_intervals),
        cmocka_unit_test(
            test_conn_time__a_peer_that_says_nothing_holds_up_a_drain_for_half_a_second),
        cmocka_unit_test(test_conn_time__pings_keep_an_idle_connection_for_as_long_as_it_is_wanted),
        cmocka_unit_test(test_conn_time__both_sides_notice_that_the_other_has_vanished),
        cmocka_unit_test(test_conn_time__a_connect_that_nobody_answers_ends),
        cmocka_unit_test(test_conn_time__an_idle_connection_holds_no_buffer),
        cmocka_unit_test(
            test_conn_time__a_peer_has_one_connection_per_lane_and_closes_what_is_unused),
        cmocka_unit_test(
            test_conn_time__unused_connections_close_one_after_the_other_and_are_made_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
