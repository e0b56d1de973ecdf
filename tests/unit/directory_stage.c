/* SPDX-License-Identifier: Apache-2.0 */
#include "directory_stage.h"

#include "directory/directory_internal.h"

/* ---- processes ------------------------------------------------------------------------------- */

static void
run_actor(void *arg)
{
    struct stage_actor *actor = arg;

    if (actor->loop != NULL) {
        yb_loop_turn(actor->loop, YB_NEVER);
    }
}

static void
fill_random(void *context, void *out, size_t bytes)
{
    struct stage_actor *actor = context;
    uint8_t *to = out;

    for (size_t i = 0; i < bytes; i++) {
        to[i] = (uint8_t)unit_random(&actor->random);
    }
}

static void
take_order(struct stage_actor *node, const struct stage_order *order)
{
    assert_true(node->order_count < STAGE_ORDERS_MAX);
    node->orders[node->order_count++] = *order;
}

static void
answer_order(struct stage_actor *node, struct yb_request *request, enum yb_status status)
{
    uint8_t body[YB_WIRE_COPY_ANSWERS_BYTES_MAX];
    size_t length = 0;

    if (status == YB_OK && request->method->type == YB_WIRE_NODE_TYPE_FLUSH) {
        struct yb_wire_flush_answer answer = {.count = 3};

        assert_int_equal(yb_wire_flush_answer_encode(&answer, body, sizeof(body), &length), YB_OK);
    }
    if (status == YB_OK && request->method->type == YB_WIRE_NODE_TYPE_COPY) {
        struct yb_wire_copies copies;
        struct yb_wire_copy_answer native[128] = {{.status = YB_OK}};
        struct yb_wire_copy_answers answers = {.answers = {.native = native}};

        assert_int_equal(
            yb_wire_copies_decode(request->context, request->body_bytes, &copies, NULL), YB_OK);
        answers.answers.count = copies.items.count;
        for (uint32_t i = 0; node->manner == STAGE_FULL && i < answers.answers.count; i++) {
            native[i].status = YB_NO_SPACE;
        }
        assert_int_equal(yb_wire_copy_answers_encode(&answers, body, sizeof(body), &length), YB_OK);
    }
    free(request->context);
    yb_request_reply(request, status, body, (uint32_t)length, NULL, 0);
}

static void
take_drops(struct stage_actor *node, const struct yb_request *request)
{
    struct yb_wire_drops drops;

    assert_int_equal(yb_wire_drops_decode(request->body, request->body_bytes, &drops, NULL), YB_OK);
    for (uint32_t i = 0; i < drops.items.count; i++) {
        struct yb_wire_grant_name name;
        struct stage_order order = {
            .type = YB_WIRE_NODE_TYPE_DROP,
            .reason = drops.reason,
            .incarnation = drops.incarnation,
        };

        yb_wire_grant_name_at(&drops.items, i, &name);
        order.hash = name.hash;
        order.grant = name.grant;
        take_order(node, &order);
    }
}

static void
take_holds(struct stage_actor *node, const struct yb_request *request)
{
    struct yb_wire_holds holds;

    assert_int_equal(yb_wire_holds_decode(request->body, request->body_bytes, &holds, NULL), YB_OK);
    for (uint32_t i = 0; i < holds.items.count; i++) {
        struct yb_wire_hold_item item;
        struct stage_order order = {.type = YB_WIRE_NODE_TYPE_HOLD};

        yb_wire_hold_item_at(&holds.items, i, &item);
        order.hash = item.hash;
        order.grant = item.grant;
        take_order(node, &order);
    }
}

static void
take_copies(struct stage_actor *node, const struct yb_request *request)
{
    struct yb_wire_copies copies;

    assert_int_equal(yb_wire_copies_decode(request->body, request->body_bytes, &copies, NULL),
                     YB_OK);
    assert_true(copies.address.length > 0);
    for (uint32_t i = 0; i < copies.items.count; i++) {
        struct yb_wire_copy_item item;
        struct stage_order order = {
            .type = YB_WIRE_NODE_TYPE_COPY,
            .incarnation = copies.incarnation,
            .source = copies.source,
        };

        yb_wire_copy_item_at(&copies.items, i, &item);
        order.hash = item.hash;
        order.grant = item.grant;
        take_order(node, &order);
    }
}

