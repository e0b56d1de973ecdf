/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes when memory is short: the policy chooses, this file carries it out.
 *
 * Tenants with a limit have a policy of their own, so that a tenant that is at its limit makes room
 * for itself; all others share one. When the pool is full the victims of all are compared: what is
 * not softly pinned goes first, then what was used the longest ago.
 *
 * Nothing waits for eviction: an allocation that finds no room collects what was flushed, then
 * evicts as many victims as it takes, up to YB_NODE_EVICT_STEP of them, and the tick keeps use
 * below the high mark, so that most allocations find room. The cost is that of the victims; keys
 * are never walked.
 */
#include "base/check.h"
#include "base/hash.h"
#include "node/node_internal.h"

#define OWN_GHOSTS 65536u
#define PASSED_MAX 64u /* Blocks that are nowhere below, passed over for one that is. */

static struct yb_block *
block_of_entry(struct yb_policy_entry *entry)
{
    return (struct yb_block *)((uint8_t *)entry - offsetof(struct yb_block, policy));
}

/* ---- which policy --------------------------------------------------------------------------- */

struct yb_policy *
yb_node_policy(const struct yb_node *node, const struct yb_block *block)
{
    struct yb_policy *own = node->tenants[block->tenant].policy;

    return own != NULL ? own : node->policy;
}

uint32_t
yb_node_use(struct yb_node *node)
{
    node->uses += node->uses == UINT32_MAX ? 2 : 1;
    return node->uses;
}

/* Where a block is in its chain, if what is before it is known; or else where it came or comes
 * among others: the order of keys is that of a prompt. */
static uint32_t
position_of(const struct yb_node *node, const struct yb_block *block, uint32_t index)
{
    const struct yb_block *parent =
        block->parent != 0 ? yb_block_parent(node->blocks, block->parent, block->tenant) : NULL;

    if (parent != NULL && parent != block && parent->position != 0 &&
        parent->position < UINT32_MAX) {
        return parent->position + 1;
    }
    return block->position > index + 1 ? block->position : index + 1;
}

/* What the policy is told of a use. When the next one is, nobody has told us. */
static struct yb_policy_use
use_of(const struct yb_block *block, uint32_t use)
{
    return (struct yb_policy_use){
        .request = use,
        .position = block->position,
        .refetch_us = block->refetch_us,
    };
}

void
yb_node_used(struct yb_node *node, struct yb_block *block, uint32_t use, uint32_t index)
{
    struct yb_policy_use told;

    block->access_ns = yb_node_now(node);
    if (block->awaited != 0) {
        yb_node_instruct_met(node, block, true);
    }
    if (!block->ordered) {
        return;
    }
    block->position = position_of(node, block, index);
    told = use_of(block, use);
    yb_policy_use(yb_node_policy(node, block), &block->policy.entry, &told, block->access_ns);
}

/* Put the block into a policy, with the pins that it has. */
static void
insert(struct yb_node *node, struct yb_block *block, bool sole)
{
    struct yb_policy *policy = yb_node_policy(node, block);
    uint32_t pins = (block->flags & YB_WIRE_BLOCK_FLAG_HARD_PIN) != 0 ? 1 : 0;
    struct yb_policy_facts facts = {
        .hash = yb_hash_table_id(0, block->hash),
        .size = block->extent.length,
        .linked = true,
        .duplicate = !sole,
        .soft = (block->flags & YB_WIRE_BLOCK_FLAG_SOFT_PIN) != 0,
        .use = use_of(block, block->use),
    };

    yb_policy_insert(policy, &block->policy.entry, &facts, block->access_ns);
    block->ordered = 1;
    pins += block->pins > 0 ? 1 : 0;
    pins += block->hold_until_ns != 0 ? 1 : 0;
    for (uint32_t i = 0; i < pins; i++) {
        if (yb_policy_pin(policy, &block->policy.entry) != YB_OK) {
            YB_ASSERT(false); /* Three of ours at the most. */
        }
    }
}

void
yb_node_order(struct yb_node *node, struct yb_block *block, bool sole)
{
    YB_ASSERT(block->state == YB_BLOCK_GRANTED && !block->ordered);
    block->position = position_of(node, block, block->position > 0 ? block->position - 1 : 0);
    insert(node, block, sole);
}

