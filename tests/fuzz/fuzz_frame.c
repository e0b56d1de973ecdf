/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a frame, as they are and with the checksum put right, and as the
 * bodies that the connection itself reads: what is accepted is written back as the
 * same bytes.
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "net/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct yb_frame_limits limits = {
    .version = 1, .body_bytes_max = 1u << 20, .data_bytes_max = YB_WIRE_DATA_BYTES_MAX};

static void
try_header(const uint8_t *data, size_t size)
{
    struct yb_wire_frame_header header;
    uint8_t again[YB_WIRE_FRAME_HEADER_BYTES];
    const char *why = NULL;
    enum yb_frame_verdict verdict = yb_frame_parse(data, size, &limits, &header, &why);

    YB_ASSERT((verdict == YB_FRAME_BROKEN) == (why != NULL));
    YB_ASSERT(verdict != YB_FRAME_NEED_MORE || size < YB_FRAME_HEADER_BYTES);
    if (verdict == YB_FRAME_OK) {
        YB_ASSERT(header.body_bytes <= limits.body_bytes_max);
        YB_ASSERT(header.data_bytes <= limits.data_bytes_max);
        YB_ASSERT(yb_frame_build(&header, &limits, again) == YB_OK);
        YB_ASSERT(memcmp(again, data, sizeof(again)) == 0);
    }
}

static void
try_bodies(const uint8_t *data, size_t size)
{
    uint8_t again[YB_WIRE_GOAWAY_BYTES_MAX];
    struct yb_wire_ping ping;
    struct yb_wire_goaway goaway;
    struct yb_wire_error error;
    char text[64];
    size_t length = 0;

    if (yb_wire_ping_decode(data, size, &ping, &error) == YB_OK) {
        YB_ASSERT(yb_wire_ping_encode(&ping, again, sizeof(again), &length) == YB_OK);
        YB_ASSERT(length == size && memcmp(again, data, size) == 0);
    } else {
        yb_wire_error_format(&error, text, sizeof(text));
    }
    if (yb_wire_goaway_decode(data, size, &goaway, &error) == YB_OK) {
        YB_ASSERT(yb_wire_goaway_encode(&goaway, again, sizeof(again), &length) == YB_OK);
        YB_ASSERT(length == size && memcmp(again, data, size) == 0);
    } else {
        yb_wire_error_format(&error, text, sizeof(text));
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t fixed[YB_WIRE_FRAME_HEADER_BYTES];

    try_header(data, size);
    try_bodies(data, size);
    if (size >= sizeof(fixed)) {
        memcpy(fixed, data, sizeof(fixed));
        yb_wire_put_u32(fixed + YB_WIRE_FRAME_HEADER_AT_HEADER_CRC,
                        yb_crc32c(fixed, YB_WIRE_FRAME_HEADER_AT_HEADER_CRC));
        try_header(fixed, sizeof(fixed));
    }
    return 0;
}
