/* SPDX-License-Identifier: Apache-2.0
 *
 * Fetches: gets whose items are looked up first, and end one by one.
 *
 *     lookup (one question for all) --> `looked` --> in memory: gets, as many items as fit in each
 *         ^                                     \--> below: gets of few items each
 *         +---- still being put, or moved: again
 *
 * A node answers a get when the last of its items is there. What lies below memory is therefore
 * asked for in messages of its own, and the items are spread over those that are free: a list of a
 * few blocks comes block by block, and ten thousand need no more messages than a hundred. A part of
 * the messages is left to whoever else wants something.
 *
 * An item's own deadline bounds the message that it is in. An item that it ended early and that has
 * time left is asked for again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/core_internal.h"
#include "directory/index.h"

#define BELOW_ITEMS 16u          /* In a message about what lies below memory. */
#define DUE_STEP_NS YB_NS_PER_MS /* Two looks at the items' deadlines are no closer. */

/* ---- ready times ----------------------------------------------------------------------------- */

static uint32_t
tier_of(uint8_t wire)
{
    switch (wire) {
    case YB_WIRE_TIER_DEVICE: return YB_CLIENT_TIER_DEVICE;
    case YB_WIRE_TIER_DRAM: return YB_CLIENT_TIER_DRAM;
    case YB_WIRE_TIER_SSD: return YB_CLIENT_TIER_SSD;
    case YB_WIRE_TIER_OBJECT: return YB_CLIENT_TIER_OBJECT;
    default: return YB_CLIENT_TIER_NONE;
    }
}

/* Which of a member's tiers below memory it is; 2: none of them. */
static uint32_t
below_of(uint32_t tier)
{
    return tier == YB_CLIENT_TIER_SSD ? 0 : tier == YB_CLIENT_TIER_OBJECT ? 1 : 2;
}

static double
takes_ns(uint64_t backlog, uint64_t bytes, uint64_t rate)
{
    return rate != 0 ? (double)(backlog + bytes) * 1e9 / (double)rate : 0;
}

/* How soon `bytes` would be here from a member's tier: base + (backlog + bytes) / rate of the tier,
 * behind what this fetch wants of it already, and then the way from there. What the member has not
 * said counts as nothing. */
static uint64_t
ready_ns(const struct yb_core_work *work, const struct yb_core_member *member, uint32_t tier,
         uint64_t bytes)
{
    const struct yb_wire_member *wire = &member->wire;
    uint32_t at = below_of(tier);
    double ready = takes_ns(wire->backlog, bytes, wire->rate);

    if (at < 2) {
        uint64_t backlog = at == 0 ? wire->ssd_backlog : wire->object_backlog;
        uint64_t rate = at == 0 ? wire->ssd_rate : wire->object_rate;
        uint64_t base_us = at == 0 ? wire->ssd_base_us : wire->object_base_us;

        backlog += member->ahead_of == work ? member->ahead_bytes[at] : 0;
        ready += (double)base_us * (double)YB_NS_PER_US + takes_ns(backlog, bytes, rate);
    }
    return (uint64_t)ready;
}

/* An item will be read from there: what is told of the next ones waits behind it. */
static void
stand_ahead(const struct yb_core_work *work, struct yb_core_member *member, uint32_t tier,
            uint64_t bytes)
{
    if (member == NULL || below_of(tier) == 2) {
        return;
    }
    if (member->ahead_of != work) {
        member->ahead_of = work;
        member->ahead_bytes[0] = member->ahead_bytes[1] = 0;
    }
    member->ahead_bytes[below_of(tier)] += bytes;
}

/* Whether the same node has it nearer: there it reads it, whatever the other way would take. */
static bool
nearer_there(const uint16_t slots[4], const uint8_t tiers[4], uint32_t index)
{
    bool nearer = false;

    for (uint32_t i = 0; i < 4 && slots[i] != 0; i++) {
        nearer = nearer || (slots[i] == slots[index] && tier_of(tiers[i]) < tier_of(tiers[index]));
    }
    return nearer;
}

