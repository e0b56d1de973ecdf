/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/index_internal.h"

#include <string.h>

#include "directory/grant.h"

/* The block that an operation is about. */
struct target {
    uint64_t table_hash;
    uint32_t number;                /* NONE: there is none. */
    struct yb_index_record *record; /* NULL likewise. */
    struct yb_index_list list;      /* Its replicas, none of them gone. */
};

/* ---- what may be asked -------------------------------------------------------------------- */

static bool
makes_block(uint8_t kind)
{
    return kind == YB_INDEX_CREATE || kind == YB_INDEX_REPLACE || kind == YB_INDEX_INVENTORY;
}

static bool
adds_replica(uint8_t kind)
{
    return makes_block(kind) || kind == YB_INDEX_ADD;
}

/* Return how many replicas an operation of this kind may name; all but 0: at least one. */
static uint32_t
replicas_max(uint8_t kind)
{
    switch (kind) {
    case YB_INDEX_CREATE:
    case YB_INDEX_REPLACE: return YB_INDEX_REPLICAS_MAX;
    case YB_INDEX_ADD:
    case YB_INDEX_WITHDRAW:
    case YB_INDEX_INVENTORY: return 1;
    default: return 0;
    }
}

static bool
replicas_valid(const struct yb_index *index, const struct yb_index_op *op)
{
    uint32_t most = replicas_max(op->kind);

    if (op->replica_count > most || (most > 0 && op->replica_count == 0)) {
        return false;
    }
    for (uint32_t i = 0; i < op->replica_count; i++) {
        const struct yb_index_replica *one = &op->replicas[i];

        if (one->slot == YB_INDEX_SLOT_NONE || one->slot > index->slots_max ||
            one->tier >= YB_INDEX_TIERS) {
            return false;
        }
        for (uint32_t j = 0; j < i; j++) {
            if (op->replicas[j].slot == one->slot && op->replicas[j].tier == one->tier) {
                return false;
            }
        }
    }
    return true;
}

/* Return OK if the operation can be applied to whatever is there. */
static enum yb_status
judge(const struct yb_index *index, const struct yb_index_op *op)
{
    if (op->kind > YB_INDEX_HOLD || op->tenant >= index->tenants_max ||
        (op->flags & ~YB_INDEX_FLAGS_ALL) != 0 || op->hold_ms > YB_INDEX_HOLD_MS_MAX ||
        !replicas_valid(index, op)) {
        return YB_INVALID;
    }
    if (op->grant == YB_GRANT_NONE && replicas_max(op->kind) > 0) {
        return YB_INVALID;
    }
    for (uint32_t i = 0; adds_replica(op->kind) && i < op->replica_count; i++) {
        uint8_t state = index->slots[op->replicas[i].slot].state;

        if (state == YB_INDEX_SLOT_FREE || state == YB_INDEX_SLOT_DEAD) {
            return YB_FENCED;
        }
    }
    if (makes_block(op->kind)) {
        uint64_t epoch = index->tenants[op->tenant].epoch;

        if (op->flush_epoch != epoch) {
            return op->flush_epoch < epoch ? YB_STALE : YB_INVALID;
        }
    }
    return YB_OK;
}

/* ---- pieces ------------------------------------------------------------------------------- */

/* Return what is stored with a replica that is named now. */
static uint8_t
where_now(const struct yb_index *index, const struct yb_index_replica *replica)
{
    return (uint8_t)(replica->tier << 4 | index->slots[replica->slot].mark);
}

static void
list_of(const struct yb_index *index, const struct yb_index_op *op, struct yb_index_list *list_out)
{
    list_out->count = op->replica_count;
    for (uint32_t i = 0; i < op->replica_count; i++) {
        list_out->slot[i] = op->replicas[i].slot;
        list_out->where[i] = where_now(index, &op->replicas[i]);
    }
}

static void
describe(struct yb_index *index, uint32_t number, const struct yb_index_op *op)
{
    struct yb_index_record *record = &index->records[number];
    uint16_t flags = op->flags;

    if (op->kind != YB_INDEX_INVENTORY) {
        flags = (uint16_t)(flags & ~YB_INDEX_VERSIONED);
        flags |= op->kind == YB_INDEX_REPLACE ? (uint16_t)YB_INDEX_VERSIONED : 0;
    }
    record->grant = op->grant;
    record->size_code = yb_index_size_encode(op->size);
    record->flush_epoch = (uint16_t)op->flush_epoch;
    record->flags = flags;
    if (index->keeps_parents) {
        index->parents[number] = op->parent;
    }
}

static void
count_list(struct yb_index *index, const struct target *target)
{
    for (uint32_t i = 0; i < target->list.count; i++) {
        yb_index_record_count(index, target->list.slot[i], target->record->size_code);
    }
}

