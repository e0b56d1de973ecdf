/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: blocks below memory are blocks like any other: they are found, read, removed and replaced,
 *   and what is over stays over, whatever restarts (RULES A5, A14, A15, C2, C5).
 * Method: tables of steps (store_steps.h) in worlds whose nodes have tiers of memory that outlive
 *   them (tier/memory/memory.h); store_judge.h looks at every moment at what they claim.
 */
#include "../unit/unit.h"

#include "base/hash.h"
#include "directory/index.h"
#include "node/node_below.h"
#include "store_judge.h"
#include "store_steps.h"
#include "store_world.h"

#define LEASE_MS STORE_STEPS_LEASE_MS
/* After it no client thinks of a node that started again as of one that failed lately. */
#define LONG_AGO_MS 3000u
#define DO(world, ...) \
    store_steps_do((world), (const struct store_step[]){__VA_ARGS__, {.kind = STEP_STOP}})

static struct store_world *
begin(uint32_t nodes, uint32_t tiers)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("store_tiers"), .nodes = nodes, .clients = 2, .tiers = tiers});

    store_judge_loss(world->judge);
    return world;
}

static struct yb_memory_faults *
faults(struct store_world *world, uint32_t node)
{
    return yb_memory_medium_faults(store_node(world, node)->media[0]);
}

static struct yb_node_below *
below_of(struct store_world *world, uint32_t node)
{
    return store_node(world, node)->life->node->below;
}

/* ---- what the policy of memory knows --------------------------------------------------------- */

#define CHAIN 12u

static struct yb_id
hash_of(struct store_world *world, uint32_t key)
{
    struct yb_hash_bytes tenant = {"default", 7};
    char text[16];
    struct yb_hash_bytes name = {text, 0};

    name.length = (size_t)snprintf(text, sizeof(text), "key-%u", key);
    return yb_hash_key(store_node(world, 0)->life->node->seed, tenant, name);
}

static const struct yb_block *
block_of(struct store_world *world, uint32_t key)
{
    const struct yb_block *block =
        yb_block_granted(store_node(world, 0)->life->node->blocks, hash_of(world, key));

    assert_non_null(block);
    return block;
}

/* By tags, whatever came together; and by the order of keys where there are none. */
static void
test_tiers__the_policy_is_told_where_a_block_is_and_what_it_cost(void **state)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("uses"), .nodes = 1, .clients = 1, .tiers = 1, .policy = "length-aware"});
    uint32_t keys[CHAIN];
    struct store_op *op;

    (void)state;
    for (uint32_t i = 0; i < CHAIN; i++) { /* One at a time: a chain by its tags. */
        struct yb_id parent = i > 0 ? hash_of(world, i - 1) : (struct yb_id){{0}};

        op = store_op(world, 0, YB_CLIENT_PUT, &i, 1, 5000);
        store_value(op, 0, 7, 1000);
        memcpy(&op->items[0].parent, parent.bytes, sizeof(op->items[0].parent));
        store_submit(op);
        assert_true(store_settle(world, 60000));
        assert_int_equal(op->items[0].status, YB_OK);
        keys[i] = 100 + i;
    }
    op = store_op(world, 0, YB_CLIENT_PUT, keys, CHAIN, 5000); /* All at once, without any. */
    for (uint32_t i = 0; i < CHAIN; i++) {
        store_value(op, i, 7, 1000);
    }
    store_submit(op);
    assert_true(store_settle(world, 60000));
    for (uint32_t i = 0; i < CHAIN; i++) {
        assert_int_equal(block_of(world, i)->policy.entry.record, i + 1);
        assert_int_equal(block_of(world, 100 + i)->policy.entry.record, i + 1);
        assert_int_equal(block_of(world, 100 + i)->use, block_of(world, 100)->use);
        assert_int_equal(block_of(world, i)->refetch_us, 0);
    }
    assert_int_not_equal(block_of(world, 1)->use, block_of(world, 0)->use);
    DO(world, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 200}, {STEP_GET, .key = 0, .value = 7},
       {STEP_GET, .key = 1, .value = 7});
    assert_true(block_of(world, 1)->refetch_us > 0);
    assert_int_equal(block_of(world, 1)->policy.entry.record, 2);
    store_steps_end(world);
}

/* ---- restarts -------------------------------------------------------------------------------- */

static void
test_tiers__a_node_comes_back_with_what_it_kept(void **state)
{
    for (uint32_t tiers = 1; tiers <= 2; tiers++) {
        struct store_world *world = begin(1, tiers);

        (void)state;
        DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_PUT, .key = 2, .value = 78},
           {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1},
           {.kind = STEP_READY}, {STEP_WAIT, .ms = 200}, {STEP_GET, .key = 1, .value = 77},
           {STEP_EXIST, .client = 1, .key = 2}, {STEP_GET, .client = 1, .key = 2, .value = 78});
        store_steps_end(world);
    }
}

