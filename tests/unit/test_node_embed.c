/* SPDX-License-Identifier: Apache-2.0
 *
 * A node inside a client's process: its client, a client in another process, and what becomes of
 * its blocks when it is closed.
 */
#include "store_ground.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "yuebing/node.h"

#define MIB   (1u << 20)
#define BYTES 100000u

static struct ground *ground;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 1};

    ground = ground_create(&options);
    return 0;
}

static int
tear_down(void **state)
{
    ground_destroy(&ground);
    return 0;
}

static struct yb_node_embedded *
open_node(const char *name, const char *listen)
{
    const struct yb_node_open_options options = {
        .struct_bytes = sizeof(options),
        .directory = ground->address,
        .listen = listen,
        .name = name,
        .pool_bytes = 16 * MIB,
    };
    struct yb_node_embedded *node = NULL;
    char message[512];

    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_OK);
    return node;
}

static void
fill(uint8_t bytes[BYTES])
{
    uint64_t random = 5;

    for (uint32_t i = 0; i < BYTES; i++) {
        bytes[i] = (uint8_t)unit_random(&random);
    }
}

static enum yb_status
put(struct yb_client *client, const char *key, uint8_t bytes[BYTES], const char *node)
{
    const char *const preferred[2] = {node, NULL};
    const struct yb_client_call call = {.struct_bytes = sizeof(call),
                                        .put = {.preferred = preferred}};
    const struct iovec iov = {.iov_base = bytes, .iov_len = BYTES};
    struct yb_client_item item = {
        .key = key, .key_bytes = (uint32_t)strlen(key), .iov = &iov, .iov_count = 1};

    assert_int_equal(yb_client_put(client, &item, 1, &call), YB_OK);
    return item.status;
}

/* Whether the value is there, whole. */
static bool
holds(struct yb_client *client, const char *key)
{
    static uint8_t back[BYTES];
    static uint8_t bytes[BYTES];
    const struct iovec iov = {.iov_base = back, .iov_len = BYTES};
    struct yb_client_item item = {
        .key = key, .key_bytes = (uint32_t)strlen(key), .iov = &iov, .iov_count = 1};

    fill(bytes);
    memset(back, 0, sizeof(back));
    return yb_client_get(client, &item, 1, NULL) == YB_OK && item.status == YB_OK &&
           item.bytes == BYTES && memcmp(back, bytes, BYTES) == 0;
}

/* The other process: whether the store of `directory` holds the value. */
static int
be_reader(const char *directory, const char *key)
{
    const struct yb_client_options options = {.struct_bytes = sizeof(options),
                                              .directory = directory};
    struct yb_client *client;
    bool held = yb_client_open(&options, 0, &client, NULL, 0) == YB_OK;

    if (held) {
        held = holds(client, key);
        yb_client_close(&client);
    }
    return held ? 0 : 1;
}

/* The same as `holds`, by a client of another process. It is this program again: the child of a
 * process with threads is not to start any before it has become another. */
static bool
another_process_reads(const char *key)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        execl("/proc/self/exe", "reader", ground->address, key, (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return status == 0;
}

static void
test_node_embed__holds_blocks_for_its_process_and_for_others(void **state)
{
    struct yb_node_embedded *node = open_node(NULL, NULL);
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_node_standing standing;
    uint8_t bytes[BYTES];

    fill(bytes);
    yb_node_state(node, &standing);
    assert_true(standing.serving);
    assert_false(standing.draining);
    assert_string_equal(standing.name, standing.address);
    assert_int_equal(put(client, "embedded", bytes, standing.name), YB_OK);
    assert_true(holds(client, "embedded"));
    assert_true(another_process_reads("embedded"));
    yb_client_close(&client);
    yb_node_close(&node, 0);
    assert_null(node);
}

static void
test_node_embed__moves_its_blocks_away_before_it_ends(void **state)
{
    struct yb_node_embedded *node = open_node("mover:", "127.0.0.1");
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_node_standing standing;
    uint8_t bytes[BYTES];

    fill(bytes);
    yb_node_state(node, &standing);
    assert_memory_equal(standing.name, "mover:", 6);
    assert_string_equal(standing.name + 6, strrchr(standing.address, ':') + 1);
    assert_int_equal(put(client, "moved", bytes, standing.name), YB_OK);
    yb_node_close(&node, 60 * YB_NS_PER_S);
    assert_true(holds(client, "moved"));

    /* Its name is not marked for ever. */
    node = open_node(standing.name, standing.address);
    yb_node_state(node, &standing);
    assert_false(standing.draining);
    yb_client_close(&client);
    client = ground_client(ground, NULL);
    assert_int_equal(put(client, "again", bytes, standing.name), YB_OK);
    yb_node_close(&node, 0);
    assert_false(holds(client, "again")); /* It lay there, and went with it. */
    yb_client_close(&client);
}

static void
test_node_embed__says_what_is_wrong_and_leaves_nothing(void **state)
{
    struct yb_node_open_options options = {.struct_bytes = sizeof(options)};
    struct yb_node_embedded *node = NULL;
    char message[512] = "";

    options.directory = ground->address;
    options.listen = ground->address;
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_ADDRESS_IN_USE);
    assert_non_null(strstr(message, ground->address));
    options.listen = "0.0.0.0:0";
    options.insecure = true;
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_INVALID);
    options.listen = NULL;
    options.name = "a-name-of-more-than-sixty-three-characters-which-no-message-has-room-for";
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_INVALID);
    options.name = NULL;
    options.policy = "newest";
    assert_int_equal(yb_node_open(&options, 0, &node, NULL, 0), YB_INVALID);
    options.policy = NULL;
    options.port_min = 2;
    options.port_max = 1;
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_INVALID);
    options.port_min = options.port_max = 0;
    options.secret_file = "/nonexistent";
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_DENIED);
    options.secret_file = NULL;
    options.struct_bytes = 1;
    assert_int_equal(yb_node_open(&options, 0, &node, message, sizeof(message)), YB_INVALID);
    options.struct_bytes = sizeof(options);
    options.directory = "127.0.0.1:1"; /* Nobody is there. */
    options.log_fd = -1;
    assert_int_equal(yb_node_open(&options, 50 * YB_NS_PER_MS, &node, message, sizeof(message)),
                     YB_TIMED_OUT);
    assert_null(node);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_node_embed__holds_blocks_for_its_process_and_for_others),
        cmocka_unit_test(test_node_embed__moves_its_blocks_away_before_it_ends),
        cmocka_unit_test(test_node_embed__says_what_is_wrong_and_leaves_nothing),
    };

    if (argc == 3) {
        return be_reader(argv[1], argv[2]);
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
