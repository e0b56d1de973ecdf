/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/config.h"
#include "cli/known.h"

#define FILE_BYTES_MAX (1024u * 1024u)
#define LINE_BYTES_MAX 2048u

static const struct yb_known_flag flags[] = {
#define X(command_, name_, type_, usual_, effect_) \
    {YB_KNOWN_##command_, #name_, YB_KNOWN_##type_, usual_, effect_},
    YB_KNOWN_FLAG_MAP(X)
#undef X
};

const struct yb_known_flag *
yb_known_flags(void)
{
    return flags;
}

const char *
yb_known_command_name(enum yb_known_command command)
{
    static const char *const names[] = {"mooncake_master", "mooncake_client",
                                        "mooncake_http_metadata_server"};

    return names[command];
}

/* One command's line, as it is read. */
struct reading {
    enum yb_known_command command;
    struct yb_known_values *values;
    FILE *err;
    bool by_file[YB_KNOWN_FLAGS];
};

/* Return the row of a name, whose length is given; -1: there is none. '-' is as good as '_'. */
static int
find(enum yb_known_command command, const char *name, size_t length)
{
    for (int i = 0; i < (int)YB_KNOWN_FLAGS; i++) {
        size_t k = 0;

        if (flags[i].command != command || strlen(flags[i].name) != length) {
            continue;
        }
        while (k < length &&
               (name[k] == flags[i].name[k] || (name[k] == '-' && flags[i].name[k] == '_'))) {
            k++;
        }
        if (k == length) {
            return i;
        }
    }
    return -1;
}

static bool
is_number(const char *text)
{
    char *end = NULL;

    if (text[0] == '\0' || isspace((unsigned char)text[0])) {
        return false;
    }
    (void)strtod(text, &end);
    return *end == '\0';
}

/* Write "true" or "false" for what is one of them. */
static const char *
switch_of(const char *text)
{
    static const char *const yes[] = {"true", "t", "1", "yes", "y", "on"};
    static const char *const no[] = {"false", "f", "0", "no", "n", "off"};

    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++) {
        if (strcasecmp(text, yes[i]) == 0) {
            return "true";
        }
        if (strcasecmp(text, no[i]) == 0) {
            return "false";
        }
    }
    return NULL;
}

/* Keep a value that a flag or a line of the file gives. */
static bool
keep(struct reading *reading, int index, const char *text)
{
    const struct yb_known_flag *flag = &flags[index];
    const char *wanted = flag->type == YB_KNOWN_NUMBER ? "a number" : "true or false";
    const char *kept = flag->type == YB_KNOWN_SWITCH ? switch_of(text) : text;

    if (kept == NULL || (flag->type == YB_KNOWN_NUMBER && !is_number(text))) {
        fprintf(reading->err, "%s: --%s cannot be \"%.64s\"; allowed: %s\n",
                yb_known_command_name(reading->command), flag->name, text, wanted);
        return false;
    }
    if (strlen(kept) >= YB_KNOWN_VALUE_MAX) {
        fprintf(reading->err, "%s: --%s is too long\n", yb_known_command_name(reading->command),
                flag->name);
        return false;
    }
    memcpy(reading->values->text[index], kept, strlen(kept) + 1);
    reading->values->given[index] = true;
    return true;
}

static bool
refuse(const struct reading *reading, const char *word, size_t length)
{
    struct yb_config_nearest nearest;
    char name[YB_CONFIG_NAME_MAX];

    (void)snprintf(name, sizeof(name), "%.*s", (int)(length < sizeof(name) ? length : 0), word);
    yb_config_nearest_init(&nearest, name);
    for (unsigned i = 0; i < YB_KNOWN_FLAGS; i++) {
        if (flags[i].command == reading->command) {
            yb_config_nearest_offer(&nearest, flags[i].name);
        }
    }
    fprintf(reading->err, "%s: unknown flag --%.*s%s%s%s; --help lists them\n",
            yb_known_command_name(reading->command), (int)(length < 256 ? length : 256), word,
            nearest.best[0] != '\0' ? "; did you mean --" : "", nearest.best,
            nearest.best[0] != '\0' ? "?" : "");
    return false;
}

