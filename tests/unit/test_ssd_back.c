/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a log whose directory cannot be opened, or whose medium fails, says so, and is used without
 * a restart once it can be. Method: real directories, on a clock of the test's own: one that
 * another has locked; one whose file system is mounted read-only, in a mount namespace of this
 * process's own. And a medium in memory, which fails for as long as the test says so.
 */
#include "ssd_stage.h"

#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static void
open_there(struct stage *stage, const char *directory)
{
    char name[64] = "";

    stage_init(stage);
    stage->turn_ns = YB_NS_PER_MS;
    stage->options.device = NULL;
    (void)snprintf(name, sizeof(name), "%s", directory);
    stage->options.directory = name;
    stage->options.io = "threads";
    assert_int_equal(yb_ssd_create(&stage->options, &stage->tier), YB_OK);
    memset(name, 'x', sizeof(name) - 1); /* It is not the tier's. */
    stage_turns(stage, 3);
}

/* It is aside, with the remedy; and time alone does not change that. */
static void
check_aside(struct stage *stage, enum yb_status status, const char *remedy)
{
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(stage->aside, status);
        assert_true(stage->recovered);
        assert_int_equal(stage->recovered_status, status);
        if (strstr(stage->why, remedy) == NULL) {
            fail_msg("no \"%s\" in: %s", remedy, stage->why);
        }
        assert_int_equal(stage_put(stage, 1, 10, 5000), status);
        stage->now_ns += 100 * YB_NS_PER_S;
        stage_turns(stage, 3);
    }
}

/* Within the longest pause it is back, and holds what it is given. */
static void
check_back(struct stage *stage, uint32_t found)
{
    struct yb_tier_info info;

    stage->recovered = false;
    stage->now_ns += 61 * YB_NS_PER_S;
    for (uint32_t i = 0; !stage->recovered; i++) {
        assert_true(i < 60000);
        stage_turn(stage);
    }
    assert_int_equal(stage->aside, YB_OK);
    assert_int_equal(stage->recovered_status, YB_OK);
    assert_int_equal(stage->found_count, found);
    assert_int_equal(stage_put(stage, 1 + found, 10, 5000), YB_OK);
    assert_int_equal(stage_get(stage, 1 + found, 0, NULL), YB_OK);
    yb_tier_info(stage->tier, &info);
    assert_int_equal(info.aside, YB_OK);
    assert_false(info.recovering);
}

static void
remove_log(const char *directory)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/log", directory);
    assert_int_equal(unlink(path), 0);
}

static void
test_ssd_back__a_directory_that_was_locked_is_used_when_it_is_free(void **state)
{
    char directory[] = "test_ssd_back.XXXXXX";
    struct yb_ssd_device *other = NULL;
    char why[YB_SSD_WHY_BYTES] = "";
    struct stage stage;

    assert_non_null(mkdtemp(directory));
    for (uint32_t found = 0; found < 2; found++) {
        struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
        struct yb_loop *loop = NULL;

        assert_int_equal(yb_loop_create(&options, &loop), YB_OK);
        assert_int_equal(yb_ssd_device_open(loop, directory, "threads", &other, why), YB_OK);
        open_there(&stage, directory);
        check_aside(&stage, YB_BUSY, "another process uses this directory");
        other->ops->close(other);
        check_back(&stage, found);
        stage_close(&stage);
        stage_fini(&stage);
        yb_loop_destroy(&loop);
    }
    remove_log(directory);
    assert_int_equal(rmdir(directory), 0);
    (void)state;
}

static void
test_ssd_back__it_stops_while_it_waits_for_its_directory(void **state)
{
    struct stage stage;

    open_there(&stage, "/dev/null/no-directory");
    check_aside(&stage, YB_IO, "--data-dir");
    stage_close(&stage);
    stage_fini(&stage);
    (void)state;
}

static void
test_ssd_back__a_read_only_file_system_is_used_when_it_is_writable(void **state)
{
    char directory[] = "test_ssd_back.XXXXXX";
    struct stage stage;

    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
        print_message("a mount namespace is not permitted here: %s\n", strerror(errno));
        skip();
    }
    assert_non_null(mkdtemp(directory));
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", directory, "tmpfs", MS_RDONLY, "size=64m") != 0) {
        print_message("a mount is not permitted here: %s\n", strerror(errno));
        (void)rmdir(directory);
        skip();
    }
    open_there(&stage, directory);
    check_aside(&stage, YB_IO, "mount the file system writable");
    assert_int_equal(mount("none", directory, NULL, MS_REMOUNT, "size=64m"), 0);
    check_back(&stage, 0);
    stage_close(&stage);
    stage_fini(&stage);
    assert_int_equal(umount(directory), 0);
    assert_int_equal(rmdir(directory), 0);
    (void)state;
}

/* ---- a medium that fails ------------------------------------------------------------------- */

#define SIZE 5000u

/* Let so much time pass that every pause is over. */
static void
wait_long(struct stage *stage)
{
    stage->now_ns += 61 * YB_NS_PER_S;
    stage_turns(stage, 200);
}

static void
fail_from_now_on(struct stage *stage, uint32_t what, int error)
{
    stage->device->fails = true;
    *(what == 0   ? &stage->device->fail_next_write
      : what == 1 ? &stage->device->fail_next_sync
                  : &stage->device->fail_next_read) = error;
}

