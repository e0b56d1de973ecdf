/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's beginning and end, its memory, and what it tells about itself.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "transfer/engine_internal.h"
#include "transfer/shm/shm.h"
#include "transfer/wire/transfer_wire.h"

#define DEFAULT_LISTEN  "127.0.0.1:0"
#define DEFAULT_STREAMS 4u
#define STREAMS_MAX     16u
#define WORKERS_MAX     64u
#define DEFAULT_REGIONS 65536u
#define DEFAULT_BATCHES 4096u
#define BATCHES_MAX     (1u << 20)
#define REPLAY_RECORDS  65536u
#define REPLAY_BYTES    (32ull << 20)
#define SPAN_RECORDS    16384u
#define QUIET_LOOK_NS   YB_NS_PER_MS

/* Take the caller's options, as much of them as it knows, and fill in defaults. */
static enum yb_status
read_options(const struct yb_transfer_options *given, struct yb_transfer_options *options_out,
             char *message, size_t bytes)
{
    struct yb_transfer_options options = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            (void)snprintf(message, bytes, "options.struct_bytes is not the size of the struct");
            return YB_INVALID;
        }
        memcpy(&options, given,
               given->struct_bytes < sizeof(options) ? given->struct_bytes : sizeof(options));
    }
    options.listen = options.listen != NULL ? options.listen : DEFAULT_LISTEN;
    options.role = options.role != NULL ? options.role : "client";
    options.tenant = options.tenant != NULL ? options.tenant : "default";
    options.workers = options.workers != 0 ? options.workers : 1;
    options.paths = options.paths != 0 ? options.paths : YB_TRANSFER_PATH_ALL;
    options.streams = options.streams != 0 ? options.streams : DEFAULT_STREAMS;
    options.regions_max = options.regions_max != 0 ? options.regions_max : DEFAULT_REGIONS;
    options.batches_max = options.batches_max != 0 ? options.batches_max : DEFAULT_BATCHES;
    if (options.workers > WORKERS_MAX || options.streams > STREAMS_MAX ||
        options.regions_max > YB_REGIONS_MAX || options.batches_max > BATCHES_MAX ||
        (options.paths & ~YB_TRANSFER_PATH_ALL) != 0) {
        (void)snprintf(message, bytes,
                       "an option is out of range: workers 1..%u, streams 1..%u, regions_max "
                       "1..%u, batches_max 1..%u, paths of YB_TRANSFER_PATH_",
                       WORKERS_MAX, STREAMS_MAX, YB_REGIONS_MAX, BATCHES_MAX);
        return YB_INVALID;
    }
    *options_out = options;
    return YB_OK;
}

static uint8_t
role_of(const char *name)
{
    for (uint8_t role = YB_WIRE_ROLE_CLIENT; role <= YB_WIRE_ROLE_ADMIN; role++) {
        if (strcmp(yb_wire_role_name(role), name) == 0) {
            return role;
        }
    }
    return 0;
}

/* Who we are to our peers. */
static enum yb_status
make_credentials(struct yb_transfer *engine, char *message, size_t bytes)
{
    const struct yb_credentials_options options = {
        .secret_file = engine->options.secret_file,
        .tls = engine->options.tls,
        .listens = true,
        .wall_ns = yb_clock_wall(engine->ground.clock),
    };

    return yb_credentials_load(&options, &engine->credentials, message, bytes);
}

static enum yb_status
make_self(struct yb_transfer *engine, char *message, size_t bytes)
{
    const struct yb_transfer_options *options = &engine->options;
    uint8_t role = role_of(options->role);

    if (role == 0) {
        (void)snprintf(message, bytes, "role `%s`: client, node, directory or admin",
                       options->role);
        return YB_INVALID;
    }
    if (!yb_auth_tenant_valid(options->tenant, strlen(options->tenant))) {
        (void)snprintf(message, bytes, "tenant `%s`: letters, digits and ._- only, at most %u",
                       options->tenant, YB_AUTH_TENANT_MAX);
        return YB_INVALID;
    }
    (void)snprintf(engine->tenant, sizeof(engine->tenant), "%s", options->tenant);
    engine->self = (struct yb_hello_self){
        .incarnation = yb_clock_wall(engine->ground.clock),
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = role == YB_WIRE_ROLE_CLIENT ? engine->tenant : "",
        .auth = engine->credentials.auth,
        .credit_requests = 1024,
        .credit_bytes = 256ull << 20,
        .body_bytes_max = 64 * 1024,
        .data_bytes_max = 64ull << 20,
        .ping_interval_ms = 15000,
        .software = "yuebing " YB_VERSION_STRING,
        .port_name = "Yuebing's transfer engine",
    };
    engine->self.identity = engine->ground.identity;
    if (yb_id_is_none(engine->self.identity)) {
        engine->ground.random(engine->ground.random_context, engine->self.identity.bytes,
                              sizeof(engine->self.identity.bytes));
    }
    return YB_OK;
}

