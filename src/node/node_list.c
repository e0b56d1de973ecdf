/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking at what lies below memory: listings, removals that hold nobody up, one block.
 *
 * The shelf has no keys: a listing reads the heads of a few records from their media, and answers
 * when the last of them is there.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "node/node_below.h"

#define WALK_STEP 8192u /* Records looked at for one answer. */
#define LIST_MAX  64u   /* Blocks in one. */

struct list {
    struct yb_node *node;
    struct yb_request *request;
    uint32_t left; /* Loads under way, and one until all have begun. */
    uint32_t count;
    uint64_t cursor;
    struct head {
        struct yb_tier_load load; /* First. */
        struct list *list;
        struct yb_wire_list_item item;
        bool read;
    } heads[LIST_MAX];
    struct yb_wire_list_item items[LIST_MAX];
    uint8_t keys[LIST_MAX * YB_WIRE_KEY_BYTES_MAX];
    uint8_t body[]; /* The request's. */
};

/* Return the next record at or after the cursor that the tenant may see and memory does not have,
 * and move the cursor behind it. */
static struct yb_shelf_record *
next_below(struct yb_node *node, uint32_t tenant, uint64_t *at, uint64_t stop)
{
    const struct yb_shelf *shelf = node->below->shelf;

    while (*at < stop) {
        struct yb_shelf_record *record = yb_shelf_at(shelf, (uint32_t)(*at)++);
        const struct yb_block *block;
        enum yb_status status;

        if (record->state != YB_SHELF_LIVE ||
            yb_node_below_find(node, tenant, record->hash, record->grant, &status) == NULL) {
            continue;
        }
        block = yb_block_granted(node->blocks, record->hash);
        if (block == NULL || block->grant != record->grant) {
            return record;
        }
    }
    return NULL;
}

static uint64_t
step_end(const struct yb_node *node, uint64_t at)
{
    uint64_t span = yb_shelf_span(node->below->shelf);

    return at + WALK_STEP < span ? at + WALK_STEP : span;
}

static uint64_t
cursor_at(const struct yb_node *node, uint64_t at)
{
    return at < yb_shelf_span(node->below->shelf) ? at | YB_NODE_CURSOR_BELOW : 0;
}

static void
list_end(struct list *list)
{
    struct yb_wire_list_question question;
    struct yb_wire_listing listing = {.cursor = list->cursor, .items = {.native = list->items}};
    size_t key_bytes = 0;
    enum yb_status status;

    list->left--;
    if (list->left > 0) {
        return;
    }
    for (uint32_t i = 0; i < list->count; i++) {
        struct head *head = &list->heads[i];

        if (!head->read) {
            continue; /* It is gone, or its medium is away. */
        }
        head->item.key_bytes = (uint16_t)head->load.record_out.key_bytes;
        memcpy(list->keys + key_bytes, head->load.key_out, head->item.key_bytes);
        key_bytes += head->item.key_bytes;
        list->items[listing.items.count++] = head->item;
    }
    listing.keys = (struct yb_wire_blob){.bytes = list->keys, .length = (uint32_t)key_bytes};
    list->node->requests--;
    status = yb_wire_list_question_decode(list->body, list->request->body_bytes, &question, NULL);
    status = status == YB_OK ? yb_node_list_reply(list->node, list->request, &listing, &question)
                             : status;
    if (status != YB_OK) {
        yb_request_reply(list->request, status, NULL, 0, NULL, 0);
    }
    free(list);
}

static void
on_head(struct yb_tier_op *op, enum yb_status status)
{
    struct head *head = (struct head *)op;

    head->read = status == YB_OK;
    list_end(head->list);
}

