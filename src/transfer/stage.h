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

/* ---- what staging asks of remote.c ---- */

void yb_remote_queue_slice(struct yb_slice *slice);
void yb_remote_dispatch_soon(struct yb_remote *remote);
/* Account for all fragments of a slice, each by its own status where the slice as a whole went
 * well, and free it. `path_bit` says who moved it. */
void yb_remote_end_slice(struct yb_slice *slice, struct yb_slice_end end, uint32_t path_bit);
/* Leave the fragments that failed behind. Returns false if that was the end of the slice. */
bool yb_remote_drop_failed(struct yb_slice *slice, uint32_t path_bit);

#endif /* YB_TRANSFER_STAGE_H */
