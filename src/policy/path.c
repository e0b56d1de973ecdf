/* SPDX-License-Identifier: Apache-2.0 */
#include "policy/path.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define CLASSES    YB_HAZARD_CLASSES
#define WEIGHTS    3u
#define PLANS      16u
#define PLAN_LISTS (CLASSES * WEIGHTS)
#define SLOT_LISTS (PLAN_LISTS + PLANS)
#define SLOTS      64u
#define LISTS      (SLOT_LISTS + SLOTS)
#define LIST_WORDS ((LISTS + 63u) / 64u)

/* entry->group: its list, and above LIST_BITS what it is told: a weight, or WEIGHTS + a plan. */
#define LIST_BITS 10u
_Static_assert(LISTS <= 1u << LIST_BITS, "a list fits its bits");

#define REST_NS          2000000000ull
#define PLAN_FIRST_NS    100000000ull /* Plan k: used within this << k. */
#define MEAN_STEP        (1.0 / 1024.0)
#define LEFT_STEP        (1.0 / 1024.0)
#define LEFT_AGE_FIRST_S 60.0

struct slot {
    struct yb_policy_list list;
    uint64_t request;
    uint64_t touched_ns;
    uint64_t began; /* By the clock of records, as is ... */
    uint64_t touched;
    uint64_t size;     /* Of what it used. */
    uint32_t count;    /* Uses so far. */
    uint32_t position; /* The last one. */
    uint32_t matched;  /* The count at the last block that was known. */
    uint32_t record;   /* Of that block; YB_HAZARD_NONE: it is shared, or there is none. */
    uint32_t answer_tokens;
    bool open;
};

struct yb_path {
    const struct yb_path_kind *kind;
    struct yb_hazard *hazard;
    struct yb_policy_list lists[SLOT_LISTS];
    struct slot slots[SLOTS];
    uint64_t in_use[LIST_WORDS]; /* Bit l % 64 of word l / 64: list l is not empty. */
    uint64_t now_ns;
    double volume;       /* What was used, in sizes of the policy. */
    uint64_t size;       /* Of what is there. */
    uint64_t size_max;   /* And was ever. */
    double mean_cost;    /* Of having a unit of size again; 0: nothing is known yet. */
    uint32_t growing;    /* The slot that was touched last. */
    double request_size; /* Of the last request that was closed, as `volume`. */
    double left_age_s;   /* How long unused what was evicted was. */
    double own[YB_PATH_OWN];
    struct yb_hazard_class classes[CLASSES];
};

static const double weight_factors[WEIGHTS] = {1.0 / 3.0, 1.0, 3.0};

/* ---- lists ---------------------------------------------------------------------------------- */

static struct yb_policy_list *
list_at(struct yb_path *path, uint32_t index)
{
    return index < SLOT_LISTS ? &path->lists[index] : &path->slots[index - SLOT_LISTS].list;
}

static uint32_t
list_index(const struct yb_policy_entry *entry)
{
    return (uint32_t)entry->group & ((1u << LIST_BITS) - 1);
}

static void
push(struct yb_path *path, struct yb_policy_entry *entry, uint32_t index)
{
    entry->group = (uint16_t)(((uint32_t)entry->group >> LIST_BITS << LIST_BITS) | index);
    yb_policy_list_push_newest(list_at(path, index), entry);
    path->in_use[index / 64] |= 1ull << index % 64;
}

void
yb_path_take(void *state, struct yb_policy_entry *entry)
{
    struct yb_path *path = state;
    uint32_t index = list_index(entry);
    struct yb_policy_list *list = list_at(path, index);

    yb_policy_list_take(list, entry);
    if (list->count == 0) {
        path->in_use[index / 64] &= ~(1ull << index % 64);
    }
}

/* Put an entry where a class is, or where its plan says. */
static void
settle(struct yb_path *path, struct yb_policy_entry *entry, uint32_t class_index)
{
    uint32_t told = entry->group >> LIST_BITS;

    push(path, entry, told < WEIGHTS ? class_index * WEIGHTS + told : PLAN_LISTS + told - WEIGHTS);
}

/* ---- what is told --------------------------------------------------------------------------- */