/* Say where an item is, and how soon it can be here. */
static void
describe(struct yb_core_work *work, uint32_t index, const struct yb_wire_lookup_answer *answer)
{
    const uint16_t slots[4] = {answer->slot0, answer->slot1, answer->slot2, answer->slot3};
    const uint8_t tiers[4] = {answer->tier0, answer->tier1, answer->tier2, answer->tier3};
    struct yb_client_core *core = work->core;
    struct yb_client_item *out = &work->batch->items[index];
    struct yb_core_item *item = &work->items[index];
    struct yb_core_member *from = NULL;
    uint64_t bytes = yb_index_size_decode(answer->size_code);
    uint64_t soonest_ns = UINT64_MAX;
    bool first = !item->looked;

    item->below = true;
    item->here = false;
    for (uint32_t i = 0; i < 4 && slots[i] != 0; i++) {
        struct yb_core_member *member = yb_core_member(core, slots[i]);
        uint32_t tier = tier_of(tiers[i]);
        uint64_t ready = member != NULL ? ready_ns(work, member, tier, bytes) : 0;

        if (tier <= YB_CLIENT_TIER_DRAM) {
            item->below = false;
            item->here =
                item->here || (member != NULL && core->choices[member - core->members].local);
        }
        if (first && !nearer_there(slots, tiers, i) &&
            (ready < soonest_ns || (ready == soonest_ns && tier < out->tier))) {
            soonest_ns = ready;
            from = member;
            out->tier = tier;
            out->ready_ns = ready;
        }
    }
    if (first) {
        item->looked_ns = yb_core_now(core);
        stand_ahead(work, from, out->tier, bytes);
        if (item->below) {
            yb_core_freshen(core);
        }
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

static void
saw(struct yb_core_work *work, struct yb_core_item *item)
{
    if (!item->looked) {
        item->looked = true;
        work->unlooked--;
        if (work->unlooked == 0) {
            yb_core_pump_soon(work);
        }
    }
}

bool
yb_core_fetch_looked(struct yb_core_work *work, uint32_t index,
                     const struct yb_wire_lookup_answer *answer, bool there)
{
    struct yb_core_item *item = &work->items[index];
    struct yb_client_item *out = &work->batch->items[index];
    enum yb_status over = yb_core_fetch_over(work, index);
    bool was_here = item->here;

    if (over != YB_OK) {
        yb_core_end(work, index, over);
        return false;
    }
    if (there) {
        describe(work, index, answer);
        work->batch->here += (uint32_t)item->here - (uint32_t)was_here;
        saw(work, item);
        return true;
    }
    if (answer->presence != YB_WIRE_PRESENCE_IN_PROGRESS) {
        return true; /* It ends with that. */
    }
    if (!item->looked) {
        out->ready_ns = answer->eta_us * YB_NS_PER_US;
    }
    saw(work, item);
    yb_core_rest(work, index);
    return false;
}

void
yb_core_fetch_missed(struct yb_core_work *work, uint32_t index)
{
    struct yb_core_item *item = &work->items[index];

    if (item->here) {
        item->here = false;
        work->batch->here--;
    }
}

void
yb_core_fetch_ended(struct yb_core_work *work, uint32_t index)
{
    struct yb_core_item *item = &work->items[index];
    struct yb_client_batch *batch = work->batch;
    struct yb_client_counters *counters = &work->core->counters;

    saw(work, item);
    yb_core_fetch_missed(work, index);
    if (batch->items[index].status == YB_OK && below_of(batch->items[index].tier) < 2) {
        counters->fetched++;
        counters->fetch_said_ns += batch->items[index].ready_ns;
        counters->fetch_took_ns += yb_core_now(work->core) - item->looked_ns;
    }
    if (batch->items[index].status != YB_IN_PROGRESS) { /* Or it is striped, and goes on. */
        batch->ended(batch, index);
    }
}

enum yb_status
yb_core_fetch_over(const struct yb_core_work *work, uint32_t index)
{
    const struct yb_core_item *item = &work->items[index];

    if (work->batch->kind != YB_CLIENT_FETCH) {
        return YB_OK;
    }
    if (item->cancelled) {
        return YB_CANCELLED;
    }
    return item->deadline_ns <= yb_core_now(work->core) ? YB_TIMED_OUT : YB_OK;
}

uint64_t
yb_core_fetch_deadline(const struct yb_core_io *io)
{
    uint64_t deadline_ns = io->work->batch->deadline_ns;

    for (uint32_t i = 0; i < io->count; i++) {
        uint64_t own_ns = io->work->items[io->items[i]].deadline_ns;

        deadline_ns = own_ns < deadline_ns ? own_ns : deadline_ns;
    }
    return deadline_ns;
}

bool
yb_core_fetch_hurried(const struct yb_core_io *io)
{
    const struct yb_client_batch *batch = io->work->batch;

    return batch->kind == YB_CLIENT_FETCH && !io->call.answered &&
           io->call.status == YB_TIMED_OUT && io->call.deadline_ns < batch->deadline_ns &&
           io->call.deadline_ns == yb_core_fetch_deadline(io);
}

void
yb_core_fetch_again(struct yb_core_work *work, uint32_t index)
{
    enum yb_status over = work->cancelled ? YB_CANCELLED
                          : work->over    ? YB_TIMED_OUT
                                          : yb_core_fetch_over(work, index);

    if (over != YB_OK) {
        yb_core_end(work, index, over);
    } else {
        work->items[index].tried = 0; /* Its node has done nothing wrong. */
        yb_core_get_ready(work, index);
    }
}

/* End those items of a list that have no time left, or are not wanted; the others keep their
 * order. */
static void
sift(struct yb_core_work *work, struct yb_core_list *list)
{
    struct yb_core_list old = *list;
    uint32_t index;

    *list = (struct yb_core_list){YB_CORE_NONE, YB_CORE_NONE};
    while ((index = yb_core_pop(work, &old)) != YB_CORE_NONE) {
        enum yb_status over = yb_core_fetch_over(work, index);

        if (over != YB_OK) {
            yb_core_end(work, index, over);
        } else {
            yb_core_push(work, list, index, work->items[index].phase);
        }
    }
}

static void
sift_all(struct yb_core_work *work)
{
    sift(work, &work->lookup);
    sift(work, &work->ready);
    sift(work, &work->below);
    sift(work, &work->resting);
}

/* Be there when the next of the items' own deadlines passes. */
static void
arm_due(struct yb_core_work *work)
{
    struct yb_loop *loop = yb_net_loop(work->core->net);
    uint64_t next_ns = YB_NEVER;

    for (uint32_t i = 0; i < work->batch->count; i++) {
        if (work->items[i].phase != YB_CORE_ENDED && work->items[i].deadline_ns < next_ns) {
            next_ns = work->items[i].deadline_ns;
        }
    }
    if (next_ns < work->batch->deadline_ns) {
        uint64_t soonest_ns = yb_loop_now(loop) + DUE_STEP_NS;

        yb_loop_arm(loop, &work->due, next_ns > soonest_ns ? next_ns : soonest_ns);
    }
}

void
yb_core_fetch_on_due(struct yb_timer *timer)
{
    struct yb_core_work *work =
        (struct yb_core_work *)((uint8_t *)timer - offsetof(struct yb_core_work, due));

    if (!work->over) {
        sift_all(work);
        arm_due(work);
        yb_core_pump_soon(work);
    }
}

/* The list that an item waits in; NULL: it is in a message. */
static struct yb_core_list *
list_of(struct yb_core_work *work, const struct yb_core_item *item)
{
    switch (item->phase) {
    case YB_CORE_WANT_LOOKUP: return &work->lookup;
    case YB_CORE_READY: return item->below ? &work->below : &work->ready;
    case YB_CORE_RESTING: return &work->resting;
    default: return NULL;
    }
}

/* Let the node of a message know that nobody wants the item in it, or if nobody wants anything else
 * of the message, end that as a whole. */
static void
cancel_in(struct yb_core_io *io, uint32_t index)
{
    uint32_t place = io->count;
    bool wanted = false;

    for (uint32_t i = 0; i < io->count; i++) {
        place = io->items[i] == index ? i : place;
        wanted = wanted || !io->work->items[io->items[i]].cancelled;
    }
    if (place < io->count && wanted) {
        yb_core_leave(io, place);
    } else if (place < io->count) {
        yb_core_io_cancel(io);
    }
}

void
yb_client_core_cancel_item(struct yb_client_core *core, struct yb_client_batch *batch,
                           uint32_t index)
{
    struct yb_core_work *work = batch->work;
    struct yb_core_list *list;
    struct yb_core_item *item;

    if (work == NULL || work->over || work->joined < batch->count ||
        work->items[index].phase == YB_CORE_ENDED) {
        return;
    }
    item = &work->items[index];
    item->cancelled = true;
    list = list_of(work, item);
    if (list != NULL) {
        yb_core_take_out(work, list, index);
        yb_core_end(work, index, YB_CANCELLED);
    } else if (item->io->slot != 0) { /* Else the directory's answer ends it. */
        YB_ASSERT(item->io->work == work);
        cancel_in(item->io, index);
        yb_core_leave_send(core);
    }
    yb_core_pump_soon(work);
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct place {
    uint64_t deadline_ns;
    uint32_t index;
};

static int
compare_places(const void *a_in, const void *b_in)
{
    const struct place *a = a_in;
    const struct place *b = b_in;

    if (a->deadline_ns != b->deadline_ns) {
        return a->deadline_ns < b->deadline_ns ? -1 : 1;
    }
    return a->index < b->index ? -1 : 1;
}

void
yb_core_fetch_begin(struct yb_core_work *work)
{
    struct yb_client_batch *batch = work->batch;
    uint64_t now_ns = yb_core_now(work->core);
    struct place *places = NULL;
    bool own = false;

    for (uint32_t row = 0; row < work->core->member_count; row++) {
        struct yb_core_member *member = &work->core->members[row];

        member->ahead_of =
            member->ahead_of == work ? NULL : member->ahead_of; /* Another fetch's. */
    }

    for (uint32_t i = 0; i < batch->count; i++) {
        uint64_t own_ns = batch->items[i].timeout_ns == 0
                              ? YB_NEVER
                              : yb_deadline_after(now_ns, batch->items[i].timeout_ns);

        own = own || own_ns < batch->deadline_ns;
        work->items[i].deadline_ns = own_ns < batch->deadline_ns ? own_ns : batch->deadline_ns;
    }
    places = own ? malloc((size_t)batch->count * sizeof(*places)) : NULL;
    for (uint32_t i = 0; places != NULL && i < batch->count; i++) {
        places[i] = (struct place){work->items[i].deadline_ns, i};
    }
    if (places != NULL) {
        qsort(places, batch->count, sizeof(*places), compare_places);
    }
    for (uint32_t i = 0; i < batch->count; i++) { /* Without memory: in the list's order. */
        yb_core_push(work, &work->lookup, places != NULL ? places[i].index : i,
                     YB_CORE_WANT_LOOKUP);
    }
    free(places);
    if (own) {
        arm_due(work);
    }
}

void
yb_core_fetch_pump(struct yb_core_work *work)
{
    struct yb_client_core *core = work->core;
    uint32_t spare = core->ios_max / 4;
    uint32_t share = (core->ios_max - spare) / core->fetches;
    uint32_t items_max;

    if (work->unlooked == 0 && !work->told) {
        work->told = true;
        work->batch->looked(work->batch);
    }
    if (work->over || work->left == 0) {
        return;
    }
    yb_core_get_list(work, &work->ready, YB_CORE_MOVE_ITEMS, 0);
    share = share > 0 ? share : 1;
    if (work->ios >= share || core->spare_ios <= spare) {
        return; /* It goes on when one of them comes back. */
    }
    share -= work->ios;
    if (core->spare_ios > spare + share) {
        spare = core->spare_ios - share;
    }
    items_max = (work->left - work->flying + share - 1) / share;
    items_max = items_max < BELOW_ITEMS ? items_max : BELOW_ITEMS;
    yb_core_get_list(work, &work->below, items_max > 0 ? items_max : 1, spare);
}
