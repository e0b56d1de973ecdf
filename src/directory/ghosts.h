/* SPDX-License-Identifier: Apache-2.0
 *
 * ghosts.h -- the last words on blocks that are gone or were declined, for people who ask why.
 *
 * A table of fixed size: the hash itself says in which few places its ghost may be; where all are
 * taken the oldest goes. So it is right about what it knows, and may have forgotten.
 *
 * Threads   One owner.
 * Memory    40 bytes for each ghost, allocated by create.
 */
#ifndef YB_DIRECTORY_GHOSTS_H
#define YB_DIRECTORY_GHOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

struct yb_ghosts;

struct yb_ghost {
    struct yb_id hash;
    union {
        uint64_t grant;
        struct {
            uint32_t load_us;
            uint32_t compute_us;
        } declined; /* In the table of what reuse gates declined. */
    };
    uint64_t at_ns;
    uint16_t tenant;
    uint16_t slot; /* Where it was last; 0: not known. */
    uint16_t size_code;
    uint8_t tier;
    uint8_t fate; /* enum yb_wire_fate; of what was declined, enum yb_wire_decline. */
};
_Static_assert(sizeof(struct yb_ghost) == 40, "as the header promises");

/* `ghosts_max`: a power of two. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_ghosts_create(uint32_t ghosts_max, struct yb_ghosts **ghosts_out);
void yb_ghosts_destroy(struct yb_ghosts **ghosts);

void yb_ghosts_add(struct yb_ghosts *ghosts, const struct yb_ghost *ghost);
bool yb_ghosts_find(const struct yb_ghosts *ghosts, uint16_t tenant, struct yb_id hash,
                    struct yb_ghost *ghost_out);

#endif /* YB_DIRECTORY_GHOSTS_H */
