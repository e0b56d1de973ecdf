/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_pool.h -- the blocks of an engine's device memory: who uses which, and which prefix is there.
 *
 * The memory is cut into slots of one size. A block has a slot from the moment when a step that was
 * submitted refers to it; it is found by its key once its bytes are all there and right. What
 * nobody uses stays until its slot is wanted, and then goes by the eviction policy of the tiers
 * below, suffixes before their prefixes.
 *
 *     take --> filled by compute or by a load --> publish --> find ... put_back --> evicted
 *                                             |                                      ^
 *                                             +--> put_back: gone at once            +-- take
 *
 * Invariants
 *   E1  A block that is used is never evicted, and its slot never given to another.
 *   E2  find() returns only blocks that were published; of one key there is one.
 *   E3  A block that nobody uses and that was not published has no slot.
 *
 * Threads   One owner: the engine's lock. yb_kv_pool_slots() asks for none.
 * Memory    Bookkeeping only, all of it allocated at create. The bytes are the caller's.
 */
#ifndef YB_ENGINE_KV_POOL_H
#define YB_ENGINE_KV_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/kv.h"
#include "policy/policy.h"
#include "yuebing/status.h"

#define YB_KV_POOL_SLOTS_MAX (1u << 22)

struct yb_kv_pool;

struct yb_kv_pool_block {
    struct yb_policy_linked link; /* In the policy while it is published. */
    uint8_t key[YB_KV_KEY_BYTES];
    uint32_t slot;
    uint32_t users;
    bool published;
    struct yb_kv_pool_block *next; /* In its bucket, or of the free ones. */
};

struct yb_kv_pool_options {
    uint32_t slots;     /* 1 .. YB_KV_POOL_SLOTS_MAX */
    const char *policy; /* NULL: "lru". */
    /* A block can be found from now on, or no more. May be NULL. It must not call the pool. */
    void (*changed)(void *owner, const uint8_t key[YB_KV_KEY_BYTES], bool there);
    void *owner;
};

/* Fails with INVALID (slots, policy) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_kv_pool_create(const struct yb_kv_pool_options *options,
                                            struct yb_kv_pool **pool_out);
void yb_kv_pool_destroy(struct yb_kv_pool **pool);

/* Return the block of that key, used once more; NULL: it is not here. */
struct yb_kv_pool_block *yb_kv_pool_find(struct yb_kv_pool *pool,
                                         const uint8_t key[YB_KV_KEY_BYTES], uint64_t now_ns);

/* The same without using it. */
bool yb_kv_pool_has(const struct yb_kv_pool *pool, const uint8_t key[YB_KV_KEY_BYTES]);

/* Return a block with a slot of its own, used once, and evict one for it if none is free; NULL: all
 * are in use. */
struct yb_kv_pool_block *yb_kv_pool_take(struct yb_kv_pool *pool);

/* Its bytes are there: from now on it is found. `parent` is the block before it, NULL: none, or
 * not published. Return the block to go on with: itself, or, if somebody else has brought the same
 * one meanwhile, that one, used once more, while the given one is put back. A block with a second
 * user cannot be put back: it stays what it is, and is not found. */
struct yb_kv_pool_block *yb_kv_pool_publish(struct yb_kv_pool *pool, struct yb_kv_pool_block *block,
                                            const uint8_t key[YB_KV_KEY_BYTES],
                                            struct yb_kv_pool_block *parent, uint64_t now_ns);

/* One user more of a block that is used already. */
void yb_kv_pool_share(struct yb_kv_pool *pool, struct yb_kv_pool_block *block);

/* One user less. */
void yb_kv_pool_put_back(struct yb_kv_pool *pool, struct yb_kv_pool_block *block);

/* Call `visit` for each block that can be found. */
void yb_kv_pool_visit(const struct yb_kv_pool *pool,
                      void (*visit)(void *context, const uint8_t key[YB_KV_KEY_BYTES]),
                      void *context);

struct yb_kv_pool_info {
    uint32_t slots;
    uint32_t used;      /* Slots of blocks that somebody uses ... */
    uint32_t published; /* ... and of those that can be found. */
    uint64_t evicted;
};
/* Of the options. */
uint32_t yb_kv_pool_slots(const struct yb_kv_pool *pool);
struct yb_kv_pool_info yb_kv_pool_info(const struct yb_kv_pool *pool);

#endif /* YB_ENGINE_KV_POOL_H */
