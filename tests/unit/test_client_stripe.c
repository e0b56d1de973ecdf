/* SPDX-License-Identifier: Apache-2.0
 *
 * Values that are cut into parts, against a directory and nodes on real sockets in this process.
 */
#include "store_ground.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "client/stripe_internal.h"

#define MIB        (1u << 20)
#define LENGTH     (70u * MIB + 123) /* Five parts of 16 MiB, the last one short. */
#define SMALL_POOL (50u * MIB) /* For two parts of 16 MiB and a short one, below the high mark. */

#define SPARE ((uint64_t)256 * MIB) /* Of memory: less than the names of 2^22 parts take. */

static struct ground *ground;
static uint64_t patience_ns; /* Of put_sizes(); 0: a call's own. */

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 2, .pool_bytes = 256ull << 20};

    ground = ground_create(&options);
    return 0;
}

static int
set_up_small(void **state)
{
    const struct ground_options options = {.nodes = 2, .pool_bytes = SMALL_POOL};

    ground = ground_create(&options);
    return 0;
}

static int
tear_down(void **state)
{
    patience_ns = 0;
    ground_destroy(&ground);
    return 0;
}

static uint8_t *
make_value(size_t length, uint64_t name)
{
    uint64_t *words = malloc(length + sizeof(*words));

    assert_non_null(words);
    for (size_t i = 0; i < length / sizeof(*words) + 1; i++) {
        words[i] = i * 0x9e3779b97f4a7c15u + name;
    }
    return (uint8_t *)words;
}

static struct yb_client_item
item_of(const char *key, struct iovec *iov, uint32_t count)
{
    return (struct yb_client_item){
        .key = key, .key_bytes = (uint32_t)strlen(key), .iov = iov, .iov_count = count};
}

static enum yb_status
put_value(struct yb_client *client, const char *key, uint8_t *bytes, size_t length, bool replace)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .put.replace = replace};
    struct iovec iov[3] = {{bytes, 5}, {bytes + 5, length / 2}, {bytes + 5 + length / 2, 0}};
    struct yb_client_item item = item_of(key, iov, 3);

    iov[2].iov_len = length - 5 - length / 2;
    assert_int_equal(yb_client_put(client, &item, 1, &call), YB_OK);
    assert_int_equal(item.size, length);
    return item.status;
}

static enum yb_status
get_value(struct yb_client *client, const char *key, const uint8_t *wanted, size_t length)
{
    uint8_t *bytes = calloc(1, length);
    struct iovec iov[2] = {{bytes, length / 3}, {bytes + length / 3, length - length / 3}};
    struct yb_client_item item = item_of(key, iov, 2);

    assert_non_null(bytes);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    if (item.status == YB_OK) {
        assert_int_equal(item.size, length);
        assert_int_equal(item.bytes, length);
        assert_true(memcmp(bytes, wanted, length) == 0);
    }
    free(bytes);
    return item.status;
}

/* Remove it, if it is there. */
static void
remove_value(struct yb_client *client, const char *key)
{
    struct yb_client_item item = item_of(key, NULL, 0);

    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_true(item.status == YB_OK || item.status == YB_NOT_FOUND);
}

static bool
count_entry(void *context, const struct yb_client_entry *entry)
{
    (*(uint32_t *)context)++;
    return true;
}

static uint32_t
entries(struct yb_client *client)
{
    uint32_t count = 0;

    assert_int_equal(yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, NULL, count_entry, &count),
                     YB_OK);
    return count;
}

static uint64_t
used_bytes(void)
{
    struct yb_node_info info;
    uint64_t used = 0;

    for (uint32_t i = 0; i < 2; i++) {
        yb_node_info(ground->nodes[i].node, &info);
        used += info.live;
    }
    return used;
}

static uint64_t
evicted(void)
{
    struct yb_node_info info;
    uint64_t count = 0;

    for (uint32_t i = 0; i < 2; i++) {
        yb_node_info(ground->nodes[i].node, &info);
        count += info.evicted;
    }
    return count;
}

