/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "net/conn_internal.h"

#define PORT      7000u
#define STEPS_MAX 20000000u

/* Memory lies at the same addresses in every run, since writes may name them on the wire. */
#define MEMORY_BASE 0x7e9000000000ull
#define MEMORY_STEP (64ull << 20)

/* ---- failure -------------------------------------------------------------------------------- */

static void
describe_claim(const struct claim *claim, FILE *out)
{
    struct yb_transfer_batch_status status = {.status = YB_CLOSED};

    if (!claim->ended && claim->from->engine != NULL &&
        yb_transfer_poll(claim->from->engine, claim->batch, &status, NULL, 0) != YB_OK) {
        status.status = YB_CLOSED;
    }
    (void)fprintf(out,
                  "batch %u: %s %u -> %u (lives %u, %u), cells %u..%u, %u items%s, ended %d, "
                  "doubted %d, %s, %u of %u items\n",
                  claim->number, claim->op == YB_TRANSFER_READ ? "read" : "write",
                  claim->from->number, claim->to->number, claim->from_life, claim->to_life,
                  claim->first, claim->first + claim->count - 1, claim->item_count,
                  claim->by_address ? " by address" : "", claim->ended, claim->doubted,
                  yb_status_name(status.status), status.ended, status.items);
}

void
world_failed(const struct world *world, const char *what, const char *file, int line)
{
    (void)fflush(stdout);
    yb_sim_dump(world->sim, stderr);
    for (const struct claim *claim = world->claims; claim != NULL; claim = claim->next) {
        describe_claim(claim, stderr);
    }
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    (void)fprintf(stderr, "seed %llu; to repeat: %s\n", (unsigned long long)world->options.seed,
                  world->repeat != NULL ? world->repeat : "run this test again");
    abort();
}

/* ---- time ----------------------------------------------------------------------------------- */

static void
run_process(void *arg)
{
    const struct world_process *process = arg;
    struct yb_loop *loop = process->node->loops[process->index];

    if (loop != NULL) {
        yb_loop_turn(loop, YB_NEVER);
    }
}

/* What engines do in place of sleeping. */
static void
wait_here(void *driver)
{
    struct node *node = driver;
    struct world *world = node->world;

    if (node->dying) { /* Its processes are never run again by themselves. */
        for (uint32_t i = 0; i < world->options.workers; i++) {
            yb_loop_turn(node->loops[i], 0);
        }
        return;
    }
    WORLD_CHECK(world, yb_sim_step(world->sim));
    WORLD_CHECK(world, yb_sim_step_count(world->sim) < STEPS_MAX);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        world_take_notifications(&world->nodes[i]);
    }
    if (world->waiting == 0 && world->meddle != NULL) {
        world->waiting++;
        world->meddle(world->meddle_arg);
        world->waiting--;
    }
}

void
world_run_ms(struct world *world, uint64_t ms)
{
    uint64_t until_ns = yb_sim_now_ns(world->sim) + ms * YB_NS_PER_MS;

    WORLD_CHECK(world,
                yb_sim_run_until(world->sim, NULL, NULL, until_ns, STEPS_MAX) != YB_SIM_STEP_LIMIT);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        world_take_notifications(&world->nodes[i]);
    }
}

bool
world_run_until_ended(struct world *world, uint64_t limit_ms)
{
    for (uint64_t i = 0; i < limit_ms && world->running > 0; i += 5) {
        world_run_ms(world, 5);
    }
    return world->running == 0;
}

static void
check_cell(struct node *node, uint32_t cell)
{
    const struct claim *claim = node->cells[cell];

    if (claim == NULL || claim->op == YB_TRANSFER_READ) {
        world_expect_model(node->world, &node->area, (size_t)cell * WORLD_CELL_BYTES,
                           WORLD_CELL_BYTES);
    }
    if (claim == NULL && node->engine != NULL && node->registered && node->cell_regions &&
        cell < WORLD_READ_FROM) {
        WORLD_CHECK(node->world, world_pins(node, cell) == 0);
    }
}

