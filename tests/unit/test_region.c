/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants R1 to R5 of memory/region.h, under threads too.
 * Method: short cases at the borders; a random walk against an array that is searched from end to
 * end; threads that pin while another unregisters and then writes, which ThreadSanitizer watches.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "memory/region.h"

#define PAGE 4096ull
#define BASE 0x10000000ull

static struct yb_region_table *
table_of(uint32_t regions_max)
{
    struct yb_region_table *table = NULL;

    assert_int_equal(yb_region_table_create(regions_max, &table), YB_OK);
    return table;
}

static struct yb_region_info
memory_at(uint64_t base, uint64_t length, uint32_t access)
{
    return (struct yb_region_info){
        .base = (void *)(uintptr_t)base, .length = length, .access = access, .backing = {-1, 0}};
}

static enum yb_status
put(struct yb_region_table *table, uint64_t base, uint64_t length, uint32_t access,
    uint64_t *id_out)
{
    struct yb_region_info wanted = memory_at(base, length, access);

    return yb_region_register(table, &wanted, id_out);
}

static enum yb_status
drop(struct yb_region_table *table, uint64_t base)
{
    return yb_region_unregister(table, (void *)(uintptr_t)base, 0);
}

/* Pin one range and give it back; returns its status. */
static enum yb_status
try_pin(struct yb_region_table *table, uint64_t region, uint64_t offset, uint64_t length,
        uint32_t access)
{
    struct yb_region_range range = {.region = region, .offset = offset, .length = length};

    uint32_t failed = yb_region_pin(table, &range, 1, access);

    assert_int_equal(failed, range.status != YB_OK);
    assert_true((range.pinned != NULL) == (range.status == YB_OK && length > 0));
    yb_region_unpin(table, &range, 1);
    assert_null(range.pinned);
    return range.status;
}

static void
test_region__the_same_range_again_only_counts(void **state)
{
    struct yb_region_table *table = table_of(8);
    struct yb_region_info info;
    uint64_t id;
    uint64_t again;

    (void)state;
    assert_int_equal(put(table, BASE, 1000000007, YB_REGION_READ, &id), YB_OK);
    assert_int_equal(put(table, BASE, 1000000007, YB_REGION_READ, &again), YB_OK);
    assert_true(id == again);
    assert_int_equal(yb_region_get(table, id, &info), YB_OK);
    assert_int_equal(info.registrations, 2);
    assert_int_equal(drop(table, BASE), YB_OK);
    assert_int_equal(try_pin(table, id, 1000000006, 1, YB_REGION_READ), YB_OK);
    assert_int_equal(drop(table, BASE), YB_OK);
    assert_int_equal(drop(table, BASE), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, id, 0, 1, YB_REGION_READ), YB_STALE);
    yb_region_table_destroy(&table);
    assert_null(table);
}

static void
test_region__overlaps_are_refused_and_neighbours_are_fine(void **state)
{
    struct yb_region_table *table = table_of(8);
    struct yb_region_info other = memory_at(BASE, PAGE, YB_REGION_READ);

    (void)state;
    assert_int_equal(put(table, BASE, PAGE, YB_REGION_READ, NULL), YB_OK);
    assert_int_equal(put(table, BASE, PAGE - 1, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE, PAGE + 1, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE + 1, 1, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE + PAGE - 1, PAGE, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE - 1, 2, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE - PAGE, 3 * PAGE, YB_REGION_READ, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE, PAGE, YB_REGION_WRITE, NULL), YB_EXISTS);
    other.place.kind = YB_MEMORY_CUDA;
    assert_int_equal(yb_region_register(table, &other, NULL), YB_EXISTS);
    other.place.kind = YB_MEMORY_HOST;
    other.backing.fd = 3;
    assert_int_equal(yb_region_register(table, &other, NULL), YB_EXISTS);
    assert_int_equal(put(table, BASE - PAGE, PAGE, 0, NULL), YB_OK);
    assert_int_equal(put(table, BASE + PAGE, PAGE, 0, NULL), YB_OK);
    assert_int_equal(yb_region_list(table, NULL, 0), 3);
    yb_region_table_destroy(&table);
}

