/* SPDX-License-Identifier: Apache-2.0
 *
 * mover.h -- has instructions carried out: asks the directory where blocks are, and orders nodes.
 *
 *     order --its time has come--> pieces of up to 128 values:
 *                 where are they? (directory) --> instruction to the node --> its record
 *           --the last piece--> moved, with one outcome
 *
 * It speaks as an administrator, over a net of the caller's.
 *
 * Invariants
 *   M1  Each order that was taken is told of once, by `moved`: at the latest YB_CONDUCTOR_LATE_NS
 *       and a call's time after its deadline, whoever is dead meanwhile.
 *   M2  At most YB_CONDUCTOR_ORDERS_MAX are known; of their pieces at most 64 are under way, and at
 *       most 16 at a node, as a node takes 64 at a time from all conductors.
 *   M3  The more urgent class goes first, in a class the earlier deadline.
 *   M4  What nobody wants any more (`wanted`) is not begun.
 *
 * Threads   The net's loop; `moved` and `wanted` run on it.
 * Memory    Orders are consumed. The net is borrowed for its life.
 */
#ifndef YB_CONDUCTOR_MOVER_H
#define YB_CONDUCTOR_MOVER_H

#include "base/clock.h"
#include "base/hash.h"
#include "base/span.h"
#include "conductor/order.h"
#include "net/address.h"
#include "net/net.h"
#include "yuebing/status.h"

#define YB_CONDUCTOR_ORDERS_MAX 4096u
#define YB_CONDUCTOR_LATE_NS    (10 * YB_NS_PER_S) /* A move may be late by so much. */

struct yb_conductor_mover;

struct yb_conductor_mover_options {
    struct yb_net *net;
    struct yb_address directory;
    uint8_t hash_seed[YB_HASH_SEED_BYTES]; /* Of the cluster. */
    struct yb_span_ring *spans;            /* May be NULL. */
    /* Whether an order should still be begun. */
    bool (*wanted)(void *owner, uint64_t id);
    void (*moved)(void *owner, const struct yb_conductor_moved *moved);
    void *owner;
};

/* On OK the caller owns *mover_out. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status
yb_conductor_mover_create(const struct yb_conductor_mover_options *options,
                          struct yb_conductor_mover **mover_out);

/* Carry an order out; it is consumed. AGAIN: there are too many, and it was not. */
YB_CHECKED enum yb_status yb_conductor_mover_take(struct yb_conductor_mover *mover,
                                                  struct yb_conductor_order *order);

/* Count the orders that have not ended. */
struct yb_conductor_orders yb_conductor_mover_orders(const struct yb_conductor_mover *mover);

/* End all orders: CANCELLED. Calls end within the next turns of the loop. */
void yb_conductor_mover_stop(struct yb_conductor_mover *mover);

/* Whether it has stopped, and no call is under way. */
bool yb_conductor_mover_idle(const struct yb_conductor_mover *mover);

/* Idle. Sets *mover to NULL. */
void yb_conductor_mover_destroy(struct yb_conductor_mover **mover);

#endif /* YB_CONDUCTOR_MOVER_H */
