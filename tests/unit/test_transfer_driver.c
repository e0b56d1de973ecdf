/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a driver that does not end what it has begun costs the memory that it holds, and nothing
 * else: batches end, others go on, and what it may still touch stays as it is.
 * And where the driver can copy alone between two engines of a process, it does,
 * under the same rules.
 * Method: the stand-in of tests/device as libcuda.so.1, told to hang; and one whose devices do not
 * reach each other.
 */
#include "transfer_board.h"

/* ---- a driver that hangs ------------------------------------------------------------------- */

/* Batches go on beside a copy that hangs, and touch nothing of what it may still write. */
static void
expect_others_go_on(struct pair *pair, struct buffer *other)
{
    for (uint64_t i = 0; i < 40; i++) {
        bool reads = i % 2 == 0;
        const struct yb_transfer_item item =
            buffer_item(reads ? YB_TRANSFER_READ : YB_TRANSFER_WRITE, other, pair->region);

        buffer_fill(reads ? &pair->remote : other, 0, SLICE, 100 + i);
        assert_int_equal(duo_run(&pair->duo, &item, 1, NULL, NULL).status, YB_OK);
        buffer_expect(reads ? other : &pair->remote, 0, SLICE, 100 + i);
    }
}

/* Let the driver hang while a batch is copied, and return when it has been given the copy. A
 * deadline that was over before, on a busy machine, has shown nothing: a longer one follows. */
static yb_transfer_batch
submit_and_hang(struct pair *pair, const struct yb_transfer_item *item,
                struct yb_transfer_batch_options *options)
{
    uint64_t copies = board.get("copies");

    board.set("hang_copy", 1);
    for (;; options->timeout_ns *= 2) {
        yb_transfer_batch batch = duo_submit(&pair->duo, item, 1, options);

        if (await_copies_of(pair->duo.here, batch, copies + 1)) {
            return batch;
        }
        assert_true(options->timeout_ns < PATIENCE_NS);
        assert_int_equal(duo_end(pair->duo.here, batch, NULL, 0).status, YB_TIMED_OUT);
    }
}

/* How a batch is brought to its end while the driver hangs. */
enum ending { BY_DEADLINE, BY_CANCEL, BY_CLOSE };

/* Let the driver hang while a batch's local memory is copied; it ends BUSY. */
static void
leave_to_the_driver(struct pair *pair, enum yb_transfer_op op, enum ending how)
{
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = how == BY_CLOSE ? UINT64_MAX : 50 * MS_NS,
    };
    const struct yb_transfer_item item = buffer_item(op, &pair->local, pair->region);
    struct yb_transfer_item_status status;
    struct yb_transfer_batch_status end;
    yb_transfer_batch batch = submit_and_hang(pair, &item, &options);

    if (how == BY_CANCEL) {
        assert_int_equal(yb_transfer_cancel(pair->duo.here, batch), YB_OK);
    } else if (how == BY_CLOSE) {
        assert_int_equal(yb_transfer_close(pair->duo.here, pair->duo.peer), YB_OK);
    }
    end = duo_end(pair->duo.here, batch, &status, 1);
    assert_int_equal(end.status, YB_BUSY);
    assert_int_equal(end.failed, 1);
    assert_int_equal(status.status, YB_BUSY);
    assert_int_equal(status.bytes, 0);
    assert_false(status.in_doubt); /* The remote side is quiet. */
    assert_int_equal(device_number(pair->duo.here, "quarantined"), 1);
}

static void
outlive_a_hang(enum yb_transfer_op op, bool cancels)
{
    struct pair pair;
    struct buffer other;

    pair_init(&pair, place_first, place_host, SLICE);
    buffer_init(&other, &board, place_first, SLICE);
    (void)buffer_register(pair.duo.here, &pair.local);
    buffer_fill(&pair.local, 0, SLICE, 1);
    buffer_fill(&pair.remote, 0, SLICE, 2);
    leave_to_the_driver(&pair, op, cancels ? BY_CANCEL : BY_DEADLINE);
    buffer_expect(&pair.remote, 0, SLICE, 2);
    expect_others_go_on(&pair, &other);
    assert_int_equal(yb_transfer_unregister(pair.duo.here, pair.local.bytes, MS_NS), YB_BUSY);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, 20 * MS_NS), YB_TIMED_OUT);
    buffer_fill(&pair.remote, 0, SLICE, 3);
    board.set("hang_copy", 0);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_transfer_unregister(pair.duo.here, pair.local.bytes, 0), YB_OK);
    assert_int_equal(device_number(pair.duo.here, "quarantined"), 0);
    assert_int_equal(device_number(pair.duo.here, "quarantined_ever"), 1);
    /* What a write had copied out goes nowhere; what a read brought is there, and is its own. */
    buffer_expect(&pair.remote, 0, SLICE, 3);
    buffer_expect(&pair.local, 0, SLICE, op == YB_TRANSFER_READ ? 2 : 1);
    expect_others_go_on(&pair, &other);
    pair_fini(&pair);
    buffer_fini(&other);
}

