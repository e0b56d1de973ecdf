/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the simulated network keeps the contract of io.h, hurts as it says, and repeats.
 * Method: the conformance suite, and one short conversation per fault, with bytes compared. All
 * faults at once are in test_sim_walk.c.
 */
#include "unit.h"

#include <string.h>

#include "io_conformance.h"
#include "io_probe.h"
#include "sim_world.h"

/* A connection from node 0 to node 1. */
struct talk {
    struct net net;
    struct io_acceptor acceptor;
    struct io_probe client;
    struct io_probe server;
};

static void
talk_listen(struct talk *talk, uint64_t seed)
{
    struct yb_address address;

    net_init(&talk->net, seed);
    io_acceptor_init(&talk->acceptor, talk->net.nodes[1].io, &talk->server, 1);
    io_probe_init(&talk->client, talk->net.nodes[0].io);
    yb_sim_host_address(talk->net.nodes[1].host, PORT, &address);
    assert_int_equal(io_acceptor_listen(&talk->acceptor, &address), YB_OK);
}

static void
talk_connect(struct talk *talk, uint32_t user_timeout_ms)
{
    struct yb_stream_options options = {.user_timeout_ms = user_timeout_ms};

    assert_int_equal(io_probe_connect(&talk->client, &talk->acceptor.address, &options), YB_OK);
}

static void
talk_open(struct talk *talk, uint64_t seed, uint32_t user_timeout_ms)
{
    talk_listen(talk, seed);
    talk_connect(talk, user_timeout_ms);
    pass_ms(&talk->net, 10);
    assert_int_equal(talk->client.connected_count, 1);
    assert_int_equal(talk->client.connect_status, YB_OK);
    assert_int_equal(talk->acceptor.accepted_count, 1);
    talk->server.keep_reading = true;
}

static void
talk_fini(struct talk *talk)
{
    if (talk->client.stream != NULL) {
        io_probe_close(&talk->client, YB_CLOSE_GRACEFUL);
    }
    if (talk->server.stream != NULL) {
        io_probe_close(&talk->server, YB_CLOSE_GRACEFUL);
    }
    settle(&talk->net);
    assert_int_equal(talk->client.closed_count, 1);
    assert_int_equal(talk->server.closed_count, talk->server.io != NULL ? 1 : 0);
    assert_int_equal(yb_sim_connection_count(talk->net.sim), 0);
    assert_true(yb_sim_held_bytes(talk->net.sim) == 0);
    io_probe_fini(&talk->client);
    io_probe_fini(&talk->server);
    net_fini(&talk->net);
}

/* ---- the contract -------------------------------------------------------------------- */

struct alone {
    struct yb_sim *sim;
    struct node node;
};

static void *
alone_with(const struct yb_sim_link *link, struct yb_io **io_out)
{
    struct alone *alone = calloc(1, sizeof(*alone));

    assert_non_null(alone);
    alone->sim = yb_sim_create(1);
    yb_sim_set_link(alone->sim, NULL, NULL, link);
    alone->node.host = yb_sim_host_create(alone->sim, "alone", "10.0.0.1");
    node_start(&alone->node);
    *io_out = alone->node.io;
    return alone;
}

static void *
alone_create(struct yb_io **io_out)
{
    struct yb_sim_link link = yb_sim_link_default();

    return alone_with(&link, io_out);
}

static void *
alone_create_rough(struct yb_io **io_out)
{
    struct yb_sim_link link = yb_sim_link_rough();

    link.drop_ppm = 0; /* The reset of an abort may be lost, and then nobody is told. */
    return alone_with(&link, io_out);
}

static void
alone_destroy(void *world, struct yb_io *io)
{
    struct alone *alone = world;

    yb_io_destroy(&io);
    assert_null(yb_sim_process_io(alone->node.process));
    yb_sim_destroy(&alone->sim);
    free(alone);
}

static void
alone_pass(void *world, struct yb_io *io)
{
    struct alone *alone = world;

    (void)io;
    (void)yb_sim_run_until(alone->sim, NULL, NULL, yb_sim_now_ns(alone->sim) + YB_NS_PER_MS,
                           FOREVER_STEPS);
}

static uint64_t
alone_now_ns(void *world)
{
    return yb_sim_now_ns(((struct alone *)world)->sim);
}

/* ---- bytes --------------------------------------------------------------------------- */

