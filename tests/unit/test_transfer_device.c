/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the engine moves device memory as it moves host memory: at either end, at both, with the
 * same outcomes when it goes wrong, and without a usable driver it says so and moves the rest.
 * Method: the stand-in of tests/device as libcuda.so.1, which makes every touch by the CPU fault,
 * ends copies late and in any order, holds them and spoils them. The second argument says which
 * driver the loader will find: standin, old, failing (its cuInit fails), or none.
 */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/device/cuda.h"
#include "transfer_board.h"

/* Which memory is here and which there. */
struct row {
    const char *name;
    struct yb_memory_place local;
    struct yb_memory_place remote;
};

static const struct row rows[] = {
    {"host to device", {YB_MEMORY_HOST, 0}, {YB_MEMORY_CUDA, 0}},
    {"device to host", {YB_MEMORY_CUDA, 0}, {YB_MEMORY_HOST, 0}},
    {"device to device", {YB_MEMORY_CUDA, 0}, {YB_MEMORY_CUDA, 0}},
    {"device to the other device", {YB_MEMORY_CUDA, 0}, {YB_MEMORY_CUDA, 1}},
    {"the other device to device", {YB_MEMORY_CUDA, 1}, {YB_MEMORY_CUDA, 0}},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

/* ---- bytes --------------------------------------------------------------------------------- */

/* Only the first `window` bytes are cleared before and looked at afterwards. */
static void
move_size(const struct pair *pair, enum yb_transfer_op op, size_t length, size_t shift,
          size_t window)
{
    const struct buffer *from = op == YB_TRANSFER_READ ? &pair->remote : &pair->local;
    const struct buffer *to = op == YB_TRANSFER_READ ? &pair->local : &pair->remote;
    struct yb_transfer_item item = buffer_item(op, &pair->local, pair->region);
    struct yb_transfer_item_status status;
    struct yb_transfer_batch_status end;

    buffer_clear_range(to, 0, window);
    buffer_fill(from, shift, length, length + op);
    item.local = pair->local.bytes + shift;
    item.remote_offset = shift;
    item.length = length;
    end = duo_run(&pair->duo, &item, 1, NULL, &status);
    assert_int_equal(end.status, YB_OK);
    assert_int_equal(end.bytes, length);
    assert_int_equal(status.bytes, length);
    assert_false(status.in_doubt);
    buffer_expect(to, shift, length, length + op);
    buffer_expect_clear(to, 0, shift);
    buffer_expect_clear(to, shift + length, window - shift - length);
}

static void
test_transfer_device__every_size_arrives_between_all_kinds_of_memory(void **state)
{
    static const size_t sizes[] = {1,     63,        4096,      65537,          SLICE - 1,
                                   SLICE, SLICE + 1, 2 * SLICE, 5 * SLICE + 17, 16u << 20};

    (void)state;
    for (size_t r = 0; r < ROWS; r++) {
        struct pair pair;
        size_t count = sizeof(sizes) / sizeof(sizes[0]) - (r < 3 ? 0 : 1);

        pair_init(&pair, rows[r].local, rows[r].remote, sizes[count - 1] + 7);
        for (size_t i = 0, seen = 0; i < count; i++) {
            size_t window = i + 1 < count ? sizes[i] + 64 : pair.local.length;

            /* What is used for the first time was left alone by what came before. */
            window = window < seen ? seen : window;
            buffer_expect_clear(&pair.local, seen, window - seen);
            buffer_expect_clear(&pair.remote, seen, window - seen);
            seen = window;
            move_size(&pair, YB_TRANSFER_READ, sizes[i], 3, window);
            move_size(&pair, YB_TRANSFER_WRITE, sizes[i], 3, window);
        }
        pair_fini(&pair);
    }
}

/* Items of one batch, each `bytes` long, in an order that mixes places. */
static void
move_many(const struct row *row, uint32_t count, uint32_t bytes, bool by_address)
{
    struct yb_transfer_item *items = calloc(count, sizeof(*items));
    struct yb_transfer_item_status *statuses = calloc(count, sizeof(*statuses));
    struct pair pair;

    pair_init(&pair, row->local, row->remote, (size_t)count * bytes);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        const struct buffer *from = op == YB_TRANSFER_READ ? &pair.remote : &pair.local;
        const struct buffer *to = op == YB_TRANSFER_READ ? &pair.local : &pair.remote;

        buffer_clear(to);
        buffer_fill(from, 0, from->length, count + op);
        for (uint32_t i = 0; i < count; i++) {
            size_t at = (size_t)((i * UINT64_C(7919)) % count) * bytes; /* 7919 is prime. */

            items[i] = (struct yb_transfer_item){
                .op = op,
                .local = pair.local.bytes + at,
                .length = bytes,
                .remote = by_address ? YB_TRANSFER_BY_ADDRESS : pair.region,
                .remote_offset = by_address ? (uint64_t)(uintptr_t)pair.remote.bytes + at : at,
            };
        }
        assert_int_equal(duo_run(&pair.duo, items, count, NULL, statuses).status, YB_OK);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(statuses[i].status, YB_OK);
            assert_int_equal(statuses[i].bytes, bytes);
        }
        buffer_expect(to, 0, to->length, count + op);
    }
    pair_fini(&pair);
    free(statuses);
    free(items);
}

