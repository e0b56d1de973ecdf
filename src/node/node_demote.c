/* SPDX-License-Identifier: Apache-2.0
 *
 * From DRAM down: what move.h decides is carried out here.
 *
 * A store reads the block where it lies, so that block stays until the tier is done (L3). Blocks go
 * in the order in which they were granted, members of a group together, so that a tier can gather
 * neighbours into one write.
 */
#include "base/check.h"
#include "base/clock.h"
#include "node/node_below.h"

#define CATCH_UP_STEP 4096u
#define QUEUE_MASK    (YB_NODE_QUEUE - 1)

_Static_assert((YB_NODE_QUEUE & QUEUE_MASK) == 0, "places are found by a mask");

static void store_elsewhere(struct yb_node *node, struct yb_block *block, uint8_t tried);

/* ---- one store ------------------------------------------------------------------------------- */

static void
storing_end(struct yb_node_storing *storing)
{
    struct yb_node *node = storing->node;
    struct yb_node_below *below = node->below;

    below->storing_bytes -= storing->block->extent.length;
    node->tenants[storing->block->tenant].storing_bytes -= storing->block->extent.length;
    if (storing->previous != NULL) {
        storing->previous->next = storing->next;
    } else {
        below->storing = storing->next;
    }
    if (storing->next != NULL) {
        storing->next->previous = storing->previous;
    }
    yb_node_unpin(node, storing->block);
    yb_pool_give(below->stores, storing);
}

/* Whether the tier will tell what has become of the block, while that is in memory still. A disk
 * that failed is read again when it is back. */
static bool
is_told_later(const struct yb_node *node, const struct yb_shelf_record *record, uint32_t level)
{
    const struct yb_block *block = yb_block_granted(node->blocks, record->hash);

    return node->below->levels[level].kind == YB_WIRE_TIER_SSD &&
           !yb_node_level_works(&node->below->levels[level]) && block != NULL &&
           block->grant == record->grant;
}

bool
yb_node_below_stored(struct yb_node *node, struct yb_shelf_record *record, uint32_t level,
                     enum yb_status status)
{
    uint8_t bit = (uint8_t)(1u << level);
    bool refused = status != YB_OK && status != YB_STALE && status != YB_IN_DOUBT;

    if (record == NULL || record->state != YB_SHELF_LIVE) {
        return true; /* It was ended meanwhile, and is being killed. */
    }
    record->storing &= (uint8_t)~bit;
    if (status == YB_OK) {
        record->resident |= bit;
        yb_node_doubt(record, level, false);
        yb_node_below_publish(node, record, level, YB_WIRE_MODE_ADD_REPLICA); /* L1 */
    } else if (status != YB_STALE && status != YB_CANCELLED) { /* Or it was not wanted any more. */
        yb_node_count_status(node, YB_NODE_STAT_STORES_FAILED, status);
    }
    yb_node_below_withdraw_gone(node, record);
    if (status == YB_IN_DOUBT) {
        yb_node_doubt(record, level, true); /* L6 */
    }
    if (status == YB_IN_DOUBT && record->resident == 0 && record->storing == 0 &&
        !is_told_later(node, record, level)) {
        yb_node_below_end(node, record);
        return true;
    }
    return !yb_node_below_forget(node, record) || !refused;
}

static void
on_stored(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_node_storing *storing = (struct yb_node_storing *)op;
    struct yb_node *node = storing->node;
    struct yb_block *block = storing->block;
    uint8_t tried = storing->tried;
    struct yb_shelf_record *record =
        yb_shelf_of(node->below->shelf, storing->store.record.hash, storing->store.record.grant);

    if (status == YB_OK && record != NULL && record->state == YB_SHELF_LIVE) {
        yb_node_count(node, YB_NODE_STAT_STORED, 1);
        yb_node_count(node, YB_NODE_STAT_STORED_BYTES, record->size);
    }
    if (status == YB_STALE) {
        block->barred |= (uint8_t)(1u << storing->level);
    }
    if (!yb_node_below_stored(node, record, storing->level, status)) {
        store_elsewhere(node, block, tried);
    }
    storing_end(storing);
}

/* The flags that a block has below. A soft pin that ends is for memory alone: nobody down there
 * knows of its uses. */
static uint16_t
flags_below(const struct yb_block *block)
{
    return block->soft_ns == 0 ? block->flags
                               : (uint16_t)(block->flags & ~YB_WIRE_BLOCK_FLAG_SOFT_PIN);
}

