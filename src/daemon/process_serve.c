/* SPDX-License-Identifier: Apache-2.0
 *
 * The serving form: signals, the roles of this process, and the way out.
 *
 *     start                                    stop
 *     signals are ours                         the first signal posts `wake`
 *     as many descriptors as we may have       roles close their ports, drain, end
 *     the roles start and listen               signals are given back
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/admin.h"
#include "daemon/conductor_host.h"
#include "daemon/process_internal.h"
#include "daemon/roles.h"

#define REPORT_NS    (10 * YB_NS_PER_S)
#define EXIT_AT_ONCE 1

/* Descriptors that are not connections: loops, files, ports, pools, standard streams. */
#define DESCRIPTORS_OTHER 128u

/* ---- signals ------------------------------------------------------------------------------- */

static const int signal_numbers[] = {SIGTERM, SIGINT, SIGUSR1};
#define SIGNAL_COUNT (sizeof(signal_numbers) / sizeof(signal_numbers[0]))

/* Set by the handler on any thread, read by the main thread. */
static struct {
    _Atomic(uint32_t) stops;
    _Atomic(bool) report;
    sem_t wake;
    struct sigaction before[SIGNAL_COUNT];
} signals;

static void
on_signal(int number)
{
    int saved = errno;

    if (number == SIGUSR1) {
        atomic_store(&signals.report, true);
    } else if (atomic_fetch_add(&signals.stops, 1) > 0) {
        _exit(EXIT_AT_ONCE); /* Somebody does not want to wait for the drain. */
    }
    (void)sem_post(&signals.wake);
    errno = saved;
}

static void
take_signals(struct yb_process *process)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    YB_ASSERT(!process->serving);
    process->serving = true;
    atomic_store(&signals.stops, 0);
    atomic_store(&signals.report, false);
    YB_ASSERT(sem_init(&signals.wake, 0, 0) == 0);
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        YB_ASSERT(sigaction(signal_numbers[i], &action, &signals.before[i]) == 0);
    }
}

static void
give_signals_back(struct yb_process *process)
{
    for (size_t i = 0; i < SIGNAL_COUNT; i++) {
        YB_ASSERT(sigaction(signal_numbers[i], &signals.before[i], NULL) == 0);
    }
    (void)sem_destroy(&signals.wake);
    process->serving = false;
}

/* ---- start --------------------------------------------------------------------------------- */

/* Let the process have as many descriptors as it may, and return how many connections fit to each
 * of `ports`. More would end in accepts that fail without end. */
static uint32_t
connections_that_fit(struct yb_process *process, uint32_t ports)
{
    uint32_t wanted = process->config->net_connections_max;
    struct rlimit limit;
    rlim_t room;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return wanted;
    }
    if (limit.rlim_cur < limit.rlim_max) {
        rlim_t before = limit.rlim_cur;

        limit.rlim_cur = limit.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &limit) != 0) {
            limit.rlim_cur = before;
        }
    }
    if (limit.rlim_cur == RLIM_INFINITY ||
        limit.rlim_cur >= (rlim_t)wanted * ports + DESCRIPTORS_OTHER) {
        return wanted;
    }
    yb_log_warn(process->log, "daemon",
                "fewer connections than configured: raise the limit of open files",
                yb_log_u64("configured", wanted), yb_log_u64("ports", ports),
                yb_log_u64("limit", limit.rlim_cur));
    room = limit.rlim_cur > 2 * DESCRIPTORS_OTHER ? limit.rlim_cur - DESCRIPTORS_OTHER
                                                  : DESCRIPTORS_OTHER;
    return room / ports > 1 ? (uint32_t)(room / ports) : 1;
}

static bool
beyond_loopback(const struct yb_roles *roles)
{
    for (uint32_t i = 0; i < yb_roles_count(roles); i++) {
        struct yb_role_info info;

        yb_roles_info(roles, i, &info);
        if (!yb_address_is_loopback(&info.address)) {
            return true;
        }
    }
    return false;
}

static void
tell_about_trust(const struct yb_process *process)
{
    if (process->credentials.auth != NULL) {
        return;
    }
    if (beyond_loopback(process->roles)) {
        yb_log_warn(process->log, "daemon",
                    "no secret, --insecure: whoever reaches this port may do anything");
    } else {
        yb_log_warn(process->log, "daemon",
                    "no secret: every user of this machine may connect; give --secret-file");
    }
}

