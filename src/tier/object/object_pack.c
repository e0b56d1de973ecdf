/* SPDX-License-Identifier: Apache-2.0
 *
 * Small blocks are gathered. A builder takes the stores of one space, one behind the other, until
 * it is full or the first has waited long enough; then all of it is one PUT. What is in a pack is
 * told by its footer (record.h); a block there is killed by a kill object, and a pack that holds
 * nothing any more is deleted.
 */
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/object/object_internal.h"

#define PIECES_MAX (4u * PACK_BLOCKS_MAX)

struct builder {
    struct object_tier *object;
    struct work *first;
    struct work **tail;
    struct work *writer; /* Its PUT; NULL: it is being filled, or empty. */
    struct yb_timer timer;
    uint32_t space;
    uint32_t count;
    uint32_t pieces;
    uint64_t bytes; /* Of images. */
    uint64_t record_bytes;
    uint8_t *records;
    uint8_t *footer;
    struct iovec *iov;
};

static const struct yb_tier_store *
store_of(const struct work *work)
{
    return (const struct yb_tier_store *)work->op;
}

static uint64_t
record_bytes(const struct work *work)
{
    const struct yb_tier_record *record = &store_of(work)->record;

    return yb_object_record_bytes(record->size, record->key_bytes, strlen(record->tenant));
}

/* ---- the table of packs ---------------------------------------------------------------------- */

uint32_t
yb_object_pack_new(struct object_tier *object)
{
    for (uint32_t i = 0; i < object->packs_used; i++) {
        if (!object->packs[i].used && object->packs[i].loads == 0) {
            return i;
        }
    }
    return object->packs_used < PACKS_MAX ? object->packs_used++ : YB_OBJECT_NO_PACK;
}

void
yb_object_pack_name(const struct object_tier *object, uint32_t pack,
                    struct yb_object_name *name_out)
{
    const struct pack *at = &object->packs[pack];
    const struct yb_object_space *space = yb_object_index_space_at(object->index, at->space);

    *name_out = (struct yb_object_name){.kind = YB_OBJECT_IS_PACK,
                                        .flush = space->flush,
                                        .writer = at->writer,
                                        .number = at->number,
                                        .footer_bytes = at->footer_bytes};
    memcpy(name_out->tenant, space->tenant, sizeof(name_out->tenant));
}

bool
yb_object_pack_known(const struct object_tier *object, const struct yb_object_name *name)
{
    for (uint32_t i = 0; i < object->packs_used; i++) {
        const struct pack *pack = &object->packs[i];

        if (pack->used && pack->writer == name->writer && pack->number == name->number) {
            return true;
        }
    }
    return false;
}

void
yb_object_pack_lost(struct object_tier *object, uint32_t pack, uint64_t bytes)
{
    struct pack *at = &object->packs[pack];

    YB_ASSERT(at->used && at->blocks > 0 && at->live >= bytes);
    at->live -= bytes;
    at->blocks--;
    object->empty_packs += at->blocks == 0;
}

bool
yb_object_pack_holds(const struct object_tier *object, const struct yb_object_block *block)
{
    return object->twins > 0 ||
           ((block->more & YB_OBJECT_BLOCK_PACKED) != 0 && object->packs[block->where].used);
}

void
yb_object_pack_set_twin(struct object_tier *object, struct pack *pack, bool twin)
{
    object->twins += twin && !pack->twin;
    object->twins -= !twin && pack->twin;
    pack->twin = twin;
}

void
yb_object_pack_in_doubt(struct object_tier *object, uint32_t pack)
{
    struct pack *at = &object->packs[pack];

    YB_ASSERT(at->used && at->blocks == 0);
    at->busy = false;
    at->until_ns = yb_deadline_after(yb_loop_now(object->loop), object->options.kill_life_ns);
    yb_object_pack_set_twin(object, at, true);
    object->empty_packs++;
}

void
yb_object_pack_deleted(struct object_tier *object, const struct yb_object_name *name, bool done)
{
    for (uint32_t i = 0; i < object->packs_used; i++) {
        struct pack *pack = &object->packs[i];

        if (pack->used && pack->writer == name->writer && pack->number == name->number) {
            pack->busy = false;
            pack->used = !done;
            object->info.used -= done ? pack->bytes : 0;
            object->empty_packs -= done && pack->blocks == 0;
            if (done) {
                yb_object_pack_set_twin(object, pack, false);
            }
            return;
        }
    }
}

