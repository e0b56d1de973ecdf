/* SPDX-License-Identifier: Apache-2.0
 *
 * process_internal.h -- the parts of a process, shared by the two files that make it up.
 *
 *     process.c        what both forms share, and the client form
 *     process_serve.c  workers, the listening port, signals
 */
#ifndef YB_DAEMON_PROCESS_INTERNAL_H
#define YB_DAEMON_PROCESS_INTERNAL_H

#include <pthread.h>
#include <semaphore.h>

#include "daemon/process.h"
#include "net/auth.h"
#include "net/helper.h"
#include "net/loop.h"
#include "net/mailbox.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/tls.h"

#define YB_PROCESS_MAGIC 0x70726f63u

/* One event loop and its thread. Fields above the line are written by the main thread before the
 * thread starts, or by the worker before it posts `answered`; those below are the worker's. */
struct yb_process_worker {
    struct yb_process *process;
    uint32_t index;
    pthread_t thread;
    struct yb_loop *loop;
    struct yb_net *net;
    enum yb_status status; /* Of the last order. */
    struct yb_mail mail;   /* Carries `order`; one at a time. */
    void (*order)(struct yb_process_worker *worker);
    /* ---- */
    bool shut; /* Its time to drain is over. */
    uint64_t shut_at_ns;
    struct yb_timer drain_timer;
    struct yb_timer report_timer; /* The first worker's: lines that the log suppressed. */
};

struct yb_process {
    uint32_t magic;
    const struct yb_config *config;
    const struct yb_clock *clock;
    const struct yb_service *service;
    struct yb_log *log;
    struct yb_stats *stats;
    struct yb_span_ring *spans;
    struct yb_auth *auth; /* NULL: open. */
    struct yb_tls_context *tls_server;
    struct yb_tls_context *tls_client;
    struct yb_hello_self self;

    /* The client form: a loop on the calling thread. */
    struct yb_loop *loop;
    struct yb_net *net;

    /* The serving form. */
    struct yb_helper_pool *helpers;
    struct yb_replay *replay;
    struct yb_process_worker *workers;
    struct yb_net **nets;  /* One per worker; the server borrows the array. */
    uint32_t worker_count; /* Threads that run. */
    uint32_t connections_max;
    bool serving;   /* Signals are ours. */
    sem_t answered; /* Posted by a worker for each order that it has carried out. */
    struct yb_server *server;
    struct yb_address address;
    char why[YB_ADDRESS_WHY_BYTES];
};

/* What every loop and net of the process is made with, but for the loop itself. */
void yb_process_net_options(const struct yb_process *process, struct yb_loop_options *loop_out,
                            struct yb_net_options *net_out);

/* Make a loop and a net on the calling thread. On OK both are the caller's. */
YB_CHECKED enum yb_status yb_process_make_net(struct yb_process *process, struct yb_loop **loop_out,
                                              struct yb_net **net_out);

/* Write why a loop or net could not be made. */
void yb_process_explain_net(const struct yb_process *process, enum yb_status status,
                            char why_out[YB_PROCESS_WHY_BYTES]);

/* Stop and join every worker, give signals back. Harmless when nothing serves. */
void yb_process_stop(struct yb_process *process);

#endif /* YB_DAEMON_PROCESS_INTERNAL_H */
