/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "base/clock.h"
#include "client/choose.h"

#define ROWS_MAX 24u

/* A small world with many equals in it. */
static uint32_t
make_rows(struct yb_choice rows[ROWS_MAX], uint64_t *random)
{
    uint32_t count = (uint32_t)(unit_random(random) % (ROWS_MAX + 1));

    for (uint32_t i = 0; i < count; i++) {
        rows[i] = (struct yb_choice){
            .slot = (uint16_t)(i + 1),
            .writable = unit_random(random) % 5 != 0,
            .failed = unit_random(random) % 4 == 0,
            .local = unit_random(random) % 6 == 0,
            .preferred = unit_random(random) % 8 == 0,
            .tried = unit_random(random) % 8 == 0,
            .zone = (uint32_t)(unit_random(random) % 3),
            .rack = (uint32_t)(unit_random(random) % 5),
            .host = (uint32_t)(unit_random(random) % 9),
            .capacity = unit_random(random) % 3 == 0 ? 100 : 1000,
            .busy_bytes = unit_random(random) % 4,
        };
        rows[i].free_bytes = unit_random(random) % (rows[i].capacity + 1);
    }
    return count;
}

static bool
possible(const struct yb_choice *row, uint64_t bytes)
{
    return row->writable && !row->tried && row->capacity >= bytes;
}

/* 4 and more: the same host as one of those before; 2: rack; 1: zone; 0: nothing in common. */
static uint32_t
closeness(const struct yb_choice *rows, uint32_t row, const uint32_t *before, uint32_t count)
{
    uint32_t worst = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct yb_choice *a = &rows[row], *b = &rows[before[i]];
        uint32_t level = (a->host != 0 && a->host == b->host ? 4u : 0u) +
                         (a->rack != 0 && a->rack == b->rack ? 2u : 0u) +
                         (a->zone != 0 && a->zone == b->zone ? 1u : 0u);

        worst = level > worst ? level : worst;
    }
    return worst;
}

static bool
is_in(uint32_t row, const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i] == row) {
            return true;
        }
    }
    return false;
}

/* Of all that were possible, judged one by one, is this one right? */
static void
judge_place(const struct yb_choice *rows, uint32_t count, uint64_t bytes, const uint32_t *places,
            uint32_t at)
{
    uint32_t row = places[at];
    uint32_t close = closeness(rows, row, places, at);

    assert_true(row < count);
    assert_true(possible(&rows[row], bytes));
    assert_false(is_in(row, places, at));
    for (uint32_t other = 0; other < count; other++) {
        if (!possible(&rows[other], bytes) || is_in(other, places, at)) {
            continue;
        }
        assert_false(rows[other].preferred && !rows[row].preferred);
        if (rows[row].preferred) {
            assert_false(rows[other].preferred && rows[other].free_bytes > rows[row].free_bytes);
            continue;
        }
        assert_false(at == 0 && rows[other].local && !rows[row].local);
        if (!(at == 0 && rows[row].local)) {
            assert_true(closeness(rows, other, places, at) >= close);
        }
    }
}

static void
test_choose__places_are_different_able_and_as_far_apart_as_can_be(void **state)
{
    uint64_t random = unit_seed("choose");

    for (uint32_t round = 0; round < (unit_long() ? 500000 : 50000); round++) {
        struct yb_choice rows[ROWS_MAX];
        uint32_t count = make_rows(rows, &random);
        uint32_t wanted = 1 + (uint32_t)(unit_random(&random) % YB_CHOOSE_MAX);
        uint64_t bytes = unit_random(&random) % 2 == 0 ? 50 : 500;
        uint64_t numbers[2 * YB_CHOOSE_MAX];
        uint32_t places[YB_CHOOSE_MAX];
        uint32_t able = 0, made;

        for (uint32_t i = 0; i < 2 * YB_CHOOSE_MAX; i++) {
            numbers[i] = unit_random(&random);
        }
        for (uint32_t i = 0; i < count; i++) {
            able += possible(&rows[i], bytes);
        }
        made = yb_choose_places(rows, count,
                                &(struct yb_choose_block){.bytes = bytes, .wanted = wanted},
                                numbers, places);
        assert_int_equal(made, able < wanted ? able : wanted);
        for (uint32_t i = 0; i < made; i++) {
            judge_place(rows, count, bytes, places, i);
        }
    }
}

