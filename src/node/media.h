/* SPDX-License-Identifier: Apache-2.0
 *
 * media.h -- the media of a node's tiers, as options name them: a folder on a disk, an object
 * store.
 *
 *     <data folder>/node.json    who the node is: its id, and the name under which it is known
 *     <data folder>/lock         held while a process has it
 *     <data folder>/ssd/         the log (tier/ssd/ssd.h)
 *
 * A node that comes back with its folder comes back under its name: so the directory knows what it
 * may still have, and what it owes (RULES A5, B3).
 *
 * Invariants
 *   M1  One process has a folder at a time.
 *   M2  What cannot be read is never written over.
 *
 * Threads   open and close by one thread; the tiers open on their node's loop.
 * Memory    The media are the caller's, and outlive the node.
 */
#ifndef YB_NODE_MEDIA_H
#define YB_NODE_MEDIA_H

#include "base/log.h"
#include "node/node.h"
#include "yuebing/status.h"

struct yb_media;

struct yb_media_options {
    const char *data_dir;      /* "": no disk. Made if it is missing; the folder it is in is not. */
    const char *object_store;  /* "": none. As tier/object/object.h has it. */
    const char *name;          /* What the node is to be called, if its folder knows none. */
    bool named;                /* Its folder's name does not count. */
    uint64_t ssd_bytes;        /* Of the log; 0: 64 GiB. */
    uint64_t ssd_write_budget; /* Bytes a day; 0: no bound. */
    const char *ssd_io;        /* "auto", "io_uring" or "threads". */
    bool packed;               /* Small blocks share objects. */
    yb_span_random_fn *random;
    void *random_context;
    struct yb_log *log;
    struct yb_stats *stats; /* NULL: no metrics of the media's own. */
};

/* Lock the folder and learn who the node is. Fails with BUSY (another process has it), INVALID (its
 * node.json is none), VERSION (of a newer version), IO or NO_MEMORY; `why_out` is a sentence with
 * the remedy. */
YB_CHECKED enum yb_status yb_media_open(const struct yb_media_options *options,
                                        struct yb_media **media_out, char *why_out,
                                        size_t why_bytes);

/* Consume it; no tier of it is open any more. */
void yb_media_close(struct yb_media **media);

/* The node's name: as its folder has it, or as the options say. Borrowed. */
const char *yb_media_name(const struct yb_media *media);

/* By which memory of this node is found after its end, for the node's options; NULL: it has no
 * folder, and is another one whenever it starts. Borrowed. */
const char *yb_media_label(const struct yb_media *media);

/* The tiers, for the node's options. Borrowed. */
const struct yb_node_tier *yb_media_tiers(const struct yb_media *media, uint32_t *count_out);

#endif /* YB_NODE_MEDIA_H */
