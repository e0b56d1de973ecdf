/* SPDX-License-Identifier: Apache-2.0
 *
 * `yuebing config`: the effective table, and the documents made from it.
 */
#include <string.h>

#include "cli/cli.h"
#include "cli/docs.h"
#include "cli/output.h"

const struct yb_cli_option yb_cli_config_options[] = {
    {"markdown", NULL, "print docs/config.md"},
    {"known", NULL, "print docs/compat.md"},
    {"man", "SECTION", "print a manual page: 1, the program, or 5, its configuration file"},
    {"completion", "SHELL", "print the completion script of bash, zsh or fish"},
    {NULL, NULL, NULL},
};

static json_t *
row_as_json(const struct yb_config *config, enum yb_config_row_index index)
{
    const struct yb_config_row *row = &yb_config_rows()[index];
    char value[YB_CONFIG_TEXT_MAX];
    char origin[YB_CONFIG_ORIGIN_MAX];
    char allowed[YB_CONFIG_TEXT_MAX];
    char name[2 * YB_CONFIG_NAME_MAX];

    yb_config_value_text(config, index, value);
    yb_config_origin_text(config, index, origin);
    yb_config_allowed_text(row, allowed);
    snprintf(name, sizeof(name), "%s.%s", row->section_name, row->name);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s}", "name", name, "value", value, "source",
                     origin, "default", row->text, "unit", row->unit, "allowed", allowed, "help",
                     row->help);
}

static enum yb_status
print_json(const struct yb_cli *cli)
{
    json_t *rows = json_array();

    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        if (json_array_append_new(rows, row_as_json(&cli->config, i)) != 0) {
            json_decref(rows);
            return YB_NO_MEMORY;
        }
    }
    return yb_output_json(cli->out, rows);
}

static enum yb_status
print_table(const struct yb_cli *cli)
{
    static const char *const columns[] = {"NAME", "VALUE", "SOURCE", "MEANING"};
    struct yb_output_table *table = NULL;
    enum yb_status status = yb_output_table_create(columns, 4, &table);

    for (unsigned i = 0; i < YB_CONFIG_ROWS && status == YB_OK; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];
        char name[2 * YB_CONFIG_NAME_MAX];
        char value[YB_CONFIG_TEXT_MAX];
        char origin[YB_CONFIG_ORIGIN_MAX];
        const char *cells[4] = {name, value, origin, row->help};

        snprintf(name, sizeof(name), "%s.%s", row->section_name, row->name);
        yb_config_value_text(&cli->config, i, value);
        yb_config_origin_text(&cli->config, i, origin);
        cells[1] = value[0] == '\0' ? "-" : value;
        status = yb_output_table_add(table, cells);
    }
    if (status == YB_OK) {
        yb_output_table_print(table, cli->out, cli->terminal);
    }
    yb_output_table_destroy(&table);
    return status;
}

/* Print the document that `text`, the argument of `option`, asks for. */
static int
print_choice(const struct yb_cli *cli, const char *option, const char *text)
{
    static const struct {
        const char *option;
        const char *text;
        void (*print)(FILE *out);
    } documents[] = {
        {"man", "1", yb_docs_man_program},
        {"man", "5", yb_docs_man_config},
        {"completion", "bash", yb_docs_completion_bash},
        {"completion", "zsh", yb_docs_completion_zsh},
        {"completion", "fish", yb_docs_completion_fish},
    };

    for (size_t i = 0; i < sizeof(documents) / sizeof(documents[0]); i++) {
        if (strcmp(documents[i].option, option) == 0 && strcmp(documents[i].text, text) == 0) {
            documents[i].print(cli->out);
            return 0;
        }
    }
    fprintf(cli->err, "yuebing config: --%s cannot be \"%s\"; allowed: %s\n", option, text,
            strcmp(option, "man") == 0 ? "1 or 5" : "bash, zsh or fish");
    return YB_CLI_EXIT_REFUSED;
}

int
yb_cli_config(struct yb_cli *cli, int argc, char **argv)
{
    const char *man = yb_cli_option(cli, "man");
    const char *completion = yb_cli_option(cli, "completion");
    const char *markdown = yb_cli_option(cli, "markdown");
    const char *known = yb_cli_option(cli, "known");
    int asked =
        (man != NULL) + (completion != NULL) + (markdown != NULL) + (known != NULL) + cli->json;
    enum yb_status status;

    (void)argc;
    (void)argv;
    if (asked > 1) {
        fprintf(
            cli->err,
            "yuebing config: give one of --json, --markdown, --known, --man and --completion\n");
        return YB_CLI_EXIT_REFUSED;
    }
    if (known != NULL) {
        yb_docs_known(cli->out);
        return 0;
    }
    if (markdown != NULL) {
        yb_docs_markdown(cli->out);
        return 0;
    }
    if (man != NULL) {
        return print_choice(cli, "man", man);
    }
    if (completion != NULL) {
        return print_choice(cli, "completion", completion);
    }
    status = cli->json ? print_json(cli) : print_table(cli);
    if (status != YB_OK) {
        fprintf(cli->err, "yuebing config: %s\n", yb_status_text(status));
        return YB_CLI_EXIT_FAILED;
    }
    return 0;
}
