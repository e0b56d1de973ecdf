/* SPDX-License-Identifier: Apache-2.0
 *
 * path.h -- what a way between two memories must provide.
 *
 * Each path has its own folder, fills in one struct yb_path_ops and has one row in
 * path_table.c. Above this header nobody names a path; below it nobody knows what
 * a batch is. A path belongs to one peer and one worker.
 *
 *     open --> OPENING --> UP <--> DOWN --close--> gone (closed)
 *
 * Completion  If submit returns OK, yb_slice_done() is called exactly once, later, from
 *             the loop. If it returns anything else nothing was started: AGAIN (no room:
 *             yb_remote_room() is called when there is), UNSUPPORTED (not this slice).
 * Doubt       A write that ends without an answer is in doubt. quiesce() then brings
 *             the target to close whatever could still carry it; after its callback with OK
 *             nothing that was submitted before can land any more (RULES A2). Only then may
 *             the slice go another way.
 * Credit      A path limits what is in flight to about what keeps it busy, so that a
 *             slice of a higher class never waits behind more than that (RULES E5).
 * Room for    One-sided RDMA on several rails: completions in any order, region keys
 *             (the path may fetch and keep what it needs to know of the peer's regions),
 *             credits per queue pair, flush counters before the answer (RULES A13).
 * Memory      Local memory of a slice is in host memory: `iov` is filled in, from the
 *             caller's memory or from staging; remote memory is the target's business.
 * Threads     Everything on the worker of its peer.
 */
#ifndef YB_TRANSFER_PATH_H
#define YB_TRANSFER_PATH_H

#include "transfer/slice.h"
#include "yuebing/status.h"

enum yb_path_state { YB_PATH_OPENING, YB_PATH_UP, YB_PATH_DOWN };

struct yb_path_counts {
    uint64_t slices;
    uint64_t bytes_read;
    uint64_t bytes_written;
    uint64_t failures;
    uint64_t switches_away; /* Slices that went another way. */
};

struct yb_path_ops {
    const char *name; /* "tcp", "shm": the word in statistics and logs. */
    uint32_t bit;     /* YB_TRANSFER_PATH_... */
    uint32_t rank;    /* Lower is tried first. */

    enum yb_status (*open)(struct yb_remote *remote, struct yb_path **path_out);
    /* Consume the path. Slices in flight end first; yb_remote_path_closed() is called last. */
    void (*close)(struct yb_path *path);
    bool (*serves)(const struct yb_path *path, const struct yb_slice *slice);
    enum yb_status (*submit)(struct yb_path *path, struct yb_slice *slice);
    /* End a slice soon: CANCELLED, or in doubt. */
    void (*cancel)(struct yb_path *path, struct yb_slice *slice);
    void (*quiesce)(struct yb_path *path, uint64_t deadline_ns,
                    void (*done)(void *owner, enum yb_status status), void *owner);
};

/* The head of every path. */
struct yb_path {
    const struct yb_path_ops *ops;
    struct yb_remote *remote;
    enum yb_path_state state;
    uint32_t flying;
    struct yb_path_counts counts;
    char why[128]; /* Why it is DOWN; while it is UP, what it cannot carry and why. */
};

extern const struct yb_path_ops yb_path_tcp;
extern const struct yb_path_ops yb_path_shm;

/* All paths, in order of rank; ends with NULL. */
extern const struct yb_path_ops *const yb_path_table[];

/* ---- what a path calls (remote.c) -------------------------------------------------------- */

void yb_slice_done(struct yb_slice *slice, struct yb_slice_end end);
/* There is room again, or the path came up or went down. */
void yb_remote_room(struct yb_path *path);
void yb_remote_path_closed(struct yb_path *path);

#endif /* YB_TRANSFER_PATH_H */
