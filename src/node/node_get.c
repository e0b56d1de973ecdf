/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes out: straight from the pool to the socket.
 *
 * Every block whose bytes a reply lends is pinned until the reply has left (N2).
 */
#include <string.h>

#include "base/check.h"
#include "node/node_internal.h"

#define LINK_FULL    (256ull << 10) /* With less on its way a link is not what is waited for. */
#define LINK_LOOK_NS YB_NS_PER_MS   /* So long it must have been full until its rate is known. */
#define LINK_FORGETS 64u            /* Of what was seen best so much is forgotten at a look. */

/* ---- the link -------------------------------------------------------------------------------- */

/* Count the time up to now, if it was full; by the clock: replies leave within a turn. */
static void
link_pass(struct yb_node *node)
{
    struct yb_node_link *link = &node->link;
    uint64_t now_ns = yb_clock_now(yb_loop_clock(yb_net_loop(node->net)));

    link->full_ns += link->backlog_bytes >= LINK_FULL ? now_ns - link->since_ns : 0;
    link->since_ns = now_ns;
}

static void
link_begin(struct yb_node_read *read)
{
    link_pass(read->node);
    read->node->link.backlog_bytes += read->bytes;
}

static void
link_end(struct yb_node_read *read)
{
    struct yb_node_link *link = &read->node->link;

    link_pass(read->node);
    YB_ASSERT(link->backlog_bytes >= read->bytes);
    link->moved_bytes += link->backlog_bytes >= LINK_FULL ? read->bytes : 0;
    link->backlog_bytes -= read->bytes;
}

void
yb_node_link_show(struct yb_node *node)
{
    struct yb_member_vitals *vitals = yb_member_vitals(node->member);
    struct yb_node_link *link = &node->link;

    link_pass(node);
    if (link->full_ns >= LINK_LOOK_NS && link->moved_bytes >= LINK_FULL) {
        uint64_t rate = (uint64_t)((double)link->moved_bytes * 1e9 / (double)link->full_ns);

        link->rate -= link->rate / LINK_FORGETS;
        link->rate = rate > link->rate ? rate : link->rate;
    }
    if (link->full_ns >= LINK_LOOK_NS) {
        link->full_ns = link->moved_bytes = 0;
    }
    atomic_store(&vitals->ways[YB_MEMBER_LINK].backlog, link->backlog_bytes);
    atomic_store(&vitals->ways[YB_MEMBER_LINK].rate, link->rate);
}

/* ---- reads ----------------------------------------------------------------------------------- */

/* A reply has left, or will not. */
static void
released(struct yb_request *request)
{
    struct yb_node_read *read = request->context;
    struct yb_node *node = read->node;

    link_end(read);
    for (uint32_t i = 0; i < read->count; i++) {
        yb_node_unpin(node, read->blocks[i]);
    }
    yb_pool_give(node->reads, read);
}

/* Lend a range of a block to the reply. */
static void
lend(struct yb_node_read *read, struct yb_block *block, uint64_t offset, uint64_t bytes)
{
    yb_node_pin(read->node, block);
    read->blocks[read->count] = block;
    read->iov[read->count] = (struct iovec){
        .iov_base = (uint8_t *)yb_dram_bytes(read->node->pool, &block->extent) + offset,
        .iov_len = (size_t)bytes,
    };
    read->bytes += bytes;
    read->count++;
}

/* Note that a block was read by whoever asked. */
static void
touch(const struct yb_node_read *read, struct yb_block *block, const struct yb_request *request)
{
    struct yb_node *node = read->node;

    yb_node_used(node, block, read->use, read->index);
    yb_node_below_accessed(node, block);
    if ((block->flags & YB_WIRE_BLOCK_FLAG_VERSIONED) == 0) {
        yb_node_watch_read(node, block, request); /* Nobody keeps hints of the others. */
    }
}

/* How much of a block an item asks for. TOO_SMALL: not all of it fits. */
static enum yb_status
range_of(const struct yb_wire_get_item *item, const struct yb_block *block, uint64_t *bytes_out)
{
    if (item->ranged == 0) {
        *bytes_out = block->size;
        return block->size <= item->length ? YB_OK : YB_TOO_SMALL;
    }
    if (item->offset > block->size) {
        return YB_INVALID;
    }
    *bytes_out = block->size - item->offset;
    if (*bytes_out > item->length) {
        *bytes_out = item->length;
    }
    return YB_OK;
}