void
yb_object_pack_sweep(struct object_tier *object)
{
    for (uint32_t i = 0; object->empty_packs > 0 && i < object->packs_used; i++) {
        struct pack *pack = &object->packs[i];
        struct yb_object_name name;

        if (pack->used && !pack->busy && pack->blocks == 0 && pack->loads == 0 &&
            yb_loop_now(object->loop) >= pack->until_ns) {
            yb_object_pack_name(object, i, &name);
            pack->busy = yb_object_delete_later(object, &name);
        }
    }
}

/* ---- writing, on a thread of the backend's --------------------------------------------------- */

static uint64_t
footer_bytes(const struct builder *builder)
{
    return builder->record_bytes + (uint64_t)builder->count * YB_OBJECT_ENTRY_HEAD +
           YB_OBJECT_TRAILER_BYTES;
}

static void
make_pack(struct yb_object_request *request)
{
    const struct flight *flight = (struct flight *)request;
    const struct builder *builder = flight->work->builder;
    uint8_t *record = builder->records, *entry = builder->footer;

    for (const struct work *work = builder->first; work != NULL; work = work->sibling) {
        const struct yb_tier_store *store = store_of(work);
        uint64_t length = record_bytes(work);
        uint32_t sums[CHUNKS_MAX];

        if (store->sums == NULL) {
            yb_object_sum_chunks(store, sums);
        }
        yb_object_record_encode(&store->record, store->sums == NULL ? sums : store->sums, record);
        entry += yb_object_footer_add(entry, (uint64_t)work->at * YB_OBJECT_ALIGN, record, length);
        record += length;
    }
    yb_object_footer_end(builder->footer, (uint64_t)(entry - builder->footer), builder->count,
                         builder->bytes);
}

/* ---- the PUT --------------------------------------------------------------------------------- */

static void
plan(struct work *work, struct flight *flight)
{
    struct yb_object_request *request = &flight->request;
    struct builder *builder = work->builder;

    YB_ASSERT(yb_object_name_format(&work->name, request->name) == YB_OK);
    if (work->stage == STAGE_CHECK) {
        request->verb = YB_OBJECT_HEAD;
        return;
    }
    request->verb = YB_OBJECT_PUT;
    request->before = make_pack;
    request->bytes.iov = builder->iov;
    request->bytes.iov_count = builder->pieces;
    request->bytes.tail = (struct iovec){builder->footer, footer_bytes(builder)};
}

static void
empty(struct builder *builder)
{
    builder->first = NULL;
    builder->tail = &builder->first;
    builder->writer = NULL;
    builder->count = builder->pieces = 0;
    builder->bytes = builder->record_bytes = 0;
}

static void
end_member(struct work *work, uint32_t pack, enum yb_status status)
{
    struct object_tier *object = work->tier;
    struct yb_object_block *block = yb_object_index_at(object->index, work->place);
    struct pack *at = pack == YB_OBJECT_NO_PACK ? NULL : &object->packs[pack];

    work->builder = NULL;
    if (status == YB_OK && yb_object_store_arrived(work, pack, work->at)) {
        at->live += yb_object_block_bytes(object, block);
        at->blocks++;
        yb_object_work_end(work, YB_OK);
        return;
    }
    if (status == YB_OK && work->killed) {
        yb_object_block_set_in_pack(block, pack);
    }
    yb_object_store_did_not(work);
    yb_object_work_end(work, status == YB_OK || work->killed ? YB_STALE : status);
}

static void
end_all(struct builder *builder, uint32_t pack, enum yb_status status)
{
    struct work *next;

    for (struct work *work = builder->first; work != NULL; work = next) {
        next = work->sibling;
        work->sibling = NULL;
        end_member(work, pack, status);
    }
    empty(builder);
}

/* Enter a pack that is written, or may be. */
static uint32_t
enter(struct work *work)
{
    struct object_tier *object = work->tier;
    const struct builder *builder = work->builder;
    uint32_t pack = yb_object_pack_new(object);

    if (pack != YB_OBJECT_NO_PACK) {
        object->packs[pack] = (struct pack){.writer = work->name.writer,
                                            .number = work->name.number,
                                            .bytes = builder->bytes + footer_bytes(builder),
                                            .space = builder->space,
                                            .footer_bytes = work->name.footer_bytes,
                                            .used = true};
        object->info.used += object->packs[pack].bytes;
    }
    return pack;
}

static void
packed(struct work *work)
{
    struct object_tier *object = work->tier;
    uint32_t pack = enter(work);

    end_all(work->builder, pack, pack != YB_OBJECT_NO_PACK ? YB_OK : YB_NO_SPACE);
    if (pack != YB_OBJECT_NO_PACK) {
        object->empty_packs += object->packs[pack].blocks == 0;
    }
    yb_object_work_end(work, YB_OK);
}

