/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_stage.h"

#include "directory/directory_internal.h"

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

static void
set_state(struct stage *stage, const struct stage_actor *node, uint8_t state, bool force)
{
    struct yb_wire_state_order order = {
        .state = state,
        .force = force ? 1 : 0,
        .name = yb_wire_text_of(node->name),
    };
    uint8_t body[256];
    size_t length;

    assert_int_equal(yb_wire_state_order_encode(&order, body, sizeof(body), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->admin, YB_WIRE_DIRECTORY_TYPE_SET_STATE, body, (uint32_t)length), YB_OK);
}

/* Publish the copies that a node was ordered to make. */
static void
obey_copies(struct stage_actor *node, uint32_t from)
{
    for (uint32_t i = from; i < node->order_count; i++) {
        if (node->orders[i].type == YB_WIRE_NODE_TYPE_COPY) {
            struct yb_wire_publish_item item = stage_item(
                YB_WIRE_MODE_ADD_REPLICA, node->orders[i].hash, node->orders[i].grant, 0);
            struct yb_wire_grant_answer answer;

            assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
            assert_int_equal(answer.status, YB_OK);
        }
    }
}

/* ---- repair and drain ------------------------------------------------------------------------ */

static void
test_directory_more__a_death_is_repaired_where_it_is_farthest(void **state)
{
    struct stage *stage = with_nodes(state, 4);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 2);
    struct yb_wire_member member;

    assert_int_equal(stage_put(&stage->nodes[1], hash, 7, 2), grant);
    set_state(stage, &stage->nodes[2], YB_WIRE_SLOT_STATE_DRAINING, false);
    stage_beat(&stage->nodes[0], false);
    STAGE_AWAIT(stage,
                stage_count_orders(&stage->nodes[3], YB_WIRE_NODE_TYPE_COPY, hash, grant) == 1);
    assert_int_equal(stage->nodes[3].orders[0].source, stage->nodes[1].incarnation);
    assert_int_equal(stage->nodes[3].orders[0].incarnation, stage->nodes[3].incarnation);
    assert_int_equal(stage_count_orders(&stage->nodes[2], YB_WIRE_NODE_TYPE_COPY, hash, 0), 0);
    assert_true(stage_member(&stage->client, stage->nodes[3].slot, &member));
    obey_copies(&stage->nodes[3], 0);
    stage_pass_ms(stage, STAGE_LEASE_MS * 6);
    assert_int_equal(stage_lookup(&stage->client, hash).count, 2);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_REPAIRED), 1);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_REPAIRED_BYTES), 4096);
    assert_int_equal(stage_count_orders(&stage->nodes[3], YB_WIRE_NODE_TYPE_COPY, hash, grant), 1);
}

static uint64_t
failed_copies(const struct stage *stage, enum yb_status status)
{
    return yb_stats_counter(stage->stats,
                            stage->directory->stats_first + YB_DIRECTORY_STAT_REPAIR_FAILED,
                            yb_stats_status_index(status), 0);
}

static void
test_directory_more__a_copy_that_failed_is_counted_by_why_and_tried_again(void **state)
{
    struct stage *stage = with_nodes(state, 2);

    stage->nodes[1].manner = STAGE_FULL;
    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 2);
    STAGE_AWAIT(stage, failed_copies(stage, YB_NO_SPACE) == 2);
    assert_int_equal(failed_copies(stage, YB_OK), 0);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_REPAIRED), 0);
    stage->nodes[1].manner = STAGE_REFUSES; /* Not this block or that: the whole order. */
    STAGE_AWAIT(stage, failed_copies(stage, YB_FENCED) > 0);
    stage->nodes[1].manner = STAGE_OBEYS;
    STAGE_AWAIT(stage, stage_stat(stage, YB_DIRECTORY_STAT_REPAIRED) > 0);
}

static void
test_directory_more__the_rate_of_repair_is_told_while_it_lasts(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    uint64_t blocks = 0;
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < 10; i++) {
        (void)stage_put(&stage->nodes[0], stage_hash(i), 7 + i, 2);
    }
    STAGE_AWAIT(stage, stage->nodes[1].order_count >= 10);
    obey_copies(&stage->nodes[1], 0);
    for (uint32_t i = 0; i < 200; i++) {
        const struct yb_directory_rate *rate = &stage->directory->repair_rate;

        stage_pass_ms(stage, 10);
        blocks = rate->blocks > blocks ? rate->blocks : blocks;
        bytes = rate->bytes > bytes ? rate->bytes : bytes;
    }
    assert_in_range(blocks, 4, 10); /* Seconds are cut where they are. */
    assert_in_range(bytes, blocks * 4096, blocks * 4096 + 4096);
    stage_pass_ms(stage, 2500);
    assert_int_equal(stage->directory->repair_rate.blocks, 0);
    assert_int_equal(stage->directory->repair_rate.bytes, 0);
}

