/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/roles.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/process_internal.h"
#include "directory/directory.h"
#include "memory/shared.h"
#include "net/helper.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/worker.h"
#include "node/node.h"
#include "transfer/near.h"

#define LOOK_NS        (2 * YB_NS_PER_MS) /* How often a role that ends is asked whether it has. */
#define END_NS         (5 * YB_NS_PER_S)
#define NAME_MAX_BYTES 64u

/* One role on its worker. Fields above the line are written before the worker starts, or by an
 * order for which the main thread waits; those below by the worker at every pulse. */
struct role {
    struct yb_process *process;
    struct yb_worker *worker;
    struct yb_net *net; /* Its own; the server's list. */
    struct yb_replay *replay;
    struct yb_server *server;
    struct yb_id identity;
    struct yb_hello_self self;
    struct yb_helper_pool *helpers; /* A directory's: takes memory for its index ahead. */
    struct yb_directory *directory; /* One of the two. */
    struct yb_node *node;
    struct yb_transfer *engine; /* A node's, under its identity: for what is on this host. */
    char engine_address[YB_ADDRESS_TEXT_BYTES];
    struct yb_worker *heart; /* A node's heartbeats, and nothing else. */
    struct yb_address address;
    char name[NAME_MAX_BYTES];
    enum yb_status status;             /* Of the last order. */
    bool (*wanted)(struct role *role); /* What the main thread waits for ... */
    uint64_t watch_until_ns;           /* ... until when ... */
    bool reached;                      /* ... and whether it came. */
    sem_t watched;
    struct yb_timer watch;
    char why[YB_ADDRESS_WHY_BYTES];
    bool begun;
    struct yb_timer pulse;
    /* ---- */
    _Atomic uint64_t turned_ns;
    _Atomic uint64_t incarnation;
    _Atomic uint64_t lease_until_ns;
    _Atomic uint8_t state;
    _Atomic bool rebuilding;
};

struct yb_roles {
    struct yb_process *process;
    struct yb_address_list directory_address;
    struct role directory;
    struct role *nodes;
    uint32_t node_count;
};

/* ---- orders, on the role's worker ----------------------------------------------------------- */

static void
order_listen(void *context)
{
    struct role *role = context;
    const struct yb_config *config = role->process->config;
    const struct yb_server_options options = {
        .address = role->address,
        .insecure = config->auth_insecure,
        .connections_max = config->net_connections_max,
        .unauthenticated_max = config->net_unauthenticated_max,
        .nets = &role->net,
        .net_count = 1,
    };

    role->net = yb_worker_net(role->worker);
    role->status = yb_server_create(&options, &role->server, role->why);
    if (role->status == YB_OK) {
        role->address = yb_server_address(role->server); /* W1 */
    }
}

/* Write down how the role stands. */
static void
look_around(struct role *role)
{
    if (role->node != NULL) {
        struct yb_node_info info;

        yb_node_info(role->node, &info);
        atomic_store(&role->incarnation, info.incarnation);
        atomic_store(&role->lease_until_ns, info.lease_until_ns);
        atomic_store(&role->state, info.state);
    }
    if (role->directory != NULL) {
        atomic_store(&role->rebuilding, yb_directory_rebuilding(role->directory));
    }
    atomic_store(&role->turned_ns, yb_clock_now(role->process->clock));
}

static void
on_pulse(struct yb_timer *timer)
{
    struct role *role = (struct role *)((uint8_t *)timer - offsetof(struct role, pulse));
    struct yb_loop *loop = yb_worker_loop(role->worker);

    look_around(role);
    yb_loop_arm(loop, timer, yb_loop_now(loop) + YB_ROLES_PULSE_NS);
}

static void
order_begin(void *context)
{
    struct role *role = context;
    struct yb_net *net = yb_worker_net(role->worker);

    role->begun = true;
    yb_timer_init(&role->pulse, on_pulse);
    on_pulse(&role->pulse);
    role->status = role->directory != NULL
                       ? yb_directory_start(role->directory, net)
                       : yb_node_start(role->node, net, yb_worker_net(role->heart));
}

static void
order_close_port(void *context)
{
    struct role *role = context;

    if (role->server != NULL) {
        yb_server_stop(role->server);
    }
    if (role->begun && role->node != NULL) {
        yb_node_leave(role->node);
    }
    yb_net_drain(yb_worker_net(role->worker));
}

