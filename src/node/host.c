/* SPDX-License-Identifier: Apache-2.0 */
#include "node/host.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/lock.h"
#include "net/loop.h"
#include "net/role.h"
#include "node/node_internal.h"
#include "transfer/near.h"

#define HOST_MAGIC 0x686f7374u /* "host" */

/* Fields above the line are written before the worker starts or while the caller waits; those
 * below by the worker at every pulse. */
struct yb_node_host {
    uint32_t magic;
    struct yb_role *role;
    struct yb_worker *heart; /* Heartbeats, and nothing else. */
    struct yb_node *node;
    struct yb_transfer *engine; /* Under the node's identity. */
    char engine_address[YB_ADDRESS_TEXT_BYTES];
    struct yb_id identity;
    struct yb_address address;
    char name[YB_NODE_NAME_BYTES];
    const struct yb_clock *clock;
    struct yb_call order; /* To the directory, about this node. */
    bool ordering;        /* It is under way. */
    bool draining;        /* What it says ... */
    uint64_t order_until_ns;
    enum yb_status ordered; /* ... and how it ended. */
    uint64_t unsettled;     /* Blocks that lie nowhere below memory, when it stops. */
    struct yb_log *log;
    uint8_t order_body[YB_WIRE_STATE_ORDER_BYTES_MAX];
    /* ---- */
    _Atomic uint64_t turned_ns;
    _Atomic uint64_t incarnation;
    _Atomic uint64_t lease_until_ns;
    _Atomic uint64_t capacity;
    _Atomic uint64_t live;
    _Atomic uint64_t blocks;
    _Atomic uint8_t state;
    struct yb_lock lock; /* Of what follows. */
    struct yb_node_tier_info tiers[YB_NODE_TIERS_MAX];
    uint32_t tier_count;
};

/* ---- events of the role, on its worker ------------------------------------------------------- */

static enum yb_status
on_begin(void *owner, struct yb_net *net)
{
    struct yb_node_host *host = owner;

    return yb_node_start(host->node, net, yb_worker_net(host->heart));
}

static void
on_pulse(void *owner)
{
    struct yb_node_host *host = owner;
    struct yb_node_info info;

    yb_node_info(host->node, &info);
    atomic_store(&host->incarnation, info.incarnation);
    atomic_store(&host->lease_until_ns, info.lease_until_ns);
    atomic_store(&host->capacity, info.capacity);
    atomic_store(&host->live, info.live);
    atomic_store(&host->blocks, info.blocks);
    atomic_store(&host->state, info.state);
    yb_lock_acquire(&host->lock);
    host->tier_count = yb_node_tier_infos(host->node, host->tiers);
    yb_lock_release(&host->lock);
    atomic_store(&host->turned_ns, yb_clock_now(host->clock));
}

static void
on_leave(void *owner)
{
    struct yb_node_host *host = owner;

    yb_node_leave(host->node);
}

static void
on_stop(void *owner)
{
    struct yb_node_host *host = owner;

    yb_node_stop(host->node);
}

static bool
on_idle(void *owner)
{
    struct yb_node_host *host = owner;

    return yb_node_idle(host->node) && !host->ordering;
}

static void
on_destroy(void *owner)
{
    struct yb_node_host *host = owner;

    yb_node_destroy(&host->node);
}

static const struct yb_role_events role_events = {
    .begin = on_begin,
    .pulse = on_pulse,
    .leave = on_leave,
    .stop = on_stop,
    .idle = on_idle,
    .destroy = on_destroy,
};

static bool
is_registered(void *owner)
{
    struct yb_node_host *host = owner;

    on_pulse(host);
    return atomic_load(&host->incarnation) != 0;
}

/* ---- orders about itself, on its worker ------------------------------------------------------ */

static void
on_ordered(struct yb_call *call)
{
    struct yb_node_host *host = call->owner;

    host->ordering = false;
    host->ordered = call->status;
}

