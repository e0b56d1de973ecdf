/* SPDX-License-Identifier: Apache-2.0
 *
 * A node's life: what it is made of, its membership, and what its stream of publications says.
 */
#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "node/node_internal.h"
#include "transfer/near.h"

#define TICK_NS      (10 * YB_NS_PER_MS)
#define BLOCKS_LIMIT (16u * 1024u * 1024u)
#define BODY_MAX     (1024u * 1024u)
#define HIDE_NS      (5 * YB_NS_PER_S)
#define BELOW        (UINT64_C(1) << 63) /* Cursors of the inventory: what lies below DRAM. */

static const struct yb_stats_metric node_stats[] = {YB_NODE_STATS(YB_STATS_ROW)};

void
yb_node_count(struct yb_node *node, enum yb_node_stat stat, uint64_t delta)
{
    yb_stats_add(node->shard, node->stats_first + (uint32_t)stat, delta);
}

void
yb_node_count_status(struct yb_node *node, enum yb_node_stat stat, enum yb_status status)
{
    yb_stats_add_at(node->shard, node->stats_first + (uint32_t)stat, yb_stats_status_index(status),
                    0, 1);
}

void
yb_node_reply(struct yb_node *node, struct yb_request *request, enum yb_status status,
              const void *body, size_t body_bytes)
{
    YB_ASSERT(node->requests > 0);
    node->requests--;
    yb_request_reply(request, status, body, (uint32_t)body_bytes, NULL, 0);
}

/* ---- what the stream of publications says ---------------------------------------------------- */

static struct yb_block *
block_of_item(struct yb_node *node, const struct yb_publisher_item *item)
{
    struct yb_block *block;

    if (item->block == 0 || item->block > yb_block_span(node->blocks)) {
        return NULL;
    }
    block = yb_block_at(node->blocks, item->block - 1);
    if (block->state == YB_BLOCK_FREE || block->state == YB_BLOCK_DOOMED ||
        block->write != item->wire.write || !yb_id_equal(block->hash, item->wire.hash)) {
        return NULL;
    }
    return block;
}

/* The word on a block that came up from below. It is refused if that was ended meanwhile. */
static void
loaded_answered(struct yb_node *node, struct yb_block *block, const struct yb_publisher_item *item,
                enum yb_status status)
{
    if (status != YB_OK && block->grant == item->wire.grant) {
        yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, false);
    }
}

static void
on_answer(void *owner, const struct yb_publisher_item *item,
          const struct yb_wire_grant_answer *answer)
{
    struct yb_node *node = owner;
    struct yb_block *block = block_of_item(node, item);
    bool sole = (answer->flags & YB_WIRE_ANSWER_FLAG_SOLE) != 0;

    if (block == NULL) { /* A withdrawal, or gone meanwhile. */
        yb_node_removal_heard(node, item->removal);
        if (node->below != NULL && item->wire.tier != YB_WIRE_TIER_DRAM) {
            yb_node_below_answered(node, item, (enum yb_status)answer->status);
        }
        return;
    }
    block->published = 0;
    if (block->state == YB_BLOCK_GRANTED && item->wire.mode == YB_WIRE_MODE_ADD_REPLICA) {
        loaded_answered(node, block, item, (enum yb_status)answer->status);
    } else if (item->wire.mode != YB_WIRE_MODE_INVENTORY) {
        yb_node_put_answered(node, block, (enum yb_status)answer->status, answer->grant, sole);
    } else if (block->state == YB_BLOCK_GRANTED && block->grant == item->wire.grant) {
        if (answer->status != YB_OK) { /* Lost against another copy, flushed, removed. */
            yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, false);
        } else if (block->ordered) {
            yb_policy_set_duplicate(yb_node_policy(node, block), &block->policy.entry, !sole);
        }
    }
}

