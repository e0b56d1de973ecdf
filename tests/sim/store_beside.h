/* SPDX-License-Identifier: Apache-2.0
 *
 * store_beside.h -- machines that clients and nodes of a store share, and the way between them
 * there.
 *
 * A node's pool is lent through a transfer engine. The simulated ones know TCP alone; with `near`
 * it stands for the memory that processes of one machine share:
 *
 *     client i --> its engine --> engine of node i % nodes, on a host of its own --> the pool
 *
 * No fault of the network concerns it, and it goes on while the node stands still. What a client
 * reads there is slow when the client itself stands still, as with memory that it has mapped. The
 * two have one clock. So pins and their time, releases, what becomes of lent memory, and puts that
 * a node fetches are as in a real store (RULES A1, A12).
 *
 * Not so: borrowed pointers, which need the mapping itself, and proofs of who a process is. They
 * are tested with real processes.
 *
 * Threads   One.
 */
#ifndef YB_TESTS_STORE_BESIDE_H
#define YB_TESTS_STORE_BESIDE_H

#include "store_world.h"

/* A role of the world was added: give it what it needs for that. */
void store_beside_make(struct store_role *role);

/* The machine that a node or a client is on. */
struct yb_id store_machine(const struct store_role *role);

/* The engine of a life: make it; let it die with the life; let it take a turn after that, for
 * which no time passes elsewhere; destroy it. */
void store_engine_make(struct store_life *life);
void store_engine_turn(struct store_life *life);
void store_engine_crash(struct store_life *life, enum yb_sim_death how);
void store_engine_destroy(struct store_life *life);

/* Let a life's engine lend the memory of a put to the node beside it, until that has ended. */
void store_engine_lend(struct store_life *life, struct store_op *op);
void store_engine_take_back(struct store_life *life, struct store_op *op);

/* How fast a client reads from the machine that it is on, and is read. */
void store_near_link(struct store_role *client, const struct yb_sim_link *link);

/* Let the clock of a role's machine run fast, or jump. */
void store_drift(struct store_role *role, int32_t ppm);
void store_skip(struct store_role *role, uint64_t ns);

#endif /* YB_TESTS_STORE_BESIDE_H */