static void
test_transfer_driver__a_driver_that_ends_no_copy_holds_no_batch(void **state)
{
    (void)state;
    outlive_a_hang(YB_TRANSFER_READ, false);
    outlive_a_hang(YB_TRANSFER_WRITE, false);
    outlive_a_hang(YB_TRANSFER_READ, true);
    outlive_a_hang(YB_TRANSFER_WRITE, true);
}

static void
test_transfer_driver__a_peer_is_closed_while_the_driver_hangs(void **state)
{
    struct pair pair;

    (void)state;
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        pair_init(&pair, place_first, place_host, 3 * SLICE);
        pair.local.length = SLICE;
        leave_to_the_driver(&pair, (enum yb_transfer_op)op, BY_CLOSE);
        pair.local.length = 3 * SLICE;
        board.set("hang_copy", 0);
        pair_fini(&pair); /* Waits for it. */
    }
}

/* ---- from device to device within the process ---------------------------------------------- */

/* Whether this driver's devices reach each other. */
static bool has_peers = true;

/* A pair of which the engine here knows that the other is in its process. */
static void
near_init(struct pair *pair, struct yb_memory_place local, struct yb_memory_place remote,
          size_t length)
{
    pair_init(pair, local, remote, length);
    (void)duo_identity(pair->duo.here, pair->duo.peer);
}

static void
copy_between(struct yb_memory_place local, struct yb_memory_place remote, bool across)
{
    struct pair pair;

    near_init(&pair, local, remote, 5 * SLICE + 17);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        const struct buffer *from = op == YB_TRANSFER_READ ? &pair.remote : &pair.local;
        const struct buffer *to = op == YB_TRANSFER_READ ? &pair.local : &pair.remote;
        const struct yb_transfer_item item =
            buffer_item((enum yb_transfer_op)op, &pair.local, pair.region);
        struct yb_transfer_item_status status;
        struct yb_transfer_batch_status end;

        buffer_fill(from, 0, from->length, 40 + op);
        buffer_clear(to);
        end = duo_run(&pair.duo, &item, 1, NULL, &status);
        assert_int_equal(end.status, YB_OK);
        assert_int_equal(end.bytes, from->length);
        assert_int_equal(status.path == YB_TRANSFER_PATH_DEVICE, across);
        buffer_expect(to, 0, to->length, 40 + op);
    }
    assert_int_equal(device_number(pair.duo.here, "across_bytes"),
                     across ? 2 * pair.local.length : 0);
    if (remote.kind != YB_MEMORY_HOST) {
        assert_int_equal(device_number(pair.duo.there, "copies") == 0, across); /* No staging. */
    }
    pair_fini(&pair);
}

static void
test_transfer_driver__device_memory_of_one_process_is_copied_without_staging(void **state)
{
    bool offered = (duo_paths & YB_TRANSFER_PATH_DEVICE) != 0;

    (void)state;
    copy_between(place_first, place_first, offered);
    copy_between(place_first, place_second, offered && has_peers);
    copy_between(place_second, place_first, offered && has_peers);
    copy_between(place_first, place_host, false);
}

static void
test_transfer_driver__devices_that_do_not_reach_each_other_use_staging(void **state)
{
    static const char *const whys[] = {"no_peers", "fail_enable"};
    bool offered = (duo_paths & YB_TRANSFER_PATH_DEVICE) != 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        board_fini(&board); /* What was found out about devices ends with the last engine. */
        board_init(&board);
        board.set(whys[i], 1);
        copy_between(place_first, place_second, false);
        copy_between(place_second, place_second, offered);
        board.set(whys[i], 0);
    }
    board_fini(&board);
    board_init(&board);
}

