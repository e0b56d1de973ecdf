/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking around in a node: listings, removal of what nobody holds, numbers. All in bounded steps;
 * a cursor is a place in the table of blocks, so that what is there throughout is named.
 */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "node/match.h"
#include "node/node_internal.h"

#define NOT_CHECKED 2u                 /* Numbers: not compared with the blocks. */
#define WALK_STEP   16384u             /* Records looked at for one answer. */
#define WALK_NS     (2 * YB_NS_PER_MS) /* A walk that took so long goes on with the next answer. */

/* A question's way through the table of blocks, or a step of it. */
struct walk {
    struct yb_node *node;
    struct yb_match match;
    uint32_t tenant;
    uint64_t cursor; /* The next record. */
    uint64_t stop;
    uint64_t until_ns;
    enum yb_status status; /* Why the walk cannot go on at the cursor. */
};

static uint64_t
walk_now(const struct walk *walk)
{
    return yb_clock_now(yb_loop_clock(yb_net_loop(walk->node->net)));
}

/* Understand a question; on OK the walk's match must be ended. */
static enum yb_status
walk_decode(struct walk *walk, struct yb_node *node, const struct yb_request *request,
            struct yb_wire_list_question *question)
{
    enum yb_status status =
        yb_wire_list_question_decode(request->body, request->body_bytes, question, NULL);

    if (status != YB_OK) {
        return status;
    }
    if (!yb_node_serving(node)) {
        return YB_FENCED;
    }
    *walk = (struct walk){.node = node, .tenant = yb_node_tenant_of(node, request)};
    return walk->tenant != UINT32_MAX
               ? yb_match_init(&walk->match, question->kind, question->pattern.bytes,
                               question->pattern.length)
               : YB_TOO_LARGE;
}

static void
walk_begin(struct walk *walk, uint64_t cursor)
{
    uint64_t span = yb_block_span(walk->node->blocks);

    walk->cursor = cursor;
    walk->stop = span < cursor + WALK_STEP ? span : cursor + WALK_STEP;
    walk->until_ns = walk_now(walk) + WALK_NS;
}

/* Whether the block can be seen, and is one that the question is about. */
static enum yb_status
walk_try(const struct walk *walk, const struct yb_block *block)
{
    struct yb_node *node = walk->node;

    if (block->state != YB_BLOCK_GRANTED || block->tenant != walk->tenant ||
        block->flush < node->tenants[block->tenant].flush ||
        block->expires_ns <= yb_node_now(node)) {
        return YB_NOT_FOUND;
    }
    return yb_match_try(&walk->match, yb_node_key(node, block), block->key_bytes);
}

/* Return the next block at or after the cursor that can be read and matches, and move the cursor
 * behind it; NULL when the step is over, or with the status of the one that it stands at. */
static struct yb_block *
walk_next(struct walk *walk)
{
    while (walk->cursor < walk->stop) {
        struct yb_block *block = yb_block_at(walk->node->blocks, (uint32_t)walk->cursor);
        const enum yb_status status = walk_try(walk, block);

        if (status != YB_OK && status != YB_NOT_FOUND) {
            walk->status = status;
            return NULL;
        }
        walk->cursor++;
        if (walk->match.kind == YB_WIRE_MATCH_REGEX && walk_now(walk) > walk->until_ns) {
            walk->stop = walk->cursor;
        }
        if (status == YB_OK) {
            return block;
        }
    }
    return NULL;
}

/* Where the next answer begins. */
static uint64_t
walk_cursor(const struct walk *walk, bool below)
{
    struct yb_node *node = walk->node;

    if (walk->cursor < yb_block_span(node->blocks)) {
        return walk->cursor;
    }
    return below && yb_node_below_blocks(node) > 0 ? YB_NODE_CURSOR_BELOW : 0;
}

static uint64_t
left_ms(uint64_t until_ns, uint64_t now_ns)
{
    return until_ns <= now_ns ? 0 : (until_ns - now_ns) / YB_NS_PER_MS + 1;
}

static bool
in_use(const struct yb_node *node, const struct yb_block *block)
{
    return block->pins > 0 || block->hold_until_ns > yb_node_now(node) ||
           yb_node_is_held(node, block->hash, block->grant);
}

static void
list_item(struct yb_node *node, const struct yb_block *block, struct yb_wire_list_item *item)
{
    uint64_t now_ns = yb_node_now(node);

    *item = (struct yb_wire_list_item){
        .grant = block->grant,
        .size = block->size,
        .ttl_ms = block->expires_ns == YB_NEVER ? 0 : left_ms(block->expires_ns, now_ns),
        .idle_ms = (now_ns - block->access_ns) / YB_NS_PER_MS,
        .key_bytes = block->key_bytes,
        .flags = block->flags,
        .tier = YB_WIRE_TIER_DRAM,
        .pinned = in_use(node, block),
    };
}

