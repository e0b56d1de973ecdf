/* SPDX-License-Identifier: Apache-2.0
 *
 * One value: from text into the struct, and back to text.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "base/config_internal.h"

static const char *const choices_none[] = {NULL};
#define CHOICE_TEXT(constant, text) text,
#define CHOICES(choices) \
    static const char *const choices_##choices[] = {YB_CONFIG_CHOICES_##choices(CHOICE_TEXT) NULL};
YB_CONFIG_CHOICES_MAP(CHOICES)
#undef CHOICES
#undef CHOICE_TEXT

/* Enum fields are written through uint32_t. */
#define CHOICES(choices)                                                 \
    _Static_assert(sizeof(enum yb_config_##choices) == sizeof(uint32_t), \
                   "an enum field takes four bytes");
YB_CONFIG_CHOICES_MAP(CHOICES)
#undef CHOICES

static const struct yb_config_row rows[YB_CONFIG_ROWS] = {
#define X(section_, name_, type_, unit_, text_, low_, high_, set_, alias_, help_) \
    {                                                                             \
        .section = YB_CONFIG_SECTION_##section_,                                  \
        .type = YB_CONFIG_TYPE_##type_,                                           \
        .section_name = #section_,                                                \
        .name = #name_,                                                           \
        .unit = unit_,                                                            \
        .text = text_,                                                            \
        .low = low_,                                                              \
        .high = high_,                                                            \
        .choices = choices_##set_,                                                \
        .alias = alias_,                                                          \
        .help = help_,                                                            \
        .offset = offsetof(struct yb_config, section_##_##name_),                 \
    },
    YB_CONFIG_MAP(X)
#undef X
};

/* A parsed value; which member counts, the type of the row says. */
struct parsed {
    uint64_t number;
    const char *text;
    struct yb_id id;
};

struct suffix {
    const char *text;
    uint64_t factor;
};

static const struct suffix no_suffixes[] = {{NULL, 0}};
static const struct suffix byte_suffixes[] = {
    {"k", YB_CONFIG_KIB},
    {"m", YB_CONFIG_MIB},
    {"g", YB_CONFIG_GIB},
    {"t", YB_CONFIG_TIB},
    {NULL, 0},
};
static const struct suffix time_suffixes[] = {{"ms", 1}, {"s", 1000}, {NULL, 0}};

const struct yb_config_row *
yb_config_rows(void)
{
    return rows;
}

const char *
yb_config_section_name(enum yb_config_section section)
{
    static const char *const names[] = {
#define X(section_, help) #section_,
        YB_CONFIG_SECTION_MAP(X)
#undef X
    };

    YB_ASSERT((unsigned)section < YB_CONFIG_SECTIONS);
    return names[section];
}

const char *
yb_config_section_help(enum yb_config_section section)
{
    static const char *const helps[] = {
#define X(section_, help) help,
        YB_CONFIG_SECTION_MAP(X)
#undef X
    };

    YB_ASSERT((unsigned)section < YB_CONFIG_SECTIONS);
    return helps[section];
}

void
yb_config_quote(const char *text, char quoted_out[CONFIG_QUOTED_MAX])
{
    size_t length = 0;

    quoted_out[length++] = '"';
    for (const char *at = text; *at != '\0'; at++) {
        unsigned char byte = (unsigned char)*at;

        /* Room for one escape, the dots, the quote and the NUL. */
        if (length + 4 + 3 + 2 > CONFIG_QUOTED_MAX) {
            memcpy(quoted_out + length, "...", 3);
            length += 3;
            break;
        }
        if (byte < 0x20 || byte == 0x7f) {
            length += (size_t)snprintf(quoted_out + length, 5, "\\x%02x", byte);
        } else {
            quoted_out[length++] = (char)byte;
        }
    }
    quoted_out[length++] = '"';
    quoted_out[length] = '\0';
}

/* Read decimal digits and at most one suffix; nothing before, between or after. */
static bool
parse_number(const char *text, const struct suffix *suffixes, uint64_t *number_out)
{
    uint64_t number = 0;
    uint64_t factor = 1;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        if (__builtin_mul_overflow(number, 10u, &number) ||
            __builtin_add_overflow(number, (uint64_t)(*at - '0'), &number)) {
            return false;
        }
    }
    if (at == text) {
        return false;
    }
    if (*at != '\0') {
        while (suffixes->text != NULL && strcasecmp(suffixes->text, at) != 0) {
            suffixes++;
        }
        factor = suffixes->factor;
    }
    return factor != 0 && !__builtin_mul_overflow(number, factor, number_out);
}

static bool
parse_bool(const char *text, uint64_t *number_out)
{
    static const struct {
        const char *text;
        bool value;
    } words[] = {
        {"true", true},   {"yes", true}, {"on", true},   {"1", true},
        {"false", false}, {"no", false}, {"off", false}, {"0", false},
    };

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i].text) == 0) {
            *number_out = words[i].value;
            return true;
        }
    }
    return false;
}

