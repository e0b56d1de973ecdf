/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h -- cut a batch into slices: which bytes move together. Pure.
 *
 * A cursor walks over the items once. Each step takes items of one direction and one
 * kind of local memory, from where it stands, until the limit of bytes or fragments
 * is reached: a large item gives many slices, many small ones share a slice.
 *
 * Invariants
 *   P1  Over all steps every byte of every item is in exactly one fragment, in order.
 *   P2  A slice has at least one fragment, and no more bytes and fragments than allowed.
 *   P3  Items that cannot be moved (see yb_plan_check) and empty ones are in none.
 *
 * Threads   Any; the cursor belongs to the caller.
 */
#ifndef YB_TRANSFER_PLAN_H
#define YB_TRANSFER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/memory_type.h"
#include "transfer/slice.h"
#include "yuebing/transfer.h"

struct yb_plan_limits {
    uint64_t bytes_max;
    uint32_t fragments_max; /* At most YB_SLICE_FRAGMENTS. */
};

/* An item with what the engine found out about it. */
struct yb_plan_item {
    struct yb_transfer_item item;
    struct yb_memory_place place; /* Of its local memory. */
    bool skip;                    /* It has ended already. */
};

struct yb_plan_cursor {
    uint32_t item;
    uint64_t done; /* Bytes of that item that are in slices already. */
};

/* Judge an item by itself: OK, INVALID (op; a range that wraps; bytes without an address) or
 * TOO_LARGE (above 2^48). */
enum yb_status yb_plan_check(const struct yb_transfer_item *item);

/* Fill slice->op, place, count, bytes and fragments with the next step. Returns false, with the
 * slice untouched, when nothing is left. */
bool yb_plan_next(const struct yb_plan_item *items, uint32_t count,
                  const struct yb_plan_limits *limits, struct yb_plan_cursor *cursor,
                  struct yb_slice *slice);

#endif /* YB_TRANSFER_PLAN_H */
