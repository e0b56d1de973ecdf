/* SPDX-License-Identifier: Apache-2.0
 *
 * Joining a cluster, and leaving it: the client, and nodes in this process that are the segments.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "client/beside.h"
#include "compat/store_internal.h"
#include "memory/memory_type.h"
#include "net/address.h"

#define MASTER_PORT   50051u
#define OPEN_NS       (10 * YB_NS_PER_S)
#define SEEN_NS       (5 * YB_NS_PER_S) /* Until the directory's answer names our segment. */
#define LOOK_AGAIN_NS (20 * YB_NS_PER_MS)
#define PORT_MIN      12300u
#define PORT_MAX      14300u
#define PORT_TRIES    20u
#define SEGMENT_MIN   1024u /* Bytes; of the known system. */
#define POOL_MIN      (1ull << 20)
#define DRAIN_NS      (2 * YB_NS_PER_S)
#define MESSAGE_BYTES 1536u
#define NODES_MAX     1024u
#define COPIES_MAX    1024u /* At a time, with device memory. */

/* ---- arguments ----------------------------------------------------------------------------- */

static int32_t
refuse(struct yb_compat_store *store, const char *what, const char *why)
{
    yb_log_error(store->log, "store", "setup is refused", yb_log_str("argument", what),
                 yb_log_str("reason", why));
    return YB_COMPAT_INVALID_PARAMS;
}

static uint16_t
port_of(const char *name, uint16_t otherwise)
{
    const char *text = yb_config_foreign(name);
    char *end = NULL;
    long port = text != NULL ? strtol(text, &end, 10) : 0;

    return text != NULL && *end == '\0' && port > 0 && port <= UINT16_MAX ? (uint16_t)port
                                                                          : otherwise;
}

/* Where the directory is. Other stores of addresses are not ours. */
static int32_t
read_master(struct yb_compat_store *store, const char *master)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];

    if (master == NULL || master[0] == '\0') {
        return refuse(store, "master_server_addr", "empty: give host:port of mooncake_master");
    }
    if (strstr(master, "://") != NULL) {
        return refuse(store, "master_server_addr",
                      "masters are found by host:port here, not through another service");
    }
    if (yb_endpoint_parse(master, &endpoint, why) != YB_OK) {
        return refuse(store, "master_server_addr", why);
    }
    endpoint.port = endpoint.has_port ? endpoint.port : MASTER_PORT;
    endpoint.literal.port = endpoint.port;
    endpoint.has_port = true;
    yb_endpoint_format(&endpoint, store->directory);
    return YB_COMPAT_OK;
}

/* Who we are: the segment's name is the text that was given, with the port that it gets. */
static int32_t
read_hostname(struct yb_compat_store *store, const char *hostname)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    char host[YB_ENDPOINT_TEXT_BYTES];

    if (hostname == NULL || hostname[0] == '\0') {
        return refuse(store, "local_hostname", "empty: give this host's name or address");
    }
    if (yb_endpoint_parse(hostname, &endpoint, why) != YB_OK) {
        return refuse(store, "local_hostname", why);
    }
    yb_endpoint_format(&endpoint, store->listen);
    endpoint.has_port = false;
    endpoint.port = endpoint.literal.port = 0;
    yb_endpoint_format(&endpoint, host);
    if (strlen(host) + sizeof(":65535") > sizeof(store->hostname)) {
        return refuse(store, "local_hostname", "longer than 57 characters: give an address");
    }
    (void)snprintf(store->hostname, sizeof(store->hostname), "%.56s:", host);
    return YB_COMPAT_OK;
}

