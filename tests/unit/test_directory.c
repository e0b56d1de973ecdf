/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_stage.h"

#include "directory/directory_internal.h"

#define LEASE_AND_MORE_MS (STAGE_LEASE_MS * 2)

static int
setup(void **state)
{
    struct stage *stage = malloc(sizeof(*stage));

    assert_non_null(stage);
    stage_init(stage);
    *state = stage;
    return 0;
}

static int
teardown(void **state)
{
    stage_fini(*state);
    free(*state);
    return 0;
}

/* Start with `count` nodes that are registered and beat. */
static struct stage *
with_nodes(void **state, uint32_t count)
{
    struct stage *stage = *state;

    stage_start(stage);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(stage_register(&stage->nodes[i], 0), YB_OK);
        stage_beat(&stage->nodes[i], true);
    }
    return stage;
}

/* ---- puts and gets --------------------------------------------------------------------------- */

static void
test_directory__what_is_published_is_found_by_everybody_of_its_tenant(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_lookup_answer answer;
    uint64_t grant;

    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    grant = stage_put(&stage->nodes[0], hash, 7, 1);
    assert_int_equal(yb_grant_epoch(grant), stage->nodes[0].epoch);
    answer = stage_lookup(&stage->client, hash);
    assert_int_equal(answer.presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(answer.grant, grant);
    assert_int_equal(answer.count, 1);
    assert_int_equal(answer.slot0, stage->nodes[0].slot);
    assert_int_equal(answer.tier0, YB_WIRE_TIER_DRAM);
    assert_int_equal(stage_lookup(&stage->admin, hash).presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(stage_lookup(&stage->other, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_HITS), 2);
}

/* RULES A7: one grant for one write, and the first write wins the key. */
static void
test_directory__replicas_of_one_write_have_one_grant_and_another_write_loses(void **state)
{
    struct stage *stage = with_nodes(state, 3);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 2);
    struct yb_wire_publish_item loser = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, 8);
    struct yb_wire_grant_answer answer;

    assert_int_equal(stage_publish(&stage->nodes[1], &loser, &answer), YB_OK);
    assert_int_equal(answer.status, YB_EXISTS);
    assert_int_equal(answer.grant, grant);
    assert_int_equal(stage_put(&stage->nodes[2], hash, 7, 2), grant);
    assert_int_equal(stage_lookup(&stage->client, hash).count, 2);
}

static void
test_directory__the_second_item_of_a_message_sees_the_first(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_wire_publish_item items[3] = {
        stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 7),
        stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 7),
        stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 8),
    };
    struct yb_wire_grant_answer answers[3];
    struct yb_wire_grants grants;
    uint8_t body[1024];
    uint32_t length = stage_encode_publication(node, 1, YB_WIRE_PHASE_DELTA, items, 3, body);

    assert_int_equal(stage_ask(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length), YB_OK);
    assert_int_equal(yb_wire_grants_decode(stage->reply, stage->reply_bytes, &grants, NULL), YB_OK);
    for (uint32_t i = 0; i < 3; i++) {
        yb_wire_grant_answer_at(&grants.grants, i, &answers[i]);
    }
    assert_int_equal(answers[0].status, YB_OK);
    assert_int_equal(answers[1].status, YB_OK);
    assert_int_equal(answers[1].grant, answers[0].grant);
    assert_int_equal(answers[2].status, YB_EXISTS);
}

/* Publish raw; returns the status, and the answer of its only item. */
static enum yb_status
publish_raw(struct stage_actor *node, uint64_t sequence, const struct yb_wire_publish_item *item,
            struct yb_wire_grant_answer *answer_out, uint64_t *expected_out)
{
    struct stage *stage = node->stage;
    struct yb_wire_grants grants;
    uint8_t body[512];
    uint32_t length = stage_encode_publication(node, sequence, YB_WIRE_PHASE_DELTA, item, 1, body);
    enum yb_status status = stage_ask(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);

    assert_int_equal(yb_wire_grants_decode(stage->reply, stage->reply_bytes, &grants, NULL), YB_OK);
    *expected_out = grants.expected;
    if (status == YB_OK) {
        yb_wire_grant_answer_at(&grants.grants, 0, answer_out);
    }
    return status;
}

/* RULES A9, B5: one ordered stream, whatever is sent again. */
static void
test_directory__a_message_that_comes_early_or_again_changes_nothing(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    struct yb_wire_publish_item put = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, 7);
    struct yb_wire_publish_item gone;
    struct yb_wire_grant_answer answer;
    uint64_t expected;
    uint64_t grant;

    assert_int_equal(publish_raw(node, 2, &put, &answer, &expected), YB_AGAIN);
    assert_int_equal(expected, 1);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(publish_raw(node, 1, &put, &answer, &expected), YB_OK);
    grant = answer.grant;
    assert_int_equal(publish_raw(node, 1, &put, &answer, &expected), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(answer.grant, grant);
    gone = stage_item(YB_WIRE_MODE_WITHDRAW, hash, grant, 0);
    assert_int_equal(publish_raw(node, 2, &gone, &answer, &expected), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(publish_raw(node, 1, &put, &answer, &expected), YB_OK); /* Late. */
    assert_int_equal(answer.status, YB_STALE);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_GAPS), 1);
}

