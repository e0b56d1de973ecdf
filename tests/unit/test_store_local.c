/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: clients and nodes of one host move blocks through the transfer engine, with the outcomes
 * and the bytes that frames have, whatever goes wrong. (Device memory: test_store_device.c.)
 * Method: a directory, nodes and clients on real sockets, in this process and in others, which are
 * this program with another first argument. The client's counters tell which way bytes went.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/client_internal.h"
#include "client/core_internal.h"
#include "store_ground.h"
#include "transfer_board.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static const char *program;

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A value in pieces of one buffer, in an order of their own. */
struct value {
    struct iovec *iov;
    uint32_t count;
    uint8_t *bytes;
    size_t length;
};

static struct value
value_make(size_t length, uint32_t pieces)
{
    struct value value = {
        .iov = calloc(pieces, sizeof(*value.iov)),
        .count = pieces,
        .bytes = calloc(1, length + pieces),
        .length = length,
    };
    size_t at = 0;

    assert_non_null(value.iov);
    assert_non_null(value.bytes);
    for (uint32_t i = 0; i < pieces; i++) {
        size_t end = length * (i + 1) / pieces;

        value.iov[i].iov_base = value.bytes + at + i; /* One byte between two pieces. */
        value.iov[i].iov_len = end - at;
        at = end;
    }
    return value;
}

static void
value_free(struct value *value)
{
    free(value->iov);
    free(value->bytes);
}

/* Each piece has the bytes of its place in the value. */
static void
value_fill(const struct value *value, uint64_t seed)
{
    size_t at = 0;

    for (uint32_t i = 0; i < value->count; i++) {
        uint8_t *to = value->iov[i].iov_base;

        for (size_t k = 0; k < value->iov[i].iov_len; k++) {
            to[k] = pattern(seed, at++);
        }
    }
}

/* Look at the first `length` bytes, which are those from `offset` on; nothing else was touched. */
static void
value_expect(const struct value *value, uint64_t seed, size_t offset, size_t length)
{
    size_t at = 0;

    for (uint32_t i = 0; i < value->count; i++) {
        const uint8_t *bytes = value->iov[i].iov_base;
        size_t k;

        for (k = 0; k < value->iov[i].iov_len && at < length; k++, at++) {
            if (bytes[k] != pattern(seed, offset + at)) {
                print_message("# piece %u, byte %zu, of value at %zu\n", i, k, offset + at);
                fail();
            }
        }
        assert_true(all_are(bytes + k, value->iov[i].iov_len - k, 0));
        if (i + 1 < value->count) {
            assert_int_equal(bytes[value->iov[i].iov_len], 0); /* Between the pieces. */
        }
    }
    assert_int_equal(at, length);
}

static struct yb_client_item
item_of(const char *key, const struct value *value)
{
    return (struct yb_client_item){
        .key = key,
        .key_bytes = (uint32_t)strlen(key),
        .iov = value != NULL ? value->iov : NULL,
        .iov_count = value != NULL ? value->count : 0,
    };
}

static uint64_t
local_bytes(struct yb_client *client)
{
    struct yb_client_counters counters;

    yb_client_counters(client, &counters);
    return counters.local_bytes;
}

static enum yb_status
put_one(struct yb_client *client, const char *key, const struct value *value)
{
    struct yb_client_item item = item_of(key, value);

    assert_int_equal(yb_client_put(client, &item, 1, NULL), YB_OK);
    return item.status;
}

static enum yb_status
get_one(struct yb_client *client, const char *key, const struct value *value)
{
    struct yb_client_item item = item_of(key, value);

    memset(value->bytes, 0, value->length + value->count);
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    return item.status;
}

static enum yb_status
remove_one(struct yb_client *client, const char *key)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .force = true};
    struct yb_client_item item = item_of(key, NULL);

    assert_int_equal(yb_client_remove(client, &item, 1, &call), YB_OK);
    return item.status;
}

