/* SPDX-License-Identifier: Apache-2.0
 *
 * server.h -- a listening port, and its connections spread over the workers.
 *
 * One worker listens and accepts; connections go to the workers in turn, by
 * mail. (Not SO_REUSEPORT: with it a second process could share the port unseen.)
 *
 * Invariants
 *   S1  At most `connections_max` connections are alive, of which at most
 *       `unauthenticated_max` have not finished their handshake; one more is told
 *       TOO_MANY, or closed at once while as many are being told.
 *   S2  The address that is published is the one that was really bound.
 *   S3  Beyond loopback nothing listens without a secret, unless `insecure` was
 *       asked for.
 *   S4  A newer connection of a peer is welcomed only after its older one for the same
 *       lane is closed, and what its requests may still write is written (fence.h).
 *
 * Threads   create, stop, destroy and address: the listening worker's thread. The
 *           counts are atomics: every worker's connections change them.
 * Memory    The server is owned by its creator; nets are borrowed for its life.
 */
#ifndef YB_NET_SERVER_H
#define YB_NET_SERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"
#include "net/net.h"
#include "yuebing/status.h"

struct yb_server;

struct yb_server_options {
    struct yb_address address; /* Port 0: any free one. */
    bool insecure;
    uint32_t connections_max;
    uint32_t unauthenticated_max;
    struct yb_net *const *nets; /* One per worker; the first is the calling thread's. */
    uint32_t net_count;
};

/* Listen and serve. Fails with DENIED (S3; or a privileged port), ADDRESS_IN_USE, INVALID (the
 * machine has no such address) or NO_MEMORY, and writes a sentence that says what to do. */
YB_CHECKED enum yb_status yb_server_create(const struct yb_server_options *options,
                                           struct yb_server **server_out,
                                           char why_out[YB_ADDRESS_WHY_BYTES]);

/* Stop listening. Connections go on: end them with yb_net_drain() or yb_net_shut() on their
 * workers. Harmless when repeated. */
void yb_server_stop(struct yb_server *server);

/* Consume the server and set it to NULL; it must be stopped and without connections, that is, all
 * its nets idle and their mail read. */
void yb_server_destroy(struct yb_server **server);

/* Return the bound address. */
struct yb_address yb_server_address(const struct yb_server *server);

uint32_t yb_server_connection_count(const struct yb_server *server);

#endif /* YB_NET_SERVER_H */
