/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's public face, against a directory and nodes on real sockets in this process.
 */
#include "store_ground.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1u << 20)

static struct ground *ground;

static int
set_up(void **state)
{
    /* Nobody's death is waited for: on a busy machine nobody is to seem dead. */
    const struct ground_options options = {.nodes = 2, .lease_ms = 20000};

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
    const struct yb_client_call brief = {.struct_bytes = sizeof(brief), .brief = true};

    assert_int_equal(get_one(client, "basic", 1, 100), YB_NOT_FOUND);
    assert_int_equal(put_one(client, "basic", 1, 100, NULL), YB_OK);
    assert_int_equal(put_one(client, "basic", 1, 100, NULL), YB_EXISTS);
    assert_int_equal(get_one(client, "basic", 1, 100), YB_OK);
    assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.replicas, 1);
    assert_int_equal(yb_client_exist(client, &item, 1, &brief), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(yb_client_exist(client, &item, 1, &brief), YB_OK);
    assert_int_equal(item.status, YB_NOT_FOUND);
    assert_int_equal(get_one(client, "basic", 1, 100), YB_NOT_FOUND);
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_NOT_FOUND);
    free(block.bytes);
    yb_client_close(&client);
    assert_null(client);
    yb_client_close(&client);
}

static void
test_client__moves_many_blocks_of_many_pieces_in_one_batch(void **state)
{
    enum { COUNT = 300 };
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_item items[COUNT];
    struct block blocks[COUNT];
    struct iovec pieces[COUNT][3];
    uint64_t random = unit_seed("client");

    for (uint32_t i = 0; i < COUNT; i++) {
        size_t length = unit_random(&random) % (i % 10 == 0 ? 300000 : 5000);
        size_t first = length == 0 ? 0 : unit_random(&random) % length;

        blocks[i] = make_block("many", i, length, true);
        items[i] = item_of(&blocks[i]);
        pieces[i][0] = (struct iovec){blocks[i].bytes, first};
        pieces[i][1] = (struct iovec){NULL, 0};
        pieces[i][2] = (struct iovec){blocks[i].bytes + first, length - first};
        items[i].iov = pieces[i];
        items[i].iov_count = 3;
    }
    assert_int_equal(yb_client_put(client, items, COUNT, NULL), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(items[i].status, YB_OK);
        memset(blocks[i].bytes, 0, blocks[i].iov.iov_len);
    }
    assert_int_equal(yb_client_get(client, items, COUNT, NULL), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        struct block wanted = make_block("many", i, blocks[i].iov.iov_len, true);

        assert_int_equal(items[i].status, YB_OK);
        assert_int_equal(items[i].bytes, wanted.iov.iov_len);
        assert_memory_equal(blocks[i].bytes, wanted.bytes, wanted.iov.iov_len);
        free(wanted.bytes);
        free(blocks[i].bytes);
    }
    yb_client_close(&client);
}

static void
test_client__reads_a_range_and_says_what_does_not_fit(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block wanted = make_block("range", 1, 10000, true);
    struct block block = make_block("range", 1, 1000, false);
    struct yb_client_item item = item_of(&block);

    assert_int_equal(put_one(client, "range", 1, 10000, NULL), YB_OK);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_TOO_SMALL);
    assert_int_equal(item.size, 10000);
    item.ranged = true;
    item.offset = 777;
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.bytes, 1000);
    assert_int_equal(item.size, 10000);
    assert_memory_equal(block.bytes, wanted.bytes + 777, 1000);
    item.offset = 9500; /* Only the rest of it. */
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.bytes, 500);
    assert_memory_equal(block.bytes, wanted.bytes + 9500, 500);
    free(wanted.bytes);
    free(block.bytes);
    yb_client_close(&client);
}

