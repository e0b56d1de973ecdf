/* SPDX-License-Identifier: Apache-2.0
 *
 * The sources in their order. They are read strongest first, because the
 * command line and the environment say which file there is; yb_config_set keeps
 * a weaker source from replacing what a stronger one said.
 */
#include "base/config.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/config_internal.h"

#define ENVIRONMENT_PREFIX "YUEBING_"

/* What getopt_long returns for entry i of the option list: above any character. */
#define OPTION_VALUE_FIRST 256

/* Two names for each row, and the caller's. */
#define OPTIONS_MAX (2 * YB_CONFIG_ROWS + YB_CONFIG_EXTRAS_MAX + 1)

enum option_kind { OPTION_ROW, OPTION_ALIAS, OPTION_EXTRA };

struct option_list {
    struct option options[OPTIONS_MAX];
    char names[OPTIONS_MAX][YB_CONFIG_NAME_MAX]; /* Without the dashes. */
    enum option_kind kinds[OPTIONS_MAX];
    unsigned indices[OPTIONS_MAX]; /* Of the row or of the extra. */
    unsigned count;
};

char *const *
yb_config_environment(void)
{
    return environ;
}

const char *
yb_config_foreign(const char *name)
{
    static const char *const names[] = {
#define X(name, help) name,
        YB_CONFIG_FOREIGN_MAP(X) YB_CONFIG_S3_MAP(X)
#undef X
    };
    const char *value;
    size_t i = 0;

    while (i < sizeof(names) / sizeof(names[0]) && strcmp(names[i], name) != 0) {
        i++;
    }
    YB_ASSERT(i < sizeof(names) / sizeof(names[0]));
    value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static void
add_option(struct option_list *list, const char *name, int has_argument, enum option_kind kind,
           unsigned index)
{
    unsigned at = list->count++;

    YB_ASSERT(list->count < OPTIONS_MAX);
    YB_ASSERT(strlen(name) < YB_CONFIG_NAME_MAX);
    memcpy(list->names[at], name, strlen(name) + 1);
    list->kinds[at] = kind;
    list->indices[at] = index;
    list->options[at] = (struct option){
        .name = list->names[at],
        .has_arg = has_argument,
        .val = OPTION_VALUE_FIRST + (int)at,
    };
}

static void
build_options(const struct yb_config_input *input, struct option_list *list)
{
    char name[YB_CONFIG_NAME_MAX];

    memset(list, 0, sizeof(*list));
    for (unsigned i = 0; i < input->extra_count; i++) {
        int has_argument = input->extras[i].argument != NULL ? required_argument : no_argument;

        add_option(list, input->extras[i].name, has_argument, OPTION_EXTRA, i);
    }
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];
        bool flag = row->type == YB_CONFIG_TYPE_BOOL;

        yb_config_option_name(row, false, name);
        add_option(list, name + 2, flag ? optional_argument : required_argument, OPTION_ROW, i);
        if (row->alias[0] != '\0') {
            yb_config_option_name(row, true, name);
            add_option(list, name + 2, flag ? optional_argument : required_argument, OPTION_ALIAS,
                       i);
        }
    }
}

/* Whether the option applies to the caller: its own, or a row of one of its sections. */
static bool
option_applies(const struct yb_config_input *input, const struct option_list *list, unsigned at)
{
    return list->kinds[at] == OPTION_EXTRA ||
           (input->sections & (1u << yb_config_rows()[list->indices[at]].section)) != 0;
}

/* `word` is what stands on the command line: "--net-workres=4" or "-x". */
static void
refuse_option(const struct yb_config_input *input, const struct option_list *list, const char *word,
              char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char name[CONFIG_QUOTED_MAX];
    char quoted[CONFIG_QUOTED_MAX];
    struct yb_config_nearest nearest;
    int length;

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(word, "="), word);
    yb_config_quote(name, quoted);
    length = snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "unknown option %s", quoted);
    yb_config_nearest_init(&nearest, name + strspn(name, "-"));
    for (unsigned i = 0; i < list->count; i++) {
        if (!option_applies(input, list, i)) {
            continue;
        }
        yb_config_nearest_offer(&nearest, list->names[i]);
        /* The beginning of exactly what was meant counts as near, however short. */
        if (nearest.wanted[0] != '\0' &&
            strncmp(list->names[i], nearest.wanted, strlen(nearest.wanted)) == 0) {
            memcpy(nearest.best, list->names[i], sizeof(nearest.best));
            nearest.distance = 0;
        }
    }
    if (nearest.best[0] != '\0') {
        snprintf(message_out + length, YB_CONFIG_MESSAGE_MAX - (size_t)length,
                 "; did you mean --%s?", nearest.best);
    }
}

