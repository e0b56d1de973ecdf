/* SPDX-License-Identifier: Apache-2.0 */
#include "node/publisher.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "net/loop.h"

#define MAGIC      0x59425055u /* "YBPU" */
#define KEYS_BYTES (64u * 1024u)
#define BODY_BYTES                                                                               \
    (YB_WIRE_PUBLICATION_BYTES + 64u + YB_PUBLISHER_MESSAGE_ITEMS * YB_WIRE_PUBLISH_ITEM_BYTES + \
     KEYS_BYTES)
#define REPLY_BYTES (YB_WIRE_GRANTS_BYTES + YB_PUBLISHER_MESSAGE_ITEMS * YB_WIRE_GRANT_ANSWER_BYTES)
#define RETRY_NS    (2 * YB_NS_PER_MS)
#define REBUILD_NS  (20 * YB_NS_PER_MS)
#define CALL_NS     (10 * YB_NS_PER_S)
#define RING_MASK   (YB_PUBLISHER_ITEMS - 1)

_Static_assert((YB_PUBLISHER_ITEMS & RING_MASK) == 0, "places are found by a mask");

struct message {
    struct yb_call call;
    struct yb_timer retry;
    struct yb_publisher *publisher;
    uint64_t round; /* Of the stream that it belongs to. */
    uint64_t sequence;
    uint32_t count;
    bool busy;
    bool calling;
    bool replaces;
    uint8_t phase;
    uint16_t tenant;
    struct yb_publisher_item items[YB_PUBLISHER_MESSAGE_ITEMS];
    uint8_t body[BODY_BYTES];
    uint8_t reply[REPLY_BYTES];
};

/* Where the inventory stands. */
enum walk { WALK_BEGIN, WALK_CHUNKS, WALK_END, WALK_DONE };

struct yb_publisher {
    uint32_t magic;
    const struct yb_publisher_events *events;
    void *owner;
    struct yb_publisher_stream stream;
    struct yb_task task;
    bool open;
    uint64_t round;
    uint64_t sequence;
    enum walk walk;
    uint64_t cursor;
    struct yb_publisher_item ahead; /* Of the inventory: found, and of another tenant. */
    bool has_ahead;
    bool listed; /* To be told when nothing else is. */
    bool paused; /* News were answered AGAIN a moment ago. */
    struct yb_timer pause;
    uint32_t replaces; /* Messages with replacements under way. */
    uint32_t told;     /* Items of this stream that an earlier one had, too. */
    uint32_t calls;
    uint64_t head; /* Ring of what waits to be sent. */
    uint64_t tail;
    struct yb_publisher_item *ring;
    uint64_t reserved; /* Places kept for items that may come back. */
    struct message messages[YB_PUBLISHER_MESSAGES];
};

static void send_message(struct message *message);

static void
send_soon(struct yb_publisher *publisher)
{
    if (publisher->open) {
        yb_loop_defer(yb_net_loop(publisher->stream.net), &publisher->task);
    }
}

/* ---- the queue ------------------------------------------------------------------------------ */

uint32_t
yb_publisher_room(const struct yb_publisher *publisher)
{
    uint64_t used = publisher->tail - publisher->head + publisher->reserved;

    YB_ASSERT(used <= YB_PUBLISHER_ITEMS);
    return (uint32_t)(YB_PUBLISHER_ITEMS - used);
}

void
yb_publisher_wake(struct yb_publisher *publisher)
{
    send_soon(publisher);
}

void
yb_publisher_listed(struct yb_publisher *publisher)
{
    publisher->listed = publisher->open;
    send_soon(publisher);
}

enum yb_status
yb_publisher_push(struct yb_publisher *publisher, const struct yb_publisher_item *item)
{
    YB_ASSERT(publisher->magic == MAGIC);
    if (yb_publisher_room(publisher) == 0) {
        return YB_AGAIN;
    }
    publisher->ring[publisher->tail++ & RING_MASK] = *item;
    publisher->told += item->wire.told;
    send_soon(publisher);
    return YB_OK;
}

/* Put an item back whose place was kept. */
static void
push_back(struct yb_publisher *publisher, const struct yb_publisher_item *item)
{
    YB_ASSERT(publisher->reserved > 0);
    publisher->reserved--;
    publisher->ring[publisher->tail++ & RING_MASK] = *item;
}

/* ---- answers -------------------------------------------------------------------------------- */

static void
message_end(struct message *message)
{
    struct yb_publisher *publisher = message->publisher;

    if (message->replaces) {
        publisher->replaces--;
    }
    message->busy = false;
    send_soon(publisher);
}

