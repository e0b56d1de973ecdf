/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what a conductor has nodes do: whose an instruction is, when it begins, what heat asks for,
 *   and that each ends once.
 * Method: a conductor whose node n0 is the memory of instance p0; orders are kept, and told of by
 *   hand.
 */
#include "conductor_stage.h"

/* Instance p0 at node n0, and n1 beside; returns the place of n0. */
static uint32_t
with_nodes(struct stage *stage, uint64_t object_rate)
{
    const struct yb_wire_conductor_register said = {
        .incarnation = 1,
        .in_rate = 1000000000,
        .out_rate = 1000000000,
        .load_rate = 100000000000,
        .ssd_rate = 1000000000,
        .object_rate = object_rate,
        .prefill_token_ps = 10000000000,
        .step_base_ns = 1000000,
        .kv_bytes = 1000,
        .layers = 8,
        .roles = 3,
        .parts = 4,
        .name = yb_wire_text_of("p0"),
        .model = yb_wire_text_of("m"),
        .node = yb_wire_text_of("n0"),
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    uint32_t place, other;

    stage_make(stage, "ready", YB_SCHED_MODE_COUPLED);
    assert_int_equal(
        yb_conductor_storage(stage->conductor, yb_wire_text_of("n0"), stage->now_ns, &place),
        YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage->conductor, yb_wire_text_of("n1"), stage->now_ns, &other),
        YB_OK);
    assert_int_equal(yb_conductor_register(stage->conductor, &said, stage->now_ns, why), YB_OK);
    return place;
}

static uint64_t
outcomes(struct stage *stage, uint8_t outcome)
{
    struct yb_conductor_info info;
    uint64_t sum = 0;

    yb_conductor_info(stage->conductor, &info);
    for (uint32_t i = 0; i < YB_CONDUCTOR_OUTCOMES; i++) {
        sum += info.outcomes[i];
    }
    assert_int_equal(sum, info.issued); /* O3 */
    return info.outcomes[outcome];
}

static enum yb_status
say_moved(struct stage *stage, uint64_t id, uint8_t outcome, uint64_t took_us)
{
    const struct yb_wire_conductor_ended ended = {.id = id, .took_us = took_us, .outcome = outcome};

    return done(stage, 0, YB_WIRE_CONDUCTOR_STAGE_MOVED, false, &ended, 1);
}

static void
test_conductor_moves__what_lies_below_a_node_is_the_nodes_to_bring_up(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct stage stage;
    uint64_t id;
    uint32_t place;

    (void)state;
    place = with_nodes(&stage, 0);
    keys_of(keys, 8, 1);
    put_blocks(&stage, place, YB_SCHED_TIER_SSD, keys, 8);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.instructions.count, 1);
    assert_int_equal(answer.instructions[0].from_tier, YB_SCHED_TIER_SSD);
    assert_int_equal(answer.instructions[0].carrier, 1);
    assert_int_equal(answer.parts, 4);
    id = answer.instructions[0].id;
    assert_true(yb_conductor_is_open(stage.conductor, id));
    assert_false(yb_conductor_is_open(stage.conductor, id + 1000));
    assert_int_equal(say_moved(&stage, id, YB_WIRE_CONDUCTOR_OUTCOME_JOINED, 5), YB_OK);
    assert_int_equal(say_moved(&stage, id, YB_WIRE_CONDUCTOR_OUTCOME_LATE, 5), YB_OK);
    assert_false(yb_conductor_is_open(stage.conductor, id));
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_JOINED), 1);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_LATE), 0);
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, false, NULL, 0), YB_OK);

    ask_keys(&stage, keys, 8, &answer); /* Its request ends before the node has said anything. */
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, false, NULL, 0), YB_OK);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED), 1);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_OPEN), 0);
    stage_close(&stage);
}