static void
test_sim__bytes_are_equal_and_in_order_however_rough_the_link(void **state)
{
    enum { LENGTH = 200000 };
    uint64_t random = unit_seed("rough link");
    uint8_t *there = malloc(LENGTH);
    uint8_t *back = malloc(LENGTH);

    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct yb_sim_link link = yb_sim_link_rough();
        uint64_t seed = unit_random(&random);
        struct talk talk;

        io_pattern(there, LENGTH, seed);
        io_pattern(back, LENGTH, seed + 1);
        talk_listen(&talk, seed);
        link.bytes_per_s = (round & 1) != 0 ? 1000000 : 0;
        yb_sim_set_link(talk.net.sim, talk.net.nodes[1].host, talk.net.nodes[0].host, &link);
        talk_connect(&talk, 0);
        pass_ms(&talk.net, 10000);
        assert_int_equal(talk.client.connect_status, YB_OK);
        talk.client.keep_reading = talk.server.keep_reading = true;
        talk.server.use_into = true;
        talk.client.write_bytes_max = 1 + unit_random(&random) % 50000;
        io_probe_read(&talk.client);
        io_probe_read(&talk.server);
        io_probe_send(&talk.client, there, LENGTH);
        io_probe_send(&talk.server, back, LENGTH);
        pass_ms(&talk.net, 100000);
        assert_int_equal(talk.server.received_length, LENGTH);
        assert_int_equal(talk.client.received_length, LENGTH);
        assert_memory_equal(talk.server.received, there, LENGTH);
        assert_memory_equal(talk.client.received, back, LENGTH);
        talk_fini(&talk);
    }
    free(there);
    free(back);
}

static void
test_sim__unread_bytes_never_exceed_the_window(void **state)
{
    enum { LENGTH = 1000000 };
    uint8_t *bytes = calloc(1, LENGTH);
    struct yb_sim_link link = yb_sim_link_default();
    struct talk talk;

    (void)state;
    link.window_bytes = 10000;
    link.piece_bytes_max = 3000;
    talk_open(&talk, 1, 0);
    yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
    io_probe_send(&talk.client, bytes, LENGTH);
    pass_ms(&talk.net, 1000);
    assert_int_equal(yb_sim_held_bytes(talk.net.sim), 10000);
    assert_int_equal(talk.client.written_count, 0);
    io_probe_read(&talk.server);
    while (talk.server.received_length < LENGTH) {
        assert_true(yb_sim_step(talk.net.sim));
        assert_true(yb_sim_held_bytes(talk.net.sim) <= 10000);
    }
    settle(&talk.net);
    assert_int_equal(talk.client.written_count, 1);
    free(bytes);
    talk_fini(&talk);
}

static void
test_sim__connections_overtake_each_other(void **state)
{
    enum { PAIRS = 32 };
    struct io_probe clients[PAIRS];
    struct io_probe servers[PAIRS];
    struct yb_sim_link link = yb_sim_link_default();
    uint32_t overtaken = 0;
    uint8_t numbers[PAIRS];
    struct io_acceptor acceptor;
    struct yb_address address;
    struct net net;

    (void)state;
    net_init(&net, 2);
    link.connection_jitter_ns = 10 * YB_NS_PER_MS;
    yb_sim_set_link(net.sim, NULL, NULL, &link);
    io_acceptor_init(&acceptor, net.nodes[1].io, servers, PAIRS);
    acceptor.start_read = true;
    yb_sim_host_address(net.nodes[1].host, PORT, &address);
    assert_int_equal(io_acceptor_listen(&acceptor, &address), YB_OK);
    for (uint32_t i = 0; i < PAIRS; i++) {
        numbers[i] = (uint8_t)i;
        io_probe_init(&clients[i], net.nodes[0].io);
        assert_int_equal(io_probe_connect(&clients[i], &address, NULL), YB_OK);
    }
    settle(&net);
    for (uint32_t i = 0; i < PAIRS; i++) {
        io_probe_send(&clients[i], &numbers[i], 1);
    }
    settle(&net);
    for (uint32_t i = 0; i + 1 < PAIRS; i++) {
        /* Accepted in the order of arrival, which is not the order of connecting. */
        assert_int_equal(servers[i].received_length, 1);
        overtaken += servers[i].received[0] > servers[i + 1].received[0];
    }
    assert_true(overtaken > 0);
    for (uint32_t i = 0; i < PAIRS; i++) {
        io_probe_close(&clients[i], YB_CLOSE_ABORT);
        io_probe_close(&servers[i], YB_CLOSE_ABORT);
    }
    settle(&net);
    for (uint32_t i = 0; i < PAIRS; i++) {
        io_probe_fini(&servers[i]);
    }
    net_fini(&net);
}