static void
handle_order(void *owner, struct yb_request *request)
{
    struct stage_actor *node = owner;

    node->messages++;
    request->context = malloc(request->body_bytes + 1u);
    assert_non_null(request->context);
    memcpy(request->context, request->body, request->body_bytes);
    if (node->manner == STAGE_REFUSES) {
        answer_order(node, request, YB_FENCED);
        return;
    }
    if (request->method->type == YB_WIRE_NODE_TYPE_DROP) {
        take_drops(node, request);
    } else if (request->method->type == YB_WIRE_NODE_TYPE_HOLD) {
        take_holds(node, request);
    } else if (request->method->type == YB_WIRE_NODE_TYPE_COPY) {
        take_copies(node, request);
    } else {
        struct yb_wire_flush_order flush;
        struct stage_order order = {.type = YB_WIRE_NODE_TYPE_FLUSH};

        assert_int_equal(
            yb_wire_flush_order_decode(request->body, request->body_bytes, &flush, NULL), YB_OK);
        order.grant = flush.flush;
        order.incarnation = flush.incarnation;
        take_order(node, &order);
    }
    if (node->manner == STAGE_HOLDS) {
        assert_true(node->held_count < STAGE_HELD_MAX);
        node->held[node->held_count++] = request;
        return;
    }
    answer_order(node, request, YB_OK);
}

static const struct yb_method node_methods[] = {
    {
        .type = YB_WIRE_NODE_TYPE_DROP,
        .name = "drop",
        .roles = YB_ROLE_BIT(YB_WIRE_ROLE_DIRECTORY),
        .body_bytes_max = YB_WIRE_DROPS_BYTES_MAX,
        .handle = handle_order,
    },
    {
        .type = YB_WIRE_NODE_TYPE_FLUSH,
        .name = "flush",
        .roles = YB_ROLE_BIT(YB_WIRE_ROLE_DIRECTORY),
        .body_bytes_max = YB_WIRE_FLUSH_ORDER_BYTES_MAX,
        .handle = handle_order,
    },
    {
        .type = YB_WIRE_NODE_TYPE_HOLD,
        .name = "hold",
        .roles = YB_ROLE_BIT(YB_WIRE_ROLE_DIRECTORY),
        .body_bytes_max = YB_WIRE_HOLDS_BYTES_MAX,
        .handle = handle_order,
    },
    {
        .type = YB_WIRE_NODE_TYPE_COPY,
        .name = "copy",
        .roles = YB_ROLE_BIT(YB_WIRE_ROLE_DIRECTORY),
        .mutates = true,
        .body_bytes_max = YB_WIRE_COPIES_BYTES_MAX,
        .handle = handle_order,
    },
};

static void
make_self(struct stage_actor *actor, uint8_t number, uint8_t role, const char *tenant)
{
    actor->self = (struct yb_hello_self){
        .identity = {{number}},
        .incarnation = ++actor->self.incarnation,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = role,
        .tenant = tenant,
        .credit_requests = 256,
        .credit_bytes = 64u << 20,
        .body_bytes_max = 4u << 20,
        .data_bytes_max = 1u << 20,
        .ping_interval_ms = 15000,
        .software = "stage",
        .port_name = "the stage",
    };
}

static void
actor_start(struct stage_actor *actor, const struct yb_service *service, bool serves)
{
    struct yb_loop_options loop = {.spin_us = 0};
    struct yb_net_options net = {.service = service};

    actor->process = yb_sim_process_create(actor->host, actor->name, run_actor, actor);
    loop.io = yb_sim_process_io(actor->process);
    loop.clock = yb_sim_process_clock(actor->process);
    assert_int_equal(yb_loop_create(&loop, &actor->loop), YB_OK);
    assert_int_equal(yb_replay_create(4096, 32u << 20, &actor->replay), YB_OK);
    net.loop = actor->loop;
    net.self = &actor->self;
    yb_net_limits_default(&net.limits);
    net.replay = actor->replay;
    net.random = fill_random;
    net.random_context = actor;
    assert_int_equal(yb_net_create(&net, &actor->net), YB_OK);
    if (serves) {
        struct yb_server_options server = {
            .insecure = true,
            .connections_max = 64,
            .unauthenticated_max = 32,
            .nets = &actor->net,
            .net_count = 1,
        };
        char why[YB_ADDRESS_WHY_BYTES];

        yb_sim_host_address(actor->host, STAGE_PORT, &server.address);
        assert_int_equal(yb_server_create(&server, &actor->server, why), YB_OK);
    }
}

