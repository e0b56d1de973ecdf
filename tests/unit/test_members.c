/* SPDX-License-Identifier: Apache-2.0 */
#include "unit.h"

#include <string.h>

#include "directory/grant.h"
#include "directory/members.h"

#define MS    UINT64_C(1000000)
#define TICK  (100 * MS)
#define LEASE (800 * MS)

static struct yb_members *
members_new(uint64_t now_ns)
{
    const struct yb_members_options options = {
        .slots_max = 8,
        .live_max = 6,
        .epoch = 3,
        .lease_ns = LEASE,
        .tick_ns = TICK,
    };
    struct yb_members *members;

    assert_int_equal(yb_members_create(&options, &members), YB_OK);
    yb_members_begin(members, now_ns);
    return members;
}

static struct yb_members_facts
facts_of(const char *name, uint8_t process)
{
    struct yb_members_facts facts = {.identity = {{process}}, .capacity = 1000};

    (void)snprintf(facts.name, sizeof(facts.name), "%s", name);
    (void)snprintf(facts.address, sizeof(facts.address), "127.0.0.1:%u", process + 1000u);
    return facts;
}

static struct yb_members_slot *
join(struct yb_members *members, const char *name, uint8_t process, uint64_t incarnation,
     uint64_t now_ns)
{
    struct yb_members_facts facts = facts_of(name, process);
    struct yb_members_plan plan;

    assert_int_equal(yb_members_plan(members, &facts, incarnation, &plan), YB_OK);
    return yb_members_admit(members, &plan, &facts, incarnation, now_ns);
}

/* Let time pass, with a tick for every interval. */
static uint64_t
pass(struct yb_members *members, uint64_t now_ns, uint64_t for_ns)
{
    for (uint64_t at = 0; at < for_ns; at += TICK) {
        now_ns += TICK;
        yb_members_tick(members, now_ns);
    }
    return now_ns;
}

static void
test_members__incarnations_grow_and_carry_the_epoch(void **state)
{
    struct yb_members *members = members_new(0);
    uint64_t last = 0;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct yb_members_slot *slot = join(members, "a", 1, i == 0 ? 0 : last, 0);

        assert_true(slot->incarnation > last);
        assert_int_equal(yb_grant_epoch(slot->incarnation), 3);
        last = slot->incarnation;
    }
    assert_int_equal(yb_members_live(members), 1);
    yb_members_destroy(&members);
    assert_null(members);
}

static void
test_members__a_life_that_is_alive_is_continued_in_its_slot(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_slot *slot = join(members, "a", 1, 0, 0);
    uint64_t first = slot->incarnation;
    struct yb_members_facts other = facts_of("b", 2);
    struct yb_members_facts own = facts_of("a", 1);
    struct yb_members_plan plan;
    struct yb_members_slot *again = join(members, "a", 1, first, 0);

    (void)state;
    assert_ptr_equal(again, slot);
    assert_true(slot->incarnation > first);
    assert_null(yb_members_speaker(members, slot->slot, first));
    assert_ptr_equal(yb_members_speaker(members, slot->slot, slot->incarnation), slot);
    /* The answer was lost: the same process names the incarnation before. Nobody else may. */
    assert_int_equal(yb_members_plan(members, &own, first, &plan), YB_OK);
    assert_true(plan.keep && plan.continues);
    assert_int_equal(yb_members_plan(members, &other, first, &plan), YB_OK);
    assert_false(plan.keep);
    assert_false(plan.continues);
    yb_members_destroy(&members);
}

/* B3 */
static void
test_members__of_one_name_the_later_wins_and_the_earlier_does_not_fight(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_slot *earlier = join(members, "a", 1, 0, 0);
    struct yb_members_slot *later = join(members, "a", 2, 0, 0);
    struct yb_members_facts facts = facts_of("a", 1);
    struct yb_members_plan plan;

    (void)state;
    assert_ptr_not_equal(earlier, later);
    assert_true(earlier->fenced);
    assert_int_equal(earlier->state, YB_WIRE_SLOT_STATE_SUSPECT);
    assert_null(yb_members_speaker(members, earlier->slot, earlier->incarnation));
    assert_int_equal(yb_members_plan(members, &facts, earlier->incarnation, &plan), YB_FENCED);
    assert_ptr_equal(yb_members_named(members, "a"), later);
    yb_members_kill(members, later);
    assert_int_equal(yb_members_plan(members, &facts, earlier->incarnation, &plan), YB_OK);
    assert_false(plan.keep); /* M5: fenced is fenced. */
    yb_members_destroy(&members);
}

