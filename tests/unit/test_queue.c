/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants Q1 and Q2 of base/queue.h.
 * Method: a random walk against an endless array; then several pushers and poppers, after which
 * every item has come out once and each popper saw each pusher's items in order.
 */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "base/queue.h"

static struct yb_queue *
queue_with(size_t item_bytes, uint32_t capacity)
{
    struct yb_queue *queue = NULL;

    assert_int_equal(yb_queue_create("test", item_bytes, capacity, &queue), YB_OK);
    return queue;
}

static void
test_queue__create_refuses_sizes_out_of_range(void **state)
{
    struct yb_queue *queue = NULL;

    (void)state;
    assert_int_equal(yb_queue_create("test", 0, 1, &queue), YB_INVALID);
    assert_int_equal(yb_queue_create("test", 4097, 1, &queue), YB_INVALID);
    assert_int_equal(yb_queue_create("test", 1, 0, &queue), YB_INVALID);
    assert_int_equal(yb_queue_create("test", 1, UINT32_MAX, &queue), YB_INVALID);
    assert_null(queue);
}

static void
test_queue__a_random_walk_agrees_with_an_endless_array(void **state)
{
    enum { CAPACITY = 7, STEPS = 50000 };
    uint64_t seed = unit_seed("queue");
    struct yb_queue *queue = queue_with(12, CAPACITY);
    static uint8_t model[STEPS][12];
    uint32_t pushed = 0;
    uint32_t popped = 0;
    uint32_t high = 0;
    uint64_t refused = 0;

    (void)state;
    for (uint32_t step = 0; step < STEPS; step++) {
        struct yb_queue_counts counts;
        uint8_t item[12];

        memset(item, (int)(unit_random(&seed) & 0xff), sizeof(item));
        memcpy(item, &step, sizeof(step));
        if (unit_random(&seed) % 2 == 0) {
            bool room = pushed - popped < CAPACITY;

            assert_int_equal(yb_queue_try_push(queue, item), room ? YB_OK : YB_AGAIN);
            refused += !room;
            if (room) {
                memcpy(model[pushed++], item, sizeof(item));
            }
        } else if (pushed == popped) {
            uint8_t before[12];

            memcpy(before, item, sizeof(item));
            assert_int_equal(yb_queue_try_pop(queue, item), YB_AGAIN);
            assert_memory_equal(item, before, sizeof(item));
        } else {
            assert_int_equal(yb_queue_try_pop(queue, item), YB_OK);
            assert_memory_equal(item, model[popped++], sizeof(item));
        }
        high = pushed - popped > high ? pushed - popped : high;
        yb_queue_counts(queue, &counts);
        assert_int_equal(counts.waiting, pushed - popped);
        assert_int_equal(counts.waiting_max, high);
        assert_int_equal(counts.refused_count, refused);
    }
    yb_queue_destroy(&queue);
    assert_null(queue);
}

#define THREAD_COUNT 3u
#define ITEM_COUNT   10000u

struct item {
    uint32_t pusher;
    uint32_t number;
};

static struct yb_queue *shared;
static _Atomic(uint32_t) next_pusher;
static _Atomic(uint32_t) popped_total;
static _Atomic(uint8_t) seen[THREAD_COUNT][ITEM_COUNT];
static _Atomic(bool) out_of_order;

static void *
push_all(void *argument)
{
    struct item item = {.pusher = atomic_fetch_add(&next_pusher, 1)};

    for (item.number = 0; item.number < ITEM_COUNT; item.number++) {
        while (yb_queue_try_push(shared, &item) != YB_OK) {
            (void)sched_yield();
        }
    }
    return argument;
}

static void *
pop_all(void *argument)
{
    uint32_t expected[THREAD_COUNT] = {0};

    while (atomic_load(&popped_total) < THREAD_COUNT * ITEM_COUNT) {
        struct item item;

        if (yb_queue_try_pop(shared, &item) != YB_OK) {
            (void)sched_yield();
            continue;
        }
        if (item.number < expected[item.pusher]) {
            atomic_store(&out_of_order, true);
        }
        expected[item.pusher] = item.number + 1;
        atomic_fetch_add(&seen[item.pusher][item.number], 1);
        atomic_fetch_add(&popped_total, 1);
    }
    return argument;
}

static void
test_queue__many_pushers_and_poppers_lose_and_repeat_nothing(void **state)
{
    pthread_t threads[2 * THREAD_COUNT];

    (void)state;
    shared = queue_with(sizeof(struct item), 16);
    for (uint32_t i = 0; i < 2 * THREAD_COUNT; i++) {
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < THREAD_COUNT ? push_all : pop_all, NULL), 0);
    }
    for (uint32_t i = 0; i < 2 * THREAD_COUNT; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    assert_false(atomic_load(&out_of_order));
    for (uint32_t pusher = 0; pusher < THREAD_COUNT; pusher++) {
        for (uint32_t number = 0; number < ITEM_COUNT; number++) {
            assert_int_equal(atomic_load(&seen[pusher][number]), 1);
        }
    }
    yb_queue_destroy(&shared);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue__create_refuses_sizes_out_of_range),
        cmocka_unit_test(test_queue__a_random_walk_agrees_with_an_endless_array),
        cmocka_unit_test(test_queue__many_pushers_and_poppers_lose_and_repeat_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