static void
actor_join(struct stage_actor *actor)
{
    struct yb_address_list addresses = {.count = 1};

    yb_sim_host_address(actor->stage->place.host, STAGE_PORT, &addresses.items[0]);
    assert_int_equal(yb_peer_create(actor->net, &addresses, (struct yb_id){{0}}, &actor->peer),
                     YB_OK);
}

static void
actor_end(struct stage_actor *actor)
{
    uint32_t turns = 0;

    if (actor->net == NULL) {
        return;
    }
    stage_beat(actor, false);
    while (actor->held_count > 0) {
        answer_order(actor, actor->held[--actor->held_count], YB_CLOSED);
    }
    if (actor->peer != NULL) {
        yb_peer_destroy(&actor->peer);
    }
    if (actor->server != NULL) {
        yb_server_stop(actor->server);
    }
    yb_net_shut(actor->net);
    while (!yb_net_idle(actor->net) || actor->beat_busy ||
           (actor == &actor->stage->place && actor->stage->directory != NULL &&
            !yb_directory_idle(actor->stage->directory))) {
        assert_true(turns++ < 1000);
        yb_loop_turn(actor->loop, 0);
        while (actor->held_count > 0) {
            answer_order(actor, actor->held[--actor->held_count], YB_CLOSED);
        }
    }
    yb_loop_turn(actor->loop, 0);
    assert_int_equal(yb_replay_count(actor->replay).running, 0);
    if (actor->server != NULL) {
        yb_server_destroy(&actor->server);
    }
    yb_net_destroy(&actor->net);
    yb_replay_destroy(&actor->replay);
    yb_loop_destroy(&actor->loop);
    yb_sim_process_destroy(&actor->process);
}

/* ---- the directory --------------------------------------------------------------------------- */

static enum yb_status
load(void *owner, void *bytes_out, size_t room, size_t *length_out)
{
    struct stage_file *file = owner;

    assert_true(file->length <= room);
    memcpy(bytes_out, file->bytes, file->length);
    *length_out = file->length;
    return YB_OK;
}

static enum yb_status
store(void *owner, const void *bytes, size_t length)
{
    struct stage_file *file = owner;

    assert_true(length <= sizeof(file->bytes));
    if (file->fails) {
        return YB_IO;
    }
    memcpy(file->bytes, bytes, length);
    file->length = length;
    file->stores++;
    return YB_OK;
}

static void
start_directory(struct stage *stage)
{
    assert_int_equal(yb_stats_create(&stage->stats), YB_OK);
    stage->options.stats = stage->stats;
    stage->options.random = fill_random;
    stage->options.random_context = &stage->place;
    stage->options.storage = &stage->storage;
    make_self(&stage->place, 1, YB_WIRE_ROLE_DIRECTORY, "");
    assert_int_equal(
        yb_directory_create(&stage->options, &stage->directory, stage->why, sizeof(stage->why)),
        YB_OK);
    stage->place.self.cluster = yb_directory_cluster(stage->directory);
    stage->place.self.seed_check = yb_directory_seed_check(stage->directory);
    actor_start(&stage->place, yb_directory_service(stage->directory), true);
    assert_int_equal(yb_directory_start(stage->directory, stage->place.net), YB_OK);
}

static void
end_directory(struct stage *stage)
{
    yb_directory_stop(stage->directory);
    actor_end(&stage->place);
    assert_true(yb_directory_idle(stage->directory));
    yb_directory_destroy(&stage->directory);
    assert_null(stage->directory);
    yb_stats_destroy(&stage->stats);
}

void
stage_restart_directory(struct stage *stage)
{
    yb_sim_process_crash(stage->place.process, YB_SIM_DEATH_RESET);
    end_directory(stage);
    start_directory(stage);
}

static void
name_actor(struct stage *stage, struct stage_actor *actor, const char *name, const char *ip)
{
    actor->stage = stage;
    actor->name = name;
    actor->random = 88172645463325252ull + (uint64_t)(uint8_t)name[0] * 77 + (uint8_t)name[1];
    actor->host = yb_sim_host_create(stage->sim, name, ip);
}

