/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes when memory is short: the policy chooses, this file carries it out.
 *
 * Nothing waits for eviction: an allocation that finds no room evicts as many victims as it takes,
 * up to YB_NODE_EVICT_STEP of them, and the tick keeps use below the high mark, so that most
 * allocations find room. The cost is that of the victims; keys are never walked.
 */
#include "base/check.h"
#include "node/node_internal.h"

static struct yb_block *
block_of_entry(struct yb_policy_entry *entry)
{
    return (struct yb_block *)((uint8_t *)entry - offsetof(struct yb_block, policy));
}

/* Evict a block and, with it, the rest of its group. Returns the bytes that came back. */
static uint64_t
evict(struct yb_node *node, struct yb_block *block)
{
    uint32_t self = yb_block_index(node->blocks, block);
    uint64_t freed = 0;

    for (uint32_t at = block->group_next; at != self;) {
        struct yb_block *other = yb_block_at(node->blocks, at);
        bool goes = other->state == YB_BLOCK_GRANTED && other->pins == 0 &&
                    other->hold_until_ns == 0 && other->ordered;

        at = other->group_next;
        if (goes) {
            freed += other->extent.length;
            node->evicted_ever++;
            yb_node_count(node, YB_NODE_STAT_EVICTED, 1);
            yb_node_doom(node, other, YB_WIRE_FATE_REMOVED, true);
        }
    }
    freed += block->extent.length;
    node->evicted_ever++;
    node->evicted_bytes_ever += freed;
    yb_node_count(node, YB_NODE_STAT_EVICTED, 1);
    yb_node_count(node, YB_NODE_STAT_EVICTED_BYTES, freed);
    yb_node_doom(node, block, YB_WIRE_FATE_EVICTED, true);
    return freed;
}

/* Evict the next victim. Returns the bytes that came back; 0: nothing may go. */
static uint64_t
evict_next(struct yb_node *node)
{
    struct yb_policy_entry *entry;

    if (yb_publisher_room(node->publisher) < 64) {
        return 0; /* Its withdrawal would not fit: wait until the directory has heard of others. */
    }
    entry = yb_policy_victim(node->policy);
    return entry == NULL ? 0 : evict(node, block_of_entry(entry));
}

enum yb_status
yb_node_room(struct yb_node *node, uint64_t bytes, uint32_t tenant,
             struct yb_dram_extent *extent_out)
{
    enum yb_status status = yb_dram_alloc(node->pool, bytes, tenant, extent_out);

    for (uint32_t i = 0; status == YB_NO_SPACE && i < YB_NODE_EVICT_STEP; i++) {
        uint64_t freed = 0;

        while (freed < bytes) { /* Less cannot be enough, wherever it lies. */
            uint64_t got = evict_next(node);

            if (got == 0) {
                break;
            }
            freed += got;
        }
        if (freed == 0) {
            yb_node_count(node, YB_NODE_STAT_EVICT_VAIN, 1);
            break;
        }
        status = yb_dram_alloc(node->pool, bytes, tenant, extent_out);
    }
    node->refused_space_ever += status == YB_NO_SPACE;
    return status;
}

void
yb_node_evict_tick(struct yb_node *node)
{
    struct yb_dram_info info = yb_dram_info(node->pool);
    uint64_t permille = info.allocator.capacity / 1000;
    uint64_t used = info.used_bytes;

    if (used <= permille * node->options.high_permille) {
        return;
    }
    for (uint32_t i = 0; i < YB_NODE_EVICT_STEP && used > permille * node->options.low_permille;
         i++) {
        uint64_t freed = evict_next(node);

        if (freed == 0) {
            return;
        }
        used -= freed < used ? freed : used;
    }
}
