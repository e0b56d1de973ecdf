/* SPDX-License-Identifier: Apache-2.0
 *
 * Peers by name: opened once, shared by all calls, opened anew after they were lost (E3). One that
 * was lost stays open until the calls that use it are out, but nobody finds it any more.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "compat/engine_internal.h"
#include "net/address.h"

struct yb_compat_engine_peer {
    struct yb_compat_engine_peer *next;
    yb_transfer_peer handle;
    uint32_t users;
    bool listed; /* It is found by its name. */
    char name[];
};

yb_transfer_peer
yb_compat_engine_peer_handle(const struct yb_compat_engine_peer *peer)
{
    return peer->handle;
}

const char *
yb_compat_engine_peer_name(const struct yb_compat_engine_peer *peer)
{
    return peer->name;
}

/* ---- the list -------------------------------------------------------------------------------- */

static void
unlist_locked(struct yb_compat_engine *engine, struct yb_compat_engine_peer *peer)
{
    struct yb_compat_engine_peer **link = &engine->peers;

    yb_lock_assert_held(&engine->lock);
    while (*link != peer) {
        link = &(*link)->next;
    }
    *link = peer->next;
    peer->listed = false;
    engine->peer_count--;
}

static void
list_locked(struct yb_compat_engine *engine, struct yb_compat_engine_peer *peer)
{
    yb_lock_assert_held(&engine->lock);
    peer->next = engine->peers;
    engine->peers = peer;
    peer->listed = true;
    engine->peer_count++;
}

static struct yb_compat_engine_peer *
find_locked(struct yb_compat_engine *engine, const char *name)
{
    struct yb_compat_engine_peer *peer = engine->peers;

    yb_lock_assert_held(&engine->lock);
    while (peer != NULL && strcmp(peer->name, name) != 0) {
        peer = peer->next;
    }
    if (peer != NULL && peer != engine->peers) {
        unlist_locked(engine, peer);
        list_locked(engine, peer);
    }
    return peer;
}

/* When there are many, take out one that nobody has used for the longest. NULL: no need, or all
 * are in use. */
static struct yb_compat_engine_peer *
make_room_locked(struct yb_compat_engine *engine)
{
    struct yb_compat_engine_peer *oldest = NULL;

    yb_lock_assert_held(&engine->lock);
    for (struct yb_compat_engine_peer *peer = engine->peers; peer != NULL; peer = peer->next) {
        oldest = peer->users == 0 ? peer : oldest;
    }
    if (engine->peer_count < YB_COMPAT_PEERS_MAX || oldest == NULL) {
        return NULL;
    }
    unlist_locked(engine, oldest);
    return oldest;
}

static void
close_peer(struct yb_compat_engine *engine, struct yb_compat_engine_peer *peer)
{
    if (peer == NULL) {
        return;
    }
    if (yb_transfer_close(engine->transfer, peer->handle) != YB_OK) {
        yb_log_debug(engine->log, "engine", "a peer was closed before",
                     yb_log_str("peer", peer->name));
    }
    free(peer);
}

/* ---- names ----------------------------------------------------------------------------------- */

static bool
has_port(const char *name)
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];

    return yb_endpoint_parse(name, &endpoint, why) == YB_OK && endpoint.has_port;
}

/* Ask a new peer who it is. By then it is also known which ways lead there, so that the first bytes
 * take the best of them. One that is slow may still answer in time for what is sent to it. */
static bool
answers(struct yb_compat_engine *engine, const struct yb_compat_engine_peer *peer)
{
    struct yb_transfer_probe probe;
    enum yb_status status =
        yb_transfer_ask(engine->transfer, peer->handle, engine->probe_ns, &probe);

    if (status == YB_OK || status == YB_TIMED_OUT) {
        return true;
    }
    yb_log_warn(engine->log, "engine", "a peer does not answer", yb_log_str("peer", peer->name),
                yb_log_status("status", status));
    return false;
}

static struct yb_compat_engine_peer *
open_peer(struct yb_compat_engine *engine, const char *name)
{
    struct yb_compat_engine_peer *peer = calloc(1, sizeof(*peer) + strlen(name) + 1);
    char address[YB_COMPAT_NAME_BYTES];
    enum yb_status status;

    if (peer == NULL) {
        return NULL;
    }
    memcpy(peer->name, name, strlen(name) + 1);
    (void)snprintf(address, sizeof(address), "%s", name);
    if (!has_port(name) &&
        (engine->server[0] == '\0' || !yb_compat_metadata_resolve(engine, name, address))) {
        yb_log_warn(engine->log, "engine",
                    "a peer's name has no port and no server knows it; give host:port",
                    yb_log_str("peer", name), yb_log_str("server", engine->server));
        free(peer);
        return NULL;
    }
    status = yb_transfer_open(engine->transfer, address, &peer->handle);
    if (status != YB_OK) {
        yb_log_warn(engine->log, "engine", "a peer cannot be opened", yb_log_str("peer", name),
                    yb_log_str("address", address), yb_log_status("status", status));
        free(peer);
        return NULL;
    }
    if (!answers(engine, peer)) {
        close_peer(engine, peer);
        return NULL;
    }
    return peer;
}

/* ---- take and give --------------------------------------------------------------------------- */

struct yb_compat_engine_peer *
yb_compat_engine_peer_take(struct yb_compat_engine *engine, const char *target)
{
    struct yb_compat_engine_peer *peer;
    struct yb_compat_engine_peer *old = NULL;
    struct yb_compat_engine_peer *spare;

    if (target == NULL || target[0] == '\0' || strlen(target) >= YB_COMPAT_NAME_BYTES) {
        yb_log_warn(engine->log, "engine", "a peer has no name, or too long a one");
        return NULL;
    }
    yb_lock_acquire(&engine->lock);
    peer = find_locked(engine, target);
    if (peer != NULL) {
        peer->users++;
    }
    yb_lock_release(&engine->lock);
    if (peer != NULL) {
        return peer;
    }
    spare = open_peer(engine, target);
    if (spare == NULL) {
        return NULL;
    }
    yb_lock_acquire(&engine->lock);
    peer = find_locked(engine, target); /* Another thread may have been first. */
    if (peer == NULL) {
        old = make_room_locked(engine);
        list_locked(engine, spare);
        peer = spare;
        spare = NULL;
    }
    peer->users++;
    yb_lock_release(&engine->lock);
    close_peer(engine, spare);
    close_peer(engine, old);
    return peer;
}

void
yb_compat_engine_peer_give(struct yb_compat_engine *engine, struct yb_compat_engine_peer *peer,
                           bool lost)
{
    bool last;

    yb_lock_acquire(&engine->lock);
    YB_ASSERT(peer->users > 0);
    peer->users--;
    if (lost && peer->listed) {
        unlist_locked(engine, peer);
    }
    last = peer->users == 0 && !peer->listed;
    yb_lock_release(&engine->lock);
    if (last) {
        close_peer(engine, peer);
    }
}

void
yb_compat_engine_peers_fini(struct yb_compat_engine *engine)
{
    struct yb_compat_engine_peer *next;

    for (struct yb_compat_engine_peer *peer = engine->peers; peer != NULL; peer = next) {
        next = peer->next;
        free(peer); /* The engine below closes them all. */
    }
    engine->peers = NULL;
}
