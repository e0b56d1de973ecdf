/* SPDX-License-Identifier: Apache-2.0
 *
 * The nodes and the client of `yuebing bench directory`.
 *
 * Blocks are published in groups, so that both replicas of a block are on their way at about the
 * same time: of each group every node sends one message, with the blocks that are its own and, as
 * second replicas, those of its neighbour.
 */
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "cli/bench_directory.h"
#include "cli/measure.h"

#define GROUP_BLOCKS    8192u /* 512 for each node, and some of its neighbour's. */
#define GROUPS          4u    /* Under way. */
#define MESSAGE_ITEMS   (GROUP_BLOCKS / YB_BENCH_NODES * 2)
#define PUBLISH_BYTES   (256u + MESSAGE_ITEMS * YB_WIRE_PUBLISH_ITEM_BYTES)
#define GRANTS_BYTES    (256u + MESSAGE_ITEMS * YB_WIRE_GRANT_ANSWER_BYTES)
#define ANNOUNCE_KEYS   4096u
#define CALL_TIMEOUT_NS (30 * YB_NS_PER_S)
#define SWEEP_WAIT_NS   (60 * YB_NS_PER_S)
#define EXPECTED_US     60000000u /* How long those in flight say that they take. */
#define CAPACITY_BYTES  (UINT64_C(1) << 40)
#define TENANT          "bench"

/* One publication. */
struct message {
    struct node *node;
    struct yb_call call;
    bool busy;
    uint32_t items;
    uint8_t body[PUBLISH_BYTES];
    uint8_t reply[GRANTS_BYTES];
};

struct node {
    struct yb_bench_world *world;
    uint32_t number;
    struct yb_bench_end end;
    struct yb_server *server;
    struct yb_peer *peer; /* The directory. */
    uint16_t slot;
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t sequence; /* Of the next publication. */
    bool reborn;       /* Its blocks are gone; it beats on in a new life. */
    struct yb_call beat;
    uint8_t beat_body[256];
    uint8_t beat_reply[4096];
    bool beating;
    uint64_t beat_ns; /* When the last one was sent. */
    struct yb_timer timer;
    struct message *messages; /* [GROUPS] */
};

/* One question of the client. */
struct question {
    struct yb_bench_world *world;
    struct yb_call call;
    uint64_t seed; /* Of the blocks that it asks for. */
    uint64_t sent_ns;
    uint8_t *body;
    uint8_t *reply;
};

struct yb_bench_world {
    uint64_t blocks;
    struct yb_loop *loop;
    struct yb_address directory;
    struct node nodes[YB_BENCH_NODES];
    struct yb_bench_end client;
    struct yb_peer *peer;
    uint32_t lease_ms;
    uint32_t waiting; /* Calls that somebody waits for. */
    bool failed;
    bool closing;

    /* A run of lookups. */
    struct yb_bench_lookups *lookups;
    struct question *questions;
    struct yb_histogram times;
    uint64_t until_ns;
    uint64_t random;
};

/* Turn the loop until `waiting` is at most `left`. */
static bool
await(struct yb_bench_world *world, uint32_t left)
{
    while (!world->failed && world->waiting > left) {
        yb_loop_turn(world->loop, YB_NS_PER_S);
    }
    return !world->failed;
}

static bool
fail(struct yb_bench_world *world, const char *what, enum yb_status status)
{
    if (!world->failed && !world->closing) {
        (void)yb_bench_complain(what, status);
    }
    world->failed = true;
    return false;
}

/* ---- one call, and its answer ---------------------------------------------------------------- */

/* A question that its asker waits for. */
struct asked {
    struct yb_bench_world *world;
    bool done;
};

static void
call_done(struct yb_call *call)
{
    struct asked *asked = call->owner;

    asked->world->waiting--;
    asked->done = true;
}

