/* SPDX-License-Identifier: Apache-2.0
 *
 * Our half of `yuebing bench net`: the same bytes through peers, frames and services.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/stats.h"
#include "cli/bench.h"
#include "cli/measure.h"
#include "net/conn.h"
#include "net/peer.h"
#include "net/server.h"

#define CALL_TIMEOUT_NS (10 * YB_NS_PER_S)

/* One end: a loop and what stands on it. */
struct side {
    struct yb_loop *loop;
    struct yb_stats *stats;
    struct yb_net *net;
    struct yb_auth *auth;
    struct yb_hello_self self;
};

static bool
complain(const char *what, enum yb_status status)
{
    fprintf(stderr, "bench: %s: %s\n", what, yb_status_text(status));
    return false;
}

static const char *
backend_name(const struct yb_config *config)
{
    switch (config->net_io) {
    case YB_CONFIG_NET_IO_EPOLL: return "epoll";
    case YB_CONFIG_NET_IO_IO_URING: return "io_uring";
    default: return "auto";
    }
}

/* The secret of a run: made up by the parent before it forks, never written down. */
static bool
side_auth(struct side *side, const char *secret)
{
    char why[256];
    enum yb_status status =
        yb_auth_parse("bench", secret, strlen(secret), &side->auth, why, sizeof(why));

    return status == YB_OK ? true : complain(why, status);
}

static bool
side_open(struct side *side, const struct yb_config *config)
{
    static const char secret[] = "secret one-secret-for-the-two-processes-of-a-benchmark\n";
    struct yb_loop_options loop_options = {
        .backend = backend_name(config),
        .clock = yb_clock_system(),
        .spin_us = config->net_spin_us,
    };
    struct yb_net_options options = {.random = yb_net_random_system};
    enum yb_status status;

    memset(side, 0, sizeof(*side));
    if (!side_auth(side, secret)) {
        return false;
    }
    status = yb_loop_create(&loop_options, &side->loop);
    if (status != YB_OK) {
        return complain("event loop", status);
    }
    status = yb_stats_create(&side->stats);
    if (status != YB_OK) {
        return complain("statistics", status);
    }
    side->self = (struct yb_hello_self){
        .incarnation = 1,
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_CLIENT,
        .tenant = "bench",
        .auth = side->auth,
        .credit_requests = config->net_request_credits,
        .credit_bytes = config->net_byte_credits,
        .body_bytes_max = (uint32_t)config->net_body_bytes_max,
        .data_bytes_max = config->net_data_bytes_max,
        .ping_interval_ms = (uint32_t)config->net_idle_ping_ms,
        .software = "yuebing bench",
        .port_name = "yuebing bench",
    };
    yb_net_random_system(NULL, side->self.identity.bytes, sizeof(side->self.identity.bytes));
    options.loop = side->loop;
    options.self = &side->self;
    options.stats = side->stats;
    options.stream.congestion =
        strcmp(config->net_congestion, "system") == 0 ? NULL : config->net_congestion;
    options.stream.unsent_bytes_max = (uint32_t)config->net_unsent_bytes_max;
    yb_net_limits_default(&options.limits);
    status = yb_net_create(&options, &side->net);
    return status == YB_OK ? true : complain("net", status);
}

static void
side_close(struct side *side)
{
    if (side->net != NULL) {
        yb_net_shut(side->net);
        while (!yb_net_idle(side->net)) {
            yb_loop_turn(side->loop, YB_NS_PER_MS);
        }
        yb_net_destroy(&side->net);
    }
    if (side->loop != NULL) {
        yb_loop_destroy(&side->loop);
    }
    if (side->stats != NULL) {
        yb_stats_destroy(&side->stats);
    }
    if (side->auth != NULL) {
        yb_auth_destroy(&side->auth);
    }
}

/* ---- server ------------------------------------------------------------------------------ */