/* RULES B5: nor when the write has been forgotten, which is not taken for a refusal. */
static void
test_directory__a_put_that_comes_again_late_does_not_create(void **state)
{
    struct stage *stage = *state;
    struct stage_actor *node = &stage->nodes[0];
    struct yb_wire_publish_item put = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 7);
    struct yb_wire_publish_item gone;
    struct yb_wire_grant_answer answer;
    uint64_t expected;

    stage->options.writes_max = 1;
    (void)with_nodes(state, 1);
    gone =
        stage_item(YB_WIRE_MODE_WITHDRAW, stage_hash(1), stage_put(node, stage_hash(1), 7, 1), 0);
    assert_int_equal(stage_publish(node, &gone, &answer), YB_OK);
    (void)stage_put(node, stage_hash(2), 8, 1);
    assert_int_equal(publish_raw(node, 1, &put, &answer, &expected), YB_OK);
    assert_int_equal(answer.status, YB_IN_DOUBT);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence, YB_WIRE_PRESENCE_ABSENT);
}

/* RULES A6: a copy never creates. */
static void
test_directory__a_copy_of_what_was_removed_is_refused(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 1);
    struct yb_wire_publish_item copy = stage_item(YB_WIRE_MODE_ADD_REPLICA, hash, grant, 0);
    struct yb_wire_grant_answer answer;

    assert_int_equal(stage_publish(&stage->nodes[1], &copy, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(stage_remove(&stage->client, hash, false), YB_OK);
    copy.grant = grant;
    assert_int_equal(stage_publish(&stage->nodes[1], &copy, &answer), YB_OK);
    assert_int_equal(answer.status, YB_REFUSED);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
}

/* ---- what ends blocks ------------------------------------------------------------------------ */

/* RULES A5, D3: a removal is answered when every holder has confirmed, and not before. */
static void
test_directory__a_removal_waits_for_every_holder(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 2);
    struct stage_call *call;

    assert_int_equal(stage_put(&stage->nodes[1], hash, 7, 2), grant);
    stage->nodes[1].manner = STAGE_HOLDS;
    call = stage_begin_remove(&stage->client, hash, false);
    STAGE_AWAIT(stage, stage->nodes[1].held_count == 1);
    stage_pass_ms(stage, 200);
    assert_false(call->done);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_count_orders(&stage->nodes[0], YB_WIRE_NODE_TYPE_DROP, hash, grant), 1);
    assert_int_equal(stage->nodes[1].orders[0].incarnation, stage->nodes[1].incarnation);
    assert_int_equal(stage->nodes[1].orders[0].reason, 0);
    stage_release(&stage->nodes[1], YB_OK);
    assert_int_equal(stage_end_call(stage, call), YB_OK);
    assert_int_equal(stage_removal(stage->reply, stage->reply_bytes), YB_OK);
    assert_int_equal(stage_remove(&stage->client, hash, false), YB_NOT_FOUND);
}

/* RULES A5 (2): an absent node ends the wait only by the end of its lease. */
static void
test_directory__a_removal_waits_for_the_lease_of_a_silent_node(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    struct stage_call *call;
    uint64_t silent_ns;

    (void)stage_put(node, hash, 7, 1);
    node->manner = STAGE_REFUSES;
    stage_pass_ms(stage, 100);
    stage_beat(node, false);
    silent_ns = yb_sim_now_ns(stage->sim);
    call = stage_begin_remove(&stage->client, hash, false);
    STAGE_AWAIT(stage, call->done);
    assert_true(yb_sim_now_ns(stage->sim) - silent_ns >
                (STAGE_LEASE_MS - STAGE_LEASE_MS / 4) * YB_NS_PER_MS);
    assert_int_equal(stage_end_call(stage, call), YB_OK);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_DIED), 1);
    assert_int_equal(stage_beat_once(node), YB_FENCED);
}