/* Ask the directory, and wait. The answer is in `call`. */
static bool
ask(struct yb_bench_world *world, struct yb_peer *peer, struct yb_call *call)
{
    struct asked asked = {.world = world};
    enum yb_status status;

    call->class = YB_CLASS_FIRST_TOKEN;
    call->lane = YB_WIRE_LANE_CONTROL;
    call->deadline_ns = yb_loop_now(world->loop) + CALL_TIMEOUT_NS;
    call->done = call_done;
    call->owner = &asked;
    status = yb_peer_call(peer, call);
    if (status != YB_OK) {
        return fail(world, "a call", status);
    }
    world->waiting++;
    while (!asked.done) { /* Also when something else has failed: the call is the caller's. */
        yb_loop_turn(world->loop, YB_NS_PER_S);
    }
    if (world->failed) {
        return false;
    }
    return call->answered && call->status == YB_OK ? true
                                                   : fail(world, yb_peer_error(peer), call->status);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void
beat_done(struct yb_call *call)
{
    struct node *node = call->owner;

    node->beating = false;
    if (!node->reborn && (!call->answered || call->status != YB_OK)) {
        (void)fail(node->world, "a heartbeat", call->status);
    }
}

static void
beat_fired(struct yb_timer *timer)
{
    struct node *node = (struct node *)((uint8_t *)timer - offsetof(struct node, timer));
    struct yb_bench_world *world = node->world;
    struct yb_wire_heartbeat body = {
        .incarnation = node->incarnation,
        .epoch = node->epoch,
        .capacity = CAPACITY_BYTES,
        .slot = node->slot,
    };
    size_t length = 0;

    yb_loop_arm(world->loop, timer, yb_loop_now(world->loop) + world->lease_ms * YB_NS_PER_MS / 4);
    if (node->beating || world->closing ||
        yb_wire_heartbeat_encode(&body, node->beat_body, sizeof(node->beat_body), &length) !=
            YB_OK) {
        return;
    }
    node->beat_ns = yb_measure_now_ns();
    node->beat = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_HEARTBEAT,
        .class = YB_CLASS_THROUGHPUT, /* Not behind this node's publications. */
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_loop_now(world->loop) + CALL_TIMEOUT_NS,
        .body = node->beat_body,
        .body_bytes = (uint32_t)length,
        .reply_body = node->beat_reply,
        .reply_body_room = sizeof(node->beat_reply),
        .done = beat_done,
        .owner = node,
    };
    node->beating = yb_peer_call(node->peer, &node->beat) == YB_OK;
}

/* Begin a life. */
static bool
register_node(struct node *node)
{
    struct yb_wire_register body = {.capacity = CAPACITY_BYTES};
    struct yb_wire_registered answer;
    char name[16];
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_address at = yb_server_address(node->server);
    uint8_t bytes[YB_WIRE_REGISTER_BYTES_MAX];
    uint8_t reply[4096];
    struct yb_call call = {
        .type = YB_WIRE_DIRECTORY_TYPE_REGISTER,
        .body = bytes,
        .reply_body = reply,
        .reply_body_room = sizeof(reply),
    };
    size_t length = 0;

    (void)snprintf(name, sizeof(name), "node-%u", node->number);
    yb_address_format(&at, address);
    body.name = yb_wire_text_of(name);
    body.address = yb_wire_text_of(address);
    if (yb_wire_register_encode(&body, bytes, sizeof(bytes), &length) != YB_OK) {
        return fail(node->world, "a registration", YB_INVALID);
    }
    call.body_bytes = (uint32_t)length;
    if (!ask(node->world, node->peer, &call)) {
        return false;
    }
    if (yb_wire_registered_decode(reply, call.reply_body_bytes, &answer, NULL) != YB_OK) {
        return fail(node->world, "a registration", YB_PROTOCOL);
    }
    node->slot = answer.slot;
    node->incarnation = answer.incarnation;
    node->epoch = answer.epoch;
    node->sequence = 1;
    node->world->lease_ms = answer.lease_ms;
    return true;
}

static bool
open_node(struct yb_bench_world *world, const struct yb_config *config, uint32_t number)
{
    struct node *node = &world->nodes[number];
    struct yb_address_list directory = {.count = 1, .items = {world->directory}};
    struct yb_server_options options = {.connections_max = 16, .unauthenticated_max = 16};
    static const struct yb_id anybody;
    char why[YB_ADDRESS_WHY_BYTES];

    node->world = world;
    node->number = number;
    node->messages = calloc(GROUPS, sizeof(*node->messages));
    if (node->messages == NULL) {
        return fail(world, "a node", YB_NO_MEMORY);
    }
    if (!yb_bench_end_open(&node->end, config, world->loop, YB_WIRE_ROLE_NODE, NULL)) {
        return false;
    }
    options.nets = &node->end.net;
    options.net_count = 1;
    if (yb_address_parse("127.0.0.1:0", 0, &options.address, why) != YB_OK ||
        yb_server_create(&options, &node->server, why) != YB_OK ||
        yb_peer_create(node->end.net, &directory, anybody, &node->peer) != YB_OK) {
        return fail(world, "a node's port", YB_INVALID);
    }
    yb_timer_init(&node->timer, beat_fired);
    if (!register_node(node)) {
        return false;
    }
    beat_fired(&node->timer);
    return true;
}

