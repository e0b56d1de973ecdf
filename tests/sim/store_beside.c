/* SPDX-License-Identifier: Apache-2.0 */
#include "store_beside.h"

#include <stdio.h>

#include "net/loop.h"
#include "transfer/engine_internal.h"

/* ---- machines ------------------------------------------------------------------------------- */

/* The node whose machine a role is on; NULL: it has one of its own. */
static struct store_role *
neighbour(const struct store_role *role)
{
    struct store_world *world = role->world;

    if (role->kind == STORE_DIRECTORY || (role->kind == STORE_CLIENT && !world->options.near)) {
        return NULL;
    }
    return store_node(world, role->number % world->options.nodes);
}

struct yb_id
store_machine(const struct store_role *role)
{
    return (struct yb_id){{(uint8_t)(neighbour(role)->number + 1), 0x77}};
}

void
store_beside_make(struct store_role *role)
{
    const struct yb_sim_link calm = yb_sim_link_default();
    char name[32], ip[32];

    if (!role->world->options.near || role->kind == STORE_DIRECTORY) {
        return;
    }
    if (role->kind == STORE_NODE) {
        (void)snprintf(name, sizeof(name), "pool-%u", role->number);
        (void)snprintf(ip, sizeof(ip), "10.0.1.%u", role->number + 1);
        role->beside = yb_sim_host_create(role->world->sim, name, ip);
    } else {
        store_near_link(role, &calm);
    }
}

void
store_near_link(struct store_role *client, const struct yb_sim_link *link)
{
    yb_sim_set_link(client->world->sim, client->host, neighbour(client)->beside, link);
}

void
store_drift(struct store_role *role, int32_t ppm)
{
    struct store_world *world = role->world;
    const struct store_role *node = neighbour(role);

    yb_sim_host_set_drift(role->host, ppm);
    for (uint32_t i = 0; node != NULL && i < world->role_count; i++) {
        if (neighbour(&world->roles[i]) == node) {
            yb_sim_host_set_drift(world->roles[i].host, ppm);
        }
    }
}

void
store_skip(struct store_role *role, uint64_t ns)
{
    struct store_world *world = role->world;
    const struct store_role *node = neighbour(role);

    for (uint32_t i = 0; i < world->role_count; i++) {
        struct store_role *other = &world->roles[i];

        if (other == role || (node != NULL && neighbour(other) == node)) {
            yb_sim_host_skip(other->host, ns);
            other->resumed_ns = yb_sim_now_ns(world->sim);
        }
    }
}

/* ---- engines -------------------------------------------------------------------------------- */

static struct yb_sim_host *
host_of(const struct store_life *life)
{
    return life->role->beside != NULL ? life->role->beside : life->role->host;
}

static void
run_engine(void *arg)
{
    struct store_life *life = arg;

    if (life->engine_loop != NULL) {
        yb_loop_turn(life->engine_loop, YB_NEVER);
    }
}

/* What an engine does in place of sleeping: only its own turn is waited for. */
static void
wait_for_engine(void *driver)
{
    struct store_life *life = driver;

    yb_loop_turn(life->engine_loop, 0);
}

void
store_engine_make(struct store_life *life)
{
    struct yb_sim_host *host = host_of(life);
    struct yb_io *io;
    char why[256];
    struct yb_address address;
    struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .listen = life->engine_address,
        .insecure = true,
        .workers = 1,
        .paths = YB_TRANSFER_PATH_TCP,
        .streams = 1,
        .regions_max = 256,
        .batches_max = 16,
    };
    struct yb_transfer_ground ground = {
        .clock = yb_sim_host_clock(host),
        .random = store_random,
        .random_context = life,
        .identity = life->self.identity,
        .ios = &io,
        .wait = wait_for_engine,
        .driver = life,
        .near = life->world->options.near,
    };

    yb_sim_host_address(host, STORE_PORT + 1, &address);
    yb_address_format(&address, life->engine_address);
    life->engine_process = yb_sim_process_create(host, "engine", run_engine, life);
    io = yb_sim_process_io(life->engine_process);
    STORE_CHECK(life->world,
                yb_transfer_create_on(&ground, &options, &life->engine, why, sizeof(why)) == YB_OK);
    life->engine_loop = life->engine->workers[0].loop;
}

void
store_engine_lend(struct store_life *life, struct store_op *op)
{
    const struct yb_transfer_memory memory = {
        .struct_bytes = sizeof(memory),
        .access = YB_TRANSFER_MAY_READ,
    };

    if (life->engine != NULL && op->batch.kind == YB_CLIENT_PUT) {
        STORE_CHECK(life->world, yb_transfer_register(life->engine, op->memory, op->memory_bytes,
                                                      &memory, NULL) == YB_OK);
    }
}

void
store_engine_take_back(struct store_life *life, struct store_op *op)
{
    enum yb_status status = YB_OK;

    if (life->engine != NULL && op->batch.kind == YB_CLIENT_PUT) {
        status = yb_transfer_unregister(life->engine, op->memory, 0);
    }
    /* BUSY: a node still reads, and finds no ticket behind it. The region ends with the engine. */
    STORE_CHECK(life->world, status == YB_OK || status == YB_BUSY);
}

void
store_engine_turn(struct store_life *life)
{
    if (life->engine_loop != NULL) {
        yb_sim_host_skip(host_of(life), YB_NS_PER_MS); /* Timers that are due at once are soon. */
        yb_loop_turn(life->engine_loop, 0);
    }
}

void
store_engine_crash(struct store_life *life, enum yb_sim_death how)
{
    bool alone = life->role->beside != NULL;

    if (life->engine != NULL && (alone || how != YB_SIM_DEATH_SILENT)) {
        yb_sim_process_crash(life->engine_process,
                             how == YB_SIM_DEATH_SILENT ? YB_SIM_DEATH_RESET : how);
    }
}

void
store_engine_destroy(struct store_life *life)
{
    if (life->engine != NULL) {
        yb_transfer_destroy(&life->engine);
        life->engine_loop = NULL;
        yb_sim_process_destroy(&life->engine_process);
    }
}