/* The record of a block below, which names its present grant. NULL: no room. */
static struct yb_shelf_record *
record_for(struct yb_node *node, const struct yb_block *block)
{
    struct yb_node_below *below = node->below;
    struct yb_shelf_record *record = yb_shelf_find(below->shelf, block->hash);
    uint64_t wall_ns = yb_clock_wall(yb_loop_clock(yb_net_loop(node->net)));

    if (record != NULL && record->grant != block->grant) {
        yb_node_below_end(node, record); /* What was here before. */
        record = NULL;
    }
    if (record == NULL) {
        if (yb_shelf_of(below->shelf, block->hash, block->grant) != NULL ||
            yb_shelf_take(below->shelf, block->hash, block->grant, &record) != YB_OK) {
            return NULL; /* It is being killed, or there are as many as there may be. */
        }
        record->size = block->size;
        record->flush = block->flush;
        record->tenant = block->tenant;
        record->flags = flags_below(block);
        record->replicas = block->replicas;
        if (block->expires_ns != YB_NEVER) {
            record->expires_s =
                (uint32_t)((wall_ns + block->expires_ns - yb_node_now(node)) / YB_NS_PER_S + 1);
        }
    }
    return record;
}

static enum yb_status
store(struct yb_node *node, struct yb_block *block, uint32_t number, uint8_t tried)
{
    struct yb_node_below *below = node->below;
    struct yb_shelf_record *record = record_for(node, block);
    struct yb_node_storing *storing;
    enum yb_status status;
    void *taken;

    if (record == NULL) {
        return YB_NO_SPACE;
    }
    if (yb_pool_take(below->stores, &taken) != YB_OK) {
        (void)yb_node_below_forget(node, record);
        return YB_AGAIN;
    }
    storing = taken;
    *storing = (struct yb_node_storing){
        .store = {.op = {.done = on_stored,
                         .deadline_ns = YB_NEVER,
                         .traffic_class = YB_CLASS_BACKGROUND},
                  .record = {.hash = block->hash,
                             .grant = block->grant,
                             .flush = block->flush,
                             .size = block->size,
                             .group = block->group,
                             .parent = block->parent,
                             .expires_unix_ms = (uint64_t)record->expires_s * 1000,
                             .tenant = node->tenants[block->tenant].name,
                             .key = yb_node_key(node, block),
                             .key_bytes = block->key_bytes,
                             .flags = flags_below(block),
                             .mode = block->mode,
                             .replicas = block->replicas},
                  .iov = &storing->iov,
                  .iov_count = 1},
        .node = node,
        .block = block,
        .level = (uint8_t)number,
        .tried = (uint8_t)(tried | 1u << number),
        .iov = {.iov_base = (void *)(uintptr_t)yb_node_bytes(node, block),
                .iov_len = (size_t)block->size},
        .next = below->storing,
    };
    status = yb_tier_store(below->levels[number].tier, &storing->store);
    if (status != YB_OK) {
        yb_pool_give(below->stores, storing);
        (void)yb_node_below_forget(node, record);
        return status;
    }
    if (below->storing != NULL) {
        below->storing->previous = storing;
    }
    below->storing = storing;
    record->storing |= (uint8_t)(1u << number);
    below->storing_bytes += block->extent.length;
    node->tenants[block->tenant].storing_bytes += block->extent.length;
    yb_node_pin(node, block);
    return YB_OK;
}

/* ---- what goes down -------------------------------------------------------------------------- */

/* Return the set of tiers that a block goes to now, but for those that did not take it. */
static uint8_t
wanted_but(const struct yb_node *node, const struct yb_block *block, enum yb_move_when when,
           uint8_t tried)
{
    const struct yb_node_below *below = node->below;
    const struct yb_shelf_record *record = yb_shelf_of(below->shelf, block->hash, block->grant);
    uint8_t levels = 0;
    bool faster = false;

    for (uint32_t i = 0; i < below->level_count; i++) {
        const struct yb_node_level *level = &below->levels[i];
        struct yb_move_facts facts = {
            .when = when,
            .policy = below->policy,
            .accesses = block->accesses,
            .accesses_min = node->options.write_accesses,
            .there = record != NULL && ((record->resident | record->storing) >> i & 1) != 0,
            .working = yb_node_level_works(level) && ((tried | block->barred) >> i & 1) == 0,
            .faster = faster,
            .object = level->kind == YB_WIRE_TIER_OBJECT,
            .versioned = (block->flags & YB_WIRE_BLOCK_FLAG_VERSIONED) != 0,
            .loaded = block->loaded != 0,
        };
        bool down = yb_move_down(&facts);

        levels |= (uint8_t)(down ? 1u << i : 0);
        faster = faster || down || facts.there;
    }
    return levels;
}

