/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of blocks. The table is open addressing with linear probing; what is deleted is closed
 * up by moving back what follows, so that there are no tombstones and probes stay short.
 */
#include "sched/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "sched/sets.h"

#define INDEX_MAGIC 0x73696478u

#define AUX_OBJECT       (1u << 31)
#define AUX_SLOT_BITS    20u
#define AUX_SLOT_MASK    ((1u << AUX_SLOT_BITS) - 1u)
#define AUX_GENERATIONS  (1u << 11)
#define AUX_PRODUCER     (AUX_OBJECT - 1u)
#define FAR_PROBES_AHEAD 8u

/* A pass of the sweep looks at every slot once for the places that were gone when it began; others
 * wait for the next one, so that each pass ends, however often places go. */
enum removal { REMOVED_NOT, REMOVED_SWEEPING, REMOVED_WAITING };

struct record {
    uint64_t block;
    uint32_t set;
    uint32_t aux; /* Object store, and the producer: generation, slot + 1. */
};
_Static_assert(sizeof(struct record) == 16, "one for each block that is known");

struct yb_sched_index {
    uint32_t magic;
    uint32_t places_max;
    uint32_t blocks_max;
    uint32_t producers_max;
    struct record *records;
    uint32_t mask;
    uint32_t shift;
    uint32_t block_count;
    struct yb_sched_sets sets;
    uint16_t *generations; /* By producer. */
    uint8_t *removed;      /* By place: enum removal. */
    uint32_t removed_count;
    uint32_t cursor;     /* Of the sweep. */
    uint32_t sweep_left; /* Slots until the pass has ended; 0: there is none. */
    uint64_t refused;
};

enum yb_status
yb_sched_index_create(uint32_t places_max, uint32_t blocks_max, uint64_t holders_bytes_max,
                      uint32_t producers_max, struct yb_sched_index **index_out)
{
    struct yb_sched_index *index;
    uint32_t slots = 16;
    uint32_t bits = 4;

    if (places_max == 0 || places_max > YB_SCHED_PLACES_MAX || blocks_max == 0 ||
        blocks_max > YB_SCHED_INDEX_BLOCKS_MAX || producers_max == 0 ||
        producers_max > YB_SCHED_INDEX_PRODUCERS_MAX) {
        return YB_INVALID;
    }
    index = calloc(1, sizeof(*index));
    if (index == NULL) {
        return YB_NO_MEMORY;
    }
    index->magic = INDEX_MAGIC;
    while (slots / 4 * 3 < blocks_max) { /* At most three quarters full. */
        slots *= 2;
        bits++;
    }
    index->places_max = places_max;
    index->blocks_max = blocks_max;
    index->producers_max = producers_max;
    index->mask = slots - 1;
    index->shift = 64 - bits;
    index->records = calloc(slots, sizeof(*index->records));
    index->generations = calloc(producers_max, sizeof(*index->generations));
    index->removed = calloc(places_max, sizeof(*index->removed));
    if (index->records == NULL || index->generations == NULL || index->removed == NULL ||
        yb_sched_sets_init(&index->sets, holders_bytes_max) != YB_OK) {
        yb_sched_index_destroy(&index);
        return YB_NO_MEMORY;
    }
    *index_out = index;
    return YB_OK;
}

void
yb_sched_index_destroy(struct yb_sched_index **index)
{
    if (*index == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*index, INDEX_MAGIC);
    (*index)->magic = 0;
    yb_sched_sets_fini(&(*index)->sets);
    free((*index)->records);
    free((*index)->generations);
    free((*index)->removed);
    free(*index);
    *index = NULL;
}

/* ---- the table ------------------------------------------------------------------------------- */

static uint32_t
home_of(const struct yb_sched_index *index, uint64_t block)
{
    block ^= block >> 32; /* Names may be small numbers, or differ in their upper half only. */
    return (uint32_t)((block * 0x9e3779b97f4a7c15ull) >> index->shift);
}

static bool
is_free(const struct record *record)
{
    return record->set == 0 && record->aux == 0;
}

/* Return the record of a block; NULL: there is none. */
static struct record *
find(const struct yb_sched_index *index, uint64_t block)
{
    uint32_t at = home_of(index, block);

    while (!is_free(&index->records[at])) {
        if (index->records[at].block == block) {
            return &index->records[at];
        }
        at = (at + 1) & index->mask;
    }
    return NULL;
}

/* Return the record of a block, a new one if need be, which is free (I3) until it is given
 * something; NULL: no room. */
