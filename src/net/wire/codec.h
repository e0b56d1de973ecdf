/* SPDX-License-Identifier: Apache-2.0
 *
 * codec.h -- what the generated encoders and decoders stand on.
 *
 * Everything on the wire is described once, in schema.toml beside this file;
 * tools/gen/wire.py writes wire.h, wire.c, docs/protocol.md and the golden bytes
 * from it. This header holds the few hand-written pieces that they share:
 * little-endian loads and stores, views into a received message, and the error
 * that names the message and the field.
 *
 * Invariants
 *   W1  A decoder reads only bytes[0 .. length), and sets its output only on OK.
 *   W2  What a decoder accepts, the encoder writes back as the same bytes.
 *   W3  Nothing here allocates.
 *
 * Threads   Any thread; there is no state.
 * Memory    Texts, blobs and lists of a decoded message are views: borrowed until
 *           the bytes given to the decoder change. A text is not terminated by NUL.
 */
#ifndef YB_NET_WIRE_CODEC_H
#define YB_NET_WIRE_CODEC_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

_Static_assert(sizeof(struct yb_id) == 16, "an id is 16 bytes on the wire");

/* Printable UTF-8 without control characters; at most as long as the schema says. */
struct yb_wire_text {
    const char *bytes;
    uint16_t length;
};

struct yb_wire_blob {
    const uint8_t *bytes;
    uint32_t length;
};

/* Why a message was refused: static strings, and the number that was wrong. */
struct yb_wire_error {
    const char *message; /* Such as "hello". */
    const char *field;   /* Such as "role"; "length" for the message as a whole. */
    const char *why;
    uint64_t value;
};

/* Write "hello.role: not a value of its table (9)" to `out`, cut to `room` with a NUL. */
void yb_wire_error_format(const struct yb_wire_error *error, char *out, size_t room);

/* Fill *error (which may be NULL) and return false: the tail of every failed check. */
bool yb_wire_bad(struct yb_wire_error *error, const char *message, const char *field,
                 const char *why, uint64_t value);

/* Return whether the bytes are printable UTF-8: no control characters (C0, DEL, C1), no
 * surrogates, no overlong forms. The empty text is valid. */
bool yb_wire_text_valid(const char *bytes, size_t length);

/* Return whether `text` holds exactly the characters of `string`. */
bool yb_wire_text_equal(struct yb_wire_text text, const char *string);

/* Make a view of a NUL-terminated string; of its first 65,535 bytes when it is longer. */
struct yb_wire_text yb_wire_text_of(const char *string);

static inline uint8_t
yb_wire_get_u8(const uint8_t *bytes)
{
    return bytes[0];
}

static inline uint16_t
yb_wire_get_u16(const uint8_t *bytes)
{
    uint16_t value;

    memcpy(&value, bytes, sizeof(value));
    return le16toh(value);
}

static inline uint32_t
yb_wire_get_u32(const uint8_t *bytes)
{
    uint32_t value;

    memcpy(&value, bytes, sizeof(value));
    return le32toh(value);
}

static inline uint64_t
yb_wire_get_u64(const uint8_t *bytes)
{
    uint64_t value;

    memcpy(&value, bytes, sizeof(value));
    return le64toh(value);
}

static inline void
yb_wire_put_u8(uint8_t *bytes, uint8_t value)
{
    bytes[0] = value;
}

static inline void
yb_wire_put_u16(uint8_t *bytes, uint16_t value)
{
    value = htole16(value);
    memcpy(bytes, &value, sizeof(value));
}

static inline void
yb_wire_put_u32(uint8_t *bytes, uint32_t value)
{
    value = htole32(value);
    memcpy(bytes, &value, sizeof(value));
}

static inline void
yb_wire_put_u64(uint8_t *bytes, uint64_t value)
{
    value = htole64(value);
    memcpy(bytes, &value, sizeof(value));
}

/* Return whether `count` reserved bytes are all zero. */
static inline bool
yb_wire_zero(const uint8_t *bytes, size_t count)
{
    uint8_t any = 0;

    for (size_t i = 0; i < count; i++) {
        any |= bytes[i];
    }
    return any == 0;
}

/* Copy the bytes of a tail and return where the next one starts. NULL is fine when `length`
 * is 0, which memcpy itself does not allow. */
static inline size_t
yb_wire_put_tail(uint8_t *out, size_t at, const void *bytes, size_t length)
{
    if (length > 0) {
        memcpy(out + at, bytes, length);
    }
    return at + length;
}

#endif /* YB_NET_WIRE_CODEC_H */
