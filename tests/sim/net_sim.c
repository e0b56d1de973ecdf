/* SPDX-License-Identifier: Apache-2.0
 *
 * Goal: whatever happens to hosts, processes and the network between them, callers learn the
 *   truth, nothing is applied twice, and once the faults are over everything works again.
 * Method: for each seed a cluster, a network and limits are drawn; then random calls meet random
 *   faults; then all is healed, every call must end and a fresh call on each lane must succeed.
 *   The rules of net_world.h are checked all the time.
 *
 * Usage: net_sim [--seeds N] [--from S] [--verbose]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net_world.h"
#include "seeds.h"

#define ALL_ENDED_MS 30000u
#define FRESH_MS     30000u
#define TWICE_EVERY  20u /* Each so many seeds is run twice: it must repeat itself. */

struct outcome {
    uint64_t fingerprint;
    uint64_t digest;
    uint64_t steps;
    uint32_t calls;
    uint32_t answered;
    uint32_t doubted;
};

struct walk {
    struct world *world;
    uint32_t fault_weight; /* Of 100 actions. */
    bool burst;            /* Calls go where the last one went ... */
    uint32_t burst_from;
    struct world_ask burst_ask; /* ... and behind it, on the same lane. */
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
    static const uint32_t requests[] = {1, 1, 2, 4, 16, 64};
    static const uint32_t bytes[] = {400, 4096, 65536, 1024 * 1024};
    static const uint32_t committed[] = {1, 16384, 262144};
    static const uint32_t waiting[] = {2, 64, 4096};
    static const uint32_t served[] = {2, 16, 1024};
    struct world_options options = world_options_default(seed);
    uint64_t state = seed * 2862933555777941757ull + 3037000493ull;

    (void)draw(&state, 2);
    options.node_count = 2 + draw(&state, 3);
    options.server_count = 1 + draw(&state, options.node_count);
    options.credit_requests = requests[draw(&state, 6)];
    options.credit_bytes = bytes[draw(&state, 4)];
    options.replay_records = draw(&state, 4) == 0 ? 32 : 4096;
    options.limits.committed_bytes_max = committed[draw(&state, 3)];
    options.limits.calls_waiting_max = waiting[draw(&state, 3)];
    options.limits.requests_max = served[draw(&state, 3)];
    return options;
}