void
yb_node_unorder(struct yb_node *node, struct yb_block *block, bool evicted)
{
    struct yb_policy *policy = yb_node_policy(node, block);
    struct yb_policy_linked *first = block->policy.child;
    struct yb_policy_linked *child = first;

    if (!block->ordered) {
        return;
    }
    while (child != NULL) { /* They are its children again if it comes back. */
        yb_block_wait(node->blocks, block_of_entry(&child->entry));
        child = child->sibling_older != first ? child->sibling_older : NULL;
    }
    if (evicted) {
        yb_policy_evict(policy, &block->policy.entry);
    } else {
        yb_policy_remove(policy, &block->policy.entry);
    }
    block->ordered = 0;
}

void
yb_node_lapse_soft_pin(struct yb_node *node, struct yb_block *block)
{
    uint64_t now_ns = yb_node_now(node);
    struct yb_policy_use told = use_of(block, block->use);

    if (block->soft_ns == 0 || block->pins > 0 || now_ns - block->access_ns < block->soft_ns) {
        return;
    }
    block->soft_ns = 0;
    block->flags &= (uint16_t)~YB_WIRE_BLOCK_FLAG_SOFT_PIN;
    yb_policy_end_soft(yb_node_policy(node, block), &block->policy.entry, &told, now_ns);
    yb_node_count(node, YB_NODE_STAT_SOFT_LAPSED, 1);
}

void
yb_node_limit(struct yb_node *node, uint32_t tenant)
{
    struct yb_tenant *one = &node->tenants[tenant];
    struct yb_policy_options options = {
        .name = node->options.policy,
        .ghost_count =
            node->options.blocks_max < OWN_GHOSTS ? node->options.blocks_max : OWN_GHOSTS,
    };
    struct yb_policy *own;

    if (one->policy != NULL || node->limited_count == YB_NODE_LIMITED ||
        yb_policy_create(&options, &own) != YB_OK) {
        return; /* Without one its puts are refused at its limit. */
    }
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_GRANTED && block->tenant == tenant && block->ordered) {
            yb_block_wait_end(node->blocks, block);
            yb_node_unorder(node, block, false);
        }
    }
    one->policy = own;
    node->limited[node->limited_count++] = (uint16_t)tenant;
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_GRANTED && block->tenant == tenant) {
            yb_block_wait_end(node->blocks, block);
            insert(node, block, !block->policy.entry.duplicate);
        }
    }
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_GRANTED && block->tenant == tenant) {
            yb_node_join_chain(node, block);
        }
    }
}

/* ---- evicting ------------------------------------------------------------------------------- */

/* Evict a block and, with it, the rest of its group. Returns the bytes that came back. */
static uint64_t
evict(struct yb_node *node, struct yb_block *block)
{
    uint32_t self = yb_block_index(node->blocks, block);
    uint64_t freed = 0;

    for (uint32_t at = block->group_next; at != self;) {
        struct yb_block *other = yb_block_at(node->blocks, at);
        bool goes = other->state == YB_BLOCK_GRANTED && other->policy.entry.pins == 0 &&
                    (block->policy.entry.soft || !other->policy.entry.soft);

        at = other->group_next;
        if (goes) {
            freed += other->extent.length;
            node->evicted_ever++;
            yb_node_count(node, YB_NODE_STAT_EVICTED, 1);
            yb_node_doom(node, other, YB_WIRE_FATE_REMOVED, true);
        }
    }
    if (node->below != NULL) {
        yb_node_count(node,
                      yb_node_lies_below(node, block) ? YB_NODE_STAT_EVICTED_CLEAN
                                                      : YB_NODE_STAT_DEMOTE_DROPPED,
                      1);
    }
    freed += block->extent.length;
    node->evicted_ever++;
    node->evicted_bytes_ever += freed;
    yb_node_count(node, YB_NODE_STAT_EVICTED, 1);
    yb_node_count(node, YB_NODE_STAT_EVICTED_BYTES, freed);
    yb_node_doom(node, block, YB_WIRE_FATE_EVICTED, true);
    return freed;
}

/* Whether `a` is to go before `b`. */
static bool
goes_first(const struct yb_policy_entry *a, const struct yb_policy_entry *b)
{
    if (a == NULL || b == NULL) {
        return b == NULL;
    }
    return a->soft != b->soft ? !a->soft : a->last_access_ns < b->last_access_ns;
}

