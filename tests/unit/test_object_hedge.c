/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: a load that is late is asked for once more, the caller's memory has one writer, and the
 * service is not asked much more often. Method: a medium that answers when the test says so, and a
 * clock that the test moves.
 */
#include "object_medium.h"

#define CONCURRENCY 12u
#define SIZE        100000u
#define QUICK       64u /* Loads after which the tier knows what is late. */

/* Until the reading ends, and everything is answered. */
static void
answer_all(struct medium *medium, const bool *ended)
{
    while (!*ended || medium->count > 0) {
        while (medium->count > 0) {
            medium_answer(medium, 0, medium->flying[0]->state == 1 ? YB_CANCELLED : YB_OK);
        }
        yb_loop_turn(medium->ground.loop, YB_NS_PER_MS);
    }
}

static void
quick_load(struct medium *medium)
{
    struct object_reading reading;

    reading_init(&reading, 1, 5, 0, SIZE);
    reading_submit(&medium->ground, &reading);
    medium_turn(medium, 0);
    answer_all(medium, &reading.ended);
    assert_int_equal(reading.status, YB_OK);
    reading_fini(&reading);
}

/* A tier that knows what is late, and asks twice for no more than so many bytes (0: as usual). */
static void
setup_bounded(struct medium *medium, uint64_t hedge_bytes_max)
{
    struct object_block block;

    medium_init(medium);
    medium->ground.options.pause_ns = 1;
    medium->ground.options.concurrency = CONCURRENCY;
    medium->ground.options.hedge_bytes_max = hedge_bytes_max;
    medium_start(medium);
    block_init(&block, 1, 5, SIZE);
    block_submit(&medium->ground, &block);
    medium_turn(medium, 0);
    answer_all(medium, &block.ended);
    assert_int_equal(block.status, YB_OK);
    block_fini(&block);
    for (uint32_t i = 0; i < QUICK; i++) {
        quick_load(medium);
    }
    assert_int_equal(yb_object_stats(medium->ground.tier).hedges, 0);
}

static void
setup(struct medium *medium)
{
    setup_bounded(medium, 0);
}

/* One load, whose first request is late: there are two. */
static void
late_load(struct medium *medium, struct object_reading *reading)
{
    reading_init(reading, 1, 5, 0, SIZE);
    reading_submit(&medium->ground, reading);
    medium_turn(medium, 0);
    assert_int_equal(medium->count, 1);
    medium_turn(medium, 1);
    assert_int_equal(medium->count, 1);
    medium_turn(medium, 100);
    assert_int_equal(medium->count, 2);
    assert_string_equal(medium->flying[0]->name, medium->flying[1]->name);
}

static void
check_bytes(const struct object_reading *reading)
{
    uint8_t *bytes = malloc(SIZE);

    assert_non_null(bytes);
    assert_int_equal(reading->status, YB_OK);
    ground_fill(bytes, SIZE, 1, 5);
    assert_memory_equal(reading->bytes, bytes, SIZE);
    free(bytes);
}

static void
assert_untouched(const struct object_reading *reading)
{
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(reading->bytes[i], 0xee);
    }
}

static void
test_object_hedge__the_second_that_wins_is_copied_once_the_first_is_quiet(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    setup(medium);
    late_load(medium, &reading);
    medium_answer(medium, 1, YB_OK);
    assert_int_equal(medium->count, 1);
    assert_int_equal(medium->flying[0]->state, 1); /* Asked back, and not quiet yet: ... */
    for (uint32_t i = 0; i < 20; i++) {
        yb_loop_turn(medium->ground.loop, YB_NS_PER_MS);
    }
    assert_false(reading.ended);
    assert_untouched(&reading); /* ... the memory is its own. */
    answer_all(medium, &reading.ended);
    check_bytes(&reading);
    assert_int_equal(yb_object_stats(medium->ground.tier).hedges, 1);
    assert_int_equal(yb_object_stats(medium->ground.tier).hedges_won, 1);
    assert_int_equal(yb_object_stats(medium->ground.tier).retries, 0);
    reading_fini(&reading);
    ground_fini(&medium->ground);
    free(medium);
    (void)state;
}

