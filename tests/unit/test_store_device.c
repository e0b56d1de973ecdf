/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: blocks go from and to device memory through the transfer engine, and no other way.
 * Method: a directory, a node and clients on real sockets in this process, and a stand-in for the
 * device's driver, under which whatever else touches device memory faults.
 */
#include <stdio.h>
#include <string.h>

#include "store_ground.h"
#include "transfer_board.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static struct ground *
near_ground(uint32_t paths, uint64_t pool_bytes)
{
    const struct ground_options options = {.engine_paths = paths, .pool_bytes = pool_bytes};

    return ground_create(&options);
}

static enum yb_status
remove_one(struct yb_client *client, const char *key)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .force = true};
    struct yb_client_item item = {.key = key, .key_bytes = (uint32_t)strlen(key)};

    assert_int_equal(yb_client_remove(client, &item, 1, &call), YB_OK);
    return item.status;
}

/* Put a value of the pattern `seed` from host memory. */
static void
put_host(struct yb_client *client, const char *key, size_t length, uint64_t seed)
{
    uint8_t *bytes = malloc(length);
    struct iovec iov = {bytes, length};
    struct yb_client_item item = {
        .key = key, .key_bytes = (uint32_t)strlen(key), .iov = &iov, .iov_count = 1};

    assert_non_null(bytes);
    for (size_t i = 0; i < length; i++) {
        bytes[i] = pattern(seed, i);
    }
    assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    free(bytes);
}

static void
move_device(struct ground *ground, const struct yb_client_options *options)
{
    struct yb_client *client = ground_client(ground, options);
    struct buffer from;
    struct buffer to;
    struct yb_client_item item = {.key = "device", .key_bytes = 6, .iov_count = 2};
    struct iovec iov[2];

    buffer_init(&from, &board, place_first, 3 * MIB);
    buffer_init(&to, &board, place_second, 3 * MIB);
    buffer_fill(&from, 0, 3 * MIB, 21);
    item.iov = iov;
    iov[0] = (struct iovec){from.bytes, MIB};
    iov[1] = (struct iovec){from.bytes + MIB, 2 * MIB};
    assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    iov[0].iov_base = to.bytes;
    iov[1].iov_base = to.bytes + MIB;
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.bytes, 3 * MIB);
    buffer_expect(&to, 0, 3 * MIB, 21);
    item.ranged = true; /* A small one too: frames cannot touch it. */
    item.offset = 5;
    item.iov_count = 1;
    iov[0].iov_len = 100;
    buffer_clear(&to);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.bytes, 100);
    buffer_expect_clear(&to, 100, 3 * MIB - 100);
    assert_int_equal(remove_one(client, "device"), YB_OK);
    buffer_fini(&from);
    buffer_fini(&to);
    yb_client_close(&client);
}

static void
test_store_device__device_memory_goes_through_the_engine_whatever_the_way(void **state)
{
    const struct yb_client_options no_shared_memory = {.no_shared_memory = true};
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);

    (void)state;
    move_device(ground, NULL);
    move_device(ground, &no_shared_memory);
    ground_destroy(&ground);
    ground = near_ground(YB_TRANSFER_PATH_TCP, 0);
    move_device(ground, NULL);
    ground_destroy(&ground);
}

static void
test_store_device__device_memory_and_a_node_without_an_engine_do_not_meet(void **state)
{
    struct ground *ground = near_ground(0, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct buffer buffer;
    struct iovec iov;
    struct yb_client_item item = {.key = "device", .key_bytes = 6, .iov = &iov, .iov_count = 1};

    (void)state;
    buffer_init(&buffer, &board, place_first, MIB);
    iov = (struct iovec){buffer.bytes, MIB};
    assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_UNSUPPORTED);
    put_host(client, "device", MIB, 3);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_UNSUPPORTED);
    buffer_fini(&buffer);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* The node's rule for what takes long, "he may send it", is not for what cannot be sent. */
static void
test_store_device__a_device_that_is_slow_costs_a_put_nothing_but_time(void **state)
{
    const uint64_t longer_than_a_node_waits_ns = 1500 * YB_NS_PER_MS;
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct buffer buffer;
    struct iovec iov;
    struct yb_client_item item = {.key = "slow", .key_bytes = 4, .iov = &iov, .iov_count = 1};
    struct yb_client_counters counters;
    yb_client_handle handle;

    (void)state;
    buffer_init(&buffer, &board, place_first, MIB);
    buffer_fill(&buffer, 0, MIB, 7);
    iov = (struct iovec){buffer.bytes, MIB};
    board.set("hold", 1);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_PUT, &item, 1, NULL, NULL, NULL, 0, &handle), YB_OK);
    assert_int_equal(yb_client_wait(client, handle, longer_than_a_node_waits_ns), YB_TIMED_OUT);
    board.set("hold", 0);
    assert_int_equal(yb_client_wait(client, handle, UINT64_MAX), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(item.status, YB_OK);
    yb_client_counters(client, &counters);
    assert_int_equal(counters.retries, 0); /* At the first attempt. */
    buffer_clear(&buffer);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    buffer_expect(&buffer, 0, MIB, 7);
    buffer_fini(&buffer);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* A node lends one client a quarter of its pool; the rest of a batch waits for it. */
static void
test_store_device__more_than_a_node_lends_at_once_comes_one_after_another(void **state)
{
    enum { BLOCKS = 12 };
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 32 * MIB);
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_item items[BLOCKS];
    struct buffer buffers[BLOCKS];
    struct iovec iov[BLOCKS];
    char keys[BLOCKS][8];

    (void)state;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "%02u", i);
        put_host(client, keys[i], i == 0 ? 9 * MIB : MIB, i); /* One is more than a quarter. */
        buffer_init(&buffers[i], &board, place_first, i == 0 ? 9 * MIB : MIB);
        iov[i] = (struct iovec){buffers[i].bytes, buffers[i].length};
        items[i] =
            (struct yb_client_item){.key = keys[i], .key_bytes = 2, .iov = &iov[i], .iov_count = 1};
    }
    assert_int_equal(yb_client_get(client, items, BLOCKS, NULL), YB_OK);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(items[i].status, YB_OK);
        buffer_expect(&buffers[i], 0, buffers[i].length, i);
        buffer_fini(&buffers[i]);
    }
    yb_client_close(&client);
    ground_destroy(&ground);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_device__device_memory_goes_through_the_engine_whatever_the_way),
        cmocka_unit_test(test_store_device__device_memory_and_a_node_without_an_engine_do_not_meet),
        cmocka_unit_test(test_store_device__a_device_that_is_slow_costs_a_put_nothing_but_time),
        cmocka_unit_test(test_store_device__more_than_a_node_lends_at_once_comes_one_after_another),
    };
    int failures;

    board_init(&board);
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    board_fini(&board);
    return failures;
}
