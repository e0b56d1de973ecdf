/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the promises of tier/dram/alloc.h and tier/dram/pool.h.
 * Method: random walks against an array of what is taken: nothing overlaps, nothing lies outside,
 * the sums agree, and the allocator's own check agrees too. Most pools are only numbers, so that
 * they can be as large as real ones; one is shared memory.
 */
#include "unit.h"

#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "alloc_fault.h"
#include "tier/dram/alloc.h"
#include "tier/dram/pool.h"

#define KIB         1024ull
#define MIB         (1024 * KIB)
#define GIB         (1024 * MIB)
#define EXTENTS_MAX 20000u

/* ---- the allocator --------------------------------------------------------------------------- */

struct scene {
    struct yb_dram_allocator *allocator;
    struct yb_dram_extent *taken;
    uint32_t taken_count;
    uint64_t used_bytes;
    uint64_t random;
};

static struct scene
scene_with(uint64_t capacity, uint64_t extent_bytes_min, const char *what)
{
    struct scene scene = {.random = unit_seed(what)};

    assert_int_equal(yb_dram_allocator_create(capacity, extent_bytes_min, &scene.allocator), YB_OK);
    scene.taken = calloc(EXTENTS_MAX, sizeof *scene.taken);
    assert_non_null(scene.taken);
    return scene;
}

static void
check(struct scene *scene)
{
    char why[200] = "";

    if (!yb_dram_allocator_check(scene->allocator, why, sizeof why)) {
        fail_msg("%s", why);
    }
    assert_int_equal(yb_dram_allocator_info(scene->allocator).used_bytes, scene->used_bytes);
    assert_int_equal(yb_dram_allocator_info(scene->allocator).extent_count, scene->taken_count);
}

static enum yb_status
take(struct scene *scene, uint64_t bytes)
{
    struct yb_dram_extent extent;
    enum yb_status status = yb_dram_allocator_take(scene->allocator, bytes, &extent);

    if (status == YB_OK) {
        assert_true(scene->taken_count < EXTENTS_MAX);
        assert_true(extent.length >= bytes);
        assert_int_equal(extent.length, yb_dram_allocator_round(scene->allocator, bytes));
        assert_int_equal(extent.offset % (extent.length < 64 * KIB ? 64 : 4096), 0);
        scene->taken[scene->taken_count++] = extent;
        scene->used_bytes += extent.length;
    }
    return status;
}

static void
give(struct scene *scene, uint32_t i)
{
    yb_dram_allocator_give(scene->allocator, &scene->taken[i]);
    scene->used_bytes -= scene->taken[i].length;
    scene->taken[i] = scene->taken[--scene->taken_count];
}

static void
give_any(struct scene *scene)
{
    give(scene, (uint32_t)(unit_random(&scene->random) % scene->taken_count));
}

/* Give everything back: there must be one piece again, which is all (A2). */
static void
scene_end(struct scene *scene)
{
    struct yb_dram_allocator_info info;

    while (scene->taken_count > 0) {
        give_any(scene);
    }
    check(scene);
    info = yb_dram_allocator_info(scene->allocator);
    assert_int_equal(info.piece_bytes_max, info.capacity);
    assert_int_equal(info.free_bytes, info.capacity);
    assert_int_equal(info.region_count, 0);
    assert_int_equal(info.slab_count, 0);
    yb_dram_allocator_destroy(&scene->allocator);
    assert_null(scene->allocator);
    free(scene->taken);
}

static void
test_dram__create_refuses_what_it_cannot_keep(void **state)
{
    struct yb_dram_allocator *allocator = NULL;

    (void)state;
    assert_int_equal(yb_dram_allocator_create(0, 0, &allocator), YB_INVALID);
    assert_int_equal(yb_dram_allocator_create(5000, 0, &allocator), YB_INVALID);
    assert_int_equal(yb_dram_allocator_create(1ull << 47, 0, &allocator), YB_INVALID);
    assert_int_equal(yb_dram_allocator_create(MIB, 100, &allocator), YB_INVALID);
    assert_int_equal(yb_dram_allocator_create(MIB, 2 * MIB, &allocator), YB_INVALID);
    assert_int_equal(yb_dram_allocator_create(1ull << 40, 64, &allocator), YB_INVALID);
    assert_null(allocator);
    assert_int_equal(yb_dram_allocator_create(1ull << 46, 0, &allocator), YB_OK);
    yb_dram_allocator_destroy(&allocator);
}

