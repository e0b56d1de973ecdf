/* SPDX-License-Identifier: Apache-2.0
 *
 * grant.h -- the number by which the directory accepts a publication.
 *
 * A grant is a block's version, write tag and tie-breaker in one: the directory's epoch in the high
 * 24 bits, a counter of that epoch in the low 40. Grants are compared as plain numbers; a later
 * epoch beats every counter of an earlier one, so a directory that starts again with a higher epoch
 * can count from 1.
 *
 * Threads   Any function, any thread; no state.
 * Memory    Plain values.
 */
#ifndef YB_DIRECTORY_GRANT_H
#define YB_DIRECTORY_GRANT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"

#define YB_GRANT_NONE         UINT64_C(0)
#define YB_GRANT_COUNTER_BITS 40u
#define YB_GRANT_EPOCH_MAX    ((UINT64_C(1) << 24) - 1)
#define YB_GRANT_COUNTER_MAX  ((UINT64_C(1) << YB_GRANT_COUNTER_BITS) - 1)

/* Return the grant of `epoch` (1 to EPOCH_MAX) and `counter` (1 to COUNTER_MAX). */
static inline uint64_t
yb_grant_make(uint64_t epoch, uint64_t counter)
{
    YB_ASSERT(epoch >= 1 && epoch <= YB_GRANT_EPOCH_MAX);
    YB_ASSERT(counter >= 1 && counter <= YB_GRANT_COUNTER_MAX);
    return epoch << YB_GRANT_COUNTER_BITS | counter;
}

static inline uint64_t
yb_grant_epoch(uint64_t grant)
{
    return grant >> YB_GRANT_COUNTER_BITS;
}

static inline uint64_t
yb_grant_counter(uint64_t grant)
{
    return grant & YB_GRANT_COUNTER_MAX;
}

/* Return whether a number from outside can be a grant: neither half is 0. */
static inline bool
yb_grant_valid(uint64_t grant)
{
    return yb_grant_epoch(grant) != 0 && yb_grant_counter(grant) != 0;
}

/* Advance *last, a grant of this epoch or yb_grant_epoch_start(), and return true. Returns false,
 * leaving it alone, when the epoch's 2^40 grants are used up: a new epoch has to begin. */
static inline bool
yb_grant_next(uint64_t *last)
{
    YB_ASSERT(yb_grant_epoch(*last) != 0);
    if (yb_grant_counter(*last) == YB_GRANT_COUNTER_MAX) {
        return false;
    }
    (*last)++;
    return true;
}

/* Return what lies just below the first grant of `epoch`, for yb_grant_next(). */
static inline uint64_t
yb_grant_epoch_start(uint64_t epoch)
{
    YB_ASSERT(epoch >= 1 && epoch <= YB_GRANT_EPOCH_MAX);
    return epoch << YB_GRANT_COUNTER_BITS;
}

#endif /* YB_DIRECTORY_GRANT_H */