static void
test_region__nonsense_is_refused(void **state)
{
    struct yb_region_table *table = NULL;

    (void)state;
    assert_int_equal(yb_region_table_create(0, &table), YB_INVALID);
    assert_int_equal(yb_region_table_create(YB_REGIONS_MAX + 1, &table), YB_INVALID);
    table = table_of(1);
    assert_int_equal(put(table, BASE, 0, 0, NULL), YB_INVALID);
    assert_int_equal(put(table, 0, PAGE, 0, NULL), YB_INVALID);
    assert_int_equal(put(table, BASE, UINT64_MAX, 0, NULL), YB_INVALID);
    assert_int_equal(put(table, UINT64_MAX - 10, 100, 0, NULL), YB_INVALID);
    assert_int_equal(put(table, BASE, PAGE, 4, NULL), YB_INVALID);
    assert_int_equal(put(table, BASE, PAGE, 0, NULL), YB_OK);
    assert_int_equal(put(table, BASE + PAGE, PAGE, 0, NULL), YB_TOO_LARGE);
    assert_int_equal(drop(table, BASE + 1), YB_NOT_FOUND);
    assert_int_equal(drop(table, BASE), YB_OK);
    assert_int_equal(put(table, BASE + PAGE, PAGE, 0, NULL), YB_OK);
    yb_region_table_destroy(&table);
}

static void
test_region__numbers_of_peers_never_leave_the_region(void **state)
{
    struct yb_region_table *table = table_of(8);
    const uint32_t both = YB_REGION_READ | YB_REGION_WRITE;
    const uint64_t by = YB_REGION_BY_ADDRESS;
    uint64_t id;

    (void)state;
    assert_int_equal(put(table, BASE, PAGE, both, &id), YB_OK);
    assert_int_equal(put(table, BASE + PAGE, PAGE, YB_REGION_READ, NULL), YB_OK);
    assert_int_equal(try_pin(table, id, 0, PAGE, both), YB_OK);
    assert_int_equal(try_pin(table, id, PAGE - 1, 1, both), YB_OK);
    assert_int_equal(try_pin(table, id, 0, PAGE + 1, both), YB_INVALID);
    assert_int_equal(try_pin(table, id, PAGE, 1, both), YB_INVALID);
    assert_int_equal(try_pin(table, id, 1, UINT64_MAX, both), YB_INVALID);
    assert_int_equal(try_pin(table, id, UINT64_MAX, 1, both), YB_INVALID);
    assert_int_equal(try_pin(table, id, UINT64_MAX - 7, 16, both), YB_INVALID);
    assert_int_equal(try_pin(table, by, BASE, PAGE, both), YB_OK);
    assert_int_equal(try_pin(table, by, BASE + PAGE - 1, 1, both), YB_OK);
    assert_int_equal(try_pin(table, by, BASE + PAGE - 1, 2, YB_REGION_READ), YB_INVALID);
    assert_int_equal(try_pin(table, by, BASE - 1, 2, both), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, by, BASE + 2 * PAGE, 1, 0), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, by, 0, UINT64_MAX, both), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, by, UINT64_MAX, 1, both), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, by, BASE + 1, UINT64_MAX, both), YB_INVALID);
    assert_int_equal(try_pin(table, by, BASE + PAGE, 1, YB_REGION_WRITE), YB_DENIED);
    assert_int_equal(try_pin(table, by, BASE + PAGE, 1, both), YB_DENIED);
    assert_int_equal(try_pin(table, by, BASE + PAGE, 1, 0), YB_OK);
    assert_int_equal(try_pin(table, 0, 0, 1, both), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, id ^ 0xfffff, 0, 1, both), YB_NOT_FOUND);
    assert_int_equal(try_pin(table, id + (1 << 20), 0, 1, both), YB_STALE);
    assert_int_equal(try_pin(table, id, UINT64_MAX, 0, both), YB_OK);
    yb_region_table_destroy(&table);
}

