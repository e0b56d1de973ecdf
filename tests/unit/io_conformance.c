/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: one contract, three backends (epoll, io_uring, the simulation).
 * Method: the smallest conversation that would show each promise broken; bytes are compared.
 */
#include "io_conformance.h"

#include <string.h>

#include "io_probe.h"

#define DEADLINE_NS (60 * YB_NS_PER_S)
#define MANY_COUNT  64u

struct bench {
    const struct io_backend *backend;
    void *world;
    struct yb_io *io;
    struct yb_address loopback; /* Port 0. */
};

static void
bench_init(struct bench *bench, void **state)
{
    char why[YB_ADDRESS_WHY_BYTES];

    bench->backend = *state;
    bench->world = bench->backend->create(&bench->io);
    if (bench->world == NULL) {
        skip();
    }
    assert_int_equal(yb_address_parse("127.0.0.1", 0, &bench->loopback, why), YB_OK);
}

static void
bench_fini(struct bench *bench)
{
    bench->backend->destroy(bench->world, bench->io);
}

/* Let time pass until `condition` holds. */
#define AWAIT(bench, condition)                                                     \
    do {                                                                            \
        uint64_t until_ns = (bench)->backend->now_ns((bench)->world) + DEADLINE_NS; \
        while (!(condition)) {                                                      \
            assert_true((bench)->backend->now_ns((bench)->world) < until_ns);       \
            (bench)->backend->pass((bench)->world, (bench)->io);                    \
        }                                                                           \
    } while (0)

/* Let a little time pass in which something must not happen. */
static void
linger(struct bench *bench)
{
    for (uint32_t i = 0; i < 20; i++) {
        bench->backend->pass(bench->world, bench->io);
    }
}

/* A connection with both its ends, and the listener it came through. */
struct pair {
    struct io_acceptor acceptor;
    struct io_probe client;
    struct io_probe server;
};

static void
pair_open(struct pair *pair, struct bench *bench)
{
    io_acceptor_init(&pair->acceptor, bench->io, &pair->server, 1);
    io_probe_init(&pair->client, bench->io);
    assert_int_equal(io_acceptor_listen(&pair->acceptor, &bench->loopback), YB_OK);
    assert_int_equal(io_probe_connect(&pair->client, &pair->acceptor.address, NULL), YB_OK);
    AWAIT(bench, pair->client.connected_count > 0 && pair->acceptor.accepted_count > 0);
    assert_int_equal(pair->client.connect_status, YB_OK);
    assert_int_equal(pair->client.connected_count, 1);
    assert_int_equal(pair->acceptor.accepted_count, 1);
}

static void
pair_close(struct pair *pair, struct bench *bench)
{
    if (pair->client.stream != NULL) {
        io_probe_close(&pair->client, YB_CLOSE_ABORT);
    }
    if (pair->server.stream != NULL) {
        io_probe_close(&pair->server, YB_CLOSE_ABORT);
    }
    io_acceptor_close(&pair->acceptor);
    AWAIT(bench, pair->client.closed_count == 1 && pair->server.closed_count == 1);
    linger(bench);
    assert_int_equal(pair->client.closed_count, 1);
    io_probe_fini(&pair->client);
    io_probe_fini(&pair->server);
}

static void
test_io__a_bound_port_is_read_back_and_connected_to(void **state)
{
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    pair_open(&pair, &bench);
    assert_true(pair.acceptor.address.port != 0);
    assert_true(yb_address_is_loopback(&pair.acceptor.accepted.peer));
    assert_true(pair.acceptor.accepted.peer.port != 0);
    pair_close(&pair, &bench);
    bench_fini(&bench);
}

static void
check_both_ways(struct bench *bench, bool into, size_t read_limit, size_t write_bytes_max)
{
    enum { LENGTH = 3 * 1024 * 1024 + 17 };
    uint8_t *there = malloc(LENGTH);
    uint8_t *back = malloc(LENGTH);
    struct pair pair;

    assert_true(there != NULL && back != NULL);
    io_pattern(there, LENGTH, 1);
    io_pattern(back, LENGTH, 2);
    pair_open(&pair, bench);
    pair.client.keep_reading = pair.server.keep_reading = true;
    pair.client.use_into = pair.server.use_into = into;
    pair.client.read_limit = pair.server.read_limit = read_limit;
    pair.client.write_bytes_max = pair.server.write_bytes_max = write_bytes_max;
    io_probe_read(&pair.client);
    io_probe_read(&pair.server);
    io_probe_send(&pair.client, there, LENGTH);
    io_probe_send(&pair.server, back, LENGTH);
    AWAIT(bench, pair.server.received_length >= LENGTH && pair.client.received_length >= LENGTH);
    AWAIT(bench, pair.server.sent == LENGTH && pair.client.sent == LENGTH);
    assert_int_equal(pair.server.received_length, LENGTH);
    assert_int_equal(pair.client.received_length, LENGTH);
    assert_memory_equal(pair.server.received, there, LENGTH);
    assert_memory_equal(pair.client.received, back, LENGTH);
    pair_close(&pair, bench);
    free(there);
    free(back);
}

