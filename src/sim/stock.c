/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/stock.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define MAGIC      0x73746f63u
#define RUN_COPIES 1024u
#define TABLE_ROOM 4096u
#define FILL_NUM   5u /* The table grows when it is 5 / 8 full. */
#define FILL_DEN   8u

struct shelf {
    struct yb_policy *policy; /* NULL: unbounded, or without room. */
    uint64_t room;
    struct yb_stock_counts counts;
};

struct run {
    struct run *next;
    struct yb_stock_copy copies[RUN_COPIES];
};

struct yb_stock {
    uint32_t magic;
    uint32_t blocks;
    uint32_t shelf_count;
    uint32_t shelf_room;
    bool no_chains;
    struct shelf *shelves;
    struct yb_stock_copy **firsts; /* By block. */
    struct yb_stock_copy **table;  /* Open addressing, linear probing. */
    uint64_t table_room;           /* A power of two. */
    uint64_t table_count;
    struct yb_stock_copy *unused;
    struct run *runs;
    yb_stock_gone_fn *gone;
    void *context;
};

enum yb_status
yb_stock_create(uint32_t blocks, yb_stock_gone_fn *gone, void *context, struct yb_stock **stock_out)
{
    struct yb_stock *stock = calloc(1, sizeof(*stock));

    if (stock == NULL) {
        return YB_NO_MEMORY;
    }
    stock->magic = MAGIC;
    stock->blocks = blocks;
    stock->gone = gone;
    stock->context = context;
    stock->table_room = TABLE_ROOM;
    stock->firsts = calloc(blocks == 0 ? 1 : blocks, sizeof(struct yb_stock_copy *));
    stock->table = calloc(stock->table_room, sizeof(struct yb_stock_copy *));
    if (stock->firsts == NULL || stock->table == NULL) {
        yb_stock_destroy(&stock);
        return YB_NO_MEMORY;
    }
    *stock_out = stock;
    return YB_OK;
}

void
yb_stock_destroy(struct yb_stock **stock)
{
    struct yb_stock *dead = *stock;

    if (dead == NULL) {
        return;
    }
    YB_ASSERT_OBJ(dead, MAGIC);
    dead->magic = 0;
    for (uint32_t i = 0; i < dead->shelf_count; i++) {
        if (dead->shelves[i].policy != NULL) {
            yb_policy_destroy(&dead->shelves[i].policy);
        }
    }
    while (dead->runs != NULL) {
        struct run *run = dead->runs;

        dead->runs = run->next;
        free(run);
    }
    free(dead->shelves);
    free(dead->firsts);
    free(dead->table);
    free(dead);
    *stock = NULL;
}

void
yb_stock_without_chains(struct yb_stock *stock)
{
    YB_ASSERT_OBJ(stock, MAGIC);
    stock->no_chains = true;
}

static enum yb_status
grow_shelves(struct yb_stock *stock)
{
    uint32_t room = stock->shelf_room == 0 ? 64 : 2 * stock->shelf_room;
    struct shelf *shelves;

    if (stock->shelf_count >= YB_STOCK_SHELVES_MAX) {
        return YB_INVALID;
    }
    shelves = realloc(stock->shelves, room * sizeof(*shelves));
    if (shelves == NULL) {
        return YB_NO_MEMORY;
    }
    stock->shelves = shelves;
    stock->shelf_room = room;
    return YB_OK;
}

enum yb_status
yb_stock_add_shelf(struct yb_stock *stock, const char *policy, uint64_t room, uint32_t *shelf_out)
{
    struct shelf shelf = {.room = room};
    enum yb_status status;

    YB_ASSERT_OBJ(stock, MAGIC);
    if (stock->shelf_count == stock->shelf_room) {
        status = grow_shelves(stock);
        if (status != YB_OK) {
            return status;
        }
    }
    if (room > 0 && room != YB_STOCK_UNBOUNDED) {
        struct yb_policy_options options = {
            .name = policy,
            .ghost_count = (uint32_t)(room < stock->blocks ? room : stock->blocks),
        };

        status = yb_policy_create(&options, &shelf.policy);
        if (status != YB_OK) {
            return status;
        }
    }
    stock->shelves[stock->shelf_count] = shelf;
    *shelf_out = stock->shelf_count++;
    return YB_OK;
}

