/* SPDX-License-Identifier: Apache-2.0
 *
 * Heat: how soon a block will be wanted.
 *
 * The table has buckets of eight; a block that finds its bucket full takes the place of the coldest
 * there. So it never grows, and nothing has to be cleaned up.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sched/sched_internal.h"

#define HEAT_MAGIC 0x68656174u
#define BLOCKS_MAX (16u << 20)
#define WAYS       8u
#define SUCCESSORS 4u
#define DEPTH_MAX  8u  /* How far heat flows. */
#define FLOW_LOSS  0.9 /* What is left of it after each step. */
/* A count of n that halves in a half-life is n ln 2 in the next. */
#define LN_2 0.6931471805599453

struct successor {
    uint32_t tag; /* Upper half of the hash of the block. */
    float weight;
};

struct entry {
    uint64_t block;
    uint64_t parent; /* The block that came before it last. */
    uint64_t last_ns;
    float count; /* 0: free. Decayed to last_ns, as the weights are. */
    uint32_t has_parent;
    struct successor successors[SUCCESSORS];
    uint64_t reserved[2];
};
_Static_assert(sizeof(struct entry) <= 88, "what heat.h says of memory");

struct yb_sched_heat {
    uint32_t magic;
    uint32_t bucket_count;
    double half_life_ns;
    struct entry *entries;
};

enum yb_status
yb_sched_heat_create(uint32_t blocks_max, uint64_t half_life_ns, struct yb_sched_heat **heat_out)
{
    struct yb_sched_heat *heat;

    if (blocks_max == 0 || blocks_max > BLOCKS_MAX || half_life_ns == 0) {
        return YB_INVALID;
    }
    heat = calloc(1, sizeof(*heat));
    if (heat == NULL) {
        return YB_NO_MEMORY;
    }
    heat->magic = HEAT_MAGIC;
    heat->bucket_count = (blocks_max + WAYS - 1) / WAYS;
    heat->half_life_ns = (double)half_life_ns;
    heat->entries = calloc((size_t)heat->bucket_count * WAYS, sizeof(*heat->entries));
    if (heat->entries == NULL) {
        free(heat);
        return YB_NO_MEMORY;
    }
    *heat_out = heat;
    return YB_OK;
}

void
yb_sched_heat_destroy(struct yb_sched_heat **heat)
{
    if (*heat == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*heat, HEAT_MAGIC);
    (*heat)->magic = 0;
    free((*heat)->entries);
    free(*heat);
    *heat = NULL;
}

