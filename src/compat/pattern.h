/* SPDX-License-Identifier: Apache-2.0
 *
 * pattern.h -- regular expressions of the known package (ECMAScript's, as of C++) in the words of
 * our store (POSIX extended ones, as of regex(7) and the GNU C library).
 *
 * Both find the same keys, but for what keys do not have: lines, and letters beyond ASCII. Taken
 * over are classes (\d \D \w \W \s \S, also in brackets), groups that are not captured, quantifiers
 * that are not greedy (which changes what is found, not whether), escapes of control characters
 * and of punctuation. What the other side has no word for is refused: looking ahead, \D \W \S in
 * brackets, empty brackets, characters by number.
 *
 * Threads   Pure.
 */
#ifndef YB_COMPAT_PATTERN_H
#define YB_COMPAT_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

/* Write `known` in our words; false: it cannot be said, or has no room. */
bool yb_compat_pattern(const char *known, char *out, size_t room);

#endif /* YB_COMPAT_PATTERN_H */
