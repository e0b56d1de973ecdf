/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: directory/index.h as a whole: every operation, in any order, beside deaths, inventories,
 * flushes, holds, growth and sweeps in the midst of it.
 * Method: a random walk against a model that is an array of all keys. In the model what is gone is
 * taken out at once; so the walk also shows that nobody can see whether a sweep has passed.
 */
#include "unit.h"

#include <string.h>

#include "directory/grant.h"
#include "directory/index.h"

enum {
    KEYS = 400,
    GRANT_STEP = 1000,
    TENANTS = 3,
    SLOTS = 12,
    TIERS = 3,
    STEPS = 60000,
    HOUR_MS = 3600000
};

struct model_replica {
    uint16_t slot;
    uint8_t tier;
    uint32_t named_in; /* The slot's inventory. */
};

struct model_block {
    uint32_t count; /* 0: absent. */
    uint64_t grant;
    uint64_t size;
    uint16_t flags;
    uint64_t hold_until;
    struct model_replica replicas[YB_INDEX_REPLICAS_MAX];
};

struct model_slot {
    enum yb_index_slot_state state;
    uint32_t inventory;
    bool begun;
};

struct walk {
    uint64_t seed;
    uint64_t now_ms;
    uint64_t grant;
    struct yb_index *index;
    struct model_slot slots[SLOTS + 1];
    uint64_t epochs[TENANTS];
    struct model_block blocks[TENANTS][KEYS];
};

static uint64_t
below(struct walk *walk, uint64_t limit)
{
    return unit_random(&walk->seed) % limit;
}

static struct yb_id
name(uint64_t key)
{
    struct yb_id id = {{0}};

    memcpy(id.bytes + 8, &key, sizeof(key));
    return id;
}

/* ---- the model ---------------------------------------------------------------------------- */

/* Take out the replicas on `slot` of inventories before `inventory`. */
static void
model_purge(struct walk *walk, uint16_t slot, uint32_t inventory)
{
    for (uint32_t i = 0; i < TENANTS * KEYS; i++) {
        struct model_block *block = &walk->blocks[i / KEYS][i % KEYS];
        uint32_t kept = 0;

        for (uint32_t j = 0; j < block->count; j++) {
            if (block->replicas[j].slot != slot || block->replicas[j].named_in >= inventory) {
                block->replicas[kept++] = block->replicas[j];
            }
        }
        block->count = kept;
    }
}

static bool
model_in_use(const struct walk *walk, uint16_t slot)
{
    return walk->slots[slot].state != YB_INDEX_SLOT_FREE &&
           walk->slots[slot].state != YB_INDEX_SLOT_DEAD;
}

static bool
model_live(const struct walk *walk, const struct model_block *block)
{
    for (uint32_t i = 0; i < block->count; i++) {
        if (walk->slots[block->replicas[i].slot].state != YB_INDEX_SLOT_SUSPECT) {
            return true;
        }
    }
    return false;
}

static void
model_set(struct walk *walk, const struct yb_index_op *op, struct model_block *block)
{
    uint64_t hold_until = block->count == 0 ? 0 : block->hold_until;

    *block = (struct model_block){
        .count = op->replica_count,
        .grant = op->grant,
        .size = op->size,
        .flags = (uint16_t)(op->kind == YB_INDEX_INVENTORY ? op->flags
                            : op->kind == YB_INDEX_REPLACE ? op->flags | YB_INDEX_VERSIONED
                                                           : op->flags & ~YB_INDEX_VERSIONED),
        .hold_until = hold_until,
    };
    for (uint32_t i = 0; i < op->replica_count; i++) {
        block->replicas[i] = (struct model_replica){
            .slot = op->replicas[i].slot,
            .tier = op->replicas[i].tier,
            .named_in = walk->slots[op->replicas[i].slot].inventory,
        };
    }
}

static uint32_t
model_place(const struct model_block *block, const struct yb_index_replica *replica)
{
    uint32_t place = 0;

    while (place < block->count && (block->replicas[place].slot != replica->slot ||
                                    block->replicas[place].tier != replica->tier)) {
        place++;
    }
    return place;
}

static enum yb_status
model_join(struct walk *walk, const struct yb_index_op *op, struct model_block *block)
{
    uint32_t place = model_place(block, &op->replicas[0]);

    if (place == YB_INDEX_REPLICAS_MAX) {
        return YB_TOO_LARGE;
    }
    block->replicas[place] = (struct model_replica){
        .slot = op->replicas[0].slot,
        .tier = op->replicas[0].tier,
        .named_in = walk->slots[op->replicas[0].slot].inventory,
    };
    block->count += place == block->count;
    return YB_OK;
}

