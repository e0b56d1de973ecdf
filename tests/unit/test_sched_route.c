/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing policies, against decisions worked out by hand and against trying everything.
 */
#include "sched_ground.h"

#include <math.h>

#include "sched/route.h"
#include "sched/sched_internal.h"

static struct yb_sched_decision
decide_once(struct ground *ground, uint32_t blocks)
{
    struct yb_sched_request request = ground_request(ground, blocks);
    struct yb_sched_decision decision = ground_decide(ground, &request);

    assert_true(decision.accepted);
    return decision;
}

/* ---- the plain ones -------------------------------------------------------------------------- */

static void
test_sched_route__round_robin_takes_each_place_in_turn(void **state)
{
    struct yb_sched_options options = ground_options("round-robin");
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 5);
    for (uint32_t i = 0; i < 15; i++) {
        struct yb_sched_request request = ground_request(&ground, 3);
        struct yb_sched_decision decision = ground_decide(&ground, &request);

        assert_int_equal(decision.prefill, i % 5);
        assert_int_equal(yb_sched_commit(ground.sched, &request, &decision, ground.now_ns), YB_OK);
    }
    ground_close(&ground);
}

static void
test_sched_route__random_takes_all_places_and_not_in_turn(void **state)
{
    struct yb_sched_options options = ground_options("random");
    struct ground ground;
    uint32_t counts[8] = {0};
    uint32_t follows = 0;
    uint32_t last = 0;

    (void)state;
    ground_open(&ground, &options, 8);
    for (uint32_t i = 0; i < 800; i++) {
        struct yb_sched_decision decision = decide_once(&ground, 3);

        follows += decision.prefill == (last + 1) % 8;
        last = decision.prefill;
        counts[last]++;
    }
    for (uint32_t i = 0; i < 8; i++) {
        assert_in_range(counts[i], 60, 140);
    }
    assert_true(follows < 200);
    ground_close(&ground);
}

static void
test_sched_route__least_load_takes_the_shortest_queue_whatever_lies_where(void **state)
{
    struct yb_sched_options options = ground_options("least-load");
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 4);
    ground_add(&ground, 0, YB_SCHED_TIER_DEVICE, 60);
    ground_busy(&ground, 0, 3 * GROUND_MS);
    ground_busy(&ground, 1, 2 * GROUND_MS);
    ground_busy(&ground, 2, 1 * GROUND_MS);
    ground_busy(&ground, 3, 9 * GROUND_MS);
    assert_int_equal(decide_once(&ground, 60).prefill, 2);
    ground_close(&ground);
}

/* 60 blocks are 4.06 s of prefill; with 48 of them reused, 0.98 s. */
static void
test_sched_route__cache_local_weighs_a_prefix_against_a_queue(void **state)
{
    struct yb_sched_options options = ground_options("cache-local");
    struct ground ground;
    struct yb_sched_decision decision;

    (void)state;
    ground_open(&ground, &options, 4);
    ground_add(&ground, 2, YB_SCHED_TIER_DRAM, 48);
    ground_busy(&ground, 2, 2900 * GROUND_MS);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 2);
    assert_int_equal(decision.reuse_blocks, 48);
    ground_busy(&ground, 2, 3300 * GROUND_MS);
    decision = decide_once(&ground, 60);
    assert_int_not_equal(decision.prefill, 2);
    assert_int_equal(decision.reuse_blocks, 0);
    assert_int_equal(decision.source, YB_SCHED_NONE);
    assert_int_equal(decision.instruction_count, 0);
    ground_close(&ground);
}

/* ---- those of others ------------------------------------------------------------------------- */

static void
report_load(struct ground *ground, uint32_t place, uint32_t queued, uint32_t running,
            uint64_t tokens)
{
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report),
        .sequence = ++ground->requests,
        .at_ns = ground->now_ns,
        .prefill_tokens = tokens,
        .queued = queued,
        .running = running,
    };

    assert_int_equal(yb_sched_report(ground->sched, place, &report), YB_OK);
}

