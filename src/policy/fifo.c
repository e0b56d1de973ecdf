/* SPDX-License-Identifier: Apache-2.0
 *
 * What came first goes first, however often it was used. What comes back into the order (a pin
 * went) counts as new.
 */
#include <stdlib.h>

#include "policy/policy_internal.h"

static enum yb_status
fifo_create(const struct yb_policy_options *options, void **state_out)
{
    *state_out = calloc(1, sizeof(struct yb_policy_list));
    return *state_out == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
fifo_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = 1;
    yb_policy_list_push_newest(state, entry);
}

static void
fifo_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = (uint16_t)(entry->uses + (entry->uses < YB_POLICY_USES_MAX));
    if (!touch->ordered) {
        yb_policy_list_push_newest(state, entry);
    }
}

static void
fifo_take(void *state, struct yb_policy_entry *entry)
{
    yb_policy_list_take(state, entry);
}

static void
fifo_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    /* Nothing is remembered. */
}

static struct yb_policy_entry *
fifo_first(void *state, bool look)
{
    const struct yb_policy_list *list = state;

    return look ? yb_policy_list_first(list, YB_POLICY_USES_MAX) : list->oldest;
}

const struct yb_policy_ops yb_policy_ops_fifo = {
    .name = "fifo",
    .create = fifo_create,
    .destroy = free,
    .insert = fifo_insert,
    .use = fifo_use,
    .take = fifo_take,
    .leave = fifo_leave,
    .first = fifo_first,
};