/* The secret, if there is one; without, everything is open, as the known system is. */
static int32_t
read_environment(struct yb_compat_store *store, bool *tls_out)
{
    char name[] = "store";
    char *argv[] = {name, NULL};
    const struct yb_config_input input = {
        .argc = 1, .argv = argv, .environment = yb_config_environment()};
    struct yb_config *config = calloc(1, sizeof(*config));
    char message[YB_CONFIG_MESSAGE_MAX];
    int32_t code = YB_COMPAT_OK;
    int rest;

    if (config == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    if (yb_config_load(&input, config, &rest, message) != YB_OK) {
        code = refuse(store, "environment", message);
    } else if (config->auth_secret_file[0] == '\0' && config->auth_require) {
        code = refuse(store, "YUEBING_REQUIRE_AUTH",
                      "there is no secret: name its file by YUEBING_SECRET_FILE");
    } else if (config->auth_secret_file[0] == '\0') {
        yb_log_warn(store->log, "store",
                    "no secret: whoever reaches the ports may do anything; name a file by "
                    "YUEBING_SECRET_FILE");
    }
    (void)snprintf(store->secret_file, sizeof(store->secret_file), "%s", config->auth_secret_file);
    *tls_out = config->tls_mode != YB_CONFIG_TLS_MODE_OFF;
    free(config);
    return code;
}

static int32_t
read_setup(struct yb_compat_store *store, const struct yb_compat_setup *setup, bool *tls_out)
{
    int32_t code;

    if (setup->protocol == NULL || setup->protocol[0] == '\0') {
        return refuse(store, "protocol", "empty: say tcp");
    }
    if (setup->segment_bytes != 0 && setup->segment_bytes < SEGMENT_MIN) {
        return refuse(store, "global_segment_size", "0, or at least 1024 bytes");
    }
    if ((code = read_master(store, setup->master)) != YB_COMPAT_OK ||
        (code = read_hostname(store, setup->local_hostname)) != YB_COMPAT_OK ||
        (code = read_environment(store, tls_out)) != YB_COMPAT_OK) {
        return code;
    }
    if (setup->ssd_offload) {
        yb_log_warn(store->log, "store", "values are kept in memory only; the disk is not used");
    }
    return YB_COMPAT_OK;
}

/* ---- segments ------------------------------------------------------------------------------ */

/* What segments are opened with, but for their sizes. */
static void
segment_options(struct yb_compat_store *store, bool tls)
{
    store->segment = (struct yb_node_open_options){
        .struct_bytes = sizeof(store->segment),
        .directory = store->directory,
        .listen = store->listen,
        .port_min = port_of("MC_STORE_CLIENT_MIN_PORT", PORT_MIN),
        .port_max = port_of("MC_STORE_CLIENT_MAX_PORT", PORT_MAX),
        .port_tries = PORT_TRIES,
        .secret_file = store->secret_file[0] != '\0' ? store->secret_file : NULL,
        .tls = tls,
        .insecure = store->secret_file[0] == '\0',
    };
    if (store->segment.port_min > store->segment.port_max) {
        store->segment.port_max = store->segment.port_min;
    }
}

static bool
is_member(struct yb_client *client, const char *name)
{
    struct yb_client_node *nodes = calloc(NODES_MAX, sizeof(*nodes));
    uint32_t count = 0;
    bool found = false;

    if (nodes != NULL && yb_client_nodes(client, nodes, NODES_MAX, &count) == YB_OK) {
        count = count < NODES_MAX ? count : NODES_MAX;
        for (uint32_t i = 0; i < count && !found; i++) {
            found = strcmp(nodes[i].name, name) == 0;
        }
    }
    free(nodes);
    return found;
}

/* Let the client know the new segment, so that the first put finds it. */
static void
await_member(struct yb_compat_store *store, struct yb_client *client, const char *name)
{
    uint64_t until_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), SEEN_NS);

    while (!is_member(client, name) && yb_clock_now(yb_clock_system()) < until_ns) {
        yb_client_look_again(client);
        yb_lock_acquire(&store->lock);
        (void)yb_lock_wait(&store->lock, &store->changed, LOOK_AGAIN_NS);
        yb_lock_release(&store->lock);
    }
}

uint64_t
yb_compat_capacity(struct yb_client *client)
{
    struct yb_client_node *nodes = calloc(NODES_MAX, sizeof(*nodes));
    uint64_t capacity = 0;
    uint32_t count = 0;

    if (nodes != NULL && yb_client_nodes(client, nodes, NODES_MAX, &count) == YB_OK) {
        count = count < NODES_MAX ? count : NODES_MAX;
        for (uint32_t i = 0; i < count; i++) {
            capacity += nodes[i].capacity;
        }
    }
    free(nodes);
    return capacity;
}

static int32_t
open_segment(struct yb_compat_store *store, struct yb_client *client,
             const struct yb_node_open_options *options, struct yb_node_embedded **node_out)
{
    char message[MESSAGE_BYTES] = "";
    struct yb_node_standing standing;
    enum yb_status status = yb_node_open(options, OPEN_NS, node_out, message, sizeof(message));

    if (status != YB_OK) {
        yb_log_error(store->log, "store", "the segment cannot be given",
                     yb_log_status("status", status), yb_log_str("reason", message));
        return yb_compat_code(status, YB_COMPAT_CALL_SETUP);
    }
    yb_node_state(*node_out, &standing);
    await_member(store, client, standing.name);
    return YB_COMPAT_OK;
}

int32_t
yb_compat_segment_open(struct yb_compat_store *store, struct yb_client *client, uint64_t bytes,
                       struct yb_node_embedded **node_out)
{
    struct yb_node_open_options options = store->segment;
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    char host[YB_ENDPOINT_TEXT_BYTES];
    char name[YB_ENDPOINT_TEXT_BYTES + 1];

    if (yb_endpoint_parse(store->listen, &endpoint, why) != YB_OK) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    endpoint.has_port = false; /* That port has a segment already. */
    endpoint.port = endpoint.literal.port = 0;
    yb_endpoint_format(&endpoint, host);
    (void)snprintf(name, sizeof(name), "%s:", host);
    options.listen = host;
    options.name = name;
    options.pool_bytes = bytes > POOL_MIN ? bytes : POOL_MIN;
    return open_segment(store, client, &options, node_out);
}

/* ---- setup --------------------------------------------------------------------------------- */