static void
test_transfer_device__any_number_of_items_goes_as_one_batch(void **state)
{
    static const uint32_t counts[] = {1, 64, 65, 1000};

    (void)state;
    for (size_t r = 0; r < 4; r++) {
        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
            move_many(&rows[r], counts[i], 100, false);
            move_many(&rows[r], counts[i], 5001, true);
        }
    }
}

static void
test_transfer_device__one_batch_mixes_all_kinds_of_memory_and_both_ways(void **state)
{
    enum { ITEMS = 300, BYTES = 3001 };
    static const struct yb_memory_place places[] = {
        {YB_MEMORY_HOST, 0}, {YB_MEMORY_CUDA, 0}, {YB_MEMORY_CUDA, 1}};
    struct yb_transfer_item items[ITEMS];
    struct buffer here[3], there[3];
    yb_transfer_region regions[3];
    struct duo duo;

    (void)state;
    duo_init(&duo);
    for (int i = 0; i < 3; i++) {
        buffer_init(&here[i], &board, places[i], (size_t)ITEMS * BYTES);
        buffer_init(&there[i], &board, places[i], (size_t)ITEMS * BYTES);
        regions[i] = buffer_register(duo.there, &there[i]);
    }
    for (size_t i = 0; i < ITEMS; i++) {
        bool reads = i % 2 == 0;
        const struct buffer *local = &here[i % 3];
        size_t other = i / 3 % 3;

        buffer_fill(reads ? &there[other] : local, i * BYTES, BYTES, i);
        items[i] = (struct yb_transfer_item){
            .op = reads ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
            .local = local->bytes + i * BYTES,
            .length = BYTES,
            .remote = regions[other],
            .remote_offset = i * BYTES,
        };
    }
    assert_int_equal(duo_run(&duo, items, ITEMS, NULL, NULL).status, YB_OK);
    for (size_t i = 0; i < ITEMS; i++) {
        buffer_expect(&here[i % 3], i * BYTES, BYTES, i);
        buffer_expect(&there[i / 3 % 3], i * BYTES, BYTES, i);
    }
    duo_fini(&duo);
    for (int i = 0; i < 3; i++) {
        buffer_fini(&here[i]);
        buffer_fini(&there[i]);
    }
}

/* ---- regions ------------------------------------------------------------------------------- */

static void
test_transfer_device__a_region_is_of_the_device_that_was_said(void **state)
{
    struct yb_transfer_memory memory = {.struct_bytes = sizeof(memory),
                                        .location_kind = YB_TRANSFER_LOCATION_DEVICE};
    struct buffer device, host;
    struct duo duo;
    char *text = NULL;

    (void)state;
    duo_init(&duo);
    buffer_init(&device, &board, place_second, 4096);
    buffer_init(&host, &board, place_host, 4096);
    assert_int_equal(yb_transfer_register(duo.there, device.bytes, 4096, &memory, NULL),
                     YB_INVALID);
    memory.location_index = 7;
    assert_int_equal(yb_transfer_register(duo.there, device.bytes, 4096, &memory, NULL),
                     YB_INVALID);
    memory.location_index = 1;
    assert_int_equal(yb_transfer_register(duo.there, host.bytes, 4096, &memory, NULL), YB_INVALID);
    assert_int_equal(yb_transfer_register(duo.there, device.bytes, 1u << 30, &memory, NULL),
                     YB_FAULT);
    assert_int_equal(yb_transfer_register(duo.there, device.bytes, 4096, &memory, NULL), YB_OK);
    /* The same again, found out and not said, is the same region. */
    assert_int_equal(yb_transfer_register(duo.there, device.bytes, 4096, NULL, NULL), YB_OK);
    assert_int_equal(yb_transfer_topology(duo.there, &text), YB_OK);
    assert_non_null(strstr(text, "\"cuda\""));
    assert_non_null(strstr(text, "page-locked"));
    free(text);
    assert_int_equal(yb_transfer_unregister(duo.there, device.bytes, 0), YB_OK);
    assert_int_equal(yb_transfer_unregister(duo.there, device.bytes, 0), YB_OK);
    assert_int_equal(yb_transfer_unregister(duo.there, device.bytes, 0), YB_NOT_FOUND);
    duo_fini(&duo);
    buffer_fini(&device);
    buffer_fini(&host);
}

