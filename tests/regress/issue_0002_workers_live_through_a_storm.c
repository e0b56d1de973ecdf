/* SPDX-License-Identifier: Apache-2.0
 *
 * Several workers serve; several clients make and drop peers, call, cancel and give up, two of them
 * under one name, so that their connections fence each other across workers; requests are answered
 * by helper threads; and the server stops in the middle. Made for the thread sanitizer: what it
 * asserts is that everything ends and nothing is left.
 */
#include "unit.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "net/helper.h"
#include "net/peer.h"
#include "net/server.h"
#include "net/worker.h"

#define SERVER_WORKERS 3u
#define CLIENTS        3u
#define PEERS          4u
#define CALLS          8u
#define ROUNDS         2u
#define HANDLED_ENOUGH 500u
#define METHOD         100

struct storm;

struct client_call {
    struct yb_call call;
    struct client *client;
    uint32_t index;
    uint32_t made;
    uint8_t body[64];
    uint8_t reply[64];
};

struct client {
    struct storm *storm;
    struct yb_worker *worker;
    struct yb_hello_self self;
    uint64_t random;
    struct yb_peer *peers[PEERS];
    struct client_call calls[CALLS];
    uint32_t running;
    bool ending;
    _Atomic(bool) ended;
};

struct storm {
    struct yb_worker *workers[SERVER_WORKERS];
    struct yb_net *nets[SERVER_WORKERS];
    struct yb_hello_self self;
    struct yb_server *server;
    struct yb_address address;
    struct yb_helper_pool *pool;
    struct yb_service service;
    _Atomic(uint32_t) handled;
    _Atomic(bool) stopping;
    struct client clients[CLIENTS];
};

/* ---- the service: a helper works, and the reply comes home by mail --------------------------- */

struct job {
    struct yb_helper_job job;
    struct yb_request *request;
    uint32_t sum;
    uint32_t length;
    uint8_t body[64];
};

static void
work(struct yb_helper_job *helper_job)
{
    struct job *job = (struct job *)helper_job;

    for (uint32_t i = 0; i < job->length; i++) {
        job->sum += job->body[i];
    }
}

static void
worked(struct yb_helper_job *helper_job)
{
    struct job *job = (struct job *)helper_job;

    yb_request_reply(job->request, YB_OK, &job->sum, sizeof(job->sum), NULL, 0);
    free(job);
}

static void
handle(void *owner, struct yb_request *request)
{
    struct storm *storm = owner;
    struct job *job = calloc(1, sizeof(*job));

    assert_non_null(job);
    atomic_fetch_add(&storm->handled, 1);
    job->job.work = work;
    job->job.done = worked;
    job->request = request;
    job->length = request->body_bytes;
    memcpy(job->body, request->body, request->body_bytes);
    if (yb_helper_submit(storm->pool, yb_net_loop(yb_request_net(request)), &job->job) != YB_OK) {
        free(job);
        yb_request_reply(request, YB_AGAIN, NULL, 0, NULL, 0);
    }
}

static const struct yb_method methods[] = {{
    .type = METHOD,
    .name = "sum",
    .roles = YB_ROLE_ANY,
    .body_bytes_max = 64,
    .handle = handle,
}};

/* ---- a client: everything on its worker's thread --------------------------------------------- */

static void next_call(struct client_call *mine);

static void
call_done(struct yb_call *call)
{
    struct client_call *mine = call->owner;
    struct client *client = mine->client;
    uint32_t peer = mine->index % PEERS;

    if (call->answered && call->status == YB_OK) {
        uint32_t sum = 0;

        memcpy(&sum, mine->reply, sizeof(sum));
        assert_int_equal(sum, mine->index * sizeof(mine->body));
    }
    if (!client->ending && mine->made % 7 == 3 && client->peers[peer] != NULL) {
        yb_peer_destroy(&client->peers[peer]); /* Runs this for the other calls of the peer. */
    }
    next_call(mine);
}

static void
next_call(struct client_call *mine)
{
    struct client *client = mine->client;
    uint32_t which = mine->index % PEERS;
    const struct yb_id nobody = {{0}};
    struct yb_address_list list = {.count = 1};

    if (client->ending || atomic_load(&client->storm->stopping)) {
        if (--client->running == 0) {
            atomic_store(&client->ended, true);
        }
        return;
    }
    if (client->peers[which] == NULL) {
        list.items[0] = client->storm->address;
        assert_int_equal(
            yb_peer_create(yb_worker_net(client->worker), &list, nobody, &client->peers[which]),
            YB_OK);
    }
    mine->made++;
    mine->call = (struct yb_call){
        .type = METHOD,
        .class = (enum yb_class)(unit_random(&client->random) % YB_CLASS_COUNT),
        .lane = (enum yb_wire_lane)(unit_random(&client->random) % 2),
        .deadline_ns = yb_loop_now(yb_worker_loop(client->worker)) + 200 * YB_NS_PER_MS,
        .body = mine->body,
        .body_bytes = sizeof(mine->body),
        .reply_body = mine->reply,
        .reply_body_room = sizeof(mine->reply),
        .done = call_done,
        .owner = mine,
    };
    assert_int_equal(yb_peer_call(client->peers[which], &mine->call), YB_OK);
    if (unit_random(&client->random) % 8 == 0) {
        yb_peer_cancel(client->peers[which], &mine->call);
    }
}

static void
start_calls(void *context)
{
    struct client *client = context;

    client->running = CALLS;
    for (uint32_t i = 0; i < CALLS; i++) {
        client->calls[i].client = client;
        client->calls[i].index = i;
        memset(client->calls[i].body, (int)i, sizeof(client->calls[i].body));
        next_call(&client->calls[i]);
    }
}

