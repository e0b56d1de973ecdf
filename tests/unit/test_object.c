/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the object tier keeps its promises (tier.h) with files: bytes, records, restarts, kills,
 * flushes, damage. Method: a folder in /tmp; a walk against a model that is restarted now and then.
 */
#include "object_ground.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "tier/object/name.h"
#include "tier/object/record.h"

/* ---- names and records ----------------------------------------------------------------------- */

static void
test_object__a_name_is_read_as_it_was_written(void **state)
{
    const struct yb_object_name block = {.kind = YB_OBJECT_IS_BLOCK,
                                         .tenant = "a/b_.c",
                                         .flush = 7,
                                         .hash = ground_hash(0x1234),
                                         .grant = 0x300000007,
                                         .size = 65536,
                                         .expires_unix_s = 0x7f000000,
                                         .flags = 0x18f,
                                         .mode = 2,
                                         .replicas = 3};
    struct yb_object_name read;
    char text[YB_OBJECT_NAME_MAX];

    assert_int_equal(yb_object_name_format(&block, text), YB_OK);
    assert_string_equal(text, "a_2fb_5f.c/0000000000000007/5a000000000000000000000000001234/"
                              "0000000300000007-10000-2318f-7f000000");
    assert_true(yb_object_name_parse(text, &read));
    assert_string_equal(read.tenant, block.tenant);
    assert_int_equal(read.flush, 7);
    assert_true(yb_id_equal(read.hash, block.hash));
    assert_int_equal(read.grant, block.grant);
    assert_int_equal(read.size, block.size);
    assert_int_equal(read.expires_unix_s, block.expires_unix_s);
    assert_int_equal(read.flags, block.flags);
    assert_int_equal(read.mode, 2);
    assert_int_equal(read.replicas, 3);
    text[strlen(text) - 1] = 'x';
    assert_false(yb_object_name_parse(text, &read));
    assert_false(yb_object_name_parse("", &read));
    assert_false(yb_object_name_parse("../0000000000000007/", &read));
    (void)state;
}

static void
test_object__no_tenant_reaches_into_anothers_names(void **state)
{
    static const char *const tenants[] = {"",    "..", ".",   "_kill", "_flush/x",
                                          "a/b", "a",  "_61", "%"};
    char texts[9][YB_OBJECT_NAME_MAX];
    struct yb_object_name read;

    for (uint32_t i = 0; i < 9; i++) {
        struct yb_object_name name = {.kind = YB_OBJECT_IS_BLOCK, .grant = 1, .mode = 1};

        memcpy(name.tenant, tenants[i], strlen(tenants[i]) + 1);
        assert_int_equal(yb_object_name_format(&name, texts[i]), YB_OK);
        assert_true(yb_object_name_parse(texts[i], &read));
        assert_string_equal(read.tenant, tenants[i]);
        assert_true(strncmp(texts[i], "..", 2) != 0 && texts[i][0] != '/');
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(texts[i], texts[j]);
        }
    }
    (void)state;
}