static void
test_directory_more__what_fits_nowhere_is_told_of_a_drain(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_wire_member member;

    for (uint32_t i = 0; i < 3; i++) {
        (void)stage_put(&stage->nodes[0], stage_hash(i), 7 + i, 1);
    }
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.drain_stuck, 0);
    set_state(stage, &stage->nodes[0], YB_WIRE_SLOT_STATE_DRAINING, false);
    stage_pass_ms(stage, STAGE_LEASE_MS);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.drain_stuck, 3);
    assert_int_equal(member.drained, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(stage_remove(&stage->client, stage_hash(i), false), YB_OK);
    }
    stage_pass_ms(stage, STAGE_LEASE_MS);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.drain_stuck, 0);
    assert_int_equal(member.drained, 1);
    set_state(stage, &stage->nodes[0], YB_WIRE_SLOT_STATE_SERVING, false);
    assert_true(stage_member(&stage->client, stage->nodes[0].slot, &member));
    assert_int_equal(member.drained, 0);
}

static void
test_directory_more__a_put_with_fewer_copies_than_wanted_is_repaired_later(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(&stage->nodes[0], hash, 7, 2);

    STAGE_AWAIT(stage,
                stage_count_orders(&stage->nodes[1], YB_WIRE_NODE_TYPE_COPY, hash, grant) >= 1);
    obey_copies(&stage->nodes[1], 0);
    assert_int_equal(stage_lookup(&stage->client, hash).count, 2);
}

static void
test_directory_more__a_node_without_room_gets_no_copy(void **state)
{
    struct stage *stage = *state;

    stage->nodes[1].capacity = 1000;
    (void)with_nodes(state, 2);
    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 2);
    stage_pass_ms(stage, STAGE_LEASE_MS * 5);
    assert_int_equal(stage->nodes[1].order_count, 0);
}

/* RULES B4: the record is trimmed first; C7: nothing goes before it is elsewhere. */
static void
test_directory_more__a_drain_copies_then_trims(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[0];
    struct stage_actor *target = &stage->nodes[1];
    struct yb_id hashes[3];
    uint64_t grants[3];
    uint32_t done = 0;

    for (uint32_t i = 0; i < 3; i++) {
        hashes[i] = stage_hash(i);
        grants[i] = stage_put(node, hashes[i], 7 + i, 1);
    }
    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, false);
    STAGE_AWAIT(stage, target->order_count >= 3);
    assert_int_equal(stage_count_orders(node, YB_WIRE_NODE_TYPE_DROP, (struct yb_id){{0}}, 0), 0);
    obey_copies(target, done);
    STAGE_AWAIT(stage,
                stage_count_orders(node, YB_WIRE_NODE_TYPE_DROP, (struct yb_id){{0}}, 0) == 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct yb_wire_lookup_answer answer = stage_lookup(&stage->client, hashes[i]);

        assert_int_equal(answer.count, 1);
        assert_int_equal(answer.slot0, target->slot);
        assert_int_equal(answer.grant, grants[i]);
        assert_int_equal(node->orders[i].reason, 3);
    }
    stage_pass_ms(stage, STAGE_LEASE_MS);
    assert_true(yb_members_at(stage->directory->members, node->slot)->drained);
    assert_int_equal(node->beat_answer.state, YB_WIRE_SLOT_STATE_DRAINING);
    set_state(stage, node, YB_WIRE_SLOT_STATE_SERVING, false);
    assert_false(yb_members_at(stage->directory->members, node->slot)->drained);
}

/* Say by hand that a block is in a tier of a node. */
static enum yb_status
name_tier(struct stage_actor *node, uint8_t mode, struct yb_id hash, uint64_t grant)
{
    struct yb_wire_publish_item item = stage_item(mode, hash, grant, 0);
    struct yb_wire_grant_answer answer;

    item.tier = mode == YB_WIRE_MODE_TRIMMED ? YB_WIRE_TIER_DRAM : YB_WIRE_TIER_SSD;
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
    return (enum yb_status)answer.status;
}

static enum yb_status
name_object(struct stage_actor *node, struct yb_id hash, uint64_t grant)
{
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_INVENTORY, hash, grant, 0);
    struct yb_wire_grant_answer answer;

    item.tier = YB_WIRE_TIER_OBJECT;
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
    return (enum yb_status)answer.status;
}

/* A store of objects may be another cluster's, too: what no directory of this one has granted is
 * not taken, and stays there. */
static void
test_directory_more__objects_of_another_cluster_are_left_alone(void **state)
{
    static const uint8_t tiers[] = {YB_WIRE_TIER_OBJECT, YB_WIRE_TIER_SSD, YB_WIRE_TIER_DRAM};
    struct stage *stage = with_nodes(state, 1);
    uint64_t grant = stage_put(&stage->nodes[0], stage_hash(1), 7, 1);

    for (uint32_t i = 0; i < 3; i++) {
        struct yb_wire_publish_item item =
            stage_item(YB_WIRE_MODE_INVENTORY, stage_hash(2), grant + (UINT64_C(1) << 40), 0);
        struct yb_wire_grant_answer answer;

        item.tier = tiers[i];
        assert_int_equal(stage_publish(&stage->nodes[0], &item, &answer), YB_OK);
        assert_int_equal(answer.status, i == 0 ? YB_REFUSED : YB_FENCED);
    }
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence, YB_WIRE_PRESENCE_ABSENT);
}

