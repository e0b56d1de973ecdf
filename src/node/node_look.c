/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking around in a node: listings, removal of what nobody holds, numbers. All in bounded steps;
 * a cursor is a place in the table of blocks, so that what is there throughout is named.
 */
#include <regex.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "node/node_internal.h"

#define WALK_STEP   16384u /* Records looked at for one answer. */
#define PATTERN_MAX 512u   /* Longest regular expression. */

/* Which keys a question is about. */
struct match {
    uint32_t tenant;
    uint16_t kind;
    const char *pattern;
    size_t pattern_bytes;
    regex_t regex;
    bool compiled;
};

static enum yb_status
match_init(struct match *match, struct yb_node *node, const struct yb_request *request,
           const struct yb_wire_list_question *body)
{
    char pattern[PATTERN_MAX + 1];

    *match = (struct match){
        .tenant = yb_node_tenant_of(node, request),
        .kind = body->kind,
        .pattern = body->pattern.bytes,
        .pattern_bytes = body->pattern.length,
    };
    if (match->tenant == UINT32_MAX) {
        return YB_TOO_LARGE;
    }
    if (match->kind != 2) {
        return YB_OK;
    }
    if (match->pattern_bytes > PATTERN_MAX) {
        return YB_TOO_LARGE;
    }
    memcpy(pattern, match->pattern, match->pattern_bytes);
    pattern[match->pattern_bytes] = '\0';
    if (regcomp(&match->regex, pattern, REG_EXTENDED | REG_NOSUB) != 0) {
        return YB_INVALID;
    }
    match->compiled = true;
    return YB_OK;
}

static void
match_fini(struct match *match)
{
    if (match->compiled) {
        regfree(&match->regex);
    }
}

static bool
matches(const struct match *match, const uint8_t *key, uint32_t key_bytes)
{
    char text[YB_WIRE_KEY_BYTES_MAX + 1];

    if (match->kind == 0) {
        return true;
    }
    if (match->kind == 1) {
        return key_bytes >= match->pattern_bytes &&
               memcmp(key, match->pattern, match->pattern_bytes) == 0;
    }
    memcpy(text, key, key_bytes);
    text[key_bytes] = '\0';
    return regexec(&match->regex, text, 0, NULL, 0) == 0;
}

/* Return the next block at or after *cursor that can be read and matches, and move the cursor
 * behind it; NULL when the step is over or, with *cursor 0, the walk. */
static struct yb_block *
next_match(struct yb_node *node, const struct match *match, uint64_t *cursor, uint64_t stop)
{
    while (*cursor < stop) {
        struct yb_block *block = yb_block_at(node->blocks, (uint32_t)(*cursor)++);

        if (block->state == YB_BLOCK_GRANTED && block->tenant == match->tenant &&
            block->flush >= node->tenants[block->tenant].flush &&
            block->expires_ns > yb_node_now(node) &&
            matches(match, yb_node_key(node, block), block->key_bytes)) {
            return block;
        }
    }
    return NULL;
}

/* Understand a question; on OK the match must be ended. */
static enum yb_status
begin(struct yb_node *node, const struct yb_request *request, struct yb_wire_list_question *body,
      struct match *match)
{
    enum yb_status status =
        yb_wire_list_question_decode(request->body, request->body_bytes, body, NULL);

    if (status == YB_OK && !yb_node_serving(node)) {
        status = YB_FENCED;
    }
    return status == YB_OK ? match_init(match, node, request, body) : status;
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
    struct match match;
    uint64_t cursor, stop;
    size_t key_bytes = 0, length = 0;
    enum yb_status status = begin(node, request, &body, &match);

