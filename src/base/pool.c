/* SPDX-License-Identifier: Apache-2.0
 *
 * The free list is an array of indices beside the objects, not a chain through them: a stray
 * write to a freed object then hits poison, which tells, and never a link, which would send the
 * next taker to a wild address.
 */
#include "base/pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define POOL_MAGIC        0x706f6f6cu
#define POOL_LIMIT        (1u << 31)
#define OBJECT_ALIGNMENT  64u
#define POISON            0xdbu
#define POISON_BYTES_FAST 64u

/* Values of `next` beside the index of a free object. */
#define NEXT_NONE   UINT32_MAX
#define NEXT_IN_USE (UINT32_MAX - 1)

struct yb_pool {
    uint32_t magic;
    uint32_t capacity;   /* Immutable. */
    size_t object_bytes; /* Immutable: what the user may touch. */
    size_t stride;       /* Immutable: rounded up to the alignment. */
    const char *name;    /* Immutable. */
    uint8_t *objects;
    uint32_t *next; /* Per object: the free object under it, NEXT_NONE or NEXT_IN_USE. */
    uint32_t free_head;
    uint32_t in_use;
    uint32_t in_use_max;
    uint64_t refused_count;
    bool owned; /* `owner` is set. */
    pthread_t owner;
};

/* How much of a free object is kept poisoned: in release builds a cache line, for its price. */
static size_t
poison_bytes(const struct yb_pool *pool)
{
#ifdef YB_DEBUG
    return pool->object_bytes;
#else
    return pool->object_bytes < POISON_BYTES_FAST ? pool->object_bytes : POISON_BYTES_FAST;
#endif
}

static bool
is_poisoned(const uint8_t *object, size_t bytes)
{
    uint8_t wrong = 0;

    for (size_t i = 0; i < bytes; i++) {
        wrong |= object[i] ^ POISON;
    }
    return wrong == 0;
}

static void
assert_owner(struct yb_pool *pool)
{
    if (!pool->owned) {
        pool->owned = true;
        pool->owner = pthread_self();
    }
    YB_ASSERT_SLOW(pthread_equal(pool->owner, pthread_self()) != 0);
}

static enum yb_status
create(const char *name, size_t object_bytes, uint32_t capacity, struct yb_pool **pool_out)
{
    struct yb_pool *pool;
    size_t stride;
    size_t total_bytes;

    YB_ASSERT(name != NULL);
    YB_ASSERT(pool_out != NULL);
    if (object_bytes == 0 || object_bytes > POOL_LIMIT || capacity == 0 || capacity > POOL_LIMIT) {
        return YB_INVALID;
    }
    stride = (object_bytes + OBJECT_ALIGNMENT - 1) / OBJECT_ALIGNMENT * OBJECT_ALIGNMENT;
    if (__builtin_mul_overflow(stride, (size_t)capacity, &total_bytes)) {
        return YB_INVALID;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        goto err;
    }
    pool->objects = aligned_alloc(OBJECT_ALIGNMENT, total_bytes);
    if (pool->objects == NULL) {
        goto err_free_pool;
    }
    pool->next = calloc(capacity, sizeof(*pool->next));
    if (pool->next == NULL) {
        goto err_free_objects;
    }
    pool->magic = POOL_MAGIC;
    pool->capacity = capacity;
    pool->object_bytes = object_bytes;
    pool->stride = stride;
    pool->name = name;
    for (uint32_t i = 0; i < capacity; i++) {
        memset(pool->objects + i * stride, POISON, poison_bytes(pool));
        pool->next[i] = i + 1 < capacity ? i + 1 : NEXT_NONE;
    }
    *pool_out = pool;
    return YB_OK;

err_free_objects:
    free(pool->objects);
err_free_pool:
    free(pool);
err:
    return YB_NO_MEMORY;
}

enum yb_status
yb_pool_create(const char *name, size_t object_bytes, uint32_t capacity, struct yb_pool **pool_out)
{
    enum yb_status status = create(name, object_bytes, capacity, pool_out);

    if (status == YB_OK) {
        /* Touches every page now, rather than in the middle of a request. */
        memset((*pool_out)->objects, POISON, (*pool_out)->stride * capacity);
    }
    return status;
}

enum yb_status
yb_pool_create_sparse(const char *name, size_t object_bytes, uint32_t capacity,
                      struct yb_pool **pool_out)
{
    return create(name, object_bytes, capacity, pool_out);
}

void
yb_pool_move(struct yb_pool *pool)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    pool->owned = false;
}

void
yb_pool_destroy(struct yb_pool **pool_ref)
{
    struct yb_pool *pool = *pool_ref;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(pool->in_use == 0);
    *pool_ref = NULL;
    pool->magic = 0;
    free(pool->next);
    free(pool->objects);
    free(pool);
}

enum yb_status
yb_pool_take(struct yb_pool *pool, void **object_out)
{
    uint32_t index;
    uint8_t *object;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    assert_owner(pool);
    index = pool->free_head;
    if (index == NEXT_NONE) {
        pool->refused_count++;
        return YB_AGAIN;
    }
    YB_ASSERT(index < pool->capacity);
    YB_ASSERT(pool->next[index] != NEXT_IN_USE); /* P1 */
    object = pool->objects + index * pool->stride;
    YB_ASSERT(is_poisoned(object, poison_bytes(pool))); /* P3 */
    pool->free_head = pool->next[index];
    pool->next[index] = NEXT_IN_USE;
    pool->in_use++;
    if (pool->in_use > pool->in_use_max) {
        pool->in_use_max = pool->in_use;
    }
    *object_out = object;
    return YB_OK;
}

void
yb_pool_give(struct yb_pool *pool, void *object)
{
    size_t offset;
    uint32_t index;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    assert_owner(pool);
    /* As numbers: the difference of pointers into different blocks is undefined. */
    YB_ASSERT((uintptr_t)object >= (uintptr_t)pool->objects);
    offset = (uintptr_t)object - (uintptr_t)pool->objects;
    YB_ASSERT(offset % pool->stride == 0);
    YB_ASSERT(offset / pool->stride < pool->capacity);
    index = (uint32_t)(offset / pool->stride);
    YB_ASSERT(pool->next[index] == NEXT_IN_USE); /* P2 */
    YB_ASSERT(pool->in_use > 0);
    memset(object, POISON, poison_bytes(pool));
    pool->next[index] = pool->free_head;
    pool->free_head = index;
    pool->in_use--;
}

void
yb_pool_counts(const struct yb_pool *pool, struct yb_pool_counts *counts_out)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    *counts_out = (struct yb_pool_counts){
        .name = pool->name,
        .capacity = pool->capacity,
        .in_use = pool->in_use,
        .in_use_max = pool->in_use_max,
        .refused_count = pool->refused_count,
    };
}