static void
serve(const struct yb_config *config, int ready_fd)
{
    struct side side;
    struct yb_server *server = NULL;
    struct yb_server_options options = {
        .connections_max = config->net_connections_max,
        .unauthenticated_max = config->net_unauthenticated_max,
        .nets = &side.net,
        .net_count = 1,
    };
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];

    if (!side_open(&side, config) ||
        yb_address_parse("127.0.0.1:0", 0, &options.address, why) != YB_OK ||
        yb_server_create(&options, &server, why) != YB_OK) {
        _exit(1);
    }
    address = yb_server_address(server);
    if (write(ready_fd, &address, sizeof(address)) != (ssize_t)sizeof(address)) {
        _exit(1);
    }
    yb_loop_run(side.loop);
    _exit(0);
}

bool
yb_bench_net_start(const struct yb_config *config, struct yb_bench_server *server_out)
{
    int ready[2];
    pid_t pid;

    if (pipe(ready) != 0) {
        return complain("pipe", YB_NO_MEMORY);
    }
    pid = fork();
    if (pid < 0) {
        return complain("fork", YB_NO_MEMORY);
    }
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        serve(config, ready[1]);
    }
    (void)close(ready[1]);
    server_out->pid = pid;
    if (read(ready[0], &server_out->address, sizeof(server_out->address)) !=
        (ssize_t)sizeof(server_out->address)) {
        (void)close(ready[0]);
        yb_bench_stop(server_out);
        return complain("the server did not start", YB_CLOSED);
    }
    (void)close(ready[0]);
    return true;
}

/* ---- client ------------------------------------------------------------------------------ */

struct line;

struct flight {
    struct yb_call call;
    struct line *line;
    uint8_t *reply;
};

struct line {
    struct client *client;
    struct yb_peer *peer;
    uint32_t missing; /* Answers of the round that have not come. */
    bool heard;       /* A whole round of them has come. */
    uint64_t sent_ns;
    struct flight flights[YB_BENCH_DEPTH_MAX];
};

struct client {
    struct side side;
    const struct yb_bench_load *load;
    uint8_t *body;
    uint8_t *replies;
    bool failed;
    bool stopping;
    struct yb_histogram histogram;
    uint64_t rounds;
    uint32_t heard; /* Lines that have. */
    struct line lines[YB_BENCH_CONNS_MAX];
};

static void send_round(struct line *line);

static void
on_done(struct yb_call *call)
{
    struct flight *flight = call->owner;
    struct line *line = flight->line;
    struct client *client = line->client;

    if (call->status != YB_OK || !call->answered) {
        if (!client->failed && !client->stopping) {
            (void)complain(yb_peer_error(line->peer), call->status);
        }
        client->failed = client->failed || !client->stopping;
        return;
    }
    if (--line->missing > 0) {
        return;
    }
    yb_histogram_record(&client->histogram, yb_measure_now_ns() - line->sent_ns);
    client->rounds++;
    client->heard += !line->heard;
    line->heard = true;
    if (!client->stopping) {
        send_round(line);
    }
}

static void
send_round(struct line *line)
{
    struct client *client = line->client;
    uint64_t deadline_ns = yb_loop_now(client->side.loop) + CALL_TIMEOUT_NS;

    line->missing = client->load->depth;
    line->sent_ns = yb_measure_now_ns();
    for (uint32_t i = 0; i < client->load->depth; i++) {
        struct flight *flight = &line->flights[i];
        enum yb_status status;

        flight->call.deadline_ns = deadline_ns;
        status = yb_peer_call(line->peer, &flight->call);
        if (status != YB_OK) {
            client->failed = true;
            (void)complain("call", status);
        }
    }
}

