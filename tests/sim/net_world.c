/* SPDX-License-Identifier: Apache-2.0 */
#include "net_world.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "net/conn_internal.h"

#define GUARD_BYTE  0xa5
#define SPOILT_BYTE 0xdd
#define STEPS_MAX   20000000u

/* A `done` may be late by ticks of the wheel, and by the runs that the abort of a connection
 * takes. */
#define SLACK_NS (5 * YB_TIMER_TICK_NS)

/* Print the calls that are open, and the last ones of all. */
static void
describe_calls(const struct world *world, FILE *out)
{
    for (uint32_t i = 0; i < world->call_count; i++) {
        const struct world_call *call = world->calls[i];
        const struct yb_call *made = &call->call;

        if ((!call->accepted || call->done_count > 0) && i + 4 < world->call_count) {
            continue;
        }
        (void)fprintf(
            out,
            "call %u: to %u, type %u, lane %u.%u, operation %u, done %u, %s, answered %d, "
            "sent %d, state %d, doubted %d, deadline %u ms\n",
            call->number, call->ask.to, made->type, (unsigned)made->lane, (unsigned)made->class,
            call->operation, call->done_count,
            yb_status_name(call->refused ? call->refusal : made->status), made->answered,
            made->sent, (int)made->state, made->doubted, call->ask.deadline_ms);
    }
}

void
world_failed(const struct world *world, const char *what, const char *file, int line)
{
    (void)fflush(stdout);
    yb_sim_dump(world->sim, stderr);
    describe_calls(world, stderr);
    (void)fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    (void)fprintf(stderr, "seed %llu; to repeat: %s\n", (unsigned long long)world->options.seed,
                  world->repeat != NULL ? world->repeat : "run this test again");
    abort();
}

void
world_pattern(uint8_t *bytes, size_t length, uint64_t seed)
{
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;

    for (size_t i = 0; i < length; i += sizeof(state)) {
        size_t left = length - i < sizeof(state) ? length - i : sizeof(state);

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(bytes + i, &state, left);
    }
}

struct world_options
world_options_default(uint64_t seed)
{
    return (struct world_options){
        .seed = seed,
        .node_count = 2,
        .server_count = 1,
        .credit_requests = 16,
        .credit_bytes = 1024 * 1024,
        .replay_records = 4096,
        .replay_bytes = 32 * 1024 * 1024,
        .limits =
            {
                .handshake_timeout_ns = 500 * YB_NS_PER_MS,
                .connect_timeout_ns = 300 * YB_NS_PER_MS,
                .frame_timeout_ns = 800 * YB_NS_PER_MS,
                .idle_ping_ns = 400 * YB_NS_PER_MS,
                .requests_max = 64,
                .bodies_bytes_max = 256ull << 20,
                .committed_bytes_max = 256 * 1024,
                .calls_waiting_max = 64,
            },
    };
}

/* ---- lives ------------------------------------------------------------------------------ */

static void
random_of_life(void *context, void *out, size_t bytes)
{
    struct world_life *life = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        life->random = life->random * 6364136223846793005ull + 1442695040888963407ull;
        to[i] = (uint8_t)(life->random >> 56);
    }
}

static void
run_process(void *arg)
{
    struct world_life *life = arg;

    yb_loop_turn(life->loop, YB_NEVER);
}

/* What the test asked this process to do, done inside a turn of its loop. */
static void
run_jobs(struct yb_task *task)
{
    struct world_life *life =
        (struct world_life *)((uint8_t *)task - offsetof(struct world_life, task));

    for (uint32_t i = 0; i < life->job_count; i++) {
        life->jobs[i].run(life, life->jobs[i].call);
    }
    life->job_count = 0;
}

static void
post_job(struct world_life *life, void (*run)(struct world_life *life, struct world_call *call),
         struct world_call *call)
{
    if (life == NULL || life->over || life->job_count == WORLD_JOBS_MAX) {
        return;
    }
    life->jobs[life->job_count].run = run;
    life->jobs[life->job_count].call = call;
    life->job_count++;
    yb_loop_defer(life->loop, &life->task);
    yb_io_wake(yb_loop_io(life->loop));
}