static void
test_client__sees_the_newest_version_whoever_wrote_it(void **state)
{
    const struct yb_client_call replace = {.struct_bytes = sizeof(replace), .put.replace = true};
    struct yb_client *one = ground_client(ground, NULL);
    struct yb_client *two = ground_client(ground, NULL);
    struct block block = make_block("version", 1, 64, false);
    struct yb_client_item item = item_of(&block);

    for (uint8_t version = 1; version < 20; version++) {
        struct yb_client *writer = version % 2 == 0 ? one : two;
        struct yb_client *reader = version % 2 == 0 ? two : one;

        memset(block.bytes, version, 64);
        assert_int_equal(yb_client_put(writer, &item, 1, &replace), YB_OK);
        assert_int_equal(item.status, YB_OK);
        memset(block.bytes, 0, 64);
        assert_int_equal(yb_client_get(reader, &item, 1, NULL), YB_OK);
        assert_int_equal(item.status, YB_OK);
        assert_int_equal(block.bytes[0], version);
        assert_int_equal(block.bytes[63], version);
    }
    free(block.bytes);
    yb_client_close(&one);
    yb_client_close(&two);
}

/* ---- hints ----------------------------------------------------------------------------------- */

static void
test_client__asks_the_directory_once_for_a_block_that_it_reads_often(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_counters before, after;

    assert_int_equal(put_one(client, "hint", 1, 100, NULL), YB_OK);
    assert_int_equal(get_one(client, "hint", 1, 100), YB_OK);
    yb_client_counters(client, &before);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(get_one(client, "hint", 1, 100), YB_OK);
    }
    yb_client_counters(client, &after);
    assert_int_equal(after.lookups, before.lookups);
    assert_int_equal(after.hinted, before.hinted + 10);
    assert_int_equal(after.hits, before.hits + 10);
    assert_int_equal(after.stale, 0);
    yb_client_close(&client);
}

static void
test_client__hears_from_a_node_that_a_block_it_read_is_gone(void **state)
{
    struct yb_client *reader = ground_client(ground, NULL);
    struct yb_client *other = ground_client(ground, NULL);
    struct yb_client_counters counters;
    struct block block = make_block("gone", 1, 1, false);
    struct yb_client_item item = item_of(&block);
    uint32_t rounds = 0;

    assert_int_equal(put_one(other, "gone", 1, 100, NULL), YB_OK);
    assert_int_equal(put_one(other, "gone", 2, 100, NULL), YB_OK);
    assert_int_equal(get_one(reader, "gone", 1, 100), YB_OK); /* From now on it watches. */
    assert_int_equal(get_one(reader, "gone", 1, 100), YB_OK);
    assert_int_equal(yb_client_remove(other, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    do {
        assert_true(rounds++ < 20000);
        assert_int_equal(get_one(other, "gone", 2, 100), YB_OK); /* Time passes. */
        yb_client_counters(reader, &counters);
    } while (counters.invalidated == 0);
    assert_int_equal(counters.invalidated, 1);
    assert_int_equal(get_one(reader, "gone", 1, 100), YB_NOT_FOUND);
    yb_client_counters(reader, &counters);
    assert_int_equal(counters.stale, 0); /* The trip was saved. */
    free(block.bytes);
    yb_client_close(&reader);
    yb_client_close(&other);
}

/* ---- replicas -------------------------------------------------------------------------------- */

static void
test_client__reads_the_other_replica_when_a_node_is_gone(void **state)
{
    const struct yb_client_call both = {.struct_bytes = sizeof(both), .put.replicas = 2};
    struct yb_client *client = ground_client(ground, NULL);

    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(put_one(client, "twice", i, 5000, &both), YB_OK);
    }
    ground_kill(&ground->nodes[0]);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(get_one(client, "twice", i, 5000), YB_OK);
    }
    yb_client_close(&client);
}

/* ---- threads --------------------------------------------------------------------------------- */

struct worker_of_test {
    pthread_t thread;
    struct yb_client *client;
    uint32_t number;
    uint32_t rounds;
};

static void *
put_and_get(void *arg)
{
    struct worker_of_test *worker = arg;

    for (uint32_t i = 0; i < worker->rounds; i++) {
        uint32_t own = worker->number * 1000 + i;
        enum yb_status status = put_one(worker->client, "shared", i, 3000, NULL);

        assert_true(status == YB_OK || status == YB_EXISTS);
        assert_int_equal(get_one(worker->client, "shared", i, 3000), YB_OK);
        assert_int_equal(put_one(worker->client, "own", own, 1 + own % 9000, NULL), YB_OK);
        assert_int_equal(get_one(worker->client, "own", own, 1 + own % 9000), YB_OK);
    }
    return NULL;
}

