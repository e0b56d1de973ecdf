/* SPDX-License-Identifier: Apache-2.0
 *
 * What was computed goes into the store, part by part, while the next part is computed.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "engine/engine_internal.h"

#define LOOK_NS  (100 * YB_NS_PER_MS)
#define STORE_NS (30 * YB_NS_PER_S)

struct yb_engine_store {
    struct yb_engine_job job;
    struct yb_engine *engine;
    struct yb_client_call call;
    struct yb_span span; /* What becomes of it. */
    uint32_t count;
    uint32_t reserved;                /* Those, and the prefix that cannot go before them. */
    uint32_t filled;                  /* Parts that are computed. */
    bool over;                        /* No more will be. */
    pthread_cond_t more;              /* Either, for the storer. */
    struct yb_engine_request *waits;  /* Who computes them anew afterwards; NULL: nobody. */
    struct yb_kv_pool_block **blocks; /* Each used once for this. */
    uint8_t (*keys)[YB_ENGINE_PART_KEY_MAX];
    struct yb_client_item *items;
    struct iovec *iov;
    bool *lost; /* Blocks that the store did not take: their last part must not be put. */
};

static void
free_store(struct yb_engine_store *store)
{
    (void)pthread_cond_destroy(&store->more);
    free(store->blocks);
    free(store->keys);
    free(store->items);
    free(store->iov);
    free(store->lost);
    free(store);
}

/* Wait until more than `part` parts are computed. False: that will not be. */
static bool
await_filled(struct yb_engine_store *store, uint32_t part)
{
    struct yb_engine *engine = store->engine;
    bool there;

    yb_lock_acquire(&engine->lock);
    while (store->filled <= part && !store->over) {
        (void)yb_lock_wait(&engine->lock, &store->more, LOOK_NS);
    }
    there = store->filled > part;
    yb_lock_release(&engine->lock);
    return there;
}

/* Say what to put of one part: of all blocks whose parts before it are there. Returns how many. */
static uint32_t
fill_items(struct yb_engine_store *store, uint32_t part)
{
    struct yb_engine *engine = store->engine;
    uint32_t count = 0;

    for (uint32_t i = 0; i < store->count; i++) {
        uint64_t group;

        if (store->lost[i]) {
            continue;
        }
        memcpy(&group, store->keys[i], sizeof(group));
        store->iov[count] = (struct iovec){
            .iov_base = yb_engine_bytes(engine, store->blocks[i], part),
            .iov_len = engine->part_bytes,
        };
        store->items[count] = (struct yb_client_item){
            .key = store->keys[i],
            .key_bytes = yb_engine_part_key(engine, store->keys[i], part, store->keys[i]),
            .iov = &store->iov[count],
            .iov_count = 1,
            .group = group | 1, /* Parts of a block stay together. */
        };
        count++;
    }
    return count;
}

/* Put one part, and note which blocks are lost: their last part must not be put. */
static void
put_part(struct yb_engine_store *store, uint32_t part)
{
    struct yb_engine *engine = store->engine;
    uint32_t count = fill_items(store, part);
    uint64_t stored = 0;
    enum yb_status all = YB_OK;

    if (count == 0) {
        return;
    }
    all = yb_client_put(engine->options.client, store->items, count, &store->call);
    yb_lock_acquire(&engine->lock);
    for (uint32_t i = 0, at = 0; i < store->count; i++) {
        enum yb_status status;

        if (store->lost[i]) {
            continue;
        }
        status = all == YB_OK ? store->items[at++].status : all;
        stored += status == YB_OK ? engine->part_bytes : 0;
        /* Somebody else has put it, or is about to: the same bytes. */
        store->lost[i] = status != YB_OK && status != YB_EXISTS && status != YB_IN_PROGRESS;
        if (store->lost[i]) {
            yb_engine_not_stored_locked(engine, status);
        }
    }
    engine->sums.stored_bytes += stored;
    store->span.bytes += stored;
    store->span.outcome = all != YB_OK ? all : store->span.outcome;
    yb_lock_release(&engine->lock);
}

