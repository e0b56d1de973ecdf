/* SPDX-License-Identifier: Apache-2.0 */
#include "net/role.h"

#include <errno.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/log.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/timer.h"

#define ROLE_MAGIC 0x726f6c65u        /* "role" */
#define LOOK_NS    (2 * YB_NS_PER_MS) /* How often a role that ends is asked about it. */
#define END_NS     (5 * YB_NS_PER_S)

/* Fields are written before the worker starts, or by an order for which the caller waits. */
struct yb_role {
    uint32_t magic;
    struct yb_role_options options;
    struct yb_worker *worker;
    struct yb_net *net; /* The worker's; the server's list. */
    struct yb_replay *replay;
    struct yb_server *server;
    struct yb_address address;
    enum yb_status status;         /* Of the last order. */
    bool (*wanted)(void *context); /* What the caller waits for ... */
    void *wanted_context;
    uint64_t watch_until_ns; /* ... until when ... */
    bool reached;            /* ... and whether it came. */
    sem_t watched;
    struct yb_timer watch;
    char why[YB_ADDRESS_WHY_BYTES];
    bool begun;
    struct yb_timer pulse;
};

/* ---- orders, on the role's worker ----------------------------------------------------------- */

static void
order_listen(void *context)
{
    struct yb_role *role = context;
    const struct yb_server_options options = {
        .address = role->address,
        .insecure = role->options.insecure,
        .connections_max = role->options.connections_max,
        .unauthenticated_max = role->options.unauthenticated_max,
        .nets = &role->net,
        .net_count = 1,
    };

    role->status = yb_server_create(&options, &role->server, role->why);
    if (role->status == YB_OK) {
        role->address = yb_server_address(role->server); /* W1 */
    }
}

static void
on_pulse(struct yb_timer *timer)
{
    struct yb_role *role = (struct yb_role *)((uint8_t *)timer - offsetof(struct yb_role, pulse));
    struct yb_loop *loop = yb_worker_loop(role->worker);

    role->options.events->pulse(role->options.owner);
    yb_loop_arm(loop, timer, yb_loop_now(loop) + YB_ROLE_PULSE_NS);
}

static void
order_begin(void *context)
{
    struct yb_role *role = context;

    role->begun = true;
    yb_timer_init(&role->pulse, on_pulse);
    on_pulse(&role->pulse);
    role->status = role->options.events->begin(role->options.owner, role->net);
}

static void
order_close_port(void *context)
{
    struct yb_role *role = context;

    if (role->server != NULL) {
        yb_server_stop(role->server);
    }
    if (role->begun && role->options.events->leave != NULL) {
        role->options.events->leave(role->options.owner);
    }
    yb_net_drain(role->net);
}

static void
order_end(void *context)
{
    struct yb_role *role = context;

    if (role->server != NULL) {
        yb_server_stop(role->server);
    }
    if (role->begun) {
        yb_loop_disarm(yb_worker_loop(role->worker), &role->pulse);
        role->options.events->stop(role->options.owner);
    }
    yb_net_shut(role->net);
}

static void
order_destroy(void *context)
{
    struct yb_role *role = context;

    if (role->server != NULL) {
        yb_server_destroy(&role->server);
    }
    role->options.events->destroy(role->options.owner);
}

/* ---- waiting -------------------------------------------------------------------------------- */

/* Nothing tells when one of these becomes true, so the worker looks, until time is up. */
static void
on_watch(struct yb_timer *timer)
{
    struct yb_role *role = (struct yb_role *)((uint8_t *)timer - offsetof(struct yb_role, watch));
    struct yb_loop *loop = yb_worker_loop(role->worker);

    role->reached = role->wanted(role->wanted_context);
    if (role->reached || yb_loop_now(loop) >= role->watch_until_ns) {
        YB_ASSERT(sem_post(&role->watched) == 0);
    } else {
        yb_loop_arm(loop, timer, yb_deadline_after(yb_loop_now(loop), LOOK_NS));
    }
}

static void
order_watch(void *context)
{
    struct yb_role *role = context;

    yb_timer_init(&role->watch, on_watch);
    on_watch(&role->watch);
}

static bool
await(struct yb_role *role, bool (*wanted)(void *context), void *context, uint64_t limit_ns)
{
    role->wanted = wanted;
    role->wanted_context = context;
    role->watch_until_ns =
        yb_deadline_after(yb_clock_now(role->options.worker.loop.clock), limit_ns);
    YB_ASSERT(sem_init(&role->watched, 0, 0) == 0);
    yb_worker_run(role->worker, order_watch, role);
    while (sem_wait(&role->watched) != 0) {
        YB_ASSERT(errno == EINTR);
    }
    (void)sem_destroy(&role->watched);
    return role->reached;
}

