/* SPDX-License-Identifier: Apache-2.0
 *
 * A block goes out: its bytes, and its record behind them.
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/object/object_internal.h"

static const struct yb_tier_store *
store_of(const struct work *work)
{
    return (const struct yb_tier_store *)work->op;
}

/* ---- on a thread of the backend's ------------------------------------------------------------ */

/* The sums of the chunks, wherever the pieces of the value end. */
void
yb_object_sum_chunks(const struct yb_tier_store *store, uint32_t *sums_out)
{
    uint64_t at = 0;
    uint32_t sum = 0;

    for (uint32_t i = 0; i < store->iov_count; i++) {
        const uint8_t *base = store->iov[i].iov_base;
        size_t left = store->iov[i].iov_len;

        while (left > 0) {
            size_t room = (size_t)(YB_TIER_CHUNK_BYTES - at % YB_TIER_CHUNK_BYTES);
            size_t part = left < room ? left : room;

            sum = yb_crc32c_update(sum, base, part);
            base += part;
            left -= part;
            at += part;
            sums_out[(at - 1) / YB_TIER_CHUNK_BYTES] = sum;
            sum = at % YB_TIER_CHUNK_BYTES == 0 ? 0 : sum;
        }
    }
}

static void
make_record(struct yb_object_request *request)
{
    struct flight *flight = (struct flight *)request;
    const struct yb_tier_store *store = store_of(flight->work);
    uint32_t sums[YB_OBJECT_BLOCK_MAX / YB_TIER_CHUNK_BYTES];

    if (store->sums == NULL) {
        yb_object_sum_chunks(store, sums);
    }
    yb_object_record_encode(&store->record, store->sums == NULL ? sums : store->sums,
                            flight->record);
}

/* ---- the stages ------------------------------------------------------------------------------ */

static uint64_t
record_bytes(const struct yb_tier_record *record)
{
    return yb_object_record_bytes(record->size, record->key_bytes, strlen(record->tenant));
}

static void
plan(struct work *work, struct flight *flight)
{
    struct yb_object_request *request = &flight->request;
    const struct yb_tier_store *store = store_of(work);

    YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
    switch (work->stage) {
    case STAGE_CHECK: request->verb = YB_OBJECT_HEAD; break;
    case STAGE_UNDO: request->verb = YB_OBJECT_DELETE; break;
    default:
        request->verb = YB_OBJECT_PUT;
        request->before = make_record;
        request->bytes.iov = store->iov;
        request->bytes.iov_count = store->iov_count;
        request->bytes.tail = (struct iovec){flight->record, record_bytes(&store->record)};
        break;
    }
}

static struct yb_object_block *
block_of(const struct work *work)
{
    return yb_object_index_at(work->tier->index, work->place);
}

bool
yb_object_store_arrived(struct work *work, uint32_t pack, uint32_t where)
{
    struct object_tier *object = work->tier;
    struct yb_object_block *block = block_of(work);

    if (work->killed || yb_object_index_space_at(object->index, block->space)->dead) {
        return false;
    }
    yb_object_block_set_state(block, YB_OBJECT_BLOCK_RESIDENT);
    block->pack = pack;
    block->where = pack == YB_OBJECT_NO_PACK ? work->name.expires_unix_s : where;
    object->info.live += work->name.size;
    object->info.used += pack == YB_OBJECT_NO_PACK ? yb_object_block_bytes(object, block) : 0;
    object->info.storing_bytes -= work->name.size;
    object->info.stored_bytes += work->name.size;
    object->info.blocks++;
    return true;
}

static void
arrived(struct work *work)
{
    if (yb_object_store_arrived(work, YB_OBJECT_NO_PACK, 0)) {
        yb_object_work_end(work, YB_OK);
    } else {
        yb_object_work_go(work, STAGE_UNDO);
    }
}

/* It does not; `where` and the rest of the block are nobody's any more. */
void
yb_object_store_did_not(struct work *work)
{
    struct object_tier *object = work->tier;
    struct yb_object_block *block = block_of(work);

    object->info.storing_bytes -= work->name.size;
    if (!work->killed) {
        yb_object_index_remove(object->index, block);
    } else if (yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE) {
        yb_object_block_clear(block, YB_OBJECT_BLOCK_BUSY);
    }
}

