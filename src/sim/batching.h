/* SPDX-License-Identifier: Apache-2.0
 *
 * batching.h -- one engine that prefills in batches, and loads what it reuses from its host.
 *
 * What sched's batches (yb_sched_batch_form) are worth depends on what an engine does in one go, so
 * this world has nothing else: requests come, wait, are prefilled in batches and decoded.
 *
 *   round   form a batch of those that wait; load and compute it, layers of one beside those of
 *           the other; if nobody can be prefilled, decode until somebody comes or is done
 *
 * Prefill goes before decode, so decode stands still while a batch runs, but for the bubble: steps
 * that fit into the time in which the batch only loads. All that was computed lies in the host's
 * memory, which has no bound; the devices keep what was used last. A running request keeps its
 * blocks on the devices until it ends.
 *
 * Invariants
 *   B1  Each request ends once, and then keeps no block any more.
 *   B2  A block is computed before it is loaded.
 *
 * Threads   One.
 * Time      Simulated; the same trace and options give the same result.
 */
#ifndef YB_SIM_BATCHING_H
#define YB_SIM_BATCHING_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/trace.h"
#include "yuebing/sched.h"

struct yb_batching_options {
    const struct yb_sched_cost *cost; /* Borrowed for the call. */
    double load_bytes_per_s;          /* From the host to the devices; above 0. */
    uint64_t device_tokens;           /* Room for KV. */
    uint64_t batch_tokens;            /* That are computed in a batch, at most. */
    uint32_t batch_requests;          /* In a batch of prefill, and in a step of decode. */
    bool no_deferral;
    bool no_balance;
    bool no_bubble;
};

struct yb_batching_result {
    double requests_per_s; /* All, over the time from the first arrival to the last end. */
    double ttft_mean_ns;
    uint64_t computed_tokens;
    uint64_t loaded_tokens;
    uint64_t twice_tokens; /* Computed although another of the same batch computed them, too. */
    uint64_t missed;       /* Requests with such. */
    uint64_t deferrals;
    uint64_t batches;
    uint64_t load_bound; /* Of them. */
    uint64_t bubble_steps;
};

/* Run a trace. Fails with INVALID (a prompt that has no room on the devices, or a rate that is not
 * above 0) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_batching_run(const struct yb_trace *trace,
                                          const struct yb_batching_options *options,
                                          struct yb_batching_result *result_out);

#endif /* YB_SIM_BATCHING_H */
