/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whoever fetches a block from below memory waits for a load that others share, and leaves it
 *   without harm to them; the last one out ends it (RULES C5).
 * Method: worlds whose nodes have a disk of memory that stands still until it is let go. Meanwhile
 *   fetches come and leave, by their own word, their deadlines, or because their process is gone;
 *   what comes in the end is compared byte for byte (store_world.h).
 */
#include "../unit/unit.h"

#include <sys/mman.h>
#include <unistd.h>

#include "client/core_internal.h"
#include "directory/members.h"
#include "node/node_below.h"
#include "store_caller.h"
#include "store_steps.h"
#include "store_world.h"

#define COUNT      11u
#define MESSAGES   8u /* Of a client under way: so that some items share one. */
#define VALUE(key) (500u + (key))
#define STEP_MS    300u
#define LONG_MS    20000u

#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

static void
few_messages(uint32_t number, struct yb_client_core_options *options)
{
    (void)number;
    options->calls_max = MESSAGES;
}

static struct yb_memory_faults *
disk(struct store_world *world)
{
    return yb_memory_medium_faults(store_node(world, 0)->media[0]);
}

static struct yb_node *
node_of(struct store_world *world)
{
    return store_node(world, 0)->life->node;
}

static void
restart(struct store_world *world)
{
    DO(world, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1}, {.kind = STEP_READY},
       {STEP_WAIT, .ms = 3000}); /* Nobody thinks of it as of a node that failed lately. */
}

/* A world of two clients and a node, whose blocks all lie below its memory. */
static struct store_world *
begin(void)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_fetch"),
        .nodes = 1,
        .clients = 2,
        .tiers = 1,
        .tier_ms = 20,
        .tune_client = few_messages,
    });

    for (uint32_t key = 0; key < COUNT; key++) {
        assert_int_equal(store_put(world, 0, key, VALUE(key), false), YB_OK);
    }
    store_run_ms(world, 100);
    restart(world);
    return world;
}

static struct store_op *
fetch(struct store_world *world, uint32_t client, uint32_t key_first, uint32_t count)
{
    uint32_t keys[COUNT];
    struct store_op *op;

    for (uint32_t i = 0; i < count; i++) {
        keys[i] = key_first + i;
    }
    op = store_op(world, client, YB_CLIENT_FETCH, keys, count, LONG_MS);
    store_submit(op);
    return op;
}

static void
leave(struct store_op *op, uint32_t index)
{
    yb_client_core_cancel_item(op->life->client, &op->batch, index);
    store_run_ms(op->world, STEP_MS);
}

static void
assert_came(const struct store_op *op, uint32_t index)
{
    assert_int_equal(op->items[index].status, YB_OK);
    assert_int_equal(op->values[index], VALUE(op->keys[index]));
}

/* Readers that wait for loads, and loads that somebody waits for. */
struct waiting {
    uint32_t readers;
    uint32_t loads;
};

static struct waiting
waiting(struct store_world *world)
{
    struct waiting sum = {0, 0};

    for (const struct yb_node_loading *loading = node_of(world)->below->loading; loading != NULL;
         loading = loading->next) {
        sum.loads++;
        for (uint32_t c = 0; c < YB_CLASS_COUNT; c++) {
            sum.readers += yb_fair_item_count(&loading->joins, (enum yb_class)c);
        }
    }
    return sum;
}

static void
assert_waiting(struct store_world *world, uint32_t readers, uint32_t loads)
{
    struct waiting now = waiting(world);

    assert_int_equal(now.readers, readers);
    assert_int_equal(now.loads, loads);
    assert_true(loads != 0 || node_of(world)->below->loading_bytes == 0);
}