static bool
on_inventory(void *owner, uint64_t *cursor, struct yb_publisher_item *item_out)
{
    struct yb_node *node = owner;
    bool more;

    while (*cursor < BELOW && *cursor < yb_block_span(node->blocks)) {
        struct yb_block *block = yb_block_at(node->blocks, (uint32_t)(*cursor)++);

        if (block->state != YB_BLOCK_GRANTED) {
            continue;
        }
        *item_out = (struct yb_publisher_item){
            .wire = {.hash = block->hash,
                     .grant = block->grant,
                     .write = block->write,
                     .size = block->size,
                     .flush = block->flush,
                     .mode = YB_WIRE_MODE_INVENTORY,
                     .tier = YB_WIRE_TIER_DRAM,
                     .flags = block->flags,
                     .replicas = block->replicas,
                     .parent = block->parent},
            .tenant = block->tenant,
            .block = yb_block_index(node->blocks, block) + 1,
        };
        return true;
    }
    *cursor = *cursor < BELOW ? 0 : *cursor - BELOW;
    more = yb_node_below_inventory(node, cursor, item_out);
    *cursor += BELOW;
    return more;
}

static bool
on_more(void *owner)
{
    return yb_node_below_finding(owner);
}

static uint32_t
on_key(void *owner, const struct yb_publisher_item *item, uint8_t key_out[YB_PUBLISHER_KEY_ROOM])
{
    struct yb_node *node = owner;
    const struct yb_block *block = block_of_item(node, item);

    if (block == NULL) {
        return 0;
    }
    memcpy(key_out, yb_node_key(node, block), block->key_bytes);
    return block->key_bytes;
}

static const char *
tenant_name(void *owner, uint16_t tenant)
{
    struct yb_node *node = owner;

    return tenant < node->tenant_count ? node->tenants[tenant].name : "default";
}

static void
on_fenced(void *owner, enum yb_status status)
{
    struct yb_node *node = owner;

    yb_log_warn(node->options.log, "node", "the directory refuses our stream",
                yb_log_status("status", status));
    yb_member_fenced(node->member);
}

static const struct yb_publisher_events publisher_events = {
    .on_answer = on_answer,
    .on_inventory = on_inventory,
    .on_more = on_more,
    .on_key = on_key,
    .tenant_name = tenant_name,
    .on_fenced = on_fenced,
};

/* ---- membership ----------------------------------------------------------------------------- */

static void
on_tenants(void *owner, uint64_t version, const struct yb_wire_tenant_state_list *tenants)
{
    struct yb_node *node = owner;

    for (uint32_t i = 0; i < tenants->count; i++) {
        struct yb_wire_tenant_state state;
        char name[65] = {0};
        uint32_t tenant;

        yb_wire_tenant_state_at(tenants, i, &state);
        memcpy(name, state.tenant, sizeof(state.tenant));
        tenant = yb_node_tenant(node, name);
        if (tenant != UINT32_MAX) {
            node->tenants[tenant].credit = state.credit;
            if (state.credit != UINT64_MAX) {
                yb_node_limit(node, tenant);
            }
            (void)yb_node_flush(node, tenant, state.flush);
        }
    }
    node->flush_version = version;
    atomic_store(&yb_member_vitals(node->member)->flush_version, version);
}

/* What is granted may not be named any more: a dead life's blocks never come back (RULES A5). */
static void
drop_granted(struct yb_node *node)
{
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_GRANTED) {
            yb_node_doom(node, block, YB_WIRE_FATE_SLOT_LOST, false);
        }
    }
}

/* Nothing of another cluster means anything in this one: not its blocks, hashed under another seed,
 * nor its grants and flush epochs. */
static void
forget_cluster(struct yb_node *node)
{
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state == YB_BLOCK_COMMITTED && block->put != NULL) {
            yb_node_put_answered(node, block, YB_FENCED, 0, false);
        } else if (block->state == YB_BLOCK_COMMITTED) {
            yb_node_discard(node, block);
        }
    }
    for (uint32_t i = 0; i < node->tenant_count; i++) {
        node->tenants[i].flush = 0;
        node->tenants[i].flushed = 0;
        node->tenants[i].credit = UINT64_MAX;
    }
    node->grant_max = 0;
    node->cluster++;
}

