/* SPDX-License-Identifier: Apache-2.0
 *
 * hit_table.h -- how much of a trace a pool of so many blocks finds again, by eviction policy.
 *
 * One pool, all requests in their order; a request looks its blocks up from the first, uses what is
 * there and puts what is not; a full pool makes room for one block before it takes one in. There
 * is no compute time, and the policies are those of the node (policy/policy.h), beside two that
 * only a simulator can have:
 *
 *   opt   knows the trace: gives up the block that is used again the latest (of equals, the one
 *         further back in its request), and does not take in what comes again later than all that
 *         is there (Belady, with bypass)
 *
 * A block counts as hit only if all blocks before it in the request were hits: the `prefix_hit` is
 * the share of such blocks. `refetches` is how often a block had to be computed or fetched again
 * that had been in the pool before.
 *
 * Threads   Any thread, each its own table; the trace is only read.
 * Memory    About 150 bytes for each distinct block of the trace during a run; nothing after it.
 * Time      That of the trace.
 */
#ifndef YB_SIM_HIT_TABLE_H
#define YB_SIM_HIT_TABLE_H

#include <stdint.h>

#include "sim/trace.h"

/* What the policy is told of a block beside its key, size and the time. */
enum yb_hit_tags {
    YB_HIT_TAGS_NONE,     /* Nothing. */
    YB_HIT_TAGS_POSITION, /* The position in the request, as published figures need it. */
    YB_HIT_TAGS_INFERRED, /* Position and the block before, as the order of a lookup shows. */
    YB_HIT_TAGS_FULL,     /* Request, position, and the block before. */
};

struct yb_hit_case {
    const char *policy; /* As in yb_policy_name(), or "opt". */
    uint64_t blocks;    /* The pool; 0: infinite. */
    enum yb_hit_tags tags;
};

struct yb_hit_result {
    uint64_t references;
    uint64_t hits;       /* Blocks that were there, and all before them in the request. */
    uint64_t block_hits; /* Blocks that were there. */
    uint64_t refetches;
    double prefix_hit;
};

/* Return what a policy is told in the figures that were published of it: the position; those that
 * judge by requests (workload, bidaw, trajectory) all. */
enum yb_hit_tags yb_hit_tags_usual(const char *policy);

/* Run one case. Fails with INVALID (no such policy) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_hit_run(const struct yb_trace *trace, const struct yb_hit_case *one,
                                     struct yb_hit_result *result_out);

/* Return the name of the policy at `index` of the table's rows, NULL past the end. */
const char *yb_hit_policy(uint32_t index);

/* Return the size at `index` of the table's columns, 0 (infinite) for the last; `index` is below
 * YB_HIT_SIZES. */
#define YB_HIT_SIZES 9u
uint64_t yb_hit_size(uint32_t index);

#endif /* YB_SIM_HIT_TABLE_H */
