/* SPDX-License-Identifier: Apache-2.0
 *
 * What all policies share: pins, parents, the front, duplicates. The order is behind the table.
 */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "policy/policy_internal.h"

#define POLICY_MAGIC 0x706f6c69u

/* One line registers a policy. */
static const struct yb_policy_ops *const policies[] = {
    &yb_policy_ops_lru,      &yb_policy_ops_lfu,   &yb_policy_ops_s3fifo,
    &yb_policy_ops_fifo,     &yb_policy_ops_sieve, &yb_policy_ops_length_aware,
    &yb_policy_ops_workload, &yb_policy_ops_bidaw, &yb_policy_ops_trajectory,
};
#define POLICY_COUNT ((uint32_t)(sizeof policies / sizeof policies[0]))

struct yb_policy {
    uint32_t magic;
    const struct yb_policy_ops *ops;
    void *state;
    struct yb_policy_list front; /* Those at its old end go first. */
    struct yb_policy_list last;  /* Softly pinned ones. */
    uint64_t entry_count;
    uint64_t pinned_count;
    uint64_t parked_count;
    uint64_t duplicate_count;
    uint64_t size_sum;
    uint64_t looked_count;
};

void
yb_policy_list_push_newest(struct yb_policy_list *list, struct yb_policy_entry *entry)
{
    entry->newer = NULL;
    entry->older = list->newest;
    if (list->newest != NULL) {
        list->newest->newer = entry;
    } else {
        list->oldest = entry;
    }
    list->newest = entry;
    list->count++;
}

void
yb_policy_list_push_oldest(struct yb_policy_list *list, struct yb_policy_entry *entry)
{
    entry->older = NULL;
    entry->newer = list->oldest;
    if (list->oldest != NULL) {
        list->oldest->older = entry;
    } else {
        list->newest = entry;
    }
    list->oldest = entry;
    list->count++;
}

void
yb_policy_list_take(struct yb_policy_list *list, struct yb_policy_entry *entry)
{
    YB_ASSERT(list->count > 0);
    if (entry->newer != NULL) {
        entry->newer->older = entry->older;
    } else {
        YB_ASSERT(list->newest == entry);
        list->newest = entry->older;
    }
    if (entry->older != NULL) {
        entry->older->newer = entry->newer;
    } else {
        YB_ASSERT(list->oldest == entry);
        list->oldest = entry->newer;
    }
    entry->newer = NULL;
    entry->older = NULL;
    list->count--;
}

struct yb_policy_entry *
yb_policy_list_first(const struct yb_policy_list *list, uint16_t uses_max)
{
    struct yb_policy_entry *entry = list->oldest;

    for (uint32_t i = 0; i < YB_POLICY_LOOK && entry != NULL; i++, entry = entry->newer) {
        if (entry->duplicate && entry->uses <= uses_max && entry->pins == 0 &&
            !yb_policy_has_children(entry)) {
            return entry;
        }
    }
    return list->oldest;
}

/* The caller knows that the entry is linked. */
static struct yb_policy_linked *
linked_of(struct yb_policy_entry *entry)
{
    YB_ASSERT(entry->linked);
    return (struct yb_policy_linked *)(void *)entry;
}

bool
yb_policy_has_children(const struct yb_policy_entry *entry)
{
    return entry->linked && ((const struct yb_policy_linked *)(const void *)entry)->child != NULL;
}

/* P1 */
static bool
may_go(const struct yb_policy_entry *entry)
{
    return entry->pins == 0 && !yb_policy_has_children(entry);
}

/* Make `child`, which is in no ring, the most recently used child of its parent. */
static void
ring_push(struct yb_policy_linked *child)
{
    struct yb_policy_linked *first = child->parent->child;

    if (first == NULL) {
        child->sibling_newer = child;
        child->sibling_older = child;
    } else {
        child->sibling_older = first;
        child->sibling_newer = first->sibling_newer; /* The oldest closes the ring. */
        child->sibling_newer->sibling_older = child;
        first->sibling_newer = child;
    }
    child->parent->child = child;
}