/* 4 x 2 + 1 = 9, 4 x 1 + 4 = 8, 4 x 0 + 9 = 9. */
static void
test_sched_route__vllm_counts_those_that_wait_four_times(void **state)
{
    struct yb_sched_options options = ground_options("vllm");
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 3);
    report_load(&ground, 0, 2, 1, 0);
    report_load(&ground, 1, 1, 4, 0);
    report_load(&ground, 2, 0, 9, 0);
    assert_int_equal(decide_once(&ground, 3).prefill, 1);
    ground_close(&ground);
}

/* Ten blocks and a token are 5121 tokens. Place 0 has 8 blocks: 1025 x (9 + 1) = 10250; place 1 has
 * none: 5121 x (0 + 1) = 5121. With one request at place 0 it is 1025 x 2 = 2050. */
static void
test_sched_route__lmetric_multiplies_new_tokens_with_requests(void **state)
{
    struct yb_sched_options options = ground_options("lmetric");
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 2);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 8);
    report_load(&ground, 0, 0, 9, 0);
    assert_int_equal(decide_once(&ground, 10).prefill, 1);
    report_load(&ground, 0, 0, 1, 0);
    assert_int_equal(decide_once(&ground, 10).prefill, 0);
    ground_close(&ground);
}

/* Decide and carry out, and be done with it at once; returns the decision. */
static struct yb_sched_decision
serve_once(struct ground *ground, uint32_t blocks)
{
    struct yb_sched_request request = ground_request(ground, blocks);
    struct yb_sched_decision decision = ground_decide(ground, &request);

    assert_int_equal(yb_sched_commit(ground->sched, &request, &decision, ground->now_ns), YB_OK);
    yb_sched_ended(ground->sched, decision.number, ground->now_ns);
    ground->now_ns += GROUND_S;
    return decision;
}

/* One of four places has what all want: an alarm from the second request on, and after two that
 * went there nevertheless the place is left out. Two minutes later nobody remembers. */
static void
test_sched_route__lmetric_goes_past_a_hotspot_unless_its_detector_is_off(void **state)
{
    (void)state;
    for (uint32_t off = 0; off < 2; off++) {
        struct yb_sched_options options = ground_options("lmetric");
        struct ground ground;

        options.no_detector = off;
        ground_open(&ground, &options, 4);
        ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 8);
        for (uint32_t i = 0; i < 6; i++) {
            struct yb_sched_decision decision = serve_once(&ground, 9);
            uint32_t hotspot = off || i == 0 ? YB_SCHED_HOTSPOT_NONE
                               : i < 3       ? YB_SCHED_HOTSPOT_ALARM
                                             : YB_SCHED_HOTSPOT_AVOIDED;

            assert_int_equal(decision.hotspot, hotspot);
            assert_int_equal(decision.prefill == 0, hotspot != YB_SCHED_HOTSPOT_AVOIDED);
        }
        ground.now_ns += 120 * GROUND_S;
        assert_int_equal(serve_once(&ground, 9).prefill, 0);
        ground_close(&ground);
    }
}

/* One of four places has what one request in five wants: that is not too much. */
static void
test_sched_route__lmetric_sees_no_hotspot_in_what_holders_can_serve(void **state)
{
    struct yb_sched_options options = ground_options("lmetric");
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 4);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 8);
    for (uint32_t i = 0; i < 60; i++) {
        bool hot = i % 5 == 4;
        struct yb_sched_decision decision;

        ground.blocks[0] = hot ? 1000 : 100000 + i;
        decision = serve_once(&ground, 9);
        assert_int_equal(decision.best_blocks, hot ? 8 : 0);
        assert_int_equal(decision.hotspot, YB_SCHED_HOTSPOT_NONE);
        assert_true(!hot || decision.prefill == 0);
    }
    ground_close(&ground);
}

/* Within a spread of 32 the longest prefix; beyond it the fewest requests, which pull what they do
 * not have if it is more than 512 tokens. */
