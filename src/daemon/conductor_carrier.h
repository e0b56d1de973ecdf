/* SPDX-License-Identifier: Apache-2.0
 *
 * conductor_carrier.h -- the thread on which a conductor's instructions are carried out
 * (conductor/mover.h), and the queue that leads to it.
 *
 * Threads   order: any, never waits. All else: one thread.
 * Memory    Process and service are borrowed, from start to destroy.
 */
#ifndef YB_DAEMON_CONDUCTOR_CARRIER_H
#define YB_DAEMON_CONDUCTOR_CARRIER_H

#include "conductor/order.h"
#include "daemon/process.h"
#include "net/address.h"
#include "yuebing/status.h"

struct yb_conductor_carrier;
struct yb_conductor_service;

/* On OK the caller owns *carrier_out. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_conductor_carrier_create(struct yb_conductor_carrier **carrier_out);

/* Begin: the service's orders are carried out in the store of that directory. Fails with NO_MEMORY:
 * no thread. */
YB_CHECKED enum yb_status yb_conductor_carrier_start(struct yb_conductor_carrier *carrier,
                                                     const struct yb_process *process,
                                                     struct yb_conductor_service *service,
                                                     struct yb_address directory);

/* Take an order: the `order` of struct yb_conductor_service_options. False: there are too many, or
 * it ends. */
bool yb_conductor_carrier_order(void *carrier, struct yb_conductor_order *order);

/* End what is under way, and the thread. Sets *carrier to NULL. */
void yb_conductor_carrier_destroy(struct yb_conductor_carrier **carrier);

#endif /* YB_DAEMON_CONDUCTOR_CARRIER_H */