static void
test_region__an_id_is_never_given_again_and_the_live_word_follows(void **state)
{
    struct yb_region_table *table = table_of(2);
    struct yb_region_info info;
    uint64_t seen[64];

    (void)state;
    for (int i = 0; i < 64; i++) {
        const _Atomic uint64_t *word;
        uint64_t generation = yb_region_table_generation(table);

        assert_int_equal(put(table, BASE, PAGE, 0, &seen[i]), YB_OK);
        assert_true(seen[i] != 0 && seen[i] != YB_REGION_BY_ADDRESS);
        word = yb_region_live_word(table, seen[i]);
        assert_non_null(word);
        assert_true(atomic_load(word) == seen[i]);
        for (int j = 0; j < i; j++) {
            assert_true(seen[i] != seen[j]);
            assert_int_equal(try_pin(table, seen[j], 0, 1, 0), YB_STALE);
            assert_int_equal(yb_region_get(table, seen[j], &info), YB_STALE);
        }
        assert_true(yb_region_table_generation(table) != generation);
        assert_int_equal(drop(table, BASE), YB_OK);
        assert_true(atomic_load(word) != seen[i]);
    }
    assert_null(yb_region_live_word(table, 5));
    yb_region_table_destroy(&table);
}

static void
test_region__each_range_of_a_batch_stands_for_itself(void **state)
{
    struct yb_region_table *table = table_of(8);
    struct yb_region_range ranges[] = {
        {.region = YB_REGION_BY_ADDRESS, .offset = BASE + 5, .length = 7},
        {.region = YB_REGION_BY_ADDRESS, .offset = BASE + 100, .length = 7},
        {.region = YB_REGION_BY_ADDRESS, .offset = BASE + PAGE, .length = 1},
        {.region = YB_REGION_BY_ADDRESS, .offset = 1, .length = 1},
        {.region = 0, .offset = 0, .length = 0},
        {.region = YB_REGION_BY_ADDRESS, .offset = BASE, .length = 1},
    };
    struct yb_region_info info;
    uint64_t id;

    (void)state;
    assert_int_equal(put(table, BASE, PAGE, YB_REGION_READ, &id), YB_OK);
    assert_int_equal(put(table, BASE + PAGE, PAGE, YB_REGION_READ, NULL), YB_OK);
    assert_int_equal(yb_region_pin(table, ranges, 6, YB_REGION_READ), 1);
    assert_true(ranges[0].bytes == (void *)(uintptr_t)(BASE + 5));
    assert_true(ranges[2].bytes == (void *)(uintptr_t)(BASE + PAGE));
    assert_int_equal(ranges[3].status, YB_NOT_FOUND);
    assert_null(ranges[3].pinned);
    assert_int_equal(ranges[4].status, YB_OK);
    assert_null(ranges[4].pinned);
    assert_ptr_equal(ranges[5].pinned, ranges[0].pinned);
    assert_int_equal(yb_region_place(ranges[0].pinned).kind, YB_MEMORY_HOST);
    assert_int_equal(yb_region_get(table, id, &info), YB_OK);
    assert_int_equal(info.pins, 3);
    assert_int_equal(drop(table, BASE), YB_BUSY);
    assert_int_equal(yb_region_get(table, id, &info), YB_OK);
    assert_true(info.id == id && atomic_load(yb_region_live_word(table, id)) == id);
    yb_region_unpin(table, ranges, 6);
    assert_int_equal(drop(table, BASE), YB_OK);
    assert_int_equal(drop(table, BASE + PAGE), YB_OK);
    yb_region_table_destroy(&table);
}