static void
draw_link(struct walk *walk)
{
    struct yb_sim_link link = yb_sim_link_default();

    if (below(walk, 3) == 0) {
        link = yb_sim_link_rough();
    }
    if (below(walk, 3) == 0) {
        link.bytes_per_s = (uint64_t)PICK(walk, 1, 5, 50) * 1024 * 1024;
    }
    if (below(walk, 2) == 0) {
        link.window_bytes = PICK(walk, 2048, 20000, 100000);
    }
    link.reset_drops_unread = below(walk, 2) == 0;
    link.close_unread_resets = below(walk, 2) == 0;
    link.pieces_random = below(walk, 2) == 0;
    link.cut_ppm = PICK(walk, 0, 0, 200, 3000);
    link.black_hole_ppm = PICK(walk, 0, 0, 100, 1000);
    link.connect_silent_ppm = PICK(walk, 0, 0, 20000);
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

/* ---- what happens ------------------------------------------------------------------------ */

static uint32_t
other_server(struct walk *walk, uint32_t from)
{
    uint32_t count = walk->world->options.server_count;
    uint32_t to = below(walk, count);

    if (to != from) {
        return to;
    }
    return count > 1 ? (to + 1) % count : UINT32_MAX;
}

static void
act_call(struct walk *walk)
{
    static const enum world_kind kinds[] = {WORLD_ADD,  WORLD_ADD,   WORLD_GET,
                                            WORLD_READ, WORLD_WRITE, WORLD_DIGEST};
    struct world *world = walk->world;
    uint32_t from = below(walk, world->options.node_count);
    struct world_ask ask = {.to = other_server(walk, from)};

    if (walk->burst) {
        from = walk->burst_from;
        ask.to = walk->burst_ask.to;
    }
    if (ask.to == UINT32_MAX || world->nodes[from].life == NULL) {
        return;
    }
    ask.kind = kinds[below(walk, 6)];
    ask.lane = below(walk, 2) == 0 ? YB_WIRE_LANE_CONTROL : YB_WIRE_LANE_BULK;
    ask.class = (enum yb_class)below(walk, YB_CLASS_COUNT);
    ask.key = below(walk, WORLD_KEY_COUNT);
    ask.body_bytes = PICK(walk, 0, 0, 0, 100, 5000, 40000);
    ask.data_bytes = below(walk, PICK(walk, 2, 100, 9000, 9000, 200 * 1024));
    ask.deadline_ms = PICK(walk, 1, 3, 20, 100, 400, 1500, 3000, 0);
    if (ask.deadline_ms == 0 && world->options.replay_records < 100) {
        ask.deadline_ms = 3000; /* A full memory stays full for longer than this test waits. */
    }
    ask.delay_us = PICK(walk, 0, 0, 0, 200, 5000, 50000, 700000);
    ask.fail_fast = below(walk, 4) == 0;
    ask.says_again = below(walk, 8) == 0;
    ask.refuses = below(walk, 8) == 0;
    ask.reply_too_small = below(walk, 16) == 0;
    if (walk->burst) {
        ask.lane = walk->burst_ask.lane;
        ask.class = walk->burst_ask.class;
    }
    walk->burst_from = from;
    walk->burst_ask = ask;
    if (ask.kind == WORLD_ADD && below(walk, 8) == 0) {
        const struct world_call *first = world->calls[below(walk, world->call_count + 1) / 2];

        if (first != NULL && first->ask.kind == WORLD_ADD && first->ask.to == ask.to &&
            first->life == world->nodes[from].life) {
            ask.same_as = first;
        }
    }
    (void)world_call(world, from, &ask);
}

static void
act_cancel(struct walk *walk)
{
    struct world *world = walk->world;

    for (uint32_t tries = 0; tries < 8 && world->call_count > 0; tries++) {
        struct world_call *call = world->calls[below(walk, world->call_count)];

        if (call->life != NULL && !world_is_done(call)) {
            world_cancel(call);
            return;
        }
    }
}

static void
act_on_network(struct walk *walk)
{
    struct world *world = walk->world;
    struct yb_sim_host *a = world->nodes[below(walk, world->options.node_count)].host;
    struct yb_sim_host *b = world->nodes[below(walk, world->options.node_count)].host;

    switch (below(walk, 6)) {
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
    struct world_node *node = &world->nodes[number];

    if (node->life == NULL) {
        if (world->life_count + 2 * world->options.node_count < WORLD_LIVES_MAX) {
            world_start(world, number);
        }
        return;
    }
    switch (below(walk, 6)) {
    case 0: world_crash(world, number, (enum yb_sim_death)below(walk, 3)); break;
    case 1: world_stall(world, number, true); break;
    case 2: world_skip(world, number, PICK(walk, 1, 50, 2000)); break;
    case 3: world_drain(world, number); break;
    default:
        if (node->life->draining) {
            world_stop(world, number);
        } else if (node->stalled) {
            world_stall(world, number, false);
        }
        break;
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
act(struct walk *walk)
{
    uint32_t dice = below(walk, 100);

    if (dice < walk->fault_weight) {
        switch (below(walk, 3)) {
        case 0: act_on_network(walk); break;
        case 1: act_on_process(walk); break;
        default: act_heal(walk); break;
        }
    } else if (dice > 92) {
        act_cancel(walk);
    } else {
        uint32_t count = PICK(walk, 1, 1, 2, 8, 20);
        bool together = below(walk, 2) == 0;

        for (uint32_t i = 0; i < count; i++) {
            walk->burst = together && i > 0 && walk->burst_ask.kind != 0;
            act_call(walk);
        }
    }
}

/* ---- the end ----------------------------------------------------------------------------- */

/* With every fault healed, each lane between any two nodes must work. */
static void
check_fresh_calls(struct world *world)
{
    static const enum world_kind kinds[] = {WORLD_GET, WORLD_READ};

    for (uint32_t from = 0; from < world->options.node_count; from++) {
        for (uint32_t i = 0; i < world->options.server_count * 2 * YB_CLASS_COUNT; i++) {
            struct world_ask ask = {
                .to = i / (2 * YB_CLASS_COUNT),
                .kind = kinds[i % 2],
                .lane = i % 2 == 0 ? YB_WIRE_LANE_CONTROL : YB_WIRE_LANE_BULK,
                .class = (enum yb_class)(i / 2 % YB_CLASS_COUNT),
                .data_bytes = 10000,
                .deadline_ms = FRESH_MS,
            };

            if (ask.to != from) {
                const struct world_call *call = world_call_and_wait(world, from, &ask);

                WORLD_CHECK(world, call->call.answered && call->call.status == YB_OK);
            }
        }
    }
}

static struct outcome
count_outcome(struct world *world)
{
    struct outcome outcome = {
        .fingerprint = yb_sim_fingerprint(world->sim),
        .digest = world->digest,
        .steps = yb_sim_step_count(world->sim),
        .calls = world->call_count,
    };

    for (uint32_t i = 0; i < world->call_count; i++) {
        const struct yb_call *call = &world->calls[i]->call;

        outcome.answered += world->calls[i]->accepted && call->answered ? 1 : 0;
        outcome.doubted += world->calls[i]->accepted && call->status == YB_IN_DOUBT ? 1 : 0;
    }
    return outcome;
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
    walk.fault_weight = PICK(&walk, 0, 5, 20, 40);
    draw_link(&walk);
    draw_clocks(&walk);
    actions = 20 + below(&walk, 80);
    for (uint32_t i = 0; i < actions; i++) {
        act(&walk);
        world_run_ms(world, PICK(&walk, 0, 1, 2, 10, 100));
    }
    yb_sim_set_link(world->sim, NULL, NULL, &calm);
    world_heal(world);
    WORLD_CHECK(world, world_run_until_done(world, ALL_ENDED_MS));
    world_run_ms(world, 2000); /* Services that answer late do so now. */
    check_fresh_calls(world);
    world_check_quiet(world);
    outcome = count_outcome(world);
    world_destroy(&walk.world);
    return outcome;
}

/* ---- the program ------------------------------------------------------------------------- */

int
main(int argc, char **argv)
{
    uint64_t from = 1;
    uint64_t seeds = 200;
    bool verbose = false;

    if (!seeds_options(argc, argv, &from, &seeds, &verbose)) {
        (void)fprintf(stderr, "usage: net_sim [--seeds N] [--from S] [--verbose]\n");
        return 2;
    }
    printf("1..1\n");
    for (uint64_t seed = from; seed < from + seeds; seed++) {
        char repeat[128];
        struct outcome outcome;

        (void)snprintf(repeat, sizeof(repeat), "%s --from %llu --seeds 1 --verbose", argv[0],
                       (unsigned long long)seed);
        if (verbose) {
            printf("# seed %llu\n", (unsigned long long)seed);
            (void)fflush(stdout);
        }
        outcome = run_seed(seed, repeat);
        if (verbose) {
            printf("# seed %llu: fingerprint %016llx, %llu steps, %u calls, %u answered, "
                   "%u in doubt\n",
                   (unsigned long long)seed, (unsigned long long)outcome.fingerprint,
                   (unsigned long long)outcome.steps, outcome.calls, outcome.answered,
                   outcome.doubted);
        }
        if (seed % TWICE_EVERY == 0) {
            struct outcome again = run_seed(seed, repeat);

            if (again.fingerprint != outcome.fingerprint || again.digest != outcome.digest) {
                printf("not ok 1 - seed %llu does not repeat itself\n", (unsigned long long)seed);
                return 1;
            }
        }
    }
    printf("ok 1 - net keeps its promises for %llu seeds from %llu\n", (unsigned long long)seeds,
           (unsigned long long)from);
    return 0;
}
