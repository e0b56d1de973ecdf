/* SPDX-License-Identifier: Apache-2.0
 *
 * net_world.h -- whole processes of net on the simulated network, and what must hold of them.
 *
 * A world holds nodes. A node is a host; while it is up one process lives there, with its own
 * loop, net, service, memory of results, server and one peer for every other node that serves:
 *
 *     down --world_start()--> up --world_crash(), world_stop()--> down --world_start()--> ...
 *
 * Each life of a node has an incarnation of its own and remembers nothing of the one before.
 * A test asks for things to happen (calls, faults), lets time pass, and asks what became of
 * them; the rules that hold whatever happens are checked by the world itself, at every
 * application of a mutation, at every `done` and after every step of world_run_ms():
 *
 * Invariants
 *   W1  `done` of an accepted call runs exactly once, never inside the submit, and by its
 *       deadline on the caller's clock.
 *   W2  Answered OK: the bytes are right, and a mutation was applied exactly once.
 *   W3  Unanswered and not sent, or answered AGAIN: never applied, then or later.
 *   W4  Unanswered, sent and naming an operation is IN_DOUBT, and only that is.
 *   W5  An operation is applied at most once by one life of a server; one that was asked for
 *       once is applied by one life at most.
 *   W6  Nobody reads a call's body or data, or writes its reply buffers, after `done`; nobody
 *       ever writes beyond them.
 *   W7  Credit in use is never more than what was granted.
 *   W8  Free lists, requests in service and remembered results stay within their bounds.
 *   W9  When a life has ended nothing of it is left.
 *
 * Threads   One.
 * Memory    The world owns everything; calls live until world_destroy(), which checks them again.
 * Failure   What does not hold is printed with the seed and the last events, and aborts.
 */
#ifndef YB_TESTS_NET_WORLD_H
#define YB_TESTS_NET_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "net/call.h"
#include "net/net.h"
#include "net/peer.h"
#include "net/replay.h"
#include "net/request.h"
#include "net/server.h"
#include "net/sim.h"

#define WORLD_NODES_MAX  5u
#define WORLD_LIVES_MAX  64u
#define WORLD_CALLS_MAX  2048u
#define WORLD_JOBS_MAX   256u
#define WORLD_KEY_COUNT  8u
#define WORLD_PORT       7000u
#define WORLD_GUARD      64u
#define WORLD_REMAINDERS 16u

/* What a call asks for: the frame types of the world's service. */
enum world_kind {
    WORLD_ADD = 100, /* A mutation; replies with the counter's new value. */
    WORLD_GET,       /* Replies with the counter's value. */
    WORLD_WRITE,     /* A mutation with data. */
    WORLD_READ,      /* Replies with data. */
    WORLD_DIGEST,    /* Takes data and replies with its hash; changes nothing. */
    WORLD_KIND_END,
};

struct world;
struct world_node;
struct world_call;
struct world_held;

/* One process. */
struct world_life {
    struct world *world;
    struct world_node *node;
    uint32_t number; /* Over all nodes, from 0. */
    bool over;
    bool draining;
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_replay *replay;
    struct yb_net *net;
    struct yb_server *server;
    struct yb_peer *peers[WORLD_NODES_MAX];
    struct yb_service service;
    struct yb_task task; /* Does what the test asked for, inside a turn of the loop. */
    struct {
        void (*run)(struct world_life *life, struct world_call *call);
        struct world_call *call;
    } jobs[WORLD_JOBS_MAX];
    uint32_t job_count;
    struct world_held *held; /* Requests that are answered later. */
    uint64_t counters[WORLD_KEY_COUNT];
    uint32_t handled; /* Requests that reached a method. */
    uint64_t random;
};

struct world_node {
    struct world *world;
    uint32_t number;
    bool serves;
    bool stalled;
    bool silent; /* Its host has lost power. */
    struct yb_sim_host *host;
    struct world_life *life; /* NULL: down. */
    uint64_t incarnation;
    uint64_t disturbed_ns; /* On its own clock: it was stopped, or its clock jumped. */
};

struct world_options {
    uint64_t seed;
    uint32_t node_count;
    uint32_t server_count; /* The first so many nodes serve. */
    uint32_t credit_requests;
    uint64_t credit_bytes;
    uint32_t replay_records;
    uint64_t replay_bytes;
    struct yb_net_limits limits;
};

/* What to ask for. Zeroes are the defaults. */
struct world_ask {
    enum world_kind kind;
    uint32_t to;
    enum yb_wire_lane lane;
    enum yb_class class;
    uint32_t key;
    uint32_t body_bytes;  /* More than the service needs: padding. */
    uint32_t data_bytes;  /* Sent or read. */
    uint32_t deadline_ms; /* 0: none. */
    uint32_t delay_us;    /* The service answers so much later. */
    bool fail_fast;
    bool says_again;                  /* The service says AGAIN half of the time. */
    bool refuses;                     /* The service refuses the data. */
    bool reply_too_small;             /* The caller's room is one byte short. */
    const struct world_call *same_as; /* A copy of that call, as late as it may be. */
};