static void
test_io__bytes_arrive_equal_and_in_order_in_both_directions_at_once(void **state)
{
    struct bench bench;

    bench_init(&bench, state);
    check_both_ways(&bench, false, YB_IO_READ_BYTES_MAX, SIZE_MAX);
    check_both_ways(&bench, false, 4001, 10007);
    check_both_ways(&bench, true, YB_IO_READ_BYTES_MAX, 65536);
    bench_fini(&bench);
}

static void
test_io__a_read_never_exceeds_its_limit(void **state)
{
    uint8_t bytes[64];
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    io_pattern(bytes, sizeof(bytes), 3);
    pair_open(&pair, &bench);
    pair.server.read_limit = 1;
    pair.server.keep_reading = true;
    io_probe_send(&pair.client, bytes, sizeof(bytes));
    io_probe_read(&pair.server);
    AWAIT(&bench, pair.server.received_length == sizeof(bytes));
    assert_int_equal(pair.server.read_count, sizeof(bytes)); /* The probe checks each length. */
    assert_memory_equal(pair.server.received, bytes, sizeof(bytes));
    pair_close(&pair, &bench);
    bench_fini(&bench);
}

static void
test_io__nobody_listening_is_refused(void **state)
{
    struct io_acceptor acceptor;
    struct io_probe probe;
    struct bench bench;

    bench_init(&bench, state);
    io_acceptor_init(&acceptor, bench.io, NULL, 0);
    assert_int_equal(io_acceptor_listen(&acceptor, &bench.loopback), YB_OK);
    io_acceptor_close(&acceptor);
    io_probe_init(&probe, bench.io);
    assert_int_equal(io_probe_connect(&probe, &acceptor.address, NULL), YB_OK);
    AWAIT(&bench, probe.connected_count > 0);
    assert_int_equal(probe.connect_status, YB_REFUSED);
    assert_int_equal(acceptor.accepted_count, 0);
    io_probe_close(&probe, YB_CLOSE_GRACEFUL);
    AWAIT(&bench, probe.closed_count == 1);
    assert_int_equal(probe.connected_count, 1);
    io_probe_fini(&probe);
    bench_fini(&bench);
}

static void
test_io__an_address_is_bound_once_and_again_after_it_was_closed(void **state)
{
    struct io_acceptor first;
    struct io_acceptor second;
    struct bench bench;

    bench_init(&bench, state);
    io_acceptor_init(&first, bench.io, NULL, 0);
    io_acceptor_init(&second, bench.io, NULL, 0);
    assert_int_equal(io_acceptor_listen(&first, &bench.loopback), YB_OK);
    assert_int_equal(io_acceptor_listen(&second, &first.address), YB_ADDRESS_IN_USE);
    assert_null(second.listener);
    io_acceptor_close(&first);
    linger(&bench);
    assert_int_equal(io_acceptor_listen(&second, &first.address), YB_OK);
    assert_true(yb_address_equal(&first.address, &second.address));
    io_acceptor_close(&second);
    linger(&bench);
    bench_fini(&bench);
}

static void
test_io__a_wildcard_or_port_zero_cannot_be_connected_to(void **state)
{
    struct yb_address wildcard;
    struct io_probe probe;
    struct bench bench;
    char why[YB_ADDRESS_WHY_BYTES];

    bench_init(&bench, state);
    io_probe_init(&probe, bench.io);
    assert_int_equal(yb_address_parse("0.0.0.0", 7, &wildcard, why), YB_OK);
    assert_int_equal(io_probe_connect(&probe, &wildcard, NULL), YB_INVALID);
    assert_int_equal(io_probe_connect(&probe, &bench.loopback, NULL), YB_INVALID);
    linger(&bench);
    assert_int_equal(probe.connected_count + probe.closed_count, 0);
    bench_fini(&bench);
}

