/* SPDX-License-Identifier: Apache-2.0
 *
 * simulator.h -- a whole cluster, run over a request trace in simulated time.
 *
 * The simulator owns time, engines, pipes and the contents of tiers. It decides nothing: where a
 * request runs and what is loaded for it comes from include/yuebing/sched.h, what leaves a tier
 * from policy/policy.h, the same code that a live store runs. So a change of either shows here
 * first.
 *
 *   arrival --> decide, commit --+--> rejected
 *                                |
 *                                +--> flows: what is reused and is not at hand --> ready
 *                                +--> the engine's queue --> prefill --> FIRST TOKEN
 *                                                               |
 *             blocks go to the tiers of the node <--------------+--> [stream] --> decode --> done
 *
 * What is simplified, so that a figure is not read as more than it is: an engine's devices keep a
 * fixed part for blocks of earlier requests (`device_tokens`) and the rest for those that run; a
 * request that runs holds room for its whole answer from the beginning; an answer's own blocks are
 * not kept, as traces give them no names; policies are told how long an answer is when its prompt's
 * blocks are kept, which is a decode too early; reports come when they are due (`report_ns`), lose
 * nothing and take no time.
 *
 * Invariants
 *   Z1  Each request of the trace ends exactly once: done or rejected.
 *   Z2  Blocks balance on each shelf: put = evicted + removed + present. Pins are all given back.
 *   Z3  The same scenario and trace give the same result, to the last bit.
 *   Z4  input tokens of requests that are not rejected = tokens reused, by source, + tokens
 *       computed, without those that were computed in vain (`recheck`).
 *
 * Threads   Any thread, each its own run.
 * Memory    All of a run is freed before it returns, except the result, which is the caller's.
 * Time      Simulated.
 */
#ifndef YB_SIM_SIMULATOR_H
#define YB_SIM_SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/fabric.h"
#include "sim/tally.h"
#include "sim/trace.h"
#include "yuebing/sched.h"

#define YB_SIMULATOR_INSTANCES_MAX  YB_SCHED_PLACES_MAX
#define YB_SIMULATOR_CONDUCTORS_MAX YB_SCHED_CONDUCTORS_MAX
#define YB_SIMULATOR_MESSAGE_MAX    256u

/* Hears of a run how many of its requests have ended. It changes nothing of the run. */
typedef void yb_simulator_progress_fn(void *context, uint32_t ended);

#define YB_SIMULATOR_PROGRESS_EVENTS 256u

/* What is simulated. Zero means: none, or the default of sched. */
struct yb_scenario {
    struct yb_sched_options sched; /* Routing, admission, mode, objectives; its bounds are set. */
    struct yb_sched_cost cost;
    uint32_t instances;        /* Those that prefill; coupled: all. At least 1. */
    uint32_t decode_instances; /* disaggregated: those that decode. 0 there: answers end with their
                                  first token. */
    uint32_t conductors;       /* 0: 1. Requests go to them in turns. */
    uint32_t chunk_tokens;     /* Of prefill beside decode; 0: whole prompts, as who takes turns
                                  (time-sliced) computes them anyway. */
    uint32_t batch_max;
    bool in_order;   /* Engines begin jobs in the order of their coming, ready or not. */
    bool no_overlap; /* Nothing is computed before all is loaded. */
    bool no_begin;   /* Engines look for blocks when a request comes, not when it begins. */
    bool recheck;    /* A request is refused after its prefill if steps at the places for decode
                        are then as long as is allowed: the prefill was in vain. */

    bool apart;      /* What a pool has lies anywhere in it: loads and what is kept pass ports. */
    bool no_classes; /* All transfers are of one class. */
    bool no_chains;  /* Tiers are not told which block follows which. */
    const char *eviction;   /* NULL: "lru". */
    uint64_t device_tokens; /* Kept on the devices of an instance for later requests. */
    uint64_t dram_tokens;   /* Of a node. */
    uint64_t ssd_tokens;
    bool object; /* What leaves the last tier of a node goes to an object store without bounds. */

