/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what a conductor wants in a node's memory comes there once, from wherever it lies, and
 *   every block has one outcome, whatever happens meanwhile.
 * Method: worlds whose nodes have a disk of memory; a process that speaks as a conductor does
 *   (store_caller.h) and reads the records, while clients read and write, disks stand still and
 *   nodes die.
 */
#include "../unit/unit.h"

#include "node/node_below.h"
#include "store_caller.h"
#include "store_steps.h"
#include "store_world.h"

#define COUNT      8u
#define VALUE(key) (500u + (key))

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

/* What is wanted of a node: blocks [first, first + count) of the world. */
struct want {
    uint32_t at;   /* The node. */
    uint32_t from; /* Another one + 1; 0: none. */
    uint32_t first;
    uint32_t count;
    uint8_t kind;
    uint8_t class;
    bool leaves;
    bool tells;
    uint32_t not_before_ms;
    uint32_t deadline_ms;
    uint64_t grant_off; /* Wrong by so much. */
    uint64_t life_off;  /* The same of the node's incarnation. */
};

struct told {
    uint32_t what[YB_WIRE_INSTRUCTED_UNUSED + 1];
    uint32_t tier[YB_WIRE_TIER_OBJECT + 1];
    struct yb_wire_instruction_record record;
};

static struct yb_node *
node_of(struct store_world *world, uint32_t number)
{
    return store_node(world, number)->life->node;
}

/* The grant of a key, by any node that has it. */
static uint64_t
grant_of(struct store_world *world, uint32_t key)
{
    struct yb_id hash = store_hash(world, key);

    for (uint32_t i = 0; i < world->options.nodes; i++) {
        const struct yb_node *node = store_node(world, i)->life != NULL ? node_of(world, i) : NULL;
        const struct yb_block *block = node != NULL ? yb_block_granted(node->blocks, hash) : NULL;
        const struct yb_shelf_record *record =
            node != NULL && node->below != NULL ? yb_shelf_find(node->below->shelf, hash) : NULL;

        if (block != NULL || record != NULL) {
            return block != NULL ? block->grant : record->grant;
        }
    }
    return 1;
}

static bool
in_memory(struct store_world *world, uint32_t number, uint32_t key)
{
    return yb_block_granted(node_of(world, number)->blocks, store_hash(world, key)) != NULL;
}

static void
read_record(const struct store_caller *caller, uint32_t count, struct told *told_out)
{
    memset(told_out, 0, sizeof(*told_out));
    assert_int_equal(yb_wire_instruction_record_decode(caller->reply, caller->call.reply_body_bytes,
                                                       &told_out->record, NULL),
                     YB_OK);
    assert_int_equal(told_out->record.id, 77);
    assert_int_equal(told_out->record.outcomes.count, count);
    for (uint32_t i = 0; i < count; i++) {
        struct yb_wire_instruction_outcome one;

        yb_wire_instruction_outcome_at(&told_out->record.outcomes, i, &one);
        assert_int_not_equal(one.what, 0);
        told_out->what[one.what]++;
        told_out->tier[one.tier]++;
    }
}