static uint64_t
slot_of(const struct yb_stock *stock, uint32_t shelf, uint32_t block)
{
    uint64_t name = (uint64_t)shelf << 32 | block;

    name *= 0x9e3779b97f4a7c15ull;
    return (name ^ name >> 32) & (stock->table_room - 1);
}

static void
table_add(struct yb_stock *stock, struct yb_stock_copy *copy)
{
    uint64_t slot = slot_of(stock, copy->shelf, copy->block);

    while (stock->table[slot] != NULL) {
        slot = (slot + 1) & (stock->table_room - 1);
    }
    stock->table[slot] = copy;
    stock->table_count++;
}

static enum yb_status
table_grow(struct yb_stock *stock)
{
    struct yb_stock_copy **old = stock->table;
    uint64_t old_room = stock->table_room;
    struct yb_stock_copy **table = calloc(2 * old_room, sizeof(struct yb_stock_copy *));

    if (table == NULL) {
        return YB_NO_MEMORY;
    }
    stock->table = table;
    stock->table_room = 2 * old_room;
    stock->table_count = 0;
    for (uint64_t i = 0; i < old_room; i++) {
        if (old[i] != NULL) {
            table_add(stock, old[i]);
        }
    }
    free(old);
    return YB_OK;
}

/* Close the gap that a removal leaves, so that no probe ends early. */
static void
table_take(struct yb_stock *stock, const struct yb_stock_copy *copy)
{
    uint64_t mask = stock->table_room - 1;
    uint64_t gap = slot_of(stock, copy->shelf, copy->block);

    while (stock->table[gap] != copy) {
        YB_ASSERT(stock->table[gap] != NULL);
        gap = (gap + 1) & mask;
    }
    for (uint64_t slot = (gap + 1) & mask; stock->table[slot] != NULL; slot = (slot + 1) & mask) {
        uint64_t home = slot_of(stock, stock->table[slot]->shelf, stock->table[slot]->block);

        if (((slot - home) & mask) >= ((slot - gap) & mask)) {
            stock->table[gap] = stock->table[slot];
            gap = slot;
        }
    }
    stock->table[gap] = NULL;
    stock->table_count--;
}

struct yb_stock_copy *
yb_stock_find(struct yb_stock *stock, uint32_t shelf, uint32_t block)
{
    uint64_t slot = slot_of(stock, shelf, block);
    struct yb_stock_copy *copy;

    YB_ASSERT_OBJ(stock, MAGIC);
    while ((copy = stock->table[slot]) != NULL) {
        if (copy->block == block && copy->shelf == shelf) {
            return copy;
        }
        slot = (slot + 1) & (stock->table_room - 1);
    }
    return NULL;
}

struct yb_stock_copy *
yb_stock_first(struct yb_stock *stock, uint32_t block)
{
    YB_ASSERT(block < stock->blocks);
    return stock->firsts[block];
}

static struct yb_stock_copy *
take_copy(struct yb_stock *stock)
{
    struct yb_stock_copy *copy = stock->unused;

    if (copy == NULL) {
        struct run *run = calloc(1, sizeof(*run));

        if (run == NULL) {
            return NULL;
        }
        run->next = stock->runs;
        stock->runs = run;
        for (uint32_t i = RUN_COPIES; i-- > 0;) {
            run->copies[i].next = stock->unused;
            stock->unused = &run->copies[i];
        }
        copy = stock->unused;
    }
    stock->unused = copy->next;
    memset(copy, 0, sizeof(*copy));
    return copy;
}

/* Take a copy off the chain of its block and out of the table, for use again. */
static void
forget(struct yb_stock *stock, struct yb_stock_copy *copy)
{
    table_take(stock, copy);
    if (copy->previous != NULL) {
        copy->previous->next = copy->next;
    } else {
        stock->firsts[copy->block] = copy->next;
    }
    if (copy->next != NULL) {
        copy->next->previous = copy->previous;
    }
    stock->shelves[copy->shelf].counts.present--;
    copy->next = stock->unused;
    stock->unused = copy;
}

/* Make room for one block. Returns false if nothing may go. */
static bool
make_room(struct yb_stock *stock, uint32_t shelf_index)
{
    struct shelf *shelf = &stock->shelves[shelf_index];

    while (shelf->counts.present >= shelf->room) {
        struct yb_policy_entry *entry =
            shelf->policy == NULL ? NULL : yb_policy_victim(shelf->policy);
        struct yb_stock_copy *copy = (struct yb_stock_copy *)entry;
        uint32_t block;

        if (entry == NULL) {
            return false;
        }
        block = copy->block;
        yb_policy_evict(shelf->policy, entry);
        shelf->counts.evicted++;
        forget(stock, copy);
        stock->gone(stock->context, shelf_index, block);
    }
    return true;
}