/* ---- connecting ---------------------------------------------------------------------- */

static void
test_sim__hosts_are_apart_and_addresses_are_bound_once_each(void **state)
{
    struct io_acceptor acceptors[5];
    struct yb_address address;
    struct io_probe probe;
    char why[YB_ADDRESS_WHY_BYTES];
    struct net net;

    (void)state;
    net_init(&net, 3);
    for (uint32_t i = 0; i < 5; i++) {
        io_acceptor_init(&acceptors[i], net.nodes[i % 2].io, NULL, 0);
    }
    yb_sim_host_address(net.nodes[0].host, PORT, &address);
    assert_int_equal(io_acceptor_listen(&acceptors[0], &address), YB_OK);
    assert_int_equal(io_acceptor_listen(&acceptors[1], &address), YB_INVALID); /* Not its own. */
    assert_int_equal(yb_address_parse("0.0.0.0", PORT, &address, why), YB_OK);
    assert_int_equal(io_acceptor_listen(&acceptors[2], &address), YB_ADDRESS_IN_USE);
    assert_int_equal(io_acceptor_listen(&acceptors[3], &address), YB_OK);
    assert_int_equal(yb_address_parse("127.0.0.1", PORT, &address, why), YB_OK);
    assert_int_equal(io_acceptor_listen(&acceptors[4], &address), YB_OK);
    /* Loopback of another host is one's own, where nobody listens. */
    io_probe_init(&probe, net.nodes[2].io);
    assert_int_equal(io_probe_connect(&probe, &address, NULL), YB_OK);
    settle(&net);
    assert_int_equal(probe.connect_status, YB_REFUSED);
    io_probe_close(&probe, YB_CLOSE_ABORT);
    settle(&net);
    /* An address that no host has. */
    io_probe_init(&probe, net.nodes[2].io);
    assert_int_equal(yb_address_parse("10.9.9.9", PORT, &address, why), YB_OK);
    assert_int_equal(io_probe_connect(&probe, &address, NULL), YB_OK);
    settle(&net);
    assert_int_equal(probe.connect_status, YB_UNREACHABLE);
    io_probe_close(&probe, YB_CLOSE_ABORT);
    settle(&net);
    net_fini(&net);
}

static void
test_sim__a_full_accept_queue_hangs_connects_until_there_is_room(void **state)
{
    struct talk talk;

    (void)state;
    talk_listen(&talk, 4);
    yb_sim_host_set_backlog(talk.net.nodes[1].host, 0);
    talk_connect(&talk, 0);
    pass_ms(&talk.net, 2500);
    assert_int_equal(talk.client.connected_count, 0);
    yb_sim_host_set_backlog(talk.net.nodes[1].host, 1);
    pass_ms(&talk.net, 2500);
    assert_int_equal(talk.client.connected_count, 1);
    assert_int_equal(talk.client.connect_status, YB_OK);
    talk_fini(&talk);
}

static void
test_sim__a_connect_that_nobody_answers_times_out(void **state)
{
    struct yb_sim_link link = yb_sim_link_default();
    uint64_t start_ns;
    struct talk talk;

    (void)state;
    talk_listen(&talk, 5);
    link.connect_silent_ppm = YB_SIM_PPM;
    link.connect_timeout_ns = 5 * YB_NS_PER_S;
    yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
    start_ns = yb_sim_now_ns(talk.net.sim);
    talk_connect(&talk, 0);
    settle(&talk.net);
    assert_int_equal(talk.client.connect_status, YB_TIMED_OUT);
    assert_true(yb_sim_now_ns(talk.net.sim) - start_ns >= 5 * YB_NS_PER_S);
    assert_true(yb_sim_now_ns(talk.net.sim) - start_ns < 6 * YB_NS_PER_S);
    assert_int_equal(talk.acceptor.accepted_count, 0);
    talk.server.io = NULL; /* There was no second end. */
    talk_fini(&talk);
}

/* ---- faults -------------------------------------------------------------------------- */

static void
test_sim__a_cut_resets_both_ends_and_loses_what_was_under_way(void **state)
{
    uint8_t bytes[1000] = {0};
    struct talk talk;

    (void)state;
    talk_open(&talk, 6, 0);
    io_probe_read(&talk.client);
    io_probe_read(&talk.server);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    assert_int_equal(yb_sim_cut(talk.net.sim, talk.net.nodes[2].host, NULL), 0);
    assert_int_equal(yb_sim_cut(talk.net.sim, talk.net.nodes[1].host, NULL), 1);
    settle(&talk.net);
    assert_int_equal(talk.server.received_length, 0);
    assert_int_equal(talk.server.lost_count, 1);
    assert_int_equal(talk.client.lost_count, 1);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    settle(&talk.net);
    assert_int_equal(talk.client.write_status, YB_PEER_LOST);
    talk_fini(&talk);
}

