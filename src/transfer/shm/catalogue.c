/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/shm/catalogue.h"

#include <string.h>

#include "base/check.h"
#include "memory/region.h"

/* Return the first entry that ends behind `address`. */
static uint32_t
lower(const struct yb_shm_catalogue *catalogue, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = catalogue->count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct yb_shm_entry *entry = &catalogue->entries[middle];

        if (entry->base + entry->length <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static bool
matches(const struct yb_shm_entry *entry, uint64_t region, uint64_t offset)
{
    if (region != YB_REGION_BY_ADDRESS) {
        return entry->region == region;
    }
    return offset >= entry->base && offset - entry->base < entry->length;
}

const struct yb_shm_entry *
yb_shm_catalogue_find(struct yb_shm_catalogue *catalogue, uint64_t region, uint64_t offset)
{
    uint32_t index;

    if (catalogue->last < catalogue->count &&
        matches(&catalogue->entries[catalogue->last], region, offset)) {
        return &catalogue->entries[catalogue->last];
    }
    index = region == YB_REGION_BY_ADDRESS ? lower(catalogue, offset) : 0;
    while (index < catalogue->count && !matches(&catalogue->entries[index], region, offset)) {
        if (region == YB_REGION_BY_ADDRESS) {
            return NULL;
        }
        index++;
    }
    if (index == catalogue->count) {
        return NULL;
    }
    catalogue->last = index;
    return &catalogue->entries[index];
}

enum yb_status
yb_shm_catalogue_judge(const struct yb_shm_entry *entry, uint64_t region, uint64_t offset,
                       uint64_t length, uint32_t access, uint64_t *address_out)
{
    uint64_t at = region == YB_REGION_BY_ADDRESS ? offset - entry->base : offset;

    if (at > entry->length || length > entry->length - at) {
        return YB_INVALID;
    }
    if ((entry->access & access) != access) {
        return YB_DENIED;
    }
    *address_out = entry->base + at;
    return YB_OK;
}

static void
drop(struct yb_shm_catalogue *catalogue, uint32_t index)
{
    catalogue->count--;
    memmove(&catalogue->entries[index], &catalogue->entries[index + 1],
            (catalogue->count - index) * sizeof(catalogue->entries[0]));
}

enum yb_status
yb_shm_catalogue_add(struct yb_shm_catalogue *catalogue, const struct yb_shm_entry *entry)
{
    uint32_t index;

    if (entry->region == 0 || entry->region == YB_REGION_BY_ADDRESS || entry->length == 0 ||
        entry->length > UINT64_MAX - entry->base) {
        return YB_INVALID;
    }
    yb_shm_catalogue_forget(catalogue, entry->region);
    index = lower(catalogue, entry->base);
    while (index < catalogue->count &&
           catalogue->entries[index].base < entry->base + entry->length) {
        drop(catalogue, index); /* G1 */
    }
    if (catalogue->count == YB_SHM_CATALOGUE_MAX) {
        yb_shm_catalogue_clear(catalogue);
        index = 0;
    }
    memmove(&catalogue->entries[index + 1], &catalogue->entries[index],
            (catalogue->count - index) * sizeof(catalogue->entries[0]));
    catalogue->entries[index] = *entry;
    catalogue->count++;
    catalogue->last = index;
    return YB_OK;
}

void
yb_shm_catalogue_forget(struct yb_shm_catalogue *catalogue, uint64_t region)
{
    for (uint32_t i = 0; i < catalogue->count; i++) {
        if (catalogue->entries[i].region == region) {
            drop(catalogue, i);
            return;
        }
    }
}

void
yb_shm_catalogue_clear(struct yb_shm_catalogue *catalogue)
{
    catalogue->count = 0;
    catalogue->last = 0;
}
