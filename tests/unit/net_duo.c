/* SPDX-License-Identifier: Apache-2.0 */
#include "net_duo.h"

#define MEMORY_FIRST 4096u

/* ---- the service ------------------------------------------------------------------------- */

void
duo_cut(struct iovec *iov, uint32_t count, uint8_t *base, size_t length, uint64_t seed)
{
    uint64_t random = seed * 2 + 1;
    size_t at = 0;

    for (uint32_t i = 0; i < count; i++) {
        size_t left = length - at;
        size_t part = left / (count - i);

        if (i + 1 == count) {
            part = left;
        } else if (unit_random(&random) % 4 == 0) {
            part = 0;
        } else {
            part += part > 0 ? (size_t)(unit_random(&random) % part) : 0;
            part = part < left ? part : left;
        }
        iov[i] = (struct iovec){.iov_base = base + at, .iov_len = part};
        at += part;
    }
}

void
service_room(struct service *service, size_t bytes)
{
    if (bytes > service->memory_bytes) {
        service->memory = realloc(service->memory, bytes);
        assert_non_null(service->memory);
        service->memory_bytes = bytes;
    }
}

static enum yb_status
place(void *owner, struct yb_request *request, const struct iovec **iov_out, uint32_t *count_out)
{
    struct service *service = owner;
    uint32_t vectors = 1;

    if (request->body_bytes >= sizeof(vectors)) {
        memcpy(&vectors, request->body, sizeof(vectors));
        vectors = vectors >= 1 && vectors <= DUO_IOV_MAX ? vectors : 1;
    }
    service->placed++;
    service_room(service, request->data_bytes);
    duo_cut(service->iov, vectors, service->memory, request->data_bytes, vectors);
    *iov_out = service->iov;
    *count_out = vectors;
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
    return YB_NO_SPACE;
}

static void
aborted(void *owner, struct yb_request *request)
{
    struct service *service = owner;

    (void)request;
    service->aborted++;
}

/* What a reply with data lends until it is sent, and where data of its own request goes. */
struct loan {
    struct service *service;
    struct loan *next;
    uint8_t *memory;
    size_t bytes;
    struct iovec iov[DUO_IOV_MAX];
};

static struct loan *
loan_take(struct service *service, size_t bytes)
{
    struct loan *loan = service->loans;

    if (loan != NULL) {
        service->loans = loan->next;
    } else {
        loan = calloc(1, sizeof(*loan));
        assert_non_null(loan);
    }
    if (loan->bytes <= bytes) { /* One more than asked: an address even for nothing. */
        loan->memory = realloc(loan->memory, bytes + 1);
        loan->bytes = bytes + 1;
        assert_non_null(loan->memory);
    }
    loan->service = service;
    return loan;
}

static void
loan_give(struct loan *loan)
{
    loan->next = loan->service->loans;
    loan->service->loans = loan;
}

static void
loans_free(struct service *service)
{
    while (service->loans != NULL) {
        struct loan *loan = service->loans;

        service->loans = loan->next;
        free(loan->memory);
        free(loan);
    }
}

static void
released(struct yb_request *request)
{
    struct loan *loan = request->context;

    loan->service->released++;
    loan_give(loan);
}

static void
handle_store(void *owner, struct yb_request *request)
{
    struct service *service = owner;

    service->handled++;
    yb_request_reply(request, YB_OK, NULL, 0, NULL, 0);
}

static void
reply_with_data(struct service *service, struct yb_request *request, uint64_t bytes,
                uint32_t vectors, uint32_t body_bytes)
{
    struct loan *loan = loan_take(service, 0);
    uint8_t body[64];

    service->handled++;
    memset(body, 0xb0, sizeof(body));
    duo_cut(loan->iov, vectors, service->memory, bytes, vectors + 7);
    request->context = loan;
    request->released = released;
    service->replied_data++;
    yb_request_reply(request, YB_OK, body, body_bytes, loan->iov, vectors);
}

static void
handle_load(void *owner, struct yb_request *request)
{
    struct duo_load load;

    assert_int_equal(request->body_bytes, sizeof(load));
    memcpy(&load, request->body, sizeof(load));
    service_room(owner, load.bytes);
    reply_with_data(owner, request, load.bytes, load.vectors, load.body_bytes);
}