static void
test_sim__a_link_cuts_after_exactly_so_many_bytes(void **state)
{
    enum { LENGTH = 50000 };
    uint8_t *bytes = malloc(LENGTH);
    struct yb_sim_link link = yb_sim_link_rough();
    struct talk talk;

    (void)state;
    io_pattern(bytes, LENGTH, 7);
    link.cut_after_bytes = 12345;
    link.jitter_ns = link.drop_ppm = 0;
    talk_open(&talk, 7, 0);
    yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
    io_probe_read(&talk.server);
    io_probe_read(&talk.client);
    io_probe_send(&talk.client, bytes, LENGTH);
    settle(&talk.net);
    assert_int_equal(talk.server.received_length, 12345);
    assert_memory_equal(talk.server.received, bytes, 12345);
    assert_int_equal(talk.server.lost_count, 1);
    assert_int_equal(talk.client.lost_count, 1);
    free(bytes);
    talk_fini(&talk);
}

static void
test_sim__a_partition_holds_bytes_until_it_heals(void **state)
{
    uint8_t bytes[5000];
    uint8_t more[100];
    struct talk talk;

    (void)state;
    io_pattern(bytes, sizeof(bytes), 8);
    io_pattern(more, sizeof(more), 9);
    talk_open(&talk, 8, 0);
    io_probe_read(&talk.server);
    yb_sim_partition(talk.net.sim, &talk.net.nodes[0].host, 1);
    talk.client.write_bytes_max = 700;
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    pass_ms(&talk.net, 60000);
    assert_int_equal(talk.client.sent, sizeof(bytes)); /* All of it fits into the window. */
    assert_int_equal(talk.server.received_length, 0);
    assert_int_equal(talk.client.lost_count + talk.server.lost_count, 0);
    /* What is written right after the healing may not pass what is still held. */
    yb_sim_heal(talk.net.sim);
    io_probe_send(&talk.client, more, sizeof(more));
    pass_ms(&talk.net, 1000);
    assert_int_equal(talk.server.received_length, sizeof(bytes) + sizeof(more));
    assert_memory_equal(talk.server.received, bytes, sizeof(bytes));
    assert_memory_equal(talk.server.received + sizeof(bytes), more, sizeof(more));
    talk_fini(&talk);
}

static void
test_sim__a_one_way_block_stops_one_way_only(void **state)
{
    uint8_t bytes[10] = {0};
    struct talk talk;

    (void)state;
    talk_open(&talk, 9, 0);
    io_probe_read(&talk.server);
    io_probe_read(&talk.client);
    yb_sim_block(talk.net.sim, talk.net.nodes[1].host, talk.net.nodes[0].host, true);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    io_probe_send(&talk.server, bytes, sizeof(bytes));
    pass_ms(&talk.net, 1000);
    assert_int_equal(talk.server.received_length, sizeof(bytes));
    assert_int_equal(talk.client.received_length, 0);
    yb_sim_block(talk.net.sim, talk.net.nodes[1].host, talk.net.nodes[0].host, false);
    pass_ms(&talk.net, 1000);
    assert_int_equal(talk.client.received_length, sizeof(bytes));
    talk_fini(&talk);
}

static void
test_sim__unacknowledged_bytes_break_their_writer_after_the_user_timeout(void **state)
{
    uint8_t bytes[10] = {0};
    struct talk talk;

    (void)state;
    talk_open(&talk, 10, 3000);
    io_probe_read(&talk.server);
    io_probe_read(&talk.client);
    assert_int_equal(
        yb_sim_black_hole(talk.net.sim, talk.net.nodes[0].host, talk.net.nodes[1].host), 1);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    pass_ms(&talk.net, 2900);
    assert_int_equal(talk.client.lost_count, 0);
    pass_ms(&talk.net, 200);
    assert_int_equal(talk.client.lost_count, 1);
    /* The other end sent nothing and is half open for ever. */
    pass_ms(&talk.net, 10000000);
    assert_int_equal(talk.server.lost_count, 0);
    assert_int_equal(talk.server.received_length, 0);
    talk_fini(&talk);
}

