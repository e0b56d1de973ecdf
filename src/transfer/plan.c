/* SPDX-License-Identifier: Apache-2.0 */
#include "transfer/plan.h"

#include "base/check.h"

#define ITEM_BYTES_MAX (1ull << 48)

enum yb_status
yb_plan_check(const struct yb_transfer_item *item)
{
    if (item->op != YB_TRANSFER_READ && item->op != YB_TRANSFER_WRITE) {
        return YB_INVALID;
    }
    if (item->length > ITEM_BYTES_MAX) {
        return YB_TOO_LARGE;
    }
    if (item->length > 0 && item->local == NULL) {
        return YB_INVALID;
    }
    if (item->length > UINTPTR_MAX - (uintptr_t)item->local ||
        item->length > UINT64_MAX - item->remote_offset) {
        return YB_INVALID;
    }
    return YB_OK;
}

/* Move the cursor to the next byte that has to move. Returns false at the end. */
static bool
settle(const struct yb_plan_item *items, uint32_t count, struct yb_plan_cursor *cursor)
{
    while (cursor->item < count) {
        const struct yb_plan_item *plan = &items[cursor->item];

        if (!plan->skip && cursor->done < plan->item.length) {
            return true;
        }
        cursor->item++;
        cursor->done = 0;
    }
    return false;
}

bool
yb_plan_next(const struct yb_plan_item *items, uint32_t count, const struct yb_plan_limits *limits,
             struct yb_plan_cursor *cursor, struct yb_slice *slice)
{
    YB_ASSERT(limits->bytes_max > 0 && limits->fragments_max > 0 &&
              limits->fragments_max <= YB_SLICE_FRAGMENTS);
    if (!settle(items, count, cursor)) {
        return false;
    }
    slice->op = items[cursor->item].item.op;
    slice->place = items[cursor->item].place;
    slice->count = 0;
    slice->bytes = 0;
    while (slice->bytes < limits->bytes_max && slice->count < limits->fragments_max &&
           settle(items, count, cursor)) {
        const struct yb_plan_item *plan = &items[cursor->item];
        uint64_t left = plan->item.length - cursor->done;
        uint64_t room = limits->bytes_max - slice->bytes;
        struct yb_fragment fragment = {
            .item = cursor->item,
            .local = (uint8_t *)plan->item.local + cursor->done,
            .length = left < room ? left : room,
            .region = plan->item.remote,
            .remote_offset = plan->item.remote_offset + cursor->done,
        };

        if (plan->item.op != slice->op || plan->place.kind != slice->place.kind ||
            plan->place.index != slice->place.index) {
            break;
        }
        slice->fragments[slice->count++] = fragment;
        slice->bytes += fragment.length;
        cursor->done += fragment.length;
    }
    return true;
}