    if (status == YB_OK && (body.cursor & YB_NODE_CURSOR_BELOW) != 0) {
        match_fini(&match);
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
    cursor = body.cursor;
    stop = yb_block_span(node->blocks);
    stop = stop < cursor + WALK_STEP ? stop : cursor + WALK_STEP;
    while (listing.items.count < items_max &&
           key_bytes + YB_WIRE_KEY_BYTES_MAX <= YB_NODE_KEYS_BYTES &&
           (block = next_match(node, &match, &cursor, stop)) != NULL) {
        list_item(node, block, &items[listing.items.count++]);
        memcpy(keys + key_bytes, yb_node_key(node, block), block->key_bytes);
        key_bytes += block->key_bytes;
    }
    match_fini(&match);
    listing.cursor = cursor < yb_block_span(node->blocks) ? cursor
                     : yb_node_below_blocks(node) > 0     ? YB_NODE_CURSOR_BELOW
                                                          : 0;
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
    struct match match;
    enum yb_status status = match_init(&match, node, request, question);

    if (status != YB_OK) {
        return status;
    }
    listing->items.count = 0;
    for (uint32_t i = 0; i < count; i++) { /* Keep those that match, in place. */
        if (matches(&match, listing->keys.bytes + from, items[i].key_bytes)) {
            memmove(keys + to, listing->keys.bytes + from, items[i].key_bytes);
            items[listing->items.count++] = items[i];
            to += items[i].key_bytes;
        }
        from += items[i].key_bytes;
    }
    match_fini(&match);
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
    struct match match;
    uint64_t cursor, stop, done;
    enum yb_status status = removal != NULL ? begin(node, request, &body, &match) : YB_AGAIN;

    if (status != YB_OK) {
        yb_request_reply(request, status, NULL, 0, NULL, 0);
        return;
    }
    if ((body.cursor & YB_NODE_CURSOR_BELOW) != 0 && body.kind != 0) {
        match_fini(&match); /* By their keys: list them, and remove each. */
        yb_request_reply(request, YB_UNSUPPORTED, NULL, 0, NULL, 0);
        return;
    }
    node->requests++;
    *removal = (struct yb_node_removal){.request = request};
    node->removing = (uint16_t)(removal - node->removals + 1);
    if ((body.cursor & YB_NODE_CURSOR_BELOW) != 0) {
        removal->answer.cursor =
            yb_node_remove_below(node, match.tenant, body.cursor, &removal->answer);
        node->removing = 0;
        match_fini(&match);
        removal->through = yb_node_below_kills(node, &done);
        check_removal(node, removal);
        return;
    }
    cursor = body.cursor;
    stop = yb_block_span(node->blocks);
    stop = stop < cursor + WALK_STEP ? stop : cursor + WALK_STEP;
    while (yb_publisher_room(node->publisher) > YB_PUBLISHER_MESSAGE_ITEMS &&
           (block = next_match(node, &match, &cursor, stop)) != NULL) {
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
    match_fini(&match);
    removal->answer.cursor = cursor < yb_block_span(node->blocks) ? cursor
                             : yb_node_below_blocks(node) > 0 && body.kind == 0
                                 ? YB_NODE_CURSOR_BELOW
                                 : 0;
    removal->through = yb_node_below_kills(node, &done);
    check_removal(node, removal);
}

/* ---- numbers -------------------------------------------------------------------------------- */

void
yb_node_numbers(struct yb_node *node, struct yb_wire_node_numbers *out)
{
    struct yb_dram_info info = yb_dram_info(node->pool);
    uint64_t until_ns = yb_member_lease_until(node->member);
    char why[128];

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
        .consistent = yb_node_check(node, why, sizeof(why)),
        .numa_node = info.memory.page_bytes != 0 ? info.memory.numa_node : UINT32_MAX,
    };
}

void
yb_node_stat_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    uint8_t out[YB_WIRE_NODE_NUMBERS_BYTES];
    struct yb_wire_node_numbers numbers;
    size_t length = 0;

    yb_node_numbers(node, &numbers);
    if (yb_wire_node_numbers_encode(&numbers, out, sizeof(out), &length) != YB_OK) {
        YB_ASSERT(false);
    }
    yb_request_reply(request, YB_OK, out, (uint32_t)length, NULL, 0);
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