static void
ring_take(struct yb_policy_linked *child)
{
    if (child->sibling_older == child) {
        child->parent->child = NULL;
    } else {
        child->sibling_older->sibling_newer = child->sibling_newer;
        child->sibling_newer->sibling_older = child->sibling_older;
        if (child->parent->child == child) {
            child->parent->child = child->sibling_older;
        }
    }
    child->sibling_newer = NULL;
    child->sibling_older = NULL;
}

static void
take_out(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    if (entry->place == YB_POLICY_ORDER) {
        policy->ops->take(policy->state, entry);
    } else if (entry->place == YB_POLICY_FRONT) {
        yb_policy_list_take(&policy->front, entry);
    } else if (entry->place == YB_POLICY_LAST) {
        yb_policy_list_take(&policy->last, entry);
    } else {
        YB_ASSERT(entry->place == YB_POLICY_PARKED);
        policy->parked_count--;
    }
    entry->place = YB_POLICY_OUT;
}

static void
park(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    take_out(policy, entry);
    entry->place = YB_POLICY_PARKED;
    policy->parked_count++;
}

/* Make it one of the next; `at_once`: the very next. */
static void
bring_to_front(struct yb_policy *policy, struct yb_policy_entry *entry, bool at_once)
{
    take_out(policy, entry);
    if (entry->soft) { /* P5: the next of those that go last. */
        entry->place = YB_POLICY_LAST;
        yb_policy_list_push_oldest(&policy->last, entry);
        return;
    }
    entry->place = YB_POLICY_FRONT;
    if (at_once) {
        yb_policy_list_push_oldest(&policy->front, entry);
    } else {
        yb_policy_list_push_newest(&policy->front, entry);
    }
}

/* A reason to wait went away. (A parent of other children comes up again, and asks for the next
 * of them.) */
static void
wake(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    if (entry->place == YB_POLICY_PARKED && entry->pins == 0) {
        bring_to_front(policy, entry, false);
    }
}

/* Take it out of its family: it has no parent and no children afterwards. */
static void
leave_family(struct yb_policy *policy, struct yb_policy_linked *linked)
{
    struct yb_policy_linked *parent = linked->parent;

    while (linked->child != NULL) {
        struct yb_policy_linked *orphan = linked->child->sibling_newer; /* The oldest. */

        ring_take(orphan);
        orphan->parent = NULL;
        if (orphan->entry.place == YB_POLICY_ORDER) {
            bring_to_front(policy, &orphan->entry, false);
        }
    }
    if (parent != NULL) {
        ring_take(linked);
        linked->parent = NULL;
        wake(policy, &parent->entry);
    }
}

static void
leave(struct yb_policy *policy, struct yb_policy_entry *entry, bool evicted)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    YB_ASSERT(policy->entry_count > 0);
    take_out(policy, entry);
    if (entry->linked) {
        leave_family(policy, linked_of(entry));
    }
    if (!entry->soft) {
        policy->ops->leave(policy->state, entry, evicted);
    }
    policy->entry_count--;
    policy->size_sum -= entry->size;
    policy->pinned_count -= entry->pins > 0;
    policy->duplicate_count -= entry->duplicate;
    entry->pins = 0;
}

enum yb_status
yb_policy_create(const struct yb_policy_options *options, struct yb_policy **policy_out)
{
    const struct yb_policy_ops *ops = NULL;
    struct yb_policy *policy;
    enum yb_status status;

    YB_ASSERT(options != NULL && policy_out != NULL);
    for (uint32_t i = 0; i < POLICY_COUNT && options->name != NULL; i++) {
        if (strcmp(policies[i]->name, options->name) == 0) {
            ops = policies[i];
        }
    }
    if (ops == NULL || options->ghost_count > YB_POLICY_GHOST_MAX) {
        return YB_INVALID;
    }
    policy = calloc(1, sizeof *policy);
    if (policy == NULL) {
        return YB_NO_MEMORY;
    }
    status = ops->create(options, &policy->state);
    if (status != YB_OK) {
        free(policy);
        return status;
    }
    policy->magic = POLICY_MAGIC;
    policy->ops = ops;
    *policy_out = policy;
    return YB_OK;
}