static void
expect_page_locks(struct yb_transfer *engine, uint64_t page_locks)
{
    assert_int_equal(device_number(engine, "page_locks"), page_locks);
    assert_int_equal(device_number(engine, "page_locks_failed"), 0);
}

static void
test_transfer_device__staging_is_page_locked_once_for_all_engines_of_a_process(void **state)
{
    uint64_t before = board.get("page_locks");
    uint64_t pageable;
    struct pair pair;

    (void)state;
    pair_init(&pair, place_first, place_second, 3 * SLICE);
    pageable = board.get("pageable_copies"); /* The test's own. */
    for (int i = 0; i < 20; i++) {
        const struct yb_transfer_item item = buffer_item(
            i % 2 == 0 ? YB_TRANSFER_READ : YB_TRANSFER_WRITE, &pair.local, pair.region);

        assert_int_equal(duo_run(&pair.duo, &item, 1, NULL, NULL).status, YB_OK);
    }
    assert_int_equal(board.get("pageable_copies"), pageable);
    assert_true(before <= 1);
    assert_int_equal(board.get("page_locks"), 1); /* Ever, in this process. */
    expect_page_locks(pair.duo.here, 1);
    expect_page_locks(pair.duo.there, 1);
    pair_fini(&pair);
}

static void
test_transfer_device__a_region_stays_while_the_device_is_written(void **state)
{
    struct pair pair;
    struct yb_transfer_item item;
    uint64_t copies;
    yb_transfer_batch batch;

    (void)state;
    pair_init(&pair, place_host, place_first, 1000);
    buffer_fill(&pair.local, 0, 1000, 1);
    item = buffer_item(YB_TRANSFER_WRITE, &pair.local, pair.region);
    copies = board.get("copies");
    board.set("hold", 1);
    batch = duo_submit(&pair.duo, &item, 1, NULL);
    await_copies(copies + 1);
    assert_int_equal(yb_transfer_unregister(pair.duo.there, pair.remote.bytes, MS_NS), YB_BUSY);
    board.set("hold", 0);
    assert_int_equal(duo_end(pair.duo.here, batch, NULL, 0).status, YB_OK);
    assert_int_equal(yb_transfer_unregister(pair.duo.there, pair.remote.bytes, PATIENCE_NS), YB_OK);
    buffer_expect(&pair.remote, 0, 1000, 1);
    pair_fini(&pair);
}

/* ---- outcomes ------------------------------------------------------------------------------ */

/* Stop a batch while its copies out of the device are held: nothing may be sent. */
static void
stop_copies_out(bool cancels)
{
    struct yb_transfer_batch_options options = {.struct_bytes = sizeof(options)};
    struct yb_transfer_batch_status end;
    struct yb_transfer_item item;
    struct pair pair;
    uint64_t copies;
    yb_transfer_batch batch;

    pair_init(&pair, place_first, place_host, 40 * SLICE);
    buffer_fill(&pair.local, 0, 40 * SLICE, 9);
    item = buffer_item(YB_TRANSFER_WRITE, &pair.local, pair.region);
    options.timeout_ns = cancels ? PATIENCE_NS : MS_NS;
    copies = board.get("copies");
    board.set("hold", 1);
    batch = duo_submit(&pair.duo, &item, 1, &options);
    if (cancels) {
        await_copies(copies + 2);
        assert_int_equal(yb_transfer_cancel(pair.duo.here, batch), YB_OK);
    }
    pause_ms(5);
    board.set("hold", 0);
    end = duo_end(pair.duo.here, batch, NULL, 0);
    assert_int_equal(end.status, cancels ? YB_CANCELLED : YB_TIMED_OUT);
    assert_false(end.in_doubt);
    buffer_expect_clear(&pair.remote, 0, pair.remote.length);
    pair_fini(&pair);
}

