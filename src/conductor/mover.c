/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders, pieces, and how they end.
 *
 *     a piece:  LOOKS --where each value is--> MOVES, once for each node that has some of them
 *                 ^                              |          \-> LEAVES, of a migration
 *                 |                              |          \-> WATCHES, of a prefetch
 *                 +-- not there yet, or the node has begun another life
 */
#include "conductor/mover.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "conductor/mover_internal.h"
#include "conductor/wire/conductor_wire.h"
#include "yuebing/sched.h"

#define NODE_PIECES 16u
#define LOOK_NS     (2 * YB_NS_PER_S)
#define AGAIN_NS    (20 * YB_NS_PER_MS) /* Until it is looked again for what is not there yet. */
#define WATCH_NS    (30 * YB_NS_PER_S)  /* So long a node watches who reads what came early. */
#define TENANT      "default"

static void look(struct yb_mover_piece *piece);
static void move_next(struct yb_mover_piece *piece);

struct yb_conductor_order *
yb_conductor_order_create(uint32_t count)
{
    struct yb_conductor_order *order =
        calloc(1, sizeof(*order) + (size_t)count * sizeof(order->keys[0]));

    if (order != NULL) {
        order->count = count;
        order->parts = 1;
    }
    return order;
}

struct yb_conductor_moved
yb_conductor_order_cancelled(const struct yb_conductor_order *order)
{
    struct yb_conductor_moved moved = {
        .id = order->id,
        .outcome = YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED,
        .kind = order->kind,
        .reason = order->reason,
        .decided_ns = order->decided_ns,
        .finished_ns = order->decided_ns,
        .deadline_ns = order->deadline_ns,
    };

    memcpy(moved.to, order->to, sizeof(moved.to));
    return moved;
}

/* ---- how an order ends ----------------------------------------------------------------------- */

static uint8_t
outcome_of(const struct yb_mover_order *of)
{
    const uint64_t *what = of->what;
    const uint64_t came = what[YB_WIRE_INSTRUCTED_MOVED] + what[YB_WIRE_INSTRUCTED_JOINED];

    if (of->unwanted) {
        return YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED;
    }
    if (what[YB_WIRE_INSTRUCTED_FAILED] > 0) {
        return of->timed_out == what[YB_WIRE_INSTRUCTED_FAILED] ? YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED
                                                                : YB_WIRE_CONDUCTOR_OUTCOME_FAILED;
    }
    if (what[YB_WIRE_INSTRUCTED_GONE] > 0) {
        return YB_WIRE_CONDUCTOR_OUTCOME_SOURCE_GONE;
    }
    if (what[YB_WIRE_INSTRUCTED_UNUSED] > 0) {
        return YB_WIRE_CONDUCTOR_OUTCOME_EVICTED_UNUSED;
    }
    if (came == 0) {
        return YB_WIRE_CONDUCTOR_OUTCOME_ALREADY_THERE;
    }
    if (of->finished_ns > of->order->deadline_ns) {
        return YB_WIRE_CONDUCTOR_OUTCOME_LATE;
    }
    return what[YB_WIRE_INSTRUCTED_MOVED] == 0 ? YB_WIRE_CONDUCTOR_OUTCOME_JOINED
                                               : YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME;
}

/* Where most of it came from, as the scheduler counts tiers. */
static uint8_t
tier_of(const struct yb_mover_order *of)
{
    uint8_t most = YB_WIRE_TIER_DRAM;

    for (uint8_t tier = YB_WIRE_TIER_DEVICE; tier <= YB_WIRE_TIER_OBJECT; tier++) {
        most = of->tiers[tier] > of->tiers[most] ? tier : most;
    }
    return (uint8_t)(most - YB_WIRE_TIER_DEVICE);
}
_Static_assert((int)YB_WIRE_TIER_OBJECT - (int)YB_WIRE_TIER_DEVICE == (int)YB_SCHED_TIER_OBJECT,
               "both count the same tiers");

