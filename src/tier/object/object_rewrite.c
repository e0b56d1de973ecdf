/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs that are more than half dead are rewritten: what lives in them goes to one new pack, and
 * when that is there they are deleted.
 *
 *     (footer -> images, in a few requests)* -> the new pack -> blocks point there -> old ones go
 *
 * Images and records go as they are, with their sums: what is wrong in one stays to be found.
 *
 * Invariants
 *   W1  A block points to its old pack until the new one is RESIDENT as any pack is: its PUT has
 *       succeeded, or a HEAD has found it. Until all that pointed to an old one point elsewhere,
 *       and no load knows of it any more, it is not deleted.
 *   W2  From before the PUT until the old packs are gone, two packs may hold one block. They are
 *       twins meanwhile, and no kill object is removed: it ends both copies, also after a restart,
 *       which finds the block in whichever pack is listed first, and deletes or rewrites the other.
 *   W3  A new pack whose answer stays lost is a twin until no request can be alive; then it goes.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "tier/object/object_internal.h"

#define PAUSE_NS (60 * YB_NS_PER_S) /* After one that has failed. */

static const struct work_kind rewrite_kind;

/* ---- choosing -------------------------------------------------------------------------------- */

static bool
is_due(const struct object_tier *object, const struct pack *pack)
{
    return pack->used && !pack->busy && !pack->stuck && pack->blocks > 0 &&
           !yb_object_index_space_at(object->index, pack->space)->dead &&
           (pack->twin || pack->live < (pack->bytes - pack->footer_bytes) / 2);
}

/* Whether all that lives in it has room beside what is gathered. */
static bool
fits(const struct object_tier *object, const struct pack *pack)
{
    const struct rewrite *rewrite = &object->rewrite;

    return rewrite->from_count < REWRITE_SOURCES &&
           rewrite->is.count + pack->blocks <= PACK_BLOCKS_MAX &&
           rewrite->is.bytes + pack->live <= object->options.pack_bytes &&
           rewrite->is.footer_bytes + pack->footer_bytes <= PACK_FOOTER_MAX;
}

/* The one with the least that lives; NO_PACK: none is due. */
static uint32_t
choose(const struct object_tier *object)
{
    const struct rewrite *rewrite = &object->rewrite;
    uint32_t best = YB_OBJECT_NO_PACK;

    for (uint32_t i = 0; i < object->packs_used; i++) {
        const struct pack *pack = &object->packs[i];

        if (is_due(object, pack) && fits(object, pack) &&
            (rewrite->from_count == 0 || pack->space == object->packs[rewrite->from[0]].space) &&
            (best == YB_OBJECT_NO_PACK || pack->live < object->packs[best].live)) {
            best = i;
        }
    }
    return best;
}

static void
take(struct work *work, uint32_t pack)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;

    rewrite->from[rewrite->from_count++] = pack;
    rewrite->is.at = 0;
    object->packs[pack].busy = true;
    yb_object_pack_name(object, pack, &work->name);
}

static uint32_t
source(const struct rewrite *rewrite)
{
    return rewrite->from[rewrite->from_count - 1];
}

static bool
is_source(const struct rewrite *rewrite, uint32_t pack)
{
    for (uint32_t i = 0; i < rewrite->from_count; i++) {
        if (rewrite->from[i] == pack) {
            return true;
        }
    }
    return false;
}

/* ---- gathering ------------------------------------------------------------------------------- */

/* The next entry of the source's footer whose block lives there; false: there is none. */
static bool
next_living(const struct object_tier *object, uint32_t *at, struct yb_object_footer_entry *entry)
{
    uint32_t from = source(&object->rewrite);
    const struct pack *pack = &object->packs[from];
    const uint8_t *footer = yb_object_pack_footer_room(object, pack->footer_bytes);

    while (yb_object_footer_next(footer, pack->footer_bytes, pack->bytes - pack->footer_bytes, at,
                                 entry)) {
        const struct yb_object_block *block =
            entry->sound
                ? yb_object_index_find(object->index, entry->record.hash, entry->record.grant)
                : NULL;

        if (block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_RESIDENT &&
            block->pack == from && (uint64_t)block->where * YB_OBJECT_ALIGN == entry->offset) {
            return true;
        }
    }
    return false;
}