/* What the target does not allow is refused, each item for itself, and the others are copied. */
static void
test_transfer_driver__what_a_neighbour_refuses_is_refused(void **state)
{
    struct yb_transfer_item items[3];
    struct yb_transfer_item_status statuses[3];
    struct pair pair;

    (void)state;
    near_init(&pair, place_first, place_first, 4096);
    buffer_fill(&pair.local, 0, 4096, 1);
    for (int i = 0; i < 3; i++) {
        items[i] = buffer_item(YB_TRANSFER_WRITE, &pair.local, pair.region);
        items[i].length = 100;
        items[i].remote_offset = 0;
    }
    items[1].length = 97; /* It leaves the region by one byte. */
    items[1].remote_offset = 4000;
    items[2].remote = pair.region + 1;
    assert_int_not_equal(duo_run(&pair.duo, items, 3, NULL, statuses).status, YB_OK);
    assert_int_equal(statuses[0].status, YB_OK);
    assert_int_equal(statuses[1].status, YB_INVALID);
    assert_int_not_equal(statuses[2].status, YB_OK);
    buffer_expect(&pair.remote, 0, 100, 1);
    buffer_expect_clear(&pair.remote, 100, 3996);
    pair_fini(&pair);
}

/* While a copy across is under way both ends are held: unregister, drain and fence wait. */
static void
test_transfer_driver__a_copy_across_holds_both_ends(void **state)
{
    struct yb_transfer_batch_options options = {.struct_bytes = sizeof(options),
                                                .timeout_ns = 50 * MS_NS};
    struct yb_transfer_item item;
    struct yb_transfer_item_status status;
    struct yb_id identity;
    struct pair pair;
    char address[64];
    yb_transfer_batch batch;

    (void)state;
    if ((duo_paths & YB_TRANSFER_PATH_DEVICE) == 0) {
        return;
    }
    near_init(&pair, place_first, place_first, SLICE);
    assert_int_equal(yb_transfer_address(pair.duo.here, address, sizeof(address)), YB_OK);
    identity = duo_identity(pair.duo.there, duo_open(pair.duo.there, address));
    buffer_fill(&pair.local, 0, SLICE, 5);
    item = buffer_item(YB_TRANSFER_WRITE, &pair.local, pair.region);
    batch = submit_and_hang(&pair, &item, &options);
    assert_int_equal(yb_transfer_unregister(pair.duo.there, pair.remote.bytes, MS_NS), YB_BUSY);
    assert_int_equal(duo_end(pair.duo.here, batch, &status, 1).status, YB_BUSY);
    assert_true(status.in_doubt); /* It may still land. */
    assert_int_equal(yb_transfer_unregister(pair.duo.there, pair.remote.bytes, MS_NS), YB_BUSY);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, 20 * MS_NS), YB_TIMED_OUT);
    assert_int_equal(yb_transfer_fence(pair.duo.there, identity, 20 * MS_NS), YB_TIMED_OUT);
    board.set("hang_copy", 0);
    assert_int_equal(yb_transfer_fence(pair.duo.there, identity, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, PATIENCE_NS), YB_OK);
    buffer_expect(&pair.remote, 0, SLICE, 5);
    assert_int_equal(yb_transfer_unregister(pair.duo.there, pair.remote.bytes, 0), YB_OK);
    pair_fini(&pair);
}

static int
set_up_all(void **state)
{
    (void)state;
    board_init(&board);
    return 0;
}

static int
tear_down_all(void **state)
{
    (void)state;
    board_fini(&board);
    return 0;
}

static int
release_copies(void **state)
{
    (void)state;
    board.set("hang_copy", 0);
    return 0;
}

#define WITH_DRIVER(name) cmocka_unit_test_teardown(name, release_copies)

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        WITH_DRIVER(test_transfer_driver__a_driver_that_ends_no_copy_holds_no_batch),
        WITH_DRIVER(test_transfer_driver__a_peer_is_closed_while_the_driver_hangs),
        WITH_DRIVER(test_transfer_driver__device_memory_of_one_process_is_copied_without_staging),
        WITH_DRIVER(test_transfer_driver__devices_that_do_not_reach_each_other_use_staging),
        WITH_DRIVER(test_transfer_driver__what_a_neighbour_refuses_is_refused),
        WITH_DRIVER(test_transfer_driver__a_copy_across_holds_both_ends),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    has_peers = argc <= 2 || strcmp(argv[2], "peerless") != 0;
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