/* Count the target's replicas no longer, and tell that they must drop its grant. */
static void
drop_list(struct yb_index *index, const struct target *target, struct yb_index_result *result)
{
    for (uint32_t i = 0; i < target->list.count; i++) {
        yb_index_record_discount(index, target->list.slot[i], target->record->size_code);
        result->dropped[i] = (struct yb_index_replica){
            .slot = target->list.slot[i],
            .tier = target->list.where[i] >> 4,
        };
    }
    result->dropped_count = (uint8_t)target->list.count;
    result->dropped_grant = target->record->grant;
}

/* Free the target, whose replicas are not counted any more. */
static void
forget(struct yb_index *index, struct target *target)
{
    target->list.count = 0;
    YB_ASSERT(yb_index_record_write(index, target->record, &target->list) == YB_OK);
    yb_index_record_free(index, target->table_hash, target->number);
    target->number = YB_INDEX_NONE;
    target->record = NULL;
}

static enum yb_status
make(struct yb_index *index, const struct yb_index_op *op, struct target *target)
{
    struct yb_index_list none = {0};
    struct yb_index_record *record;
    enum yb_status status;
    uint32_t number;

    status = yb_index_record_take(index, &number);
    if (status != YB_OK) {
        return status;
    }
    record = &index->records[number];
    list_of(index, op, &target->list);
    status = yb_index_record_write(index, record, &target->list);
    if (status != YB_OK) {
        goto err_give_record;
    }
    record->hash = op->hash;
    record->tenant = op->tenant;
    record->hold_until = 0;
    describe(index, number, op);
    status = yb_index_table_insert(index, target->table_hash, number);
    if (status != YB_OK) {
        goto err_give_replicas;
    }
    target->number = number;
    target->record = record;
    index->tenants[op->tenant].records++;
    count_list(index, target);
    return YB_OK;

err_give_replicas:
    YB_ASSERT(yb_index_record_write(index, record, &none) == YB_OK);
err_give_record:
    yb_index_record_give(index, number);
    return status;
}

/* Put the operation's block in the place of the target's. A hold stays: it is the key's. */
static enum yb_status
supersede(struct yb_index *index, const struct yb_index_op *op, struct target *target,
          struct yb_index_result *result)
{
    struct yb_index_list list;
    enum yb_status status;

    if (op->grant <= target->record->grant) { /* I2 */
        return YB_STALE;
    }
    list_of(index, op, &list);
    status = yb_index_record_write(index, target->record, &list);
    if (status != YB_OK) {
        return status;
    }
    drop_list(index, target, result);
    describe(index, target->number, op);
    target->list = list;
    count_list(index, target);
    return YB_OK;
}

/* Return the place of a replica in the target's list; its count: it has none. */
static uint32_t
place_of(const struct target *target, const struct yb_index_replica *replica)
{
    uint32_t place = 0;

    while (place < target->list.count && (target->list.slot[place] != replica->slot ||
                                          target->list.where[place] >> 4 != replica->tier)) {
        place++;
    }
    return place;
}

/* One more replica of the target's grant, or one that is named again. */
static enum yb_status
join(struct yb_index *index, const struct yb_index_op *op, struct target *target)
{
    const struct yb_index_replica *replica = &op->replicas[0];
    struct yb_index_list list = target->list;
    uint32_t place = place_of(target, replica);
    enum yb_status status;

    if (place == YB_INDEX_REPLICAS_MAX) {
        return YB_TOO_LARGE;
    }
    list.slot[place] = replica->slot;
    list.where[place] = where_now(index, replica);
    list.count = place < list.count ? list.count : place + 1;
    status = yb_index_record_write(index, target->record, &list);
    if (status != YB_OK) {
        return status;
    }
    if (place == target->list.count) {
        yb_index_record_count(index, replica->slot, target->record->size_code);
    }
    target->list = list;
    return YB_OK;
}

static bool
is_live(const struct yb_index *index, const struct target *target)
{
    for (uint32_t i = 0; i < target->list.count; i++) {
        if (index->slots[target->list.slot[i]].state != YB_INDEX_SLOT_SUSPECT) {
            return true;
        }
    }
    return false;
}

/* ---- the operations ----------------------------------------------------------------------- */

static enum yb_status
create(struct yb_index *index, const struct yb_index_op *op, struct target *target,
       struct yb_index_result *result)
{
    if (target->record == NULL) {
        return make(index, op, target);
    }
    if (is_live(index, target)) { /* I4 */
        return YB_EXISTS;
    }
    return supersede(index, op, target, result);
}

static enum yb_status
replace(struct yb_index *index, const struct yb_index_op *op, struct target *target,
        struct yb_index_result *result)
{
    return target->record == NULL ? make(index, op, target) : supersede(index, op, target, result);
}

static enum yb_status
add(struct yb_index *index, const struct yb_index_op *op, struct target *target)
{
    if (target->record == NULL || target->record->grant != op->grant) { /* I2, I3 */
        return YB_REFUSED;
    }
    return join(index, op, target);
}

