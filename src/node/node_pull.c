/* SPDX-License-Identifier: Apache-2.0
 *
 * Puts whose bytes the node fetches from the sender's memory, through the transfer engine.
 *
 *     handle    decode, check, take records and extents; what is refused is not fetched
 *     BYTES     one batch of reads, by address, into the extents
 *     TICKET    one more read: does the sender still keep the values as they are?
 *     commit    as of any put: sums, publications, the reply (node_put.c)
 *
 * Nobody but the node ever writes its pool: a sender that was given up, stopped or killed can be
 * read from late, and cannot write late (RULES A1, A4). What was read late is found out by the
 * ticket: a word that the sender clears before it lets go of the values. It is read by a batch of
 * its own, which begins when the last byte is here.
 *
 * What cannot be fetched soon is UNREACHABLE: the sender sends it, in a put of its own. Values of a
 * device he cannot send: they are fetched for as long as the request lasts.
 *
 * The engine that is read from must have the sender's identity, so that nobody can have a node read
 * the memory of a third one.
 *
 * Threads   The engine's `done` runs on its worker and posts mail; all else is the loop's.
 * Memory    A put keeps its extents until its batch has ended, when nothing writes them any more.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "node/node_internal.h"
#include "transfer/near.h"

#define PEERS       128u /* Engines that are kept open. */
#define PIECES_MAX  YB_WIRE_PUT_PULL_SOURCES_MAX
#define IDLE_NS     (30 * YB_NS_PER_S)
#define ADDRESS_MAX 64u

/* A fetch that takes longer than this is given up before the request's time is over, so that the
 * sender can send: his engine may be out of reach, which shows by nothing else. */
#define PULL_NS        (1 * YB_NS_PER_S)
#define PULL_BYTE_NS   20u                /* 50 MB/s */
#define UNREACHABLE_NS (10 * YB_NS_PER_S) /* Then such a sender is not even tried. */

struct pull_peer {
    struct yb_id identity;
    char address[ADDRESS_MAX];
    yb_transfer_peer handle; /* 0: free. */
    uint32_t users;
    uint64_t used_ns;
    uint64_t failed_until_ns;
};

struct yb_node_pulls {
    struct pull_peer peers[PEERS];
    uint32_t look_at; /* The next one to be looked at: does anybody use it? */
    struct yb_transfer_item items[PIECES_MAX];
    struct yb_transfer_item_status statuses[PIECES_MAX];
};

enum yb_status
yb_node_pulls_create(struct yb_node *node)
{
    if (node->options.engine == NULL) {
        return YB_OK;
    }
    node->pulls = calloc(1, sizeof(*node->pulls));
    return node->pulls != NULL ? YB_OK : YB_NO_MEMORY;
}

/* ---- engines of senders ---------------------------------------------------------------------- */

static void
close_peer(struct yb_node *node, struct pull_peer *peer)
{
    YB_ASSERT(peer->users == 0);
    if (yb_transfer_close(node->options.engine, peer->handle) != YB_OK) {
        YB_ASSERT(false); /* Nobody else closes it. */
    }
    peer->handle = 0;
}

void
yb_node_pulls_destroy(struct yb_node *node)
{
    for (uint32_t i = 0; node->pulls != NULL && i < PEERS; i++) {
        if (node->pulls->peers[i].handle != 0) {
            close_peer(node, &node->pulls->peers[i]);
        }
    }
    free(node->pulls);
    node->pulls = NULL;
}

/* Find a place for a sender: its own, a free one, or the one that was used longest ago. NULL: all
 * are in use. */
static struct pull_peer *
place_of(struct yb_node_pulls *pulls, struct yb_id identity, const char *address)
{
    struct pull_peer *oldest = NULL;

    for (uint32_t i = 0; i < PEERS; i++) {
        struct pull_peer *peer = &pulls->peers[i];

        if (peer->handle != 0 && yb_id_equal(peer->identity, identity) &&
            strcmp(peer->address, address) == 0) {
            return peer;
        }
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct pull_peer *peer = &pulls->peers[i];

        if (peer->handle == 0) {
            return peer;
        }
        if (peer->users == 0 && (oldest == NULL || peer->used_ns < oldest->used_ns)) {
            oldest = peer;
        }
    }
    return oldest;
}

