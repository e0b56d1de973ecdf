/* SPDX-License-Identifier: Apache-2.0
 *
 * worker.h -- a thread with an event loop and a net of its own.
 *
 * What a worker owns is made on its thread and used there only. Others send it
 * mail (yb_worker_loop, mailbox.h), or have it run an order and wait for that.
 *
 * Driven    Given an io, a worker has no thread: that of its creator is the worker's and
 *           turns its loop, and so does an order until it was carried out. A simulation
 *           holds many workers in one thread this way.
 *
 * Lent      A thread that waits for what the worker is going to do may turn the loop itself, which
 *           saves waking two threads for each message: neither the worker for the question nor
 *           the caller for the answer.
 *
 *                     wanted, and `calm`            take
 *               OWN ------------------> FREE ----------------> TAKEN
 *                ^                        |  ^                   |
 *                +-- mail, or not taken --+  +------- give ------+
 *                +----------------- give, with work left --------+
 *
 *           While the loop is FREE nobody looks at sockets and timers, for twice LENT_NS (2 ms) at
 *           most. Whoever has taken it is on the worker's thread as far as the loop, the net
 *           and everything on them is concerned.
 *
 * Threads   take: any thread, which then gives. create, run and destroy: any thread that is not a
 *           worker's; a worker that waited for another could wait for itself.
 * Memory    The worker owns its loop and net; what the options name is borrowed.
 */
#ifndef YB_NET_WORKER_H
#define YB_NET_WORKER_H

#include "net/loop.h"
#include "net/net.h"
#include "yuebing/status.h"

struct yb_worker;

struct yb_worker_options {
    struct yb_loop_options loop; /* With an `io` the worker is driven. */
    struct yb_net_options net;   /* Its `loop` is filled in by the worker. */
    bool before_others; /* Its thread asks the kernel for precedence; without the right it does not
                         * get it. For what is short and must not wait for those that compute. */

    /* On the worker's thread: whether nothing is under way that somebody waits for, so that the
     * loop may be lent. NULL: it never is, nor with another io than epoll. */
    bool (*calm)(void *owner);
    void *calm_owner;
};

/* Start the thread; returns when its loop and net are there. Fails as yb_loop_create() and
 * yb_net_create() do, or with NO_MEMORY. */
YB_CHECKED enum yb_status yb_worker_create(const struct yb_worker_options *options,
                                           struct yb_worker **worker_out);

/* Run `order(context)` on the worker's thread, between two events, and wait until it has run. */
void yb_worker_run(struct yb_worker *worker, void (*order)(void *context), void *context);

/* On the worker's thread, before anybody is told of the end of what was under way: if the loop is
 * wanted, it is going to be free in a moment, and take waits for that. */
void yb_worker_calmed(struct yb_worker *worker);

/* Take the loop, to turn it here until give. False: it is not free; it will be, once `calm`. */
YB_CHECKED bool yb_worker_take(struct yb_worker *worker);

/* Give the loop back. `busy`: to the worker's own thread, since something is under way. */
void yb_worker_give(struct yb_worker *worker, bool busy);

/* Abort the worker's connections, wait until they are gone, end the thread, and set *worker to
 * NULL. Peers, servers and timers on it must be gone before, and a driven worker's connections. */
void yb_worker_destroy(struct yb_worker **worker);

struct yb_loop *yb_worker_loop(struct yb_worker *worker);
struct yb_net *yb_worker_net(struct yb_worker *worker);

#endif /* YB_NET_WORKER_H */
