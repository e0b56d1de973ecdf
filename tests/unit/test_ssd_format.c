/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the bytes of the log on the medium stay what they are (tier/ssd/format.h), a log serves
 * while it is still being recovered, and nothing is allocated for an operation.
 * Method: the golden bytes were made from the description in format.h by a program of its own, with
 * a CRC32C of its own; what follows them is zero.
 */
#include "unit.h"

#include <string.h>

#include "alloc_fault.h"
#include "golden.h"
#include "ssd_stage.h"
#include "tier/ssd/format.h"

#define LIFE   0x1122334455667788u
#define UNIT   0x140u
#define BLOCKS 200u
#define BYTES  20000u

static const char golden_header[] =
    "594253471abdfcc68877665544332211030000000000000001000000000000000001020304050607"
    "08090a0b0c0d0e0f";

static const char golden_record[] =
    "5942535269886bd48877665544332211080706050403020109000000000000003031323334353637"
    "38393a3b3c3d3e3f64000000000000000b000000000000000c000000000000000d00000000000000"
    "4001000003000200050102000000000061636d65006b6579efbeadde";

static const char golden_page[] =
    "594253503dbd11ef8877665544332211020000000100000088000000000000005942535200000000"
    "887766554433221108070605040302010900000000000000303132333435363738393a3b3c3d3e3f"
    "64000000000000000b000000000000000c000000000000000d000000000000004001000003000200"
    "050102000000000061636d65006b6579";

static const char golden_trailer[] =
    "59425354de799d8688776655443322110000020000000000070000000000000002";

static const char golden_super[] =
    "5942534ca228ebbc01000000010000002a00000000000000000102030405060708090a0b0c0d0e0f"
    "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf000004000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "000000000000000000000000000000000000000000000000000000000000000061636d6500000000"
    "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
    "00000000000000000000000000000000000000000000000009";

static const char golden_map[] = "88776655443322110000000000000000000001";