static void
handle_swap(void *owner, struct yb_request *request)
{
    struct service *service = owner;
    struct loan *loan = request->context;

    service->handled++;
    service->replied_data++;
    if (loan == NULL) { /* Nothing came. */
        loan = loan_take(service, 0);
        request->context = loan;
    }
    duo_cut(loan->iov, 3, loan->memory, request->data_bytes, 3);
    request->released = released;
    yb_request_reply(request, YB_OK, NULL, 0, loan->iov, 3);
}

static enum yb_status
place_swap(void *owner, struct yb_request *request, const struct iovec **iov_out,
           uint32_t *count_out)
{
    struct loan *loan = loan_take(owner, request->data_bytes);
    uint32_t vectors = 1;

    if (request->body_bytes >= sizeof(vectors)) {
        memcpy(&vectors, request->body, sizeof(vectors));
        vectors = vectors >= 1 && vectors <= DUO_IOV_MAX ? vectors : 1;
    }
    duo_cut(loan->iov, vectors, loan->memory, request->data_bytes, vectors);
    request->context = loan;
    *iov_out = loan->iov;
    *count_out = vectors;
    return YB_OK;
}

static void
aborted_swap(void *owner, struct yb_request *request)
{
    loan_give(request->context);
    aborted(owner, request);
}

static void
handle_hold(void *owner, struct yb_request *request)
{
    struct service *service = owner;

    assert_true(service->held_count < DUO_HELD_MAX);
    service->handled++;
    service->held[service->held_count++] = request;
}

void
service_reply(struct service *service, enum yb_status status, const void *body, uint32_t bytes)
{
    struct yb_request *request = service->held[0];

    assert_true(service->held_count > 0);
    service->held_count--;
    memmove(service->held, service->held + 1, service->held_count * sizeof(service->held[0]));
    yb_request_reply(request, status, body, bytes, NULL, 0);
    yb_io_wake(yb_loop_io(service->loop));
}

static void
handle_add(void *owner, struct yb_request *request)
{
    struct service *service = owner;
    uint64_t number;

    service->handled++;
    service->sum++;
    if (request->body_bytes == sizeof(number)) {
        memcpy(&number, request->body, sizeof(number));
        assert_true(number < DUO_OPERATIONS);
        service->ran[number]++;
    }
    yb_request_reply(request, YB_OK, &service->sum, sizeof(service->sum), NULL, 0);
}

static void
handle_busy_add(void *owner, struct yb_request *request)
{
    struct service *service = owner;

    if (service->busy_said++ == 0) {
        yb_request_reply(request, YB_AGAIN, NULL, 0, NULL, 0);
        return;
    }
    handle_add(owner, request);
}

#define METHOD(type_, handle_, ...)                                                      \
    {                                                                                    \
        .type = type_, .name = #type_, .roles = YB_ROLE_ANY, .body_bytes_max = 1u << 20, \
        .handle = handle_, __VA_ARGS__                                                   \
    }

static const struct yb_method methods[] = {
    METHOD(DUO_STORE, handle_store, .place = place, .abort = aborted),
    METHOD(DUO_LOAD, handle_load, ),
    METHOD(DUO_SWAP, handle_swap, .place = place_swap, .abort = aborted_swap),
    METHOD(DUO_HOLD, handle_hold, .place = place, .abort = aborted),
    METHOD(DUO_ADD, handle_add, .mutates = true),
    METHOD(DUO_HOLD_ADD, handle_hold, .mutates = true),
    METHOD(DUO_HOLD_LANDS, handle_hold, .lands = true),
    METHOD(DUO_PUT, handle_add, .mutates = true, .place = place, .abort = aborted),
    {DUO_NODE_ONLY, "node_only", YB_ROLE_BIT(YB_WIRE_ROLE_NODE), false, 64, NULL, handle_store,
     NULL, false},
    {DUO_SMALL, "small", YB_ROLE_ANY, false, 8, NULL, handle_store, NULL, false},
    METHOD(DUO_PICKY, handle_store, .place = place_nothing),
    METHOD(DUO_BUSY_ADD, handle_busy_add, .mutates = true),
};

/* ---- the two ------------------------------------------------------------------------------ */

bool
duo_possible(const char *backend)
{
    struct yb_io *io = NULL;

    if (strcmp(backend, "sim") == 0) {
        return true;
    }
    if (yb_io_create(backend, yb_clock_system(), &io) != YB_OK) {
        return false;
    }
    yb_io_destroy(&io);
    return true;
}

static void
random_bytes(void *context, void *out, size_t bytes)
{
    uint64_t *random = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)(unit_random(random) >> 24);
    }
}

