/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h -- a node with all that it runs on, in whatever process: the daemon's or a client's.
 *
 * A worker for its work, one more for its heartbeats, so that data cannot hold them up, a port, and
 * an engine under the same identity for what is on this host.
 *
 *     open --> registers, and serves ~~> close_port --> drain --> close
 *
 * Invariants
 *   W2  After a failed open nothing is left: no thread, descriptor or memory.
 *   W4  A wildcard is refused: others must know where to find a node.
 *
 * Threads   One thread at a time opens, awaits and closes; asking is for every thread: the node
 *           writes down how it stands, at every pulse, into atomics.
 * Memory    What the options point to is borrowed for the host's life, but for the name and what
 *           yb_node_create() copies.
 * Time      The clock of options.loop.
 */
#ifndef YB_NODE_HOST_H
#define YB_NODE_HOST_H

#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"
#include "net/hello.h"
#include "net/worker.h"
#include "node/node.h"
#include "yuebing/status.h"

struct yb_node_host;

#define YB_NODE_NAME_BYTES 64u

struct yb_node_host_options {
    /* Of the node. The host fills in engine, watch, gone, address, and the name if it ends in ':':
     * it gets the port. */
    struct yb_node_options node;
    const struct yb_hello_self *self; /* The process; role, tenant and identity are the node's. */
    struct yb_worker_options worker;  /* As for yb_role_create(). */
    struct yb_address_list listen;    /* The first that works. */
    uint16_t port_min;                /* A candidate without a port gets one of these ... */
    uint16_t port_max;                /* ... 0: any free one. */
    uint32_t port_tries;
    uint32_t replay_records;
    uint64_t replay_bytes;
    uint32_t connections_max;
    uint32_t unauthenticated_max;
    const char *secret_file; /* Of the engine; NULL: none. */
    bool insecure;
    bool tls;
};

/* Begin; it registers by itself, as often as it takes. On OK *host_out is the caller's. Otherwise
 * `why_out` is a sentence with the remedy. Fails as yb_transfer_create(), yb_node_create() and
 * yb_server_create() do, and INVALID for a wildcard. */
YB_CHECKED enum yb_status yb_node_host_open(const struct yb_node_host_options *options,
                                            struct yb_node_host **host_out, char *why_out,
                                            size_t why_bytes);

/* Wait until it is registered, at most `limit_ns`. Returns whether it is. */
bool yb_node_host_await_registered(struct yb_node_host *host, uint64_t limit_ns);

/* Tell the directory that the node is to be drained, or takes blocks again; wait for its answer at
 * most `limit_ns`. Fails as a call does. */
YB_CHECKED enum yb_status yb_node_host_set_draining(struct yb_node_host *host, bool draining,
                                                    uint64_t limit_ns);

/* Wait until it has no block any more, at most `limit_ns`. Returns whether it has none. */
bool yb_node_host_await_empty(struct yb_node_host *host, uint64_t limit_ns);

/* Take no new requests; then let blocks that lie nowhere below memory go down there, as many as
 * there is time for (those that it could not are counted in the log), and requests that run end,
 * until `until_ns`. Several hosts can be closed together: all ports first. */
void yb_node_host_close_port(struct yb_node_host *host);
void yb_node_host_settle(struct yb_node_host *host, uint64_t until_ns);
void yb_node_host_drain(struct yb_node_host *host, uint64_t until_ns);

/* End it and set *host to NULL. Its blocks are gone. */
void yb_node_host_close(struct yb_node_host **host);

struct yb_node_host_info {
    const char *name;          /* Borrowed for the host's life. */
    struct yb_address address; /* As it was bound. */
    struct yb_id identity;
    const char *io; /* How its sockets are driven. Static. */
    /* As of its last pulse: YB_ROLE_PULSE_NS apart. */
    uint64_t turned_ns;
    uint64_t incarnation;    /* 0: not registered. */
    uint64_t lease_until_ns; /* Until when it may serve; 0: not now. */
    uint64_t capacity;
    uint64_t live; /* Bytes. */
    uint64_t blocks;
    uint8_t state; /* enum yb_wire_slot_state, as the directory told. */
};
void yb_node_host_info(const struct yb_node_host *host, struct yb_node_host_info *info_out);

/* How its tiers below memory stood then, the fastest first. Returns how many there are. */
uint32_t yb_node_host_tiers(struct yb_node_host *host,
                            struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX]);

#endif /* YB_NODE_HOST_H */
