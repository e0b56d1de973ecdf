/* SPDX-License-Identifier: Apache-2.0
 *
 * move.h -- which blocks go down to which tier, and when. Pure: facts in, a decision out.
 *
 *     through     down as soon as it is granted
 *     selective   down with its n-th access
 *     back        down when memory wants its place
 *
 * `through` and `selective` write to every tier. What is demoted for want of room goes one tier
 * down, and from there, when that one wants its place, to the next.
 *
 * Whatever the policy, a block that memory wants to be rid of is demoted rather than lost, if a
 * tier below takes it now. Nothing waits for that (RULES C2): of the blocks that may go, those that
 * are below already go first; one that is nowhere below is kept for as long as its store runs, if
 * there is room for one more, and dropped and counted if not.
 *
 * Versioned blocks never lie in an object store: what replaces one would have to be there before it
 * is acknowledged, or an older version could come back from there (RULES A15).
 */
#ifndef YB_NODE_MOVE_H
#define YB_NODE_MOVE_H

#include <stdbool.h>
#include <stdint.h>

enum yb_move_policy { YB_MOVE_BACK, YB_MOVE_THROUGH, YB_MOVE_SELECTIVE };

enum yb_move_when {
    YB_MOVE_GRANTED,  /* It has just become readable, */
    YB_MOVE_ACCESSED, /* was read, */
    YB_MOVE_WAITED,   /* One of these was so before, and now it is its turn. */
    YB_MOVE_EVICTING, /* It is to make room in memory, */
    YB_MOVE_LEAVING,  /* or in a tier above this one. */
};

struct yb_move_facts {
    enum yb_move_when when;
    enum yb_move_policy policy;
    uint32_t accesses;     /* Of the block, with this one. */
    uint32_t accesses_min; /* The `n` of selective. */
    bool there;            /* The tier has it, or is getting it. */
    bool working;          /* The tier takes blocks now. */
    bool faster;           /* A tier above this one, below memory, has it or takes it now. */
    bool object;           /* It is an object store. */
    bool versioned;        /* The block was written by a replacement. */
    bool loaded;           /* It came up from another tier below: what it costs is known there. */
};

/* Return whether the block is to be stored in the tier now. */
bool yb_move_down(const struct yb_move_facts *facts);

struct yb_move_room {
    uint64_t storing_bytes; /* Kept in memory for stores under way ... */
    uint64_t storing_max;   /* ... at most. One block may always be under way ... */
    uint64_t pool_bytes;    /* ... if half of the pool is left. */
};

/* Return whether one more block may be kept in memory until it is stored. */
bool yb_move_fits(const struct yb_move_room *room, uint64_t bytes);

/* Return the policy of that name, "through", "selective" or "back"; false: there is none. */
bool yb_move_policy_named(const char *name, enum yb_move_policy *policy_out);

#endif /* YB_NODE_MOVE_H */
