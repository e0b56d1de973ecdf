/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine stand-in on a store with real bytes: what is computed once is loaded by others, byte
 * for byte, layer by layer; requests are handed over; what goes wrong costs time and no byte.
 */
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/stats.h"
#include "client/beside.h"
#include "engine/engine.h"
#include "engine/engine_internal.h"
#include "store_ground.h"

#define BLOCK_TOKENS 16u
#define PARTS        4u
#define BLOCK_BYTES  8192u
#define SLOTS        64u
#define MODEL        "toy"
#define PATIENCE_NS  (60 * YB_NS_PER_S)
#define LOOK_MS      1
#define LOOKS_MAX    60000u
#define ANSWER_MAX   64u

/* Thousands of tokens a second: tests wait for bytes, not for the model. */
static const struct yb_sched_cost quick = {
    .prefill_token_ns = 2000,
    .step_base_ns = 20000,
    .kv_bytes = BLOCK_BYTES / BLOCK_TOKENS,
    .layers = PARTS,
};

static struct ground *ground;

static int
set_up(void **state)
{
    const struct ground_options options = {.nodes = 2};

    ground = ground_create(&options);
    return 0;
}

static int
tear_down(void **state)
{
    ground_destroy(&ground);
    return 0;
}

/* ---- engines --------------------------------------------------------------------------------- */

struct rig {
    struct yb_client *client;
    struct yb_transfer *transfer;
    struct yb_engine *engine;
};

static void
rig_init(struct rig *rig, bool stored, const struct yb_engine_options *changes)
{
    struct yb_engine_options options = {
        .model = MODEL,
        .cost = quick,
        .time_scale = 1,
        .block_tokens = BLOCK_TOKENS,
        .block_bytes = BLOCK_BYTES,
        .parts = PARTS,
        .pool_bytes = SLOTS * BLOCK_BYTES,
        .chunk_tokens = 40,
    };
    const struct yb_transfer_options transfer = {.struct_bytes = sizeof(transfer)};
    char why[YB_ENGINE_WHY_BYTES];

    if (changes != NULL) {
        options.mode = changes->mode;
        options.held_ns = changes->held_ns;
        options.waiting_max = changes->waiting_max;
        options.load_timeout_ns = changes->load_timeout_ns;
        options.load_rate = changes->load_rate;
        options.late_loads = changes->late_loads;
        options.tpot_slo_ns = changes->tpot_slo_ns;
        options.cost.prefill_token_ns += changes->cost.prefill_token_ns;
        options.cost.step_base_ns += changes->cost.step_base_ns;
    }
    if (changes != NULL && changes->block_tokens != 0) {
        options.block_tokens = changes->block_tokens;
        options.block_bytes = changes->block_bytes;
        options.pool_bytes = changes->pool_bytes;
    }
    rig->client = stored ? ground_client(ground, NULL) : NULL;
    assert_int_equal(yb_transfer_create(&transfer, &rig->transfer, NULL, 0), YB_OK);
    options.client = rig->client;
    options.stats = stored ? yb_client_registry(rig->client) : NULL;
    options.transfer = rig->transfer;
    assert_int_equal(yb_engine_create(&options, &rig->engine, why), YB_OK);
}

/* Whether a metric is shown with that value. */
static bool
is_shown(const struct rig *rig, const char *line)
{
    char *text = NULL;
    size_t length = 0;
    bool found;

    assert_int_equal(yb_stats_prometheus_text(yb_client_registry(rig->client), &text, &length),
                     YB_OK);
    found = strstr(text, line) != NULL;
    free(text);
    return found;
}

static void
rig_fini(struct rig *rig)
{
    struct yb_engine_info info;

    yb_engine_stop(rig->engine);
    yb_engine_info(rig->engine, &info);
    assert_int_equal(info.asked, info.ended); /* N1 */
    assert_int_equal(info.slots_used, 0);
    yb_engine_destroy(&rig->engine);
    if (rig->client != NULL) {
        yb_client_close(&rig->client);
    }
    yb_transfer_destroy(&rig->transfer);
}