static void
test_tiers__everything_starts_again_and_the_blocks_are_there(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .node = 1},
       {STEP_REPLACE, .key = 2, .value = 78, .node = 2}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_CRASH, .node = 2}, {.kind = STEP_CRASH}, {.kind = STEP_START},
       {STEP_START, .node = 1}, {STEP_START, .node = 2}, {.kind = STEP_READY},
       {STEP_GET, .key = 1, .value = 77}, {STEP_GET, .client = 1, .key = 2, .value = 78});
    store_steps_end(world);
}

static void
test_tiers__what_was_removed_before_a_crash_is_not_back_after_it(void **state)
{
    struct store_world *world = begin(1, 2);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100},
       {STEP_REMOVE, .client = 1, .key = 1}, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 300}, {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_PUT, .key = 1, .value = 79}, {STEP_GET, .client = 1, .key = 1, .value = 79});
    store_steps_end(world);
}

/* It cannot be told: when it comes back it is refused what is over. */
static void
test_tiers__what_was_removed_while_a_node_was_away_is_refused(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .node = 1},
       {STEP_PUT, .key = 2, .value = 78, .node = 1}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_WAIT, .ms = 3 * LEASE_MS},
       {STEP_REMOVE, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 200}, {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_GET, .key = 2, .value = 78});
    store_steps_end(world);
}

/* The removal waits for its lease, and is answered when it is dead: the drop is owed. */
static void
test_tiers__a_drop_that_was_not_confirmed_is_owed(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_REMOVE, .key = 1}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 200}, {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND});
    store_steps_end(world);
}

static void
test_tiers__what_was_replaced_while_a_node_was_away_is_refused(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_REPLACE, .key = 1, .value = 77, .node = 1}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_WAIT, .ms = 3 * LEASE_MS},
       {STEP_REPLACE, .key = 1, .value = 78, .node = 2}, {STEP_REMOVE, .client = 1, .key = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 200},
       {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND});
    store_steps_end(world);
}

static void
test_tiers__a_node_that_owes_is_not_believed_by_a_directory_that_has_forgotten(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_WAIT, .ms = 3 * LEASE_MS},
       {STEP_REMOVE, .key = 1, .wanted = YB_NOT_FOUND}, {.kind = STEP_CRASH}, {.kind = STEP_START},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 200},
       {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_PUT, .key = 1, .value = 80},
       {STEP_GET, .key = 1, .value = 80});
    store_steps_end(world);
}

static void
test_tiers__flushed_blocks_stay_flushed(void **state)
{
    struct store_world *world = begin(1, 2);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {.kind = STEP_FLUSH},
       {STEP_CRASH, .node = 1}, {STEP_START, .node = 1}, {.kind = STEP_READY},
       {STEP_WAIT, .ms = 200}, {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_PUT, .key = 1, .value = 78}, {STEP_GET, .key = 1, .value = 78});
    store_steps_end(world);
}

/* ---- a removal and its media ----------------------------------------------------------------- */

static void
test_tiers__a_removal_is_answered_when_every_tier_has_forgotten(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100},
       {STEP_DISK, .node = 1, .value = 1}, {STEP_REMOVE, .key = 1, .as = 1}, {STEP_WAIT, .ms = 300},
       {STEP_OPEN, .as = 1}, {STEP_GET, .client = 1, .key = 1, .wanted = YB_NOT_FOUND},
       {STEP_DISK, .node = 1}, {STEP_ENDED, .as = 1});
    faults(world, 0)->kill_fail = 2; /* What fails is tried again. */
    DO(world, {STEP_PUT, .key = 2, .value = 78}, {STEP_WAIT, .ms = 100}, {STEP_REMOVE, .key = 2});
    assert_int_equal(faults(world, 0)->kill_fail, 0);
    store_steps_end(world);
}

/* ---- memory is short ------------------------------------------------------------------------- */

#define MANY 60u

static void
put_many(struct store_world *world)
{
    for (uint32_t key = 0; key < MANY; key++) {
        struct store_op *op = store_op(world, 0, YB_CLIENT_PUT, &key, 1, 5000);

        store_value(op, 0, 100 + key, 4000);
        store_submit(op);
        assert_true(store_settle(world, 6000));
        assert_int_equal(op->items[0].status, YB_OK);
        store_run_ms(world, 20);
    }
}

static void
play_many(const char *policy)
{
    struct store_world *world =
        store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                  .nodes = 1,
                                                  .clients = 2,
                                                  .tiers = 1,
                                                  .pool_bytes = 96u * 1024u,
                                                  .write_policy = policy});

    put_many(world);
    for (uint32_t key = 0; key < MANY; key++) {
        uint64_t value = 0;

        assert_int_equal(store_get(world, 1, key, &value), YB_OK);
        assert_int_equal(value, 100 + key);
    }
    assert_true(below_of(world, 0)->levels[0].tier != NULL);
    store_steps_end(world);
}

