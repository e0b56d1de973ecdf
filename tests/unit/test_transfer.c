/* SPDX-License-Identifier: Apache-2.0
 *
 * What is moved, and what is refused: sizes, items, ranges, access, options.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "transfer_duo.h"

#define SLICE (256u * 1024u)

static void
test_transfer__every_size_around_every_limit_arrives(void **state)
{
    static const size_t sizes[] = {0,         1,       2,         63,        64,      65,
                                   4095,      4096,    4097,      8191,      8192,    8193,
                                   16383,     16384,   16385,     65535,     65536,   65537,
                                   SLICE - 1, SLICE,   SLICE + 1, 2 * SLICE, 1048575, 1048577,
                                   4194303,   4194305, 16777215,  16777217,  67108864};
    struct duo duo;
    struct area local, remote;
    yb_transfer_region region;

    (void)state;
    duo_init(&duo);
    area_init(&remote, sizes[sizeof(sizes) / sizeof(sizes[0]) - 1] + 3);
    region = duo_register(duo.there, &remote);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
            bool reads = op == YB_TRANSFER_READ;
            struct yb_transfer_item item;
            struct yb_transfer_item_status status;
            struct yb_transfer_batch_status end;

            area_init(&local, sizes[i]);
            memset(remote.bytes, 0, sizes[i] + 3);
            fill(reads ? remote.bytes + 3 : local.bytes, sizes[i], i * 2 + op + 1);
            item = duo_item(op, &local, region);
            item.remote_offset = 3;
            end = duo_run(&duo, &item, 1, NULL, &status);
            assert_int_equal(end.status, YB_OK);
            assert_int_equal(end.bytes, sizes[i]);
            assert_int_equal(end.failed, 0);
            assert_false(end.in_doubt);
            assert_int_equal(status.status, YB_OK);
            assert_int_equal(status.bytes, sizes[i]);
            assert_true(sizes[i] == 0 ? status.path == 0 : (status.path & duo_paths) != 0);
            expect_pattern(local.bytes, sizes[i], i * 2 + op + 1);
            expect_pattern(remote.bytes + 3, sizes[i], i * 2 + op + 1);
            assert_true(all_are(remote.bytes, 3, 0));
            area_fini(&local);
        }
    }
    assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes, 0), YB_OK);
    area_fini(&remote);
    duo_fini(&duo);
}

/* Items of one batch, each `bytes` long, in an order that mixes places. */
static void
run_many(const struct duo *duo, uint32_t count, uint32_t bytes, bool by_address)
{
    struct yb_transfer_item *items = calloc(count, sizeof(*items));
    struct yb_transfer_item_status *statuses = calloc(count, sizeof(*statuses));
    struct area local, remote;
    yb_transfer_region region;

    area_init(&local, (size_t)count * bytes);
    area_init(&remote, (size_t)count * bytes);
    region = duo_register(duo->there, &remote);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        struct yb_transfer_batch_status end;

        fill(op == YB_TRANSFER_READ ? remote.bytes : local.bytes, local.length, count + op);
        memset(op == YB_TRANSFER_READ ? local.bytes : remote.bytes, 0, local.length);
        for (uint32_t i = 0; i < count; i++) {
            size_t at = (size_t)((i * UINT64_C(7919)) % count) * bytes; /* 7919 is prime. */

            items[i] = (struct yb_transfer_item){
                .op = op,
                .local = local.bytes + at,
                .length = bytes,
                .remote = by_address ? YB_TRANSFER_BY_ADDRESS : region,
                .remote_offset = by_address ? (uint64_t)(uintptr_t)remote.bytes + at : at,
            };
        }
        end = duo_run(duo, items, count, NULL, statuses);
        assert_int_equal(end.status, YB_OK);
        assert_int_equal(end.items, count);
        assert_int_equal(end.bytes, local.length);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(statuses[i].status, YB_OK);
            assert_int_equal(statuses[i].bytes, bytes);
        }
        expect_pattern(local.bytes, local.length, count + op);
        expect_pattern(remote.bytes, local.length, count + op);
    }
    assert_int_equal(yb_transfer_unregister(duo->there, remote.bytes, 0), YB_OK);
    area_fini(&local);
    area_fini(&remote);
    free(items);
    free(statuses);
}

static void
test_transfer__any_number_of_items_goes_as_one_batch(void **state)
{
    static const uint32_t counts[] = {1, 2, 63, 64, 65, 127, 128, 129, 1000, 10000};
    struct duo duo;

    (void)state;
    duo_init(&duo);
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        run_many(&duo, counts[i], 100, false);
        run_many(&duo, counts[i], 5000, true);
    }
    duo_fini(&duo);
}

static void
test_transfer__a_batch_of_empty_items_ends_at_once(void **state)
{
    struct yb_transfer_item items[100] = {{0}};
    struct yb_transfer_item_status statuses[100];
    struct yb_transfer_batch_status end;
    struct duo duo;

    (void)state;
    duo_init(&duo);
    for (uint32_t i = 0; i < 1000; i++) {
        end = duo_run(&duo, items, 100, NULL, statuses);
        assert_int_equal(end.status, YB_OK);
        assert_int_equal(end.bytes, 0);
        assert_int_equal(statuses[99].status, YB_OK);
        assert_true(end.took_ns < PATIENCE_NS);
    }
    duo_fini(&duo);
}

