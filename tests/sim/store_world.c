/* SPDX-License-Identifier: Apache-2.0 */
#include "store_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/stripe.h"
#include "net/loop.h"
#include "store_beside.h"

#define GUARD      16u
#define GUARD_BYTE 0xa5
#define STEPS_MAX  50000000u
#define SLACK_MS   50u

static bool
concerns(const struct store_op *op, uint32_t key)
{
    bool does = op->batch.kind == YB_CLIENT_REMOVE_ALL;

    for (uint32_t i = 0; i < op->batch.count; i++) {
        does = does || op->keys[i] == key;
    }
    return does;
}

void
store_failed(const struct store_world *world, const char *what, const char *file, int line)
{
    (void)fflush(stdout);
    yb_sim_dump(world->sim, stderr);
    for (const struct store_op *op = world->ops; op != NULL; op = op->next) {
        if (world->key_failed == UINT32_MAX && op->number + 40 < world->op_count && op->done > 0) {
            continue;
        }
        if (world->key_failed != UINT32_MAX && !concerns(op, world->key_failed)) {
            continue;
        }
        (void)fprintf(stderr, "op %u client %u kind %u [%.3f, %.3f] ms done %u %s:", op->number,
                      op->client, op->batch.kind, (double)op->began_ns / 1e6,
                      (double)op->ended_ns / 1e6, op->done, yb_status_name(op->batch.status));
        for (uint32_t i = 0; i < op->batch.count; i++) {
            (void)fprintf(stderr, " k%u=%llu %s g%llx", op->keys[i],
                          (unsigned long long)op->values[i], yb_status_name(op->items[i].status),
                          (unsigned long long)op->items[i].grant);
        }
        (void)fprintf(stderr, "\n");
    }
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    (void)fprintf(stderr, "seed %llu; to repeat: %s\n", (unsigned long long)world->options.seed,
                  world->options.repeat != NULL ? world->options.repeat : "run this test again");
    abort();
}

/* ---- values --------------------------------------------------------------------------------- */

static void
value_fill(uint8_t *bytes, size_t length, uint32_t key, uint64_t value)
{
    uint64_t state = (value + 1) * 0x9e3779b97f4a7c15ull ^ ((uint64_t)key + 1) << 32;

    for (size_t i = 0; i < length; i += sizeof(state)) {
        size_t left = length - i < sizeof(state) ? length - i : sizeof(state);

        if (i == 0) { /* It names itself, so that what was read can be told. */
            memcpy(bytes, &value, left);
            continue;
        }
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + i, &state, left);
    }
}

bool
store_value_matches(const void *bytes, size_t length, uint32_t key, uint64_t value)
{
    uint8_t wanted[STORE_VALUE_MAX];

    if (length > sizeof(wanted)) {
        return false;
    }
    value_fill(wanted, length, key, value);
    return memcmp(wanted, bytes, length) == 0;
}

static uint8_t *
value_at(const struct store_op *op, uint32_t index)
{
    return op->memory + (size_t)index * (STORE_VALUE_MAX + GUARD);
}

/* What was read must be, whole, one value of its key. */
static void
judge_value(struct store_op *op, uint32_t index)
{
    struct yb_client_item *item = &op->items[index];

    STORE_CHECK(op->world, item->bytes == item->size && item->bytes >= sizeof(uint64_t));
    memcpy(&op->values[index], value_at(op, index), sizeof(uint64_t));
    STORE_CHECK(op->world, store_value_matches(value_at(op, index), item->bytes, op->keys[index],
                                               op->values[index]));
}

static void
judge_guards(const struct store_op *op)
{
    for (uint32_t i = 0; i < op->batch.count; i++) {
        const uint8_t *guard = value_at(op, i) + STORE_VALUE_MAX;

        for (uint32_t k = 0; k < GUARD; k++) {
            STORE_CHECK(op->world, guard[k] == GUARD_BYTE);
        }
    }
}

/* An operation is over, so its memory is its caller's again (RULES A3; net/call.h C2): another use
 * of it begins, which nobody may disturb or take for the values. */