static void
get_item(struct yb_node_read *read, const struct yb_wire_get *body,
         const struct yb_wire_get_item *item, const uint8_t *key, const struct yb_request *request,
         struct yb_wire_get_answer *answer)
{
    struct yb_node *node = read->node;
    const struct yb_node_name name = {item->hash, key, item->key_bytes, item->grant};
    uint64_t offset = item->ranged != 0 ? item->offset : 0;
    enum yb_status status;
    uint64_t bytes = 0;
    struct yb_block *block = yb_node_find(node, read->tenant, &name, &status);

    if (block != NULL && !yb_node_renew(node, request, body, item)) {
        block = NULL;
        status = YB_STALE;
    }
    *answer = (struct yb_wire_get_answer){.status = status};
    node->gets_ever++;
    if (block != NULL) {
        answer->size = block->size;
        answer->grant = block->grant;
        answer->flags = block->flags;
        status = range_of(item, block, &bytes);
        if (status == YB_OK && !yb_node_verify(node, block, offset, bytes)) {
            status = YB_CORRUPT; /* Its bytes are not what was put: away with it. */
            yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, true);
        }
        answer->status = status;
    }
    if (status == YB_OK) {
        touch(read, block, request);
        node->hits_ever++;
        answer->bytes = bytes;
        if (bytes > 0) {
            lend(read, block, offset, bytes);
        }
        yb_node_count(node, YB_NODE_STAT_GET_BYTES, bytes);
    }
    yb_node_count_status(node, YB_NODE_STAT_GETS, status);
}

void
yb_node_prefetch(const struct yb_node *node, const struct yb_wire_get *body)
{
    struct yb_wire_get_item item;

    for (uint32_t i = 0; i < body->items.count; i++) {
        yb_wire_get_item_at(&body->items, i, &item);
        yb_block_prefetch_chain(node->blocks, item.hash);
    }
    for (uint32_t i = 0; i < body->items.count; i++) {
        yb_wire_get_item_at(&body->items, i, &item);
        yb_block_prefetch(node->blocks, item.hash);
    }
    for (uint32_t i = 0; i < body->items.count; i++) {
        const struct yb_block *block;

        yb_wire_get_item_at(&body->items, i, &item);
        block = yb_block_prefetched(node->blocks, item.hash);
        if (block != NULL && block->state == YB_BLOCK_GRANTED) {
            __builtin_prefetch(yb_node_key(node, block));
            __builtin_prefetch(block->policy.entry.newer);
            __builtin_prefetch(block->policy.entry.older);
        }
    }
}

/* Answer every item; the answers stand in the node's scratch. Returns the length of the body, 0:
 * the request breaks its table. */
static size_t
get_items(struct yb_node_read *read, struct yb_request *request, const struct yb_wire_get *body)
{
    struct yb_node *node = read->node;
    size_t at = 0;
    uint8_t *out = node->scratch;

    read->tenant = yb_node_tenant_of(node, request);
    if (read->tenant == UINT32_MAX) {
        return 0;
    }
    yb_node_prefetch(node, body);
    for (uint32_t i = 0; i < body->items.count; i++) {
        struct yb_wire_get_answer answer;
        struct yb_wire_get_item item;

        yb_wire_get_item_at(&body->items, i, &item);
        if (at + item.key_bytes > body->keys.length) {
            return 0;
        }
        read->index = i;
        get_item(read, body, &item, body->keys.bytes + at, request, &answer);
        answer.status = yb_node_waited(read->wait, i, answer.status);
        yb_node_count_found(node, read->wait, i, answer.status);
        at += item.key_bytes;
        yb_wire_get_answer_store(&answer, out + YB_WIRE_GET_ANSWERS_BYTES +
                                              (size_t)i * YB_WIRE_GET_ANSWER_BYTES);
    }
    memset(out, 0, YB_WIRE_GET_ANSWERS_BYTES);
    yb_wire_put_u32(out + YB_WIRE_GET_ANSWERS_AT_ANSWERS, body->items.count);
    return YB_WIRE_GET_ANSWERS_BYTES + (size_t)body->items.count * YB_WIRE_GET_ANSWER_BYTES;
}

