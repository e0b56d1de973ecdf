/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h -- a fixed number of equal objects, allocated once.
 *
 * The data path allocates nothing: requests, connections and buffers come from pools that were
 * sized at start, and a pool that is empty is back-pressure, not an error. The object that was
 * given back last is handed out first, since it is the one in the cache.
 *
 *     FREE --take--> IN USE --give--> FREE
 *
 * Invariants
 *   P1  No object is handed out twice before it is given back.
 *   P2  Giving back what the pool did not hand out, or twice, aborts at once.
 *   P3  A write to an object after it was given back aborts at the latest when the object is
 *       taken again, if it hit the first 64 bytes (in debug builds: any byte).
 *
 * Threads   A pool belongs to the thread that takes from it first; debug builds assert it.
 *           create and destroy may run elsewhere, before and after. move lets it belong to another.
 * Memory    The pool owns its objects; a taken one is borrowed until give. Objects are aligned
 *           to 64 bytes, are handed out with unspecified contents, and never move.
 */
#ifndef YB_BASE_POOL_H
#define YB_BASE_POOL_H

#include <stddef.h>
#include <stdint.h>

#include "yuebing/status.h"

struct yb_pool;

/* Create a pool of `capacity` objects (1 to 2^31) of `object_bytes` (1 to 2^31). `name` is for
 * logs and metrics: a static string, borrowed.
 *
 * On OK, *pool_out is owned by the caller. Fails with INVALID (a number out of range, or the
 * product does not fit) or NO_MEMORY; *pool_out is then untouched. */
YB_CHECKED enum yb_status yb_pool_create(const char *name, size_t object_bytes, uint32_t capacity,
                                         struct yb_pool **pool_out);

/* As create, but a page comes with the first object that is taken there: for pools of large objects
 * of which few are ever in use. */
YB_CHECKED enum yb_status yb_pool_create_sparse(const char *name, size_t object_bytes,
                                                uint32_t capacity, struct yb_pool **pool_out);

/* The pool belongs to the thread that takes from it next. Objects may be in use. */
void yb_pool_move(struct yb_pool *pool);

/* Consume the pool and set *pool to NULL. It is a bug, and aborts, if an object is in use. */
void yb_pool_destroy(struct yb_pool **pool);

/* Take an object. Fails with AGAIN when all are in use: one comes back with the next give. */
YB_CHECKED enum yb_status yb_pool_take(struct yb_pool *pool, void **object_out);

/* Give an object back (P2). */
void yb_pool_give(struct yb_pool *pool, void *object);

/* What a metric shows of a pool. */
struct yb_pool_counts {
    const char *name;
    uint32_t capacity;
    uint32_t in_use;
    uint32_t in_use_max;    /* Since create. */
    uint64_t refused_count; /* Takes that got AGAIN. */
};

void yb_pool_counts(const struct yb_pool *pool, struct yb_pool_counts *counts_out);

#endif /* YB_BASE_POOL_H */