static void
test_sim__a_stalled_host_is_told_nothing_and_catches_up(void **state)
{
    uint8_t bytes[5000];
    uint32_t run_count;
    uint64_t local_ns;
    struct talk talk;

    (void)state;
    io_pattern(bytes, sizeof(bytes), 11);
    talk_open(&talk, 11, 0);
    io_probe_read(&talk.server);
    yb_sim_host_stall(talk.net.nodes[1].host, true);
    run_count = talk.net.nodes[1].run_count;
    local_ns = yb_clock_now(yb_sim_host_clock(talk.net.nodes[1].host));
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    pass_ms(&talk.net, 5000);
    assert_int_equal(talk.client.written_count, 1); /* Its kernel lives. */
    assert_int_equal(talk.net.nodes[1].run_count, run_count);
    assert_int_equal(yb_io_poll(talk.net.nodes[1].io, 0), 0);
    assert_int_equal(talk.server.received_length, 0);
    assert_true(yb_clock_now(yb_sim_host_clock(talk.net.nodes[1].host)) ==
                local_ns + 5000 * YB_NS_PER_MS);
    yb_sim_host_stall(talk.net.nodes[1].host, false);
    settle(&talk.net);
    assert_int_equal(talk.server.received_length, sizeof(bytes));
    assert_memory_equal(talk.server.received, bytes, sizeof(bytes));
    talk_fini(&talk);
}

static void
test_sim__a_reset_leaves_or_voids_what_was_not_read_yet(void **state)
{
    uint8_t bytes[5000];

    (void)state;
    io_pattern(bytes, sizeof(bytes), 12);
    for (uint32_t voids = 0; voids < 2; voids++) {
        struct yb_sim_link link = yb_sim_link_default();
        struct talk talk;

        link.reset_drops_unread = voids != 0;
        talk_open(&talk, 12, 0);
        yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
        io_probe_send(&talk.client, bytes, sizeof(bytes));
        settle(&talk.net);
        io_probe_close(&talk.client, YB_CLOSE_ABORT);
        settle(&talk.net);
        io_probe_read(&talk.server);
        settle(&talk.net);
        assert_int_equal(talk.server.received_length, voids != 0 ? 0 : sizeof(bytes));
        assert_memory_equal(bytes, voids != 0 ? bytes : talk.server.received, sizeof(bytes));
        assert_int_equal(talk.server.lost_count, 1);
        talk_fini(&talk);
    }
}

static void
test_sim__an_abort_discards_bytes_that_were_not_delivered(void **state)
{
    enum { LENGTH = 200000 };
    uint8_t *bytes = calloc(1, LENGTH);
    struct yb_sim_link link = yb_sim_link_default();
    struct talk talk;

    (void)state;
    talk_open(&talk, 13, 0);
    link.bytes_per_s = 100000; /* Two seconds' worth. */
    yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
    io_probe_read(&talk.server);
    io_probe_send(&talk.client, bytes, LENGTH);
    pass_ms(&talk.net, 1000);
    assert_int_equal(talk.client.written_count, 1);
    io_probe_close(&talk.client, YB_CLOSE_ABORT);
    settle(&talk.net);
    assert_true(talk.server.received_length < LENGTH);
    assert_int_equal(talk.server.lost_count, 1);
    free(bytes);
    talk_fini(&talk);
}

static void
test_sim__a_graceful_close_with_unread_bytes_resets_where_the_link_says_so(void **state)
{
    uint8_t bytes[5000];

    (void)state;
    io_pattern(bytes, sizeof(bytes), 20);
    for (uint32_t resets = 0; resets < 2; resets++) {
        struct yb_sim_link link = yb_sim_link_default();
        struct talk talk;

        link.close_unread_resets = resets != 0;
        link.bytes_per_s = 100000;
        talk_open(&talk, 20, 0);
        io_probe_send(&talk.client, bytes, 1);
        settle(&talk.net);
        yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
        talk.client.keep_reading = true;
        io_probe_read(&talk.client);
        io_probe_send(&talk.server, bytes, sizeof(bytes));
        io_probe_close(&talk.server, YB_CLOSE_GRACEFUL);
        settle(&talk.net);
        assert_int_equal(talk.client.received_length, resets != 0 ? 0 : sizeof(bytes));
        assert_int_equal(talk.client.lost_count, 1);
        talk_fini(&talk);
    }
}

