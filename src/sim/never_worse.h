/* SPDX-License-Identifier: Apache-2.0
 *
 * never_worse.h -- that a pool is never a loss: the same engines, requests and routing, with a pool
 * and without one, over networks, models and workloads.
 *
 * Without a pool an engine still keeps what fits on its devices, and routing still looks for it;
 * what the pool adds is memory of nodes, and fetching from peers. Each cell is loaded so that its
 * engines are busy computing prompts for a share of their time that is the same in all cells
 * (YB_NEVER_WORSE_LOAD, as it would be without any reuse), and once more with all requests far
 * beyond that, for the throughput: that of the first nine tenths of them, for in the end only the
 * unluckiest engine still runs.
 *
 * Which place a request gets among equals is drawn, and of a thousand requests the P99 is what the
 * luck of ten of them is: it differs by 5 % from draw to draw. So a workload of few requests is run
 * with several seeds, as many as it takes to YB_NEVER_WORSE_REQUESTS, and the times of all runs are
 * looked at together.
 *
 * A cell is ok if mean and P99 of the time to the first token are at most 1.02 times those without
 * a pool, and throughput at least 0.98 times.
 *
 * Threads   Any thread, each its own run.
 * Memory    What a run needs is freed before it returns.
 */
#ifndef YB_SIM_NEVER_WORSE_H
#define YB_SIM_NEVER_WORSE_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/settings.h"
#include "sim/trace.h"

#define YB_NEVER_WORSE_LOAD        0.55
#define YB_NEVER_WORSE_SATURATION  3.0
#define YB_NEVER_WORSE_REQUESTS    10000u
#define YB_NEVER_WORSE_RUNS_MAX    8u
#define YB_NEVER_WORSE_TTFT        1.02
#define YB_NEVER_WORSE_THROUGHPUT  0.98
#define YB_NEVER_WORSE_MESSAGE_MAX YB_SETTINGS_MESSAGE_MAX

/* Of the axes, by index; NULL past the end. */
const char *yb_never_worse_net(uint32_t index);
const char *yb_never_worse_model(uint32_t index);

/* How a workload is made of a trace. */
enum yb_never_worse_kind {
    YB_NEVER_WORSE_AS_IS,
    YB_NEVER_WORSE_NO_REUSE, /* No two requests share a block. */
    YB_NEVER_WORSE_SHORT,    /* Prompts below 1000 tokens alone. */
};

struct yb_never_worse_workload {
    const char *name;
    const char *trace; /* By its name without ".jsonl". */
    enum yb_never_worse_kind kind;
};

/* Return a row of the axis; its name is NULL past the end. */
struct yb_never_worse_workload yb_never_worse_workload(uint32_t index);

struct yb_never_worse_row {
    const char *net;
    const char *model;
    const char *workload;
    double ttft_ratio;
    double p99_ratio;
    double throughput_ratio;
    double hit_without; /* Share of prompt tokens that were reused. */
    double hit_with;
    uint32_t runs; /* With so many seeds. */
    bool ok;
};

typedef void yb_never_worse_row_fn(void *context, const struct yb_never_worse_row *row);

struct yb_never_worse_options {
    uint32_t requests_max; /* Of each workload, from its beginning, and in one run; 0: all. */
    const char *net;       /* This one alone; NULL: all. Likewise below. */
    const char *model;
    uint64_t seed;
};

/* Make the workload of a trace: its first `requests_max` requests that belong to it. On OK
 * *made_out is the caller's. Fails with NO_MEMORY or NOT_FOUND (none belongs to it). */
YB_CHECKED enum yb_status yb_never_worse_make(const struct yb_trace *trace,
                                              enum yb_never_worse_kind kind, uint32_t requests_max,
                                              struct yb_trace **made_out);

/* Run all cells of one workload over `trace`, which yb_never_worse_make() made. Fails as
 * yb_simulator_run() does. */
YB_CHECKED enum yb_status yb_never_worse_run(const struct yb_trace *trace, const char *workload,
                                             const struct yb_never_worse_options *options,
                                             yb_never_worse_row_fn *on_row, void *context,
                                             char message[YB_NEVER_WORSE_MESSAGE_MAX]);

#endif /* YB_SIM_NEVER_WORSE_H */
