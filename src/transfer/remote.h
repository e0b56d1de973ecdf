/* SPDX-License-Identifier: Apache-2.0
 *
 * remote.h -- a peer as its worker sees it: the queue of slices, and the ways there.
 *
 * Batches arrive by mail. Each has at most one planned slice in the queue, which
 * orders by class and deadline (base/fair.h); when it is taken, the next one is
 * planned. Slices go to the first path, in order of rank, that is up, serves them
 * and has room; what comes back unfinished goes again.
 *
 *     batch --plan--> [ queue ] --> path (shm, tcp) --> done --> batch
 *                        ^                                |
 *                        +--- path failed: once quiet, another way
 *
 * Invariants
 *   M1  A slice is in one place: queued, flying on one path, waiting for a path to be
 *       quiet, or free.
 *   M2  A batch ends when all its items have; each item when all its bytes were
 *       accounted for, once (B2 of batch.h).
 *   M3  By a batch's deadline everything of it is cancelled; what flies comes back
 *       soon after, because paths end what they are asked to.
 *   M4  Batches of a class come by free slices in the order in which they asked.
 *
 * Threads   One worker. Other threads reach it by mail only.
 */
#ifndef YB_TRANSFER_REMOTE_H
#define YB_TRANSFER_REMOTE_H

#include "base/fair.h"
#include "net/address.h"
#include "net/links.h"
#include "net/peer.h"
#include "transfer/batch.h"
#include "transfer/path.h"
#include "transfer/wire/transfer_wire.h"

struct yb_transfer;
struct yb_transfer_worker;

#define YB_REMOTE_PATHS_MAX 4u

/* Slices that a remote always gets, and never exceeds: what waits for a peer that is mute does
 * not take them from the others of its worker. */
#define YB_REMOTE_SLICES_RESERVED 32u
#define YB_REMOTE_SLICES_MAX      256u

/* First come, first served. */
struct yb_starved {
    struct yb_batch *head;
    struct yb_batch *tail;
};

/* Shares that lower classes keep while a higher one has work, in parts of 1000. */
#define YB_REMOTE_SHARE_THROUGHPUT 200u
#define YB_REMOTE_SHARE_BACKGROUND 100u

struct yb_remote {
    uint32_t magic;
    struct yb_transfer *engine;
    struct yb_transfer_worker *worker;
    yb_transfer_peer handle;
    struct yb_address_list addresses;
    struct yb_id expected; /* Who must answer there; none: anybody. */
    uint32_t link;         /* Its number among the net's links. */
    bool closing;
    struct yb_peer *control; /* For questions: probe, drain, notify, shm offers. */
    struct yb_fair queue;
    struct yb_path *paths[YB_REMOTE_PATHS_MAX]; /* In order of rank; NULL: not there. */
    uint32_t paths_open;                        /* Not yet closed. */
    struct yb_remote *next;                     /* Of its worker. */
    struct yb_batch *batches;
    struct yb_starved starved[YB_CLASS_COUNT]; /* Batches that wait for a free slice. */
    uint32_t starved_count;
    struct yb_slice *parked; /* Wait for staging, the longest first. */
    struct yb_slice *parked_last;
    bool unpark;          /* Staging was given back since they were parked. */
    uint32_t quarantined; /* Slices that a driver has not ended, though their batches have. */
    uint32_t across;      /* Slices that are copied across. */
    bool greeting;        /* The call is under way: across.c. */
    struct yb_call greeting_call;
    uint8_t greeting_body[YB_WIRE_PING_BYTES];
    uint8_t greeting_reply[YB_WIRE_PING_BYTES];
    uint32_t slices_used;
    uint32_t references; /* What is under way and comes back here. */
    struct yb_task dispatch_task;
};

/* All on the worker's thread. */
YB_CHECKED enum yb_status yb_remote_create(struct yb_transfer_worker *worker,
                                           yb_transfer_peer handle,
                                           const struct yb_address_list *addresses,
                                           struct yb_id expected, struct yb_remote **remote_out);
/* Cancel everything and go; frees itself when the last path is closed and the last batch ended. */
void yb_remote_close(struct yb_remote *remote);

/* What went beside the net's connections has ended, after yb_links_begin(). */
void yb_remote_count_moved(struct yb_remote *remote, const struct yb_slice *slice,
                           enum yb_links_path path, enum yb_status status);

void yb_remote_start_batch(struct yb_remote *remote, struct yb_batch *batch);
/* End a batch early; it ends when what flies has come back. Harmless when repeated. */
void yb_remote_stop_batch(struct yb_batch *batch, enum yb_status why);

/* Number a peer of net that belongs to this remote, 0 to 255: two handles of one process must not
 * look like one to the target, which lets a newer connection replace an older one. */
uint32_t yb_remote_stripe(const struct yb_remote *remote, uint32_t number);

/* Free a closed remote once nothing of it is left. */
void yb_remote_check_gone(struct yb_remote *remote);

/* Bring every path to quiet, and wait for quarantined slices; `done` runs once. quiet.c. */
void yb_remote_quiesce(struct yb_remote *remote, uint64_t deadline_ns,
                       void (*done)(void *owner, enum yb_status status), void *owner);

#endif /* YB_TRANSFER_REMOTE_H */
