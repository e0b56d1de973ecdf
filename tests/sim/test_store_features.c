/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: what a store does with blocks beside keeping them: time to live, pins, groups, chains,
 *   quotas, replicas and their places, repair, draining, holds, newcomers, the reuse gate.
 * Method: a whole store in virtual time; what a node has is read from the node itself.
 */
#include "../unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "directory/directory_internal.h"
#include "store_world.h"

#define VALUE 4000u /* Bytes of most values here: a pool of 1 MiB has room for about 260. */

static struct store_world *
begin_with(struct store_options *options)
{
    struct store_world *world;

    options->seed = unit_seed("store_features");
    world = store_world_create(options);
    for (uint32_t i = 0; i < 200 && options->late == 0 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    if (options->late > 0) {
        store_run_ms(world, 1000);
    }
    return world;
}

static struct store_world *
begin(uint32_t nodes, uint32_t clients)
{
    return begin_with(&(struct store_options){.nodes = nodes, .clients = clients});
}

static enum yb_status
run(struct store_op *op)
{
    store_submit(op);
    assert_true(store_settle(op->world, 120000));
    return op->batch.status != YB_OK ? op->batch.status : op->items[0].status;
}

static struct store_op *
put_op(struct store_world *world, uint32_t client, uint32_t key, size_t bytes)
{
    struct store_op *op = store_op(world, client, YB_CLIENT_PUT, &key, 1, 5000);

    store_value(op, 0, key, bytes);
    return op;
}

static enum yb_status
put(struct store_world *world, uint32_t client, uint32_t key, uint32_t replicas)
{
    struct store_op *op = put_op(world, client, key, VALUE);

    op->batch.put.replicas = replicas;
    return run(op);
}

static bool
there(struct store_world *world, uint32_t client, uint32_t key)
{
    uint64_t value = 0;
    enum yb_status status = store_get(world, client, key, &value);

    assert_true(status == YB_OK || status == YB_NOT_FOUND);
    return status == YB_OK;
}

/* How many of these keys a node serves now. */
struct count {
    uint32_t first;
    uint32_t last;
    uint32_t count;
    uint64_t bytes;
};

static void
count_block(void *context, const struct yb_node_block_view *view)
{
    struct count *count = context;
    char name[32] = {0};
    uint32_t key = 0;

    memcpy(name, view->key, view->key_bytes < 31 ? view->key_bytes : 31);
    assert_int_equal(sscanf(name, "key-%u", &key), 1);
    if (key >= count->first && key <= count->last) {
        count->count++;
        count->bytes += view->size;
    }
}

static struct count
on_node(struct store_world *world, uint32_t node, uint32_t first, uint32_t last)
{
    struct count count = {.first = first, .last = last};

    if (store_node(world, node)->life != NULL) {
        yb_node_visit(store_node(world, node)->life->node, count_block, &count);
    }
    return count;
}

static uint32_t
on_all(struct store_world *world, uint32_t first, uint32_t last)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < world->options.nodes; i++) {
        sum += on_node(world, i, first, last).count;
    }
    return sum;
}

static struct yb_node_info
info(struct store_world *world, uint32_t node)
{
    struct yb_node_info info_now;

    yb_node_info(store_node(world, node)->life->node, &info_now);
    return info_now;
}

/* Put blocks that nobody wants until there were so many evictions on node 0. */
static void
press(struct store_world *world, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(put(world, 0, first + i, 1), YB_OK);
    }
    assert_true(info(world, 0).evicted > 0);
}

/* ---- time to live, pins, groups, chains ------------------------------------------------------ */

static void
test_features__a_block_is_gone_after_its_time_and_its_key_is_free(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *op = put_op(world, 0, 1, VALUE);

    (void)state;
    op->batch.put.ttl_ms = 500;
    op->batch.put.replicas = 2;
    assert_int_equal(run(op), YB_OK);
    assert_int_equal(store_put(world, 0, 2, 2, false), YB_OK);
    store_run_ms(world, 300);
    assert_true(there(world, 1, 1));
    store_run_ms(world, 300);
    assert_false(there(world, 1, 1));
    assert_false(there(world, 0, 1)); /* By a hint, too. */
    assert_int_equal(store_exist(world, 1, 1), YB_NOT_FOUND);
    assert_int_equal(on_all(world, 1, 1), 0);
    assert_int_equal(store_put(world, 1, 1, 7, false), YB_OK);
    assert_true(there(world, 0, 1));
    store_run_ms(world, 1000);
    assert_true(there(world, 0, 1));
    assert_true(there(world, 0, 2));
    store_world_destroy(&world);
}

