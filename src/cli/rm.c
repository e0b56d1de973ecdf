/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing rm`: keys, keys that begin alike, or all of a tenant.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/store.h"

const struct yb_cli_option yb_cli_rm_options[] = {
    {"all", NULL, "all blocks of the tenant; with --force also what is held or read"},
    {"match", "PREFIX", "the keys that begin with PREFIX"},
    {"force", NULL, "remove also what somebody holds"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

/* Remove the keys that were named. Returns the worst of the outcomes' exit codes. */
static int
remove_keys(struct yb_cli *cli, struct yb_client *client, const struct yb_client_call *call,
            char **keys, uint32_t count)
{
    struct yb_client_item *items = calloc(count, sizeof(*items));
    json_t *rows = json_array();
    enum yb_status status = YB_NO_MEMORY;
    int code = 0;

    for (uint32_t i = 0; items != NULL && i < count; i++) {
        items[i].key = keys[i];
        items[i].key_bytes = (uint32_t)strlen(keys[i]);
    }
    if (items != NULL) {
        status = yb_client_remove(client, items, count, call);
    }
    for (uint32_t i = 0; items != NULL && i < count; i++) {
        enum yb_status outcome = status == YB_OK ? items[i].status : status;
        json_t *row = json_pack("{s:s}", "status", yb_status_name(outcome));

        if (outcome != YB_OK) {
            fprintf(cli->err, "yuebing rm: %s: %s: %s\n", keys[i], yb_status_name(outcome),
                    yb_cli_outcome_text(outcome));
            code = YB_CLI_EXIT_FAILED;
        }
        yb_cli_json_key(row, keys[i], strlen(keys[i]));
        json_array_append_new(rows, row);
    }
    if (items == NULL ||
        (cli->json && yb_output_json(cli->out, json_pack("{s:O}", "keys", rows)) != YB_OK)) {
        code = YB_CLI_EXIT_FAILED;
    }
    json_decref(rows);
    free(items);
    return code;
}

static int
report_count(struct yb_cli *cli, enum yb_status status, uint64_t count)
{
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing rm: %s: %s\n", yb_status_name(status),
                yb_cli_outcome_text(status));
    }
    if (cli->json) {
        if (yb_output_json(cli->out, json_pack("{s:s, s:I}", "status", yb_status_name(status),
                                               "removed", (json_int_t)count)) != YB_OK) {
            return YB_CLI_EXIT_FAILED;
        }
    } else if (status == YB_OK) {
        fprintf(cli->out, "%" PRIu64 " removed\n", count);
    }
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

int
yb_cli_rm(struct yb_cli *cli, int argc, char **argv)
{
    const char *match = yb_cli_option(cli, "match");
    bool all = yb_cli_option(cli, "all") != NULL;
    struct yb_client_call call = {.struct_bytes = sizeof(call)};
    struct yb_client *client = NULL;
    enum yb_status status;
    uint64_t count = 0;
    int code = YB_CLI_EXIT_FAILED;

    call.force = yb_cli_option(cli, "force") != NULL;
    if ((argc > 0) + (match != NULL) + all != 1) {
        fprintf(cli->err,
                "yuebing rm: say what: yuebing rm KEY..., --match PREFIX, or --all, one of them\n");
        return YB_CLI_EXIT_REFUSED;
    }
    for (int i = 0; i < argc; i++) {
        if (!yb_cli_key_fits(cli, argv[i])) {
            return YB_CLI_EXIT_REFUSED;
        }
    }
    if (!yb_cli_store_timeout(cli, &call.timeout_ns)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_cli_open_client(cli, call.timeout_ns, &client, &code) != YB_OK) {
        return code;
    }
    if (argc > 0) {
        code = remove_keys(cli, client, &call, argv, (uint32_t)argc);
    } else {
        status =
            all ? yb_client_remove_all(client, &call, &count)
                : yb_client_remove_matching(client, YB_CLIENT_MATCH_PREFIX, match, &call, &count);
        code = report_count(cli, status, count);
    }
    yb_client_close(&client);
    return code;
}
