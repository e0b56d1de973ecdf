/* SPDX-License-Identifier: Apache-2.0
 *
 * told.h -- what nodes were told to hold, lately.
 *
 * Engines ask for the blocks of one prompt again and again while its request waits, and each answer
 * promises to hold what is there. A node that was told of a hold that lasts as long as that need
 * not be told again: who asks this first spares the message.
 *
 * Invariants
 *   T1  A node is only taken to be told if this very life of it was told of this grant, and of a
 *       hold that lasts as long as what is promised now. A grant names one version of one block.
 *   T2  It forgets at will: a table of fixed size, where a newer one takes an older one's place.
 *       Whoever is forgotten is told twice, which does no harm.
 *
 * Threads   One owner.
 * Memory    24 bytes for each, allocated by create.
 * Time      Passed in, on the owner's clock.
 */
#ifndef YB_DIRECTORY_TOLD_H
#define YB_DIRECTORY_TOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_told;

/* `told_max`: a power of two. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_told_create(uint32_t told_max, struct yb_told **told_out);
void yb_told_destroy(struct yb_told **told);

/* Whether this life of a node was told to hold this grant until `until_ms` or longer (T1).
 * `life` is a number that its owner never gives to another life of any node; not 0. */
bool yb_told_lasts(const struct yb_told *told, uint32_t life, uint64_t grant, uint64_t until_ms);

/* It is being told now. */
void yb_told_note(struct yb_told *told, uint32_t life, uint64_t grant, uint64_t until_ms);

#endif /* YB_DIRECTORY_TOLD_H */