static struct record *
find_or_make(struct yb_sched_index *index, uint64_t block)
{
    uint32_t at = home_of(index, block);

    while (!is_free(&index->records[at])) {
        if (index->records[at].block == block) {
            return &index->records[at];
        }
        at = (at + 1) & index->mask;
    }
    if (index->block_count == index->blocks_max) {
        return NULL;
    }
    index->records[at].block = block;
    index->block_count++;
    return &index->records[at];
}

/* A record that moves back across the sweep's cursor would not be looked at: once more round. */
static void
note_move(struct yb_sched_index *index, uint32_t from, uint32_t to)
{
    uint32_t distance = (index->cursor - to) & index->mask;

    if (index->sweep_left > 0 && distance != 0 && distance <= ((from - to) & index->mask)) {
        index->sweep_left = index->mask + 1;
    }
}

/* I3: a record that has nothing goes. Those behind it that are not at home move up. */
static void
remove_if_free(struct yb_sched_index *index, struct record *record)
{
    uint32_t hole = (uint32_t)(record - index->records);
    uint32_t at = hole;

    if (!is_free(record)) {
        return;
    }
    YB_ASSERT(index->block_count > 0);
    index->block_count--;
    for (;;) {
        uint32_t home;

        at = (at + 1) & index->mask;
        if (is_free(&index->records[at])) {
            break;
        }
        home = home_of(index, index->records[at].block);
        if (((at - home) & index->mask) >= ((at - hole) & index->mask)) {
            note_move(index, at, hole);
            index->records[hole] = index->records[at];
            hole = at;
        }
    }
    index->records[hole] = (struct record){0};
}

/* ---- marks ----------------------------------------------------------------------------------- */

static uint32_t
mark_of(const struct yb_sched_index *index, uint32_t producer)
{
    return (uint32_t)index->generations[producer] << AUX_SLOT_BITS | (producer + 1);
}

/* Return `aux` without a mark that is stale. */
static uint32_t
fresh_aux(const struct yb_sched_index *index, uint32_t aux)
{
    uint32_t mark = aux & AUX_PRODUCER;

    if (mark != 0 && mark != mark_of(index, (mark & AUX_SLOT_MASK) - 1)) {
        return aux & AUX_OBJECT;
    }
    return aux;
}

enum yb_status
yb_sched_index_mark(struct yb_sched_index *index, uint64_t block, uint32_t producer)
{
    struct record *record;

    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    YB_ASSERT(producer < index->producers_max);
    record = find_or_make(index, block);
    if (record == NULL) {
        index->refused++;
        return YB_NO_SPACE;
    }
    record->aux = fresh_aux(index, record->aux);
    if ((record->aux & AUX_PRODUCER) == 0) {
        record->aux |= mark_of(index, producer);
    }
    return YB_OK;
}

void
yb_sched_index_retire(struct yb_sched_index *index, uint32_t producer)
{
    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    YB_ASSERT(producer < index->producers_max);
    index->generations[producer] = (uint16_t)((index->generations[producer] + 1) % AUX_GENERATIONS);
}

/* ---- holders --------------------------------------------------------------------------------- */

enum yb_status
yb_sched_index_add(struct yb_sched_index *index, uint64_t block, uint32_t place, uint32_t tier)
{
    struct record *record;
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    record = find_or_make(index, block);
    if (record == NULL) {
        index->refused++;
        return YB_NO_SPACE;
    }
    record->aux = fresh_aux(index, record->aux);
    if (place == YB_SCHED_SHARED) {
        record->aux |= AUX_OBJECT;
    } else {
        uint32_t tiers = yb_sched_sets_tiers(&index->sets, record->set, place);

        YB_ASSERT(place < index->places_max);
        YB_ASSERT(tier < YB_SCHED_LOCAL_TIERS);
        status = yb_sched_sets_change(&index->sets, &record->set, place, tiers | 1u << tier);
    }
    if (status != YB_OK) {
        index->refused++;
    }
    remove_if_free(index, record);
    return status;
}

enum yb_status
yb_sched_index_drop(struct yb_sched_index *index, uint64_t block, uint32_t place, uint32_t tier)
{
    struct record *record;

    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    record = find(index, block);
    if (record == NULL) {
        return YB_NOT_FOUND;
    }
    if (place == YB_SCHED_SHARED) {
        if ((record->aux & AUX_OBJECT) == 0) {
            return YB_NOT_FOUND;
        }
        record->aux &= ~AUX_OBJECT;
    } else {
        uint32_t tiers = yb_sched_sets_tiers(&index->sets, record->set, place);

        YB_ASSERT(tier < YB_SCHED_LOCAL_TIERS);
        if ((tiers & 1u << tier) == 0) {
            return YB_NOT_FOUND;
        }
        /* Without room for the smaller set nobody has it: that costs hits, a false one more. */
        if (yb_sched_sets_change(&index->sets, &record->set, place, tiers & ~(1u << tier)) !=
            YB_OK) {
            yb_sched_sets_release(&index->sets, record->set);
            record->set = 0;
            index->refused++;
        }
    }
    record->aux = fresh_aux(index, record->aux);
    remove_if_free(index, record);
    return YB_OK;
}

