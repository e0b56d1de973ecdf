/* SPDX-License-Identifier: Apache-2.0 */
#include "directory/index.h"

#include <stdlib.h>

#include "directory/index_internal.h"

#define SIZE_EXPONENT_MAX  31u
#define SIZE_MANTISSA_BITS 11u
#define SIZE_MANTISSAS     (1u << SIZE_MANTISSA_BITS)

/* Exponent 0: the mantissa. Exponent e above: (2048 + mantissa) << (e - 1). */
uint16_t
yb_index_size_encode(uint64_t bytes)
{
    uint64_t rounded;
    uint32_t shift;

    if (bytes < SIZE_MANTISSAS) {
        return (uint16_t)bytes;
    }
    if (bytes >= YB_INDEX_SIZE_MAX) {
        return UINT16_MAX;
    }
    shift = 63 - (uint32_t)__builtin_clzll(bytes) - SIZE_MANTISSA_BITS;
    rounded = (bytes + ((UINT64_C(1) << shift) - 1)) >> shift;
    if (rounded == UINT64_C(2) * SIZE_MANTISSAS) {
        rounded /= 2;
        shift++;
    }
    return (uint16_t)((shift + 1) << SIZE_MANTISSA_BITS | (rounded - SIZE_MANTISSAS));
}

uint64_t
yb_index_size_decode(uint16_t code)
{
    uint32_t exponent = (uint32_t)code >> SIZE_MANTISSA_BITS;
    uint64_t mantissa = code & (SIZE_MANTISSAS - 1);

    return exponent == 0 ? mantissa : (SIZE_MANTISSAS + mantissa) << (exponent - 1);
}

static uint64_t
lower(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static enum yb_status
reserve(struct yb_index *index)
{
    uint64_t most = index->records_max;
    enum yb_status status;

    status =
        yb_stretch_init(&index->bucket_memory, (most / YB_INDEX_FILL + 2 + YB_INDEX_BUCKETS_FIRST) *
                                                   sizeof(*index->buckets));
    if (status != YB_OK) {
        goto err;
    }
    /* A chain of k records has at most (k - 1) / 12 further buckets. */
    status = yb_stretch_init(&index->further_memory,
                             (most / YB_INDEX_WAYS + 1) * sizeof(*index->further));
    if (status != YB_OK) {
        goto err_fini_buckets;
    }
    status = yb_stretch_init(&index->record_memory, most * sizeof(*index->records));
    if (status != YB_OK) {
        goto err_fini_further;
    }
    status =
        yb_stretch_init(&index->overflow_memory, index->overflow_max * sizeof(*index->overflows));
    if (status != YB_OK) {
        goto err_fini_records;
    }
    if (index->keeps_parents) {
        status = yb_stretch_init(&index->parent_memory, most * sizeof(*index->parents));
    }
    if (status != YB_OK) {
        goto err_fini_overflows;
    }
    return YB_OK;

err_fini_overflows:
    yb_stretch_fini(&index->overflow_memory);
err_fini_records:
    yb_stretch_fini(&index->record_memory);
err_fini_further:
    yb_stretch_fini(&index->further_memory);
err_fini_buckets:
    yb_stretch_fini(&index->bucket_memory);
err:
    return status;
}

static void
release(struct yb_index *index)
{
    if (index->keeps_parents) {
        yb_stretch_fini(&index->parent_memory);
    }
    yb_stretch_fini(&index->overflow_memory);
    yb_stretch_fini(&index->record_memory);
    yb_stretch_fini(&index->further_memory);
    yb_stretch_fini(&index->bucket_memory);
}

static void
begin_empty(struct yb_index *index)
{
    index->buckets = (struct yb_index_bucket *)(void *)index->bucket_memory.base;
    index->further = (struct yb_index_bucket *)(void *)index->further_memory.base;
    index->records = (struct yb_index_record *)(void *)index->record_memory.base;
    index->parents = (uint64_t *)(void *)index->parent_memory.base;
    index->overflows = (struct yb_index_overflow *)(void *)index->overflow_memory.base;
    index->bucket_count = YB_INDEX_BUCKETS_FIRST;
    index->bucket_mask = YB_INDEX_BUCKETS_FIRST - 1;
    index->record_free = YB_INDEX_NONE;
}

enum yb_status
yb_index_create(const struct yb_index_options *options, struct yb_index **index_out)
{
    enum yb_status status = YB_NO_MEMORY;
    struct yb_index *index;

    YB_ASSERT(index_out != NULL);
    if (options->records_max == 0 || options->records_max > YB_INDEX_RECORDS_MAX ||
        options->slots_max == 0 || options->slots_max > YB_INDEX_SLOTS_MAX ||
        options->tenants_max == 0 || options->tenants_max > YB_INDEX_TENANTS_MAX) {
        return YB_INVALID;
    }
    index = calloc(1, sizeof(*index));
    if (index == NULL) {
        goto err;
    }
    index->magic = YB_INDEX_MAGIC;
    index->records_max = options->records_max;
    index->slots_max = options->slots_max;
    index->tenants_max = options->tenants_max;
    index->seed = options->seed;
    index->keeps_parents = options->parents;
    index->overflow_max = (uint32_t)lower(options->records_max, YB_INDEX_LINK_MAX);
    index->slots = calloc((size_t)options->slots_max + 1, sizeof(*index->slots));
    index->tenants = calloc(options->tenants_max, sizeof(*index->tenants));
    if (index->slots == NULL || index->tenants == NULL) {
        goto err_free;
    }
    status = reserve(index);
    if (status != YB_OK) {
        goto err_free;
    }
    begin_empty(index);
    status =
        yb_stretch_reach(&index->bucket_memory, YB_INDEX_BUCKETS_FIRST * sizeof(*index->buckets));
    if (status != YB_OK) {
        goto err_release;
    }
    *index_out = index;
    return YB_OK;

err_release:
    release(index);
err_free:
    free(index->tenants);
    free(index->slots);
    free(index);
err:
    return status;
}

void
yb_index_destroy(struct yb_index **index_ref)
{
    struct yb_index *index = *index_ref;

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    *index_ref = NULL;
    index->magic = 0;
    release(index);
    free(index->tenants);
    free(index->slots);
    free(index);
}

bool
yb_index_growth_due(const struct yb_index *index)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    return yb_stretch_ahead_due(&index->record_memory) ||
           yb_stretch_ahead_due(&index->bucket_memory) ||
           (index->keeps_parents && yb_stretch_ahead_due(&index->parent_memory)) ||
           yb_stretch_ahead_due(&index->further_memory) ||
           yb_stretch_ahead_due(&index->overflow_memory);
}