static void
write_span(const struct yb_conductor_mover *mover, const struct yb_mover_order *of,
           const struct yb_conductor_moved *moved)
{
    const struct yb_clock *clock = yb_loop_clock(mover->loop);
    const uint64_t now_ns = yb_mover_now(mover);
    struct yb_span span = {
        .trace = of->order->trace,
        .span = yb_span_new_id(yb_net_random_system, NULL),
        .parent = of->order->parent,
        .start_ns = moved->decided_ns,
        .end_ns = moved->finished_ns,
        .wall_ns = yb_clock_wall(clock) - (now_ns - moved->decided_ns),
        .bytes = moved->bytes,
        .number = of->order->id,
        .outcome = moved->outcome == YB_WIRE_CONDUCTOR_OUTCOME_FAILED ? YB_IO : YB_OK,
        .kind = YB_SPAN_KIND_FETCH,
        .tier = (uint8_t)(moved->source_tier + YB_SPAN_TIER_DEVICE),
        .work_class = of->order->work_class,
    };

    if (mover->options.spans != NULL) {
        yb_span_write(mover->options.spans, &span);
    }
}

/* Tell of an order whose last piece has ended, and forget it (M1). */
static void
finish(struct yb_conductor_mover *mover, struct yb_mover_order *of)
{
    struct yb_mover_order **link = &mover->first;
    struct yb_conductor_moved moved = yb_conductor_order_cancelled(of->order);

    /* The loop's time is of the turn, and the order may have been decided since that began. */
    moved.finished_ns = of->finished_ns > moved.decided_ns ? of->finished_ns : moved.decided_ns;
    moved.outcome = outcome_of(of);
    moved.source_tier = tier_of(of);
    moved.started_ns = of->started_ns;
    moved.bytes = of->bytes;
    while (*link != of) {
        link = &(*link)->next;
    }
    *link = of->next;
    mover->orders--;
    write_span(mover, of, &moved);
    mover->options.moved(mover->options.owner, &moved);
    free(of->order);
    free(of);
}

static uint64_t
limit_of(const struct yb_mover_order *of)
{
    return yb_deadline_after(of->order->deadline_ns, YB_CONDUCTOR_LATE_NS);
}

