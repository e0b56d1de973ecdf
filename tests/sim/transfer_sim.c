/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whatever happens to hosts, engines and the network between them, outcomes of transfers are
 *   true, no byte lands late, and once the faults are over everything works again.
 * Method: for each seed a cluster, a network and clocks are drawn; then random batches meet random
 *   faults; then all is healed: every batch must end, every doubt must be cleared by a drain or a
 *   fence, and a fresh batch between any two nodes must succeed although its connections are cut.
 *   The rules of transfer_world.h are checked all the time.
 *
 * Usage: transfer_sim [--seeds N] [--from S] [--verbose]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seeds.h"
#include "transfer_world.h"

#define ALL_ENDED_MS 200000u
#define PATIENCE_NS  (60 * YB_NS_PER_S)
#define TWICE_EVERY  20u /* Each so many seeds is run twice: it must repeat itself. */

/* Seeds that found a mistake, or find one that is rarely met; run before all others. */
static const uint64_t regressions[] = {
    100,  /* Half of an item by address went with a target that restarted, and it was OK. */
    206,  /* What a dead writer had sent arrived with a gap: the simulation's own mistake. */
    355,  /* A newer connection is welcomed while the older one can still write. */
    1193, /* The same. */
    1617, /* The same, and late bytes land. */
    2076, /* What a dead writer had sent arrives with a gap: the simulation's own mistake. */
};

struct outcome {
    uint64_t fingerprint;
    uint64_t digest;
    uint64_t steps;
    struct world_counts counts;
};

struct walk {
    struct world *world;
    uint32_t fault_weight;  /* Of 100 actions. */
    uint32_t meddle_weight; /* Of 1000 steps of a call that waits. */
};

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

/* ---- what is drawn once ------------------------------------------------------------------ */

/* A generator for the options, which are needed before there is a world. */
static uint32_t
draw(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)((*state >> 33) % bound);
}

static struct world_options
draw_options(uint64_t seed)
{
    static const uint32_t streams[] = {1, 2, 4, 4};
    struct world_options options = {.seed = seed};
    uint64_t state = seed * 2862933555777941757ull + 3037000493ull;

    (void)draw(&state, 2);
    options.node_count = 2 + draw(&state, 2);
    options.workers = 1 + draw(&state, 2);
    options.streams = streams[draw(&state, 4)];
    return options;
}

static void
draw_link(struct walk *walk)
{
    struct yb_sim_link link = yb_sim_link_default();

    if (below(walk, 3) == 0) {
        link = yb_sim_link_rough();
    }
    if (below(walk, 2) == 0) {
        link.bytes_per_s = (uint64_t)PICK(walk, 1, 5, 50) * 1024 * 1024;
    }
    if (below(walk, 2) == 0) {
        link.connection_jitter_ns = (uint64_t)PICK(walk, 1, 20, 200, 1000) * YB_NS_PER_MS;
    }
    link.window_bytes = PICK(walk, link.window_bytes, 20000, 100000, 1000000);
    link.reset_drops_unread = below(walk, 2) == 0;
    link.close_unread_resets = below(walk, 2) == 0;
    link.pieces_random = below(walk, 4) == 0;
    link.cut_ppm = PICK(walk, 0, 0, 1000, 10000);
    link.black_hole_ppm = PICK(walk, 0, 0, 0, 1000);
    link.connect_silent_ppm = PICK(walk, 0, 0, 0, 20000);
    yb_sim_set_link(walk->world->sim, NULL, NULL, &link);
}

static void
draw_clocks(struct walk *walk)
{
    struct world *world = walk->world;

    for (uint32_t i = 0; i < world->options.node_count; i++) {
        if (below(walk, 2) == 0) {
            yb_sim_host_set_drift(world->nodes[i].host, (int32_t)below(walk, 200000) - 100000);
            yb_sim_host_set_wall(world->nodes[i].host,
                                 ((int64_t)below(walk, 20000) - 10000) * (int64_t)YB_NS_PER_S);
        }
    }
}

/* ---- what happens, without waiting --------------------------------------------------------- */

