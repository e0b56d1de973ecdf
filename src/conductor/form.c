/* SPDX-License-Identifier: Apache-2.0 */
#include "conductor/form.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/wire/codec.h"

#define KEY_BYTES 16u

/* What every list of the wire looks like. */
struct any_list {
    uint32_t count;
    const uint8_t *wire;
    const void *native;
};

static enum yb_status refuse(char why_out[YB_FORM_WHY_BYTES], enum yb_status status,
                             const char *format, ...) __attribute__((format(printf, 3, 4)));

static enum yb_status
refuse(char why_out[YB_FORM_WHY_BYTES], enum yb_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(why_out, YB_FORM_WHY_BYTES, format, arguments);
    va_end(arguments);
    return status;
}

static void
store(uint8_t *field, uint16_t bytes, uint64_t value)
{
    const uint8_t small = (uint8_t)value;
    const uint16_t half = (uint16_t)value;
    const uint32_t word = (uint32_t)value;

    switch (bytes) {
    case 1: memcpy(field, &small, 1); break;
    case 2: memcpy(field, &half, 2); break;
    case 4: memcpy(field, &word, 4); break;
    default:
        YB_ASSERT(bytes == 8);
        memcpy(field, &value, 8);
        break;
    }
}

/* The most that a row's number may be. */
static uint64_t
most_of(const struct yb_form *row)
{
    const bool sign = row->kind == YB_FORM_SIGNED || row->bytes == 8; /* JSON's are 64 bits. */
    const uint64_t room = (1ull << (8 * row->bytes - sign)) - 1;

    return row->most != 0 && row->most < room ? row->most : room;
}

