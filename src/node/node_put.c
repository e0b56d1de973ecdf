/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes in: from a request to a block that everybody can read.
 *
 *     place    decode, check, take records and extents; what is refused goes to the sink
 *     handle   the bytes are there: sums, COMMITTED, publications
 *     answer   of the directory, item by item; after the last one: the reply
 *
 * A put whose time is over is answered at once. What was published for it stays until the directory
 * has answered: then it is readable, or goes (RULES B5). node_pull.c brings the bytes another way,
 * and comes here for all else.
 */
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "node/node_internal.h"

/* ---- one block ------------------------------------------------------------------------------ */

enum yb_status
yb_node_take_in(struct yb_node *node, const struct yb_node_intake *intake,
                struct yb_block **block_out)
{
    bool summed = node->options.verify;
    uint64_t bytes = yb_block_extent_bytes(intake->size, intake->key_bytes, summed);
    struct yb_dram_extent extent;
    struct yb_block *block;
    enum yb_status status = yb_node_room(node, bytes, intake, &extent);

    if (status != YB_OK) {
        return status == YB_TOO_LARGE ? YB_NO_SPACE : status;
    }
    status = yb_node_record(node, intake->hash, &block);
    if (status != YB_OK) {
        yb_dram_free(node->pool, &extent);
        return status;
    }
    block->extent = extent;
    block->write = intake->write;
    block->size = intake->size;
    block->flush = intake->flush;
    block->group = intake->group;
    block->parent = intake->parent;
    block->expires_ns = intake->ttl_ms == 0 || intake->ttl_ms > UINT64_MAX / YB_NS_PER_MS / 2
                            ? YB_NEVER
                            : yb_node_now(node) + intake->ttl_ms * YB_NS_PER_MS;
    if ((intake->flags & YB_WIRE_BLOCK_FLAG_SOFT_PIN) != 0 &&
        intake->soft_pin_ms <= UINT64_MAX / YB_NS_PER_MS) { /* Else it does not end. */
        block->soft_ns = intake->soft_pin_ms * YB_NS_PER_MS;
    }
    block->tenant = (uint16_t)intake->tenant;
    block->key_bytes = (uint16_t)intake->key_bytes;
    block->checksum = intake->checksum;
    block->epoch = intake->epoch;
    block->checked = intake->checked;
    block->flags = intake->flags;
    block->mode = intake->mode;
    block->replicas = intake->replicas;
    block->places = intake->places > 0 ? intake->places : 1;
    block->summed = summed;
    memcpy((uint8_t *)yb_dram_bytes(node->pool, &block->extent) + block->size, intake->key,
           intake->key_bytes);
    *block_out = block;
    return YB_OK;
}

/* Where the chunk sums of a block lie: at any address. */
static uint8_t *
sums_of(const struct yb_node *node, const struct yb_block *block)
{
    return (uint8_t *)yb_dram_bytes(node->pool, &block->extent) + block->size + block->key_bytes;
}

static uint32_t
chunk_sum(const struct yb_node *node, const struct yb_block *block, uint64_t chunk)
{
    uint64_t at = chunk * YB_BLOCK_CHUNK_BYTES;
    uint64_t left = block->size - at;

    return yb_crc32c(yb_node_bytes(node, block) + at,
                     left < YB_BLOCK_CHUNK_BYTES ? left : YB_BLOCK_CHUNK_BYTES);
}

