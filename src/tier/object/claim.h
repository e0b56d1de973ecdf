/* SPDX-License-Identifier: Apache-2.0
 *
 * claim.h -- whose an object store is.
 *
 * Blocks lie under hashes of their keys, by a seed that one cluster has; flush markers name tenants
 * alone. So a store is one cluster's, and a mark in it says whose:
 *
 *     _cluster/<cluster>/<seed>/<epoch>
 *
 * A node claims the store before it uses it: for the cluster that it has joined. A directory that
 * has lost its cluster file looks for the mark, and goes on as the cluster that it names: with the
 * seed, what lies there is found again; and with an epoch that none was given before.
 *
 *     claim:  LIST -- nobody's, or ours of an older epoch --> PUT --> LIST ...
 *                  -- another's --> REFUSED
 *                  -- ours of a later epoch --> STALE
 *                  -- ours --> DELETE of older marks --> OK
 *     look:   LIST -- one cluster's --> LIST of flush markers --> OK
 *
 * Invariants
 *   W1  OK of a claim: our mark with this epoch is there, and no other cluster's was when it had
 *       come there. Two that claim an empty store at the same time are both refused, or one.
 *   W2  The mark's epoch grows: an older one is deleted after a newer one is there. Of two
 *       directories that go on as one cluster the nodes of the earlier one are told STALE: the
 *       later one has the store (as of two nodes of one name, RULES B3).
 *
 * Completion  `done` runs exactly once, on the loop, not within a call, at the latest soon after
 *             the deadline.
 * Threads     The loop's.
 * Memory      A claim has a backend and helpers of its own, until end.
 */
#ifndef YB_TIER_OBJECT_CLAIM_H
#define YB_TIER_OBJECT_CLAIM_H

#include <stdint.h>

#include "tier/object/backend.h"
#include "tier/object/name.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

/* Of a cluster: what its mark says. */
struct yb_object_mark {
    struct yb_id cluster;
    struct yb_id seed;
    uint64_t epoch;
};

/* What a tenant's flush marker says. */
struct yb_object_flushed {
    char tenant[YB_OBJECT_TENANT_MAX + 1];
    uint64_t flush;
};

struct yb_object_claim;

struct yb_object_claim_options {
    struct yb_loop *loop;
    const char *url;                   /* As object.h has it. */
    struct yb_object_backend *backend; /* Instead of `url`; consumed, also by a begin that fails. */
    const struct yb_object_mark *mine; /* NULL: look. Copied. */
    uint64_t deadline_ns;
    /* OK; NOT_FOUND (a look: nobody's); REFUSED (another cluster's, or of several); STALE (a later
     * directory's); NO_SPACE (more tenants than there can be); or what the store said. `why` is a
     * sentence with the remedy, borrowed for the call. */
    void (*done)(void *context, enum yb_status status, const char *why);
    void *context;
};

/* Fails as yb_object_create() does; `done` then never runs. */
YB_CHECKED enum yb_status yb_object_claim_begin(const struct yb_object_claim_options *options,
                                                struct yb_object_claim **claim_out,
                                                char why_out[YB_OBJECT_WHY_BYTES]);

/* Let it end soon. */
void yb_object_claim_cancel(struct yb_object_claim *claim);

/* Of a look that ended OK: the mark, and the highest flush marker of each tenant. Borrowed until
 * end. */
const struct yb_object_mark *yb_object_claim_mark(const struct yb_object_claim *claim);
const struct yb_object_flushed *yb_object_claim_flushed(const struct yb_object_claim *claim,
                                                        uint32_t *count_out);

/* Consume it, after its `done` has returned. NULL is fine. */
void yb_object_claim_end(struct yb_object_claim **claim);

#endif /* YB_TIER_OBJECT_CLAIM_H */
