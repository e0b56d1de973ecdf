/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what the log is about to lose can be read before, and that costs stores nothing (tier.h:
 *   `leaving`); what must not be lost has where to go.
 * Method: small logs on a medium in memory, and an owner that wants to read all of it, or nothing.
 */
#include "ssd_stage.h"

#define SIZE  8000u
#define TURNS 500u /* Far longer than a reclaim takes. */

struct told {
    bool wants;
    bool (*seen)[2]; /* By key: told that it leaves; lost. */
    uint32_t leaving;
    uint32_t lost;
};

static uint32_t
key_of(struct yb_id hash)
{
    uint32_t key = 0;

    while (!yb_id_equal(stage_hash(key), hash)) {
        key++;
    }
    return key;
}

static bool
on_leaving(struct stage *stage, struct yb_id hash, uint64_t grant)
{
    struct told *told = stage->owner;
    uint32_t key = key_of(hash);

    assert_int_equal(grant, 1000 + key);
    told->seen[key][0] = true;
    told->leaving++;
    return told->wants;
}

static void
on_lost(struct stage *stage, struct yb_id hash, uint64_t grant)
{
    struct told *told = stage->owner;
    uint32_t key = key_of(hash);

    (void)grant;
    assert_true(told->seen[key][0]); /* It was told of before. */
    assert_false(told->seen[key][1]);
    told->seen[key][1] = true;
    told->lost++;
}

static bool seen[400][2];

static void
begin(struct stage *stage, struct told *told)
{
    memset(seen, 0, sizeof(seen));
    stage_init(stage);
    stage->owner = told;
    stage->on_leaving = on_leaving;
    stage->on_lost = on_lost;
    stage_open(stage, false);
}

/* Store until something is told to leave. Returns the next key. */
static uint32_t
put_until_leaving(struct stage *stage, const struct told *told)
{
    uint32_t key = 0;

    while (told->leaving == 0) {
        assert_true(key < 400);
        assert_int_equal(stage_put(stage, key, 1000 + key, SIZE), YB_OK);
        key++;
        stage_turns(stage, 20);
    }
    stage_turns(stage, TURNS);
    return key;
}

static void
test_ssd_leaving__what_somebody_wants_stays_until_the_room_is_needed(void **state)
{
    struct told told = {.wants = true, .seen = seen};
    struct stage stage;
    uint32_t key, readable = 0;

    (void)state;
    begin(&stage, &told);
    key = put_until_leaving(&stage, &told);
    assert_true(told.leaving > 10);
    assert_int_equal(told.lost, 0);
    for (uint32_t i = 0; i < key; i++) {
        assert_int_equal(stage_get(&stage, i, 1000 + i, NULL), YB_OK);
        readable += seen[i][0];
    }
    assert_int_equal(readable, told.leaving);
    for (; key < 400; key++) { /* No store waits for whoever reads, and none is refused. */
        assert_int_equal(stage_put(&stage, key, 1000 + key, SIZE), YB_OK);
    }
    assert_true(told.lost > 200);
    stage_fini(&stage);
}

static void
test_ssd_leaving__what_nobody_wants_goes_at_once(void **state)
{
    struct told told = {.seen = seen};
    struct stage stage;

    (void)state;
    begin(&stage, &told);
    (void)put_until_leaving(&stage, &told);
    assert_true(told.lost > 10);
    assert_int_equal(told.lost, told.leaving);
    stage_fini(&stage);
}

static bool
holds_first(struct stage *stage, struct yb_id hash, uint64_t grant)
{
    (void)stage;
    return grant == 1000 && yb_id_equal(hash, stage_hash(0));
}

static void
test_ssd_leaving__what_is_held_stays_though_nobody_reads_it(void **state)
{
    struct told told = {.seen = seen};
    struct stage stage;

    (void)state;
    begin(&stage, &told);
    stage.is_held = holds_first;
    for (uint32_t key = 0; key < 400; key++) {
        assert_int_equal(stage_put(&stage, key, 1000 + key, SIZE), YB_OK);
    }
    assert_true(told.lost > 200);
    assert_false(seen[0][1]);
    assert_int_equal(stage_get(&stage, 0, 1000, NULL), YB_OK);
    stage_fini(&stage);
}

/* What has to move is moved into the last free segment, which stores leave alone (S5). */
static void
test_ssd_leaving__what_is_pinned_is_moved_however_full_the_log_is(void **state)
{
    struct stage stage;
    uint32_t pinned = 0;

    (void)state;
    stage_init(&stage);
    stage_open(&stage, false);
    while (stage_put_pinned(&stage, pinned) == YB_OK) {
        pinned++;
        assert_true(pinned < 400);
    }
    for (uint32_t i = 0; i < pinned; i += 3) { /* So much of each segment is dead. */
        assert_int_equal(stage_kill(&stage, stage_hash(i), 1000 + i), YB_OK);
    }
    for (uint32_t i = 0; i < pinned / 6; i++) {
        assert_int_equal(stage_put_pinned(&stage, 1000 + i), YB_OK);
    }
    for (uint32_t i = 0; i < pinned; i++) {
        struct yb_tier_found found;

        assert_true(yb_tier_find(stage.tier, stage_hash(i), &found) == (i % 3 != 0));
    }
    assert_int_equal(stage.lost_count, 0);
    stage_fini(&stage);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ssd_leaving__what_somebody_wants_stays_until_the_room_is_needed),
        cmocka_unit_test(test_ssd_leaving__what_nobody_wants_goes_at_once),
        cmocka_unit_test(test_ssd_leaving__what_is_held_stays_though_nobody_reads_it),
        cmocka_unit_test(test_ssd_leaving__what_is_pinned_is_moved_however_full_the_log_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
