/* SPDX-License-Identifier: Apache-2.0
 *
 * Listings: what there is, after a start; and what was flushed, to be deleted. Only one goes on at
 * a time, page by page, in the background.
 */
#include <string.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

static void
plan(struct work *work, struct flight *flight)
{
    struct object_tier *object = work->tier;
    struct yb_object_request *request = &flight->request;
    const char *prefix = work->stage == STAGE_LIST_FLUSHES ? YB_OBJECT_FLUSH_ROOT
                         : work->stage == STAGE_LIST_KILLS ? YB_OBJECT_KILL_ROOT
                                                           : "";

    if (work->stage == STAGE_FOOTER) {
        request->verb = YB_OBJECT_GET;
        request->offset = object->entries[work->swept].size - work->name.footer_bytes;
        request->bytes.tail = (struct iovec){
            yb_object_pack_footer_room(object, work->name.footer_bytes), work->name.footer_bytes};
        YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
        return;
    }
    request->verb = YB_OBJECT_LIST;
    request->entries = object->entries;
    request->entries_max = LIST_ENTRIES;
    request->cursor = work->cursor;
    memcpy(request->name, prefix, strlen(prefix) + 1);
}

/* ---- what recovery finds --------------------------------------------------------------------- */

static void
found_flush(struct object_tier *object, const struct yb_object_name *name)
{
    if (yb_object_index_flush(object->index, name->tenant, name->flush) == YB_OK) {
        object->flushed = true; /* What it leaves may not have been collected. */
    } else {
        object->recovery_status = YB_NO_SPACE;
    }
}

static void
found_kill(struct object_tier *object, const struct yb_object_name *name)
{
    struct yb_object_block *block = yb_object_index_find(object->index, name->hash, name->grant);
    uint32_t space = yb_object_index_space(object->index, name->tenant, name->flush);

    if (block == NULL && space != YB_OBJECT_NO_SPACE) {
        block = yb_object_index_insert(object->index, name->hash, name->grant, space);
        if (block != NULL) {
            yb_object_drop(object, block);
            yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED);
        }
    }
    if (block == NULL) {
        object->recovery_status = YB_NO_SPACE; /* What it kills must not be found. */
    } else if (yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_MARKED);
    }
}

/* Ask the owner, and keep the block or drop it. */
void
yb_object_found(struct object_tier *object, struct yb_object_block *block,
                const struct yb_tier_record *record)
{
    yb_object_block_set_state(block, YB_OBJECT_BLOCK_RESIDENT);
    object->info.live += record->size;
    object->info.used +=
        block->pack == YB_OBJECT_NO_PACK ? yb_object_block_bytes(object, block) : 0;
    object->info.blocks++;
    if (object->head.events->found != NULL &&
        !object->head.events->found(object->head.owner, record)) {
        yb_object_drop(object, block);
    }
}

static void
found_block(struct object_tier *object, const struct yb_object_name *name, uint64_t object_bytes)
{
    const struct yb_tier_record record = {
        .hash = name->hash,
        .grant = name->grant,
        .flush = name->flush,
        .size = name->size,
        .expires_unix_ms = name->expires_unix_s * 1000ull,
        .tenant = name->tenant,
        .flags = name->flags,
        .mode = name->mode,
        .replicas = name->replicas,
    };
    struct yb_object_block *block = yb_object_index_find(object->index, name->hash, name->grant);
    uint32_t key_bytes =
        name->size > YB_OBJECT_BLOCK_MAX
            ? 0
            : yb_object_record_key_bytes(name->size, strlen(name->tenant), object_bytes);
    uint32_t space;

    if (key_bytes == 0 || block != NULL ||
        name->flush < yb_object_index_floor(object->index, name->tenant)) {
        return; /* Of a wrong length, known, killed or flushed. */
    }
    space = yb_object_index_space(object->index, name->tenant, name->flush);
    block = space == YB_OBJECT_NO_SPACE
                ? NULL
                : yb_object_index_insert(object->index, name->hash, name->grant, space);
    if (block == NULL) {
        object->recovery_status = YB_NO_SPACE;
        return;
    }
    block->size = (uint32_t)name->size;
    block->kind = yb_object_kind_of(name->mode, name->replicas, name->flags);
    block->where = name->expires_unix_s;
    yb_object_block_set_key_bytes(block, key_bytes);
    yb_object_found(object, block, &record);
}

