/* SPDX-License-Identifier: Apache-2.0
 *
 * weights.h -- new weights on their way from a trainer to the engines that generate with them.
 *
 * The trainer writes them to the store once, in buckets, over a slow link; each engine pulls them
 * from there over a fast one, a bucket as soon as it is stored, while it goes on with the weights
 * that it has. When it has the last bucket it stops, loads them from its memory onto its devices,
 * and goes on. All bytes that pass one link share it (pipe.h).
 *
 *   trainer --slow, once--> store --fast, once for each engine--> its memory --bus--> its devices
 *
 * What an engine stands still for is exposed: with `overlap` the load alone, and what it still has
 * to wait for when nothing else is left to do (`busy_s`); without, all of it.
 *
 * Threads   One.
 */
#ifndef YB_SIM_WEIGHTS_H
#define YB_SIM_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_WEIGHTS_BUCKETS_MAX 65536u
#define YB_WEIGHTS_ENGINES_MAX 4096u

struct yb_weights_options {
    double bytes;
    double bucket_bytes;     /* 0: all in one. */
    double push_bytes_per_s; /* From the trainer to the store. */
    double pull_bytes_per_s; /* Into one engine's memory. */
    double load_bytes_per_s; /* From there onto its devices. */
    double out_bytes_per_s;  /* Out of the store, for all engines; 0: as much as they take. */
    double busy_s;           /* How long an engine has something to do with the old weights. */
    uint32_t engines;
    bool overlap;
};

struct yb_weights_result {
    double push_s;    /* Until all is stored. */
    double pull_s;    /* What the pulls of all engines take, added up. */
    double exposed_s; /* What an engine stands still for, on the average. */
    double done_s;    /* When the last engine goes on. */
};

/* Run one exchange of weights. Fails with INVALID: a rate or a count is not above 0, or beyond a
 * bound. */
YB_CHECKED enum yb_status yb_weights_run(const struct yb_weights_options *options,
                                         struct yb_weights_result *result_out);

#endif /* YB_SIM_WEIGHTS_H */
