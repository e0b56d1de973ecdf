/* SPDX-License-Identifier: Apache-2.0
 *
 * directory_stage.h -- a directory on the simulated network, and those who speak to it by hand.
 *
 * Every actor is a process on a host of its own, with a peer for the directory; nodes serve what a
 * directory orders, in a way that the test sets, and remember it. Time is virtual.
 */
#ifndef YB_TESTS_DIRECTORY_STAGE_H
#define YB_TESTS_DIRECTORY_STAGE_H

#include "unit.h"

#include <string.h>

#include "base/hash.h"
#include "directory/directory.h"
#include "directory/grant.h"
#include "directory/wire/directory_wire.h"
#include "net/peer.h"
#include "net/server.h"
#include "net/sim.h"
#include "node/wire/node_wire.h"

#define STAGE_PORT       7000u
#define STAGE_NODES      4u
#define STAGE_ORDERS_MAX 4096u
#define STAGE_HELD_MAX   64u
#define STAGE_REPLY_MAX  (2u << 20)
#define STAGE_LEASE_MS   800u

/* What a node answers to orders. */
enum stage_manner {
    STAGE_OBEYS,
    STAGE_HOLDS,   /* Answers when stage_release() is called. */
    STAGE_REFUSES, /* Says FENCED. */
    STAGE_FULL,    /* Has no room for copies, and obeys otherwise. */
};

struct stage_order {
    uint16_t type; /* enum yb_wire_node_type */
    uint8_t reason;
    uint64_t incarnation;
    struct yb_id hash;
    uint64_t grant; /* Of a flush its epoch; of a copy the source's incarnation is in `source`. */
    uint64_t source;
};

struct stage;

struct stage_actor {
    struct stage *stage;
    const char *name;
    struct yb_sim_host *host;
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_replay *replay;
    struct yb_net *net;
    struct yb_server *server;
    struct yb_peer *peer; /* The directory. */
    struct yb_service service;
    uint64_t random;

    /* ---- nodes ---- */
    enum stage_manner manner;
    struct stage_order orders[STAGE_ORDERS_MAX];
    uint32_t order_count;
    uint32_t messages; /* With orders. */
    struct yb_request *held[STAGE_HELD_MAX];
    uint32_t held_count;
    uint64_t incarnation;
    uint64_t epoch;
    uint64_t sequence; /* Of the last publication. */
    uint32_t told;     /* What the end of its inventory says. */
    uint64_t flush_version;
    uint16_t slot;
    bool keep;
    bool beats; /* Sends heartbeats by itself. */
    struct yb_timer beat;
    struct yb_call beat_call;
    bool beat_busy;
    uint8_t beat_body[YB_WIRE_HEARTBEAT_BYTES_MAX];
    uint8_t beat_reply[65536];
    enum yb_status beat_status;
    struct yb_wire_heartbeat_answer beat_answer;
    uint64_t capacity;
    uint64_t used;
    struct yb_wire_tenant_use use;
    bool has_use;
};

struct stage_file {
    uint8_t bytes[65536];
    size_t length;
    uint32_t stores;
    bool fails;
};

struct stage {
    struct yb_sim *sim;
    struct stage_file file;
    struct yb_directory_storage storage;
    struct yb_directory_options options;
    struct yb_directory *directory;
    struct stage_actor place; /* The directory's process. */
    struct stage_actor nodes[STAGE_NODES];
    struct stage_actor client;
    struct stage_actor other; /* A client of another tenant. */
    struct stage_actor admin;
    struct yb_stats *stats;
    char why[512];
    uint8_t reply[STAGE_REPLY_MAX];
    uint32_t reply_bytes;
};

/* One call. */
struct stage_call {
    struct yb_call call;
    bool done;
    uint8_t body[1u << 20];
    uint8_t reply[1u << 20];
};

void stage_init(struct stage *stage); /* The options may be changed before stage_start(). */
void stage_start(struct stage *stage);
void stage_fini(struct stage *stage);

/* End the directory's process and begin another one with what was stored. */
void stage_restart_directory(struct stage *stage);

void stage_pass_ms(struct stage *stage, uint64_t ms);
uint64_t stage_now(const struct stage *stage);

#define STAGE_AWAIT(stage, condition)                                                       \
    do {                                                                                    \
        uint64_t await_until_ = yb_sim_now_ns((stage)->sim) + 60 * YB_NS_PER_S;             \
        while (!(condition)) {                                                              \
            if (yb_sim_now_ns((stage)->sim) > await_until_ || !yb_sim_step((stage)->sim)) { \
                fail_msg("never: %s", #condition);                                          \
            }                                                                               \
        }                                                                                   \
    } while (0)

/* Ask the directory and await the answer, whose body is in stage->reply. */
enum yb_status stage_ask(struct stage_actor *actor, uint16_t type, const void *body,
                         uint32_t body_bytes);

/* Begin to ask; the call is on the heap, to be given to stage_end_call(). */
struct stage_call *stage_begin_call(struct stage_actor *actor, uint16_t type, const void *body,
                                    uint32_t body_bytes);
enum yb_status stage_end_call(struct stage *stage, struct stage_call *call);

/* ---- what nodes do --------------------------------------------------------------------------- */

/* Register as `name`, keeping what `incarnation` held (0: empty). */
enum yb_status stage_register(struct stage_actor *node, uint64_t incarnation);
enum yb_status stage_beat_once(struct stage_actor *node);
void stage_beat(struct stage_actor *node, bool on);
/* Answer what is held. */
void stage_release(struct stage_actor *node, enum yb_status status);
uint32_t stage_count_orders(const struct stage_actor *node, uint16_t type, struct yb_id hash,
                            uint64_t grant);

/* Publish one item, in a message of the next sequence; the answer is in *answer_out. */
enum yb_status stage_publish(struct stage_actor *node, const struct yb_wire_publish_item *item,
                             struct yb_wire_grant_answer *answer_out);
uint32_t stage_encode_publication(struct stage_actor *node, uint64_t sequence, uint8_t phase,
                                  const struct yb_wire_publish_item *items, uint32_t count,
                                  uint8_t *out);
enum yb_status stage_phase(struct stage_actor *node, uint8_t phase);
struct yb_wire_publish_item stage_item(uint8_t mode, struct yb_id hash, uint64_t grant,
                                       uint64_t write);
/* Put by if_absent; returns the grant. */
uint64_t stage_put(struct stage_actor *node, struct yb_id hash, uint64_t write, uint8_t replicas);

/* ---- what clients do ------------------------------------------------------------------------- */

struct yb_id stage_hash(uint32_t number);
struct yb_wire_lookup_answer stage_lookup(struct stage_actor *actor, struct yb_id hash);
struct yb_wire_intent_answer stage_intent(struct stage_actor *actor, uint8_t mode,
                                          struct yb_id hash, uint64_t write, uint32_t expected_us);
struct stage_call *stage_begin_remove(struct stage_actor *actor, struct yb_id hash, bool force);
enum yb_status stage_remove(struct stage_actor *actor, struct yb_id hash, bool force);
/* What one answer of a removal says. */
enum yb_status stage_removal(const uint8_t *body, uint32_t bytes);

/* Return a member by slot; false: it is not listed. */
bool stage_member(struct stage_actor *actor, uint16_t slot, struct yb_wire_member *member_out);
uint64_t stage_stat(const struct stage *stage, enum yb_directory_stat stat);

#endif /* YB_TESTS_DIRECTORY_STAGE_H */
