/* SPDX-License-Identifier: Apache-2.0
 *
 * Any requests, of any role, to a directory and a node that live in the simulation: each is
 * answered or its connection ends, the node's books stay right, and nothing is used after it is
 * gone.
 *
 * The input is a list of requests: who asks, whom, which type, whether the numbers that name the
 * present life are filled in, then the lengths and bytes of body and data. Without that help
 * hardly anything would get behind the first check.
 */
#include <stdlib.h>
#include <string.h>

#include "../sim/store_world.h"
#include "base/check.h"
#include "directory/wire/directory_wire.h"
#include "net/peer.h"
#include "node/wire/node_wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STEPS_MAX 24u
#define BODY_MAX  8192u
#define DATA_MAX  16384u
#define REPLY_MAX (1u << 20)
#define ASKERS    4u /* Client, node, directory, administrator. */

struct asker {
    struct fuzz *fuzz;
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_net *net;
    struct yb_peer *peers[2]; /* Of the directory and the node. */
    struct yb_call call;
    struct yb_task task;
    struct yb_peer *target;
    struct iovec data;
    struct iovec reply_data;
    bool busy;
};

struct fuzz {
    const uint8_t *at;
    size_t left;
    struct store_world *world;
    struct yb_sim_host *host;
    struct asker askers[ASKERS];
    uint64_t random;
    uint8_t body[BODY_MAX];
    uint8_t data[DATA_MAX];
    uint8_t reply[REPLY_MAX];
    uint8_t reply_data[DATA_MAX];
};

static uint64_t
take(struct fuzz *fuzz, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes && fuzz->left > 0; i++) {
        value |= (uint64_t)*fuzz->at << (8 * i);
        fuzz->at++;
        fuzz->left--;
    }
    return value;
}

static uint32_t
take_bytes(struct fuzz *fuzz, uint8_t *out, uint32_t length)
{
    uint32_t got = fuzz->left < length ? (uint32_t)fuzz->left : length;

    memcpy(out, fuzz->at, got);
    memset(out + got, 0, length - got);
    fuzz->at += got;
    fuzz->left -= got;
    return length;
}

static void
random_of_fuzz(void *context, void *out, size_t bytes)
{
    struct fuzz *fuzz = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        fuzz->random = fuzz->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(fuzz->random >> 56);
    }
}

static void
run_asker(void *arg)
{
    yb_loop_turn(((struct asker *)arg)->loop, YB_NEVER);
}

static void
on_done(struct yb_call *call)
{
    ((struct asker *)call->owner)->busy = false;
}

static void
send_call(struct yb_task *task)
{
    struct asker *asker = (struct asker *)((uint8_t *)task - offsetof(struct asker, task));

    asker->call.deadline_ns = yb_loop_now(asker->loop) + 2 * YB_NS_PER_S;
    if (yb_peer_call(asker->target, &asker->call) != YB_OK) {
        asker->busy = false;
    }
}

static void
make_asker(struct fuzz *fuzz, uint32_t number)
{
    static const uint8_t roles[ASKERS] = {YB_WIRE_ROLE_CLIENT, YB_WIRE_ROLE_NODE,
                                          YB_WIRE_ROLE_DIRECTORY, YB_WIRE_ROLE_ADMIN};
    struct asker *asker = &fuzz->askers[number];
    struct yb_loop_options loop = {0};
    struct yb_net_options net = {0};

    asker->fuzz = fuzz;
    asker->task.run = send_call;
    asker->process = yb_sim_process_create(fuzz->host, "asker", run_asker, asker);
    loop.io = yb_sim_process_io(asker->process);
    loop.clock = yb_sim_process_clock(asker->process);
    YB_ASSERT(yb_loop_create(&loop, &asker->loop) == YB_OK);
    asker->self = (struct yb_hello_self){
        .identity = {{0xf0, (uint8_t)number}},
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .role = roles[number],
        .tenant = number == 0 ? "default" : "",
        .credit_requests = 64,
        .credit_bytes = 8u << 20,
        .body_bytes_max = 1u << 20,
        .data_bytes_max = 1ull << 30,
        .ping_interval_ms = 400,
        .software = "fuzzer",
        .port_name = "a fuzzer",
    };
    net.loop = asker->loop;
    net.self = &asker->self;
    net.random = random_of_fuzz;
    net.random_context = fuzz;
    yb_net_limits_default(&net.limits);
    YB_ASSERT(yb_net_create(&net, &asker->net) == YB_OK);
    for (uint32_t i = 0; i < 2; i++) {
        struct yb_address_list list = {.count = 1};

        yb_sim_host_address(fuzz->world->roles[i].host, STORE_PORT, &list.items[0]);
        YB_ASSERT(yb_peer_create(asker->net, &list, (struct yb_id){{0}}, &asker->peers[i]) ==
                  YB_OK);
    }
}