static void
test_transfer_device__a_batch_stopped_while_it_is_copied_sends_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++) {
        stop_copies_out(true);
        stop_copies_out(false);
    }
}

static void
test_transfer_device__no_batch_ends_while_its_memory_is_copied_to(void **state)
{
    struct yb_transfer_batch_status now;
    struct yb_transfer_item item;
    struct pair pair;
    uint64_t copies;
    yb_transfer_batch batch;

    (void)state;
    pair_init(&pair, place_first, place_host, SLICE);
    buffer_fill(&pair.remote, 0, SLICE, 4);
    item = buffer_item(YB_TRANSFER_READ, &pair.local, pair.region);
    copies = board.get("copies");
    board.set("hold", 1);
    batch = duo_submit(&pair.duo, &item, 1, NULL);
    await_copies(copies + 1);
    assert_int_equal(yb_transfer_cancel(pair.duo.here, batch), YB_OK);
    assert_int_equal(yb_transfer_wait(pair.duo.here, batch, 20 * MS_NS), YB_TIMED_OUT);
    assert_int_equal(yb_transfer_poll(pair.duo.here, batch, &now, NULL, 0), YB_OK);
    assert_int_equal(now.status, YB_IN_PROGRESS); /* T2 */
    board.set("hold", 0);
    assert_int_equal(duo_end(pair.duo.here, batch, NULL, 0).status, YB_OK); /* It was applied. */
    buffer_expect(&pair.local, 0, SLICE, 4);
    pair_fini(&pair);
}

/* How many items of the end are not OK; each is IO, and what is OK has its bytes. */
static uint32_t
count_failed(const struct buffer *to, const struct yb_transfer_item_status *statuses,
             uint32_t count, size_t bytes)
{
    uint32_t failed = 0;

    for (uint32_t i = 0; i < count; i++) {
        assert_false(statuses[i].in_doubt);
        if (statuses[i].status == YB_OK) {
            assert_int_equal(statuses[i].bytes, bytes);
            buffer_expect(to, i * bytes, bytes, i);
        } else {
            assert_int_equal(statuses[i].status, YB_IO);
            failed++;
        }
    }
    return failed;
}

static void
fail_one(const struct row *row, const char *how, uint64_t which, enum yb_transfer_op op)
{
    enum { ITEMS = 10, BYTES = 4000 };
    struct yb_transfer_item items[ITEMS];
    struct yb_transfer_item_status statuses[ITEMS];
    struct yb_transfer_batch_status end;
    struct pair pair;
    const struct buffer *from = op == YB_TRANSFER_READ ? &pair.remote : &pair.local;
    const struct buffer *to = op == YB_TRANSFER_READ ? &pair.local : &pair.remote;

    pair_init(&pair, row->local, row->remote, (size_t)ITEMS * BYTES);
    for (size_t i = 0; i < ITEMS; i++) {
        buffer_fill(from, i * BYTES, BYTES, i);
        items[i] = (struct yb_transfer_item){
            .op = op,
            .local = pair.local.bytes + i * BYTES,
            .length = BYTES,
            .remote = pair.region,
            .remote_offset = i * BYTES,
        };
    }
    board.set(how, which);
    end = duo_run(&pair.duo, items, ITEMS, NULL, statuses);
    board.set(how, 0);
    assert_int_equal(end.status, YB_IO);
    assert_int_equal(end.failed, 1);
    assert_int_equal(count_failed(to, statuses, ITEMS, BYTES), 1);
    /* The engine and the device go on. */
    assert_int_equal(duo_run(&pair.duo, items, ITEMS, NULL, statuses).status, YB_OK);
    assert_int_equal(count_failed(to, statuses, ITEMS, BYTES), 0);
    pair_fini(&pair);
}

static void
test_transfer_device__a_copy_that_fails_fails_its_item_alone(void **state)
{
    static const char *const ways[] = {"fail_copy", "fail_start", "fail_record"};

    (void)state;
    for (size_t r = 0; r < 4; r++) {
        for (size_t w = 0; w < 3; w++) {
            /* Ten copies at each end that is a device, or ten across. */
            bool once = r < 2 || (duo_paths & YB_TRANSFER_PATH_DEVICE) != 0;

            for (uint64_t which = 1; which <= (once ? 10 : 20); which += 4) {
                fail_one(&rows[r], ways[w], which, YB_TRANSFER_READ);
                fail_one(&rows[r], ways[w], which, YB_TRANSFER_WRITE);
            }
        }
    }
}

