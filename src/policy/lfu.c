/* SPDX-License-Identifier: Apache-2.0
 *
 * The least often used goes first: one list for each number of uses, the least recently used at
 * its old end, and a bitmap of the lists that are not empty. Nothing ages, so what was hot once
 * stays for long: that is what LFU means, and why it is not the default.
 */
#include <stdlib.h>

#include "base/check.h"
#include "policy/policy_internal.h"

#define WORD_COUNT ((YB_POLICY_USES_MAX + 1) / 64)
_Static_assert(WORD_COUNT * 64 == YB_POLICY_USES_MAX + 1 && WORD_COUNT <= 64, "two levels of bits");

struct lfu {
    uint64_t words_in_use;      /* Bit w: words[w] is not 0. */
    uint64_t words[WORD_COUNT]; /* Bit u % 64 of word u / 64: lists[u] is not empty. */
    struct yb_policy_list lists[YB_POLICY_USES_MAX + 1];
};

static enum yb_status
lfu_create(const struct yb_policy_options *options, void **state_out)
{
    *state_out = calloc(1, sizeof(struct lfu));
    return *state_out == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
put(struct lfu *lfu, struct yb_policy_entry *entry)
{
    yb_policy_list_push_newest(&lfu->lists[entry->uses], entry);
    lfu->words[entry->uses / 64] |= 1ull << entry->uses % 64;
    lfu->words_in_use |= 1ull << entry->uses / 64;
}

static void
lfu_take(void *state, struct yb_policy_entry *entry)
{
    struct lfu *lfu = state;

    yb_policy_list_take(&lfu->lists[entry->uses], entry);
    if (lfu->lists[entry->uses].count == 0) {
        lfu->words[entry->uses / 64] &= ~(1ull << entry->uses % 64);
        if (lfu->words[entry->uses / 64] == 0) {
            lfu->words_in_use &= ~(1ull << entry->uses / 64);
        }
    }
}

static void
lfu_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = 1;
    put(state, entry);
}

static void
lfu_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    if (touch->ordered) {
        lfu_take(state, entry);
    }
    entry->uses = (uint16_t)(entry->uses + (entry->uses < YB_POLICY_USES_MAX));
    put(state, entry);
}

static void
lfu_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    /* Nothing is remembered: a block that comes back starts anew. */
}

static struct yb_policy_entry *
lfu_first(void *state, bool look)
{
    const struct lfu *lfu = state;
    const struct yb_policy_list *list;
    uint32_t word;

    if (lfu->words_in_use == 0) {
        return NULL;
    }
    word = (uint32_t)__builtin_ctzll(lfu->words_in_use);
    list = &lfu->lists[word * 64 + (uint32_t)__builtin_ctzll(lfu->words[word])];
    YB_ASSERT(list->count > 0);
    return look ? yb_policy_list_first(list, YB_POLICY_USES_MAX) : list->oldest;
}

const struct yb_policy_ops yb_policy_ops_lfu = {
    .name = "lfu",
    .create = lfu_create,
    .destroy = free,
    .insert = lfu_insert,
    .use = lfu_use,
    .take = lfu_take,
    .leave = lfu_leave,
    .first = lfu_first,
};
