/* SPDX-License-Identifier: Apache-2.0
 *
 * The client's life: which batches are under way, and which messages.
 */
#include "client/core.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "client/core_internal.h"
#include "client/stripe.h"

/* What others finish soon is asked for again soon; what takes longer, at longer distances. */
#define REST_NS     (3 * YB_NS_PER_MS)
#define RESTS_SHORT 6u /* In a row, while nothing ends. */
#define RESTS_MAX   10u
#define IOS_DEFAULT 64u
#define EXIST_STEP  256u /* Keys that are asked for in one message, as long as there are more. */
#define HASH_STEP   64u  /* Keys that are hashed before the first of them is looked for. */

static void work_finish(struct yb_core_work *work);

uint64_t
yb_core_random(struct yb_client_core *core)
{
    if (core->random_left == 0) {
        core->options.random(core->options.random_context, core->random, sizeof(core->random));
        core->random_left = YB_CORE_RANDOM;
    }
    return core->random[--core->random_left];
}

/* ---- lists of items ------------------------------------------------------------------------- */

void
yb_core_push(struct yb_core_work *work, struct yb_core_list *list, uint32_t index,
             enum yb_core_phase phase)
{
    work->items[index].next = YB_CORE_NONE;
    work->items[index].previous = YB_CORE_NONE;
    work->items[index].phase = (uint8_t)phase;
    if (list->head == YB_CORE_NONE) {
        list->head = index;
    } else {
        work->items[index].previous = list->tail;
        work->items[list->tail].next = index;
    }
    list->tail = index;
}

uint32_t
yb_core_pop(struct yb_core_work *work, struct yb_core_list *list)
{
    uint32_t index = list->head;

    if (index != YB_CORE_NONE) {
        yb_core_take_out(work, list, index);
    }
    return index;
}

void
yb_core_take_out(struct yb_core_work *work, struct yb_core_list *list, uint32_t index)
{
    const struct yb_core_item *item = &work->items[index];

    if (item->previous != YB_CORE_NONE) {
        work->items[item->previous].next = item->next;
    } else {
        list->head = item->next;
    }
    if (item->next != YB_CORE_NONE) {
        work->items[item->next].previous = item->previous;
    } else {
        list->tail = item->previous;
    }
}

void
yb_core_end(struct yb_core_work *work, uint32_t index, enum yb_status status)
{
    YB_ASSERT(work->items[index].phase != YB_CORE_ENDED && work->left > 0);
    YB_ASSERT(work->items[index].outstanding == 0);
    work->items[index].phase = YB_CORE_ENDED;
    /* FENCED is between nodes and directories: to callers the node is away. */
    work->batch->items[index].status = status == YB_FENCED ? YB_PEER_LOST : status;
    work->left--;
    work->rests = 0;
    if (work->items[index].announced && status != YB_OK && status != YB_IN_DOUBT) {
        yb_core_put_withdraw(work, index);
    }
    if (work->batch->kind == YB_CLIENT_FETCH) {
        yb_core_fetch_ended(work, index);
    }
    if (work->left == 0) {
        yb_core_pump_soon(work);
    }
}

void
yb_core_rest(struct yb_core_work *work, uint32_t index)
{
    struct yb_loop *loop = yb_net_loop(work->core->net);

    yb_core_push(work, &work->resting, index, YB_CORE_RESTING);
    if (!yb_timer_is_armed(&work->rest)) {
        uint32_t doubled = work->rests > RESTS_SHORT ? work->rests - RESTS_SHORT : 0;

        work->rests += work->rests < RESTS_MAX;
        yb_loop_arm(loop, &work->rest, yb_loop_now(loop) + (REST_NS << doubled));
    }
}

void
yb_core_wake(struct yb_client_core *core)
{
    struct yb_loop *loop = yb_net_loop(core->net);

    for (struct yb_core_work *work = core->works; work != NULL; work = work->next) {
        work->rests = 0;
        if (yb_timer_is_armed(&work->rest)) {
            yb_loop_arm(loop, &work->rest, yb_loop_now(loop));
        }
    }
}

