/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "cli/output.h"
#include "yuebing/version.h"

static const struct yb_cli_command commands[] = {
#define X(name_, word_, arguments_, max_, sections_, json_, help_) \
    {                                                              \
        .name = (word_),                                           \
        .arguments = arguments_,                                   \
        .arguments_max = max_,                                     \
        .sections = sections_,                                     \
        .has_json = json_,                                         \
        .help = help_,                                             \
        .options = yb_cli_##name_##_options,                       \
        .run = yb_cli_##name_,                                     \
    },
    YB_CLI_COMMAND_MAP(X)
#undef X
        {.name = NULL},
};

const struct yb_cli_command *
yb_cli_commands(void)
{
    return commands;
}

static const struct yb_cli_command *
find_command(const char *name)
{
    for (const struct yb_cli_command *command = commands; command->name != NULL; command++) {
        if (strcmp(command->name, name) == 0) {
            return command;
        }
    }
    return NULL;
}

static void
print_help(FILE *out)
{
    fprintf(out, "Usage: yuebing COMMAND [options]\n\n"
                 "Moves, keeps and finds the KV cache of LLM inference.\n\nCommands:\n");
    for (const struct yb_cli_command *command = commands; command->name != NULL; command++) {
        fprintf(out, "  %-14s %s\n", command->name, command->help);
    }
    fprintf(out, "  %-14s %s\n", "help", "explain a command and its options");
    fprintf(out, "\n`yuebing help COMMAND` lists a command's options, `yuebing --version` says\n"
                 "which version this is, `yuebing config` where each value comes from.\n");
}

/* Print one line of help: the option, its argument, and the text at a fixed column. */
static void
print_option(FILE *out, const char *name, const char *argument, const char *help)
{
    char left[2 * YB_CONFIG_NAME_MAX];

    snprintf(left, sizeof(left), "--%s%s%s", name, argument == NULL ? "" : " ",
             argument == NULL ? "" : argument);
    fprintf(out, "  %-34s %s\n", left, help);
}

static void
print_row_option(FILE *out, const struct yb_config_row *row)
{
    char name[YB_CONFIG_NAME_MAX];
    char allowed[YB_CONFIG_TEXT_MAX];

    yb_config_option_name(row, row->alias[0] != '\0', name);
    yb_config_allowed_text(row, allowed);
    print_option(out, name + 2, row->type == YB_CONFIG_TYPE_BOOL ? NULL : "VALUE", row->help);
    fprintf(out, "  %-34s   %s; default %s\n", "", allowed,
            row->text[0] == '\0' ? "empty" : row->text);
}

static void
print_command_help(FILE *out, const struct yb_cli_command *command)
{
    fprintf(out, "Usage: yuebing %s%s%s [options]\n\n%s.\n\nOptions:\n", command->name,
            command->arguments[0] == '\0' ? "" : " ", command->arguments, command->help);
    for (const struct yb_cli_option *option = command->options; option->name != NULL; option++) {
        print_option(out, option->name, option->argument, option->help);
    }
    if (command->has_json) {
        print_option(out, "json", NULL, "print one JSON document instead of a table");
    }
    print_option(out, "help", NULL, "print this text");
    for (unsigned section = 0; section < YB_CONFIG_SECTIONS; section++) {
        if ((command->sections & (1u << section)) == 0) {
            continue;
        }
        fprintf(out, "\nOptions of [%s], %s:\n",
                yb_config_section_name((enum yb_config_section)section),
                yb_config_section_help((enum yb_config_section)section));
        for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
            if (yb_config_rows()[i].section == section) {
                print_row_option(out, &yb_config_rows()[i]);
            }
        }
    }
}

static int
refuse_command(const char *name, FILE *err)
{
    struct yb_config_nearest nearest;

    if (name[0] == '-') {
        fprintf(err, "yuebing: \"%s\" before the command; write yuebing COMMAND [options]\n", name);
        return YB_CLI_EXIT_REFUSED;
    }
    yb_config_nearest_init(&nearest, name);
    for (const struct yb_cli_command *command = commands; command->name != NULL; command++) {
        yb_config_nearest_offer(&nearest, command->name);
    }
    yb_config_nearest_offer(&nearest, "help");
    fprintf(err, "yuebing: unknown command \"%s\"", name);
    if (nearest.best[0] != '\0') {
        fprintf(err, "; did you mean %s?\n", nearest.best);
    } else {
        fprintf(err, "; `yuebing help` lists them\n");
    }
    return YB_CLI_EXIT_REFUSED;
}

