/* SPDX-License-Identifier: Apache-2.0
 *
 * Put and upsert.
 *
 * What callers expect of equal keys, of empty values and of keys that are there already depends on
 * the call (RULES D2, D10); all of it is here. A value that somebody else is writing is waited for.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "compat/store_internal.h"

#define PIECES_MAX     1024u               /* Of one value: the client's bound. */
#define FIRST_PAUSE_NS YB_NS_PER_MS        /* Between looks at what somebody else writes ... */
#define PAUSE_NS       (50 * YB_NS_PER_MS) /* ... up to this. */

#define SOFT_PIN_MS     (30u * 60 * 1000) /* The known store's, if the caller says nothing ... */
#define SOFT_PIN_MS_MAX (24u * 60 * 60 * 1000) /* ... and at most. */

#define GROUP_SEED UINT64_C(0x67726f75702e6964) /* "group.id" */

void
yb_compat_replicate_default(struct yb_compat_replicate *replicate_out)
{
    *replicate_out = (struct yb_compat_replicate){.replica_num = 1};
}

/* ---- what is wanted ------------------------------------------------------------------------ */

bool
yb_compat_replicate_fits(const struct yb_compat_replicate *replicate, enum yb_compat_put kind,
                         uint32_t count)
{
    if (replicate == NULL) {
        return true;
    }
    if (replicate->replica_num <= 0 || replicate->nof_replica_num != 0 ||
        replicate->dfs_replica_num < 0 || replicate->dfs_replica_num > 1) {
        return false;
    }
    if (replicate->soft_pin_action > YB_COMPAT_SOFT_PIN_DISABLE ||
        (replicate->soft_pin_has_ttl && replicate->soft_pin_action != YB_COMPAT_SOFT_PIN_ENABLE)) {
        return false;
    }
    if (replicate->same_node && kind != YB_COMPAT_PUT_PIECES) {
        return false;
    }
    return replicate->groups == NULL || replicate->group_count == count;
}

void
yb_compat_replicate_read(const struct yb_compat_replicate *replicate,
                         struct yb_client_put_options *put)
{
    uint64_t soft_pin_ms = SOFT_PIN_MS;

    if (replicate == NULL) {
        return;
    }
    if (replicate->soft_pin_has_ttl) {
        soft_pin_ms = replicate->soft_pin_ttl_ms;
    }
    /* As many as there can be (RULES D4). */
    put->replicas = replicate->replica_num < YB_CLIENT_REPLICAS_MAX
                        ? (uint32_t)replicate->replica_num
                        : YB_CLIENT_REPLICAS_MAX;
    put->soft_pin = replicate->soft_pin_action == YB_COMPAT_SOFT_PIN_ENABLE && soft_pin_ms > 0;
    put->soft_pin_ms = soft_pin_ms < SOFT_PIN_MS_MAX ? soft_pin_ms : SOFT_PIN_MS_MAX;
    put->hard_pin = replicate->hard_pin;
    put->preferred = replicate->preferred;
}

static uint64_t
group_of(const struct yb_compat_replicate *replicate, const yb_compat_key *first, uint32_t key)
{
    const yb_compat_key *group;
    uint64_t number;

    if (replicate == NULL || (replicate->groups == NULL && !replicate->same_node)) {
        return 0;
    }
    /* What is to lie on one node is a group, which has the name of its first key. */
    group = replicate->groups != NULL ? &replicate->groups[key] : first;
    if (group->iov_len == 0) {
        return 0;
    }
    number = yb_hash_table(GROUP_SEED, group->iov_base, group->iov_len);
    return number != 0 ? number : 1; /* 0 is none. */
}

/* ---- equal keys ---------------------------------------------------------------------------- */

/* A table of the keys of one call, open addressing: item + 1. */
struct twins {
    uint32_t *slots;
    uint32_t mask;
};

static bool
twins_init(struct twins *twins, uint32_t count)
{
    uint32_t room = 16;

    while (room < count * 2 && room < 1u << 31) {
        room *= 2;
    }
    twins->slots = calloc(room, sizeof(*twins->slots));
    twins->mask = room - 1;
    return twins->slots != NULL;
}