/* Put pinned blocks, of keys from 1000 on, until there is no room. Returns how many. */
static uint32_t
pin_all(struct store_world *world)
{
    enum yb_status status = YB_OK;
    uint32_t made = 0;

    for (; status == YB_OK; made += status == YB_OK) { /* Without pins there is always room. */
        struct store_op *op = put_op(world, 0, 1000 + made, VALUE);

        op->batch.put.hard_pin = true;
        status = run(op);
    }
    assert_int_equal(status, YB_NO_SPACE);
    return made;
}

static void
test_features__only_hard_pins_make_no_space(void **state)
{
    struct store_world *world = begin(1, 1);
    uint32_t made = pin_all(world);

    (void)state;
    assert_int_equal(put(world, 0, 1, 1), YB_NO_SPACE);
    assert_true(made > 200);
    assert_int_equal(on_all(world, 1000, 2000), made); /* None of them went. */
    assert_int_equal(store_remove(world, 0, 1000), YB_OK);
    assert_int_equal(put(world, 0, 1, 1), YB_OK);
    for (uint32_t i = 0; i < 12;
         i++) { /* All is removed: there is room before a tick has passed. */
        struct store_op *op = store_op(world, 0, YB_CLIENT_REMOVE_ALL, NULL, 0, 5000);

        op->batch.force = true;
        store_submit(op);
        assert_true(store_settle(world, 120000) && op->batch.status == YB_OK);
        assert_true(pin_all(world) == made);
    }
    store_world_destroy(&world);
}

static void
test_features__soft_pins_go_last_and_make_no_no_space(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    for (uint32_t key = 1; key <= 50; key++) {
        struct store_op *op = put_op(world, 0, key, VALUE);

        op->batch.put.soft_pin = true;
        assert_int_equal(run(op), YB_OK);
    }
    press(world, 1000, 600);
    assert_int_equal(on_all(world, 1, 50), 50);
    for (uint32_t key = 2000; key < 2300; key++) { /* Now there is nothing else left ... */
        struct store_op *op = put_op(world, 0, key, VALUE);

        op->batch.put.soft_pin = true;
        assert_int_equal(run(op), YB_OK); /* ... and the oldest of them yields. */
    }
    assert_int_equal(on_all(world, 1000, 1599), 0);
    assert_true(on_all(world, 1, 50) < 50);
    assert_int_equal(on_all(world, 2299, 2299), 1);
    store_world_destroy(&world);
}

static void
test_features__blocks_of_a_group_go_together(void **state)
{
    struct store_world *world = begin(1, 1);
    uint32_t whole = 0, gone = 0;

    (void)state;
    for (uint32_t i = 0; i < 4; i++) { /* Others of other groups come in between. */
        for (uint32_t group = 0; group < 55; group++) {
            struct store_op *op = put_op(world, 0, group * 4 + i, VALUE);

            op->items[0].group = group + 1;
            assert_int_equal(run(op), YB_OK);
        }
    }
    assert_int_equal(info(world, 0).evicted, 0);
    press(world, 1000, 60);
    for (uint32_t group = 0; group < 55; group++) {
        uint32_t count = on_all(world, group * 4, group * 4 + 3);

        assert_true(count == 0 || count == 4);
        whole += count == 4;
        gone += count == 0;
    }
    assert_true(whole > 20 && gone > 5);
    store_world_destroy(&world);
}

static void
test_features__a_group_lies_on_one_node_whoever_puts_it(void **state)
{
    struct store_world *world = begin(4, 2);
    bool used[4] = {false};

    (void)state;
    for (uint32_t key = 0; key < 12 * 8; key++) {
        struct store_op *op = put_op(world, key % 2, key, 100);

        op->items[0].group = key / 8 + 1;
        assert_int_equal(run(op), YB_OK);
    }
    for (uint32_t group = 0; group < 12; group++) {
        for (uint32_t node = 0; node < 4; node++) {
            uint32_t count = on_node(world, node, group * 8, group * 8 + 7).count;

            assert_true(count == 0 || count == 8);
            used[node] |= count == 8;
        }
    }
    assert_true(used[0] + used[1] + used[2] + used[3] > 1);
    store_world_destroy(&world);
}

static uint64_t
name_of(struct store_world *world, uint32_t key)
{
    struct yb_hash_bytes tenant = {"default", 7};
    char text[16];
    struct yb_hash_bytes name = {text, 0};
    struct yb_id hash;
    uint64_t begins;

    name.length = (size_t)snprintf(text, sizeof(text), "key-%u", key);
    hash = yb_hash_key(store_directory(world)->life->directory->seed, tenant, name);
    memcpy(&begins, hash.bytes, sizeof(begins));
    return begins;
}

