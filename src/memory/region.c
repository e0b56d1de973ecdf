/* SPDX-License-Identifier: Apache-2.0
 *
 * Regions are slots of a fixed array, reached by id in one step. Two parallel arrays in order
 * of address, bases and slot numbers, serve look-ups by address: a search touches bases only,
 * which for 65,536 regions is half a megabyte.
 *
 * An id is a generation above SLOT_BITS bits of slot number.
 */
#include "memory/region.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/lock.h"

#define REGION_TABLE_MAGIC 0x7265676eu
#define SLOT_BITS          20
#define SLOT_MASK          ((1u << SLOT_BITS) - 1)

/* Generations start below this, so that a slot is used up after 2^43 registers: never. */
#define GENERATION_FIRST_BITS 43

_Static_assert(YB_REGIONS_MAX == 1u << SLOT_BITS, "every slot number fits into an id");

enum region_state { REGION_NONE, REGION_LIVE, REGION_CLOSING };

struct yb_region {
    uint64_t base;
    uint64_t length;
    uint64_t generation; /* Of the region in the slot now, or of the last one. */
    uint64_t born;       /* The table's generation when it was registered. */
    enum region_state state;
    uint32_t access;
    struct yb_memory_place place; /* Constant while LIVE or CLOSING: read under a pin. */
    uint32_t registrations;
    uint32_t pins;
    struct yb_region_backing backing;
    uint32_t next_free;
};

#define SLOT_NONE UINT32_MAX

struct yb_region_table {
    uint32_t magic;
    uint32_t regions_max;    /* Immutable. */
    _Atomic uint64_t *words; /* The live words (R5), one per slot: written under the lock, read by
                              * anybody, other processes included. */
    struct yb_lock lock;     /* Protects everything below. */
    pthread_cond_t unpinned; /* The last pin of a CLOSING region is gone. */
    struct yb_region *slots;
    uint64_t *bases;   /* In order of address, `count` of them... */
    uint32_t *ordered; /* ...and the slot that each belongs to. */
    uint32_t count;
    uint32_t slots_used; /* Slots from here on were never used. */
    uint32_t free_head;
    uint64_t first_generation;
    uint64_t generation; /* Of the table: counts changes. */
};

static uint64_t
first_generation(uint64_t random)
{
    return (random >> (64 - GENERATION_FIRST_BITS)) + 1;
}

enum yb_status
yb_region_table_create(uint32_t regions_max, struct yb_region_table **table_out)
{
    struct yb_region_table *table;
    uint64_t random = 0;

    YB_ASSERT(table_out != NULL);
    if (regions_max == 0 || regions_max > YB_REGIONS_MAX) {
        return YB_INVALID;
    }
    table = calloc(1, sizeof(*table));
    if (table == NULL) {
        return YB_NO_MEMORY;
    }
    table->slots = calloc(regions_max, sizeof(*table->slots));
    table->bases = calloc(regions_max, sizeof(*table->bases));
    table->ordered = calloc(regions_max, sizeof(*table->ordered));
    table->words = calloc(regions_max, sizeof(*table->words));
    if (table->slots == NULL || table->bases == NULL || table->ordered == NULL ||
        table->words == NULL) {
        goto err_free_arrays;
    }
    /* Without randomness ids of former processes would look current; too early a boot is the only
     * reason, and the connection's incarnation still tells them apart. */
    if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != (ssize_t)sizeof(random)) {
        random = yb_clock_wall(yb_clock_system());
    }
    table->first_generation = first_generation(random);
    table->regions_max = regions_max;
    table->free_head = SLOT_NONE;
    yb_lock_init(&table->lock, YB_LOCK_REGION);
    yb_lock_cond_init(&table->unpinned);
    table->magic = REGION_TABLE_MAGIC;
    *table_out = table;
    return YB_OK;

err_free_arrays:
    free((void *)(uintptr_t)table->words);
    free(table->ordered);
    free(table->bases);
    free(table->slots);
    free(table);
    return YB_NO_MEMORY;
}

void
yb_region_table_seed(struct yb_region_table *table, uint64_t random)
{
    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    YB_ASSERT(table->slots_used == 0);
    table->first_generation = first_generation(random);
}

void
yb_region_table_destroy(struct yb_region_table **table_ref)
{
    struct yb_region_table *table = *table_ref;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    *table_ref = NULL;
    for (uint32_t i = 0; i < table->slots_used; i++) {
        YB_ASSERT(table->slots[i].pins == 0);
        YB_ASSERT(table->slots[i].state != REGION_CLOSING);
    }
    table->magic = 0;
    YB_ASSERT(pthread_cond_destroy(&table->unpinned) == 0);
    yb_lock_fini(&table->lock);
    free((void *)(uintptr_t)table->words);
    free(table->ordered);
    free(table->bases);
    free(table->slots);
    free(table);
}

