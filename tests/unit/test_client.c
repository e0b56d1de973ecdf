/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's public face, against a directory and nodes on real sockets in this process.
 */
#include "store_ground.h"

#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)

static struct ground *ground;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 2};

    ground = ground_create(&options);
    return 0;
}

static int
tear_down(void **state)
{
    ground_destroy(&ground);
    return 0;
}

/* ---- blocks that name themselves ------------------------------------------------------------- */

static void
fill(uint8_t *bytes, size_t length, uint64_t name)
{
    uint64_t random = name * 0x9e3779b97f4a7c15u + 1;

    for (size_t i = 0; i < length; i++) {
        bytes[i] = (uint8_t)(i % 8 == 0 ? unit_random(&random) : random >> (8 * (i % 8)));
    }
}

struct block {
    char key[32];
    struct iovec iov;
    uint8_t *bytes;
};

static struct block
make_block(const char *prefix, uint32_t number, size_t length, bool filled)
{
    struct block block = {.bytes = calloc(1, length + 1)};

    assert_non_null(block.bytes);
    (void)snprintf(block.key, sizeof(block.key), "%s-%u", prefix, number);
    if (filled) {
        fill(block.bytes, length, number);
    }
    block.iov = (struct iovec){.iov_base = block.bytes, .iov_len = length};
    return block;
}

static struct yb_client_item
item_of(struct block *block)
{
    return (struct yb_client_item){
        .key = block->key,
        .key_bytes = (uint32_t)strlen(block->key),
        .iov = &block->iov,
        .iov_count = 1,
    };
}

static enum yb_status
put_one(struct yb_client *client, const char *prefix, uint32_t number, size_t length,
        const struct yb_client_call *call)
{
    struct block block = make_block(prefix, number, length, true);
    struct yb_client_item item = item_of(&block);
    enum yb_status status = yb_client_put(client, &item, 1, call);

    free(block.bytes);
    return status == YB_OK ? item.status : status;
}

/* Get a block and compare it. */
static enum yb_status
get_one(struct yb_client *client, const char *prefix, uint32_t number, size_t length)
{
    struct block wanted = make_block(prefix, number, length, true);
    struct block block = make_block(prefix, number, length, false);
    struct yb_client_item item = item_of(&block);
    enum yb_status status = yb_client_get(client, &item, 1, NULL);

    if (status == YB_OK && item.status == YB_OK) {
        assert_int_equal(item.bytes, length);
        assert_int_equal(item.size, length);
        assert_memory_equal(block.bytes, wanted.bytes, length);
    }
    free(wanted.bytes);
    free(block.bytes);
    return status == YB_OK ? item.status : status;
}

/* ---- the calls ------------------------------------------------------------------------------- */

static void
test_client__gets_what_it_put_until_it_is_removed(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("basic", 1, 100, false);
    struct yb_client_item item = item_of(&block);

    assert_int_equal(get_one(client, "basic", 1, 100), YB_NOT_FOUND);
    assert_int_equal(put_one(client, "basic", 1, 100, NULL), YB_OK);
    assert_int_equal(put_one(client, "basic", 1, 100, NULL), YB_EXISTS);
    assert_int_equal(get_one(client, "basic", 1, 100), YB_OK);
    assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.replicas, 1);
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(get_one(client, "basic", 1, 100), YB_NOT_FOUND);
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_NOT_FOUND);
    free(block.bytes);
    yb_client_close(&client);
    assert_null(client);
    yb_client_close(&client);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_client__gets_what_it_put_until_it_is_removed, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
