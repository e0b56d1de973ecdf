/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_type.h -- kinds of memory, behind one table.
 *
 * Host memory is touched by the CPU and by sockets. Device memory is touched by
 * its driver only: its bytes are copied to and from page-locked host memory by
 * asynchronous copies, or from device to device. A kind of memory is one row of
 * ops; nothing above this header names a driver.
 *
 *     yb_memory_create       finds the drivers; opens no device
 *     yb_memory_probe        whose memory is this address?
 *     yb_memory_open         make a device ready: may take a second, the first time
 *     yb_memory_queue_create one per worker; its copies, and its staging slices
 *
 * Completion  As in io.h of net: OK means `done` runs exactly once, later, from
 *             yb_memory_poll() on the thread that started the copy; otherwise never.
 *             `done` never runs inside start. Copies may complete in any order. A copy
 *             that ended, well or not, touches neither side any more.
 * Order       A copy waits for no work of the caller on the device: what it reads must
 *             be there when it is started.
 * Threads     A struct yb_memory_queue belongs to one worker, which finds the device's
 *             context current on its thread afterwards. Everything that takes a struct
 *             yb_memory is for any thread, and leaves its context as it was.
 * Memory      Drivers and staging memory are the process's, shared and counted (process.h):
 *             however many engines are in it, they are found once, and all staging slices
 *             lie in one block, page-locked by one call when the first device is opened;
 *             only who does not fit into that gets another. Copies are the caller's,
 *             borrowed until `done`.
 * Failure     A driver that is missing, too old (a symbol is missing) or fails to start
 *             is a sentence for `doctor`, and the kind is then simply not there. Staging
 *             memory that cannot be page-locked is used as it is: slower, counted, and
 *             said by yb_memory_describe().
 */
#ifndef YB_MEMORY_MEMORY_TYPE_H
#define YB_MEMORY_MEMORY_TYPE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

enum yb_memory_kind {
    YB_MEMORY_HOST = 0,
    YB_MEMORY_CUDA = 1,
};
#define YB_MEMORY_KINDS 2u

/* Where memory is: kind, and which device, or NUMA node of host memory (0 if unknown). */
struct yb_memory_place {
    uint32_t kind; /* enum yb_memory_kind */
    uint32_t index;
};

struct yb_memory; /* An engine's share of the drivers and of the staging memory of its process. */
struct yb_memory_queue;

/* Fill in what stands above the line, zero the rest. */
struct yb_memory_copy {
    void *to;
    const void *from;
    uint64_t length;
    struct yb_memory_place to_place;
    struct yb_memory_place from_place;
    void (*done)(struct yb_memory_copy *copy, enum yb_status status);
    void *owner;
    /* ---- the queue's until done ---- */
    struct yb_memory_copy *next;
    void *event;
};

struct yb_memory_counts {
    /* Calls that page-locked memory: of the process, so that all engines in it show the same. */
    uint64_t page_locks;
    uint64_t page_locks_failed;
    uint64_t copies; /* That were started. */
    uint64_t copied_bytes;
    uint64_t failures; /* Copies that could not be started by the driver, or ended badly. */
};

/* How much page-locked memory is wanted for copies through the host. */
struct yb_memory_staging {
    uint32_t queues;      /* That may exist at once: one per worker. 1 .. 1024 */
    uint32_t slices;      /* Of each queue. 0: none. At most 4096. */
    uint32_t slice_bytes; /* A multiple of 4096, at most 1 GiB. */
};

/* Find drivers with the run-time loader; never fails for want of one. `why_out` (may be NULL) gets
 * a sentence about what was (not) found. Fails with INVALID (staging) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_memory_create(const struct yb_memory_staging *staging,
                                           struct yb_memory **memory_out, char *why_out,
                                           uint32_t why_bytes);

/* Consume it and set *memory to NULL; no queue may exist. */
void yb_memory_destroy(struct yb_memory **memory);

/* Say whose memory an address is. Host memory costs no driver call when no driver is there.
 * Memory that both may touch (managed by the driver) counts as the device's. */
struct yb_memory_place yb_memory_probe(struct yb_memory *memory, const void *address);

/* Check that [address, address + length) of host memory is mapped, and readable at its first and
 * last byte. Fails with FAULT, or NO_MEMORY (descriptors to check with). That all between is
 * readable is found out by the transfer. */
