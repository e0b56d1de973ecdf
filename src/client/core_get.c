/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookups, and gets by what they say.
 *
 * A get of an item asks one replica at a time: the next is asked only when the call to the one
 * before has ended, so that nothing writes the caller's memory any more (RULES A3; net/call.h C2).
 * The answers of a node stand in front of the bytes; from them follows which bytes go where.
 */
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"
#include "directory/index.h"

/* ---- lookups -------------------------------------------------------------------------------- */

/* Begin an item of a get: by a hold, by a hint, or by a lookup. */
void
yb_core_get_begin(struct yb_core_work *work, uint32_t index)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    struct yb_hint hint;

    if (work->batch->kind == YB_CLIENT_GET && work->batch->items[index].held != 0) {
        yb_core_held_begin(work, index);
        return;
    }
    if (!yb_hints_find(core->hints, item->hash, &hint)) {
        yb_core_push(work, &work->lookup, index, YB_CORE_WANT_LOOKUP);
        return;
    }
    core->counters.hinted++;
    item->hinted = true;
    item->grant = hint.grant;
    item->slot_count = 0;
    for (uint32_t i = 0; i < YB_HINT_REPLICAS && hint.slots[i] != 0; i++) {
        item->slots[item->slot_count++] = hint.slots[i];
    }
    yb_core_push(work, &work->ready, index, YB_CORE_READY);
}

/* What a lookup says of an item that is to be read. */
static void
take_place(struct yb_core_work *work, uint32_t index, const struct yb_wire_lookup_answer *answer)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    const uint16_t slots[4] = {answer->slot0, answer->slot1, answer->slot2, answer->slot3};
    struct yb_hint hint = {.grant = answer->grant, .size = yb_index_size_decode(answer->size_code)};

    if (answer->grant != item->grant) {
        item->lookups = 1; /* Replaced since: what was not found any more says nothing of it. */
    }
    item->grant = answer->grant;
    item->versioned = (answer->flags & YB_WIRE_BLOCK_FLAG_VERSIONED) != 0;
    item->hinted = false;
    item->tried = 0;
    item->slot_count = 0;
    for (uint32_t i = 0; i < 4 && slots[i] != 0; i++) {
        if (i < YB_HINT_REPLICAS) {
            hint.slots[i] = slots[i];
        }
        item->slots[item->slot_count++] = slots[i];
        if (yb_core_row(core, slots[i]) == YB_CORE_NONE) {
            yb_core_refresh(core);
        }
    }
    if (!item->versioned && item->grant != 0) {
        yb_hints_set(core->hints, item->hash, &hint); /* C4: immutable blocks only. */
    }
    yb_core_get_ready(work, index);
}

/* End an item whose existence was asked. */
static void
end_presence(struct yb_core_work *work, uint32_t index, enum yb_wire_presence presence,
             bool striped)
{
    struct yb_client_batch *batch = work->batch;

    work->core->counters.exists += !batch->raw;
    if (striped) {
        batch->items[index].size = YB_CORE_STRIPED_SIZE;
        batch->striped++;
    }
    switch (presence) {
    case YB_WIRE_PRESENCE_PRESENT:
    case YB_WIRE_PRESENCE_SUSPECT: yb_core_end(work, index, YB_OK); break;
    case YB_WIRE_PRESENCE_IN_PROGRESS: yb_core_end(work, index, YB_IN_PROGRESS); break;
    case YB_WIRE_PRESENCE_REBUILDING: yb_core_end(work, index, YB_REBUILDING); break;
    default: yb_core_end(work, index, YB_NOT_FOUND); break;
    }
}

/* What a lookup says of an item whose existence was asked. */
static void
take_presence(struct yb_core_work *work, uint32_t index, const struct yb_wire_lookup_answer *answer)
{
    struct yb_client_item *out = &work->batch->items[index];
    const uint16_t slots[4] = {answer->slot0, answer->slot1, answer->slot2, answer->slot3};

    work->items[index].slot_count = 0; /* Where it would be read, for the gate. */
    for (uint32_t i = 0; i < 4 && slots[i] != 0; i++) {
        work->items[index].slots[work->items[index].slot_count++] = slots[i];
    }
    out->grant = answer->grant;
    out->size = yb_index_size_decode(answer->size_code);
    out->replicas = answer->count;
    out->eta_ns = answer->eta_us * YB_NS_PER_US;
    end_presence(work, index, (enum yb_wire_presence)answer->presence,
                 (answer->flags & YB_WIRE_BLOCK_FLAG_STRIPED) != 0);
}

