/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine's life, its name and its port.
 */
#include "compat/engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "compat/engine_internal.h"
#include "net/address.h"
#include "net/net.h"

#define PORT_FIRST      15000u
#define PORT_LAST       17000u
#define TIMEOUT_S       30u
#define TIMEOUT_S_LEAST 5u
#define PROBE_S         5u
#define SECONDS_MOST    86400u
#define HANDSHAKE       "P2PHANDSHAKE"

struct yb_compat_engine *
yb_compat_engine_create(void)
{
    struct yb_compat_engine *engine = calloc(1, sizeof(*engine));

    if (engine == NULL) {
        return NULL;
    }
    engine->magic = YB_COMPAT_ENGINE_MAGIC;
    engine->clock = yb_clock_system();
    yb_lock_init(&engine->lock, YB_LOCK_COMPAT_ENGINE);
    return engine;
}

void
yb_compat_engine_destroy(struct yb_compat_engine **engine_ref)
{
    struct yb_compat_engine *engine = *engine_ref;

    YB_ASSERT_OBJ(engine, YB_COMPAT_ENGINE_MAGIC);
    *engine_ref = NULL;
    yb_compat_metadata_withdraw(engine);
    if (engine->transfer != NULL) {
        yb_transfer_destroy(&engine->transfer);
    }
    yb_compat_engine_jobs_fini(engine);
    yb_compat_engine_peers_fini(engine);
    yb_compat_engine_notify_fini(engine);
    yb_compat_engine_memory_fini(engine);
    if (engine->log != NULL) {
        yb_log_destroy(&engine->log);
    }
    yb_lock_fini(&engine->lock);
    engine->magic = 0;
    free(engine);
}

/* ---- the configuration ----------------------------------------------------------------------- */

/* What the environment and a file say; a program that loads us has no command line of ours. */
static bool
load_config(struct yb_compat_engine *engine, struct yb_config *config)
{
    char program[] = "mooncake.engine";
    char *argv[] = {program, NULL};
    const struct yb_config_input input = {
        .argc = 1,
        .argv = argv,
        .environment = yb_config_environment(),
    };
    char message[YB_CONFIG_MESSAGE_MAX] = "";
    enum yb_status status;
    int rest;

    yb_config_init(config);
    status = yb_config_load(&input, config, &rest, message);
    if (engine->log == NULL) {
        const struct yb_log_options options = {
            .fd = STDERR_FILENO,
            .format = (enum yb_log_format)config->log_format,
            .level = (enum yb_log_level)config->log_level,
            .lines_per_second = config->log_lines_per_second,
            .clock = engine->clock,
        };

        (void)!yb_log_create(&options, &engine->log);
    }
    if (status != YB_OK) {
        yb_log_error(engine->log, "engine", "the environment is refused",
                     yb_log_str("why", message));
    }
    return status == YB_OK;
}

/* A number that the environment gives under a foreign name, or `usual`. */
static uint32_t
foreign_number(struct yb_compat_engine *engine, const char *name, uint32_t low, uint32_t high,
               uint32_t usual)
{
    const char *text = yb_config_foreign(name);
    char *end = NULL;
    unsigned long value;

    if (text == NULL) {
        return usual;
    }
    value = strtoul(text, &end, 10);
    if (end == text || *end != '\0' || text[0] == '-' || value > high) {
        yb_log_warn(engine->log, "engine", "no usable number in the environment; the default holds",
                    yb_log_str("name", name), yb_log_str("value", text),
                    yb_log_u64("default", usual));
        return usual;
    }
    return value < low ? low : (uint32_t)value;
}

static bool
foreign_flag(const char *name)
{
    const char *text = yb_config_foreign(name);

    return text != NULL && strcmp(text, "0") != 0 && strcasecmp(text, "false") != 0 &&
           strcasecmp(text, "off") != 0 && strcasecmp(text, "no") != 0;
}