static bool
parse_choice(const char *text, const char *const *choices, uint64_t *number_out)
{
    for (uint64_t i = 0; choices[i] != NULL; i++) {
        if (strcmp(text, choices[i]) == 0) {
            *number_out = i;
            return true;
        }
    }
    return false;
}

static bool
text_is_plain(const char *text, uint64_t low, uint64_t high)
{
    size_t length = strlen(text);

    for (size_t i = 0; i < length; i++) {
        if (iscntrl((unsigned char)text[i])) {
            return false;
        }
    }
    return length >= low && length <= high;
}

static bool
in_range(const struct yb_config_row *row, uint64_t number)
{
    return number >= row->low && number <= row->high;
}

static bool
parse_value(const struct yb_config_row *row, const char *text, struct parsed *value_out)
{
    uint64_t *number = &value_out->number;

    memset(value_out, 0, sizeof(*value_out));
    value_out->text = text;
    switch (row->type) {
    case YB_CONFIG_TYPE_BOOL: return parse_bool(text, number);
    case YB_CONFIG_TYPE_U32:
    case YB_CONFIG_TYPE_U64:
        return parse_number(text, no_suffixes, number) && in_range(row, *number);
    case YB_CONFIG_TYPE_BYTES:
        return parse_number(text, byte_suffixes, number) && in_range(row, *number);
    case YB_CONFIG_TYPE_MS:
        return parse_number(text, time_suffixes, number) && in_range(row, *number);
    case YB_CONFIG_TYPE_STRING:
    case YB_CONFIG_TYPE_PATH: return text_is_plain(text, row->low, row->high);
    case YB_CONFIG_TYPE_ENUM: return parse_choice(text, row->choices, number);
    case YB_CONFIG_TYPE_ID: return text[0] == '\0' || yb_id_parse(text, &value_out->id);
    }
    return false;
}

static void
store_value(struct yb_config *config, const struct yb_config_row *row, const struct parsed *value)
{
    char *field = (char *)config + row->offset;
    bool flag = value->number != 0;
    uint32_t narrow = (uint32_t)value->number;

    switch (row->type) {
    case YB_CONFIG_TYPE_BOOL: memcpy(field, &flag, sizeof(flag)); break;
    case YB_CONFIG_TYPE_U32:
    case YB_CONFIG_TYPE_ENUM:
        YB_ASSERT(narrow == value->number);
        memcpy(field, &narrow, sizeof(narrow));
        break;
    case YB_CONFIG_TYPE_U64:
    case YB_CONFIG_TYPE_BYTES:
    case YB_CONFIG_TYPE_MS: memcpy(field, &value->number, sizeof(value->number)); break;
    case YB_CONFIG_TYPE_STRING:
    case YB_CONFIG_TYPE_PATH: memcpy(field, value->text, strlen(value->text) + 1); break;
    case YB_CONFIG_TYPE_ID: memcpy(field, &value->id, sizeof(value->id)); break;
    }
}

/* Write `"text" is not allowed ...` with the range and, for a choice, the nearest one. */
static void
explain_refusal(const struct yb_config_row *row, const char *text,
                char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char quoted[CONFIG_QUOTED_MAX];
    char allowed[YB_CONFIG_TEXT_MAX];
    struct yb_config_nearest nearest;
    int length;

    yb_config_quote(text, quoted);
    yb_config_allowed_text(row, allowed);
    length = snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%s.%s cannot be %s; allowed: %.640s",
                      row->section_name, row->name, quoted, allowed);
    yb_config_nearest_init(&nearest, text);
    for (const char *const *choice = row->choices; *choice != NULL; choice++) {
        yb_config_nearest_offer(&nearest, *choice);
    }
    if (nearest.best[0] != '\0') {
        snprintf(message_out + length, YB_CONFIG_MESSAGE_MAX - (size_t)length, "; did you mean %s?",
                 nearest.best);
    }
}