static void
test_client__serves_many_threads_at_a_time(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct worker_of_test workers[8];

    for (uint32_t i = 0; i < 8; i++) {
        workers[i] = (struct worker_of_test){.client = client, .number = i, .rounds = 40};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, put_and_get, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
    yb_client_close(&client);
}

/* Callers that wait, by whose threads nobody else may be called back. */
struct waiter_of_test {
    pthread_t thread;
    struct yb_client *client;
    _Atomic(bool) *stop;
};

static _Thread_local bool waits;

static void *
wait_again_and_again(void *arg)
{
    struct waiter_of_test *waiter = arg;

    waits = true;
    while (!atomic_load(waiter->stop)) {
        assert_int_equal(get_one(waiter->client, "called", 1, 100), YB_OK);
    }
    return NULL;
}

struct called {
    _Atomic(uint32_t) times;
    _Atomic(uint32_t) by_waiters;
};

static void
on_called(void *owner, yb_client_handle handle)
{
    struct called *called = owner;

    (void)handle;
    atomic_fetch_add(&called->by_waiters, waits);
    atomic_fetch_add(&called->times, 1);
}

static void
test_client__calls_back_on_no_thread_that_waits_for_something_else(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("called", 1, 100, false);
    struct called called = {.times = 0};
    _Atomic(bool) stop = false;
    struct waiter_of_test waiters[2];

    assert_int_equal(put_one(client, "called", 1, 100, NULL), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        waiters[i] = (struct waiter_of_test){.client = client, .stop = &stop};
        assert_int_equal(
            pthread_create(&waiters[i].thread, NULL, wait_again_and_again, &waiters[i]), 0);
    }
    for (uint32_t i = 0; i < 300; i++) {
        struct yb_client_item item = item_of(&block);
        enum yb_client_op op = i % 3 == 0 ? YB_CLIENT_OP_EXIST : YB_CLIENT_OP_GET;
        yb_client_handle handle;

        assert_int_equal(
            yb_client_submit(client, op, &item, 1, NULL, on_called, &called, 0, &handle), YB_OK);
        if (i % 2 == 0) {
            yb_client_cancel(client, handle);
        }
        assert_int_equal(yb_client_wait(client, handle, UINT64_MAX), YB_OK);
        while (atomic_load(&called.times) <= i) {
            (void)sched_yield();
        }
        assert_int_equal(yb_client_finish(client, handle), YB_OK);
    }
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(pthread_join(waiters[i].thread, NULL), 0);
    }
    assert_int_equal(atomic_load(&called.times), 300);
    assert_int_equal(atomic_load(&called.by_waiters), 0);
    free(block.bytes);
    yb_client_close(&client);
}

/* Whether every call says INVALID; on the child's side, where assertions are of no use. */
static bool
all_refused(struct yb_client *client, struct yb_client_item *item)
{
    struct yb_client_node node;
    yb_client_handle handle;
    uint32_t count;

    return yb_client_put(client, item, 1, NULL) == YB_INVALID &&
           yb_client_get(client, item, 1, NULL) == YB_INVALID &&
           yb_client_exist(client, item, 1, NULL) == YB_INVALID &&
           yb_client_remove(client, item, 1, NULL) == YB_INVALID &&
           yb_client_remove_all(client, NULL, NULL) == YB_INVALID &&
           yb_client_pin(client, item, 1, NULL) == YB_INVALID &&
           yb_client_release(client, item, 1) == YB_INVALID &&
           yb_client_submit(client, YB_CLIENT_OP_GET, item, 1, NULL, NULL, NULL, 0, &handle) ==
               YB_INVALID &&
           yb_client_poll(client, 1) == YB_INVALID && yb_client_wait(client, 1, 0) == YB_INVALID &&
           yb_client_finish(client, 1) == YB_INVALID &&
           yb_client_nodes(client, &node, 1, &count) == YB_INVALID &&
           yb_client_drain(client, "node-0", true, false, NULL) == YB_INVALID;
}

