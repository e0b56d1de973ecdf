/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/process.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "daemon/admin.h"
#include "daemon/process_internal.h"
#include "net/boot.h"
#include "yuebing/version.h"

/* The parameters are checked against their rows already; these tables name the values. */
static const uint8_t wire_roles[] = {
    [YB_CONFIG_AUTH_ROLE_CLIENT] = YB_WIRE_ROLE_CLIENT,
    [YB_CONFIG_AUTH_ROLE_NODE] = YB_WIRE_ROLE_NODE,
    [YB_CONFIG_AUTH_ROLE_DIRECTORY] = YB_WIRE_ROLE_DIRECTORY,
    [YB_CONFIG_AUTH_ROLE_ADMIN] = YB_WIRE_ROLE_ADMIN,
};

static const enum yb_log_level log_levels[] = {
    [YB_CONFIG_LOG_LEVEL_ERROR] = YB_LOG_LEVEL_ERROR,
    [YB_CONFIG_LOG_LEVEL_WARN] = YB_LOG_LEVEL_WARN,
    [YB_CONFIG_LOG_LEVEL_INFO] = YB_LOG_LEVEL_INFO,
    [YB_CONFIG_LOG_LEVEL_DEBUG] = YB_LOG_LEVEL_DEBUG,
    [YB_CONFIG_LOG_LEVEL_TRACE] = YB_LOG_LEVEL_TRACE,
};

static const char *
io_choice(const struct yb_config *config)
{
    return yb_config_rows()[YB_CONFIG_ROW_net_io].choices[config->net_io];
}

/* ---- who we are ---------------------------------------------------------------------------- */

static void
make_self(struct yb_process *process, const char *port_name)
{
    const struct yb_config *config = process->config;
    uint8_t role = wire_roles[config->auth_role];

    process->self = (struct yb_hello_self){
        .incarnation = yb_clock_wall(process->clock),
        .cluster = config->cluster_id,
        .boot = yb_boot_id(),
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = role == YB_WIRE_ROLE_CLIENT ? config->auth_tenant : "",
        .auth = process->credentials.auth,
        .credit_requests = config->net_request_credits,
        .credit_bytes = config->net_byte_credits,
        .body_bytes_max = (uint32_t)config->net_body_bytes_max,
        .data_bytes_max = config->net_data_bytes_max,
        .ping_interval_ms = (uint32_t)config->net_idle_ping_ms,
        .software = "yuebing " YB_VERSION_STRING,
        .port_name = port_name,
    };
    yb_net_random_system(NULL, &process->self.identity, sizeof(process->self.identity));
}

/* ---- log, statistics, spans, credentials, TLS ------------------------------------------------ */

static enum yb_status
make_records(struct yb_process *process, int log_fd)
{
    const struct yb_config *config = process->config;
    const struct yb_log_options options = {
        .fd = log_fd,
        .format = config->log_format == YB_CONFIG_LOG_FORMAT_JSON ? YB_LOG_JSON : YB_LOG_TEXT,
        .level = log_levels[config->log_level],
        .lines_per_second = config->log_lines_per_second,
        .clock = process->clock,
    };
    uint32_t capacity = 1;
    enum yb_status status = yb_log_create(&options, &process->log);

    if (status == YB_OK) {
        status = yb_stats_create(&process->stats);
    }
    while (capacity < config->trace_ring_records) {
        capacity *= 2; /* The row ends at YB_SPAN_CAPACITY_MAX, a power of two. */
    }
    if (status == YB_OK) {
        status = yb_span_ring_create(capacity, &process->spans);
    }
    return status;
}

static const char *
path_or_null(const char *path)
{
    return path[0] == '\0' ? NULL : path;
}

