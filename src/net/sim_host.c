/* SPDX-License-Identifier: Apache-2.0
 *
 * Hosts and processes: where they are, what time it is there, and how they end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "net/sim_internal.h"

#define PORT_EPHEMERAL_FIRST 49152u
#define PORT_EPHEMERAL_COUNT (65536u - PORT_EPHEMERAL_FIRST)

/* ---- addresses ----------------------------------------------------------------------- */

bool
yb_sim_same_ip(const struct yb_address *a, const struct yb_address *b)
{
    return a->family == b->family && a->scope_id == b->scope_id &&
           memcmp(a->ip, b->ip, sizeof(a->ip)) == 0;
}

/* Read an IP; the text is the test's own, so nonsense aborts. */
static struct yb_address
address_of(const char *ip)
{
    char why[YB_ADDRESS_WHY_BYTES];
    struct yb_address address;

    YB_ASSERT(yb_address_parse(ip, 0, &address, why) == YB_OK);
    return address;
}

struct yb_sim_host *
yb_sim_host_find(struct yb_sim_host *from, const struct yb_address *address)
{
    struct yb_sim *sim = from->sim;

    if (yb_address_is_loopback(address)) {
        return from;
    }
    for (uint32_t i = 0; i < sim->host_count; i++) {
        if (yb_sim_same_ip(&sim->hosts[i]->address, address)) {
            return sim->hosts[i];
        }
    }
    return NULL;
}

struct yb_listener *
yb_sim_listener_find(struct yb_sim_host *host, const struct yb_address *address, bool binding)
{
    bool any = binding && yb_address_is_wildcard(address);

    for (struct yb_sim_process *process = host->sim->processes; process != NULL;
         process = process->next) {
        struct yb_listener *listener;

        if (process->host != host || process->crashed || process->io == NULL) {
            continue;
        }
        for (listener = process->io->listeners; listener != NULL; listener = listener->next) {
            if (listener->address.port == address->port &&
                (any || yb_address_is_wildcard(&listener->address) ||
                 yb_sim_same_ip(&listener->address, address))) {
                return listener;
            }
        }
    }
    return NULL;
}

static bool
port_is_used(struct yb_sim_host *host, uint16_t port)
{
    struct yb_address address = host->address;

    address.port = port;
    if (yb_sim_listener_find(host, &address, true) != NULL) {
        return true;
    }
    for (struct sim_connection *connection = host->sim->connections; connection != NULL;
         connection = connection->next) {
        if (connection->ends[0].host == host && connection->ends[0].address.port == port) {
            return true;
        }
    }
    return false;
}

uint16_t
yb_sim_host_free_port(struct yb_sim_host *host)
{
    for (uint32_t i = 0; i < PORT_EPHEMERAL_COUNT; i++) {
        uint16_t port = (uint16_t)(PORT_EPHEMERAL_FIRST + host->next_port);

        host->next_port = (uint16_t)((host->next_port + 1) % PORT_EPHEMERAL_COUNT);
        if (!port_is_used(host, port)) {
            return port;
        }
    }
    return 0;
}

/* ---- clocks -------------------------------------------------------------------------- */

/* Return `duration` * (1000000 + ppm) / 1000000 without overflow for any run's length. */
static uint64_t
scale(uint64_t duration_ns, uint64_t numerator, uint64_t denominator)
{
    unsigned __int128 product = (unsigned __int128)duration_ns * numerator;

    product = (product + denominator - 1) / denominator;
    return product > YB_NEVER ? YB_NEVER : (uint64_t)product;
}

static uint64_t
rate(const struct yb_sim_host *host)
{
    return (uint64_t)((int64_t)YB_SIM_PPM + host->drift_ppm);
}

static const struct yb_sim_host *
host_of_clock(const struct yb_clock *clock)
{
    const struct yb_sim_host *host =
        (const struct yb_sim_host *)((const char *)clock - offsetof(struct yb_sim_host, clock));

    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    return host;
}

static uint64_t
monotonic_ns(const struct yb_clock *clock)
{
    const struct yb_sim_host *host = host_of_clock(clock);

    return host->base_local_ns +
           scale(host->sim->now_ns - host->base_world_ns, rate(host), YB_SIM_PPM);
}

static uint64_t
wall_ns(const struct yb_clock *clock)
{
    const struct yb_sim_host *host = host_of_clock(clock);

    return YB_SIM_START_WALL_NS + (host->sim->now_ns - YB_SIM_START_NS) +
           (uint64_t)host->wall_offset_ns;
}

uint64_t
yb_sim_host_to_world(const struct yb_sim_host *host, uint64_t local_ns)
{
    return scale(local_ns, YB_SIM_PPM, rate(host));
}

void
yb_sim_host_set_drift(struct yb_sim_host *host, int32_t drift_ppm)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    YB_ASSERT(drift_ppm > -(int32_t)YB_SIM_PPM);
    host->base_local_ns = monotonic_ns(&host->clock);
    host->base_world_ns = host->sim->now_ns;
    host->drift_ppm = drift_ppm;
}

void
yb_sim_host_skip(struct yb_sim_host *host, uint64_t skip_ns)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->base_local_ns += skip_ns;
    /* What the processes wait for may have passed. */
    for (struct yb_sim_process *process = host->sim->processes; process != NULL;
         process = process->next) {
        if (process->host == host) {
            yb_sim_process_wake_at(process, host->sim->now_ns);
        }
    }
}

void
yb_sim_host_set_wall(struct yb_sim_host *host, int64_t offset_ns)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->wall_offset_ns = offset_ns;
}

/* ---- hosts --------------------------------------------------------------------------- */