#define CHAIN 40u

/* Blocks `base` .. base + CHAIN - 1 name the one before them; they are put in this order. */
static void
put_chain(struct store_world *world, uint32_t base, const uint32_t order[CHAIN])
{
    for (uint32_t i = 0; i < CHAIN; i++) {
        struct store_op *op = put_op(world, 0, base + order[i], VALUE);

        op->items[0].parent = order[i] == 0 ? 0 : name_of(world, base + order[i] - 1);
        assert_int_equal(run(op), YB_OK);
    }
}

/* Return how long the prefix is that is there; nothing is there behind it. */
static uint32_t
prefix_of(struct store_world *world, uint32_t base)
{
    uint32_t length = 0;

    while (length < CHAIN && on_all(world, base + length, base + length) == 1) {
        length++;
    }
    assert_int_equal(on_all(world, base, base + CHAIN - 1), length);
    return length;
}

static void
test_features__a_suffix_is_never_kept_without_its_prefix(void **state)
{
    uint64_t random = unit_seed("chains");

    (void)state;
    for (uint32_t way = 0; way < 4; way++) { /* In order, backwards, evens first, shuffled. */
        struct store_world *world = begin(1, 1);
        uint32_t order[CHAIN];
        bool cut = false;

        for (uint32_t i = 0; i < CHAIN; i++) {
            order[i] = way == 1 ? CHAIN - 1 - i : way == 2 ? (2 * i) % (CHAIN - 1) : i;
        }
        order[CHAIN - 1] = way == 2 ? CHAIN - 1 : order[CHAIN - 1];
        for (uint32_t i = CHAIN - 1; way == 3 && i > 0; i--) {
            uint32_t j = (uint32_t)(unit_random(&random) % (i + 1)), t = order[i];

            order[i] = order[j];
            order[j] = t;
        }
        for (uint32_t base = 0; base < 4 * CHAIN; base += CHAIN) {
            put_chain(world, base, order);
        }
        for (uint32_t key = 1000; key < 1300; key++) {
            assert_int_equal(put(world, 0, key, 1), YB_OK);
            if (key % 10 == 0) {
                for (uint32_t base = 0; base < 4 * CHAIN; base += CHAIN) {
                    uint32_t length = prefix_of(world, base);

                    cut = cut || (length > 0 && length < CHAIN);
                }
            }
        }
        assert_true(cut);
        store_world_destroy(&world);
    }
}

static void
test_features__a_pinned_suffix_keeps_its_prefix(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    for (uint32_t key = 0; key < 8; key++) { /* 0..3 with a hard pin at their end, 4..7 soft. */
        struct store_op *op = put_op(world, 0, key, VALUE);

        op->items[0].parent = key % 4 == 0 ? 0 : name_of(world, key - 1);
        op->batch.put.hard_pin = key == 3;
        op->batch.put.soft_pin = key == 7;
        assert_int_equal(run(op), YB_OK);
    }
    press(world, 1000, 600);
    assert_int_equal(on_all(world, 0, 7), 8);
    store_world_destroy(&world);
}

/* ---- tenants --------------------------------------------------------------------------------- */

static const struct yb_directory_limit limits[] = {{"small", 400000}};

static void
limit_small(struct yb_directory_options *options)
{
    options->limits = limits;
    options->limit_count = 1;
}

static void
test_features__a_tenant_at_its_limit_makes_room_for_itself_alone(void **state)
{
    static const char *const tenants[] = {"small", "large"};
    struct store_world *world = begin_with(&(struct store_options){
        .nodes = 2, .clients = 2, .tenants = tenants, .tune_directory = limit_small});

    (void)state;
    for (uint32_t key = 1; key <= 100; key++) {
        assert_int_equal(put(world, 1, key, 1), YB_OK);
    }
    for (uint32_t key = 1000; key < 1400; key++) { /* Four times what it may have. */
        uint64_t bytes;

        assert_int_equal(put(world, 0, key, 1), YB_OK);
        bytes = on_node(world, 0, 1000, 1400).bytes + on_node(world, 1, 1000, 1400).bytes;
        assert_true(bytes <= 2 * 400000); /* At most a credit per node beyond. */
        if (key > 1200) {
            assert_true(bytes <= 400000);
        }
    }
    assert_true(on_all(world, 1000, 1400) > 60);
    assert_int_equal(on_all(world, 1, 100), 100); /* The other one has lost nothing. */
    assert_int_equal(run(put_op(world, 0, 1399, VALUE)), YB_EXISTS);
    store_world_destroy(&world);
}

