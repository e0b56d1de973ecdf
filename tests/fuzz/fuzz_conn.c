/* SPDX-License-Identifier: Apache-2.0
 *
 * Any frames, in any pieces and order, from a peer that has finished the handshake: our side
 * serves or calls, answers late, cancels, drains and closes, and nothing is used after it is gone,
 * nothing is left, what waits stays bounded, and every call ends once.
 *
 * The input is a list of steps. A step is one byte and what it needs; a frame's magic, version and
 * checksum are filled in here, so that the fuzzer gets behind them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/crc32c.h"
#include "net/conn_internal.h"
#include "net/peer.h"
#include "net/server.h"
#include "net/sim.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PORT           7000
#define HELD_MAX       12u
#define CALLS_MAX      12u
#define DATA_MAX       (96u * 1024u)
#define OUT_MAX        (256u * 1024u)
#define BODY_MAX       (16u * 1024u)
#define CREDIT         8u
#define STEPS_MAX      200u
#define WAITING_CHUNKS 40u

enum { THEM, US };

enum method_type { STORE = 100, HOLD, ADD, LOAD, PICKY, HOLD_ADD };

struct fuzz_call {
    struct yb_call call;
    struct world *world;
    bool busy;
    struct iovec data[2];
    struct iovec reply_data[2];
    uint8_t reply[300];
    uint8_t *memory; /* Owned: the data, and behind it room for the reply's. */
};

struct world {
    const uint8_t *at;
    size_t left;

    struct yb_sim *sim;
    struct yb_sim_process *processes[2];
    struct yb_loop *loop;
    struct yb_net *net;
    struct yb_replay *replay;
    struct yb_server *server;
    struct yb_peer *peer;
    struct yb_service table;
    struct yb_request *held[HELD_MAX];
    uint32_t held_count;
    uint32_t placed;
    uint32_t freed;
    uint32_t lent;
    uint32_t released;
    struct iovec iov;
    struct fuzz_call calls[CALLS_MAX];

    /* The peer, by hand. */
    struct yb_io *io;
    struct yb_listener *listener;
    struct yb_stream *stream;
    struct yb_hello *hello;
    struct yb_hello_self self;
    bool deaf;
    bool gone;
    uint8_t out[OUT_MAX];
    size_t out_begin;
    size_t out_end;
    struct iovec out_iov;
};

/* ---- what the input says ------------------------------------------------------------------- */

static uint64_t
take(struct world *world, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes && world->left > 0; i++) {
        value |= (uint64_t)*world->at << (8 * i);
        world->at++;
        world->left--;
    }
    return value;
}

/* ---- our service --------------------------------------------------------------------------- */

static enum yb_status
place(void *owner, struct yb_request *request, const struct iovec **iov_out, uint32_t *count_out)
{
    struct world *world = owner;

    if (request->data_bytes > DATA_MAX) {
        return YB_TOO_LARGE;
    }
    request->context = malloc(request->data_bytes);
    YB_ASSERT(request->context != NULL);
    world->placed++;
    world->iov = (struct iovec){.iov_base = request->context, .iov_len = request->data_bytes};
    *iov_out = &world->iov;
    *count_out = 1;
    return YB_OK;
}

static enum yb_status
place_nothing(void *owner, struct yb_request *request, const struct iovec **iov_out,
              uint32_t *count_out)
{
    (void)owner;
    (void)request;
    (void)iov_out;
    (void)count_out;
    return YB_AGAIN;
}

static void
unplace(void *owner, struct yb_request *request)
{
    struct world *world = owner;

    if (request->data_bytes > 0) {
        memset(request->context, 0xee, request->data_bytes);
        free(request->context);
        world->freed++;
    }
}

static void
handle_store(void *owner, struct yb_request *request)
{
    unplace(owner, request);
    yb_request_reply(request, YB_OK, request->body, request->body_bytes, NULL, 0);
}

static void
handle_hold(void *owner, struct yb_request *request)
{
    struct world *world = owner;

    unplace(owner, request);
    if (world->held_count == HELD_MAX) {
        yb_request_reply(request, YB_AGAIN, NULL, 0, NULL, 0);
        return;
    }
    world->held[world->held_count++] = request;
}

