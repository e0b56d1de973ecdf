/* SPDX-License-Identifier: Apache-2.0
 *
 * Removals: of keys, and of everything.
 */
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

/* ---- keys ----------------------------------------------------------------------------------- */

static void
take_outcome(struct yb_core_work *work, uint32_t index, enum yb_status status)
{
    bool later = status == YB_AGAIN || status == YB_IN_PROGRESS;

    work->items[index].last = status;
    work->items[index].doubted = work->items[index].doubted || status == YB_IN_DOUBT;
    (void)yb_hints_drop(work->core->hints, work->items[index].hash, 0);
    if (later && !work->over) {
        yb_core_rest(work, index);
    } else {
        yb_core_end(work, index, later && work->cancelled ? YB_CANCELLED : status);
    }
}

static void
on_removed(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_removed answers;

    if (call->status == YB_OK &&
        yb_wire_removed_decode(io->reply, call->reply_body_bytes, &answers, NULL) == YB_OK &&
        answers.answers.count == io->count) {
        bool current = yb_core_current(io);

        for (uint32_t i = 0; i < io->count; i++) {
            struct yb_wire_removal_answer answer;

            yb_wire_removal_answer_at(&answers.answers, i, &answer);
            if (answer.status == YB_NOT_FOUND && !current) {
                answer.status = YB_AGAIN; /* It may have been looked for under another hash. */
            }
            take_outcome(work, io->items[i], (enum yb_status)answer.status);
        }
    } else {
        enum yb_status why = call->status == YB_OK ? YB_IN_DOUBT : call->status;

        for (uint32_t i = 0; i < io->count; i++) {
            take_outcome(work, io->items[i], why);
        }
    }
    yb_core_io_give(io);
}

void
yb_core_remove_pump(struct yb_core_work *work)
{
    struct yb_core_io *io;

    while (work->ready.head != YB_CORE_NONE &&
           (io = yb_core_io_take(work, YB_WIRE_DIRECTORY_TYPE_REMOVE, 0)) != NULL) {
        uint32_t index;

        while (io->count < YB_WIRE_REMOVE_KEYS_MAX &&
               (index = yb_core_pop(work, &work->ready)) != YB_CORE_NONE) {
            struct yb_core_item *item = &work->items[index];

            item->phase = YB_CORE_SENT;
            memcpy(io->body + YB_WIRE_REMOVAL_BYTES + (size_t)io->count * YB_WIRE_HASH_BYTES,
                   item->hash.bytes, sizeof(item->hash.bytes));
            io->items[io->count++] = index;
        }
        memset(io->body, 0, YB_WIRE_REMOVAL_BYTES);
        yb_wire_put_u8(io->body + YB_WIRE_REMOVAL_AT_FORCE, work->batch->force);
        yb_wire_put_u32(io->body + YB_WIRE_REMOVAL_AT_HASHES, io->count);
        yb_wire_put_u64(io->body + YB_WIRE_REMOVAL_AT_GRANT, work->batch->grant);
        io->call.lane = YB_WIRE_LANE_CONTROL;
        io->call.mutates = true;
        io->call.body_bytes =
            (uint32_t)(YB_WIRE_REMOVAL_BYTES + (size_t)io->count * YB_WIRE_HASH_BYTES);
        yb_core_send(io, on_removed);
    }
}

/* ---- everything ----------------------------------------------------------------------------- */

static void
finish_all(struct yb_core_work *work, enum yb_status status)
{
    work->batch->status = status;
    work->left = 0;
    yb_hints_clear(work->core->hints);
}

static void
on_flushed(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_flushed answer;
    enum yb_status status = call->status;

    if (status == YB_OK) {
        status = yb_wire_flushed_decode(io->reply, call->reply_body_bytes, &answer, NULL);
    }
    if (status == YB_OK) {
        work->batch->total = answer.count;
    }
    if (status == YB_AGAIN && !work->over) {
        yb_core_io_give(io); /* The pump asks again. */
        return;
    }
    finish_all(work, status);
    yb_core_io_give(io);
}

static void
on_unheld(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_remove_unheld_answer answer;
    enum yb_status status = call->status;

    if (status == YB_OK) {
        status =
            yb_wire_remove_unheld_answer_decode(io->reply, call->reply_body_bytes, &answer, NULL);
    }
    if (status == YB_OK) {
        work->batch->total += answer.removed;
        work->walk_cursor = answer.cursor;
        work->walk_row += answer.cursor == 0;
    } else if (work->over) {
        finish_all(work, work->cancelled ? YB_CANCELLED : status);
    } else if (status != YB_AGAIN) {
        work->batch->status = status; /* Told at the end; the others are still asked. */
        work->walk_cursor = 0;
        work->walk_row++;
    }
    yb_core_io_give(io);
}

/* Ask the next node to drop what nobody holds, a step at a time. */
static void
walk_nodes(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    struct yb_wire_list_question body = {.cursor = work->walk_cursor, .items_max = 4096};
    struct yb_core_io *io;
    size_t length = 0;

    if (work->walk_row >= core->member_count) {
        finish_all(work, work->batch->status);
        yb_core_pump_soon(work);
        return;
    }
    io = yb_core_io_take(work, YB_WIRE_NODE_TYPE_REMOVE_UNHELD,
                         core->members[work->walk_row].wire.slot);
    if (io == NULL) {
        return;
    }
    if (yb_wire_list_question_encode(&body, io->body, sizeof(io->body), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->call.mutates = true;
    io->call.body_bytes = (uint32_t)length;
    yb_core_send(io, on_unheld);
}

void
yb_core_remove_all_pump(struct yb_core_work *work)
{
    struct yb_core_io *io;

    if (work->ios > 0 || work->left == 0) {
        return;
    }
    if (!work->batch->force) {
        walk_nodes(work);
        return;
    }
    io = yb_core_io_take(work, YB_WIRE_DIRECTORY_TYPE_REMOVE_ALL, 0);
    if (io == NULL) {
        return;
    }
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->call.mutates = true;
    yb_core_send(io, on_flushed);
}