static uint32_t
other_node(struct walk *walk, uint32_t from)
{
    uint32_t count = walk->world->options.node_count;

    return (from + 1 + below(walk, count - 1)) % count;
}

static void
act_submit(struct walk *walk)
{
    static const uint64_t timeouts_ns[] = {
        YB_NS_PER_MS,    5 * YB_NS_PER_MS, 20 * YB_NS_PER_MS, 200 * YB_NS_PER_MS,
        2 * YB_NS_PER_S, 30 * YB_NS_PER_S, 30 * YB_NS_PER_S,  YB_NEVER,
    };
    struct world_ask ask = {.from = below(walk, walk->world->options.node_count)};

    ask.to = other_node(walk, ask.from);
    ask.handle = below(walk, WORLD_HANDLES);
    ask.op = below(walk, 3) == 0 ? YB_TRANSFER_READ : YB_TRANSFER_WRITE;
    ask.cells = 1 + below(walk, PICK(walk, 1, 4, WORLD_CELLS / 2));
    ask.items_per_cell = PICK(walk, 1, 1, 2, 8);
    ask.timeout_ns = timeouts_ns[below(walk, 8)];
    ask.work_class = below(walk, YB_CLASS_COUNT);
    ask.by_address = below(walk, 4) == 0;
    ask.notifies = below(walk, 3) == 0;
    ask.whole = below(walk, 2) == 0;
    (void)world_submit(walk->world, &ask);
}

static void
act_cancel(struct walk *walk)
{
    struct world *world = walk->world;
    struct claim *claim;

    if (world->claim_count > 0) {
        claim = world_find(world, world->claim_count - 1 - below(walk, 4) % world->claim_count);
        if (claim != NULL) {
            world_cancel(claim);
        }
    }
}

static void
act_on_network(struct walk *walk)
{
    struct world *world = walk->world;
    struct yb_sim_host *a = world->nodes[below(walk, world->options.node_count)].host;
    struct yb_sim_host *b = world->nodes[below(walk, world->options.node_count)].host;

    switch (below(walk, 7)) {
    case 0: (void)yb_sim_cut(world->sim, a, NULL); break;
    case 1: (void)yb_sim_cut(world->sim, a, b); break;
    case 2: (void)yb_sim_black_hole(world->sim, a, NULL); break;
    case 3: yb_sim_block(world->sim, a, b, true); break;
    case 4: yb_sim_partition(world->sim, &a, 1); break;
    default: draw_link(walk); break;
    }
}

static void
act_on_process(struct walk *walk)
{
    struct world *world = walk->world;
    uint32_t number = below(walk, world->options.node_count);
    struct node *node = &world->nodes[number];

    if (node->engine == NULL || node->busy > 0) {
        return;
    }
    switch (below(walk, 6)) {
    case 0:
        if (world->dead_count + 2 * world->options.node_count < WORLD_DEAD_MAX) {
            world_crash(world, number, (enum yb_sim_death)below(walk, 3));
        }
        break;
    case 1:
    case 2: world_stall(world, number, true); break;
    case 3: world_skip(world, number, PICK(walk, 1, 50, 2000)); break;
    default:
        if (node->stalled) {
            world_stall(world, number, false);
        }
        break;
    }
}

static void
act_lightly(struct walk *walk)
{
    uint32_t dice = below(walk, 100);

    if (dice >= walk->fault_weight) {
        if (dice > 90) {
            act_cancel(walk);
        } else {
            act_submit(walk);
        }
    } else if (below(walk, 2) == 0) {
        act_on_network(walk);
    } else {
        act_on_process(walk);
    }
}

static void
meddle(void *arg)
{
    struct walk *walk = arg;

    if (below(walk, 1000) < walk->meddle_weight) {
        act_lightly(walk);
    }
}

/* ---- what happens and may take time -------------------------------------------------------- */

static bool
can_wait(const struct node *node)
{
    return node->engine != NULL && !node->stalled;
}

static void
act_fence(struct walk *walk, uint32_t at)
{
    struct world *world = walk->world;
    uint32_t other = other_node(walk, at);
    struct yb_id identity = world->nodes[other].identity;

    if (world->dead_count > 0 && below(walk, 2) == 0) {
        identity = world->dead[below(walk, world->dead_count)];
    }
    (void)world_fence(world, at, identity, PICK(walk, 1, 100, 5000) * YB_NS_PER_MS);
}

