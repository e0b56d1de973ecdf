/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: S1 to S4 of net/server.h, and a server over two workers that leaves nothing behind.
 * Method: strangers that sit on connections in the simulation; threads and real sockets for the
 * workers, with descriptors and threads counted before and after.
 */
#include "net_duo.h"

#include <dirent.h>

#include "net/worker.h"

#define WORKERS 2u
#define PEERS   8u

static void
expect_refused(struct duo *duo)
{
    struct caller caller;

    caller_init(&caller, duo, YB_WIRE_TYPE_ECHO);
    caller.call.fail_fast = true;
    caller_run(&caller);
    caller_expect_none(&caller, YB_REFUSED, false);
    assert_non_null(strstr(yb_peer_error(duo->peer), "too many connections"));
    assert_non_null(strstr(yb_peer_error(duo->peer), "net.connections_max"));
}

static void
expect_served(struct duo *duo)
{
    struct caller caller;

    caller_init(&caller, duo, YB_WIRE_TYPE_ECHO);
    caller_run(&caller);
    caller_expect(&caller, YB_OK);
}

static void
test_server__one_connection_too_many_is_told_so_and_harms_no_other(void **state)
{
    struct raw raws[3];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.connections_max = 3;
    duo_start(&duo);
    for (uint32_t i = 0; i < 3; i++) {
        raw_open(&raws[i], &duo, false);
    }
    DUO_AWAIT(&duo, yb_server_connection_count(duo.server) == 3);
    expect_refused(&duo);
    assert_false(raw_lost(&raws[0]) || raw_lost(&raws[1]) || raw_lost(&raws[2]));
    raw_close(&raws[1]);
    DUO_AWAIT(&duo, yb_server_connection_count(duo.server) == 2);
    expect_served(&duo);
    raw_close(&raws[0]);
    raw_close(&raws[2]);
    duo_fini(&duo);
}

static void
test_server__strangers_that_do_not_finish_their_handshake_are_bounded(void **state)
{
    struct raw raws[9];
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo.unauthenticated_max = 3;
    duo_start(&duo);
    for (uint32_t i = 0; i < 3; i++) {
        raw_open(&raws[i], &duo, true);
    }
    DUO_AWAIT(&duo, yb_server_connection_count(duo.server) == 3);
    expect_refused(&duo);
    for (uint32_t i = 3; i < 9; i++) {
        raw_open(&raws[i], &duo, true);
        duo_pass_ms(&duo, 1);
        assert_true(yb_server_connection_count(duo.server) <= 6); /* Told, or closed at once. */
    }
    duo_pass_ms(&duo, 5000); /* The handshake timeout frees the places. */
    assert_int_equal(yb_server_connection_count(duo.server), 0);
    expect_served(&duo);
    for (uint32_t i = 0; i < 9; i++) {
        assert_true(raw_lost(&raws[i]));
        raw_close(&raws[i]);
    }
    duo_fini(&duo);
}

static void
test_server__a_newer_connection_of_a_peer_takes_the_place_of_its_older_one(void **state)
{
    struct caller caller;
    struct yb_peer *other;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    expect_served(&duo);
    other = duo_peer(&duo);
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    assert_int_equal(yb_peer_call(other, &caller.call), YB_OK);
    duo_kick(&duo);
    DUO_AWAIT(&duo, caller.done == 1);
    caller_expect(&caller, YB_OK);
    assert_int_equal(yb_server_connection_count(duo.server), 1);
    yb_peer_destroy(&other);
    expect_served(&duo);
    duo_fini(&duo);
}

