/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's engine: what its callers pass, and what they are told.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "closed_ports.h"
#include "compat/engine.h"
#include "compat/metadata.h"
#include "daemon/known_http.h"
#include "observe/http.h"
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

static void
test_compat_engine__thousands_of_descriptors_go_as_one_call(void **state)
{
    static const uint32_t counts[] = {1, 10, 1000, 10000};
    struct pair pair;

    (void)state;
    pair_init(&pair);
    for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
        uint32_t count = counts[k];
        uint64_t *places = calloc(3 * (size_t)count, sizeof(*places));
        struct yb_compat_move move = {
            .target = pair.name,
            .write = true,
            .local = places,
            .remote = places + count,
            .lengths = places + 2 * (size_t)count,
            .count = count,
        };

        memset(pair.remote, 0, BYTES);
        fill(pair.local, BYTES, k + 7);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t offset = (i * UINT64_C(7919)) % count * 100; /* 7919 is prime. */

            places[i] = at(pair.local) + offset;
            places[count + i] = at(pair.remote) + offset;
            places[2 * (size_t)count + i] = 100;
        }
        assert_int_equal(yb_compat_engine_move(pair.here, &move), 0);
        assert_true(is(pair.remote, (size_t)count * 100, k + 7));
        assert_int_equal(pair.remote[(size_t)count * 100], 0);
        free(places);
    }
    pair_fini(&pair);
}

/* More than one batch of the engine below takes; each item is one byte of a row of its own. */
static void
test_compat_engine__a_call_larger_than_any_batch_is_split(void **state)
{
    const uint32_t count = YB_TRANSFER_ITEMS_MAX + 5;
    uint64_t *places = calloc(3 * (size_t)count, sizeof(*places));
    struct yb_compat_notify notify = {
        .name = "n", .text = "after", .name_bytes = 1, .text_bytes = 5};
    struct yb_compat_notified notified;
    struct pair pair;
    struct yb_compat_move move = {
        .write = true,
        .local = places,
        .remote = places + count,
        .lengths = places + 2 * (size_t)count,
        .count = count,
        .notify = &notify,
    };

    (void)state;
    pair_init(&pair);
    move.target = pair.name;
    fill(pair.local, BYTES, 3);
    for (uint32_t i = 0; i < count; i++) {
        places[i] = at(pair.local) + i % BYTES;
        places[count + i] = at(pair.remote) + i % BYTES;
        places[2 * (size_t)count + i] = i >= YB_TRANSFER_ITEMS_MAX || i % 1024 == 0 ? 1 : 0;
    }
    assert_int_equal(yb_compat_engine_move(pair.here, &move), 0);
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(pair.remote[(YB_TRANSFER_ITEMS_MAX + i) % BYTES], pattern(3, i));
    }
    assert_true(yb_compat_engine_next_notify(pair.there, &notified));
    assert_string_equal(notified.text, "after");
    free(notified.name);
    free(notified.text);
    assert_false(yb_compat_engine_next_notify(pair.there, &notified));
    free(places);
    pair_fini(&pair);
}

#define THREADS 12u
#define ROUNDS  50u

struct writer {
    pthread_t thread;
    struct pair *pair;
    uint32_t index;
    int32_t code;
};

static void *
write_rounds(void *context)
{
    struct writer *writer = context;
    const uint64_t share = BYTES / THREADS;
    const uint64_t offset = share * writer->index;

    for (uint32_t i = 0; i < ROUNDS && writer->code == 0; i++) {
        fill(writer->pair->local + offset, share, writer->index * 1000 + i);
        writer->code =
            move_one(writer->pair->here, writer->pair->name, true, writer->pair->local + offset,
                     at(writer->pair->remote) + offset, share);
        if (!is(writer->pair->remote + offset, share, writer->index * 1000 + i)) {
            writer->code = -99;
        }
    }
    return NULL;
}

