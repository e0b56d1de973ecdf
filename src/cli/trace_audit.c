/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace --audit`: whether every instruction of a conductor has ended, exactly once.
 */
#include <inttypes.h>
#include <jansson.h>

#include "cli/ask.h"
#include "cli/output.h"
#include "cli/simulate.h"

/* Return what the conductor says; NULL: it has been said why there is nothing. */
static json_t *
ask(struct yb_cli *cli, const char *address)
{
    char error[YB_CURL_ERROR_BYTES] = "";
    json_t *json = NULL;
    long code = 0;
    enum yb_status status = yb_ask(address, "/v1/audit", &code, &json, error);

    if (status != YB_OK || code != 200 || json == NULL) {
        fprintf(cli->err,
                "yuebing trace: http://%s/v1/audit: %s (HTTP status %ld); is it a conductor's "
                "port?\n",
                address, status == YB_OK ? "no audit" : error, code);
        json_decref(json);
        return NULL;
    }
    return json;
}

/* What the open ones wait for. */
static void
print_open(FILE *out, const json_t *open_for)
{
    static const struct {
        const char *name;
        const char *text;
    } reasons[] = {
        {"engine", "an engine will say"},
        {"awaited", "wait for their blocks, their time or room"},
        {"under_way", "are under way"},
        {"watched", "came, and are watched for who reads them"},
    };
    const char *before = ": ";

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        const uint64_t count = yb_ask_number(open_for, reasons[i].name);

        if (count > 0) {
            fprintf(out, "%s%" PRIu64 " %s", before, count, reasons[i].text);
            before = ", ";
        }
    }
    (void)fputc('\n', out);
}

int
yb_cli_trace_audit(struct yb_cli *cli)
{
    const char *given = yb_cli_option(cli, "at");
    json_t *audit = ask(cli, given != NULL ? given : YB_ASK_ADDRESS_DEFAULT);
    json_int_t issued = 0;
    json_int_t terminal = 0;
    json_int_t open = 0;
    int code = 0;

    if (audit == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    if (json_unpack(audit, "{s:I, s:I, s:I}", "issued", &issued, "terminal", &terminal, "open",
                    &open) != 0 ||
        issued != terminal + open) {
        fprintf(cli->err, "yuebing trace: the account does not balance\n");
        code = YB_CLI_EXIT_FAILED;
    }
    if (cli->json) {
        return yb_output_json(cli->out, audit) == YB_OK ? code : YB_CLI_EXIT_FAILED;
    }
    fprintf(cli->out,
            "instructions issued %" JSON_INTEGER_FORMAT ", ended %" JSON_INTEGER_FORMAT
            ", open %" JSON_INTEGER_FORMAT,
            issued, terminal, open);
    print_open(cli->out, json_object_get(audit, "open_for"));
    json_decref(audit);
    return code;
}
