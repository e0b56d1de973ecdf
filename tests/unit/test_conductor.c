/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: the conductor's heart: who is there, where requests go, how instructions end, and that its
 * log gives the same answers again.
 * Method: a conductor of a few instances and nodes, time passed in; random walks against a trivial
 * account, with every routing policy of the library.
 */
#include "conductor_stage.h"

/* ---- who is there ---------------------------------------------------------------------------- */

static void
test_conductor__a_request_goes_to_who_has_its_prefix(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct yb_conductor_info info;
    struct stage stage;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 8, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 1), YB_OK);
    assert_int_equal(report(&stage, "p0", 1, 1, NO_KEYS, false), YB_OK);
    assert_int_equal(report(&stage, "p1", 1, 1, KEYS(6, keys), false), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_true(yb_wire_text_equal(answer.wire.prefill, "p1"));
    assert_true(yb_wire_text_equal(answer.wire.prefill_address, "127.0.0.1:9000"));
    assert_int_equal(answer.wire.hit_device, 6);
    assert_int_equal(answer.wire.reuse_tokens, 6 * BLOCK);
    assert_int_equal(answer.wire.blocks, 8);
    assert_int_equal(report(&stage, "p1", 1, 2, KEYS(6, keys), true), YB_OK);
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, false, NULL, 0), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.hit_device, 0);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.instances, 2);
    assert_int_equal(info.decisions, 2);
    assert_int_equal(info.requests, 1);
    stage_close(&stage);
}

static void
test_conductor__what_cannot_be_is_refused_and_named(void **state)
{
    struct yb_wire_conductor_key keys[4];
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_answer answer;
    struct stage stage;
    uint32_t place;
    const uint8_t tokens[10] = {0};

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 4, 1);
    question = question_of(keys, 4);
    assert_int_equal(ask(&stage, &question, &answer), YB_NOT_FOUND);
    assert_int_equal(enroll(&stage, "", "m", 3, 1), YB_INVALID);
    assert_int_equal(enroll(&stage, "p0", "", 3, 1), YB_INVALID);
    assert_int_equal(enroll(&stage, "p0", "m", 1, 1), YB_INVALID);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place), YB_OK);
    assert_int_equal(enroll(&stage, "n0", "m", 3, 1), YB_INVALID);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("p0"), stage.now_ns, &place),
        YB_EXISTS);
    question.tokens = (struct yb_wire_blob){tokens, 8};
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    question.hashes.count = 0;
    question.tokens.length = 10;
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    question.tokens.length = 8;
    question.input_tokens = 3;
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    question.input_tokens = 2;
    question.block_tokens = BLOCK + 1;
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    question.block_tokens = BLOCK;
    assert_int_equal(ask(&stage, &question, &answer), YB_OK);
    question = question_of(keys, 4);
    question.input_tokens = 3 * BLOCK;
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    question.input_tokens = 3 * BLOCK + 1;
    assert_int_equal(ask(&stage, &question, &answer), YB_OK);
    question = question_of(keys, 0);
    assert_int_equal(ask(&stage, &question, &answer), YB_INVALID);
    assert_int_equal(report(&stage, "who", 1, 1, NO_KEYS, false), YB_NOT_FOUND);
    assert_int_equal(report(&stage, "n0", 1, 1, NO_KEYS, false), YB_NOT_FOUND);
    assert_int_equal(report(&stage, "p0", 2, 1, NO_KEYS, false), YB_STALE);
    assert_int_equal(report(&stage, "p0", 1, 2, NO_KEYS, false), YB_OK);
    assert_int_equal(report(&stage, "p0", 1, 1, NO_KEYS, false), YB_STALE);
    stage_close(&stage);
}