static void
test_dram__sizes_are_rounded_and_aligned(void **state)
{
    struct scene scene = scene_with(16 * MIB, 256, "rounding");

    (void)state;
    assert_int_equal(yb_dram_allocator_round(scene.allocator, 1), 256);
    assert_int_equal(yb_dram_allocator_round(scene.allocator, 257), 320);
    assert_int_equal(yb_dram_allocator_round(scene.allocator, 64 * KIB - 1), 64 * KIB);
    assert_int_equal(yb_dram_allocator_round(scene.allocator, 64 * KIB + 1), 68 * KIB);
    assert_int_equal(take(&scene, 0), YB_INVALID);
    assert_int_equal(take(&scene, 16 * MIB + 1), YB_TOO_LARGE);
    assert_int_equal(take(&scene, 16 * MIB), YB_OK);
    assert_int_equal(take(&scene, 1), YB_NO_SPACE);
    give(&scene, 0);
    assert_int_equal(take(&scene, 1), YB_OK);
    assert_int_equal(take(&scene, 16 * MIB), YB_NO_SPACE);
    scene_end(&scene);
}

static void
check_no_overlap(const struct scene *scene, uint64_t capacity)
{
    const struct yb_dram_extent *newest = &scene->taken[scene->taken_count - 1];

    assert_true(newest->offset + newest->length <= capacity);
    for (uint32_t i = 0; i + 1 < scene->taken_count; i++) {
        const struct yb_dram_extent *other = &scene->taken[i];

        assert_true(newest->offset + newest->length <= other->offset ||
                    other->offset + other->length <= newest->offset);
    }
}

/* Some sizes are common, and which ones changes, so that classes come and go. */
static uint64_t
any_size(uint64_t *random, uint32_t step)
{
    static const uint64_t common[] = {4096, 3000, 16384, 1000, 30000, 640};

    switch (unit_random(random) % 8) {
    case 0: return 1 + unit_random(random) % (2 * MIB);
    case 1: return 1 + unit_random(random) % (80 * KIB);
    case 2:
    case 3: return 1 + unit_random(random) % 5000;
    default: return common[(step / 20000 + unit_random(random) % 2) % 6];
    }
}

static void
test_dram__extents_never_overlap(void **state)
{
    struct scene scene = scene_with(64 * MIB, 0, "walk");
    uint32_t step_count = unit_long() ? 2000000 : 150000;
    uint64_t slab_count_max = 0, refused_count = 0;

    (void)state;
    for (uint32_t step = 0; step < step_count; step++) {
        uint32_t goal = step / 4000 % 2 == 0 ? 800 : 100;

        if (scene.taken_count == 0 ||
            unit_random(&scene.random) % (2 * goal) >= scene.taken_count) {
            if (take(&scene, any_size(&scene.random, step)) == YB_OK) {
                check_no_overlap(&scene, 64 * MIB);
            } else {
                refused_count++;
                give_any(&scene);
            }
        } else {
            give_any(&scene);
        }
        if (step % 256 == 0) {
            struct yb_dram_allocator_info info = yb_dram_allocator_info(scene.allocator);

            check(&scene);
            slab_count_max = info.slab_count > slab_count_max ? info.slab_count : slab_count_max;
        }
    }
    assert_true(slab_count_max > 0); /* Else the walk did not see slabs at all. */
    printf("slabs at most %llu, refused %llu\n", (unsigned long long)slab_count_max,
           (unsigned long long)refused_count);
    scene_end(&scene);
}

/* Churn at 80 % full: 91 % of the puts are small, 9 % about ten megabytes. Returns how many of a
 * thousand large puts succeed. */
static double
bimodal(uint64_t capacity, uint64_t large_from, uint64_t large_to, const char *what)
{
    struct scene scene = scene_with(capacity, 0, what);
    uint32_t step_count = unit_long() ? 1000000 : 100000;
    uint64_t large_count = 0, large_ok = 0, small_failed = 0;

    for (uint32_t step = 0; step < step_count; step++) {
        bool large = unit_random(&scene.random) % 100 < 9;
        uint64_t bytes = large
                             ? large_from + unit_random(&scene.random) % (large_to - large_from + 1)
                             : 1 + unit_random(&scene.random) % 10000;
        enum yb_status status;

        while (scene.used_bytes + bytes > capacity / 10 * 8 || scene.taken_count == EXTENTS_MAX) {
            give_any(&scene);
        }
        status = take(&scene, bytes);
        large_count += large;
        large_ok += large && status == YB_OK;
        small_failed += !large && status != YB_OK;
    }
    assert_int_equal(small_failed, 0);
    printf("%s: %llu of %llu large puts succeeded\n", what, (unsigned long long)large_ok,
           (unsigned long long)large_count);
    scene_end(&scene);
    return 1000.0 * (double)large_ok / (double)large_count;
}

