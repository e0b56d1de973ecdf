/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h -- what a subcommand measures of itself, and of the processes it has started.
 *
 * Threads   Any.
 * Memory    None is kept.
 * Time      The machine's own clock: a subcommand is where time is read, not where it is passed in.
 */
#ifndef YB_CLI_MEASURE_H
#define YB_CLI_MEASURE_H

#include <stdint.h>
#include <sys/types.h>

/* What yb_clock_system() says. */
uint64_t yb_measure_now_ns(void);

/* Of process `pid`; 0: it is gone, or the kernel does not say. */
uint64_t yb_measure_resident_bytes(pid_t pid);
/* The most of that since it began, or since clear_refs was told to begin anew. */
uint64_t yb_measure_peak_bytes(pid_t pid);
uint32_t yb_measure_threads(pid_t pid);
/* Processor time of all its threads, in user space and in the kernel. */
uint64_t yb_measure_cpu_ns(pid_t pid);

#endif /* YB_CLI_MEASURE_H */