static void
test_transfer__both_directions_fit_in_one_batch(void **state)
{
    struct yb_transfer_item items[200];
    struct area local, remote;
    struct duo duo;
    yb_transfer_region region;

    (void)state;
    duo_init(&duo);
    area_init(&local, 200 * 3000);
    area_init(&remote, 200 * 3000);
    region = duo_register(duo.there, &remote);
    for (uint32_t i = 0; i < 200; i++) {
        bool reads = i % 3 == 0;

        fill((reads ? remote.bytes : local.bytes) + i * 3000, 3000, i);
        items[i] = (struct yb_transfer_item){
            .op = reads ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
            .local = local.bytes + i * 3000,
            .length = 3000,
            .remote = region,
            .remote_offset = i * 3000,
        };
    }
    assert_int_equal(duo_run(&duo, items, 200, NULL, NULL).status, YB_OK);
    for (uint32_t i = 0; i < 200; i++) {
        expect_pattern(local.bytes + i * 3000, 3000, i);
        expect_pattern(remote.bytes + i * 3000, 3000, i);
    }
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

/* ---- bad items -------------------------------------------------------------------------- */

struct bad {
    const char *what;
    struct yb_transfer_item item;
    enum yb_status status;
};

#define BAD_MAX 24u

/* Everything that can be wrong with one item, for areas of 4096 bytes. */
static uint32_t
bad_items(struct bad *bad, enum yb_transfer_op op, const struct area *local,
          const struct area *remote, yb_transfer_region region, yb_transfer_region dead)
{
    const uint64_t at = (uint64_t)(uintptr_t)remote->bytes;
    uint8_t *bytes = local->bytes;
    const struct bad rows[] = {
        {"no region", {op, 0, bytes, 1, 0, 0}, YB_NOT_FOUND},
        {"another number", {op, 0, bytes, 1, region + 12345, 0}, YB_NOT_FOUND},
        {"a dead region", {op, 0, bytes, 1, dead, 0}, YB_STALE},
        {"another generation", {op, 0, bytes, 1, region + (UINT64_C(1) << 40), 0}, YB_STALE},
        {"one byte too long", {op, 0, bytes, 4096, region, 1}, YB_INVALID},
        {"behind the end", {op, 0, bytes, 1, region, 4096}, YB_INVALID},
        {"far behind the end", {op, 0, bytes, 1, region, UINT64_MAX - 1}, YB_INVALID},
        {"offset wraps", {op, 0, bytes, 4096, region, UINT64_MAX - 4095}, YB_INVALID},
        {"unregistered address",
         {op, 0, bytes, 1, YB_TRANSFER_BY_ADDRESS, (uint64_t)(uintptr_t)&rows},
         YB_NOT_FOUND},
        {"address zero", {op, 0, bytes, 1, YB_TRANSFER_BY_ADDRESS, 0}, YB_NOT_FOUND},
        {"just before", {op, 0, bytes, 1, YB_TRANSFER_BY_ADDRESS, at - 1}, YB_NOT_FOUND},
        {"across the end", {op, 0, bytes, 2, YB_TRANSFER_BY_ADDRESS, at + 4095}, YB_NOT_FOUND},
        {"wraps", {op, 0, bytes, 8192, YB_TRANSFER_BY_ADDRESS, UINT64_MAX - 4095}, YB_INVALID},
        {"2^63", {op, 0, bytes, UINT64_C(1) << 63, region, 0}, YB_TOO_LARGE},
        {"no address", {op, 0, NULL, 1, region, 0}, YB_INVALID},
        {"an unknown op", {op + 7, 0, bytes, 1, region, 0}, YB_INVALID},
    };

    memcpy(bad, rows, sizeof(rows));
    return sizeof(rows) / sizeof(rows[0]);
}

static bool
is_refusal(enum yb_status found, enum yb_status wanted)
{
    /* By address, a range is unknown or leaves a region: either word is right. */
    return found == wanted || ((wanted == YB_NOT_FOUND || wanted == YB_STALE) &&
                               (found == YB_INVALID || found == YB_NOT_FOUND || found == YB_STALE));
}

static void
test_transfer__a_bad_item_fails_alone_and_touches_nothing(void **state)
{
    struct yb_transfer_item items[2 * BAD_MAX + 1];
    struct yb_transfer_item_status statuses[2 * BAD_MAX + 1];
    struct area local, remote, gone, good;
    yb_transfer_region region, dead, fine;
    struct bad bad[BAD_MAX];
    struct duo duo;

    (void)state;
    duo_init(&duo);
    area_init(&local, 4096);
    area_init(&remote, 4096);
    area_init(&gone, 4096);
    area_init(&good, (BAD_MAX + 1) * 1000);
    region = duo_register(duo.there, &remote);
    fine = duo_register(duo.there, &good);
    dead = duo_register(duo.there, &gone);
    assert_int_equal(yb_transfer_unregister(duo.there, gone.bytes, 0), YB_OK);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        uint32_t count = bad_items(bad, op, &local, &remote, region, dead);
        struct yb_transfer_batch_status end;
        struct area own;

        area_init(&own, good.length);
        fill(op == YB_TRANSFER_READ ? good.bytes : own.bytes, own.length, 5);
        memset(op == YB_TRANSFER_READ ? own.bytes : good.bytes, 0, own.length);
        memset(local.bytes, 0x11, local.length);
        memset(remote.bytes, 0x22, remote.length);
        for (uint32_t i = 0; i <= count; i++) { /* Good and bad in turn; a good one last. */
            items[2 * i] =
                (struct yb_transfer_item){op, 0, own.bytes + i * 1000, 1000, fine, i * 1000};
            if (i < count) {
                items[2 * i + 1] = bad[i].item;
            }
        }
        end = duo_run(&duo, items, 2 * count + 1, NULL, statuses);
        assert_int_equal(end.failed, count);
        assert_true(end.status != YB_OK && !end.in_doubt);
        assert_int_equal(end.bytes, (count + 1) * 1000);
        for (uint32_t i = 0; i < count; i++) {
            if (!is_refusal(statuses[2 * i + 1].status, bad[i].status)) {
                fail_msg("%s: %s", bad[i].what, yb_status_name(statuses[2 * i + 1].status));
            }
            assert_int_equal(statuses[2 * i + 1].bytes, 0);
            assert_false(statuses[2 * i + 1].in_doubt);
            assert_int_equal(statuses[2 * i].status, YB_OK);
        }
        expect_pattern(own.bytes, (count + 1) * 1000, 5);
        expect_pattern(good.bytes, (count + 1) * 1000, 5);
        assert_true(all_are(local.bytes, local.length, 0x11));
        assert_true(all_are(remote.bytes, remote.length, 0x22));
        for (uint32_t i = 0; i < count; i++) { /* And each for itself. */
            end = duo_run(&duo, &bad[i].item, 1, NULL, statuses);
            assert_true(is_refusal(end.status, bad[i].status));
            assert_int_equal(end.failed, 1);
        }
        area_fini(&own);
    }
    area_fini(&local);
    area_fini(&remote);
    area_fini(&gone);
    area_fini(&good);
    duo_fini(&duo);
}