bool
yb_role_await(struct yb_role *role, bool (*wanted)(void *owner), uint64_t limit_ns)
{
    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    return await(role, wanted, role->options.owner, limit_ns);
}

static bool
is_drained(void *context)
{
    const struct yb_role *role = context;

    /* What it asks others itself nobody waits for. */
    return yb_net_request_count(role->net) == 0 &&
           (role->server == NULL || yb_server_connection_count(role->server) == 0);
}

static bool
is_at_rest(void *context)
{
    struct yb_role *role = context;

    return yb_net_idle(role->net) &&
           (!role->begun || role->options.events->idle(role->options.owner)) &&
           (role->server == NULL || yb_server_connection_count(role->server) == 0);
}

/* ---- life ----------------------------------------------------------------------------------- */

enum yb_status
yb_role_create(const struct yb_role_options *options, struct yb_role **role_out)
{
    struct yb_role *role = calloc(1, sizeof(*role));
    struct yb_worker_options worker = options->worker;
    enum yb_status status;

    if (role == NULL) {
        return YB_NO_MEMORY;
    }
    role->magic = ROLE_MAGIC;
    role->options = *options;
    status = yb_replay_create(options->replay_records, options->replay_bytes, &role->replay);
    if (status == YB_OK) {
        worker.net.self = &role->options.self;
        worker.net.service = options->service;
        worker.net.replay = role->replay;
        status = yb_worker_create(&worker, &role->worker);
    }
    if (status != YB_OK) {
        yb_role_destroy(&role);
        return status;
    }
    role->net = yb_worker_net(role->worker);
    *role_out = role;
    return YB_OK;
}

enum yb_status
yb_role_listen(struct yb_role *role, const struct yb_address_list *candidates,
               char why_out[YB_ADDRESS_WHY_BYTES])
{
    enum yb_status status = YB_INVALID;

    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    YB_ASSERT(candidates->count > 0);
    for (uint32_t i = 0; i < candidates->count; i++) {
        role->address = candidates->items[i];
        yb_worker_run(role->worker, order_listen, role);
        status = role->status;
        if (status == YB_OK || status == YB_ADDRESS_IN_USE || status == YB_DENIED) {
            break;
        }
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_ADDRESS_WHY_BYTES, "%s", role->why);
    }
    return status;
}

enum yb_status
yb_role_begin(struct yb_role *role)
{
    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    YB_ASSERT(!role->begun);
    yb_worker_run(role->worker, order_begin, role);
    return role->status;
}

void
yb_role_close_port(struct yb_role *role)
{
    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    yb_worker_run(role->worker, order_close_port, role);
}

void
yb_role_drain(struct yb_role *role, uint64_t until_ns)
{
    uint64_t now_ns = yb_clock_now(role->options.worker.loop.clock);

    if (!await(role, is_drained, role, until_ns > now_ns ? until_ns - now_ns : 0)) {
        yb_log_warn(role->options.worker.net.log, "role", "requests were still running, aborting",
                    yb_log_str("role", role->options.name));
    }
}

void
yb_role_end(struct yb_role *role)
{
    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    yb_worker_run(role->worker, order_end, role);
    while (!await(role, is_at_rest, role, END_NS)) {
        yb_log_error(role->options.worker.net.log, "role", "a role does not come to rest",
                     yb_log_str("role", role->options.name));
    }
    yb_worker_run(role->worker, order_destroy, role);
}

void
yb_role_destroy(struct yb_role **role_ref)
{
    struct yb_role *role = *role_ref;

    *role_ref = NULL;
    YB_ASSERT_OBJ(role, ROLE_MAGIC);
    if (role->worker != NULL) {
        YB_ASSERT(role->server == NULL);
        yb_worker_destroy(&role->worker);
    }
    if (role->replay != NULL) {
        yb_replay_destroy(&role->replay);
    }
    role->magic = 0;
    free(role);
}

/* ---- what can be asked ---------------------------------------------------------------------- */

struct yb_address
yb_role_address(const struct yb_role *role)
{
    return role->address;
}

struct yb_worker *
yb_role_worker(const struct yb_role *role)
{
    return role->worker;
}

const struct yb_hello_self *
yb_role_self(const struct yb_role *role)
{
    return &role->options.self;
}
