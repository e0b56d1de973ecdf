/* SPDX-License-Identifier: Apache-2.0
 *
 * hints.h -- where immutable blocks were, as far as this client remembers.
 *
 * A hint says which replica of a block to try first. It is never an answer: a wrong one is found
 * out at the node, by the grant, and costs one more round (RULES B1, H5). So the table may forget
 * anything at any time, and holds no absences and no versioned blocks.
 *
 * The table has buckets of four; a full bucket forgets its least recently used hint.
 *
 * Threads   One owner.
 * Memory    48 bytes a hint, all allocated by create.
 */
#ifndef YB_CLIENT_HINTS_H
#define YB_CLIENT_HINTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#define YB_HINT_REPLICAS 3u

struct yb_hints;

struct yb_hint {
    uint64_t grant;
    uint64_t size;                    /* About. */
    uint16_t slots[YB_HINT_REPLICAS]; /* 0: none. */
};

/* `hints_max` is a power of two, at least 4; 0 or 1: remember nothing. Fails with INVALID or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_hints_create(uint32_t hints_max, struct yb_hints **hints_out);
void yb_hints_destroy(struct yb_hints **hints);

/* Return whether there is a hint. */
bool yb_hints_find(struct yb_hints *hints, struct yb_id hash, struct yb_hint *hint_out);

/* Bring the place of a hash near the processor: it is going to be looked for. */
void yb_hints_prefetch(struct yb_hints *hints, struct yb_id hash);

/* Remember, in place of an older hint of the same hash. */
void yb_hints_set(struct yb_hints *hints, struct yb_id hash, const struct yb_hint *hint);

/* Forget the hint of a hash if it is of this grant (0: of any). Returns whether there was one. */
bool yb_hints_drop(struct yb_hints *hints, struct yb_id hash, uint64_t grant);

/* Forget everything: the cluster is another one. */
void yb_hints_clear(struct yb_hints *hints);

uint32_t yb_hints_count(const struct yb_hints *hints);

#endif /* YB_CLIENT_HINTS_H */