/* D3: the new version is granted to its node when the old one cannot be served any more. */
static void
test_directory__a_replacement_waits_until_the_old_version_is_gone(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_REPLACE, hash, 0, 8);
    uint64_t old = stage_put(&stage->nodes[0], hash, 7, 1);
    struct stage_actor *node = &stage->nodes[1];
    struct yb_wire_grants grants;
    struct yb_wire_grant_answer answer;
    struct stage_call *call;
    struct stage_call *again;
    uint8_t body[512];
    uint32_t length = stage_encode_publication(node, 1, YB_WIRE_PHASE_DELTA, &item, 1, body);

    stage->nodes[0].manner = STAGE_HOLDS;
    call = stage_begin_call(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);
    STAGE_AWAIT(stage, stage->nodes[0].held_count == 1);
    again = stage_begin_call(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);
    stage_pass_ms(stage, 200);
    assert_false(call->done);
    assert_false(again->done); /* Nor does asking twice help. */
    assert_int_equal(stage->nodes[0].orders[0].reason, 1);
    assert_int_equal(stage->nodes[0].orders[0].grant, old);
    stage_release(&stage->nodes[0], YB_OK);
    assert_int_equal(stage_end_call(stage, again), YB_OK);
    assert_int_equal(stage_end_call(stage, call), YB_OK);
    assert_int_equal(yb_wire_grants_decode(stage->reply, stage->reply_bytes, &grants, NULL), YB_OK);
    yb_wire_grant_answer_at(&grants.grants, 0, &answer);
    assert_int_equal(answer.status, YB_OK);
    assert_true(answer.grant > old);
    assert_int_equal(stage_lookup(&stage->client, hash).grant, answer.grant);
    assert_int_equal(stage_lookup(&stage->client, hash).flags & YB_WIRE_BLOCK_FLAG_VERSIONED,
                     YB_WIRE_BLOCK_FLAG_VERSIONED);
}

static void
test_directory__a_second_replica_of_a_replacement_waits_as_the_first(void **state)
{
    struct stage *stage = with_nodes(state, 3);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_REPLACE, hash, 0, 8);
    struct stage_call *calls[2];
    uint8_t body[512];

    (void)stage_put(&stage->nodes[0], hash, 7, 1);
    stage->nodes[0].manner = STAGE_HOLDS;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t length =
            stage_encode_publication(&stage->nodes[1 + i], 1, YB_WIRE_PHASE_DELTA, &item, 1, body);

        calls[i] =
            stage_begin_call(&stage->nodes[1 + i], YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);
    }
    stage_pass_ms(stage, 200);
    assert_int_equal(stage->nodes[0].held_count, 1);
    assert_false(calls[0]->done);
    assert_false(calls[1]->done);
    stage_release(&stage->nodes[0], YB_OK);
    assert_int_equal(stage_end_call(stage, calls[0]), YB_OK);
    assert_int_equal(stage_end_call(stage, calls[1]), YB_OK);
    assert_int_equal(stage_lookup(&stage->client, hash).count, 2);
}

/* RULES B4: what is dropped is named by its grant; a new put of the key is another block, and is
 * answered when the one before is served nowhere. */
static void
test_directory__drops_are_sent_again_until_they_are_confirmed(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    uint64_t old = stage_put(node, hash, 7, 1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, 8);
    struct stage_call *removal;
    struct stage_call *second;
    struct stage_call *put;
    uint8_t body[512];
    uint64_t grant;

    node->manner = STAGE_REFUSES;
    removal = stage_begin_remove(&stage->client, hash, false);
    STAGE_AWAIT(stage, node->messages >= 2);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    second = stage_begin_remove(&stage->client, hash, false);
    stage_pass_ms(stage, 100);
    put = stage_begin_call(
        node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body,
        stage_encode_publication(node, ++node->sequence, YB_WIRE_PHASE_DELTA, &item, 1, body));
    stage_pass_ms(stage, 100);
    assert_false(removal->done);
    assert_false(second->done); /* It would be told that the key is gone. */
    assert_false(put->done);
    assert_true(stage_put(node, stage_hash(2), 9, 1) > old); /* Others do not wait. */
    node->manner = STAGE_OBEYS;
    assert_int_equal(stage_end_call(stage, removal), YB_OK);
    assert_int_equal(stage_end_call(stage, second), YB_OK);
    assert_int_equal(stage_removal(stage->reply, stage->reply_bytes), YB_NOT_FOUND);
    assert_int_equal(stage_end_call(stage, put), YB_OK);
    grant = stage_lookup(&stage->client, hash).grant;
    assert_true(grant > old);
    assert_int_equal(stage_count_orders(node, YB_WIRE_NODE_TYPE_DROP, hash, old), 1);
    assert_int_equal(stage_count_orders(node, YB_WIRE_NODE_TYPE_DROP, hash, grant), 0);
    assert_int_equal(stage->directory->orders_pending, 0);
}

/* H4: what is put after a removal is there for nobody while the removed block may be read: lookups
 * do not find it, another writer waits, and one who lost against it is not told before. */
