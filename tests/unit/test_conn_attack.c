/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: N1, N2 and N5 of net/conn.h: what a peer that breaks the rules can and cannot do.
 * Method: a peer that speaks by hand over the simulated network, beside an honest one that must
 * not notice anything.
 */
#include "net_duo.h"

struct siege {
    struct duo duo;
    struct raw raw;
    struct yb_wire_frame_header header;
};

static void
siege_open(struct siege *siege, bool silent)
{
    duo_start(&siege->duo);
    raw_open(&siege->raw, &siege->duo, silent);
}

static uint64_t
ended(const struct siege *siege, enum yb_status status)
{
    const struct duo *duo = &siege->duo;

    return yb_stats_counter(duo->stats[SERVER], duo->nets[SERVER]->stats_first + YB_NET_STAT_CLOSED,
                            yb_stats_status_index(status), 0);
}

/* The server must have dropped the connection, with `status`; honest callers are served. */
static void
siege_expect_dropped(struct siege *siege, enum yb_status status)
{
    struct caller caller;

    DUO_AWAIT(&siege->duo, raw_lost(&siege->raw));
    assert_int_equal(ended(siege, status), 1);
    caller_init(&caller, &siege->duo, YB_WIRE_TYPE_ECHO);
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
    raw_close(&siege->raw);
    duo_fini(&siege->duo);
}

static void
test_conn_attack__more_requests_than_granted_drop_the_peer(void **state)
{
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege.duo.selfs[SERVER].credit_requests = 3;
    siege_open(&siege, false);
    for (uint64_t i = 0; i < 3; i++) {
        raw_header(&siege.raw, &siege.header, DUO_HOLD, i + 1);
        raw_frame(&siege.raw, &siege.header, NULL);
    }
    DUO_AWAIT(&siege.duo, siege.duo.service.held_count == 3);
    duo_pass_ms(&siege.duo, 100);
    assert_false(raw_lost(&siege.raw));
    service_reply(&siege.duo.service, YB_OK, NULL, 0);
    assert_true(raw_next(&siege.raw, &siege.header));
    assert_int_equal(siege.header.credit_requests, 1);
    raw_header(&siege.raw, &siege.header, DUO_HOLD, 4); /* What came back may be used again. */
    raw_frame(&siege.raw, &siege.header, NULL);
    DUO_AWAIT(&siege.duo, siege.duo.service.held_count == 3);
    assert_false(raw_lost(&siege.raw));
    raw_header(&siege.raw, &siege.header, DUO_HOLD, 5);
    raw_frame(&siege.raw, &siege.header, NULL);
    siege_expect_dropped(&siege, YB_PROTOCOL);
    assert_int_equal(siege.duo.service.handled, 4);
}

static void
test_conn_attack__more_bytes_than_granted_drop_the_peer(void **state)
{
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege.duo.selfs[SERVER].credit_bytes = 1000;
    siege_open(&siege, false);
    raw_header(&siege.raw, &siege.header, DUO_HOLD, 1);
    siege.header.data_bytes = 5000; /* All of the credit, which is allowed once. */
    raw_frame(&siege.raw, &siege.header, NULL);
    for (uint32_t i = 0; i < 5; i++) {
        uint8_t data[1000] = {0};

        raw_send(&siege.raw, data, sizeof(data));
    }
    DUO_AWAIT(&siege.duo, siege.duo.service.held_count == 1);
    duo_pass_ms(&siege.duo, 100);
    assert_false(raw_lost(&siege.raw));
    raw_header(&siege.raw, &siege.header, YB_WIRE_TYPE_ECHO, 2);
    raw_frame(&siege.raw, &siege.header, NULL);
    siege_expect_dropped(&siege, YB_PROTOCOL);
}

