/* SPDX-License-Identifier: Apache-2.0 */
#include "node/block.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

#define MAGIC      0x59424c4bu /* "YBLK" */
#define OFF_CHAIN  UINT32_MAX
#define BLOCKS_MAX (1u << 30)
#define LINE_BYTES 64u

struct yb_block_table {
    uint32_t magic;
    uint32_t blocks_max;
    uint32_t mask; /* Of chains. */
    uint32_t free; /* Index + 1 of the first free record below `span`. */
    uint32_t span;
    uint64_t seed;
    uint32_t *chains; /* Index + 1. */
    uint32_t *waits;  /* The same for those that wait, by parent. */
    struct yb_block *blocks;
};

uint64_t
yb_block_extent_bytes(uint64_t size, uint32_t key_bytes, bool summed)
{
    uint64_t chunks = summed ? (size + YB_BLOCK_CHUNK_BYTES - 1) / YB_BLOCK_CHUNK_BYTES : 0;

    YB_ASSERT(size <= 1ull << 48);
    return size + key_bytes + chunks * sizeof(uint32_t);
}

enum yb_status
yb_block_table_create(uint32_t blocks_max, uint64_t table_seed, struct yb_block_table **table_out)
{
    struct yb_block_table *table;
    uint32_t chains = 16;

    if (blocks_max == 0 || blocks_max > BLOCKS_MAX) {
        return YB_INVALID;
    }
    while (chains < blocks_max) {
        chains *= 2;
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return YB_NO_MEMORY;
    }
    table->chains = calloc(chains, sizeof(*table->chains));
    table->waits = calloc(chains, sizeof(*table->waits));
    table->blocks = calloc(blocks_max, sizeof(*table->blocks));
    if (table->chains == NULL || table->waits == NULL || table->blocks == NULL) {
        goto err_free;
    }
    table->magic = MAGIC;
    table->blocks_max = blocks_max;
    table->mask = chains - 1;
    table->seed = table_seed;
    *table_out = table;
    return YB_OK;

err_free:
    free(table->blocks);
    free(table->waits);
    free(table->chains);
    free(table);
    return YB_NO_MEMORY;
}

void
yb_block_table_destroy(struct yb_block_table **table)
{
    if (*table == NULL) {
        return;
    }
    YB_ASSERT((*table)->magic == MAGIC);
    (*table)->magic = 0;
    free((*table)->blocks);
    free((*table)->waits);
    free((*table)->chains);
    free(*table);
    *table = NULL;
}

static uint32_t *
chain_of(const struct yb_block_table *table, struct yb_id hash)
{
    /* By its first 8 bytes: children know no more of their parents. */
    return &table->chains[yb_hash_table(table->seed, hash.bytes, 8) & table->mask];
}

void
yb_block_prefetch_chain(const struct yb_block_table *table, struct yb_id hash)
{
    __builtin_prefetch(chain_of(table, hash));
}

void
yb_block_prefetch(const struct yb_block_table *table, struct yb_id hash)
{
    uint32_t first = *chain_of(table, hash);

    if (first != 0) {
        const uint8_t *block = (const uint8_t *)&table->blocks[first - 1];

        for (size_t at = 0; at < sizeof(struct yb_block); at += LINE_BYTES) {
            __builtin_prefetch(block + at);
        }
    }
}

const struct yb_block *
yb_block_prefetched(const struct yb_block_table *table, struct yb_id hash)
{
    uint32_t first = *chain_of(table, hash);

    if (first == 0 || !yb_id_equal(table->blocks[first - 1].hash, hash)) {
        return NULL;
    }
    return &table->blocks[first - 1];
}

enum yb_status
yb_block_take(struct yb_block_table *table, struct yb_id hash, struct yb_block **block_out)
{
    struct yb_block *block;
    uint32_t *chain;

    YB_ASSERT(table->magic == MAGIC);
    if (table->free != 0) {
        block = &table->blocks[table->free - 1];
        YB_ASSERT(block->state == YB_BLOCK_FREE);
        table->free = block->next;
    } else if (table->span < table->blocks_max) {
        block = &table->blocks[table->span++];
    } else {
        return YB_AGAIN;
    }
    memset(block, 0, sizeof(*block));
    block->hash = hash;
    block->state = YB_BLOCK_IN_FLIGHT;
    block->group_next = block->group_previous = yb_block_index(table, block);
    chain = chain_of(table, hash);
    block->next = *chain;
    *chain = yb_block_index(table, block) + 1;
    *block_out = block;
    return YB_OK;
}

void
yb_block_unlink(struct yb_block_table *table, struct yb_block *block)
{
    uint32_t number = yb_block_index(table, block) + 1;
    uint32_t *link;

    YB_ASSERT(block->state != YB_BLOCK_FREE);
    yb_block_wait_end(table, block);
    if (block->next == OFF_CHAIN) {
        return;
    }
    for (link = chain_of(table, block->hash); *link != number;
         link = &table->blocks[*link - 1].next) {
        YB_ASSERT(*link != 0);
    }
    *link = block->next;
    block->next = OFF_CHAIN;
}