static void
test_conductor__who_does_not_report_is_gone_and_begins_anew(void **state)
{
    struct yb_wire_conductor_key keys[4];
    struct yb_conductor_answer answer;
    struct yb_conductor_info info;
    struct stage stage;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 4, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 1), YB_OK);
    assert_int_equal(report(&stage, "p1", 1, 1, KEYS(4, keys), false), YB_OK);
    for (unsigned i = 0; i < 5; i++) {
        stage.now_ns += YB_NS_PER_S;
        assert_int_equal(report(&stage, "p0", 1, 1 + i, NO_KEYS, false), YB_OK);
        yb_conductor_tick(stage.conductor, stage.now_ns);
    }
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.instances, 1);
    assert_int_equal(info.expired, 1);
    ask_keys(&stage, keys, 4, &answer);
    assert_true(yb_wire_text_equal(answer.wire.prefill, "p0"));
    assert_int_equal(report(&stage, "p1", 1, 2, NO_KEYS, false), YB_NOT_FOUND);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 2), YB_OK);
    assert_int_equal(report(&stage, "p1", 2, 1, NO_KEYS, false), YB_OK);
    ask_keys(&stage, keys, 4, &answer);
    assert_int_equal(answer.wire.hit_device, 0);
    assert_int_equal(answer.wire.best_blocks, 0);
    /* It dies and is back before anybody noticed. */
    assert_int_equal(report(&stage, "p1", 2, 2, KEYS(4, keys), false), YB_OK);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 3), YB_OK);
    ask_keys(&stage, keys, 4, &answer);
    assert_int_equal(answer.wire.best_blocks, 0);
    stage_close(&stage);
}

static void
test_conductor__tokens_and_hashes_and_tenants_name_blocks_as_clients_do(void **state)
{
    struct yb_wire_conductor_schedule question = {.model = yb_wire_text_of("m")};
    struct yb_wire_conductor_key keys[3];
    struct yb_conductor_prompt by_tokens;
    struct yb_conductor_prompt by_hashes;
    struct yb_conductor_prompt by_other;
    uint8_t bytes[(3 * BLOCK + 5) * 4 + 1];
    uint32_t tokens[3 * BLOCK + 5];
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    for (uint32_t i = 0; i < 3 * BLOCK + 5; i++) {
        tokens[i] = i * 77;
        yb_wire_put_u32(bytes + 1 + (size_t)4 * i, tokens[i]);
    }
    question.tokens = (struct yb_wire_blob){bytes + 1, sizeof(bytes) - 1}; /* Not aligned. */
    assert_int_equal(yb_conductor_prompt_read(stage.conductor, &question, &by_tokens, why), YB_OK);
    assert_int_equal(yb_key_chain(tokens, 3 * BLOCK + 5, BLOCK, "m", (uint8_t(*)[16])keys, 3), 3);
    question.tokens.length = 0;
    question.hashes.count = 3;
    question.hashes.native = keys;
    assert_int_equal(yb_conductor_prompt_read(stage.conductor, &question, &by_hashes, why), YB_OK);
    assert_int_equal(by_tokens.count, 3);
    assert_int_equal(by_tokens.tokens, 3 * BLOCK + 5);
    assert_int_equal(by_hashes.tokens, 3 * BLOCK);
    assert_memory_equal(by_tokens.blocks, by_hashes.blocks, 3 * sizeof(uint64_t));
    assert_int_equal(
        by_hashes.blocks[2],
        yb_conductor_block_name(stage.conductor, yb_wire_text_of("default"), keys[2].key));
    question.tenant = yb_wire_text_of("other");
    assert_int_equal(yb_conductor_prompt_read(stage.conductor, &question, &by_other, why), YB_OK);
    assert_int_not_equal(by_other.blocks[0], by_hashes.blocks[0]);
    yb_conductor_prompt_fini(&by_tokens);
    yb_conductor_prompt_fini(&by_hashes);
    yb_conductor_prompt_fini(&by_other);
    stage_close(&stage);
}

static void
test_conductor__models_do_not_share_instances(void **state)
{
    struct yb_wire_conductor_key keys[2];
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_answer answer;
    struct stage stage;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 2, 1);
    question = question_of(keys, 2);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    question.model = yb_wire_text_of("");
    assert_int_equal(ask(&stage, &question, &answer), YB_OK);
    assert_int_equal(enroll(&stage, "q0", "other", 3, 1), YB_OK);
    assert_int_equal(ask(&stage, &question, &answer), YB_NOT_FOUND);
    for (unsigned i = 0; i < 20; i++) {
        question.model = yb_wire_text_of(i % 2 == 0 ? "m" : "other");
        assert_int_equal(ask(&stage, &question, &answer), YB_OK);
        assert_true(yb_wire_text_equal(answer.wire.prefill, i % 2 == 0 ? "p0" : "q0"));
    }
    stage_close(&stage);
}