static void
test_tiers__more_than_memory_holds_is_there_with_each_policy(void **state)
{
    (void)state;
    play_many("through");
    play_many("back");
    play_many("selective");
}

/* C2: the disk stands still; nothing waits for it. */
static void
test_tiers__puts_go_on_when_the_disk_stands_still(void **state)
{
    struct store_world *world =
        store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                  .nodes = 1,
                                                  .clients = 2,
                                                  .tiers = 1,
                                                  .pool_bytes = 96u * 1024u});

    (void)state;
    store_judge_loss(world->judge);
    faults(world, 0)->stalled = true;
    put_many(world);
    faults(world, 0)->stalled = false;
    store_steps_end(world);
}

static const struct yb_directory_limit limits[] = {{"default", 48000}};

static void
limit_default(struct yb_directory_options *options)
{
    options->limits = limits;
    options->limit_count = 1;
}

/* What a limit drives out of memory goes down, as what the pool gives up does, and comes up again:
 * a credit is for memory alone. */
static void
test_tiers__more_than_a_tenant_may_have_in_memory_is_there(void **state)
{
    static const char *const policies[] = {"through", "back", "selective"};

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct store_world *world =
            store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                      .nodes = 1,
                                                      .clients = 2,
                                                      .tiers = 1,
                                                      .write_policy = policies[i],
                                                      .tune_directory = limit_default});
        uint64_t value = 0;

        store_run_ms(world, 500); /* The node hears of the limit. */
        put_many(world);
        for (uint32_t key = 0; key < MANY; key++) {
            assert_int_equal(store_get(world, 1, key, &value), YB_OK);
            assert_int_equal(value, 100 + key);
        }
        assert_true(yb_dram_tenant_bytes(store_node(world, 0)->life->node->pool, 0) <= 48000);
        store_steps_end(world);
    }
}

/* C2, for a tenant at its limit: its own blocks make room, and do not wait for the disk. */
static void
test_tiers__a_tenant_at_its_limit_goes_on_when_the_disk_stands_still(void **state)
{
    struct store_world *world =
        store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                  .nodes = 1,
                                                  .clients = 2,
                                                  .tiers = 1,
                                                  .tune_directory = limit_default});

    (void)state;
    store_judge_loss(world->judge);
    store_run_ms(world, 500);
    faults(world, 0)->stalled = true;
    put_many(world);
    faults(world, 0)->stalled = false;
    store_steps_end(world);
}

/* ---- from the disk to the object store ------------------------------------------------------- */

/* Memory and disk together have room for less than MANY blocks. */
static struct store_world *
begin_small(const char *policy)
{
    struct store_world *world =
        store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                  .nodes = 1,
                                                  .clients = 2,
                                                  .tiers = 2,
                                                  .policy = "lru",
                                                  .pool_bytes = 96u * 1024u,
                                                  .tier_bytes = 96u * 1024u,
                                                  .object_bytes = 4u << 20,
                                                  .write_policy = policy});

    store_judge_loss(world->judge);
    return world;
}

static uint32_t
count_in(struct store_world *world, uint32_t level)
{
    struct yb_shelf *shelf = below_of(world, 0)->shelf;
    uint32_t count = 0;

    for (uint32_t i = 0; i < yb_shelf_span(shelf); i++) {
        const struct yb_shelf_record *record = yb_shelf_at(shelf, i);

        count += record->state == YB_SHELF_LIVE && (record->resident >> level & 1) != 0;
    }
    return count;
}

static uint32_t
count_found(struct store_world *world)
{
    uint32_t count = 0;

    for (uint32_t key = 0; key < MANY; key++) {
        uint64_t value = 0;
        enum yb_status status = store_get(world, 1, key, &value);

        assert_true(status == YB_OK || status == YB_NOT_FOUND);
        assert_true(status != YB_OK || value == 100 + key);
        count += status == YB_OK;
    }
    return count;
}

/* How blocks follow each other in the object store: the newest comes first. */
struct order {
    struct store_world *world;
    uint32_t last;
    uint32_t count;
    uint32_t neighbours;
};

static void
see_order(void *context, const struct yb_tier_record *record, const void *bytes)
{
    struct order *order = context;
    uint32_t key = 0;

    (void)bytes;
    while (!yb_id_equal(hash_of(order->world, key), record->hash)) {
        key++;
    }
    order->neighbours += key + 1 == order->last;
    order->last = key;
    order->count++;
}

