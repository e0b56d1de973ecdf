/* SPDX-License-Identifier: Apache-2.0
 *
 * store_internal.h -- what the files of a compatible store share.
 *
 *     store.c          life, who is inside, batches of keys
 *     store_setup.c    joining, leaving, segments
 *     store_keys.c     exist, size, remove
 *     store_put.c      put and upsert
 *     store_get.c      get, whole and in ranges
 *     store_memory.c   registered ranges, memory that processes share
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

struct yb_compat_store {
    uint32_t magic;
    pid_t process;
    struct yb_log *log; /* NULL: no memory for one. */

    /* Written while nobody is inside. */
    struct yb_client *client;
    char hostname[64];
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

/* Make an item of each key of 1..1024 bytes; the other keys' codes are -400. Returns false: no
 * memory. */
bool yb_compat_items_init(struct yb_compat_items *items, const yb_compat_key *keys, uint32_t count,
                          int32_t *codes_out);
void yb_compat_items_fini(struct yb_compat_items *items);

/* Run an operation over items, in as many batches as it takes: every item has a status. */
void yb_compat_items_run(struct yb_client *client, enum yb_client_op op,
                         struct yb_client_item *items, uint32_t count,
                         const struct yb_client_call *call);

/* Give every code the same value. */
void yb_compat_fill(int32_t *codes, uint32_t count, int32_t code);

/* ---- store_setup.c ---- */

/* Leave the cluster; nobody is inside. */
void yb_compat_store_shut(struct yb_compat_store *store);

#endif /* YB_COMPAT_STORE_INTERNAL_H */