static void
test_sim__a_black_hole_of_chance_lets_one_piece_pass(void **state)
{
    uint8_t bytes[100] = {0};
    struct yb_sim_link link = yb_sim_link_default();
    struct talk talk;

    (void)state;
    talk_open(&talk, 21, 0);
    link.black_hole_ppm = YB_SIM_PPM;
    link.piece_bytes_max = 10;
    yb_sim_set_link(talk.net.sim, NULL, NULL, &link);
    io_probe_read(&talk.server);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    pass_ms(&talk.net, 10000);
    assert_int_equal(talk.server.received_length, 10);
    assert_int_equal(talk.client.lost_count + talk.server.lost_count, 0);
    talk_fini(&talk);
}

/* ---- crashes ------------------------------------------------------------------------- */

static void
crash_and_return(enum yb_sim_death how, bool expect_bytes, bool expect_told)
{
    uint8_t bytes[5000];
    struct yb_address address;
    struct io_probe again;
    struct io_acceptor second;
    struct io_probe accepted;
    struct talk talk;

    io_pattern(bytes, sizeof(bytes), 14);
    talk_open(&talk, 14, 0);
    talk.client.keep_reading = true;
    io_probe_read(&talk.client);
    io_probe_read(&talk.server);
    io_probe_send(&talk.server, bytes, sizeof(bytes));
    yb_sim_host_crash(talk.net.nodes[1].host, how);
    assert_true(yb_sim_process_crashed(talk.net.nodes[1].process));
    pass_ms(&talk.net, 60000);
    if (expect_bytes) {
        assert_int_equal(talk.client.received_length, sizeof(bytes));
        assert_memory_equal(talk.client.received, bytes, sizeof(bytes));
    }
    assert_int_equal(talk.client.lost_count, expect_told ? 1 : 0);
    /* What stood on the dead process can be torn down. */
    assert_true(yb_io_poll(talk.net.nodes[1].io, YB_NEVER) > 0);
    assert_int_equal(talk.server.lost_count, 1);
    io_probe_close(&talk.server, YB_CLOSE_GRACEFUL);
    assert_true(yb_io_poll(talk.net.nodes[1].io, YB_NEVER) > 0);
    assert_int_equal(talk.server.closed_count, 1);
    io_acceptor_close(&talk.acceptor);
    yb_io_destroy(&talk.net.nodes[1].io);
    yb_sim_process_destroy(&talk.net.nodes[1].process);
    /* It comes back under its old address. */
    yb_sim_host_restart(talk.net.nodes[1].host);
    node_start(&talk.net.nodes[1]);
    io_acceptor_init(&second, talk.net.nodes[1].io, &accepted, 1);
    yb_sim_host_address(talk.net.nodes[1].host, PORT, &address);
    assert_int_equal(io_acceptor_listen(&second, &address), YB_OK);
    io_probe_init(&again, talk.net.nodes[0].io);
    assert_int_equal(io_probe_connect(&again, &address, NULL), YB_OK);
    if (!expect_told) {
        io_probe_send(&talk.client, bytes, sizeof(bytes));
    }
    pass_ms(&talk.net, 10);
    assert_int_equal(again.connect_status, YB_OK);
    assert_int_equal(second.accepted_count, 1);
    assert_int_equal(accepted.received_length, 0);
    assert_int_equal(talk.client.lost_count, 1); /* The new kernel knows no such connection. */
    io_probe_close(&again, YB_CLOSE_ABORT);
    io_probe_close(&accepted, YB_CLOSE_ABORT);
    settle(&talk.net);
    talk_fini(&talk);
}

static void
test_sim__a_crash_is_told_by_a_reset_by_an_end_or_by_nothing(void **state)
{
    (void)state;
    crash_and_return(YB_SIM_DEATH_RESET, false, true);
    crash_and_return(YB_SIM_DEATH_FLUSH, true, true);
    crash_and_return(YB_SIM_DEATH_SILENT, false, false);
}

static void
test_sim__a_connection_may_be_adopted_by_another_process_of_its_host(void **state)
{
    uint8_t byte = 7;

    (void)state;
    for (uint32_t crash = 0; crash < 2; crash++) {
        struct node worker = {0};
        struct talk talk;

        talk_listen(&talk, 22);
        talk.acceptor.keep = true;
        talk_connect(&talk, 0);
        settle(&talk.net);
        worker.host = talk.net.nodes[1].host;
        node_start(&worker);
        if (crash != 0) {
            yb_sim_process_crash(talk.net.nodes[1].process, YB_SIM_DEATH_RESET);
        }
        io_probe_init(&talk.server, worker.io);
        io_probe_adopt(&talk.server, &talk.acceptor.accepted, NULL);
        io_probe_read(&talk.server);
        io_probe_send(&talk.client, &byte, 1);
        settle(&talk.net);
        assert_int_equal(talk.server.received_length, crash != 0 ? 0 : 1);
        assert_int_equal(talk.server.lost_count, crash);
        talk_fini(&talk);
    }
}