static enum yb_status
start_conductor(struct yb_process *process, char why_out[YB_PROCESS_WHY_BYTES])
{
    enum yb_status status = yb_conductor_host_create(process, &process->conductor, why_out);

    return status == YB_OK
               ? yb_conductor_host_follow(process->conductor,
                                          yb_roles_directory_address(process->roles), why_out)
               : status;
}

static enum yb_status
start_otlp(struct yb_process *process, char why_out[YB_PROCESS_WHY_BYTES])
{
    const struct yb_config *config = process->config;
    char name[YB_ROLES_NAME_BYTES];
    char why[YB_CURL_ERROR_BYTES];
    const struct yb_otlp_options options = {
        .url = config->trace_otlp_url,
        .timeout_ns = config->trace_otlp_timeout_ms * YB_NS_PER_MS,
        .resource = {yb_roles_word(process->roles, name), name, process->self.identity},
        .rings = {process->spans},
        .clock = process->clock,
        .stats = process->stats,
        .log = process->log,
    };
    enum yb_status status = yb_otlp_create(&options, &process->otlp, why);

    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", why);
    }
    return status;
}

enum yb_status
yb_process_serve(struct yb_process *process, const struct yb_roles_options *options,
                 char why_out[YB_PROCESS_WHY_BYTES])
{
    enum yb_status status;

    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(!process->serving && process->net == NULL);
    take_signals(process);
    process->connections_max = connections_that_fit(
        process, options->nodes + (options->directory || options->nodes == 0 ? 1 : 0));
    status = yb_roles_start(process, options, &process->roles, why_out);
    if (status == YB_OK && options->conductor) {
        status = start_conductor(process, why_out);
    }
    if (status == YB_OK && process->config->http_listen[0] != '\0') {
        status = yb_admin_create(process, process->roles, &process->admin, why_out);
    }
    if (status == YB_OK && process->config->trace_otlp_url[0] != '\0') {
        status = start_otlp(process, why_out);
    }
    if (status != YB_OK) {
        yb_process_stop(process);
        return status;
    }
    tell_about_trust(process);
    return YB_OK;
}

/* ---- the way out --------------------------------------------------------------------------- */

void
yb_process_stop(struct yb_process *process)
{
    if (process->admin != NULL) {
        yb_admin_destroy(&process->admin);
    }
    if (process->conductor != NULL) {
        yb_conductor_host_destroy(&process->conductor);
    }
    if (process->roles != NULL) {
        yb_roles_stop(&process->roles);
    }
    if (process->otlp != NULL) {
        yb_otlp_destroy(&process->otlp); /* It sends the last spans, too. */
    }
    if (process->serving) {
        give_signals_back(process);
    }
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* The counters, for people and scrapers without a port for them. The last line tells a reader
 * that it has everything. */
static void
report(struct yb_process *process)
{
    char *text = NULL;
    size_t length = 0;

    if (yb_stats_prometheus_text(process->stats, &text, &length) != YB_OK) {
        yb_log_error(process->log, "daemon", "no memory to write the metrics");
        return;
    }
    (void)fwrite(text, 1, length, stderr);
    (void)fputs("# EOF\n", stderr);
    (void)fflush(stderr);
    free(text);
}

/* Sleep until a signal comes, or for REPORT_NS. */
static void
rest(const struct yb_process *process)
{
    uint64_t until_ns = yb_clock_now(process->clock) + REPORT_NS;
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / YB_NS_PER_S),
        .tv_nsec = (long)(until_ns % YB_NS_PER_S),
    };

    if (sem_clockwait(&signals.wake, CLOCK_MONOTONIC, &until) != 0) {
        YB_ASSERT(errno == EINTR || errno == ETIMEDOUT);
    }
}

void
yb_process_wait(struct yb_process *process)
{
    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(process->serving && process->roles != NULL);
    while (atomic_load(&signals.stops) == 0) {
        rest(process);
        if (atomic_exchange(&signals.report, false)) {
            report(process);
        }
        yb_log_report_suppressed(process->log);
    }
    yb_log_info(process->log, "daemon", "stopping",
                yb_log_u64("drain_ms", process->config->net_drain_ms));
    yb_process_stop(process);
    yb_log_info(process->log, "daemon", "stopped");
}
