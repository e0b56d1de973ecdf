/* SPDX-License-Identifier: Apache-2.0
 *
 * Get: into callers' memory, into ours, and in ranges.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/store_internal.h"

#define PIECES_MAX 1024u /* Of one destination: the client's bound. */
#define TRIES      4u    /* At a value that is replaced by a larger one meanwhile. */

static const struct yb_client_call get_call = {
    .struct_bytes = sizeof(get_call),
    .timeout_ns = YB_COMPAT_MOVE_NS,
};

static int64_t
outcome(const struct yb_client_item *item)
{
    return item->status == YB_OK ? (int64_t)item->bytes
                                 : yb_compat_code(item->status, YB_COMPAT_CALL_READ);
}

/* ---- into callers' memory ------------------------------------------------------------------- */

static bool
value_fits(const struct yb_compat_value *value)
{
    uint64_t bytes = 0;

    if (value->count > PIECES_MAX || (value->count > 0 && value->pieces == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < value->count; i++) {
        const struct iovec *piece = &value->pieces[i];

        if ((piece->iov_base == NULL && piece->iov_len > 0) ||
            piece->iov_len > YB_CLIENT_VALUE_BYTES_MAX - bytes) {
            return false;
        }
        bytes += piece->iov_len;
    }
    return true;
}

void
yb_compat_store_get_into(struct yb_compat_store *store, const yb_compat_key *keys,
                         const struct yb_compat_value *into, uint32_t count, int64_t *codes_out)
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_items items = {0};
    uint32_t kept = 0;
    int32_t *codes;

    for (uint32_t i = 0; i < count; i++) {
        codes_out[i] = YB_COMPAT_INVALID_PARAMS;
    }
    if (client == NULL) {
        return;
    }
    codes = count > 0 ? malloc(count * sizeof(*codes)) : NULL;
    if (codes != NULL) {
        yb_compat_fill(codes, count, YB_COMPAT_INVALID_PARAMS);
    }
    if (codes != NULL &&
        yb_compat_items_init(&items, keys, count, YB_COMPAT_OBJECT_NOT_FOUND, codes)) {
        for (uint32_t i = 0; i < count; i++) {
            codes_out[i] = codes[i]; /* Of keys that cannot be. */
        }
        for (uint32_t i = 0; i < items.count; i++) {
            struct yb_client_item item = items.items[i];
            const struct yb_compat_value *value = &into[items.keys[i]];

            if (value_fits(value)) {
                item.iov = value->pieces;
                item.iov_count = value->count;
                items.keys[kept] = items.keys[i];
                items.items[kept++] = item;
            }
        }
        items.count = kept;
        yb_compat_items_run(client, YB_CLIENT_OP_GET, items.items, items.count, &get_call);
        for (uint32_t i = 0; i < items.count; i++) {
            codes_out[items.keys[i]] = outcome(&items.items[i]);
        }
        yb_compat_items_fini(&items);
    }
    free(codes);
    yb_compat_store_leave(store);
}

/* ---- into our memory ------------------------------------------------------------------------ */

/* One get: which keys are still to be got, and where their bytes go. */
struct fetch {
    struct yb_compat_items items;
    struct iovec *iov; /* Of each key. */
    uint64_t room;     /* Bytes that the call may still take. */
};

/* Make room for the value of a key as large as it was found to be. */
static int32_t
make_room(struct fetch *fetch, uint32_t key, uint64_t bytes)
{
    struct iovec *iov = &fetch->iov[key];

    free(iov->iov_base);
    fetch->room += iov->iov_len;
    *iov = (struct iovec){0};
    if (bytes > fetch->room || bytes > YB_CLIENT_VALUE_BYTES_MAX) {
        return YB_COMPAT_INVALID_PARAMS;
    }
    iov->iov_base = malloc(bytes > 0 ? bytes : 1);
    if (iov->iov_base == NULL) {
        return YB_COMPAT_INTERNAL_ERROR;
    }
    iov->iov_len = bytes;
    fetch->room -= bytes;
    return YB_COMPAT_OK;
}

