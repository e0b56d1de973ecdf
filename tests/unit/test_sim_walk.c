/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whatever happens to the simulated network, bytes are right and runs repeat.
 * Method: a random walk over many connections against a model that knows only what was
 * written; each walk ends with nothing held and nothing left over.
 */
#include "unit.h"

#include <string.h>

#include "io_probe.h"
#include "sim_world.h"

#define WALK_CONNECTIONS 12u
#define WALK_BYTES       30000u

/* One connection of the walk. The model: what each end may have received is a prefix of what
 * the other wrote, and all of it if nothing was done to the connection but closing it. */
struct walker {
    struct io_probe client;
    struct io_probe server;
    struct io_acceptor acceptor;
    bool unhurt;
    uint8_t there[WALK_BYTES];
    uint8_t back[WALK_BYTES];
};

static void
walk_open(struct net *net, struct walker *walker, uint16_t number)
{
    uint32_t from = (uint32_t)yb_sim_random_below(net->sim, NODE_COUNT);
    uint32_t to = (uint32_t)yb_sim_random_below(net->sim, NODE_COUNT);
    struct yb_address address;

    io_pattern(walker->there, WALK_BYTES, number * 2u);
    io_pattern(walker->back, WALK_BYTES, number * 2u + 1);
    walker->unhurt = true;
    io_acceptor_init(&walker->acceptor, net->nodes[to].io, &walker->server, 1);
    walker->acceptor.start_read = true;
    walker->server.keep_reading = walker->server.close_when_lost = true;
    walker->server.use_into = yb_sim_random_below(net->sim, 2) == 0;
    yb_sim_host_address(net->nodes[to].host, (uint16_t)(PORT + number), &address);
    assert_int_equal(io_acceptor_listen(&walker->acceptor, &address), YB_OK);
    io_probe_init(&walker->client, net->nodes[from].io);
    walker->client.keep_reading = walker->client.close_when_lost = true;
    walker->client.read_limit = 1 + yb_sim_random_below(net->sim, 5000);
    assert_int_equal(io_probe_connect(&walker->client, &address, NULL), YB_OK);
}

static void
walk_write(struct net *net, struct io_probe *probe, const uint8_t *bytes)
{
    size_t length = 1 + yb_sim_random_below(net->sim, WALK_BYTES);

    if (probe->stream == NULL || probe->sending != NULL || probe->io == NULL ||
        (probe->connected_count > 0 && probe->connect_status != YB_OK)) {
        return;
    }
    probe->write_bytes_max = 1 + yb_sim_random_below(net->sim, 9000);
    io_probe_send(probe, bytes, length);
}

/* Do something to a connection that a person at a keyboard could do. */
static void
walk_touch(struct net *net, struct walker *walker, bool hurt)
{
    bool open = walker->client.connected_count > 0 && walker->client.stream != NULL;

    switch (yb_sim_random_below(net->sim, hurt ? 8 : 6)) {
    case 0:
    case 1:
        if (open) {
            walk_write(net, &walker->client, walker->there);
        }
        break;
    case 2:
    case 3: walk_write(net, &walker->server, walker->back); break;
    case 4:
        yb_sim_host_stall(net->nodes[yb_sim_random_below(net->sim, NODE_COUNT)].host, true);
        break;
    case 5:
        for (uint32_t i = 0; i < NODE_COUNT; i++) {
            yb_sim_host_stall(net->nodes[i].host, false);
        }
        break;
    case 6:
        walker->unhurt = false;
        if (walker->client.stream != NULL) {
            io_probe_close(&walker->client, YB_CLOSE_ABORT);
        }
        break;
    case 7: yb_sim_partition(net->sim, &net->nodes[1].host, 1); break;
    }
}

static bool
is_prefix(const struct io_probe *reader, const struct io_probe *writer, const uint8_t *bytes)
{
    return reader->received_length <= writer->sending_length &&
           (reader->received_length == 0 ||
            memcmp(reader->received, bytes, reader->received_length) == 0);
}

