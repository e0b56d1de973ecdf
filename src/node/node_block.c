/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's tenants, and the states of its blocks.
 */
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "node/node_internal.h"

#define SWEEP_STEP 8192u

/* ---- tenants -------------------------------------------------------------------------------- */

uint32_t
yb_node_tenant(struct yb_node *node, const char *name)
{
    struct yb_tenant *tenant;

    if (node->tenant_last < node->tenant_count &&
        strcmp(node->tenants[node->tenant_last].name, name) == 0) {
        return node->tenant_last;
    }
    for (uint32_t i = 0; i < node->tenant_count; i++) {
        if (strcmp(node->tenants[i].name, name) == 0) {
            node->tenant_last = i;
            return i;
        }
    }
    if (node->tenant_count == YB_TENANTS_MAX || strlen(name) >= sizeof(tenant->name)) {
        return UINT32_MAX;
    }
    tenant = &node->tenants[node->tenant_count];
    (void)snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    tenant->credit = UINT64_MAX;
    node->tenant_last = node->tenant_count;
    return node->tenant_count++;
}

uint32_t
yb_node_tenant_of(struct yb_node *node, const struct yb_request *request)
{
    return yb_node_tenant(node,
                          request->peer->tenant[0] != '\0' ? request->peer->tenant : "default");
}

uint64_t
yb_node_flush(struct yb_node *node, uint32_t tenant, uint64_t flush)
{
    struct yb_tenant *known = &node->tenants[tenant];

    if (flush <= known->flush) {
        return flush == known->flush ? known->flushed : 0; /* Heard of before, in another way. */
    }
    known->flushed = known->live + yb_node_below_count(node, tenant);
    known->flush = flush; /* Every older block is a miss from here on (N1) ... */
    known->live = 0;
    node->sweep_left = yb_block_span(node->blocks); /* ... and its memory comes back in steps. */
    yb_node_below_flush(node, tenant);
    yb_node_count(node, YB_NODE_STAT_FLUSHED, known->flushed);
    return known->flushed;
}

/* ---- blocks --------------------------------------------------------------------------------- */

bool
yb_node_serving(const struct yb_node *node)
{
    return node->registered && yb_node_now(node) < yb_member_lease_until(node->member);
}

const uint8_t *
yb_node_bytes(const struct yb_node *node, const struct yb_block *block)
{
    return yb_dram_bytes(node->pool, &block->extent);
}

const uint8_t *
yb_node_key(const struct yb_node *node, const struct yb_block *block)
{
    return yb_node_bytes(node, block) + block->size;
}

struct yb_block *
yb_node_find(struct yb_node *node, uint32_t tenant, const struct yb_node_name *name,
             enum yb_status *status_out)
{
    struct yb_block *block;

    *status_out = YB_FENCED;
    if (!yb_node_serving(node)) {
        return NULL;
    }
    *status_out = YB_NOT_FOUND;
    block = yb_block_granted(node->blocks, name->hash);
    if (block == NULL && yb_block_awaits_grant(node->blocks, name->hash)) {
        *status_out = YB_NOT_READY; /* RULES A8: whole, and its grant has not come. */
    }
    if (block == NULL && *status_out == YB_NOT_FOUND && node->below != NULL) {
        *status_out = yb_node_below_status(node, tenant, name);
    }
    if (block == NULL || block->tenant != tenant || block->flush < node->tenants[tenant].flush ||
        block->expires_ns <= yb_node_now(node)) {
        return NULL;
    }
    if (block->key_bytes != name->key_bytes ||
        memcmp(yb_node_key(node, block), name->key, name->key_bytes) != 0) {
        return NULL; /* Another key of the same hash: a miss. */
    }
    if (name->grant != YB_WIRE_NO_GRANT && name->grant != block->grant) {
        *status_out = YB_STALE;
        return NULL;
    }
    *status_out = YB_OK;
    return block;
}

static void
set_state(struct yb_node *node, struct yb_block *block, enum yb_dram_state state)
{
    yb_dram_set_state(node->pool, &block->extent, state);
}

/* Take a block out of its group's ring. */
static void
leave_group(struct yb_node *node, struct yb_block *block)
{
    uint32_t self = yb_block_index(node->blocks, block);
    struct yb_node_group *place = &node->groups[block->group % YB_NODE_GROUPS];

    if (place->group == block->group && place->block == self) {
        place->block = block->group_next; /* Who comes next finds the rest of it. */
    }

    yb_block_at(node->blocks, block->group_previous)->group_next = block->group_next;
    yb_block_at(node->blocks, block->group_next)->group_previous = block->group_previous;
    block->group_next = block->group_previous = self;
}

/* Give memory and record back. */
static void
free_block(struct yb_node *node, struct yb_block *block)
{
    YB_ASSERT(block->pins == 0);
    leave_group(node, block);
    yb_dram_free(node->pool, &block->extent);
    yb_block_give(node->blocks, block);
}

void
yb_node_discard(struct yb_node *node, struct yb_block *block)
{
    YB_ASSERT(block->state == YB_BLOCK_IN_FLIGHT || block->state == YB_BLOCK_COMMITTED);
    YB_ASSERT(block->put == NULL);
    if (block->pins > 0) { /* A copy of its bytes is being made. */
        yb_block_unlink(node->blocks, block);
        block->state = YB_BLOCK_DOOMED;
        set_state(node, block, YB_DRAM_QUARANTINED);
        return;
    }
    free_block(node, block);
}