static void
test_dram__large_puts_succeed_among_many_small_ones(void **state)
{
    (void)state;
    assert_true(bimodal(16 * GIB, 10 * MIB, 10 * MIB, "16 GiB, 10 MiB") >= 995);
    assert_true(bimodal(16 * GIB, 8 * MIB, 12 * MIB, "16 GiB, 8 to 12 MiB") >= 995);
    assert_true(bimodal(2 * GIB, 10 * MIB, 10 * MIB, "2 GiB, 10 MiB") >= 995);
    assert_true(bimodal(GIB, 10000000, 10000000, "1 GiB, 10 MB") >= 995);
    assert_true(bimodal(GIB, 9 * MIB, 11 * MIB, "1 GiB, 9 to 11 MiB") >= 995);
}

static void
test_dram__equal_blocks_fill_everything(void **state)
{
    static const uint64_t sizes[] = {64 * KIB, 2 * MIB, 4 * KIB};

    (void)state;
    for (uint32_t s = 0; s < 3; s++) {
        struct scene scene = scene_with(sizes[s] == 4 * KIB ? 64 * MIB : GIB, 0, "equal blocks");

        for (uint32_t step = 0; step < 100000; step++) { /* Full nearly all the time. */
            if (take(&scene, sizes[s]) != YB_OK) {
                assert_int_equal(scene.used_bytes,
                                 yb_dram_allocator_info(scene.allocator).capacity);
                for (uint64_t i = unit_random(&scene.random) % 20 + 1; i > 0; i--) {
                    give_any(&scene);
                }
            }
        }
        check(&scene);
        scene_end(&scene);
    }
}

static void
test_dram__common_sizes_get_slabs_and_lose_them(void **state)
{
    struct scene scene = scene_with(GIB, 0, "classes");

    (void)state;
    for (uint32_t step = 0; step < 10000; step++) {
        assert_int_equal(take(&scene, step % 2 == 0 ? 20000 : 256 * KIB), YB_OK);
        if (scene.taken_count > 1000) {
            give_any(&scene);
        }
    }
    assert_int_equal(yb_dram_allocator_info(scene.allocator).class_count, 2);
    assert_true(yb_dram_allocator_info(scene.allocator).slab_count > 10);
    check(&scene);
    for (uint32_t step = 0; step < 100000; step++) { /* Other traffic: no size is common. */
        assert_int_equal(take(&scene, 1 + unit_random(&scene.random) % 200000), YB_OK);
        give(&scene, 0); /* The oldest, or one that was put in its place. */
        give_any(&scene);
        assert_int_equal(take(&scene, 1 + unit_random(&scene.random) % 200000), YB_OK);
    }
    assert_int_equal(yb_dram_allocator_info(scene.allocator).class_count, 0);
    assert_int_equal(yb_dram_allocator_info(scene.allocator).slab_count, 0);
    check(&scene);
    scene_end(&scene);
}

static void
test_dram__sizes_that_are_not_common_get_no_slabs(void **state)
{
    struct scene scene = scene_with(GIB, 0, "no classes");

    (void)state;
    for (uint32_t step = 0; step < 50000; step++) {
        assert_int_equal(take(&scene, 64 * (1 + step % 100)),
                         YB_OK); /* Each is one in a hundred. */
        if (scene.taken_count > 1000) {
            give_any(&scene);
        }
        assert_int_equal(yb_dram_allocator_info(scene.allocator).class_count, 0);
    }
    scene_end(&scene);
}