static void beat_fired(struct yb_timer *timer);

void
stage_init(struct stage *stage)
{
    static const char *const names[STAGE_NODES] = {"a", "b", "c", "d"};
    char ip[32];

    memset(stage, 0, sizeof(*stage));
    stage->sim = yb_sim_create(7);
    stage->storage = (struct yb_directory_storage){load, store, &stage->file};
    stage->options.lease_ms = STAGE_LEASE_MS;
    stage->options.records_max = 10000;
    stage->options.writes_max = 1024;
    stage->options.events_max = 256;
    name_actor(stage, &stage->place, "directory", "10.0.0.1");
    for (uint32_t i = 0; i < STAGE_NODES; i++) {
        (void)snprintf(ip, sizeof(ip), "10.0.1.%u", i + 1);
        name_actor(stage, &stage->nodes[i], names[i], ip);
        stage->nodes[i].capacity = 1u << 30;
        yb_timer_init(&stage->nodes[i].beat, beat_fired);
    }
    name_actor(stage, &stage->client, "client", "10.0.2.1");
    name_actor(stage, &stage->other, "other", "10.0.2.2");
    name_actor(stage, &stage->admin, "admin", "10.0.2.3");
}

void
stage_start(struct stage *stage)
{
    start_directory(stage);
    for (uint32_t i = 0; i < STAGE_NODES; i++) {
        struct stage_actor *node = &stage->nodes[i];

        make_self(node, (uint8_t)(10 + i), YB_WIRE_ROLE_NODE, "");
        node->service = (struct yb_service){
            .methods = node_methods,
            .method_count = sizeof(node_methods) / sizeof(node_methods[0]),
            .owner = node,
        };
        actor_start(node, &node->service, true);
        actor_join(node);
    }
    make_self(&stage->client, 2, YB_WIRE_ROLE_CLIENT, "default");
    make_self(&stage->other, 3, YB_WIRE_ROLE_CLIENT, "somebody");
    make_self(&stage->admin, 4, YB_WIRE_ROLE_ADMIN, "");
    actor_start(&stage->client, NULL, false);
    actor_start(&stage->other, NULL, false);
    actor_start(&stage->admin, NULL, false);
    actor_join(&stage->client);
    actor_join(&stage->other);
    actor_join(&stage->admin);
}

void
stage_fini(struct stage *stage)
{
    end_directory(stage);
    actor_end(&stage->client);
    actor_end(&stage->other);
    actor_end(&stage->admin);
    for (uint32_t i = 0; i < STAGE_NODES; i++) {
        actor_end(&stage->nodes[i]);
    }
    yb_sim_destroy(&stage->sim);
}