static struct yb_policy_use
told_of(const struct yb_stock_use *use)
{
    return (struct yb_policy_use){
        .request = use->request,
        .position = use->position,
        .answer_tokens = use->answer_tokens,
    };
}

static void
order(struct yb_stock *stock, struct yb_stock_copy *copy, const struct yb_stock_use *use)
{
    struct shelf *shelf = &stock->shelves[copy->shelf];
    struct yb_stock_copy *parent;
    struct yb_policy_facts facts = {
        .hash = yb_hash_table(0, &copy->block, sizeof(copy->block)),
        .size = 1,
        .linked = true,
        .use = told_of(use),
    };

    if (shelf->policy == NULL) {
        return;
    }
    yb_policy_insert(shelf->policy, &copy->policy.entry, &facts, use->now_ns);
    parent = use->parent == YB_STOCK_NO_BLOCK || stock->no_chains
                 ? NULL
                 : yb_stock_find(stock, copy->shelf, use->parent);
    if (parent != NULL) {
        /* A trace gives each block one parent, so this cannot make a cycle. */
        enum yb_status status = yb_policy_attach(shelf->policy, &copy->policy, &parent->policy);

        YB_ASSERT(status == YB_OK);
    }
}

enum yb_status
yb_stock_put(struct yb_stock *stock, uint32_t shelf, uint32_t block, const struct yb_stock_use *use)
{
    struct yb_stock_copy *copy = yb_stock_find(stock, shelf, block);
    struct yb_stock_counts *counts = &stock->shelves[shelf].counts;

    YB_ASSERT(shelf < stock->shelf_count && block < stock->blocks);
    if (copy != NULL) {
        yb_stock_touch(stock, copy, use);
        return YB_OK;
    }
    if (!make_room(stock, shelf)) {
        counts->refused++;
        return YB_NO_SPACE;
    }
    if (FILL_DEN * stock->table_count >= FILL_NUM * stock->table_room &&
        table_grow(stock) != YB_OK) {
        return YB_NO_MEMORY;
    }
    copy = take_copy(stock);
    if (copy == NULL) {
        return YB_NO_MEMORY;
    }
    copy->block = block;
    copy->shelf = shelf;
    copy->next = stock->firsts[block];
    if (copy->next != NULL) {
        copy->next->previous = copy;
    }
    stock->firsts[block] = copy;
    table_add(stock, copy);
    counts->put++;
    counts->present++;
    order(stock, copy, use);
    return YB_OK;
}

void
yb_stock_touch(struct yb_stock *stock, struct yb_stock_copy *copy, const struct yb_stock_use *use)
{
    struct shelf *shelf = &stock->shelves[copy->shelf];
    struct yb_policy_use told = told_of(use);

    if (shelf->policy != NULL) {
        yb_policy_use(shelf->policy, &copy->policy.entry, &told, use->now_ns);
    }
}

enum yb_status
yb_stock_pin(struct yb_stock *stock, struct yb_stock_copy *copy)
{
    struct shelf *shelf = &stock->shelves[copy->shelf];

    return shelf->policy == NULL ? YB_OK : yb_policy_pin(shelf->policy, &copy->policy.entry);
}

void
yb_stock_unpin(struct yb_stock *stock, struct yb_stock_copy *copy)
{
    struct shelf *shelf = &stock->shelves[copy->shelf];

    if (shelf->policy != NULL) {
        yb_policy_unpin(shelf->policy, &copy->policy.entry);
    }
}

void
yb_stock_remove(struct yb_stock *stock, struct yb_stock_copy *copy)
{
    struct shelf *shelf = &stock->shelves[copy->shelf];

    if (shelf->policy != NULL) {
        yb_policy_remove(shelf->policy, &copy->policy.entry);
    }
    shelf->counts.removed++;
    forget(stock, copy);
}

struct yb_stock_counts
yb_stock_counts(const struct yb_stock *stock, uint32_t shelf)
{
    YB_ASSERT(shelf < stock->shelf_count);
    return stock->shelves[shelf].counts;
}
