/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/ssd/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define INDEX_MAGIC 0x73736469u
#define SLOT_EMPTY  0u /* A slot holds the number + 1, and above it the tag. */

/* An entry as it lies in the slab; a free one has grant 0 and the next free number in `hash`. */
struct packed {
    uint8_t hash[16];
    uint8_t grant[8];
    uint8_t place[8]; /* unit : 36, value_units : 21, head_units : 7 */
    uint8_t rest[3];  /* era : 17, accesses : 3, pins : 2, hidden, storing */
};
_Static_assert(sizeof(struct packed) == 35, "the budget is 40 bytes with the table");

struct yb_ssd_index {
    uint32_t magic;
    uint32_t records_max;
    uint32_t number_bits;
    uint32_t used; /* Entries of the slab that were ever used. */
    uint32_t count;
    uint32_t free_head; /* Number + 1; 0: none. */
    uint64_t slot_count;
    struct packed *slab;
    uint32_t *slots;
};

enum yb_status
yb_ssd_index_create(uint64_t records_max, struct yb_ssd_index **index_out)
{
    struct yb_ssd_index *index;

    if (records_max == 0 || records_max > YB_SSD_INDEX_RECORDS_MAX) {
        return YB_INVALID;
    }
    index = calloc(1, sizeof *index);
    if (index == NULL) {
        goto err;
    }
    index->records_max = (uint32_t)records_max;
    index->slot_count = records_max * 20 / 17 + 1;
    while ((records_max >> index->number_bits) > 0) {
        index->number_bits++;
    }
    index->slab = calloc(records_max, sizeof *index->slab);
    if (index->slab == NULL) {
        goto err_free_index;
    }
    index->slots = calloc(index->slot_count, sizeof *index->slots);
    if (index->slots == NULL) {
        goto err_free_slab;
    }
    index->magic = INDEX_MAGIC;
    *index_out = index;
    return YB_OK;

err_free_slab:
    free(index->slab);
err_free_index:
    free(index);
err:
    return YB_NO_MEMORY;
}

void
yb_ssd_index_destroy(struct yb_ssd_index **index_ref)
{
    struct yb_ssd_index *index = *index_ref;

    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    *index_ref = NULL;
    index->magic = 0;
    free(index->slots);
    free(index->slab);
    free(index);
}

/* Hashes are even already, but tests' are not. */
static uint64_t
mixed(const uint8_t hash[16])
{
    uint64_t high;
    uint64_t low;

    memcpy(&high, hash, sizeof high);
    memcpy(&low, hash + 8, sizeof low);
    high = (high ^ (low * 0x9e3779b97f4a7c15u)) * 0xff51afd7ed558ccdu;
    return high ^ high >> 29;
}

static uint64_t
home_of(const struct yb_ssd_index *index, uint64_t mix)
{
    return (uint64_t)(((unsigned __int128)mix * index->slot_count) >> 64);
}

static uint32_t
slot_with(const struct yb_ssd_index *index, uint32_t number, uint64_t mix)
{
    uint64_t tag = mix << index->number_bits; /* The lower bits of the mix. */

    return (uint32_t)tag | (number + 1);
}

static uint32_t
number_in(const struct yb_ssd_index *index, uint32_t slot)
{
    return (slot & (uint32_t)((1ull << index->number_bits) - 1)) - 1;
}

static uint64_t
after(const struct yb_ssd_index *index, uint64_t at)
{
    return at + 1 == index->slot_count ? 0 : at + 1;
}

static void
pack(const struct yb_ssd_entry *entry, struct packed *packed)
{
    uint64_t place =
        entry->unit | (uint64_t)entry->value_units << 36 | (uint64_t)entry->head_units << 57;
    uint32_t rest = entry->era | entry->accesses << 17 | (uint32_t)entry->hard_pin << 20 |
                    (uint32_t)entry->soft_pin << 21 | (uint32_t)entry->hidden << 22 |
                    (uint32_t)entry->storing << 23;

    YB_ASSERT(entry->grant != 0 && entry->unit >> 36 == 0 && entry->value_units >> 21 == 0);
    YB_ASSERT(entry->head_units >> 7 == 0 && entry->era >> 17 == 0 && entry->accesses >> 3 == 0);
    memcpy(packed->hash, entry->hash.bytes, sizeof packed->hash);
    memcpy(packed->grant, &entry->grant, sizeof packed->grant);
    memcpy(packed->place, &place, sizeof packed->place);
    memcpy(packed->rest, &rest, sizeof packed->rest);
}

static void
unpack(const struct packed *packed, struct yb_ssd_entry *entry)
{
    uint64_t place;
    uint32_t rest = 0;

    memcpy(entry->hash.bytes, packed->hash, sizeof packed->hash);
    memcpy(&entry->grant, packed->grant, sizeof packed->grant);
    memcpy(&place, packed->place, sizeof place);
    memcpy(&rest, packed->rest, sizeof packed->rest);
    entry->unit = place & ((1ull << 36) - 1);
    entry->value_units = (uint32_t)(place >> 36) & ((1u << 21) - 1);
    entry->head_units = (uint32_t)(place >> 57);
    entry->era = rest & ((1u << 17) - 1);
    entry->accesses = rest >> 17 & 7u;
    entry->hard_pin = (rest >> 20 & 1u) != 0;
    entry->soft_pin = (rest >> 21 & 1u) != 0;
    entry->hidden = (rest >> 22 & 1u) != 0;
    entry->storing = (rest >> 23 & 1u) != 0;
}

