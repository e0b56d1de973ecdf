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

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd__what_was_stored_is_loaded),
        cmocka_unit_test(test_ssd__a_restart_finds_all_of_a_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
