/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing verify`: is each link of a running cluster whole?
 */
#include "cli/verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_verify_options[] = {
    {"conductor", "HOST:PORT", "send prompts through its engines, too"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

static const struct {
    const char *name;
    void (*try)(struct yb_verify *verify, struct yb_verify_link *link);
} links[YB_VERIFY_LINKS] = {
    {"metadata map", yb_verify_map},       {"prefetch", yb_verify_prefetch},
    {"local hit", yb_verify_local},        {"return to origin", yb_verify_origin},
    {"end-to-end reuse", yb_verify_reuse},
};

static const char *const words[] = {"untried", "ok", "absent", "broken"};

/* ---- blocks ---------------------------------------------------------------------------------- */

void
yb_verify_key(const struct yb_verify *verify, uint32_t index, char key_out[YB_VERIFY_KEY])
{
    (void)snprintf(key_out, YB_VERIFY_KEY, "yuebing/verify/%016" PRIx64 "/%" PRIu32, verify->number,
                   index);
}

void
yb_verify_fill(uint8_t *bytes, uint64_t number, uint32_t index)
{
    uint64_t state = (number ^ index) * 2685821657736338717ull | 1;

    for (size_t i = 0; i < YB_VERIFY_BYTES; i += sizeof(state)) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + i, &state, sizeof(state));
    }
}

enum yb_status
yb_verify_put(struct yb_verify *verify, uint32_t index, const char *node)
{
    const char *const preferred[] = {node, NULL};
    struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = verify->timeout_ns};
    struct iovec iov = {.iov_base = verify->bytes, .iov_len = YB_VERIFY_BYTES};
    char key[YB_VERIFY_KEY];
    struct yb_client_item item = {.key = key, .iov = &iov, .iov_count = 1};
    enum yb_status status;

    yb_verify_key(verify, index, key);
    yb_verify_fill(verify->bytes, verify->number, index);
    item.key_bytes = (uint32_t)strlen(key);
    call.put.replicas = 1;
    call.put.preferred = node != NULL ? preferred : NULL;
    status = yb_client_put(verify->writer, &item, 1, &call);
    return status != YB_OK ? status : item.status;
}

enum yb_status
yb_verify_get(struct yb_verify *verify, uint32_t index)
{
    struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = verify->timeout_ns};
    struct iovec iov = {.iov_base = verify->back, .iov_len = YB_VERIFY_BYTES};
    char key[YB_VERIFY_KEY];
    struct yb_client_item item = {.key = key, .iov = &iov, .iov_count = 1};
    enum yb_status status;

    yb_verify_key(verify, index, key);
    yb_verify_fill(verify->bytes, verify->number, index);
    memset(verify->back, 0, YB_VERIFY_BYTES);
    item.key_bytes = (uint32_t)strlen(key);
    status = yb_client_get(verify->reader, &item, 1, &call);
    status = status != YB_OK ? status : item.status;
    if (status == YB_OK && (item.bytes != YB_VERIFY_BYTES ||
                            memcmp(verify->bytes, verify->back, YB_VERIFY_BYTES) != 0)) {
        status = YB_CORRUPT;
    }
    return status;
}

/* What was put goes again; what cannot be is somebody's to find under its name. */
static void
remove_all(struct yb_verify *verify)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call), .timeout_ns = verify->timeout_ns, .force = true};

    for (uint32_t i = 0; i < YB_VERIFY_NODES_MAX; i++) {
        char key[YB_VERIFY_KEY];
        struct yb_client_item item = {.key = key};

        if (verify->put[i]) {
            yb_verify_key(verify, i, key);
            item.key_bytes = (uint32_t)strlen(key);
            (void)!yb_client_remove(verify->writer, &item, 1, &call);
        }
    }
}

bool
yb_verify_say(struct yb_verify_link *link, enum yb_verify_state state, const char *format, ...)
{
    va_list arguments;

    link->state = state;
    va_start(arguments, format);
    (void)vsnprintf(link->text, sizeof(link->text), format, arguments);
    va_end(arguments);
    return state != YB_VERIFY_BROKEN;
}

/* ---- telling --------------------------------------------------------------------------------- */

static int
print_text(const struct yb_verify *verify)
{
    static const char *const columns[] = {"LINK", "", "ms", "BYTES", ""};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 5, &table);

    for (uint32_t i = 0; i < YB_VERIFY_LINKS && status == YB_OK; i++) {
        const struct yb_verify_link *link = &verify->links[i];
        char ms[24], bytes[YB_CLI_BYTES_TEXT];
        const char *cells[] = {links[i].name, words[link->state], ms, bytes, link->text};

        (void)snprintf(ms, sizeof(ms), "%.1f", (double)link->took_ns / 1e6);
        yb_cli_bytes_text(link->bytes, bytes);
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, verify->cli->out, verify->cli->terminal);
    }
    yb_output_table_destroy(&table);
    return status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
}

static int
print_json(const struct yb_verify *verify, bool whole)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < YB_VERIFY_LINKS; i++) {
        const struct yb_verify_link *link = &verify->links[i];

        (void)json_array_append_new(rows,
                                    json_pack("{s:s, s:s, s:s, s:I, s:I}", "name", links[i].name,
                                              "state", words[link->state], "text", link->text,
                                              "took_us", (json_int_t)(link->took_ns / YB_NS_PER_US),
                                              "bytes", (json_int_t)link->bytes));
    }
    return yb_output_json(verify->cli->out,
                          json_pack("{s:b, s:o}", "whole", (int)whole, "links", rows)) == YB_OK
               ? 0
               : YB_CLI_EXIT_FAILED;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* Try all links; false: one is broken. */
static bool
try_all(struct yb_verify *verify)
{
    const struct yb_clock *clock = yb_clock_system();
    bool whole = true;

    for (uint32_t i = 0; i < YB_VERIFY_LINKS; i++) {
        struct yb_verify_link *link = &verify->links[i];
        uint64_t begun_ns = yb_clock_now(clock);

        links[i].try(verify, link);
        YB_ASSERT(link->state != YB_VERIFY_UNTRIED);
        if (link->took_ns == 0) {
            link->took_ns = yb_clock_now(clock) - begun_ns;
        }
        whole = whole && link->state != YB_VERIFY_BROKEN;
    }
    return whole;
}

static int
run(struct yb_verify *verify)
{
    struct yb_cli *cli = verify->cli;
    bool whole;
    int code = 0;

    if (yb_cli_open_client(cli, verify->timeout_ns, &verify->writer, &code) != YB_OK ||
        yb_cli_open_client(cli, verify->timeout_ns, &verify->reader, &code) != YB_OK) {
        return code;
    }
    if (yb_cli_store_open(cli, true, &verify->store) != YB_OK) {
        return YB_CLI_EXIT_FAILED;
    }
    whole = try_all(verify);
    remove_all(verify);
    code = cli->json ? print_json(verify, whole) : print_text(verify);
    yb_cli_store_close(&verify->store);
    return code != 0 || whole ? code : YB_CLI_EXIT_FAILED;
}

int
yb_cli_verify(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_verify *verify = calloc(1, sizeof(*verify));
    int code = YB_CLI_EXIT_FAILED;

    (void)argc;
    (void)argv;
    if (verify == NULL) {
        return YB_CLI_EXIT_FAILED;
    }
    verify->cli = cli;
    verify->conductor = yb_cli_option(cli, "conductor");
    verify->bytes = malloc(YB_VERIFY_BYTES);
    verify->back = malloc(YB_VERIFY_BYTES);
    if (!yb_cli_store_timeout(cli, &verify->timeout_ns)) {
        code = YB_CLI_EXIT_REFUSED;
    } else if (verify->bytes != NULL && verify->back != NULL &&
               getrandom(&verify->number, sizeof(verify->number), 0) == sizeof(verify->number)) {
        code = run(verify);
    }
    if (verify->writer != NULL) {
        yb_client_close(&verify->writer);
    }
    if (verify->reader != NULL) {
        yb_client_close(&verify->reader);
    }
    free(verify->bytes);
    free(verify->back);
    free(verify);
    return code;
}
