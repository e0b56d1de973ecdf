/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the rules of directory/index.h, each by itself.
 * Method: small indexes and operations one at a time; for the table, names whose hashes were chosen
 * to collide, and a million records that are weighed on the way. test_index_walk.c mixes it all.
 */
#include "unit.h"

#include <string.h>

#include "base/hash.h"
#include "directory/grant.h"
#include "directory/index.h"

enum { SEED = 42, DRAM = 2, SSD = 3 };

#define GRANT(counter) yb_grant_make(1, (counter))

static struct yb_index *
index_with(uint32_t records_max, uint16_t slots_open)
{
    struct yb_index_options options = {
        .records_max = records_max,
        .slots_max = 100,
        .tenants_max = 10,
        .seed = SEED,
    };
    struct yb_index *index = NULL;

    assert_int_equal(yb_index_create(&options, &index), YB_OK);
    for (uint16_t slot = 1; slot <= slots_open; slot++) {
        assert_int_equal(yb_index_slot_open(index, slot), YB_OK);
    }
    return index;
}

static struct yb_id
name(uint64_t number)
{
    struct yb_id id = {{0}};

    memcpy(id.bytes, &number, sizeof(number));
    return id;
}

static struct yb_index_op
op(enum yb_index_op_kind kind, uint64_t key, uint64_t grant, uint16_t slot)
{
    return (struct yb_index_op){
        .hash = name(key),
        .grant = grant,
        .size = 1000,
        .kind = (uint8_t)kind,
        .replica_count = kind == YB_INDEX_REMOVE || kind == YB_INDEX_HOLD ? 0 : 1,
        .replicas = {{.slot = slot, .tier = DRAM}},
    };
}

static struct yb_index_result
apply_at(struct yb_index *index, struct yb_index_op what, uint64_t now_ms)
{
    struct yb_index_result result;

    yb_index_apply(index, &what, 1, now_ms, &result);
    return result;
}

static enum yb_status
apply(struct yb_index *index, enum yb_index_op_kind kind, uint64_t key, uint64_t grant,
      uint16_t slot)
{
    return apply_at(index, op(kind, key, grant, slot), 0).status;
}

static struct yb_index_answer
look(struct yb_index *index, uint32_t tenant, uint64_t key)
{
    struct yb_index_query query = {.tenant = tenant};
    struct yb_id hash = name(key);
    struct yb_index_answer answer;

    yb_index_lookup(index, &query, &hash, 1, &answer);
    return answer;
}

static uint64_t
grant_of(struct yb_index *index, uint64_t key)
{
    return look(index, 0, key).grant;
}

/* Sweep to the end in steps of `records`; return how many records were freed. */
static uint32_t
sweep(struct yb_index *index, uint64_t now_ms, uint32_t records)
{
    struct yb_index_swept swept = {0};
    uint32_t freed = 0;

    while (!swept.done) {
        yb_index_sweep(index, now_ms, records, NULL, 0, &swept);
        assert_true(swept.visited <= records);
        freed += swept.records_freed;
    }
    return freed;
}

static void
set_state(struct yb_index *index, uint16_t slot, enum yb_index_slot_state state)
{
    assert_int_equal(yb_index_slot_set(index, slot, state), YB_OK);
}

static uint32_t
records(struct yb_index *index)
{
    struct yb_index_counts counts;

    yb_index_counts(index, &counts);
    return counts.records;
}

/* ---- numbers ------------------------------------------------------------------------------ */

static void
test_index__a_size_is_never_told_too_small_nor_much_too_large(void **state)
{
    uint64_t seed = unit_seed("index");
    uint16_t last = 0;

    (void)state;
    for (uint64_t size = 0; size < 4096; size++) {
        assert_int_equal(yb_index_size_decode(yb_index_size_encode(size)), size);
    }
    for (uint32_t i = 0; i < 100000; i++) {
        uint64_t size = unit_random(&seed) >> (22 + unit_random(&seed) % 42);
        uint64_t told = yb_index_size_decode(yb_index_size_encode(size));

        if (size <= YB_INDEX_SIZE_MAX) {
            assert_true(told >= size && told - size <= size / 2048);
        } else {
            assert_int_equal(told, YB_INDEX_SIZE_MAX);
        }
    }
    for (uint32_t code = 1; code <= UINT16_MAX; code++) {
        uint64_t told = yb_index_size_decode((uint16_t)code);

        assert_true(told > yb_index_size_decode(last));
        assert_int_equal(yb_index_size_encode(told), code);
        assert_true(code == UINT16_MAX || yb_index_size_encode(told + 1) == code + 1);
        last = (uint16_t)code;
    }
    assert_int_equal(yb_index_size_encode(UINT64_MAX), UINT16_MAX);
}