static void
order_state(void *context)
{
    struct yb_node_host *host = context;
    const struct yb_wire_state_order order = {
        .state = host->draining ? YB_WIRE_SLOT_STATE_DRAINING : YB_WIRE_SLOT_STATE_SERVING,
        .name = yb_wire_text_of(host->name),
    };
    struct yb_peer *directory = yb_member_directory(host->node->member);
    size_t length = 0;

    host->ordered =
        yb_wire_state_order_encode(&order, host->order_body, sizeof(host->order_body), &length);
    if (host->ordered != YB_OK || directory == NULL) {
        host->ordered = host->ordered != YB_OK ? host->ordered : YB_CLOSED;
        return;
    }
    host->order = (struct yb_call){
        .type = YB_WIRE_DIRECTORY_TYPE_SET_STATE,
        .class = YB_CLASS_FIRST_TOKEN,
        .lane = YB_WIRE_LANE_CONTROL,
        .deadline_ns = host->order_until_ns,
        .mutates = true,
        .body = host->order_body,
        .body_bytes = (uint32_t)length,
        .done = on_ordered,
        .owner = host,
    };
    host->ordered = yb_peer_call(directory, &host->order);
    host->ordering = host->ordered == YB_OK;
}

static bool
is_ordered(void *owner)
{
    struct yb_node_host *host = owner;

    return !host->ordering;
}

static bool
is_empty(void *owner)
{
    struct yb_node_host *host = owner;
    struct yb_node_info info;

    yb_node_info(host->node, &info);
    return info.blocks == 0 && info.below == 0 && info.in_flight == 0 && info.ungranted == 0;
}

/* ---- what it is made of ---------------------------------------------------------------------- */

/* The node's engine listens beside it, on any free port. */
static enum yb_status
create_engine(struct yb_node_host *host, const struct yb_node_host_options *options, char *why_out,
              size_t why_bytes)
{
    struct yb_address address = options->listen.items[0];
    char text[YB_ADDRESS_TEXT_BYTES];
    const struct yb_transfer_options engine = {
        .struct_bytes = sizeof(engine),
        .listen = text,
        .secret_file = options->secret_file,
        .role = "node",
        .insecure = options->insecure,
        .tls = options->tls,
    };
    const struct yb_transfer_self self = {
        .identity = host->identity,
        .spans = options->worker.net.spans,
        .stats = options->worker.net.stats,
    };
    enum yb_status status;

    address.port = 0;
    yb_address_format(&address, text);
    status = yb_transfer_create_as(&engine, self, &host->engine, why_out, why_bytes);
    if (status == YB_OK) {
        status =
            yb_transfer_address(host->engine, host->engine_address, sizeof(host->engine_address));
    }
    return status;
}

static bool
watch_process(void *context, struct yb_id identity, bool begin)
{
    struct yb_node_host *host = context;

    if (begin) {
        return yb_transfer_process_watch(host->engine, identity) == YB_OK;
    }
    yb_transfer_process_unwatch(host->engine, identity);
    return true;
}

static bool
is_gone(void *context, struct yb_id identity)
{
    struct yb_node_host *host = context;

    return yb_transfer_process_gone(host->engine, identity);
}

static enum yb_status
create_node(struct yb_node_host *host, const struct yb_node_host_options *options, char *why_out,
            size_t why_bytes)
{
    struct yb_node_options node = options->node;

    node.address = NULL;
    node.engine = host->engine;
    node.engine_address = host->engine_address;
    node.watch = watch_process;
    node.gone = is_gone;
    node.gone_context = host;
    return yb_node_create(&node, &host->node, why_out, why_bytes);
}

static enum yb_status
create_workers(struct yb_node_host *host, const struct yb_node_host_options *options)
{
    struct yb_role_options role = {
        .name = host->name,
        .self = *options->self,
        .worker = options->worker,
        .service = yb_node_service(host->node),
        .replay_records = options->replay_records,
        .replay_bytes = options->replay_bytes,
        .insecure = options->insecure,
        .connections_max = options->connections_max,
        .unauthenticated_max = options->unauthenticated_max,
        .events = &role_events,
        .owner = host,
    };
    struct yb_worker_options heart = options->worker;
    enum yb_status status;

    role.self.role = YB_WIRE_ROLE_NODE;
    role.self.tenant = "";
    role.self.identity = host->identity;
    status = yb_role_create(&role, &host->role);
    if (status != YB_OK) {
        return status;
    }
    heart.net.self = yb_role_self(host->role);
    heart.net.service = NULL;
    heart.net.replay = NULL;
    heart.loop.spin_us = 0; /* It sleeps between beats. */
    heart.before_others = true;
    return yb_worker_create(&heart, &host->heart);
}

