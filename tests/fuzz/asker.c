/* SPDX-License-Identifier: Apache-2.0 */
#include "asker.h"

#include <string.h>

#include "base/check.h"
#include "net/wire/wire.h"

#define CALL_NS (2 * YB_NS_PER_S)

uint64_t
asker_take(struct asker_input *input, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes && input->left > 0; i++) {
        value |= (uint64_t)*input->at << (8 * i);
        input->at++;
        input->left--;
    }
    return value;
}

void
asker_take_bytes(struct asker_input *input, uint8_t *out, size_t length)
{
    size_t got = input->left < length ? input->left : length;

    memcpy(out, input->at, got);
    memset(out + got, 0, length - got);
    input->at += got;
    input->left -= got;
}

static void
random_of_asker(void *context, void *out, size_t bytes)
{
    struct asker *asker = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        asker->random = asker->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(asker->random >> 56);
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

    asker->call.deadline_ns = yb_loop_now(asker->loop) + CALL_NS;
    if (yb_peer_call(asker->target, &asker->call) != YB_OK) {
        asker->busy = false;
    }
}

void
asker_init(struct asker *asker, struct yb_sim_host *host, uint8_t number, uint8_t role)
{
    struct yb_loop_options loop = {0};
    struct yb_net_options net = {0};

    *asker = (struct asker){.random = number, .task = {.run = send_call}};
    asker->process = yb_sim_process_create(host, "asker", run_asker, asker);
    loop.io = yb_sim_process_io(asker->process);
    loop.clock = yb_sim_process_clock(asker->process);
    YB_ASSERT(yb_loop_create(&loop, &asker->loop) == YB_OK);
    asker->self = (struct yb_hello_self){
        .identity = {{0xf0, number}},
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = role == YB_WIRE_ROLE_CLIENT ? "default" : "",
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
    net.random = random_of_asker;
    net.random_context = asker;
    yb_net_limits_default(&net.limits);
    YB_ASSERT(yb_net_create(&net, &asker->net) == YB_OK);
}

void
asker_knows(struct asker *asker, const struct yb_sim_host *host, uint16_t port)
{
    struct yb_address_list list = {.count = 1};

    YB_ASSERT(asker->peer_count < ASKER_PEERS_MAX);
    yb_sim_host_address(host, port, &list.items[0]);
    YB_ASSERT(yb_peer_create(asker->net, &list, (struct yb_id){{0}},
                             &asker->peers[asker->peer_count]) == YB_OK);
    asker->peer_count++;
}

void
asker_send(struct asker *asker, uint32_t peer)
{
    YB_ASSERT(peer < asker->peer_count && !asker->busy);
    asker->target = asker->peers[peer];
    asker->call.done = on_done;
    asker->call.owner = asker;
    asker->busy = true;
    yb_loop_defer(asker->loop, &asker->task);
    yb_io_wake(yb_loop_io(asker->loop));
}

void
asker_fini(struct asker *asker)
{
    uint32_t turns = 0;

    yb_sim_process_crash(asker->process, YB_SIM_DEATH_RESET);
    yb_loop_undefer(asker->loop, &asker->task);
    for (uint32_t i = 0; i < asker->peer_count; i++) {
        yb_peer_destroy(&asker->peers[i]);
    }
    yb_net_shut(asker->net);
    do {
        YB_ASSERT(turns++ < 1000);
        yb_loop_turn(asker->loop, 0);
    } while (!yb_net_idle(asker->net));
    yb_net_destroy(&asker->net);
    yb_loop_destroy(&asker->loop);
    yb_sim_process_destroy(&asker->process);
}