static uint64_t
hash_of(uint64_t block)
{
    uint64_t x = block + 0x9e3779b97f4a7c15ull;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static struct entry *
bucket_of(const struct yb_sched_heat *heat, uint64_t block)
{
    uint64_t bucket = ((hash_of(block) & UINT32_MAX) * heat->bucket_count) >> 32;

    return &heat->entries[bucket * WAYS];
}

static struct entry *
find(const struct yb_sched_heat *heat, uint64_t block)
{
    struct entry *bucket = bucket_of(heat, block);

    for (uint32_t i = 0; i < WAYS; i++) {
        if (bucket[i].count > 0 && bucket[i].block == block) {
            return &bucket[i];
        }
    }
    return NULL;
}

/* Return the share of a count of `then` that is left. */
static double
left_of(const struct yb_sched_heat *heat, uint64_t then_ns, uint64_t now_ns)
{
    return now_ns > then_ns ? exp2(-(double)(now_ns - then_ns) / heat->half_life_ns) : 1;
}

/* ---- accesses -------------------------------------------------------------------------------- */

static struct entry *
find_or_make(struct yb_sched_heat *heat, uint64_t block, uint64_t now_ns)
{
    struct entry *bucket = bucket_of(heat, block);
    struct entry *coldest = &bucket[0];
    double least = INFINITY;

    for (uint32_t i = 0; i < WAYS; i++) {
        double count = bucket[i].count * left_of(heat, bucket[i].last_ns, now_ns);

        if (bucket[i].count > 0 && bucket[i].block == block) {
            return &bucket[i];
        }
        if (count < least) {
            least = count;
            coldest = &bucket[i];
        }
    }
    *coldest = (struct entry){.block = block, .last_ns = now_ns};
    return coldest;
}

/* Bring an entry's counts to what they are now. They never reach 0, which would make it free. */
static void
age(const struct yb_sched_heat *heat, struct entry *entry, uint64_t now_ns)
{
    float left = (float)left_of(heat, entry->last_ns, now_ns);

    entry->count *= left;
    for (uint32_t i = 0; i < SUCCESSORS; i++) {
        entry->successors[i].weight *= left;
    }
    entry->last_ns = now_ns > entry->last_ns ? now_ns : entry->last_ns;
}

static void
note_successor(struct entry *entry, uint64_t block)
{
    uint32_t tag = (uint32_t)(hash_of(block) >> 32);
    struct successor *rarest = &entry->successors[0];

    for (uint32_t i = 0; i < SUCCESSORS; i++) {
        struct successor *successor = &entry->successors[i];

        if (successor->weight > 0 && successor->tag == tag) {
            successor->weight += 1;
            return;
        }
        rarest = successor->weight < rarest->weight ? successor : rarest;
    }
    /* A newcomer replaces what has been seen less than once, and else wears it down (as in counting
     * frequent items with few counters). */
    if (rarest->weight < 1) {
        *rarest = (struct successor){tag, 1};
    } else {
        rarest->weight -= 1;
    }
}

void
yb_sched_heat_access(struct yb_sched_heat *heat, const uint64_t *blocks, uint32_t count,
                     uint64_t now_ns)
{
    YB_ASSERT_OBJ(heat, HEAT_MAGIC);
    for (uint32_t i = 0; i < count; i++) {
        struct entry *entry = find_or_make(heat, blocks[i], now_ns);

        age(heat, entry, now_ns);
        entry->count += 1;
        if (i > 0) {
            entry->parent = blocks[i - 1];
            entry->has_parent = 1;
        }
        if (i + 1 < count) {
            note_successor(entry, blocks[i + 1]);
        }
    }
}

/* ---- heat ------------------------------------------------------------------------------------ */

/* Return how often `block` comes next, of the times that something came after its parent: 0 ..
 * 1. */
static double
share_of(const struct entry *parent, uint64_t block)
{
    uint32_t tag = (uint32_t)(hash_of(block) >> 32);
    double sum = 0;
    double found = 0;

    for (uint32_t i = 0; i < SUCCESSORS; i++) {
        const struct successor *successor = &parent->successors[i];

        sum += successor->weight;
        found = successor->tag == tag ? successor->weight : found;
    }
    return sum > 0 ? found / sum : 0;
}

static double
heat_of(const struct yb_sched_heat *heat, const struct entry *entry, uint64_t now_ns)
{
    double most = entry->count * left_of(heat, entry->last_ns, now_ns);
    double share = 1;

    for (uint32_t depth = 0; depth < DEPTH_MAX && entry->has_parent; depth++) {
        const struct entry *parent = find(heat, entry->parent);

        if (parent == NULL) {
            break;
        }
        share *= FLOW_LOSS * share_of(parent, entry->block);
        most = fmax(most, share * parent->count * left_of(heat, parent->last_ns, now_ns));
        entry = parent;
    }
    return most * LN_2;
}

double
yb_sched_heat_of(const struct yb_sched_heat *heat, uint64_t block, uint64_t now_ns)
{
    const struct entry *entry = find(heat, block);

    YB_ASSERT_OBJ(heat, HEAT_MAGIC);
    return entry == NULL ? 0 : heat_of(heat, entry, now_ns);
}

/* The coldest of the heap is at its root. Of equals the lower number is hotter, so that the answer
 * does not depend on the table. */
static bool
is_colder(const struct yb_sched_hot *a, const struct yb_sched_hot *b)
{
    return a->heat < b->heat || (a->heat == b->heat && a->block > b->block);
}

static void
sink(struct yb_sched_hot *heap, uint32_t count, uint32_t at)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        struct yb_sched_hot kept;

        if (child >= count) {
            return;
        }
        if (child + 1 < count && is_colder(&heap[child + 1], &heap[child])) {
            child++;
        }
        if (!is_colder(&heap[child], &heap[at])) {
            return;
        }
        kept = heap[at];
        heap[at] = heap[child];
        heap[child] = kept;
        at = child;
    }
}

