/* SPDX-License-Identifier: Apache-2.0
 *
 * slice.h -- the piece of a batch that moves as one.
 *
 * A batch is cut into slices by plan.h: consecutive items of one direction, large
 * ones cut, small ones together, at most YB_SLICE_BYTES and YB_SLICE_FRAGMENTS. A
 * slice is what is queued by class, what a path carries, and what is tried again.
 *
 *     FREE --plan--> QUEUED --> [COPYING_OUT] --> FLYING --> [COPYING_IN] --> FREE
 *                      ^                            |
 *                      +--- DELAYED or QUIETING ----+      again, or another way
 *
 *     COPYING_: between device memory and its staging slice; DELAYED: the target had no
 *     room; QUIETING: until the path that failed can deliver nothing any more. A slice
 *     that finds no staging is PARKED outside the queue, so that others go on. One whose
 *     copies the driver does not end is parted from its batch and QUARANTINED until it does.
 *
 * Threads   The worker of its peer.
 */
#ifndef YB_TRANSFER_SLICE_H
#define YB_TRANSFER_SLICE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/fair.h"
#include "memory/memory_type.h"
#include "memory/region.h"
#include "net/call.h"
#include "yuebing/transfer.h"

#define YB_SLICE_BYTES     (256u * 1024u)
#define YB_SLICE_FRAGMENTS 64u

/* One contiguous piece at both ends. */
struct yb_fragment {
    uint32_t item; /* Index in the batch. */
    uint32_t reserved;
    uint8_t *local; /* As the caller named it; device memory too. */
    uint64_t length;
    uint64_t region; /* Of the peer, or YB_TRANSFER_BY_ADDRESS. */
    uint64_t remote_offset;
    enum yb_status status; /* Set by the path: this fragment's own outcome. */
};

struct yb_batch;
struct yb_quarantine;
struct yb_remote;
struct yb_path;

enum yb_slice_state {
    YB_SLICE_FREE,
    YB_SLICE_QUEUED,
    YB_SLICE_PARKED,
    YB_SLICE_COPYING_OUT,
    YB_SLICE_FLYING,
    YB_SLICE_QUIETING,
    YB_SLICE_DELAYED,
    YB_SLICE_COPYING_IN,
    YB_SLICE_COPYING_ACROSS, /* From device to device: across.h. */
    YB_SLICE_QUARANTINED,    /* Of no batch. */
};

struct yb_slice {
    struct yb_fair_item queue; /* In its peer's queue: class, deadline, cost. */
    struct yb_slice *next;     /* Free list; the batch's slices. */
    struct yb_slice *previous;
    enum yb_slice_state state;
    struct yb_batch *batch;
    struct yb_remote *remote;
    struct yb_path *path; /* Who carries it. */
    uint32_t came_by;     /* The bit of the path that brought it, while COPYING_IN. */
    uint32_t op;          /* enum yb_transfer_op */
    uint32_t count;
    uint64_t bytes;
    uint64_t deadline_ns;
    uint32_t avoid; /* Bits of paths that have failed it. */
    bool staged;    /* The staging slice holds the bytes to write. */
    struct yb_slice *parked_next;
    struct yb_slice *parked_previous;
    struct yb_quarantine *quarantine; /* QUARANTINED: what stays pinned. */
    struct yb_timer timer;            /* DELAYED. */
    struct yb_memory_place place;     /* Of the local memory: all fragments' the same. */
    struct yb_fragment fragments[YB_SLICE_FRAGMENTS];

    /* For the paths, while FLYING. */
    uint8_t *staging; /* Page-locked host memory that stands for device memory. */
    uint32_t copies;  /* Between the two, under way. */
    uint32_t iov_count;
    struct iovec iov[YB_SLICE_FRAGMENTS]; /* The local bytes, in host memory. */
    uint8_t body[32 + 24 * YB_SLICE_FRAGMENTS];
    uint8_t reply[8 + 8 * YB_SLICE_FRAGMENTS];
    struct yb_call call;
    struct yb_memory_copy copy[YB_SLICE_FRAGMENTS];

    /* While COPYING_ACROSS, and QUARANTINED after that. */
    struct yb_memory_neighbour *neighbour; /* Whose memory `ranges` is; held. NULL: not that. */
    struct yb_region_range ranges[YB_SLICE_FRAGMENTS];
};

/* How a slice came back from a path. */
struct yb_slice_end {
    enum yb_status status; /* OK: applied, but for fragments with a status of their own. */
    bool in_doubt;         /* A write that may have landed, or may still land. */
    bool path_failed; /* Not the slice's fault: another path may do it, once this one is quiet. */
    bool local_fault; /* Some local memory could not be touched; what is good may go again. */
    struct yb_id by;  /* The process that answered; none: the path does not know. */
};

/* Of a slice that went well, the bytes that count as moved: without fragments that the target
 * refused; none of a read with such, since it goes again without them. */
static inline uint64_t
yb_slice_moved(const struct yb_slice *slice)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < slice->count; i++) {
        if (slice->fragments[i].status == YB_OK) {
            bytes += slice->fragments[i].length;
        } else if (slice->op == YB_TRANSFER_READ) {
            return 0;
        }
    }
    return bytes;
}

#endif /* YB_TRANSFER_SLICE_H */