/* Go on until bytes go by shared memory: engines prove themselves beside the calls. */
static void
await_near(struct yb_client *client)
{
    struct value value = value_make(MIB, 1);
    uint64_t before = local_bytes(client);

    value_fill(&value, 1);
    for (uint32_t i = 0; local_bytes(client) - before < 2 * MIB; i++) {
        assert_int_equal(put_one(client, "near", &value), YB_OK);
        before = local_bytes(client) - before < MIB ? local_bytes(client) : before;
        assert_int_equal(get_one(client, "near", &value), YB_OK);
        value_expect(&value, 1, 0, MIB);
        assert_int_equal(remove_one(client, "near"), YB_OK);
        assert_true(i < 100000);
    }
    value_free(&value);
}

static struct ground *
near_ground(uint32_t paths, uint64_t pool_bytes)
{
    const struct ground_options options = {.engine_paths = paths, .pool_bytes = pool_bytes};

    return ground_create(&options);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static void
move_pieces(struct yb_client *client, size_t length, uint32_t pieces, bool registered)
{
    struct value from = value_make(length, pieces);
    struct value to = value_make(length, pieces);
    uint64_t before = local_bytes(client);
    bool pulled = registered || length / pieces >= 64 * KIB;
    struct yb_client_item item = item_of("block", &to);
    char key[] = "block";

    value_fill(&from, length + pieces);
    if (registered) {
        assert_int_equal(yb_client_register(client, from.bytes, length + pieces), YB_OK);
    }
    assert_int_equal(put_one(client, key, &from), YB_OK);
    assert_int_equal(local_bytes(client) - before, pulled ? length : 0);
    before = local_bytes(client);
    assert_int_equal(get_one(client, key, &to), YB_OK);
    value_expect(&to, length + pieces, 0, length);
    assert_int_equal(local_bytes(client) - before, length);

    memset(to.bytes, 0, length + pieces); /* A range that ends before the room does. */
    item.ranged = true;
    item.offset = length / 3;
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_OK);
    assert_int_equal(item.bytes, length - length / 3);
    assert_int_equal(item.size, length);
    value_expect(&to, length + pieces, length / 3, length - length / 3);

    item.offset = length + 1;
    assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_INVALID);
    item = item_of(key, &to);
    item.iov_count--;
    if (pieces > 1) {
        memset(to.bytes, 0, length + pieces);
        assert_int_equal(yb_client_get(client, &item, 1, NULL), YB_OK);
        assert_int_equal(item.status, YB_TOO_SMALL);
        assert_int_equal(item.size, length);
        assert_true(all_are(to.bytes, length + pieces, 0));
    }
    assert_int_equal(remove_one(client, key), YB_OK);
    if (registered) {
        assert_int_equal(yb_client_unregister(client, from.bytes, PATIENCE_NS), YB_OK);
    }
    assert_int_equal(yb_transfer_cover(client->engine, from.bytes, length), YB_TRANSFER_COVER_NONE);
    value_free(&from);
    value_free(&to);
}

static void
test_store_local__values_of_every_shape_come_back_by_shared_memory(void **state)
{
    static const uint32_t pieces[] = {1, 64, 512};
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);

    (void)state;
    await_near(client);
    for (uint32_t i = 0; i < 3; i++) {
        move_pieces(client, 3 * MIB + 7, pieces[i], true);
        move_pieces(client, 8 * MIB, pieces[i], false);
        move_pieces(client, 64 * KIB + 512, pieces[i], true);
    }
    yb_client_close(&client);
    ground_destroy(&ground);
}

#define BATCH 100u

