/* SPDX-License-Identifier: Apache-2.0
 *
 * conductor_host.h -- the conductor of this process: its service, a thread for its pulse, one that
 * follows the directory's events, and one that has instructions carried out (conductor_carrier.h).
 *
 *     the directory's seed --> begin --> snapshot of all blocks --> events, one after the other
 *                                            ^                         |
 *                                            +-- too late for an event, another directory,
 *                                                a new model, a tenant was flushed
 *
 * Threads   create, follow and destroy: one thread. Nobody waits for one of its own but destroy.
 * Memory    The process is borrowed for its life.
 */
#ifndef YB_DAEMON_CONDUCTOR_HOST_H
#define YB_DAEMON_CONDUCTOR_HOST_H

#include "daemon/process.h"
#include "net/address.h"
#include "yuebing/status.h"

struct yb_conductor_host;
struct yb_conductor_service;

/* Make one as the configuration says. Fails as yb_conductor_service_create() does. */
YB_CHECKED enum yb_status yb_conductor_host_create(struct yb_process *process,
                                                   struct yb_conductor_host **host_out,
                                                   char why_out[YB_PROCESS_WHY_BYTES]);

/* Follow the directory at that address. Fails with NO_MEMORY: no thread. */
YB_CHECKED enum yb_status yb_conductor_host_follow(struct yb_conductor_host *host,
                                                   struct yb_address directory,
                                                   char why_out[YB_PROCESS_WHY_BYTES]);

/* End both threads; the admin port must be closed. Sets *host to NULL. */
void yb_conductor_host_destroy(struct yb_conductor_host **host);

struct yb_conductor_service *yb_conductor_host_service(struct yb_conductor_host *host);

#endif /* YB_DAEMON_CONDUCTOR_HOST_H */