static void
test_client_stripe__moves_a_long_value_whole_and_in_ranges(void **state)
{
    static const struct {
        uint64_t offset;
        size_t length;
    } ranges[] = {{0, 1}, {16u * MIB - 3, 10}, {7, 40u * MIB}, {LENGTH - 1000, 5000}, {LENGTH, 10}};
    struct yb_client *client = ground_client(ground, NULL);
    uint8_t *value = make_value(LENGTH, 1);
    uint8_t *room = malloc(41u * MIB);
    struct iovec iov = {room, 1};
    struct yb_client_item item = item_of("long", &iov, 1);

    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_OK);
    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_EXISTS);
    assert_int_equal(get_value(client, "long", value, LENGTH), YB_OK);
    assert_int_equal(entries(client), 1);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_TOO_SMALL);
    assert_int_equal(item.size, LENGTH);
    for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
        size_t left = (size_t)(LENGTH - ranges[i].offset);

        item.ranged = true;
        item.offset = ranges[i].offset;
        iov.iov_len = ranges[i].length;
        assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
        assert_int_equal(item.status, YB_OK);
        assert_int_equal(item.bytes, left < ranges[i].length ? left : ranges[i].length);
        assert_true(memcmp(room, value + ranges[i].offset, item.bytes) == 0);
    }
    item.offset = LENGTH + 1;
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_INVALID);
    assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.size, LENGTH);
    free(room);
    free(value);
    yb_client_close(&client);
}

static void
test_client_stripe__removing_the_key_removes_the_parts(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    uint8_t *value = make_value(LENGTH, 2);
    struct iovec small = {value, 100};
    struct yb_client_item items[2] = {item_of("short", &small, 1), item_of("long", NULL, 0)};

    assert_int_equal(yb_client_put(client, items, 1, NULL), YB_OK);
    assert_int_equal(items[0].status, YB_OK);
    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_OK);
    assert_true(used_bytes() >= LENGTH);
    assert_int_equal(yb_client_remove(client, items, 2, NULL), YB_OK);
    assert_int_equal(items[0].status, YB_OK);
    assert_int_equal(items[1].status, YB_OK);
    assert_int_equal(get_value(client, "long", value, LENGTH), YB_NOT_FOUND);
    assert_int_equal(entries(client), 0);
    assert_true(used_bytes() < MIB);
    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_OK);
    assert_int_equal(get_value(client, "long", value, LENGTH), YB_OK);
    free(value);
    yb_client_close(&client);
}

static void
test_client_stripe__a_version_is_whole_whatever_its_length(void **state)
{
    struct yb_client *writer = ground_client(ground, NULL);
    struct yb_client *reader = ground_client(ground, NULL);
    uint8_t *value = make_value(LENGTH, 3);
    uint8_t *other = make_value(LENGTH, 4);

    assert_int_equal(put_value(writer, "v", value, LENGTH, true), YB_OK);
    assert_int_equal(get_value(reader, "v", value, LENGTH), YB_OK);
    assert_int_equal(put_value(writer, "v", other, LENGTH, true), YB_OK);
    assert_int_equal(get_value(reader, "v", other, LENGTH), YB_OK);
    assert_int_equal(put_value(writer, "v", value, 1000, true), YB_OK);
    assert_int_equal(get_value(reader, "v", value, 1000), YB_OK);
    assert_int_equal(put_value(writer, "v", other, LENGTH, true), YB_OK);
    assert_int_equal(get_value(reader, "v", other, LENGTH), YB_OK);
    free(value);
    free(other);
    yb_client_close(&writer);
    yb_client_close(&reader);
}

struct part {
    struct yb_node *node; /* Where it is looked for. */
    uint8_t key[64];
    uint32_t key_bytes;
};

static void
find_part(void *context, const struct yb_node_block_view *block)
{
    struct part *part = context;

    if (block->key_bytes == 24 && memcmp(block->key, "\0ybp", 4) == 0) {
        memcpy(part->key, block->key, block->key_bytes);
        part->key_bytes = block->key_bytes;
    }
}

static void
visit_node(void *context)
{
    const struct part *part = context;

    yb_node_visit(part->node, find_part, context);
}

static void
test_client_stripe__a_lost_part_retires_the_manifest(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    uint8_t *value = make_value(LENGTH, 5);
    struct part part = {.key_bytes = 0};
    struct yb_client_item item = item_of("long", NULL, 0);

    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        part.node = ground->nodes[i].node;
        yb_worker_run(ground->nodes[i].worker, visit_node, &part);
    }
    assert_int_equal(part.key_bytes, 24);
    item.key = part.key;
    item.key_bytes = part.key_bytes;
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(get_value(client, "long", value, LENGTH), YB_NOT_FOUND);
    item = item_of("long", NULL, 0);
    assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_NOT_FOUND);
    assert_int_equal(put_value(client, "long", value, LENGTH, false), YB_OK);
    assert_int_equal(get_value(client, "long", value, LENGTH), YB_OK);
    free(value);
    yb_client_close(&client);
}