static void
test_object__a_record_with_one_wrong_bit_is_corrupt(void **state)
{
    const struct yb_tier_record record = {.hash = ground_hash(9),
                                          .grant = 4,
                                          .size = 70000,
                                          .tenant = "t",
                                          .key = (const uint8_t *)"key",
                                          .key_bytes = 3,
                                          .mode = 1};
    const uint32_t sums[2] = {0x11111111, 0x22222222};
    uint64_t length = yb_object_record_bytes(70000, 3, 1);
    uint8_t bytes[256];
    struct yb_tier_record read;
    const uint8_t *at;
    char tenant[72];

    assert_true(length <= sizeof(bytes));
    assert_int_equal((70000 + length) % YB_OBJECT_ALIGN, 0);
    yb_object_record_encode(&record, sums, bytes);
    assert_int_equal(yb_object_record_decode(bytes, length, &read, tenant, &at), YB_OK);
    assert_int_equal(yb_object_record_sum(at, 1), 0x22222222);
    assert_memory_equal(read.key, "key", 3);
    for (uint64_t bit = 0; bit < length * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_int_not_equal(yb_object_record_decode(bytes, length, &read, tenant, &at), YB_OK);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (uint64_t cut = 0; cut < length; cut++) {
        assert_int_not_equal(yb_object_record_decode(bytes, cut, &read, tenant, &at), YB_OK);
    }
    (void)state;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void
test_object__what_was_stored_is_read_whole_and_in_parts(void **state)
{
    static const uint64_t sizes[] = {0, 1, 4096, 65535, 65536, 65537, 200000, 3u << 20};
    struct object_ground ground;
    struct yb_tier_found found;

    ground_init(&ground);
    ground_start(&ground);
    for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        uint64_t size = sizes[i];

        assert_int_equal(block_store(&ground, i, 5, size), YB_OK);
        assert_true(yb_tier_find(ground.tier, ground_hash(i), &found));
        assert_int_equal(found.grant, 5);
        assert_int_equal(found.size, size);
        assert_false(found.storing);
        assert_int_equal(block_load(&ground, i, 0, size), YB_OK);
        assert_int_equal(block_load(&ground, i, 5, size), YB_OK);
        assert_int_equal(block_load_range(&ground, i, 5, size / 3, size / 2), YB_OK);
        assert_int_equal(block_load_range(&ground, i, 5, 0, size / 2), YB_OK);
        assert_int_equal(block_load_range(&ground, i, 5, size, 0), YB_OK);
        assert_int_equal(block_load_range(&ground, i, 5, size / 7, size > 0), YB_OK);
        assert_int_equal(block_load(&ground, i, 4, size), YB_STALE);
    }
    assert_int_equal(block_load(&ground, 99, 0, 1), YB_NOT_FOUND);
    ground_fini(&ground);
    (void)state;
}

/* Calls of this process that read and wrote, as the kernel counts them. False: it does not. */
static bool
calls_so_far(uint64_t *reads_out, uint64_t *writes_out)
{
    FILE *file = fopen("/proc/self/io", "re");
    bool known =
        file != NULL && fscanf(file, "rchar: %*u wchar: %*u syscr: %" SCNu64 " syscw: %" SCNu64,
                               reads_out, writes_out) == 2;

    if (file != NULL) {
        (void)fclose(file);
    }
    return known;
}

/* What one call moves nobody else on that processor can interrupt, where a kernel is made so. */
static void
test_object__no_call_moves_much_of_a_file(void **state)
{
    const uint64_t size = 4u << 20;
    const uint64_t calls = size / (128u << 10);
    struct object_ground ground;
    uint64_t reads, writes, reads_then, writes_then;

    (void)state;
    if (!calls_so_far(&reads, &writes)) {
        skip();
    }
    ground_init(&ground);
    ground_start(&ground);
    assert_true(calls_so_far(&reads, &writes));
    assert_int_equal(block_store(&ground, 1, 1, size), YB_OK);
    assert_int_equal(block_load(&ground, 1, 1, size), YB_OK);
    assert_true(calls_so_far(&reads_then, &writes_then));
    assert_true(writes_then - writes >= calls);
    assert_true(reads_then - reads >= calls);
    ground_fini(&ground);
}

static void
test_object__another_key_with_the_same_hash_is_a_miss(void **state)
{
    struct object_ground ground;
    struct object_reading reading;

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 100), YB_OK);
    reading_init(&reading, 1, 5, 0, 100);
    reading.load.key = (const uint8_t *)"another";
    reading.load.key_bytes = 7;
    reading_submit(&ground, &reading);
    ground_turn(&ground, &reading.ended);
    assert_int_equal(reading.status, YB_NOT_FOUND);
    reading_fini(&reading);
    assert_int_equal(block_load(&ground, 1, 5, 100), YB_OK); /* It stays. */
    ground_fini(&ground);
    (void)state;
}