static void
test_tiers__what_the_disk_has_no_room_for_goes_on_to_the_object_store(void **state)
{
    struct store_world *world = begin_small("back");
    struct order order = {.world = world, .last = MANY};

    (void)state;
    put_many(world);
    assert_true(count_in(world, 0) < MANY / 2);
    assert_true(count_in(world, 1) > 0 && count_in(world, 1) < MANY); /* And nothing else. */
    yb_memory_medium_visit(store_node(world, 0)->media[1], see_order, &order);
    assert_true(order.neighbours > order.count * 3 / 4); /* What came together went together. */
    assert_int_equal(count_found(world), MANY);
    store_run_ms(world, 1000); /* What was read up made others go down again. */
    assert_int_equal(count_found(world), MANY);
    store_steps_end(world);
}

/* C2: the object store stands still; the disk clears what it has to. */
static void
test_tiers__the_disk_does_not_wait_for_the_object_store(void **state)
{
    struct store_world *world = begin_small("back");
    struct yb_memory_faults *object = yb_memory_medium_faults(store_node(world, 0)->media[1]);

    (void)state;
    object->stalled = true;
    put_many(world);
    assert_int_equal(count_in(world, 1), 0);
    object->stalled = false;
    store_run_ms(world, 1000);
    assert_true(count_found(world) < MANY);
    store_steps_end(world);
}

/* L5: what the disk has lost meanwhile is there when the object store has it. */
static void
test_tiers__a_block_on_its_way_down_stays_named(void **state)
{
    struct store_world *world = begin_small("back");
    struct yb_memory_faults *object = yb_memory_medium_faults(store_node(world, 0)->media[1]);
    uint32_t moving = 0;
    uint32_t keys[MANY];

    (void)state;
    object->stalled = true;
    put_many(world);
    for (uint32_t key = 0; key < MANY; key++) {
        const struct yb_shelf_record *record =
            yb_shelf_find(below_of(world, 0)->shelf, hash_of(world, key));

        if (record != NULL && record->resident == 0 && record->storing == 2) {
            keys[moving++] = key;
        }
    }
    assert_true(moving > 0);
    object->stalled = false;
    store_run_ms(world, 1000);
    for (uint32_t i = 0; i < moving; i++) {
        uint64_t value = 0;

        assert_int_equal(store_exist(world, 1, keys[i]), YB_OK);
        assert_int_equal(store_get(world, 1, keys[i], &value), YB_OK);
        assert_int_equal(value, 100 + keys[i]);
    }
    store_steps_end(world);
}

/* A14: on its way from one tier to the next it is removed, and is in neither afterwards. */
static void
test_tiers__what_is_removed_on_its_way_down_does_not_come_back(void **state)
{
    struct store_world *world = begin_small("back");
    struct yb_memory_faults *object = yb_memory_medium_faults(store_node(world, 0)->media[1]);
    uint32_t moving = MANY;
    struct store_op *op;

    (void)state;
    object->stalled = true;
    put_many(world);
    for (uint32_t key = 0; key < MANY; key++) {
        const struct yb_shelf_record *record =
            yb_shelf_find(below_of(world, 0)->shelf, hash_of(world, key));

        moving = record != NULL && record->storing == 2 ? key : moving;
    }
    assert_true(moving < MANY);
    op = store_op(world, 0, YB_CLIENT_REMOVE, &moving, 1, 5000);
    store_submit(op);
    store_run_ms(world, 300);
    assert_int_equal(op->done, 0); /* Not before the object store has forgotten, too. */
    object->stalled = false;
    assert_true(store_settle(world, 6000));
    assert_int_equal(op->items[0].status, YB_OK);
    DO(world, {STEP_WAIT, .ms = 300}, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1},
       {.kind = STEP_READY}, {STEP_WAIT, .ms = 300},
       {STEP_GET, .key = moving, .wanted = YB_NOT_FOUND});
    store_steps_end(world);
}

static void
test_tiers__what_the_disk_refuses_the_object_store_takes(void **state)
{
    struct store_world *world = begin_small("back");

    (void)state;
    faults(world, 0)->store_fail = MANY;
    put_many(world);
    store_run_ms(world, 100);
    assert_int_equal(count_in(world, 0), 0);
    assert_true(count_in(world, 1) > 0);
    assert_int_equal(count_found(world), MANY);
    store_steps_end(world);
}

static struct yb_stats *stats;

static void
with_stats(uint32_t number, struct yb_node_options *options)
{
    (void)number;
    options->stats = stats;
}

static uint64_t
counted(struct store_world *world, enum yb_node_stat stat, enum yb_status why)
{
    uint32_t first = store_node(world, 0)->life->node->stats_first;

    return yb_stats_counter(stats, first + (uint32_t)stat, yb_stats_status_index(why), 0);
}

static void
on_killed(struct yb_tier_op *op, enum yb_status status)
{
    (void)op;
    assert_int_equal(status, YB_OK);
}

