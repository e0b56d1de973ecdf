/* SPDX-License-Identifier: Apache-2.0 */
#include "net/wire/codec.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/check.h"

bool
yb_wire_bad(struct yb_wire_error *error, const char *message, const char *field, const char *why,
            uint64_t value)
{
    YB_ASSERT(message != NULL && field != NULL && why != NULL);
    if (error != NULL) {
        *error = (struct yb_wire_error){message, field, why, value};
    }
    return false;
}

void
yb_wire_error_format(const struct yb_wire_error *error, char *out, size_t room)
{
    YB_ASSERT(room > 0);
    snprintf(out, room, "%s.%s: %s (%" PRIu64 ")", error->message, error->field, error->why,
             error->value);
}

/* Return the bytes that one character takes, and its code point; 0 when they are not UTF-8. */
static size_t
utf8_next(const uint8_t *bytes, size_t length, uint32_t *point_out)
{
    static const uint32_t lowest[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = bytes[0];
    size_t width = first < 0x80 ? 1 : first < 0xc0 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    uint32_t point = width == 1 ? first : first & (0x7fu >> width);

    if (width == 0 || width > length || first > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < width; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
        point = point << 6 | (bytes[i] & 0x3fu);
    }
    if (point < lowest[width] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000)) {
        return 0;
    }
    *point_out = point;
    return width;
}

bool
yb_wire_text_valid(const char *bytes, size_t length)
{
    const uint8_t *at = (const uint8_t *)bytes;

    YB_ASSERT(bytes != NULL || length == 0);
    while (length > 0) {
        uint32_t point;
        size_t width = utf8_next(at, length, &point);

        if (width == 0 || point < 0x20 || (point >= 0x7f && point < 0xa0)) {
            return false;
        }
        at += width;
        length -= width;
    }
    return true;
}

bool
yb_wire_text_equal(struct yb_wire_text text, const char *string)
{
    size_t length = strlen(string);

    return text.length == length && (length == 0 || memcmp(text.bytes, string, length) == 0);
}

struct yb_wire_text
yb_wire_text_of(const char *string)
{
    size_t length = strlen(string);

    return (struct yb_wire_text){string, (uint16_t)(length > UINT16_MAX ? UINT16_MAX : length)};
}
