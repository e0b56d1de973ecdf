/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_chaos.h -- what befalls a cluster while requests run on it.
 *
 *     at 25 % of the time   a node is killed (-9), and does not come back
 *     at 40 %               the object store is 200 ms away
 *     at 55 %               nobody is there any more
 *     at 75 %               it is back
 *
 * Threads   One of its own, between begin and end; meanwhile nobody else stops the cluster.
 */
#ifndef YB_CLI_DEMO_CHAOS_H
#define YB_CLI_DEMO_CHAOS_H

#include <pthread.h>

#include "cli/demo_cluster.h"

struct yb_demo_chaos {
    struct yb_demo_cluster *cluster;
    double seconds; /* That the requests take. */
    pthread_t thread;
    bool runs;
    bool failed; /* Something could not be done to it. */
};

/* False: there is no thread for it. */
bool yb_demo_chaos_begin(struct yb_demo_chaos *chaos, struct yb_demo_cluster *cluster,
                         double seconds);

/* Wait until all has happened. False: some of it could not. */
bool yb_demo_chaos_end(struct yb_demo_chaos *chaos);

#endif /* YB_CLI_DEMO_CHAOS_H */