/* Ask about a batch that is in doubt: who sent it, if he lives and still has the handle, or its
 * target. */
static void
act_on_doubt(struct walk *walk)
{
    struct world *world = walk->world;
    struct claim *claim = world->claims;
    uint64_t timeout_ns = PICK(walk, 20, 500, 5000, 30000) * YB_NS_PER_MS;

    for (uint32_t skip = below(walk, 4); claim != NULL && (!claim->doubted || skip > 0);) {
        skip -= claim->doubted;
        claim = claim->next;
    }
    if (claim == NULL) {
        return;
    }
    for (uint32_t handle = 0; handle < WORLD_HANDLES; handle++) {
        if (claim->from_life == claim->from->life && can_wait(claim->from) &&
            claim->from->peers[claim->to->number][handle] == claim->peer && below(walk, 4) > 0) {
            (void)world_drain(world, claim->from->number, claim->to->number, handle, timeout_ns);
            return;
        }
    }
    if (can_wait(claim->to)) {
        (void)world_fence(world, claim->to->number, claim->identity, timeout_ns);
    }
}

static void
act_heal(struct walk *walk)
{
    struct world *world = walk->world;

    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        if (world->nodes[i].stalled) {
            world_stall(world, i, false);
        }
    }
}

static void
act_slowly(struct walk *walk)
{
    struct world *world = walk->world;
    uint32_t number = below(walk, world->options.node_count);
    struct node *node = &world->nodes[number];
    uint64_t timeout_ns = PICK(walk, 1, 20, 500, 5000) * YB_NS_PER_MS;

    if (node->engine == NULL) {
        world_start(world, number);
    }
    if (!can_wait(node)) {
        return;
    }
    switch (below(walk, 6)) {
    case 0:
    case 1:
        (void)world_drain(world, number, other_node(walk, number), below(walk, WORLD_HANDLES),
                          timeout_ns);
        break;
    case 2:
        (void)world_ask_peer(world, number, other_node(walk, number), below(walk, WORLD_HANDLES),
                             timeout_ns);
        break;
    case 3: act_fence(walk, number); break;
    case 4:
        world_reopen(world, number, other_node(walk, number), below(walk, WORLD_HANDLES));
        break;
    default:
        if (below(walk, 3) == 0 && world->dead_count + 10 < WORLD_DEAD_MAX) {
            world_stop(world, number);
        }
        break;
    }
}

/* A process dies and another takes its place at once, with the same address, port and memory. */
static void
restart(struct world *world, uint32_t number)
{
    const struct node *node = &world->nodes[number];

    if (can_wait(node) && node->busy == 0 && world->dead_count + 10 < WORLD_DEAD_MAX) {
        world_crash(world, number, YB_SIM_DEATH_RESET);
        world_start(world, number);
    }
}

/* Writes are under way when their target, or the way there, stops; then their connections are lost
 * or the writer loses patience; and what was held back comes later. */
static void
act_ambush(struct walk *walk)
{
    struct world *world = walk->world;
    uint32_t from = below(walk, world->options.node_count);
    uint32_t to = other_node(walk, from);
    struct yb_sim_host *hosts[] = {world->nodes[from].host, world->nodes[to].host};

    struct world_ask ask = {
        .from = from,
        .to = to,
        .handle = below(walk, WORLD_HANDLES),
        .op = YB_TRANSFER_WRITE,
        .items_per_cell = 1,
        .work_class = below(walk, YB_CLASS_COUNT),
    };

    ask.by_address = below(walk, 3) == 0;
    ask.whole = ask.by_address;
    for (uint32_t i = below(walk, 6); i < 8; i++) {
        ask.cells = ask.whole ? WORLD_CELLS / 2 : 1 + below(walk, 4);
        ask.timeout_ns = PICK(walk, 20, 100, 500, 30000) * YB_NS_PER_MS;
        (void)world_submit(world, &ask);
    }
    world_run_ms(world, PICK(walk, 0, 1, 2, 5, 20, 40, 100));
    switch (below(walk, 4)) {
    case 0: world_stall(world, to, true); break;
    case 1: yb_sim_block(world->sim, hosts[0], hosts[1], true); break;
    case 2: (void)yb_sim_black_hole(world->sim, hosts[0], hosts[1]); break;
    default: break;
    }
    world_run_ms(world, PICK(walk, 0, 1, 5));
    switch (below(walk, 5)) {
    case 0: act_cancel(walk); break;
    case 1: break;
    case 2: restart(world, to); break;
    default: (void)yb_sim_cut(world->sim, hosts[0], hosts[1]); break;
    }
    world_run_ms(world, PICK(walk, 0, 20, 20, 150, 600, 600, 12000, 31000));
    if (below(walk, 2) == 0) {
        act_heal(walk);
    }
    for (uint32_t i = below(walk, 4); i < 4; i++) {
        act_on_doubt(walk);
    }
    act_heal(walk);
}

