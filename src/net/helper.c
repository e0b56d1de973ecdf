/* SPDX-License-Identifier: Apache-2.0 */
#include "net/helper.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/cpus.h"
#include "base/lock.h"

#define POOL_MAGIC   0x68656c70u
#define THREADS_MAX  64
#define IDLE_WAIT_NS (60 * YB_NS_PER_S)

struct yb_helper_pool {
    uint32_t magic;
    uint32_t thread_count; /* Immutable after create. */
    uint32_t queue_max;    /* Immutable. */

    struct yb_lock lock; /* Protects everything below but `threads`. */
    pthread_cond_t changed;
    struct yb_helper_job *head;
    struct yb_helper_job **tail;
    uint32_t queued;
    bool stopping;
    pthread_t threads[THREADS_MAX];
};

/* The mail has come home: the job is the caller's again. */
static void
deliver(struct yb_mail *mail)
{
    struct yb_helper_job *job =
        (struct yb_helper_job *)((uint8_t *)mail - offsetof(struct yb_helper_job, mail));

    job->done(job);
}

/* Wait for a job. NULL: the pool is stopping and the queue is empty. */
static struct yb_helper_job *
next_job(struct yb_helper_pool *pool)
{
    struct yb_helper_job *job;

    yb_lock_acquire(&pool->lock);
    while (pool->head == NULL && !pool->stopping) {
        (void)yb_lock_wait(&pool->lock, &pool->changed, IDLE_WAIT_NS);
    }
    job = pool->head;
    if (job != NULL) {
        pool->head = job->next;
        if (pool->head == NULL) {
            pool->tail = &pool->head;
        }
        pool->queued--;
    }
    yb_lock_release(&pool->lock);
    return job;
}

static void *
helper_main(void *arg)
{
    struct yb_helper_pool *pool = arg;
    struct yb_helper_job *job;

    yb_cpus_as_process();
    while ((job = next_job(pool)) != NULL) {
        struct yb_loop *loop = job->loop;

        job->work(job);
        yb_mailbox_post_reply(yb_loop_mailbox(loop), &job->mail);
    }
    return NULL;
}

static void
stop_threads(struct yb_helper_pool *pool)
{
    yb_lock_acquire(&pool->lock);
    pool->stopping = true;
    YB_ASSERT(pthread_cond_broadcast(&pool->changed) == 0);
    yb_lock_release(&pool->lock);
    for (uint32_t i = 0; i < pool->thread_count; i++) {
        YB_ASSERT(pthread_join(pool->threads[i], NULL) == 0);
    }
}

static void
free_pool(struct yb_helper_pool *pool)
{
    YB_ASSERT(pool->head == NULL);
    YB_ASSERT(pthread_cond_destroy(&pool->changed) == 0);
    yb_lock_fini(&pool->lock);
    pool->magic = 0;
    free(pool);
}

enum yb_status
yb_helper_pool_create(uint32_t thread_count, uint32_t queue_max, struct yb_helper_pool **pool_out)
{
    struct yb_helper_pool *pool;

    if (thread_count > THREADS_MAX || queue_max == 0) {
        return YB_INVALID;
    }
    pool = calloc(1, sizeof(*pool));
    if (pool == NULL) {
        return YB_NO_MEMORY;
    }
    pool->magic = POOL_MAGIC;
    pool->queue_max = queue_max;
    pool->tail = &pool->head;
    yb_lock_init(&pool->lock, YB_LOCK_HELPER);
    yb_lock_cond_init(&pool->changed);
    for (uint32_t i = 0; i < thread_count; i++) {
        if (pthread_create(&pool->threads[i], NULL, helper_main, pool) != 0) {
            goto err_stop;
        }
        pool->thread_count++;
    }
    *pool_out = pool;
    return YB_OK;

err_stop:
    stop_threads(pool);
    free_pool(pool);
    return YB_NO_MEMORY;
}

void
yb_helper_pool_destroy(struct yb_helper_pool **pool_ref)
{
    struct yb_helper_pool *pool = *pool_ref;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    *pool_ref = NULL;
    stop_threads(pool);
    free_pool(pool);
}

enum yb_status
yb_helper_submit(struct yb_helper_pool *pool, struct yb_loop *loop, struct yb_helper_job *job)
{
    enum yb_status status = YB_OK;

    YB_ASSERT_OBJ(pool, POOL_MAGIC);
    YB_ASSERT(job->work != NULL && job->done != NULL);
    yb_mail_init(&job->mail, deliver);
    job->loop = loop;
    job->next = NULL;
    if (pool->thread_count == 0) {
        job->work(job);
        yb_mailbox_post_reply(yb_loop_mailbox(loop), &job->mail);
        return YB_OK;
    }
    yb_lock_acquire(&pool->lock);
    if (pool->queued == pool->queue_max) {
        status = YB_AGAIN;
    } else {
        *pool->tail = job;
        pool->tail = &job->next;
        pool->queued++;
        YB_ASSERT(pthread_cond_signal(&pool->changed) == 0);
    }
    yb_lock_release(&pool->lock);
    return status;
}
