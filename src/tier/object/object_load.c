/* SPDX-License-Identifier: Apache-2.0
 *
 * A block comes in. The chunks that a range touches are read whole, since each has one checksum:
 * what was not asked for of them goes to the flight's own memory. The record behind the value is
 * read with it; where the range ends far before, it is asked for first.
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "tier/object/object_internal.h"

static struct yb_tier_load *
load_of(const struct work *work)
{
    return (struct yb_tier_load *)work->op;
}

/* ---- on a thread of the backend's ------------------------------------------------------------ */

static enum yb_status
check_record(const struct work *work, const uint8_t *bytes, struct yb_tier_record *parsed_out,
             char tenant_out[72], const uint8_t **sums_out)
{
    const struct yb_tier_load *load = load_of(work);
    enum yb_status status =
        yb_object_record_decode(bytes, work->record_bytes, parsed_out, tenant_out, sums_out);

    if (status != YB_OK) {
        return status;
    }
    if (!yb_id_equal(parsed_out->hash, load->hash) || parsed_out->grant != work->name.grant ||
        parsed_out->size != work->name.size) {
        return YB_CORRUPT;
    }
    if (load->key_bytes != 0 && (load->key_bytes != parsed_out->key_bytes ||
                                 memcmp(load->key, parsed_out->key, parsed_out->key_bytes) != 0)) {
        return YB_NOT_FOUND; /* Another key with the same hash. */
    }
    return YB_OK;
}

/* Add a piece to the sums of the chunks that it lies in. */
static void
sum_piece(struct flight *flight, const uint8_t *bytes, uint64_t length)
{
    while (length > 0) {
        uint64_t room = YB_TIER_CHUNK_BYTES - flight->summed % YB_TIER_CHUNK_BYTES;
        uint64_t part = length < room ? length : room;

        flight->sum = yb_crc32c_update(flight->sum, bytes, (size_t)part);
        flight->summed += part;
        bytes += part;
        length -= part;
        if (part == room || flight->summed == flight->last - flight->first) {
            flight->sums[(flight->summed - 1) / YB_TIER_CHUNK_BYTES] = flight->sum;
            flight->sum = 0;
        }
    }
}

/* So many of the request's bytes are there: sum what is new of the value. */
static void
sum_until(struct yb_object_request *request, uint64_t count)
{
    struct flight *flight = (struct flight *)request;
    uint64_t value = flight->last - flight->first;
    uint64_t begin = 0, end = count < value ? count : value;
    struct iovec piece;

    if (end < flight->summed || flight->summed == 0) {
        flight->summed = flight->sum = 0; /* They come once more. */
    }
    for (uint32_t i = 0; begin < end && yb_object_piece(&request->bytes, &i, &piece);) {
        uint64_t here = begin + piece.iov_len < end ? begin + piece.iov_len : end;

        if (here > flight->summed) {
            sum_piece(flight, (const uint8_t *)piece.iov_base + (flight->summed - begin),
                      here - flight->summed);
        }
        begin += piece.iov_len;
    }
}

/* Compare the chunks from `first` to `last`. */
static enum yb_status
check_chunks(struct flight *flight, const uint8_t *sums)
{
    const struct yb_tier_load *load = load_of(flight->work);
    uint64_t end = load->offset + load->length;
    uint32_t told = 0;

    sum_until(&flight->request, UINT64_MAX);
    for (uint64_t at = flight->first; at < flight->last; at += YB_TIER_CHUNK_BYTES) {
        uint32_t sum = flight->sums[(at - flight->first) / YB_TIER_CHUNK_BYTES];
        uint64_t behind = at + YB_TIER_CHUNK_BYTES;

        if (sum != yb_object_record_sum(sums, (uint32_t)(at / YB_TIER_CHUNK_BYTES))) {
            return YB_CORRUPT;
        }
        if (load->sums_out != NULL && at >= load->offset &&
            (behind < flight->last ? behind : flight->last) <= end) {
            load->sums_out[told++] = sum;
        }
    }
    return YB_OK;
}

static enum yb_status
judge_tail(struct yb_object_request *request)
{
    struct flight *flight = (struct flight *)request;
    const uint8_t *sums;

    return check_record(flight->work, flight->record, &flight->parsed, flight->tenant, &sums);
}

