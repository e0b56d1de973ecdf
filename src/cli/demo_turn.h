/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_turn.h -- who was told that there is no room asks again before whoever came later.
 *
 * A conductor that has no room for a request says so at once, and keeps no queue: if all asked
 * again whenever they liked, those that need little would take each bit of room that becomes free,
 * and one that needs much would wait for ever.
 *
 *     await --no older one waits for room--> ask --room--> end
 *       ^                                     |
 *       +------------- a pause <-- refused ---+
 *
 * Invariants
 *   W1  While a request waits for room, no younger one asks; of those, only one that asked before
 *       it was refused may still be at it.
 *   W2  The oldest that waits is never held up by another.
 *
 * Threads   Any.
 * Memory    A flag for each request, the caller's count of them, until fini.
 */
#ifndef YB_CLI_DEMO_TURN_H
#define YB_CLI_DEMO_TURN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/lock.h"
#include "yuebing/status.h"

struct yb_demo_turns {
    struct yb_lock lock; /* Rank ROUTER; all below. */
    pthread_cond_t changed;
    bool *waits; /* By number, the oldest first: it was refused. */
    uint32_t count;
    uint32_t first; /* The oldest that waits; `count`: nobody does. */
};

/* For requests 0 .. count - 1, the oldest first. Fails with NO_MEMORY; fini all the same. */
YB_CHECKED enum yb_status yb_demo_turns_init(struct yb_demo_turns *turns, uint32_t count);
void yb_demo_turns_fini(struct yb_demo_turns *turns);

/* Wait until it may ask. False: not within so long. */
bool yb_demo_turn_await(struct yb_demo_turns *turns, uint32_t number, uint64_t timeout_ns);

/* It was refused for want of room; and it has room, or waits no more. */
void yb_demo_turn_refused(struct yb_demo_turns *turns, uint32_t number);
void yb_demo_turn_end(struct yb_demo_turns *turns, uint32_t number);

#endif /* YB_CLI_DEMO_TURN_H */