static void
test_store_local__a_batch_of_large_small_and_missing_ones_has_an_outcome_for_each(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value values[BATCH];
    struct yb_client_item items[BATCH];
    char keys[BATCH][16];

    (void)state;
    await_near(client);
    for (uint32_t i = 0; i < BATCH; i++) {
        values[i] = value_make(i % 3 == 0 ? 100 + i : 70000 + i, 1 + i % 2);
        (void)snprintf(keys[i], sizeof(keys[i]), "key-%u", i);
        value_fill(&values[i], i);
        items[i] = item_of(keys[i], &values[i]);
    }
    assert_int_equal(yb_client_put(client, items, BATCH / 2, NULL), YB_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(i < BATCH / 2 ? items[i].status : YB_OK, YB_OK);
        items[i] = item_of(keys[i], &values[i]);
        memset(values[i].bytes, 0, values[i].length + values[i].count);
    }
    assert_int_equal(yb_client_get(client, items, BATCH, NULL), YB_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(items[i].status, i < BATCH / 2 ? YB_OK : YB_NOT_FOUND);
        value_expect(&values[i], i, 0, i < BATCH / 2 ? values[i].length : 0);
        value_fill(&values[i], 1000 + i);
        items[i] = item_of(keys[i], &values[i]);
    }
    assert_int_equal(yb_client_put(client, items, BATCH, NULL), YB_OK);
    for (uint32_t i = 0; i < BATCH; i++) {
        assert_int_equal(items[i].status, i < BATCH / 2 ? YB_EXISTS : YB_OK);
        value_free(&values[i]);
    }
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* ---- tickets --------------------------------------------------------------------------------- */

/* Wait until a message has a ticket, and take it away. */
static void
take_ticket_away(struct yb_client *client)
{
    _Atomic uint64_t *tickets = client->core->near->tickets;
    uint32_t found = UINT32_MAX;

    while (found == UINT32_MAX) {
        for (uint32_t i = 0; i < 128 && found == UINT32_MAX; i++) {
            found = atomic_load(&tickets[i]) != 0 ? i : found;
        }
    }
    atomic_store(&tickets[found], 0);
}

static bool
any_ticket(struct yb_client *client)
{
    for (uint32_t i = 0; i < 128; i++) {
        if (atomic_load(&client->core->near->tickets[i]) != 0) {
            return true;
        }
    }
    return false;
}

/* C6: what the node has fetched counts only if the sender still held it afterwards. */
static void
test_store_local__values_that_their_sender_let_go_are_not_committed(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct yb_client_item item = item_of("late", &value);
    struct yb_client_counters before, after;
    yb_client_handle handle;

    (void)state;
    await_near(client);
    value_fill(&value, 3);
    yb_client_counters(client, &before);
    ground_stop(&ground->nodes[0]);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_PUT, &item, 1, NULL, NULL, NULL, 0, &handle), YB_OK);
    take_ticket_away(client);
    ground_go(&ground->nodes[0]);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(item.status, YB_OK); /* By frames, after the node had refused. */
    yb_client_counters(client, &after);
    assert_int_equal(after.retries - before.retries, 1);
    assert_int_equal(after.local_bytes, before.local_bytes);
    assert_int_equal(get_one(client, "late", &value), YB_OK);
    value_expect(&value, 3, 0, MIB);
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* What could not be fetched whole is not committed either. */
static void
test_store_local__values_that_cannot_be_fetched_are_sent(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(2 * MIB, 2);
    struct yb_client_item item = item_of("torn", &value);
    struct yb_client_counters before, after;
    yb_client_handle handle;

    (void)state;
    await_near(client);
    value_fill(&value, 4);
    yb_client_counters(client, &before);
    ground_stop(&ground->nodes[0]);
    assert_int_equal(
        yb_client_submit(client, YB_CLIENT_OP_PUT, &item, 1, NULL, NULL, NULL, 0, &handle), YB_OK);
    while (!any_ticket(client)) {
    }
    assert_int_equal(yb_transfer_unregister(client->engine, value.iov[1].iov_base, PATIENCE_NS),
                     YB_OK);
    ground_go(&ground->nodes[0]);
    assert_int_equal(yb_client_wait(client, handle, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_client_finish(client, handle), YB_OK);
    assert_int_equal(item.status, YB_OK);
    yb_client_counters(client, &after);
    assert_int_equal(after.retries - before.retries, 1);
    assert_int_equal(after.local_bytes, before.local_bytes);
    assert_int_equal(get_one(client, "torn", &value), YB_OK);
    value_expect(&value, 4, 0, 2 * MIB);
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* Nobody has a node read the memory of somebody else. */
static void
test_store_local__a_node_fetches_from_the_process_that_asks_and_from_no_other(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client *victim = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct yb_client_counters before, after;

    (void)state;
    await_near(client);
    value_fill(&value, 6);
    assert_int_equal(yb_client_register(victim, value.bytes, MIB + 1), YB_OK);
    assert_int_equal(
        yb_client_register(victim, (void *)(uintptr_t)client->core->near->tickets, 1024), YB_OK);
    client->core->options.engine_address = victim->engine_address;
    yb_client_counters(client, &before);
    assert_int_equal(put_one(client, "stolen", &value), YB_OK); /* By frames: it is his to send. */
    yb_client_counters(client, &after);
    assert_int_equal(after.retries - before.retries, 1);
    assert_int_equal(after.local_bytes, before.local_bytes);
    value_free(&value);
    yb_client_close(&client);
    yb_client_close(&victim);
    ground_destroy(&ground);
}

/* And the sender lets go before whoever put them hears of the end. */
static void
test_store_local__a_put_that_is_over_leaves_no_ticket_and_no_memory_registered(void **state)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = 50 * MS_NS};
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct yb_client_item item = item_of("late", &value);
    enum yb_status status;

    (void)state;
    await_near(client);
    value_fill(&value, 3);
    ground_stop(&ground->nodes[0]);
    assert_int_equal(yb_client_put(client, &item, 1, &call), YB_OK);
    assert_int_not_equal(item.status, YB_OK);
    assert_false(any_ticket(client));
    assert_int_equal(yb_transfer_cover(client->engine, value.bytes, MIB), YB_TRANSFER_COVER_NONE);
    value_fill(&value, 4); /* It is ours again. */
    ground_go(&ground->nodes[0]);
    status = get_one(client, "late", &value);
    if (status == YB_OK) {
        value_expect(&value, 3, 0, MIB);
    } else {
        assert_int_equal(status, YB_NOT_FOUND);
    }
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* ---- other ways ------------------------------------------------------------------------------ */

static void
expect_frames(struct ground *ground, bool no_shared_memory)
{
    const struct yb_client_options options = {.no_shared_memory = no_shared_memory};
    struct yb_client *client = ground_client(ground, &options);
    struct value value = value_make(MIB, 3);
    struct yb_client_item item = item_of("block", &value);

    value_fill(&value, 5);
    for (uint32_t i = 0; i < 20; i++) { /* However often: nothing proves itself meanwhile. */
        assert_int_equal(put_one(client, "block", &value), YB_OK);
        assert_int_equal(get_one(client, "block", &value), YB_OK);
        value_expect(&value, 5, 0, MIB);
        if (i < 19) {
            assert_int_equal(remove_one(client, "block"), YB_OK);
        }
    }
    assert_int_equal(yb_client_pin(client, &item, 1, NULL), YB_OK);
    assert_int_equal(item.status, YB_UNSUPPORTED);
    assert_int_equal(local_bytes(client), 0);
    value_free(&value);
    yb_client_close(&client);
}

static void
test_store_local__without_shared_memory_at_either_end_bytes_go_in_frames(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_TCP, 0);

    (void)state;
    expect_frames(ground, false);
    ground_destroy(&ground);
    ground = near_ground(0, 0); /* A node without an engine. */
    expect_frames(ground, false);
    ground_destroy(&ground);
    ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    expect_frames(ground, true);
    ground_destroy(&ground);
}