static enum yb_status
model_make(struct walk *walk, const struct yb_index_op *op, struct model_block *block)
{
    if (op->flush_epoch < walk->epochs[op->tenant]) {
        return YB_STALE;
    }
    if (block->count > 0) {
        if (op->kind == YB_INDEX_INVENTORY && op->grant == block->grant) {
            return model_join(walk, op, block);
        }
        if (op->kind == YB_INDEX_INVENTORY && op->grant < block->grant) {
            return YB_LOST;
        }
        if (op->kind == YB_INDEX_CREATE && model_live(walk, block)) {
            return YB_EXISTS;
        }
        if (op->grant <= block->grant) {
            return YB_STALE;
        }
    }
    model_set(walk, op, block);
    return YB_OK;
}

static enum yb_status
model_apply(struct walk *walk, const struct yb_index_op *op, struct model_block *block)
{
    bool meant = block->count > 0 && (op->grant == YB_GRANT_NONE || op->grant == block->grant);
    uint32_t place;

    for (uint32_t i = 0; op->kind != YB_INDEX_WITHDRAW && i < op->replica_count; i++) {
        if (!model_in_use(walk, op->replicas[i].slot)) {
            return YB_FENCED;
        }
    }
    switch ((enum yb_index_op_kind)op->kind) {
    case YB_INDEX_CREATE:
    case YB_INDEX_REPLACE:
    case YB_INDEX_INVENTORY: return model_make(walk, op, block);
    case YB_INDEX_ADD: return meant ? model_join(walk, op, block) : YB_REFUSED;
    case YB_INDEX_WITHDRAW:
        place = model_place(block, &op->replicas[0]);
        if (!meant || place == block->count) {
            return YB_NOT_FOUND;
        }
        block->count--;
        memmove(&block->replicas[place], &block->replicas[place + 1],
                (block->count - place) * sizeof(block->replicas[0]));
        return YB_OK;
    case YB_INDEX_REMOVE:
        if (!meant) {
            return YB_NOT_FOUND;
        }
        if (op->force == 0 && block->hold_until > walk->now_ms) {
            return YB_HELD;
        }
        block->count = 0;
        return YB_OK;
    case YB_INDEX_HOLD:
        if (meant && block->hold_until < walk->now_ms + op->hold_ms) {
            block->hold_until = walk->now_ms + op->hold_ms;
        }
        return meant ? YB_OK : YB_NOT_FOUND;
    }
    return YB_INVALID;
}

/* ---- comparing ---------------------------------------------------------------------------- */

static void
compare_answer(const struct walk *walk, const struct model_block *block,
               const struct yb_index_answer *answer)
{
    uint32_t live = 0;
    uint32_t place[2];

    assert_int_equal(answer->count, block->count);
    if (block->count == 0) {
        assert_int_equal(answer->presence, YB_INDEX_ABSENT);
        assert_int_equal(answer->grant, 0);
        return;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        live += walk->slots[block->replicas[i].slot].state != YB_INDEX_SLOT_SUSPECT;
    }
    assert_int_equal(answer->presence, live > 0 ? YB_INDEX_PRESENT : YB_INDEX_SUSPECT_ONLY);
    assert_int_equal(answer->live, live);
    assert_int_equal(answer->grant, block->grant);
    assert_int_equal(answer->size_code, yb_index_size_encode(block->size));
    assert_int_equal(answer->flags, block->flags);
    assert_int_equal(answer->held, block->hold_until > walk->now_ms);
    place[0] = 0;
    place[1] = live;
    for (uint32_t i = 0; i < block->count; i++) {
        const struct model_replica *replica = &block->replicas[i];
        bool suspect = walk->slots[replica->slot].state == YB_INDEX_SLOT_SUSPECT;
        const struct yb_index_replica *told = &answer->replicas[place[suspect]++];

        assert_int_equal(told->slot, replica->slot);
        assert_int_equal(told->tier, replica->tier);
    }
}

static void
compare_lookups(struct walk *walk)
{
    static struct yb_id hashes[KEYS];
    static struct yb_index_answer answers[KEYS];

    for (uint64_t key = 0; key < KEYS; key++) {
        hashes[key] = name(key);
    }
    for (uint32_t tenant = 0; tenant < TENANTS; tenant++) {
        struct yb_index_query query = {.tenant = tenant, .now_ms = walk->now_ms};

        yb_index_lookup(walk->index, &query, hashes, KEYS, answers);
        for (uint64_t key = 0; key < KEYS; key++) {
            compare_answer(walk, &walk->blocks[tenant][key], &answers[key]);
        }
    }
}

