/* SPDX-License-Identifier: Apache-2.0 */
#include "net/worker.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/check.h"

#define WORKER_MAGIC 0x776f726bu
#define SHUT_TURN_NS (10 * YB_NS_PER_MS)

struct yb_worker {
    uint32_t magic;
    struct yb_worker_options options;
    bool driven; /* By the thread that calls, instead of its own. */
    pthread_t thread;
    sem_t ready;
    sem_t leave;           /* Posted when nobody outside touches the loop any more. */
    enum yb_status status; /* Of starting; read after `ready`. */
    struct yb_loop *loop;
    struct yb_net *net;
};

static void
wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
        YB_ASSERT(errno == EINTR);
    }
}

static enum yb_status
start(struct yb_worker *worker)
{
    enum yb_status status = yb_loop_create(&worker->options.loop, &worker->loop);

    if (status != YB_OK) {
        return status;
    }
    worker->options.net.loop = worker->loop;
    status = yb_net_create(&worker->options.net, &worker->net);
    if (status != YB_OK) {
        yb_loop_destroy(&worker->loop);
    }
    return status;
}

static void
finish(struct yb_worker *worker)
{
    yb_net_destroy(&worker->net);
    yb_loop_destroy(&worker->loop);
}

static void *
worker_main(void *arg)
{
    struct yb_worker *worker = arg;

    worker->status = start(worker);
    (void)sem_post(&worker->ready);
    if (worker->status != YB_OK) {
        return NULL;
    }
    yb_loop_run(worker->loop);
    yb_net_shut(worker->net);
    while (!yb_net_idle(worker->net)) {
        yb_loop_turn(worker->loop, SHUT_TURN_NS);
        yb_net_shut(worker->net); /* One more may have come by mail. */
    }
    wait_for(&worker->leave); /* Whoever stopped the loop may still be waking it. */
    finish(worker);
    return NULL;
}

/* Whether the caller is on the worker's thread. */
static bool
is_inside(const struct yb_worker *worker)
{
    return !worker->driven && pthread_equal(pthread_self(), worker->thread);
}

static void
free_worker(struct yb_worker *worker)
{
    (void)sem_destroy(&worker->ready);
    (void)sem_destroy(&worker->leave);
    worker->magic = 0;
    free(worker);
}

static enum yb_status
start_thread(struct yb_worker *worker)
{
    if (pthread_create(&worker->thread, NULL, worker_main, worker) != 0) {
        return YB_NO_MEMORY;
    }
    wait_for(&worker->ready);
    if (worker->status != YB_OK) {
        YB_ASSERT(pthread_join(worker->thread, NULL) == 0);
    }
    return worker->status;
}

enum yb_status
yb_worker_create(const struct yb_worker_options *options, struct yb_worker **worker_out)
{
    struct yb_worker *worker = calloc(1, sizeof(*worker));
    enum yb_status status;

    if (worker == NULL) {
        return YB_NO_MEMORY;
    }
    worker->magic = WORKER_MAGIC;
    worker->options = *options;
    YB_ASSERT(sem_init(&worker->ready, 0, 0) == 0);
    YB_ASSERT(sem_init(&worker->leave, 0, 0) == 0);
    worker->driven = options->loop.io != NULL;
    status = worker->driven ? start(worker) : start_thread(worker);
    if (status != YB_OK) {
        free_worker(worker);
        return status;
    }
    *worker_out = worker;
    return YB_OK;
}

struct order {
    struct yb_mail mail;
    void (*run)(void *context);
    void *context;
    sem_t done;
};

static void
run_order(struct yb_mail *mail)
{
    struct order *order = (struct order *)((uint8_t *)mail - offsetof(struct order, mail));

    order->run(order->context);
    (void)sem_post(&order->done);
}

void
yb_worker_run(struct yb_worker *worker, void (*run)(void *context), void *context)
{
    struct order order = {.run = run, .context = context};

    YB_ASSERT_OBJ(worker, WORKER_MAGIC);
    YB_ASSERT(!is_inside(worker));
    YB_ASSERT(sem_init(&order.done, 0, 0) == 0);
    yb_mail_init(&order.mail, run_order);
    /* Its room is the caller, who waits: there are no more of these than threads. */
    yb_mailbox_post_reply(yb_loop_mailbox(worker->loop), &order.mail);
    while (worker->driven && sem_trywait(&order.done) != 0) {
        yb_loop_turn(worker->loop, 0);
    }
    if (!worker->driven) {
        wait_for(&order.done);
    }
    (void)sem_destroy(&order.done);
}

void
yb_worker_destroy(struct yb_worker **worker_ref)
{
    struct yb_worker *worker = *worker_ref;

    YB_ASSERT_OBJ(worker, WORKER_MAGIC);
    YB_ASSERT(!is_inside(worker));
    *worker_ref = NULL;
    if (worker->driven) {
        finish(worker);
        free_worker(worker);
        return;
    }
    yb_loop_stop(worker->loop);
    (void)sem_post(&worker->leave);
    YB_ASSERT(pthread_join(worker->thread, NULL) == 0);
    free_worker(worker);
}

struct yb_loop *
yb_worker_loop(struct yb_worker *worker)
{
    return worker->loop;
}

struct yb_net *
yb_worker_net(struct yb_worker *worker)
{
    return worker->net;
}