static void
test_transfer_device__a_range_that_leaves_its_allocation_fails_alone(void **state)
{
    struct yb_transfer_item items[2];
    struct yb_transfer_item_status statuses[2];
    struct pair pair;

    (void)state;
    pair_init(&pair, place_first, place_host, 8192);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        items[0] = buffer_item((enum yb_transfer_op)op, &pair.local, pair.region);
        items[0].length = 100;
        items[1] = items[0];
        items[1].local = pair.local.bytes + 8192;
        items[1].length = 8192; /* The guard ends before. */
        assert_int_equal(duo_run(&pair.duo, items, 2, NULL, statuses).status, YB_FAULT);
        assert_int_equal(statuses[0].status, YB_OK);
        assert_int_equal(statuses[1].status, YB_FAULT);
    }
    pair_fini(&pair);
}

/* ---- quiet --------------------------------------------------------------------------------- */

/* Leave a write to a device in doubt, its copy at the target held. */
static void
leave_in_doubt(struct pair *pair)
{
    struct yb_transfer_item item;
    struct yb_transfer_batch_status end;
    uint64_t copies;
    yb_transfer_batch batch;

    pair_init(pair, place_host, place_first, 5000);
    buffer_fill(&pair->local, 0, 5000, 6);
    item = buffer_item(YB_TRANSFER_WRITE, &pair->local, pair->region);
    copies = board.get("copies");
    board.set("hold", 1);
    batch = duo_submit(&pair->duo, &item, 1, NULL);
    await_copies(copies + 1);
    assert_int_equal(yb_transfer_cancel(pair->duo.here, batch), YB_OK);
    end = duo_end(pair->duo.here, batch, NULL, 0);
    assert_int_equal(end.status, YB_CANCELLED);
    assert_true(end.in_doubt);
}

static void
test_transfer_device__a_drain_waits_for_copies_at_the_target(void **state)
{
    struct pair pair;

    (void)state;
    leave_in_doubt(&pair);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, 50 * MS_NS), YB_TIMED_OUT);
    board.set("hold", 0);
    assert_int_equal(yb_transfer_drain(pair.duo.here, pair.duo.peer, PATIENCE_NS), YB_OK);
    buffer_expect(&pair.remote, 0, 5000, 6); /* It did land, and nothing lands from now on. */
    pair_fini(&pair);
}

static void
test_transfer_device__a_fence_waits_for_copies_at_the_target(void **state)
{
    struct yb_id identity;
    struct pair pair;
    char address[64];

    (void)state;
    leave_in_doubt(&pair);
    assert_int_equal(yb_transfer_address(pair.duo.here, address, sizeof(address)), YB_OK);
    identity = duo_identity(pair.duo.there, duo_open(pair.duo.there, address));
    assert_int_equal(yb_transfer_fence(pair.duo.there, identity, 50 * MS_NS), YB_TIMED_OUT);
    board.set("hold", 0);
    assert_int_equal(yb_transfer_fence(pair.duo.there, identity, PATIENCE_NS), YB_OK);
    buffer_expect(&pair.remote, 0, 5000, 6);
    pair_fini(&pair);
}

/* ---- many at once -------------------------------------------------------------------------- */

