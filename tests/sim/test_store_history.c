/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the judge of histories accepts what can be true and nothing else.
 * Method: histories by hand, good and bad; then histories that are recorded from a store of one
 *   variable, whose operations overlap at random: they are good, and bad when one read is changed.
 */
#include "../unit/unit.h"

#include "store_history.h"

#define PUT(v, call, ret, what)                                                    \
    {                                                                              \
        .did = STORE_DID_PUT, .value = (v), .call_ns = (call), .return_ns = (ret), \
        .outcome = STORE_##what                                                    \
    }
#define UPSERT(v, call, ret, what)                                                    \
    {                                                                                 \
        .did = STORE_DID_UPSERT, .value = (v), .call_ns = (call), .return_ns = (ret), \
        .outcome = STORE_##what                                                       \
    }
#define GET(v, call, ret)                                                          \
    {                                                                              \
        .did = STORE_DID_GET, .value = (v), .call_ns = (call), .return_ns = (ret), \
        .outcome = (v) == 0 ? STORE_ABSENT : STORE_DONE                            \
    }
#define EXIST(call, ret, what)                                                                 \
    {                                                                                          \
        .did = STORE_DID_EXIST, .call_ns = (call), .return_ns = (ret), .outcome = STORE_##what \
    }
#define REMOVE(call, ret, what)                                                                 \
    {                                                                                           \
        .did = STORE_DID_REMOVE, .call_ns = (call), .return_ns = (ret), .outcome = STORE_##what \
    }
#define FLUSH(call, ret, what)                                                                 \
    {                                                                                          \
        .did = STORE_DID_FLUSH, .call_ns = (call), .return_ns = (ret), .outcome = STORE_##what \
    }

static enum store_verdict
judge_with(const struct store_event *events, uint32_t count, bool loss, bool returns)
{
    struct store_history history = {
        .events = events, .count = count, .loss = loss, .returns = returns};
    char why[256];

    return store_history_judge(&history, why, sizeof(why));
}

#define JUDGE(loss, ...)                                                                       \
    judge_with((const struct store_event[]){__VA_ARGS__},                                      \
               sizeof((const struct store_event[]){__VA_ARGS__}) / sizeof(struct store_event), \
               (loss), false)

static void
test_history__accepts_what_one_store_does(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(false, GET(0, 1, 2), PUT(7, 3, 4, DONE), GET(7, 5, 6),
                           PUT(8, 7, 8, PRESENT), REMOVE(9, 10, DONE), GET(0, 11, 12),
                           REMOVE(13, 14, ABSENT)),
                     STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 10, DONE), GET(0, 2, 3), GET(7, 4, 5)), STORE_GOOD);
    assert_int_equal(JUDGE(false, UPSERT(1, 1, 2, DONE), UPSERT(2, 3, 9, DONE), GET(1, 4, 5),
                           GET(2, 6, 7), GET(2, 10, 11)),
                     STORE_GOOD);
    assert_int_equal(
        JUDGE(false, PUT(1, 1, 2, DONE), PUT(2, 3, 4, FAILED), FLUSH(5, 6, DONE), GET(0, 7, 8)),
        STORE_GOOD);
}

static void
test_history__accepts_what_is_in_doubt_either_way(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DOUBT), GET(0, 3, 4), GET(7, 5, 6)), STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DOUBT), GET(0, 3, 4), GET(0, 5, 6)), STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DONE), REMOVE(3, 4, DOUBT), GET(0, 5, 6)),
                     STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DONE), REMOVE(3, 4, DOUBT), GET(7, 5, 6)),
                     STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DOUBT), GET(7, 3, 4), GET(0, 5, 6)), STORE_BAD);
    assert_int_equal(
        JUDGE(false, UPSERT(1, 1, 2, DONE), UPSERT(2, 3, 4, DOUBT), GET(2, 5, 6), GET(1, 7, 8)),
        STORE_BAD);
}