static void
test_dram__what_lies_beside_is_bounded(void **state)
{
    struct scene scene = scene_with(MIB, 64, "smallest extents");
    uint64_t bound = 56 * (5 * MIB / 64 + 16 + 6 + 4096) + 8192;

    (void)state;
    for (uint32_t i = 0; i < MIB / 64; i++) { /* Each byte in an extent of the smallest kind. */
        assert_int_equal(take(&scene, 64), YB_OK);
    }
    assert_int_equal(scene.used_bytes, MIB);
    assert_int_equal(take(&scene, 1), YB_NO_SPACE);
    for (uint32_t i = 0; i < 100000; i++) {
        give_any(&scene);
        assert_int_equal(take(&scene, 1), YB_OK);
    }
    assert_true(yb_dram_allocator_info(scene.allocator).beside_bytes <= bound);
    check(&scene);
    scene_end(&scene);
}

/* Run `act` in a child and return whether it aborted. */
static bool
aborts(void (*act)(void))
{
    struct rlimit no_core = {0, 0};
    int wait_status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        (void)fclose(stderr);
        act();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    return WIFSIGNALED(wait_status) && WTERMSIG(wait_status) == SIGABRT;
}

static void
give_twice(void)
{
    struct yb_dram_allocator *allocator;
    struct yb_dram_extent extent;

    if (yb_dram_allocator_create(MIB, 0, &allocator) == YB_OK &&
        yb_dram_allocator_take(allocator, 100000, &extent) == YB_OK) {
        yb_dram_allocator_give(allocator, &extent);
        yb_dram_allocator_give(allocator, &extent);
    }
}

static void
test_dram__giving_back_twice_aborts(void **state)
{
    (void)state;
    assert_true(aborts(give_twice));
}

static void
test_dram__without_memory_for_its_records_nothing_changes(void **state)
{
    struct scene scene = scene_with(MIB, 64, "no memory");
    enum yb_status status = YB_OK;

    (void)state;
    if (!ALLOC_FAULT_WORKS) {
        scene_end(&scene);
        skip();
    }
    alloc_fault_after = 0;
    while (status == YB_OK) {
        status = take(&scene, 64);
    }
    alloc_fault_after = UINT64_MAX;
    assert_int_equal(status, YB_NO_MEMORY);
    check(&scene);
    give_any(&scene); /* One record comes back; it takes more to be safe. */
    assert_int_equal(take(&scene, 64), YB_OK);
    assert_int_equal(take(&scene, 64), YB_OK);
    scene_end(&scene);
}

/* ---- the pool ------------------------------------------------------------------------------- */

static struct yb_dram_pool *
pool_with(uint64_t capacity, uint32_t pending_permille)
{
    struct yb_dram_pool *pool = NULL;
    struct yb_dram_pool_options options = {
        .capacity = capacity,
        .pending_permille = pending_permille,
        .tenant_count = 4,
        .borrowed = true,
    };

    assert_int_equal(yb_dram_pool_create(&options, &pool, NULL, 0), YB_OK);
    return pool;
}

static void
check_pool(struct yb_dram_pool *pool)
{
    char why[200] = "";

    if (!yb_dram_pool_check(pool, why, sizeof why)) {
        fail_msg("%s", why);
    }
}

static void
test_dram__a_pool_refuses_options_out_of_range(void **state)
{
    struct yb_dram_pool_options fine = {
        .capacity = MIB, .pending_permille = 500, .tenant_count = 1, .borrowed = true};
    struct yb_dram_pool_options options = fine;
    struct yb_dram_pool *pool = NULL;
    char why[200];

    (void)state;
    options.pending_permille = 0;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_INVALID);
    assert_non_null(strstr(why, "permille"));
    options = fine;
    options.tenant_count = 70000;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_INVALID);
    options = fine;
    options.capacity = 4095;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_INVALID);
    options = fine;
    options.capacity = 1ull << 47;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_TOO_LARGE);
    options = fine;
    options.extent_bytes_min = 100;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_INVALID);
    assert_non_null(strstr(why, "extent_bytes_min"));
    assert_null(pool);
}

static void
test_dram__a_pool_without_memory_leaves_nothing_behind(void **state)
{
    struct yb_dram_pool_options options = {
        .capacity = MIB, .pending_permille = 500, .tenant_count = 1};
    struct yb_dram_pool *pool = NULL;
    uint64_t i;

    (void)state;
    if (!ALLOC_FAULT_WORKS) {
        skip();
    }
    options.numa_node = YB_SHARED_NUMA_ANY;
    for (i = 0; pool == NULL; i++) {
        char why[200] = "";
        enum yb_status status;

        alloc_fault_after = i;
        status = yb_dram_pool_create(&options, &pool, why, sizeof why);
        alloc_fault_after = UINT64_MAX;
        assert_true(status == YB_OK ? pool != NULL : status == YB_NO_MEMORY && why[0] != 0);
    }
    assert_true(i > 5); /* The pool, its tenants, the allocator and its records, the memory. */
    yb_dram_pool_destroy(&pool);
}