static void
test_client__refuses_a_forked_child_and_goes_on_in_the_parent(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("fork", 1, 100, true);
    struct yb_client_item item = item_of(&block);
    int status = 0;
    pid_t child;

    assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        bool good = alarm(20) == 0 && all_refused(client, &item);

        yb_client_close(&client);
        _exit(good && client == NULL ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(get_one(client, "fork", 1, 100), YB_OK);
    free(block.bytes);
    yb_client_close(&client);
}

/* ---- a node that does not answer ------------------------------------------------------------- */

/* Put a block, and stop both nodes. */
static void
stop_all(struct yb_client *client)
{
    assert_int_equal(put_one(client, "stopped", 1, 100000, NULL), YB_OK);
    assert_int_equal(get_one(client, "stopped", 1, 100000), YB_OK);
    ground_stop(&ground->nodes[0]);
    ground_stop(&ground->nodes[1]);
}

static void
go_all(void)
{
    ground_go(&ground->nodes[0]);
    ground_go(&ground->nodes[1]);
}

static void
test_client__ends_a_get_at_its_deadline_and_lets_the_memory_alone(void **state)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = 300000000};
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("stopped", 1, 100000, false);
    struct yb_client_item item = item_of(&block);
    enum yb_status status;

    stop_all(client);
    assert_int_equal(yb_client_get(client, &item, 1, &call), YB_OK);
    assert_true(item.status == YB_TIMED_OUT || item.status == YB_PEER_LOST);
    memset(block.bytes, 0x5a, 100000); /* The caller's again. */
    go_all();
    do {
        status = get_one(client, "stopped", 1, 100000);
    } while (status != YB_OK && status != YB_NOT_FOUND); /* It was away for longer than a lease? */
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(block.bytes[i], 0x5a);
    }
    free(block.bytes);
    yb_client_close(&client);
}

struct stuck {
    struct yb_client *client;
    struct yb_client_item *item;
    enum yb_status status;
};

static void *
get_stuck(void *arg)
{
    struct stuck *stuck = arg;

    stuck->status = yb_client_get(stuck->client, stuck->item, 1, NULL);
    return NULL;
}

static void
test_client__close_ends_what_other_threads_wait_for(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("stopped", 1, 100000, false);
    struct yb_client_item item = item_of(&block);
    struct stuck stuck = {.item = &item};
    struct yb_client_counters before, now;
    pthread_t thread;

    stop_all(client);
    stuck.client = client;
    yb_client_counters(client, &before);
    assert_int_equal(pthread_create(&thread, NULL, get_stuck, &stuck), 0);
    do {
        yb_client_counters(client, &now);
    } while (now.calls == before.calls);
    yb_client_close(&client);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(stuck.status, YB_OK);
    assert_int_equal(item.status, YB_CANCELLED);
    memset(block.bytes, 0x5a, 100000);
    go_all();
    for (uint32_t i = 0; i < 100000; i++) {
        assert_int_equal(block.bytes[i], 0x5a);
    }
    free(block.bytes);
}

/* ---- handles --------------------------------------------------------------------------------- */

struct heard {
    struct yb_client *client;
    struct yb_client_item *item;
    _Atomic(uint32_t) times;
    _Atomic(uint64_t) handle;
    enum yb_status inside; /* Of a blocking call in there. */
};

static void
on_end(void *owner, yb_client_handle handle)
{
    struct heard *heard = owner;

    if (heard->client != NULL) {
        heard->inside = yb_client_exist(heard->client, heard->item, 1, NULL);
    }
    atomic_store(&heard->handle, handle);
    atomic_fetch_add(&heard->times, 1);
}

static void
test_client__ends_a_batch_by_handle_once_and_tells_in_every_way(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("handle", 1, 5000, true);
    struct block probe = make_block("handle", 1, 1, false);
    struct yb_client_item item = item_of(&block);
    struct yb_client_item other = item_of(&probe);
    struct heard heard = {.client = client, .item = &other};
    int fd = eventfd(0, EFD_CLOEXEC);
    yb_client_handle handle;
    uint64_t times = 0;

    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_PUT, &item, 1, NULL, on_end, &heard, fd, &handle),
        YB_OK);
    assert_int_equal(read(fd, &times, sizeof(times)), sizeof(times)); /* Waits. */
    assert_int_equal(times, 1);
    assert_int_equal(yb_client_wait(client, handle, UINT64_MAX), YB_OK);
    assert_int_equal(yb_client_poll(client, handle), YB_OK);
    assert_int_equal(item.status, YB_OK);
    while (atomic_load(&heard.times) == 0) {
        assert_int_equal(yb_client_poll(client, handle), YB_OK);
    }
    assert_int_equal(atomic_load(&heard.handle), handle);
    assert_int_equal(heard.inside, YB_INVALID); /* It would have waited for itself. */
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_CLOSED);
    assert_int_equal(yb_client_poll(client, handle), YB_CLOSED);
    assert_int_equal(yb_client_wait(client, handle, 0), YB_CLOSED);
    yb_client_cancel(client, handle);
    assert_int_equal(atomic_load(&heard.times), 1);
    assert_int_equal(get_one(client, "handle", 1, 5000), YB_OK);
    assert_int_equal(close(fd), 0);
    free(block.bytes);
    free(probe.bytes);
    yb_client_close(&client);
}

