/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices in flight: who is admitted, whose turn it is, and which regions they are about.
 */
#include <string.h>

#include "base/check.h"
#include "transfer/shm/path_internal.h"

/* What is asked for in one turn of the loop: a message each way wakes a process, which costs what
 * 200 KiB cost to copy. What is below the queue of classes (RULES E5) is two turns' worth, so that
 * the target copies one while the other is answered and asked for. Reads, which hold up this side's
 * loop, have half a turn.
 *
 * That is for whoever has the path alone. Where a first token was seen lately, others are held to a
 * quarter, so that the next one finds little before it. */
#define TURN_BYTES_MAX   (8u * YB_SLICE_BYTES)
#define TURN_FLIGHTS_MAX (YB_SHM_FLIGHTS / 2)
#define FLYING_BYTES_MAX (2u * TURN_BYTES_MAX)
#define FLIGHTS_RESERVED 4u /* For first tokens. */
#define NARROW_SHARE     4u
#define NARROW_NS        (10 * YB_NS_PER_MS)

static enum yb_class
class_of(const struct yb_slice *slice)
{
    return slice->queue.traffic_class;
}

/* Of a limit, what holds for a slice now. */
static uint64_t
limit_for(struct yb_shm_path *path, const struct yb_slice *slice, uint64_t limit)
{
    bool narrow = class_of(slice) != YB_CLASS_FIRST_TOKEN &&
                  yb_loop_now(path->base.remote->worker->loop) < path->narrow_until_ns;

    return narrow ? limit / NARROW_SHARE : limit;
}

/* ---- admission ------------------------------------------------------------------------------- */

/* Whether the peer's loan of a region is there, or may still come. */
static bool
may_map(struct yb_shm_path *path, uint64_t region)
{
    struct yb_shm_mapped mapped;
    enum yb_shm_loan loan = yb_shm_session_pin(path->session, region, false, &mapped);

    if (loan == YB_SHM_LOAN_READY) {
        yb_shm_session_unpin(path->session, region);
    }
    return loan != YB_SHM_LOAN_REFUSED;
}

static bool
serves_read(struct yb_shm_path *path, const struct yb_shm_entry *entry)
{
    return path->info.attach || (entry->backed && may_map(path, entry->region));
}

/* Whether the target can get at our bytes. */
static bool
serves_write(struct yb_shm_path *path, const struct iovec *vector)
{
    struct yb_region_info info;

    if (path->info.attach_theirs) {
        return true;
    }
    return yb_region_find(path->base.remote->engine->regions, vector->iov_base, vector->iov_len,
                          &info) == YB_OK &&
           info.backing.fd >= 0 && (info.access & YB_REGION_READ) != 0;
}

bool
yb_shm_flight_serves(struct yb_shm_path *path, const struct yb_slice *slice)
{
    if (path->base.state != YB_PATH_UP || path->session == NULL ||
        (slice->op == YB_TRANSFER_WRITE && !path->has_tickets)) {
        return false;
    }
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];
        const struct yb_shm_entry *entry =
            yb_shm_catalogue_find(&path->catalogue, fragment->region, fragment->remote_offset);

        if (slice->op == YB_TRANSFER_WRITE && !serves_write(path, &slice->iov[i])) {
            return false;
        }
        if (entry == NULL) {
            continue; /* Not known yet: it will be asked. */
        }
        if (entry->kind != YB_MEMORY_HOST ||
            (slice->op == YB_TRANSFER_READ && !serves_read(path, entry))) {
            return false;
        }
    }
    return true;
}

/* Find a free flight. NULL: there is none for this class, or enough flies that does not give way to
 * it. */
static struct yb_shm_flight *
find_room(struct yb_shm_path *path, const struct yb_slice *slice)
{
    uint32_t spare = class_of(slice) == YB_CLASS_FIRST_TOKEN ? 0 : FLIGHTS_RESERVED;
    struct yb_shm_flight *flight = NULL;
    uint64_t flying = 0;
    uint32_t free_ones = 0;

    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        struct yb_shm_flight *each = &path->flights[i];

        if (each->state == YB_SHM_FLIGHT_FREE) {
            free_ones++;
            flight = flight == NULL ? each : flight;
        } else if (class_of(each->slice) <= class_of(slice)) {
            flying += each->slice->bytes;
        }
    }
    if (free_ones <= spare ||
        (flying > 0 && flying + slice->bytes > limit_for(path, slice, FLYING_BYTES_MAX))) {
        return NULL;
    }
    return flight;
}