static void
test_conn_attack__a_flipped_bit_in_a_header_drops_the_peer(void **state)
{
    (void)state;
    for (uint32_t bit = 0; bit < 8 * 96; bit += 61) {
        const struct yb_frame_limits limits = {
            .version = YB_WIRE_VERSION_MAX, .body_bytes_max = 100, .data_bytes_max = 100};
        uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
        struct siege siege;

        duo_init(&siege.duo, "sim");
        siege_open(&siege, false);
        raw_header(&siege.raw, &siege.header, DUO_ADD, 1);
        siege.header.operation = 1;
        assert_int_equal(yb_frame_build(&siege.header, &limits, bytes), YB_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        raw_send(&siege.raw, bytes, sizeof(bytes));
        siege_expect_dropped(&siege, YB_PROTOCOL);
        assert_int_equal(siege.duo.service.sum, 0);
    }
}

static void
test_conn_attack__credit_that_was_not_lent_cannot_be_returned(void **state)
{
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege_open(&siege, false);
    raw_header(&siege.raw, &siege.header, YB_WIRE_TYPE_ECHO, 77);
    siege.header.flags = YB_WIRE_FRAME_FLAG_REPLY;
    siege.header.deadline_us = 0;
    raw_frame(&siege.raw, &siege.header, NULL); /* A late reply, for all the server knows. */
    DUO_AWAIT(&siege.duo, duo_stat(&siege.duo, SERVER, YB_NET_STAT_LATE_REPLIES) == 1);
    assert_false(raw_lost(&siege.raw));
    siege.header.credit_requests = 1;
    raw_frame(&siege.raw, &siege.header, NULL);
    siege_expect_dropped(&siege, YB_PROTOCOL);
}

/* The server asks the client something, on the client's connection. */
static void
server_asks(struct siege *siege, struct caller *caller)
{
    caller_init(caller, &siege->duo, YB_WIRE_TYPE_ECHO);
    caller->call.deadline_ns = YB_NEVER; /* The server has a clock of its own. */
    assert_int_equal(yb_conn_call(siege->duo.nets[SERVER]->conns, &caller->call), YB_OK);
    duo_kick(&siege->duo);
}

static void
test_conn_attack__a_reply_with_more_than_fits_is_dropped_and_not_written(void **state)
{
    struct caller caller;
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege_open(&siege, false);
    server_asks(&siege, &caller);
    caller.call.reply_body_room = 10;
    assert_true(raw_next(&siege.raw, &siege.header));
    siege.header.flags = YB_WIRE_FRAME_FLAG_REPLY;
    siege.header.deadline_us = 0;
    siege.header.body_bytes = 11;
    siege.header.credit_requests = 1;
    raw_frame(&siege.raw, &siege.header, "hello world");
    DUO_AWAIT(&siege.duo, caller.done == 1);
    caller_expect(&caller, YB_TOO_SMALL);
    assert_int_equal(caller.reply[0], 0xcc);
    siege.header.credit_requests = 0;
    raw_frame(&siege.raw, &siege.header, "hello again"); /* A second reply finds nobody. */
    DUO_AWAIT(&siege.duo, duo_stat(&siege.duo, SERVER, YB_NET_STAT_LATE_REPLIES) == 1);
    assert_int_equal(caller.done, 1);
    raw_close(&siege.raw);
    duo_fini(&siege.duo);
}

static void
test_conn_attack__a_credit_frame_gives_credit(void **state)
{
    struct caller callers[3];
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege.duo.selfs[CLIENT].credit_requests = 1;
    siege_open(&siege, false);
    server_asks(&siege, &callers[0]);
    caller_init(&callers[1], &siege.duo, YB_WIRE_TYPE_ECHO);
    callers[1].call.deadline_ns = YB_NEVER;
    assert_int_equal(yb_conn_call(siege.duo.nets[SERVER]->conns, &callers[1].call), YB_AGAIN);
    raw_header(&siege.raw, &siege.header, YB_WIRE_TYPE_CREDIT, 0);
    siege.header.credit_requests = 1;
    siege.header.deadline_us = YB_WIRE_DEADLINE_NEVER;
    raw_frame(&siege.raw, &siege.header, NULL);
    DUO_AWAIT(&siege.duo, siege.duo.nets[SERVER]->conns->peer.credit_requests == 2);
    assert_false(siege.duo.nets[SERVER]->conns->out.room_wanted &&
                 siege.duo.nets[SERVER]->conns->events->on_room != NULL);
    server_asks(&siege, &callers[1]);
    raw_close(&siege.raw);
    DUO_AWAIT(&siege.duo, callers[0].done == 1 && callers[1].done == 1);
    duo_fini(&siege.duo);
}

static void
test_conn_attack__a_connection_lost_inside_data_aborts_its_request(void **state)
{
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege_open(&siege, false);
    raw_header(&siege.raw, &siege.header, DUO_PUT, 1);
    siege.header.data_bytes = 5000;
    siege.header.operation = 9;
    raw_frame(&siege.raw, &siege.header, NULL);
    DUO_AWAIT(&siege.duo, siege.duo.service.placed == 1);
    raw_send(&siege.raw, "part of it", 10);
    duo_pass_ms(&siege.duo, 10);
    raw_close(&siege.raw);
    DUO_AWAIT(&siege.duo, siege.duo.service.aborted == 1);
    assert_int_equal(siege.duo.service.handled, 0);
    assert_int_equal(yb_replay_count(siege.duo.replay).records, 0); /* It may be asked again. */
    duo_fini(&siege.duo);
}

static void
test_conn_attack__a_duplicate_with_data_is_answered_and_its_data_does_not_land(void **state)
{
    uint64_t first = 0;
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege_open(&siege, false);
    for (uint64_t i = 0; i < 3; i++) {
        raw_header(&siege.raw, &siege.header, DUO_PUT, i + 1);
        siege.header.data_bytes = 8;
        siege.header.operation = 9;
        raw_frame(&siege.raw, &siege.header, NULL);
        raw_send(&siege.raw, i == 0 ? "original" : "replaced", 8);
        assert_true(raw_next(&siege.raw, &siege.header));
        assert_int_equal(siege.header.status, YB_OK);
        assert_int_equal(siege.header.request_id, i + 1);
        assert_int_equal(siege.header.body_bytes, sizeof(first));
        assert_memory_equal(siege.raw.probe.received + siege.raw.taken - sizeof(first),
                            &siege.duo.service.sum, sizeof(first));
    }
    assert_int_equal(siege.duo.service.sum, 1);
    assert_int_equal(siege.duo.service.placed, 1);
    assert_memory_equal(siege.duo.service.memory, "original", 8);
    assert_int_equal(duo_stat(&siege.duo, SERVER, YB_NET_STAT_DUPLICATES), 2);
    raw_close(&siege.raw);
    duo_fini(&siege.duo);
}

static void
test_conn_attack__a_stranger_is_told_who_lives_here(void **state)
{
    static const char http[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    struct siege siege;

    (void)state;
    duo_init(&siege.duo, "sim");
    siege_open(&siege, true);
    raw_send(&siege.raw, http, sizeof(http) - 1);
    DUO_AWAIT(&siege.duo, raw_lost(&siege.raw));
    assert_true(siege.raw.probe.received_length > 0);
    assert_non_null(
        memmem(siege.raw.probe.received, siege.raw.probe.received_length, "the test's port", 15));
    DUO_AWAIT(&siege.duo, yb_net_conn_count(siege.duo.nets[SERVER]) == 0);
    raw_close(&siege.raw);
    duo_fini(&siege.duo);
}

/* Random bytes after a handshake, and instead of one: an honest peer is served all the same. */
static void
test_conn_attack__noise_harms_nobody_else(void **state)
{
    uint64_t random = unit_seed("noise");

    (void)state;
    for (uint32_t i = 0; i < 60; i++) {
        uint8_t noise[2000];
        struct siege siege;
        struct caller caller;

        for (size_t j = 0; j < sizeof(noise); j++) {
            noise[j] = (uint8_t)(unit_random(&random) >> 16);
        }
        duo_init(&siege.duo, "sim");
        siege_open(&siege, i % 2 == 0);
        raw_header(&siege.raw, &siege.header, DUO_SWAP, 1);
        siege.header.data_bytes = unit_random(&random) % 4000;
        if (i % 4 == 1) {
            raw_frame(&siege.raw, &siege.header, NULL);
        }
        raw_send(&siege.raw, noise, 1 + unit_random(&random) % sizeof(noise));
        caller_init(&caller, &siege.duo, YB_WIRE_TYPE_ECHO);
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
        DUO_AWAIT(&siege.duo, raw_lost(&siege.raw) || siege.raw.probe.received_length > 0 ||
                                  duo_now(&siege.duo) > YB_SIM_START_NS + 20 * YB_NS_PER_S);
        raw_close(&siege.raw);
        duo_fini(&siege.duo);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conn_attack__more_requests_than_granted_drop_the_peer),
        cmocka_unit_test(test_conn_attack__more_bytes_than_granted_drop_the_peer),
        cmocka_unit_test(test_conn_attack__a_flipped_bit_in_a_header_drops_the_peer),
        cmocka_unit_test(test_conn_attack__credit_that_was_not_lent_cannot_be_returned),
        cmocka_unit_test(test_conn_attack__a_reply_with_more_than_fits_is_dropped_and_not_written),
        cmocka_unit_test(test_conn_attack__a_credit_frame_gives_credit),
        cmocka_unit_test(test_conn_attack__a_connection_lost_inside_data_aborts_its_request),
        cmocka_unit_test(
            test_conn_attack__a_duplicate_with_data_is_answered_and_its_data_does_not_land),
        cmocka_unit_test(test_conn_attack__a_stranger_is_told_who_lives_here),
        cmocka_unit_test(test_conn_attack__noise_harms_nobody_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