/* Take the engine that a message names, as the sender's. */
static enum yb_status
take_peer(struct yb_node_put *put, struct yb_wire_text address)
{
    struct yb_node *node = put->node;
    struct yb_id identity = put->request->peer->identity;
    char text[ADDRESS_MAX] = "";
    struct pull_peer *peer;
    enum yb_status status;

    YB_ASSERT(address.length < sizeof(text));
    if (address.length > 0) {
        memcpy(text, address.bytes, address.length);
    }
    peer = place_of(node->pulls, identity, text);
    if (peer == NULL) {
        return YB_AGAIN;
    }
    if (peer->handle != 0 &&
        (!yb_id_equal(peer->identity, identity) || strcmp(peer->address, text) != 0)) {
        close_peer(node, peer);
    }
    if (peer->handle == 0) {
        status = yb_transfer_open_as(node->options.engine, text, identity, &peer->handle);
        if (status != YB_OK) {
            peer->handle = 0;
            return YB_UNREACHABLE;
        }
        peer->failed_until_ns = 0;
        peer->identity = identity;
        memcpy(peer->address, text, sizeof(text));
    }
    if (!put->only_way && yb_node_now(node) < peer->failed_until_ns) {
        return YB_UNREACHABLE;
    }
    peer->users++;
    peer->used_ns = yb_node_now(node);
    put->pull_peer = (uint32_t)(peer - node->pulls->peers);
    return YB_OK;
}

void
yb_node_pull_tick(struct yb_node *node)
{
    struct pull_peer *peer;

    if (node->pulls == NULL) {
        return;
    }
    peer = &node->pulls->peers[node->pulls->look_at];
    node->pulls->look_at = (node->pulls->look_at + 1) % PEERS;
    if (peer->handle != 0 && peer->users == 0 && yb_node_now(node) - peer->used_ns > IDLE_NS) {
        close_peer(node, peer);
    }
}

/* ---- batches --------------------------------------------------------------------------------- */

static void
on_batch(struct yb_transfer *engine, yb_transfer_batch batch, void *owner)
{
    struct yb_node_put *put = owner;

    (void)engine;
    (void)batch;
    yb_mailbox_post_reply(yb_loop_mailbox(yb_net_loop(put->node->net)), &put->pull_mail);
}

/* How long a batch may take. */
static uint64_t
patience(const struct yb_node_put *put, uint64_t bytes)
{
    uint64_t now_ns = yb_node_now(put->node);
    uint64_t left_ns = put->deadline_ns > now_ns ? put->deadline_ns - now_ns : YB_NS_PER_MS;
    uint64_t fair_ns = yb_deadline_after(PULL_NS, bytes * PULL_BYTE_NS);

    return put->only_way || left_ns < fair_ns ? left_ns : fair_ns;
}

static enum yb_status
submit(struct yb_node_put *put, enum yb_node_pull_phase phase, uint32_t count)
{
    struct yb_node *node = put->node;
    struct yb_node_pulls *pulls = node->pulls;
    struct yb_transfer_batch_options options = {
        .struct_bytes = sizeof(options),
        .work_class = put->request->class,
        .trace_id = put->request->trace_id,
        .parent_span = put->request->span_id,
        .done = on_batch,
        .owner = put,
    };
    uint64_t bytes = 0;
    enum yb_status status;

    for (uint32_t i = 0; i < count; i++) {
        bytes += pulls->items[i].length;
    }
    options.timeout_ns = patience(put, bytes);
    status = yb_transfer_submit(node->options.engine, pulls->peers[put->pull_peer].handle,
                                pulls->items, count, &options, &put->pull_batch);

    if (status == YB_OK) {
        put->pull = phase;
    }
    return status;
}

void
yb_node_pull_stop(struct yb_node_put *put)
{
    if (yb_transfer_cancel(put->node->options.engine, put->pull_batch) != YB_OK) {
        YB_ASSERT(false); /* Its mail has not come, so that it is not released. */
    }
}

