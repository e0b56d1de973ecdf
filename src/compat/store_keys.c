/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether keys are there, how large their values are, and away with them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/store_internal.h"

#define EXIST_AT_ONCE 4096u /* Keys of a question: more fall out of a core's own cache. */

static int32_t
existence(enum yb_status status)
{
    if (status == YB_OK) {
        return 1;
    }
    /* What is being written cannot be read yet. */
    return status == YB_NOT_FOUND || status == YB_IN_PROGRESS
               ? 0
               : yb_compat_code(status, YB_COMPAT_CALL_READ);
}

/* Ask for some keys, until a time. */
static void
exist_some(struct yb_client *client, const yb_compat_key *keys, uint32_t count, uint64_t until_ns,
           int32_t *codes_out)
{
    uint64_t now_ns = yb_clock_now(yb_clock_system());
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = until_ns > now_ns ? until_ns - now_ns : 1,
        .hold_ms = YB_COMPAT_LEASE_MS,
        .brief = true,
    };
    struct yb_compat_items items;

    if (!yb_compat_items_init(&items, keys, count, 0, codes_out)) {
        return;
    }
    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, items.items, items.count, &call);
    for (uint32_t i = 0; i < items.count; i++) {
        codes_out[items.keys[i]] = existence(items.items[i].status);
    }
    yb_compat_items_fini(&items);
}

void
yb_compat_store_exist(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                      int32_t *codes_out)
{
    uint64_t until_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), YB_COMPAT_LOOK_NS);
    struct yb_client *client = yb_compat_store_enter(store);

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    for (uint32_t at = 0; at < count; at += EXIST_AT_ONCE) {
        uint32_t some = count - at < EXIST_AT_ONCE ? count - at : EXIST_AT_ONCE;

        exist_some(client, keys + at, some, until_ns, codes_out + at);
    }
    if (count > 0) {
        yb_compat_zero_asked(store, client, keys, codes_out, count);
    }
    yb_compat_store_leave(store);
}

int64_t
yb_compat_store_size(struct yb_compat_store *store, const yb_compat_key *key)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
    };
    struct yb_client *client = yb_compat_store_enter(store);
    char first;
    const struct iovec room = {&first, 1};
    /* Of a byte that is read the node tells the exact size; the directory's is rounded up. */
    struct yb_client_item item = {.key = key->iov_base,
                                  .key_bytes = (uint32_t)key->iov_len,
                                  .iov = &room,
                                  .iov_count = 1,
                                  .ranged = true};

    if (client == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    if (key->iov_base == NULL || key->iov_len == 0 || key->iov_len > YB_CLIENT_KEY_BYTES_MAX) {
        yb_compat_store_leave(store);
        return YB_COMPAT_OBJECT_NOT_FOUND;
    }
    yb_compat_items_run(client, YB_CLIENT_OP_GET, &item, 1, &call);
    yb_compat_store_leave(store);
    return item.status == YB_OK ? (int64_t)item.size
                                : yb_compat_code(item.status, YB_COMPAT_CALL_READ);
}

void
yb_compat_store_remove(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                       bool force, int32_t *codes_out)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
        .force = force,
    };
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_items items;

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    if (count > 0 &&
        yb_compat_items_init(&items, keys, count, YB_COMPAT_OBJECT_NOT_FOUND, codes_out)) {
        yb_compat_items_run(client, YB_CLIENT_OP_REMOVE, items.items, items.count, &call);
        for (uint32_t i = 0; i < items.count; i++) {
            codes_out[items.keys[i]] = yb_compat_code(items.items[i].status, YB_COMPAT_CALL_REMOVE);
        }
        yb_compat_items_fini(&items);
    }
    yb_compat_store_leave(store);
}

/* How many were removed, or why not. */
static int64_t
removed(enum yb_status status, uint64_t count)
{
    return status == YB_OK ? (int64_t)count : yb_compat_code(status, YB_COMPAT_CALL_REMOVE);
}

int64_t
yb_compat_store_remove_regex(struct yb_compat_store *store, const char *pattern, bool force)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_MOVE_NS,
        .force = force,
    };
    struct yb_client *client = yb_compat_store_enter(store);
    uint64_t count = 0;
    enum yb_status status = YB_INVALID;

    if (client == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    if (pattern != NULL) {
        status = yb_client_remove_matching(client, YB_CLIENT_MATCH_REGEX, pattern, &call, &count);
    }
    yb_compat_store_leave(store);
    return removed(status, count);
}

int64_t
yb_compat_store_remove_all(struct yb_compat_store *store, bool force)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_MOVE_NS,
        .force = force,
    };
    struct yb_client *client = yb_compat_store_enter(store);
    uint64_t count = 0;
    enum yb_status status;

    if (client == NULL) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    status = yb_client_remove_all(client, &call, &count);
    yb_compat_store_leave(store);
    return removed(status, count);
}