/* What an older connection's request may still write is written before a newer one is heard. */
static void
test_server__a_newer_connection_waits_until_the_older_ones_writes_have_landed(void **state)
{
    struct caller held, next;
    struct yb_peer *other;
    struct duo duo;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    caller_init(&held, &duo, DUO_HOLD_LANDS);
    held.call.fail_fast = true;
    assert_int_equal(yb_peer_call(duo.peer, &held.call), YB_OK);
    duo_kick(&duo);
    DUO_AWAIT(&duo, duo.service.held_count == 1);
    other = duo_peer(&duo);
    caller_init(&next, &duo, YB_WIRE_TYPE_ECHO);
    assert_int_equal(yb_peer_call(other, &next.call), YB_OK);
    duo_kick(&duo);
    DUO_AWAIT(&duo, held.done == 1); /* The older connection is gone ... */
    duo_pass_ms(&duo, 1000);
    assert_int_equal(next.done, 0); /* ... but not what it carried. */
    assert_int_equal(yb_server_connection_count(duo.server), 2);
    service_reply(&duo.service, YB_OK, NULL, 0);
    DUO_AWAIT(&duo, next.done == 1);
    caller_expect(&next, YB_OK);
    assert_int_equal(yb_server_connection_count(duo.server), 1);
    yb_peer_destroy(&other);
    duo_fini(&duo);
}

/* Or who closes until nothing is left would never be done with one that comes again and again. */
static void
test_server__closing_what_a_process_had_spares_what_it_opens_later(void **state)
{
    struct caller caller;
    struct yb_net *net;
    struct yb_id identity;
    struct duo duo;
    uint64_t ever;

    (void)state;
    duo_init(&duo, "sim");
    duo_start(&duo);
    net = duo.nets[SERVER];
    identity = duo.selfs[CLIENT].identity;
    caller_init(&caller, &duo, YB_WIRE_TYPE_ECHO);
    for (uint32_t round = 0; round < 3; round++) {
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
        ever = yb_net_conns_ever(net);
        assert_int_equal(yb_net_close_peer(net, identity, ever), 1);
        DUO_AWAIT(&duo, yb_net_close_peer(net, identity, ever) == 0);
        caller_run(&caller); /* It comes again, and stays. */
        caller_expect(&caller, YB_OK);
        assert_int_equal(yb_net_close_peer(net, identity, ever), 0);
        assert_int_equal(yb_server_connection_count(duo.server), 1);
    }
    duo_fini(&duo);
}

static enum yb_status
try_listen(struct duo *duo, const char *address, bool insecure, char *why)
{
    struct yb_server_options options = {
        .insecure = insecure,
        .connections_max = 1,
        .unauthenticated_max = 1,
        .nets = &duo->nets[CLIENT],
        .net_count = 1,
    };
    struct yb_server *server = NULL;
    enum yb_status status;

    assert_int_equal(yb_address_parse(address, 0, &options.address, why), YB_OK);
    status = yb_server_create(&options, &server, why);
    if (status == YB_OK) {
        assert_true(yb_server_address(server).port != 0);
        yb_server_stop(server);
        yb_server_stop(server);
        yb_server_destroy(&server);
    } else {
        assert_null(server);
    }
    return status;
}

static void
test_server__a_refusal_to_listen_says_what_to_do(void **state)
{
    char taken[YB_ADDRESS_TEXT_BYTES];
    char why[YB_ADDRESS_WHY_BYTES] = "";
    struct duo duo;

    (void)state;
    duo_init(&duo, "epoll");
    duo_start(&duo);
    assert_int_equal(try_listen(&duo, "0.0.0.0:0", false, why), YB_DENIED); /* S3 */
    assert_non_null(strstr(why, "--secret-file"));
    assert_int_equal(try_listen(&duo, "[::]:0", false, why), YB_DENIED);
    assert_int_equal(try_listen(&duo, "0.0.0.0:0", true, why), YB_OK);
    assert_int_equal(try_listen(&duo, "127.0.0.1:0", false, why), YB_OK);
    yb_address_format(&duo.address, taken);
    assert_int_equal(try_listen(&duo, taken, false, why), YB_ADDRESS_IN_USE);
    assert_non_null(strstr(why, taken));
    assert_int_equal(try_listen(&duo, "192.0.2.7:0", true, why), YB_INVALID);
    assert_non_null(strstr(why, "192.0.2.7"));
    duo_fini(&duo);
}

