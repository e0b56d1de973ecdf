/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what is reported to be writable can be written, whatever lies beside it; and what no copy
 * of bytes may be trusted with is never reported.
 * Method: mappings of every kind, with one page that is different. Kernels that do not tell what a
 * mapping is skip the tests that need it.
 */
#include "unit.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/writable.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13 */
#endif

#define PAGES 16u

struct bench {
    struct yb_writable writable;
    uintptr_t page;
    uint8_t *memory; /* PAGES, private, all there. */
};

static int
set_up(void **state)
{
    struct bench *bench = calloc(1, sizeof(*bench));

    assert_non_null(bench);
    yb_writable_init(&bench->writable);
    bench->page = (uintptr_t)getpagesize();
    bench->memory =
        mmap(NULL, PAGES * bench->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(bench->memory != MAP_FAILED);
    memset(bench->memory, 1, PAGES * bench->page);
    *state = bench;
    return 0;
}

static int
tear_down(void **state)
{
    struct bench *bench = *state;

    assert_int_equal(munmap(bench->memory, PAGES * bench->page), 0);
    yb_writable_fini(&bench->writable);
    free(bench);
    return 0;
}

/* How many pages of a range are reported. */
static uint64_t
pages_of(const struct bench *bench, const void *base, uint64_t pages)
{
    uintptr_t first = (uintptr_t)base;
    uintptr_t until =
        yb_writable_until(&bench->writable, first, first + (uintptr_t)pages * bench->page);

    assert_true(until >= first && (until - first) % bench->page == 0);
    return (until - first) / bench->page;
}

/* Whether this kernel tells. */
static bool
is_told(const struct bench *bench)
{
    return pages_of(bench, bench->memory, PAGES) > 0;
}

static void
test_writable__memory_that_is_there_is_reported_up_to_what_was_asked_for(void **state)
{
    struct bench *bench = *state;

    if (!is_told(bench)) {
        skip();
    }
    for (uint64_t pages = 0; pages <= PAGES; pages++) {
        assert_int_equal(pages_of(bench, bench->memory, pages), pages);
    }
    for (uintptr_t i = 0; i < PAGES * bench->page; i++) {
        assert_int_equal(bench->memory[i], 1); /* It was only looked at. */
    }
}

static void
test_writable__one_call_looks_at_a_bounded_range(void **state)
{
    struct bench *bench = *state;
    size_t bytes = 2 * YB_WRITABLE_BYTES_MAX;
    uint8_t *large = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(large != MAP_FAILED);
    memset(large, 1, bytes);
    if (is_told(bench)) {
        assert_int_equal(pages_of(bench, large, bytes / bench->page),
                         YB_WRITABLE_BYTES_MAX / bench->page);
    }
    assert_int_equal(munmap(large, bytes), 0);
}

static void
test_writable__a_page_that_is_not_there_ends_what_is_reported_and_stays_away(void **state)
{
    struct bench *bench = *state;
    unsigned char there[PAGES];

    assert_int_equal(madvise(bench->memory + 5 * bench->page, bench->page, MADV_DONTNEED), 0);
    if (!is_told(bench)) {
        skip();
    }
    assert_int_equal(pages_of(bench, bench->memory, PAGES), 5);
    assert_int_equal(mincore(bench->memory, PAGES * bench->page, there), 0);
    assert_int_equal(there[5] & 1, 0);
}

static void
test_writable__a_page_without_the_right_ends_what_is_reported(void **state)
{
    static const int rights[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_EXEC};
    struct bench *bench = *state;
    bool told = is_told(bench);

    for (uint32_t i = 0; i < sizeof(rights) / sizeof(rights[0]); i++) {
        for (uint32_t at = 0; at < PAGES; at++) {
            uint8_t *bad = bench->memory + at * bench->page;

            assert_int_equal(mprotect(bad, bench->page, rights[i]), 0);
            assert_int_equal(pages_of(bench, bench->memory, PAGES), told ? at : 0);
            assert_int_equal(pages_of(bench, bad, 1), 0);
            assert_false(yb_writable_populate((uintptr_t)bad, (uintptr_t)bad + bench->page));
            assert_int_equal(mprotect(bad, bench->page, PROT_READ | PROT_WRITE), 0);
        }
    }
}

static void
test_writable__a_hole_ends_what_is_reported(void **state)
{
    struct bench *bench = *state;
    uint8_t *hole = bench->memory + 7 * bench->page;
    bool told = is_told(bench);

    assert_int_equal(munmap(hole, bench->page), 0);
    assert_int_equal(pages_of(bench, bench->memory, PAGES), told ? 7 : 0);
    assert_int_equal(pages_of(bench, hole, PAGES - 7), 0);
}

static void
test_writable__a_guard_which_is_no_mapping_of_its_own_ends_what_is_reported(void **state)
{
    struct bench *bench = *state;
    uint8_t *guard = bench->memory + 3 * bench->page;

    if (!is_told(bench) || madvise(guard, bench->page, MADV_GUARD_INSTALL) != 0) {
        skip();
    }
    assert_int_equal(pages_of(bench, bench->memory, PAGES), 3);
    assert_int_equal(pages_of(bench, guard, 2), 0);
}

/* Whoever has the file may truncate it between the look and the copy. */
static void
test_writable__memory_of_a_file_is_never_reported(void **state)
{
    static const int kinds[] = {MAP_SHARED, MAP_PRIVATE};
    struct bench *bench = *state;
    int fd = memfd_create("writable", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * bench->page)), 0);
    for (uint32_t i = 0; i < 2; i++) {
        uint8_t *mapped = mmap(NULL, PAGES * bench->page, PROT_READ | PROT_WRITE, kinds[i], fd, 0);

        assert_true(mapped != MAP_FAILED);
        memset(mapped, 1, PAGES * bench->page);
        assert_int_equal(pages_of(bench, mapped, PAGES), 0);
        assert_int_equal(munmap(mapped, PAGES * bench->page), 0);
    }
    assert_int_equal(close(fd), 0);
}