static void
test_compat_engine__a_dozen_threads_write_at_once(void **state)
{
    struct writer writers[THREADS];
    struct pair pair;

    (void)state;
    pair_init(&pair);
    for (uint32_t i = 0; i < THREADS; i++) {
        writers[i] = (struct writer){.pair = &pair, .index = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, write_rounds, &writers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(writers[i].thread, NULL), 0);
        assert_int_equal(writers[i].code, 0);
    }
    pair_fini(&pair);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void
test_compat_engine__a_range_is_registered_once(void **state)
{
    struct pair pair;
    uint8_t *more = malloc(BYTES);
    uint64_t here;
    uint64_t places[3];
    uint64_t lengths[3] = {4096, 4096, 4096};

    (void)state;
    pair_init(&pair);
    here = at(pair.local);
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){BYTES}, 1, "*"), -7);
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){16}, 1, "*"), -7);
    here += BYTES - 1;
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){4096}, 1, "*"), -7);
    here = at(pair.local) - 4096;
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){4097}, 1, "*"), -7);
    here = 0;
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){4096}, 1, "*"), -1);
    here = at(more);
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){0}, 1, "*"), -1);
    here = 4096; /* Nothing is mapped there. */
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){4096}, 1, "*"), -1);
    /* Of several, one that overlaps takes the others with it. */
    places[0] = at(more);
    places[1] = at(more) + 8192;
    places[2] = at(pair.local) + 100;
    assert_int_equal(yb_compat_engine_register(pair.here, places, lengths, 3, "*"), -7);
    assert_int_equal(yb_compat_engine_unregister(pair.here, places, 1), -3);
    assert_int_equal(yb_compat_engine_register(pair.here, places, lengths, 2, "*"), 0);
    assert_int_equal(yb_compat_engine_unregister(pair.here, places, 3), -3);
    assert_int_equal(yb_compat_engine_unregister(pair.here, places, 2), 0);
    assert_int_equal(yb_compat_engine_unregister(pair.here, places, 2), -3);
    here = at(pair.local);
    assert_int_equal(yb_compat_engine_unregister(pair.here, &here, 1), 0);
    assert_int_equal(yb_compat_engine_register(pair.here, &here, &(uint64_t){BYTES}, 1, "*"), 0);
    pair_fini(&pair);
    free(more);
}

static void
test_compat_engine__what_is_not_registered_is_out_of_reach(void **state)
{
    uint8_t *secret = malloc(BYTES);
    struct pair pair;

    (void)state;
    pair_init(&pair);
    fill(secret, BYTES, 9);
    assert_int_equal(move_one(pair.here, pair.name, false, pair.local, at(secret), 4096), -1);
    assert_int_equal(move_one(pair.here, pair.name, true, pair.local, at(secret), 4096), -1);
    assert_int_equal(
        move_one(pair.here, pair.name, true, pair.local, at(pair.remote) + BYTES - 1, 2), -1);
    assert_true(is(secret, BYTES, 9));
    /* Memory of the caller's own side needs no registration. */
    assert_int_equal(move_one(pair.here, pair.name, true, secret, at(pair.remote), BYTES), 0);
    assert_true(is(pair.remote, BYTES, 9));
    pair_fini(&pair);
    free(secret);
}

static void
test_compat_engine__a_random_walk_of_ranges_agrees_with_a_list(void **state)
{
    uint64_t random = unit_seed("compat_engine ranges");
    uint8_t *arena = malloc(BYTES);
    bool taken[256] = {false};
    uint32_t first[256]; /* Of the range that covers the page. */
    struct pair pair;

    (void)state;
    pair_init(&pair);
    for (int i = 0; i < 4000; i++) {
        uint32_t page = (uint32_t)(unit_random(&random) % 250);
        uint32_t pages = (uint32_t)(unit_random(&random) % 5) + 1;
        uint64_t address = at(arena) + page * 4096;
        uint64_t length = pages * 4096;

        if (unit_random(&random) % 2 == 0) {
            int32_t expected = 0;

            for (uint32_t k = 0; k < pages; k++) {
                expected = taken[page + k] ? -7 : expected;
            }
            assert_int_equal(yb_compat_engine_register(pair.here, &address, &length, 1, "*"),
                             expected);
            for (uint32_t k = 0; k < pages && expected == 0; k++) {
                taken[page + k] = true;
                first[page + k] = page;
            }
        } else {
            int32_t expected = taken[page] && first[page] == page ? 0 : -3;

            assert_int_equal(yb_compat_engine_unregister(pair.here, &address, 1), expected);
            for (uint32_t k = page; k < 256 && expected == 0 && taken[k] && first[k] == page; k++) {
                taken[k] = false;
            }
        }
    }
    pair_fini(&pair);
    free(arena);
}

