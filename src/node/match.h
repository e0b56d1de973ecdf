/* SPDX-License-Identifier: Apache-2.0
 *
 * match.h -- which keys a question is about: all, those with a prefix, those in which a regular
 * expression finds something, one.
 *
 * An expression comes from outside, and can ask for any amount of work. What it may cost is bounded
 * twice: it has to compile to YB_MATCH_CODE_BYTES, and to find something in a key may take
 * YB_MATCH_STEPS steps of PCRE2's. An expression is read as by JavaScript where Perl and it differ:
 * `$` is the end and nothing else, `[]` is empty, \uHHHH is a character. It is about bytes: none of
 * those above 127 is a letter.
 *
 * Threads   A match: one at a time.
 * Memory    Owned by the match, from the heap: a few KiB, a MiB at the most.
 */
#ifndef YB_NODE_MATCH_H
#define YB_NODE_MATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "node/wire/node_wire.h"
#include "yuebing/status.h"

#define YB_MATCH_CODE_BYTES (16u * 1024u)
#define YB_MATCH_STEPS      100000u /* A millisecond or two. */

struct yb_match {
    enum yb_wire_match kind;
    const uint8_t *pattern; /* Borrowed for the match's life. */
    size_t pattern_bytes;
    void *code; /* Of PCRE2; NULL: no expression. */
    void *limits;
    void *found;
};

/* Fails with INVALID (no expression), TOO_LARGE (one that is too much work) or NO_MEMORY; after
 * that there is nothing to end. */
YB_CHECKED enum yb_status yb_match_init(struct yb_match *match, enum yb_wire_match kind,
                                        const void *pattern, size_t pattern_bytes);
void yb_match_fini(struct yb_match *match);

/* OK; NOT_FOUND: it is not about this key; TOO_LARGE: to say so would be too much work. */
YB_CHECKED enum yb_status yb_match_try(const struct yb_match *match, const void *key,
                                       size_t key_bytes);

#endif /* YB_NODE_MATCH_H */
