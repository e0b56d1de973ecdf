/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of one prompt that lie at several places: each comes from where it is there first, by
 * numbers that can be worked out by hand. Place 0 computes; 1, 2 and 3 only hold blocks.
 */
#include "sched_ground.h"

#include <math.h>

#define BLOCK_NS     (512 * 327680 / 12.5) /* Of the network, 13.4 ms. */
#define SSD_BLOCK_NS (512 * 327680 / 7.0)
#define HOPS_NS      20e3 /* Out of one place and into another. */
#define DISK_NS      100e3
#define NEAR_NS      1e3

static void
open_ground(struct ground *ground, bool gather)
{
    struct yb_sched_options options = ground_options("ready");

    options.gather = gather;
    options.exact = true;
    ground_open(ground, &options, 4);
    for (uint32_t place = 1; place < 4; place++) {
        struct yb_sched_instance instance = ground_instance(place);

        instance.roles = 0;
        assert_int_equal(yb_sched_set_instance(ground->sched, place, &instance), YB_OK);
    }
}

/* The blocks first .. end - 1 come to a place. */
static void
hold(struct ground *ground, uint32_t place, uint32_t tier, uint32_t first, uint32_t end)
{
    for (uint32_t i = first; i < end; i++) {
        assert_int_equal(yb_sched_add(ground->sched, ground->blocks[i], place, tier), YB_OK);
    }
}

static struct yb_sched_decision
decide(struct ground *ground, uint32_t count)
{
    const struct yb_sched_request request = ground_request(ground, count);

    return ground_decide(ground, &request);
}

/* How many blocks come from a tier of a place. */
static uint32_t
from(const struct yb_sched_decision *decision, uint32_t place, uint32_t tier)
{
    for (uint32_t i = 0; i < decision->source_count; i++) {
        if (decision->sources[i].from == place && decision->sources[i].tier == tier) {
            return decision->sources[i].blocks;
        }
    }
    return 0;
}

static bool
is_near(double a, double b)
{
    return fabs(a - b) < NEAR_NS;
}

/* From the object store alone they would take 20 ms and 168 ms a block. */
static void
test_sched_gather__halves_at_two_places_are_not_expected_from_the_object_store(void **state)
{
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    for (uint32_t gather = 0; gather < 2; gather++) {
        open_ground(&ground, gather == 1);
        hold(&ground, 1, YB_SCHED_TIER_DRAM, 0, 30);
        hold(&ground, 2, YB_SCHED_TIER_DRAM, 30, 60);
        hold(&ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 0, 60);
        decision = decide(&ground, 60);
        if (gather == 0) {
            assert_true(decision.reuse_blocks < 60 || decision.load_ns > 60 * 160 * GROUND_MS);
            assert_int_equal(decision.source_count, 0);
        } else {
            assert_int_equal(decision.reuse_blocks, 60);
            assert_int_equal(decision.source, YB_SCHED_SHARED);
            assert_int_equal(decision.source_tier, YB_SCHED_TIER_DRAM);
            assert_int_equal(from(&decision, 1, YB_SCHED_TIER_DRAM), 30);
            assert_int_equal(from(&decision, 2, YB_SCHED_TIER_DRAM), 30);
            /* Each could send its half at the rate at which both come in. */
            assert_true(is_near((double)decision.load_ns, HOPS_NS + 60 * BLOCK_NS));
            assert_int_equal(decision.instruction_count, 1);
            assert_int_equal(decision.instructions[0].first, 0);
            assert_int_equal(decision.instructions[0].count, 60);
            assert_int_equal(decision.instructions[0].from, YB_SCHED_SHARED);
        }
        ground_close(&ground);
    }
}

/* A disk is a link on the way, with a latency and a rate of its own. */
static void
test_sched_gather__what_lies_on_a_disk_comes_as_fast_as_the_disk(void **state)
{
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    open_ground(&ground, true);
    hold(&ground, 1, YB_SCHED_TIER_DRAM, 0, 4);
    hold(&ground, 2, YB_SCHED_TIER_SSD, 4, 64);
    decision = decide(&ground, 64);
    assert_int_equal(from(&decision, 1, YB_SCHED_TIER_DRAM), 4);
    assert_int_equal(from(&decision, 2, YB_SCHED_TIER_SSD), decision.reuse_blocks - 4);
    assert_int_equal(decision.source_tier, YB_SCHED_TIER_SSD);
    assert_true(is_near((double)decision.load_ns,
                        HOPS_NS + DISK_NS + (decision.reuse_blocks - 4) * SSD_BLOCK_NS));
    ground_close(&ground);
}

