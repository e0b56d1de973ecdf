/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_chaos.h"

#include "base/clock.h"
#include "cli/measure.h"

#define CUT_NS    (500 * YB_NS_PER_MS)
#define CUT_SHARE 0.01
#define SEED      20261130u

static bool
kill_node(struct yb_demo_cluster *cluster)
{
    yb_demo_cluster_kill_node(cluster, YB_DEMO_NODES - 1);
    return true;
}

static bool
be_slow(struct yb_demo_cluster *cluster)
{
    return yb_demo_cluster_far(cluster, "200");
}

static bool
be_gone(struct yb_demo_cluster *cluster)
{
    return yb_demo_cluster_far(cluster, "gone");
}

static bool
be_back(struct yb_demo_cluster *cluster)
{
    return yb_demo_cluster_far(cluster, "20");
}

static const struct {
    double at; /* Share of the time. */
    bool (*happen)(struct yb_demo_cluster *cluster);
    const char *failure;
} events[] = {
    {0.15, kill_node, "the node could not be killed"},
    {0.30, yb_demo_cluster_restart_directory, "the directory did not come back"},
    {0.45, be_slow, "the object store could not be moved away"},
    {0.60, be_gone, "the object store could not be taken away"},
    {0.80, be_back, "the object store could not be brought back"},
};

/* Cut links until then. */
static void
cut_until(struct yb_demo_chaos *chaos, const struct yb_demo_cluster *cluster, uint64_t until_ns)
{
    const struct yb_clock *clock = yb_clock_system();

    for (uint64_t now_ns; (now_ns = yb_clock_now(clock)) < until_ns;) {
        yb_demo_pause(until_ns - now_ns < CUT_NS ? until_ns - now_ns : CUT_NS);
        if (chaos->links_error == 0) {
            chaos->links_error = yb_demo_cluster_cut(cluster, &chaos->links, CUT_SHARE);
        }
    }
}

const char *
yb_demo_chaos(struct yb_demo_chaos *chaos, struct yb_demo_cluster *cluster, double seconds)
{
    uint64_t begun_ns = yb_measure_now_ns();
    const char *failure = NULL;

    *chaos = (struct yb_demo_chaos){.links.random = {SEED}};
    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        cut_until(chaos, cluster, begun_ns + (uint64_t)(events[i].at * seconds * 1e9));
        if (!events[i].happen(cluster)) {
            failure = events[i].failure;
        }
    }
    cut_until(chaos, cluster, begun_ns + (uint64_t)(seconds * 1e9));
    return failure;
}
