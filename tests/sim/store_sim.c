/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whatever happens to directory, nodes, clients and the network between them, nothing that
 *   was acknowledged is lost without a reason or comes back, nobody reads what nobody put, and once
 *   the faults are over everything works and nothing is left.
 * Method: for each seed a cluster, a network and a mood are drawn. Random batches over few keys
 *   meet what the mood allows: in a calm world nothing may get lost at all; with restarts the
 *   directory dies and comes back at once; in a rough one everything fails. For each sixth seed
 *   clients are on nodes' machines, and read and are read there (store_beside.h).
 *   store_judge.h says what is checked after every step, and in the end.
 *
 * Usage: store_sim [--seeds N] [--from S] [--repeat S] [--trace]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seeds.h"
#include "store_beside.h"
#include "store_judge.h"
#include "store_world.h"

#define KEYS_MAX     12u
#define ALL_ENDED_MS 30000u
#define READY_MS     20000u
#define QUIET_MS     20000u
#define STEP_MS      3u
#define TWICE_EVERY  20u /* Each so many seeds is run twice: it must repeat itself. */
#define NEAR_EVERY   6u  /* For each so many seeds clients are on nodes' machines. */
#define FRESH_KEY    100u

enum mood { CALM, RESTARTS, FULL, ROUGH, MOOD_COUNT };

static const char *const mood_names[MOOD_COUNT] = {"calm", "restarts", "full", "rough"};

struct outcome {
    uint64_t fingerprint;
    uint64_t steps;
    uint32_t ops;
    uint32_t items;
    uint32_t good;
    uint32_t missed;
    uint32_t doubted;
    uint32_t hard;
    bool near;
    enum mood mood;
};

struct walk {
    struct store_world *world;
    enum mood mood;
    bool trace;
    uint32_t keys;
    uint32_t fault_weight; /* Of 100 actions. */
    uint32_t value_max;
    uint32_t replace_weight;
    uint64_t directory_due_ns; /* A directory that lost its file starts then; 0: none waits. */
    bool fresh;
    bool broken[STORE_NODES_MAX][YB_NODE_TIERS_MAX]; /* Media that fail. */
};

static bool
may_lose(const struct walk *walk)
{
    return walk->mood == FULL || walk->mood == ROUGH;
}

static uint32_t
below(struct walk *walk, uint32_t bound)
{
    return (uint32_t)yb_sim_random_below(walk->world->sim, bound);
}

static uint32_t
pick(struct walk *walk, const uint32_t *from, uint32_t count)
{
    return from[below(walk, count)];
}

#define PICK(walk, ...)                           \
    pick((walk), (const uint32_t[]){__VA_ARGS__}, \
         sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

#define TRACE(walk, ...)                                                        \
    do {                                                                        \
        if ((walk)->trace) {                                                    \
            printf("# %.3f ", (double)yb_sim_now_ns((walk)->world->sim) / 1e6); \
            printf(__VA_ARGS__);                                                \
            printf("\n");                                                       \
            (void)fflush(stdout);                                               \
        }                                                                       \
    } while (0)

/* ---- what is drawn once ------------------------------------------------------------------ */

static uint32_t
draw(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 33) % bound);
}

/* What is below memory: nothing, for a third of the seeds. */
static void
draw_tiers(struct store_options *options, uint64_t *state)
{
    static const char *const policies[] = {"through", "through", "back", "selective"};

    options->tiers = draw(state, 3);
    options->tier_ms = 1 + draw(state, 12);
    options->write_policy = policies[draw(state, 4)];
    options->tier_bytes = draw(state, 3) == 0 ? 48u * 1024u : 1u << 20;
}

/* Whether long values are cut, as they are above 64 MiB: for a third of the seeds. What replaced
 * versions leave must not push anything out of a world in which nothing gets lost. */
static void
draw_parts(struct store_options *options, uint64_t *state)
{
    static const uint64_t lengths[] = {300, 1000, 3000};

    if (draw(state, 3) == 0) {
        options->part_bytes = lengths[draw(state, 3)];
        options->pool_bytes *= options->pool_bytes == 1u << 20 ? 8 : 1;
    }
}

/* Whether clients are on nodes' machines. Where values may get lost there is little room, so that
 * memory is soon somebody else's. */
static void
draw_near(struct store_options *options, uint64_t *state, enum mood mood)
{
    options->near = options->seed % NEAR_EVERY == 0;
    if (options->near && mood == ROUGH) {
        options->pool_bytes = (64u + 32u * draw(state, 3)) * 1024u;
    }
}