static void
test_features__what_is_pinned_counts_to_the_limit_and_is_refused_there(void **state)
{
    static const char *const tenants[] = {"small", "large"};
    struct store_world *world = begin_with(&(struct store_options){
        .nodes = 1, .clients = 2, .tenants = tenants, .tune_directory = limit_small});
    enum yb_status status = YB_OK;
    uint32_t made = 0;

    (void)state;
    store_run_ms(world, 500);
    while (status == YB_OK && made < 300) {
        struct store_op *op = put_op(world, 0, made, VALUE);

        op->batch.put.hard_pin = true;
        status = run(op);
        made += status == YB_OK;
    }
    assert_int_equal(status, YB_QUOTA);
    assert_in_range(made, 60, 100);
    assert_int_equal(put(world, 1, 1000, 1), YB_OK);
    assert_int_equal(store_remove(world, 0, 0), YB_OK);
    assert_int_equal(put(world, 0, 500, 1), YB_OK);
    store_world_destroy(&world);
}

/* ---- replicas -------------------------------------------------------------------------------- */

static void
two_racks(uint32_t number, struct yb_node_options *options)
{
    static const char *const racks[] = {"r1", "r1", "r2", "r2", "r3", "r3"};
    static const char *const zones[] = {"z1", "z1", "z1", "z1", "z2", "z2"};

    options->rack = racks[number];
    options->zone = zones[number];
    options->host = (struct yb_id){{(uint8_t)(number / 2 * 2 + (number < 2 ? 0 : number % 2) + 1)}};
}

static void
test_features__replicas_are_apart_by_zone_rack_and_host(void **state)
{
    struct store_world *world =
        begin_with(&(struct store_options){.nodes = 6, .clients = 1, .tune_node = two_racks});

    (void)state;
    for (uint32_t key = 0; key < 60; key++) {
        uint32_t wanted = 2 + key % 4;
        struct store_op *op = put_op(world, 0, key, 200);
        uint32_t in[6], zone1, zone2;

        op->batch.put.replicas = wanted;
        assert_int_equal(run(op), YB_OK);
        assert_int_equal(op->items[0].replicas, wanted);
        for (uint32_t i = 0; i < 6; i++) {
            in[i] = on_node(world, i, key, key).count;
        }
        zone1 = in[0] + in[1] + in[2] + in[3];
        zone2 = in[4] + in[5];
        assert_int_equal(zone1 + zone2, wanted);
        assert_true(zone1 >= 1 && zone2 >= 1);
        if (wanted >= 3) { /* Three racks for three. */
            assert_true(in[0] + in[1] >= 1 && in[2] + in[3] >= 1);
        }
        if (wanted <= 5) { /* Nodes 0 and 1 are one host: never both while there is another. */
            assert_true(in[0] + in[1] <= 1);
        }
    }
    store_world_destroy(&world);
}

static uint64_t
copies(struct store_world *world)
{
    return store_directory(world)->life->directory->repaired_bytes;
}

static void
test_features__a_death_is_repaired_up_to_the_wanted_number(void **state)
{
    struct store_world *world =
        begin_with(&(struct store_options){.nodes = 6, .clients = 1, .tune_node = two_racks});
    uint32_t lost;

    (void)state;
    for (uint32_t key = 0; key < 60; key++) {
        assert_int_equal(put(world, 0, key, 2), YB_OK);
    }
    assert_int_equal(on_all(world, 0, 59), 120);
    lost = on_node(world, 2, 0, 59).count;
    assert_true(lost > 0);
    assert_int_equal(copies(world), 0);
    store_crash(store_node(world, 2), YB_SIM_DEATH_SILENT);
    for (uint32_t i = 0; i < 100 && on_all(world, 0, 59) < 120; i++) {
        store_run_ms(world, 100);
    }
    assert_int_equal(on_all(world, 0, 59), 120);
    assert_in_range(copies(world), (uint64_t)lost * VALUE, (uint64_t)lost * VALUE * 11 / 10);
    for (uint32_t key = 0; key < 60; key++) { /* In both zones, as before. */
        assert_int_equal(on_node(world, 4, key, key).count + on_node(world, 5, key, key).count, 1);
        assert_true(there(world, 0, key));
    }
    store_world_destroy(&world);
}

