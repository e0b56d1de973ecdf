/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants H1-H3 of base/histogram.h.
 * Method: the edges of every bucket, then random values beside a sorted array
 * of the same values, which knows every quantile exactly.
 */
#include "unit.h"

#include <string.h>

#include "base/histogram.h"

enum { VALUES = 20000 };

static int
compare_values(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left;
    uint64_t b = *(const uint64_t *)right;

    return a < b ? -1 : a > b;
}

/* A value of a random magnitude: every power of two is as likely as any other. */
static uint64_t
random_value(uint64_t *rng)
{
    uint32_t bits = (uint32_t)(unit_random(rng) % 64u);

    return unit_random(rng) >> bits;
}

static void
test_histogram__buckets_are_contiguous_and_at_most_a_32nd_wide(void **state)
{
    (void)state;
    assert_true(yb_histogram_lower(0) == 0);
    for (uint32_t i = 0; i < YB_HISTOGRAM_BUCKETS; i++) {
        uint64_t lower = yb_histogram_lower(i);
        uint64_t upper = yb_histogram_upper(i);

        assert_true(lower <= upper);
        assert_true(upper - lower <= lower / 32u);
        assert_int_equal(yb_histogram_index(lower), i);
        assert_int_equal(yb_histogram_index(upper), i);
        if (i + 1 < YB_HISTOGRAM_BUCKETS) {
            assert_true(yb_histogram_lower(i + 1) == upper + 1);
        } else {
            assert_true(upper == UINT64_MAX);
        }
    }
}

static void
test_histogram__an_empty_one_answers_zero(void **state)
{
    static struct yb_histogram histogram;
    struct yb_histogram_summary summary;

    (void)state;
    yb_histogram_summarize(&histogram, &summary);
    assert_true(summary.count == 0 && summary.sum == 0 && summary.max == 0);
    assert_true(summary.p50 == 0 && summary.p99 == 0 && summary.p999 == 0);
}

static void
test_histogram__small_values_are_exact(void **state)
{
    static struct yb_histogram histogram;

    (void)state;
    for (uint64_t value = 0; value < 64; value++) {
        yb_histogram_record(&histogram, value);
    }
    for (uint64_t value = 0; value < 64; value++) {
        double quantile = (double)(value + 1) / 64.0;

        assert_true(yb_histogram_quantile(&histogram, quantile) == value);
        assert_true(yb_histogram_count_upto(&histogram, value) == value + 1);
    }
    assert_true(yb_histogram_quantile(&histogram, -1.0) == 0);
    assert_true(yb_histogram_quantile(&histogram, 2.0) == 63);
    yb_histogram_reset(&histogram);
    assert_true(yb_histogram_count(&histogram) == 0);
}

static void
test_histogram__the_sum_stops_at_the_largest_number(void **state)
{
    static struct yb_histogram histogram;
    static struct yb_histogram other;
    struct yb_histogram_summary summary;

    (void)state;
    yb_histogram_record(&histogram, UINT64_MAX);
    yb_histogram_record(&histogram, 5);
    yb_histogram_record(&other, 7);
    yb_histogram_merge(&histogram, &other);
    yb_histogram_summarize(&histogram, &summary);
    assert_true(summary.sum == UINT64_MAX);
    assert_true(summary.max == UINT64_MAX);
    assert_true(summary.count == 3);
    assert_true(summary.p50 == 7);
}

static void
check_quantiles(const struct yb_histogram *histogram, const uint64_t *sorted)
{
    static const double quantiles[] = {0.0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0};

    for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
        uint64_t got = yb_histogram_quantile(histogram, quantiles[i]);
        double exact = quantiles[i] * VALUES;
        size_t rank = (size_t)exact;
        uint64_t want;

        rank += (double)rank < exact ? 1u : 0u;
        want = sorted[rank == 0 ? 0 : rank - 1];
        assert_true(got >= want);
        assert_true(got - want <= want / 32u);
        assert_true(got <= sorted[VALUES - 1]);
    }
}

static void
test_histogram__random_values_agree_with_a_sorted_array_also_when_merged(void **state)
{
    static struct yb_histogram parts[3];
    static struct yb_histogram merged;
    static uint64_t values[VALUES];
    uint64_t rng = unit_seed("histogram");

    (void)state;
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = random_value(&rng);
        yb_histogram_record(&parts[i % 3], values[i]);
    }
    for (size_t i = 0; i < 3; i++) {
        yb_histogram_merge(&merged, &parts[i]);
    }
    qsort(values, VALUES, sizeof(values[0]), compare_values);
    assert_true(yb_histogram_count(&merged) == VALUES);
    check_quantiles(&merged, values);
    for (size_t i = 0; i < VALUES; i += 97) {
        uint64_t lower = yb_histogram_lower(yb_histogram_index(values[i]));
        uint64_t upper = yb_histogram_upper(yb_histogram_index(values[i]));
        uint64_t upto = 0;

        while (upto < VALUES && values[upto] <= upper) {
            upto++;
        }
        assert_true(yb_histogram_count_upto(&merged, lower) == upto);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram__buckets_are_contiguous_and_at_most_a_32nd_wide),
        cmocka_unit_test(test_histogram__an_empty_one_answers_zero),
        cmocka_unit_test(test_histogram__small_values_are_exact),
        cmocka_unit_test(test_histogram__the_sum_stops_at_the_largest_number),
        cmocka_unit_test(test_histogram__random_values_agree_with_a_sorted_array_also_when_merged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
