/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: net/helper.h: work on another thread, `done` on the loop that asked, bounds, no thread
 * left. Method: jobs that wait for a gate, so that the queue is full when the test says so.
 */
#include "unit.h"

#include <pthread.h>
#include <semaphore.h>
#include <string.h>

#include "net/helper.h"

#define JOBS 64u

struct job {
    struct yb_helper_job base;
    sem_t *begun; /* Posted when the work begins; NULL: not wanted. */
    sem_t *gate;  /* NULL: do not wait. */
    pthread_t worked_on;
    pthread_t done_on;
    uint32_t worked;
    uint32_t done;
};

static void
work(struct yb_helper_job *base)
{
    struct job *job = (struct job *)base;

    if (job->begun != NULL) {
        assert_int_equal(sem_post(job->begun), 0);
    }
    if (job->gate != NULL) {
        assert_int_equal(sem_wait(job->gate), 0);
    }
    job->worked_on = pthread_self();
    job->worked++;
}

static void
done(struct yb_helper_job *base)
{
    struct job *job = (struct job *)base;

    job->done_on = pthread_self();
    job->done++;
}

static void
job_init(struct job *job, sem_t *gate)
{
    *job = (struct job){.base = {.work = work, .done = done}, .gate = gate};
}

static struct yb_loop *
loop_create(void)
{
    const struct yb_loop_options options = {.backend = "epoll", .clock = yb_clock_system()};
    struct yb_loop *loop = NULL;

    assert_int_equal(yb_loop_create(&options, &loop), YB_OK);
    return loop;
}

static struct yb_helper_pool *
pool_create(uint32_t threads, uint32_t queue_max)
{
    struct yb_helper_pool *pool = NULL;

    assert_int_equal(yb_helper_pool_create(threads, queue_max, &pool), YB_OK);
    return pool;
}

static void
test_helper__done_runs_once_on_the_loop_that_submitted(void **state)
{
    struct yb_loop *loop = loop_create();
    struct yb_helper_pool *pool = pool_create(3, JOBS);
    struct job jobs[JOBS];
    uint32_t all = 0;

    (void)state;
    for (uint32_t i = 0; i < JOBS; i++) {
        job_init(&jobs[i], NULL);
        assert_int_equal(yb_helper_submit(pool, loop, &jobs[i].base), YB_OK);
        assert_int_equal(jobs[i].done, 0);
    }
    while (all < JOBS) {
        yb_loop_turn(loop, YB_NS_PER_MS);
        all = 0;
        for (uint32_t i = 0; i < JOBS; i++) {
            all += jobs[i].done;
        }
    }
    yb_helper_pool_destroy(&pool);
    assert_null(pool);
    for (uint32_t i = 0; i < JOBS; i++) {
        assert_int_equal(jobs[i].worked, 1);
        assert_int_equal(jobs[i].done, 1);
        assert_true(pthread_equal(jobs[i].done_on, pthread_self()));
        assert_false(pthread_equal(jobs[i].worked_on, pthread_self()));
    }
    yb_loop_destroy(&loop);
}

static void
test_helper__a_full_queue_says_again_and_takes_more_once_there_is_room(void **state)
{
    struct yb_loop *loop = loop_create();
    struct yb_helper_pool *pool = pool_create(1, 2);
    struct job jobs[4];
    sem_t begun;
    sem_t gate;

    (void)state;
    assert_int_equal(sem_init(&begun, 0, 0), 0);
    assert_int_equal(sem_init(&gate, 0, 0), 0);
    for (uint32_t i = 0; i < 4; i++) {
        job_init(&jobs[i], &gate);
    }
    jobs[0].begun = &begun;
    assert_int_equal(yb_helper_submit(pool, loop, &jobs[0].base), YB_OK);
    assert_int_equal(sem_wait(&begun), 0); /* The helper has it, and no other. */
    assert_int_equal(yb_helper_submit(pool, loop, &jobs[1].base), YB_OK);
    assert_int_equal(yb_helper_submit(pool, loop, &jobs[2].base), YB_OK);
    assert_int_equal(yb_helper_submit(pool, loop, &jobs[3].base), YB_AGAIN);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(sem_post(&gate), 0);
    }
    while (jobs[2].done == 0) {
        yb_loop_turn(loop, YB_NS_PER_MS);
    }
    assert_int_equal(jobs[3].worked, 0); /* Refused means that it never runs. */
    assert_int_equal(yb_helper_submit(pool, loop, &jobs[3].base), YB_OK);
    while (jobs[3].done == 0) {
        yb_loop_turn(loop, YB_NS_PER_MS);
    }
    yb_helper_pool_destroy(&pool);
    yb_loop_destroy(&loop);
    assert_int_equal(sem_destroy(&begun), 0);
    assert_int_equal(sem_destroy(&gate), 0);
}

static void
test_helper__without_threads_the_work_runs_inside_submit_and_done_later(void **state)
{
    struct yb_loop *loop = loop_create();
    struct yb_helper_pool *pool = pool_create(0, 1);
    struct job job;

    (void)state;
    job_init(&job, NULL);
    assert_int_equal(yb_helper_submit(pool, loop, &job.base), YB_OK);
    assert_int_equal(job.worked, 1);
    assert_true(pthread_equal(job.worked_on, pthread_self()));
    assert_int_equal(job.done, 0);
    yb_loop_turn(loop, 0);
    assert_int_equal(job.done, 1);
    yb_helper_pool_destroy(&pool);
    yb_loop_destroy(&loop);
}

static void
test_helper__numbers_outside_the_contract_are_refused(void **state)
{
    struct yb_helper_pool *pool = NULL;

    (void)state;
    assert_int_equal(yb_helper_pool_create(65, 1, &pool), YB_INVALID);
    assert_int_equal(yb_helper_pool_create(1, 0, &pool), YB_INVALID);
    assert_null(pool);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_helper__done_runs_once_on_the_loop_that_submitted),
        cmocka_unit_test(test_helper__a_full_queue_says_again_and_takes_more_once_there_is_room),
        cmocka_unit_test(test_helper__without_threads_the_work_runs_inside_submit_and_done_later),
        cmocka_unit_test(test_helper__numbers_outside_the_contract_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
