/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing trace --audit`: whether every instruction of a conductor has ended, exactly once.
 */
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "base/clock.h"
#include "cli/output.h"
#include "cli/simulate.h"
#include "net/curl.h"

#define ADDRESS_DEFAULT "127.0.0.1:14780"
#define ANSWER_MAX      65536u
#define CONNECT_NS      (2 * YB_NS_PER_S)
#define TIMEOUT_NS      (5 * YB_NS_PER_S)

struct answer {
    char bytes[ANSWER_MAX];
    size_t length;
};

static bool
take(void *context, const void *bytes, size_t length)
{
    struct answer *answer = context;

    if (length > ANSWER_MAX - answer->length) {
        return false;
    }
    memcpy(answer->bytes + answer->length, bytes, length);
    answer->length += length;
    return true;
}

/* Return what the conductor says; NULL: it has been said why there is nothing. */
static json_t *
ask(struct yb_cli *cli, const char *address)
{
    struct answer answer = {.length = 0};
    char url[256];
    char error[YB_CURL_ERROR_BYTES] = "";
    const struct yb_curl_request request = {
        .method = "GET",
        .url = url,
        .connect_ns = CONNECT_NS,
        .timeout_ns = TIMEOUT_NS,
        .take = take,
        .context = &answer,
    };
    struct yb_curl *curl = NULL;
    json_t *json = NULL;
    long code = 0;
    enum yb_status status = yb_curl_create(&curl, error);

    (void)snprintf(url, sizeof(url), "http://%.200s/v1/audit", address);
    if (status == YB_OK) {
        status = yb_curl_ask(curl, &request, &code, error);
        yb_curl_destroy(&curl);
    }
    if (status == YB_OK && code == 200) {
        json = json_loadb(answer.bytes, answer.length, 0, NULL);
    }
    if (json == NULL) {
        fprintf(cli->err, "yuebing trace: %s: %s (HTTP status %ld); is it a conductor's port?\n",
                url, status == YB_OK ? "no audit" : error, code);
    }
    return json;
}

int
yb_cli_trace_audit(struct yb_cli *cli)
{
    const char *given = yb_cli_option(cli, "at");
    json_t *audit = ask(cli, given != NULL ? given : ADDRESS_DEFAULT);
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
            ", open %" JSON_INTEGER_FORMAT "\n",
            issued, terminal, open);
    json_decref(audit);
    return code;
}
