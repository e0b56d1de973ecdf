/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_load.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "cli/store.h"
#include "yuebing/client.h"

#define THREADS     4u
#define BLOCK_BYTES (1u << 20)
#define BATCH       8u
#define KEYS        1024u /* Of each thread: more than nodes of a bench have memory for. */
#define OPEN_NS     (10 * YB_NS_PER_S)
#define CALL_NS     (2 * YB_NS_PER_S)
#define LOOK_NS     (100 * YB_NS_PER_MS) /* Between looks whether the process still lives. */

/* What both processes see. */
struct yb_bench_load {
    pid_t pid;   /* Of the one that moves bytes; 0: it has ended. */
    sem_t gate;  /* Each of its threads takes one, and works until `on` is false. */
    sem_t ready; /* And gives one here then; the first ones when all of them are there. */
    _Atomic(bool) on;
    _Atomic(bool) over;
    _Atomic(uint64_t) bytes;
};

/* ---- the process that moves bytes ------------------------------------------------------------ */

struct worker {
    struct yb_bench_load *load;
    struct yb_client *client;
    pthread_t thread;
    uint32_t number;
    uint32_t at;
    uint8_t *memory;
};

/* Put the next blocks of the worker, or read those again that it put last. */
static void
move(struct worker *worker, bool put)
{
    struct yb_client_item items[BATCH];
    struct iovec iov[BATCH];
    char keys[BATCH][32];
    const struct yb_client_call call = {
        .struct_bytes = sizeof(call), .timeout_ns = CALL_NS, .work_class = YB_CLASS_BACKGROUND};
    uint64_t bytes = 0;

    memset(items, 0, sizeof(items));
    for (uint32_t i = 0; i < BATCH; i++) {
        iov[i] = (struct iovec){worker->memory + (size_t)i * BLOCK_BYTES, BLOCK_BYTES};
        items[i].key = keys[i];
        items[i].key_bytes = (uint32_t)snprintf(keys[i], sizeof(keys[i]), "load/%u/%u",
                                                worker->number, (worker->at + i) % KEYS);
        items[i].iov = &iov[i];
        items[i].iov_count = 1;
    }
    if (put ? yb_client_put(worker->client, items, BATCH, &call) == YB_OK
            : yb_client_get(worker->client, items, BATCH, &call) == YB_OK) {
        for (uint32_t i = 0; i < BATCH; i++) {
            bytes += items[i].status == YB_OK ? BLOCK_BYTES : 0;
        }
    }
    atomic_fetch_add(&worker->load->bytes, bytes);
    worker->at += put ? 0 : BATCH;
}

static void *
run(void *context)
{
    struct worker *worker = context;
    struct yb_bench_load *load = worker->load;

    for (;;) {
        (void)sem_post(&load->ready);
        while (sem_wait(&load->gate) != 0) {
        }
        if (atomic_load(&load->over)) {
            return NULL;
        }
        for (bool put = true; atomic_load(&load->on); put = !put) {
            move(worker, put);
        }
    }
}

/* Have the priority below that of who asked, if that is a real-time one. */
static void
go_below(void)
{
    struct sched_param given;

    if (sched_getparam(0, &given) == 0 && given.sched_priority > 1) {
        given.sched_priority--;
        (void)sched_setscheduler(0, sched_getscheduler(0), &given);
    }
}

/* Be that process. Returns its exit code. */
static int
be_load(struct yb_bench_load *load, struct yb_cli *cli)
{
    struct worker workers[THREADS];
    struct yb_client *client = NULL;
    uint32_t count = 0;
    int code = YB_CLI_EXIT_FAILED;

    go_below();
    if (yb_cli_open_client(cli, OPEN_NS, &client, &code) != YB_OK) {
        return code;
    }
    for (; count < THREADS; count++) {
        struct worker *worker = &workers[count];

        *worker = (struct worker){
            .load = load, .client = client, .number = count, .memory = calloc(BATCH, BLOCK_BYTES)};
        if (worker->memory == NULL || pthread_create(&worker->thread, NULL, run, worker) != 0) {
            fprintf(cli->err, "yuebing bench: no memory, or no thread\n");
            return YB_CLI_EXIT_FAILED;
        }
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        YB_ASSERT(pthread_join(workers[i].thread, NULL) == 0);
        free(workers[i].memory);
    }
    yb_client_close(&client);
    return 0;
}

/* ---- the one that measures ------------------------------------------------------------------- */

/* Wait until all its threads rest. False: the process has ended. */
static bool
await_rest(struct yb_bench_load *load)
{
    for (uint32_t i = 0; i < THREADS && load->pid > 0;) {
        const uint64_t until_ns = yb_clock_now(yb_clock_system()) + LOOK_NS;
        const struct timespec until = {
            .tv_sec = (time_t)(until_ns / YB_NS_PER_S),
            .tv_nsec = (long)(until_ns % YB_NS_PER_S),
        };

        if (sem_clockwait(&load->ready, CLOCK_MONOTONIC, &until) == 0) {
            i++;
        } else if (errno == ETIMEDOUT && waitpid(load->pid, NULL, WNOHANG) == load->pid) {
            load->pid = 0;
        }
    }
    return load->pid > 0;
}

struct yb_bench_load *
yb_bench_load_open(struct yb_cli *cli)
{
    struct yb_bench_load *load =
        mmap(NULL, sizeof(*load), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t parent = getpid();
    pid_t pid;

    if (load == MAP_FAILED) {
        fprintf(cli->err, "yuebing bench: no memory\n");
        return NULL;
    }
    YB_ASSERT(sem_init(&load->gate, 1, 0) == 0 && sem_init(&load->ready, 1, 0) == 0);
    pid = fork();
    if (pid == 0) {
        _exit(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent ? be_load(load, cli)
                                                                           : YB_CLI_EXIT_FAILED);
    }
    if (pid < 0) {
        fprintf(cli->err, "yuebing bench: no process\n");
    }
    load->pid = pid > 0 ? pid : 0;
    if (!await_rest(load)) {
        yb_bench_load_close(&load);
    }
    return load;
}

bool
yb_bench_load_switch(struct yb_bench_load *load, bool on)
{
    if (atomic_exchange(&load->on, on) == on) {
        return load->pid > 0;
    }
    for (uint32_t i = 0; on && i < THREADS; i++) {
        (void)sem_post(&load->gate);
    }
    return on ? load->pid > 0 : await_rest(load);
}

uint64_t
yb_bench_load_bytes(const struct yb_bench_load *load)
{
    return atomic_load(&load->bytes);
}

void
yb_bench_load_close(struct yb_bench_load **load_in)
{
    struct yb_bench_load *load = *load_in;

    if (load == NULL) {
        return;
    }
    *load_in = NULL;
    (void)yb_bench_load_switch(load, false);
    atomic_store(&load->over, true);
    for (uint32_t i = 0; i < THREADS; i++) {
        (void)sem_post(&load->gate);
    }
    if (load->pid > 0) {
        (void)waitpid(load->pid, NULL, 0);
    }
    (void)sem_destroy(&load->gate);
    (void)sem_destroy(&load->ready);
    (void)munmap(load, sizeof(*load));
}
