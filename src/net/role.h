/* SPDX-License-Identifier: Apache-2.0
 *
 * role.h -- a state machine on a worker of its own, with a port: what a directory and a node of a
 * real process have in common.
 *
 *     create --> listen --> begin ~~> close_port --> drain --> end --> destroy
 *        |          |         |
 *        +----------+---------+-- a failure: end and destroy, from wherever it stands
 *
 * Invariants
 *   W1  What is published was bound first and read back.
 *   W3  No worker waits for another or for the thread that ends the role; that one waits for the
 *       worker, which answers from its loop.
 *
 * Threads   One thread at a time makes and ends a role; events run on the role's worker.
 * Memory    The role owns its worker, replay records and server; the owner outlives it.
 * Time      The clock of its loop.
 */
#ifndef YB_NET_ROLE_H
#define YB_NET_ROLE_H

#include <stdbool.h>
#include <stdint.h>

#include "net/address.h"
#include "net/hello.h"
#include "net/worker.h"
#include "yuebing/status.h"

struct yb_role;

/* How often `pulse` runs. */
#define YB_ROLE_PULSE_NS (250 * YB_NS_PER_MS)

/* All on the role's worker; those that may be NULL say so. */
struct yb_role_events {
    enum yb_status (*begin)(void *owner, struct yb_net *net);
    void (*pulse)(void *owner);
    void (*leave)(void *owner); /* NULL: nothing. Before the net is drained. */
    void (*stop)(void *owner);  /* Only after begin. */
    bool (*idle)(void *owner);  /* Only after begin. */
    void (*destroy)(void *owner);
};

struct yb_role_options {
    const char *name;                /* For the log. Borrowed. */
    struct yb_hello_self self;       /* As the others see it; copied. */
    struct yb_worker_options worker; /* Without self, service and replay, which are filled in. */
    const struct yb_service *service;
    uint32_t replay_records;
    uint64_t replay_bytes;
    bool insecure;
    uint32_t connections_max;
    uint32_t unauthenticated_max;
    const struct yb_role_events *events;
    void *owner;
};

/* Start the worker. Fails as yb_worker_create() and yb_replay_create(). */
YB_CHECKED enum yb_status yb_role_create(const struct yb_role_options *options,
                                         struct yb_role **role_out);

/* Listen at the first candidate that works. Fails as yb_server_create(). */
YB_CHECKED enum yb_status yb_role_listen(struct yb_role *role,
                                         const struct yb_address_list *candidates,
                                         char why_out[YB_ADDRESS_WHY_BYTES]);

/* Run `begin`, and `pulse` from now on. */
YB_CHECKED enum yb_status yb_role_begin(struct yb_role *role);

/* Wait until it is `wanted`, as the worker finds, at most `limit_ns`. Returns whether it is. */
bool yb_role_await(struct yb_role *role, bool (*wanted)(void *owner), uint64_t limit_ns);

/* Listen no more, say so to everybody, and take no new requests. */
void yb_role_close_port(struct yb_role *role);

/* Let what is asked be answered, no later than `until_ns`. */
void yb_role_drain(struct yb_role *role, uint64_t until_ns);

/* End everything and wait until it is at rest; then run `destroy`. The worker still turns, for mail
 * that is on its way. */
void yb_role_end(struct yb_role *role);

/* End the worker, and set *role to NULL; after yb_role_end(). */
void yb_role_destroy(struct yb_role **role);

/* What it listens on, after listen. */
struct yb_address yb_role_address(const struct yb_role *role);
struct yb_worker *yb_role_worker(const struct yb_role *role);
/* Whose hello it is; borrowed for the role's life. */
const struct yb_hello_self *yb_role_self(const struct yb_role *role);

#endif /* YB_NET_ROLE_H */
