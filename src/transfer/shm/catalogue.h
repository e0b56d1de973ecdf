/* SPDX-License-Identifier: Apache-2.0
 *
 * catalogue.h -- what is known of a peer's regions.
 *
 * A copy of rows of the peer's table, fetched when a slice first needs them. It may be
 * out of date: whoever reads by it looks at the region's live word afterwards, and a
 * target judges writes by its own table. What has proved stale is forgotten.
 *
 * Invariants
 *   G1  Entries never overlap: a new one drops those that it touches.
 *   G2  At most YB_SHM_CATALOGUE_MAX entries; one more, and all others are forgotten.
 *
 * Threads   One worker.
 */
#ifndef YB_TRANSFER_SHM_CATALOGUE_H
#define YB_TRANSFER_SHM_CATALOGUE_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_SHM_CATALOGUE_MAX 1024u

struct yb_shm_entry {
    uint64_t region; /* Never 0. */
    uint64_t base;
    uint64_t length;
    uint64_t live;   /* Address of the live word. */
    uint32_t access; /* YB_REGION_ bits. */
    uint32_t kind;   /* enum yb_memory_kind */
    bool backed;
};

struct yb_shm_catalogue {
    uint32_t count;
    uint32_t last; /* Where the last lookup hit: fragments of a slice are neighbours. */
    struct yb_shm_entry entries[YB_SHM_CATALOGUE_MAX]; /* By base. */
};

/* Find the region `region`, or by address (YB_REGION_BY_ADDRESS) the one around `offset`; NULL:
 * not known. Borrowed until the next add or forget. */
const struct yb_shm_entry *yb_shm_catalogue_find(struct yb_shm_catalogue *catalogue,
                                                 uint64_t region, uint64_t offset);

/* Judge a range of an entry for `access`, and return where it lies: OK, INVALID (leaves the region)
 * or DENIED. `region` and `offset` as in find. */
YB_CHECKED enum yb_status yb_shm_catalogue_judge(const struct yb_shm_entry *entry, uint64_t region,
                                                 uint64_t offset, uint64_t length, uint32_t access,
                                                 uint64_t *address_out);

/* Fails with INVALID: the entry is none (0 as id, a range that wraps). */
YB_CHECKED enum yb_status yb_shm_catalogue_add(struct yb_shm_catalogue *catalogue,
                                               const struct yb_shm_entry *entry);
void yb_shm_catalogue_forget(struct yb_shm_catalogue *catalogue, uint64_t region);
void yb_shm_catalogue_clear(struct yb_shm_catalogue *catalogue);

#endif /* YB_TRANSFER_SHM_CATALOGUE_H */