static void
end_asker(struct asker *asker)
{
    uint32_t turns = 0;

    yb_sim_process_crash(asker->process, YB_SIM_DEATH_RESET);
    yb_loop_undefer(asker->loop, &asker->task);
    yb_peer_destroy(&asker->peers[0]);
    yb_peer_destroy(&asker->peers[1]);
    yb_net_shut(asker->net);
    do {
        YB_ASSERT(turns++ < 1000);
        yb_loop_turn(asker->loop, 0);
    } while (!yb_net_idle(asker->net));
    yb_net_destroy(&asker->net);
    yb_loop_destroy(&asker->loop);
    yb_sim_process_destroy(&asker->process);
}

/* Fill in what names the present life, at the places where messages of this type have it. */
static void
help(struct fuzz *fuzz, uint16_t type, uint8_t *body, uint32_t bytes)
{
    struct store_life *node = store_node(fuzz->world, 0)->life;
    struct yb_node_info info;

    yb_node_info(node->node, &info);
    if (bytes < 32) {
        return;
    }
    switch (type) {
    case YB_WIRE_DIRECTORY_TYPE_PUBLISH:
        yb_wire_put_u64(body + YB_WIRE_PUBLICATION_AT_INCARNATION, info.incarnation);
        yb_wire_put_u64(body + YB_WIRE_PUBLICATION_AT_EPOCH, info.epoch);
        yb_wire_put_u16(body + YB_WIRE_PUBLICATION_AT_SLOT, info.slot);
        break;
    case YB_WIRE_DIRECTORY_TYPE_HEARTBEAT:
        yb_wire_put_u64(body + YB_WIRE_HEARTBEAT_AT_INCARNATION, info.incarnation);
        yb_wire_put_u64(body + YB_WIRE_HEARTBEAT_AT_EPOCH, info.epoch);
        break;
    case YB_WIRE_NODE_TYPE_DROP:
    case YB_WIRE_NODE_TYPE_FLUSH:
    case YB_WIRE_NODE_TYPE_HOLD:
    case YB_WIRE_NODE_TYPE_COPY:
        yb_wire_put_u64(body, info.epoch); /* All of them begin with these two. */
        yb_wire_put_u64(body + 8, info.incarnation);
        break;
    default: break;
    }
}

static void
step(struct fuzz *fuzz)
{
    uint8_t who = (uint8_t)take(fuzz, 1);
    struct asker *asker = &fuzz->askers[who % ASKERS];
    uint16_t type = (uint16_t)take(fuzz, 1);
    uint32_t body_bytes = (uint32_t)take(fuzz, 2) % BODY_MAX;
    uint32_t data_bytes = (uint32_t)take(fuzz, 2) % DATA_MAX;

    take_bytes(fuzz, fuzz->body, body_bytes);
    memset(fuzz->data, (int)(who + type), data_bytes);
    if ((who & 0x40) != 0) {
        help(fuzz, type, fuzz->body, body_bytes);
    }
    asker->target = asker->peers[type >= 96 ? 1 : 0];
    asker->data = (struct iovec){.iov_base = fuzz->data, .iov_len = data_bytes};
    asker->reply_data = (struct iovec){.iov_base = fuzz->reply_data, .iov_len = DATA_MAX};
    asker->call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_THROUGHPUT,
        .lane = data_bytes > 0 ? YB_WIRE_LANE_BULK : YB_WIRE_LANE_CONTROL,
        .mutates = (who & 0x20) != 0,
        .body = fuzz->body,
        .body_bytes = body_bytes,
        .data = &asker->data,
        .data_count = data_bytes > 0 ? 1 : 0,
        .reply_body = fuzz->reply,
        .reply_body_room = REPLY_MAX,
        .reply_data = &asker->reply_data,
        .reply_data_count = 1,
        .done = on_done,
        .owner = asker,
    };
    asker->busy = true;
    yb_loop_defer(asker->loop, &asker->task);
    yb_io_wake(yb_loop_io(asker->loop));
    for (uint32_t i = 0; i < 600 && asker->busy; i++) {
        store_run_ms(fuzz->world, 5);
    }
    YB_ASSERT(!asker->busy); /* Answered, or ended by its deadline. */
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_options options = {.seed = 1, .nodes = 1, .pool_bytes = 64 * 1024};
    struct fuzz *fuzz = calloc(1, sizeof(*fuzz));

    YB_ASSERT(fuzz != NULL);
    fuzz->at = data;
    fuzz->left = size;
    fuzz->world = store_world_create(&options);
    fuzz->host = yb_sim_host_create(fuzz->world->sim, "asker", "10.0.1.1");
    for (uint32_t i = 0; i < ASKERS; i++) {
        make_asker(fuzz, i);
    }
    for (uint32_t i = 0; i < 100 && !store_ready(fuzz->world); i++) {
        store_run_ms(fuzz->world, 10);
    }
    for (uint32_t i = 0; i < STEPS_MAX && fuzz->left > 0; i++) {
        step(fuzz);
    }
    for (uint32_t i = 0; i < ASKERS; i++) {
        end_asker(&fuzz->askers[i]);
    }
    store_run_ms(fuzz->world, 1000);
    store_world_destroy(&fuzz->world);
    free(fuzz);
    return 0;
}
