/* SPDX-License-Identifier: Apache-2.0
 *
 * Which of those that wait at an engine are prefilled together: a hit is not ready while somebody
 * computes it, loads and computing should be of a size, and decode fills what is left between.
 */
#include <math.h>
#include <stdbool.h>

#include "base/check.h"
#include "yuebing/sched.h"

#define BLOCK_TOKENS  512u
#define LOAD_RATIO    100.0
#define SHARED_TOKENS 100u
#define STEPS_MAX     65536u

/* A batch while it is formed. */
struct forming {
    struct yb_sched_batch_options options;
    const struct yb_sched_waiter *queue;
    enum yb_sched_turn *turns;
    struct yb_sched_batch batch;
    uint64_t room_used; /* Blocks. */
    uint32_t count;
};

static struct yb_sched_batch_options
with_defaults(const struct yb_sched_batch_options *options)
{
    struct yb_sched_batch_options full = *options;

    full.block_tokens = full.block_tokens == 0 ? BLOCK_TOKENS : full.block_tokens;
    full.requests_max = full.requests_max == 0 ? UINT32_MAX : full.requests_max;
    full.new_tokens = full.new_tokens == 0 ? UINT64_MAX : full.new_tokens;
    full.shared_tokens = full.shared_tokens == 0 ? SHARED_TOKENS : full.shared_tokens;
    if (!(full.load_ratio < 0 || full.load_ratio > 0)) {
        full.load_ratio = LOAD_RATIO;
    }
    return full;
}

/* Tokens of a waiter's first blocks; the last token of a prompt is always computed. */
static uint32_t
tokens_of(const struct forming *forming, const struct yb_sched_waiter *waiter, uint32_t blocks)
{
    uint64_t tokens = (uint64_t)blocks * forming->options.block_tokens;

    return tokens < waiter->input_tokens ? (uint32_t)tokens : waiter->input_tokens - 1;
}

static uint32_t
new_tokens_of(const struct forming *forming, const struct yb_sched_waiter *waiter)
{
    return waiter->input_tokens - tokens_of(forming, waiter, waiter->held_blocks);
}

