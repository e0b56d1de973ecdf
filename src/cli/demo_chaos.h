/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_chaos.h -- what befalls a cluster while requests run on it.
 *
 *     all the time          each half second 1 % of the links are cut
 *     at 15 % of the time   a node is killed (-9), and does not come back
 *     at 30 %               the directory is killed (-9), and started again
 *     at 45 %               the object store is 200 ms away
 *     at 60 %               nobody is there any more
 *     at 80 %               it is back
 *
 * Threads   One: the one that started the cluster, as what it starts again ends with it.
 * Memory    The caller's.
 */
#ifndef YB_CLI_DEMO_CHAOS_H
#define YB_CLI_DEMO_CHAOS_H

#include "cli/demo_cluster.h"

struct yb_demo_chaos {
    struct yb_demo_links links;
    int links_error; /* Why they cannot be cut here; 0: they can. */
};

/* Let it all happen to a cluster, whose requests take so many seconds. Returns what could not be
 * done to it; NULL: nothing. */
const char *yb_demo_chaos(struct yb_demo_chaos *chaos, struct yb_demo_cluster *cluster,
                          double seconds);

#endif /* YB_CLI_DEMO_CHAOS_H */
