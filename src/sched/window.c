/* SPDX-License-Identifier: Apache-2.0
 *
 * The prefetch window's controller.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "yuebing/sched.h"

#define LEAST_DEFAULT 1u
#define MOST_DEFAULT  4096u
#define SHARE_DEFAULT 0.05
#define MARGIN        1.5
#define MOVED         1.25 /* A start that differs that much is another world. */
#define SMOOTH        32.0
#define LONGER_MOST   4.0 /* How much longer at once is believed. */
#define HOLD_LEAST    8u
#define HOLD_MOST     64u
#define TRIES         2u /* Steps of one: in either direction. */

static uint32_t
clamp(const struct yb_sched_window_limits *limits, double size)
{
    if (!(size > limits->least)) {
        return limits->least;
    }
    return size < limits->most ? (uint32_t)size : limits->most;
}

static uint32_t
start_of(const struct yb_sched_window_limits *limits, double latency_ns, double step_ns)
{
    return clamp(limits, ceil(ceil(latency_ns / step_ns) * MARGIN));
}

static void
begin_search(struct yb_sched_window *window)
{
    window->best = window->size;
    window->best_p95_ns = INFINITY;
    window->best_p99_ns = INFINITY;
    window->best_max_ns = INFINITY;
    window->direction = -1;
    window->stride = window->size >= 8 ? window->size / 4 : 1;
    window->failures = 0;
    window->holding = 0;
    window->patience = HOLD_LEAST;
    window->late = 0;
    window->count = 0;
}

struct yb_sched_window
yb_sched_window_start(struct yb_sched_window_limits limits, double latency_ns, double step_ns)
{
    struct yb_sched_window window = {.limits = limits};

    YB_ASSERT(latency_ns > 0);
    YB_ASSERT(step_ns > 0);
    window.limits.least = limits.least != 0 ? limits.least : LEAST_DEFAULT;
    window.limits.most = limits.most != 0 ? limits.most : MOST_DEFAULT;
    window.limits.worse_share = limits.worse_share > 0 ? limits.worse_share : SHARE_DEFAULT;
    window.latency_ns = latency_ns;
    window.step_ns = step_ns;
    window.start = start_of(&window.limits, latency_ns, step_ns);
    window.size = window.start;
    begin_search(&window);
    return window;
}

/* ---- a round --------------------------------------------------------------------------------- */

struct round {
    double p95_ns;
    double p99_ns;
    double max_ns;
};

static int
compare(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;

    return (*left > *right) - (*left < *right);
}

static struct round
round_of(const struct yb_sched_window *window)
{
    double sorted[YB_SCHED_WINDOW_SAMPLES];
    uint32_t count = YB_SCHED_WINDOW_SAMPLES;

    /* Of a round that is broken off the rest does not matter: it cannot be better any more. */
    memcpy(sorted, window->samples_ns, sizeof(sorted));
    for (uint32_t i = window->count; i < count; i++) {
        sorted[i] = window->samples_ns[i % window->count];
    }
    qsort(sorted, count, sizeof(*sorted), compare);
    return (struct round){
        .p95_ns = sorted[(count * 95 + 99) / 100 - 1],
        .p99_ns = sorted[(count * 99 + 99) / 100 - 1],
        .max_ns = sorted[count - 1],
    };
}

/* Whether the size that was tried should replace the best one. The guards are wider the rarer what
 * they look at is: a single longest time says little. */
static bool
is_better(const struct yb_sched_window *window, const struct round *round)
{
    double share = window->limits.worse_share;
    bool smaller = window->size < window->best;
    double p99_most_ns = window->best_p99_ns * (smaller ? 1 : 1 + share);

    if (round->p99_ns > p99_most_ns || round->max_ns > window->best_max_ns * (1 + 4 * share)) {
        return false;
    }
    return round->p95_ns < window->best_p95_ns * (1 - share / (smaller ? 4 : 2));
}

/* What a search has seen at its best stays the measure: many small steps, each about as good as the
 * one before, must not add up to a bad one. */
static void
keep(struct yb_sched_window *window, const struct round *round)
{
    window->best = window->size;
    window->best_p95_ns = fmin(window->best_p95_ns, round->p95_ns);
    window->best_p99_ns = fmin(window->best_p99_ns, round->p99_ns);
    window->best_max_ns = fmin(window->best_max_ns, round->max_ns);
}

