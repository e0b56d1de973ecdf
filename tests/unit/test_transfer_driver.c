/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a driver that does not end what it has begun costs the memory that it holds, and nothing
 * else: batches end, others go on, and what it may still touch stays as it is.
 * Method: the stand-in of tests/device as libcuda.so.1, told to hang.
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
    uint64_t copies = board.get("copies");
    yb_transfer_batch batch;

    board.set("hang_copy", 1);
    batch = duo_submit(&pair->duo, &item, 1, &options);
    await_copies(copies + 1);
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
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