/* The tables and pools that need no thread. */
static enum yb_status
make_parts(struct yb_transfer *engine)
{
    const struct yb_memory_staging staging = {
        .queues = engine->options.workers,
        .slices = YB_COPIES_SLICES,
        .slice_bytes = YB_COPIES_SLICE_BYTES,
    };
    enum yb_status status = YB_OK;

    engine->stats = engine->ground.stats;
    if (engine->stats == NULL) {
        status = yb_stats_create(&engine->stats);
    }
    engine->spans = engine->ground.spans;
    if (status == YB_OK && engine->spans == NULL) {
        status = yb_span_ring_create(SPAN_RECORDS, &engine->spans);
    }
    if (status == YB_OK) {
        status = yb_replay_create(REPLAY_RECORDS, REPLAY_BYTES, &engine->replay);
    }
    if (status == YB_OK) {
        status = yb_memory_create(&staging, &engine->memory, NULL, 0);
    }
    if (status == YB_OK) {
        status = yb_region_table_create(engine->options.regions_max, &engine->regions);
    }
    if (status == YB_OK && engine->ground.ios != NULL) {
        uint64_t random;

        engine->ground.random(engine->ground.random_context, &random, sizeof(random));
        yb_region_table_seed(engine->regions, random);
    }
    if (status == YB_OK && (engine->options.paths & YB_TRANSFER_PATH_SHM) != 0) {
        status = yb_shm_host_create(engine->regions, &engine->shm);
    }
    engine->batches = calloc(engine->options.batches_max, sizeof(*engine->batches));
    engine->batch_free = calloc(engine->options.batches_max, sizeof(*engine->batch_free));
    engine->notifications = calloc(YB_TRANSFER_NOTIFICATIONS_MAX, sizeof(*engine->notifications));
    engine->workers = calloc(engine->options.workers, sizeof(*engine->workers));
    if (status == YB_OK && (engine->batches == NULL || engine->batch_free == NULL ||
                            engine->notifications == NULL || engine->workers == NULL)) {
        status = YB_NO_MEMORY;
    }
    return status;
}

/* ---- workers --------------------------------------------------------------------------------- */

/* On the worker's thread: what belongs to it. */
static void
enter_worker(void *context)
{
    struct yb_transfer_worker *worker = context;

    yb_copies_init(&worker->copies, worker->engine->memory, worker->loop);
}

static void
close_remotes(void *context)
{
    struct yb_transfer_worker *worker = context;
    struct yb_remote *next;

    for (struct yb_remote *remote = worker->remotes; remote != NULL; remote = next) {
        next = remote->next;
        yb_remote_close(remote);
    }
    yb_net_shut(worker->net);
}

struct question {
    struct yb_transfer_worker *worker;
    bool answer;
};

static void
ask_quiet(void *context)
{
    struct question *question = context;
    struct yb_transfer_worker *worker = question->worker;

    question->answer = worker->remotes == NULL && worker->inbound == NULL &&
                       yb_net_idle(worker->net) && yb_copies_idle(&worker->copies);
}

static void
leave_worker(void *context)
{
    struct yb_transfer_worker *worker = context;

    yb_transfer_inbound_fini(worker);
    while (worker->slices != NULL) {
        struct yb_slice *slice = worker->slices;

        worker->slices = slice->next;
        free(slice);
    }
    yb_copies_fini(&worker->copies);
}

static enum yb_status
start_workers(struct yb_transfer *engine)
{
    struct yb_worker_options options = {
        .loop = {.backend = "auto", .clock = engine->ground.clock, .spin_us = 50},
        .net =
            {
                .self = &engine->self,
                .tls_server = engine->credentials.tls_server,
                .tls_client = engine->credentials.tls_client,
                .stream = {.congestion = "cubic", .unsent_bytes_max = 256 * 1024},
                .service = &engine->service,
                .replay = engine->replay,
                .stats = engine->stats,
                .spans = engine->spans,
                .random = engine->ground.random,
                .random_context = engine->ground.random_context,
            },
    };
    enum yb_status status = YB_OK;

    yb_net_limits_default(&options.net.limits);
    options.net.limits.committed_bytes_max = 1024 * 1024;
    for (uint32_t i = 0; i < engine->options.workers && status == YB_OK; i++) {
        struct yb_transfer_worker *worker = &engine->workers[i];

        worker->engine = engine;
        worker->index = i;
        if (engine->ground.ios != NULL) {
            options.loop.io = engine->ground.ios[i];
            options.loop.spin_us = 0;
        }
        status = yb_worker_create(&options, &worker->worker);
        if (status == YB_OK) {
            worker->loop = yb_worker_loop(worker->worker);
            worker->net = yb_worker_net(worker->worker);
            engine->worker_count++;
            yb_worker_run(worker->worker, enter_worker, worker);
        }
    }
    return status;
}