/* Ask and end it; why it was not accepted. */
static uint8_t
reason_of(struct stage *stage, const struct yb_wire_conductor_schedule *question,
          struct yb_conductor_answer *answer)
{
    assert_int_equal(ask(stage, question, answer), YB_OK);
    if (answer->wire.accepted) {
        assert_int_equal(
            done(stage, answer->wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, false, NULL, 0),
            YB_OK);
    }
    return answer->wire.reason;
}

static void
test_conductor__each_wish_of_a_question_has_its_effect(void **state)
{
    const uint64_t hour_us = 3600000000;
    struct yb_wire_conductor_schedule question;
    struct yb_wire_conductor_key keys[PROMPT_MAX];
    struct yb_conductor_answer answer;
    struct stage stage;
    uint32_t place;

    (void)state;
    stage_make_with(&stage, "ready", "early", YB_SCHED_MODE_COUPLED);
    keys_of(keys, PROMPT_MAX, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place), YB_OK);
    put_blocks(&stage, place, YB_SCHED_TIER_DRAM, keys, PROMPT_MAX);
    question = question_of(keys, PROMPT_MAX);
    for (uint8_t work_class = 0; work_class < YB_CLASS_COUNT; work_class++) {
        question.class = work_class;
        assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NONE);
        assert_int_equal(answer.wire.instructions.count, 1);
        assert_int_equal(answer.instructions[0].class, work_class);
    }
    question.ttft_slo_us = 1;
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_TTFT);
    assert_true(answer.wire.retry_after_ms > 0);
    question.ttft_slo_us = hour_us;
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NONE);
    question.tbt_slo_us = 1000; /* A step takes 26.8 ms. */
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_LOAD);
    question.tbt_slo_us = hour_us;
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NONE);
    assert_int_equal(answer.wire.best_blocks, PROMPT_MAX);
    question.tenant = yb_wire_text_of("other"); /* What is not its own is no hit. */
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NONE);
    assert_int_equal(answer.wire.best_blocks, 0);
    assert_int_equal(answer.wire.instructions.count, 0);
    question.tenant = yb_wire_text_of("");
    question.not_at = yb_wire_text_of("p0");
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NO_PREFILL);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 1), YB_OK);
    assert_int_equal(reason_of(&stage, &question, &answer), YB_SCHED_REASON_NONE);
    assert_true(yb_wire_text_equal(answer.wire.prefill, "p1"));
    stage_close(&stage);
}

/* ---- the store's nodes ----------------------------------------------------------------------- */

static void
test_conductor__what_a_node_holds_is_fetched_and_told(void **state)
{
    struct yb_wire_conductor_key keys[PROMPT_MAX];
    struct yb_wire_conductor_schedule question;
    struct yb_conductor_answer answer;
    struct yb_conductor_prompt prompt;
    struct yb_conductor_hits hits;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    uint32_t place;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, PROMPT_MAX, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place), YB_OK);
    put_blocks(&stage, place, YB_SCHED_TIER_DRAM, keys, PROMPT_MAX);
    question = question_of(keys, PROMPT_MAX);
    assert_int_equal(yb_conductor_prompt_read(stage.conductor, &question, &prompt, why), YB_OK);
    assert_int_equal(
        yb_conductor_query(stage.conductor, &question, &prompt, stage.now_ns, &hits, why), YB_OK);
    assert_true(hits.count >= 1);
    assert_string_equal(hits.rows[0].name, "n0");
    assert_int_equal(hits.rows[0].hit.run[YB_SCHED_TIER_DRAM], PROMPT_MAX);
    yb_conductor_prompt_fini(&prompt);

    ask_keys(&stage, keys, PROMPT_MAX, &answer);
    assert_int_equal(answer.wire.best_blocks, PROMPT_MAX);
    assert_true(yb_wire_text_equal(answer.wire.source, "n0"));
    assert_int_equal(answer.wire.instructions.count, 1);
    assert_string_equal((const char *)answer.instructions[0].from, "n0");
    assert_string_equal((const char *)answer.instructions[0].to, "p0");
    assert_int_equal(answer.instructions[0].kind, YB_SCHED_KIND_FETCH);
    assert_int_equal(answer.instructions[0].first, 0);

    yb_conductor_reset(stage.conductor, stage.now_ns);
    yb_conductor_tick(stage.conductor, stage.now_ns);
    keys_of(keys, PROMPT_MAX, 2); /* Its first two are the other prompt's. */
    ask_keys(&stage, keys, PROMPT_MAX, &answer);
    assert_int_equal(answer.wire.instructions.count, 0);
    stage_close(&stage);
}

