/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/roles.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/origin.h"
#include "daemon/process_internal.h"
#include "directory/directory.h"
#include "memory/shared.h"
#include "memory/survivors.h"
#include "net/helper.h"
#include "net/role.h"
#include "node/host.h"
#include "node/media.h"

#define NAME_MAX_BYTES 64u

/* The directory of this process. Fields above the line are written before its worker starts; those
 * below by the worker at every pulse. */
struct directory_role {
    struct yb_process *process;
    struct yb_role *role; /* NULL: there is none here. */
    struct yb_id identity;
    struct yb_helper_pool *helpers; /* Takes memory for the index ahead. */
    struct yb_directory *directory;
    /* ---- */
    _Atomic uint64_t turned_ns;
    _Atomic bool rebuilding;
    _Atomic uint32_t nodes;
    const char *cluster_file;
    const char *object_store; /* May tell who we are, where there is no such file; "": none. */
};

struct yb_roles {
    struct yb_process *process;
    struct yb_address_list directory_address;
    struct directory_role directory;
    struct yb_node_host **nodes; /* Those that have started. */
    struct yb_media **media;     /* Of each; NULL: it has memory alone. */
    uint32_t node_count;
    char cluster_file[YB_CONFIG_PATH_MAX + sizeof("/cluster.json")];
};

/* ---- the end --------------------------------------------------------------------------------- */

static void
end_nodes(struct yb_roles *roles)
{
    const struct yb_process *process = roles->process;
    uint64_t until_ns;

    for (uint32_t i = 0; i < roles->node_count; i++) {
        yb_node_host_close_port(roles->nodes[i]);
    }
    /* They share one deadline. */
    until_ns = yb_clock_now(process->clock) + process->config->net_drain_ms * YB_NS_PER_MS;
    for (uint32_t i = 0; i < roles->node_count; i++) {
        yb_node_host_settle(roles->nodes[i], until_ns);
    }
    for (uint32_t i = 0; i < roles->node_count; i++) {
        yb_node_host_drain(roles->nodes[i], until_ns);
    }
    for (uint32_t i = 0; i < roles->node_count; i++) {
        yb_node_host_close(&roles->nodes[i]);
    }
    for (uint32_t i = 0; roles->media != NULL && i <= roles->node_count; i++) {
        yb_media_close(&roles->media[i]); /* The last one's node may not have started. */
    }
    free(roles->media);
    free(roles->nodes);
}

static void
end_directory(struct directory_role *here)
{
    if (here->role != NULL) {
        const struct yb_process *process = here->process;

        yb_role_close_port(here->role);
        yb_role_drain(here->role,
                      yb_clock_now(process->clock) + process->config->net_drain_ms * YB_NS_PER_MS);
        yb_role_end(here->role);
        yb_role_destroy(&here->role);
    } else if (here->directory != NULL) { /* Its worker never was. */
        yb_directory_destroy(&here->directory);
    }
    if (here->helpers != NULL) {
        yb_helper_pool_destroy(&here->helpers);
    }
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
on_begin(void *owner, struct yb_net *net)
{
    struct directory_role *here = owner;

    return yb_directory_start(here->directory, net);
}

static void
on_pulse(void *owner)
{
    struct directory_role *here = owner;

    atomic_store(&here->rebuilding, yb_directory_rebuilding(here->directory));
    atomic_store(&here->nodes, yb_directory_nodes(here->directory));
    atomic_store(&here->turned_ns, yb_clock_now(here->process->clock));
}

static void
on_stop(void *owner)
{
    struct directory_role *here = owner;

    yb_directory_stop(here->directory);
}

static bool
on_idle(void *owner)
{
    struct directory_role *here = owner;

    return yb_directory_idle(here->directory);
}

static void
on_destroy(void *owner)
{
    struct directory_role *here = owner;

    yb_directory_destroy(&here->directory);
}

static const struct yb_role_events directory_events = {
    .begin = on_begin,
    .pulse = on_pulse,
    .stop = on_stop,
    .idle = on_idle,
    .destroy = on_destroy,
};

/* Make the index, and what it stands on. */
static enum yb_status
create_directory(struct directory_role *here, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = here->process;
    const struct yb_config *config = process->config;
    struct yb_directory_options options = {
        .cluster_file = here->cluster_file,
        .lease_ms = (uint32_t)config->directory_lease_ms,
        .records_max = config->directory_records,
        .writes_max = config->directory_writes,
        .events_max = config->directory_events,
        .stats = process->stats,
        .log = process->log,
        .random = yb_net_random_system,
    };
    struct yb_origin *origin = NULL;
    enum yb_status status = yb_helper_pool_create(1, 1, &here->helpers);

    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        return status;
    }
    if (here->object_store[0] != '\0') {
        status = yb_origin_look(process, here->object_store, here->cluster_file, &origin, why_out);
    }
    if (status == YB_OK) {
        options.helpers = here->helpers;
        options.known = yb_origin_known(origin);
        status = yb_directory_create(&options, &here->directory, why_out, YB_PROCESS_WHY_BYTES);
    }
    yb_origin_free(&origin);
    return status;
}

