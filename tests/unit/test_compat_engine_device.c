/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's engine with addresses of a device, which connectors pass always.
 */
#include "compat/engine.h"
#include "transfer_board.h"

#define BYTES (2u * 1024u * 1024u)

static struct yb_compat_engine *
engine_new(void)
{
    const struct yb_compat_engine_options options = {
        .local_hostname = "127.0.0.1",
        .metadata_server = "P2PHANDSHAKE",
        .protocol = "rdma", /* Their default. */
        .devices = "",
    };
    struct yb_compat_engine *engine = yb_compat_engine_create();

    assert_int_equal(yb_compat_engine_initialize(engine, &options), 0);
    return engine;
}

static void
move_between(struct yb_memory_place from, struct yb_memory_place to)
{
    struct yb_compat_engine *here = engine_new();
    struct yb_compat_engine *there = engine_new();
    struct buffer local;
    struct buffer remote;
    char name[64];
    uint64_t places[3];
    struct yb_compat_move move = {
        .target = name,
        .write = true,
        .local = &places[0],
        .remote = &places[1],
        .lengths = &places[2],
        .count = 1,
    };

    buffer_init(&local, &board, from, BYTES);
    buffer_init(&remote, &board, to, BYTES);
    (void)yb_compat_engine_name(there, name, sizeof(name));
    places[0] = (uint64_t)(uintptr_t)local.bytes;
    places[1] = (uint64_t)(uintptr_t)remote.bytes;
    places[2] = BYTES;
    assert_int_equal(yb_compat_engine_register(here, &places[0], &places[2], 1, "cuda:0"), 0);
    assert_int_equal(yb_compat_engine_register(there, &places[1], &places[2], 1, "*"), 0);
    buffer_fill(&local, 0, BYTES, 21);
    assert_int_equal(yb_compat_engine_move(here, &move), 0);
    buffer_expect(&remote, 0, BYTES, 21);
    buffer_fill(&remote, 0, BYTES, 22);
    move.write = false;
    assert_int_equal(yb_compat_engine_move(here, &move), 0);
    buffer_expect(&local, 0, BYTES, 22);
    assert_int_equal(yb_compat_engine_unregister(here, &places[0], 1), 0);
    yb_compat_engine_destroy(&here);
    yb_compat_engine_destroy(&there);
    buffer_fini(&local);
    buffer_fini(&remote);
}

static void
test_compat_engine_device__bytes_move_between_any_two_memories(void **state)
{
    (void)state;
    board_init(&board);
    move_between(place_first, place_host);
    move_between(place_host, place_first);
    move_between(place_first, place_second);
    board_fini(&board);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compat_engine_device__bytes_move_between_any_two_memories),
    };

    return cmocka_run_group_tests_name("compat_engine_device", tests, NULL, NULL);
}