static void
test_dram__an_extent_goes_through_its_states(void **state)
{
    struct yb_dram_pool *pool = pool_with(MIB, 1000);
    struct yb_dram_extent extent;
    struct yb_dram_info info;

    (void)state;
    assert_int_equal(yb_dram_alloc(pool, 0, 0, &extent), YB_INVALID);
    assert_int_equal(yb_dram_alloc(pool, MIB + 1, 0, &extent), YB_TOO_LARGE);
    assert_int_equal(yb_dram_alloc(pool, 1000, 3, &extent), YB_OK);
    for (uint32_t s = YB_DRAM_IN_FLIGHT; s <= YB_DRAM_QUARANTINED; s++) {
        if (s > YB_DRAM_IN_FLIGHT) {
            yb_dram_set_state(pool, &extent, (enum yb_dram_state)s);
        }
        info = yb_dram_info(pool);
        assert_int_equal(yb_dram_state(pool, &extent), s);
        assert_int_equal(yb_dram_tenant(pool, &extent), 3);
        assert_int_equal(info.used_bytes, 1024);
        for (uint32_t i = 0; i < YB_DRAM_STATE_COUNT; i++) {
            assert_int_equal(info.state_bytes[i], i == s ? 1024 : 0);
            assert_int_equal(info.state_count[i], i == s ? 1 : 0);
        }
        assert_int_equal(yb_dram_tenant_bytes(pool, 3), 1024);
        check_pool(pool);
    }
    yb_dram_free(pool, &extent);
    assert_int_equal(yb_dram_info(pool).used_bytes, 0);
    assert_int_equal(yb_dram_tenant_bytes(pool, 3), 0);
    assert_string_equal(yb_dram_state_name(YB_DRAM_QUARANTINED), "quarantined");
    yb_dram_pool_destroy(&pool);
    assert_null(pool);
}

static void
go_from_to(enum yb_dram_state from, enum yb_dram_state to)
{
    struct yb_dram_pool *pool = pool_with(MIB, 1000);
    struct yb_dram_extent extent;

    assert_int_equal(yb_dram_alloc(pool, 1, 0, &extent), YB_OK);
    for (uint32_t s = 1; s <= (uint32_t)from; s++) {
        yb_dram_set_state(pool, &extent, (enum yb_dram_state)s);
    }
    yb_dram_set_state(pool, &extent, to);
    yb_dram_pool_destroy(&pool);
}

static void
serve_ungranted(void)
{
    go_from_to(YB_DRAM_IN_FLIGHT, YB_DRAM_LIVE);
}

static void
revive(void)
{
    go_from_to(YB_DRAM_QUARANTINED, YB_DRAM_LIVE);
}

static void
write_again(void)
{
    go_from_to(YB_DRAM_LIVE, YB_DRAM_IN_FLIGHT);
}

static void
test_dram__no_state_is_skipped_or_taken_back(void **state)
{
    (void)state;
    assert_true(aborts(serve_ungranted));
    assert_true(aborts(revive));
    assert_true(aborts(write_again));
    go_from_to(YB_DRAM_IN_FLIGHT, YB_DRAM_QUARANTINED);
    go_from_to(YB_DRAM_UNGRANTED, YB_DRAM_QUARANTINED);
}