static void
test_client__a_handle_of_an_earlier_batch_names_no_later_one(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("again", 1, 1, true);
    struct yb_client_item item = item_of(&block);
    yb_client_handle first, second;

    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_EXIST, &item, 1, NULL, NULL, NULL, 0, &first), YB_OK);
    assert_int_equal(yb_client_wait(client, first, UINT64_MAX), YB_OK);
    assert_int_equal(yb_client_finish(client, first), YB_OK);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_EXIST, &item, 1, NULL, NULL, NULL, 0, &second),
        YB_OK);
    assert_true(first != second);
    assert_int_equal(yb_client_poll(client, first), YB_CLOSED);
    assert_int_equal(yb_client_finish(client, first), YB_CLOSED);
    assert_int_equal(yb_client_wait(client, second, UINT64_MAX), YB_OK);
    assert_int_equal(yb_client_finish(client, second), YB_OK);
    free(block.bytes);
    yb_client_close(&client);
}

static void
test_client__cancel_ends_a_batch_that_waits_for_a_stopped_node(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("stopped", 1, 100000, false);
    struct yb_client_item item = item_of(&block);
    yb_client_handle handle;

    stop_all(client);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_GET, &item, 1, NULL, NULL, NULL, 0, &handle), YB_OK);
    assert_int_equal(yb_client_wait(client, handle, 20000000), YB_TIMED_OUT);
    assert_int_equal(yb_client_poll(client, handle), YB_IN_PROGRESS);
    assert_int_equal(yb_client_finish(client, handle), YB_BUSY);
    yb_client_cancel(client, handle);
    yb_client_cancel(client, handle);
    assert_int_equal(yb_client_wait(client, handle, UINT64_MAX), YB_OK);
    assert_int_equal(item.status, YB_CANCELLED);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    go_all();
    free(block.bytes);
    yb_client_close(&client);
}

static void
test_client__says_again_when_ended_batches_are_not_finished(void **state)
{
    enum { MANY = 4096 };
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("full", 1, 1, true);
    struct yb_client_item *items = calloc(MANY, sizeof(*items));
    yb_client_handle *handles = calloc(MANY, sizeof(*handles));
    yb_client_handle one;
    uint32_t count = 0;

    while (count < MANY) {
        enum yb_status status;

        items[count] = item_of(&block);
        status = yb_client_submit(client, YB_CLIENT_OP_EXIST, &items[count], 1, NULL, NULL, NULL, 0,
                                  &handles[count]);
        assert_int_equal(status, YB_OK);
        assert_int_equal(yb_client_wait(client, handles[count], UINT64_MAX), YB_OK);
        count++;
    }
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_EXIST, items, 1, NULL, NULL, NULL, 0, &one),
        YB_AGAIN);
    assert_int_equal(yb_client_exist(client, items, 1, NULL), YB_AGAIN);
    assert_int_equal(yb_client_finish(client, handles[7]), YB_OK);
    assert_int_equal(yb_client_exist(client, items, 1, NULL), YB_OK);
    free(items);
    free(handles);
    free(block.bytes);
    yb_client_close(&client);
}

