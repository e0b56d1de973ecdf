/* SPDX-License-Identifier: Apache-2.0
 *
 * A client's beginning and end, and who may use it meanwhile.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "client/client_internal.h"
#include "client/core_internal.h"
#include "net/boot.h"
#include "transfer/near.h"

#define DEFAULT_DIRECTORY  "127.0.0.1:14700"
#define DEFAULT_TENANT     "default"
#define DEFAULT_OPEN_NS    (10 * YB_NS_PER_S)
#define DEFAULT_TIMEOUT_NS (30 * YB_NS_PER_S)
#define CALLS_MAX          128u
#define SPIN_US            50u
#define QUIET_LOOK_NS      YB_NS_PER_MS
#define SETTLE_NS          (200 * YB_NS_PER_MS)

/* ---- options --------------------------------------------------------------------------------- */

static enum yb_status
copy_text(const char *option, const char *text, char out[33], char *message, size_t bytes)
{
    size_t length = text != NULL ? strlen(text) : 0;

    if (length > 32) {
        (void)snprintf(message, bytes, "%s `%s`: at most 32 characters", option, text);
        return YB_INVALID;
    }
    memcpy(out, text != NULL ? text : "", length + 1);
    return YB_OK;
}

/* Take the caller's options, as much of them as it knows, and fill in defaults. */
static enum yb_status
read_options(const struct yb_client_options *given, struct yb_client_options *options_out,
             char *message, size_t bytes)
{
    struct yb_client_options options = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            (void)snprintf(message, bytes, "options.struct_bytes is not the size of the struct");
            return YB_INVALID;
        }
        memcpy(&options, given,
               given->struct_bytes < sizeof(options) ? given->struct_bytes : sizeof(options));
    }
    options.directory = options.directory != NULL ? options.directory : DEFAULT_DIRECTORY;
    options.tenant = options.tenant != NULL ? options.tenant : DEFAULT_TENANT;
    options.hints_max = options.hints_max != 0 ? options.hints_max : 65536;
    if (!yb_auth_tenant_valid(options.tenant, strlen(options.tenant))) {
        (void)snprintf(message, bytes, "tenant `%s`: letters, digits and ._- only, at most %u",
                       options.tenant, YB_AUTH_TENANT_MAX);
        return YB_INVALID;
    }
    if (options.hints_max > 1u << 28 || options.reuse_gate > YB_CLIENT_GATE_AUTO) {
        (void)snprintf(message, bytes,
                       "an option is out of range: hints_max 0..2^28, reuse_gate of "
                       "YB_CLIENT_GATE_");
        return YB_INVALID;
    }
    *options_out = options;
    return YB_OK;
}

enum yb_status
yb_client_read_call(const struct yb_client_call *given, struct yb_client_call *call_out)
{
    struct yb_client_call call = {0};

    if (given != NULL) {
        if (given->struct_bytes < sizeof(size_t) || given->struct_bytes > 4096) {
            return YB_INVALID;
        }
        memcpy(&call, given,
               given->struct_bytes < sizeof(call) ? given->struct_bytes : sizeof(call));
    }
    call.timeout_ns = call.timeout_ns != 0 ? call.timeout_ns : DEFAULT_TIMEOUT_NS;
    if (call.work_class >= YB_CLASS_COUNT) {
        return YB_INVALID;
    }
    *call_out = call;
    return YB_OK;
}

/* ---- who is inside --------------------------------------------------------------------------- */

/* Whether this process opened the client, and did not inherit it. */
static bool
is_ours(const struct yb_client *client)
{
    if (client->guard != NULL) {
        return atomic_load_explicit(&client->guard->alive, memory_order_relaxed) != 0;
    }
    return client->process == getpid();
}

static void
make_guard(struct yb_client *client)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    client->process = getpid();
    if (page == MAP_FAILED) {
        return;
    }
    if (madvise(page, bytes, MADV_WIPEONFORK) != 0) {
        (void)munmap(page, bytes);
        return;
    }
    client->guard = page;
    atomic_store(&client->guard->alive, 1);
}

