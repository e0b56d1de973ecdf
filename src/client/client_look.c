/* SPDX-License-Identifier: Apache-2.0
 *
 * Looking around: listings, removal by pattern, nodes, drain, counters.
 *
 * A listing is a walk on the caller's thread: one question after the other to one node after the
 * other. So a slow visitor keeps nobody waiting but itself, and one piece is in memory at a time.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "directory/wire/directory_wire.h"
#include "node/wire/node_wire.h"

#define PIECE_ITEMS   512u
#define QUESTION_ROOM (YB_WIRE_LIST_QUESTION_BYTES_MAX)
#define WAIT_STEP_NS  YB_NS_PER_S

/* ---- one question, and its answer ------------------------------------------------------------ */

struct ask {
    struct yb_client *client;
    struct yb_client_look look;
    struct yb_mail mail;
    bool ended; /* Under the client's lock. */
};

static void
end_ask(struct ask *ask)
{
    struct yb_client *client = ask->client;

    yb_lock_acquire(&client->lock);
    ask->ended = true;
    (void)pthread_cond_broadcast(&client->changed);
    yb_lock_release(&client->lock);
}

static void
on_look(struct yb_client_look *look)
{
    end_ask(look->owner);
}

static void
run_ask(struct yb_mail *mail)
{
    struct ask *ask = (struct ask *)((uint8_t *)mail - offsetof(struct ask, mail));
    enum yb_status status = yb_client_core_look(ask->client->core, &ask->look);

    if (status != YB_OK) {
        ask->look.status = status;
        ask->look.reply_bytes = 0;
        end_ask(ask);
    }
}

/* Ask, on the worker, and wait; returns the answer's status. */
static enum yb_status
ask_one(struct yb_client *client, struct ask *ask)
{
    ask->client = client;
    ask->ended = false;
    ask->look.done = on_look;
    ask->look.owner = ask;
    yb_mail_init(&ask->mail, run_ask);
    yb_lock_acquire(&client->lock);
    if (client->closing) {
        yb_lock_release(&client->lock);
        return YB_CLOSED;
    }
    /* Its room is the caller, who waits: there are no more of these than threads. */
    yb_mailbox_post_reply(yb_loop_mailbox(yb_worker_loop(client->worker)), &ask->mail);
    while (!ask->ended) {
        (void)yb_lock_wait(&client->lock, &client->changed, WAIT_STEP_NS);
    }
    yb_lock_release(&client->lock);
    return ask->look.status;
}

enum yb_status
yb_client_ask(struct yb_client *client, struct yb_client_look *look)
{
    struct ask ask = {.look = *look};
    enum yb_status status = ask_one(client, &ask);

    *look = ask.look;
    return status;
}

/* ---- nodes and counters ---------------------------------------------------------------------- */

struct snapshot {
    struct yb_client *client;
    struct yb_client_node *nodes;
    uint32_t room;
    uint32_t count;
    struct yb_client_counters counters;
};

static void
copy_nodes(void *context)
{
    struct snapshot *snapshot = context;

    snapshot->count = yb_client_core_nodes(snapshot->client->core, snapshot->nodes, snapshot->room);
}

static void
copy_counters(void *context)
{
    struct snapshot *snapshot = context;

    yb_client_core_counters(snapshot->client->core, &snapshot->counters);
}

enum yb_status
yb_client_nodes(struct yb_client *client, struct yb_client_node *nodes_out, uint32_t room,
                uint32_t *count_out)
{
    struct snapshot snapshot = {.client = client, .nodes = nodes_out, .room = room};
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    yb_client_run(client, copy_nodes, &snapshot);
    *count_out = snapshot.count;
    yb_client_leave(client);
    return YB_OK;
}

void
yb_client_counters(struct yb_client *client, struct yb_client_counters *counters_out)
{
    struct snapshot snapshot = {.client = client};

    *counters_out = snapshot.counters;
    if (yb_client_enter(client) != YB_OK) {
        return;
    }
    yb_client_run(client, copy_counters, &snapshot);
    *counters_out = snapshot.counters;
    yb_client_leave(client);
}

/* ---- listings -------------------------------------------------------------------------------- */