static enum yb_status
load_credentials(struct yb_process *process, char why_out[YB_PROCESS_WHY_BYTES])
{
    const struct yb_config *config = process->config;
    const struct yb_credentials_options options = {
        .secret_file = path_or_null(config->auth_secret_file),
        .tls = config->tls_mode != YB_CONFIG_TLS_MODE_OFF,
        .listens = true,
        .certificate_file = path_or_null(config->tls_cert_file),
        .key_file = path_or_null(config->tls_key_file),
        .authority_file = path_or_null(config->tls_ca_file),
        .peer_name = path_or_null(config->tls_peer_name),
        .wall_ns = yb_clock_wall(process->clock),
    };

    if (config->auth_role == YB_CONFIG_AUTH_ROLE_CLIENT &&
        !yb_auth_tenant_valid(config->auth_tenant, strlen(config->auth_tenant))) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                       "auth.tenant cannot be \"%s\"; allowed: 1 to 64 letters, digits, '.', '_' "
                       "and '-', but not '-' alone",
                       config->auth_tenant);
        return YB_INVALID;
    }
    if (options.secret_file == NULL && config->auth_require) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                       "auth.require is set, and there is no secret: give --secret-file");
        return YB_DENIED;
    }
    return yb_credentials_load(&options, &process->credentials, why_out, YB_PROCESS_WHY_BYTES);
}

enum yb_status
yb_process_create(const struct yb_process_options *options, struct yb_process **process_out,
                  char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_process *process = calloc(1, sizeof(*process));
    enum yb_status status;

    YB_ASSERT(options->config != NULL && options->port_name != NULL);
    (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", yb_status_text(YB_NO_MEMORY));
    if (process == NULL) {
        return YB_NO_MEMORY;
    }
    process->magic = YB_PROCESS_MAGIC;
    process->known_paths = options->known_paths;
    process->metadata = options->metadata;
    process->config = options->config;
    process->clock = yb_clock_system();
    (void)signal(SIGPIPE, SIG_IGN); /* A peer that went away is a status. */
    status = make_records(process, options->log_fd);
    if (status == YB_OK) {
        status = load_credentials(process, why_out);
    }
    if (status != YB_OK) {
        yb_process_destroy(&process);
        return status;
    }
    make_self(process, options->port_name);
    *process_out = process;
    return YB_OK;
}

/* Close the client form's connections and loop. */
static void
close_net(struct yb_process *process)
{
    if (process->net == NULL) {
        return;
    }
    yb_net_shut(process->net);
    while (!yb_net_idle(process->net)) {
        yb_loop_turn(process->loop, YB_NS_PER_S);
    }
    yb_net_destroy(&process->net);
    yb_loop_destroy(&process->loop);
}

void
yb_process_destroy(struct yb_process **process_ref)
{
    struct yb_process *process = *process_ref;

    if (process == NULL) {
        return;
    }
    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    *process_ref = NULL;
    yb_process_stop(process);
    close_net(process);
    yb_credentials_unload(&process->credentials);
    if (process->spans != NULL) {
        yb_span_ring_destroy(&process->spans);
    }
    if (process->stats != NULL) {
        yb_stats_destroy(&process->stats);
    }
    if (process->log != NULL) {
        yb_log_destroy(&process->log);
    }
    process->magic = 0;
    free(process);
}

/* ---- loops and nets -------------------------------------------------------------------------- */

static struct yb_net_limits
limits_of(const struct yb_config *config)
{
    return (struct yb_net_limits){
        .handshake_timeout_ns = config->net_handshake_timeout_ms * YB_NS_PER_MS,
        .connect_timeout_ns = config->net_connect_timeout_ms * YB_NS_PER_MS,
        .frame_timeout_ns = config->net_frame_timeout_ms * YB_NS_PER_MS,
        .idle_ping_ns = config->net_idle_ping_ms * YB_NS_PER_MS,
        .requests_max = config->net_requests_max,
        .bodies_bytes_max = config->net_bodies_bytes_max,
        .committed_bytes_max = (uint32_t)config->net_committed_bytes_max,
        .calls_waiting_max = config->net_calls_waiting_max,
    };
}

void
yb_process_net_options(const struct yb_process *process, struct yb_loop_options *loop_out,
                       struct yb_net_options *net_out)
{
    const struct yb_config *config = process->config;

    *loop_out = (struct yb_loop_options){
        .backend = io_choice(config),
        .clock = process->clock,
        .spin_us = config->net_spin_us,
    };
    *net_out = (struct yb_net_options){
        .self = &process->self,
        .tls_server = process->credentials.tls_server,
        .tls_client = process->credentials.tls_client,
        .stream =
            {
                .congestion =
                    strcmp(config->net_congestion, "system") == 0 ? NULL : config->net_congestion,
                .unsent_bytes_max = (uint32_t)config->net_unsent_bytes_max,
                .user_timeout_ms = (uint32_t)config->net_frame_timeout_ms,
            },
        .limits = limits_of(config),
        .stats = process->stats,
        .spans = process->spans,
        .log = process->log,
        .random = yb_net_random_system,
    };
}

enum yb_status
yb_process_make_net(struct yb_process *process, struct yb_loop **loop_out, struct yb_net **net_out)
{
    struct yb_loop_options loop_options;
    struct yb_net_options options;
    struct yb_loop *loop = NULL;
    enum yb_status status;

    yb_process_net_options(process, &loop_options, &options);
    status = yb_loop_create(&loop_options, &loop);
    if (status != YB_OK) {
        return status;
    }
    options.loop = loop;
    status = yb_net_create(&options, net_out);
    if (status != YB_OK) {
        yb_loop_destroy(&loop);
        return status;
    }
    *loop_out = loop;
    return YB_OK;
}

void
yb_process_explain_net(const struct yb_process *process, enum yb_status status,
                       char why_out[YB_PROCESS_WHY_BYTES])
{
    const char *io = io_choice(process->config);

    if (status == YB_UNSUPPORTED) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                       "net.io is %s, which this kernel or its sandbox does not permit; say "
                       "--net-io auto, and `yuebing doctor` tells why",
                       io);
    } else {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "cannot make an event loop (net.io %s): %s",
                       io, yb_status_text(status));
    }
}

