/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is not there, at either end (S39): the item that names it fails with FAULT, alone.
 */
#include <sys/mman.h>
#include <unistd.h>

#include "transfer_duo.h"

#define PAGE  4096u
#define PAGES 96u
#define BYTES (PAGES * PAGE)
#define GOOD  70000u

enum harm { HARM_NONE, HARM_PROTECT, HARM_READ_ONLY, HARM_TRUNCATE, HARM_COUNT };

/* Pages that can be taken away. */
struct pages {
    int fd;
    uint8_t *bytes;
};

static void
pages_init(struct pages *pages)
{
    pages->fd = memfd_create("pages", MFD_CLOEXEC);
    assert_true(pages->fd >= 0);
    assert_int_equal(ftruncate(pages->fd, BYTES), 0);
    pages->bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, pages->fd, 0);
    assert_true(pages->bytes != MAP_FAILED);
    memset(pages->bytes, 0x44, BYTES);
}

static void
pages_fini(struct pages *pages)
{
    munmap(pages->bytes, BYTES);
    close(pages->fd);
}

/* Make the pages from `page` on bad. */
static void
pages_harm(struct pages *pages, enum harm harm, uint32_t page)
{
    uint8_t *at = pages->bytes + page * PAGE;

    switch (harm) {
    case HARM_PROTECT: assert_int_equal(mprotect(at, PAGE, PROT_NONE), 0); break;
    case HARM_READ_ONLY: assert_int_equal(mprotect(at, PAGE, PROT_READ), 0); break;
    case HARM_TRUNCATE: assert_int_equal(ftruncate(pages->fd, page * PAGE), 0); break;
    default: break;
    }
}

struct rig {
    struct duo duo;
    struct area local;
    struct area remote;
    yb_transfer_region region;
};

static void
rig_init(struct rig *rig, bool tls)
{
    struct yb_transfer_options options = duo_options();

    options.tls = tls;
    duo_init_with(&rig->duo, &options, &options);
    area_init(&rig->local, 4 * GOOD);
    area_init(&rig->remote, 4 * GOOD);
    rig->region = duo_register(rig->duo.there, &rig->remote);
}

static void
rig_fini(struct rig *rig)
{
    duo_fini(&rig->duo);
    area_fini(&rig->local);
    area_fini(&rig->remote);
}

/* Run the bad item between good ones of the same direction: it fails with FAULT, they do not. */
static void
run_among_good(struct rig *rig, const struct yb_transfer_item *bad)
{
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .timeout_ns = 20 * SECOND_NS,
    };
    struct yb_transfer_item items[4];
    struct yb_transfer_item_status ends[4];
    static uint64_t seed;
    bool reads = bad->op == YB_TRANSFER_READ;
    struct yb_transfer_batch_status end;

    fill(reads ? rig->remote.bytes : rig->local.bytes, 3 * GOOD, ++seed);
    memset(reads ? rig->local.bytes : rig->remote.bytes, 0, 3 * GOOD);
    for (uint32_t i = 0; i < 3; i++) {
        items[i + (i > 0)] = (struct yb_transfer_item){
            .op = bad->op,
            .local = rig->local.bytes + i * GOOD,
            .length = GOOD,
            .remote = rig->region,
            .remote_offset = i * GOOD,
        };
    }
    items[1] = *bad;
    end = duo_run(&rig->duo, items, 4, &options, ends);
    assert_int_equal(ends[1].status, YB_FAULT);
    assert_int_equal(end.failed, 1);
    assert_int_equal(end.status, YB_FAULT);
    assert_false(end.in_doubt);
    expect_pattern(rig->local.bytes, 3 * GOOD, seed);
    expect_pattern(rig->remote.bytes, 3 * GOOD, seed);
}

/* Lengths that go through the receiver's buffer, straight, and in several slices. */
static const uint32_t lengths[] = {1, 100, PAGE, 5 * PAGE, 70 * PAGE, 90 * PAGE};

static void
run_local(bool tls)
{
    struct pages pages;
    struct rig rig;

    rig_init(&rig, tls);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        for (uint32_t harm = HARM_PROTECT; harm < HARM_COUNT; harm++) {
            if (harm == HARM_READ_ONLY && op == YB_TRANSFER_WRITE) {
                continue;
            }
            for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                struct yb_transfer_item bad = {
                    .op = op,
                    .length = lengths[i],
                    .remote = rig.region,
                };
                struct area big;

                /* A new handle: what is tried again after a loss is tried later each time. */
                assert_int_equal(yb_transfer_close(rig.duo.here, rig.duo.peer), YB_OK);
                rig.duo.peer = duo_open(rig.duo.here, rig.duo.address);
                area_init(&big, BYTES);
                bad.remote = duo_register(rig.duo.there, &big);
                pages_init(&pages);
                bad.local = pages.bytes + 2 * PAGE;
                pages_harm(&pages, harm, 2 + lengths[i] / 2 / PAGE);
                run_among_good(&rig, &bad);
                pages_fini(&pages);
                assert_int_equal(yb_transfer_unregister(rig.duo.there, big.bytes, PATIENCE_NS),
                                 YB_OK);
                area_fini(&big);
            }
        }
    }
    rig_fini(&rig);
}

static void
run_remote(bool tls)
{
    struct pages pages;
    struct rig rig;
    struct area big;

    area_init(&big, BYTES);
    for (uint32_t op = YB_TRANSFER_READ; op <= YB_TRANSFER_WRITE; op++) {
        for (uint32_t harm = HARM_PROTECT; harm < HARM_COUNT; harm++) {
            if (harm == HARM_READ_ONLY && op == YB_TRANSFER_READ) {
                continue;
            }
            for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
                struct yb_transfer_item bad = {
                    .op = op,
                    .local = big.bytes,
                    .length = lengths[i],
                    .remote_offset = 2 * PAGE,
                };

                rig_init(&rig, tls); /* One that suspects nothing yet. */
                pages_init(&pages);
                assert_int_equal(
                    yb_transfer_register(rig.duo.there, pages.bytes, BYTES, NULL, &bad.remote),
                    YB_OK);
                pages_harm(&pages, harm, 2 + lengths[i] / 2 / PAGE);
                run_among_good(&rig, &bad);
                assert_int_equal(yb_transfer_unregister(rig.duo.there, pages.bytes, PATIENCE_NS),
                                 YB_OK);
                pages_fini(&pages);
                rig_fini(&rig);
            }
        }
    }
    area_fini(&big);
}

static void
test_transfer_fault__bad_local_memory_fails_its_item_alone(void **state)
{
    (void)state;
    run_local(false);
}

static void
test_transfer_fault__bad_local_memory_fails_its_item_alone_under_tls(void **state)
{
    (void)state;
    run_local(true);
}

static void
test_transfer_fault__bad_remote_memory_fails_its_item_alone(void **state)
{
    (void)state;
    run_remote(false);
}

static void
test_transfer_fault__bad_remote_memory_fails_its_item_alone_under_tls(void **state)
{
    (void)state;
    run_remote(true);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_fault__bad_local_memory_fails_its_item_alone),
        cmocka_unit_test(test_transfer_fault__bad_local_memory_fails_its_item_alone_under_tls),
        cmocka_unit_test(test_transfer_fault__bad_remote_memory_fails_its_item_alone),
        cmocka_unit_test(test_transfer_fault__bad_remote_memory_fails_its_item_alone_under_tls),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
