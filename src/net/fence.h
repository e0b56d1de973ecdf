/* SPDX-License-Identifier: Apache-2.0
 *
 * fence.h -- a newer connection of a peer waits until its older one is gone.
 *
 * A peer that lost patience with a connection makes another one and sends again.
 * What it sent before may still lie in a socket that this side has not read. If
 * that were applied behind what comes now, old bytes would end up on top of new
 * ones (RULES A2). So connections that stand for the same thing, one lane of one
 * life of one process, are put in line: the newer one is welcomed only after the
 * worker that owns the older one has closed it.
 *
 *     newer connection's worker                older connection's worker
 *
 *     enter: AGAIN  -------- please end ------->  close
 *     (held before its welcome)                   ...
 *     admit         <------- it is gone --------  leave, when it is closed
 *
 * Generations order the connections of a peer. An older one that comes late is
 * refused; nobody else can play that trick, since a connection enters only after its
 * peer has proved, on this very connection, to be alive and who it is.
 *
 * Invariants
 *   F1  Of all connections with one key, at most one is owner, and only an owner is
 *       welcome.
 *   F2  The owner's place passes on only in leave, which its worker calls after the
 *       connection's last callback.
 *   F3  Of several newer ones only the newest waits; the others are told to go.
 *
 * Threads   enter and leave: the worker of the guest. One lock per fence, rank FENCE.
 *           `end` and `admit` are called on the worker of the guest that they name.
 * Memory    A guest is embedded in whatever owns the connection. It may be freed when
 *           yb_fence_leave() returned true, or when `gone` is called after that.
 */
#ifndef YB_NET_FENCE_H
#define YB_NET_FENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/hello.h"
#include "net/loop.h"
#include "yuebing/status.h"

struct yb_fence;
struct yb_fence_place;

struct yb_fence_guest {
    /* ---- filled in before enter ---- */
    struct yb_loop *loop;                        /* Of the guest's worker. */
    void (*end)(struct yb_fence_guest *guest);   /* A newer connection waits: close yours. */
    void (*admit)(struct yb_fence_guest *guest); /* You are the owner now. */
    void (*gone)(struct yb_fence_guest *guest);  /* After leave: the last mail has come home. */

    /* ---- the fence's ---- */
    struct yb_fence *fence;
    struct yb_fence_place *place; /* NULL: not entered, or left. */
    uint64_t generation;
    struct yb_mail end_mail;   /* To this guest: end. */
    struct yb_mail admit_mail; /* To this guest: admit. */
    bool end_out;              /* The mail is under way ... */
    bool admit_out;            /* ... and so the guest must stay. */
    bool left;
};

YB_CHECKED enum yb_status yb_fence_create(struct yb_fence **fence_out);

/* Consume the fence and set it to NULL; nobody may be inside. */
void yb_fence_destroy(struct yb_fence **fence);

/* Enter with what the handshake found. OK: the guest is the owner. AGAIN: it waits, and `admit`
 * will be called unless it leaves first. STALE: a newer connection was here. NO_MEMORY. After
 * anything but OK and AGAIN the guest is not inside. */
YB_CHECKED enum yb_status yb_fence_enter(struct yb_fence *fence, struct yb_fence_guest *guest,
                                         const struct yb_hello_result *peer);

/* Leave; harmless for a guest that never entered. Returns true if the guest may be freed at once;
 * otherwise `gone` will be called. */
bool yb_fence_leave(struct yb_fence_guest *guest);

#endif /* YB_NET_FENCE_H */
