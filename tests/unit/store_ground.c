/* SPDX-License-Identifier: Apache-2.0 */
#include "store_ground.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "memory/shared.h"
#include "net/boot.h"
#include "transfer/near.h"

static void
wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
        assert_int_equal(errno, EINTR);
    }
}

/* ---- orders, on the role's worker ------------------------------------------------------------ */

static void
order_listen(void *context)
{
    struct ground_role *role = context;
    struct yb_server_options options = {
        .connections_max = 1024,
        .unauthenticated_max = 128,
        .nets = &role->net,
        .net_count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    role->net = yb_worker_net(role->worker);
    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_server_create(&options, &role->server, why), YB_OK);
    role->address = yb_server_address(role->server);
}

static void
order_begin(void *context)
{
    struct ground_role *role = context;
    struct yb_net *net = yb_worker_net(role->worker);

    assert_int_equal(role->directory != NULL
                         ? yb_directory_start(role->directory, net)
                         : yb_node_start(role->node, net, yb_worker_net(role->heart)),
                     YB_OK);
}

static void
order_end(void *context)
{
    struct ground_role *role = context;

    yb_server_stop(role->server);
    if (role->directory != NULL) {
        yb_directory_stop(role->directory);
    } else {
        yb_node_stop(role->node);
    }
    yb_net_shut(yb_worker_net(role->worker));
}

static void
order_look(void *context)
{
    struct ground_role *role = context;

    role->idle = yb_net_idle(yb_worker_net(role->worker)) &&
                 (role->directory == NULL || yb_directory_idle(role->directory)) &&
                 (role->node == NULL || yb_node_idle(role->node)) &&
                 yb_server_connection_count(role->server) == 0;
}

static void
order_destroy(void *context)
{
    struct ground_role *role = context;

    yb_server_destroy(&role->server);
    if (role->directory != NULL) {
        yb_directory_destroy(&role->directory);
    } else {
        yb_node_destroy(&role->node);
    }
}

static void
order_stand(struct yb_mail *mail)
{
    struct ground_role *role =
        (struct ground_role *)((uint8_t *)mail - offsetof(struct ground_role, stand));

    (void)sem_post(&role->standing);
    wait_for(&role->held);
}

/* ---- roles ----------------------------------------------------------------------------------- */

static void
make_worker(struct ground_role *role, uint8_t wire_role, const struct yb_service *service,
            struct yb_worker **worker_out)
{
    struct ground *ground = role->ground;
    struct yb_worker_options options = {
        .loop = {.backend = "auto", .clock = yb_clock_system(), .spin_us = service ? 50 : 0},
        .net =
            {
                .self = &role->self,
                .tls_server = ground->tls_server,
                .tls_client = ground->tls_client,
                .service = service,
                .random = yb_net_random_system,
            },
    };

    if (service != NULL) {
        assert_int_equal(yb_replay_create(65536, 32ull << 20, &role->replay), YB_OK);
        options.net.replay = role->replay;
        role->self = (struct yb_hello_self){
            .incarnation = yb_clock_wall(yb_clock_system()),
            .boot = yb_boot_id(),
            .version_min = YB_WIRE_VERSION_MIN,
            .version_max = YB_WIRE_VERSION_MAX,
            .schema = YB_WIRE_SCHEMA,
            .role = wire_role,
            .tenant = "",
            .auth = ground->auth,
            .credit_requests = 1024,
            .credit_bytes = 256ull << 20,
            .body_bytes_max = 1u << 20,
            .data_bytes_max = 1ull << 40,
            .ping_interval_ms = 15000,
            .software = "yuebing test",
            .port_name = "a port of a test",
        };
        role->self.identity = role->identity;
    }
    yb_net_limits_default(&options.net.limits);
    assert_int_equal(yb_worker_create(&options, worker_out), YB_OK);
}