/* Nothing of this put is fetched any more. */
static void
leave(struct yb_node_put *put)
{
    struct pull_peer *peer = &put->node->pulls->peers[put->pull_peer];

    YB_ASSERT(peer->users > 0);
    peer->users--;
    put->pull = YB_NODE_PULL_NONE;
}

/* ---- what came ------------------------------------------------------------------------------- */

/* Why bytes did not come, as the sender is told: with UNREACHABLE he may send them. */
static enum yb_status
failure(const struct yb_node_put *put)
{
    if (put->node->stopping) {
        return YB_CLOSED;
    }
    return yb_node_now(put->node) >= put->deadline_ns ? YB_TIMED_OUT : YB_UNREACHABLE;
}

/* Give up the items of which not every byte came. Returns how many are left that some came for. */
static uint32_t
judge(struct yb_node_put *put)
{
    const struct yb_transfer_item_status *status = put->node->pulls->statuses;
    uint32_t good = 0;

    for (uint32_t i = 0; i < put->count; i++) {
        bool whole = true;

        for (uint32_t k = 0; k < put->pull_pieces[i]; k++, status++) {
            whole = whole && status->status == YB_OK;
        }
        if (put->pull_pieces[i] == 0) {
            continue;
        }
        if (whole && !put->node->stopping) {
            good++;
        } else {
            yb_node_put_refuse(&put->items[i], failure(put));
            put->pull_pieces[i] = 0;
        }
    }
    return good;
}

/* Give up everything that was fetched. */
static void
refuse_all(struct yb_node_put *put, enum yb_status status)
{
    for (uint32_t i = 0; i < put->count; i++) {
        if (put->pull_pieces[i] != 0) {
            yb_node_put_refuse(&put->items[i], status);
        }
    }
}

/* Ask for the sender's ticket. */
static enum yb_status
look(struct yb_node_put *put)
{
    put->ticket_seen = 0;
    put->node->pulls->items[0] = (struct yb_transfer_item){
        .op = YB_TRANSFER_READ,
        .local = &put->ticket_seen,
        .length = sizeof(put->ticket_seen),
        .remote = YB_TRANSFER_BY_ADDRESS,
        .remote_offset = put->ticket_at,
    };
    return submit(put, YB_NODE_PULL_TICKET, 1);
}

/* A batch has ended: nothing is written here any more. */
static void
on_mail(struct yb_mail *mail)
{
    struct yb_node_put *put =
        (struct yb_node_put *)((uint8_t *)mail - offsetof(struct yb_node_put, pull_mail));
    struct yb_node *node = put->node;
    struct yb_transfer_batch_status end;
    enum yb_status status = yb_transfer_poll(node->options.engine, put->pull_batch, &end,
                                             node->pulls->statuses, PIECES_MAX);

    YB_ASSERT(status == YB_OK);
    if (yb_transfer_release(node->options.engine, put->pull_batch) != YB_OK) {
        YB_ASSERT(false); /* It has ended, and nobody else knows it. */
    }
    if (put->pull == YB_NODE_PULL_BYTES) {
        if (end.bytes == 0 && end.status != YB_STALE && end.status != YB_NOT_FOUND &&
            end.status != YB_FAULT && !node->stopping) {
            node->pulls->peers[put->pull_peer].failed_until_ns = yb_node_now(node) + UNREACHABLE_NS;
        }
        if (judge(put) > 0) {
            status = look(put);
            if (status == YB_OK) {
                return;
            }
            refuse_all(put, failure(put));
        }
    } else if (end.status != YB_OK || node->stopping) {
        refuse_all(put, failure(put));
    } else if (put->ticket_seen != put->ticket) {
        refuse_all(put, YB_CANCELLED); /* He has let go of them, and waits for nothing. */
    }
    leave(put);
    yb_node_put_commit(put);
}

/* ---- the request ----------------------------------------------------------------------------- */

/* Append the reads of one item. `at` is its first source. Returns the next item's, UINT32_MAX: the
 * sources do not fit the items. */
