/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of tier/ssd/ssd.h, but for the loss of power (test_ssd_power.c).
 * Method: small logs on a medium in memory, in a time of the test's own; then the same on files,
 * driven by io_uring and by threads.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ssd_stage.h"
#include "tier/ssd/format.h"
#include "tier/ssd/index.h"
#include "tier/ssd/ssd_internal.h"

#define KIB 1024ull

static void
test_ssd__what_was_stored_is_loaded(void **state)
{
    static const uint64_t sizes[] = {0, 1, 63, 64, 4096, 65535, 65536, 65537, 100 * KIB};
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(stage_put(&stage, i, 100 + i, sizes[i]), YB_OK);
    }
    for (uint32_t i = 0; i < 9; i++) {
        struct yb_tier_found found;

        assert_true(yb_tier_find(stage.tier, stage_hash(i), &found));
        assert_int_equal(found.grant, 100 + i);
        assert_int_equal(found.size, (sizes[i] + 63) / 64 * 64);
        assert_false(found.storing);
        assert_int_equal(stage_get(&stage, i, 0, NULL), YB_OK);
        assert_int_equal(stage_get(&stage, i, 100 + i, NULL), YB_OK);
        assert_int_equal(stage_get(&stage, i, 99, NULL), YB_STALE);
    }
    assert_int_equal(stage_get(&stage, 77, 0, NULL), YB_NOT_FOUND);
    stage_fini(&stage);
}

static void
test_ssd__a_restart_finds_all_of_a_record(void **state)
{
    static const uint8_t key[] = "a key with a \0 in it";
    static const uint8_t value[] = "the value";
    struct iovec iov = {.iov_base = (void *)(uintptr_t)value, .iov_len = sizeof value};
    uint8_t bytes[sizeof value] = {0};
    struct iovec back = {.iov_base = bytes, .iov_len = sizeof bytes};
    struct yb_tier_store store = {.record = {.hash = stage_hash(5),
                                             .grant = 9,
                                             .flush = 3,
                                             .size = sizeof value,
                                             .group = 11,
                                             .parent = 12,
                                             .expires_unix_ms = 13,
                                             .tenant = "somebody",
                                             .key = key,
                                             .key_bytes = sizeof key,
                                             .flags = YB_WIRE_BLOCK_FLAG_SOFT_PIN,
                                             .mode = YB_WIRE_MODE_REPLACE,
                                             .replicas = 2},
                                  .iov = &iov,
                                  .iov_count = 1};
    struct yb_tier_load load = {
        .hash = stage_hash(5), .length = sizeof value, .iov = &back, .iov_count = 1};
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_store(&stage, &store), YB_OK);
    stage_close(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage.found_count, 1);
    assert_int_equal(stage_load(&stage, &load), YB_OK);
    assert_memory_equal(bytes, value, sizeof value);
    assert_int_equal(load.record_out.grant, 9);
    assert_int_equal(load.record_out.flush, 3);
    assert_int_equal(load.record_out.size, sizeof value);
    assert_int_equal(load.record_out.group, 11);
    assert_int_equal(load.record_out.parent, 12);
    assert_int_equal(load.record_out.expires_unix_ms, 13);
    assert_string_equal(load.record_out.tenant, "somebody");
    assert_int_equal(load.record_out.key_bytes, sizeof key);
    assert_memory_equal(load.record_out.key, key, sizeof key);
    assert_int_equal(load.record_out.flags, YB_WIRE_BLOCK_FLAG_SOFT_PIN);
    assert_int_equal(load.record_out.mode, YB_WIRE_MODE_REPLACE);
    assert_int_equal(load.record_out.replicas, 2);
    load.key = (const uint8_t *)"another";
    load.key_bytes = 7;
    assert_int_equal(stage_load(&stage, &load), YB_NOT_FOUND);
    stage_fini(&stage);
}

/* ---- loads --------------------------------------------------------------------------------- */

