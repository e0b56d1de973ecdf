/* SPDX-License-Identifier: Apache-2.0
 *
 * Which requests are begun: in the order in which they came, as far as there is memory for them;
 * but not while somebody computes what they could reuse. That is asked of the scheduler's library,
 * as the simulator does (docs/scheduling.md, "Batches"): computing it twice helps nobody.
 */
#include "base/check.h"
#include "engine/engine_internal.h"

#define LOOK 32u /* Waiting requests, and prompts under way, that are compared. */

/* Return how many of its first blocks are here. Suffixes go before their prefixes, so they end
 * where halving says. */
static uint32_t
run_of(const struct yb_engine_request *request)
{
    uint32_t low = 0;
    uint32_t high = request->name_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (yb_kv_pool_has(request->engine->pool, request->keys[middle])) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static struct yb_sched_waiter
waiter_of(const struct yb_engine_request *request)
{
    uint32_t held = run_of(request);

    return (struct yb_sched_waiter){
        .blocks = request->names,
        /* What is pulled is computed already. */
        .block_count = request->from.block_count > 0 ? held : request->name_count,
        .held_blocks = held,
        .device_blocks = held,
        .input_tokens = request->prompt_tokens,
    };
}

/* Say of the first LOOK that wait whose turn it would be, were there memory enough for all. */
static void
take_turns(const struct yb_engine *engine, enum yb_sched_turn turns_out[LOOK])
{
    const struct yb_sched_batch_options options = {
        .block_tokens = engine->options.block_tokens,
        .room_blocks = UINT64_MAX,
        .load_ratio = -1,   /* What is loaded is known when the store was asked: too late here. */
        .shared_tokens = 1, /* It is looked at in each step, so nobody waits longer than a step for
                               what has come meanwhile: one block is worth that. */
    };
    struct yb_sched_waiter running[LOOK];
    struct yb_sched_waiter queue[LOOK];
    uint32_t running_count = 0;
    uint32_t count = 0;

    for (const struct yb_engine_request *request = engine->first; request != NULL;
         request = request->next) {
        if (request->state == YB_ENGINE_PROMPT && request->fate == YB_OK && running_count < LOOK) {
            running[running_count++] = waiter_of(request);
        } else if (request->state == YB_ENGINE_WAITING && count < LOOK) {
            queue[count++] = waiter_of(request);
        }
    }
    (void)yb_sched_batch_form(&options, running, running_count, queue, count, turns_out);
}

static void
begin(struct yb_engine_request *request, bool older)
{
    struct yb_engine *engine = request->engine;

    engine->waiting--;
    engine->reserved += request->block_max;
    request->state = YB_ENGINE_PROMPT;
    request->outcome.begun_ns = yb_engine_now(engine);
    request->ready_ns = request->outcome.begun_ns;
    if (request->from.block_count > 0) {
        yb_engine_pull_locked(request);
    } else if (engine->options.late_loads && older) {
        request->late = true;
    } else {
        yb_engine_load_locked(request);
    }
}

/* Prompts whose load had to wait for those before them. Returns how many requests are under way;
 * *older_out: a prompt among them. */
static uint32_t
count_active(struct yb_engine *engine, bool *older_out)
{
    uint32_t active = 0;

    *older_out = false;
    for (struct yb_engine_request *request = engine->first; request != NULL;
         request = request->next) {
        if (request->state != YB_ENGINE_PROMPT && request->state != YB_ENGINE_RUNNING) {
            continue;
        }
        active++;
        if (request->late && !*older_out) {
            request->late = false;
            yb_engine_load_locked(request);
        }
        *older_out = *older_out || request->state == YB_ENGINE_PROMPT;
    }
    return active;
}

void
yb_engine_admit_locked(struct yb_engine *engine)
{
    uint32_t slots = yb_kv_pool_slots(engine->pool);
    enum yb_sched_turn turns[LOOK];
    uint32_t asked = 0;
    bool older;
    uint32_t active;

    yb_lock_assert_held(&engine->lock);
    active = count_active(engine, &older);
    if (engine->waiting == 0) {
        return;
    }
    take_turns(engine, turns);
    for (struct yb_engine_request *request = engine->first; request != NULL;
         request = request->next) {
        if (request->state != YB_ENGINE_WAITING) {
            continue;
        }
        if (asked < LOOK && turns[asked++] == YB_SCHED_TURN_DEFERRED) {
            continue;
        }
        if (active >= engine->options.running_max ||
            request->block_max > slots - (engine->reserved < slots ? engine->reserved : slots)) {
            return; /* N3: a large one is not passed by for ever. */
        }
        begin(request, older);
        older = true;
        active++;
    }
}
