/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of blocks, against a table of who has what.
 */
#include "unit.h"

#include <string.h>

#include "sched/index.h"
#include "sched/sets.h"

#define PLACES   70u
#define NODES    370u
#define DEPTH    40u
#define TIERS    YB_SCHED_LOCAL_TIERS
#define PRODUCER 4u

/* A tree of blocks, and the truth. */
struct world {
    uint64_t random;
    uint32_t parent[NODES]; /* NODES: a root. */
    uint32_t depth[NODES];
    bool held[PLACES][TIERS][NODES];
    bool object[NODES];
    uint32_t producer[NODES]; /* Plus 1; 0: nobody. */
    struct yb_sched_index *index;
};

/* Names that are no small numbers, as hashes are. */
static uint64_t
name_of(uint32_t node)
{
    return (node + 1) * 0xd6e8feb86659fd93ull;
}

static uint32_t
pick(struct world *world, uint32_t below)
{
    return (uint32_t)(unit_random(&world->random) % below);
}

static void
world_open(struct world *world, const char *what)
{
    memset(world, 0, sizeof(*world));
    world->random = unit_seed(what);
    for (uint32_t i = 0; i < NODES; i++) {
        uint32_t parent = i < 3 ? NODES : pick(world, i);

        /* Long chains: mostly the block before. */
        parent = i >= 3 && pick(world, 8) != 0 ? i - 1 : parent;
        if (parent != NODES && world->depth[parent] + 1 == DEPTH) {
            parent = NODES;
        }
        world->parent[i] = parent;
        world->depth[i] = parent == NODES ? 0 : world->depth[parent] + 1;
    }
    assert_int_equal(yb_sched_index_create(PLACES, 384, 1 << 20, PRODUCER, &world->index), YB_OK);
}

static uint32_t
path_of(const struct world *world, uint32_t node, uint32_t *path)
{
    uint32_t count = world->depth[node] + 1;

    for (uint32_t i = count; i > 0; i--) {
        path[i - 1] = node;
        node = world->parent[node];
    }
    return count;
}

static void
add(struct world *world, uint32_t node, uint32_t place, uint32_t tier)
{
    assert_int_equal(yb_sched_index_add(world->index, name_of(node), place, tier), YB_OK);
    world->held[place][tier][node] = true;
}

static void
drop(struct world *world, uint32_t node, uint32_t place, uint32_t tier)
{
    enum yb_status expected = world->held[place][tier][node] ? YB_OK : YB_NOT_FOUND;

    assert_int_equal(yb_sched_index_drop(world->index, name_of(node), place, tier), expected);
    world->held[place][tier][node] = false;
}

static bool
has(const struct world *world, uint32_t node, uint32_t place, uint32_t tier)
{
    for (uint32_t i = 0; i <= tier; i++) {
        if (world->held[place][i][node]) {
            return true;
        }
    }
    return false;
}

static bool
is_known(const struct world *world, uint32_t node)
{
    for (uint32_t place = 0; place < PLACES; place++) {
        if (has(world, node, place, TIERS - 1)) {
            return true;
        }
    }
    return world->object[node] || world->producer[node] != 0;
}

static void
check_coming(const struct world *world, const uint32_t *path, uint32_t known,
             const struct yb_sched_index_match *match)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < known; i++) {
        uint32_t producer = world->producer[path[i]];
        bool inside;

        while (at < match->coming_count && match->coming[at].end <= i) {
            at++;
        }
        inside = at < match->coming_count && match->coming[at].first <= i;
        if (match->coming_count < YB_SCHED_COMING_MAX) {
            assert_int_equal(inside ? match->coming[at].producer + 1 : 0, producer);
        }
    }
}