static void
test_compat_engine__managed_buffers_and_the_first_address_are_reached(void **state)
{
    struct pair pair;
    uint64_t buffer;
    uint64_t address;

    (void)state;
    pair_init(&pair);
    assert_int_equal(yb_compat_engine_first_address(pair.here, pair.name), at(pair.remote));
    buffer = yb_compat_engine_buffer_alloc(pair.here, 10000);
    assert_true(buffer != 0);
    assert_int_equal(yb_compat_engine_register(pair.here, &buffer, &(uint64_t){10000}, 1, "*"), -7);
    fill((uint8_t *)(uintptr_t)buffer, 10000, 4);
    assert_int_equal(move_one(pair.there, pair.here_name, false, pair.remote, buffer, 10000), 0);
    assert_true(is(pair.remote, 10000, 4));
    assert_int_equal(yb_compat_engine_unregister(pair.here, &buffer, 1), -3);
    assert_int_equal(yb_compat_engine_buffer_free(pair.here, buffer + 1), -1);
    assert_int_equal(yb_compat_engine_buffer_free(pair.here, buffer), 0);
    assert_int_equal(yb_compat_engine_buffer_free(pair.here, buffer), -1);
    address = at(pair.remote);
    assert_int_equal(yb_compat_engine_unregister(pair.there, &address, 1), 0);
    assert_int_equal(yb_compat_engine_first_address(pair.here, pair.name), 0);
    assert_int_equal(move_one(pair.here, pair.name, false, pair.local, at(pair.remote), 16), -1);
    pair_fini(&pair);
}

/* ---- notifications --------------------------------------------------------------------------- */

static void
expect_notify(struct yb_compat_engine *engine, const char *name, const char *text, size_t bytes)
{
    struct yb_compat_notified notified;

    assert_true(yb_compat_engine_next_notify(engine, &notified));
    assert_int_equal(notified.name_bytes, strlen(name));
    assert_string_equal(notified.name, name);
    assert_int_equal(notified.text_bytes, bytes);
    assert_memory_equal(notified.text, text, bytes);
    assert_int_equal(notified.text[bytes], 0);
    free(notified.name);
    free(notified.text);
}

static void
test_compat_engine__notifications_of_any_length_arrive_after_the_data(void **state)
{
    static const size_t sizes[] = {0, 1, 4063, 4064, 4065, 8128, 100000, 1048570};
    struct yb_compat_notified notified;
    struct pair pair;
    char *text = malloc(1u << 20);
    uint64_t places[3];

    (void)state;
    pair_init(&pair);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct yb_compat_notify notify = {
            .name = "{id}", .text = text, .name_bytes = 4, .text_bytes = sizes[i]};
        struct yb_compat_move move = {
            .target = pair.name,
            .write = true,
            .local = &places[0],
            .remote = &places[1],
            .lengths = &places[2],
            .count = 1,
            .notify = &notify,
        };

        fill((uint8_t *)text, sizes[i], i);
        fill(pair.local, BYTES, i + 50);
        places[0] = at(pair.local);
        places[1] = at(pair.remote);
        places[2] = i % 2 == 0 ? BYTES : 0; /* Also without a byte of data. */
        assert_int_equal(yb_compat_engine_move(pair.here, &move), 0);
        assert_true(is(pair.remote, places[2], i + 50));
        expect_notify(pair.there, "{id}", text, sizes[i]);
        assert_false(yb_compat_engine_next_notify(pair.there, &notified));
    }
    free(text);
    pair_fini(&pair);
}

