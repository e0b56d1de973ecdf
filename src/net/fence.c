/* SPDX-License-Identifier: Apache-2.0 */
#include "net/fence.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/lock.h"

#define FENCE_MAGIC  0x66656e63u
#define BUCKETS      1024u
#define TENANT_BYTES (YB_AUTH_TENANT_MAX + 1)

/* What a connection stands for; compared as bytes, so the padding is zeroed. */
struct fence_key {
    struct yb_id identity;
    uint64_t incarnation;
    uint8_t role;
    uint8_t lane;
    uint8_t lane_class;
    uint8_t reserved;
    uint32_t stripe;
    char tenant[TENANT_BYTES];
};

struct yb_fence_place {
    struct yb_fence_place *next; /* In its bucket. */
    struct fence_key key;
    uint64_t newest; /* The highest generation that was here. */
    struct yb_fence_guest *owner;
    struct yb_fence_guest *waiter;
};

struct yb_fence {
    uint32_t magic;
    uint64_t seed;       /* Immutable. */
    struct yb_lock lock; /* Protects everything below, and the fence's part of guests. */
    struct yb_fence_place *buckets[BUCKETS];
};

static struct yb_fence_guest *
guest_of_end(struct yb_mail *mail)
{
    return (struct yb_fence_guest *)((uint8_t *)mail - offsetof(struct yb_fence_guest, end_mail));
}

static struct yb_fence_guest *
guest_of_admit(struct yb_mail *mail)
{
    return (struct yb_fence_guest *)((uint8_t *)mail - offsetof(struct yb_fence_guest, admit_mail));
}

/* ---- mail: on the guest's own worker ---------------------------------------------------- */

/* Note that a mail has come home. Returns whether the guest is still inside. */
static bool
mail_home(struct yb_fence_guest *guest, bool *out)
{
    bool inside;
    bool last;

    yb_lock_acquire(&guest->fence->lock);
    *out = false;
    inside = !guest->left;
    last = guest->left && !guest->end_out && !guest->admit_out;
    yb_lock_release(&guest->fence->lock);
    if (last) {
        guest->gone(guest);
    }
    return inside;
}

static void
run_end(struct yb_mail *mail)
{
    struct yb_fence_guest *guest = guest_of_end(mail);

    if (mail_home(guest, &guest->end_out)) {
        guest->end(guest);
    }
}

static void
run_admit(struct yb_mail *mail)
{
    struct yb_fence_guest *guest = guest_of_admit(mail);

    if (mail_home(guest, &guest->admit_out)) {
        guest->admit(guest);
    }
}

/* Mail needs no credit: a guest has one of each kind, so their number is that of the guests. */
static void
ask_to_end_locked(struct yb_fence_guest *guest)
{
    if (!guest->end_out) {
        guest->end_out = true;
        yb_mailbox_post_reply(yb_loop_mailbox(guest->loop), &guest->end_mail);
    }
}

static void
tell_admitted_locked(struct yb_fence_guest *guest)
{
    YB_ASSERT(!guest->admit_out);
    guest->admit_out = true;
    yb_mailbox_post_reply(yb_loop_mailbox(guest->loop), &guest->admit_mail);
}

/* ---- places ------------------------------------------------------------------------------- */

static void
make_key(const struct yb_hello_result *peer, struct fence_key *key_out)
{
    memset(key_out, 0, sizeof(*key_out));
    key_out->identity = peer->identity;
    key_out->incarnation = peer->incarnation;
    key_out->role = peer->role;
    key_out->lane = peer->lane;
    key_out->lane_class = peer->lane_class;
    key_out->stripe = (uint32_t)(peer->generation >> 48) << 8 | peer->stripe;
    memcpy(key_out->tenant, peer->tenant, sizeof(key_out->tenant));
}

