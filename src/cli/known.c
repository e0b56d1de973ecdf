/* SPDX-License-Identifier: Apache-2.0
 *
 * The known system's commands: their flags become rows of our configuration, and then they are what
 * `yuebing directory` and `yuebing node` are.
 */
#include "cli/known.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config.h"
#include "cli/cli.h"
#include "compat/door.h"
#include "daemon/known_http.h"
#include "daemon/process.h"
#include "daemon/roles.h"
#include "yuebing/version.h"

#define CONNECTIONS_MAX 256u
#define LEASE_MS_LEAST  100.0
#define LEASE_MS_MOST   60000.0

/* One command that runs. */
struct known {
    enum yb_known_command command;
    struct yb_known_values values;
    struct yb_config config;
    FILE *out;
    FILE *err;
};

static const char *
value_of(const struct known *known, enum yb_known_flag_index index)
{
    return known->values.text[index];
}

static bool
is_on(const struct known *known, enum yb_known_flag_index index)
{
    return strcmp(value_of(known, index), "true") == 0;
}

__attribute__((format(printf, 2, 3))) static bool
refuse(const struct known *known, const char *format, ...)
{
    va_list arguments;

    fprintf(known->err, "%s: ", yb_known_command_name(known->command));
    va_start(arguments, format);
    vfprintf(known->err, format, arguments);
    va_end(arguments);
    (void)fputc('\n', known->err);
    return false;
}

/* Set a row of the configuration from a flag. */
static bool
set(struct known *known, enum yb_config_row_index row, const char *text)
{
    const struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_OPTION};
    char message[YB_CONFIG_MESSAGE_MAX];

    return yb_config_set(&known->config, row, text, origin, message) == YB_OK ||
           refuse(known, "%s", message);
}

static bool
set_address(struct known *known, enum yb_config_row_index row, const char *host, const char *port)
{
    char text[2 * YB_KNOWN_VALUE_MAX];

    return yb_address_join(host, port, text, sizeof(text)) == YB_OK ? set(known, row, text)
                                                                    : refuse(known, "too long");
}

/* ---- what all have in common ----------------------------------------------------------------- */

static void
print_help(enum yb_known_command command, FILE *out)
{
    fprintf(out, "Usage: %s [--flag=value ...]\n\nPart of Yuebing %s; docs/compat.md has more.\n\n",
            yb_known_command_name(command), YB_VERSION_STRING);
    for (unsigned i = 0; i < YB_KNOWN_FLAGS; i++) {
        const struct yb_known_flag *flag = &yb_known_flags()[i];

        if (flag->command == command) {
            fprintf(out, "  --%-45s %s; default %s\n", flag->name,
                    flag->effect[0] != '\0' ? flag->effect : "accepted, without effect",
                    flag->usual[0] != '\0' ? flag->usual : "empty");
        }
    }
}

static bool
load_config(struct known *known, char **argv, char *const *environment)
{
    const struct yb_config_input input = {.argc = 1, .argv = argv, .environment = environment};
    char message[YB_CONFIG_MESSAGE_MAX];
    int rest;

    if (yb_config_load(&input, &known->config, &rest, message) != YB_OK) {
        return refuse(known, "%s", message);
    }
    /* Open, as they are, unless the environment forbids it: auth.require refuses before that. */
    return known->config.auth_secret_file[0] != '\0' ||
           set(known, YB_CONFIG_ROW_auth_insecure, "true");
}

/* ---- serving --------------------------------------------------------------------------------- */

static void
say_where(struct known *known, struct yb_process *process)
{
    struct yb_roles *roles = yb_process_roles(process);
    struct yb_address http;
    char text[YB_ADDRESS_TEXT_BYTES];

    for (uint32_t i = 0; i < yb_roles_count(roles); i++) {
        struct yb_role_info info;

        yb_roles_info(roles, i, &info);
        yb_address_format(&info.address, text);
        fprintf(known->out, "%s listening on %s\n", info.directory ? "directory" : "node", text);
    }
    if (yb_process_admin_address(process, &http)) {
        yb_address_format(&http, text);
        fprintf(known->out, "http at http://%s\n", text);
    }
    (void)fflush(known->out);
}