/* Stores of blocks of 4000 bytes and others that a tier has begun and not taken. */
static uint64_t
not_taken_by(struct store_world *world, uint32_t level)
{
    struct yb_tier_info info;

    yb_tier_info(below_of(world, 0)->levels[level].tier, &info);
    return info.writes - info.stored_bytes / 4000;
}

/* A copy that was dropped here may come again under its grant, and a tier takes nothing that it was
 * told to kill: then that is not offered to it with every look for room. */
static void
test_tiers__what_a_tier_will_never_take_is_offered_once(void **state)
{
    struct store_world *world = begin_small("back");
    struct yb_tier_kill kills[2];
    const struct yb_block *block;

    (void)state;
    assert_int_equal(store_put(world, 0, MANY, 7, false), YB_OK);
    block = yb_block_granted(store_node(world, 0)->life->node->blocks, hash_of(world, MANY));
    for (uint32_t i = 0; i < 2; i++) {
        kills[i] = (struct yb_tier_kill){
            .op = {.done = on_killed, .deadline_ns = YB_NEVER},
            .hash = block->hash,
            .grant = block->grant,
            .tenant = "default",
            .flush = block->flush,
        };
        assert_int_equal(yb_tier_kill(below_of(world, 0)->levels[i].tier, &kills[i]), YB_OK);
    }
    put_many(world);
    store_run_ms(world, 1000);
    assert_in_range(not_taken_by(world, 0), 1, 2);
    assert_in_range(not_taken_by(world, 1), 0, 2);
    assert_null(yb_block_granted(store_node(world, 0)->life->node->blocks, hash_of(world, MANY)));
    store_steps_end(world);
}

/* A disk that is full is no disk that fails, for whoever looks at the numbers. */
static void
test_tiers__what_a_tier_does_not_do_is_counted_by_why(void **state)
{
    struct store_world *world;
    uint64_t value = 0;

    (void)state;
    assert_int_equal(yb_stats_create(&stats), YB_OK);
    world = store_steps_begin(&(struct store_options){.seed = unit_seed("store_tiers"),
                                                      .nodes = 1,
                                                      .clients = 1,
                                                      .tiers = 1,
                                                      .pool_bytes = 96u * 1024u,
                                                      .tune_node = with_stats});
    faults(world, 0)->store_full = 3;
    put_many(world);
    faults(world, 0)->store_fail = 2;
    DO(world, {STEP_PUT, .key = MANY, .value = 1}, {STEP_PUT, .key = MANY + 1, .value = 1},
       {STEP_WAIT, .ms = 300});
    faults(world, 0)->load_fail = 1; /* Of a block that memory has not any more. */
    (void)store_get(world, 0, MANY / 2, &value);
    faults(world, 0)->kill_fail = 2;
    DO(world, {STEP_REMOVE, .key = MANY - 1}, {STEP_WAIT, .ms = 300});
    assert_int_equal(counted(world, YB_NODE_STAT_STORES_FAILED, YB_NO_SPACE), 3);
    assert_int_equal(counted(world, YB_NODE_STAT_STORES_FAILED, YB_IO), 2);
    assert_int_equal(counted(world, YB_NODE_STAT_LOADS_FAILED, YB_IO), 1);
    assert_int_equal(counted(world, YB_NODE_STAT_KILLS_FAILED, YB_IO), 2);
    store_steps_end(world);
    yb_stats_destroy(&stats);
}

/* ---- a disk that fails ----------------------------------------------------------------------- */

static void
break_disk(struct store_world *world, bool broken)
{
    yb_memory_medium_break(store_node(world, 0)->media[0], broken);
    store_run_ms(world, 300);
}

static void
test_tiers__a_disk_that_failed_is_used_again_without_a_restart(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = LONG_AGO_MS});
    break_disk(world, true);
    assert_int_equal(below_of(world, 0)->levels[0].aside, YB_IO);
    assert_non_null(strstr(below_of(world, 0)->levels[0].why, "mend it"));
    DO(world, {STEP_GET, .key = 1, .value = 77}, {STEP_PUT, .key = 2, .value = 78},
       {STEP_GET, .key = 2, .value = 78}); /* What it has is read, and the node lives on. */
    break_disk(world, false);
    assert_int_equal(below_of(world, 0)->levels[0].aside, YB_OK);
    DO(world, {STEP_PUT, .key = 3, .value = 79}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 200},
       {STEP_GET, .key = 1, .value = 77}, {STEP_GET, .key = 2, .value = 78}, /* It had missed it. */
       {STEP_GET, .key = 3, .value = 79});
    store_steps_end(world);
}