    double bytes_per_s[YB_FABRIC_KINDS];
    uint64_t latency_ns[YB_FABRIC_KINDS];
    uint32_t rack_nodes; /* 0: no racks. */

    uint64_t report_ns; /* Instances report at most so often; 0: before each decision. */
    uint64_t seed;

    yb_simulator_progress_fn *progress; /* After every YB_SIMULATOR_PROGRESS_EVENTS events. */
    void *progress_context;
};

/* Where the tokens of prompts came from. */
#define YB_RESULT_SOURCE_MAP(X) \
    X(DEVICE, "device")         \
    X(DRAM, "dram")             \
    X(SSD, "ssd")               \
    X(PEER, "peer")             \
    X(OBJECT, "object")         \
    X(COMPUTED, "computed")

enum yb_result_source {
#define X(name, text) YB_RESULT_##name,
    YB_RESULT_SOURCE_MAP(X)
#undef X
};
#define YB_RESULT_SOURCES 6u

/* What one kind of times came out as, exactly. */
struct yb_result_times {
    uint64_t count;
    double mean_ns;
    uint64_t p50_ns;
    uint64_t p90_ns;
    uint64_t p95_ns;
    uint64_t p99_ns;
    uint64_t max_ns;
};

struct yb_result {
    uint32_t requests;
    uint32_t done;
    uint32_t rejected;
    uint32_t refused;       /* Of these, by the place for decode, after their prefill. */
    uint32_t avoided;       /* Decisions that went past a hotspot's holders (lmetric). */
    uint64_t wasted_tokens; /* Computed for those that were refused. */
    uint64_t makespan_ns;   /* From the first arrival to the last end. */
    uint64_t events;
    uint64_t input_tokens; /* Of those that are done. */
    uint64_t output_tokens;
    uint64_t source_tokens[YB_RESULT_SOURCES];
    struct yb_result_times ttft;
    struct yb_result_times tpot; /* Of each request, over its tokens after the first. */
    struct yb_result_times tbt;  /* Between any two tokens; its quantiles to 1/32. */
    struct yb_fabric_use links[YB_FABRIC_KINDS];
    double prefill_use; /* Share of instance time. */
    double decode_use;
    double stall_use;      /* Part of prefill_use: engines that stood still for a load. */
    double prefill_ns;     /* Prefill time of all requests. */
    double requests_per_s; /* Done, over the makespan. */
    double steady_per_s; /* The first nine tenths that ended, over the time until then: without the
                            end, when one engine after the other has nothing left. */
    uint64_t shelf_put;  /* Of all shelves; Z2 holds. */
    uint64_t shelf_evicted;
    uint64_t shelf_present;
    uint32_t shelf_refused;
    uint32_t replicas_max; /* Of the block with most copies at the end. */

    /* By request of the trace: time to the first token; 0: rejected. And per token after it; of the
     * sum of these, the wait for its first step of decode: for blocks on their way to where it is
     * decoded, or for the end of a window of prefills. */
    uint64_t *ttft_ns;
    uint64_t *tpot_ns;
    uint64_t *turn_ns;
};

/* Run a trace. On OK the result is filled in; its arrays are the caller's, who passes it to
 * yb_result_fini(). Fails with INVALID (an option is refused; the message says which) or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_simulator_run(const struct yb_scenario *scenario,
                                           const struct yb_trace *trace,
                                           struct yb_result *result_out,
                                           char message[YB_SIMULATOR_MESSAGE_MAX]);

void yb_result_fini(struct yb_result *result);

/* Return the share of input tokens that came from a source. */
double yb_result_share(const struct yb_result *result, enum yb_result_source source);

/* Return the share of input tokens that were reused, from anywhere. */
double yb_result_hit(const struct yb_result *result);

const char *yb_result_source_name(enum yb_result_source source);

/* Sort `values` and say how they are distributed; zeros at the front are left out. */
struct yb_result_times yb_result_times(uint64_t *values, uint32_t count);

#endif /* YB_SIM_SIMULATOR_H */
