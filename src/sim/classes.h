/* SPDX-License-Identifier: Apache-2.0
 *
 * classes.h -- what traffic classes are worth: a pool in which fewer prompts are found, and loads
 * go before bulk, beside one in which more are found and all bytes queue together.
 *
 * One node: its engine takes prompts one after the other, each of which loads the share `hit` of
 * its KV over the node's port and computes the rest; layers are computed while others are loaded.
 * Over the same port comes bulk: copies, prefetches, a node that is emptied, in pieces of
 * YB_CLASSES_BULK_BYTES at random times, a `background` share of the port's rate in all. With
 * classes a load is of the class first_token and bulk is background; without, they are one class.
 *
 * All cells have the same requests and the same bulk.
 *
 * Threads   Any thread, each its own run.
 * Memory    Freed before a run returns.
 * Time      Simulated.
 */
#ifndef YB_SIM_CLASSES_H
#define YB_SIM_CLASSES_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/sched.h"

#define YB_CLASSES_REQUESTS_MAX (1u << 20)
#define YB_CLASSES_BULK_BYTES   1e9

struct yb_classes_case {
    struct yb_sched_cost cost;
    double bytes_per_s; /* Of the port. */
    uint32_t tokens;    /* Of each prompt. */
    double gap_ns;      /* Between two requests, on the average. */
    uint32_t requests;
    double hit;        /* 0 .. 1, below 1. */
    double background; /* 0 .. 1, below 1. */
    bool classes;
    uint64_t seed;
};

struct yb_classes_result {
    double mean_ns; /* Until the first token. */
    double p99_ns;
    double load_mean_ns; /* Until all is loaded. */
};

/* Run one cell. Fails with INVALID (a field is out of range) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_classes_run(const struct yb_classes_case *one,
                                         struct yb_classes_result *result_out);

#endif /* YB_SIM_CLASSES_H */