enum yb_status
yb_client_enter(struct yb_client *client)
{
    enum yb_status status = YB_OK;

    if (client == NULL) {
        return YB_INVALID;
    }
    YB_ASSERT_OBJ(client, YB_CLIENT_MAGIC);
    if (!is_ours(client)) {
        return YB_INVALID;
    }
    yb_lock_acquire(&client->lock);
    if (client->closing) {
        status = YB_CLOSED;
    } else {
        client->users++;
    }
    yb_lock_release(&client->lock);
    return status;
}

void
yb_client_leave(struct yb_client *client)
{
    yb_lock_acquire(&client->lock);
    YB_ASSERT(client->users > 0);
    client->users--;
    if (client->closing && client->users == 0) {
        (void)pthread_cond_broadcast(&client->changed);
    }
    yb_lock_release(&client->lock);
}

bool
yb_client_inside(const struct yb_client *client)
{
    return pthread_equal(pthread_self(), client->thread) != 0;
}

void
yb_client_run(struct yb_client *client, void (*order)(void *context), void *context)
{
    if (yb_client_inside(client)) {
        order(context);
    } else {
        yb_worker_run(client->worker, order, context);
    }
}

/* ---- open ------------------------------------------------------------------------------------ */

/* On the worker: the directory has answered, or has not. */
static void
on_news(void *owner, enum yb_status status)
{
    struct yb_client *client = owner;

    yb_lock_acquire(&client->lock);
    client->joined = status;
    (void)pthread_cond_broadcast(&client->changed);
    yb_lock_release(&client->lock);
}

/* Who we are to the others. */
static enum yb_status
make_self(struct yb_client *client, const struct yb_client_options *options, char *message,
          size_t bytes)
{
    const struct yb_credentials_options credentials = {
        .secret_file = options->secret_file,
        .tls = options->tls,
        .wall_ns = yb_clock_wall(yb_clock_system()),
    };
    enum yb_status status = yb_credentials_load(&credentials, &client->credentials, message, bytes);

    if (status != YB_OK) {
        return status;
    }
    (void)snprintf(client->tenant, sizeof(client->tenant), "%s", options->tenant);
    client->self = (struct yb_hello_self){
        .incarnation = yb_clock_wall(yb_clock_system()),
        .boot = yb_boot_id(),
        .version_min = YB_WIRE_VERSION_MIN,
        .version_max = YB_WIRE_VERSION_MAX,
        .schema = YB_WIRE_SCHEMA,
        .role = YB_WIRE_ROLE_CLIENT,
        .tenant = client->tenant,
        .auth = client->credentials.auth,
        .credit_requests = 1024,
        .credit_bytes = 256ull << 20,
        .body_bytes_max = 1u << 20,
        .data_bytes_max = YB_CLIENT_VALUE_BYTES_MAX,
        .ping_interval_ms = 15000,
        .software = "yuebing " YB_VERSION_STRING,
        .port_name = "Yuebing's client",
    };
    yb_net_random_system(NULL, client->self.identity.bytes, sizeof(client->self.identity.bytes));
    return YB_OK;
}

static enum yb_status
find_directory(struct yb_client *client, const struct yb_client_options *options, char *message,
               size_t bytes)
{
    struct yb_client_core_options *core = &client->core_options;
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES] = "";
    enum yb_status status = yb_endpoint_parse(options->directory, &endpoint, why);

    *core = (struct yb_client_core_options){
        .tenant = client->tenant,
        .host = client->self.boot,
        .rack = client->rack,
        .zone = client->zone,
        .hints_max = 4,
        .calls_max = CALLS_MAX,
        .reuse_gate = options->reuse_gate,
        .prefill_ns_per_block = options->prefill_ns_per_block,
        .bytes_per_block = options->bytes_per_block,
        .random = yb_net_random_system,
        .news = on_news,
        .news_owner = client,
    };
    while (core->hints_max < options->hints_max) {
        core->hints_max *= 2;
    }
    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, YB_PORT_SERVE, &core->directory, why);
    }
    if (status != YB_OK) {
        (void)snprintf(message, bytes, "%s", why);
    }
    return status;
}

struct order {
    struct yb_client *client;
    enum yb_status status;
    char text[512];
};

static void
create_core(void *context)
{
    struct order *order = context;
    struct yb_client *client = order->client;

    client->thread = pthread_self();
    order->status =
        yb_client_core_create(&client->core_options, yb_worker_net(client->worker), &client->core);
}