static void
test_ssd__a_part_of_a_value_is_loaded_into_pieces(void **state)
{
    uint64_t size = 120 * KIB;
    uint8_t *want = malloc(size);
    uint8_t *bytes = calloc(1, size);
    uint64_t random = unit_seed("ssd parts");
    struct stage stage;

    assert_non_null(want);
    assert_non_null(bytes);
    stage_init(&stage);
    stage.options.segment_bytes = 512 * KIB;
    stage.options.capacity = 6 * 512 * KIB;
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 3, 4, size), YB_OK);
    stage_pattern(3, 4, want, size);
    for (uint32_t i = 0; i < 60; i++) {
        uint64_t offset = unit_random(&random) % size;
        uint64_t length = unit_random(&random) % (size - offset + 1);
        uint64_t first = length / 3;
        struct iovec iov[3] = {{bytes, first}, {bytes + first, 0}, {bytes + first, length - first}};
        uint32_t sums[4] = {0};
        struct yb_tier_load load = {.hash = stage_hash(3),
                                    .offset = offset,
                                    .length = length,
                                    .iov = iov,
                                    .iov_count = 3,
                                    .sums_out = sums};

        memset(bytes, 0, size);
        assert_int_equal(stage_load(&stage, &load), YB_OK);
        assert_memory_equal(bytes, want + offset, length);
        assert_int_equal(load.record_out.size, size);
    }
    stage_fini(&stage);
    free(want);
    free(bytes);
}

static void
test_ssd__wrong_bytes_are_dropped_and_told(void **state)
{
    struct stage stage;
    uint8_t *bytes;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, 5000), YB_OK);
    assert_int_equal(stage_put(&stage, 2, 20, 5000), YB_OK);
    bytes = yb_ssd_memory_bytes(stage.memory);
    for (uint64_t i = YB_SSD_SEGMENTS_START; i < yb_ssd_memory_size(stage.memory); i++) {
        uint8_t pattern[16];

        stage_pattern(1, 10, pattern, sizeof pattern);
        if (memcmp(bytes + i, pattern, sizeof pattern) == 0) {
            bytes[i + 7] ^= 1;
            break;
        }
    }
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_CORRUPT);
    assert_int_equal(stage.lost_count, 1);
    assert_int_equal(stage.lost[0].grant, 10);
    assert_int_equal(stage.lost[0].why, YB_CORRUPT);
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_OK);
    stage_fini(&stage);
}

static void
test_ssd__the_highest_grant_counts_wherever_it_lies(void **state)
{
    struct stage stage;
    uint64_t grant = 0;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 30, 100), YB_OK);
    assert_int_equal(stage_put(&stage, 1, 10, 200), YB_OK);
    assert_int_equal(stage_put(&stage, 1, 20, 300), YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(stage_get(&stage, 1, 0, &grant), YB_OK);
        assert_int_equal(grant, 30);
        assert_int_equal(stage_get(&stage, 1, 10, &grant), YB_OK);
        stage_close(&stage);
        stage_open(&stage, false);
    }
    assert_int_equal(stage_kill(&stage, stage_hash(1), 30), YB_OK);
    assert_int_equal(stage_get(&stage, 1, 0, &grant), YB_OK);
    assert_int_equal(grant, 20);
    stage_fini(&stage);
}

/* ---- kills and flushes --------------------------------------------------------------------- */

static void
test_ssd__what_is_killed_or_flushed_never_comes_back(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(stage_put(&stage, i, 100 + i, 3000), YB_OK);
    }
    assert_int_equal(stage_kill(&stage, stage_hash(3), 103), YB_OK);
    assert_int_equal(stage_kill(&stage, stage_hash(4), 999), YB_OK); /* Not that grant. */
    assert_int_equal(stage_get(&stage, 3, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_put(&stage, 3, 103, 3000), YB_STALE); /* It comes late. */
    stage_close(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage.found_count, 7);
    assert_int_equal(stage_get(&stage, 3, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_get(&stage, 4, 0, NULL), YB_OK);
    assert_int_equal(stage_flush(&stage, "another", 9), YB_OK);
    assert_int_equal(stage_flush(&stage, "tenant", 1), YB_OK); /* They are of 1. */
    assert_int_equal(stage_get(&stage, 5, 0, NULL), YB_OK);
    assert_int_equal(stage_flush(&stage, "tenant", 2), YB_OK);
    assert_int_equal(stage_get(&stage, 5, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_put(&stage, 9, 900, 100), YB_STALE);
    stage_close(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage.found_count, 0);
    stage_fini(&stage);
}

static bool
wants_even(struct stage *stage, const struct yb_tier_record *record)
{
    return record->grant % 2 == 0;
}

static void
test_ssd__what_nobody_wants_after_a_restart_is_dropped_and_can_be_killed(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 8; i++) {
        assert_int_equal(stage_put(&stage, i, 100 + i, 3000), YB_OK);
    }
    stage_close(&stage);
    stage.wants = wants_even;
    stage_open(&stage, false);
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_OK);
    assert_int_equal(stage_kill(&stage, stage_hash(1), 101), YB_OK);
    stage_close(&stage);
    stage.wants = NULL;
    stage_open(&stage, false);
    assert_int_equal(stage.found_count, 7);
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_get(&stage, 3, 0, NULL), YB_OK);
    stage_fini(&stage);
}

