/* SPDX-License-Identifier: Apache-2.0 */
#include "net/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpus.h"
#include "base/lock.h"

#define WORKER_MAGIC       0x776f726bu
#define BEFORE_OTHERS_NICE (-10)
#define SHUT_TURN_NS       (10 * YB_NS_PER_MS)
#define PROMISE_NS         (50 * YB_NS_PER_US)
#define LENT_NS            (2 * YB_NS_PER_MS) /* Then a loop that nobody took goes back. */

enum loop_state { LOOP_OWN, LOOP_FREE, LOOP_TAKEN };

struct yb_worker {
    uint32_t magic;
    struct yb_worker_options options;
    bool driven;   /* By the thread that calls, instead of its own. */
    bool lendable; /* Immutable once it has started. */
    pthread_t thread;
    sem_t ready;
    sem_t leave;           /* Posted when nobody outside touches the loop any more. */
    enum yb_status status; /* Of starting; read after `ready`. */
    struct yb_loop *loop;
    struct yb_net *net;

    _Atomic(bool) wanted;   /* Somebody would have taken the loop. A hint. */
    _Atomic(bool) promised; /* It is going to be free in a moment. A hint. */
    struct yb_lock lock;    /* Protects everything below. */
    pthread_cond_t changed;
    enum loop_state state;
    bool woken;     /* Mail came while it was not OWN. */
    uint64_t takes; /* So far. */
};

static void
wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
        YB_ASSERT(errno == EINTR);
    }
}

/* ---- lending the loop ------------------------------------------------------------------------ */

/* Mail has come while the loop slept, or nobody had it. */
static void
on_woken(void *owner)
{
    struct yb_worker *worker = owner;

    yb_lock_acquire(&worker->lock);
    worker->woken = true;
    if (worker->state == LOOP_FREE) {
        (void)pthread_cond_signal(&worker->changed);
    }
    yb_lock_release(&worker->lock);
}

static bool
may_lend(struct yb_worker *worker)
{
    return worker->lendable && atomic_load_explicit(&worker->wanted, memory_order_relaxed) &&
           worker->options.calm(worker->options.calm_owner);
}

void
yb_worker_calmed(struct yb_worker *worker)
{
    if (may_lend(worker)) {
        atomic_store(&worker->promised, true);
        yb_loop_cut(worker->loop);
    }
}

/* Let the loop rest. Whether its first mail has not come yet: `woken` tells it from here on. */
static bool
rest(struct yb_worker *worker)
{
    yb_lock_acquire(&worker->lock);
    worker->woken = false;
    yb_lock_release(&worker->lock);
    return yb_loop_rest(worker->loop);
}

/* Go on with a loop that rested, on this thread. */
static void
resume(struct yb_worker *worker)
{
    yb_loop_resume(worker->loop);
    yb_net_hand_over(worker->net);
}

/* Leave the loop to those who want it, until there is mail or nobody does. */
static void
lend(struct yb_worker *worker)
{
    uint64_t takes;

    atomic_store_explicit(&worker->wanted, false, memory_order_relaxed);
    if (!rest(worker)) {
        atomic_store(&worker->promised, false);
        return;
    }
    yb_lock_acquire(&worker->lock);
    worker->state = worker->woken ? LOOP_OWN : LOOP_FREE;
    atomic_store(&worker->promised, false);
    takes = worker->takes;
    while (worker->state != LOOP_OWN) {
        bool in_time = yb_lock_wait(&worker->lock, &worker->changed, LENT_NS);

        if (worker->state == LOOP_FREE && (worker->woken || yb_loop_stopping(worker->loop) ||
                                           (!in_time && worker->takes == takes))) {
            worker->state = LOOP_OWN;
        }
        takes = in_time ? takes : worker->takes;
    }
    yb_lock_release(&worker->lock);
    resume(worker);
}

/* Wait for the moment in which a promise is kept. */
static void
await_promise(const struct yb_worker *worker)
{
    const struct yb_clock *clock = yb_clock_system();
    uint64_t until_ns = 0;

    while (atomic_load(&worker->promised)) {
        uint64_t now_ns = yb_clock_now(clock);

        until_ns = until_ns == 0 ? now_ns + PROMISE_NS : until_ns;
        if (now_ns >= until_ns) {
            break;
        }
        (void)sched_yield(); /* The worker may be in line for this very core. */
    }
}

bool
yb_worker_take(struct yb_worker *worker)
{
    bool taken;

    YB_ASSERT_OBJ(worker, WORKER_MAGIC);
    if (!worker->lendable) {
        return false;
    }
    await_promise(worker);
    yb_lock_acquire(&worker->lock);
    taken = worker->state == LOOP_FREE && !worker->woken;
    if (taken) {
        worker->state = LOOP_TAKEN;
        worker->takes++;
    }
    yb_lock_release(&worker->lock);
    if (taken) {
        resume(worker);
    } else {
        atomic_store_explicit(&worker->wanted, true, memory_order_relaxed);
    }
    return taken;
}

void
yb_worker_give(struct yb_worker *worker, bool busy)
{
    busy = !rest(worker) || busy;
    yb_lock_acquire(&worker->lock);
    YB_ASSERT(worker->state == LOOP_TAKEN);
    worker->state = busy || worker->woken ? LOOP_OWN : LOOP_FREE;
    if (worker->state == LOOP_OWN) {
        (void)pthread_cond_signal(&worker->changed);
    }
    yb_lock_release(&worker->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

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
        return status;
    }
    /* A ring of io_uring belongs to the thread that made it. */
    worker->lendable = !worker->driven && worker->options.calm != NULL &&
                       strcmp(yb_loop_io(worker->loop)->ops->name, "epoll") == 0;
    return YB_OK;
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

    yb_cpus_as_process();
    if (worker->options.before_others) {
        (void)setpriority(PRIO_PROCESS, (id_t)gettid(), BEFORE_OTHERS_NICE);
    }
    worker->status = start(worker);
    (void)sem_post(&worker->ready);
    if (worker->status != YB_OK) {
        return NULL;
    }
    while (!yb_loop_stopping(worker->loop)) {
        if (may_lend(worker)) {
            lend(worker);
        }
        atomic_store_explicit(&worker->promised, false, memory_order_relaxed);
        yb_loop_turn(worker->loop, YB_NEVER);
    }
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
    YB_ASSERT(pthread_cond_destroy(&worker->changed) == 0);
    yb_lock_fini(&worker->lock);
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
    worker->options.loop.woken = on_woken;
    worker->options.loop.woken_owner = worker;
    yb_lock_init(&worker->lock, YB_LOCK_WORKER);
    yb_lock_cond_init(&worker->changed);
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
