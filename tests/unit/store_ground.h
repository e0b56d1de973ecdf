/* SPDX-License-Identifier: Apache-2.0
 *
 * store_ground.h -- a directory and some nodes in this process, on sockets of the loopback
 * interface, each on workers of its own, as the daemon has them. For tests of the client that use
 * threads.
 */
#ifndef YB_TESTS_STORE_GROUND_H
#define YB_TESTS_STORE_GROUND_H

#include <semaphore.h>

#include "directory/directory.h"
#include "net/auth.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/tls.h"
#include "net/worker.h"
#include "node/node.h"
#include "unit.h"
#include "yuebing/client.h"

#define GROUND_NODES_MAX 4u

struct ground_role {
    struct ground *ground;
    struct yb_id identity;
    struct yb_hello_self self;
    struct yb_replay *replay;
    struct yb_worker *worker;
    struct yb_net *net; /* The worker's. */
    struct yb_worker *heart;
    struct yb_server *server;
    struct yb_directory *directory;
    struct yb_node *node;
    struct yb_transfer *engine;
    char engine_address[YB_ADDRESS_TEXT_BYTES];
    struct yb_address address;
    char name[32];
    bool idle;
    bool stopped;
    struct yb_mail stand;
    sem_t held; /* The worker waits here while it is stopped. */
    sem_t standing;
};

struct ground_options {
    uint32_t nodes;      /* 0: 1. */
    uint64_t pool_bytes; /* Of each; 0: 64 MiB. */
    uint32_t lease_ms;   /* 0: 2000. */
    const char *secret_file;
    bool tls;
    uint32_t engine_paths; /* Of the nodes' engines; 0: they have none. */
};

struct ground {
    struct ground_options options;
    struct yb_auth *auth;
    struct yb_tls_context *tls_server;
    struct yb_tls_context *tls_client;
    struct ground_role directory;
    struct ground_role nodes[GROUND_NODES_MAX];
    char address[YB_ADDRESS_TEXT_BYTES]; /* Of the directory. */
};

/* Start it; when this returns every node is a member. */
struct ground *ground_create(const struct ground_options *options);
void ground_destroy(struct ground **ground);

/* Open a client of it, with what `options` (may be NULL) says but for the directory. */
struct yb_client *ground_client(const struct ground *ground,
                                const struct yb_client_options *options);

/* Let a role's worker stand still until it is let go, or the ground ends: nothing is read, nothing
 * answered. */
void ground_stop(struct ground_role *role);
void ground_go(struct ground_role *role);

/* End a node's process, as a crash does: what it held is gone. */
void ground_kill(struct ground_role *role);

#endif /* YB_TESTS_STORE_GROUND_H */