enum yb_status
yb_node_commit(struct yb_node *node, struct yb_block *block)
{
    uint64_t chunks = (block->size + YB_BLOCK_CHUNK_BYTES - 1) / YB_BLOCK_CHUNK_BYTES;

    uint32_t whole = 0;

    YB_ASSERT(block->state == YB_BLOCK_IN_FLIGHT);
    /* Every byte is summed once, whoever wants to know. */
    for (uint64_t i = 0; block->summed && i < chunks; i++) {
        uint64_t left = block->size - i * YB_BLOCK_CHUNK_BYTES;
        uint32_t sum = chunk_sum(node, block, i);

        memcpy(sums_of(node, block) + i * sizeof(sum), &sum, sizeof(sum));
        if (block->checked) {
            whole = yb_crc32c_combine(whole, sum,
                                      left < YB_BLOCK_CHUNK_BYTES ? left : YB_BLOCK_CHUNK_BYTES);
        }
    }
    if (block->checked && !block->summed) {
        whole = yb_crc32c(yb_node_bytes(node, block), block->size);
    }
    if (block->checked && whole != block->checksum) {
        return YB_CORRUPT;
    }
    block->state = YB_BLOCK_COMMITTED;
    yb_dram_set_state(node->pool, &block->extent, YB_DRAM_UNGRANTED);
    return YB_OK;
}

bool
yb_node_verify(const struct yb_node *node, const struct yb_block *block, uint64_t offset,
               uint64_t bytes)
{
    if (!block->summed || bytes == 0) {
        return true;
    }
    for (uint64_t i = offset / YB_BLOCK_CHUNK_BYTES; i * YB_BLOCK_CHUNK_BYTES < offset + bytes;
         i++) {
        uint32_t sum;

        memcpy(&sum, sums_of(node, block) + i * sizeof(sum), sizeof(sum));
        if (chunk_sum(node, block, i) != sum) {
            return false;
        }
    }
    return true;
}

/* How many places a put has that was announced to a directory before ours: that has to know whether
 * it waits at all of them (RULES A7). 0: ours knows of it. */
static uint8_t
places_of(const struct yb_node *node, const struct yb_block *block)
{
    return block->mode != YB_WIRE_MODE_ADD_REPLICA && block->epoch < node->epoch ? block->places
                                                                                 : 0;
}

/* What is told of a block. */
static struct yb_publisher_item
item_of(const struct yb_node *node, const struct yb_block *block)
{
    return (struct yb_publisher_item){
        .wire = {.hash = block->hash,
                 .grant = block->grant, /* 0, or what a copy is a copy of. */
                 .write = block->write,
                 .size = block->size,
                 .flush = block->flush,
                 .mode = block->mode,
                 .tier = YB_WIRE_TIER_DRAM,
                 .flags = block->flags,
                 .replicas = block->replicas,
                 .told = block->told,
                 .parent = block->parent,
                 .places = places_of(node, block)},
        .tenant = block->tenant,
        .block = yb_block_index(node->blocks, block) + 1,
    };
}

enum yb_status
yb_node_publish(struct yb_node *node, struct yb_block *block)
{
    struct yb_publisher_item item = item_of(node, block);
    enum yb_status status;

    YB_ASSERT(block->state == YB_BLOCK_COMMITTED);
    if (!node->registered) {
        return YB_OK; /* on_registered() finds it. */
    }
    status = yb_publisher_push(node->publisher, &item);
    block->published = status == YB_OK;
    block->told = block->told || block->published;
    return status;
}

/* Put a granted block into the ring of its group, beside one that is there. */
static void
join_group(struct yb_node *node, struct yb_block *block)
{
    struct yb_node_group *place = &node->groups[block->group % YB_NODE_GROUPS];
    struct yb_block *other;

    if (place->group == block->group && place->block < yb_block_span(node->blocks)) {
        other = yb_block_at(node->blocks, place->block);
        if (other != block && other->state == YB_BLOCK_GRANTED && other->group == block->group &&
            other->tenant == block->tenant) {
            block->group_next = other->group_next;
            block->group_previous = place->block;
            yb_block_at(node->blocks, other->group_next)->group_previous =
                yb_block_index(node->blocks, block);
            other->group_next = yb_block_index(node->blocks, block);
        }
    }
    *place =
        (struct yb_node_group){.group = block->group, .block = yb_block_index(node->blocks, block)};
}