/* Items of claims in doubt that are not in doubt themselves are quiet too. */
static void
check_claim(struct claim *claim)
{
    if (claim->op == YB_TRANSFER_READ || !world_target_is_same(claim)) {
        return;
    }
    world_expect_pins(claim, 0, claim->count * WORLD_CELL_BYTES);
    for (uint32_t i = 0; claim->ended && i < claim->item_count; i++) {
        if (!claim->ends[i].in_doubt) {
            world_expect_model(claim->world, &claim->to->area,
                               (size_t)claim->first * WORLD_CELL_BYTES + claim->at[i],
                               claim->at[i + 1] - claim->at[i]);
        }
    }
}

void
world_check(struct world *world)
{
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        struct node *node = &world->nodes[i];

        for (uint32_t cell = 0; cell < WORLD_CELLS; cell++) {
            check_cell(node, cell);
            if (node->local_cells[cell] == NULL) {
                world_expect_model(world, &node->local, (size_t)cell * WORLD_CELL_BYTES,
                                   WORLD_CELL_BYTES);
            }
        }
    }
    for (struct claim *claim = world->claims; claim != NULL; claim = claim->next) {
        check_claim(claim);
    }
}

/* ---- what waits ----------------------------------------------------------------------------- */

/* Mark what is in doubt now, of whom a question is about to be asked. */
static uint32_t
mark(struct world *world, struct yb_id identity, const struct node *to, yb_transfer_peer peer)
{
    uint32_t ask = ++world->asks;

    for (struct claim *claim = world->claims; claim != NULL; claim = claim->next) {
        if (claim->doubted && claim->to == to && yb_id_equal(claim->identity, identity) &&
            (peer == 0 || claim->peer == peer)) {
            claim->asked = ask;
        }
    }
    return ask;
}

static uint32_t
clear_marked(struct world *world, uint32_t ask)
{
    struct claim *next;
    uint32_t count = 0;

    for (struct claim *claim = world->claims; claim != NULL; claim = next) {
        next = claim->next;
        if (claim->doubted && claim->asked == ask) {
            world_clear_doubt(claim);
            count++;
        }
    }
    return count;
}

static void
begin_wait(struct node *node)
{
    WORLD_CHECK(node->world, node->engine != NULL && !node->stalled);
    node->busy++;
}

/* T5: a call that waits has come back by its deadline. */
static void
end_wait(struct node *node, uint64_t began_ns, uint64_t timeout_ns)
{
    node->busy--;
    if (node->disturbed_ns + WORLD_SLACK_NS < began_ns) {
        WORLD_CHECK(node->world,
                    world_now(node) <= yb_deadline_after(began_ns, timeout_ns) + WORLD_SLACK_NS);
    }
}

enum yb_status
world_drain(struct world *world, uint32_t from, uint32_t to, uint32_t handle, uint64_t timeout_ns)
{
    struct node *node = &world->nodes[from];
    yb_transfer_peer peer = node->peers[to][handle];
    uint32_t ask = mark(world, node->identity, &world->nodes[to], peer);
    uint64_t began_ns = world_now(node);
    enum yb_status status;

    begin_wait(node);
    status = yb_transfer_drain(node->engine, peer, timeout_ns);
    end_wait(node, began_ns, timeout_ns);
    WORLD_CHECK(world, status != YB_CLOSED && status != YB_PROTOCOL);
    world_digest(world, ask, (uint64_t)status);
    if (status == YB_OK) {
        world->counts.drained += clear_marked(world, ask);
    }
    return status;
}

enum yb_status
world_fence(struct world *world, uint32_t at, struct yb_id identity, uint64_t timeout_ns)
{
    struct node *node = &world->nodes[at];
    uint32_t ask = mark(world, identity, node, 0);
    uint64_t began_ns = world_now(node);
    enum yb_status status;

    begin_wait(node);
    status = yb_transfer_fence(node->engine, identity, timeout_ns);
    end_wait(node, began_ns, timeout_ns);
    world_digest(world, ask, (uint64_t)status);
    if (status == YB_OK) {
        world->counts.fenced += clear_marked(world, ask);
    }
    return status;
}

