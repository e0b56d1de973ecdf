/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts: announce, choose places, send the bytes to all of them, count what was made.
 *
 * All replicas of a batch's items carry the batch's write id: whichever publication comes first
 * wins the key for all of them (RULES A7).
 *
 * What may be tried again is what has had no effect, and will have none: it was refused. A message
 * whose outcome is not known is sent to nobody else, because the directory need not remember that
 * it granted the write (directory/writes.h W2), and a block that was seen and removed would be
 * back. The net asks the same process again, under the same operation, for as long as that can be
 * reached (net/peer.h; RULES B5). What then is not known is IN_DOUBT. So is, at once, what was
 * granted and has ended again before anybody could say so.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

#define WITHDRAW_NS (200 * YB_NS_PER_MS)
#define EXPECTED_US 10000u /* What others are told before anything was measured. */

/* ---- keys that are named twice --------------------------------------------------------------- */

/* Return 1 + the item that was noted under the same key; 0: none, and this one is noted now. */
static uint32_t
note_key(struct yb_core_work *work, uint32_t index)
{
    struct yb_core_item *item = &work->items[index];
    uint64_t hash;
    uint32_t *head;

    memcpy(&hash, item->hash.bytes, sizeof(hash));
    head = &work->items[hash % work->batch->count].head;
    for (uint32_t at = *head; at != 0; at = work->items[at - 1].next) {
        if (yb_id_equal(work->items[at - 1].hash, item->hash)) {
            return at;
        }
    }
    item->next = *head;
    *head = index + 1;
    return 0;
}

/* Replicas of a write id are equal (RULES A7), so one item of a batch goes for all of its key: the
 * first, or with replace the last, which would have replaced the others. */
void
yb_core_put_begin(struct yb_core_work *work)
{
    uint32_t count = work->batch->count;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t index = work->batch->put.replace ? count - 1 - i : i;

        work->items[index].twin = note_key(work, index);
    }
    for (uint32_t i = 0; i < count; i++) {
        if (work->items[i].twin == 0) {
            yb_core_push(work, &work->intent, i, YB_CORE_WANT_INTENT);
        } else {
            work->items[i].phase = YB_CORE_ENDED; /* Its outcome: yb_core_put_twins(). */
            work->left--;
        }
    }
}

/* Tell those that had a twin what became of it. */
void
yb_core_put_twins(struct yb_core_work *work)
{
    struct yb_client_batch *batch = work->batch;

    for (uint32_t i = 0; i < batch->count; i++) {
        const struct yb_client_item *other;
        struct yb_client_item *item = &batch->items[i];

        if (work->items[i].twin == 0) {
            continue;
        }
        other = &batch->items[work->items[i].twin - 1];
        item->grant = other->grant;
        item->replicas = batch->put.replace ? other->replicas : 0;
        item->status = other->status == YB_OK && !batch->put.replace ? YB_EXISTS : other->status;
    }
}

/* ---- intents -------------------------------------------------------------------------------- */

static uint32_t
wanted_replicas(const struct yb_core_work *work)
{
    return work->batch->put.replicas != 0 ? work->batch->put.replicas : 1;
}

static void
take_intent(struct yb_core_work *work, uint32_t index, const struct yb_wire_intent_answer *answer,
            uint64_t epoch)
{
    struct yb_core_item *item = &work->items[index];
    enum yb_status status = (enum yb_status)answer->status;

    if (work->over) {
        yb_core_end_unfinished(work, index, work->cancelled ? YB_CANCELLED : YB_TIMED_OUT);
        return;
    }
    switch (status) {
    case YB_OK:
        item->announced = true;
        item->epoch = epoch;
        item->placed_count = 0;
        item->last = YB_OK; /* It was in progress, or had to wait; that is over. */
        yb_core_push(work, &work->ready, index, YB_CORE_READY);
        break;
    case YB_EXISTS:
        work->batch->items[index].grant = answer->grant;
        yb_core_end(work, index, YB_EXISTS);
        break;
    case YB_AGAIN: yb_core_rest(work, index); break; /* Nothing new was heard. */
    case YB_IN_PROGRESS:
    case YB_REBUILDING:
        item->last = status; /* Wait for the other writer, inside the deadline. */
        yb_core_rest(work, index);
        break;
    default: yb_core_end(work, index, status); break;
    }
}

