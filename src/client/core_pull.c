/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts whose values the node fetches from our memory.
 *
 *     register what is not registered --> PUT_PULL --> answer --> clear the ticket --> unregister
 *
 * A message ends when it is answered, when its time is over, or with its connection; of the last
 * two the node knows nothing, and may still read. So each message has a ticket: a word that the
 * node reads after the last byte, and that is cleared here before the values' owner hears of the
 * end. A node that was late finds no ticket, and commits nothing (C6).
 */
#include <stdatomic.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

#define REGISTER_BYTES_MIN 65536u /* Less is not worth to be registered for one message. */

/* ---- memory that a node reads ---------------------------------------------------------------- */

void
yb_core_held_look(struct yb_client_core *core)
{
    struct yb_core_near *near = core->near;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < near->held_count; i++) {
        if (yb_transfer_unregister(core->options.engine, near->held[i], 0) == YB_BUSY) {
            near->held[kept++] = near->held[i];
        }
    }
    near->held_count = kept;
}

/* Undo what was registered for a message. What somebody still reads is looked at again later. */
static void
let_go(struct yb_core_io *io)
{
    struct yb_core_near *near = io->core->near;

    for (uint32_t i = 0; i < io->held_count; i++) {
        uint64_t patience_ns = near->held_count < YB_CORE_HELD_MAX ? 0 : YB_NS_PER_S;

        if (yb_transfer_unregister(io->core->options.engine, io->held[i], patience_ns) == YB_BUSY &&
            near->held_count < YB_CORE_HELD_MAX) {
            near->held[near->held_count++] = io->held[i];
        }
    }
    io->held_count = 0;
}

/* Let the node read a piece, for as long as the message takes. */
static bool
hold(struct yb_core_io *io, const struct iovec *piece)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .access = YB_TRANSFER_MAY_READ,
    };
    struct yb_transfer *engine = io->core->options.engine;

    if (yb_transfer_cover(engine, piece->iov_base, piece->iov_len) == YB_TRANSFER_COVER_AROUND) {
        return true; /* Its owner has told us of it: yb_client_register(). */
    }
    if (yb_transfer_register(engine, piece->iov_base, piece->iov_len, &memory, NULL) != YB_OK) {
        return yb_transfer_cover(engine, piece->iov_base, piece->iov_len) != YB_TRANSFER_COVER_NONE;
    }
    io->held[io->held_count++] = piece->iov_base;
    return true;
}

/* ---- route ----------------------------------------------------------------------------------- */

/* Whether every piece is registered, or large enough to be. */
static bool
can_hold(const struct yb_client_core *core, const struct yb_client_item *asked)
{
    for (uint32_t i = 0; i < asked->iov_count; i++) {
        const struct iovec *piece = &asked->iov[i];

        if (piece->iov_len > 0 && piece->iov_len < REGISTER_BYTES_MIN &&
            yb_transfer_cover(core->options.engine, piece->iov_base, piece->iov_len) ==
                YB_TRANSFER_COVER_NONE) {
            return false;
        }
    }
    return true;
}

enum yb_core_route
yb_core_put_route(struct yb_core_work *work, uint32_t index, struct yb_core_member *member)
{
    struct yb_client_core *core = work->core;
    const struct yb_core_item *item = &work->items[index];
    uint32_t needed = YB_TRANSFER_NEAR_MAPS | YB_TRANSFER_NEAR_READS;

    if (yb_core_is_device(work, index)) {
        return member->wire.data_address[0] != 0 ? YB_CORE_NEAR : YB_CORE_NOWHERE;
    }
    if (core->near == NULL || member->near == 0 || item->frames ||
        item->room < core->options.near_bytes_min ||
        (yb_core_nearness(core, member) & needed) != needed ||
        !can_hold(core, &work->batch->items[index])) {
        return YB_CORE_FRAMES;
    }
    return YB_CORE_NEAR;
}

/* ---- answers --------------------------------------------------------------------------------- */

/* The values could not be fetched: they may be sent, unless only the engine can touch them. `why`:
 * UNREACHABLE, not now; UNSUPPORTED, never. */
static void
fall_back(struct yb_core_work *work, uint32_t index, enum yb_status why)
{
    struct yb_core_item *item = &work->items[index];

    item->frames = !yb_core_is_device(work, index);
    work->core->counters.retries++;
    yb_core_put_outcome(work, index, item->frames ? YB_UNREACHABLE : why, 0);
    yb_core_pump_soon(work);
}

static void
clear_ticket(struct yb_core_io *io)
{
    struct yb_core_near *near = io->core->near;

    if (io->ticket != 0) {
        atomic_store(&near->tickets[io->ticket - 1], 0);
        near->free_tickets[near->free_count++] = io->ticket - 1;
        io->ticket = 0;
    }
}