/* Make its worker. */
static enum yb_status
create_role(struct directory_role *here, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = here->process;
    const struct yb_config *config = process->config;
    struct yb_role_options options = {
        .name = "directory",
        .self = process->self,
        .service = yb_directory_service(here->directory),
        .replay_records = config->net_replay_records,
        .replay_bytes = config->net_replay_bytes,
        .insecure = config->auth_insecure,
        .connections_max = process->connections_max,
        .unauthenticated_max = config->net_unauthenticated_max,
        .events = &directory_events,
        .owner = here,
    };
    enum yb_status status;

    yb_process_net_options(process, &options.worker.loop, &options.worker.net);
    options.self.role = YB_WIRE_ROLE_DIRECTORY;
    options.self.tenant = "";
    options.self.identity = here->identity;
    options.self.seed_check = yb_directory_seed_check(here->directory);
    options.self.cluster = yb_id_is_none(options.self.cluster)
                               ? yb_directory_cluster(here->directory)
                               : options.self.cluster;
    status = yb_role_create(&options, &here->role);
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
    }
    return status;
}

static enum yb_status
start_directory(struct yb_roles *roles, const char *listen, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct directory_role *here = &roles->directory;
    struct yb_address_list candidates;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = resolve("net.listen", listen, YB_PORT_SERVE, &candidates, why_out);

    if (status != YB_OK) {
        return status;
    }
    here->process = roles->process;
    yb_net_random_system(NULL, &here->identity, sizeof(here->identity));
    if ((status = create_directory(here, why_out)) != YB_OK ||
        (status = create_role(here, why_out)) != YB_OK) {
        return status;
    }
    status = yb_role_listen(here->role, &candidates, why);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", why);
        return status;
    }
    roles->directory_address = (struct yb_address_list){.count = 1};
    roles->directory_address.items[0] = yb_role_address(here->role);
    return yb_role_begin(here->role);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static const char *
policy_name(const struct yb_config *config)
{
    static const char *const names[] = {
#define X(name, word) [name] = (word),
        YB_CONFIG_CHOICES_node_policy(X)
#undef X
    };

    return names[config->node_policy];
}

static void
name_node(const struct yb_roles *roles, uint32_t nodes, uint32_t index,
          char name_out[NAME_MAX_BYTES])
{
    const char *name = roles->process->config->node_name;
    char host[NAME_MAX_BYTES / 2];

    if (name[0] == '\0') {
        if (gethostname(host, sizeof(host)) != 0) {
            (void)snprintf(host, sizeof(host), "node");
        }
        host[sizeof(host) - 1] = '\0';
        (void)snprintf(name_out, NAME_MAX_BYTES, "%s-%d-%u", host, (int)getpid(), index);
    } else if (nodes == 1) {
        (void)snprintf(name_out, NAME_MAX_BYTES, "%.63s", name);
    } else {
        (void)snprintf(name_out, NAME_MAX_BYTES, "%.50s-%u", name, index);
    }
}

static struct yb_node_options
node_options(const struct yb_roles *roles, uint32_t nodes)
{
    static const char *const write_policies[] = {
        [YB_CONFIG_NODE_WRITE_POLICY_BACK] = "back",
        [YB_CONFIG_NODE_WRITE_POLICY_THROUGH] = "through",
        [YB_CONFIG_NODE_WRITE_POLICY_SELECTIVE] = "selective",
    };
    const struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;

    return (struct yb_node_options){
        .directory = roles->directory_address,
        .rack = config->node_rack,
        .zone = config->node_zone,
        .host = process->self.boot,
        .pool_bytes = config->node_memory / nodes,
        .huge_pages = config->node_huge_pages,
        .numa_node = config->node_numa == UINT32_MAX ? YB_SHARED_NUMA_ANY : config->node_numa,
        .verify = config->node_verify,
        .policy = policy_name(config),
        .high_permille = config->node_high_permille,
        .low_permille = config->node_low_permille,
        .ungranted_permille = config->node_ungranted_permille,
        .pinned_permille = config->node_pinned_permille,
        .write_policy = write_policies[config->node_write_policy],
        .write_accesses = config->node_write_accesses,
        .stats = process->stats,
        .log = process->log,
        .random = yb_net_random_system,
    };
}

