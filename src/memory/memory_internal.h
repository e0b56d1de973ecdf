/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_internal.h -- what a kind of device memory must provide.
 *
 * Each kind is one file in device/ and one row in memory_type.c. The row of host
 * memory is empty: it needs no driver, and memory_type.c serves it.
 *
 * Completion  After OK from start, next_done returns the copy exactly once, later.
 *             next_done does not wait; it starts over at every call with budget.
 * Threads     A lane (a queue's part of one driver) belongs to the queue's worker; all
 *             that takes a driver is for any thread and leaves that thread's context.
 * Memory      A driver is owned by the record of the process (process.h), a lane by its queue.
 */
#ifndef YB_MEMORY_MEMORY_INTERNAL_H
#define YB_MEMORY_MEMORY_INTERNAL_H

#include "memory/memory_type.h"

struct yb_memory_driver; /* Each kind defines its own. */
struct yb_memory_lane;

/* At most that many devices of one kind are used. */
#define YB_MEMORY_DEVICES_MAX 64u

struct yb_memory_ops {
    const char *name;

    /* Find and start the driver. UNSUPPORTED: it is not here, too old, or did not start; `why_out`
     * has the sentence in any case. NULL: the kind needs no driver. */
    enum yb_status (*find)(struct yb_memory_driver **driver_out, char *why_out, uint32_t why_bytes);
    void (*lose)(struct yb_memory_driver **driver);
    uint32_t (*devices)(const struct yb_memory_driver *driver);

    /* Say whether the address is device memory, and which device's. */
    bool (*probe)(struct yb_memory_driver *driver, const void *address, uint32_t *device_out);

    /* Make a device ready; the second time costs nothing. */
    enum yb_status (*open)(struct yb_memory_driver *driver, uint32_t device);
    /* Say whether the driver copies between two devices without going through the host. */
    bool (*peers)(struct yb_memory_driver *driver, uint32_t a, uint32_t b);
    enum yb_status (*alloc)(struct yb_memory_driver *driver, uint32_t device, uint64_t length,
                            void **base_out);
    void (*free)(struct yb_memory_driver *driver, uint32_t device, void *base);

    /* Page-lock host memory for all devices; `device` is open. */
    enum yb_status (*page_lock)(struct yb_memory_driver *driver, uint32_t device, void *base,
                                uint64_t bytes);
    void (*page_unlock)(struct yb_memory_driver *driver, uint32_t device, void *base);

    enum yb_status (*lane_create)(struct yb_memory_driver *driver,
                                  struct yb_memory_lane **lane_out);
    /* Nothing is in flight any more. */
    void (*lane_destroy)(struct yb_memory_lane **lane);

    /* The devices of the copy's places were checked, and opened. */
    enum yb_status (*start)(struct yb_memory_lane *lane, struct yb_memory_copy *copy);
    /* Return a copy that ended, or NULL. */
    struct yb_memory_copy *(*next_done)(struct yb_memory_lane *lane, enum yb_status *status_out);
    /* Wait until all that was started has ended. */
    void (*wait)(struct yb_memory_lane *lane);
};

extern const struct yb_memory_ops yb_memory_cuda;

/* One row per kind of memory, in the order of enum yb_memory_kind. */
extern const struct yb_memory_ops *const yb_memory_kinds[YB_MEMORY_KINDS];

#endif /* YB_MEMORY_MEMORY_INTERNAL_H */