static void
test_conductor__an_instance_has_what_its_node_has(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_wire_conductor_register said = {
        .incarnation = 1,
        .in_rate = 1000000000,
        .out_rate = 1000000000,
        .load_rate = 100000000000,
        .prefill_token_ps = 108300000,
        .kv_bytes = 1000,
        .layers = 8,
        .roles = 3,
        .name = yb_wire_text_of("p0"),
        .model = yb_wire_text_of("m"),
        .node = yb_wire_text_of("n0"),
    };
    struct yb_conductor_answer answer;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    uint32_t place;

    (void)state;
    stage_make(&stage, "cache-local", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 8, 1);
    assert_int_equal(enroll(&stage, "p1", "m", 3, 1), YB_OK);
    assert_int_equal(yb_conductor_register(stage.conductor, &said, stage.now_ns, why), YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place), YB_OK);
    put_blocks(&stage, place, YB_SCHED_TIER_DRAM, keys, 8);
    ask_keys(&stage, keys, 8, &answer);
    assert_true(yb_wire_text_equal(answer.wire.prefill, "p0"));
    assert_int_equal(answer.wire.hit_dram, 8);
    assert_int_equal(yb_conductor_unregister(stage.conductor, yb_wire_text_of("n0"), stage.now_ns),
                     YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.hit_dram, 0);
    stage_close(&stage);
}

/* A hit is not ready: what a node's disk does is known by the node, and not by who registered. */
static void
test_conductor__a_hit_is_as_soon_as_its_node_says(void **state)
{
    struct yb_wire_conductor_ways ways = {.name = yb_wire_text_of("n0")};
    struct yb_wire_conductor_register said = {
        .incarnation = 1,
        .in_rate = 1000000000,
        .out_rate = 1000000000,
        .load_rate = 100000000000,
        .ssd_rate = 1000000000,
        .prefill_token_ps = 108300000,
        .kv_bytes = 1000,
        .layers = 8,
        .roles = 3,
        .name = yb_wire_text_of("p0"),
        .model = yb_wire_text_of("m"),
        .node = yb_wire_text_of("n0"),
    };
    const uint64_t bytes = 8 * BLOCK * 1000;
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    uint32_t place;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 8, 1);
    assert_int_equal(yb_conductor_ways(stage.conductor, &ways, stage.now_ns), YB_NOT_FOUND);
    assert_int_equal(yb_conductor_register(stage.conductor, &said, stage.now_ns, why), YB_OK);
    assert_int_equal(
        yb_conductor_storage(stage.conductor, yb_wire_text_of("n0"), stage.now_ns, &place), YB_OK);
    put_blocks(&stage, place, YB_SCHED_TIER_SSD, keys, 8);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.reuse_blocks, 8);
    assert_in_range(answer.wire.ready_us, bytes / 1000 - 10, bytes / 1000 + 100);

    ways.ssd_rate = 100000000;
    ways.ssd_base_us = 1000;
    assert_int_equal(yb_conductor_ways(stage.conductor, &ways, stage.now_ns), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.reuse_blocks, 8);
    assert_in_range(answer.wire.ready_us, 990 + bytes / 100, 1100 + bytes / 100);

    ways.ssd_rate = 0; /* As before; but others wait there, some of whom have got theirs since. */
    ways.ssd_backlog = 400000;
    ways.age_ms = 2;
    assert_int_equal(yb_conductor_ways(stage.conductor, &ways, stage.now_ns), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_in_range(answer.wire.ready_us, 2990 + bytes / 100, 3100 + bytes / 100);

    ways.ssd_rate = 1000000; /* Computing is sooner. */
    assert_int_equal(yb_conductor_ways(stage.conductor, &ways, stage.now_ns), YB_OK);
    ask_keys(&stage, keys, 8, &answer);
    assert_int_equal(answer.wire.reuse_blocks, 0);
    ways.ssd_rate = UINT64_MAX;
    assert_int_equal(yb_conductor_ways(stage.conductor, &ways, stage.now_ns), YB_INVALID);
    stage_close(&stage);
}

/* ---- instructions ---------------------------------------------------------------------------- */