/* ---- listening ------------------------------------------------------------------------------- */

struct listening {
    struct yb_transfer *engine;
    struct yb_server_options options;
    enum yb_status status;
    char *why;
};

static void
start_server(void *context)
{
    struct listening *listening = context;

    listening->status =
        yb_server_create(&listening->options, &listening->engine->server, listening->why);
}

static void
stop_server(void *context)
{
    struct yb_transfer *engine = context;

    yb_server_stop(engine->server);
}

static void
destroy_server(void *context)
{
    struct yb_transfer *engine = context;

    yb_server_destroy(&engine->server);
}

static enum yb_status
listen_on(struct yb_transfer *engine, char *message, size_t bytes)
{
    struct yb_endpoint_text endpoint;
    struct yb_address_list addresses;
    struct yb_net *nets[WORKERS_MAX];
    char why[YB_ADDRESS_WHY_BYTES] = "";
    struct listening listening = {.engine = engine, .why = why};
    enum yb_status status;

    for (uint32_t i = 0; i < engine->worker_count; i++) {
        nets[i] = engine->workers[i].net;
    }
    memcpy(engine->nets, nets, sizeof(engine->nets));
    listening.options = (struct yb_server_options){
        .insecure = engine->options.insecure,
        .connections_max = 65536,
        .unauthenticated_max = 1024,
        .nets = engine->nets,
        .net_count = engine->worker_count,
    };
    status = yb_endpoint_parse(engine->options.listen, &endpoint, why);
    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, 0, &addresses, why);
    }
    for (uint32_t i = 0; status == YB_OK && i < addresses.count; i++) {
        listening.options.address = addresses.items[i];
        yb_worker_run(engine->workers[0].worker, start_server, &listening);
        if (listening.status == YB_OK) {
            engine->address = yb_server_address(engine->server);
            return YB_OK;
        }
    }
    (void)snprintf(message, bytes, "%s", why);
    return status != YB_OK ? status : listening.status;
}

/* ---- create and destroy ---------------------------------------------------------------------- */

uint64_t
yb_transfer_now(const struct yb_transfer *engine)
{
    return yb_clock_now(engine->ground.clock);
}

void
yb_transfer_wait_locked(struct yb_transfer *engine, uint64_t step_ns)
{
    if (engine->ground.wait == NULL) {
        (void)yb_lock_wait(&engine->lock, &engine->changed, step_ns);
        return;
    }
    yb_lock_release(&engine->lock);
    engine->ground.wait(engine->ground.driver);
    yb_lock_acquire(&engine->lock);
}

enum yb_status
yb_transfer_create(const struct yb_transfer_options *options, struct yb_transfer **engine_out,
                   char *message_out, size_t message_bytes)
{
    const struct yb_transfer_ground machine = {
        .clock = yb_clock_system(),
        .random = yb_net_random_system,
    };

    return yb_transfer_create_on(&machine, options, engine_out, message_out, message_bytes);
}

enum yb_status
yb_transfer_create_on(const struct yb_transfer_ground *ground,
                      const struct yb_transfer_options *options, struct yb_transfer **engine_out,
                      char *message_out, size_t message_bytes)
{
    char unused[1];
    char *message = message_out != NULL ? message_out : unused;
    size_t bytes = message_out != NULL ? message_bytes : sizeof(unused);
    struct yb_transfer *engine = calloc(1, sizeof(*engine));
    enum yb_status status;

    if (engine == NULL) {
        return YB_NO_MEMORY;
    }
    engine->magic = YB_TRANSFER_MAGIC;
    engine->ground = *ground;
    yb_lock_init(&engine->lock, YB_LOCK_ENGINE);
    yb_lock_cond_init(&engine->changed);
    yb_transfer_service_init(engine);
    yb_shm_service_init(engine);
    engine->service = (struct yb_service){
        .methods = engine->methods,
        .method_count = engine->method_count,
        .owner = engine,
    };
    status = read_options(options, &engine->options, message, bytes);
    if (status == YB_OK) {
        status = make_credentials(engine, message, bytes);
    }
    if (status == YB_OK) {
        status = make_self(engine, message, bytes);
    }
    if (status == YB_OK) {
        status = make_parts(engine);
    }
    if (status == YB_OK) {
        status = start_workers(engine);
    }
    if (status == YB_OK) {
        status = listen_on(engine, message, bytes);
    }
    if (status == YB_OK && (engine->options.paths & YB_TRANSFER_PATH_DEVICE) != 0) {
        engine->neighbour.identity = engine->self.identity;
        engine->neighbour.owner = engine;
        yb_memory_publish(engine->memory, &engine->neighbour);
    }
    engine->options.listen = NULL; /* Texts are the caller's. */
    engine->options.secret_file = NULL;
    engine->options.role = NULL;
    engine->options.tenant = NULL;
    if (status != YB_OK) {
        yb_transfer_destroy(&engine);
        return status;
    }
    *engine_out = engine;
    return YB_OK;
}

