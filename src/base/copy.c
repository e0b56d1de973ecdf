/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"

#ifdef __SSE2__

#include <emmintrin.h>

#define LINE_BYTES 64u

/* Below it the fence and the ends cost more than is saved. */
#define PIECE_BYTES_MIN 2048u

/* A whole line at a time: what fills a line in one go is never read from memory. Wider registers
 * were tried, and are not faster: the memory is what is waited for. */
static void
stream_lines(uint8_t *to, const uint8_t *from, size_t count)
{
    for (; count > 0; count--, to += LINE_BYTES, from += LINE_BYTES) {
        __m128i *line = (__m128i *)(void *)to;
        const __m128i *bytes = (const __m128i *)(const void *)from;
        __m128i a = _mm_loadu_si128(bytes);
        __m128i b = _mm_loadu_si128(bytes + 1);
        __m128i c = _mm_loadu_si128(bytes + 2);
        __m128i d = _mm_loadu_si128(bytes + 3);

        _mm_stream_si128(line, a);
        _mm_stream_si128(line + 1, b);
        _mm_stream_si128(line + 2, c);
        _mm_stream_si128(line + 3, d);
    }
}

void
yb_copy_stream(void *to, const void *from, size_t length)
{
    uint8_t *at = to;
    const uint8_t *bytes = from;
    size_t head = -(uintptr_t)to % LINE_BYTES;
    size_t body;

    YB_ASSERT((to != NULL && from != NULL) || length == 0);
    if (length < PIECE_BYTES_MIN) {
        if (length > 0) {
            memcpy(to, from, length);
        }
        return;
    }
    body = (length - head) / LINE_BYTES * LINE_BYTES;
    memcpy(at, bytes, head);
    stream_lines(at + head, bytes + head, body / LINE_BYTES);
    memcpy(at + head + body, bytes + head + body, length - head - body);
    _mm_sfence(); /* C2 */
}

#else

void
yb_copy_stream(void *to, const void *from, size_t length)
{
    YB_ASSERT((to != NULL && from != NULL) || length == 0);
    if (length > 0) {
        memcpy(to, from, length);
    }
}

#endif