static void
test_tiers__what_a_disk_does_not_have_any_more_when_it_is_back_is_gone(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = LONG_AGO_MS});
    break_disk(world, true);
    yb_memory_medium_empty(store_node(world, 0)->media[0]);
    break_disk(world, false);
    assert_int_equal(yb_shelf_count(below_of(world, 0)->shelf), 0);
    DO(world, {STEP_EXIST, .key = 1, .wanted = YB_NOT_FOUND}, {STEP_PUT, .key = 1, .value = 78},
       {STEP_GET, .client = 1, .key = 1, .value = 78});
    store_steps_end(world);
}

/* A log that was clearing a segment when it failed finds blocks again that it had given up. */
static void
test_tiers__what_was_given_up_and_removed_is_not_believed_when_it_is_found_again(void **state)
{
    struct store_world *world = begin(1, 1);
    const struct yb_node_level *level = &below_of(world, 0)->levels[0];
    struct yb_tier_record record;
    bool wanted;

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100});
    record = (struct yb_tier_record){.hash = hash_of(world, 1),
                                     .grant = block_of(world, 1)->grant,
                                     .flush = block_of(world, 1)->flush,
                                     .size = block_of(world, 1)->size,
                                     .tenant = "default"};
    DO(world, {STEP_REMOVE, .key = 1}, {STEP_WAIT, .ms = 100});
    wanted = level->tier->events->found(level->tier->owner, &record);
    assert_false(wanted);
    DO(world, {STEP_WAIT, .ms = 300}, {STEP_EXIST, .key = 1, .wanted = YB_NOT_FOUND});
    assert_int_equal(yb_shelf_count(below_of(world, 0)->shelf), 0); /* It was killed. */
    store_steps_end(world);
}

/* L6: it fails while the block is being stored; then the block is removed; then it is back, and may
 * have the block after all. */
static void
test_tiers__what_was_being_stored_when_a_disk_failed_does_not_come_back(void **state)
{
    uint32_t kept = 0;

    (void)state;
    for (uint32_t round = 0; round < 12; round++) {
        struct store_world *world =
            store_steps_begin(&(struct store_options){.seed = unit_seed("fails") + round,
                                                      .nodes = 1,
                                                      .clients = 1,
                                                      .tiers = 1,
                                                      .tier_ms = 40});
        const struct yb_shelf_record *record;
        uint32_t key = 1;
        struct store_op *op;
        bool doubt;

        DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 20});
        break_disk(world, true);
        record = yb_shelf_find(below_of(world, 0)->shelf, hash_of(world, 1));
        doubt = record != NULL && record->doubt != 0;
        kept += doubt;
        op = store_op(world, 0, YB_CLIENT_REMOVE, &key, 1, 5000);
        store_submit(op);
        store_run_ms(world, 300);
        if (doubt) { /* It cannot be said yet that it is gone. */
            assert_int_equal(op->done, 0);
        }
        break_disk(world, false);
        assert_true(store_settle(world, 6000));
        assert_int_equal(op->items[0].status, YB_OK);
        DO(world, {STEP_CRASH, .node = 1}, {STEP_START, .node = 1}, {.kind = STEP_READY},
           {STEP_WAIT, .ms = 500}, {STEP_GET, .key = 1, .wanted = YB_NOT_FOUND});
        store_steps_end(world);
    }
    assert_true(kept > 0); /* It was known that it might be there. */
}

/* ---- loads ----------------------------------------------------------------------------------- */

/* C5: many readers of one block are one load. */
static void
test_tiers__readers_of_one_block_share_its_load(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_pool_counts loads;

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = LONG_AGO_MS});
    /* One leaves: the others are served. */
    DO(world, {STEP_DISK, .node = 1, .value = 1}, {STEP_GET, .key = 1, .value = 77, .as = 1},
       {STEP_GET, .key = 1, .value = 77, .as = 2},
       {STEP_GET, .client = 1, .key = 1, .value = 77, .as = 3},
       {STEP_GET, .client = 1, .key = 1, .as = 4, .deadline_ms = 100}, {STEP_WAIT, .ms = 200},
       {STEP_ENDED, .as = 4, .wanted = YB_TIMED_OUT}, {STEP_DISK, .node = 1}, {STEP_ENDED, .as = 1},
       {STEP_ENDED, .as = 2}, {STEP_ENDED, .as = 3});
    yb_pool_counts(below_of(world, 0)->loads, &loads);
    assert_int_equal(loads.in_use_max, 1);
    assert_int_equal(loads.in_use, 0);
    store_steps_end(world);
}

/* The last one out cancels: nothing is left under way. */
static void
test_tiers__a_load_that_nobody_waits_for_ends(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = LONG_AGO_MS});
    faults(world, 0)->stalled = true;
    DO(world, {STEP_GET, .key = 1, .deadline_ms = 100, .wanted = YB_TIMED_OUT},
       {STEP_WAIT, .ms = 100});
    assert_null(below_of(world, 0)->loading);
    faults(world, 0)->stalled = false;
    DO(world, {STEP_GET, .key = 1, .value = 77});
    store_steps_end(world);
}