/* Tell others of this host where the node and its store are. */
static bool
open_door(struct known *known, struct yb_process *process, struct yb_compat_door **door_out)
{
    struct yb_role_info info;
    struct yb_compat_door_line line;
    char why[YB_COMPAT_DOOR_WHY_BYTES];

    yb_roles_info(yb_process_roles(process), 0, &info);
    yb_address_format(&info.address, line.node);
    (void)snprintf(line.directory, sizeof(line.directory), "%s", known->config.directory_address);
    (void)snprintf(line.tenant, sizeof(line.tenant), "%s", known->config.auth_tenant);
    return yb_compat_door_open(info.address.port, &line, door_out, why) == YB_OK ||
           refuse(known, "%s", why);
}

static int
serve(struct known *known, const struct yb_roles_options *roles, struct yb_metadata *metadata)
{
    const struct yb_process_options options = {
        .config = &known->config,
        .port_name = roles->directory ? "Yuebing's binary port (mooncake_master)"
                                      : "Yuebing's binary port (mooncake_client)",
        .log_fd = STDERR_FILENO,
        .known_paths = true,
        .metadata = metadata,
    };
    struct yb_compat_door *door = NULL;
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES];
    enum yb_status status = yb_process_create(&options, &process, why);
    int code = 0;

    if (status == YB_OK) {
        status = yb_process_serve(process, roles, why);
    }
    if (status != YB_OK) {
        (void)refuse(known, "%s", why);
        code =
            status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
    } else if (!roles->directory && !open_door(known, process, &door)) {
        code = YB_CLI_EXIT_FAILED;
    } else {
        say_where(known, process);
        yb_process_wait(process);
    }
    if (door != NULL) {
        yb_compat_door_close(&door);
    }
    yb_process_destroy(&process);
    return code;
}

/* ---- the metadata server --------------------------------------------------------------------- */

/* A port that answers /metadata and /health alone. */
struct metadata_port {
    struct yb_metadata *metadata;
    struct yb_known_http *known;
    struct yb_http_source source;
    struct yb_http *http;
};

static void
metadata_close(struct metadata_port *port)
{
    if (port->http != NULL) {
        yb_http_destroy(&port->http);
    }
    if (port->known != NULL) {
        yb_known_http_destroy(&port->known);
    }
    if (port->metadata != NULL) {
        yb_metadata_destroy(&port->metadata);
    }
}

static bool
metadata_open(const struct known *known, const char *host, const char *number,
              struct metadata_port *port)
{
    struct yb_http_options options = {
        .insecure = true, /* What it keeps are addresses: whoever is there has to prove itself. */
        .connections_max = CONNECTIONS_MAX,
        .source = &port->source,
    };
    struct yb_known_http_options paths = {0};
    struct yb_endpoint_text endpoint;
    struct yb_address_list where;
    char text[2 * YB_KNOWN_VALUE_MAX];
    char why[YB_ADDRESS_WHY_BYTES];

    *port = (struct metadata_port){.metadata = yb_metadata_create()};
    paths.metadata = port->metadata;
    port->known = yb_known_http_create(&paths);
    if (port->metadata == NULL || port->known == NULL) {
        metadata_close(port);
        return refuse(known, "no memory");
    }
    port->source.other = yb_known_http_answer;
    port->source.other_context = port->known;
    (void)!yb_address_join(host, number, text, sizeof(text)); /* Cut off, it is refused below. */
    if (yb_endpoint_parse(text, &endpoint, why) != YB_OK ||
        yb_endpoint_resolve(&endpoint, 0, &where, why) != YB_OK) {
        metadata_close(port);
        return refuse(known, "%s", why);
    }
    options.address = where.items[0];
    if (yb_http_create(&options, &port->http, why) != YB_OK) {
        metadata_close(port);
        return refuse(known, "%s", why);
    }
    {
        struct yb_address bound = yb_http_address(port->http);

        yb_address_format(&bound, text);
        fprintf(known->out, "metadata at http://%s/metadata\n", text);
        (void)fflush(known->out);
    }
    return true;
}

static int
run_metadata(struct known *known)
{
    struct metadata_port port;
    sigset_t stops;
    int found;

    if (known->config.auth_require && known->config.auth_secret_file[0] == '\0') {
        (void)refuse(known,
                     "auth.require is set, and there is no secret: give YUEBING_SECRET_FILE");
        return YB_CLI_EXIT_REFUSED;
    }
    (void)sigemptyset(&stops);
    (void)sigaddset(&stops, SIGINT);
    (void)sigaddset(&stops, SIGTERM);
    YB_ASSERT(pthread_sigmask(SIG_BLOCK, &stops, NULL) == 0); /* Before there are threads. */
    (void)signal(SIGPIPE, SIG_IGN);
    if (!metadata_open(known, value_of(known, YB_KNOWN_FLAG_metadata_host),
                       value_of(known, YB_KNOWN_FLAG_metadata_port), &port)) {
        return YB_CLI_EXIT_FAILED;
    }
    if (known->config.auth_secret_file[0] == '\0') {
        fprintf(known->err,
                "%s: warning: no secret: whoever reaches this port may change what it "
                "keeps; engines without a secret trust it\n",
                yb_known_command_name(known->command));
    }
    (void)sigwait(&stops, &found);
    metadata_close(&port);
    return 0;
}

