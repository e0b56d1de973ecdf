/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/stage.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "transfer/engine_internal.h"

static struct yb_id
owner_of(const struct yb_remote *remote)
{
    struct yb_id owner = {{0}};

    memcpy(owner.bytes, &remote->handle, sizeof(remote->handle));
    return owner;
}

void
yb_stage_fill_iov(struct yb_slice *slice)
{
    uint8_t *staging = slice->staging;

    slice->iov_count = slice->count;
    for (uint32_t i = 0; i < slice->count; i++) {
        const struct yb_fragment *fragment = &slice->fragments[i];

        slice->iov[i].iov_base = staging != NULL ? staging : fragment->local;
        slice->iov[i].iov_len = fragment->length;
        staging = staging != NULL ? staging + fragment->length : NULL;
    }
}

/* ---- who waits ------------------------------------------------------------------------------ */

static void
park(struct yb_slice *slice)
{
    struct yb_remote *remote = slice->remote;

    yb_fair_remove(&remote->queue, &slice->queue);
    slice->state = YB_SLICE_PARKED;
    slice->parked_next = NULL;
    slice->parked_previous = remote->parked_last;
    if (remote->parked_last != NULL) {
        remote->parked_last->parked_next = slice;
    } else {
        remote->parked = slice;
    }
    remote->parked_last = slice;
    remote->worker->parked_count++;
}

void
yb_stage_forget(struct yb_slice *slice)
{
    struct yb_remote *remote = slice->remote;

    YB_ASSERT(slice->state == YB_SLICE_PARKED);
    if (slice->parked_previous != NULL) {
        slice->parked_previous->parked_next = slice->parked_next;
    } else {
        remote->parked = slice->parked_next;
    }
    if (slice->parked_next != NULL) {
        slice->parked_next->parked_previous = slice->parked_previous;
    } else {
        remote->parked_last = slice->parked_previous;
    }
    remote->worker->parked_count--;
}

void
yb_stage_unpark(struct yb_remote *remote)
{
    if (!remote->unpark) {
        return;
    }
    remote->unpark = false;
    while (remote->parked != NULL) {
        struct yb_slice *slice = remote->parked;

        yb_stage_forget(slice);
        yb_remote_queue_slice(slice);
    }
}

enum yb_status
yb_stage_take(struct yb_slice *slice)
{
    struct yb_copies *copies = &slice->remote->worker->copies;

    if (slice->place.kind == YB_MEMORY_HOST || slice->staging != NULL) {
        return YB_OK;
    }
    if (!yb_copies_possible(copies)) {
        return YB_UNSUPPORTED;
    }
    YB_ASSERT(slice->bytes <= YB_COPIES_SLICE_BYTES);
    slice->staging = yb_copies_take(copies, YB_COPIES_ASKING, owner_of(slice->remote));
    if (slice->staging == NULL) {
        park(slice);
        return YB_AGAIN;
    }
    return YB_OK;
}

void
yb_stage_give(struct yb_slice *slice)
{
    struct yb_transfer_worker *worker = slice->remote->worker;

    if (slice->staging == NULL) {
        return;
    }
    yb_copies_give(&worker->copies, YB_COPIES_ASKING, slice->staging);
    slice->staging = NULL;
    if (worker->parked_count == 0) {
        return;
    }
    for (struct yb_remote *each = worker->remotes; each != NULL; each = each->next) {
        if (each->parked != NULL) { /* G2 */
            each->unpark = true;
            yb_remote_dispatch_soon(each);
        }
    }
}

/* ---- quarantine ------------------------------------------------------------------------------ */

/* What slices that were parted from a batch keep of it. */
struct yb_quarantine {
    struct yb_region_table *regions;
    uint32_t references; /* The batch until it has ended, and each of the slices. */
    uint32_t pin_count;  /* 0 until the batch has ended. */
    struct yb_region_range pins[];
};

static void
quarantine_unref(struct yb_quarantine *quarantine)
{
    if (--quarantine->references > 0) {
        return;
    }
    yb_region_unpin(quarantine->regions, quarantine->pins, quarantine->pin_count);
    free(quarantine);
}

