/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants J1-J3 of observe/join.h.
 * Method: trees of calls between processes whose true times are known, written down by clocks that
 * are wrong by known amounts; the joined times are compared with the true ones.
 */
#include "unit.h"

#include <string.h>

#include "observe/join.h"

#define MS 1000000ll

/* A span of process `process`, at true times, by a clock that is ahead by `ahead_ns`. */
static struct yb_joined
span_at(uint32_t process, uint64_t id, uint64_t parent, int64_t start_ns, int64_t end_ns,
        int64_t ahead_ns)
{
    struct yb_joined joined = {
        .process = process,
        .span =
            {
                .trace.bytes = {1},
                .span = id,
                .parent = parent,
                .kind = YB_SPAN_KIND_CALL,
                .start_ns =
                    1000 * process + (uint64_t)start_ns, /* Monotonic: of no use elsewhere. */
                .end_ns = 1000 * process + (uint64_t)end_ns,
                .wall_ns = (uint64_t)(start_ns + ahead_ns),
            },
    };

    return joined;
}

static void
test_join__one_call_ties_two_clocks_together(void **state)
{
    const int64_t ahead = 5000 * MS;
    struct yb_joined spans[] = {
        span_at(0, 1, 0, 100 * MS, 110 * MS, 0),
        span_at(1, 2, 1, 101 * MS, 105 * MS, ahead),
    };
    struct yb_join_clock clocks[2];

    (void)state;
    spans[1].span.kind = YB_SPAN_KIND_SERVE;
    assert_int_equal(yb_join(spans, 2, 2, clocks), YB_OK);
    /* It was under way for 6 ms in all: the middle is 2 ms off what was true. */
    assert_int_equal(clocks[1].ahead_ns, ahead - 2 * MS);
    assert_int_equal(clocks[1].unsure_ns, 3 * MS);
    assert_int_equal(spans[1].parent, 0);
    assert_int_equal(spans[1].depth, 1);
    assert_int_equal(spans[1].start_ns, 103 * MS);
    assert_int_equal(yb_joined_end(&spans[1]), 107 * MS);
}

static void
test_join__clocks_that_may_be_the_same_are_left_alone(void **state)
{
    struct yb_joined spans[] = {
        span_at(0, 1, 0, 100 * MS, 110 * MS, 0),
        span_at(1, 2, 1, 101 * MS, 105 * MS, 0),
    };
    struct yb_join_clock clocks[2];

    (void)state;
    spans[1].span.kind = YB_SPAN_KIND_SERVE;
    assert_int_equal(yb_join(spans, 2, 2, clocks), YB_OK);
    assert_int_equal(clocks[1].ahead_ns, 0);
    assert_int_equal(spans[1].start_ns, 101 * MS);
}

static void
test_join__what_nobody_waited_for_is_moved_no_more_than_it_must(void **state)
{
    struct yb_joined spans[] = {
        span_at(0, 1, 0, 100 * MS, 101 * MS, 0),
        span_at(1, 2, 1, 102 * MS, 500 * MS, -50 * MS),
        span_at(2, 3, 0, 1 * MS, 2 * MS, 77 * MS),
    };
    struct yb_join_clock clocks[3];

    (void)state;
    assert_int_equal(yb_join(spans, 3, 3, clocks), YB_OK);
    assert_int_equal(spans[1].start_ns, 100 * MS);
    assert_int_equal(yb_joined_end(&spans[1]), 498 * MS);
    assert_true(clocks[2].unsure_ns == UINT64_MAX && clocks[2].ahead_ns == 0);
    assert_int_equal(spans[2].start_ns, 78 * MS);
}

static void
test_join__a_clock_that_drifts_breaks_no_order_and_no_length(void **state)
{
    struct yb_joined spans[] = {
        span_at(0, 1, 0, 0, 1000 * MS, 0),
        span_at(0, 2, 1, 100 * MS, 102 * MS, 0),
        span_at(1, 3, 2, 101 * MS, 101 * MS + 1, 40 * MS),
        span_at(0, 4, 1, 900 * MS, 910 * MS, 0),
        span_at(1, 5, 4, 901 * MS, 909 * MS, -40 * MS),
        span_at(1, 6, 5, 902 * MS, 903 * MS, -40 * MS),
    };
    struct yb_join_clock clocks[2];

    (void)state;
    spans[2].span.kind = spans[4].span.kind = YB_SPAN_KIND_SERVE;
    spans[5].span.began_ns = spans[5].span.start_ns + 7;
    assert_int_equal(yb_join(spans, 6, 2, clocks), YB_OK);
    for (uint32_t i = 1; i < 6; i++) {
        assert_true(spans[i].start_ns >= spans[spans[i].parent].start_ns); /* J2 */
        assert_true(yb_joined_end(&spans[i]) >= spans[i].start_ns);
    }
    assert_int_equal(yb_joined_began(&spans[5]) - spans[5].start_ns, 7);
    assert_int_equal(yb_joined_end(&spans[4]) - spans[4].start_ns, 8 * MS); /* J1 */
}