static uint8_t
wanted(const struct yb_node *node, const struct yb_block *block, enum yb_move_when when)
{
    return wanted_but(node, block, when, 0);
}

/* Whether a block may be kept for its store: of the pool, and of what its tenant may have, some is
 * left that can go at once (RULES C2). */
static bool
fits(const struct yb_node *node, const struct yb_block *block)
{
    const struct yb_tenant *tenant = &node->tenants[block->tenant];
    const struct yb_move_room room = {
        .storing_bytes = node->below->storing_bytes,
        .storing_max = node->options.pool_bytes / 8,
        .pool_bytes = node->options.pool_bytes,
    };
    const struct yb_move_room own = {
        .storing_bytes = tenant->storing_bytes,
        .storing_max = tenant->credit / 8,
        .pool_bytes = tenant->credit,
    };

    return yb_move_fits(&room, block->extent.length) && yb_move_fits(&own, block->extent.length);
}

/* Begin the stores of a block. Returns whether all that are wanted are under way. */
static bool
send_down_but(struct yb_node *node, struct yb_block *block, uint8_t levels, uint8_t tried)
{
    bool all = true;

    for (uint32_t i = 0; i < node->below->level_count; i++) {
        if ((levels >> i & 1) != 0) {
            all = store(node, block, i, tried) == YB_OK && all;
        }
    }
    return all;
}

static bool
send_down(struct yb_node *node, struct yb_block *block, uint8_t levels)
{
    return send_down_but(node, block, levels, 0);
}

/* A tier refused the block (full, out of budget, failing), and no other has it: the next one is
 * asked while it is still here. */
static void
store_elsewhere(struct yb_node *node, struct yb_block *block, uint8_t tried)
{
    uint8_t levels = node->stopping || block->state != YB_BLOCK_GRANTED
                         ? 0
                         : wanted_but(node, block, YB_MOVE_EVICTING, tried);

    (void)send_down_but(node, block, levels, tried);
}

static void
enqueue(struct yb_node *node, const struct yb_block *block)
{
    struct yb_node_below *below = node->below;
    uint32_t place = below->queue_tail & QUEUE_MASK;

    if (below->queue_tail - below->queue_head == YB_NODE_QUEUE) {
        yb_node_count(node, YB_NODE_STAT_STORES_SKIPPED, 1); /* It goes when it has to. */
        return;
    }
    below->queue[place].block = yb_block_index(node->blocks, block);
    below->queue[place].grant = block->grant;
    below->queue_tail++;
}

/* Send down what waits, as far as there is room. */
static void
pump(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    while (below->queue_head != below->queue_tail) {
        uint32_t place = below->queue_head & QUEUE_MASK;
        struct yb_block *block = yb_block_at(node->blocks, below->queue[place].block);
        uint8_t levels;

        if (block->state == YB_BLOCK_GRANTED && block->grant == below->queue[place].grant) {
            levels = wanted(node, block, YB_MOVE_WAITED);
            if (levels != 0 && (!fits(node, block) || !send_down(node, block, levels))) {
                return;
            }
        }
        below->queue_head++;
    }
}

void
yb_node_below_granted(struct yb_node *node, struct yb_block *block)
{
    struct yb_shelf_record *record;

    if (node->below == NULL) {
        return;
    }
    record = yb_shelf_find(node->below->shelf, block->hash);
    if (record != NULL && record->grant < block->grant) {
        yb_node_below_end(node, record);
    }
    if (wanted(node, block, YB_MOVE_GRANTED) != 0) {
        enqueue(node, block);
        pump(node);
    }
}

void
yb_node_below_accessed(struct yb_node *node, struct yb_block *block)
{
    if (node->below == NULL) {
        return;
    }
    block->accesses = (uint8_t)(block->accesses + (block->accesses < UINT8_MAX));
    if (block->accesses == node->options.write_accesses &&
        wanted(node, block, YB_MOVE_ACCESSED) != 0) {
        enqueue(node, block);
        pump(node);
    }
}