static void
test_object_hedge__the_first_that_comes_after_all_ends_the_load_at_once(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    setup(medium);
    late_load(medium, &reading);
    medium_answer(medium, 0, YB_OK);
    medium_turn(medium, 0);
    assert_true(reading.ended);
    check_bytes(&reading);
    memset(reading.bytes, 0x11, SIZE); /* The caller's again: */
    assert_int_equal(medium->count, 1);
    assert_int_equal(medium->flying[0]->state, 1);
    memset(medium->object, 0x77, sizeof(medium->object));
    medium_answer(medium, 0, YB_OK); /* nobody writes it. */
    medium_turn(medium, 0);
    for (uint32_t i = 0; i < SIZE; i++) {
        assert_int_equal(reading.bytes[i], 0x11);
    }
    assert_int_equal(yb_object_stats(medium->ground.tier).hedges_won, 0);
    reading_fini(&reading);
    ground_fini(&medium->ground);
    free(medium);
    (void)state;
}

static void
test_object_hedge__a_first_that_fails_waits_for_the_second(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    for (int well = 0; well < 2; well++) {
        setup(medium);
        late_load(medium, &reading);
        medium_answer(medium, 0, YB_PEER_LOST);
        medium_turn(medium, 0);
        assert_false(reading.ended);
        assert_int_equal(medium->count, 1);
        medium_answer(medium, 0, well == 1 ? YB_OK : YB_PEER_LOST);
        medium_turn(medium, well == 1 ? 0 : 1); /* Neither came: it is tried again. */
        answer_all(medium, &reading.ended);
        check_bytes(&reading);
        assert_int_equal(yb_object_stats(medium->ground.tier).hedges_won, well);
        assert_int_equal(yb_object_stats(medium->ground.tier).retries, !well);
        reading_fini(&reading);
        ground_fini(&medium->ground);
    }
    free(medium);
    (void)state;
}

static void
test_object_hedge__a_load_that_is_cancelled_meanwhile_ends(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    for (int how = 0; how < 3; how++) { /* Both under way; the second has won; the first failed. */
        setup(medium);
        late_load(medium, &reading);
        if (how > 0) {
            medium_answer(medium, how == 1, how == 1 ? YB_OK : YB_PEER_LOST);
        }
        yb_tier_cancel(medium->ground.tier, &reading.load.op);
        answer_all(medium, &reading.ended);
        assert_int_equal(reading.status, YB_CANCELLED);
        assert_int_equal(yb_object_stats(medium->ground.tier).flying, 0);
        reading_fini(&reading);
        ground_fini(&medium->ground);
    }
    free(medium);
    (void)state;
}

static void
test_object_hedge__a_service_that_is_slow_altogether_is_not_asked_twice(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    uint64_t gets;

    setup(medium);
    for (uint32_t i = 0; i < 400; i++) {
        struct object_reading reading;

        reading_init(&reading, 1, 5, 0, SIZE);
        reading_submit(&medium->ground, &reading);
        medium_turn(medium, 0);
        medium_turn(medium, 100);
        answer_all(medium, &reading.ended);
        check_bytes(&reading);
        reading_fini(&reading);
    }
    gets = QUICK + 400;
    assert_in_range(yb_object_stats(medium->ground.tier).hedges, 10, gets / 20);
    assert_int_equal(medium->gets, gets + yb_object_stats(medium->ground.tier).hedges);
    ground_fini(&medium->ground);
    free(medium);
    (void)state;
}