static void
failed(struct work *work)
{
    uint32_t pack = work->sent ? enter(work) : YB_OBJECT_NO_PACK;

    if (pack != YB_OBJECT_NO_PACK) {
        yb_object_pack_in_doubt(work->tier, pack);
    }
    end_all(work->builder, YB_OBJECT_NO_PACK, work->sent ? YB_IN_DOUBT : work->verdict);
}

static void
step(struct work *work, struct flight *flight, enum yb_status status)
{
    bool lost = flight->request.sent && (status == YB_TIMED_OUT || status == YB_PEER_LOST);
    struct builder *builder = work->builder;

    if (status == YB_OK &&
        (work->stage == STAGE_PUT ||
         flight->request.object_bytes == builder->bytes + footer_bytes(builder))) {
        work->tier->stats.resolved += work->stage == STAGE_CHECK;
        packed(work);
    } else if (work->stage == STAGE_PUT && lost) {
        work->stage = STAGE_CHECK;
        work->refly = true;
    } else {
        bool missing = work->stage == STAGE_CHECK && (status == YB_OK || status == YB_NOT_FOUND);

        work->stage = missing ? STAGE_PUT : work->stage;
        status = missing ? YB_PEER_LOST : status;
        if (!yb_object_work_again(work, flight, status)) {
            work->verdict = status == YB_NO_SPACE ? YB_NO_SPACE
                            : status == YB_IO     ? YB_IO
                                                  : YB_UNREACHABLE;
            yb_object_work_fail(work, status);
        }
    }
}

const struct work_kind yb_object_pack_kind = {
    .name = "pack", .plan = plan, .step = step, .failed = failed};

/* Its work is that of the pack. */
const struct work_kind yb_object_packed_kind = {.name = "packed"};

/* ---- gathering ------------------------------------------------------------------------------- */

static void
close_builder(struct builder *builder)
{
    struct object_tier *object = builder->object;
    struct work *work;

    if (builder->count == 0 || builder->writer != NULL) {
        return;
    }
    work = yb_object_work_take(object, &yb_object_pack_kind, NULL);
    if (work == NULL) { /* Many things are being collected. */
        yb_loop_arm(object->loop, &builder->timer,
                    yb_deadline_after(yb_loop_now(object->loop), object->options.pack_wait_ns));
        return;
    }
    yb_loop_disarm(object->loop, &builder->timer);
    builder->writer = work;
    work->builder = builder;
    work->verdict = YB_UNREACHABLE;
    yb_object_index_space_name(object->index, builder->space, &work->name);
    work->name.kind = YB_OBJECT_IS_PACK;
    work->name.writer = object->writer;
    work->name.number = ++object->next_pack;
    work->name.footer_bytes = (uint32_t)footer_bytes(builder);
    for (const struct work *member = builder->first; member != NULL; member = member->sibling) {
        if (member->item.traffic_class < work->item.traffic_class) {
            work->item.traffic_class = member->item.traffic_class;
        }
    }
    yb_object_work_queue(work, STAGE_PUT, 0);
}

static void
fired(struct yb_timer *timer)
{
    close_builder((struct builder *)((uint8_t *)timer - offsetof(struct builder, timer)));
}

void
yb_object_pack_close_all(struct object_tier *object)
{
    for (uint32_t i = 0; i < BUILDERS; i++) {
        close_builder(&object->builders[i]);
    }
}

static bool
has_room(const struct builder *builder, const struct work *work)
{
    const struct yb_tier_store *store = store_of(work);
    uint64_t length = record_bytes(work);

    return builder->count < PACK_BLOCKS_MAX && builder->record_bytes + length <= PACK_RECORDS_MAX &&
           builder->pieces + store->iov_count + 1 <= PIECES_MAX &&
           builder->bytes + store->record.size + length <= builder->object->options.pack_bytes;
}

static void
append(struct builder *builder, struct work *work)
{
    const struct yb_tier_store *store = store_of(work);
    uint64_t length = record_bytes(work);

    memcpy(builder->iov + builder->pieces, store->iov, store->iov_count * sizeof(struct iovec));
    builder->pieces += store->iov_count;
    builder->iov[builder->pieces++] =
        (struct iovec){builder->records + builder->record_bytes, length};
    work->at = (uint32_t)(builder->bytes / YB_OBJECT_ALIGN);
    builder->bytes += store->record.size + length;
    builder->record_bytes += length;
    builder->count++;
    work->builder = builder;
    work->sibling = NULL;
    *builder->tail = work;
    builder->tail = &work->sibling;
}

