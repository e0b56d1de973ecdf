/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_tier.h -- a tier below memory that a bench has to itself, and turns by itself.
 *
 * Threads   The caller's, which turns the loop.
 * Memory    The caller owns the struct; open puts a loop and a tier into it, close takes them out.
 */
#ifndef YB_CLI_BENCH_TIER_H
#define YB_CLI_BENCH_TIER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/cli.h"
#include "net/loop.h"
#include "tier/object/object.h"
#include "tier/ssd/ssd.h"
#include "tier/tier.h"

#define YB_BENCH_TIER_TURN_NS (100 * YB_NS_PER_MS)

struct yb_bench_tier {
    const char *name; /* Of the bench, for what goes wrong ... */
    FILE *err;        /* ... and is said here. */
    void (*lost)(void *owner, struct yb_id hash, uint64_t grant); /* NULL: nobody minds. */
    void *owner;
    /* ---- from open to close ---- */
    struct yb_loop *loop;
    struct yb_tier *tier;
    const char *made;      /* A folder that is not to outlive the bench; NULL: none. */
    enum yb_status status; /* The first that was not OK: of the tier, or of an operation. */
    bool recovered;
};

/* What an operation starts with, so that its `done` finds the rest. */
union yb_bench_tier_any {
    struct yb_tier_op op;
    struct yb_tier_store store;
    struct yb_tier_load load;
};

/* Open the loop, if there is none, and a tier; wait until it has recovered. `loop`, `events` and
 * `owner` of the options are filled in. False, having said why on `err`. */
bool yb_bench_tier_open_log(struct yb_bench_tier *bench, const struct yb_ssd_options *options);
bool yb_bench_tier_open_store(struct yb_bench_tier *bench, const struct yb_object_options *options);

/* The store that --store names, or a folder here: that goes with the bench, unless it was there. */
const char *yb_bench_tier_url(struct yb_bench_tier *bench, const struct yb_cli *cli);

/* Stop the tier and wait for it; harmless if there is none. The loop stays for the next ... */
void yb_bench_tier_close(struct yb_bench_tier *bench);
/* ... until this, which closes the tier, too. */
void yb_bench_tier_fini(struct yb_bench_tier *bench);

/* Note how an operation, or anything else, has ended. */
void yb_bench_tier_note(struct yb_bench_tier *bench, enum yb_status status);

/* Make the sums that a tier makes of a value, for a bare side that is to do as much; what comes of
 * them is of no use. */
uint32_t yb_bench_sum(const uint8_t *bytes, uint64_t size);

#endif /* YB_CLI_BENCH_TIER_H */
