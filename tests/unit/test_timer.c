/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants T1-T5 of net/timer.h.
 * Method: one short test per rule with time as plain numbers; then a random walk against an
 * unsorted array that is searched from end to end.
 */
#include "unit.h"

#include <string.h>

#include "base/clock.h"
#include "net/timer.h"

#define MS YB_NS_PER_MS

#define PROBE_COUNT 300u

struct world;

/* A timer that writes down when it fired, and may then do one thing to another. */
struct probe {
    struct yb_timer timer;
    struct world *world;
    uint64_t deadline_ns;
    uint32_t fired_count;
    uint32_t order;          /* The how-manieth callback this was. */
    struct probe *victim;    /* NULL: do nothing. */
    uint64_t victim_next_ns; /* 0: cancel the victim; otherwise re-arm it. */
};

struct world {
    struct yb_timer_wheel wheel;
    uint64_t now_ns;
    uint64_t last_tick;
    uint32_t fired_count;
    struct probe probes[PROBE_COUNT];
};

static uint64_t
tick_of(uint64_t deadline_ns)
{
    return (deadline_ns + MS - 1) / MS;
}

static void
probe_fired(struct yb_timer *timer)
{
    struct probe *probe = (struct probe *)timer;
    struct world *world = probe->world;
    struct probe *victim = probe->victim;

    assert_true(probe->deadline_ns <= world->now_ns); /* T1 */
    assert_false(yb_timer_is_armed(timer));
    probe->fired_count++;
    probe->order = world->fired_count++;
    probe->victim = NULL;
    probe->deadline_ns = YB_NEVER;
    if (victim != NULL && probe->victim_next_ns == 0) {
        yb_timer_cancel(&world->wheel, &victim->timer);
        victim->deadline_ns = YB_NEVER;
    } else if (victim != NULL) {
        victim->deadline_ns = probe->victim_next_ns;
        yb_timer_arm(&world->wheel, &victim->timer, victim->deadline_ns);
    }
}

static struct world *
world_at(uint64_t now_ns)
{
    static struct world world;

    memset(&world, 0, sizeof(world));
    world.now_ns = now_ns;
    yb_timer_wheel_init(&world.wheel, now_ns);
    for (uint32_t i = 0; i < PROBE_COUNT; i++) {
        world.probes[i].world = &world;
        world.probes[i].deadline_ns = YB_NEVER;
        yb_timer_init(&world.probes[i].timer, probe_fired);
    }
    return &world;
}

static void
arm(struct world *world, uint32_t index, uint64_t deadline_ns)
{
    world->probes[index].deadline_ns = deadline_ns;
    yb_timer_arm(&world->wheel, &world->probes[index].timer, deadline_ns);
}

static uint32_t
advance(struct world *world, uint64_t now_ns)
{
    world->now_ns = now_ns;
    return yb_timer_wheel_advance(&world->wheel, now_ns);
}

static void
test_timer__never_fires_before_its_deadline_nor_a_tick_after_it(void **state)
{
    struct world *world = world_at(7 * MS + 300);

    (void)state;
    arm(world, 0, 10 * MS + 1);
    assert_int_equal(advance(world, 10 * MS + 1), 0);
    assert_int_equal(advance(world, 11 * MS - 1), 0);
    assert_int_equal(advance(world, 11 * MS), 1);
    arm(world, 1, 20 * MS);
    assert_int_equal(advance(world, 20 * MS - 1), 0);
    assert_int_equal(advance(world, 20 * MS), 1);
    assert_true(yb_timer_wheel_next_ns(&world->wheel) == YB_NEVER);
}

static void
test_timer__a_deadline_in_the_past_fires_at_the_next_advance(void **state)
{
    struct world *world = world_at(1000 * MS);

    (void)state;
    arm(world, 0, 0);
    arm(world, 1, 1000 * MS);
    assert_true(yb_timer_wheel_next_ns(&world->wheel) <= 1000 * MS);
    assert_int_equal(advance(world, 1000 * MS), 2);
}

static void
test_timer__arming_again_moves_it_and_never_disarms_it(void **state)
{
    struct world *world = world_at(0);

    (void)state;
    arm(world, 0, 5 * MS);
    arm(world, 0, 500 * MS);
    assert_int_equal(advance(world, 400 * MS), 0);
    assert_int_equal(advance(world, 500 * MS), 1);
    arm(world, 0, 600 * MS);
    arm(world, 0, YB_NEVER);
    assert_false(yb_timer_is_armed(&world->probes[0].timer));
    assert_int_equal(advance(world, 700 * MS), 0);
    yb_timer_wheel_fini(&world->wheel);
}

