/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/index_internal.h"

#include <string.h>

enum yb_status
yb_index_record_take(struct yb_index *index, uint32_t *number_out)
{
    uint32_t number = index->record_free;

    if (index->record_used == index->records_max) {
        return YB_NO_SPACE;
    }
    if (number != YB_INDEX_NONE) {
        YB_ASSERT(index->records[number].slot[0] == YB_INDEX_SLOT_NONE);
        index->record_free = (uint32_t)index->records[number].grant;
    } else {
        number = index->record_top;
        if (yb_stretch_reach(&index->record_memory,
                             ((size_t)number + 1) * sizeof(struct yb_index_record)) != YB_OK ||
            (index->keeps_parents &&
             yb_stretch_reach(&index->parent_memory,
                              ((size_t)number + 1) * sizeof(*index->parents)) != YB_OK)) {
            return YB_NO_MEMORY;
        }
        index->record_top++;
    }
    index->record_used++;
    *number_out = number;
    return YB_OK;
}

void
yb_index_record_give(struct yb_index *index, uint32_t number)
{
    struct yb_index_record *record = &index->records[number];

    YB_ASSERT(index->record_used > 0);
    YB_ASSERT(record->slot[0] == YB_INDEX_SLOT_NONE);
    memset(record, 0, sizeof(*record));
    record->grant = index->record_free;
    index->record_free = number;
    index->record_used--;
}

static inline uint32_t
link_of(const struct yb_index_record *record)
{
    return (uint32_t)record->link[0] | (uint32_t)record->link[1] << 8 |
           (uint32_t)record->link[2] << 16;
}

static void
set_link(struct yb_index_record *record, uint32_t link)
{
    record->link[0] = (uint8_t)(link & 0xff);
    record->link[1] = (uint8_t)(link >> 8 & 0xff);
    record->link[2] = (uint8_t)(link >> 16 & 0xff);
}

void
yb_index_record_read(const struct yb_index *index, const struct yb_index_record *record,
                     struct yb_index_list *list_out)
{
    uint32_t count = 0;
    uint32_t link = link_of(record);

    for (uint32_t i = 0; i < YB_INDEX_INLINE_REPLICAS && record->slot[i] != 0; i++) {
        list_out->slot[count] = record->slot[i];
        list_out->where[count++] = record->where[i];
    }
    if (link != 0) {
        const struct yb_index_overflow *overflow = &index->overflows[link - 1];

        for (uint32_t i = 0; count < YB_INDEX_REPLICAS_MAX && overflow->slot[i] != 0; i++) {
            list_out->slot[count] = overflow->slot[i];
            list_out->where[count++] = overflow->where[i];
        }
    }
    list_out->count = count;
}

static enum yb_status
take_overflow(struct yb_index *index, uint32_t *link_out)
{
    struct yb_index_overflow *overflow;
    uint32_t link = index->overflow_free;

    if (link != 0) {
        overflow = &index->overflows[link - 1];
        index->overflow_free = (uint32_t)overflow->slot[0] | (uint32_t)overflow->slot[1] << 16;
    } else {
        size_t bytes = ((size_t)index->overflow_top + 1) * sizeof(*overflow);

        if (index->overflow_top == index->overflow_max) {
            return YB_NO_SPACE;
        }
        if (yb_stretch_reach(&index->overflow_memory, bytes) != YB_OK) {
            return YB_NO_MEMORY;
        }
        link = ++index->overflow_top;
    }
    index->overflow_used++;
    *link_out = link;
    return YB_OK;
}

static void
give_overflow(struct yb_index *index, uint32_t link)
{
    struct yb_index_overflow *overflow = &index->overflows[link - 1];

    overflow->slot[0] = (uint16_t)(index->overflow_free & 0xffff);
    overflow->slot[1] = (uint16_t)(index->overflow_free >> 16);
    index->overflow_free = link;
    index->overflow_used--;
}

