/* SPDX-License-Identifier: Apache-2.0
 *
 * The answering side of an engine: what peers do to this process's memory.
 *
 * A write's bytes go from the socket straight to their place, which is pinned from
 * before the first byte until the answer; a read's bytes go from their place straight
 * to the socket. Device memory is reached through a staging slice.
 *
 *     write   place: decode, pin --> data lands --> [copy to the device] --> unpin, answer
 *     read    decode, pin --> [copy from the device] --> answer with data --> sent: unpin
 *
 * A read that finds no staging slice waits for one here; a write, whose bytes are behind its
 * header, is told AGAIN and comes again.
 *
 * Invariants
 *   V1  No byte lands outside a range that was pinned for writing (RULES A1, S02).
 *   V2  A write is answered only after its last byte is in place, on the device too.
 *   V3  A drain is answered only when nothing that its sender's process sent before, to
 *       this worker, is still being carried out.
 *   V4  Memory that is registered but cannot be touched any more costs its own fragments
 *       and, once, the connection on which it was met: whoever comes again within
 *       SUSPICIOUS_NS is answered FAULT for it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/conn.h"
#include "net/foreign.h"
#include "transfer/engine_internal.h"
#include "transfer/wire/transfer_wire.h"

#define SUSPICIOUS_NS (10 * YB_NS_PER_S)

struct yb_inbound {
    struct yb_inbound *next;
    struct yb_inbound *previous;
    struct yb_transfer_worker *worker;
    struct yb_request *request;
    struct yb_id identity;
    uint64_t number; /* How many there were before it. */
    bool drain;      /* Waits for the others. */
    bool writes;
    uint32_t count;
    uint32_t copies;
    uint8_t *staging;
    struct yb_inbound *unstaged_next;
    struct yb_region_range ranges[YB_SLICE_FRAGMENTS];
    struct iovec iov[YB_SLICE_FRAGMENTS];
    struct yb_memory_copy copy[YB_SLICE_FRAGMENTS];
};

static struct yb_transfer_worker *
worker_of(struct yb_transfer *engine, const struct yb_request *request)
{
    struct yb_net *net = yb_request_net(request);

    for (uint32_t i = 0; i < engine->worker_count; i++) {
        if (engine->workers[i].net == net) {
            return &engine->workers[i];
        }
    }
    YB_ASSERT(false);
    return NULL;
}

bool
yb_transfer_peer_allowed(const struct yb_transfer *engine, const struct yb_hello_result *peer)
{
    if (peer->role == YB_WIRE_ROLE_NODE || peer->role == YB_WIRE_ROLE_ADMIN) {
        return true;
    }
    return peer->role == YB_WIRE_ROLE_CLIENT && strcmp(peer->tenant, engine->tenant) == 0;
}

/* ---- records -------------------------------------------------------------------------------- */

static struct yb_inbound *
inbound_take(struct yb_transfer_worker *worker, struct yb_request *request)
{
    struct yb_inbound *inbound = worker->inbound_free;

    if (inbound != NULL) {
        worker->inbound_free = inbound->next;
    } else {
        inbound = malloc(sizeof(*inbound));
        if (inbound == NULL) {
            return NULL;
        }
    }
    memset(inbound, 0, offsetof(struct yb_inbound, ranges));
    inbound->worker = worker;
    inbound->request = request;
    inbound->identity = request->peer->identity;
    inbound->number = worker->inbound_ever++;
    inbound->next = worker->inbound;
    if (worker->inbound != NULL) {
        worker->inbound->previous = inbound;
    }
    worker->inbound = inbound;
    request->context = inbound;
    return inbound;
}

bool
yb_transfer_inbound_busy(struct yb_transfer_worker *worker, struct yb_id identity, uint64_t ever)
{
    for (struct yb_inbound *inbound = worker->inbound; inbound != NULL; inbound = inbound->next) {
        if (!inbound->drain && inbound->number < ever && yb_id_equal(identity, inbound->identity)) {
            return true;
        }
    }
    return false;
}

static void
unlink_inbound(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;

    if (inbound->previous != NULL) {
        inbound->previous->next = inbound->next;
    } else {
        worker->inbound = inbound->next;
    }
    if (inbound->next != NULL) {
        inbound->next->previous = inbound->previous;
    }
    inbound->next = worker->inbound_free;
    worker->inbound_free = inbound;
}