static void
test_index__grants_of_a_later_epoch_are_higher_and_end_with_their_epoch(void **state)
{
    uint64_t last = yb_grant_epoch_start(7);

    (void)state;
    assert_false(yb_grant_valid(last));
    assert_true(yb_grant_next(&last));
    assert_int_equal(last, yb_grant_make(7, 1));
    assert_true(yb_grant_valid(last));
    last = yb_grant_make(7, YB_GRANT_COUNTER_MAX);
    assert_false(yb_grant_next(&last));
    assert_int_equal(yb_grant_epoch(last), 7);
    assert_int_equal(yb_grant_counter(last), YB_GRANT_COUNTER_MAX);
    assert_true(yb_grant_make(8, 1) > last);
    assert_false(yb_grant_valid(YB_GRANT_NONE));
    assert_false(yb_grant_valid(5));
}

static void
test_index__create_refuses_options_out_of_range(void **state)
{
    struct yb_index_options good = {.records_max = 1, .slots_max = 1, .tenants_max = 1};
    struct yb_index_options bad[6];
    struct yb_index *index = NULL;

    (void)state;
    for (uint32_t i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].records_max = 0;
    bad[1].records_max = YB_INDEX_RECORDS_MAX + 1;
    bad[2].slots_max = 0;
    bad[3].slots_max = YB_INDEX_SLOTS_MAX + 1;
    bad[4].tenants_max = 0;
    bad[5].tenants_max = YB_INDEX_TENANTS_MAX + 1;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(yb_index_create(&bad[i], &index), YB_INVALID);
    }
    good.records_max = YB_INDEX_RECORDS_MAX;
    good.slots_max = YB_INDEX_SLOTS_MAX;
    good.tenants_max = YB_INDEX_TENANTS_MAX;
    assert_int_equal(yb_index_create(&good, &index), YB_OK);
    assert_true(yb_index_bytes(index) < 4u << 20);
    yb_index_destroy(&index);
    assert_null(index);
}

/* ---- arbitration -------------------------------------------------------------------------- */

static void
test_index__the_first_of_two_creations_wins_and_its_grant_is_told(void **state)
{
    struct yb_index *index = index_with(100, 3);
    struct yb_index_result result;
    struct yb_index_answer answer;

    (void)state;
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    result = apply_at(index, op(YB_INDEX_CREATE, 1, GRANT(6), 2), 0);
    assert_int_equal(result.status, YB_EXISTS);
    assert_int_equal(result.grant, GRANT(5));
    assert_int_equal(result.dropped_count, 0);
    answer = look(index, 0, 1);
    assert_int_equal(answer.presence, YB_INDEX_PRESENT);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.replicas[0].slot, 1);
    assert_int_equal(answer.replicas[0].tier, DRAM);
    assert_int_equal(yb_index_size_decode(answer.size_code), 1000);
    assert_int_equal(records(index), 1);
    yb_index_destroy(&index);
}

static void
test_index__a_draining_slot_stands_in_a_writers_way_a_suspect_one_does_not(void **state)
{
    struct yb_index *index = index_with(100, 3);
    struct yb_index_result result;

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    set_state(index, 1, YB_INDEX_SLOT_DRAINING);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(6), 2), YB_EXISTS);
    set_state(index, 1, YB_INDEX_SLOT_SUSPECT);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_SUSPECT_ONLY);
    assert_int_equal(look(index, 0, 1).live, 0);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 2), YB_STALE);
    result = apply_at(index, op(YB_INDEX_CREATE, 1, GRANT(7), 2), 0);
    assert_int_equal(result.status, YB_OK);
    assert_int_equal(result.dropped_count, 1);
    assert_int_equal(result.dropped[0].slot, 1);
    assert_int_equal(result.dropped_grant, GRANT(5));
    set_state(index, 1, YB_INDEX_SLOT_SERVING);
    assert_int_equal(look(index, 0, 1).count, 1);
    assert_int_equal(grant_of(index, 1), GRANT(7));
    /* One replica that is not suspect is enough to stand in the way, and is named first. */
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(7), 3), YB_OK);
    set_state(index, 2, YB_INDEX_SLOT_SUSPECT);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(8), 1), YB_EXISTS);
    assert_int_equal(look(index, 0, 1).live, 1);
    assert_int_equal(look(index, 0, 1).replicas[0].slot, 3);
    assert_int_equal(look(index, 0, 1).replicas[1].slot, 2);
    yb_index_destroy(&index);
}