static void
work_again(struct stage *stage)
{
    stage->device->fails = false;
    stage->device->fail_next_write = stage->device->fail_next_sync = 0;
    stage->device->fail_next_read = 0;
    stage->recovered = false;
    stage->found_count = 0;
    for (uint32_t i = 0; !stage->recovered; i++) {
        assert_true(i < 10);
        wait_long(stage);
    }
    assert_int_equal(stage->aside, YB_OK);
    assert_int_equal(stage->recovered_status, YB_OK);
}

static void
test_ssd_back__a_medium_that_takes_writes_again_is_used_again(void **state)
{
    static const int errors[] = {EIO, EIO, ENOSPC};

    (void)state;
    for (uint32_t round = 0; round < 3; round++) {
        struct stage stage;

        stage_init(&stage);
        stage_open(&stage, false);
        assert_int_equal(stage_put(&stage, 1, 10, SIZE), YB_OK);
        assert_int_equal(stage_put(&stage, 2, 20, SIZE), YB_OK);
        assert_int_equal(stage_kill(&stage, stage_hash(2), 20), YB_OK);
        fail_from_now_on(&stage, round == 1, errors[round]);
        assert_int_equal(stage_put(&stage, 3, 30, SIZE), YB_IN_DOUBT);
        for (uint32_t i = 0; i < 5; i++) { /* Meanwhile what was there is read, and that is all. */
            wait_long(&stage);
            assert_int_equal(stage.aside, YB_IO);
            assert_int_equal(stage_get(&stage, 1, 10, NULL), YB_OK);
            assert_int_equal(stage_put(&stage, 4, 40, SIZE), YB_IO);
            assert_int_equal(stage_kill(&stage, stage_hash(1), 10), YB_IO);
        }
        work_again(&stage);
        assert_int_equal(stage_get(&stage, 1, 10, NULL), YB_OK);
        assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_NOT_FOUND);
        for (uint32_t i = 0; i < 200; i++) { /* Room is found, and reclaimed, as ever. */
            assert_int_equal(stage_put(&stage, 100 + i, 1000 + i, SIZE), YB_OK);
            assert_int_equal(stage_get(&stage, 100 + i, 0, NULL), YB_OK);
        }
        stage_close(&stage);
        stage_open(&stage, false);
        assert_int_equal(stage_get(&stage, 299, 0, NULL), YB_OK);
        assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_NOT_FOUND);
        stage_fini(&stage);
    }
}

/* Nothing of what was known before counts: here the disk is another one by now. */
static void
test_ssd_back__what_is_there_then_is_read_anew(void **state)
{
    static uint8_t before[STAGE_IMAGE_BYTES];
    struct stage stage;

    (void)state;
    stage_init(&stage);
    stage_open(&stage, false);
    assert_int_equal(stage_put(&stage, 1, 10, SIZE), YB_OK);
    memcpy(before, yb_ssd_memory_bytes(stage.memory), STAGE_IMAGE_BYTES);
    assert_int_equal(stage_put(&stage, 2, 20, SIZE), YB_OK);
    fail_from_now_on(&stage, 0, EIO);
    assert_int_equal(stage_put(&stage, 3, 30, SIZE), YB_IN_DOUBT);
    fail_from_now_on(&stage, 2, EIO); /* Nor can it be read. */
    stage.recovered = false;
    wait_long(&stage);
    assert_int_equal(stage.recovered_status, YB_IO);
    assert_int_equal(stage.aside, YB_IO);
    memcpy(yb_ssd_memory_bytes(stage.memory), before, STAGE_IMAGE_BYTES);
    work_again(&stage);
    assert_int_equal(stage.found_count, 1);
    assert_int_equal(stage_get(&stage, 1, 10, NULL), YB_OK);
    assert_int_equal(stage_get(&stage, 2, 0, NULL), YB_NOT_FOUND);
    assert_int_equal(stage_put(&stage, 2, 21, SIZE), YB_OK);
    assert_int_equal(stage_get(&stage, 2, 21, NULL), YB_OK);
    stage_fini(&stage);
}

static void
test_ssd_back__it_stops_in_the_middle_of_a_trial(void **state)
{
    (void)state;
    for (uint32_t turns = 0; turns < 12; turns++) {
        struct stage stage;

        stage_init(&stage);
        stage_open(&stage, false);
        stage.device->fail_next_write = EIO;
        assert_int_equal(stage_put(&stage, 1, 10, SIZE), YB_IN_DOUBT);
        stage.now_ns += 61 * YB_NS_PER_S;
        stage_turns(&stage, turns);
        stage_fini(&stage);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd_back__a_directory_that_was_locked_is_used_when_it_is_free),
        cmocka_unit_test(test_ssd_back__a_medium_that_takes_writes_again_is_used_again),
        cmocka_unit_test(test_ssd_back__what_is_there_then_is_read_anew),
        cmocka_unit_test(test_ssd_back__it_stops_in_the_middle_of_a_trial),
        cmocka_unit_test(test_ssd_back__it_stops_while_it_waits_for_its_directory),
        cmocka_unit_test(test_ssd_back__a_read_only_file_system_is_used_when_it_is_writable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