/* ---- publications ---------------------------------------------------------------------------- */

static void
publish_done(struct yb_call *call)
{
    struct message *message = call->owner;
    struct yb_bench_world *world = message->node->world;
    struct yb_wire_grants grants;

    world->waiting--;
    message->busy = false;
    if (!call->answered || call->status != YB_OK ||
        yb_wire_grants_decode(message->reply, call->reply_body_bytes, &grants, NULL) != YB_OK ||
        grants.grants.count != message->items) {
        (void)fail(world, "a publication", call->status);
        return;
    }
    for (uint32_t i = 0; i < message->items; i++) {
        struct yb_wire_grant_answer answer;

        yb_wire_grant_answer_at(&grants.grants, i, &answer);
        if (answer.status != (int32_t)YB_OK) {
            (void)fail(world, "a block that was published", (enum yb_status)answer.status);
            return;
        }
    }
}

static void
add_item(struct message *message, uint64_t block, uint32_t replica)
{
    struct yb_wire_publish_item item = {
        .hash = yb_bench_block_name(block),
        .write = block + 1,
        .size = YB_BENCH_BLOCK_BYTES,
        .mode = YB_WIRE_MODE_IF_ABSENT,
        .tier = yb_bench_block_tier(block, replica),
        .replicas = (uint8_t)yb_bench_block_replicas(block),
    };
    size_t head = YB_WIRE_PUBLICATION_BYTES + sizeof(TENANT) - 1;

    yb_wire_publish_item_store(&item, message->body + head +
                                          (size_t)message->items++ * YB_WIRE_PUBLISH_ITEM_BYTES);
}

/* Send one node's message of a group. */
static bool
publish_group(struct node *node, uint64_t group)
{
    struct yb_bench_world *world = node->world;
    struct message *message = &node->messages[group % GROUPS];
    uint64_t end = (group + 1) * GROUP_BLOCKS;
    struct yb_wire_publication head = {
        .incarnation = node->incarnation,
        .epoch = node->epoch,
        .sequence = node->sequence++,
        .slot = node->slot,
        .phase = YB_WIRE_PHASE_DELTA,
        .tenant = yb_wire_text_of(TENANT),
    };
    size_t length = 0;

    message->node = node;
    message->items = 0;
    if (yb_wire_publication_encode(&head, message->body, sizeof(message->body), &length) != YB_OK) {
        return fail(world, "a publication", YB_INVALID);
    }
    end = end < world->blocks ? end : world->blocks;
    for (uint64_t block = group * GROUP_BLOCKS; block < end; block++) {
        for (uint32_t replica = 0; replica < yb_bench_block_replicas(block); replica++) {
            if (yb_bench_block_node(block, replica) == node->number) {
                add_item(message, block, replica);
            }
        }
    }
    yb_wire_put_u32(message->body + YB_WIRE_PUBLICATION_AT_ITEMS, message->items);
    message->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_PUBLISH,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = yb_loop_now(world->loop) + CALL_TIMEOUT_NS,
        .body = message->body,
        .body_bytes = (uint32_t)(length + (size_t)message->items * YB_WIRE_PUBLISH_ITEM_BYTES),
        .reply_body = message->reply,
        .reply_body_room = sizeof(message->reply),
        .done = publish_done,
        .owner = message,
    };
    if (yb_peer_call(node->peer, &message->call) != YB_OK) {
        return fail(world, "a publication", YB_AGAIN);
    }
    message->busy = true;
    world->waiting++;
    return true;
}

