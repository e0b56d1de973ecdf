/* SPDX-License-Identifier: Apache-2.0
 *
 * Which answer of a rollout goes on next, and where.
 */
#include "base/check.h"
#include "yuebing/sched.h"

#define SPREAD      32u
#define PULL_TOKENS 512u

/* ---- which ----------------------------------------------------------------------------------- */

static bool
goes_before(const struct yb_sched_rollout_waiter *one, const struct yb_sched_rollout_waiter *other,
            const struct yb_sched_rollout_group *groups)
{
    if (one->probe != other->probe) {
        return one->probe;
    }
    if (one->probe) {
        return one->generated < other->generated;
    }
    return groups[one->group].longest > groups[other->group].longest;
}

uint32_t
yb_sched_rollout_next(const struct yb_sched_rollout_waiter *waiters, uint32_t count,
                      const struct yb_sched_rollout_group *groups, uint64_t picks)
{
    bool serve = picks % YB_SCHED_ROLLOUT_SERVE == YB_SCHED_ROLLOUT_SERVE - 1;
    uint32_t next = 0;

    YB_ASSERT(count > 0);
    for (uint32_t i = 1; i < count; i++) {
        if (serve ? groups[waiters[i].group].served < groups[waiters[next].group].served
                  : goes_before(&waiters[i], &waiters[next], groups)) {
            next = i;
        }
    }
    return next;
}

/* ---- where ----------------------------------------------------------------------------------- */

static bool
is_level(const struct yb_sched_rollout_place *places, uint32_t count)
{
    uint32_t least = UINT32_MAX;
    uint32_t most = 0;

    for (uint32_t i = 0; i < count; i++) {
        least = places[i].in_flight < least ? places[i].in_flight : least;
        most = places[i].in_flight > most ? places[i].in_flight : most;
    }
    return count > 0 && most - least <= SPREAD;
}

uint32_t
yb_sched_rollout_where(const struct yb_sched_rollout_place *places, uint32_t count, uint64_t tokens,
                       uint32_t pool_tokens, bool *pull_out)
{
    bool level = is_level(places, count);
    uint32_t best = YB_SCHED_NONE;

    for (uint32_t i = 0; i < count; i++) {
        const struct yb_sched_rollout_place *place = &places[i];
        bool better;

        if (place->free_tokens < tokens) {
            continue;
        }
        better = best == YB_SCHED_NONE || place->in_flight < places[best].in_flight;
        if (level && best != YB_SCHED_NONE && place->held_tokens != places[best].held_tokens) {
            better = place->held_tokens > places[best].held_tokens;
        }
        best = better ? i : best;
    }
    *pull_out = best != YB_SCHED_NONE && pool_tokens > places[best].held_tokens + PULL_TOKENS;
    return best;
}
