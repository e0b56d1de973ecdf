/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_links.h -- TCP connections of other processes, cut at random.
 *
 * Nothing in those processes knows of it: who started a process may take a copy of its sockets
 * (pidfd_getfd(2)), and to shut the copy down is what a link that is cut is to both ends. What was
 * being written on it stays half written.
 *
 * Threads   One owner.
 */
#ifndef YB_CLI_DEMO_LINKS_H
#define YB_CLI_DEMO_LINKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "sim/random.h"

struct yb_demo_links {
    struct yb_sim_random random;
    uint64_t seen; /* Connections that were looked at, in all rounds together ... */
    uint64_t cut;  /* ... and those of them that were cut. */
};

/* Cut each connection of these processes with a probability of `share`, and one in any case if
 * there is one. 0: it was done; otherwise an errno: EPERM, ENOSYS: this may not, or cannot, be done
 * to other processes here. A process that has ended has no connections. */
int yb_demo_links_cut(struct yb_demo_links *links, const pid_t *pids, uint32_t count, double share);

#endif /* YB_CLI_DEMO_LINKS_H */
