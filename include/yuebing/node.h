/* SPDX-License-Identifier: Apache-2.0
 *
 * node.h -- give memory of this process to a store.
 *
 * A node holds blocks and serves them to every client of its cluster. `yuebing node` is one in a
 * process of its own; this is the same, inside yours.
 *
 *     yb_node_open   -> a node: it listens, registers, and has two worker threads
 *     yb_node_state  -> how it stands
 *     yb_node_close  -> its blocks are moved away, as far as time and others' room allow
 *
 * Threads   state from any thread; open and close of one node from one at a time. A forked child
 *           must not use its parent's node.
 * Memory    Options are borrowed until open returns. The pool is the node's.
 * Units     Bytes; times in nanoseconds.
 */
#ifndef YB_NODE_PUBLIC_H
#define YB_NODE_PUBLIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"
#include "yuebing/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct yb_node_embedded;

/* Zero the struct, set `struct_bytes`, and what you want to differ from the default. */
struct yb_node_open_options {
    size_t struct_bytes;
    const char *directory; /* "host:port"; NULL: "127.0.0.1:14700". */
    const char *listen;    /* "host" or "host:port", of an interface; NULL: "127.0.0.1". */
    uint16_t port_min;     /* Without a port in `listen`: one of these, as one is free ... */
    uint16_t port_max;     /* ... 0: any. */
    uint32_t port_tries;   /* 0: 20. */
    const char *name;      /* What people call it, unique in the cluster, at most 63 characters. One
                            * that ends in ':' gets the port. NULL: its address. */
    uint64_t pool_bytes;   /* Memory for blocks; 0: 64 MiB. */
    bool huge_pages;
    bool numa_bind; /* Take the pool from NUMA node `numa_node`: a hint. */
    uint32_t numa_node;
    const char *policy; /* "s3fifo" (NULL), "lru" or "lfu". */
    const char *rack;
    const char *zone;
    const char *secret_file; /* NULL: none; then `listen` must be on loopback. */
    bool tls;
    bool insecure; /* Listen beyond loopback without a secret all the same. */
    int log_fd;    /* Where lines about it go, from warnings up; 0: standard error; -1: nowhere. */
};

/* Begin, and wait at most `timeout_ns` (0: 10 s) until it is registered.
 *
 * On OK the caller owns *node_out. Otherwise nothing is left, and `message_out` (may be NULL) gets
 * a sentence with the remedy. Fails with INVALID (an option), DENIED (no secret, or one that others
 * can read), ADDRESS_IN_USE, UNREACHABLE (a name does not resolve), TIMED_OUT (the directory did
 * not take it in time), UNSUPPORTED or NO_MEMORY. */
YB_API YB_CHECKED enum yb_status yb_node_open(const struct yb_node_open_options *options,
                                              uint64_t timeout_ns,
                                              struct yb_node_embedded **node_out, char *message_out,
                                              size_t message_bytes);

/* Move the blocks to other nodes and answer what was asked, both within `drain_ns`, then end, and
 * set *node to NULL. What has not been moved by then is gone: 0 moves nothing. */
YB_API void yb_node_close(struct yb_node_embedded **node, uint64_t drain_ns);

struct yb_node_standing {
    char name[64];
    char address[72]; /* Where it listens. */
    struct yb_id identity;
    bool serving; /* Registered, and its lease holds. */
    bool draining;
    uint64_t capacity;
    uint64_t used;
    uint64_t blocks;
};

/* How it stands, as of at most 250 ms ago. */
YB_API void yb_node_state(const struct yb_node_embedded *node, struct yb_node_standing *state_out);

#ifdef __cplusplus
}
#endif

#endif /* YB_NODE_PUBLIC_H */
