/* SPDX-License-Identifier: Apache-2.0
 *
 * Grants count up, so those of one prompt lie beside each other.
 */
#include "directory/told.h"

#include <stdlib.h>

#include "base/check.h"

#define LIVES_APART 0x9e3779b1u /* Spreads the copies of one block over the table. */

struct place {
    uint64_t grant;
    uint64_t until_ms;
    uint32_t life; /* 0: empty. */
};
_Static_assert(sizeof(struct place) == 24, "as the header promises");

struct yb_told {
    uint32_t mask;
    struct place places[];
};

enum yb_status
yb_told_create(uint32_t told_max, struct yb_told **told_out)
{
    struct yb_told *told = calloc(1, sizeof(*told) + told_max * sizeof(told->places[0]));

    YB_ASSERT(told_max > 0 && (told_max & (told_max - 1)) == 0);
    if (told == NULL) {
        return YB_NO_MEMORY;
    }
    told->mask = told_max - 1;
    *told_out = told;
    return YB_OK;
}

void
yb_told_destroy(struct yb_told **told)
{
    free(*told);
    *told = NULL;
}

static uint32_t
place_of(const struct yb_told *told, uint32_t life, uint64_t grant)
{
    return ((uint32_t)grant + life * LIVES_APART) & told->mask;
}

bool
yb_told_lasts(const struct yb_told *told, uint32_t life, uint64_t grant, uint64_t until_ms)
{
    const struct place *place = &told->places[place_of(told, life, grant)];

    return place->grant == grant && place->life == life && place->until_ms >= until_ms;
}

void
yb_told_note(struct yb_told *told, uint32_t life, uint64_t grant, uint64_t until_ms)
{
    told->places[place_of(told, life, grant)] = (struct place){grant, until_ms, life};
}
