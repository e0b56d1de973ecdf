/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores: records are copied into batches, one after the other; batches are written, several at a
 * time; a sync makes durable what was written before it began, and only then is a store done.
 *
 *     staged_end >= written_end >= durable_end      positions in the stream of all bytes
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/ssd/ssd_internal.h"

#define DAY_NS (86400 * YB_NS_PER_S)

/* ---- the write budget ------------------------------------------------------------------- */

/* The budget comes back evenly, and a day's worth can be saved up. */
static bool
budget_allows(struct yb_ssd *ssd, uint64_t bytes)
{
    uint64_t now_ns = yb_loop_now(ssd->loop);
    double day = (double)ssd->options.write_budget;

    if (ssd->options.write_budget == 0) {
        return true;
    }
    ssd->budget += day * (double)(now_ns - ssd->budget_ns) / (double)DAY_NS;
    ssd->budget = ssd->budget > day ? day : ssd->budget;
    ssd->budget_ns = now_ns;
    return ssd->budget >= (double)bytes;
}

static void
store_end(struct yb_ssd *ssd, struct yb_tier_store *store, enum yb_status status)
{
    ssd->info.storing_bytes -= store->record.size;
    yb_ssd_end(ssd, &store->op, status);
}

static void
end_waiting(struct yb_ssd *ssd, enum yb_status status)
{
    struct yb_tier_op *op;

    while ((op = yb_ssd_list_take(&ssd->stores)) != NULL) {
        store_end(ssd, (struct yb_tier_store *)op, status);
    }
}

/* ---- batches ---------------------------------------------------------------------------- */

static struct yb_ssd_buffer *
filling_buffer(struct yb_ssd *ssd)
{
    uint32_t i = (ssd->buffer_first + ssd->buffer_count) % ssd->options.write_buffers;

    return &ssd->buffers[i];
}

static void
buffer_written(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd_buffer *done = (struct yb_ssd_buffer *)transfer;
    struct yb_ssd *ssd = transfer->ssd;

    done->written = true;
    if (error != 0) {
        yb_ssd_failed(ssd, "write", error);
        return;
    }
    while (ssd->buffer_count > 0 && ssd->buffers[ssd->buffer_first].written) {
        ssd->written_end = ssd->buffers[ssd->buffer_first].end;
        ssd->buffer_first = (ssd->buffer_first + 1) % ssd->options.write_buffers;
        ssd->buffer_count--;
    }
    if (ssd->aside == YB_OK &&
        ((ssd->want_end > ssd->sync_target && ssd->written_end >= ssd->want_end) ||
         ssd->written_end - ssd->sync_target >= ssd->options.sync_bytes)) {
        if (!ssd->sync.busy) {
            (void)yb_ssd_sync_request(ssd);
        }
    }
}

/* Fill up to whole blocks and write. */
static void
buffer_submit(struct yb_ssd *ssd)
{
    struct yb_ssd_buffer *buffer = filling_buffer(ssd);
    uint64_t rest = buffer->filled % YB_SSD_BLOCK_BYTES;

    YB_ASSERT(ssd->filling && buffer->filled > 0);
    if (rest > 0) {
        rest = YB_SSD_BLOCK_BYTES - rest;
        memset(buffer->bytes + buffer->filled, 0, (size_t)rest);
        buffer->filled += rest;
        ssd->staged_end += rest;
        ssd->segments[ssd->current].data_end += rest;
    }
    buffer->end = ssd->staged_end;
    buffer->written = false;
    buffer->transfer.then = buffer_written;
    ssd->filling = false;
    ssd->buffer_count++;
    yb_ssd_transfer_start(ssd, &buffer->transfer, YB_SSD_IO_WRITE, buffer->offset, buffer->bytes,
                          buffer->filled);
}

void
yb_ssd_write_flush(struct yb_ssd *ssd)
{
    if (ssd->filling && !ssd->staging.busy) {
        buffer_submit(ssd);
    }
    if (ssd->staged_end > ssd->durable_end) {
        ssd->want_end = ssd->staged_end;
        if (ssd->written_end >= ssd->want_end && !ssd->sync.busy) {
            (void)yb_ssd_sync_request(ssd);
        }
    }
}