/* When the load of a key began; 0: there is none. */
static uint64_t
began_ns(struct store_world *world, uint32_t key)
{
    const struct yb_node_loading *loading = node_of(world)->below->loading;
    struct yb_id hash = store_hash(world, key);

    while (loading != NULL && !yb_id_equal(loading->load.hash, hash)) {
        loading = loading->next;
    }
    return loading != NULL ? loading->began_ns : 0;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void
test_fetch__one_reader_leaves_and_the_last_one_out_ends_the_load(void **state)
{
    struct store_world *world = begin();
    struct store_op *first;
    struct store_op *second;

    (void)state;
    disk(world)->stalled = true;
    first = fetch(world, 0, 3, 1);
    second = fetch(world, 1, 3, 1);
    store_run_ms(world, STEP_MS);
    assert_waiting(world, 2, 1);
    leave(first, 0);
    assert_int_equal(first->done, 1);
    assert_int_equal(first->items[0].status, YB_CANCELLED);
    assert_int_equal(second->done, 0);
    assert_waiting(world, 1, 1);
    yb_client_core_cancel(second->life->client, &second->batch);
    store_run_ms(world, STEP_MS);
    assert_int_equal(second->items[0].status, YB_CANCELLED);
    assert_waiting(world, 0, 0);
    disk(world)->stalled = false;
    first = fetch(world, 0, 3, 1);
    assert_true(store_settle(world, LONG_MS));
    assert_came(first, 0);
    store_steps_end(world);
}

static void
test_fetch__an_item_leaves_and_the_rest_of_its_message_comes(void **state)
{
    struct store_world *world = begin();
    uint32_t cancelled = 0;
    struct store_op *op;
    uint64_t beside_ns;

    (void)state;
    disk(world)->stalled = true;
    op = fetch(world, 0, 0, COUNT);
    store_run_ms(world, STEP_MS);
    assert_true(op->looked);
    assert_waiting(world, COUNT, COUNT);
    beside_ns = began_ns(world, 0);
    assert_true(beside_ns != 0 && began_ns(world, 1) != 0);
    leave(op, 1);
    leave(op, 2);
    leave(op, 9);
    assert_int_equal(began_ns(world, 0), beside_ns);
    assert_int_equal(began_ns(world, 1), 0);
    assert_waiting(world, COUNT - 3, COUNT - 3);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_true(op->has_ended[i]);
        if (i == 1 || i == 2 || i == 9) {
            cancelled += op->items[i].status == YB_CANCELLED;
        } else {
            assert_came(op, i);
        }
    }
    assert_int_equal(cancelled, 3);
    store_steps_end(world);
}

/* Its deadline is its own: those beside it in the message, and those who joined, wait on. */
static void
test_fetch__an_item_is_late_alone(void **state)
{
    struct store_world *world = begin();
    uint32_t keys[COUNT];
    struct store_op *other;
    struct store_op *op;

    (void)state;
    disk(world)->stalled = true;
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = i;
    }
    op = store_op(world, 0, YB_CLIENT_FETCH, keys, COUNT, LONG_MS);
    op->items[4].timeout_ns = 500 * YB_NS_PER_MS;
    store_submit(op);
    other = fetch(world, 1, 4, 1);
    store_run_ms(world, 1000);
    assert_true(op->has_ended[4]);
    assert_int_equal(op->items[4].status, YB_TIMED_OUT);
    assert_int_equal(op->done, 0);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    assert_came(other, 0);
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i != 4) {
            assert_came(op, i);
        }
    }
    store_steps_end(world);
}

/* What it held is not known for a moment; what was left is not asked for again. */
static void
test_fetch__ends_each_item_once_when_the_node_starts_again(void **state)
{
    struct store_world *world = begin();
    struct store_op *again;
    struct store_op *op;

    (void)state;
    disk(world)->stalled = true;
    op = fetch(world, 0, 0, COUNT);
    store_run_ms(world, STEP_MS);
    leave(op, 5);
    restart(world);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    for (uint32_t i = 0; i < COUNT; i++) {
        if (i == 5) {
            assert_int_equal(op->items[i].status, YB_CANCELLED);
        } else if (op->items[i].status == YB_OK) {
            assert_came(op, i);
        } else {
            assert_true(op->items[i].status == YB_NOT_FOUND || op->items[i].status == YB_PEER_LOST);
        }
    }
    assert_waiting(world, 0, 0);
    again = fetch(world, 1, 0, COUNT);
    assert_true(store_settle(world, LONG_MS));
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_came(again, i);
    }
    store_steps_end(world);
}

static void
test_fetch__a_reader_that_is_gone_has_left(void **state)
{
    struct store_world *world = begin();
    struct store_op *first;

    (void)state;
    disk(world)->stalled = true;
    first = fetch(world, 0, 6, 1);
    (void)fetch(world, 1, 6, 2);
    store_run_ms(world, STEP_MS);
    assert_waiting(world, 3, 2);
    store_crash(store_client(world, 1), YB_SIM_DEATH_RESET);
    store_run_ms(world, STEP_MS);
    assert_waiting(world, 1, 1);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    assert_came(first, 0);
    store_steps_end(world);
}