void
yb_node_level_back(struct yb_node_level *level)
{
    level->node->below->behind_left = yb_block_span(level->node->blocks);
}

/* Find what would have gone down, had the tier worked; some at a time. */
static void
catch_up(struct yb_node *node)
{
    struct yb_node_below *below = node->below;
    uint32_t span = yb_block_span(node->blocks);

    for (uint32_t i = 0; i < CATCH_UP_STEP && below->behind_left > 0 &&
                         below->queue_tail - below->queue_head < YB_NODE_QUEUE / 2;
         i++) {
        const struct yb_block *block = yb_block_at(node->blocks, below->behind_at++ % span);

        below->behind_left--;
        if (block->state == YB_BLOCK_GRANTED && (wanted(node, block, YB_MOVE_GRANTED) != 0 ||
                                                 (block->accesses >= node->options.write_accesses &&
                                                  wanted(node, block, YB_MOVE_ACCESSED) != 0))) {
            enqueue(node, block);
        }
    }
}

void
yb_node_demote_tick(struct yb_node *node)
{
    catch_up(node);
    pump(node);
}

/* ---- eviction -------------------------------------------------------------------------------- */

bool
yb_node_lies_below(const struct yb_node *node, const struct yb_block *block)
{
    const struct yb_shelf_record *record =
        node->below != NULL ? yb_shelf_of(node->below->shelf, block->hash, block->grant) : NULL;

    return record != NULL && record->state == YB_SHELF_LIVE &&
           (record->resident & (record->claimed | record->told)) != 0;
}

/* Let the members of a block's group, too, begin to go down: they go together. */
static void
send_group(struct yb_node *node, struct yb_block *block)
{
    uint32_t self = yb_block_index(node->blocks, block);

    for (uint32_t at = block->group_next; at != self;
         at = yb_block_at(node->blocks, at)->group_next) {
        struct yb_block *other = yb_block_at(node->blocks, at);
        uint8_t levels = other->state == YB_BLOCK_GRANTED && other->pins == 0
                             ? wanted(node, other, YB_MOVE_EVICTING)
                             : 0;

        if (levels != 0 && fits(node, other)) {
            (void)send_down(node, other, levels);
        }
    }
}

bool
yb_node_could_demote(const struct yb_node *node, const struct yb_block *block)
{
    return node->below != NULL && !yb_node_lies_below(node, block) &&
           wanted(node, block, YB_MOVE_EVICTING) != 0;
}

bool
yb_node_demote(struct yb_node *node, struct yb_block *block)
{
    uint8_t levels;

    if (node->below == NULL || yb_node_lies_below(node, block)) {
        return false;
    }
    levels = wanted(node, block, YB_MOVE_EVICTING);
    if (levels == 0) {
        return false;
    }
    if (!fits(node, block) || !send_down(node, block, levels)) {
        return block->pins > 0; /* One of the tiers has taken it. */
    }
    send_group(node, block);
    return true;
}

/* ---- before the end -------------------------------------------------------------------------- */

bool
yb_node_settle(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    if (below == NULL || node->net == NULL || node->stopping) {
        return true;
    }
    if (yb_node_claim_begins(node)) {
        return false; /* In a moment there is one tier more. */
    }
    while (below->settle_at < yb_block_span(node->blocks)) {
        struct yb_block *block = yb_block_at(node->blocks, below->settle_at);
        uint8_t levels =
            block->state == YB_BLOCK_GRANTED ? wanted(node, block, YB_MOVE_EVICTING) : 0;

        if (levels != 0 && (!fits(node, block) || !send_down(node, block, levels)) &&
            below->storing != NULL) {
            return false; /* Those that are under way make room for it. */
        }
        below->settle_at++;
    }
    return below->storing == NULL;
}

uint64_t
yb_node_unsettled(const struct yb_node *node)
{
    uint64_t count = 0;

    for (uint32_t i = 0; node->below != NULL && i < yb_block_span(node->blocks); i++) {
        const struct yb_block *block = yb_block_at(node->blocks, i);
        const struct yb_shelf_record *record =
            block->state == YB_BLOCK_GRANTED
                ? yb_shelf_of(node->below->shelf, block->hash, block->grant)
                : NULL;

        count += block->state == YB_BLOCK_GRANTED && (record == NULL || record->resident == 0);
    }
    return count;
}