/* Answer the drains that nothing stands in front of any more (V3). What came after one is not
 * waited for: its sender may never pause, and a fence waits for the connection of the drain. */
static void
answer_drains(struct yb_transfer_worker *worker)
{
    struct yb_inbound *next;

    for (struct yb_inbound *inbound = worker->inbound; inbound != NULL; inbound = next) {
        next = inbound->next;
        if (inbound->drain &&
            !yb_transfer_inbound_busy(worker, inbound->identity, inbound->number)) {
            struct yb_request *request = inbound->request;

            unlink_inbound(inbound);
            yb_request_reply(request, YB_OK, NULL, 0, NULL, 0);
        }
    }
}

static void run_unstaged(struct yb_task *task);

/* Let go of memory and record. */
static void
inbound_give(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;

    yb_region_unpin(worker->engine->regions, inbound->ranges, inbound->count);
    if (inbound->staging != NULL) {
        yb_copies_give(&worker->copies, YB_COPIES_ANSWERING, inbound->staging);
        if (worker->unstaged_first != NULL) {
            worker->unstaged_task.run = run_unstaged;
            yb_loop_defer(worker->loop, &worker->unstaged_task);
        }
    }
    unlink_inbound(inbound);
    answer_drains(worker);
}

void
yb_transfer_inbound_fini(struct yb_transfer_worker *worker)
{
    YB_ASSERT(worker->inbound == NULL && worker->unstaged_first == NULL);
    yb_loop_undefer(worker->loop, &worker->unstaged_task);
    while (worker->inbound_free != NULL) {
        struct yb_inbound *inbound = worker->inbound_free;

        worker->inbound_free = inbound->next;
        free(inbound);
    }
    free(worker->trash);
    worker->trash = NULL;
}

/* ---- ranges --------------------------------------------------------------------------------- */

/* Read the fragments of a request into ranges. INVALID: not what its table says. */
static enum yb_status
decode_ranges(struct yb_inbound *inbound, uint64_t *total_out)
{
    const struct yb_request *request = inbound->request;
    struct yb_wire_fragments body;
    uint64_t total = 0;

    if (yb_wire_fragments_decode(request->body, request->body_bytes, &body, NULL) != YB_OK) {
        return YB_INVALID;
    }
    inbound->count = body.fragments.count;
    for (uint32_t i = 0; i < inbound->count; i++) {
        struct yb_wire_fragment fragment;

        yb_wire_fragment_at(&body.fragments, i, &fragment);
        if (fragment.length > UINT64_MAX - total) {
            inbound->count = 0;
            return YB_INVALID;
        }
        total += fragment.length;
        inbound->ranges[i] = (struct yb_region_range){
            .region = fragment.region,
            .offset = fragment.offset,
            .length = fragment.length,
        };
    }
    *total_out = total;
    return YB_OK;
}

static bool
on_device(const struct yb_region_range *range)
{
    return range->pinned != NULL && yb_region_place(range->pinned).kind != YB_MEMORY_HOST;
}

/* The memory of a request could not be touched: look before it is tried again (V4). */
static void
note_fault(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;

    if (inbound->request->faulted) {
        worker->suspicious_ns = yb_deadline_after(yb_loop_now(worker->loop), SUSPICIOUS_NS);
    }
}

/* Pin the ranges of a request. Returns how many are refused. */
static uint32_t
pin_ranges(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;
    uint32_t refused = yb_region_pin(worker->engine->regions, inbound->ranges, inbound->count,
                                     inbound->writes ? YB_REGION_WRITE : YB_REGION_READ);

    if (worker->suspicious_ns <= yb_loop_now(worker->loop)) {
        return refused;
    }
    for (uint32_t i = 0; i < inbound->count; i++) {
        struct yb_region_range *range = &inbound->ranges[i];

        if (range->status == YB_OK && range->pinned != NULL && !on_device(range) &&
            yb_foreign_check(range->bytes, range->length, inbound->writes) != YB_OK) {
            range->status = YB_FAULT;
            refused++;
        }
    }
    return refused;
}

/* Whose share of the staging slices a request uses: reads of a peer do not keep its writes out. */
static struct yb_id
staging_owner(const struct yb_inbound *inbound)
{
    struct yb_id owner = inbound->identity;

    owner.bytes[0] ^= inbound->writes ? 1 : 0;
    return owner;
}