void
yb_policy_destroy(struct yb_policy **policy)
{
    if (*policy == NULL) {
        return;
    }
    YB_ASSERT_OBJ(*policy, POLICY_MAGIC);
    (*policy)->ops->destroy((*policy)->state);
    (*policy)->magic = 0;
    free(*policy);
    *policy = NULL;
}

const char *
yb_policy_name(uint32_t index)
{
    return index < POLICY_COUNT ? policies[index]->name : NULL;
}

void
yb_policy_insert(struct yb_policy *policy, struct yb_policy_entry *entry,
                 const struct yb_policy_facts *facts, uint64_t now_ns)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    *entry = (struct yb_policy_entry){
        .last_access_ns = now_ns,
        .size = facts->size,
        .hash = (uint32_t)(facts->hash ^ facts->hash >> 32),
        .place = YB_POLICY_ORDER,
        .linked = facts->linked,
        .duplicate = facts->duplicate,
        .soft = facts->soft,
    };
    if (facts->linked) {
        struct yb_policy_linked *linked = linked_of(entry);

        linked->parent = NULL;
        linked->child = NULL;
        linked->sibling_newer = NULL;
        linked->sibling_older = NULL;
    }
    if (facts->soft) {
        entry->place = YB_POLICY_LAST;
        yb_policy_list_push_newest(&policy->last, entry);
    } else {
        struct yb_policy_touch touch = {.use = &facts->use, .now_ns = now_ns, .last_ns = now_ns};

        policy->ops->insert(policy->state, entry, &touch);
    }
    policy->entry_count++;
    policy->size_sum += entry->size;
    policy->duplicate_count += entry->duplicate;
}

void
yb_policy_end_soft(struct yb_policy *policy, struct yb_policy_entry *entry,
                   const struct yb_policy_use *use, uint64_t now_ns)
{
    struct yb_policy_touch touch = {.use = use, .now_ns = now_ns, .last_ns = now_ns};

    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    if (!entry->soft) {
        return;
    }
    take_out(policy, entry);
    entry->soft = false;
    entry->place = YB_POLICY_ORDER;
    entry->last_access_ns = now_ns;
    policy->ops->insert(policy->state, entry, &touch);
}

void
yb_policy_access(struct yb_policy *policy, struct yb_policy_entry *entry, uint64_t now_ns)
{
    struct yb_policy_use use = {.request = 0};

    yb_policy_use(policy, entry, &use, now_ns);
}

void
yb_policy_use(struct yb_policy *policy, struct yb_policy_entry *entry,
              const struct yb_policy_use *use, uint64_t now_ns)
{
    struct yb_policy_touch touch = {
        .use = use,
        .now_ns = now_ns,
        .last_ns = entry->last_access_ns,
        .ordered = entry->place == YB_POLICY_ORDER,
    };

    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    entry->last_access_ns = now_ns;
    if (!touch.ordered) {
        take_out(policy, entry);
        entry->place = entry->soft ? YB_POLICY_LAST : YB_POLICY_ORDER;
    }
    if (entry->soft) {
        yb_policy_list_push_newest(&policy->last, entry);
    } else {
        policy->ops->use(policy->state, entry, &touch);
    }
    if (entry->linked) {
        struct yb_policy_linked *linked = linked_of(entry);

        if (linked->parent != NULL && linked->parent->child != linked) {
            ring_take(linked);
            ring_push(linked);
        }
    }
}

void
yb_policy_remove(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    leave(policy, entry, false);
}

void
yb_policy_evict(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    YB_ASSERT(may_go(entry)); /* P1 */
    leave(policy, entry, true);
}

/* Return the child that goes before its parent: the least recently used, past some that are softly
 * pinned. NULL: none of them. */
static struct yb_policy_linked *
child_to_go(const struct yb_policy_linked *parent)
{
    struct yb_policy_linked *child = parent->child->sibling_newer; /* The oldest. */

    for (uint32_t i = 0; i < YB_POLICY_LOOK && child->entry.soft; i++) {
        child = child->sibling_newer;
        if (child == parent->child->sibling_newer) {
            break;
        }
    }
    return child->entry.soft && !parent->entry.soft ? NULL : child;
}