static void
start_directory(struct ground *ground)
{
    struct ground_role *role = &ground->directory;
    const struct yb_directory_options options = {
        .lease_ms = ground->options.lease_ms,
        .records_max = 1u << 20,
        .random = yb_net_random_system,
    };
    char why[512];

    role->ground = ground;
    yb_net_random_system(NULL, &role->identity, sizeof(role->identity));
    assert_int_equal(yb_directory_create(&options, &role->directory, why, sizeof(why)), YB_OK);
    make_worker(role, YB_WIRE_ROLE_DIRECTORY, yb_directory_service(role->directory), &role->worker);
    yb_worker_run(role->worker, order_listen, role);
    yb_worker_run(role->worker, order_begin, role);
    yb_address_format(&role->address, ground->address);
}

static void
start_engine(struct ground_role *role)
{
    const struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .secret_file = role->ground->options.secret_file,
        .role = "node",
        .tls = role->ground->options.tls,
        .paths = role->ground->options.engine_paths,
    };
    char why[512] = "";

    assert_int_equal(yb_transfer_create_as(&options,
                                           (struct yb_transfer_self){.identity = role->identity},
                                           &role->engine, why, sizeof(why)),
                     YB_OK);
    assert_int_equal(
        yb_transfer_address(role->engine, role->engine_address, sizeof(role->engine_address)),
        YB_OK);
}

static bool
watch_process(void *context, struct yb_id identity, bool begin)
{
    struct ground_role *role = context;

    if (begin) {
        return yb_transfer_process_watch(role->engine, identity) == YB_OK;
    }
    yb_transfer_process_unwatch(role->engine, identity);
    return true;
}

static bool
is_gone(void *context, struct yb_id identity)
{
    struct ground_role *role = context;

    return yb_transfer_process_gone(role->engine, identity);
}

static void
start_node(struct ground *ground, uint32_t index)
{
    struct ground_role *role = &ground->nodes[index];
    struct yb_node_options options = {
        .directory = {.count = 1, .items = {ground->directory.address}},
        .host = yb_boot_id(),
        .pool_bytes = ground->options.pool_bytes,
        .numa_node = YB_SHARED_NUMA_ANY,
        .random = yb_net_random_system,
    };
    char address[YB_ADDRESS_TEXT_BYTES];
    char why[512] = "";

    role->ground = ground;
    (void)snprintf(role->name, sizeof(role->name), "node-%u", index);
    options.name = role->name;
    yb_net_random_system(NULL, &role->identity, sizeof(role->identity));
    if (ground->options.engine_paths != 0) {
        start_engine(role);
        options.engine = role->engine;
        options.engine_address = role->engine_address;
        options.watch = watch_process;
        options.gone = is_gone;
        options.gone_context = role;
    }
    assert_int_equal(yb_node_create(&options, &role->node, why, sizeof(why)), YB_OK);
    make_worker(role, YB_WIRE_ROLE_NODE, yb_node_service(role->node), &role->worker);
    make_worker(role, YB_WIRE_ROLE_NODE, NULL, &role->heart);
    yb_worker_run(role->worker, order_listen, role);
    yb_address_format(&role->address, address);
    yb_node_set_address(role->node, address);
    assert_int_equal(sem_init(&role->held, 0, 0), 0);
    assert_int_equal(sem_init(&role->standing, 0, 0), 0);
    yb_worker_run(role->worker, order_begin, role);
}

static void
role_stop(struct ground_role *role)
{
    yb_worker_run(role->worker, order_end, role);
    do {
        yb_worker_run(role->worker, order_look, role);
    } while (!role->idle);
    yb_worker_run(role->worker, order_destroy, role);
    if (role->engine != NULL) {
        yb_transfer_destroy(&role->engine); /* Its threads send mail to the worker. */
    }
    yb_worker_destroy(&role->worker);
    if (role->heart != NULL) {
        yb_worker_destroy(&role->heart);
    }
    yb_replay_destroy(&role->replay);
}