/* Who comes under a new name may have a disk of anybody's, but the object store is the cluster's,
 * and so are the kills in it: unless some were lost, of those that nobody could be told there. */
static void
test_directory_more__an_object_store_is_believed_whoever_names_what_it_has(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    uint64_t older = stage_put(&stage->nodes[1], stage_hash(8), 7, 1);
    uint64_t last = stage_put(&stage->nodes[1], stage_hash(9), 8, 1);
    struct yb_members_slot *slot = yb_members_at(stage->directory->members, stage->nodes[0].slot);
    struct yb_members_away away = {.name = "x", .incarnation = last, .distrusted = true};

    slot->open = slot->unknown = slot->owes = true;
    assert_int_equal(name_tier(&stage->nodes[0], YB_WIRE_MODE_INVENTORY, stage_hash(1), older),
                     YB_REFUSED);
    assert_int_equal(name_object(&stage->nodes[0], stage_hash(1), older), YB_OK);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).grant, older);
    yb_members_put_away(stage->directory->members, &away);
    assert_int_equal(name_object(&stage->nodes[0], stage_hash(2), older), YB_REFUSED);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(2)).presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(name_object(&stage->nodes[0], stage_hash(1), older), YB_OK); /* Known. */
}

/* A directory whose cluster file is lost is told of its cluster: it hashes as before, its epoch and
 * grants are later than all that were given, what was flushed is, and leases pass first. */
static void
test_directory_more__a_cluster_goes_on_without_its_file(void **state)
{
    const struct yb_directory_flushed flushed[] = {{"t", 5}, {"u", 2}};
    const struct yb_directory_known known = {
        .cluster = {{1, 2, 3}},
        .seed = {4, 5, 6},
        .epoch = 1000,
        .flushed = flushed,
        .flushed_count = 2,
    };
    struct stage *stage = *state;
    uint32_t tenant;

    stage->options.known = &known;
    stage_start(stage);
    assert_true(yb_id_equal(yb_directory_cluster(stage->directory), known.cluster));
    assert_memory_equal(stage->directory->seed, known.seed, sizeof(known.seed));
    assert_true(stage->directory->epoch > known.epoch + 100);
    tenant = yb_tenants_take(stage->directory->tenants, "t", 1);
    assert_int_equal(yb_tenants_at(stage->directory->tenants, tenant)->flush, 5);
    assert_true(yb_directory_rebuilding(stage->directory));
    assert_int_equal(stage_register(&stage->nodes[0], yb_grant_make(1000, 7)), YB_OK);
    assert_false(stage->nodes[0].keep); /* What it held is not believed. */
    stage_beat(&stage->nodes[0], true);
    stage_pass_ms(stage, 2 * STAGE_LEASE_MS);
    assert_false(yb_directory_rebuilding(stage->directory));
    assert_true(stage_put(&stage->nodes[0], stage_hash(1), 7, 1) > yb_grant_make(1101, 1));
    tenant = (uint32_t)stage->directory->epoch;
    stage_restart_directory(stage); /* From now on there is a file, and it counts. */
    assert_int_equal(stage->directory->epoch, tenant + 1);
    assert_true(yb_id_equal(yb_directory_cluster(stage->directory), known.cluster));
}

/* RULES B4: what a node says of a block before it hears that it was trimmed is no copy to count on,
 * however late that comes. */
static void
test_directory_more__what_was_trimmed_is_not_believed_before_the_node_was_heard(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(node, hash, 7, 1);

    node->manner = STAGE_HOLDS;
    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, false);
    STAGE_AWAIT(stage, stage->nodes[1].order_count == 1);
    obey_copies(&stage->nodes[1], 0);
    STAGE_AWAIT(stage, node->order_count == 1); /* The drop. */
    assert_int_equal(name_tier(node, YB_WIRE_MODE_ADD_REPLICA, hash, grant), YB_REFUSED);
    assert_int_equal(stage_lookup(&stage->client, hash).count, 1);
    stage_release(node, YB_OK);
    stage_pass_ms(stage, STAGE_LEASE_MS / 4);
    assert_int_equal(name_tier(node, YB_WIRE_MODE_ADD_REPLICA, hash, grant), YB_REFUSED);
    assert_int_equal(name_tier(node, YB_WIRE_MODE_INVENTORY, hash, grant), YB_FENCED);
    assert_int_equal(name_tier(node, YB_WIRE_MODE_TRIMMED, hash, grant), YB_OK);
    assert_int_equal(name_tier(node, YB_WIRE_MODE_ADD_REPLICA, hash, grant), YB_OK); /* Another. */
    assert_int_equal(stage_lookup(&stage->client, hash).count, 2);
}

