/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing ls`: the keys of a tenant.
 */
#include <inttypes.h>
#include <string.h>

#include "cli/output.h"
#include "cli/store.h"

const struct yb_cli_option yb_cli_ls_options[] = {
    {"regex", "RE", "keys in which this regular expression (PCRE2) finds something"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

struct listing {
    struct yb_cli *cli;
    json_t *keys; /* NULL: lines are printed as they come. */
    uint64_t count;
    uint64_t bytes;
};

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct listing *listing = context;

    listing->count++;
    listing->bytes += entry->size;
    if (listing->keys != NULL) {
        json_t *row = json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t)entry->size, "grant",
                                (json_int_t)entry->grant, "node", entry->node);

        yb_cli_json_key(row, entry->key, entry->key_bytes);
        return json_array_append_new(listing->keys, row) == 0;
    }
    fprintf(listing->cli->out, "%12" PRIu64 "  %-16s  ", entry->size, entry->node);
    yb_cli_print_key(listing->cli->out, entry->key, entry->key_bytes);
    return fputc('\n', listing->cli->out) != EOF;
}

int
yb_cli_ls(struct yb_cli *cli, int argc, char **argv)
{
    const char *regex = yb_cli_option(cli, "regex");
    struct yb_client_call call = {.struct_bytes = sizeof(call)};
    enum yb_client_match match = YB_CLIENT_MATCH_ALL;
    const char *pattern = argc > 0 ? argv[0] : regex;
    struct listing listing = {.cli = cli};
    struct yb_client *client = NULL;
    enum yb_status status;
    int code = YB_CLI_EXIT_FAILED;

    if (regex != NULL && argc > 0) {
        fprintf(cli->err, "yuebing ls: give a PREFIX or --regex, not both\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (!yb_cli_store_timeout(cli, &call.timeout_ns)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (pattern != NULL) {
        match = regex != NULL ? YB_CLIENT_MATCH_REGEX : YB_CLIENT_MATCH_PREFIX;
    }
    if (yb_cli_open_client(cli, call.timeout_ns, &client, &code) != YB_OK) {
        return code;
    }
    listing.keys = cli->json ? json_array() : NULL;
    status = yb_client_list(client, match, pattern, &call, visit, &listing);
    yb_client_close(&client);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing ls: %s: %s\n", yb_status_name(status),
                status == YB_INVALID ? "this is no regular expression (PCRE2)"
                : status == YB_TOO_LARGE
                    ? "this regular expression is too much work; make it simpler"
                    : yb_cli_outcome_text(status));
    }
    if (cli->json &&
        yb_output_json(cli->out, json_pack("{s:s, s:I, s:I, s:o}", "status", yb_status_name(status),
                                           "count", (json_int_t)listing.count, "bytes",
                                           (json_int_t)listing.bytes, "keys", listing.keys)) !=
            YB_OK) {
        return YB_CLI_EXIT_FAILED;
    }
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}
