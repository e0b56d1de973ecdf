/* SPDX-License-Identifier: Apache-2.0
 *
 * heat_replay.h -- what the heat of include/yuebing/sched.h is worth on a trace: which blocks it
 * says will be wanted, and what moving them ahead of time saves.
 *
 * The forecast. Time goes in spans of one horizon, the half-life of heat. At the end of each, every
 * forecaster names at most `budget` blocks that will be wanted in the next one; wanted are those
 * that come then and came before. It is told nothing else than the accesses so far:
 *
 *   always-cold  names none
 *   persistence  names those of the last span, the latest first
 *   heat         names the hottest of a chain of YB_HEAT_BLOCKS blocks
 *   oracle       knows
 *
 * Precision is the share of named blocks that were wanted, recall the share of wanted ones that
 * were named, over all spans but the first.
 *
 * The moves. A node's DRAM of `dram_blocks` blocks, the least lately used make way, before an
 * object store that has all. What a request finds there alone it fetches and waits for, in the
 * class first_token. With moves, every YB_HEAT_EVERY_NS yb_sched_heat_moves() says what should
 * come; what is hotter than the block that would make way goes the same way in the class
 * background, while the way is idle, so that nobody waits for it.
 *
 * Threads   Any thread, each its own run; the trace is only read.
 * Memory    Freed before a run returns: 48 bytes for each block of the trace, and the chain.
 * Time      That of the trace.
 */
#ifndef YB_SIM_HEAT_REPLAY_H
#define YB_SIM_HEAT_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/trace.h"

#define YB_HEAT_BLOCKS     32768u
#define YB_HEAT_EVERY_NS   10000000000ull
#define YB_HEAT_LEAST      0.3 /* Accesses expected within a half-life for which a move pays. */
#define YB_HEAT_BUDGET_MAX 1048576u

#define YB_HEAT_FORECASTER_MAP(X) \
    X(ALWAYS_COLD, "always-cold") \
    X(PERSISTENCE, "persistence") \
    X(HEAT, "heat")               \
    X(ORACLE, "oracle")

enum yb_heat_forecaster {
#define X(name, text) YB_HEAT_##name,
    YB_HEAT_FORECASTER_MAP(X)
#undef X
};
#define YB_HEAT_FORECASTERS 4u

struct yb_heat_score {
    uint64_t named;
    uint64_t wanted;
    uint64_t right; /* Named and wanted. */
};

const char *yb_heat_forecaster_name(enum yb_heat_forecaster forecaster);

/* Return right / named and right / wanted; 0 of nothing. */
double yb_heat_precision(const struct yb_heat_score *score);
double yb_heat_recall(const struct yb_heat_score *score);

/* Score all forecasters. Fails with INVALID (horizon 0; budget 0 or above YB_HEAT_BUDGET_MAX) or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_heat_forecast(const struct yb_trace *trace, uint64_t horizon_ns,
                                           uint32_t budget,
                                           struct yb_heat_score scores_out[YB_HEAT_FORECASTERS]);

struct yb_heat_case {
    uint64_t horizon_ns;
    uint32_t dram_blocks;
    double block_bytes;
    double bytes_per_s; /* From the object store. */
    bool moves;
};

struct yb_heat_result {
    uint64_t dram_blocks;   /* That requests found in DRAM, */
    uint64_t object_blocks; /* and in the object store alone. */
    uint64_t moved;         /* Moves. */
    uint64_t moved_used;    /* Those whose block was wanted before it left DRAM again. */
    uint32_t waited;        /* Requests that waited for the object store. */
    double wait_mean_ns;    /* Of all requests. */
    double wait_p99_ns;
};

/* Replay the trace over one node. Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_heat_replay(const struct yb_trace *trace,
                                         const struct yb_heat_case *one,
                                         struct yb_heat_result *result_out);

#endif /* YB_SIM_HEAT_REPLAY_H */
