/* SPDX-License-Identifier: Apache-2.0
 *
 * process.h -- from a checked configuration to a running process: wiring only.
 *
 * Everything that a role or a command stands on is made here, once, in order,
 * and taken apart in reverse: log, statistics, spans, credentials, TLS, who we
 * are, limits. Then one of two forms:
 *
 *     serve    the roles of this process (roles.h), each on a worker of its own; signals
 *     client   one loop and net on the calling thread, no listener, no thread
 *
 *     create --> serve --> wait --+--> destroy        create --> open_net --> destroy
 *                  ^              |
 *                  signals: TERM or INT once: stop listening, send GOAWAY, give running
 *                  requests net.drain_ms, then wait returns; twice: exit at once.
 *                  USR1: metrics to stderr, in the Prometheus text format.
 *
 * Invariants
 *   W2  After a failed create or serve nothing is left: no thread, descriptor or memory.
 *
 * Threads   One thread creates, serves, waits and destroys. Signal handlers may run on
 *           any thread; they set a flag and post a semaphore. One process object at a
 *           time may serve, because signals belong to the operating system's process.
 * Memory    The configuration is borrowed for the process's life.
 * Time      From yb_clock_system().
 */
#ifndef YB_DAEMON_PROCESS_H
#define YB_DAEMON_PROCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/config.h"
#include "base/log.h"
#include "base/span.h"
#include "base/stats.h"
#include "net/address.h"
#include "net/hello.h"
#include "net/net.h"
#include "yuebing/status.h"

/* Room for a sentence that names what is wrong and what to do. */
#define YB_PROCESS_WHY_BYTES 1536u

struct yb_metadata;
struct yb_process;
struct yb_roles;
struct yb_roles_options;

struct yb_process_options {
    const struct yb_config *config;
    const char *port_name; /* What strangers are told this port is. */
    int log_fd;
    bool known_paths;             /* The admin port answers known_http.h, too ... */
    struct yb_metadata *metadata; /* ... with these values; NULL: none. Borrowed. */
};

/* Make everything that both forms share; ignores SIGPIPE from here on.
 *
 * On OK, *process_out is owned by the caller. Otherwise why_out says what is wrong. Fails with
 * INVALID (parameters that contradict each other), NO_MEMORY, or as yb_credentials_load() does
 * for the files that the configuration names. */
YB_CHECKED enum yb_status yb_process_create(const struct yb_process_options *options,
                                            struct yb_process **process_out,
                                            char why_out[YB_PROCESS_WHY_BYTES]);

/* Stop what runs, consume the process and set *process to NULL; NULL is allowed inside. */
void yb_process_destroy(struct yb_process **process);

/* Start the roles, which listen: see yb_roles_start(). Takes the signals.
 *
 * Fails as yb_roles_start() does, and why_out says what to do. */
YB_CHECKED enum yb_status yb_process_serve(struct yb_process *process,
                                           const struct yb_roles_options *options,
                                           char why_out[YB_PROCESS_WHY_BYTES]);

/* Wait for a signal to stop, answer SIGUSR1 meanwhile, then drain. Everything that was served is
 * over when it returns. */
void yb_process_wait(struct yb_process *process);

/* Return what serves here; after serve, until wait returns. Borrowed. */
struct yb_roles *yb_process_roles(struct yb_process *process);

/* Return where the admin port listens; false: there is none. */
bool yb_process_admin_address(const struct yb_process *process, struct yb_address *address_out);

/* Return the name of the io that the process's loop uses; after open_net. Static. */
const char *yb_process_io_name(const struct yb_process *process);

/* The client form: make a loop and a net on the calling thread, which must be the one that
 * destroys the process. The net is borrowed until then; its peers must be destroyed before.
 *
 * Fails with DENIED (the secret file has no key for our role and tenant), UNSUPPORTED or
 * NO_MEMORY. */
YB_CHECKED enum yb_status yb_process_open_net(struct yb_process *process, struct yb_net **net_out,
                                              char why_out[YB_PROCESS_WHY_BYTES]);

/* Borrowed until destroy. */
const struct yb_hello_self *yb_process_self(const struct yb_process *process);
struct yb_log *yb_process_log(struct yb_process *process);
struct yb_stats *yb_process_stats(struct yb_process *process);
struct yb_span_ring *yb_process_spans(struct yb_process *process);

#endif /* YB_DAEMON_PROCESS_H */