static void
test_features__reads_are_spread_over_replicas(void **state)
{
    struct store_world *world = begin(3, 2);
    uint64_t gets[3];

    (void)state;
    assert_int_equal(put(world, 0, 1, 3), YB_OK);
    for (uint32_t i = 0; i < 90; i++) {
        assert_true(there(world, 1, 1)); /* By a hint, and one after the other. */
    }
    for (uint32_t i = 0; i < 3; i++) {
        gets[i] = info(world, i).gets;
        assert_in_range(gets[i], 15, 60);
    }
    assert_int_equal(gets[0] + gets[1] + gets[2], 90);
    store_world_destroy(&world);
}

static void
evict_little(uint32_t number, struct yb_node_options *options)
{
    (void)number;
    options->low_permille = 945;
}

static void
test_features__duplicates_go_first_until_a_copy_is_the_only_one(void **state)
{
    struct store_world *world = begin_with(&(struct store_options){
        .nodes = 2, .clients = 1, .policy = "lru", .tune_node = evict_little});
    uint32_t stays;

    (void)state;
    for (uint32_t key = 0; key < 40; key++) { /* Both nodes have them. */
        assert_int_equal(put(world, 0, key, 2), YB_OK);
    }
    store_run_ms(world, 100);
    assert_int_equal(on_all(world, 0, 39), 80);
    assert_int_equal(info(world, 0).duplicates + info(world, 1).duplicates, 40);
    stays = info(world, 0).duplicates > info(world, 1).duplicates ? 0 : 1;
    for (uint32_t key = 1000; info(world, stays).evicted < 5; key++) {
        const char *const names[] = {stays == 0 ? "node-0" : "node-1", NULL};
        struct store_op *op = put_op(world, 0, key, VALUE);

        op->batch.put.preferred = names;
        assert_int_equal(run(op), YB_OK);
    }
    assert_int_equal(info(world, 1 - stays).evicted, 0);
    store_run_ms(world, 100);
    assert_true(on_all(world, 0, 39) < 80);
    for (uint32_t key = 0; key < 40; key++) {
        assert_true(there(world, 0, key)); /* No last copy went. */
    }
    assert_true(info(world, stays).duplicates > 0);
    store_crash(store_node(world, 1 - stays), YB_SIM_DEATH_RESET);
    store_run_ms(world, 3000); /* What is left is told that it is alone. */
    assert_int_equal(info(world, stays).duplicates, 0);
    store_world_destroy(&world);
}

/* ---- draining, newcomers --------------------------------------------------------------------- */

static bool
drained(struct store_world *world, const char *name)
{
    return yb_members_named(store_directory(world)->life->directory->members, name)->drained;
}

static void
test_features__a_node_drains_without_loss(void **state)
{
    struct store_world *world = begin(3, 1);

    (void)state;
    for (uint32_t key = 0; key < 60; key++) {
        assert_int_equal(put(world, 0, key, 1 + key % 2), YB_OK);
    }
    assert_true(on_node(world, 0, 0, 59).count > 0);
    store_drain(world, 0, true);
    for (uint32_t i = 0; i < 100 && !drained(world, "node-0"); i++) {
        store_run_ms(world, 100);
        for (uint32_t key = 0; key < 60; key += 7) {
            assert_true(there(world, 0, key));
        }
    }
    assert_true(drained(world, "node-0"));
    assert_int_equal(on_node(world, 0, 0, 59).count, 0);
    store_crash(store_node(world, 0), YB_SIM_DEATH_RESET);
    for (uint32_t key = 0; key < 60; key++) {
        assert_true(there(world, 0, key));
    }
    store_world_destroy(&world);
}

static void
test_features__a_last_copy_without_room_stays_and_is_reported(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_directory *directory = store_directory(world)->life->directory;

    (void)state;
    for (uint32_t key = 0; key < 20; key++) {
        assert_int_equal(put(world, 0, key, 1), YB_OK);
    }
    store_drain(world, 0, true);
    store_run_ms(world, 3000);
    assert_false(drained(world, "node-0"));
    assert_int_equal(
        directory->ports[yb_members_named(directory->members, "node-0")->slot]->drain_stuck, 20);
    for (uint32_t key = 0; key < 20; key++) {
        assert_true(there(world, 0, key));
    }
    store_drain(world, 0, false);
    store_run_ms(world, 500);
    assert_int_equal(put(world, 0, 100, 1), YB_OK);
    store_world_destroy(&world);
}