static void
read_foreign(struct yb_compat_engine *engine)
{
    const char *cluster = yb_config_foreign("MC_METADATA_CLUSTER_ID");

    engine->timeout_ns = YB_NS_PER_S * foreign_number(engine, "MC_TRANSFER_TIMEOUT",
                                                      TIMEOUT_S_LEAST, SECONDS_MOST, TIMEOUT_S);
    engine->probe_ns = YB_NS_PER_S * foreign_number(engine, "MC_HANDSHAKE_CONNECT_TIMEOUT", 1,
                                                    SECONDS_MOST, PROBE_S);
    (void)snprintf(engine->cluster, sizeof(engine->cluster), "%s", cluster != NULL ? cluster : "");
}

/* ---- names and servers ----------------------------------------------------------------------- */

/* What initialize was given, understood. */
struct wanted {
    char host[YB_COMPAT_NAME_BYTES]; /* Without port and brackets. */
    struct yb_endpoint_text endpoint;
    bool handshake;
};

/* "host:8000:npu_0" is a host with a port and a device, which is its own business. */
static bool
read_host(struct yb_compat_engine *engine, const char *text, struct wanted *wanted)
{
    char why[YB_ADDRESS_WHY_BYTES] = "it is empty";
    char plain[YB_COMPAT_NAME_BYTES];
    char *device;

    (void)snprintf(plain, sizeof(plain), "%s", text != NULL ? text : "");
    device = strstr(plain, ":npu_");
    if (device != NULL) {
        *device = '\0';
    }
    if (plain[0] == '\0' || yb_endpoint_parse(plain, &wanted->endpoint, why) != YB_OK) {
        yb_log_error(engine->log, "engine", "local_hostname is no host and no host:port",
                     yb_log_str("local_hostname", plain), yb_log_str("why", why));
        return false;
    }
    (void)snprintf(wanted->host, sizeof(wanted->host), "%s%s%s", wanted->endpoint.host,
                   wanted->endpoint.scope[0] != '\0' ? "%" : "", wanted->endpoint.scope);
    return true;
}

/* Which server of names there is; engine->server gets one that can be asked. */
static bool
read_server(struct yb_compat_engine *engine, const struct yb_compat_engine_options *options,
            struct wanted *wanted)
{
    const char *given = options->metadata_server != NULL ? options->metadata_server : "";
    const char *rest = strstr(given, "://");
    const char *type = options->metadata_type;
    char server[YB_COMPAT_NAME_BYTES];
    int length;

    if (strcmp(given, HANDSHAKE) == 0) {
        wanted->handshake = true;
        return true;
    }
    if (given[0] == '\0') {
        yb_log_error(engine->log, "engine", "no metadata_server; give \"" HANDSHAKE "\"");
        return false;
    }
    length = rest != NULL || type == NULL || type[0] == '\0'
                 ? snprintf(server, sizeof(server), "%s", given)
                 : snprintf(server, sizeof(server), "%s://%s", type, given);
    if (length < 0 || (size_t)length >= sizeof(server)) {
        yb_log_error(engine->log, "engine", "metadata_server is too long");
        return false;
    }
    if (strncmp(server, "http://", 7) == 0 || strncmp(server, "https://", 8) == 0) {
        memcpy(engine->server, server, sizeof(engine->server));
        return true;
    }
    yb_log_info(engine->log, "engine",
                "this metadata server is not asked: names are used as addresses",
                yb_log_str("server", server));
    return true;
}

/* ---- listening ------------------------------------------------------------------------------- */

/* Where to listen for a host: on its own address; but a name may mean another address to others
 * than to this machine, so then on all. */
static const char *
listen_host(const struct wanted *wanted, bool everywhere)
{
    const bool local = strcasecmp(wanted->host, "localhost") == 0;

    return everywhere || (wanted->endpoint.kind == YB_ENDPOINT_NAME && !local) ? "*" : wanted->host;
}

void
yb_compat_engine_address(const char *host, uint16_t port, char text_out[YB_COMPAT_NAME_BYTES])
{
    char number[8];

    (void)snprintf(number, sizeof(number), "%u", port);
    (void)!yb_address_join(host, number, text_out, YB_COMPAT_NAME_BYTES);
}