static void
test_sched_route__seer_pulls_where_the_spread_forbids_the_prefix(void **state)
{
    struct yb_sched_options options = ground_options("seer");
    struct ground ground;
    struct yb_sched_decision decision;

    (void)state;
    ground_open(&ground, &options, 2);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 8);
    report_load(&ground, 0, 0, 32, 0);
    assert_int_equal(decide_once(&ground, 10).prefill, 0);
    report_load(&ground, 0, 0, 33, 0);
    decision = decide_once(&ground, 10);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.source, 0);
    assert_int_equal(decision.reuse_blocks, 8);
    ground_add(&ground, 1, YB_SCHED_TIER_DRAM, 7);
    decision = decide_once(&ground, 10);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.source, YB_SCHED_NONE);
    ground_close(&ground);
}

/* ---- mooncake -------------------------------------------------------------------------------- */

/* The best place has a long queue: an idle one fetches all that the best has. */
static void
test_sched_route__mooncake_fetches_where_the_best_place_has_much_more(void **state)
{
    struct yb_sched_options options = ground_options("mooncake");
    struct ground ground;
    struct yb_sched_decision decision;
    const struct yb_sched_instruction *fetch;
    double transfer_ns = 48 * 512 * 327680.0 / 12.5e9 * 1e9 + 20000;

    (void)state;
    ground_open(&ground, &options, 4);
    ground_add(&ground, 2, YB_SCHED_TIER_DRAM, 48);
    ground_busy(&ground, 2, 5 * GROUND_S);
    ground_busy(&ground, 0, 1 * GROUND_S);
    ground_busy(&ground, 3, 1 * GROUND_S);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.source, 2);
    assert_int_equal(decision.reuse_blocks, 48);
    assert_int_equal(decision.instruction_count, 1);
    fetch = &decision.instructions[0];
    assert_int_equal(fetch->kind, YB_SCHED_KIND_FETCH);
    assert_int_equal(fetch->first, 0);
    assert_int_equal(fetch->count, 48);
    assert_int_equal(fetch->from, 2);
    assert_int_equal(fetch->to, 1);
    assert_int_equal(fetch->bytes, 48ull * 512 * 327680);
    assert_true(fabs((double)decision.load_ns - transfer_ns) < 2000);
    /* Queue, transfer and prefill are added up. */
    assert_true(fabs((double)decision.ttft_ns - transfer_ns - (double)decision.prefill_ns) < 2000);
    ground_close(&ground);
}

static void
test_sched_route__mooncake_recomputes_where_the_best_place_has_little_more(void **state)
{
    struct yb_sched_options options = ground_options("mooncake");
    struct ground ground;
    struct yb_sched_decision decision;

    (void)state;
    ground_open(&ground, &options, 2);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 60);
    ground_add(&ground, 1, YB_SCHED_TIER_DRAM, 41); /* 60 / 41 is less than 1.5. */
    ground_busy(&ground, 0, 9 * GROUND_S);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.reuse_blocks, 41);
    assert_int_equal(decision.source, YB_SCHED_NONE);
    ground_close(&ground);

    options.fetch_threshold = 1.4;
    ground_open(&ground, &options, 2);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 60);
    ground_add(&ground, 1, YB_SCHED_TIER_DRAM, 41);
    ground_busy(&ground, 0, 9 * GROUND_S);
    assert_int_equal(decide_once(&ground, 60).source, 0);
    ground_close(&ground);
}

/* ---- ready ----------------------------------------------------------------------------------- */

/* 48 blocks are 8 GB: 0.64 s over the network and 3.0 s to compute. A backlog makes the network
 * slower than that. */
static void
test_sched_route__ready_counts_what_waits_on_the_links(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct ground ground;
    struct yb_sched_report report = {.struct_bytes = sizeof(report), .sequence = 1000};
    struct yb_sched_decision decision;

    (void)state;
    ground_open(&ground, &options, 2);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 48);
    ground_busy(&ground, 0, 9 * GROUND_S);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.source, 0);
    assert_int_equal(decision.reuse_blocks, 48);
    assert_in_range(decision.load_ns, 640 * GROUND_MS, 660 * GROUND_MS);
    report.at_ns = ground.now_ns;
    report.backlog_bytes[YB_SCHED_LINK_IN] = 125000000000; /* 10 s */
    assert_int_equal(yb_sched_report(ground.sched, 1, &report), YB_OK);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 1);
    assert_int_equal(decision.source, YB_SCHED_NONE);
    assert_int_equal(decision.reuse_blocks, 0);
    ground_close(&ground);
}

