/* SPDX-License-Identifier: Apache-2.0
 *
 * A node inside a client's process: what the daemon takes from its configuration comes from options
 * and defaults here.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "base/log.h"
#include "directory/wire/directory_wire.h"
#include "memory/shared.h"
#include "net/boot.h"
#include "net/credentials.h"
#include "node/host.h"
#include "yuebing/node.h"
#include "yuebing/version.h"

#define EMBEDDED_MAGIC    0x656d6264u /* "embd" */
#define DEFAULT_DIRECTORY "127.0.0.1:14700"
#define DEFAULT_LISTEN    "127.0.0.1"
#define DEFAULT_TRIES     20u
#define DEFAULT_OPEN_NS   (10 * YB_NS_PER_S)
#define DEFAULT_BYTES     (64ull << 20)

struct yb_node_embedded {
    uint32_t magic;
    pid_t process;
    struct yb_config config; /* Defaults of the daemon's, for what options do not name. */
    struct yb_log *log;      /* NULL: nowhere. */
    struct yb_credentials credentials;
    struct yb_hello_self self;
    struct yb_node_host *host;
};

/* Where open writes what is wrong. */
struct message {
    char *text;
    size_t bytes;
};

static enum yb_status
read_options(const struct yb_node_open_options *given, struct yb_node_open_options *options_out,
             struct message *message)
{
    struct yb_node_open_options options = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            (void)snprintf(message->text, message->bytes,
                           "options.struct_bytes is not the size of the struct");
            return YB_INVALID;
        }
        memcpy(&options, given,
               given->struct_bytes < sizeof(options) ? given->struct_bytes : sizeof(options));
    }
    options.directory = options.directory != NULL ? options.directory : DEFAULT_DIRECTORY;
    options.listen = options.listen != NULL ? options.listen : DEFAULT_LISTEN;
    options.port_tries = options.port_tries != 0 ? options.port_tries : DEFAULT_TRIES;
    options.pool_bytes = options.pool_bytes != 0 ? options.pool_bytes : DEFAULT_BYTES;
    if (options.port_min > options.port_max || (options.port_max > 0 && options.port_min == 0)) {
        (void)snprintf(message->text, message->bytes,
                       "ports %u to %u: the first must be at least 1 and at most the last",
                       options.port_min, options.port_max);
        return YB_INVALID;
    }
    *options_out = options;
    return YB_OK;
}

/* ---- what it stands on ---------------------------------------------------------------------- */

static enum yb_status
make_log(struct yb_node_embedded *node, int fd)
{
    const struct yb_log_options options = {
        .fd = fd == 0 ? STDERR_FILENO : fd,
        .level = YB_LOG_LEVEL_WARN,
        .clock = yb_clock_system(),
    };

    return fd < 0 ? YB_OK : yb_log_create(&options, &node->log);
}

static enum yb_status
make_credentials(struct yb_node_embedded *node, const struct yb_node_open_options *options,
                 struct message *message)
{
    const struct yb_credentials_options credentials = {
        .secret_file = options->secret_file,
        .tls = options->tls,
        .listens = true,
        .wall_ns = yb_clock_wall(yb_clock_system()),
    };

    return yb_credentials_load(&credentials, &node->credentials, message->text, message->bytes);
}

static void
make_self(struct yb_node_embedded *node)
{
    const struct yb_config *config = &node->config;

    node->self = (struct yb_hello_self){
        .incarnation = yb_clock_wall(yb_clock_system()),
        .boot = yb_boot_id(),
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_NODE,
        .tenant = "",
        .auth = node->credentials.auth,
        .credit_requests = config->net_request_credits,
        .credit_bytes = config->net_byte_credits,
        .body_bytes_max = (uint32_t)config->net_body_bytes_max,
        .data_bytes_max = config->net_data_bytes_max,
        .ping_interval_ms = (uint32_t)config->net_idle_ping_ms,
        .software = "yuebing " YB_VERSION_STRING,
        .port_name = "Yuebing's node",
    };
    yb_net_random_system(NULL, node->self.identity.bytes, sizeof(node->self.identity.bytes));
}

/* ---- its options ---------------------------------------------------------------------------- */

static enum yb_status
resolve(const char *what, const char *text, uint16_t port, struct yb_address_list *list_out,
        struct message *message)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = yb_endpoint_parse(text, &endpoint, why);

    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, port, list_out, why);
    }
    if (status != YB_OK) {
        (void)snprintf(message->text, message->bytes, "%s: %s", what, why);
    }
    return status;
}

static struct yb_worker_options
worker_options(const struct yb_node_embedded *node)
{
    const struct yb_config *config = &node->config;
    struct yb_worker_options options = {
        .loop = {.backend = "auto", .clock = yb_clock_system(), .spin_us = config->net_spin_us},
        .net =
            {
                .tls_server = node->credentials.tls_server,
                .tls_client = node->credentials.tls_client,
                .stream = {.congestion = "cubic",
                           .unsent_bytes_max = (uint32_t)config->net_unsent_bytes_max,
                           .user_timeout_ms = (uint32_t)config->net_frame_timeout_ms},
                .log = node->log,
                .random = yb_net_random_system,
            },
    };

    yb_net_limits_default(&options.net.limits);
    return options;
}