static void
test_history__accepts_reads_of_what_is_being_removed(void **state)
{
    (void)state;
    /* The directory has forgotten it, one node has not yet: until the removal is answered. */
    assert_int_equal(JUDGE(false, PUT(1, 1, 2, DONE), REMOVE(3, 20, DONE), GET(0, 4, 5),
                           PUT(2, 6, 10, DONE), GET(1, 8, 9), GET(2, 10, 11), GET(2, 21, 22)),
                     STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(1, 1, 2, DONE), REMOVE(3, 20, DONE), GET(0, 4, 5),
                           PUT(2, 6, 7, DONE), GET(1, 21, 22)),
                     STORE_BAD);
    /* The same for what has been replaced, until that is answered or the new value is removed. */
    assert_int_equal(JUDGE(false, PUT(1, 1, 2, DONE), UPSERT(2, 3, 20, DONE), REMOVE(4, 19, DONE),
                           EXIST(5, 6, ABSENT), GET(1, 7, 8), GET(0, 21, 22)),
                     STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(1, 1, 2, DONE), UPSERT(2, 3, 7, DONE), REMOVE(4, 19, DONE),
                           EXIST(5, 6, ABSENT), GET(1, 8, 9)),
                     STORE_BAD);
}

static void
test_history__refuses_reads_of_what_was_removed_before_what_is_there(void **state)
{
    (void)state;
    for (int upsert = 0; upsert < 2; upsert++) {
        struct store_event events[] = {
            PUT(1, 1, 2, DONE),  REMOVE(3, 20, DONE), EXIST(4, 5, ABSENT),
            PUT(2, 6, 18, DONE), EXIST(7, 8, DONE), /* Or another put is told so. */
            GET(1, 9, 10),
        };

        events[3].did = upsert != 0 ? STORE_DID_UPSERT : STORE_DID_PUT;
        assert_int_equal(judge_with(events, 6, false, false), STORE_BAD);
        events[4] = (struct store_event)PUT(3, 7, 8, PRESENT);
        assert_int_equal(judge_with(events, 6, false, false), STORE_BAD);
        events[4] = (struct store_event)EXIST(7, 8, ABSENT);
        assert_int_equal(judge_with(events, 6, false, false), STORE_GOOD);
    }
}

static void
test_history__refuses_what_cannot_be(void **state)
{
    (void)state;
    for (int loss = 0; loss < 2; loss++) {
        /* Nobody put it; it was put later; its put has failed. */
        assert_int_equal(JUDGE(loss, GET(7, 1, 2)), STORE_BAD);
        assert_int_equal(JUDGE(loss, GET(7, 1, 2), PUT(7, 3, 4, DONE)), STORE_BAD);
        assert_int_equal(JUDGE(loss, PUT(7, 1, 2, FAILED), GET(7, 3, 4)), STORE_BAD);
        /* Removed, flushed or replaced, acknowledged, and back. */
        assert_int_equal(JUDGE(loss, PUT(7, 1, 2, DONE), REMOVE(3, 4, DONE), GET(7, 5, 6)),
                         STORE_BAD);
        assert_int_equal(JUDGE(loss, PUT(7, 1, 2, DONE), FLUSH(3, 4, DONE), GET(7, 5, 6)),
                         STORE_BAD);
        assert_int_equal(JUDGE(loss, PUT(7, 1, 2, DONE), UPSERT(8, 3, 4, DONE), GET(7, 5, 6)),
                         STORE_BAD);
        /* In doubt, but it was read: so it had happened before the removal. */
        assert_int_equal(
            JUDGE(loss, PUT(7, 1, 2, DOUBT), GET(7, 3, 4), REMOVE(5, 6, DONE), GET(7, 7, 8)),
            STORE_BAD);
        /* Two versions in turns. */
        assert_int_equal(JUDGE(loss, UPSERT(1, 1, 9, DONE), UPSERT(2, 1, 9, DONE), GET(1, 2, 3),
                               GET(2, 4, 5), GET(1, 6, 7)),
                         STORE_BAD);
    }
}

