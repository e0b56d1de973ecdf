/* SPDX-License-Identifier: Apache-2.0
 *
 * beside.h -- what src/compat needs of a client beside its public face.
 *
 * Threads   Any thread, any function, between open and close.
 */
#ifndef YB_CLIENT_BESIDE_H
#define YB_CLIENT_BESIDE_H

#include "yuebing/client.h"

/* Ask the directory who is there now, and not only when it is time. Does not wait for the answer;
 * yb_client_nodes() shows it when it has come. */
void yb_client_look_again(struct yb_client *client);

/* Write where the client's engine listens. TOO_SMALL needs more room. */
YB_CHECKED enum yb_status yb_client_engine_address(struct yb_client *client, char *text_out,
                                                   size_t room);

#endif /* YB_CLIENT_BESIDE_H */
