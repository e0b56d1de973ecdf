/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/index_internal.h"

#define AHEAD 8u
#define RING  32u /* More than 3 * AHEAD; a power of 2. */

/* Describe what is visible of a record. */
static void
answer_from(const struct yb_index *index, const struct yb_index_record *record, uint64_t now_ms,
            struct yb_index_answer *answer_out)
{
    struct yb_index_replica suspect[YB_INDEX_REPLICAS_MAX];
    struct yb_index_list list;
    uint32_t suspects = 0;
    uint32_t live = 0;

    answer_out->grant = 0;
    answer_out->presence = YB_INDEX_ABSENT;
    answer_out->count = 0;
    answer_out->live = 0;
    answer_out->held = 0;
    answer_out->size_code = 0;
    answer_out->flags = 0;
    if (record == NULL || !yb_index_record_current(index, record)) { /* I6 */
        return;
    }
    yb_index_record_read(index, record, &list);
    for (uint32_t i = 0; i < list.count; i++) {
        struct yb_index_replica replica = {.slot = list.slot[i], .tier = list.where[i] >> 4};

        if (yb_index_replica_gone(index, list.slot[i], list.where[i])) {
            continue;
        }
        if (index->slots[list.slot[i]].state == YB_INDEX_SLOT_SUSPECT) {
            suspect[suspects++] = replica;
        } else {
            answer_out->replicas[live++] = replica;
        }
    }
    if (live + suspects == 0) {
        return;
    }
    for (uint32_t i = 0; i < suspects; i++) {
        answer_out->replicas[live + i] = suspect[i];
    }
    answer_out->grant = record->grant;
    answer_out->presence = live > 0 ? YB_INDEX_PRESENT : YB_INDEX_SUSPECT_ONLY;
    answer_out->count = (uint8_t)(live + suspects);
    answer_out->live = (uint8_t)live;
    answer_out->held = yb_index_record_held(record, now_ms);
    answer_out->size_code = record->size_code;
    answer_out->flags = record->flags;
}

/* Answer one question, whose memory has been asked for. */
static void
answer(struct yb_index *index, const struct yb_index_query *query, uint64_t table_hash,
       struct yb_id hash, struct yb_index_answer *answer_out)
{
    uint32_t number = yb_index_table_find(index, table_hash, hash, (uint16_t)query->tenant);
    struct yb_index_record *record = number == YB_INDEX_NONE ? NULL : &index->records[number];

    answer_from(index, record, query->now_ms, answer_out);
    if (query->hold_ms > 0 && answer_out->presence != YB_INDEX_ABSENT) {
        yb_index_record_hold(index, record, query->now_ms, query->hold_ms);
        answer_out->held = 1;
    }
}

void
yb_index_lookup(struct yb_index *index, const struct yb_index_query *query,
                const struct yb_id *hashes, uint32_t count, struct yb_index_answer *answers_out)
{
    struct yb_index_query asked = *query;
    uint64_t table_hash[RING];

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    if (asked.hold_ms > YB_INDEX_HOLD_MS_MAX) {
        asked.hold_ms = YB_INDEX_HOLD_MS_MAX;
    }
    if (asked.tenant >= index->tenants_max) {
        for (uint32_t i = 0; i < count; i++) {
            answer_from(index, NULL, asked.now_ms, &answers_out[i]);
        }
        return;
    }
    /* Each question takes four steps; each step asks for the memory that the next one reads.
     * Between two steps of one question come the steps of AHEAD others. */
    for (uint64_t i = 0; i < (uint64_t)count + 3 * AHEAD; i++) {
        if (i < count) {
            table_hash[i % RING] = yb_index_table_hash(index, hashes[i]);
            yb_index_table_prefetch(index, table_hash[i % RING]);
        }
        if (i >= AHEAD && i - AHEAD < count) {
            yb_index_table_prefetch_records(index, table_hash[(i - AHEAD) % RING]);
        }
        if (i >= 2 * AHEAD && i - 2 * AHEAD < count) {
            yb_index_table_prefetch_further(index, table_hash[(i - 2 * AHEAD) % RING]);
        }
        if (i >= 3 * AHEAD) {
            uint64_t now = i - 3 * AHEAD;

            answer(index, &asked, table_hash[now % RING], hashes[now], &answers_out[now]);
        }
    }
}

static bool
names_slot(const struct yb_index_answer *answer, uint16_t slot)
{
    for (uint32_t i = 0; i < answer->count; i++) {
        if (answer->replicas[i].slot == slot) {
            return true;
        }
    }
    return slot == YB_INDEX_SLOT_NONE;
}

/* lint: size, what to read, how far and where to are seven parameters. */
uint32_t
yb_index_scan(const struct yb_index *index, uint64_t now_ms, uint16_t slot, uint32_t records,
              uint32_t *cursor, struct yb_index_entry *entries_out, uint32_t room)
{
    uint32_t number = *cursor;
    uint32_t count = 0;

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    YB_ASSERT(records > 0 && room > 0);
    for (; number < index->record_top && records > 0 && count < room; number++, records--) {
        const struct yb_index_record *record = &index->records[number];
        struct yb_index_entry *entry = &entries_out[count];

        if (record->slot[0] == YB_INDEX_SLOT_NONE) {
            continue;
        }
        answer_from(index, record, now_ms, &entry->answer);
        if (entry->answer.presence == YB_INDEX_ABSENT || !names_slot(&entry->answer, slot)) {
            continue;
        }
        entry->hash = record->hash;
        entry->parent = index->keeps_parents ? index->parents[number] : 0;
        entry->tenant = record->tenant;
        entry->flush_epoch = index->tenants[record->tenant].epoch;
        count++;
    }
    *cursor = number >= index->record_top ? YB_INDEX_SCAN_END : number;
    return count;
}

uint32_t
yb_index_hold_left(const struct yb_index *index, uint32_t tenant, struct yb_id hash,
                   uint64_t now_ms)
{
    const struct yb_index_record *record;
    uint32_t number;

    if (tenant >= index->tenants_max) {
        return 0;
    }
    number = yb_index_table_find(index, yb_index_table_hash(index, hash), hash, (uint16_t)tenant);
    if (number == YB_INDEX_NONE) {
        return 0;
    }
    record = &index->records[number];
    return yb_index_record_current(index, record) && yb_index_record_held(record, now_ms)
               ? record->hold_until - (uint32_t)now_ms
               : 0;
}
