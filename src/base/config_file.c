/* SPDX-License-Identifier: Apache-2.0
 *
 * The INI file, through inih. The library hands over names and values without
 * line numbers, skips unknown sections that are empty, and takes an indented
 * line for more of the value above; so the reader that feeds it counts lines,
 * checks headers and drops indentation.
 */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config_internal.h"

#define FILE_BYTES_MAX (1u << 20)

struct file_parse {
    struct yb_config *config;
    const char *name;
    const char *text;
    size_t length;
    size_t position;
    uint32_t line;         /* Of the text that the library has seen, from 1. */
    uint32_t problem_line; /* 0: none so far. Only the first one is kept. */
    char *message;
};

static void
refuse_line(struct file_parse *parse, const char *what, const char *text, const char *hint)
{
    char quoted[CONFIG_QUOTED_MAX];

    if (parse->problem_line != 0) {
        return;
    }
    parse->problem_line = parse->line;
    yb_config_quote(text, quoted);
    snprintf(parse->message, YB_CONFIG_MESSAGE_MAX, "%.400s:%u: %s %s%s", parse->name, parse->line,
             what, quoted, hint);
}

/* Return the section called `name`, or -1 after refusing the line. */
static int
find_section(struct file_parse *parse, const char *name)
{
    char hint[YB_CONFIG_NAME_MAX + 32] = "";
    struct yb_config_nearest nearest;

    yb_config_nearest_init(&nearest, name);
    for (int i = 0; i < (int)YB_CONFIG_SECTIONS; i++) {
        const char *known = yb_config_section_name((enum yb_config_section)i);

        if (strcmp(known, name) == 0) {
            return i;
        }
        yb_config_nearest_offer(&nearest, known);
    }
    if (nearest.best[0] != '\0') {
        snprintf(hint, sizeof(hint), "; did you mean [%s]?", nearest.best);
    }
    refuse_line(parse, name[0] == '\0' ? "a name outside any section:" : "unknown section", name,
                hint);
    return -1;
}

/* Return the row, or YB_CONFIG_ROWS after refusing the line. */
static enum yb_config_row_index
find_row(struct file_parse *parse, const char *section, const char *name)
{
    char what[YB_CONFIG_NAME_MAX + 32];
    char hint[YB_CONFIG_NAME_MAX + 32] = "";
    struct yb_config_nearest nearest;

    yb_config_nearest_init(&nearest, name);
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        const struct yb_config_row *row = &yb_config_rows()[i];

        if (strcmp(row->section_name, section) != 0) {
            continue;
        }
        if (strcmp(row->name, name) == 0) {
            return (enum yb_config_row_index)i;
        }
        yb_config_nearest_offer(&nearest, row->name);
    }
    if (nearest.best[0] != '\0') {
        snprintf(hint, sizeof(hint), "; did you mean %s?", nearest.best);
    }
    snprintf(what, sizeof(what), "unknown name in [%s]:", section);
    refuse_line(parse, what, name, hint);
    return YB_CONFIG_ROWS;
}

/* inih calls this once per pair. Returns 1 for good, 0 for an error. */
static int
take_pair(void *user, const char *section, const char *name, const char *value)
{
    struct file_parse *parse = user;
    struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_FILE, .line = parse->line};
    enum yb_config_row_index index;
    char where[YB_CONFIG_ORIGIN_MAX];

    if (parse->problem_line != 0) {
        return 0;
    }
    if (section[0] == '\0') {
        refuse_line(parse, "a name outside any section:", name, "; begin with a line like [net]");
        return 0;
    }
    if (find_section(parse, section) < 0) {
        return 0;
    }
    index = find_row(parse, section, name);
    if (index == YB_CONFIG_ROWS) {
        return 0;
    }
    if (index == YB_CONFIG_ROW_config_file) {
        refuse_line(parse, "a file cannot name another file:", value, "");
        return 0;
    }
    snprintf(where, sizeof(where), "%.400s:%u", parse->name, parse->line);
    if (yb_config_set_from(parse->config, index, value, origin, where, parse->message) != YB_OK) {
        parse->problem_line = parse->line;
        return 0;
    }
    return 1;
}