static void
on_intent(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_intent_answers answers;

    if (call->status == YB_OK &&
        yb_wire_intent_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.count == io->count && yb_core_current(io) &&
        yb_core_epoch(work->core, answers.epoch)) {
        for (uint32_t i = 0; i < io->count; i++) {
            struct yb_wire_intent_answer answer;

            yb_wire_intent_answer_at(&answers.answers, i, &answer);
            take_intent(work, io->items[i], &answer, answers.epoch);
        }
        yb_core_versions(work->core, answers.members_version);
    } else {
        struct yb_wire_intent_answer again = {.status = YB_AGAIN};

        for (uint32_t i = 0; i < io->count; i++) {
            take_intent(work, io->items[i], &again, 0);
        }
    }
    yb_core_io_give(io);
}

void
yb_core_intent_pump(struct yb_core_work *work)
{
    uint8_t mode = work->batch->put.replace ? YB_WIRE_MODE_REPLACE : YB_WIRE_MODE_IF_ABSENT;
    struct yb_core_io *io;

    while (work->intent.head != YB_CORE_NONE &&
           (io = yb_core_io_take(work, YB_WIRE_DIRECTORY_TYPE_INTENT, 0)) != NULL) {
        uint32_t index;

        while (io->count < YB_CORE_LOOKUP_KEYS &&
               (index = yb_core_pop(work, &work->intent)) != YB_CORE_NONE) {
            struct yb_wire_intent wire = {.hash = work->items[index].hash, .write = work->write};

            work->items[index].phase = YB_CORE_SENT;
            yb_wire_intent_store(&wire, io->body + YB_WIRE_INTENTS_BYTES +
                                            (size_t)io->count * YB_WIRE_INTENT_BYTES);
            io->items[io->count++] = index;
        }
        memset(io->body, 0, YB_WIRE_INTENTS_BYTES);
        yb_wire_put_u8(io->body + YB_WIRE_INTENTS_AT_MODE, mode);
        yb_wire_put_u32(io->body + YB_WIRE_INTENTS_AT_EXPECTED_US, EXPECTED_US);
        yb_wire_put_u32(io->body + YB_WIRE_INTENTS_AT_ITEMS, io->count);
        io->call.lane = YB_WIRE_LANE_CONTROL;
        io->call.body_bytes =
            (uint32_t)(YB_WIRE_INTENTS_BYTES + (size_t)io->count * YB_WIRE_INTENT_BYTES);
        yb_core_send(io, on_intent);
    }
}

/* ---- what was announced and given up --------------------------------------------------------- */

#define WITHDRAWN_MAX 1024u /* What does not fit expires. */

struct yb_core_withdrawals {
    struct yb_call call;
    bool busy; /* The call is under way. */
    uint32_t count;
    uint8_t waiting[WITHDRAWN_MAX * YB_WIRE_INTENT_BYTES];
    uint8_t body[YB_WIRE_INTENTS_BYTES + WITHDRAWN_MAX * YB_WIRE_INTENT_BYTES];
    uint8_t reply[YB_WIRE_INTENT_ANSWERS_BYTES + WITHDRAWN_MAX * YB_WIRE_INTENT_ANSWER_BYTES];
};

enum yb_status
yb_core_withdrawals_create(struct yb_client_core *core)
{
    core->withdrawals = calloc(1, sizeof(*core->withdrawals));
    return core->withdrawals == NULL ? YB_NO_MEMORY : YB_OK;
}

bool
yb_core_withdrawals_idle(const struct yb_client_core *core)
{
    return core->withdrawals == NULL || !core->withdrawals->busy;
}

void
yb_core_withdrawals_fini(struct yb_client_core *core)
{
    free(core->withdrawals);
    core->withdrawals = NULL;
}