static void
test_conductor__an_instruction_ends_once(void **state)
{
    struct yb_wire_conductor_key keys[4];
    struct yb_wire_conductor_ended ended = {.outcome = YB_WIRE_CONDUCTOR_OUTCOME_LATE};
    struct yb_conductor_answer answer;
    struct yb_conductor_info info;
    struct stage stage;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_DISAGGREGATED);
    keys_of(keys, 4, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 1, 1), YB_OK);
    assert_int_equal(enroll(&stage, "d0", "m", 2, 1), YB_OK);
    ask_keys(&stage, keys, 4, &answer);
    assert_true(yb_wire_text_equal(answer.wire.decode, "d0"));
    assert_int_equal(answer.wire.instructions.count, 1);
    assert_int_equal(answer.instructions[0].kind, YB_SCHED_KIND_STREAM);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.issued, 1);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN], 1);
    ended.id = answer.instructions[0].id + 1;
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN, false, &ended, 1),
        YB_OK);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN], 1);
    ended.id = answer.instructions[0].id;
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN, false, &ended, 1),
        YB_OK);
    ended.outcome = YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME;
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, true, &ended, 1), YB_OK);
    assert_int_equal(
        done(&stage, answer.wire.decision, YB_WIRE_CONDUCTOR_STAGE_ENDED, true, &ended, 1),
        YB_NOT_FOUND);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN], 0);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_LATE], 1);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_IN_TIME], 0);
    assert_int_equal(info.requests, 0);

    ask_keys(&stage, keys, 4, &answer); /* Nobody ends this one. */
    stage.now_ns += 3600 * YB_NS_PER_S;
    yb_conductor_tick(stage.conductor, stage.now_ns);
    yb_conductor_info(stage.conductor, &info);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_EXPIRED], 1);
    assert_int_equal(info.outcomes[YB_WIRE_CONDUCTOR_OUTCOME_OPEN], 0);
    assert_int_equal(info.forgotten, 1);
    stage_close(&stage);
}

/* ---- walks ----------------------------------------------------------------------------------- */

struct walk {
    struct stage *stage;
    uint64_t random;
    uint64_t sequence;
    uint64_t running[16]; /* Decisions, some of which have ended. */
    struct yb_conductor_answer answers[16];
    uint64_t accepted;
    uint64_t rejected;
};

static void
walk_request(struct walk *walk)
{
    struct yb_wire_conductor_key keys[PROMPT_MAX];
    uint32_t slot = (uint32_t)(unit_random(&walk->random) % 16);
    uint32_t count = 1 + (uint32_t)(unit_random(&walk->random) % PROMPT_MAX);
    struct yb_wire_conductor_schedule question;

    keys_of(keys, count, (uint8_t)(unit_random(&walk->random) % 5));
    question = question_of(keys, count);
    question.ttft_slo_us = unit_random(&walk->random) % 2 == 0 ? 0 : 50000;
    if (ask(walk->stage, &question, &walk->answers[slot]) != YB_OK) {
        return;
    }
    walk->accepted += walk->answers[slot].wire.accepted;
    walk->rejected += !walk->answers[slot].wire.accepted;
    assert_true(walk->answers[slot].wire.accepted ||
                walk->answers[slot].wire.retry_after_ms >= 100);
    walk->running[slot] = walk->answers[slot].wire.accepted ? walk->answers[slot].wire.decision : 0;
}

static void
walk_done(struct walk *walk)
{
    uint32_t slot = (uint32_t)(unit_random(&walk->random) % 16);
    const struct yb_conductor_answer *answer = &walk->answers[slot];
    struct yb_wire_conductor_ended ended[YB_SCHED_INSTRUCTIONS_MAX] = {0};
    uint32_t count = 0;
    uint8_t way = unit_random(&walk->random) % 2 == 0 ? YB_WIRE_CONDUCTOR_STAGE_ENDED
                                                      : YB_WIRE_CONDUCTOR_STAGE_FIRST_TOKEN;

    if (walk->running[slot] == 0) {
        return;
    }
    for (uint32_t i = 0; i < answer->wire.instructions.count; i++) {
        if (unit_random(&walk->random) % 2 == 0) {
            ended[count].id = answer->instructions[i].id;
            ended[count++].outcome = (uint8_t)(1 + unit_random(&walk->random) % 6);
        }
    }
    (void)!done(walk->stage, walk->running[slot], way, unit_random(&walk->random) % 4 == 0, ended,
                count);
}