/* Gather images that lie near each other with one request; `will` is what is here then. */
static void
plan_images(struct object_tier *object, struct flight *flight)
{
    struct rewrite *rewrite = &object->rewrite;
    struct yb_object_request *request = &flight->request;
    struct gathered *will = &rewrite->will;
    struct yb_object_footer_entry entry;
    uint64_t end = 0;
    uint32_t pieces = 0;

    *will = rewrite->is;
    for (uint32_t at = will->at; next_living(object, &at, &entry); will->at = at) {
        uint64_t bytes = entry.record.size + entry.length;

        if (pieces == 0) {
            request->offset = end = entry.offset;
        }
        if (entry.offset < end || entry.offset - end > MERGED_GAP || pieces + 2 > MERGED_IOV ||
            (pieces > 0 && entry.offset + bytes - request->offset > MERGED_BYTES) ||
            will->bytes + bytes > object->options.pack_bytes) {
            break;
        }
        if (entry.offset > end) {
            flight->merged[pieces++] = (struct iovec){.iov_len = entry.offset - end};
        }
        flight->merged[pieces++] = (struct iovec){rewrite->images + will->bytes, bytes};
        will->footer_bytes += (uint32_t)yb_object_footer_add(
            rewrite->footer + will->footer_bytes, will->bytes, entry.bytes, entry.length);
        will->bytes += bytes;
        will->count++;
        end = entry.offset + bytes;
    }
    request->verb = pieces > 0 ? YB_OBJECT_GET : YB_OBJECT_HEAD; /* All were killed meanwhile. */
    request->bytes = (struct yb_object_bytes){.iov = flight->merged, .iov_count = pieces};
}

static void
plan(struct work *work, struct flight *flight)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;
    struct yb_object_request *request = &flight->request;

    YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
    if (work->stage == STAGE_FOOTER) {
        const struct pack *pack = &object->packs[source(rewrite)];

        request->verb = YB_OBJECT_GET;
        request->offset = pack->bytes - pack->footer_bytes;
        request->bytes.tail = (struct iovec){yb_object_pack_footer_room(object, pack->footer_bytes),
                                             pack->footer_bytes};
    } else if (work->stage == STAGE_GET) {
        plan_images(object, flight);
    } else if (work->stage == STAGE_CHECK) {
        request->verb = YB_OBJECT_HEAD;
    } else {
        request->verb = YB_OBJECT_PUT;
        request->bytes.lead = (struct iovec){rewrite->images, rewrite->is.bytes};
        request->bytes.tail = (struct iovec){rewrite->footer, work->name.footer_bytes};
    }
}

/* ---- its end --------------------------------------------------------------------------------- */

static void
finish(struct object_tier *object)
{
    struct rewrite *rewrite = &object->rewrite;

    for (uint32_t i = 0; i < rewrite->from_count; i++) {
        object->packs[rewrite->from[i]].busy = false;
    }
    (void)madvise(rewrite->images, object->options.pack_bytes + PACK_FOOTER_MAX, MADV_DONTNEED);
    rewrite->work = NULL;
    rewrite->from_count = 0;
    rewrite->to = YB_OBJECT_NO_PACK;
}

/* A block that was copied points to the copy; what was killed meanwhile keeps its kill object for
 * as long as that. */
static void
point(struct object_tier *object, const struct yb_object_footer_entry *entry)
{
    struct rewrite *rewrite = &object->rewrite;
    struct yb_object_block *block =
        yb_object_index_find(object->index, entry->record.hash, entry->record.grant);
    enum yb_object_block_state state =
        block == NULL ? YB_OBJECT_BLOCK_FREE : yb_object_block_state_of(block);

    if (state == YB_OBJECT_BLOCK_GONE && (block->more & YB_OBJECT_BLOCK_PACKED) != 0 &&
        is_source(rewrite, block->where)) {
        yb_object_block_set_in_pack(block, rewrite->to);
    } else if (state == YB_OBJECT_BLOCK_RESIDENT && is_source(rewrite, block->pack)) {
        uint64_t bytes = yb_object_block_bytes(object, block);

        yb_object_pack_lost(object, block->pack, bytes);
        block->pack = rewrite->to;
        block->where = (uint32_t)(entry->offset / YB_OBJECT_ALIGN);
        object->packs[rewrite->to].live += bytes;
        object->packs[rewrite->to].blocks++;
        object->stats.moved++;
    }
}