static void withdraw_all(struct yb_client_core *core);

static void
on_withdrawn(struct yb_call *call)
{
    struct yb_client_core *core = call->owner;

    core->withdrawals->busy = false; /* Lost or not: what is left expires. */
    withdraw_all(core);
}

/* Send what waits, if nothing is on its way. */
static void
withdraw_all(struct yb_client_core *core)
{
    struct yb_core_withdrawals *all = core->withdrawals;
    size_t bytes = (size_t)all->count * YB_WIRE_INTENT_BYTES;

    if (all->busy || all->count == 0 || core->stopping) {
        return;
    }
    memset(all->body, 0, YB_WIRE_INTENTS_BYTES);
    yb_wire_put_u8(all->body + YB_WIRE_INTENTS_AT_MODE, YB_WIRE_MODE_IF_ABSENT);
    yb_wire_put_u8(all->body + YB_WIRE_INTENTS_AT_WITHDRAW, 1);
    yb_wire_put_u32(all->body + YB_WIRE_INTENTS_AT_ITEMS, all->count);
    memcpy(all->body + YB_WIRE_INTENTS_BYTES, all->waiting, bytes);
    all->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_INTENT,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_core_now(core) + WITHDRAW_NS,
        .body = all->body,
        .body_bytes = (uint32_t)(YB_WIRE_INTENTS_BYTES + bytes),
        .reply_body = all->reply,
        .reply_body_room = sizeof(all->reply),
        .done = on_withdrawn,
        .owner = core,
    };
    all->count = 0;
    all->busy = yb_peer_call(core->directory, &all->call) == YB_OK;
}

void
yb_core_put_withdraw(struct yb_core_work *work, uint32_t index)
{
    struct yb_client_core *core = work->core;
    struct yb_core_withdrawals *all = core->withdrawals;
    const struct yb_core_item *item = &work->items[index];

    if (!core->stopping && all->count < WITHDRAWN_MAX) {
        struct yb_wire_intent wire = {.hash = item->hash, .write = work->write};

        yb_wire_intent_store(&wire, all->waiting + (size_t)all->count * YB_WIRE_INTENT_BYTES);
        all->count++;
        withdraw_all(core);
    }
}

/* ---- outcomes ------------------------------------------------------------------------------- */

/* All messages of an item have ended. */
static void
settle(struct yb_core_work *work, uint32_t index)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    struct yb_client_item *out = &work->batch->items[index];
    enum yb_status last = (enum yb_status)item->last;

    out->replicas = item->made;
    if (item->made > 0) {
        core->counters.puts++;
        core->counters.put_bytes += item->room;
        yb_core_end(work, index, YB_OK);
    } else if (item->doubted) {
        yb_core_end(work, index, YB_IN_DOUBT);
    } else if (last == YB_EXISTS || last == YB_INVALID || last == YB_CORRUPT || last == YB_DENIED ||
               last == YB_QUOTA || last == YB_UNSUPPORTED || last == YB_STALE ||
               (item->attempts >= YB_CORE_ATTEMPTS_MAX && last != YB_AGAIN)) {
        yb_core_end(work, index, last);
    } else if (work->over) {
        yb_core_end(work, index, work->cancelled ? YB_CANCELLED : last);
    } else if (last == YB_UNREACHABLE && item->frames) {
        item->placed_count = 0; /* The same places may take it another way. */
        yb_core_push(work, &work->ready, index, YB_CORE_READY);
    } else if (last == YB_NO_SPACE || last == YB_FENCED || last == YB_PEER_LOST ||
               last == YB_UNREACHABLE || last == YB_REFUSED) {
        yb_core_push(work, &work->ready, index, YB_CORE_READY); /* Somewhere else. */
    } else {
        yb_core_rest(work, index); /* IN_PROGRESS, AGAIN: from the start, a little later. */
    }
}