static void
handle_add(void *owner, struct yb_request *request)
{
    (void)owner;
    yb_request_reply(request, request->body_bytes % 3 == 1 ? YB_AGAIN : YB_OK, "sum", 3, NULL, 0);
}

struct loan {
    struct world *world;
    struct iovec iov[2];
    uint8_t bytes[2][20000];
};

static void
released(struct yb_request *request)
{
    struct loan *loan = request->context;

    loan->world->released++;
    memset(loan->bytes, 0xee, sizeof(loan->bytes));
    free(loan);
}

static void
handle_load(void *owner, struct yb_request *request)
{
    struct loan *loan = calloc(1, sizeof(*loan));

    YB_ASSERT(loan != NULL);
    loan->world = owner;
    loan->world->lent++;
    for (uint32_t i = 0; i < 2; i++) {
        loan->iov[i].iov_base = loan->bytes[i];
        loan->iov[i].iov_len = request->body_bytes > i ? request->body[i] * 78u : 0;
    }
    request->context = loan;
    request->released = released;
    yb_request_reply(request, YB_OK, request->body, request->body_bytes, loan->iov, 2);
}

static const struct yb_method methods[] = {
    {.type = STORE,
     .name = "store",
     .roles = YB_ROLE_ANY,
     .body_bytes_max = BODY_MAX,
     .place = place,
     .handle = handle_store,
     .abort = unplace},
    {.type = HOLD,
     .name = "hold",
     .roles = YB_ROLE_ANY,
     .body_bytes_max = 100,
     .place = place,
     .handle = handle_hold,
     .abort = unplace},
    {.type = ADD,
     .name = "add",
     .roles = YB_ROLE_ANY,
     .mutates = true,
     .body_bytes_max = 100,
     .handle = handle_add},
    {.type = LOAD,
     .name = "load",
     .roles = YB_ROLE_ANY,
     .body_bytes_max = 1000,
     .handle = handle_load},
    {.type = PICKY,
     .name = "picky",
     .roles = YB_ROLE_ANY,
     .body_bytes_max = 100,
     .place = place_nothing,
     .handle = handle_store},
    {.type = HOLD_ADD,
     .name = "hold_add",
     .roles = YB_ROLE_ANY,
     .mutates = true,
     .body_bytes_max = 100,
     .place = place,
     .handle = handle_hold,
     .abort = unplace},
};

static void
reply_to_held(struct world *world, uint64_t which)
{
    struct yb_request *request;

    if (world->held_count == 0) {
        return;
    }
    which %= world->held_count;
    request = world->held[which];
    world->held[which] = world->held[--world->held_count];
    yb_request_reply(request, which % 2 == 0 ? YB_OK : YB_AGAIN, "late", 4, NULL, 0);
}

/* ---- our calls ------------------------------------------------------------------------------ */

static void
call_done(struct yb_call *call)
{
    struct fuzz_call *mine = call->owner;

    YB_ASSERT(mine->busy);
    mine->busy = false;
    memset(mine->memory, 0xee, 2 * DATA_MAX);
    free(mine->memory); /* C2: a later touch is a use after free. */
    mine->memory = NULL;
}