/* Go through the page from `swept` on; false: a pack's footer has to be read first. */
static bool
take_page(struct work *work)
{
    struct object_tier *object = work->tier;

    for (; work->swept < work->page; work->swept++) {
        const struct yb_object_entry *entry = &object->entries[work->swept];
        struct yb_object_name name;

        if (!yb_object_name_parse(entry->name, &name)) {
            continue;
        }
        if (name.kind == YB_OBJECT_IS_FLUSH && work->stage == STAGE_LIST_FLUSHES) {
            found_flush(object, &name);
        } else if (name.kind == YB_OBJECT_IS_KILL && work->stage == STAGE_LIST_KILLS) {
            found_kill(object, &name);
        } else if (name.kind == YB_OBJECT_IS_BLOCK && work->stage == STAGE_LIST_BLOCKS) {
            found_block(object, &name, entry->size);
        } else if (name.kind == YB_OBJECT_IS_PACK && work->stage == STAGE_LIST_BLOCKS &&
                   name.flush >= yb_object_index_floor(object->index, name.tenant) &&
                   name.footer_bytes <= entry->size && !yb_object_pack_known(object, &name) &&
                   yb_object_pack_footer_room(object, name.footer_bytes) != NULL) {
            work->name = name;
            return false;
        }
    }
    return true;
}

static void
recovered(struct object_tier *object, enum yb_status status)
{
    object->recovering = false;
    if (object->head.events->recovered != NULL) {
        object->head.events->recovered(object->head.owner, status);
    }
}

/* It was to go on, and the service is away. */
static void
failed(struct work *work)
{
    struct object_tier *object = work->tier;
    struct yb_object_request request = {.cursor = work->cursor};

    if (work->cursor != NULL) {
        object->backend->ops->end_list(object->backend, &request);
        work->cursor = NULL;
    }
    object->begun = false;
}

/* A footer is here. One that is damaged, of another version, or gone meanwhile, is passed over. */
static enum yb_status
step_footer(struct work *work, enum yb_status status)
{
    struct object_tier *object = work->tier;

    if (status == YB_OK) {
        status = yb_object_pack_found(object, &work->name, object->entries[work->swept].size,
                                      yb_object_pack_footer_room(object, work->name.footer_bytes));
        object->info.corrupt += status == YB_CORRUPT;
        if (status == YB_CORRUPT || status == YB_VERSION) {
            yb_object_pack_unread(object, &work->name, object->entries[work->swept].size, status);
        }
        object->recovery_status = status == YB_NO_SPACE ? status : object->recovery_status;
    }
    if (status == YB_OK || status == YB_NOT_FOUND || status == YB_CORRUPT || status == YB_VERSION ||
        status == YB_NO_SPACE) {
        work->swept++;
        work->stage = STAGE_LIST_BLOCKS;
        return YB_OK;
    }
    return status;
}

/* The listings are over, or cannot go on. */
static void
over(struct work *work)
{
    struct object_tier *object = work->tier;

    failed(work); /* A stop leaves a listing in its middle. */
    object->begun = true;
    yb_object_work_end(work, YB_OK);
    if (!object->stopping) {
        recovered(object, object->recovery_status);
    }
}

static void
next_page(struct work *work)
{
    struct object_tier *object = work->tier;

    if (work->more && !object->stopping) {
        work->refly = true;
    } else if (work->stage == STAGE_LIST_FLUSHES) {
        yb_object_work_go(work, STAGE_LIST_KILLS);
    } else if (work->stage == STAGE_LIST_KILLS) {
        object->kills_known = true;
        yb_object_work_go(work, STAGE_LIST_BLOCKS);
    } else {
        over(work);
    }
}