static struct store_options
draw_options(uint64_t seed, enum mood *mood_out)
{
    static const char *const policies[] = {NULL, "lru", "lfu", "s3fifo"};
    static const enum mood moods[] = {CALM, RESTARTS, FULL, ROUGH, ROUGH, ROUGH};
    static const uint32_t leases[] = {200, 400, 400, 1000};
    uint64_t state = seed * 2862933555777941757ull + 3037000493ull;
    struct store_options options = {.seed = seed};

    (void)draw(&state, 2);
    *mood_out = moods[draw(&state, 6)];
    options.nodes = 1 + draw(&state, 4);
    options.clients = 1 + draw(&state, 4);
    options.lease_ms = *mood_out == RESTARTS ? 1000 : leases[draw(&state, 4)];
    options.policy = policies[draw(&state, 4)];
    options.verify = draw(&state, 4) == 0;
    options.pool_bytes = 1u << 20;
    if (*mood_out == FULL || (*mood_out == ROUGH && draw(&state, 4) == 0)) {
        options.pool_bytes = (32u + 16u * draw(&state, 4)) * 1024u;
    }
    draw_tiers(&options, &state);
    draw_parts(&options, &state);
    draw_near(&options, &state, *mood_out);
    return options;
}

/* How fast memory of the machine is read: now and then only after other things have happened, or
 * when a pin's time is over. */
static void
draw_near_links(struct walk *walk)
{
    struct yb_sim_link link = yb_sim_link_default();

    for (uint32_t i = 0; walk->world->options.near && i < walk->world->options.clients; i++) {
        link.delay_ns = PICK(walk, 1, 1, 20, 60) * YB_NS_PER_MS;
        link.bytes_per_s = PICK(walk, 50000, 1000000, 1000000);
        link.piece_bytes_max = 500;
        store_near_link(store_client(walk->world, i), &link);
    }
}

static void
draw_link(struct walk *walk)
{
    struct yb_sim_link link = yb_sim_link_default();

    if (below(walk, 3) == 0) {
        link = yb_sim_link_rough();
    }
    if (below(walk, 3) == 0) {
        link.connection_jitter_ns = PICK(walk, 1, 5, 20) * YB_NS_PER_MS;
    }
    if (walk->mood == ROUGH) {
        link.reset_drops_unread = below(walk, 2) == 0;
        link.close_unread_resets = below(walk, 2) == 0;
        link.pieces_random = below(walk, 2) == 0;
        link.window_bytes = below(walk, 4) == 0 ? 20000 : link.window_bytes;
        link.cut_ppm = PICK(walk, 0, 0, 200, 3000);
        link.black_hole_ppm = PICK(walk, 0, 0, 0, 500);
        link.connect_silent_ppm = PICK(walk, 0, 0, 20000);
    } else {
        link.drop_ppm = 0; /* A loss costs as much as a lease. */
    }
    yb_sim_set_link(walk->world->sim, NULL, NULL, &link);
    draw_near_links(walk);
}

static void
draw_clocks(struct walk *walk)
{
    struct store_world *world = walk->world;

    for (uint32_t i = 0; i < world->role_count; i++) {
        if (below(walk, 2) == 0) {
            store_drift(&world->roles[i], (int32_t)below(walk, 160000) - 80000);
            yb_sim_host_set_wall(world->roles[i].host,
                                 ((int64_t)below(walk, 20000) - 10000) * (int64_t)YB_NS_PER_S);
        }
    }
}

/* ---- operations -------------------------------------------------------------------------- */

/* Choose different keys. */
static uint32_t
draw_keys(struct walk *walk, uint32_t *keys_out)
{
    uint32_t count = PICK(walk, 1, 1, 1, 2, 4, 8);
    uint32_t first = below(walk, walk->keys);

    count = count < walk->keys ? count : walk->keys;
    for (uint32_t i = 0; i < count; i++) {
        keys_out[i] = (first + i) % walk->keys;
    }
    return count;
}

static uint32_t
draw_deadline(struct walk *walk)
{
    if (walk->mood != ROUGH) {
        return PICK(walk, 3000, 10000); /* A timeout is a failure, and failures make suspects. */
    }
    return PICK(walk, 3, 20, 100, 500, 2000, 2000, 6000, 6000);
}