/* Return the slot of an item's key. */
static uint32_t *
twins_find(struct twins *twins, const struct yb_client_item *items,
           const struct yb_client_item *wanted)
{
    uint32_t at = (uint32_t)yb_hash_table(0, wanted->key, wanted->key_bytes) & twins->mask;

    for (;; at = (at + 1) & twins->mask) {
        const struct yb_client_item *item =
            twins->slots[at] != 0 ? &items[twins->slots[at] - 1] : NULL;

        if (item == NULL || (item->key_bytes == wanted->key_bytes &&
                             memcmp(item->key, wanted->key, item->key_bytes) == 0)) {
            return &twins->slots[at];
        }
    }
}

/* Of equal keys keep one, the first or the last: `like` of the others is the key whose code is
 * theirs too. Returns false: no memory. */
static bool
drop_twins(struct yb_compat_items *items, bool last, uint32_t *like)
{
    struct twins twins;
    uint32_t kept = 0;

    if (!twins_init(&twins, items->count)) {
        return false;
    }
    for (uint32_t i = 0; i < items->count; i++) {
        struct yb_client_item item = items->items[i];
        uint32_t key = items->keys[i];
        uint32_t *slot = twins_find(&twins, items->items, &item);

        if (*slot == 0) {
            *slot = kept + 1;
            items->keys[kept] = key;
            items->items[kept++] = item;
            continue;
        }
        like[key] = items->keys[*slot - 1];
        if (last) { /* Its value takes the place; the code is found at the first one's key. */
            items->items[*slot - 1] = item;
        }
    }
    items->count = kept;
    free(twins.slots);
    return true;
}

/* ---- waiting for other writers ------------------------------------------------------------- */

/* Rest for a moment. Returns false: the store is being closed. */
static bool
rest(struct yb_compat_store *store, uint64_t pause_ns)
{
    bool open;

    yb_lock_acquire(&store->lock);
    if (store->state == YB_COMPAT_STORE_OPEN) {
        (void)yb_lock_wait(&store->lock, &store->changed, pause_ns);
    }
    open = store->state == YB_COMPAT_STORE_OPEN;
    yb_lock_release(&store->lock);
    return open;
}

/* Put what somebody else was writing again, until it is there, or it is put, or
 * the deadline passes. */
static void
put_contended(struct yb_compat_store *store, struct yb_client *client,
              struct yb_compat_items *items, struct yb_client_call *call, uint64_t deadline_ns)
{
    uint64_t pause_ns = FIRST_PAUSE_NS;

    for (;;) {
        uint64_t now_ns = yb_clock_now(yb_clock_system());
        uint32_t left = 0;

        for (uint32_t i = 0; i < items->count; i++) {
            left += items->items[i].status == YB_IN_PROGRESS ? 1 : 0;
        }
        if (left == 0 || now_ns >= deadline_ns || !rest(store, pause_ns)) {
            return;
        }
        pause_ns = pause_ns * 2 < PAUSE_NS ? pause_ns * 2 : PAUSE_NS;
        for (uint32_t i = 0; i < items->count; i++) {
            if (items->items[i].status == YB_IN_PROGRESS) {
                call->timeout_ns = deadline_ns - now_ns;
                yb_compat_items_run(client, YB_CLIENT_OP_PUT, &items->items[i], 1, call);
            }
        }
    }
}

/* ---- the calls ----------------------------------------------------------------------------- */

/* Give each item its value; those without one, or with too many pieces, have their code already. */
static void
attach_values(struct yb_compat_items *items, const struct yb_compat_value *values,
              const struct yb_compat_put_call *call, int32_t *codes)
{
    bool nothing = call->kind == YB_COMPAT_PUT_PARTS || call->kind == YB_COMPAT_PUT_FROM;
    const yb_compat_key first = {.iov_base = (void *)(uintptr_t)items->items[0].key,
                                 .iov_len = items->items[0].key_bytes};
    uint32_t kept = 0;

    for (uint32_t i = 0; i < items->count; i++) {
        struct yb_client_item item = items->items[i];
        uint32_t key = items->keys[i];
        const struct yb_compat_value *value = &values[key];
        bool usable = value->count <= PIECES_MAX && (value->count == 0 || value->pieces != NULL);
        uint64_t bytes = 0;

        for (uint32_t k = 0; k < value->count && usable; k++) {
            const struct iovec *piece = &value->pieces[k];

            usable = (piece->iov_base != NULL || piece->iov_len == 0) &&
                     piece->iov_len <= YB_CLIENT_VALUE_BYTES_MAX - bytes;
            bytes += usable ? piece->iov_len : 0;
        }
        if (!usable || bytes == 0) {
            codes[key] = usable && nothing ? YB_COMPAT_OK : YB_COMPAT_INVALID_PARAMS;
            continue;
        }
        item.iov = value->pieces;
        item.iov_count = value->count;
        item.group = group_of(call->replicate, &first, key);
        items->keys[kept] = key;
        items->items[kept++] = item;
    }
    items->count = kept;
}