/* Await that the engine has as many stores and kept requests under way; UINT32_MAX: any number. */
static void
await(struct rig *rig, uint32_t stores, uint32_t held)
{
    struct yb_engine_info info;

    for (uint32_t looks = 0; looks < LOOKS_MAX; looks++) {
        yb_engine_info(rig->engine, &info);
        if ((stores == UINT32_MAX || info.stores == stores) &&
            (held == UINT32_MAX || info.held == held)) {
            return;
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    fail_msg("never: %u stores, %u kept", info.stores, info.held);
}

static void
settled(struct rig *rig)
{
    await(rig, 0, UINT32_MAX);
}

/* A prompt: the first `shared` tokens are those of `family`. */
static void
make_prompt(uint32_t *tokens, uint32_t count, uint32_t family, uint32_t shared, uint32_t own)
{
    for (uint32_t i = 0; i < count; i++) {
        tokens[i] = (i < shared ? family : own) * 1000003u + i;
    }
}

/* Ask, and read to the end. */
static struct yb_engine_outcome
run(struct rig *rig, const struct yb_engine_ask *ask, uint32_t *answer, uint32_t *count_out)
{
    struct yb_engine_request *request;
    struct yb_engine_outcome outcome;
    uint32_t count = 0, some;
    enum yb_status status;

    assert_int_equal(yb_engine_submit(rig->engine, ask, &request), YB_OK);
    while ((status = yb_engine_read(request, count, PATIENCE_NS, answer + count, ANSWER_MAX - count,
                                    &some)) == YB_OK) {
        count += some;
    }
    assert_int_equal(status, YB_NOT_FOUND);
    assert_true(yb_engine_outcome(request, &outcome));
    yb_engine_release(&request);
    *count_out = count;
    return outcome;
}

static struct yb_engine_outcome
run_prompt(struct rig *rig, const uint32_t *tokens, uint32_t count, uint32_t *answer)
{
    const struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = count,
        .answer_tokens = 8,
        .reuse_tokens = UINT32_MAX,
    };
    struct yb_engine_outcome outcome;
    uint32_t got;

    outcome = run(rig, &ask, answer, &got);
    assert_int_equal(outcome.status, YB_OK);
    assert_int_equal(got, 8);
    return outcome;
}

/* ---- delay hits ------------------------------------------------------------------------------ */

/* What is being computed is a hit that is not ready: who wants it waits for it, and computes only
 * its own. The model is slow, so that all have come before the first one is done; had they not,
 * there would be nothing to wait for. */
static void
test_engine__what_is_being_computed_is_waited_for_and_not_computed_twice(void **state)
{
    const struct yb_engine_options slow = {.cost = {.prefill_token_ns = 2000000}};
    uint32_t tokens[4][200], answer[ANSWER_MAX];
    struct yb_engine_request *requests[4];
    struct yb_engine_info info;
    struct rig rig;

    (void)state;
    rig_init(&rig, false, &slow);
    for (uint32_t i = 0; i < 4; i++) {
        const struct yb_engine_ask ask = {
            .tokens = tokens[i], .token_count = 200, .answer_tokens = 2};

        make_prompt(tokens[i], 200, 1, 160, 2 + i); /* Of the first 160 tokens all are alike. */
        assert_int_equal(yb_engine_submit(rig.engine, &ask, &requests[i]), YB_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct yb_engine_outcome outcome;
        uint32_t count = 0;
        uint32_t some;

        while (yb_engine_read(requests[i], count, PATIENCE_NS, answer, ANSWER_MAX, &some) ==
               YB_OK) {
            count += some;
        }
        assert_true(yb_engine_outcome(requests[i], &outcome));
        assert_int_equal(outcome.status, YB_OK);
        assert_int_equal(outcome.device_tokens, i == 0 ? 0 : 160);
        yb_engine_release(&requests[i]);
    }
    yb_engine_info(rig.engine, &info);
    assert_int_equal(info.computed_tokens, 200 + 3 * 40);
    rig_fini(&rig);
}

/* ---- loads ----------------------------------------------------------------------------------- */

static void
test_engine__what_one_computes_another_loads(void **state)
{
    uint32_t tokens[200], answers[3][ANSWER_MAX];
    struct yb_engine_outcome outcome;
    struct yb_engine_info info;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, NULL);
    make_prompt(tokens, 200, 1, 200, 0);
    outcome = run_prompt(&first, tokens, 200, answers[0]);
    assert_int_equal(outcome.device_tokens + outcome.loaded_tokens, 0);
    settled(&first);
    outcome = run_prompt(&second, tokens, 200, answers[1]);
    /* 12 whole blocks; the last one, of 8 tokens, is computed. */
    assert_int_equal(outcome.loaded_tokens, 192);
    assert_int_equal(outcome.tier_bytes[YB_CLIENT_TIER_DRAM], 12 * BLOCK_BYTES);
    assert_memory_equal(answers[0], answers[1], 8 * sizeof(uint32_t));
    yb_engine_info(second.engine, &info);
    assert_int_equal(info.verified_bytes, 12 * BLOCK_BYTES);
    assert_int_equal(info.wrong_bytes, 0);
    assert_int_equal(info.computed_tokens, 8);
    outcome = run_prompt(&second, tokens, 200, answers[2]); /* Now it has them itself. */
    assert_int_equal(outcome.device_tokens, 192);
    assert_int_equal(outcome.loaded_tokens, 0);
    assert_memory_equal(answers[0], answers[2], 8 * sizeof(uint32_t));
    rig_fini(&second);
    rig_fini(&first);
}

static void
test_engine__the_next_turn_finds_the_answer_too(void **state)
{
    uint32_t tokens[300], answer[ANSWER_MAX], got;
    struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = 100,
        .answer_tokens = 50,
        .reuse_tokens = UINT32_MAX,
    };
    struct yb_engine_outcome outcome;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, NULL);
    make_prompt(tokens, 300, 2, 300, 0);
    outcome = run(&first, &ask, answer, &got);
    assert_int_equal(got, 50);
    settled(&first);
    memcpy(tokens + 100, answer, 50 * sizeof(uint32_t));
    ask.token_count = 170;
    outcome = run(&second, &ask, answer, &got);
    assert_int_equal(outcome.status, YB_OK);
    /* Of the answer's 50 tokens 49 were read by a step: 149 have KV, which is 9 whole blocks. */
    assert_int_equal(outcome.loaded_tokens, 144);
    rig_fini(&second);
    rig_fini(&first);
}