static void
reuse_memory(struct store_op *op)
{
    op->reused = true;
    for (uint32_t i = 0; i < op->batch.count; i++) {
        memset(value_at(op, i), GUARD_BYTE, STORE_VALUE_MAX);
    }
}

static void
judge_reuse(const struct store_op *op)
{
    size_t bytes = (size_t)op->batch.count * (STORE_VALUE_MAX + GUARD);

    for (size_t i = 0; op->reused && i < bytes; i++) {
        STORE_CHECK(op->world, op->memory[i] == GUARD_BYTE); /* Written after the end. */
    }
}

/* ---- lives ---------------------------------------------------------------------------------- */

void
store_random(void *context, void *out, size_t bytes)
{
    struct store_life *life = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        life->random = life->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(life->random >> 56);
    }
}

static void
run_process(void *arg)
{
    yb_loop_turn(((struct store_life *)arg)->loop, YB_NEVER);
}

static void
run_jobs(struct yb_task *task)
{
    struct store_life *life =
        (struct store_life *)((uint8_t *)task - offsetof(struct store_life, task));
    struct store_op *jobs = life->jobs;

    life->jobs = NULL;
    while (jobs != NULL) {
        struct store_op *op = jobs;
        enum yb_status status;

        jobs = op->job_next;
        op->batch.deadline_ns += yb_loop_now(life->loop);
        op->began_ns = yb_sim_now_ns(life->world->sim);
        store_engine_lend(life, op);
        status = yb_stripe_submit(life->client, &op->batch);
        op->accepted = status == YB_OK;
        store_judge_began(life->world->judge, op);
        if (!op->accepted) {
            STORE_CHECK(life->world, status == YB_AGAIN || status == YB_CLOSED);
            store_engine_take_back(life, op);
            op->batch.status = status;
            op->done = 1;
            life->world->open--;
        }
    }
}

static enum yb_status
load_file(void *owner, void *bytes_out, size_t room, size_t *length_out)
{
    struct store_world *world = owner;

    if (world->file_bytes > room) {
        return YB_TOO_SMALL;
    }
    memcpy(bytes_out, world->file, world->file_bytes);
    *length_out = world->file_bytes;
    return YB_OK;
}

static enum yb_status
store_file(void *owner, const void *bytes, size_t length)
{
    struct store_world *world = owner;

    STORE_CHECK(world, length <= sizeof(world->file));
    memcpy(world->file, bytes, length);
    world->file_bytes = length;
    return YB_OK;
}

static struct yb_address_list
directory_list(const struct store_world *world)
{
    struct yb_address_list list = {.count = 1};

    yb_sim_host_address(world->roles[0].host, STORE_PORT, &list.items[0]);
    return list;
}

static const char *
tenant_of(const struct store_role *role)
{
    const char *const *tenants = role->world->options.tenants;

    return tenants != NULL ? tenants[role->number] : "default";
}

static void
make_self(struct store_life *life)
{
    static const uint8_t roles[] = {YB_WIRE_ROLE_DIRECTORY, YB_WIRE_ROLE_NODE, YB_WIRE_ROLE_CLIENT};
    struct store_role *role = life->role;

    life->self = (struct yb_hello_self){
        .identity = {{(uint8_t)(role - life->world->roles + 1), (uint8_t)role->kind}},
        .incarnation = ++role->incarnation,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = roles[role->kind],
        .tenant = role->kind == STORE_CLIENT ? tenant_of(role) : "",
        .credit_requests = 64,
        .credit_bytes = 8u << 20,
        .body_bytes_max = 1u << 20,
        .data_bytes_max = 1ull << 30,
        .ping_interval_ms = 400,
        .software = "simulated",
        .port_name = "a simulated port",
    };
}

static const struct yb_service *
make_directory(struct store_life *life)
{
    struct store_world *world = life->world;
    struct yb_directory_options options = {
        .storage = &world->storage,
        .lease_ms = world->options.lease_ms,
        .records_max = 4096,
        .writes_max = 1024,
        .events_max = 1024,
        .random = store_random,
        .random_context = life,
    };
    char why[256];

    if (world->options.tune_directory != NULL) {
        world->options.tune_directory(&options);
    }
    STORE_CHECK(world, yb_directory_create(&options, &life->directory, why, sizeof(why)) == YB_OK);
    return yb_directory_service(life->directory);
}

