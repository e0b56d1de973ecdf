/* SPDX-License-Identifier: Apache-2.0
 *
 * kills.h -- what was ended while somebody who may still hold it could not be told.
 *
 * A node that keeps blocks on a disk may be away, or may not have named yet all that it has. What
 * is removed or replaced meanwhile is remembered here: when it names such a block, it is refused
 * (RULES A5, A14). A key is remembered with the highest grant that is over: all older ones are.
 *
 * Invariants
 *   K1  What was added is covered until clear, unless an add has failed.
 *
 * Threads   One owner.
 * Memory    All of it is reserved by create; what is not reached costs nothing.
 */
#ifndef YB_DIRECTORY_KILLS_H
#define YB_DIRECTORY_KILLS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_kills;

/* `keys_max`: 1 to 2^24. Fails with INVALID or NO_MEMORY. */
YB_CHECKED enum yb_status yb_kills_create(uint32_t keys_max, uint64_t seed,
                                          struct yb_kills **kills_out);
void yb_kills_destroy(struct yb_kills **kills);

/* Remember that no grant of a key up to `grant` is to be heard of. NO_SPACE: there are keys_max,
 * and this one is not covered. */
YB_CHECKED enum yb_status yb_kills_add(struct yb_kills *kills, uint32_t tenant, struct yb_id hash,
                                       uint64_t grant);

bool yb_kills_cover(const struct yb_kills *kills, uint32_t tenant, struct yb_id hash,
                    uint64_t grant);
uint32_t yb_kills_count(const struct yb_kills *kills);
void yb_kills_clear(struct yb_kills *kills);

#endif /* YB_DIRECTORY_KILLS_H */
