/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's tiers below DRAM: they are opened with its loop, tell what they have from before, and
 * what they have is named to the directory.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/node_below.h"

#define RECORDS_MAX   (16u * 1024u * 1024u)
#define WALK_STEP     4096u
#define PUBLISH_SPARE (YB_PUBLISHER_ITEMS / 2) /* Places that are left to news of other kinds. */

bool
yb_node_level_works(const struct yb_node_level *level)
{
    return level->tier != NULL && level->aside == YB_OK;
}

bool
yb_node_level_reads(const struct yb_node_level *level)
{
    return level->tier != NULL;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t
wall_s(const struct yb_node *node)
{
    return yb_clock_wall(yb_loop_clock(yb_net_loop(node->net))) / YB_NS_PER_S;
}

struct yb_shelf_record *
yb_node_below_find(struct yb_node *node, uint32_t tenant, struct yb_id hash, uint64_t grant,
                   enum yb_status *status_out)
{
    struct yb_shelf_record *record;

    *status_out = YB_NOT_FOUND;
    if (node->below == NULL || (record = yb_shelf_find(node->below->shelf, hash)) == NULL ||
        record->tenant != tenant || record->flush < node->tenants[tenant].flush ||
        (record->expires_s != 0 && record->expires_s <= wall_s(node))) {
        return NULL;
    }
    if (grant != YB_WIRE_NO_GRANT && grant != record->grant) {
        *status_out = YB_STALE;
        return NULL;
    }
    if ((record->resident & record->claimed) == 0) {
        if ((record->told | record->claimed) != 0) { /* Or on its way to the next tier. */
            *status_out = YB_NOT_READY;
        }
        return NULL;
    }
    *status_out = YB_OK;
    return record;
}

enum yb_status
yb_node_below_status(struct yb_node *node, uint32_t tenant, const struct yb_node_name *name)
{
    enum yb_status status;

    return yb_node_below_find(node, tenant, name->hash, name->grant, &status) != NULL ? YB_NOT_READY
                                                                                      : status;
}

void
yb_node_below_publish(struct yb_node *node, struct yb_shelf_record *record, uint32_t level,
                      uint8_t mode)
{
    uint8_t bit = (uint8_t)(1u << level);
    struct yb_publisher_item item = {
        .wire = {.hash = record->hash,
                 .grant = record->grant,
                 .size = record->size,
                 .flush = record->flush,
                 .mode = mode,
                 .tier = (uint8_t)node->below->levels[level].kind,
                 .flags = record->flags,
                 .replicas = record->replicas},
        .tenant = record->tenant,
        .removal = mode == YB_WIRE_MODE_WITHDRAW ? node->removing : 0,
    };

    if (!node->registered) {
        return; /* The next inventory says it. */
    }
    if (yb_publisher_push(node->publisher, &item) != YB_OK) {
        yb_member_fenced(node->member);
        return;
    }
    if (mode == YB_WIRE_MODE_WITHDRAW) {
        if (node->removing != 0) {
            node->removals[node->removing - 1].left++;
        }
        record->claimed &= (uint8_t)~bit;
        record->told &= (uint8_t)~bit;
    } else {
        record->told |= bit;
    }
}

void
yb_node_below_withdraw_gone(struct yb_node *node, struct yb_shelf_record *record)
{
    uint8_t gone = (uint8_t)((record->claimed | record->told) & ~record->resident);

    for (uint32_t i = 0; i < node->below->level_count && record->storing == 0; i++) {
        if ((gone >> i & 1) != 0) {
            yb_node_below_publish(node, record, i, YB_WIRE_MODE_WITHDRAW); /* L5 */
        }
    }
}

bool
yb_node_below_forget(struct yb_node *node, struct yb_shelf_record *record)
{
    if (record->state != YB_SHELF_LIVE || record->resident != 0 || record->storing != 0 ||
        record->doubt != 0) {
        return false;
    }
    yb_node_load_end(node, record);
    yb_shelf_give(node->below->shelf, record);
    return true;
}

void
yb_node_below_left_memory(struct yb_node *node, const struct yb_block *block)
{
    struct yb_shelf_record *record =
        node->below != NULL ? yb_shelf_of(node->below->shelf, block->hash, block->grant) : NULL;

    if (record != NULL && record->state == YB_SHELF_LIVE && record->resident == 0 &&
        record->storing == 0) {
        yb_node_below_end(node, record); /* In doubt, and nowhere else: it is not to come back. */
    }
}

/* ---- what tiers tell ------------------------------------------------------------------------- */

/* Whether a block that was found is older than what is known of its key. */
static bool
is_past(struct yb_node *node, const struct yb_tier_record *found, uint32_t tenant)
{
    const struct yb_block *block = yb_block_granted(node->blocks, found->hash);
    const struct yb_shelf_record *same = yb_shelf_of(node->below->shelf, found->hash, found->grant);
    uint64_t now_ms = wall_s(node) * 1000;

    return (same != NULL && same->state == YB_SHELF_DEAD) || /* Its kill came first. */
           (block != NULL && block->grant > found->grant) ||
           found->flush < node->tenants[tenant].flush ||
           (found->expires_unix_ms != 0 && found->expires_unix_ms <= now_ms);
}

/* Whether a block that a tier has found anew was ended while nobody knew that it is there. What was
 * not ended is known (L6), or lies in memory. */
static bool
is_a_ghost(const struct yb_node_level *level, const struct yb_tier_record *found)
{
    const struct yb_block *block = yb_block_granted(level->node->blocks, found->hash);

    return level->complete && (block == NULL || block->grant != found->grant);
}

static bool
on_found(void *owner, const struct yb_tier_record *found)
{
    struct yb_node_level *level = owner;
    struct yb_node *node = level->node;
    struct yb_node_below *below = node->below;
    uint32_t tenant = yb_node_tenant(node, found->tenant);
    struct yb_shelf_record *record = yb_shelf_find(below->shelf, found->hash);
    bool ghost = record == NULL && is_a_ghost(level, found);

    if (level->foreign) {
        return true; /* It stays there, for whom it is. */
    }
    if (tenant == UINT32_MAX || is_past(node, found, tenant)) {
        return false;
    }
    if (record != NULL && record->grant > found->grant) {
        return false;
    }
    if (record != NULL && record->grant < found->grant) {
        yb_node_below_end(node, record);
        record = NULL;
    }
    if (record == NULL &&
        yb_shelf_take(below->shelf, found->hash, found->grant, &record) != YB_OK) {
        return false;
    }
    record->size = found->size;
    record->flush = found->flush;
    record->tenant = (uint16_t)tenant;
    record->flags = found->flags;
    record->replicas = found->replicas;
    record->expires_s = (uint32_t)((found->expires_unix_ms + 999) / 1000);
    record->resident |= (uint8_t)(1u << level->number);
    yb_node_doubt(record, level->number, false);
    if (ghost) {
        yb_node_below_end(node, record);
        return false;
    }
    node->grant_max = found->grant > node->grant_max ? found->grant : node->grant_max;
    below->unclaimed_left = yb_shelf_span(below->shelf);
    return true;
}

static void
on_recovered(void *owner, enum yb_status status)
{
    struct yb_node_level *level = owner;
    struct yb_node *node = level->node;
    struct yb_tier_info info;

    level->recovered = status == YB_OK;
    level->complete = level->complete || level->recovered;
    if (level->recovered && level->again) {
        level->again = false;
        level->recheck_left = yb_shelf_span(node->below->shelf);
    }
    yb_tier_info(level->tier, &info);
    yb_log_info(node->options.log, "node", "a tier has told what it holds",
                yb_log_str("tier", info.name), yb_log_status("status", status),
                yb_log_u64("blocks", info.blocks));
    yb_publisher_wake(node->publisher);
}

/* Whether nobody has the block any more that a tier has lost, and another tier could have. */
static bool
was_last(const struct yb_node_level *level, const struct yb_shelf_record *record)
{
    const struct yb_node *node = level->node;
    const struct yb_block *block = yb_block_granted(node->blocks, record->hash);

    return level->number + 1u < node->below->level_count && record->resident == 0 &&
           record->storing == 0 && (block == NULL || block->grant != record->grant);
}

static void
lose(struct yb_node_level *level, struct yb_shelf_record *record, enum yb_status why)
{
    struct yb_node *node = level->node;
    uint8_t bit = (uint8_t)(1u << level->number);

    yb_node_count(node, YB_NODE_STAT_BELOW_LOST, 1);
    record->resident &= (uint8_t)~bit;
    yb_node_below_withdraw_gone(node, record);
    yb_node_count(node, YB_NODE_STAT_DEMOTE_DROPPED, was_last(level, record) && why == YB_NO_SPACE);
    if (why != YB_NO_SPACE && record->resident == 0 && record->storing == 0) {
        yb_node_below_end(node, record); /* A medium that is away may come back with it. */
        return;
    }
    (void)yb_node_below_forget(node, record);
}

static void
on_tier_lost(void *owner, struct yb_id hash, uint64_t grant, enum yb_status why)
{
    struct yb_node_level *level = owner;
    struct yb_shelf_record *record = yb_shelf_of(level->node->below->shelf, hash, grant);

    if (record != NULL && record->state == YB_SHELF_LIVE &&
        (record->resident >> level->number & 1) != 0) {
        lose(level, record, why);
    }
}

/* A tier that had failed has read all of its medium again: what it has not found is not there. Some
 * records at a time. */
static void
recheck(struct yb_node_level *level)
{
    struct yb_shelf *shelf = level->node->below->shelf;
    uint32_t bit = 1u << level->number;

    for (uint32_t i = 0; i < WALK_STEP && level->recheck_left > 0 && level->recovered; i++) {
        struct yb_shelf_record *record =
            yb_shelf_at(shelf, level->recheck_at++ % yb_shelf_span(shelf));
        struct yb_tier_found found;

        level->recheck_left--;
        if (record->state != YB_SHELF_LIVE || ((record->resident | record->doubt) & bit) == 0 ||
            (yb_tier_find(level->tier, record->hash, &found) && found.grant == record->grant)) {
            continue;
        }
        yb_node_doubt(record, level->number, false);
        if ((record->resident & bit) != 0) {
            lose(level, record, YB_NO_SPACE);
        } else {
            (void)yb_node_below_forget(level->node, record);
        }
    }
}

static bool
on_leaving(void *owner, struct yb_id hash, uint64_t grant)
{
    const struct yb_node_level *level = owner;
    struct yb_node *node = level->node;
    struct yb_shelf_record *record = yb_shelf_of(node->below->shelf, hash, grant);

    return record != NULL && record->state == YB_SHELF_LIVE &&
           yb_node_descend(node, level->number, record);
}

static bool
on_held(void *owner, struct yb_id hash, uint64_t grant)
{
    const struct yb_node_level *level = owner;

    return yb_node_is_held(level->node, hash, grant);
}

static void
on_aside(void *owner, enum yb_status status, const char *why)
{
    struct yb_node_level *level = owner;
    struct yb_tier_info info;

    if (level->foreign || yb_node_claim_waits(level)) {
        return;
    }
    yb_tier_info(level->tier, &info);
    if (status == YB_OK && info.recovering) {
        level->recovered = false;
        level->again = true;
    }
    level->aside = status;
    (void)snprintf(level->why, sizeof(level->why), "%s", why);
    if (status != YB_OK) {
        yb_log_warn(level->node->options.log, "node", "a tier steps aside",
                    yb_log_str("tier", yb_wire_tier_name(level->kind)), yb_log_str("why", why));
    } else {
        yb_node_level_back(level);
        yb_log_info(level->node->options.log, "node", "a tier is back",
                    yb_log_str("tier", yb_wire_tier_name(level->kind)));
    }
}

static const struct yb_tier_events tier_events = {
    .found = on_found,
    .recovered = on_recovered,
    .lost = on_tier_lost,
    .leaving = on_leaving,
    .held = on_held,
    .aside = on_aside,
};

/* ---- what the directory knows ---------------------------------------------------------------- */

void
yb_node_below_registered(struct yb_node *node, bool keep)
{
    struct yb_node_below *below = node->below;

    if (below == NULL) {
        return;
    }
    below->inventoried = below->listed = false;
    for (uint32_t i = 0; i < yb_shelf_span(below->shelf); i++) {
        struct yb_shelf_record *record = yb_shelf_at(below->shelf, i);

        record->told = 0;
        record->claimed = keep ? record->claimed : 0; /* Another life: it has to be asked. */
    }
    yb_node_claim_registered(node);
}

bool
yb_node_below_inventory(struct yb_node *node, uint64_t *cursor, struct yb_publisher_item *item_out)
{
    struct yb_node_below *below = node->below;

    while (below != NULL && *cursor < (uint64_t)yb_shelf_span(below->shelf) * YB_NODE_TIERS_MAX) {
        uint32_t level = (uint32_t)(*cursor % YB_NODE_TIERS_MAX);
        struct yb_shelf_record *record =
            yb_shelf_at(below->shelf, (uint32_t)(*cursor / YB_NODE_TIERS_MAX));

        (*cursor)++;
        if (record->state != YB_SHELF_LIVE || (record->resident >> level & 1) == 0 ||
            (record->told >> level & 1) != 0) {
            continue;
        }
        record->told |= (uint8_t)(1u << level);
        *item_out = (struct yb_publisher_item){
            .wire = {.hash = record->hash,
                     .grant = record->grant,
                     .size = record->size,
                     .flush = record->flush,
                     .mode = YB_WIRE_MODE_INVENTORY,
                     .tier = (uint8_t)below->levels[level].kind,
                     .flags = record->flags,
                     .replicas = record->replicas},
            .tenant = record->tenant,
        };
        return true;
    }
    return false;
}

bool
yb_node_below_finding(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    for (uint32_t i = 0; below != NULL && i < below->level_count; i++) {
        const struct yb_node_level *level = &below->levels[i];

        if (level->kind == YB_WIRE_TIER_SSD && yb_node_level_works(level) && !level->recovered) {
            return true;
        }
    }
    if (below != NULL) {
        below->inventoried = true;
    }
    return false;
}

/* Name what was found since the inventory. */
static void
name_found(struct yb_node *node)
{
    struct yb_node_below *below = node->below;
    uint32_t span = yb_shelf_span(below->shelf);

    if (!node->registered || !below->inventoried) {
        return;
    }
    for (uint32_t i = 0; i < WALK_STEP && below->unclaimed_left > 0; i++) {
        struct yb_shelf_record *record = yb_shelf_at(below->shelf, below->unclaimed_at % span);
        uint8_t missing = record->resident & (uint8_t) ~(record->claimed | record->told);

        if (yb_publisher_room(node->publisher) < PUBLISH_SPARE) {
            return;
        }
        for (uint32_t level = 0; record->state == YB_SHELF_LIVE && level < below->level_count;
             level++) {
            if ((missing >> level & 1) != 0) {
                yb_node_below_publish(node, record, level, YB_WIRE_MODE_INVENTORY);
            }
        }
        below->unclaimed_at = (below->unclaimed_at + 1) % span;
        below->unclaimed_left--;
    }
}

/* When nothing more is to be found, the directory need not look out for it any more. */
static void
say_listed(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    if (!node->registered || !below->inventoried || below->listed || below->unclaimed_left > 0) {
        return;
    }
    for (uint32_t i = 0; i < below->level_count; i++) {
        if (!below->levels[i].recovered) {
            return;
        }
    }
    below->listed = true;
    yb_publisher_listed(node->publisher);
}

void
yb_node_below_answered(struct yb_node *node, const struct yb_publisher_item *item,
                       enum yb_status status)
{
    struct yb_node_below *below = node->below;
    struct yb_shelf_record *record = yb_shelf_of(below->shelf, item->wire.hash, item->wire.grant);
    uint8_t bit = 0;

    for (uint32_t i = 0; i < below->level_count; i++) {
        if (below->levels[i].kind == item->wire.tier) {
            bit = (uint8_t)(1u << i);
        }
    }
    if (item->wire.mode == YB_WIRE_MODE_WITHDRAW || record == NULL ||
        record->state != YB_SHELF_LIVE || (record->told & bit) == 0) {
        return; /* It was ended meanwhile. */
    }
    record->told &= (uint8_t)~bit;
    if (status == YB_OK) {
        record->claimed |= bit;
        return;
    }
    if (status == YB_REFUSED && item->wire.mode == YB_WIRE_MODE_INVENTORY &&
        item->wire.tier == YB_WIRE_TIER_OBJECT) {
        /* We are not believed, but an object store is not ours alone: it stays there. */
        record->resident &= (uint8_t)~bit;
        (void)yb_node_below_forget(node, record);
        return;
    }
    if (status == YB_NO_SPACE) { /* It names so many places already; others may be here. */
        yb_node_below_remove(node, record->hash, record->grant);
        return;
    }
    /* Removed, replaced or flushed before it was named: it may never be found again. */
    yb_node_below_end(node, record);
}

/* Blocks of past flush epochs, and those whose time is over: some at a time. */
static void
sweep(struct yb_node *node)
{
    struct yb_node_below *below = node->below;
    uint32_t span = yb_shelf_span(below->shelf);

    for (uint32_t i = 0; i < WALK_STEP && i < span; i++) {
        struct yb_shelf_record *record = yb_shelf_at(below->shelf, below->sweep_at % span);

        below->sweep_at = (below->sweep_at + 1) % span;
        if (record->state != YB_SHELF_LIVE) {
            continue;
        }
        if (record->flush < node->tenants[record->tenant].flush) {
            yb_node_load_end(node, record); /* The tiers were flushed: nothing is left to kill. */
            if (record->storing == 0) {
                yb_shelf_give(below->shelf, record);
            }
        } else if (record->expires_s != 0 && record->expires_s <= wall_s(node)) {
            yb_node_below_remove(node, record->hash, record->grant);
        }
    }
}

void
yb_node_below_tick(struct yb_node *node)
{
    if (node->below == NULL) {
        return;
    }
    for (uint32_t i = 0; i < node->below->level_count; i++) {
        recheck(&node->below->levels[i]);
    }
    yb_node_claim_tick(node);
    sweep(node);
    name_found(node);
    say_listed(node);
    yb_node_kill_tick(node);
    yb_node_load_tick(node);
    yb_node_demote_tick(node);
    yb_node_descend_tick(node);
}

static const char *const tier_words[] = {"miss", "device", "dram", "ssd", "object"};
const struct yb_stats_label yb_node_label_tier = {
    .name = "tier", .words = tier_words, .count = sizeof(tier_words) / sizeof(tier_words[0])};

/* Let heartbeats say how soon a load would be there: one of the middle class, for readers' classes
 * are not known here. */
static void
show_forecast(struct yb_node *node, const struct yb_node_level *level)
{
    struct yb_member_vitals *vitals = yb_member_vitals(node->member);
    uint32_t at = level->kind == YB_WIRE_TIER_SSD ? YB_MEMBER_SSD : YB_MEMBER_OBJECT;
    struct yb_tier_forecast told = {.base_us = 0};

    if (yb_node_level_works(level)) {
        told = yb_tier_forecast(level->tier, YB_CLASS_THROUGHPUT);
    }
    atomic_store(&vitals->ways[at].backlog, told.backlog_bytes);
    atomic_store(&vitals->ways[at].rate, told.bytes_per_second);
    atomic_store(&vitals->ways[at].base_us,
                 told.base_us < UINT32_MAX ? (uint32_t)told.base_us : UINT32_MAX);
}

void
yb_node_below_show(struct yb_node *node)
{
    for (uint32_t i = 0; node->below != NULL && i < node->below->level_count; i++) {
        const struct yb_node_level *level = &node->below->levels[i];
        struct yb_tier_info info = {.live = 0};

        if (level->tier != NULL) {
            yb_tier_info(level->tier, &info);
        }
        show_forecast(node, level);
        const struct {
            enum yb_node_stat stat;
            uint64_t value;
        } rows[] = {
            {YB_NODE_STAT_TIER_WORKS, yb_node_level_works(level)},
            {YB_NODE_STAT_TIER_BLOCKS, info.blocks},
            {YB_NODE_STAT_TIER_LIVE, info.live},
            {YB_NODE_STAT_TIER_USED, info.used},
            {YB_NODE_STAT_TIER_STORED, info.stored_bytes},
            {YB_NODE_STAT_TIER_WRITTEN, info.written_bytes},
            {YB_NODE_STAT_TIER_READ, info.read_bytes},
            {YB_NODE_STAT_TIER_RECLAIMS, info.reclaims},
            {YB_NODE_STAT_TIER_CORRUPT, info.corrupt},
        };

        for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
            yb_stats_set_at(node->shard, node->stats_first + rows[row].stat, level->kind, 0,
                            (int64_t)rows[row].value);
        }
    }
}