static enum yb_status
instruct(struct store_caller *caller, const struct want *want, struct told *told_out)
{
    struct store_world *world = caller->world;
    struct yb_wire_instruction_block blocks[COUNT * 2];
    char keys[COUNT * 2 * 16];
    char address[YB_ADDRESS_TEXT_BYTES] = "";
    size_t at = 0;
    uint8_t bytes[4096];
    size_t length = 0;
    struct yb_wire_instruction body = {
        .incarnation = node_of(world, want->at)->incarnation + want->life_off,
        .id = 77,
        .not_before_us = want->not_before_ms * 1000ull,
        .deadline_us = want->deadline_ms * 1000ull,
        .kind = want->kind,
        .class = want->class,
        .leaves = want->leaves,
        .tells = want->tells,
        .tenant = yb_wire_text_of("default"),
        .blocks = {.count = want->count, .native = blocks},
    };
    enum yb_status status;

    for (uint32_t i = 0; i < want->count; i++) {
        int key = snprintf(keys + at, sizeof(keys) - at, "key-%u", want->first + i);

        blocks[i] = (struct yb_wire_instruction_block){.hash = store_hash(world, want->first + i),
                                                       .grant = grant_of(world, want->first + i) +
                                                                want->grant_off,
                                                       .key_bytes = (uint16_t)key};
        at += (size_t)key;
    }
    if (want->from != 0) {
        (void)snprintf(address, sizeof(address), "%s",
                       store_node(world, want->from - 1)->life->address);
        body.source = node_of(world, want->from - 1)->incarnation;
    }
    body.address = yb_wire_text_of(address);
    body.keys = (struct yb_wire_blob){.bytes = (const uint8_t *)keys, .length = (uint32_t)at};
    assert_int_equal(yb_wire_instruction_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    status = store_caller_ask(caller, store_node(world, want->at), YB_WIRE_NODE_TYPE_INSTRUCT,
                              bytes, length);
    if (status != YB_OK) {
        return status;
    }
    read_record(caller, want->count, told_out);
    return YB_OK;
}

/* Ask who read what came, by the number of the record `told_out`, which is another one then. */
static enum yb_status
ask_watched(struct store_caller *caller, uint64_t life_off, struct told *told_out)
{
    struct store_world *world = caller->world;
    const struct yb_wire_instruction_watch body = {
        .incarnation = node_of(world, 0)->incarnation + life_off,
        .watched = told_out->record.watched,
    };
    const uint32_t count = told_out->record.outcomes.count;
    uint8_t bytes[64];
    size_t length = 0;
    enum yb_status status;

    assert_int_equal(yb_wire_instruction_watch_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    status = store_caller_ask(caller, store_node(world, 0), YB_WIRE_NODE_TYPE_INSTRUCT_WATCH, bytes,
                              length);
    if (status == YB_OK) {
        read_record(caller, count, told_out);
    }
    return status;
}

/* A world whose first node has all blocks on its disk alone. */
static struct store_world *
begin(uint32_t nodes, uint64_t pool_bytes)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_instruct"),
        .nodes = nodes,
        .clients = 1,
        .tiers = 1,
        .tier_ms = 20,
        .pool_bytes = pool_bytes,
    });

    for (uint32_t key = 0; key < COUNT; key++) {
        DO(world, {STEP_PUT, .key = key, .value = VALUE(key), .node = 1});
    }
    DO(world, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 3000});
    return world;
}

static void
end(struct store_world *world, struct store_caller **caller)
{
    store_caller_destroy(caller);
    for (uint32_t key = 0; key < COUNT; key++) {
        DO(world, {STEP_GET, .key = key, .value = VALUE(key)});
    }
    store_steps_end(world);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void
test_instruct__blocks_come_up_once_and_are_held(void **state)
{
    struct store_world *world = begin(1, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct told told;

    (void)state;
    assert_false(in_memory(world, 0, 0));
    assert_int_equal(instruct(caller, &(struct want){.count = COUNT, .deadline_ms = 5000}, &told),
                     YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], COUNT);
    assert_int_equal(told.tier[YB_WIRE_TIER_SSD], COUNT);
    assert_true(told.record.finished_us > 0 && told.record.bytes > 0);
    for (uint32_t key = 0; key < COUNT; key++) {
        assert_true(in_memory(world, 0, key));
        assert_true(
            yb_block_granted(node_of(world, 0)->blocks, store_hash(world, key))->hold_until_ns > 0);
    }
    assert_int_equal(instruct(caller, &(struct want){.count = COUNT, .deadline_ms = 5000}, &told),
                     YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_HERE], COUNT);
    assert_int_equal(told.record.bytes, 0);
    end(world, &caller);
}

static void
test_instruct__a_load_under_way_is_joined_and_a_time_is_waited_for(void **state)
{
    struct store_world *world = begin(1, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct store_op *op;
    struct told told;
    uint32_t keys[2] = {2, 3};

    (void)state;
    assert_int_equal(
        instruct(caller,
                 &(struct want){.first = 0, .count = 1, .not_before_ms = 700, .deadline_ms = 800},
                 &told),
        YB_OK);
    assert_true(told.record.started_us >= 700000);
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = true;
    op = store_op(world, 0, YB_CLIENT_FETCH, keys, 2, 20000);
    store_submit(op);
    store_run_ms(world, 100);
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = false;
    assert_int_equal(
        instruct(caller, &(struct want){.first = 2, .count = 4, .deadline_ms = 5000}, &told),
        YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_JOINED], 2);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], 2);
    assert_true(store_settle(world, 60000));
    assert_int_equal(op->items[0].status, YB_OK);
    end(world, &caller);
}

