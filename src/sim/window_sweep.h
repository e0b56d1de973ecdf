/* SPDX-License-Identifier: Apache-2.0
 *
 * window_sweep.h -- how far ahead blocks should be asked for: fixed prefetch windows beside the
 * controller of include/yuebing/sched.h, in a world where both too little and too much hurts.
 *
 * Some engines share one way to where blocks are. Each computes its prompt block by block, a step
 * for each, and asks for the block that it will need `window` steps later. Now and then a prompt
 * goes on differently than was supposed; then nothing that was asked for ahead is of use, all of it
 * is asked for anew, and the useless bytes are on the way nevertheless.
 *
 *   too small   the block is not there when its step should begin: a step takes latency / window
 *   too large   each surprise costs `window` useless blocks, on a way that others wait for
 *
 * Half of the way through, the world changes: what a row is named after. The controller is told of
 * each request its time to the first token, and of the latency and the step time as measured; that
 * the world has changed it is not told.
 *
 *   row       best fixed window by its P95, before and after the change, over the same requests
 *   ok        in both halves, once it has had YB_WINDOW_SETTLE requests: the controller's P95 is at
 *             most 1.10 times that of the best fixed window and its P99 not above that window's, to
 *             the 5 % by which the controller itself tells times apart; and after the change it
 *             took at most 200 requests until the P95 of 200 in a row was within those 1.10
 *
 * Threads   Any thread, each its own run.
 * Memory    What a run needs is freed before it returns.
 * Time      Simulated.
 */
#ifndef YB_SIM_WINDOW_SWEEP_H
#define YB_SIM_WINDOW_SWEEP_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_WINDOW_SIZES        14u
#define YB_WINDOW_HALVES       2u
#define YB_WINDOW_REQUESTS_MAX (1u << 20)
#define YB_WINDOW_SETTLE       3000u
#define YB_WINDOW_RECOVERY     200u
#define YB_WINDOW_P95          1.10
#define YB_WINDOW_P99          1.05

/* What half of a run is like. */
struct yb_window_world {
    double latency_ns; /* From asking for a block until it is there, beside its bytes. */
    double jitter;     /* Deviation of the latency's logarithm. */
    double hit;        /* Share of steps whose block is the one that was asked for ahead. */
};

struct yb_window_times {
    double p50_ns;
    double p95_ns;
    double p99_ns;
};

/* One change of the world. */
struct yb_window_row {
    const char *name;
    struct yb_window_world worlds[YB_WINDOW_HALVES];
    struct yb_window_times fixed[YB_WINDOW_HALVES][YB_WINDOW_SIZES];
    struct yb_window_times steered[YB_WINDOW_HALVES];
    uint32_t best[YB_WINDOW_HALVES];   /* Index of the fixed one with the least P95. */
    uint32_t landed[YB_WINDOW_HALVES]; /* The controller's size most of the time. */
    uint32_t recovery;                 /* Requests after the change. */
    bool ok;
};

/* Return the fixed size at `index`, which is below YB_WINDOW_SIZES. */
uint32_t yb_window_size(uint32_t index);

/* Return the name of the row at `index`; NULL past the end. */
const char *yb_window_row_name(uint32_t index);

/* Run one row with `requests` in each half, 2 * YB_WINDOW_SETTLE .. YB_WINDOW_REQUESTS_MAX. Fails
 * with INVALID (no such row, or another count) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_window_row_run(uint32_t index, uint32_t requests, uint64_t seed,
                                            struct yb_window_row *row_out);

/* Run `count` requests in one world with one fixed window, for tests and for those who want to see
 * one time: the time to the first token of each goes to ttft_ns_out. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_window_fixed_run(const struct yb_window_world *world, uint32_t window,
                                              uint32_t count, uint64_t seed, double *ttft_ns_out);

/* Run `requests` in each of two worlds, one after the other, with the controller: the time to the
 * first token of each goes to ttft_ns_out, the window that was chosen after it to window_out, both
 * with room for YB_WINDOW_HALVES * `requests`. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_window_steered_run(const struct yb_window_world *worlds,
                                                uint32_t requests, uint64_t seed,
                                                double *ttft_ns_out, uint32_t *window_out);

#endif /* YB_SIM_WINDOW_SWEEP_H */
