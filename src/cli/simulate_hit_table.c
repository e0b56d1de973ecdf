/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing simulate --hit-table TRACE`: see sim/hit_table.h.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cli/output.h"
#include "cli/simulate.h"
#include "sim/hit_table.h"

#define POLICIES_MAX 32u
#define SIZES_MAX    64u
#define LIST_MAX     512u

static const char *const tag_names[] = {"none", "position", "inferred", "full"};
#define TAGS (sizeof tag_names / sizeof tag_names[0])

struct table {
    struct yb_cli *cli;
    struct yb_trace *trace;
    enum yb_hit_tags tags[POLICIES_MAX];
    const char *policies[POLICIES_MAX];
    uint64_t sizes[SIZES_MAX]; /* 0: infinite. */
    uint32_t policy_count;
    uint32_t size_count;
    struct yb_hit_result results[POLICIES_MAX][SIZES_MAX];
};

static bool
refuse(const struct table *table, const char *option, const char *what)
{
    fprintf(table->cli->err, "yuebing simulate: --%s cannot have \"%s\"; allowed:", option, what);
    return false;
}

static bool
take_policy(struct table *table, const char *word)
{
    uint32_t i = 0;

    while (yb_hit_policy(i) != NULL && strcmp(yb_hit_policy(i), word) != 0) {
        i++;
    }
    if (yb_hit_policy(i) == NULL || table->policy_count == POLICIES_MAX) {
        refuse(table, "policies", word);
        for (i = 0; yb_hit_policy(i) != NULL; i++) {
            fprintf(table->cli->err, " %s", yb_hit_policy(i));
        }
        fputc('\n', table->cli->err);
        return false;
    }
    table->policies[table->policy_count++] = yb_hit_policy(i);
    return true;
}

static bool
take_size(struct table *table, const char *word)
{
    char *end;
    unsigned long long size = strtoull(word, &end, 10);

    if (strcmp(word, "inf") == 0) {
        size = 0;
    } else if (word[0] < '1' || word[0] > '9' || *end != '\0' || size > YB_TRACE_REFERENCES_MAX) {
        size = UINT64_MAX;
    }
    if (size == UINT64_MAX || table->size_count == SIZES_MAX) {
        refuse(table, "blocks", word);
        fprintf(table->cli->err, " up to %u of 1 .. %u and inf\n", SIZES_MAX,
                YB_TRACE_REFERENCES_MAX);
        return false;
    }
    table->sizes[table->size_count++] = size;
    return true;
}

/* Call `take` for each word of a list with commas. */
static bool
take_list(struct table *table, const char *option, bool (*take)(struct table *, const char *))
{
    const char *text = yb_cli_option(table->cli, option);
    char words[LIST_MAX];
    char *rest = words;

    if (strlen(text) >= sizeof words) {
        refuse(table, option, text);
        fprintf(table->cli->err, " a list of less than %u bytes\n", LIST_MAX);
        return false;
    }
    snprintf(words, sizeof words, "%s", text);
    while (rest != NULL) {
        char *word = strsep(&rest, ",");

        if (!take(table, word)) {
            return false;
        }
    }
    return true;
}

/* Tell all policies the same, or each what it is published with. */
static bool
read_tags(struct table *table)
{
    const char *word = yb_cli_option(table->cli, "tags");
    uint32_t i = 0;

    while (word != NULL && i < TAGS && strcmp(word, tag_names[i]) != 0) {
        i++;
    }
    if (i == TAGS) {
        refuse(table, "tags", word);
        for (i = 0; i < TAGS; i++) {
            fprintf(table->cli->err, " %s", tag_names[i]);
        }
        fputc('\n', table->cli->err);
        return false;
    }
    for (uint32_t j = 0; j < table->policy_count; j++) {
        table->tags[j] = word != NULL ? (enum yb_hit_tags)i : yb_hit_tags_usual(table->policies[j]);
    }
    return true;
}

static bool
read_options(struct table *table)
{
    if (yb_cli_option(table->cli, "policies") != NULL) {
        if (!take_list(table, "policies", take_policy)) {
            return false;
        }
    } else {
        for (uint32_t i = 0; yb_hit_policy(i) != NULL; i++) {
            table->policies[table->policy_count++] = yb_hit_policy(i);
        }
    }
    if (yb_cli_option(table->cli, "blocks") != NULL) {
        if (!take_list(table, "blocks", take_size)) {
            return false;
        }
    } else {
        for (uint32_t i = 0; i < YB_HIT_SIZES; i++) {
            table->sizes[table->size_count++] = yb_hit_size(i);
        }
    }
    return read_tags(table);
}

static enum yb_status
run(struct table *table)
{
    for (uint32_t i = 0; i < table->policy_count; i++) {
        for (uint32_t j = 0; j < table->size_count; j++) {
            struct yb_hit_case one = {table->policies[i], table->sizes[j], table->tags[i]};
            enum yb_status status = yb_hit_run(table->trace, &one, &table->results[i][j]);

            if (status != YB_OK) {
                return status;
            }
        }
    }
    return YB_OK;
}

static enum yb_status
print_json(const struct table *table)
{
    json_t *rows = json_array();

    for (uint32_t i = 0; i < table->policy_count; i++) {
        for (uint32_t j = 0; j < table->size_count; j++) {
            const struct yb_hit_result *result = &table->results[i][j];
            json_t *row = json_pack("{s:s, s:s, s:f, s:I}", "policy", table->policies[i], "tags",
                                    tag_names[table->tags[i]], "prefix_hit", result->prefix_hit,
                                    "refetches", (json_int_t)result->refetches);

            json_object_set_new(row, "blocks",
                                table->sizes[j] == 0 ? json_string("inf")
                                                     : json_integer((json_int_t)table->sizes[j]));
            json_array_append_new(rows, row);
        }
    }
    return yb_output_json(table->cli->out, json_pack("{s:o}", "rows", rows));
}

/* Two tables of policies and sizes: hits, and what is fetched again. */
static enum yb_status
print_part(const struct table *table, bool refetches)
{
    char cells[YB_OUTPUT_COLUMNS_MAX][24];
    const char *row[YB_OUTPUT_COLUMNS_MAX];
    uint32_t columns = table->size_count + 1;
    struct yb_output_table *output;
    enum yb_status status;

    columns = columns > YB_OUTPUT_COLUMNS_MAX ? YB_OUTPUT_COLUMNS_MAX : columns;
    snprintf(cells[0], sizeof cells[0], "%s", refetches ? "refetches" : "prefix hit");
    for (uint32_t j = 1; j < columns; j++) {
        snprintf(cells[j], sizeof cells[j], table->sizes[j - 1] == 0 ? "inf" : "%" PRIu64,
                 table->sizes[j - 1]);
    }
    for (uint32_t j = 0; j < columns; j++) {
        row[j] = cells[j];
    }
    status = yb_output_table_create(row, columns, &output);
    if (status != YB_OK) {
        return status;
    }
    for (uint32_t i = 0; i < table->policy_count && status == YB_OK; i++) {
        snprintf(cells[0], sizeof cells[0], "%s", table->policies[i]);
        for (uint32_t j = 1; j < columns; j++) {
            const struct yb_hit_result *result = &table->results[i][j - 1];

            if (refetches) {
                snprintf(cells[j], sizeof cells[j], "%" PRIu64, result->refetches);
            } else {
                snprintf(cells[j], sizeof cells[j], "%.4f", result->prefix_hit);
            }
        }
        status = yb_output_table_add(output, row);
    }
    if (status == YB_OK) {
        yb_output_table_print(output, table->cli->out, table->cli->terminal);
    }
    yb_output_table_destroy(&output);
    return status;
}

int
yb_simulate_hit_table(struct yb_cli *cli)
{
    struct table *table = calloc(1, sizeof *table);
    enum yb_status status = YB_OK;
    int code = YB_CLI_EXIT_REFUSED;

    if (table == NULL) {
        fprintf(cli->err, "yuebing simulate: %s\n", yb_status_text(YB_NO_MEMORY));
        return YB_CLI_EXIT_FAILED;
    }
    table->cli = cli;
    if (read_options(table) &&
        yb_simulate_trace(cli, yb_cli_option(cli, "hit-table"), &table->trace)) {
        status = run(table);
        if (status == YB_OK) {
            status = cli->json ? print_json(table) : print_part(table, false);
        }
        if (status == YB_OK && !cli->json) {
            fputc('\n', cli->out);
            status = print_part(table, true);
        }
        code = status == YB_OK ? 0 : YB_CLI_EXIT_FAILED;
    }
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing simulate: %s\n", yb_status_text(status));
    }
    yb_trace_destroy(&table->trace);
    free(table);
    return code;
}
