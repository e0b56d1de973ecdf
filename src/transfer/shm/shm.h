/* SPDX-License-Identifier: Apache-2.0
 *
 * shm.h -- what the engine sees of the shared-memory path beside its path ops.
 *
 * One host per engine: a unix socket where peers of this machine prove themselves,
 * and a thread that keeps the sessions with them (session.h). The path of a peer
 * (path_shm.c) and the answering side (service_shm.c) use it.
 *
 *     reads    the initiator copies, out of a mapping or by cross-memory attach, and then
 *              looks whether the regions were still registered
 *     writes   the target copies, out of the initiator's memory, into regions that it pins
 *
 * Nobody ever writes another process's memory (RULES A4). Device memory at the target
 * is left to another path; device memory here is staged before it comes to any path.
 */
#ifndef YB_TRANSFER_SHM_SHM_H
#define YB_TRANSFER_SHM_SHM_H

#include "yuebing/status.h"

struct yb_region_table;
struct yb_shm_host;
struct yb_transfer;

/* Listen on an abstract unix socket, make the identity page, and start the thread. `regions` is
 * borrowed until destroy. A machine without such sockets gives a host that refuses sessions with
 * a sentence. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_shm_host_create(struct yb_region_table *regions,
                                             struct yb_shm_host **host_out);

/* End all sessions and the thread; consume the host and set *host to NULL (NULL is fine). The
 * engine's paths are closed and its workers have ended. */
void yb_shm_host_destroy(struct yb_shm_host **host);

/* Add the answering side's methods to engine->methods. */
void yb_shm_service_init(struct yb_transfer *engine);

#endif /* YB_TRANSFER_SHM_SHM_H */