void
ground_kill(struct ground_role *role)
{
    role_stop(role);
}

void
ground_stop(struct ground_role *role)
{
    yb_mail_init(&role->stand, order_stand);
    yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(role->worker)), &role->stand);
    wait_for(&role->standing);
    role->stopped = true;
}

void
ground_go(struct ground_role *role)
{
    role->stopped = false;
    (void)sem_post(&role->held);
}

/* A test that failed left off somewhere: its end must not wait for what nobody lets go. */
static void
go_if_stopped(struct ground_role *role)
{
    if (role->stopped) {
        ground_go(role);
    }
}

/* ---- the ground ------------------------------------------------------------------------------ */

struct ground *
ground_create(const struct ground_options *options)
{
    struct ground *ground = calloc(1, sizeof(*ground));
    char message[512];

    assert_non_null(ground);
    ground->options = *options;
    ground->options.nodes = options->nodes != 0 ? options->nodes : 1;
    ground->options.pool_bytes = options->pool_bytes != 0 ? options->pool_bytes : 64ull << 20;
    if (options->secret_file != NULL) {
        assert_int_equal(
            yb_auth_load(options->secret_file, &ground->auth, message, sizeof(message)), YB_OK);
    }
    if (options->tls) {
        struct yb_tls_options tls = {.server = true, .wall_ns = yb_clock_wall(yb_clock_system())};

        assert_int_equal(yb_tls_context_create(&tls, &ground->tls_server, message, sizeof(message)),
                         YB_OK);
        tls.server = false;
        assert_int_equal(yb_tls_context_create(&tls, &ground->tls_client, message, sizeof(message)),
                         YB_OK);
    }
    start_directory(ground);
    for (uint32_t i = 0; i < ground->options.nodes; i++) {
        start_node(ground, i);
    }
    return ground;
}

void
ground_destroy(struct ground **ground_ref)
{
    struct ground *ground = *ground_ref;

    *ground_ref = NULL;
    go_if_stopped(&ground->directory);
    for (uint32_t i = 0; i < ground->options.nodes; i++) {
        go_if_stopped(&ground->nodes[i]);
    }
    for (uint32_t i = 0; i < ground->options.nodes; i++) {
        if (ground->nodes[i].worker != NULL) {
            role_stop(&ground->nodes[i]);
        }
        assert_int_equal(sem_destroy(&ground->nodes[i].held), 0);
        assert_int_equal(sem_destroy(&ground->nodes[i].standing), 0);
    }
    role_stop(&ground->directory);
    if (ground->tls_server != NULL) {
        yb_tls_context_destroy(&ground->tls_server);
        yb_tls_context_destroy(&ground->tls_client);
    }
    if (ground->auth != NULL) {
        yb_auth_destroy(&ground->auth);
    }
    free(ground);
}

struct yb_client *
ground_client(const struct ground *ground, const struct yb_client_options *given)
{
    struct yb_client_options options = {.struct_bytes = sizeof(options)};
    struct yb_client *client = NULL;
    struct yb_client_node nodes[GROUND_NODES_MAX];
    char message[512] = "";
    uint32_t count = 0;

    if (given != NULL) {
        options = *given;
    }
    options.struct_bytes = sizeof(options);
    options.directory = ground->address;
    options.tls = ground->options.tls;
    if (options.secret_file == NULL) {
        options.secret_file = ground->options.secret_file;
    }
    if (yb_client_open(&options, 30000000000u, &client, message, sizeof(message)) != YB_OK) {
        print_message("# %s\n", message);
        fail();
    }
    while (count < ground->options.nodes) { /* Until all of them are members. */
        uint8_t byte = 0;
        struct yb_client_item item = {.key = &byte, .key_bytes = 1};

        assert_int_equal(yb_client_nodes(client, nodes, GROUND_NODES_MAX, &count), YB_OK);
        assert_int_equal(yb_client_exist(client, &item, 1, NULL), YB_OK);
    }
    return client;
}