void
yb_core_pump_soon(struct yb_core_work *work)
{
    yb_loop_defer(yb_net_loop(work->core->net), &work->pump);
}

bool
yb_core_pieces(struct yb_core_io *io, const struct yb_client_item *item, uint64_t bytes)
{
    for (uint32_t i = 0; i < item->iov_count && bytes > 0; i++) {
        uint64_t piece = item->iov[i].iov_len < bytes ? item->iov[i].iov_len : bytes;

        if (piece == 0) {
            continue;
        }
        if (io->iov_count == YB_CORE_PIECES_MAX) {
            return false;
        }
        io->iov[io->iov_count++] =
            (struct iovec){.iov_base = item->iov[i].iov_base, .iov_len = (size_t)piece};
        bytes -= piece;
    }
    return bytes == 0;
}

/* ---- messages ------------------------------------------------------------------------------- */

struct yb_core_io *
yb_core_io_take(struct yb_core_work *work, uint16_t type, uint16_t slot)
{
    struct yb_client_core *core = work->core;
    struct yb_core_member *member = slot != 0 ? yb_core_member(core, slot) : NULL;
    struct yb_core_io *io;
    void *taken;

    if (yb_pool_take(core->ios, &taken) != YB_OK) {
        return NULL;
    }
    core->spare_ios--;
    io = taken;
    memset(&io->call, 0, sizeof(io->call));
    io->core = core;
    io->work = work;
    io->type = type;
    io->slot = slot;
    io->incarnation = member != NULL ? member->wire.incarnation : 0;
    io->life = core->life;
    io->clusters = core->clusters;
    io->bytes = 0;
    io->count = io->iov_count = io->key_bytes = 0;
    io->moving = false;
    io->ticket = io->held_count = 0;
    io->previous = NULL;
    io->next = core->io_list;
    if (core->io_list != NULL) {
        core->io_list->previous = io;
    }
    core->io_list = io;
    work->ios++;
    return io;
}

void
yb_core_io_give(struct yb_core_io *io)
{
    struct yb_client_core *core = io->core;
    struct yb_core_work *work = io->work;
    struct yb_core_member *member = io->slot != 0 ? yb_core_member(core, io->slot) : NULL;

    if (member != NULL && member->wire.incarnation == io->incarnation &&
        io->clusters == core->clusters) {
        core->choices[member - core->members].busy_bytes -= io->bytes;
    }
    if (io->previous != NULL) {
        io->previous->next = io->next;
    } else {
        core->io_list = io->next;
    }
    if (io->next != NULL) {
        io->next->previous = io->previous;
    }
    YB_ASSERT(work->ios > 0);
    work->ios--;
    if (io->type == YB_WIRE_NODE_TYPE_GET || io->type == YB_WIRE_NODE_TYPE_PIN) {
        work->flying -= io->count;
    }
    core->spare_ios++;
    yb_pool_give(core->ios, io);
    yb_core_pump_soon(work);
    /* Others may have waited for one. */
    if (core->spare_ios == 1 || core->spare_ios == core->ios_max / 4 + 1) {
        for (work = core->works; work != NULL; work = work->next) {
            yb_core_pump_soon(work);
        }
    }
}

void
yb_core_send(struct yb_core_io *io, void (*done)(struct yb_call *call))
{
    struct yb_client_core *core = io->core;
    struct yb_client_batch *batch = io->work->batch;
    struct yb_core_member *member = io->slot != 0 ? yb_core_member(core, io->slot) : NULL;
    struct yb_peer *peer = io->slot == 0 ? core->directory : member != NULL ? member->peer : NULL;
    enum yb_status status = YB_PEER_LOST;

    io->call.type = io->type;
    io->call.class = batch->work_class;
    io->call.trace_id = batch->trace_id;
    io->call.parent_span = batch->parent_span;
    if (io->call.deadline_ns == 0) {
        io->call.deadline_ns = batch->deadline_ns;
    }
    io->call.fail_fast = io->slot != 0;
    io->call.body = io->body;
    io->call.reply_body = io->reply;
    io->call.reply_body_room = sizeof(io->reply);
    io->call.done = done;
    io->call.owner = io;
    core->counters.calls++;
    if (peer != NULL) {
        status = yb_peer_call(peer, &io->call);
    }
    if (status == YB_OK) {
        if (member != NULL) {
            core->choices[member - core->members].busy_bytes += io->bytes;
        }
        return;
    }
    io->call.status = status;
    io->call.answered = false;
    io->call.sent = false;
    io->bytes = 0;
    done(&io->call);
}