static void
test_choose__nodes_of_this_host_share_what_is_put_from_here(void **state)
{
    const struct yb_choice rows[] = {
        {.slot = 1, .writable = true, .local = true, .capacity = 100, .free_bytes = 6},
        {.slot = 2, .writable = true, .local = true, .capacity = 100, .free_bytes = 5},
        {.slot = 3, .writable = true, .local = true, .capacity = 100, .free_bytes = 5},
        {.slot = 4, .writable = true, .local = true, .capacity = 100, .free_bytes = 100},
        {.slot = 5, .writable = true, .capacity = 100, .free_bytes = 100},
    };
    const struct yb_choose_block block = {.bytes = 1, .wanted = 1};
    uint64_t random = unit_seed("choose_local");
    uint32_t taken[5] = {0};

    (void)state;
    for (uint32_t round = 0; round < 10000; round++) {
        const uint64_t numbers[] = {unit_random(&random), unit_random(&random)};
        uint32_t places[YB_CHOOSE_MAX];

        assert_int_equal(yb_choose_places(rows, 5, &block, numbers, places), 1);
        taken[places[0]]++;
    }
    assert_int_equal(taken[4], 0);
    assert_true(taken[3] < 5000); /* A newcomer gets less than twice its fair share. */
    assert_true(taken[3] > 3000);
    assert_true(taken[0] > 0 && taken[1] > 0);
}

static void
test_choose__replicas_avoid_the_hosts_of_those_before(void **state)
{
    const struct yb_choice rows[] = {
        {.slot = 1, .writable = true, .host = 1, .capacity = 10, .preferred = true},
        {.slot = 2, .writable = true, .host = 1, .capacity = 10, .free_bytes = 10},
        {.slot = 3, .writable = true, .host = 2, .capacity = 10},
    };
    const struct yb_choose_block block = {.bytes = 5, .wanted = 3};
    const uint64_t numbers[6] = {0, 1, 0, 1, 0, 1};
    uint32_t places[YB_CHOOSE_MAX];

    assert_int_equal(yb_choose_places(rows, 3, &block, numbers, places), 3);
    assert_int_equal(places[0], 0);
    assert_int_equal(places[1], 2);
    assert_int_equal(places[2], 1);
}

/* Several nodes of a machine may hang on supplies or switches of their own. */
static void
test_choose__replicas_on_one_host_avoid_the_racks_and_zones_of_those_before(void **state)
{
    const struct yb_choice rows[] = {
        {.slot = 1, .writable = true, .host = 1, .rack = 1, .zone = 1, .preferred = true},
        {.slot = 2, .writable = true, .host = 1, .rack = 1, .zone = 1},
        {.slot = 3, .writable = true, .host = 1, .rack = 2, .zone = 1},
        {.slot = 4, .writable = true, .host = 1, .rack = 3, .zone = 2},
    };
    const struct yb_choose_block block = {.wanted = 4};
    const uint64_t numbers[8] = {0, 1, 0, 1, 0, 1, 0, 1};
    uint32_t places[YB_CHOOSE_MAX];

    (void)state;
    assert_int_equal(yb_choose_places(rows, 4, &block, numbers, places), 4);
    assert_int_equal(places[0], 0);
    assert_int_equal(places[1], 3);
    assert_int_equal(places[2], 2);
    assert_int_equal(places[3], 1);
}

/* Where a group's block of 10 bytes goes, if it is asked by somebody who draws other numbers and
 * lists the nodes in another order. */