static void
test_engine__no_more_is_loaded_than_was_decided(void **state)
{
    uint32_t tokens[200], answer[ANSWER_MAX], got;
    struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = 200,
        .answer_tokens = 1,
        .reuse_tokens = 100,
    };
    struct yb_engine_outcome outcome;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, NULL);
    make_prompt(tokens, 200, 3, 200, 0);
    run_prompt(&first, tokens, 200, answer);
    settled(&first);
    outcome = run(&second, &ask, answer, &got);
    assert_int_equal(outcome.loaded_tokens, 96);
    rig_fini(&second);
    rig_fini(&first);
}

static void
test_engine__a_slow_link_to_the_store_is_passed_at_its_rate(void **state)
{
    const struct yb_engine_options slow = {.load_rate = 12 * BLOCK_BYTES * 20.0};
    uint32_t tokens[200], answer[ANSWER_MAX];
    struct yb_engine_outcome outcome;
    struct yb_engine_info info;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, &slow);
    make_prompt(tokens, 200, 4, 200, 0);
    run_prompt(&first, tokens, 200, answer);
    settled(&first);
    outcome = run_prompt(&second, tokens, 200, answer);
    assert_int_equal(outcome.loaded_tokens, 192);
    assert_true(outcome.load_ns >= YB_NS_PER_S / 20); /* 12 blocks; it cannot be faster. */
    yb_engine_info(second.engine, &info);
    assert_int_equal(info.tier_came_bytes[YB_CLIENT_TIER_DRAM], 12 * BLOCK_BYTES);
    assert_true(info.tier_busy_ns[YB_CLIENT_TIER_DRAM] >= YB_NS_PER_S / 20);
    assert_true(info.tier_busy_ns[YB_CLIENT_TIER_DRAM] <= outcome.load_ns);
    rig_fini(&second);
    rig_fini(&first);
}

static void
test_engine__late_loads_begin_when_no_older_prompt_is_computed(void **state)
{
    const struct yb_engine_options late = {.late_loads = true, .cost.prefill_token_ns = 500000};
    uint32_t older_tokens[200], tokens[200], answer[ANSWER_MAX], got;
    const struct yb_engine_ask older_ask = {
        .tokens = older_tokens, .token_count = 200, .answer_tokens = 1};
    const struct yb_engine_ask ask = {
        .tokens = tokens, .token_count = 200, .answer_tokens = 1, .reuse_tokens = UINT32_MAX};
    struct yb_engine_outcome outcome, older_outcome;
    struct yb_engine_request *older;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, &late);
    make_prompt(tokens, 200, 5, 200, 0);
    make_prompt(older_tokens, 200, 6, 200, 0);
    run_prompt(&first, tokens, 200, answer);
    settled(&first);
    assert_int_equal(yb_engine_submit(second.engine, &older_ask, &older), YB_OK);
    outcome = run(&second, &ask, answer, &got);
    assert_true(yb_engine_outcome(older, &older_outcome));
    yb_engine_release(&older);
    assert_int_equal(outcome.loaded_tokens, 192);
    assert_true(outcome.arrived_ns >= older_outcome.first_ns);
    rig_fini(&second);
    rig_fini(&first);
}