static const uint8_t log_id[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

static struct yb_tier_record
golden_values(void)
{
    struct yb_tier_record record = {.grant = 0x0102030405060708,
                                    .flush = 9,
                                    .size = 100,
                                    .group = 11,
                                    .parent = 12,
                                    .expires_unix_ms = 13,
                                    .tenant = "acme",
                                    .key = (const uint8_t *)"key",
                                    .key_bytes = 3,
                                    .flags = 2,
                                    .mode = 1,
                                    .replicas = 2};

    for (uint8_t i = 0; i < 16; i++) {
        record.hash.bytes[i] = (uint8_t)(0x30 + i);
    }
    return record;
}

static void
test_ssd_format__records_and_footers_have_their_bytes(void **state)
{
    static uint8_t page[YB_SSD_FOOTER_PAGE];
    uint8_t head[YB_SSD_HEAD_BYTES_MAX];
    struct yb_tier_record record = golden_values();
    const uint32_t sum = 0xdeadbeef;
    struct yb_ssd_view view;
    uint32_t offset = 0;

    assert_int_equal(yb_ssd_head_units(&record), 2);
    yb_ssd_record_encode(&record, LIFE, UNIT, &sum, head);
    golden_compare(head, 2 * YB_SSD_UNIT_BYTES, golden_record);
    assert_true(yb_ssd_record_decode(head, 2 * YB_SSD_UNIT_BYTES, LIFE, &view));
    assert_int_equal(view.unit, UNIT);
    assert_false(yb_ssd_record_decode(head, 2 * YB_SSD_UNIT_BYTES, LIFE + 1, &view));

    yb_ssd_page_init(page, LIFE, 2);
    assert_true(yb_ssd_page_add(page, &record, UNIT));
    yb_ssd_page_seal(page);
    golden_compare(page, sizeof page, golden_page);
    assert_true(yb_ssd_page_check(page, LIFE, 2));
    assert_true(yb_ssd_page_next(page, &offset, &view));
    assert_int_equal(view.record.grant, record.grant);
    assert_false(yb_ssd_page_next(page, &offset, &view));
}

static void
test_ssd_format__segments_and_the_superblock_have_their_bytes(void **state)
{
    static uint8_t map[4096];
    static union {
        struct yb_ssd_super super;
        uint8_t bytes[4096];
    } super;
    struct yb_ssd_header header = {.life = LIFE, .number = 3, .state = YB_SSD_HEADER_OPEN};
    struct yb_ssd_trailer trailer = {
        .life = LIFE, .footer_offset = 0x20000, .records = 7, .pages = 2};
    struct yb_ssd_tenant_row row = {.name = "acme", .flush = 9};

    memcpy(header.log, log_id, sizeof log_id);
    yb_ssd_header_encode(&header);
    golden_compare(&header, sizeof header, golden_header);
    assert_true(yb_ssd_header_check(&header, log_id, 3));
    yb_ssd_trailer_encode(&trailer);
    golden_compare(&trailer, sizeof trailer, golden_trailer);

    yb_ssd_map_set(map, LIFE, UNIT);
    golden_compare(map, sizeof map, golden_map);
    assert_true(yb_ssd_map_get(map, LIFE, UNIT));
    assert_false(yb_ssd_map_get(map, LIFE + 1, UNIT));

    super.super.tenant_count = 1;
    super.super.sequence = 42;
    super.super.segment_bytes = 262144;
    memcpy(super.super.log, log_id, sizeof log_id);
    for (uint8_t i = 0; i < 16; i++) {
        super.super.node[i] = (uint8_t)(0xa0 + i);
    }
    memcpy(super.bytes + sizeof super.super, &row, sizeof row);
    yb_ssd_super_encode(&super.super);
    golden_compare(super.bytes, sizeof super.bytes, golden_super);
    assert_int_equal(yb_ssd_super_check(&super.super, sizeof super), YB_OK);
}

static void
test_ssd_format__another_version_is_told_from_damage(void **state)
{
    static union {
        struct yb_ssd_super super;
        uint8_t bytes[4096];
    } super;

    super.super.segment_bytes = 262144;
    yb_ssd_super_encode(&super.super);
    super.super.sequence++;
    assert_int_equal(yb_ssd_super_check(&super.super, sizeof super), YB_CORRUPT);
    super.super.version = YB_SSD_VERSION + 1; /* Its checksum may be another kind's, too. */
    assert_int_equal(yb_ssd_super_check(&super.super, sizeof super), YB_VERSION);
    super.super.version = 0;
    assert_int_equal(yb_ssd_super_check(&super.super, sizeof super), YB_VERSION);
}

static void
test_ssd_format__it_serves_while_it_is_being_recovered(void **state)
{
    struct stage stage;
    uint32_t served = 0;
    uint32_t stored = 0;

    stage_init(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(stage_put(&stage, i, 1 + i, BYTES), YB_OK);
    }
    stage_close(&stage);
    stage_start(&stage, false);
    for (uint32_t i = 0; !stage.recovered; i++) {
        struct yb_tier_found found;
        uint32_t key = BLOCKS;

        stage_turn(&stage);
        while (key > 0 && !yb_tier_find(stage.tier, stage_hash(key - 1), &found)) {
            key--;
        }
        if (stage.found_count == 0 || key == 0 || stage.recovered) {
            continue;
        }
        assert_int_equal(stage_get(&stage, key - 1, 0, NULL), YB_OK);
        served += !stage.recovered;
        if (stored == 0 && !stage.recovered) {
            assert_int_equal(stage_put(&stage, 1000, 5000, 100), YB_OK);
            stored++;
        }
    }
    assert_true(served > 0);
    assert_int_equal(stored, 1);
    assert_int_equal(stage_get(&stage, 1000, 0, NULL), YB_OK);
    stage_fini(&stage);
}

struct counted {
    union {
        struct yb_tier_op op;
        struct yb_tier_store store;
        struct yb_tier_load load;
    } any; /* First. */
    bool done;
    enum yb_status status;
};

static void
counted_done(struct yb_tier_op *op, enum yb_status status)
{
    struct counted *counted = (struct counted *)op;

    counted->done = true;
    counted->status = status;
}

static void
counted_wait(struct stage *stage, const struct counted *counted)
{
    for (uint32_t i = 0; !counted->done; i++) {
        assert_true(i < 100000);
        stage_turn(stage);
    }
    assert_int_equal(counted->status, YB_OK);
}

/* Stores and loads, over as much that segments are reclaimed. */
static void
test_ssd_format__nothing_is_allocated_for_an_operation(void **state)
{
    static uint8_t value[BYTES];
    static struct counted one;
    struct iovec iov = {.iov_base = value, .iov_len = sizeof value};
    struct yb_tier_info info;
    struct stage stage;
    uint64_t before;

    if (!ALLOC_FAULT_WORKS) {
        skip();
    }
    stage_init(&stage);
    assert_int_equal(yb_ssd_memory_open(stage.memory, stage.loop, 0, 0, &stage.options.device),
                     YB_OK);
    assert_int_equal(yb_ssd_create(&stage.options, &stage.tier), YB_OK);
    for (uint32_t i = 0; !stage.recovered; i++) {
        stage_turn(&stage);
    }
    before = alloc_fault_count;
    for (uint32_t i = 0; i < 4 * BLOCKS; i++) {
        memset(value, (int)i, sizeof value);
        one = (struct counted){.any.store = {.op = {.done = counted_done, .deadline_ns = YB_NEVER},
                                             .record = {.hash = stage_hash(i),
                                                        .grant = 1 + i,
                                                        .size = sizeof value,
                                                        .tenant = "tenant",
                                                        .key = (const uint8_t *)"key",
                                                        .key_bytes = 3},
                                             .iov = &iov,
                                             .iov_count = 1}};
        assert_int_equal(yb_tier_store(stage.tier, &one.any.store), YB_OK);
        counted_wait(&stage, &one);
        one = (struct counted){.any.load = {.op = {.done = counted_done, .deadline_ns = YB_NEVER},
                                            .hash = stage_hash(i),
                                            .length = sizeof value,
                                            .iov = &iov,
                                            .iov_count = 1}};
        memset(value, 0, sizeof value);
        assert_int_equal(yb_tier_load(stage.tier, &one.any.load), YB_OK);
        counted_wait(&stage, &one);
        assert_int_equal(value[sizeof value - 1], (uint8_t)i);
    }
    assert_int_equal(alloc_fault_count, before);
    yb_tier_info(stage.tier, &info);
    assert_true(info.reclaims > 0);
    yb_tier_stop(stage.tier);
    while (!yb_tier_idle(stage.tier)) {
        stage_turn(&stage);
    }
    yb_tier_destroy(&stage.tier);
    stage_fini(&stage);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd_format__records_and_footers_have_their_bytes),
        cmocka_unit_test(test_ssd_format__segments_and_the_superblock_have_their_bytes),
        cmocka_unit_test(test_ssd_format__another_version_is_told_from_damage),
        cmocka_unit_test(test_ssd_format__it_serves_while_it_is_being_recovered),
        cmocka_unit_test(test_ssd_format__nothing_is_allocated_for_an_operation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
