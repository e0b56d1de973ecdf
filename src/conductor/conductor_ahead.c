/* SPDX-License-Identifier: Apache-2.0
 *
 * What is moved ahead of time, and who moves it.
 *
 *     a request's moves   begin when the window says: not so early that what is wanted sooner, or
 *                         never, is in their way, and not so late that the request waits
 *     hot blocks          that lie in the object store alone come to a node's memory, as background
 *     moves by hand       as somebody else has decided
 *
 * A move to a node's memory, from the store, is ordered of that node. All others are the engine's.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "conductor/conductor_internal.h"

#define SMOOTH       8.0
#define HALF_LIFE_NS (180 * YB_NS_PER_S)
#define HEAT_BLOCKS  32768u
#define HEAT_LEAST   1.0    /* Accesses that are expected within a half-life. */
#define HEAT_MOVES   64u    /* At a time. */
#define NOTED        1024u  /* Of a prompt: what others share is at its beginning. */
#define KEYS         65536u /* A power of two. */
#define TENANTS      64u
#define HAND_NS      (10 * YB_NS_PER_S) /* Until a move by hand is wanted, if nothing is said. */

/* ---- who moves ------------------------------------------------------------------------------- */

/* Return the node of the store that a place's memory is, or YB_SCHED_NONE. */
static uint32_t
node_at(const struct yb_conductor *conductor, uint32_t place)
{
    const struct yb_conductor_seat *seat;

    if (place >= conductor->seats_used) {
        return YB_SCHED_NONE;
    }
    seat = &conductor->seats[place];
    if (seat->kind == YB_CONDUCTOR_INSTANCE && seat->sched.node < conductor->seats_used) {
        place = seat->sched.node;
    }
    return conductor->seats[place].kind == YB_CONDUCTOR_STORAGE ? place : YB_SCHED_NONE;
}

static bool
carries(const struct yb_conductor *conductor, const struct yb_sched_instruction *from)
{
    return conductor->options.moves && from->kind <= YB_SCHED_KIND_MIGRATE &&
           from->to_tier == YB_SCHED_TIER_DRAM && from->from_tier != YB_SCHED_TIER_DEVICE &&
           node_at(conductor, from->to) == from->to &&
           (from->from == YB_SCHED_SHARED || node_at(conductor, from->from) != YB_SCHED_NONE);
}

/* ---- the window ------------------------------------------------------------------------------ */

static double
step_ns(const struct yb_conductor_model *model)
{
    return yb_sched_step_ns(&model->costs[0], 1, 0);
}

uint64_t
yb_conductor_window_lead(const struct yb_conductor_model *model)
{
    return (uint64_t)((double)model->window.size * step_ns(model));
}

void
yb_conductor_window_moved(struct yb_conductor_model *model,
                          const struct yb_wire_conductor_ended *ended)
{
    const double took_ns = (double)ended->took_us * (double)YB_NS_PER_US;

    if ((ended->outcome != YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME &&
         ended->outcome != YB_WIRE_CONDUCTOR_OUTCOME_LATE) ||
        ended->took_us == 0) {
        return; /* It says nothing of how long a move takes. */
    }
    model->move_ns =
        model->move_ns > 0 ? model->move_ns + (took_ns - model->move_ns) / SMOOTH : took_ns;
}

void
yb_conductor_window_token(struct yb_conductor_model *model, uint64_t ttft_us)
{
    const double ttft_ns = (double)ttft_us * (double)YB_NS_PER_US;
    const double step = step_ns(model);

    if (!(model->move_ns > 0) || !(step > 0)) {
        return;
    }
    model->window =
        model->window.size == 0
            ? yb_sched_window_start((struct yb_sched_window_limits){0}, model->move_ns, step)
            : yb_sched_window_next(&model->window, ttft_ns, model->move_ns, step);
}

void
yb_conductor_place_move(struct yb_conductor *conductor, const struct yb_conductor_model *model,
                        const struct yb_sched_instruction *from, uint64_t now_ns,
                        struct yb_wire_conductor_instruction *out)
{
    const uint64_t lead = yb_conductor_window_lead(model);
    uint64_t begin_ns;