static void
test_object__the_highest_grant_is_found(void **state)
{
    struct object_ground ground;
    struct yb_tier_found found;

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 100), YB_OK);
    assert_int_equal(block_store(&ground, 1, 9, 300), YB_OK);
    assert_int_equal(block_store(&ground, 1, 7, 200), YB_OK);
    assert_true(yb_tier_find(ground.tier, ground_hash(1), &found));
    assert_int_equal(found.grant, 9);
    assert_int_equal(block_load(&ground, 1, 0, 300), YB_OK);
    assert_int_equal(block_kill(&ground, 1, 9), YB_OK);
    assert_true(yb_tier_find(ground.tier, ground_hash(1), &found));
    assert_int_equal(found.grant, 7);
    assert_int_equal(block_load(&ground, 1, 9, 300), YB_STALE);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_restart_finds_what_was_resident(void **state)
{
    struct object_ground ground;
    struct yb_tier_info info;

    ground_init(&ground);
    ground_start(&ground);
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(block_store(&ground, i, i + 1, 1000 * i), YB_OK);
    }
    assert_int_equal(block_kill(&ground, 7, 8), YB_OK);
    ground_stop(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.recovered_status, YB_OK);
    assert_int_equal(ground.found_count, 49);
    for (uint32_t i = 0; i < ground.found_count; i++) {
        assert_int_equal(ground.found[i].size, 1000 * (ground.found[i].grant - 1));
        assert_int_equal(ground.found[i].flags, YB_WIRE_BLOCK_FLAG_SOFT_PIN);
        assert_int_equal(ground.found[i].mode, YB_WIRE_MODE_IF_ABSENT);
        assert_int_equal(ground.found[i].replicas, 2);
        assert_string_equal(ground.found[i].tenant, "tenant");
    }
    for (uint64_t i = 0; i < 50; i++) {
        assert_int_equal(block_load(&ground, i, 0, 1000 * i), i == 7 ? YB_NOT_FOUND : YB_OK);
    }
    yb_tier_info(ground.tier, &info);
    assert_int_equal(info.blocks, 49);
    assert_int_equal(info.live, 1000 * (49 * 50 / 2 - 7));
    ground_fini(&ground);
    (void)state;
}

static void
test_object__what_nobody_wants_is_dropped_for_good(void **state)
{
    struct object_ground ground;
    struct yb_tier_found found;

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 100), YB_OK);
    ground_stop(&ground);
    ground.refuse = true;
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 1);
    assert_false(yb_tier_find(ground.tier, ground_hash(1), &found));
    assert_int_equal(block_load(&ground, 1, 0, 100), YB_NOT_FOUND);
    assert_int_equal(block_kill(&ground, 1, 5), YB_OK);
    ground_stop(&ground);
    ground.refuse = false;
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 0);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_load_may_ask_the_medium_before_it_is_known(void **state)
{
    struct object_ground ground;
    struct object_reading reading;
    struct yb_tier_found found;
    bool asked = false;

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 100000), YB_OK);
    ground_stop(&ground);
    ground_start(&ground);
    assert_false(yb_tier_find(ground.tier, ground_hash(1), &found)); /* D13. */
    reading_init(&reading, 1, 0, 0, 100000);
    reading_submit(&ground, &reading);
    asked = yb_object_stats(ground.tier).probes == 1;
    ground_turn(&ground, &reading.ended);
    assert_int_equal(reading.status, YB_OK);
    assert_true(asked);
    reading_fini(&reading);
    ground_recover(&ground);
    assert_int_equal(block_load(&ground, 2, 0, 1), YB_NOT_FOUND);
    assert_int_equal(yb_object_stats(ground.tier).probes, 1);
    ground_fini(&ground);
    (void)state;
}

/* ---- kills and flushes ----------------------------------------------------------------------- */