static void
test_client__refuses_what_is_outside_the_contract(void **state)
{
    const struct yb_client_call old = {.struct_bytes = 4};
    const struct yb_client_call class = {.struct_bytes = sizeof(class), .work_class = 3};
    const struct yb_client_call nine = {.struct_bytes = sizeof(nine), .put.replicas = 9};
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("bad", 1, 10, true);
    struct yb_client_item item = item_of(&block);
    struct yb_client_item long_key = item;
    yb_client_handle handle;

    long_key.key_bytes = YB_CLIENT_KEY_BYTES_MAX + 1;
    assert_int_equal(yb_client_put(client, &long_key, 1, NULL), YB_INVALID);
    long_key.key_bytes = 0;
    assert_int_equal(yb_client_get(client, &long_key, 1, NULL), YB_INVALID);
    assert_int_equal(yb_client_put(client, &item, 1, &old), YB_INVALID);
    assert_int_equal(yb_client_put(client, &item, 1, &class), YB_INVALID);
    assert_int_equal(yb_client_put(client, &item, 1, &nine), YB_INVALID);
    assert_int_equal(yb_client_put(client, NULL, 1, NULL), YB_INVALID);
    assert_int_equal(yb_client_put(NULL, &item, 1, NULL), YB_INVALID);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_GET, &item, 0, NULL, NULL, NULL, 0, &handle),
        YB_INVALID);
    assert_int_equal(yb_client_put(client, NULL, 0, NULL), YB_OK);
    assert_int_equal(get_one(client, "bad", 1, 10), YB_NOT_FOUND);
    free(block.bytes);
    yb_client_close(&client);
}

/* ---- looking around -------------------------------------------------------------------------- */

struct listing {
    uint32_t count;
    uint32_t stop_after; /* 0: never. */
    uint64_t bytes;
    char prefix[16];
};

static bool
on_entry(void *context, const struct yb_client_entry *entry)
{
    struct listing *listing = context;

    assert_true(entry->key_bytes >= strlen(listing->prefix));
    assert_memory_equal(entry->key, listing->prefix, strlen(listing->prefix));
    assert_memory_equal(entry->node, "node-", 5);
    assert_true(entry->grant != 0);
    listing->count++;
    listing->bytes += entry->size;
    return listing->count != listing->stop_after;
}

static void
test_client__lists_and_removes_the_keys_that_match(void **state)
{
    enum { COUNT = 1200 }; /* More than one piece. */
    struct yb_client *client = ground_client(ground, NULL);
    struct listing all = {.prefix = ""}, some = {.prefix = "list-1"}, few = {.stop_after = 5};
    uint64_t removed = 0;

    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(put_one(client, "list", i, 10, NULL), YB_OK);
    }
    assert_int_equal(put_one(client, "else", 1, 10, NULL), YB_OK);
    assert_int_equal(yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, NULL, on_entry, &all),
                     YB_OK);
    assert_int_equal(all.count, COUNT + 1);
    assert_int_equal(all.bytes, 10 * (COUNT + 1));
    assert_int_equal(
        yb_client_list(client, YB_CLIENT_MATCH_PREFIX, "list-1", NULL, on_entry, &some), YB_OK);
    assert_int_equal(some.count, 1 + 10 + 100 + 200); /* 1, 1x, 1xx, 1000 .. 1199 */
    assert_int_equal(yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, NULL, on_entry, &few),
                     YB_OK);
    assert_int_equal(few.count, 5);
    assert_int_equal(yb_client_list(client, YB_CLIENT_MATCH_REGEX, "(", NULL, on_entry, &few),
                     YB_INVALID);
    assert_int_equal(
        yb_client_list(client, YB_CLIENT_MATCH_REGEX, "^(.|.|.|.)+[xyz]$", NULL, on_entry, &few),
        YB_TOO_LARGE);
    assert_int_equal(yb_client_remove_matching(client, YB_CLIENT_MATCH_REGEX,
                                               "(((-{255}){255}){255}){255}", NULL, &removed),
                     YB_TOO_LARGE);
    assert_int_equal(removed, 0);
    assert_int_equal(
        yb_client_remove_matching(client, YB_CLIENT_MATCH_REGEX, "^list-[0-9]{3}$", NULL, &removed),
        YB_OK);
    assert_int_equal(removed, 900);
    assert_int_equal(get_one(client, "list", 500, 10), YB_NOT_FOUND);
    assert_int_equal(get_one(client, "list", 1100, 10), YB_OK);
    assert_int_equal(get_one(client, "list", 99, 10), YB_OK);
    assert_int_equal(yb_client_remove_all(client, NULL, &removed), YB_OK);
    assert_int_equal(removed, COUNT + 1 - 900);
    assert_int_equal(get_one(client, "else", 1, 10), YB_NOT_FOUND);
    yb_client_close(&client);
}

