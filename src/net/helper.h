/* SPDX-License-Identifier: Apache-2.0
 *
 * helper.h -- threads for calls that block: name resolution, files, drivers.
 *
 * A worker hands a job to the pool and goes on; when a helper has done the
 * work, the job comes back through the worker's own mailbox and `done` runs
 * there. The job's memory is the reply's room (RULES C1), so a helper never
 * waits for a worker and a worker never waits for a helper.
 *
 * Completion  If submit returns OK, `work` runs once on a helper's thread and
 *             then `done` runs once on the loop that submitted. Otherwise
 *             neither ever runs.
 * Threads     submit: any thread that owns the loop it names. create and
 *             destroy: one thread.
 * Memory      The job is the caller's, borrowed until `done`.
 * Limits      `queue_max` jobs wait; beyond that submit says AGAIN.
 */
#ifndef YB_NET_HELPER_H
#define YB_NET_HELPER_H

#include <stdint.h>

#include "net/loop.h"
#include "net/mailbox.h"
#include "yuebing/status.h"

struct yb_helper_pool;

struct yb_helper_job {
    void (*work)(struct yb_helper_job *job); /* On a helper's thread; may block. */
    void (*done)(struct yb_helper_job *job); /* On the submitting loop's thread. */

    /* ---- the pool's ---- */
    struct yb_mail mail;
    struct yb_loop *loop;
    struct yb_helper_job *next;
};

/* Start `thread_count` helpers (1 .. 64). With 0 helpers `work` runs inside submit: what the
 * simulation uses, where nothing blocks and every step must be in order.
 * Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_helper_pool_create(uint32_t thread_count, uint32_t queue_max,
                                                struct yb_helper_pool **pool_out);

/* Consume the pool and set it to NULL. Waits for the work in progress; every `done` must have
 * run, so stop submitting and turn the loops first. */
void yb_helper_pool_destroy(struct yb_helper_pool **pool);

/* Hand `job` over. Fails with AGAIN (the queue is full: retry from a later turn). */
YB_CHECKED enum yb_status yb_helper_submit(struct yb_helper_pool *pool, struct yb_loop *loop,
                                           struct yb_helper_job *job);

#endif /* YB_NET_HELPER_H */