static void
order_end(void *context)
{
    struct role *role = context;

    if (role->begun) {
        yb_loop_disarm(yb_worker_loop(role->worker), &role->pulse);
    }
    if (role->directory != NULL) {
        yb_directory_stop(role->directory);
    }
    if (role->node != NULL) {
        yb_node_stop(role->node);
    }
    yb_net_shut(yb_worker_net(role->worker));
}

static void
order_destroy(void *context)
{
    struct role *role = context;

    if (role->server != NULL) {
        yb_server_destroy(&role->server);
    }
    if (role->directory != NULL) {
        yb_directory_destroy(&role->directory);
    }
    if (role->node != NULL) {
        yb_node_destroy(&role->node);
    }
}

/* ---- one role ------------------------------------------------------------------------------- */

static bool
is_drained(struct role *role)
{
    return yb_net_idle(yb_worker_net(role->worker));
}

static bool
is_at_rest(struct role *role)
{
    return is_drained(role) && (role->directory == NULL || yb_directory_idle(role->directory)) &&
           (role->node == NULL || yb_node_idle(role->node)) &&
           (role->server == NULL || yb_server_connection_count(role->server) == 0);
}

static bool
is_registered(struct role *role)
{
    look_around(role);
    return atomic_load(&role->incarnation) != 0;
}

/* Nothing tells when one of these becomes true, so the worker looks, until time is up. */
static void
on_watch(struct yb_timer *timer)
{
    struct role *role = (struct role *)((uint8_t *)timer - offsetof(struct role, watch));
    struct yb_loop *loop = yb_worker_loop(role->worker);

    role->reached = role->wanted(role);
    if (role->reached || yb_loop_now(loop) >= role->watch_until_ns) {
        YB_ASSERT(sem_post(&role->watched) == 0);
    } else {
        yb_loop_arm(loop, timer, yb_deadline_after(yb_loop_now(loop), LOOK_NS));
    }
}

static void
order_watch(void *context)
{
    struct role *role = context;

    yb_timer_init(&role->watch, on_watch);
    on_watch(&role->watch);
}

/* Wait until it is `wanted` of the role, at most `limit_ns`. Returns whether it is. */
static bool
await(struct role *role, bool (*wanted)(struct role *role), uint64_t limit_ns)
{
    role->wanted = wanted;
    role->watch_until_ns = yb_deadline_after(yb_clock_now(role->process->clock), limit_ns);
    YB_ASSERT(sem_init(&role->watched, 0, 0) == 0);
    yb_worker_run(role->worker, order_watch, role);
    while (sem_wait(&role->watched) != 0) {
        YB_ASSERT(errno == EINTR);
    }
    (void)sem_destroy(&role->watched);
    return role->reached;
}

/* Let what is asked be answered, no later than `until_ns`. */
static void
role_drain(struct role *role, uint64_t until_ns)
{
    uint64_t now_ns = yb_clock_now(role->process->clock);

    if (!await(role, is_drained, until_ns > now_ns ? until_ns - now_ns : 0)) {
        yb_log_warn(role->process->log, "daemon", "requests were still running, aborting",
                    yb_log_str("role", role->name));
    }
}

/* The node is no more. */
static void
engine_stop(struct role *role)
{
    if (role->engine != NULL) {
        yb_transfer_destroy(&role->engine);
    }
}

static void
role_stop(struct role *role)
{
    if (role->worker != NULL) {
        yb_worker_run(role->worker, order_end, role);
        while (!await(role, is_at_rest, END_NS)) {
            yb_log_error(role->process->log, "daemon", "a role does not come to rest",
                         yb_log_str("role", role->name));
        }
        yb_worker_run(role->worker, order_destroy, role);
        engine_stop(role); /* Its threads send mail to that worker. */
        yb_worker_destroy(&role->worker);
    }
    if (role->heart != NULL) {
        yb_worker_destroy(&role->heart);
    }
    if (role->directory != NULL) { /* Its worker never was. */
        yb_directory_destroy(&role->directory);
    }
    if (role->node != NULL) {
        yb_node_destroy(&role->node);
    }
    engine_stop(role);
    if (role->helpers != NULL) {
        yb_helper_pool_destroy(&role->helpers);
    }
    if (role->replay != NULL) {
        yb_replay_destroy(&role->replay);
    }
}