/* Announce the puts of blocks, of which each is `step` after the one before. */
static bool
announce(struct yb_bench_world *world, uint64_t first, uint64_t step, uint32_t keys)
{
    uint8_t *bytes = malloc(YB_WIRE_INTENTS_BYTES_MAX);
    uint8_t *reply = malloc(YB_WIRE_INTENT_ANSWERS_BYTES_MAX);
    const struct yb_wire_intents body = {
        .mode = YB_WIRE_MODE_IF_ABSENT,
        .expected_us = EXPECTED_US,
    };
    struct yb_call call = {
        .type = YB_WIRE_DIRECTORY_TYPE_INTENT,
        .body = bytes,
        .reply_body = reply,
        .reply_body_room = YB_WIRE_INTENT_ANSWERS_BYTES_MAX,
    };
    size_t length = 0;
    bool ok = bytes != NULL && reply != NULL &&
              yb_wire_intents_encode(&body, bytes, YB_WIRE_INTENTS_BYTES_MAX, &length) == YB_OK;

    for (uint32_t i = 0; ok && i < keys; i++) {
        struct yb_wire_intent intent = {
            .hash = yb_bench_block_name(first + i * step),
            .write = first + i * step + 1,
        };

        yb_wire_intent_store(&intent, bytes + length);
        length += YB_WIRE_INTENT_BYTES;
    }
    if (ok) {
        yb_wire_put_u32(bytes + YB_WIRE_INTENTS_AT_ITEMS, keys);
        call.body_bytes = (uint32_t)length;
        ok = ask(world, world->peer, &call);
    }
    free(bytes);
    free(reply);
    return ok;
}

/* As clients do; without that a directory that has forgotten older writes refuses one of several
 * replicas, for it might have granted another one before (RULES A7). */
static bool
announce_pairs(struct yb_bench_world *world, uint64_t group)
{
    uint64_t first = group * GROUP_BLOCKS;
    uint64_t end = first + GROUP_BLOCKS < world->blocks ? first + GROUP_BLOCKS : world->blocks;

    while (first < end && yb_bench_block_replicas(first) == 1) {
        first++;
    }
    return first >= end || announce(world, first, YB_BENCH_PAIR_STEP,
                                    (uint32_t)((end - first - 1) / YB_BENCH_PAIR_STEP + 1));
}

bool
yb_bench_world_publish(struct yb_bench_world *world, uint64_t *keys_out)
{
    uint64_t groups = (world->blocks + GROUP_BLOCKS - 1) / GROUP_BLOCKS;

    for (uint64_t group = 0; group < groups; group++) {
        if (!announce_pairs(world, group) || !await(world, (GROUPS - 1) * YB_BENCH_NODES)) {
            return false;
        }
        for (uint32_t i = 0; i < YB_BENCH_NODES; i++) {
            struct message *message = &world->nodes[i].messages[group % GROUPS];

            /* Answers come in order on each connection, but not across them. */
            while (message->busy && !world->failed) {
                yb_loop_turn(world->loop, YB_NS_PER_S);
            }
            if (world->failed || !publish_group(&world->nodes[i], group)) {
                return false;
            }
        }
        yb_loop_turn(world->loop, 0);
    }
    *keys_out = world->blocks + (world->blocks + 9) / 10;
    return await(world, 0);
}

bool
yb_bench_world_announce(struct yb_bench_world *world)
{
    uint64_t count = yb_bench_in_flight(world->blocks);
    bool ok = true;

    for (uint64_t done = 0; ok && done < count; done += ANNOUNCE_KEYS) {
        uint64_t keys = count - done < ANNOUNCE_KEYS ? count - done : ANNOUNCE_KEYS;

        ok = announce(world, world->blocks + done, 1, (uint32_t)keys);
    }
    return ok;
}

/* ---- lookups --------------------------------------------------------------------------------- */

/* The block that a question's key is about. */
static uint64_t
asked_block(const struct yb_bench_world *world, uint64_t seed, uint32_t key)
{
    return yb_bench_mix(seed + key) % (world->blocks + yb_bench_in_flight(world->blocks));
}

static void
send_question(struct question *question)
{
    struct yb_bench_world *world = question->world;
    uint32_t keys = world->lookups->keys;

    question->seed = world->random;
    world->random += keys;
    for (uint32_t i = 0; i < keys; i++) {
        struct yb_id name = yb_bench_block_name(asked_block(world, question->seed, i));

        memcpy(question->body + YB_WIRE_LOOKUP_BYTES + (size_t)i * YB_WIRE_HASH_BYTES, &name,
               sizeof(name));
    }
    question->call.deadline_ns = yb_loop_now(world->loop) + CALL_TIMEOUT_NS;
    question->sent_ns = yb_measure_now_ns();
    if (yb_peer_call(world->peer, &question->call) != YB_OK) {
        (void)fail(world, "a lookup", YB_AGAIN);
        return;
    }
    world->waiting++;
}