static void
test_client__remove_all_by_force_takes_what_is_held(void **state)
{
    const struct yb_client_call hold = {.struct_bytes = sizeof(hold), .hold_ms = 60000};
    const struct yb_client_call force = {.struct_bytes = sizeof(force), .force = true};
    struct yb_client *client = ground_client(ground, NULL);
    struct block block = make_block("held", 1, 1, false);
    struct yb_client_item item = item_of(&block);
    uint64_t removed = 0;

    assert_int_equal(put_one(client, "held", 1, 100, NULL), YB_OK);
    assert_int_equal(yb_client_exist(client, &item, 1, &hold), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(yb_client_remove(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_LEASED);
    assert_int_equal(get_one(client, "held", 1, 100), YB_OK);
    assert_int_equal(yb_client_remove_all(client, &force, &removed), YB_OK);
    assert_int_equal(removed, 1);
    assert_int_equal(get_one(client, "held", 1, 100), YB_NOT_FOUND);
    free(block.bytes);
    yb_client_close(&client);
}

static void
await_state(struct yb_client *client, uint32_t index, const char *wanted)
{
    struct yb_client_node nodes[GROUND_NODES_MAX];
    uint32_t count = 0;

    do {
        (void)get_one(client, "time passes", 1, 1);
        assert_int_equal(yb_client_nodes(client, nodes, GROUND_NODES_MAX, &count), YB_OK);
        assert_int_equal(count, 2);
    } while (strcmp(nodes[index].state, wanted) != 0);
    assert_int_equal(nodes[index].capacity, 64u << 20);
    assert_true(nodes[index].local);
    assert_true(nodes[index].slot != 0);
}

static void
test_client__drains_a_node_and_takes_it_back(void **state)
{
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client_node nodes[GROUND_NODES_MAX];
    uint32_t count = 0;

    assert_int_equal(yb_client_nodes(client, nodes, GROUND_NODES_MAX, &count), YB_OK);
    assert_int_equal(count, 2);
    await_state(client, 1, "serving");
    assert_int_equal(yb_client_drain(client, "nobody", true, false, NULL), YB_NOT_FOUND);
    assert_int_equal(yb_client_drain(client, "", true, false, NULL), YB_INVALID);
    assert_int_equal(yb_client_drain(client, nodes[1].name, true, false, NULL), YB_OK);
    await_state(client, 1, "draining");
    assert_int_equal(yb_client_drain(client, nodes[1].name, false, false, NULL), YB_OK);
    await_state(client, 1, "serving");
    yb_client_close(&client);
}

/* ---- joining --------------------------------------------------------------------------------- */

static void
test_client__open_says_why_it_cannot_join(void **state)
{
    struct yb_client_options options = {.struct_bytes = sizeof(options)};
    struct yb_client *client = NULL;
    char message[512], node[YB_ADDRESS_TEXT_BYTES];

    options.directory = "127.0.0.1:1"; /* Nobody is there. */
    assert_int_equal(yb_client_open(&options, 300000000, &client, message, sizeof(message)),
                     YB_UNREACHABLE);
    assert_non_null(strstr(message, "127.0.0.1:1"));
    options.directory = "no port:here:at:all";
    assert_int_equal(yb_client_open(&options, 300000000, &client, message, sizeof(message)),
                     YB_INVALID);
    assert_non_null(strstr(message, "no port"));
    yb_address_format(&ground->nodes[0].address, node);
    options.directory = node;
    assert_int_equal(yb_client_open(&options, 30000000000u, &client, message, sizeof(message)),
                     YB_INVALID);
    assert_non_null(strstr(message, "no directory"));
    options.directory = ground->address;
    options.tenant = "not/a/tenant";
    assert_int_equal(yb_client_open(&options, 0, &client, message, sizeof(message)), YB_INVALID);
    options.tenant = NULL;
    options.secret_file = "/nowhere/at/all";
    assert_int_equal(yb_client_open(&options, 0, &client, message, sizeof(message)), YB_DENIED);
    options.secret_file = NULL;
    options.struct_bytes = 3;
    assert_int_equal(yb_client_open(&options, 0, &client, NULL, 0), YB_INVALID);
    assert_null(client);
}

/* Write a file of secrets that only its owner may read. */
static void
write_secret(char path[32], const char *line)
{
    int fd;

    memcpy(path, "/tmp/yuebing-test-XXXXXX", 25);
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(fchmod(fd, 0600), 0);
    assert_int_equal(write(fd, line, strlen(line)), (ssize_t)strlen(line));
    assert_int_equal(close(fd), 0);
}

static void
test_client__tenants_see_their_own_blocks_behind_one_secret(void **state)
{
    char secret[32], other[32], key[32], line[YB_AUTH_LINE_MAX + 1], message[512];
    struct ground_options options = {.nodes = 1, .secret_file = secret, .tls = true};
    struct yb_client_options mine = {.tenant = "mine"}, yours = {.tenant = "yours"};
    struct yb_client_options wrong = {.struct_bytes = sizeof(wrong), .tls = true};
    struct yb_client *one, *two, *three = NULL;
    struct ground *locked;

    write_secret(secret, "secret abcdefghijklmnopqrstuvwxyz0123456789\n");
    write_secret(other, "secret 0123456789abcdefghijklmnopqrstuvwxyz\n");
    locked = ground_create(&options);
    assert_int_equal(
        yb_auth_derive_line(locked->auth, YB_WIRE_ROLE_CLIENT, "yours", line, sizeof(line)), YB_OK);
    (void)snprintf(line + strlen(line), sizeof(line) - strlen(line), "\n");
    write_secret(key, line);
    yours.secret_file = key;
    one = ground_client(locked, &mine);
    two = ground_client(locked, &yours);
    assert_int_equal(put_one(one, "tenant", 1, 100, NULL), YB_OK);
    assert_int_equal(get_one(one, "tenant", 1, 100), YB_OK);
    assert_int_equal(get_one(two, "tenant", 1, 100), YB_NOT_FOUND);
    assert_int_equal(yb_client_drain(two, "node-0", true, false, NULL), YB_DENIED);
    assert_int_equal(yb_client_drain(one, "node-0", true, false, NULL), YB_OK);
    wrong.directory = locked->address;
    wrong.secret_file = other;
    assert_int_equal(yb_client_open(&wrong, 30000000000u, &three, message, sizeof(message)),
                     YB_DENIED);
    yb_client_close(&one);
    yb_client_close(&two);
    ground_destroy(&locked);
    assert_int_equal(unlink(secret) + unlink(other) + unlink(key), 0);
}

#define WITH_GROUND(test) cmocka_unit_test_setup_teardown(test_client__##test, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_GROUND(gets_what_it_put_until_it_is_removed),
        WITH_GROUND(moves_many_blocks_of_many_pieces_in_one_batch),
        WITH_GROUND(reads_a_range_and_says_what_does_not_fit),
        WITH_GROUND(sees_the_newest_version_whoever_wrote_it),
        WITH_GROUND(asks_the_directory_once_for_a_block_that_it_reads_often),
        WITH_GROUND(hears_from_a_node_that_a_block_it_read_is_gone),
        WITH_GROUND(reads_the_other_replica_when_a_node_is_gone),
        WITH_GROUND(serves_many_threads_at_a_time),
        WITH_GROUND(calls_back_on_no_thread_that_waits_for_something_else),
        WITH_GROUND(refuses_a_forked_child_and_goes_on_in_the_parent),
        WITH_GROUND(ends_a_get_at_its_deadline_and_lets_the_memory_alone),
        WITH_GROUND(close_ends_what_other_threads_wait_for),
        WITH_GROUND(ends_a_batch_by_handle_once_and_tells_in_every_way),
        WITH_GROUND(a_handle_of_an_earlier_batch_names_no_later_one),
        WITH_GROUND(cancel_ends_a_batch_that_waits_for_a_stopped_node),
        WITH_GROUND(says_again_when_ended_batches_are_not_finished),
        WITH_GROUND(refuses_what_is_outside_the_contract),
        WITH_GROUND(lists_and_removes_the_keys_that_match),
        WITH_GROUND(remove_all_by_force_takes_what_is_held),
        WITH_GROUND(drains_a_node_and_takes_it_back),
        WITH_GROUND(open_says_why_it_cannot_join),
        cmocka_unit_test(test_client__tenants_see_their_own_blocks_behind_one_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