bool
yb_ssd_index_used(const struct yb_ssd_index *index, uint32_t number)
{
    static const uint8_t none[8];

    return number < index->used && memcmp(index->slab[number].grant, none, sizeof none) != 0;
}

uint32_t
yb_ssd_index_add(struct yb_ssd_index *index, const struct yb_ssd_entry *entry)
{
    uint64_t mix = mixed(entry->hash.bytes);
    uint64_t at = home_of(index, mix);
    uint32_t number;

    if (index->free_head != 0) {
        number = index->free_head - 1;
        memcpy(&index->free_head, index->slab[number].hash, sizeof index->free_head);
    } else if (index->used < index->records_max) {
        number = index->used++;
    } else {
        return YB_SSD_INDEX_NONE;
    }
    pack(entry, &index->slab[number]);
    while (index->slots[at] != SLOT_EMPTY) {
        at = after(index, at);
    }
    index->slots[at] = slot_with(index, number, mix);
    index->count++;
    return number;
}

uint32_t
yb_ssd_index_next(const struct yb_ssd_index *index, struct yb_id hash, uint64_t *cursor)
{
    uint64_t mix = mixed(hash.bytes);
    uint32_t tag = (uint32_t)(mix << index->number_bits);
    uint32_t mask = (uint32_t) ~((1ull << index->number_bits) - 1);
    uint64_t at = *cursor == 0 ? home_of(index, mix) : *cursor - 1;

    for (; index->slots[at] != SLOT_EMPTY; at = after(index, at)) {
        uint32_t number = number_in(index, index->slots[at]);

        if ((index->slots[at] & mask) == (tag & mask) &&
            memcmp(index->slab[number].hash, hash.bytes, sizeof hash.bytes) == 0) {
            *cursor = after(index, at) + 1;
            return number;
        }
    }
    return YB_SSD_INDEX_NONE;
}

struct yb_ssd_entry
yb_ssd_index_get(const struct yb_ssd_index *index, uint32_t number)
{
    struct yb_ssd_entry entry;

    YB_ASSERT(yb_ssd_index_used(index, number));
    unpack(&index->slab[number], &entry);
    return entry;
}

void
yb_ssd_index_set(struct yb_ssd_index *index, uint32_t number, const struct yb_ssd_entry *entry)
{
    YB_ASSERT(yb_ssd_index_used(index, number));
    YB_ASSERT(memcmp(index->slab[number].hash, entry->hash.bytes, 16) == 0);
    pack(entry, &index->slab[number]);
}

/* Empty a slot and move back what was pushed beyond it. */
static void
close_gap(struct yb_ssd_index *index, uint64_t gap)
{
    uint64_t n = index->slot_count;
    uint64_t at = gap;

    for (;;) {
        uint64_t home;

        at = after(index, at);
        if (index->slots[at] == SLOT_EMPTY) {
            break;
        }
        home = home_of(index, mixed(index->slab[number_in(index, index->slots[at])].hash));
        if ((at + n - home) % n >= (at + n - gap) % n) {
            index->slots[gap] = index->slots[at];
            gap = at;
        }
    }
    index->slots[gap] = SLOT_EMPTY;
}

void
yb_ssd_index_remove(struct yb_ssd_index *index, uint32_t number)
{
    struct packed *packed = &index->slab[number];
    uint64_t at;

    YB_ASSERT(yb_ssd_index_used(index, number));
    at = home_of(index, mixed(packed->hash));
    while (number_in(index, index->slots[at]) != number) {
        YB_ASSERT(index->slots[at] != SLOT_EMPTY);
        at = after(index, at);
    }
    close_gap(index, at);
    memset(packed, 0, sizeof *packed);
    memcpy(packed->hash, &index->free_head, sizeof index->free_head);
    index->free_head = number + 1;
    index->count--;
}

uint32_t
yb_ssd_index_limit(const struct yb_ssd_index *index)
{
    return index->used;
}

uint32_t
yb_ssd_index_count(const struct yb_ssd_index *index)
{
    return index->count;
}

bool
yb_ssd_index_full(const struct yb_ssd_index *index)
{
    return index->count == index->records_max;
}

uint64_t
yb_ssd_index_bytes_max(const struct yb_ssd_index *index)
{
    return sizeof *index + (uint64_t)index->records_max * sizeof *index->slab +
           index->slot_count * sizeof *index->slots;
}

uint64_t
yb_ssd_index_bytes(const struct yb_ssd_index *index)
{
    return sizeof *index + (uint64_t)index->used * sizeof *index->slab +
           index->slot_count * sizeof *index->slots;
}
