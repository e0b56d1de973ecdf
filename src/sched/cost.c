/* SPDX-License-Identifier: Apache-2.0
 *
 * What prefill and steps cost, and how the coefficients are found from what was seen.
 */
#include <math.h>
#include <string.h>

#include "base/check.h"
#include "yuebing/sched.h"

double
yb_sched_prefill_ns(const struct yb_sched_cost *cost, uint64_t tokens, uint64_t reused)
{
    double n = (double)tokens;
    double p = (double)reused;

    YB_ASSERT(reused <= tokens);
    if (reused == tokens) {
        return 0;
    }
    return cost->prefill_base_ns +
           (n - p) * (cost->prefill_token_ns + cost->prefill_pair_ns * (n + p));
}

double
yb_sched_step_ns(const struct yb_sched_cost *cost, uint32_t sequences, uint64_t context_tokens)
{
    return cost->step_base_ns + cost->step_sequence_ns * sequences +
           cost->step_token_ns * (double)context_tokens;
}

double
yb_sched_break_even(const struct yb_sched_cost *cost, uint64_t tokens)
{
    YB_ASSERT(tokens > 0);
    return (double)cost->kv_bytes * (double)tokens * 1e9 / yb_sched_prefill_ns(cost, tokens, 0);
}

/* ---- least squares --------------------------------------------------------------------------- */

#define TERMS 3u

/* The normal equations of "sum of terms times coefficients is 1", each sample divided by what it
 * took: so that a second that is off by a tenth weighs like a millisecond that is. */
struct equations {
    double a[TERMS][TERMS];
    double b[TERMS];
    double ones; /* The sum of 1 * 1: how wrong it is to say nothing. */
};

static void
take_sample(struct equations *equations, const double terms[TERMS], double ns)
{
    for (uint32_t i = 0; i < TERMS; i++) {
        for (uint32_t k = 0; k < TERMS; k++) {
            equations->a[i][k] += terms[i] / ns * (terms[k] / ns);
        }
        equations->b[i] += terms[i] / ns;
    }
    equations->ones += 1;
}

/* Exchange two rows of the `n` equations that are worked on. */
static void
swap_rows(double m[TERMS][TERMS + 1], uint32_t i, uint32_t k, uint32_t n)
{
    for (uint32_t at = 0; at <= n; at++) {
        double kept = m[i][at];

        m[i][at] = m[k][at];
        m[k][at] = kept;
    }
}

/* Solve `n` equations by elimination. Returns false if they do not have one solution. */
static bool
eliminate(double m[TERMS][TERMS + 1], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t best = i;

        for (uint32_t k = i + 1; k < n; k++) {
            best = fabs(m[k][i]) > fabs(m[best][i]) ? k : best;
        }
        swap_rows(m, i, best, n);
        if (!(fabs(m[i][i]) > 1e-12)) { /* Rows are scaled to a diagonal of 1. */
            return false;
        }
        for (uint32_t k = 0; k < n; k++) {
            double factor = k == i ? 0 : m[k][i] / m[i][i];

            for (uint32_t at = i; at <= n; at++) {
                m[k][at] -= factor * m[i][at];
            }
        }
    }
    return true;
}

/* Find the coefficients of the terms in `used` (one bit each). Returns the square error; infinity:
 * there is no solution, or one with a coefficient below 0. */
static double
solve(const struct equations *equations, uint32_t used, double coefficients_out[TERMS])
{
    uint32_t index[TERMS];
    double scale[TERMS];
    double m[TERMS][TERMS + 1];
    double error = equations->ones;
    uint32_t n = 0;

    memset(coefficients_out, 0, TERMS * sizeof(*coefficients_out));
    for (uint32_t i = 0; i < TERMS; i++) {
        if ((used & 1u << i) != 0) {
            index[n] = i;
            scale[n] = equations->a[i][i] > 0 ? 1 / sqrt(equations->a[i][i]) : 0;
            n++;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            m[i][k] = equations->a[index[i]][index[k]] * scale[i] * scale[k];
        }
        m[i][n] = equations->b[index[i]] * scale[i];
    }
    if (!eliminate(m, n)) {
        return INFINITY;
    }
    for (uint32_t i = 0; i < n; i++) {
        double value = m[i][n] / m[i][i] * scale[i];

        if (!(value >= 0)) {
            return INFINITY;
        }
        coefficients_out[index[i]] = value;
        error -= value * equations->b[index[i]];
    }
    return error;
}

/* Find the nearest coefficients of which none is below 0: with three terms, the best of the seven
 * choices of those that are above it. */
static bool
fit(const struct equations *equations, double coefficients_out[TERMS])
{
    double best = INFINITY;

    for (uint32_t used = (1u << TERMS) - 1; used > 0; used--) {
        double coefficients[TERMS];
        double error = solve(equations, used, coefficients);

        /* Of choices that are equally good, but for rounding, that with more terms. */
        if (error < best - 1e-12 * equations->ones) {
            best = error;
            memcpy(coefficients_out, coefficients, sizeof(coefficients));
        }
    }
    return best < INFINITY;
}

enum yb_status
yb_sched_fit_prefill(struct yb_sched_cost *cost, const struct yb_sched_prefill_sample *samples,
                     size_t count)
{
    struct equations equations = {0};
    double found[TERMS] = {0};
    bool differ = false;

    for (size_t i = 0; i < count; i++) {
        double n = (double)samples[i].tokens;
        double p = (double)samples[i].reused;
        double terms[TERMS] = {1, n - p, n * n - p * p};

        if (!(samples[i].ns > 0) || !isfinite(samples[i].ns) ||
            samples[i].reused >= samples[i].tokens) {
            return YB_INVALID;
        }
        differ = differ || samples[i].tokens != samples[0].tokens ||
                 samples[i].reused != samples[0].reused;
        take_sample(&equations, terms, samples[i].ns);
    }
    if (count < TERMS || !differ || !fit(&equations, found)) {
        return YB_INVALID;
    }
    cost->prefill_base_ns = found[0];
    cost->prefill_token_ns = found[1];
    cost->prefill_pair_ns = found[2];
    return YB_OK;
}

enum yb_status
yb_sched_fit_steps(struct yb_sched_cost *cost, const struct yb_sched_step_sample *samples,
                   size_t count)
{
    struct equations equations = {0};
    double found[TERMS] = {0};
    bool differ = false;

    for (size_t i = 0; i < count; i++) {
        double terms[TERMS] = {1, samples[i].sequences, (double)samples[i].context_tokens};

        if (!(samples[i].ns > 0) || !isfinite(samples[i].ns)) {
            return YB_INVALID;
        }
        differ = differ || samples[i].sequences != samples[0].sequences ||
                 samples[i].context_tokens != samples[0].context_tokens;
        take_sample(&equations, terms, samples[i].ns);
    }
    if (count < TERMS || !differ || !fit(&equations, found)) {
        return YB_INVALID;
    }
    cost->step_base_ns = found[0];
    cost->step_sequence_ns = found[1];
    cost->step_token_ns = found[2];
    return YB_OK;
}
