/* SPDX-License-Identifier: Apache-2.0
 *
 * What is not to be found any more: kills, flushes, and the collecting of what they leave.
 *
 *     RESIDENT --kill--> GONE --DELETE--> GONE, deleted --a while--> (kill object removed) --> free
 *
 * A block stays GONE, and so cannot be found again, for as long as a listing or an upload that
 * began before may still bring it up.
 */
#include <string.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

#define UNMARKED_LIFE_S 60u
#define SWEEP_PLACES    8192u /* Looked at in one step. */

static uint32_t
now_s(const struct object_tier *object)
{
    return (uint32_t)(yb_loop_now(object->loop) / YB_NS_PER_S);
}

/* ---- a block is gone ------------------------------------------------------------------------- */

void
yb_object_drop(struct object_tier *object, struct yb_object_block *block)
{
    enum yb_object_block_state state = yb_object_block_state_of(block);

    YB_ASSERT(state == YB_OBJECT_BLOCK_STORING || state == YB_OBJECT_BLOCK_RESIDENT);
    if (state == YB_OBJECT_BLOCK_RESIDENT) {
        uint64_t bytes = yb_object_block_bytes(object, block);

        object->info.live -= yb_object_block_size(block);
        object->info.used -= block->pack == YB_OBJECT_NO_PACK ? bytes : 0;
        object->info.blocks--;
        if (block->pack != YB_OBJECT_NO_PACK) {
            yb_object_pack_lost(object, block->pack, bytes);
            yb_object_block_set_in_pack(block, block->pack);
        }
    }
    object->gone++;
    yb_object_block_set_state(block, YB_OBJECT_BLOCK_GONE);
    yb_object_block_clear(block, YB_OBJECT_BLOCK_DELETED); /* It meant doubt until now. */
    if ((block->more & YB_OBJECT_BLOCK_PACKED) != 0) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED); /* It has no object of its own. */
    }
    block->pack = now_s(object);
}

static void
forget(struct object_tier *object, struct yb_object_block *block)
{
    object->gone--;
    yb_object_index_remove(object->index, block);
}

/* ---- kill ------------------------------------------------------------------------------------ */

static void
plan_kill(struct work *work, struct flight *flight)
{
    struct yb_object_name name = work->name;

    name.kind = work->stage == STAGE_DELETE ? YB_OBJECT_IS_BLOCK : YB_OBJECT_IS_KILL;
    flight->request.verb = work->stage == STAGE_MARK ? YB_OBJECT_PUT : YB_OBJECT_DELETE;
    YB_ASSERT(yb_object_name_format(&name, flight->request.name) == YB_OK);
}

static struct yb_object_block *
block_of(const struct work *work)
{
    return yb_object_index_find(work->tier->index, work->name.hash, work->name.grant);
}

static void
leave_block(struct work *work)
{
    struct yb_object_block *block = block_of(work);

    if (block != NULL && !work->killed) { /* `killed`: its store is at it still. */
        yb_object_block_clear(block, YB_OBJECT_BLOCK_BUSY);
    }
}

static void
step_kill(struct work *work, struct flight *flight, enum yb_status status)
{
    struct yb_object_block *block = block_of(work);

    if (status != YB_OK) {
        if (!yb_object_work_again(work, flight, status)) {
            work->killed = false;
            yb_object_work_fail(work, status);
        }
        return;
    }
    YB_ASSERT(block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE);
    if (work->stage == STAGE_MARK) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_MARKED);
        work->tier->stats.kill_objects++;
        if (work->deletes) {
            yb_object_work_go(work, STAGE_DELETE);
            return;
        }
    } else {
        yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED);
    }
    leave_block(work);
    yb_object_work_end(work, YB_OK);
}

static const struct work_kind kill_kind = {
    .name = "kill", .plan = plan_kill, .step = step_kill, .failed = leave_block};

/* Make the block GONE, or one that is, and say what has to be asked of the medium. NULL: no room.
 * */