static void
test_dram__what_is_pending_has_a_cap(void **state)
{
    struct yb_dram_pool *pool = pool_with(100 * MIB, 250);
    struct yb_dram_extent extents[4], large;

    (void)state;
    assert_int_equal(yb_dram_info(pool).pending_bytes_max, 25 * MIB);
    assert_int_equal(yb_dram_alloc(pool, 10 * MIB, 0, &extents[0]), YB_OK);
    assert_int_equal(yb_dram_alloc(pool, 10 * MIB, 0, &extents[1]), YB_OK);
    assert_int_equal(yb_dram_alloc(pool, 10 * MIB, 0, &extents[2]), YB_AGAIN);
    yb_dram_set_state(pool, &extents[0], YB_DRAM_UNGRANTED); /* It still cannot be evicted. */
    assert_int_equal(yb_dram_alloc(pool, 10 * MIB, 0, &extents[2]), YB_AGAIN);
    yb_dram_set_state(pool, &extents[0], YB_DRAM_LIVE);
    assert_int_equal(yb_dram_alloc(pool, 10 * MIB, 0, &extents[2]), YB_OK);
    yb_dram_free(pool, &extents[1]);
    yb_dram_set_state(pool, &extents[2], YB_DRAM_QUARANTINED);
    /* A put larger than the cap goes alone, or it never would. */
    assert_int_equal(yb_dram_alloc(pool, 60 * MIB, 0, &large), YB_OK);
    assert_int_equal(yb_dram_alloc(pool, 1, 0, &extents[3]), YB_AGAIN);
    assert_int_equal(yb_dram_info(pool).again_count, 3);
    check_pool(pool);
    yb_dram_pool_destroy(&pool);
}

struct quota {
    uint32_t tenant;
    uint64_t bytes_max;
};

static bool
admit(void *context, uint32_t tenant, uint64_t used_bytes)
{
    const struct quota *quota = context;

    return tenant != quota->tenant || used_bytes <= quota->bytes_max;
}

static void
test_dram__a_tenant_stays_within_its_quota(void **state)
{
    struct quota quota = {.tenant = 1, .bytes_max = 8192};
    struct yb_dram_pool *pool = NULL;
    struct yb_dram_pool_options options = {
        .capacity = MIB,
        .pending_permille = 1000,
        .tenant_count = 2,
        .admit = admit,
        .admit_context = &quota,
        .borrowed = true,
    };
    struct yb_dram_extent a, b, c;

    (void)state;
    assert_int_equal(yb_dram_pool_create(&options, &pool, NULL, 0), YB_OK);
    assert_int_equal(yb_dram_alloc(pool, 8000, 1, &a), YB_OK);   /* Rounded to 8000. */
    assert_int_equal(yb_dram_alloc(pool, 150, 1, &b), YB_QUOTA); /* It would take 256. */
    assert_int_equal(yb_dram_alloc(pool, 100000, 0, &c), YB_OK);
    yb_dram_set_state(pool, &a, YB_DRAM_QUARANTINED); /* It is still this tenant's. */
    assert_int_equal(yb_dram_alloc(pool, 1000, 1, &b), YB_QUOTA);
    yb_dram_free(pool, &a);
    assert_int_equal(yb_dram_alloc(pool, 8192, 1, &b), YB_OK);
    assert_int_equal(yb_dram_info(pool).quota_count, 2);
    yb_dram_pool_destroy(&pool);
}

static void
test_dram__the_sums_agree_at_any_time(void **state)
{
    uint64_t random = unit_seed("pool walk");
    struct yb_dram_pool *pool = pool_with(32 * MIB, 600);
    static struct yb_dram_extent taken[3000];
    uint32_t taken_count = 0;
    uint32_t step_count = unit_long() ? 500000 : 40000;

    (void)state;
    for (uint32_t step = 0; step < step_count; step++) {
        uint32_t i = taken_count == 0 ? 0 : (uint32_t)(unit_random(&random) % taken_count);
        uint32_t what = (uint32_t)(unit_random(&random) % 8);

        if (taken_count == 0 || (what < 3 && taken_count < 3000)) {
            uint64_t bytes = 1 + unit_random(&random) % (what == 0 ? MIB : 20000);

            taken_count += yb_dram_alloc(pool, bytes, (uint32_t)(unit_random(&random) % 4),
                                         &taken[taken_count]) == YB_OK;
        } else if (what < 6) {
            enum yb_dram_state now = yb_dram_state(pool, &taken[i]);

            if (now != YB_DRAM_QUARANTINED) {
                yb_dram_set_state(pool, &taken[i],
                                  unit_random(&random) % 4 == 0
                                      ? YB_DRAM_QUARANTINED
                                      : (enum yb_dram_state)((uint32_t)now + 1));
            }
        } else {
            yb_dram_free(pool, &taken[i]);
            taken[i] = taken[--taken_count];
        }
        if (step % 64 == 0) {
            check_pool(pool);
        }
    }
    while (taken_count > 0) {
        yb_dram_free(pool, &taken[--taken_count]);
    }
    check_pool(pool);
    assert_int_equal(yb_dram_info(pool).allocator.piece_bytes_max, 32 * MIB);
    yb_dram_pool_destroy(&pool);
}