/* ---- room ---------------------------------------------------------------------------------- */

static void
test_ssd__reclaim_keeps_what_is_read_and_loses_the_rest(void **state)
{
    struct stage stage;
    struct yb_tier_info info;

    stage_init(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 400; i++) {
        assert_int_equal(stage_put(&stage, i, 1000 + i, 8000), YB_OK);
        assert_int_equal(stage_get(&stage, 0, 0, NULL), YB_OK); /* It stays hot. */
    }
    yb_tier_info(stage.tier, &info);
    assert_true(info.reclaims > 3);
    assert_true(stage.lost_count > 200);
    assert_int_equal(info.blocks, 400 - stage.lost_count);
    for (uint32_t i = 0; i < stage.lost_count; i++) {
        assert_int_equal(stage.lost[i].why, YB_NO_SPACE);
        assert_false(yb_id_equal(stage.lost[i].hash, stage_hash(0)));
    }
    stage_close(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage.found_count, info.blocks);
    stage_fini(&stage);
}

static void
test_ssd__only_hard_pins_make_it_full(void **state)
{
    struct stage stage;
    uint32_t pinned = 0;

    stage_init(&stage);
    stage_open(&stage, false);
    while (stage_put_pinned(&stage, pinned) == YB_OK) {
        pinned++;
        assert_true(pinned < 400);
    }
    assert_true(pinned > 40);
    assert_int_equal(stage_put_pinned(&stage, 999), YB_NO_SPACE);
    assert_int_equal(stage.lost_count, 0);
    for (uint32_t i = 0; i < pinned; i++) {
        struct yb_tier_found found;

        assert_true(yb_tier_find(stage.tier, stage_hash(i), &found));
        assert_int_equal(stage_kill(&stage, stage_hash(i), 1000 + i), YB_OK);
    }
    assert_int_equal(stage_put_pinned(&stage, 999), YB_OK);
    stage_fini(&stage);
}

static void
ignore_done(struct yb_tier_op *op, enum yb_status status)
{
}

/* What 200 small blocks that come at once cost, in batches of so many bytes. */
static struct yb_tier_info
cost_of_200(uint64_t batch_bytes)
{
    static uint8_t value[4096];
    static const uint8_t key[] = "key";
    struct iovec iov = {.iov_base = value, .iov_len = sizeof value};
    struct yb_tier_store *stores = calloc(200, sizeof *stores);
    struct yb_tier_info before;
    struct yb_tier_info after;
    struct stage stage;

    assert_non_null(stores);
    stage_init(&stage);
    stage.options.segment_bytes = 1 << 20;
    stage.options.capacity = 6 << 20;
    stage.options.batch_bytes = batch_bytes;
    stage.options.operations_max = 1024;
    stage.options.sync_ns = 50 * YB_NS_PER_MS;
    stage_open(&stage, false);
    stage_turns(&stage, 20);
    yb_tier_info(stage.tier, &before);
    for (uint32_t i = 0; i < 200; i++) {
        stores[i].op.done = ignore_done;
        stores[i].op.deadline_ns = YB_NEVER;
        stores[i].record = (struct yb_tier_record){.hash = stage_hash(i),
                                                   .grant = i + 1,
                                                   .size = sizeof value,
                                                   .tenant = "",
                                                   .key = key,
                                                   .key_bytes = sizeof key};
        stores[i].iov = &iov;
        stores[i].iov_count = 1;
        assert_int_equal(yb_tier_store(stage.tier, &stores[i]), YB_OK);
    }
    stage_turns(&stage, 100);
    yb_tier_info(stage.tier, &after);
    assert_int_equal(after.blocks, 200);
    assert_int_equal(after.storing_bytes, 0);
    stage_fini(&stage);
    free(stores);
    return (struct yb_tier_info){.writes = after.writes - before.writes,
                                 .syncs = after.syncs - before.syncs};
}

static void
test_ssd__small_blocks_are_gathered(void **state)
{
    (void)state;
    assert_true(cost_of_200(512 * KIB).writes <= 4);
}

/* RULES E3: however many writes there are. */
static void
test_ssd__syncs_are_grouped(void **state)
{
    struct yb_tier_info cost = cost_of_200(64 * KIB);

    (void)state;
    assert_true(cost.writes >= 12);
    assert_true(cost.syncs <= 3);
}