static void
test_store_local__sockets_that_are_cut_cost_a_way_and_no_byte(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(2 * MIB, 2);

    (void)state;
    await_near(client);
    for (uint32_t i = 0; i < 50; i++) {
        value_fill(&value, i);
        if (i % 7 == 3) {
            duo_cut_shm();
        }
        assert_int_equal(put_one(client, "block", &value), YB_OK);
        assert_int_equal(get_one(client, "block", &value), YB_OK);
        value_expect(&value, i, 0, 2 * MIB);
        assert_int_equal(remove_one(client, "block"), YB_OK);
    }
    await_near(client); /* It comes back. */
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

/* ---- eviction -------------------------------------------------------------------------------- */

#define CHURN_KEYS 64u

struct churn {
    struct ground *ground;
    _Atomic bool over;
};

/* Put more than the pool holds, again and again. */
static void *
churn_main(void *context)
{
    struct churn *churn = context;
    struct yb_client *client = ground_client(churn->ground, NULL);
    struct value value = value_make(256 * KIB, 1);

    for (uint32_t i = 0; !atomic_load(&churn->over); i++) {
        char key[16];

        (void)snprintf(key, sizeof(key), "key-%u", i % CHURN_KEYS);
        value_fill(&value, i % CHURN_KEYS);
        (void)put_one(client, key, &value);
    }
    value_free(&value);
    yb_client_close(&client);
    return NULL;
}

static void
test_store_local__what_is_read_while_blocks_are_evicted_is_whole(void **state)
{
    struct churn churn = {.ground = near_ground(YB_TRANSFER_PATH_ALL, 8 * MIB)};
    struct yb_client *client = ground_client(churn.ground, NULL);
    struct value value = value_make(256 * KIB, 2);
    uint32_t wanted = unit_long() ? 10000 : 300;
    uint32_t hits = 0;
    pthread_t thread;

    (void)state;
    await_near(client);
    assert_int_equal(pthread_create(&thread, NULL, churn_main, &churn), 0);
    for (uint32_t i = 0; hits < wanted; i++) {
        uint32_t number = (i * 7) % CHURN_KEYS;
        char key[16];
        enum yb_status status;

        (void)snprintf(key, sizeof(key), "key-%u", number);
        status = get_one(client, key, &value);
        if (status == YB_OK) {
            value_expect(&value, number, 0, value.length);
            hits++;
        } else {
            assert_int_equal(status, YB_NOT_FOUND);
        }
    }
    atomic_store(&churn.over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&churn.ground);
}

/* ---- borrowing ------------------------------------------------------------------------------- */

struct look {
    struct yb_node *node;
    struct yb_node_info info;
};

static void
order_info(void *context)
{
    struct look *look = context;

    yb_node_info(look->node, &look->info);
}

static struct yb_node_info
node_info(struct ground *ground)
{
    struct look look = {.node = ground->nodes[0].node};

    yb_worker_run(ground->nodes[0].worker, order_info, &look);
    return look.info;
}

static enum yb_status
pin_one(struct yb_client *client, const char *key, struct yb_client_item *item_out)
{
    *item_out = item_of(key, NULL);
    assert_int_equal(yb_client_pin(client, item_out, 1, NULL), YB_OK);
    return item_out->status;
}

static void
test_store_local__borrowed_blocks_stay_what_they_were_until_their_release(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct yb_client_item kept;
    struct yb_client_item gone;

    (void)state;
    await_near(client);
    value_fill(&value, 8);
    assert_int_equal(put_one(client, "kept", &value), YB_OK);
    assert_int_equal(put_one(client, "gone", &value), YB_OK);
    assert_int_equal(pin_one(client, "nothing", &kept), YB_NOT_FOUND);
    assert_null(kept.data);
    assert_int_equal(pin_one(client, "kept", &kept), YB_OK);
    assert_int_equal(pin_one(client, "gone", &gone), YB_OK);
    assert_int_equal(kept.size, MIB);
    expect_pattern(kept.data, MIB, 8);
    expect_pattern(gone.data, MIB, 8);
    assert_int_equal(remove_one(client, "gone"), YB_OK);
    assert_true(node_info(ground).quarantined >= MIB);
    for (uint32_t i = 0; i < 80; i++) { /* More than the pool has. */
        char key[16];

        (void)snprintf(key, sizeof(key), "other-%u", i);
        value_fill(&value, 100 + i);
        assert_int_equal(put_one(client, key, &value), YB_OK);
    }
    expect_pattern(kept.data, MIB, 8);
    expect_pattern(gone.data, MIB, 8);
    assert_int_equal(yb_client_release(client, &kept, 1), YB_OK);
    assert_int_equal(kept.status, YB_OK);
    assert_int_equal(yb_client_release(client, &gone, 1), YB_OK);
    assert_int_equal(gone.status, YB_STALE);
    assert_int_equal(yb_client_release(client, &gone, 1), YB_OK);
    assert_int_equal(gone.status, YB_CLOSED); /* It was given back. */
    assert_int_equal(node_info(ground).quarantined, 0);
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

#define LENT 24u

static void
test_store_local__a_client_borrows_its_share_and_no_more(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 64 * MIB);
    struct yb_client *client = ground_client(ground, NULL);
    struct yb_client *other = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct yb_client_item items[LENT];
    struct yb_client_item item;
    char keys[LENT][16];
    uint32_t lent = 0;

    (void)state;
    await_near(client);
    await_near(other);
    for (uint32_t i = 0; i < LENT; i++) {
        (void)snprintf(keys[i], sizeof(keys[i]), "key-%u", i);
        value_fill(&value, i);
        assert_int_equal(put_one(client, keys[i], &value), YB_OK);
        items[i] = item_of(keys[i], NULL);
    }
    while (pin_one(client, keys[0], &item) != YB_OK) { /* The pool is being mapped. */
    }
    assert_int_equal(yb_client_release(client, &item, 1), YB_OK);
    assert_int_equal(yb_client_pin(client, items, LENT, NULL), YB_OK);
    for (uint32_t i = 0; i < LENT; i++) {
        if (items[i].status == YB_OK) {
            expect_pattern(items[i].data, MIB, i);
            lent++;
        } else {
            assert_int_equal(items[i].status, YB_LEASED);
        }
    }
    assert_true(lent >= 14 && lent <= 16); /* A quarter of 64 MiB, and what was read lately. */
    for (uint32_t i = 0; i < LENT; i++) {  /* It still reads, in frames if need be. */
        assert_int_equal(get_one(client, keys[i], &value), YB_OK);
        value_expect(&value, i, 0, MIB);
    }
    assert_int_equal(pin_one(other, keys[LENT - 1], &item), YB_OK);
    yb_client_close(&client); /* Gives everything back. */
    yb_client_close(&other);
    for (uint32_t i = 0; i < LENT; i++) {
        client = ground_client(ground, NULL);
        assert_int_equal(remove_one(client, keys[i]), YB_OK);
        yb_client_close(&client);
    }
    assert_int_equal(node_info(ground).quarantined, 0);
    value_free(&value);
    ground_destroy(&ground);
}

/* ---- other processes ------------------------------------------------------------------------- */

/* Another process of this program, which says a line when it is ready. */
struct child {
    pid_t pid;
    FILE *lines;
    char line[YB_ADDRESS_TEXT_BYTES];
};

static void
child_start(struct child *child, const char *what, const char *address)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* Should the test fail. */
        if (dup2(fds[1], 5) == 5) {
            (void)execl("/proc/self/exe", program, what, address, (char *)NULL);
        }
        _exit(3);
    }
    (void)close(fds[1]);
    child->lines = fdopen(fds[0], "r");
    assert_non_null(child->lines);
    assert_non_null(fgets(child->line, sizeof(child->line), child->lines));
    child->line[strcspn(child->line, "\n")] = '\0';
}