/* ---- its port -------------------------------------------------------------------------------- */

static enum yb_status
listen_in_range(struct yb_node_host *host, const struct yb_node_host_options *options,
                char why_out[YB_ADDRESS_WHY_BYTES])
{
    uint32_t span = (uint32_t)options->port_max - options->port_min + 1;
    enum yb_status status = YB_ADDRESS_IN_USE;
    uint32_t start;

    options->node.random(options->node.random_context, &start, sizeof(start));
    for (uint32_t i = 0; i < options->port_tries && status == YB_ADDRESS_IN_USE; i++) {
        struct yb_address_list list = options->listen;

        for (uint32_t j = 0; j < list.count; j++) {
            list.items[j].port = (uint16_t)(options->port_min + (start + i) % span);
        }
        status = yb_role_listen(host->role, &list, why_out);
    }
    return status;
}

static enum yb_status
take_port(struct yb_node_host *host, const struct yb_node_host_options *options, char *why_out,
          size_t why_bytes)
{
    bool ranged = options->listen.items[0].port == 0 && options->port_max > 0;
    size_t length = strlen(host->name);
    char why[YB_ADDRESS_WHY_BYTES] = "";
    char text[YB_ADDRESS_TEXT_BYTES];
    enum yb_status status = ranged ? listen_in_range(host, options, why)
                                   : yb_role_listen(host->role, &options->listen, why);

    if (status != YB_OK) {
        (void)snprintf(why_out, why_bytes, "%s", why);
        return status;
    }
    host->address = yb_role_address(host->role);
    if (yb_address_is_wildcard(&host->address)) {
        (void)snprintf(why_out, why_bytes,
                       "node.listen: others must know where to find a node: give the address of an "
                       "interface instead of a wildcard");
        return YB_INVALID;
    }
    yb_address_format(&host->address, text);
    yb_node_set_address(host->node, text);
    if (host->name[length - 1] == ':') {
        (void)snprintf(host->name + length, sizeof(host->name) - length, "%u", host->address.port);
        yb_node_set_name(host->node, host->name);
    }
    return YB_OK;
}

/* ---- life ------------------------------------------------------------------------------------ */

enum yb_status
yb_node_host_open(const struct yb_node_host_options *options, struct yb_node_host **host_out,
                  char *why_out, size_t why_bytes)
{
    struct yb_node_host *host = calloc(1, sizeof(*host));
    size_t length = strlen(options->node.name);
    enum yb_status status;
    size_t room;

    YB_ASSERT(options->listen.count > 0 && options->port_min <= options->port_max);
    why_out[0] = '\0';
    if (host == NULL) {
        return YB_NO_MEMORY;
    }
    host->magic = HOST_MAGIC;
    host->clock = options->worker.loop.clock;
    host->log = options->node.log;
    yb_lock_init(&host->lock, YB_LOCK_HOST);
    yb_net_random_system(NULL, &host->identity, sizeof(host->identity));
    room = sizeof(host->name) - 1;
    room -= length > 0 && options->node.name[length - 1] == ':' ? strlen("65535") : 0;
    if (length == 0 || length > room) {
        (void)snprintf(why_out, why_bytes, "node.name \"%s\": 1 to %zu characters",
                       options->node.name, room);
        status = YB_INVALID;
        goto err_close;
    }
    memcpy(host->name, options->node.name, length + 1);
    if ((status = create_engine(host, options, why_out, why_bytes)) != YB_OK ||
        (status = create_node(host, options, why_out, why_bytes)) != YB_OK ||
        (status = create_workers(host, options)) != YB_OK ||
        (status = take_port(host, options, why_out, why_bytes)) != YB_OK ||
        (status = yb_role_begin(host->role)) != YB_OK) {
        goto err_close;
    }
    *host_out = host;
    return YB_OK;

err_close:
    if (why_out[0] == '\0') {
        (void)snprintf(why_out, why_bytes, "cannot make the node \"%s\": %s", host->name,
                       yb_status_text(status));
    }
    yb_node_host_close(&host);
    return status;
}