/* All of it from one place: the decision names it, as ever. */
static void
test_sched_gather__one_source_is_named(void **state)
{
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    open_ground(&ground, true);
    hold(&ground, 0, YB_SCHED_TIER_DRAM, 0, 10);
    hold(&ground, 3, YB_SCHED_TIER_DRAM, 5, 40); /* No run of the prompt's. */
    hold(&ground, 3, YB_SCHED_TIER_SSD, 5, 40);
    decision = decide(&ground, 60);
    assert_int_equal(decision.local_blocks, 10);
    assert_int_equal(decision.reuse_blocks, 40);
    assert_int_equal(decision.source, 3);
    assert_int_equal(decision.source_tier, YB_SCHED_TIER_DRAM);
    assert_int_equal(decision.source_count, 1);
    assert_int_equal(decision.instructions[0].from, 3);
    assert_int_equal(decision.instructions[0].first, 10);
    assert_int_equal(decision.instructions[0].count, 30);
    ground_close(&ground);
}

/* Nothing behind a block that lies nowhere is of use; who is gone holds nothing. */
static void
test_sched_gather__it_ends_at_the_first_block_that_lies_nowhere(void **state)
{
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    open_ground(&ground, true);
    hold(&ground, 1, YB_SCHED_TIER_DRAM, 0, 20);
    hold(&ground, 2, YB_SCHED_TIER_DRAM, 20, 40);
    hold(&ground, 3, YB_SCHED_TIER_DRAM, 41, 60);
    decision = decide(&ground, 60);
    assert_int_equal(decision.reuse_blocks, 40);
    assert_int_equal(yb_sched_remove_instance(ground.sched, 2), YB_OK);
    decision = decide(&ground, 60);
    assert_int_equal(decision.reuse_blocks, 20);
    assert_int_equal(decision.source, 1);
    ground_close(&ground);
}

/* Decide about 30 blocks, of which `near` lie in memory and the others on a disk, and carry it out.
 */
static struct yb_sched_decision
take(struct ground *ground, uint32_t near)
{
    struct yb_sched_request request;
    struct yb_sched_decision decision;

    open_ground(ground, true);
    hold(ground, 1, YB_SCHED_TIER_DRAM, 0, near);
    hold(ground, 2, YB_SCHED_TIER_SSD, near, 30);
    request = ground_request(ground, 30);
    decision = ground_decide(ground, &request);
    assert_int_equal(decision.source_count, 2);
    assert_int_equal(yb_sched_commit(ground->sched, &request, &decision, ground->now_ns), YB_OK);
    yb_sched_ended(ground->sched, decision.number, ground->now_ns);
    return decision;
}

/* What one decision takes from each source is in the way of the next one: on what is fullest. */
static void
test_sched_gather__each_source_gets_its_part_of_the_backlog(void **state)
{
    struct yb_sched_decision decision, next;
    struct ground ground;
    double waits_ns;

    (void)state;
    /* From place 1: all that was decided is at the way in, 10 blocks of it at the way out. */
    decision = take(&ground, 10);
    next = decide(&ground, 10);
    assert_int_equal(next.source, 1);
    assert_true(is_near((double)next.load_ns,
                        HOPS_NS + (decision.reuse_blocks + next.reuse_blocks) * BLOCK_NS));
    ground_close(&ground);
    /* The disk of place 2 has the most before it. */
    decision = take(&ground, 1);
    next = decide(&ground, 60);
    assert_int_equal(next.source_count, 2);
    waits_ns = (decision.reuse_blocks - 1) * SSD_BLOCK_NS;
    assert_true(waits_ns > decision.reuse_blocks * BLOCK_NS);
    assert_true(is_near((double)next.load_ns,
                        HOPS_NS + DISK_NS + waits_ns + (next.reuse_blocks - 1) * SSD_BLOCK_NS));
    ground_close(&ground);
}

/* More changes along a prompt than are noted: the rest comes from the object store, if it is there,
 * and is not reused otherwise. */