/* Both engines submit `count` batches of `bytes` at once, all classes, and all of them end. */
static void
flood_both(struct yb_memory_place local, struct yb_memory_place remote, uint32_t count,
           size_t bytes)
{
    yb_transfer_batch *batches = calloc(2 * (size_t)count, sizeof(*batches));
    struct yb_transfer_batch_options options = {.struct_bytes = sizeof(options)};
    struct buffer ours[2], theirs[2];
    struct yb_transfer *engines[2];
    yb_transfer_peer peers[2];
    yb_transfer_region regions[2];
    struct duo duo;
    char address[64];

    duo_init(&duo);
    assert_int_equal(yb_transfer_address(duo.here, address, sizeof(address)), YB_OK);
    engines[0] = duo.here;
    engines[1] = duo.there;
    peers[0] = duo.peer;
    peers[1] = duo_open(duo.there, address);
    for (int side = 0; side < 2; side++) {
        buffer_init(&ours[side], &board, local, count * bytes);
        buffer_init(&theirs[side], &board, remote, count * bytes);
        regions[side] = buffer_register(engines[1 - side], &theirs[side]);
    }
    for (size_t i = 0; i < 2 * (size_t)count; i++) {
        size_t side = i % 2;
        size_t at = i / 2 * bytes;
        bool reads = i / 2 % 2 == 0;
        const struct yb_transfer_item item = {
            .op = reads ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
            .local = ours[side].bytes + at,
            .length = bytes,
            .remote = regions[side],
            .remote_offset = at,
        };

        buffer_fill(reads ? &theirs[side] : &ours[side], at, bytes, i);
        options.work_class = (uint32_t)(i / 4 % YB_CLASS_COUNT);
        options.timeout_ns = PATIENCE_NS;
        assert_int_equal(
            yb_transfer_submit(engines[side], peers[side], &item, 1, &options, &batches[i]), YB_OK);
    }
    for (size_t i = 0; i < 2 * (size_t)count; i++) {
        size_t side = i % 2;

        assert_int_equal(duo_end(engines[side], batches[i], NULL, 0).status, YB_OK);
        buffer_expect(&ours[side], i / 2 * bytes, bytes, i);
        buffer_expect(&theirs[side], i / 2 * bytes, bytes, i);
    }
    duo_fini(&duo);
    for (int side = 0; side < 2; side++) {
        buffer_fini(&ours[side]);
        buffer_fini(&theirs[side]);
    }
    free(batches);
}

static void
test_transfer_device__engines_that_flood_each_other_make_progress(void **state)
{
    (void)state;
    flood_both(place_first, place_second, 60, 3 * SLICE);
    flood_both(place_first, place_first, 300, 10000);
    flood_both(place_host, place_first, 60, 2 * SLICE);
    flood_both(place_second, place_host, 60, 2 * SLICE);
}

static void
test_transfer_device__more_fragments_than_copies_fit_at_once(void **state)
{
    enum { ITEMS = 4000, BYTES = 32 };
    static struct yb_transfer_item items[ITEMS];
    struct pair pair;
    uint64_t copies = board.get("copies");
    yb_transfer_batch batch;

    (void)state;
    pair_init(&pair, place_first, place_second, (size_t)ITEMS * BYTES);
    buffer_fill(&pair.local, 0, pair.local.length, 77);
    for (size_t i = 0; i < ITEMS; i++) {
        items[i] = (struct yb_transfer_item){
            .op = YB_TRANSFER_WRITE,
            .local = pair.local.bytes + i * BYTES,
            .length = BYTES,
            .remote = pair.region,
            .remote_offset = i * BYTES,
        };
    }
    copies = board.get("copies");
    board.set("hold", 1);
    batch = duo_submit(&pair.duo, items, ITEMS, NULL);
    await_copies(copies + YB_MEMORY_COPIES_MAX);
    board.set("hold", 0);
    assert_int_equal(duo_end(pair.duo.here, batch, NULL, 0).status, YB_OK);
    buffer_expect(&pair.remote, 0, pair.remote.length, 77);
    pair_fini(&pair);
}

/* A peer that answers nothing takes staging, but not from others, and not for ever. */
static void
test_transfer_device__a_mute_peer_leaves_staging_to_others(void **state)
{
    const struct yb_transfer_options options = duo_options();
    struct yb_transfer *other = duo_engine(&options);
    struct yb_transfer_item item;
    struct buffer source;
    struct stall *stall;
    struct pair pair;
    yb_transfer_batch batches[4];
    yb_transfer_peer peer, back;
    char address[64], here[64];
    struct duo second;

    (void)state;
    pair_init(&pair, place_first, place_host, 40 * SLICE);
    buffer_init(&source, &board, place_second, 40 * SLICE);
    assert_int_equal(yb_transfer_address(other, address, sizeof(address)), YB_OK);
    assert_int_equal(yb_transfer_address(pair.duo.here, here, sizeof(here)), YB_OK);
    peer = duo_open(pair.duo.here, address);
    back = duo_open(other, here);
    stall = stall_begin(other, back); /* Its worker stands still. */
    item = buffer_item(YB_TRANSFER_WRITE, &source, YB_TRANSFER_BY_ADDRESS);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(yb_transfer_submit(pair.duo.here, peer, &item, 1, NULL, &batches[i]),
                         YB_OK);
    }
    item = buffer_item(YB_TRANSFER_READ, &pair.local, pair.region);
    buffer_fill(&pair.remote, 0, pair.remote.length, 12);
    second = pair.duo;
    assert_int_equal(duo_run(&second, &item, 1, NULL, NULL).status, YB_OK);
    buffer_expect(&pair.local, 0, pair.local.length, 12);
    stall_end(&stall);
    for (size_t i = 0; i < 4; i++) { /* It has no such memory. */
        assert_int_equal(duo_end(pair.duo.here, batches[i], NULL, 0).status, YB_NOT_FOUND);
    }
    yb_transfer_destroy(&other);
    pair_fini(&pair);
    buffer_fini(&source);
}

