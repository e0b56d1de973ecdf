/* SPDX-License-Identifier: Apache-2.0
 *
 * visit.h -- ask the directory, on the calling thread and on a loop of its own, as any other client
 * would: no worker of the process waits, or is waited for.
 *
 * Threads   One visit, one thread.
 * Memory    The process is borrowed for the visit's life.
 */
#ifndef YB_DAEMON_VISIT_H
#define YB_DAEMON_VISIT_H

#include "daemon/process.h"
#include "net/address.h"
#include "net/hello.h"
#include "net/loop.h"
#include "yuebing/status.h"

#define YB_VISIT_ASK_NS (2 * YB_NS_PER_S) /* For an answer. */

struct yb_peer;

struct yb_visit {
    const struct yb_process *process;
    struct yb_hello_self self;
    struct yb_loop *loop;
    struct yb_net *net;
    struct yb_peer *peer;
    uint8_t *reply;
    uint32_t reply_bytes; /* Of the last answer. */
    bool done;
};

struct yb_visit_body {
    const void *bytes;
    size_t length;
};

/* Begin as an administrator, or as a client of `tenant`. On OK it is to be ended. */
YB_CHECKED enum yb_status yb_visit_begin(const struct yb_process *process,
                                         const struct yb_address *directory, const char *tenant,
                                         struct yb_visit *visit_out);
void yb_visit_end(struct yb_visit *visit);

/* Ask, and wait for the answer, YB_VISIT_ASK_NS at most. Returns what it says. */
YB_CHECKED enum yb_status yb_visit_ask(struct yb_visit *visit, uint16_t type,
                                       struct yb_visit_body body, bool mutates);

#endif /* YB_DAEMON_VISIT_H */
