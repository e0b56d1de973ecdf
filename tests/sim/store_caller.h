/* SPDX-License-Identifier: Apache-2.0
 *
 * store_caller.h -- a process that speaks to a store by hand, in whatever role it likes.
 *
 * It sends what no client of ours would send, or sends it when it is late: an order of a directory
 * that is gone, a drop that was confirmed long ago. And it reads a node's pool from beside, as a
 * one-sided read does: whether the node runs or not, and whether what lies there is still lent.
 *
 * Threads   One.
 * Memory    The caller owns its process; the world outlives it.
 */
#ifndef YB_TESTS_STORE_CALLER_H
#define YB_TESTS_STORE_CALLER_H

#include "store_world.h"

#define STORE_CALLER_REPLY_BYTES 65536u

struct store_caller {
    struct store_world *world;
    uint64_t random;
    struct yb_sim_host *host;
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_replay *replay;
    struct yb_net *net;
    struct yb_peer *peer; /* Whom it asked last. */
    const struct store_role *role;
    struct yb_call call;
    bool done;
    uint8_t reply[STORE_CALLER_REPLY_BYTES];
};

/* Create a process in `role` (enum yb_wire_role). */
struct store_caller *store_caller_create(struct store_world *world, uint8_t role);
void store_caller_destroy(struct store_caller **caller);

/* Ask, and await the answer; its body is in `reply`. */
enum yb_status store_caller_ask(struct store_caller *caller, const struct store_role *to,
                                uint16_t type, const void *body, size_t body_bytes);

/* What a directory orders: with an epoch and an incarnation of the caller's choice. */
struct store_order {
    uint64_t epoch;
    uint64_t incarnation;
    struct yb_id hash;
    uint64_t grant; /* drop: of this block; flush: the new epoch. */
};
enum yb_status store_caller_drop(struct store_caller *caller, const struct store_role *to,
                                 const struct store_order *order);
/* `count_out`, which may be NULL: how many blocks went. */
enum yb_status store_caller_flush(struct store_caller *caller, const struct store_role *to,
                                  const struct store_order *order, uint64_t *count_out);

/* A value that is lent: where it lies in the pool, and until when, on the caller's clock. */
struct store_lent {
    uint64_t pin;
    const uint8_t *bytes;
    uint64_t size;
    uint64_t until_ns;
};
enum yb_status store_caller_pin(struct store_caller *caller, const struct store_role *node,
                                uint32_t key, uint32_t duration_ms, struct store_lent *lent_out);
enum yb_status store_caller_release(struct store_caller *caller, const struct store_role *node,
                                    uint64_t pin, bool *removed_out);
uint64_t store_caller_now(const struct store_caller *caller);

/* The hash of a key of the world. */
struct yb_id store_hash(struct store_world *world, uint32_t key);

#endif /* YB_TESTS_STORE_CALLER_H */