static void
test_instruct__blocks_come_from_another_node_and_can_leave_it(void **state)
{
    struct store_world *world = begin(2, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct told told;

    (void)state;
    assert_int_equal(instruct(caller,
                              &(struct want){.at = 1,
                                             .from = 1,
                                             .count = COUNT,
                                             .kind = YB_WIRE_INSTRUCTION_KIND_MIGRATE,
                                             .class = 2,
                                             .deadline_ms = 5000},
                              &told),
                     YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], COUNT);
    for (uint32_t key = 0; key < COUNT; key++) {
        assert_true(in_memory(world, 1, key));
        assert_true(in_memory(world, 0, key)); /* It was lifted to be sent. */
    }
    assert_int_equal(instruct(caller,
                              &(struct want){.count = COUNT,
                                             .leaves = true,
                                             .kind = YB_WIRE_INSTRUCTION_KIND_MIGRATE},
                              &told),
                     YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], COUNT);
    for (uint32_t key = 0; key < COUNT; key++) {
        assert_false(in_memory(world, 0, key));
        assert_true(in_memory(world, 1, key));
    }
    end(world, &caller);
}

/* ---- copies from another node ---------------------------------------------------------------- */

/* Copies that node 2 is asked for, and the order in which they end. */
struct copied {
    uint32_t keys[4 * COUNT]; /* As they ended. */
    uint32_t count;
    uint32_t joined;
    uint32_t failed;
};

struct copy_order {
    struct copied *copied;
    uint32_t first; /* Key of its first block. */
};

static void
on_copied(void *owner, uint32_t index, enum yb_status status, bool joined)
{
    struct copy_order *order = owner;

    order->copied->keys[order->copied->count++] = order->first + index;
    order->copied->joined += joined;
    order->copied->failed += status != YB_OK;
}

/* Have node 2 copy `count` blocks of node 1. */
static void
copy(struct store_world *world, struct copy_order *order, uint32_t count, enum yb_class class,
     uint64_t deadline_ms)
{
    struct yb_wire_copy_item items[COUNT];
    struct yb_node *to = node_of(world, 1);

    for (uint32_t i = 0; i < count; i++) {
        items[i] = (struct yb_wire_copy_item){.hash = store_hash(world, order->first + i),
                                              .grant = grant_of(world, order->first + i)};
    }
    assert_int_equal(yb_node_copy(to,
                                  &(struct yb_node_copy_want){
                                      .address = store_node(world, 0)->life->address,
                                      .source = node_of(world, 0)->incarnation,
                                      .items = items,
                                      .count = count,
                                      .traffic_class = class,
                                      .deadline_ns = yb_node_now(to) + deadline_ms * YB_NS_PER_MS,
                                      .ended = on_copied,
                                      .owner = order,
                                  }),
                     YB_OK);
}

/* Three blocks more, in the memory of node 1, and copies under way of the first `count` others, of
 * which eight may be: they wait for its disk. */
static struct store_world *
begin_copies(struct copy_order *first, uint32_t count)
{
    struct store_world *world = begin(2, 0);

    for (uint32_t key = COUNT; key < COUNT + 3; key++) {
        DO(world, {STEP_PUT, .key = key, .value = VALUE(key), .node = 1});
    }
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = true;
    copy(world, first, count, YB_CLASS_THROUGHPUT, 20000);
    store_run_ms(world, 100);
    assert_int_equal(first->copied->count, 0);
    return world;
}

static void
end_copies(struct store_world *world)
{
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = false;
    assert_true(store_settle(world, 60000));
    store_run_ms(world, 5000);
}

static void
test_instruct__the_more_urgent_copy_is_begun_first_and_of_a_class_the_earlier_deadline(void **state)
{
    struct copied copied = {0};
    struct copy_order all = {&copied, 0};
    struct copy_order late = {&copied, COUNT};
    struct copy_order soon = {&copied, COUNT + 1};
    struct copy_order urgent = {&copied, COUNT + 2};
    struct store_world *world = begin_copies(&all, COUNT);
    uint32_t at = 0;

    (void)state;
    copy(world, &late, 1, YB_CLASS_BACKGROUND, 10000);
    copy(world, &soon, 1, YB_CLASS_BACKGROUND, 5000);
    copy(world, &urgent, 1, YB_CLASS_FIRST_TOKEN, 15000);
    end_copies(world);
    assert_int_equal(copied.count, COUNT + 3);
    assert_int_equal(copied.failed, 0);
    for (uint32_t i = 0; i < copied.count; i++) {
        static const uint32_t wanted[] = {COUNT + 2, COUNT + 1, COUNT};

        if (copied.keys[i] >= COUNT) {
            assert_int_equal(copied.keys[i], wanted[at++]);
        }
    }
    store_steps_end(world);
}