void
yb_core_put_outcome(struct yb_core_work *work, uint32_t index, enum yb_status status,
                    uint64_t grant)
{
    struct yb_core_item *item = &work->items[index];

    YB_ASSERT(item->outstanding > 0);
    if (status == YB_INVALID) { /* The node hashes under another cluster's seed, or we do. */
        yb_core_rejoin(work->core);
        status = YB_AGAIN;
    } else if (status == YB_STALE) { /* Granted, and gone again; or of before a flush, refused. */
        status = grant != 0 ? YB_IN_DOUBT : work->batch->flush != 0 ? YB_STALE : YB_AGAIN;
    }
    item->outstanding--;
    if (status == YB_OK) {
        item->made++;
        work->batch->items[index].grant = grant;
    } else if (status == YB_IN_DOUBT) {
        item->doubted = true;
    } else {
        item->last = status;
        if (status == YB_EXISTS) {
            work->batch->items[index].grant = grant;
        }
    }
    if (item->outstanding == 0) {
        settle(work, index);
    }
}

void
yb_core_put_answered(struct yb_core_io *io, void (*take)(struct yb_core_io *io, uint32_t index,
                                                         const struct yb_wire_put_answer *answer))
{
    const struct yb_call *call = &io->call;
    struct yb_wire_put_answers answers;

    if (call->status == YB_OK &&
        yb_wire_put_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.count == io->count) {
        for (uint32_t i = 0; i < io->count; i++) {
            struct yb_wire_put_answer answer;

            yb_wire_put_answer_at(&answers.answers, i, &answer);
            take(io, io->items[i], &answer);
        }
    } else {
        enum yb_status why = call->status == YB_OK ? YB_IN_DOUBT : call->status;

        for (uint32_t i = 0; i < io->count; i++) {
            yb_core_put_outcome(io->work, io->items[i], why, 0);
        }
    }
}

static void
take_answer(struct yb_core_io *io, uint32_t index, const struct yb_wire_put_answer *answer)
{
    yb_core_put_outcome(io->work, index, (enum yb_status)answer->status, answer->grant);
}

