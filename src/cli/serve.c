/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing serve`: a process that listens. It is what later roles are built on; by itself it
 * answers the handshake, ping and echo.
 */
#include <jansson.h>
#include <unistd.h>

#include "cli/cli.h"
#include "daemon/process.h"

const struct yb_cli_option yb_cli_serve_options[] = {
    {NULL, NULL, NULL},
};

static int
print_ready_json(struct yb_cli *cli, const struct yb_process *process, const char *address,
                 bool publishable)
{
    const struct yb_hello_self *self = yb_process_self(process);
    char identity[33];
    json_t *ready;
    int failed;

    yb_id_format(self->identity, identity);
    ready =
        json_pack("{s:s, s:s?, s:s, s:I, s:s, s:s, s:b}", "address", address, "published",
                  publishable ? address : NULL, "identity", identity, "pid", (json_int_t)getpid(),
                  "io", yb_process_io_name(process), "auth", self->auth != NULL ? "secret" : "open",
                  "tls", cli->config.tls_mode == YB_CONFIG_TLS_MODE_ON);
    /* One line, so that whoever started us reads up to its end and knows that we listen. */
    failed = ready == NULL || json_dumpf(ready, cli->out, JSON_COMPACT) != 0;
    json_decref(ready);
    return failed || fputc('\n', cli->out) == EOF ? -1 : 0;
}

/* Say where we listen: only now, that the port is open. */
static int
print_ready(struct yb_cli *cli, const struct yb_process *process)
{
    struct yb_address address = yb_process_address(process);
    const char *why_not = yb_address_why_unpublishable(&address);
    char text[YB_ADDRESS_TEXT_BYTES];
    int printed;

    yb_address_format(&address, text);
    if (cli->json) {
        printed = print_ready_json(cli, process, text, why_not == NULL);
    } else if (why_not == NULL) {
        printed = fprintf(cli->out, "listening on %s\n", text);
    } else {
        printed =
            fprintf(cli->out, "listening on %s (not to be told to others: %s)\n", text, why_not);
    }
    return printed < 0 || fflush(cli->out) != 0 ? -1 : 0;
}

int
yb_cli_serve(struct yb_cli *cli, int argc, char **argv)
{
    const struct yb_process_options options = {
        .config = &cli->config,
        .port_name = "Yuebing's binary port (serve)",
        .log_fd = STDERR_FILENO,
    };
    struct yb_process *process = NULL;
    char why[YB_PROCESS_WHY_BYTES];
    enum yb_status status = yb_process_create(&options, &process, why);
    int code = 0;

    (void)argc;
    (void)argv;
    if (status == YB_OK) {
        status = yb_process_serve(process, why);
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing serve: %s\n", why);
        code =
            status == YB_INVALID || status == YB_DENIED ? YB_CLI_EXIT_REFUSED : YB_CLI_EXIT_FAILED;
    } else if (print_ready(cli, process) != 0) {
        fprintf(cli->err, "yuebing serve: cannot say where it listens\n");
        code = YB_CLI_EXIT_FAILED;
    } else {
        yb_process_wait(process);
    }
    yb_process_destroy(&process);
    return code;
}