static void
take_answer(struct yb_core_work *work, uint32_t index, const struct yb_wire_lookup_answer *answer)
{
    bool there = answer->presence == YB_WIRE_PRESENCE_PRESENT ||
                 answer->presence == YB_WIRE_PRESENCE_SUSPECT;

    if (work->batch->kind == YB_CLIENT_FETCH &&
        !yb_core_fetch_looked(work, index, answer, there && answer->slot0 != 0)) {
        return;
    }
    if (work->batch->kind == YB_CLIENT_EXIST) {
        take_presence(work, index, answer);
    } else if (there && answer->slot0 != 0) {
        take_place(work, index, answer);
    } else {
        work->core->counters.gets++;
        yb_core_end(work, index,
                    work->items[index].last == YB_CORRUPT ? YB_CORRUPT /* And its node let it go. */
                    : answer->presence == YB_WIRE_PRESENCE_REBUILDING ? YB_REBUILDING
                                                                      : YB_NOT_FOUND);
    }
}

/* Put every item of a message back into a list, or end it when nothing new may be begun. */
static void
try_again(struct yb_core_io *io, enum yb_status why)
{
    struct yb_core_work *work = io->work;

    for (uint32_t i = 0; i < io->count; i++) {
        uint32_t index = io->items[i];
        struct yb_core_item *item = &work->items[index];

        item->last = why;
        if (work->over) {
            yb_core_end(work, index, work->cancelled ? YB_CANCELLED : why);
        } else {
            yb_core_rest(work, index);
        }
    }
}

/* What the directory says beside its answers. The work is there until the message is given back. */
static void
take_head(struct yb_core_work *work, uint64_t flush, uint64_t members_version)
{
    if (flush < work->batch->flush_seen) {
        work->batch->flush_seen = flush;
    }
    yb_core_versions(work->core, members_version);
}

static void
on_lookup(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_lookup_answers answers;

    if (call->status == YB_OK &&
        yb_wire_lookup_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.count == io->count && yb_core_current(io) &&
        yb_core_epoch(work->core, answers.epoch)) {
        for (uint32_t i = 0; i < io->count; i++) {
            struct yb_wire_lookup_answer answer;

            yb_wire_lookup_answer_at(&answers.answers, i, &answer);
            if (work->over) {
                yb_core_end(work, io->items[i], work->cancelled ? YB_CANCELLED : YB_TIMED_OUT);
            } else {
                take_answer(work, io->items[i], &answer);
            }
        }
        take_head(work, answers.flush, answers.members_version);
    } else {
        try_again(io, call->status != YB_OK ? call->status : YB_PROTOCOL);
    }
    yb_core_io_give(io);
}

static void
on_presences(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_presences answers;

    if (call->status == YB_OK &&
        yb_wire_presences_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.length == io->count && yb_core_current(io) &&
        yb_core_epoch(work->core, answers.epoch)) {
        for (uint32_t i = 0; i < io->count; i++) {
            uint8_t answer = answers.answers.bytes[i];

            if (work->over) {
                yb_core_end(work, io->items[i], work->cancelled ? YB_CANCELLED : YB_TIMED_OUT);
            } else { /* Nothing but a hold takes an interest in what a value consists of. */
                end_presence(work, io->items[i],
                             (enum yb_wire_presence)(answer & ~YB_WIRE_PRESENCE_STRIPED),
                             (answer & YB_WIRE_PRESENCE_STRIPED) != 0 && work->batch->hold_ms != 0);
            }
        }
        take_head(work, answers.flush, answers.members_version);
    } else {
        try_again(io, call->status != YB_OK ? call->status : YB_PROTOCOL);
    }
    yb_core_io_give(io);
}

/* Whether an exist may be answered by presences alone: nobody looks at more. */
static bool
is_brief(const struct yb_core_work *work)
{
    return work->batch->kind == YB_CLIENT_EXIST && work->batch->brief &&
           work->core->options.reuse_gate == YB_CLIENT_GATE_OFF;
}