static void
test_index__replace_wants_a_higher_grant_and_tells_who_must_drop(void **state)
{
    struct yb_index *index = index_with(100, 9);
    struct yb_index_op what = op(YB_INDEX_REPLACE, 1, GRANT(5), 1);
    struct yb_index_result result;

    (void)state;
    what.replica_count = 5;
    for (uint16_t i = 0; i < 5; i++) {
        what.replicas[i] = (struct yb_index_replica){.slot = (uint16_t)(i + 1), .tier = SSD};
    }
    assert_int_equal(apply_at(index, what, 0).status, YB_OK);
    assert_int_equal(look(index, 0, 1).flags, YB_INDEX_VERSIONED);
    assert_int_equal(look(index, 0, 1).count, 5);
    assert_int_equal(apply(index, YB_INDEX_REPLACE, 1, GRANT(5), 6), YB_STALE);
    assert_int_equal(apply(index, YB_INDEX_REPLACE, 1, GRANT(4), 6), YB_STALE);
    result = apply_at(index, op(YB_INDEX_REPLACE, 1, GRANT(6), 6), 0);
    assert_int_equal(result.status, YB_OK);
    assert_int_equal(result.grant, GRANT(6));
    assert_int_equal(result.replicas, 1);
    assert_int_equal(result.dropped_count, 5);
    assert_int_equal(result.dropped_grant, GRANT(5));
    for (uint16_t i = 0; i < 5; i++) {
        assert_int_equal(result.dropped[i].slot, i + 1);
        assert_int_equal(result.dropped[i].tier, SSD);
    }
    yb_index_destroy(&index);
}

static void
test_index__a_replica_joins_its_grant_and_never_creates(void **state)
{
    struct yb_index *index = index_with(100, 9);

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), 1), YB_REFUSED);
    assert_int_equal(records(index), 0);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(4), 2), YB_REFUSED);
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(6), 2), YB_REFUSED);
    for (uint16_t slot = 2; slot <= 8; slot++) {
        assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), slot), YB_OK);
    }
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), 4), YB_OK);
    assert_int_equal(look(index, 0, 1).count, 8);
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), 9), YB_TOO_LARGE);
    /* What is gone makes room at once, and a block that is gone is not joined. */
    set_state(index, 8, YB_INDEX_SLOT_DEAD);
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), 9), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 2, GRANT(7), 7), YB_OK);
    set_state(index, 7, YB_INDEX_SLOT_DEAD);
    assert_int_equal(apply(index, YB_INDEX_ADD, 2, GRANT(7), 1), YB_REFUSED);
    yb_index_destroy(&index);
}

static void
test_index__withdraw_takes_one_replica_of_its_grant_and_touches_nothing_else(void **state)
{
    struct yb_index *index = index_with(100, 6);
    struct yb_index_op other_tier = op(YB_INDEX_WITHDRAW, 1, GRANT(5), 1);
    struct yb_index_result result;

    (void)state;
    other_tier.replicas[0].tier = SSD;
    assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(5), 1), YB_NOT_FOUND);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    for (uint16_t slot = 2; slot <= 5; slot++) {
        assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), slot), YB_OK);
    }
    assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(4), 1), YB_NOT_FOUND);
    assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(5), 6), YB_NOT_FOUND);
    assert_int_equal(apply_at(index, other_tier, 0).status, YB_NOT_FOUND);
    assert_int_equal(look(index, 0, 1).count, 5);
    assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(5), 2), YB_OK);
    assert_int_equal(look(index, 0, 1).replicas[1].slot, 3);
    assert_int_equal(look(index, 0, 1).replicas[3].slot, 5);
    for (uint16_t slot = 3; slot <= 4; slot++) {
        assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(5), slot), YB_OK);
    }
    result = apply_at(index, op(YB_INDEX_WITHDRAW, 1, GRANT(5), 1), 0);
    assert_int_equal(result.replicas, 1); /* A sole copy. */
    assert_int_equal(records(index), 1);
    assert_int_equal(apply(index, YB_INDEX_WITHDRAW, 1, GRANT(5), 5), YB_OK);
    assert_int_equal(records(index), 0);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    yb_index_destroy(&index);
}

static void
test_index__of_two_inventories_the_higher_grant_wins(void **state)
{
    struct yb_index *index = index_with(100, 4);
    struct yb_index_op versioned = op(YB_INDEX_INVENTORY, 2, GRANT(5), 1);
    struct yb_index_result result;

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_INVENTORY, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_INVENTORY, 1, GRANT(5), 2), YB_OK);
    result = apply_at(index, op(YB_INDEX_INVENTORY, 1, GRANT(4), 3), 0);
    assert_int_equal(result.status, YB_LOST);
    assert_int_equal(result.grant, GRANT(5));
    assert_int_equal(look(index, 0, 1).count, 2);
    result = apply_at(index, op(YB_INDEX_INVENTORY, 1, GRANT(6), 3), 0);
    assert_int_equal(result.status, YB_OK);
    assert_int_equal(result.dropped_count, 2);
    assert_int_equal(result.dropped_grant, GRANT(5));
    assert_int_equal(look(index, 0, 1).count, 1);
    versioned.flags = YB_INDEX_VERSIONED | YB_INDEX_SOFT_PIN;
    assert_int_equal(apply_at(index, versioned, 0).status, YB_OK);
    assert_int_equal(look(index, 0, 2).flags, YB_INDEX_VERSIONED | YB_INDEX_SOFT_PIN);
    yb_index_destroy(&index);
}