void
yb_ssd_sync_timer(struct yb_timer *timer)
{
    struct yb_ssd *ssd = (struct yb_ssd *)((uint8_t *)timer - offsetof(struct yb_ssd, sync_timer));

    ssd->sync_armed = false;
    if (ssd->aside == YB_OK) {
        yb_ssd_write_flush(ssd);
        if (ssd->staging.busy) { /* In the middle of a record: soon. */
            ssd->sync_armed = true;
            yb_loop_arm(ssd->loop, &ssd->sync_timer, yb_loop_now(ssd->loop) + YB_NS_PER_MS);
        }
    }
}

static void
arm_sync(struct yb_ssd *ssd)
{
    if (!ssd->sync_armed) {
        ssd->sync_armed = true;
        yb_loop_arm(ssd->loop, &ssd->sync_timer, yb_loop_now(ssd->loop) + ssd->options.sync_ns);
    }
}

/* Return room in the batch that is being filled; 0: all are being written. */
static uint64_t
batch_room(struct yb_ssd *ssd)
{
    struct yb_ssd_buffer *buffer = filling_buffer(ssd);

    if (!ssd->filling) {
        if (ssd->buffer_count == ssd->options.write_buffers) {
            return 0;
        }
        ssd->filling = true;
        buffer->filled = 0;
        buffer->offset = YB_SSD_SEGMENTS_START + (uint64_t)ssd->current * ssd->segment_bytes +
                         ssd->segments[ssd->current].data_end;
        YB_ASSERT(buffer->offset % YB_SSD_BLOCK_BYTES == 0);
    }
    return ssd->options.batch_bytes - buffer->filled;
}

/* ---- one record ------------------------------------------------------------------------- */

static void
make_sums(const struct yb_tier_store *store, uint32_t *sums_out)
{
    uint64_t at = 0;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < store->iov_count; i++) {
        const uint8_t *bytes = store->iov[i].iov_base;
        uint64_t left = store->iov[i].iov_len;

        while (left > 0) {
            uint64_t step = YB_TIER_CHUNK_BYTES - at % YB_TIER_CHUNK_BYTES;

            step = step < left ? step : left;
            sum = yb_crc32c_update(sum, bytes, (size_t)step);
            bytes += step;
            left -= step;
            at += step;
            if (at % YB_TIER_CHUNK_BYTES == 0 || at == store->record.size) {
                sums_out[(at - 1) / YB_TIER_CHUNK_BYTES] = sum;
                sum = 0;
            }
        }
    }
}

/* Copy the value's next bytes, from wherever they are, and zeros behind its end. */
static void
copy_value(struct yb_ssd_staging *staging, uint8_t *to, uint64_t length)
{
    while (length > 0) {
        const struct iovec *iov;
        uint64_t step;

        if (staging->abandoned || staging->iov_index == staging->op->iov_count) {
            memset(to, 0, (size_t)length);
            return;
        }
        iov = &staging->op->iov[staging->iov_index];
        step = iov->iov_len - staging->iov_offset;
        if (step == 0) {
            staging->iov_index++;
            staging->iov_offset = 0;
            continue;
        }
        step = step < length ? step : length;
        memcpy(to, (const uint8_t *)iov->iov_base + staging->iov_offset, (size_t)step);
        staging->iov_offset += step;
        to += step;
        length -= step;
    }
}

/* Copy as much as there is room for. */
static void
copy_some(struct yb_ssd *ssd, uint64_t room)
{
    struct yb_ssd_staging *staging = &ssd->staging;
    struct yb_ssd_buffer *buffer = filling_buffer(ssd);
    uint64_t left = staging->total - staging->done;
    uint64_t step = room < left ? room : left;
    uint8_t *to = buffer->bytes + buffer->filled;
    uint64_t moved = step;

    if (staging->done < staging->head_bytes) {
        uint64_t head = staging->head_bytes - staging->done;

        head = head < step ? head : step;
        memcpy(to, staging->head + staging->done, (size_t)head);
        to += head;
        step -= head;
    }
    copy_value(staging, to, step);
    staging->done += moved;
    buffer->filled += moved;
    ssd->staged_end += moved;
    ssd->segments[ssd->current].data_end += moved;
    if (buffer->filled == ssd->options.batch_bytes) {
        buffer_submit(ssd);
    }
}