/* Return the position of the first region that starts above `address`. */
static uint32_t
position_above_locked(const struct yb_region_table *table, uint64_t address)
{
    uint32_t low = 0;
    uint32_t high = table->count;

    yb_lock_assert_held(&table->lock);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (table->bases[middle] <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static uint64_t
id_of(const struct yb_region_table *table, const struct yb_region *region)
{
    return region->generation << SLOT_BITS | (uint64_t)(region - table->slots);
}

static void
describe_locked(const struct yb_region_table *table, const struct yb_region *region,
                struct yb_region_info *info_out)
{
    yb_lock_assert_held(&table->lock);
    *info_out = (struct yb_region_info){
        .id = id_of(table, region),
        .base = (void *)(uintptr_t)region->base,
        .length = region->length,
        .access = region->access,
        .place = region->place,
        .backing = region->backing,
        .registrations = region->registrations,
        .pins = region->pins,
    };
}

static bool
same_memory(const struct yb_region *region, const struct yb_region_info *wanted)
{
    return region->access == wanted->access && region->place.kind == wanted->place.kind &&
           region->place.index == wanted->place.index && region->backing.fd == wanted->backing.fd &&
           (region->backing.fd < 0 || region->backing.offset == wanted->backing.offset);
}

/* Decide what registering `wanted` means: NULL and OK for a new region, the region to count on and
 * OK, or a refusal (R1). `above` is the position of the first region that starts above it. */
static enum yb_status
judge_locked(const struct yb_region_table *table, const struct yb_region_info *wanted,
             uint32_t above, struct yb_region **same_out)
{
    uint64_t base = (uintptr_t)wanted->base;
    struct yb_region *before = above > 0 ? &table->slots[table->ordered[above - 1]] : NULL;
    struct yb_region *after = above < table->count ? &table->slots[table->ordered[above]] : NULL;
    bool overlaps_before = before != NULL && base - before->base < before->length;
    bool overlaps_after = after != NULL && after->base - base < wanted->length;

    if ((overlaps_before && before->state == REGION_CLOSING) ||
        (overlaps_after && after->state == REGION_CLOSING)) {
        return YB_BUSY;
    }
    if (!overlaps_before && !overlaps_after) {
        *same_out = NULL;
        return YB_OK;
    }
    if (!overlaps_before || before->base != base || before->length != wanted->length ||
        !same_memory(before, wanted)) {
        return YB_EXISTS;
    }
    if (before->registrations == UINT32_MAX) {
        return YB_TOO_LARGE;
    }
    *same_out = before;
    return YB_OK;
}

/* Take a slot for `wanted` and put it at `position` of the order. NULL: all are taken. */
static struct yb_region *
insert_locked(struct yb_region_table *table, const struct yb_region_info *wanted, uint32_t position)
{
    uint32_t slot = table->free_head;
    size_t behind = table->count - position;
    struct yb_region *region;

    yb_lock_assert_held(&table->lock);
    if (slot != SLOT_NONE) {
        table->free_head = table->slots[slot].next_free;
    } else if (table->slots_used < table->regions_max) {
        slot = table->slots_used++;
        table->slots[slot].generation = table->first_generation;
    } else {
        return NULL;
    }
    memmove(&table->bases[position + 1], &table->bases[position], behind * sizeof(*table->bases));
    memmove(&table->ordered[position + 1], &table->ordered[position],
            behind * sizeof(*table->ordered));
    table->bases[position] = (uintptr_t)wanted->base;
    table->ordered[position] = slot;
    table->count++;
    region = &table->slots[slot];
    YB_ASSERT(region->state == REGION_NONE && region->pins == 0);
    region->base = (uintptr_t)wanted->base;
    region->length = wanted->length;
    region->born = table->generation;
    region->state = REGION_LIVE;
    region->access = wanted->access;
    region->place = wanted->place;
    region->backing = wanted->backing;
    region->registrations = 0;
    return region;
}

enum yb_status
yb_region_register(struct yb_region_table *table, const struct yb_region_info *wanted,
                   uint64_t *id_out)
{
    uint64_t base = (uintptr_t)wanted->base;
    struct yb_region *region = NULL;
    enum yb_status status;
    uint32_t above;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    if (base == 0 || wanted->length == 0 || wanted->length > UINTPTR_MAX - base ||
        (wanted->access & ~(YB_REGION_READ | YB_REGION_WRITE)) != 0) {
        return YB_INVALID; /* R4 */
    }
    yb_lock_acquire(&table->lock);
    above = position_above_locked(table, base);
    status = judge_locked(table, wanted, above, &region);
    if (status == YB_OK && region == NULL) {
        region = insert_locked(table, wanted, above);
        status = region == NULL ? YB_TOO_LARGE : YB_OK;
    }
    if (status == YB_OK) {
        region->registrations++;
        table->generation++;
        atomic_store(&table->words[region - table->slots], id_of(table, region)); /* R5 */
        if (id_out != NULL) {
            *id_out = id_of(table, region);
        }
    }
    yb_lock_release(&table->lock);
    return status;
}

/* Return the position of the region that starts exactly at `base`; `count` if there is none. */
static uint32_t
position_at_locked(const struct yb_region_table *table, uint64_t base)
{
    uint32_t above = position_above_locked(table, base);

    return above > 0 && table->bases[above - 1] == base ? above - 1 : table->count;
}

static void
remove_locked(struct yb_region_table *table, struct yb_region *region)
{
    uint32_t position = position_at_locked(table, region->base);
    uint32_t slot = (uint32_t)(region - table->slots);
    size_t behind;

    YB_ASSERT(position < table->count && table->ordered[position] == slot);
    YB_ASSERT(region->pins == 0);
    behind = table->count - position - 1;
    memmove(&table->bases[position], &table->bases[position + 1], behind * sizeof(*table->bases));
    memmove(&table->ordered[position], &table->ordered[position + 1],
            behind * sizeof(*table->ordered));
    table->count--;
    region->state = REGION_NONE;
    region->registrations = 0;
    region->generation++; /* R3 */
    region->next_free = table->free_head;
    table->free_head = slot;
}

/* Close the region and wait for its pins, until it can go away or time is up. */
static enum yb_status
close_locked(struct yb_region_table *table, struct yb_region *region, uint64_t timeout_ns)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t deadline_ns = yb_deadline_after(yb_clock_now(clock), timeout_ns);
    _Atomic uint64_t *word = &table->words[region - table->slots];

    yb_lock_assert_held(&table->lock);
    region->state = REGION_CLOSING;
    atomic_store(word, 0); /* R5 */
    while (region->pins > 0) {
        uint64_t now_ns = yb_clock_now(clock);

        if (now_ns >= deadline_ns) {
            region->state = REGION_LIVE;
            atomic_store(word, id_of(table, region));
            return YB_BUSY;
        }
        yb_lock_wait(&table->lock, &table->unpinned, deadline_ns - now_ns);
    }
    remove_locked(table, region);
    return YB_OK;
}

enum yb_status
yb_region_unregister(struct yb_region_table *table, void *base, uint64_t timeout_ns)
{
    enum yb_status status = YB_OK;
    struct yb_region *region;
    uint32_t position;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    position = position_at_locked(table, (uintptr_t)base);
    if (position == table->count) {
        status = YB_NOT_FOUND;
        goto done;
    }
    region = &table->slots[table->ordered[position]];
    if (region->state == REGION_CLOSING) {
        status = YB_BUSY;
    } else if (region->registrations > 1) {
        region->registrations--;
    } else {
        status = close_locked(table, region, timeout_ns);
    }
    table->generation += status == YB_OK;

done:
    yb_lock_release(&table->lock);
    return status;
}

static enum yb_status
by_id_locked(const struct yb_region_table *table, uint64_t id, struct yb_region **region_out)
{
    uint32_t slot = (uint32_t)id & SLOT_MASK;
    struct yb_region *region;

    yb_lock_assert_held(&table->lock);
    if (slot >= table->slots_used || id >> SLOT_BITS == 0) {
        return YB_NOT_FOUND;
    }
    region = &table->slots[slot];
    if (region->state == REGION_NONE || region->generation != id >> SLOT_BITS) {
        return YB_STALE;
    }
    *region_out = region;
    return region->state == REGION_LIVE ? YB_OK : YB_BUSY;
}

/* Where a batch's look-ups by address stand: the position that the last one found. */
struct cursor {
    uint32_t position;
};

static bool
holds(const struct yb_region_table *table, uint32_t position, uint64_t address)
{
    return position < table->count &&
           address - table->bases[position] < table->slots[table->ordered[position]].length;
}

/* Find the region that holds `address`: that of the last range, the next one, or by a search. */
static enum yb_status
by_address_locked(const struct yb_region_table *table, uint64_t address, struct cursor *cursor,
                  struct yb_region **region_out)
{
    struct yb_region *region;

    yb_lock_assert_held(&table->lock);
    if (!holds(table, cursor->position, address)) {
        if (holds(table, cursor->position + 1, address)) {
            cursor->position++;
        } else {
            cursor->position = position_above_locked(table, address) - 1;
        }
        if (!holds(table, cursor->position, address)) {
            return YB_NOT_FOUND;
        }
    }
    region = &table->slots[table->ordered[cursor->position]];
    *region_out = region;
    return region->state == REGION_LIVE ? YB_OK : YB_BUSY;
}

/* Resolve one range that is not empty and pin its region. */
static enum yb_status
pin_locked(struct yb_region_table *table, struct yb_region_range *range, uint32_t access,
           struct cursor *cursor)
{
    bool by_address = range->region == YB_REGION_BY_ADDRESS;
    struct yb_region *region = NULL;
    uint64_t offset = range->offset;
    enum yb_status status = by_address ? by_address_locked(table, offset, cursor, &region)
                                       : by_id_locked(table, range->region, &region);

    if (status != YB_OK) {
        return status;
    }
    offset -= by_address ? region->base : 0;
    if (offset > region->length || range->length > region->length - offset) {
        return YB_INVALID; /* R2, R4 */
    }
    if ((access & ~region->access) != 0) {
        return YB_DENIED;
    }
    if (region->pins == UINT32_MAX) {
        return YB_AGAIN;
    }
    region->pins++;
    range->pinned = region;
    range->bytes = (void *)(uintptr_t)(region->base + offset);
    return YB_OK;
}

uint32_t
yb_region_pin(struct yb_region_table *table, struct yb_region_range *ranges, uint32_t count,
              uint32_t access)
{
    struct cursor cursor = {0};
    uint32_t failed = 0;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < count; i++) {
        ranges[i].pinned = NULL;
        ranges[i].bytes = NULL;
        ranges[i].status =
            ranges[i].length == 0 ? YB_OK : pin_locked(table, &ranges[i], access, &cursor);
        failed += ranges[i].status != YB_OK;
    }
    yb_lock_release(&table->lock);
    return failed;
}

