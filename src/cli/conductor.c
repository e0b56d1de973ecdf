/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing conductor`: where requests run. Its calls are answered on the admin port; everything
 * else of that port is there, too.
 */
#include <jansson.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"
#include "daemon/process.h"
#include "daemon/roles.h"

#define LISTEN_DEFAULT "127.0.0.1:14780"

const struct yb_cli_option yb_cli_conductor_options[] = {
    {NULL, NULL, NULL},
};

/* One line, so that whoever started us reads up to its end and knows that we listen. */
static int
print_ready(struct yb_cli *cli, const struct yb_process *process)
{
    struct yb_address http;
    char text[YB_ADDRESS_TEXT_BYTES] = "";
    int failed = 0;

    if (yb_process_admin_address(process, &http)) {
        yb_address_format(&http, text);
    }
    if (cli->json) {
        json_t *ready =
            json_pack("{s:s, s:s, s:I, s:s}", "http", text, "routing",
                      cli->config.conductor_routing, "pid", (json_int_t)getpid(), "auth",
                      yb_process_self(process)->auth != NULL ? "secret" : "open");

        failed = ready == NULL || json_dumpf(ready, cli->out, JSON_COMPACT) != 0 ||
                 fputc('\n', cli->out) == EOF;
        json_decref(ready);
    } else {
        failed = fprintf(cli->out, "conductor at http://%s, routing %s\n", text,
                         cli->config.conductor_routing) < 0;
    }
    return failed || fflush(cli->out) != 0 ? -1 : 0;
}

int
yb_cli_conductor(struct yb_cli *cli, int argc, char **argv)
{
    const struct yb_roles_options roles = {
        .directory_listen = cli->config.directory_address,
        .conductor = true,
    };
    const struct yb_process_options options = {
        .config = &cli->config,
        .port_name = "Yuebing's conductor",
        .log_fd = STDERR_FILENO,
    };
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES];
    enum yb_status status;
    int code = 0;

    (void)argc;
    (void)argv;
    if (cli->config.http_listen[0] == '\0') {
        (void)snprintf(cli->config.http_listen, sizeof(cli->config.http_listen), "%s",
                       LISTEN_DEFAULT);
    }
    status = yb_process_create(&options, &process, why);
    if (status == YB_OK) {
        status = yb_process_serve(process, &roles, why);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing conductor: %s\n", why);
        code =
            status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
    } else if (print_ready(cli, process) != 0) {
        fprintf(cli->err, "yuebing conductor: cannot say where it listens\n");
        code = YB_CLI_EXIT_FAILED;
    } else {
        yb_process_wait(process);
    }
    yb_process_destroy(&process);
    return code;
}