static struct yb_object_block *
condemn(struct object_tier *object, const struct yb_tier_kill *kill, bool *marks_out,
        bool *deletes_out, bool *storing_out)
{
    struct yb_object_block *block = yb_object_index_find(object->index, kill->hash, kill->grant);
    enum yb_object_block_state state =
        block == NULL ? YB_OBJECT_BLOCK_FREE : yb_object_block_state_of(block);
    uint32_t space;

    *storing_out = state == YB_OBJECT_BLOCK_STORING;
    *marks_out = true;
    *deletes_out = state == YB_OBJECT_BLOCK_RESIDENT && block->pack == YB_OBJECT_NO_PACK;
    if (state == YB_OBJECT_BLOCK_FREE) {
        space = yb_object_index_space(object->index, kill->tenant, kill->flush);
        block = space == YB_OBJECT_NO_SPACE
                    ? NULL
                    : yb_object_index_insert(object->index, kill->hash, kill->grant, space);
        if (block != NULL) {
            yb_object_drop(object, block);
            yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED); /* Nothing is known to be there. */
        }
    } else if (state == YB_OBJECT_BLOCK_RESIDENT) {
        *marks_out = !*deletes_out || (block->more & YB_OBJECT_BLOCK_DOUBT) != 0;
        yb_object_drop(object, block);
    }
    return block;
}

/* Its upload ends, and removes what it has put. */
static void
stop_store(struct object_tier *object, struct yb_object_block *block)
{
    struct work *store = &object->works[block->where];

    YB_ASSERT(store->kind == &yb_object_store_kind || store->kind == &yb_object_packed_kind);
    yb_object_drop(object, block);
    yb_object_block_set(block, YB_OBJECT_BLOCK_BUSY);
    store->killed = true;
    yb_object_work_cancel(store);
}

enum yb_status
yb_object_kill(struct yb_tier *tier, struct yb_tier_kill *kill)
{
    struct object_tier *object = object_of(tier);
    bool flushed = kill->flush < yb_object_index_floor(object->index, kill->tenant);
    bool marks, deletes, storing;
    struct yb_object_block *block;
    struct work *work;

    if (strlen(kill->tenant) > YB_OBJECT_TENANT_MAX) {
        return YB_INVALID;
    }
    work = yb_object_work_take(object, flushed ? &yb_object_plain_kind : &kill_kind, &kill->op);
    if (work == NULL) {
        return YB_AGAIN;
    }
    if (flushed) { /* Its flush has seen to it, or will be told that it failed. */
        yb_object_work_end(work, YB_OK);
        return YB_OK;
    }
    block = condemn(object, kill, &marks, &deletes, &storing);
    work->name = (struct yb_object_name){
        .kind = YB_OBJECT_IS_KILL, .flush = kill->flush, .hash = kill->hash, .grant = kill->grant};
    memcpy(work->name.tenant, kill->tenant, strlen(kill->tenant) + 1);
    if (block == NULL) {
        work->kind = &yb_object_plain_kind;
        yb_object_work_end(work, YB_IO); /* The index is full: nothing can be remembered. */
        return YB_OK;
    }
    if (deletes) {
        yb_object_block_name(object, block, &work->name);
    }
    if (storing) {
        stop_store(object, block);
    } else {
        yb_object_block_set(block, YB_OBJECT_BLOCK_BUSY);
    }
    work->killed = storing;
    work->deletes = deletes;
    if (object->aside != YB_OK || object->stopping) {
        leave_block(work);
        yb_object_work_end(work, YB_UNREACHABLE);
    } else {
        yb_object_work_queue(work, marks ? STAGE_MARK : STAGE_DELETE, 0);
    }
    return YB_OK;
}

/* ---- flush ----------------------------------------------------------------------------------- */

static void
plan_flush(struct work *work, struct flight *flight)
{
    flight->request.verb = YB_OBJECT_PUT;
    YB_ASSERT(yb_object_name_format(&work->name, flight->request.name) == YB_OK);
}