static void
test_index__operations_out_of_range_change_nothing(void **state)
{
    struct yb_index *index = index_with(100, 3);
    struct yb_index_op bad[12];

    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        bad[i] = op(YB_INDEX_CREATE, 1, GRANT(5), 1);
    }
    bad[0].kind = YB_INDEX_HOLD + 1;
    bad[1].tenant = 10;
    bad[2].flags = 0x200;
    bad[3].grant = YB_GRANT_NONE;
    bad[4].replica_count = 0;
    bad[5].replica_count = 9;
    bad[6].replicas[0].slot = YB_INDEX_SLOT_NONE;
    bad[7].replicas[0].slot = 101;
    bad[8].replicas[0].tier = 16;
    bad[9].replica_count = 2;
    bad[9].replicas[1] = bad[9].replicas[0];
    bad[10].flush_epoch = 1;
    bad[11].hold_ms = YB_INDEX_HOLD_MS_MAX + 1;
    for (uint32_t i = 0; i < 12; i++) {
        assert_int_equal(apply_at(index, bad[i], 0).status, YB_INVALID);
    }
    bad[0] = op(YB_INDEX_ADD, 1, GRANT(5), 1);
    bad[0].replica_count = 2;
    bad[0].replicas[1].slot = 2;
    assert_int_equal(apply_at(index, bad[0], 0).status, YB_INVALID);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 4), YB_FENCED); /* FREE */
    set_state(index, 3, YB_INDEX_SLOT_DEAD);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 3), YB_FENCED);
    assert_int_equal(records(index), 0);
    yb_index_destroy(&index);
}

static void
test_index__a_full_index_says_so_until_something_leaves(void **state)
{
    struct yb_index *index = index_with(3, 1);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        assert_int_equal(apply(index, YB_INDEX_CREATE, key, GRANT(key), 1), YB_OK);
    }
    assert_int_equal(apply(index, YB_INDEX_CREATE, 4, GRANT(4), 1), YB_NO_SPACE);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(4), 1), YB_EXISTS);
    assert_int_equal(apply(index, YB_INDEX_REPLACE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_REMOVE, 2, YB_GRANT_NONE, 0), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 4, GRANT(6), 1), YB_OK);
    assert_int_equal(grant_of(index, 4), GRANT(6));
    yb_index_destroy(&index);
}

/* ---- removing, holds, tenants ------------------------------------------------------------- */

static void
test_index__a_hold_keeps_a_block_from_being_removed_until_its_time(void **state)
{
    struct yb_index *index = index_with(100, 2);
    struct yb_index_op keep = op(YB_INDEX_HOLD, 1, GRANT(5), 0);
    struct yb_index_op take = op(YB_INDEX_REMOVE, 1, YB_GRANT_NONE, 0);
    struct yb_index_result result;
    uint64_t now = ((uint64_t)3 << 32) - 500; /* The low 32 bits are about to wrap. */

    (void)state;
    keep.hold_ms = 1000;
    assert_int_equal(apply_at(index, keep, now).status, YB_NOT_FOUND);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(apply_at(index, keep, now).status, YB_OK);
    keep.hold_ms = 10; /* Shortens nothing. */
    assert_int_equal(apply_at(index, keep, now).status, YB_OK);
    assert_int_equal(apply_at(index, take, now + 999).status, YB_HELD);
    take.grant = GRANT(4);
    assert_int_equal(apply_at(index, take, now + 1000).status, YB_NOT_FOUND);
    take.grant = GRANT(5);
    result = apply_at(index, take, now + 1000);
    assert_int_equal(result.status, YB_OK);
    assert_int_equal(result.dropped_count, 1);
    assert_int_equal(result.dropped_grant, GRANT(5));
    assert_int_equal(result.grant, YB_GRANT_NONE);
    assert_int_equal(records(index), 0);
    /* Force ignores holds. */
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(6), 1), YB_OK);
    keep.grant = GRANT(6);
    keep.hold_ms = YB_INDEX_HOLD_MS_MAX;
    assert_int_equal(apply_at(index, keep, now).status, YB_OK);
    take.grant = YB_GRANT_NONE;
    take.force = 1;
    assert_int_equal(apply_at(index, take, now + 1).status, YB_OK);
    yb_index_destroy(&index);
}

static void
test_index__a_hold_that_ran_out_weeks_ago_does_not_come_back(void **state)
{
    enum { DAY_MS = 86400000 };
    struct yb_index *index = index_with(100, 2);
    struct yb_index_query query = {.hold_ms = 5000};
    struct yb_id hash = name(1);
    struct yb_index_answer answer;

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    yb_index_lookup(index, &query, &hash, 1, &answer);
    assert_int_equal(answer.held, 1);
    assert_false(yb_index_sweep_wanted(index, DAY_MS - 1));
    for (uint64_t day = 1; day < 60; day++) {
        query.hold_ms = 0;
        query.now_ms = day * DAY_MS;
        if (yb_index_sweep_wanted(index, query.now_ms)) {
            sweep(index, query.now_ms, 10);
        }
        yb_index_lookup(index, &query, &hash, 1, &answer);
        assert_int_equal(answer.held, 0);
    }
    assert_false(yb_index_sweep_wanted(index, (uint64_t)100 * DAY_MS));
    yb_index_destroy(&index);
}