static int32_t
open_client(struct yb_compat_store *store, const struct yb_compat_setup *setup, bool tls)
{
    const struct yb_client_options options = {
        .struct_bytes = sizeof(options),
        .directory = store->directory,
        .secret_file = store->secret_file[0] != '\0' ? store->secret_file : NULL,
        .tenant = store->tenant,
        .tls = tls,
    };
    const struct yb_memory_staging staging = {.queues = COPIES_MAX};
    char message[MESSAGE_BYTES] = "";
    enum yb_status status = yb_memory_create(&staging, &store->memory, NULL, 0);

    if (status == YB_OK) {
        status = yb_client_open(&options, OPEN_NS, &store->client, message, sizeof(message));
    }

    if (status != YB_OK) {
        yb_log_error(store->log, "store", "cannot join", yb_log_status("status", status),
                     yb_log_str("reason", message));
    }
    return yb_compat_code(status, YB_COMPAT_CALL_SETUP);
}

/* Append the port by which we are known: the segment's, or that of the client's engine. */
static void
finish_hostname(struct yb_compat_store *store)
{
    size_t length = strlen(store->hostname);
    char engine[YB_ADDRESS_TEXT_BYTES] = "";
    struct yb_node_standing standing;
    const char *port;

    if (store->segments[0] != NULL) {
        yb_node_state(store->segments[0], &standing);
        (void)snprintf(store->hostname, sizeof(store->hostname), "%.63s", standing.name);
    } else {
        const char *given = strrchr(store->listen, ':');

        if (yb_client_engine_address(store->client, engine, sizeof(engine)) != YB_OK) {
            engine[0] = '\0';
        }
        port = given != NULL && strchr(given, ']') == NULL ? given : strrchr(engine, ':');
        (void)snprintf(store->hostname + length, sizeof(store->hostname) - length, "%.5s",
                       port != NULL ? port + 1 : "0");
    }
}

static int32_t
join(struct yb_compat_store *store, const struct yb_compat_setup *setup)
{
    bool tls = false;
    int32_t code = read_setup(store, setup, &tls);

    if (code != YB_COMPAT_OK) {
        return code;
    }
    store->local_buffer_bytes = setup->local_buffer_bytes;
    (void)snprintf(store->tenant, sizeof(store->tenant), "%s",
                   setup->tenant != NULL && setup->tenant[0] != '\0' ? setup->tenant : "default");
    segment_options(store, tls);
    code = open_client(store, setup, tls);
    if (code == YB_COMPAT_OK && setup->segment_bytes > 0 &&
        strcmp(setup->protocol, "rpc_only") != 0) {
        struct yb_node_open_options options = store->segment;

        options.name = store->hostname;
        options.pool_bytes = setup->segment_bytes > POOL_MIN ? setup->segment_bytes : POOL_MIN;
        code = open_segment(store, store->client, &options, &store->segments[0]);
    }
    if (code == YB_COMPAT_OK) {
        finish_hostname(store);
    } else {
        yb_compat_store_shut(store);
    }
    return code;
}

int32_t
yb_compat_store_setup(struct yb_compat_store *store, const struct yb_compat_setup *setup)
{
    bool begun = false;
    int32_t code;

    YB_ASSERT_OBJ(store, YB_COMPAT_STORE_MAGIC);
    if (store->process != getpid()) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    yb_lock_acquire(&store->lock);
    if (store->state == YB_COMPAT_STORE_IDLE) {
        store->state = YB_COMPAT_STORE_OPENING;
        begun = true;
    }
    yb_lock_release(&store->lock);
    if (!begun) {
        return refuse(store, "store", "it is set up already");
    }
    code = join(store, setup);
    yb_lock_acquire(&store->lock);
    store->state = code == YB_COMPAT_OK ? YB_COMPAT_STORE_OPEN : YB_COMPAT_STORE_IDLE;
    (void)pthread_cond_broadcast(&store->changed);
    yb_lock_release(&store->lock);
    return code;
}

/* Whether somebody else could take what our segments hold. */
static bool
has_heirs(struct yb_compat_store *store)
{
    struct yb_client_node *nodes = calloc(NODES_MAX, sizeof(*nodes));
    uint32_t count = 0;
    uint32_t others = 0;

    if (nodes != NULL && yb_client_nodes(store->client, nodes, NODES_MAX, &count) == YB_OK) {
        count = count < NODES_MAX ? count : NODES_MAX;
        for (uint32_t i = 0; i < count; i++) {
            others += strcmp(nodes[i].state, "serving") == 0 && nodes[i].used < nodes[i].capacity;
        }
    }
    for (uint32_t i = 0; i < YB_COMPAT_SEGMENTS_MAX; i++) {
        others -= others > 0 && store->segments[i] != NULL ? 1 : 0;
    }
    free(nodes);
    return others > 0;
}

void
yb_compat_store_shut(struct yb_compat_store *store)
{
    uint64_t drain_ns = store->client != NULL && has_heirs(store) ? DRAIN_NS : 0;

    if (store->client != NULL) {
        yb_compat_sessions_end(store, store->client);
    }
    for (uint32_t i = 0; i < YB_COMPAT_SEGMENTS_MAX; i++) {
        yb_node_close(&store->segments[i], drain_ns);
    }
    yb_client_close(&store->client);
    if (store->memory != NULL) {
        yb_memory_destroy(&store->memory);
    }
    store->region_count = 0;
    store->hostname[0] = '\0';
}
