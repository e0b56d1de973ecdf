/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h -- what a process has once, however many engines are in it: the drivers,
 * and page-locked memory.
 *
 * Page-locking is dear, and a device's context is the process's, not an engine's. So
 * all struct yb_memory of a process share one record, which is counted: the first
 * makes it, the last takes it away. Staging memory is cut from blocks:
 *
 *     block   one mapping, page-locked by one call when a device is first opened by
 *             somebody who has a range of it
 *     range   what one struct yb_memory has of a block
 *
 * The first block is large enough for the engines of an ordinary process; who does not
 * fit gets another one, which is another call, and counted. A range that is given back
 * is used again; blocks stay until the record goes.
 *
 * Invariants
 *   O1  At most one record is to be found at any time. A child after fork(), which has
 *       neither the parent's drivers nor its page-locked memory, begins with a new one.
 *   O2  A block is page-locked at most once, and while it is, the drivers that did it
 *       keep the context in which they did: they are the record's, not an engine's.
 *   O3  Ranges that are taken do not overlap.
 *
 * Threads   Any. One lock, rank MEMORY, over the count and the lists; no driver is called
 *           under it.
 */
#ifndef YB_MEMORY_PROCESS_H
#define YB_MEMORY_PROCESS_H

#include <stdatomic.h>
#include <sys/types.h>

#include "memory/memory_internal.h"

/* Bytes of a block, if nobody asks for more at once: four workers of an engine. */
#define YB_MEMORY_BLOCK_BYTES (32u << 20)

#define YB_MEMORY_WHY_BYTES 256

/* How the one call that page-locks a block stands. */
enum yb_memory_lock_state {
    YB_MEMORY_LOCK_NOT_YET,
    YB_MEMORY_LOCK_BEGUN,
    YB_MEMORY_LOCK_DONE,
    YB_MEMORY_LOCK_FAILED,
};

struct yb_memory_block {
    struct yb_memory_block *next;
    uint8_t *bytes;                 /* Immutable, like the next one. */
    uint64_t length;                /* Its pages are there when they are used. */
    struct yb_memory_range *ranges; /* That are taken, by address. */

    /* Set from NOT_YET to BEGUN by who makes the call, and by it to how that ended. Others go on
     * meanwhile: staging memory works without, too. */
    _Atomic uint32_t lock_state;
    struct yb_memory_place lock_place; /* Written before DONE, read after it. */
};

/* Its owner's; the list's while it is taken. */
struct yb_memory_range {
    struct yb_memory_range *next;
    struct yb_memory_block *block;
    uint8_t *bytes; /* NULL: none. */
    uint64_t length;
};

struct yb_memory_process {
    uint32_t magic;
    uint32_t references;                               /* Under the lock. */
    pid_t pid;                                         /* Immutable. */
    struct yb_memory_driver *drivers[YB_MEMORY_KINDS]; /* Immutable; NULL: the kind is not here. */
    char why[YB_MEMORY_WHY_BYTES];                     /* Immutable: what was (not) found. */
    struct yb_memory_block *blocks;                    /* Under the lock. */
    struct yb_memory_neighbour *neighbours;            /* Under the lock. */

    /* Counters: relaxed, nothing is ordered by them. */
    _Atomic uint64_t page_locks;
    _Atomic uint64_t page_locks_failed;
};

/* Find the record of this process, or make it and look for drivers; counted. NO_MEMORY only. */
YB_CHECKED enum yb_status yb_memory_process_ref(struct yb_memory_process **process_out);
/* Give it back and set *process to NULL. The last one ends page-locks and drivers; all ranges were
 * given back. */
void yb_memory_process_unref(struct yb_memory_process **process);

void yb_memory_process_publish(struct yb_memory_process *process,
                               struct yb_memory_neighbour *neighbour);
/* Harmless for one that was not published. */
void yb_memory_process_withdraw(struct yb_memory_process *process,
                                struct yb_memory_neighbour *neighbour);
/* Find one and hold it; NULL: there is none. */
struct yb_memory_neighbour *yb_memory_process_find(struct yb_memory_process *process,
                                                   struct yb_id identity);

/* Take a range of whole pages, and give it back. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_memory_range_take(struct yb_memory_process *process, uint64_t length,
                                               struct yb_memory_range *range);
void yb_memory_range_give(struct yb_memory_range *range);

/* Page-lock the block of a range, unless that was tried; the device of `place` is open. */
void yb_memory_range_lock(struct yb_memory_process *process, const struct yb_memory_range *range,
                          struct yb_memory_place place);

#endif /* YB_MEMORY_PROCESS_H */