static void
test_index__another_tenants_hash_is_absent(void **state)
{
    struct yb_index *index = index_with(100, 2);
    struct yb_index_op theirs = op(YB_INDEX_CREATE, 1, GRANT(6), 2);
    struct yb_index_op take = op(YB_INDEX_REMOVE, 1, YB_GRANT_NONE, 0);

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(look(index, 1, 1).presence, YB_INDEX_ABSENT);
    assert_int_equal(look(index, 10, 1).presence, YB_INDEX_ABSENT);
    take.tenant = 1;
    assert_int_equal(apply_at(index, take, 0).status, YB_NOT_FOUND);
    theirs.tenant = 1;
    assert_int_equal(apply_at(index, theirs, 0).status, YB_OK);
    assert_int_equal(look(index, 0, 1).grant, GRANT(5));
    assert_int_equal(look(index, 1, 1).grant, GRANT(6));
    assert_int_equal(yb_index_tenant_records(index, 0), 1);
    assert_int_equal(apply_at(index, take, 0).status, YB_OK);
    assert_int_equal(look(index, 0, 1).grant, GRANT(5));
    yb_index_destroy(&index);
}

static void
test_index__a_flush_hides_a_tenants_blocks_at_once_and_for_ever(void **state)
{
    struct yb_index *index = index_with(100, 2);
    struct yb_index_op theirs = op(YB_INDEX_CREATE, 1, GRANT(4), 1);
    struct yb_index_op fresh = op(YB_INDEX_CREATE, 1, GRANT(6), 1);

    (void)state;
    theirs.tenant = 1;
    assert_int_equal(apply_at(index, theirs, 0).status, YB_OK);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(yb_index_flush(index, 0, 3), YB_OK);
    assert_int_equal(yb_index_flush(index, 0, 2), YB_OK); /* Not higher: nothing. */
    assert_int_equal(yb_index_flush_epoch(index, 0), 3);
    assert_int_equal(yb_index_flush(index, 10, 2), YB_INVALID);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    assert_int_equal(look(index, 1, 1).presence, YB_INDEX_PRESENT);
    assert_int_equal(apply(index, YB_INDEX_ADD, 1, GRANT(5), 2), YB_REFUSED);
    fresh.flush_epoch = 2;
    assert_int_equal(apply_at(index, fresh, 0).status, YB_STALE);
    fresh.flush_epoch = 3;
    assert_int_equal(apply_at(index, fresh, 0).status, YB_OK);
    assert_int_equal(look(index, 0, 1).grant, GRANT(6));
    assert_int_equal(sweep(index, 0, 10), 0);
    /* After 65536 flushes the low 16 bits of the epoch are the same again. */
    assert_int_equal(yb_index_flush(index, 0, 3 + 65535), YB_OK);
    assert_int_equal(yb_index_flush(index, 0, 3 + 65536), YB_AGAIN);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    assert_int_equal(sweep(index, 0, 10), 1);
    assert_int_equal(yb_index_flush(index, 0, 3 + 65536), YB_OK);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    assert_int_equal(records(index), 1);
    yb_index_destroy(&index);
}

static void
test_index__a_flush_far_ahead_hides_at_once_and_arrives_after_a_sweep(void **state)
{
    struct yb_index *index = index_with(100, 2);

    (void)state;
    assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(5), 1), YB_OK);
    assert_int_equal(yb_index_flush(index, 0, UINT64_C(1) << 40), YB_AGAIN);
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
    sweep(index, 0, 10);
    assert_int_equal(yb_index_flush(index, 0, UINT64_C(1) << 40), YB_OK);
    assert_int_equal(yb_index_flush_epoch(index, 0), UINT64_C(1) << 40);
    yb_index_destroy(&index);
}

/* ---- slots, inventories, the sweep -------------------------------------------------------- */