/* Ask how large the values are, and make room. Items without a value, or without room, leave. */
static void
measure(struct yb_client *client, struct fetch *fetch, struct yb_compat_buffer *buffers)
{
    struct yb_compat_items *items = &fetch->items;
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
    };
    uint32_t kept = 0;

    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, items->items, items->count, &call);
    for (uint32_t i = 0; i < items->count; i++) {
        struct yb_client_item item = items->items[i];
        uint32_t key = items->keys[i];
        int32_t code = yb_compat_code(item.status, YB_COMPAT_CALL_READ);

        code = code == YB_COMPAT_OK ? make_room(fetch, key, item.size) : code;
        buffers[key].code = code;
        if (code == YB_COMPAT_OK) {
            item.iov = &fetch->iov[key];
            item.iov_count = 1;
            items->keys[kept] = key;
            items->items[kept++] = item;
        }
    }
    items->count = kept;
}

/* Read what has room. What was replaced by a larger value since gets more, and stays. */
static void
read_measured(struct yb_client *client, struct fetch *fetch, struct yb_compat_buffer *buffers)
{
    struct yb_compat_items *items = &fetch->items;
    uint32_t kept = 0;

    yb_compat_items_run(client, YB_CLIENT_OP_GET, items->items, items->count, &get_call);
    for (uint32_t i = 0; i < items->count; i++) {
        struct yb_client_item item = items->items[i];
        uint32_t key = items->keys[i];

        buffers[key].code = yb_compat_code(item.status, YB_COMPAT_CALL_READ);
        if (item.status == YB_OK) {
            buffers[key].data = fetch->iov[key].iov_base;
            buffers[key].bytes = item.bytes;
            fetch->iov[key].iov_base = NULL;
        } else if (item.status == YB_TOO_SMALL &&
                   make_room(fetch, key, item.size) == YB_COMPAT_OK) {
            items->keys[kept] = key;
            items->items[kept++] = item;
        }
    }
    items->count = kept;
}

void
yb_compat_store_get(struct yb_compat_store *store, const yb_compat_key *keys, uint32_t count,
                    struct yb_compat_buffer *buffers_out)
{
    struct yb_client *client = yb_compat_store_enter(store);
    struct fetch fetch = {0};
    int32_t *codes;

    for (uint32_t i = 0; i < count; i++) {
        buffers_out[i] = (struct yb_compat_buffer){.code = YB_COMPAT_INVALID_PARAMS};
    }
    if (client == NULL) {
        return;
    }
    fetch.room = store->local_buffer_bytes;
    codes = count > 0 ? malloc(count * sizeof(*codes)) : NULL;
    fetch.iov = count > 0 ? calloc(count, sizeof(*fetch.iov)) : NULL;
    if (codes != NULL && fetch.iov != NULL && fetch.room > 0) {
        yb_compat_fill(codes, count, YB_COMPAT_INVALID_PARAMS);
        if (yb_compat_items_init(&fetch.items, keys, count, YB_COMPAT_OBJECT_NOT_FOUND, codes)) {
            for (uint32_t i = 0; i < count; i++) {
                buffers_out[i].code = codes[i];
            }
            measure(client, &fetch, buffers_out);
            for (uint32_t i = 0; i < TRIES && fetch.items.count > 0; i++) {
                read_measured(client, &fetch, buffers_out);
            }
            yb_compat_items_fini(&fetch.items);
        }
    }
    for (uint32_t i = 0; i < count && fetch.iov != NULL; i++) {
        free(fetch.iov[i].iov_base);
    }
    free(fetch.iov);
    free(codes);
    yb_compat_store_leave(store);
}

void
yb_compat_buffer_free(struct yb_compat_buffer *buffer)
{
    free(buffer->data);
    *buffer = (struct yb_compat_buffer){0};
}