/* One call, and what is known about it. */
struct world_call {
    struct yb_call call;
    struct world *world;
    struct world_life *life; /* The caller's; gone after its end. */
    struct world_ask ask;
    uint32_t number;
    uint32_t operation; /* Index of its operation; 0: none. */
    bool submitting;
    bool accepted;
    bool refused;           /* Not accepted, because of `refusal`. */
    bool cancelled_waiting; /* Cancelled while it waited: it must not be sent after that. */
    enum yb_status refusal;
    uint32_t done_count;
    uint64_t submitted_ns; /* On its caller's clock. */
    uint64_t done_ns;
    uint8_t *body;
    uint8_t *data;
    uint8_t *reply_area; /* Guard, reply body, guard, reply data, guard. */
    size_t reply_area_bytes;
    uint64_t reply_hash; /* Of the area when it was done (W6). */
    struct iovec data_iov[3];
    struct iovec reply_iov[3];
};

/* What happened to an operation. */
struct world_operation {
    uint8_t applied[WORLD_LIVES_MAX]; /* By each life. */
    uint32_t applied_count;
    bool asked_again; /* By the test, which sent a copy. */
};

struct world {
    struct world_options options;
    struct yb_sim *sim;
    struct world_node nodes[WORLD_NODES_MAX];
    struct world_life *lives[WORLD_LIVES_MAX];
    uint32_t life_count;
    struct world_call *calls[WORLD_CALLS_MAX];
    uint32_t call_count;
    uint32_t open_calls; /* Accepted and not done. */
    struct world_operation *operations;
    uint32_t operation_count;
    uint64_t digest;                         /* Of all outcomes: equal seeds, equal digests. */
    uint64_t remaining_us[WORLD_REMAINDERS]; /* Time left, as the service saw it; a ring. */
    uint64_t remaining_count;
    const char *repeat; /* What to type to see a failure again. */
};

#define WORLD_CHECK(world, condition)                              \
    do {                                                           \
        if (!(condition)) {                                        \
            world_failed((world), #condition, __FILE__, __LINE__); \
        }                                                          \
    } while (0)

_Noreturn void world_failed(const struct world *world, const char *what, const char *file,
                            int line);

/* A small and quick cluster: 16 requests and 1 MiB of credit, timeouts below a second. */
struct world_options world_options_default(uint64_t seed);

/* Make the nodes and start a life on each. */
struct world *world_create(const struct world_options *options);

/* Check everything once more, end all lives, and set *world to NULL. */
void world_destroy(struct world **world);

/* Let virtual time pass, checking W7 and W8 each millisecond. */
void world_run_ms(struct world *world, uint64_t ms);

/* Let time pass until every accepted call is done. Returns whether that was within `limit_ms`. */
bool world_run_until_done(struct world *world, uint64_t limit_ms);

/* Ask for something. The call is submitted when the caller's loop runs next. */
struct world_call *world_call(struct world *world, uint32_t from, const struct world_ask *ask);
void world_cancel(struct world_call *call);

/* Ask for something and let time pass until it is done, at most 60 s. */
struct world_call *world_call_and_wait(struct world *world, uint32_t from,
                                       const struct world_ask *ask);

static inline bool
world_is_done(const struct world_call *call)
{
    return call->done_count > 0;
}

/* How often a call's operation was applied, by all lives together. */
uint32_t world_applied(const struct world_call *call);

void world_start(struct world *world, uint32_t node);
void world_crash(struct world *world, uint32_t node, enum yb_sim_death how);

/* Tell every peer to go away from its present connections. */
void world_goaway(struct world *world, uint32_t node);

/* Stop listening and tell every peer to go away; world_stop() ends it. */
void world_drain(struct world *world, uint32_t node);
void world_stop(struct world *world, uint32_t node);

void world_stall(struct world *world, uint32_t node, bool stalled);
void world_skip(struct world *world, uint32_t node, uint64_t skip_ms);

/* Heal the network, resume what is stopped, start what is down. */
void world_heal(struct world *world);

/* Check what must hold when nothing is asked for any more: all credit is back. */
void world_check_quiet(struct world *world);

/* Bytes that depend on `seed` only. */
void world_pattern(uint8_t *bytes, size_t length, uint64_t seed);

/* ---- net_service.c ---- */

/* What a request's body starts with, and what a reply's body is. */
struct world_question {
    uint64_t pattern;
    uint64_t hash; /* Of the data that follows. */
    uint32_t operation;
    uint32_t key;
    uint32_t delay_us;
    uint32_t reply_bytes;
    uint32_t says_again;
    uint32_t refuses;
};

struct world_answer {
    uint64_t pattern;
    uint64_t value;
    uint32_t operation;
    uint32_t life;
};

extern const struct yb_method world_methods[];
extern const uint32_t world_method_count;

/* Answer everything that is held, as the end of a life must. */
void world_service_end(struct world_life *life);

#endif /* YB_TESTS_NET_WORLD_H */