void
yb_node_list_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_wire_list_item items[YB_WIRE_LIST_ITEMS_MAX / 8];
    struct yb_wire_list_question body;
    struct yb_wire_listing listing = {.items = {.native = items}};
    uint8_t *keys = node->keys;
    uint32_t items_max = sizeof(items) / sizeof(items[0]);
    struct yb_block *block;
    struct walk walk;
    size_t key_bytes = 0, length = 0;
    enum yb_status status = walk_decode(&walk, node, request, &body);

    if (status == YB_OK && (body.cursor & YB_NODE_CURSOR_BELOW) != 0) {
        yb_match_fini(&walk.match);
        status = yb_node_list_below(node, request, &body);
        if (status == YB_OK) {
            return;
        }
    }
    if (status != YB_OK) {
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    items_max = body.items_max < items_max ? body.items_max : items_max;
    walk_begin(&walk, body.cursor);
    while (listing.items.count < items_max &&
           key_bytes + YB_WIRE_KEY_BYTES_MAX <= YB_NODE_KEYS_BYTES &&
           (block = walk_next(&walk)) != NULL) {
        list_item(node, block, &items[listing.items.count++]);
        memcpy(keys + key_bytes, yb_node_key(node, block), block->key_bytes);
        key_bytes += block->key_bytes;
    }
    yb_match_fini(&walk.match);
    if (listing.items.count == 0 && walk.status != YB_OK) {
        yb_request_reply(request, walk.status, NULL, 0, NULL, 0);
        return;
    }
    listing.cursor = walk_cursor(&walk, true);
    listing.keys = (struct yb_wire_blob){.bytes = keys, .length = (uint32_t)key_bytes};
    if (yb_wire_listing_encode(&listing, node->scratch, YB_NODE_SCRATCH_BYTES, &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_request_reply(request, YB_OK, node->scratch, (uint32_t)length, NULL, 0);
}

enum yb_status
yb_node_list_reply(struct yb_node *node, struct yb_request *request,
                   struct yb_wire_listing *listing, const struct yb_wire_list_question *question)
{
    struct yb_wire_list_item *items = (void *)(uintptr_t)listing->items.native;
    uint32_t count = listing->items.count;
    uint8_t *keys = node->keys;
    size_t from = 0, to = 0, length = 0;
    struct yb_match match;
    enum yb_status status =
        yb_match_init(&match, question->kind, question->pattern.bytes, question->pattern.length);

    if (status != YB_OK) {
        return status;
    }
    listing->items.count = 0;
    for (uint32_t i = 0; i < count && (status == YB_OK || status == YB_NOT_FOUND); i++) {
        status = yb_match_try(&match, listing->keys.bytes + from, items[i].key_bytes);
        if (status == YB_OK) { /* Keep it, in place. */
            memmove(keys + to, listing->keys.bytes + from, items[i].key_bytes);
            items[listing->items.count++] = items[i];
            to += items[i].key_bytes;
        }
        from += items[i].key_bytes;
    }
    yb_match_fini(&match);
    if (status != YB_OK && status != YB_NOT_FOUND) {
        return status;
    }
    listing->keys = (struct yb_wire_blob){.bytes = keys, .length = (uint32_t)to};
    if (yb_wire_listing_encode(listing, node->scratch, YB_NODE_SCRATCH_BYTES, &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_request_reply(request, YB_OK, node->scratch, (uint32_t)length, NULL, 0);
    return YB_OK;
}

/* ---- removal of what nobody holds ------------------------------------------------------------ */

static void
answer_removal(struct yb_node *node, struct yb_node_removal *removal, enum yb_status status)
{
    uint8_t out[YB_WIRE_REMOVE_UNHELD_ANSWER_BYTES];
    struct yb_request *request = removal->request;
    size_t length = 0;

    if (yb_wire_remove_unheld_answer_encode(&removal->answer, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    removal->request = NULL;
    yb_node_reply(node, request, status, out, status == YB_OK ? length : 0);
}

/* Answer if nothing is waited for any more: neither the directory nor a medium names what went. */
static void
check_removal(struct yb_node *node, struct yb_node_removal *removal)
{
    uint64_t done;

    (void)yb_node_below_kills(node, &done);
    if (removal->left == 0 && removal->through <= done) {
        answer_removal(node, removal, YB_OK);
    }
}

void
yb_node_removal_heard(struct yb_node *node, uint16_t removal)
{
    struct yb_node_removal *waiting;

    if (removal == 0) {
        return;
    }
    waiting = &node->removals[removal - 1];
    YB_ASSERT(waiting->request != NULL && waiting->left > 0);
    waiting->left--;
    check_removal(node, waiting);
}

void
yb_node_removals_killed(struct yb_node *node)
{
    for (uint32_t i = 0; i < YB_NODE_REMOVALS; i++) {
        if (node->removals[i].request != NULL && node->removing != i + 1) {
            check_removal(node, &node->removals[i]);
        }
    }
}

void
yb_node_removals_end(struct yb_node *node)
{
    for (uint32_t i = 0; i < YB_NODE_REMOVALS; i++) {
        if (node->removals[i].request != NULL) {
            answer_removal(node, &node->removals[i], YB_AGAIN);
        }
    }
}

static struct yb_node_removal *
free_removal(struct yb_node *node)
{
    for (uint32_t i = 0; i < YB_NODE_REMOVALS; i++) {
        if (node->removals[i].request == NULL) {
            return &node->removals[i];
        }
    }
    return NULL;
}

/* Who has the answer finds no key named any more, and can put each again. */
void
yb_node_remove_unheld_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    struct yb_node_removal *removal = free_removal(node);
    struct yb_wire_list_question body;
    struct yb_block *block;
    struct walk walk;
    uint64_t done;
    enum yb_status status = removal != NULL ? walk_decode(&walk, node, request, &body) : YB_AGAIN;

    if (status != YB_OK) {
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    if ((body.cursor & YB_NODE_CURSOR_BELOW) != 0 && body.kind != YB_WIRE_MATCH_ALL) {
        yb_match_fini(&walk.match); /* By their keys: list them, and remove each. */
        yb_request_reply(request, YB_UNSUPPORTED, NULL, 0, NULL, 0);
        return;
    }
    node->requests++;
    *removal = (struct yb_node_removal){.request = request};
    node->removing = (uint16_t)(removal - node->removals + 1);
    if ((body.cursor & YB_NODE_CURSOR_BELOW) != 0) {
        removal->answer.cursor =
            yb_node_remove_below(node, walk.tenant, body.cursor, &removal->answer);
        node->removing = 0;
        yb_match_fini(&walk.match);
        removal->through = yb_node_below_kills(node, &done);
        check_removal(node, removal);
        return;
    }
    walk_begin(&walk, body.cursor);
    while (yb_publisher_room(node->publisher) > YB_PUBLISHER_MESSAGE_ITEMS &&
           (block = walk_next(&walk)) != NULL) {
        if (in_use(node, block)) {
            removal->answer.skipped++;
        } else {
            removal->answer.removed++;
            removal->left++;
            yb_node_below_remove(node, block->hash, block->grant);
            yb_node_doom(node, block, YB_WIRE_FATE_REMOVED, true);
        }
    }
    node->removing = 0;
    yb_match_fini(&walk.match);
    if (removal->answer.removed + removal->answer.skipped == 0 && walk.status != YB_OK) {
        answer_removal(node, removal, walk.status);
        return;
    }
    removal->answer.cursor = walk_cursor(&walk, body.kind == YB_WIRE_MATCH_ALL);
    removal->through = yb_node_below_kills(node, &done);
    check_removal(node, removal);
}

/* ---- numbers -------------------------------------------------------------------------------- */

static void
node_numbers(struct yb_node *node, struct yb_wire_node_numbers *out)
{
    struct yb_dram_info info = yb_dram_info(node->pool);
    uint64_t until_ns = yb_member_lease_until(node->member);

    *out = (struct yb_wire_node_numbers){
        .incarnation = node->incarnation,
        .epoch = node->epoch,
        .capacity = info.allocator.capacity,
        .used = info.used_bytes,
        .live = info.state_bytes[YB_DRAM_LIVE],
        .in_flight = info.state_bytes[YB_DRAM_IN_FLIGHT],
        .ungranted = info.state_bytes[YB_DRAM_UNGRANTED],
        .quarantined = info.state_bytes[YB_DRAM_QUARANTINED],
        .pinned = node->pinned_bytes,
        .held = node->held_bytes,
        .largest_free = info.allocator.piece_bytes_max,
        .blocks = node->granted_count,
        .puts = node->puts_ever,
        .gets = node->gets_ever,
        .hits = node->hits_ever,
        .evicted = node->evicted_ever,
        .evicted_bytes = node->evicted_bytes_ever,
        .refused_space = node->refused_space_ever,
        .lease_left_ms = node->registered ? left_ms(until_ns, yb_node_now(node)) : 0,
        .page_bytes = info.memory.page_bytes,
        .told = node->told_ever,
        .below = yb_node_below_blocks(node),
        .below_bytes = yb_node_below_bytes(node),
        .slot = node->slot,
        .state = node->slot_state,
        .consistent = NOT_CHECKED,
        .numa_node = info.memory.page_bytes != 0 ? info.memory.numa_node : UINT32_MAX,
    };
}

static void
answer_numbers(struct yb_request *request, const struct yb_wire_node_numbers *numbers)
{
    uint8_t out[YB_WIRE_NODE_NUMBERS_BYTES];
    size_t length = 0;

    if (yb_wire_node_numbers_encode(numbers, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_request_reply(request, YB_OK, out, (uint32_t)length, NULL, 0);
}

void
yb_node_stat_handle(void *service, struct yb_request *request)
{
    struct yb_wire_node_numbers numbers;

    node_numbers(service, &numbers);
    answer_numbers(request, &numbers);
}

void
yb_node_check_handle(void *service, struct yb_request *request)
{
    struct yb_wire_node_numbers numbers;
    char why[128];

    node_numbers(service, &numbers);
    numbers.consistent = yb_node_check(service, why, sizeof(why));
    answer_numbers(request, &numbers);
}

void
yb_node_tier_stat_handle(void *service, struct yb_request *request)
{
    struct yb_node_tier_info infos[YB_NODE_TIERS_MAX];
    struct yb_wire_tier_state states[YB_NODE_TIERS_MAX];
    struct yb_wire_tier_states answer = {.tiers = {.native = states}};
    uint8_t out[YB_WIRE_TIER_STATES_BYTES + YB_NODE_TIERS_MAX * YB_WIRE_TIER_STATE_BYTES];
    size_t length = 0;

    answer.tiers.count = yb_node_tier_infos(service, infos);
    for (uint32_t i = 0; i < answer.tiers.count; i++) {
        states[i] = (struct yb_wire_tier_state){
            .tier = (uint8_t)infos[i].kind,
            .works = infos[i].aside == YB_OK,
            .status = infos[i].aside,
        };
        memcpy(states[i].why, infos[i].why, sizeof(states[i].why));
    }
    YB_ASSERT(yb_wire_tier_states_encode(&answer, out, sizeof(out), &length) == YB_OK);
    yb_request_reply(request, YB_OK, out, (uint32_t)length, NULL, 0);
}

static struct yb_wire_block_info
block_info(struct yb_node *node, uint32_t tenant, struct yb_id hash)
{
    struct yb_block *block = yb_block_granted(node->blocks, hash);
    uint64_t now_ns = yb_node_now(node);
    struct yb_wire_block_info info = {.status = YB_NOT_FOUND};

    if (block != NULL && block->tenant == tenant) {
        bool readable = block->flush >= node->tenants[tenant].flush && block->expires_ns > now_ns;

        return (struct yb_wire_block_info){
            .grant = block->grant,
            .size = block->size,
            .flush = block->flush,
            .ttl_ms = block->expires_ns == YB_NEVER ? 0 : left_ms(block->expires_ns, now_ns),
            .idle_ms = (now_ns - block->access_ns) / YB_NS_PER_MS,
            .status = readable ? YB_OK : YB_NOT_FOUND,
            .pins = block->pins,
            .hold_ms = (uint32_t)left_ms(block->hold_until_ns, now_ns),
            .flags = block->flags,
            .tier = YB_WIRE_TIER_DRAM,
        };
    }
    if (yb_node_below_info(node, tenant, hash, &info)) {
        return info;
    }
    {
        const struct yb_node_ghost *ghost =
            &node->ghosts[yb_hash_table_id(0, hash) & (YB_NODE_GHOSTS - 1)];

        if (yb_id_equal(ghost->hash, hash)) {
            info.fate = ghost->fate;
            info.idle_ms = (now_ns - ghost->when_ns) / YB_NS_PER_MS;
        }
    }
    return info;
}

void
yb_node_block_stat_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    uint32_t tenant = yb_node_tenant_of(node, request);
    struct yb_wire_get body;
    enum yb_status status = yb_wire_get_decode(request->body, request->body_bytes, &body, NULL);

    if (status != YB_OK || tenant == UINT32_MAX) {
        yb_request_reply(request, status != YB_OK ? status : YB_TOO_LARGE, NULL, 0, NULL, 0);
        return;
    }
    for (uint32_t i = 0; i < body.items.count; i++) {
        struct yb_wire_block_info info;
        struct yb_wire_get_item item;

        yb_wire_get_item_at(&body.items, i, &item);
        info = block_info(node, tenant, item.hash);
        yb_wire_block_info_store(&info, node->scratch + YB_WIRE_BLOCK_INFOS_BYTES +
                                            (size_t)i * YB_WIRE_BLOCK_INFO_BYTES);
    }
    memset(node->scratch, 0, YB_WIRE_BLOCK_INFOS_BYTES);
    yb_wire_put_u32(node->scratch + YB_WIRE_BLOCK_INFOS_AT_ANSWERS, body.items.count);
    yb_request_reply(
        request, YB_OK, node->scratch,
        (uint32_t)(YB_WIRE_BLOCK_INFOS_BYTES + (size_t)body.items.count * YB_WIRE_BLOCK_INFO_BYTES),
        NULL, 0);
}