uint32_t
yb_sched_index_tiers(const struct yb_sched_index *index, uint64_t block, uint32_t place)
{
    const struct record *record = find(index, block);

    if (record == NULL) {
        return 0;
    }
    if (place == YB_SCHED_SHARED) {
        return (record->aux & AUX_OBJECT) != 0 ? 1u << YB_SCHED_TIER_OBJECT : 0;
    }
    return yb_sched_sets_tiers(&index->sets, record->set, place);
}

uint32_t
yb_sched_index_holder(const struct yb_sched_index *index, uint64_t block)
{
    const struct record *record = find(index, block);
    const uint32_t *members;
    uint32_t count;

    if (record == NULL) {
        return YB_SCHED_NONE;
    }
    members = yb_sched_sets_members(&index->sets, record->set, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (!index->removed[members[i] >> YB_SCHED_SETS_TIER_BITS]) {
            return members[i] >> YB_SCHED_SETS_TIER_BITS;
        }
    }
    return YB_SCHED_NONE;
}

/* ---- places that are gone -------------------------------------------------------------------- */

void
yb_sched_index_remove_place(struct yb_sched_index *index, uint32_t place)
{
    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    YB_ASSERT(place < index->places_max);
    if (index->removed[place] != REMOVED_NOT) {
        return; /* Nothing came to it since. */
    }
    index->removed_count++;
    index->removed[place] = index->sweep_left == 0 ? REMOVED_SWEEPING : REMOVED_WAITING;
    index->sweep_left = index->sweep_left == 0 ? index->mask + 1 : index->sweep_left;
}

bool
yb_sched_index_is_swept(const struct yb_sched_index *index, uint32_t place)
{
    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    YB_ASSERT(place < index->places_max);
    return index->removed[place] == REMOVED_NOT;
}

/* A pass has ended: whose turn it was is nowhere any more, and whoever waited is next. */
static void
end_pass(struct yb_sched_index *index)
{
    for (uint32_t i = 0; i < index->places_max && index->removed_count > 0; i++) {
        if (index->removed[i] == REMOVED_SWEEPING) {
            index->removed[i] = REMOVED_NOT;
            index->removed_count--;
        } else if (index->removed[i] == REMOVED_WAITING) {
            index->removed[i] = REMOVED_SWEEPING;
            index->sweep_left = index->mask + 1;
        }
    }
}

void
yb_sched_index_drop_shared(struct yb_sched_index *index)
{
    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    for (uint32_t at = 0; at <= index->mask;) {
        struct record *record = &index->records[at];

        if ((record->aux & AUX_OBJECT) != 0) {
            record->aux &= ~AUX_OBJECT;
            record->aux = fresh_aux(index, record->aux);
            if (is_free(record)) {
                remove_if_free(index, record);
                continue; /* Another may have moved up to here. */
            }
        }
        at++;
    }
}

/* Take all removed places out of the set of a record. */
static void
purge(struct yb_sched_index *index, struct record *record)
{
    uint32_t at = 0;

    for (;;) {
        uint32_t count;
        const uint32_t *members = yb_sched_sets_members(&index->sets, record->set, &count);

        while (at < count && !index->removed[members[at] >> YB_SCHED_SETS_TIER_BITS]) {
            at++;
        }
        if (at >= count) {
            return;
        }
        if (yb_sched_sets_change(&index->sets, &record->set, members[at] >> YB_SCHED_SETS_TIER_BITS,
                                 0) != YB_OK) {
            yb_sched_sets_release(&index->sets, record->set);
            record->set = 0;
            return;
        }
    }
}