static uint32_t
home_of(const struct yb_choice *rows, uint32_t count, uint64_t group, uint64_t *random,
        uint16_t slots_out[2])
{
    const struct yb_choose_block block = {.bytes = 10, .group = group, .wanted = 2};
    struct yb_choice mine[ROWS_MAX];
    uint64_t numbers[4];
    uint32_t places[YB_CHOOSE_MAX];
    uint32_t turn = (uint32_t)(unit_random(random) % count);
    uint32_t made;

    for (uint32_t i = 0; i < count; i++) {
        mine[i] = rows[(i + turn) % count];
    }
    for (uint32_t i = 0; i < 4; i++) {
        numbers[i] = unit_random(random);
    }
    made = yb_choose_places(mine, count, &block, numbers, places);
    for (uint32_t i = 0; i < made; i++) {
        slots_out[i] = mine[places[i]].slot;
    }
    return made;
}

static void
test_choose__a_group_is_on_one_node_as_far_as_that_has_room(void **state)
{
    uint64_t random = unit_seed("choose_group");
    uint32_t homes[6] = {0};

    (void)state;
    for (uint64_t group = 1; group <= 600; group++) {
        struct yb_choice rows[6];
        uint16_t first[2], again[2];

        for (uint16_t i = 0; i < 6; i++) {
            rows[i] = (struct yb_choice){.slot = (uint16_t)(i + 1),
                                         .writable = true,
                                         .host = i / 2u + 1u,
                                         .capacity = 100,
                                         .free_bytes = 10 + unit_random(&random) % 90};
        }
        assert_int_equal(home_of(rows, 6, group, &random, first), 2);
        assert_true((first[0] - 1) / 2 != (first[1] - 1) / 2); /* Never two on one host. */
        for (uint32_t client = 0; client < 4; client++) {
            assert_int_equal(home_of(rows, 6, group, &random, again), 2);
            assert_true(again[0] == first[0] && again[1] == first[1]);
        }
        homes[first[0] - 1]++;
        rows[first[0] - 1].free_bytes = 9; /* No room any more: all go on to the same next one. */
        assert_int_equal(home_of(rows, 6, group, &random, first), 2);
        assert_true(rows[first[0] - 1].free_bytes >= 10);
        assert_int_equal(home_of(rows, 6, group, &random, again), 2);
        assert_true(again[0] == first[0] && again[1] == first[1]);
        for (uint32_t i = 0; i < 6; i++) {
            rows[i].free_bytes = 9;
        }
        assert_int_equal(home_of(rows, 6, group, &random, again), 2); /* They make room. */
    }
    for (uint32_t i = 0; i < 6; i++) {
        assert_in_range(homes[i], 50, 200); /* Groups are spread: 100 each. */
    }
}

static void
test_choose__of_two_drawn_the_one_with_more_room_wins(void **state)
{
    const struct yb_choice rows[] = {
        {.slot = 1, .writable = true, .capacity = 1000, .free_bytes = 500},
        {.slot = 2, .writable = true, .capacity = 100, .free_bytes = 90},
        {.slot = 3, .writable = true, .capacity = 100, .free_bytes = 10},
    };
    const struct yb_choose_block block = {.bytes = 5, .wanted = 1};
    uint32_t places[YB_CHOOSE_MAX];

    for (uint64_t a = 0; a < 3; a++) {
        for (uint64_t b = 0; b < 3; b++) {
            const uint64_t numbers[2] = {a, b};
            const uint32_t order[] = {1, 0, 2}; /* The best first. */

            assert_int_equal(yb_choose_places(rows, 3, &block, numbers, places), 1);
            for (uint32_t i = 0; i < 3; i++) {
                if (order[i] == a || order[i] == b) {
                    assert_int_equal(places[0], order[i]);
                    break;
                }
            }
        }
    }
}

