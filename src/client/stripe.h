/* SPDX-License-Identifier: Apache-2.0
 *
 * stripe.h -- values that are too long for one block: cut into parts, and named by a manifest.
 *
 *     put:     is it there? --> parts --> manifest, under the key --> done
 *                                  `---------`--> failed: parts removed
 *     get:     manifest --> parts, straight into the caller's memory
 *                              `--> one is gone: the manifest is retired, NOT_FOUND
 *     remove:  manifest read --> key removed --> parts removed
 *
 * A part is an ordinary block under a name that nobody else has: it belongs to a write, and not to
 * a key (RULES A16), so that parts of two versions never mix. The manifest is the only thing that
 * is published: a value is there when its manifest is granted, and replacing it is replacing the
 * manifest. Both are marked (YB_WIRE_BLOCK_FLAG_PART, _STRIPED): listings skip parts, and a reader
 * knows a manifest from a value that looks like one.
 *
 * Parts that nobody names any more (of a writer that died, of a version that was replaced) are
 * blocks that nobody reads: the first to be evicted. Parts of what is removed are removed with it.
 *
 * Threads   The core's.
 * Memory    What a batch of long values needs beside it is allocated when one is met.
 */
#ifndef YB_CLIENT_STRIPE_H
#define YB_CLIENT_STRIPE_H

#include "client/core.h"

#define YB_STRIPE_PART_MIN (16ull << 20)
#define YB_STRIPE_PART_MAX (64ull << 20) /* A longer value is cut. */
#define YB_STRIPE_PARTS    64u /* As many as that, while parts are not at their longest. */

/* Of the longest value. */
#define YB_STRIPE_PARTS_MAX ((uint32_t)(YB_CLIENT_VALUE_BYTES_MAX / YB_STRIPE_PART_MAX))

/* Submit and cancel as the core's functions of that name do, and take long values too. */
YB_CHECKED enum yb_status yb_stripe_submit(struct yb_client_core *core,
                                           struct yb_client_batch *batch);
void yb_stripe_cancel(struct yb_client_core *core, struct yb_client_batch *batch);

/* Bytes of all parts but the last of a value. Pure. */
uint64_t yb_stripe_part_bytes(uint64_t total);

#endif /* YB_CLIENT_STRIPE_H */