static void
question_done(struct yb_call *call)
{
    struct question *question = call->owner;
    struct yb_bench_world *world = question->world;
    uint64_t time_ns = yb_measure_now_ns();

    world->waiting--;
    if (!call->answered || call->status != YB_OK ||
        call->reply_body_bytes != YB_WIRE_LOOKUP_ANSWERS_BYTES +
                                      (size_t)world->lookups->keys * YB_WIRE_LOOKUP_ANSWER_BYTES) {
        (void)fail(world, "a lookup", call->status);
        return;
    }
    yb_histogram_record(&world->times, time_ns - question->sent_ns);
    world->lookups->looked_up += world->lookups->keys;
    if (time_ns < world->until_ns && !world->failed) {
        send_question(question);
    }
}

static bool
is_right(const struct yb_bench_world *world, uint64_t block,
         const struct yb_wire_lookup_answer *answer)
{
    uint32_t replicas = yb_bench_block_replicas(block);
    const struct node *first = &world->nodes[yb_bench_block_node(block, 0)];
    const struct node *second = &world->nodes[yb_bench_block_node(block, 1)];

    if (block >= world->blocks) {
        return answer->presence == YB_WIRE_PRESENCE_IN_PROGRESS && answer->count == 0;
    }
    if (answer->presence != YB_WIRE_PRESENCE_PRESENT || answer->count != replicas) {
        return false;
    }
    if (replicas == 1 || answer->slot0 == first->slot) {
        return answer->slot0 == first->slot && answer->tier0 == yb_bench_block_tier(block, 0) &&
               (replicas == 1 ||
                (answer->slot1 == second->slot && answer->tier1 == yb_bench_block_tier(block, 1)));
    }
    return answer->slot0 == second->slot && answer->slot1 == first->slot;
}

/* Check every answer of every question's last message. */
static bool
check_answers(struct yb_bench_world *world)
{
    for (uint32_t i = 0; i < world->lookups->outstanding; i++) {
        const struct question *question = &world->questions[i];
        struct yb_wire_lookup_answers answers;

        if (yb_wire_lookup_answers_decode(question->reply, question->call.reply_body_bytes,
                                          &answers, NULL) != YB_OK ||
            answers.answers.count != world->lookups->keys) {
            return fail(world, "an answer", YB_PROTOCOL);
        }
        for (uint32_t k = 0; k < answers.answers.count; k++) {
            struct yb_wire_lookup_answer answer;

            yb_wire_lookup_answer_at(&answers.answers, k, &answer);
            if (!is_right(world, asked_block(world, question->seed, k), &answer)) {
                return fail(world, "a lookup was answered wrongly", YB_CORRUPT);
            }
        }
    }
    return true;
}

static bool
make_question(struct yb_bench_world *world, uint32_t index)
{
    struct question *question = &world->questions[index];
    uint32_t keys = world->lookups->keys;
    size_t body_bytes = YB_WIRE_LOOKUP_BYTES + (size_t)keys * YB_WIRE_HASH_BYTES;
    size_t reply_bytes = YB_WIRE_LOOKUP_ANSWERS_BYTES + (size_t)keys * YB_WIRE_LOOKUP_ANSWER_BYTES;
    struct yb_wire_lookup empty = {.flags = 0};
    size_t length = 0;

    question->world = world;
    question->body = malloc(body_bytes);
    question->reply = malloc(reply_bytes);
    if (question->body == NULL || question->reply == NULL ||
        yb_wire_lookup_encode(&empty, question->body, body_bytes, &length) != YB_OK) {
        return fail(world, "a question", YB_NO_MEMORY);
    }
    yb_wire_put_u32(question->body + YB_WIRE_LOOKUP_AT_HASHES, keys);
    memset(question->reply, 0, reply_bytes); /* Touched before it is used. */
    question->call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_LOOKUP,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .body = question->body,
        .body_bytes = (uint32_t)body_bytes,
        .reply_body = question->reply,
        .reply_body_room = (uint32_t)reply_bytes,
        .done = question_done,
        .owner = question,
    };
    return true;
}