/* Blocks that wait for a grant go to the new stream. So do those that nobody waits for any more:
 * others may have been told that they are there. */
static void
republish(struct yb_node *node, bool died)
{
    for (uint32_t i = 0; i < yb_block_span(node->blocks); i++) {
        struct yb_block *block = yb_block_at(node->blocks, i);

        if (block->state != YB_BLOCK_COMMITTED) {
            continue;
        }
        block->published = 0;
        if (block->flush < node->tenants[block->tenant].flush || block->dropped != 0 ||
            (died && block->told)) {
            /* Flushed; or what was granted and ended again, by an order or because we were dead,
             * may have been this very block, of which another directory knows nothing, and this
             * one after a while: granted once more it would be back (B5). */
            yb_node_put_answered(node, block, block->told ? YB_IN_DOUBT : YB_STALE, 0, false);
        } else if (yb_node_publish(node, block) != YB_OK) {
            yb_node_put_answered(node, block, block->told ? YB_IN_DOUBT : YB_AGAIN, 0, false);
        }
    }
}

static void
on_registered(void *owner, const struct yb_member_registration *registration)
{
    struct yb_node *node = owner;
    bool died = !registration->keep;
    bool same_seed = node->has_seed && memcmp(node->seed, registration->seed, 16) == 0;
    struct yb_publisher_stream stream = {
        .net = node->net,
        .peer = yb_member_directory(node->member),
        .incarnation = registration->incarnation,
        .epoch = registration->epoch,
        .slot = registration->slot,
        .keys = registration->want_keys,
    };

    if (!registration->keep || !same_seed) {
        drop_granted(node);
    }
    if (!same_seed && node->has_seed) {
        forget_cluster(node);
    }
    memcpy(node->seed, registration->seed, sizeof(node->seed));
    node->has_seed = true;
    node->cluster_id = registration->cluster;
    node->incarnation = registration->incarnation;
    node->epoch = registration->epoch;
    node->slot = registration->slot;
    node->want_keys = registration->want_keys;
    node->slot_state = YB_WIRE_SLOT_STATE_SERVING;
    on_tenants(node, registration->flush_version, &registration->tenants);
    yb_node_below_registered(node, registration->keep && same_seed);
    node->registered = true;
    yb_publisher_begin(node->publisher, &stream);
    republish(node, died);
    yb_node_count(node, YB_NODE_STAT_REGISTERED, 1);
    yb_log_info(node->options.log, "node", "registered", yb_log_u64("slot", node->slot),
                yb_log_u64("incarnation", node->incarnation),
                yb_log_u64("blocks", node->granted_count));
}

static void
end_stream(struct yb_node *node)
{
    struct yb_publisher_item item;

    node->registered = false;
    yb_publisher_end(node->publisher);
    while (yb_publisher_take(node->publisher, &item)) {
        /* Blocks that wait for grants are found again in the table; withdrawals are said by the
         * next inventory. */
    }
    yb_node_removals_end(node);
}

static void
on_lost(void *owner)
{
    struct yb_node *node = owner;

    end_stream(node);
    yb_log_warn(node->options.log, "node", "membership lost", yb_log_u64("slot", node->slot));
}

static void
on_state(void *owner, uint8_t state)
{
    struct yb_node *node = owner;

    node->slot_state = state;
}

static uint64_t
grant_max(void *owner)
{
    return ((struct yb_node *)owner)->grant_max;
}

static const struct yb_member_events member_events = {
    .on_registered = on_registered,
    .on_lost = on_lost,
    .on_tenants = on_tenants,
    .on_state = on_state,
    .grant_max = grant_max,
};

/* ---- the tick ------------------------------------------------------------------------------- */