/* Roles that drain share one deadline. */
static void
stop_all(struct role *roles, uint32_t count)
{
    uint64_t until_ns = 0;

    for (uint32_t i = 0; i < count; i++) {
        if (roles[i].worker != NULL) {
            const struct yb_process *process = roles[i].process;

            until_ns = yb_clock_now(process->clock) + process->config->net_drain_ms * YB_NS_PER_MS;
            yb_worker_run(roles[i].worker, order_close_port, &roles[i]);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        if (roles[i].worker != NULL) {
            role_drain(&roles[i], until_ns);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        role_stop(&roles[i]);
    }
}

/* Make the worker of a role, with its service. */
static enum yb_status
role_worker(struct role *role, uint8_t wire_role, const struct yb_service *service)
{
    struct yb_process *process = role->process;
    struct yb_worker_options options;
    enum yb_status status = yb_replay_create(process->config->net_replay_records,
                                             process->config->net_replay_bytes, &role->replay);

    if (status != YB_OK) {
        return status;
    }
    role->self = process->self;
    role->self.role = wire_role;
    role->self.tenant = "";
    role->self.identity = role->identity;
    if (role->directory != NULL) {
        role->self.seed_check = yb_directory_seed_check(role->directory);
        role->self.cluster = yb_id_is_none(role->self.cluster)
                                 ? yb_directory_cluster(role->directory)
                                 : role->self.cluster;
    }
    yb_process_net_options(process, &options.loop, &options.net);
    options.net.self = &role->self;
    options.net.service = service;
    options.net.replay = role->replay;
    return yb_worker_create(&options, &role->worker);
}

/* A thread for the heartbeats, which are the same process's, on connections of their own. */
static enum yb_status
heart_worker(struct role *role)
{
    struct yb_worker_options options;

    yb_process_net_options(role->process, &options.loop, &options.net);
    options.net.self = &role->self;
    options.net.service = NULL;
    options.loop.spin_us = 0; /* It sleeps between beats. */
    return yb_worker_create(&options, &role->heart);
}

/* Listen at the first candidate that works. */
static enum yb_status
role_listen(struct role *role, const struct yb_address_list *candidates)
{
    enum yb_status status = YB_INVALID;

    for (uint32_t i = 0; i < candidates->count; i++) {
        role->address = candidates->items[i];
        yb_worker_run(role->worker, order_listen, role);
        status = role->status;
        if (status == YB_OK || status == YB_ADDRESS_IN_USE || status == YB_DENIED) {
            break;
        }
    }
    return status;
}

static enum yb_status
resolve(const char *what, const char *text, uint16_t port, struct yb_address_list *list_out,
        char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = yb_endpoint_parse(text, &endpoint, why);

    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, port, list_out, why);
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s: %s", what, why);
    }
    return status;
}

/* ---- the directory -------------------------------------------------------------------------- */

static enum yb_status
start_directory(struct yb_roles *roles, const char *listen, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;
    struct role *role = &roles->directory;
    struct yb_directory_options options = {
        .cluster_file = config->directory_cluster_file,
        .lease_ms = (uint32_t)config->directory_lease_ms,
        .records_max = config->directory_records,
        .writes_max = config->directory_writes,
        .events_max = config->directory_events,
        .stats = process->stats,
        .log = process->log,
        .random = yb_net_random_system,
    };
    struct yb_address_list candidates;
    enum yb_status status;

    role->process = process;
    yb_net_random_system(NULL, &role->identity, sizeof(role->identity));
    (void)snprintf(role->name, sizeof(role->name), "directory");
    status = resolve("net.listen", listen, YB_PORT_SERVE, &candidates, why_out);
    if (status != YB_OK) {
        return status;
    }
    status = yb_helper_pool_create(1, 1, &role->helpers);
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        return status;
    }
    options.helpers = role->helpers;
    status = yb_directory_create(&options, &role->directory, why_out, YB_PROCESS_WHY_BYTES);
    if (status != YB_OK) {
        return status;
    }
    status = role_worker(role, YB_WIRE_ROLE_DIRECTORY, yb_directory_service(role->directory));
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        return status;
    }
    status = role_listen(role, &candidates);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", role->why);
        return status;
    }
    yb_worker_run(role->worker, order_begin, role);
    roles->directory_address = (struct yb_address_list){.count = 1};
    roles->directory_address.items[0] = role->address;
    return role->status;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static const char *