static enum yb_status
open_host(struct yb_node_embedded *node, const struct yb_node_open_options *options,
          struct message *message)
{
    const struct yb_config *config = &node->config;
    struct yb_node_host_options host = {
        .node =
            {
                .rack = options->rack,
                .zone = options->zone,
                .host = node->self.boot,
                .pool_bytes = options->pool_bytes,
                .huge_pages = options->huge_pages,
                .numa_node = options->numa_bind ? options->numa_node : YB_SHARED_NUMA_ANY,
                .verify = config->node_verify,
                .policy = options->policy,
                .log = node->log,
                .random = yb_net_random_system,
            },
        .self = &node->self,
        .worker = worker_options(node),
        .port_min = options->port_min,
        .port_max = options->port_max,
        .port_tries = options->port_tries,
        .replay_records = config->net_replay_records,
        .replay_bytes = config->net_replay_bytes,
        .connections_max = config->net_connections_max,
        .unauthenticated_max = config->net_unauthenticated_max,
        .secret_file = options->secret_file,
        .insecure = options->insecure,
        .tls = options->tls,
    };
    char name[YB_ADDRESS_TEXT_BYTES + 8];
    enum yb_status status;

    if ((status = resolve("directory", options->directory, YB_PORT_SERVE, &host.node.directory,
                          message)) != YB_OK ||
        (status = resolve("listen", options->listen, 0, &host.listen, message)) != YB_OK) {
        return status;
    }
    if (options->name == NULL) {
        struct yb_address bare = host.listen.items[0];

        yb_address_format(&bare, name);
        *(strrchr(name, ':') + 1) = '\0'; /* The port that it gets takes its place. */
    }
    host.node.name = options->name != NULL ? options->name : name;
    return yb_node_host_open(&host, &node->host, message->text, message->bytes);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void
destroy(struct yb_node_embedded *node)
{
    yb_credentials_unload(&node->credentials);
    if (node->log != NULL) {
        yb_log_destroy(&node->log);
    }
    node->magic = 0;
    free(node);
}

static enum yb_status
await_registered(struct yb_node_embedded *node, const char *directory, uint64_t timeout_ns,
                 struct message *message)
{
    if (yb_node_host_await_registered(node->host, timeout_ns)) {
        /* The directory remembers by name that the last one was drained before it was closed. */
        return yb_node_host_set_draining(node->host, false, timeout_ns);
    }
    (void)snprintf(message->text, message->bytes,
                   "the directory at %s did not take the node in time: is one running there, and "
                   "has it the same secret?",
                   directory);
    return YB_TIMED_OUT;
}

enum yb_status
yb_node_open(const struct yb_node_open_options *given, uint64_t timeout_ns,
             struct yb_node_embedded **node_out, char *message_out, size_t message_bytes)
{
    char unused[1];
    struct message message = {
        .text = message_out != NULL && message_bytes > 0 ? message_out : unused,
        .bytes = message_out != NULL && message_bytes > 0 ? message_bytes : sizeof(unused),
    };
    struct yb_node_embedded *node = calloc(1, sizeof(*node));
    struct yb_node_open_options options;
    enum yb_status status;

    message.text[0] = '\0';
    if (node == NULL) {
        return YB_NO_MEMORY;
    }
    node->magic = EMBEDDED_MAGIC;
    node->process = getpid();
    yb_config_init(&node->config);
    if ((status = read_options(given, &options, &message)) != YB_OK ||
        (status = make_log(node, options.log_fd)) != YB_OK ||
        (status = make_credentials(node, &options, &message)) != YB_OK) {
        destroy(node);
        return status;
    }
    make_self(node);
    status = open_host(node, &options, &message);
    if (status == YB_OK) {
        status = await_registered(node, options.directory,
                                  timeout_ns != 0 ? timeout_ns : DEFAULT_OPEN_NS, &message);
    }
    if (status != YB_OK) {
        if (node->host != NULL) {
            yb_node_host_close(&node->host);
        }
        destroy(node);
        return status;
    }
    *node_out = node;
    return YB_OK;
}

void
yb_node_close(struct yb_node_embedded **node_ref, uint64_t drain_ns)
{
    struct yb_node_embedded *node = *node_ref;
    uint64_t until_ns;

    *node_ref = NULL;
    if (node == NULL) {
        return;
    }
    YB_ASSERT_OBJ(node, EMBEDDED_MAGIC);
    if (node->process != getpid()) {
        return; /* The parent's: its threads are not here. */
    }
    until_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), drain_ns);
    if (drain_ns > 0 && yb_node_host_set_draining(node->host, true, drain_ns) == YB_OK) {
        uint64_t now_ns = yb_clock_now(yb_clock_system());

        if (!yb_node_host_await_empty(node->host, until_ns > now_ns ? until_ns - now_ns : 0)) {
            yb_log_warn(node->log, "node", "closed with blocks that are nowhere else");
        }
    }
    yb_node_host_close_port(node->host);
    yb_node_host_drain(node->host, until_ns);
    yb_node_host_close(&node->host);
    destroy(node);
}

void
yb_node_state(const struct yb_node_embedded *node, struct yb_node_standing *state_out)
{
    struct yb_node_host_info info;

    YB_ASSERT_OBJ(node, EMBEDDED_MAGIC);
    yb_node_host_info(node->host, &info);
    *state_out = (struct yb_node_standing){
        .identity = info.identity,
        .serving = info.incarnation != 0 && info.lease_until_ns > yb_clock_now(yb_clock_system()),
        .draining = info.state == YB_WIRE_SLOT_STATE_DRAINING,
        .capacity = info.capacity,
        .used = info.live,
        .blocks = info.blocks,
    };
    (void)snprintf(state_out->name, sizeof(state_out->name), "%s", info.name);
    yb_address_format(&info.address, state_out->address);
}