void
yb_region_unpin(struct yb_region_table *table, struct yb_region_range *ranges, uint32_t count)
{
    bool wake = false;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < count; i++) {
        struct yb_region *region = ranges[i].pinned;

        if (region == NULL) {
            continue;
        }
        YB_ASSERT(region->pins > 0);
        region->pins--;
        wake |= region->pins == 0 && region->state == REGION_CLOSING;
        ranges[i].pinned = NULL;
    }
    if (wake) {
        YB_ASSERT(pthread_cond_broadcast(&table->unpinned) == 0);
    }
    yb_lock_release(&table->lock);
}

struct yb_memory_place
yb_region_place(const struct yb_region *pinned)
{
    YB_ASSERT(pinned != NULL);
    return pinned->place;
}

enum yb_status
yb_region_find(struct yb_region_table *table, const void *address, uint64_t length,
               struct yb_region_info *info_out)
{
    struct cursor cursor = {0};
    struct yb_region *region = NULL;
    enum yb_status status;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    status = by_address_locked(table, (uintptr_t)address, &cursor, &region);
    if (status != YB_OK || length == 0 ||
        length > region->length - ((uintptr_t)address - region->base)) {
        status = YB_NOT_FOUND;
    } else {
        describe_locked(table, region, info_out);
    }
    yb_lock_release(&table->lock);
    return status;
}