/* Refuse an unknown `[section]` here: the library mentions sections only with their pairs. */
static void
check_header(struct file_parse *parse, const char *line)
{
    const char *end = strchr(line, ']');
    char name[YB_CONFIG_NAME_MAX];
    size_t length;

    if (line[0] != '[' || end == NULL) {
        return;
    }
    length = (size_t)(end - line) - 1;
    length = length < sizeof(name) ? length : sizeof(name) - 1;
    memcpy(name, line + 1, length);
    name[length] = '\0';
    if (name[0] == '\0') {
        refuse_line(parse, "unknown section", name, "");
    } else {
        (void)find_section(parse, name);
    }
}

/* The library's fgets: hand over the next line, without its indentation. */
static char *
read_line(char *line_out, int size, void *stream)
{
    struct file_parse *parse = stream;
    const char *line = parse->text + parse->position;
    size_t left = parse->length - parse->position;
    const char *end = memchr(line, '\n', left);
    size_t length = end == NULL ? left : (size_t)(end - line);

    YB_ASSERT(size > 4);
    if (left == 0 || parse->problem_line != 0) {
        return NULL;
    }
    parse->position += length + (end == NULL ? 0 : 1);
    parse->line++;
    while (length > 0 && (*line == ' ' || *line == '\t')) {
        line++;
        length--;
    }
    /* The library cuts a line that just fills its buffer in two. */
    if (length > (size_t)size - 4 || memchr(line, '\0', length) != NULL) {
        char start[64];
        size_t shown = length < sizeof(start) ? length : sizeof(start) - 1;

        memcpy(start, line, shown);
        start[shown] = '\0';
        refuse_line(parse, "a line that is too long or holds a NUL byte:", start,
                    "; longer values go in the environment or on the command line");
        return NULL;
    }
    memcpy(line_out, line, length);
    memcpy(line_out + length, "\n", 2);
    check_header(parse, line_out);
    return line_out;
}

enum yb_status
yb_config_parse_file(struct yb_config *config, const char *name, const char *text, size_t length,
                     char message_out[YB_CONFIG_MESSAGE_MAX])
{
    struct yb_config changed = *config;
    struct file_parse parse = {
        .config = &changed,
        .name = name,
        .text = text,
        .length = length,
        .message = message_out,
    };
    int error_line;

    if (length > FILE_BYTES_MAX) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%.400s: larger than 1 MiB", name);
        return YB_INVALID;
    }
    error_line = ini_parse_stream(read_line, &parse, take_pair, &parse);
    if (error_line > 0 && (parse.problem_line == 0 || (uint32_t)error_line < parse.problem_line)) {
        parse.problem_line = (uint32_t)error_line;
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX,
                 "%.400s:%d: neither [section] nor name = value nor a comment", name, error_line);
    }
    if (parse.problem_line != 0) {
        return YB_INVALID;
    }
    *config = changed;
    return YB_OK;
}

enum yb_status
yb_config_read_file(struct yb_config *config, char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char path[YB_CONFIG_PATH_MAX + 1];
    enum yb_status status = YB_IO;
    FILE *file;
    char *text;
    size_t length;

    /* The parser replaces the whole configuration, and with it the path it was given. */
    memcpy(path, config->config_file, sizeof(path));
    file = fopen(path, "re");
    if (file == NULL) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%s: cannot be read: %s", path,
                 strerror(errno));
        return YB_IO;
    }
    text = malloc(FILE_BYTES_MAX + 1);
    if (text == NULL) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%s: no memory to read it", path);
        status = YB_NO_MEMORY;
        goto err_close;
    }
    length = fread(text, 1, FILE_BYTES_MAX + 1, file);
    if (ferror(file)) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%s: cannot be read: %s", path,
                 strerror(errno));
        goto err_free;
    }
    status = yb_config_parse_file(config, path, text, length, message_out);
err_free:
    free(text);
err_close:
    fclose(file);
    return status;
}
