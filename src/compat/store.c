/* SPDX-License-Identifier: Apache-2.0
 *
 * A store's life, who is inside, and batches of keys.
 */
#include "compat/store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "compat/store_internal.h"

#define WAIT_STEP_NS YB_NS_PER_S
#define HEALTH_NS    (3 * YB_NS_PER_S)

/* ---- life --------------------------------------------------------------------------------- */

struct yb_compat_store *
yb_compat_store_create(void)
{
    const struct yb_log_options log = {
        .fd = STDERR_FILENO, .level = YB_LOG_LEVEL_WARN, .clock = yb_clock_system()};
    struct yb_compat_store *store = calloc(1, sizeof(*store));

    if (store == NULL) {
        return NULL;
    }
    store->magic = YB_COMPAT_STORE_MAGIC;
    store->process = getpid();
    if (yb_log_create(&log, &store->log) != YB_OK) {
        free(store);
        return NULL;
    }
    yb_lock_init(&store->lock, YB_LOCK_COMPAT_STORE);
    yb_lock_cond_init(&store->changed);
    return store;
}

void
yb_compat_store_destroy(struct yb_compat_store **store_ref)
{
    struct yb_compat_store *store = *store_ref;

    *store_ref = NULL;
    if (store == NULL) {
        return;
    }
    YB_ASSERT_OBJ(store, YB_COMPAT_STORE_MAGIC);
    if (store->process != getpid()) {
        return; /* The parent's: its threads and locks are not here. */
    }
    (void)yb_compat_store_close(store);
    yb_log_destroy(&store->log);
    free(store->regions);
    YB_ASSERT(pthread_cond_destroy(&store->changed) == 0);
    yb_lock_fini(&store->lock);
    store->magic = 0;
    free(store);
}

int32_t
yb_compat_store_close(struct yb_compat_store *store)
{
    bool ours;

    YB_ASSERT_OBJ(store, YB_COMPAT_STORE_MAGIC);
    if (store->process != getpid()) {
        return YB_COMPAT_OK;
    }
    yb_lock_acquire(&store->lock);
    while (store->state == YB_COMPAT_STORE_OPENING) {
        (void)yb_lock_wait(&store->lock, &store->changed, WAIT_STEP_NS);
    }
    ours = store->state == YB_COMPAT_STORE_OPEN;
    if (ours) {
        store->state = YB_COMPAT_STORE_CLOSING;
        (void)pthread_cond_broadcast(&store->changed); /* Those that rest inside end early. */
    }
    while (ours ? store->users > 0 : store->state == YB_COMPAT_STORE_CLOSING) {
        (void)yb_lock_wait(&store->lock, &store->changed, WAIT_STEP_NS);
    }
    yb_lock_release(&store->lock);
    if (ours) {
        yb_compat_store_shut(store);
        yb_lock_acquire(&store->lock);
        store->state = YB_COMPAT_STORE_IDLE;
        (void)pthread_cond_broadcast(&store->changed);
        yb_lock_release(&store->lock);
    }
    return YB_COMPAT_OK;
}

/* ---- who is inside ------------------------------------------------------------------------ */

struct yb_client *
yb_compat_store_enter(struct yb_compat_store *store)
{
    struct yb_client *client = NULL;

    YB_ASSERT_OBJ(store, YB_COMPAT_STORE_MAGIC);
    if (store->process != getpid()) {
        return NULL;
    }
    yb_lock_acquire(&store->lock);
    if (store->state == YB_COMPAT_STORE_OPEN) {
        client = store->client;
        store->users++;
    }
    yb_lock_release(&store->lock);
    return client;
}

void
yb_compat_store_leave(struct yb_compat_store *store)
{
    yb_lock_acquire(&store->lock);
    YB_ASSERT(store->users > 0);
    store->users--;
    if (store->users == 0 && store->state == YB_COMPAT_STORE_CLOSING) {
        (void)pthread_cond_broadcast(&store->changed);
    }
    yb_lock_release(&store->lock);
}