static void
on_tick(struct yb_timer *timer)
{
    struct yb_node *node = (struct yb_node *)((uint8_t *)timer - offsetof(struct yb_node, tick));

    yb_node_sweep(node);
    yb_node_evict_tick(node);
    yb_node_put_tick(node, false);
    yb_node_pin_tick(node, false);
    yb_node_watch_tick(node, false);
    yb_node_pull_tick(node);
    yb_node_below_tick(node);
    yb_node_show_vitals(node);
    yb_loop_arm(yb_net_loop(node->net), timer, yb_node_now(node) + TICK_NS);
}

/* ---- life ----------------------------------------------------------------------------------- */

#define CLIENTS   (YB_ROLE_BIT(YB_WIRE_ROLE_CLIENT) | YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN))
#define DIRECTORY (YB_ROLE_BIT(YB_WIRE_ROLE_DIRECTORY) | YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN))
#define NODES     (YB_ROLE_BIT(YB_WIRE_ROLE_NODE) | YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN))

#define METHOD(type_, name_, roles_, mutates_, handle_, ...)                                \
    {                                                                                       \
        .type = YB_WIRE_NODE_TYPE_##type_, .name = (name_), .roles = (roles_),              \
        .mutates = (mutates_), .body_bytes_max = BODY_MAX, .handle = (handle_), __VA_ARGS__ \
    }

static const struct yb_method methods[] = {
    METHOD(PUT, "put", CLIENTS, true, yb_node_put_handle, .place = yb_node_put_place,
           .abort = yb_node_put_abort),
    METHOD(PUT_PULL, "put_pull", CLIENTS, true, yb_node_put_pull_handle, ),
    METHOD(GET, "get", CLIENTS, false, yb_node_get_handle, ),
    METHOD(PIN, "pin", CLIENTS, false, yb_node_pin_handle, ),
    METHOD(RELEASE, "release", CLIENTS, false, yb_node_release_handle, ),
    METHOD(DROP, "drop", DIRECTORY, false, yb_node_drop_handle, ),
    METHOD(FLUSH, "flush", DIRECTORY, false, yb_node_flush_handle, ),
    METHOD(HOLD, "hold", DIRECTORY, false, yb_node_hold_handle, ),
    METHOD(COPY, "copy", DIRECTORY, true, yb_node_copy_handle, ),
    METHOD(INSTRUCT, "instruct", YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN), false, yb_node_instruct_handle, ),
    METHOD(INSTRUCT_WATCH, "instruct_watch", YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN), false,
           yb_node_instruct_watch_handle, ),
    METHOD(FETCH_BLOCK, "fetch_block", NODES, false, yb_node_fetch_block_handle, ),
    METHOD(LIST, "list", CLIENTS, false, yb_node_list_handle, ),
    METHOD(REMOVE_UNHELD, "remove_unheld", CLIENTS, true, yb_node_remove_unheld_handle, ),
    METHOD(NODE_STAT, "node_stat", YB_ROLE_ANY, false, yb_node_stat_handle, ),
    METHOD(NODE_CHECK, "node_check", YB_ROLE_BIT(YB_WIRE_ROLE_ADMIN), false,
           yb_node_check_handle, ),
    METHOD(TIER_STAT, "tier_stat", YB_ROLE_ANY, false, yb_node_tier_stat_handle, ),
    METHOD(BLOCK_STAT, "block_stat", CLIENTS, false, yb_node_block_stat_handle, ),
    METHOD(LEAVE, "leave", CLIENTS, false, yb_node_leave_handle, ),
    METHOD(WATCH, "watch", CLIENTS, false, yb_node_watch_handle, ),
};

static enum yb_status
copy_strings(struct yb_node *node)
{
    const char **strings[] = {&node->options.name,        &node->options.address,
                              &node->options.rack,        &node->options.zone,
                              &node->options.policy,      &node->options.engine_address,
                              &node->options.write_policy};

    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        node->strings[i] = strdup(*strings[i] != NULL ? *strings[i] : "");
        if (node->strings[i] == NULL) {
            return YB_NO_MEMORY;
        }
        *strings[i] = node->strings[i];
    }
    return YB_OK;
}

