/* SPDX-License-Identifier: Apache-2.0
 *
 * object.h -- the tier behind all others: blocks in an object store.
 *
 * What lies there survives every node. Objects never change, and their names say what they are
 * (name.h); so there is nothing to agree on with whoever else writes there, and a late upload does
 * no harm (RULES A15).
 *
 *     file:DIRECTORY                                     files, each written whole
 *     s3://BUCKET[/PREFIX][?endpoint=URL&region=R&style=path|host&profile=P&ca=FILE]
 *
 * Kill       The upload of this tier's own is cancelled, and the object deleted. Where an upload
 *            may still be on its way (its answer was lost, or nothing is known of the block), or
 *            other blocks lie in the object, a small kill object is written first; it is removed
 *            when nothing of the block is left and no request can be alive (an hour).
 * Flush      One marker object; everything older is a miss at once, and is collected in the
 *            background.
 * Packs      One that holds nothing any more is deleted. What lives in those that are more than
 *            half dead goes to a new one, and then they are deleted.
 * Recovery   Three listings: flush markers, kill objects, the rest. Nothing is read but the footers
 *            of packs. A load may ask the medium for what is not known yet; find never does.
 * Trouble    Attempts are repeated with growing, jittered pauses; a lost answer is resolved by a
 *            HEAD. When the service as a whole does not work, or several operations in a row have
 *            failed, the tier steps aside: everything ends UNREACHABLE at once, and every second
 *            one request tries whether it is back.
 * Hedging    A load whose bytes should have come, by the first bytes of 95 of 100 and the rate, is
 *            asked for once more, into memory of the tier's own; if that comes first it is copied
 *            once the other is quiet (RULES A3). At most one request more for twenty loads.
 *
 * Classes    Each has a few requests kept for it. Where a class was asked for bytes within the
 *            last second, those below it have no more under way than makes the service as fast
 *            as it can be (fill.h), and always their share.
 *
 * Threads    tier.h. Calls of the medium run on threads of the tier's own.
 * Memory     tier.h: all is taken by create; the index grows with the blocks, 48 bytes each.
 */
#ifndef YB_TIER_OBJECT_OBJECT_H
#define YB_TIER_OBJECT_OBJECT_H

#include "base/histogram.h"
#include "base/stats.h"
#include "net/loop.h"
#include "tier/object/backend.h"
#include "tier/tier.h"
#include "yuebing/status.h"

/* What less preferred classes get of the bytes under way while others are in front of them. */
#define YB_OBJECT_SHARE_THROUGHPUT 100u
#define YB_OBJECT_SHARE_BACKGROUND 50u

enum yb_object_layout {
    YB_OBJECT_LAYOUT_BLOCK,  /* An object for each block. */
    YB_OBJECT_LAYOUT_PACKED, /* Small blocks are gathered. */
};

/* 0 of a number: its default. */
struct yb_object_options {
    struct yb_loop *loop;
    const struct yb_tier_events *events;
    void *owner;
    const char *url;
    enum yb_object_layout layout;
    uint64_t capacity_bytes;     /* 0: no bound. */
    uint32_t blocks_max;         /* 4 Mi: 48 bytes each once used, and 4 for the table. */
    uint32_t spaces_max;         /* 4096: tenants times the epochs of each that have blocks. */
    uint32_t operations_max;     /* 4096 at the same time; more are told AGAIN. */
    uint32_t concurrency;        /* 64 requests at the same time, at most 256. */
    uint32_t threads;            /* 8, for files and for sums. */
    uint64_t attempt_timeout_ns; /* 30 s. */
    uint64_t pause_ns;           /* 50 ms: after the first failure; doubled after each. */
    uint64_t aside_ns;           /* 1 s: between two tries of a service that is away. */
    uint64_t kill_life_ns;       /* 1 h: no request is older. */
    uint64_t hedge_bytes_max;    /* 4 MiB: loads above it are not hedged. */
    uint64_t pack_block_max;     /* 4 MiB: blocks below it are packed. */
    uint64_t pack_bytes;         /* 64 MiB. */
    uint64_t pack_wait_ns;       /* 50 ms: so long a pack waits for more. */
    struct yb_stats *stats;      /* Metrics "object_..." go there; NULL: nowhere. */
    uint64_t seed;               /* Of the jitter and of the packs' names; 0: the clock's. */
    struct yb_object_backend
        *backend; /* Instead of `url`; consumed, also by a create that fails. */
};

/* What loads met, beside tier.h's info. The pointers are good until destroy. */
struct yb_object_stats {
    uint64_t requests[YB_OBJECT_VERBS]; /* Given to the medium. */
    uint64_t retries;
    uint64_t hedges;
    uint64_t hedges_won;
    uint64_t probes;   /* Loads that asked the medium for what was not known. */
    uint64_t resolved; /* Lost answers that a HEAD found to be successes. */
    uint64_t kill_objects;
    uint64_t moved;  /* Blocks that went from half-dead packs to a new one. */
    uint64_t merged; /* Loads that shared a request with a neighbour's. */
    uint64_t flying;
    uint64_t waiting;
    const struct yb_histogram *first_byte_us; /* Of GETs: the server's queue and its disk ... */
    const struct yb_histogram *transfer_us;   /* ... and the bytes after the first. */
};

/* Open the store. Returns at once; recovery goes on in the background.
 * Fails with INVALID (the URL, a bound), DENIED or IO (the folder), UNSUPPORTED (no libcurl) or
 * NO_MEMORY; `why_out` is a sentence with the remedy. */
YB_CHECKED enum yb_status yb_object_create(const struct yb_object_options *options,
                                           struct yb_tier **tier_out,
                                           char why_out[YB_OBJECT_WHY_BYTES]);

struct yb_object_stats yb_object_stats(const struct yb_tier *tier);

#endif /* YB_TIER_OBJECT_OBJECT_H */