static void
test_transfer__a_large_bad_item_among_good_ones_fails_alone(void **state)
{
    struct yb_transfer_item items[3];
    struct yb_transfer_item_status statuses[3];
    struct area local, remote;
    struct duo duo;
    yb_transfer_region region;

    (void)state;
    duo_init(&duo);
    area_init(&local, 5 * SLICE + 77);
    area_init(&remote, 5 * SLICE + 77);
    region = duo_register(duo.there, &remote);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        struct yb_transfer_batch_status end;

        fill(local.bytes, local.length, 1);
        fill(remote.bytes, remote.length, op == YB_TRANSFER_READ ? 1 : 2);
        items[0] = (struct yb_transfer_item){op, 0, local.bytes, 1000, region, 0};
        items[1] = (struct yb_transfer_item){op, 0, local.bytes, local.length, region + 99, 0};
        items[2] =
            (struct yb_transfer_item){op, 0, local.bytes + 1000, local.length - 1000, region, 1000};
        end = duo_run(&duo, items, 3, NULL, statuses);
        assert_int_equal(end.failed, 1);
        assert_int_equal(end.bytes, local.length);
        assert_int_equal(statuses[0].status, YB_OK);
        assert_true(is_refusal(statuses[1].status, YB_NOT_FOUND));
        assert_int_equal(statuses[2].status, YB_OK);
        expect_pattern(local.bytes, local.length, 1);
        expect_pattern(remote.bytes, remote.length, 1);
    }
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

static void
test_transfer__a_mask_of_access_is_kept(void **state)
{
    struct yb_transfer_memory memory = {.struct_bytes = sizeof(memory)};
    struct area local, remote;
    struct duo duo;

    (void)state;
    duo_init(&duo);
    area_init(&local, 100000);
    area_init(&remote, 100000);
    for (uint32_t access = 1; access <= 3; access++) {
        yb_transfer_region region;
        enum yb_status read_status = (access & YB_TRANSFER_MAY_READ) != 0 ? YB_OK : YB_DENIED;
        enum yb_status write_status = (access & YB_TRANSFER_MAY_WRITE) != 0 ? YB_OK : YB_DENIED;
        struct yb_transfer_item item;

        memory.access = access;
        assert_int_equal(
            yb_transfer_register(duo.there, remote.bytes, remote.length, &memory, &region), YB_OK);
        memset(local.bytes, 0x11, local.length);
        memset(remote.bytes, 0x22, remote.length);
        item = duo_item(YB_TRANSFER_READ, &local, region);
        assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, read_status);
        assert_true(all_are(local.bytes, local.length, read_status == YB_OK ? 0x22 : 0x11));
        memset(local.bytes, 0x33, local.length);
        item = duo_item(YB_TRANSFER_WRITE, &local, region);
        assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, write_status);
        assert_true(all_are(remote.bytes, remote.length, write_status == YB_OK ? 0x33 : 0x22));
        assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes, 0), YB_OK);
    }
    memory.access = 4;
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 1, &memory, NULL), YB_INVALID);
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

/* ---- registering (S39) ------------------------------------------------------------------- */