static void
set_defaults(struct yb_node_options *options)
{
    options->policy = options->policy != NULL ? options->policy : "s3fifo";
    options->high_permille = options->high_permille != 0 ? options->high_permille : 950;
    options->low_permille = options->low_permille != 0 ? options->low_permille : 900;
    if (options->low_permille > options->high_permille) { /* Nothing goes that is below both. */
        options->low_permille = options->high_permille;
    }
    options->ungranted_permille =
        options->ungranted_permille != 0 ? options->ungranted_permille : 250;
    options->pinned_permille = options->pinned_permille != 0 ? options->pinned_permille : 250;
    options->pin_max_ms = options->pin_max_ms != 0 ? options->pin_max_ms : 5000;
    options->write_policy = options->write_policy != NULL ? options->write_policy : "through";
    options->write_accesses = options->write_accesses != 0 ? options->write_accesses : 2;
    if (options->blocks_max == 0) {
        uint64_t blocks = options->pool_bytes / 4096 + 1024;

        options->blocks_max = blocks < BLOCKS_LIMIT ? (uint32_t)blocks : BLOCKS_LIMIT;
    }
}

static enum yb_status
create_tables(struct yb_node *node)
{
    struct yb_policy_options policy = {.name = node->options.policy,
                                       .ghost_count = node->options.blocks_max};
    uint64_t table_seed = 0;
    enum yb_status status;

    node->options.random(node->options.random_context, &table_seed, sizeof(table_seed));
    node->tenants = calloc(YB_TENANTS_MAX, sizeof(*node->tenants));
    node->ghosts = calloc(YB_NODE_GHOSTS, sizeof(*node->ghosts));
    node->groups = calloc(YB_NODE_GROUPS, sizeof(*node->groups));
    node->sink = malloc(YB_NODE_SINK_BYTES);
    node->scratch = malloc(YB_NODE_SCRATCH_BYTES);
    node->keys = malloc(YB_NODE_KEYS_BYTES);
    if (node->tenants == NULL || node->ghosts == NULL || node->groups == NULL ||
        node->sink == NULL || node->scratch == NULL || node->keys == NULL) {
        return YB_NO_MEMORY;
    }
    if ((status = yb_block_table_create(node->options.blocks_max, table_seed, &node->blocks)) !=
            YB_OK ||
        (status = yb_policy_create(&policy, &node->policy)) != YB_OK ||
        (status = yb_publisher_create(&publisher_events, node, &node->publisher)) != YB_OK ||
        (status = yb_pool_create("node puts", sizeof(struct yb_node_put), YB_NODE_PUTS,
                                 &node->puts)) != YB_OK ||
        (status = yb_pool_create("node reads", sizeof(struct yb_node_read), YB_NODE_READS,
                                 &node->reads)) != YB_OK ||
        (status = yb_node_loans_create(node)) != YB_OK ||
        (status = yb_node_watch_create(node)) != YB_OK ||
        (status = yb_node_pulls_create(node)) != YB_OK ||
        (status = yb_node_copies_create(node)) != YB_OK ||
        (status = yb_node_instructions_create(node)) != YB_OK ||
        (status = yb_node_below_create(node)) != YB_OK) {
        return status;
    }
    return YB_OK;
}

/* What a directory has leased of a tenant's quota to this node. */
static bool
admit(void *context, uint32_t tenant, uint64_t used_bytes)
{
    const struct yb_node *node = context;

    return used_bytes <= node->tenants[tenant].credit;
}

static enum yb_status
create_pool(struct yb_node *node, char *why_out, size_t why_bytes)
{
    struct yb_dram_pool_options pool = {
        .capacity = node->options.pool_bytes,
        .pending_permille = node->options.ungranted_permille,
        .tenant_count = YB_TENANTS_MAX,
        .admit = admit,
        .admit_context = node,
        .borrowed = node->options.pool_memory != NULL,
        .base = node->options.pool_memory,
        .huge = node->options.huge_pages,
        .numa_node = node->options.numa_node,
        .label = node->options.pool_label,
    };

    enum yb_status status = yb_dram_pool_create(&pool, &node->pool, why_out, (uint32_t)why_bytes);

    if (status != YB_OK) {
        return status;
    }
    return yb_policy_marks_init(&node->marks, yb_dram_info(node->pool).allocator.capacity,
                                node->options.high_permille, node->options.low_permille);
}