static void
act_put(struct walk *walk, struct store_op *op)
{
    op->batch.put.replicas = PICK(walk, 0, 1, 1, 2, 3);
    op->batch.put.replace = below(walk, 100) < walk->replace_weight;
    op->batch.put.soft_pin = below(walk, 8) == 0;
    op->batch.put.ttl_ms =
        walk->mood == ROUGH && below(walk, 10) == 0 ? PICK(walk, 5, 100, 900) : 0;
    for (uint32_t i = 0; i < op->batch.count; i++) {
        store_value(op, i, (uint64_t)op->number * STORE_BATCH_MAX + i + 1,
                    8 + below(walk, walk->value_max - 8));
    }
}

static void
act_op(struct walk *walk)
{
    struct store_world *world = walk->world;
    uint32_t client = below(walk, world->options.clients);
    uint32_t dice = below(walk, 100);
    uint32_t keys[STORE_BATCH_MAX];
    uint32_t count = draw_keys(walk, keys);
    uint8_t kind = dice < 35   ? YB_CLIENT_PUT
                   : dice < 70 ? YB_CLIENT_GET
                   : dice < 80 ? YB_CLIENT_EXIST
                   : dice < 97 ? YB_CLIENT_REMOVE
                               : YB_CLIENT_REMOVE_ALL;
    struct store_op *op;

    op = store_op(world, client, kind, keys, kind == YB_CLIENT_REMOVE_ALL ? 0 : count,
                  draw_deadline(walk));
    op->batch.work_class = (enum yb_class)below(walk, YB_CLASS_COUNT);
    if (kind == YB_CLIENT_PUT) {
        act_put(walk, op);
    }
    op->batch.hold_ms = kind == YB_CLIENT_EXIST && below(walk, 3) == 0 ? PICK(walk, 20, 300) : 0;
    op->batch.brief = kind == YB_CLIENT_EXIST && op->number % 2 == 0;
    op->batch.force = kind == YB_CLIENT_REMOVE_ALL || below(walk, 2) == 0;
    TRACE(walk, "op %u: client %u kind %u key %u, %u of them%s", op->number, client, kind, keys[0],
          op->batch.count, op->batch.put.replace ? ", replace" : "");
    store_submit(op);
}

/* ---- faults ------------------------------------------------------------------------------ */

static struct store_role *
any_role(struct walk *walk)
{
    return &walk->world->roles[below(walk, walk->world->role_count)];
}

static uint32_t
number_of(struct walk *walk, const struct store_role *role)
{
    return (uint32_t)(role - walk->world->roles);
}

static void
act_on_network(struct walk *walk)
{
    struct yb_sim *sim = walk->world->sim;
    struct store_role *a = any_role(walk);
    struct store_role *b = any_role(walk);
    uint32_t what = below(walk, 7);

    TRACE(walk, "network %u between %u and %u", what, number_of(walk, a), number_of(walk, b));
    switch (what) {
    case 0: (void)yb_sim_cut(sim, a->host, NULL); break;
    case 1: (void)yb_sim_cut(sim, a->host, b->host); break;
    case 2: (void)yb_sim_black_hole(sim, a->host, NULL); break;
    case 3: yb_sim_block(sim, a->host, b->host, true); break;
    case 4: yb_sim_partition(sim, &a->host, 1); break;
    case 5: /* From the directory only: the interesting one (RULES A5). */
        yb_sim_block(sim, a->host, walk->world->roles[0].host, true);
        yb_sim_block(sim, walk->world->roles[0].host, a->host, below(walk, 2) == 0);
        break;
    default: draw_link(walk); break;
    }
}

static void
start(struct walk *walk, struct store_role *role)
{
    uint64_t now_ns = yb_sim_now_ns(walk->world->sim);

    if (role->kind == STORE_DIRECTORY && walk->fresh) {
        if (now_ns < walk->directory_due_ns) {
            return; /* Who loses the file waits for a lease, or old nodes serve beside the new. */
        }
        walk->world->file_bytes = 0;
        walk->fresh = false;
    }
    TRACE(walk, "start of %u", number_of(walk, role));
    store_start(role);
}

static void
crash(struct walk *walk, struct store_role *role)
{
    struct store_world *world = walk->world;
    enum yb_sim_death how = (enum yb_sim_death)below(walk, 3);

    if (role->kind == STORE_DIRECTORY && below(walk, 4) == 0) {
        walk->fresh = true;
        walk->directory_due_ns =
            yb_sim_now_ns(world->sim) + 2 * world->options.lease_ms * YB_NS_PER_MS;
    }
    TRACE(walk, "crash %u of %u%s", how, number_of(walk, role), walk->fresh ? ", file lost" : "");
    store_crash(role, how);
}