static void
step_flush(struct work *work, struct flight *flight, enum yb_status status)
{
    if (status == YB_OK) {
        work->tier->flushed = true;
        yb_object_work_end(work, YB_OK);
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static const struct work_kind flush_kind = {
    .name = "flush", .plan = plan_flush, .step = step_flush};

enum yb_status
yb_object_flush(struct yb_tier *tier, struct yb_tier_flush *flush)
{
    struct object_tier *object = object_of(tier);
    enum yb_status status;
    struct work *work;

    if (strlen(flush->tenant) > YB_OBJECT_TENANT_MAX) {
        return YB_INVALID;
    }
    work = yb_object_work_take(object, &flush_kind, &flush->op);
    if (work == NULL) {
        return YB_AGAIN;
    }
    status = yb_object_index_flush(object->index, flush->tenant, flush->flush);
    work->name = (struct yb_object_name){.kind = YB_OBJECT_IS_FLUSH, .flush = flush->flush};
    memcpy(work->name.tenant, flush->tenant, strlen(flush->tenant) + 1);
    if (status != YB_OK) {
        yb_object_work_end(work, YB_IO);
    } else if (object->aside != YB_OK || object->stopping) {
        yb_object_work_end(work, YB_UNREACHABLE);
    } else {
        yb_object_work_queue(work, STAGE_MARK, 0);
    }
    return YB_OK;
}

/* ---- collecting ------------------------------------------------------------------------------ */

/* One object is deleted; `place` is its block's, or NO_PLACE. */
static void
plan_delete(struct work *work, struct flight *flight)
{
    flight->request.verb = YB_OBJECT_DELETE;
    YB_ASSERT(yb_object_name_format(&work->name, flight->request.name) == YB_OK);
}

static void
step_delete(struct work *work, struct flight *flight, enum yb_status status)
{
    struct yb_object_block *block = work->name.kind == YB_OBJECT_IS_BLOCK ? block_of(work) : NULL;

    if (status != YB_OK && yb_object_work_again(work, flight, status)) {
        return;
    }
    if (block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE) {
        yb_object_block_clear(block, YB_OBJECT_BLOCK_BUSY);
        if (status == YB_OK) {
            yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED);
            block->pack = now_s(work->tier);
        }
    }
    if (work->name.kind == YB_OBJECT_IS_PACK) {
        yb_object_pack_deleted(work->tier, &work->name, status == YB_OK);
    }
    work->tier->info.reclaims += status == YB_OK;
    yb_object_work_end(work, status);
}

static void
after_delete(struct work *work)
{
    struct object_tier *object = work->tier;

    if (object->sweeping) {
        yb_object_sweep_on(object);
    }
}

static const struct work_kind delete_kind = {
    .name = "delete", .plan = plan_delete, .step = step_delete, .over = after_delete};

bool
yb_object_delete_later(struct object_tier *object, const struct yb_object_name *name)
{
    struct work *work = object->own_works >= OWN_DELETES_MAX || object->aside != YB_OK
                            ? NULL
                            : yb_object_work_take(object, &delete_kind, NULL);

    if (work != NULL) {
        work->name = *name;
        yb_object_work_queue(work, STAGE_DELETE, 0);
    }
    return work != NULL;
}

/* The last trace of a kill: whatever came up under its name since then, and the kill object. */
static void
plan_clean(struct work *work, struct flight *flight)
{
    struct yb_object_request *request = &flight->request;

    switch (work->stage) {
    case STAGE_PROBE:
        request->verb = YB_OBJECT_LIST;
        request->entries = flight->found;
        request->entries_max = FOUND_ENTRIES;
        YB_ASSERT(yb_object_name_prefix(work->name.tenant, work->name.flush, &work->name.hash,
                                        request->name) == YB_OK);
        break;
    case STAGE_DELETE:
        request->verb = YB_OBJECT_DELETE;
        YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
        break;
    default:
        request->verb = YB_OBJECT_DELETE;
        work->name.kind = YB_OBJECT_IS_KILL;
        YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
        break;
    }
}

static void
step_clean(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;
    const struct yb_object_request *request = &flight->request;
    struct yb_object_block *block = block_of(work);
    struct yb_object_name name;

    if (status != YB_OK) {
        if (!yb_object_work_again(work, flight, status)) {
            yb_object_block_clear(block, YB_OBJECT_BLOCK_BUSY);
            yb_object_work_end(work, status);
        }
        return;
    }
    if (work->stage == STAGE_UNMARK) {
        forget(object, block);
        yb_object_work_end(work, YB_OK);
        return;
    }
    if (work->stage == STAGE_PROBE) {
        object->backend->ops->end_list(object->backend, &flight->request);
        for (uint32_t i = 0; i < request->entry_count; i++) {
            if (yb_object_name_parse(request->entries[i].name, &name) &&
                name.kind == YB_OBJECT_IS_BLOCK && name.grant == work->name.grant) {
                work->name = name;
                yb_object_work_go(work, STAGE_DELETE);
                return;
            }
        }
    }
    yb_object_work_go(work, STAGE_UNMARK);
}

static const struct work_kind clean_kind = {
    .name = "clean", .plan = plan_clean, .step = step_clean};

static void
clean(struct object_tier *object, struct yb_object_block *block)
{
    struct work *work = object->own_works >= OWN_DELETES_MAX
                            ? NULL
                            : yb_object_work_take(object, &clean_kind, NULL);

    if (work != NULL) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_BUSY);
        yb_object_block_name(object, block, &work->name);
        yb_object_work_queue(work, STAGE_PROBE, 0);
    }
}