/* Let peers of the engine read the pool. Nobody but this process ever writes it. */
static enum yb_status
show_pool(struct yb_node *node)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .access = YB_TRANSFER_MAY_READ,
    };
    const struct yb_shared *shared = yb_dram_shared(node->pool);
    enum yb_status status;
    uint64_t region;

    if (node->options.engine == NULL) {
        return YB_OK;
    }
    if (shared != NULL) {
        node->region_base = yb_shared_info(shared).base;
        status = yb_transfer_register_shared(node->options.engine, shared, YB_TRANSFER_MAY_READ,
                                             &region);
    } else {
        node->region_base = node->options.pool_memory;
        status = yb_transfer_register(node->options.engine, node->options.pool_memory,
                                      node->options.pool_bytes, &memory, &region);
    }
    node->region = status == YB_OK ? region : 0;
    return status;
}

/* Let nobody read the pool any more. */
static void
hide_pool(struct yb_node *node)
{
    void *base = (void *)(uintptr_t)node->region_base;

    while (node->region != 0 &&
           yb_transfer_unregister(node->options.engine, base, HIDE_NS) == YB_BUSY) {
        yb_log_warn(node->options.log, "node", "the pool is still being read",
                    yb_log_u64("waited_ms", HIDE_NS / YB_NS_PER_MS));
    }
    node->region = 0;
}

static enum yb_status
create_member(struct yb_node *node)
{
    struct yb_member_facts facts = {
        .name = node->options.name,
        .address = node->options.address,
        .data_address = node->options.engine_address,
        .rack = node->options.rack,
        .zone = node->options.zone,
        .host = node->options.host,
        .capacity = node->options.pool_bytes,
        .huge_bytes = yb_dram_info(node->pool).huge_bytes,
        .directory = node->options.directory,
        .keeps = node->options.tier_count > 0,
    };

    return yb_member_create(&facts, &member_events, node, &node->member);
}

enum yb_status
yb_node_create(const struct yb_node_options *options, struct yb_node **node_out, char *why_out,
               size_t why_bytes)
{
    struct yb_node *node = calloc(1, sizeof(*node));
    enum yb_status status;

    why_out[0] = '\0';
    if (node == NULL) {
        return YB_NO_MEMORY;
    }
    node->magic = YB_NODE_MAGIC;
    node->options = *options;
    set_defaults(&node->options);
    node->service = (struct yb_service){
        .methods = methods, .method_count = sizeof(methods) / sizeof(methods[0]), .owner = node};
    yb_timer_init(&node->tick, on_tick);
    if ((status = copy_strings(node)) != YB_OK || (status = create_tables(node)) != YB_OK ||
        (status = create_pool(node, why_out, why_bytes)) != YB_OK ||
        (status = show_pool(node)) != YB_OK || (status = create_member(node)) != YB_OK) {
        goto err_destroy;
    }
    if (options->stats != NULL &&
        ((status = yb_stats_register(options->stats, "node", node_stats, YB_NODE_STAT_COUNT,
                                     &node->stats_first)) != YB_OK ||
         (status = yb_stats_shard_take(options->stats, &node->shard)) != YB_OK)) {
        goto err_destroy;
    }
    *node_out = node;
    return YB_OK;

err_destroy:
    if (why_out[0] == '\0') {
        (void)snprintf(why_out, why_bytes,
                       "the node \"%s\" cannot be made: %s; look at its name (63 characters), its "
                       "eviction policy and its sizes",
                       options->name, yb_status_text(status));
    }
    yb_node_destroy(&node);
    return status;
}

const struct yb_service *
yb_node_service(struct yb_node *node)
{
    return &node->service;
}

