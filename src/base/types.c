/* SPDX-License-Identifier: Apache-2.0 */
#include "yuebing/types.h"

#include <string.h>

const char *
yb_version(void)
{
    return YB_VERSION_STRING;
}

const char *
yb_class_name(enum yb_class traffic_class)
{
    switch (traffic_class) {
#define X(name, value, word, text) \
    case YB_CLASS_##name: return word;
        YB_CLASS_MAP(X)
#undef X
    }
    return "unknown";
}

bool
yb_id_equal(struct yb_id a, struct yb_id b)
{
    return memcmp(a.bytes, b.bytes, sizeof(a.bytes)) == 0;
}

bool
yb_id_is_none(struct yb_id id)
{
    static const struct yb_id none;

    return yb_id_equal(id, none);
}

void
yb_id_format(struct yb_id id, char text_out[33])
{
    static const char digits[] = "0123456789abcdef";

    for (unsigned i = 0; i < sizeof(id.bytes); i++) {
        text_out[2 * i] = digits[id.bytes[i] >> 4];
        text_out[2 * i + 1] = digits[id.bytes[i] & 15];
    }
    text_out[32] = '\0';
}

/* Return the value of a hex digit, or -1. */
static int
hex_value(char digit)
{
    if (digit >= '0' && digit <= '9') {
        return digit - '0';
    }
    if (digit >= 'a' && digit <= 'f') {
        return digit - 'a' + 10;
    }
    if (digit >= 'A' && digit <= 'F') {
        return digit - 'A' + 10;
    }
    return -1;
}

bool
yb_id_parse(const char *text, struct yb_id *id_out)
{
    struct yb_id id;

    for (unsigned i = 0; i < sizeof(id.bytes); i++) {
        int high = hex_value(text[2 * i]);
        int low = high < 0 ? -1 : hex_value(text[2 * i + 1]);

        if (low < 0) {
            return false;
        }
        id.bytes[i] = (uint8_t)(high * 16 + low);
    }
    if (text[32] != '\0') {
        return false;
    }
    *id_out = id;
    return true;
}