/* Put something else under a part's key: the engine must not believe it. */
static void
test_engine__wrong_bytes_are_found_and_computed_anew(void **state)
{
    uint32_t tokens[200], answers[2][ANSWER_MAX];
    uint8_t keys[16][YB_KV_KEY_BYTES], key[YB_ENGINE_PART_KEY_MAX];
    uint8_t bytes[BLOCK_BYTES / PARTS];
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct yb_client_item item = {.key = key, .iov = &iov, .iov_count = 1};
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .put = {.replace = true}};
    struct yb_engine_outcome outcome;
    struct yb_engine_info info;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, NULL);
    make_prompt(tokens, 200, 4, 200, 0);
    run_prompt(&first, tokens, 200, answers[0]);
    settled(&first);
    assert_int_equal(yb_key_chain(tokens, 200, BLOCK_TOKENS, MODEL, keys, 16), 12);
    item.key_bytes = yb_engine_part_key(first.engine, keys[5], 2, key);
    yb_kv_fill(keys[5], 2, bytes, sizeof(bytes));
    bytes[1234] ^= 0x10;
    assert_int_equal(yb_client_put(first.client, &item, 1, &call), YB_OK);
    assert_int_equal(item.status, YB_OK);
    outcome = run_prompt(&second, tokens, 200, answers[1]);
    assert_int_equal(outcome.loaded_tokens, 5 * BLOCK_TOKENS);
    assert_int_equal(outcome.wrong_bytes, 1);
    assert_memory_equal(answers[0], answers[1], 8 * sizeof(uint32_t));
    yb_engine_info(second.engine, &info);
    assert_int_equal(info.load_failures, 1);
    assert_int_equal(info.computed_tokens, 200 - 5 * BLOCK_TOKENS);
    assert_true(is_shown(&second, "yuebing_engine_not_loaded_total{status=\"CORRUPT\"} 1\n"));
    assert_false(is_shown(&first, "yuebing_engine_not_loaded_total{status=\"CORRUPT\"} 1\n"));
    rig_fini(&second);
    rig_fini(&first);
}

/* A part that is missing although the block is found. */
static void
test_engine__a_block_in_parts_is_whole_or_computed(void **state)
{
    uint32_t tokens[200], answers[2][ANSWER_MAX];
    uint8_t keys[16][YB_KV_KEY_BYTES], key[YB_ENGINE_PART_KEY_MAX];
    struct yb_client_item item = {.key = key};
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .force = true};
    struct yb_engine_outcome outcome;
    struct rig first, second;

    (void)state;
    rig_init(&first, true, NULL);
    rig_init(&second, true, NULL);
    make_prompt(tokens, 200, 5, 200, 0);
    run_prompt(&first, tokens, 200, answers[0]);
    settled(&first);
    assert_int_equal(yb_key_chain(tokens, 200, BLOCK_TOKENS, MODEL, keys, 16), 12);
    item.key_bytes = yb_engine_part_key(first.engine, keys[0], 0, key);
    assert_int_equal(item.key_bytes, YB_KV_KEY_BYTES + 1);
    assert_int_equal(yb_client_remove(first.client, &item, 1, &call), YB_OK);
    assert_int_equal(item.status, YB_OK);
    outcome = run_prompt(&second, tokens, 200, answers[1]);
    assert_int_equal(outcome.loaded_tokens, 0);
    assert_memory_equal(answers[0], answers[1], 8 * sizeof(uint32_t));
    rig_fini(&second);
    rig_fini(&first);
}

/* ---- from one engine to another -------------------------------------------------------------- */

/* Compute the prompt, and keep it. */
static struct yb_engine_request *
hold(struct rig *rig, const uint32_t *tokens, uint32_t count, struct yb_engine_handover *out)
{
    const struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = count,
        .answer_tokens = 1,
        .reuse_tokens = UINT32_MAX,
        .keep = true,
    };
    struct yb_engine_request *request;
    struct yb_engine_outcome outcome;
    uint32_t token, got;

    assert_int_equal(yb_engine_submit(rig->engine, &ask, &request), YB_OK);
    assert_int_equal(yb_engine_read(request, 0, PATIENCE_NS, &token, 1, &got), YB_OK);
    assert_int_equal(yb_engine_read(request, 1, PATIENCE_NS, &token, 1, &got), YB_NOT_FOUND);
    assert_true(yb_engine_outcome(request, &outcome));
    assert_int_equal(outcome.status, YB_OK);
    assert_int_equal(yb_engine_handover(request, out), YB_OK);
    assert_int_equal(out->first_token, token);
    return request;
}

static void
test_engine__a_request_goes_on_where_its_kv_was_pulled_to(void **state)
{
    const uint32_t lengths[] = {1, 15, 16, 17, 200};
    uint32_t tokens[200], answers[2][ANSWER_MAX], got;
    struct rig prefill, decode, alone;

    (void)state;
    rig_init(&prefill, false, NULL);
    rig_init(&decode, false, NULL);
    rig_init(&alone, false, NULL);
    for (uint32_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        struct yb_engine_handover from;
        struct yb_engine_request *held;
        struct yb_engine_ask ask = {
            .tokens = tokens,
            .token_count = lengths[i],
            .answer_tokens = 40,
            .from = &from,
        };
        struct yb_engine_outcome outcome;

        make_prompt(tokens, lengths[i], 10 + i, 0, 10 + i);
        held = hold(&prefill, tokens, lengths[i], &from);
        outcome = run(&decode, &ask, answers[0], &got);
        assert_int_equal(outcome.status, YB_OK);
        assert_int_equal(got, 40);
        assert_int_equal(outcome.pulled_tokens, lengths[i]);
        assert_int_equal(outcome.pulled_bytes, (lengths[i] + 15) / 16 * BLOCK_BYTES);
        assert_int_equal(outcome.wrong_bytes, 0);
        yb_engine_release(&held);
        await(&prefill, UINT32_MAX, 0); /* It was told. */
        ask.from = NULL;
        outcome = run(&alone, &ask, answers[1], &got);
        assert_memory_equal(answers[0], answers[1], 40 * sizeof(uint32_t));
    }
    rig_fini(&alone);
    rig_fini(&decode);
    rig_fini(&prefill);
}