policy_name(const struct yb_config *config)
{
    switch (config->node_policy) {
    case YB_CONFIG_NODE_POLICY_LRU: return "lru";
    case YB_CONFIG_NODE_POLICY_LFU: return "lfu";
    default: return "s3fifo";
    }
}

/* The node's engine listens beside it, on any free port. */
static enum yb_status
create_engine(struct role *role, const struct yb_address *listen,
              char why_out[YB_PROCESS_WHY_BYTES])
{
    const struct yb_config *config = role->process->config;
    struct yb_address address = *listen;
    char text[YB_ADDRESS_TEXT_BYTES];
    const struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .listen = text,
        .secret_file = config->auth_secret_file[0] != '\0' ? config->auth_secret_file : NULL,
        .role = "node",
        .insecure = config->auth_insecure,
        .tls = config->tls_mode != YB_CONFIG_TLS_MODE_OFF,
    };
    enum yb_status status;

    address.port = 0;
    yb_address_format(&address, text);
    status = yb_transfer_create_as(&options, role->identity, &role->engine, why_out,
                                   YB_PROCESS_WHY_BYTES);
    if (status == YB_OK) {
        status =
            yb_transfer_address(role->engine, role->engine_address, sizeof(role->engine_address));
    }
    return status;
}

static bool
watch_process(void *context, struct yb_id identity, bool begin)
{
    struct role *role = context;

    if (begin) {
        return yb_transfer_process_watch(role->engine, identity) == YB_OK;
    }
    yb_transfer_process_unwatch(role->engine, identity);
    return true;
}

static bool
is_gone(void *context, struct yb_id identity)
{
    struct role *role = context;

    return yb_transfer_process_gone(role->engine, identity);
}

static enum yb_status
create_node(struct yb_roles *roles, uint32_t index, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;
    struct role *role = &roles->nodes[index];
    const struct yb_node_options options = {
        .name = role->name,
        .directory = roles->directory_address,
        .rack = config->node_rack,
        .zone = config->node_zone,
        .host = process->self.boot,
        .pool_bytes = config->node_memory / roles->node_count,
        .huge_pages = config->node_huge_pages,
        .numa_node = config->node_numa == UINT32_MAX ? YB_SHARED_NUMA_ANY : config->node_numa,
        .verify = config->node_verify,
        .policy = policy_name(config),
        .high_permille = config->node_high_permille,
        .low_permille = config->node_low_permille,
        .ungranted_permille = config->node_ungranted_permille,
        .pinned_permille = config->node_pinned_permille,
        .engine = role->engine,
        .engine_address = role->engine_address,
        .watch = watch_process,
        .gone = is_gone,
        .gone_context = role,
        .stats = process->stats,
        .log = process->log,
        .random = yb_net_random_system,
    };

    return yb_node_create(&options, &role->node, why_out, YB_PROCESS_WHY_BYTES);
}

static void
name_node(const struct yb_roles *roles, struct role *role, uint32_t index)
{
    const char *name = roles->process->config->node_name;
    char host[NAME_MAX_BYTES / 2];

    if (name[0] == '\0') {
        if (gethostname(host, sizeof(host)) != 0) {
            (void)snprintf(host, sizeof(host), "node");
        }
        host[sizeof(host) - 1] = '\0';
        (void)snprintf(role->name, sizeof(role->name), "%s-%d-%u", host, (int)getpid(), index);
    } else if (roles->node_count == 1) {
        (void)snprintf(role->name, sizeof(role->name), "%.63s", name);
    } else {
        (void)snprintf(role->name, sizeof(role->name), "%.50s-%u", name, index);
    }
}

static enum yb_status
start_node(struct yb_roles *roles, uint32_t index, struct yb_address_list *candidates,
           char why_out[YB_PROCESS_WHY_BYTES])
{
    struct role *role = &roles->nodes[index];
    char text[YB_ADDRESS_TEXT_BYTES];
    enum yb_status status;

    role->process = roles->process;
    yb_net_random_system(NULL, &role->identity, sizeof(role->identity));
    name_node(roles, role, index);
    status = create_engine(role, &candidates->items[0], why_out);
    if (status == YB_OK) {
        status = create_node(roles, index, why_out);
    }
    if (status != YB_OK) {
        return status;
    }
    status = role_worker(role, YB_WIRE_ROLE_NODE, yb_node_service(role->node));
    if (status == YB_OK) {
        status = heart_worker(role);
    }
    if (status != YB_OK) {
        yb_process_explain_net(roles->process, status, why_out);
        return status;
    }
    status = role_listen(role, candidates);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", role->why);
        return status;
    }
    if (yb_address_is_wildcard(&role->address)) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                       "node.listen: others must know where to find a node: give the address of an "
                       "interface instead of a wildcard");
        return YB_INVALID;
    }
    yb_address_format(&role->address, text);
    yb_node_set_address(role->node, text);
    for (uint32_t i = 0; i < candidates->count; i++) {
        candidates->items[i].port = 0; /* The next one takes any free port. */
    }
    yb_worker_run(role->worker, order_begin, role);
    return role->status;
}

