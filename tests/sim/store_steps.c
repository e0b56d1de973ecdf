/* SPDX-License-Identifier: Apache-2.0 */
#include "store_steps.h"

#include <stdio.h>

#include "../unit/unit.h"

#define BACKLOG 128u

struct play {
    struct store_world *world;
    const struct store_step *step;
    uint32_t number;
    struct store_op *left[STORE_STEPS_LEFT];
};

#define STEP_CHECK(play, condition)                                                        \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            (void)fprintf(stderr, "step %u (kind %u): %s\n", (play)->number,               \
                          (unsigned)(play)->step->kind, #condition);                       \
            store_failed((play)->world, "a step has another outcome", __FILE__, __LINE__); \
        }                                                                                  \
    } while (0)

/* ---- clients -------------------------------------------------------------------------------- */

static enum yb_status
status_of(const struct store_op *op)
{
    return op->batch.status != YB_OK || op->batch.count == 0 ? op->batch.status
                                                             : op->items[0].status;
}

static struct store_op *
make_op(struct play *play)
{
    static const char *const names[][2] = {
        {NULL, NULL}, {"node-0", NULL}, {"node-1", NULL}, {"node-2", NULL}, {"node-3", NULL},
    };
    static const uint8_t kinds[] = {
        [STEP_PUT] = YB_CLIENT_PUT,       [STEP_REPLACE] = YB_CLIENT_PUT,
        [STEP_GET] = YB_CLIENT_GET,       [STEP_EXIST] = YB_CLIENT_EXIST,
        [STEP_REMOVE] = YB_CLIENT_REMOVE, [STEP_FLUSH] = YB_CLIENT_REMOVE_ALL,
        [STEP_GONE] = YB_CLIENT_GET,
    };
    const struct store_step *step = play->step;
    struct store_op *op = store_op(play->world, step->client, kinds[step->kind], &step->key,
                                   step->kind == STEP_FLUSH ? 0 : 1,
                                   step->deadline_ms > 0 ? step->deadline_ms : 5000);

    if (kinds[step->kind] == YB_CLIENT_PUT) {
        store_value(op, 0, step->value, 64 + step->value % 4000);
        op->batch.put.replace = step->kind == STEP_REPLACE;
        op->batch.put.replicas = step->replicas;
        op->batch.put.preferred = step->node > 0 ? names[step->node] : NULL;
    }
    op->batch.force = step->kind == STEP_FLUSH;
    op->batch.hold_ms = step->hold_ms;
    return op;
}

static void
do_op(struct play *play)
{
    const struct store_step *step = play->step;
    struct store_op *op = make_op(play);

    store_submit(op);
    if (step->as > 0) {
        STEP_CHECK(play, step->as < STORE_STEPS_LEFT);
        play->left[step->as] = op;
        return;
    }
    for (uint32_t passed = 0; passed < 60000 && op->done == 0; passed += 5) {
        store_run_ms(play->world, 5);
    }
    STEP_CHECK(play, op->done == 1);
    if (step->kind == STEP_GONE) {
        STEP_CHECK(play, status_of(op) != YB_OK);
        return;
    }
    STEP_CHECK(play, status_of(op) == step->wanted);
    STEP_CHECK(play,
               step->kind != STEP_GET || step->wanted != YB_OK || op->values[0] == step->value);
}

static void
await_end(struct play *play)
{
    struct store_op *op = play->left[play->step->as];
    uint32_t most = play->step->ms > 0 ? play->step->ms : 60000;

    for (uint32_t passed = 0; passed < most && op->done == 0; passed += 5) {
        store_run_ms(play->world, 5);
    }
    STEP_CHECK(play, op->done == 1);
    STEP_CHECK(play, status_of(op) == play->step->wanted);
}

/* Read as long as an operation takes: there is the one value, and then nothing. */
static void
read_meanwhile(struct play *play)
{
    const struct store_step *step = play->step;
    struct store_op *op = play->left[step->as];
    uint32_t reads = 0;

    for (uint32_t i = 0; i < 1000 && op->done == 0; i++) {
        struct store_op *read =
            store_op(play->world, step->client, YB_CLIENT_GET, &step->key, 1, 10);

        store_submit(read);
        store_run_ms(play->world, 15);
        STEP_CHECK(play, read->done == 1);
        if (read->items[0].status == YB_OK && op->done == 0) {
            STEP_CHECK(play, read->values[0] == step->value);
            reads++;
        }
    }
    STEP_CHECK(play, op->done == 1 && reads > 5);
    STEP_CHECK(play, status_of(op) == step->wanted);
}

/* ---- roles, network, time ------------------------------------------------------------------- */

static struct store_role *
role_of(struct play *play)
{
    return play->step->node == 0 ? store_directory(play->world)
                                 : store_node(play->world, play->step->node - 1);
}