static bool
open_lines(struct client *client, const struct yb_bench_server *server)
{
    const struct yb_bench_load *load = client->load;
    struct yb_address_list addresses = {.count = 1, .items = {server->address}};
    static const struct yb_id anybody;

    for (uint32_t i = 0; i < load->conns; i++) {
        struct line *line = &client->lines[i];
        enum yb_status status;

        line->client = client;
        status = yb_peer_create(client->side.net, &addresses, anybody, &line->peer);
        if (status != YB_OK) {
            return complain("peer", status);
        }
        yb_peer_set_stripe(line->peer, (uint8_t)i);
        for (uint32_t k = 0; k < load->depth; k++) {
            struct flight *flight = &line->flights[k];

            flight->line = line;
            flight->reply = client->replies + (size_t)(i * load->depth + k) * load->bytes;
            flight->call = (struct yb_call){
                .type = YB_WIRE_TYPE_ECHO,
                .class = YB_CLASS_FIRST_TOKEN,
                .body = client->body,
                .body_bytes = load->bytes,
                .reply_body = flight->reply,
                .reply_body_room = load->bytes,
                .done = on_done,
                .owner = flight,
            };
        }
    }
    return true;
}

/* Check the bytes of each line's last whole round: an answer that is fast and wrong is worth
 * nothing. */
static bool
check_bytes(const struct client *client)
{
    const struct yb_bench_load *load = client->load;

    for (size_t i = 0; i < (size_t)load->conns * load->depth; i++) {
        if (memcmp(client->replies + i * load->bytes, client->body, load->bytes) != 0) {
            fprintf(stderr, "bench: a reply differs from its request\n");
            return false;
        }
    }
    return true;
}

static bool
run_lines(struct client *client, struct yb_bench_result *result_out)
{
    uint64_t began_ns = yb_measure_now_ns();
    uint64_t until_ns = began_ns + client->load->run_ns;

    for (uint32_t i = 0; i < client->load->conns; i++) {
        send_round(&client->lines[i]);
    }
    while (!client->failed &&
           (yb_measure_now_ns() < until_ns || client->heard < client->load->conns)) {
        yb_loop_turn(client->side.loop, YB_NS_PER_S);
    }
    result_out->per_second = (double)client->rounds * client->load->depth * 1e9 /
                             (double)(yb_measure_now_ns() - began_ns);
    result_out->p50_ns = yb_histogram_quantile(&client->histogram, 0.50);
    result_out->p99_ns = yb_histogram_quantile(&client->histogram, 0.99);
    return !client->failed && check_bytes(client);
}

bool
yb_bench_net_run(const struct yb_config *config, const struct yb_bench_server *server,
                 const struct yb_bench_load *load, struct yb_bench_result *result_out)
{
    struct client *client = calloc(1, sizeof(*client));
    size_t replies = (size_t)load->conns * load->depth * load->bytes;
    bool ok = false;

    if (client == NULL || (client->body = malloc(load->bytes)) == NULL ||
        (client->replies = calloc(1, replies)) == NULL) {
        ok = complain("memory", YB_NO_MEMORY);
    } else {
        client->load = load;
        yb_histogram_reset(&client->histogram);
        yb_net_random_system(NULL, client->body, load->bytes);
        ok = side_open(&client->side, config) && open_lines(client, server) &&
             run_lines(client, result_out);
        client->stopping = true;
        for (uint32_t i = 0; i < load->conns; i++) {
            if (client->lines[i].peer != NULL) {
                yb_peer_destroy(&client->lines[i].peer);
            }
        }
        side_close(&client->side);
    }
    if (client != NULL) {
        free(client->body);
        free(client->replies);
    }
    free(client);
    return ok;
}

/* ---- handshakes ---------------------------------------------------------------------------- */

struct visit {
    bool open;
    bool closed;
};

static void
on_open(void *owner, struct yb_conn *conn)
{
    struct visit *visit = owner;

    (void)conn;
    visit->open = true;
}

static void
on_closed(void *owner, struct yb_conn *conn, const struct yb_conn_end *end)
{
    struct visit *visit = owner;

    (void)conn;
    (void)end;
    visit->closed = true;
}

static const struct yb_conn_events visit_events = {.on_open = on_open, .on_closed = on_closed};