static void
test_compat_engine__a_notification_that_is_too_long_moves_nothing(void **state)
{
    struct yb_compat_notified notified;
    struct pair pair;
    uint64_t places[3];
    struct yb_compat_notify notify = {.name = "", .text_bytes = (1u << 20) + 1};
    struct yb_compat_move move = {
        .write = true,
        .local = &places[0],
        .remote = &places[1],
        .lengths = &places[2],
        .count = 1,
        .notify = &notify,
    };

    (void)state;
    pair_init(&pair);
    notify.text = calloc(1, notify.text_bytes);
    move.target = pair.name;
    fill(pair.local, BYTES, 5);
    places[0] = at(pair.local);
    places[1] = at(pair.remote);
    places[2] = BYTES;
    assert_int_equal(yb_compat_engine_move(pair.here, &move), -1);
    assert_int_equal(pair.remote[0], 0);
    assert_false(yb_compat_engine_next_notify(pair.there, &notified));
    free((void *)(uintptr_t)notify.text);
    pair_fini(&pair);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static uint64_t
submit_one(struct pair *pair, const char *target, uint64_t remote)
{
    uint64_t local = at(pair->local);
    uint64_t length = BYTES;
    const struct yb_compat_move move = {
        .target = target,
        .write = true,
        .local = &local,
        .remote = &remote,
        .lengths = &length,
        .count = 1,
    };

    return yb_compat_engine_submit(pair->here, &move);
}

static void
test_compat_engine__batches_are_asked_about_by_number(void **state)
{
    struct pair pair;
    uint64_t batches[3];
    int32_t code = 0;

    (void)state;
    pair_init(&pair);
    fill(pair.local, BYTES, 6);
    batches[0] = submit_one(&pair, pair.name, at(pair.remote));
    assert_true(batches[0] != 0);
    while (code == 0) {
        code = yb_compat_engine_check(pair.here, batches[0]);
    }
    assert_int_equal(code, 1);
    assert_true(is(pair.remote, BYTES, 6));
    assert_int_equal(yb_compat_engine_check(pair.here, batches[0]), -1); /* It was given back. */
    assert_int_equal(yb_compat_engine_wait(pair.here, batches, 1), -1);
    memset(pair.remote, 0, BYTES);
    for (int i = 0; i < 3; i++) {
        batches[i] = submit_one(&pair, pair.name, at(pair.remote));
    }
    assert_int_equal(yb_compat_engine_wait(pair.here, batches, 3), 0);
    assert_true(is(pair.remote, BYTES, 6));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(yb_compat_engine_check(pair.here, batches[i]), -1);
    }
    batches[0] = submit_one(&pair, pair.name, at(pair.remote));
    batches[1] = submit_one(&pair, pair.name, 4096); /* Not registered there. */
    batches[2] = submit_one(&pair, pair.name, at(pair.remote));
    assert_int_equal(yb_compat_engine_wait(pair.here, batches, 3), -1);
    assert_int_equal(yb_compat_engine_check(pair.here, batches[2]), -1);
    assert_int_equal(yb_compat_engine_check(pair.here, UINT64_MAX), -1);
    assert_int_equal(submit_one(&pair, "no port", 1), 0);
    (void)submit_one(&pair, pair.name, at(pair.remote)); /* Nobody asks: destroy ends it. */
    pair_fini(&pair);
}

/* ---- peers ----------------------------------------------------------------------------------- */