/* ---- a peer that dies ---------------------------------------------------------------------- */

#define KILLED_BYTES (8u << 20)

/* The target as a process of its own: device memory behind an engine, until it is killed. */
static int
be_target(void)
{
    struct yb_transfer_options options = duo_options();
    struct yb_transfer *engine = duo_engine(&options);
    struct buffer buffer;
    char address[64];
    char byte;

    board_init(&board);
    buffer_init(&buffer, &board, place_first, KILLED_BYTES);
    assert_int_equal(yb_transfer_address(engine, address, sizeof(address)), YB_OK);
    printf("\nTARGET %s %llu\n", address, (unsigned long long)buffer_register(engine, &buffer));
    fflush(stdout);
    return (int)read(0, &byte, 1); /* Until the test ends, if it does not kill. */
}

static pid_t
start_target(char address_out[64], yb_transfer_region *region_out)
{
    int ends[2], in[2];
    char line[256];
    unsigned long long region = 0;
    FILE *from;
    pid_t child;

    assert_int_equal(pipe(ends) | pipe(in), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], 1);
        dup2(in[0], 0);
        close(ends[0]);
        close(in[1]);
        execl("/proc/self/exe", "target", "target", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    close(in[0]);
    from = fdopen(ends[0], "r");
    assert_non_null(from);
    while (fgets(line, sizeof(line), from) != NULL &&
           sscanf(line, "TARGET %63s %llu", address_out, &region) != 2) {
    }
    assert_true(region != 0);
    *region_out = region;
    fclose(from);
    return child; /* `in` stays open to the end of this process. */
}

static void
test_transfer_device__a_peer_that_is_killed_leaves_no_copy_and_no_slice_behind(void **state)
{
    const struct yb_transfer_options options = duo_options();
    struct yb_transfer_batch_options batch_options = {.struct_bytes = sizeof(batch_options),
                                                      .timeout_ns = 300 * MS_NS};
    struct buffer local;
    struct duo duo = {.here = duo_engine(&options)};
    yb_transfer_batch batches[20];

    (void)state;
    buffer_init(&local, &board, place_second, KILLED_BYTES);
    for (int round = 0; round < 3; round++) {
        yb_transfer_region region;
        pid_t child = start_target(duo.address, &region);
        uint64_t copies = board.get("copies");

        duo.peer = duo_open(duo.here, duo.address);
        for (uint32_t i = 0; i < 20; i++) {
            struct yb_transfer_item item =
                buffer_item(i % 2 == 0 ? YB_TRANSFER_WRITE : YB_TRANSFER_READ, &local, region);

            batches[i] = duo_submit(&duo, &item, 1, &batch_options);
        }
        (void)await_copies_of(duo.here, batches[19], copies + 10);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        for (uint32_t i = 0; i < 20; i++) {
            struct yb_transfer_batch_status end = duo_end(duo.here, batches[i], NULL, 0);

            assert_true(end.status == YB_OK || end.failed > 0);
            assert_false(end.in_doubt && i % 2 == 1); /* A read never is. */
        }
        assert_int_equal(yb_transfer_close(duo.here, duo.peer), YB_OK);
    }
    duo_fini(&duo);
    buffer_fini(&local);
}

/* ---- without a driver ---------------------------------------------------------------------- */

/* What the topology must hold. */
static const char *expected_words[2];