bool
yb_sched_index_sweep(struct yb_sched_index *index, uint32_t steps)
{
    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    for (uint32_t i = 0; i < steps; i++) {
        struct record *record = &index->records[index->cursor];

        if (!is_free(record)) {
            if (index->removed_count > 0) {
                purge(index, record);
            }
            record->aux = fresh_aux(index, record->aux);
            if (is_free(record)) {
                remove_if_free(index, record);
                continue; /* Another may have moved up to here. */
            }
        }
        index->cursor = (index->cursor + 1) & index->mask;
        if (index->sweep_left > 0 && --index->sweep_left == 0) {
            end_pass(index);
        }
    }
    return index->sweep_left > 0;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* What is compared along a prompt. */
struct step {
    uint32_t set;
    uint32_t aux;
};

struct walk {
    const struct yb_sched_index *index;
    const uint64_t *blocks;
    uint32_t count;
    uint32_t probes;
};

static void
prefetch(const struct walk *walk, uint32_t position)
{
    if (position < walk->count) {
        __builtin_prefetch(&walk->index->records[home_of(walk->index, walk->blocks[position])]);
    }
}

static struct step
look_at(struct walk *walk, uint32_t position)
{
    const struct record *record = find(walk->index, walk->blocks[position]);

    walk->probes++;
    if (record == NULL) {
        return (struct step){0, 0};
    }
    return (struct step){record->set, fresh_aux(walk->index, record->aux)};
}

static bool
same(struct step a, struct step b)
{
    return a.set == b.set && a.aux == b.aux;
}

/* Return the first position behind `position` that is not like it; *step_out is what is there. */
static uint32_t
next_change_exact(struct walk *walk, uint32_t position, struct step step, struct step *step_out)
{
    for (uint32_t at = position + 1; at < walk->count; at++) {
        prefetch(walk, at + FAR_PROBES_AHEAD);
        *step_out = look_at(walk, at);
        if (!same(step, *step_out)) {
            return at;
        }
    }
    *step_out = (struct step){0, 0};
    return walk->count;
}

/* The same, by jumping (I4). */
static uint32_t
next_change(struct walk *walk, uint32_t position, struct step step, struct step *step_out)
{
    uint32_t low = position; /* Like it. */
    uint32_t high = walk->count;
    uint32_t jump = 1;

    *step_out = (struct step){0, 0};
    while (low + jump < walk->count) {
        struct step there;

        prefetch(walk, low + jump + 2 * jump);
        there = look_at(walk, low + jump);
        if (!same(step, there)) {
            high = low + jump;
            *step_out = there;
            break;
        }
        low += jump;
        jump *= 2;
    }
    if (high == walk->count && low + 1 < high) {
        struct step last = look_at(walk, high - 1);

        if (same(step, last)) {
            return high;
        }
        high--;
        *step_out = last;
    }
    while (low + 1 < high) {
        uint32_t middle = low + (high - low) / 2;
        struct step there = look_at(walk, middle);

        if (same(step, there)) {
            low = middle;
        } else {
            high = middle;
            *step_out = there;
        }
    }
    return high;
}

/* Tiers by number of bit, cumulated: a block in dram counts for dram and for ssd, and so on. */
static const uint8_t cumulated[8] = {0, 7, 6, 7, 4, 7, 6, 7};

/* Runs of the tiers that are in `ended` end at `position`. */
static void
end_runs(struct yb_sched_hit *hit, uint32_t ended, uint32_t position)
{
    if (ended == YB_SCHED_SETS_TIER_MASK) {
        *hit = (struct yb_sched_hit){{position, position, position}, 0};
        return;
    }
    for (uint32_t tier = 0; tier < YB_SCHED_LOCAL_TIERS; tier++) {
        if ((ended & 1u << tier) != 0) {
            hit->run[tier] = position;
        }
    }
}

/* Go on from `position` with the holders in `set`. Returns how many places are left. */
static uint32_t
narrow(const struct yb_sched_index *index, struct yb_sched_index_active *active, uint32_t count,
       uint32_t set, uint32_t position, struct yb_sched_hit *hits)
{
    uint32_t member_count;
    const uint32_t *members = yb_sched_sets_members(&index->sets, set, &member_count);
    uint32_t at = 0;
    uint32_t left = 0;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t place = active[i].place;
        uint32_t alive = 0;

        while (at < member_count && members[at] >> YB_SCHED_SETS_TIER_BITS < place) {
            at++;
        }
        if (at < member_count && members[at] >> YB_SCHED_SETS_TIER_BITS == place) {
            alive = active[i].alive & cumulated[members[at] & YB_SCHED_SETS_TIER_MASK];
        }
        if (alive != active[i].alive) {
            end_runs(&hits[place], active[i].alive & ~alive, position);
        }
        if (alive != 0) {
            active[left++] = (struct yb_sched_index_active){place, alive};
        }
    }
    return left;
}