/* Rights of protection keys are a thread's, and are no flag of the mapping. */
static void
test_writable__memory_whose_key_this_thread_lacks_is_never_reported(void **state)
{
    struct bench *bench = *state;
    int key = pkey_alloc(0, PKEY_DISABLE_WRITE);

    if (key < 0) {
        skip();
    }
    assert_int_equal(pkey_mprotect(bench->memory, PAGES * bench->page, PROT_READ | PROT_WRITE, key),
                     0);
    assert_int_equal(pages_of(bench, bench->memory, PAGES), 0);
    assert_int_equal(pkey_free(key), 0);
}

static void
test_writable__without_the_list_of_mappings_nothing_is_known(void **state)
{
    struct bench *bench = *state;

    yb_writable_fini(&bench->writable);
    assert_int_equal(pages_of(bench, bench->memory, PAGES), 0);
    assert_true(yb_writable_populate((uintptr_t)bench->memory,
                                     (uintptr_t)bench->memory + PAGES * bench->page));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_writable__memory_that_is_there_is_reported_up_to_what_was_asked_for),
        TEST(test_writable__one_call_looks_at_a_bounded_range),
        TEST(test_writable__a_page_that_is_not_there_ends_what_is_reported_and_stays_away),
        TEST(test_writable__a_page_without_the_right_ends_what_is_reported),
        TEST(test_writable__a_hole_ends_what_is_reported),
        TEST(test_writable__a_guard_which_is_no_mapping_of_its_own_ends_what_is_reported),
        TEST(test_writable__memory_of_a_file_is_never_reported),
        TEST(test_writable__memory_whose_key_this_thread_lacks_is_never_reported),
        TEST(test_writable__without_the_list_of_mappings_nothing_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