static int
help_command(int argc, char **argv, FILE *out, FILE *err)
{
    const struct yb_cli_command *command;

    if (argc < 3) {
        print_help(out);
        return 0;
    }
    command = find_command(argv[2]);
    if (command == NULL) {
        return refuse_command(argv[2], err);
    }
    print_command_help(out, command);
    return 0;
}

static void
add_extra(struct yb_cli *cli, const char *name, const char *argument)
{
    YB_ASSERT(cli->extra_count < YB_CONFIG_EXTRAS_MAX);
    cli->extras[cli->extra_count++] = (struct yb_config_extra){.name = name, .argument = argument};
}

static bool
extra_given(const struct yb_cli *cli, const char *name)
{
    for (unsigned i = 0; i < cli->extra_count; i++) {
        if (strcmp(cli->extras[i].name, name) == 0) {
            return cli->extras[i].value_out != NULL;
        }
    }
    return false;
}

const char *
yb_cli_option(const struct yb_cli *cli, const char *name)
{
    unsigned i = 0;

    while (i < cli->extra_count && strcmp(cli->extras[i].name, name) != 0) {
        i++;
    }
    YB_ASSERT(i < cli->extra_count);
    return cli->extras[i].value_out;
}

bool
yb_cli_option_number(const struct yb_cli *cli, const char *name, uint64_t low, uint64_t high,
                     uint64_t *number_out)
{
    const char *text = yb_cli_option(cli, name);
    unsigned long long number;
    char *end;

    if (text == NULL) {
        return true;
    }
    errno = 0;
    number = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || number < low ||
        number > high) {
        fprintf(cli->err, "yuebing %s: --%s cannot be \"%s\"; allowed: %llu .. %llu\n",
                cli->command->name, name, text, (unsigned long long)low, (unsigned long long)high);
        return false;
    }
    *number_out = number;
    return true;
}

/* `argv[0]` is the command's name. */
static int
run_command(struct yb_cli *cli, int argc, char **argv, char *const *environment)
{
    const struct yb_cli_command *command = cli->command;
    struct yb_config_input input = {
        .argc = argc,
        .argv = argv,
        .environment = environment,
        .sections = command->sections,
        .extras = cli->extras,
    };
    char message[YB_CONFIG_MESSAGE_MAX];
    int rest;

    add_extra(cli, "help", NULL);
    if (command->has_json) {
        add_extra(cli, "json", NULL);
    }
    for (const struct yb_cli_option *option = command->options; option->name != NULL; option++) {
        add_extra(cli, option->name, option->argument);
    }
    input.extra_count = cli->extra_count;
    if (yb_config_load(&input, &cli->config, &rest, message) != YB_OK) {
        fprintf(cli->err, "yuebing: %s\n", message);
        return YB_CLI_EXIT_REFUSED;
    }
    if (extra_given(cli, "help")) {
        print_command_help(cli->out, command);
        return 0;
    }
    if (argc - rest > command->arguments_max) {
        fprintf(cli->err, "yuebing: unexpected \"%s\"; write yuebing %s %s\n",
                argv[rest + command->arguments_max], command->name, command->arguments);
        return YB_CLI_EXIT_REFUSED;
    }
    cli->json = extra_given(cli, "json");
    return command->run(cli, argc - rest, argv + rest);
}

int
yb_cli_main(int argc, char **argv, char *const *environment, FILE *out, FILE *err)
{
    struct yb_cli cli = {.out = out, .err = err, .terminal = isatty(fileno(out)) == 1};
    const char *name = argc < 2 ? "" : argv[1];
    int code;

    if (name[0] == '\0') {
        print_help(err);
        return YB_CLI_EXIT_REFUSED;
    }
    if (strcmp(name, "--version") == 0) {
        fprintf(out, "yuebing %s\n", yb_version());
        code = 0;
    } else if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 ||
               strcmp(name, "-h") == 0) {
        code = help_command(argc, argv, out, err);
    } else {
        cli.command = find_command(name);
        code = cli.command == NULL ? refuse_command(name, err)
                                   : run_command(&cli, argc - 1, argv + 1, environment);
    }
    /* A full disk or a closed pipe must not look like success. */
    if (fflush(out) != 0 && code == 0) {
        fprintf(err, "yuebing: cannot write: %s\n", strerror(errno));
        code = YB_CLI_EXIT_FAILED;
    }
    return code;
}