static void
test_ssd__the_days_budget_is_kept(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage.options.write_budget = 40000;
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(stage_put(&stage, i, 1 + i, 9000), YB_OK);
    }
    assert_int_equal(stage_put(&stage, 9, 9, 9000), YB_QUOTA);
    stage.now_ns += 12 * 3600 * YB_NS_PER_S;
    stage_turn(&stage);
    assert_int_equal(stage_put(&stage, 9, 9, 9000), YB_OK);
    assert_int_equal(stage_put(&stage, 10, 10, 9000), YB_OK);
    assert_int_equal(stage_put(&stage, 11, 11, 9000), YB_QUOTA);
    stage_fini(&stage);
}

/* ---- ends that are not OK ------------------------------------------------------------------ */

struct held {
    union {
        struct yb_tier_op op;
        struct yb_tier_store store;
        struct yb_tier_load load;
        struct yb_tier_kill kill;
        struct yb_tier_flush flush;
    } any; /* First. */
    uint32_t ends;
    enum yb_status status;
};

static void
held_done(struct yb_tier_op *op, enum yb_status status)
{
    struct held *held = (struct held *)op;

    held->ends++;
    held->status = status;
}

static void
test_ssd__deadlines_and_cancels_end_what_the_medium_holds(void **state)
{
    static uint8_t value[4096];
    static const uint8_t key[] = "key";
    struct iovec iov = {.iov_base = value, .iov_len = sizeof value};
    struct yb_tier_record record = {.hash = stage_hash(7),
                                    .grant = 70,
                                    .flush = 1,
                                    .size = sizeof value,
                                    .tenant = "tenant",
                                    .key = key,
                                    .key_bytes = sizeof key};
    struct held store = {.any.store = {.record = record, .iov = &iov, .iov_count = 1}};
    struct held loads[2] = {
        {.any.load = {.hash = stage_hash(1), .length = 4096, .iov = &iov, .iov_count = 1}},
        {.any.load = {.hash = stage_hash(1), .length = 4096, .iov = &iov, .iov_count = 1}}};
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, 4096), YB_OK);
    stage.device->holds = true;
    store.any.op.done = loads[0].any.op.done = loads[1].any.op.done = held_done;
    store.any.op.deadline_ns = stage.now_ns + 20 * YB_NS_PER_MS;
    loads[0].any.op.deadline_ns = stage.now_ns + 30 * YB_NS_PER_MS;
    loads[1].any.op.deadline_ns = YB_NEVER;
    assert_int_equal(yb_tier_store(stage.tier, &store.any.store), YB_OK);
    assert_int_equal(yb_tier_load(stage.tier, &loads[0].any.load), YB_OK);
    assert_int_equal(yb_tier_load(stage.tier, &loads[1].any.load), YB_OK);
    stage_turns(&stage, 10);
    assert_int_equal(store.ends + loads[0].ends + loads[1].ends, 0);
    yb_tier_cancel(stage.tier, &loads[1].any.op);
    stage_turns(&stage, 2);
    assert_int_equal(loads[1].ends, 1);
    assert_int_equal(loads[1].status, YB_CANCELLED);
    stage_turns(&stage, 40);
    assert_int_equal(store.ends, 1);
    assert_int_equal(store.status, YB_IN_DOUBT);
    assert_int_equal(loads[0].ends, 1);
    assert_int_equal(loads[0].status, YB_TIMED_OUT);
    memset(value, 0xee, sizeof value); /* It is ours again, and stays as it is. */
    stage.device->holds = false;
    stage_release(&stage, true);
    stage_turns(&stage, 20);
    assert_int_equal(value[0], 0xee);
    assert_int_equal(store.ends + loads[0].ends + loads[1].ends, 3);
    stage_fini(&stage);
}

static uint32_t
copies(const struct stage *stage, uint32_t key)
{
    struct yb_ssd *ssd = yb_ssd_of(stage->tier);
    uint64_t cursor = 0;
    uint32_t count = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, stage_hash(key), &cursor)) !=
           YB_SSD_INDEX_NONE) {
        count += !yb_ssd_index_get(ssd->index, number).hidden;
    }
    return count;
}