static void
take_answer(struct yb_core_io *io, uint32_t index, const struct yb_wire_put_answer *answer)
{
    struct yb_core_work *work = io->work;
    enum yb_status status = (enum yb_status)answer->status;

    if (status == YB_UNREACHABLE || status == YB_UNSUPPORTED || status == YB_CANCELLED) {
        fall_back(work, index, status == YB_UNSUPPORTED ? YB_UNSUPPORTED : YB_UNREACHABLE);
        return;
    }
    if (status == YB_OK) {
        const struct yb_core_member *member = yb_core_member(work->core, io->slot);

        if (member != NULL && work->core->choices[member - work->core->members].local) {
            work->core->counters.local_bytes += work->items[index].room;
        }
    }
    yb_core_put_outcome(work, index, status, answer->grant);
}

static void
on_pulled(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;

    clear_ticket(io); /* First of all: from here on the values may change. */
    let_go(io);
    (void)yb_core_member_heard(io);
    if (call->answered && (call->status == YB_UNREACHABLE || call->status == YB_UNSUPPORTED)) {
        for (uint32_t i = 0; i < io->count; i++) {
            fall_back(io->work, io->items[i], call->status);
        }
    } else {
        yb_core_put_answered(io, take_answer);
    }
    yb_core_io_give(io);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* Let the node read an item's pieces, and list them. Returns false, and leaves the list as it was,
 * if it may not read one. */
static bool
list_sources(struct yb_core_io *io, uint32_t index, uint32_t *sources)
{
    const struct yb_client_item *asked = &io->work->batch->items[index];
    uint32_t at = *sources;

    for (uint32_t i = 0; i < asked->iov_count; i++) {
        const struct iovec *piece = &asked->iov[i];

        if (piece->iov_len == 0) {
            continue;
        }
        if (!hold(io, piece)) {
            return false;
        }
        io->core->near->sources[at++] = (struct yb_wire_pull_source){
            .address = (uint64_t)(uintptr_t)piece->iov_base,
            .length = piece->iov_len,
        };
    }
    *sources = at;
    return true;
}

/* Gather items, sources and keys; an item whose memory cannot be shown to the node falls back. */
static void
gather(struct yb_core_io *io, struct yb_wire_put_pull *body)
{
    struct yb_core_near *near = io->core->near;
    uint32_t count = 0;
    uint32_t sources = 0;
    uint32_t key_bytes = 0;

    for (uint32_t i = 0; i < io->count; i++) {
        uint32_t index = io->items[i];
        const struct yb_client_item *asked = &io->work->batch->items[index];

        if (!list_sources(io, index, &sources)) {
            io->bytes -= io->work->items[index].room;
            fall_back(io->work, index, YB_UNSUPPORTED);
            continue;
        }
        if (yb_core_is_device(io->work, index)) {
            body->only_way = 1;
        }
        yb_core_put_describe(io->work, index, &near->put_items[count]);
        memcpy(near->keys + key_bytes, asked->key, asked->key_bytes);
        key_bytes += asked->key_bytes;
        io->items[count++] = index;
    }
    io->count = count;
    body->items.count = count;
    body->items.native = near->put_items;
    body->sources.count = sources;
    body->sources.native = near->sources;
    body->keys.bytes = near->keys;
    body->keys.length = key_bytes;
}

static void
set_ticket(struct yb_core_io *io, struct yb_wire_put_pull *body)
{
    struct yb_core_near *near = io->core->near;
    uint32_t place;

    YB_ASSERT(near->free_count > 0); /* As many as there are messages. */
    place = near->free_tickets[--near->free_count];
    io->ticket = place + 1;
    body->ticket = yb_core_random(io->core) | 1u;
    body->ticket_at = (uint64_t)(uintptr_t)&near->tickets[place];
    atomic_store(&near->tickets[place], body->ticket);
}

void
yb_core_pull_send(struct yb_core_io *io)
{
    struct yb_wire_put_pull body = {
        .write = io->work->write,
        .engine = yb_wire_text_of(io->core->options.engine_address),
    };
    size_t length = 0;

    gather(io, &body);
    if (io->count == 0) {
        let_go(io);
        io->bytes = 0;
        yb_core_io_give(io);
        return;
    }
    set_ticket(io, &body);
    if (yb_wire_put_pull_encode(&body, io->body, sizeof(io->body), &length) != YB_OK) {
        YB_ASSERT(false); /* Every number is within its bounds. */
    }
    io->call.body_bytes = (uint32_t)length;
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->call.mutates = true;
    yb_core_send(io, on_pulled);
}