/* Close everything and wait until the workers have nothing left. */
static void
quiet_workers(struct yb_transfer *engine)
{
    if (engine->server != NULL) {
        yb_worker_run(engine->workers[0].worker, stop_server, engine);
    }
    for (;;) {
        bool quiet = true;

        for (uint32_t i = 0; i < engine->worker_count; i++) {
            struct yb_transfer_worker *worker = &engine->workers[i];
            struct question question = {.worker = worker};

            yb_worker_run(worker->worker, close_remotes, worker);
            yb_worker_run(worker->worker, ask_quiet, &question);
            quiet = quiet && question.answer;
        }
        quiet = quiet && atomic_load(&engine->neighbour.holds) == 0; /* X2 of across.h */
        if (quiet && (engine->server == NULL || yb_server_connection_count(engine->server) == 0)) {
            break;
        }
        yb_lock_acquire(&engine->lock); /* A reset takes the loops some turns. */
        yb_transfer_wait_locked(engine, QUIET_LOOK_NS);
        yb_lock_release(&engine->lock);
    }
    if (engine->server != NULL) {
        yb_worker_run(engine->workers[0].worker, destroy_server, engine);
    }
}

static void
free_parts(struct yb_transfer *engine)
{
    if (engine->regions != NULL) {
        yb_region_table_destroy(&engine->regions);
    }
    if (engine->memory != NULL) {
        yb_memory_destroy(&engine->memory);
    }
    if (engine->replay != NULL) {
        yb_replay_destroy(&engine->replay);
    }
    if (engine->spans != NULL && engine->spans != engine->ground.spans) {
        yb_span_ring_destroy(&engine->spans);
    }
    if (engine->stats != NULL && engine->stats != engine->ground.stats) {
        yb_stats_destroy(&engine->stats);
    }
    yb_credentials_unload(&engine->credentials);
}

void
yb_transfer_destroy(struct yb_transfer **engine_ref)
{
    struct yb_transfer *engine = *engine_ref;

    YB_ASSERT_OBJ(engine, YB_TRANSFER_MAGIC);
    *engine_ref = NULL;
    yb_lock_acquire(&engine->lock); /* What callbacks submit from now on is refused. */
    for (uint32_t i = 0; i < YB_TRANSFER_PEERS_MAX; i++) {
        engine->peers[i].used = false;
    }
    yb_lock_release(&engine->lock);
    if (engine->memory != NULL) {
        yb_memory_withdraw(engine->memory, &engine->neighbour);
    }
    quiet_workers(engine);
    for (uint32_t i = 0; i < engine->worker_count; i++) {
        yb_worker_run(engine->workers[i].worker, leave_worker, &engine->workers[i]);
        yb_worker_destroy(&engine->workers[i].worker);
    }
    for (uint32_t i = 0; i < engine->batch_count; i++) {
        free(engine->batches[i]->items);
        free(engine->batches[i]->states);
        free(engine->batches[i]->pins);
        free(engine->batches[i]);
    }
    yb_shm_host_destroy(&engine->shm);
    yb_transfer_memory_fini(engine);
    free_parts(engine);
    free(engine->workers);
    free(engine->notifications);
    free(engine->batch_free);
    free(engine->batches);
    YB_ASSERT(pthread_cond_destroy(&engine->changed) == 0);
    yb_lock_fini(&engine->lock);
    engine->magic = 0;
    free(engine);
}

enum yb_status
yb_transfer_address(const struct yb_transfer *engine, char *text_out, size_t text_bytes)
{
    char text[YB_ADDRESS_TEXT_BYTES];

    yb_address_format(&engine->address, text);
    if (strlen(text) + 1 > text_bytes) {
        return YB_TOO_SMALL;
    }
    memcpy(text_out, text, strlen(text) + 1);
    return YB_OK;
}

enum yb_status
yb_transfer_next_notification(struct yb_transfer *engine,
                              struct yb_transfer_notification *notification_out)
{
    enum yb_status status = YB_AGAIN;

    yb_lock_acquire(&engine->lock);
    if (engine->notification_count > 0) {
        const struct yb_transfer_notification *oldest =
            &engine->notifications[engine->notification_head];

        notification_out->from = oldest->from;
        notification_out->bytes = oldest->bytes;
        memcpy(notification_out->payload, oldest->payload, oldest->bytes);
        engine->notification_head = (engine->notification_head + 1) % YB_TRANSFER_NOTIFICATIONS_MAX;
        engine->notification_count--;
        status = YB_OK;
    }
    yb_lock_release(&engine->lock);
    return status;
}