static enum yb_status
open_tier(struct store_role *role, uint32_t number, const struct yb_node_tier_ground *ground,
          struct yb_tier **tier_out)
{
    struct yb_memory_tier_options options = {
        .loop = ground->loop,
        .medium = role->media[number],
        .tier = role->tiers[number].kind,
        .events = ground->events,
        .owner = ground->owner,
    };
    uint64_t *times[] = {&options.store_ns, &options.sync_ns, &options.load_ns,
                         &options.recover_ns};

    for (uint32_t i = 0; i < 4; i++) {
        role->tier_random = role->tier_random * 6364136223846793005ull + 1442695040888963407ull;
        *times[i] = (role->tier_random >> 33) % (role->world->options.tier_ms + 1) * YB_NS_PER_MS;
    }
    return yb_memory_tier_create(&options, tier_out);
}

static enum yb_status
open_ssd(void *context, const struct yb_node_tier_ground *ground, struct yb_tier **tier_out)
{
    return open_tier(context, 0, ground, tier_out);
}

static enum yb_status
open_object(void *context, const struct yb_node_tier_ground *ground, struct yb_tier **tier_out)
{
    return open_tier(context, 1, ground, tier_out);
}

/* Give a node what is below its memory. */
static void
make_tiers(struct store_role *role)
{
    const struct store_options *options = &role->world->options;

    role->tiers[0] =
        (struct yb_node_tier){.kind = YB_WIRE_TIER_SSD, .open = open_ssd, .context = role};
    role->tiers[1] =
        (struct yb_node_tier){.kind = YB_WIRE_TIER_OBJECT, .open = open_object, .context = role};
    role->tier_random = options->seed * 977 + role->number;
    for (uint32_t i = 0; i < options->tiers; i++) {
        STORE_CHECK(role->world, yb_memory_medium_create(
                                     i == 1 ? options->object_bytes : options->tier_bytes,
                                     options->seed * 8 + role->number, &role->media[i]) == YB_OK);
    }
}

static const struct yb_service *
make_node(struct store_life *life)
{
    struct store_world *world = life->world;
    struct yb_node_options options = {
        .name = life->name,
        .directory = directory_list(world),
        .address = life->address,
        .host = store_machine(life->role),
        .pool_bytes = world->options.pool_bytes,
        .pool_memory = life->role->memory,
        .numa_node = UINT32_MAX,
        .policy = world->options.policy,
        .verify = world->options.verify,
        .tiers = life->role->tiers,
        .tier_count = world->options.tiers,
        .below_max = 4096,
        .write_policy = world->options.write_policy,
        .random = store_random,
        .random_context = life,
    };
    char why[256];

    if (world->options.tune_node != NULL) {
        world->options.tune_node(life->role->number, &options);
    }
    memset(life->role->memory, 0xdd, world->options.pool_bytes); /* Nothing survives. */
    if (world->options.engines || world->options.near) {
        store_engine_make(life);
        options.engine = life->engine;
        options.engine_address = life->engine_address;
    }
    STORE_CHECK(world, yb_node_create(&options, &life->node, why, sizeof(why)) == YB_OK);
    return yb_node_service(life->node);
}

static void
make_client(struct store_life *life)
{
    struct yb_client_core_options options = {
        .directory = directory_list(life->world),
        .tenant = tenant_of(life->role),
        .hints_max = 64,
        .calls_max = 16,
        .members_ms = 100,
        .part_bytes = life->world->options.part_bytes,
        .random = store_random,
        .random_context = life,
    };

    if (life->world->options.near) {
        store_engine_make(life);
        options.host = store_machine(life->role);
        options.engine = life->engine;
        options.engine_address = life->engine_address;
        options.near_bytes_min = 1;
    }
    if (life->world->options.tune_client != NULL) {
        life->world->options.tune_client(life->role->number, &options);
    }
    STORE_CHECK(life->world, yb_client_core_create(&options, life->net, &life->client) == YB_OK);
}

