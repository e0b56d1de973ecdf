/* SPDX-License-Identifier: Apache-2.0 */
#include "store_caller.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "directory/directory_internal.h"
#include "net/loop.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"

#define CALL_NS (2 * YB_NS_PER_S)

/* ---- the process ---------------------------------------------------------------------------- */

static void
run_caller(void *arg)
{
    struct store_caller *caller = arg;

    if (caller->loop != NULL) {
        yb_loop_turn(caller->loop, YB_NEVER);
    }
}

static void
random_of_caller(void *context, void *out, size_t bytes)
{
    struct store_caller *caller = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        caller->random = caller->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(caller->random >> 56);
    }
}

struct store_caller *
store_caller_create(struct store_world *world, uint8_t role)
{
    struct store_caller *caller = calloc(1, sizeof(*caller));
    struct yb_loop_options loop = {0};
    struct yb_net_options net = {.random = random_of_caller};
    char name[32], ip[32];

    if (caller == NULL) {
        abort();
    }
    (void)snprintf(name, sizeof(name), "caller-%u", role);
    (void)snprintf(ip, sizeof(ip), "10.0.1.%u", role + 1u);
    caller->world = world;
    caller->random = world->options.seed + role;
    caller->host = yb_sim_host_create(world->sim, name, ip);
    caller->process = yb_sim_process_create(caller->host, "caller", run_caller, caller);
    caller->self = (struct yb_hello_self){
        .identity = {{0xca, role}},
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = role == YB_WIRE_ROLE_CLIENT ? "default" : "",
        .credit_requests = 64,
        .credit_bytes = 8u << 20,
        .body_bytes_max = 1u << 20,
        .data_bytes_max = 1u << 20,
        .ping_interval_ms = 400,
        .software = "by hand",
        .port_name = "a simulated port",
    };
    loop.io = yb_sim_process_io(caller->process);
    loop.clock = yb_sim_process_clock(caller->process);
    STORE_CHECK(world, yb_loop_create(&loop, &caller->loop) == YB_OK);
    STORE_CHECK(world, yb_replay_create(64, 1u << 20, &caller->replay) == YB_OK);
    net.loop = caller->loop;
    net.self = &caller->self;
    net.replay = caller->replay;
    net.random_context = caller;
    yb_net_limits_default(&net.limits);
    STORE_CHECK(world, yb_net_create(&net, &caller->net) == YB_OK);
    return caller;
}

void
store_caller_destroy(struct store_caller **caller_in)
{
    struct store_caller *caller = *caller_in;

    if (caller->peer != NULL) {
        yb_peer_destroy(&caller->peer);
    }
    yb_net_shut(caller->net);
    for (uint32_t turns = 0; !yb_net_idle(caller->net); turns++) {
        STORE_CHECK(caller->world, turns < 1000);
        yb_loop_turn(caller->loop, 0);
    }
    yb_net_destroy(&caller->net);
    yb_replay_destroy(&caller->replay);
    yb_loop_destroy(&caller->loop);
    yb_sim_process_destroy(&caller->process);
    free(caller);
    *caller_in = NULL;
}

static void
on_done(struct yb_call *call)
{
    ((struct store_caller *)call->owner)->done = true;
}

enum yb_status
store_caller_ask(struct store_caller *caller, const struct store_role *to, uint16_t type,
                 const void *body, size_t body_bytes)
{
    struct yb_address_list addresses = {.count = 1};

    if (caller->role != to) {
        if (caller->peer != NULL) {
            yb_peer_destroy(&caller->peer);
        }
        yb_sim_host_address(to->host, STORE_PORT, &addresses.items[0]);
        STORE_CHECK(caller->world, yb_peer_create(caller->net, &addresses, (struct yb_id){{0}},
                                                  &caller->peer) == YB_OK);
        caller->role = to;
    }
    caller->done = false;
    caller->call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = store_caller_now(caller) + CALL_NS,
        .body = body,
        .body_bytes = (uint32_t)body_bytes,
        .reply_body = caller->reply,
        .reply_body_room = sizeof(caller->reply),
        .done = on_done,
        .owner = caller,
    };
    STORE_CHECK(caller->world, yb_peer_call(caller->peer, &caller->call) == YB_OK);
    yb_io_wake(yb_loop_io(caller->loop));
    while (!caller->done) {
        STORE_CHECK(caller->world, yb_sim_step(caller->world->sim));
    }
    return caller->call.status;
}

uint64_t
store_caller_now(const struct store_caller *caller)
{
    return yb_clock_now(yb_sim_host_clock(caller->host));
}

struct yb_id
store_hash(struct store_world *world, uint32_t key)
{
    struct yb_hash_bytes tenant = {"default", 7};
    char text[16];
    struct yb_hash_bytes name = {text, 0};

    name.length = (size_t)snprintf(text, sizeof(text), "key-%u", key);
    return yb_hash_key(store_directory(world)->life->directory->seed, tenant, name);
}

