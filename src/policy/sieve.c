/* SPDX-License-Identifier: Apache-2.0
 *
 * SIEVE: Zhang, Yang, Yue, Vigfusson and Rashmi, "SIEVE is simpler than LRU", NSDI 2024.
 *
 * A list in the order of coming, and a hand that goes from the old end to the new one and round
 * again. What was used since the hand last came by stays where it is, and is asked for that again;
 * what was not goes. `uses` is 1 if it was used, otherwise 0.
 *
 * As the hand goes on only where something is in its way that was used, and a use puts that there,
 * a step costs what a use had brought: O(1) amortised.
 */
#include <stdlib.h>

#include "policy/policy_internal.h"

struct sieve {
    struct yb_policy_list list;
    struct yb_policy_entry *hand; /* What it looks at next; NULL: the oldest. */
};

static enum yb_status
sieve_create(const struct yb_policy_options *options, void **state_out)
{
    *state_out = calloc(1, sizeof(struct sieve));
    return *state_out == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
sieve_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    struct sieve *sieve = state;

    entry->uses = 0;
    yb_policy_list_push_newest(&sieve->list, entry);
}

static void
sieve_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    struct sieve *sieve = state;

    entry->uses = 1;
    if (!touch->ordered) {
        yb_policy_list_push_newest(&sieve->list, entry);
    }
}

static void
sieve_take(void *state, struct yb_policy_entry *entry)
{
    struct sieve *sieve = state;

    if (sieve->hand == entry) {
        sieve->hand = entry->newer;
    }
    yb_policy_list_take(&sieve->list, entry);
}

static void
sieve_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    /* Nothing is remembered. */
}

/* A duplicate among the next that the hand would come to, and take, goes before them. */
static struct yb_policy_entry *
duplicate_ahead(struct yb_policy_entry *entry)
{
    struct yb_policy_entry *other = entry;

    for (uint32_t i = 0; i < YB_POLICY_LOOK && other != NULL; i++, other = other->newer) {
        if (other->duplicate && other->uses == 0 && other->pins == 0 &&
            !yb_policy_has_children(other)) {
            return other;
        }
    }
    return entry;
}

static struct yb_policy_entry *
sieve_first(void *state, bool look)
{
    struct sieve *sieve = state;
    struct yb_policy_entry *entry = sieve->hand != NULL ? sieve->hand : sieve->list.oldest;

    while (entry != NULL && entry->uses > 0) {
        entry->uses = 0;
        entry = entry->newer != NULL ? entry->newer : sieve->list.oldest;
    }
    sieve->hand = entry;
    return look && entry != NULL ? duplicate_ahead(entry) : entry;
}

const struct yb_policy_ops yb_policy_ops_sieve = {
    .name = "sieve",
    .create = sieve_create,
    .destroy = free,
    .insert = sieve_insert,
    .use = sieve_use,
    .take = sieve_take,
    .leave = sieve_leave,
    .first = sieve_first,
};