void
yb_node_pin(struct yb_node *node, struct yb_block *block)
{
    block->pins++;
    if (block->ordered && block->pins == 1 &&
        yb_policy_pin(yb_node_policy(node, block), &block->policy.entry) != YB_OK) {
        YB_ASSERT(false); /* One pin of ours at a time. */
    }
}

void
yb_node_unpin(struct yb_node *node, struct yb_block *block)
{
    YB_ASSERT(block->pins > 0);
    block->pins--;
    if (block->pins > 0) {
        return;
    }
    if (block->state == YB_BLOCK_DOOMED) {
        free_block(node, block);
    } else if (block->ordered) {
        yb_policy_unpin(yb_node_policy(node, block), &block->policy.entry);
    }
}

static void
remember_ghost(struct yb_node *node, const struct yb_block *block, uint8_t fate)
{
    uint64_t place = yb_hash_table_id(0, block->hash) & (YB_NODE_GHOSTS - 1);

    node->ghosts[place] =
        (struct yb_node_ghost){.hash = block->hash, .when_ns = yb_node_now(node), .fate = fate};
}

/* Tell the directory that a copy is gone. The stream may be full or down: then the inventory says
 * it, by not naming it. */
static void
withdraw_block(struct yb_node *node, const struct yb_block *block)
{
    struct yb_publisher_item item = {
        .wire = {.hash = block->hash,
                 .grant = block->grant,
                 .write = block->write,
                 .size = block->size,
                 .flush = block->flush,
                 .mode = YB_WIRE_MODE_WITHDRAW,
                 .tier = YB_WIRE_TIER_DRAM,
                 .replicas = block->replicas},
        .tenant = block->tenant,
        .removal = node->removing,
    };

    if (node->registered && yb_publisher_push(node->publisher, &item) != YB_OK) {
        yb_member_fenced(node->member); /* Register again, and name what is left. */
    }
}

void
yb_node_doom(struct yb_node *node, struct yb_block *block, uint8_t fate, bool withdraw)
{
    struct yb_tenant *tenant = &node->tenants[block->tenant];

    YB_ASSERT(block->state == YB_BLOCK_GRANTED);
    if (withdraw) {
        withdraw_block(node, block);
    }
    if (!yb_node_lies_below(node, block)) { /* Else it is slower here, and not gone. */
        yb_node_watch_gone(node, block);
        remember_ghost(node, block, fate);
    }
    yb_node_hold_end(node, block);
    if (block->awaited != 0) {
        yb_node_instruct_met(node, block, fate != YB_WIRE_FATE_EVICTED);
    }
    yb_node_unorder(node, block, fate == YB_WIRE_FATE_EVICTED);
    if (block->flush >= tenant->flush && tenant->live > 0) {
        tenant->live--;
    }
    node->granted_count--;
    yb_node_below_left_memory(node, block);
    yb_block_unlink(node->blocks, block);
    block->state = YB_BLOCK_DOOMED;
    if (block->pins > 0) {
        set_state(node, block, YB_DRAM_QUARANTINED);
        return;
    }
    free_block(node, block);
}

void
yb_node_grant(struct yb_node *node, struct yb_block *block, uint64_t grant, bool sole)
{
    struct yb_block *old = yb_block_granted(node->blocks, block->hash);

    YB_ASSERT(block->state == YB_BLOCK_COMMITTED);
    if (old != NULL && old->grant <= grant) {
        yb_node_doom(node, old, YB_WIRE_FATE_REMOVED, false); /* Replaced, or a lost inventory. */
    }
    block->grant = grant;
    block->state = YB_BLOCK_GRANTED;
    block->access_ns = yb_node_now(node);
    node->grant_max = grant > node->grant_max ? grant : node->grant_max;
    set_state(node, block, YB_DRAM_LIVE);
    node->tenants[block->tenant].live++;
    node->granted_count++;
    yb_node_order(node, block, sole);
    yb_node_count(node, YB_NODE_STAT_PUT_BYTES, block->size);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void
yb_node_sweep(struct yb_node *node)
{
    uint32_t span = yb_block_span(node->blocks);
    uint64_t now_ns = yb_node_now(node);

    node->sweep_left -= node->sweep_left < SWEEP_STEP ? node->sweep_left : SWEEP_STEP;
    for (uint32_t i = 0; i < SWEEP_STEP && i < span; i++) {
        struct yb_block *block = yb_block_at(node->blocks, node->sweep_at % span);

        node->sweep_at = (node->sweep_at + 1) % span;
        if (block->state != YB_BLOCK_GRANTED) {
            continue;
        }
        if (block->hold_until_ns <= now_ns) {
            yb_node_hold_end(node, block);
        }
        if (block->flush < node->tenants[block->tenant].flush) {
            yb_node_doom(node, block, YB_WIRE_FATE_FLUSHED, false);
        } else if (block->expires_ns <= now_ns) {
            yb_node_count(node, YB_NODE_STAT_EXPIRED, 1);
            yb_node_below_remove(node, block->hash, block->grant);
            yb_node_doom(node, block, YB_WIRE_FATE_EXPIRED, true);
        } else {
            yb_node_lapse_soft_pin(node, block);
        }
    }
}

void
yb_node_free_blocks(struct yb_node *node)
{
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_FREE) {
            continue;
        }
        block->pins = 0;
        block->ordered = 0;
        block->put = NULL;
        free_block(node, block);
    }
}