void
duo_init(struct duo *duo, const char *backend)
{
    memset(duo, 0, sizeof(*duo));
    duo->backend = backend;
    duo->random = 88172645463325252ull;
    duo->connections_max = 100;
    duo->unauthenticated_max = 50;
    duo->link = yb_sim_link_default();
    for (int side = CLIENT; side <= SERVER; side++) {
        duo->selfs[side] = (struct yb_hello_self){
            .identity = {{(uint8_t)(side + 1)}},
            .incarnation = (uint64_t)(10 + side),
            .version_min = YB_WIRE_VERSION_MIN,
            .version_max = YB_WIRE_VERSION_MAX,
            .schema = YB_WIRE_SCHEMA,
            .role = side == CLIENT ? YB_WIRE_ROLE_CLIENT : YB_WIRE_ROLE_NODE,
            .tenant = side == CLIENT ? "default" : "",
            .credit_requests = 64,
            .credit_bytes = 8u << 20,
            .body_bytes_max = 1u << 20,
            .data_bytes_max = 1ull << 30,
            .ping_interval_ms = 15000,
            .software = "test",
            .port_name = "the test's port",
        };
        yb_net_limits_default(&duo->limits[side]);
    }
    service_room(&duo->service, MEMORY_FIRST);
}

static void
run_loop(void *arg)
{
    yb_loop_turn(arg, YB_NEVER);
}

static void
run_client(void *arg)
{
    struct duo *duo = arg;

    if (duo->loops[CLIENT] != NULL) {
        run_loop(duo->loops[CLIENT]);
    }
}

static void
run_server(void *arg)
{
    struct duo *duo = arg;

    if (duo->loops[SERVER] != NULL) {
        run_loop(duo->loops[SERVER]);
    }
}

static void
make_loops(struct duo *duo)
{
    struct yb_loop_options options = {.backend = duo->backend, .clock = yb_clock_system()};

    if (strcmp(duo->backend, "sim") != 0) {
        assert_int_equal(yb_loop_create(&options, &duo->loops[CLIENT]), YB_OK);
        duo->loops[SERVER] = duo->loops[CLIENT];
        return;
    }
    duo->sim = yb_sim_create(unit_random(&duo->random));
    yb_sim_set_link(duo->sim, NULL, NULL, &duo->link);
    for (int side = CLIENT; side <= SERVER; side++) {
        duo->hosts[side] = yb_sim_host_create(duo->sim, side == CLIENT ? "client" : "server",
                                              side == CLIENT ? "10.0.0.1" : "10.0.0.2");
        duo->processes[side] = yb_sim_process_create(duo->hosts[side], "p",
                                                     side == CLIENT ? run_client : run_server, duo);
        options.io = yb_sim_process_io(duo->processes[side]);
        options.clock = yb_sim_process_clock(duo->processes[side]);
        assert_int_equal(yb_loop_create(&options, &duo->loops[side]), YB_OK);
    }
}

static void
make_secrets(struct duo *duo)
{
    char why[400];

    for (int side = CLIENT; side <= SERVER; side++) {
        struct yb_tls_options options = {.server = side == SERVER,
                                         .wall_ns = yb_clock_wall(yb_clock_system())};

        if (duo->auth) {
            assert_int_equal(yb_auth_parse("test", DUO_SECRET, strlen(DUO_SECRET),
                                           &duo->auths[side], why, sizeof(why)),
                             YB_OK);
            duo->selfs[side].auth = duo->auths[side];
        }
        if (duo->tls) {
            assert_int_equal(
                yb_tls_context_create(&options, &duo->contexts[side], why, sizeof(why)), YB_OK);
        }
    }
}

static void
make_net(struct duo *duo, enum side side)
{
    struct yb_net_options options = {
        .loop = duo->loops[side],
        .self = &duo->selfs[side],
        .tls_server = side == SERVER ? duo->contexts[SERVER] : NULL,
        .tls_client = side == CLIENT ? duo->contexts[CLIENT] : NULL,
        .limits = duo->limits[side],
        .service = side == SERVER ? &duo->table : NULL,
        .replay = side == SERVER ? duo->replay : NULL,
        .stats = duo->stats[side],
        .random = random_bytes,
        .random_context = &duo->random,
    };

    assert_int_equal(yb_net_create(&options, &duo->nets[side]), YB_OK);
}