static void
check_match(struct world *world, uint32_t leaf, bool exact)
{
    uint32_t path[DEPTH];
    uint64_t blocks[DEPTH];
    struct yb_sched_index_prompt prompt = {blocks, path_of(world, leaf, path), exact};
    struct yb_sched_index_active active[PLACES];
    struct yb_sched_hit hits[PLACES];
    struct yb_sched_index_match match;
    uint32_t run;
    uint32_t known = 0;

    for (uint32_t i = 0; i < prompt.count; i++) {
        blocks[i] = name_of(path[i]);
    }
    yb_sched_index_match(world->index, &prompt, active, hits, &match);
    while (known < prompt.count && is_known(world, path[known])) {
        known++;
    }
    assert_int_equal(match.known, known);
    for (uint32_t place = 0; place < PLACES; place++) {
        for (uint32_t tier = 0; tier < TIERS; tier++) {
            for (run = 0; run < prompt.count && has(world, path[run], place, tier); run++) {
            }
            assert_int_equal(hits[place].run[tier], run);
        }
        assert_int_equal(hits[place].soon, 0);
    }
    for (run = 0; run < prompt.count && world->object[path[run]]; run++) {
    }
    assert_int_equal(match.object_run, run);
    check_coming(world, path, known, &match);
}

static void
check_count(const struct world *world)
{
    uint64_t known = 0;

    for (uint32_t i = 0; i < NODES; i++) {
        known += is_known(world, i);
    }
    assert_int_equal(yb_sched_index_info(world->index).blocks, known);
}