static void
test_compat_engine__a_peer_that_is_not_there_fails_at_once(void **state)
{
    char name[NAME_BYTES];
    struct pair pair;

    (void)state;
    /* Whoever waits for its end here waits longer than the test may take. */
    assert_int_equal(setenv("MC_TRANSFER_TIMEOUT", "86400", 1), 0);
    pair_init(&pair);
    assert_int_equal(unsetenv("MC_TRANSFER_TIMEOUT"), 0);
    (void)snprintf(name, sizeof(name), "127.0.0.1:%u", closed_ports(1));
    assert_int_equal(move_one(pair.here, name, true, pair.local, at(pair.remote), 16), -1);
    assert_int_not_equal(yb_compat_engine_probe(pair.here, name), 0);
    assert_int_equal(yb_compat_engine_first_address(pair.here, name), 0);
    assert_int_equal(move_one(pair.here, "127.0.0.1", true, pair.local, at(pair.remote), 16), -1);
    assert_int_equal(move_one(pair.here, "", true, pair.local, at(pair.remote), 16), -1);
    assert_int_equal(move_one(pair.here, NULL, true, pair.local, at(pair.remote), 16), -1);
    pair_fini(&pair);
}

/* Another process with an engine at `host`; it tells the address of a page of its memory. */
struct other {
    pid_t pid;
    uint64_t address;
    char name[NAME_BYTES];
    int order; /* Close it, and the process ends. */
};

static void
other_main(const char *host, const char *server, int answers, int orders)
{
    struct yb_compat_engine *engine = yb_compat_engine_create();
    struct other self = {0};
    uint8_t *bytes = malloc(BYTES);
    uint64_t length = BYTES;
    char end;

    fill(bytes, BYTES, 77);
    self.address = at(bytes);
    if (init(engine, host, server) != 0 ||
        yb_compat_engine_register(engine, &self.address, &length, 1, "*") != 0) {
        _exit(1);
    }
    (void)yb_compat_engine_name(engine, self.name, sizeof(self.name));
    if (write(answers, &self, sizeof(self)) != sizeof(self)) {
        _exit(1);
    }
    (void)!read(orders, &end, 1);
    yb_compat_engine_destroy(&engine);
    _exit(0);
}

static void
other_start(struct other *other, const char *host, const char *server)
{
    int answers[2];
    int orders[2];
    pid_t pid;

    assert_int_equal(pipe(answers), 0);
    assert_int_equal(pipe(orders), 0);
    other->pid = fork();
    assert_true(other->pid >= 0);
    if (other->pid == 0) {
        (void)close(orders[1]);
        other_main(host, server, answers[1], orders[0]);
    }
    pid = other->pid;
    (void)close(answers[1]);
    (void)close(orders[0]);
    assert_int_equal(read(answers[0], other, sizeof(*other)), sizeof(*other));
    (void)close(answers[0]);
    other->pid = pid;
    other->order = orders[1];
}

static void
other_end(struct other *other, int signal)
{
    int code = 0;

    if (signal != 0) {
        assert_int_equal(kill(other->pid, signal), 0);
    }
    (void)close(other->order);
    assert_int_equal(waitpid(other->pid, &code, 0), other->pid);
    assert_true(signal != 0 ? WIFSIGNALED(code) : WIFEXITED(code) && WEXITSTATUS(code) == 0);
}

static void
test_compat_engine__a_process_that_was_killed_is_reached_again_when_it_is_back(void **state)
{
    struct yb_compat_engine *engine = yb_compat_engine_create();
    struct other other;
    uint8_t *local = malloc(BYTES);
    char host[NAME_BYTES];

    (void)state;
    (void)snprintf(host, sizeof(host), "127.0.0.1:%u", closed_ports(1));
    other_start(&other, host, "etcd://nobody:1");
    assert_string_equal(other.name, host); /* A given port is listened on. */
    assert_int_equal(init(engine, "127.0.0.1", "P2PHANDSHAKE"), 0);
    assert_int_equal(move_one(engine, host, false, local, other.address, BYTES), 0);
    assert_true(is(local, BYTES, 77));
    other_end(&other, SIGKILL);
    assert_int_equal(move_one(engine, host, false, local, other.address, BYTES), -1);
    assert_int_not_equal(yb_compat_engine_probe(engine, host), 0);
    yb_compat_engine_destroy(&engine);

    /* From here on the engine outlives the other: so it starts before this one has threads. */
    other_start(&other, host, "etcd://nobody:1");
    engine = yb_compat_engine_create();
    assert_int_equal(init(engine, "127.0.0.1", "P2PHANDSHAKE"), 0);
    memset(local, 0, BYTES);
    assert_int_equal(move_one(engine, host, false, local, other.address, BYTES), 0);
    assert_true(is(local, BYTES, 77));
    other_end(&other, 0);
    yb_compat_engine_destroy(&engine);
    free(local);
}