/* Room for its edges and its record is no room for more of it. */
static void
test_object_hedge__a_load_above_the_bound_is_asked_for_once(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    setup_bounded(medium, SIZE - 1);
    reading_init(&reading, 1, 5, 0, SIZE);
    reading_submit(&medium->ground, &reading);
    medium_turn(medium, 0);
    medium_turn(medium, 1);
    medium_turn(medium, 100);
    assert_int_equal(medium->count, 1);
    answer_all(medium, &reading.ended);
    check_bytes(&reading);
    assert_int_equal(medium->gets, QUICK + 1);
    reading_fini(&reading);
    ground_fini(&medium->ground);
    setup_bounded(medium, SIZE);
    late_load(medium, &reading);
    answer_all(medium, &reading.ended);
    reading_fini(&reading);
    ground_fini(&medium->ground);
    free(medium);
    (void)state;
}

/* Of a service that has enough to do all are late, and none is asked for twice; the straggler that
 * is left when the others have come is. */
static void
test_object_hedge__a_service_with_enough_to_do_is_asked_once(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading readings[CONCURRENCY];

    setup(medium);
    for (uint32_t i = 0; i < CONCURRENCY; i++) {
        reading_init(&readings[i], 1, 5, 0, SIZE);
        reading_submit(&medium->ground, &readings[i]);
    }
    medium_turn(medium, 0);
    for (uint32_t i = 0; i < 10; i++) {
        medium_turn(medium, 100);
        assert_int_equal(medium->count, CONCURRENCY);
    }
    while (medium->count > 1) {
        medium_answer(medium, 1, YB_OK);
    }
    medium_turn(medium, 100);
    assert_int_equal(medium->count, 2);
    assert_int_equal(medium->gets, QUICK + CONCURRENCY + 1);
    for (uint32_t i = 0; i < CONCURRENCY; i++) {
        answer_all(medium, &readings[i].ended);
        check_bytes(&readings[i]);
        reading_fini(&readings[i]);
    }
    ground_fini(&medium->ground);
    free(medium);
    (void)state;
}

/* What a backend says of bytes while they come counts for those bytes, and not for the second's. */
static void
test_object_hedge__sums_of_the_first_say_nothing_of_the_second(void **state)
{
    struct medium *medium = malloc(sizeof(*medium));
    struct object_reading reading;

    for (int half = 0; half < 2; half++) {
        struct yb_object_request *first;

        setup(medium);
        late_load(medium, &reading);
        first = medium->flying[0];
        assert_non_null(first->came);
        if (half == 1) { /* Torn in a chunk, and then it is away. */
            (void)yb_object_bytes_write(&first->bytes, 0, medium->object + first->offset, 70000);
            first->came(first, 70000);
        } else {
            (void)yb_object_bytes_write(&first->bytes, 0, medium->object + first->offset, SIZE);
            first->came(first, SIZE);
            medium->object[5] ^= 1; /* The second's bytes are wrong where the first's were right. */
        }
        medium_answer(medium, 0, YB_PEER_LOST);
        medium_answer(medium, 0, YB_OK);
        answer_all(medium, &reading.ended);
        assert_int_equal(reading.status, half == 1 ? YB_OK : YB_CORRUPT);
        reading_fini(&reading);
        ground_fini(&medium->ground);
    }
    free(medium);
    (void)state;
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object_hedge__the_second_that_wins_is_copied_once_the_first_is_quiet),
        cmocka_unit_test(test_object_hedge__the_first_that_comes_after_all_ends_the_load_at_once),
        cmocka_unit_test(test_object_hedge__a_first_that_fails_waits_for_the_second),
        cmocka_unit_test(test_object_hedge__a_load_that_is_cancelled_meanwhile_ends),
        cmocka_unit_test(test_object_hedge__a_service_that_is_slow_altogether_is_not_asked_twice),
        cmocka_unit_test(test_object_hedge__a_load_above_the_bound_is_asked_for_once),
        cmocka_unit_test(test_object_hedge__a_service_with_enough_to_do_is_asked_once),
        cmocka_unit_test(test_object_hedge__sums_of_the_first_say_nothing_of_the_second),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