static void
test_ssd__a_kill_finds_both_copies_of_what_moves(void **state)
{
    static uint8_t value[8000];
    static const uint8_t key[] = "key";
    struct iovec iov = {.iov_base = value, .iov_len = sizeof value};
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 0, 1, 5000), YB_OK);
    assert_int_equal(stage_get(&stage, 0, 0, NULL), YB_OK);
    for (uint32_t i = 1; copies(&stage, 0) < 2; i++) {
        struct held store = {.any.store = {.op = {.done = held_done, .deadline_ns = YB_NEVER},
                                           .record = {.hash = stage_hash(i),
                                                      .grant = 1 + i,
                                                      .flush = 1,
                                                      .size = sizeof value,
                                                      .tenant = "tenant",
                                                      .key = key,
                                                      .key_bytes = sizeof key},
                                           .iov = &iov,
                                           .iov_count = 1}};

        assert_true(i < 1000);
        assert_int_equal(yb_tier_store(stage.tier, &store.any.store), YB_OK);
        for (uint32_t turn = 0; store.ends == 0 && copies(&stage, 0) < 2; turn++) {
            assert_true(turn < 10000);
            stage_turn(&stage);
        }
        yb_tier_cancel(stage.tier, &store.any.op);
        while (store.ends == 0) {
            stage_turn(&stage);
        }
        if (copies(&stage, 0) == 2) {
            break;
        }
    }
    assert_int_equal(stage_kill(&stage, stage_hash(0), 1), YB_OK);
    assert_int_equal(copies(&stage, 0), 0);
    assert_int_equal(stage_get(&stage, 0, 0, NULL), YB_NOT_FOUND);
    stage_close(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_get(&stage, 0, 0, NULL), YB_NOT_FOUND);
    stage_fini(&stage);
}

static void
test_ssd__it_stops_before_it_has_read_anything(void **state)
{
    static const uint8_t key[] = "key";
    struct held store = {.any.store = {.op = {.done = held_done, .deadline_ns = YB_NEVER},
                                       .record = {.hash = stage_hash(1),
                                                  .grant = 1,
                                                  .tenant = "tenant",
                                                  .key = key,
                                                  .key_bytes = sizeof key}}};
    struct held load = {
        .any.load = {.op = {.done = held_done, .deadline_ns = YB_NEVER}, .hash = stage_hash(1)}};
    struct held kill = {.any.kill = {.op = {.done = held_done, .deadline_ns = YB_NEVER},
                                     .hash = stage_hash(2),
                                     .grant = 2,
                                     .tenant = "tenant"}};
    struct held flush = {.any.flush = {.op = {.done = held_done, .deadline_ns = YB_NEVER},
                                       .tenant = "another",
                                       .flush = 2}};
    struct stage stage;

    stage_init(&stage);
    stage_start(&stage, false);
    assert_int_equal(yb_tier_store(stage.tier, &store.any.store), YB_OK);
    assert_int_equal(yb_tier_load(stage.tier, &load.any.load), YB_OK);
    assert_int_equal(yb_tier_kill(stage.tier, &kill.any.kill), YB_OK);
    assert_int_equal(yb_tier_flush(stage.tier, &flush.any.flush), YB_OK);
    stage_close(&stage);
    assert_int_equal(store.status, YB_CANCELLED);
    assert_int_equal(load.status, YB_NOT_FOUND);
    assert_int_equal(kill.status, YB_IN_DOUBT);
    assert_int_equal(flush.status, YB_IN_DOUBT);
    assert_int_equal(store.ends + load.ends + kill.ends + flush.ends, 4);
    stage_fini(&stage);
}

static void
check_aside(struct stage *stage, enum yb_status status, const char *word)
{
    assert_int_equal(stage->aside, status);
    if (strstr(stage->why, word) == NULL) {
        fail_msg("no \"%s\" in: %s", word, stage->why);
    }
}

static void
test_ssd__a_medium_that_fails_makes_it_step_aside(void **state)
{
    for (uint32_t what = 0; what < 2; what++) {
        struct stage stage;
        struct held op = {.ends = 0};

        stage_init(&stage);
        stage_open(&stage, false);
        assert_int_equal(stage_put(&stage, 1, 10, 5000), YB_OK);
        if (what == 0) {
            stage.device->fail_next_write = EIO;
        } else {
            stage.device->fail_next_sync = EIO;
        }
        assert_int_equal(stage_put(&stage, 2, 20, 5000), YB_IN_DOUBT);
        check_aside(&stage, YB_IO, "look at the disk");
        assert_int_equal(stage_put(&stage, 3, 30, 5000), YB_IO);
        assert_int_equal(stage_kill(&stage, stage_hash(1), 10), YB_IO);
        assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_OK);
        assert_int_equal(op.ends, 0);
        stage_close(&stage);
        stage_open(&stage, false); /* A disk that works again has what was RESIDENT. */
        assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_OK);
        stage_fini(&stage);
    }
}

static void
test_ssd__a_read_that_fails_costs_one_block(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, 5000), YB_OK);
    assert_int_equal(stage_put(&stage, 2, 20, 5000), YB_OK);
    stage.device->fail_next_read = EIO;
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_IO);
    assert_int_equal(stage.lost_count, 1);
    assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_OK);
    assert_int_equal(stage.aside, YB_OK);
    stage_fini(&stage);
}