static void
test_region__65536_neighbours_are_each_found(void **state)
{
    enum { REGIONS = 65536 };
    struct yb_region_table *table = table_of(REGIONS);
    uint64_t random = unit_seed("neighbours");
    struct yb_region_range *ranges = calloc(REGIONS, sizeof(*ranges));
    uint32_t *order = calloc(REGIONS, sizeof(*order));

    (void)state;
    for (uint32_t i = 0; i < REGIONS; i++) {
        uint32_t other = (uint32_t)(unit_random(&random) % (i + 1));

        order[i] = order[other];
        order[other] = i;
    }
    for (uint32_t i = 0; i < REGIONS; i++) {
        assert_int_equal(put(table, BASE + order[i] * PAGE, PAGE, YB_REGION_READ, NULL), YB_OK);
        ranges[i] = (struct yb_region_range){
            .region = YB_REGION_BY_ADDRESS, .offset = BASE + i * PAGE + i % PAGE, .length = 1};
    }
    assert_int_equal(put(table, BASE - PAGE, PAGE, 0, NULL), YB_TOO_LARGE);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(yb_region_pin(table, ranges, REGIONS, YB_REGION_READ), 0);
        for (uint32_t i = 0; i < REGIONS; i++) {
            struct yb_region_info info;

            assert_true(ranges[i].bytes == (void *)(uintptr_t)ranges[i].offset);
            assert_int_equal(yb_region_find(table, ranges[i].bytes, 1, &info), YB_OK);
            assert_true(((uintptr_t)info.base - BASE) % PAGE == 0 && info.length == PAGE);
            assert_int_equal(info.pins, 1);
        }
        yb_region_unpin(table, ranges, REGIONS);
        for (uint32_t i = 0; i < REGIONS; i++) { /* The second round asks in a random order. */
            ranges[i].offset = BASE + order[i] * PAGE + order[i] % PAGE;
        }
    }
    for (uint32_t i = 0; i < REGIONS; i++) {
        assert_int_equal(drop(table, BASE + order[i] * PAGE), YB_OK);
    }
    assert_int_equal(yb_region_list(table, NULL, 0), 0);
    free(order);
    free(ranges);
    yb_region_table_destroy(&table);
}

struct waiter {
    struct yb_region_table *table;
    enum yb_status status;
};

static void *
unregister_for_ever(void *owner)
{
    struct waiter *waiter = owner;

    waiter->status = yb_region_unregister(waiter->table, (void *)(uintptr_t)BASE, YB_NEVER);
    return NULL;
}

static void
test_region__unregister_waits_and_lets_nothing_new_in(void **state)
{
    struct waiter waiter = {.table = table_of(4), .status = YB_AGAIN};
    struct yb_region_range range = {.length = 1};
    struct yb_region_info info;
    pthread_t thread;
    uint64_t id;

    (void)state;
    assert_int_equal(put(waiter.table, BASE, PAGE, YB_REGION_READ, &id), YB_OK);
    range.region = id;
    assert_int_equal(yb_region_pin(waiter.table, &range, 1, 0), 0);
    assert_int_equal(yb_region_unregister(waiter.table, (void *)(uintptr_t)BASE, 1000), YB_BUSY);
    assert_int_equal(try_pin(waiter.table, id, 0, 1, 0), YB_OK);
    assert_int_equal(pthread_create(&thread, NULL, unregister_for_ever, &waiter), 0);
    while (try_pin(waiter.table, id, 0, 1, 0) != YB_BUSY) {
        sched_yield();
    }
    assert_true(atomic_load(yb_region_live_word(waiter.table, id)) == 0);
    assert_int_equal(try_pin(waiter.table, YB_REGION_BY_ADDRESS, BASE, 1, 0), YB_BUSY);
    assert_int_equal(put(waiter.table, BASE, PAGE, YB_REGION_READ, NULL), YB_BUSY);
    assert_int_equal(put(waiter.table, BASE + 1, PAGE, YB_REGION_READ, NULL), YB_BUSY);
    assert_int_equal(drop(waiter.table, BASE), YB_BUSY);
    assert_int_equal(yb_region_get(waiter.table, id, &info), YB_BUSY);
    assert_int_equal(yb_region_find(waiter.table, (void *)(uintptr_t)BASE, 1, &info), YB_NOT_FOUND);
    assert_int_equal(yb_region_list(waiter.table, &info, 1), 0);
    yb_region_unpin(waiter.table, &range, 1);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(waiter.status, YB_OK);
    assert_int_equal(try_pin(waiter.table, id, 0, 1, 0), YB_STALE);
    yb_region_table_destroy(&waiter.table);
}

