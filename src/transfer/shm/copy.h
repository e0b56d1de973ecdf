/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h -- bring bytes of the peer here: out of a mapping, or by attach.
 *
 * Both sides use it: the initiator for reads, the target for writes. It copies, and judges
 * nothing: whether the bytes count is decided afterwards.
 *
 * Failure   Memory of this process may be registered, or named by an item, and yet not be
 *           writable: that is one fragment's FAULT, and must never end the process. So a
 *           copy out of a mapping first looks at the pages that it goes to; but for shared memory
 *           of our own, which is sealed and populated. What is large is looked at cheaply and far
 *           ahead (memory/writable.h). What is not found good so the kernel judges page by page,
 *           which costs a third of the rate: small pieces that lie near each other together, the
 *           others one by one. What was seen holds for its batch: for as long as it runs, the
 *           memory is promised to be there.
 *
 * Speed     What is large as a whole goes past the caches (base/copy.h), in whatever pieces it
 *           comes: nobody here reads it, and whoever will does so when other slices have come.
 *
 * Threads   The worker that has the session.
 */
#ifndef YB_TRANSFER_SHM_COPY_H
#define YB_TRANSFER_SHM_COPY_H

#include "base/copy.h"
#include "memory/region.h"
#include "transfer/shm/session.h"
#include "transfer/slice.h"
#include "transfer/wire/transfer_wire.h"

/* Memory of a batch that the kernel has looked at: pages from `first` up to `last`. */
struct yb_shm_ready {
    const struct yb_batch *batch;
    uint32_t generation; /* Of the batch. */
    uintptr_t first;
    uintptr_t last;
};

/* The mapping that is pinned now: neighbours are mostly of the same region. What is to be copied
 * out of it is collected, and copied as one before it is let go. */
struct yb_shm_hold {
    struct yb_shm_session *session;
    uint64_t region; /* 0: none. */
    enum yb_shm_loan loan;
    struct yb_shm_mapped mapped;
    struct yb_region_info own;    /* Our region that was written last; id 0: none. */
    bool streams;                 /* All that is to be copied is large. */
    struct yb_shm_ready *ready;   /* NULL: nothing is. */
    const struct yb_slice *slice; /* To be looked at into `ready`, if need be; NULL: it was. */
    uint32_t piece_count;         /* Judged and found good, not yet copied. */
    struct yb_copy_piece pieces[YB_WIRE_PULLS_MAX];
};

void yb_shm_hold_init(struct yb_shm_hold *hold, struct yb_shm_session *session, bool streams);
/* Pin `region` instead of what is pinned. */
enum yb_shm_loan yb_shm_hold_take(struct yb_shm_hold *hold, uint64_t region, bool ask);
/* Copy what was collected, and unpin. */
void yb_shm_hold_release(struct yb_shm_hold *hold);
/* Copy what is at `address` in the peer, at the latest when it is unpinned. INVALID: the mapping
 * does not reach so far. FAULT: `to` cannot be written. */
YB_CHECKED enum yb_status yb_shm_hold_copy(struct yb_shm_hold *hold, uint64_t address,
                                           uint64_t length, void *to);

/* What goes by attach, in one call. */
struct yb_shm_gather {
    uint32_t count;
    uint32_t index[YB_WIRE_PULLS_MAX];
    struct iovec local[YB_WIRE_PULLS_MAX];
    struct iovec remote[YB_WIRE_PULLS_MAX];
};

void yb_shm_gather_add(struct yb_shm_gather *gather, uint32_t index, uint64_t address,
                       uint64_t length, void *to);

/* Copy all. What cannot be read, or written here, gets FAULT in statuses[index]; the others are
 * copied. Anything but OK is the session's failure. */
YB_CHECKED enum yb_status yb_shm_gather_copy(struct yb_shm_gather *gather,
                                             struct yb_shm_session *session,
                                             enum yb_status *statuses);

#endif /* YB_TRANSFER_SHM_COPY_H */
