/* SPDX-License-Identifier: Apache-2.0
 *
 * client.h -- a command that calls one other process and waits for its answers.
 *
 *     yb_cli_client_open --> yb_cli_client_connect --> yb_cli_client_call ... --> close
 *
 * Threads   The calling one: its loop turns inside connect, call and close.
 * Memory    The struct is the caller's; what it names is owned until close.
 */
#ifndef YB_CLI_CLIENT_H
#define YB_CLI_CLIENT_H

#include "cli/cli.h"
#include "daemon/process.h"
#include "net/call.h"
#include "net/peer.h"

struct yb_cli_client {
    struct yb_process *process;
    struct yb_net *net;
    struct yb_peer *peer;
    uint32_t candidates; /* Addresses that the text stands for. */
    const char *error;   /* Why the last connect or call failed; borrowed until the next. */
    bool done;           /* Of the call in progress. */
};

/* Make the client form of a process for `cli`'s configuration, and a peer out of the text
 * `address`; `identity` is who must answer there, or none. On OK the caller must close it. On
 * failure the reason was printed to cli->err, and nothing is left. INVALID and DENIED: the command
 * line is refused. */
YB_CHECKED enum yb_status yb_cli_client_open(struct yb_cli *cli, const char *address,
                                             struct yb_id identity,
                                             struct yb_cli_client *client_out);

/* End what runs and free everything; harmless when repeated. */
void yb_cli_client_close(struct yb_cli_client *client);

/* Complete a handshake, trying each address once. On failure client->error is a sentence. */
YB_CHECKED enum yb_status yb_cli_client_connect(struct yb_cli_client *client, uint64_t timeout_ns);

/* Make a call and wait for its end, `timeout_ns` at most. Returns the outcome: call->status if it
 * was submitted. Fills in deadline, done and owner. call->took_ns is exact, from here to done. */
YB_CHECKED enum yb_status yb_cli_client_call(struct yb_cli_client *client, struct yb_call *call,
                                             uint64_t timeout_ns);

/* Let `span_ns` pass while the connection is kept alive. */
void yb_cli_client_rest(struct yb_cli_client *client, uint64_t span_ns);

/* Return how long the newest handshake took, in nanoseconds; 0: unknown. */
uint64_t yb_cli_client_handshake_ns(const struct yb_cli_client *client);

#endif /* YB_CLI_CLIENT_H */
