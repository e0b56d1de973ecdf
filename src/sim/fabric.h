/* SPDX-License-Identifier: Apache-2.0
 *
 * fabric.h -- the pipes of a simulated cluster, and what a transfer takes of them.
 *
 * Each node has a port into the network and out of it, a bus between its memory and its devices,
 * an SSD and a way to the object store. Nodes stand in racks; what leaves a rack passes its uplink,
 * and what comes into one its downlink. Without racks the network between ports is free.
 *
 *   from            passes
 *   DRAM            bus
 *   SSD             ssd
 *   PEER            port out, [uplink, downlink], port in
 *   PEER_SSD        ssd of the peer, port out, [uplink, downlink], port in
 *   OBJECT          object, port in
 *   TO_SSD          ssd (a write)
 *   TO_OBJECT       object, port out (a write)
 *
 * A flow is one transfer of a request. It is through when its latency is over and its bytes are
 * through every pipe; yb_fabric_finish_ns() says when that will be if nothing else comes, and is
 * asked again at that time, as something may have come.
 *
 * Invariants
 *   F1  Bytes that entered a pipe leave it; nothing is lost on the way.
 *
 * Threads   One owner.
 * Memory    The fabric owns its pipes; a flow is a plain struct of the caller.
 * Time      Passed in, never back.
 */
#ifndef YB_SIM_FABRIC_H
#define YB_SIM_FABRIC_H

#include <stdbool.h>
#include <stdint.h>

#include "sim/pipe.h"
#include "yuebing/status.h"

#define YB_FABRIC_PIPES_MAX 5u
#define YB_FABRIC_NODES_MAX 65536u

/* What a node has; names are those of reports. */
#define YB_FABRIC_KIND_MAP(X) \
    X(PORT_IN, "port in")     \
    X(PORT_OUT, "port out")   \
    X(BUS, "bus")             \
    X(SSD, "ssd")             \
    X(OBJECT, "object")       \
    X(UPLINK, "uplink")       \
    X(DOWNLINK, "downlink")

enum yb_fabric_kind {
#define X(name, text) YB_FABRIC_##name,
    YB_FABRIC_KIND_MAP(X)
#undef X
};
#define YB_FABRIC_KINDS      7u
#define YB_FABRIC_NODE_KINDS 5u /* The first ones stand at each node, the others at each rack. */

enum yb_fabric_from {
    YB_FABRIC_FROM_DRAM,
    YB_FABRIC_FROM_SSD,
    YB_FABRIC_FROM_PEER,
    YB_FABRIC_FROM_PEER_SSD,
    YB_FABRIC_FROM_OBJECT,
    YB_FABRIC_TO_SSD,
    YB_FABRIC_TO_OBJECT,
};

struct yb_fabric_options {
    uint32_t nodes;
    uint32_t rack_nodes;                  /* 0: no racks. */
    double bytes_per_s[YB_FABRIC_KINDS];  /* 0: there is no such pipe. */
    uint64_t latency_ns[YB_FABRIC_KINDS]; /* Until the first byte, of the pipe passed first. */
};

struct yb_fabric;

struct yb_fabric_flow {
    double marks[YB_FABRIC_PIPES_MAX];
    uint32_t pipes[YB_FABRIC_PIPES_MAX];
    uint32_t pipe_count;
    enum yb_pipe_class class;
    uint64_t earliest_ns;
};

/* What a transfer is. */
struct yb_fabric_order {
    enum yb_fabric_from from;
    uint32_t peer; /* Of PEER and PEER_SSD. */
    uint32_t node;
    enum yb_pipe_class class;
    double bytes;
};

/* Create the pipes. Fails with INVALID (a bound, a negative rate) or NO_MEMORY. */
YB_CHECKED enum yb_status yb_fabric_create(const struct yb_fabric_options *options,
                                           struct yb_fabric **fabric_out);

/* Consume the fabric and set *fabric to NULL; NULL is allowed inside. */
void yb_fabric_destroy(struct yb_fabric **fabric);

/* Begin a transfer. Fails with INVALID if the node has no such pipe; nothing is then begun. */
YB_CHECKED enum yb_status yb_fabric_begin(struct yb_fabric *fabric,
                                          const struct yb_fabric_order *order, uint64_t now_ns,
                                          struct yb_fabric_flow *flow_out);

/* Return when a flow will be through; `now_ns`: it is. */
uint64_t yb_fabric_finish_ns(struct yb_fabric *fabric, const struct yb_fabric_flow *flow,
                             uint64_t now_ns);

/* Return a pipe of a node, or of the rack of the node; NULL: there is none. */
struct yb_pipe *yb_fabric_pipe(struct yb_fabric *fabric, enum yb_fabric_kind kind, uint32_t node);

uint64_t yb_fabric_latency_ns(const struct yb_fabric *fabric, enum yb_fabric_kind kind);

/* Return the bytes that passed all pipes of a kind, and the time that they were busy, as the share
 * of `now_ns` that the busiest and the mean one were. */
struct yb_fabric_use {
    double bytes;
    double mean;
    double busiest;
};
struct yb_fabric_use yb_fabric_use(struct yb_fabric *fabric, enum yb_fabric_kind kind,
                                   uint64_t now_ns);

const char *yb_fabric_kind_name(enum yb_fabric_kind kind);

#endif /* YB_SIM_FABRIC_H */
