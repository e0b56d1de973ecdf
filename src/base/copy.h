/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h -- copy to memory that is not read again soon.
 *
 * A processor that stores into a cache line first reads it from memory, so that a copy of what no
 * cache holds moves three bytes for each that is wanted. Stores that bypass the caches do not: such
 * a copy is half as fast again, and leaves the caches to others. The C library does it, too, but
 * only beyond a good part of the last-level cache in one call, and what moves here comes in slices.
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

/* Of what moves as one, in one or many pieces, from here on it is to be streamed. */
#define YB_COPY_STREAM_BYTES (128u * 1024u)

/* Copy past the caches; the ranges do not overlap. Short pieces, which gain nothing, and processors
 * for which there is no code here go through memcpy(). */
void yb_copy_stream(void *to, const void *from, size_t length);

#endif /* YB_BASE_COPY_H */
