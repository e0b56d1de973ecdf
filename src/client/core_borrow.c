/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of this host's nodes that are borrowed, read where they lie; and blocks of any node that
 * are held there, read by messages that renew the hold (RULES D3).
 *
 * PIN with `borrow` --> where --> the pool, mapped here --> data ... --> RELEASE --> OK, STALE
 *              hold --> GET that names the pin, again and again ... --> RELEASE
 *
 * A loan is a record of this process: which pin of which node it is, and in which mapping it lies.
 * The handle of an item has the record's generation inside. The loans of one node's pool share its
 * mapping, which the last of them lets go before its release is said, so that nothing is read from
 * memory that may be somebody else's. A release that does not reach the node is said again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"

#define LOANS_MAX  65536u
#define LOANS_STEP 256u

/* A node's pool, mapped, for all that is lent of it. */
struct yb_core_borrowed {
    struct yb_transfer_borrowed memory;
    uint64_t incarnation;
    uint32_t loans;
    uint16_t slot;
};

struct loan {
    struct yb_core_borrowed *from; /* NULL: held, not borrowed. */
    uint64_t incarnation;          /* Of the node; 0: the record is free. */
    uint64_t pin;
    uint64_t grant;
    uint16_t slot;
    uint32_t generation;
    uint32_t next_free; /* Index + 1. */
};

struct yb_core_loans {
    struct loan *loans;
    uint32_t count;
    uint32_t free; /* Index + 1; 0: none. */
};

/* Return a free record; NULL: too many, or no memory. */
static struct loan *
loan_take(struct yb_client_core *core)
{
    struct yb_core_loans *table = core->loans;
    struct loan *loan;

    if (table == NULL) {
        table = core->loans = calloc(1, sizeof(*table));
    }
    if (table == NULL) {
        return NULL;
    }
    if (table->free == 0 && table->count < LOANS_MAX) {
        struct loan *grown = realloc(table->loans, (table->count + LOANS_STEP) * sizeof(*grown));

        if (grown == NULL) {
            return NULL;
        }
        table->loans = grown;
        memset(&grown[table->count], 0, LOANS_STEP * sizeof(*grown));
        for (uint32_t i = 0; i < LOANS_STEP; i++) {
            grown[table->count].next_free = table->free;
            table->free = ++table->count;
        }
    }
    if (table->free == 0) {
        return NULL;
    }
    loan = &table->loans[table->free - 1];
    table->free = loan->next_free;
    return loan;
}

/* One loan less of a pool; the last one unmaps it. */
static void
let_go(struct yb_client_core *core, struct yb_core_borrowed *from)
{
    struct yb_core_member *member;

    if (--from->loans > 0) {
        return;
    }
    member = yb_core_member(core, from->slot);
    if (member != NULL && member->borrowed == from) {
        member->borrowed = NULL;
    }
    yb_transfer_give_back(&from->memory);
    free(from);
}

/* Forget a loan. */
static void
loan_end(struct yb_client_core *core, struct loan *loan)
{
    struct yb_core_loans *table = core->loans;

    if (loan->from != NULL) {
        let_go(core, loan->from);
    }
    loan->from = NULL;
    loan->incarnation = 0;
    loan->generation++;
    loan->next_free = table->free;
    table->free = (uint32_t)(loan - table->loans) + 1;
}

static struct loan *
loan_of(struct yb_core_loans *table, uint64_t handle)
{
    uint64_t index = (handle & UINT32_MAX) - 1;
    struct loan *loan;

    if (table == NULL || index >= table->count) {
        return NULL;
    }
    loan = &table->loans[index];
    return loan->incarnation != 0 && loan->generation == handle >> 32 ? loan : NULL;
}

/* Take the mapping of a region of a member's, for one loan more. */
static enum yb_status
map(struct yb_client_core *core, struct yb_core_member *member, uint64_t region,
    struct yb_core_borrowed **from_out)
{
    struct yb_core_borrowed *from = member->borrowed;
    struct yb_transfer_borrowed memory;
    enum yb_status status;

    if (from == NULL || from->memory.region != region ||
        from->incarnation != member->wire.incarnation) {
        status = yb_transfer_borrow(core->options.engine, member->near, region, &memory);
        if (status != YB_OK) {
            return status;
        }
        from = malloc(sizeof(*from));
        if (from == NULL) {
            yb_transfer_give_back(&memory);
            return YB_LEASED;
        }
        *from = (struct yb_core_borrowed){
            .memory = memory,
            .incarnation = member->wire.incarnation,
            .slot = member->wire.slot,
        };
        member->borrowed = from;
    }
    from->loans++;
    *from_out = from;
    return YB_OK;
}