static void
crash_node(void *arg)
{
    struct node *node = arg;

    yb_sim_process_crash(node->process, YB_SIM_DEATH_RESET);
}

static void
test_sim__a_world_with_crashed_and_busy_processes_can_be_destroyed(void **state)
{
    uint8_t bytes[5000] = {0};
    struct talk talk;

    (void)state;
    talk_open(&talk, 15, 0);
    io_probe_read(&talk.server);
    io_probe_send(&talk.client, bytes, sizeof(bytes));
    yb_sim_call_at(talk.net.sim, yb_sim_now_ns(talk.net.sim) + 1000, crash_node,
                   &talk.net.nodes[1]);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(yb_sim_step(talk.net.sim));
    }
    net_fini(&talk.net); /* With streams open and bytes under way: nothing leaks. */
    assert_int_equal(talk.client.closed_count + talk.server.closed_count, 0);
    free(talk.server.received);
}

/* ---- time ---------------------------------------------------------------------------- */

static void
test_sim__clocks_drift_skip_and_are_wrong_each_in_its_own_way(void **state)
{
    const struct yb_clock *fast;
    const struct yb_clock *true_clock;
    uint64_t fast_ns;
    uint64_t true_ns;
    struct net net;

    (void)state;
    net_init(&net, 16);
    fast = yb_sim_host_clock(net.nodes[0].host);
    true_clock = yb_sim_process_clock(net.nodes[1].process);
    fast_ns = yb_clock_now(fast);
    true_ns = yb_clock_now(true_clock);
    assert_true(fast_ns != true_ns);
    assert_true(yb_clock_wall(fast) == yb_clock_wall(true_clock));
    yb_sim_host_set_drift(net.nodes[0].host, 100000);
    yb_sim_host_set_wall(net.nodes[0].host, -(int64_t)YB_NS_PER_S);
    pass_ms(&net, 10000);
    assert_true(yb_clock_now(fast) - fast_ns == 11000 * YB_NS_PER_MS);
    assert_true(yb_clock_now(true_clock) - true_ns == 10000 * YB_NS_PER_MS);
    assert_true(yb_clock_wall(true_clock) - yb_clock_wall(fast) == YB_NS_PER_S);
    yb_sim_host_skip(net.nodes[0].host, 5);
    yb_sim_host_set_drift(net.nodes[0].host, -100000);
    assert_true(yb_clock_now(fast) - fast_ns == 11000 * YB_NS_PER_MS + 5);
    pass_ms(&net, 10000);
    assert_true(yb_clock_now(fast) - fast_ns == 20000 * YB_NS_PER_MS + 5);
    net_fini(&net);
}

static void
test_sim__a_poll_times_out_by_the_clock_of_its_host(void **state)
{
    struct net net;

    (void)state;
    net_init(&net, 17);
    yb_sim_host_set_drift(net.nodes[1].host, 1000000); /* Twice as fast. */
    net.nodes[0].timeout_ns = net.nodes[1].timeout_ns = 100 * YB_NS_PER_MS;
    pass_ms(&net, 1050);
    assert_int_equal(net.nodes[0].run_count, 11);
    assert_int_equal(net.nodes[1].run_count, 22);
    assert_int_equal(net.nodes[2].run_count, 1);
    yb_io_wake(net.nodes[2].io);
    pass_ms(&net, 1);
    assert_int_equal(net.nodes[2].run_count, 2);
    net_fini(&net);
}

static void
test_sim__a_process_that_spins_cannot_hold_the_clock(void **state)
{
    struct net net;

    (void)state;
    net_init(&net, 18);
    net.nodes[0].timeout_ns = 0;
    pass_ms(&net, 100);
    assert_int_equal(net.nodes[0].run_count, 100 * YB_NS_PER_MS / YB_SIM_RUN_NS + 1);
    net_fini(&net);
}

static bool
is_set(void *arg)
{
    return *(bool *)arg;
}

