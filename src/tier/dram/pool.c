/* SPDX-License-Identifier: Apache-2.0
 *
 * The extent's word of the allocator holds its tenant and state; sums are kept beside.
 */
#include "tier/dram/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define POOL_MAGIC 0x706f6f6cu

struct yb_dram_pool {
    uint32_t magic;
    struct yb_dram_pool_options options;
    uint64_t capacity;
    uint64_t pending_bytes_max;
    struct yb_dram_allocator *allocator;
    struct yb_shared *shared; /* NULL: borrowed. */
    uint8_t *base;            /* NULL: the process does not see the memory. */
    uint64_t huge_bytes;
    uint64_t state_bytes[YB_DRAM_STATE_COUNT];
    uint64_t state_count[YB_DRAM_STATE_COUNT];
    uint64_t *tenant_bytes;
    uint64_t again_count;
    uint64_t quota_count;
    uint64_t no_space_count;
};

const char *
yb_dram_state_name(enum yb_dram_state state)
{
    static const char *const names[] = {"in_flight", "ungranted", "live", "quarantined"};

    _Static_assert(sizeof names / sizeof names[0] == YB_DRAM_STATE_COUNT, "one for each");
    return (uint32_t)state < YB_DRAM_STATE_COUNT ? names[state] : "unknown";
}

static uint32_t
word_of(uint32_t tenant, enum yb_dram_state state)
{
    return tenant << 8 | (uint32_t)state;
}

static enum yb_dram_state
state_of(uint32_t word)
{
    return (enum yb_dram_state)(word & 0xff);
}

static void
say(char *why_out, uint32_t why_bytes, const char *text)
{
    if (why_out != NULL) {
        (void)snprintf(why_out, why_bytes, "%s", text);
    }
}

static enum yb_status
check_options(const struct yb_dram_pool_options *options, char *why_out, uint32_t why_bytes)
{
    if (options->pending_permille == 0 || options->pending_permille > 1000) {
        say(why_out, why_bytes, "the share for pending puts must be 1 to 1000 permille");
        return YB_INVALID;
    }
    if (options->tenant_count == 0 || options->tenant_count > YB_DRAM_TENANTS_MAX) {
        say(why_out, why_bytes, "a pool has 1 to 65535 tenants");
        return YB_INVALID;
    }
    if (options->capacity > YB_DRAM_CAPACITY_BYTES_MAX) {
        say(why_out, why_bytes, "the pool is larger than 64 TiB; make several nodes of it");
        return YB_TOO_LARGE;
    }
    if (options->borrowed ? options->capacity < YB_DRAM_PAGE_BYTES : options->capacity == 0) {
        say(why_out, why_bytes, "the pool is smaller than a page of 4 KiB");
        return YB_INVALID;
    }
    return YB_OK;
}

static enum yb_status
get_memory(struct yb_dram_pool *pool, char *why_out, uint32_t why_bytes)
{
    const struct yb_dram_pool_options *options = &pool->options;
    struct yb_shared_options wanted = {
        .length = pool->capacity,
        .huge = options->huge,
        .numa_node = options->numa_node,
        .lend_writable = options->lend_writable,
        .label = options->label,
    };
    enum yb_status status;

    if (options->borrowed) {
        pool->base = options->base;
        return YB_OK;
    }
    status = yb_shared_create(&wanted, &pool->shared, why_out, why_bytes);
    if (status == YB_OK) {
        pool->base = yb_shared_info(pool->shared).base;
        pool->huge_bytes = yb_shared_huge_bytes(pool->shared);
    } else if (why_out != NULL && why_out[0] == '\0') {
        say(why_out, why_bytes, "no memory for the pool's own records");
    }
    return status;
}

