/* SPDX-License-Identifier: Apache-2.0 */
#include "node/move.h"

#include <string.h>

bool
yb_move_down(const struct yb_move_facts *facts)
{
    if (facts->there || !facts->working || (facts->object && facts->versioned)) {
        return false;
    }
    switch (facts->when) {
    case YB_MOVE_GRANTED: return facts->policy == YB_MOVE_THROUGH && !facts->loaded;
    case YB_MOVE_ACCESSED:
        return facts->policy == YB_MOVE_SELECTIVE && facts->accesses >= facts->accesses_min;
    case YB_MOVE_WAITED: return true;
    case YB_MOVE_EVICTING: return facts->policy == YB_MOVE_THROUGH || !facts->faster;
    case YB_MOVE_LEAVING: return !facts->faster;
    }
    return false;
}

bool
yb_move_fits(const struct yb_move_room *room, uint64_t bytes)
{
    if (room->storing_bytes + bytes <= room->storing_max) {
        return true;
    }
    return room->storing_bytes == 0 && bytes <= room->pool_bytes / 2;
}

bool
yb_move_policy_named(const char *name, enum yb_move_policy *policy_out)
{
    static const char *const names[] = {
        [YB_MOVE_BACK] = "back", [YB_MOVE_THROUGH] = "through", [YB_MOVE_SELECTIVE] = "selective"};

    for (uint32_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i], name) == 0) {
            *policy_out = (enum yb_move_policy)i;
            return true;
        }
    }
    return false;
}