/* Forget stale marks everywhere. */
static void
sweep_all(struct world *world)
{
    while (yb_sched_index_sweep(world->index, 1000)) {
    }
    (void)yb_sched_index_sweep(world->index, 1024);
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* A path comes whole, in any order. */
static void
add_path(struct world *world, uint32_t leaf, uint32_t place, uint32_t tier)
{
    uint32_t path[DEPTH];
    uint32_t count = path_of(world, leaf, path);
    uint32_t first = pick(world, count);

    for (uint32_t i = 0; i < count; i++) {
        add(world, path[(first + i) % count], place, tier);
    }
}

/* A block goes with all behind it. */
static void
drop_below(struct world *world, uint32_t node, uint32_t place, uint32_t tier)
{
    for (uint32_t i = NODES; i > node; i--) {
        uint32_t at = i - 1;

        while (at != NODES && at != node && at > node) {
            at = world->parent[at];
        }
        if (at == node && world->held[place][tier][i - 1]) {
            drop(world, i - 1, place, tier);
        }
    }
}

static void
step_closed(struct world *world)
{
    uint32_t node = pick(world, NODES);
    uint32_t place = pick(world, PLACES);
    uint32_t tier = pick(world, TIERS);

    switch (pick(world, 4)) {
    case 0: add_path(world, node, place, tier); break;
    case 1: /* Many places have the same. */
        for (uint32_t i = 0; i < PLACES; i += 1 + pick(world, 3)) {
            add_path(world, node, i, tier);
        }
        break;
    default: drop_below(world, node, place, tier); break;
    }
}

static void
test_sched_index__runs_by_jumping_are_those_of_a_model(void **state)
{
    struct world world;
    uint32_t steps = unit_long() ? 20000 : 1500;

    (void)state;
    world_open(&world, "sched_index");
    for (uint32_t i = 0; i < steps; i++) {
        step_closed(&world);
        check_match(&world, pick(&world, NODES), false);
        check_match(&world, pick(&world, NODES), true);
    }
    check_count(&world);
    yb_sched_index_destroy(&world.index);
    assert_null(world.index);
}

static void
step_any(struct world *world)
{
    uint32_t node = pick(world, NODES);
    uint32_t place = pick(world, PLACES);
    uint32_t tier = pick(world, TIERS);
    uint32_t path[DEPTH];

    switch (pick(world, 8)) {
    case 0:
    case 1: add_path(world, node, place, tier); break;
    case 2: drop(world, node, place, tier); break;
    case 3: add(world, node, place, tier); break;
    case 4:
        assert_int_equal(
            yb_sched_index_add(world->index, name_of(node), YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT),
            YB_OK);
        world->object[node] = true;
        break;
    case 5:
        assert_int_equal(
            yb_sched_index_drop(world->index, name_of(node), YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT),
            world->object[node] ? YB_OK : YB_NOT_FOUND);
        world->object[node] = false;
        break;
    case 6: /* A producer marks the rest of a path. */
        place = pick(world, PRODUCER);
        tier = path_of(world, node, path);
        for (uint32_t i = pick(world, tier); i < tier; i++) {
            assert_int_equal(yb_sched_index_mark(world->index, name_of(path[i]), place), YB_OK);
            world->producer[path[i]] =
                world->producer[path[i]] != 0 ? world->producer[path[i]] : place + 1;
        }
        break;
    default:
        place = pick(world, PRODUCER);
        yb_sched_index_retire(world->index, place);
        for (uint32_t i = 0; i < NODES; i++) {
            world->producer[i] = world->producer[i] == place + 1 ? 0 : world->producer[i];
        }
        break;
    }
}

static void
test_sched_index__runs_with_gaps_are_those_of_a_model_if_each_block_is_looked_at(void **state)
{
    struct world world;
    uint32_t steps = unit_long() ? 50000 : 4000;

    (void)state;
    world_open(&world, "sched_index gaps");
    for (uint32_t i = 0; i < steps; i++) {
        step_any(&world);
        check_match(&world, pick(&world, NODES), true);
        if (i % 64 == 0) {
            sweep_all(&world);
            check_count(&world);
        }
    }
    for (uint32_t i = 0; i < NODES; i++) {
        for (uint32_t place = 0; place < PLACES; place++) {
            uint32_t tiers = 0;

            for (uint32_t tier = 0; tier < TIERS; tier++) {
                tiers |= (uint32_t)world.held[place][tier][i] << tier;
            }
            assert_int_equal(yb_sched_index_tiers(world.index, name_of(i), place), tiers);
        }
    }
    yb_sched_index_destroy(&world.index);
}

static void
test_sched_index__nothing_is_left_when_all_has_gone(void **state)
{
    struct world world;
    struct yb_sched_index_info info;

    (void)state;
    world_open(&world, "sched_index empty");
    for (uint32_t i = 0; i < 500; i++) {
        step_closed(&world);
    }
    for (uint32_t place = 0; place < PLACES; place++) {
        for (uint32_t tier = 0; tier < TIERS; tier++) {
            for (uint32_t node = 0; node < NODES; node++) {
                drop(&world, node, place, tier);
            }
        }
    }
    info = yb_sched_index_info(world.index);
    assert_int_equal(info.blocks, 0);
    assert_int_equal(info.sets, 0);
    assert_int_equal(info.set_bytes, 0);
    yb_sched_index_destroy(&world.index);
}

/* ---- places that go -------------------------------------------------------------------------- */

static void
test_sched_index__a_removed_place_is_nowhere_after_the_sweep(void **state)
{
    struct world world;

    (void)state;
    world_open(&world, "sched_index removed");
    for (uint32_t round = 0; round < 40; round++) {
        uint32_t gone = pick(&world, PLACES);
        bool left = true;

        for (uint32_t i = 0; i < 60; i++) {
            step_closed(&world);
        }
        yb_sched_index_remove_place(world.index, gone);
        memset(world.held[gone], 0, sizeof(world.held[gone]));
        while (left) { /* Others go on meanwhile, and move records about. */
            uint32_t node;
            uint32_t place;

            for (uint32_t i = 0; i < 40; i++) {
                node = pick(&world, NODES);
                place = pick(&world, PLACES);
                if (place != gone) {
                    drop_below(&world, node, place, pick(&world, TIERS));
                }
            }
            left = yb_sched_index_sweep(world.index, 20);
        }
        for (uint32_t node = 0; node < NODES; node++) {
            assert_int_equal(yb_sched_index_tiers(world.index, name_of(node), gone), 0);
        }
        check_count(&world);
        check_match(&world, pick(&world, NODES), false);
    }
    yb_sched_index_destroy(&world.index);
}

/* However many others go meanwhile, a pass over the table ends, and a place with it. */
static void
test_sched_index__each_place_is_swept_though_others_go_on_leaving(void **state)
{
    enum { SLOTS = 512, STEPS = 8, MANY = 200 };
    struct yb_sched_index *index = NULL;
    uint32_t turns = 0;

    (void)state;
    assert_int_equal(yb_sched_index_create(MANY, 300, 1 << 16, 1, &index), YB_OK);
    for (uint32_t place = 0; place < MANY; place++) {
        assert_int_equal(yb_sched_index_add(index, place + 1, place, YB_SCHED_TIER_DRAM), YB_OK);
    }
    yb_sched_index_remove_place(index, 0);
    while (!yb_sched_index_is_swept(index, 0)) {
        turns++;
        assert_true(turns <= 2 * SLOTS / STEPS); /* Some slots are looked at twice. */
        yb_sched_index_remove_place(index, turns);
        assert_true(yb_sched_index_sweep(index, STEPS));
    }
    assert_int_equal(yb_sched_index_tiers(index, 1, 0), 0);
    while (yb_sched_index_sweep(index, STEPS)) {
    }
    for (uint32_t place = 0; place <= turns; place++) {
        assert_true(yb_sched_index_is_swept(index, place));
        assert_int_equal(yb_sched_index_tiers(index, place + 1, place), 0);
    }
    yb_sched_index_destroy(&index);
}

static void
test_sched_index__what_the_object_store_had_is_forgotten_at_once(void **state)
{
    struct yb_sched_index *index = NULL;
    struct yb_sched_index_info info;

    (void)state;
    assert_int_equal(yb_sched_index_create(2, 200, 1 << 16, 1, &index), YB_OK);
    for (uint64_t block = 1; block <= 200; block++) {
        assert_int_equal(yb_sched_index_add(index, block, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT),
                         YB_OK);
        if (block % 2 == 0) {
            assert_int_equal(yb_sched_index_add(index, block, 1, YB_SCHED_TIER_DRAM), YB_OK);
        }
    }
    yb_sched_index_drop_shared(index);
    for (uint64_t block = 1; block <= 200; block++) {
        assert_int_equal(yb_sched_index_tiers(index, block, YB_SCHED_SHARED), 0);
        assert_int_equal(yb_sched_index_tiers(index, block, 1),
                         block % 2 == 0 ? 1u << YB_SCHED_TIER_DRAM : 0);
    }
    info = yb_sched_index_info(index);
    assert_int_equal(info.blocks, 100); /* Those that nobody has any more have made room. */
    yb_sched_index_destroy(&index);
}

/* Records close up while the sweep goes by: those that move back behind it are looked at, too. */
static void
test_sched_index__a_sweep_sees_what_moves_behind_it(void **state)
{
    enum { COUNT = 190 };
    uint64_t random = unit_seed("sched_index sweep");

    (void)state;
    for (uint32_t round = 0; round < 60; round++) {
        struct yb_sched_index *index = NULL;
        uint64_t gone[COUNT];
        uint64_t others[COUNT];
        uint32_t left = COUNT;

        assert_int_equal(yb_sched_index_create(2, 2 * COUNT, 1 << 16, 1, &index), YB_OK);
        for (uint32_t i = 0; i < COUNT; i++) {
            gone[i] = unit_random(&random);
            others[i] = unit_random(&random);
            assert_int_equal(yb_sched_index_add(index, gone[i], 0, YB_SCHED_TIER_DRAM), YB_OK);
            assert_int_equal(yb_sched_index_add(index, others[i], 1, YB_SCHED_TIER_DRAM), YB_OK);
        }
        yb_sched_index_remove_place(index, 0);
        while (yb_sched_index_sweep(index, 2)) {
            if (left > 0) {
                left--;
                assert_int_equal(yb_sched_index_drop(index, others[left], 1, YB_SCHED_TIER_DRAM),
                                 YB_OK);
            }
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_int_equal(yb_sched_index_tiers(index, gone[i], 0), 0);
        }
        assert_int_equal(yb_sched_index_info(index).blocks, left);
        yb_sched_index_destroy(&index);
    }
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static void
test_sched_index__more_blocks_than_its_bound_are_refused(void **state)
{
    struct yb_sched_index *index = NULL;

    (void)state;
    assert_int_equal(yb_sched_index_create(4, 100, 1 << 16, 4, &index), YB_OK);
    for (uint64_t i = 0; i < 100; i++) {
        assert_int_equal(yb_sched_index_add(index, i, 1, YB_SCHED_TIER_DRAM), YB_OK);
    }
    assert_int_equal(yb_sched_index_add(index, 100, 1, YB_SCHED_TIER_DRAM), YB_NO_SPACE);
    assert_int_equal(yb_sched_index_mark(index, 100, 0), YB_NO_SPACE);
    assert_int_equal(yb_sched_index_add(index, 7, 2, YB_SCHED_TIER_DRAM), YB_OK);
    assert_int_equal(yb_sched_index_drop(index, 50, 1, YB_SCHED_TIER_DRAM), YB_OK);
    assert_int_equal(yb_sched_index_add(index, 100, 1, YB_SCHED_TIER_DRAM), YB_OK);
    assert_int_equal(yb_sched_index_tiers(index, 50, 1), 0);
    assert_int_equal(yb_sched_index_tiers(index, 100, 1), 1u << YB_SCHED_TIER_DRAM);
    assert_int_equal(yb_sched_index_info(index).refused, 2);
    yb_sched_index_destroy(&index);
}

/* Sets without room for one holder more. A block that was refused is as it was. */
static void
test_sched_index__holders_beyond_the_bound_are_refused_and_nothing_else_changes(void **state)
{
    struct yb_sched_index *index = NULL;
    uint32_t refused = 0;
    uint64_t random = unit_seed("sched_index holders");

    (void)state;
    assert_int_equal(yb_sched_index_create(4000, 4000, 1 << 14, 4, &index), YB_OK);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t block = unit_random(&random) % 400;
        uint32_t place = (uint32_t)(unit_random(&random) % 4000);
        uint32_t before = yb_sched_index_tiers(index, block, place);
        enum yb_status status = yb_sched_index_add(index, block, place, YB_SCHED_TIER_SSD);
        uint32_t after = yb_sched_index_tiers(index, block, place);

        refused += status == YB_NO_SPACE;
        assert_int_equal(after, status == YB_OK ? 1u << YB_SCHED_TIER_SSD : before);
    }
    assert_true(refused > 0);
    assert_true(yb_sched_index_info(index).set_bytes <= 1 << 14);
    for (uint64_t block = 0; block < 400; block++) {
        for (uint32_t place = 0; place < 4000; place++) {
            if (yb_sched_index_tiers(index, block, place) != 0) {
                assert_int_equal(yb_sched_index_drop(index, block, place, YB_SCHED_TIER_SSD),
                                 YB_OK);
            }
        }
    }
    assert_int_equal(yb_sched_index_info(index).sets, 0);
    assert_int_equal(yb_sched_index_info(index).blocks, 0);
    yb_sched_index_destroy(&index);
}

static void
test_sched_index__a_long_prompt_takes_few_probes(void **state)
{
    enum { COUNT = 8000 };
    static uint64_t blocks[COUNT];
    struct yb_sched_index_prompt prompt = {blocks, COUNT, false};
    struct yb_sched_index_active active[8];
    struct yb_sched_hit hits[8];
    struct yb_sched_index_match match;
    struct yb_sched_index *index = NULL;

    (void)state;
    assert_int_equal(yb_sched_index_create(8, 20000, 1 << 20, 4, &index), YB_OK);
    for (uint32_t i = 0; i < COUNT; i++) {
        blocks[i] = name_of(i);
        for (uint32_t place = 0; place < 8; place++) {
            if (i < 1000 * (place + 1) - place) {
                assert_int_equal(yb_sched_index_add(index, blocks[i], place, place % 3), YB_OK);
            }
        }
    }
    yb_sched_index_match(index, &prompt, active, hits, &match);
    for (uint32_t place = 0; place < 8; place++) {
        assert_int_equal(hits[place].run[YB_SCHED_TIER_SSD], 1000 * (place + 1) - place);
    }
    assert_true(match.probes < 250);
    assert_int_equal(yb_sched_index_info(index).sets, 8);
    yb_sched_index_destroy(&index);
}

static void
test_sched_index__equal_sets_are_one(void **state)
{
    struct yb_sched_sets sets;
    uint32_t one = 0;
    uint32_t other = 0;
    uint32_t count;

    (void)state;
    assert_int_equal(yb_sched_sets_init(&sets, 1 << 16), YB_OK);
    for (uint32_t i = 0; i < 20; i++) {
        assert_int_equal(yb_sched_sets_change(&sets, &one, i * 3, 1 + i % 7), YB_OK);
    }
    for (uint32_t i = 20; i > 0; i--) {
        assert_int_equal(yb_sched_sets_change(&sets, &other, (i - 1) * 3, 2), YB_OK);
        assert_int_equal(yb_sched_sets_change(&sets, &other, (i - 1) * 3, 1 + (i - 1) % 7), YB_OK);
    }
    assert_int_equal(one, other);
    assert_int_equal(sets.set_count, 1);
    (void)yb_sched_sets_members(&sets, one, &count);
    assert_int_equal(count, 20);
    assert_int_equal(yb_sched_sets_change(&sets, &other, 9, 0), YB_OK);
    assert_int_not_equal(one, other);
    assert_int_equal(yb_sched_sets_tiers(&sets, one, 9), 4);
    assert_int_equal(yb_sched_sets_tiers(&sets, other, 9), 0);
    yb_sched_sets_release(&sets, one);
    yb_sched_sets_release(&sets, other);
    assert_int_equal(sets.set_count, 0);
    yb_sched_sets_fini(&sets);
}

static void
test_sched_index__bounds_that_cannot_be_are_refused(void **state)
{
    struct yb_sched_index *index = NULL;

    (void)state;
    assert_int_equal(yb_sched_index_create(0, 1, 1, 1, &index), YB_INVALID);
    assert_int_equal(yb_sched_index_create(YB_SCHED_PLACES_MAX + 1, 1, 1, 1, &index), YB_INVALID);
    assert_int_equal(yb_sched_index_create(1, 0, 1, 1, &index), YB_INVALID);
    assert_int_equal(yb_sched_index_create(1, 1, 1, 0, &index), YB_INVALID);
    assert_null(index);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_index__runs_by_jumping_are_those_of_a_model),
        cmocka_unit_test(
            test_sched_index__runs_with_gaps_are_those_of_a_model_if_each_block_is_looked_at),
        cmocka_unit_test(test_sched_index__nothing_is_left_when_all_has_gone),
        cmocka_unit_test(test_sched_index__a_removed_place_is_nowhere_after_the_sweep),
        cmocka_unit_test(test_sched_index__each_place_is_swept_though_others_go_on_leaving),
        cmocka_unit_test(test_sched_index__what_the_object_store_had_is_forgotten_at_once),
        cmocka_unit_test(test_sched_index__a_sweep_sees_what_moves_behind_it),
        cmocka_unit_test(test_sched_index__more_blocks_than_its_bound_are_refused),
        cmocka_unit_test(
            test_sched_index__holders_beyond_the_bound_are_refused_and_nothing_else_changes),
        cmocka_unit_test(test_sched_index__a_long_prompt_takes_few_probes),
        cmocka_unit_test(test_sched_index__equal_sets_are_one),
        cmocka_unit_test(test_sched_index__bounds_that_cannot_be_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