static void
make_net(struct store_life *life, const struct yb_service *service)
{
    struct yb_net_options options = {
        .loop = life->loop,
        .self = &life->self,
        .service = service,
        .replay = life->replay,
        .random = store_random,
        .random_context = life,
    };

    yb_net_limits_default(&options.limits);
    options.limits.handshake_timeout_ns = 500 * YB_NS_PER_MS;
    options.limits.connect_timeout_ns = 500 * YB_NS_PER_MS;
    options.limits.frame_timeout_ns = 1000 * YB_NS_PER_MS;
    options.limits.idle_ping_ns = 400 * YB_NS_PER_MS;
    STORE_CHECK(life->world, yb_net_create(&options, &life->net) == YB_OK);
}

static void
make_server(struct store_life *life)
{
    struct yb_server_options options = {
        .insecure = true,
        .connections_max = 256,
        .unauthenticated_max = 64,
        .nets = &life->net,
        .net_count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    yb_sim_host_address(life->role->host, STORE_PORT, &options.address);
    STORE_CHECK(life->world, yb_server_create(&options, &life->server, why) == YB_OK);
}

void
store_start(struct store_role *role)
{
    struct store_life *life = calloc(1, sizeof(*life));
    struct yb_loop_options options = {0};
    const struct yb_service *service = NULL;
    struct yb_address address;
    struct store_world *world;

    if (life == NULL) {
        abort();
    }
    world = role->world;
    STORE_CHECK(world, role->life == NULL);
    if (role->silent) {
        yb_sim_host_restart(role->host);
        role->silent = false;
    }
    life->world = world;
    life->role = role;
    life->random =
        world->options.seed * 1024 + (uint64_t)(role - world->roles) * 32 + role->incarnation + 1;
    life->task.run = run_jobs;
    (void)snprintf(life->name, sizeof(life->name), "node-%u", role->number);
    yb_sim_host_address(role->host, STORE_PORT, &address);
    yb_address_format(&address, life->address);
    life->process = yb_sim_process_create(role->host, "process", run_process, life);
    options.io = yb_sim_process_io(life->process);
    options.clock = yb_sim_process_clock(life->process);
    STORE_CHECK(world, yb_loop_create(&options, &life->loop) == YB_OK);
    STORE_CHECK(world, yb_replay_create(1024, 4u << 20, &life->replay) == YB_OK);
    make_self(life);
    role->life = life;
    service = role->kind == STORE_DIRECTORY ? make_directory(life)
              : role->kind == STORE_NODE    ? make_node(life)
                                            : NULL;
    make_net(life, service);
    if (role->kind == STORE_CLIENT) {
        make_client(life);
        return;
    }
    make_server(life);
    if (role->kind == STORE_DIRECTORY) {
        STORE_CHECK(world, yb_directory_start(life->directory, life->net) == YB_OK);
    } else {
        STORE_CHECK(world, yb_node_start(life->node, life->net, life->net) == YB_OK);
    }
}

/* Whether everything of a life that must come to rest has. */
static bool
at_rest(const struct store_life *life)
{
    return (life->directory == NULL || yb_directory_idle(life->directory)) &&
           (life->node == NULL || yb_node_idle(life->node)) &&
           (life->client == NULL || yb_client_core_idle(life->client)) && yb_net_idle(life->net);
}

/* Tear down a life whose process is gone for everybody else. */
static void
bury(struct store_life *life)
{
    struct store_world *world = life->world;
    uint32_t turns = 0;

    life->over = true;
    life->role->life = NULL;
    yb_loop_undefer(life->loop, &life->task);
    while (life->jobs != NULL) { /* Never submitted. */
        life->jobs->batch.status = YB_CLOSED;
        life->jobs->done = 1;
        life->jobs = life->jobs->job_next;
        world->open--;
    }
    if (life->client != NULL) {
        yb_client_core_stop(life->client);
    }
    if (life->node != NULL) {
        yb_node_stop(life->node);
    }
    if (life->directory != NULL) {
        yb_directory_stop(life->directory);
    }
    if (life->server != NULL) {
        yb_server_stop(life->server);
    }
    yb_net_shut(life->net);
    do {
        STORE_CHECK(world, turns++ < 1000);
        store_engine_turn(life);
        yb_loop_turn(life->loop, 0);
    } while (!at_rest(life));
    yb_loop_turn(life->loop, 0);
    yb_client_core_destroy(&life->client);
    yb_node_destroy(&life->node);
    if (life->directory != NULL) {
        yb_directory_destroy(&life->directory);
    }
    if (life->server != NULL) {
        yb_server_destroy(&life->server);
    }
    yb_net_destroy(&life->net);
    yb_replay_destroy(&life->replay);
    store_engine_destroy(life);
    yb_loop_destroy(&life->loop);
    yb_sim_process_destroy(&life->process);
    free(life);
}

void
store_crash(struct store_role *role, enum yb_sim_death how)
{
    STORE_CHECK(role->world, role->life != NULL);
    if (role->stalled) {
        store_stall(role, false);
    }
    for (uint32_t i = 0; i < YB_NODE_TIERS_MAX && role->media[i] != NULL; i++) {
        yb_memory_medium_crash(role->media[i]);
    }
    if (how == YB_SIM_DEATH_SILENT) {
        yb_sim_host_crash(role->host, how);
        role->silent = true;
    } else {
        yb_sim_process_crash(role->life->process, how);
    }
    store_engine_crash(role->life, how);
    bury(role->life);
}

void
store_stall(struct store_role *role, bool stalled)
{
    yb_sim_host_stall(role->host, stalled);
    role->stalled = stalled;
    role->resumed_ns = yb_sim_now_ns(role->world->sim);
}

void
store_heal(struct store_world *world)
{
    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < world->role_count; i++) {
        struct store_role *role = &world->roles[i];

        if (role->stalled) {
            store_stall(role, false);
        }
        if (role->life == NULL) {
            store_start(role);
        }
    }
}

