/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/process_internal.h"
#include "directory/directory.h"
#include "memory/shared.h"
#include "net/worker.h"
#include "node/node.h"

#define LOOK_NS        (2 * YB_NS_PER_MS) /* How often a role that ends is asked whether it has. */
#define END_NS         (5 * YB_NS_PER_S)
#define NAME_MAX_BYTES 64u

/* One role on its worker. */
struct role {
    struct yb_process *process;
    struct yb_worker *worker;
    struct yb_net *net; /* Its own; the server's list. */
    struct yb_replay *replay;
    struct yb_server *server;
    struct yb_hello_self self;
    struct yb_directory *directory; /* One of the two. */
    struct yb_node *node;
    struct yb_worker *heart; /* A node's heartbeats, and nothing else. */
    struct yb_address address;
    char name[NAME_MAX_BYTES];
    enum yb_status status; /* Of the last order. */
    bool idle;
    char why[YB_ADDRESS_WHY_BYTES];
};

struct yb_roles {
    struct yb_process *process;
    struct yb_address_list directory_address;
    struct role directory;
    struct role *nodes;
    uint32_t node_count;
};

/* ---- orders, on the role's worker ------------------------------------------------------------ */

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
        role->address = yb_server_address(role->server);
    }
}

static void
order_begin(void *context)
{
    struct role *role = context;
    struct yb_net *net = yb_worker_net(role->worker);

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
    yb_net_drain(yb_worker_net(role->worker));
}

static void
order_end(void *context)
{
    struct role *role = context;

    if (role->directory != NULL) {
        yb_directory_stop(role->directory);
    }
    if (role->node != NULL) {
        yb_node_stop(role->node);
    }
    yb_net_shut(yb_worker_net(role->worker));
}

static void
order_look(void *context)
{
    struct role *role = context;

    role->idle = yb_net_idle(yb_worker_net(role->worker)) &&
                 (role->directory == NULL || yb_directory_idle(role->directory)) &&
                 (role->node == NULL || yb_node_idle(role->node)) &&
                 (role->server == NULL || yb_server_connection_count(role->server) == 0);
}

static void
order_drained(void *context)
{
    struct role *role = context;

    role->idle = yb_net_idle(yb_worker_net(role->worker));
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

/* ---- one role -------------------------------------------------------------------------------- */

static void
pause_a_moment(void)
{
    const struct timespec moment = {.tv_nsec = (long)LOOK_NS};

    (void)nanosleep(&moment, NULL);
}

/* Ask again and again until the role is idle, at most `limit_ns`. */
static bool
await_idle(struct role *role, void (*order)(void *context), uint64_t limit_ns)
{
    uint64_t until_ns = yb_clock_now(role->process->clock) + limit_ns;

    do {
        yb_worker_run(role->worker, order, role);
        if (role->idle) {
            return true;
        }
        pause_a_moment();
    } while (yb_clock_now(role->process->clock) < until_ns);
    return false;
}

static void
role_stop(struct role *role)
{
    if (role->worker != NULL) {
        yb_worker_run(role->worker, order_close_port, role);
        (void)await_idle(role, order_drained, role->process->config->net_drain_ms * YB_NS_PER_MS);
        yb_worker_run(role->worker, order_end, role);
        while (!await_idle(role, order_look, END_NS)) {
            yb_log_error(role->process->log, "daemon", "a role does not come to rest",
                         yb_log_str("name", role->name));
        }
        yb_worker_run(role->worker, order_destroy, role);
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
    if (role->replay != NULL) {
        yb_replay_destroy(&role->replay);
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
    yb_net_random_system(NULL, &role->self.identity, sizeof(role->self.identity));
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

/* ---- the directory ---------------------------------------------------------------------------- */

static enum yb_status
start_directory(struct yb_roles *roles, const char *listen, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;
    struct role *role = &roles->directory;
    const struct yb_directory_options options = {
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
    (void)snprintf(role->name, sizeof(role->name), "directory");
    status = resolve("net.listen", listen, YB_PORT_SERVE, &candidates, why_out);
    if (status != YB_OK) {
        return status;
    }
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

/* ---- nodes ------------------------------------------------------------------------------------ */

static const char *
policy_name(const struct yb_config *config)
{
    switch (config->node_policy) {
    case YB_CONFIG_NODE_POLICY_LRU: return "lru";
    case YB_CONFIG_NODE_POLICY_LFU: return "lfu";
    default: return "s3fifo";
    }
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
    name_node(roles, role, index);
    status = create_node(roles, index, why_out);
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

/* ---- all -------------------------------------------------------------------------------------- */

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
yb_roles_stop(struct yb_roles **roles_in)
{
    struct yb_roles *roles = *roles_in;

    for (uint32_t i = 0; i < roles->node_count; i++) {
        if (roles->nodes[i].process != NULL) {
            role_stop(&roles->nodes[i]);
        }
    }
    if (roles->directory.process != NULL) {
        role_stop(&roles->directory);
    }
    free(roles->nodes);
    free(roles);
    *roles_in = NULL;
}

struct yb_address
yb_roles_directory_address(const struct yb_roles *roles)
{
    return roles->directory_address.items[0];
}

struct yb_address
yb_roles_node_address(const struct yb_roles *roles, uint32_t index)
{
    YB_ASSERT(index < roles->node_count);
    return roles->nodes[index].address;
}
