/* SPDX-License-Identifier: Apache-2.0
 *
 * What may never come back from below: blocks that were removed, replaced or flushed are killed in
 * every tier, durably, and whoever ordered that is answered afterwards (RULES A14).
 *
 * Records that were ended wait in a queue, each with a number, and are killed in their order,
 * YB_NODE_KILLS of them at a time. What fails is tried again: an order is answered when every kill
 * up to the last one of its own is done. A tier that cannot kill holds up no other kills, but the
 * answers.
 */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/node_below.h"

#define KILL_NS  (5 * YB_NS_PER_S)
#define RETRY_NS (100 * YB_NS_PER_MS)

static void pump(struct yb_node *node);

/* ---- answers that wait ----------------------------------------------------------------------- */

/* Return the number up to which every kill is done. */
static uint64_t
done_through(const struct yb_node_below *below)
{
    uint64_t through = below->kill_sequence;

    for (uint32_t i = 0; i < YB_NODE_KILLS; i++) {
        uint64_t sequence = below->killing[i].sequence;

        if (sequence != 0 && sequence - 1 < through) {
            through = sequence - 1;
        }
    }
    return through;
}

uint64_t
yb_node_below_kills(const struct yb_node *node, uint64_t *done_out)
{
    *done_out = node->below != NULL ? done_through(node->below) : 0;
    return node->below != NULL ? node->below->dead_sequence : 0;
}