/* The record is in its batches as a whole: it has an entry and its head in the footer. */
static void
staged(struct yb_ssd *ssd)
{
    struct yb_ssd_staging *staging = &ssd->staging;
    struct yb_tier_store *op = staging->op;
    struct yb_ssd_stored *stored;
    struct yb_ssd_segment *segment = &ssd->segments[ssd->current];
    uint64_t unit = staging->entry.unit - yb_ssd_segment_unit(ssd, ssd->current);

    staging->busy = false;
    if (op == NULL) {
        return;
    }
    stored = ssd->stored_free;
    YB_ASSERT(stored != NULL);
    YB_ASSERT(yb_ssd_footer_add(ssd->footer, &op->record, segment->life, (uint32_t)unit,
                                ssd->options.footer_bytes));
    YB_ASSERT(yb_ssd_index_add(ssd->index, &staging->entry) != YB_SSD_INDEX_NONE);
    ssd->eras[staging->entry.era].live++;
    yb_ssd_account(ssd, &staging->entry, 1);
    ssd->stored_free = stored->next;
    *stored = (struct yb_ssd_stored){.op = op,
                                     .hash = staging->entry.hash,
                                     .grant = staging->entry.grant,
                                     .unit = staging->entry.unit,
                                     .end = ssd->staged_end};
    *ssd->stored_tail = stored;
    ssd->stored_tail = &stored->next;
    ssd->stored_count++;
    if (op == &ssd->reclaim.store) {
        stored->op = NULL;
        yb_ssd_reclaim_staged(ssd, ssd->staged_end);
    } else {
        op->op.state = YB_SSD_OP_STORING;
        op->op.slot = stored;
    }
    arm_sync(ssd);
    /* Who waits for a sync uses up what stores are made of: the sync does not wait for its time. */
    if (ssd->stored_count * 4 > ssd->options.operations_max * 3 && !ssd->sync.busy &&
        ssd->staged_end - ssd->want_end >= ssd->options.batch_bytes) {
        yb_ssd_write_flush(ssd);
    }
}

/* Take the record up: where it lies, and its head. */
static void
begin(struct yb_ssd *ssd, struct yb_tier_store *op, uint32_t era)
{
    struct yb_ssd_staging *staging = &ssd->staging;
    struct yb_ssd_segment *segment = &ssd->segments[ssd->current];
    const struct yb_tier_record *record = &op->record;
    uint32_t unit = (uint32_t)(segment->data_end / YB_SSD_UNIT_BYTES);
    const uint32_t *sums = op->sums;

    if (sums == NULL) {
        make_sums(op, staging->sums);
        sums = staging->sums;
    }
    staging->busy = true;
    staging->abandoned = false;
    staging->op = op;
    staging->entry = (struct yb_ssd_entry){
        .hash = record->hash,
        .grant = record->grant,
        .unit = yb_ssd_segment_unit(ssd, ssd->current) + unit,
        .value_units = (uint32_t)((record->size + YB_SSD_UNIT_BYTES - 1) / YB_SSD_UNIT_BYTES),
        .head_units = yb_ssd_head_units(record),
        .era = era,
        .hard_pin = (record->flags & YB_WIRE_BLOCK_FLAG_HARD_PIN) != 0,
        .soft_pin = (record->flags & YB_WIRE_BLOCK_FLAG_SOFT_PIN) != 0,
        .storing = true,
    };
    staging->done = 0;
    staging->total = (uint64_t)yb_ssd_total_units(record) * YB_SSD_UNIT_BYTES;
    staging->head_bytes = (uint64_t)staging->entry.head_units * YB_SSD_UNIT_BYTES;
    staging->iov_index = 0;
    staging->iov_offset = 0;
    yb_ssd_record_encode(record, segment->life, unit, sums, staging->head);
    op->op.state = YB_SSD_OP_STAGING;
    ssd->budget -= (double)staging->total;
}

/* Whether a record is small enough. A log that exists may have smaller segments than was said. */
static bool
has_size(const struct yb_ssd *ssd, const struct yb_tier_record *record)
{
    uint64_t segment = ssd->segments == NULL ? ssd->options.segment_bytes : ssd->segment_bytes;

    return (uint64_t)yb_ssd_total_units(record) * YB_SSD_UNIT_BYTES <= segment / 2;
}