enum yb_status
yb_region_get(struct yb_region_table *table, uint64_t id, struct yb_region_info *info_out)
{
    struct yb_region *region = NULL;
    enum yb_status status;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    status = by_id_locked(table, id, &region);
    if (status == YB_OK) {
        describe_locked(table, region, info_out);
    }
    yb_lock_release(&table->lock);
    return status;
}

uint32_t
yb_region_list(struct yb_region_table *table, struct yb_region_info *infos_out, uint32_t room)
{
    uint32_t live = 0;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct yb_region *region = &table->slots[table->ordered[i]];

        if (region->state != REGION_LIVE) {
            continue;
        }
        if (live < room) {
            describe_locked(table, region, &infos_out[live]);
        }
        live++;
    }
    yb_lock_release(&table->lock);
    return live;
}

enum yb_status
yb_region_first(struct yb_region_table *table, struct yb_region_info *info_out)
{
    const struct yb_region *first = NULL;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct yb_region *region = &table->slots[table->ordered[i]];

        if (region->state == REGION_LIVE && (first == NULL || region->born < first->born)) {
            first = region;
        }
    }
    if (first != NULL) {
        describe_locked(table, first, info_out);
    }
    yb_lock_release(&table->lock);
    return first != NULL ? YB_OK : YB_NOT_FOUND;
}

uint64_t
yb_region_table_generation(struct yb_region_table *table)
{
    uint64_t generation;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    yb_lock_acquire(&table->lock);
    generation = table->generation;
    yb_lock_release(&table->lock);
    return generation;
}

const _Atomic uint64_t *
yb_region_live_word(const struct yb_region_table *table, uint64_t id)
{
    uint32_t slot = (uint32_t)id & SLOT_MASK;

    YB_ASSERT_OBJ(table, REGION_TABLE_MAGIC);
    return slot < table->regions_max ? &table->words[slot] : NULL;
}