static void
test_instruct__who_wants_what_is_being_copied_joins_that(void **state)
{
    struct copied copied = {0};
    struct copy_order first = {&copied, 0};
    struct copy_order some = {&copied, 2};
    struct copy_order same = {&copied, 3};
    struct store_world *world = begin_copies(&first, 4);

    (void)state;
    copy(world, &some, 3, YB_CLASS_BACKGROUND, 10000); /* Of these the first two. */
    copy(world, &same, 1, YB_CLASS_FIRST_TOKEN, 10000);
    end_copies(world);
    assert_int_equal(copied.count, 4 + 3 + 1);
    assert_int_equal(copied.joined, 2 + 1);
    assert_int_equal(copied.failed, 0);
    for (uint32_t key = 0; key < 5; key++) {
        assert_true(in_memory(world, 1, key));
    }
    store_steps_end(world);
}

/* ---- what cannot be -------------------------------------------------------------------------- */

static void
test_instruct__what_is_nowhere_or_another_one_is_gone(void **state)
{
    struct store_world *world = begin(2, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct store_caller *client = store_caller_create(world, YB_WIRE_ROLE_CLIENT);
    struct told told;

    (void)state;
    assert_int_equal(
        instruct(caller, &(struct want){.first = COUNT, .count = 2, .deadline_ms = 500}, &told),
        YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_GONE], 2);
    assert_int_equal(
        instruct(caller, &(struct want){.count = 2, .deadline_ms = 500, .grant_off = 1}, &told),
        YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_GONE], 2);
    assert_int_equal(
        instruct(caller,
                 &(struct want){.at = 1, .from = 1, .count = 2, .deadline_ms = 500, .grant_off = 1},
                 &told),
        YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_GONE], 2);
    assert_int_equal(instruct(caller, &(struct want){.count = 1, .life_off = 1}, &told), YB_FENCED);
    assert_int_equal(instruct(client, &(struct want){.count = 1}, &told), YB_DENIED);
    store_caller_destroy(&client);
    end(world, &caller);
}

static void
test_instruct__of_a_prefetch_it_is_told_whether_anybody_read_it(void **state)
{
    struct store_world *world = begin(1, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    const struct want want = {
        .count = 4, .kind = YB_WIRE_INSTRUCTION_KIND_PREFETCH, .class = 2, .deadline_ms = 1500};
    uint32_t keys[2] = {0, 1};
    struct told told;
    struct yb_id hash;

    (void)state;
    store_submit(store_op(world, 0, YB_CLIENT_FETCH, keys, 1, 1000)); /* Joins, and reads one. */
    assert_int_equal(instruct(caller, &want, &told), YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_UNUSED], 0);
    assert_true(store_settle(world, 60000));
    hash = store_hash(world, 1);
    assert_int_equal(yb_block_granted(node_of(world, 0)->blocks, hash)->awaited, 0);
    end(world, &caller);
}