void
duo_start_server(struct duo *duo)
{
    struct yb_server_options options = {
        .address = duo->address,
        .insecure = true,
        .connections_max = duo->connections_max,
        .unauthenticated_max = duo->unauthenticated_max,
        .nets = &duo->nets[SERVER],
        .net_count = 1,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    duo->table = (struct yb_service){.methods = methods,
                                     .method_count = sizeof(methods) / sizeof(methods[0]),
                                     .owner = &duo->service};
    if (duo->instead.methods != NULL) {
        duo->table = duo->instead;
    }
    assert_int_equal(yb_replay_create(1000, 1u << 23, &duo->replay), YB_OK);
    make_net(duo, SERVER);
    assert_int_equal(yb_server_create(&options, &duo->server, why), YB_OK);
    duo->address = yb_server_address(duo->server);
}

struct yb_peer *
duo_peer(struct duo *duo)
{
    struct yb_address_list list = {.count = 1, .items = {duo->address}};
    struct yb_peer *peer = NULL;

    assert_int_equal(yb_peer_create(duo->nets[CLIENT], &list, duo->wanted, &peer), YB_OK);
    return peer;
}

void
duo_start(struct duo *duo)
{
    char why[YB_ADDRESS_WHY_BYTES];

    make_loops(duo);
    duo->service.loop = duo->loops[SERVER];
    make_secrets(duo);
    assert_int_equal(yb_stats_create(&duo->stats[CLIENT]), YB_OK);
    assert_int_equal(yb_stats_create(&duo->stats[SERVER]), YB_OK);
    make_net(duo, CLIENT);
    if (duo->sim != NULL) {
        yb_sim_host_address(duo->hosts[SERVER], DUO_PORT, &duo->address);
    } else {
        assert_int_equal(yb_address_parse("127.0.0.1", 0, &duo->address, why), YB_OK);
    }
    duo_start_server(duo);
    duo->peer = duo_peer(duo);
}

void
duo_stop_server(struct duo *duo, bool drain)
{
    yb_server_stop(duo->server);
    duo_kick(duo);
    if (drain) {
        yb_net_drain(duo->nets[SERVER]);
    } else {
        yb_net_shut(duo->nets[SERVER]);
    }
    DUO_AWAIT(duo, yb_net_conn_count(duo->nets[SERVER]) == 0);
    while (duo->service.held_count > 0) {
        service_reply(&duo->service, YB_OK, NULL, 0);
    }
    assert_true(yb_net_idle(duo->nets[SERVER]));
    yb_server_destroy(&duo->server);
    yb_net_destroy(&duo->nets[SERVER]);
    assert_int_equal(yb_replay_count(duo->replay).running, 0);
    yb_replay_destroy(&duo->replay);
}

void
duo_renew_client(struct duo *duo)
{
    yb_peer_destroy(&duo->peer);
    duo_kick(duo);
    DUO_AWAIT(duo, yb_net_idle(duo->nets[CLIENT]));
    yb_net_destroy(&duo->nets[CLIENT]);
    make_net(duo, CLIENT);
    duo->peer = duo_peer(duo);
}

void
duo_fini(struct duo *duo)
{
    if (duo->peer != NULL) {
        yb_peer_destroy(&duo->peer);
    }
    yb_net_shut(duo->nets[CLIENT]);
    duo_kick(duo);
    if (duo->server != NULL) {
        duo_stop_server(duo, false);
    }
    DUO_AWAIT(duo, yb_net_idle(duo->nets[CLIENT]));
    assert_int_equal(duo->service.released, duo->service.replied_data);
    yb_net_destroy(&duo->nets[CLIENT]);
    yb_loop_destroy(&duo->loops[CLIENT]);
    if (duo->sim != NULL) {
        yb_loop_destroy(&duo->loops[SERVER]);
        yb_sim_destroy(&duo->sim);
    }
    for (int side = CLIENT; side <= SERVER; side++) {
        yb_stats_destroy(&duo->stats[side]);
        if (duo->auths[side] != NULL) {
            yb_auth_destroy(&duo->auths[side]);
        }
        if (duo->contexts[side] != NULL) {
            yb_tls_context_destroy(&duo->contexts[side]);
        }
    }
    free(duo->service.memory);
    loans_free(&duo->service);
}

void
duo_turn(struct duo *duo)
{
    if (duo->sim != NULL) {
        if (!yb_sim_step(duo->sim)) {
            fail_msg("the simulation has come to rest");
        }
    } else {
        yb_loop_turn(duo->loops[CLIENT], YB_NS_PER_MS);
    }
}

uint64_t
duo_now(struct duo *duo)
{
    return duo->sim != NULL ? yb_sim_now_ns(duo->sim) : yb_clock_now(yb_clock_system());
}

void
duo_kick(struct duo *duo)
{
    for (int side = CLIENT; duo->sim != NULL && side <= SERVER; side++) {
        yb_io_wake(yb_loop_io(duo->loops[side]));
    }
}

uint64_t
duo_deadline(struct duo *duo, uint64_t ms)
{
    return yb_clock_now(yb_loop_clock(duo->loops[CLIENT])) + ms * YB_NS_PER_MS;
}

void
duo_pass_ms(struct duo *duo, uint64_t ms)
{
    uint64_t until_ns = duo_now(duo) + ms * YB_NS_PER_MS;

    assert_non_null(duo->sim);
    assert_int_not_equal(yb_sim_run_until(duo->sim, NULL, NULL, until_ns, 10000000),
                         YB_SIM_STEP_LIMIT);
}

uint64_t
duo_stat(const struct duo *duo, enum side side, enum yb_net_stat stat)
{
    uint32_t metric = duo->nets[side]->stats_first + stat;

    return yb_stats_counter(duo->stats[side], metric, 0, 0);
}

/* ---- calls -------------------------------------------------------------------------------- */

static void
on_done(struct yb_call *call)
{
    struct caller *caller = call->owner;

    assert_false(caller->duo->submitting); /* C1 */
    assert_int_equal(caller->done, 0);
    caller->done++;
    if (caller->scribble) { /* C2: nobody looks at it or writes to it any more. */
        for (uint32_t i = 0; i < call->data_count; i++) {
            memset(call->data[i].iov_base, 0xee, call->data[i].iov_len);
        }
        for (uint32_t i = 0; i < call->reply_data_count; i++) {
            memset(call->reply_data[i].iov_base, 0xee, call->reply_data[i].iov_len);
        }
    }
    if (caller->then != NULL) {
        caller->then(caller);
    }
}

void
caller_init(struct caller *caller, struct duo *duo, uint16_t type)
{
    memset(caller, 0, sizeof(*caller));
    memset(caller->reply, 0xcc, sizeof(caller->reply));
    caller->duo = duo;
    caller->call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_FIRST_TOKEN,
        .deadline_ns = duo_deadline(duo, duo->sim != NULL ? 10000 : DUO_REAL_S * 1000),
        .reply_body = caller->reply,
        .reply_body_room = sizeof(caller->reply),
        .done = on_done,
        .owner = caller,
    };
}