static void
test_directory__what_is_put_again_is_told_to_nobody_while_the_removed_block_is_served(void **state)
{
    struct stage *stage = with_nodes(state, 3);
    struct yb_id hash = stage_hash(1);
    struct stage_call *calls[2];
    struct stage_call *removal;
    struct yb_wire_grants grants;
    struct yb_wire_grant_answer lost;
    uint8_t body[512];

    (void)stage_put(&stage->nodes[0], hash, 7, 1);
    stage->nodes[0].manner = STAGE_HOLDS;
    removal = stage_begin_remove(&stage->client, hash, false);
    STAGE_AWAIT(stage, stage->nodes[0].held_count == 1);
    for (uint32_t i = 0; i < 2; i++) {
        struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, 8 + i);
        struct stage_actor *node = &stage->nodes[1 + i];

        calls[i] = stage_begin_call(
            node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body,
            stage_encode_publication(node, ++node->sequence, YB_WIRE_PHASE_DELTA, &item, 1, body));
        stage_pass_ms(stage, 100);
    }
    assert_false(removal->done);
    assert_false(calls[0]->done);
    assert_false(calls[1]->done);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_IN_PROGRESS);
    assert_int_equal(stage_lookup(&stage->client, hash).grant, 0);
    assert_int_equal(yb_hidden_count(stage->directory->hidden), 1);
    stage_release(&stage->nodes[0], YB_OK);
    assert_int_equal(stage_end_call(stage, removal), YB_OK);
    assert_int_equal(stage_end_call(stage, calls[0]), YB_OK);
    assert_int_equal(stage_end_call(stage, calls[1]), YB_OK);
    assert_int_equal(yb_wire_grants_decode(stage->reply, stage->reply_bytes, &grants, NULL), YB_OK);
    yb_wire_grant_answer_at(&grants.grants, 0, &lost);
    assert_int_equal(lost.status, YB_EXISTS);
    assert_int_equal(stage_lookup(&stage->client, hash).grant, lost.grant);
    assert_int_equal(yb_hidden_count(stage->directory->hidden), 0);
}

/* H4: a flush that is under way hides blocks; who removes one of them is not told before. */
static void
test_directory__a_removal_during_a_flush_waits_for_it(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_call *flush;
    struct stage_call *removal;

    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 1);
    stage->nodes[0].manner = STAGE_HOLDS;
    flush = stage_begin_call(&stage->client, YB_WIRE_DIRECTORY_TYPE_REMOVE_ALL, NULL, 0);
    STAGE_AWAIT(stage, stage->nodes[0].held_count == 1);
    removal = stage_begin_remove(&stage->client, stage_hash(1), false);
    stage_pass_ms(stage, 200);
    assert_false(removal->done);
    stage_release(&stage->nodes[0], YB_OK);
    assert_int_equal(stage_end_call(stage, flush), YB_OK);
    assert_int_equal(stage_end_call(stage, removal), YB_OK);
    assert_int_equal(stage_removal(stage->reply, stage->reply_bytes), YB_NOT_FOUND);
}

/* Ask whether a block exists, and have it held for 5 s. */
static void
look_and_hold(struct stage *stage, struct yb_id hash)
{
    struct yb_wire_hash native = {.hash = hash};
    struct yb_wire_lookup body = {
        .flags = YB_WIRE_LOOKUP_FLAG_EXIST | YB_WIRE_LOOKUP_FLAG_HOLD,
        .hold_ms = 5000,
        .hashes = {.native = &native, .count = 1},
    };
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_lookup_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_LOOKUP, bytes, (uint32_t)length), YB_OK);
}

static uint32_t
holds_told(const struct stage *stage, struct yb_id hash, uint64_t grant)
{
    return stage_count_orders(&stage->nodes[0], YB_WIRE_NODE_TYPE_HOLD, hash, grant);
}

static void
test_directory__a_hold_keeps_a_block_from_removal_and_is_passed_on(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 1);

    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, holds_told(stage, hash, grant) == 1);
    assert_int_equal(stage_remove(&stage->client, hash, false), YB_LEASED);
    {
        struct yb_wire_explanation explanation;

        assert_int_equal(
            stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_EXPLAIN_KEY, &hash, sizeof(hash)),
            YB_OK);
        assert_int_equal(
            yb_wire_explanation_decode(stage->reply, stage->reply_bytes, &explanation, NULL),
            YB_OK);
        assert_true(explanation.hold_ms > 4000 && explanation.hold_ms <= 5000);
    }
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(stage_remove(&stage->client, hash, true), YB_OK);
}