static void
test_compat_engine__a_peer_that_was_restarted_at_its_name_is_reached_again(void **state)
{
    struct yb_compat_engine *there = yb_compat_engine_create();
    struct pair pair;
    uint64_t length = BYTES;
    uint64_t address;
    char host[NAME_BYTES];

    (void)state;
    pair_init(&pair);
    (void)snprintf(host, sizeof(host), "127.0.0.1:%u", closed_ports(1));
    address = at(pair.remote);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(init(there, host, "redis://nobody:1"), 0);
        assert_int_equal(yb_compat_engine_register(there, &address, &length, 1, "*"), 0);
        fill(pair.local, BYTES, i);
        assert_int_equal(move_one(pair.here, host, true, pair.local, at(pair.remote), BYTES), 0);
        assert_true(is(pair.remote, BYTES, i));
        yb_compat_engine_destroy(&there);
        assert_int_equal(move_one(pair.here, host, true, pair.local, at(pair.remote), BYTES), -1);
        there = yb_compat_engine_create();
    }
    yb_compat_engine_destroy(&there);
    pair_fini(&pair);
}

/* ---- the environment ------------------------------------------------------------------------- */

static void
test_compat_engine__ports_and_paths_are_those_of_the_environment(void **state)
{
    uint16_t first = closed_ports(2);
    struct yb_compat_engine *engines[3];
    struct yb_transfer_probe probe;
    yb_transfer_peer peer;
    char name[NAME_BYTES];
    uint16_t ports[3];

    (void)state;
    (void)snprintf(name, sizeof(name), "%u", first);
    assert_int_equal(setenv("MC_MIN_RPC_PORT", name, 1), 0);
    (void)snprintf(name, sizeof(name), "%u", first + 1);
    assert_int_equal(setenv("MC_MAX_RPC_PORT", name, 1), 0);
    assert_int_equal(setenv("MC_FORCE_TCP", "1", 1), 0);
    for (int i = 0; i < 3; i++) {
        engines[i] = yb_compat_engine_create();
        assert_int_equal(init(engines[i], "127.0.0.1", "P2PHANDSHAKE"), i < 2 ? 0 : -1);
        ports[i] = yb_compat_engine_port(engines[i]);
    }
    assert_true(ports[0] == first ? ports[1] == first + 1
                                  : ports[0] == first + 1 && ports[1] == first);
    assert_int_equal(ports[2], 0);
    (void)yb_compat_engine_name(engines[1], name, sizeof(name));
    assert_int_equal(yb_transfer_open(yb_compat_engine_transfer(engines[0]), name, &peer), YB_OK);
    assert_int_equal(
        yb_transfer_ask(yb_compat_engine_transfer(engines[0]), peer, 60 * YB_NS_PER_S, &probe),
        YB_OK);
    assert_int_equal(probe.paths, YB_TRANSFER_PATH_TCP);
    for (int i = 0; i < 3; i++) {
        yb_compat_engine_destroy(&engines[i]);
    }
    assert_int_equal(unsetenv("MC_MIN_RPC_PORT"), 0);
    assert_int_equal(unsetenv("MC_MAX_RPC_PORT"), 0);
    assert_int_equal(unsetenv("MC_FORCE_TCP"), 0);
}

