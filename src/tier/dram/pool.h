/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h -- the DRAM tier's memory, and what each part of it is in use for.
 *
 *                 +------------ free <-----------+-----------+
 *                 |              |               |           |
 *      alloc      v              |               |           |
 *     --------> IN_FLIGHT --> UNGRANTED ------> LIVE --> QUARANTINED
 *                 |              |                           ^
 *                 +--------------+---------------------------+
 *
 *     IN_FLIGHT    a writer fills it
 *     UNGRANTED    its bytes are all here, and the directory has not accepted them: unreadable
 *     LIVE         it is served
 *     QUARANTINED  it is nobody's any more, but somebody may still read or write it (RULES A1, A12)
 *
 * Whoever frees an extent says thereby that nobody can reach its bytes any more; when that is so
 * is the node's business. An extent never goes back to an earlier state.
 *
 * Invariants
 *   D1  used = in flight + ungranted + live + quarantined, in lengths of extents, at any time; and
 *       the same for each tenant (RULES H7). yb_dram_pool_check() recomputes it.
 *   D2  What is in flight or ungranted cannot be evicted; together it stays within its cap, a share
 *       of the pool (RULES B6): beyond it alloc says AGAIN. One extent alone may always be.
 *   D3  alloc is all or nothing for its extent, and never waits (RULES C4).
 *
 * Memory    Either shared (memory/shared.h: populated, sealed; huge pages and a NUMA node are
 *           wishes, and info says what became of them), or the caller's, borrowed until destroy:
 *           for tests, for the simulation, and for devices, whose base is NULL here.
 *           Extents are values; they are good until free.
 * Threads   One owner, the node's worker; no lock. Bytes are read and written by whoever holds the
 *           extent.
 */
#ifndef YB_TIER_DRAM_POOL_H
#define YB_TIER_DRAM_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "memory/shared.h"
#include "tier/dram/alloc.h"
#include "yuebing/status.h"

#define YB_DRAM_TENANTS_MAX 65535u

enum yb_dram_state {
    YB_DRAM_IN_FLIGHT,
    YB_DRAM_UNGRANTED,
    YB_DRAM_LIVE,
    YB_DRAM_QUARANTINED,
    YB_DRAM_STATE_COUNT,
};

/* Return a static word such as "in_flight". */
const char *yb_dram_state_name(enum yb_dram_state state);

/* Return whether `tenant` may come to use `used_bytes`: the node's quota. It must not call back. */
typedef bool (*yb_dram_admit_fn)(void *context, uint32_t tenant, uint64_t used_bytes);

struct yb_dram_pool_options {
    uint64_t capacity; /* Bytes; shared: rounded up to whole pages of 4 KiB, borrowed: down. */
    uint64_t extent_bytes_min; /* 0: see alloc.h. */
    uint32_t pending_permille; /* D2: share for in flight and ungranted, 1 to 1000. */
    uint32_t tenant_count;     /* Tenants are numbers below this; 1 to YB_DRAM_TENANTS_MAX. */
    yb_dram_admit_fn admit;    /* NULL: no quota. */
    void *admit_context;
    bool borrowed; /* The caller's memory, at `base`; otherwise shared memory is made. */
    void *base;    /* Borrowed only; NULL: memory that this process does not see. */
    bool huge;     /* Shared only, as the next three; see memory/shared.h. */
    bool lend_writable;
    uint32_t numa_node; /* YB_SHARED_NUMA_ANY: none. */
    const char *label;  /* NULL: none. */
};

struct yb_dram_pool;

/* Get the memory and make all of it free.
 *
 * On OK *pool_out is the caller's; `why_out` (may be NULL) gets "" or what was asked for and not
 * had (huge pages, the node). Otherwise it gets a sentence with the remedy. Fails with INVALID (an
 * option out of range), TOO_LARGE, NO_MEMORY or UNSUPPORTED (no memfd here). */
YB_CHECKED enum yb_status yb_dram_pool_create(const struct yb_dram_pool_options *options,
                                              struct yb_dram_pool **pool_out, char *why_out,
                                              uint32_t why_bytes);

/* Give the memory back and set *pool to NULL, whatever is still in use. */
void yb_dram_pool_destroy(struct yb_dram_pool **pool);

/* Take an extent of at least `bytes` for a tenant; it is IN_FLIGHT.
 *
 * Fails with INVALID (0 bytes), TOO_LARGE (more than the pool), AGAIN (D2: room comes when what is
 * pending is granted or freed), QUOTA (the tenant may not), NO_SPACE (no hole is large enough:
 * evict) or NO_MEMORY (of the process). */
YB_CHECKED enum yb_status yb_dram_alloc(struct yb_dram_pool *pool, uint64_t bytes, uint32_t tenant,
                                        struct yb_dram_extent *extent_out);

/* Free an extent, in any state. */
void yb_dram_free(struct yb_dram_pool *pool, const struct yb_dram_extent *extent);

/* Move an extent to a later state, along an arrow of the picture. Anything else is a bug, and
 * aborts. */
void yb_dram_set_state(struct yb_dram_pool *pool, const struct yb_dram_extent *extent,
                       enum yb_dram_state state);

enum yb_dram_state yb_dram_state(struct yb_dram_pool *pool, const struct yb_dram_extent *extent);
uint32_t yb_dram_tenant(struct yb_dram_pool *pool, const struct yb_dram_extent *extent);

/* Return where the extent's bytes are. It is a bug, and aborts, if the process does not see them.
 * */
void *yb_dram_bytes(struct yb_dram_pool *pool, const struct yb_dram_extent *extent);

/* Return the shared memory, for descriptors and registration; NULL: the memory is borrowed. */
const struct yb_shared *yb_dram_shared(const struct yb_dram_pool *pool);

struct yb_dram_info {
    uint64_t used_bytes;
    uint64_t state_bytes[YB_DRAM_STATE_COUNT]; /* They sum to used_bytes. */
    uint64_t state_count[YB_DRAM_STATE_COUNT]; /* Extents. */
    uint64_t pending_bytes_max;                /* D2 */
    uint64_t again_count;                      /* Allocs that got AGAIN, QUOTA, NO_SPACE. */
    uint64_t quota_count;
    uint64_t no_space_count;
    struct yb_dram_allocator_info allocator;
    struct yb_shared_info memory; /* All zero but base and length, if the memory is borrowed. */
    uint64_t huge_bytes;          /* In huge pages when it was made; UINT64_MAX: not known. */
};

struct yb_dram_info yb_dram_info(const struct yb_dram_pool *pool);

/* Return what a tenant uses, in lengths of extents. */
uint64_t yb_dram_tenant_bytes(const struct yb_dram_pool *pool, uint32_t tenant);

/* Recompute D1 and all that the allocator knows, O(extents): for tests, and `node check`. Returns
 * whether all is well; otherwise `why_out` (may be NULL) gets a sentence. */
bool yb_dram_pool_check(struct yb_dram_pool *pool, char *why_out, uint32_t why_bytes);

#endif /* YB_TIER_DRAM_POOL_H */
