/* SPDX-License-Identifier: Apache-2.0
 *
 * tally.h -- how often which value came: a histogram to which many equal values are added at once.
 *
 * The buckets are those of base/histogram.h, so a quantile is never below the true one and above it
 * by 1/32 at most. A simulated decode of a thousand steps is one entry here.
 *
 * Threads   One owner.
 * Memory    A plain struct; a zeroed one is empty.
 */
#ifndef YB_SIM_TALLY_H
#define YB_SIM_TALLY_H

#include <stdint.h>

#include "base/histogram.h"

struct yb_tally {
    double sum;
    uint64_t count;
    uint64_t max;
    uint64_t buckets[YB_HISTOGRAM_BUCKETS];
};

void yb_tally_add(struct yb_tally *tally, uint64_t value, uint64_t count);

/* Return the mean; 0 if it is empty. */
double yb_tally_mean(const struct yb_tally *tally);

/* Return the smallest value that at least the part `quantile` does not exceed; 0 if empty. */
uint64_t yb_tally_quantile(const struct yb_tally *tally, double quantile);

#endif /* YB_SIM_TALLY_H */
