/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_device.h -- the memory of a device behind an engine that is measured.
 *
 * Nobody but the driver touches it: patterns are stamped and checked in host memory, and copied.
 *
 * Threads   One. A process that has used a driver must not fork.
 */
#ifndef YB_CLI_BENCH_DEVICE_H
#define YB_CLI_BENCH_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

struct yb_bench_device;

/* Whether there is a device; asked by a child process. `why_out` gets what was found, or why not.
 */
bool yb_bench_device_found(char *why_out, uint32_t why_bytes);

/* Allocate memory of the first device. Returns false, having said why on stderr. */
bool yb_bench_device_open(uint64_t length, struct yb_bench_device **device_out);
/* Free it and set *device to NULL; NULL is fine. */
void yb_bench_device_close(struct yb_bench_device **device);

uint8_t *yb_bench_device_base(const struct yb_bench_device *device);

/* Copy [offset, offset + length) from or to host memory, and wait. Returns false, having said why.
 */
bool yb_bench_device_copy(struct yb_bench_device *device, uint64_t offset, void *host,
                          uint64_t length, bool in);

#endif /* YB_CLI_BENCH_DEVICE_H */
