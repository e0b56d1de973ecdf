/* SPDX-License-Identifier: Apache-2.0
 *
 * The serving form: threads, the listening port, signals, and the way out.
 *
 *     start                                   stop
 *     each worker makes its loop and net      the first worker closes the port
 *     the first worker binds and listens      every worker drains, then aborts what is left
 *                                             the first worker destroys the server
 *                                             every worker destroys net and loop, and ends
 *
 * The main thread gives an order by mail and waits for `answered`. The port closes
 * before the workers are asked to drain, so every connection that was handed over
 * lies in a mailbox before that order does.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "daemon/process_internal.h"

#define HELPER_QUEUE_MAX 1024u
#define REPORT_NS        (10 * YB_NS_PER_S)
#define EXIT_AT_ONCE     1

/* How often a worker that drains looks whether it is done: nothing tells it. */
#define DRAIN_LOOK_NS (5 * YB_NS_PER_MS)

/* Descriptors that are not connections: loops, files, the port, standard streams. */
#define DESCRIPTORS_OTHER 64u

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

/* ---- orders to workers --------------------------------------------------------------------- */

static void
await_answers(struct yb_process *process, uint32_t count)
{
    while (count > 0) {
        if (sem_wait(&process->answered) == 0) {
            count--;
        } else {
            YB_ASSERT(errno == EINTR);
        }
    }
}

static void
run_order(struct yb_mail *mail)
{
    struct yb_process_worker *worker =
        (struct yb_process_worker *)((uint8_t *)mail - offsetof(struct yb_process_worker, mail));

    worker->order(worker);
}

/* Never refused, and bounded: one order for each worker at a time. */
static void
give_order(struct yb_process_worker *worker, void (*order)(struct yb_process_worker *worker))
{
    worker->order = order;
    yb_mail_init(&worker->mail, run_order);
    yb_mailbox_post_reply(yb_loop_mailbox(worker->loop), &worker->mail);
}

static void
answer(struct yb_process_worker *worker)
{
    YB_ASSERT(sem_post(&worker->process->answered) == 0);
}

/* ---- a worker's life ------------------------------------------------------------------------- */

/* The first worker also waits for guests that every worker has closed but whose mail is still on
 * its way home. */
static bool
nobody_is_left(const struct yb_process_worker *worker)
{
    const struct yb_server *server = worker->process->server;

    return worker->index != 0 || server == NULL || yb_server_connection_count(server) == 0;
}

/* Is everything over? Abort what is not, once its time has passed. */
static void
on_drain_timer(struct yb_timer *timer)
{
    struct yb_process_worker *worker =
        (struct yb_process_worker *)((uint8_t *)timer -
                                     offsetof(struct yb_process_worker, drain_timer));
    uint64_t now_ns = yb_loop_now(worker->loop);

    if (yb_net_idle(worker->net) && nobody_is_left(worker)) {
        answer(worker);
        return;
    }
    if (!worker->shut && now_ns >= worker->shut_at_ns) {
        worker->shut = true;
        yb_log_warn(worker->process->log, "daemon", "requests were still running, aborting",
                    yb_log_u64("worker", worker->index),
                    yb_log_u64("connections", yb_net_conn_count(worker->net)));
        yb_net_shut(worker->net);
    }
    yb_loop_arm(worker->loop, timer, yb_deadline_after(now_ns, DRAIN_LOOK_NS));
}

static void *
worker_main(void *argument)
{
    struct yb_process_worker *worker = argument;
    struct yb_process *process = worker->process;

    worker->status = yb_process_make_net(process, &worker->loop, &worker->net);
    answer(worker);
    if (worker->status != YB_OK) {
        return NULL;
    }
    yb_loop_run(worker->loop);
    yb_net_destroy(&worker->net);
    yb_loop_destroy(&worker->loop);
    return NULL;
}

static void
on_report_timer(struct yb_timer *timer)
{
    struct yb_process_worker *worker =
        (struct yb_process_worker *)((uint8_t *)timer -
                                     offsetof(struct yb_process_worker, report_timer));

    yb_log_report_suppressed(worker->process->log);
    yb_loop_arm(worker->loop, timer, yb_deadline_after(yb_loop_now(worker->loop), REPORT_NS));
}