static void
rise(struct yb_sched_hot *heap, uint32_t at)
{
    while (at > 0 && is_colder(&heap[at], &heap[(at - 1) / 2])) {
        struct yb_sched_hot kept = heap[at];

        heap[at] = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = kept;
        at = (at - 1) / 2;
    }
}

static bool
is_cold_only(const struct yb_sched *sched, uint64_t block)
{
    return yb_sched_index_tiers(sched->index, block, YB_SCHED_SHARED) != 0 &&
           yb_sched_index_holder(sched->index, block) == YB_SCHED_NONE;
}

/* Find the hottest; with a scheduler, only of those that are in the object store alone. */
static uint32_t
hottest(const struct yb_sched_heat *heat, const struct yb_sched *sched, double least,
        uint64_t now_ns, struct yb_sched_hot *hot_out, uint32_t count_max)
{
    uint32_t count = 0;

    for (size_t i = 0; count_max > 0 && i < (size_t)heat->bucket_count * WAYS; i++) {
        struct yb_sched_hot hot = {.block = heat->entries[i].block};

        if (!(heat->entries[i].count > 0)) {
            continue;
        }
        hot.heat = heat_of(heat, &heat->entries[i], now_ns);
        if (hot.heat < least || (count == count_max && !is_colder(&hot_out[0], &hot)) ||
            (sched != NULL && !is_cold_only(sched, hot.block))) {
            continue;
        }
        if (count < count_max) {
            hot_out[count] = hot;
            rise(hot_out, count++);
        } else {
            hot_out[0] = hot;
            sink(hot_out, count, 0);
        }
    }
    for (uint32_t left = count; left > 1; left--) {
        struct yb_sched_hot coldest = hot_out[0];

        hot_out[0] = hot_out[left - 1];
        hot_out[left - 1] = coldest;
        sink(hot_out, left - 1, 0);
    }
    return count;
}

uint32_t
yb_sched_heat_hottest(const struct yb_sched_heat *heat, double least, uint64_t now_ns,
                      struct yb_sched_hot *hot_out, uint32_t count_max)
{
    YB_ASSERT_OBJ(heat, HEAT_MAGIC);
    return hottest(heat, NULL, least, now_ns, hot_out, count_max);
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Return the place that is done with its prefills first. */
static uint32_t
idlest(const struct yb_sched *sched)
{
    uint32_t best = YB_SCHED_NONE;

    for (uint32_t i = 0; i < sched->prefill_count; i++) {
        uint32_t place = sched->prefills[i];

        if (best == YB_SCHED_NONE || sched->loads[place].done_ns < sched->loads[best].done_ns) {
            best = place;
        }
    }
    return best;
}

uint32_t
yb_sched_heat_moves(const struct yb_sched_heat *heat, const struct yb_sched *sched, double least,
                    uint64_t now_ns, struct yb_sched_move *moves_out, uint32_t count_max)
{
    struct yb_sched_hot hot[64];
    uint32_t idle = idlest(sched);
    uint32_t count;

    YB_ASSERT_OBJ(heat, HEAT_MAGIC);
    YB_ASSERT_OBJ(sched, YB_SCHED_MAGIC);
    count_max = count_max < 64 ? count_max : 64;
    count = idle == YB_SCHED_NONE ? 0 : hottest(heat, sched, least, now_ns, hot, count_max);
    for (uint32_t i = 0; i < count; i++) {
        const struct entry *entry = find(heat, hot[i].block);
        uint32_t to =
            entry->has_parent ? yb_sched_index_holder(sched->index, entry->parent) : YB_SCHED_NONE;

        to = to != YB_SCHED_NONE ? to : idle;
        moves_out[i] = (struct yb_sched_move){
            .block = hot[i].block,
            .heat = hot[i].heat,
            .to = sched->places[to].instance.node,
        };
    }
    return count;
}