static enum yb_status
withdraw(struct yb_index *index, const struct yb_index_op *op, struct target *target)
{
    uint32_t place;

    if (target->record == NULL || target->record->grant != op->grant) { /* I2 */
        return YB_NOT_FOUND;
    }
    place = place_of(target, &op->replicas[0]);
    if (place == target->list.count) {
        return YB_NOT_FOUND;
    }
    yb_index_record_discount(index, target->list.slot[place], target->record->size_code);
    target->list.count--;
    for (uint32_t i = place; i < target->list.count; i++) {
        target->list.slot[i] = target->list.slot[i + 1];
        target->list.where[i] = target->list.where[i + 1];
    }
    if (target->list.count == 0) {
        forget(index, target);
    } else {
        YB_ASSERT(yb_index_record_write(index, target->record, &target->list) == YB_OK);
    }
    return YB_OK;
}

static enum yb_status
inventory(struct yb_index *index, const struct yb_index_op *op, struct target *target,
          struct yb_index_result *result)
{
    if (target->record == NULL) {
        return make(index, op, target);
    }
    if (op->grant == target->record->grant) {
        return join(index, op, target);
    }
    return op->grant < target->record->grant ? YB_LOST : supersede(index, op, target, result);
}

/* Whether the operation names the target's grant, or none in particular. */
static bool
is_meant(const struct yb_index_op *op, const struct target *target)
{
    return target->record != NULL &&
           (op->grant == YB_GRANT_NONE || op->grant == target->record->grant);
}

static enum yb_status
remove_block(struct yb_index *index, const struct yb_index_op *op, uint64_t now_ms,
             struct target *target, struct yb_index_result *result)
{
    if (!is_meant(op, target)) {
        return YB_NOT_FOUND;
    }
    if (op->force == 0 && yb_index_record_held(target->record, now_ms)) {
        return YB_HELD;
    }
    drop_list(index, target, result);
    forget(index, target);
    return YB_OK;
}

static enum yb_status
hold(struct yb_index *index, const struct yb_index_op *op, uint64_t now_ms, struct target *target)
{
    if (!is_meant(op, target)) {
        return YB_NOT_FOUND;
    }
    yb_index_record_hold(index, target->record, now_ms, op->hold_ms);
    return YB_OK;
}

/* ---- batches ------------------------------------------------------------------------------ */

/* Find the block, if it is visible; free the record if it is not. */
static void
aim(struct yb_index *index, const struct yb_index_op *op, uint64_t table_hash,
    struct target *target_out)
{
    target_out->table_hash = table_hash;
    target_out->record = NULL;
    target_out->list.count = 0;
    target_out->number = yb_index_table_find(index, table_hash, op->hash, op->tenant);
    if (target_out->number == YB_INDEX_NONE) {
        return;
    }
    target_out->record = &index->records[target_out->number];
    yb_index_record_prune(index, target_out->record, &target_out->list);
    if (target_out->list.count == 0) {
        forget(index, target_out);
    }
}

static void
apply_one(struct yb_index *index, const struct yb_index_op *op, uint64_t table_hash,
          uint64_t now_ms, struct yb_index_result *result)
{
    struct target target;

    memset(result, 0, sizeof(*result));
    result->status = judge(index, op);
    if (result->status == YB_INVALID) {
        return;
    }
    aim(index, op, table_hash, &target);
    if (result->status == YB_OK) {
        switch ((enum yb_index_op_kind)op->kind) {
        case YB_INDEX_CREATE: result->status = create(index, op, &target, result); break;
        case YB_INDEX_REPLACE: result->status = replace(index, op, &target, result); break;
        case YB_INDEX_ADD: result->status = add(index, op, &target); break;
        case YB_INDEX_WITHDRAW: result->status = withdraw(index, op, &target); break;
        case YB_INDEX_INVENTORY: result->status = inventory(index, op, &target, result); break;
        case YB_INDEX_REMOVE:
            result->status = remove_block(index, op, now_ms, &target, result);
            break;
        case YB_INDEX_HOLD: result->status = hold(index, op, now_ms, &target); break;
        }
    }
    if (target.record != NULL) {
        result->grant = target.record->grant;
        result->replicas = (uint8_t)target.list.count;
        result->slots = (uint8_t)yb_index_list_slots(&target.list);
    }
}

void
yb_index_apply(struct yb_index *index, const struct yb_index_op *ops, uint32_t count,
               uint64_t now_ms, struct yb_index_result *results_out)
{
    uint64_t table_hash[YB_INDEX_GROUP_KEYS];

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    while (count > 0) {
        uint32_t group = count < YB_INDEX_GROUP_KEYS ? count : YB_INDEX_GROUP_KEYS;

        for (uint32_t i = 0; i < group; i++) {
            table_hash[i] = yb_index_table_hash(index, ops[i].hash);
            yb_index_table_prefetch(index, table_hash[i]);
        }
        for (uint32_t i = 0; i < group; i++) {
            yb_index_table_prefetch_records(index, table_hash[i]);
        }
        for (uint32_t i = 0; i < group; i++) {
            apply_one(index, &ops[i], table_hash[i], now_ms, &results_out[i]);
        }
        ops += group;
        results_out += group;
        count -= group;
    }
}