static void
step_put(struct work *work, struct flight *flight, enum yb_status status)
{
    struct yb_object_block *block = block_of(work);
    bool lost = flight->request.sent && (status == YB_TIMED_OUT || status == YB_PEER_LOST);

    if (status == YB_OK) {
        arrived(work);
        return;
    }
    if (flight->request.sent && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_STORING) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_DOUBT);
    }
    if (work->killed) {
        yb_object_work_go(work, STAGE_UNDO);
    } else if (lost && !work->cancelled && yb_loop_now(work->tier->loop) < work->deadline_ns) {
        work->stage = STAGE_CHECK; /* RULES A15: what became of it? */
        work->refly = true;
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static void
step_check(struct work *work, struct flight *flight, enum yb_status status)
{
    const struct yb_tier_record *record = &store_of(work)->record;

    if (work->killed) {
        yb_object_work_go(work, STAGE_UNDO);
    } else if (status == YB_OK &&
               flight->request.object_bytes == record->size + record_bytes(record)) {
        work->tier->stats.resolved++;
        arrived(work);
    } else if (status == YB_OK || status == YB_NOT_FOUND) {
        work->stage = STAGE_PUT;
        if (!yb_object_work_again(work, flight, YB_PEER_LOST)) {
            yb_object_work_fail(work, YB_PEER_LOST);
        }
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static void
step(struct work *work, struct flight *flight, enum yb_status status)
{
    if (work->stage == STAGE_PUT) {
        step_put(work, flight, status);
    } else if (work->stage == STAGE_CHECK) {
        step_check(work, flight, status);
    } else if (status == YB_OK || !yb_object_work_again(work, flight, status)) {
        yb_object_store_did_not(work); /* What is left of it is what the kill object is for. */
        if (!work->killed) {
            work->killed = true; /* Flushed. */
        }
        yb_object_work_end(work, YB_STALE);
    }
}

const struct work_kind yb_object_store_kind = {
    .name = "store", .plan = plan, .step = step, .failed = yb_object_store_did_not};

/* ---- the call -------------------------------------------------------------------------------- */

static void
name_it(const struct yb_tier_record *record, struct yb_object_name *name_out)
{
    uint64_t expires_s = (record->expires_unix_ms + 999) / 1000;

    *name_out = (struct yb_object_name){
        .kind = YB_OBJECT_IS_BLOCK,
        .flush = record->flush,
        .hash = record->hash,
        .grant = record->grant,
        .size = record->size,
        .flags = record->flags,
        .mode = record->mode,
        .replicas = record->replicas,
        .expires_unix_s = expires_s > UINT32_MAX ? UINT32_MAX : (uint32_t)expires_s,
    };
    memcpy(name_out->tenant, record->tenant, strlen(record->tenant) + 1);
}

/* What can be said at once; OK: it has to be written. */
static enum yb_status
foresee(const struct object_tier *object, const struct yb_tier_record *record,
        const struct yb_object_block *block)
{
    if (record->flush < yb_object_index_floor(object->index, record->tenant) ||
        (block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE)) {
        return YB_STALE;
    }
    if (object->aside != YB_OK || object->stopping) {
        return YB_UNREACHABLE;
    }
    if (object->options.capacity_bytes != 0 &&
        object->info.used + object->info.storing_bytes + record->size >
            object->options.capacity_bytes) {
        return YB_NO_SPACE;
    }
    return YB_OK;
}

enum yb_status
yb_object_store(struct yb_tier *tier, struct yb_tier_store *store)
{
    struct object_tier *object = object_of(tier);
    const struct yb_tier_record *record = &store->record;
    struct yb_object_block *block =
        yb_object_index_find(object->index, record->hash, record->grant);
    enum yb_status status = foresee(object, record, block);
    bool there = block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_RESIDENT;
    uint32_t space = YB_OBJECT_NO_SPACE;
    struct work *work;

    if (record->size > YB_OBJECT_BLOCK_MAX || strlen(record->tenant) > YB_OBJECT_TENANT_MAX) {
        return YB_TOO_LARGE;
    }
    if (status == YB_OK && block != NULL && !there) {
        return YB_AGAIN; /* It is on its way; its `done` makes room. */
    }
    if (status == YB_OK && !there) {
        space = yb_object_index_space(object->index, record->tenant, record->flush);
        status = space == YB_OBJECT_NO_SPACE ? YB_NO_SPACE : YB_OK;
    }
    if (status != YB_OK || there) {
        work = yb_object_work_end_at_once(object, &yb_object_plain_kind, &store->op, status);
        return work == NULL ? YB_AGAIN : YB_OK;
    }
    block = yb_object_index_insert(object->index, record->hash, record->grant, space);
    work = block == NULL
               ? yb_object_work_end_at_once(object, &yb_object_plain_kind, &store->op, YB_NO_SPACE)
               : yb_object_work_take(object, &yb_object_store_kind, &store->op);
    if (work == NULL || block == NULL) {
        if (block != NULL) {
            yb_object_index_remove(object->index, block);
        }
        return work == NULL ? YB_AGAIN : YB_OK;
    }
    name_it(record, &work->name);
    work->place = yb_object_index_place_of(object->index, block);
    block->size = (uint32_t)record->size;
    block->kind = yb_object_kind_of(record->mode, record->replicas, record->flags);
    block->where = (uint32_t)(work - object->works);
    yb_object_block_set_key_bytes(block, record->key_bytes);
    object->info.storing_bytes += record->size;
    if (object->options.layout != YB_OBJECT_LAYOUT_PACKED ||
        record->size >= object->options.pack_block_max || !yb_object_pack_add(work)) {
        work->kind = &yb_object_store_kind;
        yb_object_work_queue(work, STAGE_PUT, record->size);
    }
    return YB_OK;
}
