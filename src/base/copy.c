/* SPDX-License-Identifier: Apache-2.0 */
#include "base/copy.h"

#include <stdbool.h>
#include <string.h>

#include "base/check.h"

#ifdef __SSE2__

#include <emmintrin.h>

#define LINE_BYTES 64u

/* Below it the ends of a piece cost more than is saved. */
#define PIECE_BYTES_MIN 1024u

/* More than these were tried, and gain nothing more. */
#define LANES 8u
/* Below it there is one lane: eight would have hardly begun when they end. */
#define LANES_BYTES_MIN (64u * 1024u)
/* What a lane copies in its turn. */
#define TURN_LINES 4u

/* One of the places at which the bytes are copied in turns. */
struct lane {
    const struct yb_copy_piece *piece; /* What comes next ... */
    size_t skip;                       /* ... less its first bytes, which another lane has ... */
    size_t left;                       /* ... until so many bytes are the lane's. */
    uint8_t *to;                       /* Whole lines of the piece before that. */
    const uint8_t *from;
    size_t lines;
};

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

/* Copy what of the lane's next piece is not a whole line, and leave the lines. Returns false if
 * nothing is left. */
static bool
lane_next(struct lane *lane)
{
    while (lane->left > 0) {
        const struct yb_copy_piece *piece = lane->piece;
        uint8_t *to = (uint8_t *)piece->to + lane->skip;
        const uint8_t *from = (const uint8_t *)piece->from + lane->skip;
        size_t rest = piece->length - lane->skip;
        size_t length = rest < lane->left ? rest : lane->left;
        size_t head = -(uintptr_t)to % LINE_BYTES;
        size_t body;

        lane->piece++;
        lane->skip = 0;
        lane->left -= length;
        if (length < PIECE_BYTES_MIN) {
            if (length > 0) {
                memcpy(to, from, length);
            }
            continue;
        }
        lane->lines = (length - head) / LINE_BYTES;
        body = lane->lines * LINE_BYTES;
        memcpy(to, from, head);
        memcpy(to + head + body, from + head + body, length - head - body);
        lane->to = to + head;
        lane->from = from + head;
        return true;
    }
    return false;
}

/* Copy a turn's worth. Returns false if there was nothing. */
static bool
lane_step(struct lane *lane)
{
    size_t lines;

    if (lane->lines == 0 && !lane_next(lane)) {
        return false;
    }
    lines = lane->lines < TURN_LINES ? lane->lines : TURN_LINES;
    stream_lines(lane->to, lane->from, lines);
    lane->lines -= lines;
    lane->to += lines * LINE_BYTES;
    lane->from += lines * LINE_BYTES;
    return true;
}

static size_t
sum_of(const struct yb_copy_piece *pieces, uint32_t count)
{
    size_t total = 0;

    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT((pieces[i].to != NULL && pieces[i].from != NULL) || pieces[i].length == 0);
        total += pieces[i].length;
    }
    return total;
}

void
yb_copy_stream_pieces(const struct yb_copy_piece *pieces, uint32_t count)
{
    struct lane lanes[LANES];
    size_t left = sum_of(pieces, count);
    size_t share = left < LANES_BYTES_MIN ? left : left / LANES / LINE_BYTES * LINE_BYTES;
    size_t skip = 0;
    uint32_t used = 0;
    bool any;

    for (; left > 0 && used < LANES; used++) {
        size_t take = used + 1 < LANES ? share : left;

        while (skip >= pieces->length) {
            skip -= pieces->length;
            pieces++;
        }
        lanes[used] = (struct lane){.piece = pieces, .skip = skip, .left = take};
        left -= take;
        skip += take;
    }
    do {
        any = false;
        for (uint32_t i = 0; i < used; i++) {
            any = lane_step(&lanes[i]) || any;
        }
    } while (any);
    _mm_sfence(); /* C2 */
}

#else

void
yb_copy_stream_pieces(const struct yb_copy_piece *pieces, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        YB_ASSERT((pieces[i].to != NULL && pieces[i].from != NULL) || pieces[i].length == 0);
        if (pieces[i].length > 0) {
            memcpy(pieces[i].to, pieces[i].from, pieces[i].length);
        }
    }
}

#endif

void
yb_copy_stream(void *to, const void *from, size_t length)
{
    const struct yb_copy_piece piece = {.to = to, .from = from, .length = length};

    yb_copy_stream_pieces(&piece, 1);
}