static void
act_on_process(struct walk *walk)
{
    struct store_role *role = any_role(walk);

    if (role->life == NULL) {
        start(walk, role);
        return;
    }
    switch (below(walk, 5)) {
    case 0:
    case 1: crash(walk, role); break;
    case 2:
        TRACE(walk, "stall of %u", number_of(walk, role));
        store_stall(role, !role->stalled);
        break;
    case 3:
        TRACE(walk, "skip of %u", number_of(walk, role));
        store_skip(role, PICK(walk, 1, 50, 700) * YB_NS_PER_MS);
        break;
    default:
        if (role->stalled) {
            store_stall(role, false);
        }
        break;
    }
}

/* A medium stands still, goes on, or fails for a while. */
static void
act_on_medium(struct walk *walk)
{
    uint32_t node = below(walk, walk->world->options.nodes);
    uint32_t tier = below(walk, walk->world->options.tiers);
    struct yb_memory_faults *faults =
        yb_memory_medium_faults(store_node(walk->world, node)->media[tier]);
    uint32_t what = below(walk, 7);

    TRACE(walk, "medium %u of node %u: %u", tier, node, what);
    switch (what) {
    case 0: faults->stalled = !faults->stalled; break;
    case 1: faults->store_fail += 3; break;
    case 2: faults->load_fail += 3; break;
    case 3: faults->load_corrupt += 1; break;
    case 4: faults->kill_fail += 2; break;
    case 5:
        walk->broken[node][tier] = !walk->broken[node][tier];
        yb_memory_medium_break(store_node(walk->world, node)->media[tier],
                               walk->broken[node][tier]);
        break;
    default: *faults = (struct yb_memory_faults){.stalled = false}; break;
    }
}

static void
act_heal(struct walk *walk)
{
    struct store_world *world = walk->world;

    TRACE(walk, "heal");
    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < world->role_count; i++) {
        if (world->roles[i].stalled) {
            store_stall(&world->roles[i], false);
        }
        if (world->roles[i].life == NULL && below(walk, 2) == 0) {
            start(walk, &world->roles[i]);
        }
    }
}

static void
act_drain(struct walk *walk)
{
    uint32_t node = below(walk, walk->world->options.nodes);
    bool draining = below(walk, 2) == 0;

    TRACE(walk, "drain of node %u: %d", node, draining);
    store_drain(walk->world, node, draining);
}

static void
act_restart(struct walk *walk)
{
    struct store_role *role = store_directory(walk->world);

    TRACE(walk, "the directory restarts");
    store_judge_returns(walk->world->judge);
    store_crash(role, (enum yb_sim_death)below(walk, 2));
    store_run_ms(walk->world, PICK(walk, 0, 1, 30));
    store_start(role);
}

static void
act_fault(struct walk *walk)
{
    uint32_t dice = below(walk, 10);

    if (walk->mood == ROUGH && walk->world->options.tiers > 0 && below(walk, 3) == 0) {
        act_on_medium(walk);
    } else if (walk->mood == CALM || walk->mood == FULL) {
        act_drain(walk);
    } else if (walk->mood == RESTARTS) {
        if (dice < 5) {
            act_restart(walk);
        } else {
            act_drain(walk);
        }
    } else if (dice < 3) {
        act_on_network(walk);
    } else if (dice < 6) {
        act_on_process(walk);
    } else if (dice < 9) {
        act_heal(walk);
    } else {
        act_drain(walk);
    }
}

static void
pass(struct walk *walk, uint32_t ms)
{
    for (uint32_t passed = 0; passed < ms; passed += STEP_MS) {
        store_run_ms(walk->world, STEP_MS);
    }
}

static void
act(struct walk *walk)
{
    if (below(walk, 100) < walk->fault_weight) {
        act_fault(walk);
    } else {
        uint32_t count = PICK(walk, 1, 1, 2, 4);

        for (uint32_t i = 0; i < count; i++) {
            act_op(walk);
        }
    }
    pass(walk, PICK(walk, 0, 1, 3, 12, 12, 60, walk->mood == ROUGH ? 400 : 60));
}

/* ---- the end ----------------------------------------------------------------------------- */

