/* SPDX-License-Identifier: Apache-2.0
 *
 * net_duo.h -- a client and a server with a service made for tests.
 *
 * On "epoll" and "io_uring" both live in one loop and speak over loopback; on "sim" each is a
 * process on a host of its own, and time is virtual. What the options say may be changed between
 * duo_init() and duo_start().
 */
#ifndef YB_TESTS_NET_DUO_H
#define YB_TESTS_NET_DUO_H

#include "unit.h"

#include <string.h>

#include "io_probe.h"
#include "net/conn.h"
#include "net/conn_internal.h"
#include "net/peer.h"
#include "net/server.h"
#include "net/sim.h"

#define DUO_PORT       7000
#define DUO_HELD_MAX   256u
#define DUO_IOV_MAX    512u
#define DUO_OPERATIONS 8192u
#define DUO_REAL_S     60 /* Only something broken takes so long ... */
#define DUO_VIRTUAL_S  3000
#define DUO_SECRET     "secret 0123456789abcdef0123456789abcdef\n"

enum side { CLIENT, SERVER };

/* The methods of the test service. */
enum duo_type {
    DUO_STORE = 100, /* Data goes to `memory`, cut into as many vectors as the body says. */
    DUO_LOAD,        /* Replies with data from `memory`: struct duo_load. */
    DUO_SWAP,        /* Replies with the data that came. */
    DUO_HOLD,        /* Is kept until service_reply(). Takes data. */
    DUO_ADD,         /* Mutation: adds one to `sum` and replies with it. */
    DUO_HOLD_ADD,    /* Mutation that is kept. */
    DUO_HOLD_LANDS,  /* Like DUO_HOLD; it may write its caller's memory until its reply. */
    DUO_PUT,         /* Mutation with data. */
    DUO_NODE_ONLY,   /* Clients may not. */
    DUO_SMALL,       /* Bodies of at most 8 bytes. */
    DUO_PICKY,       /* `place` says NO_SPACE. */
    DUO_BUSY_ADD,    /* Mutation that says AGAIN the first time. */
};

struct duo_load {
    uint64_t bytes;
    uint32_t vectors;
    uint32_t body_bytes; /* Of the reply. */
};

struct service {
    struct yb_loop *loop; /* The server's. */
    uint8_t *memory;      /* Owned. */
    size_t memory_bytes;
    struct iovec iov[DUO_IOV_MAX]; /* For what arrives. */
    struct yb_request *held[DUO_HELD_MAX];
    uint32_t held_count;
    uint64_t sum;
    uint32_t placed;
    uint32_t handled;
    uint32_t aborted;
    uint32_t replied_data;
    uint32_t released;
    uint32_t busy_said;
    uint8_t ran[DUO_OPERATIONS]; /* How often each was run whose body is its number. */
    struct loan *loans;          /* Free ones; owned. */
};

struct duo {
    /* ---- options ---- */
    const char *backend;
    bool tls;
    bool auth;
    struct yb_hello_self selfs[2];
    struct yb_net_limits limits[2];
    uint32_t connections_max;
    uint32_t unauthenticated_max;
    struct yb_id wanted; /* Identity that the peer must have; none: anybody. */
    struct yb_sim_link link;
    struct yb_service instead; /* With methods: of the test service. */

    /* ---- what runs ---- */
    uint64_t random;
    struct yb_sim *sim;
    struct yb_sim_host *hosts[2];
    struct yb_sim_process *processes[2];
    struct yb_loop *loops[2]; /* One and the same outside the simulation. */
    struct yb_net *nets[2];
    struct yb_stats *stats[2];
    struct yb_auth *auths[2];
    struct yb_tls_context *contexts[2];
    struct yb_replay *replay;
    struct yb_service table;
    struct service service;
    struct yb_server *server;
    struct yb_address address;
    struct yb_peer *peer;
    bool submitting;
    uint32_t raws_made;
};

/* One call and what became of it. */
struct caller {
    struct yb_call call;
    struct duo *duo;
    uint32_t done;
    bool scribble; /* In `done`, overwrite what the call had lent. */
    void (*then)(struct caller *caller);
    uint8_t body[64];
    uint8_t reply[64];
};