/* D4 */
static void
test_members__a_life_ends_after_a_lease_and_a_margin(void **state)
{
    uint64_t now_ns = 5000 * MS;
    struct yb_members *members = members_new(now_ns);
    struct yb_members_slot *slot = join(members, "a", 1, 0, now_ns);
    uint64_t begun_ns = now_ns;

    (void)state;
    now_ns = pass(members, now_ns, LEASE / 2);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    now_ns = pass(members, now_ns, 2 * TICK);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SUSPECT);
    assert_false(yb_members_overdue(members, slot));
    yb_members_heard(members, slot, now_ns);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    begun_ns = now_ns;
    while (!yb_members_overdue(members, slot)) {
        now_ns = pass(members, now_ns, TICK);
    }
    assert_true(now_ns - begun_ns > LEASE + LEASE / 4);
    assert_true(now_ns - begun_ns <= LEASE + LEASE / 4 + 3 * TICK);
    yb_members_kill(members, slot);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_DEAD);
    assert_null(yb_members_speaker(members, slot->slot, slot->incarnation));
    yb_members_release(members, slot);
    assert_null(yb_members_at(members, 1));
    yb_members_destroy(&members);
}

static void
test_members__time_in_which_the_owner_was_stalled_is_not_counted(void **state)
{
    uint64_t now_ns = 0;
    struct yb_members *members = members_new(now_ns);
    struct yb_members_slot *slot = join(members, "a", 1, 0, now_ns);

    (void)state;
    now_ns = pass(members, now_ns, 3 * TICK);
    now_ns += 3600 * 1000 * MS; /* Stopped for an hour. */
    yb_members_tick(members, now_ns);
    assert_false(yb_members_overdue(members, slot));
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    now_ns = pass(members, now_ns, TICK);
    assert_false(yb_members_overdue(members, slot));
    /* In the hour heartbeats have gathered in the socket: the first is read now. */
    yb_members_heard(members, slot, now_ns);
    now_ns = pass(members, now_ns, LEASE);
    assert_false(yb_members_overdue(members, slot));
    now_ns = pass(members, now_ns, LEASE);
    assert_true(yb_members_overdue(members, slot));
    yb_members_destroy(&members);
}

/* Since the tick that is judged by, the owner has read its sockets. */
static void
test_members__the_last_interval_never_decides(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_slot *slot = join(members, "a", 1, 0, 0);
    uint64_t now_ns = 0;

    (void)state;
    now_ns = pass(members, now_ns, LEASE + LEASE / 4);
    now_ns += TICK;
    yb_members_tick(members, now_ns); /* Counted beyond, but not judged. */
    assert_false(yb_members_overdue(members, slot));
    yb_members_heard(members, slot, now_ns);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    yb_members_destroy(&members);
}

/* F7 */
static void
test_members__reports_make_suspect_and_only_that(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_slot *slot = join(members, "a", 1, 0, 0);
    struct yb_id one = {{1}};
    struct yb_id two = {{2}};
    uint64_t now_ns = pass(members, 0, 30 * TICK);
    uint64_t version;

    (void)state;
    yb_members_heard(members, slot, now_ns);
    version = yb_members_version(members);
    yb_members_report(members, slot->slot, slot->incarnation + 1, one, 9); /* Another life. */
    yb_members_report(members, slot->slot, slot->incarnation, one, 1);
    yb_members_report(members, slot->slot, slot->incarnation, one, 1);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    yb_members_report(members, slot->slot, slot->incarnation, one, 1);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SUSPECT);
    assert_int_equal(yb_members_version(members), version + 1); /* M6 */
    for (uint32_t i = 0; i < 1000; i++) {
        yb_members_report(members, slot->slot, slot->incarnation, i % 2 == 0 ? one : two, 100);
    }
    assert_false(yb_members_overdue(members, slot));
    now_ns = pass(members, now_ns, LEASE / 4);
    yb_members_heard(members, slot, now_ns); /* Good, but it has not been quiet. */
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SUSPECT);
    now_ns = pass(members, now_ns, LEASE);
    yb_members_heard(members, slot, now_ns);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SERVING);
    yb_members_report(members, slot->slot, slot->incarnation, one, 1);
    yb_members_report(members, slot->slot, slot->incarnation, two, 1);
    assert_int_equal(slot->state, YB_WIRE_SLOT_STATE_SUSPECT);
    yb_members_destroy(&members);
}