enum yb_status
world_ask_peer(struct world *world, uint32_t from, uint32_t to, uint32_t handle,
               uint64_t timeout_ns)
{
    struct node *node = &world->nodes[from];
    uint64_t began_ns = world_now(node);
    struct yb_transfer_probe probe;
    enum yb_status status;

    begin_wait(node);
    status = yb_transfer_ask(node->engine, node->peers[to][handle], timeout_ns, &probe);
    end_wait(node, began_ns, timeout_ns);
    world_digest(world, from, (uint64_t)status);
    return status;
}

static void
open_handle(struct world *world, uint32_t from, uint32_t to, uint32_t handle)
{
    struct node *node = &world->nodes[from];
    char address[64];

    (void)snprintf(address, sizeof(address), "10.0.0.%u:%u", to + 1, PORT);
    begin_wait(node);
    WORLD_CHECK(world, yb_transfer_open(node->engine, address, &node->peers[to][handle]) == YB_OK);
    node->busy--;
}

void
world_reopen(struct world *world, uint32_t from, uint32_t to, uint32_t handle)
{
    struct node *node = &world->nodes[from];
    yb_transfer_peer peer = node->peers[to][handle];

    node->peers[to][handle] = 0;
    begin_wait(node);
    WORLD_CHECK(world, yb_transfer_close(node->engine, peer) == YB_OK);
    node->busy--;
    open_handle(world, from, to, handle);
}

/* ---- lives ---------------------------------------------------------------------------------- */

static void
random_of_node(void *context, void *out, size_t bytes)
{
    struct node *node = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        node->random = node->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(node->random >> 56);
    }
}

/* Regions of the area for its peers; now and then local memory is registered too, so that batches
 * pin it. */
static void
register_memory(struct node *node)
{
    struct world *world = node->world;

    node->cell_regions = yb_sim_random_below(world->sim, 3) > 0;
    for (uint32_t cell = 0; cell < WORLD_CELLS; cell++) {
        if (cell > 0 && !node->cell_regions) {
            node->regions[cell] = node->regions[0];
            continue;
        }
        WORLD_CHECK(world, yb_transfer_register(
                               node->engine, node->area.bytes + (size_t)cell * WORLD_CELL_BYTES,
                               node->cell_regions ? WORLD_CELL_BYTES : WORLD_AREA_BYTES, NULL,
                               &node->regions[cell]) == YB_OK);
    }
    WORLD_CHECK(world, yb_transfer_register(node->engine, node->local.bytes, WORLD_AREA_BYTES, NULL,
                                            NULL) == YB_OK);
    node->registered = true;
}

/* X6: nothing holds memory any more. */
static void
unregister_memory(struct node *node)
{
    struct world *world = node->world;

    node->registered = false;
    for (uint32_t cell = 0; cell < (node->cell_regions ? WORLD_CELLS : 1); cell++) {
        WORLD_CHECK(world, yb_transfer_unregister(
                               node->engine, node->area.bytes + (size_t)cell * WORLD_CELL_BYTES,
                               0) == YB_OK);
    }
    WORLD_CHECK(world, yb_transfer_unregister(node->engine, node->local.bytes, 0) == YB_OK);
}

static void
make_engine(struct node *node)
{
    struct world *world = node->world;
    struct yb_io *ios[WORLD_WORKERS_MAX];
    char listen[64];
    char message[256] = "";
    struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .listen = listen,
        .insecure = true,
        .workers = world->options.workers,
        .paths = YB_TRANSFER_PATH_TCP,
        .streams = world->options.streams,
        .regions_max = 64,
        .batches_max = 256,
    };
    struct yb_transfer_ground ground = {
        .clock = yb_sim_host_clock(node->host),
        .random = random_of_node,
        .random_context = node,
        .ios = ios,
        .wait = wait_here,
        .driver = node,
    };

    (void)snprintf(listen, sizeof(listen), "10.0.0.%u:%u", node->number + 1, PORT);
    for (uint32_t i = 0; i < world->options.workers; i++) {
        struct world_process *process = &node->processes[i];

        process->node = node;
        process->index = i;
        process->process = yb_sim_process_create(node->host, "engine", run_process, process);
        ios[i] = yb_sim_process_io(process->process);
    }
    if (yb_transfer_create_on(&ground, &options, &node->engine, message, sizeof(message)) !=
        YB_OK) {
        (void)fprintf(stderr, "%s\n", message);
        WORLD_CHECK(world, false);
    }
    for (uint32_t i = 0; i < world->options.workers; i++) {
        node->loops[i] = node->engine->workers[i].loop;
    }
    node->identity = node->engine->self.identity;
}