/* A walk over all members. */
struct walk {
    struct yb_client *client;
    struct yb_client_call call;
    uint64_t deadline_ns;
    uint16_t kind;
    struct yb_wire_text pattern;
    struct yb_client_node *nodes; /* Owned. */
    uint32_t node_count;
    uint8_t *reply;        /* Owned: one piece. */
    enum yb_status failed; /* The first node that did not answer. */
    /* Called for each entry; false: enough. */
    bool (*visit)(void *context, const struct yb_client_entry *entry);
    void *context;
    /* Called after each piece, which stays where it is meanwhile; false: enough. NULL: none. */
    bool (*piece)(void *context);
};

static enum yb_status
walk_init(struct walk *walk, struct yb_client *client, enum yb_client_match match,
          const char *pattern, const struct yb_client_call *given)
{
    enum yb_status status = yb_client_read_call(given, &walk->call);
    struct snapshot snapshot = {.client = client};

    if (status != YB_OK) {
        return status;
    }
    if ((unsigned)match > YB_CLIENT_MATCH_REGEX || yb_client_inside(client) ||
        (match != YB_CLIENT_MATCH_ALL && pattern == NULL) ||
        (pattern != NULL && strlen(pattern) > YB_CLIENT_KEY_BYTES_MAX)) {
        return YB_INVALID;
    }
    walk->client = client;
    walk->deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), walk->call.timeout_ns);
    walk->kind = (uint16_t)match; /* The numbers are the same: wire enum `match`. */
    walk->pattern = yb_wire_text_of(match != YB_CLIENT_MATCH_ALL ? pattern : "");
    yb_client_run(client, copy_nodes, &snapshot);
    walk->nodes = calloc(snapshot.count + 1, sizeof(*walk->nodes));
    walk->reply = malloc(YB_WIRE_LISTING_BYTES_MAX);
    if (walk->nodes == NULL || walk->reply == NULL) {
        return YB_NO_MEMORY;
    }
    snapshot.nodes = walk->nodes;
    snapshot.room = snapshot.count;
    yb_client_run(client, copy_nodes, &snapshot);
    walk->node_count = snapshot.count < snapshot.room ? snapshot.count : snapshot.room;
    return YB_OK;
}

static void
walk_fini(struct walk *walk)
{
    free(walk->nodes);
    free(walk->reply);
}

/* Ask a node for its next piece. */
static enum yb_status
ask_piece(struct walk *walk, const struct yb_client_node *node, uint64_t cursor,
          struct yb_wire_listing *listing_out)
{
    struct yb_wire_list_question question = {
        .cursor = cursor,
        .items_max = PIECE_ITEMS,
        .kind = walk->kind,
        .pattern = walk->pattern,
    };
    uint8_t body[QUESTION_ROOM];
    size_t length = 0;
    struct ask ask;
    enum yb_status status = yb_wire_list_question_encode(&question, body, sizeof(body), &length);

    if (status != YB_OK) {
        return YB_INVALID; /* The pattern is no text. */
    }
    ask.look = (struct yb_client_look){
        .type = YB_WIRE_NODE_TYPE_LIST,
        .slot = node->slot,
        .incarnation = node->incarnation,
        .work_class = (enum yb_class)walk->call.work_class,
        .deadline_ns = walk->deadline_ns,
        .body = body,
        .body_bytes = (uint32_t)length,
        .reply = walk->reply,
        .reply_room = YB_WIRE_LISTING_BYTES_MAX,
    };
    status = ask_one(walk->client, &ask);
    if (status == YB_OK) {
        status = yb_wire_listing_decode(walk->reply, ask.look.reply_bytes, listing_out, NULL);
    }
    return status;
}

/* Show a piece; false: enough. *status_out: the node did not keep to the protocol. */
static bool
show_piece(const struct walk *walk, const struct yb_client_node *node,
           const struct yb_wire_listing *listing, enum yb_status *status_out)
{
    uint64_t at = 0;

    for (uint32_t i = 0; i < listing->items.count; i++) {
        struct yb_wire_list_item item;
        struct yb_client_entry entry;

        yb_wire_list_item_at(&listing->items, i, &item);
        if (item.key_bytes == 0 || item.key_bytes > listing->keys.length - at) {
            *status_out = YB_PROTOCOL;
            return true;
        }
        entry = (struct yb_client_entry){
            .key = listing->keys.bytes + at,
            .key_bytes = item.key_bytes,
            .size = item.size,
            .grant = item.grant,
            .node = node->name,
            .idle_ms = item.idle_ms,
            .tier = yb_wire_tier_name(item.tier),
        };
        at += item.key_bytes;
        if ((item.flags & YB_WIRE_BLOCK_FLAG_PART) != 0) {
            continue; /* Of a value that is named elsewhere. */
        }
        if (!walk->visit(walk->context, &entry)) {
            return false;
        }
    }
    return walk->piece == NULL || walk->piece(walk->context);
}