static void
test_conductor_moves__a_move_by_hand_is_accounted_for_as_any(void **state)
{
    struct yb_wire_conductor_key keys[4];
    struct yb_wire_conductor_move move = {
        .kind = YB_SCHED_KIND_REPLICATE,
        .to = yb_wire_text_of("n1"),
        .hashes = {.count = 4, .native = keys},
    };
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    uint64_t id = 0;

    (void)state;
    with_nodes(&stage, 0);
    keys_of(keys, 4, 1);
    assert_int_equal(yb_conductor_move(stage.conductor, &move, stage.now_ns, &id, why), YB_OK);
    assert_true(yb_conductor_is_open(stage.conductor, id));
    assert_int_equal(say_moved(&stage, id, YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME, 5), YB_OK);
    assert_int_equal(say_moved(&stage, id, YB_WIRE_CONDUCTOR_OUTCOME_FAILED, 5), YB_OK);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME), 1);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_FAILED), 0);

    move.to = yb_wire_text_of("p0");
    assert_int_equal(yb_conductor_move(stage.conductor, &move, stage.now_ns, &id, why),
                     YB_NOT_FOUND);
    move.to = yb_wire_text_of("n1");
    move.kind = YB_SCHED_KIND_STREAM;
    assert_int_equal(yb_conductor_move(stage.conductor, &move, stage.now_ns, &id, why), YB_INVALID);
    move.kind = YB_SCHED_KIND_PREFETCH;
    for (uint32_t i = 0; i < 1024; i++) { /* As many as may be open. */
        assert_int_equal(yb_conductor_move(stage.conductor, &move, stage.now_ns, &id, why), YB_OK);
    }
    assert_int_equal(yb_conductor_move(stage.conductor, &move, stage.now_ns, &id, why),
                     YB_NO_SPACE);
    stage.now_ns += 3600 * YB_NS_PER_S;
    yb_conductor_tick(stage.conductor, stage.now_ns);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED), 1024);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_OPEN), 0);
    stage_close(&stage);
}

static void
test_conductor_moves__hot_blocks_of_the_object_store_come_up_before_anybody_waits(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct yb_conductor_info info;
    struct stage stage;

    (void)state;
    with_nodes(&stage, 1); /* A byte a second: nobody would wait for it. */
    keys_of(keys, 8, 1);
    put_blocks(&stage, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, keys, 8);
    yb_conductor_tick(stage.conductor, stage.now_ns);
    for (uint32_t i = 0; i < 3; i++) {
        ask_keys(&stage, keys, 8, &answer);
        assert_int_equal(answer.wire.instructions.count, 0);
    }
    stage.now_ns += YB_NS_PER_S;
    yb_conductor_tick(stage.conductor, stage.now_ns);
    assert_null(stage.orders); /* It is not time. */
    stage.now_ns += YB_NS_PER_S;
    yb_conductor_tick(stage.conductor, stage.now_ns);
    assert_non_null(stage.orders);
    assert_null(stage.orders->next); /* All in one. */
    assert_int_equal(stage.orders->count, 8);
    assert_int_equal(stage.orders->kind, YB_SCHED_KIND_PREFETCH);
    assert_int_equal(stage.orders->work_class, YB_CLASS_BACKGROUND);
    assert_int_equal(stage.orders->parts, 4);
    assert_string_equal(stage.orders->to, "n0");
    for (uint32_t i = 0; i < 8; i++) {
        bool there = false;

        for (uint32_t k = 0; k < 8; k++) {
            there = there || yb_id_equal(stage.orders->keys[i], keys[k].key);
        }
        assert_true(there);
    }
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_OPEN), 1);
    stage.refuses = true;
    assert_int_equal(report(&stage, "p0", 1, 1, NO_KEYS, false), YB_OK);
    stage.now_ns += 2 * YB_NS_PER_S;
    yb_conductor_tick(stage.conductor, stage.now_ns);
    assert_int_equal(outcomes(&stage, YB_WIRE_CONDUCTOR_OUTCOME_CANCELLED), 1);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.hot, 2);
    stage_close(&stage);
}

/* Moves take 20 ms and a step 1 ms: the window begins at 30 steps, and what is wanted in half a
 * second begins 30 ms before. */
