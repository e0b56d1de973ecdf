/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads: they wait in the order of their classes, then read with memory of the tier's own, a batch
 * at a time. Every chunk is compared with its checksum before any of it is copied to the caller, so
 * an operation can end at any time and its memory is left alone from then on (RULES A3).
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/ssd/ssd_internal.h"

#define URGENT_LATELY_NS YB_NS_PER_S

#define READ_ERRORS_MAX 16u /* In a row; then the medium is taken for broken. */

static uint64_t
align_down(uint64_t value)
{
    return value / YB_SSD_BLOCK_BYTES * YB_SSD_BLOCK_BYTES;
}

static uint64_t
align_up(uint64_t value)
{
    return align_down(value + YB_SSD_BLOCK_BYTES - 1);
}

static uint64_t
record_start(const struct yb_ssd_loading *loading)
{
    return loading->entry.unit * YB_SSD_UNIT_BYTES;
}

static uint64_t
value_start(const struct yb_ssd_loading *loading)
{
    return record_start(loading) + (uint64_t)loading->entry.head_units * YB_SSD_UNIT_BYTES;
}

/* ---- ends ------------------------------------------------------------------------------- */

static void
slot_free(struct yb_ssd *ssd, struct yb_ssd_loading *loading)
{
    loading->op = NULL;
    loading->reader = NULL;
    loading->next = ssd->loading_free;
    ssd->loading_free = loading;
}

static void
op_end(struct yb_ssd *ssd, struct yb_ssd_loading *loading, enum yb_status status)
{
    if (loading->op != NULL) {
        ssd->loads--;
        yb_ssd_end(ssd, &loading->op->op, status);
        loading->op = NULL;
    }
}

static void
reader_end(struct yb_ssd *ssd, struct yb_ssd_reader *reader, enum yb_status status)
{
    struct yb_ssd_loading *loading = reader->loading;

    YB_ASSERT(ssd->segments[reader->segment].readers > 0);
    ssd->segments[reader->segment].readers--;
    ssd->load_backlog -= loading->item.cost_bytes;
    op_end(ssd, loading, status);
    slot_free(ssd, loading);
    reader->loading = NULL;
    reader->next = ssd->reader_free;
    ssd->reader_free = reader;
    yb_ssd_wake(ssd);
}

/* What cannot be read right is dropped; a restart may find it again, and drop it again. */
static void
drop(struct yb_ssd *ssd, const struct yb_ssd_entry *entry, enum yb_status why)
{
    uint32_t number = yb_ssd_entry_at(ssd, entry->hash, entry->grant, entry->unit);

    if (number != YB_SSD_INDEX_NONE && !yb_ssd_index_get(ssd->index, number).hidden) {
        yb_ssd_forget(ssd, number, true);
        ssd->info.corrupt += why == YB_CORRUPT;
        yb_log_warn(ssd->options.log, "ssd", "a record is dropped", yb_log_id("hash", entry->hash),
                    yb_log_status("why", why),
                    yb_log_u64("offset", entry->unit * YB_SSD_UNIT_BYTES));
        ssd->options.events->lost(ssd->base.owner, entry->hash, entry->grant, why);
    }
}

static void
reader_broken(struct yb_ssd *ssd, struct yb_ssd_reader *reader, enum yb_status why)
{
    struct yb_ssd_entry entry = reader->loading->entry;

    reader_end(ssd, reader, why);
    drop(ssd, &entry, why);
}

/* ---- reading ---------------------------------------------------------------------------- */

static void reader_then(struct yb_ssd_transfer *transfer, int error);

static void
read_range(struct yb_ssd *ssd, struct yb_ssd_reader *reader, uint64_t from, uint64_t to)
{
    reader->start = align_down(from);
    reader->length = align_up(to) - reader->start;
    reader->transfer.then = reader_then;
    reader->begun_ns = yb_loop_now(ssd->loop);
    yb_ssd_transfer_start(ssd, &reader->transfer, YB_SSD_IO_READ, reader->start, reader->bytes,
                          reader->length);
}

