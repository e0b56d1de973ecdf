/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_cluster.h -- a whole cluster on this machine, as processes of this program.
 *
 *     directory, one or more conductors, 3 nodes (memory, disk, a folder of objects that is far
 *     away), 2 engines for prefill, 2 for decode; or as many that do both
 *
 * All listen on ports of their own on loopback; the folders are below one that goes with the
 * cluster.
 *
 * Threads   The calling one, which forks: start it before there are others, and stop it after.
 * Memory    The caller's; strings of the shape are borrowed for the start.
 */
#ifndef YB_CLI_DEMO_CLUSTER_H
#define YB_CLI_DEMO_CLUSTER_H

#include "cli/ask.h"
#include "cli/demo_links.h"
#include "cli/demo_process.h"
#include "yuebing/sched.h"

#define YB_DEMO_NODES      3u
#define YB_DEMO_ENGINES    4u /* At most. */
#define YB_DEMO_CONDUCTORS YB_SCHED_CONDUCTORS_MAX
#define YB_DEMO_PROCESSES  (1u + YB_DEMO_NODES + YB_DEMO_CONDUCTORS + YB_DEMO_ENGINES)
/* Those that a dashboard shows beside its own: the directory, nodes, other conductors. */
#define YB_DEMO_WATCHED (YB_DEMO_NODES + YB_DEMO_CONDUCTORS)

/* What a cluster is like. */
struct yb_demo_shape {
    bool pool;           /* Engines share blocks in the nodes; or each has its own memory alone. */
    bool classes;        /* Stores are of another class than loads. */
    bool ahead;          /* Blocks are loaded ahead. */
    uint32_t engines;    /* How many; 0: somebody else computes. */
    uint32_t conductors; /* Side by side; at least one. */
    bool coupled;        /* Each does both; otherwise the first half is for prefill. */
    bool disks;          /* Nodes have them. */
    uint64_t
        load_rate; /* Bytes per second of an engine's link to the store; 0: as fast as it is. */
    const char *model;
    double time_scale;
    uint64_t ttft_ms; /* The targets, of the wall clock; 0: none. */
    uint64_t pace_ms; /* And of a token after the first. */
    uint32_t block_tokens;
    uint64_t block_bytes;
    uint32_t pool_blocks; /* Of an engine's own memory. */
    const char *node_memory;
    uint32_t far_ms; /* How far the object store is away. */
};

struct yb_demo_engine {
    char name[8];
    char http[YB_ADDRESS_TEXT_BYTES];
};

struct yb_demo_cluster {
    const struct yb_cli *cli;
    char folder[YB_DEMO_FOLDER];
    struct yb_demo_server servers[YB_DEMO_PROCESSES]; /* In the order in which they started. */
    uint32_t server_count;
    uint32_t conductor_first; /* Which of them is the first conductor. */
    uint32_t conductor_count;
    char directory[YB_ADDRESS_TEXT_BYTES];
    char conductors[YB_DEMO_CONDUCTORS][YB_ADDRESS_TEXT_BYTES]; /* Their HTTP, by number. */
    char admin[YB_ADDRESS_TEXT_BYTES];                          /* The directory's. */
    char watch[YB_DEMO_WATCHED * (YB_ADDRESS_TEXT_BYTES + 1)];  /* What a dashboard shows. */
    struct yb_demo_engine engines[YB_DEMO_ENGINES];
    pid_t sweeper; /* Removes the folder when nobody else can; its pipe's end tells it so. */
    int sweeper_fd;
    uint64_t memory_bytes; /* The most that its processes had together, when it has stopped. */
    char why[YB_CURL_ERROR_BYTES]; /* What went wrong. */
};

/* Start one, and wait until each conductor knows all of it. False: `why` says what did not; stop it
 * all the same. */
bool yb_demo_cluster_start(struct yb_demo_cluster *cluster, const struct yb_cli *cli,
                           const struct yb_demo_shape *shape);

/* Stop all of it and remove its folder. False: one did not end well. */
bool yb_demo_cluster_stop(struct yb_demo_cluster *cluster);

/* Write how far away the object store is from now on: milliseconds, or "gone". */
bool yb_demo_cluster_far(const struct yb_demo_cluster *cluster, const char *text);

/* Of a cluster with a pool: kill a node (-9), which does not come back. */
void yb_demo_cluster_kill_node(struct yb_demo_cluster *cluster, uint32_t node);

/* And kill the directory, and start it again where it was. False: `why` says why it is not back. */
bool yb_demo_cluster_restart_directory(struct yb_demo_cluster *cluster);

/* Cut links between the processes, and those to engines from outside, as yb_demo_links_cut() does.
 * A question to a conductor is spared: whoever does not hear its decision leaves a request that
 * is taken for running until the conductor forgets it, after minutes. */
int yb_demo_cluster_cut(const struct yb_demo_cluster *cluster, struct yb_demo_links *links,
                        double share);

#endif /* YB_CLI_DEMO_CLUSTER_H */