static void
child_kill(struct child *child)
{
    int status;

    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    (void)fclose(child->lines);
}

/* In the other process: say a line, and wait for the end. */
static int
say_and_wait(const char *line)
{
    if (dprintf(5, "%s\n", line) < 0) {
        return 4;
    }
    for (;;) {
        (void)pause();
    }
}

static int
be_node(void)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 64 * MIB);

    return say_and_wait(ground->address);
}

/* Borrow "block" from the store at `address`. */
static int
be_borrower(const char *address)
{
    struct ground elsewhere = {.options.nodes = 1};
    struct yb_client *client;
    struct yb_client_item item;

    (void)snprintf(elsewhere.address, sizeof(elsewhere.address), "%s", address);
    client = ground_client(&elsewhere, NULL);
    if (pin_one(client, "block", &item) != YB_OK) {
        return 5;
    }
    expect_pattern(item.data, MIB, 11);
    return say_and_wait("borrowed");
}

static void
test_store_local__what_a_killed_client_borrowed_comes_back(void **state)
{
    struct ground *ground = near_ground(YB_TRANSFER_PATH_ALL, 0);
    struct yb_client *client = ground_client(ground, NULL);
    struct value value = value_make(MIB, 1);
    struct child child;

    (void)state;
    value_fill(&value, 11);
    assert_int_equal(put_one(client, "block", &value), YB_OK);
    child_start(&child, "borrower", ground->address);
    assert_string_equal(child.line, "borrowed");
    assert_int_equal(remove_one(client, "block"), YB_OK);
    for (uint32_t i = 0; i < 20; i++) { /* As long as it lives it is left alone. */
        duo_cut_shm();
        assert_int_equal(put_one(client, "other", &value), YB_OK);
        assert_int_equal(remove_one(client, "other"), YB_OK);
        assert_true(node_info(ground).quarantined >= MIB);
    }
    child_kill(&child);
    for (uint32_t i = 0; node_info(ground).quarantined > 0; i++) {
        assert_true(i < 10000); /* Some ten milliseconds, of a put and a removal each. */
        assert_int_equal(put_one(client, "other", &value), YB_OK);
        assert_int_equal(remove_one(client, "other"), YB_OK);
    }
    value_free(&value);
    yb_client_close(&client);
    ground_destroy(&ground);
}