bool
yb_bench_world_look_up(struct yb_bench_world *world, struct yb_bench_lookups *lookups)
{
    uint64_t began_ns;
    bool ok = true;

    world->lookups = lookups;
    world->questions = calloc(lookups->outstanding, sizeof(*world->questions));
    yb_histogram_reset(&world->times);
    lookups->looked_up = 0;
    for (uint32_t i = 0; ok && i < lookups->outstanding; i++) {
        ok = world->questions != NULL && make_question(world, i);
    }
    began_ns = yb_measure_now_ns();
    world->until_ns = began_ns + lookups->run_ns;
    for (uint32_t i = 0; ok && i < lookups->outstanding; i++) {
        send_question(&world->questions[i]);
    }
    ok = ok && await(world, 0);
    lookups->took_ns = yb_measure_now_ns() - began_ns;
    lookups->p50_ns = yb_histogram_quantile(&world->times, 0.50);
    lookups->p99_ns = yb_histogram_quantile(&world->times, 0.99);
    ok = ok && check_answers(world);
    for (uint32_t i = 0;
         world->questions != NULL && world->waiting == 0 && i < lookups->outstanding; i++) {
        free(world->questions[i].body);
        free(world->questions[i].reply);
    }
    if (world->waiting == 0) { /* Otherwise the calls still want them; all is lost anyway. */
        free(world->questions);
        world->questions = NULL;
    }
    return ok;
}

/* ---- a death --------------------------------------------------------------------------------- */

/* Return how many blocks there are without the dead nodes' own. */
static uint64_t
blocks_alive(const struct yb_bench_world *world)
{
    uint64_t alive = 0;

    for (uint64_t block = 0; block < world->blocks; block++) {
        bool first = !world->nodes[yb_bench_block_node(block, 0)].reborn;
        bool second = yb_bench_block_replicas(block) == 2 &&
                      !world->nodes[yb_bench_block_node(block, 1)].reborn;

        alive += first || second ? 1 : 0;
    }
    return alive;
}

/* Look a single block up. Returns whether it is still said to be there. */
static bool
is_named(struct yb_bench_world *world, uint64_t block, bool *named_out)
{
    struct yb_wire_hash hash = {.hash = yb_bench_block_name(block)};
    struct yb_wire_lookup body = {.hashes = {.native = &hash, .count = 1}};
    struct yb_wire_lookup_answers answers;
    struct yb_wire_lookup_answer answer;
    uint8_t bytes[64];
    uint8_t reply[128];
    struct yb_call call = {
        .type = YB_WIRE_DIRECTORY_TYPE_LOOKUP,
        .body = bytes,
        .reply_body = reply,
        .reply_body_room = sizeof(reply),
    };
    size_t length = 0;

    if (yb_wire_lookup_encode(&body, bytes, sizeof(bytes), &length) != YB_OK) {
        return fail(world, "a question", YB_INVALID);
    }
    call.body_bytes = (uint32_t)length;
    if (!ask(world, world->peer, &call)) {
        return false;
    }
    if (yb_wire_lookup_answers_decode(reply, call.reply_body_bytes, &answers, NULL) != YB_OK ||
        answers.answers.count != 1) {
        return fail(world, "an answer", YB_PROTOCOL);
    }
    yb_wire_lookup_answer_at(&answers.answers, 0, &answer);
    *named_out = answer.presence != YB_WIRE_PRESENCE_ABSENT;
    return true;
}

/* Let the nodes live for a moment. */
static void
pass(struct yb_bench_world *world, uint64_t span_ns)
{
    uint64_t until_ns = yb_measure_now_ns() + span_ns;

    while (yb_measure_now_ns() < until_ns) {
        yb_loop_turn(world->loop, until_ns - yb_measure_now_ns());
    }
}