/* ---- the walk ------------------------------------------------------------------------------ */

#define CELLS   64u
#define MODEL   24u
#define BATCHES 8u

struct model_region {
    uint64_t base; /* 0: free. */
    uint64_t length;
    uint32_t access;
    uint32_t registrations;
    uint32_t pins;
    uint64_t id;
};

struct walk {
    struct yb_region_table *table;
    uint64_t random;
    struct model_region model[MODEL];
    uint64_t old_ids[16];
    struct yb_region_range batches[BATCHES][4];
    uint32_t batch_counts[BATCHES];
};

static uint32_t
below(struct walk *walk, uint32_t limit)
{
    return (uint32_t)(unit_random(&walk->random) >> 33) % limit;
}

static struct model_region *
model_at(struct walk *walk, uint64_t address)
{
    for (uint32_t i = 0; i < MODEL; i++) {
        struct model_region *region = &walk->model[i];

        if (region->base != 0 && address >= region->base &&
            address < region->base + region->length) {
            return region;
        }
    }
    return NULL;
}

static void
walk_register(struct walk *walk)
{
    struct model_region wanted = {.base = BASE + below(walk, CELLS) * PAGE,
                                  .length = (1 + below(walk, 4)) * PAGE,
                                  .access = below(walk, 4)};
    struct model_region *same = NULL;
    struct model_region *room = NULL;
    enum yb_status expected = YB_OK;
    uint64_t id;

    for (uint32_t i = 0; i < MODEL; i++) {
        struct model_region *region = &walk->model[i];

        if (region->base == 0) {
            room = region;
        } else if (region->base == wanted.base && region->length == wanted.length &&
                   region->access == wanted.access) {
            same = region;
        } else if (region->base < wanted.base + wanted.length &&
                   wanted.base < region->base + region->length) {
            expected = YB_EXISTS;
        }
    }
    if (expected == YB_OK && same == NULL && room == NULL) {
        expected = YB_TOO_LARGE;
    }
    assert_int_equal(put(walk->table, wanted.base, wanted.length, wanted.access, &id), expected);
    if (expected == YB_OK && same == NULL) {
        *room = wanted;
        room->id = id;
        same = room;
    }
    if (expected == YB_OK) {
        assert_true(same->id == id);
        same->registrations++;
    }
}

static void
walk_unregister(struct walk *walk)
{
    struct model_region *region = &walk->model[below(walk, MODEL)];
    uint64_t base = region->base != 0 ? region->base : BASE - PAGE;
    enum yb_status expected = region->base == 0 ? YB_NOT_FOUND : YB_OK;

    if (region->registrations == 1 && region->pins > 0) {
        expected = YB_BUSY;
    }
    assert_int_equal(drop(walk->table, base), expected);
    if (expected == YB_OK && --region->registrations == 0) {
        walk->old_ids[below(walk, 16)] = region->id;
        memset(region, 0, sizeof(*region));
    }
}

static enum yb_status
expected_of(struct walk *walk, const struct yb_region_range *range, uint32_t access,
            struct model_region **region_out)
{
    struct model_region *region = NULL;
    uint64_t offset = range->offset;

    *region_out = NULL;
    if (range->length == 0) {
        return YB_OK;
    }
    if (range->region == YB_REGION_BY_ADDRESS) {
        region = model_at(walk, offset);
        if (region == NULL) {
            return YB_NOT_FOUND;
        }
        offset -= region->base;
    }
    for (uint32_t i = 0; i < MODEL && region == NULL; i++) {
        region =
            walk->model[i].base != 0 && walk->model[i].id == range->region ? &walk->model[i] : NULL;
    }
    if (region == NULL) {
        return range->region == 0 ? YB_NOT_FOUND : YB_STALE;
    }
    if (offset + range->length > region->length) {
        return YB_INVALID;
    }
    *region_out = region;
    return (access & ~region->access) != 0 ? YB_DENIED : YB_OK;
}