static void
compare_scan(struct walk *walk)
{
    static struct yb_index_entry entries[TENANTS * KEYS];
    uint32_t cursor = 0;
    uint32_t there = 0;
    uint32_t read = 0;

    while (cursor != YB_INDEX_SCAN_END) {
        uint32_t count =
            yb_index_scan(walk->index, walk->now_ms, YB_INDEX_SLOT_NONE,
                          (uint32_t)below(walk, 100) + 1, &cursor, entries, TENANTS * KEYS);

        for (uint32_t i = 0; i < count; i++) {
            uint64_t key;

            memcpy(&key, entries[i].hash.bytes + 8, sizeof(key));
            assert_true(key < KEYS && entries[i].tenant < TENANTS);
            assert_int_equal(entries[i].flush_epoch, walk->epochs[entries[i].tenant]);
            compare_answer(walk, &walk->blocks[entries[i].tenant][key], &entries[i].answer);
        }
        read += count;
    }
    for (uint32_t i = 0; i < TENANTS * KEYS; i++) {
        there += walk->blocks[i / KEYS][i % KEYS].count > 0;
    }
    assert_int_equal(read, there);
}

/* After a whole sweep the counts are the model's. */
static void
compare_counts(struct walk *walk)
{
    struct yb_index_slot_counts slots[SLOTS + 1] = {0};
    struct yb_index_counts expected = {0};
    struct yb_index_counts counts;

    for (uint32_t i = 0; i < TENANTS * KEYS; i++) {
        const struct model_block *block = &walk->blocks[i / KEYS][i % KEYS];
        uint64_t bytes = yb_index_size_decode(yb_index_size_encode(block->size));

        expected.records += block->count > 0;
        expected.overflows += block->count > 3;
        for (uint32_t j = 0; j < block->count; j++) {
            slots[block->replicas[j].slot].replicas++;
            slots[block->replicas[j].slot].bytes += bytes;
            expected.replicas++;
            expected.bytes += bytes;
        }
    }
    yb_index_counts(walk->index, &counts);
    assert_int_equal(counts.records, expected.records);
    assert_int_equal(counts.overflows, expected.overflows);
    assert_int_equal(counts.replicas, expected.replicas);
    assert_int_equal(counts.bytes, expected.bytes);
    for (uint16_t slot = 1; slot <= SLOTS; slot++) {
        struct yb_index_slot_counts told;

        yb_index_slot_counts(walk->index, slot, &told);
        assert_int_equal(told.replicas, slots[slot].replicas);
        assert_int_equal(told.bytes, slots[slot].bytes);
        assert_int_not_equal(told.state, YB_INDEX_SLOT_DEAD);
    }
}

/* ---- steps -------------------------------------------------------------------------------- */

/* A random operation, which often names the present grant, and a replica that is there. */
static struct yb_index_op
some_op(struct walk *walk)
{
    static const uint8_t kinds[] = {
        YB_INDEX_CREATE,    YB_INDEX_CREATE,   YB_INDEX_CREATE,   YB_INDEX_REPLACE,
        YB_INDEX_ADD,       YB_INDEX_ADD,      YB_INDEX_ADD,      YB_INDEX_ADD,
        YB_INDEX_ADD,       YB_INDEX_WITHDRAW, YB_INDEX_WITHDRAW, YB_INDEX_INVENTORY,
        YB_INDEX_INVENTORY, YB_INDEX_REMOVE,   YB_INDEX_HOLD,
    };
    uint64_t key = below(walk, 4) == 0 ? below(walk, KEYS) : below(walk, KEYS / 8);
    uint16_t tenant = (uint16_t)below(walk, TENANTS);
    const struct model_block *block = &walk->blocks[tenant][key];
    struct yb_index_op op = {
        .hash = name(key),
        .tenant = tenant,
        .kind = kinds[below(walk, sizeof(kinds))],
        .size = unit_random(&walk->seed) >> (16 + below(walk, 48)),
        .flags = (uint16_t)below(walk, YB_INDEX_FLAGS_ALL + 1),
        .flush_epoch = walk->epochs[tenant],
        .force = below(walk, 4) == 0,
        .replica_count = 1,
    };

    op.grant = below(walk, 4) == 0 || block->count == 0 ? ++walk->grant : block->grant;
    if (op.kind == YB_INDEX_CREATE || op.kind == YB_INDEX_REPLACE) {
        op.grant = below(walk, 8) == 0 ? op.grant : ++walk->grant;
        op.replica_count = (uint8_t)(below(walk, 3) == 0 ? 1 + below(walk, 8) : 1);
    } else if (op.kind == YB_INDEX_INVENTORY && below(walk, 8) == 0 &&
               op.grant > yb_grant_epoch_start(1) + GRANT_STEP) {
        op.grant -= below(walk, GRANT_STEP);
    } else if (op.kind == YB_INDEX_REMOVE || op.kind == YB_INDEX_HOLD) {
        op.replica_count = 0;
        op.hold_ms = op.kind == YB_INDEX_HOLD ? (uint32_t)below(walk, 2 * HOUR_MS) : 0;
        op.grant = below(walk, 2) == 0 ? YB_GRANT_NONE : op.grant;
    }
    if (op.flush_epoch > 0 && below(walk, 16) == 0) {
        op.flush_epoch--;
    }
    for (uint32_t i = 0, first = (uint32_t)below(walk, SLOTS); i < op.replica_count; i++) {
        op.replicas[i].slot = (uint16_t)(1 + (first + i) % SLOTS);
        op.replicas[i].tier = (uint8_t)below(walk, TIERS);
    }
    if (op.kind == YB_INDEX_WITHDRAW && block->count > 0 && below(walk, 4) > 0) {
        uint64_t which = below(walk, block->count);

        op.replicas[0].slot = block->replicas[which].slot;
        op.replicas[0].tier = block->replicas[which].tier;
    }
    return op;
}