/* ---- mooncake_master ------------------------------------------------------------------------- */

static bool
configure_master(struct known *known)
{
    const char *port = value_of(known, YB_KNOWN_FLAG_master_rpc_port);
    const char *http = value_of(known, YB_KNOWN_FLAG_master_metrics_port);
    double lease_ms;
    char text[32];

    port = strcmp(port, "0") != 0 ? port : value_of(known, YB_KNOWN_FLAG_master_port);
    if (!set_address(known, YB_CONFIG_ROW_net_listen,
                     value_of(known, YB_KNOWN_FLAG_master_rpc_address), port)) {
        return false;
    }
    if (strcmp(http, "0") != 0 &&
        !set_address(known, YB_CONFIG_ROW_http_listen,
                     value_of(known, YB_KNOWN_FLAG_master_metrics_host), http)) {
        return false;
    }
    lease_ms = strtod(value_of(known, YB_KNOWN_FLAG_master_client_ttl), NULL) * 1000;
    lease_ms = lease_ms < LEASE_MS_LEAST ? LEASE_MS_LEAST : lease_ms;
    lease_ms = lease_ms > LEASE_MS_MOST ? LEASE_MS_MOST : lease_ms;
    (void)snprintf(text, sizeof(text), "%.0f", lease_ms);
    if (known->values.given[YB_KNOWN_FLAG_master_client_ttl]) {
        return set(known, YB_CONFIG_ROW_directory_lease_ms, text);
    }
    /* Nodes live in engines' processes, whose computing keeps heartbeats waiting for seconds. */
    if (known->config.origins[YB_CONFIG_ROW_directory_lease_ms].source ==
        YB_CONFIG_SOURCE_DEFAULT) {
        known->config.directory_lease_ms = (uint64_t)lease_ms;
    }
    return true;
}