static void
test_transfer__the_same_range_is_counted_and_an_overlap_is_refused(void **state)
{
    yb_transfer_region first = 0, second = 0, beside = 0;
    struct area local, remote;
    struct yb_transfer_item item;
    struct duo duo;

    (void)state;
    duo_init(&duo);
    area_init(&local, 4096);
    area_init(&remote, 3 * 4096);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 4096, NULL, &first), YB_OK);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 4096, NULL, &second), YB_OK);
    assert_int_equal(first, second);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 4097, NULL, NULL), YB_EXISTS);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 4095, NULL, NULL), YB_EXISTS);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes + 4095, 2, NULL, NULL),
                     YB_EXISTS);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes + 4096, 4096, NULL, &beside),
                     YB_OK);
    assert_true(beside != first);
    fill(local.bytes, 4096, 9);
    item = duo_item(YB_TRANSFER_WRITE, &local, first);
    assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes, 0), YB_OK);
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    expect_pattern(remote.bytes, 4096, 9);
    assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes, 0), YB_OK);
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_STALE);
    assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes, 0), YB_NOT_FOUND);
    assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes + 1, 0), YB_NOT_FOUND);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 4096, NULL, &second), YB_OK);
    assert_true(second != first);
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_STALE);
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

static void
test_transfer__what_cannot_be_registered_is_refused_with_its_reason(void **state)
{
    struct yb_transfer_options options = duo_options();
    struct area area;
    uint8_t *page =
        mmap(NULL, 3 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct yb_transfer *engine;
    void *base;

    (void)state;
    options.regions_max = 2;
    engine = duo_engine(&options);
    area_init(&area, 100);
    assert_int_equal(yb_transfer_register(engine, NULL, 10, NULL, NULL), YB_INVALID);
    assert_int_equal(yb_transfer_register(engine, area.bytes, 0, NULL, NULL), YB_INVALID);
    assert_int_equal(yb_transfer_register(engine, area.bytes, UINT64_MAX, NULL, NULL), YB_INVALID);
    assert_int_equal(yb_transfer_register(engine, area.bytes, UINT64_C(1) << 50, NULL, NULL),
                     YB_FAULT);
    assert_int_equal(mprotect(page, 4096, PROT_NONE), 0);
    assert_int_equal(yb_transfer_register(engine, page, 4096, NULL, NULL), YB_FAULT);
    assert_int_equal(yb_transfer_register(engine, page, 2 * 4096, NULL, NULL), YB_FAULT);
    assert_int_equal(munmap(page + 8192, 4096), 0);
    assert_int_equal(yb_transfer_register(engine, page + 4096, 8192, NULL, NULL), YB_FAULT);
    assert_int_equal(yb_transfer_register(engine, area.bytes, 10, NULL, NULL), YB_OK);
    assert_int_equal(yb_transfer_register(engine, area.bytes + 10, 10, NULL, NULL), YB_OK);
    assert_int_equal(yb_transfer_register(engine, area.bytes + 20, 10, NULL, NULL), YB_TOO_LARGE);
    assert_int_equal(yb_transfer_alloc(engine, 4096, NULL, &base), YB_TOO_LARGE);
    yb_transfer_destroy(&engine);
    area_fini(&area);
    munmap(page, 8192);
}

static void
test_transfer__ten_thousand_adjacent_regions_are_each_their_own(void **state)
{
    enum { COUNT = 10000, BYTES = 64 };
    struct yb_transfer_item *items = calloc(COUNT, sizeof(*items));
    struct area local, remote;
    struct duo duo;

    (void)state;
    duo_init(&duo);
    area_init(&local, COUNT * BYTES);
    area_init(&remote, COUNT * BYTES);
    fill(local.bytes, local.length, 4);
    for (uint32_t i = 0; i < COUNT; i++) {
        yb_transfer_region region;

        assert_int_equal(
            yb_transfer_register(duo.there, remote.bytes + i * BYTES, BYTES, NULL, &region), YB_OK);
        items[i] = (struct yb_transfer_item){
            YB_TRANSFER_WRITE, 0, local.bytes + i * BYTES, BYTES, region, 0};
    }
    assert_int_equal(duo_run(&duo, items, COUNT, NULL, NULL).status, YB_OK);
    expect_pattern(remote.bytes, remote.length, 4);
    items[0].length = BYTES + 1; /* Across two that touch. */
    assert_int_equal(duo_run(&duo, items, 1, NULL, NULL).status, YB_INVALID);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(yb_transfer_unregister(duo.there, remote.bytes + i * BYTES, 0), YB_OK);
    }
    free(items);
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

static void
test_transfer__allocated_memory_is_registered_until_it_is_freed(void **state)
{
    struct yb_transfer_item item;
    struct area local;
    struct duo duo;
    void *base = NULL;

    (void)state;
    duo_init(&duo);
    area_init(&local, 1000007);
    fill(local.bytes, local.length, 3);
    assert_int_equal(yb_transfer_alloc(duo.there, 0, NULL, &base), YB_INVALID);
    assert_int_equal(yb_transfer_alloc(duo.there, local.length, NULL, &base), YB_OK);
    item = duo_item(YB_TRANSFER_WRITE, &local, YB_TRANSFER_BY_ADDRESS);
    item.remote_offset = (uint64_t)(uintptr_t)base;
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    expect_pattern(base, local.length, 3);
    assert_int_equal(yb_transfer_free(duo.there, &base, 0), YB_OK);
    assert_null(base);
    base = local.bytes;
    assert_int_equal(yb_transfer_free(duo.there, &base, 0), YB_NOT_FOUND);
    assert_ptr_equal(base, local.bytes);
    assert_true(is_refusal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_NOT_FOUND));
    assert_int_equal(yb_transfer_alloc(duo.there, local.length, NULL, &base), YB_OK);
    duo_fini(&duo); /* Frees what is left. */
    area_fini(&local);
}