void
yb_block_give(struct yb_block_table *table, struct yb_block *block)
{
    YB_ASSERT(block->pins == 0);
    YB_ASSERT(!block->ordered && block->put == NULL);
    yb_block_unlink(table, block);
    block->state = YB_BLOCK_FREE;
    block->next = table->free;
    table->free = yb_block_index(table, block) + 1;
}

struct yb_block *
yb_block_granted(struct yb_block_table *table, struct yb_id hash)
{
    for (uint32_t at = *chain_of(table, hash); at != 0; at = table->blocks[at - 1].next) {
        struct yb_block *block = &table->blocks[at - 1];

        if (block->state == YB_BLOCK_GRANTED && yb_id_equal(block->hash, hash)) {
            return block;
        }
    }
    return NULL;
}

bool
yb_block_awaits_grant(const struct yb_block_table *table, struct yb_id hash)
{
    for (uint32_t at = *chain_of(table, hash); at != 0; at = table->blocks[at - 1].next) {
        const struct yb_block *block = &table->blocks[at - 1];

        if (block->state == YB_BLOCK_COMMITTED && block->published != 0 &&
            yb_id_equal(block->hash, hash)) {
            return true;
        }
    }
    return false;
}

struct yb_block *
yb_block_of_write(struct yb_block_table *table, struct yb_id hash, uint64_t write)
{
    for (uint32_t at = *chain_of(table, hash); at != 0; at = table->blocks[at - 1].next) {
        struct yb_block *block = &table->blocks[at - 1];

        if (block->write == write && yb_id_equal(block->hash, hash)) {
            return block;
        }
    }
    return NULL;
}

struct yb_block *
yb_block_parent(struct yb_block_table *table, uint64_t parent, uint32_t tenant)
{
    struct yb_id prefix = {{0}};

    memcpy(prefix.bytes, &parent, sizeof(parent));
    for (uint32_t at = *chain_of(table, prefix); at != 0; at = table->blocks[at - 1].next) {
        struct yb_block *block = &table->blocks[at - 1];

        if (block->state == YB_BLOCK_GRANTED && block->tenant == tenant &&
            memcmp(block->hash.bytes, &parent, sizeof(parent)) == 0) {
            return block;
        }
    }
    return NULL;
}

static uint32_t *
waits_of(const struct yb_block_table *table, uint64_t parent)
{
    return &table->waits[yb_hash_table(table->seed, &parent, sizeof(parent)) & table->mask];
}

void
yb_block_wait(struct yb_block_table *table, struct yb_block *block)
{
    uint32_t *first = waits_of(table, block->parent);

    YB_ASSERT(block->state == YB_BLOCK_GRANTED && block->parent != 0);
    if (block->waits) {
        return;
    }
    block->waits = 1;
    block->wait_previous = 0;
    block->wait_next = *first;
    if (*first != 0) {
        table->blocks[*first - 1].wait_previous = yb_block_index(table, block) + 1;
    }
    *first = yb_block_index(table, block) + 1;
}

void
yb_block_wait_end(struct yb_block_table *table, struct yb_block *block)
{
    if (!block->waits) {
        return;
    }
    block->waits = 0;
    if (block->wait_previous != 0) {
        table->blocks[block->wait_previous - 1].wait_next = block->wait_next;
    } else {
        *waits_of(table, block->parent) = block->wait_next;
    }
    if (block->wait_next != 0) {
        table->blocks[block->wait_next - 1].wait_previous = block->wait_previous;
    }
}

struct yb_block *
yb_block_waiting(struct yb_block_table *table, struct yb_id hash, uint32_t tenant)
{
    uint64_t parent;

    memcpy(&parent, hash.bytes, sizeof(parent));
    for (uint32_t at = *waits_of(table, parent); at != 0; at = table->blocks[at - 1].wait_next) {
        struct yb_block *block = &table->blocks[at - 1];

        if (block->parent == parent && block->tenant == tenant) {
            return block;
        }
    }
    return NULL;
}

void
yb_block_note_drop(struct yb_block_table *table, struct yb_id hash, uint64_t grant)
{
    for (uint32_t at = *chain_of(table, hash); at != 0; at = table->blocks[at - 1].next) {
        struct yb_block *block = &table->blocks[at - 1];

        if (block->state == YB_BLOCK_COMMITTED && yb_id_equal(block->hash, hash) &&
            grant > block->dropped) {
            block->dropped = grant;
        }
    }
}

struct yb_block *
yb_block_at(struct yb_block_table *table, uint32_t index)
{
    YB_ASSERT(index < table->span);
    return &table->blocks[index];
}

uint32_t
yb_block_index(const struct yb_block_table *table, const struct yb_block *block)
{
    YB_ASSERT(block >= table->blocks && block < table->blocks + table->blocks_max);
    return (uint32_t)(block - table->blocks);
}

uint32_t
yb_block_span(const struct yb_block_table *table)
{
    return table->span;
}