void
caller_body(struct caller *caller, const void *body, uint32_t bytes)
{
    assert_true(bytes <= sizeof(caller->body));
    memcpy(caller->body, body, bytes);
    caller->call.body = caller->body;
    caller->call.body_bytes = bytes;
}

enum yb_status
caller_submit(struct caller *caller)
{
    struct duo *duo = caller->duo;
    bool before = duo->submitting;
    enum yb_status status;

    caller->done = 0;
    duo->submitting = true;
    status = yb_peer_call(duo->peer, &caller->call);
    duo->submitting = before;
    duo_kick(duo);
    return status;
}

void
caller_run(struct caller *caller)
{
    assert_int_equal(caller_submit(caller), YB_OK);
    DUO_AWAIT(caller->duo, caller->done == 1);
}

void
caller_expect(const struct caller *caller, enum yb_status status)
{
    assert_int_equal(caller->done, 1);
    assert_int_equal(caller->call.status, status);
    assert_true(caller->call.answered);
}

void
caller_expect_none(const struct caller *caller, enum yb_status status, bool sent)
{
    assert_int_equal(caller->done, 1);
    assert_int_equal(caller->call.status, status);
    assert_false(caller->call.answered);
    assert_true(caller->call.sent == sent);
}

void
caller_cancel(struct caller *caller)
{
    struct duo *duo = caller->duo;

    duo->submitting = true;
    yb_peer_cancel(duo->peer, &caller->call);
    duo->submitting = false;
    duo_kick(duo);
}

/* ---- by hand ------------------------------------------------------------------------------ */

void
raw_send(struct raw *raw, const void *bytes, size_t length)
{
    assert_true(length <= sizeof(raw->out));
    DUO_AWAIT(raw->duo, raw->probe.sent == raw->probe.sending_length || raw_lost(raw));
    if (length > 0 && !raw_lost(raw)) {
        memcpy(raw->out, bytes, length);
        io_probe_send(&raw->probe, raw->out, length);
    }
}