static int
digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool
yb_form_hex(const char *text, size_t length, uint8_t bytes_out[KEY_BYTES])
{
    if (length != 2 * KEY_BYTES) {
        return false;
    }
    for (size_t i = 0; i < KEY_BYTES; i++) {
        const int high = digit(text[2 * i]);
        const int low = digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        bytes_out[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

static enum yb_status
read_number(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    const uint64_t most = most_of(row);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > most) {
        return refuse(why_out, YB_INVALID, "%s is a whole number from 0 to %llu", row->name,
                      (unsigned long long)most);
    }
    store(field, row->bytes, (uint64_t)json_integer_value(value));
    return YB_OK;
}

static enum yb_status
read_signed(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    const json_int_t most = (json_int_t)most_of(row);

    if (!json_is_integer(value) || json_integer_value(value) < -most ||
        json_integer_value(value) > most) {
        return refuse(why_out, YB_INVALID, "%s is a whole number from -%lld to %lld", row->name,
                      (long long)most, (long long)most);
    }
    store(field, row->bytes, (uint64_t)json_integer_value(value));
    return YB_OK;
}

static enum yb_status
read_real(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    const double most = (double)most_of(row);
    const double scaled = json_is_number(value) ? json_number_value(value) * row->scale : -1;

    if (!isfinite(scaled) || scaled < 0 || scaled > most) {
        return refuse(why_out, YB_INVALID, "%s is a number from 0 to %g", row->name,
                      most / row->scale);
    }
    store(field, row->bytes, (uint64_t)(scaled + 0.5));
    return YB_OK;
}

static enum yb_status
read_flag(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    if (!json_is_boolean(value)) {
        return refuse(why_out, YB_INVALID, "%s is true or false", row->name);
    }
    store(field, row->bytes, json_is_true(value));
    return YB_OK;
}

static enum yb_status
read_word(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    const char *word = json_string_value(value);
    size_t at;

    for (uint64_t i = 0; word != NULL && row->words[i] != NULL; i++) {
        if (row->words[i][0] != '\0' && strcmp(row->words[i], word) == 0) {
            store(field, row->bytes, i);
            return YB_OK;
        }
    }
    at = (size_t)snprintf(why_out, YB_FORM_WHY_BYTES, "%s is one of", row->name);
    for (uint64_t i = 0; row->words[i] != NULL && at < YB_FORM_WHY_BYTES; i++) {
        at += (size_t)snprintf(why_out + at, YB_FORM_WHY_BYTES - at, " %s", row->words[i]);
    }
    return YB_INVALID;
}

static enum yb_status
read_text(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    const struct yb_wire_text text = {json_string_value(value),
                                      (uint16_t)(json_string_length(value) & 0xffff)};

    if (text.bytes == NULL || json_string_length(value) > row->most ||
        !yb_wire_text_valid(text.bytes, text.length)) {
        return refuse(why_out, YB_INVALID, "%s is a text of at most %llu printable bytes",
                      row->name, (unsigned long long)row->most);
    }
    memcpy(field, &text, sizeof(text));
    return YB_OK;
}

static enum yb_status
read_key(const struct yb_form *row, const json_t *value, uint8_t *field, char *why_out)
{
    if (!json_is_string(value) ||
        !yb_form_hex(json_string_value(value), json_string_length(value), field)) {
        return refuse(why_out, YB_INVALID, "%s is 16 bytes as 32 hex digits", row->name);
    }
    return YB_OK;
}

/* Room for an array of the form. */
static void *
take_array(struct yb_form_memory *memory, size_t count, size_t bytes)
{
    void *array = calloc(count + 1, bytes);

    if (array != NULL) {
        YB_ASSERT(memory->count < YB_FORM_ARRAYS_MAX);
        memory->arrays[memory->count++] = array;
    }
    return array;
}

static enum yb_status
check_array(const struct yb_form *row, const json_t *value, char *why_out)
{
    if (!json_is_array(value)) {
        return refuse(why_out, YB_INVALID, "%s is an array", row->name);
    }
    return json_array_size(value) <= row->most
               ? YB_OK
               : refuse(why_out, YB_TOO_LARGE, "%s has at most %llu items", row->name,
                        (unsigned long long)row->most);
}

static enum yb_status
read_tokens(const struct yb_form *row, const json_t *value, uint8_t *field,
            struct yb_form_memory *memory, char *why_out)
{
    const size_t count = json_array_size(value);
    uint8_t *bytes = take_array(memory, count, sizeof(uint32_t));
    const struct yb_wire_blob blob = {bytes, (uint32_t)(count * sizeof(uint32_t))};

    if (bytes == NULL) {
        return refuse(why_out, YB_NO_MEMORY, "no memory for %s", row->name);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_array_get(value, i);

        if (!json_is_integer(token) || json_integer_value(token) < 0 ||
            json_integer_value(token) > UINT32_MAX) {
            return refuse(why_out, YB_INVALID, "%s[%zu] is no whole number of 32 bits", row->name,
                          i);
        }
        yb_wire_put_u32(bytes + i * sizeof(uint32_t), (uint32_t)json_integer_value(token));
    }
    memcpy(field, &blob, sizeof(blob));
    return YB_OK;
}

static enum yb_status
read_keys(const struct yb_form *row, const json_t *value, uint8_t *field,
          struct yb_form_memory *memory, char *why_out)
{
    const size_t count = json_array_size(value);
    uint8_t *keys = take_array(memory, count, KEY_BYTES);
    const struct any_list list = {(uint32_t)count, NULL, keys};

    if (keys == NULL) {
        return refuse(why_out, YB_NO_MEMORY, "no memory for %s", row->name);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *key = json_array_get(value, i);

        if (!json_is_string(key) ||
            !yb_form_hex(json_string_value(key), json_string_length(key), keys + i * KEY_BYTES)) {
            return refuse(why_out, YB_INVALID, "%s[%zu] is no 16 bytes as 32 hex digits", row->name,
                          i);
        }
    }
    memcpy(field, &list, sizeof(list));
    return YB_OK;
}

static enum yb_status read_object(const struct yb_form *form, json_t *object, uint8_t *out,
                                  struct yb_form_memory *memory, char *why_out);

static enum yb_status
read_list(const struct yb_form *row, const json_t *value, uint8_t *field,
          struct yb_form_memory *memory, char *why_out)
{
    const size_t count = json_array_size(value);
    uint8_t *items = take_array(memory, count, row->bytes);
    const struct any_list list = {(uint32_t)count, NULL, items};
    enum yb_status status = YB_OK;

    if (items == NULL) {
        return refuse(why_out, YB_NO_MEMORY, "no memory for %s", row->name);
    }
    for (size_t i = 0; status == YB_OK && i < count; i++) {
        status = read_object(row->items, json_array_get(value, i), items + i * row->bytes, memory,
                             why_out);
    }
    memcpy(field, &list, sizeof(list));
    return status;
}

static enum yb_status
read_row(const struct yb_form *row, const json_t *value, uint8_t *out,
         struct yb_form_memory *memory, char *why_out)
{
    uint8_t *field = out + row->at;
    enum yb_status status = row->kind >= YB_FORM_TOKENS ? check_array(row, value, why_out) : YB_OK;

    if (status != YB_OK) {
        return status;
    }
    switch ((enum yb_form_kind)row->kind) {
    case YB_FORM_NUMBER: return read_number(row, value, field, why_out);
    case YB_FORM_SIGNED: return read_signed(row, value, field, why_out);
    case YB_FORM_REAL: return read_real(row, value, field, why_out);
    case YB_FORM_FLAG: return read_flag(row, value, field, why_out);
    case YB_FORM_WORD: return read_word(row, value, field, why_out);
    case YB_FORM_TEXT: return read_text(row, value, field, why_out);
    case YB_FORM_KEY: return read_key(row, value, field, why_out);
    case YB_FORM_TOKENS: return read_tokens(row, value, field, memory, why_out);
    case YB_FORM_KEYS: return read_keys(row, value, field, memory, why_out);
    case YB_FORM_LIST: return read_list(row, value, field, memory, why_out);
    }
    return YB_INVALID;
}

static const struct yb_form *
find_row(const struct yb_form *form, const char *name)
{
    for (; form->name != NULL; form++) {
        if (strcmp(form->name, name) == 0) {
            return form;
        }
    }
    return NULL;
}

static enum yb_status
read_object(const struct yb_form *form, json_t *object, uint8_t *out, struct yb_form_memory *memory,
            char *why_out)
{
    const char *name;
    json_t *value;
    enum yb_status status;

    if (!json_is_object(object)) {
        return refuse(why_out, YB_INVALID, "an object is expected");
    }
    json_object_foreach(object, name, value)
    {
        const struct yb_form *row = find_row(form, name);

        if (row == NULL) {
            return refuse(why_out, YB_INVALID, "there is no member \"%.64s\"; see /v1/openapi.json",
                          name);
        }
        if (json_is_null(value)) {
            continue; /* As if it were not there. */
        }
        status = read_row(row, value, out, memory, why_out);
        if (status != YB_OK) {
            return status;
        }
    }
    for (; form->name != NULL; form++) {
        if (form->needed &&
            (value = json_object_get(object, form->name), value == NULL || json_is_null(value))) {
            return refuse(why_out, YB_INVALID, "%s is needed: %s", form->name, form->text);
        }
    }
    return YB_OK;
}

enum yb_status
yb_form_read(const struct yb_form *form, json_t *object, void *struct_out,
             struct yb_form_memory *memory, char why_out[YB_FORM_WHY_BYTES])
{
    *memory = (struct yb_form_memory){.count = 0};
    return read_object(form, object, struct_out, memory, why_out);
}

void
yb_form_fini(struct yb_form_memory *memory)
{
    while (memory->count > 0) {
        free(memory->arrays[--memory->count]);
    }
}

/* ---- the description ------------------------------------------------------------------------- */

static json_t *
words_schema(const struct yb_form *row)
{
    json_t *words = json_array();

    for (uint32_t i = 0; row->words[i] != NULL; i++) {
        if (row->words[i][0] != '\0') {
            (void)json_array_append_new(words, json_string(row->words[i]));
        }
    }
    return json_pack("{s:s, s:o, s:s}", "type", "string", "enum", words, "description", row->text);
}

static json_t *
row_schema(const struct yb_form *row)
{
    static const char hex[] = "^[0-9a-fA-F]{32}$";

    switch ((enum yb_form_kind)row->kind) {
    case YB_FORM_NUMBER:
        return json_pack("{s:s, s:i, s:I, s:s}", "type", "integer", "minimum", 0, "maximum",
                         (json_int_t)most_of(row), "description", row->text);
    case YB_FORM_SIGNED:
        return json_pack("{s:s, s:I, s:I, s:s}", "type", "integer", "minimum",
                         -(json_int_t)most_of(row), "maximum", (json_int_t)most_of(row),
                         "description", row->text);
    case YB_FORM_REAL:
        return json_pack("{s:s, s:i, s:s}", "type", "number", "minimum", 0, "description",
                         row->text);
    case YB_FORM_FLAG: return json_pack("{s:s, s:s}", "type", "boolean", "description", row->text);
    case YB_FORM_WORD: return words_schema(row);
    case YB_FORM_TEXT:
        return json_pack("{s:s, s:I, s:s}", "type", "string", "maxLength", (json_int_t)row->most,
                         "description", row->text);
    case YB_FORM_KEY:
        return json_pack("{s:s, s:s, s:s}", "type", "string", "pattern", hex, "description",
                         row->text);
    case YB_FORM_TOKENS:
        return json_pack("{s:s, s:I, s:{s:s, s:i, s:I}, s:s}", "type", "array", "maxItems",
                         (json_int_t)row->most, "items", "type", "integer", "minimum", 0, "maximum",
                         (json_int_t)UINT32_MAX, "description", row->text);
    case YB_FORM_KEYS:
        return json_pack("{s:s, s:I, s:{s:s, s:s}, s:s}", "type", "array", "maxItems",
                         (json_int_t)row->most, "items", "type", "string", "pattern", hex,
                         "description", row->text);
    case YB_FORM_LIST:
        return json_pack("{s:s, s:I, s:o, s:s}", "type", "array", "maxItems", (json_int_t)row->most,
                         "items", yb_form_schema(row->items), "description", row->text);
    }
    return NULL;
}

json_t *
yb_form_schema(const struct yb_form *form)
{
    json_t *properties = json_object();
    json_t *needed = json_array();

    for (; form->name != NULL; form++) {
        (void)json_object_set_new(properties, form->name, row_schema(form));
        if (form->needed) {
            (void)json_array_append_new(needed, json_string(form->name));
        }
    }
    return json_pack("{s:s, s:b, s:o, s:o}", "type", "object", "additionalProperties", 0,
                     "properties", properties, "required", needed);
}
