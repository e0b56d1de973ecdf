/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking into a node from its own process: numbers, the check of its books, what it would serve.
 */
#include <stdio.h>
#include <string.h>

#include "node/node_internal.h"

/* Word by word, as the heart's thread reads it (member.c). */
static void
show_use(struct yb_wire_tenant_use *out, const struct yb_wire_tenant_use *use)
{
    const uint64_t *from = (const uint64_t *)(const void *)use;
    uint64_t *to = (uint64_t *)(void *)out;

    for (size_t word = 0; word < sizeof(*use) / sizeof(*from); word++) {
        __atomic_store_n(&to[word], from[word], __ATOMIC_RELAXED);
    }
}

/* Shares of a million, which is their sum: what is left of it by rounding is among the misses. */
static void
show_hits(struct yb_node *node)
{
    uint64_t sum = 0, left = 1000000;

    for (uint32_t tier = 0; tier <= YB_WIRE_TIER_OBJECT; tier++) {
        sum += node->found_ever[tier];
    }
    for (uint32_t tier = YB_WIRE_TIER_OBJECT; sum > 0; tier--) {
        uint64_t share = tier > 0 ? node->found_ever[tier] * 1000000 / sum : left;

        yb_stats_set_at(node->shard, node->stats_first + YB_NODE_STAT_HIT_RATIO, tier, 0,
                        (int64_t)share);
        left -= share;
        if (tier == 0) {
            break;
        }
    }
}

void
yb_node_show_vitals(struct yb_node *node)
{
    static const struct {
        enum yb_node_stat stat;
        enum yb_dram_state state;
    } gauges[] = {
        {YB_NODE_STAT_LIVE, YB_DRAM_LIVE},
        {YB_NODE_STAT_IN_FLIGHT, YB_DRAM_IN_FLIGHT},
        {YB_NODE_STAT_UNGRANTED, YB_DRAM_UNGRANTED},
        {YB_NODE_STAT_QUARANTINED, YB_DRAM_QUARANTINED},
    };
    struct yb_member_vitals *vitals = yb_member_vitals(node->member);
    struct yb_dram_info info = yb_dram_info(node->pool);
    const uint64_t *bytes = info.state_bytes;
    uint32_t count = 0;

    atomic_store(&vitals->live, bytes[YB_DRAM_LIVE]);
    atomic_store(&vitals->in_flight, bytes[YB_DRAM_IN_FLIGHT]);
    atomic_store(&vitals->ungranted, bytes[YB_DRAM_UNGRANTED]);
    atomic_store(&vitals->quarantined, bytes[YB_DRAM_QUARANTINED]);
    atomic_store(&vitals->drained, node->slot_state == YB_WIRE_SLOT_STATE_DRAINING &&
                                       node->granted_count == 0 && yb_node_below_blocks(node) == 0);
    atomic_fetch_add(&vitals->use_sequence, 1);
    for (uint32_t i = 0; i < node->tenant_count && count < YB_MEMBER_USES; i++) {
        uint64_t used = yb_dram_tenant_bytes(node->pool, i);

        if (used > 0) {
            struct yb_wire_tenant_use use = {.used = used};

            memcpy(use.tenant, node->tenants[i].name, sizeof(use.tenant));
            show_use(&vitals->uses[count++], &use);
        }
    }
    atomic_store(&vitals->use_count, count);
    atomic_fetch_add(&vitals->use_sequence, 1);
    for (uint32_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]); i++) {
        yb_stats_set(node->shard, node->stats_first + (uint32_t)gauges[i].stat,
                     (int64_t)bytes[gauges[i].state]);
    }
    yb_stats_set(node->shard, node->stats_first + YB_NODE_STAT_CAPACITY,
                 (int64_t)info.allocator.capacity);
    yb_stats_set(node->shard, node->stats_first + YB_NODE_STAT_HUGE,
                 info.huge_bytes != UINT64_MAX ? (int64_t)info.huge_bytes : 0);
    yb_stats_set(node->shard, node->stats_first + YB_NODE_STAT_BLOCKS,
                 (int64_t)node->granted_count);
    show_hits(node);
    yb_node_below_show(node);
    yb_node_link_show(node);
    yb_member_ways_shown(node->member);
    yb_stats_set(node->shard, node->stats_first + YB_NODE_STAT_BELOW,
                 (int64_t)yb_node_below_blocks(node));
}