enum yb_status
yb_dram_pool_create(const struct yb_dram_pool_options *options, struct yb_dram_pool **pool_out,
                    char *why_out, uint32_t why_bytes)
{
    struct yb_dram_pool *pool = NULL;
    enum yb_status status;

    YB_ASSERT(options != NULL && pool_out != NULL);
    say(why_out, why_bytes, "");
    status = check_options(options, why_out, why_bytes);
    if (status != YB_OK) {
        return status;
    }
    pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        say(why_out, why_bytes, "no memory for the pool's own records");
        return YB_NO_MEMORY;
    }
    pool->magic = POOL_MAGIC;
    pool->options = *options;
    pool->huge_bytes = UINT64_MAX;
    pool->capacity = options->capacity / YB_DRAM_PAGE_BYTES * YB_DRAM_PAGE_BYTES;
    if (!options->borrowed && pool->capacity < options->capacity) {
        pool->capacity += YB_DRAM_PAGE_BYTES;
    }
    pool->pending_bytes_max = pool->capacity / 1000 * options->pending_permille +
                              pool->capacity % 1000 * options->pending_permille / 1000;
    pool->tenant_bytes = calloc(options->tenant_count, sizeof *pool->tenant_bytes);
    if (pool->tenant_bytes == NULL) {
        say(why_out, why_bytes, "no memory for the pool's own records");
        status = YB_NO_MEMORY;
        goto err_destroy;
    }
    status = yb_dram_allocator_create(pool->capacity, options->extent_bytes_min, &pool->allocator);
    if (status != YB_OK) {
        say(why_out, why_bytes,
            status == YB_INVALID ? "extent_bytes_min is no multiple of 64, or too small or too "
                                   "large for the pool"
                                 : "no memory for the pool's own records");
        goto err_destroy;
    }
    status = get_memory(pool, why_out, why_bytes);
    if (status != YB_OK) {
        goto err_destroy;
    }
    *pool_out = pool;
    return YB_OK;

err_destroy:
    yb_dram_pool_destroy(&pool);
    return status;
}

void
yb_dram_pool_destroy(struct yb_dram_pool **pool)
{
    if (*pool == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*pool, POOL_MAGIC);
    if ((*pool)->shared != NULL) {
        yb_shared_destroy(&(*pool)->shared);
    }
    yb_dram_allocator_destroy(&(*pool)->allocator);
    free((*pool)->tenant_bytes);
    (*pool)->magic = 0;
    free(*pool);
    *pool = NULL;
}

/* D2 */
static bool
pending_is_full(const struct yb_dram_pool *pool, uint64_t length)
{
    uint64_t pending = pool->state_bytes[YB_DRAM_IN_FLIGHT] + pool->state_bytes[YB_DRAM_UNGRANTED];

    return pending > 0 && pending + length > pool->pending_bytes_max;
}

enum yb_status
yb_dram_alloc(struct yb_dram_pool *pool, uint64_t bytes, uint32_t tenant,
              struct yb_dram_extent *extent_out)
{
    enum yb_status status;
    uint64_t length;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(tenant < pool->options.tenant_count);
    if (bytes == 0) {
        return YB_INVALID;
    }
    if (bytes > pool->capacity) {
        return YB_TOO_LARGE;
    }
    length = yb_dram_allocator_round(pool->allocator, bytes);
    if (pending_is_full(pool, length)) {
        pool->again_count++;
        return YB_AGAIN;
    }
    if (pool->options.admit != NULL && !pool->options.admit(pool->options.admit_context, tenant,
                                                            pool->tenant_bytes[tenant] + length)) {
        pool->quota_count++;
        return YB_QUOTA;
    }
    status = yb_dram_allocator_take(pool->allocator, bytes, extent_out);
    pool->no_space_count += status == YB_NO_SPACE;
    if (status != YB_OK) {
        return status;
    }
    YB_ASSERT(extent_out->length == length);
    *yb_dram_allocator_word(pool->allocator, extent_out) = word_of(tenant, YB_DRAM_IN_FLIGHT);
    pool->state_bytes[YB_DRAM_IN_FLIGHT] += length;
    pool->state_count[YB_DRAM_IN_FLIGHT]++;
    pool->tenant_bytes[tenant] += length;
    return YB_OK;
}

/* Take an extent out of the sum of its state. */
static void
leave_state(struct yb_dram_pool *pool, const struct yb_dram_extent *extent,
            enum yb_dram_state state)
{
    YB_ASSERT(pool->state_count[state] > 0);
    YB_ASSERT(pool->state_bytes[state] >= extent->length);
    pool->state_bytes[state] -= extent->length;
    pool->state_count[state]--;
}

void
yb_dram_free(struct yb_dram_pool *pool, const struct yb_dram_extent *extent)
{
    uint32_t word;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    word = *yb_dram_allocator_word(pool->allocator, extent);
    YB_ASSERT(pool->tenant_bytes[word >> 8] >= extent->length);
    leave_state(pool, extent, state_of(word));
    pool->tenant_bytes[word >> 8] -= extent->length;
    yb_dram_allocator_give(pool->allocator, extent);
}