static void
walk_pin(struct walk *walk)
{
    uint32_t batch = below(walk, BATCHES);
    struct yb_region_range *ranges = walk->batches[batch];
    uint32_t access = below(walk, 4);
    uint32_t failed = 0;
    uint32_t refused;

    if (walk->batch_counts[batch] > 0) {
        return;
    }
    walk->batch_counts[batch] = 1 + below(walk, 4);
    for (uint32_t i = 0; i < walk->batch_counts[batch]; i++) {
        uint32_t how = below(walk, 8);

        ranges[i].region = how < 4   ? YB_REGION_BY_ADDRESS
                           : how < 7 ? walk->model[below(walk, MODEL)].id
                                     : walk->old_ids[below(walk, 16)];
        ranges[i].offset = how < 4 ? BASE + below(walk, CELLS * 4096) : below(walk, 5 * 4096);
        ranges[i].length = below(walk, 3 * 4096);
    }
    refused = yb_region_pin(walk->table, ranges, walk->batch_counts[batch], access);
    for (uint32_t i = 0; i < walk->batch_counts[batch]; i++) {
        struct model_region *region;
        enum yb_status expected = expected_of(walk, &ranges[i], access, &region);

        assert_int_equal(ranges[i].status, expected);
        failed += expected != YB_OK;
        if (expected == YB_OK && region != NULL) {
            uint64_t offset = ranges[i].offset;

            offset += ranges[i].region == YB_REGION_BY_ADDRESS ? 0 : region->base;
            assert_true(ranges[i].bytes == (void *)(uintptr_t)offset);
            region->pins++;
        }
    }
    assert_int_equal(refused, failed);
}

static void
walk_unpin(struct walk *walk)
{
    uint32_t batch = below(walk, BATCHES);

    for (uint32_t i = 0; i < walk->batch_counts[batch]; i++) {
        if (walk->batches[batch][i].pinned != NULL) {
            model_at(walk, (uintptr_t)walk->batches[batch][i].bytes)->pins--;
        }
    }
    yb_region_unpin(walk->table, walk->batches[batch], walk->batch_counts[batch]);
    walk->batch_counts[batch] = 0;
}

static void
walk_compare(struct walk *walk)
{
    struct yb_region_info infos[MODEL];
    uint32_t count = yb_region_list(walk->table, infos, MODEL);
    uint32_t expected = 0;

    for (uint32_t i = 0; i < MODEL; i++) {
        expected += walk->model[i].base != 0;
    }
    assert_int_equal(count, expected);
    for (uint32_t i = 0; i < count; i++) {
        const struct model_region *region = model_at(walk, (uintptr_t)infos[i].base);

        assert_non_null(region);
        assert_true(region->base == (uintptr_t)infos[i].base && region->id == infos[i].id);
        assert_true(region->length == infos[i].length && region->access == infos[i].access);
        assert_int_equal(region->registrations, infos[i].registrations);
        assert_int_equal(region->pins, infos[i].pins);
        assert_true(i == 0 || (uintptr_t)infos[i - 1].base < (uintptr_t)infos[i].base);
        assert_true(atomic_load(yb_region_live_word(walk->table, region->id)) == region->id);
    }
}

static void
test_region__a_random_walk_agrees_with_a_plain_array(void **state)
{
    struct walk *walk = calloc(1, sizeof(*walk));

    (void)state;
    walk->table = table_of(MODEL);
    walk->random = unit_seed("region walk");
    for (int step = 0; step < 200000; step++) {
        switch (below(walk, 6)) {
        case 0: walk_register(walk); break;
        case 1: walk_unregister(walk); break;
        case 2:
        case 3: walk_pin(walk); break;
        case 4: walk_unpin(walk); break;
        default:
            if (step % 16 == 0) {
                walk_compare(walk);
            }
            break;
        }
    }
    for (uint32_t i = 0; i < BATCHES; i++) {
        yb_region_unpin(walk->table, walk->batches[i], walk->batch_counts[i]);
    }
    yb_region_table_destroy(&walk->table);
    free(walk);
}

