/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: once warm, batches allocate nothing, on either side (transfer.h: Memory).
 * Method: this program's own malloc counts while a test says so. Under a sanitizer, which brings a
 * malloc of its own, there is nothing to count.
 */
#include <stdatomic.h>

#include "transfer_duo.h"

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

static _Atomic(bool) counting; /* Read by the workers, too. */
static _Atomic(uint64_t) allocations;

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

#define ITEMS 3000u

struct load {
    struct duo duo;
    struct area local;
    struct area remote;
    yb_transfer_region region;
    struct yb_transfer_item items[ITEMS];
};

#define ROUNDS_MAX 8u

static void
run_batches(struct load *load, uint32_t count, bool notifies)
{
    static struct yb_transfer_notification found;
    struct yb_transfer_batch_options options = {.struct_bytes = sizeof(options)};

    for (uint32_t i = 0; i < count; i++) {
        struct yb_transfer_item large = duo_item(i % 2, &load->local, load->region);
        yb_transfer_batch batches[3];

        options.work_class = i % YB_CLASS_COUNT;
        options.notify = notifies ? "done" : NULL;
        options.notify_bytes = notifies ? 4 : 0;
        for (uint32_t k = 0; k < ITEMS; k++) {
            load->items[k] = (struct yb_transfer_item){
                .op = i % 2,
                .local = load->local.bytes + k * 300,
                .length = 300,
                .remote = load->region,
                .remote_offset = k * 300,
            };
        }
        batches[0] = duo_submit(&load->duo, load->items, ITEMS, &options);
        batches[1] = duo_submit(&load->duo, &large, 1, &options);
        batches[2] = duo_submit(&load->duo, load->items, 1, &options);
        for (uint32_t k = 0; k < 3; k++) {
            assert_int_equal(duo_end(load->duo.here, batches[k], NULL, 0).status, YB_OK);
            if (notifies) {
                assert_int_equal(yb_transfer_next_notification(load->duo.there, &found), YB_OK);
            }
        }
    }
}

static void
test_transfer_alloc__warm_batches_allocate_nothing(void **state)
{
    static struct load load;

    (void)state;
    if (!COUNTS) {
        skip();
    }
    duo_init(&load.duo);
    area_init(&load.local, 2000000);
    area_init(&load.remote, 2000000);
    load.region = duo_register(load.duo.there, &load.remote);
    /* Pools grow to the most that was ever under way, which on a busy machine is met late. What
     * allocates for each batch never has a round without. */
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        run_batches(&load, 60, true);
        allocations = 0;
        counting = true;
        run_batches(&load, 200, true);
        run_batches(&load, 200, false);
        counting = false;
        if (allocations == 0) {
            break;
        }
    }
    assert_int_equal(allocations, 0);
    duo_fini(&load.duo);
    area_fini(&load.local);
    area_fini(&load.remote);
}

int
main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transfer_alloc__warm_batches_allocate_nothing),
    };

    if (!duo_choose(argc, argv)) {
        return 2;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