YB_CHECKED enum yb_status yb_memory_check(const void *address, uint64_t length);

bool yb_memory_has(const struct yb_memory *memory, enum yb_memory_kind kind);
uint32_t yb_memory_device_count(const struct yb_memory *memory);
const char *yb_memory_kind_name(uint32_t kind); /* "?" for a number that is none. */
struct yb_memory_counts yb_memory_counts(const struct yb_memory *memory);

/* Write a sentence about the drivers and the staging memory, cut to fit. */
void yb_memory_describe(struct yb_memory *memory, char *text_out, uint32_t text_bytes);

/* Make the device of `place` ready for copies, and page-lock the staging memory if that was not
 * done yet. Host memory is always ready. The first call for a device may take a second: make it
 * where waiting is allowed, before workers copy; a copy would make it otherwise. Fails with
 * UNSUPPORTED (no such kind or device here), NO_MEMORY or IO (the driver's). */
YB_CHECKED enum yb_status yb_memory_open(struct yb_memory *memory, struct yb_memory_place place);

/* Whether a copy between the memory of two places is the driver's alone: both are devices, the same
 * one or two that reach each other. The first question about a pair makes both ready. */
bool yb_memory_peers(struct yb_memory *memory, struct yb_memory_place a, struct yb_memory_place b);

/* ---- who else is in this process ---- */

/* Somebody whose device memory others of the process may reach without a network. */
struct yb_memory_neighbour {
    struct yb_memory_neighbour *next; /* The list's, while it is published. */
    struct yb_id identity;
    void *owner;
    _Atomic uint32_t holds; /* Of those who found it and have not let go yet. */
};

/* Let others find it, by its identity; and not any more: who holds it goes on. */
void yb_memory_publish(struct yb_memory *memory, struct yb_memory_neighbour *neighbour);
void yb_memory_withdraw(struct yb_memory *memory, struct yb_memory_neighbour *neighbour);
/* Find and hold; NULL: nobody of this process is called so. */
struct yb_memory_neighbour *yb_memory_find_neighbour(struct yb_memory *memory,
                                                     struct yb_id identity);
void yb_memory_let_go(struct yb_memory_neighbour *neighbour);

/* Allocate memory at `place`; the caller gives it back with yb_memory_free. Host memory is zeroed
 * and page-aligned, and what a device gives holds anything. Fails as yb_memory_open, and with
 * INVALID (length 0). */
YB_CHECKED enum yb_status yb_memory_alloc(struct yb_memory *memory, struct yb_memory_place place,
                                          uint64_t length, void **base_out);
void yb_memory_free(struct yb_memory *memory, struct yb_memory_place place, void **base,
                    uint64_t length);

/* A worker's queue of copies, with its share of the staging slices (none where no device is).
 * Fails with AGAIN (`queues` exist already) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_memory_queue_create(struct yb_memory *memory,
                                                 struct yb_memory_queue **queue_out);

/* Wait until the devices have ended the copies of the queue, run their `done`, consume the queue
 * and set *queue to NULL. All slices were given back. On the queue's worker. */
void yb_memory_queue_destroy(struct yb_memory_queue **queue);

/* Take and give a staging slice; NULL: all are in use, try when one is given back. */
void *yb_memory_staging_take(struct yb_memory_queue *queue);
void yb_memory_staging_give(struct yb_memory_queue *queue, void *slice);
uint32_t yb_memory_staging_bytes(const struct yb_memory_queue *queue); /* Of a slice; 0: none. */

/* Start a copy of which at least one side is device memory.
 *
 * Fails with AGAIN (YB_MEMORY_COPIES_MAX are in flight: poll), INVALID (no byte, or both sides
 * host memory), UNSUPPORTED (no such kind or device here), FAULT (the driver does not know the
 * device memory), NO_MEMORY, IO (the driver's) or CLOSED (from a `done` that destroy runs); then
 * neither side is touched any more. */
YB_CHECKED enum yb_status yb_memory_copy_start(struct yb_memory_queue *queue,
                                               struct yb_memory_copy *copy);
#define YB_MEMORY_COPIES_MAX 256u

/* Run `done` of what has completed; returns how many. `pending` tells whether polling is needed. */
uint32_t yb_memory_poll(struct yb_memory_queue *queue);
uint32_t yb_memory_pending(const struct yb_memory_queue *queue);

#endif /* YB_MEMORY_MEMORY_TYPE_H */