static void
step_apply(struct walk *walk)
{
    struct yb_index_op ops[40];
    struct yb_index_result results[40];
    uint32_t count = (uint32_t)below(walk, 40) + 1;

    for (uint32_t i = 0; i < count; i++) {
        ops[i] = some_op(walk); /* From the model before the batch: some grants will be old. */
    }
    yb_index_apply(walk->index, ops, count, walk->now_ms, results);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key;
        struct model_block *block;
        struct model_block before;
        bool drops;

        memcpy(&key, ops[i].hash.bytes + 8, sizeof(key));
        block = &walk->blocks[ops[i].tenant][key];
        before = *block;
        assert_int_equal(results[i].status, model_apply(walk, &ops[i], block));
        assert_int_equal(results[i].replicas, block->count);
        assert_int_equal(results[i].grant, block->count > 0 ? block->grant : YB_GRANT_NONE);
        drops = results[i].status == YB_OK && before.count > 0 &&
                ops[i].kind != YB_INDEX_WITHDRAW &&
                (block->count == 0 || block->grant != before.grant);
        assert_int_equal(results[i].dropped_count, drops ? before.count : 0);
        assert_int_equal(results[i].dropped_grant, drops ? before.grant : YB_GRANT_NONE);
        for (uint32_t j = 0; j < results[i].dropped_count; j++) {
            assert_int_equal(results[i].dropped[j].slot, before.replicas[j].slot);
            assert_int_equal(results[i].dropped[j].tier, before.replicas[j].tier);
        }
    }
}

static void
step_slot(struct walk *walk)
{
    uint16_t number = (uint16_t)(1 + below(walk, SLOTS));
    struct model_slot *slot = &walk->slots[number];
    enum yb_index_slot_state state =
        below(walk, 4) == 0 ? YB_INDEX_SLOT_DEAD
                            : (enum yb_index_slot_state)(YB_INDEX_SLOT_SERVING + below(walk, 3));
    struct yb_index_slot_counts counts;

    if (model_in_use(walk, number)) {
        assert_int_equal(yb_index_slot_set(walk->index, number, state), YB_OK);
        slot->state = state;
        if (state == YB_INDEX_SLOT_DEAD) {
            model_purge(walk, number, UINT32_MAX);
        }
        return;
    }
    assert_int_equal(yb_index_slot_set(walk->index, number, state), YB_FENCED);
    yb_index_slot_counts(walk->index, number, &counts);
    if (counts.state == YB_INDEX_SLOT_FREE) {
        assert_int_equal(counts.replicas, 0);
        assert_int_equal(yb_index_slot_open(walk->index, number), YB_OK);
        *slot = (struct model_slot){.state = YB_INDEX_SLOT_SERVING};
    } else {
        assert_int_equal(yb_index_slot_open(walk->index, number), YB_BUSY);
    }
}

static void
step_inventory(struct walk *walk)
{
    uint16_t number = (uint16_t)(1 + below(walk, SLOTS));
    struct model_slot *slot = &walk->slots[number];
    enum yb_status status;

    if (!model_in_use(walk, number)) {
        return;
    }
    if (below(walk, 3) > 0) {
        status = yb_index_inventory_begin(walk->index, number);
        assert_true(status == YB_OK ||
                    (status == YB_AGAIN && yb_index_sweep_wanted(walk->index, walk->now_ms)));
        slot->inventory += status == YB_OK;
        slot->begun = slot->begun || status == YB_OK;
        return;
    }
    status = yb_index_inventory_end(walk->index, number);
    assert_int_equal(status, slot->begun ? YB_OK : YB_INVALID);
    if (slot->begun) {
        model_purge(walk, number, slot->inventory);
        slot->begun = false;
    }
}