void
yb_core_io_cancel(struct yb_core_io *io)
{
    struct yb_client_core *core = io->core;
    struct yb_core_member *member = io->slot != 0 ? yb_core_member(core, io->slot) : NULL;
    struct yb_peer *peer = io->slot == 0 ? core->directory : member != NULL ? member->peer : NULL;

    yb_core_leave(io, YB_WIRE_LEAVE_ALL);
    if (io->moving) {
        if (yb_transfer_cancel(core->options.engine, io->batch) != YB_OK) {
            YB_ASSERT(false); /* It is released by its mail, which has not come. */
        }
    } else if (peer != NULL && (io->slot == 0 || member->wire.incarnation == io->incarnation)) {
        yb_peer_cancel(peer, &io->call);
    }
}

/* ---- batches -------------------------------------------------------------------------------- */

/* Hash the keys of some items, and let the hints of those that are read come near. */
static void
hash_keys(struct yb_core_work *work, uint32_t first, uint32_t end)
{
    struct yb_client_core *core = work->core;
    const struct yb_client_item *items = work->batch->items;
    struct yb_hash_bytes tenant = {core->options.tenant, strlen(core->options.tenant)};
    bool reads = work->batch->kind == YB_CLIENT_GET || work->batch->kind == YB_CLIENT_PIN ||
                 work->batch->kind == YB_CLIENT_HOLD;
    struct yb_hash_bytes keys[HASH_STEP] = {{NULL, 0}};
    struct yb_id ids[HASH_STEP];

    for (uint32_t i = first; i < end; i++) {
        keys[i - first] = (struct yb_hash_bytes){items[i].key, items[i].key_bytes};
    }
    yb_hash_keys(core->seed, tenant, keys, end - first, ids);
    for (uint32_t i = first; i < end; i++) {
        work->items[i].hash = ids[i - first];
        if (reads) {
            yb_hints_prefetch(core->hints, work->items[i].hash);
        }
    }
}

/* Let some items begin their life in the work. */
static void
work_items(struct yb_core_work *work, uint32_t first, uint32_t end)
{
    struct yb_client_batch *batch = work->batch;

    /* All at once: one by one, compilers make of it what takes ten times as long. */
    if (end > first) { /* A removal of everything has no items, and perhaps no room. */
        memset(work->items + first, 0, (size_t)(end - first) * sizeof(*work->items));
    }
    for (uint32_t i = first; i < end; i++) {
        struct yb_client_item *item = &batch->items[i];

        for (uint32_t k = 0; k < item->iov_count; k++) {
            work->items[i].room += item->iov[k].iov_len;
        }
        if (batch->kind == YB_CLIENT_RELEASE) {
            work->items[i].grant = item->pin;
        }
        item->status = YB_IN_PROGRESS;
        item->bytes = item->grant = item->eta_ns = item->pin = 0;
        item->size = batch->kind == YB_CLIENT_PUT ? work->items[i].room : 0;
        item->replicas = 0;
        item->data = NULL;
        item->gated = false;
        item->ready_ns = 0;
        item->tier = YB_CLIENT_TIER_NONE;
    }
}

/* Let items begin, hash their keys, put them into their first list: all of them, or of an EXIST as
 * many as make a message, so that the directory is at work while the rest is hashed. */