/* A file that appears after the kill of its block: the upload of somebody who was slow. */
static void
bring_up_late(const struct object_ground *ground, const char *saved, const char *path)
{
    char from[160], to[256];

    (void)snprintf(from, sizeof(from), "%s/%s", ground->folder, saved);
    (void)snprintf(to, sizeof(to), "%s/%s", ground->folder, path);
    assert_int_equal(link(from, to), 0);
}

static void
test_object__a_kill_holds_against_late_uploads_and_restarts(void **state)
{
    struct object_ground ground;
    const char *path = "tenant/0000000000000001/5a000000000000000000000000000001,"
                       "0000000000000005-64-12001";
    char full[256];

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 100), YB_OK);
    assert_int_equal(block_store(&ground, 2, 5, 100), YB_OK); /* Keeps the folder. */
    ground_stop(&ground);
    (void)snprintf(full, sizeof(full), "%s/%s", ground.folder, path);
    bring_up_late(&ground, path, "saved");
    assert_int_equal(unlink(full), 0);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(block_load(&ground, 1, 0, 100), YB_NOT_FOUND);
    assert_int_equal(block_kill(&ground, 1, 5), YB_OK); /* Nothing is known of it. */
    assert_int_equal(yb_object_stats(ground.tier).kill_objects, 1);
    bring_up_late(&ground, "saved", path);
    assert_int_equal(block_load(&ground, 1, 0, 100), YB_NOT_FOUND);
    assert_int_equal(block_store(&ground, 1, 5, 100), YB_STALE);
    ground_stop(&ground);
    ground_start(&ground);
    assert_int_equal(block_load(&ground, 1, 0, 100), YB_NOT_FOUND); /* Also while recovering ... */
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 1); /* ... and that is the other one. */
    assert_int_equal(block_load(&ground, 1, 0, 100), YB_NOT_FOUND);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_kill_meets_the_store_that_is_under_way(void **state)
{
    struct object_ground ground;
    struct object_block block;
    struct yb_tier_found found;

    ground_init(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    for (uint64_t i = 1; i <= 20; i++) {
        block_init(&block, i, 5, 100000);
        block_submit(&ground, &block);
        if (i % 2 == 0) {
            yb_loop_turn(ground.loop, 0);
        }
        assert_true(yb_tier_find(ground.tier, ground_hash(i), &found));
        assert_true(found.storing || block.ended);
        assert_int_equal(block_kill(&ground, i, 5), YB_OK);
        assert_false(yb_tier_find(ground.tier, ground_hash(i), &found));
        ground_turn(&ground, &block.ended);
        assert_true(block.status == YB_STALE || (i % 2 == 0 && block.status == YB_OK));
        block_fini(&block);
    }
    ground_stop(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 0);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_flush_makes_everything_older_a_miss(void **state)
{
    struct object_ground ground;
    struct object_block block;
    struct yb_tier_found found;
    char old[128], hex[33], path[256], kept[160];

    ground_init(&ground);
    ground_start(&ground);
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(block_store(&ground, i, 5, 100), YB_OK);
    }
    (void)snprintf(old, sizeof(old), "%s/tenant/0000000000000001", ground.folder);
    (void)snprintf(kept, sizeof(kept), "%s-kept", ground.folder);
    yb_id_format(ground_hash(3), hex);
    (void)snprintf(path, sizeof(path), "%s/%s,0000000000000005-64-12001", old, hex);
    assert_int_equal(link(path, kept), 0);
    assert_int_equal(tenant_flush(&ground, 2), YB_OK);
    assert_int_equal(block_store(&ground, 20, 5, 100), YB_STALE);
    block_init(&block, 21, 5, 100);
    block.store.record.flush = 2;
    block_submit(&ground, &block);
    ground_turn(&ground, &block.ended);
    assert_int_equal(block.status, YB_OK);
    block_fini(&block);
    for (uint64_t i = 0; i < 10; i++) {
        assert_false(yb_tier_find(ground.tier, ground_hash(i), &found));
        assert_int_equal(block_load(&ground, i, 0, 100), YB_NOT_FOUND);
    }
    ground_stop(&ground);
    /* One that was not collected in time. */
    assert_true(mkdir(old, 0700) == 0 || errno == EEXIST);
    assert_true(link(kept, path) == 0 || errno == EEXIST);
    assert_int_equal(unlink(kept), 0);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 1);
    assert_int_equal(block_load(&ground, 21, 0, 100), YB_OK);
    assert_int_equal(block_load(&ground, 3, 0, 100), YB_NOT_FOUND);
    while (access(old, F_OK) == 0) {
        yb_loop_turn(ground.loop, 100 * YB_NS_PER_MS); /* Collected in the background. */
    }
    ground_fini(&ground);
    (void)state;
}

