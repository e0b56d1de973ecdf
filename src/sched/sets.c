/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of holders, each stored once.
 */
#include "sched/sets.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define PIECE_SHIFT  2u /* The smallest piece holds 1 << PIECE_SHIFT members. */
#define BYTES_OF_SET (sizeof(struct yb_sched_set) + (4 * sizeof(uint32_t)) + sizeof(uint32_t))

/* The finaliser of splitmix64: members become numbers whose sums hardly ever meet. */
static uint64_t
hash_of(uint32_t member)
{
    uint64_t x = member + 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint32_t
class_of(uint32_t count)
{
    uint32_t piece = 0;

    while ((count >> (piece + PIECE_SHIFT)) > 0 && count != 1u << (piece + PIECE_SHIFT)) {
        piece++;
    }
    YB_ASSERT(piece < YB_SCHED_SETS_CLASSES);
    return piece;
}

enum yb_status
yb_sched_sets_init(struct yb_sched_sets *sets, uint64_t bytes)
{
    uint64_t set_max = bytes / BYTES_OF_SET / 2;
    uint64_t arena_max;
    uint64_t buckets = 16;

    memset(sets, 0, sizeof(*sets));
    set_max = set_max < 16 ? 16 : set_max > (1u << 28) ? 1u << 28 : set_max;
    while (buckets < set_max) {
        buckets *= 2;
    }
    arena_max = (bytes - bytes / 2) / sizeof(uint32_t);
    arena_max = arena_max < 1024 ? 1024 : arena_max > (1u << 31) ? 1u << 31 : arena_max;
    sets->sets = calloc(set_max + 1, sizeof(*sets->sets));
    sets->buckets = calloc(buckets, sizeof(*sets->buckets));
    sets->arena = calloc(arena_max, sizeof(*sets->arena));
    if (sets->sets == NULL || sets->buckets == NULL || sets->arena == NULL) {
        yb_sched_sets_fini(sets);
        return YB_NO_MEMORY;
    }
    sets->set_max = (uint32_t)set_max;
    sets->bucket_mask = (uint32_t)(buckets - 1);
    sets->arena_max = (uint32_t)arena_max;
    return YB_OK;
}

void
yb_sched_sets_fini(struct yb_sched_sets *sets)
{
    free(sets->sets);
    free(sets->buckets);
    free(sets->arena);
    memset(sets, 0, sizeof(*sets));
}

const uint32_t *
yb_sched_sets_members(const struct yb_sched_sets *sets, uint32_t set, uint32_t *count_out)
{
    YB_ASSERT(set <= sets->set_used);
    *count_out = sets->sets[set].count;
    return &sets->arena[sets->sets[set].first];
}

/* Return where `place` is in the members, or would be. */
static uint32_t
position_of(const uint32_t *members, uint32_t count, uint32_t place)
{
    uint32_t low = 0;
    uint32_t high = count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (members[middle] >> YB_SCHED_SETS_TIER_BITS < place) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint32_t
yb_sched_sets_tiers(const struct yb_sched_sets *sets, uint32_t set, uint32_t place)
{
    uint32_t count;
    const uint32_t *members = yb_sched_sets_members(sets, set, &count);
    uint32_t position = position_of(members, count, place);

    if (position == count || members[position] >> YB_SCHED_SETS_TIER_BITS != place) {
        return 0;
    }
    return members[position] & YB_SCHED_SETS_TIER_MASK;
}

/* ---- room ------------------------------------------------------------------------------------ */

static void
piece_give(struct yb_sched_sets *sets, uint32_t first, uint32_t piece)
{
    sets->arena[first] = sets->arena_free[piece];
    sets->arena_free[piece] = first + 1;
}

/* Return a free piece; UINT32_MAX: there is none. */
static uint32_t
piece_take(struct yb_sched_sets *sets, uint32_t piece)
{
    uint32_t length = 1u << (piece + PIECE_SHIFT);
    uint32_t larger = piece;
    uint32_t first;

    while (larger < YB_SCHED_SETS_CLASSES && sets->arena_free[larger] == 0) {
        larger++;
    }
    if (larger != piece && sets->arena_max - sets->arena_used >= length) {
        first = sets->arena_used;
        sets->arena_used += length;
        return first;
    }
    if (larger == YB_SCHED_SETS_CLASSES) {
        return UINT32_MAX;
    }
    first = sets->arena_free[larger] - 1;
    sets->arena_free[larger] = sets->arena[first];
    while (larger > piece) {
        larger--;
        piece_give(sets, first + (1u << (larger + PIECE_SHIFT)), larger);
    }
    return first;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* What is to become of a set: its members, with `insert` (0: nothing) at `at`, and `skip` of the
 * old ones left out there. */
struct change {
    const uint32_t *old;
    uint32_t old_count;
    uint32_t at;
    uint32_t skip;
    uint32_t insert;
    uint32_t count;
    uint64_t hash;
};

static bool
is_wanted(const struct yb_sched_sets *sets, const struct yb_sched_set *set,
          const struct change *change)
{
    const uint32_t *members = &sets->arena[set->first];
    uint32_t kept = change->at + (change->insert != 0);
    size_t tail = change->old_count - change->at - change->skip;

    return set->hash == change->hash && set->count == change->count &&
           memcmp(members, change->old, change->at * sizeof(*members)) == 0 &&
           (change->insert == 0 || members[change->at] == change->insert) &&
           memcmp(members + kept, change->old + change->at + change->skip,
                  tail * sizeof(*members)) == 0;
}

static uint32_t
find(const struct yb_sched_sets *sets, const struct change *change)
{
    uint32_t set = sets->buckets[change->hash & sets->bucket_mask];

    while (set != 0 && !is_wanted(sets, &sets->sets[set], change)) {
        set = sets->sets[set].next;
    }
    return set;
}

/* Return a new set, without users; 0: no room. */
static uint32_t
make(struct yb_sched_sets *sets, const struct change *change)
{
    uint32_t number = sets->set_free != 0 ? sets->set_free : sets->set_used + 1;
    uint32_t first;
    uint32_t *members;
    struct yb_sched_set *set;
    uint32_t *bucket = &sets->buckets[change->hash & sets->bucket_mask];
    uint32_t kept = change->at + (change->insert != 0);
    size_t tail = change->old_count - change->at - change->skip;

    if (number > sets->set_max) {
        return 0;
    }
    first = piece_take(sets, class_of(change->count));
    if (first == UINT32_MAX) {
        return 0;
    }
    set = &sets->sets[number];
    if (sets->set_free != 0) {
        sets->set_free = set->next;
    } else {
        sets->set_used = number;
    }
    members = &sets->arena[first];
    memcpy(members, change->old, change->at * sizeof(*members));
    if (change->insert != 0) {
        members[change->at] = change->insert;
    }
    memcpy(members + kept, change->old + change->at + change->skip, tail * sizeof(*members));
    *set = (struct yb_sched_set){
        .hash = change->hash,
        .first = first,
        .count = change->count,
        .next = *bucket,
    };
    *bucket = number;
    sets->set_count++;
    sets->member_count += change->count;
    return number;
}

enum yb_status
yb_sched_sets_change(struct yb_sched_sets *sets, uint32_t *set, uint32_t place, uint32_t tiers)
{
    struct change change = {.hash = sets->sets[*set].hash};
    uint32_t fresh = 0;
    uint32_t old;

    YB_ASSERT(tiers <= YB_SCHED_SETS_TIER_MASK);
    YB_ASSERT(place < 1u << (32 - YB_SCHED_SETS_TIER_BITS));
    change.old = yb_sched_sets_members(sets, *set, &change.old_count);
    change.at = position_of(change.old, change.old_count, place);
    old = change.at < change.old_count ? change.old[change.at] : 0;
    change.skip = old >> YB_SCHED_SETS_TIER_BITS == place && old != 0;
    change.insert = tiers == 0 ? 0 : place << YB_SCHED_SETS_TIER_BITS | tiers;
    if ((change.skip ? old : 0) == change.insert) {
        return YB_OK;
    }
    change.hash -= change.skip ? hash_of(old) : 0;
    change.hash += change.insert != 0 ? hash_of(change.insert) : 0;
    change.count = change.old_count - change.skip + (change.insert != 0);
    if (change.count > 0) {
        fresh = find(sets, &change);
        fresh = fresh != 0 ? fresh : make(sets, &change);
        if (fresh == 0) {
            return YB_NO_SPACE;
        }
        sets->sets[fresh].users++;
    }
    yb_sched_sets_release(sets, *set);
    *set = fresh;
    return YB_OK;
}

void
yb_sched_sets_release(struct yb_sched_sets *sets, uint32_t number)
{
    struct yb_sched_set *set = &sets->sets[number];
    uint32_t *link = &sets->buckets[set->hash & sets->bucket_mask];

    if (number == 0) {
        return;
    }
    YB_ASSERT(set->users > 0);
    set->users--;
    if (set->users > 0) {
        return;
    }
    while (*link != number) {
        YB_ASSERT(*link != 0);
        link = &sets->sets[*link].next;
    }
    *link = set->next;
    piece_give(sets, set->first, class_of(set->count));
    sets->set_count--;
    sets->member_count -= set->count;
    set->count = 0;
    set->next = sets->set_free;
    sets->set_free = number;
}
