/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_internal.h -- what a policy is made of: an order of entries behind one table.
 *
 * A policy keeps the entries that are in place ORDER, in lists, and knows nothing of pins, parents,
 * the front and those that go last (policy.h). To add one: write its table, declare it here, name
 * it in policy.c.
 */
#ifndef YB_POLICY_POLICY_INTERNAL_H
#define YB_POLICY_POLICY_INTERNAL_H

#include <stddef.h>

#include "policy/policy.h"

enum yb_policy_place {
    YB_POLICY_OUT,
    YB_POLICY_ORDER,
    YB_POLICY_FRONT,
    YB_POLICY_LAST,
    YB_POLICY_PARKED,
};

/* Entries from the newest to the oldest. All zero is an empty list. */
struct yb_policy_list {
    struct yb_policy_entry *newest;
    struct yb_policy_entry *oldest;
    uint64_t count;
};

void yb_policy_list_push_newest(struct yb_policy_list *list, struct yb_policy_entry *entry);
void yb_policy_list_push_oldest(struct yb_policy_list *list, struct yb_policy_entry *entry);
void yb_policy_list_take(struct yb_policy_list *list, struct yb_policy_entry *entry);

/* Return the oldest entry, or a duplicate among the YB_POLICY_LOOK oldest that may go and was not
 * used more than `uses_max` times; NULL: the list is empty. */
struct yb_policy_entry *yb_policy_list_first(const struct yb_policy_list *list, uint16_t uses_max);

/* A use, as a policy hears of it. */
struct yb_policy_touch {
    const struct yb_policy_use *use;
    uint64_t now_ns;
    uint64_t last_ns; /* The use before; now_ns if it is the first. */
    bool ordered;     /* It is in the order; otherwise it comes, or comes back, into it. */
};

struct yb_policy_ops {
    const char *name;

    enum yb_status (*create)(const struct yb_policy_options *options, void **state_out);
    void (*destroy)(void *state);

    /* A new entry: set what it counts, and put it in its place. */
    void (*insert)(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch);

    /* It was used. */
    void (*use)(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch);

    /* Take it out of the order; it may come back by `use`. */
    void (*take)(void *state, struct yb_policy_entry *entry);

    /* It is out of the order and leaves for good. */
    void (*leave)(void *state, struct yb_policy_entry *entry, bool evicted);

    /* Return what the order gives up first, by rule, whether pinned or not; NULL: it is empty. May
     * move entries inside the order. `look`: there are duplicates to prefer. */
    struct yb_policy_entry *(*first)(void *state, bool look);

    uint32_t (*ghost_count)(const void *state); /* NULL: it remembers nothing. */
};

extern const struct yb_policy_ops yb_policy_ops_lru;
extern const struct yb_policy_ops yb_policy_ops_lfu;
extern const struct yb_policy_ops yb_policy_ops_s3fifo;
extern const struct yb_policy_ops yb_policy_ops_fifo;
extern const struct yb_policy_ops yb_policy_ops_sieve;
extern const struct yb_policy_ops yb_policy_ops_length_aware;
extern const struct yb_policy_ops yb_policy_ops_workload;
extern const struct yb_policy_ops yb_policy_ops_bidaw;
extern const struct yb_policy_ops yb_policy_ops_trajectory;

/* Whether an entry is the parent of others. */
bool yb_policy_has_children(const struct yb_policy_entry *entry);

#endif /* YB_POLICY_POLICY_INTERNAL_H */
