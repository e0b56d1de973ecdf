/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_run.h -- requests of a trace, sent to a cluster as a router would, and what came of them.
 *
 * Each request goes to a conductor, with the names of its blocks; then to the engine for prefill
 * that it named, with its instructions; then, with what that one answered, to the engine for
 * decode. The first token is there when the first engine has answered. An engine that fails is not
 * asked again for this request: a conductor is asked for another one. Several are asked in turns.
 *
 *     demo_work.c     which requests, and how fast they come
 *     demo_run.c      the router: threads, one request after the other
 *     demo_column.c   what a whole run was like
 *
 * A block of the trace is a number; its tokens are a function of that number, so that prompts share
 * in tokens what the trace shares in blocks.
 *
 * Threads   run: the calling one and as many as it starts; it joins them.
 * Memory    A column's arrays are its own, until fini. Traces are borrowed.
 */
#ifndef YB_CLI_DEMO_RUN_H
#define YB_CLI_DEMO_RUN_H

#include "cli/demo_cluster.h"
#include "sim/trace.h"
#include "yuebing/sched.h"

#define YB_DEMO_MODEL "llama-3-70b"
#define YB_DEMO_WHY   96u
#define YB_DEMO_TIERS 4u /* device, dram, ssd, object: as enum yb_sched_tier. */

struct yb_demo_work {
    const struct yb_trace *trace;
    uint32_t count; /* So many of its requests, from the first. */
    double speed;   /* How much faster they come than in the trace. */
    bool unique;    /* No two prompts share anything. */
};

/* How the moves of a kind ended. */
struct yb_demo_moves {
    uint64_t in_time;
    uint64_t late;
    uint64_t otherwise; /* Already there, the source gone, failed. */
};

/* What became of a request. */
struct yb_demo_served {
    bool answered;
    uint32_t tries;
    char why[YB_DEMO_WHY];      /* What failed last; "": nothing did. */
    uint64_t ttft_ns;           /* From when it should have come. */
    uint64_t predicted_ttft_ns; /* By the conductor, from when it was asked. */
    uint64_t measured_ttft_ns;  /* The same span. */
    uint32_t prompt_tokens;
    uint32_t device_tokens;
    uint32_t loaded_tokens;
    uint64_t tier_bytes[YB_DEMO_TIERS];
    uint64_t pulled_bytes;
    uint64_t pull_us;
    uint64_t
        predicted_us; /* From when the conductor was asked until its load is there, as said ... */
    uint64_t load_us; /* ... and as it was; 0: nothing was loaded. */
    struct yb_demo_moves fetches;
    struct yb_demo_moves streams;
};

/* A run, as a column of the table. */
struct yb_demo_column {
    const char *name;
    uint32_t asked, answered, retried;
    char unanswered[YB_DEMO_WHY + 80]; /* Why the first one that was not; "": all were. */
    double span_s;
    uint64_t *ttft_ns; /* Of those that were answered, ascending. */
    double ttft_mean_ns;
    uint64_t prompt_tokens;
    double hit[YB_DEMO_TIERS]; /* Share of the prompts' tokens. */
    double saved_s;            /* Of computing, at the model's own time. */
    uint64_t tier_bytes[YB_DEMO_TIERS];
    uint64_t tier_busy_ns[YB_DEMO_TIERS];
    uint64_t pulled_bytes, pull_us;
    uint64_t stored_bytes, verified_bytes, wrong_bytes;
    uint64_t load_failures, store_failures, dropped_stores;
    uint64_t load_predicted_us, load_us;        /* Sums over loads. */
    double ttft_predicted_ns, ttft_measured_ns; /* Sums. */
    uint32_t conductors;
    uint64_t decisions[YB_DEMO_CONDUCTORS]; /* Of each. */
    uint64_t issued, terminal, open;
    uint64_t watched;   /* Came ahead of time, and who reads them is open: not in `open`. */
    uint64_t links_cut; /* In chaos. */
    struct yb_demo_moves fetches;
    struct yb_demo_moves streams; /* Of computed blocks to where the answer goes on. */
    double cpu_busy; /* Share of all processors, of everything that ran on this machine. */
    uint64_t memory_bytes;
};

/* Send all of it, and fill in the column. False: the cluster's `why` says what failed. */
bool yb_demo_run(struct yb_demo_cluster *cluster, const struct yb_demo_shape *shape,
                 const struct yb_demo_work *work, const struct yb_sched_cost *cost,
                 struct yb_demo_column *column_out);

void yb_demo_column_fini(struct yb_demo_column *column);

/* What computing costs an engine of the demo, in the model's own time. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_demo_cost(struct yb_sched_cost *cost_out);

/* Of the requests that are chosen. */
struct yb_demo_limits {
    uint32_t prompt_max; /* Tokens; who has more is left out. */
    uint32_t answer_max; /* Longer answers are cut. */
};

/* Choose requests: those of so many of the trace's sessions (conversations) that computing their
 * prompts would keep `engines_busy` engines busy if nothing were reused, while the trace passes
 * `speed` times as fast; `cost` is in the time of that passing. The trace has no others any more.
 * Returns which share of the sessions it was; 0: no memory, or nothing is left. */
double yb_demo_choose(struct yb_trace *trace, const struct yb_sched_cost *cost, double speed,
                      double engines_busy, const struct yb_demo_limits *limits);

/* Write the first `count` of its requests as a trace of its own. Fails with IO. */
YB_CHECKED enum yb_status yb_demo_keep_trace(const struct yb_trace *trace, uint32_t count,
                                             const char *path);

/* Return how many of the requests come within so many seconds. */
uint32_t yb_demo_count_within(const struct yb_trace *trace, double speed, double seconds);

/* Return the time to the first token that `share` of the requests did not exceed. */
uint64_t yb_demo_ttft(const struct yb_demo_column *column, double share);

/* Add up what became of the requests. */
bool yb_demo_column_add_up(struct yb_demo_column *column, const struct yb_demo_served *served,
                           const struct yb_sched_cost *cost);

/* Ask engines and conductors for what they counted. */
bool yb_demo_column_ask(struct yb_demo_column *column, struct yb_demo_cluster *cluster,
                        struct yb_curl *curl);

#endif /* YB_CLI_DEMO_RUN_H */