static enum yb_status
apply_option(struct yb_config *config, const struct yb_config_input *input,
             const struct option_list *list, unsigned at, char message_out[YB_CONFIG_MESSAGE_MAX])
{
    const char *text = optarg != NULL ? optarg : "";
    char where[YB_CONFIG_NAME_MAX + 2];
    struct yb_config_origin origin = {
        .source = YB_CONFIG_SOURCE_OPTION,
        .by_alias = list->kinds[at] == OPTION_ALIAS,
    };
    enum yb_config_row_index index;

    if (list->kinds[at] == OPTION_EXTRA) {
        input->extras[list->indices[at]].value_out = text;
        return YB_OK;
    }
    index = (enum yb_config_row_index)list->indices[at];
    snprintf(where, sizeof(where), "--%s", list->names[at]);
    if (!option_applies(input, list, at)) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%s has no effect on this command", where);
        return YB_INVALID;
    }
    if (optarg == NULL) {
        YB_ASSERT(yb_config_rows()[index].type == YB_CONFIG_TYPE_BOOL);
        text = "true";
    }
    return yb_config_set_from(config, index, text, origin, where, message_out);
}

/* Return the word that getopt_long has just taken apart: the one before `optind`, or before
 * that when its argument stood apart. */
static const char *
current_word(const struct yb_config_input *input)
{
    int at = optind - 1;

    if (optarg != NULL && at > 1 && optarg == input->argv[at]) {
        at--;
    }
    YB_ASSERT(at >= 1 && at < input->argc);
    return input->argv[at];
}

/* Whether `word` spells the option out: getopt_long also takes the beginnings of names, which
 * would change their meaning whenever a row is added. */
static bool
is_spelt_out(const char *word, const char *name)
{
    size_t length = strcspn(word, "=");

    return length == strlen(name) + 2 && memcmp(word + 2, name, length - 2) == 0;
}

static enum yb_status
refuse_unparsed(const struct yb_config_input *input, const struct option_list *list, int code,
                char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char letter[3] = {'-', (char)optopt, '\0'};
    char quoted[CONFIG_QUOTED_MAX];

    if (optopt > 0 && optopt < OPTION_VALUE_FIRST) {
        refuse_option(input, list, letter, message_out);
        return YB_INVALID;
    }
    if (code != ':' && optopt == 0) {
        refuse_option(input, list, input->argv[optind - 1], message_out);
        return YB_INVALID;
    }
    yb_config_quote(input->argv[optind - 1], quoted);
    snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "option %s %s", quoted,
             code == ':' ? "needs a value" : "takes no value");
    return YB_INVALID;
}

static enum yb_status
apply_options(struct yb_config *config, const struct yb_config_input *input, int *rest_out,
              char message_out[YB_CONFIG_MESSAGE_MAX])
{
    struct option_list list;
    enum yb_status status = YB_OK;
    int code;

    if (input->argc == 1) {
        return YB_OK; /* Libraries have no command line, and getopt_long has one state for all. */
    }
    build_options(input, &list);
    opterr = 0;
    optind = 0; /* Starts getopt_long afresh; it begins at argv[1]. */
    while (status == YB_OK) {
        /* getopt_long reorders argv, which is why the caller's is not const. */
        code = getopt_long(input->argc, input->argv, ":", list.options, NULL);
        if (code == -1) {
            break;
        }
        if (code < OPTION_VALUE_FIRST) {
            status = refuse_unparsed(input, &list, code, message_out);
        } else if (!is_spelt_out(current_word(input), list.names[code - OPTION_VALUE_FIRST])) {
            refuse_option(input, &list, current_word(input), message_out);
            status = YB_INVALID;
        } else {
            unsigned at = (unsigned)(code - OPTION_VALUE_FIRST);

            status = apply_option(config, input, &list, at, message_out);
        }
    }
    *rest_out = optind;
    return status;
}