/* Whoever is pulled from again is asked over the connection that is there; one that has ended
 * meanwhile costs a new one, and not the pull. */
static void
test_engine__a_connection_to_a_holder_is_kept(void **state)
{
    uint32_t token, answer[ANSWER_MAX], got;
    struct yb_engine_handover from;
    const struct yb_engine_ask ask = {
        .tokens = &token, .token_count = 1, .answer_tokens = 2, .from = &from};
    struct yb_engine_holders *holders;
    struct rig prefill, decode;
    char address[32];

    (void)state;
    rig_init(&prefill, false, NULL);
    rig_init(&decode, false, NULL);
    holders = &decode.engine->holders;
    for (token = 700; token < 705; token++) {
        struct yb_engine_request *held = hold(&prefill, &token, 1, &from);
        struct yb_engine_outcome outcome;

        if (token == 703) { /* It ends, and nobody says so. */
            assert_int_equal(yb_transfer_close(decode.transfer, holders->rows[0].peer), YB_OK);
        }
        outcome = run(&decode, &ask, answer, &got);
        assert_int_equal(outcome.pulled_tokens, 1);
        assert_int_equal(holders->count, 1);
        yb_engine_release(&held);
    }
    for (uint32_t i = 0; i < YB_ENGINE_HOLDERS_MAX; i++) {
        yb_transfer_peer peer;

        (void)snprintf(address, sizeof(address), "127.0.0.1:%u", i + 1);
        assert_int_equal(yb_transfer_open(decode.transfer, address, &peer), YB_OK);
        yb_engine_holder_keep(decode.engine, address, peer);
    }
    assert_int_equal(holders->count, YB_ENGINE_HOLDERS_MAX); /* It was the oldest. */
    assert_string_equal(holders->rows[0].address, "127.0.0.1:1");
    rig_fini(&decode);
    rig_fini(&prefill);
}

static void
test_engine__what_was_promised_and_is_gone_is_computed(void **state)
{
    const struct yb_engine_options soon = {.load_timeout_ns = 5 * YB_NS_PER_S};
    uint32_t tokens[100], answer[ANSWER_MAX], got;
    struct yb_engine_handover from;
    struct yb_engine_request *held;
    uint64_t addresses[16];
    struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = 100,
        .answer_tokens = 4,
        .from = &from,
    };
    struct yb_engine_outcome outcome;
    struct yb_engine_info info;
    struct rig prefill, decode;

    (void)state;
    rig_init(&prefill, false, NULL);
    rig_init(&decode, false, &soon);
    make_prompt(tokens, 100, 20, 100, 0);
    held = hold(&prefill, tokens, 100, &from);
    memcpy(addresses, from.addresses, sizeof(uint64_t) * from.block_count);
    from.addresses = addresses;
    yb_engine_release(&held);
    addresses[3] = addresses[4]; /* Another block's bytes. */
    outcome = run(&decode, &ask, answer, &got);
    assert_int_equal(outcome.status, YB_OK);
    assert_int_equal(outcome.pulled_tokens, 0);
    assert_true(outcome.wrong_bytes > 0);
    rig_fini(&prefill); /* The holder is gone. */
    make_prompt(tokens, 100, 21, 100, 0);
    outcome = run(&decode, &ask, answer, &got);
    assert_int_equal(outcome.status, YB_OK);
    assert_int_equal(got, 4);
    assert_int_equal(outcome.pulled_tokens, 0);
    yb_engine_info(decode.engine, &info);
    assert_int_equal(info.load_failures, 2);
    assert_int_equal(info.computed_tokens, 200);
    rig_fini(&decode);
}