static void
work_join(struct yb_core_work *work)
{
    struct yb_client_batch *batch = work->batch;
    uint32_t first = work->joined;
    uint32_t some = batch->count - first;

    if (batch->kind == YB_CLIENT_EXIST && some > EXIST_STEP) {
        some = EXIST_STEP;
        yb_core_pump_soon(work);
    }
    work->joined = first + some;
    work_items(work, first, work->joined);
    for (uint32_t i = first; i < work->joined; i++) {
        if (batch->kind != YB_CLIENT_RELEASE && (i - first) % HASH_STEP == 0) {
            hash_keys(work, i, work->joined - i < HASH_STEP ? work->joined : i + HASH_STEP);
        }
        switch (batch->kind) {
        case YB_CLIENT_PUT: break; /* By yb_core_put_begin(). */
        case YB_CLIENT_GET:
        case YB_CLIENT_PIN:
        case YB_CLIENT_HOLD: yb_core_get_begin(work, i); break;
        case YB_CLIENT_EXIST: yb_core_push(work, &work->lookup, i, YB_CORE_WANT_LOOKUP); break;
        case YB_CLIENT_FETCH:
            break; /* By yb_core_fetch_begin(). */
        /* REMOVE and RELEASE */
        default: yb_core_push(work, &work->ready, i, YB_CORE_READY); break;
        }
    }
    if (batch->kind == YB_CLIENT_PUT) {
        yb_core_put_begin(work);
    } else if (batch->kind == YB_CLIENT_FETCH) {
        yb_core_fetch_begin(work);
    }
}

void
yb_core_end_unfinished(struct yb_core_work *work, uint32_t index, enum yb_status status)
{
    const struct yb_core_item *item = &work->items[index];
    enum yb_status last = (enum yb_status)item->last;
    /* A node that does not have it says nothing of where it went. */
    bool says = last != YB_OK && last != YB_NOT_READY && last != YB_STALE && last != YB_NOT_FOUND;

    if (item->doubted) {
        status = YB_IN_DOUBT;
    } else if (status == YB_TIMED_OUT && says) {
        status = last;
    }
    yb_core_end(work, index, status);
}

/* End what waits in a list. */
static void
end_list(struct yb_core_work *work, struct yb_core_list *list, enum yb_status status)
{
    uint32_t index;

    while ((index = yb_core_pop(work, list)) != YB_CORE_NONE) {
        yb_core_end_unfinished(work, index, status);
    }
}

/* Nothing new is begun: what is under way ends by itself, or by being cancelled. */
static void
work_over(struct yb_core_work *work, enum yb_status status)
{
    work->over = true;
    work_items(work, work->joined, work->batch->count);
    while (work->joined < work->batch->count) {
        yb_core_push(work, &work->ready, work->joined++, YB_CORE_READY);
    }
    end_list(work, &work->lookup, status);
    end_list(work, &work->intent, status);
    end_list(work, &work->ready, status);
    end_list(work, &work->below, status);
    end_list(work, &work->resting, status);
    if (work->batch->kind == YB_CLIENT_REMOVE_ALL && work->ios == 0) {
        work->batch->status = status;
        work->left = 0;
    }
    yb_core_pump_soon(work);
}

static void
on_deadline(struct yb_timer *timer)
{
    struct yb_core_work *work =
        (struct yb_core_work *)((uint8_t *)timer - offsetof(struct yb_core_work, deadline));

    work_over(work, YB_TIMED_OUT);
}

static void
on_rest(struct yb_timer *timer)
{
    struct yb_core_work *work =
        (struct yb_core_work *)((uint8_t *)timer - offsetof(struct yb_core_work, rest));
    struct yb_core_list resting = work->resting;
    uint32_t index;

    work->resting = (struct yb_core_list){YB_CORE_NONE, YB_CORE_NONE};
    while ((index = yb_core_pop(work, &resting)) != YB_CORE_NONE) {
        if (work->batch->kind == YB_CLIENT_PUT) {
            yb_core_push(work, &work->intent, index, YB_CORE_WANT_INTENT);
        } else if (work->batch->kind == YB_CLIENT_REMOVE) {
            yb_core_push(work, &work->ready, index, YB_CORE_READY);
        } else if (work->items[index].held != 0) {
            yb_core_push(work, &work->ready, index, YB_CORE_READY);
        } else {
            yb_core_push(work, &work->lookup, index, YB_CORE_WANT_LOOKUP);
        }
    }
    yb_core_pump_soon(work);
}

