/* SPDX-License-Identifier: Apache-2.0 */
#include "base/check.h"
#include "base/cpus.h"
#include "engine/engine_internal.h"

#define LOOK_NS (100 * YB_NS_PER_MS)

static void *
run_jobs(void *context)
{
    struct yb_engine_jobs *jobs = context;
    struct yb_engine *engine = jobs->engine;

    yb_cpus_as_process();
    yb_lock_acquire(&engine->lock);
    for (;;) {
        struct yb_engine_job *job = jobs->first;

        if (job == NULL && jobs->over) {
            break;
        }
        if (job == NULL) {
            (void)yb_lock_wait(&engine->lock, &jobs->more, LOOK_NS);
            continue;
        }
        jobs->first = job->next;
        if (jobs->first == NULL) {
            jobs->last = &jobs->first;
        }
        yb_lock_release(&engine->lock);
        job->run(job);
        yb_lock_acquire(&engine->lock);
    }
    yb_lock_release(&engine->lock);
    return NULL;
}

enum yb_status
yb_engine_jobs_start(struct yb_engine_jobs *jobs, struct yb_engine *engine, uint32_t threads)
{
    jobs->engine = engine;
    jobs->last = &jobs->first;
    yb_lock_cond_init(&jobs->more);
    while (jobs->thread_count < threads) {
        if (pthread_create(&jobs->threads[jobs->thread_count], NULL, run_jobs, jobs) != 0) {
            return YB_NO_MEMORY;
        }
        jobs->thread_count++;
    }
    return YB_OK;
}

void
yb_engine_jobs_stop(struct yb_engine_jobs *jobs)
{
    if (jobs->engine == NULL) {
        return;
    }
    yb_lock_acquire(&jobs->engine->lock);
    jobs->over = true;
    (void)pthread_cond_broadcast(&jobs->more);
    yb_lock_release(&jobs->engine->lock);
    for (uint32_t i = 0; i < jobs->thread_count; i++) {
        YB_ASSERT(pthread_join(jobs->threads[i], NULL) == 0);
    }
    (void)pthread_cond_destroy(&jobs->more);
    jobs->thread_count = 0;
    jobs->engine = NULL;
}

void
yb_engine_jobs_add_locked(struct yb_engine_jobs *jobs, struct yb_engine_job *job)
{
    yb_lock_assert_held(&jobs->engine->lock);
    job->next = NULL;
    *jobs->last = job;
    jobs->last = &job->next;
    (void)pthread_cond_signal(&jobs->more);
}
