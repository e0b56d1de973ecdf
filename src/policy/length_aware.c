/* SPDX-License-Identifier: Apache-2.0
 *
 * Mooncake's LengthAware (arXiv 2407.00079 v3, table 1): the least often used goes first; of equals
 * the one furthest back in its request, as what stands behind it is worth less; of these the least
 * recently used.
 *
 * A list for each number of uses up to USES_MAX and each position up to POSITION_MAX, and bitmaps
 * of those that are not empty. Beyond both, blocks are not told apart.
 */
#include <stdlib.h>

#include "base/check.h"
#include "policy/policy_internal.h"

#define USES_MAX     31u
#define POSITION_MAX 511u
#define WORDS        ((POSITION_MAX + 1) / 64)
_Static_assert(WORDS * 64 == POSITION_MAX + 1 && WORDS <= 32, "one word says which words");

struct level {
    uint32_t words_in_use; /* Bit w: words[w] is not 0. */
    uint64_t words[WORDS]; /* Bit p % 64 of word p / 64: lists[p] is not empty. */
    struct yb_policy_list lists[POSITION_MAX + 1];
};

struct length_aware {
    uint32_t levels_in_use; /* Bit u: level u is not empty. */
    struct level levels[USES_MAX + 1];
};

static enum yb_status
length_aware_create(const struct yb_policy_options *options, void **state_out)
{
    *state_out = calloc(1, sizeof(struct length_aware));
    return *state_out == NULL ? YB_NO_MEMORY : YB_OK;
}

static void
put(struct length_aware *all, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    uint32_t uses = entry->uses < USES_MAX ? entry->uses : USES_MAX;
    uint32_t position = touch->use->position;
    struct level *level = &all->levels[uses];

    if (position != 0) {
        entry->record = position < POSITION_MAX ? position : POSITION_MAX;
    }
    entry->group = (uint16_t)(uses * (POSITION_MAX + 1) + entry->record);
    yb_policy_list_push_newest(&level->lists[entry->record], entry);
    level->words[entry->record / 64] |= 1ull << entry->record % 64;
    level->words_in_use |= 1u << entry->record / 64;
    all->levels_in_use |= 1u << uses;
}

static void
length_aware_take(void *state, struct yb_policy_entry *entry)
{
    struct length_aware *all = state;
    uint32_t uses = entry->group / (POSITION_MAX + 1);
    uint32_t position = entry->group % (POSITION_MAX + 1);
    struct level *level = &all->levels[uses];

    yb_policy_list_take(&level->lists[position], entry);
    if (level->lists[position].count > 0) {
        return;
    }
    level->words[position / 64] &= ~(1ull << position % 64);
    if (level->words[position / 64] == 0) {
        level->words_in_use &= ~(1u << position / 64);
        if (level->words_in_use == 0) {
            all->levels_in_use &= ~(1u << uses);
        }
    }
}

static void
length_aware_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = 1;
    entry->record = 0;
    put(state, entry, touch);
}

static void
length_aware_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    if (touch->ordered) {
        length_aware_take(state, entry);
    }
    entry->uses = (uint16_t)(entry->uses + (entry->uses < YB_POLICY_USES_MAX));
    put(state, entry, touch);
}

static void
length_aware_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    /* Nothing is remembered: a block that comes back starts anew. */
}

static struct yb_policy_entry *
length_aware_first(void *state, bool look)
{
    const struct length_aware *all = state;
    const struct level *level;
    const struct yb_policy_list *list;
    uint32_t word;

    if (all->levels_in_use == 0) {
        return NULL;
    }
    level = &all->levels[__builtin_ctz(all->levels_in_use)];
    word = 31u - (uint32_t)__builtin_clz(level->words_in_use);
    list = &level->lists[word * 64 + 63u - (uint32_t)__builtin_clzll(level->words[word])];
    YB_ASSERT(list->count > 0);
    return look ? yb_policy_list_first(list, YB_POLICY_USES_MAX) : list->oldest;
}

const struct yb_policy_ops yb_policy_ops_length_aware = {
    .name = "length-aware",
    .create = length_aware_create,
    .destroy = free,
    .insert = length_aware_insert,
    .use = length_aware_use,
    .take = length_aware_take,
    .leave = length_aware_leave,
    .first = length_aware_first,
};