static void
on_put(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;

    (void)yb_core_member_heard(io);
    yb_core_put_answered(io, take_answer);
    yb_core_io_give(io);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void
put_send(struct yb_core_io *io)
{
    uint32_t keys_at = (uint32_t)(YB_WIRE_PUT_BYTES + (size_t)io->count * YB_WIRE_PUT_ITEM_BYTES);

    memmove(io->body + keys_at,
            io->body + YB_WIRE_PUT_BYTES + (size_t)YB_CORE_MOVE_ITEMS * YB_WIRE_PUT_ITEM_BYTES,
            io->key_bytes);
    memset(io->body, 0, YB_WIRE_PUT_BYTES);
    yb_wire_put_u64(io->body + YB_WIRE_PUT_AT_WRITE, io->work->write);
    yb_wire_put_u32(io->body + YB_WIRE_PUT_AT_ITEMS, io->count);
    yb_wire_put_u32(io->body + YB_WIRE_PUT_AT_KEYS, io->key_bytes);
    yb_wire_put_u64(io->body + YB_WIRE_PUT_AT_FLUSH, io->work->batch->flush);
    io->call.body_bytes = keys_at + io->key_bytes;
    io->call.lane = YB_WIRE_LANE_BULK;
    io->call.mutates = true;
    io->call.data = io->iov;
    io->call.data_count = io->iov_count;
    yb_core_send(io, on_put);
}

void
yb_core_put_describe(const struct yb_core_work *work, uint32_t index,
                     struct yb_wire_put_item *wire_out)
{
    const struct yb_client_put_options *options = &work->batch->put;
    const struct yb_client_item *asked = &work->batch->items[index];

    *wire_out = (struct yb_wire_put_item){
        .hash = work->items[index].hash,
        .size = work->items[index].room,
        .ttl_ms = options->ttl_ms,
        .soft_pin_ms = options->soft_pin_ms,
        .group = asked->group,
        .parent = asked->parent,
        .key_bytes = (uint16_t)asked->key_bytes,
        .flags = (uint16_t)((options->soft_pin ? YB_WIRE_BLOCK_FLAG_SOFT_PIN : 0) |
                            (options->hard_pin ? YB_WIRE_BLOCK_FLAG_HARD_PIN : 0) |
                            work->batch->block_flags),
        .replicas = (uint8_t)wanted_replicas(work),
        .mode = options->replace ? YB_WIRE_MODE_REPLACE : YB_WIRE_MODE_IF_ABSENT,
        .places = work->items[index].places,
        .epoch = (uint32_t)work->items[index].epoch, /* It has 24 bits: directory/grant.h. */
    };
}

static void
put_add(struct yb_core_io *io, uint32_t index)
{
    struct yb_core_work *work = io->work;
    const struct yb_client_item *asked = &work->batch->items[index];
    struct yb_core_item *item = &work->items[index];
    uint8_t *keys =
        io->body + YB_WIRE_PUT_BYTES + (size_t)YB_CORE_MOVE_ITEMS * YB_WIRE_PUT_ITEM_BYTES;
    struct yb_wire_put_item wire;

    yb_core_put_describe(work, index, &wire);
    yb_wire_put_item_store(&wire, io->body + YB_WIRE_PUT_BYTES +
                                      (size_t)io->count * YB_WIRE_PUT_ITEM_BYTES);
    memcpy(keys + io->key_bytes, asked->key, asked->key_bytes);
    io->key_bytes += asked->key_bytes;
    io->bytes += item->room;
    if (!yb_core_pieces(io, asked, item->room)) {
        YB_ASSERT(false); /* put_full() has counted them. */
    }
    io->items[io->count++] = index;
    item->outstanding++;
}

static bool
put_full(const struct yb_core_io *io, const struct yb_core_work *work, uint32_t index)
{
    return io->count == YB_CORE_MOVE_ITEMS ||
           (io->count > 0 &&
            (io->bytes + work->items[index].room > YB_CORE_MOVE_BYTES ||
             io->iov_count + work->batch->items[index].iov_count > YB_CORE_PIECES_MAX));
}

static bool
is_preferred(const struct yb_core_work *work, const struct yb_core_member *member)
{
    const char *const *names = work->batch->put.preferred;

    for (uint32_t i = 0; names != NULL && names[i] != NULL; i++) {
        size_t length = strlen(names[i]);

        if (length < sizeof(member->wire.name) &&
            memcmp(member->wire.name, names[i], length) == 0 && member->wire.name[length] == 0) {
            return true;
        }
    }
    return false;
}

/* Choose places for an item; returns how many. */
static uint32_t
choose_rows(struct yb_core_work *work, uint32_t index, uint32_t rows_out[YB_CHOOSE_MAX])
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];
    struct yb_choose_block block = {.bytes = item->room, .wanted = wanted_replicas(work)};
    uint64_t random[2 * YB_CHOOSE_MAX];
    uint32_t count;

    if ((work->batch->block_flags & YB_WIRE_BLOCK_FLAG_PART) == 0) { /* Parts are spread. */
        block.group = work->batch->items[index].group;
    }
    for (uint32_t i = 0; i < 2 * block.wanted; i++) {
        random[i] = yb_core_random(core);
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        core->choices[row].preferred = is_preferred(work, &core->members[row]);
        core->choices[row].tried = false;
    }
    for (uint32_t i = 0; i < item->placed_count; i++) {
        uint32_t row = yb_core_row(core, item->placed[i]);

        if (row != YB_CORE_NONE) {
            core->choices[row].tried = true;
        }
    }
    count = yb_choose_places(core->choices, core->member_count, &block, random, rows_out);
    for (uint32_t i = 0; i < count; i++) {
        struct yb_choice *choice = &core->choices[rows_out[i]];

        choice->free_bytes -= item->room < choice->free_bytes ? item->room : choice->free_bytes;
        if (item->placed_count < YB_CHOOSE_MAX) {
            item->placed[item->placed_count++] = core->members[rows_out[i]].wire.slot;
        }
    }
    return count;
}