static void
test_index__a_death_counts_at_once_and_its_number_waits_for_the_sweep(void **state)
{
    struct yb_index *index = index_with(1000, 2);
    struct yb_index_slot_counts counts;
    struct yb_index_swept swept;

    (void)state;
    for (uint64_t key = 0; key < 100; key++) {
        assert_int_equal(apply(index, YB_INDEX_CREATE, key, GRANT(key + 1), 1), YB_OK);
    }
    assert_int_equal(yb_index_slot_open(index, 1), YB_BUSY);
    yb_index_sweep_request(index); /* One that has passed half of them when the slot dies. */
    yb_index_sweep(index, 0, 50, NULL, 0, &swept);
    set_state(index, 1, YB_INDEX_SLOT_DEAD);
    assert_int_equal(look(index, 0, 7).presence, YB_INDEX_ABSENT);
    assert_int_equal(yb_index_slot_set(index, 1, YB_INDEX_SLOT_SERVING), YB_FENCED);
    yb_index_sweep(index, 0, 50, NULL, 0, &swept);
    assert_int_equal(swept.records_freed, 50);
    assert_false(swept.done);
    assert_int_equal(yb_index_slot_open(index, 1), YB_BUSY);
    yb_index_slot_counts(index, 1, &counts);
    assert_int_equal(counts.replicas, 50);
    assert_int_equal(counts.bytes, 50 * 1000);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 7, GRANT(200), 2), YB_OK);
    assert_int_equal(sweep(index, 0, 7), 49);
    yb_index_slot_counts(index, 1, &counts);
    assert_int_equal(counts.state, YB_INDEX_SLOT_FREE);
    assert_int_equal(counts.replicas, 0);
    assert_int_equal(yb_index_slot_open(index, 1), YB_OK);
    assert_int_equal(look(index, 0, 8).presence, YB_INDEX_ABSENT);
    assert_int_equal(records(index), 1);
    yb_index_destroy(&index);
}

static void
test_index__slots_refuse_what_does_not_fit_their_state(void **state)
{
    struct yb_index *index = index_with(10, 1);

    (void)state;
    assert_int_equal(yb_index_slot_open(index, 0), YB_INVALID);
    assert_int_equal(yb_index_slot_open(index, 101), YB_INVALID);
    assert_int_equal(yb_index_slot_set(index, 0, YB_INDEX_SLOT_DEAD), YB_INVALID);
    assert_int_equal(yb_index_slot_set(index, 1, YB_INDEX_SLOT_FREE), YB_INVALID);
    assert_int_equal(yb_index_slot_set(index, 2, YB_INDEX_SLOT_DEAD), YB_FENCED);
    assert_int_equal(yb_index_inventory_begin(index, 2), YB_FENCED);
    assert_int_equal(yb_index_inventory_end(index, 1), YB_INVALID);
    yb_index_destroy(&index);
}

static void
test_index__the_end_of_an_inventory_takes_what_it_did_not_name(void **state)
{
    struct yb_index *index = index_with(100, 2);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        assert_int_equal(apply(index, YB_INDEX_CREATE, key, GRANT(key), 1), YB_OK);
    }
    assert_int_equal(apply(index, YB_INDEX_CREATE, 4, GRANT(4), 2), YB_OK);
    /* Named before a gap in the stream, not after it. */
    assert_int_equal(yb_index_inventory_begin(index, 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_INVENTORY, 1, GRANT(1), 1), YB_OK);
    assert_int_equal(yb_index_inventory_begin(index, 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_INVENTORY, 2, GRANT(2), 1), YB_OK);
    assert_int_equal(apply(index, YB_INDEX_CREATE, 5, GRANT(5), 1), YB_OK); /* News count. */
    assert_int_equal(look(index, 0, 1).presence, YB_INDEX_PRESENT);
    assert_int_equal(yb_index_inventory_end(index, 1), YB_OK);
    for (uint64_t key = 1; key <= 5; key++) {
        assert_int_equal(look(index, 0, key).presence != YB_INDEX_ABSENT, key != 1 && key != 3);
    }
    /* The next one may begin before the sweep, and hides nothing by that. */
    assert_int_equal(yb_index_inventory_begin(index, 1), YB_OK);
    assert_int_equal(look(index, 0, 2).presence, YB_INDEX_PRESENT);
    assert_int_equal(look(index, 0, 3).presence, YB_INDEX_ABSENT);
    assert_int_equal(sweep(index, 0, 2), 2);
    assert_int_equal(look(index, 0, 2).presence, YB_INDEX_PRESENT);
    assert_int_equal(yb_index_inventory_end(index, 1), YB_OK);
    assert_int_equal(look(index, 0, 2).presence, YB_INDEX_ABSENT);
    assert_int_equal(look(index, 0, 4).presence, YB_INDEX_PRESENT);
    yb_index_destroy(&index);
}

static void
test_index__no_number_of_inventories_makes_the_unnamed_named(void **state)
{
    uint32_t refused = 0;

    (void)state;
    for (uint32_t inventories = 1; inventories <= 70; inventories++) {
        struct yb_index *index = index_with(100, 1);

        assert_int_equal(apply(index, YB_INDEX_CREATE, 1, GRANT(1), 1), YB_OK);
        for (uint32_t i = 0; i < inventories; i++) {
            if (yb_index_inventory_begin(index, 1) == YB_AGAIN) {
                assert_true(yb_index_sweep_wanted(index, 0));
                sweep(index, 0, 10);
                assert_int_equal(yb_index_inventory_begin(index, 1), YB_OK);
                refused++;
            }
        }
        assert_int_equal(look(index, 0, 1).presence, YB_INDEX_PRESENT);
        assert_int_equal(yb_index_inventory_end(index, 1), YB_OK);
        assert_int_equal(look(index, 0, 1).presence, YB_INDEX_ABSENT);
        yb_index_destroy(&index);
    }
    assert_true(refused > 0);
}