/* How many first blocks two have in common. Equal names mean equal prefixes. */
static uint32_t
common_blocks(const struct yb_sched_waiter *one, const struct yb_sched_waiter *other)
{
    uint32_t low = 0;
    uint32_t high = one->block_count < other->block_count ? one->block_count : other->block_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (one->blocks[middle] == other->blocks[middle]) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- delay hits ------------------------------------------------------------------------------ */

/* Whether a waiter shares so much of what it would compute with one that computes it anyway. */
static bool
waits_for(const struct forming *forming, const struct yb_sched_waiter *waiter,
          const struct yb_sched_waiter *other)
{
    uint32_t held = waiter->held_blocks;

    if (held >= waiter->block_count || held >= other->block_count ||
        waiter->blocks[held] != other->blocks[held]) {
        return false;
    }
    return tokens_of(forming, waiter, common_blocks(waiter, other)) -
               tokens_of(forming, waiter, held) >
           forming->options.shared_tokens;
}

static bool
is_delay_hit(const struct forming *forming, const struct yb_sched_waiter *running,
             uint32_t running_count, uint32_t index)
{
    const struct yb_sched_waiter *waiter = &forming->queue[index];

    for (uint32_t i = 0; i < running_count; i++) {
        if (waits_for(forming, waiter, &running[i])) {
            return true;
        }
    }
    for (uint32_t i = 0; i < index; i++) {
        if (forming->turns[i] != YB_SCHED_TURN_DEFERRED &&
            waits_for(forming, waiter, &forming->queue[i])) {
            return true;
        }
    }
    return false;
}

static void
defer(struct forming *forming, const struct yb_sched_waiter *running, uint32_t running_count)
{
    if (forming->options.shared_tokens == UINT32_MAX) {
        return;
    }
    for (uint32_t i = 0; i < forming->count; i++) {
        if (is_delay_hit(forming, running, running_count, i)) {
            forming->turns[i] = YB_SCHED_TURN_DEFERRED;
            forming->batch.deferred++;
        }
    }
}

/* ---- the batch ------------------------------------------------------------------------------- */

/* How many of a waiter's blocks, from the first on, are at its disposal: `have` of its own, or
 * those that are reused by somebody in the batch. */
static uint32_t
blocks_with_bundle(const struct forming *forming, const struct yb_sched_waiter *waiter,
                   uint32_t have)
{
    for (uint32_t i = 0; i < forming->count && have < waiter->held_blocks; i++) {
        const struct yb_sched_waiter *other = &forming->queue[i];

        if (forming->turns[i] == YB_SCHED_TURN_TAKEN && other->held_blocks > have) {
            uint32_t common = common_blocks(waiter, other);

            common = common < other->held_blocks ? common : other->held_blocks;
            have = common > have ? common : have;
        }
    }
    return have < waiter->held_blocks ? have : waiter->held_blocks;
}

/* What a waiter has to load that nobody in the batch loads. */
static uint32_t
load_tokens_of(const struct forming *forming, const struct yb_sched_waiter *waiter)
{
    uint32_t have = blocks_with_bundle(forming, waiter, waiter->device_blocks);

    return tokens_of(forming, waiter, waiter->held_blocks) - tokens_of(forming, waiter, have);
}

/* Blocks of the devices that a waiter takes from what is free. */
static uint64_t
room_of(const struct forming *forming, const struct yb_sched_waiter *waiter)
{
    uint32_t block_tokens = forming->options.block_tokens;
    uint64_t blocks = (waiter->input_tokens + block_tokens - 1ull) / block_tokens;

    return blocks - blocks_with_bundle(forming, waiter, waiter->used_blocks);
}

static bool
is_load_bound(const struct forming *forming, uint64_t load_tokens, uint64_t new_tokens)
{
    double ratio = forming->options.load_ratio < 0 ? LOAD_RATIO : forming->options.load_ratio;

    return (double)load_tokens > ratio * (double)new_tokens;
}

static bool
has_room(const struct forming *forming, const struct yb_sched_waiter *waiter)
{
    const struct yb_sched_batch *batch = &forming->batch;

    if (forming->room_used + room_of(forming, waiter) > forming->options.room_blocks) {
        return false;
    }
    return batch->taken == 0 ||
           (batch->taken < forming->options.requests_max &&
            batch->new_tokens + new_tokens_of(forming, waiter) <= forming->options.new_tokens);
}

static void
take(struct forming *forming, uint32_t index)
{
    const struct yb_sched_waiter *waiter = &forming->queue[index];

    forming->room_used += room_of(forming, waiter);
    forming->batch.load_tokens += load_tokens_of(forming, waiter);
    forming->batch.new_tokens += new_tokens_of(forming, waiter);
    forming->batch.taken++;
    forming->turns[index] = YB_SCHED_TURN_TAKEN;
}

/* Take those that wait in their order, while there is room. `balanced`: not those with whom the
 * batch would be bound by its loads, unless they load nothing by themselves. */
static void
fill(struct forming *forming, bool balanced)
{
    for (uint32_t i = 0; i < forming->count; i++) {
        const struct yb_sched_waiter *waiter = &forming->queue[i];
        uint32_t load_tokens;

        if (forming->turns[i] != YB_SCHED_TURN_LEFT) {
            continue;
        }
        if (!has_room(forming, waiter)) {
            if (forming->batch.taken == 0) {
                return; /* It is its turn; nobody overtakes it until it has room. */
            }
            continue;
        }
        load_tokens = load_tokens_of(forming, waiter);
        if (balanced && forming->batch.taken > 0 && load_tokens > 0 &&
            is_load_bound(forming, forming->batch.load_tokens + load_tokens,
                          forming->batch.new_tokens + new_tokens_of(forming, waiter))) {
            continue;
        }
        take(forming, i);
    }
}

struct yb_sched_batch
yb_sched_batch_form(const struct yb_sched_batch_options *options,
                    const struct yb_sched_waiter *running, uint32_t running_count,
                    const struct yb_sched_waiter *queue, uint32_t count,
                    enum yb_sched_turn *turns_out)
{
    struct forming forming = {
        .options = with_defaults(options),
        .queue = queue,
        .turns = turns_out,
        .count = count < YB_SCHED_BATCH_LOOK ? count : YB_SCHED_BATCH_LOOK,
    };

    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT(queue[i].input_tokens > 0 && queue[i].used_blocks <= queue[i].device_blocks &&
                  queue[i].device_blocks <= queue[i].held_blocks &&
                  queue[i].held_blocks <= queue[i].block_count);
        turns_out[i] = YB_SCHED_TURN_LEFT;
    }
    defer(&forming, running, running_count);
    if (forming.options.load_ratio > 0) {
        fill(&forming, true);
    }
    fill(&forming, false);
    forming.batch.load_bound =
        is_load_bound(&forming, forming.batch.load_tokens, forming.batch.new_tokens);
    return forming.batch;
}

/* ---- its time -------------------------------------------------------------------------------- */

double
yb_sched_batch_ns(const struct yb_sched_cost *cost, double load_ns, double compute_ns)
{
    double layers = fmax(1, cost->layers);

    return fmax(load_ns / layers + compute_ns, load_ns + compute_ns / layers);
}

uint32_t
yb_sched_batch_bubble(const struct yb_sched_cost *cost, double load_ns, double compute_ns,
                      uint32_t sequences, uint64_t context_tokens)
{
    double idle_ns = yb_sched_batch_ns(cost, load_ns, compute_ns) - compute_ns;
    double step_ns = yb_sched_step_ns(cost, sequences, context_tokens);

    if (sequences == 0 || !(step_ns > 0)) {
        return 0;
    }
    return (uint32_t)fmin(STEPS_MAX, floor(idle_ns / step_ns + 0.5));
}