/* No more of it is begun: what is left has failed for that reason. */
static void
give_up(struct yb_conductor_mover *mover, struct yb_mover_order *of, enum yb_status status)
{
    const uint64_t left = of->values - of->begun;

    of->over = true;
    of->begun = of->values;
    of->what[YB_WIRE_INSTRUCTED_FAILED] += left;
    of->timed_out += status == YB_TIMED_OUT ? left : 0;
    if (of->under_way == 0) {
        of->finished_ns = yb_mover_now(mover);
        finish(mover, of);
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static void
piece_end(struct yb_mover_piece *piece)
{
    struct yb_conductor_mover *mover = piece->mover;
    struct yb_mover_order *of = piece->of;

    YB_ASSERT(piece->open == 0);
    piece->of = NULL;
    of->under_way--;
    if (of->under_way == 0 && of->begun == of->values) {
        finish(mover, of);
    }
    if (!mover->stopping) {
        yb_mover_pump(mover);
    }
}

static void
value_end(struct yb_mover_piece *piece, uint32_t index, uint8_t what, enum yb_status status)
{
    struct yb_mover_order *of = piece->of;

    YB_ASSERT(!piece->over[index] && piece->open > 0);
    piece->over[index] = true;
    piece->open--;
    of->what[what]++;
    of->timed_out += what == YB_WIRE_INSTRUCTED_FAILED && status == YB_TIMED_OUT;
}

/* All that is open in the piece has failed. */
static void
piece_fail(struct yb_mover_piece *piece, enum yb_status status)
{
    piece->of->finished_ns = yb_mover_now(piece->mover);
    for (uint32_t i = 0; i < piece->count; i++) {
        if (!piece->over[i]) {
            value_end(piece, i, YB_WIRE_INSTRUCTED_FAILED, status);
        }
    }
    piece_end(piece);
}

/* Look again in a moment, as long as there is time. */
static void
look_later(struct yb_mover_piece *piece)
{
    const uint64_t now_ns = yb_mover_now(piece->mover);

    if (piece->mover->stopping || limit_of(piece->of) <= now_ns) {
        piece_fail(piece, YB_TIMED_OUT);
        return;
    }
    yb_loop_arm(piece->mover->loop, &piece->timer, now_ns + AGAIN_NS);
}

static void
on_timer(struct yb_timer *timer)
{
    struct yb_mover_piece *piece =
        (struct yb_mover_piece *)((uint8_t *)timer - offsetof(struct yb_mover_piece, timer));

    look(piece);
}

static void
call_end(struct yb_mover_piece *piece)
{
    if (piece->peer != NULL) {
        piece->peer->under_way--;
        piece->peer = NULL;
    }
}

/* Send the body to `peer`; NULL: to the directory. */
static enum yb_status
ask(struct yb_mover_piece *piece, struct yb_mover_peer *peer, uint16_t type, size_t length,
    void (*done)(struct yb_call *call))
{
    struct yb_conductor_mover *mover = piece->mover;
    const struct yb_conductor_order *order = piece->of->order;
    enum yb_status status;

    piece->sent_ns = yb_mover_now(mover);
    piece->call = (struct yb_call){
        .type = type,
        .class = (enum yb_class)order->work_class,
        .lane = YB_WIRE_LANE_CONTROL,
        .fail_fast = peer != NULL,
        .deadline_ns =
            peer != NULL ? limit_of(piece->of) : yb_deadline_after(piece->sent_ns, LOOK_NS),
        .trace_id = order->trace,
        .parent_span = order->parent,
        .body = piece->body,
        .body_bytes = (uint32_t)length,
        .reply_body = piece->reply,
        .reply_body_room = sizeof(piece->reply),
        .done = done,
        .owner = piece,
    };
    if (mover->stopping) {
        return YB_CLOSED;
    }
    status = yb_peer_call(peer != NULL ? peer->peer : mover->directory, &piece->call);
    if (status == YB_OK && peer != NULL) {
        piece->peer = peer;
        peer->under_way++;
    }
    return status;
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Write the key of a value behind `at`; returns its length. */
static uint32_t
put_key(const struct yb_conductor_order *order, uint64_t value, uint8_t *at)
{
    const uint64_t part = value % order->parts;

    memcpy(at, order->keys[value / order->parts].bytes, sizeof(struct yb_id));
    at[sizeof(struct yb_id)] = (uint8_t)part;
    return sizeof(struct yb_id) + (part + 1 < order->parts);
}

/* Write the message about `asked` to a node. Returns its length. */
static size_t
write_instruction(struct yb_mover_piece *piece, const struct yb_mover_node *to,
                  const struct yb_mover_node *source, bool leaves)
{
    const struct yb_conductor_order *order = piece->of->order;
    const uint64_t now_ns = yb_mover_now(piece->mover);
    struct yb_wire_instruction_block blocks[YB_MOVER_VALUES_MAX];
    uint8_t keys[YB_MOVER_VALUES_MAX * (sizeof(struct yb_id) + 1)];
    uint64_t left_ns = order->deadline_ns > now_ns ? order->deadline_ns - now_ns : 0;
    uint32_t at = 0;
    size_t length = 0;
    struct yb_wire_instruction body = {
        .incarnation = to->incarnation,
        .id = order->id,
        .trace = order->trace,
        .source = source != NULL ? source->incarnation : 0,
        .kind = order->kind,
        .reason = order->reason,
        .class = order->work_class,
        .leaves = leaves,
        .tells = 1,
        .address = yb_wire_text_of(source != NULL ? source->address : ""),
        .tenant = yb_wire_text_of(order->tenant[0] != '\0' ? order->tenant : TENANT),
        .blocks = {.count = piece->asked_count, .native = blocks},
    };

    if (order->kind == YB_SCHED_KIND_PREFETCH && left_ns > WATCH_NS) {
        left_ns = WATCH_NS;
    }
    body.deadline_us = left_ns / YB_NS_PER_US;
    for (uint32_t i = 0; i < piece->asked_count; i++) {
        const uint32_t value = piece->asked[i];
        const uint32_t key_bytes = put_key(order, piece->first + value, keys + at);

        blocks[i] = (struct yb_wire_instruction_block){.hash = piece->hashes[value],
                                                       .grant = piece->grants[value],
                                                       .key_bytes = (uint16_t)key_bytes};
        at += key_bytes;
    }
    body.keys = (struct yb_wire_blob){.bytes = keys, .length = at};
    YB_ASSERT(yb_wire_instruction_encode(&body, piece->body, sizeof(piece->body), &length) ==
              YB_OK);
    return length;
}

/* The other node was asked to let go; whether it does changes nothing for us. */
static void
on_left(struct yb_call *call)
{
    struct yb_mover_piece *piece = call->owner;

    call_end(piece);
    move_next(piece);
}

/* The second half of a migration. Returns whether a call is under way. */
static bool
let_go(struct yb_mover_piece *piece)
{
    const struct yb_mover_node *source = yb_mover_node_at(piece->mover, piece->source);
    struct yb_mover_peer *peer =
        source != NULL ? yb_mover_peer_of(piece->mover, source->address) : NULL;

    if (piece->of->order->kind != YB_SCHED_KIND_MIGRATE || peer == NULL) {
        return false;
    }
    piece->phase = YB_MOVER_LEAVES;
    return ask(piece, peer, YB_WIRE_NODE_TYPE_INSTRUCT,
               write_instruction(piece, source, NULL, true), on_left) == YB_OK;
}

/* Whether it is worth looking again: the node is full of instructions, or has begun another life,
 * or is gone, which the directory will know. */
static bool
is_elsewhere(enum yb_status status)
{
    return status == YB_AGAIN || status == YB_FENCED || status == YB_CLOSED ||
           status == YB_UNREACHABLE || status == YB_PEER_LOST;
}

static void
take_record(struct yb_mover_piece *piece, const struct yb_wire_instruction_record *record)
{
    struct yb_mover_order *of = piece->of;
    const uint64_t finished_ns =
        yb_deadline_after(piece->sent_ns, record->finished_us * YB_NS_PER_US);

    of->bytes += record->bytes;
    of->finished_ns = finished_ns > of->finished_ns ? finished_ns : of->finished_ns;
    for (uint32_t i = 0; i < record->outcomes.count && i < piece->asked_count; i++) {
        struct yb_wire_instruction_outcome told;

        yb_wire_instruction_outcome_at(&record->outcomes, i, &told);
        if (told.what == YB_WIRE_INSTRUCTED_FAILED && is_elsewhere((enum yb_status)told.status)) {
            continue; /* Its source is gone: it is looked for again. */
        }
        of->tiers[told.tier] += told.what == YB_WIRE_INSTRUCTED_MOVED ||
                                told.what == YB_WIRE_INSTRUCTED_JOINED ||
                                told.what == YB_WIRE_INSTRUCTED_UNUSED;
        value_end(piece, piece->asked[i], told.what, (enum yb_status)told.status);
    }
}

static void
on_watched(struct yb_call *call)
{
    struct yb_mover_piece *piece = call->owner;
    struct yb_wire_instruction_record record;

    call_end(piece);
    if (call->status == YB_OK &&
        yb_wire_instruction_record_decode(piece->reply, call->reply_body_bytes, &record, NULL) ==
            YB_OK) {
        for (uint32_t i = 0; i < record.outcomes.count; i++) {
            struct yb_wire_instruction_outcome told;

            yb_wire_instruction_outcome_at(&record.outcomes, i, &told);
            piece->of->what[YB_WIRE_INSTRUCTED_UNUSED] += told.what == YB_WIRE_INSTRUCTED_UNUSED;
        }
    }
    move_next(piece);
}

/* All of the message came; ask who reads it. Returns whether a call is under way: what is not known
 * of readers changes nothing of what came. */
static bool
watch(struct yb_mover_piece *piece, struct yb_mover_peer *peer, uint32_t number)
{
    const struct yb_mover_node *to = yb_mover_node_named(piece->mover, piece->of->order->to);
    const struct yb_wire_instruction_watch body = {.incarnation = to != NULL ? to->incarnation : 0,
                                                   .watched = number};
    size_t length = 0;

    if (number == 0 || to == NULL) {
        return false;
    }
    YB_ASSERT(yb_wire_instruction_watch_encode(&body, piece->body, sizeof(piece->body), &length) ==
              YB_OK);
    piece->phase = YB_MOVER_WATCHES;
    return ask(piece, peer, YB_WIRE_NODE_TYPE_INSTRUCT_WATCH, length, on_watched) == YB_OK;
}

static void
on_record(struct yb_call *call)
{
    struct yb_mover_piece *piece = call->owner;
    struct yb_mover_peer *peer = piece->peer;
    struct yb_wire_instruction_record record;
    enum yb_status status = call->status;

    call_end(piece);
    if (status == YB_OK) {
        status =
            yb_wire_instruction_record_decode(piece->reply, call->reply_body_bytes, &record, NULL);
    }
    if (status == YB_OK && record.outcomes.count == piece->asked_count) {
        take_record(piece, &record);
        if (!watch(piece, peer, record.watched) && !let_go(piece)) {
            move_next(piece);
        }
    } else if (is_elsewhere(status)) {
        yb_mover_nodes_ask(piece->mover, true);
        look_later(piece);
    } else {
        piece_fail(piece, status == YB_OK ? YB_PROTOCOL : status);
    }
}

/* Choose the values of the next message: those of one source, and what the node has itself. */
static void
choose(struct yb_mover_piece *piece)
{
    piece->asked_count = 0;
    piece->source = 0;
    for (uint32_t i = 0; i < piece->count; i++) {
        if (!piece->found[i] ||
            (piece->sources[i] != 0 && piece->source != 0 && piece->sources[i] != piece->source)) {
            continue;
        }
        piece->source = piece->sources[i] != 0 ? piece->sources[i] : piece->source;
        piece->found[i] = false;
        piece->asked[piece->asked_count++] = (uint8_t)i;
    }
}

/* Ask for what was found and is not here yet; then for what was not found, if it may come. */
static void
move_next(struct yb_mover_piece *piece)
{
    struct yb_conductor_mover *mover = piece->mover;
    const struct yb_mover_node *to = yb_mover_node_named(mover, piece->of->order->to);
    struct yb_mover_peer *peer = to != NULL ? yb_mover_peer_of(mover, to->address) : NULL;
    const struct yb_mover_node *source;
    enum yb_status status = YB_UNREACHABLE;

    piece->phase = YB_MOVER_MOVES;
    choose(piece);
    if (piece->asked_count == 0) {
        if (piece->open == 0) {
            piece_end(piece);
        } else {
            look_later(piece);
        }
        return;
    }
    source = piece->source != 0 ? yb_mover_node_at(mover, piece->source) : NULL;
    if (peer != NULL) {
        status = ask(piece, peer, YB_WIRE_NODE_TYPE_INSTRUCT,
                     write_instruction(piece, to, source, false), on_record);
    }
    if (status != YB_OK) {
        piece_fail(piece, status);
    }
}

/* ---- where values are ------------------------------------------------------------------------ */

/* Where to take a value from: the node itself, or else the replica in the fastest tier. Returns
 * false: there is none. */
static bool
choose_source(const struct yb_wire_lookup_answer *told, uint16_t own, uint16_t *source_out)
{
    const uint16_t slots[YB_WIRE_ANSWER_REPLICAS] = {told->slot0, told->slot1, told->slot2,
                                                     told->slot3};
    const uint8_t tiers[YB_WIRE_ANSWER_REPLICAS] = {told->tier0, told->tier1, told->tier2,
                                                    told->tier3};
    uint8_t best = UINT8_MAX;

    for (uint32_t i = 0; i < YB_WIRE_ANSWER_REPLICAS && i < told->count; i++) {
        if (slots[i] == own) {
            *source_out = 0;
            return true;
        }
        if (slots[i] != 0 && tiers[i] < best) {
            best = tiers[i];
            *source_out = slots[i];
        }
    }
    return best != UINT8_MAX;
}

static void
take_answers(struct yb_mover_piece *piece, const struct yb_wire_lookup_answers *answers,
             uint16_t own)
{
    struct yb_mover_order *of = piece->of;
    const uint64_t now_ns = yb_mover_now(piece->mover);

    for (uint32_t i = 0; i < answers->answers.count && i < piece->asked_count; i++) {
        const uint32_t value = piece->asked[i];
        struct yb_wire_lookup_answer told;
        bool coming;

        yb_wire_lookup_answer_at(&answers->answers, i, &told);
        coming = told.presence == YB_WIRE_PRESENCE_IN_PROGRESS ||
                 told.presence == YB_WIRE_PRESENCE_REBUILDING || of->order->expected;
        piece->grants[value] = told.grant;
        piece->found[value] = told.grant != 0 && choose_source(&told, own, &piece->sources[value]);
        if (!piece->found[value] && !(coming && now_ns < of->order->deadline_ns)) {
            of->finished_ns = now_ns;
            value_end(piece, value, YB_WIRE_INSTRUCTED_GONE, YB_NOT_FOUND);
        }
    }
}

static void
on_looked(struct yb_call *call)
{
    struct yb_mover_piece *piece = call->owner;
    const struct yb_mover_node *to = yb_mover_node_named(piece->mover, piece->of->order->to);
    struct yb_wire_lookup_answers answers;
    enum yb_status status = call->status;

    if (status == YB_OK) {
        status =
            yb_wire_lookup_answers_decode(piece->reply, call->reply_body_bytes, &answers, NULL);
    }
    if (status == YB_OK && to != NULL && answers.answers.count == piece->asked_count) {
        take_answers(piece, &answers, to->slot);
        move_next(piece);
    } else if (piece->mover->stopping || to == NULL) {
        piece_fail(piece, to == NULL ? YB_UNREACHABLE : YB_CLOSED);
    } else {
        look_later(piece); /* The directory is away; it comes back, or time is over. */
    }
}

static void
look(struct yb_mover_piece *piece)
{
    struct yb_wire_hash hashes[YB_MOVER_VALUES_MAX];
    const struct yb_wire_lookup body = {
        .flags = YB_WIRE_LOOKUP_FLAG_EXIST,
        .hashes = {.native = hashes, .count = piece->open},
    };
    size_t length = 0;
    enum yb_status status;

    piece->phase = YB_MOVER_LOOKS;
    piece->asked_count = 0;
    for (uint32_t i = 0; i < piece->count; i++) {
        if (!piece->over[i]) {
            hashes[piece->asked_count].hash = piece->hashes[i];
            piece->asked[piece->asked_count++] = (uint8_t)i;
        }
    }
    YB_ASSERT(piece->asked_count == piece->open && piece->open > 0);
    YB_ASSERT(yb_wire_lookup_encode(&body, piece->body, sizeof(piece->body), &length) == YB_OK);
    status = ask(piece, NULL, YB_WIRE_DIRECTORY_TYPE_LOOKUP, length, on_looked);
    if (status != YB_OK) {
        look_later(piece);
    }
}

static void
name_values(struct yb_mover_piece *piece)
{
    const struct yb_conductor_order *order = piece->of->order;
    const char *tenant = order->tenant[0] != '\0' ? order->tenant : TENANT;
    const struct yb_hash_bytes whose = {tenant, strlen(tenant)};
    struct yb_hash_bytes names[YB_MOVER_VALUES_MAX];
    uint8_t keys[YB_MOVER_VALUES_MAX][sizeof(struct yb_id) + 1];

    for (uint32_t i = 0; i < piece->count; i++) {
        names[i].data = keys[i];
        names[i].length = put_key(order, piece->first + i, keys[i]);
    }
    yb_hash_keys(piece->mover->options.hash_seed, whose, names, piece->count, piece->hashes);
}

/* ---- what goes next -------------------------------------------------------------------------- */

/* Whether an order has a piece that may begin now. */
static bool
may_begin(struct yb_conductor_mover *mover, const struct yb_mover_order *of)
{
    const struct yb_mover_node *to = yb_mover_node_named(mover, of->order->to);
    const struct yb_mover_peer *peer;

    if (of->begun == of->values || of->order->not_before_ns > yb_mover_now(mover) || to == NULL) {
        return false;
    }
    peer = yb_mover_peer_of(mover, to->address);
    return peer != NULL && peer->under_way < NODE_PIECES;
}

/* Return the most urgent order that has a piece which may begin; NULL: there is none (M3). */
static struct yb_mover_order *
most_urgent(struct yb_conductor_mover *mover)
{
    struct yb_mover_order *best = NULL;

    for (struct yb_mover_order *of = mover->first; of != NULL; of = of->next) {
        if (may_begin(mover, of) &&
            (best == NULL || of->order->work_class < best->order->work_class ||
             (of->order->work_class == best->order->work_class &&
              of->order->deadline_ns < best->order->deadline_ns))) {
            best = of;
        }
    }
    return best;
}

/* End what cannot begin any more: time is over, nobody wants it, or its node is gone. */
static void
weed(struct yb_conductor_mover *mover)
{
    const uint64_t now_ns = yb_mover_now(mover);
    struct yb_mover_order *next;

    for (struct yb_mover_order *of = mover->first; of != NULL; of = next) {
        next = of->next;
        if (of->begun == of->values) {
            continue;
        }
        if (!mover->options.wanted(mover->options.owner, of->order->id)) {
            of->unwanted = true; /* M4 */
            give_up(mover, of, YB_CANCELLED);
        } else if (limit_of(of) <= now_ns) {
            give_up(mover, of, YB_TIMED_OUT);
        } else if (yb_mover_nodes_fresh(mover) &&
                   yb_mover_node_named(mover, of->order->to) == NULL) {
            give_up(mover, of, YB_UNREACHABLE);
        }
    }
}

static void
begin(struct yb_mover_piece *piece, struct yb_mover_order *of)
{
    const uint64_t left = of->values - of->begun;

    piece->of = of;
    piece->first = of->begun;
    piece->count = left < YB_MOVER_VALUES_MAX ? (uint32_t)left : YB_MOVER_VALUES_MAX;
    piece->open = piece->count;
    memset(piece->over, 0, sizeof(piece->over));
    memset(piece->found, 0, sizeof(piece->found));
    of->begun += piece->count;
    of->under_way++;
    of->started_ns = of->started_ns != 0 ? of->started_ns : yb_mover_now(piece->mover);
    name_values(piece);
    look(piece);
}

/* Something may begin in a while: come back then. */
static void
come_back(struct yb_conductor_mover *mover)
{
    const uint64_t now_ns = yb_mover_now(mover);
    uint64_t at_ns = YB_NEVER;

    for (const struct yb_mover_order *of = mover->first; of != NULL; of = of->next) {
        uint64_t then_ns =
            of->order->not_before_ns > now_ns ? of->order->not_before_ns : now_ns + AGAIN_NS;

        at_ns = of->begun < of->values && then_ns < at_ns ? then_ns : at_ns;
    }
    yb_loop_arm(mover->loop, &mover->timer, at_ns);
}

void
yb_mover_pump(struct yb_conductor_mover *mover)
{
    if (mover->first == NULL || mover->stopping) {
        return;
    }
    yb_mover_nodes_ask(mover, false);
    weed(mover);
    for (uint32_t i = 0; i < YB_MOVER_PIECES; i++) {
        struct yb_mover_order *of = mover->pieces[i].of == NULL ? most_urgent(mover) : NULL;

        if (of != NULL) {
            begin(&mover->pieces[i], of);
        }
    }
    come_back(mover);
}

static void
on_pump(struct yb_timer *timer)
{
    yb_mover_pump((struct yb_conductor_mover *)((uint8_t *)timer -
                                                offsetof(struct yb_conductor_mover, timer)));
}

enum yb_status
yb_conductor_mover_take(struct yb_conductor_mover *mover, struct yb_conductor_order *order)
{
    struct yb_mover_order *of;

    YB_ASSERT_OBJ(mover, YB_MOVER_MAGIC);
    YB_ASSERT(order->count > 0 && order->parts > 0 && order->kind <= YB_SCHED_KIND_MIGRATE);
    if (mover->stopping || mover->orders == YB_CONDUCTOR_ORDERS_MAX) {
        return YB_AGAIN;
    }
    of = calloc(1, sizeof(*of));
    if (of == NULL) {
        return YB_AGAIN;
    }
    of->order = order;
    of->values = (uint64_t)order->count * order->parts;
    of->next = mover->first;
    mover->first = of;
    mover->orders++;
    yb_mover_pump(mover);
    return YB_OK;
}

/* What its pieces are at. An order whose pieces watch, and which has no other to begin, is watched.
 */
struct yb_conductor_orders
yb_conductor_mover_orders(const struct yb_conductor_mover *mover)
{
    struct yb_conductor_orders orders = {0};

    for (const struct yb_mover_order *of = mover->first; of != NULL; of = of->next) {
        uint32_t moves = 0;
        uint32_t watches = 0;

        for (uint32_t i = 0; i < YB_MOVER_PIECES && of->under_way > 0; i++) {
            const struct yb_mover_piece *piece = &mover->pieces[i];

            moves += piece->of == of &&
                     (piece->phase == YB_MOVER_MOVES || piece->phase == YB_MOVER_LEAVES);
            watches += piece->of == of && piece->phase == YB_MOVER_WATCHES;
        }
        orders.under_way += moves > 0;
        orders.watched += watches > 0 && watches == of->under_way && of->begun == of->values;
    }
    return orders;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_conductor_mover_create(const struct yb_conductor_mover_options *options,
                          struct yb_conductor_mover **mover_out)
{
    struct yb_conductor_mover *mover = calloc(1, sizeof(*mover));
    enum yb_status status = YB_NO_MEMORY;

    if (mover == NULL) {
        return YB_NO_MEMORY;
    }
    mover->magic = YB_MOVER_MAGIC;
    mover->options = *options;
    mover->loop = yb_net_loop(options->net);
    yb_timer_init(&mover->timer, on_pump);
    mover->pieces = calloc(YB_MOVER_PIECES, sizeof(*mover->pieces));
    for (uint32_t i = 0; mover->pieces != NULL && i < YB_MOVER_PIECES; i++) {
        mover->pieces[i].mover = mover;
        yb_timer_init(&mover->pieces[i].timer, on_timer);
    }
    if (mover->pieces != NULL) {
        status = yb_mover_nodes_create(mover);
    }
    if (status != YB_OK) {
        yb_mover_nodes_stop(mover);
        yb_mover_nodes_destroy(mover);
        free(mover->pieces);
        free(mover);
        return status;
    }
    *mover_out = mover;
    return YB_OK;
}

void
yb_conductor_mover_stop(struct yb_conductor_mover *mover)
{
    struct yb_mover_order *next;

    YB_ASSERT_OBJ(mover, YB_MOVER_MAGIC);
    mover->stopping = true;
    yb_loop_disarm(mover->loop, &mover->timer);
    for (struct yb_mover_order *of = mover->first; of != NULL; of = next) {
        next = of->next;
        of->unwanted = true;
        give_up(mover, of, YB_CANCELLED);
    }
    for (uint32_t i = 0; i < YB_MOVER_PIECES; i++) {
        struct yb_mover_piece *piece = &mover->pieces[i];

        if (piece->of != NULL && yb_timer_is_armed(&piece->timer)) {
            yb_loop_disarm(mover->loop, &piece->timer);
            piece_fail(piece, YB_CLOSED);
        }
    }
    yb_mover_nodes_stop(mover); /* Calls under way end with that. */
}

bool
yb_conductor_mover_idle(const struct yb_conductor_mover *mover)
{
    return mover->stopping && mover->first == NULL && !mover->asking;
}

void
yb_conductor_mover_destroy(struct yb_conductor_mover **mover_in)
{
    struct yb_conductor_mover *mover = *mover_in;

    YB_ASSERT_OBJ(mover, YB_MOVER_MAGIC);
    YB_ASSERT(yb_conductor_mover_idle(mover));
    *mover_in = NULL;
    yb_mover_nodes_destroy(mover);
    free(mover->pieces);
    mover->magic = 0;
    free(mover);
}
