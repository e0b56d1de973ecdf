/* SPDX-License-Identifier: Apache-2.0
 *
 * advise.h -- what a model on given devices wants: of a network, of a mode, of a pool.
 *
 * Each answer stands on what others here can reckon: costs and modes on include/yuebing/sched.h,
 * hits on sim/hit_table.h. Nothing is simulated in time.
 *
 *   threshold  a prefix of p tokens is loaded in latency + KV p / rate and computed in prefill(p,
 *              0), whatever comes after it; the threshold is where the second begins to be longer
 *   ideal      the hits of a pool without bounds
 *   pool       the smallest one, to YB_ADVISE_EXACT, that has a share of the ideal hits; of all
 *              nodes together, each block in it once
 *   more       what a pool that is YB_ADVISE_MORE_BYTES larger finds beyond that, and whose prefill
 *              that saves
 *
 * Requests are those of a trace, on the average: what is asked of modes has its mean prompt, answer
 * and hits.
 *
 * Threads   Any thread, each its own; the trace is only read.
 * Memory    As hit_table.h, freed before a call returns.
 * Time      None; about 15 passes over the trace for each pool.
 */
#ifndef YB_SIM_ADVISE_H
#define YB_SIM_ADVISE_H

#include <stdint.h>

#include "sim/hit_table.h"
#include "yuebing/sched.h"

#define YB_ADVISE_EXACT      1.01
#define YB_ADVISE_MORE_BYTES 1e12
#define YB_ADVISE_MODES      3u

/* A cluster and what is asked of it. */
struct yb_advise_case {
    struct yb_sched_cost cost; /* Of one instance. */
    double net_bytes_per_s;    /* Of its port. */
    uint32_t instances;
    double ttft_slo_ns; /* Above 0. */
    double tpot_slo_ns; /* Above 0. */
    const struct yb_trace *trace;
    const char *eviction; /* From the pool. */
};

/* A pool, and what it finds. */
struct yb_advise_pool {
    uint64_t blocks;
    double bytes;
    double hit; /* Share of the trace's blocks. */
};

/* What a cluster serves with a pool. */
struct yb_advise_serving {
    struct yb_advise_pool pool;
    struct yb_sched_demand demand;
    struct yb_sched_serving modes[YB_ADVISE_MODES]; /* By enum yb_sched_mode. */
    enum yb_sched_mode mode;                        /* That serves most. */
    double crossover_bytes_per_s;                   /* Of yb_sched_mode_crossover(). */
};

/* What a cluster gains by a larger pool. */
struct yb_advise_more {
    double hit;
    double requests_per_s; /* In the best mode of each. */
    double
        instances; /* That need not prefill any more, at the rate of the trace; may be below 0. */
};

/* Return the fewest tokens of a prefix from which on loading is shorter than computing; UINT64_MAX:
 * it never is. */
uint64_t yb_advise_threshold(const struct yb_sched_cost *cost, double bytes_per_s,
                             double latency_ns);

/* Find the ideal, the size of the pool being that of all blocks of the trace, or the smallest pool
 * with a share of it, above 0 and at most 1. Fail with INVALID (no such eviction policy, or another
 * share) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_advise_ideal(const struct yb_advise_case *one,
                                          struct yb_advise_pool *ideal_out);
YB_CHECKED enum yb_status yb_advise_pool(const struct yb_advise_case *one,
                                         const struct yb_advise_pool *ideal, double share,
                                         struct yb_advise_pool *pool_out);

/* Return how many blocks are in YB_ADVISE_MORE_BYTES. */
uint64_t yb_advise_more_blocks(const struct yb_advise_case *one);

/* Reckon what the cluster serves with a pool of so many blocks; 0: none. Fails as above. */
YB_CHECKED enum yb_status yb_advise_serving(const struct yb_advise_case *one, uint64_t pool_blocks,
                                            struct yb_advise_serving *serving_out);

/* Compare two of them. */
struct yb_advise_more yb_advise_compare(const struct yb_advise_case *one,
                                        const struct yb_advise_serving *with,
                                        const struct yb_advise_serving *without);

#endif /* YB_SIM_ADVISE_H */
