/* SPDX-License-Identifier: Apache-2.0
 *
 * batch.h -- the record of one batch, from submit to release.
 *
 *     FREE --submit--> RUNNING --last item ended--> ENDED --release--> FREE
 *
 * Invariants
 *   B1  While RUNNING a batch belongs to its peer's worker; others only read the words
 *       that are atomic. While FREE or ENDED it is under the engine's lock.
 *   B2  Each item's `left` counts down to zero once: each byte is accounted for as moved
 *       or as failed, by exactly one of plan, slice end and cancel.
 *   B3  A handle holds the slot's generation; after release no handle of the past fits.
 *   B4  Regions that an item's local memory lies in are pinned from submit until ENDED (T3),
 *       or, where a slice was parted from it, until that is quiet (G4 of stage.h).
 *
 * Memory    The arrays of a slot are kept for its next batch and grow to the largest that
 *           it has carried: steady traffic allocates nothing.
 */
#ifndef YB_TRANSFER_BATCH_H
#define YB_TRANSFER_BATCH_H

#include <stdatomic.h>

#include "net/mailbox.h"
#include "net/timer.h"
#include "transfer/plan.h"

struct yb_quarantine;
struct yb_region_range;
struct yb_remote;
struct yb_transfer;

enum yb_batch_state { YB_BATCH_FREE, YB_BATCH_RUNNING, YB_BATCH_ENDED };

/* How an item stands, in one word that any thread may read: status, doubt and path. */
struct yb_batch_item {
    uint64_t left;          /* Bytes not accounted for. Worker only. */
    uint64_t moved;         /* Read by others after `word` says that it has ended. */
    enum yb_status failure; /* The first; worker only. */
    bool in_doubt;          /* Worker only. */
    uint8_t path;           /* Worker only. */
    struct yb_id by;        /* The process that moved what was moved; worker only. */
    _Atomic(uint64_t) word;
};

struct yb_batch {
    uint32_t magic;
    uint32_t slot;
    uint32_t generation;
    _Atomic(uint32_t)
        state; /* enum yb_batch_state; stored with release, under the engine's lock. */
    struct yb_transfer *engine;
    struct yb_remote *remote; /* Worker. */
    yb_transfer_peer peer;
    uint32_t room; /* Of the arrays. */
    uint32_t count;
    struct yb_plan_item *items;
    struct yb_batch_item *states;
    struct yb_region_range *pins; /* One for each region that is used here. */
    uint32_t pin_count;
    _Atomic(uint32_t) ended;
    _Atomic(uint32_t) failed;
    _Atomic(uint64_t) bytes;
    enum yb_status status; /* First failure; ENDED only. */
    bool in_doubt;
    uint64_t began_ns;
    uint64_t took_ns;
    struct yb_transfer_batch_options options; /* notify and its bytes are in `notify`. */
    uint64_t deadline_ns;

    /* ---- the worker's, while RUNNING ---- */
    struct yb_batch *next;
    struct yb_batch *previous;
    struct yb_plan_cursor cursor;
    struct yb_slice *planned;         /* In the queue for the first time; NULL: none. */
    struct yb_slice *slices;          /* All that are not free. */
    enum yb_status stopped;           /* Not OK: cancelled, or its time is over. */
    uint32_t holds;                   /* It must not end just now. */
    struct yb_quarantine *quarantine; /* Of slices that were parted from it; NULL: none were. */
    bool exhausted;                   /* Nothing is left to plan. */
    bool starved;                     /* Waits for a free slice, in the list of its class. */
    struct yb_batch *starved_next;
    struct yb_batch *starved_previous;
    bool notifying;
    struct yb_timer timer;
    struct yb_mail start_mail;
    struct yb_mail cancel_mail;
    bool cancel_out;   /* Under the engine's lock: the mail is under way ... */
    bool released;     /* ... and brings the slot back, since the batch was released meanwhile. */
    uint64_t ended_as; /* Under the engine's lock: the engine's number of this end. */
    struct yb_call notify_call;
    uint8_t notify[4096];
};

static inline uint64_t
yb_batch_word(enum yb_status status, bool in_doubt, uint32_t path)
{
    return (uint64_t)(uint32_t)status | (uint64_t)in_doubt << 32 | (uint64_t)path << 40;
}

#endif /* YB_TRANSFER_BATCH_H */