static uint32_t
plan_item(struct yb_node_put *put, uint32_t index, const struct yb_wire_put_pull *body, uint32_t at,
          uint32_t *count)
{
    struct yb_node_put_item *item = &put->items[index];
    uint8_t *to = NULL;
    uint64_t bytes = 0;

    if (item->block != NULL) {
        to = yb_dram_bytes(put->node->pool, &item->block->extent);
    }
    put->pull_pieces[index] = 0;
    while (bytes < item->size) {
        struct yb_wire_pull_source source;

        if (at == body->sources.count) {
            return UINT32_MAX;
        }
        yb_wire_pull_source_at(&body->sources, at++, &source);
        if (source.length == 0 || source.length > item->size - bytes) {
            return UINT32_MAX;
        }
        if (to != NULL) {
            put->node->pulls->items[(*count)++] = (struct yb_transfer_item){
                .op = YB_TRANSFER_READ,
                .local = to + bytes,
                .length = source.length,
                .remote = YB_TRANSFER_BY_ADDRESS,
                .remote_offset = source.address,
            };
            put->pull_pieces[index]++;
        }
        bytes += source.length;
    }
    return at;
}

/* Find places for all items, and plan the reads. */
static enum yb_status
plan(struct yb_node_put *put, const struct yb_wire_put_pull *body, uint32_t tenant,
     uint32_t *count_out)
{
    uint32_t source = 0;
    size_t at = 0;

    *count_out = 0;
    for (uint32_t i = 0; i < body->items.count; i++) {
        struct yb_wire_put_item wire;

        yb_wire_put_item_at(&body->items, i, &wire);
        if (wire.key_bytes == 0 || at + wire.key_bytes > body->keys.length) {
            return YB_PROTOCOL;
        }
        yb_node_put_item_place(put, &wire, body->keys.bytes + at, tenant, body->write);
        at += wire.key_bytes;
        source = plan_item(put, i, body, source, count_out);
        if (source == UINT32_MAX) {
            return YB_PROTOCOL;
        }
    }
    return at == body->keys.length && source == body->sources.count ? YB_OK : YB_PROTOCOL;
}

/* Understand a request and begin to fetch. On OK the put ends by itself. */
static enum yb_status
begin(struct yb_node *node, struct yb_request *request)
{
    uint32_t tenant = yb_node_tenant_of(node, request);
    struct yb_wire_put_pull body;
    struct yb_node_put *put;
    uint32_t count;
    enum yb_status status;

    if (node->pulls == NULL) {
        return YB_UNSUPPORTED;
    }
    if (node->stopping || !yb_node_serving(node)) {
        return YB_FENCED;
    }
    if (tenant == UINT32_MAX) {
        return YB_TOO_LARGE;
    }
    status = yb_wire_put_pull_decode(request->body, request->body_bytes, &body, NULL);
    if (status != YB_OK || body.items.count == 0 || body.write == 0 || body.ticket == 0) {
        return YB_PROTOCOL;
    }
    status = yb_node_put_begin(node, request, &put);
    if (status != YB_OK) {
        return status;
    }
    put->ticket = body.ticket;
    put->ticket_at = body.ticket_at;
    put->only_way = body.only_way != 0;
    yb_mail_init(&put->pull_mail, on_mail);
    status = plan(put, &body, tenant, &count);
    if (status == YB_OK && count == 0) {
        yb_node_put_commit(put); /* Nothing is wanted, or nothing is in it. */
        return YB_OK;
    }
    if (status == YB_OK) {
        status = take_peer(put, body.engine);
    }
    if (status == YB_OK) {
        status = submit(put, YB_NODE_PULL_BYTES, count);
        if (status != YB_OK) {
            leave(put);
        }
    }
    if (status != YB_OK) {
        yb_node_put_undo(put);
    }
    return status;
}

void
yb_node_put_pull_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    enum yb_status status;

    node->requests++;
    status = begin(node, request);
    if (status != YB_OK) {
        yb_node_reply(node, request, status, NULL, 0);
    }
}