static enum yb_status
start_workers(struct yb_process *process)
{
    process->workers = calloc(process->config->net_workers, sizeof(*process->workers));
    if (process->workers == NULL) {
        return YB_NO_MEMORY;
    }
    for (uint32_t i = 0; i < process->config->net_workers; i++) {
        struct yb_process_worker *worker = &process->workers[i];

        worker->process = process;
        worker->index = i;
        yb_timer_init(&worker->report_timer, on_report_timer);
        if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
            return YB_NO_MEMORY;
        }
        await_answers(process, 1);
        if (worker->status != YB_OK) {
            YB_ASSERT(pthread_join(worker->thread, NULL) == 0);
            return worker->status;
        }
        process->nets[i] = worker->net;
        process->worker_count++;
    }
    return YB_OK;
}

/* ---- the listening port ---------------------------------------------------------------------- */

/* Let the process have as many descriptors as it may, and return how many connections fit. More
 * would end in accepts that fail without end. */
static uint32_t
connections_that_fit(struct yb_process *process)
{
    uint32_t wanted = process->config->net_connections_max;
    struct rlimit limit;

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
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= (rlim_t)wanted + DESCRIPTORS_OTHER) {
        return wanted;
    }
    yb_log_warn(process->log, "daemon",
                "fewer connections than configured: raise the limit of open files",
                yb_log_u64("configured", wanted), yb_log_u64("limit", limit.rlim_cur));
    return limit.rlim_cur > 2 * DESCRIPTORS_OTHER ? (uint32_t)limit.rlim_cur - DESCRIPTORS_OTHER
                                                  : DESCRIPTORS_OTHER;
}

/* On the first worker: listen on process->address. */
static void
order_listen(struct yb_process_worker *worker)
{
    struct yb_process *process = worker->process;
    const struct yb_server_options options = {
        .address = process->address,
        .insecure = process->config->auth_insecure,
        .connections_max = process->connections_max,
        .unauthenticated_max = process->config->net_unauthenticated_max,
        .nets = process->nets,
        .net_count = process->worker_count,
    };

    worker->status = yb_server_create(&options, &process->server, process->why);
    if (worker->status == YB_OK) {
        process->address = yb_server_address(process->server); /* W1 */
    }
    answer(worker);
}

/* Try the candidates in turn. What is in use or not allowed is told at once: another candidate
 * would be another place than the one that was asked for. */
static enum yb_status
listen_somewhere(struct yb_process *process, const struct yb_address_list *candidates)
{
    enum yb_status status = YB_INVALID;

    for (uint32_t i = 0; i < candidates->count; i++) {
        process->address = candidates->items[i];
        give_order(&process->workers[0], order_listen);
        await_answers(process, 1);
        status = process->workers[0].status;
        if (status == YB_OK || status == YB_ADDRESS_IN_USE || status == YB_DENIED) {
            break;
        }
    }
    return status;
}

static void
order_report(struct yb_process_worker *worker)
{
    on_report_timer(&worker->report_timer);
    answer(worker);
}

static enum yb_status
find_candidates(const struct yb_process *process, struct yb_address_list *list_out,
                char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_endpoint_text endpoint;
    char why[YB_ADDRESS_WHY_BYTES];
    enum yb_status status = yb_endpoint_parse(process->config->net_listen, &endpoint, why);

    if (status == YB_OK) {
        status = yb_endpoint_resolve(&endpoint, YB_PORT_SERVE, list_out, why);
    }
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "net.listen: %s", why);
    }
    return status;
}

/* Make what only the serving form has, but for the threads of workers. */
static enum yb_status
make_parts(struct yb_process *process)
{
    const struct yb_config *config = process->config;
    enum yb_status status =
        yb_replay_create(config->net_replay_records, config->net_replay_bytes, &process->replay);

    if (status == YB_OK) {
        status =
            yb_helper_pool_create(config->net_helper_threads, HELPER_QUEUE_MAX, &process->helpers);
    }
    process->nets = calloc(config->net_workers, sizeof(struct yb_net *));
    return status == YB_OK && process->nets == NULL ? YB_NO_MEMORY : status;
}