/* Connect, finish the handshake, close. */
static bool
visit_once(struct side *side, const struct yb_bench_server *server)
{
    const struct yb_conn_target target = {.address = server->address};
    struct visit visit = {0};
    struct yb_conn *conn = NULL;
    enum yb_status status = yb_conn_connect(side->net, &target, &visit_events, &visit, &conn);

    if (status != YB_OK) {
        return complain("connect", status);
    }
    while (!visit.open && !visit.closed) {
        yb_loop_turn(side->loop, YB_NS_PER_S);
    }
    if (visit.open) {
        yb_conn_close(conn, YB_CLOSED, "enough");
    }
    while (!visit.closed) {
        yb_loop_turn(side->loop, YB_NS_PER_S);
    }
    return visit.open ? true : complain("handshake", YB_PEER_LOST);
}

bool
yb_bench_net_connects(const struct yb_config *config, const struct yb_bench_server *server,
                      uint64_t run_ns, struct yb_bench_result *result_out)
{
    struct side side;
    uint64_t began_ns;
    uint64_t count = 0;
    bool ok;

    ok = side_open(&side, config);
    began_ns = yb_measure_now_ns();
    while (ok && yb_measure_now_ns() - began_ns < run_ns) {
        ok = visit_once(&side, server);
        count++;
    }
    result_out->per_second = (double)count * 1e9 / (double)(yb_measure_now_ns() - began_ns);
    side_close(&side);
    return ok;
}

/* ---- idle connections ---------------------------------------------------------------------- */

static bool
open_many(struct side *side, const struct yb_bench_server *server, struct visit *visits,
          uint32_t conns)
{
    const struct yb_conn_target target = {.address = server->address};

    for (uint32_t i = 0; i < conns; i++) {
        struct yb_conn *conn = NULL;
        enum yb_status status;

        /* Each as another process, or a newer one would take the place of the older. */
        yb_net_random_system(NULL, side->self.identity.bytes, sizeof(side->self.identity.bytes));
        status = yb_conn_connect(side->net, &target, &visit_events, &visits[i], &conn);

        if (status != YB_OK) {
            return complain("connect", status);
        }
        while (!visits[i].open && !visits[i].closed) {
            yb_loop_turn(side->loop, YB_NS_PER_S);
        }
        if (!visits[i].open) {
            return complain("handshake", YB_PEER_LOST);
        }
    }
    return true;
}

bool
yb_bench_net_idle(const struct yb_config *config, const struct yb_bench_server *server,
                  uint32_t conns, uint64_t run_ns, struct yb_bench_idle *idle_out)
{
    struct side side;
    struct visit *visits = calloc(2 * (size_t)conns, sizeof(*visits));
    bool ok;

    ok = visits != NULL && side_open(&side, config);
    if (ok) {
        double server_bytes;
        double client_bytes;

        /* As many again come first: they fill what earlier work left free in the heap. */
        ok = open_many(&side, server, visits + conns, conns);
        server_bytes = (double)yb_measure_resident_bytes(server->pid);
        client_bytes = (double)yb_measure_resident_bytes(getpid());
        ok = ok && open_many(&side, server, visits, conns);
        if (ok) {
            double server_cpu = (double)yb_measure_cpu_ns(server->pid);
            double client_cpu = (double)yb_measure_cpu_ns(getpid());
            uint64_t began_ns = yb_measure_now_ns();

            while (yb_measure_now_ns() - began_ns < run_ns) {
                yb_loop_turn(side.loop, began_ns + run_ns - yb_measure_now_ns());
            }
            idle_out->server_bytes =
                ((double)yb_measure_resident_bytes(server->pid) - server_bytes) / conns;
            idle_out->client_bytes =
                ((double)yb_measure_resident_bytes(getpid()) - client_bytes) / conns;
            idle_out->server_cpu =
                ((double)yb_measure_cpu_ns(server->pid) - server_cpu) / (double)run_ns;
            idle_out->client_cpu =
                ((double)yb_measure_cpu_ns(getpid()) - client_cpu) / (double)run_ns;
        }
        side_close(&side);
    }
    free(visits);
    return ok;
}
