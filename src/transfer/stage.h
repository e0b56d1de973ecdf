/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.h -- slices whose local memory is a device's: through staging (copies.h).
 *
 *     write   take staging, copy out of the device, then fly
 *     read    take staging, fly, then copy into the device
 *
 * A slice that finds no staging leaves the queue of its remote (PARKED) until some is
 * given back: slices behind it, which may be those that hold all staging, go on.
 *
 * Invariants
 *   G1  A slice has staging from before its first copy, or its flight, to its end.
 *   G2  Who is PARKED is woken by every slice of the worker that gives staging back.
 *   G3  A fragment whose copy fails ends alone; the others of its slice go on.
 *   G4  A driver that ends no copy holds no batch: a while after its deadline what is
 *       being copied ends BUSY, and its slice, with its staging and all that the batch had
 *       pinned, is QUARANTINED until the copies have ended. What they bring goes nowhere.
 *
 * Threads   The worker of the slice's peer.
 */
#ifndef YB_TRANSFER_STAGE_H
#define YB_TRANSFER_STAGE_H

#include "transfer/remote.h"

/* Point the iov at the host memory that holds, or will hold, the local bytes. */
void yb_stage_fill_iov(struct yb_slice *slice);

/* Make sure that a slice at the head of its queue has staging if it needs any. AGAIN: there is
 * none, and it is PARKED. UNSUPPORTED: this process cannot copy to devices. */
YB_CHECKED enum yb_status yb_stage_take(struct yb_slice *slice);

/* Whether the bytes to write are still on the device; then they have to be copied out first. */
bool yb_stage_must_copy_out(const struct yb_slice *slice);

/* Copy all fragments between device and staging. In the end the slice is queued again, or ends. */
void yb_stage_copy(struct yb_slice *slice, bool out);

/* Give the staging of a slice back, if it has any, and wake those who wait for it. */
void yb_stage_give(struct yb_slice *slice);

/* Queue the parked slices again if staging was given back since. */
void yb_stage_unpark(struct yb_remote *remote);

/* Take a PARKED slice out of its list. */
void yb_stage_forget(struct yb_slice *slice);

/* Part the slices that are being copied from a batch that was stopped (G4); they end BUSY. The
 * caller holds the batch. Without memory for the record of it nothing happens yet. */
void yb_stage_abandon(struct yb_batch *batch);

/* The copies of a slice that was parted from its batch have ended: free it. */
void yb_stage_release(struct yb_slice *slice);

/* The batch has ended: what was parted from it keeps its pins. Returns whether there is such. */
bool yb_stage_keep_pins(struct yb_batch *batch);

/* ---- what staging asks of remote.c ---- */

void yb_remote_queue_slice(struct yb_slice *slice);
void yb_remote_dispatch_soon(struct yb_remote *remote);
/* Account for all fragments of a slice, each by its own status where the slice as a whole went
 * well, and free it. `path_bit` says who moved it. */
void yb_remote_end_slice(struct yb_slice *slice, struct yb_slice_end end, uint32_t path_bit);
/* Account for all fragments of a slice and take it out of its batch, but keep it. */
void yb_remote_part(struct yb_slice *slice, struct yb_slice_end end);
/* Free a slice that was parted from its batch. */
void yb_remote_give_slice(struct yb_slice *slice);
/* Leave the fragments that failed behind. Returns false if that was the end of the slice. */
bool yb_remote_drop_failed(struct yb_slice *slice, uint32_t path_bit);

#endif /* YB_TRANSFER_STAGE_H */
