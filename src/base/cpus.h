/* SPDX-License-Identifier: Apache-2.0
 *
 * cpus.h -- where a thread of ours may run.
 *
 * A library's threads inherit the affinity of the thread that makes them. Engines pin that one to
 * a core of its own and keep it busy there (OpenMP binds the main thread): ours would share that
 * one core, and heartbeats and data would wait for the computing.
 *
 * Threads   Each call concerns the calling thread.
 */
#ifndef YB_BASE_CPUS_H
#define YB_BASE_CPUS_H

/* Let the calling thread run wherever some thread of this process may: what taskset or a cpuset
 * forbade to all stays forbidden. Without /proc nothing changes. To be called where a thread
 * begins. */
void yb_cpus_as_process(void);

#endif /* YB_BASE_CPUS_H */
