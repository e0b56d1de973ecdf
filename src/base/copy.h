/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h -- copy to memory that is not read again soon.
 *
 * A processor that stores into a cache line first reads it from memory, so that a copy of what no
 * cache holds moves three bytes for each that is wanted. Stores that bypass the caches do not: such
 * a copy is half as fast again, and leaves the caches to others. The C library does it, too, but
 * only beyond a good part of the last-level cache in one call, and what moves here comes in slices.
 *
 * What then remains is waiting for the first bytes of every page and piece, since a processor sees
 * ahead only inside a page. So a copy goes on in several places in turns, which wait at the same
 * time: that makes it faster by a quarter again, and pieces of a few KiB half as fast again.
 *
 * It is the wrong choice for what lies in a cache, or is wanted there: then memcpy() is half as
 * fast again. Hence only for what is large as a whole (YB_COPY_STREAM_BYTES); copying and then
 * reading once is still faster this way from there on. docs/design-notes.md has the figures.
 *
 * Invariants
 *   C1  The bytes are those of memcpy(), for any alignment and length, and nothing else is written.
 *   C2  What is stored afterwards, by the same thread, is seen afterwards: the copy is fenced.
 *
 * Threads   Any function, any thread; no state.
 */
#ifndef YB_BASE_COPY_H
#define YB_BASE_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Of what moves as one, in one or many pieces, from here on it is to be streamed. */
#define YB_COPY_STREAM_BYTES (128u * 1024u)

/* What is copied from one place to another. */
struct yb_copy_piece {
    void *to;
    const void *from;
    size_t length;
};

/* Copy past the caches, in several places in turns; no range overlaps another. Short pieces, which
 * gain nothing, and processors for which there is no code here go through memcpy(). */
void yb_copy_stream_pieces(const struct yb_copy_piece *pieces, uint32_t count);

/* The same with one piece. */
void yb_copy_stream(void *to, const void *from, size_t length);

#endif /* YB_BASE_COPY_H */