    out->carrier = carries(conductor, from);
    out->reason = YB_WIRE_INSTRUCTION_REASON_REQUEST;
    if (!out->carrier || model->window.size == 0 || from->deadline_ns < now_ns + lead) {
        return;
    }
    begin_ns = from->deadline_ns - lead;
    if (begin_ns > from->not_before_ns && begin_ns > now_ns) {
        out->not_before_us = (begin_ns - now_ns) / YB_NS_PER_US;
        out->reason = YB_WIRE_INSTRUCTION_REASON_WINDOW;
        conductor->windowed++;
    }
}

/* ---- heat ------------------------------------------------------------------------------------ */

/* What the store calls a block: the chain knows the scheduler's name alone. */
struct hot_key {
    uint64_t block; /* 0: none. */
    struct yb_id key;
    uint8_t tenant; /* Among the tenants. */
    uint8_t parts;
};

struct yb_conductor_heat {
    struct yb_sched_heat *chain;
    struct hot_key *keys; /* By block; who comes later takes a place. */
    char tenants[TENANTS][YB_CONDUCTOR_NAME_BYTES];
    uint32_t tenant_count;
};

enum yb_status
yb_conductor_heat_create(struct yb_conductor_heat **heat_out)
{
    struct yb_conductor_heat *heat = calloc(1, sizeof(*heat));

    if (heat == NULL) {
        return YB_NO_MEMORY;
    }
    heat->keys = calloc(KEYS, sizeof(*heat->keys));
    if (heat->keys == NULL ||
        yb_sched_heat_create(HEAT_BLOCKS, HALF_LIFE_NS, &heat->chain) != YB_OK) {
        free(heat->keys);
        free(heat);
        return YB_NO_MEMORY;
    }
    *heat_out = heat;
    return YB_OK;
}

void
yb_conductor_heat_destroy(struct yb_conductor_heat **heat)
{
    struct yb_conductor_heat *old = *heat;

    if (old == NULL) {
        return;
    }
    *heat = NULL;
    yb_sched_heat_destroy(&old->chain);
    free(old->keys);
    free(old);
}

/* Return the number of a tenant; TENANTS: there are too many, and heat moves nothing of this one.
 */
static uint32_t
tenant_number(struct yb_conductor_heat *heat, struct yb_wire_text tenant)
{
    uint32_t number = 0;

    while (number < heat->tenant_count && !yb_wire_text_equal(tenant, heat->tenants[number])) {
        number++;
    }
    if (number == heat->tenant_count && number < TENANTS) {
        yb_conductor_take_text(heat->tenants[number], tenant);
        heat->tenant_count++;
    }
    return number;
}

static struct hot_key *
key_of(const struct yb_conductor_heat *heat, uint64_t block)
{
    return &heat->keys[block & (KEYS - 1)];
}

void
yb_conductor_heat_note(struct yb_conductor_heat *heat, struct yb_wire_text tenant,
                       const struct yb_conductor_prompt *prompt, uint8_t parts, uint64_t now_ns)
{
    const uint32_t count = prompt->count < NOTED ? prompt->count : NOTED;
    const uint32_t whose = tenant_number(heat, tenant);

    yb_sched_heat_access(heat->chain, prompt->blocks, count, now_ns);
    for (uint32_t i = 0; whose < TENANTS && i < count && i < prompt->keys.count; i++) {
        struct yb_wire_conductor_key key;

        yb_wire_conductor_key_at(&prompt->keys, i, &key);
        *key_of(heat, prompt->blocks[i]) = (struct hot_key){
            .block = prompt->blocks[i], .key = key.key, .tenant = (uint8_t)whose, .parts = parts};
    }
}

/* Issue one instruction: those of `moves` that go where the first of them goes, and are of the same
 * tenant. They are 0 then. */
static void
bring_up(struct yb_conductor *conductor, const struct yb_conductor_heat *heat,
         struct yb_sched_move *moves, uint32_t count, uint64_t now_ns)
{
    const struct hot_key *first = key_of(heat, moves[0].block);
    const uint32_t to = node_at(conductor, moves[0].to);
    struct yb_conductor_order *order = yb_conductor_order_create(count);
    const uint64_t deadline_ns = yb_deadline_after(now_ns, conductor->options.heat_ns);
    uint32_t taken = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct hot_key *key = key_of(heat, moves[i].block);