static void
make_self(struct world_life *life)
{
    const struct world_options *options = &life->world->options;

    life->self = (struct yb_hello_self){
        .identity = {{(uint8_t)(life->node->number + 1)}},
        .incarnation = ++life->node->incarnation,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_NODE,
        .tenant = "",
        .credit_requests = options->credit_requests,
        .credit_bytes = options->credit_bytes,
        .body_bytes_max = 65536,
        .data_bytes_max = 1024 * 1024,
        .ping_interval_ms = (uint32_t)(options->limits.idle_ping_ns / YB_NS_PER_MS),
        .software = "simulated",
        .port_name = "a simulated port",
    };
}

static void
make_server(struct world_life *life)
{
    struct world *world = life->world;
    struct yb_server_options options = {
        .insecure = true,
        .connections_max = 64,
        .unauthenticated_max = 32,
        .nets = &life->net,
        .net_count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    yb_sim_host_address(life->node->host, WORLD_PORT, &options.address);
    WORLD_CHECK(world, yb_server_create(&options, &life->server, why) == YB_OK);
}

static void
make_peers(struct world_life *life)
{
    struct world *world = life->world;

    for (uint32_t i = 0; i < world->options.server_count; i++) {
        struct yb_address_list addresses = {.count = 1};

        if (i != life->node->number) {
            yb_sim_host_address(world->nodes[i].host, WORLD_PORT, &addresses.items[0]);
            WORLD_CHECK(world, yb_peer_create(life->net, &addresses, (struct yb_id){{0}},
                                              &life->peers[i]) == YB_OK);
        }
    }
}

void
world_start(struct world *world, uint32_t number)
{
    struct world_node *node = &world->nodes[number];
    struct world_life *life = calloc(1, sizeof(*life));
    struct yb_loop_options loop_options = {0};
    struct yb_net_options net_options = {0};

    WORLD_CHECK(world, node->life == NULL && world->life_count < WORLD_LIVES_MAX && life != NULL);
    if (node->silent) {
        yb_sim_host_restart(node->host);
        node->silent = false;
    }
    life->world = world;
    life->node = node;
    life->number = world->life_count;
    life->random = world->options.seed * 64 + life->number;
    life->task.run = run_jobs;
    life->service = (struct yb_service){
        .methods = world_methods,
        .method_count = world_method_count,
        .owner = life,
    };
    life->process = yb_sim_process_create(node->host, "process", run_process, life);
    loop_options.io = yb_sim_process_io(life->process);
    loop_options.clock = yb_sim_process_clock(life->process);
    WORLD_CHECK(world, yb_loop_create(&loop_options, &life->loop) == YB_OK);
    WORLD_CHECK(world, yb_replay_create(world->options.replay_records, world->options.replay_bytes,
                                        &life->replay) == YB_OK);
    make_self(life);
    net_options.loop = life->loop;
    net_options.self = &life->self;
    net_options.limits = world->options.limits;
    net_options.service = &life->service;
    net_options.replay = life->replay;
    net_options.random = random_of_life;
    net_options.random_context = life;
    WORLD_CHECK(world, yb_net_create(&net_options, &life->net) == YB_OK);
    if (node->serves) {
        make_server(life);
    }
    make_peers(life);
    node->life = life;
    world->lives[world->life_count++] = life;
}

/* Tear down a life whose process is gone for everybody else (W9). */
static void
bury(struct world_life *life)
{
    struct world *world = life->world;
    uint32_t turns = 0;

    life->over = true;
    life->node->life = NULL;
    yb_loop_undefer(life->loop, &life->task);
    world_service_end(life);
    for (uint32_t i = 0; i < WORLD_NODES_MAX; i++) {
        if (life->peers[i] != NULL) {
            yb_peer_destroy(&life->peers[i]);
        }
    }
    if (life->server != NULL) {
        yb_server_stop(life->server);
    }
    yb_net_shut(life->net);
    do {
        WORLD_CHECK(world, turns++ < 100);
        yb_loop_turn(life->loop, 0);
        world_service_end(life);
    } while (!yb_net_idle(life->net));
    yb_loop_turn(life->loop, 0);
    for (uint32_t i = 0; i < world->call_count; i++) {
        if (world->calls[i]->life == life) {
            WORLD_CHECK(world, !world->calls[i]->accepted || world->calls[i]->done_count == 1);
            world->calls[i]->life = NULL;
        }
    }
    WORLD_CHECK(world, yb_replay_count(life->replay).running == 0);
    if (life->server != NULL) {
        yb_server_destroy(&life->server);
    }
    yb_net_destroy(&life->net);
    yb_replay_destroy(&life->replay);
    yb_loop_destroy(&life->loop);
    yb_sim_process_destroy(&life->process);
}

void
world_crash(struct world *world, uint32_t number, enum yb_sim_death how)
{
    struct world_node *node = &world->nodes[number];

    WORLD_CHECK(world, node->life != NULL);
    if (node->stalled) {
        world_stall(world, number, false);
    }
    if (how == YB_SIM_DEATH_SILENT) {
        yb_sim_host_crash(node->host, how);
        node->silent = true;
    } else {
        yb_sim_process_crash(node->life->process, how);
    }
    bury(node->life);
}

static void
job_goaway(struct world_life *life, struct world_call *call)
{
    (void)call;
    yb_net_drain(life->net);
}

void
world_goaway(struct world *world, uint32_t number)
{
    WORLD_CHECK(world, world->nodes[number].life != NULL);
    post_job(world->nodes[number].life, job_goaway, NULL);
}

static void
job_drain(struct world_life *life, struct world_call *call)
{
    (void)call;
    if (life->server != NULL) {
        yb_server_stop(life->server);
    }
    yb_net_drain(life->net);
}

void
world_drain(struct world *world, uint32_t number)
{
    struct world_life *life = world->nodes[number].life;

    WORLD_CHECK(world, life != NULL);
    life->draining = true;
    post_job(life, job_drain, NULL);
}

void
world_stop(struct world *world, uint32_t number)
{
    world_crash(world, number, YB_SIM_DEATH_FLUSH);
}

static uint64_t
node_now(const struct world_node *node)
{
    return yb_clock_now(yb_sim_host_clock(node->host));
}

void
world_stall(struct world *world, uint32_t number, bool stalled)
{
    struct world_node *node = &world->nodes[number];

    yb_sim_host_stall(node->host, stalled);
    node->stalled = stalled;
    node->disturbed_ns = node_now(node);
}

void
world_skip(struct world *world, uint32_t number, uint64_t skip_ms)
{
    yb_sim_host_skip(world->nodes[number].host, skip_ms * YB_NS_PER_MS);
    world->nodes[number].disturbed_ns = node_now(&world->nodes[number]);
}

void
world_heal(struct world *world)
{
    yb_sim_heal(world->sim);
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        struct world_node *node = &world->nodes[i];

        if (node->stalled) {
            world_stall(world, i, false);
        }
        if (node->life != NULL && node->life->draining) {
            world_stop(world, i);
        }
        if (node->life == NULL) {
            world_start(world, i);
        }
    }
}

