/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/hit_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "policy/policy.h"
#include "sim/hit_opt.h"
#include "sim/random.h"

struct pool_block {
    struct yb_policy_linked linked; /* First: the policy hands entries back. */
    bool present;
    bool seen; /* It was in the pool before. */
};

struct pool {
    const struct yb_trace *trace;
    const struct yb_hit_case *one;
    struct yb_policy *policy;
    struct pool_block *blocks; /* One for each of the trace. */
    uint64_t room;
    uint64_t count;
    struct yb_hit_result result;
};

const char *
yb_hit_policy(uint32_t index)
{
    const char *name = yb_policy_name(index);

    if (name == NULL && (index == 0 || yb_policy_name(index - 1) != NULL)) {
        return "opt";
    }
    return name;
}

uint64_t
yb_hit_size(uint32_t index)
{
    static const uint64_t sizes[YB_HIT_SIZES] = {1000,  2000,  5000,   10000, 20000,
                                                 30000, 50000, 100000, 0};

    YB_ASSERT(index < YB_HIT_SIZES);
    return sizes[index];
}

enum yb_hit_tags
yb_hit_tags_usual(const char *policy)
{
    static const char *const by_request[] = {"workload", "bidaw", "trajectory"};

    for (uint32_t i = 0; i < sizeof by_request / sizeof by_request[0]; i++) {
        if (strcmp(policy, by_request[i]) == 0) {
            return YB_HIT_TAGS_FULL;
        }
    }
    return YB_HIT_TAGS_POSITION;
}

static void
make_room(struct pool *pool)
{
    struct yb_policy_entry *entry = yb_policy_victim(pool->policy);
    struct pool_block *block = (struct pool_block *)(void *)entry;

    YB_ASSERT(entry != NULL); /* Nothing is pinned here. */
    yb_policy_evict(pool->policy, entry);
    block->present = false;
    pool->count--;
}

/* Splitmix64's finisher: what a hash of the key would be. */
static uint64_t
hash_of(uint32_t block)
{
    struct yb_sim_random random = {block};

    return yb_sim_random_next(&random);
}

static void
put(struct pool *pool, uint32_t number, const struct yb_policy_use *use, uint64_t now_ns)
{
    struct pool_block *block = &pool->blocks[number];
    uint32_t parent = pool->trace->parents[number];
    struct yb_policy_facts facts = {
        .hash = hash_of(number),
        .size = 1,
        .linked = pool->one->tags >= YB_HIT_TAGS_INFERRED,
        .use = *use,
    };

    pool->result.refetches += block->seen;
    if (pool->count == pool->room) {
        make_room(pool);
    }
    yb_policy_insert(pool->policy, &block->linked.entry, &facts, now_ns);
    block->present = true;
    block->seen = true;
    pool->count++;
    if (facts.linked && parent != YB_TRACE_NONE && pool->blocks[parent].present &&
        yb_policy_attach(pool->policy, &block->linked, &pool->blocks[parent].linked) != YB_OK) {
        YB_ASSERT(false); /* The trace is a forest (T3). */
    }
}

static void
request(struct pool *pool, uint32_t index)
{
    const struct yb_trace_request *one = &pool->trace->requests[index];
    uint32_t count = yb_trace_blocks_of(pool->trace, index);
    bool whole = true;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = pool->trace->blocks[one->first + i];
        struct pool_block *block = &pool->blocks[number];
        struct yb_policy_use use = {
            .request = pool->one->tags == YB_HIT_TAGS_FULL ? index + 1u : 0,
            .position = pool->one->tags == YB_HIT_TAGS_NONE ? 0 : i + 1,
            .answer_tokens = pool->one->tags == YB_HIT_TAGS_FULL ? one->output_tokens : 0,
        };

        whole = whole && block->present;
        pool->result.hits += whole;
        pool->result.block_hits += block->present;
        if (block->present) {
            yb_policy_use(pool->policy, &block->linked.entry, &use, one->arrival_ns);
        } else {
            put(pool, number, &use, one->arrival_ns);
        }
    }
}

enum yb_status
yb_hit_run(const struct yb_trace *trace, const struct yb_hit_case *one,
           struct yb_hit_result *result_out)
{
    struct pool pool = {.trace = trace, .one = one};
    struct yb_policy_options options = {.name = one->policy};
    enum yb_status status;

    pool.room =
        one->blocks == 0 || one->blocks > trace->block_count ? trace->block_count : one->blocks;
    if (strcmp(one->policy, "opt") == 0) {
        return yb_hit_opt(trace, pool.room, result_out);
    }
    options.ghost_count =
        (uint32_t)(pool.room < YB_POLICY_GHOST_MAX ? pool.room : YB_POLICY_GHOST_MAX);
    status = yb_policy_create(&options, &pool.policy);
    if (status != YB_OK) {
        return status;
    }
    pool.blocks = calloc(trace->block_count, sizeof *pool.blocks);
    if (pool.blocks == NULL) {
        yb_policy_destroy(&pool.policy);
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < trace->request_count; i++) {
        request(&pool, i);
    }
    pool.result.references = trace->reference_count;
    pool.result.prefix_hit = (double)pool.result.hits / (double)trace->reference_count;
    *result_out = pool.result;
    yb_policy_destroy(&pool.policy);
    free(pool.blocks);
    return YB_OK;
}