/* ---- orders --------------------------------------------------------------------------------- */

enum yb_status
store_caller_drop(struct store_caller *caller, const struct store_role *to,
                  const struct store_order *order)
{
    struct yb_wire_grant_name name = {.hash = order->hash, .grant = order->grant};
    struct yb_wire_drops body = {
        .epoch = order->epoch,
        .incarnation = order->incarnation,
        .items = {.count = 1, .native = &name},
    };
    uint8_t bytes[256];
    size_t length = 0;

    STORE_CHECK(caller->world, yb_wire_drops_encode(&body, bytes, sizeof(bytes), &length) == YB_OK);
    return store_caller_ask(caller, to, YB_WIRE_NODE_TYPE_DROP, bytes, length);
}

enum yb_status
store_caller_flush(struct store_caller *caller, const struct store_role *to,
                   const struct store_order *order, uint64_t *count_out)
{
    struct yb_wire_flush_order body = {
        .epoch = order->epoch,
        .incarnation = order->incarnation,
        .flush = order->grant,
        .tenant = yb_wire_text_of("default"),
    };
    struct yb_wire_flush_answer answer;
    enum yb_status status;
    uint8_t bytes[256];
    size_t length = 0;

    STORE_CHECK(caller->world,
                yb_wire_flush_order_encode(&body, bytes, sizeof(bytes), &length) == YB_OK);
    status = store_caller_ask(caller, to, YB_WIRE_NODE_TYPE_FLUSH, bytes, length);
    if (status == YB_OK && count_out != NULL) {
        STORE_CHECK(caller->world,
                    yb_wire_flush_answer_decode(caller->reply, caller->call.reply_body_bytes,
                                                &answer, NULL) == YB_OK);
        *count_out = answer.count;
    }
    return status;
}

/* ---- pins ----------------------------------------------------------------------------------- */

enum yb_status
store_caller_pin(struct store_caller *caller, const struct store_role *node, uint32_t key,
                 uint32_t duration_ms, struct store_lent *lent_out)
{
    char name[16];
    struct yb_wire_get_item item = {.hash = store_hash(caller->world, key), .length = UINT32_MAX};
    struct yb_wire_get body = {.duration_ms = duration_ms, .items = {.count = 1, .native = &item}};
    struct yb_wire_pins pins;
    struct yb_wire_pin_answer answer;
    uint64_t sent_ns = store_caller_now(caller);
    uint8_t bytes[256];
    size_t length = 0;
    enum yb_status status;

    item.key_bytes = (uint16_t)snprintf(name, sizeof(name), "key-%u", key);
    body.keys = (struct yb_wire_blob){.bytes = (const uint8_t *)name, .length = item.key_bytes};
    STORE_CHECK(caller->world, yb_wire_get_encode(&body, bytes, sizeof(bytes), &length) == YB_OK);
    status = store_caller_ask(caller, node, YB_WIRE_NODE_TYPE_PIN, bytes, length);
    if (status != YB_OK) {
        return status;
    }
    STORE_CHECK(caller->world, yb_wire_pins_decode(caller->reply, caller->call.reply_body_bytes,
                                                   &pins, NULL) == YB_OK &&
                                   pins.answers.count == 1);
    yb_wire_pin_answer_at(&pins.answers, 0, &answer);
    if (answer.status == YB_OK) {
        *lent_out = (struct store_lent){
            .pin = answer.pin,
            .bytes = (const uint8_t *)node->memory + answer.offset,
            .size = answer.size,
            .until_ns = sent_ns + answer.duration_us * YB_NS_PER_US,
        };
    }
    return (enum yb_status)answer.status;
}

enum yb_status
store_caller_release(struct store_caller *caller, const struct store_role *node, uint64_t pin,
                     bool *removed_out)
{
    struct yb_wire_pin_id id = {.pin = pin};
    struct yb_wire_releases body = {.pins = {.count = 1, .native = &id}};
    struct yb_wire_release_answers answers;
    struct yb_wire_release_answer answer;
    uint8_t bytes[64];
    size_t length = 0;
    enum yb_status status;

    STORE_CHECK(caller->world,
                yb_wire_releases_encode(&body, bytes, sizeof(bytes), &length) == YB_OK);
    status = store_caller_ask(caller, node, YB_WIRE_NODE_TYPE_RELEASE, bytes, length);
    if (status != YB_OK) {
        return status;
    }
    STORE_CHECK(caller->world,
                yb_wire_release_answers_decode(caller->reply, caller->call.reply_body_bytes,
                                               &answers, NULL) == YB_OK &&
                    answers.answers.count == 1);
    yb_wire_release_answer_at(&answers.answers, 0, &answer);
    *removed_out = answer.removed != 0;
    return (enum yb_status)answer.status;
}