/* ---- damage ---------------------------------------------------------------------------------- */

static void
damage(const struct object_ground *ground, uint64_t number, uint64_t size, int64_t at)
{
    char path[256];
    char hex[33];
    uint8_t byte;
    int fd;

    yb_id_format(ground_hash(number), hex);
    (void)snprintf(path, sizeof(path), "%s/tenant/0000000000000001/%s,0000000000000005-%llx-12001",
                   ground->folder, hex, (unsigned long long)size);
    fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    if (at < 0) {
        assert_int_equal(ftruncate(fd, -at), 0);
    } else {
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    }
    assert_int_equal(close(fd), 0);
}

static void
test_object__damaged_bytes_are_corrupt_and_dropped(void **state)
{
    static const int64_t places[] = {0, 70000, 199999, 200000, 200099, -200000, -1};
    struct object_ground ground;
    struct yb_tier_found found;
    struct yb_tier_info info;

    ground_init(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    for (uint32_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        assert_int_equal(block_store(&ground, i, 5, 200000), YB_OK);
        damage(&ground, i, 200000, places[i]);
        ground.lost = 0;
        assert_int_equal(block_load(&ground, i, 0, 200000), YB_CORRUPT);
        assert_int_equal(ground.lost, 1);
        assert_int_equal(ground.lost_why, YB_CORRUPT);
        assert_false(yb_tier_find(ground.tier, ground_hash(i), &found));
        assert_int_equal(block_load(&ground, i, 0, 200000), YB_NOT_FOUND);
    }
    yb_tier_info(ground.tier, &info);
    assert_int_equal(info.corrupt, sizeof(places) / sizeof(places[0]));
    assert_int_equal(block_store(&ground, 50, 5, 200000), YB_OK); /* Only the chunk that is hurt. */
    damage(&ground, 50, 200000, 199999);
    assert_int_equal(block_load_range(&ground, 50, 5, 1000, 100000), YB_OK);
    assert_int_equal(block_load_range(&ground, 50, 5, 196608, 1), YB_CORRUPT);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__an_object_of_a_wrong_length_is_not_claimed(void **state)
{
    struct object_ground ground;

    ground_init(&ground);
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 5, 200000), YB_OK);
    assert_int_equal(block_store(&ground, 2, 5, 200000), YB_OK);
    damage(&ground, 1, 200000, -150000);
    ground_stop(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 1);
    assert_int_equal(block_load(&ground, 2, 0, 200000), YB_OK);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_folder_that_cannot_be_used_is_refused_with_the_remedy(void **state)
{
    static const char *const urls[] = {"file:", "s4://x", "", "file:/proc/yuebing",
                                       "file:/dev/null"};
    struct object_ground ground;
    char why[YB_OBJECT_WHY_BYTES];

    ground_init(&ground);
    ground.options.loop = ground.loop;
    for (uint32_t i = 0; i < 5; i++) {
        ground.options.url = urls[i];
        assert_int_not_equal(yb_object_create(&ground.options, &ground.tier, why), YB_OK);
        assert_null(ground.tier);
        assert_true(strlen(why) > 20);
    }
    ground_fini(&ground);
    (void)state;
}

static void
say_how_far(const char *path, const char *text)
{
    FILE *file = fopen(path, "we");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Load a block until that ends in another way than before, or too much time has passed. */
static enum yb_status
load_until_not(struct object_ground *ground, enum yb_status before)
{
    uint64_t until_ns = yb_clock_now(yb_clock_system()) + 10 * YB_NS_PER_S;
    enum yb_status status = before;

    while (status == before && yb_clock_now(yb_clock_system()) < until_ns) {
        status = block_load(ground, 1, 0, 5000);
    }
    return status;
}

static void
test_object__a_store_that_is_gone_is_back_when_its_file_says_so(void **state)
{
    struct object_ground ground;
    char path[96], url[sizeof(path) * 2];

    ground_init(&ground);
    (void)snprintf(path, sizeof(path), "%s-far", ground.folder);
    (void)snprintf(url, sizeof(url), "file:%s?far=%s", ground.folder, path);
    ground.options.url = url;
    ground.options.aside_ns = YB_NS_PER_MS;
    say_how_far(path, "2");
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 1, 5000), YB_OK);
    say_how_far(path, "gone");
    assert_int_equal(load_until_not(&ground, YB_OK), YB_UNREACHABLE);
    assert_int_equal(block_store(&ground, 2, 1, 5000), YB_UNREACHABLE);
    say_how_far(path, "0");
    assert_int_equal(load_until_not(&ground, YB_UNREACHABLE), YB_OK);
    assert_int_equal(block_store(&ground, 2, 1, 5000), YB_OK);
    assert_int_equal(unlink(path), 0);
    ground_fini(&ground);
    (void)state;
}