/* The builder of a space that has room, or an empty one. */
static struct builder *
choose(struct object_tier *object, uint32_t space, const struct work *work)
{
    struct builder *unused = NULL;

    for (uint32_t i = 0; i < BUILDERS; i++) {
        struct builder *builder = &object->builders[i];

        if (builder->writer != NULL) {
            continue;
        }
        if (builder->count == 0) {
            unused = builder;
        } else if (builder->space == space) {
            if (has_room(builder, work)) {
                return builder;
            }
            close_builder(builder);
        }
    }
    return unused != NULL && has_room(unused, work) ? unused : NULL;
}

bool
yb_object_pack_add(struct work *work)
{
    struct object_tier *object = work->tier;
    uint32_t space = yb_object_index_at(object->index, work->place)->space;
    struct builder *builder = choose(object, space, work);

    if (builder == NULL) {
        return false;
    }
    if (builder->count == 0) {
        builder->space = space;
        yb_loop_arm(object->loop, &builder->timer,
                    yb_deadline_after(yb_loop_now(object->loop), object->options.pack_wait_ns));
    }
    work->kind = &yb_object_packed_kind;
    work->state = WORK_GATHERED;
    append(builder, work);
    yb_loop_arm(object->loop, &work->timer, work->deadline_ns);
    if (builder->bytes + builder->bytes / 64 >= object->options.pack_bytes) {
        close_builder(builder);
    }
    return true;
}

/* Cancelled, killed or late: while it is being gathered it goes, and the others move up. Once it is
 * being written it waits for the end of that. */
void
yb_object_pack_leave(struct work *work)
{
    struct builder *builder = work->builder;
    struct work *member = builder->first, *next;
    enum yb_status status = work->killed                 ? YB_STALE
                            : work->cancelled            ? YB_CANCELLED
                            : work->tier->aside != YB_OK ? YB_UNREACHABLE
                                                         : YB_IN_DOUBT;

    if (builder->writer != NULL) {
        return;
    }
    empty(builder);
    for (; member != NULL; member = next) {
        next = member->sibling;
        if (member != work) {
            append(builder, member);
        }
    }
    work->sibling = NULL;
    end_member(work, YB_OBJECT_NO_PACK, status);
}

/* ---- recovery -------------------------------------------------------------------------------- */

uint8_t *
yb_object_pack_footer_room(const struct object_tier *object, uint32_t bytes)
{
    return bytes < YB_OBJECT_TRAILER_BYTES || bytes > PACK_FOOTER_MAX
               ? NULL
               : object->builders[BUILDERS].footer;
}

/* A footer names a block that is known. What two packs hold, since a rewrite came to no end, stays
 * where it was found first; and no kill object goes before the other pack. */
static void
found_again(struct object_tier *object, struct yb_object_block *block, uint32_t pack)
{
    bool gone = yb_object_block_state_of(block) == YB_OBJECT_BLOCK_GONE;
    bool elsewhere = gone ? (block->more & YB_OBJECT_BLOCK_PACKED) != 0 && block->where != pack
                          : block->pack != pack;

    if (elsewhere) {
        yb_object_pack_set_twin(object, &object->packs[pack], true);
    } else if (gone) {
        yb_object_block_set_in_pack(block, pack); /* Its kill object stays for as long. */
    }
    if (!gone && block->pack == YB_OBJECT_NO_PACK) {
        yb_object_block_set(block, YB_OBJECT_BLOCK_DOUBT); /* To delete its object is not enough. */
    }
}

/* Nothing is known of what is in it, so no kill object may go while it is there. One of another
 * version is somebody else's. */
void
yb_object_pack_unread(struct object_tier *object, const struct yb_object_name *name, uint64_t bytes,
                      enum yb_status why)
{
    uint32_t space = yb_object_index_space(object->index, name->tenant, name->flush);
    uint32_t pack = yb_object_pack_new(object);

    if (pack == YB_OBJECT_NO_PACK || space == YB_OBJECT_NO_SPACE) {
        object->recovery_status = YB_NO_SPACE;
        return;
    }
    object->packs[pack] = (struct pack){.writer = name->writer,
                                        .number = name->number,
                                        .bytes = bytes,
                                        .space = space,
                                        .footer_bytes = name->footer_bytes,
                                        .used = true};
    object->info.used += bytes;
    yb_object_pack_in_doubt(object, pack);
    if (why == YB_VERSION) {
        object->packs[pack].until_ns = YB_NEVER;
    }
}