/* F10: by what its node last told, through the directory. */
static void
test_fetch__says_when_each_block_can_be_here(void **state)
{
    struct store_world *world = begin();
    struct yb_tier *tier = node_of(world)->below->levels[0].tier;
    struct yb_tier_forecast told = yb_tier_forecast(tier, YB_CLASS_THROUGHPUT);
    uint64_t base_ns = told.base_us * YB_NS_PER_US;
    struct yb_client_counters counters;
    uint64_t said_ns = 0;
    struct store_op *op;

    (void)state;
    op = fetch(world, 0, 0, COUNT);
    assert_true(store_settle(world, LONG_MS));
    for (uint32_t i = 0; i < COUNT; i++) { /* Each behind those before it. */
        assert_came(op, i);
        assert_int_equal(op->items[i].tier, YB_CLIENT_TIER_SSD);
        assert_true(op->items[i].ready_ns > (i > 0 ? op->items[i - 1].ready_ns : base_ns));
        assert_true(op->items[i].ready_ns < base_ns + YB_NS_PER_MS);
        said_ns += op->items[i].ready_ns;
    }
    yb_client_core_counters(op->life->client, &counters);
    assert_int_equal(counters.fetched, COUNT);
    assert_int_equal(counters.fetch_said_ns, said_ns);
    assert_true(counters.fetch_took_ns >= COUNT * base_ns);
    store_steps_end(world);
}

/* Let the disk stand still before `count` blocks that another client fetches, and `ms` pass.
 * Returns how soon the next block would be there, as the disk says. */
static uint64_t
make_busy(struct store_world *world, uint32_t count, uint64_t ms)
{
    struct yb_tier_forecast told;

    disk(world)->stalled = true;
    (void)fetch(world, 1, 0, count);
    store_run_ms(world, ms);
    told = yb_tier_forecast(node_of(world)->below->levels[0].tier, YB_CLASS_THROUGHPUT);
    assert_true(told.backlog_bytes > 0);
    return told.base_us * YB_NS_PER_US +
           (uint64_t)((double)told.backlog_bytes * 1e9 / (double)told.bytes_per_second);
}

static void
test_fetch__says_that_a_block_waits_behind_those_of_others(void **state)
{
    struct store_world *world = begin();
    struct store_op *op;
    uint64_t behind_ns;

    (void)state;
    behind_ns = make_busy(world, COUNT - 1, 3000); /* It is told. */
    op = fetch(world, 0, COUNT - 1, 1);
    store_run_ms(world, STEP_MS);
    assert_true(op->looked);
    assert_true(op->items[0].ready_ns >= behind_ns);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    assert_came(op, 0);
    store_steps_end(world);
}

/* Who fetches from below hears within a fifth of a second that a tier has become busy, however
 * seldom it asks who is there. */
static void
test_fetch__hears_soon_that_a_tier_is_busy(void **state)
{
    struct store_world *world = begin();
    struct yb_client_core *core;
    uint64_t behind_ns;
    struct store_op *op;

    (void)state;
    op = fetch(world, 0, COUNT - 3, 1);
    assert_true(store_settle(world, LONG_MS));
    core = op->life->client;
    core->options.members_ms = 600000;
    store_run_ms(world, 1000);
    assert_true(yb_core_now(core) - core->members_ns > 500 * YB_NS_PER_MS);
    behind_ns = make_busy(world, COUNT - 3, 1000);
    op = fetch(world, 0, COUNT - 2, 1); /* It knows nothing yet, and asks. */
    store_run_ms(world, STEP_MS);
    assert_true(op->looked);
    assert_true(op->items[0].ready_ns < behind_ns);
    op = fetch(world, 0, COUNT - 1, 1);
    store_run_ms(world, STEP_MS);
    assert_true(op->looked);
    assert_true(op->items[0].ready_ns >= behind_ns);
    disk(world)->stalled = false;
    assert_true(store_settle(world, LONG_MS));
    assert_came(op, 0);
    store_steps_end(world);
}

/* What the directory knows of the node. */
static const struct yb_members_slot *
known(struct store_world *world)
{
    return store_known(world, node_of(world)->slot);
}

/* Let time pass, and count the heartbeats that come. */
static uint32_t
beats_in(struct store_world *world, uint32_t ms)
{
    uint64_t last_ns = known(world)->answered_ns;
    uint32_t count = 0;

    for (uint32_t i = 0; i < ms; i++) {
        store_run_ms(world, 1);
        count += known(world)->answered_ns != last_ns;
        last_ns = known(world)->answered_ns;
    }
    return count;
}

