/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's engine: what its callers pass, and what they are told.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "compat/engine.h"
#include "unit.h"
#include "yuebing/transfer.h"

#define BYTES      (1u << 20)
#define NAME_BYTES 128u

static uint8_t
pattern(uint64_t seed, uint64_t offset)
{
    uint64_t mixed = (offset + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ seed * UINT64_C(0xd6e8feb8);

    return (uint8_t)(mixed >> 56 ^ mixed >> 24);
}

static void
fill(uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(seed, i);
    }
}

static bool
is(const uint8_t *bytes, size_t length, uint64_t seed)
{
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != pattern(seed, i)) {
            return false;
        }
    }
    return true;
}

static uint64_t
at(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

static int32_t
init(struct yb_compat_engine *engine, const char *host, const char *server)
{
    const struct yb_compat_engine_options options = {
        .local_hostname = host,
        .metadata_server = server,
        .protocol = "tcp",
        .devices = "",
    };

    return yb_compat_engine_initialize(engine, &options);
}

static struct yb_compat_engine *
engine_at(const char *host, char name[NAME_BYTES])
{
    struct yb_compat_engine *engine = yb_compat_engine_create();

    assert_non_null(engine);
    assert_int_equal(init(engine, host, "P2PHANDSHAKE"), 0);
    assert_true(yb_compat_engine_name(engine, name, NAME_BYTES) < NAME_BYTES);
    return engine;
}

/* Two engines with a registered buffer each. */
struct pair {
    struct yb_compat_engine *here;
    struct yb_compat_engine *there;
    char here_name[NAME_BYTES];
    char name[NAME_BYTES]; /* Of `there`. */
    uint8_t *local;
    uint8_t *remote;
};

static void
pair_init(struct pair *pair)
{
    uint64_t length = BYTES;
    uint64_t address;

    pair->here = engine_at("127.0.0.1", pair->here_name);
    pair->there = engine_at("127.0.0.1", pair->name);
    pair->local = malloc(BYTES);
    pair->remote = malloc(BYTES);
    memset(pair->local, 0, BYTES);
    memset(pair->remote, 0, BYTES);
    address = at(pair->local);
    assert_int_equal(yb_compat_engine_register(pair->here, &address, &length, 1, "*"), 0);
    address = at(pair->remote);
    assert_int_equal(yb_compat_engine_register(pair->there, &address, &length, 1, "cpu:0"), 0);
}

static void
pair_fini(struct pair *pair)
{
    yb_compat_engine_destroy(&pair->here);
    assert_null(pair->here);
    yb_compat_engine_destroy(&pair->there);
    free(pair->local);
    free(pair->remote);
}

static int32_t
move_one(struct yb_compat_engine *engine, const char *target, bool write, void *local,
         uint64_t remote, uint64_t length)
{
    uint64_t from = at(local);
    const struct yb_compat_move move = {
        .target = target,
        .write = write,
        .local = &from,
        .remote = &remote,
        .lengths = &length,
        .count = 1,
    };

    return yb_compat_engine_move(engine, &move);
}

/* ---- before initialize, and what it refuses -------------------------------------------------- */

static void
test_compat_engine__before_initialize_every_call_tells_failure(void **state)
{
    struct yb_compat_engine *engine = yb_compat_engine_create();
    struct yb_compat_notified notified;
    uint64_t one = 4096;
    char name[8] = "x";
    char *topology;

    (void)state;
    assert_int_equal(yb_compat_engine_port(engine), 0);
    assert_int_equal(yb_compat_engine_name(engine, name, sizeof(name)), 0);
    assert_string_equal(name, "");
    assert_null(yb_compat_engine_transfer(engine));
    assert_int_equal(yb_compat_engine_register(engine, &one, &one, 1, "*"), -1);
    assert_int_equal(yb_compat_engine_unregister(engine, &one, 1), -1);
    assert_int_equal(move_one(engine, "127.0.0.1:1", true, &one, 1, 8), -1);
    assert_int_equal(yb_compat_engine_check(engine, 1), -1);
    assert_int_equal(yb_compat_engine_wait(engine, &one, 1), -1);
    assert_false(yb_compat_engine_next_notify(engine, &notified));
    assert_int_equal(yb_compat_engine_probe(engine, "127.0.0.1:1"), -1);
    assert_int_equal(yb_compat_engine_first_address(engine, "127.0.0.1:1"), 0);
    assert_int_equal(yb_compat_engine_buffer_alloc(engine, 4096), 0);
    assert_int_equal(yb_compat_engine_buffer_free(engine, 4096), -1);
    topology = yb_compat_engine_topology(engine, NULL);
    assert_non_null(strstr(topology, "cpu:0"));
    free(topology);
    yb_compat_engine_destroy(&engine);
}

static void
test_compat_engine__what_initialize_refuses_leaves_it_usable(void **state)
{
    struct yb_compat_engine_options xgmi = {
        .local_hostname = "127.0.0.1",
        .metadata_server = "P2PHANDSHAKE",
        .protocol = "xgmi",
    };
    struct yb_compat_engine *engine = yb_compat_engine_create();
    char name[NAME_BYTES];

    (void)state;
    assert_int_equal(yb_compat_engine_initialize(engine, &xgmi), -1);
    assert_int_equal(init(engine, "", "P2PHANDSHAKE"), -1);
    assert_int_equal(init(engine, NULL, "P2PHANDSHAKE"), -1);
    assert_int_equal(init(engine, "not a host", "P2PHANDSHAKE"), -1);
    assert_int_equal(init(engine, "127.0.0.1", ""), -1);
    assert_int_equal(init(engine, "127.0.0.1", NULL), -1);
    assert_int_equal(yb_compat_engine_port(engine), 0);
    assert_int_equal(init(engine, "127.0.0.1", "P2PHANDSHAKE"), 0);
    assert_in_range(yb_compat_engine_port(engine), 15000, 17000);
    assert_int_equal(init(engine, "127.0.0.1", "P2PHANDSHAKE"), -1);
    (void)yb_compat_engine_name(engine, name, sizeof(name));
    assert_memory_equal(name, "127.0.0.1:", 10);
    assert_int_equal(strtoul(name + 10, NULL, 10), yb_compat_engine_port(engine));
    yb_compat_engine_destroy(&engine);
}

/* ---- moving ---------------------------------------------------------------------------------- */

static void
test_compat_engine__bytes_arrive_both_ways(void **state)
{
    struct pair pair;

    (void)state;
    pair_init(&pair);
    fill(pair.local, BYTES, 1);
    assert_int_equal(move_one(pair.here, pair.name, true, pair.local, at(pair.remote), BYTES), 0);
    assert_true(is(pair.remote, BYTES, 1));
    fill(pair.remote, BYTES, 2);
    assert_int_equal(move_one(pair.here, pair.name, false, pair.local, at(pair.remote), BYTES), 0);
    assert_true(is(pair.local, BYTES, 2));
    assert_int_equal(move_one(pair.here, pair.name, true, pair.local, at(pair.remote), 0), 0);
    assert_int_equal(yb_compat_engine_probe(pair.here, pair.name), 0);
    assert_int_equal(yb_compat_engine_probe(pair.there, pair.here_name), 0);
    pair_fini(&pair);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_engine__before_initialize_every_call_tells_failure),
        cmocka_unit_test(test_compat_engine__what_initialize_refuses_leaves_it_usable),
        cmocka_unit_test(test_compat_engine__bytes_arrive_both_ways),
    };

    return cmocka_run_group_tests_name("compat_engine", tests, NULL, NULL);
}
