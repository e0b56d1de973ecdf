/* SPDX-License-Identifier: Apache-2.0
 *
 * order.h -- one instruction that the conductor has carried out, on its way to a node.
 *
 *     the decision, or the heat --> order --> whoever carries it out --> how it ended
 *
 * Memory    Allocated by yb_conductor_order_create(), and passed on from owner to owner.
 */
#ifndef YB_CONDUCTOR_ORDER_H
#define YB_CONDUCTOR_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/types.h"

#define YB_CONDUCTOR_ORDER_NAME_BYTES 64u

struct yb_conductor_order {
    struct yb_conductor_order *next; /* Its owner's. */
    uint64_t id;                     /* Of the instruction. */
    struct yb_id trace;
    uint64_t parent;    /* The span of who asked. */
    uint8_t kind;       /* enum yb_sched_kind, up to MIGRATE */
    uint8_t reason;     /* enum yb_wire_instruction_reason */
    uint8_t work_class; /* enum yb_class */
    uint8_t parts;      /* Values that a block has; at least 1. */
    bool expected;      /* Some are being computed: what is not there yet may come. */
    char to[YB_CONDUCTOR_ORDER_NAME_BYTES]; /* The node. */
    char tenant[YB_CONDUCTOR_ORDER_NAME_BYTES];
    uint64_t decided_ns;
    uint64_t not_before_ns; /* 0: at once. */
    uint64_t deadline_ns;
    uint32_t count;
    struct yb_id keys[]; /* Of the blocks, as of yb_key_chain(). */
};

/* How an order ended. */
struct yb_conductor_moved {
    uint64_t id;
    uint8_t outcome;     /* enum yb_wire_conductor_outcome; not open */
    uint8_t source_tier; /* enum yb_sched_tier: where most of it came from. */
    uint8_t kind;        /* As of the order. */
    uint8_t reason;
    uint64_t decided_ns;
    uint64_t started_ns; /* 0: it was not begun. */
    uint64_t finished_ns;
    uint64_t deadline_ns;
    uint64_t bytes;
    char to[YB_CONDUCTOR_ORDER_NAME_BYTES];
};

/* Orders that have not ended, as of whoever carries them out; the others wait: for their time, for
 * room, or for blocks that are nowhere yet. */
struct yb_conductor_orders {
    uint32_t under_way; /* Nodes move blocks. */
    uint32_t watched;   /* All that came is there; who reads it is open. */
};

/* Return how an order that was not begun ended: CANCELLED. */
struct yb_conductor_moved yb_conductor_order_cancelled(const struct yb_conductor_order *order);

/* Return a zeroed order with room for `count` keys; NULL: no memory. */
struct yb_conductor_order *yb_conductor_order_create(uint32_t count);

#endif /* YB_CONDUCTOR_ORDER_H */