static void
fall_reply(struct yb_node *node, struct yb_node_fall *fall, enum yb_status status)
{
    struct yb_wire_flush_answer answer = {.count = fall->count};
    uint8_t out[YB_WIRE_FLUSH_ANSWER_BYTES];
    struct yb_request *request = fall->request;
    size_t length = 0;

    if (fall->flush && status == YB_OK &&
        yb_wire_flush_answer_encode(&answer, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    fall->request = NULL;
    yb_node_reply(node, request, status, out, length);
}

static void
answer_falls(struct yb_node *node)
{
    struct yb_node_below *below = node->below;
    uint64_t through = done_through(below);

    for (uint32_t i = 0; i < YB_NODE_FALLS; i++) {
        struct yb_node_fall *fall = &below->falls[i];

        if (fall->request != NULL && fall->through <= through && fall->flushes == 0) {
            fall_reply(node, fall, fall->status);
        }
    }
    yb_node_removals_killed(node);
}

static struct yb_node_fall *
fall_take(struct yb_node *node, struct yb_request *request)
{
    for (uint32_t i = 0; i < YB_NODE_FALLS; i++) {
        struct yb_node_fall *fall = &node->below->falls[i];

        if (fall->request == NULL) {
            *fall = (struct yb_node_fall){.request = request};
            node->requests++;
            return fall;
        }
    }
    return NULL;
}

bool
yb_node_below_reply_drop(struct yb_node *node, struct yb_request *request)
{
    struct yb_node_fall *fall;

    if (node->below == NULL || done_through(node->below) == node->below->dead_sequence) {
        return false; /* Nothing is being killed. */
    }
    fall = fall_take(node, request);
    if (fall == NULL) { /* It is ordered again. */
        yb_request_reply(request, YB_AGAIN, NULL, 0, NULL, 0);
        return true;
    }
    fall->through = node->below->dead_sequence;
    return true;
}

/* ---- kills ----------------------------------------------------------------------------------- */

static void
killing_end(struct yb_node_killing *killing)
{
    struct yb_node *node = killing->node;

    if (killing->left > 0) {
        return;
    }
    if (killing->failed != 0) {
        killing->retry_ns = yb_node_now(node) + RETRY_NS;
        return;
    }
    killing->sequence = 0;
    yb_shelf_give(node->below->shelf, yb_shelf_at(node->below->shelf, killing->record));
    answer_falls(node);
    pump(node);
}

static void
on_killed(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_node_kill *kill = (struct yb_node_kill *)op;
    struct yb_node_killing *killing = kill->killing;
    uint32_t level = (uint32_t)(kill - killing->kills);

    killing->left--;
    if (status != YB_OK && !killing->node->stopping) {
        killing->failed |= (uint8_t)(1u << level);
        yb_node_count_status(killing->node, YB_NODE_STAT_KILLS_FAILED, status);
    }
    killing_end(killing);
}

/* Ask the levels of a set. */
static void
killing_begin(struct yb_node_killing *killing, uint8_t levels)
{
    struct yb_node *node = killing->node;
    const struct yb_shelf_record *record = yb_shelf_at(node->below->shelf, killing->record);

    killing->failed = 0;
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        struct yb_node_level *level = &node->below->levels[i];
        struct yb_node_kill *kill = &killing->kills[i];

        if ((levels >> i & 1) == 0 || level->foreign) {
            continue;
        }
        if (yb_node_claim_waits(level)) {
            killing->failed |= (uint8_t)(1u << i);
            continue;
        }
        kill->killing = killing;
        kill->kill = (struct yb_tier_kill){
            .op = {.done = on_killed,
                   .deadline_ns = yb_node_now(node) + KILL_NS,
                   .traffic_class = YB_CLASS_THROUGHPUT},
            .hash = record->hash,
            .grant = record->grant,
            .tenant = node->tenants[record->tenant].name,
            .flush = record->flush,
        };
        if (yb_tier_kill(level->tier, &kill->kill) == YB_OK) {
            killing->left++;
        } else {
            killing->failed |= (uint8_t)(1u << i);
        }
    }
}

static void
pump(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    for (uint32_t i = 0; i < YB_NODE_KILLS && below->dead_first != 0 && !node->stopping; i++) {
        struct yb_node_killing *killing = &below->killing[i];
        struct yb_shelf_record *record;

        if (killing->sequence != 0) {
            continue;
        }
        killing->record = below->dead_first - 1;
        record = yb_shelf_at(below->shelf, killing->record);
        below->dead_first = record->dead_next;
        below->dead_last = below->dead_first == 0 ? 0 : below->dead_last;
        killing->sequence = ++below->kill_sequence;
        killing_begin(killing, record->resident | record->storing | record->doubt);
        if (killing->left == 0 && killing->failed == 0) { /* No tier has it. */
            killing->sequence = 0;
            yb_shelf_give(below->shelf, record);
            i--; /* The same place again. */
        } else if (killing->left == 0) {
            killing->retry_ns = yb_node_now(node) + RETRY_NS;
        }
    }
}

void
yb_node_below_end(struct yb_node *node, struct yb_shelf_record *record)
{
    struct yb_node_below *below = node->below;
    uint32_t number = yb_shelf_index(below->shelf, record) + 1;

    if (record->state != YB_SHELF_LIVE) {
        return;
    }
    yb_node_load_end(node, record);
    record->state = YB_SHELF_DEAD;
    record->claimed = record->told = 0;
    record->dead_next = 0;
    if (below->dead_last != 0) {
        yb_shelf_at(below->shelf, below->dead_last - 1)->dead_next = number;
    } else {
        below->dead_first = number;
    }
    below->dead_last = number;
    below->dead_sequence++;
    pump(node);
}

void
yb_node_below_drop(struct yb_node *node, struct yb_id hash, uint64_t grant)
{
    struct yb_node_below *below = node->below;
    struct yb_shelf_record *record = below != NULL ? yb_shelf_of(below->shelf, hash, grant) : NULL;

    /* What a tier has not told of yet is not ours to kill: the directory refuses it when it is
     * named. */
    if (record != NULL) {
        yb_node_below_end(node, record);
    }
}

void
yb_node_below_remove(struct yb_node *node, struct yb_id hash, uint64_t grant)
{
    struct yb_shelf_record *record =
        node->below != NULL ? yb_shelf_of(node->below->shelf, hash, grant) : NULL;

    if (record == NULL || record->state != YB_SHELF_LIVE) {
        return;
    }
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        if (((record->claimed | record->told) >> i & 1) != 0) {
            yb_node_below_publish(node, record, i, YB_WIRE_MODE_WITHDRAW);
        }
    }
    yb_node_below_end(node, record);
}

/* ---- flushes --------------------------------------------------------------------------------- */

static void
on_flushed(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_node_flushing *flushing = (struct yb_node_flushing *)op;
    struct yb_node *node = flushing->node;

    flushing->busy = false;
    if (flushing->fall != NULL) {
        flushing->fall->flushes--;
        if (status != YB_OK) {
            flushing->fall->status = status; /* It is ordered again. */
        }
        flushing->fall = NULL;
        answer_falls(node);
    } else if (status != YB_OK) {
        yb_node_count_status(node, YB_NODE_STAT_KILLS_FAILED, status);
    }
}