/* Whether nobody listens there; to find that out costs less than to make an engine. */
static bool
looks_free(const char *listen)
{
    struct yb_endpoint_text endpoint;
    struct yb_address_list addresses;
    struct sockaddr_storage storage;
    char why[YB_ADDRESS_WHY_BYTES];
    socklen_t length;
    bool taken;
    int one = 1;
    int fd;

    if (yb_endpoint_parse(listen, &endpoint, why) != YB_OK ||
        yb_endpoint_resolve(&endpoint, 0, &addresses, why) != YB_OK || addresses.count == 0) {
        return true; /* Whoever listens says why it cannot. */
    }
    yb_address_to_sockaddr(&addresses.items[0], &storage, &length);
    fd = socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return true;
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    taken = bind(fd, (struct sockaddr *)&storage, length) != 0 && errno == EADDRINUSE;
    (void)close(fd);
    return !taken;
}

static enum yb_status
listen_at(struct yb_compat_engine *engine, const struct yb_config *config, const char *listen,
          char *why, size_t why_bytes)
{
    const struct yb_transfer_options options = {
        .struct_bytes = sizeof(options),
        .listen = listen,
        .secret_file = config->auth_secret_file[0] != '\0' ? config->auth_secret_file : NULL,
        .tenant = config->auth_tenant,
        .insecure = true, /* As the known system; auth.require was looked at before. */
        .tls = config->tls_mode == YB_CONFIG_TLS_MODE_ON,
        .workers = config->net_workers,
        .paths = foreign_flag("MC_FORCE_TCP") ? YB_TRANSFER_PATH_TCP : 0,
    };

    if (!looks_free(listen)) {
        return YB_ADDRESS_IN_USE;
    }
    return yb_transfer_create(&options, &engine->transfer, why, why_bytes);
}

/* Listen on one port, on all interfaces if the host's address is none of this machine's. */
static enum yb_status
listen_on(struct yb_compat_engine *engine, const struct yb_config *config, struct wanted *wanted,
          uint16_t port, char why[256])
{
    char listen[YB_COMPAT_NAME_BYTES];
    enum yb_status status;

    yb_compat_engine_address(listen_host(wanted, false), port, listen);
    status = listen_at(engine, config, listen, why, 256);
    if (status == YB_INVALID || status == YB_UNREACHABLE) {
        yb_log_info(engine->log, "engine",
                    "the host's address is none of this machine's: listening on all",
                    yb_log_str("host", wanted->host));
        yb_compat_engine_address("*", port, listen);
        status = listen_at(engine, config, listen, why, 256);
    }
    engine->port = status == YB_OK ? port : 0;
    return status;
}

/* Find a free port, from a random one on, so that many engines that start do not queue up. */
static enum yb_status
listen_anywhere(struct yb_compat_engine *engine, const struct yb_config *config,
                struct wanted *wanted, char why[256])
{
    uint32_t usual = foreign_number(engine, "MC_MIN_PRC_PORT", 1, UINT16_MAX, PORT_FIRST);
    uint32_t first = foreign_number(engine, "MC_MIN_RPC_PORT", 1, UINT16_MAX, usual);
    uint32_t last = foreign_number(engine, "MC_MAX_RPC_PORT", 1, UINT16_MAX, PORT_LAST);
    uint32_t count = last >= first ? last - first + 1 : 1;
    enum yb_status status = YB_ADDRESS_IN_USE;
    uint32_t at;

    yb_net_random_system(NULL, &at, sizeof(at));
    (void)snprintf(why, 256, "all ports of %u..%u are taken", first, first + count - 1);
    for (uint32_t i = 0; i < count && status == YB_ADDRESS_IN_USE; i++) {
        status = listen_on(engine, config, wanted, (uint16_t)(first + (at + i) % count), why);
    }
    return status;
}

/* ---- initialize ------------------------------------------------------------------------------ */

static void
tell_about_trust(struct yb_compat_engine *engine, const struct yb_config *config)
{
    char address[YB_COMPAT_NAME_BYTES] = "";

    if (config->auth_secret_file[0] != '\0') {
        return;
    }
    (void)!yb_transfer_address(engine->transfer, address, sizeof(address));
    yb_log_warn(engine->log, "engine",
                "no secret: whoever reaches this port may read and write registered memory; set "
                "YUEBING_SECRET_FILE",
                yb_log_str("address", address));
}