static void
test_timer__next_is_never_later_than_the_first_deadline_rounded_up(void **state)
{
    uint64_t distances_ms[] = {1, 63, 64, 65, 4095, 4096, 262143, 262144, 86400000, 31536000000};

    (void)state;
    for (size_t i = 0; i < sizeof(distances_ms) / sizeof(distances_ms[0]); i++) {
        struct world *world = world_at(123456789 * MS + 17);
        uint64_t deadline_ns = world->now_ns + distances_ms[i] * MS;
        uint32_t steps = 0;

        arm(world, 0, deadline_ns);
        while (world->probes[0].fired_count == 0) {
            uint64_t next_ns = yb_timer_wheel_next_ns(&world->wheel);

            assert_true(next_ns > world->now_ns);
            assert_true(next_ns <= tick_of(deadline_ns) * MS);
            (void)advance(world, next_ns);
            steps++;
        }
        assert_true(steps <= YB_TIMER_LEVEL_COUNT); /* An idle loop wakes a few times only. */
        assert_true(world->now_ns == tick_of(deadline_ns) * MS);
    }
}

static void
test_timer__a_jump_of_years_fires_everything_in_order(void **state)
{
    struct world *world = world_at(3 * MS);
    uint64_t year_ns = 365ull * 86400 * YB_NS_PER_S;

    (void)state;
    arm(world, 0, year_ns);
    arm(world, 1, 40 * MS);
    arm(world, 2, 86400 * YB_NS_PER_S);
    arm(world, 3, 41 * MS);
    arm(world, 4, 300 * year_ns);
    assert_int_equal(advance(world, 300 * year_ns), 5);
    assert_int_equal(world->probes[1].order, 0);
    assert_int_equal(world->probes[3].order, 1);
    assert_int_equal(world->probes[2].order, 2);
    assert_int_equal(world->probes[0].order, 3);
    assert_int_equal(world->probes[4].order, 4);
    arm(world, 5, YB_NEVER - 1); /* The last deadline there is fits and does not overflow. */
    assert_int_equal(advance(world, YB_NEVER - MS), 0);
    yb_timer_cancel(&world->wheel, &world->probes[5].timer);
    yb_timer_wheel_fini(&world->wheel);
}

static void
test_timer__time_going_backwards_is_ignored(void **state)
{
    struct world *world = world_at(100 * MS);

    (void)state;
    arm(world, 0, 110 * MS);
    assert_int_equal(advance(world, 50 * MS), 0);
    assert_int_equal(advance(world, 110 * MS), 1);
}

static void
test_timer__a_callback_may_cancel_or_delay_one_due_in_the_same_tick(void **state)
{
    struct world *world = world_at(0);

    (void)state;
    arm(world, 0, 5 * MS);
    arm(world, 1, 5 * MS);
    arm(world, 2, 5 * MS);
    world->probes[0].victim = &world->probes[1];
    world->probes[0].victim_next_ns = 0;
    world->probes[2].victim = &world->probes[0];
    world->probes[2].victim_next_ns = 9 * MS;
    assert_int_equal(advance(world, 5 * MS), 2);
    assert_int_equal(world->probes[1].fired_count, 0);
    assert_int_equal(advance(world, 9 * MS), 1);
    assert_int_equal(world->probes[0].fired_count, 2);
    yb_timer_wheel_fini(&world->wheel);
}

static void
test_timer__one_that_rearms_itself_in_the_past_waits_for_the_next_advance(void **state)
{
    struct world *world = world_at(10 * MS);

    (void)state;
    for (uint32_t round = 1; round <= 3; round++) {
        if (round == 1) {
            arm(world, 0, 1 * MS);
        }
        world->probes[0].victim = &world->probes[0];
        world->probes[0].victim_next_ns = 1 * MS;
        assert_int_equal(advance(world, 10 * MS), 1);
        assert_int_equal(world->probes[0].fired_count, round);
        assert_true(yb_timer_wheel_next_ns(&world->wheel) <= 10 * MS);
    }
}

/* A distance of any magnitude from one nanosecond to months. */
static uint64_t
random_distance_ns(uint64_t *seed)
{
    return unit_random(seed) >> (unit_random(seed) % 50 + 11);
}

