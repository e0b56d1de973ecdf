/* SPDX-License-Identifier: Apache-2.0
 *
 * copies.h -- a worker's copies to and from devices, and who gets staging slices.
 *
 * Device memory goes through page-locked staging slices: out of the device before
 * a slice is sent or a read is answered, into it after. There are few, for locked
 * memory is dear, and who holds one waits for a network.
 *
 * Invariants
 *   C1  What this process asks of peers, and what peers ask of it, have slices of their
 *       own: two engines that write to each other never wait for each other's.
 *   C2  An owner (a remote, a peer's process) gets another slice only while more of its
 *       side's are free than it holds. So one that is alone has half of them, and those
 *       of a peer that is mute leave some to the next, as often as they can be halved.
 *   C3  Copies start in the order in which they were asked for, however many a driver
 *       takes at once.
 *
 * Completion  After OK from start, `done` of the copy runs exactly once, later, from the
 *             loop. It may have been refused by the driver meanwhile: then with its status.
 * Time        Devices have no descriptor to wait for. While copies are in flight the loop asks
 *             at every turn, without sleeping, for a while after each completion; then at
 *             every millisecond.
 * Threads     The worker's.
 */
#ifndef YB_TRANSFER_COPIES_H
#define YB_TRANSFER_COPIES_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory_type.h"
#include "net/loop.h"
#include "transfer/slice.h"

/* Slices of each side of a worker. */
#define YB_COPIES_SLICES_PER_SIDE 16u
#define YB_COPIES_SIDES           2u
#define YB_COPIES_SLICES          (YB_COPIES_SIDES * YB_COPIES_SLICES_PER_SIDE)

/* A staging slice holds what a slice of a transfer holds (memory_type.h says what it may be). */
#define YB_COPIES_SLICE_BYTES YB_SLICE_BYTES
_Static_assert(YB_COPIES_SLICE_BYTES % 4096 == 0, "a staging slice is whole pages");
_Static_assert(YB_COPIES_SLICE_BYTES <= 1u << 30, "a staging slice is at most 1 GiB");
_Static_assert(YB_COPIES_SLICES <= 4096, "memory_type.h allows so many slices per queue");

enum yb_copies_side {
    YB_COPIES_ASKING,    /* Slices of this process's batches. */
    YB_COPIES_ANSWERING, /* Requests of peers. */
};

struct yb_copies_lent {
    void *bytes; /* NULL: this place is free. */
    struct yb_id owner;
};

struct yb_copies {
    struct yb_memory_queue *queue; /* NULL: there is no device. */
    struct yb_loop *loop;
    struct yb_memory_copy *waiting; /* For room in the queue (C3). */
    struct yb_memory_copy *waiting_last;
    uint64_t progress_ns; /* When a copy was last started, or ended. */
    struct yb_timer timer;
    struct yb_task task;
    struct yb_copies_lent lent[YB_COPIES_SIDES][YB_COPIES_SLICES_PER_SIDE];
};

/* Without a device, or without memory for its queue, copies are UNSUPPORTED. */
void yb_copies_init(struct yb_copies *copies, struct yb_memory *memory, struct yb_loop *loop);
/* Nothing is under way, and no slice is lent. */
void yb_copies_fini(struct yb_copies *copies);

/* Whether there is a device that could be copied to. */
static inline bool
yb_copies_possible(const struct yb_copies *copies)
{
    return copies->queue != NULL;
}

/* Take a staging slice of YB_COPIES_SLICE_BYTES for `owner`; NULL: try when one is given back (C2).
 */
uint8_t *yb_copies_take(struct yb_copies *copies, enum yb_copies_side side, struct yb_id owner);
/* Give it back; the caller wakes those who wait. */
void yb_copies_give(struct yb_copies *copies, enum yb_copies_side side, uint8_t *bytes);

/* Start a copy of which at least one side is device memory, now or when there is room. Fails as
 * yb_memory_copy_start(), but never with AGAIN. */
YB_CHECKED enum yb_status yb_copies_start(struct yb_copies *copies, struct yb_memory_copy *copy);

/* Whether nothing is under way. */
bool yb_copies_idle(const struct yb_copies *copies);

#endif /* YB_TRANSFER_COPIES_H */