void
yb_stage_abandon(struct yb_batch *batch)
{
    struct yb_remote *remote = batch->remote;
    struct yb_slice_end end = {.status = YB_BUSY};
    struct yb_slice *next;

    YB_ASSERT(batch->stopped != YB_OK && batch->holds > 0);
    for (struct yb_slice *slice = batch->slices; slice != NULL; slice = next) {
        struct yb_quarantine *quarantine = batch->quarantine;

        next = slice->next;
        if (slice->state != YB_SLICE_COPYING_OUT && slice->state != YB_SLICE_COPYING_IN &&
            slice->state != YB_SLICE_COPYING_ACROSS) {
            continue;
        }
        if (quarantine == NULL) {
            quarantine =
                calloc(1, sizeof(*quarantine) + batch->pin_count * sizeof(quarantine->pins[0]));
            if (quarantine == NULL) {
                return;
            }
            quarantine->regions = batch->engine->regions;
            quarantine->references = 1;
            batch->quarantine = quarantine;
        }
        quarantine->references++;
        slice->quarantine = quarantine;
        slice->state = YB_SLICE_QUARANTINED;
        remote->references++;
        remote->quarantined++;
        remote->worker->quarantined++;
        remote->worker->quarantined_ever++;
        end.in_doubt = slice->neighbour != NULL && slice->op == YB_TRANSFER_WRITE;
        yb_remote_part(slice, end);
    }
}

bool
yb_stage_keep_pins(struct yb_batch *batch)
{
    struct yb_quarantine *quarantine = batch->quarantine;

    if (quarantine == NULL) {
        return false;
    }
    memcpy(quarantine->pins, batch->pins, batch->pin_count * sizeof(batch->pins[0]));
    quarantine->pin_count = batch->pin_count;
    batch->pin_count = 0;
    batch->quarantine = NULL;
    quarantine_unref(quarantine);
    return true;
}

void
yb_stage_release(struct yb_slice *slice)
{
    struct yb_remote *remote = slice->remote;

    quarantine_unref(slice->quarantine);
    slice->quarantine = NULL;
    remote->quarantined--;
    remote->worker->quarantined--;
    yb_remote_give_slice(slice);
    remote->references--;
    yb_remote_check_gone(remote);
}

/* ---- copies --------------------------------------------------------------------------------- */

bool
yb_stage_must_copy_out(const struct yb_slice *slice)
{
    return slice->staging != NULL && slice->op == YB_TRANSFER_WRITE && !slice->staged;
}

/* The copies of a slice have ended: it goes on to its path, or is at its end. */
static void
copies_over(struct yb_slice *slice)
{
    struct yb_remote *remote = slice->remote;
    enum yb_status stopped;

    if (slice->state == YB_SLICE_QUARANTINED) {
        yb_stage_release(slice);
        return;
    }
    stopped = slice->batch->stopped;
    if (slice->state == YB_SLICE_COPYING_IN) {
        yb_remote_end_slice(slice, (struct yb_slice_end){.status = YB_OK}, slice->came_by);
        return;
    }
    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->fragments[i].status != YB_OK) {
            /* The others close up in staging, so they are copied once more. */
            if (yb_remote_drop_failed(slice, 0)) {
                yb_remote_queue_slice(slice);
                yb_remote_dispatch_soon(remote);
            }
            return;
        }
    }
    if (stopped != YB_OK) {
        yb_remote_end_slice(slice, (struct yb_slice_end){.status = stopped}, 0);
        return;
    }
    slice->staged = true;
    yb_remote_queue_slice(slice);
    yb_remote_dispatch_soon(remote);
}

static void
on_copied(struct yb_memory_copy *copy, enum yb_status status)
{
    struct yb_slice *slice = copy->owner;

    if (status != YB_OK) {
        slice->fragments[copy - slice->copy].status = status; /* G3 */
    }
    if (--slice->copies == 0) {
        copies_over(slice);
    }
}

void
yb_stage_copy(struct yb_slice *slice, bool out)
{
    struct yb_copies *copies = &slice->remote->worker->copies;

    slice->state = out ? YB_SLICE_COPYING_OUT : YB_SLICE_COPYING_IN;
    slice->copies = 1; /* Not to be over before all were started. */
    for (uint32_t i = 0; i < slice->count; i++) {
        struct yb_memory_copy *copy = &slice->copy[i];
        struct yb_fragment *fragment = &slice->fragments[i];
        enum yb_status status;

        *copy = (struct yb_memory_copy){
            .to = out ? slice->iov[i].iov_base : (void *)fragment->local,
            .from = out ? (void *)fragment->local : slice->iov[i].iov_base,
            .length = fragment->length,
            .done = on_copied,
            .owner = slice,
        };
        *(out ? &copy->from_place : &copy->to_place) = slice->place;
        slice->copies++;
        status = yb_copies_start(copies, copy);
        if (status != YB_OK) {
            slice->copies--;
            fragment->status = status; /* G3 */
        }
    }
    if (--slice->copies == 0) {
        copies_over(slice);
    }
}