/* What is forecast, and when a load counts as late, follows from what was measured. */
static void
test_object__a_store_that_is_far_is_known_to_be(void **state)
{
    struct object_ground ground;
    char path[96], url[sizeof(path) * 2];

    ground_init(&ground);
    (void)snprintf(path, sizeof(path), "%s-far", ground.folder);
    (void)snprintf(url, sizeof(url), "file:%s?far=%s", ground.folder, path);
    ground.options.url = url;
    say_how_far(path, "0");
    ground_start(&ground);
    assert_int_equal(block_store(&ground, 1, 1, 5000), YB_OK);
    ground_stop(&ground);
    say_how_far(path, "30");
    ground_start(&ground);
    ground_recover(&ground);
    assert_true(yb_tier_forecast(ground.tier, YB_CLASS_THROUGHPUT).base_us >= 30000);
    assert_int_equal(yb_object_stats(ground.tier).requests[YB_OBJECT_GET], 0);
    assert_int_equal(block_load(&ground, 1, 1, 5000), YB_OK);
    assert_true(yb_tier_forecast(ground.tier, YB_CLASS_THROUGHPUT).base_us >= 30000);
    assert_int_equal(unlink(path), 0);
    ground_fini(&ground);
    (void)state;
}

/* ---- a walk ---------------------------------------------------------------------------------- */

#define WALK_BLOCKS 40u
#define WALK_STEPS  250u

struct walk {
    uint64_t grant[WALK_BLOCKS]; /* 0: not there. */
    uint64_t size[WALK_BLOCKS];
    uint64_t next_grant;
};

