/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the invariants P1-P3 of base/pool.h.
 * Method: small tests; misuse in a child process that must abort; a random walk that fills every
 * object with its own pattern, so that two takers of one object would see each other.
 */
#include "unit.h"

#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/pool.h"

static struct yb_pool *
pool_with(size_t object_bytes, uint32_t capacity)
{
    struct yb_pool *pool = NULL;

    assert_int_equal(yb_pool_create("test", object_bytes, capacity, &pool), YB_OK);
    return pool;
}

static uint8_t *
take(struct yb_pool *pool)
{
    void *object = NULL;

    assert_int_equal(yb_pool_take(pool, &object), YB_OK);
    return object;
}

static void
give_twice(struct yb_pool *pool)
{
    uint8_t *object = take(pool);

    yb_pool_give(pool, object);
    yb_pool_give(pool, object);
}

static void
give_the_middle(struct yb_pool *pool)
{
    yb_pool_give(pool, take(pool) + 1);
}

static void
give_a_stranger(struct yb_pool *pool)
{
    static _Alignas(64) uint8_t stranger[64];

    (void)take(pool);
    yb_pool_give(pool, stranger);
}

static void
write_after_give(struct yb_pool *pool)
{
    uint8_t *object = take(pool);

    yb_pool_give(pool, object);
    object[17] = 1;
    (void)take(pool);
}

static void
destroy_while_in_use(struct yb_pool *pool)
{
    (void)take(pool);
    yb_pool_destroy(&pool);
}

/* Run `misuse` in a child and return whether it aborted. */
static bool
aborts(void (*misuse)(struct yb_pool *pool))
{
    struct rlimit no_core = {0, 0};
    int status = 0;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        struct yb_pool *pool = pool_with(40, 4);

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        (void)fclose(stderr);
        misuse(pool);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void
test_pool__misuse_aborts_at_once(void **state)
{
    (void)state;
    assert_true(aborts(give_twice));
    assert_true(aborts(give_the_middle));
    assert_true(aborts(give_a_stranger));
    assert_true(aborts(write_after_give));
    assert_true(aborts(destroy_while_in_use));
}

static void
test_pool__create_refuses_sizes_out_of_range(void **state)
{
    struct yb_pool *pool = NULL;

    (void)state;
    assert_int_equal(yb_pool_create("test", 0, 1, &pool), YB_INVALID);
    assert_int_equal(yb_pool_create("test", 1, 0, &pool), YB_INVALID);
    assert_int_equal(yb_pool_create("test", SIZE_MAX, 1, &pool), YB_INVALID);
    assert_int_equal(yb_pool_create("test", 1, UINT32_MAX, &pool), YB_INVALID);
    assert_null(pool);
}

static void
test_pool__an_empty_pool_says_again_and_counts(void **state)
{
    struct yb_pool *pool = pool_with(8, 2);
    struct yb_pool_counts counts;
    void *object = NULL;
    uint8_t *a = take(pool);
    uint8_t *b = take(pool);

    (void)state;
    assert_int_equal(yb_pool_take(pool, &object), YB_AGAIN);
    assert_null(object);
    yb_pool_give(pool, a);
    assert_ptr_equal(take(pool), a); /* Last in, first out. */
    yb_pool_give(pool, b);
    yb_pool_give(pool, a);
    yb_pool_counts(pool, &counts);
    assert_string_equal(counts.name, "test");
    assert_int_equal(counts.capacity, 2);
    assert_int_equal(counts.in_use, 0);
    assert_int_equal(counts.in_use_max, 2);
    assert_int_equal(counts.refused_count, 1);
    yb_pool_destroy(&pool);
    assert_null(pool);
}

#define WALK_CAPACITY 37u
#define WALK_BYTES    100u

static void
test_pool__no_two_takers_share_a_byte_in_a_random_walk(void **state)
{
    uint64_t seed = unit_seed("pool");
    struct yb_pool *pool = pool_with(WALK_BYTES, WALK_CAPACITY);
    uint8_t *held[WALK_CAPACITY] = {NULL};
    uint32_t held_count = 0;
    uint8_t pattern[WALK_BYTES];

    (void)state;
    for (uint32_t step = 0; step < 20000; step++) {
        struct yb_pool_counts counts;
        uint32_t i = (uint32_t)(unit_random(&seed) % WALK_CAPACITY);

        if (held[i] != NULL) {
            memset(pattern, (int)i, sizeof(pattern));
            assert_memory_equal(held[i], pattern, sizeof(pattern)); /* P1 */
            yb_pool_give(pool, held[i]);
            held[i] = NULL;
            held_count--;
        } else {
            held[i] = take(pool);
            held_count++;
            assert_int_equal((uintptr_t)held[i] % 64, 0);
            memset(held[i], (int)i, WALK_BYTES);
        }
        yb_pool_counts(pool, &counts);
        assert_int_equal(counts.in_use, held_count);
    }
    for (uint32_t i = 0; i < WALK_CAPACITY; i++) {
        if (held[i] != NULL) {
            yb_pool_give(pool, held[i]);
        }
    }
    yb_pool_destroy(&pool);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool__misuse_aborts_at_once),
        cmocka_unit_test(test_pool__create_refuses_sizes_out_of_range),
        cmocka_unit_test(test_pool__an_empty_pool_says_again_and_counts),
        cmocka_unit_test(test_pool__no_two_takers_share_a_byte_in_a_random_walk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
