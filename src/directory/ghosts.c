/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of four, the oldest of which goes.
 */
#include "directory/ghosts.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define WAYS 4u

struct yb_ghosts {
    uint32_t sets;
    struct yb_ghost *places; /* [sets * WAYS]; at_ns 0: empty. */
};

enum yb_status
yb_ghosts_create(uint32_t ghosts_max, struct yb_ghosts **ghosts_out)
{
    struct yb_ghosts *ghosts = calloc(1, sizeof(*ghosts));

    YB_ASSERT(ghosts_max >= WAYS && (ghosts_max & (ghosts_max - 1)) == 0);
    if (ghosts == NULL) {
        return YB_NO_MEMORY;
    }
    ghosts->sets = ghosts_max / WAYS;
    ghosts->places = calloc(ghosts_max, sizeof(*ghosts->places));
    if (ghosts->places == NULL) {
        free(ghosts);
        return YB_NO_MEMORY;
    }
    *ghosts_out = ghosts;
    return YB_OK;
}

void
yb_ghosts_destroy(struct yb_ghosts **ghosts)
{
    free((*ghosts)->places);
    free(*ghosts);
    *ghosts = NULL;
}

/* The hash is a keyed one already: some of its bits will do. */
static struct yb_ghost *
set_of(const struct yb_ghosts *ghosts, struct yb_id hash)
{
    uint32_t bits;

    memcpy(&bits, hash.bytes, sizeof(bits));
    return &ghosts->places[(size_t)(bits & (ghosts->sets - 1)) * WAYS];
}

static bool
is_of(const struct yb_ghost *ghost, uint16_t tenant, struct yb_id hash)
{
    return ghost->at_ns != 0 && ghost->tenant == tenant && yb_id_equal(ghost->hash, hash);
}

void
yb_ghosts_add(struct yb_ghosts *ghosts, const struct yb_ghost *ghost)
{
    struct yb_ghost *set = set_of(ghosts, ghost->hash);
    struct yb_ghost *chosen = &set[0];

    for (uint32_t i = 0; i < WAYS; i++) {
        if (is_of(&set[i], ghost->tenant, ghost->hash)) {
            chosen = &set[i];
            break;
        }
        chosen = set[i].at_ns < chosen->at_ns ? &set[i] : chosen;
    }
    *chosen = *ghost;
}

bool
yb_ghosts_find(const struct yb_ghosts *ghosts, uint16_t tenant, struct yb_id hash,
               struct yb_ghost *ghost_out)
{
    const struct yb_ghost *set = set_of(ghosts, hash);

    for (uint32_t i = 0; i < WAYS; i++) {
        if (is_of(&set[i], tenant, hash)) {
            *ghost_out = set[i];
            return true;
        }
    }
    return false;
}