static void
take_answers(struct message *message, const struct yb_wire_grants *grants)
{
    struct yb_publisher *publisher = message->publisher;
    bool news = message->phase == YB_WIRE_PHASE_DELTA;
    uint32_t back = 0;

    for (uint32_t i = 0; i < message->count; i++) {
        struct yb_wire_grant_answer answer;

        yb_wire_grant_answer_at(&grants->grants, i, &answer);
        if (answer.status == YB_AGAIN && news) {
            push_back(publisher, &message->items[i]);
            back++;
            continue;
        }
        if (news) {
            publisher->reserved--;
        }
        publisher->events->on_answer(publisher->owner, &message->items[i], &answer);
    }
    if (message->phase == YB_WIRE_PHASE_END) {
        publisher->walk = WALK_DONE;
    }
    message->count = 0;
    message_end(message);
    if (back > 0) { /* P5: the directory waits for inventories; news would only be in their way. */
        publisher->paused = true;
        yb_loop_arm(yb_net_loop(publisher->stream.net), &publisher->pause,
                    yb_loop_now(yb_net_loop(publisher->stream.net)) + REBUILD_NS);
    }
}

static void
on_pause(struct yb_timer *timer)
{
    struct yb_publisher *publisher =
        (struct yb_publisher *)((uint8_t *)timer - offsetof(struct yb_publisher, pause));

    publisher->paused = false;
    send_soon(publisher);
}

static void
on_retry(struct yb_timer *timer)
{
    struct message *message =
        (struct message *)((uint8_t *)timer - offsetof(struct message, retry));

    send_message(message);
}

static void
on_done(struct yb_call *call)
{
    struct message *message = call->owner;
    struct yb_publisher *publisher = message->publisher;
    struct yb_loop *loop = yb_net_loop(publisher->stream.net);
    struct yb_wire_grants grants;

    message->calling = false;
    publisher->calls--;
    if (!publisher->open || message->round != publisher->round) {
        message->busy = false; /* P2 */
        send_soon(publisher);
        return;
    }
    if (!call->answered || call->status == YB_AGAIN) {
        yb_loop_arm(loop, &message->retry, yb_loop_now(loop) + RETRY_NS);
        return;
    }
    if (call->status == YB_OK &&
        yb_wire_grants_decode(message->reply, call->reply_body_bytes, &grants, NULL) == YB_OK &&
        grants.epoch == publisher->stream.epoch && grants.grants.count == message->count) {
        take_answers(message, &grants);
        return;
    }
    publisher->events->on_fenced(publisher->owner,
                                 call->status != YB_OK ? call->status : YB_PROTOCOL);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void
send_message(struct message *message)
{
    struct yb_publisher *publisher = message->publisher;
    struct yb_loop *loop = yb_net_loop(publisher->stream.net);
    struct yb_call *call = &message->call;

    call->deadline_ns = yb_loop_now(loop) + CALL_NS;
    if (yb_peer_call(publisher->stream.peer, call) == YB_OK) {
        message->calling = true;
        publisher->calls++;
        return;
    }
    yb_loop_arm(loop, &message->retry, yb_loop_now(loop) + RETRY_NS);
}

/* Write the message's items as the body of its call. */
static void
encode(struct message *message)
{
    struct yb_publisher *publisher = message->publisher;
    struct yb_wire_publish_item wire[YB_PUBLISHER_MESSAGE_ITEMS];
    uint8_t keys[KEYS_BYTES];
    size_t length = 0, key_bytes = 0;
    const char *tenant = publisher->events->tenant_name(publisher->owner, message->tenant);
    struct yb_wire_publication publication = {
        .incarnation = publisher->stream.incarnation,
        .epoch = publisher->stream.epoch,
        .sequence = message->sequence,
        .slot = publisher->stream.slot,
        .phase = message->phase,
        .told = message->phase == YB_WIRE_PHASE_END ? publisher->told : 0,
        .tenant = yb_wire_text_of(tenant),
        .items = {.count = message->count, .native = wire},
    };

    for (uint32_t i = 0; i < message->count; i++) {
        wire[i] = message->items[i].wire;
        wire[i].key_bytes = 0;
        if (publisher->stream.keys && key_bytes + YB_PUBLISHER_KEY_ROOM <= sizeof(keys)) {
            wire[i].key_bytes = (uint16_t)publisher->events->on_key(
                publisher->owner, &message->items[i], keys + key_bytes);
            key_bytes += wire[i].key_bytes;
        }
    }
    publication.keys = (struct yb_wire_blob){.bytes = keys, .length = (uint32_t)key_bytes};
    if (yb_wire_publication_encode(&publication, message->body, sizeof(message->body), &length) !=
        YB_OK) {
        YB_ASSERT(false); /* Every field came from tables of our own. */
    }
    message->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_PUBLISH,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .body = message->body,
        .body_bytes = (uint32_t)length,
        .reply_body = message->reply,
        .reply_body_room = sizeof(message->reply),
        .done = on_done,
        .owner = message,
    };
}