static void
flush(struct yb_core_io **open)
{
    struct yb_core_io *io = *open;

    *open = NULL;
    if (io != NULL && io->type == YB_WIRE_NODE_TYPE_PUT_PULL) {
        yb_core_pull_send(io);
    } else if (io != NULL) {
        put_send(io);
    }
}

/* Add an item to the message of one of its places. */
static void
place_at(struct yb_core_work *work, uint32_t index, struct yb_core_member *member)
{
    enum yb_core_route route = yb_core_put_route(work, index, member);
    bool near = route == YB_CORE_NEAR;
    struct yb_core_io **open = near ? &member->open_near : &member->open;

    if (route == YB_CORE_NOWHERE) {
        return;
    }
    if (*open != NULL && put_full(*open, work, index)) {
        flush(open);
    }
    if (*open == NULL) {
        *open = yb_core_io_take(work, near ? YB_WIRE_NODE_TYPE_PUT_PULL : YB_WIRE_NODE_TYPE_PUT,
                                member->wire.slot);
        YB_ASSERT(*open != NULL); /* The pump has counted them. */
    }
    put_add(*open, index);
}

/* Add an item to the messages of its places. */
static void
place_item(struct yb_core_work *work, uint32_t index, const uint32_t *rows, uint32_t count)
{
    struct yb_core_item *item = &work->items[index];

    item->phase = YB_CORE_SENT;
    item->attempts++;
    item->places = (uint8_t)count;
    item->outstanding++; /* For as long as its places are gone through. */
    for (uint32_t i = 0; i < count; i++) {
        place_at(work, index, &work->core->members[rows[i]]);
    }
    if (item->outstanding == 1) {
        item->last = YB_UNSUPPORTED;
    }
    item->outstanding--;
    if (item->outstanding == 0) {
        settle(work, index);
    }
}

static bool
no_node_is_that_large(const struct yb_client_core *core, uint64_t bytes)
{
    for (uint32_t row = 0; row < core->member_count; row++) {
        if (core->choices[row].capacity >= bytes) {
            return false;
        }
    }
    return core->member_count > 0;
}

/* Why nobody was even asked. NO_SPACE is for those who could answer: a node that is not reached may
 * have room, and may be back before the deadline. */
static enum yb_status
why_nobody(const struct yb_client_core *core, uint64_t bytes)
{
    if (no_node_is_that_large(core, bytes)) {
        return YB_TOO_LARGE;
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        if (core->choices[row].failed ||
            core->members[row].wire.state == YB_WIRE_SLOT_STATE_SUSPECT) {
            return YB_UNREACHABLE;
        }
    }
    return YB_NO_SPACE;
}

void
yb_core_put_pump(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;

    while (work->ready.head != YB_CORE_NONE && core->spare_ios >= wanted_replicas(work)) {
        uint32_t index = yb_core_pop(work, &work->ready);
        struct yb_core_item *item = &work->items[index];
        uint32_t rows[YB_CHOOSE_MAX];
        uint32_t count = choose_rows(work, index, rows);

        if (core->member_count == 0) { /* The directory has begun anew: nodes will come back. */
            item->last = YB_UNREACHABLE;
            item->phase = YB_CORE_SENT;
            yb_core_rest(work, index);
            continue;
        }
        if (count == 0) { /* Nobody takes it: none is there, or all have refused. */
            item->last = item->last == YB_OK ? why_nobody(core, item->room) : item->last;
            item->attempts++;
            item->placed_count = 0;
            item->phase = YB_CORE_SENT;
            if (item->attempts >= YB_CORE_ATTEMPTS_MAX || item->last == YB_NO_SPACE ||
                item->last == YB_TOO_LARGE) {
                yb_core_end(work, index, (enum yb_status)item->last);
            } else {
                yb_core_rest(work, index);
            }
            continue;
        }
        place_item(work, index, rows, count);
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        flush(&core->members[row].open);
        flush(&core->members[row].open_near);
    }
}
