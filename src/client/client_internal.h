/* SPDX-License-Identifier: Apache-2.0
 *
 * client_internal.h -- a client as programs with threads have it: one worker, and the core on it.
 *
 *     client.c        open, close, forks, what a client is made of
 *     client_batch.c  batches: records and handles, mail to the worker, waiting
 *     client_look.c   listings, removal by pattern, nodes, counters
 *     client_drain.c  orders of an administrator
 *     client_fetch.c  fetches: items that end one by one
 *     client_beside.c what src/compat needs: where values are, and copies of them
 *     client_pin.c    memory of this host: the engine, what is registered, what is borrowed
 *     chain.c         keys of sequences
 *
 * A batch is a record: it is filled by the caller's thread, goes to the worker by mail, and comes
 * back by its state.
 *
 *     FREE --begin--> RUNNING --worker--> ENDED --finish--> FREE, one generation later
 *
 * Who turns the worker's loop. A caller that waits for its batch takes the loop over if it is free
 * (net/worker.h), and is then the worker. It runs no callback of others: those wait until the
 * worker's own thread has the loop again, which it gets as long as batches with callbacks run.
 *
 * Locks: one per client, rank CLIENT: records, users, closing. The core is the worker's and needs
 * none. No callback runs under the lock.
 *
 * Closing. Whoever is inside a function is counted as a user. Close refuses new ones, ends what
 * runs, and waits until the last user has left; then nobody looks at the client any more.
 *
 * Forks. A page that the kernel wipes in a child (MADV_WIPEONFORK) tells the child that it is one,
 * at the price of one load per call.
 */
#ifndef YB_CLIENT_CLIENT_INTERNAL_H
#define YB_CLIENT_CLIENT_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/lock.h"
#include "client/core.h"
#include "net/credentials.h"
#include "net/worker.h"

#define YB_CLIENT_MAGIC       0x5942434cu /* "YBCL" */
#define YB_CLIENT_RECORDS_MAX 4096u /* Batches that run, or have ended and were not finished. */

enum yb_client_record_state {
    YB_CLIENT_RECORD_FREE,
    YB_CLIENT_RECORD_RUNNING,
    YB_CLIENT_RECORD_ENDED,
};

/* A fetch, as its caller sees it. Under the client's lock. */
struct yb_client_fetching;

struct yb_client_record {
    struct yb_client *client;
    uint32_t slot;           /* Immutable. */
    uint32_t generation;     /* Under the lock. */
    _Atomic(uint32_t) state; /* enum yb_client_record_state; written under the lock, read by
                                 * spinning waiters. */
    enum yb_status refused;  /* By the core; before ENDED the worker's. */
    struct yb_client_batch batch;
    struct yb_mail start;
    struct yb_mail cancel;
    struct yb_client_fetching *fetch; /* NULL: it is none. */
    bool cancelled;                   /* As a whole. */
    bool cancel_out;                  /* Under the lock: the mail is on its way ... */
    bool finished;                    /* ... and the record is given back when it has come. */
    pthread_cond_t changed;
    struct yb_client_record *told_next;
    void (*done)(void *owner, yb_client_handle handle); /* NULL: somebody waits. */
    void *owner;
    int event_fd;
};

/* What the kernel wipes in a child. */
struct yb_client_guard {
    _Atomic(uint32_t) alive;
};

struct yb_client {
    uint32_t magic;
    struct yb_client_guard *guard; /* A page of its own; NULL: `process` is compared instead. */
    pid_t process;
    char tenant[YB_AUTH_TENANT_MAX + 1];
    char rack[33];
    char zone[33];
    struct yb_credentials credentials;
    struct yb_hello_self self;
    struct yb_client_core_options core_options;
    struct yb_stats *stats;     /* Of its worker and its engine. */
    struct yb_transfer *engine; /* Under the client's identity. */
    char engine_address[YB_ADDRESS_TEXT_BYTES];
    struct yb_worker *worker;
    pthread_t thread; /* The worker's. */
    struct yb_client_core *core;
    struct yb_client_record *told; /* Whoever has the loop: ended, to be told on the worker ... */
    struct yb_client_record **told_tail; /* ... in this order. */
    _Atomic(uint32_t) callbacks;   /* Batches that run and end with one; written under the lock. */
    struct yb_client_admin *admin; /* The worker's; NULL: no such order was given yet. */
    _Atomic(uint32_t) spin_score;  /* Of waiting callers: yb_loop_spin_next(). A hint. */