/* With every fault healed, everything works again, for everybody. */
static void
check_fresh(struct store_world *world)
{
    for (uint32_t i = 0; i < world->options.clients; i++) {
        uint32_t key = FRESH_KEY + i;
        uint64_t value = 0;

        STORE_CHECK(world, store_put(world, i, key, 1000000 + i, i % 2 == 0) == YB_OK);
        for (uint32_t k = 0; k < world->options.clients; k++) {
            STORE_CHECK(world, store_get(world, k, key, &value) == YB_OK);
            STORE_CHECK(world, value == 1000000 + i);
        }
        STORE_CHECK(world, store_remove(world, i, key) == YB_OK);
        STORE_CHECK(world, store_get(world, i, key, &value) == YB_NOT_FOUND);
    }
}

/* What the directory says is there can be read, and nothing else can. */
static void
check_index(struct walk *walk)
{
    for (uint32_t key = 0; key < walk->keys; key++) {
        uint32_t client = key % walk->world->options.clients;
        enum yb_status exists;
        uint64_t value = 0;

        if (walk->world->options.part_bytes != 0 && may_lose(walk)) {
            (void)store_get(walk->world, client, key, &value); /* What lost a part goes (A16). */
        }
        exists = store_exist(walk->world, client, key);
        STORE_CHECK(walk->world, exists == YB_OK || exists == YB_NOT_FOUND);
        STORE_CHECK(walk->world, store_get(walk->world, client, key, &value) == exists);
    }
}

static void
settle(struct walk *walk)
{
    struct store_world *world = walk->world;
    struct yb_sim_link calm = yb_sim_link_default();
    char why[256] = "";
    bool quiet = false;

    TRACE(walk, "the end");
    yb_sim_set_link(world->sim, NULL, NULL, &calm);
    yb_sim_heal(world->sim);
    while (walk->fresh && yb_sim_now_ns(world->sim) < walk->directory_due_ns) {
        pass(walk, STEP_MS);
    }
    if (walk->fresh && store_directory(world)->life == NULL) {
        start(walk, store_directory(world));
    }
    store_heal(world);
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        for (uint32_t tier = 0; tier < world->options.tiers; tier++) {
            *yb_memory_medium_faults(store_node(world, i)->media[tier]) =
                (struct yb_memory_faults){.stalled = false};
            yb_memory_medium_break(store_node(world, i)->media[tier], false);
        }
        store_drain(world, i, false);
    }
    STORE_CHECK(world, store_settle(world, ALL_ENDED_MS));
    for (uint32_t passed = 0; passed < READY_MS && !store_ready(world); passed += 20) {
        store_run_ms(world, 20);
    }
    STORE_CHECK(world, store_ready(world));
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        store_drain(world, i, false);
    }
    pass(walk, 3 * world->options.lease_ms + 2500); /* Suspects are trusted again. */
    check_index(walk);
    check_fresh(world);
    for (uint32_t passed = 0; passed < QUIET_MS && !quiet; passed += 100) {
        store_run_ms(world, 100);
        quiet = store_judge_quiet(world->judge, why, sizeof(why));
    }
    if (!quiet) {
        (void)fprintf(stderr, "%s\n", why);
        store_failed(world, "in the end nothing is left", __FILE__, __LINE__);
    }
}

static void
count_outcome(struct store_world *world, struct outcome *outcome)
{
    outcome->fingerprint = yb_sim_fingerprint(world->sim);
    outcome->steps = yb_sim_step_count(world->sim);
    outcome->ops = world->op_count;
    for (const struct store_op *op = world->ops; op != NULL; op = op->next) {
        for (uint32_t i = 0; op->accepted && i < op->batch.count; i++) {
            enum yb_status status = op->items[i].status;

            outcome->items++;
            outcome->good += status == YB_OK;
            outcome->missed += status == YB_NOT_FOUND || status == YB_EXISTS;
            outcome->doubted += status == YB_IN_DOUBT;
        }
    }
}