/* ---- options, credentials, texts ---------------------------------------------------------- */

static void
test_transfer__options_are_checked_and_their_defaults_work(void **state)
{
    struct yb_transfer_options options = {0};
    struct yb_transfer *engine = NULL;
    char message[256];
    char address[64];

    (void)state;
    assert_int_equal(yb_transfer_create(NULL, &engine, NULL, 0), YB_OK);
    assert_int_equal(yb_transfer_address(engine, address, 3), YB_TOO_SMALL);
    assert_int_equal(yb_transfer_address(engine, address, sizeof(address)), YB_OK);
    assert_memory_equal(address, "127.0.0.1:", 10);
    yb_transfer_destroy(&engine);

#define EXPECT_REFUSED(wanted, field, value)                                                       \
    do {                                                                                           \
        options = duo_options();                                                                   \
        options.field = value;                                                                     \
        message[0] = '\0';                                                                         \
        assert_int_equal(yb_transfer_create(&options, &engine, message, sizeof(message)), wanted); \
        assert_null(engine);                                                                       \
        assert_true(strlen(message) > 10);                                                         \
        assert_int_equal(yb_transfer_create(&options, &engine, NULL, 0), wanted);                  \
    } while (0)
    EXPECT_REFUSED(YB_INVALID, struct_bytes, 0);
    EXPECT_REFUSED(YB_INVALID, struct_bytes, 7);
    EXPECT_REFUSED(YB_INVALID, struct_bytes, 100000);
    EXPECT_REFUSED(YB_INVALID, workers, 65);
    EXPECT_REFUSED(YB_INVALID, streams, 17);
    EXPECT_REFUSED(YB_INVALID, paths, 0x80);
    EXPECT_REFUSED(YB_INVALID, regions_max, UINT32_MAX);
    EXPECT_REFUSED(YB_INVALID, batches_max, UINT32_MAX);
    EXPECT_REFUSED(YB_INVALID, role, "king");
    EXPECT_REFUSED(YB_INVALID, tenant, "a b");
    EXPECT_REFUSED(YB_INVALID, tenant, "");
    EXPECT_REFUSED(YB_INVALID, listen, "host:99999");
    EXPECT_REFUSED(YB_INVALID, listen, "host:abc");
    EXPECT_REFUSED(YB_DENIED, listen, "0.0.0.0:0");
    EXPECT_REFUSED(YB_DENIED, secret_file, "/nonexistent/secret");
#undef EXPECT_REFUSED
    options = duo_options();
    options.insecure = true;
    options.listen = "0.0.0.0:0";
    engine = duo_engine(&options);
    yb_transfer_destroy(&engine);
}

static void
test_transfer__a_port_that_is_taken_is_named(void **state)
{
    struct yb_transfer_options options = duo_options();
    struct yb_transfer *first = duo_engine(&options);
    struct yb_transfer *second = NULL;
    char address[64], message[256] = "";

    (void)state;
    assert_int_equal(yb_transfer_address(first, address, sizeof(address)), YB_OK);
    options.listen = address;
    assert_int_equal(yb_transfer_create(&options, &second, message, sizeof(message)),
                     YB_ADDRESS_IN_USE);
    assert_non_null(strstr(message, address));
    yb_transfer_destroy(&first);
    second = duo_engine(&options); /* And free again at once. */
    yb_transfer_destroy(&second);
}

