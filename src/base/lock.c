/* SPDX-License-Identifier: Apache-2.0 */
#include "base/lock.h"

#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "base/check.h"

#define HELD_MAX 8

/* Ranks this thread holds, in acquisition order. */
static _Thread_local uint8_t held_ranks[HELD_MAX];
static _Thread_local uint32_t held_count;

void
yb_lock_init(struct yb_lock *lock, enum yb_lock_rank rank)
{
    YB_ASSERT(pthread_mutex_init(&lock->mutex, NULL) == 0);
    lock->held = false;
    lock->rank = (uint8_t)rank;
}

void
yb_lock_fini(struct yb_lock *lock)
{
    YB_ASSERT(!lock->held);
    YB_ASSERT(pthread_mutex_destroy(&lock->mutex) == 0);
}

void
yb_lock_acquire(struct yb_lock *lock)
{
    YB_ASSERT(held_count < HELD_MAX);
    if (held_count > 0) {
        YB_ASSERT(lock->rank > held_ranks[held_count - 1]);
    }
    YB_ASSERT(pthread_mutex_lock(&lock->mutex) == 0);
    YB_ASSERT(!lock->held);
    lock->held = true;
    lock->owner = pthread_self();
    held_ranks[held_count++] = lock->rank;
}

void
yb_lock_release(struct yb_lock *lock)
{
    yb_lock_assert_held(lock);
    YB_ASSERT(held_count > 0);
    YB_ASSERT(held_ranks[held_count - 1] == lock->rank);
    held_count--;
    lock->held = false;
    YB_ASSERT(pthread_mutex_unlock(&lock->mutex) == 0);
}

void
yb_lock_assert_held(const struct yb_lock *lock)
{
    YB_ASSERT(lock->held);
    YB_ASSERT(pthread_equal(lock->owner, pthread_self()) != 0);
}

void
yb_lock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;

    YB_ASSERT(pthread_condattr_init(&attributes) == 0);
    YB_ASSERT(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0);
    YB_ASSERT(pthread_cond_init(cond, &attributes) == 0);
    YB_ASSERT(pthread_condattr_destroy(&attributes) == 0);
}

bool
yb_lock_wait(struct yb_lock *lock, pthread_cond_t *cond, uint64_t timeout_ns)
{
    struct timespec until;
    int error;

    yb_lock_assert_held(lock);
    YB_ASSERT(held_count > 0 && held_ranks[held_count - 1] == lock->rank);
    YB_ASSERT(clock_gettime(CLOCK_MONOTONIC, &until) == 0);
    until.tv_sec += (time_t)(timeout_ns / 1000000000u);
    until.tv_nsec += (long)(timeout_ns % 1000000000u);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    lock->held = false;
    error = pthread_cond_timedwait(cond, &lock->mutex, &until);
    YB_ASSERT(error == 0 || error == ETIMEDOUT);
    lock->held = true;
    lock->owner = pthread_self();
    return error == 0;
}
