/* SPDX-License-Identifier: Apache-2.0
 *
 * publisher.h -- a node's ordered stream of publications to its directory.
 *
 * What happened to blocks is put into a queue and sent in messages, in order, each with all
 * that waits, up to YB_PUBLISHER_MESSAGES under way. An inventory, with which each stream begins,
 * goes between the news and never in front of them (RULES A9, C6).
 *
 *     queue of news ----+                       answered: on_answer per item, in order
 *                       +--> message 1..32 --> directory
 *     walk of blocks ---+          ^               |
 *                                  +-- AGAIN ------+  (a gap, or the directory rebuilds)
 *
 * Invariants
 *   P1  Messages carry sequence 1, 2, 3 ... within one begin(); an item is in one message, and what
 *       is sent again is the same message.
 *   P2  on_answer runs once for every item of a message that was answered, and never for one of an
 *       earlier begin().
 *   P3  Items of mode replace travel in messages of their own, which are answered when no slot can
 *       serve the version before; they hold up no others.
 *   P4  The queue has YB_PUBLISHER_ITEMS places; who finds it full does not do what would need one.
 *   P5  News that the directory cannot take yet, because it waits for inventories, do not keep the
 *       inventory from going.
 *
 * Threads   The thread of its net's loop.
 * Memory    Everything is allocated by create.
 * Time      The loop's clock.
 */
#ifndef YB_NODE_PUBLISHER_H
#define YB_NODE_PUBLISHER_H

#include <stdbool.h>
#include <stdint.h>

#include "directory/wire/directory_wire.h"
#include "net/peer.h"
#include "yuebing/status.h"

#define YB_PUBLISHER_MESSAGES      32u
#define YB_PUBLISHER_REPLACES      16u /* Of which may wait for old versions to be dropped. */
#define YB_PUBLISHER_MESSAGE_ITEMS 512u
#define YB_PUBLISHER_ITEMS         (64u * 1024u)
#define YB_PUBLISHER_KEY_ROOM      1024u

struct yb_publisher;

/* One item, with what the node needs to know it again when its answer comes. */
struct yb_publisher_item {
    struct yb_wire_publish_item wire;
    uint16_t tenant;
    uint16_t removal; /* Index + 1 of the removal that waits for it; 0: none. */
    uint32_t block;   /* Index + 1 in the table of blocks; 0: none. */
};

struct yb_publisher_events {
    /* An item was answered. Must not begin or end a stream. AGAIN: the directory is rebuilding; the
     * publisher sends the item again by itself, and this is not called. */
    void (*on_answer)(void *owner, const struct yb_publisher_item *item,
                      const struct yb_wire_grant_answer *answer);
    /* The next item of the inventory: false when there is none left. `cursor` is 0 at the start. */
    bool (*on_inventory)(void *owner, uint64_t *cursor, struct yb_publisher_item *item_out);
    /* The inventory has no more items now: whether there will be some later, before its end. Then
     * yb_publisher_wake() says when. NULL: never. */
    bool (*on_more)(void *owner);
    /* Copy the key of an item that may carry one (directories that asked for keys); returns its
     * length, 0: the block is gone. */
    uint32_t (*on_key)(void *owner, const struct yb_publisher_item *item,
                       uint8_t key_out[YB_PUBLISHER_KEY_ROOM]);
    const char *(*tenant_name)(void *owner, uint16_t tenant);
    /* The stream is broken: this incarnation is not the directory's any more. */
    void (*on_fenced)(void *owner, enum yb_status status);
};

YB_CHECKED enum yb_status yb_publisher_create(const struct yb_publisher_events *events, void *owner,
                                              struct yb_publisher **publisher_out);
void yb_publisher_destroy(struct yb_publisher **publisher);

/* Begin a stream of a new registration, over `peer`. What was queued for the one before and is not
 * answered is returned by `take` until it is empty: the owner decides what becomes of it. */
struct yb_publisher_stream {
    struct yb_net *net;
    struct yb_peer *peer;
    uint64_t incarnation;
    uint64_t epoch;
    uint16_t slot;
    bool keys; /* Send full keys. */
};
void yb_publisher_begin(struct yb_publisher *publisher, const struct yb_publisher_stream *stream);

/* End the stream: nothing is sent any more, late answers are ignored. Items stay: see take. */
void yb_publisher_end(struct yb_publisher *publisher);

/* Take the oldest item that was not answered, of a stream that has ended. */
bool yb_publisher_take(struct yb_publisher *publisher, struct yb_publisher_item *item_out);

/* Queue an item. AGAIN: the queue is full (P4). */
YB_CHECKED enum yb_status yb_publisher_push(struct yb_publisher *publisher,
                                            const struct yb_publisher_item *item);

/* Go on with the inventory, if it waits. */
void yb_publisher_wake(struct yb_publisher *publisher);

/* Tell the directory, behind all that is queued, that nothing more of before will be named. */
void yb_publisher_listed(struct yb_publisher *publisher);

uint32_t yb_publisher_room(const struct yb_publisher *publisher);

/* Whether no call is under way: the owner of the net may go on to end it. */
bool yb_publisher_idle(const struct yb_publisher *publisher);

#endif /* YB_NODE_PUBLISHER_H */