/* M4: at once, and not oftener for it than four times as usual. */
static void
test_fetch__what_has_doubled_is_told_at_once_and_not_all_the_time(void **state)
{
    struct store_world *world = begin();
    uint64_t *backlog = &node_of(world)->link.backlog_bytes;
    uint32_t count = 0;
    uint32_t usual;

    (void)state;
    store_run_ms(world, 1000);
    usual = beats_in(world, 1000);
    assert_in_range(usual, 10, 13); /* 5 in a lease of 400 ms. */
    for (uint32_t i = 1; i <= 12; i++) {
        *backlog = (uint64_t)(i % 2 + 1) << 20;
        (void)beats_in(world, 45);
        assert_int_equal(known(world)->backlog, *backlog);
        (void)beats_in(world, 100 + 7 * i);
    }
    *backlog = *backlog / 2 * 3; /* Less than twice as much is not urgent. */
    assert_in_range(beats_in(world, 1000), usual - 1, usual + 1);
    assert_int_equal(known(world)->backlog, *backlog);
    for (uint32_t i = 0; i < 100; i++) {
        *backlog = (uint64_t)(i % 2) << 20;
        count += beats_in(world, 10);
    }
    assert_in_range(count, 2 * usual, 4 * usual + 4);
    *backlog = 0;
    store_steps_end(world);
}

struct probe {
    struct yb_node_join join; /* First. */
    struct yb_node *node;
    uint32_t done;
    enum yb_status status;
};

static void
on_probe(struct yb_node_join *join, enum yb_status status, struct yb_block *block)
{
    struct probe *probe = (struct probe *)join;

    probe->done++;
    probe->status = status;
    if (block != NULL) {
        yb_node_unpin(probe->node, block);
    }
}

/* The load was cancelled, and is not quiet yet. */
static void
test_fetch__who_joins_a_load_that_ends_gets_the_block(void **state)
{
    struct store_world *world = begin();
    struct yb_node *node = node_of(world);
    struct yb_id hash = store_hash(world, 2);
    const struct yb_node_name name = {hash, (const uint8_t *)"key-2", 5, YB_WIRE_NO_GRANT};
    struct yb_shelf_record *record = yb_shelf_find(node->below->shelf, hash);
    struct probe probes[2];

    (void)state;
    assert_non_null(record);
    for (uint32_t i = 0; i < 2; i++) {
        probes[i] = (struct probe){
            .join = {.wish = {.traffic_class = YB_CLASS_THROUGHPUT, .deadline_ns = YB_NEVER},
                     .done = on_probe},
            .node = node,
        };
    }
    disk(world)->stalled = true;
    assert_int_equal(yb_node_load(node, record, &name, &probes[0].join), YB_OK);
    yb_node_load_leave(node, &probes[0].join);
    assert_int_equal(yb_node_load(node, record, &name, &probes[1].join), YB_OK);
    store_run_ms(world, STEP_MS);
    assert_int_equal(probes[1].done, 0);
    disk(world)->stalled = false;
    store_run_ms(world, STEP_MS);
    assert_int_equal(probes[0].done, 0);
    assert_int_equal(probes[1].done, 1);
    assert_int_equal(probes[1].status, YB_OK);
    store_steps_end(world);
}

/* As many readers as fill a page, one behind the other. */
static void
join_page(struct yb_node *node, struct yb_shelf_record *record, const struct yb_node_name *name,
          struct probe *probes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        probes[i] = (struct probe){
            .join = {.wish = {.traffic_class = YB_CLASS_THROUGHPUT, .deadline_ns = YB_NEVER},
                     .done = on_probe},
            .node = node,
        };
        assert_int_equal(yb_node_load(node, record, name, &probes[i].join), YB_OK);
    }
}

