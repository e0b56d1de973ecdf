/* SPDX-License-Identifier: Apache-2.0
 *
 * An open table with steps of one; what is taken out closes up. Grants count up, so those of one
 * value lie beside each other.
 */
#include "directory/trims.h"

#include <stdlib.h>

#include "base/check.h"

#define SLOTS_APART 0x9e3779b1u /* Spreads the copies of one block over the table. */
#define UNCONFIRMED 1u
#define UNHEARD     2u

struct place {
    uint64_t grant; /* 0: free. */
    uint16_t slot;
    uint8_t awaits;
};
_Static_assert(sizeof(struct place) == 16, "as the header promises");

struct yb_trims {
    uint32_t mask;
    uint32_t count;
    struct place places[];
};

enum yb_status
yb_trims_create(uint32_t trims_max, struct yb_trims **trims_out)
{
    struct yb_trims *trims = calloc(1, sizeof(*trims) + 2 * trims_max * sizeof(trims->places[0]));

    YB_ASSERT(trims_max > 0 && (trims_max & (trims_max - 1)) == 0);
    if (trims == NULL) {
        return YB_NO_MEMORY;
    }
    trims->mask = 2 * trims_max - 1;
    *trims_out = trims;
    return YB_OK;
}

void
yb_trims_destroy(struct yb_trims **trims)
{
    free(*trims);
    *trims = NULL;
}

static uint32_t
home_of(const struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    return ((uint32_t)grant + slot * SLOTS_APART) & trims->mask;
}

/* Return where a replica is, or the free place where it would be. */
static uint32_t
place_of(const struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    uint32_t at = home_of(trims, slot, grant);

    while (trims->places[at].grant != 0 &&
           (trims->places[at].grant != grant || trims->places[at].slot != slot)) {
        at = (at + 1) & trims->mask;
    }
    return at;
}

enum yb_status
yb_trims_note(struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    uint32_t at = place_of(trims, slot, grant);

    YB_ASSERT(grant != 0);
    if (trims->places[at].grant == 0 && trims->count > trims->mask / 2) {
        return YB_NO_SPACE;
    }
    trims->count += trims->places[at].grant == 0;
    trims->places[at] = (struct place){grant, slot, UNCONFIRMED | UNHEARD};
    return YB_OK;
}

/* Free a place, and let those that had to go past it move up. */
static void
clear(struct yb_trims *trims, uint32_t hole)
{
    uint32_t at = hole;

    trims->count--;
    for (;;) {
        const struct place *place = &trims->places[at = (at + 1) & trims->mask];
        uint32_t from_home = at - home_of(trims, place->slot, place->grant);

        if (place->grant == 0) {
            break;
        }
        if ((from_home & trims->mask) >= ((at - hole) & trims->mask)) {
            trims->places[hole] = *place;
            hole = at;
        }
    }
    trims->places[hole].grant = 0;
}

static void
came(struct yb_trims *trims, uint16_t slot, uint64_t grant, uint8_t what)
{
    uint32_t at = place_of(trims, slot, grant);
    struct place *place = &trims->places[at];

    place->awaits &= (uint8_t)~what;
    if (place->grant != 0 && place->awaits == 0) {
        clear(trims, at);
    }
}

void
yb_trims_confirm(struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    came(trims, slot, grant, UNCONFIRMED);
}

void
yb_trims_hear(struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    came(trims, slot, grant, UNHEARD);
}

void
yb_trims_forget(struct yb_trims *trims, uint16_t slot)
{
    for (uint32_t i = 0; trims->count > 0 && i <= trims->mask;) {
        if (trims->places[i].grant != 0 && trims->places[i].slot == slot) {
            clear(trims, i); /* Another one may have come here. */
        } else {
            i++;
        }
    }
}

bool
yb_trims_has(const struct yb_trims *trims, uint16_t slot, uint64_t grant)
{
    return trims->count > 0 && trims->places[place_of(trims, slot, grant)].grant != 0;
}

uint32_t
yb_trims_count(const struct yb_trims *trims)
{
    return trims->count;
}
