/* SPDX-License-Identifier: Apache-2.0
 *
 * The least recently used goes first: one list.
 */
#include <stdlib.h>

#include "policy/policy_internal.h"

static enum yb_status
lru_create(const struct yb_policy_options *options, void **state_out)
{
    *state_out = calloc(1, sizeof(struct yb_policy_list));
    return *state_out == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
lru_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = 1;
    yb_policy_list_push_newest(state, entry);
}

static void
lru_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    if (touch->ordered) {
        yb_policy_list_take(state, entry);
    }
    entry->uses = (uint16_t)(entry->uses + (entry->uses < YB_POLICY_USES_MAX));
    yb_policy_list_push_newest(state, entry);
}

static void
lru_take(void *state, struct yb_policy_entry *entry)
{
    yb_policy_list_take(state, entry);
}

static void
lru_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    /* Nothing is remembered. */
}

static struct yb_policy_entry *
lru_first(void *state, bool look)
{
    const struct yb_policy_list *list = state;

    return look ? yb_policy_list_first(list, YB_POLICY_USES_MAX) : list->oldest;
}

const struct yb_policy_ops yb_policy_ops_lru = {
    .name = "lru",
    .create = lru_create,
    .destroy = free,
    .insert = lru_insert,
    .use = lru_use,
    .take = lru_take,
    .leave = lru_leave,
    .first = lru_first,
};