/* Its record goes, and the key can be put again. */
static void
test_tiers__a_spoilt_block_is_gone_and_can_be_put_again(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = 200});
    faults(world, 0)->load_corrupt = 1;
    DO(world, {STEP_GONE, .key = 1}, {STEP_WAIT, .ms = 100}, {STEP_PUT, .key = 1, .value = 78},
       {STEP_GET, .key = 1, .value = 78});
    store_steps_end(world);
}

/* A5: what the directory does not name is nobody's to read, wherever it lies. */
static void
test_tiers__a_block_below_is_served_only_while_it_is_claimed(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_shelf_record *record;
    uint8_t claimed;

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77}, {STEP_WAIT, .ms = 100}, {STEP_CRASH, .node = 1},
       {STEP_START, .node = 1}, {.kind = STEP_READY}, {STEP_WAIT, .ms = LONG_AGO_MS});
    record = yb_shelf_find(below_of(world, 0)->shelf, hash_of(world, 1));
    assert_non_null(record);
    claimed = record->claimed;
    assert_int_not_equal(claimed, 0);
    record->claimed = record->told = 0;
    DO(world, {STEP_GONE, .key = 1});
    record->claimed = record->told = claimed;
    DO(world, {STEP_GET, .key = 1, .value = 77});
    store_steps_end(world);
}

/* One of two copies is trimmed, and its node, which has not heard of that yet, says that its disk
 * has the block now. Then the other copy is to go, and there is none but it. */
static void
test_tiers__a_copy_that_was_trimmed_is_not_taken_for_one_that_stays(void **state)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("trimmed"), .nodes = 2, .clients = 1, .tiers = 1});

    (void)state;
    DO(world, {STEP_DISK, .node = 2, .value = 1}, {STEP_PUT, .key = 1, .value = 77, .replicas = 2},
       {STEP_WAIT, .ms = 50}, {STEP_MUTE, .node = 2}, {STEP_DRAIN, .node = 2},
       {STEP_WAIT, .ms = 80});
    store_drain(world, 1, false);
    DO(world, {STEP_DISK, .node = 2}, {STEP_WAIT, .ms = 40}, {STEP_HOLDS, .node = 2, .value = 1},
       {STEP_HEAR, .node = 2}, {STEP_WAIT, .ms = 1000}, {STEP_DRAIN, .node = 1},
       {STEP_WAIT, .ms = 3000}, {STEP_HOLDS, .node = 1, .value = 0},
       {STEP_GET, .key = 1, .value = 77});
    store_drain(world, 0, false); /* That trim was heard of: it can come back here. */
    DO(world, {STEP_DRAIN, .node = 2}, {STEP_WAIT, .ms = 3000}, {STEP_HOLDS, .node = 2, .value = 0},
       {STEP_GET, .key = 1, .value = 77});
    store_steps_end(world);
}

/* Its node dies before it hears of the trim. The other one comes back with what it keeps: that was
 * not ended. */
static void
test_tiers__a_trim_that_was_not_confirmed_ends_no_other_copy(void **state)
{
    struct store_world *world = store_steps_begin(&(struct store_options){
        .seed = unit_seed("trimmed"), .nodes = 2, .clients = 1, .tiers = 1});

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .replicas = 2}, {STEP_WAIT, .ms = 300},
       {STEP_MUTE, .node = 2}, {STEP_DRAIN, .node = 2}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 2, .silent = true}, {STEP_WAIT, .ms = 3 * LEASE_MS},
       {STEP_CRASH, .node = 1}, {.kind = STEP_HEAL}, {STEP_START, .node = 1},
       {STEP_WAIT, .ms = 3 * LEASE_MS}, {STEP_GET, .key = 1, .value = 77});
    store_steps_end(world);
}

/* A node that drains gives away what only its disk has. */
static void
test_tiers__draining_moves_what_lies_below(void **state)
{
    struct store_world *world = begin(2, 1);

    (void)state;
    DO(world, {STEP_PUT, .key = 1, .value = 77, .node = 1}, {STEP_WAIT, .ms = 100},
       {STEP_CRASH, .node = 1}, {STEP_START, .node = 1}, {.kind = STEP_READY},
       {STEP_WAIT, .ms = 3 * LEASE_MS}, {STEP_DRAIN, .node = 1, .value = 1},
       {STEP_WAIT, .ms = 3000}, {STEP_CRASH, .node = 1}, {STEP_WAIT, .ms = 3 * LEASE_MS},
       {STEP_GET, .key = 1, .value = 77}, {STEP_START, .node = 1}, {.kind = STEP_READY});
    store_steps_end(world);
}

