/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/demo_chaos.h"

#include "base/check.h"
#include "base/clock.h"

static bool
kill_node(struct yb_demo_cluster *cluster)
{
    yb_demo_kill(
        &cluster->servers[YB_DEMO_NODES]); /* The last one: the directory is before them. */
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
} events[] = {{0.25, kill_node}, {0.40, be_slow}, {0.55, be_gone}, {0.75, be_back}};

static void *
befall(void *context)
{
    struct yb_demo_chaos *chaos = context;
    double passed = 0;

    for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
        yb_demo_pause((uint64_t)((events[i].at - passed) * chaos->seconds * 1e9));
        passed = events[i].at;
        chaos->failed = !events[i].happen(chaos->cluster) || chaos->failed;
    }
    return NULL;
}

bool
yb_demo_chaos_begin(struct yb_demo_chaos *chaos, struct yb_demo_cluster *cluster, double seconds)
{
    *chaos = (struct yb_demo_chaos){.cluster = cluster, .seconds = seconds};
    chaos->runs = pthread_create(&chaos->thread, NULL, befall, chaos) == 0;
    return chaos->runs;
}

bool
yb_demo_chaos_end(struct yb_demo_chaos *chaos)
{
    if (chaos->runs) {
        YB_ASSERT(pthread_join(chaos->thread, NULL) == 0);
        chaos->runs = false;
    }
    return !chaos->failed;
}