void
yb_dram_set_state(struct yb_dram_pool *pool, const struct yb_dram_extent *extent,
                  enum yb_dram_state state)
{
    enum yb_dram_state old;
    uint32_t *word;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    word = yb_dram_allocator_word(pool->allocator, extent);
    old = state_of(*word);
    YB_ASSERT(old != YB_DRAM_QUARANTINED);
    YB_ASSERT(state == YB_DRAM_QUARANTINED || (uint32_t)state == (uint32_t)old + 1);
    leave_state(pool, extent, old);
    pool->state_bytes[state] += extent->length;
    pool->state_count[state]++;
    *word = word_of(*word >> 8, state);
}

enum yb_dram_state
yb_dram_state(struct yb_dram_pool *pool, const struct yb_dram_extent *extent)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return state_of(*yb_dram_allocator_word(pool->allocator, extent));
}

uint32_t
yb_dram_tenant(struct yb_dram_pool *pool, const struct yb_dram_extent *extent)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return *yb_dram_allocator_word(pool->allocator, extent) >> 8;
}

void *
yb_dram_bytes(struct yb_dram_pool *pool, const struct yb_dram_extent *extent)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(pool->base != NULL);
    YB_ASSERT(extent->length <= pool->capacity &&
              extent->offset <= pool->capacity - extent->length);
    return pool->base + extent->offset;
}

const struct yb_shared *
yb_dram_shared(const struct yb_dram_pool *pool)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    return pool->shared;
}

struct yb_dram_info
yb_dram_info(const struct yb_dram_pool *pool)
{
    struct yb_dram_info info;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    info = (struct yb_dram_info){
        .pending_bytes_max = pool->pending_bytes_max,
        .again_count = pool->again_count,
        .quota_count = pool->quota_count,
        .no_space_count = pool->no_space_count,
        .allocator = yb_dram_allocator_info(pool->allocator),
        .huge_bytes = pool->huge_bytes,
    };
    info.used_bytes = info.allocator.used_bytes;
    memcpy(info.state_bytes, pool->state_bytes, sizeof info.state_bytes);
    memcpy(info.state_count, pool->state_count, sizeof info.state_count);
    if (pool->shared != NULL) {
        info.memory = yb_shared_info(pool->shared);
    } else {
        info.memory.base = pool->base;
        info.memory.length = pool->capacity;
    }
    return info;
}

uint64_t
yb_dram_tenant_bytes(const struct yb_dram_pool *pool, uint32_t tenant)
{
    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(tenant < pool->options.tenant_count);
    return pool->tenant_bytes[tenant];
}

struct sums {
    uint64_t state_bytes[YB_DRAM_STATE_COUNT];
    uint64_t state_count[YB_DRAM_STATE_COUNT];
    uint64_t *tenant_bytes;
    uint32_t tenant_count;
    uint64_t strange_count;
};

static void
add_extent(void *context, const struct yb_dram_extent *extent, uint32_t word)
{
    struct sums *sums = context;

    if ((uint32_t)state_of(word) >= YB_DRAM_STATE_COUNT || word >> 8 >= sums->tenant_count) {
        sums->strange_count++;
        return;
    }
    sums->state_bytes[state_of(word)] += extent->length;
    sums->state_count[state_of(word)]++;
    sums->tenant_bytes[word >> 8] += extent->length;
}

bool
yb_dram_pool_check(struct yb_dram_pool *pool, char *why_out, uint32_t why_bytes)
{
    struct sums sums = {.tenant_count = pool->options.tenant_count};
    uint64_t used_bytes = 0;
    bool fine;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    if (!yb_dram_allocator_check(pool->allocator, why_out, why_bytes)) {
        return false;
    }
    sums.tenant_bytes = calloc(sums.tenant_count, sizeof *sums.tenant_bytes);
    if (sums.tenant_bytes == NULL) {
        say(why_out, why_bytes, "no memory to check with");
        return false;
    }
    yb_dram_allocator_each(pool->allocator, add_extent, &sums);
    for (uint32_t i = 0; i < YB_DRAM_STATE_COUNT; i++) {
        used_bytes += pool->state_bytes[i];
    }
    fine = sums.strange_count == 0 && /* D1 */
           used_bytes == yb_dram_allocator_info(pool->allocator).used_bytes &&
           memcmp(sums.state_bytes, pool->state_bytes, sizeof sums.state_bytes) == 0 &&
           memcmp(sums.state_count, pool->state_count, sizeof sums.state_count) == 0 &&
           memcmp(sums.tenant_bytes, pool->tenant_bytes,
                  sums.tenant_count * sizeof *sums.tenant_bytes) == 0;
    if (!fine) {
        say(why_out, why_bytes,
            "what states or tenants use does not add up to what the allocator gave");
    }
    free(sums.tenant_bytes);
    return fine;
}