static void
test_client_stripe__what_cannot_be_published_leaves_no_parts(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    size_t length = 700u * MIB; /* More than both nodes have. */
    const struct yb_client_call pinned = {.struct_bytes = sizeof(pinned), .put.hard_pin = true};
    uint8_t *value = make_value(length, 6);
    struct iovec iov = {value, length};
    struct yb_client_item item = item_of("too long", &iov, 1);

    assert_int_equal(yb_client_put(client, &item, 1, &pinned), YB_OK);
    assert_int_equal(item.status, YB_TOO_LARGE);
    iov.iov_len = 500u * MIB; /* Less, and no place for its last parts. */
    assert_int_equal(yb_client_put(client, &item, 1, &pinned), YB_OK);
    assert_int_equal(item.status, YB_NO_SPACE);
    assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_NOT_FOUND);
    assert_true(used_bytes() < MIB);
    free(value);
    yb_client_close(&client);
}

static void
test_client_stripe__a_value_makes_no_room_for_itself(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    uint8_t *value = make_value(3 * SMALL_POOL, 7);
    struct iovec small = {value, 3u * MIB};
    struct yb_client_item item = item_of("small", &small, 1);

    for (uint32_t round = 0; round < 2; round++) {
        bool replace = round == 1;

        assert_int_equal(put_value(client, "v", value, 3 * SMALL_POOL, replace), YB_TOO_LARGE);
        assert_int_equal(put_value(client, "v", value, 80u * MIB, replace), YB_NO_SPACE);
        assert_int_equal(evicted(), 0);
        assert_int_equal(get_value(client, "v", value, 80u * MIB), YB_NOT_FOUND);
        assert_int_equal(entries(client), 0);
        assert_int_equal(used_bytes(), 0);
        assert_int_equal(put_value(client, "v", value, LENGTH, replace), YB_OK);
        assert_int_equal(get_value(client, "v", value, LENGTH), YB_OK);
        assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK); /* Others do go for it. */
        remove_value(client, "v");
        remove_value(client, "small");
    }
    free(value);
    yb_client_close(&client);
}

struct rival {
    pthread_t thread;
    const char *key;
    uint8_t *value;
    enum yb_status status;
};

static void *
put_beside(void *context)
{
    struct rival *rival = context;
    struct yb_client *client = ground_client(ground, NULL);

    rival->status = put_value(client, rival->key, rival->value, LENGTH, false);
    yb_client_close(&client);
    return NULL;
}

static void
visit_first(void *context)
{
    yb_node_visit(ground->nodes[0].node, find_part, context);
}

/* A part is gone before the last one has come: all of them are put again, and then it is OK. */
static void
test_client_stripe__is_not_there_before_every_part_is(void **state)
{
    struct rival writer = {.key = "long", .value = make_value(LENGTH, 10)};
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_item item = {.status = YB_NOT_FOUND};

    ground_stop(&ground->nodes[1]); /* The parts that go there have to wait. */
    assert_int_equal(pthread_create(&writer.thread, NULL, put_beside, &writer), 0);
    while (item.status != YB_OK) {
        struct part part = {.key_bytes = 0};

        yb_worker_run(ground->nodes[0].worker, visit_first, &part);
        item = (struct yb_client_item){.key = part.key, .key_bytes = part.key_bytes};
        if (part.key_bytes > 0) {
            assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
        } else {
            item.status = YB_NOT_FOUND;
        }
    }
    ground_go(&ground->nodes[1]);
    assert_int_equal(pthread_join(writer.thread, NULL), 0);
    assert_int_equal(writer.status, YB_OK);
    assert_int_equal(get_value(client, "long", writer.value, LENGTH), YB_OK);
    free(writer.value);
    yb_client_close(&client);
}

