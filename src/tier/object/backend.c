/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/backend.h"

#include <string.h>

bool
yb_object_piece(const struct yb_object_bytes *bytes, uint32_t *at, struct iovec *piece_out)
{
    const struct iovec gap = {.iov_len = bytes->gap};

    while (*at < bytes->iov_count + 4) {
        uint32_t i = (*at)++;
        const struct iovec *piece = i == 0                      ? &bytes->lead
                                    : i <= bytes->iov_count     ? &bytes->iov[i - 1]
                                    : i == bytes->iov_count + 1 ? &bytes->trail
                                    : i == bytes->iov_count + 2 ? &gap
                                                                : &bytes->tail;

        if (piece->iov_len > 0) {
            *piece_out = *piece;
            return true;
        }
    }
    return false;
}

uint64_t
yb_object_bytes_sum(const struct yb_object_bytes *bytes)
{
    struct iovec piece;
    uint64_t sum = 0;

    for (uint32_t at = 0; yb_object_piece(bytes, &at, &piece);) {
        sum += piece.iov_len;
    }
    return sum;
}

static size_t
move(const struct yb_object_bytes *bytes, uint64_t from, uint8_t *to, const uint8_t *data,
     size_t length)
{
    struct iovec piece;
    uint64_t begin = 0;
    size_t moved = 0;

    for (uint32_t at = 0; moved < length && yb_object_piece(bytes, &at, &piece);) {
        uint64_t end = begin + piece.iov_len;

        if (from + moved < end) {
            uint64_t inside = from + moved - begin;
            size_t part = (size_t)(piece.iov_len - inside);

            part = part < length - moved ? part : length - moved;
            if (piece.iov_base != NULL && to != NULL) {
                memcpy(to + moved, (const uint8_t *)piece.iov_base + inside, part);
            } else if (piece.iov_base != NULL) {
                memcpy((uint8_t *)piece.iov_base + inside, data + moved, part);
            }
            moved += part;
        }
        begin = end;
    }
    return moved;
}

size_t
yb_object_bytes_read(const struct yb_object_bytes *bytes, uint64_t from, void *to, size_t length)
{
    return move(bytes, from, to, NULL, length);
}

size_t
yb_object_bytes_write(const struct yb_object_bytes *bytes, uint64_t from, const void *data,
                      size_t length)
{
    return move(bytes, from, NULL, data, length);
}

bool
yb_object_retryable(enum yb_status status)
{
    return status == YB_TIMED_OUT || status == YB_PEER_LOST || status == YB_BUSY ||
           status == YB_UNREACHABLE || status == YB_IO;
}