/* Over 1 GB/s it pays to load a part and to compute the rest meanwhile. */
static void
test_sched_route__ready_splits_where_loading_and_computing_end_together(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct ground ground;
    struct yb_sched_decision split;
    struct yb_sched_decision whole;

    (void)state;
    ground_open(&ground, &options, 1);
    ground_add(&ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 60);
    split = decide_once(&ground, 60);
    assert_int_equal(split.source, YB_SCHED_SHARED);
    assert_int_equal(split.source_tier, YB_SCHED_TIER_OBJECT);
    assert_in_range(split.reuse_blocks, 10, 35);
    assert_true(fabs((double)split.load_ns - (double)split.prefill_ns) <
                0.1 * (double)split.prefill_ns);
    ground_close(&ground);
    options.no_split = true;
    ground_open(&ground, &options, 1);
    ground_add(&ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, 60);
    whole = decide_once(&ground, 60);
    assert_true(whole.reuse_blocks == 0 || whole.reuse_blocks == 60);
    assert_true(split.ttft_ns * 5 < whole.ttft_ns * 4);
    ground_close(&ground);
}

/* A prompt that somebody computes already: the second request waits for it, where that is
 * sooner. */
static void
test_sched_route__ready_waits_for_who_is_computing_the_prompt_already(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct ground ground;
    struct yb_sched_request request;
    struct yb_sched_decision first;
    struct yb_sched_decision second;

    (void)state;
    ground_open(&ground, &options, 2);
    request = ground_request(&ground, 60);
    first = ground_decide(&ground, &request);
    assert_int_equal(yb_sched_commit(ground.sched, &request, &first, ground.now_ns), YB_OK);
    ground.now_ns += 3 * GROUND_S; /* A second later it is there; computing takes four. */
    second = decide_once(&ground, 60);
    assert_int_equal(second.prefill, first.prefill);
    assert_int_equal(second.soon_blocks, 60);
    assert_true(second.ttft_ns < 2 * GROUND_S);
    /* The place itself may not be taken: the other one fetches when it is computed. */
    request = ground_request(&ground, 60);
    request.not_at = first.prefill + 1;
    second = ground_decide(&ground, &request);
    assert_int_equal(second.source, first.prefill);
    assert_in_range(second.reuse_blocks, 30, 60);
    assert_int_equal(second.instructions[0].not_before_ns, first.ttft_ns + 1000 * GROUND_S);
    assert_true(second.ready_ns > first.ttft_ns + 1000 * GROUND_S);
    assert_true(second.ttft_ns < 2 * GROUND_S);
    ground_close(&ground);
    /* Without, it would begin anew. */
    options.no_soon = true;
    ground_open(&ground, &options, 2);
    request = ground_request(&ground, 60);
    first = ground_decide(&ground, &request);
    assert_int_equal(yb_sched_commit(ground.sched, &request, &first, ground.now_ns), YB_OK);
    ground.now_ns += 3 * GROUND_S;
    assert_int_not_equal(decide_once(&ground, 60).prefill, first.prefill);
    ground_close(&ground);
}