static void
test_index__a_sweep_reports_every_block_on_too_few_slots_once(void **state)
{
    enum { KEYS = 60 };
    struct yb_index *index = index_with(100, 3);
    struct yb_index_repair repairs[4];
    struct yb_index_swept swept = {0};
    uint8_t seen[KEYS] = {0};
    uint32_t reported = 0;

    (void)state;
    for (uint64_t key = 0; key < KEYS; key++) {
        struct yb_index_op what = op(YB_INDEX_CREATE, key, GRANT(key + 1), 1);

        /* Two tiers of one slot are one slot. */
        what.replica_count = 2;
        what.replicas[1] = (struct yb_index_replica){.slot = key % 3 == 0 ? 1 : 2,
                                                     .tier = key % 3 == 0 ? SSD : DRAM};
        what.flags = yb_index_with_wanted(0, key % 3 == 1 ? 1 : 2);
        assert_int_equal(apply_at(index, what, 0).status, YB_OK);
    }
    set_state(index, 2, YB_INDEX_SLOT_DEAD);
    while (!swept.done) {
        yb_index_sweep(index, 0, 10, repairs, 4, &swept);
        for (uint32_t i = 0; i < swept.repairs; i++) {
            uint64_t key;

            memcpy(&key, repairs[i].hash.bytes, sizeof(key));
            assert_true(key < KEYS && key % 3 != 1 && seen[key]++ == 0);
            assert_int_equal(repairs[i].grant, GRANT(key + 1));
            assert_int_equal(repairs[i].slots, 1);
            assert_int_equal(repairs[i].wanted, 2);
            reported++;
        }
    }
    assert_int_equal(reported, KEYS * 2 / 3);
    yb_index_destroy(&index);
}

static void
test_index__a_scan_reads_what_is_there_throughout_exactly_once(void **state)
{
    enum { KEYS = 500 };
    struct yb_index *index = index_with(10000, 3);
    struct yb_index_entry entries[16];
    uint8_t seen[KEYS] = {0};
    uint32_t cursor = 0;
    uint64_t news = KEYS;

    (void)state;
    for (uint64_t key = 0; key < KEYS; key++) {
        assert_int_equal(
            apply(index, YB_INDEX_CREATE, key, GRANT(key + 1), (uint16_t)(1 + key % 2)), YB_OK);
    }
    for (uint64_t removed = 1; cursor != YB_INDEX_SCAN_END; removed += 2) {
        uint32_t count = yb_index_scan(index, 0, 1, 20, &cursor, entries, 4);

        assert_true(count <= 4);
        for (uint32_t i = 0; i < count; i++) {
            uint64_t key;

            memcpy(&key, entries[i].hash.bytes, sizeof(key));
            assert_int_equal(entries[i].answer.replicas[0].slot, 1);
            assert_int_equal(entries[i].answer.grant, GRANT(key + 1));
            if (key < KEYS) {
                assert_int_equal(seen[key]++, 0);
            }
        }
        if (removed < KEYS) {
            assert_int_equal(apply(index, YB_INDEX_REMOVE, removed, YB_GRANT_NONE, 0), YB_OK);
        }
        for (uint32_t i = 0; i < 3 && news < 4000; i++, news++) {
            assert_int_equal(apply(index, YB_INDEX_CREATE, news, GRANT(news + 1), 1), YB_OK);
        }
    }
    for (uint64_t key = 0; key < KEYS; key += 2) {
        assert_int_equal(seen[key], 1);
    }
    yb_index_destroy(&index);
}

/* ---- the table ---------------------------------------------------------------------------- */

static void
test_index__names_that_collide_are_all_found_and_all_leave(void **state)
{
    enum { KEYS = 200, OTHERS = 3000 };
    struct yb_index *index = index_with(10000, 1);
    struct yb_index_counts counts;
    uint64_t keys[KEYS];
    uint64_t candidate = 1u << 20;

    (void)state;
    for (uint32_t found = 0; found < KEYS; candidate++) {
        if ((yb_hash_table_id(SEED, name(candidate)) & 0xfff) == 0x123) {
            keys[found++] = candidate;
        }
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(apply(index, YB_INDEX_CREATE, keys[i], GRANT(i + 1), 1), YB_OK);
    }
    for (uint64_t key = 0; key < OTHERS; key++) { /* Splits that bucket more than once. */
        assert_int_equal(apply(index, YB_INDEX_CREATE, key, GRANT(1000 + key), 1), YB_OK);
    }
    yb_index_counts(index, &counts);
    assert_true(counts.buckets_further >= KEYS / 12);
    for (uint32_t i = 0; i < KEYS; i++) {
        assert_int_equal(grant_of(index, keys[i]), GRANT(i + 1));
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        uint32_t out = (i * 77) % KEYS;

        assert_int_equal(apply(index, YB_INDEX_REMOVE, keys[out], GRANT(out + 1), 0), YB_OK);
        assert_int_equal(grant_of(index, keys[out]), YB_GRANT_NONE);
    }
    for (uint64_t key = 0; key < OTHERS; key++) {
        assert_int_equal(apply(index, YB_INDEX_REMOVE, key, GRANT(1000 + key), 0), YB_OK);
    }
    yb_index_counts(index, &counts);
    assert_int_equal(counts.records, 0);
    assert_int_equal(counts.replicas, 0);
    assert_int_equal(counts.bytes, 0);
    assert_int_equal(counts.buckets_further, 0);
    yb_index_destroy(&index);
}