        if (moves[i].block != 0 && node_at(conductor, moves[i].to) == to &&
            key->block == moves[i].block && key->tenant == first->tenant &&
            key->parts == first->parts) {
            if (order != NULL) {
                order->keys[taken] = key->key;
            }
            taken++;
            moves[i].block = 0;
        }
    }
    if (order == NULL || taken == 0 || to == YB_SCHED_NONE) {
        moves[0].block = 0;
        free(order);
        return;
    }
    order->count = taken;
    order->kind = YB_SCHED_KIND_PREFETCH;
    order->reason = YB_WIRE_INSTRUCTION_REASON_HEAT;
    order->work_class = YB_CLASS_BACKGROUND;
    order->parts = first->parts > 0 ? first->parts : 1;
    order->decided_ns = now_ns;
    order->deadline_ns = deadline_ns;
    memcpy(order->to, conductor->seats[to].name, sizeof(order->to));
    memcpy(order->tenant, heat->tenants[first->tenant], sizeof(order->tenant));
    order->id = yb_conductor_ledger_add_loose(conductor,
                                              yb_deadline_after(deadline_ns, YB_CONDUCTOR_WAIT_NS));
    conductor->hot += order->id != 0;
    if (order->id == 0 || conductor->options.order == NULL) {
        free(order);
    } else {
        const uint64_t id = order->id;

        if (!conductor->options.order(conductor->options.owner, order)) {
            yb_conductor_ledger_cancel_loose(conductor, id);
            free(order);
        }
    }
}
_Static_assert(YB_CONDUCTOR_ORDER_NAME_BYTES == YB_CONDUCTOR_NAME_BYTES, "names fit each other");

void
yb_conductor_heat_tick(struct yb_conductor *conductor, uint64_t now_ns)
{
    conductor->heated_ns = conductor->heated_ns != 0 ? conductor->heated_ns : now_ns;
    if (conductor->options.heat_ns == 0 || !conductor->options.moves ||
        now_ns - conductor->heated_ns < conductor->options.heat_ns) {
        return;
    }
    conductor->heated_ns = now_ns;
    for (uint32_t i = 0; i < conductor->model_count; i++) {
        struct yb_conductor_model *model = &conductor->models[i];
        struct yb_sched_move moves[HEAT_MOVES];
        uint32_t count = 0;

        if (model->heat != NULL) {
            count = yb_sched_heat_moves(model->heat->chain, model->sched, HEAT_LEAST, now_ns, moves,
                                        HEAT_MOVES);
        }
        for (uint32_t at = 0; at < count; at++) {
            if (moves[at].block != 0) {
                bring_up(conductor, model->heat, &moves[at], count - at, now_ns);
            }
        }
    }
}

/* ---- by hand --------------------------------------------------------------------------------- */

enum yb_status
yb_conductor_move(struct yb_conductor *conductor, const struct yb_wire_conductor_move *asked,
                  uint64_t now_ns, uint64_t *id_out, char why_out[YB_CONDUCTOR_WHY_BYTES])
{
    const struct yb_conductor_seat *seat;
    uint64_t until_ns = asked->deadline_us != 0 ? asked->deadline_us * YB_NS_PER_US : HAND_NS;

    YB_ASSERT_OBJ(conductor, YB_CONDUCTOR_MAGIC);
    YB_CONDUCTOR_RECORD(conductor, MOVE, move, asked, now_ns);
    if (!conductor->options.moves) {
        return yb_conductor_say(
            why_out, YB_UNSUPPORTED,
            "this conductor has no store, or orders no moves (conductor.moves)");
    }
    if (asked->kind < YB_SCHED_KIND_PREFETCH || asked->kind > YB_SCHED_KIND_MIGRATE) {
        return yb_conductor_say(why_out, YB_INVALID,
                                "a move is one of prefetch, replicate, migrate");
    }
    if (asked->hashes.count == 0) {
        return yb_conductor_say(why_out, YB_INVALID, "name at least one block in hashes");
    }
    seat = yb_conductor_find(conductor, asked->to);
    if (seat == NULL || seat->kind != YB_CONDUCTOR_STORAGE) {
        return yb_conductor_say(why_out, YB_NOT_FOUND, "the store has no node \"%.*s\"",
                                (int)asked->to.length, asked->to.length > 0 ? asked->to.bytes : "");
    }
    *id_out = yb_conductor_ledger_add_loose(
        conductor, yb_deadline_after(now_ns, until_ns + YB_CONDUCTOR_WAIT_NS));
    return *id_out != 0 ? YB_OK
                        : yb_conductor_say(why_out, YB_NO_SPACE,
                                           "%u moves have not ended yet; ask again later",
                                           YB_CONDUCTOR_LOOSE);
}