static void
walk_step(struct object_ground *ground, struct walk *walk, uint64_t *seed)
{
    uint64_t i = unit_random(seed) % WALK_BLOCKS;
    uint64_t size =
        unit_random(seed) % 3 == 0 ? unit_random(seed) % 300000 : unit_random(seed) % 5000;
    struct yb_tier_found found;

    switch (unit_random(seed) % 16) {
    case 0:
        ground_stop(ground);
        ground_start(ground);
        if (unit_random(seed) % 2 == 0 || ground->options.layout == YB_OBJECT_LAYOUT_PACKED) {
            ground_recover(ground); /* Names do not tell what is in a pack. */
        }
        break;
    case 1:
    case 2:
    case 3:
        if (walk->grant[i] != 0) {
            assert_int_equal(block_kill(ground, i, walk->grant[i]), YB_OK);
            walk->grant[i] = 0;
        }
        break;
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        if (walk->grant[i] == 0) {
            walk->grant[i] = ++walk->next_grant;
            walk->size[i] = size;
            assert_int_equal(block_store(ground, i, walk->grant[i], size), YB_OK);
        }
        break;
    default:
        if (walk->grant[i] == 0) {
            assert_int_equal(block_load(ground, i, 0, 0), YB_NOT_FOUND);
        } else {
            assert_int_equal(block_load(ground, i, 0, walk->size[i]), YB_OK);
        }
        break;
    }
    if (ground->recovered != 0) {
        assert_int_equal(yb_tier_find(ground->tier, ground_hash(i), &found), walk->grant[i] != 0);
    }
}

static void
walk(enum yb_object_layout layout)
{
    uint64_t seed = unit_seed("object walk");
    uint32_t steps = unit_long() ? 20 * WALK_STEPS : WALK_STEPS;
    struct object_ground ground;
    struct walk model = {.next_grant = 100};
    struct yb_tier_info info;
    uint64_t live = 0, blocks = 0;

    ground_init(&ground);
    ground.options.layout = layout;
    ground.options.pack_wait_ns = 1;
    ground.options.pack_block_max = 100000;
    ground_start(&ground);
    for (uint32_t i = 0; i < steps; i++) {
        walk_step(&ground, &model, &seed);
    }
    ground_recover(&ground);
    for (uint32_t i = 0; i < WALK_BLOCKS; i++) {
        live += model.grant[i] != 0 ? model.size[i] : 0;
        blocks += model.grant[i] != 0;
    }
    yb_tier_info(ground.tier, &info);
    assert_int_equal(info.live, live);
    assert_int_equal(info.blocks, blocks);
    assert_int_equal(info.storing_bytes, 0);
    ground_fini(&ground);
}

static void
test_object__a_walk_agrees_with_a_model(void **state)
{
    walk(YB_OBJECT_LAYOUT_BLOCK);
    (void)state;
}

static void
test_object__a_walk_over_packs_agrees_with_the_model(void **state)
{
    walk(YB_OBJECT_LAYOUT_PACKED);
    (void)state;
}

/* ---- packs ----------------------------------------------------------------------------------- */

#define PACKED 200u

static void
store_many(struct object_ground *ground, uint64_t size)
{
    struct object_block *blocks = calloc(PACKED, sizeof(*blocks));

    assert_non_null(blocks);
    for (uint32_t i = 0; i < PACKED; i++) {
        block_init(&blocks[i], i, 5, size);
        block_submit(ground, &blocks[i]);
    }
    for (uint32_t i = 0; i < PACKED; i++) {
        ground_turn(ground, &blocks[i].ended);
        assert_int_equal(blocks[i].status, YB_OK);
        block_fini(&blocks[i]);
    }
    free(blocks);
}

static void
load_many(struct object_ground *ground, uint64_t size)
{
    struct object_reading *readings = calloc(PACKED, sizeof(*readings));
    uint8_t *bytes = malloc(size);

    assert_non_null(readings);
    assert_non_null(bytes);
    for (uint32_t i = 0; i < PACKED; i++) {
        reading_init(&readings[i], i, 0, 0, size);
        reading_submit(ground, &readings[i]);
    }
    for (uint32_t i = 0; i < PACKED; i++) {
        ground_turn(ground, &readings[i].ended);
        assert_int_equal(readings[i].status, YB_OK);
        ground_fill(bytes, size, i, 5);
        assert_memory_equal(readings[i].bytes, bytes, size);
        reading_fini(&readings[i]);
    }
    free(bytes);
    free(readings);
}