/* ---- two workers --------------------------------------------------------------------------- */

static uint32_t
count_entries(const char *path)
{
    DIR *directory = opendir(path);
    uint32_t count = 0;

    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    assert_int_equal(closedir(directory), 0);
    return count;
}

struct hall {
    struct yb_worker *workers[WORKERS];
    struct yb_net *nets[WORKERS];
    struct yb_server *server;
    struct yb_address address;
    struct yb_hello_self self;
};

static void
order_listen(void *context)
{
    struct hall *hall = context;
    struct yb_server_options options = {
        .connections_max = 100,
        .unauthenticated_max = 50,
        .nets = hall->nets,
        .net_count = WORKERS,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    assert_int_equal(yb_address_parse("127.0.0.1", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_server_create(&options, &hall->server, why), YB_OK);
    hall->address = yb_server_address(hall->server);
}

static void
order_stop(void *context)
{
    struct hall *hall = context;

    yb_server_stop(hall->server);
}

static void
order_shut(void *context)
{
    yb_net_shut(context);
}

static void
order_destroy(void *context)
{
    struct hall *hall = context;

    yb_server_destroy(&hall->server);
}

static void
order_nothing(void *context)
{
    (void)context;
}

static uint32_t
open_gauge(struct yb_stats *stats, const struct yb_net *net)
{
    return (uint32_t)yb_stats_gauge(stats, net->stats_first + YB_NET_STAT_OPEN, 0, 0);
}

static void
hall_open(struct hall *hall, const char *backend, struct yb_stats *stats[WORKERS],
          const struct yb_hello_self *self)
{
    hall->self = *self;
    for (uint32_t i = 0; i < WORKERS; i++) {
        struct yb_worker_options options = {
            .loop = {.backend = backend, .clock = yb_clock_system()},
            .net = {.self = &hall->self, .random = yb_net_random_system, .stats = stats[i]},
        };

        yb_net_limits_default(&options.net.limits);
        assert_int_equal(yb_worker_create(&options, &hall->workers[i]), YB_OK);
        hall->nets[i] = yb_worker_net(hall->workers[i]);
    }
    yb_worker_run(hall->workers[0], order_listen, hall);
}

static void
hall_close(struct hall *hall)
{
    yb_worker_run(hall->workers[0], order_stop, hall);
    for (uint32_t i = 0; i < WORKERS; i++) {
        yb_worker_run(hall->workers[i], order_shut, hall->nets[i]);
    }
    while (yb_server_connection_count(hall->server) > 0) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            yb_worker_run(hall->workers[i], order_nothing, NULL);
        }
    }
    yb_worker_run(hall->workers[0], order_destroy, hall);
    for (uint32_t i = 0; i < WORKERS; i++) {
        yb_worker_destroy(&hall->workers[i]);
    }
}

/* Make `PEERS` peers of the client and let each echo `rounds` times. */
static void
visit(struct duo *duo, struct hall *hall, struct yb_stats *stats[WORKERS])
{
    struct yb_peer *peers[PEERS];
    struct caller callers[PEERS];

    duo->address = hall->address;
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < PEERS; i++) {
            if (round == 0) {
                peers[i] = duo_peer(duo);
                yb_peer_set_stripe(peers[i], (uint8_t)i);
            }
            caller_init(&callers[i], duo, YB_WIRE_TYPE_ECHO);
            caller_body(&callers[i], &round, sizeof(round));
            assert_int_equal(yb_peer_call(peers[i], &callers[i].call), YB_OK);
        }
        for (uint32_t i = 0; i < PEERS; i++) {
            DUO_AWAIT(duo, callers[i].done == 1);
            caller_expect(&callers[i], YB_OK);
            assert_memory_equal(callers[i].reply, &round, sizeof(round));
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        assert_int_equal(open_gauge(stats[i], hall->nets[i]), PEERS / WORKERS);
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        yb_peer_destroy(&peers[i]);
    }
    DUO_AWAIT(duo, yb_net_idle(duo->nets[CLIENT]));
}