static void
test_io__a_graceful_close_delivers_all_bytes_and_then_the_end(void **state)
{
    enum { LENGTH = 100 * 1024 };
    uint8_t *bytes = malloc(LENGTH);
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    io_pattern(bytes, LENGTH, 4);
    pair_open(&pair, &bench);
    io_probe_send(&pair.client, bytes, LENGTH);
    AWAIT(&bench, pair.client.sent == LENGTH);
    io_probe_close(&pair.client, YB_CLOSE_GRACEFUL);
    AWAIT(&bench, pair.client.closed_count == 1);
    pair.server.keep_reading = true;
    io_probe_read(&pair.server);
    AWAIT(&bench, pair.server.lost_count > 0);
    assert_int_equal(pair.server.received_length, LENGTH);
    assert_memory_equal(pair.server.received, bytes, LENGTH);
    pair_close(&pair, &bench);
    free(bytes);
    bench_fini(&bench);
}

static void
test_io__an_abort_is_told_to_a_peer_that_reads_and_to_one_that_writes(void **state)
{
    enum { LENGTH = 64 * 1024 * 1024 };
    uint8_t *bytes = calloc(1, LENGTH);
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    assert_non_null(bytes);
    pair_open(&pair, &bench);
    io_probe_send(&pair.server, bytes, LENGTH);
    io_probe_read(&pair.server);
    linger(&bench);
    assert_int_equal(pair.server.lost_count, 0);
    io_probe_close(&pair.client, YB_CLOSE_ABORT);
    AWAIT(&bench, pair.server.lost_count == 2);
    assert_int_equal(pair.server.write_status, YB_PEER_LOST);
    pair_close(&pair, &bench);
    free(bytes);
    bench_fini(&bench);
}

static void
test_io__closing_cancels_what_is_in_flight_and_tells_of_it_once(void **state)
{
    enum { LENGTH = 64 * 1024 * 1024 };
    uint8_t *bytes = calloc(1, LENGTH);
    struct bench bench;

    bench_init(&bench, state);
    assert_non_null(bytes);
    for (uint32_t round = 0; round < 4; round++) {
        struct pair pair;

        pair_open(&pair, &bench);
        pair.client.use_into = (round & 1) != 0;
        io_probe_read(&pair.client);
        io_probe_send(&pair.client, bytes, LENGTH);
        if (round >= 2) {
            linger(&bench);
        }
        io_probe_close(&pair.client, (round & 1) != 0 ? YB_CLOSE_ABORT : YB_CLOSE_GRACEFUL);
        assert_int_equal(pair.client.cancelled_count + pair.client.closed_count, 0);
        AWAIT(&bench, pair.client.closed_count == 1);
        assert_int_equal(pair.client.cancelled_count, 2);
        assert_int_equal(pair.client.read_count, 1);
        assert_int_equal(pair.client.written_count + pair.client.lost_count, 0);
        linger(&bench);
        assert_int_equal(pair.client.cancelled_count, 2);
        pair_close(&pair, &bench);
    }
    free(bytes);
    bench_fini(&bench);
}

static void
test_io__a_stream_may_be_closed_inside_its_own_callback(void **state)
{
    uint8_t bytes[100] = {0};
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    pair_open(&pair, &bench);
    pair.server.close_in_bytes = true;
    io_probe_read(&pair.server);
    io_probe_send(&pair.client, bytes, sizeof(bytes));
    AWAIT(&bench, pair.server.closed_count == 1);
    assert_int_equal(pair.server.read_count, 1);
    assert_int_equal(pair.server.cancelled_count, 0);
    io_probe_read(&pair.client);
    AWAIT(&bench, pair.client.lost_count > 0);
    pair_close(&pair, &bench);
    bench_fini(&bench);
}