enum yb_status
yb_shm_flight_submit(struct yb_shm_path *path, struct yb_slice *slice)
{
    struct yb_loop *loop = path->base.remote->worker->loop;
    struct yb_shm_flight *flight = find_room(path, slice);

    YB_ASSERT(slice->iov_count == slice->count);
    if (path->base.state != YB_PATH_UP) {
        return YB_UNSUPPORTED;
    }
    if (class_of(slice) == YB_CLASS_FIRST_TOKEN) {
        path->narrow_until_ns = yb_deadline_after(yb_loop_now(loop), NARROW_NS);
    }
    if (flight == NULL) {
        return YB_AGAIN;
    }
    flight->state = YB_SHM_FLIGHT_READY;
    flight->order = path->order++;
    flight->slot = path->ticket_first + (uint32_t)(flight - path->flights);
    flight->slice = slice;
    flight->leader = flight;
    flight->next = NULL;
    flight->tries = 0;
    flight->cancelled = false;
    flight->target_ended = false;
    for (uint32_t i = 0; i < slice->count; i++) {
        flight->places[i].known = false;
    }
    path->base.flying++;
    yb_loop_defer(loop, &path->task);
    return YB_OK;
}

void
yb_shm_flight_cancel(struct yb_shm_path *path, struct yb_slice *slice)
{
    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        struct yb_shm_flight *flight = &path->flights[i];

        if (flight->state == YB_SHM_FLIGHT_FREE || flight->slice != slice) {
            continue;
        }
        flight->cancelled = true;
        if (flight->state == YB_SHM_FLIGHT_READY || flight->state == YB_SHM_FLIGHT_WAITING) {
            flight->state = YB_SHM_FLIGHT_READY;
            yb_loop_defer(path->base.remote->worker->loop, &path->task);
        } else if (flight->state != YB_SHM_FLIGHT_COPIED) { /* That ends in this very turn. */
            yb_peer_cancel(path->base.remote->control, &flight->leader->call);
        }
        return;
    }
    YB_ASSERT(false); /* A slice that is cancelled flies. */
}

/* ---- which regions --------------------------------------------------------------------------- */

static void
set_place(struct yb_shm_place *place, const struct yb_shm_entry *entry, uint64_t address)
{
    *place = (struct yb_shm_place){
        .known = true,
        .backed = entry->backed,
        .region = entry->region,
        .address = address,
        .live = entry->live,
    };
}

/* Look a fragment up. Returns false if the peer must be asked. */
static bool
look_up(struct yb_shm_flight *flight, uint32_t index)
{
    struct yb_slice *slice = flight->slice;
    struct yb_fragment *fragment = &slice->fragments[index];
    const struct yb_shm_entry *entry =
        yb_shm_catalogue_find(&flight->path->catalogue, fragment->region, fragment->remote_offset);
    uint64_t address;

    if (entry == NULL || entry->kind != YB_MEMORY_HOST) {
        return false; /* It may have come while the slice waited here: the answer ends it. */
    }
    fragment->status = yb_shm_catalogue_judge(
        entry, fragment->region, fragment->remote_offset, fragment->length,
        slice->op == YB_TRANSFER_READ ? YB_REGION_READ : YB_REGION_WRITE, &address);
    if (fragment->status != YB_OK) {
        /* By the copy that is here; the peer's table has the last word. */
        fragment->status = YB_OK;
        return false;
    }
    set_place(&flight->places[index], entry, address);
    return true;
}

