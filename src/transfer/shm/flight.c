/* SPDX-License-Identifier: Apache-2.0
 *
 * Slices in flight: who is admitted, whose turn it is, and which regions they are about.
 */
#include <string.h>

#include "base/check.h"
#include "transfer/shm/path_internal.h"

/* What is below the queue of classes (RULES E5): enough to overlap asking and copying. */
#define FLYING_BYTES_MAX (4u * YB_SLICE_BYTES)
#define TURN_BYTES_MAX   YB_SLICE_BYTES

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

enum yb_status
yb_shm_flight_submit(struct yb_shm_path *path, struct yb_slice *slice)
{
    struct yb_shm_flight *flight = NULL;
    uint64_t flying = 0;

    YB_ASSERT(slice->iov_count == slice->count);
    if (path->base.state != YB_PATH_UP) {
        return YB_UNSUPPORTED;
    }
    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        if (path->flights[i].state == YB_SHM_FLIGHT_FREE) {
            flight = flight == NULL ? &path->flights[i] : flight;
        } else {
            flying += path->flights[i].slice->bytes;
        }
    }
    if (flight == NULL || (flying > 0 && flying + slice->bytes > FLYING_BYTES_MAX)) {
        return YB_AGAIN;
    }
    flight->state = YB_SHM_FLIGHT_READY;
    flight->order = path->order++;
    flight->slot = path->ticket_first + (uint32_t)(flight - path->flights);
    flight->slice = slice;
    flight->tries = 0;
    flight->cancelled = false;
    flight->target_ended = false;
    for (uint32_t i = 0; i < slice->count; i++) {
        flight->places[i].known = false;
    }
    path->base.flying++;
    yb_loop_defer(path->base.remote->worker->loop, &path->task);
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
        } else {
            yb_peer_cancel(path->base.remote->control, &flight->call);
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

    if (entry == NULL) {
        return false;
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

static void
step(struct yb_shm_flight *flight)
{
    struct yb_shm_path *path = flight->path;
    struct yb_slice *slice = flight->slice;

    if (flight->cancelled) {
        yb_shm_flight_end(flight, (struct yb_slice_end){.status = YB_CANCELLED});
        return;
    }
    if (path->session == NULL || path->session_closing || !yb_shm_session_up(path->session)) {
        yb_shm_flight_fail(flight, YB_PEER_LOST, false);
        return;
    }
    flight->asked_count = 0;
    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->fragments[i].status == YB_OK && !flight->places[i].known &&
            !look_up(flight, i)) {
            flight->asked[flight->asked_count++] = (uint8_t)i;
        }
    }
    if (flight->asked_count > 0) {
        ask_regions(flight);
    } else if (slice->op == YB_TRANSFER_READ) {
        yb_shm_read_step(flight);
    } else {
        yb_shm_pull_step(flight);
    }
}

static struct yb_shm_flight *
first_ready(struct yb_shm_path *path)
{
    struct yb_shm_flight *first = NULL;

    for (uint32_t i = 0; i < YB_SHM_FLIGHTS; i++) {
        struct yb_shm_flight *flight = &path->flights[i];

        if (flight->state == YB_SHM_FLIGHT_READY &&
            (first == NULL || flight->order < first->order)) {
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

    path->holds++; /* The path stays until this returns. */
    while ((flight = first_ready(path)) != NULL) {
        if (bytes >= TURN_BYTES_MAX) {
            yb_loop_defer(path->base.remote->worker->loop, &path->task);
            break;
        }
        bytes += flight->slice->bytes;
        step(flight);
    }
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
                   flight->state == YB_SHM_FLIGHT_PULLING && !flight->target_ended) {
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
