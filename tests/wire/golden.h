/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.h -- what the generated tables of examples are made of.
 */
#ifndef YB_TESTS_WIRE_GOLDEN_H
#define YB_TESTS_WIRE_GOLDEN_H

#include <stddef.h>
#include <stdint.h>

#include "net/wire/codec.h"

struct golden_buffer {
    uint8_t *bytes;
    size_t room;
    size_t length;
};

struct golden_case {
    const char *name;   /* tests/wire/golden/<name>.hex */
    size_t fixed_bytes; /* Length of the fixed part. */

    /* Encode the example's values. */
    enum yb_status (*build)(struct golden_buffer *out);

    /* Decode the bytes and encode what came out. */
    enum yb_status (*recode)(const uint8_t *bytes, size_t length, struct golden_buffer *out,
                             struct yb_wire_error *error);
};

/* CRC32C, bit by bit: it shares nothing with the one under test. */
static inline uint32_t
golden_crc32c(const uint8_t *bytes, size_t length)
{
    uint32_t crc = ~0u;

    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (unsigned bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (0x82f63b78u & (0u - (crc & 1u)));
        }
    }
    return ~crc;
}

#endif /* YB_TESTS_WIRE_GOLDEN_H */