static enum yb_status
start_nodes(struct yb_roles *roles, const struct yb_roles_options *options,
            char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_address_list candidates;
    enum yb_status status = resolve("node.listen", options->node_listen, 0, &candidates, why_out);

    if (status != YB_OK) {
        return status;
    }
    roles->nodes = calloc(options->nodes, sizeof(*roles->nodes));
    if (roles->nodes == NULL) {
        return YB_NO_MEMORY;
    }
    roles->node_count = options->nodes;
    for (uint32_t i = 0; i < options->nodes && status == YB_OK; i++) {
        status = start_node(roles, i, &candidates, why_out);
    }
    return status;
}

/* ---- all ------------------------------------------------------------------------------------ */

enum yb_status
yb_roles_start(struct yb_process *process, const struct yb_roles_options *options,
               struct yb_roles **roles_out, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_roles *roles = calloc(1, sizeof(*roles));
    enum yb_status status;

    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(options->nodes <= YB_ROLES_NODES_MAX);
    (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (roles == NULL) {
        return YB_NO_MEMORY;
    }
    roles->process = process;
    status = options->directory ? start_directory(roles, options->directory_listen, why_out)
                                : resolve("directory.address", options->directory_listen,
                                          YB_PORT_SERVE, &roles->directory_address, why_out);
    if (status == YB_OK && options->nodes > 0) {
        status = start_nodes(roles, options, why_out);
    }
    if (status != YB_OK) {
        yb_roles_stop(&roles);
        return status;
    }
    *roles_out = roles;
    return YB_OK;
}

void
yb_roles_stop(struct yb_roles **roles_ref)
{
    struct yb_roles *roles = *roles_ref;

    *roles_ref = NULL;
    stop_all(roles->nodes, roles->node_count);
    stop_all(&roles->directory, 1);
    free(roles->nodes);
    free(roles);
}

/* ---- what can be asked ---------------------------------------------------------------------- */

bool
yb_roles_await_registered(struct yb_roles *roles, uint64_t timeout_ns)
{
    const struct yb_clock *clock = roles->process->clock;
    uint64_t until_ns = yb_clock_now(clock) + timeout_ns;

    for (uint32_t i = 0; i < roles->node_count; i++) {
        uint64_t now_ns = yb_clock_now(clock);

        if (!await(&roles->nodes[i], is_registered, until_ns > now_ns ? until_ns - now_ns : 0)) {
            return false;
        }
    }
    return true;
}

struct yb_address
yb_roles_directory_address(const struct yb_roles *roles)
{
    return roles->directory_address.items[0];
}

uint32_t
yb_roles_count(const struct yb_roles *roles)
{
    return roles->node_count + (roles->directory.worker != NULL ? 1 : 0);
}

void
yb_roles_info(const struct yb_roles *roles, uint32_t index, struct yb_role_info *info_out)
{
    bool directory = index == 0 && roles->directory.worker != NULL;
    const struct role *role = &roles->directory;

    YB_ASSERT(index < yb_roles_count(roles));
    if (!directory) {
        role = &roles->nodes[roles->directory.worker != NULL ? index - 1 : index];
    }
    *info_out = (struct yb_role_info){
        .directory = directory,
        .name = role->name,
        .address = role->address,
        .identity = role->self.identity,
        .io = yb_loop_io(yb_worker_loop(role->worker))->ops->name,
        .turned_ns = atomic_load(&role->turned_ns),
        .registered = atomic_load(&role->incarnation) != 0,
        .lease_until_ns = atomic_load(&role->lease_until_ns),
        .state = atomic_load(&role->state),
        .rebuilding = atomic_load(&role->rebuilding),
    };
}