/* An older caller's structs end earlier; what it does not know is at its default. */
static void
test_transfer__an_older_caller_is_understood(void **state)
{
    struct yb_transfer_options options;
    struct yb_transfer_batch_options batch_options;
    struct yb_transfer_memory memory;
    struct yb_transfer_item item;
    struct area local, remote;
    struct duo duo;
    yb_transfer_region region;

    (void)state;
    memset(&options, 0xff, sizeof(options)); /* What is behind struct_bytes must not be read. */
    options.struct_bytes = offsetof(struct yb_transfer_options, listen);
    duo_init_with(&duo, &options, &options);
    area_init(&local, 1000);
    area_init(&remote, 1000);
    memset(&memory, 0xff, sizeof(memory));
    memory.struct_bytes = offsetof(struct yb_transfer_memory, access);
    assert_int_equal(yb_transfer_register(duo.there, remote.bytes, 1000, &memory, &region), YB_OK);
    memory.struct_bytes = 1;
    assert_int_equal(yb_transfer_register(duo.there, local.bytes, 1000, &memory, NULL), YB_INVALID);
    memset(&batch_options, 0xff, sizeof(batch_options));
    batch_options.struct_bytes = offsetof(struct yb_transfer_batch_options, timeout_ns);
    fill(local.bytes, 1000, 8);
    item = duo_item(YB_TRANSFER_WRITE, &local, region);
    assert_int_equal(duo_run(&duo, &item, 1, &batch_options, NULL).status, YB_OK);
    expect_pattern(remote.bytes, 1000, 8);
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

static void
test_transfer__a_submit_that_is_refused_starts_nothing(void **state)
{
    struct yb_transfer_batch_options options = {.struct_bytes = sizeof(options)};
    struct yb_transfer_options engine_options = duo_options();
    struct yb_transfer_item item = {.op = YB_TRANSFER_READ};
    yb_transfer_batch batch = 77, held[2];
    struct stall *stall;
    struct duo duo;
    char notify[5000] = "";

    (void)state;
    engine_options.batches_max = 2;
    duo_init_with(&duo, &engine_options, &engine_options);
#define EXPECT_REFUSED(wanted, peer, items, count)                                           \
    do {                                                                                     \
        assert_int_equal(yb_transfer_submit(duo.here, peer, items, count, &options, &batch), \
                         wanted);                                                            \
        assert_int_equal(batch, 77);                                                         \
    } while (0)
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, 0);
    EXPECT_REFUSED(YB_INVALID, duo.peer, NULL, 1);
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, YB_TRANSFER_ITEMS_MAX + 1);
    EXPECT_REFUSED(YB_CLOSED, 0, &item, 1);
    EXPECT_REFUSED(YB_CLOSED, duo.peer + 1, &item, 1);
    EXPECT_REFUSED(YB_CLOSED, duo.peer + (UINT64_C(1) << 32), &item, 1);
    EXPECT_REFUSED(YB_CLOSED, UINT64_MAX, &item, 1);
    options.work_class = YB_CLASS_COUNT;
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, 1);
    options.work_class = 0;
    options.notify = notify;
    options.notify_bytes = 4097;
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, 1);
    options.notify = NULL;
    options.notify_bytes = 1;
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, 1);
    options.notify_bytes = 0;
    options.struct_bytes = 3;
    EXPECT_REFUSED(YB_INVALID, duo.peer, &item, 1);
    options.struct_bytes = sizeof(options);
    stall = stall_begin(duo.here, duo.peer); /* Its batch is released already. */
    assert_int_equal(yb_transfer_submit(duo.here, duo.peer, &item, 1, NULL, &held[0]), YB_OK);
    assert_int_equal(yb_transfer_submit(duo.here, duo.peer, &item, 1, NULL, &held[1]), YB_OK);
    EXPECT_REFUSED(YB_AGAIN, duo.peer, &item, 1);
#undef EXPECT_REFUSED
    assert_int_equal(yb_transfer_release(duo.here, held[0]), YB_BUSY);
    assert_int_equal(yb_transfer_wait(duo.here, held[0], 0), YB_TIMED_OUT);
    stall_end(&stall);
    (void)duo_end(duo.here, held[0], NULL, 0);
    (void)duo_end(duo.here, held[1], NULL, 0);
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    duo_fini(&duo);
}

static void
test_transfer__every_combination_of_workers_streams_and_classes_moves_bytes(void **state)
{
    static const uint32_t shapes[][2] = {{1, 1}, {1, 16}, {2, 4}, {4, 3}};
    struct area local, remote;

    (void)state;
    area_init(&local, 3000001);
    area_init(&remote, 3000001);
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        struct yb_transfer_options options = duo_options();
        struct yb_transfer_batch_options batch = {.struct_bytes = sizeof(batch)};
        struct yb_transfer_item item;
        yb_transfer_region region;
        struct duo duo;

        options.workers = shapes[i][0];
        options.streams = shapes[i][1];
        duo_init_with(&duo, &options, &options);
        region = duo_register(duo.there, &remote);
        for (uint32_t class = 0; class < YB_CLASS_COUNT; class ++) {
            batch.work_class = class;
            fill(local.bytes, local.length, i * 10 + class);
            item = duo_item(YB_TRANSFER_WRITE, &local, region);
            assert_int_equal(duo_run(&duo, &item, 1, &batch, NULL).status, YB_OK);
            expect_pattern(remote.bytes, remote.length, i * 10 + class);
        }
        duo_fini(&duo);
    }
    area_fini(&local);
    area_fini(&remote);
}

static void
write_secret(char *path, const char *digits)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_true(write(fd, digits, strlen(digits)) == (ssize_t)strlen(digits));
    close(fd);
}

static enum yb_status
write_within(const struct yb_transfer_options *here, const struct yb_transfer_options *there,
             uint64_t timeout_ns)
{
    struct yb_transfer_batch_options batch = {
        .struct_bytes = sizeof(batch),
        .timeout_ns = timeout_ns,
    };
    struct area local, remote;
    struct yb_transfer_item item;
    struct duo duo;
    enum yb_status status;

    duo_init_with(&duo, here, there);
    area_init(&local, 1000000);
    area_init(&remote, 1000000);
    fill(local.bytes, local.length, 1);
    item = duo_item(YB_TRANSFER_WRITE, &local, duo_register(duo.there, &remote));
    status = duo_run(&duo, &item, 1, &batch, NULL).status;
    if (status == YB_OK) {
        expect_pattern(remote.bytes, remote.length, 1);
        item.op = YB_TRANSFER_READ;
        memset(local.bytes, 0, local.length);
        assert_int_equal(duo_run(&duo, &item, 1, &batch, NULL).status, YB_OK);
        expect_pattern(local.bytes, local.length, 1);
    } else {
        assert_true(all_are(remote.bytes, remote.length, 0));
    }
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
    return status;
}