/* Two sources, one of them in this rack, and a way between racks that is full. */
static void
test_sched_route__ready_fetches_within_the_rack_when_the_uplink_is_full(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct ground ground;
    struct yb_sched_decision decision;
    struct yb_sched_link uplinks[YB_SCHED_UPLINKS] = {{25e9, 5000, 0, 0}, {25e9, 5000, 0, 0}};

    (void)state;
    ground_open(&ground, &options, 4);
    for (uint32_t i = 0; i < 4; i++) {
        struct yb_sched_instance instance = ground_instance(i);

        instance.rack = i / 2;
        assert_int_equal(yb_sched_set_instance(ground.sched, i, &instance), YB_OK);
    }
    assert_int_equal(yb_sched_set_rack(ground.sched, 0, uplinks), YB_OK);
    assert_int_equal(yb_sched_set_rack(ground.sched, 1, uplinks), YB_OK);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 60); /* The longest, in the other rack. */
    ground_add(&ground, 2, YB_SCHED_TIER_DRAM, 50);
    for (uint32_t i = 0; i < 3; i++) {
        ground_busy(&ground, i, 9 * GROUND_S);
    }
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 3);
    assert_int_equal(decision.source, 0);
    uplinks[YB_SCHED_UPLINK_DOWN].backlog_bytes = 100000000000;
    uplinks[YB_SCHED_UPLINK_DOWN].at_ns = ground.now_ns;
    assert_int_equal(yb_sched_set_rack(ground.sched, 1, uplinks), YB_OK);
    decision = decide_once(&ground, 60);
    assert_int_equal(decision.prefill, 3);
    assert_int_equal(decision.source, 2);
    assert_int_equal(decision.reuse_blocks, 50);
    ground_close(&ground);
}

/* What is fetched from one place makes the next fetch from there later. */
static void
test_sched_route__a_fetch_that_was_decided_is_a_backlog_for_the_next(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct ground ground;
    struct yb_sched_request request;
    struct yb_sched_decision first;
    struct yb_sched_decision second;

    (void)state;
    ground_open(&ground, &options, 3);
    ground_add(&ground, 0, YB_SCHED_TIER_DRAM, 40);
    ground_busy(&ground, 0, 9 * GROUND_S);
    request = ground_request(&ground, 42);
    first = ground_decide(&ground, &request);
    assert_int_equal(first.source, 0);
    assert_int_equal(yb_sched_commit(ground.sched, &request, &first, ground.now_ns), YB_OK);
    ground.blocks[40] += 5000; /* Another prompt with the same beginning. */
    ground.blocks[41] += 5000;
    request = ground_request(&ground, 42);
    request.not_at = first.prefill + 1;
    second = ground_decide(&ground, &request);
    assert_int_equal(second.source, 0);
    assert_true((double)second.load_ns >= (double)first.load_ns +
                                              (double)second.instructions[0].bytes / 12.5e9 * 1e9 -
                                              100000);
    ground_close(&ground);
}

/* ---- ready, against trying everything -------------------------------------------------------- */

/* The earliest first token of all places, sources and splits. */
static double
best_of_all(const struct yb_sched_view *view)
{
    double best = INFINITY;

    for (uint32_t i = 0; i < view->prefill_count; i++) {
        uint32_t place = view->prefills[i];
        struct yb_sched_plan plan = {0};

        yb_sched_plan_split(view, place, YB_SCHED_NONE, 0, &plan);
        best = fmin(best, plan.finish_ns);
        yb_sched_plan_split(view, place, YB_SCHED_SHARED, view->object_blocks, &plan);
        best = fmin(best, plan.finish_ns);
        for (uint32_t source = 0; source < view->places_max; source++) {
            if (source != place) {
                yb_sched_plan_split(view, place, source, yb_sched_view_run(view, source, true),
                                    &plan);
                best = fmin(best, plan.finish_ns);
            }
        }
    }
    return best;
}

static void
fill_at_random(struct ground *ground, uint64_t *random)
{
    for (uint32_t i = 0; i < ground->places; i++) {
        struct yb_sched_instance instance = ground_instance(i);
        uint32_t run = (uint32_t)(unit_random(random) % GROUND_BLOCKS);

        instance.rack = i % 3;
        instance.links[YB_SCHED_LINK_OUT].backlog_bytes = unit_random(random) % 8 * 1000000000;
        instance.links[YB_SCHED_LINK_OUT].at_ns = ground->now_ns;
        assert_int_equal(yb_sched_set_instance(ground->sched, i, &instance), YB_OK);
        if (unit_random(random) % 3 == 0) {
            ground_add(ground, i, YB_SCHED_TIER_SSD, run);
            ground_add(ground, i, YB_SCHED_TIER_DRAM, run / 2);
        }
        if (unit_random(random) % 2 == 0) {
            ground_busy(ground, i, unit_random(random) % 4000 * GROUND_MS);
        }
    }
    if (unit_random(random) % 2 == 0) {
        ground_add(ground, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, GROUND_BLOCKS);
    }
}