/* Go to the next size to try; there may be none on that side. */
static void
move(struct yb_sched_window *window)
{
    double wanted = (double)window->best + (double)window->direction * window->stride;

    window->size = clamp(&window->limits, wanted);
}

/* The size that was tried is no better: the other side, and then smaller strides. */
static void
turn(struct yb_sched_window *window)
{
    window->failures++;
    window->direction = -window->direction;
    if (window->failures % TRIES == 0) {
        if (window->stride == 1) {
            window->size = window->best;
            window->holding = window->patience;
            window->patience = window->patience < HOLD_MOST ? 2 * window->patience : HOLD_MOST;
            window->failures = 0;
            return;
        }
        window->stride = window->stride / 2;
    }
    move(window);
}

/* There may be no other size on a side: the limits are there. */
static void
turn_at_limits(struct yb_sched_window *window)
{
    if (window->holding == 0 && window->size == window->best) {
        turn(window);
    }
}

/* The world has changed: what was known of it counts no longer. What got worse wants more time more
 * often than less, and in proportion. The next round is at that size, to know what it brings. */
static void
change(struct yb_sched_window *window, const struct round *round)
{
    double longer = fmin(round->p95_ns / window->best_p95_ns, LONGER_MOST);

    window->size = clamp(&window->limits, ceil(window->size * longer));
    begin_search(window);
    window->direction = 1;
}

/* Hold still: know how good the best is now, and whether the world has changed. */
static void
hold(struct yb_sched_window *window, const struct round *round)
{
    if (round->p95_ns > window->best_p95_ns * MOVED) {
        change(window, round);
        return;
    }
    window->best_p95_ns += (round->p95_ns - window->best_p95_ns) / 4;
    window->best_p99_ns += (round->p99_ns - window->best_p99_ns) / 4;
    window->best_max_ns += (round->max_ns - window->best_max_ns) / 4;
    window->holding--;
    if (window->holding == 0) {
        window->stride = (window->size + 3) / 4;
        window->direction = -1;
        move(window);
        turn_at_limits(window);
    }
}

/* What the size that was tried brought. */
static void
search(struct yb_sched_window *window, const struct round *round)
{
    if (is_better(window, round)) {
        /* Twice in the same direction: the best size is farther off than was thought. */
        window->stride *= window->size != window->best && window->failures == 0 ? 2 : 1;
        keep(window, round);
        window->failures = 0;
        window->patience = HOLD_LEAST;
        move(window);
    } else {
        turn(window);
    }
    turn_at_limits(window);
}

static void
end_round(struct yb_sched_window *window)
{
    struct round round = round_of(window);

    window->count = 0;
    window->late = 0;
    if (window->holding > 0) {
        hold(window, &round);
    } else {
        search(window, &round);
    }
}

/* Whether the end of the round is known before its last sample: with so many worse than that, its
 * P95 is. */
static bool
is_decided(struct yb_sched_window *window, double ttft_ns)
{
    double share = window->holding > 0 ? MOVED - 1 : window->limits.worse_share / 2;

    window->late += ttft_ns > window->best_p95_ns * (1 + share);
    return window->late > YB_SCHED_WINDOW_SAMPLES / 20 || window->count == YB_SCHED_WINDOW_SAMPLES;
}

struct yb_sched_window
yb_sched_window_next(const struct yb_sched_window *window, double ttft_ns, double latency_ns,
                     double step_ns)
{
    struct yb_sched_window next = *window;

    if (latency_ns > 0 && step_ns > 0 && isfinite(latency_ns) && isfinite(step_ns)) {
        uint32_t start;

        next.latency_ns += (latency_ns - next.latency_ns) / SMOOTH;
        next.step_ns += (step_ns - next.step_ns) / SMOOTH;
        start = start_of(&next.limits, next.latency_ns, next.step_ns);
        if (start > MOVED * next.start || next.start > MOVED * start) {
            next.size = clamp(&next.limits, ceil((double)next.best * start / next.start));
            next.start = start;
            begin_search(&next);
        }
    }
    if (!(ttft_ns > 0) || !isfinite(ttft_ns)) {
        return next;
    }
    next.samples_ns[next.count++] = ttft_ns;
    if (is_decided(&next, ttft_ns)) {
        end_round(&next);
    }
    return next;
}