static int
run_master(struct known *known)
{
    const struct yb_roles_options roles = {
        .directory = true,
        .directory_listen = known->config.net_listen,
    };
    struct metadata_port port = {0};
    int code;

    if (!configure_master(known)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (is_on(known, YB_KNOWN_FLAG_master_enable_http_metadata_server) &&
        !metadata_open(known, value_of(known, YB_KNOWN_FLAG_master_http_metadata_server_host),
                       value_of(known, YB_KNOWN_FLAG_master_http_metadata_server_port), &port)) {
        return YB_CLI_EXIT_FAILED;
    }
    code = serve(known, &roles, port.metadata);
    metadata_close(&port);
    return code;
}

/* ---- mooncake_client ------------------------------------------------------------------------- */

/* "4 GB", "16MB", "3355443200": into bytes. */
static bool
read_bytes(const char *text, uint64_t *bytes_out)
{
    static const char units[] = "kmgt";
    char *end = NULL;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = 0;

    if (end == text || text[0] == '-') {
        return false;
    }
    end += strspn(end, " ");
    for (unsigned i = 0; units[i] != '\0'; i++) {
        if ((*end | 0x20) == units[i]) {
            shift = 10 * (i + 1);
            end++;
            break;
        }
    }
    end += shift > 0 && (*end == 'i' || *end == 'I');
    end += *end == 'b' || *end == 'B';
    if (*end != '\0' || number > UINT64_MAX >> shift) {
        return false;
    }
    *bytes_out = (uint64_t)number << shift;
    return true;
}

/* Write the address of this machine from which the master is reached. */
static bool
facing(const char *master, char host_out[YB_KNOWN_VALUE_MAX])
{
    struct yb_endpoint_text endpoint;
    struct yb_address_list where;
    struct yb_address own;
    struct sockaddr_storage storage;
    char why[YB_ADDRESS_WHY_BYTES];
    char text[YB_ADDRESS_TEXT_BYTES];
    socklen_t length;
    bool found;
    int fd;

    if (yb_endpoint_parse(master, &endpoint, why) != YB_OK ||
        yb_endpoint_resolve(&endpoint, 50051, &where, why) != YB_OK) {
        return false;
    }
    yb_address_to_sockaddr(&where.items[0], &storage, &length);
    fd = socket(storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    found = fd >= 0 && connect(fd, (const struct sockaddr *)&storage, length) == 0;
    length = sizeof(storage);
    found = found && getsockname(fd, (struct sockaddr *)&storage, &length) == 0 &&
            yb_address_from_sockaddr(&storage, &own) == YB_OK;
    if (fd >= 0) {
        (void)close(fd);
    }
    if (!found) {
        return false;
    }
    yb_address_format(&own, text);
    *strrchr(text, ':') = '\0';
    (void)snprintf(host_out, YB_KNOWN_VALUE_MAX, "%s", text);
    return true;
}

/* Segments are called by their address; several nodes of one process name themselves. */
static bool
name_node(struct known *known, const char *host)
{
    const char *port = value_of(known, YB_KNOWN_FLAG_client_port);
    char name[64];
    int length = snprintf(name, sizeof(name), "%s:%s", host, port);

    return known->config.node_count > 1 || known->config.node_name[0] != '\0' ||
           strcmp(port, "0") == 0 || length >= (int)sizeof(name) ||
           set(known, YB_CONFIG_ROW_node_name, name);
}

static bool
configure_client(struct known *known)
{
    const char *size = value_of(known, YB_KNOWN_FLAG_client_global_segment_size);
    const char *master = value_of(known, YB_KNOWN_FLAG_client_master_server_address);
    char host[YB_KNOWN_VALUE_MAX];
    char text[32];
    uint64_t bytes = 0;

    memcpy(host, value_of(known, YB_KNOWN_FLAG_client_host), sizeof(host));
    if (!read_bytes(size, &bytes)) {
        return refuse(known,
                      "--global_segment_size cannot be \"%.64s\"; allowed: bytes, or a "
                      "number and KB, MB, GB or TB",
                      size);
    }
    if (strcmp(host, "0.0.0.0") == 0 && !facing(master, host)) {
        return refuse(known,
                      "--host: there is no address of this machine that faces %s; give one, or "
                      "look at --master_server_address",
                      master);
    }
    (void)snprintf(text, sizeof(text), "%" PRIu64, bytes);
    return name_node(known, host) && set(known, YB_CONFIG_ROW_node_memory, text) &&
           (!known->values.given[YB_KNOWN_FLAG_client_tenant_id] ||
            set(known, YB_CONFIG_ROW_auth_tenant,
                value_of(known, YB_KNOWN_FLAG_client_tenant_id))) &&
           set(known, YB_CONFIG_ROW_directory_address, master) &&
           set_address(known, YB_CONFIG_ROW_node_listen, host,
                       value_of(known, YB_KNOWN_FLAG_client_port)) &&
           (!is_on(known, YB_KNOWN_FLAG_client_enable_http_server) ||
            set_address(known, YB_CONFIG_ROW_http_listen,
                        value_of(known, YB_KNOWN_FLAG_client_host),
                        value_of(known, YB_KNOWN_FLAG_client_http_port)));
}

static int
run_client(struct known *known)
{
    const struct yb_roles_options roles = {
        .directory_listen = known->config.directory_address,
        .nodes = known->config.node_count != 0 ? known->config.node_count : 1,
        .node_listen = known->config.node_listen,
    };

    return configure_client(known) ? serve(known, &roles, NULL) : YB_CLI_EXIT_REFUSED;
}

/* ---- start ----------------------------------------------------------------------------------- */

static bool
is_word(const char *word, const char *name)
{
    return word[0] == '-' && strcmp(word + 1 + (word[1] == '-'), name) == 0;
}

int
yb_known_main(enum yb_known_command command, int argc, char **argv, char *const *environment,
              FILE *out, FILE *err)
{
    static int (*const runs[])(struct known * known) = {run_master, run_client, run_metadata};
    struct known *known;
    int code = YB_CLI_EXIT_REFUSED;

    if (argc > 1 &&
        (is_word(argv[1], "help") || is_word(argv[1], "helpfull") || is_word(argv[1], "h"))) {
        print_help(command, out);
        return 0;
    }
    if (argc > 1 && is_word(argv[1], "version")) {
        fprintf(out, "%s of yuebing %s\n", yb_known_command_name(command), YB_VERSION_STRING);
        return 0;
    }
    known = calloc(1, sizeof(*known));
    if (known == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    known->command = command;
    known->out = out;
    known->err = err;
    if (yb_known_parse(command, argc, argv, &known->values, err) &&
        load_config(known, argv, environment)) {
        code = runs[command](known);
    }
    free(known);
    return code;
}
