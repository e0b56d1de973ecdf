/* SPDX-License-Identifier: Apache-2.0
 *
 * trims.h -- replicas that were taken out of their record while their nodes may still name them.
 *
 * A trim leaves the record first, then the node (RULES B4). Until the node has heard of it, the
 * node may say of the same block that it lies in one more tier, and what it said may be under way
 * longer than its confirmation, which takes another connection. Whoever believed that would count
 * on a copy that goes, or is gone, and trim the next one. So a trim is remembered:
 *
 *     note --> UNCONFIRMED, UNHEARD --confirm--> UNHEARD ---hear--> (forgotten)
 *                        `----------hear-------> UNCONFIRMED --confirm--^
 *
 * *Heard* is what the node says about it in its stream, behind all that it had said before.
 *
 * Invariants
 *   R1  A replica is remembered from its trim until its node has confirmed it and was heard, or has
 *       another stream. Meanwhile the slot may not name this grant, and is no target for a copy.
 *
 * Threads   One owner.
 * Memory    16 bytes for each place, allocated by create; at most half of them are taken.
 */
#ifndef YB_DIRECTORY_TRIMS_H
#define YB_DIRECTORY_TRIMS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_trims;

/* `trims_max`: a power of two. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_trims_create(uint32_t trims_max, struct yb_trims **trims_out);
void yb_trims_destroy(struct yb_trims **trims);

/* The replica of this grant on this slot is trimmed. NO_SPACE: too many are; it has to stay. */
YB_CHECKED enum yb_status yb_trims_note(struct yb_trims *trims, uint16_t slot, uint64_t grant);

void yb_trims_confirm(struct yb_trims *trims, uint16_t slot, uint64_t grant);
void yb_trims_hear(struct yb_trims *trims, uint16_t slot, uint64_t grant);

/* Nothing that the slot has said before will be heard any more. */
void yb_trims_forget(struct yb_trims *trims, uint16_t slot);

bool yb_trims_has(const struct yb_trims *trims, uint16_t slot, uint64_t grant);
uint32_t yb_trims_count(const struct yb_trims *trims);

#endif /* YB_DIRECTORY_TRIMS_H */