/* Read one flag at argv[*at], and its value, which may be the next word. */
static bool
read_flag(struct reading *reading, int argc, char **argv, int *at)
{
    const char *word = argv[*at];
    const char *name = word + (word[1] == '-' ? 2 : 1);
    const char *equals = strchr(name, '=');
    size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
    int index = find(reading->command, name, length);

    if (index >= 0 && equals != NULL) {
        return keep(reading, index, equals + 1);
    }
    if (index >= 0 && flags[index].type == YB_KNOWN_SWITCH) {
        return keep(reading, index, "true");
    }
    if (index >= 0 && *at + 1 == argc) {
        fprintf(reading->err, "%s: --%s needs a value\n", yb_known_command_name(reading->command),
                flags[index].name);
        return false;
    }
    if (index >= 0) {
        *at += 1;
        return keep(reading, index, argv[*at]);
    }
    if (equals == NULL && length > 2 && strncmp(name, "no", 2) == 0) {
        index = find(reading->command, name + 2, length - 2);
        if (index >= 0 && flags[index].type == YB_KNOWN_SWITCH) {
            return keep(reading, index, "false");
        }
    }
    return refuse(reading, name, length);
}

/* ---- the file -------------------------------------------------------------------------------- */

/* A value of the file, unless the command line has one. Names that no row has are named. */
static bool
keep_of_file(struct reading *reading, const char *name, const char *value)
{
    const char *flag = strcmp(name, "client_live_ttl_sec") == 0 ? "client_ttl" : name;
    int index = find(reading->command, flag, strlen(flag));

    if (index < 0) {
        fprintf(reading->err, "%s: %.64s in the file of --config_path is not known: no effect\n",
                yb_known_command_name(reading->command), name);
        return true;
    }
    if (reading->values->given[index] && !reading->by_file[index]) {
        return true;
    }
    reading->by_file[index] = true;
    return keep(reading, index, value);
}

static bool
read_json(struct reading *reading, const char *text)
{
    json_t *root = json_loads(text, 0, NULL);
    const char *name;
    json_t *value;
    bool fine = json_is_object(root);

    if (!fine) {
        fprintf(reading->err, "%s: the file of --config_path is no JSON object\n",
                yb_known_command_name(reading->command));
    }
    json_object_foreach(root, name, value)
    {
        char *dump = json_is_string(value) ? strdup(json_string_value(value))
                                           : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);

        fine = fine && dump != NULL && keep_of_file(reading, name, dump);
        free(dump);
    }
    json_decref(root);
    return fine;
}

/* Cut blanks, quotes and comments off; returns where the text begins. */
static char *
trim(char *text)
{
    char *comment = strstr(text, " #");
    char *end;

    if (comment != NULL) {
        *comment = '\0';
    }
    text += strspn(text, " \t\r\n");
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1])) {
        *--end = '\0';
    }
    if (end - text >= 2 && (*text == '"' || *text == '\'') && end[-1] == *text) {
        end[-1] = '\0';
        text++;
    }
    return text;
}

static bool
read_lines(struct reading *reading, char *text)
{
    char *rest = NULL;
    bool fine = true;

    for (char *line = strtok_r(text, "\n", &rest); line != NULL && fine;
         line = strtok_r(NULL, "\n", &rest)) {
        char *colon = strchr(line, ':');

        line += strspn(line, " \t");
        if (*line == '#' || *line == '\0' || *line == '\r' || strncmp(line, "---", 3) == 0) {
            continue;
        }
        if (colon == NULL) {
            fprintf(reading->err, "%s: \"%.64s\" in the file of --config_path is no name: value\n",
                    yb_known_command_name(reading->command), line);
            return false;
        }
        *colon = '\0';
        fine = keep_of_file(reading, trim(line), trim(colon + 1));
    }
    return fine;
}