static void
do_role(struct play *play)
{
    const struct store_step *step = play->step;
    struct store_role *role = role_of(play);

    switch (step->kind) {
    case STEP_CRASH:
        store_crash(role, step->silent ? YB_SIM_DEATH_SILENT : YB_SIM_DEATH_RESET);
        break;
    case STEP_START: store_start(role); break;
    case STEP_STALL: store_stall(role, true); break;
    case STEP_RESUME: store_stall(role, false); break;
    case STEP_FORGET: play->world->file_bytes = 0; break;
    case STEP_DISK: yb_memory_medium_faults(role->media[0])->stalled = step->value != 0; break;
    default: store_drain(play->world, step->node - 1, true); break; /* STEP_DRAIN */
    }
}

static void
do_network(struct play *play)
{
    struct store_world *world = play->world;
    struct yb_sim_host *directory = store_directory(world)->host;
    struct yb_sim_host *node = role_of(play)->host;
    struct yb_sim_host *client = store_client(world, play->step->client)->host;

    switch (play->step->kind) {
    case STEP_PART:
        yb_sim_block(world->sim, directory, node, true);
        yb_sim_block(world->sim, node, directory, true);
        break;
    case STEP_MUTE: yb_sim_block(world->sim, directory, node, true); break;
    case STEP_HEAR: yb_sim_block(world->sim, directory, node, false); break;
    case STEP_DEAF: yb_sim_block(world->sim, node, client, true); break;
    case STEP_LONE:
        yb_sim_block(world->sim, directory, client, true);
        yb_sim_block(world->sim, client, directory, true);
        break;
    case STEP_CUT: (void)yb_sim_cut(world->sim, directory, node); break;
    case STEP_SNAP: STEP_CHECK(play, yb_sim_cut(world->sim, client, node) > 0); break;
    case STEP_SHUT: yb_sim_host_set_backlog(node, play->step->value != 0 ? 0 : BACKLOG); break;
    default: yb_sim_heal(world->sim); break; /* STEP_HEAL */
    }
}

static void
await_ready(struct play *play)
{
    for (uint32_t passed = 0; passed < 10000 && !store_ready(play->world); passed += 10) {
        store_run_ms(play->world, 10);
    }
    STEP_CHECK(play, store_ready(play->world));
}

static void
check_holds(struct play *play)
{
    struct yb_node_info info;

    yb_node_info(role_of(play)->life->node, &info);
    STEP_CHECK(play, info.blocks == play->step->value);
}

static void
do_step(struct play *play)
{
    switch (play->step->kind) {
    case STEP_OPEN: STEP_CHECK(play, play->left[play->step->as]->done == 0); break;
    case STEP_ENDED: await_end(play); break;
    case STEP_READ: read_meanwhile(play); break;
    case STEP_CRASH:
    case STEP_START:
    case STEP_STALL:
    case STEP_RESUME:
    case STEP_FORGET:
    case STEP_DRAIN:
    case STEP_DISK: do_role(play); break;
    case STEP_PART:
    case STEP_MUTE:
    case STEP_HEAR:
    case STEP_DEAF:
    case STEP_LONE:
    case STEP_CUT:
    case STEP_SNAP:
    case STEP_SHUT:
    case STEP_HEAL: do_network(play); break;
    case STEP_WAIT: store_run_ms(play->world, play->step->ms); break;
    case STEP_READY: await_ready(play); break;
    case STEP_HOLDS: check_holds(play); break;
    default: do_op(play); break;
    }
}

void
store_steps_do(struct store_world *world, const struct store_step *steps)
{
    struct play play = {.world = world};

    for (play.step = steps; play.step->kind != STEP_STOP; play.step++) {
        play.number++;
        do_step(&play);
    }
}

/* ---- beginning and end ---------------------------------------------------------------------- */

struct store_world *
store_steps_begin(const struct store_options *options)
{
    struct store_options own = *options;
    struct store_world *world;

    own.lease_ms = STORE_STEPS_LEASE_MS;
    world = store_world_create(&own);
    for (uint32_t i = 0; i < 200 && !store_ready(world); i++) {
        store_run_ms(world, 10);
    }
    STORE_CHECK(world, store_ready(world));
    return world;
}

void
store_steps_end(struct store_world *world)
{
    store_judge_loss(world->judge);
    STORE_CHECK(world, store_judge_histories(world->judge) == 0);
    store_world_destroy(&world);
}

void
store_play(uint32_t nodes, uint32_t clients, const struct store_step *steps)
{
    struct store_options options = {
        .seed = unit_seed("store_steps"), .nodes = nodes, .clients = clients};
    struct store_world *world = store_steps_begin(&options);

    store_steps_do(world, steps);
    store_steps_end(world);
}