static void
walk_place(struct walk *walk)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3"};
    const char *name = names[unit_random(&walk->random) % 4];
    struct yb_wire_conductor_key keys[PROMPT_MAX];
    struct yb_wire_conductor_ways ways = {.name = yb_wire_text_of("n0")};
    uint32_t place;

    switch (unit_random(&walk->random) % 9) {
    case 0: (void)!enroll(walk->stage, name, "m", 3, 1 + unit_random(&walk->random) % 2); break;
    case 1:
        (void)!yb_conductor_unregister(
            walk->stage->conductor,
            yb_wire_text_of(unit_random(&walk->random) % 2 == 0 ? name : "n0"),
            walk->stage->now_ns);
        break;
    case 2:
        keys_of(keys, PROMPT_MAX, (uint8_t)(unit_random(&walk->random) % 5));
        if (yb_conductor_storage(walk->stage->conductor, yb_wire_text_of("n0"), walk->stage->now_ns,
                                 &place) == YB_OK) {
            put_blocks(walk->stage, place, (uint8_t)(1 + unit_random(&walk->random) % 2), keys,
                       1 + (uint32_t)(unit_random(&walk->random) % PROMPT_MAX));
        }
        break;
    case 3: yb_conductor_tick(walk->stage->conductor, walk->stage->now_ns); break;
    case 4:
        ways.ssd_rate = unit_random(&walk->random) % 2000000000;
        ways.ssd_backlog = unit_random(&walk->random) % (1u << 26);
        (void)!yb_conductor_ways(walk->stage->conductor, &ways, walk->stage->now_ns);
        break;
    default:
        keys_of(keys, PROMPT_MAX, (uint8_t)(unit_random(&walk->random) % 5));
        (void)!report(walk->stage, name, 1 + unit_random(&walk->random) % 2, ++walk->sequence,
                      KEYS((uint32_t)(unit_random(&walk->random) % PROMPT_MAX), keys),
                      unit_random(&walk->random) % 3 == 0);
        break;
    }
}

static void
check_account(const struct walk *walk)
{
    struct yb_conductor_info info;
    uint64_t sum = 0;

    yb_conductor_info(walk->stage->conductor, &info);
    for (unsigned i = 0; i < YB_CONDUCTOR_OUTCOMES; i++) {
        sum += info.outcomes[i];
    }
    assert_int_equal(sum, info.issued);
    assert_int_equal(info.decisions, walk->accepted + walk->rejected);
    assert_int_equal(info.rejected, walk->rejected);
}

/* Run a while, and then the log again. */
static void
walk_once(const char *routing, uint64_t random)
{
    struct yb_conductor_replayed replayed;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    struct walk *walk = calloc(1, sizeof(*walk));

    assert_non_null(walk);
    stage_make(&stage, routing, YB_SCHED_MODE_COUPLED);
    walk->stage = &stage;
    walk->random = random;
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    for (unsigned i = 0; i < (unit_long() ? 20000u : 1500u); i++) {
        stage.now_ns += unit_random(&walk->random) % (20 * YB_NS_PER_MS);
        switch (unit_random(&walk->random) % 3) {
        case 0: walk_request(walk); break;
        case 1: walk_done(walk); break;
        default: walk_place(walk); break;
        }
        check_account(walk);
        if (stage.log_bytes > LOG_MAX / 2) {
            break;
        }
    }
    assert_true(walk->accepted > 0);
    assert_int_equal(yb_conductor_replay(stage.log, stage.log_bytes, &replayed, why), YB_OK);
    assert_int_equal(replayed.decisions, walk->accepted + walk->rejected);
    assert_int_equal(replayed.differing, 0);
    assert_int_equal(replayed.used_bytes, stage.log_bytes);
    stage_close(&stage);
    free(walk);
}

static void
test_conductor__its_log_gives_the_same_answers_with_every_policy(void **state)
{
    uint64_t random = unit_seed("conductor");

    (void)state;
    for (uint32_t i = 0; yb_sched_routing_name(i) != NULL; i++) {
        walk_once(yb_sched_routing_name(i), random + i);
    }
}