static void
step_flush(struct walk *walk)
{
    uint32_t tenant = (uint32_t)below(walk, TENANTS);
    uint64_t epoch = walk->epochs[tenant];
    uint64_t wanted = epoch + (below(walk, 4) == 0 ? below(walk, 100000) : below(walk, 3));
    enum yb_status status = yb_index_flush(walk->index, tenant, wanted);

    walk->epochs[tenant] = yb_index_flush_epoch(walk->index, tenant);
    if (status == YB_OK) {
        assert_int_equal(walk->epochs[tenant], wanted);
    } else {
        assert_int_equal(status, YB_AGAIN);
        assert_true(walk->epochs[tenant] < wanted);
        assert_true(yb_index_sweep_wanted(walk->index, walk->now_ms));
    }
    for (uint32_t i = 0; walk->epochs[tenant] != epoch && i < KEYS; i++) {
        walk->blocks[tenant][i].count = 0;
    }
}

static uint32_t
model_slots(const struct model_block *block)
{
    uint32_t slots = 0;
    uint32_t seen = 0;

    for (uint32_t i = 0; i < block->count; i++) {
        slots += (seen >> block->replicas[i].slot & 1) == 0;
        seen |= 1u << block->replicas[i].slot;
    }
    return slots;
}

static void
step_sweep(struct walk *walk, uint32_t records)
{
    struct yb_index_repair repairs[8];
    struct yb_index_swept swept;

    yb_index_sweep(walk->index, walk->now_ms, records, repairs, 8, &swept);
    assert_true(swept.visited <= records);
    assert_int_equal(swept.done, !yb_index_sweep_wanted(walk->index, walk->now_ms));
    for (uint32_t i = 0; i < swept.repairs; i++) {
        const struct model_block *block;
        uint64_t key;

        memcpy(&key, repairs[i].hash.bytes + 8, sizeof(key));
        block = &walk->blocks[repairs[i].tenant][key];
        assert_int_equal(repairs[i].grant, block->grant);
        assert_int_equal(repairs[i].slots, model_slots(block));
        assert_int_equal(repairs[i].wanted, yb_index_wanted(block->flags));
        assert_true(repairs[i].slots < repairs[i].wanted);
    }
}

static void
sweep_to_the_end(struct walk *walk)
{
    while (yb_index_sweep_wanted(walk->index, walk->now_ms)) {
        step_sweep(walk, 100);
    }
}

static void
step(struct walk *walk)
{
    uint64_t dice = below(walk, 100);

    if (dice < 60) {
        step_apply(walk);
    } else if (dice < 65) {
        step_slot(walk);
    } else if (dice < 72) {
        step_inventory(walk);
    } else if (dice < 73) {
        step_flush(walk);
    } else if (dice < 92) {
        step_sweep(walk, (uint32_t)below(walk, 60) + 1);
    } else if (dice < 99) {
        walk->now_ms += below(walk, 2000);
    } else {
        walk->now_ms += below(walk, 40 * (uint64_t)HOUR_MS);
        sweep_to_the_end(walk); /* As whoever asks now and then would. */
    }
}

static void
test_index__a_random_walk_agrees_with_an_array(void **state)
{
    static struct walk walk;
    struct yb_index_options options = {
        .records_max = 100000,
        .slots_max = SLOTS,
        .tenants_max = TENANTS,
    };
    uint32_t steps = unit_long() ? 20 * STEPS : STEPS;

    (void)state;
    walk.seed = unit_seed("index_walk");
    walk.grant = yb_grant_epoch_start(1);
    walk.now_ms = below(&walk, UINT64_C(1) << 40);
    options.seed = unit_random(&walk.seed);
    assert_int_equal(yb_index_create(&options, &walk.index), YB_OK);
    for (uint32_t i = 0; i < steps; i++) {
        step(&walk);
        if (i % 50 == 0) {
            compare_lookups(&walk);
        }
        if (i % 1000 == 0) {
            compare_scan(&walk);
            sweep_to_the_end(&walk);
            compare_counts(&walk);
            compare_lookups(&walk);
        }
    }
    yb_index_destroy(&walk.index);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index__a_random_walk_agrees_with_an_array),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