/* The new pack is there. */
static void
moved(struct work *work)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;
    struct pack *to = &object->packs[rewrite->to];
    struct yb_object_footer_entry entry;

    for (uint32_t at = 0; yb_object_footer_next(rewrite->footer, to->footer_bytes,
                                                rewrite->is.bytes, &at, &entry);) {
        YB_ASSERT(entry.sound);
        point(object, &entry);
    }
    for (uint32_t i = 0; i < rewrite->from_count; i++) {
        object->packs[rewrite->from[i]].stuck = true; /* Unless it is empty now. */
    }
    to->busy = false;
    object->info.used += to->bytes;
    object->empty_packs += to->blocks == 0;
    finish(object);
    yb_object_work_end(work, YB_OK);
}

/* The old packs stay as they are. Whether there is a new one is not known if an answer was lost. */
static void
failed(struct work *work)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;

    if (rewrite->to != YB_OBJECT_NO_PACK) {
        for (uint32_t i = 0; i < rewrite->from_count; i++) {
            yb_object_pack_set_twin(object, &object->packs[rewrite->from[i]], rewrite->was_twin[i]);
        }
        if (work->sent) {
            object->info.used += object->packs[rewrite->to].bytes;
            yb_object_pack_in_doubt(object, rewrite->to);
        } else {
            object->packs[rewrite->to].used = false;
        }
    }
    rewrite->again_ns = yb_deadline_after(yb_loop_now(object->loop), PAUSE_NS);
    finish(object);
}

/* ---- the steps ------------------------------------------------------------------------------- */

static void
write_it(struct work *work)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;
    uint32_t space = object->packs[rewrite->from[0]].space;

    rewrite->to = yb_object_pack_new(object);
    if (rewrite->to == YB_OBJECT_NO_PACK) {
        yb_object_work_fail(work, YB_NO_SPACE);
        return;
    }
    yb_object_footer_end(rewrite->footer, rewrite->is.footer_bytes, rewrite->is.count,
                         rewrite->is.bytes);
    object->packs[rewrite->to] = (struct pack){
        .writer = object->writer,
        .number = ++object->next_pack,
        .footer_bytes = rewrite->is.footer_bytes + YB_OBJECT_TRAILER_BYTES,
        .bytes = rewrite->is.bytes + rewrite->is.footer_bytes + YB_OBJECT_TRAILER_BYTES,
        .space = space,
        .used = true,
        .busy = true};
    for (uint32_t i = 0; i < rewrite->from_count; i++) {
        rewrite->was_twin[i] = object->packs[rewrite->from[i]].twin;
        yb_object_pack_set_twin(object, &object->packs[rewrite->from[i]], true); /* W2 */
    }
    yb_object_pack_name(object, rewrite->to, &work->name);
    yb_object_work_go(work, STAGE_PUT);
}

/* More of this pack, the next pack, or what there is. */
static void
go_on(struct work *work)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;
    struct yb_object_footer_entry entry;
    uint32_t at = rewrite->is.at, pack;

    if (!object->packs[source(rewrite)].stuck && next_living(object, &at, &entry) &&
        rewrite->is.bytes + entry.record.size + entry.length <= object->options.pack_bytes) {
        yb_object_work_go(work, STAGE_GET);
        return;
    }
    pack = choose(object);
    if (pack != YB_OBJECT_NO_PACK) {
        take(work, pack);
        yb_object_work_go(work, STAGE_FOOTER);
    } else if (rewrite->is.count > 0) {
        write_it(work);
    } else {
        finish(object);
        yb_object_work_end(work, YB_OK);
    }
}

