/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_flow.h -- traffic through the transfer engine, measured and checked.
 *
 * A pair is an engine of this process and a target. A flow moves objects of one size
 * between their buffers, each as one batch of `fragments` items: contiguous at the
 * target, scattered here (yb_bench_scatter).
 *
 *     DEPTH   `depth` batches are under way; whoever ends is followed by the next, in
 *             its own callback: what the path can do
 *     WAITING one batch after the other, submitted and waited for by one thread: what
 *             a plain caller sees
 *     PACED   one batch each `period_ns`, whether or not the last has ended
 *
 * Threads   Flows of one pair may run at once, each started and finished by the same
 *           thread. Callbacks run on the engine's workers.
 */
#ifndef YB_CLI_BENCH_FLOW_H
#define YB_CLI_BENCH_FLOW_H

#include "cli/bench_ceilings.h"
#include "cli/bench_target.h"
#include "cli/cli.h"
#include "memory/shared.h"

#define YB_BENCH_DEPTH_LIMIT 256u

struct yb_bench_pair {
    struct yb_bench_target_options options;
    struct yb_bench_target target;
    struct yb_bench_engine own;
    struct yb_shared *twin; /* Shared memory as large as the buffer, for bare copies; or NULL. */
    yb_transfer_peer peer;
};

enum yb_bench_flow_mode { YB_BENCH_FLOW_DEPTH, YB_BENCH_FLOW_WAITING, YB_BENCH_FLOW_PACED };

struct yb_bench_flow_options {
    enum yb_bench_flow_mode mode;
    uint32_t op;   /* enum yb_transfer_op */
    uint64_t size; /* Of an object. */
    uint32_t fragments;
    uint32_t depth; /* PACED: as many may be under way. */
    uint32_t work_class;
    uint64_t run_ns;
    uint64_t period_ns;
};

struct yb_bench_flow_result {
    double gbps;
    double p50_us; /* Of a batch: from submit to its end. */
    double p99_us;
    uint64_t bytes;
    uint64_t batches;
    double cpu_s_per_gb; /* Both processes; yb_bench_flow_run only. */
    uint32_t paths;      /* YB_TRANSFER_PATH_ bits that carried the checked batch; as above. */
};

struct yb_bench_flow;

/* The second half of a pair, once all targets are open: the engine here, connected. Returns false,
 * having said why on stderr. */
bool yb_bench_pair_open(struct yb_bench_pair *pair);
/* Ask an open pair whether it has one of `paths`. Returns false, having said on cli->err why not:
 * nothing is measured over another way than the one that was asked for. */
bool yb_bench_pair_has(const struct yb_cli *cli, const struct yb_bench_pair *pair, uint32_t paths,
                       struct yb_transfer_probe *probe_out);
void yb_bench_pair_close(struct yb_bench_pair *pair);
/* Copy barely, from shared memory that was made for that into the pair's own buffer: of two ends,
 * as large as those of a flow. Returns false, having said why on stderr. */
bool yb_bench_pair_copy(struct yb_bench_pair *pair, const struct yb_bench_copy *copy,
                        double *gbps_out);

/* Run a flow to its end, then move one object more with fresh bytes and check them at its
 * destination. Returns false, having said why on stderr. */
bool yb_bench_flow_run(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                       struct yb_bench_flow_result *result_out);

/* The parts, for flows beside each other. Start does not wait; a PACED flow has a thread of its
 * own until it is finished. Finish lets no new batch begin, waits for those under way and frees
 * the flow. */
bool yb_bench_flow_start(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                         struct yb_bench_flow **flow_out);
bool yb_bench_flow_finish(struct yb_bench_flow **flow, struct yb_bench_flow_result *result_out);
/* Bytes of batches that have ended so far. */
uint64_t yb_bench_flow_bytes(const struct yb_bench_flow *flow);

/* Move one object with fresh bytes and check it. */
bool yb_bench_flow_check(struct yb_bench_pair *pair, const struct yb_bench_flow_options *options,
                         uint32_t *paths_out);

#endif /* YB_CLI_BENCH_FLOW_H */