/* Start the engine below, and take a name. */
static bool
start(struct yb_compat_engine *engine, const struct yb_config *config, struct wanted *wanted)
{
    char why[256] = "";
    bool given = wanted->endpoint.has_port && wanted->endpoint.port != 0 && !wanted->handshake;
    enum yb_status status = given ? listen_on(engine, config, wanted, wanted->endpoint.port, why)
                                  : listen_anywhere(engine, config, wanted, why);

    if (status != YB_OK) {
        yb_log_error(engine->log, "engine", "the engine cannot listen",
                     yb_log_str("host", wanted->host), yb_log_u64("port", wanted->endpoint.port),
                     yb_log_status("status", status), yb_log_str("why", why));
        return false;
    }
    if (given || engine->server[0] == '\0') {
        yb_compat_engine_address(wanted->host, engine->port, engine->name);
        return true;
    }
    memcpy(engine->name, wanted->host, sizeof(engine->name));
    return yb_compat_metadata_publish(engine, wanted->host);
}

static bool
initialize(struct yb_compat_engine *engine, const struct yb_compat_engine_options *options)
{
    struct yb_config *config = calloc(1, sizeof(*config));
    struct wanted wanted = {0};
    bool started = false;

    if (config == NULL || !load_config(engine, config)) {
        goto out;
    }
    read_foreign(engine);
    if (config->auth_require && config->auth_secret_file[0] == '\0') {
        yb_log_error(engine->log, "engine",
                     "YUEBING_REQUIRE_AUTH is set, and there is no secret: set "
                     "YUEBING_SECRET_FILE");
        goto out;
    }
    if (options->protocol != NULL && strcmp(options->protocol, "xgmi") == 0) {
        yb_log_error(engine->log, "engine", "protocol xgmi is not supported; give \"tcp\"");
        goto out;
    }
    if (!read_host(engine, options->local_hostname, &wanted) ||
        !read_server(engine, options, &wanted)) {
        goto out;
    }
    started = start(engine, config, &wanted);
    if (started) {
        tell_about_trust(engine, config);
    } else if (engine->transfer != NULL) {
        yb_transfer_destroy(&engine->transfer);
    }
out:
    free(config);
    return started;
}

int32_t
yb_compat_engine_initialize(struct yb_compat_engine *engine,
                            const struct yb_compat_engine_options *options)
{
    bool mine;
    bool started = false;

    YB_ASSERT_OBJ(engine, YB_COMPAT_ENGINE_MAGIC);
    yb_lock_acquire(&engine->lock);
    mine = !engine->initializing && !atomic_load(&engine->ready);
    engine->initializing = engine->initializing || mine;
    yb_lock_release(&engine->lock);
    if (!mine) {
        yb_log_error(engine->log, "engine", "the engine is initialized already");
        return YB_COMPAT_ENGINE_FAILED;
    }
    engine->server[0] = '\0';
    started = initialize(engine, options);
    yb_lock_acquire(&engine->lock);
    engine->initializing = false;
    atomic_store_explicit(&engine->ready, started, memory_order_release);
    yb_lock_release(&engine->lock);
    return started ? 0 : YB_COMPAT_ENGINE_FAILED;
}

/* ---- what it says of itself ------------------------------------------------------------------ */

uint16_t
yb_compat_engine_port(const struct yb_compat_engine *engine)
{
    return yb_compat_engine_ready(engine) ? engine->port : 0;
}

size_t
yb_compat_engine_name(const struct yb_compat_engine *engine, char *text_out, size_t room)
{
    const char *name = yb_compat_engine_ready(engine) ? engine->name : "";

    if (room > 0) {
        (void)snprintf(text_out, room, "%s", name);
    }
    return strlen(name);
}

struct yb_transfer *
yb_compat_engine_transfer(struct yb_compat_engine *engine)
{
    return yb_compat_engine_ready(engine) ? engine->transfer : NULL;
}