static void
test_directory__a_node_is_told_once_of_a_hold_while_it_lasts(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_REPLACE, hash, 0, 8);
    struct yb_wire_grant_answer answer;
    uint64_t grant = stage_put(node, hash, 7, 1);
    uint32_t messages;

    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, holds_told(stage, hash, grant) == 1);
    look_and_hold(stage, hash);
    look_and_hold(stage, hash);
    stage_pass_ms(stage, 100);
    assert_int_equal(holds_told(stage, hash, grant), 1);
    stage_pass_ms(stage, 1000); /* What it was told of lasts no 5 s from now on. */
    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, holds_told(stage, hash, grant) == 2);

    assert_int_equal(stage_publish(node, &item, &answer), YB_OK); /* Another version. */
    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, holds_told(stage, hash, answer.grant) == 1);

    stage_pass_ms(stage, 1000);
    node->manner = STAGE_REFUSES; /* It does not take what it is told. */
    messages = node->messages;
    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, node->messages > messages);
    stage_pass_ms(stage, 10);
    look_and_hold(stage, hash); /* Not with each question. */
    stage_pass_ms(stage, 100);
    assert_int_equal(node->messages, messages + 1);
    node->manner = STAGE_OBEYS;
    look_and_hold(stage, hash);
    STAGE_AWAIT(stage, holds_told(stage, hash, answer.grant) == 2);
}

/* RULES A5 (5) */
static void
test_directory__a_flush_waits_for_every_node_and_outlives_the_directory(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_publish_item late = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(2), 0, 9);
    struct yb_wire_grant_answer answer;
    struct yb_wire_flushed flushed;
    struct stage_call *call;

    (void)stage_put(&stage->nodes[0], hash, 7, 1);
    stage->nodes[1].manner = STAGE_HOLDS;
    call = stage_begin_call(&stage->client, YB_WIRE_DIRECTORY_TYPE_REMOVE_ALL, NULL, 0);
    STAGE_AWAIT(stage, stage->nodes[1].held_count == 1);
    stage_pass_ms(stage, 200);
    assert_false(call->done);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    stage_release(&stage->nodes[1], YB_OK);
    assert_int_equal(stage_end_call(stage, call), YB_OK);
    assert_int_equal(yb_wire_flushed_decode(stage->reply, stage->reply_bytes, &flushed, NULL),
                     YB_OK);
    assert_int_equal(flushed.flush, 1);
    assert_int_equal(flushed.count, 6);
    assert_int_equal(stage_publish(&stage->nodes[0], &late, &answer), YB_OK);
    assert_int_equal(answer.status, YB_STALE); /* Its reservation was before the flush. */
    STAGE_AWAIT(stage, stage->nodes[0].beat_answer.full == 1);
    stage_beat(&stage->nodes[0], false);
    stage_beat(&stage->nodes[1], false);
    stage_restart_directory(stage);
    assert_int_equal(stage_register(&stage->nodes[0], stage->nodes[0].incarnation), YB_OK);
    {
        struct yb_wire_registered registered;
        struct yb_wire_tenant_state tenant;

        assert_int_equal(
            yb_wire_registered_decode(stage->reply, stage->reply_bytes, &registered, NULL), YB_OK);
        assert_int_equal(registered.tenants.count, 1);
        yb_wire_tenant_state_at(&registered.tenants, 0, &tenant);
        assert_int_equal(tenant.flush, 1);
        assert_string_equal((const char *)tenant.tenant, "default");
    }
}

/* ---- announcements --------------------------------------------------------------------------- */

static void
test_directory__an_announcement_lets_others_wait_and_expires(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_intent_answer answer;

    assert_int_equal(stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 7, 50000).status,
                     YB_OK);
    answer = stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 8, 50000);
    assert_int_equal(answer.status, YB_IN_PROGRESS);
    assert_true(answer.eta_us > 0 && answer.eta_us <= 50000);
    assert_int_equal(stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 7, 50000).status,
                     YB_OK);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_IN_PROGRESS);
    assert_int_equal(stage_intent(&stage->other, YB_WIRE_MODE_IF_ABSENT, hash, 8, 50000).status,
                     YB_OK);
    stage_pass_ms(stage, 500);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 8, 50000).status,
                     YB_OK);
    (void)stage_put(&stage->nodes[0], hash, 8, 1);
    answer = stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 9, 50000);
    assert_int_equal(answer.status, YB_EXISTS);
    assert_int_equal(stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, hash, 8, 50000).status,
                     YB_OK);
    assert_int_equal(stage_intent(&stage->client, YB_WIRE_MODE_REPLACE, hash, 9, 50000).status,
                     YB_OK);
}

/* ---- members --------------------------------------------------------------------------------- */