void
yb_node_visit_below(struct yb_node *node,
                    void (*visit)(void *context, uint32_t tier,
                                  const struct yb_node_block_view *block),
                    void *context)
{
    struct yb_node_below *below = node->below;

    if (below == NULL || !yb_node_serving(node)) {
        return;
    }
    for (uint32_t i = 0; i < yb_shelf_span(below->shelf); i++) {
        struct yb_shelf_record *record = yb_shelf_at(below->shelf, i);
        enum yb_status status;

        if (record->state != YB_SHELF_LIVE || yb_node_below_find(node, record->tenant, record->hash,
                                                                 record->grant, &status) == NULL) {
            continue;
        }
        for (uint32_t level = 0; level < below->level_count; level++) {
            struct yb_node_block_view view = {
                .hash = record->hash,
                .grant = record->grant,
                .flush = record->flush,
                .tenant = node->tenants[record->tenant].name,
                .size = record->size,
            };

            if ((record->resident & record->claimed) >> level & 1) {
                visit(context, level, &view);
            }
        }
    }
}

uint32_t
yb_node_tier_infos(const struct yb_node *node,
                   struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX])
{
    uint32_t count = node->below != NULL ? node->below->level_count : 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct yb_node_level *level = &node->below->levels[i];

        infos_out[i] = (struct yb_node_tier_info){.kind = level->kind, .aside = level->aside};
        if (level->aside != YB_OK) {
            (void)snprintf(infos_out[i].why, YB_NODE_WHY_BYTES, "%s", level->why);
        }
    }
    return count;
}

