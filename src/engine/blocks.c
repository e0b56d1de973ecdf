/* SPDX-License-Identifier: Apache-2.0
 *
 * The blocks of a request, one after the other: found, taken, made known, given back.
 */
#include "base/check.h"
#include "engine/engine_internal.h"

void
yb_engine_find_locked(struct yb_engine_request *request, uint32_t most)
{
    struct yb_engine *engine = request->engine;
    uint64_t now = yb_engine_now(engine);

    yb_lock_assert_held(&engine->lock);
    while (request->block_count < most) {
        struct yb_kv_pool_block *block =
            yb_kv_pool_find(engine->pool, request->keys[request->block_count], now);

        if (block == NULL) {
            break;
        }
        request->blocks[request->block_count++] = block;
    }
}

void
yb_engine_take_locked(struct yb_engine_request *request, uint32_t count)
{
    yb_lock_assert_held(&request->engine->lock);
    YB_ASSERT(count <= request->block_max);
    while (request->block_count < count) {
        struct yb_kv_pool_block *block = yb_kv_pool_take(request->engine->pool);

        YB_ASSERT(block != NULL); /* N3 */
        request->blocks[request->block_count++] = block;
    }
}

void
yb_engine_publish_locked(struct yb_engine_request *request, uint32_t first, uint32_t end)
{
    struct yb_engine *engine = request->engine;
    uint64_t now = yb_engine_now(engine);

    yb_lock_assert_held(&engine->lock);
    YB_ASSERT(end <= request->block_count && end <= request->key_count);
    for (uint32_t i = first; i < end; i++) {
        request->blocks[i] = yb_kv_pool_publish(engine->pool, request->blocks[i], request->keys[i],
                                                i > 0 ? request->blocks[i - 1] : NULL, now);
    }
}

void
yb_engine_shorten_locked(struct yb_engine_request *request, uint32_t count)
{
    struct yb_engine *engine = request->engine;

    yb_lock_assert_held(&engine->lock);
    while (request->block_count > count) {
        yb_kv_pool_put_back(engine->pool, request->blocks[--request->block_count]);
    }
}