static void
test_sim__a_run_ends_at_its_predicate_its_time_or_its_steps(void **state)
{
    bool reached = false;
    struct net net;

    (void)state;
    net_init(&net, 19);
    assert_int_equal(yb_sim_run_until(net.sim, is_set, &reached, YB_NEVER, 2), YB_SIM_STEP_LIMIT);
    assert_int_equal(yb_sim_step_count(net.sim), 2);
    assert_int_equal(yb_sim_run_until(net.sim, is_set, &reached, YB_NEVER, 100), YB_SIM_QUIET);
    net.nodes[0].timeout_ns = YB_NS_PER_S;
    yb_io_wake(net.nodes[0].io);
    assert_int_equal(
        yb_sim_run_until(net.sim, is_set, &reached, YB_SIM_START_NS + 10 * YB_NS_PER_S, 100),
        YB_SIM_TIME_LIMIT);
    assert_true(yb_sim_now_ns(net.sim) == YB_SIM_START_NS + 10 * YB_NS_PER_S);
    reached = true;
    assert_int_equal(yb_sim_run_until(net.sim, is_set, &reached, YB_NEVER, 100), YB_SIM_REACHED);
    net_fini(&net);
}

static void
test_sim__a_dump_names_the_seed_and_the_last_events(void **state)
{
    FILE *file = tmpfile();
    char text[4096] = {0};
    struct talk talk;

    (void)state;
    assert_non_null(file);
    talk_open(&talk, 4711, 0);
    yb_sim_dump(talk.net.sim, file);
    rewind(file);
    assert_true(fread(text, 1, sizeof(text) - 1, file) > 0);
    assert_non_null(strstr(text, "seed 4711"));
    assert_non_null(strstr(text, "10.0.0.2"));
    assert_non_null(strstr(text, "connect"));
    assert_int_equal(fclose(file), 0);
    talk_fini(&talk);
}

int
main(void)
{
    static const struct io_backend backends[] = {
        {"sim", alone_create, alone_destroy, alone_pass, alone_now_ns},
        {"sim on a rough link", alone_create_rough, alone_destroy, alone_pass, alone_now_ns},
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sim__bytes_are_equal_and_in_order_however_rough_the_link),
        cmocka_unit_test(test_sim__unread_bytes_never_exceed_the_window),
        cmocka_unit_test(test_sim__connections_overtake_each_other),
        cmocka_unit_test(test_sim__hosts_are_apart_and_addresses_are_bound_once_each),
        cmocka_unit_test(test_sim__a_full_accept_queue_hangs_connects_until_there_is_room),
        cmocka_unit_test(test_sim__a_connect_that_nobody_answers_times_out),
        cmocka_unit_test(test_sim__a_cut_resets_both_ends_and_loses_what_was_under_way),
        cmocka_unit_test(test_sim__a_link_cuts_after_exactly_so_many_bytes),
        cmocka_unit_test(test_sim__a_partition_holds_bytes_until_it_heals),
        cmocka_unit_test(test_sim__a_one_way_block_stops_one_way_only),
        cmocka_unit_test(test_sim__unacknowledged_bytes_break_their_writer_after_the_user_timeout),
        cmocka_unit_test(test_sim__a_stalled_host_is_told_nothing_and_catches_up),
        cmocka_unit_test(test_sim__a_reset_leaves_or_voids_what_was_not_read_yet),
        cmocka_unit_test(test_sim__an_abort_discards_bytes_that_were_not_delivered),
        cmocka_unit_test(test_sim__a_crash_is_told_by_a_reset_by_an_end_or_by_nothing),
        cmocka_unit_test(
            test_sim__a_graceful_close_with_unread_bytes_resets_where_the_link_says_so),
        cmocka_unit_test(test_sim__a_black_hole_of_chance_lets_one_piece_pass),
        cmocka_unit_test(test_sim__a_connection_may_be_adopted_by_another_process_of_its_host),
        cmocka_unit_test(test_sim__a_world_with_crashed_and_busy_processes_can_be_destroyed),
        cmocka_unit_test(test_sim__clocks_drift_skip_and_are_wrong_each_in_its_own_way),
        cmocka_unit_test(test_sim__a_poll_times_out_by_the_clock_of_its_host),
        cmocka_unit_test(test_sim__a_process_that_spins_cannot_hold_the_clock),
        cmocka_unit_test(test_sim__a_run_ends_at_its_predicate_its_time_or_its_steps),
        cmocka_unit_test(test_sim__a_dump_names_the_seed_and_the_last_events),
    };
    int failed = cmocka_run_group_tests_name("faults", tests, NULL, NULL);

    for (uint32_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        failed += io_conformance_run(&backends[i]);
    }
    return failed;
}