/* RULES B3 */
static void
test_directory__of_two_nodes_with_one_name_the_later_wins(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *earlier = &stage->nodes[0];
    struct stage_actor *later = &stage->nodes[1];
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(2), 0, 9);
    struct yb_wire_grant_answer answer;
    uint64_t expected;

    (void)stage_put(earlier, stage_hash(1), 7, 1);
    later->name = earlier->name;
    assert_int_equal(stage_register(later, 0), YB_OK);
    assert_int_not_equal(later->slot, earlier->slot);
    assert_true(later->incarnation > earlier->incarnation);
    stage_beat(later, true);
    assert_int_equal(stage_beat_once(earlier), YB_FENCED);
    assert_int_equal(publish_raw(earlier, 2, &item, &answer, &expected), YB_FENCED);
    assert_int_equal(stage_register(earlier, earlier->incarnation), YB_FENCED);
    /* Its lease may still run: until that has passed it may be asked, and counts for removals. */
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence,
                     YB_WIRE_PRESENCE_SUSPECT);
    stage_pass_ms(stage, LEASE_AND_MORE_MS);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_beat_once(later), YB_OK);
}

/* RULES B2 */
static void
test_directory__a_dead_node_stands_in_nobodys_way(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    struct yb_wire_member member;
    uint64_t old = stage_put(&stage->nodes[0], hash, 7, 1);

    stage_beat(&stage->nodes[0], false);
    stage_pass_ms(stage, STAGE_LEASE_MS * 3 / 4 + 100);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.state, YB_WIRE_SLOT_STATE_SUSPECT);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_SUSPECT);
    assert_true(stage_put(&stage->nodes[1], hash, 8, 1) > old); /* B2 (b) */
    stage_pass_ms(stage, LEASE_AND_MORE_MS);
    assert_false(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(stage_lookup(&stage->client, hash).slot0, stage->nodes[1].slot);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_DIED), 1);
}

/* RULES A5 (3) */
static void
test_directory__a_dead_life_does_not_come_back_with_its_blocks(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    uint64_t incarnation = node->incarnation;

    (void)stage_put(node, stage_hash(1), 7, 1);
    stage_beat(node, false);
    stage_pass_ms(stage, LEASE_AND_MORE_MS);
    assert_int_equal(stage_beat_once(node), YB_FENCED);
    assert_int_equal(stage_register(node, incarnation), YB_OK);
    assert_false(node->keep);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence, YB_WIRE_PRESENCE_ABSENT);
}

/* D4: the directory does not take its own absence for that of others. */
static void
test_directory__a_stall_of_the_directory_ends_nobodys_lease(void **state)
{
    struct stage *stage = with_nodes(state, 2);

    stage_pass_ms(stage, 500);
    yb_sim_host_stall(stage->place.host, true);
    stage_pass_ms(stage, STAGE_LEASE_MS * 10);
    yb_sim_host_stall(stage->place.host, false);
    stage_pass_ms(stage, LEASE_AND_MORE_MS);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_DIED), 0);
    assert_int_equal(stage->nodes[0].beat_status, YB_OK);
}

/* F7: reports stop placement and never remove. */
static void
test_directory__reports_make_suspect_until_a_good_heartbeat_and_quiet(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_wire_report native = {
        .incarnation = stage->nodes[0].incarnation,
        .failures = 1,
        .slot = stage->nodes[0].slot,
    };
    struct yb_wire_reports body = {.reports = {.native = &native, .count = 1}};
    struct yb_wire_member member;
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_reports_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_REPORT, bytes, (uint32_t)length), YB_OK);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.state, YB_WIRE_SLOT_STATE_SERVING);
    assert_int_equal(
        stage_ask(&stage->other, YB_WIRE_DIRECTORY_TYPE_REPORT, bytes, (uint32_t)length), YB_OK);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.state, YB_WIRE_SLOT_STATE_SUSPECT);
    stage_pass_ms(stage, LEASE_AND_MORE_MS + 500);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.state, YB_WIRE_SLOT_STATE_SERVING);
}

static void
test_directory__a_death_that_cannot_be_stored_does_not_count(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_call *call;

    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 1);
    stage->nodes[0].manner = STAGE_REFUSES;
    stage_beat(&stage->nodes[0], false);
    stage->file.fails = true;
    call = stage_begin_remove(&stage->client, stage_hash(1), false);
    stage_pass_ms(stage, LEASE_AND_MORE_MS * 3);
    assert_false(call->done);
    stage->file.fails = false;
    assert_int_equal(stage_end_call(stage, call), YB_OK);
}

static void
test_directory__only_nodes_publish_and_only_administrators_drain_others(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 9);
    struct yb_wire_state_order order = {
        .slot = stage->nodes[0].slot,
        .state = YB_WIRE_SLOT_STATE_DRAINING,
    };
    uint8_t body[512];
    size_t bytes;
    uint32_t length =
        stage_encode_publication(&stage->nodes[0], 1, YB_WIRE_PHASE_DELTA, &item, 1, body);

    assert_int_equal(stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length),
                     YB_DENIED);
    assert_int_equal(yb_wire_state_order_encode(&order, body, sizeof(body), &bytes), YB_OK);
    assert_int_equal(
        stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_SET_STATE, body, (uint32_t)bytes),
        YB_DENIED);
    assert_int_equal(
        stage_ask(&stage->nodes[1], YB_WIRE_DIRECTORY_TYPE_SET_STATE, body, (uint32_t)bytes),
        YB_DENIED);
    assert_int_equal(
        stage_ask(&stage->nodes[0], YB_WIRE_DIRECTORY_TYPE_SET_STATE, body, (uint32_t)bytes),
        YB_OK);
    assert_int_equal(
        stage_ask(&stage->admin, YB_WIRE_DIRECTORY_TYPE_SET_STATE, body, (uint32_t)bytes), YB_OK);
}

