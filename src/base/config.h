/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h -- the parameters of a process, checked before anything starts.
 *
 * base/config_table.h lists them. A value comes from the first of these that
 * names it, and remembers which one did:
 *
 *     command line  --net-workers 4
 *     environment   YUEBING_NET_WORKERS=4
 *     file          [net] workers = 4      (--config or YUEBING_CONFIG says which)
 *     default       the table
 *
 * Invariants
 *   C1  Every value in a struct yb_config is inside the range of its row.
 *   C2  A name that no row has, and a value outside its row, refuse, wherever
 *       they stand: also when a stronger source overrides them.
 *   C3  A row named twice by one source of equal strength refuses, except on
 *       the command line, where the last one counts as it does everywhere.
 *
 * Format    The file is an INI file: `[section]`, `name = value`, comments after
 *           `;` or a leading `#`. At most 1 MiB, lines of at most 196 bytes.
 * Threads   Loading is for one thread at the start of a process: getopt_long
 *           keeps state of its own. A loaded configuration is a plain value that
 *           nobody writes; read and copy it anywhere.
 * Memory    No allocation outlives a call and nothing has to be freed: texts are
 *           arrays inside the struct, which is some kilobytes large.
 */
#ifndef YB_BASE_CONFIG_H
#define YB_BASE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config_table.h"
#include "yuebing/status.h"
#include "yuebing/types.h"

/* The exit code of a process that refuses its configuration. */
#define YB_CONFIG_EXIT_REFUSED 2

/* Room for any message, value or origin that this module writes. */
#define YB_CONFIG_MESSAGE_MAX 1536
#define YB_CONFIG_TEXT_MAX    (YB_CONFIG_PATH_MAX + 1)
#define YB_CONFIG_ORIGIN_MAX  (YB_CONFIG_PATH_MAX + 32)
#define YB_CONFIG_NAME_MAX    64

/* Options of a caller beside the rows (yb_config_input.extras). */
#define YB_CONFIG_EXTRAS_MAX 96u

#define YB_CONFIG_ENUMERATOR(constant, text) constant,
#define YB_CONFIG_DECLARE(choices) \
    enum yb_config_##choices{YB_CONFIG_CHOICES_##choices(YB_CONFIG_ENUMERATOR)};
YB_CONFIG_CHOICES_MAP(YB_CONFIG_DECLARE)
#undef YB_CONFIG_DECLARE
#undef YB_CONFIG_ENUMERATOR

enum yb_config_section {
#define X(section, help) YB_CONFIG_SECTION_##section,
    YB_CONFIG_SECTION_MAP(X)
#undef X
        YB_CONFIG_SECTIONS
};

/* A set of sections, as bits. */
#define YB_CONFIG_IN(section) (1u << YB_CONFIG_SECTION_##section)
#define YB_CONFIG_IN_ALL      ((1u << YB_CONFIG_SECTIONS) - 1)

/* Index of a row: YB_CONFIG_ROW_net_workers. */
enum yb_config_row_index {
#define X(section, name, type, unit, text, low, high, choices, alias, help) \
    YB_CONFIG_ROW_##section##_##name,
    YB_CONFIG_MAP(X)
#undef X
        YB_CONFIG_ROWS
};

enum yb_config_type {
    YB_CONFIG_TYPE_BOOL,
    YB_CONFIG_TYPE_U32,
    YB_CONFIG_TYPE_U64,
    YB_CONFIG_TYPE_BYTES,
    YB_CONFIG_TYPE_MS,
    YB_CONFIG_TYPE_STRING,
    YB_CONFIG_TYPE_PATH,
    YB_CONFIG_TYPE_ENUM,
    YB_CONFIG_TYPE_ID,
};

/* Weakest first. */
enum yb_config_source {
    YB_CONFIG_SOURCE_DEFAULT,
    YB_CONFIG_SOURCE_FILE,
    YB_CONFIG_SOURCE_ENVIRONMENT,
    YB_CONFIG_SOURCE_OPTION,
};

struct yb_config_origin {
    enum yb_config_source source;
    bool by_alias; /* The alias was used, not the full name. */
    uint8_t named; /* One bit per source that has named the row (C3); kept by this module. */
    uint32_t line; /* In the file; 0 for other sources. */
};

/* One row of the table, for code that walks all of them. */
struct yb_config_row {
    enum yb_config_section section;
    enum yb_config_type type;
    const char *section_name;
    const char *name;
    const char *unit; /* "" when there is none. */
    const char *text; /* The default. */
    uint64_t low;
    uint64_t high;
    const char *const *choices; /* Ends with NULL; empty unless the type is ENUM. */
    const char *alias;          /* "" when there is none. */
    const char *help;
    size_t offset; /* Of the value inside struct yb_config. */
};

#define YB_CONFIG_FIELD_BOOL(field, choices)   bool field;
#define YB_CONFIG_FIELD_U32(field, choices)    uint32_t field;
#define YB_CONFIG_FIELD_U64(field, choices)    uint64_t field;
#define YB_CONFIG_FIELD_BYTES(field, choices)  uint64_t field;
#define YB_CONFIG_FIELD_MS(field, choices)     uint64_t field;
#define YB_CONFIG_FIELD_STRING(field, choices) char field[YB_CONFIG_STRING_MAX + 1];
#define YB_CONFIG_FIELD_PATH(field, choices)   char field[YB_CONFIG_PATH_MAX + 1];
#define YB_CONFIG_FIELD_ENUM(field, choices)   enum yb_config_##choices field;
#define YB_CONFIG_FIELD_ID(field, choices)     struct yb_id field;

