/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_world.h -- three simulated hosts, each with one process that polls its io when it runs.
 */
#ifndef YB_TESTS_SIM_WORLD_H
#define YB_TESTS_SIM_WORLD_H

#include "unit.h"

#include "net/sim.h"

#define PORT          7000
#define FOREVER_STEPS 10000000u
#define NODE_COUNT    3u

/* A host with one process that polls its io whenever it runs. */
struct node {
    struct yb_sim_host *host;
    struct yb_sim_process *process;
    struct yb_io *io;
    uint64_t timeout_ns; /* Of each poll. */
    uint32_t run_count;
};

struct net {
    struct yb_sim *sim;
    struct node nodes[NODE_COUNT];
};

static inline void
run_node(void *arg)
{
    struct node *node = arg;

    node->run_count++;
    (void)yb_io_poll(node->io, node->timeout_ns);
}

static inline void
node_start(struct node *node)
{
    node->timeout_ns = YB_NEVER;
    node->run_count = 0;
    node->process = yb_sim_process_create(node->host, "node", run_node, node);
    node->io = yb_sim_process_io(node->process);
}

static inline void
net_init(struct net *net, uint64_t seed)
{
    static const char *const ips[NODE_COUNT] = {"10.0.0.1", "10.0.0.2", "fd00::3"};

    net->sim = yb_sim_create(seed);
    for (uint32_t i = 0; i < NODE_COUNT; i++) {
        net->nodes[i].host = yb_sim_host_create(net->sim, ips[i], ips[i]);
        node_start(&net->nodes[i]);
    }
}

static inline void
net_fini(struct net *net)
{
    yb_sim_destroy(&net->sim);
    assert_null(net->sim);
}

/* Let everything happen that will; there must be an end to it. */
static inline void
settle(struct net *net)
{
    enum yb_sim_outcome outcome = yb_sim_run_until(net->sim, NULL, NULL, YB_NEVER, FOREVER_STEPS);

    if (outcome != YB_SIM_QUIET) {
        yb_sim_dump(net->sim, stderr);
    }
    assert_int_equal(outcome, YB_SIM_QUIET);
}

/* Let virtual time pass. */
static inline void
pass_ms(struct net *net, uint64_t ms)
{
    uint64_t until_ns = yb_sim_now_ns(net->sim) + ms * YB_NS_PER_MS;

    assert_int_not_equal(yb_sim_run_until(net->sim, NULL, NULL, until_ns, FOREVER_STEPS),
                         YB_SIM_STEP_LIMIT);
    assert_true(yb_sim_now_ns(net->sim) == until_ns);
}

#endif /* YB_TESTS_SIM_WORLD_H */