static void
test_dram__shared_memory_holds_what_was_written(void **state)
{
    struct yb_dram_pool *pool = NULL;
    struct yb_dram_pool_options options = {
        .capacity = 4 * MIB + 100,
        .pending_permille = 1000,
        .tenant_count = 1,
        .huge = true,
        .numa_node = YB_SHARED_NUMA_ANY,
    };
    struct yb_dram_extent extents[100];
    struct yb_dram_info info;
    char why[300] = "x";

    (void)state;
    assert_int_equal(yb_dram_pool_create(&options, &pool, why, sizeof why), YB_OK);
    info = yb_dram_info(pool);
    assert_int_equal(info.allocator.capacity, 4 * MIB + 4096);
    assert_true(info.memory.bytes >= 4 * MIB + 4096);
    assert_non_null(yb_dram_shared(pool));
    if (info.huge_bytes == 0) { /* It was asked for, and is told. */
        assert_true(strlen(why) > 0);
    }
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(yb_dram_alloc(pool, 1000 + 400 * i, 0, &extents[i]), YB_OK);
        memset(yb_dram_bytes(pool, &extents[i]), (int)i, extents[i].length);
    }
    for (uint32_t i = 0; i < 100; i++) {
        const uint8_t *bytes = yb_dram_bytes(pool, &extents[i]);

        for (uint64_t j = 0; j < extents[i].length; j++) {
            assert_int_equal(bytes[j], i);
        }
    }
    yb_dram_pool_destroy(&pool);
}

static void
test_dram__borrowed_memory_is_used_as_it_is(void **state)
{
    static uint8_t memory[20000];
    struct yb_dram_pool *pool = NULL;
    struct yb_dram_pool_options options = {
        .capacity = sizeof memory,
        .pending_permille = 1000,
        .tenant_count = 1,
        .borrowed = true,
        .base = memory,
    };
    struct yb_dram_extent extent;

    (void)state;
    assert_int_equal(yb_dram_pool_create(&options, &pool, NULL, 0), YB_OK);
    assert_int_equal(yb_dram_info(pool).allocator.capacity, 16384); /* Whole pages only. */
    assert_int_equal(yb_dram_alloc(pool, 16384, 0, &extent), YB_OK);
    assert_ptr_equal(yb_dram_bytes(pool, &extent), memory);
    assert_null(yb_dram_shared(pool));
    assert_ptr_equal(yb_dram_info(pool).memory.base, memory);
    yb_dram_set_state(pool, &extent, YB_DRAM_UNGRANTED);
    yb_dram_set_state(pool, &extent, YB_DRAM_LIVE);
    assert_int_equal(yb_dram_alloc(pool, 1, 0, &extent), YB_NO_SPACE);
    assert_int_equal(yb_dram_info(pool).no_space_count, 1);
    yb_dram_pool_destroy(&pool);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dram__create_refuses_what_it_cannot_keep),
        cmocka_unit_test(test_dram__sizes_are_rounded_and_aligned),
        cmocka_unit_test(test_dram__extents_never_overlap),
        cmocka_unit_test(test_dram__large_puts_succeed_among_many_small_ones),
        cmocka_unit_test(test_dram__equal_blocks_fill_everything),
        cmocka_unit_test(test_dram__common_sizes_get_slabs_and_lose_them),
        cmocka_unit_test(test_dram__sizes_that_are_not_common_get_no_slabs),
        cmocka_unit_test(test_dram__what_lies_beside_is_bounded),
        cmocka_unit_test(test_dram__giving_back_twice_aborts),
        cmocka_unit_test(test_dram__without_memory_for_its_records_nothing_changes),
        cmocka_unit_test(test_dram__a_pool_refuses_options_out_of_range),
        cmocka_unit_test(test_dram__a_pool_without_memory_leaves_nothing_behind),
        cmocka_unit_test(test_dram__an_extent_goes_through_its_states),
        cmocka_unit_test(test_dram__no_state_is_skipped_or_taken_back),
        cmocka_unit_test(test_dram__what_is_pending_has_a_cap),
        cmocka_unit_test(test_dram__a_tenant_stays_within_its_quota),
        cmocka_unit_test(test_dram__the_sums_agree_at_any_time),
        cmocka_unit_test(test_dram__shared_memory_holds_what_was_written),
        cmocka_unit_test(test_dram__borrowed_memory_is_used_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