static void
test_sched_gather__many_changes_end_in_the_object_store(void **state)
{
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    for (uint32_t object = 0; object < 2; object++) {
        open_ground(&ground, true);
        for (uint32_t i = 0; i < GROUND_BLOCKS; i++) {
            hold(&ground, 1 + i % 2, YB_SCHED_TIER_DRAM, i, i + 1);
        }
        if (object == 1) {
            hold(&ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 0, GROUND_BLOCKS);
        }
        decision = decide(&ground, GROUND_BLOCKS);
        assert_int_equal(from(&decision, 1, YB_SCHED_TIER_DRAM), 16);
        assert_int_equal(from(&decision, 2, YB_SCHED_TIER_DRAM), 15);
        assert_int_equal(from(&decision, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT),
                         decision.reuse_blocks - 31);
        assert_true(object == 1 ? decision.reuse_blocks > 31 : decision.reuse_blocks == 31);
        ground_close(&ground);
    }
}

/* Against a table of who has what: no block is reused that lies nowhere, all that is reused has a
 * source that has it, and no more sources are named than there are. */
static void
test_sched_gather__sources_have_what_they_are_asked_for(void **state)
{
    uint64_t random = unit_seed("sched_gather");

    (void)state;
    for (uint32_t round = 0; round < 300; round++) {
        uint32_t held[5][2] = {{0}}; /* Blocks by place, the object store the last, and tier. */
        struct yb_sched_decision decision;
        struct ground ground;
        uint32_t run = 0;
        bool gap = false;

        open_ground(&ground, true);
        for (uint32_t i = 0; i < 40; i++) {
            bool somewhere = false;

            for (uint32_t place = 1; place < 5; place++) {
                uint32_t draw = (uint32_t)(unit_random(&random) % 16);
                uint32_t tier = place == 4      ? YB_SCHED_TIER_OBJECT
                                : draw % 2 == 0 ? YB_SCHED_TIER_DRAM
                                                : YB_SCHED_TIER_SSD;

                if (draw < 10) {
                    hold(&ground, place == 4 ? YB_SCHED_SHARED : place, tier, i, i + 1);
                    held[place][tier == YB_SCHED_TIER_SSD]++;
                    somewhere = true;
                }
            }
            gap = gap || !somewhere;
            run += !gap;
        }
        decision = decide(&ground, 40);
        assert_true(decision.reuse_blocks <= run);
        assert_true(decision.source_count <= YB_SCHED_SOURCES_MAX);
        for (uint32_t i = 0; i < decision.source_count; i++) {
            const struct yb_sched_source *at = &decision.sources[i];
            const uint32_t place = at->from == YB_SCHED_SHARED ? 4 : at->from;

            assert_true(at->blocks > 0);
            assert_true(at->blocks <= held[place][at->tier == YB_SCHED_TIER_SSD]);
            run -= run < at->blocks ? run : at->blocks;
        }
        ground_close(&ground);
    }
}

/* More idle places than are looked at closely: where it lies already is among those that are. */
static void
test_sched_gather__of_many_places_the_one_that_has_it_is_looked_at(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct yb_sched_decision decision;
    struct ground ground;

    (void)state;
    options.gather = true;
    for (uint32_t place = 0; place < 100; place += 33) {
        ground_open(&ground, &options, 100);
        hold(&ground, place, YB_SCHED_TIER_DRAM, 0, 60);
        decision = decide(&ground, 60);
        assert_int_equal(decision.prefill, place);
        assert_true(decision.local_blocks > 50);
        ground_close(&ground);
        /* Also what is no run there. */
        ground_open(&ground, &options, 100);
        hold(&ground, 50, YB_SCHED_TIER_DRAM, 0, 10);
        hold(&ground, place, YB_SCHED_TIER_DRAM, 10, 60);
        decision = decide(&ground, 60);
        assert_int_equal(decision.prefill, place);
        assert_int_equal(from(&decision, 50, YB_SCHED_TIER_DRAM), 10);
        ground_close(&ground);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_sched_gather__halves_at_two_places_are_not_expected_from_the_object_store),
        cmocka_unit_test(test_sched_gather__what_lies_on_a_disk_comes_as_fast_as_the_disk),
        cmocka_unit_test(test_sched_gather__one_source_is_named),
        cmocka_unit_test(test_sched_gather__it_ends_at_the_first_block_that_lies_nowhere),
        cmocka_unit_test(test_sched_gather__each_source_gets_its_part_of_the_backlog),
        cmocka_unit_test(test_sched_gather__many_changes_end_in_the_object_store),
        cmocka_unit_test(test_sched_gather__of_many_places_the_one_that_has_it_is_looked_at),
        cmocka_unit_test(test_sched_gather__sources_have_what_they_are_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