static void
make_call(struct world *world)
{
    uint64_t dice = take(world, 4);
    struct fuzz_call *mine = &world->calls[dice % CALLS_MAX];
    size_t data_bytes = (dice >> 8) % 4 == 0 ? ((dice >> 16) & 0xff) * 350 : 0;
    size_t room = (dice >> 10) % 2 == 0 ? ((dice >> 24) & 0xff) * 350 : 0;

    if (mine->busy || world->peer == NULL) {
        return;
    }
    memset(mine, 0, sizeof(*mine));
    mine->memory = calloc(2, DATA_MAX);
    YB_ASSERT(mine->memory != NULL);
    mine->data[0] = (struct iovec){.iov_base = mine->memory, .iov_len = data_bytes / 3};
    mine->data[1] = (struct iovec){.iov_base = mine->memory + data_bytes / 3,
                                   .iov_len = data_bytes - data_bytes / 3};
    mine->reply_data[0] = (struct iovec){.iov_base = mine->memory + DATA_MAX, .iov_len = room / 4};
    mine->reply_data[1] =
        (struct iovec){.iov_base = mine->memory + DATA_MAX + room / 4, .iov_len = room - room / 4};
    mine->call = (struct yb_call){
        .type = STORE,
        .class = YB_CLASS_FIRST_TOKEN,
        .deadline_ns = yb_loop_now(world->loop) + (1 + (dice >> 12) % 16) * 500 * YB_NS_PER_MS,
        .mutates = (dice >> 11) % 2 == 0,
        .fail_fast = (dice >> 9) % 2 == 0,
        .body = mine->reply,
        .body_bytes = (uint32_t)(dice >> 8) % 200,
        .data = mine->data,
        .data_count = data_bytes > 0 ? 2 : 0,
        .reply_body = mine->reply,
        .reply_body_room = (uint32_t)(dice >> 16) % sizeof(mine->reply),
        .reply_data = mine->reply_data,
        .reply_data_count = room > 0 ? 2 : 0,
        .done = call_done,
        .owner = mine,
    };
    mine->busy = true;
    if (yb_peer_call(world->peer, &mine->call) != YB_OK) {
        call_done(&mine->call);
    }
}

static void
cancel_call(struct world *world, uint64_t which)
{
    struct fuzz_call *mine = &world->calls[which % CALLS_MAX];

    if (mine->busy && world->peer != NULL) {
        yb_peer_cancel(world->peer, &mine->call);
    }
}

/* ---- the peer's side ------------------------------------------------------------------------ */

static void
pump(struct world *world)
{
    if (world->stream == NULL || world->gone || world->stream->connecting) {
        return;
    }
    if (!world->stream->writing && world->out_end > world->out_begin) {
        world->out_iov = (struct iovec){.iov_base = world->out + world->out_begin,
                                        .iov_len = world->out_end - world->out_begin};
        YB_ASSERT(yb_stream_write(world->stream, &world->out_iov, 1) == YB_OK);
    }
    if (!world->deaf && !world->stream->reading) {
        YB_ASSERT(yb_stream_read(world->stream, 64 * 1024) == YB_OK);
    }
}

static void
say(struct world *world, const void *bytes, size_t length)
{
    if (world->stream == NULL || world->gone || length > OUT_MAX - world->out_end) {
        return;
    }
    memcpy(world->out + world->out_end, bytes, length);
    world->out_end += length;
    pump(world);
}

static void
leave(struct world *world)
{
    if (world->stream != NULL && !world->gone) {
        world->gone = true;
        yb_stream_close(world->stream, YB_CLOSE_ABORT);
    }
}

static void
say_hello(struct world *world)
{
    size_t length = 0;
    const uint8_t *bytes = yb_hello_output(world->hello, &length);

    if (length > 0) {
        say(world, bytes, length);
        yb_hello_sent(world->hello, length);
    }
}

static void
on_connected(void *owner, enum yb_status status)
{
    struct world *world = owner;

    if (status != YB_OK) {
        leave(world);
        return;
    }
    say_hello(world);
    pump(world);
}

static void
on_bytes(void *owner, enum yb_status status, const uint8_t *bytes, size_t length)
{
    struct world *world = owner;

    if (status != YB_OK) {
        leave(world);
        return;
    }
    (void)yb_hello_feed(world->hello, bytes, length, 1);
    say_hello(world);
    pump(world);
}

static void
on_written(void *owner, enum yb_status status, size_t length)
{
    struct world *world = owner;

    if (status != YB_OK) {
        leave(world);
        return;
    }
    world->out_begin += length;
    if (world->out_begin == world->out_end) {
        world->out_begin = 0;
        world->out_end = 0;
    }
    pump(world);
}

static void
on_closed(void *owner)
{
    struct world *world = owner;

    world->stream = NULL;
    world->out_begin = 0;
    world->out_end = 0;
    yb_hello_destroy(&world->hello);
}

static const struct yb_stream_events events = {
    .on_connected = on_connected,
    .on_bytes = on_bytes,
    .on_written = on_written,
    .on_closed = on_closed,
};

