/* SPDX-License-Identifier: Apache-2.0
 *
 * process_internal.h -- the parts of a process, shared by the two files that make it up.
 *
 *     process.c        what both forms share, and the client form
 *     process_serve.c  signals, and the roles (roles.h) that serve
 */
#ifndef YB_DAEMON_PROCESS_INTERNAL_H
#define YB_DAEMON_PROCESS_INTERNAL_H

#include <semaphore.h>

#include "daemon/process.h"
#include "net/credentials.h"
#include "net/loop.h"
#include "net/worker.h"
#include "observe/otlp.h"

#define YB_PROCESS_MAGIC 0x70726f63u

struct yb_process {
    uint32_t magic;
    const struct yb_config *config;
    const struct yb_clock *clock;
    struct yb_log *log;
    struct yb_stats *stats;
    struct yb_span_ring *spans;
    struct yb_credentials credentials;
    struct yb_hello_self self;

    /* The client form: a loop on the calling thread. */
    struct yb_loop *loop;
    struct yb_net *net;

    /* The serving form. */
    struct yb_roles *roles;
    struct yb_admin *admin;              /* NULL: there is no admin port. */
    struct yb_conductor_host *conductor; /* NULL: there is none here. */
    struct yb_otlp *otlp;                /* NULL: no collector gets the spans. */
    bool known_paths;                    /* It answers known_http.h, too, with ... */
    struct yb_metadata *metadata;
    uint32_t connections_max; /* Of each port. */
    bool serving;             /* Signals are ours. */
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

/* Stop the roles, give signals back. Harmless when nothing serves. */
void yb_process_stop(struct yb_process *process);

#endif /* YB_DAEMON_PROCESS_INTERNAL_H */