static void
test_transfer_device__without_a_driver_host_memory_moves_and_it_says_why(void **state)
{
    const struct yb_transfer_memory memory = {.struct_bytes = sizeof(memory),
                                              .location_kind = YB_TRANSFER_LOCATION_DEVICE};
    struct area local, remote;
    struct yb_transfer_item item;
    struct duo duo;
    char *text = NULL;

    (void)state;
    duo_init(&duo);
    area_init(&local, 3 * SLICE + 1);
    area_init(&remote, 3 * SLICE + 1);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, remote.length, &memory, NULL),
                     YB_INVALID);
    item = duo_item(YB_TRANSFER_WRITE, &local, duo_register(duo.there, &remote));
    fill(local.bytes, local.length, 5);
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    expect_pattern(remote.bytes, remote.length, 5);
    assert_int_equal(yb_transfer_topology(duo.here, &text), YB_OK);
    assert_non_null(strstr(text, "\"devices\": 0"));
    for (int i = 0; i < 2; i++) {
        if (strstr(text, expected_words[i]) == NULL) {
            fail_msg("no `%s` in %s", expected_words[i], text);
        }
    }
    free(text);
    duo_fini(&duo);
    area_fini(&local);
    area_fini(&remote);
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
    board.set("hold", 0);
    return 0;
}

#define WITH_DRIVER(name) cmocka_unit_test_teardown(name, release_copies)

static int
run_with(void)
{
    const struct CMUnitTest with[] = {
        WITH_DRIVER(test_transfer_device__every_size_arrives_between_all_kinds_of_memory),
        WITH_DRIVER(test_transfer_device__any_number_of_items_goes_as_one_batch),
        WITH_DRIVER(test_transfer_device__one_batch_mixes_all_kinds_of_memory_and_both_ways),
        WITH_DRIVER(test_transfer_device__a_region_is_of_the_device_that_was_said),
        WITH_DRIVER(test_transfer_device__staging_is_page_locked_once_for_all_engines_of_a_process),
        WITH_DRIVER(test_transfer_device__a_region_stays_while_the_device_is_written),
        WITH_DRIVER(test_transfer_device__a_batch_stopped_while_it_is_copied_sends_nothing),
        WITH_DRIVER(test_transfer_device__no_batch_ends_while_its_memory_is_copied_to),
        WITH_DRIVER(test_transfer_device__a_copy_that_fails_fails_its_item_alone),
        WITH_DRIVER(test_transfer_device__a_range_that_leaves_its_allocation_fails_alone),
        WITH_DRIVER(test_transfer_device__a_drain_waits_for_copies_at_the_target),
        WITH_DRIVER(test_transfer_device__a_fence_waits_for_copies_at_the_target),
        WITH_DRIVER(test_transfer_device__engines_that_flood_each_other_make_progress),
        WITH_DRIVER(test_transfer_device__more_fragments_than_copies_fit_at_once),
        WITH_DRIVER(test_transfer_device__a_mute_peer_leaves_staging_to_others),
        WITH_DRIVER(test_transfer_device__a_peer_that_is_killed_leaves_no_copy_and_no_slice_behind),
    };

    return cmocka_run_group_tests(with, set_up_all, tear_down_all);
}

int
main(int argc, char **argv)
{
    const char *driver = argc > 2 ? argv[2] : "standin";
    const struct CMUnitTest without[] = {
        cmocka_unit_test(test_transfer_device__without_a_driver_host_memory_moves_and_it_says_why),
    };

    if (argc > 1 && strcmp(argv[1], "target") == 0) {
        return be_target();
    }
    if (argc > 1 && strcmp(argv[1], "all") == 0) {
        duo_paths = YB_TRANSFER_PATH_ALL; /* What does not serve device memory must step aside. */
    } else if (!duo_choose(argc, argv)) {
        return 2;
    }
    if (strcmp(driver, "standin") == 0) {
        return run_with();
    }
    if (strcmp(driver, "none") == 0 && dlopen(YB_CUDA_LIBRARY, RTLD_NOW) != NULL) {
        return 77; /* This machine has a driver of its own. */
    }
    expected_words[0] = YB_CUDA_LIBRARY;
    expected_words[1] = "no CUDA driver";
    if (strcmp(driver, "old") == 0) {
        expected_words[0] = "too old";
        expected_words[1] = "cuMemHostUnregister";
    } else if (strcmp(driver, "failing") == 0) {
        expected_words[0] = "cuInit";
        expected_words[1] = "CUDA_ERROR_NO_DEVICE (100)";
    }
    return cmocka_run_group_tests(without, NULL, NULL);
}