/* Give the ranges that lie on a device a place in host memory. */
static enum yb_status
stage(struct yb_inbound *inbound)
{
    struct yb_copies *copies = &inbound->worker->copies;
    uint64_t wanted = 0;
    uint64_t used = 0;

    for (uint32_t i = 0; i < inbound->count; i++) {
        wanted += on_device(&inbound->ranges[i]) ? inbound->ranges[i].length : 0;
    }
    if (wanted == 0) {
        return YB_OK;
    }
    if (!yb_copies_possible(copies) || wanted > YB_COPIES_SLICE_BYTES) {
        return yb_copies_possible(copies) ? YB_TOO_LARGE : YB_UNSUPPORTED;
    }
    inbound->staging = yb_copies_take(copies, YB_COPIES_ANSWERING, staging_owner(inbound));
    if (inbound->staging == NULL) {
        return YB_AGAIN;
    }
    for (uint32_t i = 0; i < inbound->count; i++) {
        if (on_device(&inbound->ranges[i])) {
            inbound->iov[i].iov_base = inbound->staging + used;
            used += inbound->ranges[i].length;
        }
    }
    return YB_OK;
}

/* Point the iov of every range at host memory: its own, staging, or for a refused one trash. */
static enum yb_status
fill_iov(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;

    for (uint32_t i = 0; i < inbound->count; i++) {
        struct yb_region_range *range = &inbound->ranges[i];

        inbound->iov[i].iov_base = range->bytes;
        inbound->iov[i].iov_len = range->length;
        if (range->status == YB_OK) {
            continue;
        }
        if (range->length > YB_SLICE_BYTES) {
            return range->status; /* No room to throw it away piece by piece: refuse all. */
        }
        if (worker->trash == NULL) {
            worker->trash = malloc(YB_SLICE_BYTES);
        }
        if (worker->trash == NULL) {
            return YB_NO_MEMORY;
        }
        inbound->iov[i].iov_base = worker->trash;
    }
    return stage(inbound);
}

static void
count_refused(struct yb_transfer_worker *worker, enum yb_status status)
{
    uint32_t index = (uint32_t) - (int32_t)status;

    worker->refused[index < YB_TRANSFER_REFUSALS ? index : 0]++;
}

/* Answer with the outcomes of refused ranges, if there are any. */
static void
reply_outcomes(struct yb_inbound *inbound, enum yb_status status)
{
    struct yb_wire_outcome native[YB_SLICE_FRAGMENTS];
    struct yb_wire_outcomes outcomes = {.outcomes = {.native = native}};
    uint8_t body[8 + 8 * YB_SLICE_FRAGMENTS];
    struct yb_request *request = inbound->request;
    size_t length = 0;

    for (uint32_t i = 0; status == YB_OK && i < inbound->count; i++) {
        if (inbound->ranges[i].status != YB_OK) {
            native[outcomes.outcomes.count].index = i;
            native[outcomes.outcomes.count++].status = (int32_t)inbound->ranges[i].status;
            count_refused(inbound->worker, inbound->ranges[i].status);
        }
    }
    if (status == YB_OK && outcomes.outcomes.count > 0) {
        YB_ASSERT(yb_wire_outcomes_encode(&outcomes, body, sizeof(body), &length) == YB_OK);
    }
    if (status != YB_OK) {
        count_refused(inbound->worker, status);
    }
    inbound_give(inbound);
    yb_request_reply(request, status, body, (uint32_t)length, NULL, 0);
}

/* ---- copies to and from devices -------------------------------------------------------------- */

static void copies_over(struct yb_inbound *inbound);

static void
on_copied(struct yb_memory_copy *copy, enum yb_status status)
{
    struct yb_inbound *inbound = copy->owner;

    if (status != YB_OK) {
        inbound->ranges[copy - inbound->copy].status = status;
    }
    if (--inbound->copies == 0) {
        copies_over(inbound);
    }
}