static void
test_conductor_moves__a_move_begins_as_early_as_the_window_says(void **state)
{
    struct yb_wire_conductor_report said = {
        .incarnation = 1, .sequence = 1, .name = yb_wire_text_of("p0"), .queued = 1};
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct yb_conductor_info info;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    uint32_t place;

    (void)state;
    place = with_nodes(&stage, 0);
    keys_of(keys, 8, 1);
    put_blocks(&stage, place, YB_SCHED_TIER_SSD, keys, 8);
    said.prefill_left_us = 500000;
    said.prefill_tokens = 50;
    assert_int_equal(yb_conductor_report(stage.conductor, &said, stage.now_ns, why), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.instructions[0].not_before_us, 0); /* Nothing was measured yet. */
    assert_int_equal(
        say_moved(&stage, answer.instructions[0].id, YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME, 20000),
        YB_OK);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.windows[0].size, 0);
    stage.now_ns += YB_NS_PER_MS;
    {
        const struct yb_wire_conductor_done token = {
            .decision = answer.wire.decision,
            .stage = YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN,
            .ttft_us = 600000,
        };

        assert_int_equal(yb_conductor_done(stage.conductor, &token, stage.now_ns), YB_OK);
    }
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.windows[0].size, 30);
    assert_int_equal(info.windows[0].lead_ns, 30 * YB_NS_PER_MS);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.instructions.count, 1);
    assert_int_equal(answer.instructions[0].reason, 1); /* The window. */
    assert_int_equal(answer.instructions[0].not_before_us,
                     answer.instructions[0].deadline_us - 30000);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.windowed, 1);
    stage_close(&stage);
}

static void
test_conductor_moves__what_the_object_store_had_is_told_again_after_a_reset(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct stage stage;

    (void)state;
    with_nodes(&stage, 1000000000000);
    keys_of(keys, 8, 1);
    put_blocks(&stage, YB_SCHED_SHARED, YB_SCHED_TIER_OBJECT, keys, 8);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.hit_object, 8);
    yb_conductor_reset(stage.conductor, stage.now_ns);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.hit_object, 0);
    stage_close(&stage);
}

/* Each round the store is told again: numbers of places are not used up by that. */
static void
test_conductor_moves__places_do_not_run_out_however_often_all_is_told_again(void **state)
{
    struct stage stage;
    uint32_t place;

    (void)state;
    with_nodes(&stage, 0);
    for (uint32_t round = 0; round < 200; round++) {
        yb_conductor_reset(stage.conductor, stage.now_ns);
        assert_int_equal(
            yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place),
            YB_OK);
        assert_int_equal(
            yb_conductor_storage(stage.conductor, yb_wire_text_of("n1"), stage.now_ns, &place),
            YB_OK);
        stage.now_ns += 100 * YB_NS_PER_MS;
        assert_int_not_equal(report(&stage, "p0", 1, round + 1, NO_KEYS, false), YB_NO_SPACE);
        yb_conductor_tick(stage.conductor, stage.now_ns);
    }
    stage_close(&stage);
}

/* A prompt that lies at two nodes, the second half on a disk, is a run at neither: an engine loads
 * each block from where it lies, and the conductor expects that. */
static void
test_conductor_moves__a_prompt_at_two_nodes_is_reused_whole(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct stage stage;
    uint32_t place;

    (void)state;
    place = with_nodes(&stage, 0);
    keys_of(keys, 8, 1);
    put_blocks(&stage, place + 1, YB_SCHED_TIER_DRAM, keys, 4);
    put_blocks(&stage, place, YB_SCHED_TIER_SSD, keys + 4, 4);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.reuse_blocks, 8);
    assert_int_equal(answer.wire.source_tier, YB_SCHED_TIER_SSD);
    assert_int_equal(answer.wire.instructions.count, 1);
    assert_int_equal(answer.instructions[0].count, 8);
    assert_string_equal(answer.instructions[0].from, "");
    assert_string_equal(answer.instructions[0].to, "n0");
    assert_int_equal(answer.instructions[0].carrier, 1);
    stage_close(&stage);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conductor_moves__what_lies_below_a_node_is_the_nodes_to_bring_up),
        cmocka_unit_test(test_conductor_moves__a_move_by_hand_is_accounted_for_as_any),
        cmocka_unit_test(
            test_conductor_moves__hot_blocks_of_the_object_store_come_up_before_anybody_waits),
        cmocka_unit_test(test_conductor_moves__a_move_begins_as_early_as_the_window_says),
        cmocka_unit_test(
            test_conductor_moves__what_the_object_store_had_is_told_again_after_a_reset),
        cmocka_unit_test(
            test_conductor_moves__places_do_not_run_out_however_often_all_is_told_again),
        cmocka_unit_test(test_conductor_moves__a_prompt_at_two_nodes_is_reused_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
