/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/across.h"

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/stage.h"
#include "transfer/wire/transfer_wire.h"

#define GREETING_NS (10 * YB_NS_PER_S)

/* ---- who is at the other end --------------------------------------------------------------- */

static void
on_greeted(struct yb_call *call)
{
    struct yb_remote *remote = call->owner;

    remote->greeting = false;
    remote->references--;
    yb_remote_check_gone(remote);
}

/* Let the peer say who it is, beside the slices that go another way meanwhile. */
static void
greet(struct yb_remote *remote)
{
    struct yb_wire_ping ping = {0};
    size_t length = 0;

    if (remote->greeting) {
        return;
    }
    YB_ASSERT(yb_wire_ping_encode(&ping, remote->greeting_body, sizeof(remote->greeting_body),
                                  &length) == YB_OK);
    remote->greeting_call = (struct yb_call){
        .type = YB_WIRE_TYPE_PING,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_deadline_after(yb_loop_now(remote->worker->loop), GREETING_NS),
        .body = remote->greeting_body,
        .body_bytes = (uint32_t)length,
        .reply_body = remote->greeting_reply,
        .reply_body_room = sizeof(remote->greeting_reply),
        .done = on_greeted,
        .owner = remote,
    };
    remote->greeting = yb_peer_call(remote->control, &remote->greeting_call) == YB_OK;
    remote->references += remote->greeting;
}

static bool
is_address_of(const struct yb_remote *remote, const struct yb_transfer *target)
{
    for (uint32_t i = 0; i < remote->addresses.count; i++) {
        if (yb_address_equal(&remote->addresses.items[i], &target->address)) {
            return true;
        }
    }
    return false;
}

/* Find the engine of this process that the peer is, and hold it. NULL: it is none, or does not let
 * us. An identity alone is a claim: the address has to be that engine's, too. */
static struct yb_memory_neighbour *
find_neighbour(struct yb_remote *remote)
{
    const struct yb_hello_result *peer = yb_peer_result(remote->control);
    struct yb_memory_neighbour *neighbour;

    if (peer == NULL) {
        greet(remote);
        return NULL;
    }
    neighbour = yb_memory_find_neighbour(remote->engine->memory, peer->identity);
    if (neighbour != NULL && (!is_address_of(remote, neighbour->owner) ||
                              !yb_transfer_peer_allowed(neighbour->owner, peer))) {
        yb_memory_let_go(neighbour);
        neighbour = NULL;
    }
    return neighbour;
}

/* ---- slices --------------------------------------------------------------------------------- */

/* Pin all that a slice wants to reach (X1). Returns false, with nothing pinned, if some of it is
 * refused, or is no memory that our device reaches. */
static bool
pin(struct yb_slice *slice, struct yb_transfer *target)
{
    uint32_t access = slice->op == YB_TRANSFER_WRITE ? YB_REGION_WRITE : YB_REGION_READ;
    bool good;

    for (uint32_t i = 0; i < slice->count; i++) {
        slice->ranges[i] = (struct yb_region_range){
            .region = slice->fragments[i].region,
            .offset = slice->fragments[i].remote_offset,
            .length = slice->fragments[i].length,
        };
    }
    good = yb_region_pin(target->regions, slice->ranges, slice->count, access) == 0;
    for (uint32_t i = 0; i < slice->count && good; i++) {
        good = yb_memory_peers(slice->remote->engine->memory, slice->place,
                               yb_region_place(slice->ranges[i].pinned));
    }
    if (!good) {
        yb_region_unpin(target->regions, slice->ranges, slice->count);
    }
    return good;
}

enum yb_status
yb_across_take(struct yb_slice *slice)
{
    struct yb_remote *remote = slice->remote;
    struct yb_memory_neighbour *neighbour;

    if (slice->place.kind == YB_MEMORY_HOST || slice->staging != NULL ||
        (remote->engine->options.paths & YB_TRANSFER_PATH_DEVICE) == 0 ||
        (slice->avoid & YB_TRANSFER_PATH_DEVICE) != 0 ||
        !yb_copies_possible(&remote->worker->copies)) {
        return YB_UNSUPPORTED;
    }
    neighbour = find_neighbour(remote);
    if (neighbour == NULL) {
        return YB_UNSUPPORTED;
    }
    if (remote->across >= YB_ACROSS_SLICES_MAX) {
        yb_memory_let_go(neighbour);
        return YB_AGAIN;
    }
    if (!pin(slice, neighbour->owner)) {
        slice->avoid |= YB_TRANSFER_PATH_DEVICE;
        remote->worker->across_refused++;
        yb_memory_let_go(neighbour);
        return YB_UNSUPPORTED;
    }
    slice->neighbour = neighbour; /* X2 */
    remote->across++;
    yb_links_begin(yb_net_links(remote->worker->net), remote->link, YB_LINKS_DEVICE,
                   yb_loop_now(remote->worker->loop));
    return YB_OK;
}

/* All copies have ended. */
static void
over(struct yb_slice *slice)
{
    struct yb_transfer *target = slice->neighbour->owner;
    struct yb_remote *remote = slice->remote;

    yb_region_unpin(target->regions, slice->ranges, slice->count);
    yb_memory_let_go(slice->neighbour);
    slice->neighbour = NULL;
    remote->across--;
    yb_remote_count_moved(remote, slice, YB_LINKS_DEVICE, YB_OK);
    yb_remote_dispatch_soon(remote);
    if (slice->state == YB_SLICE_QUARANTINED) {
        yb_stage_release(slice);
        return;
    }
    remote->worker->across_slices++;
    remote->worker->across_bytes += yb_slice_moved(slice);
    yb_remote_end_slice(slice, (struct yb_slice_end){.status = YB_OK}, YB_TRANSFER_PATH_DEVICE);
}

static void
on_copied(struct yb_memory_copy *copy, enum yb_status status)
{
    struct yb_slice *slice = copy->owner;

    if (status != YB_OK) {
        slice->fragments[copy - slice->copy].status = status; /* X3 */
    }
    if (--slice->copies == 0) {
        over(slice);
    }
}

void
yb_across_copy(struct yb_slice *slice)
{
    bool writes = slice->op == YB_TRANSFER_WRITE;

    slice->state = YB_SLICE_COPYING_ACROSS;
    slice->copies = 1; /* Not to be over before all were started. */
    for (uint32_t i = 0; i < slice->count; i++) {
        struct yb_memory_copy *copy = &slice->copy[i];
        struct yb_fragment *fragment = &slice->fragments[i];
        struct yb_memory_place there = yb_region_place(slice->ranges[i].pinned);
        enum yb_status status;

        *copy = (struct yb_memory_copy){
            .to = writes ? slice->ranges[i].bytes : fragment->local,
            .from = writes ? (void *)fragment->local : slice->ranges[i].bytes,
            .length = fragment->length,
            .to_place = writes ? there : slice->place,
            .from_place = writes ? slice->place : there,
            .done = on_copied,
            .owner = slice,
        };
        slice->copies++;
        status = yb_copies_start(&slice->remote->worker->copies, copy);
        if (status != YB_OK) {
            slice->copies--;
            fragment->status = status; /* X3 */
        }
    }
    if (--slice->copies == 0) {
        over(slice);
    }
}