/* One that is GONE: what is due? */
static void
look_at_gone(struct object_tier *object, struct yb_object_block *block)
{
    bool marked = (block->more & YB_OBJECT_BLOCK_MARKED) != 0;
    uint32_t life_s =
        marked ? (uint32_t)(object->options.kill_life_ns / YB_NS_PER_S) : UNMARKED_LIFE_S;
    struct yb_object_name name;

    if ((block->more & YB_OBJECT_BLOCK_BUSY) != 0) {
        return;
    }
    if ((block->more & YB_OBJECT_BLOCK_DELETED) == 0) {
        yb_object_block_name(object, block, &name);
        if (yb_object_delete_later(object, &name)) {
            yb_object_block_set(block, YB_OBJECT_BLOCK_BUSY);
        }
        return;
    }
    if (object->recovering || now_s(object) - block->pack < life_s) {
        return;
    }
    if (yb_object_pack_holds(object, block)) {
        return; /* Whoever forgot it, or its kill object, would find it again. */
    }
    if (marked) {
        clean(object, block);
    } else {
        forget(object, block);
    }
}

static void
look_at(struct object_tier *object, struct yb_object_block *block)
{
    enum yb_object_block_state state = yb_object_block_state_of(block);

    if (state == YB_OBJECT_BLOCK_GONE) {
        look_at_gone(object, block);
    } else if (state == YB_OBJECT_BLOCK_RESIDENT && !object->recovering &&
               yb_object_index_space_at(object->index, block->space)->dead) {
        yb_object_drop(object, block); /* Its object is found by the listing. */
        forget(object, block);
    }
}

void
yb_object_sweep(struct object_tier *object)
{
    uint32_t places = yb_object_index_places(object->index);
    uint32_t steps = places < SWEEP_PLACES ? places : SWEEP_PLACES;

    if (object->aside != YB_OK || object->stopping) {
        return;
    }
    if (object->gone > 0 || object->flush_left > 0) {
        for (uint32_t i = 0; i < steps; i++) {
            struct yb_object_block *block;

            object->sweep_at = object->sweep_at + 1 < places ? object->sweep_at + 1 : 0;
            block = yb_object_index_at(object->index, object->sweep_at);
            if (block != NULL) {
                look_at(object, block);
            }
        }
        object->flush_left -= object->flush_left < steps ? object->flush_left : steps;
    }
    yb_object_pack_sweep(object);
    yb_object_rewrite(object);
    if (object->flushed && !object->recovering && !object->sweeping) {
        object->flush_left = places;
        yb_object_sweep_begin(object);
    }
}