void
yb_core_lookup_pump(struct yb_core_work *work)
{
    struct yb_client_batch *batch = work->batch;
    bool exist = batch->kind == YB_CLIENT_EXIST;
    bool brief = is_brief(work);
    uint16_t type = brief ? YB_WIRE_DIRECTORY_TYPE_EXIST : YB_WIRE_DIRECTORY_TYPE_LOOKUP;
    struct yb_core_io *io;

    while (work->lookup.head != YB_CORE_NONE && (io = yb_core_io_take(work, type, 0)) != NULL) {
        uint16_t flags = exist ? YB_WIRE_LOOKUP_FLAG_EXIST : 0;
        uint32_t index;

        while (io->count < YB_CORE_LOOKUP_KEYS &&
               (index = yb_core_pop(work, &work->lookup)) != YB_CORE_NONE) {
            struct yb_core_item *item = &work->items[index];

            item->phase = YB_CORE_SENT;
            item->io = io;
            item->lookups = item->lookups < UINT8_MAX ? (uint8_t)(item->lookups + 1) : UINT8_MAX;
            memcpy(io->body + YB_WIRE_LOOKUP_BYTES + (size_t)io->count * YB_WIRE_HASH_BYTES,
                   item->hash.bytes, sizeof(item->hash.bytes));
            io->items[io->count++] = index;
        }
        flags |= exist && batch->hold_ms != 0 ? YB_WIRE_LOOKUP_FLAG_HOLD : 0;
        memset(io->body, 0, YB_WIRE_LOOKUP_BYTES);
        yb_wire_put_u16(io->body + YB_WIRE_LOOKUP_AT_FLAGS, flags);
        yb_wire_put_u32(io->body + YB_WIRE_LOOKUP_AT_HOLD_MS, exist ? batch->hold_ms : 0);
        yb_wire_put_u32(io->body + YB_WIRE_LOOKUP_AT_HASHES, io->count);
        io->call.lane = YB_WIRE_LANE_CONTROL;
        io->call.body_bytes =
            (uint32_t)(YB_WIRE_LOOKUP_BYTES + (size_t)io->count * YB_WIRE_HASH_BYTES);
        work->core->counters.lookups += io->count;
        yb_core_send(io, brief ? on_presences : on_lookup);
    }
}

/* ---- gets ----------------------------------------------------------------------------------- */

/* An item was not read from where it was looked for. */
void
yb_core_get_elsewhere(struct yb_core_work *work, uint32_t index, enum yb_status why)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    enum yb_status over;
    uint32_t rows[4];

    if (why == YB_NOT_FOUND && item->last == YB_CORRUPT) {
        why = YB_CORRUPT; /* Its node let it go for that. */
    }
    if (why == YB_NOT_FOUND && item->last != YB_NOT_FOUND) {
        item->lookups = 1; /* It may have been replaced while it could not be asked. */
    }
    item->last = why;
    if (work->over) { /* There was no time to look where it is now. */
        yb_core_end(work, index,
                    work->cancelled       ? YB_CANCELLED
                    : why == YB_NOT_FOUND ? YB_TIMED_OUT
                                          : why);
        return;
    }
    if (item->held != 0) { /* It is held there, and nowhere else. */
        core->counters.gets++;
        yb_core_end(work, index, why);
        return;
    }
    yb_core_fetch_missed(work, index);
    over = yb_core_fetch_over(work, index);
    if (over != YB_OK) {
        yb_core_end(work, index, over);
        return;
    }
    for (uint32_t i = 0; i < item->slot_count; i++) {
        rows[i] = yb_core_row(core, item->slots[i]);
    }
    if (yb_choose_source(core->choices, rows, item->slot_count, item->tried, 0) != UINT32_MAX) {
        yb_core_get_ready(work, index);
        return;
    }
    if (item->hinted) {
        core->counters.stale++;
        (void)yb_hints_drop(core->hints, item->hash, item->grant);
        item->hinted = false;
        item->tried = 0;
        yb_core_push(work, &work->lookup, index, YB_CORE_WANT_LOOKUP);
        return;
    }
    (void)yb_hints_drop(core->hints, item->hash, item->grant);
    if (item->probed && (why == YB_TIMED_OUT || why == YB_PEER_LOST || why == YB_UNREACHABLE)) {
        core->counters.gets++; /* It is there alone, was known to be bad, and still is. */
        yb_core_end(work, index, why);
        return;
    }
    if (item->lookups < YB_CORE_ATTEMPTS_MAX || why == YB_NOT_READY || why == YB_STALE) {
        /* What waits for its grant, or has been replaced in the meantime, is there. */
        item->tried = 0;
        yb_core_rest(work, index); /* It may be on its way from one node to another. */
        return;
    }
    core->counters.gets++;
    yb_core_end(work, index, why);
}