/* Fill a record in, and hand its handle out. */
static void
enter(struct yb_core_io *io, struct loan *loan, struct yb_client_item *out,
      const struct yb_wire_pin_answer *answer)
{
    loan->incarnation = io->incarnation;
    loan->slot = io->slot;
    loan->pin = answer->pin;
    loan->grant = answer->grant;
    out->pin = (uint64_t)loan->generation << 32 | (uint64_t)(loan - io->core->loans->loans + 1);
}

/* Keep what a node holds. */
static enum yb_status
keep_held(struct yb_core_io *io, struct yb_client_item *out,
          const struct yb_wire_pin_answer *answer)
{
    struct loan *loan = loan_take(io->core);

    if (loan == NULL) {
        return YB_LEASED;
    }
    enter(io, loan, out, answer);
    return YB_OK;
}

/* Keep what a node has lent. */
static enum yb_status
keep(struct yb_core_io *io, struct yb_client_item *out, const struct yb_wire_pin_answer *answer)
{
    struct yb_client_core *core = io->core;
    struct yb_core_member *member = yb_core_member(core, io->slot);
    struct yb_core_borrowed *from;
    struct loan *loan;
    enum yb_status status;

    if (member == NULL || member->wire.incarnation != io->incarnation || member->near == 0) {
        return YB_PEER_LOST;
    }
    status = map(core, member, answer->region, &from);
    if (status != YB_OK) {
        return status;
    }
    if (answer->offset > from->memory.length ||
        answer->size > from->memory.length - answer->offset) {
        let_go(core, from);
        return YB_PROTOCOL;
    }
    loan = loan_take(core);
    if (loan == NULL) {
        let_go(core, from);
        return YB_LEASED;
    }
    loan->from = from;
    out->data = from->memory.bytes + answer->offset;
    enter(io, loan, out, answer);
    return YB_OK;
}

void
yb_core_borrow_take(struct yb_core_io *io, uint32_t at, const struct yb_wire_pin_answer *answer)
{
    struct yb_core_work *work = io->work;
    uint32_t index = io->items[at];
    struct yb_client_item *out = &work->batch->items[index];
    enum yb_status status = (enum yb_status)answer->status;

    if (status == YB_UNSUPPORTED || status == YB_LEASED) {
        yb_core_end(work, index, status);
        return;
    }
    if (status != YB_OK) {
        yb_core_get_elsewhere(work, index, status);
        return;
    }
    out->size = answer->size;
    out->grant = answer->grant;
    if (yb_core_get_striped(io->work, index, answer->flags)) {
        yb_core_give(io, answer->pin);
        return;
    }
    status =
        work->batch->kind == YB_CLIENT_HOLD ? keep_held(io, out, answer) : keep(io, out, answer);
    if (status == YB_OK) {
        work->core->counters.gets++;
        work->core->counters.hits++;
        yb_core_end(work, index, YB_OK);
        return;
    }
    yb_core_give(io, answer->pin);
    if (status == YB_AGAIN && !work->over) {
        work->items[index].tried = 0;
        yb_core_rest(work, index); /* The pool is just being mapped here. */
    } else if (status == YB_AGAIN) {
        yb_core_end(work, index, work->cancelled ? YB_CANCELLED : YB_TIMED_OUT);
    } else {
        yb_core_end(work, index, status);
    }
}

/* ---- reads by a hold ------------------------------------------------------------------------- */

void
yb_core_held_begin(struct yb_core_work *work, uint32_t index)
{
    struct yb_core_item *item = &work->items[index];
    const struct loan *loan = loan_of(work->core->loans, work->batch->items[index].held);
    const struct yb_core_member *member =
        loan == NULL ? NULL : yb_core_member(work->core, loan->slot);

    if (member == NULL || member->wire.incarnation != loan->incarnation) {
        item->phase = YB_CORE_SENT;
        work->core->counters.gets++;
        yb_core_end(work, index, YB_STALE); /* It was given back, or the node's life is over. */
        return;
    }
    item->held = loan->pin;
    item->grant = loan->grant;
    item->slots[0] = loan->slot;
    item->slot_count = 1;
    yb_core_push(work, &work->ready, index, YB_CORE_READY);
}