static uint32_t
plan_of(uint64_t until_ns)
{
    uint32_t plan = 0;

    while (plan + 1 < PLANS && PLAN_FIRST_NS << plan < until_ns) {
        plan++;
    }
    return plan;
}

/* Keep in the entry what a use tells of when it is used next, or what it costs to have again. */
static void
hear(struct yb_path *path, struct yb_policy_entry *entry, const struct yb_policy_use *use)
{
    uint32_t told = 1; /* As dear as others. */

    if (use->next_use_ns > path->now_ns) {
        told = WEIGHTS + plan_of(use->next_use_ns - path->now_ns);
    } else if (use->heat > 0.0f && use->heat <= 1e6f) {
        told = WEIGHTS + plan_of((uint64_t)fmin(1e9 / (double)use->heat, 1e18));
    } else if (use->refetch_us > 0) {
        double cost = (double)use->refetch_us / (double)(entry->size > 0 ? entry->size : 1);

        path->mean_cost += path->mean_cost == 0.0 ? cost : (cost - path->mean_cost) * MEAN_STEP;
        told = cost < path->mean_cost / 2.0 ? 0 : cost > path->mean_cost * 2.0 ? 2 : 1;
    }
    entry->group = (uint16_t)(told << LIST_BITS | list_index(entry));
}

/* ---- requests ------------------------------------------------------------------------------- */

static uint32_t
class_of_body(const struct yb_path *path, const struct slot *slot)
{
    uint32_t before = yb_hazard_class_of(path->hazard, slot->record);
    struct yb_path_request request = {
        .goes_on = before != YB_HAZARD_NONE,
        .class_before = before,
        .idle = yb_hazard_idle(path->hazard, slot->record, slot->began),
        .blocks = slot->position > slot->count ? slot->position : slot->count,
        .new_blocks = slot->count - slot->matched,
        .answer_tokens = slot->answer_tokens,
    };

    return path->kind->body(&request);
}

/* ---- slots ---------------------------------------------------------------------------------- */

static void
note_use(struct yb_path *path, uint32_t record, uint64_t at)
{
    uint64_t idle = yb_hazard_idle(path->hazard, record, at);
    uint32_t class_index = yb_hazard_class_of(path->hazard, record);

    if (yb_hazard_used(path->hazard, record, at) && path->kind->used != NULL) {
        path->kind->used(path, class_index, idle);
    }
}

/* Record the deepest shared block; it may be used again by this. Returns the record. */
static uint32_t
record_shared(struct yb_path *path, const struct slot *slot, const struct yb_policy_entry *entry)
{
    uint32_t class_index = path->kind->shared(entry->uses);
    uint32_t last = yb_hazard_find(path->hazard, entry->hash);

    if (last != YB_HAZARD_NONE && last == entry->record) {
        note_use(path, last, slot->began);
    }
    return yb_hazard_born(path->hazard, class_index, entry->hash, slot->touched);
}

/* Whether a block of the slot, the `ordinal`th of it, is one that others go on from too. */
static bool
is_shared(struct yb_policy_entry *entry, uint32_t ordinal, const struct slot *slot, bool goes_on)
{
    if (!entry->linked && ordinal == slot->matched && ordinal < slot->count) {
        /* Nobody tells of its children: each request that goes on from it counts. */
        entry->branches = (uint8_t)(entry->branches + (entry->branches < UINT8_MAX));
    }
    entry->settled = entry->settled || entry->branches >= YB_PATH_BRANCHES ||
                     (!goes_on && ordinal <= slot->matched);
    return entry->settled;
}

struct closing {
    const struct slot *slot;
    bool goes_on;
    uint32_t body;
    uint32_t body_record;
    uint32_t shared_record;
    uint32_t shared_class;
};

/* Make the record of the body, of its last block but one. */
static void
record_body(struct yb_path *path, struct closing *closing)
{
    const struct yb_policy_entry *key = closing->slot->list.newest;
    bool tail = path->kind->tail != NULL;

    if (key != NULL && key->older != NULL && !key->older->settled) {
        key = key->older;
    } else if (tail) {
        key = NULL; /* The tail has a record of its own. */
    }
    if (key != NULL) {
        closing->body_record =
            yb_hazard_born(path->hazard, closing->body, key->hash, closing->slot->touched);
    }
}

