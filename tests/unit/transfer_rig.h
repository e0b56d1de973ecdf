/* SPDX-License-Identifier: Apache-2.0
 *
 * transfer_rig.h -- a duo with a region there, local memory here, and a relay between them.
 *
 * Threads   The test's, except where a chain's links are submitted: on the engine's worker.
 */
#ifndef YB_TESTS_TRANSFER_RIG_H
#define YB_TESTS_TRANSFER_RIG_H

#include <stdatomic.h>

#include "transfer_duo.h"
#include "transfer_relay.h"

struct rig {
    struct duo duo; /* Its peer is reached through the relay. */
    struct relay *relay;
    struct area local;
    struct area remote;
    yb_transfer_region region;
};

/* `tight`: see transfer_relay.h. */
void rig_init(struct rig *rig, size_t bytes, bool tight);
void rig_fini(struct rig *rig);

/* All of the local memory to or from the region. */
struct yb_transfer_item rig_item(const struct rig *rig, enum yb_transfer_op op);
struct yb_transfer_batch_options within_ms(uint64_t ms);
/* Open the peer anew: what is tried again after a failure is tried later each time. */
void rig_reopen(struct rig *rig);
/* Make sure that the connections are there. */
void rig_warm(struct rig *rig);
/* Who `here` is, as `there` sees it. */
struct yb_id rig_identity(const struct rig *rig);

/* Batches of which each end submits the next, until the engine refuses. */
struct rig_chain {
    struct yb_transfer_item item;
    yb_transfer_peer peer;
    _Atomic(uint32_t) links;
    _Atomic(uint32_t) refused;
};

/* Begin one. It outlives the engine. */
void rig_chain(const struct rig *rig, struct rig_chain *chain, enum yb_transfer_op op);

#endif /* YB_TESTS_TRANSFER_RIG_H */