static void
on_accept(void *owner, const struct yb_accepted *accepted)
{
    struct world *world = owner;
    const struct yb_hello_params params = {.nonce = {9}};

    if (world->stream != NULL ||
        yb_io_adopt(world->io, accepted, NULL, &events, world, &world->stream) != YB_OK) {
        yb_io_discard(world->io, accepted);
        return;
    }
    world->gone = false;
    YB_ASSERT(yb_hello_server_create(&world->self, &params, &world->hello) == YB_OK);
    pump(world);
}

/* ---- frames --------------------------------------------------------------------------------- */

/* Return the connection that is tried, NULL if it has ended. */
static struct yb_conn *
our_conn(const struct world *world)
{
    return world->net->conns;
}

/* Return a request id: of one of our calls if there is one, and what else the input says. */
static uint64_t
pick_id(const struct world *world, uint64_t dice, uint64_t *cost_out)
{
    const struct yb_conn *conn = our_conn(world);

    *cost_out = 0;
    if (conn == NULL || conn->slot_count == 0 || dice % 8 == 7) {
        return dice;
    }
    dice %= conn->slot_count;
    if (conn->slots[dice].call != NULL) {
        *cost_out = conn->slots[dice].call->cost;
    }
    return conn->slots[dice].request_id;
}

static void
finish_header(uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES])
{
    bytes[YB_WIRE_FRAME_HEADER_AT_VERSION] = YB_WIRE_VERSION_MAX;
    yb_wire_put_u32(bytes, YB_WIRE_FRAME_MAGIC);
    yb_wire_put_u32(bytes + YB_WIRE_FRAME_HEADER_AT_HEADER_CRC,
                    yb_crc32c(bytes, YB_WIRE_FRAME_HEADER_AT_HEADER_CRC));
}

/* A frame that makes sense but for what the input changes in it. */
static void
step_frame(struct world *world)
{
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES];
    struct yb_wire_frame_header header = {0};
    uint64_t dice = take(world, 4);
    uint64_t cost = 0;
    size_t body_sent;
    size_t data_sent;

    header.class = (uint8_t)(dice & 3);
    header.type = (uint16_t)((dice >> 2) & 0x7f);
    header.flags = (uint16_t)((dice >> 9) & 3);
    header.status = (header.flags & 1) != 0 ? -(int32_t)((dice >> 11) & 0x1f) : 0;
    header.body_bytes = (uint32_t)take(world, 1);
    if ((dice >> 16) % 8 == 0) {
        header.body_bytes *= 70;
    }
    header.data_bytes = (dice >> 19) % 2 == 0 ? 0 : take(world, 1) * ((dice >> 20) % 2 ? 1 : 300);
    header.deadline_us = (header.flags & 1) != 0 ? 0 : 1 + ((dice >> 21) & 7) * 1000000;
    header.request_id = pick_id(world, (dice >> 24) & 0xff, &cost);
    header.operation = (dice >> 22) % 2 == 0 ? 0 : 1 + (dice >> 24) % 16;
    header.slot = header.operation == 0 ? 0 : (dice >> 23) % 2;
    if ((header.flags & 1) != 0 || header.type == YB_WIRE_TYPE_CREDIT) {
        header.credit_requests = (dice >> 23) % 2;
        header.credit_bytes = cost;
    }
    yb_wire_frame_header_store(&header, bytes);
    finish_header(bytes);
    say(world, bytes, sizeof(bytes));
    body_sent = header.body_bytes < world->left ? header.body_bytes : world->left;
    say(world, world->at, (dice >> 27) % 4 == 0 ? body_sent : 0);
    if ((dice >> 27) % 4 != 0) { /* The rest of the input is not all bodies. */
        for (uint32_t i = 0; i < header.body_bytes; i++) {
            say(world, &header.body_bytes, 1);
        }
    } else {
        world->at += body_sent;
        world->left -= body_sent;
    }
    data_sent = header.data_bytes <= DATA_MAX ? header.data_bytes : 0;
    if ((dice >> 29) % 4 != 0) {
        static const uint8_t data[DATA_MAX];

        say(world, data, data_sent);
    }
}