/* Return the store that is staged next. NULL: there is none, or no room yet. */
static struct yb_tier_store *
next_store(struct yb_ssd *ssd)
{
    struct yb_tier_store *store = (struct yb_tier_store *)ssd->stores.head;
    uint64_t bytes;

    if (ssd->reclaim.step == YB_SSD_RECLAIM_STORE) {
        return &ssd->reclaim.store; /* S5: it goes first, and may use all the room there is. */
    }
    while (store != NULL && !has_size(ssd, &store->record)) {
        yb_ssd_list_remove(&ssd->stores, &store->op);
        store_end(ssd, store, YB_TOO_LARGE);
        store = (struct yb_tier_store *)ssd->stores.head;
    }
    if (store == NULL) {
        return NULL;
    }
    bytes = (uint64_t)yb_ssd_total_units(&store->record) * YB_SSD_UNIT_BYTES;
    if (yb_ssd_room_total(ssd) < bytes + 2 * YB_SSD_BLOCK_BYTES || yb_ssd_index_full(ssd->index)) {
        return NULL;
    }
    return store;
}

static void
take_next(struct yb_ssd *ssd, struct yb_tier_store *store)
{
    const struct yb_tier_record *record = &store->record;
    uint32_t era;

    if (store != &ssd->reclaim.store) {
        yb_ssd_list_remove(&ssd->stores, &store->op);
        if (yb_ssd_was_killed(ssd, record->hash, record->grant)) {
            store_end(ssd, store, YB_STALE);
            return;
        }
    } else if (yb_ssd_entry_at(ssd, record->hash, record->grant, ssd->reclaim.unit) ==
               YB_SSD_INDEX_NONE) {
        yb_ssd_reclaim_staged(ssd, ssd->staged_end); /* Killed meanwhile. */
        return;
    }
    if (!yb_ssd_era(ssd, record->tenant, record->flush, &era)) {
        YB_ASSERT(store != &ssd->reclaim.store);
        store_end(ssd, store, YB_NO_SPACE);
        return;
    }
    if (store != &ssd->reclaim.store && yb_ssd_is_dead(ssd, &(struct yb_ssd_entry){.era = era})) {
        store_end(ssd, store, YB_STALE);
        return;
    }
    begin(ssd, store, era);
}

void
yb_ssd_write_pump(struct yb_ssd *ssd)
{
    struct yb_tier_store *store;

    while (ssd->aside == YB_OK && ssd->segments != NULL) {
        if (ssd->staging.busy) {
            uint64_t room = batch_room(ssd);

            if (room == 0) {
                return;
            }
            copy_some(ssd, room);
            if (ssd->staging.done == ssd->staging.total) {
                staged(ssd);
            }
            continue;
        }
        store = next_store(ssd);
        if (store == NULL || ssd->stored_free == NULL) {
            break;
        }
        if (!yb_ssd_segment_fits(ssd, &store->record)) {
            if (!yb_ssd_segment_switch(ssd)) {
                break;
            }
            continue;
        }
        take_next(ssd, store);
    }
    if (ssd->stopping) {
        end_waiting(ssd, YB_CANCELLED); /* There is no room for them now. */
        if (ssd->aside == YB_OK) {
            yb_ssd_write_flush(ssd);
        }
    }
}

/* ---- ends ------------------------------------------------------------------------------- */

/* The record is durable. Who was killed or flushed meanwhile has no entry any more. */
static void
stored_done(struct yb_ssd *ssd, struct yb_ssd_stored *stored)
{
    uint32_t number = yb_ssd_entry_at(ssd, stored->hash, stored->grant, stored->unit);
    enum yb_status status = YB_STALE;

    if (number != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (!yb_ssd_is_dead(ssd, &entry)) {
            entry.storing = false;
            yb_ssd_index_set(ssd->index, number, &entry);
            status = YB_OK;
        }
    }
    if (stored->op != NULL) {
        ssd->info.stored_bytes += status == YB_OK ? stored->op->record.size : 0;
        store_end(ssd, stored->op, status);
    }
}

void
yb_ssd_write_synced(struct yb_ssd *ssd)
{
    while (ssd->stored_head != NULL && ssd->stored_head->end <= ssd->durable_end) {
        struct yb_ssd_stored *stored = ssd->stored_head;

        ssd->stored_head = stored->next;
        ssd->stored_count--;
        if (ssd->stored_head == NULL) {
            ssd->stored_tail = &ssd->stored_head;
        }
        stored_done(ssd, stored);
        stored->next = ssd->stored_free;
        ssd->stored_free = stored;
    }
    if (ssd->stored_head != NULL && ssd->aside == YB_OK) {
        arm_sync(ssd);
    }
}

void
yb_ssd_write_full(struct yb_ssd *ssd)
{
    if (!ssd->staging.busy && ssd->stored_free != NULL && next_store(ssd) == NULL) {
        end_waiting(ssd, YB_NO_SPACE);
    }
}

