/* SPDX-License-Identifier: Apache-2.0
 *
 * From below into DRAM: loads, whoever joins them, and requests that wait for them.
 *
 *     request --> everything is in DRAM: answered at once, in the same call
 *            \--> something lies below: a load for each, joined by all who want it;
 *                 after the last of them the request is handled as if it came now
 *
 * A load takes the highest class and the earliest deadline of those who wait for it. One that
 * leaves, by its own word, its deadline or the end of its connection, takes its wish along, and
 * when nobody is left the load is cancelled (RULES C5). A load that its earliest deadline ended, or
 * that somebody joined after it was cancelled, is begun again. What came up is a granted block like
 * any other, and the directory is told that it is in memory, too. The memory that it comes to is
 * given back when the tier has said that it is quiet.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/node_below.h"

/* A request that waits. */
struct yb_node_wait {
    struct yb_node_wait *next;
    struct yb_node_wait *previous;
    struct yb_node_wait *place_next; /* Of those whose tickets share a place. */
    struct yb_node_wait **place_link;
    struct yb_node *node;
    struct yb_request *request;
    void (*resume)(void *service, struct yb_request *request);
    uint64_t ticket; /* By which its sender may leave. */
    uint32_t count;  /* Items of the request. */
    uint32_t left;   /* Loads that it waits for. */
    struct yb_node_wait_item {
        struct yb_node_join join; /* First. */
        struct yb_node_wait *wait;
        struct yb_block *block; /* Came up, pinned until the request is answered. */
        int32_t status;
    } items[]; /* Then the request's body. */
};

static enum yb_status start(struct yb_node_loading *loading);

/* ---- loads ----------------------------------------------------------------------------------- */

static struct yb_shelf_record *
record_of(const struct yb_node_loading *loading)
{
    return yb_shelf_at(loading->node->below->shelf, loading->record);
}

static void
loading_free(struct yb_node_loading *loading)
{
    struct yb_node_below *below = loading->node->below;

    yb_fair_fini(&loading->joins);
    if (loading->block != NULL) {
        below->loading_bytes -= loading->block->extent.length;
        yb_node_discard(loading->node, loading->block);
    }
    if (loading->previous != NULL) {
        loading->previous->next = loading->next;
    } else {
        below->loading = loading->next;
    }
    if (loading->next != NULL) {
        loading->next->previous = loading->previous;
    }
    below->load_of[loading->number] = NULL;
    below->load_free[below->load_free_count++] = loading->number;
    yb_pool_give(below->loads, loading);
}

static bool
is_awaited(const struct yb_node_loading *loading)
{
    return yb_fair_peek(&loading->joins) != NULL;
}

/* End every join, the most urgent one first. */
static void
tell_joins(struct yb_node_loading *loading, enum yb_status status, struct yb_block *block)
{
    struct yb_fair_item *wish;

    while ((wish = yb_fair_pop(&loading->joins)) != NULL) {
        struct yb_node_join *join = (struct yb_node_join *)wish;

        join->loading = NULL;
        join->tier = (uint8_t)loading->node->below->levels[loading->level].kind;
        if (block != NULL) {
            yb_node_pin(loading->node, block);
        }
        join->done(join, status, block);
    }
}

/* Whoever has no time left. */
static void
tell_late(struct yb_node_loading *loading)
{
    uint64_t now_ns = yb_node_now(loading->node);

    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        struct yb_fair_item *wish;

        while ((wish = yb_fair_earliest(&loading->joins, (enum yb_class)c)) != NULL &&
               wish->deadline_ns <= now_ns) {
            struct yb_node_join *join = (struct yb_node_join *)wish;

            yb_fair_remove(&loading->joins, wish);
            join->loading = NULL;
            join->done(join, YB_TIMED_OUT, NULL);
        }
    }
}

/* Return whether all who wait together wish for anything else than the load was asked for; the load
 * is asked for that then. */