static void
test_choose__reads_where_it_is_near_and_quiet_and_fails_last(void **state)
{
    uint64_t random = unit_seed("choose source");

    for (uint32_t round = 0; round < 50000; round++) {
        struct yb_choice rows[ROWS_MAX];
        uint32_t count = make_rows(rows, &random);
        uint32_t slots[4], slot_count = (uint32_t)(unit_random(&random) % 5);
        uint32_t tried = (uint32_t)(unit_random(&random) % 16), best, able = 0;

        for (uint32_t i = 0; i < slot_count; i++) {
            bool known = count > 0 && unit_random(&random) % 4 != 0;

            slots[i] = known ? (uint32_t)(unit_random(&random) % count) : UINT32_MAX;
            able += known && (tried & 1u << i) == 0;
        }
        best = yb_choose_source(rows, slots, slot_count, tried, unit_random(&random));
        assert_int_equal(best != UINT32_MAX, able > 0);
        for (uint32_t i = 0; able > 0 && i < slot_count; i++) {
            const struct yb_choice *one, *other;

            if ((tried & 1u << i) != 0 || slots[i] == UINT32_MAX) {
                assert_int_not_equal(best, i);
                continue;
            }
            one = &rows[slots[best]];
            other = &rows[slots[i]];
            assert_false(one->failed && !other->failed);
            if (one->failed == other->failed) {
                assert_false(!one->local && other->local);
                assert_false(one->local == other->local && one->busy_bytes > other->busy_bytes);
            }
        }
    }
}

static void
test_choose__a_node_that_failed_is_tried_as_long_as_a_healthy_one_may_take(void **state)
{
    (void)state;
    assert_true(yb_choose_probe_ns(0, 0) == 100 * YB_NS_PER_MS);
    assert_true(yb_choose_probe_ns(200 * YB_NS_PER_US, 1u << 20) == 100 * YB_NS_PER_MS);
    /* A link of 40 ms: to connect and be answered takes 4 trips, 5 with TLS. */
    assert_true(yb_choose_probe_ns(40 * YB_NS_PER_MS, 0) > (uint64_t)2 * 5 * 39 * YB_NS_PER_MS);
    /* 64 MiB over a gigabit. */
    assert_true(yb_choose_probe_ns(0, 64u << 20) > 540 * YB_NS_PER_MS);
    /* But nobody waits for long, whatever was measured. */
    assert_true(yb_choose_probe_ns(YB_NS_PER_S, 0) == 2 * YB_NS_PER_S);
    assert_true(yb_choose_probe_ns(UINT64_MAX, UINT64_MAX) == 2 * YB_NS_PER_S);
    assert_true(yb_choose_probe_ns(0, (uint64_t)1 << 48) == 2 * YB_NS_PER_S);
}

static void
test_choose__what_all_have_together_is_counted_once(void **state)
{
    struct yb_choice rows[3] = {{.capacity = 5}, {.capacity = 0}, {.capacity = 7}};

    (void)state;
    assert_false(yb_choose_exceeds(rows, 3, 12));
    assert_true(yb_choose_exceeds(rows, 3, 13));
    assert_true(yb_choose_exceeds(rows, 0, 1));
    assert_false(yb_choose_exceeds(rows, 0, 0));
    rows[1].capacity = UINT64_MAX - 11; /* What a node says of itself: together it would be 1. */
    assert_false(yb_choose_exceeds(rows, 3, 13));
    assert_false(yb_choose_exceeds(rows, 3, UINT64_MAX));
    rows[2].capacity = 0;
    assert_true(yb_choose_exceeds(rows, 3, UINT64_MAX));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choose__places_are_different_able_and_as_far_apart_as_can_be),
        cmocka_unit_test(test_choose__nodes_of_this_host_share_what_is_put_from_here),
        cmocka_unit_test(test_choose__replicas_avoid_the_hosts_of_those_before),
        cmocka_unit_test(
            test_choose__replicas_on_one_host_avoid_the_racks_and_zones_of_those_before),
        cmocka_unit_test(test_choose__a_group_is_on_one_node_as_far_as_that_has_room),
        cmocka_unit_test(test_choose__of_two_drawn_the_one_with_more_room_wins),
        cmocka_unit_test(
            test_choose__a_node_that_failed_is_tried_as_long_as_a_healthy_one_may_take),
        cmocka_unit_test(test_choose__what_all_have_together_is_counted_once),
        cmocka_unit_test(test_choose__reads_where_it_is_near_and_quiet_and_fails_last),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