/* What would go next by the order of all, whether it may or not. */
static struct yb_policy_entry *
next_of_all(struct yb_policy *policy)
{
    struct yb_policy_entry *entry = policy->front.oldest;

    if (entry == NULL) {
        entry = policy->ops->first(policy->state, policy->duplicate_count > 0);
    }
    if (entry == NULL) {
        entry = yb_policy_list_first(&policy->last, YB_POLICY_USES_MAX);
    }
    return entry;
}

struct yb_policy_entry *
yb_policy_victim(struct yb_policy *policy)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    for (;;) {
        struct yb_policy_entry *entry = next_of_all(policy);

        policy->looked_count++;
        if (entry == NULL || may_go(entry)) {
            return entry;
        }
        park(policy, entry);
        if (entry->pins == 0) {
            struct yb_policy_linked *child = child_to_go(linked_of(entry));

            /* A parked child waits for its own children, or for its pins: it comes by itself. */
            if (child != NULL && child->entry.pins == 0 && child->entry.place != YB_POLICY_PARKED) {
                bring_to_front(policy, &child->entry, true);
            }
        }
    }
}

enum yb_status
yb_policy_pin(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    if (entry->pins == YB_POLICY_PINS_MAX) {
        return YB_BUSY;
    }
    policy->pinned_count += entry->pins == 0;
    entry->pins++;
    return YB_OK;
}

void
yb_policy_unpin(struct yb_policy *policy, struct yb_policy_entry *entry)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    YB_ASSERT(entry->pins > 0);
    entry->pins--;
    policy->pinned_count -= entry->pins == 0;
    if (may_go(entry)) { /* P2; a parent is woken by its children. */
        wake(policy, entry);
    }
}

void
yb_policy_set_duplicate(struct yb_policy *policy, struct yb_policy_entry *entry, bool duplicate)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(entry->place != YB_POLICY_OUT);
    policy->duplicate_count += duplicate;
    policy->duplicate_count -= entry->duplicate;
    entry->duplicate = duplicate;
}

/* P4 */
static bool
is_above(const struct yb_policy_linked *child, const struct yb_policy_linked *parent)
{
    for (uint32_t i = 0; i < YB_POLICY_CLIMB; i++) {
        if (parent == child) {
            return true;
        }
        if (parent->parent == NULL) {
            return false;
        }
        parent = parent->parent;
    }
    return true; /* Too far to look. */
}

enum yb_status
yb_policy_attach(struct yb_policy *policy, struct yb_policy_linked *child,
                 struct yb_policy_linked *parent)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    YB_ASSERT(child->entry.linked && parent->entry.linked);
    YB_ASSERT(child->entry.place != YB_POLICY_OUT && parent->entry.place != YB_POLICY_OUT);
    if (child->parent == parent) {
        return YB_OK;
    }
    if (child == parent || child->parent != NULL ||
        (child->child != NULL && is_above(child, parent))) {
        return YB_INVALID;
    }
    if (parent->child != NULL) {
        parent->entry.branches =
            (uint8_t)(parent->entry.branches + (parent->entry.branches < UINT8_MAX));
    }
    child->parent = parent;
    ring_push(child);
    return YB_OK;
}

struct yb_policy_info
yb_policy_info(const struct yb_policy *policy)
{
    YB_ASSERT_OBJ(policy, POLICY_MAGIC);
    return (struct yb_policy_info){
        .name = policy->ops->name,
        .entry_count = policy->entry_count,
        .pinned_count = policy->pinned_count,
        .parked_count = policy->parked_count,
        .front_count = policy->front.count,
        .duplicate_count = policy->duplicate_count,
        .size_sum = policy->size_sum,
        .looked_count = policy->looked_count,
        .ghost_count =
            policy->ops->ghost_count == NULL ? 0 : policy->ops->ghost_count(policy->state),
    };
}