enum yb_status
yb_config_set(struct yb_config *config, enum yb_config_row_index index, const char *text,
              struct yb_config_origin origin, char message_out[YB_CONFIG_MESSAGE_MAX])
{
    const struct yb_config_row *row = &rows[index];
    struct yb_config_origin *current = &config->origins[index];
    uint8_t bit = (uint8_t)(1u << origin.source);
    struct parsed value;

    YB_ASSERT((unsigned)index < YB_CONFIG_ROWS);
    if (!parse_value(row, text, &value)) {
        explain_refusal(row, text, message_out);
        return YB_INVALID;
    }
    if ((current->named & bit) != 0 && origin.source != YB_CONFIG_SOURCE_OPTION) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX,
                 "%s.%s is given a second time; keep one of the two", row->section_name, row->name);
        return YB_INVALID;
    }
    origin.named = (uint8_t)(current->named | bit);
    current->named = origin.named;
    if (origin.source >= current->source) {
        store_value(config, row, &value);
        *current = origin;
    }
    return YB_OK;
}

enum yb_status
yb_config_set_from(struct yb_config *config, enum yb_config_row_index index, const char *text,
                   struct yb_config_origin origin, const char *where,
                   char message_out[YB_CONFIG_MESSAGE_MAX])
{
    char reason[YB_CONFIG_MESSAGE_MAX];
    enum yb_status status = yb_config_set(config, index, text, origin, reason);

    if (status != YB_OK) {
        snprintf(message_out, YB_CONFIG_MESSAGE_MAX, "%.400s: %.1000s", where, reason);
    }
    return status;
}

void
yb_config_init(struct yb_config *config_out)
{
    static const struct yb_config_origin origin = {.source = YB_CONFIG_SOURCE_DEFAULT};

    memset(config_out, 0, sizeof(*config_out));
    for (unsigned i = 0; i < YB_CONFIG_ROWS; i++) {
        char message[YB_CONFIG_MESSAGE_MAX];

        /* The defaults are ours: one outside its row is a bug. */
        YB_ASSERT(yb_config_set(config_out, i, rows[i].text, origin, message) == YB_OK);
    }
}

/* Write bytes with the largest suffix that loses nothing. */
static void
format_bytes(uint64_t bytes, char *text_out, size_t size)
{
    const char *suffix = "";

    for (const struct suffix *next = byte_suffixes; next->text != NULL; next++) {
        if (bytes != 0 && bytes % next->factor == 0) {
            suffix = next->text;
        }
    }
    for (const struct suffix *next = byte_suffixes; next->text != NULL; next++) {
        if (next->text == suffix) {
            bytes /= next->factor;
            break;
        }
    }
    snprintf(text_out, size, "%llu%s", (unsigned long long)bytes, suffix);
}

static uint64_t
load_u64(const char *field)
{
    uint64_t number;

    memcpy(&number, field, sizeof(number));
    return number;
}

static uint32_t
load_u32(const char *field)
{
    uint32_t number;

    memcpy(&number, field, sizeof(number));
    return number;
}

void
yb_config_value_text(const struct yb_config *config, enum yb_config_row_index index,
                     char text_out[YB_CONFIG_TEXT_MAX])
{
    const struct yb_config_row *row = &rows[index];
    const char *field = (const char *)config + row->offset;
    struct yb_id id;
    bool flag;

    YB_ASSERT((unsigned)index < YB_CONFIG_ROWS);
    switch (row->type) {
    case YB_CONFIG_TYPE_BOOL:
        memcpy(&flag, field, sizeof(flag));
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%s", flag ? "true" : "false");
        break;
    case YB_CONFIG_TYPE_U32: snprintf(text_out, YB_CONFIG_TEXT_MAX, "%u", load_u32(field)); break;
    case YB_CONFIG_TYPE_U64:
    case YB_CONFIG_TYPE_MS:
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%llu", (unsigned long long)load_u64(field));
        break;
    case YB_CONFIG_TYPE_BYTES: format_bytes(load_u64(field), text_out, YB_CONFIG_TEXT_MAX); break;
    case YB_CONFIG_TYPE_STRING:
    case YB_CONFIG_TYPE_PATH: snprintf(text_out, YB_CONFIG_TEXT_MAX, "%s", field); break;
    case YB_CONFIG_TYPE_ENUM:
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%s", row->choices[load_u32(field)]);
        break;
    case YB_CONFIG_TYPE_ID:
        memcpy(&id, field, sizeof(id));
        text_out[0] = '\0';
        if (!yb_id_is_none(id)) {
            yb_id_format(id, text_out);
        }
        break;
    }
}