static struct yb_fence_place **
find_locked(struct yb_fence *fence, const struct fence_key *key)
{
    uint64_t hash = yb_hash_table(fence->seed, key, sizeof(*key));
    struct yb_fence_place **link = &fence->buckets[hash % BUCKETS];

    yb_lock_assert_held(&fence->lock);
    while (*link != NULL && memcmp(&(*link)->key, key, sizeof(*key)) != 0) {
        link = &(*link)->next;
    }
    return link;
}

static enum yb_status
enter_locked(struct yb_fence *fence, struct yb_fence_guest *guest, const struct fence_key *key)
{
    struct yb_fence_place **link = find_locked(fence, key);
    struct yb_fence_place *place = *link;

    if (place == NULL) {
        place = calloc(1, sizeof(*place));
        if (place == NULL) {
            return YB_NO_MEMORY;
        }
        place->key = *key;
        place->newest = guest->generation;
        place->owner = guest;
        *link = place;
        guest->place = place;
        return YB_OK;
    }
    if (guest->generation <= place->newest) {
        return YB_STALE;
    }
    place->newest = guest->generation;
    if (place->waiter != NULL) {
        ask_to_end_locked(place->waiter); /* F3 */
        place->waiter->place = NULL;
    }
    place->waiter = guest;
    guest->place = place;
    ask_to_end_locked(place->owner);
    return YB_AGAIN;
}

enum yb_status
yb_fence_enter(struct yb_fence *fence, struct yb_fence_guest *guest,
               const struct yb_hello_result *peer)
{
    struct fence_key key;
    enum yb_status status;

    YB_ASSERT_OBJ(fence, FENCE_MAGIC);
    YB_ASSERT(guest->place == NULL && guest->end != NULL && guest->admit != NULL);
    make_key(peer, &key);
    guest->fence = fence;
    guest->generation = peer->generation;
    yb_mail_init(&guest->end_mail, run_end);
    yb_mail_init(&guest->admit_mail, run_admit);
    yb_lock_acquire(&fence->lock);
    status = enter_locked(fence, guest, &key);
    yb_lock_release(&fence->lock);
    return status;
}

static void
leave_locked(struct yb_fence *fence, struct yb_fence_guest *guest)
{
    struct yb_fence_place *place = guest->place;

    if (place == NULL) {
        return;
    }
    guest->place = NULL;
    if (place->waiter == guest) {
        place->waiter = NULL;
        return;
    }
    YB_ASSERT(place->owner == guest);
    place->owner = place->waiter; /* F2 */
    place->waiter = NULL;
    if (place->owner != NULL) {
        tell_admitted_locked(place->owner);
    } else {
        *find_locked(fence, &place->key) = place->next;
        free(place);
    }
}

bool
yb_fence_leave(struct yb_fence_guest *guest)
{
    struct yb_fence *fence = guest->fence;
    bool free_now;

    if (fence == NULL) {
        return true; /* Never entered. */
    }
    yb_lock_acquire(&fence->lock);
    leave_locked(fence, guest);
    guest->left = true;
    free_now = !guest->end_out && !guest->admit_out;
    yb_lock_release(&fence->lock);
    return free_now;
}

enum yb_status
yb_fence_create(struct yb_fence **fence_out)
{
    struct yb_fence *fence = calloc(1, sizeof(*fence));

    if (fence == NULL) {
        return YB_NO_MEMORY;
    }
    fence->magic = FENCE_MAGIC;
    fence->seed = (uint64_t)(uintptr_t)fence; /* Peers cannot aim at one bucket. */
    yb_lock_init(&fence->lock, YB_LOCK_FENCE);
    *fence_out = fence;
    return YB_OK;
}

void
yb_fence_destroy(struct yb_fence **fence_ref)
{
    struct yb_fence *fence = *fence_ref;

    YB_ASSERT_OBJ(fence, FENCE_MAGIC);
    for (uint32_t i = 0; i < BUCKETS; i++) {
        YB_ASSERT(fence->buckets[i] == NULL);
    }
    *fence_ref = NULL;
    yb_lock_fini(&fence->lock);
    fence->magic = 0;
    free(fence);
}
