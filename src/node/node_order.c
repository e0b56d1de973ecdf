/* SPDX-License-Identifier: Apache-2.0
 *
 * What a directory orders: drop, flush, hold. Orders name grant, incarnation and epoch, and touch
 * nothing else, however late they come (RULES B4, A10).
 */
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "node/node_below.h"

/* OK: the order is meant for this life of this node, by the directory that it follows. An order for
 * another life is answered OK where that life can do no harm any more: it holds nothing. */
static enum yb_status
meant_for_us(const struct yb_node *node, uint64_t epoch, uint64_t incarnation)
{
    if (epoch < node->epoch || (node->registered && incarnation != node->incarnation)) {
        return YB_FENCED;
    }
    return YB_OK;
}

/* Say that a trim was heard of, behind all that was said of these blocks before: the directory
 * believes none of that any more (RULES B4). It names grants alone, so it is in any tenant's
 * message. */
static void
say_trimmed(struct yb_node *node, const struct yb_wire_drops *body)
{
    uint32_t tenant = yb_node_tenant(node, "default");

    for (uint32_t i = 0; i < body->items.count; i++) {
        struct yb_publisher_item item = {
            .wire = {.mode = YB_WIRE_MODE_TRIMMED, .tier = YB_WIRE_TIER_DRAM},
            .tenant = tenant != UINT32_MAX ? (uint16_t)tenant : 0,
        };
        struct yb_wire_grant_name name;

        yb_wire_grant_name_at(&body->items, i, &name);
        item.wire.hash = name.hash;
        item.wire.grant = name.grant;
        YB_ASSERT(yb_publisher_push(node->publisher, &item) == YB_OK);
    }
}

void
yb_node_drop_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_drops body;
    enum yb_status status = yb_wire_drops_decode(request->body, request->body_bytes, &body, NULL);

    if (status == YB_OK) {
        status = meant_for_us(node, body.epoch, body.incarnation);
    }
    if (status == YB_OK && body.reason == YB_WIRE_DROP_REASON_TRIMMED &&
        (!node->registered || yb_publisher_room(node->publisher) < body.items.count)) {
        status = YB_AGAIN; /* It could not be said; it is ordered again. */
    }
    for (uint32_t i = 0; status == YB_OK && i < body.items.count; i++) {
        struct yb_wire_grant_name item;
        struct yb_block *block;

        yb_wire_grant_name_at(&body.items, i, &item);
        block = yb_block_granted(node->blocks, item.hash);
        if (block != NULL && block->grant == item.grant) {
            yb_node_count(node, YB_NODE_STAT_DROPPED, 1);
            yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, false);
        }
        /* Its grant may still be on its way to us, and must not make it readable any more. */
        yb_block_note_drop(node->blocks, item.hash, item.grant);
        yb_node_below_drop(node, item.hash, item.grant);
    }
    if (status == YB_OK && body.reason == YB_WIRE_DROP_REASON_TRIMMED) {
        say_trimmed(node, &body);
    }
    if (status == YB_OK && yb_node_below_reply_drop(node, request)) {
        return; /* Answered when it is durable in every tier. */
    }
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}