/* ---- calls ------------------------------------------------------------------------------ */

static bool
mutates(enum world_kind kind)
{
    return kind == WORLD_ADD || kind == WORLD_WRITE;
}

static void
set_bytes(uint8_t *bytes, int value, size_t length)
{
    if (length > 0) {
        memset(bytes, value, length);
    }
}

/* Where a reply's data begins in the reply area. */
static size_t
reply_data_offset(const struct world_call *call)
{
    return WORLD_GUARD + sizeof(struct world_answer) + WORLD_GUARD;
}

static bool
is_untouched(const struct world_call *call, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        if (call->reply_area[i] != GUARD_BYTE) {
            return false;
        }
    }
    return true;
}

/* W6: nothing was written beyond the buffers. */
static void
check_guards(const struct world_call *call)
{
    size_t body = WORLD_GUARD;
    size_t data = reply_data_offset(call);
    size_t end = call->reply_area_bytes - WORLD_GUARD;

    WORLD_CHECK(call->world, is_untouched(call, 0, WORLD_GUARD));
    WORLD_CHECK(call->world, is_untouched(call, body + call->call.reply_body_room, data));
    WORLD_CHECK(call->world, is_untouched(call, end, call->reply_area_bytes));
    if (call->call.answered && call->call.status == YB_TOO_SMALL) {
        WORLD_CHECK(call->world, is_untouched(call, 0, call->reply_area_bytes));
    }
}

