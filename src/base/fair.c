/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairing heaps (Fredman, Sedgewick, Sleator and Tarjan, 1986): the simplest heap whose items
 * need no array, so that a queue has no size of its own and an item can leave from the middle.
 * No function recurses: a heap of a million siblings is one list.
 */
#include "base/fair.h"

#include <stddef.h>

#include "base/check.h"

#define FAIR_MAGIC     0x66616972u
#define PERMILLE_WHOLE 1000

/* The bound of 2 M in the header's proof is for two classes with a share. */
_Static_assert(YB_CLASS_COUNT == 3, "prove F2 and F3 again");
_Static_assert(3 * PERMILLE_WHOLE * YB_FAIR_COST_BYTES_LIMIT < INT64_MAX, "what is owed fits");

/* F4 */
static bool
goes_before(const struct yb_fair_item *a, const struct yb_fair_item *b)
{
    return a->deadline_ns < b->deadline_ns ||
           (a->deadline_ns == b->deadline_ns && a->sequence < b->sequence);
}

/* Join two heaps, each given by its root, and return the new root. */
static struct yb_fair_item *
heap_join(struct yb_fair_item *a, struct yb_fair_item *b)
{
    struct yb_fair_item *parent = goes_before(b, a) ? b : a;
    struct yb_fair_item *child = parent == a ? b : a;

    child->previous = parent;
    child->next = parent->child;
    if (child->next != NULL) {
        child->next->previous = child;
    }
    parent->child = child;
    parent->next = NULL;
    parent->previous = NULL;
    return parent;
}

/* Join a list of siblings to one heap: in pairs from the left, then all from the right, which is
 * what makes it logarithmic. Returns NULL for an empty list. */
static struct yb_fair_item *
heap_join_siblings(struct yb_fair_item *first)
{
    struct yb_fair_item *pairs = NULL;
    struct yb_fair_item *root = NULL;

    while (first != NULL) {
        struct yb_fair_item *pair = first;
        struct yb_fair_item *partner = pair->next;

        first = partner == NULL ? NULL : partner->next;
        if (partner != NULL) {
            pair = heap_join(pair, partner);
        }
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs != NULL) {
        struct yb_fair_item *pair = pairs;

        pairs = pair->next;
        pair->next = NULL;
        pair->previous = NULL;
        root = root == NULL ? pair : heap_join(root, pair);
    }
    return root;
}

static void
heap_remove(struct yb_fair_item **root, struct yb_fair_item *item)
{
    struct yb_fair_item *orphans = heap_join_siblings(item->child);

    if (item == *root) {
        *root = orphans;
        return;
    }
    if (item->previous->child == item) {
        item->previous->child = item->next;
    } else {
        item->previous->next = item->next;
    }
    if (item->next != NULL) {
        item->next->previous = item->previous;
    }
    if (orphans != NULL) {
        *root = heap_join(*root, orphans);
    }
}

static uint64_t
cost_of(const struct yb_fair_item *item)
{
    return item->cost_bytes == 0 ? 1 : item->cost_bytes;
}

enum yb_status
yb_fair_init(struct yb_fair *fair, const struct yb_fair_options *options)
{
    uint32_t share_sum = 0;

    YB_ASSERT(fair != NULL && options != NULL);
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        share_sum += options->share_permille[c];
    }
    if (options->cost_bytes_max == 0 || options->cost_bytes_max > YB_FAIR_COST_BYTES_LIMIT ||
        options->share_permille[YB_CLASS_FIRST_TOKEN] != 0 || share_sum > PERMILLE_WHOLE) {
        return YB_INVALID;
    }
    *fair = (struct yb_fair){.magic = FAIR_MAGIC, .options = *options};
    return YB_OK;
}

void
yb_fair_fini(struct yb_fair *fair)
{
    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        YB_ASSERT(fair->classes[c].root == NULL);
    }
    fair->magic = 0;
}

void
yb_fair_item_init(struct yb_fair_item *item, enum yb_class traffic_class, uint64_t deadline_ns,
                  uint64_t cost_bytes)
{
    *item = (struct yb_fair_item){
        .traffic_class = traffic_class,
        .deadline_ns = deadline_ns,
        .cost_bytes = cost_bytes,
    };
}