static void *
kill_main(void *context)
{
    pause_ms(30);
    child_kill(context);
    return NULL;
}

static void
test_store_local__a_node_of_another_process_serves_and_dies_without_a_wrong_byte(void **state)
{
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = SECOND_NS / 2};
    struct ground elsewhere = {.options.nodes = 1};
    struct value value = value_make(4 * MIB, 8);
    struct yb_client_item item;
    struct yb_client *client;
    struct child child;
    pthread_t thread;
    uint32_t failed = 0;

    (void)state;
    child_start(&child, "node", "");
    (void)snprintf(elsewhere.address, sizeof(elsewhere.address), "%s", child.line);
    client = ground_client(&elsewhere, NULL);
    await_near(client);
    move_pieces(client, 5 * MIB, 64, true);
    value_fill(&value, 12);
    assert_int_equal(put_one(client, "lent", &value), YB_OK);
    assert_int_equal(pin_one(client, "lent", &item), YB_OK);
    assert_int_equal(pthread_create(&thread, NULL, kill_main, &child), 0);
    for (uint32_t i = 0; failed == 0; i++) {
        struct yb_client_item block = item_of("block", &value);

        value_fill(&value, i);
        assert_int_equal(yb_client_put(client, &block, 1, &call), YB_OK);
        failed += block.status != YB_OK;
        block = item_of("block", &value);
        memset(value.bytes, 0, value.length + value.count);
        assert_int_equal(yb_client_get(client, &block, 1, &call), YB_OK);
        if (block.status == YB_OK) {
            value_expect(&value, i, 0, value.length);
        }
        block = item_of("block", NULL);
        assert_int_equal(yb_client_remove(client, &block, 1, &call), YB_OK);
    }
    assert_int_equal(pthread_join(thread, NULL), 0);
    expect_pattern(item.data, 4 * MIB, 12); /* Its memory is ours to read until the release. */
    value_free(&value);
    yb_client_close(&client);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_local__values_of_every_shape_come_back_by_shared_memory),
        cmocka_unit_test(
            test_store_local__a_batch_of_large_small_and_missing_ones_has_an_outcome_for_each),
        cmocka_unit_test(test_store_local__values_that_their_sender_let_go_are_not_committed),
        cmocka_unit_test(test_store_local__values_that_cannot_be_fetched_are_sent),
        cmocka_unit_test(
            test_store_local__a_node_fetches_from_the_process_that_asks_and_from_no_other),
        cmocka_unit_test(
            test_store_local__a_put_that_is_over_leaves_no_ticket_and_no_memory_registered),
        cmocka_unit_test(test_store_local__without_shared_memory_at_either_end_bytes_go_in_frames),
        cmocka_unit_test(test_store_local__sockets_that_are_cut_cost_a_way_and_no_byte),
        cmocka_unit_test(test_store_local__what_is_read_while_blocks_are_evicted_is_whole),
        cmocka_unit_test(test_store_local__borrowed_blocks_stay_what_they_were_until_their_release),
        cmocka_unit_test(test_store_local__a_client_borrows_its_share_and_no_more),
        cmocka_unit_test(test_store_local__what_a_killed_client_borrowed_comes_back),
        cmocka_unit_test(
            test_store_local__a_node_of_another_process_serves_and_dies_without_a_wrong_byte),
    };

    program = argv[0];
    if (argc > 1 && strcmp(argv[1], "node") == 0) {
        return be_node();
    }
    if (argc > 2 && strcmp(argv[1], "borrower") == 0) {
        return be_borrower(argv[2]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