static enum yb_status
judge(struct yb_object_request *request)
{
    struct flight *flight = (struct flight *)request;
    const uint8_t *sums = NULL;
    enum yb_status status =
        check_record(flight->work, flight->record, &flight->parsed, flight->tenant, &sums);

    return status == YB_OK ? check_chunks(flight, sums) : status;
}

/* The same of a load of a whole block, from the caller's memory. */
enum yb_status
yb_object_load_judge(const struct work *work, const uint8_t *record,
                     struct yb_tier_record *parsed_out, char tenant_out[72])
{
    const struct yb_tier_load *load = load_of(work);
    const struct yb_tier_store as_stored = {.iov = load->iov, .iov_count = load->iov_count};
    uint32_t found[CHUNKS_MAX];
    const uint8_t *sums = NULL;
    enum yb_status status = check_record(work, record, parsed_out, tenant_out, &sums);

    if (status != YB_OK) {
        return status;
    }
    yb_object_sum_chunks(&as_stored, found);
    for (uint32_t i = 0; i < yb_object_sum_count(parsed_out->size); i++) {
        if (found[i] != yb_object_record_sum(sums, i)) {
            return YB_CORRUPT;
        }
        if (load->sums_out != NULL) {
            load->sums_out[i] = found[i];
        }
    }
    return YB_OK;
}

/* ---- the stages ------------------------------------------------------------------------------ */

static bool
is_far(const struct work *work)
{
    const struct yb_tier_load *load = load_of(work);

    return work->name.size - load->offset - load->length > GAP_BYTES_MAX;
}

static void
plan_get(struct work *work, struct flight *flight)
{
    const struct yb_tier_load *load = load_of(work);
    struct yb_object_request *request = &flight->request;
    uint64_t size = work->name.size, end = load->offset + load->length;
    bool far = is_far(work); /* Then the record is here already. */

    flight->first = load->offset - load->offset % YB_TIER_CHUNK_BYTES;
    flight->last = (end + YB_TIER_CHUNK_BYTES - 1) / YB_TIER_CHUNK_BYTES * YB_TIER_CHUNK_BYTES;
    flight->last = flight->last > size ? size : flight->last;
    if (load->length == 0) {
        flight->first = flight->last = end;
    }
    flight->summed = 0;
    request->verb = YB_OBJECT_GET;
    request->came = sum_until;
    request->after = judge;
    request->offset = work->base + flight->first;
    request->bytes.lead = (struct iovec){flight->edges[0], load->offset - flight->first};
    request->bytes.iov = load->iov;
    request->bytes.iov_count = load->iov_count;
    request->bytes.trail = (struct iovec){flight->edges[1], flight->last - end};
    if (!far) {
        request->bytes.gap = size - flight->last;
        request->bytes.tail = (struct iovec){flight->record, work->record_bytes};
        request->whole = work->pack == YB_OBJECT_NO_PACK && flight->first == 0;
    }
}

static void
name_object(struct work *work, struct yb_object_request *request)
{
    struct yb_object_name name = work->name;

    name.kind = work->stage == STAGE_WAS_KILLED ? YB_OBJECT_IS_KILL : YB_OBJECT_IS_BLOCK;
    if (work->pack != YB_OBJECT_NO_PACK) {
        yb_object_pack_name(work->tier, work->pack, &name);
    }
    YB_ASSERT(yb_object_name_format(&name, request->name) == YB_OK);
}

static void
plan(struct work *work, struct flight *flight)
{
    const struct yb_tier_load *load = load_of(work);
    struct yb_object_request *request = &flight->request;

    if (work->stage == STAGE_PROBE) {
        YB_ASSERT(yb_object_name_prefix(load->tenant, load->flush, &load->hash, request->name) ==
                  YB_OK);
        request->verb = YB_OBJECT_LIST;
        request->entries = flight->found;
        request->entries_max = FOUND_ENTRIES;
        return;
    }
    name_object(work, request);
    if (work->stage == STAGE_WAS_KILLED) {
        request->verb = YB_OBJECT_HEAD;
        return;
    }
    if (work->stage == STAGE_GET) {
        plan_get(work, flight);
        if (work->pack != YB_OBJECT_NO_PACK) {
            yb_object_merge_plan(work, flight);
        }
        return;
    }
    request->verb = YB_OBJECT_GET;
    request->after = judge_tail;
    request->offset = work->base + work->name.size;
    request->bytes.tail = (struct iovec){flight->record, work->record_bytes};
}