/* ---- the world ------------------------------------------------------------------------------ */

struct store_role *
store_directory(struct store_world *world)
{
    return &world->roles[0];
}

struct store_role *
store_node(struct store_world *world, uint32_t number)
{
    return &world->roles[1 + number];
}

struct store_role *
store_client(struct store_world *world, uint32_t number)
{
    return &world->roles[1 + world->options.nodes + number];
}

static void
add_role(struct store_world *world, enum store_kind kind, uint32_t number)
{
    struct store_role *role = &world->roles[world->role_count];
    char name[32], ip[32];

    (void)snprintf(name, sizeof(name), "%s-%u",
                   kind == STORE_DIRECTORY ? "directory"
                   : kind == STORE_NODE    ? "node"
                                           : "client",
                   number);
    (void)snprintf(ip, sizeof(ip), "10.0.0.%u", world->role_count + 1);
    role->world = world;
    role->kind = kind;
    role->number = number;
    role->host = yb_sim_host_create(world->sim, name, ip);
    store_beside_make(role);
    if (kind == STORE_NODE) {
        role->memory = malloc(world->options.pool_bytes);
        STORE_CHECK(world, role->memory != NULL);
        make_tiers(role);
    }
    world->role_count++;
}

struct store_world *
store_world_create(const struct store_options *options)
{
    struct store_world *world = calloc(1, sizeof(*world));

    if (world == NULL) {
        abort();
    }
    world->options = *options;
    world->options.lease_ms = options->lease_ms != 0 ? options->lease_ms : 400;
    world->options.pool_bytes = options->pool_bytes != 0 ? options->pool_bytes : 1u << 20;
    world->options.tier_bytes = options->tier_bytes != 0 ? options->tier_bytes : 1u << 20;
    world->options.object_bytes =
        options->object_bytes != 0 ? options->object_bytes : world->options.tier_bytes;
    world->options.tier_ms = options->tier_ms != 0 ? options->tier_ms : 2;
    world->storage = (struct yb_directory_storage){load_file, store_file, world};
    world->sim = yb_sim_create(options->seed);
    world->judge = store_judge_create(world);
    world->key_failed = UINT32_MAX;
    add_role(world, STORE_DIRECTORY, 0);
    for (uint32_t i = 0; i < options->nodes; i++) {
        add_role(world, STORE_NODE, i);
    }
    for (uint32_t i = 0; i < options->clients; i++) {
        add_role(world, STORE_CLIENT, i);
    }
    for (uint32_t i = 0; i < world->role_count; i++) {
        if (i == 0 || i > options->nodes || i <= options->nodes - options->late) {
            store_start(&world->roles[i]);
        }
    }
    return world;
}

