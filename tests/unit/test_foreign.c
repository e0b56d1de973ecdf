/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: memory that is not there is a status, for either direction and whatever the kernel allows.
 * Method: three pages, of which the middle one is taken away in several ways, and ranges that
 * touch it or do not; with a window, and where no descriptor is left for one.
 */
#include "unit.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/foreign.h"

#define PAGE       4096u
#define LENGTH_MAX (5u * YB_FOREIGN_TAKE_BYTES_MAX)

enum way { THERE, READ_ONLY, FORBIDDEN, UNMAPPED };

static void
spoil(uint8_t *pages, enum way way)
{
    switch (way) {
    case THERE: break;
    case READ_ONLY: assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_READ), 0); break;
    case FORBIDDEN: assert_int_equal(mprotect(pages + PAGE, PAGE, PROT_NONE), 0); break;
    case UNMAPPED: assert_int_equal(munmap(pages + PAGE, PAGE), 0); break;
    }
}

/* Put and take `length` bytes at `at`, and compare. */
static void
put_and_take(struct yb_foreign *foreign, enum way way, size_t at, size_t length)
{
    uint8_t *pages =
        mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool hits = length > 0 && at < 2 * PAGE && at + length > PAGE;
    uint8_t source[3 * PAGE];
    const uint8_t *copy = NULL;
    enum yb_status status;

    assert_ptr_not_equal(pages, MAP_FAILED);
    memset(source, 7, sizeof(source));
    memset(pages, 1, 3 * PAGE);
    spoil(pages, way);
    status = yb_foreign_put(foreign, pages + at, source, length);
    assert_int_equal(status, hits && way != THERE ? YB_FAULT : YB_OK);
    if (status == YB_OK) {
        assert_memory_equal(pages + at, source, length);
    }
    status = yb_foreign_take(foreign, pages + at, length, &copy);
    assert_int_equal(status, hits && way > READ_ONLY ? YB_FAULT : YB_OK);
    if (status == YB_OK) {
        assert_memory_equal(copy, pages + at, length);
    } else {
        assert_null(copy);
    }
    assert_int_equal(munmap(pages, 3 * PAGE), 0);
}

static void
put_and_take_all(struct yb_foreign *foreign)
{
    static const size_t ats[] = {0, 1, PAGE - 1, PAGE, 2 * PAGE - 1, 2 * PAGE};
    static const size_t lengths[] = {0, 1, 64, PAGE};

    for (int way = THERE; way <= UNMAPPED; way++) {
        for (size_t i = 0; i < sizeof(ats) / sizeof(ats[0]); i++) {
            for (size_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
                put_and_take(foreign, (enum way)way, ats[i], lengths[k]);
            }
        }
        put_and_take(foreign, (enum way)way, 0, 3 * PAGE);
    }
}

static void
test_foreign__memory_that_is_not_there_is_a_fault(void **state)
{
    struct yb_foreign foreign;

    (void)state;
    yb_foreign_init(&foreign);
    put_and_take_all(&foreign);
    assert_true(foreign.fd >= 0);
    yb_foreign_fini(&foreign);
    yb_foreign_fini(&foreign);
}

static void
test_foreign__without_a_descriptor_it_is_the_same(void **state)
{
    struct rlimit before;
    struct rlimit none;
    struct yb_foreign foreign;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    yb_foreign_init(&foreign);
    put_and_take_all(&foreign);
    assert_int_equal(foreign.fd, -1);
    yb_foreign_fini(&foreign);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void
test_foreign__any_length_is_put_whole(void **state)
{
    static uint8_t source[LENGTH_MAX];
    static uint8_t to[LENGTH_MAX + 2];
    struct yb_foreign foreign;
    uint64_t seed = unit_seed("foreign");

    (void)state;
    yb_foreign_init(&foreign);
    for (size_t i = 0; i < LENGTH_MAX; i++) {
        source[i] = (uint8_t)(unit_random(&seed) >> 32);
    }
    for (uint32_t i = 0; i < 300; i++) {
        size_t length = i < 6 ? i % 3 + (i / 3 + 1) * YB_FOREIGN_TAKE_BYTES_MAX - 1
                              : unit_random(&seed) % LENGTH_MAX;

        memset(to, 0, sizeof(to));
        assert_int_equal(yb_foreign_put(&foreign, to + 1, source, length), YB_OK);
        assert_memory_equal(to + 1, source, length);
        assert_int_equal(to[0] + to[length + 1], 0);
    }
    yb_foreign_fini(&foreign);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign__memory_that_is_not_there_is_a_fault),
        cmocka_unit_test(test_foreign__without_a_descriptor_it_is_the_same),
        cmocka_unit_test(test_foreign__any_length_is_put_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