static void
test_server__connections_are_spread_over_workers_and_nothing_is_left_of_them(void **state)
{
    static const char *const backends[] = {"epoll", "io_uring"};

    (void)state;
    for (size_t i = 0; i < 2 && duo_possible(backends[i]); i++) {
        uint32_t descriptors = count_entries("/proc/self/fd");
        uint32_t threads = count_entries("/proc/self/task");
        struct yb_stats *stats[WORKERS];
        struct yb_address own;
        struct hall hall;
        struct duo duo;

        for (uint32_t j = 0; j < WORKERS; j++) {
            assert_int_equal(yb_stats_create(&stats[j]), YB_OK);
        }
        duo_init(&duo, backends[i]);
        duo_start(&duo);
        own = duo.address;
        hall_open(&hall, backends[i], stats, &duo.selfs[SERVER]);
        visit(&duo, &hall, stats);
        hall_close(&hall);
        duo.address = own;
        duo_fini(&duo);
        for (uint32_t j = 0; j < WORKERS; j++) {
            yb_stats_destroy(&stats[j]);
        }
        assert_int_equal(count_entries("/proc/self/fd"), descriptors);
        assert_true(count_entries("/proc/self/task") <=
                    threads + 1); /* io_uring's own leaves late. */
    }
}

/* Stopping while guests still arrive, as mail, at the other worker. */
static void
test_server__a_server_may_end_while_connections_arrive(void **state)
{
    struct yb_stats *stats[WORKERS];
    struct hall hall;
    struct duo duo;

    (void)state;
    for (uint32_t round = 0; round < 10; round++) {
        struct caller callers[PEERS];
        struct yb_peer *peers[PEERS];
        struct yb_address own;

        for (uint32_t j = 0; j < WORKERS; j++) {
            assert_int_equal(yb_stats_create(&stats[j]), YB_OK);
        }
        duo_init(&duo, "epoll");
        duo_start(&duo);
        own = duo.address;
        hall_open(&hall, "epoll", stats, &duo.selfs[SERVER]);
        duo.address = hall.address;
        for (uint32_t i = 0; i < PEERS; i++) {
            peers[i] = duo_peer(&duo);
            yb_peer_set_stripe(peers[i], (uint8_t)i);
            caller_init(&callers[i], &duo, YB_WIRE_TYPE_ECHO);
            callers[i].call.fail_fast = true;
            assert_int_equal(yb_peer_call(peers[i], &callers[i].call), YB_OK);
        }
        for (uint32_t i = 0; i < round; i++) {
            duo_turn(&duo);
        }
        hall_close(&hall);
        for (uint32_t i = 0; i < PEERS; i++) {
            DUO_AWAIT(&duo, callers[i].done == 1);
            yb_peer_destroy(&peers[i]);
        }
        duo.address = own;
        duo_fini(&duo);
        for (uint32_t j = 0; j < WORKERS; j++) {
            yb_stats_destroy(&stats[j]);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server__one_connection_too_many_is_told_so_and_harms_no_other),
        cmocka_unit_test(test_server__strangers_that_do_not_finish_their_handshake_are_bounded),
        cmocka_unit_test(
            test_server__a_newer_connection_of_a_peer_takes_the_place_of_its_older_one),
        cmocka_unit_test(
            test_server__a_newer_connection_waits_until_the_older_ones_writes_have_landed),
        cmocka_unit_test(test_server__closing_what_a_process_had_spares_what_it_opens_later),
        cmocka_unit_test(test_server__a_refusal_to_listen_says_what_to_do),
        cmocka_unit_test(
            test_server__connections_are_spread_over_workers_and_nothing_is_left_of_them),
        cmocka_unit_test(test_server__a_server_may_end_while_connections_arrive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