/* Until then it gets no copy of it either. */
static void
test_directory_more__where_a_block_was_trimmed_it_is_not_copied_to_meanwhile(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[0];
    struct stage_actor *other = &stage->nodes[1];
    struct yb_id hash = stage_hash(1);
    uint64_t grant = stage_put(node, hash, 7, 1);

    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, false);
    STAGE_AWAIT(stage, other->order_count == 1);
    obey_copies(other, 0);
    STAGE_AWAIT(stage, node->order_count == 1);
    set_state(stage, node, YB_WIRE_SLOT_STATE_SERVING, false);
    set_state(stage, other, YB_WIRE_SLOT_STATE_DRAINING, false);
    stage_pass_ms(stage, STAGE_LEASE_MS * 3);
    assert_int_equal(stage_count_orders(node, YB_WIRE_NODE_TYPE_COPY, hash, grant), 0);
    assert_int_equal(stage_lookup(&stage->client, hash).slot0, other->slot);
    assert_int_equal(name_tier(node, YB_WIRE_MODE_TRIMMED, hash, grant), YB_OK);
    STAGE_AWAIT(stage, stage_count_orders(node, YB_WIRE_NODE_TYPE_COPY, hash, grant) == 1);
}

static void
test_directory_more__a_last_copy_that_fits_nowhere_stays_unless_forced(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    uint64_t grant = stage_put(node, stage_hash(1), 7, 1);

    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, false);
    stage_pass_ms(stage, STAGE_LEASE_MS * 3);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).grant, grant);
    assert_int_equal(node->order_count, 0);
    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, true);
    STAGE_AWAIT(stage, node->order_count == 1);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence, YB_WIRE_PRESENCE_ABSENT);
}

static void
test_directory_more__a_drain_survives_the_directory(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];

    set_state(stage, node, YB_WIRE_SLOT_STATE_DRAINING, false);
    stage_beat(node, false);
    stage_restart_directory(stage);
    assert_int_equal(stage_register(node, node->incarnation), YB_OK);
    assert_int_equal(stage_beat_once(node), YB_OK);
    assert_int_equal(node->beat_answer.state, YB_WIRE_SLOT_STATE_DRAINING);
}

/* ---- events ---------------------------------------------------------------------------------- */

static struct stage_call *
begin_events(struct stage_actor *actor, uint64_t epoch, uint64_t from, uint32_t wait_ms)
{
    struct yb_wire_events_question body = {
        .epoch = epoch,
        .from = from,
        .wait_ms = wait_ms,
        .events_max = 100,
    };
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_events_question_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    return stage_begin_call(actor, YB_WIRE_DIRECTORY_TYPE_EVENTS, bytes, (uint32_t)length);
}

static enum yb_status
end_events(struct stage *stage, struct stage_call *call, struct yb_wire_events *events_out)
{
    enum yb_status status = stage_end_call(stage, call);

    assert_int_equal(yb_wire_events_decode(stage->reply, stage->reply_bytes, events_out, NULL),
                     YB_OK);
    return status;
}

static void
test_directory_more__events_are_numbered_and_waited_for(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    uint64_t epoch = stage->nodes[0].epoch;
    struct yb_wire_events events;
    struct yb_wire_event event;
    struct stage_call *call;
    uint64_t grant;
    uint64_t next;

    assert_int_equal(end_events(stage, begin_events(&stage->admin, 0, 0, 0), &events), YB_STALE);
    next = events.next;
    call = begin_events(&stage->admin, epoch, next, 5000);
    stage_pass_ms(stage, 300);
    assert_false(call->done);
    grant = stage_put(&stage->nodes[0], stage_hash(1), 7, 1);
    assert_int_equal(end_events(stage, call, &events), YB_OK);
    assert_int_equal(events.first, next);
    assert_int_equal(events.events.count, 1);
    yb_wire_event_at(&events.events, 0, &event);
    assert_int_equal(event.kind, YB_WIRE_EVENT_KIND_STORED);
    assert_int_equal(event.grant, grant);
    assert_int_equal(event.slot, stage->nodes[0].slot);
    call = begin_events(&stage->admin, epoch, next + 1, 200); /* Its time passes. */
    assert_int_equal(end_events(stage, call, &events), YB_OK);
    assert_int_equal(events.events.count, 0);
    assert_int_equal(stage_remove(&stage->client, stage_hash(1), false), YB_OK);
    assert_int_equal(end_events(stage, begin_events(&stage->other, epoch, next, 0), &events),
                     YB_OK);
    assert_int_equal(events.events.count, 2);
    yb_wire_event_at(&events.events, 1, &event);
    assert_int_equal(event.kind, YB_WIRE_EVENT_KIND_REMOVED);
    assert_true(yb_id_is_none(event.hash)); /* Another tenant's: only that there was something. */
    assert_int_equal(event.grant, 0);
    for (uint32_t i = 0; i < 300; i++) {
        (void)stage_put(&stage->nodes[0], stage_hash(100 + i), 1000 + i, 1);
    }
    assert_int_equal(end_events(stage, begin_events(&stage->admin, epoch, next, 0), &events),
                     YB_STALE);
    assert_int_equal(
        end_events(stage, begin_events(&stage->admin, epoch, events.next - 256, 0), &events),
        YB_OK);
    assert_int_equal(events.events.count, 100);
}

