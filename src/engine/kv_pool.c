/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/kv_pool.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define POOL_MAGIC 0x6b76706cu

struct yb_kv_pool {
    uint32_t magic;
    struct yb_kv_pool_options options;
    struct yb_policy *policy;
    struct yb_kv_pool_block *blocks;
    struct yb_kv_pool_block *free;
    struct yb_kv_pool_block **buckets;
    uint32_t mask;
    struct yb_kv_pool_info info;
};

enum yb_status
yb_kv_pool_create(const struct yb_kv_pool_options *options, struct yb_kv_pool **pool_out)
{
    const struct yb_policy_options policy = {
        .name = options->policy != NULL ? options->policy : "lru",
        .ghost_count = options->slots,
    };
    struct yb_kv_pool *pool;
    enum yb_status status;
    uint32_t buckets = 1;

    if (options->slots == 0 || options->slots > YB_KV_POOL_SLOTS_MAX) {
        return YB_INVALID;
    }
    while (buckets < options->slots) {
        buckets *= 2;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return YB_NO_MEMORY;
    }
    pool->magic = POOL_MAGIC;
    pool->options = *options;
    pool->info.slots = options->slots;
    pool->mask = buckets - 1;
    pool->blocks = calloc(options->slots, sizeof(*pool->blocks));
    pool->buckets = calloc(buckets, sizeof(struct yb_kv_pool_block *));
    status = pool->blocks == NULL || pool->buckets == NULL
                 ? YB_NO_MEMORY
                 : yb_policy_create(&policy, &pool->policy);
    if (status != YB_OK) {
        yb_kv_pool_destroy(&pool);
        return status;
    }
    for (uint32_t i = options->slots; i > 0; i--) {
        pool->blocks[i - 1].slot = i - 1;
        pool->blocks[i - 1].next = pool->free;
        pool->free = &pool->blocks[i - 1];
    }
    *pool_out = pool;
    return YB_OK;
}

void
yb_kv_pool_destroy(struct yb_kv_pool **pool_ref)
{
    struct yb_kv_pool *pool = *pool_ref;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    *pool_ref = NULL;
    if (pool->policy != NULL) {
        yb_policy_destroy(&pool->policy);
    }
    pool->magic = 0;
    free(pool->blocks);
    free(pool->buckets);
    free(pool);
}

/* Keys are hashes: their first bytes spread well. */
static struct yb_kv_pool_block **
bucket_of(const struct yb_kv_pool *pool, const uint8_t key[YB_KV_KEY_BYTES])
{
    uint32_t hash;

    memcpy(&hash, key, sizeof(hash));
    return &pool->buckets[hash & pool->mask];
}

static struct yb_kv_pool_block *
look_up(const struct yb_kv_pool *pool, const uint8_t key[YB_KV_KEY_BYTES])
{
    struct yb_kv_pool_block *block = *bucket_of(pool, key);

    while (block != NULL && memcmp(block->key, key, YB_KV_KEY_BYTES) != 0) {
        block = block->next;
    }
    return block;
}

static void
tell(const struct yb_kv_pool *pool, const struct yb_kv_pool_block *block, bool there)
{
    if (pool->options.changed != NULL) {
        pool->options.changed(pool->options.owner, block->key, there);
    }
}

/* The policy keeps what is in use from being a victim (E1). */
static void
use(struct yb_kv_pool *pool, struct yb_kv_pool_block *block)
{
    if (block->users++ == 0) {
        pool->info.used++;
        if (block->published) {
            YB_ASSERT(yb_policy_pin(pool->policy, &block->link.entry) == YB_OK);
        }
    }
}

bool
yb_kv_pool_has(const struct yb_kv_pool *pool, const uint8_t key[YB_KV_KEY_BYTES])
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return look_up(pool, key) != NULL;
}

