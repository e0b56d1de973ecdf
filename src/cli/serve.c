/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing serve`, `directory` and `node`: the processes of a store. They differ in the roles that
 * they run, and in nothing else.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/store.h"
#include "daemon/process.h"
#include "daemon/roles.h"

const struct yb_cli_option yb_cli_serve_options[] = {
    {NULL, NULL, NULL},
};

const struct yb_cli_option yb_cli_directory_options[] = {
    {NULL, NULL, NULL},
};

const struct yb_cli_option yb_cli_node_options[] = {
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

/* How long a start waits for its nodes to be known to the directory: in one process a matter of
 * milliseconds; elsewhere the directory may come later, and the node goes on trying. */
#define REGISTER_NS (800 * YB_NS_PER_MS)

static json_t *
node_json(const struct yb_role_info *info)
{
    char address[YB_ADDRESS_TEXT_BYTES];
    char identity[33];

    yb_address_format(&info->address, address);
    yb_id_format(info->identity, identity);
    return json_pack("{s:s, s:s, s:s, s:b}", "name", info->name, "address", address, "identity",
                     identity, "registered", (int)info->registered);
}

/* `address` and `identity` are the first role's: the directory's, where there is one. */
static int
print_ready_json(struct yb_cli *cli, struct yb_process *process)
{
    struct yb_roles *roles = yb_process_roles(process);
    json_t *nodes = json_array();
    struct yb_role_info info;
    char address[YB_ADDRESS_TEXT_BYTES];
    char directory[YB_ADDRESS_TEXT_BYTES];
    struct yb_address where = yb_roles_directory_address(roles);
    char identity[33];
    struct yb_address http;
    char http_text[YB_ADDRESS_TEXT_BYTES];
    bool admin = yb_process_admin_address(process, &http);
    json_t *ready;
    int failed;

    if (admin) {
        yb_address_format(&http, http_text);
    }
    for (uint32_t i = 0; i < yb_roles_count(roles); i++) {
        yb_roles_info(roles, i, &info);
        if (!info.directory) {
            json_array_append_new(nodes, node_json(&info));
        }
    }
    yb_roles_info(roles, 0, &info);
    yb_address_format(&info.address, address);
    yb_address_format(&where, directory);
    yb_id_format(info.identity, identity);
    ready =
        json_pack("{s:s, s:s?, s:s?, s:s, s:s, s:I, s:s, s:s, s:b, s:o}", "address", address,
                  "published", yb_address_why_unpublishable(&info.address) == NULL ? address : NULL,
                  "http", admin ? http_text : NULL, "directory", directory, "identity", identity,
                  "pid", (json_int_t)getpid(), "io", info.io, "auth",
                  yb_process_self(process)->auth != NULL ? "secret" : "open", "tls",
                  cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON, "nodes", nodes);
    /* One line, so that whoever started us reads up to its end and knows that we listen. */
    failed = ready == NULL || json_dumpf(ready, cli->out, JSON_COMPACT) != 0;
    json_decref(ready);
    return failed || fputc('\n', cli->out) == EOF ? -1 : 0;
}

static int
print_role(struct yb_cli *cli, const struct yb_role_info *info)
{
    const char *why_not = yb_address_why_unpublishable(&info->address);
    char text[YB_ADDRESS_TEXT_BYTES];

    yb_address_format(&info->address, text);
    if (!info->directory) {
        return fprintf(cli->out, "node %s listening on %s%s\n", info->name, text,
                       info->registered ? "" : " (not known to the directory yet)");
    }
    if (why_not == NULL) {
        return fprintf(cli->out, "listening on %s\n", text);
    }
    return fprintf(cli->out, "listening on %s (not to be told to others: %s)\n", text, why_not);
}

/* Say where we listen: only now, that the ports are open. */
static int
print_ready(struct yb_cli *cli, struct yb_process *process)
{
    struct yb_roles *roles = yb_process_roles(process);
    struct yb_address http;
    char text[YB_ADDRESS_TEXT_BYTES];
    int printed = 0;

    if (cli->json) {
        printed = print_ready_json(cli, process);
    }
    if (!cli->json && yb_process_admin_address(process, &http)) {
        yb_address_format(&http, text);
        printed = fprintf(cli->out, "admin at http://%s\n", text);
    }
    for (uint32_t i = 0; !cli->json && printed >= 0 && i < yb_roles_count(roles); i++) {
        struct yb_role_info info;

        yb_roles_info(roles, i, &info);
        printed = print_role(cli, &info);
    }
    return printed < 0 || fflush(cli->out) != 0 ? -1 : 0;
}

/* Nodes that share nothing are how a machine with more cores runs more of them. */
static uint32_t
node_count(const struct yb_config *config)
{
    uint32_t count = config->node_count != 0 ? config->node_count : config->net_workers;

    return count < YB_ROLES_NODES_MAX ? count : YB_ROLES_NODES_MAX;
}

static int
serve(struct yb_cli *cli, const char *port_name, const struct yb_roles_options *roles)
{
    const struct yb_process_options options = {
        .config = &cli->config,
        .port_name = port_name,
        .log_fd = STDERR_FILENO,
    };
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES];
    enum yb_status status = yb_process_create(&options, &process, why);
    int code = 0;

    if (status == YB_OK) {
        status = yb_process_serve(process, roles, why);
    }
    if (status == YB_OK) {
        (void)yb_roles_await_registered(yb_process_roles(process), REGISTER_NS);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing %s: %s\n", cli->command->name, why);
        code =
            status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
    } else if (print_ready(cli, process) != 0) {
        fprintf(cli->err, "yuebing %s: cannot say where it listens\n", cli->command->name);
        code = YB_CLI_EXIT_FAILED;
    } else {
        yb_process_wait(process);
    }
    yb_process_destroy(&process);
    return code;
}

int
yb_cli_serve(struct yb_cli *cli, int argc, char **argv)
{
    const struct yb_roles_options roles = {
        .directory = true,
        .directory_listen = cli->config.net_listen,
        .nodes = node_count(&cli->config),
        .node_listen = cli->config.node_listen,
        .conductor = cli->config.conductor_serve,
    };

    (void)argc;
    (void)argv;
    return serve(cli, "Yuebing's binary port (serve)", &roles);
}

int
yb_cli_directory(struct yb_cli *cli, int argc, char **argv)
{
    const struct yb_roles_options roles = {
        .directory = true,
        .directory_listen = cli->config.net_listen,
    };

    (void)argc;
    (void)argv;
    return serve(cli, "Yuebing's binary port (directory)", &roles);
}

int
yb_cli_node(struct yb_cli *cli, int argc, char **argv)
{
    const struct yb_config *config = &cli->config;
    const bool told = config->origins[YB_CONFIG_ROW_net_listen].source == YB_CONFIG_SOURCE_OPTION;
    const struct yb_roles_options roles = {
        .directory_listen = config->directory_address,
        .nodes = node_count(config),
        .node_listen = told ? config->net_listen : config->node_listen,
    };

    if (argc == 1 && strcmp(argv[0], "check") == 0) {
        return yb_cli_node_check(cli);
    }
    if (argc > 0) {
        fprintf(cli->err,
                "yuebing node: unexpected \"%s\"; write yuebing node, or yuebing node "
                "check\n",
                argv[0]);
        return YB_CLI_EXIT_REFUSED;
    }
    return serve(cli, "Yuebing's binary port (node)", &roles);
}