/* Read a file that a flag names; the caller frees the text. NULL: it cannot be read. */
static char *
load(const struct reading *reading, const char *flag, const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = calloc(1, FILE_BYTES_MAX + 1);
    size_t length = 0;
    bool fine;

    if (file != NULL && text != NULL) {
        length = fread(text, 1, FILE_BYTES_MAX, file);
    }
    fine = file != NULL && text != NULL && length < FILE_BYTES_MAX && ferror(file) == 0;
    if (file != NULL) {
        (void)fclose(file);
    }
    if (!fine) {
        fprintf(reading->err, "%s: --%s %s cannot be read\n",
                yb_known_command_name(reading->command), flag, path);
        free(text);
        return NULL;
    }
    return text;
}

static bool
read_file(struct reading *reading, const char *path)
{
    char *text = load(reading, "config_path", path);
    bool fine = text != NULL;

    if (fine) {
        fine = text[strspn(text, " \t\r\n")] == '{' ? read_json(reading, text)
                                                    : read_lines(reading, text);
    }
    free(text);
    return fine;
}

/* Read the file of flags that has just been named, if one was: flags, one a line, which count where
 * it was named. A line without a dash names programs that those below are for: these. */
static bool
read_flagfile(struct reading *reading)
{
    int index = find(reading->command, "flagfile", strlen("flagfile"));
    char *path = index >= 0 ? reading->values->text[index] : NULL;
    char *rest = NULL;
    bool fine;
    char *text;

    if (path == NULL || path[0] == '\0') {
        return true;
    }
    text = load(reading, "flagfile", path);
    path[0] = '\0'; /* Once. */
    fine = text != NULL;
    for (char *line = fine ? strtok_r(text, "\r\n", &rest) : NULL; line != NULL && fine;
         line = strtok_r(NULL, "\r\n", &rest)) {
        char *word = line + strspn(line, " \t");
        size_t length = strlen(word);
        int at = 0;

        while (length > 0 && isspace((unsigned char)word[length - 1])) {
            word[--length] = '\0';
        }
        fine = word[0] != '-' || read_flag(reading, 1, &word, &at);
    }
    free(text);
    return fine;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void
tell_without_effect(const struct reading *reading)
{
    bool any = false;

    for (unsigned i = 0; i < YB_KNOWN_FLAGS; i++) {
        if (flags[i].command == reading->command && reading->values->given[i] &&
            flags[i].effect[0] == '\0') {
            if (!any) {
                fprintf(reading->err,
                        "%s: without effect here:", yb_known_command_name(reading->command));
            }
            fprintf(reading->err, "%s --%s", any ? "," : "", flags[i].name);
            any = true;
        }
    }
    if (any) {
        (void)fputc('\n', reading->err);
    }
}

bool
yb_known_parse(enum yb_known_command command, int argc, char **argv,
               struct yb_known_values *values_out, FILE *err)
{
    struct reading reading = {.command = command, .values = values_out, .err = err};
    const char *path = values_out->text[YB_KNOWN_FLAG_master_config_path];

    memset(values_out, 0, sizeof(*values_out));
    for (unsigned i = 0; i < YB_KNOWN_FLAGS; i++) {
        memcpy(values_out->text[i], flags[i].usual, strlen(flags[i].usual) + 1);
    }
    for (int at = 1; at < argc; at++) {
        if (argv[at][0] != '-' || argv[at][1] == '\0') {
            fprintf(err, "%s: unexpected \"%.64s\": every argument is a --flag\n",
                    yb_known_command_name(command), argv[at]);
            return false;
        }
        if (!read_flag(&reading, argc, argv, &at) || !read_flagfile(&reading)) {
            return false;
        }
    }
    if (command == YB_KNOWN_master && path[0] != '\0' && !read_file(&reading, path)) {
        return false;
    }
    tell_without_effect(&reading);
    return true;
}
