/* SPDX-License-Identifier: Apache-2.0
 *
 * origin.h -- which cluster a directory without a cluster file goes on as: the one whose mark is in
 * the object store, if there is one (tier/object/claim.h).
 *
 * Threads   One; look waits for the store.
 * Memory    The caller's, until free.
 */
#ifndef YB_DAEMON_ORIGIN_H
#define YB_DAEMON_ORIGIN_H

#include "daemon/process.h"
#include "directory/directory.h"
#include "yuebing/status.h"

struct yb_origin;

/* Ask the store of this URL, unless `cluster_file` is there. *origin_out is NULL
 * where there is nothing to go on from. Fails with what the store says, after ten seconds at
 * most: to begin a new cluster beside one that is only out of reach would be to lose it. `why_out`
 * is a sentence with the remedy. */
YB_CHECKED enum yb_status yb_origin_look(const struct yb_process *process, const char *url,
                                         const char *cluster_file, struct yb_origin **origin_out,
                                         char why_out[YB_PROCESS_WHY_BYTES]);

/* Borrowed until free; NULL of NULL. */
const struct yb_directory_known *yb_origin_known(const struct yb_origin *origin);

void yb_origin_free(struct yb_origin **origin);

#endif /* YB_DAEMON_ORIGIN_H */