static bool
is_other_name(const char *name)
{
#define X(other, help)              \
    if (strcmp(name, other) == 0) { \
        return true;                \
    }
    YB_CONFIG_ENVIRONMENT_OTHER_MAP(X)
#undef X
    return false;
}

static void
refuse_variable(const char *name, char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char known[YB_CONFIG_NAME_MAX];
    char quoted[CONFIG_QUOTED_MAX];
    struct yb_config_nearest nearest;
    size_t prefix = strlen(ENVIRONMENT_PREFIX);
    int length;

    yb_config_quote(name, quoted);
    length =
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "unknown environment variable %s", quoted);
    /* Without the common prefix, which would make every name look near. */
    yb_config_nearest_init(&nearest, name + prefix);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];

        yb_config_environment_name(row, false, known);
        yb_config_nearest_offer(&nearest, known + prefix);
        if (row->alias[0] != '\0') {
            yb_config_environment_name(row, true, known);
            yb_config_nearest_offer(&nearest, known + prefix);
        }
    }
    if (nearest.best[0] != '\0') {
        snprintf(message_out + length, YB_CONFIG_MESSAGE_MAX - (size_t)length,
                 "; did you mean " ENVIRONMENT_PREFIX "%s?", nearest.best);
    } else {
        snprintf(message_out + length, YB_CONFIG_MESSAGE_MAX - (size_t)length,
                 "; `yuebing config` lists the known ones, unset this one");
    }
}

/* Find the row that `name` names. Returns YB_CONFIG_ROWS when there is none. */
static enum yb_config_row_index
find_variable(const char *name, bool *by_alias_out)
{
    char known[YB_CONFIG_NAME_MAX];

    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];

        for (int alias = 0; alias < (row->alias[0] != '\0' ? 2 : 1); alias++) {
            yb_config_environment_name(row, alias != 0, known);
            if (strcmp(known, name) == 0) {
                *by_alias_out = alias != 0;
                return (enum yb_config_row_index)i;
            }
        }
    }
    return YB_CONFIG_ROWS;
}

static enum yb_status
apply_variable(struct yb_config *config, const char *entry, char message_out[YB_CONFIG_MESSAGE_MAX])
{
    struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_ENVIRONMENT};
    size_t length = strcspn(entry, "=");
    const char *value = entry[length] == '=' ? entry + length + 1 : "";
    char name[CONFIG_QUOTED_MAX];
    enum yb_config_row_index index;

    snprintf(name, sizeof(name), "%.*s", (int)(length < 1024 ? length : 1024), entry);
    if (is_other_name(name)) {
        return YB_OK;
    }
    index = find_variable(name, &origin.by_alias);
    if (index == YB_CONFIG_ROWS) {
        refuse_variable(name, message_out);
        return YB_INVALID;
    }
    return yb_config_set_from(config, index, value, origin, name, message_out);
}

static enum yb_status
apply_environment(struct yb_config *config, char *const *environment,
                  char message_out[YB_CONFIG_MESSAGE_MAX])
{
    enum yb_status status = YB_OK;

    if (environment == NULL) {
        return YB_OK;
    }
    for (; *environment != NULL && status == YB_OK; environment++) {
        if (strncmp(*environment, ENVIRONMENT_PREFIX, strlen(ENVIRONMENT_PREFIX)) == 0) {
            status = apply_variable(config, *environment, message_out);
        }
    }
    return status;
}

enum yb_status
yb_config_load(const struct yb_config_input *input, struct yb_config *config_out, int *rest_out,
               char message_out[YB_CONFIG_MESSAGE_MAX])
{
    struct yb_config config;
    enum yb_status status;
    int rest = input->argc;

    YB_ASSERT(input->argc >= 1 && input->argv != NULL);
    YB_ASSERT(input->extra_count <= YB_CONFIG_EXTRAS_MAX);
    yb_config_init(&config);
    status = apply_options(&config, input, &rest, message_out);
    if (status == YB_OK) {
        status = apply_environment(&config, input->environment, message_out);
    }
    if (status == YB_OK && config.config_file[0] != '\0') {
        status = yb_config_read_file(&config, message_out);
    }
    if (status != YB_OK) {
        return status;
    }
    *config_out = config;
    *rest_out = rest;
    return YB_OK;
}
