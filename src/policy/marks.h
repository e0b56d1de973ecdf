/* SPDX-License-Identifier: Apache-2.0
 *
 * marks.h -- when to make room in a tier, and how much.
 *
 * Above the high mark, as much is freed as brings the tier down to the low one, so that evictions
 * come in batches and a tier at its mark does not evict for every put.
 *
 * Threads   Pure functions of their arguments.
 */
#ifndef YB_POLICY_MARKS_H
#define YB_POLICY_MARKS_H

#include <stdint.h>

#include "yuebing/status.h"

struct yb_policy_marks {
    uint64_t capacity; /* Bytes. */
    uint64_t high;
    uint64_t low;
};

/* Make marks of shares of the capacity. Fails with INVALID: low above high, high above 1000, or
 * capacity above 2^54 (so that a thousand of it fits). */
YB_CHECKED enum yb_status yb_policy_marks_init(struct yb_policy_marks *marks, uint64_t capacity,
                                               uint32_t high_permille, uint32_t low_permille);

/* Return how many of the `used` bytes to free before `incoming` more are taken in (0: just a look).
 *
 * Nothing, while both together stay at the high mark or below it. Otherwise so many that both
 * together are at the low mark; an incoming object larger than that gets what it needs and no more.
 * An object larger than the capacity frees nothing: no eviction would help. */
uint64_t yb_policy_marks_to_free(const struct yb_policy_marks *marks, uint64_t used,
                                 uint64_t incoming);

#endif /* YB_POLICY_MARKS_H */