static void
test_instruct__whoever_is_told_when_all_came_asks_then_who_reads_it(void **state)
{
    struct store_world *world = begin(1, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct want want = {.count = 2,
                        .kind = YB_WIRE_INSTRUCTION_KIND_PREFETCH,
                        .class = 2,
                        .tells = true,
                        .deadline_ms = 5000};
    uint32_t keys[4] = {0, 1, 2, 3};
    struct told told, before;

    (void)state;
    assert_int_equal(instruct(caller, &want, &told), YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], 2);
    assert_int_not_equal(told.record.watched, 0);
    assert_int_equal(ask_watched(caller, 1, &told), YB_FENCED);
    before = told;
    before.record.watched++;
    assert_int_equal(ask_watched(caller, 0, &before), YB_NOT_FOUND);
    before = told;
    store_submit(store_op(world, 0, YB_CLIENT_FETCH, keys, 2, 1000)); /* While it is asked. */
    assert_int_equal(ask_watched(caller, 0, &told), YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], 2);
    assert_int_equal(told.record.watched, 0);
    assert_true(store_settle(world, 60000));
    assert_int_equal(ask_watched(caller, 0, &before), YB_NOT_FOUND);
    want.first = 2; /* Read before it is asked: that is not lost. */
    assert_int_equal(instruct(caller, &want, &told), YB_OK);
    assert_int_not_equal(told.record.watched, 0);
    store_submit(store_op(world, 0, YB_CLIENT_FETCH, &keys[2], 2, 1000));
    assert_true(store_settle(world, 60000));
    assert_int_equal(ask_watched(caller, 0, &told), YB_OK);
    assert_int_equal(told.what[YB_WIRE_INSTRUCTED_MOVED], 2);
    want.first = 4; /* Nobody asks: with its deadline it is over. */
    assert_int_equal(instruct(caller, &want, &told), YB_OK);
    assert_int_not_equal(told.record.watched, 0);
    store_run_ms(world, 6000);
    assert_int_equal(ask_watched(caller, 0, &told), YB_NOT_FOUND);
    end(world, &caller);
}

static void
make_room(bool tells)
{
    /* Room for the blocks of one batch of puts, not of two. */
    struct store_world *world = begin(1, 96u << 10);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct store_op *op;
    uint32_t keys[STORE_BATCH_MAX];
    struct told told;

    for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
        keys[i] = 100 + i;
    }
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = false;
    op = store_op(world, 0, YB_CLIENT_PUT, keys, STORE_BATCH_MAX, 20000);
    for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
        store_value(op, i, 7, STORE_VALUE_MAX);
    }
    store_submit(op); /* It goes as the world turns, while the record is waited for. */
    assert_int_equal(instruct(caller,
                              &(struct want){.count = COUNT,
                                             .kind = YB_WIRE_INSTRUCTION_KIND_PREFETCH,
                                             .class = 2,
                                             .tells = tells,
                                             .deadline_ms = 1800},
                              &told),
                     YB_OK);
    assert_int_equal(told.record.watched != 0, tells);
    if (tells) {
        assert_int_equal(ask_watched(caller, 0, &told), YB_OK);
    }
    assert_true(store_settle(world, 60000));
    assert_true(told.what[YB_WIRE_INSTRUCTED_UNUSED] > 0);
    end(world, &caller);
}

static void
test_instruct__a_prefetch_that_makes_room_unread_says_so(void **state)
{
    (void)state;
    make_room(false);
    make_room(true);
}

static void
test_instruct__every_block_has_an_outcome_when_the_source_dies(void **state)
{
    struct store_world *world = begin(2, 0);
    struct store_caller *caller = store_caller_create(world, YB_WIRE_ROLE_ADMIN);
    struct told told;

    (void)state;
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = true;
    /* The call's own time is over before the disk goes on: it ends by that, and nothing sticks. */
    assert_int_equal(
        instruct(caller, &(struct want){.at = 1, .from = 1, .count = COUNT, .deadline_ms = 100},
                 &told) == YB_OK &&
            told.what[YB_WIRE_INSTRUCTED_MOVED] != 0,
        0);
    yb_memory_medium_faults(store_node(world, 0)->media[0])->stalled = false;
    store_run_ms(world, 5000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(node_of(world, i)->requests, 0);
    }
    end(world, &caller);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instruct__blocks_come_up_once_and_are_held),
        cmocka_unit_test(test_instruct__a_load_under_way_is_joined_and_a_time_is_waited_for),
        cmocka_unit_test(test_instruct__blocks_come_from_another_node_and_can_leave_it),
        cmocka_unit_test(
            test_instruct__the_more_urgent_copy_is_begun_first_and_of_a_class_the_earlier_deadline),
        cmocka_unit_test(test_instruct__who_wants_what_is_being_copied_joins_that),
        cmocka_unit_test(test_instruct__what_is_nowhere_or_another_one_is_gone),
        cmocka_unit_test(test_instruct__of_a_prefetch_it_is_told_whether_anybody_read_it),
        cmocka_unit_test(test_instruct__whoever_is_told_when_all_came_asks_then_who_reads_it),
        cmocka_unit_test(test_instruct__a_prefetch_that_makes_room_unread_says_so),
        cmocka_unit_test(test_instruct__every_block_has_an_outcome_when_the_source_dies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