static void
step_any_header(struct world *world)
{
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES] = {0};

    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)take(world, 1);
    }
    memset(bytes + YB_WIRE_FRAME_HEADER_AT_RESERVED, 0, 2);
    finish_header(bytes);
    say(world, bytes, sizeof(bytes));
}

static void
step_raw(struct world *world)
{
    size_t length = take(world, 1);

    length = length < world->left ? length : world->left;
    say(world, world->at, length);
    world->at += length;
    world->left -= length;
}

/* ---- the world ------------------------------------------------------------------------------ */

static void
random_bytes(void *context, void *out, size_t bytes)
{
    (void)context;
    memset(out, 0x5a, bytes);
}

static void
run_us(void *arg)
{
    struct world *world = arg;

    if (world->loop != NULL) {
        yb_loop_turn(world->loop, YB_NEVER);
    }
}

static void
run_them(void *arg)
{
    struct world *world = arg;

    (void)yb_io_poll(world->io, YB_NEVER);
}

static void
check_bounds(const struct world *world)
{
    for (const struct yb_conn *conn = world->net->conns; conn != NULL; conn = conn->next) {
        uint32_t chunks = 0;

        for (const struct yb_chunk *chunk = conn->out.head; chunk != NULL; chunk = chunk->next) {
            chunks++;
        }
        YB_ASSERT(chunks <= WAITING_CHUNKS);
        YB_ASSERT(conn->in.body_room <= BODY_MAX);
        YB_ASSERT(conn->requests_in <= CREDIT + 1);
        YB_ASSERT(conn->calls_live <= CALLS_MAX + 1);
    }
}

static void
pass_ms(struct world *world, uint64_t ms)
{
    YB_ASSERT(yb_sim_run_until(world->sim, NULL, NULL,
                               yb_sim_now_ns(world->sim) + ms * YB_NS_PER_MS,
                               1000000) != YB_SIM_STEP_LIMIT);
    check_bounds(world);
}

static struct yb_hello_self
self_of(uint8_t side)
{
    return (struct yb_hello_self){
        .identity = {{(uint8_t)(side + 1)}},
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_NODE,
        .tenant = "",
        .credit_requests = CREDIT,
        .credit_bytes = 128u * 1024u,
        .body_bytes_max = BODY_MAX,
        .data_bytes_max = 1u << 20,
        .ping_interval_ms = 15000,
        .software = "fuzz",
        .port_name = "the fuzzer's port",
    };
}

static void
start_net(struct world *world, const struct yb_hello_self *self)
{
    struct yb_loop_options loop = {
        .io = yb_sim_process_io(world->processes[US]),
        .clock = yb_sim_process_clock(world->processes[US]),
    };
    struct yb_net_options options = {.self = self, .random = random_bytes};

    YB_ASSERT(yb_loop_create(&loop, &world->loop) == YB_OK);
    YB_ASSERT(yb_replay_create(16, 64 * 1024, &world->replay) == YB_OK);
    world->table = (struct yb_service){
        .methods = methods,
        .method_count = sizeof(methods) / sizeof(methods[0]),
        .owner = world,
    };
    options.loop = world->loop;
    options.service = &world->table;
    options.replay = world->replay;
    yb_net_limits_default(&options.limits);
    YB_ASSERT(yb_net_create(&options, &world->net) == YB_OK);
}

static void
we_serve(struct world *world, const struct yb_address *address)
{
    struct yb_server_options options = {
        .address = *address,
        .insecure = true,
        .connections_max = 4,
        .unauthenticated_max = 2,
        .nets = &world->net,
        .net_count = 1,
    };
    const struct yb_hello_params params = {.generation = 1};
    char why[YB_ADDRESS_WHY_BYTES];

    YB_ASSERT(yb_server_create(&options, &world->server, why) == YB_OK);
    YB_ASSERT(yb_hello_client_create(&world->self, &params, 1, &world->hello) == YB_OK);
    YB_ASSERT(yb_io_connect(world->io, address, NULL, &events, world, &world->stream) == YB_OK);
}

static void
we_call(struct world *world, const struct yb_address *address)
{
    const struct yb_id nobody = {{0}};
    struct yb_address_list list = {.count = 1};

    list.items[0] = *address;
    YB_ASSERT(yb_io_listen(world->io, address, NULL, on_accept, world, &world->listener) == YB_OK);
    YB_ASSERT(yb_peer_create(world->net, &list, nobody, &world->peer) == YB_OK);
    make_call(world);
}