static void
test_features__a_newcomer_gets_at_most_twice_its_share(void **state)
{
    struct store_world *world =
        begin_with(&(struct store_options){.nodes = 4, .clients = 2, .late = 1});
    uint32_t got;

    (void)state;
    for (uint32_t key = 0; key < 600; key++) {
        assert_int_equal(put(world, 0, key, 1), YB_OK);
    }
    store_start(store_node(world, 3));
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    store_run_ms(world, 300);
    for (uint32_t first = 1000; first < 1000 + 75 * STORE_BATCH_MAX; first += STORE_BATCH_MAX) {
        uint32_t keys[STORE_BATCH_MAX];
        struct store_op *op;

        for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
            keys[i] = first + i;
        }
        op = store_op(world, first / STORE_BATCH_MAX % 2, YB_CLIENT_PUT, keys, STORE_BATCH_MAX,
                      5000);
        for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
            store_value(op, i, first, 400);
        }
        assert_int_equal(run(op), YB_OK);
        assert_true(on_node(world, 3, first, first + STORE_BATCH_MAX - 1).count < STORE_BATCH_MAX);
    }
    got = on_node(world, 3, 1000, 3000).count;
    assert_in_range(got, 300, 1200 * 2 / 4); /* 525 are expected, give or take 17. */
    store_world_destroy(&world);
}

/* ---- holds, removal, ungranted -------------------------------------------------------------- */

static void
hold(struct store_world *world, uint32_t key, uint32_t hold_ms)
{
    struct store_op *op = store_op(world, 0, YB_CLIENT_EXIST, &key, 1, 3000);

    op->batch.hold_ms = hold_ms;
    assert_int_equal(run(op), YB_OK);
}

static void
test_features__what_is_held_stays_and_is_removed_by_force_alone(void **state)
{
    struct store_world *world = begin(1, 2);
    uint32_t key = 1;
    struct store_op *op;

    (void)state;
    for (uint32_t i = 1; i <= 20; i++) {
        assert_int_equal(put(world, 0, i, 1), YB_OK);
        hold(world, i, 60000);
    }
    store_run_ms(world, 50);
    press(world, 1000, 600);
    assert_int_equal(on_all(world, 1, 20), 20);
    assert_int_equal(store_remove(world, 1, 1), YB_LEASED);
    assert_true(there(world, 1, 1));
    op = store_op(world, 1, YB_CLIENT_REMOVE, &key, 1, 3000);
    op->batch.force = true;
    assert_int_equal(run(op), YB_OK);
    assert_false(there(world, 1, 1));
    store_run_ms(world, 61000);
    assert_int_equal(store_remove(world, 1, 2), YB_OK); /* Its time is over. */
    press(world, 2000, 600);
    assert_int_equal(on_all(world, 3, 20), 0);
    store_world_destroy(&world);
}

static void
test_features__what_is_held_is_passed_by_when_all_is_removed_without_force(void **state)
{
    struct store_world *world = begin(2, 2);
    struct store_op *op;

    (void)state;
    for (uint32_t i = 1; i <= 20; i++) {
        assert_int_equal(put(world, 0, i, 1), YB_OK);
        if (i % 2 == 0) {
            hold(world, i, 60000);
        }
    }
    store_run_ms(world, 50);
    op = store_op(world, 1, YB_CLIENT_REMOVE_ALL, NULL, 0, 3000);
    store_submit(op);
    assert_true(store_settle(world, 10000));
    assert_int_equal(op->batch.status, YB_OK);
    for (uint32_t i = 1; i <= 20; i++) {
        assert_true(there(world, 1, i) == (i % 2 == 0));
    }
    assert_int_equal(on_all(world, 1, 20), 10);
    store_world_destroy(&world);
}

static void
test_features__the_oldest_hold_yields_at_half_of_the_pool(void **state)
{
    struct store_world *world = begin(1, 1);

    (void)state;
    for (uint32_t i = 1; i <= 180; i++) { /* 70 % of the pool. */
        assert_int_equal(put(world, 0, i, 1), YB_OK);
        hold(world, i, 600000);
        store_run_ms(world, 5);
    }
    press(world, 1000, 600); /* There is always room. */
    assert_int_equal(on_all(world, 1, 40), 0);
    assert_int_equal(on_all(world, 81, 180), 100);
    store_world_destroy(&world);
}

static void
one_at_a_time(uint32_t number, struct yb_node_options *options)
{
    (void)number;
    options->ungranted_permille = 10; /* Two of the blocks. */
}

