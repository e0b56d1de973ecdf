/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_device.h -- KV in the memory of a device, which no CPU may touch.
 *
 * A real engine's kernels write it and read it. Here a thread stands for them: it makes the bytes
 * of a part in page-locked memory of the host and copies them to the device, or copies them back
 * and compares them. Whatever else reaches the memory is the transfer engine's and the client's.
 *
 *     fill   kv_fill --> host --copy--> device
 *     check  device --copy--> host --> kv_check
 *
 * Threads   Any may fill and check: each waits until the device's own thread has done it.
 * Memory    Of the device: from create to destroy. One part's worth of the host's beside it.
 * Failure   A copy that the driver does not carry out is a status: what was to be written may be
 *           anything, and what was to be compared is not known.
 */
#ifndef YB_ENGINE_KV_DEVICE_H
#define YB_ENGINE_KV_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/kv.h"
#include "yuebing/status.h"

#define YB_KV_DEVICE_WHY_BYTES  160u
#define YB_KV_DEVICE_PART_BYTES (1u << 30) /* At most. */

struct yb_kv_device;

struct yb_kv_device_options {
    uint32_t index;      /* Which device. */
    uint64_t bytes;      /* Of its memory: above 0. */
    uint64_t part_bytes; /* 1 .. YB_KV_DEVICE_PART_BYTES */
};

/* Allocate memory of a device. On OK the caller owns *device_out; otherwise why_out says what to
 * do. Fails with UNSUPPORTED (there is no such device), NO_MEMORY (its, or the host's) or IO. */
YB_CHECKED enum yb_status yb_kv_device_create(const struct yb_kv_device_options *options,
                                              struct yb_kv_device **device_out,
                                              char why_out[YB_KV_DEVICE_WHY_BYTES]);

/* Consume it and set *device to NULL. `keeps`: its memory stays allocated until the process ends,
 * as somebody may still reach it. */
void yb_kv_device_destroy(struct yb_kv_device **device, bool keeps);

/* Where the memory is. Borrowed until destroy. */
void *yb_kv_device_memory(const struct yb_kv_device *device);

/* Write a part of the block that `key` names at `to`, as yb_kv_fill() does. Fails with IO or
 * another status of yb_memory_copy_start(). */
YB_CHECKED enum yb_status yb_kv_device_fill(struct yb_kv_device *device,
                                            const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                                            void *to);

/* Compare the one at `from`. Fails with CORRUPT (*wrong_out bytes are others; else it is 0), or as
 * yb_kv_device_fill(). */
YB_CHECKED enum yb_status yb_kv_device_check(struct yb_kv_device *device,
                                             const uint8_t key[YB_KV_KEY_BYTES], uint32_t part,
                                             const void *from, size_t *wrong_out);

#endif /* YB_ENGINE_KV_DEVICE_H */
