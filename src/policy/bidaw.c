/* SPDX-License-Identifier: Apache-2.0
 *
 * Bidaw's eviction: FAST 2026. Made for conversations: each has a history of reuse distances (how
 * much else is used between two of its turns), and what goes first has the least potential
 *
 *     P(small) + sum over promising buckets i of P(i) hit(i)
 *
 * A distance is small if it is below what the cache holds, extreme if not even the best policy
 * could bridge it, and promising between. P is the conversation's own; what is below the least
 * distance that an answer of such a length ever led to (people read it) counts as 0. hit(i) is what
 * Belady's policy would have kept, on the past window.
 *
 * What the paper leaves open, or needs more than a policy has, is settled like this. Distances are
 * of all that was used, in sizes of what is there (the clock by volume of path.h). A conversation's
 * own history is its last distance, in one of RANGES ranges: hazard.h learns what follows on that.
 * The lower bound for an answer is a quantile that is steered to BOUND_QUANTILE of the distances,
 * which leaves outliers out. Belady on the past window is the occupancy vector of Hawkeye (Jain and
 * Lin, ISCA 2016): a distance could have been bridged if at no time within it the cache was full of
 * what was bridged already.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "policy/path.h"

#define RANGES         8u  /* Of the last distance: none, and seven of it. */
#define ANSWERS        12u /* By length: not known, and each twice the one before. */
#define BINS           YB_HAZARD_BINS
#define STEP           (YB_PATH_FULL / 16.0) /* Of the vector, on the clock. */
#define STEPS          256u                  /* So it covers 16 times what is there. */
#define HIT_STEP       (1.0 / 64.0)
#define BOUND_QUANTILE 0.05
#define BOUND_STEP     0.02

/* Where what it keeps for itself lies in yb_path_own(). */
#define OWN_HITS      0u                     /* For each bin: what Belady bridges of it. */
#define OWN_BOUNDS    (OWN_HITS + BINS)      /* For each answer: a bound, on the clock / FULL. */
#define OWN_OCCUPANCY (OWN_BOUNDS + ANSWERS) /* What was bridged at each step of the window. */
#define OWN_SINCE     (OWN_OCCUPANCY + STEPS)
_Static_assert(RANGES *ANSWERS <= YB_HAZARD_CLASSES, "a class for each range and answer");
_Static_assert(OWN_SINCE < YB_PATH_OWN, "room for what it keeps");

static uint32_t
range_of(uint64_t distance)
{
    double full = (double)distance / YB_PATH_FULL;
    static const double bounds[RANGES - 2] = {0.125, 0.25, 0.5, 1.0, 2.0, 4.0};
    uint32_t range = 1;

    while (range < RANGES - 1 && full > bounds[range - 1]) {
        range++;
    }
    return range;
}

static uint32_t
body(const struct yb_path_request *request)
{
    uint32_t answer = 0;

    for (uint32_t tokens = request->answer_tokens; tokens > 0 && answer < ANSWERS - 1;) {
        tokens /= 2;
        answer++;
    }
    return (request->goes_on ? range_of(request->idle) : 0) * ANSWERS + answer;
}

static void
set_classes(struct yb_hazard_class classes[YB_HAZARD_CLASSES])
{
    for (uint32_t c = 0; c < YB_HAZARD_CLASSES; c++) {
        classes[c].kind = 0;
        classes[c].family = (uint8_t)(c / ANSWERS * ANSWERS);
    }
}

/* Whether Belady's policy would have bridged the last `steps` of the vector; it is full then. */
static bool
bridge(double *occupancy, uint32_t steps, double size)
{
    for (uint32_t i = 0; i < steps; i++) {
        if (occupancy[i] + size > 1.0) {
            return false;
        }
    }
    for (uint32_t i = 0; i < steps; i++) {
        occupancy[i] += size;
    }
    return true;
}

static void
used(struct yb_path *path, uint32_t class_index, uint64_t idle)
{
    double *own = yb_path_own(path);
    uint32_t answer = class_index % ANSWERS;
    uint32_t bin = yb_hazard_bin(idle);
    double full = (double)idle / YB_PATH_FULL;
    double bound = own[OWN_BOUNDS + answer];
    double clock = yb_path_clock(path);
    uint64_t moved = (uint64_t)((clock - own[OWN_SINCE]) / STEP);
    double steps = ceil((double)idle / STEP);
    double hit;

    if (moved > 0) { /* The newest step is the first. */
        uint32_t by = moved < STEPS ? (uint32_t)moved : STEPS;

        memmove(&own[OWN_OCCUPANCY + by], &own[OWN_OCCUPANCY], (STEPS - by) * sizeof *own);
        memset(&own[OWN_OCCUPANCY], 0, by * sizeof *own);
        own[OWN_SINCE] += (double)moved * STEP;
    }
    hit =
        steps <= STEPS && bridge(&own[OWN_OCCUPANCY], (uint32_t)steps, yb_path_request_size(path));
    own[OWN_HITS + bin] += (hit - own[OWN_HITS + bin]) * HIT_STEP;
    own[OWN_BOUNDS + answer] = /* It may overshoot where much is used again at once. */
        fmax(0.0, bound + BOUND_STEP * (bound + 0.01) *
                              (full < bound ? BOUND_QUANTILE - 1.0 : BOUND_QUANTILE));
}

static double
worth(const struct yb_path *path, uint32_t class_index, uint64_t age)
{
    const struct yb_hazard *hazard = yb_path_hazard(path);
    const double *own = yb_path_own_read(path);
    double bound = own[OWN_BOUNDS + class_index % ANSWERS] * YB_PATH_FULL;
    uint32_t first;
    uint32_t now = yb_hazard_bin(age);
    uint32_t small = yb_hazard_bin((uint64_t)YB_PATH_FULL); /* Up to here it hits for sure. */
    double left = 1.0; /* Not used up to here: what lies before is no more. */
    double potential = 0.0;

    YB_ASSERT(bound >= 0.0);
    first = yb_hazard_bin((uint64_t)bound);
    first = now > first ? now : first;
    for (uint32_t bin = 0; bin < BINS; bin++) {
        double chance = yb_hazard_chance(hazard, class_index, bin);

        if (bin < first) {
            left -= chance;
        } else {
            potential += chance * (bin <= small ? 1.0 : own[OWN_HITS + bin]);
        }
    }
    return potential / fmax(left, 1e-6);
}

static const struct yb_path_kind kind = {
    .by_volume = true,
    .classes = set_classes,
    .body = body,
    .worth = worth,
    .used = used,
};

static enum yb_status
bidaw_create(const struct yb_policy_options *options, void **state_out)
{
    return yb_path_create(options, &kind, state_out);
}

const struct yb_policy_ops yb_policy_ops_bidaw = {
    .name = "bidaw",
    .create = bidaw_create,
    .destroy = yb_path_destroy,
    .insert = yb_path_insert,
    .use = yb_path_use,
    .take = yb_path_take,
    .leave = yb_path_leave,
    .first = yb_path_first,
    .ghost_count = yb_path_remembered,
};