/* Return the next victim of all, or of one tenant that has a limit. */
static struct yb_policy_entry *
victim(struct yb_node *node, struct yb_policy *own)
{
    struct yb_policy_entry *entry = yb_policy_victim(own != NULL ? own : node->policy);

    for (uint32_t i = 0; own == NULL && i < node->limited_count; i++) {
        struct yb_policy_entry *other = yb_policy_victim(node->tenants[node->limited[i]].policy);

        entry = goes_first(other, entry) ? other : entry;
    }
    return entry;
}

/* Whether the block belongs to the value whose part wants room; then it is no victim until
 * yb_node_room() ends. */
static bool
spare(struct yb_node *node, struct yb_block *block)
{
    if (node->spared_group == 0 || block->group != node->spared_group ||
        block->tenant != node->spared_tenant) {
        return false;
    }
    if (node->spared_count == YB_NODE_SPARED ||
        yb_policy_pin(yb_node_policy(node, block), &block->policy.entry) != YB_OK) {
        return false;
    }
    node->spared[node->spared_count++] = block;
    return true;
}

static void
spare_end(struct yb_node *node)
{
    for (uint32_t i = 0; i < node->spared_count; i++) {
        struct yb_block *block = node->spared[i];

        yb_policy_unpin(yb_node_policy(node, block), &block->policy.entry);
    }
    node->spared_count = 0;
    node->spared_group = 0;
}

/* What may be taken to make room. */
enum take {
    TAKE_NONE,  /* Only let blocks go down, ahead of time. */
    TAKE_CLEAN, /* What a tier below has, or no tier will ever have. */
    TAKE_ANY,
};

/* Find the next victim: one that no tier below has goes down there first, if there is room for its
 * store, and is passed over in favour of one that goes without loss, if not (RULES C2). NULL:
 * nothing may go. */
