/* SPDX-License-Identifier: Apache-2.0
 *
 * store_world.h -- a whole store on the simulated network: a directory, nodes, clients, virtual
 * time.
 *
 * Every role is a process on a host of its own and runs the code that real processes run. Host 0
 * is the directory's, then come those of nodes, then those of clients:
 *
 *     down --store_start()--> up --store_crash()--> down --store_start()--> ...
 *
 * A life of a role has an incarnation of its own. The directory's cluster file outlives its
 * process; a node's memory does not.
 *
 * Threads   One.
 * Memory    The world owns everything; operations live until store_world_destroy().
 * Failure   What does not hold is printed with the seed and the last events, and aborts.
 */
#ifndef YB_TESTS_STORE_WORLD_H
#define YB_TESTS_STORE_WORLD_H

#include <stdbool.h>
#include <stdint.h>

#include "client/core.h"
#include "directory/directory.h"
#include "net/replay.h"
#include "net/server.h"
#include "net/sim.h"
#include "node/node.h"
#include "store_judge.h"
#include "tier/memory/memory.h"

#define STORE_NODES_MAX   8u
#define STORE_CLIENTS_MAX 8u
#define STORE_ROLES_MAX   (1u + STORE_NODES_MAX + STORE_CLIENTS_MAX)
#define STORE_PORT        7000u
#define STORE_FILE_BYTES  (256u * 1024u)
#define STORE_BATCH_MAX   16u
#define STORE_VALUE_MAX   8192u

enum store_kind { STORE_DIRECTORY, STORE_NODE, STORE_CLIENT };

struct store_world;
struct store_role;
struct store_op;

struct store_options {
    uint64_t seed;
    uint32_t nodes;
    uint32_t clients;
    uint32_t lease_ms;        /* 0: 400. */
    uint64_t pool_bytes;      /* Of each node; 0: 1 MiB. */
    const char *policy;       /* NULL: the node's default. */
    bool verify;              /* Nodes sum what they hold. */
    bool engines;             /* Nodes lend their pools, to who reads them from beside. */
    bool near;                /* So they do, and each client is on a node's machine. */
    uint32_t tiers;           /* Below each node's memory: 0 to 2. */
    uint64_t tier_bytes;      /* Of each; 0: 1 MiB. */
    uint64_t object_bytes;    /* Of the second; 0: as much. */
    const char *write_policy; /* NULL: the node's default. */
    uint32_t tier_ms;         /* How long they take, at most; 0: 2. */
    uint64_t part_bytes;      /* Longer values are cut by their writers; 0: none is. */
    uint32_t late;            /* The last so many nodes are not started by create. */
    /* Change what a role is made with; each may be NULL. */
    void (*tune_directory)(struct yb_directory_options *options);
    void (*tune_node)(uint32_t number, struct yb_node_options *options);
    void (*tune_client)(uint32_t number, struct yb_client_core_options *options);
    const char *const *tenants; /* Of each client; NULL: "default". */
    const char *repeat;         /* What to type to see a failure again. */
};

/* One life of a role. */
struct store_life {
    struct store_world *world;
    struct store_role *role;
    uint64_t random;
    bool over;
    struct yb_sim_process *process;
    struct yb_loop *loop;
    struct yb_hello_self self;
    struct yb_replay *replay;
    struct yb_net *net;
    struct yb_server *server;
    struct yb_directory *directory;
    struct yb_node *node;
    struct yb_client_core *client;
    struct yb_transfer *engine; /* A node's, or NULL. */
    struct yb_loop *engine_loop;
    struct yb_sim_process *engine_process;
    char engine_address[YB_ADDRESS_TEXT_BYTES];
    struct yb_task task;
    struct store_op *jobs; /* To be submitted inside a turn of the loop; newest first. */
    char name[16];
    char address[YB_ADDRESS_TEXT_BYTES];
};

struct store_role {
    struct store_world *world;
    enum store_kind kind;
    uint32_t number; /* Among its kind. */
    uint64_t incarnation;
    struct yb_sim_host *host;
    struct yb_sim_host *beside; /* Of a node's engine, if it has one of its own; or NULL. */
    struct store_life *life;    /* NULL: down. */
    void *memory;               /* A node's pool. */
    /* A node's disk and object store: they outlive it. */
    struct yb_memory_medium *media[YB_NODE_TIERS_MAX];
    struct yb_node_tier tiers[YB_NODE_TIERS_MAX];
    uint64_t tier_random;
    bool stalled;
    bool silent;
    uint64_t resumed_ns; /* When its clock last jumped for it, or it went on after a stall. */
};