/* It looks at few sources and few places, so it may miss the very best, by little and seldom. */
static void
test_sched_route__ready_is_nearly_as_good_as_trying_everything(void **state)
{
    uint64_t random = unit_seed("sched_route ready");
    uint32_t rounds = unit_long() ? 600 : 60;
    double excess = 0;

    (void)state;
    for (uint32_t round = 0; round < rounds; round++) {
        struct yb_sched_options options = ground_options("ready");
        struct ground ground;
        struct yb_sched_request request;
        struct yb_sched_decision decision;
        struct yb_sched_view view;
        double best;

        ground_open(&ground, &options, round % 2 == 0 ? 12 : 100);
        fill_at_random(&ground, &random);
        request = ground_request(&ground, 1 + (uint32_t)(unit_random(&random) % 63));
        decision = ground_decide(&ground, &request);
        assert_true(
            yb_sched_view_fill(ground.sched, ground.scratch, &request, ground.now_ns, &view));
        best = best_of_all(&view);
        assert_true((double)decision.ttft_ns <= best * 1.5 + 2);
        excess += (double)decision.ttft_ns / best - 1;
        ground_close(&ground);
    }
    print_message("on average %.4f above the best\n", excess / rounds);
    assert_true(excess / rounds < 0.02);
}

/* ---- decode ---------------------------------------------------------------------------------- */

static void
test_sched_route__decode_goes_where_a_step_is_shortest_and_there_is_room(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct yb_sched_cost cost = ground_cost();
    struct ground ground;
    struct yb_sched_decision decision;
    double bytes_ns, late_ns;

    (void)state;
    options.mode = YB_SCHED_MODE_DISAGGREGATED;
    cost.kv_tokens_max = 100000;
    ground_open(&ground, &options, 4);
    assert_int_equal(yb_sched_set_cost(ground.sched, 0, &cost), YB_OK);
    for (uint32_t i = 0; i < 4; i++) {
        struct yb_sched_instance instance = ground_instance(i);
        struct yb_sched_report report = {.struct_bytes = sizeof(report), .sequence = 1};

        instance.roles = i < 2 ? YB_SCHED_PREFILL : YB_SCHED_DECODE;
        report.at_ns = ground.now_ns;
        report.running = i == 2 ? 1 : 20;
        report.kv_tokens_used = i == 2 ? 99000 : 50000;
        assert_int_equal(yb_sched_set_instance(ground.sched, i, &instance), YB_OK);
        assert_int_equal(yb_sched_report(ground.sched, i, &report), YB_OK);
    }
    decision = decide_once(&ground, 1); /* 2 has the shorter step, and room for this one. */
    assert_int_equal(decision.decode, 2);
    assert_true(decision.prefill < 2);
    decision = decide_once(&ground, 10);
    assert_int_equal(decision.decode, 3);
    assert_int_equal(decision.instruction_count, 1);
    assert_int_equal(decision.instructions[0].kind, YB_SCHED_KIND_STREAM);
    assert_int_equal(decision.instructions[0].to, 3);
    /* All of it is sent behind the first token: 10 us, and its bytes at 12.5 GB/s, of what went
     * before no more than a block. */
    bytes_ns = (double)decision.instructions[0].bytes / 12.5;
    late_ns =
        (double)(decision.instructions[0].ready_ns - ground.now_ns) - (double)decision.ttft_ns;
    assert_true(late_ns >= 10e3 + bytes_ns - 1 && late_ns <= 10e3 + bytes_ns * 1.1);
    /* 26.8 ms + 21 x 0.15 ms + 5121 x 33 ns */
    assert_true(fabs((double)decision.tpot_ns - (26.8e6 + 21 * 150e3 + 5121 * 33)) < 2);
    ground_close(&ground);
}