static void
walk_check(const struct walker *walker, bool all)
{
    assert_true(is_prefix(&walker->server, &walker->client, walker->there));
    assert_true(is_prefix(&walker->client, &walker->server, walker->back));
    if (all && walker->unhurt) {
        assert_int_equal(walker->server.received_length, walker->client.sending_length);
        assert_int_equal(walker->client.received_length, walker->server.sending_length);
        assert_int_equal(walker->client.lost_count + walker->server.lost_count, 0);
    }
}

static uint64_t
walk(uint64_t seed, bool hurt)
{
    struct walker *walkers = calloc(WALK_CONNECTIONS, sizeof(*walkers));
    struct yb_sim_link link = yb_sim_link_rough();
    uint64_t fingerprint;
    struct net net;

    net_init(&net, seed);
    link.window_bytes = 1 + (uint32_t)yb_sim_random_below(net.sim, 20000);
    link.cut_ppm = hurt ? 2000 : 0;
    yb_sim_set_link(net.sim, NULL, NULL, &link);
    for (uint16_t i = 0; i < WALK_CONNECTIONS; i++) {
        walk_open(&net, &walkers[i], i);
    }
    for (uint32_t i = 0; i < 300; i++) {
        struct walker *walker = &walkers[yb_sim_random_below(net.sim, WALK_CONNECTIONS)];

        walk_touch(&net, walker, hurt);
        (void)yb_sim_run_until(net.sim, NULL, NULL,
                               yb_sim_now_ns(net.sim) + yb_sim_random_below(net.sim, 3000000),
                               FOREVER_STEPS);
        if (walker->client.connected_count == 1 && walker->client.connect_status == YB_OK &&
            walker->client.stream != NULL && !walker->client.stream->reading) {
            io_probe_read(&walker->client);
        }
        walk_check(walker, false);
    }
    yb_sim_heal(net.sim);
    for (uint32_t i = 0; i < NODE_COUNT; i++) {
        yb_sim_host_stall(net.nodes[i].host, false);
    }
    settle(&net);
    for (uint32_t i = 0; i < WALK_CONNECTIONS; i++) {
        if (walkers[i].client.connect_status == YB_OK && walkers[i].client.stream != NULL &&
            !walkers[i].client.stream->reading) {
            io_probe_read(&walkers[i].client);
        }
    }
    settle(&net);
    for (uint32_t i = 0; i < WALK_CONNECTIONS; i++) {
        walk_check(&walkers[i], !hurt);
        if (walkers[i].client.stream != NULL) {
            io_probe_close(&walkers[i].client, YB_CLOSE_GRACEFUL);
        }
        if (walkers[i].server.stream != NULL) {
            io_probe_close(&walkers[i].server, YB_CLOSE_GRACEFUL);
        }
    }
    settle(&net);
    for (uint32_t i = 0; i < WALK_CONNECTIONS; i++) {
        assert_int_equal(walkers[i].client.closed_count, 1);
        assert_int_equal(walkers[i].server.closed_count, walkers[i].acceptor.accepted_count);
        io_probe_fini(&walkers[i].client);
        io_probe_fini(&walkers[i].server);
    }
    assert_int_equal(yb_sim_connection_count(net.sim), 0);
    assert_true(yb_sim_held_bytes(net.sim) == 0);
    fingerprint = yb_sim_fingerprint(net.sim);
    net_fini(&net);
    free(walkers);
    return fingerprint;
}

static void
test_sim_walk__a_random_walk_delivers_prefixes_and_without_hurt_everything(void **state)
{
    uint64_t random = unit_seed("walk");

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        (void)walk(unit_random(&random), false);
        (void)walk(unit_random(&random), true);
    }
}

static void
test_sim_walk__equal_seeds_give_equal_runs_and_others_do_not(void **state)
{
    enum { SEEDS = 20 };
    uint64_t fingerprints[SEEDS];

    (void)state;
    for (uint32_t i = 0; i < SEEDS; i++) {
        fingerprints[i] = walk(i, true);
        assert_true(fingerprints[i] == walk(i, true));
        for (uint32_t j = 0; j < i; j++) {
            assert_true(fingerprints[i] != fingerprints[j]);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_sim_walk__a_random_walk_delivers_prefixes_and_without_hurt_everything),
        cmocka_unit_test(test_sim_walk__equal_seeds_give_equal_runs_and_others_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