/* Those that are refused are told so long before that. */
static enum yb_status
write_between(const struct yb_transfer_options *here, const struct yb_transfer_options *there)
{
    return write_within(here, there, PATIENCE_NS);
}

static void
test_transfer__only_the_own_tenant_and_nodes_reach_memory(void **state)
{
    struct yb_transfer_options here = duo_options();
    struct yb_transfer_options there = duo_options();

    (void)state;
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.tenant = "other";
    assert_int_equal(write_between(&here, &there), YB_DENIED);
    there.tenant = "other";
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.role = "directory";
    assert_int_equal(write_between(&here, &there), YB_DENIED);
    here.role = "node";
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.role = "admin";
    assert_int_equal(write_between(&here, &there), YB_OK);
}

static void
test_transfer__a_secret_and_tls_are_both_honoured(void **state)
{
    char path[] = "/tmp/yuebing-secret.XXXXXX";
    char other[] = "/tmp/yuebing-secret.XXXXXX";
    struct yb_transfer_options here = duo_options();
    struct yb_transfer_options there = duo_options();

    (void)state;
    write_secret(path, "secret "
                       "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    write_secret(other, "secret "
                        "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n");
    here.secret_file = there.secret_file = path;
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.secret_file = other;
    assert_int_equal(write_between(&here, &there), YB_DENIED);
    here.secret_file = path;
    here.tls = there.tls = true;
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.secret_file = there.secret_file = NULL;
    assert_int_equal(write_between(&here, &there), YB_OK);
    here.tls = false;
    assert_true(write_within(&here, &there, 2 * SECOND_NS) != YB_OK); /* It is tried and tried. */
    unlink(path);
    unlink(other);
}

static void
test_transfer__statistics_and_topology_are_json_that_counts_bytes(void **state)
{
    struct yb_transfer_item item;
    struct area local, remote;
    struct duo duo;
    char *text = NULL;

    (void)state;
    duo_init(&duo);
    area_init(&local, 123457);
    area_init(&remote, 123457);
    item = duo_item(YB_TRANSFER_WRITE, &local, duo_register(duo.there, &remote));
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    item.op = YB_TRANSFER_READ;
    item.length = 54321;
    assert_int_equal(duo_run(&duo, &item, 1, NULL, NULL).status, YB_OK);
    assert_int_equal(yb_transfer_stats(duo.here, &text), YB_OK);
    assert_non_null(strstr(text, "\"bytes_written\": 123457"));
    assert_non_null(strstr(text, "\"bytes_read\": 54321"));
    assert_non_null(strstr(text, duo.address));
    free(text);
    assert_int_equal(yb_transfer_topology(duo.there, &text), YB_OK);
    assert_non_null(strstr(text, "\"length\": 123457"));
    assert_non_null(strstr(text, duo.address));
    free(text);
    area_fini(&local);
    area_fini(&remote);
    duo_fini(&duo);
}

static void
test_transfer__a_probe_tells_who_answers_and_how(void **state)
{
    struct yb_transfer_probe probe, again;
    struct yb_transfer_options options = duo_options();
    struct duo duo;
    yb_transfer_peer nobody, dumb;
    struct yb_transfer *gone;
    char address[64];

    (void)state;
    duo_init(&duo);
    assert_int_equal(yb_transfer_ask(duo.here, duo.peer, PATIENCE_NS, &probe), YB_OK);
    assert_memory_equal(probe.software, "yuebing", 7);
    assert_false(yb_id_is_none(probe.identity));
    assert_false(probe.authenticated);
    assert_true(probe.round_trip_ns > 0 && probe.round_trip_ns < PATIENCE_NS);
    assert_true((probe.paths & YB_TRANSFER_PATH_TCP) != 0);
    assert_int_equal(yb_transfer_ask(duo.here, duo.peer, PATIENCE_NS, &again), YB_OK);
    assert_true(yb_id_equal(probe.identity, again.identity));
    assert_int_equal(yb_transfer_ask(duo.here, duo.peer + 1, PATIENCE_NS, &probe), YB_CLOSED);
    gone = duo_engine(&options);
    assert_int_equal(yb_transfer_address(gone, address, sizeof(address)), YB_OK);
    yb_transfer_destroy(&gone);
    nobody = duo_open(duo.here, address);
    assert_int_equal(yb_transfer_ask(duo.here, nobody, 5 * SECOND_NS, &probe), YB_REFUSED);
    assert_int_equal(yb_transfer_ask(duo.here, nobody, 0, &probe), YB_TIMED_OUT);
    assert_int_equal(yb_transfer_open(duo.here, "", &dumb), YB_INVALID);
    assert_int_equal(yb_transfer_open(duo.here, "127.0.0.1", &dumb), YB_INVALID);
    assert_int_equal(yb_transfer_open(duo.here, "127.0.0.1:0", &dumb), YB_INVALID);
    assert_int_equal(yb_transfer_open(duo.here, "127.0.0.1:99999", &dumb), YB_INVALID);
    duo_fini(&duo);
}