static void
test_features__too_much_that_waits_for_a_grant_waits_outside_and_nothing_sticks(void **state)
{
    struct store_world *world =
        begin_with(&(struct store_options){.nodes = 1, .clients = 4, .tune_node = one_at_a_time});
    struct store_op *ops[4];

    (void)state;
    for (uint32_t client = 0; client < 4; client++) {
        uint32_t keys[STORE_BATCH_MAX];

        for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
            keys[i] = client * STORE_BATCH_MAX + i;
        }
        ops[client] = store_op(world, client, YB_CLIENT_PUT, keys, STORE_BATCH_MAX, 30000);
        for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
            store_value(ops[client], i, i, VALUE);
        }
        store_submit(ops[client]);
    }
    while (world->open > 0) {
        store_run_ms(world, 1);
        assert_in_range(info(world, 0).ungranted + info(world, 0).in_flight, 0, (1u << 20) / 100);
    }
    for (uint32_t client = 0; client < 4; client++) {
        for (uint32_t i = 0; i < STORE_BATCH_MAX; i++) {
            assert_int_equal(ops[client]->items[i].status, YB_OK);
        }
    }
    assert_int_equal(on_all(world, 0, 63), 64);
    assert_int_equal(info(world, 0).ungranted + info(world, 0).in_flight, 0);
    store_world_destroy(&world);
}

/* ---- what callers are told ------------------------------------------------------------------- */

static void
test_features__a_node_without_a_lease_is_away_to_callers(void **state)
{
    struct store_world *world = begin(1, 1);
    struct yb_sim_host *host = store_node(world, 0)->host;
    uint32_t refused = 0;

    (void)state;
    assert_int_equal(put(world, 0, 1, 1), YB_OK);
    assert_true(there(world, 0, 1));
    yb_sim_block(world->sim, host, store_directory(world)->host, true);
    for (uint32_t i = 0; i < 60; i++) { /* It may not serve long before it is taken for dead. */
        const uint32_t key = 1;
        struct store_op *op = store_op(world, 0, YB_CLIENT_GET, &key, 1, 200);
        enum yb_status status = run(op);

        assert_true(status == YB_OK || status == YB_PEER_LOST || status == YB_TIMED_OUT ||
                    status == YB_NOT_FOUND);
        refused += status == YB_PEER_LOST;
        store_run_ms(world, 10);
    }
    assert_true(refused > 0);
    store_heal(world);
    store_run_ms(world, 2000);
    assert_int_equal(put(world, 0, 2, 1), YB_OK);
    store_world_destroy(&world);
}

/* ---- the reuse gate -------------------------------------------------------------------------- */

static void
gate_clients(uint32_t number, struct yb_client_core_options *options)
{
    options->reuse_gate = number == 0 ? YB_CLIENT_GATE_OFF : YB_CLIENT_GATE_AUTO;
    if (number == 1) {
        options->prefill_ns_per_block = 50 * YB_NS_PER_MS;
    } else if (number == 2) {
        options->prefill_ns_per_block = 1; /* Nothing is as fast. */
    }
}

/* Ask for 8 keys in order; returns how many of the first are there, and that no others are. */
static uint32_t
leading(struct store_world *world, uint32_t client, uint32_t *gated_out)
{
    const uint32_t keys[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct store_op *op = store_op(world, client, YB_CLIENT_EXIST, keys, 8, 3000);
    uint32_t count = 0;

    op->batch.brief = true; /* A gate that is on looks at more all the same. */
    (void)run(op);
    *gated_out = 0;
    while (count < 8 && op->items[count].status == YB_OK) {
        count++;
    }
    for (uint32_t i = count; i < 8; i++) {
        assert_int_equal(op->items[i].status, YB_NOT_FOUND);
        assert_int_equal(op->items[i].gated, op->items[i].grant != 0);
        *gated_out += op->items[i].gated;
    }
    return count;
}

static void
test_features__existence_is_what_is_worth_loading_where_that_is_asked(void **state)
{
    struct store_world *world =
        begin_with(&(struct store_options){.nodes = 2, .clients = 4, .tune_client = gate_clients});
    struct yb_client_counters counters;
    uint32_t gated = 0;

    (void)state;
    for (uint32_t key = 0; key < 8; key++) {
        assert_int_equal(put(world, 0, key, 1), YB_OK);
    }
    for (uint32_t client = 0; client < 4; client++) { /* Nothing is known yet: open. */
        assert_int_equal(leading(world, client, &gated), 8);
        assert_true(there(world, client, 0) && there(world, client, 1) && there(world, client, 2));
    }
    assert_int_equal(leading(world, 1, &gated), 8); /* It pays ... */
    assert_int_equal(leading(world, 2, &gated), 0); /* ... or not ... */
    assert_int_equal(gated, 8);
    yb_client_core_counters(store_client(world, 2)->life->client, &counters);
    assert_int_equal(counters.gated, 8);
    assert_int_equal(leading(world, 3, &gated), 8); /* ... or who asks does not know. */
    assert_int_equal(store_remove(world, 0, 5), YB_OK);
    assert_int_equal(leading(world, 1, &gated), 5); /* A run ends at what is not there. */
    assert_int_equal(gated, 2);
    assert_true(there(world, 2, 7)); /* A get is a get. */
    yb_client_core_counters(store_client(world, 0)->life->client, &counters);
    assert_int_equal(counters.gated, 0);
    store_world_destroy(&world);
}

/* ---- for subscribers ------------------------------------------------------------------------- */

static void
directory_with_keys(struct yb_directory_options *options)
{
    options->want_keys = true;
}

/* Check that a snapshot would name what each of the chain follows, and that it names all. */
static void
expect_parents(struct store_world *world)
{
    struct yb_directory *directory = store_directory(world)->life->directory;
    struct yb_index_entry entries[CHAIN + 1];
    uint32_t cursor = 0;
    uint32_t count = yb_index_scan(directory->index, yb_directory_now_ms(directory),
                                   YB_INDEX_SLOT_NONE, 1024, &cursor, entries, CHAIN + 1);

    assert_int_equal(count, CHAIN);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t key = 0;
        uint64_t begins;

        memcpy(&begins, entries[i].hash.bytes, sizeof(begins));
        while (name_of(world, key) != begins) {
            key++;
        }
        assert_true(entries[i].parent == (key == 0 ? 0 : name_of(world, key - 1)));
    }
}