static void
end_calls(void *context)
{
    struct client *client = context;

    client->ending = true;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (client->peers[i] != NULL) {
            yb_peer_destroy(&client->peers[i]);
        }
    }
}

/* ---- the servers ---------------------------------------------------------------------------- */

static void
start_server(void *context)
{
    struct storm *storm = context;
    struct yb_server_options options = {
        .connections_max = 40,
        .unauthenticated_max = 16,
        .nets = storm->nets,
        .net_count = SERVER_WORKERS,
    };
    char why[YB_ADDRESS_WHY_BYTES];

    assert_int_equal(yb_address_parse("127.0.0.1:0", 0, &options.address, why), YB_OK);
    assert_int_equal(yb_server_create(&options, &storm->server, why), YB_OK);
    storm->address = yb_server_address(storm->server);
}

static void
stop_server(void *context)
{
    struct storm *storm = context;

    yb_server_stop(storm->server);
}

static void
destroy_server(void *context)
{
    struct storm *storm = context;

    yb_server_destroy(&storm->server);
}

static void
shut(void *context)
{
    yb_net_shut(context);
}

struct question {
    struct yb_net *net;
    bool idle;
};

static void
ask_idle(void *context)
{
    struct question *question = context;

    question->idle = yb_net_idle(question->net);
}

static bool
all_idle(struct storm *storm)
{
    bool idle = yb_server_connection_count(storm->server) == 0;

    for (uint32_t i = 0; i < SERVER_WORKERS; i++) {
        struct question question = {.net = storm->nets[i]};

        yb_worker_run(storm->workers[i], shut, storm->nets[i]);
        yb_worker_run(storm->workers[i], ask_idle, &question);
        idle = idle && question.idle;
    }
    return idle;
}

static struct yb_hello_self
self_of(uint8_t number)
{
    return (struct yb_hello_self){
        .identity = {{number}},
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_NODE,
        .tenant = "",
        .credit_requests = 4,
        .credit_bytes = 1u << 20,
        .body_bytes_max = 1u << 16,
        .data_bytes_max = 1u << 20,
        .ping_interval_ms = 15000,
        .software = "storm",
        .port_name = "the storm's port",
    };
}

static void
make_worker(const struct yb_hello_self *self, const struct yb_service *service, const char *backend,
            struct yb_worker **worker_out)
{
    struct yb_worker_options options = {
        .loop = {.backend = backend, .clock = yb_clock_system()},
        .net = {.self = self, .service = service, .random = yb_net_random_system},
    };

    yb_net_limits_default(&options.net.limits);
    assert_int_equal(yb_worker_create(&options, worker_out), YB_OK);
}

static void
start(struct storm *storm, const char *backend, uint64_t seed)
{
    memset(storm, 0, sizeof(*storm));
    storm->service = (struct yb_service){.methods = methods, .method_count = 1, .owner = storm};
    storm->self = self_of(1);
    assert_int_equal(yb_helper_pool_create(2, 64, &storm->pool), YB_OK);
    for (uint32_t i = 0; i < SERVER_WORKERS; i++) {
        make_worker(&storm->self, &storm->service, backend, &storm->workers[i]);
        storm->nets[i] = yb_worker_net(storm->workers[i]);
    }
    yb_worker_run(storm->workers[0], start_server, storm);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct client *client = &storm->clients[i];

        client->storm = storm;
        client->random = seed + i;
        client->self = self_of(i < 2 ? 7 : (uint8_t)(7 + i)); /* Two of them are one. */
        make_worker(&client->self, NULL, backend, &client->worker);
        yb_worker_run(client->worker, start_calls, client);
    }
}

static void
finish(struct storm *storm)
{
    yb_worker_run(storm->workers[0], stop_server, storm);
    while (!all_idle(storm)) {
        (void)sched_yield();
    }
    atomic_store(&storm->stopping, true);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        yb_worker_run(storm->clients[i].worker, end_calls, &storm->clients[i]);
        while (!atomic_load(&storm->clients[i].ended)) {
            (void)sched_yield();
        }
        yb_worker_destroy(&storm->clients[i].worker);
    }
    while (!all_idle(storm)) {
        (void)sched_yield();
    }
    yb_worker_run(storm->workers[0], destroy_server, storm);
    yb_helper_pool_destroy(&storm->pool);
    for (uint32_t i = 0; i < SERVER_WORKERS; i++) {
        yb_worker_destroy(&storm->workers[i]);
    }
}

static void
run(const char *backend)
{
    uint64_t seed = unit_seed(backend);
    struct storm *storm = malloc(sizeof(*storm));
    struct yb_io *io = NULL;

    assert_non_null(storm);
    if (yb_io_create(backend, yb_clock_system(), &io) != YB_OK) {
        free(storm);
        skip();
    }
    yb_io_destroy(&io);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        start(storm, backend, seed + round * CLIENTS);
        while (atomic_load(&storm->handled) < HANDLED_ENOUGH) {
            (void)sched_yield();
        }
        finish(storm);
    }
    free(storm);
}

static void
test_regress__workers_on_epoll_end_in_order(void **state)
{
    (void)state;
    run("epoll");
}

static void
test_regress__workers_on_io_uring_end_in_order(void **state)
{
    (void)state;
    run("io_uring");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regress__workers_on_epoll_end_in_order),
        cmocka_unit_test(test_regress__workers_on_io_uring_end_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