#define SPREAD_BYTES  (2u << 20)
#define SPREAD_PIECES 700u

struct spread {
    struct duo duo;
    void *local;
    void *remote;
    yb_transfer_region region;
};

/* Move `count` pieces, all in other places here than there, and look at both. */
static void
spread(const struct spread *places, uint32_t count, uint64_t length, uint64_t seed)
{
    uint8_t *local = places->local;
    uint8_t *remote = places->remote;
    static struct yb_transfer_item items[SPREAD_PIECES];
    uint64_t apart = SPREAD_BYTES / count;
    uint32_t op = seed % 2 == 0 ? YB_TRANSFER_WRITE : YB_TRANSFER_READ;
    uint8_t *to = op == YB_TRANSFER_WRITE ? remote : local;

    fill(op == YB_TRANSFER_WRITE ? local : remote, SPREAD_BYTES, seed);
    memset(to, 0, SPREAD_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct yb_transfer_item){
            .op = op,
            .local = local + i * 11 % count * apart, /* 11 divides no count. */
            .length = length,
            .remote = places->region,
            .remote_offset = i * apart + 1,
        };
    }
    assert_int_equal(duo_run(&places->duo, items, count, NULL, NULL).status, YB_OK);
    expect_pattern(op == YB_TRANSFER_WRITE ? local : remote, SPREAD_BYTES, seed);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t here = i * 11 % count * apart;
        uint64_t there = i * apart + 1;

        assert_memory_equal(local + here, remote + there, length);
        assert_true(all_are(to + (to == local ? here : there) + length, apart - length - 1, 0));
    }
}

static void
test_transfer__scattered_pieces_of_allocated_memory_arrive_each_in_its_place(void **state)
{
    struct yb_transfer_item_status went = {.path = 0};
    struct yb_transfer_item item = {.op = YB_TRANSFER_WRITE, .length = 8};
    struct spread places = {.local = NULL};
    struct duo *duo = &places.duo;

    (void)state;
    duo_init(duo);
    assert_int_equal(yb_transfer_alloc(duo->here, SPREAD_BYTES, NULL, &places.local), YB_OK);
    assert_int_equal(yb_transfer_alloc(duo->there, SPREAD_BYTES, NULL, &places.remote), YB_OK);
    assert_int_equal(
        yb_transfer_register(duo->there, places.remote, SPREAD_BYTES, NULL, &places.region), YB_OK);
    item.local = places.local;
    item.remote = places.region;
    while (went.path != (duo_paths != YB_TRANSFER_PATH_TCP ? YB_TRANSFER_PATH_SHM : duo_paths)) {
        assert_int_equal(duo_run(duo, &item, 1, NULL, &went).status, YB_OK);
    }
    for (uint64_t seed = 0; seed < 4; seed++) {
        spread(&places, 1, 200001, seed);
        spread(&places, 1, SPREAD_BYTES - 3, seed);
        spread(&places, 5, 100000, seed);
        spread(&places, 300, 4096, seed);
        spread(&places, SPREAD_PIECES, 999, seed);
    }
    assert_int_equal(yb_transfer_unregister(duo->there, places.remote, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_transfer_free(duo->there, &places.remote, PATIENCE_NS), YB_OK);
    assert_int_equal(yb_transfer_free(duo->here, &places.local, PATIENCE_NS), YB_OK);
    duo_fini(duo);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer__every_size_around_every_limit_arrives),
        cmocka_unit_test(test_transfer__any_number_of_items_goes_as_one_batch),
        cmocka_unit_test(test_transfer__a_batch_of_empty_items_ends_at_once),
        cmocka_unit_test(test_transfer__both_directions_fit_in_one_batch),
        cmocka_unit_test(test_transfer__a_bad_item_fails_alone_and_touches_nothing),
        cmocka_unit_test(test_transfer__a_large_bad_item_among_good_ones_fails_alone),
        cmocka_unit_test(test_transfer__a_mask_of_access_is_kept),
        cmocka_unit_test(test_transfer__the_same_range_is_counted_and_an_overlap_is_refused),
        cmocka_unit_test(test_transfer__what_cannot_be_registered_is_refused_with_its_reason),
        cmocka_unit_test(test_transfer__ten_thousand_adjacent_regions_are_each_their_own),
        cmocka_unit_test(test_transfer__allocated_memory_is_registered_until_it_is_freed),
        cmocka_unit_test(test_transfer__options_are_checked_and_their_defaults_work),
        cmocka_unit_test(test_transfer__a_port_that_is_taken_is_named),
        cmocka_unit_test(test_transfer__an_older_caller_is_understood),
        cmocka_unit_test(test_transfer__a_submit_that_is_refused_starts_nothing),
        cmocka_unit_test(
            test_transfer__every_combination_of_workers_streams_and_classes_moves_bytes),
        cmocka_unit_test(test_transfer__only_the_own_tenant_and_nodes_reach_memory),
        cmocka_unit_test(test_transfer__a_secret_and_tls_are_both_honoured),
        cmocka_unit_test(test_transfer__statistics_and_topology_are_json_that_counts_bytes),
        cmocka_unit_test(test_transfer__a_probe_tells_who_answers_and_how),
        cmocka_unit_test(
            test_transfer__scattered_pieces_of_allocated_memory_arrive_each_in_its_place),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
