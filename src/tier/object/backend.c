/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/object/backend.h"

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
