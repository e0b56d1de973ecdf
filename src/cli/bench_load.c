/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_load.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

struct worker {
    struct yb_bench_load *load;
    pthread_t thread;
    uint32_t number;
    uint32_t at;
    uint8_t *memory;
};

struct yb_bench_load {
    struct yb_client *client;
    struct worker workers[THREADS];
    uint32_t worker_count; /* That run. */
    sem_t gate;            /* Each worker takes one, and works until `on` is false. */
    sem_t parked;          /* And gives one here then. */
    _Atomic(bool) on;
    _Atomic(bool) over;
    _Atomic(uint64_t) bytes;
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
    if (put ? yb_client_put(worker->load->client, items, BATCH, &call) == YB_OK
            : yb_client_get(worker->load->client, items, BATCH, &call) == YB_OK) {
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
        while (sem_wait(&load->gate) != 0) {
        }
        if (atomic_load(&load->over)) {
            return NULL;
        }
        for (bool put = true; atomic_load(&load->on); put = !put) {
            move(worker, put);
        }
        (void)sem_post(&load->parked);
    }
}

/* Open the client, and begin the threads. */
static bool
begin(struct yb_bench_load *load, struct yb_cli *cli)
{
    int code = 0;

    if (yb_cli_open_client(cli, OPEN_NS, &load->client, &code) != YB_OK) {
        return false;
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        struct worker *worker = &load->workers[i];

        *worker = (struct worker){.load = load, .number = i, .memory = calloc(BATCH, BLOCK_BYTES)};
        if (worker->memory == NULL || pthread_create(&worker->thread, NULL, run, worker) != 0) {
            fprintf(cli->err, "yuebing bench: no memory, or no thread\n");
            return false;
        }
        load->worker_count++;
    }
    return true;
}

struct yb_bench_load *
yb_bench_load_open(struct yb_cli *cli)
{
    struct yb_bench_load *load = calloc(1, sizeof(*load));
    struct sched_param given, below;
    int policy;
    bool lower;
    bool begun;

    if (load == NULL) {
        fprintf(cli->err, "yuebing bench: no memory\n");
        return NULL;
    }
    YB_ASSERT(sem_init(&load->gate, 0, 0) == 0 && sem_init(&load->parked, 0, 0) == 0);
    YB_ASSERT(pthread_getschedparam(pthread_self(), &policy, &given) == 0);
    below = (struct sched_param){.sched_priority = given.sched_priority - 1};
    /* Threads have the priority of whoever makes them. */
    lower = given.sched_priority > 1 && pthread_setschedparam(pthread_self(), policy, &below) == 0;
    begun = begin(load, cli);
    if (lower) {
        (void)pthread_setschedparam(pthread_self(), policy, &given);
    }
    if (!begun) {
        yb_bench_load_close(&load);
    }
    return load;
}

void
yb_bench_load_switch(struct yb_bench_load *load, bool on)
{
    if (atomic_exchange(&load->on, on) == on) {
        return;
    }
    for (uint32_t i = 0; i < load->worker_count; i++) {
        if (on) {
            (void)sem_post(&load->gate);
            continue;
        }
        while (sem_wait(&load->parked) != 0) {
        }
    }
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
    yb_bench_load_switch(load, false);
    atomic_store(&load->over, true);
    for (uint32_t i = 0; i < load->worker_count; i++) {
        (void)sem_post(&load->gate);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        if (i < load->worker_count) {
            YB_ASSERT(pthread_join(load->workers[i].thread, NULL) == 0);
        }
        free(load->workers[i].memory);
    }
    if (load->client != NULL) {
        yb_client_close(&load->client);
    }
    (void)sem_destroy(&load->gate);
    (void)sem_destroy(&load->parked);
    free(load);
}