static void
attach(struct yb_node *node, struct yb_block *child, struct yb_block *parent)
{
    if (yb_policy_attach(yb_node_policy(node, child), &child->policy, &parent->policy) != YB_OK) {
        child->parent = 0; /* The tag makes no sense beside the others: it is forgotten. */
    }
}

void
yb_node_join_chain(struct yb_node *node, struct yb_block *block)
{
    struct yb_block *other;

    while ((other = yb_block_waiting(node->blocks, block->hash, block->tenant)) != NULL) {
        yb_block_wait_end(node->blocks, other);
        attach(node, other, block);
    }
    if (block->parent == 0) {
        return;
    }
    other = yb_block_parent(node->blocks, block->parent, block->tenant);
    if (other != NULL) {
        attach(node, block, other);
    } else {
        yb_block_wait(node->blocks, block);
    }
}

void
yb_node_join_others(struct yb_node *node, struct yb_block *block)
{
    if (block->group != 0) {
        join_group(node, block);
    }
    yb_node_join_chain(node, block);
}

void
yb_node_publish_loaded(struct yb_node *node, struct yb_block *block)
{
    struct yb_publisher_item item = item_of(node, block);

    item.wire.mode = YB_WIRE_MODE_ADD_REPLICA;
    if (node->registered && yb_publisher_push(node->publisher, &item) != YB_OK) {
        yb_member_fenced(node->member); /* The next inventory names it. */
    }
}

void
yb_node_put_answered(struct yb_node *node, struct yb_block *block, enum yb_status status,
                     uint64_t grant, bool sole)
{
    struct yb_node_put_item *item = block->put;
    const struct yb_block *newest = yb_block_granted(node->blocks, block->hash);
    bool gone = block->flush < node->tenants[block->tenant].flush || grant <= block->dropped ||
                (newest != NULL && newest->grant > grant); /* Its answer was overtaken (H2). */

    YB_ASSERT(block->state == YB_BLOCK_COMMITTED);
    block->put = NULL;
    if (status == YB_OK) {
        yb_node_grant(node, block, grant, sole);
        if (gone) {
            /* Removed, replaced or flushed before we heard that it was granted. It is withdrawn,
             * too: a copy of what once was here may have been dropped in place of that. */
            yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, true);
        } else {
            yb_node_join_others(node, block);
            yb_node_below_granted(node, block);
        }
    } else {
        yb_node_discard(node, block);
    }
    if (item != NULL) {
        yb_node_put_end(item, status, grant);
    }
}

/* ---- one request ---------------------------------------------------------------------------- */

static void
put_unlink(struct yb_node_put *put)
{
    struct yb_node *node = put->node;

    if (put->previous != NULL) {
        put->previous->next = put->next;
    } else {
        node->put_list = put->next;
    }
    if (put->next != NULL) {
        put->next->previous = put->previous;
    }
    yb_pool_give(node->puts, put);
}

