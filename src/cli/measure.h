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

/* How long all processors of the machine have been busy, and how long there was; in ticks. */
struct yb_measure_machine {
    uint64_t busy;
    uint64_t all;
};
struct yb_measure_machine yb_measure_machine_now(void);

/* Return which share of the time since then they have been busy. */
double yb_measure_machine_busy(const struct yb_measure_machine *before);

#endif /* YB_CLI_MEASURE_H */