/* Move what can go together from the queue into a message. Returns false if nothing can go. */
static bool
fill_news(struct yb_publisher *publisher, struct message *message)
{
    uint32_t room =
        publisher->stream.keys ? KEYS_BYTES / YB_PUBLISHER_KEY_ROOM : YB_PUBLISHER_MESSAGE_ITEMS;

    message->count = 0;
    while (!publisher->paused && publisher->head != publisher->tail && message->count < room) {
        const struct yb_publisher_item *item = &publisher->ring[publisher->head & RING_MASK];
        bool replaces = item->wire.mode == YB_WIRE_MODE_REPLACE;

        if (message->count == 0) {
            if (replaces && publisher->replaces >= YB_PUBLISHER_REPLACES) {
                return false;
            }
            message->replaces = replaces;
            message->tenant = item->tenant;
        } else if (item->tenant != message->tenant || replaces != message->replaces) {
            break;
        }
        message->items[message->count++] = *item;
        publisher->head++;
        publisher->reserved++;
    }
    message->phase = YB_WIRE_PHASE_DELTA;
    publisher->replaces += message->count > 0 && message->replaces;
    return message->count > 0;
}

static bool
fill_chunk(struct yb_publisher *publisher, struct message *message)
{
    message->count = 0;
    message->replaces = false;
    while (message->count < YB_PUBLISHER_MESSAGE_ITEMS) {
        if (!publisher->has_ahead && !publisher->events->on_inventory(
                                         publisher->owner, &publisher->cursor, &publisher->ahead)) {
            break;
        }
        publisher->has_ahead = true;
        if (message->count > 0 && publisher->ahead.tenant != message->tenant) {
            break;
        }
        message->tenant = publisher->ahead.tenant;
        message->items[message->count++] = publisher->ahead;
        publisher->has_ahead = false;
    }
    message->phase = YB_WIRE_PHASE_CHUNK;
    return message->count > 0;
}

static bool
fill_inventory(struct yb_publisher *publisher, struct message *message)
{
    if (publisher->walk == WALK_CHUNKS && fill_chunk(publisher, message)) {
        return true;
    }
    if (publisher->walk == WALK_CHUNKS) {
        if (publisher->events->on_more != NULL && publisher->events->on_more(publisher->owner)) {
            return false;
        }
        publisher->walk = WALK_END;
    }
    if (publisher->walk != WALK_BEGIN && publisher->walk != WALK_END) {
        return false;
    }
    message->count = 0;
    message->tenant = 0;
    message->replaces = false;
    message->phase = publisher->walk == WALK_BEGIN ? YB_WIRE_PHASE_BEGIN : YB_WIRE_PHASE_END;
    publisher->walk = publisher->walk == WALK_BEGIN ? WALK_CHUNKS : WALK_DONE;
    return true;
}

/* The last word of a stream's beginning. */
static bool
fill_listed(struct yb_publisher *publisher, struct message *message)
{
    if (!publisher->listed || publisher->walk != WALK_DONE || publisher->head != publisher->tail) {
        return false;
    }
    publisher->listed = false;
    message->count = 0;
    message->tenant = 0;
    message->replaces = false;
    message->phase = YB_WIRE_PHASE_LISTED;
    return true;
}