static void
start_copies(struct yb_inbound *inbound)
{
    inbound->copies = 1; /* Not to be over before all were started. */
    for (uint32_t i = 0; inbound->staging != NULL && i < inbound->count; i++) {
        struct yb_memory_copy *copy = &inbound->copy[i];
        struct yb_region_range *range = &inbound->ranges[i];
        enum yb_status status;

        if (!on_device(range) || range->length == 0) {
            continue;
        }
        *copy = (struct yb_memory_copy){
            .to = inbound->writes ? range->bytes : inbound->iov[i].iov_base,
            .from = inbound->writes ? inbound->iov[i].iov_base : range->bytes,
            .length = range->length,
            .done = on_copied,
            .owner = inbound,
        };
        if (inbound->writes) {
            copy->to_place = yb_region_place(range->pinned);
        } else {
            copy->from_place = yb_region_place(range->pinned);
        }
        inbound->copies++;
        status = yb_copies_start(&inbound->worker->copies, copy);
        if (status != YB_OK) {
            inbound->copies--;
            range->status = status;
        }
    }
    if (--inbound->copies == 0) {
        copies_over(inbound);
    }
}

static void
on_read_sent(struct yb_request *request)
{
    note_fault(request->context);
    inbound_give(request->context);
}

static void
copies_over(struct yb_inbound *inbound)
{
    struct yb_request *request = inbound->request;
    bool failed = false;

    for (uint32_t i = 0; i < inbound->count; i++) {
        failed = failed || inbound->ranges[i].status != YB_OK;
    }
    if (inbound->writes || failed) {
        reply_outcomes(inbound, YB_OK);
        return;
    }
    request->released = on_read_sent;
    yb_request_reply(request, YB_OK, NULL, 0, inbound->iov, inbound->count);
}

/* ---- reads that wait for staging ------------------------------------------------------------ */

static void
wait_for_staging(struct yb_inbound *inbound)
{
    struct yb_transfer_worker *worker = inbound->worker;

    inbound->unstaged_next = NULL;
    if (worker->unstaged_last != NULL) {
        worker->unstaged_last->unstaged_next = inbound;
    } else {
        worker->unstaged_first = inbound;
    }
    worker->unstaged_last = inbound;
}

/* Go on with those that find staging now, the oldest first. */
static void
run_unstaged(struct yb_task *task)
{
    struct yb_transfer_worker *worker =
        (struct yb_transfer_worker *)((uint8_t *)task -
                                      offsetof(struct yb_transfer_worker, unstaged_task));
    struct yb_inbound *inbound = worker->unstaged_first;
    struct yb_id refused = {{0}}; /* Nobody's. */

    worker->unstaged_first = NULL;
    worker->unstaged_last = NULL;
    while (inbound != NULL) {
        struct yb_inbound *next = inbound->unstaged_next;

        if (yb_id_equal(inbound->identity, refused) || stage(inbound) != YB_OK) {
            refused = inbound->identity;
            wait_for_staging(inbound);
        } else {
            start_copies(inbound);
        }
        inbound = next;
    }
}

/* ---- methods --------------------------------------------------------------------------------- */

static enum yb_status
place_write(void *service, struct yb_request *request, const struct iovec **iov_out,
            uint32_t *count_out)
{
    struct yb_transfer *engine = service;
    struct yb_inbound *inbound;
    enum yb_status status;
    uint64_t total = 0;

    if (!yb_transfer_peer_allowed(engine, request->peer)) {
        count_refused(worker_of(engine, request), YB_DENIED);
        return YB_DENIED;
    }
    inbound = inbound_take(worker_of(engine, request), request);
    if (inbound == NULL) {
        return YB_NO_MEMORY;
    }
    inbound->writes = true;
    status = decode_ranges(inbound, &total);
    if (status == YB_OK && total != request->data_bytes) {
        status = YB_INVALID;
    }
    if (status == YB_OK) {
        (void)pin_ranges(inbound);
        status = fill_iov(inbound);
    }
    if (status != YB_OK) {
        count_refused(inbound->worker, status);
        inbound_give(inbound);
        return status;
    }
    *iov_out = inbound->iov;
    *count_out = inbound->count;
    return YB_OK;
}

static void
handle_write(void *service, struct yb_request *request)
{
    if (request->data_bytes == 0) {
        (void)service;
        yb_request_reply(request, YB_INVALID, NULL, 0, NULL, 0);
        return;
    }
    start_copies(request->context);
}

static void
abort_write(void *service, struct yb_request *request)
{
    (void)service;
    note_fault(request->context);
    inbound_give(request->context);
}