static void
test_io__closing_while_connecting_tells_both_callbacks_once(void **state)
{
    struct io_acceptor acceptor;
    struct io_probe accepted;
    struct io_probe probe;
    struct bench bench;

    bench_init(&bench, state);
    io_acceptor_init(&acceptor, bench.io, &accepted, 1);
    assert_int_equal(io_acceptor_listen(&acceptor, &bench.loopback), YB_OK);
    io_probe_init(&probe, bench.io);
    assert_int_equal(io_probe_connect(&probe, &acceptor.address, NULL), YB_OK);
    io_probe_close(&probe, YB_CLOSE_ABORT);
    AWAIT(&bench, probe.closed_count == 1);
    assert_int_equal(probe.connected_count, 1);
    assert_int_equal(probe.connect_status, YB_CANCELLED);
    linger(&bench);
    assert_int_equal(probe.connected_count, 1);
    if (accepted.stream != NULL) {
        io_probe_close(&accepted, YB_CLOSE_ABORT);
        AWAIT(&bench, accepted.closed_count == 1);
    }
    io_acceptor_close(&acceptor);
    linger(&bench);
    io_probe_fini(&accepted);
    io_probe_fini(&probe);
    bench_fini(&bench);
}

static void
test_io__a_write_waits_for_a_peer_that_does_not_read(void **state)
{
    enum { LENGTH = 64 * 1024 * 1024 };
    uint8_t *bytes = malloc(LENGTH);
    struct bench bench;
    struct pair pair;

    bench_init(&bench, state);
    assert_non_null(bytes);
    memset(bytes, 0x5a, LENGTH);
    bytes[LENGTH - 1] = 1;
    pair_open(&pair, &bench);
    io_probe_send(&pair.client, bytes, LENGTH);
    linger(&bench);
    assert_int_equal(pair.client.written_count, 0);
    pair.server.keep_reading = true;
    io_probe_read(&pair.server);
    AWAIT(&bench, pair.server.received_length == LENGTH && pair.client.written_count == 1);
    assert_memory_equal(pair.server.received, bytes, LENGTH);
    pair_close(&pair, &bench);
    free(bytes);
    bench_fini(&bench);
}

static void
test_io__bytes_sent_before_the_adoption_are_there_after_it(void **state)
{
    uint8_t bytes[5000];
    struct io_acceptor acceptor;
    struct io_probe client;
    struct io_probe server;
    struct bench bench;

    bench_init(&bench, state);
    io_pattern(bytes, sizeof(bytes), 5);
    io_acceptor_init(&acceptor, bench.io, NULL, 0);
    acceptor.keep = true;
    io_probe_init(&client, bench.io);
    io_probe_init(&server, bench.io);
    assert_int_equal(io_acceptor_listen(&acceptor, &bench.loopback), YB_OK);
    assert_int_equal(io_probe_connect(&client, &acceptor.address, NULL), YB_OK);
    AWAIT(&bench, client.connected_count > 0 && acceptor.accepted_count > 0);
    io_probe_send(&client, bytes, sizeof(bytes));
    AWAIT(&bench, client.sent == sizeof(bytes));
    linger(&bench);
    io_acceptor_close(&acceptor); /* What was accepted outlives its listener. */
    io_probe_adopt(&server, &acceptor.accepted, NULL);
    server.keep_reading = true;
    io_probe_read(&server);
    AWAIT(&bench, server.received_length == sizeof(bytes));
    assert_memory_equal(server.received, bytes, sizeof(bytes));
    io_probe_close(&client, YB_CLOSE_GRACEFUL);
    AWAIT(&bench, server.lost_count == 1);
    io_probe_close(&server, YB_CLOSE_GRACEFUL);
    AWAIT(&bench, client.closed_count == 1 && server.closed_count == 1);
    io_probe_fini(&client);
    io_probe_fini(&server);
    bench_fini(&bench);
}

static void
test_io__a_discarded_connection_is_told_to_its_peer(void **state)
{
    struct io_acceptor acceptor;
    struct io_probe client;
    struct bench bench;

    bench_init(&bench, state);
    io_acceptor_init(&acceptor, bench.io, NULL, 0);
    acceptor.keep = true;
    io_probe_init(&client, bench.io);
    assert_int_equal(io_acceptor_listen(&acceptor, &bench.loopback), YB_OK);
    assert_int_equal(io_probe_connect(&client, &acceptor.address, NULL), YB_OK);
    AWAIT(&bench, client.connected_count > 0 && acceptor.accepted_count > 0);
    yb_io_discard(bench.io, &acceptor.accepted);
    io_probe_read(&client);
    AWAIT(&bench, client.lost_count == 1);
    io_probe_close(&client, YB_CLOSE_GRACEFUL);
    io_acceptor_close(&acceptor);
    AWAIT(&bench, client.closed_count == 1);
    linger(&bench);
    io_probe_fini(&client);
    bench_fini(&bench);
}