/* Enter what the peer says about one fragment. */
static enum yb_status
take_region(struct yb_shm_flight *flight, uint32_t index, const struct yb_wire_shm_region *region)
{
    struct yb_slice *slice = flight->slice;
    struct yb_fragment *fragment = &slice->fragments[index];
    const struct yb_shm_entry entry = {
        .region = region->region,
        .base = region->base,
        .length = region->length,
        .live = region->live,
        .access = region->access,
        .kind = region->kind,
        .backed = region->backed != 0,
    };
    uint64_t address;

    if (region->status != YB_OK) {
        fragment->status = (enum yb_status)region->status;
        return YB_OK;
    }
    if (yb_shm_catalogue_add(&flight->path->catalogue, &entry) != YB_OK) {
        return YB_PROTOCOL;
    }
    if (entry.kind != YB_MEMORY_HOST) {
        return YB_UNSUPPORTED;
    }
    fragment->status = yb_shm_catalogue_judge(
        &entry, fragment->region, fragment->remote_offset, fragment->length,
        slice->op == YB_TRANSFER_READ ? YB_REGION_READ : YB_REGION_WRITE, &address);
    if (fragment->status == YB_OK) {
        set_place(&flight->places[index], &entry, address);
    }
    return YB_OK;
}

static enum yb_status
take_regions(struct yb_shm_flight *flight)
{
    struct yb_wire_shm_regions regions;
    enum yb_status result = YB_OK;

    if (yb_wire_shm_regions_decode(flight->reply, flight->call.reply_body_bytes, &regions, NULL) !=
            YB_OK ||
        regions.regions.count != flight->asked_count) {
        return YB_PROTOCOL;
    }
    for (uint32_t i = 0; i < flight->asked_count; i++) {
        struct yb_wire_shm_region region;
        enum yb_status status;

        yb_wire_shm_region_at(&regions.regions, i, &region);
        status = take_region(flight, flight->asked[i], &region);
        result = result == YB_OK ? status : result;
    }
    return result;
}

static void
on_described(struct yb_call *call)
{
    struct yb_shm_flight *flight = call->owner;
    struct yb_shm_path *path = flight->path;
    enum yb_status status = call->status;

    flight->state = YB_SHM_FLIGHT_READY;
    if (flight->cancelled || !call->answered) {
        yb_shm_flight_end(flight, (struct yb_slice_end){
                                      .status = status == YB_OK ? YB_CANCELLED : status,
                                      .path_failed = status == YB_PEER_LOST,
                                  });
        return;
    }
    if (status == YB_OK) {
        status = take_regions(flight);
    }
    if (status != YB_OK) {
        yb_shm_flight_fail(flight, status, false);
        return;
    }
    yb_loop_defer(path->base.remote->worker->loop, &path->task);
}

/* Ask the peer about the fragments in `asked`. */
static void
ask_regions(struct yb_shm_flight *flight)
{
    struct yb_wire_fragment native[YB_SLICE_FRAGMENTS];
    struct yb_wire_fragments body = {
        .fragments = {.count = flight->asked_count, .native = native},
    };
    size_t length = 0;
    enum yb_status status;

    for (uint32_t i = 0; i < flight->asked_count; i++) {
        const struct yb_fragment *fragment = &flight->slice->fragments[flight->asked[i]];

        native[i].region = fragment->region;
        native[i].offset = fragment->remote_offset;
        native[i].length = fragment->length;
    }
    YB_ASSERT(yb_wire_fragments_encode(&body, flight->body, sizeof(flight->body), &length) ==
              YB_OK);
    yb_shm_path_call(flight, YB_WIRE_TRANSFER_TYPE_SHM_REGIONS, (uint32_t)length, on_described);
    status = yb_peer_call(flight->path->base.remote->control, &flight->call);
    if (status == YB_OK) {
        flight->state = YB_SHM_FLIGHT_RESOLVING;
    } else {
        yb_shm_flight_fail(flight, status, false);
    }
}

/* ---- turns ----------------------------------------------------------------------------------- */

bool
yb_shm_flight_resolve(struct yb_shm_flight *flight)
{
    const struct yb_slice *slice = flight->slice;

    flight->asked_count = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->fragments[i].status == YB_OK && !flight->places[i].known &&
            !look_up(flight, i)) {
            flight->asked[flight->asked_count++] = (uint8_t)i;
        }
    }
    return flight->asked_count == 0;
}