/* Without its key a client would be refused later, in words about the other side. */
static enum yb_status
check_key(const struct yb_process *process, char why_out[YB_PROCESS_WHY_BYTES])
{
    const struct yb_config *config = process->config;
    const char *role = yb_config_rows()[YB_CONFIG_ROW_auth_role].choices[config->auth_role];
    struct yb_auth_key key;
    enum yb_status status;

    if (process->credentials.auth == NULL) {
        return YB_OK;
    }
    status =
        yb_auth_key_for(process->credentials.auth, process->self.role, process->self.tenant, &key);
    if (status == YB_OK) {
        yb_auth_key_wipe(&key);
        return YB_OK;
    }
    (void)snprintf(why_out, YB_PROCESS_WHY_BYTES,
                   "%s holds neither a secret nor a key for role %s%s%s: give --auth-role and "
                   "--tenant as in the key, or another --secret-file",
                   config->auth_secret_file, role,
                   process->self.tenant[0] == '\0' ? "" : " and tenant ", process->self.tenant);
    return status;
}

enum yb_status
yb_process_open_net(struct yb_process *process, struct yb_net **net_out,
                    char why_out[YB_PROCESS_WHY_BYTES])
{
    enum yb_status status;

    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(process->net == NULL);
    status = check_key(process, why_out);
    if (status != YB_OK) {
        return status;
    }
    status = yb_process_make_net(process, &process->loop, &process->net);
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        return status;
    }
    *net_out = process->net;
    return YB_OK;
}

/* ---- what can be asked -------------------------------------------------------------------- */

const char *
yb_process_io_name(const struct yb_process *process)
{
    YB_ASSERT(process->loop != NULL);
    return yb_loop_io(process->loop)->ops->name;
}

struct yb_roles *
yb_process_roles(struct yb_process *process)
{
    YB_ASSERT(process->roles != NULL);
    return process->roles;
}

bool
yb_process_admin_address(const struct yb_process *process, struct yb_address *address_out)
{
    if (process->admin != NULL) {
        *address_out = yb_admin_address(process->admin);
    }
    return process->admin != NULL;
}

const struct yb_hello_self *
yb_process_self(const struct yb_process *process)
{
    return &process->self;
}

struct yb_log *
yb_process_log(struct yb_process *process)
{
    return process->log;
}

struct yb_stats *
yb_process_stats(struct yb_process *process)
{
    return process->stats;
}

struct yb_span_ring *
yb_process_spans(struct yb_process *process)
{
    return process->spans;
}