static void
test_conductor__a_log_that_was_changed_is_found_out(void **state)
{
    struct yb_wire_conductor_key keys[8];
    struct yb_conductor_answer answer;
    struct yb_conductor_replayed replayed;
    char why[YB_CONDUCTOR_WHY_BYTES] = "";
    struct stage stage;
    struct stage other;
    size_t before;

    (void)state;
    stage_make(&stage, "ready", YB_SCHED_MODE_COUPLED);
    stage_make(&other, "ready", YB_SCHED_MODE_COUPLED);
    keys_of(keys, 8, 1);
    assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
    assert_int_equal(enroll(&other, "p1", "m", 3, 1), YB_OK);
    before = stage.log_bytes;
    ask_keys(&stage, keys, 8, &answer);
    ask_keys(&other, keys, 8, &answer);
    assert_int_equal(stage.log_bytes, other.log_bytes);
    /* The other one's decision behind this one's past. */
    memcpy(stage.log + before, other.log + before, stage.log_bytes - before);
    assert_int_equal(yb_conductor_replay(stage.log, stage.log_bytes, &replayed, why), YB_OK);
    assert_int_equal(replayed.decisions, 1);
    assert_int_equal(replayed.differing, 1);
    assert_int_equal(replayed.first_differing, replayed.records);
    /* Cut off: what is whole counts. Damaged: it says where. */
    assert_int_equal(yb_conductor_replay(stage.log, stage.log_bytes - 1, &replayed, why), YB_OK);
    assert_int_equal(replayed.decisions, 0);
    assert_true(replayed.used_bytes < stage.log_bytes - 1);
    stage.log[stage.log_bytes - 1] ^= 1;
    assert_int_equal(yb_conductor_replay(stage.log, stage.log_bytes, &replayed, why), YB_INVALID);
    assert_non_null(strstr(why, "checksum"));
    assert_int_equal(yb_conductor_replay(stage.log + 1, stage.log_bytes - 1, &replayed, why),
                     YB_INVALID);
    stage_close(&stage);
    stage_close(&other);
}

/* Who takes turns gets no prompt that its answers are not ahead enough for; who does not say is
 * taken for one that looks after them itself. */
static void
test_conductor__who_says_that_its_answers_are_late_gets_no_prompts(void **state)
{
    static const struct {
        int64_t saved_us;
        const char *prefill;
    } rows[] = {{-1, "p1"}, {1, "p1"}, {60000000, "p0"}, {0, "p0"}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct yb_wire_conductor_report said = {
            .incarnation = 1,
            .sequence = 1,
            .running = 2,
            .saved_us = rows[i].saved_us,
            .name = yb_wire_text_of("p0"),
        };
        struct yb_wire_conductor_key keys[8];
        struct yb_conductor_answer answer;
        struct stage stage;
        char why[YB_CONDUCTOR_WHY_BYTES];

        stage_make(&stage, "rolling", YB_SCHED_MODE_TIME_SLICED);
        keys_of(keys, 8, 1);
        assert_int_equal(enroll(&stage, "p0", "m", 3, 1), YB_OK);
        assert_int_equal(enroll(&stage, "p1", "m", 3, 1), YB_OK);
        assert_int_equal(yb_conductor_report(stage.conductor, &said, stage.now_ns, why), YB_OK);
        ask_keys(&stage, keys, 8, &answer);
        assert_true(yb_wire_text_equal(answer.wire.prefill, rows[i].prefill));
        stage_close(&stage);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conductor__a_request_goes_to_who_has_its_prefix),
        cmocka_unit_test(test_conductor__what_cannot_be_is_refused_and_named),
        cmocka_unit_test(test_conductor__who_does_not_report_is_gone_and_begins_anew),
        cmocka_unit_test(test_conductor__tokens_and_hashes_and_tenants_name_blocks_as_clients_do),
        cmocka_unit_test(test_conductor__models_do_not_share_instances),
        cmocka_unit_test(test_conductor__each_wish_of_a_question_has_its_effect),
        cmocka_unit_test(test_conductor__what_a_node_holds_is_fetched_and_told),
        cmocka_unit_test(test_conductor__an_instance_has_what_its_node_has),
        cmocka_unit_test(test_conductor__a_hit_is_as_soon_as_its_node_says),
        cmocka_unit_test(test_conductor__an_instruction_ends_once),
        cmocka_unit_test(test_conductor__who_says_that_its_answers_are_late_gets_no_prompts),
        cmocka_unit_test(test_conductor__its_log_gives_the_same_answers_with_every_policy),
        cmocka_unit_test(test_conductor__a_log_that_was_changed_is_found_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