/* ---- batches ------------------------------------------------------------------------------ */

void
yb_compat_fill(int32_t *codes, uint32_t count, int32_t code)
{
    for (uint32_t i = 0; i < count; i++) {
        codes[i] = code;
    }
}

bool
yb_compat_items_init(struct yb_compat_items *items, const yb_compat_key *keys, uint32_t count,
                     int32_t unfit, int32_t *codes_out)
{
    *items = (struct yb_compat_items){
        .items = calloc(count, sizeof(*items->items)),
        .keys = malloc(count * sizeof(*items->keys)),
    };
    if (items->items == NULL || items->keys == NULL) {
        yb_compat_items_fini(items);
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (keys[i].iov_base == NULL || keys[i].iov_len == 0 ||
            keys[i].iov_len > YB_CLIENT_KEY_BYTES_MAX) {
            codes_out[i] = unfit;
            continue;
        }
        items->items[items->count].key = keys[i].iov_base;
        items->items[items->count].key_bytes = (uint32_t)keys[i].iov_len;
        items->keys[items->count++] = i;
    }
    return true;
}

void
yb_compat_items_fini(struct yb_compat_items *items)
{
    free(items->items);
    free(items->keys);
    *items = (struct yb_compat_items){0};
}

void
yb_compat_items_run(struct yb_client *client, enum yb_client_op op, struct yb_client_item *items,
                    uint32_t count, const struct yb_client_call *call)
{
    for (uint32_t at = 0; at < count;) {
        uint32_t some = count - at < YB_CLIENT_ITEMS_MAX ? count - at : YB_CLIENT_ITEMS_MAX;
        enum yb_status status = YB_INVALID;

        switch (op) {
        case YB_CLIENT_OP_PUT: status = yb_client_put(client, items + at, some, call); break;
        case YB_CLIENT_OP_GET: status = yb_client_get(client, items + at, some, call); break;
        case YB_CLIENT_OP_EXIST: status = yb_client_exist(client, items + at, some, call); break;
        case YB_CLIENT_OP_REMOVE: status = yb_client_remove(client, items + at, some, call); break;
        }
        for (uint32_t i = 0; i < some && status != YB_OK; i++) {
            items[at + i].status = status;
        }
        at += some;
    }
}

/* ---- how it stands ------------------------------------------------------------------------ */

int32_t
yb_compat_store_health(struct yb_compat_store *store)
{
    static const char key[] = "yuebing/health";
    const struct yb_client_call call = {.struct_bytes = sizeof(call), .timeout_ns = HEALTH_NS};
    struct yb_client_item item = {.key = key, .key_bytes = sizeof(key) - 1};
    struct yb_client *client = yb_compat_store_enter(store);

    if (client == NULL) {
        return 1;
    }
    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, &item, 1, &call);
    yb_compat_store_leave(store);
    return item.status == YB_OK || item.status == YB_NOT_FOUND || item.status == YB_IN_PROGRESS ||
                   item.status == YB_REBUILDING
               ? 0
               : 2;
}

size_t
yb_compat_store_hostname(struct yb_compat_store *store, char *text_out, size_t room)
{
    size_t length = 0;

    if (room > 0) {
        text_out[0] = '\0';
    }
    if (yb_compat_store_enter(store) != NULL) {
        length = strlen(store->hostname);
        if (room > 0) {
            (void)snprintf(text_out, room, "%s", store->hostname);
        }
        yb_compat_store_leave(store);
    }
    return length;
}

bool
yb_compat_store_counters(struct yb_compat_store *store, struct yb_client_counters *counters_out)
{
    struct yb_client *client = yb_compat_store_enter(store);

    *counters_out = (struct yb_client_counters){0};
    if (client == NULL) {
        return false;
    }
    yb_client_counters(client, counters_out);
    yb_compat_store_leave(store);
    return true;
}