void
yb_node_set_address(struct yb_node *node, const char *address)
{
    YB_ASSERT(node->net == NULL && strlen(address) < sizeof(node->address));
    (void)snprintf(node->address, sizeof(node->address), "%s", address);
    yb_member_set_address(node->member, node->address);
}

void
yb_node_set_name(struct yb_node *node, const char *name)
{
    YB_ASSERT(node->net == NULL && strlen(name) < sizeof(node->name));
    (void)snprintf(node->name, sizeof(node->name), "%s", name);
    yb_member_set_name(node->member, node->name);
}

enum yb_status
yb_node_start(struct yb_node *node, struct yb_net *net, struct yb_net *heart)
{
    enum yb_status status;

    YB_ASSERT(node->magic == YB_NODE_MAGIC && node->net == NULL);
    node->net = net;
    status = yb_member_start(node->member, net, heart);
    if (status != YB_OK) {
        node->net = NULL;
        return status;
    }
    yb_node_below_start(node);
    yb_node_show_vitals(node);
    yb_loop_arm(yb_net_loop(net), &node->tick, yb_node_now(node) + TICK_NS);
    return YB_OK;
}

void
yb_node_leave(struct yb_node *node)
{
    if (node->net != NULL && !node->stopping) {
        node->leaving = true;
        yb_node_watch_tick(node, true);
    }
}

void
yb_node_stop(struct yb_node *node)
{
    if (node->net == NULL || node->stopping) {
        return;
    }
    node->stopping = true;
    yb_loop_disarm(yb_net_loop(node->net), &node->tick);
    end_stream(node);
    yb_node_put_tick(node, true);
    yb_node_pin_tick(node, true);
    yb_node_watch_tick(node, true);
    yb_node_instructions_stop(node);
    yb_node_copies_stop(node);
    yb_node_below_stop(node);
    yb_member_stop(node->member);
}

bool
yb_node_idle(const struct yb_node *node)
{
    struct yb_pool_counts reads;

    yb_pool_counts(node->reads, &reads);
    return node->net == NULL ||
           (node->stopping && yb_member_idle(node->member) && yb_publisher_idle(node->publisher) &&
            yb_node_copies_idle(node) && yb_node_below_idle(node) && node->requests == 0 &&
            reads.in_use == 0);
}

void
yb_node_destroy(struct yb_node **node_in)
{
    struct yb_node *node = *node_in;

    if (node == NULL) {
        return;
    }
    YB_ASSERT(node->magic == YB_NODE_MAGIC);
    YB_ASSERT(node->reads == NULL || yb_node_idle(node));
    node->magic = 0;
    yb_node_below_destroy(node);
    yb_policy_destroy(&node->policy);
    for (uint32_t i = 0; i < node->limited_count; i++) {
        yb_policy_destroy(&node->tenants[node->limited[i]].policy);
    }
    if (node->blocks != NULL && node->pool != NULL) {
        yb_node_free_blocks(node);
    }
    hide_pool(node);
    yb_node_pulls_destroy(node);
    yb_node_instructions_destroy(node);
    yb_node_copies_destroy(node);
    yb_node_watch_destroy(node);
    yb_node_loans_destroy(node);
    yb_member_destroy(&node->member);
    yb_publisher_destroy(&node->publisher);
    yb_dram_pool_destroy(&node->pool);
    yb_block_table_destroy(&node->blocks);
    if (node->reads != NULL) {
        yb_pool_destroy(&node->reads);
    }
    if (node->puts != NULL) {
        yb_pool_destroy(&node->puts);
    }
    if (node->shard != NULL) {
        yb_stats_shard_release(&node->shard);
    }
    free(node->keys);
    free(node->scratch);
    free(node->sink);
    free(node->ghosts);
    free(node->groups);
    free(node->tenants);
    for (size_t i = 0; i < sizeof(node->strings) / sizeof(node->strings[0]); i++) {
        free(node->strings[i]);
    }
    free(node);
    *node_in = NULL;
}