/* Give one block its class. */
static void
close_entry(struct yb_path *path, struct closing *closing, struct yb_policy_entry *entry,
            uint32_t ordinal)
{
    const struct slot *slot = closing->slot;

    if (is_shared(entry, ordinal, slot, closing->goes_on) && path->kind->shared != NULL) {
        if (closing->shared_record == YB_HAZARD_NONE) {
            closing->shared_record = record_shared(path, slot, entry);
            closing->shared_class = path->kind->shared(entry->uses);
        }
        entry->record = closing->shared_record;
        settle(path, entry, closing->shared_class);
    } else if (ordinal == slot->count && path->kind->tail != NULL) {
        uint32_t class_index = path->kind->tail(closing->body);

        entry->record = yb_hazard_born(path->hazard, class_index, entry->hash, slot->touched);
        settle(path, entry, class_index);
    } else {
        entry->record = closing->body_record;
        settle(path, entry, closing->body);
    }
}

/* Make the records of a request, and give its blocks their classes, the last one first. */
static void
close_slot(struct yb_path *path, uint32_t index)
{
    struct slot *slot = &path->slots[index];
    struct closing closing = {
        .slot = slot,
        .goes_on = yb_hazard_class_of(path->hazard, slot->record) != YB_HAZARD_NONE,
        .body = class_of_body(path, slot),
        .body_record = YB_HAZARD_NONE,
        .shared_record = YB_HAZARD_NONE,
    };
    uint32_t ordinal = slot->count;

    YB_ASSERT(slot->open);
    slot->open = false;
    path->request_size = (double)slot->size / (double)(path->size_max > 0 ? path->size_max : 1);
    note_use(path, slot->record, slot->began);
    record_body(path, &closing);
    while (slot->list.newest != NULL) {
        struct yb_policy_entry *entry = slot->list.newest;

        yb_path_take(path, entry);
        close_entry(path, &closing, entry, ordinal--);
    }
}

static uint64_t
clock_of(const struct yb_path *path)
{
    return path->kind->by_volume ? (uint64_t)(path->volume * YB_PATH_FULL) : path->now_ns;
}

static uint32_t
slot_of(const struct yb_path *path, const struct yb_policy_use *use)
{
    const struct slot *growing = &path->slots[path->growing];

    if (growing->open && growing->request == use->request) {
        return path->growing;
    }
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (path->slots[i].open && path->slots[i].request == use->request) {
            return i;
        }
    }
    return SLOTS;
}

/* Close what rests, and return a slot that is free, or becomes so. */
static uint32_t
free_slot(struct yb_path *path)
{
    uint32_t found = 0;

    for (uint32_t i = 0; i < SLOTS; i++) {
        struct slot *slot = &path->slots[i];

        if (slot->open && path->now_ns - slot->touched_ns >= REST_NS) {
            close_slot(path, i);
        }
    }
    for (uint32_t i = 1; i < SLOTS; i++) {
        const struct slot *slot = &path->slots[i];
        const struct slot *best = &path->slots[found];

        if (best->open && (!slot->open || slot->touched_ns < best->touched_ns)) {
            found = i;
        }
    }
    if (path->slots[found].open) {
        close_slot(path, found);
    }
    return found;
}

/* Return the slot of the request, begun if it is not under way. */
static uint32_t
enter_slot(struct yb_path *path, const struct yb_policy_use *use)
{
    uint32_t index = slot_of(path, use);

    if (index < SLOTS && use->request == 0 &&
        (use->position == 0 ? path->now_ns != path->slots[index].touched_ns
                            : use->position <= path->slots[index].position)) {
        close_slot(path, index);
        index = SLOTS;
    }
    if (index == SLOTS) {
        index = free_slot(path);
        path->slots[index] = (struct slot){
            .request = use->request,
            .began = clock_of(path),
            .record = YB_HAZARD_NONE,
            .open = true,
        };
    }
    path->growing = index;
    return index;
}

/* ---- uses ----------------------------------------------------------------------------------- */

/* Whether a record is of a tail, and whether it is of a request's own blocks. */
static bool
is_tail(const struct yb_path *path, uint32_t record)
{
    return path->kind->is_tail != NULL &&
           path->kind->is_tail(yb_hazard_class_of(path->hazard, record));
}

