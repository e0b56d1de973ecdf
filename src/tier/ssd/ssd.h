/* SPDX-License-Identifier: Apache-2.0
 *
 * ssd.h -- the tier on a local disk: a log of large segments (tier.h, DESIGN 4, RULES A14).
 *
 *     superblock (twice) | segment 0 | segment 1 | ...
 *     a segment:  header | kill map | records ... | footer | trailer
 *
 * Blocks are gathered in staging memory and written in batches, one after the other, into the open
 * segment. A block is RESIDENT when a sync that began after its bytes were written is done; syncs
 * are grouped. A full segment gets a footer, the heads of its records, after the sync of its data.
 *
 *              header with a new life, synced          full, data and then footer synced
 *     FREE --------------------------------> OPEN -----------------------------------> SEALED
 *       ^                                                                                |
 *       |   header says FREE, synced; what was not moved is lost                         |
 *       +-------------------------------------- RECLAIMED <------------------------------+
 *                                   hot and pinned blocks appended anew, synced
 *
 * Invariants
 *   S1  Every record on the medium that a restart would find has an entry in the index, or is
 *       older than its tenant's flush epoch. So a kill of what has no entry has nothing to do.
 *   S2  A kill sets the bit of every copy and is done after the sync of the bits. Bits are only
 *       ever set; a sector of the map that names another life than the segment's counts as empty.
 *   S3  The header with a life is durable before the first byte of that life is written, so bytes
 *       of an earlier life are told apart from bytes of this one, whatever the tear.
 *   S4  Of several records of one hash the highest grant counts, wherever they lie.
 *   S5  The last free segment is reclaim's: stores wait rather than take it, so that blocks that
 *       must move always have where to go. Nothing here waits for memory of another tier.
 *
 * Failure   What cannot be opened (locked, read-only, another node's, another version's, not a log)
 *           and what fails to write or sync makes the tier step aside, with a sentence. Nothing is
 *           ever reformatted but a file that is empty. A directory that cannot be opened is tried
 *           again, after a second, two, and up to a minute; then the tier is back. After a write or
 *           sync that failed nobody knows what is on the medium: what was under way is IN_DOUBT,
 *           and what was RESIDENT is still read. As often a block is written back to the superblock
 *           as it is; once that is synced, all is read anew: the owner is told of what is `found`
 *           as after a start, and has lost what is not.
 * Threads   The loop's thread. The device may have threads of its own.
 * Memory    All of it is taken in create and at the beginning of the recovery. The index takes at
 *           most 40 bytes a record of `records_max`.
 */
#ifndef YB_TIER_SSD_SSD_H
#define YB_TIER_SSD_SSD_H

#include "base/log.h"
#include "net/loop.h"
#include "tier/ssd/device.h"
#include "tier/tier.h"

#define YB_SSD_VALUE_BYTES_MAX   (64ull << 20) /* Larger values lie in parts (DESIGN 3). */
#define YB_SSD_CAPACITY_MAX      (4ull << 40)
#define YB_SSD_SEGMENT_BYTES_MAX (1ull << 30)
#define YB_SSD_SEGMENT_BYTES_MIN (256ull << 10)
#define YB_SSD_SEGMENTS_MIN      5u
/* Of the reading, in 1/1000, when more preferred classes would take all of it. */
#define YB_SSD_SHARE_THROUGHPUT 100u
#define YB_SSD_SHARE_BACKGROUND 50u

/* A field that is 0 takes the value in parentheses. */
struct yb_ssd_options {
    struct yb_loop *loop;         /* Borrowed for the tier's life. */
    struct yb_log *log;           /* Borrowed; NULL: no lines. */
    struct yb_ssd_device *device; /* Consumed by create, in every case; NULL: one is opened ... */
    const char *directory;        /* ... in this directory (copied) ... */
    const char *io;               /* ... "io_uring", "threads" or "auto" ("auto"; copied). */
    struct yb_id node;            /* The log is bound to it. */
    uint64_t capacity;            /* Bytes of the medium (256 segments). */
    uint64_t segment_bytes;       /* (256 MiB) A log that exists keeps its own. */
    uint64_t records_max;         /* (capacity / 16 KiB, at least 65536) */
    uint64_t footer_bytes;        /* Heads of one segment (segment_bytes / 16). */
    uint64_t batch_bytes;         /* (1 MiB) */
    uint32_t write_buffers;       /* Batches that are gathered or written at a time (16). */
    uint32_t read_buffers;        /* Loads that read at a time, a batch each (32). */
    uint32_t operations_max;      /* Stores, and loads, that may be under way (4096). */
    uint64_t sync_bytes;          /* Written at most without a sync (64 MiB). */
    uint64_t sync_ns;             /* How long a block waits for one at most (50 ms). */
    uint64_t write_budget;        /* Bytes a day; 0: no bound. Beyond it stores end QUOTA. */
    uint32_t
        reinsert_permille; /* Of a segment, that reclaim may write anew for hot blocks (150). */
    const struct yb_tier_events *events; /* Borrowed. */
    void *owner;                         /* Passed to them. */
};

/* Create the tier; recovery goes on in the background, and `recovered` tells of its end. Trouble
 * with the medium is told by `aside`, too: an engine with a broken disk has a tier that refuses.
 *
 * Fails with INVALID (outside the limits above) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_ssd_create(const struct yb_ssd_options *options,
                                        struct yb_tier **tier_out);

/* Return what drives the medium: "io_uring", "threads", "memory", or "none". */
const char *yb_ssd_device_name(const struct yb_tier *tier);

#endif /* YB_TIER_SSD_SSD_H */