static void
allowed_choices(const char *const *choices, char text_out[YB_CONFIG_TEXT_MAX])
{
    size_t length = 0;

    text_out[0] = '\0';
    for (; *choices != NULL; choices++) {
        const char *comma = length == 0 ? "" : choices[1] == NULL ? " or " : ", ";
        int written =
            snprintf(text_out + length, YB_CONFIG_TEXT_MAX - length, "%s%s", comma, *choices);

        length += (size_t)written;
        YB_ASSERT(length < YB_CONFIG_TEXT_MAX);
    }
}

void
yb_config_allowed_text(const struct yb_config_row *row, char text_out[YB_CONFIG_TEXT_MAX])
{
    char low[32];
    char high[32];

    switch (row->type) {
    case YB_CONFIG_TYPE_BOOL: snprintf(text_out, YB_CONFIG_TEXT_MAX, "true or false"); break;
    case YB_CONFIG_TYPE_U32:
    case YB_CONFIG_TYPE_U64:
    case YB_CONFIG_TYPE_MS:
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%llu .. %llu %s", (unsigned long long)row->low,
                 (unsigned long long)row->high, row->unit);
        break;
    case YB_CONFIG_TYPE_BYTES:
        format_bytes(row->low, low, sizeof(low));
        format_bytes(row->high, high, sizeof(high));
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%s .. %s %s", low, high, row->unit);
        break;
    case YB_CONFIG_TYPE_STRING:
    case YB_CONFIG_TYPE_PATH:
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "%llu .. %llu printable characters",
                 (unsigned long long)row->low, (unsigned long long)row->high);
        break;
    case YB_CONFIG_TYPE_ENUM: allowed_choices(row->choices, text_out); break;
    case YB_CONFIG_TYPE_ID:
        snprintf(text_out, YB_CONFIG_TEXT_MAX, "32 hex digits, or nothing");
        break;
    }
}

/* Write prefix, section, separator, name and map every `_` and `-` to `separator`. */
static void
compose_name(const struct yb_config_row *row, bool alias, char separator,
             char name_out[YB_CONFIG_NAME_MAX])
{
    bool option = separator == '-';
    const char *prefix = option ? "--" : "YUEBING_";
    int length;

    YB_ASSERT(!alias || row->alias[0] != '\0');
    if (alias) {
        length = snprintf(name_out, YB_CONFIG_NAME_MAX, "%s%s", prefix, row->alias);
    } else {
        length =
            snprintf(name_out, YB_CONFIG_NAME_MAX, "%s%s_%s", prefix, row->section_name, row->name);
    }
    YB_ASSERT(length < YB_CONFIG_NAME_MAX);
    for (char *at = name_out + strlen(prefix); *at != '\0'; at++) {
        bool between = *at == '_' || *at == '-';

        *at = between ? separator : option ? *at : (char)toupper((unsigned char)*at);
    }
}

void
yb_config_environment_name(const struct yb_config_row *row, bool alias,
                           char name_out[YB_CONFIG_NAME_MAX])
{
    compose_name(row, alias, '_', name_out);
}

void
yb_config_option_name(const struct yb_config_row *row, bool alias,
                      char name_out[YB_CONFIG_NAME_MAX])
{
    compose_name(row, alias, '-', name_out);
}

void
yb_config_origin_text(const struct yb_config *config, enum yb_config_row_index index,
                      char text_out[YB_CONFIG_ORIGIN_MAX])
{
    const struct yb_config_origin *origin = &config->origins[index];
    const char *file = config->config_file[0] != '\0' ? config->config_file : "file";

    YB_ASSERT((unsigned)index < YB_CONFIG_ROWS);
    switch (origin->source) {
    case YB_CONFIG_SOURCE_DEFAULT: snprintf(text_out, YB_CONFIG_ORIGIN_MAX, "default"); break;
    case YB_CONFIG_SOURCE_FILE:
        snprintf(text_out, YB_CONFIG_ORIGIN_MAX, "%s:%u", file, origin->line);
        break;
    case YB_CONFIG_SOURCE_ENVIRONMENT:
        yb_config_environment_name(&rows[index], origin->by_alias, text_out);
        break;
    case YB_CONFIG_SOURCE_OPTION:
        yb_config_option_name(&rows[index], origin->by_alias, text_out);
        break;
    }
}