void
world_start(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];

    WORLD_CHECK(world, node->engine == NULL && !node->dying);
    if (node->silent) {
        yb_sim_host_restart(node->host);
        node->silent = false;
    }
    node->life++;
    make_engine(node);
    register_memory(node);
    node->disturbed_ns = world_now(node);
    for (uint32_t to = 0; to < world->options.node_count; to++) {
        for (uint32_t handle = 0; to != number && handle < WORLD_HANDLES; handle++) {
            open_handle(world, number, to, handle);
        }
    }
}

/* The life of a node is over: its memory is nobody's, but where writes name addresses they may
 * reach the next life. */
static void
end_life(struct node *node)
{
    struct world *world = node->world;
    struct claim *next;

    node->life++;
    memset(node->peers, 0, sizeof(node->peers));
    for (uint32_t i = 0; i < world->options.workers; i++) {
        node->loops[i] = NULL;
        yb_sim_process_destroy(&node->processes[i].process);
    }
    for (struct claim *claim = world->claims; claim != NULL; claim = next) {
        next = claim->next;
        if (claim->to == node && !claim->by_address) {
            world_release_cells(node->cells, claim->first, claim->count, claim);
            if (claim->ended) {
                world_free_claim(claim);
            }
        }
    }
    world_refill(world, &node->area, 0, WORLD_AREA_BYTES);
    WORLD_CHECK(world, world->dead_count < WORLD_DEAD_MAX);
    world->dead[world->dead_count++] = node->identity;
}

static void
destroy_engine(struct node *node)
{
    struct yb_transfer *engine = node->engine;

    world_check(node->world);
    node->world->counts.retries += world_retries(node);
    node->busy++;
    node->engine = NULL;
    yb_transfer_destroy(&engine);
    node->busy--;
    for (const struct claim *claim = node->world->claims; claim != NULL; claim = claim->next) {
        WORLD_CHECK(node->world,
                    claim->ended || claim->from != node || claim->from_life != node->life); /* X1 */
    }
}

void
world_stop(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];

    begin_wait(node);
    node->busy--;
    destroy_engine(node);
    end_life(node);
}

void
world_crash(struct world *world, uint32_t number, enum yb_sim_death how)
{
    struct node *node = &world->nodes[number];

    WORLD_CHECK(world, node->engine != NULL && node->busy == 0);
    if (node->stalled) {
        world_stall(world, number, false);
    }
    world->counts.crashes++;
    if (how == YB_SIM_DEATH_SILENT) {
        yb_sim_host_crash(node->host, how);
        node->silent = true;
    } else {
        for (uint32_t i = 0; i < world->options.workers; i++) {
            yb_sim_process_crash(node->processes[i].process, how);
        }
    }
    node->dying = true;
    destroy_engine(node);
    node->dying = false;
    end_life(node);
}

void
world_stall(struct world *world, uint32_t number, bool stalled)
{
    struct node *node = &world->nodes[number];

    yb_sim_host_stall(node->host, stalled);
    node->stalled = stalled;
    node->disturbed_ns = world_now(node);
}

void
world_skip(struct world *world, uint32_t number, uint64_t skip_ms)
{
    yb_sim_host_skip(world->nodes[number].host, skip_ms * YB_NS_PER_MS);
    world->nodes[number].disturbed_ns = world_now(&world->nodes[number]);
}

void
world_heal(struct world *world)
{
    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        if (world->nodes[i].stalled) {
            world_stall(world, i, false);
        }
    }
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        if (world->nodes[i].engine == NULL) {
            world_start(world, i);
        }
    }
}

uint64_t
world_retries(const struct node *node)
{
    const struct yb_net *net = node->engine->workers[0].net;

    return yb_stats_counter(node->engine->stats, net->stats_first + YB_NET_STAT_RETRIES, 0, 0);
}