static void
send_all(struct yb_task *task)
{
    struct yb_publisher *publisher =
        (struct yb_publisher *)((uint8_t *)task - offsetof(struct yb_publisher, task));

    for (uint32_t i = 0; publisher->open && i < YB_PUBLISHER_MESSAGES; i++) {
        struct message *message = &publisher->messages[i];

        if (message->busy || message->calling) {
            continue;
        }
        if (!(publisher->walk == WALK_BEGIN && fill_inventory(publisher, message)) &&
            !fill_news(publisher, message) && !fill_inventory(publisher, message) &&
            !fill_listed(publisher, message)) {
            return;
        }
        message->busy = true;
        message->round = publisher->round;
        message->sequence = ++publisher->sequence;
        encode(message);
        send_message(message);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

enum yb_status
yb_publisher_create(const struct yb_publisher_events *events, void *owner,
                    struct yb_publisher **publisher_out)
{
    struct yb_publisher *publisher = calloc(1, sizeof(*publisher));

    if (publisher == NULL) {
        return YB_NO_MEMORY;
    }
    publisher->ring = calloc(YB_PUBLISHER_ITEMS, sizeof(*publisher->ring));
    if (publisher->ring == NULL) {
        free(publisher);
        return YB_NO_MEMORY;
    }
    publisher->magic = MAGIC;
    publisher->events = events;
    publisher->owner = owner;
    publisher->task.run = send_all;
    yb_timer_init(&publisher->pause, on_pause);
    for (uint32_t i = 0; i < YB_PUBLISHER_MESSAGES; i++) {
        publisher->messages[i].publisher = publisher;
        yb_timer_init(&publisher->messages[i].retry, on_retry);
    }
    *publisher_out = publisher;
    return YB_OK;
}

void
yb_publisher_destroy(struct yb_publisher **publisher)
{
    if (*publisher == NULL) {
        return;
    }
    YB_ASSERT((*publisher)->magic == MAGIC && yb_publisher_idle(*publisher));
    (*publisher)->magic = 0;
    free((*publisher)->ring);
    free(*publisher);
    *publisher = NULL;
}

void
yb_publisher_begin(struct yb_publisher *publisher, const struct yb_publisher_stream *stream)
{
    YB_ASSERT(!publisher->open && publisher->head == publisher->tail);
    YB_ASSERT(publisher->reserved == 0);
    publisher->stream = *stream;
    publisher->open = true;
    publisher->round++;
    publisher->sequence = 0;
    publisher->walk = WALK_BEGIN;
    publisher->cursor = 0;
    publisher->has_ahead = false;
    publisher->listed = false;
    publisher->replaces = 0;
    publisher->told = 0;
    send_soon(publisher);
}

/* Order messages by sequence: what was sent first goes back first. */
static struct message *
oldest_message(struct yb_publisher *publisher)
{
    struct message *oldest = NULL;

    for (uint32_t i = 0; i < YB_PUBLISHER_MESSAGES; i++) {
        struct message *message = &publisher->messages[i];

        if (message->busy && message->phase == YB_WIRE_PHASE_DELTA && message->count > 0 &&
            (oldest == NULL || message->sequence < oldest->sequence)) {
            oldest = message;
        }
    }
    return oldest;
}

void
yb_publisher_end(struct yb_publisher *publisher)
{
    struct yb_loop *loop;
    uint64_t waiting = publisher->tail - publisher->head;
    struct message *message;

    if (!publisher->open) {
        return;
    }
    loop = yb_net_loop(publisher->stream.net);
    publisher->open = false;
    publisher->paused = false;
    yb_loop_undefer(loop, &publisher->task);
    yb_loop_disarm(loop, &publisher->pause);
    for (uint32_t i = 0; i < YB_PUBLISHER_MESSAGES; i++) {
        yb_loop_disarm(loop, &publisher->messages[i].retry);
    }
    /* Sent and unanswered ones go behind those that wait; then the ring is turned round. */
    while ((message = oldest_message(publisher)) != NULL) {
        for (uint32_t i = 0; i < message->count; i++) {
            push_back(publisher, &message->items[i]);
        }
        message->count = 0;
        message->busy = message->calling;
    }
    for (uint64_t i = 0; i < waiting; i++) {
        publisher->ring[publisher->tail++ & RING_MASK] =
            publisher->ring[publisher->head++ & RING_MASK];
    }
    for (uint32_t i = 0; i < YB_PUBLISHER_MESSAGES; i++) {
        message = &publisher->messages[i];
        message->busy = message->calling;
        if (message->calling) {
            yb_peer_cancel(publisher->stream.peer, &message->call);
        }
    }
    publisher->reserved = 0;
    publisher->walk = WALK_DONE;
}

bool
yb_publisher_take(struct yb_publisher *publisher, struct yb_publisher_item *item_out)
{
    YB_ASSERT(!publisher->open);
    if (publisher->head == publisher->tail) {
        return false;
    }
    *item_out = publisher->ring[publisher->head++ & RING_MASK];
    return true;
}

bool
yb_publisher_idle(const struct yb_publisher *publisher)
{
    return !publisher->open && publisher->calls == 0;
}