static void
test_engine__what_was_let_go_is_nobodys_any_more(void **state)
{
    uint32_t tokens[100], answer[ANSWER_MAX], got;
    struct yb_engine_handover from;
    struct yb_engine_request *held;
    uint64_t addresses[16];
    const struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = 100,
        .answer_tokens = 4,
        .from = &from,
    };
    struct yb_engine_outcome outcome;
    struct yb_engine_info info;
    struct rig prefill, decode, late;

    (void)state;
    rig_init(&prefill, false, NULL);
    rig_init(&decode, false, NULL);
    rig_init(&late, false, NULL);
    make_prompt(tokens, 100, 25, 100, 0);
    held = hold(&prefill, tokens, 100, &from);
    memcpy(addresses, from.addresses, sizeof(uint64_t) * from.block_count);
    from.addresses = addresses;
    yb_engine_release(&held);
    outcome = run(&decode, &ask, answer, &got);
    assert_int_equal(outcome.pulled_tokens, 100);
    await(&prefill, UINT32_MAX, 0);
    /* The same again, as by a router that sends a request twice: it may be other blocks now. */
    outcome = run(&late, &ask, answer, &got);
    assert_int_equal(outcome.status, YB_OK);
    assert_int_equal(outcome.pulled_tokens, 0);
    assert_int_equal(outcome.wrong_bytes, 0);
    yb_engine_info(late.engine, &info);
    assert_int_equal(info.load_failures, 1);
    assert_int_equal(info.computed_tokens, 100);
    rig_fini(&late);
    rig_fini(&decode);
    rig_fini(&prefill);
}

static void
test_engine__what_nobody_comes_for_expires(void **state)
{
    const struct yb_engine_options soon = {.held_ns = 50 * YB_NS_PER_MS};
    uint32_t tokens[50];
    struct yb_engine_handover from;
    struct yb_engine_request *held;
    struct yb_engine_info info;
    struct rig rig;

    (void)state;
    rig_init(&rig, false, &soon);
    make_prompt(tokens, 50, 30, 50, 0);
    held = hold(&rig, tokens, 50, &from);
    await(&rig, UINT32_MAX, 0);
    yb_engine_info(rig.engine, &info);
    assert_int_equal(info.slots_used, 0);
    assert_int_equal(yb_engine_handover(held, &from), YB_NOT_FOUND);
    yb_engine_release(&held);
    rig_fini(&rig);
}

/* ---- bounds and ends ------------------------------------------------------------------------- */

static void
test_engine__what_does_not_fit_is_refused_and_what_does_waits(void **state)
{
    const struct yb_engine_options few = {.waiting_max = 4};
    static uint32_t tokens[SLOTS * BLOCK_TOKENS];
    struct yb_engine_ask ask = {
        .tokens = tokens,
        .token_count = SLOTS * BLOCK_TOKENS,
        .answer_tokens = 1,
    };
    struct yb_engine_request *requests[64];
    uint32_t taken = 0;
    struct yb_engine_info info;
    struct rig rig;

    (void)state;
    rig_init(&rig, false, &few);
    make_prompt(tokens, SLOTS * BLOCK_TOKENS, 40, 0, 40);
    assert_int_equal(yb_engine_submit(rig.engine, &ask, &requests[0]), YB_TOO_LARGE);
    ask.token_count = 0;
    assert_int_equal(yb_engine_submit(rig.engine, &ask, &requests[0]), YB_INVALID);
    /* Each needs more than half of the memory: one after the other. */
    ask.token_count = SLOTS * BLOCK_TOKENS * 5 / 8;
    while (taken < 64) {
        enum yb_status status = yb_engine_submit(rig.engine, &ask, &requests[taken]);

        if (status != YB_OK) {
            assert_int_equal(status, YB_AGAIN);
            break;
        }
        taken++;
    }
    assert_in_range(taken, 4, 63);
    for (uint32_t i = 0; i < taken; i++) {
        struct yb_engine_outcome outcome;
        uint32_t token, got;

        assert_int_equal(yb_engine_read(requests[i], 0, PATIENCE_NS, &token, 1, &got), YB_OK);
        assert_int_equal(yb_engine_read(requests[i], 1, PATIENCE_NS, &token, 1, &got),
                         YB_NOT_FOUND);
        assert_true(yb_engine_outcome(requests[i], &outcome));
        assert_int_equal(outcome.status, YB_OK);
        yb_engine_release(&requests[i]);
    }
    yb_engine_info(rig.engine, &info);
    assert_int_equal(info.refused, 1);
    rig_fini(&rig);
}

