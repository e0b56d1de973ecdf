/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/conductor_carrier.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "base/check.h"
#include "base/cpus.h"
#include "base/queue.h"
#include "conductor/mover.h"
#include "conductor/service.h"
#include "conductor/wire/conductor_wire.h"
#include "daemon/process_internal.h"
#include "daemon/visit.h"

#define REST_NS (100 * YB_NS_PER_MS) /* Between looks whether it is time to stop, or to begin. */

struct yb_conductor_carrier {
    struct yb_queue *orders; /* Pointers. */
    const struct yb_process *process;
    struct yb_conductor_service *service;
    struct yb_address directory;
    pthread_t thread;
    bool started;
    sem_t stop; /* Posted once, then. */
    _Atomic(bool) stopping;
    _Atomic(struct yb_io *) io; /* To be woken by an order; NULL: nobody turns it. */

    /* Of the thread. */
    struct yb_visit visit;
    struct yb_conductor_mover *mover;
    struct yb_conductor_orders told; /* What its orders are at, as the service knows it. */
};

enum yb_status
yb_conductor_carrier_create(struct yb_conductor_carrier **carrier_out)
{
    struct yb_conductor_carrier *carrier = calloc(1, sizeof(*carrier));

    if (carrier == NULL || yb_queue_create("instructions", sizeof(struct yb_conductor_order *),
                                           YB_CONDUCTOR_ORDERS_MAX, &carrier->orders) != YB_OK) {
        free(carrier);
        return YB_NO_MEMORY;
    }
    YB_ASSERT(sem_init(&carrier->stop, 0, 0) == 0);
    *carrier_out = carrier;
    return YB_OK;
}

bool
yb_conductor_carrier_order(void *context, struct yb_conductor_order *order)
{
    struct yb_conductor_carrier *carrier = context;
    struct yb_io *io;

    if (atomic_load(&carrier->stopping) || yb_queue_try_push(carrier->orders, &order) != YB_OK) {
        return false;
    }
    io = atomic_load(&carrier->io);
    if (io != NULL) {
        yb_io_wake(io);
    }
    return true;
}

/* ---- the thread ------------------------------------------------------------------------------ */

static bool
on_wanted(void *owner, uint64_t id)
{
    return yb_conductor_service_wants(((struct yb_conductor_carrier *)owner)->service, id);
}

static void
on_moved(void *owner, const struct yb_conductor_moved *moved)
{
    yb_conductor_service_moved(((struct yb_conductor_carrier *)owner)->service, moved);
}

/* An order that is not begun. */
static void
refuse(struct yb_conductor_carrier *carrier, struct yb_conductor_order *order)
{
    const struct yb_conductor_moved moved = yb_conductor_order_cancelled(order);

    free(order);
    on_moved(carrier, &moved);
}

static void
take_orders(struct yb_conductor_carrier *carrier)
{
    struct yb_conductor_order *order;

    while (yb_queue_try_pop(carrier->orders, &order) == YB_OK) {
        if (yb_conductor_mover_take(carrier->mover, order) != YB_OK) {
            refuse(carrier, order);
        }
    }
}

/* Tell the service what the orders are at, if that is something else. */
static void
tell_orders(struct yb_conductor_carrier *carrier)
{
    const struct yb_conductor_orders now = yb_conductor_mover_orders(carrier->mover);

    if (now.under_way != carrier->told.under_way || now.watched != carrier->told.watched) {
        carrier->told = now;
        yb_conductor_service_orders(carrier->service, &now);
    }
}

/* Make the mover. Fails with NOT_READY: the seed of names is not known yet. */
static enum yb_status
begin(struct yb_conductor_carrier *carrier)
{
    struct yb_conductor_mover_options options = {
        .directory = carrier->directory,
        .spans = carrier->process->spans,
        .wanted = on_wanted,
        .moved = on_moved,
        .owner = carrier,
    };
    enum yb_status status;

    if (!yb_conductor_service_ready(carrier->service)) {
        return YB_NOT_READY;
    }
    status = yb_visit_begin(carrier->process, &carrier->directory, NULL, &carrier->visit);
    if (status != YB_OK) {
        return status;
    }
    yb_conductor_service_seed(carrier->service, options.hash_seed);
    options.net = carrier->visit.net;
    status = yb_conductor_mover_create(&options, &carrier->mover);
    if (status != YB_OK) {
        yb_visit_end(&carrier->visit);
    }
    return status;
}

static void
end(struct yb_conductor_carrier *carrier)
{
    struct yb_conductor_order *order;

    atomic_store(&carrier->io, NULL);
    while (yb_queue_try_pop(carrier->orders, &order) == YB_OK) {
        refuse(carrier, order);
    }
    yb_conductor_mover_stop(carrier->mover);
    while (!yb_conductor_mover_idle(carrier->mover)) {
        yb_loop_turn(carrier->visit.loop, YB_NS_PER_MS);
    }
    yb_conductor_mover_destroy(&carrier->mover);
    yb_visit_end(&carrier->visit);
}

/* Rest, unless it is time to stop. */
static void
rest(struct yb_conductor_carrier *carrier)
{
    const uint64_t until_ns = yb_clock_now(carrier->process->clock) + REST_NS;
    const struct timespec until = {
        .tv_sec = (time_t)(until_ns / YB_NS_PER_S),
        .tv_nsec = (long)(until_ns % YB_NS_PER_S),
    };

    (void)sem_clockwait(&carrier->stop, CLOCK_MONOTONIC, &until);
}

static void *
run(void *context)
{
    struct yb_conductor_carrier *carrier = context;

    yb_cpus_as_process();
    while (!atomic_load(&carrier->stopping) && begin(carrier) != YB_OK) {
        rest(carrier);
    }
    if (carrier->mover == NULL) {
        return NULL;
    }
    atomic_store(&carrier->io, yb_loop_io(carrier->visit.loop));
    while (!atomic_load(&carrier->stopping)) {
        take_orders(carrier);
        yb_loop_turn(carrier->visit.loop, REST_NS);
        tell_orders(carrier);
    }
    end(carrier);
    return NULL;
}

enum yb_status
yb_conductor_carrier_start(struct yb_conductor_carrier *carrier, const struct yb_process *process,
                           struct yb_conductor_service *service, struct yb_address directory)
{
    YB_ASSERT(!carrier->started);
    carrier->process = process;
    carrier->service = service;
    carrier->directory = directory;
    carrier->started = pthread_create(&carrier->thread, NULL, run, carrier) == 0;
    return carrier->started ? YB_OK : YB_NO_MEMORY;
}

void
yb_conductor_carrier_destroy(struct yb_conductor_carrier **carrier_in)
{
    struct yb_conductor_carrier *carrier = *carrier_in;
    struct yb_conductor_order *order;

    if (carrier == NULL) {
        return;
    }
    *carrier_in = NULL;
    atomic_store(&carrier->stopping, true);
    (void)sem_post(&carrier->stop);
    if (carrier->started) {
        YB_ASSERT(pthread_join(carrier->thread, NULL) == 0);
    }
    while (yb_queue_try_pop(carrier->orders, &order) == YB_OK) { /* Came while it ended. */
        refuse(carrier, order);
    }
    yb_queue_destroy(&carrier->orders);
    (void)sem_destroy(&carrier->stop);
    free(carrier);
}