static void
on_pump(struct yb_task *task)
{
    struct yb_core_work *work =
        (struct yb_core_work *)((uint8_t *)task - offsetof(struct yb_core_work, pump));

    if (work->left == 0 && work->ios == 0) {
        if (work->batch->kind == YB_CLIENT_EXIST) {
            yb_core_gate(work);
        } else if (work->batch->kind == YB_CLIENT_FETCH) {
            yb_core_fetch_pump(work);
        }
        work_finish(work);
        return;
    }
    if (work->over || !work->core->joined) {
        return;
    }
    if (work->joined < work->batch->count) {
        work_join(work);
    }
    switch (work->batch->kind) {
    case YB_CLIENT_PUT:
        yb_core_intent_pump(work);
        yb_core_put_pump(work);
        break;
    case YB_CLIENT_REMOVE: yb_core_remove_pump(work); break;
    case YB_CLIENT_RELEASE: yb_core_release_pump(work); break;
    case YB_CLIENT_REMOVE_ALL: yb_core_remove_all_pump(work); break;
    case YB_CLIENT_FETCH:
        yb_core_lookup_pump(work);
        yb_core_fetch_pump(work);
        break;
    default:
        yb_core_lookup_pump(work);
        yb_core_get_pump(work);
        break;
    }
}

static void
work_finish(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    struct yb_client_batch *batch = work->batch;
    struct yb_loop *loop = yb_net_loop(core->net);

    yb_loop_disarm(loop, &work->deadline);
    yb_loop_disarm(loop, &work->rest);
    yb_loop_disarm(loop, &work->due);
    yb_loop_undefer(loop, &work->pump);
    if (work->previous != NULL) {
        work->previous->next = work->next;
    } else {
        core->works = work->next;
    }
    if (work->next != NULL) {
        work->next->previous = work->previous;
    }
    work->next = core->free_works;
    core->free_works = work;
    core->work_count--;
    core->fetches -= batch->kind == YB_CLIENT_FETCH;
    if (batch->kind == YB_CLIENT_PUT) {
        yb_core_put_twins(work);
    }
    batch->work = NULL;
    batch->done(batch);
}

/* Take a work with room for `count` items. */
static struct yb_core_work *
work_take(struct yb_client_core *core, uint32_t count)
{
    struct yb_core_work *work = core->free_works;

    if (work != NULL) {
        core->free_works = work->next;
    } else {
        work = calloc(1, sizeof(*work));
        if (work == NULL) {
            return NULL;
        }
        work->core = core;
        work->pump.run = on_pump;
        yb_timer_init(&work->deadline, on_deadline);
        yb_timer_init(&work->rest, on_rest);
        yb_timer_init(&work->due, yb_core_fetch_on_due);
    }
    if (work->room < count) {
        struct yb_core_item *items = malloc((size_t)count * sizeof(*items));

        if (items == NULL) {
            work->next = core->free_works;
            core->free_works = work;
            return NULL;
        }
        free(work->items);
        work->items = items;
        work->room = count;
    }
    return work;
}