/* Requests of all kinds, given up at any moment, while a node of the store dies. */
static void
test_engine__each_request_ends_once_whatever_happens(void **state)
{
    const struct yb_engine_options soon = {
        .load_timeout_ns = 2 * YB_NS_PER_S,
        .held_ns = 20 * YB_NS_PER_MS,
    };
    static uint32_t tokens[24][180];
    uint64_t random = unit_seed("engine");
    struct yb_engine_request *requests[24] = {NULL};
    struct yb_engine_info info;
    uint32_t asked = 0, answered = 0;
    struct rig rig;

    (void)state;
    rig_init(&rig, true, &soon);
    for (uint32_t turn = 0; turn < (unit_long() ? 5000 : 500); turn++) {
        uint32_t i = (uint32_t)(unit_random(&random) % 24);

        if (turn == 250) {
            ground_kill(&ground->nodes[1]);
        }
        if (requests[i] == NULL) {
            uint32_t count = 1 + (uint32_t)(unit_random(&random) % 180);
            const struct yb_engine_ask ask = {
                .tokens = tokens[i],
                .token_count = count,
                .answer_tokens = 1 + (uint32_t)(unit_random(&random) % 20),
                .reuse_tokens = UINT32_MAX,
                .keep = unit_random(&random) % 8 == 0,
            };

            make_prompt(tokens[i], count, 50 + (uint32_t)(unit_random(&random) % 4),
                        (uint32_t)(unit_random(&random) % 200), 60 + turn);
            assert_int_equal(yb_engine_submit(rig.engine, &ask, &requests[i]), YB_OK);
            asked++;
        } else if (unit_random(&random) % 4 == 0) {
            yb_engine_release(&requests[i]); /* Wherever it is. */
        } else {
            struct yb_engine_outcome outcome;
            uint32_t answer[ANSWER_MAX], got, from = 0;
            enum yb_status status;

            while ((status = yb_engine_read(requests[i], from, PATIENCE_NS, answer, ANSWER_MAX,
                                            &got)) == YB_OK) {
                from += got;
            }
            assert_int_equal(status, YB_NOT_FOUND);
            assert_true(yb_engine_outcome(requests[i], &outcome));
            assert_int_equal(outcome.status, YB_OK);
            assert_int_equal(outcome.wrong_bytes, 0);
            assert_int_equal(outcome.answer_tokens, from);
            yb_engine_release(&requests[i]);
            answered++;
        }
    }
    for (uint32_t i = 0; i < 24; i++) {
        if (requests[i] != NULL) {
            yb_engine_release(&requests[i]);
        }
    }
    yb_engine_info(rig.engine, &info);
    assert_int_equal(info.asked, asked);
    assert_true(answered > 100 && info.loaded_tokens + info.device_tokens > 0);
    rig_fini(&rig);
}

/* Each token makes a block, and filling that takes most of a step. */
static const struct yb_engine_options token_blocks = {
    .block_tokens = 1,
    .block_bytes = 2 << 20,
    .pool_bytes = 64 * (2 << 20),
};

/* Ask for an answer to one token, and await its first one. */
static struct yb_engine_request *
begin(struct rig *rig, uint32_t token, uint32_t answer_tokens)
{
    const struct yb_engine_ask ask = {
        .tokens = &token, .token_count = 1, .answer_tokens = answer_tokens};
    struct yb_engine_request *request;
    uint32_t answer, got;

    assert_int_equal(yb_engine_submit(rig->engine, &ask, &request), YB_OK);
    assert_int_equal(yb_engine_read(request, 0, PATIENCE_NS, &answer, 1, &got), YB_OK);
    return request;
}

struct counted_job {
    struct yb_engine_job job;
    uint32_t *ran;
};

static void
run_counted(struct yb_engine_job *job)
{
    const struct counted_job *counted = (const struct counted_job *)(const void *)job;

    (*counted->ran)++;
}

/* Whoever adds jobs ends its last step after the stop began, and that step's are run, too: their
 * blocks would be used for ever. */
static void
test_engine__the_last_steps_jobs_are_run(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 30; round++) {
        struct yb_engine engine = {.stops = true};
        uint32_t ran = 0;
        struct counted_job late = {.job.run = run_counted, .ran = &ran};

        yb_lock_init(&engine.lock, YB_LOCK_STANDIN);
        assert_int_equal(yb_engine_jobs_start(&engine.storers, &engine, 2), YB_OK);
        (void)poll(NULL, 0, 2); /* Time to go, for those that should not. */
        yb_lock_acquire(&engine.lock);
        yb_engine_jobs_add_locked(&engine.storers, &late.job);
        yb_lock_release(&engine.lock);
        yb_engine_jobs_stop(&engine.storers);
        assert_int_equal(ran, 1);
        yb_lock_fini(&engine.lock);
    }
}

/* A pull ends at any time: also while the block of a token is filled, and the step goes on with
 * whoever runs behind it. */
static void
test_engine__pulls_end_beside_answers(void **state)
{
    struct rig prefill, decode;

    (void)state;
    rig_init(&prefill, false, &token_blocks);
    rig_init(&decode, false, &token_blocks);
    for (uint32_t round = 0; round < 10; round++) {
        struct yb_engine_request *runs = begin(&decode, 2000 + round, 60);

        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t token = 3000 + round * 8 + i;
            struct yb_engine_handover from;
            const struct yb_engine_ask ask = {
                .tokens = &token, .token_count = 1, .answer_tokens = 1, .from = &from};
            struct yb_engine_request *held = hold(&prefill, &token, 1, &from);
            struct yb_engine_outcome outcome;
            uint32_t answer[ANSWER_MAX], got;

            outcome = run(&decode, &ask, answer, &got);
            assert_int_equal(outcome.status, YB_OK);
            assert_int_equal(outcome.pulled_tokens, 1);
            assert_int_equal(answer[0], from.first_token);
            yb_engine_release(&held);
        }
        yb_engine_release(&runs);
    }
    rig_fini(&decode);
    rig_fini(&prefill);
}