static void
tell_about_trust(const struct yb_process *process)
{
    if (process->auth != NULL) {
        return;
    }
    if (yb_address_is_loopback(&process->address)) {
        yb_log_warn(process->log, "daemon",
                    "no secret: every user of this machine may connect; give --secret-file");
    } else {
        yb_log_warn(process->log, "daemon",
                    "no secret, --insecure: whoever reaches this port may do anything");
    }
}

enum yb_status
yb_process_serve(struct yb_process *process, char why_out[YB_PROCESS_WHY_BYTES])
{
    struct yb_address_list candidates;
    enum yb_status status;

    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(!process->serving && process->net == NULL);
    status = find_candidates(process, &candidates, why_out);
    if (status != YB_OK) {
        return status;
    }
    take_signals(process);
    status = make_parts(process);
    if (status == YB_OK) {
        status = start_workers(process);
    }
    if (status != YB_OK) {
        yb_process_explain_net(process, status, why_out);
        goto err_stop;
    }
    process->connections_max = connections_that_fit(process);
    status = listen_somewhere(process, &candidates);
    if (status != YB_OK) {
        (void)snprintf(why_out, YB_PROCESS_WHY_BYTES, "%s", process->why);
        goto err_stop;
    }
    give_order(&process->workers[0], order_report);
    await_answers(process, 1);
    tell_about_trust(process);
    return YB_OK;

err_stop:
    yb_process_stop(process);
    return status;
}

/* ---- the way out --------------------------------------------------------------------------- */

static void
order_close_port(struct yb_process_worker *worker)
{
    if (worker->process->server != NULL) {
        yb_server_stop(worker->process->server);
    }
    yb_loop_disarm(worker->loop, &worker->report_timer);
    answer(worker);
}

/* Answered by the timer, once nothing is left. */
static void
order_drain(struct yb_process_worker *worker)
{
    uint64_t drain_ns = worker->process->config->net_drain_ms * YB_NS_PER_MS;

    worker->shut_at_ns = yb_deadline_after(yb_loop_now(worker->loop), drain_ns);
    yb_net_drain(worker->net);
    yb_timer_init(&worker->drain_timer, on_drain_timer);
    yb_loop_arm(worker->loop, &worker->drain_timer, yb_loop_now(worker->loop));
}

static void
order_destroy_server(struct yb_process_worker *worker)
{
    if (worker->process->server != NULL) {
        yb_server_destroy(&worker->process->server);
    }
    answer(worker);
}

static void
order_leave(struct yb_process_worker *worker)
{
    yb_loop_stop(worker->loop);
}

static void
stop_workers(struct yb_process *process)
{
    struct yb_process_worker *workers = process->workers;

    give_order(&workers[0], order_close_port);
    await_answers(process, 1);
    for (uint32_t i = 0; i < process->worker_count; i++) {
        give_order(&workers[i], order_drain);
    }
    await_answers(process, process->worker_count);
    give_order(&workers[0], order_destroy_server);
    await_answers(process, 1);
    for (uint32_t i = 0; i < process->worker_count; i++) {
        give_order(&workers[i], order_leave);
    }
    for (uint32_t i = 0; i < process->worker_count; i++) {
        YB_ASSERT(pthread_join(workers[i].thread, NULL) == 0);
    }
    process->worker_count = 0;
}

void
yb_process_stop(struct yb_process *process)
{
    if (process->worker_count > 0) {
        stop_workers(process);
    }
    free(process->workers);
    process->workers = NULL;
    free(process->nets);
    process->nets = NULL;
    if (process->helpers != NULL) {
        yb_helper_pool_destroy(&process->helpers);
    }
    if (process->replay != NULL) {
        yb_replay_destroy(&process->replay);
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

void
yb_process_wait(struct yb_process *process)
{
    YB_ASSERT_OBJ(process, YB_PROCESS_MAGIC);
    YB_ASSERT(process->serving && process->server != NULL);
    while (atomic_load(&signals.stops) == 0) {
        if (sem_wait(&signals.wake) != 0) {
            YB_ASSERT(errno == EINTR);
        }
        if (atomic_exchange(&signals.report, false)) {
            report(process);
        }
    }
    yb_log_info(process->log, "daemon", "stopping",
                yb_log_u64("connections", yb_server_connection_count(process->server)),
                yb_log_u64("drain_ms", process->config->net_drain_ms));
    stop_workers(process);
    yb_log_info(process->log, "daemon", "stopped");
}