/* W2 */
static void
check_answer(const struct world_call *call)
{
    struct world *world = call->world;
    const struct world_ask *ask = &call->ask;
    struct world_answer answer;

    WORLD_CHECK(world, call->call.reply_body_bytes == sizeof(answer));
    memcpy(&answer, call->reply_area + WORLD_GUARD, sizeof(answer));
    WORLD_CHECK(world, answer.operation == call->operation && answer.life < world->life_count);
    if (call->operation == 0 || !world->operations[call->operation].asked_again) {
        WORLD_CHECK(world, answer.pattern == call->number);
    }
    if (call->operation != 0) {
        WORLD_CHECK(world, world->operations[call->operation].applied[answer.life] == 1);
    }
    if (ask->kind == WORLD_READ) {
        uint8_t *expected = malloc(ask->data_bytes + 1);

        WORLD_CHECK(world, expected != NULL && call->call.reply_data_bytes == ask->data_bytes);
        world_pattern(expected, ask->data_bytes, call->number);
        WORLD_CHECK(world, memcmp(expected, call->reply_area + reply_data_offset(call),
                                  ask->data_bytes) == 0);
        free(expected);
    }
    if (ask->kind == WORLD_DIGEST) {
        WORLD_CHECK(world, answer.value == XXH3_64bits(call->data, ask->data_bytes));
    }
}

/* W1 */
static void
check_time(struct world_call *call)
{
    const struct world_node *node = call->life->node;
    bool disturbed = node->stalled || node->disturbed_ns + SLACK_NS >= call->submitted_ns;

    call->done_ns = node_now(node);
    if (call->call.deadline_ns != YB_NEVER && !disturbed && !call->life->over) {
        WORLD_CHECK(call->world, call->done_ns <= call->call.deadline_ns + SLACK_NS);
    }
}

/* W3, W4: what may be said without an answer. */
static void
check_outcome(const struct world_call *call)
{
    const struct yb_call *made = &call->call;
    struct world *world = call->world;

    if (made->answered) {
        WORLD_CHECK(world, made->status != YB_IN_DOUBT);
        WORLD_CHECK(world, !call->cancelled_waiting);
        return;
    }
    WORLD_CHECK(world, made->status != YB_OK);
    WORLD_CHECK(world, made->status != YB_PROTOCOL && made->status != YB_INVALID);
    WORLD_CHECK(world, (made->status == YB_IN_DOUBT) == (made->sent && made->operation != 0));
}

static void
on_done(struct yb_call *made)
{
    struct world_call *call = made->owner;
    struct world *world = call->world;
    uint64_t outcome[4];

    WORLD_CHECK(world, call->accepted && !call->submitting); /* W1 */
    call->done_count++;
    WORLD_CHECK(world, call->done_count == 1);
    world->open_calls--;
    check_time(call);
    check_guards(call);
    check_outcome(call);
    if (made->answered && made->status == YB_OK) {
        check_answer(call);
    }
    call->reply_hash = XXH3_64bits(call->reply_area, call->reply_area_bytes);
    set_bytes(call->data, SPOILT_BYTE, call->data != NULL ? call->ask.data_bytes : 0);
    set_bytes(call->body, SPOILT_BYTE, made->body_bytes);
    outcome[0] = call->number;
    outcome[1] = (uint64_t)(int64_t)made->status;
    outcome[2] = call->done_ns;
    outcome[3] = made->answered;
    world->digest = XXH3_64bits_withSeed(outcome, sizeof(outcome), world->digest);
}

uint32_t
world_applied(const struct world_call *call)
{
    return call->world->operations[call->operation].applied_count;
}

/* Check a call once more when nothing can happen any more. */
static void
check_for_good(const struct world_call *call)
{
    struct world *world = call->world;
    const struct yb_call *made = &call->call;
    bool never = !call->accepted || (!made->answered && !made->sent) ||
                 (made->answered && (made->status == YB_AGAIN || made->status == YB_NO_SPACE));

    WORLD_CHECK(world, call->done_count == (call->accepted ? 1 : 0)); /* W1 */
    if (call->operation != 0 && !world->operations[call->operation].asked_again) {
        WORLD_CHECK(world, !never || world_applied(call) == 0); /* W3 */
        WORLD_CHECK(world, !(made->answered && made->status == YB_OK) || world_applied(call) == 1);
    }
    if (call->accepted) {
        WORLD_CHECK(world, XXH3_64bits(call->reply_area, call->reply_area_bytes) ==
                               call->reply_hash); /* W6 */
    }
}