static void
put_reply(struct yb_node_put *put)
{
    struct yb_wire_put_answer answers[YB_WIRE_PUT_ITEMS_MAX];
    uint8_t body[YB_WIRE_PUT_ANSWERS_BYTES + YB_WIRE_PUT_ITEMS_MAX * YB_WIRE_PUT_ANSWER_BYTES];
    struct yb_wire_put_answers reply = {.answers = {.count = put->count, .native = answers}};
    size_t length = 0;

    for (uint32_t i = 0; i < put->count; i++) {
        enum yb_status status = put->items[i].status;

        answers[i] = (struct yb_wire_put_answer){.grant = put->items[i].grant, .status = status};
        yb_node_count_status(put->node, YB_NODE_STAT_PUTS, status);
    }
    if (yb_wire_put_answers_encode(&reply, body, sizeof(body), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_node_reply(put->node, put->request, YB_OK, body, length);
    put->request = NULL;
}

/* Items that wait for grants keep their record; those that wait for nobody go with the put. */
static void
put_detach(struct yb_node_put *put)
{
    for (uint32_t i = 0; i < put->count; i++) {
        struct yb_block *block = put->items[i].block;

        if (block == NULL) {
            continue;
        }
        put->items[i].block = NULL;
        put->items[i].status = block->told ? YB_IN_DOUBT : YB_TIMED_OUT;
        block->put = NULL;
        if (!block->published) {
            yb_node_discard(put->node, block);
        }
    }
}

void
yb_node_put_end(struct yb_node_put_item *item, enum yb_status status, uint64_t grant)
{
    struct yb_node_put *put = item->put;

    YB_ASSERT(put->waiting > 0);
    item->block = NULL;
    item->status = status;
    item->grant = grant;
    put->waiting--;
    if (put->waiting > 0) {
        return;
    }
    if (put->on_end != NULL) {
        put->on_end(put);
        return;
    }
    put_reply(put);
    put_unlink(put);
}

/* What of a put is wrong with one item before its bytes come. */
static enum yb_status
examine(struct yb_node *node, const struct yb_wire_put_item *item, const uint8_t *key,
        uint32_t tenant, uint64_t write, struct yb_node_put_item *out)
{
    struct yb_hash_bytes owner = {node->tenants[tenant].name, strlen(node->tenants[tenant].name)};
    struct yb_hash_bytes name = {key, item->key_bytes};
    const struct yb_node_name wanted = {item->hash, key, item->key_bytes, YB_WIRE_NO_GRANT};
    struct yb_block *granted;
    enum yb_status status;

    if (item->mode != YB_WIRE_MODE_IF_ABSENT && item->mode != YB_WIRE_MODE_REPLACE) {
        return YB_INVALID;
    }
    if (!yb_id_equal(yb_hash_key(node->seed, owner, name), item->hash)) {
        return YB_INVALID; /* Its sender hashes under another seed, or lies. */
    }
    granted = yb_node_find(node, tenant, &wanted, &status);
    if (granted != NULL && granted->write == write) {
        out->grant = granted->grant; /* This very put, told again. */
        return YB_OK;
    }
    /* Another's block under this key says nothing: it may be removed already, and its drop on the
     * way to us. The directory knows. */
    return yb_block_of_write(node->blocks, item->hash, write) != NULL ? YB_IN_PROGRESS : YB_OK;
}

/* Add vectors for bytes that nobody wants. */
static bool
sink_bytes(struct yb_node_put *put, uint64_t bytes)
{
    while (bytes > 0) {
        uint64_t piece = bytes < YB_NODE_SINK_BYTES ? bytes : YB_NODE_SINK_BYTES;

        if (put->iov_count == YB_NODE_PUT_IOV) {
            return false;
        }
        put->iov[put->iov_count++] =
            (struct iovec){.iov_base = put->node->sink, .iov_len = (size_t)piece};
        bytes -= piece;
    }
    return true;
}

/* Add the vector for an item's bytes. */
static bool
land_bytes(struct yb_node_put *put, struct yb_node_put_item *item)
{
    if (item->size == 0) {
        return true;
    }
    if (put->iov_count == YB_NODE_PUT_IOV) {
        return false;
    }
    put->iov[put->iov_count++] = (struct iovec){
        .iov_base = yb_dram_bytes(put->node->pool, &item->block->extent),
        .iov_len = (size_t)item->size,
    };
    return true;
}

void
yb_node_put_item_place(struct yb_node_put *put, const struct yb_wire_put_item *wire,
                       const uint8_t *key, uint32_t tenant, uint64_t write)
{
    struct yb_node *node = put->node;
    struct yb_node_put_item *item = &put->items[put->count];
    struct yb_node_intake intake = {
        .hash = wire->hash,
        .write = write,
        .size = wire->size,
        .flush = put->flush != 0 ? put->flush - 1 : node->tenants[tenant].flush,
        .ttl_ms = wire->ttl_ms,
        .soft_pin_ms = wire->soft_pin_ms,
        .group = wire->group,
        .parent = wire->parent,
        .key = key,
        .key_bytes = wire->key_bytes,
        .tenant = tenant,
        .checksum = wire->checksum,
        .epoch = wire->epoch,
        .flags = wire->flags & (YB_WIRE_BLOCK_FLAG_SOFT_PIN | YB_WIRE_BLOCK_FLAG_HARD_PIN |
                                YB_WIRE_BLOCK_FLAG_STRIPED | YB_WIRE_BLOCK_FLAG_PART),
        .mode = wire->mode,
        .replicas = wire->replicas,
        .places = wire->places,
        .checked = wire->checked == 1,
    };

    *item = (struct yb_node_put_item){.put = put, .size = wire->size};
    intake.flags |= wire->group != 0 ? YB_WIRE_BLOCK_FLAG_GROUP : 0;
    intake.flags |= wire->mode == YB_WIRE_MODE_REPLACE ? YB_WIRE_BLOCK_FLAG_VERSIONED : 0;
    item->status = examine(node, wire, key, tenant, write, item);
    if (item->status == YB_OK && item->grant == 0) {
        item->status = yb_node_take_in(node, &intake, &item->block);
        if (item->status == YB_OK) {
            item->block->use = put->use;
            item->block->position = put->count + 1;
        }
    }
    if (item->block != NULL) {
        item->block->put = item;
        item->status = YB_IN_PROGRESS;
    }
    put->count++;
    node->puts_ever++;
}

void
yb_node_put_undo(struct yb_node_put *put)
{
    for (uint32_t i = 0; i < put->count; i++) {
        if (put->items[i].block != NULL) {
            put->items[i].block->put = NULL;
            yb_node_discard(put->node, put->items[i].block);
            put->items[i].block = NULL;
        }
    }
    put_unlink(put);
}

enum yb_status
yb_node_put_begin(struct yb_node *node, struct yb_request *request, struct yb_node_put **put_out)
{
    void *taken;
    struct yb_node_put *put;
    enum yb_status status = yb_pool_take(node->puts, &taken);

    if (status != YB_OK) {
        return status;
    }
    put = taken;
    put->node = node;
    put->request = request;
    put->on_end = NULL;
    put->pull = YB_NODE_PULL_NONE;
    put->flush = 0; /* Any; a put whose bytes are pulled says none. */
    put->previous = NULL;
    put->next = node->put_list;
    put->deadline_ns = request->deadline_ns;
    put->cluster = node->cluster;
    put->use = yb_node_use(node);
    put->count = put->waiting = put->iov_count = 0;
    if (node->put_list != NULL) {
        node->put_list->previous = put;
    }
    node->put_list = put;
    *put_out = put;
    return YB_OK;
}

/* Find places for all items of a put. */
static enum yb_status
put_places(struct yb_node_put *put, const struct yb_wire_put *body, uint32_t tenant)
{
    uint64_t data = 0;
    size_t at = 0;

    for (uint32_t i = 0; i < body->items.count; i++) {
        struct yb_node_put_item *item = &put->items[i];
        struct yb_wire_put_item wire;

        yb_wire_put_item_at(&body->items, i, &wire);
        if (wire.key_bytes == 0 || at + wire.key_bytes > body->keys.length) {
            return YB_PROTOCOL;
        }
        yb_node_put_item_place(put, &wire, body->keys.bytes + at, tenant, body->write);
        at += wire.key_bytes;
        data += wire.size;
        if (!(item->block != NULL ? land_bytes(put, item) : sink_bytes(put, wire.size))) {
            return YB_NO_SPACE; /* More vectors than there are, or than is worth to be read. */
        }
    }
    return at == body->keys.length && data == put->request->data_bytes ? YB_OK : YB_PROTOCOL;
}

/* Understand a put and find places for what it brings. */
static enum yb_status
put_prepare(struct yb_node *node, struct yb_request *request, struct yb_node_put **put_out)
{
    uint32_t tenant = yb_node_tenant_of(node, request);
    struct yb_wire_put body;
    struct yb_node_put *put;
    enum yb_status status;

    if (node->stopping || !yb_node_serving(node)) {
        return YB_FENCED;
    }
    if (tenant == UINT32_MAX) {
        return YB_TOO_LARGE;
    }
    status = yb_wire_put_decode(request->body, request->body_bytes, &body, NULL);
    if (status != YB_OK || body.items.count == 0 || body.write == 0) {
        return YB_PROTOCOL;
    }
    status = yb_node_put_begin(node, request, &put);
    if (status != YB_OK) {
        return status;
    }
    put->flush = body.flush;
    status = put_places(put, &body, tenant);
    if (status != YB_OK) {
        yb_node_put_undo(put);
        return status;
    }
    *put_out = put;
    return YB_OK;
}

enum yb_status
yb_node_put_place(void *service, struct yb_request *request, const struct iovec **iov_out,
                  uint32_t *count_out)
{
    struct yb_node *node = service;
    struct yb_node_put *put;
    enum yb_status status = put_prepare(node, request, &put);

    if (status != YB_OK) {
        return status;
    }
    request->context = put;
    *iov_out = put->iov;
    *count_out = put->iov_count;
    return YB_OK;
}

void
yb_node_put_abort(void *service, struct yb_request *request)
{
    struct yb_node_put *put = request->context;

    (void)service;
    for (uint32_t i = 0; i < put->count; i++) {
        if (put->items[i].block != NULL) { /* Its bytes were on their way. */
            yb_node_count_status(put->node, YB_NODE_STAT_PUTS, YB_PEER_LOST);
        }
    }
    yb_node_put_undo(put);
    request->context = NULL;
}

/* The bytes of an item are there. */
static void
commit_item(struct yb_node_put_item *item)
{
    struct yb_node *node = item->put->node;
    struct yb_block *block = item->block;
    enum yb_status status;

    if (block == NULL) {
        return;
    }
    status = item->put->cluster == node->cluster ? yb_node_commit(node, block) : YB_FENCED;
    if (status == YB_OK) {
        status = yb_node_publish(node, block);
    }
    if (status == YB_OK) {
        item->put->waiting++;
        return;
    }
    item->block = NULL;
    item->status = status;
    block->put = NULL;
    yb_node_discard(node, block);
}

void
yb_node_put_refuse(struct yb_node_put_item *item, enum yb_status status)
{
    struct yb_block *block = item->block;

    YB_ASSERT(block != NULL && block->state == YB_BLOCK_IN_FLIGHT);
    item->block = NULL;
    item->status = status;
    block->put = NULL;
    yb_node_discard(item->put->node, block);
}

void
yb_node_put_commit(struct yb_node_put *put)
{
    YB_ASSERT(put->waiting == 0);
    for (uint32_t i = 0; i < put->count; i++) {
        commit_item(&put->items[i]);
    }
    if (put->waiting == 0) {
        put_reply(put);
        put_unlink(put);
    }
}

void
yb_node_put_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_node_put *put = request->context;

    node->requests++;
    if (put == NULL) { /* Without a byte of data. */
        enum yb_status status = put_prepare(node, request, &put);

        if (status != YB_OK) {
            yb_node_reply(node, request, status, NULL, 0);
            return;
        }
    }
    yb_node_put_commit(put);
}

void
yb_node_put_tick(struct yb_node *node, bool all)
{
    uint64_t now_ns = yb_node_now(node);
    struct yb_node_put *next;

    for (struct yb_node_put *put = node->put_list; put != NULL; put = next) {
        next = put->next;
        if (all && put->pull != YB_NODE_PULL_NONE) {
            yb_node_pull_stop(put);
        }
        if (put->waiting == 0 || (!all && now_ns < put->deadline_ns)) {
            continue; /* Its bytes are still coming: deadlines of their own end that. */
        }
        put_detach(put);
        put->waiting = 0;
        put_reply(put);
        put_unlink(put);
    }
}