/* Flush a tier. Returns whether that has begun. */
static bool
flush_level(struct yb_node *node, struct yb_node_level *level, uint32_t tenant,
            struct yb_node_fall *fall)
{
    for (uint32_t i = 0; i < YB_NODE_FLUSHES; i++) {
        struct yb_node_flushing *flushing = &node->below->flushing[i];

        if (flushing->busy) {
            continue;
        }
        flushing->flush = (struct yb_tier_flush){
            .op = {.done = on_flushed,
                   .deadline_ns = yb_node_now(node) + KILL_NS,
                   .traffic_class = YB_CLASS_THROUGHPUT},
            .tenant = node->tenants[tenant].name,
            .flush = node->tenants[tenant].flush,
        };
        flushing->fall = fall;
        flushing->busy = yb_tier_flush(level->tier, &flushing->flush) == YB_OK;
        return flushing->busy;
    }
    return false;
}

void
yb_node_below_flush(struct yb_node *node, uint32_t tenant)
{
    for (uint32_t i = 0; node->below != NULL && i < node->below->level_count; i++) {
        struct yb_node_level *level = &node->below->levels[i];

        if (level->tier != NULL && !level->foreign && !yb_node_claim_waits(level)) {
            (void)flush_level(node, level, tenant, NULL);
        }
    }
}

void
yb_node_level_flush(struct yb_node_level *level)
{
    for (uint32_t i = 0; level->tier != NULL && i < level->node->tenant_count; i++) {
        if (level->node->tenants[i].flush > 0) {
            (void)flush_level(level->node, level, i, NULL);
        }
    }
}

bool
yb_node_below_reply_flush(struct yb_node *node, struct yb_request *request, uint32_t tenant,
                          uint64_t count)
{
    struct yb_node_below *below = node->below;
    struct yb_node_fall *fall;

    if (below == NULL) {
        return false;
    }
    fall = fall_take(node, request);
    if (fall == NULL) {
        yb_request_reply(request, YB_AGAIN, NULL, 0, NULL, 0);
        return true;
    }
    fall->flush = true;
    fall->count = count;
    for (uint32_t i = 0; i < below->level_count; i++) {
        struct yb_node_level *level = &below->levels[i];

        if (level->foreign) {
            continue;
        }
        if (yb_node_claim_waits(level)) {
            fall->status = YB_AGAIN; /* What is there is ours, if we get it. */
            continue;
        }
        if (level->tier == NULL) {
            continue;
        }
        if (flush_level(node, level, tenant, fall)) {
            fall->flushes++;
        } else {
            fall->status = YB_AGAIN;
        }
    }
    answer_falls(node);
    return true;
}

uint64_t
yb_node_below_count(const struct yb_node *node, uint32_t tenant)
{
    uint64_t count = 0;

    for (uint32_t i = 0; node->below != NULL && i < yb_shelf_span(node->below->shelf); i++) {
        const struct yb_shelf_record *record = yb_shelf_at(node->below->shelf, i);
        const struct yb_block *block;

        if (record->state != YB_SHELF_LIVE || record->tenant != tenant || record->resident == 0 ||
            record->flush < node->tenants[tenant].flush) {
            continue;
        }
        block = yb_block_granted(node->blocks, record->hash);
        count += block == NULL || block->grant != record->grant;
    }
    return count;
}

/* ---- time ------------------------------------------------------------------------------------ */

void
yb_node_kill_tick(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    for (uint32_t i = 0; i < YB_NODE_KILLS; i++) {
        struct yb_node_killing *killing = &below->killing[i];

        if (killing->sequence != 0 && killing->left == 0 &&
            killing->retry_ns <= yb_node_now(node)) {
            killing_begin(killing, killing->failed);
            if (killing->left == 0) {
                killing->retry_ns = yb_node_now(node) + RETRY_NS;
            }
        }
    }
    for (uint32_t i = 0; i < YB_NODE_FALLS; i++) {
        struct yb_node_fall *fall = &below->falls[i];

        if (fall->request != NULL && fall->request->deadline_ns <= yb_node_now(node) &&
            fall->flushes == 0) {
            fall_reply(node, fall, YB_TIMED_OUT);
        }
    }
    pump(node);
}

void
yb_node_kill_stop(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    for (uint32_t i = 0; i < YB_NODE_FLUSHES; i++) {
        below->flushing[i].fall = NULL;
    }
    for (uint32_t i = 0; i < YB_NODE_FALLS; i++) {
        if (below->falls[i].request != NULL) {
            fall_reply(node, &below->falls[i], YB_CLOSED);
        }
    }
}

bool
yb_node_kill_idle(const struct yb_node *node)
{
    for (uint32_t i = 0; i < YB_NODE_KILLS; i++) {
        if (node->below->killing[i].left > 0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < YB_NODE_FLUSHES; i++) {
        if (node->below->flushing[i].busy) {
            return false;
        }
    }
    return true;
}