static void
step_read(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;
    struct rewrite *rewrite = &object->rewrite;
    struct pack *pack = &object->packs[source(rewrite)];

    if (status == YB_OK && work->stage == STAGE_FOOTER) {
        status = yb_object_footer_check(yb_object_pack_footer_room(object, pack->footer_bytes),
                                        pack->footer_bytes, pack->bytes);
    } else if (status == YB_OK) {
        rewrite->is = rewrite->will;
    }
    if (status == YB_NOT_FOUND || status == YB_CORRUPT || status == YB_VERSION) {
        pack->stuck = true; /* Its blocks are lost when they are asked for. */
        status = YB_OK;
    }
    if (status == YB_OK) {
        go_on(work);
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static void
step(struct work *work, struct flight *flight, enum yb_status status)
{
    bool lost = flight->request.sent && (status == YB_TIMED_OUT || status == YB_PEER_LOST);
    bool missing;

    if (work->stage == STAGE_FOOTER || work->stage == STAGE_GET) {
        step_read(work, flight, status);
    } else if (status == YB_OK &&
               (work->stage == STAGE_PUT ||
                flight->request.object_bytes == work->tier->packs[work->tier->rewrite.to].bytes)) {
        work->tier->stats.resolved += work->stage == STAGE_CHECK;
        moved(work);
    } else if (work->stage == STAGE_PUT && lost) {
        work->stage = STAGE_CHECK; /* RULES A15: what became of it? */
        work->refly = true;
    } else {
        missing = work->stage == STAGE_CHECK && (status == YB_OK || status == YB_NOT_FOUND);
        work->stage = missing ? STAGE_PUT : work->stage;
        status = missing ? YB_PEER_LOST : status;
        if (!yb_object_work_again(work, flight, status)) {
            yb_object_work_fail(work, status);
        }
    }
}

static const struct work_kind rewrite_kind = {
    .name = "rewrite", .plan = plan, .step = step, .failed = failed};

/* Whether one that is empty has still to be deleted. */
static bool
is_leaving(const struct object_tier *object)
{
    for (uint32_t i = 0; object->empty_packs > 0 && i < object->packs_used; i++) {
        const struct pack *pack = &object->packs[i];

        if (pack->used && pack->blocks == 0 && yb_loop_now(object->loop) >= pack->until_ns) {
            return true;
        }
    }
    return false;
}

void
yb_object_rewrite(struct object_tier *object)
{
    struct rewrite *rewrite = &object->rewrite;
    struct work *work;
    uint32_t pack;

    /* What the last one has left goes first, so that kill objects can go meanwhile. */
    if (rewrite->work != NULL || object->recovering || is_leaving(object) ||
        yb_loop_now(object->loop) < rewrite->again_ns) {
        return;
    }
    rewrite->is = (struct gathered){0};
    pack = choose(object);
    work = pack == YB_OBJECT_NO_PACK ? NULL : yb_object_work_take(object, &rewrite_kind, NULL);
    if (work != NULL) {
        rewrite->work = work;
        take(work, pack);
        yb_object_work_queue(work, STAGE_FOOTER, 0);
    }
}

/* ---- its life -------------------------------------------------------------------------------- */

enum yb_status
yb_object_rewrite_init(struct object_tier *object)
{
    struct rewrite *rewrite = &object->rewrite;
    size_t bytes = object->options.pack_bytes + PACK_FOOTER_MAX;

    rewrite->to = YB_OBJECT_NO_PACK;
    rewrite->images = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (rewrite->images == MAP_FAILED) {
        rewrite->images = NULL;
        return YB_NO_MEMORY;
    }
    rewrite->footer = rewrite->images + object->options.pack_bytes;
    return YB_OK;
}

void
yb_object_rewrite_fini(struct object_tier *object)
{
    YB_ASSERT(object->rewrite.work == NULL);
    if (object->rewrite.images != NULL) {
        (void)munmap(object->rewrite.images, object->options.pack_bytes + PACK_FOOTER_MAX);
    }
}
