/* SPDX-License-Identifier: Apache-2.0 */
#include "observe/span_json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "yuebing/status.h"

typedef const char *word_fn(uint8_t value);

/* ---- writing --------------------------------------------------------------------------------- */

void
yb_span_id_format(uint64_t id, char text_out[YB_SPAN_ID_DIGITS + 1])
{
    (void)snprintf(text_out, YB_SPAN_ID_DIGITS + 1, "%016" PRIx64, id);
}

static json_t *
id_json(struct yb_id id)
{
    char text[33];

    yb_id_format(id, text);
    return yb_id_is_none(id) ? NULL : json_string(text);
}

static json_t *
span_id_json(uint64_t id)
{
    char text[YB_SPAN_ID_DIGITS + 1];

    yb_span_id_format(id, text);
    return id == 0 ? NULL : json_string(text);
}

static json_t *
number_json(uint64_t number)
{
    return number == 0 ? NULL : json_integer((json_int_t)number);
}

static json_t *
word_json(uint8_t value, word_fn *word)
{
    return value == 0 ? NULL : json_string(word(value));
}

json_t *
yb_span_json(const struct yb_span *span)
{
    return json_pack(
        "{s:s, s:s, s:s, s:o*, s:o*, s:o*, s:o*, s:I, s:I, s:I, s:o*, s:o*, s:o*, s:o*, s:o*}",
        "kind", yb_span_kind_name(span->kind), "outcome",
        yb_status_name((enum yb_status)span->outcome), "class",
        yb_class_name((enum yb_class)span->work_class), "trace", id_json(span->trace), "span",
        span_id_json(span->span), "parent", span_id_json(span->parent), "peer", id_json(span->peer),
        "start_ns", (json_int_t)span->start_ns, "end_ns", (json_int_t)span->end_ns, "wall_ns",
        (json_int_t)span->wall_ns, "began_ns", number_json(span->began_ns), "bytes",
        number_json(span->bytes), "number", number_json(span->number), "path",
        word_json(span->path, yb_span_path_name), "tier", word_json(span->tier, yb_span_tier_name));
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Each reads one member, which may be missing; false: it is nothing that we write. */

static bool
read_number(const json_t *value, const char *name, uint64_t *number_out)
{
    const json_t *member = json_object_get(value, name);

    if (member != NULL && (!json_is_integer(member) || json_integer_value(member) < 0)) {
        return false;
    }
    *number_out = (uint64_t)json_integer_value(member);
    return true;
}

static bool
read_id(const json_t *value, const char *name, struct yb_id *id_out)
{
    const json_t *member = json_object_get(value, name);

    return member == NULL ||
           (json_is_string(member) && yb_id_parse(json_string_value(member), id_out));
}

static bool
read_span_id(const json_t *value, const char *name, uint64_t *id_out)
{
    const json_t *member = json_object_get(value, name);
    const char *text = json_string_value(member);

    if (member == NULL) {
        return true;
    }
    return text != NULL && strlen(text) == YB_SPAN_ID_DIGITS &&
           strspn(text, "0123456789abcdef") == YB_SPAN_ID_DIGITS &&
           sscanf(text, "%16" SCNx64, id_out) == 1;
}

static bool
read_word(const json_t *value, const char *name, word_fn *word, uint8_t *value_out)
{
    const json_t *member = json_object_get(value, name);
    const char *text = json_string_value(member);

    if (member == NULL) {
        return true;
    }
    for (uint8_t i = 0; text != NULL && i < UINT8_MAX; i++) {
        if (strcmp(word(i), text) == 0 && strcmp(text, "unknown") != 0) {
            *value_out = i;
            return true;
        }
    }
    return false;
}

static const char *
class_word(uint8_t value)
{
    return value < YB_CLASS_COUNT ? yb_class_name((enum yb_class)value) : "unknown";
}

static bool
read_outcome(const json_t *value, int32_t *outcome_out)
{
    const char *text = json_string_value(json_object_get(value, "outcome"));

#define X(name, number, scope, meaning)             \
    if (text != NULL && strcmp(text, #name) == 0) { \
        *outcome_out = YB_##name;                   \
        return true;                                \
    }
    YB_STATUS_MAP(X)
#undef X
    return false;
}

enum yb_status
yb_span_from_json(const json_t *value, struct yb_span *span_out)
{
    struct yb_span span = {.kind = YB_SPAN_KIND_NONE};

    if (!json_is_object(value) || !read_word(value, "kind", yb_span_kind_name, &span.kind) ||
        !read_word(value, "path", yb_span_path_name, &span.path) ||
        !read_word(value, "tier", yb_span_tier_name, &span.tier) ||
        !read_word(value, "class", class_word, &span.work_class) ||
        !read_outcome(value, &span.outcome) || !read_id(value, "trace", &span.trace) ||
        !read_id(value, "peer", &span.peer) || !read_span_id(value, "span", &span.span) ||
        !read_span_id(value, "parent", &span.parent) ||
        !read_number(value, "start_ns", &span.start_ns) ||
        !read_number(value, "end_ns", &span.end_ns) ||
        !read_number(value, "began_ns", &span.began_ns) ||
        !read_number(value, "wall_ns", &span.wall_ns) ||
        !read_number(value, "bytes", &span.bytes) || !read_number(value, "number", &span.number) ||
        span.end_ns < span.start_ns) {
        return YB_INVALID;
    }
    *span_out = span;
    return YB_OK;
}
