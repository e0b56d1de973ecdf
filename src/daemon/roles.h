/* SPDX-License-Identifier: Apache-2.0
 *
 * roles.h -- the directory and the nodes of this process: wiring only.
 *
 * Each role has a worker of its own (a thread, a loop, a net), a port of its own, and shares nothing with
 * the others but the process's log, statistics and credentials. A node's heartbeats have one more
 * worker, so that data cannot hold them up.
 *
 *     start: directory --> listens --> its address --> nodes --> listen --> register
 *     stop:  ports close, running requests get the drain time, then everything ends, nodes first
 *
 * Threads   One thread starts and stops them.
 * Memory    The process is borrowed for the roles' life; the strings of the options too.
 */
#ifndef YB_DAEMON_ROLES_H
#define YB_DAEMON_ROLES_H

#include "daemon/process.h"
#include "net/address.h"
#include "yuebing/status.h"

#define YB_ROLES_NODES_MAX 64u

struct yb_roles;

struct yb_roles_options {
    bool directory;               /* Run one here ... */
    const char *directory_listen; /* ... on this address; or, without, find it there. */
    uint32_t nodes;               /* How many; 0: none. */
    const char *node_listen;      /* The first node's address; others take any free port of it. */
};

/* Start what the options ask for, as the process's configuration says. On OK *roles_out is the
 * caller's. Otherwise nothing is left, and why_out is a sentence with the remedy. */
YB_CHECKED enum yb_status yb_roles_start(struct yb_process *process,
                                         const struct yb_roles_options *options,
                                         struct yb_roles **roles_out,
                                         char why_out[YB_PROCESS_WHY_BYTES]);

/* Stop all and set *roles to NULL. Takes at most net.drain_ms and a few seconds. */
void yb_roles_stop(struct yb_roles **roles);

/* Where the directory and the nodes listen. */
struct yb_address yb_roles_directory_address(const struct yb_roles *roles);
struct yb_address yb_roles_node_address(const struct yb_roles *roles, uint32_t index);

#endif /* YB_DAEMON_ROLES_H */