/* ---- release --------------------------------------------------------------------------------- */

static void
on_released(struct yb_call *call)
{
    struct yb_core_io *io = call->owner;
    struct yb_core_work *work = io->work;
    struct yb_wire_release_answers answers;
    enum yb_status failure = call->status;

    if (failure == YB_OK && (yb_wire_release_answers_decode(io->reply, call->reply_body_bytes,
                                                            &answers, NULL) != YB_OK ||
                             answers.answers.count != io->count)) {
        failure = YB_PROTOCOL;
    }
    for (uint32_t i = 0; i < io->count; i++) {
        struct yb_wire_release_answer answer = {.status = YB_STALE};

        if (failure != YB_OK) {
            yb_core_give(io, yb_wire_get_u64(io->body + YB_WIRE_RELEASES_BYTES +
                                             (size_t)i * YB_WIRE_PIN_ID_BYTES));
            yb_core_end(work, io->items[i], failure);
            continue;
        }
        yb_wire_release_answer_at(&answers.answers, i, &answer);
        yb_core_end(work, io->items[i],
                    answer.status == YB_OK && answer.removed == 0 ? YB_OK : YB_STALE);
    }
    yb_core_io_give(io);
}

static void
release_send(struct yb_core_io *io)
{
    memset(io->body, 0, YB_WIRE_RELEASES_BYTES);
    yb_wire_put_u32(io->body + YB_WIRE_RELEASES_AT_PINS, io->count);
    io->call.lane = YB_WIRE_LANE_CONTROL;
    io->call.body_bytes =
        (uint32_t)(YB_WIRE_RELEASES_BYTES + (size_t)io->count * YB_WIRE_PIN_ID_BYTES);
    yb_core_send(io, on_released);
}

/* Give one item back, in a message to its node. Returns false if there is no message left. */
static bool
release_item(struct yb_core_work *work, uint32_t index)
{
    struct yb_client_core *core = work->core;
    struct loan *loan = loan_of(core->loans, work->items[index].grant);
    struct yb_core_member *member;

    work->items[index].phase = YB_CORE_SENT;
    if (loan == NULL) {
        yb_core_end(work, index, YB_CLOSED); /* It was given back before, or never lent. */
        return true;
    }
    member = yb_core_member(core, loan->slot);
    if (member == NULL || member->wire.incarnation != loan->incarnation) {
        loan_end(core, loan);
        yb_core_end(work, index, YB_STALE); /* The node's life is over, and so is the block's. */
        return true;
    }
    if (member->open != NULL && member->open->count == YB_CORE_LOOKUP_KEYS) {
        struct yb_core_io *full = member->open;

        member->open = NULL;
        release_send(full);
    }
    if (member->open == NULL) {
        member->open = yb_core_io_take(work, YB_WIRE_NODE_TYPE_RELEASE, member->wire.slot);
    }
    if (member->open == NULL) {
        return false;
    }
    yb_wire_put_u64(member->open->body + YB_WIRE_RELEASES_BYTES +
                        (size_t)member->open->count * YB_WIRE_PIN_ID_BYTES,
                    loan->pin);
    member->open->items[member->open->count++] = index;
    loan_end(core, loan);
    return true;
}

void
yb_core_release_pump(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    uint32_t index;

    while ((index = yb_core_pop(work, &work->ready)) != YB_CORE_NONE) {
        if (!release_item(work, index)) {
            yb_core_push(work, &work->ready, index, YB_CORE_READY);
            break;
        }
    }
    for (uint32_t row = 0; row < core->member_count; row++) {
        struct yb_core_io *open = core->members[row].open;

        core->members[row].open = NULL;
        if (open != NULL) {
            release_send(open);
        }
    }
}

void
yb_core_loans_stop(struct yb_client_core *core)
{
    struct yb_core_loans *table = core->loans;

    for (uint32_t i = 0; table != NULL && i < table->count; i++) {
        struct loan *loan = &table->loans[i];

        if (loan->incarnation != 0) {
            yb_core_give_to(core, loan->slot, loan->incarnation, loan->pin);
            loan_end(core, loan);
        }
    }
}

void
yb_core_loans_fini(struct yb_client_core *core)
{
    if (core->loans != NULL) {
        yb_core_loans_stop(core);
        free(core->loans->loans);
        free(core->loans);
        core->loans = NULL;
    }
}