static bool
combine(struct yb_node_loading *loading)
{
    struct yb_tier_op *op = &loading->load.op;
    enum yb_class traffic_class = YB_CLASS_BACKGROUND;
    uint64_t deadline_ns = YB_NEVER;
    bool changed;

    for (uint32_t c = YB_CLASS_COUNT; c > 0; c--) {
        const struct yb_fair_item *wish = yb_fair_earliest(&loading->joins, (enum yb_class)(c - 1));

        if (wish != NULL) {
            traffic_class = wish->traffic_class;
            deadline_ns = wish->deadline_ns < deadline_ns ? wish->deadline_ns : deadline_ns;
        }
    }
    changed = op->traffic_class != traffic_class || op->deadline_ns != deadline_ns;
    op->traffic_class = traffic_class;
    op->deadline_ns = deadline_ns;
    return changed;
}

/* Somebody has joined, or left. */
static void
urge(struct yb_node_loading *loading)
{
    struct yb_tier_op *op = &loading->load.op;

    if (combine(loading)) {
        yb_tier_urge(loading->node->below->levels[loading->level].tier, op, op->traffic_class,
                     op->deadline_ns);
    }
}

/* Return how long it took, at least 1: it is what the block would cost again. */
static uint32_t
cost_us(const struct yb_node_loading *loading)
{
    uint64_t us = (yb_node_now(loading->node) - loading->began_ns) / YB_NS_PER_US + 1;

    return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

/* How long a load of so many bytes will take. */
static uint64_t
forecast_ns(struct yb_tier *tier, enum yb_class traffic_class, uint64_t bytes)
{
    struct yb_tier_forecast told = yb_tier_forecast(tier, traffic_class);
    double ns = (double)told.base_us * (double)YB_NS_PER_US;

    if (told.bytes_per_second != 0) {
        ns += (double)(told.backlog_bytes + bytes) * 1e9 / (double)told.bytes_per_second;
    }
    return (uint64_t)ns;
}

static void
count_time(const struct yb_node_loading *loading)
{
    const struct yb_node *node = loading->node;
    uint32_t tier = node->below->levels[loading->level].kind;
    uint64_t took_ns = yb_node_now(node) - loading->asked_ns;

    yb_stats_observe_at(node->shard, node->stats_first + YB_NODE_STAT_LOAD_TIME, tier, 0, took_ns);
    yb_stats_add_at(node->shard, node->stats_first + YB_NODE_STAT_LOAD_TOOK, tier, 0, took_ns);
    yb_stats_add_at(node->shard, node->stats_first + YB_NODE_STAT_LOAD_SAID, tier, 0,
                    loading->said_ns);
}

/* What came up is granted: make it a block. Returns it, or NULL with *status_out. */
static struct yb_block *
land(struct yb_node_loading *loading, enum yb_status *status_out)
{
    struct yb_node *node = loading->node;
    const struct yb_tier_record *record = &loading->load.record_out;
    struct yb_block *block = loading->block;
    const struct yb_block *other = yb_block_granted(node->blocks, block->hash);

    if (other != NULL || block->flush < node->tenants[block->tenant].flush) {
        *status_out = YB_STALE; /* Something newer has come meanwhile. */
        return NULL;
    }
    block->flags = record->flags;
    block->group = record->group;
    block->parent = record->parent;
    block->replicas = record->replicas;
    if (record->expires_unix_ms != 0) {
        uint64_t wall_ms = yb_clock_wall(yb_loop_clock(yb_net_loop(node->net))) / YB_NS_PER_MS;

        if (record->expires_unix_ms <= wall_ms) {
            *status_out = YB_NOT_FOUND;
            return NULL;
        }
        block->expires_ns = yb_node_now(node) + (record->expires_unix_ms - wall_ms) * YB_NS_PER_MS;
    }
    *status_out = yb_node_commit(node, block);
    if (*status_out != YB_OK) {
        return NULL;
    }
    node->below->loading_bytes -= block->extent.length;
    loading->block = NULL;
    block->loaded = 1;
    block->refetch_us = cost_us(loading);
    yb_node_grant(node, block, loading->load.grant, false);
    yb_node_join_others(node, block);
    yb_node_publish_loaded(node, block);
    yb_node_count(node, YB_NODE_STAT_LOADED, 1);
    yb_node_count(node, YB_NODE_STAT_LOADED_BYTES, block->size);
    return block;
}

static void
on_loaded(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_node_loading *loading = (struct yb_node_loading *)op;
    struct yb_node *node = loading->node;
    struct yb_block *block = NULL;

    if (loading->over) { /* Its record is not ours to look at any more. */
        tell_joins(loading, YB_NOT_FOUND, NULL);
        loading_free(loading);
        return;
    }
    if (status == YB_OK) {
        count_time(loading);
        block = land(loading, &status);
    } else if (!node->stopping) {
        if (status == YB_TIMED_OUT) { /* The time of the most hurried one. */
            tell_late(loading);
        }
        if (status == YB_TIMED_OUT || status == YB_CANCELLED) {
            loading->tried = 0; /* No tier's fault: whoever has joined since finds it there. */
        } else if (status != YB_NOT_FOUND) { /* What is about to be lost is found no more. */
            yb_node_count_status(node, YB_NODE_STAT_LOADS_FAILED, status);
        }
        yb_node_count(node, YB_NODE_STAT_LOADS_CANCELLED,
                      status == YB_CANCELLED && !is_awaited(loading));
        if (is_awaited(loading) && start(loading) == YB_OK) {
            return;
        }
    }
    record_of(loading)->loading = 0;
    if (block != NULL) {
        yb_node_pin(node, block); /* Until everybody was told. */
    }
    tell_joins(loading, status, block);
    if (block != NULL) {
        yb_node_unpin(node, block);
    }
    loading_free(loading);
}

/* Ask the next tier that has it. NOT_FOUND: there is none left. */
static enum yb_status
start(struct yb_node_loading *loading)
{
    struct yb_node *node = loading->node;
    const struct yb_shelf_record *record = record_of(loading);
    struct yb_node_below *below = node->below;
    enum yb_status status = YB_NOT_FOUND;

    for (uint32_t i = 0; i < below->level_count && status != YB_OK; i++) {
        struct yb_node_level *level = &below->levels[i];

        if ((record->resident >> i & 1) == 0 || (loading->tried >> i & 1) != 0 ||
            !yb_node_level_reads(level)) {
            continue;
        }
        loading->tried |= (uint8_t)(1u << i);
        loading->level = (uint8_t)i;
        (void)combine(loading);
        loading->asked_ns = yb_node_now(node);
        loading->said_ns =
            forecast_ns(level->tier, loading->load.op.traffic_class, loading->load.length);
        status = yb_tier_load(level->tier, &loading->load);
        status = status == YB_AGAIN ? YB_NOT_READY : status;
    }
    return status;
}

/* Take what a load needs: its record, and the memory that it comes to. */
static enum yb_status
loading_take(struct yb_node *node, struct yb_shelf_record *record, const struct yb_node_name *name,
             struct yb_node_loading **loading_out)
{
    static const struct yb_fair_options preference = {.cost_bytes_max = 1};
    struct yb_node_below *below = node->below;
    struct yb_node_intake intake = {
        .hash = record->hash,
        .size = record->size,
        .flush = record->flush,
        .key = name->key,
        .key_bytes = name->key_bytes,
        .tenant = record->tenant,
        .flags = record->flags,
        .mode = YB_WIRE_MODE_ADD_REPLICA,
        .replicas = record->replicas,
    };
    struct yb_node_loading *loading;
    struct yb_block *block;
    void *taken;

    /* What comes up is not evictable until it is there: it may not fill the pool. */
    if ((below->loading_bytes > 0 &&
         below->loading_bytes + record->size > node->options.pool_bytes / 4) ||
        yb_pool_take(below->loads, &taken) != YB_OK) {
        return YB_NOT_READY;
    }
    if (yb_node_take_in(node, &intake, &block) != YB_OK) {
        yb_pool_give(below->loads, taken);
        return YB_NOT_READY;
    }
    loading = taken;
    *loading = (struct yb_node_loading){
        .load = {.op = {.done = on_loaded},
                 .hash = record->hash,
                 .grant = record->grant,
                 .key = yb_node_key(node, block),
                 .key_bytes = name->key_bytes,
                 .length = record->size,
                 .iov = &loading->iov,
                 .iov_count = 1},
        .node = node,
        .block = block,
        .began_ns = yb_node_now(node),
        .record = yb_shelf_index(below->shelf, record),
        .number = below->load_free[--below->load_free_count],
        .iov = {.iov_base = yb_dram_bytes(node->pool, &block->extent),
                .iov_len = (size_t)record->size},
        .next = below->loading,
    };
    YB_ASSERT(yb_fair_init(&loading->joins, &preference) == YB_OK);
    if (below->loading != NULL) {
        below->loading->previous = loading;
    }
    below->loading = loading;
    below->load_of[loading->number] = loading;
    below->loading_bytes += block->extent.length;
    *loading_out = loading;
    return YB_OK;
}

enum yb_status
yb_node_load(struct yb_node *node, struct yb_shelf_record *record, const struct yb_node_name *name,
             struct yb_node_join *join)
{
    struct yb_node_loading *loading;
    enum yb_status status;

    if (record->loading != 0) {
        loading = node->below->load_of[record->loading];
        if (loading->load.key_bytes != name->key_bytes ||
            memcmp(loading->load.key, name->key, name->key_bytes) != 0) {
            return YB_NOT_FOUND; /* Another key of the same hash. */
        }
        join->loading = loading;
        yb_fair_push(&loading->joins, &join->wish);
        urge(loading);
        yb_node_count(node, YB_NODE_STAT_JOINED, 1);
        return YB_OK;
    }
    status = loading_take(node, record, name, &loading);
    if (status != YB_OK) {
        return status;
    }
    join->loading = loading;
    yb_fair_push(&loading->joins, &join->wish);
    status = start(loading);
    if (status != YB_OK) {
        yb_fair_remove(&loading->joins, &join->wish);
        join->loading = NULL;
        loading_free(loading);
        return status;
    }
    record->loading = loading->number;
    return YB_OK;
}

void
yb_node_load_leave(struct yb_node *node, struct yb_node_join *join)
{
    struct yb_node_loading *loading = join->loading;

    if (loading == NULL) {
        return;
    }
    yb_fair_remove(&loading->joins, &join->wish);
    join->loading = NULL;
    yb_node_count(node, YB_NODE_STAT_LEFT, 1);
    if (is_awaited(loading)) {
        urge(loading);
    } else {
        yb_tier_cancel(node->below->levels[loading->level].tier, &loading->load.op);
    }
}

void
yb_node_load_end(struct yb_node *node, struct yb_shelf_record *record)
{
    struct yb_node_loading *loading;

    if (record->loading == 0) {
        return;
    }
    loading = node->below->load_of[record->loading];
    record->loading = 0;
    loading->over = true;
    yb_tier_cancel(node->below->levels[loading->level].tier, &loading->load.op);
}

/* ---- requests that wait ---------------------------------------------------------------------- */

/* Where the waits are whose tickets, which their senders draw at random, end alike. */
static struct yb_node_wait **
wait_place(struct yb_node_below *below, uint64_t ticket)
{
    return &below->wait_of[ticket >> 1 & (YB_NODE_WAIT_PLACES - 1)]; /* The last bit is set. */
}

/* It waits no more. */
static void
wait_take_out(struct yb_node_wait *wait)
{
    struct yb_node *node = wait->node;

    if (wait->previous != NULL) {
        wait->previous->next = wait->next;
    } else {
        node->below->waits = wait->next;
    }
    if (wait->next != NULL) {
        wait->next->previous = wait->previous;
    }
    if (wait->place_next != NULL) {
        wait->place_next->place_link = wait->place_link;
    }
    *wait->place_link = wait->place_next;
    node->requests--;
}

static void
wait_resume(struct yb_node_wait *wait)
{
    wait_take_out(wait);
    wait->request->body = (const uint8_t *)&wait->items[wait->count];
    wait->request->context = wait;
    wait->resume(wait->node, wait->request);
}

static void
on_joined(struct yb_node_join *join, enum yb_status status, struct yb_block *block)
{
    struct yb_node_wait_item *item = (struct yb_node_wait_item *)join;
    struct yb_node_wait *wait = item->wait;

    item->status = status;
    item->block = block;
    wait->left--;
    if (wait->left == 0) {
        wait_resume(wait);
    }
}

/* Whether an item has to wait: it lies below, and only there. */
static struct yb_shelf_record *
lies_below(struct yb_node *node, uint32_t tenant, const struct yb_wire_get_item *item)
{
    const struct yb_block *block = yb_block_granted(node->blocks, item->hash);
    enum yb_status status;

    if (block != NULL) {
        return NULL;
    }
    return yb_node_below_find(node, tenant, item->hash, item->grant, &status);
}

static struct yb_node_wait *
wait_create(struct yb_node *node, struct yb_request *request, uint32_t count)
{
    struct yb_node_wait *wait =
        malloc(sizeof(*wait) + count * sizeof(wait->items[0]) + request->body_bytes);

    if (wait == NULL) {
        return NULL;
    }
    memset(wait, 0, sizeof(*wait) + count * sizeof(wait->items[0]));
    wait->node = node;
    wait->request = request;
    wait->count = count;
    memcpy(&wait->items[count], request->body, request->body_bytes);
    return wait;
}

/* Begin the loads of a request. `left` is one too many until all have begun: an end that comes
 * meanwhile must not resume it. */
static void
wait_begin(struct yb_node_wait *wait, const struct yb_wire_get *body, uint32_t tenant)
{
    struct yb_node *node = wait->node;
    size_t at = 0;

    wait->left = 1;
    for (uint32_t i = 0; i < body->items.count; i++) {
        struct yb_node_wait_item *one = &wait->items[i];
        struct yb_shelf_record *record;
        struct yb_wire_get_item item;
        struct yb_node_name name;

        yb_wire_get_item_at(&body->items, i, &item);
        if (at + item.key_bytes > body->keys.length) {
            break; /* Whoever handles it says so. */
        }
        name = (struct yb_node_name){item.hash, body->keys.bytes + at, item.key_bytes, item.grant};
        at += item.key_bytes;
        record = lies_below(node, tenant, &item);
        one->wait = wait;
        if (record == NULL) {
            continue;
        }
        one->join = (struct yb_node_join){
            .wish = {.traffic_class = wait->request->class,
                     .deadline_ns = wait->request->deadline_ns},
            .done = on_joined,
        };
        one->status = yb_node_load(node, record, &name, &one->join);
        wait->left += one->status == YB_OK;
    }
    wait->left--;
}

static void
wait_put_in(struct yb_node_wait *wait, uint64_t ticket)
{
    struct yb_node_below *below = wait->node->below;

    wait->ticket = ticket;
    wait->place_link = wait_place(below, ticket);
    wait->place_next = *wait->place_link;
    if (wait->place_next != NULL) {
        wait->place_next->place_link = &wait->place_next;
    }
    *wait->place_link = wait;
    wait->next = below->waits;
    if (wait->next != NULL) {
        wait->next->previous = wait;
    }
    below->waits = wait;
    wait->node->requests++;
}

bool
yb_node_await_below(struct yb_node *node, struct yb_request *request,
                    const struct yb_wire_get *body,
                    void (*resume)(void *service, struct yb_request *request))
{
    uint32_t tenant = yb_node_tenant_of(node, request);
    struct yb_node_wait *wait;
    bool below = false;

    if (node->below == NULL || yb_shelf_count(node->below->shelf) == 0 || tenant == UINT32_MAX ||
        node->stopping || !yb_node_serving(node)) {
        return false;
    }
    for (uint32_t i = 0; i < body->items.count && !below; i++) {
        struct yb_wire_get_item item;

        yb_wire_get_item_at(&body->items, i, &item);
        below = lies_below(node, tenant, &item) != NULL;
    }
    wait = below ? wait_create(node, request, body->items.count) : NULL;
    if (wait == NULL) {
        return false; /* What is below is not found, then. */
    }
    wait->resume = resume;
    wait_put_in(wait, body->ticket);
    wait_begin(wait, body, tenant);
    if (wait->left == 0) { /* None could begin. */
        wait_resume(wait);
    }
    return true;
}

int32_t
yb_node_waited(const struct yb_node_wait *wait, uint32_t item, int32_t status)
{
    if (wait == NULL || wait->items[item].status == YB_OK ||
        (status != YB_NOT_FOUND && status != YB_NOT_READY)) {
        return status;
    }
    return wait->items[item].status;
}

void
yb_node_count_found(struct yb_node *node, const struct yb_node_wait *wait, uint32_t item,
                    int32_t status)
{
    uint32_t tier = YB_WIRE_TIER_DRAM;

    if (status == YB_FENCED) {
        return; /* It was not looked for. */
    }
    if (status == YB_NOT_FOUND || status == YB_STALE) {
        tier = 0;
    } else if (wait != NULL && wait->items[item].join.tier != 0) {
        tier = wait->items[item].join.tier;
    }
    node->found_ever[tier]++;
    yb_stats_add_at(node->shard, node->stats_first + YB_NODE_STAT_FOUND, tier, 0, 1);
}

void
yb_node_wait_end(struct yb_node_wait *wait)
{
    for (uint32_t i = 0; wait != NULL && i < wait->count; i++) {
        if (wait->items[i].block != NULL) {
            yb_node_unpin(wait->node, wait->items[i].block);
        }
    }
    free(wait);
}

/* ---- one block, without its key -------------------------------------------------------------- */

/* Another node asks by hash and grant alone: the key, which decides how much memory the block
 * takes, is read first. */
struct yb_node_lift {
    struct yb_tier_load load; /* First. */
    struct yb_node_join join;
    struct yb_node *node;
    struct yb_request *request;
    void (*resume)(void *service, struct yb_request *request);
    struct yb_block *block;
    uint8_t body[]; /* The request's. */
};

static void
lift_resume(struct yb_node_lift *lift)
{
    lift->node->requests--;
    lift->request->body = lift->body;
    lift->request->context = lift;
    lift->resume(lift->node, lift->request);
}

static void
on_lifted(struct yb_node_join *join, enum yb_status status, struct yb_block *block)
{
    struct yb_node_lift *lift =
        (struct yb_node_lift *)((uint8_t *)join - offsetof(struct yb_node_lift, join));

    (void)status; /* Whoever handles it finds the block, or not. */
    lift->block = block;
    lift_resume(lift);
}

static void
on_key_read(struct yb_tier_op *op, enum yb_status status)
{
    struct yb_node_lift *lift = (struct yb_node_lift *)op;
    struct yb_node *node = lift->node;
    struct yb_shelf_record *record =
        status == YB_OK ? yb_shelf_of(node->below->shelf, lift->load.hash, lift->load.grant) : NULL;
    const struct yb_node_name name = {lift->load.hash, lift->load.key_out,
                                      lift->load.record_out.key_bytes, lift->load.grant};

    lift->join = (struct yb_node_join){
        .wish = {.traffic_class = lift->request->class, .deadline_ns = lift->request->deadline_ns},
        .done = on_lifted,
    };
    if (record == NULL || node->stopping || record->state != YB_SHELF_LIVE ||
        yb_block_granted(node->blocks, name.hash) != NULL ||
        yb_node_load(node, record, &name, &lift->join) != YB_OK) {
        lift_resume(lift);
    }
}

bool
yb_node_await_lift(struct yb_node *node, struct yb_request *request, struct yb_id hash,
                   uint64_t grant, void (*resume)(void *service, struct yb_request *request))
{
    struct yb_shelf_record *record =
        node->below != NULL ? yb_shelf_of(node->below->shelf, hash, grant) : NULL;
    enum yb_status status = YB_NOT_FOUND;
    struct yb_node_lift *lift;

    if (record == NULL || node->stopping ||
        yb_node_below_find(node, record->tenant, hash, grant, &status) == NULL) {
        return false;
    }
    lift = malloc(sizeof(*lift) + request->body_bytes);
    if (lift == NULL) {
        return false;
    }
    *lift = (struct yb_node_lift){
        .load = {.op = {.done = on_key_read,
                        .deadline_ns = request->deadline_ns,
                        .traffic_class = request->class},
                 .hash = hash,
                 .grant = grant},
        .node = node,
        .request = request,
        .resume = resume,
    };
    memcpy(lift->body, request->body, request->body_bytes);
    status = YB_NOT_FOUND;
    for (uint32_t i = 0; i < node->below->level_count && status != YB_OK; i++) {
        if ((record->resident >> i & 1) != 0 && yb_node_level_reads(&node->below->levels[i])) {
            status = yb_tier_load(node->below->levels[i].tier, &lift->load);
        }
    }
    if (status != YB_OK) {
        free(lift);
        return false;
    }
    node->requests++;
    return true;
}

void
yb_node_lift_end(struct yb_node_lift *lift)
{
    if (lift != NULL && lift->block != NULL) {
        yb_node_unpin(lift->node, lift->block);
    }
    free(lift);
}

/* ---- who leaves ------------------------------------------------------------------------------ */

static void
item_leave(struct yb_node_wait *wait, uint32_t index, enum yb_status status)
{
    struct yb_node_wait_item *item = &wait->items[index];

    if (item->join.loading != NULL) {
        yb_node_load_leave(wait->node, &item->join);
        item->status = status;
        wait->left--;
    }
}

/* It has no more time, or the node none: what has come up is answered. */
static void
wait_give_up(struct yb_node_wait *wait, enum yb_status status)
{
    for (uint32_t i = 0; i < wait->count; i++) {
        item_leave(wait, i, status);
    }
    YB_ASSERT(wait->left == 0);
    wait_resume(wait);
}

/* Nobody wants any of it: nothing is read, and nothing lent. */
static void
wait_abandon(struct yb_node_wait *wait)
{
    struct yb_request *request = wait->request;

    for (uint32_t i = 0; i < wait->count; i++) {
        item_leave(wait, i, YB_CANCELLED);
    }
    wait_take_out(wait);
    yb_node_wait_end(wait);
    yb_request_reply(request, YB_CANCELLED, NULL, 0, NULL, 0);
}

static void
wait_leave(struct yb_node_wait *wait, uint32_t item)
{
    if (item == YB_WIRE_LEAVE_ALL) {
        wait_abandon(wait);
    } else if (item < wait->count) {
        item_leave(wait, item, YB_CANCELLED);
        if (wait->left == 0) {
            wait_resume(wait);
        }
    }
}

/* The wait that the sender of `request` calls so; NULL: it was answered, or never waited. */
static struct yb_node_wait *
wait_named(struct yb_node *node, const struct yb_request *request, uint64_t ticket)
{
    struct yb_node_wait *wait =
        node->below != NULL && ticket != 0 ? *wait_place(node->below, ticket) : NULL;

    while (wait != NULL && (wait->ticket != ticket ||
                            !yb_id_equal(wait->request->peer->identity, request->peer->identity))) {
        wait = wait->place_next;
    }
    return wait;
}

void
yb_node_leave_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_leaves body;
    enum yb_status status = yb_wire_leaves_decode(request->body, request->body_bytes, &body, NULL);

    for (uint32_t i = 0; status == YB_OK && i < body.items.count; i++) {
        struct yb_wire_leave leave;
        struct yb_node_wait *wait;

        yb_wire_leave_at(&body.items, i, &leave);
        wait = wait_named(node, request, leave.ticket);
        if (wait != NULL) {
            wait_leave(wait, leave.item);
        }
    }
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}

/* ---- time ------------------------------------------------------------------------------------ */

void
yb_node_load_tick(struct yb_node *node)
{
    struct yb_node_wait *next;

    for (struct yb_node_wait *wait = node->below->waits; wait != NULL; wait = next) {
        next = wait->next;
        if (yb_request_lost(wait->request)) {
            wait_abandon(wait);
        } else if (wait->request->deadline_ns <= yb_node_now(node)) {
            wait_give_up(wait, YB_TIMED_OUT);
        }
    }
}

void
yb_node_load_stop(struct yb_node *node)
{
    while (node->below->waits != NULL) {
        wait_give_up(node->below->waits, YB_CLOSED);
    }
}
