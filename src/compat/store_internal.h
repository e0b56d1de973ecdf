/* SPDX-License-Identifier: Apache-2.0
 *
 * store_internal.h -- what the files of a compatible store share.
 *
 *     store.c          life, who is inside, batches of keys
 *     store_setup.c    joining, leaving, segments
 *     store_keys.c     exist, size, remove
 *     store_put.c      put and upsert
 *     store_get.c      get, whole and in ranges
 *     store_dummy.c    processes that use another one's segment
 *     store_memory.c   registered ranges, memory that processes share, copies to and from devices
 *     store_session.c  reads and writes of values that are looked up once
 *     zero.c           keys that are never there (zero.h)
 *     store_place.c    replicas, tasks that copy and move them, segments given by hand
 *
 *     IDLE --setup--> OPENING --> OPEN --close--> CLOSING --> IDLE
 *
 * Whoever works with the client is counted as a user between enter and leave; close waits until
 * there is none. The lock protects what its comment says and is held for a few loads: no call of
 * the client, the node or the system is made under it.
 */
#ifndef YB_COMPAT_STORE_INTERNAL_H
#define YB_COMPAT_STORE_INTERNAL_H

#include <pthread.h>
#include <sys/types.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "compat/store.h"
#include "compat/zero.h"
#include "yuebing/client.h"
#include "yuebing/node.h"

#define YB_COMPAT_STORE_MAGIC 0x73746f72u /* "stor" */

#define YB_COMPAT_LEASE_MS     10000u             /* What exist holds (RULES D1). */
#define YB_COMPAT_LOOK_NS      (10 * YB_NS_PER_S) /* For calls that move no values. */
#define YB_COMPAT_MOVE_NS      (30 * YB_NS_PER_S)
#define YB_COMPAT_SEGMENTS_MAX 64u

enum yb_compat_store_state {
    YB_COMPAT_STORE_IDLE,
    YB_COMPAT_STORE_OPENING,
    YB_COMPAT_STORE_OPEN,
    YB_COMPAT_STORE_CLOSING,
};

struct yb_compat_region {
    uintptr_t base;
    uint64_t bytes;
};

struct yb_compat_session; /* store_session.c */

#define YB_COMPAT_SESSION_BUCKETS 4096u
#define YB_COMPAT_SESSIONS_MAX    65536u

/* Sessions by key. */
struct yb_compat_sessions {
    uint32_t count;
    uint64_t bytes; /* That are staged. */
    struct yb_compat_session *buckets[YB_COMPAT_SESSION_BUCKETS];
};

#define YB_COMPAT_TASKS_MAX         256u /* That are remembered. */
#define YB_COMPAT_TASKS_RUNNING_MAX 16u

struct yb_compat_task_record {
    bool used;
    struct yb_compat_task task;
};

struct yb_compat_store {
    uint32_t magic;
    pid_t process;
    struct yb_log *log; /* NULL: no memory for one. */

    /* Written while nobody is inside. */
    struct yb_client *client;
    struct yb_memory *memory; /* Of devices. */
    char hostname[64];
    char tenant[80];
    uint64_t local_buffer_bytes;
    struct yb_node_open_options segment; /* What segments are opened with; its texts are below. */
    char directory[300];
    char listen[300];
    char secret_file[4096];

    struct yb_lock lock; /* Protects everything below. */
    pthread_cond_t changed;
    uint32_t state; /* enum yb_compat_store_state */
    uint32_t users;
    struct yb_node_embedded *segments[YB_COMPAT_SEGMENTS_MAX];
    struct yb_compat_region *regions; /* By address. */
    uint32_t region_count;
    uint32_t region_room;
    struct yb_compat_sessions reads;
    struct yb_compat_sessions writes;
    struct yb_compat_task_record tasks[YB_COMPAT_TASKS_MAX];
    uint32_t task_next;
    uint32_t task_threads;
    struct yb_compat_zero zero;
};

/* ---- store.c ---- */

/* Return the client to work with, until leave; NULL: not set up. */
struct yb_client *yb_compat_store_enter(struct yb_compat_store *store);
void yb_compat_store_leave(struct yb_compat_store *store);

/* Items for those of some keys that can be asked for; the others have their code already. */
struct yb_compat_items {
    struct yb_client_item *items;
    uint32_t *keys; /* Which key an item is of. */
    uint32_t count;
};

/* Make an item of each key of 1..1024 bytes; the others have the code `unfit`. Returns false: no
 * memory. */
bool yb_compat_items_init(struct yb_compat_items *items, const yb_compat_key *keys, uint32_t count,
                          int32_t unfit, int32_t *codes_out);
void yb_compat_items_fini(struct yb_compat_items *items);

/* Run an operation over items, in as many batches as it takes: every item has a status. */
void yb_compat_items_run(struct yb_client *client, enum yb_client_op op,
                         struct yb_client_item *items, uint32_t count,
                         const struct yb_client_call *call);

/* Give every code the same value. */
void yb_compat_fill(int32_t *codes, uint32_t count, int32_t code);

/* Bytes that all nodes together have for values. */
uint64_t yb_compat_capacity(struct yb_client *client);

/* ---- store_put.c ---- */

/* Whether the known system takes the combination, for so many keys. NULL: all defaults. */
bool yb_compat_replicate_fits(const struct yb_compat_replicate *replicate, enum yb_compat_put kind,
                              uint32_t count);

/* What it means for a put; NULL: nothing. */
void yb_compat_replicate_read(const struct yb_compat_replicate *replicate,
                              struct yb_client_put_options *put);

/* Put one value that was put together here: -705 if there is one. */
int32_t yb_compat_put_staged(struct yb_compat_store *store, struct yb_client *client,
                             const yb_compat_key *key, const struct iovec *bytes,
                             const struct yb_compat_replicate *replicate);

/* ---- store_memory.c ---- */

/* Copy, where either side may be a device's memory. Fails as yb_memory_copy_start(). */
YB_CHECKED enum yb_status yb_compat_copy(struct yb_compat_store *store, void *to, const void *from,
                                         uint64_t bytes);

/* ---- store_session.c ---- */

/* End all sessions; nobody is inside. */
void yb_compat_sessions_end(struct yb_compat_store *store, struct yb_client *client);

/* ---- zero.c ---- */

/* Count keys that were asked for, whose codes are known, and look after those that are never there.
 * `count` > 0. May ask the nodes, once in a while, for half a second or a second. */
void yb_compat_zero_asked(struct yb_compat_store *store, struct yb_client *client,
                          const yb_compat_key *keys, const int32_t *codes, uint32_t count);

/* ---- store_setup.c ---- */

/* Give one more segment of so many bytes, on a port of its own; the client knows it then. */
int32_t yb_compat_segment_open(struct yb_compat_store *store, struct yb_client *client,
                               uint64_t bytes, struct yb_node_embedded **node_out);

/* Leave the cluster; nobody is inside. */
void yb_compat_store_shut(struct yb_compat_store *store);

#endif /* YB_COMPAT_STORE_INTERNAL_H */