/* Walk over one node's blocks; false: enough. */
static bool
walk_node(struct walk *walk, const struct yb_client_node *node)
{
    enum yb_status status;
    uint64_t cursor = 0;
    bool more = true;

    do {
        struct yb_wire_listing listing;

        status = ask_piece(walk, node, cursor, &listing);
        if (status == YB_OK) {
            more = show_piece(walk, node, &listing, &status);
            cursor = listing.cursor;
        }
    } while (status == YB_OK && more && cursor != 0);
    if (status != YB_OK && walk->failed == YB_OK) {
        walk->failed = status; /* Told at the end; the others are still asked. */
    }
    return more && status != YB_CLOSED && status != YB_INVALID;
}

static enum yb_status
walk_all(struct walk *walk)
{
    for (uint32_t i = 0; i < walk->node_count; i++) {
        if (!walk_node(walk, &walk->nodes[i])) {
            break;
        }
    }
    return walk->failed;
}

enum yb_status
yb_client_list(struct yb_client *client, enum yb_client_match match, const char *pattern,
               const struct yb_client_call *call,
               bool (*visit)(void *context, const struct yb_client_entry *entry), void *context)
{
    struct walk walk = {.visit = visit, .context = context};
    enum yb_status status = yb_client_enter(client);

    if (status != YB_OK) {
        return status;
    }
    status = visit != NULL ? walk_init(&walk, client, match, pattern, call) : YB_INVALID;
    if (status == YB_OK) {
        status = walk_all(&walk);
    }
    walk_fini(&walk);
    yb_client_leave(client);
    return status;
}

/* ---- removal by pattern ---------------------------------------------------------------------- */

/* The keys of one piece, on their way out. */
struct removal {
    struct walk *walk;
    struct yb_client_item items[PIECE_ITEMS];
    uint32_t count;
    uint64_t removed;
    enum yb_status failed;
};

static bool
gather(void *context, const struct yb_client_entry *entry)
{
    struct removal *removal = context;

    if (removal->count < PIECE_ITEMS) {
        removal->items[removal->count++] =
            (struct yb_client_item){.key = entry->key, .key_bytes = entry->key_bytes};
    }
    return true;
}

static bool
remove_piece(void *context)
{
    struct removal *removal = context;
    struct walk *walk = removal->walk;
    struct yb_client_batch batch =
        yb_client_make_batch(YB_CLIENT_REMOVE, removal->items, removal->count, &walk->call);
    enum yb_status status = YB_OK;

    batch.deadline_ns = walk->deadline_ns;
    if (removal->count > 0) {
        status = yb_client_run_batch(walk->client, &batch);
    }
    for (uint32_t i = 0; status == YB_OK && i < removal->count; i++) {
        enum yb_status one = removal->items[i].status;

        removal->removed += one == YB_OK;
        /* Another replica's key is gone already; what is held stays, as it does in remove_all. */
        if (one != YB_OK && one != YB_NOT_FOUND && one != YB_LEASED && removal->failed == YB_OK) {
            removal->failed = one;
        }
    }
    removal->count = 0;
    if (status != YB_OK) {
        removal->failed = status;
    }
    return status == YB_OK;
}

enum yb_status
yb_client_remove_matching(struct yb_client *client, enum yb_client_match match, const char *pattern,
                          const struct yb_client_call *call, uint64_t *count_out)
{
    struct removal *removal = calloc(1, sizeof(*removal));
    struct walk walk = {.visit = gather, .context = removal, .piece = remove_piece};
    enum yb_status status = removal != NULL ? yb_client_enter(client) : YB_NO_MEMORY;

    if (status != YB_OK) {
        free(removal);
        return status;
    }
    removal->walk = &walk;
    status = walk_init(&walk, client, match, pattern, call);
    if (status == YB_OK) {
        status = walk_all(&walk);
        status = status == YB_OK ? removal->failed : status;
        if (count_out != NULL) {
            *count_out = removal->removed;
        }
    }
    walk_fini(&walk);
    yb_client_leave(client);
    free(removal);
    return status;
}
