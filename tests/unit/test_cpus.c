/* SPDX-License-Identifier: Apache-2.0 */
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>

#include "base/cpus.h"
#include "unit.h"

struct place {
    sem_t begun;
    sem_t leave;
    cpu_set_t set;
};

static void *
stay(void *arg)
{
    struct place *place = arg;

    assert_int_equal(sem_post(&place->begun), 0);
    while (sem_wait(&place->leave) != 0) {
    }
    return NULL;
}

static void *
begin(void *arg)
{
    struct place *place = arg;

    yb_cpus_as_process();
    assert_int_equal(sched_getaffinity(0, sizeof(place->set), &place->set), 0);
    return NULL;
}

/* The first of a set alone. */
static cpu_set_t
first_of(const cpu_set_t *set)
{
    cpu_set_t one;

    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, set)) {
            CPU_SET(i, &one);
            break;
        }
    }
    return one;
}

/* Keep every thread of the process to a set: a sanitizer may have one of its own. */
static void
keep_all(const cpu_set_t *set)
{
    DIR *tasks = opendir("/proc/self/task");
    struct dirent *task;

    assert_non_null(tasks);
    while ((task = readdir(tasks)) != NULL) {
        int id = (int)strtol(task->d_name, NULL, 10);

        if (id > 0) {
            assert_int_equal(sched_setaffinity(id, sizeof(*set), set), 0);
        }
    }
    assert_int_equal(closedir(tasks), 0);
}

static void
test_cpus__a_thread_of_a_pinned_one_runs_wherever_the_process_may(void **state)
{
    struct place place = {0};
    cpu_set_t all;
    cpu_set_t one;
    pthread_t other;
    pthread_t ours;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2) {
        skip();
    }
    one = first_of(&all);
    assert_int_equal(sem_init(&place.begun, 0, 0), 0);
    assert_int_equal(sem_init(&place.leave, 0, 0), 0);
    assert_int_equal(pthread_create(&other, NULL, stay, &place), 0);
    while (sem_wait(&place.begun) != 0) {
    }
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0); /* As OpenMP binds it. */
    assert_int_equal(pthread_create(&ours, NULL, begin, &place), 0);
    assert_int_equal(pthread_join(ours, NULL), 0);
    assert_true(CPU_EQUAL(&place.set, &all));

    assert_int_equal(sem_post(&place.leave), 0);
    assert_int_equal(pthread_join(other, NULL), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    (void)sem_destroy(&place.begun);
    (void)sem_destroy(&place.leave);
}

static void
test_cpus__what_all_threads_are_kept_from_stays_forbidden(void **state)
{
    struct place place = {0};
    cpu_set_t all;
    cpu_set_t one;
    pthread_t ours;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2) {
        skip();
    }
    one = first_of(&all);
    keep_all(&one); /* As taskset would. */
    assert_int_equal(pthread_create(&ours, NULL, begin, &place), 0);
    assert_int_equal(pthread_join(ours, NULL), 0);
    assert_true(CPU_EQUAL(&place.set, &one));
    keep_all(&all);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpus__a_thread_of_a_pinned_one_runs_wherever_the_process_may),
        cmocka_unit_test(test_cpus__what_all_threads_are_kept_from_stays_forbidden),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