bool
yb_client_core_fits(const struct yb_client_batch *batch)
{
    uint32_t most = batch->raw ? YB_STRIPE_PARTS_MAX : YB_CLIENT_ITEMS_MAX;

    if (batch->count > most || batch->put.replicas > YB_CLIENT_REPLICAS_MAX ||
        (unsigned)batch->work_class >= YB_CLASS_COUNT ||
        (batch->count == 0 && batch->kind != YB_CLIENT_REMOVE_ALL)) {
        return false;
    }
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct yb_client_item *item = &batch->items[i];
        uint64_t bytes = 0;

        if (item->key == NULL || item->key_bytes == 0 ||
            item->key_bytes > YB_CLIENT_KEY_BYTES_MAX || item->iov_count > YB_CORE_PIECES_MAX ||
            (item->iov == NULL && item->iov_count > 0)) {
            return false;
        }
        for (uint32_t k = 0; k < item->iov_count; k++) {
            if (item->iov[k].iov_len > YB_CLIENT_VALUE_BYTES_MAX - bytes) {
                return false;
            }
            bytes += item->iov[k].iov_len;
        }
    }
    return true;
}

enum yb_status
yb_client_core_submit(struct yb_client_core *core, struct yb_client_batch *batch)
{
    static const struct yb_core_list empty = {YB_CORE_NONE, YB_CORE_NONE};
    struct yb_core_work *work;

    YB_ASSERT(core->magic == YB_CORE_MAGIC);
    if (core->stopping) {
        return YB_CLOSED;
    }
    if (!yb_client_core_fits(batch)) {
        return YB_INVALID;
    }
    if (core->work_count == YB_CORE_WORKS_MAX || (work = work_take(core, batch->count)) == NULL) {
        return YB_AGAIN;
    }
    core->work_count++;
    core->fetches += batch->kind == YB_CLIENT_FETCH;
    batch->work = work;
    batch->status = YB_OK;
    batch->total = 0;
    work->batch = batch;
    work->left = batch->kind == YB_CLIENT_REMOVE_ALL ? 1 : batch->count;
    work->ios = 0;
    work->write = batch->kind == YB_CLIENT_PUT ? yb_core_random(core) | 1u : 0;
    work->joined = 0;
    work->cancelled = work->over = false;
    work->lookup = work->intent = work->ready = work->below = work->resting = empty;
    work->unlooked = batch->count;
    work->flying = work->rests = 0;
    work->told = false;
    batch->here = 0;
    work->walk_row = 0;
    batch->striped = 0;
    batch->flush_seen = UINT64_MAX;
    work->walk_cursor = 0;
    work->previous = NULL;
    work->next = core->works;
    if (core->works != NULL) {
        core->works->previous = work;
    }
    core->works = work;
    yb_loop_arm(yb_net_loop(core->net), &work->deadline, batch->deadline_ns);
    yb_core_pump_soon(work);
    return YB_OK;
}

void
yb_client_core_cancel(struct yb_client_core *core, struct yb_client_batch *batch)
{
    struct yb_core_work *work = batch->work;

    if (work == NULL || work->cancelled) {
        return;
    }
    work->cancelled = true;
    for (struct yb_core_io *io = core->io_list; io != NULL; io = io->next) {
        if (io->work == work) {
            yb_core_io_cancel(io);
        }
    }
    yb_core_leave_send(core);
    work_over(work, YB_CANCELLED);
}

/* ---- life ----------------------------------------------------------------------------------- */

enum yb_status
yb_client_core_create(const struct yb_client_core_options *options, struct yb_net *net,
                      struct yb_client_core **core_out)
{
    struct yb_client_core *core = calloc(1, sizeof(*core));
    uint32_t ios = options->calls_max != 0 ? options->calls_max : IOS_DEFAULT;
    enum yb_status status = YB_NO_MEMORY;