void
yb_fair_push(struct yb_fair *fair, struct yb_fair_item *item)
{
    struct yb_fair_class *class;

    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    YB_ASSERT(!item->queued);
    YB_ASSERT((uint32_t)item->traffic_class < YB_CLASS_COUNT);
    YB_ASSERT(item->cost_bytes <= fair->options.cost_bytes_max);
    class = &fair->classes[item->traffic_class];
    item->sequence = fair->next_sequence++;
    item->child = NULL;
    item->next = NULL;
    item->previous = NULL;
    item->queued = true;
    class->root = class->root == NULL ? item : heap_join(class->root, item);
    class->item_count++;
    class->backlog_bytes += item->cost_bytes;
}

/* Return the class that goes next, or YB_CLASS_COUNT. */
static uint32_t
choose_class(const struct yb_fair *fair)
{
    uint32_t chosen = YB_CLASS_COUNT;
    int64_t owed_most = 0;

    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        const struct yb_fair_class *class = &fair->classes[c];

        if (class->root == NULL) {
            continue;
        }
        if (chosen == YB_CLASS_COUNT) {
            chosen = c; /* The most preferred, unless somebody is owed. */
        }
        if (class->owed > owed_most) {
            owed_most = class->owed;
            chosen = c;
        }
    }
    return chosen;
}

/* Take `item` out of its class. A class without work is owed nothing. */
static void
take_out(struct yb_fair *fair, struct yb_fair_item *item)
{
    struct yb_fair_class *class = &fair->classes[item->traffic_class];

    YB_ASSERT(item->queued);
    YB_ASSERT(class->item_count > 0);
    heap_remove(&class->root, item);
    item->child = NULL;
    item->next = NULL;
    item->previous = NULL;
    item->queued = false;
    class->item_count--;
    class->backlog_bytes -= item->cost_bytes;
    YB_ASSERT((class->root == NULL) == (class->item_count == 0));
    if (class->root == NULL && class->owed > 0) {
        class->owed = 0;
    }
}

struct yb_fair_item *
yb_fair_peek(const struct yb_fair *fair)
{
    uint32_t chosen;

    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    chosen = choose_class(fair);
    return chosen == YB_CLASS_COUNT ? NULL : fair->classes[chosen].root;
}

struct yb_fair_item *
yb_fair_earliest(const struct yb_fair *fair, enum yb_class traffic_class)
{
    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    YB_ASSERT((uint32_t)traffic_class < YB_CLASS_COUNT);
    return fair->classes[traffic_class].root;
}

struct yb_fair_item *
yb_fair_pop(struct yb_fair *fair)
{
    struct yb_fair_item *item = yb_fair_peek(fair);
    int64_t cost;

    if (item == NULL) {
        return NULL;
    }
    cost = (int64_t)cost_of(item);
    for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
        struct yb_fair_class *class = &fair->classes[c];
        bool goes = c == (uint32_t)item->traffic_class;

        if (class->root == NULL || (goes && class->owed <= 0)) {
            continue; /* Nothing waits here, or it goes by preference: nothing changes. */
        }
        class->owed += cost * fair->options.share_permille[c];
        class->owed -= goes ? cost * PERMILLE_WHOLE : 0;
    }
    take_out(fair, item);
    return item;
}

void
yb_fair_remove(struct yb_fair *fair, struct yb_fair_item *item)
{
    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    YB_ASSERT((uint32_t)item->traffic_class < YB_CLASS_COUNT);
    take_out(fair, item);
}

uint64_t
yb_fair_backlog_bytes(const struct yb_fair *fair, enum yb_class traffic_class)
{
    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    YB_ASSERT((uint32_t)traffic_class < YB_CLASS_COUNT);
    return fair->classes[traffic_class].backlog_bytes;
}

uint32_t
yb_fair_item_count(const struct yb_fair *fair, enum yb_class traffic_class)
{
    YB_ASSERT_OBJ(fair, FAIR_MAGIC);
    YB_ASSERT((uint32_t)traffic_class < YB_CLASS_COUNT);
    return fair->classes[traffic_class].item_count;
}