static uint32_t
begin(const struct yb_sched_index *index, struct yb_sched_index_active *active, uint32_t set)
{
    uint32_t count;
    const uint32_t *members = yb_sched_sets_members(&index->sets, set, &count);

    for (uint32_t i = 0; i < count; i++) {
        active[i].place = members[i] >> YB_SCHED_SETS_TIER_BITS;
        active[i].alive = cumulated[members[i] & YB_SCHED_SETS_TIER_MASK];
    }
    return count;
}

/* The blocks first .. end - 1 are being computed by who is in `aux`, or by nobody. */
static void
note_coming(struct yb_sched_index_match *match, uint32_t aux, uint32_t first, uint32_t end)
{
    uint32_t producer = (aux & AUX_SLOT_MASK) - 1;
    struct yb_sched_coming *last;

    if ((aux & AUX_PRODUCER) == 0) {
        return;
    }
    if (match->coming_count > 0) {
        last = &match->coming[match->coming_count - 1];
        if (last->producer == producer && last->end == first) {
            last->end = end;
            return;
        }
    }
    if (match->coming_count < YB_SCHED_COMING_MAX) {
        match->coming[match->coming_count++] = (struct yb_sched_coming){producer, first, end};
    }
}

/* The blocks first .. end - 1 lie at the same places, behind those that were noted before. */
static void
note_stretch(struct yb_sched_index_match *match, struct step step, uint32_t first, uint32_t end)
{
    const bool object = (step.aux & AUX_OBJECT) != 0;
    struct yb_sched_stretch *last =
        match->stretch_count > 0 ? &match->stretches[match->stretch_count - 1] : NULL;

    if ((step.set == 0 && !object) || first != (last != NULL ? last->end : 0)) {
        return; /* It lies nowhere, or what is before it does. */
    }
    if (last != NULL && last->set == step.set && last->object == object) {
        last->end = end;
    } else if (match->stretch_count + 1 < YB_SCHED_STRETCHES_MAX) {
        match->stretches[match->stretch_count++] =
            (struct yb_sched_stretch){first, end, step.set, object};
    } else if (object) { /* The rest, as far as it is there. */
        match->stretches[YB_SCHED_STRETCHES_MAX - 1] = (struct yb_sched_stretch){
            .first = match->stretch_count < YB_SCHED_STRETCHES_MAX ? first : last->first,
            .end = end,
            .object = true,
        };
        match->stretch_count = YB_SCHED_STRETCHES_MAX;
    }
}

const uint32_t *
yb_sched_index_holders(const struct yb_sched_index *index, uint32_t set, uint32_t *count_out)
{
    return yb_sched_sets_members(&index->sets, set, count_out);
}

void
yb_sched_index_match(const struct yb_sched_index *index, const struct yb_sched_index_prompt *prompt,
                     struct yb_sched_index_active *active, struct yb_sched_hit *hits_out,
                     struct yb_sched_index_match *match_out)
{
    struct walk walk = {.index = index, .blocks = prompt->blocks, .count = prompt->count};
    uint32_t count = prompt->count;
    uint32_t position = 0;
    uint32_t left;
    struct step step;
    bool object = true;

    YB_ASSERT_OBJ(index, INDEX_MAGIC);
    memset(hits_out, 0, index->places_max * sizeof(*hits_out));
    *match_out = (struct yb_sched_index_match){0};
    if (count == 0) {
        return;
    }
    for (uint32_t ahead = 1; ahead <= count; ahead *= 2) {
        prefetch(&walk, ahead - 1);
    }
    step = look_at(&walk, 0);
    left = begin(index, active, step.set);
    while (position < count && (step.set != 0 || step.aux != 0)) {
        struct step next;
        uint32_t end = prompt->exact ? next_change_exact(&walk, position, step, &next)
                                     : next_change(&walk, position, step, &next);

        note_coming(match_out, step.aux, position, end);
        note_stretch(match_out, step, position, end);
        object = object && (step.aux & AUX_OBJECT) != 0;
        if (object) {
            match_out->object_run = end;
        }
        if (left > 0 && (next.set != step.set || end == count)) {
            left = narrow(index, active, left, end == count ? 0 : next.set, end, hits_out);
        }
        position = end;
        step = next;
    }
    match_out->known = position;
    match_out->probes = walk.probes;
}

struct yb_sched_index_info
yb_sched_index_info(const struct yb_sched_index *index)
{
    const struct yb_sched_sets *sets = &index->sets;

    return (struct yb_sched_index_info){
        .blocks = index->block_count,
        .sets = sets->set_count,
        .set_bytes =
            sets->set_count * sizeof(struct yb_sched_set) + sets->member_count * sizeof(uint32_t),
        .refused = index->refused,
    };
}
