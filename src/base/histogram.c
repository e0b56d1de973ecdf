/* SPDX-License-Identifier: Apache-2.0
 *
 * Group g of 32 buckets (g = index / 32): group 0 holds 0..31, group g > 0 holds
 * the values whose highest set bit is g + 4, cut by their next five bits.
 */
#include "base/histogram.h"

#include <stddef.h>

#include "base/check.h"

/* The owner is the only writer, so a load and a store make an addition that loses nothing;
 * a locked read-modify-write would cost ten times as much. */
static inline void
add_owned(_Atomic uint64_t *word, uint64_t delta)
{
    atomic_store_explicit(word, atomic_load_explicit(word, memory_order_relaxed) + delta,
                          memory_order_relaxed);
}

static inline void
add_owned_saturating(_Atomic uint64_t *word, uint64_t delta)
{
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed);
    uint64_t after = delta > UINT64_MAX - before ? UINT64_MAX : before + delta; /* H3 */

    atomic_store_explicit(word, after, memory_order_relaxed);
}

static inline void
raise_owned(_Atomic uint64_t *word, uint64_t value)
{
    if (value > atomic_load_explicit(word, memory_order_relaxed)) {
        atomic_store_explicit(word, value, memory_order_relaxed);
    }
}

uint32_t
yb_histogram_index(uint64_t value)
{
    uint32_t shift;

    if (value < YB_HISTOGRAM_SUB) {
        return (uint32_t)value;
    }
    shift = 63u - (uint32_t)__builtin_clzll(value) - YB_HISTOGRAM_SUB_BITS;
    /* The shifted value is 32 .. 63, so it already counts the first group. */
    return shift * YB_HISTOGRAM_SUB + (uint32_t)(value >> shift);
}

uint64_t
yb_histogram_lower(uint32_t index)
{
    uint32_t group = index / YB_HISTOGRAM_SUB;
    uint64_t sub = index % YB_HISTOGRAM_SUB;

    YB_ASSERT(index < YB_HISTOGRAM_BUCKETS);
    return group == 0 ? sub : (YB_HISTOGRAM_SUB + sub) << (group - 1u);
}

uint64_t
yb_histogram_upper(uint32_t index)
{
    uint32_t group = index / YB_HISTOGRAM_SUB;
    uint64_t width = group == 0 ? 1 : 1ull << (group - 1u);

    return yb_histogram_lower(index) + (width - 1u);
}

void
yb_histogram_record(struct yb_histogram *histogram, uint64_t value)
{
    add_owned(&histogram->buckets[yb_histogram_index(value)], 1);
    add_owned_saturating(&histogram->sum, value);
    raise_owned(&histogram->max, value);
}

void
yb_histogram_merge(struct yb_histogram *into, const struct yb_histogram *from)
{
    YB_ASSERT(into != from);
    for (uint32_t i = 0; i < YB_HISTOGRAM_BUCKETS; i++) {
        uint64_t count = atomic_load_explicit(&from->buckets[i], memory_order_relaxed);

        if (count != 0) {
            add_owned(&into->buckets[i], count); /* H2 */
        }
    }
    add_owned_saturating(&into->sum, atomic_load_explicit(&from->sum, memory_order_relaxed));
    raise_owned(&into->max, atomic_load_explicit(&from->max, memory_order_relaxed));
}

void
yb_histogram_reset(struct yb_histogram *histogram)
{
    for (uint32_t i = 0; i < YB_HISTOGRAM_BUCKETS; i++) {
        atomic_store_explicit(&histogram->buckets[i], 0, memory_order_relaxed);
    }
    atomic_store_explicit(&histogram->sum, 0, memory_order_relaxed);
    atomic_store_explicit(&histogram->max, 0, memory_order_relaxed);
}

static uint64_t
count_first(const struct yb_histogram *histogram, uint32_t buckets)
{
    uint64_t count = 0;

    for (uint32_t i = 0; i < buckets; i++) {
        count += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
    }
    return count;
}

uint64_t
yb_histogram_count(const struct yb_histogram *histogram)
{
    return count_first(histogram, YB_HISTOGRAM_BUCKETS);
}

uint64_t
yb_histogram_count_upto(const struct yb_histogram *histogram, uint64_t value)
{
    return count_first(histogram, yb_histogram_index(value) + 1u);
}

/* Return which of `count` values, in order and counted from 1, stands at `quantile`. */
static uint64_t
rank_of(double quantile, uint64_t count)
{
    double exact = quantile * (double)count;
    uint64_t rank;

    if (!(quantile > 0.0)) { /* Also a NaN. */
        return 1;
    }
    if (quantile >= 1.0 || exact >= (double)count) {
        return count;
    }
    rank = (uint64_t)exact;
    rank += (double)rank < exact ? 1u : 0u;
    return rank == 0 ? 1 : rank;
}

uint64_t
yb_histogram_quantile(const struct yb_histogram *histogram, double quantile)
{
    uint64_t count = yb_histogram_count(histogram);
    uint64_t rank = rank_of(quantile, count);
    uint64_t max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    uint64_t seen = 0;

    if (count == 0) {
        return 0;
    }
    for (uint32_t i = 0; i < YB_HISTOGRAM_BUCKETS; i++) {
        seen += atomic_load_explicit(&histogram->buckets[i], memory_order_relaxed);
        if (seen >= rank) {
            uint64_t upper = yb_histogram_upper(i);

            return upper < max ? upper : max; /* H1 */
        }
    }
    return max;
}

void
yb_histogram_summarize(const struct yb_histogram *histogram,
                       struct yb_histogram_summary *summary_out)
{
    summary_out->count = yb_histogram_count(histogram);
    summary_out->sum = atomic_load_explicit(&histogram->sum, memory_order_relaxed);
    summary_out->max = atomic_load_explicit(&histogram->max, memory_order_relaxed);
    summary_out->p50 = yb_histogram_quantile(histogram, 0.50);
    summary_out->p99 = yb_histogram_quantile(histogram, 0.99);
    summary_out->p999 = yb_histogram_quantile(histogram, 0.999);
}