static enum yb_status
read_begin(struct yb_node *node, struct yb_node_read **read_out)
{
    void *taken;
    enum yb_status status = yb_pool_take(node->reads, &taken);

    if (status == YB_OK) {
        *read_out = taken;
        (*read_out)->node = node;
        (*read_out)->bytes = 0;
        (*read_out)->count = 0;
        (*read_out)->use = yb_node_use(node);
        (*read_out)->wait = NULL;
    }
    return status;
}

void
yb_node_get_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_node_wait *wait = request->context; /* NULL: it comes for the first time. */
    struct yb_node_read *read;
    struct yb_wire_get body;
    enum yb_status status;
    size_t length;

    status = yb_wire_get_decode(request->body, request->body_bytes, &body, NULL);
    if (status == YB_OK && wait == NULL &&
        yb_node_await_below(node, request, &body, yb_node_get_handle)) {
        return;
    }
    if (status == YB_OK) {
        status = node->stopping ? YB_FENCED : read_begin(node, &read);
    }
    if (status != YB_OK) {
        yb_node_wait_end(wait);
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    request->context = read;
    request->released = released;
    read->wait = wait;
    length = get_items(read, request, &body);
    link_begin(read);
    yb_node_wait_end(wait); /* What is read is pinned by the reply now. */
    if (length == 0) {
        yb_request_reply(request, YB_PROTOCOL, NULL, 0, NULL, 0);
        return;
    }
    yb_request_reply(request, YB_OK, node->scratch, (uint32_t)length, read->iov, read->count);
}

/* ---- from node to node ---------------------------------------------------------------------- */

static size_t
describe(struct yb_node *node, const struct yb_block *block)
{
    uint64_t now_ns = yb_node_now(node);
    struct yb_wire_fetched_block body = {
        .size = block->size,
        .flush = block->flush,
        .write = block->write,
        .ttl_ms =
            block->expires_ns == YB_NEVER ? 0 : (block->expires_ns - now_ns) / YB_NS_PER_MS + 1,
        .soft_pin_ms = block->soft_ns / YB_NS_PER_MS,
        .group = block->group,
        .parent = block->parent,
        .checksum = block->checksum,
        .flags = block->flags,
        .replicas = block->replicas,
        .checked = block->checked,
        .key = {.bytes = yb_node_key(node, block), .length = block->key_bytes},
        .tenant = yb_wire_text_of(node->tenants[block->tenant].name),
    };
    size_t length = 0;

    if (yb_wire_fetched_block_encode(&body, node->scratch, YB_NODE_SCRATCH_BYTES, &length) !=
        YB_OK) {
        YB_ASSERT(false);
    }
    return length;
}

void
yb_node_fetch_block_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_node_lift *lift = request->context; /* NULL: it comes for the first time. */
    struct yb_wire_fetch_block body;
    struct yb_node_read *read = NULL;
    struct yb_block *block = NULL;
    size_t length;
    enum yb_status status =
        yb_wire_fetch_block_decode(request->body, request->body_bytes, &body, NULL);

    if (status == YB_OK && (!yb_node_serving(node) || body.incarnation != node->incarnation)) {
        status = YB_FENCED;
    }
    if (status == YB_OK) {
        block = yb_block_granted(node->blocks, body.hash);
        if (block == NULL && lift == NULL &&
            yb_node_await_lift(node, request, body.hash, body.grant, yb_node_fetch_block_handle)) {
            return;
        }
        status = block == NULL || block->flush < node->tenants[block->tenant].flush ||
                         block->expires_ns <= yb_node_now(node)
                     ? YB_NOT_FOUND
                 : block->grant != body.grant ? YB_STALE
                                              : read_begin(node, &read);
    }
    if (status != YB_OK) {
        yb_node_lift_end(lift);
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    request->context = read;
    request->released = released;
    if (!yb_node_verify(node, block, 0, block->size)) {
        yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, true);
        yb_node_lift_end(lift);
        yb_request_reply(request, YB_CORRUPT, NULL, 0, NULL, 0);
        return;
    }
    yb_node_pin(node, block); /* While it is described, also if it has no byte to lend. */
    yb_node_lift_end(lift);
    if (block->size > 0) {
        lend(read, block, 0, block->size);
        link_begin(read);
    }
    length = describe(node, block);
    yb_node_unpin(node, block);
    yb_request_reply(request, YB_OK, node->scratch, (uint32_t)length, read->iov, read->count);
}