struct yb_kv_pool_block *
yb_kv_pool_find(struct yb_kv_pool *pool, const uint8_t key[YB_KV_KEY_BYTES], uint64_t now_ns)
{
    struct yb_kv_pool_block *block = look_up(pool, key);

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    if (block != NULL) {
        yb_policy_access(pool->policy, &block->link.entry, now_ns);
        use(pool, block);
    }
    return block;
}

static void
give_up(struct yb_kv_pool *pool, struct yb_kv_pool_block *block)
{
    block->next = pool->free;
    pool->free = block;
}

static bool
evict_one(struct yb_kv_pool *pool)
{
    struct yb_policy_entry *victim = yb_policy_victim(pool->policy);
    struct yb_kv_pool_block *block = (struct yb_kv_pool_block *)(void *)victim;
    struct yb_kv_pool_block **place;

    if (victim == NULL) {
        return false;
    }
    yb_policy_evict(pool->policy, victim);
    place = bucket_of(pool, block->key);
    while (*place != block) {
        place = &(*place)->next;
    }
    *place = block->next;
    block->published = false;
    pool->info.published--;
    pool->info.evicted++;
    tell(pool, block, false);
    give_up(pool, block);
    return true;
}

struct yb_kv_pool_block *
yb_kv_pool_take(struct yb_kv_pool *pool)
{
    struct yb_kv_pool_block *block;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    if (pool->free == NULL && !evict_one(pool)) {
        return NULL;
    }
    block = pool->free;
    pool->free = block->next;
    block->next = NULL;
    YB_ASSERT(!block->published && block->users == 0);
    use(pool, block);
    return block;
}

struct yb_kv_pool_block *
yb_kv_pool_publish(struct yb_kv_pool *pool, struct yb_kv_pool_block *block,
                   const uint8_t key[YB_KV_KEY_BYTES], struct yb_kv_pool_block *parent,
                   uint64_t now_ns)
{
    struct yb_kv_pool_block *other = look_up(pool, key);
    struct yb_policy_facts facts = {.size = 1, .linked = true};

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(!block->published && block->users > 0);
    if (other != NULL && block->users > 1) {
        return block; /* Both would be in use: one more than anybody reserved. */
    }
    if (other != NULL) {
        use(pool, other);
        yb_kv_pool_put_back(pool, block);
        return other;
    }
    memcpy(block->key, key, YB_KV_KEY_BYTES);
    memcpy(&facts.hash, key, sizeof(facts.hash));
    yb_policy_insert(pool->policy, &block->link.entry, &facts, now_ns);
    YB_ASSERT(yb_policy_pin(pool->policy, &block->link.entry) == YB_OK);
    if (parent != NULL && parent->published) {
        /* What does not fit a chain has none: it is evicted on its own. */
        (void)!yb_policy_attach(pool->policy, &block->link, &parent->link);
    }
    block->published = true;
    block->next = *bucket_of(pool, key);
    *bucket_of(pool, key) = block;
    pool->info.published++;
    tell(pool, block, true);
    return block;
}

void
yb_kv_pool_share(struct yb_kv_pool *pool, struct yb_kv_pool_block *block)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(block->users > 0);
    use(pool, block);
}

void
yb_kv_pool_put_back(struct yb_kv_pool *pool, struct yb_kv_pool_block *block)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(block->users > 0);
    if (--block->users > 0) {
        return;
    }
    pool->info.used--;
    if (block->published) {
        yb_policy_unpin(pool->policy, &block->link.entry);
    } else {
        give_up(pool, block);
    }
}

void
yb_kv_pool_visit(const struct yb_kv_pool *pool,
                 void (*visit)(void *context, const uint8_t key[YB_KV_KEY_BYTES]), void *context)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    for (uint32_t i = 0; i < pool->info.slots; i++) {
        if (pool->blocks[i].published) {
            visit(context, pool->blocks[i].key);
        }
    }
}

uint32_t
yb_kv_pool_slots(const struct yb_kv_pool *pool)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return pool->info.slots;
}

struct yb_kv_pool_info
yb_kv_pool_info(const struct yb_kv_pool *pool)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return pool->info;
}
