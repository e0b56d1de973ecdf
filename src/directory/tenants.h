/* SPDX-License-Identifier: Apache-2.0
 *
 * tenants.h -- whose blocks there are: numbers for names, flush epochs, and shares of limits.
 *
 * A tenant is a name; the index wants a number. The flush epoch says which of its blocks count. A
 * limit on its bytes is kept without asking anybody at a put: every node is told how much of the
 * tenant it may hold, its *credit*, with each heartbeat, and tells what it does hold.
 *
 * A node's credit is what it uses and its equal part of what nobody uses, but never more than what
 * the limit leaves when every other node has used up its own credit.
 *
 * Invariants
 *   T1  The sum of what nodes may hold exceeds the limit by at most one credit per node, and only
 *       until each has been answered once: a credit that was sent may be used until then.
 *   T2  A credit is never below what a node uses while all use together is within the limit.
 *   T3  `version` changes with every flush, and grows.
 *
 * Threads   One owner.
 * Memory    At most YB_TENANTS_MAX names; a limited one has 16 bytes for each slot.
 */
#ifndef YB_DIRECTORY_TENANTS_H
#define YB_DIRECTORY_TENANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "yuebing/status.h"

#define YB_TENANTS_MAX        4096u
#define YB_TENANTS_NAME_BYTES 64u
#define YB_TENANTS_NONE       UINT32_MAX
#define YB_TENANTS_NO_LIMIT   UINT64_MAX

struct yb_tenants;

struct yb_tenant {
    char name[YB_TENANTS_NAME_BYTES + 1];
    uint64_t flush;
    uint64_t flushed_ns; /* When; 0: not in this life. */
    uint64_t limit;
};

YB_CHECKED enum yb_status yb_tenants_create(uint32_t slots_max, uint64_t epoch, uint64_t seed,
                                            struct yb_tenants **tenants_out);
void yb_tenants_destroy(struct yb_tenants **tenants);

/* Return the number of a name (1 to 64 bytes), or NONE. */
uint32_t yb_tenants_find(const struct yb_tenants *tenants, const char *name, uint32_t length);

/* The same, making it if there is none; NONE: there are YB_TENANTS_MAX. */
uint32_t yb_tenants_take(struct yb_tenants *tenants, const char *name, uint32_t length);

/* Borrowed; `number` is below the count. */
struct yb_tenant *yb_tenants_at(struct yb_tenants *tenants, uint32_t number);
uint32_t yb_tenants_count(const struct yb_tenants *tenants);

/* Set the bytes that a tenant may use. Fails with NO_MEMORY. */
YB_CHECKED enum yb_status yb_tenants_limit(struct yb_tenants *tenants, uint32_t number,
                                           uint64_t bytes);

void yb_tenants_flush(struct yb_tenants *tenants, uint32_t number, uint64_t epoch, uint64_t now_ns);

/* Whether there is a tenant with a limit: then nodes are told with every heartbeat. */
bool yb_tenants_limited(const struct yb_tenants *tenants);
uint64_t yb_tenants_version(const struct yb_tenants *tenants);

/* A node is about to tell what each tenant uses: nothing, for those that it does not name. */
void yb_tenants_use_begin(struct yb_tenants *tenants, uint32_t slot);
void yb_tenants_use(struct yb_tenants *tenants, uint32_t number, uint32_t slot, uint64_t used);

/* Return the bytes of a tenant that the node may hold, one of `nodes`; it is taken to be told. */
uint64_t yb_tenants_credit(struct yb_tenants *tenants, uint32_t number, uint32_t slot,
                           uint32_t nodes);

/* A slot is gone: it uses nothing and has no credit. */
void yb_tenants_forget(struct yb_tenants *tenants, uint32_t slot);

#endif /* YB_DIRECTORY_TENANTS_H */
