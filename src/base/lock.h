/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h -- mutexes that know their order and their owner.
 *
 * This table is the whole lock order of the process. A thread may acquire a
 * lock only if its rank is above every rank it already holds; the first
 * violation aborts, on the first run, whether or not it would have deadlocked.
 * A lock not in the table does not exist.
 *
 * Threads   Any. `held` and `owner` are written only by the holder; reading
 *           them in yb_lock_assert_held() is exact for the holder itself.
 */
#ifndef YB_BASE_LOCK_H
#define YB_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
/*    name   rank     protects */
#define YB_LOCK_MAP(X)                                                           \
    X(ROUTER,   5) /* cli/demo_router.c, demo_turn.h: who waits, what runs where */ \
    X(COMPAT_STORE, 10) /* compat/store_internal.h: who is inside, segments, ranges, sessions */ \
    X(COMPAT_ENGINE, 12) /* compat/engine_internal.h: ranges, peers by name, batches by number */ \
    X(COMPAT_METADATA, 14) /* compat/metadata.c: values by key */ \
    X(STANDIN, 16) /* engine/engine_internal.h: requests, the pool of blocks, numbers */ \
    X(KV_DEVICE, 17) /* engine/kv_device.c: parts that are to be written or compared */ \
    X(REPORTER, 18) /* engine/reporter.c: what waits to be told to the conductor */ \
    X(GATHER, 19) /* observe/gather.c: the samples that are kept */ \
    X(CLIENT,  20) /* client/client_internal.h: batches by handle, who is inside */ \
    X(WATCH,   22) /* observe/watch.c: how many listen, and whether they go on */ \
    X(CONDUCTOR, 25) /* conductor/service_internal.h: the conductor, its log's next bytes */ \
    X(ENGINE,  30) /* transfer/engine_internal.h: batches, peers, notifications */   \
    X(SHM,     35) /* transfer/shm/shm_internal.h: sessions with processes of this host */ \
    X(REGION,  40) /* memory/region.c: the table of registered memory */          \
    X(MEMORY,  43) /* memory/process.c: the drivers and page-locked memory of the process */ \
    X(FENCE,   45) /* net/fence.c: which connection of a peer counts */           \
    X(HELPER,  50) /* net/helper.c: the job queue of one helper pool */           \
    X(REPLAY,  55) /* net/replay.c: one shard of remembered results */            \
    X(QUEUE,   60) /* base/queue.c: one bounded queue between threads */          \
    X(HOST,    62) /* node/host.c: how the tiers stand, as of the last pulse */     \
    X(WORKER,  65) /* net/worker.c: who turns a worker's loop */                  \
    X(LOG,     80) /* base/log.c: the sink; taken after any of the above */       \
    X(SPAN,    85) /* base/span.c: readers of the ring; writers take no lock */   \
    X(STATS,   90) /* base/stats.c: registration; taken last; holds nothing else */
/* clang-format on */

enum yb_lock_rank {
#define X(name, rank) YB_LOCK_##name = (rank),
    YB_LOCK_MAP(X)
#undef X
};

struct yb_lock {
    pthread_mutex_t mutex;
    pthread_t owner; /* Meaningful only while `held`. */
    bool held;
    uint8_t rank;
};

/* For a lock of static duration, which is never finished. */
#define YB_LOCK_INIT(rank_value)                                          \
    {                                                                     \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = (uint8_t)(rank_value) \
    }

void yb_lock_init(struct yb_lock *lock, enum yb_lock_rank rank);
void yb_lock_fini(struct yb_lock *lock);
void yb_lock_acquire(struct yb_lock *lock);
void yb_lock_release(struct yb_lock *lock);

/* Wait on `cond` with `lock` held: released meanwhile, held again on return. Returns false
 * when `timeout_ns` from now passed first (monotonic clock; the condition variable must have
 * been made by yb_lock_cond_init). */
bool yb_lock_wait(struct yb_lock *lock, pthread_cond_t *cond, uint64_t timeout_ns);

/* Initialise a condition variable on the monotonic clock, as yb_lock_wait needs it. */
void yb_lock_cond_init(pthread_cond_t *cond);

/* Abort unless the calling thread holds `lock`. Put it first in every *_locked() function. */
void yb_lock_assert_held(const struct yb_lock *lock);

#endif /* YB_BASE_LOCK_H */