static struct yb_block *
choose(struct yb_node *node, struct yb_policy *own, enum take take)
{
    struct yb_block *passed[PASSED_MAX];
    struct yb_block *chosen = NULL;
    uint32_t count = 0;

    while (chosen == NULL && count < PASSED_MAX) {
        struct yb_policy_entry *entry = victim(node, own);
        struct yb_block *block = entry != NULL ? block_of_entry(entry) : NULL;

        if (block == NULL) {
            break;
        }
        if (spare(node, block) || yb_node_demote(node, block)) {
            continue;
        }
        if (take != TAKE_NONE && !yb_node_could_demote(node, block)) {
            chosen = block;
        } else if (yb_policy_pin(yb_node_policy(node, block), entry) == YB_OK) {
            passed[count++] = block;
        } else {
            break;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        yb_policy_unpin(yb_node_policy(node, passed[i]), &passed[i]->policy.entry);
    }
    return chosen == NULL && take == TAKE_ANY && count > 0 ? passed[0] : chosen;
}

/* Evict the next victim; `own`: of this policy alone. Returns the bytes that came back; 0: nothing
 * may go. */
static uint64_t
evict_next(struct yb_node *node, struct yb_policy *own, enum take take)
{
    struct yb_block *block;

    if (yb_publisher_room(node->publisher) < 64) {
        return 0; /* Its withdrawal would not fit: wait until the directory has heard of others. */
    }
    block = choose(node, own, take);
    return block == NULL ? 0 : evict(node, block);
}

/* Before anything is evicted: collect some of what was flushed, of which no pin keeps anything.
 * Returns false if there is no more of it. */
static bool
collect(struct yb_node *node)
{
    if (node->sweep_left == 0) {
        return false;
    }
    yb_node_sweep(node);
    return true;
}

/* Evict until this much came back. Returns what did: less, if no more may go. */
static uint64_t
evict_bytes(struct yb_node *node, struct yb_policy *own, uint64_t bytes)
{
    uint64_t freed = 0;

    while (freed < bytes) { /* Less cannot be enough, wherever it lies. */
        uint64_t got = evict_next(node, own, TAKE_ANY);

        if (got == 0) {
            break;
        }
        freed += got;
    }
    return freed;
}

static enum yb_status
find_room(struct yb_node *node, uint64_t bytes, uint32_t tenant, struct yb_dram_extent *extent_out)
{
    enum yb_status status = yb_dram_alloc(node->pool, bytes, tenant, extent_out);

    for (uint32_t i = 0; i < YB_NODE_EVICT_STEP; i++) {
        struct yb_policy *own = status == YB_QUOTA ? node->tenants[tenant].policy : NULL;

        if (status != YB_NO_SPACE && (own == NULL || bytes > node->tenants[tenant].credit)) {
            break;
        }
        if (!collect(node) && evict_bytes(node, own, bytes) == 0) {
            yb_node_count(node, YB_NODE_STAT_EVICT_VAIN, 1);
            break;
        }
        status = yb_dram_alloc(node->pool, bytes, tenant, extent_out);
    }
    return status;
}

/* Whether use is below the high mark, or comes to be: what is above it goes with the next tick, and
 * that may be a part that has just come. */
static bool
below_mark(struct yb_node *node)
{
    uint64_t capacity = yb_dram_info(node->pool).allocator.capacity;
    uint64_t most = capacity / 1000 * node->options.high_permille;

    for (uint32_t i = 0; i < YB_NODE_EVICT_STEP; i++) {
        if (yb_dram_info(node->pool).used_bytes <= most) {
            return true;
        }
        if (evict_next(node, NULL, TAKE_ANY) == 0) {
            return false;
        }
    }
    return false;
}

enum yb_status
yb_node_room(struct yb_node *node, uint64_t bytes, const struct yb_node_intake *intake,
             struct yb_dram_extent *extent_out)
{
    bool part = (intake->flags & YB_WIRE_BLOCK_FLAG_PART) != 0;
    bool striped = (intake->flags & YB_WIRE_BLOCK_FLAG_STRIPED) != 0;
    enum yb_status status;

    if (part || striped) { /* RULES A16: a value does not make room for itself. */
        node->spared_group = intake->group;
        node->spared_tenant = (uint16_t)intake->tenant;
    }
    status = find_room(node, bytes, intake->tenant, extent_out);
    if (part && status == YB_OK && !below_mark(node)) {
        yb_dram_free(node->pool, extent_out);
        status = YB_NO_SPACE;
    }
    spare_end(node);
    node->refused_space_ever += status == YB_NO_SPACE;
    return status;
}

enum yb_status
yb_node_record(struct yb_node *node, struct yb_id hash, struct yb_block **block_out)
{
    enum yb_status status = yb_block_take(node->blocks, hash, block_out);

    /* A victim that is still being read keeps its record for a while. */
    for (uint32_t i = 0; status != YB_OK && i < YB_NODE_EVICT_STEP; i++) {
        if (!collect(node) && evict_next(node, NULL, TAKE_ANY) == 0) {
            yb_node_count(node, YB_NODE_STAT_EVICT_VAIN, 1);
            node->refused_space_ever++;
            return YB_NO_SPACE;
        }
        status = yb_block_take(node->blocks, hash, block_out);
    }
    return status == YB_OK ? YB_OK : YB_NO_SPACE;
}

/* Tenants that have more than they may, since others of their blocks are elsewhere: back to it. Of
 * one that has nearly as much, blocks go down ahead of time, as they do of a pool that is filling
 * up. */
static void
keep_to_credits(struct yb_node *node)
{
    for (uint32_t i = 0; i < node->limited_count; i++) {
        uint32_t tenant = node->limited[i];
        uint64_t used = yb_dram_tenant_bytes(node->pool, tenant);
        uint64_t credit = node->tenants[tenant].credit;

        if (used > credit) {
            (void)evict_bytes(node, node->tenants[tenant].policy, used - credit);
        } else if (node->below != NULL && used > credit / 1000 * node->options.low_permille) {
            (void)choose(node, node->tenants[tenant].policy, TAKE_NONE);
        }
    }
}

void
yb_node_evict_tick(struct yb_node *node)
{
    uint64_t left;

    keep_to_credits(node);
    if (node->below != NULL &&
        yb_dram_info(node->pool).used_bytes >
            yb_dram_info(node->pool).allocator.capacity / 1000 * node->options.low_permille) {
        (void)choose(node, NULL, TAKE_NONE); /* So that somebody can go when memory is short. */
    }
    left = yb_policy_marks_to_free(&node->marks, yb_dram_info(node->pool).used_bytes, 0);
    for (uint32_t i = 0; i < YB_NODE_EVICT_STEP && left > 0; i++) {
        uint64_t freed = evict_next(node, NULL, TAKE_CLEAN);

        if (freed == 0) {
            return;
        }
        left -= freed < left ? freed : left;
    }
}