static void
ask_trouble(void *context)
{
    struct order *order = context;

    (void)snprintf(order->text, sizeof(order->text), "%s",
                   yb_client_core_trouble(order->client->core));
}

static bool
is_calm(void *owner)
{
    struct yb_client *client = owner;

    return client->core != NULL && yb_client_core_calm(client->core) &&
           yb_client_admin_idle(client);
}

static enum yb_status
start_worker(struct yb_client *client)
{
    struct yb_worker_options options = {
        .loop = {.backend = "auto", .clock = yb_clock_system(), .spin_us = SPIN_US},
        .net =
            {
                .self = &client->self,
                .tls_client = client->credentials.tls_client,
                .stream = {.congestion = "cubic", .unsent_bytes_max = 256 * 1024},
                .stats = client->stats,
                .spans = yb_transfer_spans(client->engine),
                .random = yb_net_random_system,
            },
        .calm = is_calm,
        .calm_owner = client,
    };
    struct order order = {.client = client};
    enum yb_status status;

    yb_net_limits_default(&options.net.limits);
    options.net.limits.committed_bytes_max = 1024 * 1024;
    status = yb_worker_create(&options, &client->worker);
    if (status == YB_OK) {
        yb_worker_run(client->worker, create_core, &order);
        status = order.status;
    }
    return status;
}

/* Whether asking again would bring the same answer. */
static bool
is_final(enum yb_status joined)
{
    return joined == YB_DENIED || joined == YB_VERSION || joined == YB_PROTOCOL ||
           joined == YB_UNSUPPORTED || joined == YB_INVALID;
}

/* Wait for the directory's first answer. */
static enum yb_status
join(struct yb_client *client, const char *directory, uint64_t timeout_ns, char *message,
     size_t bytes)
{
    uint64_t deadline_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), timeout_ns);
    struct order order = {.client = client};
    enum yb_status joined;

    yb_lock_acquire(&client->lock);
    for (;;) {
        uint64_t now_ns = yb_clock_now(yb_clock_system());

        joined = client->joined;
        if (joined == YB_OK || is_final(joined) || now_ns >= deadline_ns) {
            break;
        }
        (void)yb_lock_wait(&client->lock, &client->changed,
                           deadline_ns - now_ns < YB_NS_PER_S ? deadline_ns - now_ns : YB_NS_PER_S);
    }
    yb_lock_release(&client->lock);
    if (joined == YB_OK) {
        return YB_OK;
    }
    yb_worker_run(client->worker, ask_trouble, &order);
    if (joined == YB_UNSUPPORTED || joined == YB_INVALID || joined == YB_PROTOCOL) {
        (void)snprintf(message, bytes,
                       "%s: what answers there is no directory%s%s; start one with "
                       "`yuebing serve`, or name its address",
                       directory, order.text[0] != '\0' ? ": " : "", order.text);
        return YB_INVALID;
    }
    (void)snprintf(message, bytes, "%s: %s", directory,
                   order.text[0] != '\0' ? order.text
                                         : "no answer from the directory in time; is it running?");
    if (is_final(joined)) {
        return joined;
    }
    return order.text[0] != '\0' ? YB_UNREACHABLE : YB_TIMED_OUT;
}

enum yb_status
yb_client_open(const struct yb_client_options *given, uint64_t timeout_ns,
               struct yb_client **client_out, char *message_out, size_t message_bytes)
{
    char unused[1];
    char *message = message_out != NULL && message_bytes > 0 ? message_out : unused;
    size_t bytes = message == unused ? sizeof(unused) : message_bytes;
    struct yb_client_options options = {0};
    struct yb_client *client = calloc(1, sizeof(*client));
    enum yb_status status;