static uint32_t
answered_of(struct rig *rig, struct yb_engine_request *const requests[2])
{
    uint32_t sum;

    yb_lock_acquire(&rig->engine->lock);
    sum = requests[0]->answered + requests[1]->answered;
    yb_lock_release(&rig->engine->lock);
    return sum;
}

/* The pace is so slow that an answer is ahead by that of all its tokens, but for what the test
 * takes. Of two, the average counts. */
static void
test_engine__who_takes_turns_says_how_far_its_answers_are_ahead(void **state)
{
    const double pace_ns = 1e6 * (double)YB_NS_PER_S;
    const struct yb_engine_options options = {
        .mode = YB_SCHED_MODE_TIME_SLICED,
        .tpot_slo_ns = 1000000 * YB_NS_PER_S,
        .cost = {.step_base_ns = 20000000},
    };
    struct yb_engine_request *requests[2];
    struct yb_engine_info info;
    uint32_t before, after, looks = 0;
    struct rig rig;

    (void)state;
    rig_init(&rig, false, &options);
    requests[0] = begin(&rig, 4000, 400);
    requests[1] = begin(&rig, 4001, 400);
    do {
        (void)poll(NULL, 0, LOOK_MS);
        before = answered_of(&rig, requests);
        yb_engine_info(rig.engine, &info);
        after = answered_of(&rig, requests);
        assert_true(++looks < LOOKS_MAX);
    } while (info.running != 2 || after != before);
    assert_true(info.saved_ns > (before / 2.0 - 0.25) * pace_ns);
    assert_true(info.saved_ns < (before / 2.0 + 0.25) * pace_ns);
    yb_engine_release(&requests[0]);
    yb_engine_release(&requests[1]);
    rig_fini(&rig);
}

/* Many wait for one engine: were each woken by each token of the others, steps would wait for all
 * of them. Who waits here sleeps through the whole answer before its own. */
static void
test_engine__who_waits_is_woken_by_its_own_tokens_alone(void **state)
{
    struct yb_engine_request *requests[2];
    struct rusage before, after;
    struct yb_engine_info info;
    struct rig rig;

    (void)state;
    rig_init(&rig, false, NULL);
    requests[0] = begin(&rig, 4000, 600); /* Of 64 blocks each wants 38. */
    assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
    requests[1] = begin(&rig, 4001, 600);
    assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
    yb_engine_info(rig.engine, &info);
    assert_true(info.answer_tokens >= 600);
    assert_true(after.ru_nvcsw - before.ru_nvcsw < 100);
    yb_engine_release(&requests[0]);
    yb_engine_release(&requests[1]);
    rig_fini(&rig);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_engine__what_is_being_computed_is_waited_for_and_not_computed_twice),
        cmocka_unit_test(test_engine__what_one_computes_another_loads),
        cmocka_unit_test(test_engine__the_next_turn_finds_the_answer_too),
        cmocka_unit_test(test_engine__no_more_is_loaded_than_was_decided),
        cmocka_unit_test(test_engine__a_slow_link_to_the_store_is_passed_at_its_rate),
        cmocka_unit_test(test_engine__late_loads_begin_when_no_older_prompt_is_computed),
        cmocka_unit_test(test_engine__wrong_bytes_are_found_and_computed_anew),
        cmocka_unit_test(test_engine__a_block_in_parts_is_whole_or_computed),
        cmocka_unit_test(test_engine__a_request_goes_on_where_its_kv_was_pulled_to),
        cmocka_unit_test(test_engine__a_connection_to_a_holder_is_kept),
        cmocka_unit_test(test_engine__what_was_promised_and_is_gone_is_computed),
        cmocka_unit_test(test_engine__what_was_let_go_is_nobodys_any_more),
        cmocka_unit_test(test_engine__what_nobody_comes_for_expires),
        cmocka_unit_test(test_engine__what_does_not_fit_is_refused_and_what_does_waits),
        cmocka_unit_test(test_engine__the_last_steps_jobs_are_run),
        cmocka_unit_test(test_engine__pulls_end_beside_answers),
        cmocka_unit_test(test_engine__who_takes_turns_says_how_far_its_answers_are_ahead),
        cmocka_unit_test(test_engine__who_waits_is_woken_by_its_own_tokens_alone),
        cmocka_unit_test(test_engine__each_request_ends_once_whatever_happens),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
