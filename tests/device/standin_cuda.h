/* SPDX-License-Identifier: Apache-2.0
 *
 * standin_cuda.h -- a CUDA driver for machines without a device.
 *
 * It is built as libcuda.so.1 and found like the real one. Device memory is a
 * memfd mapped twice: the pointer that is handed out is a view that nobody may
 * touch, so that any load or store of the CPU, and any system call on it, fails;
 * only the copies of the stand-in use the other view. Copies are carried out
 * later, by a thread of its own; those of one stream in order, those of
 * different streams in a random order. An event is never found done by the
 * first query after its record, but where a stream was waited for meanwhile.
 *
 * Pageable host memory can be copied, as with the real driver, and is counted.
 *
 * Settings and counters are reached by name, after dlsym() of these two functions, and settings
 * also by the environment variable STANDIN_CUDA="devices=2 fail_copy=5":
 *
 *   devices=N         how many devices there are (2)
 *   seed=N            of the order between streams
 *   fail_init=ERROR   cuInit returns it, such as 100 (no device)
 *   fail_start=N      the N-th copy from now on is refused with 719
 *   fail_copy=N       the N-th copy from now on is spoilt half-way; its event says 719
 *   fail_record=N     the N-th event record from now on is refused with 719
 *   fail_page_lock=1  page-locking is refused with 2 (no memory)
 *   hang_copy=N       the N-th copy from now on, and what its stream does after it, is carried out
 *                     only after hang_copy=0; whoever waits for its stream waits as long
 *   no_peers=1        devices do not reach each other's memory, or
 *   fail_enable=1     say that they do, and then refuse
 *   hold=1            copies stay queued until hold=0, `step_oldest` or `step_newest`
 *   step_oldest=1     carry out one held copy: the head of the stream that waits longest,
 *   step_newest=1     or of the stream that was given a copy last
 *
 * Counters: page_locks, page_locked_bytes (now), copies, pageable_copies, peer_copies,
 * allocations (now), streams (now), events (now), contexts (retains now), wrong_context (calls
 * without a current context).
 */
#ifndef YB_TESTS_STANDIN_CUDA_H
#define YB_TESTS_STANDIN_CUDA_H

#include <stdint.h>

/* Returns 0, or -1 for an unknown name. */
typedef int (*standin_set_fn)(const char *name, uint64_t value);
/* Returns the counter; UINT64_MAX for an unknown name. */
typedef uint64_t (*standin_get_fn)(const char *name);

/* Look at device memory, or change it, at once: either address may be a device's. For a test's own
 * patterns; it is no copy of a stream, waits for none and is not counted. Returns 0, or -1 for a
 * range that leaves its allocation. */
typedef int (*standin_touch_fn)(void *to, const void *from, uint64_t bytes);

#define STANDIN_TOUCH "standin_cuda_touch"
#define STANDIN_SET   "standin_cuda_set"
#define STANDIN_GET   "standin_cuda_get"

#endif /* YB_TESTS_STANDIN_CUDA_H */