static void
test_features__subscribers_are_told_what_a_block_follows(void **state)
{
    struct store_world *world = begin_with(
        &(struct store_options){.nodes = 1, .clients = 1, .tune_directory = directory_with_keys});
    struct yb_directory *directory = store_directory(world)->life->directory;
    uint32_t order[CHAIN];

    (void)state;
    for (uint32_t i = 0; i < CHAIN; i++) {
        order[i] = i;
    }
    put_chain(world, 0, order);
    for (uint64_t number = 1; number <= CHAIN; number++) {
        const uint8_t *key;
        const struct yb_event *event = yb_events_at(directory->events, number, &key);

        assert_int_equal(event->kind, YB_WIRE_EVENT_KIND_STORED);
        assert_true(event->parent == (number == 1 ? 0 : name_of(world, (uint32_t)number - 2)));
    }
    expect_parents(world);
    store_crash(store_directory(world), YB_SIM_DEATH_RESET);
    store_start(store_directory(world));
    store_run_ms(world, 3000); /* The node has named all that it has. */
    expect_parents(world);
    store_world_destroy(&world);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_features__a_block_is_gone_after_its_time_and_its_key_is_free),
        cmocka_unit_test(test_features__only_hard_pins_make_no_space),
        cmocka_unit_test(test_features__soft_pins_go_last_and_make_no_no_space),
        cmocka_unit_test(test_features__blocks_of_a_group_go_together),
        cmocka_unit_test(test_features__a_group_lies_on_one_node_whoever_puts_it),
        cmocka_unit_test(test_features__a_suffix_is_never_kept_without_its_prefix),
        cmocka_unit_test(test_features__a_pinned_suffix_keeps_its_prefix),
        cmocka_unit_test(test_features__a_tenant_at_its_limit_makes_room_for_itself_alone),
        cmocka_unit_test(test_features__what_is_pinned_counts_to_the_limit_and_is_refused_there),
        cmocka_unit_test(test_features__replicas_are_apart_by_zone_rack_and_host),
        cmocka_unit_test(test_features__a_death_is_repaired_up_to_the_wanted_number),
        cmocka_unit_test(test_features__reads_are_spread_over_replicas),
        cmocka_unit_test(test_features__duplicates_go_first_until_a_copy_is_the_only_one),
        cmocka_unit_test(test_features__a_node_without_a_lease_is_away_to_callers),
        cmocka_unit_test(test_features__existence_is_what_is_worth_loading_where_that_is_asked),
        cmocka_unit_test(test_features__subscribers_are_told_what_a_block_follows),
        cmocka_unit_test(test_features__a_node_drains_without_loss),
        cmocka_unit_test(test_features__a_last_copy_without_room_stays_and_is_reported),
        cmocka_unit_test(test_features__a_newcomer_gets_at_most_twice_its_share),
        cmocka_unit_test(test_features__what_is_held_stays_and_is_removed_by_force_alone),
        cmocka_unit_test(
            test_features__what_is_held_is_passed_by_when_all_is_removed_without_force),
        cmocka_unit_test(test_features__the_oldest_hold_yields_at_half_of_the_pool),
        cmocka_unit_test(
            test_features__too_much_that_waits_for_a_grant_waits_outside_and_nothing_sticks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