/* Memory of the node's life before this one, which its readers still map, is needed beside the new
 * one (RULES C3): say so before that is allocated. */
static void
tell_survivors(struct yb_log *log, const char *label)
{
    struct yb_survivors found;
    char pids[YB_SURVIVORS_NAMED_MAX * 12] = "";

    yb_survivors_find(label, &found);
    for (uint32_t i = 0; i < found.count && i < YB_SURVIVORS_NAMED_MAX; i++) {
        size_t used = strlen(pids);

        (void)snprintf(pids + used, sizeof(pids) - used, "%s%d", i > 0 ? " " : "", found.pids[i]);
    }
    if (found.count > 0) {
        yb_log_warn(log, "node", "memory of this node's last life is still mapped",
                    yb_log_u64("bytes", found.bytes), yb_log_u64("processes", found.count),
                    yb_log_str("pids", pids),
                    yb_log_str("remedy", "they give it back with the blocks that they borrowed; "
                                         "end them if the machine has no room for both"));
    }
}

/* The media of a node below its memory. One that cannot have them lives on without. */
static void
open_media(struct yb_roles *roles, uint32_t nodes, struct yb_node_host_options *host,
           char why_out[YB_PROCESS_WHY_BYTES])
{
    static const char *const ios[] = {[YB_CONFIG_NODE_SSD_IO_AUTO] = "auto",
                                      [YB_CONFIG_NODE_SSD_IO_IO_URING] = "io_uring",
                                      [YB_CONFIG_NODE_SSD_IO_THREADS] = "threads"};
    const struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;
    struct yb_media **media = &roles->media[roles->node_count];
    char folder[YB_CONFIG_PATH_MAX + 16];
    struct yb_media_options options = {
        .data_dir = config->node_data_dir,
        .object_store = config->node_object_store,
        .name = host->node.name,
        .named = config->node_name[0] != '\0',
        .ssd_bytes = config->node_ssd_bytes / nodes,
        .ssd_write_budget = config->node_ssd_write_budget / nodes,
        .ssd_io = ios[config->node_ssd_io],
        .packed = config->node_object_layout == YB_CONFIG_NODE_OBJECT_LAYOUT_PACKED,
        .random = yb_net_random_system,
        .log = process->log,
        .stats = process->stats,
    };

    if (config->node_data_dir[0] == '\0' && config->node_object_store[0] == '\0') {
        return;
    }
    if (nodes > 1 && config->node_data_dir[0] != '\0') {
        (void)mkdir(config->node_data_dir, 0700);
        (void)snprintf(folder, sizeof(folder), "%s/%u", config->node_data_dir, roles->node_count);
        options.data_dir = folder;
    }
    if (yb_media_open(&options, media, why_out, YB_PROCESS_WHY_BYTES) != YB_OK) {
        yb_log_error(process->log, "node", "nothing is kept below memory",
                     yb_log_str("why", why_out));
        why_out[0] = '\0';
        return;
    }
    host->node.name = yb_media_name(*media);
    host->node.pool_label = yb_media_label(*media);
    if (host->node.pool_label != NULL) {
        tell_survivors(process->log, host->node.pool_label);
    }
    host->node.tiers = yb_media_tiers(*media, &host->node.tier_count);
}