void
yb_index_grow_ahead(struct yb_index *index)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    yb_stretch_ahead(&index->record_memory);
    yb_stretch_ahead(&index->bucket_memory);
    if (index->keeps_parents) {
        yb_stretch_ahead(&index->parent_memory);
    }
    yb_stretch_ahead(&index->further_memory);
    yb_stretch_ahead(&index->overflow_memory);
}

/* ---- slots -------------------------------------------------------------------------------- */

/* Find a slot that is in use. Fails with INVALID or FENCED. */
static enum yb_status
slot_in_use(struct yb_index *index, uint16_t number, struct yb_index_slot **slot_out)
{
    struct yb_index_slot *slot;

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    if (number == YB_INDEX_SLOT_NONE || number > index->slots_max) {
        return YB_INVALID;
    }
    slot = &index->slots[number];
    if (slot->state == YB_INDEX_SLOT_FREE || slot->state == YB_INDEX_SLOT_DEAD) {
        return YB_FENCED;
    }
    *slot_out = slot;
    return YB_OK;
}

enum yb_status
yb_index_slot_open(struct yb_index *index, uint16_t slot)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    if (slot == YB_INDEX_SLOT_NONE || slot > index->slots_max) {
        return YB_INVALID;
    }
    if (index->slots[slot].state != YB_INDEX_SLOT_FREE) { /* I5 */
        return YB_BUSY;
    }
    YB_ASSERT(index->slots[slot].replicas == 0);
    index->slots[slot] = (struct yb_index_slot){.state = YB_INDEX_SLOT_SERVING};
    return YB_OK;
}

enum yb_status
yb_index_slot_set(struct yb_index *index, uint16_t number, enum yb_index_slot_state state)
{
    struct yb_index_slot *slot;
    enum yb_status status;

    if ((int)state < YB_INDEX_SLOT_SERVING || state > YB_INDEX_SLOT_DEAD) {
        return YB_INVALID;
    }
    status = slot_in_use(index, number, &slot);
    if (status != YB_OK) {
        return status;
    }
    slot->state = (uint8_t)state;
    if (state == YB_INDEX_SLOT_DEAD) {
        slot->dead_in_sweep = false; /* The one under way may have passed some of its replicas. */
        index->sweep_wanted = true;
    }
    return YB_OK;
}

