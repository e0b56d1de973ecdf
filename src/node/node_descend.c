/* SPDX-License-Identifier: Apache-2.0
 *
 * From one tier below DRAM to the next: what a tier is about to lose for want of room, and no other
 * tier has.
 *
 *     told of --> queue --> a batch: all of it is read, and then all of it is stored, in its order
 *                   ^                                              |
 *                   +--------------- the next batch <--------------+
 *
 * What a tier clears at a time lies together, neighbours of a prefix side by side, and goes down
 * like that: the next tier gathers what comes together. Everything is of the background class, and
 * memory of its own keeps it: the pool is not for what nobody reads (RULES C2). Nothing waits for
 * it. A block that the tier loses before it was read is lost, and counted as demote_dropped.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/check.h"
#include "node/node_below.h"

#define EACH_MAX    256u
#define BATCH_BYTES (16ull << 20) /* Of a batch; a single block may be larger. */
#define BYTES_MAX   (64ull << 20) /* No larger value lies in a tier. */
#define QUEUE_MAX   65536u        /* A power of two: blocks that wait. */

/* A block on its way from one tier to the next. */
struct descent {
    struct yb_tier_load load; /* First: its record is the store's. */
    struct yb_tier_store store;
    struct yb_node *node;
    struct iovec iov;
    uint8_t to;
    bool here; /* It was read. */
};

struct yb_node_descents {
    struct {
        struct yb_id hash;
        uint64_t grant;
        uint32_t level;
    } queue[QUEUE_MAX];
    uint32_t head;
    uint32_t tail;

    struct descent each[EACH_MAX]; /* The batch. */
    uint32_t count;                /* 0: there is none. */
    bool reading;                  /* Nothing of it is stored before all is read. */
    uint32_t stored;               /* So many of it were given to their store, or up. */
    uint32_t waiting;              /* Operations under way. */
    uint8_t *memory;
    uint64_t memory_bytes;
    uint64_t filled;
};

static void store_batch(struct yb_node *node);
static void read_batch(struct yb_node *node);

/* ---- what goes where ------------------------------------------------------------------------- */

/* Return the tier that takes a block of the tier `from`; UINT32_MAX: none, or it need not. What
 * memory has, too, is no exception: there it counts as safe below, and may go at any time. */
static uint32_t
next_below(const struct yb_node *node, uint32_t from, const struct yb_shelf_record *record)
{
    const struct yb_node_below *below = node->below;
    uint8_t elsewhere = (uint8_t)((record->resident | record->storing) & ~(1u << from));

    if ((record->resident >> from & 1) == 0 || elsewhere != 0) {
        return UINT32_MAX;
    }
    for (uint32_t i = from + 1; i < below->level_count; i++) {
        const struct yb_move_facts facts = {
            .when = YB_MOVE_LEAVING,
            .policy = below->policy,
            .working = yb_node_level_works(&below->levels[i]),
            .object = below->levels[i].kind == YB_WIRE_TIER_OBJECT,
            .versioned = (record->flags & YB_WIRE_BLOCK_FLAG_VERSIONED) != 0,
        };

        if (yb_move_down(&facts)) {
            return i;
        }
    }
    return UINT32_MAX;
}

bool
yb_node_descend(struct yb_node *node, uint32_t level, struct yb_shelf_record *record)
{
    struct yb_node_descents *descents = node->below->descents;
    uint32_t place;

    if (descents == NULL || node->stopping || record->size > descents->memory_bytes ||
        descents->tail - descents->head == QUEUE_MAX ||
        next_below(node, level, record) == UINT32_MAX) {
        return false;
    }
    place = descents->tail++ & (QUEUE_MAX - 1);
    descents->queue[place].hash = record->hash;
    descents->queue[place].grant = record->grant;
    descents->queue[place].level = level;
    return true;
}

/* The LIVE record of a block that is being moved; NULL: it was ended, or forgotten. */
static struct yb_shelf_record *
record_of(const struct descent *descent)
{
    struct yb_shelf_record *record =
        yb_shelf_of(descent->node->below->shelf, descent->load.hash, descent->load.grant);

    return record != NULL && record->state == YB_SHELF_LIVE ? record : NULL;
}

/* ---- storing --------------------------------------------------------------------------------- */

static void
batch_end(struct yb_node *node)
{
    node->below->descents->count = 0;
    node->below->descents->filled = 0;
    read_batch(node);
}

static void
on_stored(struct yb_tier_op *op, enum yb_status status)
{
    struct descent *descent =
        (struct descent *)((uint8_t *)op - offsetof(struct descent, store.op));
    struct yb_node *node = descent->node;
    struct yb_shelf_record *record = record_of(descent);

    if (status == YB_OK && record != NULL) {
        yb_node_count(node, YB_NODE_STAT_DESCENDED, 1);
        yb_node_count(node, YB_NODE_STAT_DESCENDED_BYTES, record->size);
    }
    (void)yb_node_below_stored(node, record, descent->to, status);
    node->below->descents->waiting--;
    store_batch(node);
}