uint64_t
yb_node_below_blocks(const struct yb_node *node)
{
    return node->below != NULL ? yb_shelf_count(node->below->shelf) : 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_node_below_create(struct yb_node *node)
{
    struct yb_node_below *below;
    enum yb_status status;
    uint64_t seed = 0;

    if (node->options.tier_count == 0) {
        return YB_OK;
    }
    if (node->options.tier_count > YB_NODE_TIERS_MAX) {
        return YB_INVALID;
    }
    below = calloc(1, sizeof(*below));
    if (below == NULL) {
        return YB_NO_MEMORY;
    }
    node->below = below;
    below->level_count = node->options.tier_count;
    for (uint32_t i = 0; i < below->level_count; i++) {
        below->levels[i] = (struct yb_node_level){
            .node = node,
            .number = (uint8_t)i,
            .kind = node->options.tiers[i].kind,
            .aside = YB_UNREACHABLE,
        };
        yb_node_claim_init(&below->levels[i]);
    }
    node->options.random(node->options.random_context, &seed, sizeof(seed));
    if (!yb_move_policy_named(node->options.write_policy, &below->policy)) {
        return YB_INVALID;
    }
    for (uint32_t i = 0; i < YB_NODE_LOADS; i++) {
        below->load_free[i] = (uint16_t)(YB_NODE_LOADS - i);
    }
    below->load_free_count = YB_NODE_LOADS;
    for (uint32_t i = 0; i < YB_NODE_KILLS; i++) {
        below->killing[i].node = node;
    }
    for (uint32_t i = 0; i < YB_NODE_FLUSHES; i++) {
        below->flushing[i].node = node;
    }
    if ((status =
             yb_shelf_create(node->options.below_max != 0 ? node->options.below_max : RECORDS_MAX,
                             seed, &below->shelf)) != YB_OK ||
        (status = yb_pool_create("node stores", sizeof(struct yb_node_storing), YB_NODE_STORES,
                                 &below->stores)) != YB_OK ||
        (status = yb_pool_create_sparse("node loads", sizeof(struct yb_node_loading), YB_NODE_LOADS,
                                        &below->loads)) != YB_OK) {
        return status;
    }
    return yb_node_descend_create(node);
}

void
yb_node_level_open(struct yb_node_level *level)
{
    struct yb_node *node = level->node;
    const struct yb_node_tier *maker = &node->options.tiers[level->number];
    const struct yb_node_tier_ground ground = {
        .loop = yb_net_loop(node->net),
        .events = &tier_events,
        .owner = level,
        .why_out = level->why,
        .why_bytes = sizeof(level->why),
    };

    level->aside = maker->open(maker->context, &ground, &level->tier);
    if (level->aside != YB_OK) { /* The node lives on without it. */
        level->tier = NULL;
        yb_log_error(node->options.log, "node", "a tier cannot be opened",
                     yb_log_str("tier", yb_wire_tier_name(level->kind)),
                     yb_log_status("status", level->aside), yb_log_str("why", level->why));
    }
}

void
yb_node_below_start(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    for (uint32_t i = 0; below != NULL && i < below->level_count; i++) {
        if (!yb_node_claim_waits(&below->levels[i])) {
            yb_node_level_open(&below->levels[i]);
        }
    }
}

void
yb_node_below_stop(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    if (below == NULL) {
        return;
    }
    yb_node_load_stop(node);
    yb_node_kill_stop(node);
    yb_node_claim_stop(node);
    for (uint32_t i = 0; i < below->level_count; i++) {
        if (below->levels[i].tier != NULL) {
            yb_tier_stop(below->levels[i].tier);
        }
    }
}

bool
yb_node_below_idle(const struct yb_node *node)
{
    const struct yb_node_below *below = node->below;

    if (below == NULL) {
        return true;
    }
    for (uint32_t i = 0; i < below->level_count; i++) {
        if (below->levels[i].tier != NULL && !yb_tier_idle(below->levels[i].tier)) {
            return false;
        }
    }
    return below->storing == NULL && below->loading == NULL && yb_node_descend_idle(node) &&
           yb_node_kill_idle(node) && yb_node_claim_idle(node);
}

void
yb_node_below_destroy(struct yb_node *node)
{
    struct yb_node_below *below = node->below;

    if (below == NULL) {
        return;
    }
    for (uint32_t i = 0; i < below->level_count; i++) {
        yb_tier_destroy(&below->levels[i].tier);
    }
    if (below->stores != NULL) {
        yb_pool_destroy(&below->stores);
    }
    if (below->loads != NULL) {
        yb_pool_destroy(&below->loads);
    }
    yb_node_descend_destroy(node);
    yb_shelf_destroy(&below->shelf);
    free(below);
    node->below = NULL;
}