static void
test_members__few_reports_are_forgotten_after_a_while(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_slot *slot = join(members, "a", 1, 0, 0);
    struct yb_id one = {{1}};
    struct yb_id two = {{2}};
    uint64_t now_ns = pass(members, 0, TICK);

    (void)state;
    yb_members_report(members, slot->slot, slot->incarnation, one, 2);
    now_ns = pass(members, now_ns, LEASE + 2 * TICK);
    yb_members_report(members, slot->slot, slot->incarnation, two, 1);
    assert_false(slot->reported);
    yb_members_destroy(&members);
}

/* A9 */
static void
test_members__it_is_rebuilding_until_all_of_before_are_heard_or_given_up(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_awaited before = {.name = "a", .incarnation = yb_grant_make(2, 1)};
    struct yb_members_slot *slot;
    struct yb_members_awaited *awaited;
    uint32_t permille;
    uint32_t count;
    uint64_t now_ns;

    (void)state;
    assert_false(yb_members_rebuilding(members, &permille));
    assert_int_equal(permille, 1000);
    assert_int_equal(yb_members_await(members, &before), YB_OK);
    before.incarnation++;
    assert_int_equal(yb_members_await(members, &before), YB_OK);
    assert_true(yb_members_rebuilding(members, &permille));
    assert_int_equal(permille, 0);
    slot = join(members, "a", 1, yb_grant_make(2, 1), 0);
    assert_false(slot->complete);
    assert_true(yb_members_rebuilding(members, &permille)); /* Its inventory has not come. */
    yb_members_complete(slot, 0);
    assert_true(yb_members_rebuilding(members, &permille));
    assert_int_equal(permille, 500);
    now_ns = pass(members, 0, LEASE);
    assert_false(yb_members_awaited_overdue(members));
    now_ns = pass(members, now_ns, LEASE / 2);
    assert_true(yb_members_awaited_overdue(members));
    awaited = yb_members_awaited(members, &count);
    assert_int_equal(count, 2);
    assert_true(awaited[0].over);
    assert_false(awaited[1].over);
    awaited[1].over = true;
    assert_false(yb_members_rebuilding(members, &permille));
    yb_members_tells(slot); /* Once more, on a new stream: it told one before of a put. */
    yb_members_decided(slot, 1);
    assert_true(yb_members_all_named(members));
    assert_true(yb_members_rebuilding(members, &permille));
    yb_members_complete(slot, 2);
    assert_true(yb_members_rebuilding(members, &permille));
    yb_members_decided(slot, 1);
    assert_false(yb_members_rebuilding(members, &permille));
    slot = join(members, "b", 2, yb_grant_make(2, 2), now_ns); /* A5 (3): too late. */
    assert_true(slot->complete);
    yb_members_destroy(&members);
}

static struct yb_members_slot *
join_with_media(struct yb_members *members, const char *name, uint8_t process)
{
    struct yb_members_facts facts = facts_of(name, process);
    struct yb_members_plan plan;

    facts.keeps = true;
    assert_int_equal(yb_members_plan(members, &facts, 0, &plan), YB_OK);
    return yb_members_admit(members, &plan, &facts, 0, 0);
}

