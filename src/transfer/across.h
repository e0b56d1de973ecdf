/* SPDX-License-Identifier: Apache-2.0
 *
 * across.h -- from device memory of one engine to that of another in the same process.
 *
 * No network and no staging: the driver copies. It is offered for slices whose local
 * memory and all of whose remote ranges are on devices that reach each other, once the
 * handshake with the peer has shown that it is an engine of this process. All else
 * goes the ordinary way: what the target refuses is refused there.
 *
 * Invariants
 *   X1  The target's ranges are pinned, for what the peer may do with them, from before the
 *       first copy to the end of the last; an unregister waits, or says BUSY (T3).
 *   X2  Who copies holds the target: a fence there, and its end, wait for that; a drain
 *       here does, too.
 *   X3  A fragment whose copy fails ends alone.
 *
 * Threads   The worker of the slice's peer. Nothing of the target's workers is touched.
 */
#ifndef YB_TRANSFER_ACROSS_H
#define YB_TRANSFER_ACROSS_H

#include "transfer/remote.h"

/* Slices of a remote that are copied across at once: enough for a device's copy engines, and not
 * more than a slice of a higher class may have to wait for. */
#define YB_ACROSS_SLICES_MAX 8u

/* Pin what a slice at the head of its queue wants to reach. AGAIN: wait until one of the remote has
 * ended, which dispatches. UNSUPPORTED: it goes another way. */
YB_CHECKED enum yb_status yb_across_take(struct yb_slice *slice);

/* Copy all fragments of a slice that was taken. In the end it ends. */
void yb_across_copy(struct yb_slice *slice);

#endif /* YB_TRANSFER_ACROSS_H */