/* What the medium does not have, or has wrong, is dropped. An object of another version is a miss,
 * and not ours to delete; a pack is of one version, so that there it is damage. */
void
yb_object_load_drop(struct work *work, enum yb_status why)
{
    struct object_tier *object = work->tier;
    struct yb_object_block *block =
        yb_object_index_find(object->index, load_of(work)->hash, work->name.grant);
    bool foreign = why == YB_VERSION && work->pack == YB_OBJECT_NO_PACK;

    why = foreign || why == YB_NOT_FOUND ? YB_NOT_FOUND : YB_CORRUPT;
    object->info.corrupt += why == YB_CORRUPT;
    if (block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_RESIDENT) {
        yb_object_drop(object, block);
        if (foreign) {
            yb_object_block_set(block, YB_OBJECT_BLOCK_DELETED);
        }
        yb_object_tell_lost(object, load_of(work)->hash, work->name.grant, why);
    }
    yb_object_work_end(work, why);
}

void
yb_object_load_finish(struct work *work, const struct yb_tier_record *parsed, const char *tenant)
{
    struct yb_tier_load *load = load_of(work);
    struct yb_object_block *block =
        yb_object_index_find(work->tier->index, load->hash, work->name.grant);

    load->record_out = *parsed;
    memcpy(load->tenant_out, tenant, strlen(tenant) + 1);
    memcpy(load->key_out, parsed->key, parsed->key_bytes);
    load->record_out.tenant = load->tenant_out;
    load->record_out.key = load->key_out;
    if (block != NULL && yb_object_block_state_of(block) == YB_OBJECT_BLOCK_RESIDENT) {
        yb_object_block_was_read(block);
    }
    yb_object_work_end(work, YB_OK);
}

/* Whether the range lies in a value of the size that was found. */
static bool
fits(const struct yb_tier_load *load, uint64_t size)
{
    return load->offset <= size && load->length <= size - load->offset;
}

/* The highest grant that a listing shows and that nobody has killed. */
static void
step_probe(struct work *work, struct flight *flight, enum yb_status status)
{
    struct object_tier *object = work->tier;
    const struct yb_tier_load *load = load_of(work);
    const struct yb_object_request *request = &flight->request;
    struct yb_object_name name;
    bool found = false;

    if (status != YB_OK) {
        if (!yb_object_work_again(work, flight, status)) {
            yb_object_work_fail(work, status);
        }
        return;
    }
    object->backend->ops->end_list(object->backend, &flight->request);
    for (uint32_t i = 0; i < request->entry_count; i++) {
        const struct yb_object_block *known;
        uint64_t record_bytes;

        if (!yb_object_name_parse(request->entries[i].name, &name) ||
            name.kind != YB_OBJECT_IS_BLOCK || request->entries[i].size < name.size ||
            (load->grant != 0 && name.grant != load->grant) || !fits(load, name.size) ||
            (found && name.grant < work->name.grant)) {
            continue;
        }
        known = yb_object_index_find(object->index, name.hash, name.grant);
        record_bytes = request->entries[i].size - name.size;
        if ((known == NULL || yb_object_block_state_of(known) != YB_OBJECT_BLOCK_GONE) &&
            record_bytes <= RECORD_BYTES_MAX) {
            found = true;
            work->name = name;
            work->record_bytes = record_bytes;
        }
    }
    if (!found) {
        yb_object_work_end(work, YB_NOT_FOUND);
    } else {
        yb_object_work_go(work, !object->kills_known ? STAGE_WAS_KILLED
                                : is_far(work)       ? STAGE_TAIL
                                                     : STAGE_GET);
    }
}

static void
step_was_killed(struct work *work, struct flight *flight, enum yb_status status)
{
    if (status == YB_OK) {
        yb_object_work_end(work, YB_NOT_FOUND);
    } else if (status == YB_NOT_FOUND) {
        yb_object_work_go(work, is_far(work) ? STAGE_TAIL : STAGE_GET);
    } else if (!yb_object_work_again(work, flight, status)) {
        yb_object_work_fail(work, status);
    }
}