/* A hand-over is wanted for the step that brings the second token, by the targets, and whenever it
 * comes if there are none; what is expected does not change with them. */
static void
test_sched_route__a_hand_over_is_wanted_for_the_second_token(void **state)
{
    const struct {
        uint64_t ttft_ms, pace_ms;
    } targets[] = {{0, 0}, {30000, 0}, {0, 1000}, {30000, 1000}, {1, 1}};
    uint64_t expected_ns = 0;

    (void)state;
    for (uint32_t i = 0; i < 5; i++) {
        struct yb_sched_options options = ground_options("ready");
        const uint64_t ttft_ns = targets[i].ttft_ms * GROUND_MS;
        const uint64_t pace_ns = targets[i].pace_ms * GROUND_MS;
        const struct yb_sched_instruction *stream;
        struct yb_sched_decision decision;
        struct ground ground;
        uint64_t wanted_ns;

        options.mode = YB_SCHED_MODE_DISAGGREGATED;
        options.ttft_slo_ns = ttft_ns;
        options.tpot_slo_ns = pace_ns;
        ground_open(&ground, &options, 2);
        for (uint32_t place = 0; place < 2; place++) {
            struct yb_sched_instance instance = ground_instance(place);

            instance.roles = place == 0 ? YB_SCHED_PREFILL : YB_SCHED_DECODE;
            assert_int_equal(yb_sched_set_instance(ground.sched, place, &instance), YB_OK);
        }
        decision = decide_once(&ground, 10);
        stream = &decision.instructions[0];
        assert_int_equal(stream->kind, YB_SCHED_KIND_STREAM);
        expected_ns = i == 0 ? stream->ready_ns - ground.now_ns : expected_ns;
        assert_int_equal(stream->ready_ns - ground.now_ns, expected_ns);
        wanted_ns = ttft_ns > decision.ttft_ns ? ttft_ns : decision.ttft_ns;
        wanted_ns += pace_ns > decision.tpot_ns ? pace_ns - decision.tpot_ns : 0;
        assert_int_equal(wanted_ns > expected_ns, i > 0 && i < 4);
        wanted_ns = wanted_ns > expected_ns ? wanted_ns : expected_ns;
        assert_int_equal(stream->deadline_ns, i == 0 ? 0 : ground.now_ns + wanted_ns);
        ground_close(&ground);
    }
}

/* What is nearly as early is as good: the fewest requests decide. 60 blocks are 4.06 s, of which
 * two in a hundred are 81 ms; but a step is 26.8 ms. */
static void
test_sched_route__ready_takes_the_fewest_requests_of_what_is_nearly_as_early(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct yb_sched_report report = {.struct_bytes = sizeof(report), .running = 1};
    struct ground ground;

    (void)state;
    ground_open(&ground, &options, 2);
    report_load(&ground, 0, 0, 5, 0);
    for (uint32_t i = 0; i < 2; i++) {
        report.sequence = 10 + i;
        report.at_ns = ground.now_ns;
        report.prefill_done_ns = ground.now_ns + (i == 0 ? 26 : 28) * GROUND_MS;
        assert_int_equal(yb_sched_report(ground.sched, 1, &report), YB_OK);
        assert_int_equal(decide_once(&ground, 60).prefill, i == 0 ? 1 : 0);
    }
    ground_close(&ground);
}

/* 60 blocks and a token are 16 chunks of 2048; in each step 40 answers with 100,000 tokens before
 * them take 40 x 0.15 ms + 100,000 x 33 ns = 9.3 ms. */
