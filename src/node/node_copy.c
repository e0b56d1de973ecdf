/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from other nodes, by order: repair, drain, replication, and what a conductor wants.
 *
 *     order --> item: fetch_block from the source --> extent, when the reply tells its size
 *           --> COMMITTED --> publication add_replica of the grant --> GRANTED --> answer
 *
 * A copy names the grant that it copies and never creates a record: if that is not current any more
 * the directory refuses it, and the copy goes (RULES A6). Up to WINDOW items of all orders are
 * under way: those of the more urgent class first, and in a class those of the earlier deadline. Of
 * a block that several orders want at a time there is one copy, and the others join it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/peer.h"
#include "node/node_internal.h"

#define ORDERS_MAX  64u
#define SOURCES_MAX 64u
#define WINDOW      8u
#define COPY_NS     (30 * YB_NS_PER_S)

struct order {
    bool taken;
    struct yb_request *request; /* Of a directory's order; NULL: `ended` is told. */
    void (*ended)(void *owner, uint32_t index, enum yb_status status, bool joined);
    void *owner;
    uint64_t source;
    uint32_t peer; /* Among the sources. */
    uint32_t count;
    uint32_t begun;
    uint32_t over;
    enum yb_class traffic_class;
    uint64_t deadline_ns;
    struct yb_wire_copy_item items[YB_WIRE_COPY_ITEMS_MAX];
    uint8_t joins[YB_WIRE_COPY_ITEMS_MAX]; /* The copy that an item waits for, + 1; 0: its own. */
    struct yb_wire_copy_answer answers[YB_WIRE_COPY_ITEMS_MAX];
};

/* One item under way. */
struct copy {
    struct yb_call call;
    struct yb_node *node;
    struct order *order; /* NULL: free. */
    uint32_t index;
    struct yb_block *block;
    struct yb_node_put put; /* Its one item stands for the block's publication. */
    struct iovec iov;
    uint8_t body[YB_WIRE_FETCH_BLOCK_BYTES];
    uint8_t reply[YB_WIRE_FETCHED_BLOCK_BYTES_MAX];
};

struct source {
    char address[64];
    struct yb_peer *peer;
    uint64_t used_ns;
};

struct yb_node_copies {
    bool stopping;
    struct order orders[ORDERS_MAX];
    struct source sources[SOURCES_MAX];
    struct copy copies[WINDOW];
};

static void pump(struct yb_node *node);

enum yb_status
yb_node_copies_create(struct yb_node *node)
{
    node->copies = calloc(1, sizeof(*node->copies));
    if (node->copies == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < WINDOW; i++) {
        node->copies->copies[i].node = node;
    }
    return YB_OK;
}

void
yb_node_copies_destroy(struct yb_node *node)
{
    free(node->copies);
    node->copies = NULL;
}

bool
yb_node_copies_idle(const struct yb_node *node)
{
    for (uint32_t i = 0; i < WINDOW; i++) {
        if (node->copies->copies[i].order != NULL) {
            return false;
        }
    }
    return true;
}

/* ---- orders --------------------------------------------------------------------------------- */

