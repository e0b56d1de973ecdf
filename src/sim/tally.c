/* SPDX-License-Identifier: Apache-2.0 */
#include "sim/tally.h"

#include <math.h>

void
yb_tally_add(struct yb_tally *tally, uint64_t value, uint64_t count)
{
    if (count == 0) {
        return;
    }
    tally->sum += (double)value * (double)count;
    tally->count += count;
    tally->max = value > tally->max ? value : tally->max;
    tally->buckets[yb_histogram_index(value)] += count;
}

double
yb_tally_mean(const struct yb_tally *tally)
{
    return tally->count == 0 ? 0 : tally->sum / (double)tally->count;
}

uint64_t
yb_tally_quantile(const struct yb_tally *tally, double quantile)
{
    uint64_t wanted = (uint64_t)ceil(quantile * (double)tally->count);
    uint64_t seen = 0;

    wanted = wanted == 0 ? 1 : wanted;
    for (uint32_t i = 0; i < YB_HISTOGRAM_BUCKETS && tally->count > 0; i++) {
        seen += tally->buckets[i];
        if (seen >= wanted) {
            uint64_t upper = yb_histogram_upper(i);

            return upper < tally->max ? upper : tally->max;
        }
    }
    return tally->max;
}