static uint32_t
count_finished(const struct io_probe *probes, size_t length)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        count += probes[i].received_length == length && probes[i].lost_count > 0;
    }
    return count;
}

static uint32_t
count_closed(const struct io_probe *probes)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        count += probes[i].closed_count;
    }
    return count;
}

static void
test_io__many_connections_at_once_keep_their_bytes_apart(void **state)
{
    enum { LENGTH = 20000 };
    uint8_t(*bytes)[LENGTH] = malloc(MANY_COUNT * LENGTH);
    struct io_probe *clients = calloc(MANY_COUNT, sizeof(*clients));
    struct io_probe *servers = calloc(MANY_COUNT, sizeof(*servers));
    bool seen[MANY_COUNT] = {false};
    struct io_acceptor acceptor;
    struct bench bench;

    bench_init(&bench, state);
    assert_true(bytes != NULL && clients != NULL && servers != NULL);
    io_acceptor_init(&acceptor, bench.io, servers, MANY_COUNT);
    acceptor.start_read = true;
    assert_int_equal(io_acceptor_listen(&acceptor, &bench.loopback), YB_OK);
    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        servers[i].keep_reading = servers[i].close_when_lost = true;
        io_probe_init(&clients[i], bench.io);
        io_pattern(bytes[i], LENGTH, 100 + i);
        bytes[i][0] = (uint8_t)i;
        assert_int_equal(io_probe_connect(&clients[i], &acceptor.address, NULL), YB_OK);
    }
    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        AWAIT(&bench, clients[i].connected_count > 0);
        assert_int_equal(clients[i].connect_status, YB_OK);
        clients[i].write_bytes_max = 999;
        io_probe_send(&clients[i], bytes[i], LENGTH);
    }
    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        AWAIT(&bench, clients[i].sent == LENGTH);
        io_probe_close(&clients[i], YB_CLOSE_GRACEFUL);
    }
    AWAIT(&bench, count_finished(servers, LENGTH) == MANY_COUNT);
    AWAIT(&bench, count_closed(servers) == MANY_COUNT && count_closed(clients) == MANY_COUNT);
    for (uint32_t i = 0; i < MANY_COUNT; i++) {
        uint32_t from = servers[i].received[0];

        assert_true(from < MANY_COUNT && !seen[from]);
        seen[from] = true;
        assert_memory_equal(servers[i].received, bytes[from], LENGTH);
        io_probe_fini(&servers[i]);
        io_probe_fini(&clients[i]);
    }
    io_acceptor_close(&acceptor);
    linger(&bench);
    free(bytes);
    free(clients);
    free(servers);
    bench_fini(&bench);
}

static void
test_io__wake_makes_the_next_poll_return(void **state)
{
    struct bench bench;

    bench_init(&bench, state);
    yb_io_wake(bench.io);
    assert_int_equal(yb_io_poll(bench.io, YB_NEVER), 0);
    bench_fini(&bench);
}

int
io_conformance_run(const struct io_backend *backend)
{
#define T(name) cmocka_unit_test_prestate(name, (void *)(uintptr_t)backend)
    const struct CMUnitTest tests[] = {
        T(test_io__a_bound_port_is_read_back_and_connected_to),
        T(test_io__bytes_arrive_equal_and_in_order_in_both_directions_at_once),
        T(test_io__a_read_never_exceeds_its_limit),
        T(test_io__nobody_listening_is_refused),
        T(test_io__an_address_is_bound_once_and_again_after_it_was_closed),
        T(test_io__a_wildcard_or_port_zero_cannot_be_connected_to),
        T(test_io__a_graceful_close_delivers_all_bytes_and_then_the_end),
        T(test_io__an_abort_is_told_to_a_peer_that_reads_and_to_one_that_writes),
        T(test_io__closing_cancels_what_is_in_flight_and_tells_of_it_once),
        T(test_io__a_stream_may_be_closed_inside_its_own_callback),
        T(test_io__closing_while_connecting_tells_both_callbacks_once),
        T(test_io__a_write_waits_for_a_peer_that_does_not_read),
        T(test_io__bytes_sent_before_the_adoption_are_there_after_it),
        T(test_io__a_discarded_connection_is_told_to_its_peer),
        T(test_io__many_connections_at_once_keep_their_bytes_apart),
        T(test_io__wake_makes_the_next_poll_return),
    };
#undef T

    return cmocka_run_group_tests_name(backend->name, tests, NULL, NULL);
}