static void
run_store(struct yb_engine_job *job)
{
    struct yb_engine_store *store = (struct yb_engine_store *)(void *)job;
    struct yb_engine *engine = store->engine;

    store->span.began_ns = yb_engine_now(engine);
    for (uint32_t part = 0; part < engine->options.parts && await_filled(store, part); part++) {
        put_part(store, part);
    }
    (void)await_filled(store, engine->options.parts); /* Whoever computes still knows of it. */
    store->span.end_ns = yb_engine_now(engine);
    yb_engine_trace(engine, store->span);
    yb_lock_acquire(&engine->lock);
    for (uint32_t i = 0; i < store->count; i++) {
        yb_kv_pool_put_back(engine->pool, store->blocks[i]);
    }
    engine->reserved -= store->reserved;
    engine->stores--;
    if (store->waits != NULL) {
        store->waits->given_up--;
    }
    (void)pthread_cond_broadcast(&engine->changed);
    yb_lock_release(&engine->lock);
    free_store(store);
}

struct yb_engine_store *
yb_engine_store_locked(struct yb_engine_request *request, uint32_t first, uint32_t count)
{
    struct yb_engine *engine = request->engine;
    struct yb_engine_store *store;

    yb_lock_assert_held(&engine->lock);
    if (engine->options.client == NULL || count == 0) {
        return NULL;
    }
    store = engine->stores < YB_ENGINE_STORES_MAX ? calloc(1, sizeof(*store)) : NULL;
    if (store != NULL) {
        yb_lock_cond_init(&store->more);
        store->job.run = run_store;
        store->engine = engine;
        store->span = (struct yb_span){
            .kind = YB_SPAN_KIND_STORE,
            .trace = request->trace_id,
            .span = yb_engine_new_span(),
            .parent = request->span,
            .number = request->number,
            .start_ns = yb_engine_now(engine),
        };
        store->call = yb_engine_call(request, store->span.span, STORE_NS);
        if (!engine->options.one_class) {
            store->call.work_class = YB_CLASS_THROUGHPUT; /* Nobody waits for its first token. */
        }
        /* The next request that shares them comes here, if it can: there they are near. */
        store->call.put.preferred = engine->puts_at[0] != NULL ? engine->puts_at : NULL;
        store->span.work_class = (uint8_t)store->call.work_class;
        store->count = count;
        store->blocks = calloc(count, sizeof(struct yb_kv_pool_block *));
        store->keys = calloc(count, YB_ENGINE_PART_KEY_MAX);
        store->items = calloc(count, sizeof(struct yb_client_item));
        store->iov = calloc(count, sizeof(struct iovec));
        store->lost = calloc(count, sizeof(*store->lost));
    }
    if (store == NULL || store->blocks == NULL || store->keys == NULL || store->items == NULL ||
        store->iov == NULL || store->lost == NULL) {
        engine->sums.dropped_stores += count;
        if (store != NULL) {
            free_store(store);
        }
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        store->blocks[i] = request->blocks[first + i];
        yb_kv_pool_share(engine->pool, store->blocks[i]);
        memcpy(store->keys[i], request->keys[first + i], YB_KV_KEY_BYTES);
    }
    store->reserved = first + count;
    engine->reserved += store->reserved;
    engine->stores++;
    yb_engine_jobs_add_locked(&engine->storers, &store->job);
    return store;
}

void
yb_engine_store_filled_locked(struct yb_engine_store *store, uint32_t parts, bool over)
{
    yb_lock_assert_held(&store->engine->lock);
    store->filled = parts > store->filled ? parts : store->filled;
    store->over = over;
    (void)pthread_cond_broadcast(&store->more);
}

void
yb_engine_store_given_up_locked(struct yb_engine_store *store, struct yb_engine_request *request)
{
    yb_engine_store_filled_locked(store, 0, true);
    store->waits = request;
    request->given_up++;
}