void
store_world_destroy(struct store_world **world_in)
{
    struct store_world *world = *world_in;

    for (uint32_t i = world->role_count; i > 0; i--) {
        struct store_role *role = &world->roles[i - 1];

        if (role->life != NULL) {
            store_crash(role, YB_SIM_DEATH_FLUSH);
        }
        free(role->memory);
        for (uint32_t tier = 0; tier < YB_NODE_TIERS_MAX; tier++) {
            yb_memory_medium_destroy(&role->media[tier]);
        }
    }
    STORE_CHECK(world, world->open == 0);
    while (world->ops != NULL) {
        struct store_op *op = world->ops;

        judge_guards(op);
        judge_reuse(op);
        world->ops = op->next;
        free(op->memory);
        free(op);
    }
    store_judge_destroy(&world->judge);
    yb_sim_destroy(&world->sim);
    free(world);
    *world_in = NULL;
}

void
store_check(struct store_world *world)
{
    store_judge_check(world->judge);
}

void
store_run_ms(struct store_world *world, uint64_t ms)
{
    uint64_t until_ns = yb_sim_now_ns(world->sim) + ms * YB_NS_PER_MS;

    STORE_CHECK(world,
                yb_sim_run_until(world->sim, NULL, NULL, until_ns, STEPS_MAX) != YB_SIM_STEP_LIMIT);
    store_check(world);
}

bool
store_settle(struct store_world *world, uint64_t ms)
{
    for (uint64_t passed = 0; passed < ms && world->open > 0; passed += 5) {
        store_run_ms(world, 5);
    }
    return world->open == 0;
}

bool
store_ready(struct store_world *world)
{
    for (uint32_t i = 0; i < world->role_count; i++) {
        struct store_life *life = world->roles[i].life;
        struct yb_node_info info;

        if (life == NULL) {
            return false;
        }
        if (life->directory != NULL && yb_directory_rebuilding(life->directory)) {
            return false;
        }
        if (life->client != NULL && !yb_client_core_ready(life->client)) {
            return false;
        }
        if (life->node != NULL) {
            yb_node_info(life->node, &info);
            if (info.incarnation == 0) {
                return false;
            }
        }
    }
    return true;
}

/* ---- operations ----------------------------------------------------------------------------- */

static bool
reads(uint8_t kind)
{
    return kind == YB_CLIENT_GET || kind == YB_CLIENT_FETCH;
}

static void
on_looked(struct yb_client_batch *batch)
{
    struct store_op *op = batch->owner;

    STORE_CHECK(op->world, !op->looked && op->done == 0);
    op->looked = true;
}

static void
on_ended(struct yb_client_batch *batch, uint32_t index)
{
    struct store_op *op = batch->owner;

    STORE_CHECK(op->world, index < batch->count && op->done == 0 && !op->has_ended[index]);
    op->has_ended[index] = true;
}

static void
on_done(struct yb_client_batch *batch)
{
    struct store_op *op = batch->owner;
    struct store_world *world = op->world;

    STORE_CHECK(world, op->accepted && op->done == 0);
    op->done = 1;
    op->ended_ns = yb_sim_now_ns(world->sim);
    world->open--;
    for (uint32_t i = 0; i < batch->count; i++) {
        STORE_CHECK(world, op->items[i].status != YB_IN_PROGRESS ||
                               batch->kind == YB_CLIENT_EXIST || batch->kind == YB_CLIENT_PUT);
        if (reads(batch->kind) && op->items[i].status == YB_OK) {
            judge_value(op, i);
        }
    }
    judge_guards(op);
    op->orphan = op->life->over;
    store_engine_take_back(op->life, op);
    store_judge_ended(world->judge, op);
    reuse_memory(op);
}