void
yb_core_get_failed(struct yb_core_io *io, enum yb_status why)
{
    bool hurried = yb_core_fetch_hurried(io);

    for (uint32_t i = 0; i < io->count; i++) {
        if (hurried) {
            yb_core_fetch_again(io->work, io->items[i]);
        } else {
            yb_core_get_elsewhere(io->work, io->items[i], why);
        }
    }
}

void
yb_core_get_took(struct yb_core_work *work, uint32_t index, uint64_t bytes)
{
    struct yb_client_core *core = work->core;

    work->batch->items[index].bytes = bytes;
    core->counters.gets++;
    core->counters.hits++;
    core->counters.get_bytes += bytes;
    yb_core_end(work, index, YB_OK);
}

bool
yb_core_get_striped(struct yb_core_work *work, uint32_t index, uint16_t flags)
{
    struct yb_client_batch *batch = work->batch;

    if ((flags & YB_WIRE_BLOCK_FLAG_STRIPED) == 0) {
        return false;
    }
    batch->striped++;
    if (batch->raw) {
        return false;
    }
    /* It does not lie in one piece: there is nothing to be borrowed or held. */
    yb_core_end(work, index,
                batch->kind == YB_CLIENT_PIN || batch->kind == YB_CLIENT_HOLD ? YB_UNSUPPORTED
                                                                              : YB_IN_PROGRESS);
    return true;
}

static void
take_value(struct yb_core_work *work, uint32_t index, const struct yb_wire_get_answer *answer)
{
    struct yb_client_core *core = work->core;
    struct yb_client_item *out = &work->batch->items[index];
    enum yb_status status = (enum yb_status)answer->status;

    out->size = answer->size;
    out->grant = answer->grant;
    if ((status == YB_OK || status == YB_TOO_SMALL || status == YB_INVALID) &&
        yb_core_get_striped(work, index, answer->flags)) {
        return;
    }
    switch (status) {
    case YB_OK: yb_core_get_took(work, index, answer->bytes); break;
    case YB_TOO_SMALL:
    case YB_INVALID:
        core->counters.gets++;
        yb_core_end(work, index, status);
        break;
    default: yb_core_get_elsewhere(work, index, status); break;
    }
}

/* The answers have come, the bytes have not: say where each goes. */
static enum yb_status
on_place(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_get_answers answers;
    uint64_t bytes = 0;

    if (yb_wire_get_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) != YB_OK ||
        answers.answers.count != io->count) {
        return YB_PROTOCOL;
    }
    io->iov_count = 0;
    for (uint32_t i = 0; i < io->count; i++) {
        struct yb_wire_get_answer answer;
        uint32_t index = io->items[i];

        yb_wire_get_answer_at(&answers.answers, i, &answer);
        if (answer.status != YB_OK) {
            continue;
        }
        if (answer.bytes > work->items[index].room ||
            !yb_core_pieces(io, &work->batch->items[index], answer.bytes)) {
            return YB_PROTOCOL;
        }
        bytes += answer.bytes;
    }
    call->reply_data = io->iov;
    call->reply_data_count = io->iov_count;
    return bytes == call->reply_data_bytes ? YB_OK : YB_PROTOCOL;
}

/* The call is over, so the callers' memory is quiet: other replicas may be asked. */
static void
on_got(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_get_answers answers;
    bool hinted = false; /* There may be hints of what was read. */

    (void)yb_core_member_heard(io);
    if (call->status == YB_OK &&
        yb_wire_get_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.count == io->count) {
        for (uint32_t i = 0; i < io->count; i++) {
            struct yb_wire_get_answer answer;

            yb_wire_get_answer_at(&answers.answers, i, &answer);
            hinted = hinted ||
                     (answer.status == YB_OK && (answer.flags & YB_WIRE_BLOCK_FLAG_VERSIONED) == 0);
            take_value(work, io->items[i], &answer);
        }
        yb_core_gate_measure(io, YB_CORE_FRAMES, call->reply_data_bytes, yb_core_now(work->core));
        if (hinted) {
            yb_core_watch(work->core, io);
        }
    } else {
        yb_core_get_failed(io, call->status != YB_OK ? call->status : YB_PROTOCOL);
    }
    yb_core_io_give(io);
}