void
stage_pass_ms(struct stage *stage, uint64_t ms)
{
    (void)yb_sim_run_until(stage->sim, NULL, NULL, yb_sim_now_ns(stage->sim) + ms * YB_NS_PER_MS,
                           UINT64_MAX);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void
call_done(struct yb_call *call)
{
    struct stage_call *made = call->owner;

    made->done = true;
}

struct stage_call *
stage_begin_call(struct stage_actor *actor, uint16_t type, const void *body, uint32_t body_bytes)
{
    struct stage_call *made = calloc(1, sizeof(*made));

    assert_non_null(made);
    assert_true(body_bytes <= sizeof(made->body));
    if (body_bytes > 0) {
        memcpy(made->body, body, body_bytes);
    }
    made->call = (struct yb_call){
        .type = type,
        .class = YB_CLASS_FIRST_TOKEN,
        .deadline_ns = yb_loop_now(actor->loop) + 30 * YB_NS_PER_S,
        .body = made->body,
        .body_bytes = body_bytes,
        .reply_body = made->reply,
        .reply_body_room = sizeof(made->reply),
        .done = call_done,
        .owner = made,
    };
    if (type == YB_WIRE_DIRECTORY_TYPE_REMOVE || type == YB_WIRE_DIRECTORY_TYPE_REMOVE_ALL ||
        type == YB_WIRE_DIRECTORY_TYPE_SET_STATE) {
        made->call.mutates = true;
    }
    assert_int_equal(yb_peer_call(actor->peer, &made->call), YB_OK);
    yb_io_wake(yb_loop_io(actor->loop));
    return made;
}

enum yb_status
stage_end_call(struct stage *stage, struct stage_call *call)
{
    enum yb_status status;

    STAGE_AWAIT(stage, call->done);
    status = call->call.status;
    stage->reply_bytes = call->call.reply_body_bytes;
    memcpy(stage->reply, call->reply, stage->reply_bytes);
    free(call);
    return status;
}

enum yb_status
stage_ask(struct stage_actor *actor, uint16_t type, const void *body, uint32_t body_bytes)
{
    return stage_end_call(actor->stage, stage_begin_call(actor, type, body, body_bytes));
}

/* ---- nodes ----------------------------------------------------------------------------------- */

enum yb_status
stage_register(struct stage_actor *node, uint64_t incarnation)
{
    struct stage *stage = node->stage;
    char address[YB_ADDRESS_TEXT_BYTES];
    struct yb_address where;
    struct yb_wire_register body = {
        .capacity = node->capacity,
        .incarnation = incarnation,
        .name = yb_wire_text_of(node->name),
    };
    struct yb_wire_registered answer;
    uint8_t bytes[YB_WIRE_REGISTER_BYTES_MAX];
    enum yb_status status;
    size_t length;

    yb_sim_host_address(node->host, STAGE_PORT, &where);
    yb_address_format(&where, address);
    body.address = yb_wire_text_of(address);
    body.cluster = incarnation != 0 ? yb_directory_cluster(stage->directory) : body.cluster;
    assert_int_equal(yb_wire_register_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    status = stage_ask(node, YB_WIRE_DIRECTORY_TYPE_REGISTER, bytes, (uint32_t)length);
    if (status == YB_OK) {
        assert_int_equal(yb_wire_registered_decode(stage->reply, stage->reply_bytes, &answer, NULL),
                         YB_OK);
        node->incarnation = answer.incarnation;
        node->epoch = answer.epoch;
        node->slot = answer.slot;
        node->keep = answer.keep != 0;
        node->flush_version = answer.flush_version;
        node->sequence = 0;
    }
    return status;
}

static uint32_t
encode_beat(struct stage_actor *node, uint8_t *out)
{
    struct yb_wire_heartbeat body = {
        .incarnation = node->incarnation,
        .epoch = node->epoch,
        .flush_version = node->flush_version,
        .capacity = node->capacity,
        .live = node->used,
        .slot = node->slot,
    };
    size_t length;

    if (node->has_use) {
        body.use.count = 1;
        body.use.native = &node->use;
    }
    assert_int_equal(yb_wire_heartbeat_encode(&body, out, YB_WIRE_HEARTBEAT_BYTES_MAX, &length),
                     YB_OK);
    return (uint32_t)length;
}

enum yb_status
stage_beat_once(struct stage_actor *node)
{
    uint32_t length = encode_beat(node, node->beat_body);
    enum yb_status status =
        stage_ask(node, YB_WIRE_DIRECTORY_TYPE_HEARTBEAT, node->beat_body, length);

    if (node->stage->reply_bytes > 0) {
        memcpy(node->beat_reply, node->stage->reply, node->stage->reply_bytes);
        assert_int_equal(yb_wire_heartbeat_answer_decode(node->beat_reply, node->stage->reply_bytes,
                                                         &node->beat_answer, NULL),
                         YB_OK);
    }
    return status;
}

static void
beat_done(struct yb_call *call)
{
    struct stage_actor *node = call->owner;

    node->beat_busy = false;
    if (call->answered) {
        node->beat_status = call->status;
        assert_true(call->reply_body_bytes == 0 ||
                    yb_wire_heartbeat_answer_decode(node->beat_reply, call->reply_body_bytes,
                                                    &node->beat_answer, NULL) == YB_OK);
    }
}

static void
beat_fired(struct yb_timer *timer)
{
    struct stage_actor *node =
        (struct stage_actor *)((uint8_t *)timer - offsetof(struct stage_actor, beat));
    uint64_t now_ns = yb_loop_now(node->loop);

    yb_loop_arm(node->loop, timer, now_ns + STAGE_LEASE_MS / 4 * YB_NS_PER_MS);
    if (node->beat_busy) {
        return;
    }
    node->beat_call = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_HEARTBEAT,
        .class = YB_CLASS_BACKGROUND,
        .deadline_ns = now_ns + 10 * YB_NS_PER_S,
        .body = node->beat_body,
        .body_bytes = encode_beat(node, node->beat_body),
        .reply_body = node->beat_reply,
        .reply_body_room = sizeof(node->beat_reply),
        .done = beat_done,
        .owner = node,
    };
    node->beat_busy = yb_peer_call(node->peer, &node->beat_call) == YB_OK;
}

void
stage_beat(struct stage_actor *node, bool on)
{
    if (node->beats == on) {
        return;
    }
    node->beats = on;
    yb_loop_arm(node->loop, &node->beat, on ? yb_loop_now(node->loop) : YB_NEVER);
    yb_io_wake(yb_loop_io(node->loop));
}

void
stage_release(struct stage_actor *node, enum yb_status status)
{
    while (node->held_count > 0) {
        answer_order(node, node->held[--node->held_count], status);
    }
    yb_io_wake(yb_loop_io(node->loop));
}

uint32_t
stage_count_orders(const struct stage_actor *node, uint16_t type, struct yb_id hash, uint64_t grant)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->order_count; i++) {
        const struct stage_order *order = &node->orders[i];

        count += order->type == type && (yb_id_is_none(hash) || yb_id_equal(order->hash, hash)) &&
                         (grant == 0 || order->grant == grant)
                     ? 1
                     : 0;
    }
    return count;
}