bool
world_is_sending(const struct node *node)
{
    for (uint32_t i = 0; i < node->world->options.workers; i++) {
        const struct yb_net *net = node->engine->workers[i].net;

        for (const struct yb_conn *conn = net->conns; conn != NULL; conn = conn->next) {
            if (conn->lane == YB_WIRE_LANE_BULK && conn->calls_out > (conn->ping_waits ? 1 : 0)) {
                return true;
            }
        }
    }
    return false;
}

/* ---- the world ------------------------------------------------------------------------------ */

static void
area_init(struct world *world, struct world_area *area, uint64_t place)
{
    void *wanted = (void *)(uintptr_t)(MEMORY_BASE + place * MEMORY_STEP);

    area->bytes = mmap(wanted, WORLD_AREA_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    WORLD_CHECK(world, area->bytes == wanted);
    area->model = calloc(1, WORLD_AREA_BYTES);
    WORLD_CHECK(world, area->model != NULL);
}

static void
area_fini(struct world_area *area)
{
    (void)munmap(area->bytes, WORLD_AREA_BYTES);
    free(area->model);
}

struct world *
world_create(const struct world_options *options)
{
    struct world *world = calloc(1, sizeof(*world));

    if (world == NULL) {
        abort();
    }
    world->options = *options;
    world->sim = yb_sim_create(options->seed);
    for (uint32_t i = 0; i < options->node_count; i++) {
        struct node *node = &world->nodes[i];
        char ip[16];

        (void)snprintf(ip, sizeof(ip), "10.0.0.%u", i + 1);
        node->world = world;
        node->number = i;
        node->random = options->seed * WORLD_NODES_MAX + i;
        node->host = yb_sim_host_create(world->sim, ip, ip);
        area_init(world, &node->area, 2 * i);
        area_init(world, &node->local, 2 * i + 1);
        world_refill(world, &node->area, 0, WORLD_AREA_BYTES);
        world_refill(world, &node->local, 0, WORLD_AREA_BYTES);
    }
    for (uint32_t i = 0; i < options->node_count; i++) {
        world_start(world, i);
    }
    return world;
}

/* X6 */
static void
check_empty(struct node *node)
{
    struct world *world = node->world;
    const struct yb_transfer *engine = node->engine;

    for (uint32_t i = 0; i < world->options.workers; i++) {
        const struct yb_transfer_worker *worker = &engine->workers[i];

        WORLD_CHECK(world, worker->remotes == NULL && worker->inbound == NULL);
        WORLD_CHECK(world, worker->slices_used == 0 && worker->starved_count == 0);
        WORLD_CHECK(world, worker->parked_count == 0 && worker->net->requests_live == 0);
    }
    WORLD_CHECK(world, engine->batch_free_count == engine->batch_count);
}

void
world_destroy(struct world **world_ref)
{
    struct world *world = *world_ref;

    *world_ref = NULL;
    WORLD_CHECK(world, world->claims == NULL && world->running == 0);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        for (uint32_t k = 0; k < world->options.node_count * WORLD_HANDLES; k++) {
            if (k / WORLD_HANDLES != i) {
                WORLD_CHECK(world,
                            yb_transfer_close(
                                world->nodes[i].engine,
                                world->nodes[i].peers[k / WORLD_HANDLES][k % WORLD_HANDLES]) ==
                                YB_OK);
            }
        }
    }
    world_run_ms(world, 100);
    world_check(world);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        check_empty(&world->nodes[i]);
        unregister_memory(&world->nodes[i]);
        world_stop(world, i);
    }
    WORLD_CHECK(world,
                yb_sim_run_until(world->sim, NULL, NULL, YB_NEVER, STEPS_MAX) == YB_SIM_QUIET);
    WORLD_CHECK(world, yb_sim_connection_count(world->sim) == 0);
    WORLD_CHECK(world, yb_sim_held_bytes(world->sim) == 0);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        world_expect_model(world, &world->nodes[i].area, 0, WORLD_AREA_BYTES);
        world_expect_model(world, &world->nodes[i].local, 0, WORLD_AREA_BYTES);
        area_fini(&world->nodes[i].area);
        area_fini(&world->nodes[i].local);
    }
    yb_sim_destroy(&world->sim);
    free(world);
}