/* A round trip to a member: of its last handshake, or else of the directory's. */
static uint64_t
trip_ns(const struct yb_client_core *core, const struct yb_core_member *member)
{
    uint64_t own_ns = member->peer != NULL ? yb_peer_trip_ns(member->peer) : 0;

    return own_ns != 0 ? own_ns : yb_peer_trip_ns(core->directory);
}

/* How long one node may take while others could be asked: half of what is left. One that failed
 * lately is only tried. */
static uint64_t
attempt_deadline(const struct yb_core_io *io, bool others, bool probe)
{
    struct yb_client_core *core = io->core;
    uint64_t now_ns = yb_core_now(core);
    uint64_t deadline_ns = io->work->batch->kind == YB_CLIENT_FETCH ? yb_core_fetch_deadline(io)
                                                                    : io->work->batch->deadline_ns;

    if (probe) {
        uint64_t probe_ns =
            yb_choose_probe_ns(trip_ns(core, yb_core_member(core, io->slot)), io->bytes);

        return deadline_ns < now_ns + probe_ns ? deadline_ns : now_ns + probe_ns;
    }
    if (!others || deadline_ns == YB_NEVER || deadline_ns <= now_ns) {
        return deadline_ns;
    }
    return now_ns + (deadline_ns - now_ns) / 2;
}

void
yb_core_get_close(struct yb_core_io *io)
{
    uint32_t keys_at = (uint32_t)(YB_WIRE_GET_BYTES + (size_t)io->count * YB_WIRE_GET_ITEM_BYTES);
    struct yb_core_work *work = io->work;
    uint32_t row = yb_core_row(io->core, io->slot);
    bool probe = row != YB_CORE_NONE && io->core->choices[row].failed;
    bool others = true;

    /* The keys were gathered behind the longest list of items; now they close up. */
    memmove(io->body + keys_at,
            io->body + YB_WIRE_GET_BYTES + (size_t)YB_CORE_MOVE_ITEMS * YB_WIRE_GET_ITEM_BYTES,
            io->key_bytes);
    memset(io->body, 0, YB_WIRE_GET_BYTES);
    io->leave_ticket = yb_core_random(io->core) | 1;
    yb_wire_put_u64(io->body + YB_WIRE_GET_AT_TICKET, io->leave_ticket);
    yb_wire_put_u32(io->body + YB_WIRE_GET_AT_DURATION_MS, work->batch->hold_ms);
    yb_wire_put_u32(io->body + YB_WIRE_GET_AT_ITEMS, io->count);
    yb_wire_put_u32(io->body + YB_WIRE_GET_AT_KEYS, io->key_bytes);
    io->call.body_bytes = keys_at + io->key_bytes;
    for (uint32_t i = 0; i < io->count; i++) {
        struct yb_core_item *item = &work->items[io->items[i]];

        item->probed = probe;
        others = others && (item->hinted || item->slot_count > 1);
    }
    io->call.deadline_ns = attempt_deadline(io, others, probe);
}

static void
get_send(struct yb_core_io *io)
{
    yb_core_get_close(io);
    io->call.lane = YB_WIRE_LANE_BULK;
    io->call.place = on_place;
    io->sent_ns = yb_core_now(io->core);
    yb_core_send(io, on_got);
}

void
yb_core_get_add(struct yb_core_io *io, uint32_t index)
{
    struct yb_core_work *work = io->work;
    const struct yb_client_item *asked = &work->batch->items[index];
    struct yb_core_item *item = &work->items[index];
    uint8_t *keys =
        io->body + YB_WIRE_GET_BYTES + (size_t)YB_CORE_MOVE_ITEMS * YB_WIRE_GET_ITEM_BYTES;
    struct yb_wire_get_item wire = {
        .hash = item->hash,
        .grant = item->grant,
        .offset = asked->ranged ? asked->offset : 0,
        .length = item->room,
        .held = item->held,
        .key_bytes = (uint16_t)asked->key_bytes,
        .ranged = asked->ranged,
    };

    yb_wire_get_item_store(&wire, io->body + YB_WIRE_GET_BYTES +
                                      (size_t)io->count * YB_WIRE_GET_ITEM_BYTES);
    memcpy(keys + io->key_bytes, asked->key, asked->key_bytes);
    io->key_bytes += asked->key_bytes;
    io->bytes += item->room;
    io->iov_count += asked->iov_count;
    io->items[io->count++] = index;
    item->io = io;
    item->phase = YB_CORE_SENT;
}