/* The medium failed: who waits hears it, and entries of what is not durable go. */
void
yb_ssd_write_aside(struct yb_ssd *ssd)
{
    end_waiting(ssd, YB_IO);
    if (ssd->staging.busy && ssd->staging.op != NULL && ssd->staging.op != &ssd->reclaim.store) {
        store_end(ssd, ssd->staging.op, YB_IN_DOUBT);
    }
    ssd->staging.busy = false;
    ssd->filling = false;
    while (ssd->stored_head != NULL) {
        struct yb_ssd_stored *stored = ssd->stored_head;
        uint32_t number = yb_ssd_entry_at(ssd, stored->hash, stored->grant, stored->unit);

        ssd->stored_head = stored->next;
        if (number != YB_SSD_INDEX_NONE) {
            yb_ssd_forget(ssd, number, true);
        }
        if (stored->op != NULL) {
            store_end(ssd, stored->op, YB_IN_DOUBT); /* A later start may find it. */
        }
        stored->next = ssd->stored_free;
        ssd->stored_free = stored;
    }
    ssd->stored_tail = &ssd->stored_head;
    ssd->stored_count = 0;
}

void
yb_ssd_store_end_early(struct yb_ssd *ssd, struct yb_tier_store *store, enum yb_status status)
{
    switch (store->op.state) {
    case YB_SSD_OP_WAITING: yb_ssd_list_remove(&ssd->stores, &store->op); break;
    case YB_SSD_OP_STAGING: /* Its bytes may go: zeros follow, and no head names it. */
        YB_ASSERT(ssd->staging.op == store);
        ssd->staging.op = NULL;
        ssd->staging.abandoned = true;
        break;
    case YB_SSD_OP_STORING: ((struct yb_ssd_stored *)store->op.slot)->op = NULL; break;
    default: YB_ASSERT(false);
    }
    store_end(ssd, store, status);
}

bool
yb_ssd_write_idle(const struct yb_ssd *ssd)
{
    return ssd->stores.count == 0 && !ssd->staging.busy && ssd->stored_head == NULL;
}

/* ---- the call --------------------------------------------------------------------------- */

/* Whether the block is here with that grant already, or on its way. */
static enum yb_status
known(struct yb_ssd *ssd, const struct yb_tier_record *record)
{
    uint64_t cursor = 0;
    uint32_t number;

    while ((number = yb_ssd_index_next(ssd->index, record->hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.grant == record->grant && !entry.hidden && !yb_ssd_is_dead(ssd, &entry)) {
            return entry.storing ? YB_AGAIN : YB_EXISTS;
        }
    }
    return YB_NOT_FOUND;
}

static enum yb_status
may_store(struct yb_ssd *ssd, const struct yb_tier_record *record)
{
    uint64_t bytes;

    if (ssd->aside != YB_OK || ssd->stopping) {
        return ssd->stopping ? YB_CLOSED : ssd->aside;
    }
    if (strlen(record->tenant) >= YB_SSD_TENANT_BYTES || record->key_bytes > YB_SSD_KEY_BYTES_MAX) {
        return YB_INVALID;
    }
    if (record->size > YB_SSD_VALUE_BYTES_MAX) {
        return YB_TOO_LARGE;
    }
    if (!has_size(ssd, record)) {
        return YB_TOO_LARGE;
    }
    bytes = (uint64_t)yb_ssd_total_units(record) * YB_SSD_UNIT_BYTES;
    if (ssd->stores.count >= ssd->options.operations_max) {
        return YB_AGAIN;
    }
    return budget_allows(ssd, bytes) ? YB_OK : YB_QUOTA;
}

enum yb_status
yb_ssd_store(struct yb_tier *tier, struct yb_tier_store *store)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    enum yb_status status = may_store(ssd, &store->record);

    if (status != YB_OK) {
        return status;
    }
    status = known(ssd, &store->record);
    if (status == YB_AGAIN) {
        return YB_AGAIN;
    }
    if (status == YB_EXISTS) {
        yb_ssd_end(ssd, &store->op, YB_OK);
        return YB_OK;
    }
    store->op.state = YB_SSD_OP_WAITING;
    yb_ssd_list_add(&ssd->stores, &store->op);
    ssd->info.storing_bytes += store->record.size;
    yb_ssd_watch_deadline(ssd, store->op.deadline_ns);
    yb_ssd_wake(ssd);
    return YB_OK;
}