    struct yb_lock lock;    /* Protects everything below. */
    pthread_cond_t changed; /* Somebody left, or there is news. */
    bool closing;
    uint32_t users;
    enum yb_status joined; /* What the directory said last; IN_PROGRESS: nothing yet. */
    struct yb_client_record *records[YB_CLIENT_RECORDS_MAX];
    uint32_t record_count;
    uint32_t free_records[YB_CLIENT_RECORDS_MAX];
    uint32_t free_count;
};

/* ---- client.c ---- */

/* Begin to use the client: INVALID (none, or a parent's), CLOSED; on OK leave() must follow. */
YB_CHECKED enum yb_status yb_client_enter(struct yb_client *client);
void yb_client_leave(struct yb_client *client);

/* Run an order on the worker's thread and wait; at once when that is the caller's. */
void yb_client_run(struct yb_client *client, void (*order)(void *context), void *context);

/* Whether the caller is the worker, which must not wait for itself. */
bool yb_client_inside(const struct yb_client *client);

/* Take the caller's struct, as much of it as it knows, and fill in defaults. */
YB_CHECKED enum yb_status yb_client_read_call(const struct yb_client_call *given,
                                              struct yb_client_call *call_out);

/* ---- client_batch.c ---- */

/* Run a batch whose caller's part, but for `done` and `owner`, is filled in, and wait for its
 * end. */
YB_CHECKED enum yb_status yb_client_run_batch(struct yb_client *client,
                                              struct yb_client_batch *batch);

/* Run a batch over items, for a caller that is not inside yet. */
YB_CHECKED enum yb_status yb_client_run_items(struct yb_client *client,
                                              enum yb_client_batch_kind kind,
                                              struct yb_client_item *items, uint32_t count,
                                              const struct yb_client_call *given);

/* Fill in a batch. */
struct yb_client_batch yb_client_make_batch(enum yb_client_batch_kind kind,
                                            struct yb_client_item *items, uint32_t count,
                                            const struct yb_client_call *call);

void yb_client_records_fini(struct yb_client *client);

/* How whoever began a batch hears of its end. */
struct yb_client_ending {
    void (*done)(void *owner, yb_client_handle handle);
    void *owner;
    int event_fd;
    struct yb_client_fetching *fetch; /* The record's, on OK. */
};

/* Begin; *record_out and *handle_out are set before the batch can end. */
YB_CHECKED enum yb_status yb_client_begin(struct yb_client *client,
                                          const struct yb_client_batch *batch,
                                          const struct yb_client_ending *ending,
                                          struct yb_client_record **record_out,
                                          yb_client_handle *handle_out);

/* Return the record that a handle names; NULL: it was given back, or never was. Under the lock. */
struct yb_client_record *yb_client_find(struct yb_client *client, yb_client_handle handle);
bool yb_client_has_ended(const struct yb_client_record *record);

/* Let the worker see what is to be cancelled. Under the lock. */
void yb_client_cancel_soon(struct yb_client_record *record);

/* Take the worker's loop, if what comes can be waited for by turning it; and give it back. */
YB_CHECKED bool yb_client_take_loop(struct yb_client *client);
void yb_client_give_loop(struct yb_client *client);

/* ---- client_fetch.c ---- */

/* Under the lock: all items have ended, and the record is done with. */
void yb_client_fetching_end(struct yb_client_fetching *fetch);
void yb_client_fetching_free(struct yb_client_fetching *fetch);

/* On the worker: end the items that were cancelled. */
void yb_client_fetching_cancel(struct yb_client_record *record);

/* ---- client_pin.c ---- */

/* Make the client's engine; the core's options are filled in, and get it too. */
YB_CHECKED enum yb_status yb_client_engine_create(struct yb_client *client,
                                                  const struct yb_client_options *options,
                                                  char *message, size_t bytes);

/* ---- client_look.c ---- */

/* Ask, on the worker, and wait; returns the answer's status. For who is inside, and no worker. */
YB_CHECKED enum yb_status yb_client_ask(struct yb_client *client, struct yb_client_look *look);

/* ---- client_drain.c ---- */

/* Give an order as an administrator and wait: to the directory, or, if `address` is not NULL, to
 * the node that serves there. Of `call` type, class, deadline, body and reply are the caller's. For
 * who is inside. */
YB_CHECKED enum yb_status yb_client_admin_call(struct yb_client *client, const char *address,
                                               const struct yb_call *call, uint32_t *reply_out);

/* All on the worker. */

void yb_client_admin_stop(struct yb_client *client);
bool yb_client_admin_idle(const struct yb_client *client);
void yb_client_admin_destroy(struct yb_client *client);

#endif /* YB_CLIENT_CLIENT_INTERNAL_H */
