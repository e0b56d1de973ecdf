/* SPDX-License-Identifier: Apache-2.0
 *
 * The other process: an engine, a buffer, bare sockets, and orders.
 */
#include "cli/bench_target.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/bench_ceilings.h"

/* What a target says of itself when it is ready. */
struct hello {
    char address[64];
    yb_transfer_region region;
    uint64_t base;
};

static bool
complain(const char *what, const char *why)
{
    fprintf(stderr, "bench: %s: %s\n", what, why);
    return false;
}

/* ---- the pattern ------------------------------------------------------------------------- */

static uint64_t
word_at(uint64_t seed, uint64_t index)
{
    uint64_t word = (seed + index) * 0x9e3779b97f4a7c15ull;

    return word ^ word >> 29;
}

void
yb_bench_stamp(void *bytes, uint64_t object_offset, uint64_t length, uint64_t seed)
{
    uint64_t *words = bytes;

    YB_ASSERT(object_offset % 8 == 0 && length % 8 == 0);
    for (uint64_t i = 0; i < length / 8; i++) {
        words[i] = word_at(seed, object_offset / 8 + i);
    }
}

bool
yb_bench_check(const void *bytes, uint64_t object_offset, uint64_t length, uint64_t seed)
{
    const uint64_t *words = bytes;

    YB_ASSERT(object_offset % 8 == 0 && length % 8 == 0);
    for (uint64_t i = 0; i < length / 8; i++) {
        if (words[i] != word_at(seed, object_offset / 8 + i)) {
            return false;
        }
    }
    return true;
}

/* ---- an engine with a buffer ------------------------------------------------------------- */

bool
yb_bench_engine_open(const struct yb_bench_target_options *options,
                     struct yb_bench_engine *engine_out)
{
    struct yb_bench_engine engine = {.engine = NULL};
    struct yb_transfer_options engine_options = {
        .struct_bytes = sizeof(engine_options),
        .tls = options->tls,
        .streams = options->streams,
        .paths = options->paths,
    };
    char why[256] = "";
    void *buffer = NULL;
    enum yb_status status = yb_transfer_create(&engine_options, &engine.engine, why, sizeof(why));