enum yb_status
yb_index_record_write(struct yb_index *index, struct yb_index_record *record,
                      const struct yb_index_list *list)
{
    uint32_t link = link_of(record);

    YB_ASSERT(list->count <= YB_INDEX_REPLICAS_MAX);
    if (list->count > YB_INDEX_INLINE_REPLICAS && link == 0) {
        enum yb_status status = take_overflow(index, &link);

        if (status != YB_OK) {
            return status;
        }
    } else if (list->count <= YB_INDEX_INLINE_REPLICAS && link != 0) {
        give_overflow(index, link);
        link = 0;
    }
    set_link(record, link);
    for (uint32_t i = 0; i < YB_INDEX_INLINE_REPLICAS; i++) {
        record->slot[i] = i < list->count ? list->slot[i] : YB_INDEX_SLOT_NONE;
        record->where[i] = i < list->count ? list->where[i] : 0;
    }
    if (link != 0) {
        struct yb_index_overflow *overflow = &index->overflows[link - 1];

        memset(overflow, 0, sizeof(*overflow));
        for (uint32_t i = YB_INDEX_INLINE_REPLICAS; i < list->count; i++) {
            overflow->slot[i - YB_INDEX_INLINE_REPLICAS] = list->slot[i];
            overflow->where[i - YB_INDEX_INLINE_REPLICAS] = list->where[i];
        }
    }
    return YB_OK;
}

void
yb_index_record_count(struct yb_index *index, uint16_t slot, uint16_t size_code)
{
    uint64_t bytes = yb_index_size_decode(size_code);

    YB_ASSERT(slot != YB_INDEX_SLOT_NONE && slot <= index->slots_max);
    index->slots[slot].replicas++;
    index->slots[slot].bytes += bytes;
    index->replica_count++;
    index->replica_bytes += bytes;
}

void
yb_index_record_discount(struct yb_index *index, uint16_t slot, uint16_t size_code)
{
    uint64_t bytes = yb_index_size_decode(size_code);

    YB_ASSERT(index->slots[slot].replicas > 0);
    YB_ASSERT(index->slots[slot].bytes >= bytes);
    index->slots[slot].replicas--;
    index->slots[slot].bytes -= bytes;
    index->replica_count--;
    index->replica_bytes -= bytes;
}

void
yb_index_record_hold(struct yb_index *index, struct yb_index_record *record, uint64_t now_ms,
                     uint32_t hold_ms)
{
    uint32_t until = (uint32_t)(now_ms + hold_ms);

    YB_ASSERT(hold_ms <= YB_INDEX_HOLD_MS_MAX);
    until = until == 0 ? 1 : until; /* 0 says that there is none. */
    if (yb_index_record_held(record, now_ms) && (int32_t)(record->hold_until - until) >= 0) {
        return;
    }
    if (!index->holds) {
        index->holds_swept_ms = now_ms;
    }
    record->hold_until = until;
    index->holds = true;
    index->holds_after = true;
}

uint32_t
yb_index_record_prune(struct yb_index *index, struct yb_index_record *record,
                      struct yb_index_list *list_out)
{
    bool current = yb_index_record_current(index, record);
    struct yb_index_list all;
    uint32_t kept = 0;

    yb_index_record_read(index, record, &all);
    YB_ASSERT(all.count > 0);
    for (uint32_t i = 0; i < all.count; i++) {
        if (!current || yb_index_replica_gone(index, all.slot[i], all.where[i])) {
            yb_index_record_discount(index, all.slot[i], record->size_code);
        } else {
            list_out->slot[kept] = all.slot[i];
            list_out->where[kept++] = all.where[i];
        }
    }
    list_out->count = kept;
    if (kept != all.count) {
        YB_ASSERT(yb_index_record_write(index, record, list_out) == YB_OK); /* It got shorter. */
    }
    return all.count - kept;
}

void
yb_index_record_free(struct yb_index *index, uint64_t table_hash, uint32_t number)
{
    struct yb_index_tenant *tenant = &index->tenants[index->records[number].tenant];

    YB_ASSERT(tenant->records > 0);
    tenant->records--;
    yb_index_table_erase(index, table_hash, number);
    yb_index_record_give(index, number);
}

uint32_t
yb_index_list_slots(const struct yb_index_list *list)
{
    uint32_t slots = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        uint32_t j = 0;

        while (list->slot[j] != list->slot[i]) {
            j++;
        }
        slots += j == i;
    }
    return slots;
}