static uint64_t
duplicates(const struct yb_node *node)
{
    uint64_t sum = yb_policy_info(node->policy).duplicate_count;

    for (uint32_t i = 0; i < node->limited_count; i++) {
        sum += yb_policy_info(node->tenants[node->limited[i]].policy).duplicate_count;
    }
    return sum;
}

void
yb_node_info(struct yb_node *node, struct yb_node_info *info_out)
{
    struct yb_dram_info info = yb_dram_info(node->pool);

    *info_out = (struct yb_node_info){
        .incarnation = node->registered ? node->incarnation : 0,
        .epoch = node->epoch,
        .lease_until_ns = yb_member_lease_until(node->member),
        .slot = node->slot,
        .state = node->slot_state,
        .capacity = info.allocator.capacity,
        .live = info.state_bytes[YB_DRAM_LIVE],
        .in_flight = info.state_bytes[YB_DRAM_IN_FLIGHT],
        .ungranted = info.state_bytes[YB_DRAM_UNGRANTED],
        .quarantined = info.state_bytes[YB_DRAM_QUARANTINED],
        .blocks = node->granted_count,
        .below = yb_node_below_blocks(node),
        .evicted = node->evicted_ever,
        .gets = node->gets_ever,
        .duplicates = duplicates(node),
    };
}

bool
yb_node_check(struct yb_node *node, char *why_out, size_t why_bytes)
{
    static const struct {
        enum yb_block_state block;
        enum yb_dram_state extent;
    } pairs[] = {
        {YB_BLOCK_GRANTED, YB_DRAM_LIVE},
        {YB_BLOCK_IN_FLIGHT, YB_DRAM_IN_FLIGHT},
        {YB_BLOCK_COMMITTED, YB_DRAM_UNGRANTED},
        {YB_BLOCK_DOOMED, YB_DRAM_QUARANTINED},
    };
    uint64_t sums[YB_BLOCK_DOOMED + 1] = {0};
    struct yb_dram_info info = yb_dram_info(node->pool);
    uint64_t granted = 0;

    if (!yb_dram_pool_check(node->pool, why_out, (uint32_t)why_bytes)) {
        return false;
    }
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state != YB_BLOCK_FREE) {
            sums[block->state] += block->extent.length;
            granted += block->state == YB_BLOCK_GRANTED;
        }
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        if (sums[pairs[i].block] != info.state_bytes[pairs[i].extent]) {
            (void)snprintf(
                why_out, why_bytes, "%s: %llu bytes by the blocks, %llu by the allocator",
                yb_dram_state_name(pairs[i].extent), (unsigned long long)sums[pairs[i].block],
                (unsigned long long)info.state_bytes[pairs[i].extent]);
            return false;
        }
    }
    if (granted != node->granted_count) {
        (void)snprintf(why_out, why_bytes, "%llu granted blocks, %llu counted",
                       (unsigned long long)granted, (unsigned long long)node->granted_count);
        return false;
    }
    return true;
}

void
yb_node_visit(struct yb_node *node,
              void (*visit)(void *context, const struct yb_node_block_view *block), void *context)
{
    if (!yb_node_serving(node)) {
        return;
    }
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);
        struct yb_node_block_view view = {
            .hash = block->hash,
            .grant = block->grant,
            .flush = block->flush,
            .size = block->size,
        };

        if (block->state != YB_BLOCK_GRANTED || block->flush < node->tenants[block->tenant].flush ||
            block->expires_ns <= yb_node_now(node)) {
            continue;
        }
        view.tenant = node->tenants[block->tenant].name;
        view.bytes = yb_node_bytes(node, block);
        view.key = yb_node_key(node, block);
        view.key_bytes = block->key_bytes;
        visit(context, &view);
    }
}