    if (status != YB_OK) {
        return complain("engine", why[0] != '\0' ? why : yb_status_text(status));
    }
    if (options->shared) {
        status = yb_transfer_alloc(engine.engine, YB_BENCH_BUFFER_BYTES, NULL, &buffer);
    } else {
        buffer = mmap(NULL, YB_BENCH_BUFFER_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        status = buffer == MAP_FAILED ? YB_NO_MEMORY : YB_OK;
    }
    if (status == YB_OK) {
        memset(buffer, 1, YB_BENCH_BUFFER_BYTES);
        engine.buffer = buffer;
        engine.memory = buffer;
    }
    if (status == YB_OK && options->device) {
        if (!yb_bench_device_open(YB_BENCH_BUFFER_BYTES, &engine.device)) {
            yb_bench_engine_close(options, &engine);
            return false;
        }
        engine.memory = yb_bench_device_base(engine.device);
    }
    if (status == YB_OK) {
        /* Shared memory is registered already; the same range again is counted. */
        status = yb_transfer_register(engine.engine, engine.memory, YB_BENCH_BUFFER_BYTES, NULL,
                                      &engine.region);
    }
    if (status != YB_OK) {
        yb_bench_engine_close(options, &engine);
        return complain("buffer", yb_status_text(status));
    }
    *engine_out = engine;
    return true;
}

void
yb_bench_engine_close(const struct yb_bench_target_options *options, struct yb_bench_engine *engine)
{
    if (engine->engine != NULL) {
        yb_transfer_destroy(&engine->engine);
        if (!options->shared && engine->buffer != NULL) {
            (void)munmap(engine->buffer, YB_BENCH_BUFFER_BYTES);
        }
    }
    yb_bench_device_close(&engine->device);
}

/* ---- the child --------------------------------------------------------------------------- */

struct child {
    struct yb_bench_engine engine;
    int order_fd;
    struct yb_bench_sockets sockets;
};

uint64_t
yb_bench_cpu_ns(void)
{
    struct rusage used;

    if (getrusage(RUSAGE_SELF, &used) != 0) {
        return 0;
    }
    return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * YB_NS_PER_S +
           (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * YB_NS_PER_US;
}

static struct yb_bench_answer
carry_out(struct child *child, const struct yb_bench_order *order)
{
    const struct yb_bench_raw raw = {
        .sockets = &child->sockets,
        .buffer = child->engine.buffer,
        .streams = order->streams,
        .size = order->length,
        .run_ns = order->run_ns,
        .spin_ns = order->spin_ns,
    };
    struct yb_bench_answer answer = {.ok = true};
    struct yb_bench_device *device = child->engine.device;
    uint8_t *bytes = child->engine.buffer + order->offset;

    switch (order->kind) {
    case YB_BENCH_ORDER_STAMP:
        yb_bench_stamp(bytes, 0, order->length, order->seed);
        answer.ok = device == NULL ||
                    yb_bench_device_copy(device, order->offset, bytes, order->length, true);
        break;
    case YB_BENCH_ORDER_CHECK:
        answer.ok = device == NULL ||
                    yb_bench_device_copy(device, order->offset, bytes, order->length, false);
        answer.value = yb_bench_check(bytes, 0, order->length, order->seed);
        break;
    case YB_BENCH_ORDER_CPU: answer.value = yb_bench_cpu_ns(); break;
    case YB_BENCH_ORDER_RECEIVE: answer.ok = yb_bench_raw_receive(&raw, &answer.value); break;
    case YB_BENCH_ORDER_SEND: answer.ok = yb_bench_raw_send(&raw, &answer.value); break;
    case YB_BENCH_ORDER_ECHO: answer.ok = yb_bench_raw_echo(&raw); break;
    default: answer.ok = false; break;
    }
    return answer;
}

/* What the engine's workers do with the memory and what is done with it here is ordered by the
 * process that measures. In this one it is too, by a question that goes through every worker. */
static void
meet_workers(struct child *child)
{
    char *text = NULL;

    if (yb_transfer_stats(child->engine.engine, &text) == YB_OK) {
        free(text);
    }
}

static struct yb_bench_answer
obey(struct child *child, const struct yb_bench_order *order)
{
    struct yb_bench_answer answer;

    if (order->kind == YB_BENCH_ORDER_CPU) { /* Touches nothing, and is to cost nothing. */
        return carry_out(child, order);
    }
    meet_workers(child);
    answer = carry_out(child, order);
    meet_workers(child);
    return answer;
}

static void
serve(const struct yb_bench_target_options *options, struct child *child)
{
    struct hello hello = {{0}, 0, 0};
    struct yb_bench_order order;

    if (!yb_bench_engine_open(options, &child->engine) ||
        yb_transfer_address(child->engine.engine, hello.address, sizeof(hello.address)) != YB_OK) {
        _exit(1);
    }
    hello.region = child->engine.region;
    hello.base = (uint64_t)(uintptr_t)child->engine.buffer; /* For what reads it barely. */
    if (write(child->order_fd, &hello, sizeof(hello)) != (ssize_t)sizeof(hello)) {
        _exit(1);
    }
    while (read(child->order_fd, &order, sizeof(order)) == (ssize_t)sizeof(order) &&
           order.kind != YB_BENCH_ORDER_STOP) {
        struct yb_bench_answer answer = obey(child, &order);

        if (write(child->order_fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
            break;
        }
    }
    yb_bench_engine_close(options, &child->engine);
    _exit(0);
}

/* ---- the parent -------------------------------------------------------------------------- */

/* Make pairs of connected TCP sockets over the loopback interface. */
static bool
connect_sockets(const char *congestion, struct yb_bench_sockets *near, struct yb_bench_sockets *far)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool ok;

    if (listener >= 0) {
        yb_bench_socket_options(listener, congestion); /* Accepted sockets inherit them. */
    }
    ok = listener >= 0 && bind(listener, (const struct sockaddr *)&address, length) == 0 &&
         listen(listener, 16) == 0 &&
         getsockname(listener, (struct sockaddr *)&address, &length) == 0;
    while (ok && near->count < YB_BENCH_SOCKETS_MAX) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int accepted = -1;

        ok = fd >= 0;
        if (ok) {
            near->fds[near->count++] = fd;
            yb_bench_socket_options(fd, congestion);
            ok = connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
            accepted = ok ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
            ok = accepted >= 0;
        }
        if (ok) {
            far->fds[far->count++] = accepted;
            yb_bench_socket_options(accepted, congestion);
        }
    }
    if (!ok) {
        (void)complain("sockets", strerror(errno));
    }
    if (listener >= 0) {
        (void)close(listener);
    }
    return ok;
}

static void
close_sockets(struct yb_bench_sockets *sockets)
{
    while (sockets->count > 0) {
        (void)close(sockets->fds[--sockets->count]);
    }
}

/* Take what the target says of itself. */
static bool
meet(struct yb_bench_target *target)
{
    struct hello hello;

    if (read(target->order_fd, &hello, sizeof(hello)) != (ssize_t)sizeof(hello)) {
        return complain("target", "it did not start");
    }
    memcpy(target->address, hello.address, sizeof(target->address));
    target->region = hello.region;
    target->base = hello.base;
    return true;
}

bool
yb_bench_target_open(const struct yb_bench_target_options *options,
                     struct yb_bench_target *target_out)
{
    struct yb_bench_sockets near = {0};
    struct child child = {0};
    int pair[2];
    pid_t pid;