/* One operation of a client. */
struct store_op {
    struct store_op *next; /* All, newest first. */
    struct store_op *job_next;
    struct store_world *world;
    struct store_life *life;
    uint32_t client;
    uint32_t number; /* From 0. */
    struct yb_client_batch batch;
    struct yb_client_item items[STORE_BATCH_MAX];
    struct iovec iov[STORE_BATCH_MAX];
    uint32_t keys[STORE_BATCH_MAX];   /* Key numbers. */
    uint64_t values[STORE_BATCH_MAX]; /* put: which value; get, after OK: which was read. */
    char names[STORE_BATCH_MAX][16];
    uint8_t *memory; /* Values, each with a guard behind it. */
    size_t memory_bytes;
    uint64_t began_ns;
    uint64_t ended_ns;
    bool accepted;
    bool looked;                     /* Of a fetch: where its items are was told, ... */
    bool has_ended[STORE_BATCH_MAX]; /* ... and that these have ended. */
    bool orphan;                     /* It ended because its client died. */
    bool reused;                     /* It has ended, and its memory is in other use. */
    uint32_t done;
};

struct store_world {
    struct store_options options;
    struct yb_sim *sim;
    struct store_role roles[STORE_ROLES_MAX];
    uint32_t role_count;
    uint8_t file[STORE_FILE_BYTES]; /* The cluster file. */
    size_t file_bytes;
    struct yb_directory_storage storage;
    struct store_op *ops;
    uint32_t op_count;
    uint32_t open; /* Accepted and not done. */
    struct store_judge *judge;
    uint32_t key_count;  /* One above the highest key of any operation. */
    uint32_t key_failed; /* Dumps show operations on it alone; UINT32_MAX: on all. */
};

struct store_world *store_world_create(const struct store_options *options);
void store_world_destroy(struct store_world **world);

struct store_role *store_directory(struct store_world *world);
struct store_role *store_node(struct store_world *world, uint32_t number);
struct store_role *store_client(struct store_world *world, uint32_t number);

/* Start a life. A `fresh` directory has lost its cluster file. */
void store_start(struct store_role *role);
void store_crash(struct store_role *role, enum yb_sim_death how);
void store_stall(struct store_role *role, bool stalled);

/* Heal the network, resume who is stalled, start who is down. */
void store_heal(struct store_world *world);

/* Drain a node, or take it back, if the directory is up and knows it. */
void store_drain(struct store_world *world, uint32_t number, bool draining);

/* Where the directory, which is up, says that a block of the tenant "default" is. */
struct yb_index_answer;
void store_named(struct store_world *world, struct yb_id hash, struct yb_index_answer *found_out);

/* What the directory, which is up, knows of a node by its slot. */
struct yb_members_slot;
const struct yb_members_slot *store_known(struct store_world *world, uint16_t slot);

/* Let time pass; store_check() runs after every step. */
void store_run_ms(struct store_world *world, uint64_t ms);

/* Let time pass until no operation is open, at most `ms`. Returns whether that is so. */
bool store_settle(struct store_world *world, uint64_t ms);

/* Whether every node is registered, every client has joined, and the directory is not
 * rebuilding. */
bool store_ready(struct store_world *world);

/* Make an operation over `count` keys (numbers); the caller may change its batch before it goes. A
 * put's value of key k is `values[i]`: bytes that are a function of it, `bytes` long. */
struct store_op *store_op(struct store_world *world, uint32_t client, uint8_t kind,
                          const uint32_t *keys, uint32_t count, uint32_t deadline_ms);
void store_value(struct store_op *op, uint32_t index, uint64_t value, size_t bytes);

/* Whether these are the bytes of that value of that key, whole. */
bool store_value_matches(const void *bytes, size_t length, uint32_t key, uint64_t value);
void store_submit(struct store_op *op);

/* Make, submit and await one operation of one key. */
enum yb_status store_put(struct store_world *world, uint32_t client, uint32_t key, uint64_t value,
                         bool replace);
enum yb_status store_get(struct store_world *world, uint32_t client, uint32_t key,
                         uint64_t *value_out);
enum yb_status store_exist(struct store_world *world, uint32_t client, uint32_t key);
enum yb_status store_remove(struct store_world *world, uint32_t client, uint32_t key);

/* Random bytes for a life (yb_span_random_fn). */
void store_random(void *life, void *out, size_t bytes);

/* The rules that hold at any time (RULES H); fails the world if one does not. */
void store_check(struct store_world *world);

void store_failed(const struct store_world *world, const char *what, const char *file, int line);
#define STORE_CHECK(world, condition)                              \
    do {                                                           \
        if (!(condition)) {                                        \
            store_failed((world), #condition, __FILE__, __LINE__); \
        }                                                          \
    } while (0)

#endif /* YB_TESTS_STORE_WORLD_H */