    message[0] = '\0';
    if (client == NULL) {
        return YB_NO_MEMORY;
    }
    client->magic = YB_CLIENT_MAGIC;
    client->joined = YB_IN_PROGRESS;
    client->told_tail = &client->told;
    yb_lock_init(&client->lock, YB_LOCK_CLIENT);
    yb_lock_cond_init(&client->changed);
    make_guard(client);
    status = read_options(given, &options, message, bytes);
    if (status == YB_OK) {
        status = copy_text("rack", options.rack, client->rack, message, bytes);
    }
    if (status == YB_OK) {
        status = copy_text("zone", options.zone, client->zone, message, bytes);
    }
    if (status == YB_OK) {
        status = make_self(client, &options, message, bytes);
    }
    if (status == YB_OK) {
        status = find_directory(client, &options, message, bytes);
    }
    if (status == YB_OK) {
        status = yb_client_engine_create(client, &options, message, bytes);
    }
    if (status == YB_OK) {
        status = start_worker(client);
    }
    if (status == YB_OK) {
        status = join(client, options.directory, timeout_ns != 0 ? timeout_ns : DEFAULT_OPEN_NS,
                      message, bytes);
    }
    if (status != YB_OK) {
        yb_client_close(&client);
        return status;
    }
    *client_out = client;
    return YB_OK;
}

/* ---- close ----------------------------------------------------------------------------------- */

static void
stop_core(void *context)
{
    struct yb_client *client = context;

    yb_client_admin_stop(client);
    yb_client_core_stop(client->core);
    yb_net_shut(yb_worker_net(client->worker));
}

/* Say what is given back, before nothing can be said any more. */
static void
settle(void *context)
{
    struct order *order = context;

    order->status = yb_client_core_settle(order->client->core) ? YB_OK : YB_BUSY;
}

static void
ask_idle(void *context)
{
    struct order *order = context;

    order->status = yb_client_core_idle(order->client->core) && yb_client_admin_idle(order->client)
                        ? YB_OK
                        : YB_BUSY;
}

static void
destroy_core(void *context)
{
    struct yb_client *client = context;

    yb_client_admin_destroy(client);
    yb_client_core_destroy(&client->core);
}

/* End everything, and wait until the last caller has left. */
static void
quiet(struct yb_client *client)
{
    struct order order = {.client = client, .status = YB_BUSY};
    uint64_t until_ns = yb_deadline_after(yb_clock_now(yb_clock_system()), SETTLE_NS);

    while (client->core != NULL && order.status != YB_OK &&
           yb_clock_now(yb_clock_system()) < until_ns) {
        yb_worker_run(client->worker, settle, &order);
    }
    if (client->core != NULL) {
        yb_worker_run(client->worker, stop_core, client);
    }
    order.status = YB_BUSY;
    yb_lock_acquire(&client->lock);
    for (;;) {
        if (client->core != NULL) {
            yb_lock_release(&client->lock);
            yb_worker_run(client->worker, ask_idle, &order);
            yb_lock_acquire(&client->lock);
        }
        if (client->users == 0 && (client->core == NULL || order.status == YB_OK)) {
            break;
        }
        (void)yb_lock_wait(&client->lock, &client->changed, QUIET_LOOK_NS);
    }
    yb_lock_release(&client->lock);
    if (client->core != NULL) {
        yb_worker_run(client->worker, destroy_core, client);
    }
}

void
yb_client_close(struct yb_client **client_ref)
{
    struct yb_client *client = *client_ref;

    *client_ref = NULL;
    if (client == NULL) {
        return;
    }
    YB_ASSERT_OBJ(client, YB_CLIENT_MAGIC);
    if (!is_ours(client)) {
        return; /* The parent's: its thread and locks are not here. */
    }
    YB_ASSERT(client->worker == NULL || !yb_client_inside(client));
    yb_lock_acquire(&client->lock);
    client->closing = true;
    yb_lock_release(&client->lock);
    if (client->worker != NULL) {
        quiet(client);
    }
    if (client->engine != NULL) {
        yb_transfer_destroy(&client->engine); /* Its threads send mail to the worker. */
    }
    if (client->worker != NULL) {
        yb_worker_destroy(&client->worker);
    }
    if (client->stats != NULL) {
        yb_stats_destroy(&client->stats);
    }
    yb_client_records_fini(client);
    yb_credentials_unload(&client->credentials);
    if (client->guard != NULL) {
        (void)munmap(client->guard, (size_t)sysconf(_SC_PAGESIZE));
    }
    YB_ASSERT(pthread_cond_destroy(&client->changed) == 0);
    yb_lock_fini(&client->lock);
    client->magic = 0;
    free(client);
}