static struct outcome
run_seed(uint64_t seed, const char *repeat, bool trace)
{
    struct outcome outcome = {0};
    struct store_options options = draw_options(seed, &outcome.mood);
    struct walk walk = {.mood = outcome.mood, .trace = trace};
    uint32_t actions;

    outcome.near = options.near;
    options.repeat = repeat;
    walk.world = store_world_create(&options);
    walk.keys = PICK(&walk, 1, 4, KEYS_MAX, KEYS_MAX);
    walk.value_max = PICK(&walk, 64, 4000, STORE_VALUE_MAX);
    walk.replace_weight = PICK(&walk, 0, 30, 60);
    walk.fault_weight = walk.mood == ROUGH ? PICK(&walk, 10, 20, 40) : PICK(&walk, 0, 5, 10);
    if (may_lose(&walk)) {
        store_judge_loss(walk.world->judge);
    }
    draw_link(&walk);
    draw_clocks(&walk);
    actions = 30 + below(&walk, 70);
    TRACE(&walk, "seed %llu: %s, %u nodes, %u clients, lease %u ms, pool %llu, %u keys, %u actions",
          (unsigned long long)seed, mood_names[walk.mood], options.nodes, options.clients,
          options.lease_ms, (unsigned long long)options.pool_bytes, walk.keys, actions);
    if (below(&walk, 2) == 0 || walk.mood != ROUGH) {
        for (uint32_t i = 0; i < 200 && !store_ready(walk.world); i++) {
            store_run_ms(walk.world, 10);
        }
        STORE_CHECK(walk.world, walk.mood == ROUGH || store_ready(walk.world));
    }
    for (uint32_t i = 0; i < actions; i++) {
        act(&walk);
    }
    settle(&walk);
    outcome.hard = store_judge_histories(walk.world->judge);
    count_outcome(walk.world, &outcome);
    store_world_destroy(&walk.world);
    return outcome;
}

/* ---- the program ------------------------------------------------------------------------- */

struct asked {
    uint64_t from;
    uint64_t seeds;
    bool trace;
};

static bool
read_options(int count, char **words, struct asked *asked)
{
    for (int i = 1; i < count; i++) {
        uint64_t *number = strcmp(words[i], "--seeds") == 0    ? &asked->seeds
                           : strcmp(words[i], "--from") == 0   ? &asked->from
                           : strcmp(words[i], "--repeat") == 0 ? &asked->from
                                                               : NULL;

        if (strcmp(words[i], "--trace") == 0) {
            asked->trace = true;
            continue;
        }
        if (number == NULL || i + 1 == count || !seeds_number(words[i + 1], number)) {
            return false;
        }
        if (strcmp(words[i], "--repeat") == 0) {
            asked->seeds = 1;
        }
        i++;
    }
    return asked->seeds > 0;
}

/* Messages that name the caller's memory have other bytes each time; nothing hangs on them. */
static bool
is_same(const struct outcome *one, const struct outcome *other)
{
    return one->steps == other->steps && one->good == other->good && one->missed == other->missed &&
           one->doubted == other->doubted && (one->near || one->fingerprint == other->fingerprint);
}

static void
show(uint64_t seed, const struct outcome *outcome)
{
    printf("# seed %llu: %s, fingerprint %016llx, %llu steps, %u operations, %u items: %u good, %u "
           "missed, %u in doubt; %u histories too hard\n",
           (unsigned long long)seed, mood_names[outcome->mood],
           (unsigned long long)outcome->fingerprint, (unsigned long long)outcome->steps,
           outcome->ops, outcome->items, outcome->good, outcome->missed, outcome->doubted,
           outcome->hard);
}

int
main(int argc, char **argv)
{
    struct asked asked = {.from = 1, .seeds = 200};
    uint64_t hard = 0, near = 0;

    if (!read_options(argc, argv, &asked)) {
        (void)fprintf(stderr, "usage: store_sim [--seeds N] [--from S] [--repeat S] [--trace]\n");
        return 2;
    }
    printf("1..1\n");
    for (uint64_t seed = asked.from; seed < asked.from + asked.seeds; seed++) {
        char repeat[256];
        struct outcome outcome;

        (void)snprintf(repeat, sizeof(repeat), "%s --repeat %llu --trace", argv[0],
                       (unsigned long long)seed);
        outcome = run_seed(seed, repeat, asked.trace);
        hard += outcome.hard;
        near += outcome.near;
        if (asked.trace) {
            show(seed, &outcome);
        }
        if (seed % TWICE_EVERY == 0) {
            struct outcome again = run_seed(seed, repeat, false);

            if (!is_same(&again, &outcome)) {
                printf("not ok 1 - seed %llu does not repeat itself\n", (unsigned long long)seed);
                return 1;
            }
        }
    }
    printf(
        "ok 1 - the store keeps its promises for %llu seeds from %llu, %llu of them with clients "
        "on nodes' machines; %llu histories were too hard to judge\n",
        (unsigned long long)asked.seeds, (unsigned long long)asked.from, (unsigned long long)near,
        (unsigned long long)hard);
    return 0;
}