    if (core == NULL) {
        return YB_NO_MEMORY;
    }
    core->magic = YB_CORE_MAGIC;
    core->options = *options;
    core->options.members_ms = options->members_ms != 0 ? options->members_ms : 1000;
    core->options.near_bytes_min =
        options->near_bytes_min != 0 ? options->near_bytes_min : YB_CORE_NEAR_BYTES_MIN;
    core->options.tenant =
        options->tenant != NULL && options->tenant[0] != '\0' ? options->tenant : "default";
    core->net = net;
    core->spare_ios = core->ios_max = ios;
    core->members = calloc(YB_CORE_MEMBERS_MAX, sizeof(*core->members));
    core->choices = calloc(YB_CORE_MEMBERS_MAX, sizeof(*core->choices));
    core->row_of_slot = calloc(65536, sizeof(*core->row_of_slot));
    core->ask_reply = malloc(YB_CORE_MEMBERS_REPLY);
    if (core->members == NULL || core->choices == NULL || core->row_of_slot == NULL ||
        core->ask_reply == NULL ||
        (status = yb_hints_create(options->hints_max != 0 ? options->hints_max : 65536,
                                  &core->hints)) != YB_OK ||
        (status = yb_pool_create_sparse("client messages", sizeof(struct yb_core_io), ios,
                                        &core->ios)) != YB_OK ||
        (status = yb_core_near_create(core, ios)) != YB_OK ||
        (status = yb_core_withdrawals_create(core)) != YB_OK ||
        (status = yb_core_declines_create(core)) != YB_OK ||
        (status = yb_peer_create(net, &options->directory, (struct yb_id){{0}},
                                 &core->directory)) != YB_OK) {
        core->stopping = true;
        yb_client_core_destroy(&core);
        return status;
    }
    yb_timer_init(&core->refresh, yb_core_on_refresh);
    yb_loop_arm(yb_net_loop(net), &core->refresh, yb_core_now(core));
    *core_out = core;
    return YB_OK;
}

void
yb_client_core_stop(struct yb_client_core *core)
{
    struct yb_core_work *next;

    if (core->stopping) {
        return;
    }
    core->stopping = true;
    yb_loop_disarm(yb_net_loop(core->net), &core->refresh);
    yb_core_near_stop(core);
    yb_core_declines_stop(core);
    for (struct yb_core_work *work = core->works; work != NULL; work = next) {
        next = work->next;
        yb_client_core_cancel(core, work->batch);
    }
    yb_stripe_stop(core);
    while (core->member_count > 0) {
        yb_core_member_drop(core, core->member_count - 1);
    }
    yb_peer_destroy(&core->directory);
}

void
yb_client_core_move(struct yb_client_core *core)
{
    YB_ASSERT(core->magic == YB_CORE_MAGIC);
    yb_pool_move(core->ios);
}

bool
yb_client_core_calm(const struct yb_client_core *core)
{
    return core->works == NULL && core->looks == 0 && core->jobs == NULL;
}

bool
yb_client_core_idle(const struct yb_client_core *core)
{
    return core->stopping && core->works == NULL && !core->asking && !core->reporting &&
           core->looks == 0 && core->jobs == NULL && core->watches == 0 && core->leaves == 0 &&
           yb_core_near_idle(core) && yb_core_withdrawals_idle(core) && yb_core_declines_idle(core);
}

void
yb_client_core_destroy(struct yb_client_core **core_in)
{
    struct yb_client_core *core = *core_in;

    if (core == NULL) {
        return;
    }
    YB_ASSERT(core->magic == YB_CORE_MAGIC && yb_client_core_idle(core));
    core->magic = 0;
    while (core->free_works != NULL) {
        struct yb_core_work *work = core->free_works;

        core->free_works = work->next;
        free(work->items);
        free(work);
    }
    yb_core_watches_fini(core);
    yb_core_leaves_fini(core);
    yb_core_loans_fini(core);
    yb_core_near_fini(core);
    yb_core_withdrawals_fini(core);
    yb_core_declines_fini(core);
    yb_pool_destroy(&core->ios);
    yb_hints_destroy(&core->hints);
    free(core->ask_reply);
    free(core->row_of_slot);
    free(core->choices);
    free(core->members);
    free(core);
    *core_in = NULL;
}

bool
yb_client_core_ready(const struct yb_client_core *core)
{
    return core->joined;
}

const char *
yb_client_core_trouble(const struct yb_client_core *core)
{
    return core->directory != NULL ? yb_peer_error(core->directory) : "";
}

void
yb_client_core_counters(const struct yb_client_core *core, struct yb_client_counters *counters_out)
{
    *counters_out = core->counters;
}