    memset(target_out, 0, sizeof(*target_out));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) {
        return complain("socketpair", strerror(errno));
    }
    if (!connect_sockets(options->congestion, &near, &child.sockets)) {
        close_sockets(&near);
        close_sockets(&child.sockets);
        (void)close(pair[0]);
        (void)close(pair[1]);
        return false;
    }
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)close(pair[0]);
        close_sockets(&near);
        child.order_fd = pair[1];
        serve(options, &child);
    }
    (void)close(pair[1]);
    close_sockets(&child.sockets);
    target_out->pid = pid;
    target_out->order_fd = pair[0];
    target_out->socket_count = near.count;
    memcpy(target_out->sockets, near.fds, sizeof(target_out->sockets));
    if (pid < 0 || !meet(target_out)) {
        yb_bench_target_close(target_out);
        return false;
    }
    return true;
}

void
yb_bench_target_close(struct yb_bench_target *target)
{
    const struct yb_bench_order stop = {.kind = YB_BENCH_ORDER_STOP};

    if (target->order_fd > 0) {
        (void)!write(target->order_fd, &stop, sizeof(stop));
        (void)close(target->order_fd);
    }
    if (target->pid > 0) {
        (void)waitpid(target->pid, NULL, 0);
    }
    while (target->socket_count > 0) {
        (void)close(target->sockets[--target->socket_count]);
    }
    memset(target, 0, sizeof(*target));
}

bool
yb_bench_target_order(const struct yb_bench_target *target, const struct yb_bench_order *order)
{
    return write(target->order_fd, order, sizeof(*order)) == (ssize_t)sizeof(*order)
               ? true
               : complain("target", "it is gone");
}

bool
yb_bench_target_answer(const struct yb_bench_target *target, uint64_t *value_out)
{
    struct yb_bench_answer answer;

    if (read(target->order_fd, &answer, sizeof(answer)) != (ssize_t)sizeof(answer)) {
        return complain("target", "it is gone");
    }
    *value_out = answer.value;
    return answer.ok != 0;
}

bool
yb_bench_target_ask(const struct yb_bench_target *target, const struct yb_bench_order *order,
                    uint64_t *value_out)
{
    return yb_bench_target_order(target, order) && yb_bench_target_answer(target, value_out);
}
