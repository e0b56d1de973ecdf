/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing keyspaces`: the keys of a tenant by who made them, and which of them should have met.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/output.h"
#include "cli/store.h"
#include "compat/keyspace.h"

#define WARNINGS_MAX 64u
#define TEXT_ROOM    (4 * YB_CLIENT_KEY_BYTES_MAX + 8)

const struct yb_cli_option yb_cli_keyspaces_options[] = {
    {"strict", NULL, "exit with 1 if there is a warning"},
    YB_CLI_STORE_OPTIONS,
    {NULL, NULL, NULL},
};

struct gathering {
    struct yb_keyspace *keyspace;
    enum yb_status status;
};

static bool
visit(void *context, const struct yb_client_entry *entry)
{
    struct gathering *gathering = context;

    gathering->status =
        yb_keyspace_add(gathering->keyspace, entry->key, entry->key_bytes, entry->size);
    return gathering->status == YB_OK;
}

/* A part of a family's name, as people may read it. */
static const char *
shown(const struct yb_keyspace_family *family, struct yb_keyspace_part part, char out[TEXT_ROOM])
{
    size_t at = 0;

    for (uint32_t i = 0; i < part.bytes && at + 5 < TEXT_ROOM; i++) {
        unsigned char c = (unsigned char)family->text[part.at + i];

        at += (size_t)snprintf(out + at, TEXT_ROOM - at,
                               c < 0x20 || c >= 0x7f || c == '\\' ? "\\x%02x" : "%c", c);
    }
    snprintf(out + at, TEXT_ROOM - at, "%s", at == 0 ? "-" : "");
    return out;
}

static const char *
name_of(const struct yb_keyspace_family *family, char out[TEXT_ROOM])
{
    return shown(family, (struct yb_keyspace_part){.at = 0, .bytes = (uint32_t)family->text_bytes},
                 out);
}

/* What share of the family's hashes its peer has. */
static void
shared_text(const struct yb_keyspace_family *family, bool alone, char out[24])
{
    if (alone || family->shared_judged == 0) {
        snprintf(out, 24, "-");
    } else {
        snprintf(out, 24, "%.0f %%",
                 100.0 * (double)family->shared / (double)family->shared_judged);
    }
}

static enum yb_status
print_families(FILE *out, bool terminal, const struct yb_keyspace *keyspace, uint32_t count)
{
    static const char *const columns[] = {"ENGINE", "MODEL", "RANK",  "BLOCKS",
                                          "COPIES", "BYTES", "SHARED"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 7, &table);

    for (uint32_t i = 0; status == YB_OK && i < count; i++) {
        const struct yb_keyspace_family *family = yb_keyspace_family(keyspace, i);
        char model[TEXT_ROOM], rank[TEXT_ROOM], blocks[24], copies[24], shared[24];
        char bytes[YB_CLI_BYTES_TEXT];
        const char *const cells[] = {yb_keyspace_engine_name(family->engine),
                                     shown(family, family->model, model),
                                     shown(family, family->rank, rank),
                                     blocks,
                                     copies,
                                     bytes,
                                     shared};

        snprintf(blocks, sizeof(blocks), "%s%" PRIu64, family->exact ? "" : "~", family->blocks);
        snprintf(copies, sizeof(copies), "%" PRIu64, family->copies);
        yb_cli_bytes_text(family->bytes, bytes);
        shared_text(family, family->peer == i, shared);
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, out, terminal);
    }
    yb_output_table_destroy(&table);
    return status;
}

static void
print_warnings(FILE *out, const struct yb_keyspace *keyspace,
               const struct yb_keyspace_warning *warnings, uint32_t count)
{
    char text[TEXT_ROOM];

    for (uint32_t i = 0; i < count && i < WARNINGS_MAX; i++) {
        fprintf(out, "\nwarning: %s\n  %s\n", yb_keyspace_warning_what(warnings[i].kind),
                name_of(yb_keyspace_family(keyspace, warnings[i].family), text));
        if (warnings[i].other != warnings[i].family) {
            fprintf(out, "  %s\n", name_of(yb_keyspace_family(keyspace, warnings[i].other), text));
        }
        fprintf(out, "  remedy: %s\n", yb_keyspace_warning_remedy(warnings[i].kind));
    }
    if (count > WARNINGS_MAX) {
        fprintf(out, "\n%" PRIu32 " more warnings\n", count - WARNINGS_MAX);
    }
}

static json_t *
family_json(const struct yb_keyspace *keyspace, uint32_t index)
{
    const struct yb_keyspace_family *family = yb_keyspace_family(keyspace, index);
    char text[TEXT_ROOM], model[TEXT_ROOM], rank[TEXT_ROOM];

    return json_pack(
        "{s:s, s:s, s:s, s:s, s:i, s:I, s:b, s:I, s:I, s:I, s:I, s:o, s:I, s:I}", "engine",
        yb_keyspace_engine_name(family->engine), "family", name_of(family, text), "model",
        shown(family, family->model, model), "rank", shown(family, family->rank, rank), "kin",
        (int)family->kin, "blocks", (json_int_t)family->blocks, "exact", (int)family->exact,
        "copies", (json_int_t)family->copies, "bytes", (json_int_t)family->bytes, "value_bytes",
        (json_int_t)family->value_bytes, "value_bytes_2", (json_int_t)family->value_bytes_2, "peer",
        family->peer == index ? json_null() : json_integer(family->peer), "shared",
        (json_int_t)family->shared, "shared_of", (json_int_t)family->shared_judged);
}

static json_t *
as_json(const struct yb_keyspace *keyspace, uint32_t count,
        const struct yb_keyspace_warning *warnings, uint32_t warning_count)
{
    struct yb_keyspace_totals totals = yb_keyspace_totals(keyspace);
    json_t *families = json_array();
    json_t *told = json_array();

    for (uint32_t i = 0; i < count; i++) {
        json_array_append_new(families, family_json(keyspace, i));
    }
    for (uint32_t i = 0; i < warning_count && i < WARNINGS_MAX; i++) {
        json_array_append_new(told,
                              json_pack("{s:s, s:i, s:i, s:s, s:s}", "kind",
                                        yb_keyspace_warning_name(warnings[i].kind), "family",
                                        (int)warnings[i].family, "other", (int)warnings[i].other,
                                        "what", yb_keyspace_warning_what(warnings[i].kind),
                                        "remedy", yb_keyspace_warning_remedy(warnings[i].kind)));
    }
    return json_pack("{s:I, s:I, s:I, s:o, s:I, s:o}", "copies", (json_int_t)totals.copies, "bytes",
                     (json_int_t)totals.bytes, "others", (json_int_t)totals.others, "families",
                     families, "warning_count", (json_int_t)warning_count, "warnings", told);
}

/* Print all of it. Returns the exit code. */
static int
tell(struct yb_cli *cli, struct yb_keyspace *keyspace)
{
    struct yb_keyspace_warning warnings[WARNINGS_MAX];
    uint32_t count = yb_keyspace_judge(keyspace);
    uint32_t warned = yb_keyspace_warnings(keyspace, warnings, WARNINGS_MAX);
    struct yb_keyspace_totals totals = yb_keyspace_totals(keyspace);
    enum yb_status status;

    if (cli->json) {
        status = yb_output_json(cli->out, as_json(keyspace, count, warnings, warned));
    } else {
        status = print_families(cli->out, cli->terminal, keyspace, count);
        if (totals.others > 0) {
            fprintf(cli->out, "%" PRIu64 " copies belong to more than %u families\n", totals.others,
                    YB_KEYSPACE_FAMILIES_MAX);
        }
        print_warnings(cli->out, keyspace, warnings, warned);
    }
    return status != YB_OK || (warned > 0 && yb_cli_option(cli, "strict") != NULL)
               ? YB_CLI_EXIT_FAILED
               : 0;
}

int
yb_cli_keyspaces(struct yb_cli *cli, int argc, char **argv)
{
    struct yb_client_call call = {.struct_bytes = sizeof(call)};
    struct gathering gathering = {.status = YB_OK};
    struct yb_client *client = NULL;
    enum yb_status status;
    int code = YB_CLI_EXIT_FAILED;

    (void)argc;
    (void)argv;
    if (!yb_cli_store_timeout(cli, &call.timeout_ns)) {
        return YB_CLI_EXIT_REFUSED;
    }
    if (yb_cli_open_client(cli, call.timeout_ns, &client, &code) != YB_OK) {
        return code;
    }
    status = yb_keyspace_create(&gathering.keyspace);
    if (status == YB_OK) {
        status = yb_client_list(client, YB_CLIENT_MATCH_ALL, NULL, &call, visit, &gathering);
        status = status == YB_OK ? gathering.status : status;
    }
    yb_client_close(&client);
    if (status == YB_OK) {
        code = tell(cli, gathering.keyspace);
    } else {
        fprintf(cli->err, "yuebing keyspaces: %s: %s\n", yb_status_name(status),
                yb_cli_outcome_text(status));
    }
    yb_keyspace_destroy(&gathering.keyspace);
    return code;
}