struct yb_wire_publish_item
stage_item(uint8_t mode, struct yb_id hash, uint64_t grant, uint64_t write)
{
    return (struct yb_wire_publish_item){
        .hash = hash,
        .grant = grant,
        .write = write,
        .size = 4096,
        .mode = mode,
        .tier = YB_WIRE_TIER_DRAM,
        .replicas = 1,
    };
}

uint32_t
stage_encode_publication(struct stage_actor *node, uint64_t sequence, uint8_t phase,
                         const struct yb_wire_publish_item *items, uint32_t count, uint8_t *out)
{
    struct yb_wire_publication body = {
        .incarnation = node->incarnation,
        .epoch = node->epoch,
        .sequence = sequence,
        .slot = node->slot,
        .phase = phase,
        .told = phase == YB_WIRE_PHASE_END ? node->told : 0,
        .tenant = yb_wire_text_of("default"),
        .items = {.native = items, .count = count},
    };
    size_t length;

    assert_int_equal(yb_wire_publication_encode(&body, out, 1u << 20, &length), YB_OK);
    return (uint32_t)length;
}

enum yb_status
stage_publish(struct stage_actor *node, const struct yb_wire_publish_item *item,
              struct yb_wire_grant_answer *answer_out)
{
    struct stage *stage = node->stage;
    uint8_t body[512];
    struct yb_wire_grants grants;
    uint32_t length =
        stage_encode_publication(node, ++node->sequence, YB_WIRE_PHASE_DELTA, item, 1, body);
    enum yb_status status = stage_ask(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);

    memset(answer_out, 0xff, sizeof(*answer_out));
    if (status == YB_OK) {
        assert_int_equal(yb_wire_grants_decode(stage->reply, stage->reply_bytes, &grants, NULL),
                         YB_OK);
        assert_int_equal(grants.grants.count, 1);
        yb_wire_grant_answer_at(&grants.grants, 0, answer_out);
    }
    return status;
}

enum yb_status
stage_phase(struct stage_actor *node, uint8_t phase)
{
    uint8_t body[512];
    uint32_t length = stage_encode_publication(node, ++node->sequence, phase, NULL, 0, body);

    return stage_ask(node, YB_WIRE_DIRECTORY_TYPE_PUBLISH, body, length);
}

uint64_t
stage_put(struct stage_actor *node, struct yb_id hash, uint64_t write, uint8_t replicas)
{
    struct yb_wire_publish_item item = stage_item(YB_WIRE_MODE_IF_ABSENT, hash, 0, write);
    struct yb_wire_grant_answer answer;

    item.replicas = replicas;
    assert_int_equal(stage_publish(node, &item, &answer), YB_OK);
    assert_int_equal(answer.status, YB_OK);
    assert_true(yb_grant_valid(answer.grant));
    return answer.grant;
}

/* ---- clients --------------------------------------------------------------------------------- */

struct yb_id
stage_hash(uint32_t number)
{
    static const uint8_t seed[YB_HASH_SEED_BYTES] = {1, 2, 3};

    return yb_hash_key(seed, (struct yb_hash_bytes){"default", 7},
                       (struct yb_hash_bytes){&number, sizeof(number)});
}