/* ---- threads ------------------------------------------------------------------------------- */

#define PINNERS 3

struct crowd {
    struct yb_region_table *table;
    uint64_t bytes[4][8]; /* Four regions; the memory itself is what must not be raced for. */
    _Atomic bool over;
};

struct pinner {
    struct crowd *crowd;
    uint32_t number; /* Also the word of each region that only this thread touches. */
    uint64_t pinned;
};

static void *
pin_for_a_while(void *owner)
{
    struct pinner *pinner = owner;
    struct crowd *crowd = pinner->crowd;

    while (!atomic_load(&crowd->over)) {
        struct yb_region_range ranges[4];

        for (uint32_t i = 0; i < 4; i++) {
            ranges[i] =
                (struct yb_region_range){.region = YB_REGION_BY_ADDRESS,
                                         .offset = (uintptr_t)&crowd->bytes[i][pinner->number],
                                         .length = sizeof(uint64_t)};
        }
        yb_region_pin(crowd->table, ranges, 4, YB_REGION_WRITE);
        for (uint32_t i = 0; i < 4; i++) {
            if (ranges[i].pinned != NULL) {
                uint64_t *word = ranges[i].bytes;

                (*word)++; /* Plain: a race with the owner's writes would be seen. */
                pinner->pinned++;
            }
        }
        yb_region_unpin(crowd->table, ranges, 4);
        sched_yield();
    }
    return NULL;
}

static void
test_region__memory_is_its_owners_alone_after_unregister(void **state)
{
    struct crowd *crowd = calloc(1, sizeof(*crowd));
    struct pinner pinners[PINNERS];
    pthread_t threads[PINNERS];
    uint64_t pinned = 0;

    (void)state;
    crowd->table = table_of(4);
    for (uint32_t i = 0; i < PINNERS; i++) {
        pinners[i] = (struct pinner){crowd, i, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, pin_for_a_while, &pinners[i]), 0);
    }
    for (int round = 0; round < 4000; round++) {
        uint64_t *bytes = crowd->bytes[round % 4];

        assert_int_equal(
            put(crowd->table, (uintptr_t)bytes, sizeof(crowd->bytes[0]), YB_REGION_WRITE, NULL),
            YB_OK);
        sched_yield();
        assert_int_equal(yb_region_unregister(crowd->table, bytes, YB_NEVER), YB_OK);
        memset(bytes, 0, sizeof(crowd->bytes[0]));
    }
    atomic_store(&crowd->over, true);
    for (uint32_t i = 0; i < PINNERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        pinned += pinners[i].pinned;
    }
    for (uint32_t i = 0; i < 4; i++) {
        for (uint32_t j = 0; j < 8; j++) {
            assert_true(crowd->bytes[i][j] == 0);
        }
    }
    printf("pinned %llu times\n", (unsigned long long)pinned);
    yb_region_table_destroy(&crowd->table);
    free(crowd);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_region__the_same_range_again_only_counts),
        cmocka_unit_test(test_region__overlaps_are_refused_and_neighbours_are_fine),
        cmocka_unit_test(test_region__nonsense_is_refused),
        cmocka_unit_test(test_region__numbers_of_peers_never_leave_the_region),
        cmocka_unit_test(test_region__an_id_is_never_given_again_and_the_live_word_follows),
        cmocka_unit_test(test_region__each_range_of_a_batch_stands_for_itself),
        cmocka_unit_test(test_region__65536_neighbours_are_each_found),
        cmocka_unit_test(test_region__unregister_waits_and_lets_nothing_new_in),
        cmocka_unit_test(test_region__a_random_walk_agrees_with_a_plain_array),
        cmocka_unit_test(test_region__memory_is_its_owners_alone_after_unregister),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