void
yb_node_flush_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_flush_answer answer = {0};
    uint8_t out[YB_WIRE_FLUSH_ANSWER_BYTES];
    struct yb_wire_flush_order body;
    char name[65] = {0};
    size_t length = 0;
    enum yb_status status =
        yb_wire_flush_order_decode(request->body, request->body_bytes, &body, NULL);

    if (status == YB_OK) {
        status = meant_for_us(node, body.epoch, body.incarnation);
    }
    if (status == YB_OK) {
        uint32_t tenant;

        memcpy(name, body.tenant.bytes, body.tenant.length);
        tenant = yb_node_tenant(node, name);
        if (tenant == UINT32_MAX) {
            status = YB_TOO_LARGE;
        } else {
            answer.count = yb_node_flush(node, tenant, body.flush);
            if (yb_node_below_reply_flush(node, request, tenant, answer.count)) {
                return;
            }
        }
    }
    if (status == YB_OK &&
        yb_wire_flush_answer_encode(&answer, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_request_reply(request, status, out, (uint32_t)length, NULL, 0);
}

void
yb_node_hold_end(struct yb_node *node, struct yb_block *block)
{
    if (block->hold_until_ns == 0) {
        return;
    }
    block->hold_until_ns = 0;
    node->held_bytes -= block->extent.length;
    if (block->ordered) {
        yb_policy_unpin(yb_node_policy(node, block), &block->policy.entry);
    }
    if (block->hold_previous != 0) {
        yb_block_at(node->blocks, block->hold_previous - 1)->hold_next = block->hold_next;
    } else {
        node->hold_oldest = block->hold_next;
    }
    if (block->hold_next != 0) {
        yb_block_at(node->blocks, block->hold_next - 1)->hold_previous = block->hold_previous;
    } else {
        node->hold_newest = block->hold_previous;
    }
}

void
yb_node_hold(struct yb_node *node, struct yb_block *block, uint64_t until_ns)
{
    uint32_t number = yb_block_index(node->blocks, block) + 1;
    uint64_t most = node->options.pool_bytes / 2;

    if (block->hold_until_ns >= until_ns) {
        return;
    }
    if (block->hold_until_ns != 0) {
        block->hold_until_ns = until_ns;
        return;
    }
    if (block->extent.length > most ||
        (block->ordered &&
         yb_policy_pin(yb_node_policy(node, block), &block->policy.entry) != YB_OK)) {
        return; /* A hold is a wish. */
    }
    while (node->held_bytes + block->extent.length > most) {
        yb_node_hold_end(node, yb_block_at(node->blocks, node->hold_oldest - 1));
    }
    node->held_bytes += block->extent.length;
    block->hold_until_ns = until_ns;
    block->hold_next = 0;
    block->hold_previous = node->hold_newest;
    if (node->hold_newest != 0) {
        yb_block_at(node->blocks, node->hold_newest - 1)->hold_next = number;
    } else {
        node->hold_oldest = number;
    }
    node->hold_newest = number;
}

#define HOLD_WAYS 8u

static struct yb_node_hold *
hold_places(const struct yb_node *node, struct yb_id hash)
{
    uint64_t at = yb_hash_table_id(0, hash) & (YB_NODE_HOLDS - 1) & ~(uint64_t)(HOLD_WAYS - 1);

    return &node->below->holds[at];
}

void
yb_node_hold_told(struct yb_node *node, struct yb_id hash, uint64_t grant, uint64_t until_ns)
{
    struct yb_node_hold *places, *chosen;

    if (node->below == NULL) {
        return;
    }
    chosen = places = hold_places(node, hash);
    for (uint32_t i = 0; i < HOLD_WAYS; i++) {
        if (places[i].grant == grant && yb_id_equal(places[i].hash, hash)) {
            chosen = &places[i];
            break;
        }
        chosen = places[i].until_ns < chosen->until_ns ? &places[i] : chosen;
    }
    if (until_ns > chosen->until_ns || chosen->grant != grant) {
        *chosen = (struct yb_node_hold){hash, grant, until_ns};
    }
}

bool
yb_node_is_held(const struct yb_node *node, struct yb_id hash, uint64_t grant)
{
    const struct yb_node_hold *places = node->below != NULL ? hold_places(node, hash) : NULL;

    for (uint32_t i = 0; places != NULL && i < HOLD_WAYS; i++) {
        if (places[i].grant == grant && yb_id_equal(places[i].hash, hash)) {
            return places[i].until_ns > yb_node_now(node);
        }
    }
    return false;
}

void
yb_node_hold_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_holds body;
    enum yb_status status = yb_wire_holds_decode(request->body, request->body_bytes, &body, NULL);

    if (status == YB_OK) {
        status = meant_for_us(node, body.epoch, body.incarnation);
    }
    for (uint32_t i = 0; status == YB_OK && i < body.items.count; i++) {
        struct yb_wire_hold_item item;
        struct yb_block *block;
        uint64_t until_ns;

        yb_wire_hold_item_at(&body.items, i, &item);
        block = yb_block_granted(node->blocks, item.hash);
        until_ns = yb_node_now(node) + item.hold_ms * YB_NS_PER_MS;
        if (item.hold_ms > 0) {
            yb_node_hold_told(node, item.hash, item.grant, until_ns);
        }
        if (block != NULL && block->grant == item.grant) {
            if (item.hold_ms > 0) {
                yb_node_hold(node, block, until_ns);
            }
            if (item.sole) { /* C8 */
                yb_policy_set_duplicate(yb_node_policy(node, block), &block->policy.entry, false);
            }
        }
    }
    yb_request_reply(request, status, NULL, 0, NULL, 0);
}