/* Returns how much of the turn it took, in bytes. */
static uint64_t
step(struct yb_shm_flight *flight)
{
    struct yb_shm_path *path = flight->path;
    uint64_t bytes = 2 * flight->slice->bytes;

    if (flight->cancelled) {
        yb_shm_flight_end(flight, (struct yb_slice_end){.status = YB_CANCELLED});
        return 0;
    }
    if (path->session == NULL || path->session_closing || !yb_shm_session_up(path->session)) {
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        return 0;
    }
    if (!yb_shm_flight_resolve(flight)) {
        ask_regions(flight);
        return 0;
    }
    if (flight->slice->op == YB_TRANSFER_WRITE) {
        return yb_shm_pull_step(flight);
    }
    yb_shm_read_step(flight);
    return bytes;
}

static bool
goes_before(const struct yb_shm_flight *one, const struct yb_shm_flight *other)
{
    enum yb_class class = class_of(one->slice);

    return class != class_of(other->slice) ? class < class_of(other->slice)
                                           : one->order < other->order;
}

struct yb_shm_flight *
yb_shm_flight_first(struct yb_shm_path *path, enum yb_shm_flight_state state,
                    const struct yb_batch *batch)
{
    struct yb_shm_flight *first = NULL;

    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        struct yb_shm_flight *flight = &path->flights[i];

        if (flight->state == state && (batch == NULL || flight->slice->batch == batch) &&
            (first == NULL || goes_before(flight, first))) {
            first = flight;
        }
    }
    return first;
}

void
yb_shm_flight_run(struct yb_shm_path *path)
{
    struct yb_shm_flight *flight;
    uint64_t bytes = 0;
    uint32_t count = 0;

    path->holds++; /* The path stays until this returns. */
    while ((flight = yb_shm_flight_first(path, YB_SHM_FLIGHT_READY, NULL)) != NULL) {
        if (bytes >= limit_for(path, flight->slice, TURN_BYTES_MAX) ||
            count++ == TURN_FLIGHTS_MAX) {
            yb_loop_defer(path->base.remote->worker->loop, &path->task);
            break;
        }
        bytes += step(flight);
    }
    yb_shm_read_settle(path);
    path->holds--;
    yb_shm_path_check_gone(path);
}

void
yb_shm_flight_news(struct yb_shm_path *path)
{
    bool up = path->session != NULL && yb_shm_session_up(path->session) && !path->closing;

    path->holds++;
    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        struct yb_shm_flight *flight = &path->flights[i];

        if (flight->state == YB_SHM_FLIGHT_WAITING) {
            flight->state = YB_SHM_FLIGHT_READY;
            yb_loop_defer(path->base.remote->worker->loop, &path->task);
        }
        if (!up && flight->state == YB_SHM_FLIGHT_READY) {
            yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        } else if (!path->closing && path->info.process_ended &&
                   flight->state == YB_SHM_FLIGHT_PULLING && flight->leader == flight &&
                   !flight->target_ended) {
            flight->target_ended = true; /* F2 */
            yb_peer_cancel(path->base.remote->control, &flight->call);
        }
    }
    path->holds--;
}

/* ---- ends ------------------------------------------------------------------------------------ */

void
yb_shm_flight_end(struct yb_shm_flight *flight, struct yb_slice_end end)
{
    struct yb_shm_path *path = flight->path;
    struct yb_slice *slice = flight->slice;
    struct yb_path_counts *counts = &path->base.counts;

    YB_ASSERT(flight->state != YB_SHM_FLIGHT_FREE);
    flight->state = YB_SHM_FLIGHT_FREE;
    flight->slice = NULL;
    counts->slices++;
    if (end.status != YB_OK) {
        counts->failures++;
    } else if (slice->op == YB_TRANSFER_READ) {
        counts->bytes_read += yb_slice_moved(slice);
    } else {
        counts->bytes_written += yb_slice_moved(slice);
    }
    yb_slice_done(slice, end);
    if (path->base.state == YB_PATH_UP) {
        yb_remote_room(&path->base);
    }
    path->base.flying--;
    yb_shm_path_check_gone(path);
}

void
yb_shm_flight_fail(struct yb_shm_flight *flight, enum yb_status status, bool in_doubt)
{
    struct yb_slice *slice = flight->slice;

    for (uint32_t i = 0; i < slice->count; i++) {
        slice->fragments[i].status = YB_OK; /* The next path judges them itself. */
    }
    yb_shm_flight_end(flight, (struct yb_slice_end){
                                  .status = status,
                                  .in_doubt = in_doubt,
                                  .path_failed = true,
                              });
}