static void
write_secret(const char *path, char letter)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fprintf(file, "secret %032d%c\n", 0, letter) > 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void
test_compat_engine__a_secret_keeps_strangers_out(void **state)
{
    struct yb_compat_engine *open = yb_compat_engine_create();
    char path[] = "/tmp/yb-compat-XXXXXX";
    char name[NAME_BYTES];
    struct pair pair;

    (void)state;
    assert_int_equal(close(mkstemp(path)), 0);
    assert_int_equal(setenv("YUEBING_REQUIRE_AUTH", "1", 1), 0);
    assert_int_equal(init(open, "127.0.0.1", "P2PHANDSHAKE"), -1);
    write_secret(path, 'a');
    assert_int_equal(setenv("YUEBING_SECRET_FILE", path, 1), 0);
    pair_init(&pair);
    fill(pair.local, BYTES, 8);
    assert_int_equal(move_one(pair.here, pair.name, true, pair.local, at(pair.remote), BYTES), 0);
    assert_true(is(pair.remote, BYTES, 8));
    write_secret(path, 'b'); /* Another one. */
    assert_int_equal(init(open, "127.0.0.1", "P2PHANDSHAKE"), 0);
    assert_int_equal(move_one(open, pair.name, false, pair.local, at(pair.remote), 16), -1);
    assert_int_not_equal(yb_compat_engine_probe(open, pair.name), 0);
    yb_compat_engine_destroy(&open);
    assert_int_equal(unsetenv("YUEBING_SECRET_FILE"), 0);
    assert_int_equal(unsetenv("YUEBING_REQUIRE_AUTH"), 0);
    open = engine_at("127.0.0.1", name); /* And none at all. */
    assert_int_equal(move_one(open, pair.name, false, pair.local, at(pair.remote), 16), -1);
    yb_compat_engine_destroy(&open);
    pair_fini(&pair);
    assert_int_equal(unlink(path), 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* A metadata server on a port of its own. */
struct names {
    struct yb_metadata *metadata;
    struct yb_known_http *known;
    struct yb_http_source source;
    struct yb_http *http;
    char url[NAME_BYTES];
};

static void
names_init(struct names *names)
{
    struct yb_known_http_options paths = {0};
    struct yb_http_options options = {.insecure = true, .connections_max = 16};
    char why[YB_ADDRESS_WHY_BYTES];
    char text[YB_ADDRESS_TEXT_BYTES];
    struct yb_address bound;

    *names = (struct names){.metadata = yb_metadata_create()};
    paths.metadata = names->metadata;
    names->known = yb_known_http_create(&paths);
    names->source.other = yb_known_http_answer;
    names->source.other_context = names->known;
    options.source = &names->source;
    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_http_create(&options, &names->http, why), YB_OK);
    bound = yb_http_address(names->http);
    yb_address_format(&bound, text);
    (void)snprintf(names->url, sizeof(names->url), "http://%s/metadata", text);
}

static void
names_fini(struct names *names)
{
    yb_http_destroy(&names->http);
    yb_known_http_destroy(&names->known);
    yb_metadata_destroy(&names->metadata);
}

static void
test_compat_engine__names_without_a_port_resolve_at_the_server(void **state)
{
    struct yb_compat_engine *engines[3];
    struct names names;
    char name[NAME_BYTES];
    uint8_t *local = malloc(BYTES);
    uint8_t *remote = malloc(BYTES);
    uint64_t address = at(remote);
    char *value = NULL;
    size_t bytes = 0;
    void *library = dlopen("libcurl.so.4", RTLD_NOW);

    (void)state;
    if (library == NULL) {
        print_message("# libcurl is not here: names have to be addresses\n");
        skip();
    }
    names_init(&names);
    for (int i = 0; i < 3; i++) {
        engines[i] = yb_compat_engine_create();
    }
    assert_int_equal(init(engines[0], "localhost", names.url), 0);
    (void)yb_compat_engine_name(engines[0], name, sizeof(name));
    assert_string_equal(name, "localhost");
    assert_int_equal(yb_metadata_get(names.metadata, "mooncake/rpc_meta/localhost", &value, &bytes),
                     YB_OK);
    assert_non_null(strstr(value, "\"rpc_port\""));
    free(value);
    assert_int_equal(yb_compat_engine_register(engines[0], &address, &(uint64_t){BYTES}, 1, "*"),
                     0);
    /* Another one of that name is refused as long as the first lives. */
    assert_int_equal(init(engines[1], "localhost", names.url), -1);
    assert_int_equal(init(engines[1], "127.0.0.1", names.url), 0);
    fill(local, BYTES, 31);
    assert_int_equal(move_one(engines[1], "localhost", true, local, at(remote), BYTES), 0);
    assert_true(is(remote, BYTES, 31));
    assert_int_equal(move_one(engines[1], "nobody", true, local, at(remote), BYTES), -1);
    yb_compat_engine_destroy(&engines[0]); /* Gives its name back. */
    assert_int_equal(yb_metadata_get(names.metadata, "mooncake/rpc_meta/localhost", &value, &bytes),
                     YB_NOT_FOUND);
    /* What a killed one has left there is no hindrance. */
    (void)snprintf(name, sizeof(name), "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":%u}",
                   closed_ports(1));
    assert_int_equal(
        yb_metadata_put(names.metadata, "mooncake/rpc_meta/localhost", name, strlen(name)), YB_OK);
    assert_int_equal(init(engines[2], "localhost", names.url), 0);
    /* It has the name, at another port: whoever knew the old one finds out, and asks again. */
    assert_int_equal(yb_compat_engine_register(engines[2], &address, &(uint64_t){BYTES}, 1, "*"),
                     0);
    (void)move_one(engines[1], "localhost", true, local, at(remote), BYTES);
    memset(remote, 0, BYTES);
    assert_int_equal(move_one(engines[1], "localhost", true, local, at(remote), BYTES), 0);
    assert_true(is(remote, BYTES, 31));
    yb_compat_engine_destroy(&engines[1]);
    yb_compat_engine_destroy(&engines[2]);
    names_fini(&names);
    free(local);
    free(remote);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_engine__before_initialize_every_call_tells_failure),
        cmocka_unit_test(test_compat_engine__what_initialize_refuses_leaves_it_usable),
        cmocka_unit_test(test_compat_engine__bytes_arrive_both_ways),
        cmocka_unit_test(test_compat_engine__thousands_of_descriptors_go_as_one_call),
        cmocka_unit_test(test_compat_engine__a_call_larger_than_any_batch_is_split),
        cmocka_unit_test(test_compat_engine__a_dozen_threads_write_at_once),
        cmocka_unit_test(test_compat_engine__a_range_is_registered_once),
        cmocka_unit_test(test_compat_engine__what_is_not_registered_is_out_of_reach),
        cmocka_unit_test(test_compat_engine__a_random_walk_of_ranges_agrees_with_a_list),
        cmocka_unit_test(test_compat_engine__managed_buffers_and_the_first_address_are_reached),
        cmocka_unit_test(test_compat_engine__notifications_of_any_length_arrive_after_the_data),
        cmocka_unit_test(test_compat_engine__a_notification_that_is_too_long_moves_nothing),
        cmocka_unit_test(test_compat_engine__batches_are_asked_about_by_number),
        cmocka_unit_test(test_compat_engine__a_peer_that_is_not_there_fails_at_once),
        cmocka_unit_test(
            test_compat_engine__a_process_that_was_killed_is_reached_again_when_it_is_back),
        cmocka_unit_test(
            test_compat_engine__a_peer_that_was_restarted_at_its_name_is_reached_again),
        cmocka_unit_test(test_compat_engine__ports_and_paths_are_those_of_the_environment),
        cmocka_unit_test(test_compat_engine__a_secret_keeps_strangers_out),
        cmocka_unit_test(test_compat_engine__names_without_a_port_resolve_at_the_server),
    };

    return cmocka_run_group_tests_name("compat_engine", tests, NULL, NULL);
}