static void
test_ssd__short_transfers_go_on(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage_start(&stage, false);
    stage.device->short_transfers = true;
    for (uint32_t i = 0; !stage.recovered; i++) {
        stage_turn(&stage);
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(stage_put(&stage, i, 1 + i, 20000), YB_OK);
        assert_int_equal(stage_get(&stage, i, 0, NULL), YB_OK);
    }
    stage_fini(&stage);
}

static void
test_ssd__a_full_file_system_is_lived_with(void **state)
{
    struct stage stage;

    stage_init(&stage);
    stage_start(&stage, false);
    stage.device->fail_reserve = ENOSPC;
    stage_turns(&stage, 100);
    check_aside(&stage, YB_NO_SPACE, "make room");
    stage_close(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 0; i < 60; i++) {
        assert_int_equal(stage_put(&stage, i, 1 + i, 8000), YB_OK);
    }
    stage.options.capacity = 12 * STAGE_SEGMENT;
    stage_close(&stage);
    stage_open(&stage, false);
    for (uint32_t i = 100; i < 200; i++) {
        stage.device->fail_reserve = yb_ssd_memory_size(stage.memory) > (5u << 18) ? ENOSPC : 0;
        assert_int_equal(stage_put(&stage, i, 1 + i, 8000), YB_OK);
    }
    assert_int_equal(stage.aside, YB_OK);
    stage_fini(&stage);
}

static void
test_ssd__what_it_may_not_use_is_left_alone(void **state)
{
    static uint8_t before[STAGE_IMAGE_BYTES];
    struct stage stage;
    uint8_t *bytes;

    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, 5000), YB_OK);
    stage_close(&stage);
    bytes = yb_ssd_memory_bytes(stage.memory);
    memcpy(before, bytes, sizeof before);

    stage.options.node.bytes[3] = 9;
    stage_open(&stage, false);
    check_aside(&stage, YB_DENIED, "a directory of its own");
    assert_int_equal(stage_put(&stage, 2, 20, 100), YB_DENIED);
    stage_close(&stage);
    stage.options.node.bytes[3] = 0;

    for (uint32_t copy = 0; copy < 2; copy++) {
        bytes[copy * YB_SSD_SUPER_BYTES + 8] = 77;
    }
    stage_open(&stage, false);
    check_aside(&stage, YB_VERSION, "another version");
    stage_close(&stage);
    memset(bytes, 'x', 4096);
    stage_open(&stage, false);
    check_aside(&stage, YB_VERSION, "another version"); /* The copy says what it was. */
    stage_close(&stage);
    memset(bytes, 'x', YB_SSD_SEGMENTS_START);
    stage_open(&stage, false);
    check_aside(&stage, YB_UNSUPPORTED, "no log of Yuebing");
    stage_close(&stage);
    assert_memory_equal(bytes + YB_SSD_SEGMENTS_START, before + YB_SSD_SEGMENTS_START,
                        STAGE_IMAGE_BYTES - YB_SSD_SEGMENTS_START);
    memcpy(bytes, before, YB_SSD_SEGMENTS_START);
    stage_open(&stage, false);
    assert_int_equal(stage_get(&stage, 1, 0, NULL), YB_OK);
    stage_fini(&stage);
}

/* ---- the index ----------------------------------------------------------------------------- */

static void
test_ssd__the_index_is_a_map_of_40_bytes_a_record(void **state)
{
    enum { RECORDS = 3000, KEYS = 700 };
    struct yb_ssd_index *index = NULL;
    uint32_t *numbers = calloc(RECORDS, sizeof *numbers);
    uint64_t *grants = calloc(RECORDS, sizeof *grants);
    uint64_t random = unit_seed("ssd index");

    assert_non_null(numbers);
    assert_non_null(grants);
    assert_int_equal(yb_ssd_index_create(1u << 20, &index), YB_OK);
    assert_true(yb_ssd_index_bytes_max(index) <= 40ull << 20);
    yb_ssd_index_destroy(&index);
    assert_int_equal(yb_ssd_index_create(RECORDS, &index), YB_OK);
    for (uint32_t step = 0; step < 100000; step++) {
        uint32_t i = (uint32_t)(unit_random(&random) >> 33) % RECORDS;

        if (grants[i] == 0) {
            struct yb_ssd_entry entry = {.hash = stage_hash(i % KEYS),
                                         .grant = unit_random(&random) | 1,
                                         .unit = unit_random(&random) >> 28,
                                         .value_units = i,
                                         .head_units = i % 128,
                                         .era = i * 40,
                                         .accesses = i % 8,
                                         .hidden = i % 2 == 0};

            grants[i] = entry.grant;
            numbers[i] = yb_ssd_index_add(index, &entry);
            assert_int_not_equal(numbers[i], YB_SSD_INDEX_NONE);
        } else if (step % 2 == 0) {
            yb_ssd_index_remove(index, numbers[i]);
            grants[i] = 0;
        } else {
            struct yb_ssd_entry entry = yb_ssd_index_get(index, numbers[i]);
            uint64_t cursor = 0;
            uint32_t count = 0;
            uint32_t want = 0;

            assert_int_equal(entry.grant, grants[i]);
            assert_int_equal(entry.value_units, i);
            assert_int_equal(entry.head_units, i % 128);
            assert_int_equal(entry.era, i * 40);
            assert_int_equal(entry.accesses, i % 8);
            assert_int_equal(entry.hidden, i % 2 == 0);
            while (yb_ssd_index_next(index, stage_hash(i % KEYS), &cursor) != YB_SSD_INDEX_NONE) {
                count++;
            }
            for (uint32_t j = i % KEYS; j < RECORDS; j += KEYS) {
                want += grants[j] != 0;
            }
            assert_int_equal(count, want);
        }
    }
    yb_ssd_index_destroy(&index);
    free(numbers);
    free(grants);
}