/* Send what another call was once more, on a connection of its lane: under its number, which may
 * be answered, running, acknowledged and dropped, or not have arrived. */
static enum yb_status
send_copy(struct world_life *life, struct world_call *call)
{
    const struct yb_call *original = &call->ask.same_as->call;
    struct world *world = life->world;
    const struct world_life *server = world->nodes[call->ask.to].life;

    call->call.operation = original->operation;
    call->call.operation_slot = original->operation_slot;
    if (original->operation == 0 || server == NULL) {
        return YB_AGAIN; /* It was never sent. */
    }
    for (struct yb_conn *conn = life->net->conns; conn != NULL; conn = conn->next) {
        if (conn->initiator && conn->state == YB_CONN_OPEN && conn->lane == call->ask.lane &&
            conn->lane_class == call->ask.class &&
            yb_id_equal(yb_conn_peer(conn)->identity, server->self.identity)) {
            return yb_conn_call(conn, &call->call);
        }
    }
    return YB_AGAIN;
}

static void
job_submit(struct world_life *life, struct world_call *call)
{
    struct yb_peer *peer = life->peers[call->ask.to];
    uint64_t now_ns = yb_loop_now(life->loop);
    enum yb_status status;

    call->submitted_ns = now_ns;
    call->call.deadline_ns =
        call->ask.deadline_ms == 0 ? YB_NEVER : now_ns + call->ask.deadline_ms * YB_NS_PER_MS;
    call->accepted = true;
    call->submitting = true;
    life->world->open_calls++;
    status = call->ask.same_as != NULL ? send_copy(life, call) : yb_peer_call(peer, &call->call);
    call->submitting = false;
    if (status != YB_OK) {
        WORLD_CHECK(life->world, status == YB_AGAIN || status == YB_TOO_LARGE);
        call->accepted = false;
        call->refused = true;
        call->refusal = status;
        life->world->open_calls--;
    }
}

static void
job_cancel(struct world_life *life, struct world_call *call)
{
    if (call->accepted && call->done_count == 0 && call->ask.same_as != NULL) {
        yb_conn_cancel(call->call.conn, &call->call);
    } else if (call->accepted && call->done_count == 0) {
        call->cancelled_waiting = call->call.state == YB_CALL_WAITING;
        yb_peer_cancel(life->peers[call->ask.to], &call->call);
    }
}

void
world_cancel(struct world_call *call)
{
    post_job(call->life, job_cancel, call);
}

/* Cut memory into three vectors, the middle one perhaps empty. */
static void
cut_iov(struct world *world, struct iovec iov[3], uint8_t *bytes, size_t length)
{
    size_t first = yb_sim_random_below(world->sim, length + 1);
    size_t second = yb_sim_random_below(world->sim, 3) == 0
                        ? 0
                        : yb_sim_random_below(world->sim, length - first + 1);

    iov[0] = (struct iovec){.iov_base = bytes, .iov_len = first};
    iov[1] = (struct iovec){.iov_base = bytes + first, .iov_len = second};
    iov[2] = (struct iovec){
        .iov_base = bytes + first + second,
        .iov_len = length - first - second,
    };
}

static void
make_question(struct world_call *call)
{
    const struct world_ask *ask = &call->ask;
    struct world_question question = {
        .pattern = call->number,
        .operation = call->operation,
        .key = ask->key,
        .delay_us = ask->delay_us,
        .reply_bytes = ask->kind == WORLD_READ ? ask->data_bytes : 0,
        .says_again = ask->says_again,
        .refuses = ask->refuses,
    };
    uint32_t body_bytes = (uint32_t)sizeof(question) + ask->body_bytes;

    if (call->data != NULL) {
        question.hash = XXH3_64bits(call->data, ask->data_bytes);
    }
    call->body = calloc(1, body_bytes);
    WORLD_CHECK(call->world, call->body != NULL);
    memcpy(call->body, &question, sizeof(question));
    call->call.body = call->body;
    call->call.body_bytes = body_bytes;
}