/* Read the next chunks, as many as fit into a batch. */
static void
read_chunks(struct yb_ssd *ssd, struct yb_ssd_reader *reader)
{
    uint64_t value = value_start(reader->loading);
    uint64_t last = reader->chunk + ssd->options.batch_bytes / YB_TIER_CHUNK_BYTES;
    uint64_t end;

    last = last < reader->chunk_end ? last : reader->chunk_end;
    end = last * YB_TIER_CHUNK_BYTES;
    end = end < reader->view.record.size ? end : reader->view.record.size;
    read_range(ssd, reader, value + reader->chunk * YB_TIER_CHUNK_BYTES, value + end);
}

/* The first read brings the head, and with it what is wanted if that lies near. */
static void
read_first(struct yb_ssd *ssd, struct yb_ssd_reader *reader)
{
    const struct yb_ssd_loading *loading = reader->loading;
    uint64_t value = value_start(loading);
    uint64_t value_bytes = (uint64_t)loading->entry.value_units * YB_SSD_UNIT_BYTES;
    uint64_t end = loading->op->offset + loading->op->length;

    end = (end + YB_TIER_CHUNK_BYTES - 1) / YB_TIER_CHUNK_BYTES * YB_TIER_CHUNK_BYTES;
    end = end < value_bytes ? end : value_bytes;
    end = end < ssd->options.batch_bytes ? end : ssd->options.batch_bytes;
    if (loading->op->offset >= end || loading->op->length == 0) {
        end = 0;
    }
    read_range(ssd, reader, record_start(loading), value + end);
}

/* ---- what was read ---------------------------------------------------------------------- */

/* Copy to the caller, at the place where the copies before ended. */
static void
copy_out(struct yb_ssd_reader *reader, const uint8_t *bytes, uint64_t length)
{
    const struct yb_tier_load *op = reader->loading->op;

    while (length > 0) {
        const struct iovec *iov = &op->iov[reader->iov_index];
        uint64_t room = iov->iov_len - reader->iov_offset;
        uint64_t step = room < length ? room : length;

        YB_ASSERT(reader->iov_index < op->iov_count);
        memcpy((uint8_t *)iov->iov_base + reader->iov_offset, bytes, (size_t)step);
        bytes += step;
        length -= step;
        reader->iov_offset += step;
        if (reader->iov_offset == iov->iov_len) {
            reader->iov_index++;
            reader->iov_offset = 0;
        }
    }
}

static uint32_t
sum_of(const struct yb_ssd_view *view, uint64_t chunk)
{
    uint32_t sum;

    memcpy(&sum, view->sums + 4 * chunk, sizeof sum);
    return sum;
}

/* Check and copy the chunks that are here. False: one of them is wrong. */
static bool
take_chunks(struct yb_ssd_reader *reader)
{
    const struct yb_ssd_loading *loading = reader->loading;
    const struct yb_tier_load *op = loading->op;
    uint64_t size = reader->view.record.size;

    while (reader->chunk < reader->chunk_end) {
        uint64_t from = reader->chunk * YB_TIER_CHUNK_BYTES;
        uint64_t to = from + YB_TIER_CHUNK_BYTES < size ? from + YB_TIER_CHUNK_BYTES : size;
        uint64_t at = value_start(loading) + from;
        const uint8_t *bytes = reader->bytes + (at - reader->start);
        uint64_t first = from > op->offset ? from : op->offset;
        uint64_t last = to < op->offset + op->length ? to : op->offset + op->length;

        if (at < reader->start || at + (to - from) > reader->start + reader->length) {
            break;
        }
        if (yb_crc32c(bytes, (size_t)(to - from)) != sum_of(&reader->view, reader->chunk)) {
            return false;
        }
        copy_out(reader, bytes + (first - from), last - first);
        if (op->sums_out != NULL) {
            op->sums_out[reader->chunk - op->offset / YB_TIER_CHUNK_BYTES] =
                sum_of(&reader->view, reader->chunk);
        }
        reader->chunk++;
    }
    return true;
}