static void
order_reply(struct yb_node *node, struct order *order, enum yb_status status)
{
    uint8_t out[YB_WIRE_COPY_ANSWERS_BYTES + YB_WIRE_COPY_ITEMS_MAX * YB_WIRE_COPY_ANSWER_BYTES];
    struct yb_wire_copy_answers body = {
        .answers = {.count = order->count, .native = order->answers}};
    struct yb_request *request = order->request;
    size_t length = 0;

    if (yb_wire_copy_answers_encode(&body, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_node_reply(node, request, status, out, status == YB_OK ? length : 0);
}

static void
item_end(struct yb_node *node, struct order *order, uint32_t index, enum yb_status status,
         bool joined)
{
    order->answers[index] =
        (struct yb_wire_copy_answer){.status = joined && status == YB_OK ? YB_EXISTS : status};
    order->joins[index] = 0;
    order->over++;
    order->taken = order->over < order->count;
    if (order->request == NULL) {
        order->ended(order->owner, index, status, joined);
    } else if (!order->taken) {
        order_reply(node, order, YB_OK);
    }
}

/* Whoever joined a copy has what came of it. */
static void
joined_end(struct yb_node *node, uint32_t copy, enum yb_status status)
{
    for (uint32_t at = 0; at < ORDERS_MAX; at++) {
        struct order *order = &node->copies->orders[at];

        for (uint32_t i = 0; order->taken && i < order->begun; i++) {
            if (order->joins[i] == copy + 1) {
                item_end(node, order, i, status, true);
            }
        }
    }
}

static void
copy_end(struct copy *copy, enum yb_status status)
{
    struct yb_node *node = copy->node;
    struct order *order = copy->order;

    if (copy->block != NULL) {
        copy->block->put = NULL;
        yb_node_discard(node, copy->block);
        copy->block = NULL;
    }
    copy->order = NULL;
    item_end(node, order, copy->index, status, false);
    joined_end(node, (uint32_t)(copy - node->copies->copies), status);
    pump(node);
}

/* ---- one copy ------------------------------------------------------------------------------- */

static void
on_published(struct yb_node_put *put)
{
    struct copy *copy = (struct copy *)((uint8_t *)put - offsetof(struct copy, put));
    enum yb_status status = put->items[0].status;

    copy->block = NULL; /* It stands on its own now, or is gone. */
    if (status == YB_OK) {
        yb_node_count(copy->node, YB_NODE_STAT_COPIED, 1);
        yb_node_count(copy->node, YB_NODE_STAT_COPIED_BYTES, put->items[0].size);
    }
    copy_end(copy, status);
}

/* The reply's body says what comes: make room for it. */
static enum yb_status
on_place(struct yb_call *call)
{
    struct copy *copy = call->owner;
    struct yb_node *node = copy->node;
    const struct yb_wire_copy_item *wanted = &copy->order->items[copy->index];
    struct yb_wire_fetched_block body;
    struct yb_node_intake intake;
    char tenant[65] = {0};
    enum yb_status status;

    if (yb_wire_fetched_block_decode(copy->reply, call->reply_body_bytes, &body, NULL) != YB_OK ||
        body.size != call->reply_data_bytes || body.key.length == 0) {
        return YB_PROTOCOL;
    }
    memcpy(tenant, body.tenant.bytes, body.tenant.length);
    intake = (struct yb_node_intake){
        .hash = wanted->hash,
        .write = body.write,
        .size = body.size,
        .flush = body.flush,
        .ttl_ms = body.ttl_ms,
        .soft_pin_ms = body.soft_pin_ms,
        .group = body.group,
        .parent = body.parent,
        .key = body.key.bytes,
        .key_bytes = body.key.length,
        .tenant = yb_node_tenant(node, tenant),
        .checksum = body.checksum,
        .flags = body.flags,
        .mode = YB_WIRE_MODE_ADD_REPLICA,
        .replicas = body.replicas,
        .checked = body.checked == 1,
    };
    if (intake.tenant == UINT32_MAX) {
        return YB_TOO_LARGE;
    }
    if (copy->block != NULL) { /* The call was sent again, on another connection. */
        yb_node_discard(node, copy->block);
        copy->block = NULL;
    }
    status = yb_node_take_in(node, &intake, &copy->block);
    if (status == YB_OK) {
        copy->block->grant = wanted->grant;
        copy->iov = (struct iovec){.iov_base = yb_dram_bytes(node->pool, &copy->block->extent),
                                   .iov_len = (size_t)body.size};
        call->reply_data = &copy->iov;
        call->reply_data_count = 1;
    }
    return status;
}

static void
on_fetched(struct yb_call *call)
{
    struct copy *copy = call->owner;
    struct yb_node *node = copy->node;
    enum yb_status status = call->status;

    if (status == YB_OK && copy->block == NULL) {
        status = on_place(call); /* A value without a byte. */
    }
    if (status == YB_OK) {
        status = yb_node_commit(node, copy->block);
    }
    if (status == YB_OK && copy->block->dropped >= copy->block->grant) {
        status = YB_STALE; /* It was dropped while it came. */
    }
    if (status != YB_OK || node->copies->stopping) {
        copy_end(copy, status != YB_OK ? status : YB_CLOSED);
        return;
    }
    copy->put.node = node;
    copy->put.on_end = on_published;
    copy->put.count = copy->put.waiting = 1;
    copy->put.items[0] = (struct yb_node_put_item){
        .put = &copy->put, .block = copy->block, .size = copy->block->size};
    copy->block->put = &copy->put.items[0];
    status = yb_node_publish(node, copy->block);
    if (status != YB_OK) {
        copy_end(copy, status);
    }
}

/* Return the number of a copy of that block that is under way; WINDOW: there is none. */
static uint32_t
under_way(const struct yb_node_copies *copies, const struct yb_wire_copy_item *wanted)
{
    uint32_t i = 0;

    for (; i < WINDOW; i++) {
        const struct copy *copy = &copies->copies[i];

        if (copy->order != NULL && copy->order->items[copy->index].grant == wanted->grant &&
            yb_id_equal(copy->order->items[copy->index].hash, wanted->hash)) {
            break;
        }
    }
    return i;
}

static void
copy_begin(struct copy *copy, struct order *order)
{
    struct yb_node *node = copy->node;
    const struct yb_wire_copy_item *item = &order->items[order->begun];
    const uint32_t other = under_way(node->copies, item);
    struct yb_wire_fetch_block body = {
        .hash = item->hash, .grant = item->grant, .incarnation = order->source};
    struct yb_block *here = yb_block_granted(node->blocks, item->hash);
    size_t length = 0;
    enum yb_status status = here != NULL && here->grant == item->grant ? YB_EXISTS : YB_OK;

    if (other < WINDOW) {
        order->joins[order->begun++] = (uint8_t)(other + 1);
        return;
    }
    copy->order = order;
    copy->index = order->begun++;
    copy->block = NULL;
    if (yb_wire_fetch_block_encode(&body, copy->body, sizeof(copy->body), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    copy->call = (struct yb_call){
        .type = YB_WIRE_NODE_TYPE_FETCH_BLOCK,
        .class = order->traffic_class,
        .lane = YB_WIRE_LANE_BULK,
        .fail_fast = order->request == NULL, /* A conductor looks for another source. */
        .deadline_ns = order->deadline_ns,
        .body = copy->body,
        .body_bytes = (uint32_t)length,
        .reply_body = copy->reply,
        .reply_body_room = sizeof(copy->reply),
        .place = on_place,
        .done = on_fetched,
        .owner = copy,
    };
    if (status == YB_OK) {
        status = yb_peer_call(node->copies->sources[order->peer].peer, &copy->call);
    }
    if (status != YB_OK) {
        copy->order = NULL;
        item_end(node, order, copy->index, status, false);
    }
}

/* Return the order whose next item is the most urgent; NULL: none has one that has not begun. */
static struct order *
most_urgent(struct yb_node_copies *copies)
{
    struct order *best = NULL;

    for (uint32_t at = 0; at < ORDERS_MAX; at++) {
        struct order *order = &copies->orders[at];

        if (!order->taken || order->begun == order->count) {
            continue;
        }
        if (best == NULL || order->traffic_class < best->traffic_class ||
            (order->traffic_class == best->traffic_class &&
             order->deadline_ns < best->deadline_ns)) {
            best = order;
        }
    }
    return best;
}

/* Begin what the window allows. */
static void
pump(struct yb_node *node)
{
    struct yb_node_copies *copies = node->copies;

    for (uint32_t i = 0; i < WINDOW; i++) {
        struct copy *copy = &copies->copies[i];
        struct order *order;

        while (copy->order == NULL && (order = most_urgent(copies)) != NULL) {
            copy_begin(copy, order);
        }
    }
}

/* ---- sources -------------------------------------------------------------------------------- */

static bool
in_order(const struct yb_node_copies *copies, uint32_t source)
{
    for (uint32_t i = 0; i < ORDERS_MAX; i++) {
        if (copies->orders[i].taken && copies->orders[i].peer == source) {
            return true;
        }
    }
    return false;
}

/* Find the peer of an address, or make it in place of one that is idle the longest. */
static enum yb_status
source_of(struct yb_node *node, const char *text, uint32_t *index_out)
{
    struct yb_node_copies *copies = node->copies;
    struct yb_address_list list = {.count = 1};
    char why[YB_ADDRESS_WHY_BYTES];
    uint32_t oldest = UINT32_MAX;
    enum yb_status status;

    for (uint32_t i = 0; i < SOURCES_MAX; i++) {
        struct source *source = &copies->sources[i];

        if (source->peer != NULL && strcmp(source->address, text) == 0) {
            source->used_ns = yb_node_now(node);
            *index_out = i;
            return YB_OK;
        }
        if (!in_order(copies, i) &&
            (oldest == UINT32_MAX || source->used_ns < copies->sources[oldest].used_ns)) {
            oldest = i;
        }
    }
    if (oldest == UINT32_MAX) {
        return YB_AGAIN;
    }
    status = yb_address_parse(text, 0, &list.items[0], why);
    if (status != YB_OK) {
        return status;
    }
    if (copies->sources[oldest].peer != NULL) {
        yb_peer_destroy(&copies->sources[oldest].peer);
    }
    status = yb_peer_create(node->net, &list, (struct yb_id){{0}}, &copies->sources[oldest].peer);
    if (status == YB_OK) {
        (void)snprintf(copies->sources[oldest].address, sizeof(copies->sources[oldest].address),
                       "%s", text);
        copies->sources[oldest].used_ns = yb_node_now(node);
        *index_out = oldest;
    }
    return status;
}

/* ---- orders come ----------------------------------------------------------------------------- */

/* Take an order that wants something of that source. AGAIN: there are too many. */
static enum yb_status
order_take(struct yb_node *node, const char *address, struct order **order_out)
{
    struct yb_node_copies *copies = node->copies;
    struct order *order = NULL;
    uint32_t peer = 0;
    enum yb_status status;

    for (uint32_t i = 0; i < ORDERS_MAX && order == NULL; i++) {
        order = !copies->orders[i].taken ? &copies->orders[i] : NULL;
    }
    status = copies->stopping ? YB_FENCED
             : order == NULL  ? YB_AGAIN
                              : source_of(node, address, &peer);
    if (status != YB_OK) {
        return status;
    }
    *order = (struct order){.taken = true, .peer = peer};
    *order_out = order;
    return YB_OK;
}

static enum yb_status
accept_order(struct yb_node *node, struct yb_request *request)
{
    struct yb_wire_copies body;
    struct order *order;
    char address[64] = {0};
    enum yb_status status = yb_wire_copies_decode(request->body, request->body_bytes, &body, NULL);

    if (status != YB_OK || body.items.count == 0) {
        return YB_PROTOCOL;
    }
    if (body.epoch < node->epoch || body.incarnation != node->incarnation ||
        !yb_node_serving(node)) {
        return YB_FENCED;
    }
    memcpy(address, body.address.bytes, body.address.length);
    status = order_take(node, address, &order);
    if (status != YB_OK) {
        return status;
    }
    order->request = request;
    order->source = body.source;
    order->count = body.items.count;
    order->traffic_class = YB_CLASS_BACKGROUND;
    order->deadline_ns = yb_node_now(node) + COPY_NS;
    if (request->deadline_ns < order->deadline_ns) {
        order->deadline_ns = request->deadline_ns;
    }
    for (uint32_t i = 0; i < order->count; i++) {
        yb_wire_copy_item_at(&body.items, i, &order->items[i]);
    }
    return YB_OK;
}

void
yb_node_copy_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    enum yb_status status;

    node->requests++;
    status = accept_order(node, request);
    if (status != YB_OK) {
        yb_node_reply(node, request, status, NULL, 0);
        return;
    }
    pump(node);
}

enum yb_status
yb_node_copy(struct yb_node *node, const struct yb_node_copy_want *want)
{
    struct order *order;
    enum yb_status status;

    YB_ASSERT(want->count > 0 && want->count <= YB_WIRE_COPY_ITEMS_MAX);
    status = order_take(node, want->address, &order);
    if (status != YB_OK) {
        return status;
    }
    order->ended = want->ended;
    order->owner = want->owner;
    order->source = want->source;
    order->count = want->count;
    order->traffic_class = want->traffic_class;
    order->deadline_ns = want->deadline_ns;
    memcpy(order->items, want->items, want->count * sizeof(*want->items));
    pump(node);
    return YB_OK;
}

void
yb_node_copies_stop(struct yb_node *node)
{
    struct yb_node_copies *copies = node->copies;

    copies->stopping = true;
    for (uint32_t i = 0; i < ORDERS_MAX; i++) {
        struct order *order = &copies->orders[i];

        while (order->taken && order->begun < order->count) {
            item_end(node, order, order->begun++, YB_CLOSED, false);
        }
    }
    for (uint32_t i = 0; i < WINDOW; i++) {
        struct copy *copy = &copies->copies[i];

        if (copy->order != NULL && copy->block != NULL && copy->block->put != NULL) {
            struct yb_block *block = copy->block; /* Its publication will not be answered. */

            block->put = NULL;
            copy->block = NULL;
            yb_node_discard(node, block);
            copy_end(copy, YB_CLOSED);
        }
    }
    for (uint32_t i = 0; i < SOURCES_MAX; i++) {
        if (copies->sources[i].peer != NULL) {
            yb_peer_destroy(&copies->sources[i].peer); /* Fetches under way end in on_fetched(). */
        }
    }
}