static void
make_buffers(struct world_call *call)
{
    struct world *world = call->world;
    const struct world_ask *ask = &call->ask;
    size_t room = ask->kind == WORLD_READ ? ask->data_bytes : 0;
    uint32_t short_by = ask->reply_too_small ? 1 : 0;

    if (ask->kind == WORLD_WRITE || ask->kind == WORLD_DIGEST) {
        call->data = malloc(ask->data_bytes + 1);
        WORLD_CHECK(world, call->data != NULL);
        world_pattern(call->data, ask->data_bytes, call->number);
        cut_iov(world, call->data_iov, call->data, ask->data_bytes);
        call->call.data = call->data_iov;
        call->call.data_count = 3;
    }
    if (room > 0) {
        room -= short_by;
    }
    call->reply_area_bytes = reply_data_offset(call) + room + WORLD_GUARD;
    call->reply_area = malloc(call->reply_area_bytes);
    WORLD_CHECK(world, call->reply_area != NULL);
    set_bytes(call->reply_area, GUARD_BYTE, call->reply_area_bytes);
    call->call.reply_body = call->reply_area + WORLD_GUARD;
    call->call.reply_body_room = (uint32_t)sizeof(struct world_answer) - (room > 0 ? 0 : short_by);
    if (room > 0) {
        cut_iov(world, call->reply_iov, call->reply_area + reply_data_offset(call), room);
        call->call.reply_data = call->reply_iov;
        call->call.reply_data_count = 3;
    }
}

static uint32_t
new_operation(struct world *world)
{
    WORLD_CHECK(world, world->operation_count < WORLD_CALLS_MAX);
    return world->operation_count++;
}

struct world_call *
world_call(struct world *world, uint32_t from, const struct world_ask *ask)
{
    struct world_call *call = calloc(1, sizeof(*call));

    WORLD_CHECK(world, call != NULL && world->call_count < WORLD_CALLS_MAX);
    WORLD_CHECK(world, ask->to < world->options.server_count && ask->to != from);
    call->world = world;
    call->ask = *ask;
    call->number = world->call_count;
    world->calls[world->call_count++] = call;
    if (ask->same_as != NULL) {
        call->operation = ask->same_as->operation;
        call->ask.lane = ask->same_as->ask.lane;
        call->ask.class = ask->same_as->ask.class;
        world->operations[call->operation].asked_again = true;
    } else if (mutates(ask->kind)) {
        call->operation = new_operation(world);
    }
    make_buffers(call);
    make_question(call);
    call->call.type = (uint16_t)ask->kind;
    call->call.class = call->ask.class;
    call->call.lane = call->ask.lane;
    call->call.fail_fast = ask->fail_fast;
    call->call.mutates = call->operation != 0;
    call->call.done = on_done;
    call->call.owner = call;
    call->life = world->nodes[from].life;
    post_job(call->life, job_submit, call);
    return call;
}

struct world_call *
world_call_and_wait(struct world *world, uint32_t from, const struct world_ask *ask)
{
    struct world_call *call = world_call(world, from, ask);

    for (uint32_t i = 0; i < 60000 && call->done_count == 0 && !call->refused; i++) {
        world_run_ms(world, 1);
    }
    WORLD_CHECK(world, call->done_count == 1 || call->refused);
    return call;
}

/* ---- time, and what must hold at any of it ------------------------------------------------ */

static void
check_conn(struct world *world, const struct yb_conn *conn)
{
    const struct world_options *options = &world->options;

    if (conn->state != YB_CONN_OPEN && conn->state != YB_CONN_DRAINING) {
        return;
    }
    /* W7; a ping may go beyond it. */
    WORLD_CHECK(world, conn->calls_out <= options->credit_requests + 1);
    WORLD_CHECK(world, conn->bytes_out <= options->credit_bytes + 256);
    WORLD_CHECK(world, conn->requests_in <= options->credit_requests + 1);
    WORLD_CHECK(world, yb_conn_outstanding(conn) <= 2 * options->credit_requests + 2);
}

static void
check_bounds(struct world *world)
{
    const struct world_options *options = &world->options;

    for (uint32_t i = 0; i < options->node_count; i++) {
        struct world_life *life = world->nodes[i].life;
        struct yb_replay_counts counts;

        if (life == NULL) {
            continue;
        }
        for (const struct yb_conn *conn = life->net->conns; conn != NULL; conn = conn->next) {
            check_conn(world, conn);
        }
        counts = yb_replay_count(life->replay); /* W8 */
        WORLD_CHECK(world, counts.records <= options->replay_records);
        WORLD_CHECK(world, counts.bytes <= options->replay_bytes);
        WORLD_CHECK(world, life->net->chunk_count <= YB_CONN_CHUNKS_KEPT);
        WORLD_CHECK(world, life->net->requests_live <= options->limits.requests_max);
        WORLD_CHECK(world, life->net->requests_made <= options->limits.requests_max);
    }
}