static void
act(struct walk *walk)
{
    if (walk->fault_weight > 0 && below(walk, 10) == 0) {
        act_ambush(walk);
    } else if (below(walk, 4) == 0) {
        act_on_doubt(walk);
    } else if (below(walk, 8) == 0) {
        act_slowly(walk);
    } else if (below(walk, 100) < walk->fault_weight / 2) {
        act_heal(walk);
    } else {
        act_lightly(walk);
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* Everybody clears the doubt about what he sent; of the dead, and of handles that were closed, the
 * targets do. */
static void
clear_all_doubt(struct world *world)
{
    uint32_t count = world->options.node_count;

    for (uint32_t i = 0; i < count * count * WORLD_HANDLES; i++) {
        uint32_t from = i / WORLD_HANDLES / count;
        uint32_t to = i / WORLD_HANDLES % count;

        if (from != to) {
            WORLD_CHECK(world,
                        world_drain(world, from, to, i % WORLD_HANDLES, PATIENCE_NS) == YB_OK);
        }
    }
    while (world->claims != NULL) {
        const struct claim *claim = world->claims;

        WORLD_CHECK(world, claim->doubted);
        WORLD_CHECK(world,
                    world_fence(world, claim->to->number, claim->identity, PATIENCE_NS) == YB_OK);
        WORLD_CHECK(world, world->claims != claim);
    }
}

/* A large batch whose connections are all cut in the middle goes well, and is counted. */
static void
check_fresh(struct world *world, uint32_t from, uint32_t to)
{
    struct world_ask ask = {
        .from = from,
        .to = to,
        .handle = from % WORLD_HANDLES,
        .op = (from + to) % 2 == 0 ? YB_TRANSFER_READ : YB_TRANSFER_WRITE,
        .cells = WORLD_CELLS / 2,
        .items_per_cell = 2,
        .timeout_ns = PATIENCE_NS,
        .work_class = YB_CLASS_THROUGHPUT,
        .notifies = true,
    };
    const struct node *node = &world->nodes[from];
    uint64_t retries = world_retries(node);
    uint64_t ok = world->counts.ok;

    WORLD_CHECK(world, world_submit(world, &ask) != UINT32_MAX);
    for (uint32_t i = 0; i < 60000 && !world_is_sending(node); i++) {
        world_run_ms(world, 1);
    }
    WORLD_CHECK(world, world->running == 1);
    (void)yb_sim_cut(world->sim, node->host, NULL);
    WORLD_CHECK(world, world_run_until_ended(world, 60000));
    WORLD_CHECK(world, world->counts.ok == ok + 1);
    WORLD_CHECK(world, world_retries(node) > retries);
}

static void
check_all_fresh(struct world *world)
{
    struct yb_sim_link slow = yb_sim_link_default();

    slow.bytes_per_s = 5ull * 1024 * 1024;
    yb_sim_set_link(world->sim, NULL, NULL, &slow);
    for (uint32_t from = 0; from < world->options.node_count; from++) {
        for (uint32_t to = 0; to < world->options.node_count; to++) {
            if (from != to) {
                check_fresh(world, from, to);
            }
        }
    }
}

static struct outcome
run_seed(uint64_t seed, const char *repeat)
{
    struct world_options options = draw_options(seed);
    struct walk walk = {.world = world_create(&options)};
    struct world *world = walk.world;
    struct yb_sim_link calm = yb_sim_link_default();
    struct outcome outcome;
    uint32_t actions;

    world->repeat = repeat;
    world->meddle = meddle;
    world->meddle_arg = &walk;
    walk.fault_weight = PICK(&walk, 0, 10, 25, 40);
    walk.meddle_weight = PICK(&walk, 0, 5, 50);
    draw_link(&walk);
    draw_clocks(&walk);
    actions = 20 + below(&walk, 60);
    for (uint32_t i = 0; i < actions; i++) {
        act(&walk);
        world_run_ms(world, PICK(&walk, 0, 0, 0, 0, 1, 1, 5, 5, 50, 50, 11000));
        world_check(world);
    }
    world->meddle = NULL;
    yb_sim_set_link(world->sim, NULL, NULL, &calm);
    world_heal(world);
    WORLD_CHECK(world, world_run_until_ended(world, ALL_ENDED_MS));
    clear_all_doubt(world);
    check_all_fresh(world);
    outcome = (struct outcome){
        .fingerprint = yb_sim_fingerprint(world->sim),
        .digest = world->digest,
        .steps = yb_sim_step_count(world->sim),
    };
    outcome.counts = world->counts;
    for (uint32_t i = 0; i < options.node_count; i++) {
        outcome.counts.retries += world_retries(&world->nodes[i]);
    }
    world_destroy(&walk.world);
    return outcome;
}

/* ---- the program ------------------------------------------------------------------------- */

static void
print_outcome(uint64_t seed, const struct outcome *outcome)
{
    const struct world_counts *counts = &outcome->counts;

    printf("# seed %llu: fingerprint %016llx, %llu steps, %llu batches, %llu ok, %llu failed, "
           "%llu in doubt (%llu drained, %llu fenced), %llu crashes, %llu retries\n",
           (unsigned long long)seed, (unsigned long long)outcome->fingerprint,
           (unsigned long long)outcome->steps, (unsigned long long)counts->batches,
           (unsigned long long)counts->ok, (unsigned long long)counts->failed,
           (unsigned long long)counts->doubted, (unsigned long long)counts->drained,
           (unsigned long long)counts->fenced, (unsigned long long)counts->crashes,
           (unsigned long long)counts->retries);
}

static bool
run_and_judge(const char *program, uint64_t seed, bool verbose)
{
    char repeat[128];
    struct outcome outcome;

    (void)snprintf(repeat, sizeof(repeat), "%s --from %llu --seeds 1 --verbose", program,
                   (unsigned long long)seed);
    if (verbose) {
        printf("# seed %llu\n", (unsigned long long)seed);
        (void)fflush(stdout);
    }
    outcome = run_seed(seed, repeat);
    if (verbose) {
        print_outcome(seed, &outcome);
    }
    if (seed % TWICE_EVERY == 0) {
        struct outcome again = run_seed(seed, repeat);

        if (again.fingerprint != outcome.fingerprint || again.digest != outcome.digest) {
            printf("not ok 1 - seed %llu does not repeat itself\n", (unsigned long long)seed);
            return false;
        }
    }
    return true;
}

int
main(int argc, char **argv)
{
    uint64_t from = 1;
    uint64_t seeds = 200;
    bool verbose = false;

    if (!seeds_options(argc, argv, &from, &seeds, &verbose)) {
        (void)fprintf(stderr, "usage: transfer_sim [--seeds N] [--from S] [--verbose]\n");
        return 2;
    }
    printf("1..1\n");
    for (size_t i = 0; seeds > 1 && i < sizeof(regressions) / sizeof(regressions[0]); i++) {
        if (!run_and_judge(argv[0], regressions[i], verbose)) {
            return 1;
        }
    }
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        if (!run_and_judge(argv[0], seed, verbose)) {
            return 1;
        }
    }
    printf("ok 1 - seeds %llu to %llu\n", (unsigned long long)from,
           (unsigned long long)(from + seeds - 1));
    return 0;
}