static bool
is_own(const struct yb_path *path, uint32_t record)
{
    return path->kind->is_shared == NULL ||
           !path->kind->is_shared(yb_hazard_class_of(path->hazard, record));
}

/* The entry is in no list. `known`: it was there before this use. */
static void
touched(struct yb_path *path, struct yb_policy_entry *entry, const struct yb_policy_use *use,
        bool known)
{
    uint32_t index = enter_slot(path, use);
    struct slot *slot = &path->slots[index];
    uint32_t record = known ? entry->record : yb_hazard_find(path->hazard, entry->hash);
    bool recorded = yb_hazard_class_of(path->hazard, record) != YB_HAZARD_NONE;

    hear(path, entry, use);
    path->volume += (double)entry->size / (double)(path->size_max > 0 ? path->size_max : 1);
    slot->count++;
    slot->size += entry->size;
    slot->position = use->position > slot->position ? use->position : slot->position;
    slot->answer_tokens = use->answer_tokens;
    slot->touched_ns = path->now_ns;
    slot->touched = clock_of(path);
    if (known || recorded) {
        bool deeper = slot->record != YB_HAZARD_NONE && recorded && record != slot->record;

        slot->matched = slot->count;
        if (deeper && yb_hazard_is(path->hazard, record, entry->hash) && is_tail(path, record)) {
            note_use(path, record, slot->began); /* The body says what goes on. */
        } else {
            slot->record = entry->settled || !is_own(path, record) ? YB_HAZARD_NONE : record;
        }
    }
    push(path, entry, SLOT_LISTS + index);
}

void
yb_path_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    struct yb_path *path = state;

    path->now_ns = touch->now_ns > path->now_ns ? touch->now_ns : path->now_ns;
    path->size += entry->size;
    path->size_max = path->size > path->size_max ? path->size : path->size_max;
    entry->uses = 1;
    entry->record = YB_HAZARD_NONE;
    touched(path, entry, touch->use, false);
}

void
yb_path_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    struct yb_path *path = state;
    uint32_t index = list_index(entry);

    path->now_ns = touch->now_ns > path->now_ns ? touch->now_ns : path->now_ns;
    if (touch->ordered && index >= SLOT_LISTS) {
        const struct slot *slot = &path->slots[index - SLOT_LISTS];

        if (slot->open && slot->request == touch->use->request && slot->request != 0) {
            return; /* The same request again: it was looked up, and is read now. */
        }
        close_slot(path, index - SLOT_LISTS);
    }
    if (touch->ordered) {
        yb_path_take(path, entry);
    }
    entry->uses = (uint16_t)(entry->uses + (entry->uses < YB_POLICY_USES_MAX));
    touched(path, entry, touch->use, true);
}

void
yb_path_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    struct yb_path *path = state;

    YB_ASSERT(path->size >= entry->size);
    path->size -= entry->size; /* What is remembered of it are records. */
    if (evicted && path->now_ns > entry->last_access_ns) {
        double age_s = (double)(path->now_ns - entry->last_access_ns) * 1e-9;

        path->left_age_s += (age_s - path->left_age_s) * LEFT_STEP;
    }
}

/* ---- the victim ----------------------------------------------------------------------------- */

/* By the clock of records. */
static uint64_t
age_of(const struct yb_path *path, const struct yb_policy_entry *entry)
{
    if (path->kind->by_volume) {
        return yb_hazard_idle(path->hazard, entry->record, clock_of(path));
    }
    return path->now_ns > entry->last_access_ns ? path->now_ns - entry->last_access_ns : 0;
}

