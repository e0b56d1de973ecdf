/* SPDX-License-Identifier: Apache-2.0
 *
 * S3-FIFO: Yang, Zhang, Qiu, Yue and Vigfusson, "FIFO queues are all you need for cache eviction",
 * SOSP 2023, Algorithm 1.
 *
 * A new block enters the small queue, or the main one if the ghost remembers it. While the small
 * queue has a tenth of the bytes or more, its oldest leaves: to the main queue if it was used more
 * than once since it came (its count is cleared), or else for good, and the ghost remembers it.
 * Otherwise the oldest of the main queue leaves, after going round once for each use, up to three.
 *
 * One thing differs: a tenth is of what is there now, not of a fixed capacity, as watermarks and
 * tenants make the tier's room vary. In a full tier that is the same.
 *
 * `uses` counts the uses after the one that brought the block. Bytes count to the queue that an
 * entry belongs to, also while it is parked or at the front.
 */
#include <stdlib.h>

#include "base/check.h"
#include "policy/ghost.h"
#include "policy/policy_internal.h"

#define USES_MAX       3u /* Two bits in the paper. */
#define SMALL_USES_MAX 1u /* Used more often: it stays. */
#define SMALL_PARTS    10u

struct s3fifo {
    struct yb_policy_list small;
    struct yb_policy_list main;
    uint64_t small_size;
    uint64_t size;
    struct yb_policy_ghost ghost;
};

static enum yb_status
s3fifo_create(const struct yb_policy_options *options, void **state_out)
{
    struct s3fifo *s3fifo = calloc(1, sizeof *s3fifo);

    if (s3fifo == NULL || yb_policy_ghost_init(&s3fifo->ghost, options->ghost_count) != YB_OK) {
        free(s3fifo);
        return YB_NO_MEMORY;
    }
    *state_out = s3fifo;
    return YB_OK;
}

static void
s3fifo_destroy(void *state)
{
    struct s3fifo *s3fifo = state;

    yb_policy_ghost_fini(&s3fifo->ghost);
    free(s3fifo);
}

static struct yb_policy_list *
list_of(struct s3fifo *s3fifo, const struct yb_policy_entry *entry)
{
    return entry->settled ? &s3fifo->main : &s3fifo->small;
}

static void
s3fifo_insert(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    struct s3fifo *s3fifo = state;

    entry->uses = 0;
    entry->settled = yb_policy_ghost_take(&s3fifo->ghost, entry->hash);
    s3fifo->size += entry->size;
    s3fifo->small_size += entry->settled ? 0 : entry->size;
    yb_policy_list_push_newest(list_of(s3fifo, entry), entry);
}

static void
s3fifo_use(void *state, struct yb_policy_entry *entry, const struct yb_policy_touch *touch)
{
    entry->uses = (uint16_t)(entry->uses + (entry->uses < USES_MAX));
    if (!touch->ordered) {
        yb_policy_list_push_newest(list_of(state, entry), entry);
    }
}

static void
s3fifo_take(void *state, struct yb_policy_entry *entry)
{
    yb_policy_list_take(list_of(state, entry), entry);
}

static void
s3fifo_leave(void *state, struct yb_policy_entry *entry, bool evicted)
{
    struct s3fifo *s3fifo = state;

    YB_ASSERT(s3fifo->size >= entry->size);
    s3fifo->size -= entry->size;
    if (!entry->settled) {
        s3fifo->small_size -= entry->size;
        if (evicted) {
            yb_policy_ghost_add(&s3fifo->ghost, entry->hash);
        }
    }
}

/* Used while it was small: it belongs to the main queue now. */
static void
settle(struct s3fifo *s3fifo, struct yb_policy_entry *entry)
{
    yb_policy_list_take(&s3fifo->small, entry);
    s3fifo->small_size -= entry->size;
    entry->settled = true;
    entry->uses = 0;
    yb_policy_list_push_newest(&s3fifo->main, entry);
}

static struct yb_policy_entry *
s3fifo_first(void *state, bool look)
{
    struct s3fifo *s3fifo = state;

    for (;;) { /* Each turn takes a use back, which an access had given. */
        bool small_is_full = s3fifo->small_size >= s3fifo->size / SMALL_PARTS;
        struct yb_policy_entry *small = s3fifo->small.oldest;
        struct yb_policy_entry *main = s3fifo->main.oldest;

        if (small != NULL && (small_is_full || main == NULL)) {
            if (small->uses <= SMALL_USES_MAX) {
                return look ? yb_policy_list_first(&s3fifo->small, SMALL_USES_MAX) : small;
            }
            settle(s3fifo, small);
        } else if (main == NULL || main->uses == 0) {
            return look ? yb_policy_list_first(&s3fifo->main, 0) : main;
        } else {
            main->uses--;
            yb_policy_list_take(&s3fifo->main, main);
            yb_policy_list_push_newest(&s3fifo->main, main);
        }
    }
}

static uint32_t
s3fifo_ghost_count(const void *state)
{
    return ((const struct s3fifo *)state)->ghost.count;
}

const struct yb_policy_ops yb_policy_ops_s3fifo = {
    .name = "s3fifo",
    .create = s3fifo_create,
    .destroy = s3fifo_destroy,
    .insert = s3fifo_insert,
    .use = s3fifo_use,
    .take = s3fifo_take,
    .leave = s3fifo_leave,
    .first = s3fifo_first,
    .ghost_count = s3fifo_ghost_count,
};