struct yb_wire_lookup_answer
stage_lookup(struct stage_actor *actor, struct yb_id hash)
{
    struct yb_wire_hash native = {.hash = hash};
    struct yb_wire_lookup body = {.hashes = {.native = &native, .count = 1}};
    struct yb_wire_lookup_answers answers;
    struct yb_wire_lookup_answer answer;
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_lookup_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(stage_ask(actor, YB_WIRE_DIRECTORY_TYPE_LOOKUP, bytes, (uint32_t)length),
                     YB_OK);
    assert_int_equal(yb_wire_lookup_answers_decode(actor->stage->reply, actor->stage->reply_bytes,
                                                   &answers, NULL),
                     YB_OK);
    assert_int_equal(answers.answers.count, 1);
    yb_wire_lookup_answer_at(&answers.answers, 0, &answer);
    return answer;
}

struct yb_wire_intent_answer
stage_intent(struct stage_actor *actor, uint8_t mode, struct yb_id hash, uint64_t write,
             uint32_t expected_us)
{
    struct yb_wire_intent native = {.hash = hash, .write = write};
    struct yb_wire_intents body = {
        .mode = mode,
        .expected_us = expected_us,
        .items = {.native = &native, .count = 1},
    };
    struct yb_wire_intent_answers answers;
    struct yb_wire_intent_answer answer;
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_intents_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(stage_ask(actor, YB_WIRE_DIRECTORY_TYPE_INTENT, bytes, (uint32_t)length),
                     YB_OK);
    assert_int_equal(yb_wire_intent_answers_decode(actor->stage->reply, actor->stage->reply_bytes,
                                                   &answers, NULL),
                     YB_OK);
    yb_wire_intent_answer_at(&answers.answers, 0, &answer);
    return answer;
}

struct stage_call *
stage_begin_remove(struct stage_actor *actor, struct yb_id hash, bool force)
{
    struct yb_wire_hash native = {.hash = hash};
    struct yb_wire_removal body = {
        .force = force ? 1 : 0,
        .hashes = {.native = &native, .count = 1},
    };
    uint8_t bytes[64];
    size_t length;

    assert_int_equal(yb_wire_removal_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    return stage_begin_call(actor, YB_WIRE_DIRECTORY_TYPE_REMOVE, bytes, (uint32_t)length);
}

enum yb_status
stage_removal(const uint8_t *body, uint32_t bytes)
{
    struct yb_wire_removed removed;
    struct yb_wire_removal_answer answer;

    assert_int_equal(yb_wire_removed_decode(body, bytes, &removed, NULL), YB_OK);
    assert_int_equal(removed.answers.count, 1);
    yb_wire_removal_answer_at(&removed.answers, 0, &answer);
    return (enum yb_status)answer.status;
}

enum yb_status
stage_remove(struct stage_actor *actor, struct yb_id hash, bool force)
{
    struct stage *stage = actor->stage;

    assert_int_equal(stage_end_call(stage, stage_begin_remove(actor, hash, force)), YB_OK);
    return stage_removal(stage->reply, stage->reply_bytes);
}

bool
stage_member(struct stage_actor *actor, uint16_t slot, struct yb_wire_member *member_out)
{
    struct yb_wire_members_question body = {.known = 0};
    struct yb_wire_members members;
    uint8_t bytes[8];
    size_t length;

    assert_int_equal(yb_wire_members_question_encode(&body, bytes, sizeof(bytes), &length), YB_OK);
    assert_int_equal(stage_ask(actor, YB_WIRE_DIRECTORY_TYPE_MEMBERS, bytes, (uint32_t)length),
                     YB_OK);
    assert_int_equal(
        yb_wire_members_decode(actor->stage->reply, actor->stage->reply_bytes, &members, NULL),
        YB_OK);
    for (uint32_t i = 0; i < members.members.count; i++) {
        yb_wire_member_at(&members.members, i, member_out);
        if (member_out->slot == slot) {
            return true;
        }
    }
    return false;
}

uint64_t
stage_stat(const struct stage *stage, enum yb_directory_stat stat)
{
    return yb_stats_counter(stage->stats, stage->directory->stats_first + (uint32_t)stat, 0, 0);
}