void
yb_index_slot_counts(const struct yb_index *index, uint16_t slot,
                     struct yb_index_slot_counts *counts_out)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    YB_ASSERT(slot != YB_INDEX_SLOT_NONE && slot <= index->slots_max);
    *counts_out = (struct yb_index_slot_counts){
        .state = (enum yb_index_slot_state)index->slots[slot].state,
        .replicas = index->slots[slot].replicas,
        .bytes = index->slots[slot].bytes,
    };
}

enum yb_status
yb_index_inventory_begin(struct yb_index *index, uint16_t number)
{
    struct yb_index_slot *slot;
    enum yb_status status = slot_in_use(index, number, &slot);

    if (status != YB_OK) {
        return status;
    }
    if (slot->age_max == YB_INDEX_MARKS - 1) {
        index->sweep_wanted = true;
        return YB_AGAIN;
    }
    slot->mark = (slot->mark + 1) & (YB_INDEX_MARKS - 1);
    slot->age_max++;
    slot->age_max_after++;
    slot->purge_age += slot->purging; /* What the last END let live is as old now. */
    slot->begun = true;
    return YB_OK;
}

enum yb_status
yb_index_inventory_end(struct yb_index *index, uint16_t number)
{
    struct yb_index_slot *slot;
    enum yb_status status = slot_in_use(index, number, &slot);

    if (status != YB_OK) {
        return status;
    }
    if (!slot->begun) {
        return YB_INVALID;
    }
    slot->begun = false;
    slot->purging = true;
    slot->purge_age = 0;
    slot->purge_in_sweep = false; /* As with a death. */
    index->sweep_wanted = true;
    return YB_OK;
}

/* ---- tenants ------------------------------------------------------------------------------ */

enum yb_status
yb_index_flush(struct yb_index *index, uint32_t number, uint64_t flush_epoch)
{
    struct yb_index_tenant *tenant;
    uint64_t step;

    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    if (number >= index->tenants_max) {
        return YB_INVALID;
    }
    tenant = &index->tenants[number];
    if (flush_epoch <= tenant->epoch) {
        return YB_OK;
    }
    if (tenant->records == 0) {
        tenant->epoch = flush_epoch;
        tenant->behind = 0;
        tenant->behind_after = 0;
        return YB_OK;
    }
    /* Records keep 16 bits of their epoch, so none may be 65536 behind (I6). As far as is safe the
     * epoch is raised at once; the rest is for after the sweep. */
    step = lower(flush_epoch - tenant->epoch, UINT16_MAX - tenant->behind);
    tenant->epoch += step;
    tenant->behind = (uint16_t)(tenant->behind + step);
    tenant->behind_after = (uint16_t)(tenant->behind_after + step);
    index->sweep_wanted = true;
    return tenant->epoch == flush_epoch ? YB_OK : YB_AGAIN;
}

uint64_t
yb_index_flush_epoch(const struct yb_index *index, uint32_t tenant)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    YB_ASSERT(tenant < index->tenants_max);
    return index->tenants[tenant].epoch;
}

uint32_t
yb_index_tenant_records(const struct yb_index *index, uint32_t tenant)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    YB_ASSERT(tenant < index->tenants_max);
    return index->tenants[tenant].records;
}

/* ---- counting ----------------------------------------------------------------------------- */

void
yb_index_counts(const struct yb_index *index, struct yb_index_counts *counts_out)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    *counts_out = (struct yb_index_counts){
        .records = index->record_used,
        .records_max = index->records_max,
        .replicas = index->replica_count,
        .bytes = index->replica_bytes,
        .buckets = index->bucket_count,
        .buckets_further = index->further_used,
        .overflows = index->overflow_used,
        .sweeps = index->sweeps,
    };
}

uint64_t
yb_index_bytes(const struct yb_index *index)
{
    YB_ASSERT_OBJ(index, YB_INDEX_MAGIC);
    return sizeof(*index) + ((uint64_t)index->slots_max + 1) * sizeof(*index->slots) +
           (uint64_t)index->tenants_max * sizeof(*index->tenants) +
           atomic_load(&index->bucket_memory.taken_bytes) + index->further_memory.taken_bytes +
           atomic_load(&index->record_memory.taken_bytes) +
           atomic_load(&index->parent_memory.taken_bytes) + index->overflow_memory.taken_bytes;
}