bool
yb_core_get_full(const struct yb_core_io *io, const struct yb_core_work *work, uint32_t index)
{
    return io->count == YB_CORE_MOVE_ITEMS ||
           (io->count > 0 &&
            (io->bytes + work->items[index].room > YB_CORE_MOVE_BYTES ||
             io->iov_count + work->batch->items[index].iov_count > YB_CORE_PIECES_MAX));
}

/* Choose a replica for an item. Returns its row, or YB_CORE_NONE after the item was dealt with. */
static uint32_t
choose(struct yb_core_work *work, uint32_t index)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    uint32_t rows[4];
    uint32_t at;

    for (uint32_t i = 0; i < item->slot_count; i++) {
        rows[i] = yb_core_row(core, item->slots[i]);
    }
    at = yb_choose_source(core->choices, rows, item->slot_count, item->tried, yb_core_random(core));
    if (at == UINT32_MAX) {
        item->phase = YB_CORE_SENT;
        yb_core_get_elsewhere(work, index, YB_PEER_LOST);
        return YB_CORE_NONE;
    }
    if (core->choices[rows[at]].failed && item->last == YB_OK && !item->hinted &&
        core->members[rows[at]].failures > 1) {
        item->last = YB_PEER_LOST; /* It is known to be away: what it holds fails at once (S22). */
        item->tried |= (uint8_t)(1u << at);
        item->lookups = YB_CORE_ATTEMPTS_MAX;
        item->phase = YB_CORE_SENT;
        yb_core_get_elsewhere(work, index, YB_PEER_LOST);
        return YB_CORE_NONE;
    }
    item->tried |= (uint8_t)(1u << at);
    return rows[at];
}

/* The message to a member that is being filled for this route. Full ones are sent. NULL: all
 * messages are under way. */
static struct yb_core_io *
open_io(struct yb_core_work *work, uint32_t index, struct yb_core_member *member,
        enum yb_core_route route, uint32_t items_max)
{
    bool near = route == YB_CORE_NEAR;
    struct yb_core_io **open = near ? &member->open_near : &member->open;

    if (*open != NULL && ((*open)->count >= items_max || yb_core_get_full(*open, work, index))) {
        struct yb_core_io *full = *open;

        *open = NULL;
        if (near) {
            yb_core_pin_send(full);
        } else {
            get_send(full);
        }
    }
    if (*open == NULL) {
        *open = yb_core_io_take(work, near ? YB_WIRE_NODE_TYPE_PIN : YB_WIRE_NODE_TYPE_GET,
                                member->wire.slot);
    }
    return *open;
}

void
yb_core_get_list(struct yb_core_work *work, struct yb_core_list *list, uint32_t items_max,
                 uint32_t spare)
{
    struct yb_client_core *core = work->core;
    uint32_t window = work->batch->kind == YB_CLIENT_FETCH ? work->batch->window : 0;
    uint32_t index;

    while (list->head != YB_CORE_NONE && core->spare_ios > spare &&
           (window == 0 || work->flying < window)) {
        enum yb_core_route route;
        struct yb_core_io *io;
        uint32_t row;

        index = yb_core_pop(work, list);
        row = choose(work, index);
        if (row == YB_CORE_NONE) {
            continue;
        }
        route = yb_core_get_route(work, index, &core->members[row]);
        if (route == YB_CORE_NOWHERE) {
            continue; /* The item was dealt with. */
        }
        io = open_io(work, index, &core->members[row], route, items_max);
        if (io == NULL) {
            work->items[index].tried = 0;
            yb_core_push(work, list, index, YB_CORE_READY);
            break;
        }
        yb_core_get_add(io, index);
        work->flying++;
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        struct yb_core_io *open = core->members[row].open;
        struct yb_core_io *near = core->members[row].open_near;

        core->members[row].open = core->members[row].open_near = NULL;
        if (open != NULL) {
            get_send(open);
        }
        if (near != NULL) {
            yb_core_pin_send(near);
        }
    }
}

void
yb_core_get_ready(struct yb_core_work *work, uint32_t index)
{
    yb_core_push(work, work->items[index].below ? &work->below : &work->ready, index,
                 YB_CORE_READY);
}

void
yb_core_get_pump(struct yb_core_work *work)
{
    yb_core_get_list(work, &work->ready, YB_CORE_MOVE_ITEMS, 0);
}