struct store_op *
store_op(struct store_world *world, uint32_t client, uint8_t kind, const uint32_t *keys,
         uint32_t count, uint32_t deadline_ms)
{
    struct store_op *op = calloc(1, sizeof(*op));

    STORE_CHECK(world, op != NULL && count <= STORE_BATCH_MAX);
    op->memory_bytes = (count + 1) * (size_t)(STORE_VALUE_MAX + GUARD);
    op->memory = malloc(op->memory_bytes);
    STORE_CHECK(world, op->memory != NULL);
    memset(op->memory, GUARD_BYTE, op->memory_bytes);
    op->world = world;
    op->client = client;
    op->number = world->op_count++;
    op->next = world->ops;
    world->ops = op;
    op->batch = (struct yb_client_batch){
        .kind = kind,
        .work_class = YB_CLASS_FIRST_TOKEN,
        .deadline_ns = deadline_ms * YB_NS_PER_MS, /* From when it is submitted. */
        .items = op->items,
        .count = count,
        .looked = on_looked,
        .ended = on_ended,
        .done = on_done,
        .owner = op,
    };
    for (uint32_t i = 0; i < count; i++) {
        op->keys[i] = keys[i];
        world->key_count = keys[i] >= world->key_count ? keys[i] + 1 : world->key_count;
        op->iov[i] = (struct iovec){.iov_base = value_at(op, i), .iov_len = STORE_VALUE_MAX};
        (void)snprintf(op->names[i], sizeof(op->names[i]), "key-%u", keys[i]);
        op->items[i].key = op->names[i];
        op->items[i].key_bytes = (uint32_t)strlen(op->names[i]);
        op->items[i].iov = &op->iov[i];
        op->items[i].iov_count = kind == YB_CLIENT_PUT || reads(kind) ? 1 : 0;
    }
    return op;
}

void
store_value(struct store_op *op, uint32_t index, uint64_t value, size_t bytes)
{
    STORE_CHECK(op->world, bytes >= sizeof(value) && bytes <= STORE_VALUE_MAX);
    op->values[index] = value;
    op->iov[index].iov_len = bytes;
    value_fill(value_at(op, index), bytes, op->keys[index], value);
}

void
store_submit(struct store_op *op)
{
    struct store_life *life = store_client(op->world, op->client)->life;

    op->world->open++;
    if (life == NULL) {
        op->batch.status = YB_CLOSED;
        op->done = 1;
        op->world->open--;
        return;
    }
    op->life = life;
    op->job_next = life->jobs;
    life->jobs = op;
    yb_loop_defer(life->loop, &life->task);
    yb_io_wake(yb_loop_io(life->loop));
}

/* Submit and await; the status of the one key. */
static enum yb_status
run_one(struct store_op *op)
{
    store_submit(op);
    STORE_CHECK(op->world, store_settle(op->world, op->batch.deadline_ns / YB_NS_PER_MS + 60000));
    return op->batch.status != YB_OK ? op->batch.status : op->items[0].status;
}

enum yb_status
store_put(struct store_world *world, uint32_t client, uint32_t key, uint64_t value, bool replace)
{
    struct store_op *op = store_op(world, client, YB_CLIENT_PUT, &key, 1, 3000);

    store_value(op, 0, value, 64 + value % 4000);
    op->batch.put.replace = replace;
    return run_one(op);
}

enum yb_status
store_get(struct store_world *world, uint32_t client, uint32_t key, uint64_t *value_out)
{
    struct store_op *op = store_op(world, client, YB_CLIENT_GET, &key, 1, 3000);
    enum yb_status status = run_one(op);

    if (status == YB_OK) {
        *value_out = op->values[0];
    }
    return status;
}

enum yb_status
store_exist(struct store_world *world, uint32_t client, uint32_t key)
{
    return run_one(store_op(world, client, YB_CLIENT_EXIST, &key, 1, 3000));
}

enum yb_status
store_remove(struct store_world *world, uint32_t client, uint32_t key)
{
    return run_one(store_op(world, client, YB_CLIENT_REMOVE, &key, 1, 3000));
}