static double
worth(const struct yb_path *path, const struct yb_policy_entry *entry, uint32_t index)
{
    const struct slot *slot;
    uint32_t class_index;

    if (index < PLAN_LISTS) {
        return path->kind->worth(path, index / WEIGHTS, age_of(path, entry)) *
               weight_factors[index % WEIGHTS];
    }
    if (index < SLOT_LISTS) {
        double due_s = (double)(PLAN_FIRST_NS << (index - PLAN_LISTS)) * 1e-9;
        double age_s = (double)(path->now_ns - entry->last_access_ns) * 1e-9;

        /* Twice too late: it was not true. */
        return age_s > 2.0 * due_s ? 0.0 : 1.0 / fmax(due_s - age_s, due_s / 10.0);
    }
    slot = &path->slots[index - SLOT_LISTS];
    class_index =
        path->kind->shared != NULL && (entry->settled || entry->branches >= YB_PATH_BRANCHES)
            ? path->kind->shared(entry->uses)
            : class_of_body(path, slot);
    return path->kind->worth(path, class_index, clock_of(path) - slot->touched);
}

struct least {
    struct yb_policy_entry *entry;
    double worth;
};

static void
offer(const struct yb_path *path, struct yb_policy_entry *entry, uint32_t index,
      struct least *least)
{
    double value = worth(path, entry, index);

    if (least->entry == NULL || value < least->worth) {
        *least = (struct least){entry, value};
    }
}

static struct yb_policy_entry *
find_least(struct yb_path *path)
{
    struct least least = {.entry = NULL};

    for (uint32_t word = 0; word < LIST_WORDS; word++) {
        for (uint64_t bits = path->in_use[word]; bits != 0; bits &= bits - 1) {
            uint32_t index = word * 64 + (uint32_t)__builtin_ctzll(bits);
            const struct yb_policy_list *list = list_at(path, index);

            if (index == SLOT_LISTS + path->growing) {
                continue;
            }
            if (index < SLOT_LISTS) {
                offer(path, list->oldest, index, &least);
            }
            if (index >= SLOT_LISTS || path->kind->may_rise) {
                offer(path, list->newest, index, &least);
            }
        }
    }
    return least.entry;
}

/* A duplicate that may go among the next of the list, from the end that `entry` is at. */
static struct yb_policy_entry *
duplicate_near(const struct yb_policy_list *list, struct yb_policy_entry *entry)
{
    struct yb_policy_entry *other = entry;
    bool from_oldest = entry == list->oldest;

    for (uint32_t i = 0; i < YB_POLICY_LOOK && other != NULL; i++) {
        if (other->duplicate && other->pins == 0 && !yb_policy_has_children(other)) {
            return other;
        }
        other = from_oldest ? other->newer : other->older;
    }
    return entry;
}

struct yb_policy_entry *
yb_path_first(void *state, bool look)
{
    struct yb_path *path = state;
    struct yb_policy_entry *entry = find_least(path);

    if (entry == NULL) { /* One request fills it all. */
        return path->slots[path->growing].list.newest;
    }
    return look ? duplicate_near(list_at(path, list_index(entry)), entry) : entry;
}

void
yb_path_destroy(void *state)
{
    struct yb_path *path = state;

    yb_hazard_destroy(&path->hazard);
    free(path);
}

enum yb_status
yb_path_create(const struct yb_policy_options *options, const struct yb_path_kind *kind,
               void **state_out)
{
    struct yb_path *path = calloc(1, sizeof *path);
    enum yb_status status;

    if (path == NULL) {
        return YB_NO_MEMORY;
    }
    path->kind = kind;
    path->left_age_s = LEFT_AGE_FIRST_S;
    kind->classes(path->classes);
    status = yb_hazard_create(path->classes,
                              options->ghost_count > YB_POLICY_MEMORY_MIN ? options->ghost_count
                                                                          : YB_POLICY_MEMORY_MIN,
                              &path->hazard);
    if (status != YB_OK) {
        free(path);
        return status;
    }
    *state_out = path;
    return YB_OK;
}

uint32_t
yb_path_remembered(const void *state)
{
    return yb_hazard_count(((const struct yb_path *)state)->hazard);
}

const struct yb_hazard *
yb_path_hazard(const struct yb_path *path)
{
    return path->hazard;
}

double
yb_path_left_age_s(const struct yb_path *path)
{
    return path->left_age_s;
}

double
yb_path_clock(const struct yb_path *path)
{
    return (double)clock_of(path);
}

double
yb_path_request_size(const struct yb_path *path)
{
    return path->request_size;
}

double *
yb_path_own(struct yb_path *path)
{
    return path->own;
}

const double *
yb_path_own_read(const struct yb_path *path)
{
    return path->own;
}
