/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.h -- bytes of a format, written down as hexadecimal digits.
 */
#ifndef YB_TESTS_GOLDEN_H
#define YB_TESTS_GOLDEN_H

#include "unit.h"

#include <string.h>

static inline uint8_t
golden_digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* Compare with golden bytes, and with zeros behind them. */
static inline void
golden_compare(const void *bytes, size_t length, const char *golden)
{
    const uint8_t *at = bytes;
    size_t count = strlen(golden) / 2;

    for (size_t i = 0; i < length; i++) {
        uint8_t want = 0;

        if (i < count) {
            want = (uint8_t)(golden_digit(golden[2 * i]) << 4 | golden_digit(golden[2 * i + 1]));
        }
        if (at[i] != want) {
            fail_msg("byte %zu is %02x and should be %02x", i, at[i], want);
        }
    }
}

#endif /* YB_TESTS_GOLDEN_H */
