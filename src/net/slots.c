/* SPDX-License-Identifier: Apache-2.0 */
#include "net/slots.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

#define ROOM_FIRST 8u

enum yb_status
yb_slots_take(struct yb_slots *slots, uint32_t *slot_out)
{
    if (slots->free_count > 0) {
        *slot_out = slots->free[--slots->free_count];
        return YB_OK;
    }
    if (slots->made == YB_SLOTS_MAX) {
        return YB_AGAIN;
    }
    if (slots->made == slots->room) { /* T3 */
        uint32_t room = slots->room == 0 ? ROOM_FIRST : slots->room * 2;
        uint32_t *larger = realloc(slots->free, room * sizeof(*larger));

        if (larger == NULL) {
            return YB_NO_MEMORY;
        }
        slots->free = larger;
        slots->room = room;
    }
    *slot_out = slots->made++;
    return YB_OK;
}

void
yb_slots_give(struct yb_slots *slots, uint32_t slot)
{
    YB_ASSERT(slot < slots->made && slots->free_count < slots->made);
    slots->free[slots->free_count++] = slot;
}

uint32_t
yb_slots_taken(const struct yb_slots *slots)
{
    return slots->made - slots->free_count;
}

void
yb_slots_fini(struct yb_slots *slots)
{
    YB_ASSERT(yb_slots_taken(slots) == 0);
    free(slots->free);
    memset(slots, 0, sizeof(*slots));
}
