/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is told that a block is gone: its last few readers, and nobody else.
 *
 * A block remembers up to YB_BLOCK_READERS recent readers, two bytes each. When it goes, its name
 * is put into the box of each; a reader collects its box by a watch, a call that is answered when
 * there is something in it. Whoever does not watch, or whose box is full, finds out at the node,
 * which costs one trip (DESIGN 1.2). So a dropped block costs at most as many names as it had
 * recent readers, in messages that carry many.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "node/node_internal.h"

#define READERS_MAX 1024u /* Reader numbers 1 .. READERS_MAX; a power of two. */
#define PROBES      16u
#define BOX_ITEMS   1024u
#define GATHER_NS   (2 * YB_NS_PER_MS) /* How long the first name of a box waits for company. */
#define FORGET_NS   (60 * YB_NS_PER_S)

struct reader {
    struct yb_id identity;
    uint64_t seen_ns;  /* 0: nobody. */
    uint64_t since_ns; /* When its box got its first name. */
    struct yb_request *request;
    struct yb_wire_grant_name *box; /* Allocated when it first watches. */
    uint32_t count;
};

struct yb_node_watch {
    struct reader readers[READERS_MAX + 1];
};

enum yb_status
yb_node_watch_create(struct yb_node *node)
{
    node->watch = calloc(1, sizeof(*node->watch));
    return node->watch != NULL ? YB_OK : YB_NO_MEMORY;
}

void
yb_node_watch_destroy(struct yb_node *node)
{
    if (node->watch == NULL) {
        return;
    }
    for (uint32_t i = 1; i <= READERS_MAX; i++) {
        YB_ASSERT(node->watch->readers[i].request == NULL);
        free(node->watch->readers[i].box);
    }
    free(node->watch);
    node->watch = NULL;
}

/* Return the reader's number; 0: too many at the time, it is not remembered. */
static uint16_t
reader_of(struct yb_node *node, struct yb_id identity)
{
    uint64_t start = yb_hash_table_id(1, identity);
    uint64_t now_ns = yb_node_now(node);
    uint32_t stale = 0;

    for (uint32_t i = 0; i < PROBES; i++) {
        uint32_t place = ((uint32_t)(start + i) & (READERS_MAX - 1)) + 1;
        struct reader *reader = &node->watch->readers[place];

        if (reader->seen_ns != 0 && yb_id_equal(reader->identity, identity)) {
            reader->seen_ns = now_ns;
            return (uint16_t)place;
        }
        if (stale == 0 && reader->request == NULL &&
            (reader->seen_ns == 0 || reader->seen_ns + FORGET_NS < now_ns)) {
            stale = place;
        }
    }
    if (stale != 0) {
        node->watch->readers[stale].identity = identity;
        node->watch->readers[stale].seen_ns = now_ns;
        node->watch->readers[stale].count = 0;
    }
    return (uint16_t)stale;
}

void
yb_node_watch_read(struct yb_node *node, struct yb_block *block, const struct yb_request *request)
{
    uint16_t reader = reader_of(node, request->peer->identity);
    uint32_t at = 0;

    if (reader == 0) {
        return;
    }
    while (at < YB_BLOCK_READERS - 1 && block->readers[at] != reader) {
        at++;
    }
    for (; at > 0; at--) {
        block->readers[at] = block->readers[at - 1];
    }
    block->readers[0] = reader;
}

static void
answer(struct yb_node *node, struct reader *reader)
{
    struct yb_wire_gone body = {.items = {.count = reader->count, .native = reader->box}};
    struct yb_request *request = reader->request;
    size_t length = 0;

    if (yb_wire_gone_encode(&body, node->scratch, YB_NODE_SCRATCH_BYTES, &length) != YB_OK) {
        YB_ASSERT(false);
    }
    reader->request = NULL;
    yb_node_count(node, YB_NODE_STAT_TOLD, reader->count);
    node->told_ever += reader->count;
    reader->count = 0;
    yb_node_reply(node, request, YB_OK, node->scratch, length);
}

void
yb_node_watch_gone(struct yb_node *node, const struct yb_block *block)
{
    for (uint32_t i = 0; i < YB_BLOCK_READERS; i++) {
        struct reader *reader = &node->watch->readers[block->readers[i]];

        if (block->readers[i] == 0 || reader->box == NULL || reader->count == BOX_ITEMS) {
            continue;
        }
        if (reader->count == 0) {
            reader->since_ns = yb_node_now(node);
        }
        reader->box[reader->count++] =
            (struct yb_wire_grant_name){.hash = block->hash, .grant = block->grant};
    }
}

void
yb_node_watch_handle(void *service, struct yb_request *request)
{
    struct yb_node *node = service;
    uint16_t number = reader_of(node, request->peer->identity);
    struct reader *reader = &node->watch->readers[number];

    node->requests++;
    if (number == 0 || node->stopping || node->leaving) {
        yb_node_reply(node, request, YB_AGAIN, NULL, 0);
        return;
    }
    if (reader->box == NULL) {
        reader->box = calloc(BOX_ITEMS, sizeof(*reader->box));
    }
    if (reader->box == NULL) {
        yb_node_reply(node, request, YB_NO_MEMORY, NULL, 0);
        return;
    }
    if (reader->request != NULL) { /* A newer one takes its place. */
        answer(node, reader);
    }
    reader->request = request;
}

void
yb_node_watch_tick(struct yb_node *node, bool all)
{
    uint64_t now_ns = yb_node_now(node);

    for (uint32_t i = 1; i <= READERS_MAX; i++) {
        struct reader *reader = &node->watch->readers[i];

        if (reader->request == NULL) {
            continue;
        }
        if (all || (reader->count > 0 && now_ns >= reader->since_ns + GATHER_NS) ||
            now_ns + 2 * GATHER_NS >= reader->request->deadline_ns) {
            answer(node, reader);
        }
    }
}