void
world_run_ms(struct world *world, uint64_t ms)
{
    for (uint64_t i = 0; i < ms; i++) {
        uint64_t until_ns = yb_sim_now_ns(world->sim) + YB_NS_PER_MS;

        WORLD_CHECK(world, yb_sim_run_until(world->sim, NULL, NULL, until_ns, STEPS_MAX) !=
                               YB_SIM_STEP_LIMIT);
        check_bounds(world);
    }
}

bool
world_run_until_done(struct world *world, uint64_t limit_ms)
{
    world_run_ms(world, 2); /* What was asked for is submitted now. */
    for (uint64_t i = 0; i < limit_ms && world->open_calls > 0; i += 5) {
        world_run_ms(world, 5);
    }
    return world->open_calls == 0;
}

void
world_check_quiet(struct world *world)
{
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        struct world_life *life = world->nodes[i].life;

        if (life == NULL) {
            continue;
        }
        for (const struct yb_conn *conn = life->net->conns; conn != NULL; conn = conn->next) {
            if (conn->state == YB_CONN_OPEN && !conn->ping_waits) {
                WORLD_CHECK(world, conn->calls_out == 0 && conn->bytes_out == 0);
                WORLD_CHECK(world, conn->requests_in == 0 && conn->bytes_in == 0);
                WORLD_CHECK(world, yb_conn_out_pending(conn) == 0);
            }
        }
        for (uint32_t peer = 0; peer < WORLD_NODES_MAX; peer++) {
            WORLD_CHECK(world,
                        life->peers[peer] == NULL || yb_peer_conn_count(life->peers[peer]) <= 6);
        }
        WORLD_CHECK(world, life->net->requests_live == 0);
        WORLD_CHECK(world, yb_replay_count(life->replay).running == 0);
    }
}

/* ---- the world ---------------------------------------------------------------------------- */

struct world *
world_create(const struct world_options *options)
{
    struct world *world = calloc(1, sizeof(*world));

    if (world == NULL) {
        abort();
    }
    world->options = *options;
    world->sim = yb_sim_create(options->seed);
    world->operations = calloc(WORLD_CALLS_MAX, sizeof(*world->operations));
    world->operation_count = 1; /* 0 is no operation. */
    WORLD_CHECK(world, world->operations != NULL && options->node_count <= WORLD_NODES_MAX);
    for (uint32_t i = 0; i < options->node_count; i++) {
        struct world_node *node = &world->nodes[i];
        char ip[16];

        (void)snprintf(ip, sizeof(ip), "10.0.0.%u", i + 1);
        node->world = world;
        node->number = i;
        node->serves = i < options->server_count;
        node->host = yb_sim_host_create(world->sim, ip, ip);
    }
    for (uint32_t i = 0; i < options->node_count; i++) {
        world_start(world, i);
    }
    return world;
}

void
world_destroy(struct world **world_ref)
{
    struct world *world = *world_ref;

    *world_ref = NULL;
    for (uint32_t i = 0; i < world->options.node_count; i++) {
        if (world->nodes[i].life != NULL) {
            world_stop(world, i);
        }
    }
    yb_sim_heal(world->sim);
    WORLD_CHECK(world,
                yb_sim_run_until(world->sim, NULL, NULL, YB_NEVER, STEPS_MAX) == YB_SIM_QUIET);
    WORLD_CHECK(world, yb_sim_connection_count(world->sim) == 0); /* W9 */
    WORLD_CHECK(world, yb_sim_held_bytes(world->sim) == 0);
    for (uint32_t i = 0; i < world->call_count; i++) {
        struct world_call *call = world->calls[i];

        check_for_good(call);
        free(call->body);
        free(call->data);
        free(call->reply_area);
        free(call);
    }
    for (uint32_t i = 0; i < world->life_count; i++) {
        free(world->lives[i]);
    }
    yb_sim_destroy(&world->sim);
    free(world->operations);
    free(world);
}