/* Read the head and compare it with what was looked for. */
static enum yb_status
take_head(struct yb_ssd *ssd, struct yb_ssd_reader *reader)
{
    const struct yb_ssd_loading *loading = reader->loading;
    const struct yb_tier_load *op = loading->op;
    const struct yb_ssd_segment *segment = &ssd->segments[reader->segment];
    uint64_t head_bytes = (uint64_t)loading->entry.head_units * YB_SSD_UNIT_BYTES;
    const struct yb_tier_record *record = &reader->view.record;
    uint64_t end;

    memcpy(reader->head, reader->bytes + (record_start(loading) - reader->start),
           (size_t)head_bytes);
    if (!yb_ssd_record_decode(reader->head, (size_t)head_bytes, segment->life, &reader->view) ||
        record->grant != loading->entry.grant || !yb_id_equal(record->hash, loading->entry.hash) ||
        yb_ssd_segment_unit(ssd, reader->segment) + reader->view.unit != loading->entry.unit) {
        return YB_CORRUPT;
    }
    if (op->key_bytes > 0 &&
        (op->key_bytes != record->key_bytes || memcmp(op->key, record->key, op->key_bytes) != 0)) {
        return YB_NOT_FOUND;
    }
    reader->headed = true;
    reader->chunk = op->offset / YB_TIER_CHUNK_BYTES;
    end = op->offset + op->length < record->size ? op->offset + op->length : record->size;
    reader->chunk_end =
        end <= op->offset ? reader->chunk : (end + YB_TIER_CHUNK_BYTES - 1) / YB_TIER_CHUNK_BYTES;
    return YB_OK;
}

/* How much under way is enough for the medium. */
static void
learn_fill(struct yb_ssd *ssd, const struct yb_ssd_loading *loading)
{
    uint64_t now_ns = yb_loop_now(ssd->loop);

    yb_tier_fill_ended(&ssd->fill,
                       &(struct yb_tier_fill_end){
                           .bytes = loading->item.cost_bytes,
                           .took_ns = now_ns - loading->begun_ns,
                           .alone = loading->begun == ssd->loads_begun,
                           .under_way = ssd->load_backlog - loading->item.cost_bytes,
                       },
                       now_ns);
}

static void
succeed(struct yb_ssd *ssd, struct yb_ssd_reader *reader)
{
    struct yb_tier_load *op = reader->loading->op;
    const struct yb_ssd_entry *was = &reader->loading->entry;
    uint32_t number = yb_ssd_entry_at(ssd, was->hash, was->grant, was->unit);
    struct yb_tier_record *record = &op->record_out;

    *record = reader->view.record;
    memcpy(op->tenant_out, record->tenant, strlen(record->tenant) + 1);
    memcpy(op->key_out, record->key, record->key_bytes);
    record->tenant = op->tenant_out;
    record->key = op->key_out;
    if (number != YB_SSD_INDEX_NONE && op != &ssd->reclaim.load) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        entry.accesses += entry.accesses < YB_SSD_ACCESSES_MAX;
        yb_ssd_index_set(ssd->index, number, &entry);
    }
    learn_fill(ssd, reader->loading);
    reader_end(ssd, reader, YB_OK);
}

static void
measure(struct yb_ssd *ssd, const struct yb_ssd_reader *reader)
{
    uint64_t now_ns = yb_loop_now(ssd->loop);
    uint64_t since = reader->begun_ns > ssd->last_read_ns ? reader->begun_ns : ssd->last_read_ns;

    ssd->rate_bytes += reader->length;
    ssd->rate_ns += now_ns - since;
    ssd->last_read_ns = now_ns;
    if (ssd->rate_ns > YB_NS_PER_S) { /* Older reads count less and less. */
        ssd->rate_ns /= 2;
        ssd->rate_bytes /= 2;
    }
}