/* ---- real files ---------------------------------------------------------------------------- */

struct file_stage {
    struct stage stage; /* First; its loop has the machine's clock. */
    char directory[64];
};

static void
real_turns(struct stage *stage, const bool *until)
{
    for (uint32_t i = 0; !*until; i++) {
        assert_true(i < 100000);
        yb_loop_turn(stage->loop, 10 * YB_NS_PER_MS);
    }
}

static void
real_done(struct yb_tier_op *op, enum yb_status status)
{
    held_done(op, status);
}

static void
real_open(struct file_stage *file, const char *io)
{
    file->stage.options.device = NULL;
    file->stage.options.directory = file->directory;
    file->stage.options.io = io;
    file->stage.recovered = false;
    file->stage.found_count = 0;
    assert_int_equal(yb_ssd_create(&file->stage.options, &file->stage.tier), YB_OK);
    real_turns(&file->stage, &file->stage.recovered);
}

static void
real_close(struct file_stage *file)
{
    yb_tier_stop(file->stage.tier);
    while (!yb_tier_idle(file->stage.tier)) {
        yb_loop_turn(file->stage.loop, YB_NS_PER_MS);
    }
    yb_tier_destroy(&file->stage.tier);
}

static enum yb_status
real_wait(struct file_stage *file, struct held *held)
{
    for (uint32_t i = 0; held->ends == 0; i++) {
        assert_true(i < 100000);
        yb_loop_turn(file->stage.loop, 10 * YB_NS_PER_MS);
    }
    return held->status;
}

static void
real_walk(const char *io, bool expect)
{
    enum { BLOCKS = 64 };
    static uint8_t values[BLOCKS][20000];
    static uint8_t back[20000];
    static struct held held[BLOCKS];
    struct iovec iovs[BLOCKS];
    struct file_stage file;
    struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    char path[128];

    stage_init(&file.stage);
    yb_loop_destroy(&file.stage.loop);
    assert_int_equal(yb_loop_create(&options, &file.stage.loop), YB_OK);
    file.stage.options.loop = file.stage.loop;
    file.stage.options.capacity = 64 * STAGE_SEGMENT;
    (void)snprintf(file.directory, sizeof file.directory, "test_ssd.XXXXXX");
    assert_non_null(mkdtemp(file.directory));
    real_open(&file, io);
    if (expect) {
        assert_string_equal(yb_ssd_device_name(file.stage.tier), io);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        stage_pattern(i, 1 + i, values[i], sizeof values[i]);
        iovs[i] = (struct iovec){.iov_base = values[i], .iov_len = sizeof values[i]};
        held[i] = (struct held){.any.store = {.op = {.done = real_done, .deadline_ns = YB_NEVER},
                                              .record = {.hash = stage_hash(i),
                                                         .grant = 1 + i,
                                                         .size = sizeof values[i],
                                                         .tenant = "tenant",
                                                         .key = (const uint8_t *)"key",
                                                         .key_bytes = 3},
                                              .iov = &iovs[i],
                                              .iov_count = 1}};
        assert_int_equal(yb_tier_store(file.stage.tier, &held[i].any.store), YB_OK);
    }
    for (uint32_t i = 0; i < BLOCKS; i++) {
        assert_int_equal(real_wait(&file, &held[i]), YB_OK);
    }
    real_close(&file);
    real_open(&file, io);
    assert_int_equal(file.stage.found_count, BLOCKS);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct iovec iov = {.iov_base = back, .iov_len = sizeof back};

        held[i] = (struct held){.any.load = {.op = {.done = real_done, .deadline_ns = YB_NEVER},
                                             .hash = stage_hash(i),
                                             .length = sizeof back,
                                             .iov = &iov,
                                             .iov_count = 1}};
        assert_int_equal(yb_tier_load(file.stage.tier, &held[i].any.load), YB_OK);
        assert_int_equal(real_wait(&file, &held[i]), YB_OK);
        assert_memory_equal(back, values[i], sizeof back);
    }
    real_close(&file);
    (void)snprintf(path, sizeof path, "%s/log", file.directory);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(file.directory), 0);
    stage_fini(&file.stage);
}