/* Who leaves looks at those beside it: a step to anybody in the page between is a fault. */
static void
test_fetch__leaving_does_not_walk_over_those_who_stay(void **state)
{
    struct store_world *world = begin();
    struct yb_node *node = node_of(world);
    struct yb_id hash = store_hash(world, 2);
    const struct yb_node_name name = {hash, (const uint8_t *)"key-2", 5, YB_WIRE_NO_GRANT};
    struct yb_shelf_record *record = yb_shelf_find(node->below->shelf, hash);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint32_t count = (uint32_t)(page / sizeof(struct probe));
    uint8_t *pages =
        mmap(NULL, 3 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct probe *first = (struct probe *)(void *)pages;
    struct probe *last = (struct probe *)(void *)(pages + 2 * page);

    (void)state;
    assert_true(pages != MAP_FAILED);
    disk(world)->stalled = true;
    for (uint32_t i = 0; i < 3; i++) {
        join_page(node, record, &name, (struct probe *)(void *)(pages + i * page), count);
    }
    assert_int_equal(mprotect(pages + page, page, PROT_NONE), 0);
    for (uint32_t i = 1; i + 1 < count; i++) {
        yb_node_load_leave(node, &first[i].join);
        yb_node_load_leave(node, &last[count - i].join);
    }
    assert_int_equal(mprotect(pages + page, page, PROT_READ | PROT_WRITE), 0);
    assert_waiting(world, 3 * count - 2 * (count - 2), 1);
    disk(world)->stalled = false;
    store_run_ms(world, STEP_MS);
    assert_int_equal(first[0].done, 1);
    assert_int_equal(first[1].done, 0);
    assert_int_equal(last[0].done, 1);
    assert_int_equal(last[0].status, YB_OK);
    assert_int_equal(munmap(pages, 3 * page), 0);
    store_steps_end(world);
}

/* What its readers wish for is what those who are left wish for. */
static void
test_fetch__a_load_is_as_urgent_as_those_who_wait_for_it(void **state)
{
    static const enum yb_class classes[3] = {YB_CLASS_BACKGROUND, YB_CLASS_FIRST_TOKEN,
                                             YB_CLASS_THROUGHPUT};
    struct store_world *world = begin();
    struct yb_node *node = node_of(world);
    struct yb_id hash = store_hash(world, 2);
    const struct yb_node_name name = {hash, (const uint8_t *)"key-2", 5, YB_WIRE_NO_GRANT};
    struct yb_shelf_record *record = yb_shelf_find(node->below->shelf, hash);
    uint64_t soon_ns = yb_node_now(node) + 10 * YB_NS_PER_S;
    const struct yb_tier_op *op;
    struct probe probes[3];

    (void)state;
    disk(world)->stalled = true;
    for (uint32_t i = 0; i < 3; i++) {
        probes[i] = (struct probe){
            .join = {.wish = {.traffic_class = classes[i],
                              .deadline_ns = i == 0 ? soon_ns : YB_NEVER},
                     .done = on_probe},
            .node = node,
        };
        assert_int_equal(yb_node_load(node, record, &name, &probes[i].join), YB_OK);
    }
    op = &node->below->loading->load.op;
    assert_int_equal(op->traffic_class, YB_CLASS_FIRST_TOKEN);
    assert_true(op->deadline_ns == soon_ns);
    yb_node_load_leave(node, &probes[1].join);
    assert_int_equal(op->traffic_class, YB_CLASS_THROUGHPUT);
    assert_true(op->deadline_ns == soon_ns);
    yb_node_load_leave(node, &probes[0].join);
    assert_true(op->deadline_ns == YB_NEVER);
    disk(world)->stalled = false;
    store_run_ms(world, STEP_MS);
    assert_int_equal(probes[2].status, YB_OK);
    assert_int_equal(probes[2].done, 1);
    store_steps_end(world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch__one_reader_leaves_and_the_last_one_out_ends_the_load),
        cmocka_unit_test(test_fetch__an_item_leaves_and_the_rest_of_its_message_comes),
        cmocka_unit_test(test_fetch__an_item_is_late_alone),
        cmocka_unit_test(test_fetch__ends_each_item_once_when_the_node_starts_again),
        cmocka_unit_test(test_fetch__a_reader_that_is_gone_has_left),
        cmocka_unit_test(test_fetch__says_when_each_block_can_be_here),
        cmocka_unit_test(test_fetch__says_that_a_block_waits_behind_those_of_others),
        cmocka_unit_test(test_fetch__hears_soon_that_a_tier_is_busy),
        cmocka_unit_test(test_fetch__what_has_doubled_is_told_at_once_and_not_all_the_time),
        cmocka_unit_test(test_fetch__who_joins_a_load_that_ends_gets_the_block),
        cmocka_unit_test(test_fetch__leaving_does_not_walk_over_those_who_stay),
        cmocka_unit_test(test_fetch__a_load_is_as_urgent_as_those_who_wait_for_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
