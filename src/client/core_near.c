/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine's way to a node: shared memory of this host, and device memory wherever the node is.
 *
 *     get:  PIN --> reads, straight into the caller's memory --> in time: RELEASE, later
 *                      |                                    `--> late: RELEASE, whose answer
 *                      |                                         decides (C7)
 *                      +--> failed, and quiet: the same node by frames
 *
 * A batch of the engine that has ended writes nothing any more; only then is an item tried another
 * way (C3). An item whose device copy the driver did not end is BUSY, and is not tried again.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

#define PIN_MS         5000u
#define MARGIN_NS      (2 * YB_NS_PER_MS) /* And a hundredth of a pin, for clocks that drift. */
#define GIVE_NS        (2 * YB_NS_PER_MS)
#define SETTLE_NS      (500 * YB_NS_PER_MS)
#define TIMEOUT_MIN_NS YB_NS_PER_MS

static void on_give_timer(struct yb_timer *timer);

/* ---- life ----------------------------------------------------------------------------------- */

enum yb_status
yb_core_near_create(struct yb_client_core *core, uint32_t messages)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .access = YB_TRANSFER_MAY_READ,
    };
    struct yb_core_near *near;
    void *tickets = NULL;
    enum yb_status status;

    if (core->options.engine == NULL) {
        return YB_OK;
    }
    near = calloc(1, sizeof(*near));
    if (near == NULL) {
        return YB_NO_MEMORY;
    }
    core->near = near;
    yb_timer_init(&near->give_timer, on_give_timer);
    for (uint32_t i = 0; i < YB_CORE_GIVES_MAX; i++) {
        near->gives[i].core = core;
    }
    near->free_tickets = calloc(messages, sizeof(*near->free_tickets));
    if (near->free_tickets == NULL) {
        return YB_NO_MEMORY;
    }
    status =
        yb_transfer_alloc(core->options.engine, messages * sizeof(uint64_t), &memory, &tickets);
    near->tickets = tickets;
    while (status == YB_OK && near->free_count < messages) {
        near->free_tickets[near->free_count] = near->free_count;
        near->free_count++;
    }
    return status;
}

void
yb_core_near_stop(struct yb_client_core *core)
{
    if (core->near != NULL) {
        yb_loop_disarm(yb_net_loop(core->net), &core->near->give_timer);
        yb_core_loans_stop(core);
    }
}

bool
yb_core_near_idle(const struct yb_client_core *core)
{
    return core->near == NULL || core->near->gives_out == 0;
}

void
yb_core_near_fini(struct yb_client_core *core)
{
    struct yb_core_near *near = core->near;
    void *tickets;

    if (near == NULL) {
        return;
    }
    yb_core_held_look(core); /* What is still registered goes with the engine. */
    tickets = (void *)(uintptr_t)near->tickets;
    if (tickets != NULL && yb_transfer_free(core->options.engine, &tickets, 0) != YB_OK) {
        YB_ASSERT(near->tickets != NULL); /* A node still reads it: it goes with the engine too. */
    }
    free(near->free_tickets);
    free(near);
    core->near = NULL;
}

/* ---- members -------------------------------------------------------------------------------- */

void
yb_core_near_open(struct yb_client_core *core, struct yb_core_member *member)
{
    char address[sizeof(member->wire.data_address) + 1] = "";
    bool local =
        core->choices[member - core->members].local ||
        (!yb_id_is_none(member->wire.host) && yb_id_equal(member->wire.host, core->options.host));

    if (core->near == NULL || member->near != 0 || !local || member->wire.data_address[0] == 0) {
        return;
    }
    memcpy(address, member->wire.data_address, sizeof(member->wire.data_address));
    if (yb_transfer_open_as(core->options.engine, address, member->wire.identity, &member->near) !=
        YB_OK) {
        member->near = 0;
        return;
    }
    member->near_since_ns = yb_core_now(core);
}

void
yb_core_near_close(struct yb_client_core *core, struct yb_core_member *member)
{
    if (member->near != 0 && yb_transfer_close(core->options.engine, member->near) != YB_OK) {
        YB_ASSERT(false); /* Nobody else closes it. */
    }
    member->near = 0;
}

/* Open a member's engine although it is elsewhere: for device memory. */
static bool
reach(struct yb_client_core *core, struct yb_core_member *member)
{
    char address[sizeof(member->wire.data_address) + 1] = "";

    if (core->near == NULL || member->wire.data_address[0] == 0) {
        return false;
    }
    if (member->near == 0) {
        memcpy(address, member->wire.data_address, sizeof(member->wire.data_address));
        if (yb_transfer_open_as(core->options.engine, address, member->wire.identity,
                                &member->near) != YB_OK) {
            member->near = 0;
            return false;
        }
        member->near_since_ns = yb_core_now(core);
    }
    return true;
}

uint32_t
yb_core_nearness(struct yb_client_core *core, struct yb_core_member *member)
{
    uint64_t now_ns = yb_core_now(core);

    /* It is asked for each item of a batch, and takes locks. */
    if (member->nearness_ns != now_ns) {
        member->nearness = yb_transfer_nearness(core->options.engine, member->near);
        member->nearness_ns = now_ns;
    }
    return member->nearness;
}

bool
yb_core_is_device(struct yb_core_work *work, uint32_t index)
{
    struct yb_core_item *item = &work->items[index];
    const struct yb_client_item *asked = &work->batch->items[index];

    if (item->device == YB_CORE_DEVICE_UNKNOWN) {
        item->device = YB_CORE_DEVICE_NO;
        for (uint32_t i = 0; work->core->near != NULL && i < asked->iov_count; i++) {
            if (asked->iov[i].iov_len > 0 &&
                yb_transfer_is_device(work->core->options.engine, asked->iov[i].iov_base)) {
                item->device = YB_CORE_DEVICE_YES;
                break;
            }
        }
    }
    return item->device == YB_CORE_DEVICE_YES;
}

/* Whether an item is to be borrowed there, now. */
static enum yb_core_route
borrow_route(struct yb_core_work *work, uint32_t index, struct yb_core_member *member)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];

    item->phase = YB_CORE_SENT;
    if (core->near == NULL || member->near == 0) {
        yb_core_end(work, index, YB_UNSUPPORTED);
        return YB_CORE_NOWHERE;
    }
    if ((yb_core_nearness(core, member) & YB_TRANSFER_NEAR_MAPS) != 0) {
        return YB_CORE_NEAR;
    }
    if (yb_core_now(core) - member->near_since_ns < SETTLE_NS) {
        item->tried = 0;
        yb_core_rest(work, index); /* The two are still proving themselves. */
    } else {
        yb_core_end(work, index, YB_UNSUPPORTED);
    }
    return YB_CORE_NOWHERE;
}

enum yb_core_route
yb_core_get_route(struct yb_core_work *work, uint32_t index, struct yb_core_member *member)
{
    struct yb_client_core *core = work->core;
    struct yb_core_item *item = &work->items[index];

    if (work->batch->kind == YB_CLIENT_PIN) {
        return borrow_route(work, index, member);
    }
    if (work->batch->kind == YB_CLIENT_HOLD) {
        return YB_CORE_NEAR; /* By PIN, which is a message like any other. */
    }
    if (yb_core_is_device(work, index)) {
        if (reach(core, member)) {
            return YB_CORE_NEAR;
        }
        item->phase = YB_CORE_SENT;
        core->counters.gets++;
        yb_core_end(work, index, YB_UNSUPPORTED);
        return YB_CORE_NOWHERE;
    }
    if (core->near == NULL || member->near == 0 || item->frames ||
        item->room < core->options.near_bytes_min ||
        (yb_core_nearness(core, member) & YB_TRANSFER_NEAR_MAPS) == 0) {
        return YB_CORE_FRAMES;
    }
    return YB_CORE_NEAR;
}

/* ---- pins on their way back ------------------------------------------------------------------ */

static void
on_given(struct yb_call *call)
{
    struct yb_core_give *give = call->owner;

    give->busy = false; /* Whatever became of it: a pin that was not given back lapses. */
    give->core->near->gives_out--;
}

/* Fill a message with pins of the member that the first one is of, and take them off the list. */
static void
fill_give(struct yb_core_near *near, struct yb_core_give *give, uint32_t *count_out)
{
    const struct yb_core_pin first = near->pins[0];
    uint32_t kept = 0;
    uint32_t count = 0;

    for (uint32_t i = 0; i < near->pin_count; i++) {
        const struct yb_core_pin *pin = &near->pins[i];

        if (pin->slot == first.slot && pin->incarnation == first.incarnation &&
            count < YB_CORE_GIVE_PINS) {
            yb_wire_put_u64(give->body + YB_WIRE_RELEASES_BYTES +
                                (size_t)count * YB_WIRE_PIN_ID_BYTES,
                            pin->pin);
            count++;
        } else {
            near->pins[kept++] = *pin;
        }
    }
    near->pin_count = kept;
    memset(give->body, 0, YB_WIRE_RELEASES_BYTES);
    yb_wire_put_u32(give->body + YB_WIRE_RELEASES_AT_PINS, count);
    *count_out = count;
}

/* Send pins back, as far as there are messages. */
static void
give_now(struct yb_client_core *core)
{
    struct yb_core_near *near = core->near;

    for (uint32_t i = 0; i < YB_CORE_GIVES_MAX && near->pin_count > 0; i++) {
        struct yb_core_give *give = &near->gives[i];
        const struct yb_core_pin first = near->pins[0];
        struct yb_core_member *member = yb_core_member(core, first.slot);
        uint32_t count;

        if (give->busy) {
            continue;
        }
        fill_give(near, give, &count);
        if (member == NULL || member->wire.incarnation != first.incarnation ||
            member->peer == NULL) {
            continue; /* Its pool is gone with it. */
        }
        give->call = (struct yb_call){
            .type = YB_WIRE_NODE_TYPE_RELEASE,
            .class = YB_CLASS_FIRST_TOKEN,
            .lane = YB_WIRE_LANE_CONTROL,
            .deadline_ns = yb_core_now(core) + PIN_MS * YB_NS_PER_MS,
            .body = give->body,
            .body_bytes = (uint32_t)(YB_WIRE_RELEASES_BYTES + (size_t)count * YB_WIRE_PIN_ID_BYTES),
            .reply_body = give->reply,
            .reply_body_room = sizeof(give->reply),
            .done = on_given,
            .owner = give,
        };
        give->busy = yb_peer_call(member->peer, &give->call) == YB_OK;
        near->gives_out += give->busy;
        core->counters.calls += give->busy;
    }
}

static void
arm_give(struct yb_client_core *core)
{
    struct yb_loop *loop = yb_net_loop(core->net);

    if (!core->stopping && !yb_timer_is_armed(&core->near->give_timer)) {
        yb_loop_arm(loop, &core->near->give_timer, yb_loop_now(loop) + GIVE_NS);
    }
}

static void
on_give_timer(struct yb_timer *timer)
{
    struct yb_core_near *near =
        (struct yb_core_near *)((uint8_t *)timer - offsetof(struct yb_core_near, give_timer));
    struct yb_client_core *core = near->gives[0].core;

    give_now(core);
    yb_core_held_look(core);
    if (near->pin_count > 0 || near->held_count > 0) {
        arm_give(core);
    }
}

void
yb_core_give_to(struct yb_client_core *core, uint16_t slot, uint64_t incarnation, uint64_t pin)
{
    struct yb_core_near *near = core->near;

    if (pin == 0 || near == NULL) { /* Without an engine it is a hold, which ends by itself. */
        return;
    }
    if (near->pin_count == YB_CORE_PINS_MAX) {
        give_now(core);
    }
    if (near->pin_count < YB_CORE_PINS_MAX) {
        near->pins[near->pin_count++] =
            (struct yb_core_pin){.incarnation = incarnation, .pin = pin, .slot = slot};
    } /* Otherwise it lapses. */
    arm_give(core);
}

void
yb_core_give(struct yb_core_io *io, uint64_t pin)
{
    yb_core_give_to(io->core, io->slot, io->incarnation, pin);
}

bool
yb_client_core_settle(struct yb_client_core *core)
{
    if (core->near == NULL) {
        return true;
    }
    yb_core_loans_stop(core);
    give_now(core);
    return core->near->pin_count == 0 && core->near->gives_out == 0;
}

/* ---- gets by pins ---------------------------------------------------------------------------- */

static uint64_t
real_now(const struct yb_client_core *core)
{
    return yb_clock_now(yb_loop_clock(yb_net_loop(core->net)));
}

void
yb_core_engine_done(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct yb_core_io *io = owner;

    (void)engine;
    (void)batch;
    yb_mailbox_post_reply(yb_loop_mailbox(yb_net_loop(io->core->net)), &io->mail);
}

/* The engine's way has failed, and is quiet: the same node by frames, or for device memory the next
 * one; the same one later, if it only lends no more at once. */
static void
another_way(struct yb_core_io *io, uint32_t index, enum yb_status why)
{
    struct yb_core_work *work = io->work;
    struct yb_core_item *item = &work->items[index];
    bool waits = yb_core_is_device(work, index) && why == YB_LEASED;

    work->core->counters.retries++;
    if ((yb_core_is_device(work, index) && !waits) || item->frames || work->over) {
        yb_core_get_elsewhere(work, index, why);
        return;
    }
    item->last = why;
    for (uint32_t i = 0; i < item->slot_count; i++) {
        if (item->slots[i] == io->slot) {
            item->tried &= (uint8_t) ~(1u << i);
        }
    }
    if (waits) { /* Until what is lent to us comes back. */
        yb_core_rest(work, index);
        return;
    }
    item->frames = true;
    yb_core_get_ready(work, index);
}

/* How much of a block an item gets, and from where on; as node_get.c decides it. */
static enum yb_status
range_of(const struct yb_core_io *io, uint32_t index, uint64_t size, uint64_t *offset_out,
         uint64_t *bytes_out)
{
    const struct yb_client_item *asked = &io->work->batch->items[index];
    uint64_t room = io->work->items[index].room;

    *offset_out = asked->ranged ? asked->offset : 0;
    if (!asked->ranged) {
        *bytes_out = size;
        return size <= room ? YB_OK : YB_TOO_SMALL;
    }
    if (asked->offset > size) {
        return YB_INVALID;
    }
    *bytes_out = size - asked->offset < room ? size - asked->offset : room;
    return YB_OK;
}

/* Append an item's reads. */
static void
plan_reads(struct yb_core_io *io, uint32_t at, uint64_t offset, uint64_t bytes,
           const struct yb_wire_pin_answer *answer, uint32_t *count)
{
    const struct yb_client_item *asked = &io->work->batch->items[io->items[at]];
    uint64_t from = answer->offset + offset;

    for (uint32_t i = 0; i < asked->iov_count && bytes > 0; i++) {
        uint64_t piece = asked->iov[i].iov_len < bytes ? asked->iov[i].iov_len : bytes;

        if (piece == 0) {
            continue;
        }
        io->core->near->items[(*count)++] = (struct yb_transfer_item){
            .op = YB_TRANSFER_READ,
            .local = asked->iov[i].iov_base,
            .length = piece,
            .remote = answer->region,
            .remote_offset = from,
        };
        io->pieces[at]++;
        from += piece;
        bytes -= piece;
    }
}

/* What a node says of an item that was to be pinned. */
static void
take_pin(struct yb_core_io *io, uint32_t at, const struct yb_wire_pin_answer *answer,
         uint32_t *count)
{
    struct yb_core_work *work = io->work;
    uint32_t index = io->items[at];
    struct yb_client_item *out = &work->batch->items[index];
    enum yb_status status = (enum yb_status)answer->status;
    uint64_t life_ns = (uint64_t)answer->duration_us * YB_NS_PER_US;
    uint64_t offset = 0;
    uint64_t bytes = 0;

    io->pieces[at] = 0;
    io->pins[at] = 0;
    if (status == YB_UNSUPPORTED || status == YB_LEASED) {
        another_way(io, index, status); /* It lends nothing: perhaps it sends. */
        return;
    }
    if (status != YB_OK) {
        yb_core_get_elsewhere(work, index, status);
        return;
    }
    out->size = answer->size;
    out->grant = answer->grant;
    if (yb_core_get_striped(work, index, answer->flags)) {
        yb_core_give(io, answer->pin);
        return;
    }
    status = range_of(io, index, answer->size, &offset, &bytes);
    if (status != YB_OK) {
        yb_core_give(io, answer->pin);
        work->core->counters.gets++;
        yb_core_end(work, index, status);
        return;
    }
    if (bytes == 0) {
        yb_core_give(io, answer->pin);
        yb_core_get_took(work, index, 0);
        return;
    }
    io->pins[at] = answer->pin;
    life_ns = life_ns > life_ns / 100 + MARGIN_NS ? life_ns - life_ns / 100 - MARGIN_NS : 0;
    io->until_ns[at] = io->sent_ns + life_ns;
    plan_reads(io, at, offset, bytes, answer, count);
}

/* How an item's reads have ended. */
struct outcome {
    enum yb_status status; /* The first failure, but BUSY before all. */
    uint64_t bytes;
    uint64_t near_bytes;
};

static struct outcome
sum_up(const struct yb_transfer_item_status *status, uint32_t count)
{
    struct outcome outcome = {.status = YB_OK};

    for (uint32_t i = 0; i < count; i++) {
        if (status[i].status == YB_BUSY || (status[i].status != YB_OK && outcome.status == YB_OK)) {
            outcome.status = status[i].status;
        }
        outcome.bytes += status[i].bytes;
        outcome.near_bytes += status[i].path == YB_TRANSFER_PATH_SHM ? status[i].bytes : 0;
    }
    return outcome;
}

static void
finish_item(struct yb_core_io *io, uint32_t index, const struct outcome *outcome)
{
    io->core->counters.local_bytes += outcome->near_bytes;
    yb_core_get_took(io->work, index, outcome->bytes);
}

/* The node has said whether late pins held. What came of an item is in `pieces`: bytes by shared
 * memory, and else all of its room. */
static void
on_judged(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_wire_release_answers answers;
    bool good = call->status == YB_OK &&
                yb_wire_release_answers_decode(io->reply, call->reply_body_bytes, &answers, NULL) ==
                    YB_OK &&
                answers.answers.count == io->count;

    for (uint32_t i = 0; i < io->count; i++) {
        struct yb_wire_release_answer answer = {.status = YB_STALE};

        if (good) {
            yb_wire_release_answer_at(&answers.answers, i, &answer);
        }
        if (answer.status == YB_OK) {
            yb_core_get_took(io->work, io->items[i], io->until_ns[i]);
        } else {
            another_way(io, io->items[i], YB_STALE);
        }
    }
    yb_core_io_give(io);
}

/* Ask the node whether the pins of the first `count` items held. */
static void
ask_pins(struct yb_core_io *io, uint32_t count)
{
    struct yb_core_member *member = yb_core_member(io->core, io->slot);

    if (member != NULL && member->wire.incarnation == io->incarnation) {
        io->core->choices[member - io->core->members].busy_bytes -= io->bytes;
    }
    io->bytes = 0;
    io->count = count;
    memset(io->body, 0, YB_WIRE_RELEASES_BYTES);
    yb_wire_put_u32(io->body + YB_WIRE_RELEASES_AT_PINS, count);
    for (uint32_t i = 0; i < count; i++) {
        yb_wire_put_u64(io->body + YB_WIRE_RELEASES_BYTES + (size_t)i * YB_WIRE_PIN_ID_BYTES,
                        io->pins[i]);
    }
    memset(&io->call, 0, sizeof(io->call));
    io->type = YB_WIRE_NODE_TYPE_RELEASE;
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->call.body_bytes = (uint32_t)(YB_WIRE_RELEASES_BYTES + (size_t)count * YB_WIRE_PIN_ID_BYTES);
    yb_core_send(io, on_judged);
}

/* Judge every item of a batch that has ended; the late ones close up in front. Returns how many
 * those are. */
static uint32_t
judge(struct yb_core_io *io, uint64_t now_ns)
{
    const struct yb_transfer_item_status *status = io->core->near->statuses;
    uint32_t late = 0;

    for (uint32_t i = 0; i < io->count; i++) {
        struct outcome outcome = sum_up(status, io->pieces[i]);
        uint32_t index = io->items[i];

        status += io->pieces[i];
        if (io->pieces[i] == 0) {
            continue; /* It was dealt with before. */
        }
        io->moved += outcome.status == YB_OK ? outcome.bytes : 0;
        if (outcome.status == YB_OK && now_ns < io->until_ns[i]) {
            yb_core_give(io, io->pins[i]);
            finish_item(io, index, &outcome);
        } else if (outcome.status == YB_OK) {
            io->core->counters.local_bytes += outcome.near_bytes;
            io->items[late] = index;
            io->pins[late] = io->pins[i];
            io->until_ns[late] = outcome.bytes; /* For on_judged(). */
            late++;
        } else if (outcome.status == YB_BUSY) {
            io->core->counters.gets++;
            yb_core_end(io->work, index, YB_BUSY); /* A driver may still write it. */
        } else {
            yb_core_give(io, io->pins[i]);
            another_way(io, index, outcome.status);
        }
    }
    return late;
}

/* The engine's batch has ended: nothing of it writes the callers' memory any more. */
static void
on_read(struct yb_mail *mail)
{
    struct yb_core_io *io =
        (struct yb_core_io *)((uint8_t *)mail - offsetof(struct yb_core_io, mail));
    struct yb_client_core *core = io->core;
    struct yb_transfer_batch_status end;
    uint32_t late;

    io->moving = false;
    if (yb_transfer_poll(core->options.engine, io->batch, &end, core->near->statuses,
                         YB_CORE_PIECES_MAX) != YB_OK ||
        yb_transfer_release(core->options.engine, io->batch) != YB_OK) {
        YB_ASSERT(false); /* It has ended, and nobody else knows it. */
    }
    late = judge(io, real_now(core));
    yb_core_gate_measure(io, YB_CORE_NEAR, io->moved, real_now(core));
    if (late > 0) {
        ask_pins(io, late);
    } else {
        yb_core_io_give(io);
    }
}

/* Hand the planned reads to the engine. */
static enum yb_status
begin_reads(struct yb_core_io *io, uint32_t count)
{
    struct yb_client_core *core = io->core;
    struct yb_core_member *member = yb_core_member(core, io->slot);
    uint64_t now_ns = real_now(core);
    uint64_t until_ns = io->call.deadline_ns;
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .work_class = io->work->batch->work_class,
        .trace_id = io->work->batch->trace_id,
        .parent_span = io->work->batch->parent_span,
        .done = yb_core_engine_done,
        .owner = io,
    };
    enum yb_status status = YB_PEER_LOST;

    for (uint32_t i = 0; i < io->count; i++) {
        if (io->pieces[i] > 0 && io->until_ns[i] < until_ns) {
            until_ns = io->until_ns[i]; /* What comes later is hardly ever good. */
        }
    }
    options.timeout_ns = until_ns > now_ns + TIMEOUT_MIN_NS ? until_ns - now_ns : TIMEOUT_MIN_NS;
    yb_mail_init(&io->mail, on_read);
    if (member != NULL && member->wire.incarnation == io->incarnation && member->near != 0) {
        status = yb_transfer_submit(core->options.engine, member->near, core->near->items, count,
                                    &options, &io->batch);
    }
    io->moving = status == YB_OK;
    return status;
}

/* The answers to a PIN: where the values lie. */
static void
on_pinned(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    bool kept = work->batch->kind == YB_CLIENT_PIN || work->batch->kind == YB_CLIENT_HOLD;
    struct yb_wire_pins answers;
    uint32_t count = 0;
    enum yb_status status = call->status;

    if (yb_core_member_heard(io)) {
        yb_core_watch(work->core, io);
    }
    if (status == YB_OK &&
        (yb_wire_pins_decode(io->reply, call->reply_body_bytes, &answers, NULL) != YB_OK ||
         answers.answers.count != io->count)) {
        status = YB_PROTOCOL;
    }
    if (status != YB_OK) {
        yb_core_get_failed(io, status);
        yb_core_io_give(io);
        return;
    }
    for (uint32_t i = 0; i < io->count; i++) {
        struct yb_wire_pin_answer answer;

        yb_wire_pin_answer_at(&answers.answers, i, &answer);
        if (kept) {
            yb_core_borrow_take(io, i, &answer);
        } else {
            take_pin(io, i, &answer, &count);
        }
    }
    if (count > 0) {
        status = begin_reads(io, count);
        if (status == YB_OK) {
            return;
        }
        for (uint32_t i = 0; i < io->count; i++) {
            if (io->pieces[i] > 0) {
                yb_core_give(io, io->pins[i]);
                another_way(io, io->items[i], status);
            }
        }
    }
    yb_core_io_give(io);
}

void
yb_core_pin_send(struct yb_core_io *io)
{
    const struct yb_client_batch *batch = io->work->batch;
    bool hold = batch->kind == YB_CLIENT_HOLD;
    bool borrow = batch->kind == YB_CLIENT_PIN;

    yb_core_get_close(io);
    if (!hold) { /* The same of the pin that reads, and of a hold that it renews. */
        yb_wire_put_u32(io->body + YB_WIRE_GET_AT_DURATION_MS, borrow ? 0
                                                               : batch->hold_ms > PIN_MS
                                                                   ? batch->hold_ms
                                                                   : PIN_MS);
    }
    yb_wire_put_u8(io->body + YB_WIRE_GET_AT_BORROW, hold ? 2 : borrow);
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->sent_ns = yb_core_now(io->core);
    io->moved = 0;
    yb_core_send(io, on_pinned);
}