static void
test_directory_more__keys_and_parents_travel_with_events_if_they_are_wanted(void **state)
{
    struct stage *stage = *state;
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 7);
    struct yb_wire_publication body = {
        .sequence = 1,
        .phase = YB_WIRE_PHASE_DELTA,
        .tenant = yb_wire_text_of("default"),
        .items = {.native = &item, .count = 1},
        .keys = {.bytes = (const uint8_t *)"a key", .length = 5},
    };
    struct yb_wire_events events;
    struct yb_wire_event event;
    uint8_t bytes[512];
    size_t length;

    item.parent = 0x1234567890abcdef;
    stage->options.want_keys = true;
    (void)with_nodes(state, 1);
    body.incarnation = stage->nodes[0].incarnation;
    body.epoch = stage->nodes[0].epoch;
    body.slot = stage->nodes[0].slot;
    item.key_bytes = 6; /* More than there is. */
    assert_int_equal(yb_wire_publication_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->nodes[0], YB_WIRE_DIRECTORY_TYPE_PUBLISH, bytes, (uint32_t)length),
        YB_INVALID);
    item.key_bytes = 5;
    assert_int_equal(yb_wire_publication_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->nodes[0], YB_WIRE_DIRECTORY_TYPE_PUBLISH, bytes, (uint32_t)length),
        YB_OK);
    assert_int_equal(end_events(stage, begin_events(&stage->admin, body.epoch, 1, 0), &events),
                     YB_OK);
    assert_int_equal(events.keys.length, 5);
    assert_memory_equal(events.keys.bytes, "a key", 5);
    yb_wire_event_at(&events.events, 0, &event);
    assert_true(event.parent == 0x1234567890abcdef);
    assert_int_equal(stage_remove(&stage->client, stage_hash(1), false), YB_OK);
    assert_int_equal(end_events(stage, begin_events(&stage->admin, body.epoch, 2, 0), &events),
                     YB_OK);
    yb_wire_event_at(&events.events, 0, &event);
    assert_int_equal(event.kind, YB_WIRE_EVENT_KIND_REMOVED);
    assert_true(event.parent == 0);
}

static void
test_directory_more__a_snapshot_names_every_replica_once(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_wire_snapshot_question body = {.records_max = 7};
    struct yb_wire_snapshot snapshot;
    uint32_t seen[50] = {0};
    uint8_t bytes[64];
    size_t length;

    for (uint32_t i = 0; i < 50; i++) {
        (void)stage_put(&stage->nodes[0], stage_hash(i), 7 + i, 1);
        (void)stage_put(&stage->nodes[1], stage_hash(i), 7 + i, 1);
    }
    do {
        assert_int_equal(yb_wire_snapshot_question_encode(&body, bytes, sizeof(bytes), &length),
                         YB_OK);
        assert_int_equal(
            stage_ask(&stage->admin, YB_WIRE_DIRECTORY_TYPE_SNAPSHOT, bytes, (uint32_t)length),
            YB_OK);
        assert_int_equal(yb_wire_snapshot_decode(stage->reply, stage->reply_bytes, &snapshot, NULL),
                         YB_OK);
        assert_true(snapshot.events.count <= 14);
        for (uint32_t i = 0; i < snapshot.events.count; i++) {
            struct yb_wire_event event;

            yb_wire_event_at(&snapshot.events, i, &event);
            for (uint32_t j = 0; j < 50; j++) {
                seen[j] += yb_id_equal(event.hash, stage_hash(j)) ? 1 : 0;
            }
        }
        body.cursor = snapshot.cursor;
    } while (snapshot.cursor != 0);
    for (uint32_t j = 0; j < 50; j++) {
        assert_int_equal(seen[j], 2);
    }
}

/* ---- in brief ---- */

/* A question says in a byte what a lookup says of existence, and holds as a lookup does. */
static void
test_directory_more__a_byte_says_whether_a_block_is_there(void **state)
{
    static const uint8_t wanted[4] = {
        YB_WIRE_PRESENCE_PRESENT,
        YB_WIRE_PRESENCE_PRESENT | YB_WIRE_PRESENCE_STRIPED,
        YB_WIRE_PRESENCE_IN_PROGRESS,
        YB_WIRE_PRESENCE_ABSENT,
    };
    struct stage *stage = with_nodes(state, 1);
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 8);
    struct yb_wire_hash hashes[4];
    struct yb_wire_lookup body = {
        .flags = YB_WIRE_LOOKUP_FLAG_HOLD,
        .hold_ms = 5000,
        .hashes = {.native = hashes, .count = 4},
    };
    struct yb_wire_grant_answer answer;
    struct yb_wire_presences presences;
    uint8_t bytes[YB_WIRE_LOOKUP_BYTES + sizeof(hashes)];
    size_t length;

    (void)stage_put(&stage->nodes[0], stage_hash(0), 7, 1);
    item.flags |= YB_WIRE_BLOCK_FLAG_STRIPED;
    assert_int_equal(stage_publish(&stage->nodes[0], &item, &answer), YB_OK);
    (void)stage_intent(&stage->other, YB_WIRE_MODE_IF_ABSENT, stage_hash(2), 9, 1000);
    (void)stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, stage_hash(2), 10, 1000);
    for (uint32_t i = 0; i < 4; i++) {
        hashes[i].hash = stage_hash(i);
    }
    assert_int_equal(yb_wire_lookup_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_EXIST, bytes, (uint32_t)length), YB_OK);
    assert_int_equal(yb_wire_presences_decode(stage->reply, stage->reply_bytes, &presences, NULL),
                     YB_OK);
    assert_int_equal(presences.epoch, stage->nodes[0].epoch);
    assert_int_equal(presences.answers.length, 4);
    assert_memory_equal(presences.answers.bytes, wanted, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(stage_lookup(&stage->client, stage_hash(i)).presence,
                         wanted[i] & ~YB_WIRE_PRESENCE_STRIPED);
    }
    assert_int_equal(stage_remove(&stage->client, stage_hash(0), false), YB_LEASED);
    assert_int_equal(stage_remove(&stage->client, stage_hash(1), false), YB_LEASED);
}

