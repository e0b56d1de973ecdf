/* SPDX-License-Identifier: Apache-2.0
 *
 * ghost.h -- the hashes of the last blocks that left, oldest forgotten first.
 *
 * A ring of 32-bit hashes in the order of leaving, and an index of ring positions: open
 * addressing, linear probing, half full at most. Two blocks with one hash count as one; what
 * follows is a block taken for another of 4 billion, which costs a little memory.
 *
 * Threads   One owner; no lock.
 * Memory    All is allocated by init: 12 to 20 bytes for each hash that can be remembered.
 */
#ifndef YB_POLICY_GHOST_H
#define YB_POLICY_GHOST_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_policy_ghost {
    uint32_t *ring;  /* Hashes; 0: a hole, as the block came back. */
    uint32_t *index; /* Ring position + 1; 0: free. */
    uint32_t capacity;
    uint32_t index_mask;
    uint32_t index_shift;
    uint32_t next; /* The ring position to write next, which holds the oldest. */
    uint32_t count;
};

/* Make an empty memory of `capacity` hashes; 0: it remembers nothing. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_policy_ghost_init(struct yb_policy_ghost *ghost, uint32_t capacity);
void yb_policy_ghost_fini(struct yb_policy_ghost *ghost);

/* Remember a hash as the newest; the oldest is forgotten if there is no room. */
void yb_policy_ghost_add(struct yb_policy_ghost *ghost, uint32_t hash);

/* Forget a hash, and return whether it was remembered. */
bool yb_policy_ghost_take(struct yb_policy_ghost *ghost, uint32_t hash);

#endif /* YB_POLICY_GHOST_H */
