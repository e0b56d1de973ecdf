/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep visits every record once, in their order. What is asked for while one is under way may
 * concern records that it has passed: it is done when the next sweep has ended. So each slot and
 * each tenant knows what the present sweep will have done for it.
 */
#include "directory/index_internal.h"

bool
yb_index_sweep_wanted(const struct yb_index *index, uint64_t now_ms)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    return index->sweeping || index->sweep_wanted ||
           (index->holds && now_ms - index->holds_swept_ms >= YB_INDEX_HOLD_MS_MAX);
}

void
yb_index_sweep_request(struct yb_index *index)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    index->sweep_wanted = true;
}

static void
begin_sweep(struct yb_index *index, uint64_t now_ms)
{
    index->sweeping = true;
    index->sweep_wanted = false;
    index->sweep_next = 0;
    index->sweep_end = index->record_top;
    index->holds_after = false;
    index->holds_begun_ms = now_ms;
    for (uint32_t i = 1; i <= index->slots_max; i++) {
        struct yb_index_slot *slot = &index->slots[i];

        slot->dead_in_sweep = slot->state == YB_INDEX_SLOT_DEAD;
        slot->purge_in_sweep = slot->purging;
        slot->age_max_after = slot->age_max < YB_INDEX_AGE_KEPT ? slot->age_max : YB_INDEX_AGE_KEPT;
    }
    for (uint32_t i = 0; i < index->tenants_max; i++) {
        index->tenants[i].behind_after = 0;
    }
}

static void
end_sweep(struct yb_index *index)
{
    index->sweeping = false;
    index->sweeps++;
    index->holds = index->holds_after;
    index->holds_swept_ms = index->holds_begun_ms;
    for (uint32_t i = 1; i <= index->slots_max; i++) {
        struct yb_index_slot *slot = &index->slots[i];

        if (slot->dead_in_sweep) {
            YB_ASSERT(slot->replicas == 0); /* I5 */
            *slot = (struct yb_index_slot){.state = YB_INDEX_SLOT_FREE};
        }
        if (slot->purge_in_sweep) {
            slot->purging = false;
        }
        slot->age_max = slot->age_max_after;
    }
    for (uint32_t i = 0; i < index->tenants_max; i++) {
        index->tenants[i].behind = index->tenants[i].behind_after;
    }
}

static inline uint32_t
age_of(const struct yb_index *index, uint16_t slot, uint8_t where)
{
    return (uint32_t)(index->slots[slot].mark - where) & (YB_INDEX_MARKS - 1);
}

/* Whether a visit would change and report nothing: what most records are like. */
static inline bool
is_fine(const struct yb_index *index, const struct yb_index_record *record)
{
    if (!yb_index_record_current(index, record) || record->hold_until != 0 ||
        record->link[0] != 0 || record->link[1] != 0 || record->link[2] != 0 ||
        yb_index_wanted(record->flags) > 1) {
        return false;
    }
    for (uint32_t i = 0; i < YB_INDEX_INLINE_REPLICAS && record->slot[i] != 0; i++) {
        if (yb_index_replica_gone(index, record->slot[i], record->where[i]) ||
            age_of(index, record->slot[i], record->where[i]) > YB_INDEX_AGE_KEPT) {
            return false;
        }
    }
    return true;
}

/* Make replicas that are older than AGE_KEPT that old: see index_internal.h. */
static void
keep_ages_small(struct yb_index *index, struct yb_index_record *record, struct yb_index_list *list)
{
    bool changed = false;

    for (uint32_t i = 0; i < list->count; i++) {
        if (age_of(index, list->slot[i], list->where[i]) > YB_INDEX_AGE_KEPT) {
            uint8_t mark = index->slots[list->slot[i]].mark;

            mark = (uint8_t)((mark - YB_INDEX_AGE_KEPT) & (YB_INDEX_MARKS - 1));
            list->where[i] = (uint8_t)((list->where[i] & 0xf0) | mark);
            changed = true;
        }
    }
    if (changed) {
        YB_ASSERT(yb_index_record_write(index, record, list) == YB_OK);
    }
}

/* Visit a record. Returns whether *repair_out was set. */
static bool
visit(struct yb_index *index, uint32_t number, uint64_t now_ms, struct yb_index_swept *swept,
      struct yb_index_repair *repair_out)
{
    struct yb_index_record *record = &index->records[number];
    struct yb_index_list list;
    uint32_t slots;

    if (record->slot[0] == YB_INDEX_SLOT_NONE || is_fine(index, record)) {
        return false;
    }
    swept->replicas_removed += yb_index_record_prune(index, record, &list);
    if (list.count == 0) {
        yb_index_record_free(index, yb_index_table_hash(index, record->hash), number);
        swept->records_freed++;
        return false;
    }
    keep_ages_small(index, record, &list);
    if (record->hold_until != 0 && !yb_index_record_held(record, now_ms)) {
        record->hold_until = 0;
    }
    index->holds_after = index->holds_after || record->hold_until != 0;
    slots = yb_index_list_slots(&list);
    if (slots >= yb_index_wanted(record->flags) || repair_out == NULL) {
        return false;
    }
    *repair_out = (struct yb_index_repair){
        .hash = record->hash,
        .grant = record->grant,
        .tenant = record->tenant,
        .slots = (uint8_t)slots,
        .wanted = (uint8_t)yb_index_wanted(record->flags),
    };
    return true;
}

/* Load the buckets of records that seem to go. */
static void
prefetch_going(const struct yb_index *index, uint32_t from, uint32_t to)
{
    for (uint32_t i = from; i < to; i++) {
        const struct yb_index_record *record = &index->records[i];

        if (record->slot[0] != YB_INDEX_SLOT_NONE &&
            (!yb_index_record_current(index, record) ||
             yb_index_replica_gone(index, record->slot[0], record->where[0]))) {
            yb_index_table_prefetch(index, yb_index_table_hash(index, record->hash));
        }
    }
}

void
yb_index_sweep(struct yb_index *index, uint64_t now_ms, uint32_t records,
               struct yb_index_repair *repairs_out, uint32_t room, struct yb_index_swept *swept_out)
{
    struct yb_index_swept swept = {0};
    uint32_t loaded;

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    YB_ASSERT(records > 0);
    YB_ASSERT(repairs_out != NULL || room == 0);
    if (!index->sweeping && yb_index_sweep_wanted(index, now_ms)) {
        begin_sweep(index, now_ms);
    }
    loaded = index->sweep_next;
    while (index->sweeping && index->sweep_next < index->sweep_end && swept.visited < records &&
           (room == 0 || swept.repairs < room)) {
        if (index->sweep_next == loaded) {
            uint32_t rest = index->sweep_end - loaded;

            loaded += rest < YB_INDEX_GROUP_KEYS ? rest : YB_INDEX_GROUP_KEYS;
            prefetch_going(index, index->sweep_next, loaded);
        }
        swept.repairs += visit(index, index->sweep_next, now_ms, &swept,
                               room == 0 ? NULL : &repairs_out[swept.repairs]);
        index->sweep_next++;
        swept.visited++;
    }
    if (index->sweeping && index->sweep_next == index->sweep_end) {
        end_sweep(index);
    }
    swept.done = !yb_index_sweep_wanted(index, now_ms);
    *swept_out = swept;
}