/* Of a new name nothing is known; that is no sign that kills were lost. */
static void
test_members__a_new_name_is_not_known_and_lost_kills_are_something_else(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_awaited before = {.incarnation = yb_grant_make(2, 1), .keeps = true};
    struct yb_members_away away = {.name = "b", .incarnation = yb_grant_make(2, 2)};
    struct yb_members_slot *slot;
    struct yb_members_awaited *awaited;
    uint32_t count;

    (void)state;
    slot = join_with_media(members, "a", 1);
    assert_true(slot->unknown && slot->owes && !slot->distrusted);
    assert_false(yb_members_kills_lost(members));
    away.unknown = true;
    yb_members_put_away(members, &away);
    assert_false(yb_members_kills_lost(members));
    slot = join_with_media(members, "b", 2); /* Its first life had not named all. */
    assert_true(slot->unknown && !slot->distrusted);
    away = (struct yb_members_away){.name = "c", .incarnation = 1, .owes = true};
    yb_members_put_away(members, &away);
    assert_false(yb_members_kills_lost(members)); /* It owes what is in the list. */
    slot = join_with_media(members, "c", 3);
    assert_true(!slot->unknown && slot->owes);
    yb_members_distrust(members);
    assert_true(slot->distrusted);
    assert_true(yb_members_kills_lost(members));
    yb_members_destroy(&members);

    members = members_new(0);
    assert_int_equal(yb_members_await(members, &before), YB_OK);
    assert_false(yb_members_kills_lost(members));
    awaited = yb_members_awaited(members, &count);
    awaited[0].owes = true; /* To a directory whose list is gone. */
    assert_true(yb_members_kills_lost(members));
    slot = join(members, "a", 1, yb_grant_make(2, 1), 0);
    assert_true(awaited[0].over && slot->owes && slot->distrusted);
    assert_true(yb_members_kills_lost(members));
    yb_members_kill(members, slot);
    assert_false(yb_members_kills_lost(members));
    away = (struct yb_members_away){.name = "d", .incarnation = 1, .distrusted = true};
    yb_members_put_away(members, &away);
    assert_true(yb_members_kills_lost(members));
    yb_members_take_away(members);
    for (uint32_t i = 0; i < YB_MEMBERS_AWAY_MAX; i++) {
        assert_false(yb_members_kills_lost(members));
        (void)snprintf(away.name, sizeof(away.name), "d%u", i);
        away.distrusted = false;
        yb_members_put_away(members, &away);
    }
    assert_true(yb_members_kills_lost(members)); /* Who knows which one is forgotten. */
    yb_members_destroy(&members);
}

static void
test_members__there_are_so_many_and_no_more(void **state)
{
    struct yb_members *members = members_new(0);
    struct yb_members_facts facts = facts_of("x", 99);
    struct yb_members_slot *slots[6];
    struct yb_members_plan plan;
    char name[8];

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        (void)snprintf(name, sizeof(name), "n%u", i);
        slots[i] = join(members, name, (uint8_t)i, 0, 0);
        assert_int_equal(slots[i]->slot, i + 1);
    }
    assert_int_equal(yb_members_plan(members, &facts, 0, &plan), YB_NO_SPACE);
    yb_members_kill(members, slots[0]);
    assert_int_equal(yb_members_plan(members, &facts, 0, &plan), YB_OK);
    assert_int_equal(plan.slot, 7); /* Numbers are used again as late as possible. */
    yb_members_destroy(&members);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members__incarnations_grow_and_carry_the_epoch),
        cmocka_unit_test(test_members__a_life_that_is_alive_is_continued_in_its_slot),
        cmocka_unit_test(test_members__of_one_name_the_later_wins_and_the_earlier_does_not_fight),
        cmocka_unit_test(test_members__a_life_ends_after_a_lease_and_a_margin),
        cmocka_unit_test(test_members__time_in_which_the_owner_was_stalled_is_not_counted),
        cmocka_unit_test(test_members__the_last_interval_never_decides),
        cmocka_unit_test(test_members__reports_make_suspect_and_only_that),
        cmocka_unit_test(test_members__few_reports_are_forgotten_after_a_while),
        cmocka_unit_test(test_members__it_is_rebuilding_until_all_of_before_are_heard_or_given_up),
        cmocka_unit_test(test_members__a_new_name_is_not_known_and_lost_kills_are_something_else),
        cmocka_unit_test(test_members__there_are_so_many_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
