/* SPDX-License-Identifier: Apache-2.0
 *
 * admin.h -- what the admin port (observe/http.h) shows of this process and of its store.
 *
 * Health is read from what the roles wrote down at their last pulse. What only the directory knows
 * is asked over the wire, with a deadline, from the thread of the HTTP connection and on a loop of
 * its own, as any other client would: no worker of the process waits, or is waited for.
 *
 * Threads   create and destroy: one thread. The callbacks run on the port's threads.
 * Memory    Process and roles are borrowed for its life.
 */
#ifndef YB_DAEMON_ADMIN_H
#define YB_DAEMON_ADMIN_H

#include "daemon/process.h"
#include "daemon/roles.h"

struct yb_admin;

/* Open the port of http.listen. Fails as yb_http_create() does, or because the address does not
 * resolve. */
YB_CHECKED enum yb_status yb_admin_create(struct yb_process *process, struct yb_roles *roles,
                                          struct yb_admin **admin_out,
                                          char why_out[YB_PROCESS_WHY_BYTES]);

/* Close the port and set *admin to NULL. */
void yb_admin_destroy(struct yb_admin **admin);

/* Return where it listens. */
struct yb_address yb_admin_address(const struct yb_admin *admin);

#endif /* YB_DAEMON_ADMIN_H */