/* The values: config->net_workers, config->net_handshake_timeout_ms, config->net_listen ... */
struct yb_config {
#define X(section, name, type, unit, text, low, high, choices, alias, help) \
    YB_CONFIG_FIELD_##type(section##_##name, choices)
    YB_CONFIG_MAP(X)
#undef X
    struct yb_config_origin origins[YB_CONFIG_ROWS];
};

/* An option of a caller's own: `--name` or, with `argument`, `--name ARGUMENT`. */
struct yb_config_extra {
    const char *name;
    const char *argument;  /* What the argument is called in help; NULL: a flag. */
    const char *value_out; /* NULL: not given; "" for a flag; borrowed from argv. */
};

struct yb_config_input {
    int argc;
    char **argv; /* argv[0] is skipped. Permuted: words that are no options move to the end. */
    char *const *environment; /* "NAME=value" ... NULL; NULL for an empty environment. */
    uint32_t sections;        /* Rows whose options are accepted: YB_CONFIG_IN(net) | ... */
    struct yb_config_extra *extras;
    unsigned extra_count; /* At most YB_CONFIG_EXTRAS_MAX. */
};

/* Return the environment of this process. */
char *const *yb_config_environment(void);

/* Return what this process's environment says of a name of YB_CONFIG_FOREIGN_MAP or
 * YB_CONFIG_S3_MAP, which `name` must be; NULL: it is not set, or empty. */
const char *yb_config_foreign(const char *name);

/* Return the whole table, YB_CONFIG_ROWS rows: static. */
const struct yb_config_row *yb_config_rows(void);

/* Return the name and the one-line help of a section: static strings. */
const char *yb_config_section_name(enum yb_config_section section);
const char *yb_config_section_help(enum yb_config_section section);

/* Fill in the default of every row. */
void yb_config_init(struct yb_config *config_out);

/* Read command line, environment and file into *config_out.
 *
 * On OK, argv[*rest_out .. argc) are the words that are no options. Fails with INVALID (a name
 * or a value is not in the table) or IO (the file cannot be read) and then `message_out` holds
 * one line that names the offending text, where it stands, what is allowed and what was
 * probably meant; *config_out is untouched, `extras` may have been written. */
YB_CHECKED enum yb_status yb_config_load(const struct yb_config_input *input,
                                         struct yb_config *config_out, int *rest_out,
                                         char message_out[YB_CONFIG_MESSAGE_MAX]);

/* Apply the `length` bytes at `text` to *config as a file called `name` would be. Values that
 * a stronger source gave stay. Fails with INVALID as yb_config_load does; *config is then
 * untouched. `text` needs no NUL at its end. */
YB_CHECKED enum yb_status yb_config_parse_file(struct yb_config *config, const char *name,
                                               const char *text, size_t length,
                                               char message_out[YB_CONFIG_MESSAGE_MAX]);

/* Check `text` against row `index` and store it with `origin`, unless a stronger source has
 * spoken. Fails with INVALID; `message_out` then says what is wrong and what is allowed, and
 * *config is untouched. */
YB_CHECKED enum yb_status yb_config_set(struct yb_config *config, enum yb_config_row_index index,
                                        const char *text, struct yb_config_origin origin,
                                        char message_out[YB_CONFIG_MESSAGE_MAX]);

/* Write the value as yb_config_set would read it back: "256k", "3000", "auto". */
void yb_config_value_text(const struct yb_config *config, enum yb_config_row_index index,
                          char text_out[YB_CONFIG_TEXT_MAX]);

/* Write where the value comes from: "default", "/etc/yuebing.ini:12", "YUEBING_NET_IO" or
 * "--net-io". */
void yb_config_origin_text(const struct yb_config *config, enum yb_config_row_index index,
                           char text_out[YB_CONFIG_ORIGIN_MAX]);

/* Write what a row allows: "1 .. 256", "16k .. 1g", "auto, epoll or io_uring". */
void yb_config_allowed_text(const struct yb_config_row *row, char text_out[YB_CONFIG_TEXT_MAX]);

/* Write the names of a row: "YUEBING_NET_IO" and "--net-io", or those of its alias, which
 * must exist. */
void yb_config_environment_name(const struct yb_config_row *row, bool alias,
                                char name_out[YB_CONFIG_NAME_MAX]);
void yb_config_option_name(const struct yb_config_row *row, bool alias,
                           char name_out[YB_CONFIG_NAME_MAX]);

/* The nearest of several known names to one that is not known:
 *
 *     yb_config_nearest_init(&nearest, "wrokers");
 *     yb_config_nearest_offer(&nearest, "workers");      for every known name
 *     if (nearest.best[0] != '\0') ...                   "" when none is close
 */
struct yb_config_nearest {
    char wanted[YB_CONFIG_NAME_MAX];
    char best[YB_CONFIG_NAME_MAX];
    unsigned distance; /* Edits between the two; offers further away are ignored. */
};

void yb_config_nearest_init(struct yb_config_nearest *nearest, const char *wanted);
void yb_config_nearest_offer(struct yb_config_nearest *nearest, const char *known);

#endif /* YB_BASE_CONFIG_H */