/* ---- starting again -------------------------------------------------------------------------- */

/* RULES A9 */
static void
test_directory__after_a_restart_absences_wait_for_the_members(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(node, hash, 7, 1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_INVENTORY, hash, grant, 7);
    struct yb_wire_publish_item put = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, 8);
    struct yb_wire_grant_answer answer;

    stage_beat(&stage->nodes[0], false);
    stage_beat(&stage->nodes[1], false);
    stage_restart_directory(stage);
    assert_true(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_REBUILDING);
    assert_int_equal(stage_remove(&stage->client, hash, true), YB_REBUILDING);
    assert_int_equal(stage_register(&stage->nodes[1], stage->nodes[1].incarnation), YB_OK);
    assert_true(stage->nodes[1].keep);
    assert_int_equal(stage_publish(&stage->nodes[1], &put, &answer), YB_OK);
    assert_int_equal(answer.status, YB_AGAIN);
    assert_int_equal(stage_phase(&stage->nodes[1], YB_WIRE_PHASE_BEGIN), YB_OK);
    assert_int_equal(stage_phase(&stage->nodes[1], YB_WIRE_PHASE_END), YB_OK);
    assert_true(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_register(node, node->incarnation), YB_OK);
    assert_true(node->keep);
    assert_true(node->epoch > yb_grant_epoch(grant));
    stage_beat(&stage->nodes[0], true);
    stage_beat(&stage->nodes[1], true);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_BEGIN), YB_OK);
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(stage_lookup(&stage->client, hash).grant, grant);
    assert_int_equal(stage_remove(&stage->client, hash, true), YB_REBUILDING);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence,
                     YB_WIRE_PRESENCE_REBUILDING);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_END), YB_OK);
    assert_false(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_publish(&stage->nodes[1], &put, &answer), YB_OK);
    assert_int_equal(answer.status, YB_EXISTS);
    put.write = 7; /* The second replica of the write that the inventory named (A7). */
    assert_int_equal(stage_publish(&stage->nodes[1], &put, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(answer.grant, grant);
}

/* RULES A9: it may have been granted, and others have heard of it. */
static void
test_directory__what_the_one_before_was_told_of_is_decided_before_an_absence(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[0];
    struct stage_actor *other = &stage->nodes[1];
    struct yb_wire_publish_item told = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 7);
    struct yb_wire_publish_item new = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 8);
    struct yb_wire_grant_answer answer;

    told.told = 1;
    node->told = 1;
    stage_restart_directory(stage);
    assert_int_equal(stage_register(node, node->incarnation), YB_OK);
    assert_int_equal(stage_register(other, other->incarnation), YB_OK);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_BEGIN), YB_OK);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_END), YB_OK);
    assert_int_equal(stage_publish(node, &told, &answer), YB_OK);
    assert_int_equal(answer.status, YB_AGAIN); /* The other one may hold what came after it. */
    assert_int_equal(stage_phase(other, YB_WIRE_PHASE_BEGIN), YB_OK);
    assert_int_equal(stage_phase(other, YB_WIRE_PHASE_END), YB_OK);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence,
                     YB_WIRE_PRESENCE_REBUILDING);
    assert_int_equal(stage_publish(other, &new, &answer), YB_OK);
    assert_int_equal(answer.status, YB_AGAIN);
    assert_int_equal(stage_publish(node, &told, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_false(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).grant, answer.grant);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(stage_publish(other, &new, &answer), YB_OK);
    assert_int_equal(answer.status, YB_EXISTS);
}

static void
test_directory__a_member_that_does_not_come_back_is_given_up_after_its_lease(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    uint64_t incarnation = stage->nodes[0].incarnation;

    stage_beat(&stage->nodes[0], false);
    stage_restart_directory(stage);
    stage_pass_ms(stage, STAGE_LEASE_MS);
    assert_true(yb_directory_rebuilding(stage->directory));
    stage_pass_ms(stage, LEASE_AND_MORE_MS);
    assert_false(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_register(&stage->nodes[0], incarnation), YB_OK);
    assert_false(stage->nodes[0].keep); /* A5 (3) */
}