static void
reader_then(struct yb_ssd_transfer *transfer, int error)
{
    struct yb_ssd_reader *reader = (struct yb_ssd_reader *)transfer;
    struct yb_ssd *ssd = transfer->ssd;
    enum yb_status status;

    measure(ssd, reader);
    if (reader->loading->op == NULL) {
        reader_end(ssd, reader, YB_OK);
        return;
    }
    if (error != 0) {
        ssd->read_errors++;
        if (ssd->read_errors == READ_ERRORS_MAX) {
            yb_ssd_failed(ssd, "read", error);
        }
        reader_broken(ssd, reader, YB_IO);
        return;
    }
    ssd->read_errors = 0;
    status = reader->headed ? YB_OK : take_head(ssd, reader);
    if (status == YB_NOT_FOUND) {
        reader_end(ssd, reader, status);
    } else if (status != YB_OK || !take_chunks(reader)) {
        reader_broken(ssd, reader, YB_CORRUPT);
    } else if (reader->chunk < reader->chunk_end) {
        read_chunks(ssd, reader);
    } else {
        succeed(ssd, reader);
    }
}

/* ---- the queue -------------------------------------------------------------------------- */

static bool
was_urgent_lately(const struct yb_ssd *ssd)
{
    return ssd->urgent_ns != 0 && yb_loop_now(ssd->loop) - ssd->urgent_ns < URGENT_LATELY_NS;
}

/* Whether the next may be read. What is being read is not interrupted, so that an urgent load waits
 * for it: where there have been any of late, the others have no more under way than fills the
 * medium. */
static bool
may_read(const struct yb_ssd *ssd)
{
    const struct yb_fair_item *next = yb_fair_peek(&ssd->queue);

    if (ssd->reader_free == NULL || next == NULL) {
        return false;
    }
    return ssd->load_backlog == 0 || next->traffic_class == YB_CLASS_FIRST_TOKEN ||
           !was_urgent_lately(ssd) ||
           ssd->load_backlog + next->cost_bytes <=
               yb_tier_fill_room(&ssd->fill, next->cost_bytes, yb_loop_now(ssd->loop));
}

static void
note_urgent(struct yb_ssd *ssd, enum yb_class traffic_class)
{
    if (traffic_class != YB_CLASS_FIRST_TOKEN) {
        return;
    }
    if (!was_urgent_lately(ssd)) {
        yb_tier_fill_try(&ssd->fill, ssd->load_backlog, yb_loop_now(ssd->loop));
    }
    ssd->urgent_ns = yb_loop_now(ssd->loop);
}

void
yb_ssd_load_pump(struct yb_ssd *ssd)
{
    while (may_read(ssd)) {
        struct yb_ssd_loading *loading = (struct yb_ssd_loading *)yb_fair_pop(&ssd->queue);
        struct yb_ssd_reader *reader = ssd->reader_free;

        if (loading->op == NULL || yb_ssd_entry_at(ssd, loading->entry.hash, loading->entry.grant,
                                                   loading->entry.unit) == YB_SSD_INDEX_NONE) {
            op_end(ssd, loading, YB_NOT_FOUND); /* Killed or reclaimed while it waited. */
            slot_free(ssd, loading);
            continue;
        }
        ssd->reader_free = reader->next;
        reader->loading = loading;
        reader->headed = false;
        reader->iov_index = 0;
        reader->iov_offset = 0;
        reader->segment = yb_ssd_segment_of(ssd, loading->entry.unit);
        loading->reader = reader;
        ssd->segments[reader->segment].readers++;
        ssd->loads_begun++;
        loading->begun = ssd->load_backlog == 0 ? ssd->loads_begun : 0;
        loading->begun_ns = yb_loop_now(ssd->loop);
        ssd->load_backlog += loading->item.cost_bytes;
        read_first(ssd, reader);
    }
}