/* ---- for people ---- */

static struct yb_wire_explanation
explain(struct stage_actor *actor, struct yb_id hash)
{
    struct yb_wire_explain_question body = {.hash = hash};
    struct yb_wire_explanation out;
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_explain_question_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(stage_ask(actor, YB_WIRE_DIRECTORY_TYPE_EXPLAIN_KEY, bytes, (uint32_t)length),
                     YB_OK);
    assert_int_equal(
        yb_wire_explanation_decode(actor->stage->reply, actor->stage->reply_bytes, &out, NULL),
        YB_OK);
    return out;
}

static void
test_directory_more__a_key_that_is_gone_is_explained(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    uint64_t grants[5];
    struct yb_wire_publish_item item;
    struct yb_wire_grant_answer answer;

    for (uint32_t i = 0; i < 4; i++) {
        grants[i] = stage_put(&stage->nodes[i == 2 ? 1 : 0], stage_hash(i), 7 + i, 1);
    }
    assert_int_equal(explain(&stage->client, stage_hash(9)).fate, YB_WIRE_FATE_NEVER_PUT);
    assert_int_equal(explain(&stage->client, stage_hash(0)).presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(explain(&stage->client, stage_hash(0)).grant, grants[0]);
    item = stage_item(YB_WIRE_MODE_WITHDRAW, stage_hash(0), grants[0], 0);
    assert_int_equal(stage_publish(&stage->nodes[0], &item, &answer), YB_OK);
    assert_int_equal(explain(&stage->client, stage_hash(0)).fate, YB_WIRE_FATE_EVICTED);
    assert_int_equal(explain(&stage->client, stage_hash(0)).slot0, stage->nodes[0].slot);
    assert_int_equal(stage_remove(&stage->client, stage_hash(1), false), YB_OK);
    assert_int_equal(explain(&stage->client, stage_hash(1)).fate, YB_WIRE_FATE_REMOVED);
    stage_beat(&stage->nodes[1], false);
    stage_pass_ms(stage, STAGE_LEASE_MS * 2);
    assert_int_equal(explain(&stage->client, stage_hash(2)).fate, YB_WIRE_FATE_SLOT_LOST);
    assert_int_equal(stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_REMOVE_ALL, NULL, 0), YB_OK);
    assert_int_equal(explain(&stage->client, stage_hash(3)).fate, YB_WIRE_FATE_FLUSHED);
    assert_int_equal(explain(&stage->other, stage_hash(1)).fate, YB_WIRE_FATE_NEVER_PUT);
}

static void
test_directory_more__a_block_that_is_being_written_is_explained(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct yb_wire_explanation found;

    assert_int_equal(
        stage_intent(&stage->client, YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 7, 50000).status,
        YB_OK);
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_IN_PROGRESS);
    assert_int_equal(found.hidden, 0);
    assert_int_equal(found.count, 0);
    assert_true(found.eta_us > 0 && found.eta_us <= 50000);
    assert_int_equal(explain(&stage->other, stage_hash(1)).presence,
                     YB_WIRE_PRESENCE_ABSENT); /* Of another tenant. */
    stage_pass_ms(stage, 500);                 /* Its writer is slow, and nobody waits for it. */
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_IN_PROGRESS);
    assert_int_equal(found.eta_us, 0);
    stage_pass_ms(stage, 120000); /* It is gone, without a word. */
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_ABSENT);
    assert_int_equal(found.fate, YB_WIRE_FATE_NEVER_PUT);
    (void)stage_put(&stage->nodes[0], stage_hash(1), 8, 1);
    assert_int_equal(explain(&stage->client, stage_hash(1)).presence, YB_WIRE_PRESENCE_PRESENT);
}