/* Return false where the backend is forbidden here; the test is to be skipped. */
bool duo_possible(const char *backend);

void duo_init(struct duo *duo, const char *backend);
void duo_start(struct duo *duo);
/* End everything, and check that nothing is left of it. */
void duo_fini(struct duo *duo);

/* Stop the server side and lose what it knew; start another life of it on the same port. */
void duo_stop_server(struct duo *duo, bool drain);
void duo_start_server(struct duo *duo);

/* Put another net and peer in the place of the client's, in the same life of its process. */
void duo_renew_client(struct duo *duo);

/* Make one more peer of the client's for the server's address. */
struct yb_peer *duo_peer(struct duo *duo);

/* Let something happen, or a little time pass. */
void duo_turn(struct duo *duo);
uint64_t duo_now(struct duo *duo);
/* Let the loops run although the kernel has nothing for them: something was asked of them. */
void duo_kick(struct duo *duo);
/* The client's time `ms` from now. */
uint64_t duo_deadline(struct duo *duo, uint64_t ms);
/* Let `ms` pass (virtual time only). */
void duo_pass_ms(struct duo *duo, uint64_t ms);

#define DUO_AWAIT(duo, condition)                                                       \
    do {                                                                                \
        uint64_t await_s_ = (duo)->sim != NULL ? DUO_VIRTUAL_S : DUO_REAL_S;            \
        uint64_t await_until_ = duo_now(duo) + await_s_ * YB_NS_PER_S;                  \
        while (!(condition)) {                                                          \
            if (duo_now(duo) >= await_until_) {                                         \
                fail_msg("never: %s (%s)", #condition,                                  \
                         (duo)->peer != NULL ? yb_peer_error((duo)->peer) : "no peer"); \
            }                                                                           \
            duo_turn(duo);                                                              \
        }                                                                               \
    } while (0)

/* A number of the net's statistics; labels summed up. */
uint64_t duo_stat(const struct duo *duo, enum side side, enum yb_net_stat stat);

/* Zero the caller; class FIRST_TOKEN, control lane, deadline in ten virtual seconds, or in
 * DUO_REAL_S. */
void caller_init(struct caller *caller, struct duo *duo, uint16_t type);
void caller_body(struct caller *caller, const void *body, uint32_t bytes);
enum yb_status caller_submit(struct caller *caller);
/* Submit and await the end. */
void caller_run(struct caller *caller);
/* The outcome that means: answered, and with this status. */
void caller_expect(const struct caller *caller, enum yb_status status);
/* Not answered. */
void caller_expect_none(const struct caller *caller, enum yb_status status, bool sent);
void caller_cancel(struct caller *caller);

/* Reply to what is held, oldest first. */
void service_reply(struct service *service, enum yb_status status, const void *body,
                   uint32_t bytes);
void service_room(struct service *service, size_t bytes);

/* Cut `length` bytes at `base` into `count` vectors of different lengths, some of them empty. */
void duo_cut(struct iovec *iov, uint32_t count, uint8_t *base, size_t length, uint64_t seed);

/* ---- somebody who speaks by hand ----------------------------------------------------------- */

struct raw {
    struct duo *duo;
    struct io_probe probe;
    struct yb_hello_self self; /* The client's, with an identity of its own. */
    struct yb_hello *hello;
    size_t taken;      /* Of what was received. */
    uint8_t out[4096]; /* Lent to a send. */
};

/* Connect to the server as client and finish the handshake (unless `silent`). */
void raw_open(struct raw *raw, struct duo *duo, bool silent);
void raw_close(struct raw *raw);
void raw_send(struct raw *raw, const void *bytes, size_t length);
/* Fill in a valid request. */
void raw_header(struct raw *raw, struct yb_wire_frame_header *header, uint16_t type, uint64_t id);
/* Write the header with its CRC, and the body. */
void raw_frame(struct raw *raw, const struct yb_wire_frame_header *header, const void *body);
/* Await the next frame; its body is dropped. Returns false if the server closed instead. */
bool raw_next(struct raw *raw, struct yb_wire_frame_header *header_out);
bool raw_lost(const struct raw *raw);

#endif /* YB_TESTS_NET_DUO_H */