/* A9: of two grants the higher wins, and the other's node is told to drop. */
static void
test_directory__of_two_inventories_the_higher_grant_wins(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    uint64_t low = stage_put(&stage->nodes[0], stage_hash(2), 7, 1);
    uint64_t high = stage_put(&stage->nodes[1], stage_hash(3), 8, 1);
    struct yb_wire_grant_answer answer;
    struct yb_wire_publish_item item;

    stage_restart_directory(stage);
    for (uint32_t i = 0; i < 2; i++) {
        stage_beat(&stage->nodes[i], false);
        assert_int_equal(stage_register(&stage->nodes[i], stage->nodes[i].incarnation), YB_OK);
        assert_int_equal(stage_phase(&stage->nodes[i], YB_WIRE_PHASE_BEGIN), YB_OK);
    }
    item = stage_item(YB_WIRE_MODE_INVENTORY, hash, low, 0);
    assert_int_equal(stage_publish(&stage->nodes[0], &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    item = stage_item(YB_WIRE_MODE_INVENTORY, hash, high, 0);
    assert_int_equal(stage_publish(&stage->nodes[1], &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(stage_lookup(&stage->client, hash).grant, high);
    STAGE_AWAIT(stage,
                stage_count_orders(&stage->nodes[0], YB_WIRE_NODE_TYPE_DROP, hash, low) == 1);
    item = stage_item(YB_WIRE_MODE_INVENTORY, hash, low, 0);
    assert_int_equal(stage_publish(&stage->nodes[0], &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_FENCED);
}

/* A5: what was removed while a node's inventory is under way does not come back with it. */
static void
test_directory__an_inventory_of_a_slot_that_never_died_adds_nothing(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(node, hash, 7, 1);
    uint64_t kept = stage_put(node, stage_hash(2), 8, 1);
    uint64_t lost = stage_put(node, stage_hash(3), 9, 1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_INVENTORY, hash, grant, 7);
    struct yb_wire_grant_answer answer;
    uint16_t slot = node->slot;

    (void)lost;
    stage_beat(node, false);
    assert_int_equal(stage_register(node, node->incarnation), YB_OK);
    assert_true(node->keep);
    assert_int_equal(node->slot, slot);
    stage_beat(node, true);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_BEGIN), YB_OK);
    assert_int_equal(stage_remove(&stage->client, hash, false), YB_OK);
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK); /* Sent before the drop came. */
    assert_int_equal(answer.status, YB_FENCED);
    assert_int_equal(stage_lookup(&stage->client, hash).presence, YB_WIRE_PRESENCE_ABSENT);
    item = stage_item(YB_WIRE_MODE_INVENTORY, stage_hash(2), kept, 8);
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_int_equal(stage_phase(node, YB_WIRE_PHASE_END), YB_OK);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence,
                     YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(3)).presence, YB_WIRE_PRESENCE_ABSENT);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_directory__##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(what_is_published_is_found_by_everybody_of_its_tenant),
        TEST(replicas_of_one_write_have_one_grant_and_another_write_loses),
        TEST(the_second_item_of_a_message_sees_the_first),
        TEST(a_message_that_comes_early_or_again_changes_nothing),
        TEST(a_put_that_comes_again_late_does_not_create),
        TEST(a_copy_of_what_was_removed_is_refused),
        TEST(a_removal_waits_for_every_holder),
        TEST(a_removal_waits_for_the_lease_of_a_silent_node),
        TEST(a_replacement_waits_until_the_old_version_is_gone),
        TEST(a_second_replica_of_a_replacement_waits_as_the_first),
        TEST(drops_are_sent_again_until_they_are_confirmed),
        TEST(what_is_put_again_is_told_to_nobody_while_the_removed_block_is_served),
        TEST(a_removal_during_a_flush_waits_for_it),
        TEST(a_hold_keeps_a_block_from_removal_and_is_passed_on),
        TEST(a_node_is_told_once_of_a_hold_while_it_lasts),
        TEST(a_flush_waits_for_every_node_and_outlives_the_directory),
        TEST(an_announcement_lets_others_wait_and_expires),
        TEST(of_two_nodes_with_one_name_the_later_wins),
        TEST(a_dead_node_stands_in_nobodys_way),
        TEST(a_dead_life_does_not_come_back_with_its_blocks),
        TEST(a_stall_of_the_directory_ends_nobodys_lease),
        TEST(reports_make_suspect_until_a_good_heartbeat_and_quiet),
        TEST(a_death_that_cannot_be_stored_does_not_count),
        TEST(only_nodes_publish_and_only_administrators_drain_others),
        TEST(after_a_restart_absences_wait_for_the_members),
        TEST(what_the_one_before_was_told_of_is_decided_before_an_absence),
        TEST(a_member_that_does_not_come_back_is_given_up_after_its_lease),
        TEST(of_two_inventories_the_higher_grant_wins),
        TEST(an_inventory_of_a_slot_that_never_died_adds_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