static void
test_index__a_record_takes_at_most_64_bytes_at_every_size(void **state)
{
    enum { KEYS = 1000000, BATCH = 100 };
    struct yb_index *index = index_with(KEYS, 16);
    struct yb_index_op ops[BATCH];
    struct yb_index_result results[BATCH];
    struct yb_index_counts counts;
    uint32_t buckets = 64;

    (void)state;
    for (uint64_t key = 0; key < KEYS; key += BATCH) {
        for (uint32_t i = 0; i < BATCH; i++) {
            ops[i] = op(YB_INDEX_CREATE, key + i, GRANT(key + i + 1), (uint16_t)(1 + i % 16));
            if (i % 10 == 0) {
                ops[i].replica_count = 2;
                ops[i].replicas[1] = (struct yb_index_replica){.slot = 1, .tier = SSD};
            }
        }
        yb_index_apply(index, ops, BATCH, 0, results);
        yb_index_counts(index, &counts);
        assert_int_equal(counts.records, key + BATCH);
        /* Growing goes with what is added: never more than one bucket for each record. */
        assert_true(counts.buckets - buckets <= BATCH);
        buckets = counts.buckets;
        if (key + BATCH >= 250000) {
            assert_true(yb_index_bytes(index) <= (uint64_t)64 * counts.records);
        }
    }
    printf("index: %.2f bytes for each of %u records\n",
           (double)yb_index_bytes(index) / counts.records, counts.records);
    for (uint64_t key = 0; key < KEYS; key += 997) {
        assert_int_equal(grant_of(index, key), GRANT(key + 1));
    }
    yb_index_destroy(&index);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index__a_size_is_never_told_too_small_nor_much_too_large),
        cmocka_unit_test(test_index__grants_of_a_later_epoch_are_higher_and_end_with_their_epoch),
        cmocka_unit_test(test_index__create_refuses_options_out_of_range),
        cmocka_unit_test(test_index__the_first_of_two_creations_wins_and_its_grant_is_told),
        cmocka_unit_test(
            test_index__a_draining_slot_stands_in_a_writers_way_a_suspect_one_does_not),
        cmocka_unit_test(test_index__replace_wants_a_higher_grant_and_tells_who_must_drop),
        cmocka_unit_test(test_index__a_replica_joins_its_grant_and_never_creates),
        cmocka_unit_test(
            test_index__withdraw_takes_one_replica_of_its_grant_and_touches_nothing_else),
        cmocka_unit_test(test_index__of_two_inventories_the_higher_grant_wins),
        cmocka_unit_test(test_index__operations_out_of_range_change_nothing),
        cmocka_unit_test(test_index__a_full_index_says_so_until_something_leaves),
        cmocka_unit_test(test_index__a_hold_keeps_a_block_from_being_removed_until_its_time),
        cmocka_unit_test(test_index__a_hold_that_ran_out_weeks_ago_does_not_come_back),
        cmocka_unit_test(test_index__another_tenants_hash_is_absent),
        cmocka_unit_test(test_index__a_flush_hides_a_tenants_blocks_at_once_and_for_ever),
        cmocka_unit_test(test_index__a_flush_far_ahead_hides_at_once_and_arrives_after_a_sweep),
        cmocka_unit_test(test_index__a_death_counts_at_once_and_its_number_waits_for_the_sweep),
        cmocka_unit_test(test_index__slots_refuse_what_does_not_fit_their_state),
        cmocka_unit_test(test_index__the_end_of_an_inventory_takes_what_it_did_not_name),
        cmocka_unit_test(test_index__no_number_of_inventories_makes_the_unnamed_named),
        cmocka_unit_test(test_index__a_sweep_reports_every_block_on_too_few_slots_once),
        cmocka_unit_test(test_index__a_scan_reads_what_is_there_throughout_exactly_once),
        cmocka_unit_test(test_index__names_that_collide_are_all_found_and_all_leave),
        cmocka_unit_test(test_index__a_record_takes_at_most_64_bytes_at_every_size),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