enum yb_status
yb_ssd_load_entry(struct yb_ssd *ssd, struct yb_tier_load *load, const struct yb_ssd_entry *entry)
{
    struct yb_ssd_loading *loading = ssd->loading_free;

    if (loading == NULL ||
        (load != &ssd->reclaim.load && ssd->loads >= ssd->options.operations_max)) {
        return YB_AGAIN;
    }
    ssd->loading_free = loading->next;
    loading->op = load;
    loading->entry = *entry;
    loading->reader = NULL;
    ssd->loads++;
    load->op.state = YB_SSD_OP_LOADING;
    load->op.slot = loading;
    yb_fair_item_init(&loading->item, load->op.traffic_class, load->op.deadline_ns,
                      load->length + YB_SSD_BLOCK_BYTES);
    yb_fair_push(&ssd->queue, &loading->item);
    note_urgent(ssd, load->op.traffic_class);
    yb_ssd_watch_deadline(ssd, load->op.deadline_ns);
    yb_ssd_wake(ssd);
    return YB_OK;
}

/* Return the entry that a load means, and why there is none. */
static enum yb_status
meant(const struct yb_ssd *ssd, const struct yb_tier_load *load, struct yb_ssd_entry *entry_out)
{
    enum yb_status status = YB_NOT_FOUND;
    uint64_t cursor = 0;
    uint32_t number;

    if (load->grant == 0) {
        number = yb_ssd_best(ssd, load->hash);
        if (number == YB_SSD_INDEX_NONE) {
            return YB_NOT_FOUND;
        }
        *entry_out = yb_ssd_index_get(ssd->index, number);
        return YB_OK;
    }
    while ((number = yb_ssd_index_next(ssd->index, load->hash, &cursor)) != YB_SSD_INDEX_NONE) {
        struct yb_ssd_entry entry = yb_ssd_index_get(ssd->index, number);

        if (entry.hidden || entry.storing || yb_ssd_is_dead(ssd, &entry)) {
            continue;
        }
        if (entry.grant == load->grant) {
            *entry_out = entry;
            return YB_OK;
        }
        status = YB_STALE;
    }
    return status;
}

enum yb_status
yb_ssd_load(struct yb_tier *tier, struct yb_tier_load *load)
{
    struct yb_ssd *ssd = yb_ssd_of(tier);
    struct yb_ssd_entry entry;
    enum yb_status status = YB_NOT_FOUND;

    if (ssd->stopping) {
        return YB_CLOSED;
    }
    if (load->length > YB_SSD_VALUE_BYTES_MAX || load->offset > YB_SSD_VALUE_BYTES_MAX) {
        return YB_INVALID;
    }
    if (ssd->aside != YB_OK && (ssd->segments == NULL || ssd->back.again)) {
        status = YB_UNREACHABLE;
    } else if (ssd->segments != NULL) {
        status = meant(ssd, load, &entry);
    }
    if (status == YB_OK) {
        return yb_ssd_load_entry(ssd, load, &entry);
    }
    yb_ssd_end(ssd, &load->op, status);
    return YB_OK;
}

void
yb_ssd_load_end_early(struct yb_ssd *ssd, struct yb_tier_load *load, enum yb_status status)
{
    struct yb_ssd_loading *loading = load->op.slot;

    YB_ASSERT(load->op.state == YB_SSD_OP_LOADING && loading->op == load);
    if (loading->reader == NULL) {
        yb_fair_remove(&ssd->queue, &loading->item);
        op_end(ssd, loading, status);
        slot_free(ssd, loading);
    } else {
        op_end(ssd, loading, status);
    }
}

void
yb_ssd_load_urge(struct yb_ssd *ssd, struct yb_tier_load *load, enum yb_class traffic_class,
                 uint64_t deadline_ns)
{
    struct yb_ssd_loading *loading = load->op.slot;

    note_urgent(ssd, traffic_class);
    load->op.traffic_class = traffic_class;
    load->op.deadline_ns = deadline_ns;
    if (loading->reader == NULL) {
        yb_fair_remove(&ssd->queue, &loading->item);
        loading->item.traffic_class = traffic_class;
        loading->item.deadline_ns = deadline_ns;
        yb_fair_push(&ssd->queue, &loading->item);
    }
}

bool
yb_ssd_load_idle(const struct yb_ssd *ssd)
{
    return ssd->loads == 0;
}