bool
yb_node_host_await_registered(struct yb_node_host *host, uint64_t limit_ns)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    return yb_role_await(host->role, is_registered, limit_ns);
}

enum yb_status
yb_node_host_set_draining(struct yb_node_host *host, bool draining, uint64_t limit_ns)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    host->draining = draining;
    host->order_until_ns = yb_deadline_after(yb_clock_now(host->clock), limit_ns);
    yb_worker_run(yb_role_worker(host->role), order_state, host);
    /* The call ends by its deadline, and a moment later at the latest. */
    while (!yb_role_await(host->role, is_ordered, limit_ns + YB_NS_PER_S)) {
    }
    return host->ordered;
}

bool
yb_node_host_await_empty(struct yb_node_host *host, uint64_t limit_ns)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    return yb_role_await(host->role, is_empty, limit_ns);
}

void
yb_node_host_close_port(struct yb_node_host *host)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    yb_role_close_port(host->role);
}

static bool
is_settled(void *owner)
{
    struct yb_node_host *host = owner;

    return yb_node_settle(host->node);
}

static bool
is_counted(void *owner)
{
    struct yb_node_host *host = owner;

    host->unsettled = yb_node_unsettled(host->node);
    return true;
}

void
yb_node_host_settle(struct yb_node_host *host, uint64_t until_ns)
{
    uint64_t now_ns = yb_clock_now(host->clock);

    YB_ASSERT_OBJ(host, HOST_MAGIC);
    (void)yb_role_await(host->role, is_settled, until_ns > now_ns ? until_ns - now_ns : 0);
    (void)yb_role_await(host->role, is_counted, 0);
    if (host->unsettled > 0) {
        yb_log_warn(host->log, "node", "stopped with blocks that lie nowhere below memory",
                    yb_log_u64("blocks", host->unsettled));
    }
}

void
yb_node_host_drain(struct yb_node_host *host, uint64_t until_ns)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    yb_role_drain(host->role, until_ns);
}

void
yb_node_host_close(struct yb_node_host **host_ref)
{
    struct yb_node_host *host = *host_ref;

    *host_ref = NULL;
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    if (host->role != NULL) {
        yb_role_end(host->role);
    } else if (host->node != NULL) {
        yb_node_destroy(&host->node);
    }
    if (host->engine != NULL) {
        yb_transfer_destroy(&host->engine); /* Its threads send mail to the role's worker. */
    }
    if (host->heart != NULL) { /* Its net's self is the role's. */
        yb_worker_destroy(&host->heart);
    }
    if (host->role != NULL) {
        yb_role_destroy(&host->role);
    }
    yb_lock_fini(&host->lock);
    host->magic = 0;
    free(host);
}

/* ---- what can be asked ----------------------------------------------------------------------- */

void
yb_node_host_info(const struct yb_node_host *host, struct yb_node_host_info *info_out)
{
    YB_ASSERT_OBJ(host, HOST_MAGIC);
    *info_out = (struct yb_node_host_info){
        .name = host->name,
        .address = host->address,
        .identity = host->identity,
        .io = yb_loop_io(yb_worker_loop(yb_role_worker(host->role)))->ops->name,
        .turned_ns = atomic_load(&host->turned_ns),
        .incarnation = atomic_load(&host->incarnation),
        .lease_until_ns = atomic_load(&host->lease_until_ns),
        .capacity = atomic_load(&host->capacity),
        .live = atomic_load(&host->live),
        .blocks = atomic_load(&host->blocks),
        .state = atomic_load(&host->state),
    };
}

uint32_t
yb_node_host_tiers(struct yb_node_host *host, struct yb_node_tier_info infos_out[YB_NODE_TIERS_MAX])
{
    uint32_t count;

    YB_ASSERT_OBJ(host, HOST_MAGIC);
    yb_lock_acquire(&host->lock);
    count = host->tier_count;
    memcpy(infos_out, host->tiers, sizeof(host->tiers));
    yb_lock_release(&host->lock);
    return count;
}