static void
test_client_stripe__of_two_at_once_each_is_whole_or_not_there(void **state)
{
    struct rival rivals[2] = {{.key = "one", .value = make_value(LENGTH, 8)},
                              {.key = "other", .value = make_value(LENGTH, 9)}};
    struct yb_client *client = ground_client(ground, NULL);

    for (uint32_t round = 0; round < 3; round++) {
        uint32_t good = 0;

        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(pthread_create(&rivals[i].thread, NULL, put_beside, &rivals[i]), 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(pthread_join(rivals[i].thread, NULL), 0);
        }
        for (uint32_t i = 0; i < 2; i++) {
            enum yb_status status = get_value(client, rivals[i].key, rivals[i].value, LENGTH);

            assert_true(rivals[i].status == YB_OK || rivals[i].status == YB_NO_SPACE);
            assert_true(status == YB_NOT_FOUND || (status == YB_OK && rivals[i].status == YB_OK));
            good += rivals[i].status == YB_OK;
        }
        assert_in_range(good, 1, 2);
        for (uint32_t i = 0; i < 2; i++) {
            remove_value(client, rivals[i].key);
        }
        assert_int_equal(put_value(client, rivals[0].key, rivals[0].value, LENGTH, false), YB_OK);
        assert_int_equal(get_value(client, rivals[0].key, rivals[0].value, LENGTH), YB_OK);
        remove_value(client, rivals[0].key);
    }
    free(rivals[0].value);
    free(rivals[1].value);
    yb_client_close(&client);
}

static void
test_client_stripe__parts_are_of_sixteen_to_sixty_four_mib(void **state)
{
    assert_int_equal(yb_stripe_part_bytes(65ull << 20), 16ull << 20);
    assert_int_equal(yb_stripe_part_bytes(1ull << 30), 16ull << 20);
    assert_int_equal(yb_stripe_part_bytes((1ull << 30) + 64), 32ull << 20);
    assert_int_equal(yb_stripe_part_bytes(4ull << 30), 64ull << 20);
    assert_int_equal(yb_stripe_part_bytes(1ull << 46), 64ull << 20);
    assert_int_equal(yb_stripe_part_bytes(YB_CLIENT_VALUE_BYTES_MAX), 64ull << 20);
}

/* Let this process have so much more memory than it has, or again as much as before. */
static void
spare_memory(uint64_t bytes, struct rlimit *before)
{
    FILE *file = fopen("/proc/self/statm", "r");
    struct rlimit limit;
    unsigned long pages = 0;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, before), 0);
    limit = *before;
    limit.rlim_cur = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE) + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
}

static enum yb_status
put_sizes(struct yb_client *client, const struct iovec *iov, uint32_t count, bool replace,
          enum yb_status *item_out)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call), .put.replace = replace, .timeout_ns = patience_ns};
    struct iovec pieces[3];
    struct yb_client_item item = item_of("endless", pieces, count);
    enum yb_status status;

    memcpy(pieces, iov, count * sizeof(*iov));
    status = yb_client_put(client, &item, 1, &call);
    *item_out = item.status;
    return status;
}

/* Nobody has such a value here: its bytes are not touched, as it is known that it fits nowhere. */
static void
test_client_stripe__the_longest_value_is_told_that_it_does_not_fit(void **state)
{
    static uint8_t byte;
    const uint64_t longest = YB_CLIENT_VALUE_BYTES_MAX;
    const struct iovec whole = {&byte, longest};
    const struct iovec beyond = {&byte, longest + 1};
    const struct iovec halves[] = {{&byte, longest / 2}, {&byte, longest / 2}, {&byte, 1}};
    const struct iovec wraps[] = {{&byte, longest}, {&byte, SIZE_MAX}, {&byte, 1}};

    (void)state;
    for (uint32_t replace = 0; replace < 2; replace++) {
        struct yb_client *client = ground_client(ground, NULL); /* That knows of nobody yet. */
        struct rlimit before;
        enum yb_status one;

        spare_memory(SPARE, &before); /* Its parts' names alone would take more. */
        assert_int_equal(put_sizes(client, &whole, 1, replace == 1, &one), YB_OK);
        assert_int_equal(one, YB_TOO_LARGE);
        assert_int_equal(put_sizes(client, halves, 2, replace == 1, &one), YB_OK);
        assert_int_equal(one, YB_TOO_LARGE);
        assert_int_equal(put_sizes(client, &beyond, 1, replace == 1, &one), YB_INVALID);
        assert_int_equal(put_sizes(client, halves, 3, replace == 1, &one), YB_INVALID);
        assert_int_equal(put_sizes(client, wraps, 3, replace == 1, &one), YB_INVALID);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        assert_int_equal(entries(client), 0);
        yb_client_close(&client);
    }
}

/* Where nobody is who could take it, what fits is not known. It waits for somebody, as a short one
 * does, and is not cut meanwhile. */