/* ---- in ranges ------------------------------------------------------------------------------ */

/* Find out how large the values are. `sizes` and `codes` of every key are written. */
static bool
look_up(struct yb_client *client, const yb_compat_key *keys, uint32_t count, uint64_t *sizes,
        int32_t *codes)
{
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_LOOK_NS,
    };
    struct yb_compat_items items;

    if (!yb_compat_items_init(&items, keys, count, YB_COMPAT_OBJECT_NOT_FOUND, codes)) {
        return false;
    }
    yb_compat_items_run(client, YB_CLIENT_OP_EXIST, items.items, items.count, &call);
    for (uint32_t i = 0; i < items.count; i++) {
        codes[items.keys[i]] = yb_compat_code(items.items[i].status, YB_COMPAT_CALL_READ);
        sizes[items.keys[i]] = items.items[i].size;
    }
    yb_compat_items_fini(&items);
    return true;
}

/* Read those ranges that lie in their values. */
static void
read_ranges(struct yb_client *client, const yb_compat_key *keys, const uint64_t *sizes,
            const int32_t *codes, struct yb_compat_range *ranges, uint32_t count)
{
    struct yb_client_item *items = calloc(count, sizeof(*items));
    struct iovec *iov = calloc(count, sizeof(*iov));
    uint32_t *of = calloc(count, sizeof(*of));
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count && items != NULL && iov != NULL && of != NULL; i++) {
        struct yb_compat_range *range = &ranges[i];
        uint64_t size = range->code_out == 0 ? sizes[range->key] : 0;

        if (range->code_out != 0 || codes[range->key] != YB_COMPAT_OK) {
            range->code_out = range->code_out != 0 ? range->code_out : codes[range->key];
        } else if (range->source > size || range->bytes > size - range->source) {
            range->code_out = YB_COMPAT_INVALID_PARAMS;
        } else if (range->bytes > 0) {
            iov[kept] = (struct iovec){.iov_base = range->into, .iov_len = range->bytes};
            items[kept] = (struct yb_client_item){
                .key = keys[range->key].iov_base,
                .key_bytes = (uint32_t)keys[range->key].iov_len,
                .iov = &iov[kept],
                .iov_count = 1,
                .offset = range->source,
                .ranged = true,
            };
            of[kept++] = i;
        }
    }
    yb_compat_items_run(client, YB_CLIENT_OP_GET, items, kept, &get_call);
    for (uint32_t i = 0; i < kept; i++) {
        ranges[of[i]].code_out = items[i].status == YB_OK && items[i].bytes < ranges[of[i]].bytes
                                     ? YB_COMPAT_INVALID_PARAMS /* It was replaced meanwhile. */
                                     : outcome(&items[i]);
    }
    free(of);
    free(iov);
    free(items);
}

void
yb_compat_store_get_ranges(struct yb_compat_store *store, const yb_compat_key *keys,
                           uint32_t key_count, struct yb_compat_range *ranges, uint32_t count)
{
    struct yb_client *client = yb_compat_store_enter(store);
    uint64_t *sizes = NULL;
    int32_t *codes = NULL;

    for (uint32_t i = 0; i < count; i++) {
        ranges[i].code_out = client == NULL || ranges[i].key >= key_count ||
                                     (ranges[i].into == NULL && ranges[i].bytes > 0)
                                 ? YB_COMPAT_INVALID_PARAMS
                                 : 0;
    }
    if (client == NULL) {
        return;
    }
    if (key_count > 0 && count > 0 && (sizes = calloc(key_count, sizeof(*sizes))) != NULL &&
        (codes = calloc(key_count, sizeof(*codes))) != NULL &&
        look_up(client, keys, key_count, sizes, codes)) {
        read_ranges(client, keys, sizes, codes, ranges, count);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            ranges[i].code_out = YB_COMPAT_INVALID_PARAMS;
        }
    }
    free(codes);
    free(sizes);
    yb_compat_store_leave(store);
}