static void
test_object__small_blocks_share_an_object_and_its_requests(void **state)
{
    struct object_ground ground;
    struct yb_object_stats stats;

    ground_init(&ground);
    ground.options.layout = YB_OBJECT_LAYOUT_PACKED;
    ground_start(&ground);
    ground_recover(&ground);
    store_many(&ground, 4096);
    load_many(&ground, 4096);
    stats = yb_object_stats(ground.tier);
    assert_in_range(stats.requests[YB_OBJECT_PUT], 1, 2);
    assert_in_range(stats.requests[YB_OBJECT_GET], 1, PACKED / 20);
    assert_int_equal(block_load_range(&ground, 7, 5, 100, 2000), YB_OK);
    ground_stop(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, PACKED);
    load_many(&ground, 4096);
    ground_fini(&ground);
    (void)state;
}

static void
test_object__a_kill_in_a_pack_holds_and_an_empty_pack_goes(void **state)
{
    struct object_ground ground;
    struct yb_tier_info info;

    ground_init(&ground);
    ground.options.layout = YB_OBJECT_LAYOUT_PACKED;
    ground_start(&ground);
    store_many(&ground, 1000);
    for (uint32_t i = 0; i < PACKED - 1; i++) {
        assert_int_equal(block_kill(&ground, i, 5), YB_OK);
    }
    ground_stop(&ground);
    ground_start(&ground);
    ground_recover(&ground);
    assert_int_equal(ground.found_count, 1);
    assert_int_equal(block_load(&ground, 3, 0, 1000), YB_NOT_FOUND);
    assert_int_equal(block_load(&ground, PACKED - 1, 0, 1000), YB_OK);
    assert_int_equal(block_kill(&ground, PACKED - 1, 5), YB_OK);
    do {
        yb_loop_turn(ground.loop, 100 * YB_NS_PER_MS);
        yb_tier_info(ground.tier, &info);
    } while (info.used > 0);
    ground_fini(&ground);
    (void)state;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object__a_name_is_read_as_it_was_written),
        cmocka_unit_test(test_object__no_tenant_reaches_into_anothers_names),
        cmocka_unit_test(test_object__a_record_with_one_wrong_bit_is_corrupt),
        cmocka_unit_test(test_object__what_was_stored_is_read_whole_and_in_parts),
        cmocka_unit_test(test_object__no_call_moves_much_of_a_file),
        cmocka_unit_test(test_object__another_key_with_the_same_hash_is_a_miss),
        cmocka_unit_test(test_object__the_highest_grant_is_found),
        cmocka_unit_test(test_object__a_restart_finds_what_was_resident),
        cmocka_unit_test(test_object__what_nobody_wants_is_dropped_for_good),
        cmocka_unit_test(test_object__a_load_may_ask_the_medium_before_it_is_known),
        cmocka_unit_test(test_object__a_kill_holds_against_late_uploads_and_restarts),
        cmocka_unit_test(test_object__a_kill_meets_the_store_that_is_under_way),
        cmocka_unit_test(test_object__a_flush_makes_everything_older_a_miss),
        cmocka_unit_test(test_object__damaged_bytes_are_corrupt_and_dropped),
        cmocka_unit_test(test_object__an_object_of_a_wrong_length_is_not_claimed),
        cmocka_unit_test(test_object__a_folder_that_cannot_be_used_is_refused_with_the_remedy),
        cmocka_unit_test(test_object__a_store_that_is_gone_is_back_when_its_file_says_so),
        cmocka_unit_test(test_object__a_store_that_is_far_is_known_to_be),
        cmocka_unit_test(test_object__a_walk_agrees_with_a_model),
        cmocka_unit_test(test_object__a_walk_over_packs_agrees_with_the_model),
        cmocka_unit_test(test_object__small_blocks_share_an_object_and_its_requests),
        cmocka_unit_test(test_object__a_kill_in_a_pack_holds_and_an_empty_pack_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