static enum yb_status
start_nodes(struct yb_roles *roles, const struct yb_roles_options *options,
            char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = roles->process;
    const struct yb_config *config = process->config;
    struct yb_node_host_options host = {
        .node = node_options(roles, options->nodes),
        .self = &process->self,
        .replay_records = config->net_replay_records,
        .replay_bytes = config->net_replay_bytes,
        .connections_max = process->connections_max,
        .unauthenticated_max = config->net_unauthenticated_max,
        .secret_file = config->auth_secret_file[0] != '\0' ? config->auth_secret_file : NULL,
        .insecure = config->auth_insecure,
        .tls = config->tls_mode != YB_CONFIG_TLS_MODE_OFF,
    };
    enum yb_status status = resolve("node.listen", options->node_listen, 0, &host.listen, why_out);

    if (status != YB_OK) {
        return status;
    }
    roles->nodes = calloc(options->nodes, sizeof(struct yb_node_host *));
    roles->media = calloc(options->nodes + 1, sizeof(struct yb_media *));
    if (roles->nodes == NULL || roles->media == NULL) {
        return YB_NO_MEMORY;
    }
    yb_process_net_options(process, &host.worker.loop, &host.worker.net);
    while (status == YB_OK && roles->node_count < options->nodes) {
        char name[NAME_MAX_BYTES];

        name_node(roles, options->nodes, roles->node_count, name);
        host.node.name = name;
        host.node.pool_label = NULL;
        host.node.tiers = NULL;
        host.node.tier_count = 0;
        if (options->tiers != NULL) {
            host.node.tiers = options->tiers;
            host.node.tier_count = options->tier_count;
        } else {
            open_media(roles, options->nodes, &host, why_out);
        }
        status = yb_node_host_open(&host, &roles->nodes[roles->node_count], why_out,
                                   YB_PROCESS_WHY_BYTES);
        roles->node_count += status == YB_OK ? 1 : 0;
        for (uint32_t i = 0; i < host.listen.count; i++) {
            host.listen.items[i].port = 0; /* The next one takes any free port. */
        }
    }
    if (status == YB_UNSUPPORTED && process->config->net_io != YB_CONFIG_NET_IO_AUTO) {
        yb_process_explain_net(process, status, why_out);
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
    roles->directory.cluster_file = process->config->directory_cluster_file;
    roles->directory.object_store = process->config->directory_object_store;
    if (roles->directory.object_store[0] == '\0' && options->tiers == NULL) {
        roles->directory.object_store = process->config->node_object_store;
    }
    if (options->nodes > 0 && roles->directory.cluster_file[0] == '\0' &&
        process->config->node_data_dir[0] != '\0') {
        /* Blocks that outlive the process are worth nothing without the seed of their keys. */
        (void)mkdir(process->config->node_data_dir, 0700);
        (void)snprintf(roles->cluster_file, sizeof(roles->cluster_file), "%s/cluster.json",
                       process->config->node_data_dir);
        roles->directory.cluster_file = roles->cluster_file;
    }
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
    end_nodes(roles);
    end_directory(&roles->directory);
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

        if (!yb_node_host_await_registered(roles->nodes[i],
                                           until_ns > now_ns ? until_ns - now_ns : 0)) {
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
    return roles->node_count + (roles->directory.role != NULL ? 1 : 0);
}

static void
directory_info(const struct directory_role *here, struct yb_role_info *info_out)
{
    *info_out = (struct yb_role_info){
        .directory = true,
        .name = "directory",
        .address = yb_role_address(here->role),
        .identity = here->identity,
        .io = yb_loop_io(yb_worker_loop(yb_role_worker(here->role)))->ops->name,
        .turned_ns = atomic_load(&here->turned_ns),
        .rebuilding = atomic_load(&here->rebuilding),
        .nodes = atomic_load(&here->nodes),
    };
}

void
yb_roles_info(const struct yb_roles *roles, uint32_t index, struct yb_role_info *info_out)
{
    uint32_t first = roles->directory.role != NULL ? 1 : 0; /* Of the nodes. */
    struct yb_node_host_info node;

    YB_ASSERT(index < yb_roles_count(roles));
    if (index < first) {
        directory_info(&roles->directory, info_out);
        return;
    }
    yb_node_host_info(roles->nodes[index - first], &node);
    *info_out = (struct yb_role_info){
        .name = node.name,
        .address = node.address,
        .identity = node.identity,
        .io = node.io,
        .turned_ns = node.turned_ns,
        .registered = node.incarnation != 0,
        .lease_until_ns = node.lease_until_ns,
        .state = node.state,
    };
}

uint32_t
yb_roles_tiers(const struct yb_roles *roles, uint32_t index,
               struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX])
{
    uint32_t first = roles->directory.role != NULL ? 1 : 0;

    YB_ASSERT(index < yb_roles_count(roles));
    return index < first ? 0 : yb_node_host_tiers(roles->nodes[index - first], infos_out);
}

const char *
yb_roles_word(const struct yb_roles *roles, char name_out[YB_ROLES_NAME_BYTES])
{
    uint32_t directories = 0;
    uint32_t nodes = 0;

    name_out[0] = '\0';
    for (uint32_t i = 0; i < yb_roles_count(roles); i++) {
        struct yb_role_info info;

        yb_roles_info(roles, i, &info);
        directories += info.directory;
        if (!info.directory && nodes++ == 0) {
            (void)snprintf(name_out, YB_ROLES_NAME_BYTES, "%.63s", info.name);
        }
    }
    if (nodes == 0) {
        return directories == 0 ? "conductor" : "directory";
    }
    return directories == 0 ? "node" : "serve";
}