static void
step(struct world *world)
{
    uint8_t kind = (uint8_t)take(world, 1);
    struct yb_conn *conn = our_conn(world);

    switch (kind % 16) {
    case 0: step_any_header(world); break;
    case 1: step_raw(world); break;
    case 2: reply_to_held(world, kind / 16); break;
    case 3: pass_ms(world, (kind / 16) * 1000); break;
    case 4: cancel_call(world, kind / 16); break;
    case 5: world->deaf = (kind & 16) != 0; break;
    case 6:
        if (conn != NULL && kind / 16 == 1) {
            yb_conn_drain(conn);
        } else if (conn != NULL && kind / 16 == 2) {
            yb_conn_close(conn, YB_CLOSED, "the fuzzer closes it");
        } else if (world->peer != NULL && kind / 16 == 3) {
            yb_peer_destroy(&world->peer);
        } else if (kind / 16 == 4) {
            leave(world);
        }
        break;
    case 7:
    case 8: make_call(world); break;
    default: step_frame(world); break;
    }
    pump(world);
    pass_ms(world, kind / 16 % 4 == 0 ? 0 : 1);
}

/* Everything ends, and nothing is left. */
static void
end(struct world *world)
{
    while (world->held_count > 0) {
        reply_to_held(world, 0);
    }
    if (world->peer != NULL) {
        yb_peer_destroy(&world->peer);
    }
    if (world->server != NULL) {
        yb_server_stop(world->server);
    }
    yb_net_shut(world->net);
    leave(world);
    if (world->listener != NULL) {
        yb_io_listener_close(world->io, &world->listener);
    }
    for (uint32_t i = 0; i < 100 && (!yb_net_idle(world->net) || world->stream != NULL); i++) {
        pass_ms(world, 10);
    }
    YB_ASSERT(yb_net_idle(world->net) && world->stream == NULL);
    for (uint32_t i = 0; i < CALLS_MAX; i++) {
        YB_ASSERT(!world->calls[i].busy);
    }
    YB_ASSERT(world->placed == world->freed && world->lent == world->released);
    YB_ASSERT(yb_replay_count(world->replay).running == 0);
    if (world->server != NULL) {
        yb_server_destroy(&world->server);
    }
    yb_net_destroy(&world->net);
    yb_loop_destroy(&world->loop);
    yb_replay_destroy(&world->replay);
    yb_sim_destroy(&world->sim);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const ips[] = {"10.0.0.1", "10.0.0.2"};
    struct yb_hello_self self = self_of(US);
    struct yb_sim_link link = yb_sim_link_default();
    struct world *world = calloc(1, sizeof(*world));
    struct yb_sim_host *hosts[2];
    struct yb_address address;
    uint8_t how;

    YB_ASSERT(world != NULL);
    world->at = data;
    world->left = size;
    world->self = self_of(THEM);
    how = (uint8_t)take(world, 1);
    link.window_bytes = (how & 2) != 0 ? 3000 : link.window_bytes;
    link.piece_bytes_max = (how & 4) != 0 ? 1 + how / 8 * 7u : link.piece_bytes_max;
    world->sim = yb_sim_create(1);
    yb_sim_set_link(world->sim, NULL, NULL, &link);
    for (uint32_t i = THEM; i <= US; i++) {
        hosts[i] = yb_sim_host_create(world->sim, ips[i], ips[i]);
        world->processes[i] =
            yb_sim_process_create(hosts[i], "p", i == US ? run_us : run_them, world);
    }
    world->io = yb_sim_process_io(world->processes[THEM]);
    start_net(world, &self);
    yb_sim_host_address(hosts[(how & 1) != 0 ? US : THEM], PORT, &address);
    if ((how & 1) != 0) {
        we_serve(world, &address);
    } else {
        we_call(world, &address);
    }
    pass_ms(world, 5);
    for (uint32_t i = 0; i < STEPS_MAX && world->left > 0; i++) {
        step(world);
    }
    end(world);
    free(world);
    return 0;
}