static void
test_sched_route__a_prefill_takes_longer_by_what_is_decoded_beside_it(void **state)
{
    struct yb_sched_options options = ground_options("ready");
    struct yb_sched_cost cost = ground_cost();
    struct yb_sched_report report = {
        .struct_bytes = sizeof(report), .sequence = 1, .running = 40, .context_tokens = 100000};
    struct ground ground;
    uint64_t alone_ns;

    (void)state;
    cost.pass_tokens = 2048;
    ground_open(&ground, &options, 1);
    assert_int_equal(yb_sched_set_cost(ground.sched, 0, &cost), YB_OK);
    alone_ns = decide_once(&ground, 60).ttft_ns;
    report.at_ns = ground.now_ns;
    assert_int_equal(yb_sched_report(ground.sched, 0, &report), YB_OK);
    assert_in_range(decide_once(&ground, 60).ttft_ns - alone_ns, 148799000, 148801000);
    ground_close(&ground);
}

/* Four conductors know the same and decide at once: no two of them take the same place. */
static void
test_sched_route__conductors_take_different_places_of_those_that_are_as_good(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 16; round++) {
        bool taken[16] = {false};

        for (uint32_t conductor = 0; conductor < 4; conductor++) {
            struct yb_sched_options options = ground_options("ready");
            struct ground ground;
            struct yb_sched_request request;
            uint32_t place;

            options.conductor = conductor;
            ground_open(&ground, &options, 16);
            for (uint32_t i = 0; i < 16; i++) {
                struct yb_sched_report report = {
                    .struct_bytes = sizeof(report), .sequence = 1, .in_flight = {1, 1, 1, 1}};

                report.at_ns = ground.now_ns;
                assert_int_equal(yb_sched_report(ground.sched, i, &report), YB_OK);
            }
            request = ground_request(&ground, 40);
            request.id = 4 * round + conductor + 1;
            place = ground_decide(&ground, &request).prefill;
            assert_false(taken[place]);
            taken[place] = true;
            ground_close(&ground);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sched_route__round_robin_takes_each_place_in_turn),
        cmocka_unit_test(test_sched_route__random_takes_all_places_and_not_in_turn),
        cmocka_unit_test(test_sched_route__least_load_takes_the_shortest_queue_whatever_lies_where),
        cmocka_unit_test(test_sched_route__vllm_counts_those_that_wait_four_times),
        cmocka_unit_test(test_sched_route__lmetric_multiplies_new_tokens_with_requests),
        cmocka_unit_test(test_sched_route__lmetric_goes_past_a_hotspot_unless_its_detector_is_off),
        cmocka_unit_test(test_sched_route__lmetric_sees_no_hotspot_in_what_holders_can_serve),
        cmocka_unit_test(test_sched_route__seer_pulls_where_the_spread_forbids_the_prefix),
        cmocka_unit_test(test_sched_route__cache_local_weighs_a_prefix_against_a_queue),
        cmocka_unit_test(test_sched_route__mooncake_fetches_where_the_best_place_has_much_more),
        cmocka_unit_test(
            test_sched_route__mooncake_recomputes_where_the_best_place_has_little_more),
        cmocka_unit_test(test_sched_route__ready_counts_what_waits_on_the_links),
        cmocka_unit_test(test_sched_route__ready_splits_where_loading_and_computing_end_together),
        cmocka_unit_test(test_sched_route__ready_waits_for_who_is_computing_the_prompt_already),
        cmocka_unit_test(test_sched_route__ready_fetches_within_the_rack_when_the_uplink_is_full),
        cmocka_unit_test(test_sched_route__a_fetch_that_was_decided_is_a_backlog_for_the_next),
        cmocka_unit_test(test_sched_route__ready_is_nearly_as_good_as_trying_everything),
        cmocka_unit_test(test_sched_route__a_hand_over_is_wanted_for_the_second_token),
        cmocka_unit_test(
            test_sched_route__ready_takes_the_fewest_requests_of_what_is_nearly_as_early),
        cmocka_unit_test(test_sched_route__a_prefill_takes_longer_by_what_is_decoded_beside_it),
        cmocka_unit_test(
            test_sched_route__conductors_take_different_places_of_those_that_are_as_good),
        cmocka_unit_test(test_sched_route__decode_goes_where_a_step_is_shortest_and_there_is_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