static void
read_head(struct list *list, const struct yb_shelf_record *record)
{
    struct yb_node *node = list->node;
    struct head *head = &list->heads[list->count];
    uint64_t wall_s = yb_clock_wall(yb_loop_clock(yb_net_loop(node->net))) / YB_NS_PER_S;
    enum yb_status status = YB_NOT_FOUND;

    head->list = list;
    head->load = (struct yb_tier_load){
        .op = {.done = on_head,
               .deadline_ns = list->request->deadline_ns,
               .traffic_class = list->request->class},
        .hash = record->hash,
        .grant = record->grant,
    };
    for (uint32_t i = 0; i < node->below->level_count && status != YB_OK; i++) {
        const struct yb_node_level *level = &node->below->levels[i];

        if ((record->resident >> i & 1) == 0 || !yb_node_level_reads(level)) {
            continue;
        }
        head->item = (struct yb_wire_list_item){
            .grant = record->grant,
            .size = record->size,
            .ttl_ms = record->expires_s > wall_s ? (record->expires_s - wall_s) * 1000 : 0,
            .flags = record->flags,
            .tier = (uint8_t)level->kind,
        };
        status = yb_tier_load(level->tier, &head->load);
    }
    if (status == YB_OK) {
        list->count++;
        list->left++;
    }
}

enum yb_status
yb_node_list_below(struct yb_node *node, struct yb_request *request,
                   const struct yb_wire_list_question *question)
{
    uint32_t tenant = yb_node_tenant_of(node, request);
    uint64_t at = question->cursor & ~YB_NODE_CURSOR_BELOW;
    uint32_t most = question->items_max < LIST_MAX ? question->items_max : LIST_MAX;
    struct yb_shelf_record *record;
    struct list *list;
    uint64_t stop;

    if (node->below == NULL || tenant == UINT32_MAX || node->stopping) {
        return node->stopping ? YB_CLOSED : YB_INVALID;
    }
    list = calloc(1, sizeof(*list) + request->body_bytes);
    if (list == NULL) {
        return YB_NO_MEMORY;
    }
    list->node = node;
    list->request = request;
    list->left = 1;
    memcpy(list->body, request->body, request->body_bytes);
    node->requests++;
    stop = step_end(node, at);
    while (list->count < most && (record = next_below(node, tenant, &at, stop)) != NULL) {
        read_head(list, record);
    }
    list->cursor = cursor_at(node, at);
    list_end(list);
    return YB_OK;
}

uint64_t
yb_node_remove_below(struct yb_node *node, uint32_t tenant, uint64_t cursor,
                     struct yb_wire_remove_unheld_answer *counts)
{
    uint64_t at = cursor & ~YB_NODE_CURSOR_BELOW;
    struct yb_shelf_record *record;
    uint64_t stop;

    if (node->below == NULL) {
        return 0;
    }
    stop = step_end(node, at);
    while (yb_publisher_room(node->publisher) > YB_PUBLISHER_MESSAGE_ITEMS &&
           (record = next_below(node, tenant, &at, stop)) != NULL) {
        if (yb_node_is_held(node, record->hash, record->grant)) {
            counts->skipped++;
        } else {
            counts->removed++;
            yb_node_below_remove(node, record->hash, record->grant);
        }
    }
    return cursor_at(node, at);
}

bool
yb_node_below_info(struct yb_node *node, uint32_t tenant, struct yb_id hash,
                   struct yb_wire_block_info *info_out)
{
    enum yb_status status;
    const struct yb_shelf_record *record =
        yb_node_below_find(node, tenant, hash, YB_WIRE_NO_GRANT, &status);
    uint32_t level = 0;

    if (record == NULL) {
        return false;
    }
    while ((record->resident >> level & 1) == 0) {
        level++;
    }
    *info_out = (struct yb_wire_block_info){
        .grant = record->grant,
        .size = record->size,
        .flush = record->flush,
        .status = YB_OK,
        .flags = record->flags,
        .tier = (uint8_t)node->below->levels[level].kind,
    };
    return true;
}

uint64_t
yb_node_below_bytes(const struct yb_node *node)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; node->below != NULL && i < node->below->level_count; i++) {
        struct yb_tier_info info = {.live = 0};

        if (node->below->levels[i].tier != NULL) {
            yb_tier_info(node->below->levels[i].tier, &info);
        }
        bytes += info.live;
    }
    return bytes;
}