/* A node still serves what was removed: what was put since is not there, and it is told why. */
static void
test_directory_more__a_block_that_is_not_shown_yet_is_explained(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct stage_actor *node = &stage->nodes[1];
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, stage_hash(1), 0, 8);
    struct yb_wire_explanation found;
    struct stage_call *removal, *put;
    uint8_t body[512];

    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 1);
    assert_int_equal(explain(&stage->client, stage_hash(1)).hidden, 0);
    stage->nodes[0].manner = STAGE_HOLDS;
    removal = stage_begin_remove(&stage->client, stage_hash(1), false);
    STAGE_AWAIT(stage, stage->nodes[0].held_count == 1);
    put = stage_begin_call(
        node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body,
        stage_encode_publication(node, ++node->sequence, YB_WIRE_PHASE_DELTA, &item, 1, body));
    stage_pass_ms(stage, 100);
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_IN_PROGRESS);
    assert_int_equal(found.hidden, 1);
    assert_int_equal(found.slot0, node->slot);
    stage_release(&stage->nodes[0], YB_OK);
    assert_int_equal(stage_end_call(stage, removal), YB_OK);
    assert_int_equal(stage_end_call(stage, put), YB_OK);
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(found.hidden, 0);
}

static void
test_directory_more__what_a_gate_declined_is_explained_to_its_tenant(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    uint64_t grant = stage_put(&stage->nodes[0], stage_hash(0), 7, 1);
    uint8_t body[YB_WIRE_DECLINES_BYTES + 2 * YB_WIRE_DECLINED_BYTES] = {0};
    const struct yb_wire_declined told[2] = {
        {.hash = stage_hash(0), .load_us = 900, .compute_us = 70, .reason = YB_WIRE_DECLINE_SLOWER},
        {.hash = stage_hash(1), .reason = YB_WIRE_DECLINE_BEHIND_GAP},
    };
    struct yb_wire_explanation found = explain(&stage->client, stage_hash(0));

    assert_int_equal(found.declined, YB_WIRE_DECLINE_NONE);
    yb_wire_put_u32(body + YB_WIRE_DECLINES_AT_ITEMS, 2);
    for (size_t i = 0; i < 2; i++) {
        yb_wire_declined_store(&told[i],
                               body + YB_WIRE_DECLINES_BYTES + i * YB_WIRE_DECLINED_BYTES);
    }
    assert_int_equal(stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_DECLINED, body, sizeof(body)),
                     YB_OK);
    stage_pass_ms(stage, 30);
    found = explain(&stage->client, stage_hash(0));
    assert_int_equal(found.presence, YB_WIRE_PRESENCE_PRESENT); /* It is there as before. */
    assert_int_equal(found.grant, grant);
    assert_int_equal(found.declined, YB_WIRE_DECLINE_SLOWER);
    assert_int_equal(found.load_us, 900);
    assert_int_equal(found.compute_us, 70);
    assert_true(found.declined_ms >= 30);
    found = explain(&stage->client, stage_hash(1));
    assert_int_equal(found.declined, YB_WIRE_DECLINE_BEHIND_GAP);
    assert_int_equal(found.fate, YB_WIRE_FATE_NEVER_PUT);
    assert_int_equal(explain(&stage->other, stage_hash(0)).declined, YB_WIRE_DECLINE_NONE);
    assert_int_equal(/* Nodes have no gate. */
                     stage_ask(&stage->nodes[0], YB_WIRE_DIRECTORY_TYPE_DECLINED, body,
                               sizeof(body)),
                     YB_DENIED);
}

static void
test_directory_more__numbers_are_told(void **state)
{
    struct stage *stage = with_nodes(state, 2);
    struct yb_wire_directory_numbers numbers;
    struct yb_wire_cluster cluster;

    (void)stage_put(&stage->nodes[0], stage_hash(1), 7, 1);
    (void)stage_put(&stage->nodes[1], stage_hash(1), 7, 1);
    (void)stage_lookup(&stage->client, stage_hash(1));
    (void)stage_lookup(&stage->client, stage_hash(2));
    assert_int_equal(stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_DIRECTORY_STAT, NULL, 0),
                     YB_OK);
    assert_int_equal(
        yb_wire_directory_numbers_decode(stage->reply, stage->reply_bytes, &numbers, NULL), YB_OK);
    assert_int_equal(numbers.records, 1);
    assert_int_equal(numbers.replicas, 2);
    assert_int_equal(numbers.members, 2);
    assert_int_equal(numbers.lookups, 2);
    assert_int_equal(numbers.hits, 1);
    assert_int_equal(numbers.records_max, 10000);
    assert_int_equal(stage_ask(&stage->client, YB_WIRE_DIRECTORY_TYPE_JOIN, NULL, 0), YB_OK);
    assert_int_equal(yb_wire_cluster_decode(stage->reply, stage->reply_bytes, &cluster, NULL),
                     YB_OK);
    assert_true(yb_id_equal(cluster.cluster, yb_directory_cluster(stage->directory)));
    assert_int_equal(cluster.lease_ms, STAGE_LEASE_MS);
    assert_int_equal(cluster.rebuilding, 0);
}