static void
test_client_stripe__nothing_is_cut_while_nobody_is_there(void **state)
{
    static uint8_t byte;
    const struct iovec longest = {&byte, YB_CLIENT_VALUE_BYTES_MAX};
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_item item = item_of("endless", NULL, 0);
    struct yb_client_node nodes[GROUND_NODES_MAX];
    uint32_t count = 0;

    (void)state;
    ground_kill(&ground->nodes[0]);
    ground_kill(&ground->nodes[1]);
    do {
        assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK); /* Time passes. */
        assert_int_equal(yb_client_nodes(client, nodes, GROUND_NODES_MAX, &count), YB_OK);
    } while (count > 0);
    patience_ns = 200 * YB_NS_PER_MS;
    for (uint32_t replace = 0; replace < 2; replace++) {
        struct rlimit before;
        enum yb_status one;

        spare_memory(SPARE, &before);
        assert_int_equal(put_sizes(client, &longest, 1, replace == 1, &one), YB_OK);
        assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
        assert_true(one == YB_UNREACHABLE || one == YB_TIMED_OUT); /* The machine may be busy. */
    }
    yb_client_close(&client);
}

/* A manifest of a value of so many bytes, in parts of `part_bytes`. */
static bool
plan_of(uint64_t total, uint64_t part_bytes, struct yb_stripe_job *job)
{
    struct yb_stripe_plan plan;

    *job = (struct yb_stripe_job){.plan = {.total = total, .part_bytes = part_bytes}};
    yb_stripe_write_manifest(job);
    return yb_stripe_read_manifest(job->manifest, 0, &plan) && plan.total == total &&
           plan.part_bytes == part_bytes;
}

static void
test_client_stripe__the_longest_value_has_parts_as_any_other(void **state)
{
    const uint64_t longest = YB_CLIENT_VALUE_BYTES_MAX;
    const uint64_t most = YB_STRIPE_PART_MAX;
    struct yb_stripe_job job;
    uint64_t left = 100u * MIB;
    uint8_t byte;
    struct iovec iov = {&byte, left};
    const struct yb_client_item caller = {.iov = &iov, .iov_count = 1};

    (void)state;
    assert_false(plan_of(longest + 1, most, &job));
    assert_false(plan_of(longest, most / 2, &job)); /* Too many parts. */
    assert_true(plan_of(longest, most, &job));
    assert_int_equal(yb_stripe_part_count(&job.plan), YB_STRIPE_PARTS_MAX);
    assert_true(yb_stripe_make_parts(&job, longest - left, longest, &caller));
    assert_int_equal(job.count, 2);
    assert_int_equal(job.first, YB_STRIPE_PARTS_MAX - 2);
    for (uint32_t i = 0; i < job.count; i++) {
        const struct yb_client_item *part = &job.items[i];
        uint64_t length = i == 0 ? left - most : most;

        assert_int_equal(part->offset, i == 0 ? most - length : 0);
        assert_int_equal(part->iov_count, 1);
        assert_int_equal(part->iov[0].iov_len, length);
        assert_ptr_equal(part->iov[0].iov_base, &byte + (i == 0 ? 0 : left - most));
        assert_int_equal(yb_wire_get_u32((const uint8_t *)part->key + 20), job.first + i);
    }
    yb_stripe_free_parts(&job);
}

#define WITH_GROUND(test) \
    cmocka_unit_test_setup_teardown(test_client_stripe__##test, set_up, tear_down)

#define WITH_SMALL(test) \
    cmocka_unit_test_setup_teardown(test_client_stripe__##test, set_up_small, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GROUND(moves_a_long_value_whole_and_in_ranges),
        WITH_GROUND(removing_the_key_removes_the_parts),
        WITH_GROUND(a_version_is_whole_whatever_its_length),
        WITH_GROUND(a_lost_part_retires_the_manifest),
        WITH_GROUND(what_cannot_be_published_leaves_no_parts),
        WITH_SMALL(a_value_makes_no_room_for_itself),
        WITH_GROUND(is_not_there_before_every_part_is),
        WITH_GROUND(the_longest_value_is_told_that_it_does_not_fit),
        WITH_GROUND(nothing_is_cut_while_nobody_is_there),
        WITH_SMALL(of_two_at_once_each_is_whole_or_not_there),
        cmocka_unit_test(test_client_stripe__parts_are_of_sixteen_to_sixty_four_mib),
        cmocka_unit_test(test_client_stripe__the_longest_value_has_parts_as_any_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
