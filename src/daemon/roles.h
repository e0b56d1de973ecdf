/* SPDX-License-Identifier: Apache-2.0
 *
 * roles.h -- the directory and the nodes of this process: wiring only.
 *
 * Each role has a worker of its own (a thread, a loop, a net), a port of its own, and shares
 * nothing with the others but the process's log, statistics and credentials. A node's heartbeats
 * have one more worker, so that data cannot hold them up.
 *
 *     start: directory --> listens --> its address --> nodes --> listen --> register
 *     stop:  ports close, running requests get the drain time, then everything ends: the nodes
 *            first, since what they do ends at the directory
 *
 * Invariants
 *   W1  What is published was bound first and read back; a wildcard is bound but never published.
 *   W3  No worker waits for another or for the thread that stops; that one waits for workers,
 *       which answer from their loops.
 *
 * Threads   One thread starts and stops them. Asking is for every thread: each role writes down
 *           how it stands, at every pulse, into atomics.
 * Memory    The process is borrowed for the roles' life; the strings of the options too.
 */
#ifndef YB_DAEMON_ROLES_H
#define YB_DAEMON_ROLES_H

#include "daemon/process.h"
#include "net/address.h"
#include "net/role.h"
#include "node/node.h"
#include "yuebing/status.h"

#define YB_ROLES_NODES_MAX 64u

struct yb_roles;

struct yb_node_tier;

struct yb_roles_options {
    bool directory;               /* Run one here ... */
    const char *directory_listen; /* ... on this address; or, without, find it there. */
    uint32_t nodes;               /* How many; 0: none. */
    const char *node_listen;      /* The first node's address; others take any free port of it. */
    const struct yb_node_tier *tiers; /* Below its memory, instead of what the configuration names;
                                       * borrowed for the roles' life. NULL: as that says. */
    uint32_t tier_count;
    bool conductor; /* Run one here, too: conductor_host.h, on the admin port. */
};

/* Start what the options ask for, as the process's configuration says. On OK *roles_out is the
 * caller's. Otherwise nothing is left, and why_out is a sentence with the remedy. */
YB_CHECKED enum yb_status yb_roles_start(struct yb_process *process,
                                         const struct yb_roles_options *options,
                                         struct yb_roles **roles_out,
                                         char why_out[YB_PROCESS_WHY_BYTES]);

/* Wait until every node is registered, at most `timeout_ns`. Returns whether they are; they go on
 * trying in any case. */
bool yb_roles_await_registered(struct yb_roles *roles, uint64_t timeout_ns);

/* Stop all and set *roles to NULL. Requests get net.drain_ms; the rest takes a moment. */
void yb_roles_stop(struct yb_roles **roles);

/* Return where the directory is that the nodes follow: here or elsewhere. */
struct yb_address yb_roles_directory_address(const struct yb_roles *roles);

/* One role of this process; the directory, if there is one, is the first. Any thread. */
#define YB_ROLES_NAME_BYTES 64u

struct yb_role_info {
    bool directory;
    const char *name;          /* Borrowed for the roles' life. */
    struct yb_address address; /* As it was bound. */
    struct yb_id identity;
    const char *io; /* How its sockets are driven. Static. */
    /* As of its last turn that was looked at: at most YB_ROLES_PULSE_NS before `turned_ns`. */
    uint64_t turned_ns;
    bool registered;         /* A node. */
    uint64_t lease_until_ns; /* A node: until when it may serve; 0: not now. */
    uint8_t state;           /* A node: enum yb_wire_slot_state, as the directory told. */
    bool rebuilding;         /* A directory. */
    uint32_t nodes;          /* A directory: its members. */
};

#define YB_ROLES_PULSE_NS YB_ROLE_PULSE_NS

uint32_t yb_roles_count(const struct yb_roles *roles);
void yb_roles_info(const struct yb_roles *roles, uint32_t index, struct yb_role_info *info_out);

/* How the tiers of a node below memory stand, the fastest first. Returns how many there are: of a
 * directory none. */
uint32_t yb_roles_tiers(const struct yb_roles *roles, uint32_t index,
                        struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX]);

/* Return what the process is, in a word: "serve", "directory", "node"; "conductor": it has none of
 * these. name_out is its first node's, or "". */
const char *yb_roles_word(const struct yb_roles *roles, char name_out[YB_ROLES_NAME_BYTES]);

#endif /* YB_DAEMON_ROLES_H */