/* Give a block to its store. AGAIN: when another one has ended. */
static enum yb_status
store(struct descent *descent)
{
    struct yb_node *node = descent->node;
    struct yb_shelf_record *record = record_of(descent);
    enum yb_status status;

    if (!descent->here || record == NULL || node->stopping ||
        record->flush < node->tenants[record->tenant].flush ||
        !yb_node_level_works(&node->below->levels[descent->to])) {
        return YB_CANCELLED;
    }
    descent->store = (struct yb_tier_store){
        .op = {.done = on_stored, .deadline_ns = YB_NEVER, .traffic_class = YB_CLASS_BACKGROUND},
        .record = descent->load.record_out,
        .iov = &descent->iov,
        .iov_count = 1,
    };
    status = yb_tier_store(node->below->levels[descent->to].tier, &descent->store);
    if (status == YB_OK) {
        record->storing |= (uint8_t)(1u << descent->to);
    }
    return status;
}

/* Everything that could be read is here: down with it, as far as there is room for operations. */
static void
store_batch(struct yb_node *node)
{
    struct yb_node_descents *descents = node->below->descents;

    while (descents->stored < descents->count) {
        enum yb_status status = store(&descents->each[descents->stored]);

        if (status == YB_AGAIN) {
            return; /* The end of another, or the next tick, makes room. */
        }
        descents->stored++;
        descents->waiting += status == YB_OK;
    }
    if (descents->waiting == 0) {
        batch_end(node);
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

static void
on_read(struct yb_tier_op *op, enum yb_status status)
{
    struct descent *descent = (struct descent *)op;
    struct yb_node_descents *descents = descent->node->below->descents;

    descent->here = status == YB_OK;
    descents->waiting--;
    if (descents->waiting == 0) {
        descents->reading = false;
        store_batch(descent->node);
    }
}

/* Begin to read a block into the batch. Returns whether that is under way. */
static bool
read_one(struct yb_node *node, uint32_t from, const struct yb_shelf_record *record)
{
    struct yb_node_descents *descents = node->below->descents;
    struct descent *descent = &descents->each[descents->count];
    uint32_t to = next_below(node, from, record);

    if (to == UINT32_MAX) {
        return false;
    }
    *descent = (struct descent){
        .load = {.op = {.done = on_read,
                        .deadline_ns = YB_NEVER,
                        .traffic_class = YB_CLASS_BACKGROUND},
                 .hash = record->hash,
                 .grant = record->grant,
                 .length = record->size,
                 .iov = &descent->iov,
                 .iov_count = 1},
        .node = node,
        .iov = {.iov_base = descents->memory + descents->filled, .iov_len = (size_t)record->size},
        .to = (uint8_t)to,
    };
    return yb_tier_load(node->below->levels[from].tier, &descent->load) == YB_OK;
}

/* Whether the batch has room for the block. */
static bool
fits(const struct yb_node_descents *descents, const struct yb_shelf_record *record)
{
    if (descents->count == 0) {
        return true;
    }
    return descents->count < EACH_MAX && descents->filled + record->size <= BATCH_BYTES &&
           descents->filled + record->size <= descents->memory_bytes;
}

static void
read_batch(struct yb_node *node)
{
    struct yb_node_descents *descents = node->below->descents;

    YB_ASSERT(descents->count == 0 && descents->waiting == 0);
    descents->stored = 0;
    while (descents->head != descents->tail && !node->stopping) {
        uint32_t place = descents->head & (QUEUE_MAX - 1);
        struct yb_shelf_record *record = yb_shelf_of(
            node->below->shelf, descents->queue[place].hash, descents->queue[place].grant);

        if (record != NULL && record->state == YB_SHELF_LIVE) {
            if (!fits(descents, record)) {
                break;
            }
            if (read_one(node, descents->queue[place].level, record)) {
                descents->count++;
                descents->waiting++;
                descents->filled += record->size;
            }
        }
        descents->head++;
    }
    descents->reading = descents->count > 0;
}

void
yb_node_descend_tick(struct yb_node *node)
{
    struct yb_node_descents *descents = node->below->descents;

    if (descents == NULL) {
        return;
    }
    if (descents->count == 0) {
        read_batch(node);
    } else if (!descents->reading) {
        store_batch(node);
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_node_descend_create(struct yb_node *node)
{
    struct yb_node_descents *descents;
    void *memory;

    if (node->below->level_count < 2) {
        return YB_OK;
    }
    descents = calloc(1, sizeof(*descents));
    if (descents == NULL) {
        return YB_NO_MEMORY;
    }
    node->below->descents = descents;
    descents->memory_bytes =
        node->options.pool_bytes < BYTES_MAX ? node->options.pool_bytes : BYTES_MAX;
    memory = mmap(NULL, (size_t)descents->memory_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return YB_NO_MEMORY;
    }
    descents->memory = memory;
    return YB_OK;
}

void
yb_node_descend_destroy(struct yb_node *node)
{
    struct yb_node_descents *descents = node->below->descents;

    if (descents == NULL) {
        return;
    }
    if (descents->memory != NULL) {
        YB_ASSERT(munmap(descents->memory, (size_t)descents->memory_bytes) == 0);
    }
    free(descents);
    node->below->descents = NULL;
}

bool
yb_node_descend_idle(const struct yb_node *node)
{
    return node->below->descents == NULL || node->below->descents->waiting == 0;
}