static void
test_ssd__threads_drive_a_file(void **state)
{
    real_walk("threads", true);
}

static void
test_ssd__io_uring_drives_a_file_where_it_may(void **state)
{
    struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    struct yb_ssd_device *device = NULL;
    struct yb_loop *loop = NULL;
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    assert_int_equal(yb_loop_create(&options, &loop), YB_OK);
    assert_true(fd >= 0);
    if (yb_ssd_device_uring(loop, fd, &device) != YB_OK) {
        (void)close(fd);
        yb_loop_destroy(&loop);
        real_walk("auto", false);
        skip();
    }
    device->ops->close(device);
    yb_loop_destroy(&loop);
    real_walk("io_uring", true);
}

static void
test_ssd__a_directory_has_one_owner(void **state)
{
    struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    struct yb_ssd_device *first = NULL;
    struct yb_ssd_device *second = NULL;
    struct yb_loop *loop = NULL;
    char why[YB_SSD_WHY_BYTES] = "";
    char directory[] = "test_ssd.XXXXXX";
    char path[64];

    assert_int_equal(yb_loop_create(&options, &loop), YB_OK);
    assert_non_null(mkdtemp(directory));
    assert_int_equal(yb_ssd_device_open(loop, directory, "threads", &first, why), YB_OK);
    assert_int_equal(yb_ssd_device_open(loop, directory, "threads", &second, why), YB_BUSY);
    assert_non_null(strstr(why, "another process uses this directory"));
    (void)snprintf(path, sizeof path, "%s/log", directory);
    assert_int_equal(yb_ssd_device_open(loop, path, "threads", &second, why), YB_IO);
    first->ops->close(first);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(directory), 0);
    yb_loop_destroy(&loop);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd__what_was_stored_is_loaded),
        cmocka_unit_test(test_ssd__a_restart_finds_all_of_a_record),
        cmocka_unit_test(test_ssd__a_part_of_a_value_is_loaded_into_pieces),
        cmocka_unit_test(test_ssd__wrong_bytes_are_dropped_and_told),
        cmocka_unit_test(test_ssd__the_highest_grant_counts_wherever_it_lies),
        cmocka_unit_test(test_ssd__what_is_killed_or_flushed_never_comes_back),
        cmocka_unit_test(test_ssd__what_nobody_wants_after_a_restart_is_dropped_and_can_be_killed),
        cmocka_unit_test(test_ssd__reclaim_keeps_what_is_read_and_loses_the_rest),
        cmocka_unit_test(test_ssd__only_hard_pins_make_it_full),
        cmocka_unit_test(test_ssd__small_blocks_are_gathered),
        cmocka_unit_test(test_ssd__syncs_are_grouped),
        cmocka_unit_test(test_ssd__the_days_budget_is_kept),
        cmocka_unit_test(test_ssd__deadlines_and_cancels_end_what_the_medium_holds),
        cmocka_unit_test(test_ssd__a_kill_finds_both_copies_of_what_moves),
        cmocka_unit_test(test_ssd__it_stops_before_it_has_read_anything),
        cmocka_unit_test(test_ssd__a_medium_that_fails_makes_it_step_aside),
        cmocka_unit_test(test_ssd__a_read_that_fails_costs_one_block),
        cmocka_unit_test(test_ssd__short_transfers_go_on),
        cmocka_unit_test(test_ssd__a_full_file_system_is_lived_with),
        cmocka_unit_test(test_ssd__what_it_may_not_use_is_left_alone),
        cmocka_unit_test(test_ssd__the_index_is_a_map_of_40_bytes_a_record),
        cmocka_unit_test(test_ssd__threads_drive_a_file),
        cmocka_unit_test(test_ssd__io_uring_drives_a_file_where_it_may),
        cmocka_unit_test(test_ssd__a_directory_has_one_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
