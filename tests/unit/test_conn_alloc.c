/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: once warm, the data path allocates nothing (net/net.h).
 * Method: this program's own malloc counts while a test says so. Under a sanitizer, which brings a
 * malloc of its own, there is nothing to count.
 */
#include "net_duo.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define COUNTS 0
#else
#define COUNTS 1
#endif
#else
#define COUNTS 1
#endif

static bool counting;
static uint64_t allocations;

#if COUNTS
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);

void *
malloc(size_t size)
{
    allocations += counting;
    return __libc_malloc(size);
}

void *
calloc(size_t count, size_t size)
{
    allocations += counting;
    return __libc_calloc(count, size);
}

void *
realloc(void *old, size_t size)
{
    allocations += counting;
    return __libc_realloc(old, size);
}
#endif

static void
run_echoes(struct duo *duo, uint32_t count)
{
    struct caller caller;

    for (uint32_t i = 0; i < count; i++) {
        caller_init(&caller, duo, YB_WIRE_TYPE_ECHO);
        caller_body(&caller, &i, sizeof(i));
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
    }
}

static void
run_swaps(struct duo *duo, uint32_t count, const struct iovec *out, const struct iovec *in)
{
    struct caller caller;

    for (uint32_t i = 0; i < count; i++) {
        caller_init(&caller, duo, DUO_SWAP);
        caller.call.lane = YB_WIRE_LANE_BULK;
        caller.call.data = out;
        caller.call.reply_data = in;
        caller.call.data_count = caller.call.reply_data_count = 1;
        caller_run(&caller);
        caller_expect(&caller, YB_OK);
    }
}

static void
test_conn_alloc__a_warm_data_path_allocates_nothing(void **state)
{
    static uint8_t data[2][100000];
    const struct iovec out = {.iov_base = data[0], .iov_len = sizeof(data[0])};
    const struct iovec in = {.iov_base = data[1], .iov_len = sizeof(data[1])};
    struct duo duo;

    if (!COUNTS || !duo_possible(*state)) {
        skip();
    }
    duo_init(&duo, *state);
    duo_start(&duo);
    run_echoes(&duo, 100);
    run_swaps(&duo, 100, &out, &in);
    allocations = 0;
    counting = true;
    run_echoes(&duo, 10000);
    run_swaps(&duo, 1000, &out, &in);
    counting = false;
    assert_int_equal(allocations, 0);
    duo_fini(&duo);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_conn_alloc__a_warm_data_path_allocates_nothing,
                                  (void *)(uintptr_t) "epoll"),
        cmocka_unit_test_prestate(test_conn_alloc__a_warm_data_path_allocates_nothing,
                                  (void *)(uintptr_t) "io_uring"),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