/* One record of a footer becomes a block. */
static void
found_record(struct object_tier *object, const struct yb_tier_record *record, uint32_t pack,
             uint64_t offset)
{
    struct yb_object_block *block =
        yb_object_index_find(object->index, record->hash, record->grant);
    uint64_t length =
        yb_object_record_bytes(record->size, record->key_bytes, strlen(record->tenant));

    if (block != NULL) {
        found_again(object, block, pack);
        return;
    }
    block = yb_object_index_insert(object->index, record->hash, record->grant,
                                   object->packs[pack].space);
    if (block == NULL) {
        object->recovery_status = YB_NO_SPACE;
        return;
    }
    block->size = (uint32_t)record->size;
    block->kind = yb_object_kind_of(record->mode, record->replicas, record->flags);
    block->pack = pack;
    block->where = (uint32_t)(offset / YB_OBJECT_ALIGN);
    yb_object_block_set_key_bytes(block, record->key_bytes);
    object->packs[pack].live += record->size + length;
    object->packs[pack].blocks++;
    yb_object_found(object, block, record);
}

enum yb_status
yb_object_pack_found(struct object_tier *object, const struct yb_object_name *name, uint64_t bytes,
                     const uint8_t *footer)
{
    enum yb_status status = yb_object_footer_check(footer, name->footer_bytes, bytes);
    struct yb_object_footer_entry entry;
    uint32_t at = 0, space, pack;

    if (status != YB_OK) {
        return status;
    }
    space = yb_object_index_space(object->index, name->tenant, name->flush);
    pack = yb_object_pack_new(object);
    if (pack == YB_OBJECT_NO_PACK || space == YB_OBJECT_NO_SPACE) {
        return YB_NO_SPACE;
    }
    object->packs[pack] = (struct pack){.writer = name->writer,
                                        .number = name->number,
                                        .bytes = bytes,
                                        .space = space,
                                        .footer_bytes = name->footer_bytes,
                                        .used = true};
    object->info.used += bytes;
    while (yb_object_footer_next(footer, name->footer_bytes, bytes - name->footer_bytes, &at,
                                 &entry)) {
        if (entry.sound && entry.record.flush == name->flush &&
            strcmp(entry.tenant, name->tenant) == 0) {
            found_record(object, &entry.record, pack, entry.offset);
        }
    }
    object->empty_packs += object->packs[pack].blocks == 0;
    return YB_OK;
}

/* ---- its life -------------------------------------------------------------------------------- */

static size_t
memory_of(uint32_t i)
{
    return (i == BUILDERS ? 0 : PACK_RECORDS_MAX + PIECES_MAX * sizeof(struct iovec)) +
           PACK_FOOTER_MAX;
}

static void *
map(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

/* The last builder is none: its footer is where recovery reads. */
enum yb_status
yb_object_pack_init(struct object_tier *object)
{
    object->packs = map(PACKS_MAX * sizeof(*object->packs));
    object->builders = map((BUILDERS + 1) * sizeof(*object->builders));
    if (object->packs == NULL || object->builders == NULL) {
        return YB_NO_MEMORY;
    }
    object->writer =
        object->random * 0x9e3779b97f4a7c15ull ^ yb_clock_wall(yb_loop_clock(object->loop));
    for (uint32_t i = 0; i <= BUILDERS; i++) {
        struct builder *builder = &object->builders[i];
        uint8_t *memory = map(memory_of(i));

        if (memory == NULL) {
            return YB_NO_MEMORY;
        }
        builder->object = object;
        builder->footer = memory;
        builder->records = memory + PACK_FOOTER_MAX;
        builder->iov = (struct iovec *)(void *)(memory + PACK_FOOTER_MAX + PACK_RECORDS_MAX);
        yb_timer_init(&builder->timer, fired);
        empty(builder);
    }
    return YB_OK;
}

void
yb_object_pack_fini(struct object_tier *object)
{
    for (uint32_t i = 0; object->builders != NULL && i <= BUILDERS; i++) {
        struct builder *builder = &object->builders[i];

        if (builder->footer != NULL) {
            yb_loop_disarm(object->loop, &builder->timer);
            (void)munmap(builder->footer, memory_of(i));
        }
    }
    if (object->builders != NULL) {
        (void)munmap(object->builders, (BUILDERS + 1) * sizeof(*object->builders));
    }
    if (object->packs != NULL) {
        (void)munmap(object->packs, PACKS_MAX * sizeof(*object->packs));
    }
}
