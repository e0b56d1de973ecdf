/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h -- what the log asks of a medium, and the media that there are.
 *
 * A medium is one row of bytes that grows by RESERVE. Its operations are asynchronous; the log
 * keeps the order that it needs by waiting for their completions, so a medium may carry them out in
 * any order and at the same time.
 *
 * Invariants
 *   D1  A WRITE that is done may still be lost with the power, in pieces of 512 bytes. It cannot be
 *       any more once a SYNC is done that was submitted after that.
 *   D2  READ and WRITE lie on whole blocks of YB_SSD_BLOCK_BYTES, in memory as on the medium. They
 *       may move less than was asked for, in whole blocks; what lies beyond the end reads as less.
 *   D3  Every submitted operation is done exactly once, later, on the loop, with the bytes that
 *       were moved (0 for SYNC and RESERVE) or a negative errno.
 *
 * Threads   One owner, the loop's thread, which also runs `done`.
 * Memory    An operation and its bytes are the caller's, borrowed until `done`. Nothing is
 *           allocated for one.
 */
#ifndef YB_TIER_SSD_DEVICE_H
#define YB_TIER_SSD_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/helper.h"
#include "net/loop.h"
#include "yuebing/status.h"

#define YB_SSD_BLOCK_BYTES 4096u
#define YB_SSD_IO_MAX      512u /* Operations under way at a time. */

enum yb_ssd_io_kind {
    YB_SSD_IO_READ,
    YB_SSD_IO_WRITE,
    YB_SSD_IO_SYNC,
    YB_SSD_IO_RESERVE, /* Room for [offset, offset + length); what was there stays. */
};

struct yb_ssd_device;

struct yb_ssd_io {
    void (*done)(struct yb_ssd_io *io, int64_t result);
    void *owner;
    uint64_t offset;
    uint8_t *bytes;
    uint64_t length;
    enum yb_ssd_io_kind kind;
    /* ---- the device's ---- */
    struct yb_ssd_device *device;
    struct yb_ssd_io *next;
    struct yb_ssd_io *inner_owner; /* For a device that stands before another. */
    int64_t result;
    uint64_t due_ns;
    struct yb_helper_job job;
};

struct yb_ssd_device_ops {
    const char *name; /* "io_uring", "threads", "memory". */
    void (*submit)(struct yb_ssd_device *device, struct yb_ssd_io *io);

    /* Return how long the medium is now. */
    uint64_t (*size)(struct yb_ssd_device *device);

    /* Most transfers will use this memory: register it. NULL: no use. */
    void (*lend)(struct yb_ssd_device *device, void *memory, size_t bytes);

    /* Consume the device; nothing is under way. */
    void (*close)(struct yb_ssd_device *device);
};

struct yb_ssd_device {
    const struct yb_ssd_device_ops *ops;
};

#define YB_SSD_WHY_BYTES 512u

/* Open the log of a directory, make and lock it: `directory`/log. `io` is "io_uring", "threads" or
 * "auto", which takes the first that works.
 *
 * On OK *device_out is owned by the caller. Fails with BUSY (another process holds it), IO (it
 * cannot be opened, or written) or UNSUPPORTED (no io_uring here), with a sentence. */
YB_CHECKED enum yb_status yb_ssd_device_open(struct yb_loop *loop, const char *directory,
                                             const char *io, struct yb_ssd_device **device_out,
                                             char why[YB_SSD_WHY_BYTES]);

/* The two behind it, for a file that is open and stays the caller's on failure. */
YB_CHECKED enum yb_status yb_ssd_device_uring(struct yb_loop *loop, int fd,
                                              struct yb_ssd_device **device_out);
YB_CHECKED enum yb_status yb_ssd_device_threads(struct yb_loop *loop, int fd,
                                                struct yb_ssd_device **device_out);

/* A medium in memory, which outlives the devices that are opened on it, one at a time. */
struct yb_ssd_memory;

/* Fails with NO_MEMORY. The caller owns *memory_out. */
YB_CHECKED enum yb_status yb_ssd_memory_create(uint64_t bytes_max,
                                               struct yb_ssd_memory **memory_out);
void yb_ssd_memory_destroy(struct yb_ssd_memory **memory);

/* Its bytes and its length, for tests that look, break, or cut the power. */
uint8_t *yb_ssd_memory_bytes(struct yb_ssd_memory *memory);
uint64_t yb_ssd_memory_size(const struct yb_ssd_memory *memory);
void yb_ssd_memory_resize(struct yb_ssd_memory *memory, uint64_t size);

/* A device on it: each operation takes `latency_ns` and its bytes at `bytes_per_s` (0: no time) on
 * the loop's clock; 0 and 0: it is done in the next turn. Fails with NO_MEMORY. The medium must
 * outlive it. */
YB_CHECKED enum yb_status yb_ssd_memory_open(struct yb_ssd_memory *memory, struct yb_loop *loop,
                                             uint64_t latency_ns, uint64_t bytes_per_s,
                                             struct yb_ssd_device **device_out);

#endif /* YB_TIER_SSD_DEVICE_H */
