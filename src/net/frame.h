/* SPDX-License-Identifier: Apache-2.0
 *
 * frame.h -- build and judge the 96 bytes in front of every frame.
 *
 * A connection reads bytes, gives them to yb_frame_parse() and learns: not
 * enough yet, a header, or a peer that must be dropped. After a header come
 * `body_bytes` and `data_bytes` that the connection moves itself.
 *
 * Invariants
 *   F1  A header is believed only after its CRC32C, so one flipped bit cannot
 *       become a length.
 *   F2  body_bytes and data_bytes of an accepted header are within the limits that
 *       this side announced in the handshake.
 *   F3  Requests have a deadline and status OK; replies have deadline 0.
 *
 * Threads   Any; pure functions.
 */
#ifndef YB_NET_FRAME_H
#define YB_NET_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "net/wire/wire.h"

#define YB_FRAME_HEADER_BYTES ((size_t)YB_WIRE_FRAME_HEADER_BYTES)

/* What the receiver of the frames announced, and the version that the handshake chose. */
struct yb_frame_limits {
    uint8_t version;
    uint32_t body_bytes_max;
    uint64_t data_bytes_max;
};

enum yb_frame_verdict {
    YB_FRAME_NEED_MORE, /* Fewer than 96 bytes, and so far nothing is wrong with them. */
    YB_FRAME_OK,
    YB_FRAME_BROKEN, /* Drop the connection: what follows cannot be told apart. */
};

/* Judge the first bytes of a frame. On OK *header_out is filled; on BROKEN *why_out is a static
 * sentence for the log and the GOAWAY. A wrong magic is found with the first byte. */
enum yb_frame_verdict yb_frame_parse(const uint8_t *bytes, size_t length,
                                     const struct yb_frame_limits *limits,
                                     struct yb_wire_frame_header *header_out, const char **why_out);

/* Write a header with its CRC; `version` and `header_crc` of *header are not looked at.
 *
 * Fails with TOO_LARGE (body or data above what the receiver announced) or INVALID (another field
 * breaks F3 or its table): nothing of `out` is then to be sent. */
YB_CHECKED enum yb_status yb_frame_build(const struct yb_wire_frame_header *header,
                                         const struct yb_frame_limits *limits,
                                         uint8_t out[YB_WIRE_FRAME_HEADER_BYTES]);

#endif /* YB_NET_FRAME_H */
