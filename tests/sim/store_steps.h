/* SPDX-License-Identifier: Apache-2.0
 *
 * store_steps.h -- an interleaving as a table: who does what, in which order, and what comes of it.
 *
 *     store_play(2, 1, (const struct store_step[]){
 *         {STEP_PUT, .key = 1, .value = 77, .node = 1},
 *         {STEP_PART, .node = 1},
 *         {STEP_REMOVE, .key = 1, .as = 1},
 *         {STEP_GET, .key = 1, .value = 77},
 *         {STEP_OPEN, .as = 1},
 *         {STEP_STOP}});
 *
 * A step of a client is awaited, and must end with `wanted` (0 is OK), unless it has a number `as`:
 * then it is left to itself until STEP_ENDED. What store_judge.h checks holds all the time.
 *
 * Threads   One.
 * Failure   The step that failed is printed, then what store_failed() prints; then abort.
 */
#ifndef YB_TESTS_STORE_STEPS_H
#define YB_TESTS_STORE_STEPS_H

#include "store_world.h"

#define STORE_STEPS_LEASE_MS 400u
#define STORE_STEPS_LEFT     16u /* Numbers of operations that are left to themselves, from 1. */

enum store_step_kind {
    STEP_STOP,
    /* ---- a client: client, key, value, node (preferred, from 1), deadline_ms, as, wanted; of a
     * put also replicas, of an exist also hold_ms ---- */
    STEP_PUT,
    STEP_REPLACE,
    STEP_GET, /* After OK it has read `value`. */
    STEP_EXIST,
    STEP_REMOVE,
    STEP_FLUSH,
    /* ---- of operations left to themselves ---- */
    STEP_OPEN,  /* It has not ended. */
    STEP_ENDED, /* Await its end, at most `ms` (0: a minute). */
    STEP_READ,  /* Until it ends `client` reads `value` of `key` or nothing, and often the value. */
    /* ---- what happens to roles: node, from 1; 0: the directory ---- */
    STEP_CRASH, /* `silent`: with its machine. */
    STEP_START,
    STEP_STALL,
    STEP_RESUME,
    STEP_FORGET, /* The cluster file is lost. */
    STEP_DRAIN,
    STEP_DISK, /* The node's first medium stands still (`value` 1), or goes on. */
    /* ---- the network ---- */
    STEP_PART, /* Nothing passes between the directory and the node. */
    STEP_MUTE, /* Nothing passes from the directory to the node. */
    STEP_HEAR, /* It passes again. */
    STEP_DEAF, /* Nothing passes from the node to the client. */
    STEP_LONE, /* Nothing passes between the directory and the client. */
    STEP_CUT,  /* Connections between the directory and the node are reset. */
    STEP_SNAP, /* Connections between the client and the node are reset: there are some. */
    STEP_SHUT, /* The node's host takes no new connections (`value` 1), or does again. */
    STEP_HEAL,
    /* ---- time and state ---- */
    STEP_WAIT,  /* ms */
    STEP_READY, /* Until everybody is in. */
    STEP_GONE,  /* `client` does not get `key`, whatever the reason. */
    STEP_HOLDS, /* The node has `value` blocks. */
};

struct store_step {
    enum store_step_kind kind;
    uint32_t client;
    uint32_t node;
    uint32_t key;
    uint64_t value;
    uint32_t as;
    uint32_t ms;
    uint8_t replicas;     /* 0: one. */
    uint32_t deadline_ms; /* 0: 5000. */
    uint32_t hold_ms;
    bool silent;
    enum yb_status wanted;
};

/* Make a world, wait until it is ready, and do the steps. */
struct store_world *store_steps_begin(const struct store_options *options);
void store_steps_do(struct store_world *world, const struct store_step *steps);

/* Judge the histories, and that nothing is left; destroy. */
void store_steps_end(struct store_world *world);

void store_play(uint32_t nodes, uint32_t clients, const struct store_step *steps);

#endif /* YB_TESTS_STORE_STEPS_H */