static void
test_join__ids_that_go_in_a_circle_end_nothing(void **state)
{
    struct yb_joined spans[] = {
        span_at(0, 1, 2, 1, 2, 0),
        span_at(0, 2, 1, 1, 2, 0),
        span_at(0, 3, 3, 1, 2, 0),
    };
    struct yb_join_clock clocks[1];

    (void)state;
    assert_int_equal(yb_join(spans, 3, 1, clocks), YB_OK);
    assert_int_equal(spans[2].depth, 0);
    assert_int_equal(yb_join(spans, 0, 0, clocks), YB_OK);
}

enum { PROCESSES = 9, SPANS = 200 };

/* A random tree: each span is a call served elsewhere, or work of its own, inside its parent. */
static uint32_t
grow(uint64_t *random, const int64_t *ahead, struct yb_joined *spans, int64_t *starts)
{
    uint32_t count = 1;

    starts[0] = 0;
    spans[0] = span_at(0, 1, 0, 0, 1ll << 40, ahead[0]);
    while (count + 2 <= SPANS) {
        uint32_t at = (uint32_t)(unit_random(random) % count);
        const struct yb_joined *parent = &spans[at];
        int64_t length = (int64_t)(parent->span.end_ns - parent->span.start_ns);
        int64_t out, back;
        uint32_t other = (uint32_t)(unit_random(random) % PROCESSES);

        if (length < 1000 || parent->span.kind != YB_SPAN_KIND_CALL ||
            (at != 0 && other % 2 == 0)) {
            continue;
        }
        out = starts[at] + (int64_t)(unit_random(random) % (uint64_t)(length / 4));
        back = starts[at] + length - (int64_t)(unit_random(random) % (uint64_t)(length / 4));
        starts[count] = out;
        spans[count] =
            span_at(parent->process, count + 1, at + 1, out, back, ahead[parent->process]);
        count++;
        length = back - out;
        starts[count] = out + (int64_t)(unit_random(random) % (uint64_t)(length / 8 + 1));
        back -= (int64_t)(unit_random(random) % (uint64_t)(length / 8 + 1));
        spans[count] = span_at(other, count + 1, count, starts[count], back, ahead[other]);
        spans[count].span.kind = YB_SPAN_KIND_SERVE;
        count++;
        /* What the server does for it is its own call's parent. */
        if (count < SPANS) {
            starts[count] = starts[count - 1];
            spans[count] = spans[count - 1];
            spans[count].span.kind = YB_SPAN_KIND_CALL;
            spans[count].span.span = count + 1;
            spans[count].span.parent = count;
            count++;
        }
    }
    return count;
}

static void
test_join__random_trees_by_wrong_clocks_are_put_right(void **state)
{
    static struct yb_joined spans[SPANS];
    static int64_t starts[SPANS];
    uint64_t random = unit_seed("join");

    (void)state;
    for (uint32_t turn = 0; turn < (unit_long() ? 5000 : 300); turn++) {
        struct yb_join_clock clocks[PROCESSES];
        int64_t ahead[PROCESSES] = {0};
        uint32_t count;

        for (uint32_t i = 1; i < PROCESSES; i++) {
            ahead[i] = (int64_t)(unit_random(&random) % (1ull << 44)) - (1ll << 43);
        }
        count = grow(&random, ahead, spans, starts);
        assert_int_equal(yb_join(spans, count, PROCESSES, clocks), YB_OK);
        for (uint32_t i = 0; i < PROCESSES; i++) {
            int64_t wrong = clocks[i].ahead_ns - ahead[i];

            assert_true(clocks[i].unsure_ns == UINT64_MAX ||
                        (uint64_t)(wrong < 0 ? -wrong : wrong) <= clocks[i].unsure_ns);
        }
        for (uint32_t i = 1; i < count; i++) {
            const struct yb_joined *parent = &spans[spans[i].parent];

            assert_int_equal(spans[i].parent, spans[i].span.parent - 1);
            assert_true(spans[i].start_ns >= parent->start_ns); /* J2 */
            if (spans[i].process == parent->process) {
                assert_true(yb_joined_end(&spans[i]) <= yb_joined_end(parent));
            }
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_join__one_call_ties_two_clocks_together),
        cmocka_unit_test(test_join__clocks_that_may_be_the_same_are_left_alone),
        cmocka_unit_test(test_join__what_nobody_waited_for_is_moved_no_more_than_it_must),
        cmocka_unit_test(test_join__a_clock_that_drifts_breaks_no_order_and_no_length),
        cmocka_unit_test(test_join__ids_that_go_in_a_circle_end_nothing),
        cmocka_unit_test(test_join__random_trees_by_wrong_clocks_are_put_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
