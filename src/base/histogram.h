/* SPDX-License-Identifier: Apache-2.0
 *
 * histogram.h -- where the values fell, in fixed memory.
 *
 * A mean hides the slow request that a user remembers; keeping every value
 * costs memory without bound. A log-linear histogram keeps neither: each power
 * of two is cut into 32 equal buckets, so that a bucket is never wider than
 * 1/32 of the values in it, for any 64-bit value.
 *
 *     value      0 .. 31        one bucket per value: exact
 *     value     32 .. 63        one bucket per value: exact
 *     value     64 .. 127       buckets of 2
 *     value    128 .. 255       buckets of 4      ... and so on to 2^64 - 1
 *
 * Two histograms are merged by adding their buckets; the merge of the parts is
 * the histogram of the whole, with no further error, which is why each thread
 * can have its own.
 *
 * Invariants
 *   H1  A quantile is never below the true value, and above it by at most 1/32
 *       of it; it never exceeds the largest value recorded.
 *   H2  Merging loses nothing: the counts of the merge are the sums of the counts.
 *   H3  `sum` stops at 2^64 - 1 instead of wrapping.
 *
 * Threads   One owner thread records. Any thread may read or merge from the
 *           histogram meanwhile: it sees every record that happened before, and
 *           some of those under way. The destination of a merge has one owner too.
 * Memory    YB_HISTOGRAM_BUCKETS words and two: 15,376 bytes, no pointers. A
 *           zeroed struct is an empty histogram; there is nothing to destroy.
 */
#ifndef YB_BASE_HISTOGRAM_H
#define YB_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#define YB_HISTOGRAM_SUB_BITS 5u
#define YB_HISTOGRAM_SUB      (1u << YB_HISTOGRAM_SUB_BITS)
/* Values below 32, then one group of 32 for each of the exponents 5 .. 63. */
#define YB_HISTOGRAM_BUCKETS (YB_HISTOGRAM_SUB * (64u - YB_HISTOGRAM_SUB_BITS + 1u))

/* Every word is written by the owner with a relaxed store and read by others with a
 * relaxed load: no word depends on another. */
struct yb_histogram {
    _Atomic uint64_t max;
    _Atomic uint64_t sum;
    _Atomic uint64_t buckets[YB_HISTOGRAM_BUCKETS];
};

_Static_assert(YB_HISTOGRAM_BUCKETS == 1920, "stated in the header");
_Static_assert(sizeof(struct yb_histogram) == 15376, "an array of words without padding");

/* What a report shows of a histogram. */
struct yb_histogram_summary {
    uint64_t count;
    uint64_t sum;
    uint64_t max;
    uint64_t p50;
    uint64_t p99;
    uint64_t p999;
};

/* Return the bucket that `value` falls into, below YB_HISTOGRAM_BUCKETS. */
uint32_t yb_histogram_index(uint64_t value);

/* Return the smallest and the largest value of bucket `index`. */
uint64_t yb_histogram_lower(uint32_t index);
uint64_t yb_histogram_upper(uint32_t index);

/* Record one value. Owner thread only; no lock, no allocation, three stores. */
void yb_histogram_record(struct yb_histogram *histogram, uint64_t value);

/* Add everything in `from` to `into`. The owner of `into` only. */
void yb_histogram_merge(struct yb_histogram *into, const struct yb_histogram *from);

/* Forget everything. Owner thread only. */
void yb_histogram_reset(struct yb_histogram *histogram);

/* Return how many values were recorded: the sum of the buckets. */
uint64_t yb_histogram_count(const struct yb_histogram *histogram);

/* Return how many recorded values lie in buckets that begin at or below `value`. Exact below
 * 64; above, values that share the bucket of `value`, at most 1/32 larger, count as well. */
uint64_t yb_histogram_count_upto(const struct yb_histogram *histogram, uint64_t value);

/* Return the smallest value that at least the part `quantile` (0 to 1; outside is clamped)
 * of the recorded values does not exceed, as H1 says. Zero when nothing was recorded. */
uint64_t yb_histogram_quantile(const struct yb_histogram *histogram, double quantile);

/* Fill in every field of *summary_out. */
void yb_histogram_summarize(const struct yb_histogram *histogram,
                            struct yb_histogram_summary *summary_out);

#endif /* YB_BASE_HISTOGRAM_H */