/* Wait until the index has as many records as it should. */
static bool
await_swept(struct yb_bench_world *world, uint64_t records)
{
    uint64_t until_ns = yb_measure_now_ns() + SWEEP_WAIT_NS;
    struct yb_wire_directory_numbers numbers = {.records = records + 1};
    uint8_t reply[YB_WIRE_DIRECTORY_NUMBERS_BYTES_MAX];

    while (numbers.records != records) {
        struct yb_call call = {
            .type = YB_WIRE_DIRECTORY_TYPE_DIRECTORY_STAT,
            .reply_body = reply,
            .reply_body_room = sizeof(reply),
        };

        pass(world, 20 * YB_NS_PER_MS);
        if (!ask(world, world->peer, &call) ||
            yb_wire_directory_numbers_decode(reply, call.reply_body_bytes, &numbers, NULL) !=
                YB_OK) {
            return fail(world, "the directory's numbers", YB_PROTOCOL);
        }
        if (yb_measure_now_ns() > until_ns) {
            return fail(world, "the sweep does not end", YB_TIMED_OUT);
        }
    }
    return true;
}

void
yb_bench_world_rest(struct yb_bench_world *world, int fd)
{
    struct pollfd entry = {.fd = fd, .events = POLLIN};

    while (poll(&entry, 1, 0) == 0) {
        pass(world, 10 * YB_NS_PER_MS);
    }
}

bool
yb_bench_world_kill(struct yb_bench_world *world, uint32_t node, struct yb_bench_death *death_out)
{
    uint64_t block = node; /* Its own, and only on it. */
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t lease_until_ns = world->nodes[node].beat_ns + world->lease_ms * YB_NS_PER_MS;
    bool named = false;

    while (yb_bench_block_replicas(block) != 1) {
        block += YB_BENCH_NODES;
    }
    if (block >= world->blocks || !is_named(world, block, &named) || !named) {
        return fail(world, "a block is missing", YB_NOT_FOUND);
    }
    world->nodes[node].reborn = true;
    if (!register_node(&world->nodes[node])) {
        return false;
    }
    while (named) {
        pass(world, YB_NS_PER_MS);
        if (!is_named(world, block, &named)) {
            return false;
        }
    }
    death_out->visible_ns = yb_measure_now_ns() - began_ns;
    death_out->after_lease_ns =
        yb_measure_now_ns() > lease_until_ns ? yb_measure_now_ns() - lease_until_ns : 0;
    return await_swept(world, blocks_alive(world));
}

/* ---- open and close -------------------------------------------------------------------------- */

bool
yb_bench_world_open(const struct yb_config *config, const struct yb_bench_directory *directory,
                    uint64_t blocks, struct yb_bench_world **world_out)
{
    struct yb_bench_world *world = calloc(1, sizeof(*world));
    struct yb_address_list addresses = {.count = 1, .items = {directory->address}};
    struct yb_loop_options options = {
        .backend = "auto",
        .clock = yb_clock_system(),
        .spin_us = config->net_spin_us,
    };
    static const struct yb_id anybody;
    bool ok = world != NULL;

    *world_out = world;
    if (!ok || yb_loop_create(&options, &world->loop) != YB_OK) {
        return yb_bench_complain("nodes", YB_NO_MEMORY);
    }
    world->blocks = blocks;
    world->directory = directory->address;
    ok = yb_bench_end_open(&world->client, config, world->loop, YB_WIRE_ROLE_CLIENT, NULL);
    ok = ok && yb_peer_create(world->client.net, &addresses, anybody, &world->peer) == YB_OK;
    for (uint32_t i = 0; ok && i < YB_BENCH_NODES; i++) {
        ok = open_node(world, config, i);
    }
    return ok;
}

static void
close_node(struct node *node)
{
    if (node->world != NULL) {
        yb_loop_disarm(node->world->loop, &node->timer);
    }
    if (node->server != NULL) {
        yb_server_stop(node->server);
    }
    if (node->peer != NULL) {
        yb_peer_destroy(&node->peer);
    }
    yb_bench_end_close(&node->end);
    if (node->server != NULL) {
        yb_server_destroy(&node->server);
    }
    free(node->messages);
}

void
yb_bench_world_close(struct yb_bench_world **world_in)
{
    struct yb_bench_world *world = *world_in;

    *world_in = NULL;
    if (world == NULL) {
        return;
    }
    world->closing = true;
    for (uint32_t i = 0; i < YB_BENCH_NODES; i++) {
        close_node(&world->nodes[i]);
    }
    if (world->peer != NULL) {
        yb_peer_destroy(&world->peer);
    }
    yb_bench_end_close(&world->client);
    if (world->loop != NULL) {
        yb_loop_destroy(&world->loop);
    }
    free(world);
}