/* F4: credits of two nodes together do not exceed the limit but for a moment. */
static void
test_directory_more__a_limit_is_shared_by_the_nodes(void **state)
{
    static const struct yb_directory_limit limit = {.tenant = "default", .bytes = 1000};
    struct stage *stage = *state;
    struct yb_wire_tenant_state tenant;
    uint64_t credits[2] = {0};

    stage->options.limits = &limit;
    stage->options.limit_count = 1;
    stage_start(stage);
    for (uint32_t i = 0; i < 2; i++) {
        struct stage_actor *node = &stage->nodes[i];

        memcpy(node->use.tenant, "default", 7);
        node->has_use = true;
        assert_int_equal(stage_register(node, 0), YB_OK);
    }
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < 2; i++) {
            struct stage_actor *node = &stage->nodes[i];

            assert_int_equal(stage_beat_once(node), YB_OK);
            assert_int_equal(node->beat_answer.full, 1);
            assert_int_equal(node->beat_answer.tenants.count, 1);
            yb_wire_tenant_state_at(&node->beat_answer.tenants, 0, &tenant);
            credits[i] = tenant.credit;
            node->use.used = i == 0 ? tenant.credit : 0; /* The first takes what it gets. */
        }
        assert_true(credits[0] + credits[1] <= 1000);
    }
    assert_true(credits[0] >= 900);
}

static void
test_directory_more__a_node_that_does_not_confirm_is_fenced(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    struct yb_directory_order order = {.hash = stage_hash(1), .number = 1};
    uint64_t last = 0;

    node->manner = STAGE_REFUSES;
    for (uint32_t i = 0; i <= YB_DIRECTORY_ORDERS_MAX; i++) {
        last = yb_directory_order(stage->directory, node->slot, &order);
    }
    assert_true(last == UINT64_MAX);
    assert_int_equal(stage_beat_once(node), YB_FENCED);
    stage_pass_ms(stage, STAGE_LEASE_MS * 2);
    assert_int_equal(stage_stat(stage, YB_DIRECTORY_STAT_DIED), 1);
}

/* D1: a directory whose cluster file was an old copy goes beyond what nodes have seen. */
static void
test_directory_more__grants_never_start_again(void **state)
{
    struct stage *stage = with_nodes(state, 1);
    struct stage_actor *node = &stage->nodes[0];
    uint64_t later = node->epoch + 9;
    struct yb_wire_register body = {
        .capacity = 1000,
        .grant_max = yb_grant_make(later - 1, 5),
        .cluster = yb_directory_cluster(stage->directory),
        .name = yb_wire_text_of("z"),
        .address = yb_wire_text_of("10.0.1.2:7000"),
    };
    struct yb_wire_registered answer;
    uint8_t bytes[YB_WIRE_REGISTER_BYTES_MAX];
    size_t length;

    (void)stage_put(node, stage_hash(1), 7, 1);
    assert_int_equal(yb_wire_register_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(
        stage_ask(&stage->nodes[1], YB_WIRE_DIRECTORY_TYPE_REGISTER, bytes, (uint32_t)length),
        YB_OK);
    assert_int_equal(yb_wire_registered_decode(stage->reply, stage->reply_bytes, &answer, NULL),
                     YB_OK);
    assert_int_equal(answer.epoch, later);
    stage_beat(node, false);
    assert_int_equal(stage_beat_once(node), YB_FENCED);
    assert_int_equal(node->beat_answer.epoch, later);
    assert_int_equal(stage_register(node, node->incarnation), YB_OK);
    assert_true(node->keep);
    assert_int_equal(stage_lookup(&stage->client, stage_hash(1)).presence,
                     YB_WIRE_PRESENCE_PRESENT);
    assert_int_equal(yb_grant_epoch(stage_put(node, stage_hash(2), 8, 1)), later);
}

int
main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_directory_more__##name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_death_is_repaired_where_it_is_farthest),
        TEST(a_copy_that_failed_is_counted_by_why_and_tried_again),
        TEST(the_rate_of_repair_is_told_while_it_lasts),
        TEST(what_fits_nowhere_is_told_of_a_drain),
        TEST(a_put_with_fewer_copies_than_wanted_is_repaired_later),
        TEST(a_node_without_room_gets_no_copy),
        TEST(a_drain_copies_then_trims),
        TEST(objects_of_another_cluster_are_left_alone),
        TEST(an_object_store_is_believed_whoever_names_what_it_has),
        TEST(a_cluster_goes_on_without_its_file),
        TEST(what_was_trimmed_is_not_believed_before_the_node_was_heard),
        TEST(where_a_block_was_trimmed_it_is_not_copied_to_meanwhile),
        TEST(a_last_copy_that_fits_nowhere_stays_unless_forced),
        TEST(a_drain_survives_the_directory),
        TEST(events_are_numbered_and_waited_for),
        TEST(keys_and_parents_travel_with_events_if_they_are_wanted),
        TEST(a_snapshot_names_every_replica_once),
        TEST(a_byte_says_whether_a_block_is_there),
        TEST(a_key_that_is_gone_is_explained),
        TEST(a_block_that_is_being_written_is_explained),
        TEST(a_block_that_is_not_shown_yet_is_explained),
        TEST(what_a_gate_declined_is_explained_to_its_tenant),
        TEST(numbers_are_told),
        TEST(a_limit_is_shared_by_the_nodes),
        TEST(a_node_that_does_not_confirm_is_fenced),
        TEST(grants_never_start_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