/* T1 and T5's complement: nothing that had to fire is left, nothing that must not has fired. */
static void
check_against_the_array(struct world *world)
{
    uint64_t first_ns = YB_NEVER;

    for (uint32_t i = 0; i < PROBE_COUNT; i++) {
        struct probe *probe = &world->probes[i];

        assert_int_equal(yb_timer_is_armed(&probe->timer), probe->deadline_ns != YB_NEVER);
        if (probe->deadline_ns < first_ns) {
            first_ns = probe->deadline_ns;
        }
    }
    if (first_ns == YB_NEVER) {
        assert_true(yb_timer_wheel_next_ns(&world->wheel) == YB_NEVER);
    } else {
        uint64_t next_ns = yb_timer_wheel_next_ns(&world->wheel);
        uint64_t floor_ns = world->now_ns / MS * MS;

        assert_true(next_ns >= floor_ns);
        assert_true(next_ns <= (first_ns < floor_ns ? floor_ns : tick_of(first_ns) * MS));
    }
}

static void
random_advance(struct world *world, uint64_t *seed)
{
    uint64_t now_ns = world->now_ns + random_distance_ns(seed) % (86400 * YB_NS_PER_S);
    uint32_t due = 0;
    uint32_t fired_before = world->fired_count;
    uint64_t ticks[PROBE_COUNT];
    uint32_t before[PROBE_COUNT];
    uint64_t last_tick = 0;

    if (unit_random(seed) % 4 == 0 && yb_timer_wheel_next_ns(&world->wheel) != YB_NEVER) {
        now_ns = yb_timer_wheel_next_ns(&world->wheel);
        now_ns = now_ns < world->now_ns ? world->now_ns : now_ns;
    }
    for (uint32_t i = 0; i < PROBE_COUNT; i++) {
        before[i] = world->probes[i].fired_count;
        ticks[i] = world->probes[i].deadline_ns == YB_NEVER ? YB_NEVER
                                                            : tick_of(world->probes[i].deadline_ns);
        due += ticks[i] <= now_ns / MS;
    }
    assert_int_equal(advance(world, now_ns), due);
    for (uint32_t order = fired_before; order < world->fired_count; order++) {
        for (uint32_t i = 0; i < PROBE_COUNT; i++) {
            if (world->probes[i].fired_count > before[i] && world->probes[i].order == order) {
                /* A late one counts as due when it was armed. */
                assert_true(ticks[i] >= last_tick || ticks[i] <= world->last_tick);
                last_tick = ticks[i] > last_tick ? ticks[i] : last_tick;
                assert_true(ticks[i] <= now_ns / MS);
            }
        }
    }
    world->last_tick = now_ns / MS;
}

static void
test_timer__a_random_walk_agrees_with_an_array_of_deadlines(void **state)
{
    uint64_t seed = unit_seed("timer");
    struct world *world = world_at(unit_random(&seed) >> 8);

    (void)state;
    world->last_tick = world->now_ns / MS;
    for (uint32_t step = 0; step < 20000; step++) {
        uint32_t index = (uint32_t)(unit_random(&seed) % PROBE_COUNT);
        uint64_t action = unit_random(&seed) % 16;

        if (action < 10) {
            uint64_t past_ns = unit_random(&seed) % 8 == 0 ? 5 * MS : 0;

            arm(world, index, world->now_ns - past_ns + random_distance_ns(&seed));
        } else if (action < 13) {
            yb_timer_cancel(&world->wheel, &world->probes[index].timer);
            world->probes[index].deadline_ns = YB_NEVER;
        } else {
            random_advance(world, &seed);
        }
        check_against_the_array(world);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timer__never_fires_before_its_deadline_nor_a_tick_after_it),
        cmocka_unit_test(test_timer__a_deadline_in_the_past_fires_at_the_next_advance),
        cmocka_unit_test(test_timer__arming_again_moves_it_and_never_disarms_it),
        cmocka_unit_test(test_timer__next_is_never_later_than_the_first_deadline_rounded_up),
        cmocka_unit_test(test_timer__a_jump_of_years_fires_everything_in_order),
        cmocka_unit_test(test_timer__time_going_backwards_is_ignored),
        cmocka_unit_test(test_timer__a_callback_may_cancel_or_delay_one_due_in_the_same_tick),
        cmocka_unit_test(test_timer__one_that_rearms_itself_in_the_past_waits_for_the_next_advance),
        cmocka_unit_test(test_timer__a_random_walk_agrees_with_an_array_of_deadlines),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