static void
step(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;
    const struct yb_object_request *request = &flight->request;

    if (work->stage == STAGE_FOOTER) {
        status = step_footer(work, status);
    } else {
        work->cursor = request->cursor;
        work->page = status == YB_OK ? request->entry_count : 0;
        work->more = request->more;
        work->swept = 0;
    }
    if (status == YB_OK && !take_page(work)) {
        yb_object_work_go(work, STAGE_FOOTER);
        return;
    }
    if (object->recovery_status != YB_OK && work->stage != STAGE_LIST_BLOCKS) {
        status = object->recovery_status; /* Not all kills are known: nothing may be found. */
    }
    if (status == YB_OK) {
        next_page(work);
    } else if (!yb_object_work_again(work, flight, status)) {
        bool hopeless = !yb_object_retryable(status) && object->aside == YB_OK;

        yb_object_work_fail(work, status);
        if (hopeless && !object->stopping) {
            object->begun = true;
            recovered(object, status); /* It will not be otherwise the next time. */
        }
    }
}

static const struct work_kind recover_kind = {
    .name = "recover", .plan = plan, .step = step, .failed = failed};

void
yb_object_recover(struct object_tier *object)
{
    struct work *work;

    if (object->begun || !object->recovering || object->aside != YB_OK || object->stopping) {
        return;
    }
    work = yb_object_work_take(object, &recover_kind, NULL);
    if (work != NULL) {
        object->begun = true;
        object->recovery_status = YB_OK;
        yb_object_work_queue(work, STAGE_LIST_FLUSHES, 0);
    }
}

/* ---- what was flushed ------------------------------------------------------------------------ */

/* Delete what the page shows, as far as there are works for it; the next page when all are. */
void
yb_object_sweep_on(struct object_tier *object)
{
    struct work *work = object->sweeper;

    while (work != NULL && work->swept < work->page) {
        const struct yb_object_entry *entry = &object->entries[work->swept];
        struct yb_object_name name;
        bool ours = yb_object_name_parse(entry->name, &name) && name.kind != YB_OBJECT_IS_KILL &&
                    name.kind != YB_OBJECT_IS_CLUSTER;
        uint64_t floor = ours ? yb_object_index_floor(object->index, name.tenant) : 0;

        if (ours && name.flush < floor && !yb_object_delete_later(object, &name)) {
            return; /* One that ends comes here again; so does the timer. */
        }
        work->swept++;
    }
    if (work != NULL && work->state == WORK_IDLE) {
        if (work->cursor == NULL || object->stopping) {
            object->sweeper = NULL;
            object->sweeping = false;
            yb_object_work_end(work, YB_OK);
        } else {
            yb_object_work_queue(work, STAGE_LIST_BLOCKS, 0);
        }
    }
}

static void
step_sweep(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;

    work->cursor = flight->request.cursor;
    if (status == YB_OK) {
        work->page = flight->request.entry_count;
        work->swept = 0;
        work->state = WORK_IDLE;
        yb_object_sweep_on(object);
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static void
sweep_failed(struct work *work)
{
    failed(work);
    work->tier->begun = true;
    work->tier->sweeper = NULL;
    work->tier->sweeping = false;
    work->tier->flushed = true; /* Once more, later. */
}

static const struct work_kind sweep_kind = {
    .name = "sweep", .plan = plan, .step = step_sweep, .failed = sweep_failed};

void
yb_object_sweep_begin(struct object_tier *object)
{
    struct work *work = yb_object_work_take(object, &sweep_kind, NULL);

    if (work != NULL) {
        object->flushed = false;
        object->sweeping = true;
        object->sweeper = work;
        work->page = work->swept = 0;
        yb_object_work_queue(work, STAGE_LIST_BLOCKS, 0);
    }
}