static void
put_items(struct yb_compat_store *store, struct yb_client *client, struct yb_compat_items *items,
          const struct yb_compat_put_call *how)
{
    struct yb_client_call call = {
        .struct_bytes = sizeof(call),
        .timeout_ns = YB_COMPAT_MOVE_NS,
        .put = {.replace = how->upsert},
    };
    uint64_t deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), YB_COMPAT_MOVE_NS);

    yb_compat_replicate_read(how->replicate, &call.put);
    yb_compat_items_run(client, YB_CLIENT_OP_PUT, items->items, items->count, &call);
    put_contended(store, client, items, &call, deadline_ns);
}

/* Whether the caller's bytes are copied on their way, which takes room that setup was to give. */
static bool
copies(enum yb_compat_put kind)
{
    return kind == YB_COMPAT_PUT_VALUE || kind == YB_COMPAT_PUT_PARTS ||
           kind == YB_COMPAT_PUT_BATCH;
}

void
yb_compat_store_put(struct yb_compat_store *store, const yb_compat_key *keys,
                    const struct yb_compat_value *values, uint32_t count,
                    const struct yb_compat_put_call *call, int32_t *codes_out)
{
    /* Otherwise the client's own rule is the one that is wanted. */
    bool sieve = count > 1 && ((call->kind == YB_COMPAT_PUT_BUFFERS && !call->upsert) ||
                               (call->kind == YB_COMPAT_PUT_BATCH && call->upsert));
    struct yb_client *client = yb_compat_store_enter(store);
    struct yb_compat_items items;
    uint32_t *like = NULL;

    yb_compat_fill(codes_out, count, YB_COMPAT_INVALID_PARAMS);
    if (client == NULL) {
        return;
    }
    if (count == 0 || !yb_compat_replicate_fits(call->replicate, call->kind, count) ||
        (copies(call->kind) && store->local_buffer_bytes == 0) ||
        !yb_compat_items_init(&items, keys, count, YB_COMPAT_INVALID_KEY, codes_out)) {
        yb_compat_store_leave(store);
        return;
    }
    attach_values(&items, values, call, codes_out);
    if (sieve && (like = malloc(count * sizeof(*like))) != NULL) {
        for (uint32_t i = 0; i < count; i++) {
            like[i] = i;
        }
        sieve = drop_twins(&items, call->kind == YB_COMPAT_PUT_BUFFERS, like);
    }
    put_items(store, client, &items, call);
    for (uint32_t i = 0; i < items.count; i++) {
        codes_out[items.keys[i]] = yb_compat_code(
            items.items[i].status, call->upsert ? YB_COMPAT_CALL_UPSERT : YB_COMPAT_CALL_PUT);
    }
    for (uint32_t i = 0; i < count && like != NULL; i++) {
        codes_out[i] = codes_out[like[i]];
    }
    free(like);
    yb_compat_items_fini(&items);
    yb_compat_store_leave(store);
}

int32_t
yb_compat_put_staged(struct yb_compat_store *store, struct yb_client *client,
                     const yb_compat_key *key, const struct iovec *bytes,
                     const struct yb_compat_replicate *replicate)
{
    const struct yb_compat_put_call call = {
        .kind = YB_COMPAT_PUT_PIECES,
        .replicate = replicate,
    };
    struct yb_client_item item = {
        .key = key->iov_base,
        .key_bytes = (uint32_t)key->iov_len,
        .iov = bytes,
        .iov_count = 1,
        .group = group_of(replicate, key, 0),
    };
    struct yb_compat_items items = {.items = &item, .count = 1};

    put_items(store, client, &items, &call);
    return yb_compat_code(item.status, YB_COMPAT_CALL_RESERVE);
}