static void
test_history__lets_values_get_lost_only_where_that_happens(void **state)
{
    (void)state;
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DONE), GET(0, 3, 4)), STORE_BAD);
    assert_int_equal(JUDGE(true, PUT(7, 1, 2, DONE), GET(0, 3, 4)), STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DONE), PUT(8, 3, 4, DONE)), STORE_BAD);
    assert_int_equal(JUDGE(true, PUT(7, 1, 2, DONE), PUT(8, 3, 4, DONE), GET(8, 5, 6)), STORE_GOOD);
    assert_int_equal(JUDGE(false, PUT(7, 1, 2, DONE), REMOVE(3, 4, ABSENT)), STORE_BAD);
}

static void
test_history__lets_unacknowledged_removals_be_undone_where_directories_die(void **state)
{
    struct store_event events[] = {
        PUT(1, 1, 2, DONE),
        REMOVE(3, 4, DOUBT),
        GET(0, 5, 6),
        {.did = STORE_DID_EXIST, .call_ns = 7, .return_ns = 8, .outcome = STORE_DONE},
    };

    (void)state;
    assert_int_equal(judge_with(events, 4, false, false), STORE_BAD);
    assert_int_equal(judge_with(events, 4, false, true), STORE_GOOD);
    events[1].outcome = STORE_DONE;
    assert_int_equal(judge_with(events, 4, false, true), STORE_BAD);
}

/* Record a history of a store of one variable: effects at random times, calls and returns
 * around. */
static uint32_t
record(uint64_t *random, struct store_event *events, uint32_t count)
{
    uint64_t value = 0;
    uint64_t now_ns = 100;

    for (uint32_t i = 0; i < count; i++) {
        struct store_event *event = &events[i];

        now_ns += 10;
        *event = (struct store_event){
            .did = (uint8_t)unit_random(random) % 6,
            .number = i,
            .call_ns = now_ns - unit_random(random) % 35,
            .return_ns = now_ns + unit_random(random) % 35,
            .outcome = STORE_DONE,
        };
        switch ((enum store_did)event->did) {
        case STORE_DID_PUT:
            event->value = i + 1;
            event->outcome = value == 0 ? STORE_DONE : STORE_PRESENT;
            value = value == 0 ? i + 1 : value;
            break;
        case STORE_DID_UPSERT: event->value = value = i + 1; break;
        case STORE_DID_GET:
            event->value = value;
            event->outcome = value == 0 ? STORE_ABSENT : STORE_DONE;
            break;
        case STORE_DID_EXIST: event->outcome = value == 0 ? STORE_ABSENT : STORE_DONE; break;
        case STORE_DID_REMOVE:
            event->outcome = value == 0 ? STORE_ABSENT : STORE_DONE;
            value = 0;
            break;
        case STORE_DID_FLUSH: value = 0; break;
        }
    }
    return count;
}

static void
test_history__judges_recorded_ones(void **state)
{
    uint64_t random = unit_seed("store_history");
    struct store_event events[48];

    (void)state;
    for (uint32_t round = 0; round < 200; round++) {
        uint32_t count = record(&random, events, 48);

        assert_int_equal(judge_with(events, count, false, false), STORE_GOOD);
        assert_int_equal(judge_with(events, count, true, false), STORE_GOOD);
        for (uint32_t i = 0; i < count; i++) { /* A read of what was put much later. */
            if (events[i].did == STORE_DID_GET && events[i].outcome == STORE_DONE) {
                events[i].value = 1000;
                assert_int_equal(judge_with(events, count, false, false), STORE_BAD);
                break;
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history__accepts_what_one_store_does),
        cmocka_unit_test(test_history__accepts_what_is_in_doubt_either_way),
        cmocka_unit_test(test_history__accepts_reads_of_what_is_being_removed),
        cmocka_unit_test(test_history__refuses_reads_of_what_was_removed_before_what_is_there),
        cmocka_unit_test(test_history__refuses_what_cannot_be),
        cmocka_unit_test(test_history__lets_values_get_lost_only_where_that_happens),
        cmocka_unit_test(
            test_history__lets_unacknowledged_removals_be_undone_where_directories_die),
        cmocka_unit_test(test_history__judges_recorded_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