/* Check that of a node that the directory names the block is there, in that tier. */
static void
check_place(struct store_world *world, uint32_t key, const struct yb_index_replica *place)
{
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        const struct yb_shelf_record *record =
            yb_shelf_find(below_of(world, i)->shelf, hash_of(world, key));
        struct yb_node_info info;

        yb_node_info(store_node(world, i)->life->node, &info);
        if (info.slot == place->slot && place->tier != YB_WIRE_TIER_DRAM) {
            assert_non_null(record);
            assert_int_equal(record->state, YB_SHELF_LIVE);
            assert_true((record->claimed >> (place->tier - YB_WIRE_TIER_SSD) & 1) != 0);
        }
    }
}

/* Three replicas, each in memory, on a disk and in an object store, are one more than it names. */
static void
test_tiers__where_a_directory_names_no_more_it_names_nothing_that_is_not_there(void **state)
{
    const uint32_t key = 1;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        struct store_world *world = begin(3, 2);
        struct yb_index_answer found;

        DO(world, {STEP_PUT, .key = key, .value = 77, .replicas = 3}, {STEP_WAIT, .ms = 500});
        store_named(world, hash_of(world, key), &found);
        assert_true(found.count >= 3);
        for (uint32_t k = 0; k < found.count; k++) {
            check_place(world, key, &found.replicas[k]);
        }
        store_steps_end(world);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiers__the_policy_is_told_where_a_block_is_and_what_it_cost),
        cmocka_unit_test(test_tiers__a_node_comes_back_with_what_it_kept),
        cmocka_unit_test(test_tiers__everything_starts_again_and_the_blocks_are_there),
        cmocka_unit_test(test_tiers__what_was_removed_before_a_crash_is_not_back_after_it),
        cmocka_unit_test(test_tiers__what_was_removed_while_a_node_was_away_is_refused),
        cmocka_unit_test(test_tiers__a_drop_that_was_not_confirmed_is_owed),
        cmocka_unit_test(test_tiers__what_was_replaced_while_a_node_was_away_is_refused),
        cmocka_unit_test(
            test_tiers__a_node_that_owes_is_not_believed_by_a_directory_that_has_forgotten),
        cmocka_unit_test(test_tiers__flushed_blocks_stay_flushed),
        cmocka_unit_test(test_tiers__a_removal_is_answered_when_every_tier_has_forgotten),
        cmocka_unit_test(test_tiers__more_than_memory_holds_is_there_with_each_policy),
        cmocka_unit_test(test_tiers__more_than_a_tenant_may_have_in_memory_is_there),
        cmocka_unit_test(test_tiers__a_tenant_at_its_limit_goes_on_when_the_disk_stands_still),
        cmocka_unit_test(test_tiers__puts_go_on_when_the_disk_stands_still),
        cmocka_unit_test(test_tiers__what_the_disk_has_no_room_for_goes_on_to_the_object_store),
        cmocka_unit_test(test_tiers__the_disk_does_not_wait_for_the_object_store),
        cmocka_unit_test(test_tiers__a_block_on_its_way_down_stays_named),
        cmocka_unit_test(test_tiers__what_is_removed_on_its_way_down_does_not_come_back),
        cmocka_unit_test(test_tiers__what_the_disk_refuses_the_object_store_takes),
        cmocka_unit_test(test_tiers__what_a_tier_will_never_take_is_offered_once),
        cmocka_unit_test(test_tiers__what_a_tier_does_not_do_is_counted_by_why),
        cmocka_unit_test(test_tiers__a_disk_that_failed_is_used_again_without_a_restart),
        cmocka_unit_test(test_tiers__what_a_disk_does_not_have_any_more_when_it_is_back_is_gone),
        cmocka_unit_test(
            test_tiers__what_was_given_up_and_removed_is_not_believed_when_it_is_found_again),
        cmocka_unit_test(test_tiers__what_was_being_stored_when_a_disk_failed_does_not_come_back),
        cmocka_unit_test(test_tiers__readers_of_one_block_share_its_load),
        cmocka_unit_test(test_tiers__a_load_that_nobody_waits_for_ends),
        cmocka_unit_test(test_tiers__a_spoilt_block_is_gone_and_can_be_put_again),
        cmocka_unit_test(test_tiers__a_block_below_is_served_only_while_it_is_claimed),
        cmocka_unit_test(test_tiers__draining_moves_what_lies_below),
        cmocka_unit_test(test_tiers__a_copy_that_was_trimmed_is_not_taken_for_one_that_stays),
        cmocka_unit_test(test_tiers__a_trim_that_was_not_confirmed_ends_no_other_copy),
        cmocka_unit_test(
            test_tiers__where_a_directory_names_no_more_it_names_nothing_that_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