static void
step(struct work *work, struct flight *flight, enum yb_status status)
{
    if (flight->member_count > 0) {
        yb_object_merge_done(flight, status);
        return;
    }
    if (work->stage == STAGE_PROBE) {
        step_probe(work, flight, status);
        return;
    }
    if (work->stage == STAGE_WAS_KILLED) {
        step_was_killed(work, flight, status);
        return;
    }
    if (status == YB_OK && work->stage == STAGE_TAIL) {
        yb_object_work_go(work, STAGE_GET);
    } else if (status == YB_OK) {
        yb_object_load_finish(work, &flight->parsed, flight->tenant);
    } else if (status == YB_NOT_FOUND && flight->request.judged) {
        yb_object_work_end(work, YB_NOT_FOUND); /* The key is another one. */
    } else if (status == YB_NOT_FOUND || status == YB_CORRUPT || status == YB_VERSION) {
        yb_object_load_drop(work, status);
    } else {
        work->stage = is_far(work) ? STAGE_TAIL : STAGE_GET;
        if (!yb_object_work_again(work, flight, status)) {
            yb_object_work_fail(work, status);
        }
    }
}

static void
over(struct work *work)
{
    if (work->pack != YB_OBJECT_NO_PACK) {
        work->tier->packs[work->pack].loads--;
    }
}

const struct work_kind yb_object_load_kind = {
    .name = "load", .plan = plan, .step = step, .over = over};

/* ---- the call -------------------------------------------------------------------------------- */

/* Which block is meant; NULL with *status_out: none. */
static const struct yb_object_block *
choose(struct object_tier *object, const struct yb_tier_load *load, enum yb_status *status_out)
{
    const struct yb_object_block *highest =
        yb_object_index_highest(object->index, load->hash, true);
    const struct yb_object_block *block = highest;

    *status_out = YB_NOT_FOUND;
    if (load->grant != 0) {
        block = yb_object_index_find(object->index, load->hash, load->grant);
        if (block == NULL || yb_object_block_state_of(block) != YB_OBJECT_BLOCK_RESIDENT ||
            yb_object_index_space_at(object->index, block->space)->dead) {
            *status_out = highest == NULL ? YB_NOT_FOUND : YB_STALE;
            block = NULL;
        }
    }
    if (block != NULL) {
        *status_out = fits(load, yb_object_block_size(block)) ? YB_OK : YB_INVALID;
    }
    return *status_out == YB_OK ? block : NULL;
}

enum yb_status
yb_object_load(struct yb_tier *tier, struct yb_tier_load *load)
{
    struct object_tier *object = object_of(tier);
    enum yb_status status;
    const struct yb_object_block *block = choose(object, load, &status);
    char unused[YB_OBJECT_NAME_MAX];
    bool probes = status == YB_NOT_FOUND && object->recovering && load->tenant != NULL &&
                  load->flush >= yb_object_index_floor(object->index, load->tenant) &&
                  yb_object_name_prefix(load->tenant, load->flush, &load->hash, unused) == YB_OK;
    struct work *work;

    if (status == YB_INVALID) {
        return YB_INVALID;
    }
    if (object->aside != YB_OK || object->stopping) {
        status = YB_UNREACHABLE;
        block = NULL;
        probes = false;
    }
    if (block == NULL && !probes) {
        work = yb_object_work_end_at_once(object, &yb_object_plain_kind, &load->op, status);
        return work == NULL ? YB_AGAIN : YB_OK;
    }
    work = yb_object_work_take(object, &yb_object_load_kind, &load->op);
    if (work == NULL) {
        return YB_AGAIN;
    }
    work->base = 0;
    work->pack = YB_OBJECT_NO_PACK;
    if (probes) {
        object->stats.probes++;
        yb_object_work_queue(work, STAGE_PROBE, load->length);
        return YB_OK;
    }
    yb_object_block_name(object, block, &work->name);
    work->record_bytes = yb_object_block_bytes(object, block) - work->name.size;
    if (block->pack != YB_OBJECT_NO_PACK) {
        work->pack = block->pack;
        object->packs[work->pack].loads++;
        work->base = (uint64_t)block->where * YB_OBJECT_ALIGN;
    }
    yb_object_work_queue(work, is_far(work) ? STAGE_TAIL : STAGE_GET, load->length);
    return YB_OK;
}