static void
handle_read(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_inbound *inbound;
    enum yb_status status;
    uint64_t total = 0;

    if (!yb_transfer_peer_allowed(engine, request->peer)) {
        count_refused(worker_of(engine, request), YB_DENIED);
        yb_request_reply(request, YB_DENIED, NULL, 0, NULL, 0);
        return;
    }
    inbound = inbound_take(worker_of(engine, request), request);
    if (inbound == NULL) {
        yb_request_reply(request, YB_NO_MEMORY, NULL, 0, NULL, 0);
        return;
    }
    status = decode_ranges(inbound, &total);
    if (status == YB_OK && total == 0) {
        status = YB_INVALID;
    }
    if (status == YB_OK && pin_ranges(inbound) > 0) {
        reply_outcomes(inbound, YB_OK);
        return;
    }
    if (status == YB_OK) {
        status = fill_iov(inbound);
    }
    if (status == YB_AGAIN) {
        wait_for_staging(inbound);
    } else if (status != YB_OK) {
        reply_outcomes(inbound, status);
    } else {
        start_copies(inbound);
    }
}

static void
handle_drain(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_transfer_worker *worker = worker_of(engine, request);
    struct yb_inbound *inbound;

    if (!yb_transfer_inbound_busy(worker, request->peer->identity, UINT64_MAX)) {
        yb_request_reply(request, YB_OK, NULL, 0, NULL, 0);
        return;
    }
    inbound = inbound_take(worker, request);
    if (inbound == NULL) {
        yb_request_reply(request, YB_NO_MEMORY, NULL, 0, NULL, 0);
        return;
    }
    inbound->drain = true;
}

static void
handle_first(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    struct yb_region_info info;
    uint8_t body[YB_WIRE_FIRST_BYTES];
    size_t length = 0;
    enum yb_status status = yb_transfer_peer_allowed(engine, request->peer)
                                ? yb_region_first(engine->regions, &info)
                                : YB_DENIED;

    if (status == YB_OK) {
        const struct yb_wire_first first = {
            .address = (uint64_t)(uintptr_t)info.base,
            .length = info.length,
        };

        status = yb_wire_first_encode(&first, body, sizeof(body), &length);
    }
    yb_request_reply(request, status, body, (uint32_t)length, NULL, 0);
}

static void
handle_notify(void *service, struct yb_request *request)
{
    struct yb_transfer *engine = service;
    enum yb_status status = YB_OK;

    if (!yb_transfer_peer_allowed(engine, request->peer)) {
        yb_request_reply(request, YB_DENIED, NULL, 0, NULL, 0);
        return;
    }
    yb_lock_acquire(&engine->lock);
    if (engine->notification_count == YB_TRANSFER_NOTIFICATIONS_MAX) {
        status = YB_AGAIN;
    } else {
        uint32_t index = (engine->notification_head + engine->notification_count++) %
                         YB_TRANSFER_NOTIFICATIONS_MAX;
        struct yb_transfer_notification *notification = &engine->notifications[index];

        notification->from = request->peer->identity;
        notification->bytes = request->body_bytes;
        memcpy(notification->payload, request->body, request->body_bytes);
    }
    yb_lock_release(&engine->lock);
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}

void
yb_transfer_service_init(struct yb_transfer *engine)
{
    static const struct yb_method methods[] = {
        {
            .type = YB_WIRE_TRANSFER_TYPE_WRITE,
            .name = "transfer_write",
            .roles = YB_ROLE_ANY,
            .lands = true,
            .body_bytes_max = YB_WIRE_FRAGMENTS_BYTES_MAX,
            .place = place_write,
            .handle = handle_write,
            .abort = abort_write,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_READ,
            .name = "transfer_read",
            .roles = YB_ROLE_ANY,
            .body_bytes_max = YB_WIRE_FRAGMENTS_BYTES_MAX,
            .handle = handle_read,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_NOTIFY,
            .name = "transfer_notify",
            .roles = YB_ROLE_ANY,
            .mutates = true,
            .body_bytes_max = YB_WIRE_NOTIFY_BYTES_MAX,
            .handle = handle_notify,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_DRAIN,
            .name = "transfer_drain",
            .roles = YB_ROLE_ANY,
            .handle = handle_drain,
        },
        {
            .type = YB_WIRE_TRANSFER_TYPE_FIRST,
            .name = "transfer_first",
            .roles = YB_ROLE_ANY,
            .handle = handle_first,
        },
    };

    memcpy(engine->methods, methods, sizeof(methods));
    engine->method_count = sizeof(methods) / sizeof(methods[0]);
}