static void
raw_handshake(struct raw *raw)
{
    struct yb_hello_params params = {.lane_class = YB_CLASS_FIRST_TOKEN};
    size_t length = 0;

    raw->self = raw->duo->selfs[CLIENT];
    raw->self.identity.bytes[1] = (uint8_t)(1 + (raw->duo->raws_made++));
    assert_int_equal(yb_hello_client_create(&raw->self, &params, 1, &raw->hello), YB_OK);
    while (yb_hello_state(raw->hello) != YB_HELLO_DONE) {
        const uint8_t *out = yb_hello_output(raw->hello, &length);

        raw_send(raw, out, length);
        yb_hello_sent(raw->hello, length);
        DUO_AWAIT(raw->duo, raw->probe.received_length > raw->taken);
        raw->taken += yb_hello_feed(raw->hello, raw->probe.received + raw->taken,
                                    raw->probe.received_length - raw->taken, 1);
        assert_int_not_equal(yb_hello_state(raw->hello), YB_HELLO_FAILED);
    }
}

void
raw_open(struct raw *raw, struct duo *duo, bool silent)
{
    memset(raw, 0, sizeof(*raw));
    raw->duo = duo;
    io_probe_init(&raw->probe, yb_loop_io(duo->loops[CLIENT]));
    raw->probe.keep_reading = true;
    assert_int_equal(io_probe_connect(&raw->probe, &duo->address, NULL), YB_OK);
    DUO_AWAIT(duo, raw->probe.connected_count == 1);
    assert_int_equal(raw->probe.connect_status, YB_OK);
    io_probe_read(&raw->probe);
    if (!silent) {
        raw_handshake(raw);
    }
}

void
raw_close(struct raw *raw)
{
    io_probe_close(&raw->probe, YB_CLOSE_ABORT);
    DUO_AWAIT(raw->duo, raw->probe.closed_count == 1);
    io_probe_fini(&raw->probe);
    if (raw->hello != NULL) {
        yb_hello_destroy(&raw->hello);
    }
}

void
raw_header(struct raw *raw, struct yb_wire_frame_header *header, uint16_t type, uint64_t id)
{
    (void)raw;
    *header = (struct yb_wire_frame_header){
        .class = YB_CLASS_FIRST_TOKEN,
        .type = type,
        .request_id = id,
        .deadline_us = 10 * YB_NS_PER_S / YB_NS_PER_US,
    };
}

void
raw_frame(struct raw *raw, const struct yb_wire_frame_header *header, const void *body)
{
    const struct yb_frame_limits limits = {
        .version = YB_WIRE_VERSION_MAX,
        .body_bytes_max = UINT32_MAX,
        .data_bytes_max = YB_WIRE_DATA_BYTES_MAX,
    };
    uint8_t bytes[YB_WIRE_FRAME_HEADER_BYTES + 512];
    size_t length = body == NULL ? 0 : header->body_bytes;

    assert_int_equal(yb_frame_build(header, &limits, bytes), YB_OK);
    if (length > 0) {
        assert_true(length <= 512);
        memcpy(bytes + YB_WIRE_FRAME_HEADER_BYTES, body, length);
    }
    raw_send(raw, bytes, YB_WIRE_FRAME_HEADER_BYTES + length);
}

bool
raw_lost(const struct raw *raw)
{
    return raw->probe.lost_count > 0;
}

bool
raw_next(struct raw *raw, struct yb_wire_frame_header *header_out)
{
    const struct yb_frame_limits limits = {
        .version = YB_WIRE_VERSION_MAX,
        .body_bytes_max = UINT32_MAX,
        .data_bytes_max = YB_WIRE_DATA_BYTES_MAX,
    };
    const char *why = NULL;
    size_t wanted;

    DUO_AWAIT(raw->duo,
              raw->probe.received_length - raw->taken >= YB_FRAME_HEADER_BYTES || raw_lost(raw));
    if (raw->probe.received_length - raw->taken < YB_FRAME_HEADER_BYTES) {
        return false;
    }
    assert_int_equal(yb_frame_parse(raw->probe.received + raw->taken, YB_FRAME_HEADER_BYTES,
                                    &limits, header_out, &why),
                     YB_FRAME_OK);
    wanted = YB_FRAME_HEADER_BYTES + header_out->body_bytes + header_out->data_bytes;
    DUO_AWAIT(raw->duo, raw->probe.received_length - raw->taken >= wanted);
    raw->taken += wanted;
    return true;
}