struct yb_sim_host *
yb_sim_host_create(struct yb_sim *sim, const char *name, const char *ip)
{
    struct yb_sim_host *host;

    YB_ASSERT_OBJ(sim, YB_SIM_MAGIC);
    YB_ASSERT(sim->host_count < YB_SIM_HOST_COUNT);
    host = yb_sim_allocate(sizeof(*host));
    host->magic = YB_SIM_HOST_MAGIC;
    host->sim = sim;
    host->index = sim->host_count;
    host->clock = (struct yb_clock){.monotonic_ns = monotonic_ns, .wall_ns = wall_ns};
    host->address = address_of(ip);
    host->backlog = YB_SIM_BACKLOG;
    host->base_world_ns = sim->now_ns;
    /* Monotonic clocks of different machines have nothing in common; code that compares them
     * must fail in its first simulated test. */
    host->base_local_ns = sim->now_ns + yb_sim_random_below(sim, 1000000 * YB_NS_PER_S);
    host->next_port = (uint16_t)yb_sim_random_below(sim, PORT_EPHEMERAL_COUNT);
    snprintf(host->name, sizeof(host->name), "%s", name);
    for (uint32_t i = 0; i < sim->host_count; i++) {
        YB_ASSERT(!yb_sim_same_ip(&sim->hosts[i]->address, &host->address));
    }
    sim->hosts[sim->host_count++] = host;
    return host;
}

void
yb_sim_host_free(struct yb_sim_host *host)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->magic = 0;
    free(host);
}

void
yb_sim_host_address(const struct yb_sim_host *host, uint16_t port, struct yb_address *address_out)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    *address_out = host->address;
    address_out->port = port;
}

const struct yb_clock *
yb_sim_host_clock(const struct yb_sim_host *host)
{
    return &host->clock;
}

void
yb_sim_host_stall(struct yb_sim_host *host, bool stalled)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->stalled = stalled;
}

void
yb_sim_host_set_backlog(struct yb_sim_host *host, uint32_t count)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->backlog = count;
}

void
yb_sim_host_crash(struct yb_sim_host *host, enum yb_sim_death how)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    for (struct yb_sim_process *process = host->sim->processes; process != NULL;
         process = process->next) {
        if (process->host == host) {
            yb_sim_process_crash(process, how);
        }
    }
    if (how == YB_SIM_DEATH_SILENT) {
        host->down = true;
        yb_sim_abandon(host);
    }
}

void
yb_sim_host_restart(struct yb_sim_host *host)
{
    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    host->down = false;
    host->stalled = false;
    yb_sim_release(host->sim);
}

/* ---- processes ----------------------------------------------------------------------- */

struct yb_sim_process *
yb_sim_process_create(struct yb_sim_host *host, const char *name, yb_sim_run_fn *run, void *arg)
{
    struct yb_sim_process *process = yb_sim_allocate(sizeof(*process));
    struct yb_sim *sim = host->sim;

    YB_ASSERT_OBJ(host, YB_SIM_HOST_MAGIC);
    YB_ASSERT(run != NULL && !host->down);
    process->magic = YB_SIM_PROCESS_MAGIC;
    process->id = ++sim->process_id;
    process->host = host;
    process->run = run;
    process->arg = arg;
    process->wake_ns = YB_NEVER;
    snprintf(process->name, sizeof(process->name), "%s", name);
    process->io = yb_sim_io_create(process);
    process->next = sim->processes;
    sim->processes = process;
    yb_sim_process_wake_at(process, sim->now_ns);
    return process;
}

struct yb_io *
yb_sim_process_io(struct yb_sim_process *process)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    return process->io != NULL ? &process->io->base : NULL;
}

const struct yb_clock *
yb_sim_process_clock(const struct yb_sim_process *process)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    return &process->host->clock;
}

void
yb_sim_process_wake_at(struct yb_sim_process *process, uint64_t when_ns)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    if (when_ns < process->busy_until_ns) {
        when_ns = process->busy_until_ns; /* N4 */
    }
    if (when_ns < process->wake_ns) {
        process->wake_ns = when_ns;
        process->wake_sequence = yb_sim_next_sequence(process->host->sim);
    }
}

bool
yb_sim_process_runnable(const struct yb_sim_process *process)
{
    return process->wake_ns != YB_NEVER && !process->crashed && process->io != NULL &&
           !process->host->stalled;
}

void
yb_sim_process_run(struct yb_sim_process *process)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    YB_ASSERT(!process->running && !process->crashed);
    process->wake_ns = YB_NEVER;
    process->busy_until_ns = process->host->sim->now_ns + YB_SIM_RUN_NS;
    process->poll_count = 0;
    process->running = true;
    process->run(process->arg);
    process->running = false;
}

void
yb_sim_process_crash(struct yb_sim_process *process, enum yb_sim_death how)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    if (process->crashed) {
        return;
    }
    process->crashed = true;
    if (process->io != NULL) {
        yb_sim_io_crash(process->io, how);
    }
}

bool
yb_sim_process_crashed(const struct yb_sim_process *process)
{
    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    return process->crashed;
}

void
yb_sim_process_destroy(struct yb_sim_process **process_ref)
{
    struct yb_sim_process *process = *process_ref;
    struct yb_sim_process **link;

    YB_ASSERT_OBJ(process, YB_SIM_PROCESS_MAGIC);
    YB_ASSERT(!process->running);
    *process_ref = NULL;
    yb_sim_process_crash(process, YB_SIM_DEATH_RESET);
    for (link = &process->host->sim->processes; *link != process; link = &(*link)->next) {
        YB_ASSERT(*link != NULL);
    }
    *link = process->next;
    if (process->io != NULL) {
        yb_sim_io_free(process->io);
    }
    process->magic = 0;
    free(process);
}
