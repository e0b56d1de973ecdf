/* SPDX-License-Identifier: Apache-2.0
 *
 * Workload-aware: Wang et al., "KVCache Cache in the Wild", ATC 2025, section 4.
 *
 * Blocks fall into categories; in each, the time until the next use is taken to be exponential,
 * fitted on what was used again, and some are never used again. What goes first has the least
 *
 *     P(w) (F_w(t + life) - F_w(t)),    t since the last use, F_w(t) = 1 - exp(-t / mean(w))
 *
 * and of one request the block furthest back. There is no count of uses in it.
 *
 * The paper leaves open what follows here. A category is the turn of a conversation (path.h), in
 * the first turn also whether the prompt is short; the type of a request, which the paper has too,
 * is not known to a store. `life` is the same for all: how long blocks were unused when they left,
 * on the average of late. Fits are those of hazard.h, over the last requests.
 */
#include <math.h>

#include "base/check.h"
#include "policy/path.h"

#define TURNS   8u
#define LENGTHS 3u

static uint32_t
body(const struct yb_path_request *request)
{
    uint32_t turn = request->goes_on ? request->class_before / LENGTHS + 1 : 0;
    uint32_t length = request->blocks <= 2 ? 0 : request->blocks <= 16 ? 1 : 2;

    return (turn < TURNS ? turn : TURNS - 1) * LENGTHS + length;
}

static void
set_classes(struct yb_hazard_class classes[YB_HAZARD_CLASSES])
{
    for (uint32_t c = 0; c < YB_HAZARD_CLASSES; c++) {
        classes[c].kind = 0;
        classes[c].family = (uint8_t)(c / LENGTHS * LENGTHS);
    }
}

static double
worth(const struct yb_path *path, uint32_t class_index, uint64_t age)
{
    const struct yb_hazard *hazard = yb_path_hazard(path);
    double mean_s = yb_hazard_mean_s(hazard, class_index);
    double life_s = yb_path_left_age_s(path);

    return yb_hazard_share(hazard, class_index) * exp(-(double)age * 1e-9 / mean_s) *
           (1.0 - exp(-life_s / mean_s));
}

static const struct yb_path_kind kind = {
    .classes = set_classes,
    .body = body,
    .worth = worth,
};

static enum yb_status
workload_create(const struct yb_policy_options *options, void **state_out)
{
    return yb_path_create(options, &kind, state_out);
}

const struct yb_policy_ops yb_policy_ops_workload = {
    .name = "workload",
    .create = workload_create,
    .destroy = yb_path_destroy,
    .insert = yb_path_insert,
    .use = yb_path_use,
    .take = yb_path_take,
    .leave = yb_path_leave,
    .first = yb_path_first,
    .ghost_count = yb_path_remembered,
};
